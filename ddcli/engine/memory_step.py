"""A step in memory: an interval closed over all operators at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.in_memory import InMemoryExecutor
from ddcli.engine.operators.base import Delta
from ddcli.engine.scope_tree import HERE, Address
from ddcli.engine.shards import dealt, summed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.engine.places import Deltas
    from ddcli.engine.rounds import Interval
    from ddcli.engine.scope import Part
    from ddcli.engine.scope_tree import ScopeTree
    from ddcli.engine.trace.spine import Trace


def step_in_memory(
    nest: ScopeTree,
    fed: dict[int, Delta | Deltas],
    interval: Interval,
    parts: Sequence[tuple[int, Part]] = (),
    on_trace_ready: Callable[[Trace], None] | None = None,
    leave: Callable[[int, Delta], bool] | None = None,
) -> dict[int, Deltas]:
    """Close the interval: step the operators that have work, and return the updates of the places that are kept.

    A shard's updates may `leave` as soon as they are known, in the thread that made them: `leave` returns True for those that it takes.

    `fed` has sources' updates by index, by shard where they have one; all their times are in the interval. They are removed from it, so that
    their last reader releases their memory. The updates of a scope that
    streams may come in `parts`, read as they are needed, and its traces are handed over as soon as all readers are done.
    """
    if nest.is_flat and not nest.scope.streams:
        return step_flat(nest, fed, interval)
    resident = InMemoryExecutor(nest, interval, parts, on_trace_ready, leave)
    resident.begin(())
    for index in [*fed]:
        if (deltas := _by_shard(fed.pop(index), nest.scope.workers.count)) is not None:
            resident.schedule.add(Address((index,), HERE, 0), deltas)
        del deltas
    found = resident.run(resident.schedule.legs())
    # Times before the upper have no more readers, so sealed updates may be compacted up to there.
    nest.close((), interval)
    resident.seal((), ())
    return found


def step_flat(nest: ScopeTree, fed: dict[int, Delta | Deltas], interval: Interval) -> dict[int, Deltas]:
    """Close the interval of a nest that is one stage of one shard: nothing is scheduled, as that would take longer than a step of few rows."""
    scope = nest.scope
    (stage,) = scope.stages
    scope.announce(stage)
    given = {index: _in_one(fed.pop(index)) for index in [*fed]}
    beginning = nest.beginners(())
    due = (
        {index for index, operator in beginning if any(True for _ in operator.begin(interval))} if beginning else set()
    )
    found = scope.through(stage, 0, given, {}, due, interval)
    nest.close((), interval)
    scope.seal(found.stepped, interval)
    return {index: [delta] for index, delta in found.found.items()}


def _in_one(given: Delta | Deltas) -> Delta:
    """Return a place's input as one delta."""
    return given if isinstance(given, Delta) else summed(given)


def _by_shard(given: Delta | Deltas, count: int) -> Deltas | None:
    """Return a place's input for each of `count` shards; None if it has no updates."""
    deltas = given if isinstance(given, list) else [given] if count == 1 else dealt(given, count)
    return deltas if any(len(delta.updates) for delta in deltas) else None
