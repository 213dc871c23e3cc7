"""The way of a join's rows through the operators behind it, part by part, where they would not fit in memory at once.

Each part passes the operators behind the join and leaves the stage before the next one is made. That is right because these operators take each row
by itself: one that needs more of its groups reads the updates of all shards, so it is of a later stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, summed
from ddcli.engine.operators.join import HalfJoin, Join, RowLookup
from ddcli.engine.stages import StageResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from ddcli.engine.rounds import Interval
    from ddcli.engine.scope import Scope
    from ddcli.engine.stages import OperatorSlot, Stage


SETTLED = 1 << 18
"""Rows of parts from which on they are consolidated, and again when they have doubled."""


class JoinParts:
    """A shard's way through the operators behind the join at place `index`, part by part; `step` steps an operator, `put` receives the updates that leave the stage.

    Only an output needs to have each record once: where parts may share some (both sides have new rows of a key), its updates are put together here.
    """

    def __init__(
        self,
        scope: Scope,
        step: Callable[[int, OperatorSlot, int, list[Delta], Interval, StageResult], Delta | None],
        stage: Stage,
        shard: int,
        index: int,
        interval: Interval,
        put: Callable[[StageResult], None],
    ) -> None:
        self.scope = scope
        self.step = step
        self.stage = stage
        self.shard = shard
        self.index = index
        self.interval = interval
        self.put = put
        self._waiting: dict[int, list[np.ndarray]] = {}

    def run(self, given: list[Delta]) -> None:
        """Take the result of the join, whose input is `given`, through the stage."""
        behind = [*self._places()]
        place = self.scope.places[self.index]
        operator = place.shards[self.shard]
        assert isinstance(operator, Join | HalfJoin)
        for delta in operator.parts(given):
            part = place.counted(self.shard, given, delta, 0.0) if self.scope.counted and place.name else delta
            given = []  # it is counted once
            if len(part.updates):
                self._pass_on(part, behind)

    def add_to(self, result: StageResult) -> None:
        """Add the updates of outputs that wait here to the result of the stage."""
        for index, parts in self._waiting.items():
            known = [result.found[index]] if index in result.found else []
            result.found[index] = summed([Delta(_settled(parts), distinct=True), *known])

    def _pass_on(self, part: Delta, behind: list[int]) -> None:
        """Step the operators behind the join with a part of its result, and send the updates that leave the stage."""
        found, leaving = {self.index: part}, StageResult()
        for index in behind:
            place = self.scope.places[index]
            # The other inputs of a sum pass by themselves.
            given = [found.get(i, none) for i, none in place.reads]
            if any(len(delta.updates) for delta in given):
                delta = self.step(index, place, self.shard, given, self.interval, leaving)
                if delta is not None and len(delta.updates):
                    found[index] = delta
        for index, delta in found.items():
            if index in self.scope.kept and not (index == self.index and delta.distinct):
                self._keep(index, delta.updates)
            elif index in self.stage.leaves:
                leaving.found[index] = delta
        if leaving.found:
            self.put(leaving)

    def _keep(self, index: int, updates: np.ndarray) -> None:
        """Put updates of an output together with the updates of earlier parts."""
        parts = self._waiting.setdefault(index, [])
        parts.append(updates)
        if sum(map(len, parts)) > max(SETTLED, 2 * len(parts[0])):
            parts[:] = [_settled(parts)]

    def _places(self) -> Iterator[int]:
        """Yield the places behind the join, in their order."""
        behind, places = {self.index}, self.scope.places
        for index in self.stage.places:
            place = places[index]
            if index != self.index and not place.route and not behind.isdisjoint(place.inputs):
                assert not isinstance(place.shards[self.shard], RowLookup), (
                    "a lookup is exchanged, or sorted by its key"
                )
                assert not place.shards[self.shard].traces, "an operator with a trace is exchanged"
                behind.add(index)
                yield index


def _settled(parts: list[np.ndarray]) -> np.ndarray:
    return kernels.consolidate(kernels.concat_out_of(parts))
