"""What a step puts away until it is needed: updates in scratch files of the state, gone with the run.

Lanes are written as they are, unless some of them are hashes of values in a pool: then as columns, which carry the values.
Nothing of this survives a run, so nothing is flushed or checked: a file that can't be written ends the run.
"""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.engine.columns import POOLED
from ddcli.engine.lanes import decode, encode
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.store.files import Files

DIRECTORY = "spill"


class Spill:
    """The scratch directory of one run, with `room` bytes of updates that are kept in memory. Times have `nt` coordinates."""

    def __init__(self, directory: Path, files: Files, nt: int, room: int) -> None:
        self.directory = directory / DIRECTORY
        self.files = files
        self.nt = nt
        self.room = room
        self._buckets: list[Bucket] = []
        self._held = 0
        self._lock = threading.Lock()
        self.clear()
        files.make_directory(self.directory)

    def bucket(self, layout: Layout) -> Bucket:
        """Return a new, empty bucket."""
        with self._lock:
            found = Bucket(self, self.directory / f"{len(self._buckets):06d}", layout)
            self._buckets.append(found)
        return found

    def note(self, size: int) -> None:
        """Count bytes that came into memory or left it; write away what is the most, when there is no room for it."""
        with self._lock:
            self._held += size
            if self._held <= self.room:
                return
            for bucket in sorted(self._buckets, key=lambda bucket: bucket.held, reverse=True):
                self._held -= bucket.write()
                if self._held <= self.room // 2:
                    return

    def clear(self) -> None:
        """Remove what is there."""
        if self.directory.is_dir():
            for path in self.directory.iterdir():
                self.files.remove(path)
            self.files.remove_directory(self.directory)


class Bucket:
    """Updates `[data | times | diff]` put away for one shard; the engine's protocol `Bucket`."""

    def __init__(self, spill: Spill, path: Path, layout: Layout) -> None:
        self.spill = spill
        self.path = path
        self.layout = layout
        self.width = layout.width + spill.nt + 1
        self.held = 0
        self._parts: list[np.ndarray] = []
        self._frames: list[int] = []
        self._rows = 0
        self._lock = threading.Lock()
        self._pooled = any(kind.kind in POOLED for kind in layout.schema.values())

    def add(self, updates: np.ndarray, pool: Pool) -> None:
        """Put updates away."""
        assert updates.shape[1] == self.width, f"{updates.shape[1]} lanes, not {self.width}"
        if self._pooled:
            tail = {f"\0{at}": updates[:, self.layout.width + at].copy() for at in range(self.spill.nt + 1)}
            data = io.BytesIO()
            frame = decode(updates, self.layout, pool).with_columns(
                **{n: pl.Series(n, lane) for n, lane in tail.items()}
            )
            frame.write_ipc(data)
            with self._lock:
                self._append(data.getbuffer())
                self._frames.append(data.getbuffer().nbytes)
            return
        with self._lock:
            self._parts.append(updates)
            self.held += updates.nbytes
        self.spill.note(updates.nbytes)

    def write(self) -> int:
        """Write what is in memory away; return how many bytes that were."""
        with self._lock:
            for part in self._parts:
                self._append(np.ascontiguousarray(part).data.cast("B"))
                self._rows += len(part)
            size, self.held = self.held, 0
            self._parts.clear()
        return size

    def take(self, pool: Pool, *, last: bool) -> np.ndarray | None:
        """Return all updates, None if there are none; the `last` time nothing is left of them."""
        with self._lock:
            found = self._read_frames(pool) if self._pooled else self._read_lanes()
            size = self.held
            if last:
                self._parts, self._frames, self._rows, self.held = [], [], 0, 0
                self.spill.files.remove(self.path)
        if last and size:
            self.spill.note(-size)
        return found

    def _read_lanes(self) -> np.ndarray | None:
        rows = self._rows + sum(map(len, self._parts))
        if not rows:
            return None
        if not self._rows and len(self._parts) == 1:
            return self._parts[0]
        matrix = np.empty((rows, self.width), np.int64)
        if self._rows:
            with self.path.open("rb", buffering=0) as file:
                self._fill(file, matrix[: self._rows].data.cast("B"))
        at = self._rows
        for part in self._parts:
            matrix[at : at + len(part)] = part
            at += len(part)
        return matrix

    def _read_frames(self, pool: Pool) -> np.ndarray | None:
        if not self._frames:
            return None
        matrices = []
        with self.path.open("rb") as file:
            for size in self._frames:
                frame = pl.read_ipc(io.BytesIO(file.read(size)))
                matrix = np.empty((frame.height, self.width), np.int64)
                encode(frame, self.layout, pool, matrix)
                for at in range(self.spill.nt + 1):
                    matrix[:, self.layout.width + at] = frame[f"\0{at}"].to_numpy()
                matrices.append(matrix)
        return np.concatenate(matrices) if len(matrices) > 1 else matrices[0]

    def _append(self, data: memoryview) -> None:
        def write() -> None:
            rest = data
            with self.path.open("ab", buffering=0) as file:
                while rest:
                    rest = rest[file.write(rest) :]

        self.spill.files.do("write", self.path, write)

    def _fill(self, file: io.RawIOBase | io.FileIO, room: memoryview) -> None:
        while room:
            count = file.readinto(room)
            if not count:
                raise EngineError("the scratch file is shorter than what was written to it", place=str(self.path))
            room = room[count:]
