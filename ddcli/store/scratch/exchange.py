"""Updates that one task sends to others in files that all can open: each attempt at a task writes files of its own.

The scheduler hands each task the places of the parts to read, so no task reads the files of failed attempts. The
run removes the files at its end.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import EngineError
from ddcli.store.files.access import reading
from ddcli.store.files.objects import ObjectPath
from ddcli.store.scratch.spill import SpilledPart, packed, room_for, unpack
from ddcli.store.state.contents import SPILL, clear_scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import numpy as np

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.scope_tree import Address
    from ddcli.store.files.gate import Files

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
        by_file = self._sent(at)
        if not by_file:
            return None
        matrix, row = room_for([sent.part for group in by_file.values() for sent in group]), 0
        for part, data in self._read(by_file):
            unpack(matrix[row : row + part.rows], part, data, layout, pool)
            row += part.rows
        return matrix

    def parts(self, at: Address, layout: Layout, pool: Pool) -> list[np.ndarray]:
        """Return the updates sent to an address, each part as it was sent."""
        found = []
        for part, data in self._read(self._sent(at)):
            found.append(room_for([part]))
            unpack(found[-1], part, data, layout, pool)
        return found

    def _sent(self, at: Address) -> dict[str, list[Sent]]:
        """Return the parts sent to an address, by file."""
        by_file: dict[str, list[Sent]] = defaultdict(list)
        for sent in self.incoming.get(at, ()):
            by_file[sent.file].append(sent)
        return by_file

    def _read(self, by_file: Mapping[str, list[Sent]]) -> Iterator[tuple[SpilledPart, bytes]]:
        """Yield the parts of some files, each with its bytes."""
        for file, group in by_file.items():
            ranges = [(sent.start, sent.start + sent.part.size) for sent in group]
            data = _ranges(self.directory / file, ranges)
            yield from zip((sent.part for sent in group), data, strict=True)

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
        if isinstance(path, ObjectPath):
            return [bytes(found) for found in path.read_ranges(ranges)]
        with reading(path) as file:
            found = []
            for start, end in ranges:
                file.seek(start)
                found.append(file.read(end - start))
    except OSError as error:
        raise EngineError(
            f"cannot read the updates that another task sent: {error.strerror or error}",
            place=str(path),
            hint="the state must be at a path that all executors can open",
        ) from error
    if any(len(data) != end - start for data, (start, end) in zip(found, ranges, strict=True)):
        raise EngineError("the scratch file is shorter than the data written to it", place=str(path))
    return found
