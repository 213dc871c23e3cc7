"""Outputs of a dataflow for a program to read, and handles on traces, which keep times readable and import arrangements elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from ddcli.api.functions import filtering, text
from ddcli.circuit.linear import keeping
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode
from ddcli.engine.operators.base import Delta, consolidated
from ddcli.engine.records import decode_records, encode_records
from ddcli.engine.rounds import before, times_of
from ddcli.engine.times import Frontier
from ddcli.engine.trace.trace_import import FilteredImport, ImportedTrace
from ddcli.errors import UsageError
from ddcli.expressions.tree import FilterStep, PythonStep, Step
from ddcli.expressions.types import in_zone

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.api.dataflow import Dataflow
    from ddcli.engine.stages import Deltas
    from ddcli.engine.trace.spine import Trace, TraceHold
    from ddcli.expressions.types import Schema
    from ddcli.plan.relation import Relation


Record = tuple[Any, ...]
Update = tuple[Record, Any, int]


class Output:
    """The final updates of a collection, which accumulate until the program reads them."""

    def __init__(self, dataflow: Dataflow, relation: Relation, layout: Layout):
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


def updates_of(lanes: np.ndarray, layout: Layout, dataflow: Dataflow) -> list[Update]:
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

    def __init__(self, dataflow: Dataflow):
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


class KeptTraces:
    """An arrangement that a dataflow keeps: its key and columns, and, once the dataflow is assembled, the traces of its shards."""

    def __init__(self, dataflow: Dataflow, relation: Relation, key: tuple[str, ...]):
        self.dataflow = dataflow
        self.relation = relation
        self.key = key
        self.schema: Schema = {name: relation.schema[name] for name in key} | relation.schema
        """The columns in the arrangement's order, the key first."""
        self.shards: list[Trace] | None = None
        self.handles: list[TraceHandle] = []

    def bind(self, shards: list[Trace]) -> None:
        """Set the traces, and bind the handles that were made before, so that they hold them."""
        self.shards = shards
        for handle in self.handles:
            handle.bind(shards)
        self.handles.clear()


class TraceHandle:
    """A reader of an arrangement. It holds the trace: times at or after `since` stay apart until the handle moves on.

    A forgotten handle keeps all history, so close it, or use it in a `with` block.

    >>> from ddcli import Dataflow
    >>> df = Dataflow()
    >>> numbers = df.input("numbers", {"k": "int64", "v": "int64"})
    >>> trace = numbers.arrange_by_key("k").trace()
    >>> numbers.insert((1, 10))
    >>> numbers.update_at((1, 20), 3, 2)
    >>> numbers.advance_to(5)
    >>> print(df.step())
    5
    >>> trace.read(2), trace.read(4)
    ([((1, 10), 1)], [((1, 10), 1), ((1, 20), 2)])
    >>> trace.set_logical_compaction(4)
    >>> trace.close()
    """

    def __init__(self, kept: KeptTraces, since: Frontier, filters: tuple[Step, ...] = ()):
        self._kept = kept
        self._since = since
        self._through = Frontier()
        self._filters = filters
        self._holds: list[TraceHold] = []
        self._closed = False
        if kept.shards is None:
            kept.handles.append(self)
        else:
            self.bind(kept.shards)

    # --- holds ----------------------------------------------------------------------------------------------------

    @property
    def dataflow(self) -> Dataflow:
        """The dataflow that keeps the arrangement."""
        return self._kept.dataflow

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that it is arranged by."""
        return self._kept.key

    @property
    def columns(self) -> Schema:
        """The columns of its records."""
        return self._kept.relation.schema

    @property
    def since(self) -> Frontier:
        """The frontier from which on times can be read."""
        return self._since

    @property
    def upper(self) -> Frontier:
        """The frontier before which times are closed, and can be read."""
        return self.dataflow.frontier

    def set_logical_compaction(self, frontier: Any) -> None:
        """Move `since` to `frontier`, from which on the handle reads: earlier times may become equal. A list of no times ends reading."""
        self._set(self.dataflow.clock.frontier(frontier), self._through)

    def set_physical_compaction(self, frontier: Any) -> None:
        """Keep updates before `frontier` apart from later ones from now on, so that `updates` can separate them.

        Batches that reach beyond it are not merged: a handle that stays behind makes them many. A new handle keeps no updates apart. The
        first frontier is at or after the dataflow's, each further one at or after the last; a list of no times ends it.
        """
        found = self.dataflow.clock.frontier(frontier)
        earliest = self._through or self.dataflow.frontier
        if not earliest.dominates(found):
            show = self.dataflow.clock.show
            raise UsageError(
                f"batches may be merged up to {show(earliest)} already; {show(found)} is not at or after that",
                hint="set it first to the dataflow's frontier, and from then on forward",
            )
        self._set(self._since, found)

    def _set(self, since: Frontier, through: Frontier) -> None:
        self._open()
        if not self._since.dominates(since):
            show = self.dataflow.clock.show
            raise UsageError(f"the handle reads from {show(self._since)} on; it can't go back to {show(since)}")
        self._since, self._through = since, through
        for hold in self._holds:
            hold.advance(since, through)

    def bind(self, shards: list[Trace]) -> None:
        """Hold the traces, which have just been made."""
        if not self._closed:
            self._holds = [trace.hold(self._since, self._through) for trace in shards]

    def copy(self) -> TraceHandle:
        """Return another handle that reads the same trace, and holds the same times."""
        self._open()
        other = TraceHandle(self._kept, self._since, self._filters)
        other._set(self._since, self._through)
        return other

    def close(self) -> None:
        """Release the trace."""
        for hold in self._holds:
            hold.release()
        self._holds, self._closed = [], True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> None:
        if self._closed:
            raise UsageError("the handle is closed", hint="take another one: `arranged.trace()`")

    # --- reading --------------------------------------------------------------------------------------------------

    def filter(self, condition: str | Callable[..., Any]) -> TraceHandle:
        """Return another handle on the same trace, which reads only the records for which the condition is true.

        It is evaluated as the trace is read: nothing is arranged anew.
        """
        step: Step
        if isinstance(condition, str):
            with in_zone(self._kept.dataflow.timezone):
                step = FilterStep(self._kept.relation.scalar(text(condition)))
        else:
            function = filtering(condition, self.columns)
            step = PythonStep(function.name.value, batch=False, output=tuple(self.columns.items()))
        other = self.copy()
        other._filters = (*self._filters, step)  # noqa: SLF001
        return other

    def read(self, time: Any, key: Record | None = None) -> list[tuple[Record, int]]:
        """Return the collection at a time as (record, count), in no order; with `key`, only the records of that key.

        Raises UsageError for a time that is open, or not at or after `since`.
        """
        self._open()
        clock = self.dataflow.clock
        at = clock.time(time)
        if not self._since.less_equal(at):
            raise UsageError(f"time {time} can't be read any more: the handle reads from {clock.show(self._since)} on")
        if self.upper.less_equal(at):
            raise UsageError(f"time {time} is open: the dataflow is at {clock.show(self.upper)}")
        found = [matrix[(times_of(matrix, clock.count) <= np.array(at)).all(axis=1)] for matrix in self._matrices(key)]
        width = Layout(self._kept.schema).width
        lanes = self._filtered(kernels.consolidate(np.concatenate([self._untimed(matrix) for matrix in found])))
        counts = lanes[:, width].tolist()
        return list(
            zip(decode_records(self._ordered(lanes), Layout(self.columns), self.dataflow.pool), counts, strict=True)
        )

    def updates(self, after: Any) -> list[Update]:
        """Return the updates from the frontier `after` on as (record, time, diff), in the order of time.

        Raises UsageError if `after` is before the handle's physical frontier, or that has not been set.
        """
        self._open()
        clock = self.dataflow.clock
        lower = clock.frontier(after)
        if not self._through or not self._through.dominates(lower):
            where = f"from {clock.show(self._through)} on" if self._through else "nowhere"
            raise UsageError(
                f"batches are kept apart {where}, not at {clock.show(lower)}",
                hint="`set_physical_compaction` keeps them apart",
            )
        parts = [self._untouched(0)]
        for trace in self._traces():
            for batch in trace.batches:
                if not batch.upper.dominates(lower):
                    matrix = batch.matrix()
                    parts.append(matrix[~before(times_of(matrix, clock.count), lower)])
        lanes = self._filtered(kernels.consolidate(np.concatenate(parts)))
        return updates_of(self._ordered(lanes), Layout(self.columns), self.dataflow)

    @property
    def arranged(self) -> Schema:
        """The columns as they are arranged: the key first."""
        return self._kept.schema

    def imported(self, taken: Frontier) -> list[ImportedTrace | FilteredImport]:
        """Return the shards' traces for another dataflow to read, which has taken the updates before `taken`."""
        self._open()
        if not self._since:
            raise UsageError("the handle has ended reading: there is nothing to import")
        whole = [ImportedTrace(trace, self._since, taken) for trace in self._traces()]
        if not self._filters:
            return [*whole]
        # The condition reads values of the dataflow that keeps the trace, so it needs that pool.
        keep = keeping(self._kept.schema, self._filters, self.dataflow.pool)
        return [FilteredImport(trace, keep) for trace in whole]

    def _traces(self) -> list[Trace]:
        if self._kept.shards is None:
            self.dataflow.assemble()
        assert self._kept.shards is not None
        return self._kept.shards

    def _matrices(self, key: Record | None) -> list[np.ndarray]:
        found = [self._untouched(0)]
        if key is None:
            return found + [matrix for trace in self._traces() for matrix in trace.matrices()]
        layout = Layout({name: self._kept.schema[name] for name in self.key})
        keys = encode_records([key], layout, self.dataflow.pool)
        for trace in self._traces():
            found += [kernels.gather(matrix, layout.width, keys) for matrix in trace.batches_for(keys)]
        return found

    def _untouched(self, rows: int) -> np.ndarray:
        return np.empty((rows, Layout(self._kept.schema).width + self.dataflow.clock.count + 1), np.int64)

    def _untimed(self, matrix: np.ndarray) -> np.ndarray:
        """Return rows of lanes without their times."""
        width = Layout(self._kept.schema).width
        return kernels.take(matrix, [*range(width), matrix.shape[1] - 1])

    def _ordered(self, lanes: np.ndarray) -> np.ndarray:
        """Return rows with their columns in the collection's order instead of key first."""
        layout = Layout(self._kept.schema)
        order = [*layout.take(self.columns), *range(layout.width, lanes.shape[1])]
        return kernels.take(lanes, order)

    def _filtered(self, lanes: np.ndarray) -> np.ndarray:
        """Return the rows that the handle's filters keep, in their order."""
        if not self._filters:
            return lanes
        return keeping(self._kept.schema, self._filters, self.dataflow.pool)(lanes)
