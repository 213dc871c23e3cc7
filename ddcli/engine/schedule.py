"""The schedule of a step: the order in which operators begin, run and wait, the rounds, and the last read of each update. It decides, and executes nothing.

Stages run one after the other: no work item of a stage begins before all work items of the previous stage are done. A loop runs round after round, each stage by
stage, from the first round on in which updates wait in it or in a loop within; an inner loop runs likewise.

The executor of the work items moves the updates and reports those that then wait, and where: it reports all updates that a work item leaves for others, of any
kind. In memory operators live from work item to work item. A task executes a work item with operators of its own, or
a loop, or the rest of it, as one item: in memory, by a schedule that begins with the updates that wait in this one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

from ddcli.dataclass import dataclass
from ddcli.engine.scope_tree import APART, HERE, KEPT, Address, ScheduledActivation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ddcli.engine.rounds import Rounds
    from ddcli.engine.scope_tree import Path, ScopeTree
    from ddcli.engine.stages import Stage


P = TypeVar("P")
"""Updates that wait somewhere."""

Action = Literal["stage", "enter", "sum", "round", "seal", "whole", "rest", "end"]
"""A stage for some shards; for a loop: its beginning, the consolidation of its variables, a round that is one stage, the end of another round, its end; the whole of a loop, or its rest, for all shards."""


WITHIN = ("whole", "rest", "end")
"""Actions whose stage is the loop's stage in the scope around it; the other actions' is a stage of the scope at the path."""


class WorkItem(NamedTuple):
    """The next piece of work. `path` leads to its scope, `size` are the bytes that wait for it."""

    action: Action
    path: Path = ()
    rounds: Rounds = ()
    stage: int = 0
    shards: tuple[int, ...] = ()
    due: tuple[ScheduledActivation, ...] = ()
    size: int = 0


Found = dict[Address, list[P]]
"""The updates that wait for a work item."""


class Work(NamedTuple, Generic[P]):
    """The work that waits in a scope in some rounds: updates, and operators to call."""

    found: Found[P]
    wakes: set[ScheduledActivation]


@dataclass
class Schedule(Generic[P]):
    """The schedule of one step. `add` and `wake` must learn of a work item's updates before the next item is taken.

    With `little`, an operator lives for one work item only: its knowledge of other work items waits for it as updates. `little` returns whether a number of bytes in a
    loop is too small for many tasks, given the bytes that its traces keep. Without it, operators live on: they keep what their traces
    take in, all shards go together, and each end of a round, and of a loop, is a work item.
    """

    nest: ScopeTree
    shards: range
    little: Callable[[int, int], bool] | None = None
    size: Callable[[P], int] = lambda _: 0
    """Returns the bytes of updates in memory."""
    _work: dict[Path, dict[Rounds, Work[P]]] = field(default_factory=lambda: defaultdict(dict))
    _kept: dict[Path, Found[P]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        self._every = tuple(self.shards)

    def add(self, at: Address, parcel: P) -> None:
        """Have updates wait at an address."""
        path = at.place[:-1]
        found = self._kept[path] if at.what == KEPT else self._at(path, at.rounds).found
        found.setdefault(at, []).append(parcel)

    def wake(self, wake: ScheduledActivation) -> None:
        """Have an operator called in some rounds."""
        self._at(wake.place[:-1], wake.rounds).wakes.add(wake)

    def _at(self, path: Path, rounds: Rounds) -> Work[P]:
        """Return the work that waits in a scope in some rounds, to add to it."""
        work = self._work[path].get(rounds)
        if work is None:
            work = self._work[path][rounds] = Work({}, set())
        return work

    def _found(self, path: Path, rounds: Rounds) -> Found[P]:
        """Return the updates that wait in a scope in some rounds."""
        work = self._work[path].get(rounds)
        return work.found if work else {}

    def work_items(self) -> Iterator[tuple[WorkItem, Found[P]]]:
        """Yield the work items, each with the updates that wait for it."""
        for number, stage in enumerate(self.nest.scope.stages):
            if stage.whole:
                if self.little or self._has_work(stage.places, ()):
                    yield from self.loop(stage.places, (), number)
                self._read((), (), stage)
            else:
                # Outside of loops each stage is one work item of all shards: its due operators are known when they have begun.
                due = self._due((), (), stage)
                found = self._waiting((), (), stage)
                self._read((), (), stage)
                yield WorkItem("stage", (), (), number, self._every, due, self._size(found)), found

    def loop(
        self, path: Path, outer: Rounds, number: int, *, begun: bool = False
    ) -> Iterator[tuple[WorkItem, Found[P]]]:
        """Yield the work items of a loop, in some rounds of the loops around it; `number` is its stage there.

        With `begun`, its first rounds are done, and the rest remains.
        """
        if not begun:
            if self._is_little(path, outer, self._given(path, outer)):
                yield self._whole("whole", path, outer, number)
                return
            yield from self._enter(path, outer)
            self._entered(path, outer, number)
        bound = self.nest.loop(path).bound
        stages = self.nest.scopes[path].stages
        # In memory all updates of a round are for its only stage.
        alone = not self.little and self.nest.scopes[path].is_single
        while (now := self._next(path, outer)) is not None:
            if bound is not None and now >= bound:
                self._drop(path, outer)
                break
            rounds = (*outer, now)
            if alone:
                yield self._round(path, rounds)
                continue
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
                elif item := self._stage(path, rounds, at, stage):
                    yield item
            if not self.little:
                yield WorkItem("seal", path, rounds), {}
            self._drop(path, rounds)
        yield from self._end(path, outer, number)

    def _enter(self, path: Path, outer: Rounds) -> Iterator[tuple[WorkItem, Found[P]]]:
        """Yield the work item that begins a loop, in some rounds of the loops around it."""
        given = self._given(path, outer)
        # Operators that live on are notified of each beginning, with or without updates. Outermost loops look for waiting updates.
        if given or len(path) == 1 or not self.little:
            yield WorkItem("enter", path, outer, shards=self._every, size=self._size(given)), given
        for place, origin in self.nest.entered_traces(path):
            for at in given:
                if at.place == origin:
                    self.wake(ScheduledActivation(place, (*outer, 0), at.shard))

    def _sum(self, path: Path, rounds: Rounds) -> Iterator[tuple[WorkItem, Found[P]]]:
        """Yield the work item that consolidates the updates that came to variables apart."""
        moving = self._found(path, rounds)
        apart = {at: parts for at, parts in moving.items() if at.what == APART}
        for at in apart:
            del moving[at]
        if apart:
            yield WorkItem("sum", path, rounds, shards=_shards(apart), size=self._size(apart)), apart

    def _round(self, path: Path, rounds: Rounds) -> tuple[WorkItem, Found[P]]:
        """Return the work item of a round of a loop whose only stage all that waits is for."""
        found, wakes = self._work[path].pop(rounds)
        if not rounds[-1]:
            found |= self._arrived(path, rounds[:-1])
        return WorkItem("round", path, rounds, 0, self._every, tuple(wakes)), found

    def _stage(self, path: Path, rounds: Rounds, number: int, stage: Stage) -> tuple[WorkItem, Found[P]] | None:
        """Return the work item of a stage in a loop for the shards that have work in it, if any have."""
        if self.little and self.nest.is_sent(path, stage):
            return None  # a loop's inputs were sent to their readers when they came
        due = self._due(path, rounds, stage)
        found = self._waiting(path, rounds, stage)
        if not rounds[-1]:
            found |= self._arrived(path, rounds[:-1], stage)
        if not (due or found):
            return None
        if not self.little:
            self._read(path, rounds, stage)
            return WorkItem("stage", path, rounds, number, self._every, due), found
        shards = tuple(sorted({wake.shard for wake in due}.union(_shards(found))))
        size = self._size(found)
        found |= self._around(self.nest.read(path, stage), rounds)
        self._read(path, rounds, stage)
        return WorkItem("stage", path, rounds, number, shards, due, size), found

    def _end(self, path: Path, outer: Rounds, number: int) -> Iterator[tuple[WorkItem, Found[P]]]:
        """Yield the work item that ends a loop: where operators live for one work item, once, when all rounds around it are done."""
        if not self.little:
            yield WorkItem("end", path, outer, number, self._every), {}
        elif len(path) == 1:
            kept = self._keeps(path)
            for below in self.nest.below(path):
                self._kept.pop(below, None)
            yield (
                WorkItem("end", path, outer, number, self._every, size=self._size(kept)),
                kept | self._given(path, outer),
            )

    def _whole(self, action: Action, path: Path, outer: Rounds, number: int) -> tuple[WorkItem, Found[P]]:
        """Return a loop, or the rest of it, as one item."""
        moving = self._waits(path, outer)
        given = self._around(self.nest.outer_traces(path), outer)
        due = tuple(wake for below in self.nest.below(path) for wake in self._called(below, outer))
        self._drop(path, outer)
        new = {at: parts for at, parts in given.items() if at.what == HERE}
        item = WorkItem(action, path, outer, number, self._every, due, self._size(moving) + self._size(new))
        return item, moving | given | self._keeps(path)

    # --- waiting updates ------------------------------------------------------------------------------------------

    def left(self) -> tuple[Found[P], set[ScheduledActivation]]:
        """Return all waiting updates and called operators."""
        left = [work for by_rounds in self._work.values() for work in by_rounds.values()]
        moving = {at: parts for work in left for at, parts in work.found.items()}
        return moving, {wake for work in left for wake in work.wakes}

    def _due(self, path: Path, rounds: Rounds, stage: Stage) -> tuple[ScheduledActivation, ...]:
        """Return the operators to call in a stage, and forget them."""
        work = self._work[path].get(rounds)
        if not work or not work.wakes:
            return ()
        due = tuple(wake for wake in work.wakes if wake.place[-1] in stage.members)
        work.wakes.difference_update(due)
        return due

    def _waiting(self, path: Path, rounds: Rounds, stage: Stage) -> Found[P]:
        """Return the updates that wait for a stage in these rounds."""
        reads, members = stage.reads, stage.members
        found = {}
        for at, parts in self._found(path, rounds).items():
            index = at.place[-1]
            if index in members or (index in reads and at.what == HERE):
                found[at] = parts
        return found

    def _here(self, place: Path, rounds: Rounds) -> Found[P]:
        """Return the updates that a place emitted in some rounds."""
        found = self._found(place[:-1], rounds)
        return {at: parts for at, parts in found.items() if at.what == HERE and at.place == place}

    def _arrived(self, path: Path, outer: Rounds, stage: Stage | None = None) -> Found[P]:
        """Return the new updates of arrangements that enter a loop, in a stage of it or in any."""
        found: Found[P] = {}
        for place, origin in self.nest.entered_traces(path):
            if stage is None or place[-1] in stage.members:
                found |= self._here(origin, outer)
        return found

    def _given(self, path: Path, outer: Rounds) -> Found[P]:
        """Return the updates that enter a loop in some rounds around it."""
        given = self.nest.given(path)
        found = self._found(path[:-1], outer)
        return {at: parts for at, parts in found.items() if at.what == HERE and at.place in given}

    def _around(self, places: Iterable[Path], rounds: Rounds) -> Found[P]:
        """Return the kept updates of places that are read here, and their new updates in the rounds of their scopes."""
        found: Found[P] = {}
        for place in places:
            found |= self._here(place, rounds[: len(place) - 1])
            found |= {at: parts for at, parts in self._kept[place[:-1]].items() if at.place == place}
        return found

    def _keeps(self, path: Path) -> Found[P]:
        """Return the updates that the traces in a loop took in."""
        return {at: parts for below in self.nest.below(path) for at, parts in self._kept[below].items()}

    def _waits(self, path: Path, rounds: Rounds) -> Found[P]:
        """Return the updates that wait in a loop in these rounds, or in rounds that begin with them."""
        depth = len(rounds)
        return {
            at: parts
            for below in self.nest.below(path)
            for others, work in self._work[below].items()
            if others[:depth] == rounds
            for at, parts in work.found.items()
        }

    def _called(self, path: Path, rounds: Rounds) -> Iterator[ScheduledActivation]:
        """Yield the operators to call in a scope in these rounds, or in rounds that begin with them."""
        for others, work in self._work[path].items():
            if others[: len(rounds)] == rounds:
                yield from work.wakes

    def _has_work(self, path: Path, rounds: Rounds) -> bool:
        """Return whether a loop has work in some rounds around it."""
        return bool(self._given(path, rounds)) or self._next(path, rounds) is not None

    def _next(self, path: Path, outer: Rounds) -> int | None:
        """Return the first round of a loop with work in it or in a loop within."""
        depth, first = len(outer), None
        for below in self.nest.below(path):
            for rounds, work in self._work[below].items():
                if rounds[:depth] == outer and (first is None or rounds[depth] < first) and (work.found or work.wakes):
                    first = rounds[depth]
        return first

    def _is_little(self, path: Path, rounds: Rounds, given: Found[P] | None = None) -> bool:
        """Return whether few bytes wait in a loop and enter it."""
        if not self.little:
            return False
        return self.little(
            self._size(given or {}) + self._size(self._waits(path, rounds)), self._size(self._keeps(path))
        )

    def _size(self, found: Found[P]) -> int:
        """Return the bytes of waiting updates; 0 where operators live on, as nothing uses them."""
        return sum(self.size(parcel) for parts in found.values() for parcel in parts) if self.little else 0

    # --- updates that were read -----------------------------------------------------------------------------------

    def _read(self, path: Path, rounds: Rounds, stage: Stage) -> None:
        """Forget the updates that a stage was the last to read. Updates at a port are sent on from there, and wait there again."""
        found = self._found(path, rounds)
        if not found:
            return
        feeds = self.nest.feeds(path)
        for at in list(found):
            index = at.place[-1]
            mine = index in stage.members
            if (index in stage.seals or (mine and index not in feeds)) if at.what == HERE else mine:
                parts = found.pop(at)
                if self.little and path and stage.whole and self.nest.scopes[path].places[index].arranges:
                    # All readers are done: an arrangement's updates are the batch that its trace takes in now.
                    self._kept[path].setdefault(Address(at.place, KEPT, at.shard), []).extend(parts)

    def _entered(self, path: Path, outer: Rounds, number: int) -> None:
        """Forget a loop's inputs that have no other reader: operators that live on have them. Arrangements are read in the loop."""
        found = self._found(path[:-1], outer)
        if not found or self.little:
            return
        seals = self.nest.scopes[path[:-1]].stages[number].seals
        fed = set(self.nest.given(path)) - {origin for _, origin in self.nest.entered_traces(path)}
        for at in [at for at in found if at.what == HERE and at.place in fed and at.place[-1] in seals]:
            del found[at]

    def _drop(self, path: Path, rounds: Rounds) -> None:
        """Forget the work in these rounds of a loop, or in rounds that begin with them."""
        depth = len(rounds)
        for below in self.nest.below(path):
            pending = self._work[below]
            if len(below) == depth:
                pending.pop(rounds, None)
                continue
            for others in [others for others in pending if others[:depth] == rounds]:
                del pending[others]


def _shards(addresses: Iterable[Address]) -> tuple[int, ...]:
    return tuple(sorted({at.shard for at in addresses}))
