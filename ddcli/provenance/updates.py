"""The updates of an input by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.lanes import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.plan import logical
    from ddcli.provenance.contents import Numbers, Record
    from ddcli.provenance.worlds import EvaluatedPlan


class SourceRows:
    """The updates of an input, found by their records; each is known by its row number in `matrix`."""

    def __init__(self, source: logical.Source, world: EvaluatedPlan) -> None:
        self.layout = Layout(source.schema)
        self.matrix = world.fed[source.name]
        self._contents = world.updates(source)
        self._in_time = np.all(self.matrix[:, self.layout.width : -1] <= np.array(world.time), axis=1)
        self._index: dict[bytes, list[int]] | None = None

    def where(self, values: Mapping[str, Any]) -> Numbers:
        """Return the updates at or before the time whose records have these values."""
        numbers = self._contents.numbers(values)
        return numbers[np.flatnonzero(self._in_time[numbers])]

    def of(self, record: Record) -> Numbers:
        """Return the updates of a record at or before the time, in their order."""
        if self._index is None:
            self._index = {}
            for at, row in enumerate(np.ascontiguousarray(self.matrix[:, : self.layout.width])):
                self._index.setdefault(row.tobytes(), []).append(at)
        lanes = self._contents.values.lanes(self.layout.schema, dict(zip(self.layout.names, record, strict=True)))
        assert lanes is not None, "a record of an input has its types"
        numbers = np.array(self._index.get(lanes[0].tobytes(), []), np.int64)
        return numbers[np.flatnonzero(self._in_time[numbers])]

    def last(self, numbers: Numbers, *, exact: bool) -> Numbers:
        """Return the shortest end of a record's updates that sums to its multiplicity; or, not `exact`, its last insertion."""
        ordered = numbers[np.argsort(self.matrix[numbers, -2], kind="stable")]
        diffs = self.matrix[ordered, -1]
        if not exact:
            return ordered[np.flatnonzero(diffs > 0)[-1:]]
        after = np.cumsum(diffs[::-1])[::-1]
        whole = np.flatnonzero(after == diffs.sum()).tolist()
        return ordered[whole[-1] :] if whole else ordered
