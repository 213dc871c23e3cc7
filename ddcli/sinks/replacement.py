"""The files of a log whose history has changed: those with other rows are replaced, the rest stay as they are.

So are files of inputs that a run has archived, and of mirrors of tables, that hold forgotten rows. Files of mirrors are replaced with the commit that
forgets the rows, archived ones and those in an object store before it. A process that dies in between leaves files without the rows, and a state that
still has them: repeated, the command takes the files as they are. Until then a run that would read them again refuses them.
"""

from __future__ import annotations

import io
import operator
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.lanes import encode
from ddcli.engine.rounds import between
from ddcli.engine.times import Frontier
from ddcli.sinks.outputs import OutputWriter
from ddcli.store.batch.correction import records_of
from ddcli.store.files.access import fs, reading, relative
from ddcli.store.files.gate import checksum
from ddcli.store.files.objects import ObjectPath
from ddcli.store.log.joint_files import NAME as SUMMED
from ddcli.store.log.joint_files import read_summary
from ddcli.store.log.writer import DIFF, frame_bytes, output_frame
from ddcli.store.parquet.row_groups import footer_in
from ddcli.store.state.entries import FileEntry, OutputEntry, log_identity
from ddcli.store.tables.listing import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Layout, Matrix
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.job.corrections import ErasureRequest
    from ddcli.store.log.joint_files import Summary
    from ddcli.store.log.reader import LogReader
    from ddcli.store.state.entries import InputEntry, Times
    from ddcli.store.state.transaction import Transaction


PLAIN = frozenset(
    ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string", "date", "datetime", "bool")
)
"""The kinds of columns that find rows: two values are equal in polars exactly if they are in lanes."""


def spans(files: Sequence[FileEntry]) -> Iterator[tuple[Sequence[FileEntry], Frontier | None, Frontier]]:
    """Yield the files of a log in their order, each with the frontiers between which its times are; together they have all times up to the last. None: the beginning.

    The files of a commit's folder have one span. A file that corrects earlier ones, which have its times already, has none of its own.
    """
    reached: Frontier | None = None
    for _, group in groupby(files, lambda file: file.name.rpartition("/")[0] or file.name):
        together = [*group]
        end = Frontier(together[0].upper)
        yield together, reached, end
        reached = end if reached is None else reached.join(end)


def has_times(lower: Frontier | None, upper: Frontier) -> bool:
    """Return whether there is a time between two frontiers."""
    return lower is None or not upper.dominates(lower)


def end_of(files: Sequence[FileEntry]) -> Times | None:
    """Return the frontier that the files of a log reach together; None without files."""
    return reduce(Frontier.join, [Frontier(file.upper) for file in files]).elements if files else None


def rows_between(
    path: Path, time: Iterable[str], lower: Iterable[Time] | None, upper: Iterable[Time] = ()
) -> pl.DataFrame:
    """Return the rows of a log's file at times at or after `lower` (None: from the beginning) and not at or after `upper`."""
    columns = [pl.col(name).to_physical().cast(pl.Int64) for name in time]

    def reached(frontier: Iterable[Time]) -> pl.Expr:
        each = [pl.all_horizontal(map(operator.ge, columns, element)) for element in frontier]
        return pl.any_horizontal(each) if each else pl.lit(value=False)

    chosen = ~reached(upper) if lower is None else ~reached(upper) & reached(lower)
    with reading(path) as file:
        return pl.scan_parquet(file, glob=False, hive_partitioning=False).filter(chosen).collect()


def summed_up(rows: pl.DataFrame, time: str, horizon: int) -> pl.DataFrame:
    """Return rows of a log; rows up to a time are summed up as of then."""
    at = pl.col(time).to_physical().cast(pl.Int64)
    kind, diff = rows.schema[time], rows.schema[DIFF]
    moved = pl.when(at < horizon).then(pl.lit(horizon)).otherwise(at)
    day = moved.cast(pl.Int32) if kind == pl.Date else moved
    by = [name for name in rows.columns if name != DIFF]
    sums = rows.with_columns(day.cast(kind).alias(time)).group_by(by, maintain_order=True).agg(pl.col(DIFF).sum())
    return sums.filter(pl.col(DIFF) != 0).select(pl.col(by), pl.col(DIFF).cast(diff)).select(rows.columns)


def replaced(path: Path, rows: pl.DataFrame) -> pl.DataFrame | None:
    """Return the new content of a log's file that is to have just these rows; None if it has them already, in any order.

    Rows that it has already stay in their order, which may be the reason that it is small.
    """
    with reading(path) as file:
        before = pl.read_parquet(file, glob=False, hive_partitioning=False)
    if before.schema != rows.schema or any(kind.is_nested() for kind in rows.dtypes):
        return None if before.equals(rows) else rows
    left = before.join(rows, on=rows.columns, how="semi", nulls_equal=True, maintain_order="left")
    if left.height == before.height == rows.height:
        return None
    added = rows.join(before, on=rows.columns, how="anti", nulls_equal=True, maintain_order="left")
    return pl.concat([left, added]) if left.height + added.height == rows.height else rows


class Uncorrectable(Exception):
    """A file of a log lacks columns that the log has by now, or two have the same update."""


class LogFile:
    """A file of an output's log, of data columns of a `layout` and times."""

    def __init__(self, path: Path, layout: Layout, pool: Pool, time: Schema) -> None:
        self._path, self._layout, self._pool, self._time = path, layout, pool, time
        self._width = layout.width + len(time) + 1
        self._found: tuple[pl.DataFrame, pl.Series] | None = None

    def rows_of(self, records: pl.DataFrame, columns: Sequence[str]) -> Matrix:
        """Return the updates of some records, and perhaps others, found by these of their columns; reads all columns of a file only if it has such. Raises Uncorrectable."""
        plain = [name for name in columns if self._layout.schema[name].kind in PLAIN]
        with reading(self._path) as file:
            scan = pl.scan_parquet(file, glob=False, hive_partitioning=False)
            if not scan.collect_schema().keys() >= self._layout.schema.keys():
                raise Uncorrectable
            found = pl.Series(dtype=pl.UInt32)
            if plain:
                numbered = scan.select(plain).with_row_index("\0row")
                wanted = records.lazy().select(plain).unique()
                found = (
                    numbered.join(wanted, on=plain, how="semi", nulls_equal=True).select("\0row").collect().to_series()
                )
                if found.is_empty():
                    return np.empty((0, self._width), np.int64)
            frame = scan.collect()
        self._found = frame, found if plain else pl.arange(frame.height, dtype=pl.UInt32, eager=True)
        return self._matrix(frame[self._found[1]])

    def with_rows(self, rows: Matrix) -> pl.DataFrame:
        """Return the content of the file with these updates in the place of those that were found; the others stay in their order."""
        added = output_frame(rows, self._layout, self._pool, self._time)
        if self._found is None:
            with reading(self._path) as file:
                return pl.concat([pl.read_parquet(file, glob=False, hive_partitioning=False), added])
        frame, found = self._found
        kept = np.ones(frame.height, np.bool_)
        kept[found.to_numpy()] = False
        return pl.concat([frame.filter(pl.Series(kept)), added])

    def _matrix(self, frame: pl.DataFrame) -> Matrix:
        matrix = encode(frame, self._layout, self._pool, np.empty((frame.height, self._width), np.int64))
        for at, column in enumerate((*self._time, DIFF), start=self._layout.width):
            matrix[:, at] = frame[column].to_physical().cast(pl.Int64).to_numpy()
        return kernels.consolidate(matrix)


def divided(updates: Matrix, there: Matrix, others: Sequence[Matrix]) -> tuple[Matrix, Matrix]:
    """Return the updates whose records a file has at their times, and the rest. Raises Uncorrectable where another file of its commit has some of these, too."""
    own = kernels.distinct_keys(there, updates.shape[1] - 1)
    if any(len(records_of(other, own)) for other in others):
        raise Uncorrectable
    found = records_of(updates, own)
    return found, kernels.difference(updates, found)


def replace_archived(
    forgetting: ErasureRequest,
    transaction: Transaction,
    readers: Mapping[str, LogReader],
    inputs: Mapping[str, InputEntry],
) -> dict[str, InputEntry]:
    """Replace archived files, and files of mirrors, by files without the forgotten rows; return the inputs that have such files.

    Raises InputError for a file of a kind from which no rows can be removed.
    """
    found = {}
    store = transaction.state.files
    for name, archived in forgetting.archived.items():
        files = {file.key: file for file in inputs[name].files}
        for file, numbers in archived:
            path = readers[name].listing.path(file)
            data = readers[name].without_rows(path, numbers)
            mark = fingerprint_of(io.BytesIO(data), len(data))
            if isinstance(path, ObjectPath):
                # Of an input its tag counts, in the archive its mark.
                is_input = path == readers[name].listing.root / file.path
                marked = None if is_input else path.marked(mark)
                written = store.do("write", path, partial(path.put, data, attributes=marked))
                mark = written["e_tag"] if is_input else mark
            elif name in forgetting.mirrored:
                transaction.add_output(path, data)
            else:
                store.put(path, data, transaction.number)
            files[file.key] = replace(files[file.key], size=len(data), fingerprint=mark)
            forgetting.note(path, file.size, path, len(data))
        found[name] = replace(inputs[name], files=tuple(files.values()))
    return found


class CorrectingWriter(OutputWriter):
    """The outputs of a run that also writes files of logs again, as some of their rows are forgotten."""

    def _without_rows(self, name: str, forgetting: ErasureRequest) -> list[FileEntry]:
        """Write a file without rows in place of a log all of whose rows are forgotten."""
        self._files.pop(name, None)
        self._write_columns(name)
        files = self._files[name]
        forgetting.note(None, 0, self.request.outputs[name] / files[0].name, files[0].size)
        return files

    def replace(self, name: str, known: OutputEntry | None, meaning: str, forgetting: ErasureRequest) -> OutputEntry:
        """Write the waiting updates, a whole log, in place of the `known` one; files that already have the rows of their times stay.

        A file that sums up older ones keeps its horizon, and no longer stands for other files. If a file is replaced, the log gets another identity, so that its readers begin anew.
        """
        self._finish(name)
        directory, whole = self.request.outputs[name], self._path(name)
        files: list[FileEntry] = []
        before = list(known.files) if known else []
        waiting = self._commit.withdraw_file(whole) if name in self._files and before else None
        each = [(old, lower, upper, not at) for group, lower, upper in spans(before) for at, old in enumerate(group)]
        for old, lower, upper, first in each:
            place, own = directory / old.name, first and has_times(lower, upper)
            rows = rows_between(waiting, self.time, lower, upper) if waiting and own else None
            summary = read_summary(place) if SUMMED.fullmatch(old.name) else None
            if summary is not None:
                rows = rows_between(place, self.time, ()) if rows is None else rows
                rows = summed_up(rows, next(iter(self.time)), *summary.horizon)
            now: pl.DataFrame | None = pl.DataFrame() if rows is None else rows
            if not old.rows and not (rows is not None and rows.height) and fs(place).exists():
                now = None  # it has the columns of a log without updates
            elif rows is not None and (rows.height or summary) and fs(place).exists():
                now = replaced(place, rows)
            files += self._revised(place, old, now, summary, forgetting)
        (written,) = self._files.get(name, [None])
        added = None if waiting else written
        if waiting and written:
            last = end_of(before)
            rows = rows_between(waiting, self.time, last)
            self._commit.state.files.remove(waiting)
            added = self._part(whole, rows, replace(written, lower=last)) if rows.height else None
        if added:
            files.append(added)
            forgetting.note(None, 0, directory / added.name, added.size)
        files = files or self._without_rows(name, forgetting)
        horizon = self.horizons.get(name)
        log = known.log if known and files == before else log_identity(name, self._commit.number)
        self.progress(directory, horizon, name, log)
        schema = {column: str(kind) for column, kind in self.layouts[name].schema.items()}
        path, contents = relative(directory, self.request.state), self._contents(name, None)
        return OutputEntry(path, schema, files, meaning, log, horizon, contents)

    def correct(
        self,
        name: str,
        known: OutputEntry,
        updates: Matrix,
        pool: Pool,
        forgetting: ErasureRequest,
        columns: Sequence[str] = (),
    ) -> tuple[OutputEntry, list[tuple[Matrix, Matrix]], Frontier]:
        """Add `updates` at closed times to the files of a log that have these times, and write only these files again.

        What has later times than all files gets a file of its own. Return the log's entry, what each file had and has of the records of the updates, and perhaps of others, and the frontier to which the
        log's times have been advanced. `columns` are enough to find few records; default: all.
        """
        directory, layout, width = self.request.outputs[name], self.layouts[name], self.layouts[name].width
        files: list[FileEntry] = []
        found: list[tuple[Matrix, Matrix]] = []
        horizon = Frontier()
        records, times = output_frame(updates, layout, pool, self.time), updates[:, width:-1]
        for group, lower, upper in spans(known.files):
            summary = read_summary(directory / group[0].name) if SUMMED.fullmatch(group[0].name) else None
            own = updates[between(times, lower, upper)]
            if summary is not None:
                horizon = Frontier([summary.horizon])
                np.maximum(own[:, width], summary.horizon[0], out=own[:, width])
            met: list[Matrix] = []
            for old in group:
                place = directory / old.name
                file = LogFile(place, layout, pool, self.time)
                before = file.rows_of(records, columns or layout.names)
                some, rest = divided(own, before, met)
                some, own = (own, rest[:0]) if old is group[-1] else (some, rest)
                after = kernels.consolidate(np.concatenate([before, some]))
                met.append(before)
                found.append((before, after))
                rows = None if np.array_equal(before, after) else file.with_rows(after)
                files += self._revised(place, old, rows, summary, forgetting)
        last = end_of(known.files)
        later = updates[between(times, last, ())]
        if len(later):
            number, rows = self._commit.number, output_frame(later, layout, pool, self.time)
            like = FileEntry("", 0, 0, "", last, self.upper, first=number, commit=number)
            files.append(self._part(self._path(name), rows, like))
            found.append((later[:0], later))
            forgetting.note(None, 0, directory / files[-1].name, files[-1].size)
        files = files or self._without_rows(name, forgetting)
        if files == [*known.files]:
            return known, found, horizon
        log = log_identity(name, self._commit.number)
        self.progress(directory, known.horizon, name, log)
        self._hash(name, updates)
        return replace(known, files=files, log=log, contents=self._contents(name, known)), found, horizon

    def _revised(
        self, path: Path, old: FileEntry, rows: pl.DataFrame | None, summary: Summary | None, forgetting: ErasureRequest
    ) -> list[FileEntry]:
        """Return the entry of a log's file that is to have these rows, or stays as it is (None); none for a file without rows, which goes unless it has a summary."""
        if rows is None:
            forgetting.kept.append(old)
            return [old]
        if not (rows.height or summary):
            if fs(path).exists():
                self._commit.retire(path)
            forgetting.note(path, old.size, None, 0)
            return []
        entry = self._part(path, rows, old, summary and summary._replace(parts=()).metadata())
        forgetting.note(path, old.size, path, entry.size)
        return [entry]

    def _part(
        self, path: Path, rows: pl.DataFrame, like: FileEntry, metadata: dict[str, str] | None = None
    ) -> FileEntry:
        """Write some of a log's rows as a file of its own, of the same times and commits as another; return its entry."""
        data = frame_bytes(rows, self.time, metadata)
        written = self._commit.add_output(path, data)
        return replace(
            like,
            name=like.name or path.name,  # the name of a folder's file has the folder's
            rows=rows.height,
            size=written.size,
            checksum=written.checksum,
            footer=checksum(footer_in(data)),
        )
