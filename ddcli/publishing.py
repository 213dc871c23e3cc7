"""The outputs of a run: updates become files of their logs, one by one or by shard, all published with the commit."""

from __future__ import annotations

import io
import threading
import time as clock
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from ddcli.engine import kernels
from ddcli.engine.reopening import reopened
from ddcli.store.manifest import FileEntry, OutputEntry
from ddcli.store.output import file_name, frame_bytes, output_bytes, output_frame, write_progress, write_updates
from ddcli.store.state import relative_output
from ddcli.summary import OutputSummary

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Frontier
    from ddcli.expressions.types import Schema
    from ddcli.request import Request
    from ddcli.store.files import Written
    from ddcli.store.manifest import Times
    from ddcli.store.state import Transaction


LARGE = 1_000_000
"""Updates of an output in one run above which there are several files, each about as large."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of an output's updates that were made elsewhere: in a file that waits for its name, or, if few, in a frame's bytes.

    In neither, where they are only counted.
    """

    name: str
    rows: int
    inserted: int
    frame: bytes | None = None
    file: tuple[Path, Written] | None = None


@dataclass
class Publishing:
    """What a run over times from `lower` to `upper` adds to the outputs; without a transaction, in a dry run, it is only counted.

    Updates that `reopen` a closed past are said at open times, those from that frontier on. `called` is added to the names of the files.
    """

    request: Request
    time: Schema
    lower: Times | None
    upper: Times
    layouts: dict[str, Layout]
    transaction: Transaction | None
    reopen: Frontier | None = None
    called: str = ""
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """How long writing each output took, in all threads together."""
    _counts: dict[str, OutputSummary] = field(default_factory=dict)
    _files: dict[str, list[FileEntry]] = field(default_factory=lambda: defaultdict(list))
    _small: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _numbers: Counter[str] = field(default_factory=Counter)
    _rows: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, updates: np.ndarray, pool: Pool, *, alone: bool = False) -> None:
        """Add consolidated updates of an output: all of them (`alone`), or some that share no record with others. Threads may.

        Of outputs without a layout here nothing is written. A few updates wait for others, so that a log gets no more files than it needs.
        """
        if name not in self.layouts:
            return
        if self.reopen is not None:
            updates = reopened(updates, self.reopen, len(self.time))
        if not len(updates):
            return
        began, rows = clock.perf_counter(), len(updates)
        self._count(name, rows, kernels.inserted(updates))
        if self.transaction is None:
            return
        layout = self.layouts[name]
        if alone or rows >= LARGE:
            self._write(name, output_bytes(updates, layout, pool, self.time), rows, alone=alone)
        else:
            self._keep(name, frame_copy(updates, layout, pool, self.time), rows)
        with self._lock:
            self.seconds[name] += clock.perf_counter() - began

    def take_in(self, piece: Piece) -> None:
        """Add updates of an output that were made elsewhere, and share no record with others."""
        if piece.name not in self.layouts:
            return
        self._count(piece.name, piece.rows, piece.inserted)
        if self.transaction is None:
            return
        if piece.frame is not None:
            self._keep(piece.name, piece.frame, piece.rows)
        if piece.file is not None:
            waiting, written = piece.file
            name = file_name(self.time, self.lower, self.upper, self.called + self._number(piece.name))
            self.transaction.adopt((), [(waiting, self.request.outputs[piece.name] / name)])
            entry = FileEntry(name, piece.rows, written.size, written.checksum, self.lower, self.upper)
            self._files[piece.name].append(entry)

    def _count(self, name: str, rows: int, inserted: int) -> None:
        with self._lock:
            self._counts[name] = _sum(self._counts.get(name), OutputSummary(rows, inserted, rows - inserted, None))

    def _number(self, name: str) -> str:
        """Return what tells the next file of an output from others of the run."""
        with self._lock:
            self._numbers[name] += 1
            return f"-{self._numbers[name]:04d}"

    def _keep(self, name: str, frame: bytes, rows: int) -> None:
        """Keep a few updates until there are enough for a file."""
        with self._lock:
            self._small[name].append(frame)
            self._rows[name] += rows
            parts = self._gathered(name) if self._rows[name] >= LARGE else []
        if parts:
            self._put_together(name, parts, alone=False)

    def _gathered(self, name: str) -> list[bytes]:
        self._rows[name] = 0
        return self._small.pop(name, [])

    def _put_together(self, name: str, parts: list[bytes], *, alone: bool) -> None:
        frame = pl.concat([pl.read_ipc(io.BytesIO(part)) for part in parts])
        self._write(name, frame_bytes(frame, self.time), frame.height, alone=alone)

    def _write(self, name: str, data: memoryview, rows: int, *, alone: bool) -> None:
        """Add a file to the transaction; one that is not alone has a number in its name."""
        assert self.transaction is not None, "a dry run writes nothing"
        directory = self.request.outputs[name]
        called = self.called + ("" if alone else self._number(name))
        entry = write_updates(self.transaction, directory, data, rows, self.time, self.lower, self.upper, called)
        self.request.progress.wrote(rows, entry.size)
        with self._lock:
            self._files[name].append(entry)

    def entry(self, name: str, known: OutputEntry | None, meaning: str) -> OutputEntry:
        """Write what waits, and the log's progress last; return an output as the next manifest has it, `known` as the last had it."""
        assert self.transaction is not None, "a dry run writes nothing"
        if parts := self._gathered(name):
            self._put_together(name, parts, alone=not self._files[name])
        directory = self.request.outputs[name]
        write_progress(self.transaction, directory, self.upper)
        schema = {column: str(kind) for column, kind in self.layouts[name].schema.items()}
        files = (*(known.files if known else ()), *sorted(self._files[name], key=_name))
        return OutputEntry(relative_output(self.request.state, directory), schema, files, meaning)

    def summaries(self) -> dict[str, OutputSummary]:
        """Return what was added to each output."""
        none = OutputSummary(0, 0, 0, None)
        found = {}
        for name in self.layouts:
            files = [str(self.request.outputs[name] / file.name) for file in sorted(self._files[name], key=_name)]
            made = self._counts.get(name, none)
            found[name] = OutputSummary(
                made.rows, made.inserted, made.retracted, files[0] if files else None, len(files)
            )
        return found


def frame_copy(updates: np.ndarray, layout: Layout, pool: Pool, time: Schema) -> bytes:
    """Return updates of an output as the bytes of a frame: as a frame they would hold all values of the pool in memory."""
    copy = io.BytesIO()
    output_frame(updates, layout, pool, time).write_ipc(copy)
    return copy.getvalue()


def _name(file: FileEntry) -> str:
    return file.name


def _sum(one: OutputSummary | None, other: OutputSummary) -> OutputSummary:
    if one is None:
        return other
    return OutputSummary(one.rows + other.rows, one.inserted + other.inserted, one.retracted + other.retracted, None)
