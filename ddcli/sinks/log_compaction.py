"""The compaction of an output's log: one file replaces the oldest ones, with their contents as of the last of their times.

Updates that consumers of the log, or readers in other pipelines, have not taken stay as they are, up to a bound: a claimant that is further
behind is passed, which is reported, and begins anew.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine.times import BEYOND
from ddcli.engine.trace import policy
from ddcli.errors import EngineError, InputError, StateError, UsageError, first_line
from ddcli.job.inputs import find_time
from ddcli.job.request import read_request
from ddcli.job.summary import ClaimSummary
from ddcli.sources.change_log import DIFF, LATEST, ChangeLog
from ddcli.store.batch.checked_files import check_bytes
from ddcli.store.files.access import locate, real
from ddcli.store.files.gate import INVISIBLE, checksum
from ddcli.store.formats.base import Updates
from ddcli.store.log.joint_files import Part, Summary, read_summary
from ddcli.store.log.writer import file_name, parquet_bytes, time_column
from ddcli.store.parquet.row_groups import footer_in
from ddcli.store.state.consumers import claimants, is_summed
from ddcli.store.state.directory import State
from ddcli.store.state.entries import FileEntry
from ddcli.store.state.outputs import Owner, output_paths, read_owned, same_outputs, write_progress
from ddcli.store.state.upkeep import manifest_of, written_to
from ddcli.store.tables.listing import mark_of
from ddcli.store.texts import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import polars as pl

    from ddcli.expressions.types import Schema
    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.consumers import Claimant
    from ddcli.store.state.entries import OutputEntry, Times
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction


FILES = 8
"""Old files of a log from which on they are summed up: a commit of its own."""


@frozen
class SummedUp:
    """The result of a log's compaction: how many files and rows became one file, and of how many rows; the horizon as people write it."""

    output: str
    path: str
    horizon: str | None = None
    files: int = 0
    rows_before: int = 0
    bytes_before: int = 0
    rows: int = 0
    bytes: int = 0
    claims: tuple[ClaimSummary, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def compact(
    target: str,
    base: Path,
    before: str | None = None,
    *,
    pass_claims: bool = False,
    if_locked: IfLocked = "fail",
    dry: bool = False,
) -> list[SummedUp]:
    """Sum up the updates before a time, as a person writes it, in the log at `target`, or in all logs of the pipeline file `target`.

    A `dry` one takes no lock and writes nothing.
    """
    directory, written, names = _found(target, base)
    manifest = manifest_of(directory)
    time = find_time(manifest)
    bound = None if before is None else parse_time(before, time, "--before", "log's")[0]
    unclaimed = BEYOND if pass_claims else None
    if dry:
        return _summed_up(directory, manifest, names, None, before=bound, unclaimed=unclaimed, pays=_are_several)[0]
    with State.open(directory, written_to(directory, manifest, written), written=written, if_locked=if_locked) as state:
        return sum_up(state, names, bound, unclaimed=unclaimed)


def _found(target: str, base: Path) -> tuple[Path, list[Path], list[str]]:
    """Return the state that writes the logs, the directories that are written to, and the names of the outputs."""
    path = locate(base, target)
    if path.suffix in (".yaml", ".yml"):
        request = read_request(Path(path))
        manifest = manifest_of(request.state)
        return request.state, request.written, [*same_outputs(request.state, manifest, request.outputs).values()]
    path = real(path)
    _, owner = read_owned(path)
    hint = "name the directory of an output, as `dd state ls` lists them, or a pipeline file"
    if owner is None:
        raise InputError("this is not an output of a pipeline", place=str(path), hint=hint)
    directory = real(locate(path, owner.path))
    manifest = manifest_of(directory)
    names = [name for name, each in output_paths(directory, manifest).items() if real(each) == path]
    if manifest.identity != owner.state or not names:
        raise StateError(f"the output is not of the state at '{directory}'", place=str(path), hint=hint)
    return directory, [path], names


def _are_several(files: Sequence[FileEntry]) -> bool:
    return len(files) > 1


def pays(files: Sequence[FileEntry]) -> bool:
    """Return whether old files of a log are worth summing up: there are `FILES` since the last sum, and they are more than half as large as it.

    So each byte of the log is written again a few times in all.
    """
    summed = sum(file.size for file in files if is_summed(file))
    others = [file.size for file in files if not is_summed(file)]
    return len(others) >= FILES and policy.joins(summed, sum(others), policy.BOUNDLESS)


def sum_up(
    state: State,
    names: Iterable[str],
    before: int | None = None,
    *,
    unclaimed: int | None = None,
    pays: Callable[[Sequence[FileEntry]], bool] = _are_several,
) -> list[SummedUp]:
    """Sum up the updates before a time (None: all at closed times) of these outputs, and commit that; return the result for each.

    Updates before the time `unclaimed` are summed up even if a claimant lacks them. A log for whose old files it doesn't pay is left out. Holds the contents of one log in memory.
    The state then has a new manifest.
    """
    manifest = state.manifest
    assert manifest is not None, "a state with outputs has a manifest"
    with state.begin() as transaction:
        found = _summed_up(state.directory, manifest, names, transaction, before=before, unclaimed=unclaimed, pays=pays)
        done, outputs = found
        if outputs != manifest.outputs:
            transaction.commit(replace(manifest, outputs=outputs))
    return done


def _summed_up(
    directory: Path,
    manifest: Manifest,
    names: Iterable[str],
    transaction: Transaction | None,
    *,
    before: int | None,
    unclaimed: int | None,
    pays: Callable[[Sequence[FileEntry]], bool],
) -> tuple[list[SummedUp], dict[str, OutputEntry]]:
    """Return the result for each output, and the outputs with the files that the transaction then has; without one nothing is written."""
    if len(manifest.upper and manifest.upper[0]) > 1:
        raise UsageError("a log whose times have several coordinates is not summed up", place=str(directory))
    paths = {name: real(path) for name, path in output_paths(directory, manifest).items()}
    done, outputs = [], dict(manifest.outputs)
    upper = _least(*(time for (time,) in manifest.upper))
    for name in names:
        output = outputs[name]
        old = _Old(manifest, name, paths[name], transaction, pays)
        claims = claimants(directory, output.log, output.files)
        bound = _least(before, upper)
        read = _least(bound, *(each.position for each in claims if each.kind == "reader"))
        files = old.closed(old.old_files(bound, claims), read)
        if unclaimed is not None and len(passing := old.old_files(_least(bound, unclaimed))) > len(files):
            files = max(files, old.closed(passing, _least(bound, unclaimed)), key=len)
        files = files if pays(files) else ()
        held = old.old_files(bound)[len(files) :]
        length = None if upper is None or unclaimed is None else upper - unclaimed
        reported = old.reported(claims, held if pays(held) else (), files, length)
        if not files:
            done.append(SummedUp(name, str(paths[name]), claims=reported))
            continue
        entry, report = old.summed(files)
        done.append(replace(report, claims=reported))
        outputs[name] = replace(outputs[name], files=(entry, *[*outputs[name].files][len(files) :]))
    return done, outputs


def _least(*bounds: int | None) -> int | None:
    """Return the least of some times; None, and a value beyond all times, bounds nothing."""
    return min((each for each in bounds if each is not None and each < BEYOND), default=None)


@frozen
class _Old:
    """The old part of an output's log, and the transaction that writes another file in its place: None for a dry run."""

    manifest: Manifest
    name: str
    path: Path
    transaction: Transaction | None
    pays: Callable[[Sequence[FileEntry]], bool]

    @property
    def output(self) -> OutputEntry:
        return self.manifest.outputs[self.name]

    @property
    def time(self) -> Schema:
        return find_time(self.manifest)

    def old_files(self, bound: int | None, claims: Sequence[Claimant] = ()) -> Sequence[FileEntry]:
        """Return the first files, before a bound up to which none of these lacks anything."""
        found: list[FileEntry] = []
        for file in self.output.files:
            beyond = bound is not None and (not file.upper or file.upper[0][0] > bound)
            if beyond or any(each.lacks(file) for each in claims):
                break
            found.append(file)
        return found

    def closed(self, files: Sequence[FileEntry], bound: int | None) -> Sequence[FileEntry]:
        """Return the first of some files, those with times before a bound; all of them where it doesn't pay to look."""
        found = [*files]
        while self.pays(found) and bound is not None:
            last = self._log(found).reader.largest_time()
            if not last or last[0] < bound:
                break
            found.pop()  # a correction, at times that are open
        return found

    def reported(
        self,
        claims: Sequence[Claimant],
        held: Sequence[FileEntry],
        summed: Sequence[FileEntry],
        claimed: int | None,
    ) -> tuple[ClaimSummary, ...]:
        """Return the claims of readers that lack some of the files: lost ones if these are summed up, else holding ones, until their files are `claimed` old."""
        found = []
        for each in claims:
            lost = [file for file in summed if each.lacks(file)]
            files = lost or [file for file in held if each.lacks(file)]
            if not files:
                continue
            since = ((each.position,),) if each.kind == "reader" else files[0].lower
            until = None if lost or claimed is None else ((files[0].upper[0][0] + claimed,),)
            texts = [self._text(time) for time in (since, until)]
            found.append(ClaimSummary(self.name, each.kind, each.name, texts[0], len(files), texts[1], bool(lost)))
        return tuple(found)

    def _text(self, times: Times | None) -> str | None:
        return format_time(times[0], list(self.time.values())) if times else None

    def _log(self, files: Sequence[FileEntry]) -> ChangeLog:
        return ChangeLog.of_files(self.path, files, Updates(tuple(self.time), None, diff=DIFF, unites=True))

    def summed(self, files: Sequence[FileEntry]) -> tuple[FileEntry, SummedUp]:
        """Return the file that replaces these, and the report; write it if there is a transaction."""
        for file in files:
            check_bytes(self.path / file.name, file)
        log = self._log(files)
        known = [read_summary(self.path / file.name) for file in files if is_summed(file)]
        times = [log.reader.largest_time(), *(each.horizon for each in known if each)]
        last = max(time for time in times if time is not None)
        try:
            rows = log.as_of(LATEST).collect(engine="streaming")
        except OSError as error:  # of polars, which names no file
            hint = f"{INVISIBLE}; see the log's files and their disk, then run again"
            raise EngineError(f"the log can't be read: {first_line(error)}", place=str(self.path), hint=hint) from error
        data = self._bytes(rows, Summary(last, tuple(map(self._part, files))))
        name = file_name(
            self.time, None, files[-1].upper, f"-summed{self.transaction.number if self.transaction else ''}"
        )
        if self.transaction is not None:
            self.transaction.add_output(self.path / name, data, first=True)
            for file in files:
                self.transaction.retire(self.path / file.name)
            owner = (read_owned(self.path)[1] or Owner())._replace(
                reopenings=self.manifest.reopenings, horizon=self.output.horizon, log=self.output.log
            )
            write_progress(self.transaction, self.path, self.manifest.upper, owner)
        facts = len(rows), len(data), checksum(data), None, files[-1].upper
        first, commit = min(file.first for file in files), max(file.commit for file in files)
        entry = FileEntry(name, *facts, footer=checksum(footer_in(data)), first=first, commit=commit)
        counts = len(files), sum(file.rows for file in files), sum(file.size for file in files), len(rows), len(data)
        horizon = format_time(last, list(self.time.values()))
        return entry, SummedUp(self.name, str(self.path), horizon, *counts)

    def _part(self, file: FileEntry) -> Part:
        path = self.path / file.name
        known = read_summary(path) if is_summed(file) else None
        return Part(file.name, mark_of(path, file.size), known.parts if known else ())

    def _bytes(self, rows: pl.DataFrame, summary: Summary) -> memoryview:
        """Return a file of these rows, all at the horizon."""
        ((name, kind),) = self.time.items()
        times = time_column(name, np.full(len(rows), summary.horizon[0], np.int64), kind)
        frame = rows.insert_column(rows.width - 1, times)
        return parquet_bytes(len(frame), lambda start, end: frame[start:end], summary.metadata())
