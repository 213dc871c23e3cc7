"""The updates of a run beside its outputs: side logs of rows that it could not take as they are, which the commit publishes, and updates that it shows, judges or hands out.

The latter are the updates of an `inspect`, of checks, which decide whether there is a commit, and of a dry run's outputs.
"""

from __future__ import annotations

import io
import json
import threading
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli import privacy
from ddcli.dataclass import dataclass, frozen
from ddcli.engine.arrow import series_of
from ddcli.engine.lanes import decode
from ddcli.errors import StateError
from ddcli.job.paths import unparsed_below
from ddcli.job.request import error_directory, late_directory
from ddcli.privacy import previewed
from ddcli.screen import json_number
from ddcli.store.files.access import fs, reading, real
from ddcli.store.log.writer import DIFF, frontier_name, time_column
from ddcli.store.state.contents import ours
from ddcli.store.state.document import UPDATES as OF_LOG
from ddcli.store.state.entries import UPDATES
from ddcli.store.state.outputs import tags_metadata
from ddcli.store.tables.kinds import READ_ERRORS
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Frontier
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.request import Request
    from ddcli.store.log.joint_files import JointFile
    from ddcli.store.log.pieces import ConsumedRange, LogSlice
    from ddcli.store.log.reader import LogReader
    from ddcli.store.log.unparsed_rows import UnparsedRows
    from ddcli.store.state.entries import Times
    from ddcli.store.state.transaction import Transaction


QUOTES = ("error", "record", "text")
"""The columns of side logs that quote values of rows."""
QUOTED = {"error": pl.String(), "record": pl.String()}
"""The columns of the log of records on which expressions fail."""
DAMAGED_LOG = "remove it, and run again: what the log then lacks is written again"


def record_text(row: Mapping[str, Any]) -> str:
    """Return a record as JSON; floats that JSON has no number for are the texts that every command writes for them.

    >>> record_text({"k": 1, "x": float("nan"), "xs": [float("-inf"), None]})
    '{"k": 1, "x": "NaN", "xs": ["-Infinity", null]}'
    """
    worded = {name: _worded(value) for name, value in row.items()}
    return json.dumps(worded, default=str, ensure_ascii=False, allow_nan=False)


def _worded(value: Any) -> Any:
    if isinstance(value, list):
        return [_worded(each) for each in value]
    return json_number(value) if isinstance(value, float) else value


@dataclass
class ErrorLog:
    """The records on which expressions failed in a run, as updates: `error`, the `record` as JSON, times and diff.

    A record that fails on its insertion fails on its retraction too, so the log retracts a corrected record by itself.
    Several threads may report rows at once.
    """

    times: Schema
    rows: int = 0
    """Updates that insert."""
    frames: list[pl.DataFrame] = field(default_factory=list)
    """The records so far."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, updates: np.ndarray, layout: Layout, pool: Pool, why: Sequence[str]) -> None:
        """Take in updates on which an expression fails, each with the reason."""
        records = decode(updates, layout, pool)
        texts = [record_text(row) for row in records.iter_rows(named=True)]
        lanes = range(layout.width, layout.width + len(self.times))
        times = [
            time_column(name, updates[:, at], kind) for at, (name, kind) in zip(lanes, self.times.items(), strict=True)
        ]
        reasons = pl.Series("error", list(why), pl.String)
        frame = pl.DataFrame(
            [reasons, pl.Series("record", texts, pl.String), *times, series_of(DIFF, updates[:, -1].copy())]
        )
        with self._lock:
            self.frames.append(frame)
            self.rows += int((updates[:, -1] > 0).sum())

    def take_in(self, frames: Sequence[pl.DataFrame]) -> None:
        """Add the records of a task's log."""
        self.frames += frames
        self.rows += sum(int((frame[DIFF] > 0).sum()) for frame in frames)

    def add_rebuilt(self, frontier: Frontier) -> Callable[[np.ndarray, Layout, Pool, Sequence[str]], None]:
        """Return a function that adds updates of a pipeline that changed: they fail from the frontier on, at which it changes."""

        def add(updates: np.ndarray, layout: Layout, pool: Pool, why: Sequence[str]) -> None:
            opened = updates.copy()
            opened[:, layout.width : -1] = frontier.as_time()
            self.add(opened, layout, pool, why)

        return add


def rows_in(directory: Path) -> int:
    """Return the number of rows that a side log holds now; one that does not exist holds none."""
    found = 0
    for path in _files(directory):
        diffs = _read(path, [DIFF])[DIFF]
        if diffs.dtype != pl.Int64:
            raise _damaged(path)
        found += int(diffs.sum())
    return found


def _read(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """Return a side log's file, which has no checksum in a manifest; all columns, if None. Raises StateError if it can't be read."""
    with reading(path) as file:
        try:
            return pl.read_parquet(file, columns=columns, glob=False, hive_partitioning=False)
        except READ_ERRORS:
            raise _damaged(path) from None


def _damaged(path: Path) -> StateError:
    return StateError("the file is not one of a log that `dd` writes", place=str(path), hint=DAMAGED_LOG)


def _files(directory: Path) -> list[Path]:
    """Return the files of a side log."""
    return ours(directory, OF_LOG)


@frozen
class SideLogs:
    """The side logs of a pipeline to which a commit adds updates of an interval of times: one file in each; `called` is added to the names of these files.

    Such a log has no progress: later rows may have any time. Corrections hold a log in memory: such rows are few.
    """

    request: Request
    transaction: Transaction
    times: Schema
    interval: tuple[Times | None, Times]
    called: str

    def add_errors(self, errors: ErrorLog) -> None:
        """Add the records on which expressions fail."""
        if errors.frames:
            self.write(error_directory(self.request), [pl.concat(errors.frames)])

    def add_missing_errors(self, errors: ErrorLog) -> None:
        """Add the records that fail more often than the log has them, after some or all failures were computed anew."""
        if not errors.frames:
            return
        directory, record = error_directory(self.request), ["error", "record"]
        logged = pl.concat(
            [*(frame.select(*record, DIFF) for frame in self._written(directory, **QUOTED))]
            or [errors.frames[0].clear()]
        )
        held = logged.group_by(record).agg(pl.col(DIFF).sum().alias("held"))
        now = pl.concat(errors.frames).group_by([*record, *self.times]).agg(pl.col(DIFF).sum())
        missing = pl.col(DIFF) - pl.col("held").fill_null(0)
        found = now.join(held, on=record, how="left").with_columns(missing.alias(DIFF)).filter(pl.col(DIFF) > 0)
        if found.height:
            self.write(directory, [found.drop("held")])

    def correct_errors(self, errors: ErrorLog, frontier: Frontier) -> None:
        """Add the difference between all records that fail now and those in the log, at a frontier, or after it where they are."""
        directory = error_directory(self.request)
        if (whole := self._difference(directory, errors.frames, **QUOTED)) is not None:
            times = zip(self.times.items(), frontier.as_time(), strict=True)
            at = [(name, time_column(name, np.full(whole.height, value), kind)) for (name, kind), value in times]
            self.write(directory, [whole.with_columns(pl.max_horizontal(*each) for each in at)])

    def put_aside(self, taken: Mapping[str, ConsumedRange]) -> None:
        """Add the late and the unreadable rows of inputs that are put aside, as updates; a slice at a time is in memory."""
        # A run with nothing but late rows closes no time: there may be several such.
        closes = self.interval[0] != self.interval[1]
        logs = self if closes else replace(self, called=f"-change{self.transaction.number}")
        for name, found in taken.items():
            logs.write(late_directory(self.request, name), map(self._late, found.put_aside))
            if found.unparsed:
                logs.write(self._unparsed_directory(name), [self._unparsed(found.unparsed)])

    def rewrite(self, errors: ErrorLog, readers: Mapping[str, LogReader]) -> None:
        """Write the logs anew, in the place of the files that they have: the records on which expressions fail now, and of inputs the rows that were
        late or can't be read, without those that are forgotten.
        """
        forgetting = self.request.decided.forgetting
        assert forgetting is not None, "else they are corrected"
        for directory in dict.fromkeys(self.request.side_logs):
            for path in _files(directory):
                self.transaction.retire(path)
                forgetting.note(path, fs(path).size(), None, 0)

        def add(directory: Path, frames: Iterable[pl.DataFrame]) -> None:
            if (made := self.write(directory, frames)) is not None:
                forgetting.note(None, 0, *made)

        if errors.frames:
            add(error_directory(self.request), [pl.concat(errors.frames)])
        for name, reader in readers.items():
            condition = forgetting.conditions.get(name)
            add(late_directory(self.request, name), map(self._late, reader.put_aside()))
            unparsed = [
                (file, found if condition is None else found.drop(condition)[0]) for file, found in _unparsed_in(reader)
            ]
            if unparsed:
                add(self._unparsed_directory(name), [self._unparsed(unparsed)])

    def correct_late(self, name: str, reader: LogReader) -> None:
        """Add the difference between the late rows that an input has now and those in its log."""
        directory = late_directory(self.request, name)
        if (whole := self._difference(directory, map(self._late, reader.put_aside()))) is not None:
            self.write(directory, [whole])

    def correct_unparsed(self, name: str, reader: LogReader) -> None:
        """Add the difference between the rows of an input that can't be read now and those in its log, at one time."""
        directory, found = self._unparsed_directory(name), _unparsed_in(reader)
        if (whole := self._difference(directory, [self._unparsed(found)] if found else [])) is not None:
            last = zip(self.times.items(), self._last, strict=True)
            at = [time_column(column, np.full(whole.height, value), kind) for (column, kind), value in last]
            self.write(directory, [whole.with_columns(at)])

    def _difference(self, directory: Path, found: Iterable[pl.DataFrame], **others: pl.DataType) -> pl.DataFrame | None:
        """Return the updates that turn a side log, which has these `others` of its columns, into the one that was found, None where neither has any."""
        frames = [*(frame.with_columns(-pl.col(DIFF)) for frame in self._written(directory, **others)), *found]
        return pl.concat(frames, how="diagonal_relaxed") if frames else None

    def _unparsed_directory(self, name: str) -> Path:
        return unparsed_below(error_directory(self.request), name)

    def _written(self, directory: Path, **others: pl.DataType) -> list[pl.DataFrame]:
        """Return the updates of a side log. A file without these columns is refused: StateError.

        Earlier commits that become one with the transaction's count, too.
        """
        known = {name: time_column(name, np.empty(0, np.int64), kind).dtype for name, kind in self.times.items()}
        columns = known | others | {DIFF: pl.Int64()}
        frames = []
        waiting = self.transaction.state.waiting.items()
        own = [source for target, source in waiting if target.parent == real(directory)]
        for path in [*_files(directory), *own]:
            frame = _read(path)
            if any(frame.schema.get(name) != kind for name, kind in columns.items()):
                raise _damaged(path)
            frames.append(frame)
        return frames

    def write(self, directory: Path, frames: Iterable[pl.DataFrame]) -> tuple[Path, int] | None:
        """Add updates to a side log as one file; return its path and size. Each frame has a record at most once for a time, sorted by time."""
        names = "-".join(frontier_name(bound, self.times) for bound in self.interval)
        path = directory / f"{UPDATES}{names}{self.called}.parquet"
        file: JointFile | None = None
        for frame in frames:
            others = [column for column in frame.columns if column != DIFF]
            updates = frame.group_by(others).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
            updates = updates.sort([*self.times, *others])
            if updates.is_empty():
                continue
            data = io.BytesIO()
            tags = {name: each for name, each in privacy.quoted(QUOTES).items() if name in updates.columns}
            metadata = tags_metadata(tags, self.transaction.state.identity)
            updates.write_parquet(data, compression="zstd", metadata=metadata)
            file = file or self.transaction.join_output(path)
            file.add(data.getvalue())
        return None if file is None else (path, file.finish().size)

    def _late(self, piece: LogSlice) -> pl.DataFrame:
        """Return late rows as a side log has them: data, times, diff."""
        rows = piece.read()
        lanes = zip(self.times.items(), piece.reader.schema.time.values(), rows.times, strict=True)
        beside = [time_column(column, lane.to_numpy(), kind) for (column, _), kind, lane in lanes]
        own = rows.frame.select([column for column in rows.frame.columns if column in piece.reader.schema.columns])
        data = self._distinct(own)
        if not data.width:
            return pl.DataFrame([*beside, rows.diffs.alias(DIFF)])
        return data.with_columns(*beside, rows.diffs.alias(DIFF))

    def _unparsed(self, found: Sequence[tuple[str, UnparsedRows]]) -> pl.DataFrame:
        """Return rows that can't be read as a side log has them: file, line, column, text, reason, data, times, diff.

        Where a time can't be read the row has that which the run closes last.
        """
        frames = []
        for file, each in found:
            data = self._distinct(each.frame.select(pl.lit(file).alias("file"), pl.all()))
            lanes = zip(self.times.items(), each.times, self._last, strict=True)
            beside = [time_column(name, lane.fill_null(value).to_numpy(), kind) for (name, kind), lane, value in lanes]
            frames.append(data.with_columns(*beside, pl.lit(1, pl.Int64).alias(DIFF)))
        return pl.concat(frames)

    @property
    def _last(self) -> list[int]:
        """The last time that the interval has."""
        lower, upper = self.interval
        return [value - 1 for value in upper[0]] if upper else list(lower[0]) if lower else [0] * len(self.times)

    def _distinct(self, data: pl.DataFrame) -> pl.DataFrame:
        """Return data whose columns have other names than the columns of times and diffs."""
        return data.rename({column: f"{column}_" for column in data.columns if column in {*self.times, DIFF}})


def _unparsed_in(reader: LogReader) -> list[tuple[str, UnparsedRows]]:
    """Return the files of an input with rows that can't be read, each with these."""
    paths = {file.path: reader.listing.path(file) for file in reader.listing.to_read}
    return [(file, reader.unparsed[path]) for file, path in paths.items() if path in reader.unparsed]


MOST = 1_000_000
"""The most updates of a check that are noted; of more only the number is known."""


@dataclass
class NotedUpdates:
    """The updates of one check's collection in a run, from all threads and tasks, as long as there are few."""

    time: Sequence[str]
    """The columns of the log that have the times; the noted diffs are sums over all of them."""
    frames: list[pl.DataFrame] = field(default_factory=list)
    rows: int = 0
    total: int = 0
    """The sum of the diffs, of however many updates."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, frame: pl.DataFrame) -> None:
        """Note updates as a log has them. Threads may call at once."""
        with self._lock:
            self.rows += frame.height
            self.total += int(frame[DIFF].sum())
            if self.rows > MOST:
                self.frames.clear()
            elif frame.height:
                self.frames.append(frame.drop(self.time))

    def and_then(self, later: NotedUpdates) -> NotedUpdates:
        """Return these updates and later ones."""
        rows = self.rows + later.rows
        frames = [] if rows > MOST else [*self.frames, *later.frames]
        return NotedUpdates(self.time, frames, rows, self.total + later.total)

    def skip(self, rows: int, total: int) -> None:
        """Note that there are updates whose records aren't known here, and the sum of their diffs."""
        with self._lock:
            self.rows += MOST + rows
            self.total += total
            self.frames.clear()

    def net(self) -> pl.DataFrame | None:
        """Return the records that the run adds and removes, each with the sum of its diffs, in an order that depends on these alone; None if there are too many."""
        if self.rows > MOST:
            return None
        if not self.frames:
            return pl.DataFrame(schema={DIFF: pl.Int64})
        frame = pl.concat(self.frames)
        columns = [name for name in frame.columns if name != DIFF]
        if not columns:
            return frame.select(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
        summed = frame.group_by(columns, maintain_order=True).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
        return summed.sort([name for name in columns if not summed.schema[name].is_nested()] or [DIFF])


@dataclass
class ReceivedUpdates:
    """The updates that a dry run would add to outputs, in scratch files. Threads may add at once."""

    scratch: Path
    files: dict[str, list[Path]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, updates: pl.DataFrame) -> None:
        """Add updates of an output, as its log would have them."""
        with self._lock:
            files = self.files.setdefault(name, [])
            path = self.scratch / f"{sum(map(len, self.files.values()))}.arrow"
            files.append(path)
        updates.write_ipc(path)

    def scan(self, name: str, columns: Iterable[str], count: str) -> Iterator[pl.LazyFrame]:
        """Yield the updates of an output in these columns, with their diffs in the column `count`."""
        for path in self.files.get(name, ()):
            yield pl.scan_ipc(path).select(*columns, pl.col(DIFF).alias(count))


SHOWN = 100
"""The most updates that are shown of one step, or of one shard."""


def seen(label: str, updates: pl.DataFrame, kinds: Sequence[Type]) -> Iterator[str]:
    """Yield a line for each update, the first few of many; `kinds` are the types of the times, which come last but for the diff."""
    *names, weight = updates.columns[-len(kinds) - 1 :]
    for row in updates.sort(names, maintain_order=True).head(SHOWN).iter_rows(named=True):
        time, diff = tuple(row.pop(name) for name in names), row.pop(weight)
        yield f"{label}: {previewed(row)} @ {format_time(time, list(kinds))} {diff:+d}"
    if updates.height > SHOWN:
        yield f"{label}: and {updates.height - SHOWN} more updates"
