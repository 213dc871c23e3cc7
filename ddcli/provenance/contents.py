"""A collection at one time, and the updates of an input up to it, whose records are found by the values of some columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.columns import NullInRequired
from ddcli.engine.lanes import Layout, decode, decode_records, encode, encode_records
from ddcli.errors import InputError
from ddcli.expressions.stage import FusedSteps

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from ddcli.circuit.traces import StateAnswers
    from ddcli.engine.columns import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Time
    from ddcli.expressions.steps import StageResult, Step
    from ddcli.expressions.types import Schema

Record = tuple[Any, ...]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
FEW = 16
"""Look-ups of whole records after which it pays to index them."""


class Values:
    """Values encoded as lanes, by means of a pool. Encoded values are cached: one record is looked up in many collections.

    `answers` are the results of functions that remember.
    """

    def __init__(self, pool: Pool, answers: StateAnswers | None = None) -> None:
        self.pool, self.answers = pool, answers
        self._known: dict[tuple[str, str], Matrix | None] = {}

    def lanes(self, schema: Schema, values: Mapping[str, Any]) -> Matrix | None:
        """Return the lanes of values in columns of these types; None if a value doesn't have its column's type."""
        kinds = {name: schema[name] for name in values}
        record = tuple(values.values())
        at = " ".join(map(str, kinds.values())), repr(record)
        if at not in self._known:
            try:
                self._known[at] = encode_records([record], Layout(kinds), self.pool)
            except (InputError, NullInRequired):
                self._known[at] = None
        return self._known[at]


class Contents:
    """Records with their multiplicities, as a matrix `[data lanes | count]`, consolidated."""

    def __init__(self, matrix: Matrix, schema: Schema, values: Values) -> None:
        self.matrix = matrix
        self.layout = Layout(schema)
        self.values = values
        self._asked = 0
        self._index: dict[bytes, int] | None = None

    def __len__(self) -> int:
        return len(self.matrix)

    def where(self, values: Mapping[str, Any]) -> Contents:
        """Return the records that have these values in these columns."""
        return self.rows(self.numbers(values))

    def numbers(self, values: Mapping[str, Any]) -> Numbers:
        """Return the numbers of the records that have these values in these columns."""
        lanes = self.values.lanes(self.layout.schema, values)
        if lanes is None:
            return np.zeros(0, np.int64)
        columns = self.layout.take(values)
        if self.layout.width and list(values) == list(self.layout.names):
            return self._whole(lanes)
        same = np.ones(len(self.matrix), np.bool_)
        for at, lane in enumerate(columns):
            same &= self.matrix[:, lane] == lanes[0, at]
        return np.flatnonzero(same)

    def count(self, record: Record) -> int:
        """Return a record's multiplicity."""
        found = self.where(dict(zip(self.layout.names, record, strict=True)))
        return int(found.matrix[:, -1].sum())

    def rows(self, chosen: Numbers) -> Contents:
        """Return some of the records, by their numbers."""
        return Contents(self.matrix[chosen], self.layout.schema, self.values)

    def same(self, frame: pl.DataFrame, values: Mapping[str, Any]) -> Numbers:
        """Return the numbers of a frame's rows that have these values; the frame has columns of these types."""
        lanes = self.values.lanes(self.layout.schema, values)
        if lanes is None:
            return np.zeros(0, np.int64)
        found = encode(frame.select(self.layout.names), self.layout, self.values.pool) if self.layout.width else None
        return np.arange(frame.height) if found is None else np.flatnonzero((found == lanes[0]).all(axis=1))

    def through(self, step: Step) -> tuple[StageResult, Contents]:
        """Return the result of a linear step on the records, without those that it fails on, and the records without those."""
        stage, frame = FusedSteps(self.layout.schema, (step,)), self.frame()
        try:
            return stage.run(frame), self
        except InputError:
            failing = [row for row, _ in stage.failing(frame)]
            kept = self.rows(np.setdiff1d(np.arange(len(self)), failing))
            return stage.run(kept.frame()), kept

    def records(self) -> list[Record]:
        """Return the records as values."""
        return decode_records(self.matrix, self.layout, self.values.pool)

    def counts(self) -> list[int]:
        """Return the multiplicities, in the order of `records`."""
        counts: list[int] = self.matrix[:, -1].tolist()
        return counts

    def frame(self) -> pl.DataFrame:
        """Return the records as a frame."""
        return decode(self.matrix, self.layout, self.values.pool)

    def _whole(self, lanes: Matrix) -> Numbers:
        """Return the number of the record that has just these lanes, if there is one."""
        self._asked += 1
        if self._index is None and self._asked <= FEW:
            return np.flatnonzero((self.matrix[:, :-1] == lanes[0]).all(axis=1))
        if self._index is None:
            data = np.ascontiguousarray(self.matrix[:, :-1])
            self._index = {row.tobytes(): at for at, row in enumerate(data)}
        at = self._index.get(lanes.tobytes())
        return np.array([] if at is None else [at], np.int64)


class SourceRows:
    """The updates of an input, found by their records; each is known by its row number in `matrix`."""

    def __init__(self, schema: Schema, updates: Contents, time: Time) -> None:
        self.layout = Layout(schema)
        self.matrix = updates.matrix
        self._contents = updates
        self._in_time = np.all(self.matrix[:, self.layout.width : -1] <= np.array(time), axis=1)
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
