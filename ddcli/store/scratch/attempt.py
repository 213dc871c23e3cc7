"""The files of one attempt at a task, for a transaction that is open elsewhere.

Its batches are in bundles, but for large ones, and in the end it writes an index of all of them (see `batch_lists`): so a task makes two files
for all its shards and arrangements, and the driver need not list its batches anew. All these have their own names at once, as no manifest names them yet; the parts of
outputs have temporary ones. No reader opens files that the transaction doesn't adopt, because the attempt failed or another was quicker: the next sweep removes them.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import DdError
from ddcli.store.batch.checked_files import OpenBundles
from ddcli.store.files.gate import Files, PendingWrites, Written, checksum, temporary
from ddcli.store.log.joint_files import JointFile
from ddcli.store.state.batch_lists import BUNDLES, BatchList, Bundle, fits, inside, list_bytes
from ddcli.store.state.contents import batch_directory, batch_path
from ddcli.store.state.register import SEGMENTS, Segment
from ddcli.store.state.transaction import StateFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.store.state.batch_lists import Listed
    from ddcli.store.state.entries import FileEntry

ALONE = 8 << 20
"""The bytes of the largest batch in a bundle."""
FULL = 32 << 20
"""Bytes after which a bundle is written, and the next one begun: it is in memory until then."""


@dataclass
class Attempt:
    """Writes files for the commit with a number into a state's directory and outputs' directories; `name` is no other attempt's.

    Objects are on their way while the task continues: it has to `finish` the attempt before it hands over their names.
    """

    directory: Path
    number: int
    name: str
    files: Files = field(default_factory=Files)
    _paths: list[Path] = field(default_factory=list)
    _joint: list[JointFile] = field(default_factory=list)
    _bundles: dict[str, int] = field(default_factory=dict)
    _bundle: Bundle = field(default_factory=Bundle)
    _places: dict[tuple[str, int, str], tuple[str, int]] = field(default_factory=dict)
    """The bundle of each batch, and where it begins in it; none of one that has a file of its own."""
    _opened: OpenBundles = field(default_factory=OpenBundles)
    _pending: PendingWrites = field(init=False)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._pending = PendingWrites(self.files)

    def placed(self, arrangement: str, shard: int, file: FileEntry) -> FileEntry:
        """Return the entry of a batch; of one that this attempt has written, with its place."""
        place = self._places.get((arrangement, shard, file.name))
        return file if place is None else replace(file, bundle=place[0], at=place[1])

    def has_made(self, arrangement: str, shard: int, file: FileEntry) -> bool:
        """Return whether this attempt has written a batch."""
        return (arrangement, shard, file.name) in self._places

    def finish(self, batches: Sequence[Listed]) -> StateFiles:
        """Write the last bundle, and an index of all added `batches`; wait for all writes, and raise the first error."""
        self._put_bundle()
        index = None
        if batches:
            path = self.directory / SEGMENTS / f"{self._next()}.json"
            self._paths.append(path)
            written = self._write(path, list_bytes(batches))
            segment = Segment(path.name, written.size, written.checksum, len(batches))
            index = BatchList(segment, tuple(batches))
        self._pending.finish()
        return StateFiles(tuple(self._paths), self._bundles, index)

    def abandon(self) -> StateFiles:
        """Wait for all writes, also those that fail; return the paths, for their removal."""
        for joint in self._joint:  # an object in the making would never be removed
            with suppress(DdError, OSError):
                joint.close()
        with suppress(DdError, OSError):
            self._pending.finish()
        return StateFiles(tuple(self._paths))

    def add_batch(self, arrangement: str, shard: int, data: bytes | memoryview) -> tuple[str, Written]:
        """Write a batch of an arrangement's shard, or put it into a bundle; return its name, and its size and checksum."""
        name = f"{self._next()}.parquet"
        return name, self._put(arrangement, shard, name, data)

    def move(self, arrangement: str, shard: int, file: FileEntry) -> FileEntry:
        """Write a batch of an older bundle anew, under its name; return its entry, which `placed` completes."""
        data = self._opened.read_checked(batch_path(self.directory, arrangement, shard, file), file)
        self._put(arrangement, shard, file.name, data)
        return file

    def _put(self, arrangement: str, shard: int, name: str, data: bytes | memoryview) -> Written:
        size, member = memoryview(data).nbytes, inside(arrangement, shard, name)
        if fits(member, size, ALONE):
            with self._lock:
                self._places[arrangement, shard, name] = f"{self._stem()}.tar", self._bundle.add(member, bytes(data))
                if self._bundle.size >= FULL:
                    self._put_bundle()
            return Written(size, checksum(data))
        path = batch_directory(self.directory, arrangement, shard) / name
        self._paths.append(path)
        self._places[arrangement, shard, name] = "", 0
        return self._write(path, data)

    def _put_bundle(self) -> None:
        """Write the bundle, if there is anything in it, and begin another."""
        if not self._bundle.size:
            return
        path = self.directory / BUNDLES / f"{self._stem()}.tar"
        self._paths.append(path)
        self._bundles[path.name] = self._write(path, self._bundle.content()).size
        self._bundle = Bundle()

    def _stem(self) -> str:
        """Return the name of the bundle that is being filled, without its ending."""
        return f"{self.number:09d}-{self.name}-b{len(self._bundles)}"

    def join_output(self, directory: Path, expected: int = 0) -> JointFile:
        """Return a file of an output to add parts to, of the `expected` bytes at least, under a temporary name."""
        joint = JointFile(self.files, temporary(directory / f"{self._next()}.parquet", self.number), expected)
        self._joint.append(joint)
        return joint

    def _next(self) -> str:
        with self._lock:
            self._count += 1
            return f"{self.number:09d}-{self.name}-{self._count:04d}"

    def _write(self, path: Path, data: bytes | memoryview) -> Written:
        self.files.make_directory(path.parent)
        written = self._pending.add(path, data)
        self.files.sync(path)  # here: the machine that commits may have no part in these bytes
        return written
