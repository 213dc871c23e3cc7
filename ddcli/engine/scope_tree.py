"""The scopes of a dataflow by their paths, each loop a scope within another; and the places where updates wait between the tasks of a step.

In a loop's scope times have one more coordinate, the round. A variable is, in round 0, its initial collection, and in round r + 1 its result in round r. As differences: the
initial enters at round 0 and is taken back at round 1, the result comes a round later. Other collections that enter exist from round 0
on. A collection that leaves drops the round, so that it sums the updates of all rounds: the fixed point, or, if the rounds are
bounded, the collection in the last one.

Rounds are taken in order, those with nothing to do are skipped, and each is one turn of the body over all epochs at once.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, consolidated
from ddcli.engine.rounds import with_rounds, without_rounds
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ddcli.engine.counts import RowCounts
    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.join import Entered
    from ddcli.engine.operators.revisit import Memo
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.scope import Scope
    from ddcli.engine.stages import Deltas, Handle, OperatorSlot, Stage
    from ddcli.engine.trace.spine import Trace
    from ddcli.errors import Text


Path = tuple[int, ...]
"""The places of the loops that lead to a scope, outermost first; one more number leads to a place in it."""

Memos: TypeAlias = "dict[tuple[Path, int], Memo]"
"""The knowledge of reductions in loops about rounds that other workers stepped, by place and shard."""

HERE = "here"
"""Updates are with the shard that emitted them."""
EXCHANGED = "exchanged"
"""Updates are with the shard that owns the key that the place reads them by."""
LATE = "late"
"""Emitted by the place itself, for a later round."""
APART = "apart"
"""Updates of a variable, distributed by whole records, to be consolidated."""
CALLED = "called"
"""Keys of groups to evaluate."""
KEPT = "kept"
"""The updates that the place's traces took in in this interval."""


class Address(NamedTuple):
    """The address at which updates wait for a shard: a place, their kind, their rounds; for kept updates also `trace`, the number of the trace."""

    place: Path
    what: str
    shard: int
    rounds: Rounds = ()
    trace: int = 0


class ScheduledActivation(NamedTuple):
    """A call of an operator in some rounds, in one shard."""

    place: Path
    rounds: Rounds
    shard: int


class Exchange(Protocol):
    """Updates that are stored until their shard passes a stage. Threads may add at once."""

    def add(self, to: Address, updates: np.ndarray, layout: Layout, pool: Pool) -> None:
        """Store updates, whose data has a layout; the values behind their hashes are in `pool`."""

    def take(self, at: Address, layout: Layout, pool: Pool, *, last: bool) -> np.ndarray | None:
        """Return all added updates, or None, with their values in `pool`; the `last` call removes them."""

    def parts(self, at: Address, layout: Layout, pool: Pool) -> list[np.ndarray]:
        """Return the updates of each call of `add`, as they were."""


class ScopeTree:
    """A prepared scope and those within it, and facts of their structure that each round needs."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.scopes: dict[Path, Scope] = {}
        self.origins: dict[Path, Path] = {}
        """The place of the arrangement outside, for each place at which it enters a loop."""
        self._loops: dict[Path, LoopScope] = {}
        self._add((), scope)
        self._below = {
            path: tuple(other for other in self.scopes if other[: len(path)] == path) for path in self.scopes
        }
        self._arriving = {
            path: tuple((place, origin) for place, origin in self.origins.items() if place[:-1] == path)
            for path in self._loops
        }
        self._given = {path: frozenset(self.inputs(path)) for path in self._loops}
        self._feeds = {path: frozenset(handle.index for handle in self.fed(path)) for path in self._loops}
        self._feeds[()] = frozenset()

    def _add(self, path: Path, scope: Scope) -> None:
        scope.prepare()
        self.scopes[path] = scope
        for index, place in enumerate(scope.places):
            if isinstance(place.inner, LoopScope):
                below, loop = (*path, index), place.inner
                self._loops[below] = loop
                self._add(below, loop.scope)
                for entry, outer in zip(loop.entries, place.inputs[len(loop.variables) :], strict=True):
                    if entry.arranged:
                        self.origins[*below, entry.place.index] = (*path, outer)

    def close(self, path: Path, interval: Interval) -> None:
        """Have a scope and those within release all that has no reader from the interval's upper on."""
        for inner in self.below(path):
            self.scopes[inner].close(interval)

    def slot(self, place: Path) -> OperatorSlot:
        """Return the slot of a place."""
        return self.scopes[place[:-1]].places[place[-1]]

    def loop(self, path: Path) -> LoopScope:
        """Return the loop whose scope has a path."""
        return self._loops[path]

    def inputs(self, path: Path) -> list[Path]:
        """Return the outer places that a loop reads: its variables' initials, then the other entries."""
        return [(*path[:-1], index) for index in self.scopes[path[:-1]].places[path[-1]].inputs]

    def given(self, path: Path) -> frozenset[Path]:
        """Return the outer places that a loop reads, each once."""
        return self._given[path]

    def entered_traces(self, path: Path) -> tuple[tuple[Path, Path], ...]:
        """Return the places at which arrangements enter a loop, each with the place of the arrangement outside."""
        return self._arriving[path]

    def below(self, path: Path) -> tuple[Path, ...]:
        """Return the paths of a scope and of those within, from outside in."""
        return self._below[path]

    def feeds(self, path: Path) -> frozenset[int]:
        """Return the places of a loop's scope that are fed from outside or by the round before; none outside of loops."""
        return self._feeds[path]

    def fed(self, path: Path) -> Sequence[Handle]:
        """Return the handles of a loop's variables, then of the other entries, in the order of `inputs`."""
        return self.loop(path).fed

    def is_sent(self, path: Path, stage: Stage) -> bool:
        """Return whether all updates of a stage of a loop are sent to their readers at once, and none leaves the loop."""
        here = {index for index in stage.members if (*path, index) in self.origins}
        return stage.members <= self.feeds(path) - here and self.scopes[path].kept.isdisjoint(stage.members)

    def read(self, path: Path, stage: Stage) -> set[Path]:
        """Return the places whose traces are read in a stage: in this scope, and outside of it, if a trace entered from there."""
        return set(self._outwards((*path, index) for index in (*stage.members, *stage.reads)))

    def readers(self, at: Address) -> list[int]:
        """Return the stages that read the updates at an address outside of all loops, in their order; a loop is a stage there."""
        (index,) = at.place
        if at.what == EXCHANGED:
            return [number for number, stage in enumerate(self.scope.stages) if index in stage.members]
        return [number for number, stage in enumerate(self.scope.stages) if index in stage.reads]

    def outer_traces(self, path: Path) -> set[Path]:
        """Return the places outside of a loop whose traces are read in it."""
        return set(self._outwards(self.inputs(path)))

    def _outwards(self, places: Iterable[Path]) -> Iterator[Path]:
        for place in places:
            yield place
            if place in self.origins:
                yield from self._outwards([self.origins[place]])


LITTLE = 1_000_000
"""Rows that leave a loop before they are consolidated."""


@frozen
class LoopEntry:
    """The place at which a collection enters from outside. `arranged` are the shards of one that stays arranged; its times get no round."""

    place: Handle
    arranged: Sequence[Entered] = ()


@frozen
class VariablePlaces:
    """The place at which a variable is read, and the place of its result. Its initial is the entry of the same position."""

    place: Handle
    result: Handle
    name: Text


class LoopScope:
    """A loop as an inner scope. Its inputs are the variables' initials, then the other collections that enter.

    It ends after `bound` rounds, if there is a bound; else its variables must not change any more after `guard` rounds.

    `show` returns the text of a few changes [data | diff] of the i-th variable, for the message of the EngineError that the loop doesn't settle.
    """

    def __init__(
        self,
        scope: Scope,
        variables: Sequence[VariablePlaces],
        entries: Sequence[LoopEntry],
        leaving: Sequence[Handle],
        bound: int | None,
        guard: int,
        show: Callable[[int, np.ndarray], str],
    ):
        self.scope = scope
        self.variables = tuple(variables)
        self.entries = tuple(entries)
        self.leaving = tuple(handle.index for handle in leaving)
        self.turned: dict[int, list[int]] = defaultdict(list)
        """The places at which variables are read, for each place of a result."""
        for variable in self.variables:
            self.turned[variable.result.index].append(variable.place.index)
        self.bound, self.guard = bound, guard
        self.show = show
        self.fed = (*(variable.place for variable in variables), *(entry.place for entry in entries))
        for handle in [*(variable.result for variable in variables), *leaving]:
            scope.keep(handle)

    @property
    def turns(self) -> RowCounts:
        """Return the counts of its rounds."""
        return self.scope.turns

    def counts(self) -> Iterator[tuple[str, RowCounts]]:
        """Yield the counts of each of its named places."""
        return self.scope.counts()

    def traces(self) -> Iterator[Trace]:
        """Yield the traces of all its operators."""
        return self.scope.traces()

    def enter(self, given: Sequence[Delta | None]) -> Iterator[tuple[int, int, Delta]]:
        """Yield (place, round, updates) of everything that enters a shard but arrangements: initials enter in round 0 and are retracted in round 1."""
        for at, (handle, delta) in enumerate(zip(self.fed, given, strict=True)):
            if delta is None or (at >= len(self.variables) and self.entries[at - len(self.variables)].arranged):
                continue
            yield handle.index, 0, Delta(with_rounds(delta.updates, (0,), 1), delta.distinct)
            if at < len(self.variables):
                yield handle.index, 1, Delta(taken_back(delta.updates), delta.distinct)

    def restart(self) -> None:
        """Reset entered arrangements to before their new updates."""
        for entry in self.entries:
            for shard in entry.arranged:
                shard.restart()

    def check_settled(self, found: Mapping[int, Deltas]) -> None:
        """Raise EngineError where a variable still changes."""
        for at, variable in enumerate(self.variables):
            for delta in found.get(variable.result.index, ()):
                changes = kernels.consolidate(delta.updates)
                if len(changes):
                    # One change a record: its further changes, epoch by epoch, add nothing to the message.
                    data = without_rounds(changes, self.scope.nt)
                    net = kernels.consolidate(data)
                    raise EngineError(
                        f"the loop has not settled after {self.guard} rounds: its variable '{variable.name.value}' "
                        f"still changes, among others by {self.show(at, net if len(net) else data)}",
                        span=variable.name.span,
                        hint="`max_rounds: n` takes the collection after n rounds, `max_rounds: {guard: n}` allows for more",
                    )


def taken_back(updates: np.ndarray) -> np.ndarray:
    """Return the retractions of an initial's updates, for round 1."""
    back = with_rounds(updates, (1,), 1)
    np.multiply(back[:, -1], -1, out=back[:, -1])
    return back


def advanced(delta: Delta) -> np.ndarray:
    """Return a result's updates a round later, consolidated."""
    updates = kernels.take_sums(consolidated(delta), *_round_later(delta.updates.shape[1]))
    assert updates is not None, "rounds are few"
    return updates


@cache
def _round_later(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lanes of updates, and what is added to each in the next round."""
    return np.arange(width), np.eye(1, width, width - 2, np.int64)[0]


class LeavingUpdates:
    """The updates that leave a shard, whose rounds are dropped when they are put together. Many cancel, so they are consolidated from time to time."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.rows = 0
        self.room = LITTLE
        self.sums: list[np.ndarray] = []
        """The consolidated updates of earlier rounds, if there are any."""

    def add(self, updates: np.ndarray) -> None:
        """Add a round's updates."""
        self.parts.append(updates)
        self.rows += len(updates)
        if self.rows > self.room:
            # Each round's are mostly in order already, and merging is quicker than sorting all of them.
            parts = [kernels.consolidate(without_rounds(part, 1)) for part in self.parts]
            self.parts, self.sums = [], [kernels.merge([*self.sums, *parts])]
            self.rows = len(self.sums[0])
            self.room = LITTLE + 3 * self.rows

    def delta(self) -> Delta:
        """Return the sum of all rounds, and keep it no longer."""
        distinct = not self.parts
        if self.parts:
            self.sums.append(without_rounds(kernels.concat_out_of(self.parts), 1))
        return Delta(kernels.concat_out_of(self.sums), distinct)
