"""A scope and those within it, told apart by paths; and where what goes from one task of a step to others waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ddcli.engine.loop import Loop
from ddcli.engine.operators.revisit import Memo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

    from ddcli.engine.dataflow import Scope
    from ddcli.engine.lanes import Layout
    from ddcli.engine.places import Handle
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Rounds
    from ddcli.engine.stages import Stage

Path = tuple[int, ...]
"""The places of the loops that lead to a scope, outermost first; one more number leads to a place in it."""

Memos = dict[tuple[Path, int], Memo]
"""What reductions in loops must know of rounds that others stepped, by place and shard."""

HERE = "here"
"""With the shard that gave it."""
BROUGHT = "brought"
"""With the shard that owns the key by which the place wants it."""
LATE = "late"
"""Given by the place itself, for a later round."""
APART = "apart"
"""For a variable, dealt by whole records, to be summed up."""
CALLED = "called"
"""Keys of groups to be looked at."""
KEPT = "kept"
"""What the place's traces took in in this interval."""


class Address(NamedTuple):
    """Where updates wait for a shard: at a place, as what, for which rounds. Of what is kept, `trace` says by which of its traces."""

    place: Path
    what: str
    shard: int
    rounds: Rounds = ()
    trace: int = 0


class Wake(NamedTuple):
    """That an operator has something to do in some rounds, in one shard."""

    place: Path
    rounds: Rounds
    shard: int


class Exchange(Protocol):
    """Updates that are put away until their shard is taken through a stage. Threads may add at once."""

    def add(self, to: Address, updates: np.ndarray, layout: Layout, pool: Pool) -> None:
        """Put updates away, whose data has a layout; the values behind their hashes are in `pool`."""

    def take(self, at: Address, layout: Layout, pool: Pool, *, last: bool) -> np.ndarray | None:
        """Return all that was added, None for nothing, with its values in `pool`; the `last` time nothing is left."""

    def parts(self, at: Address, layout: Layout, pool: Pool) -> list[np.ndarray]:
        """Return what was added each time, as it was."""


@dataclass
class Nest:
    """A prepared scope and those within it."""

    scope: Scope
    scopes: dict[Path, Scope] = field(default_factory=dict)
    origins: dict[Path, Path] = field(default_factory=dict)
    """Of each place at which an arrangement enters a loop: the place outside where it is."""

    def __post_init__(self) -> None:
        self._add((), self.scope)

    def _add(self, path: Path, scope: Scope) -> None:
        scope.prepare()
        self.scopes[path] = scope
        for index, place in enumerate(scope.places):
            if isinstance(place.inner, Loop):
                below, loop = (*path, index), place.inner
                self._add(below, loop.scope)
                for entry, outer in zip(loop.entries, place.inputs[len(loop.variables) :], strict=True):
                    if entry.arranged:
                        self.origins[*below, entry.place.index] = (*path, outer)

    def loop(self, path: Path) -> Loop:
        """Return the loop whose scope has a path."""
        inner = self.scopes[path[:-1]].places[path[-1]].inner
        assert isinstance(inner, Loop)
        return inner

    def inputs(self, path: Path) -> list[Path]:
        """Return the places around that a loop reads: its variables' initials, then what else enters."""
        return [(*path[:-1], index) for index in self.scopes[path[:-1]].places[path[-1]].inputs]

    def below(self, path: Path) -> Iterator[tuple[Path, Scope]]:
        """Yield a scope and those within."""
        return ((other, scope) for other, scope in self.scopes.items() if other[: len(path)] == path)

    def feeds(self, path: Path) -> frozenset[int]:
        """Return the places of a loop's scope that are fed from outside or by the round before."""
        return frozenset(handle.index for handle in self.fed(path))

    def fed(self, path: Path) -> list[Handle]:
        """Return the handles of a loop's variables, then of what else enters, as `inputs` has what comes to each."""
        loop = self.loop(path)
        return [*(variable.place for variable in loop.variables), *(entry.place for entry in loop.entries)]

    def read(self, path: Path, stage: Stage) -> set[Path]:
        """Return the places whose traces are read in a stage: in this scope, and outside, where one of them entered from there."""
        return set(self._outwards((*path, index) for index in (*stage.members, *stage.reads)))

    def entering(self, path: Path) -> set[Path]:
        """Return the places outside of a loop whose traces are read in it."""
        return set(self._outwards(self.inputs(path)))

    def _outwards(self, places: Iterable[Path]) -> Iterator[Path]:
        for place in places:
            yield place
            if place in self.origins:
                yield from self._outwards([self.origins[place]])


def within(address: Address | Wake, path: Path, rounds: Rounds) -> bool:
    """Say whether an address is inside of a loop, in these rounds of it and the loops around."""
    return address.place[: len(path)] == path != address.place and address.rounds[: len(rounds)] == rounds
