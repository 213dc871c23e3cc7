"""A scope and the scopes within it, by their paths; and the places where updates wait between the tasks of a step."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ddcli.engine.loop import LoopScope
from ddcli.engine.operators.base import Stateless

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.base import Operator
    from ddcli.engine.operators.revisit import Memo
    from ddcli.engine.places import Handle
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.scope import Scope
    from ddcli.engine.stages import Stage

Path = tuple[int, ...]
"""The places of the loops that lead to a scope, outermost first; one more number leads to a place in it."""

Memos: TypeAlias = "dict[tuple[Path, int], Memo]"
"""The knowledge of reductions in loops about rounds that other workers stepped, by place and shard."""

HERE = "here"
"""Updates are with the shard that emitted them."""
BROUGHT = "brought"
"""Updates are with the shard that owns the key that the place reads them by."""
LATE = "late"
"""Emitted by the place itself, for a later round."""
APART = "apart"
"""Updates of a variable, dealt by whole records, to be consolidated."""
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
        self._beginning: dict[Path, list[tuple[int, Operator]]] = {}
        self._closing: dict[Path, list[Operator]] = {}
        self._add((), scope)
        self._below = {
            path: tuple(other for other in self.scopes if other[: len(path)] == path) for path in self.scopes
        }
        self._gives = {
            path: [tuple(stage.exports | (each.kept & stage.members)) for stage in each.stages]
            for path, each in self.scopes.items()
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

    @cached_property
    def is_flat(self) -> bool:
        """Return whether the nest is one stage of one shard."""
        return len(self.scopes) == 1 and self.is_single(())

    def is_single(self, path: Path) -> bool:
        """Return whether a scope has one stage and one shard: then all updates that wait in it are for these."""
        scope = self.scopes[path]
        return len(scope.stages) == 1 and scope.workers.count == 1

    def beginners(self, path: Path) -> list[tuple[int, Operator]]:
        """Return the operators of a scope that do something when an interval begins, each with its place."""
        found = self._beginning.get(path)
        if found is None:
            shards = [(at, each) for at, place in enumerate(self.scopes[path].places) for each in place.shards]
            found = self._beginning[path] = [(at, each) for at, each in shards if _does(each, "begin")]
        return found

    def closers(self, path: Path) -> list[Operator]:
        """Return the operators of a scope that do something when an interval ends.

        Reductions in loops are first: they release copies of batches that the traces then merge.
        """
        found = self._closing.get(path)
        if found is None:
            shards = (each for place in self.scopes[path].places for each in place.shards)
            found = [each for each in shards if _does(each, "close")]
            found = self._closing[path] = sorted(found, key=lambda each: each.revisiting is None)
        return found

    def close(self, path: Path, interval: Interval) -> None:
        """Have a scope and those within release all that has no reader from the interval's upper on."""
        for inner in self.below(path):
            for operator in self.closers(inner):
                operator.close(interval)

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

    def read_places(self, path: Path, stage: int) -> tuple[int, ...]:
        """Return the places of a stage whose updates others read, or that leave."""
        return self._gives[path][stage]

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
        if at.what == BROUGHT:
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


def _does(operator: Operator, method: str) -> bool:
    """Return whether an operator overrides a method that by default does nothing."""
    return getattr(type(operator), method) is not getattr(Stateless, method)
