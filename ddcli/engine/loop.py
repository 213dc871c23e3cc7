"""Loops: a scope whose times have one more coordinate, the round, as one place of the scope around it.

A variable is, in round 0, its initial collection, and in round r + 1 what its result is in round r. As differences: the
initial enters at round 0 and is taken back at round 1, the result comes a round later. What enters is there from round 0
on. What leaves drops the round, so that it sums the updates of all rounds: the fixed point, or, where the rounds are
bounded, the collection in the last one.

Rounds are taken in order, those with nothing to do are skipped, and each is one turn of the body over all epochs at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta
from ddcli.engine.rounds import with_rounds, without_rounds
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ddcli.engine.arrangement.trace import Trace
    from ddcli.engine.dataflow import Scope
    from ddcli.engine.operators.base import Interval
    from ddcli.engine.operators.join import Entered
    from ddcli.engine.places import Deltas, Handle
    from ddcli.engine.rounds import Rounds
    from ddcli.errors import Text

LITTLE = 1_000_000
"""Rows that leave a loop before what has left is summed up."""

GATHERING = 64
"""Rounds after which updates are looked at across shards for whether they cancel; within a shard it is done in each round."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a collection from outside comes in. `arranged` are the shards of one that stays arranged; its times get no round."""

    place: Handle
    arranged: Sequence[Entered] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """Where a variable is read, and the place of its result. Its initial is the entry of the same position."""

    place: Handle
    result: Handle
    name: Text


@dataclass(frozen=True, slots=True)
class Limit:
    """After how many rounds the loop ends, or after how many its variables must change no more."""

    bound: int | None
    guard: int


class Loop:
    """A loop as an inner scope. Its inputs are the variables' initials, then what else enters.

    `show` gives the text of a few changes [data | diff] of the i-th variable, for the message that it doesn't settle: EngineError.
    """

    def __init__(
        self,
        scope: Scope,
        variables: Sequence[Variable],
        entries: Sequence[Entry],
        leaving: Sequence[Handle],
        limit: Limit,
        show: Callable[[int, np.ndarray], str],
    ):
        self.scope = scope
        self.variables = tuple(variables)
        self.entries = tuple(entries)
        self.leaving = tuple(handle.index for handle in leaving)
        self.limit = limit
        self.show = show
        self.wakes: list[Rounds] = []
        for handle in [*(variable.result for variable in variables), *leaving]:
            scope.keep(handle)

    @property
    def traces(self) -> Iterable[Trace]:
        return self.scope.traces()

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        self.scope.begin(interval)
        return self.scope.waits()

    def close(self, interval: Interval) -> None:
        self.scope.close(interval)

    def step(self, deltas: Sequence[Deltas | None], interval: Interval) -> list[Deltas | None]:
        initials, entering = deltas[: len(self.variables)], deltas[len(self.variables) :]
        return self._rounds(self._enter(initials, entering, interval.rounds), interval)

    def go_on(self, deltas: Sequence[Deltas | None], interval: Interval) -> list[Deltas | None]:
        """Step what is left, where others have stepped the first rounds: see `step`. What is pending is in the scope."""
        for entry, given in zip(self.entries, deltas[len(self.variables) :], strict=True):
            for shard, delta in zip(entry.arranged, given or (), strict=False):
                shard.go_on(delta.updates)
        return self._rounds({}, interval)

    def _rounds(self, fed: dict[int, Deltas], interval: Interval) -> list[Deltas | None]:
        """Step round after round, from the first on in which there is something to do."""
        outer = interval.rounds
        scope = self.scope
        left: dict[int, list[_Leaving]] = {}
        now: int | None = 0 if fed else scope.next_round(outer)
        while now is not None:
            if self.limit.bound is not None and now >= self.limit.bound:
                scope.drop(outer)
                break
            round_now = interval.at((*outer, now))
            found = scope.turn(fed, round_now)
            fed = {}
            for index in self.leaving:
                if index in found:
                    for shard, delta in zip(
                        left.setdefault(index, [_Leaving() for _ in found[index]]), found[index], strict=True
                    ):
                        shard.add(delta.updates)
            for variable in self.variables:
                if variable.result.index in found:
                    self._feed_back(variable, found[variable.result.index], (*outer, now + 1))
            scope.seal(round_now)
            if self.limit.bound is None and now >= self.limit.guard:
                self.check_settled(found)
            now = scope.next_round(outer)
        self.wakes.extend(rounds for rounds in scope.waits() if rounds != outer)
        return [[shard.delta() for shard in left[index]] if index in left else None for index in self.leaving]

    def _enter(
        self, initials: Sequence[Deltas | None], entering: Sequence[Deltas | None], outer: Rounds
    ) -> dict[int, Deltas]:
        """Return what is fed to the places of the first round, and have the initials taken back in the second."""
        fed = {}
        for variable, deltas in zip(self.variables, initials, strict=True):
            if deltas:
                fed[variable.place.index] = [Delta(with_rounds(d.updates, (0,), 1), d.distinct) for d in deltas]
                back = [Delta(with_rounds(d.updates, (1,), 1), d.distinct) for d in deltas]
                for delta in back:
                    np.multiply(delta.updates[:, -1], -1, out=delta.updates[:, -1])
                self.scope.later(variable.place.index, (*outer, 1), back)
        for entry, deltas in zip(self.entries, entering, strict=True):
            for shard in entry.arranged:
                shard.restart()
            if deltas:
                fed[entry.place.index] = (
                    deltas if entry.arranged else [Delta(with_rounds(d.updates, (0,), 1), d.distinct) for d in deltas]
                )
        return fed

    def _feed_back(self, variable: Variable, deltas: Deltas, rounds: Rounds) -> None:
        """Have a variable's result appear in the next round. What cancels is dropped: else it might go round for ever."""
        later = []
        if rounds[-1] % GATHERING == 0:
            deltas = self.scope.gathered(deltas)
        for delta in deltas:
            updates = delta.updates if delta.distinct else kernels.consolidate(delta.updates)
            updates = updates.copy() if updates is delta.updates else updates
            updates[:, -2] += 1
            later.append(Delta(updates, distinct=True))
        if any(len(delta.updates) for delta in later):
            self.scope.later(variable.place.index, rounds, later)

    def check_settled(self, found: Mapping[int, Deltas]) -> None:
        """Refuse to go on where a variable still changes."""
        for at, variable in enumerate(self.variables):
            for delta in found.get(variable.result.index, ()):
                changes = kernels.consolidate(delta.updates)
                if len(changes):
                    # One change a record: how it goes on from epoch to epoch tells nothing more.
                    data = without_rounds(changes, self.scope.nt)
                    net = kernels.consolidate(data)
                    raise EngineError(
                        f"the loop has not settled after {self.limit.guard} rounds: its variable '{variable.name.value}' "
                        f"still changes, among others by {self.show(at, net if len(net) else data)}",
                        span=variable.name.span,
                        hint="`max_rounds: n` takes the collection after n rounds, `max_rounds: {guard: n}` allows for more",
                    )


class _Leaving:
    """What leaves a shard, without its rounds: much of it cancels, so that what has gathered is summed up now and then."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.rows = 0
        self.room = LITTLE

    def add(self, updates: np.ndarray) -> None:
        """Take in a round's updates."""
        self.parts.append(without_rounds(updates, 1))
        self.rows += len(updates)
        if self.rows > self.room:
            # Each round's are mostly in order already, and merging is quicker than sorting all of them.
            self.parts = [kernels.merge([kernels.consolidate(part) for part in self.parts])]
            self.rows = len(self.parts[0])
            self.room = LITTLE + 3 * self.rows

    def delta(self) -> Delta:
        """Return the sum of all rounds."""
        return Delta(kernels.concat(self.parts), distinct=len(self.parts) == 1 and self.room > LITTLE)
