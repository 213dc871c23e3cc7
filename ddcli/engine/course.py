"""The course of a step that is done as tasks: what is done next, by which shards, and what they need. Decides, and does nothing.

Stage after stage: no task of one begins before all tasks of the one before are done. A loop goes round after round, each stage by
stage, while there is much to do in a round; the rest of it, or all, is one task then, with all shards in memory. A loop in
a loop is the same again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, Protocol, TypeVar

from ddcli.engine.nest import APART, HERE, KEPT, Address, Wake, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ddcli.engine.nest import Nest, Path
    from ddcli.engine.rounds import Rounds
    from ddcli.engine.stages import Stage


class Parcel(Protocol):
    """Updates that wait somewhere."""

    @property
    def size(self) -> int:
        """Return the bytes that they are in memory."""


P = TypeVar("P", bound=Parcel)

Action = Literal["stage", "enter", "sum", "whole", "rest", "end"]
"""A stage for some shards; what begins a loop for them, sums up its variables, ends it; a loop, or the rest of it, for all shards."""


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


@dataclass
class Course(Generic[P]):
    """The course of one step. `take` has to be told of what legs gave, before the next one is asked for.

    `little` says whether so many bytes in a loop are too little for many tasks, while so many are kept of its traces.
    """

    nest: Nest
    shards: range
    little: Callable[[int, int], bool]
    waiting: dict[Address, list[P]] = field(default_factory=lambda: defaultdict(list))
    wakes: set[Wake] = field(default_factory=set)

    def legs(self) -> Iterator[tuple[Leg, dict[Address, list[P]]]]:
        """Yield what is done, leg by leg, each with what it finds waiting."""
        for number, stage in enumerate(self.nest.scope.stages):
            if stage.whole:
                yield from self._loop(stage.places, (), number)
                self._read((), (), stage)
            else:
                found = self._waiting((), (), stage)
                self._read((), (), stage)
                yield Leg("stage", stage=number, shards=tuple(self.shards), size=_size(found)), found

    def _loop(self, path: Path, outer: Rounds, number: int) -> Iterator[tuple[Leg, dict[Address, list[P]]]]:
        """Yield the legs of a loop, in some rounds of those around; `number` is the one of its stage there."""
        outermost = len(path) == 1
        given = self._at(place for place in self.nest.inputs(path))
        given = {at: parts for at, parts in given.items() if at.what == HERE and at.rounds == outer}
        every = tuple(self.shards)
        if self.little(_size(given) + _size(self._moving(path, outer)), _size(self._kept(path))):
            yield self._whole("whole", path, outer, number)
            return
        if given or outermost:
            yield Leg("enter", path, outer, shards=every, size=_size(given)), given
        for place, origin in self.nest.origins.items():
            if place[:-1] == path:
                arriving = [at.shard for at in given if at.place == origin]
                self.wakes.update(Wake(place, (*outer, 0), shard) for shard in arriving)
        limit = self.nest.loop(path).limit
        scope = self.nest.scopes[path]
        while (now := self._next(path, outer)) is not None:
            rounds = (*outer, now)
            moving = self._moving(path, rounds)
            if limit.bound is not None and now >= limit.bound:
                self._drop(path, outer)
                break
            # After what enters arranged has come: it is there from round 0 on.
            if now and self.little(_size(moving), _size(self._kept(path))):
                yield self._whole("rest", path, outer, number)
                break
            apart = {at: parts for at, parts in moving.items() if at.what == APART}
            if apart:
                self._forget(apart)
                yield Leg("sum", path, rounds, shards=_shards(apart), size=_size(apart)), apart
            for at, stage in enumerate(scope.stages):
                if stage.whole:
                    if self._has_work((*path, *stage.places), rounds):
                        yield from self._loop((*path, *stage.places), rounds, at)
                    self._read(path, rounds, stage)
                else:
                    yield from self._stage(path, rounds, at, stage)
            self._drop(path, rounds)
        if outermost:
            kept = self._kept(path)
            self._forget(kept)
            yield Leg("end", path, outer, number, every, size=_size(kept)), kept | given

    def _stage(
        self, path: Path, rounds: Rounds, number: int, stage: Stage
    ) -> Iterator[tuple[Leg, dict[Address, list[P]]]]:
        """Yield a stage in a loop, if there is something to do in it, for the shards that have something."""
        members = {(*path, index) for index in stage.members}
        sent = self.nest.feeds(path).difference(place[-1] for place in members & self.nest.origins.keys())
        if stage.members <= sent and self.nest.scopes[path].kept.isdisjoint(stage.members):
            return  # what a loop is fed was sent to its readers when it came, but for what is read where it is
        due = tuple(wake for wake in self.wakes if wake.place in members and wake.rounds == rounds)
        moving = self._waiting(path, rounds, stage)
        if not rounds[-1]:
            first = {self.nest.origins[place] for place in members if place in self.nest.origins}
            entering = self._at(first)
            moving |= {at: parts for at, parts in entering.items() if (at.what, at.rounds) == (HERE, rounds[:-1])}
        shards = tuple(sorted({wake.shard for wake in due}.union(_shards(moving))))
        if not shards:
            return
        read = self._at(self.nest.read(path, stage))
        found = {at: parts for at, parts in read.items() if at.what == KEPT or _is_around(at, rounds)} | moving
        self.wakes.difference_update(due)
        self._read(path, rounds, stage)
        yield Leg("stage", path, rounds, number, shards, due, _size(moving)), found

    def _whole(self, action: Action, path: Path, outer: Rounds, number: int) -> tuple[Leg, dict[Address, list[P]]]:
        """Return a loop, or the rest of it, as one leg."""
        moving = self._moving(path, outer)
        around = self._at(self.nest.entering(path))
        given = {at: parts for at, parts in around.items() if at.what == KEPT or _is_around(at, outer)}
        due = tuple(wake for wake in self.wakes if within(wake, path, outer))
        self.wakes.difference_update(due)
        self._forget(moving)
        new = {at: parts for at, parts in given.items() if at.what == HERE}
        leg = Leg(action, path, outer, number, tuple(self.shards), due, _size(moving) + _size(new))
        return leg, moving | given | self._kept(path)

    # --- what waits -----------------------------------------------------------------------------------------------

    def _waiting(self, path: Path, rounds: Rounds, stage: Stage) -> dict[Address, list[P]]:
        """Return what waits for a stage in these rounds."""
        members = {(*path, index) for index in stage.members}
        reads = {(*path, index) for index in stage.reads} | members
        found = self._at(reads)
        return {
            at: parts
            for at, parts in found.items()
            if at.what != KEPT and at.rounds == rounds and (at.what == HERE or at.place in members)
        }

    def _moving(self, path: Path, rounds: Rounds) -> dict[Address, list[P]]:
        """Return what waits in a loop in these rounds, or those that begin with them."""
        found = self.waiting.items()
        return {at: parts for at, parts in found if at.what != KEPT and within(at, path, rounds)}

    def _kept(self, path: Path) -> dict[Address, list[P]]:
        """Return what the traces in a loop took in."""
        return {at: parts for at, parts in self.waiting.items() if at.what == KEPT and within(at, path, ())}

    def _at(self, places: Iterable[Path]) -> dict[Address, list[P]]:
        """Return what waits at places."""
        wanted = set(places)
        return {at: parts for at, parts in self.waiting.items() if at.place in wanted}

    def _has_work(self, path: Path, rounds: Rounds) -> bool:
        """Say whether a loop in a loop has something to do."""
        given = set(self.nest.inputs(path))
        return any(at.place in given and at.what == HERE and at.rounds == rounds for at in self.waiting) or (
            self._next(path, rounds) is not None
        )

    def _next(self, path: Path, outer: Rounds) -> int | None:
        """Return the first round of a loop in which there is something to do."""
        depth = len(outer)
        pending: list[Address | Wake] = [at for at in self.waiting if at.what != KEPT]
        return min((at.rounds[depth] for at in (*pending, *self.wakes) if within(at, path, outer)), default=None)

    # --- what was read --------------------------------------------------------------------------------------------

    def _read(self, path: Path, rounds: Rounds, stage: Stage) -> None:
        """Forget what was read in a stage for the last time. What comes to a port is sent on from there, and waits there again."""
        scope = self.nest.scopes[path]
        gone = stage.seals | (stage.members - self.nest.feeds(path) if path else stage.members)
        for at in [at for at in self.waiting if at.place[:-1] == path and at.rounds == rounds and at.what != KEPT]:
            index = at.place[-1]
            if index in gone if at.what == HERE else index in stage.members:
                parts = self.waiting.pop(at)
                if path and stage.whole and scope.places[index].arranges:
                    # All have read it: an arrangement's updates are the batch that its trace takes in now.
                    self.waiting[Address(at.place, KEPT, at.shard)].extend(parts)

    def _drop(self, path: Path, rounds: Rounds) -> None:
        """Forget what there is to do in these rounds of a loop."""
        self._forget(self._moving(path, rounds))
        self.wakes = {wake for wake in self.wakes if not within(wake, path, rounds)}

    def _forget(self, addresses: Iterable[Address]) -> None:
        for at in list(addresses):
            self.waiting.pop(at, None)


def _size(found: dict[Address, list[P]]) -> int:
    return sum(parcel.size for parts in found.values() for parcel in parts)


def _shards(addresses: Iterable[Address]) -> tuple[int, ...]:
    return tuple(sorted({at.shard for at in addresses}))


def _is_around(address: Address, rounds: Rounds) -> bool:
    """Say whether an address is of these rounds, or of those of a loop around."""
    return address.what == HERE and address.rounds == rounds[: len(address.place) - 1]
