"""The outputs of a run: updates become one file of each log, in parts as they are known, or are added to its newest one; the commit publishes it."""

from __future__ import annotations

import sys
import threading
import time as clock
from collections import Counter, defaultdict
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.pool import PUBLIC, Pool
from ddcli.engine.rounds import reopened
from ddcli.errors import EngineError
from ddcli.expressions.types import parse_schema
from ddcli.job.summary import OutputSummary
from ddcli.sinks.pieces import SHARED, Join, Piece, PieceFile, frame_copy, frame_of, grouped, removed_by
from ddcli.sinks.side_logs import MOST, NotedUpdates
from ddcli.store.batch.checked_files import read_checked
from ddcli.store.files.access import fs, locate, real, relative
from ddcli.store.files.gate import checksum
from ddcli.store.log.joint_files import appended, grows
from ddcli.store.log.schema import logged_columns
from ddcli.store.log.writer import (
    CHUNK,
    WHOLE,
    again,
    file_name,
    frame_bytes,
    hashed_columns,
    is_plain,
    number_in,
    output_bytes,
    output_frame,
    stated,
)
from ddcli.store.parquet.row_groups import footer_in
from ddcli.store.state.entries import FileEntry, OutputEntry, log_identity
from ddcli.store.state.fingerprint import continues, log_number
from ddcli.store.state.outputs import Owner, write_progress
from ddcli.store.state.register import last_of, more
from ddcli.store.tables.listing import mark_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from ddcli.engine.lanes import Layout
    from ddcli.engine.times import Frontier
    from ddcli.expressions.types import RowOrder, Schema
    from ddcli.job.request import Request
    from ddcli.privacy import Tags
    from ddcli.store.files.gate import Written
    from ddcli.store.log.joint_files import JointFile
    from ddcli.store.state.entries import Times
    from ddcli.store.state.transaction import Transaction


LARGE = 1_000_000
"""Updates of an output in one run above which they are encoded and written in parts, each about as large."""


@dataclass
class OutputWriter:
    """The updates that a run over times from `lower` to `upper` adds to the outputs; without a transaction, in a dry run, they are counted, and given to the request's receiver, if there is one.

    Updates at closed times are moved to open ones, from the frontier `reopen` on. `called` is added to the names of the files; without it
    the number of the state's `reopenings`.
    An output gets one file in a commit, made of any number of parts: readers see all of it or nothing. A large commit that Spark has computed is a folder of files.
    """

    request: Request
    time: Schema
    lower: Times | None
    upper: Times
    layouts: dict[str, Layout]
    transaction: Transaction | None
    reopen: Frontier | None = None
    called: str = ""
    reopenings: int = 0
    horizons: Mapping[str, int] = field(default_factory=dict)
    """The horizons of outputs that are written from the beginning: logs that they read have no times before these."""
    known: Mapping[str, OutputEntry] = field(default_factory=dict)
    """The outputs so far whose newest files may grow by this commit."""
    orders: Mapping[str, RowOrder] = field(default_factory=dict)
    """The order in which an output is shown, if it has one."""
    tags: Mapping[str, Tags] = field(default_factory=dict)
    secret: bytes = PUBLIC
    """The secret of the state, which is the key of fingerprints."""
    whole: bool = False
    """True: an output gets one file, however large it is."""
    noted: dict[str, NotedUpdates] = field(default_factory=dict)
    """The updates of checks, which the commit depends on."""
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The seconds of writing each output, in all threads together."""
    removed: Counter[str] = field(default_factory=Counter)
    """The rows that the commit removes from each output whose removals a check bounds, as often as they were there."""
    _bounded: AbstractSet[str] = frozenset()
    _counts: dict[str, OutputSummary] = field(default_factory=dict)
    _files: dict[str, list[FileEntry]] = field(default_factory=dict)
    _grown: dict[str, FileEntry] = field(default_factory=dict)
    """The files that the commit adds to, as they were."""
    _joint: dict[str, JointFile] = field(default_factory=dict)
    _elsewhere: dict[str, list[PieceFile]] = field(default_factory=lambda: defaultdict(list))
    """The files that tasks have written, and those that other tasks are to make of these."""
    _small: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _rows: Counter[str] = field(default_factory=Counter)
    _numbers: Counter[str] = field(default_factory=Counter)
    """The sums of the hashes of the added updates."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        checks = self.request.spec.checks
        self.noted = {name: NotedUpdates(tuple(self.time)) for name in checks}
        self._bounded = {measure.output for check in checks.values() for measure in check.measures if measure.output}

    def add(self, name: str, updates: np.ndarray, pool: Pool, *, alone: bool = False) -> None:
        """Add consolidated updates of an output: all of them (`alone`), or some that share no record with others. Threads may call at once.

        Updates of outputs without a layout are dropped. A few updates wait for others, so that a file gets no more row groups than it needs.
        """
        if name not in self.layouts:
            return
        if self.reopen is not None:
            updates = reopened(updates, self.reopen, len(self.time))
        if not len(updates):
            return
        began, rows = clock.perf_counter(), len(updates)
        self._count(name, rows, kernels.inserted(updates))
        if name in self._bounded:
            self._count_removed(name, removed_by(updates))
        layout = self.layouts[name]
        if name in self.noted:
            if rows <= MOST:
                self.noted[name].add(output_frame(updates, layout, pool, self.time))
            else:
                self.noted[name].skip(rows, int(updates[:, -1].sum()))
        if self.transaction is None:
            if self.request.asked.receives is not None:
                self.request.asked.receives(name, output_frame(updates, layout, pool, self.time))
            return
        self._hash(name, updates)
        if alone:
            self._write(name, output_bytes(updates, layout, pool, self.time))
        elif rows >= LARGE:
            self._add_part(name, output_bytes(updates, layout, pool, self.time), rows)
        else:
            self._keep(name, frame_copy(updates, layout, pool, self.time), rows)
        with self._lock:
            self.seconds[name] += clock.perf_counter() - began

    def take_in(self, piece: Piece) -> None:
        """Add updates of an output that were made elsewhere, and share no record with others."""
        if piece.name not in self.layouts:
            return
        self._count(piece.name, piece.rows, piece.inserted)
        self._count_removed(piece.name, piece.removed)
        if piece.name in self.noted:
            self._note_piece(piece)
        if self.transaction is None:
            if self.request.asked.receives is not None and piece.rows:
                self.request.asked.receives(piece.name, frame_of(piece.frames))
            return
        self._numbers[piece.name] += piece.number
        self._small[piece.name] += piece.frames
        self._elsewhere[piece.name] += piece.files

    @property
    def _commit(self) -> Transaction:
        assert self.transaction is not None, "a dry run writes nothing"
        return self.transaction

    @property
    def most(self) -> int:
        """The bytes of a file that tasks write, before they begin another."""
        return sys.maxsize if self.whole else WHOLE

    def joins(self, *, apart: bool) -> list[Join]:
        """Return the files that tasks are to make of those that others have written: one of each output, or, `apart`, several of a large one.

        A file that is to stay as it is needs no task.
        """
        found = []
        for name, files in self._elsewhere.items():
            if not files:
                continue
            groups = grouped(files, self.most if apart else sys.maxsize)
            frames = tuple(self._gathered(name))
            self._elsewhere[name] = [file for group in groups[bool(frames) :] if len(group) == 1 for file in group]
            directory = self.request.outputs[name]
            found += [
                Join(name, directory, tuple(group), () if at else frames)
                for at, group in enumerate(groups)
                if len(group) > 1 or (frames and not at)
            ]
        return found

    def take_joined(self, name: str, file: PieceFile) -> None:
        """Take the file of an output that a task has made of other tasks' files."""
        self._elsewhere[name].append(file)

    def _note_piece(self, piece: Piece) -> None:
        """Note updates of a check that were made elsewhere."""
        noted = self.noted[piece.name]
        if noted.rows + piece.rows > MOST or not (piece.frames or piece.files):
            noted.skip(piece.rows, piece.total)
            return
        if piece.frames:
            noted.add(frame_of(piece.frames))
        for file in piece.files:
            _check_here(file.path)
            noted.add(pl.read_parquet(file.path))

    def _count(self, name: str, rows: int, inserted: int) -> None:
        with self._lock:
            self._counts[name] = _sum(self._counts.get(name), OutputSummary(rows, inserted, rows - inserted, None))

    def _count_removed(self, name: str, rows: int) -> None:
        with self._lock:
            self.removed[name] += rows

    def _hash(self, name: str, updates: np.ndarray) -> None:
        """Add updates to the fingerprint of an output."""
        number = kernels.multiset_hash(updates, hashed_columns(self.secret, self.layouts[name]))
        with self._lock:
            self._numbers[name] += number

    def _contents(self, name: str, known: OutputEntry | None) -> str:
        """Return the fingerprint of a log with the added updates. That of a log without one is made of its files."""
        before = 0
        if known is not None and known.files:
            if not continues(parse_schema(known.schema), self.layouts[name].schema):
                return ""  # the next commit makes it of the files
            found = number_in(self.secret, known.contents)
            if found is None and self.transaction is not None and self.transaction.state.staged:
                return ""  # files of an earlier commit of this run have no names yet
            before = log_number(self.secret, self.request.outputs[name], known) if found is None else found
        return stated(self.secret, before + self._numbers[name])

    def _keep(self, name: str, frame: bytes, rows: int) -> None:
        """Keep a few updates until there are enough for a part."""
        with self._lock:
            self._small[name].append(frame)
            self._rows[name] += rows
            parts = self._gathered(name) if self._rows[name] >= LARGE else []
        if parts:
            self._add_part(name, *self._encoded(parts))

    def _gathered(self, name: str) -> list[bytes]:
        self._rows[name] = 0
        return self._small.pop(name, [])

    def _write(self, name: str, data: memoryview) -> None:
        """Write all updates of an output."""
        if (newest := self._growing(name, len(data))) is not None:
            path = self.request.outputs[name] / newest.name
            longer = appended(read_checked(path, newest), newest, mark_of(path, newest.size), data)
            if longer is not None:
                data, self._grown[name] = longer, newest
        self._note(name, self._commit.add_output(self._path(name), data), checksum(footer_in(data)))
        self.request.asked.progress.wrote(self._counts[name].rows, data.nbytes)

    def _growing(self, name: str, size: int) -> FileEntry | None:
        """Return the newest file of an output if this commit's updates, of `size` bytes, are added to it; None for a file that no run wrote.

        An object never gets other content: who reads it by several requests would mix both.
        """
        if fs(self.request.outputs[name]).is_durable:
            return None
        known, suffix = self.known.get(name), self.called or again(self.reopenings)
        newest = last_of(known.files) if known else None
        if known is None or newest is None or not newest.commit or not is_plain(newest.name, suffix):
            return None
        return newest if grows(len(known.files), newest, self._counts[name].rows, size, CHUNK) else None

    def _add_part(self, name: str, data: memoryview, rows: int) -> None:
        """Write some updates of an output."""
        self._joined(name).add(data)
        self.request.asked.progress.wrote(rows, data.nbytes)

    def _joined(self, name: str, expected: int = 0) -> JointFile:
        """Return the file in the making of an output, which is begun for the `expected` bytes."""
        with self._lock:
            if name not in self._joint:
                self._joint[name] = self._commit.join_output(self._path(name), expected)
            return self._joint[name]

    def _finish(self, name: str) -> None:
        """Write the waiting updates of an output, or add the file that a task has made of all of them."""
        waiting, elsewhere = self._gathered(name), self._elsewhere.pop(name, [])
        for file in elsewhere:
            _check_here(file.path)
        if len(elsewhere) > 1:
            folder = self._path(name).with_suffix("")
            paths = self._commit.adopt_folder([file.path for file in elsewhere], folder)
            number = self._commit.number
            self._files[name] = [
                FileEntry(
                    f"{folder.name}/{path.name}",
                    file.rows,
                    file.written.size,
                    file.written.checksum,
                    self.lower,
                    self.upper,
                    footer=file.footer,
                    first=number,
                    commit=number,
                )
                for path, file in zip(paths, elsewhere, strict=True)
            ]
            return
        for file in elsewhere:  # it gets another name, and is not copied
            self._commit.adopt_output(file.path, self._path(name))
            self._note(name, file.written, file.footer)
        if waiting and name not in self._joint:
            self._write(name, self._encoded(waiting)[0])
            return
        if waiting:
            self._add_part(name, *self._encoded(waiting))
        if name in self._joint:
            self._note(name, self._joint[name].finish(), self._joint[name].footer)

    def _encoded(self, parts: list[bytes]) -> tuple[memoryview, int]:
        """Return the rows of some frames' bytes as a file, and how many there are."""
        frame = frame_of(parts)
        return frame_bytes(frame, self.time), frame.height

    def _path(self, name: str) -> Path:
        """Return the path of the file that the commit adds to an output."""
        if name in self._grown:
            return self.request.outputs[name] / self._grown[name].name
        return self.request.outputs[name] / file_name(
            self.time, self.lower, self.upper, self.called or again(self.reopenings)
        )

    def _note(self, name: str, written: Written, footer: str) -> None:
        """Record the size and checksums of an output's file."""
        path, rows = self._path(name), self._counts[name].rows
        lower = self.lower
        first = commit = self._commit.number
        if (before := self._grown.get(name)) is not None:
            rows, lower, first = before.rows + rows, before.lower, before.first
        facts = rows, written.size, written.checksum, lower, self.upper
        entry = FileEntry(path.name, *facts, footer=footer, first=first, commit=commit)
        with self._lock:
            self._files[name] = [entry]

    def progress(self, directory: Path, horizon: int | None, name: str, log: str) -> None:
        """Write the progress of an output's log, which has an identity."""
        order, tags = self.orders.get(name, ()), self.tags.get(name, {})
        owner = Owner(reopenings=self.reopenings, horizon=horizon, order=order, log=log, tags=tags)
        write_progress(self._commit, directory, self.upper, owner)

    def entry(self, name: str, known: OutputEntry | None, meaning: str) -> OutputEntry:
        """Write the waiting updates, and the log's progress last; return the output's entry for the next manifest; `known` is the last manifest's entry."""
        self._finish(name)
        schema = {column: str(kind) for column, kind in self.layouts[name].schema.items()}
        if known and known.schema != schema:
            logged = logged_columns(parse_schema(known.schema), self.layouts[name].schema)
            assert logged is not None, "a rebuild has checked the columns"
            schema = {column: str(kind) for column, kind in logged.items()}
        if name not in self._files and not (known and known.files and known.schema == schema):
            self._write_columns(name)
        directory = self.request.outputs[name]
        horizon = known.horizon if known else self.horizons.get(name)
        log = known.log if known else log_identity(name, self._commit.number)
        self.progress(directory, horizon, name, log)
        files = more(known.files if known else (), self._files.get(name, ()))
        state, contents = self.request.state, self._contents(name, known)
        same = known is not None and locate(state, known.path) == directory
        place = known.path if known is not None and same else relative(directory, state)
        return OutputEntry(place, schema, files, meaning, log, horizon, contents)

    def _write_columns(self, name: str) -> None:
        """Write a file without rows for an output that has none yet: its readers find the columns there."""
        layout = self.layouts[name]
        none = np.empty((0, layout.width + len(self.time) + 1), np.int64)
        self._count(name, 0, 0)
        self._write(name, output_bytes(none, layout, Pool(PUBLIC), self.time))

    def written(self) -> dict[str, int]:
        """Return the bytes of each output's files."""
        return {name: sum(entry.size for entry in entries) for name, entries in self._files.items()}

    def summaries(self) -> dict[str, OutputSummary]:
        """Return the summary of the updates that were added to each output."""
        none = OutputSummary(0, 0, 0, None)
        files = {
            name: str(self._path(name) if len(entries) == 1 else self._path(name).with_suffix(""))
            for name, entries in self._files.items()
        }
        return {name: replace(self._counts.get(name, none), file=files.get(name)) for name in self.layouts}

    def output_summaries(self) -> dict[str, OutputSummary]:
        """Return the summaries of outputs without the summaries of checks, which have verdicts."""
        return {name: one for name, one in self.summaries().items() if name not in self.noted}


def _check_here(place: Path) -> None:
    """Raise EngineError where a file that a task has written is not on this machine. All machines have the same objects."""
    if fs(place).is_local and not fs(real(place)).exists():
        problem = "a part of the output that a task has written is not on this machine"
        raise EngineError(problem, place=str(place), hint=SHARED)


def _sum(one: OutputSummary | None, other: OutputSummary) -> OutputSummary:
    if one is None:
        return other
    return OutputSummary(one.rows + other.rows, one.inserted + other.inserted, one.retracted + other.retracted, None)
