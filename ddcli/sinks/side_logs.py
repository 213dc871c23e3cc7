"""The updates of a run beside its outputs: side logs of rows that it could not take as they are, which the commit publishes, and updates that it shows, judges or hands out.

The latter are the updates of an `inspect`, of checks, which decide whether there is a commit, and of a dry run's outputs.
"""

from __future__ import annotations

import io
import json
import threading
from dataclasses import field
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
from ddcli.store.log.progress import tags_metadata
from ddcli.store.log.writer import frontier_name, time_column
from ddcli.store.state.contents import UPDATES, ours
from ddcli.store.state.document import UPDATES as OF_LOG
from ddcli.store.tables.files import READ_ERRORS
from ddcli.store.time_text import format_time

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


DIFF = "diff"
QUOTES = ("error", "record", "text")
"""The columns of side logs that quote values of rows."""
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
    _frames: list[pl.DataFrame] = field(default_factory=list)
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
            self._frames.append(frame)
            self.rows += int((updates[:, -1] > 0).sum())

    @property
    def frames(self) -> Sequence[pl.DataFrame]:
        """The records so far, as frames for `hear`."""
        return self._frames

    def take_in(self, frames: Sequence[pl.DataFrame]) -> None:
        """Add the records of a task's log."""
        self._frames += frames
        self.rows += sum(int((frame[DIFF] > 0).sum()) for frame in frames)

    def add_rebuilt(self, frontier: Frontier) -> Callable[[np.ndarray, Layout, Pool, Sequence[str]], None]:
        """Return a function that adds updates of a pipeline that changed: they fail from the frontier on, at which it changes."""

        def add(updates: np.ndarray, layout: Layout, pool: Pool, why: Sequence[str]) -> None:
            opened = updates.copy()
            opened[:, layout.width : -1] = frontier.as_time()
            self.add(opened, layout, pool, why)

        return add

    def write(
        self, transaction: Transaction, directory: Path, interval: tuple[Times | None, Times], called: str = ""
    ) -> None:
        """Add the records to a transaction; `called` is added to the name of a file that is not the only one of its interval."""
        if self._frames:
            write(transaction, directory, [pl.concat(self._frames)], self.times, interval, called)

    def add_missing(
        self, transaction: Transaction, directory: Path, interval: tuple[Times | None, Times], called: str
    ) -> None:
        """Add to a transaction the records that fail more often than the log has them, after some or all failures were computed anew."""
        if not self._frames:
            return
        record = ["error", "record"]
        logged = pl.concat(
            [*(frame.select(*record, DIFF) for frame in self._written(transaction, directory))]
            or [self._frames[0].clear()]
        )
        held = logged.group_by(record).agg(pl.col(DIFF).sum().alias("held"))
        now = pl.concat(self._frames).group_by([*record, *self.times]).agg(pl.col(DIFF).sum())
        missing = pl.col(DIFF) - pl.col("held").fill_null(0)
        found = now.join(held, on=record, how="left").with_columns(missing.alias(DIFF)).filter(pl.col(DIFF) > 0)
        if found.height:
            write(transaction, directory, [found.drop("held")], self.times, interval, called)

    def correct(
        self,
        transaction: Transaction,
        directory: Path,
        frontier: Frontier,
        interval: tuple[Times | None, Times],
        called: str,
    ) -> None:
        """Add to a transaction the difference between all records that fail now and those in the log, at a frontier, or after it where they are."""
        times = [*zip(self.times.items(), frontier.as_time(), strict=True)]
        before = [
            frame.with_columns(
                -pl.col(DIFF),
                *(
                    pl.max_horizontal(name, time_column(name, np.full(frame.height, at), kind))
                    for (name, kind), at in times
                ),
            )
            for frame in self._written(transaction, directory)
        ]
        if frames := [*before, *self._frames]:
            write(transaction, directory, [pl.concat(frames, how="diagonal_relaxed")], self.times, interval, called)

    def _written(self, transaction: Transaction, directory: Path) -> list[pl.DataFrame]:
        return _written(transaction, directory, self.times, error=pl.String(), record=pl.String())


def _written(transaction: Transaction, directory: Path, times: Schema, **others: pl.DataType) -> list[pl.DataFrame]:
    """Return the updates of a side log, whose files have no checksum in a manifest. A file without these columns is refused: StateError.

    Earlier commits that become one with the transaction's count, too.
    """
    known = {name: time_column(name, np.empty(0, np.int64), kind).dtype for name, kind in times.items()}
    columns = known | others | {DIFF: pl.Int64()}
    frames = []
    waiting = [source for target, source in transaction.state.waiting.items() if target.parent == real(directory)]
    for path in [*_files(directory), *waiting]:
        damaged = StateError("the file is not one of a log that `dd` writes", place=str(path), hint=DAMAGED_LOG)
        with reading(path) as file:
            try:
                frame = pl.read_parquet(file, glob=False, hive_partitioning=False)
            except READ_ERRORS:
                raise damaged from None
        if any(frame.schema.get(name) != kind for name, kind in columns.items()):
            raise damaged
        frames.append(frame)
    return frames


def rows_in(directory: Path) -> int:
    """Return the number of rows that a side log holds now; one that does not exist holds none."""
    found = 0
    for path in _files(directory):
        with reading(path) as file:
            found += int(pl.read_parquet(file, columns=[DIFF])[DIFF].sum())
    return found


def _files(directory: Path) -> list[Path]:
    """Return the files of a side log."""
    return ours(directory, OF_LOG)


def put_aside(
    request: Request,
    transaction: Transaction,
    taken: Mapping[str, ConsumedRange],
    times: Schema,
    interval: tuple[Times | None, Times],
    called: str,
) -> None:
    """Write the late and the unreadable rows of inputs that are put aside, as updates, one file for each input; a slice at a time is in memory.

    Such a log has no progress: later rows may have any time.
    """
    # A run with nothing but late rows closes no time: there may be several such.
    called = f"-change{transaction.number}" if interval[0] == interval[1] else called
    for name, found in taken.items():
        frames = (_as_updates(piece, times) for piece in found.put_aside)
        write(transaction, late_directory(request, name), frames, times, interval, called)
        if found.unparsed:
            frame = _unparsed(found.unparsed, times, interval)
            write(transaction, unparsed_below(error_directory(request), name), [frame], times, interval, called)


def _unparsed(
    found: Sequence[tuple[str, UnparsedRows]], times: Schema, interval: tuple[Times | None, Times]
) -> pl.DataFrame:
    """Return rows that can't be read as a side log has them: file, line, column, text, reason, data, times, diff.

    Where a time can't be read the row has that which the run closes last.
    """
    frames = []
    for file, each in found:
        named = each.frame.select(pl.lit(file).alias("file"), pl.all())
        data = _distinct(named, {*times, DIFF})
        lanes = zip(times.items(), each.times, _last(interval, len(times)), strict=True)
        beside = [time_column(name, lane.fill_null(value).to_numpy(), kind) for (name, kind), lane, value in lanes]
        frames.append(data.with_columns(*beside, pl.lit(1, pl.Int64).alias(DIFF)))
    return pl.concat(frames)


def _last(interval: tuple[Times | None, Times], width: int) -> list[int]:
    """Return the last time that an interval has."""
    lower, upper = interval
    return [value - 1 for value in upper[0]] if upper else list(lower[0]) if lower else [0] * width


def replace_side_logs(
    request: Request,
    transaction: Transaction,
    errors: ErrorLog,
    readers: Mapping[str, LogReader],
    times: Schema,
    upper: Times,
    called: str,
) -> None:
    """Write the side logs anew, in the place of the files that they have: the records on which expressions fail now, and of inputs the rows that were
    late or can't be read, without those that are forgotten.
    """
    forgetting = request.decided.forgetting
    assert forgetting is not None, "else they are corrected"
    for directory in dict.fromkeys(request.side_logs):
        for path in _files(directory):
            transaction.retire(path)
            forgetting.note(path, fs(path).size(), None, 0)

    def add(directory: Path, frames: Iterable[pl.DataFrame]) -> None:
        if (made := write(transaction, directory, frames, times, (None, upper), called)) is not None:
            forgetting.note(None, 0, *made)

    if errors.frames:
        add(error_directory(request), [pl.concat(errors.frames)])
    for name, reader in readers.items():
        condition = forgetting.conditions.get(name)
        add(late_directory(request, name), (_as_updates(piece, times) for piece in reader.put_aside()))
        unparsed = [
            (file.path, found if condition is None else found.drop(condition)[0])
            for file in reader.listing.to_read
            if (found := reader.unparsed.get(reader.listing.path(file))) is not None
        ]
        if unparsed:
            add(unparsed_below(error_directory(request), name), [_unparsed(unparsed, times, (None, upper))])


@frozen
class Correction:
    """The correction of inputs' side logs: the difference between the rows that belong in them now and those that they have.

    Holds both in memory: such rows are few.
    """

    request: Request
    transaction: Transaction
    times: Schema
    interval: tuple[Times | None, Times]
    called: str

    def of_late(self, name: str, reader: LogReader) -> None:
        """Correct the log of an input's late rows."""
        found = (_as_updates(piece, self.times) for piece in reader.put_aside())
        directory = late_directory(self.request, name)
        if (whole := self._difference(directory, found)) is not None:
            self._write(directory, whole)

    def of_unparsed(self, name: str, reader: LogReader) -> None:
        """Correct the log of an input's rows that can't be read, at one time."""
        listing, directory = reader.listing, unparsed_below(error_directory(self.request), name)
        paths = {file.path: listing.path(file) for file in listing.to_read}
        found = [(file, reader.unparsed[path]) for file, path in paths.items() if path in reader.unparsed]
        frames = [_unparsed(found, self.times, self.interval)] if found else []
        if (whole := self._difference(directory, frames)) is not None:
            last = zip(self.times.items(), _last(self.interval, len(self.times)), strict=True)
            at = [time_column(column, np.full(whole.height, value), kind) for (column, kind), value in last]
            self._write(directory, whole.with_columns(at))

    def _write(self, directory: Path, whole: pl.DataFrame) -> None:
        write(self.transaction, directory, [whole], self.times, self.interval, self.called)

    def _difference(self, directory: Path, found: Iterable[pl.DataFrame]) -> pl.DataFrame | None:
        """Return the updates that turn a side log into the one that was found, None where neither has any."""
        written = _written(self.transaction, directory, self.times)
        frames = [*(frame.with_columns(-pl.col(DIFF)) for frame in written), *found]
        return pl.concat(frames, how="diagonal_relaxed") if frames else None


def _as_updates(piece: LogSlice, times: Schema) -> pl.DataFrame:
    """Return late rows as a side log has them: data, times, diff."""
    rows = piece.read()
    lanes = zip(times.items(), piece.reader.schema.time.values(), rows.times, strict=True)
    beside = [time_column(column, lane.to_numpy(), kind) for (column, _), kind, lane in lanes]
    taken_names = {*times, DIFF}
    own = rows.frame.select([column for column in rows.frame.columns if column in piece.reader.schema.columns])
    data = _distinct(own, taken_names)
    if not data.width:
        return pl.DataFrame([*beside, rows.diffs.alias(DIFF)])
    return data.with_columns(*beside, rows.diffs.alias(DIFF))


def _distinct(data: pl.DataFrame, taken_names: set[str]) -> pl.DataFrame:
    """Return data without columns that have one of these names."""
    return data.rename({column: f"{column}_" for column in data.columns if column in taken_names})


def write(
    transaction: Transaction,
    directory: Path,
    frames: Iterable[pl.DataFrame],
    times: Schema,
    interval: tuple[Times | None, Times],
    called: str = "",
) -> tuple[Path, int] | None:
    """Add updates to a side log as one file; return its path and size. Each frame has a record at most once for a time, sorted by time."""
    names = "-".join(frontier_name(bound, times) for bound in interval)
    path = directory / f"{UPDATES}{names}{called}.parquet"
    file: JointFile | None = None
    for frame in frames:
        others = [column for column in frame.columns if column != DIFF]
        updates = frame.group_by(others).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0).sort([*times, *others])
        if updates.is_empty():
            continue
        data = io.BytesIO()
        tags = {name: each for name, each in privacy.quoted(QUOTES).items() if name in updates.columns}
        metadata = tags_metadata(tags, transaction.state.identity)
        updates.write_parquet(data, compression="zstd", metadata=metadata)
        file = file or transaction.join_output(path)
        file.add(data.getvalue())
    return None if file is None else (path, file.finish().size)


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
            path = self.scratch / f"{len(self.files)}-{len(files)}.arrow"
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
