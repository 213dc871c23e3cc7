"""The updates of outputs that tasks make: each task writes files of its own, or, if they are few, returns them in its result.

Other tasks make the file of the commit of these, so the rows of an output do not pass through the driver, but for the few in results. A
task may be repeated or run twice at once: each attempt writes files of its own, and none removes another's.
"""

from __future__ import annotations

import io
from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.errors import EngineError
from ddcli.store.log.writer import frame_bytes, hashed_columns, output_bytes, output_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Schema
    from ddcli.store.files.gate import Written
    from ddcli.store.log.joint_files import JointFile
    from ddcli.store.scratch.attempt import Attempt

ROOM = 32 << 20
"""Bytes of updates that a task holds before it writes them."""
INLINE = 4 << 20
"""Bytes of updates that all results of a run have together: a small change needs no further task to make its file."""

SHARED = "put the outputs at paths that all executors and this machine share, a shared file system or s3://"
"""The way out where a file is on one machine only."""


@frozen
class PieceFile:
    """A file of some updates of an output that waits for its name, with the checksum of its footer."""

    path: Path
    written: Written
    rows: int
    footer: str


@frozen
class Piece:
    """The updates of an output that a task has made: in files, in frames' bytes, or, in a dry run, only counted. `total` is the sum of their diffs, `removed` the sum of the negative ones, as a positive number, `number` that of their hashes."""

    name: str
    rows: int
    inserted: int
    total: int
    removed: int
    number: int = 0
    frames: tuple[bytes, ...] = ()
    files: tuple[PieceFile, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes in files."""
        return sum(file.written.size for file in self.files)


@frozen
class Join:
    """A file to make of other tasks' files of an output and of the updates in some frames' bytes."""

    name: str
    directory: Path
    files: tuple[PieceFile, ...]
    frames: tuple[bytes, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of the files."""
        return sum(file.written.size for file in self.files)

    def make(self, attempt: Attempt, time: Schema) -> PieceFile:
        """Write the file; the others stay. Raises EngineError if one of these isn't there, or as it was written."""
        joint, rows = attempt.join_output(self.directory, self.bytes), sum(file.rows for file in self.files)
        if self.frames:
            frame = frame_of(self.frames)
            joint.add(frame_bytes(frame, time))
            rows += frame.height
        for file in self.files:
            try:
                joint.add_file(file.path, file.written)
            except FileNotFoundError as error:
                problem = "a part of the output that another task has written is missing"
                raise EngineError(problem, place=str(file.path), hint=SHARED) from error
        return finished(attempt, joint, rows)


@dataclass
class PieceWriter:
    """The updates of outputs that an attempt at a task makes; without an attempt, in a dry run, it writes none.

    It returns them in `inline` bytes, if there is room for all of them. Updates that are added apart share no record.
    """

    attempt: Attempt | None
    outputs: Mapping[str, Path]
    time: Schema
    inline: int
    most: int
    """Bytes after which a file is finished, and another begun."""
    _held: int = 0
    """The bytes of all frames."""
    _counts: dict[str, tuple[int, int, int, int, int]] = field(default_factory=dict)
    _frames: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _joint: dict[str, tuple[JointFile, int]] = field(default_factory=dict)
    _files: dict[str, list[PieceFile]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: str, updates: np.ndarray, layout: Layout, pool: Pool) -> None:
        """Add consolidated updates of an output."""
        number = kernels.multiset_hash(updates, hashed_columns(pool.secret, layout))
        facts = len(updates), kernels.inserted(updates), int(updates[:, -1].sum()), removed_by(updates), number
        rows, inserted, total, removed, known = self._counts.get(name, (0, 0, 0, 0, 0))
        self._counts[name] = (
            rows + facts[0],
            inserted + facts[1],
            total + facts[2],
            removed + facts[3],
            known + facts[4],
        )
        if self.attempt is not None and updates.nbytes >= ROOM:
            self._write(name, output_bytes(updates, layout, pool, self.time), len(updates))
            return
        if self.attempt is None and self._held > self.inline:
            return
        self._frames[name].append(frame_copy(updates, layout, pool, self.time))
        self._held += len(self._frames[name][-1])
        if self.attempt is not None and self._held >= ROOM:
            self._flush(max(self._frames, key=lambda each: sum(map(len, self._frames[each]))))

    def finish(self) -> list[Piece]:
        """Write the held updates, unless a result has room for them; return the pieces."""
        few = self._held <= self.inline
        if self.attempt is None and not few:
            self._frames.clear()
        for name in [*self._frames]:
            if self.attempt is not None and not (few and name not in self._joint and name not in self._files):
                self._flush(name)
        for name in [*self._joint]:
            self._close(name)
        return [
            Piece(name, *counts, tuple(self._frames.get(name, ())), tuple(self._files.get(name, ())))
            for name, counts in self._counts.items()
        ]

    def _flush(self, name: str) -> None:
        parts = self._frames.pop(name)
        self._held -= sum(map(len, parts))
        frame = frame_of(parts)
        self._write(name, frame_bytes(frame, self.time), frame.height)

    def _write(self, name: str, data: memoryview, rows: int) -> None:
        assert self.attempt is not None, "a dry run writes nothing"
        joint, before = self._joint.get(name) or (self.attempt.join_output(self.outputs[name]), 0)
        joint.add(data)
        self._joint[name] = joint, before + rows
        if joint.size >= self.most:
            self._close(name)

    def _close(self, name: str) -> None:
        assert self.attempt is not None, "a dry run writes nothing"
        self._files[name].append(finished(self.attempt, *self._joint.pop(name)))


def removed_by(updates: np.ndarray) -> int:
    """Return the number of rows that updates remove: the sum of the negative diffs, which are their last column, as a positive number."""
    diffs = updates[:, -1]
    return -int(diffs[diffs < 0].sum())


def grouped(files: Sequence[PieceFile], most: int) -> list[list[PieceFile]]:
    """Return the files that one is to be made of, in groups of at most `most` bytes, but for files that are larger; a file of half of that stays alone.

    So there are few files, and none is so large that an object store copies it piece by piece.
    """
    if sum(file.written.size for file in files) <= most:
        return [[*files]]
    groups, room = [[file] for file in files if 2 * file.written.size >= most], 0
    for file in files:
        size = file.written.size
        if 2 * size >= most:
            continue
        if size > room:
            groups.append([])
            room = most
        groups[-1].append(file)
        room -= size
    return groups


def finished(attempt: Attempt, joint: JointFile, rows: int) -> PieceFile:
    """Finish a file of an attempt."""
    written = joint.finish()
    attempt.files.sync(joint.path)  # here: the machine that commits may have no part in these bytes
    return PieceFile(joint.path, written, rows, joint.footer)


def frame_copy(updates: np.ndarray, layout: Layout, pool: Pool, time: Schema) -> bytes:
    """Return updates of an output as the bytes of a frame: as a frame they would hold all values of the pool in memory."""
    copy = io.BytesIO()
    output_frame(updates, layout, pool, time).write_ipc(copy)
    return copy.getvalue()


def frame_of(parts: Iterable[bytes]) -> pl.DataFrame:
    """Return the rows of some frames' bytes, in an order that doesn't depend on the order of the parts: the same run writes the same file."""
    return pl.concat([pl.read_ipc(io.BytesIO(part)) for part in sorted(parts)])
