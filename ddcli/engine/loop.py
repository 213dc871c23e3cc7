"""Loops: a scope whose times have one more coordinate, the round, as one place of the scope around it.

A variable is, in round 0, its initial collection, and in round r + 1 its result in round r. As differences: the
initial enters at round 0 and is taken back at round 1, the result comes a round later. Other collections that enter exist from round 0
on. A collection that leaves drops the round, so that it sums the updates of all rounds: the fixed point, or, if the rounds are
bounded, the collection in the last one.

Rounds are taken in order, those with nothing to do are skipped, and each is one turn of the body over all epochs at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta
from ddcli.engine.rounds import with_rounds, without_rounds
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.engine.counts import RowCounts
    from ddcli.engine.operators.join import Entered
    from ddcli.engine.places import Deltas, Handle
    from ddcli.engine.scope import Scope
    from ddcli.engine.trace.spine import Trace
    from ddcli.errors import Text

LITTLE = 1_000_000
"""Rows that leave a loop before they are consolidated."""

GATHERING = 64
"""Rounds after which updates are consolidated across shards; within a shard that is done in each round."""


@frozen
class LoopEntry:
    """The place at which a collection enters from outside. `arranged` are the shards of one that stays arranged; its times get no round."""

    place: Handle
    arranged: Sequence[Entered] = ()


@frozen
class VariablePlaces:
    """The place at which a variable is read, and that of its result. Its initial is the entry of the same position."""

    place: Handle
    result: Handle
    name: Text


@frozen
class Limit:
    """The number of rounds after which the loop ends, or after which its variables must not change any more."""

    bound: int | None
    guard: int


class LoopScope:
    """A loop as an inner scope. Its inputs are the variables' initials, then the other collections that enter.

    `show` returns the text of a few changes [data | diff] of the i-th variable, for the message of the EngineError that the loop doesn't settle.
    """

    def __init__(
        self,
        scope: Scope,
        variables: Sequence[VariablePlaces],
        entries: Sequence[LoopEntry],
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

    def enter(self, given: Sequence[Deltas | None]) -> Iterator[tuple[int, int, Deltas]]:
        """Yield (round, place, updates) of everything that enters but arrangements: initials enter in round 0 and are retracted in round 1."""
        for at, (handle, deltas) in enumerate(zip(self.fed, given, strict=True)):
            if not deltas or (at >= len(self.variables) and self.entries[at - len(self.variables)].arranged):
                continue
            yield handle.index, 0, [Delta(with_rounds(d.updates, (0,), 1), d.distinct) for d in deltas]
            if at < len(self.variables):
                yield handle.index, 1, [Delta(taken_back(d.updates), d.distinct) for d in deltas]

    def restart(self) -> None:
        """Reset entered arrangements to before their new updates."""
        for entry in self.entries:
            for shard in entry.arranged:
                shard.restart()

    def fed_back(self, deltas: Deltas, number: int) -> Deltas | None:
        """Return the variable's updates in the next round, whose number is given, from its result's updates. Updates that cancel are dropped: else they might circulate for ever."""
        if number % GATHERING == 0:
            deltas = self.scope.gathered(deltas)
        later, rows = [], 0
        for delta in deltas:
            updates = advanced(delta)
            rows += len(updates)
            later.append(Delta(updates, distinct=True))
        return later if rows else None

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
                        f"the loop has not settled after {self.limit.guard} rounds: its variable '{variable.name.value}' "
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
    updates = delta.updates if delta.distinct else kernels.consolidate(delta.updates)
    updates = updates.copy() if updates is delta.updates else updates
    updates[:, -2] += 1
    return updates


class LeavingUpdates:
    """The updates that leave a shard, without their rounds. Many cancel, so they are consolidated from time to time."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.rows = 0
        self.room = LITTLE

    def add(self, updates: np.ndarray) -> None:
        """Add a round's updates."""
        self.parts.append(without_rounds(updates, 1))
        self.rows += len(updates)
        if self.rows > self.room:
            # Each round's are mostly in order already, and merging is quicker than sorting all of them.
            self.parts = [kernels.merge([kernels.consolidate(part) for part in self.parts])]
            self.rows = len(self.parts[0])
            self.room = LITTLE + 3 * self.rows

    def delta(self) -> Delta:
        """Return the sum of all rounds, and keep it no longer."""
        distinct = len(self.parts) == 1 and self.room > LITTLE
        return Delta(kernels.concat_out_of(self.parts), distinct)
