"""Updates that a step puts into scratch files of the state until it needs them, in this process or in another.

Lanes are packed into as few bytes as their values need, unless some are hashes of values in a pool: then updates are columns,
which carry the values. Nothing of this survives a run, which removes the files, so nothing is flushed or checked: a file that can't be written ends the run.

Tasks send each other updates in files that all can open. Each attempt at a task writes files of its own, and the scheduler hands each task the places of the parts to read: so no task
reads the files of failed attempts.
"""

from __future__ import annotations

import io
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.arrow import series_of
from ddcli.engine.lanes import decode, encode
from ddcli.errors import EngineError
from ddcli.expressions.types import POOLED
from ddcli.store.files.access import fs, reading
from ddcli.store.state.contents import SPILL, clear_scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.scope_tree import Address
    from ddcli.store.files.gate import Files


Bytes: TypeAlias = "bytes | bytearray | memoryview"
KINDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
WIDE = 8
CHUNK = 4 << 20
"""Bytes of lanes of a chunk: Spark holds some in memory at once."""


class Spill:
    """The scratch directory of one run (the engine's protocol `Exchange`). `room` bytes of updates are kept in memory."""

    def __init__(self, directory: Path, files: Files, room: int) -> None:
        self.directory = directory / SPILL
        self.files = files
        self.room = room
        self._buckets: list[SpilledShard] = []
        self._at: dict[Address, SpilledShard] = {}
        self._held = 0
        self._lock = threading.Lock()
        self.clear()
        files.make_directory(self.directory)

    def bucket(self, layout: Layout) -> SpilledShard:
        """Return a new, empty bucket."""
        with self._lock:
            found = SpilledShard(self, self.directory / f"{len(self._buckets):06d}", layout)
            self._buckets.append(found)
        return found

    def add(self, to: Address, updates: np.ndarray, layout: Layout, pool: Pool) -> None:
        """Put updates away."""
        bucket = self._at.get(to)
        if bucket is None:
            bucket = self._at.setdefault(to, self.bucket(layout))  # atomic, as two threads may come here
        bucket.add(updates, pool)

    def take(self, at: Address, layout: Layout, pool: Pool, *, last: bool) -> np.ndarray | None:
        """Return the updates that wait at an address, None if none do; the `last` time they are removed."""
        bucket = self._at.get(at)
        return None if bucket is None else bucket.take(pool, last=last)

    def parts(self, at: Address, layout: Layout, pool: Pool) -> list[np.ndarray]:
        """Return the updates put away at an address, each part as it was."""
        bucket = self._at.get(at)
        return [] if bucket is None else bucket.parts(pool)

    def note(self, size: int) -> None:
        """Count bytes that came into memory or left it; if they exceed the room, write the largest buckets to files."""
        with self._lock:
            self._held += size
            if self._held <= self.room:
                return
            for bucket in sorted(self._buckets, key=lambda bucket: bucket.held, reverse=True):
                self._held -= bucket.write()
                if self._held <= self.room // 2:
                    return

    def clear(self) -> None:
        """Remove all that was put away."""
        clear_scratch(self.directory, self.files)


class SpilledShard:
    """Updates `[data | times | diff]` put away for one shard."""

    def __init__(self, spill: Spill, path: Path, layout: Layout) -> None:
        self.spill = spill
        self.path = path
        self.layout = layout
        self._written: list[SpilledPart] = []
        self._held: list[SpilledPart] = []
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Return the bytes that are in memory."""
        return sum(part.size for part in self._held)

    def add(self, updates: np.ndarray, pool: Pool) -> None:
        """Put updates away."""
        part = packed(updates, self.layout, pool)
        with self._lock:
            self._held.append(part)
        self.spill.note(part.size)

    def write(self) -> int:
        """Write the updates in memory away; return how many bytes they were."""
        with self._lock:
            size = self.held
            if size:
                parts = [buffer for part in self._held for buffer in part.buffers]
                self.spill.files.append(self.path, *parts, begin=not self._written)
                self._written += [replace(part, buffers=()) for part in self._held]
                self._held.clear()
        return size

    def take(self, pool: Pool, *, last: bool) -> np.ndarray | None:
        """Return all updates, None if there are none; the `last` time they are removed."""
        with self._lock:
            parts, size = [*self._written, *self._held], self.held
            matrix = unpacked(parts, self._read(), self.layout, pool) if parts else None
            if last:
                if self._written:
                    self.spill.files.remove(self.path)
                self._written, self._held = [], []
        if last and size:
            self.spill.note(-size)
        return matrix

    def parts(self, pool: Pool) -> list[np.ndarray]:
        """Return the parts that were added, each as it was."""
        with self._lock:
            pairs = zip([*self._written, *self._held], self._read(), strict=True)
            return [unpacked([part], [data], self.layout, pool) for part, data in pairs]

    def _read(self) -> Iterator[Bytes]:
        """Yield the bytes of each part: of those in the file, then of those in memory."""
        if self._written:
            with reading(self.path) as file:
                for part in self._written:
                    yield _read_whole(file, part.size, self.path)
        for part in self._held:
            yield part.buffers[0] if len(part.buffers) == 1 else b"".join(part.buffers)


@frozen
class SpilledPart:
    """A part that was added at once: `rows` of `width` lanes in `size` bytes. If the lanes are packed, `lanes` has the least value and the bytes of each."""

    rows: int
    width: int
    size: int
    lanes: tuple[tuple[int, int], ...]
    buffers: tuple[bytes | memoryview, ...]

    @property
    def unpacked(self) -> int:
        """The bytes that it takes in memory: its lanes, or its values where these are more."""
        return max(self.size, self.rows * self.width * WIDE)


def packed(updates: np.ndarray, layout: Layout, pool: Pool) -> SpilledPart:
    """Return updates as bytes: packed lanes, or columns, where hashes stand for values of the pool."""
    return _columns(updates, layout, pool) if _is_pooled(layout) else _packed(updates)


def unpacked(parts: Sequence[SpilledPart], contents: Iterable[Bytes], layout: Layout, pool: Pool) -> np.ndarray:
    """Return the updates of some parts, at least one, in a matrix; in the contents of each its buffers are one after the other."""
    (width,) = {part.width for part in parts}
    matrix, row = np.empty((sum(part.rows for part in parts), width), np.int64), 0
    for part, data in zip(parts, contents, strict=True):
        room = matrix[row : row + part.rows]
        row += part.rows
        if not _is_pooled(layout):
            _unpack(room, part, data)
            continue
        frame = pl.read_ipc(io.BytesIO(data))
        encode(frame, layout, pool, room)
        for at in range(layout.width, width):
            room[:, at] = frame[f"\0{at - layout.width}"].to_numpy()
    return matrix


def chunks(updates: np.ndarray, layout: Layout, pool: Pool) -> Iterator[bytes]:
    """Yield updates as chunks of bytes, each readable by itself: of `CHUNK` bytes of lanes at most, unless a single update is larger."""
    rows = max(CHUNK // (updates.shape[1] * WIDE), 1)
    for start in range(0, len(updates), rows):
        some = updates[start : start + rows]
        part = packed(some, layout, pool)
        if part.size > 2 * CHUNK and len(some) > 1:  # long text: as many more chunks as it is too large
            for at in range(0, len(some), step := max(len(some) * CHUNK // part.size, 1)):
                yield _chunk(packed(some[at : at + step], layout, pool))
        else:
            yield _chunk(part)


def _chunk(part: SpilledPart) -> bytes:
    head = np.array(
        [part.rows, part.width, len(part.lanes), *(number for lane in part.lanes for number in lane)], np.int64
    )
    return b"".join((head.data, *part.buffers))


def from_chunks(found: Sequence[bytes], layout: Layout, pool: Pool) -> np.ndarray:
    """Return the updates of some chunks, at least one, in a matrix."""
    parts, starts = zip(*map(_head, found), strict=True)
    contents = (memoryview(chunk)[start:] for chunk, start in zip(found, starts, strict=True))
    return unpacked(parts, contents, layout, pool)


def _head(chunk: bytes) -> tuple[SpilledPart, int]:
    """Return the part of a chunk without its bytes, and where these begin."""
    rows, width, count = np.frombuffer(chunk, np.int64, 3).tolist()
    numbers = np.frombuffer(chunk, np.int64, 2 * count, 3 * WIDE).tolist()
    start = (3 + 2 * count) * WIDE
    lanes = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return SpilledPart(rows, width, len(chunk) - start, lanes, ()), start


def _is_pooled(layout: Layout) -> bool:
    return any(kind.kind in POOLED for kind in layout.schema.values())


def _columns(updates: np.ndarray, layout: Layout, pool: Pool) -> SpilledPart:
    """Return updates as columns, which carry the values behind their hashes."""
    frame = decode(updates, layout, pool)
    tail = [series_of(f"\0{at}", updates[:, layout.width + at].copy()) for at in range(updates.shape[1] - layout.width)]
    data = io.BytesIO()
    frame.with_columns(tail).write_ipc(data)
    written = memoryview(data.getvalue())
    return SpilledPart(len(updates), updates.shape[1], written.nbytes, (), (written,))


def _packed(updates: np.ndarray) -> SpilledPart:
    """Return lanes as differences from their least value, in as few bytes as these need: none where a lane has one value."""
    lanes, buffers = [], []
    for lane in range(updates.shape[1]):
        column = updates[:, lane]
        least = int(column.min())
        span = int(column.max()) - least
        size = next((size for size, kind in KINDS.items() if span < 1 << 8 * size), 8) if span else 0
        lanes.append((least if size < WIDE else 0, size))
        if size:
            moved = column if size == WIDE else column - least
            buffers.append(moved.astype(KINDS.get(size, np.int64)).data.cast("B"))
    return SpilledPart(
        len(updates), updates.shape[1], sum(buffer.nbytes for buffer in buffers), tuple(lanes), tuple(buffers)
    )


def _unpack(room: np.ndarray, part: SpilledPart, data: Bytes) -> None:
    """Write the lanes of a part to `room`; its buffers are one after the other in `data`."""
    start = 0
    for lane, (least, size) in enumerate(part.lanes):
        if not size:
            room[:, lane] = least
            continue
        stored = np.frombuffer(data, KINDS.get(size, np.int64), part.rows, start)
        np.add(stored, np.int64(least), out=room[:, lane], casting="unsafe")
        start += size * part.rows


def _read_whole(file: BinaryIO, size: int, path: Path) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = file.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise EngineError("the scratch file is shorter than the data written to it", place=str(path))
        rest = rest[count:]
    return data


ROOM = 64 << 20
"""Bytes after which a file is written, and another begun."""


@frozen
class Sent:
    """A part that waits at an address: in which file of the scratch directory, and from which byte on."""

    to: Address
    file: str
    start: int
    part: SpilledPart

    @property
    def size(self) -> int:
        """The bytes that it is in memory."""
        return self.part.unpacked


@dataclass
class FileExchange:
    """The exchange of one attempt at a task: its reads and its writes (the engine's protocol `Exchange`).

    `incoming` are the parts that others have sent to where the task looks. `sent` is all that it sent itself, once `flush` was called.
    """

    directory: Path
    files: Files
    name: str
    incoming: Mapping[Address, Iterable[Sent]]
    sent: list[Sent] = field(default_factory=list)
    _held: list[tuple[Address, SpilledPart]] = field(default_factory=list)
    _bytes: int = 0
    _written: int = 0

    def add(self, to: Address, updates: np.ndarray, layout: Layout, pool: Pool) -> None:
        """Send updates."""
        part = packed(updates, layout, pool)
        self._held.append((to, part))
        self._bytes += part.size
        if self._bytes >= ROOM:
            self.flush()

    def take(self, at: Address, layout: Layout, pool: Pool, *, last: bool) -> np.ndarray | None:
        """Return the updates sent to an address, None if there are none. They stay: the attempt may fail, and another read them."""
        parts, contents = self._sent(at)
        return unpacked(parts, contents, layout, pool) if parts else None

    def parts(self, at: Address, layout: Layout, pool: Pool) -> list[np.ndarray]:
        """Return the updates sent to an address, each part as it was sent."""
        return [unpacked([part], [data], layout, pool) for part, data in zip(*self._sent(at), strict=True)]

    def _sent(self, at: Address) -> tuple[list[SpilledPart], Iterator[bytes]]:
        """Return the parts sent to an address, file by file, and the bytes of each as they are read."""
        by_file: dict[str, list[Sent]] = defaultdict(list)
        for sent in self.incoming.get(at, ()):
            by_file[sent.file].append(sent)
        ranges = {file: [(s.start, s.start + s.part.size) for s in group] for file, group in by_file.items()}
        contents = (data for file, each in ranges.items() for data in _ranges(self.directory / file, each))
        return [sent.part for group in by_file.values() for sent in group], contents

    def flush(self) -> None:
        """Write the held updates to a file."""
        if not self._held:
            return
        file = f"{self.name}-{self._written:04d}"
        self._written += 1
        start = 0
        buffers: list[bytes | memoryview] = []
        for to, part in self._held:
            self.sent.append(Sent(to, file, start, replace(part, buffers=())))
            buffers += part.buffers
            start += part.size
        self.files.write(self.directory / file, b"".join(buffers))
        self._held.clear()
        self._bytes = 0


@contextmanager
def scratch(directory: Path, files: Files) -> Iterator[Path]:
    """Make the scratch directory of a state; in the end it is removed, with all files of tasks."""
    place = directory / SPILL
    files.make_directory(place)
    try:
        yield place
    finally:
        clear_scratch(place, files)


def _ranges(path: Path, ranges: list[tuple[int, int]]) -> list[bytes]:
    try:
        found = [bytes(each) for each in fs(path).read_ranges(ranges)]
    except OSError as error:
        raise EngineError(
            f"cannot read the updates that another task sent: {error.strerror or error}",
            place=str(path),
            hint="the state must be at a path that all executors can open",
        ) from error
    if any(len(data) != end - start for data, (start, end) in zip(found, ranges, strict=True)):
        raise EngineError("the scratch file is shorter than the data written to it", place=str(path))
    return found
