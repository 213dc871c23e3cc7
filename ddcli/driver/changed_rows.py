"""Rows of inputs with other values, in a dry run, as when somebody asks what a higher price in one region would do.

The files of these inputs are read once, and the rows that some change concerns stay in memory. For each change the run takes these back and inserts them with their new values, at
its time. That is exact where the records of an input add up, as each record becomes another one, wherever it comes from. Of rows with keys, the newest row of each key is the key's record,
and its new values are a newer row; keys, and the order among a key's rows, do not change.

Other inputs (snapshots, times of several coordinates) are read again, and what depends on them is built anew: the definition of the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.driver.prepare import RunPlan, prepare
from ddcli.driver.replacement import (
    BEFORE_ALL,
    Replacement,
    is_corrected_by_rows,
    may_emit_ahead,
    newest_rows,
)
from ddcli.engine.operators.upsert import CORRECTS
from ddcli.job.idle_check import is_changed
from ddcli.job.inputs import InputFiles
from ddcli.job.request import run_time
from ddcli.job.sizes import rows_held, rows_read
from ddcli.sources.readers import in_files, open_logs
from ddcli.sources.slices import Corrected, InputSlice
from ddcli.store.log.reader import LogReader
from ddcli.store.log.rows import MOMENT, ORDER, PRESENT, Rows, joined
from ddcli.store.tables.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddcli.driver.prepare import Prepared
    from ddcli.job.request import Request
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.store.log.rows import RowChange
    from ddcli.store.state.entries import Times
    from ddcli.store.state.manifest import Manifest


@dataclass
class ChangedRows(Replacement):
    """The rows of an input that a change may concern, and the change. Its readers have no files: no file replaces another."""

    found: Rows
    change: RowChange

    def rows(self, upper: Times) -> int:
        return 2 * len(self.found.diffs)

    def taken(self, columns: Iterable[str], upper: Times, most: int | None = None) -> InputSlice:
        old = self.found.chosen(self.change.concerns(self.found.frame))
        new = old._replace(frame=self.change.of(old.frame))
        if self.before.log.adds_up:
            both = [Corrected(rows, self.time, sign) for rows, sign in ((old, -1), (new, 1))]
            return InputSlice(both, 2 * len(old.diffs))
        (time,) = self.before.schema.time
        times = pl.DataFrame({time: pl.repeat(self.time[0], new.frame.height, dtype=pl.Int64, eager=True)})
        frame = new.frame
        if self.before.log.lasting:
            frame = frame.with_columns(pl.col(PRESENT) + CORRECTS)
        else:  # rows of the run come later
            frame = frame.with_columns(pl.lit(BEFORE_ALL, pl.Int64).alias(ORDER)).drop(MOMENT)
        return InputSlice((Rows(frame, new.diffs, times),), frame.height)


def find_concerned(request: Request, manifest: Manifest, changes: Mapping[str, Sequence[RowChange]]) -> dict[str, Rows]:
    """Return the rows, by input, that the state has taken in and that one of the changes concerns; of rows with keys the newest of each key.

    Empty where a run can't take in the difference, or where these are more rows than may be in memory.
    """
    most = rows_read(request.asked.resources.memory)
    ready = prepare(request, manifest, most)
    graph = RunPlan(request, manifest, ready.bound).graph
    if not _takes_differences(request, manifest, ready, graph, changes):
        return {}
    scans = graph.scans()
    whole = prepare(request, manifest, most, whole=True, taken=True)
    found = {}
    for name, reader in in_files(whole.readers).items():
        if name in changes and name in scans:
            rows = _concerned(
                reader, tuple(scans[name].schema), changes[name], manifest.upper, request.asked.resources.memory
            )
            if rows is None:
                return {}
            found[name] = rows
    return found


def open_changes(
    request: Request, manifest: Manifest, ready: Prepared, graph: PhysicalGraph
) -> dict[str, Replacement] | None:
    """Return the differences that changes of rows make; None where a run can't take them in."""
    decided = request.decided
    needed = decided.changed.keys() & graph.scans().keys()
    if not needed <= decided.concerned.keys() or any(decided.withdrawn.values()):
        return None
    if not _takes_differences(request, manifest, ready, graph, decided.changed):
        return None
    ((first,),) = manifest.upper
    at = run_time(request.clock, manifest) if request.clock.arrival and decided.closes else first
    none = {name: InputFiles(None, Listing(ready.found[name].listing.root, ())) for name in needed}
    readers = in_files(open_logs(request, manifest, none))
    return {
        name: ChangedRows(reader, reader, (at,), manifest.upper, decided.concerned[name], decided.changed[name])
        for name, reader in readers.items()
    }


def _takes_differences(
    request: Request, manifest: Manifest, ready: Prepared, graph: PhysicalGraph, names: Iterable[str]
) -> bool:
    """Return whether a run can take in the differences of these inputs."""
    unchanged = request.deciding(withdrawn={})
    return (
        len(manifest.upper) == len(manifest.cache["time"]) == 1
        and not is_changed(unchanged, manifest, graph.fingerprint)
        and (request.clock.arrival or may_emit_ahead(request, manifest, graph))
        and all(
            isinstance(reader := ready.readers[name], LogReader)
            and not reader.log.tables
            and not reader.log.truncating()
            and is_corrected_by_rows(request, reader)
            for name in names
        )
    )


def _concerned(
    reader: LogReader, columns: Sequence[str], changes: Sequence[RowChange], upper: Times, memory: int
) -> Rows | None:
    """Return the rows of an input that one of the changes concerns, of rows with keys the newest of each key; None where they are too many for the memory."""
    columns = tuple(dict.fromkeys((*columns, *(name for each in changes for name in each.columns))))
    left = rows_held(memory)
    found = [*_some(reader, columns, changes, upper, rows_read(memory), left)]
    if not found or found[-1] is None:
        return None
    rows = joined([each for each in found if each is not None])
    if not reader.has_latest_rows:
        return rows
    on = list(reader.log.key)
    keys = rows.frame.select(on).unique()
    every = [rows.frame.clear().with_columns(rows.times.to_series().clear().cast(pl.Int64).alias(MOMENT))]
    for part in reader.take(columns, None, upper, rows_read(memory)).slices:
        read = part.read()
        frame = read.frame.with_columns(read.times.to_series().cast(pl.Int64).alias(MOMENT))
        every.append(frame.join(keys, on=on, how="semi", nulls_equal=True))
    newest = newest_rows(pl.concat(every), reader.log)
    times = newest.select(pl.col(MOMENT).alias(rows.times.columns[0]))
    return Rows(newest, pl.repeat(1, newest.height, dtype=pl.Int64, eager=True), times)


def _some(
    reader: LogReader, columns: Sequence[str], changes: Sequence[RowChange], upper: Times, most: int, left: int
) -> Iterator[Rows | None]:
    """Yield the rows that one of the changes concerns; None after too many."""
    for part in reader.take(columns, None, upper, most).slices:
        rows = part.read()
        concerned = pl.repeat(value=False, n=rows.frame.height, dtype=pl.Boolean, eager=True)
        for each in changes:
            concerned |= each.concerns(rows.frame)
        chosen = rows.chosen(concerned)
        left -= len(chosen.diffs)
        if left < 0:
            yield None
            return
        yield chosen
