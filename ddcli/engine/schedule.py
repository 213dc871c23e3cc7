"""The schedule of a step: which operators begin, run and wait, which data are read for the last time, and in which round. It decides, and executes nothing.

Stage after stage: no leg of one begins before all legs of the one before are done. A loop goes round after round, each stage by
stage, from the first round on in which something waits in it or in a loop within; a loop in a loop is the same again.

The executor of the legs moves the updates and reports which of them then wait, and where: it reports all that a leg leaves for others, whatever
its kind. `Resident` does them in memory with operators that stay from leg to leg; tasks do them each with operators of its own, or
take a loop, or the rest of it, in one leg, which `Resident` does with a schedule that begins with what waits in this one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from ddcli.dataclass import dataclass
from ddcli.engine.scope_tree import APART, HERE, KEPT, Address, Wake
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ddcli.engine.rounds import Rounds
    from ddcli.engine.scope_tree import Nest, Path
    from ddcli.engine.stages import Stage


P = TypeVar("P")
"""Updates that wait somewhere."""

Action = Literal["stage", "enter", "sum", "seal", "rounds", "whole", "rest", "end"]
"""A stage for some shards; what begins a loop for them, sums up its variables, ends a round, is all of its rounds, ends it; a loop, or its rest, for all."""


WITHIN = ("whole", "rest", "end")
"""Actions whose stage is the loop's own, in the scope around; else it is one of the scope that the path leads to."""


class Leg(NamedTuple):
    """What is done next. `path` leads to the scope in which it is, `size` are the bytes that wait for it."""

    action: Action
    path: Path = ()
    rounds: Rounds = ()
    stage: int = 0
    shards: tuple[int, ...] = ()
    due: tuple[Wake, ...] = ()
    size: int = 0


Found = dict[Address, list[P]]
"""What waits for a leg."""


@dataclass
class Schedule(Generic[P]):
    """The schedule of one step. `add` and `wake` must learn of a leg's updates before the next leg is taken.

    With `little`, operators are of one leg only: what they must know of other legs waits for them. It says whether so many bytes in a
    loop are too little for many tasks, while so many are kept of its traces. Without it, operators stay: they keep what their traces
    take in, all shards go together as the first, and the end of a round, and of a loop, is a leg each time.
    """

    nest: Nest
    shards: range
    little: Callable[[int, int], bool] | None = None
    size: Callable[[P], int] = lambda _: 0
    """The bytes that updates are in memory."""
    _moving: dict[Path, dict[Rounds, Found[P]]] = field(default_factory=lambda: defaultdict(dict))
    _wakes: dict[Path, dict[Rounds, set[Wake]]] = field(default_factory=lambda: defaultdict(dict))
    _kept: dict[Path, Found[P]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        self._every = tuple(self.shards)

    def add(self, at: Address, parcel: P) -> None:
        """Have updates wait at an address."""
        path = at.place[:-1]
        found = self._kept[path] if at.what == KEPT else self._moving[path].setdefault(at.rounds, {})
        found.setdefault(at, []).append(parcel)

    def wake(self, wake: Wake) -> None:
        """Have an operator called in some rounds."""
        self._wakes[wake.place[:-1]].setdefault(wake.rounds, set()).add(wake)

    def legs(self) -> Iterator[tuple[Leg, Found[P]]]:
        """Yield what is done, leg by leg, each with what it finds waiting."""
        for number, stage in enumerate(self.nest.scope.stages):
            if stage.whole:
                if self.little or self._has_work(stage.places, ()):
                    yield from self.loop(stage.places, (), number)
                self._read((), (), stage)
            else:
                # Outside of loops each stage is a leg of all: what is due is known when they have begun.
                due = self._due((), (), stage)
                found = self._waiting((), (), stage)
                self._read((), (), stage)
                yield Leg("stage", (), (), number, self._every, due, self._size(found)), found

    def loop(self, path: Path, outer: Rounds, number: int, *, begun: bool = False) -> Iterator[tuple[Leg, Found[P]]]:
        """Yield the legs of a loop, in some rounds of those around; `number` is the one of its stage there.

        With `begun`, the first of its rounds are done, and the rest is to do.
        """
        if not begun:
            if self._is_little(path, outer, self._given(path, outer)):
                yield self._whole("whole", path, outer, number)
                return
            yield from self._enter(path, outer)
            self._entered(path, outer, number)
        bound = self.nest.loop(path).limit.bound
        stages = self.nest.scopes[path].stages
        # All that waits in a round is for its only stage: who does the rounds needs nobody to say which.
        alone = not self.little and self.nest.is_single(path)
        if alone:
            yield Leg("rounds", path, outer, 0, self._every), {}
        while not alone and (now := self._next(path, outer)) is not None:
            if bound is not None and now >= bound:
                self._drop(path, outer)
                break
            rounds = (*outer, now)
            if self.little:
                # Only after the arrangements that enter: they exist from round 0 on.
                if now and self._is_little(path, rounds):
                    yield self._whole("rest", path, outer, number)
                    break
                yield from self._sum(path, rounds)
            for at, stage in enumerate(stages):
                if stage.whole:
                    if self._has_work((*path, *stage.places), rounds):
                        yield from self.loop((*path, *stage.places), rounds, at)
                    self._read(path, rounds, stage)
                elif leg := self._stage(path, rounds, at, stage):
                    yield leg
            if not self.little:
                yield Leg("seal", path, rounds), {}
            self._drop(path, rounds)
        yield from self._end(path, outer, number)

    def _enter(self, path: Path, outer: Rounds) -> Iterator[tuple[Leg, Found[P]]]:
        """Yield the leg that begins a loop in some rounds of those around."""
        given = self._given(path, outer)
        # Operators that stay learn of each beginning, with updates or without. Outermost loops look for what waits.
        if given or len(path) == 1 or not self.little:
            yield Leg("enter", path, outer, shards=self._every, size=self._size(given)), given
        for place, origin in self.nest.arriving(path):
            for at in given:
                if at.place == origin:
                    self.wake(Wake(place, (*outer, 0), at.shard))

    def _sum(self, path: Path, rounds: Rounds) -> Iterator[tuple[Leg, Found[P]]]:
        """Yield the leg that sums up what came to variables apart."""
        moving = self._moving[path].get(rounds, {})
        apart = {at: parts for at, parts in moving.items() if at.what == APART}
        for at in apart:
            del moving[at]
        if apart:
            yield Leg("sum", path, rounds, shards=_shards(apart), size=self._size(apart)), apart

    def _stage(self, path: Path, rounds: Rounds, number: int, stage: Stage) -> tuple[Leg, Found[P]] | None:
        """Return a stage in a loop, if there is something to do in it, for the shards that have something."""
        if self.little and self.nest.is_sent(path, stage):
            return None  # what a loop is fed was sent to its readers when it came
        due = self._due(path, rounds, stage)
        found = self._waiting(path, rounds, stage)
        if not rounds[-1]:
            found |= self._arrived(path, rounds[:-1], stage)
        if not (due or found):
            return None
        if not self.little:
            self._read(path, rounds, stage)
            return Leg("stage", path, rounds, number, self._every, due), found
        shards = tuple(sorted({wake.shard for wake in due}.union(_shards(found))))
        size = self._size(found)
        found |= self._around(self.nest.read(path, stage), rounds)
        self._read(path, rounds, stage)
        return Leg("stage", path, rounds, number, shards, due, size), found

    def _end(self, path: Path, outer: Rounds, number: int) -> Iterator[tuple[Leg, Found[P]]]:
        """Yield the leg that ends a loop: where operators are of one leg, once, when all its rounds around are done."""
        if not self.little:
            yield Leg("end", path, outer, number, self._every), {}
        elif len(path) == 1:
            kept = self._keeps(path)
            for below in self.nest.below(path):
                self._kept.pop(below, None)
            yield (
                Leg("end", path, outer, number, self._every, size=self._size(kept)),
                kept | self._given(path, outer),
            )

    def _whole(self, action: Action, path: Path, outer: Rounds, number: int) -> tuple[Leg, Found[P]]:
        """Return a loop, or the rest of it, as one leg."""
        moving = self._waits(path, outer)
        given = self._around(self.nest.entering(path), outer)
        due = tuple(wake for below in self.nest.below(path) for wake in self._called(below, outer))
        self._drop(path, outer)
        new = {at: parts for at, parts in given.items() if at.what == HERE}
        leg = Leg(action, path, outer, number, self._every, due, self._size(moving) + self._size(new))
        return leg, moving | given | self._keeps(path)

    # --- what waits -----------------------------------------------------------------------------------------------

    def taken(self, path: Path, outer: Rounds) -> tuple[dict[int, Found[P]], dict[int, set[Wake]]]:
        """Return what waits in a loop in some rounds around, and what is to be called, by the loop's own round; it waits no more."""
        moving, wakes = self._moving[path], self._wakes[path]
        found = {rounds[-1]: moving.pop(rounds) for rounds in [*moving] if rounds[:-1] == outer}
        called = {rounds[-1]: wakes.pop(rounds) for rounds in [*wakes] if rounds[:-1] == outer}
        if (0 in found or 0 in called) and (arrived := self._arrived(path, outer)):
            found[0] = found.get(0, {}) | arrived
        return found, called

    def left(self) -> tuple[Found[P], set[Wake]]:
        """Return all that waits, and what is to be called."""
        moving = {
            at: parts
            for by_rounds in self._moving.values()
            for found in by_rounds.values()
            for at, parts in found.items()
        }
        return moving, {wake for by_rounds in self._wakes.values() for wakes in by_rounds.values() for wake in wakes}

    def _due(self, path: Path, rounds: Rounds, stage: Stage) -> tuple[Wake, ...]:
        """Return the operators to call in a stage, and forget them."""
        wakes = self._wakes[path].get(rounds)
        if not wakes:
            return ()
        due = tuple(wake for wake in wakes if wake.place[-1] in stage.members)
        wakes.difference_update(due)
        return due

    def _waiting(self, path: Path, rounds: Rounds, stage: Stage) -> Found[P]:
        """Return what waits for a stage in these rounds."""
        waiting = self._moving[path].get(rounds)
        if not waiting:
            return {}
        reads, members = stage.reads, stage.members
        found = {}
        for at, parts in waiting.items():
            index = at.place[-1]
            if index in members or (index in reads and at.what == HERE):
                found[at] = parts
        return found

    def _here(self, place: Path, rounds: Rounds) -> Found[P]:
        """Return what a place gave in some rounds."""
        found = self._moving[place[:-1]].get(rounds, {})
        return {at: parts for at, parts in found.items() if at.what == HERE and at.place == place}

    def _arrived(self, path: Path, outer: Rounds, stage: Stage | None = None) -> Found[P]:
        """Return what has come to arrangements that enter a loop, in a stage of it or in any."""
        found: Found[P] = {}
        for place, origin in self.nest.arriving(path):
            if stage is None or place[-1] in stage.members:
                found |= self._here(origin, outer)
        return found

    def _given(self, path: Path, outer: Rounds) -> Found[P]:
        """Return what a loop is given in some rounds around."""
        given = self.nest.given(path)
        found = self._moving[path[:-1]].get(outer, {})
        return {at: parts for at, parts in found.items() if at.what == HERE and at.place in given}

    def _around(self, places: Iterable[Path], rounds: Rounds) -> Found[P]:
        """Return what was kept of places that are read here, and what is new of them in the rounds of their scopes."""
        found: Found[P] = {}
        for place in places:
            found |= self._here(place, rounds[: len(place) - 1])
            found |= {at: parts for at, parts in self._kept[place[:-1]].items() if at.place == place}
        return found

    def _keeps(self, path: Path) -> Found[P]:
        """Return what the traces in a loop took in."""
        return {at: parts for below in self.nest.below(path) for at, parts in self._kept[below].items()}

    def _waits(self, path: Path, rounds: Rounds) -> Found[P]:
        """Return what waits in a loop in these rounds, or those that begin with them."""
        depth = len(rounds)
        return {
            at: parts
            for below in self.nest.below(path)
            for others, found in self._moving[below].items()
            if others[:depth] == rounds
            for at, parts in found.items()
        }

    def _called(self, path: Path, rounds: Rounds) -> Iterator[Wake]:
        """Yield the operators to call in a scope in these rounds, or those that begin with them."""
        for others, wakes in self._wakes[path].items():
            if others[: len(rounds)] == rounds:
                yield from wakes

    def _has_work(self, path: Path, rounds: Rounds) -> bool:
        """Return whether a loop has something to do in some rounds around."""
        return bool(self._given(path, rounds)) or self._next(path, rounds) is not None

    def _next(self, path: Path, outer: Rounds) -> int | None:
        """Return the first round of a loop in which there is something to do, in it or in one within."""
        depth, first = len(outer), None
        for below in self.nest.below(path):
            for pending in (self._moving[below], self._wakes[below]):
                for rounds, found in pending.items():
                    if found and rounds[:depth] == outer and (first is None or rounds[depth] < first):
                        first = rounds[depth]
        return first

    def _is_little(self, path: Path, rounds: Rounds, given: Found[P] | None = None) -> bool:
        """Return whether what waits in a loop, and is given to it, is little."""
        if not self.little:
            return False
        return self.little(
            self._size(given or {}) + self._size(self._waits(path, rounds)), self._size(self._keeps(path))
        )

    def _size(self, found: Found[P]) -> int:
        """Return the bytes of what waits, which nobody asks for where operators stay."""
        return sum(self.size(parcel) for parts in found.values() for parcel in parts) if self.little else 0

    # --- what was read --------------------------------------------------------------------------------------------

    def _read(self, path: Path, rounds: Rounds, stage: Stage) -> None:
        """Forget what is read in a stage for the last time. What comes to a port is sent on from there, and waits there again."""
        found = self._moving[path].get(rounds)
        if not found:
            return
        feeds = self.nest.feeds(path)
        for at in list(found):
            index = at.place[-1]
            mine = index in stage.members
            if (index in stage.seals or (mine and index not in feeds)) if at.what == HERE else mine:
                parts = found.pop(at)
                if self.little and path and stage.whole and self.nest.scopes[path].places[index].arranges:
                    # All have read it: an arrangement's updates are the batch that its trace takes in now.
                    self._kept[path].setdefault(Address(at.place, KEPT, at.shard), []).extend(parts)

    def _entered(self, path: Path, outer: Rounds, number: int) -> None:
        """Forget what a loop was fed, where nobody else reads it: operators that stay have it. Arrangements are read in the loop."""
        found = self._moving[path[:-1]].get(outer)
        if not found or self.little:
            return
        seals = self.nest.scopes[path[:-1]].stages[number].seals
        fed = set(self.nest.given(path)) - {origin for _, origin in self.nest.arriving(path)}
        for at in [at for at in found if at.what == HERE and at.place in fed and at.place[-1] in seals]:
            del found[at]

    def _drop(self, path: Path, rounds: Rounds) -> None:
        """Forget what there is to do in these rounds of a loop, or those that begin with them."""
        depth = len(rounds)
        for below in self.nest.below(path):
            for pending in (self._moving[below], self._wakes[below]):
                if len(below) == depth:
                    pending.pop(rounds, None)
                    continue
                for others in [others for others in pending if others[:depth] == rounds]:
                    del pending[others]


def _shards(addresses: Iterable[Address]) -> tuple[int, ...]:
    return tuple(sorted({at.shard for at in addresses}))
