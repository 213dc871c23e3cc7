"""The results of a dataflow for a program: the updates of a collection, and the frontier of those to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.lanes import decode, decode_records
from ddcli.engine.operators.base import Delta, is_sole
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
    """The updates of a collection, as they become final."""

    def __init__(self, dataflow: Program, relation: Relation, layout: Layout):
        self.dataflow = dataflow
        self.relation = relation
        self.layout = layout
        self._ready: list[Deltas] = []

    def accept(self, deltas: Deltas) -> None:
        """Take a step's updates: deltas that share no record."""
        if deltas:
            self._ready.append(deltas)

    def lanes(self) -> np.ndarray:
        """Return all updates since the last call as a matrix of lanes, consolidated."""
        parts = self.parts()
        if not parts:
            return np.empty((0, self.layout.width + self.dataflow.clock.count + 1), np.int64)
        # In an order that does not depend on how many workers there were.
        return parts[0] if len(parts) == 1 else kernels.consolidate(kernels.concat(parts))

    def parts(self) -> list[np.ndarray]:
        """Return all updates since the last call as matrices of lanes, one for each worker: consolidated, they share no record.

        Of large results this spares the copy that `lanes` puts together.
        """
        ready, self._ready = self._ready, []
        if len(ready) > 1:  # updates of several steps may be of one time, where times were advanced
            ready = [[Delta(kernels.concat([delta.updates for deltas in ready for delta in deltas]))]]
        parts = []
        for deltas in ready:
            while deltas:
                updates, distinct, *_ = deltas.pop(0)
                if not distinct:
                    sole = is_sole(updates)
                    updates = kernels.consolidate(updates, owned=sole)
                parts.append(updates)
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
                    f"the column '{name}' would be there twice in a frame",
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
    """A question that may be asked again: it is true or false as things stand, and returns that when it is called."""

    def __init__(self, ask: Callable[[], bool]):
        self._ask = ask

    def __call__(self) -> bool:
        return self._ask()

    def __bool__(self) -> bool:
        return self._ask()


class Probe:
    """Asks whether a collection can still change at a time."""

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
        """Return the condition that `time` itself is open: the collection may change at it, as one reads it there."""
        lanes = self.dataflow.clock.time(time)
        return Condition(lambda: self.dataflow.frontier.less_equal(lanes))
