"""Arrangements of other dataflows, imported: collections of this one that are indexed already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.api.collection import Arranged
from ddcli.circuit import source_places
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.arrangement_views import Imported
from ddcli.engine.operators.base import Delta
from ddcli.engine.trace.trace_import import UnitedImport
from ddcli.expressions.types import POOLED

if TYPE_CHECKING:
    from ddcli.api.program import Program
    from ddcli.api.traces import TraceHandle
    from ddcli.engine.times import Frontier
    from ddcli.engine.trace.trace_import import FilteredImport, ImportedTrace
    from ddcli.plan.relation import Relation


class ImportedArrangement(Arranged):
    """An arrangement that another dataflow keeps, as a collection of this one; and the input that feeds it from there."""

    def __init__(self, dataflow: Program, relation: Relation, handle: TraceHandle):
        super().__init__(dataflow, relation, handle.key, None)
        self.handle = handle
        self._traces: list[ImportedTrace | FilteredImport] = []

    @property
    def frontier(self) -> Frontier:
        """The frontier of the dataflow that keeps the arrangement."""
        return self.handle.upper

    def indexed(self) -> source_places.ImportedSource:
        """Return the arrangement's source in this dataflow's graph. From now on the source holds the trace, and the handle doesn't."""
        self._traces = self.handle.imported(self.dataflow.frontier)
        self.handle.close()
        return source_places.ImportedSource(self.key, self.handle.arranged, [Imported(trace) for trace in self._traces])

    def united(self) -> source_places.ImportedSource:
        """Return one source of all its shards together."""
        return source_places.ImportedSource(self.key, self.handle.arranged, [Imported(UnitedImport(self._traces))])

    def fit(self, layout: Layout) -> None:
        """Do nothing: an arrangement has all its columns."""

    def flush(self) -> None:
        """Do nothing: the times that the other dataflow has closed are ready."""

    def take_before(self, upper: Frontier) -> list[Delta]:
        found = [trace.next_before(upper) for trace in self._traces]
        for matrix in found:
            self._share_values(matrix)
        return [Delta(matrix, distinct=True) for matrix in found]

    def release(self) -> None:
        """Release the trace: the dataflow takes no further step."""
        self.handle.close()
        for trace in self._traces:
            trace.release()

    def _share_values(self, matrix: np.ndarray) -> None:
        """Bring the values that hashed lanes stand for into this dataflow's pool."""
        layout = Layout(self.handle.arranged)
        for name, kind in layout.schema.items():
            if kind.kind in POOLED and len(matrix):
                lanes = np.unique(matrix[:, layout.lanes(name).start])
                self.dataflow.pool.intern(self.handle.dataflow.pool.values(lanes, kind), kind)
