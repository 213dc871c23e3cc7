"""The input of a source: updates that are not read yet, in slices that any process can read; and the facts of an input that its operators read, with their reports: diagnostics for key violations.

The past of a changed pipeline's state comes in slices, too. It has the contents of arrangements as of a frontier, and the updates of outputs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.lanes import Columns, Layout, encode
from ddcli.engine.rounds import advance_to_closed, as_of, times_of
from ddcli.errors import InputError
from ddcli.privacy import previewed
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.files.access import reading
from ddcli.store.log.pieces import ConsumedRange
from ddcli.store.log.writer import in_columns
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Frontier, Time
    from ddcli.spec.model import InputSpec
    from ddcli.store.batch.file import BatchLayout
    from ddcli.store.log.reader import LogReader
    from ddcli.store.state.entries import FileEntry


class Slice(Protocol):
    """Some updates, not read yet."""

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        """Return them as `[data lanes | time lanes | diff]`; threads may read different ones at once."""

    def updates(self, layout: Layout, pool: Pool) -> np.ndarray | Columns:
        """Return them so, or in the columns in which they were read."""


@frozen
class InputSlice:
    """The input of a source: its parts, and an upper bound of the number of its updates."""

    slices: Sequence[Slice]
    rows: int


Feed = InputSlice | ConsumedRange
"""The input of a source."""


@frozen
class Settled:
    """Updates that matter only by their sums as of a frontier, in times of `nt` coordinates."""

    part: Slice
    frontier: Frontier
    nt: int

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        return as_of(self.part.matrix(layout, pool), self.frontier, self.nt)

    def updates(self, layout: Layout, pool: Pool) -> np.ndarray | Columns:
        """Return them in the columns in which they were read, not added up: what is filtered need not be in lanes."""
        found = self.part.updates(layout, pool)
        if not isinstance(found, Columns):
            return as_of(found, self.frontier, self.nt)
        tail = found.tail.copy()
        advance_to_closed(times_of(tail, self.nt), self.frontier)
        return found._replace(tail=tail)


@frozen
class Corrected:
    """The updates of a file that was replaced, or that replaces it: inserted or, with the `sign` -1, taken back, at one time or after it."""

    part: Slice
    time: Time
    sign: int

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        found = self.part.matrix(layout, pool).copy()
        times = times_of(found, len(self.time))
        np.maximum(times, np.array(self.time, np.int64), out=times)
        found[:, -1] *= self.sign
        return found

    updates = matrix


@frozen
class ArrangementFile:
    """A file of an arrangement, whose lanes it has in the order of its `layout`."""

    path: Path
    file: FileEntry
    layout: BatchLayout

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        found: np.ndarray = StoredBatch(self.path, self.file, self.layout, pool).matrix()
        return found

    updates = matrix


@frozen
class LoggedRows:
    """Some rows of a file of an output's own log, with these time columns. A column that came later is null, and a type may have been another, whose values the present one holds."""

    path: Path
    start: int
    rows: int
    times: tuple[str, ...]

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        with reading(self.path) as file:
            scan = pl.scan_parquet(file, glob=False, hive_partitioning=False)
            frame = in_columns(scan.slice(self.start, self.rows).collect(), layout.schema)
        width = layout.width + len(self.times) + 1
        matrix = encode(frame, layout, pool, np.empty((frame.height, width), np.int64))
        for at, column in enumerate((*self.times, "diff"), start=layout.width):
            matrix[:, at] = frame[column].to_physical().cast(pl.Int64).to_numpy()
        return matrix

    updates = matrix


InputReport = tuple[list[tuple[str, int]], Counter[int], Counter[int]]
"""The reports of an input's operators: see `InputFacts`."""


@dataclass
class InputFacts:
    """The description of an input that its operators read, and their reports. Shards may report from several threads."""

    given: InputSpec
    reader: LogReader
    snapshots: list[int] = field(default_factory=list)
    truncations: list[tuple[int, int]] = field(default_factory=list)
    watched: list[tuple[str, int]] = field(default_factory=list)
    """The problem of a negative record that is only reported, and the number of its shard's updates that have it."""
    _gone: Counter[int] = field(default_factory=Counter)
    _before: Counter[int] = field(default_factory=Counter)

    def apart(self) -> InputFacts:
        """Return empty facts for a task, whose attempt may fail."""
        return replace(self, watched=[], _gone=Counter(), _before=Counter())

    def report(self) -> InputReport:
        """Return all reports, for `add`."""
        return self.watched, self._gone, self._before

    def add(self, report: InputReport) -> None:
        """Add the reports of a task."""
        watched, gone, before = report
        self.watched += watched
        self._gone += gone
        self._before += before

    def tied(self, key: dict[str, Any], time: int) -> InputError:
        """Return the error for a key with two different rows at one time when neither is the last."""
        hint = "make their order different, or delete one of the rows"
        if self.given.order_by is None and not self.given.format.startswith("debezium"):
            hint = "choose the last of a key's rows at one time with the input's `order_by`"
        return self._refused(key, time, "has different rows of the same order at", hint)

    def twice(self, key: dict[str, Any], time: int) -> InputError:
        """Return the error for a key that is in a snapshot twice."""
        hint = "correct the file, or leave out the input's `key` to compare whole records"
        return self._refused(key, time, "is twice in the snapshot of", hint)

    def deleted(self, time: int, gone: int, before: int) -> None:
        """Count the records before a snapshot, in one shard, and those that are not in it."""
        self._gone[time] += gone
        self._before[time] += before

    def negative(self, record: dict[str, Any], time: int, count: int, found: int) -> None:
        """Refuse a record whose multiplicity is negative, or remember it; it is the first of those `found` in one shard."""
        values = ", ".join(f"{name} = {value!r}" for name, value in previewed(record).items())
        problem = f"the record {values} has the multiplicity {count} at the time {self._time(time)}"
        if self.given.negative == "error":
            place = self.reader.find(record, time) or self.given.path.value
            hint = "it was retracted more often than inserted; correct the input, or set `negative: warn` or `allow`"
            raise InputError(problem, place=place, hint=hint)
        self.watched.append((problem, found))

    def negatives(self) -> tuple[int, str | None]:
        """Return the number of updates that left a record with a negative multiplicity, and the problem of one of them."""
        return sum(found for _, found in self.watched), min((problem for problem, _ in self.watched), default=None)

    def check(self) -> None:
        """Refuse a snapshot that deletes more than it may."""
        most = self.given.max_delete
        if most is None:
            return
        from ddcli.spec.inputs import allowed

        for time in self.snapshots:
            gone, before = self._gone[time], self._before[time]
            if gone > allowed(most.value, before):
                raise InputError(
                    f"inputs.{self.given.name.value}: the snapshot of {self._time(time)} deletes {gone} of {before} records, "
                    f"more than `max_delete: {most.value}` allows",
                    span=most.span,
                    hint="look at the snapshot's files; if they are right, raise `max_delete` for this run",
                )

    def _refused(self, key: dict[str, Any], time: int, problem: str, hint: str) -> InputError:
        values = ", ".join(f"{name} = {value!r}" for name, value in previewed(key).items())
        place = self.reader.find(key, time) or self.given.path.value
        return InputError(f"the key {values} {problem} the time {self._time(time)}", place=place, hint=hint)

    def _time(self, time: int) -> str:
        return format_time((time,), list(self.reader.schema.time.values()))
