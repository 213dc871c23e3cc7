"""The results of a dataflow for a program: the updates of a collection, and the frontier of those to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.lanes import decode, decode_records
from ddcli.engine.operators.base import Delta, consolidated
from ddcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from ddcli.api.program import Program
    from ddcli.engine.lanes import Layout
    from ddcli.engine.places import Deltas
    from ddcli.plan.relation import Relation

Record = tuple[Any, ...]
Update = tuple[Record, Any, int]


class Output:
    """The final updates of a collection, which accumulate until the program reads them."""

    def __init__(self, dataflow: Program, relation: Relation, layout: Layout):
        self.dataflow = dataflow
        self.relation = relation
        self.layout = layout
        self._ready: list[Deltas] = []

    def accept(self, deltas: Deltas) -> None:
        """Add a step's updates: deltas that share no record."""
        if deltas:
            self._ready.append(deltas)

    def lanes(self) -> np.ndarray:
        """Return all updates since the last call as a matrix of lanes, consolidated."""
        parts = self.parts()
        if not parts:
            return np.empty((0, self.layout.width + self.dataflow.clock.count + 1), np.int64)
        # In an order that does not depend on the number of workers.
        return parts[0] if len(parts) == 1 else kernels.consolidate(kernels.concat(parts))

    def parts(self) -> list[np.ndarray]:
        """Return all updates since the last call as matrices of lanes, one for each worker: consolidated, they share no record.

        For large results this avoids the copy that `lanes` makes.
        """
        ready, self._ready = self._ready, []
        if len(ready) > 1:  # updates of several steps may have one time, if times were advanced
            ready = [[Delta(kernels.concat([delta.updates for deltas in ready for delta in deltas]))]]
        parts = []
        for deltas in ready:
            while deltas:  # each is released as soon as it is consolidated
                parts.append(consolidated(deltas.pop(0)))
        return parts

    def updates(self) -> list[Update]:
        """Return all updates since the last call as (record, time, diff), in the order of time."""
        return updates_of(self.lanes(), self.layout, self.dataflow)

    def frame(self) -> pl.DataFrame:
        """Return all updates since the last call as a frame: the data, then `time` (`time0`, `time1`, ...) and `diff`."""
        import polars as pl

        clock = self.dataflow.clock
        for name in (*clock.names, "diff"):
            if name in self.layout.schema:
                raise UsageError(
                    f"a frame would have the column '{name}' twice",
                    hint="rename it, or read `updates` or `lanes`",
                )
        lanes, width = self.lanes(), self.layout.width
        data = decode(lanes, self.layout, self.dataflow.pool).get_columns()
        return pl.DataFrame([*data, *clock.columns(lanes[:, width:-1]), pl.Series("diff", lanes[:, -1].copy())])


def updates_of(lanes: np.ndarray, layout: Layout, dataflow: Program) -> list[Update]:
    """Return a matrix of updates as (record, time, diff), in the order of time."""
    tail = lanes[:, layout.width : -1]
    if len(lanes) > 1:
        order = np.lexsort(tail.T[::-1])
        lanes, tail = lanes[order], tail[order]
    records = decode_records(lanes, layout, dataflow.pool)
    return list(zip(records, dataflow.clock.values(tail), lanes[:, -1].tolist(), strict=True))


class Condition:
    """A condition that is evaluated anew at each use, as a truth value or by a call."""

    def __init__(self, ask: Callable[[], bool]):
        self._ask = ask

    def __call__(self) -> bool:
        return self._ask()

    def __bool__(self) -> bool:
        return self._ask()


class Probe:
    """A probe of a dataflow's progress: whether a collection can still change at a time."""

    def __init__(self, dataflow: Program):
        self.dataflow = dataflow

    def less_than(self, time: Any) -> Condition:
        """Return the condition that some time before `time` is open.

        >>> from ddcli import Dataflow
        >>> df = Dataflow()
        >>> numbers = df.input("numbers", {"n": "int64"})
        >>> probe = numbers.probe()
        >>> numbers.advance_to(3)
        >>> while probe.less_than(3):
        ...     df.step()
        Frontier(elements=((3,),))
        """
        lanes = self.dataflow.clock.time(time)
        return Condition(lambda: self.dataflow.frontier.less_than(lanes))

    def less_equal(self, time: Any) -> Condition:
        """Return the condition that `time` is open, so that the collection as of it may still change."""
        lanes = self.dataflow.clock.time(time)
        return Condition(lambda: self.dataflow.frontier.less_equal(lanes))
