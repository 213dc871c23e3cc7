"""The gate of all writes of the store, so that a test can fail, cut or record each of them.

Its functions write a file whole, flush, rename or remove it, and return its size and checksum; callers decide when. No link is
followed on the way to a file (see `access`), and a written file is always a new one, which replaces another of its name.
"""

from __future__ import annotations

import os
import threading
import zlib
from contextlib import suppress
from errno import EACCES, EPERM, EROFS
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from ddcli.dataclass import frozen
from ddcli.errors import EngineError, LockedError
from ddcli.store.files import access
from ddcli.store.files.access import Bytes, Disk, fs
from ddcli.store.files.objects import ObjectPath

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor
    from pathlib import Path

Result = TypeVar("Result")

INVISIBLE = "nothing of this run is visible"
"""The fact after a file could not be written: its writer commits later."""
TEMPORARY = ".dd-tmp"
"""The suffix of files that no reader may open yet."""


def checksum(data: Bytes, start: int = 0) -> str:
    """Return the checksum of bytes that the state keeps beside each file's size: CRC-32 in hexadecimal.

    It notices damage, not an adversary. CRC-32 misses no flipped byte and no burst of up to 32 bits; zlib's runs
    at 4.0 GiB/s where sha256 runs at 1.7 and blake2b at 0.9, so that checking a batch costs a tenth of decoding it.
    `start` is the value (`int(text, 16)`) of the bytes before these.

    >>> checksum(b"batch")
    'f80b52d4'
    """
    return f"{zlib.crc32(data, start):08x}"


@frozen
class Written:
    """The size and checksum that a file must have from now on."""

    size: int
    checksum: str


MANY = 4
"""Files that are worth threads."""
PENDING = 32 << 20
"""Bytes of files that may be on their way to an object store while the run continues."""


def side_by_side(action: Callable[[Path], object], paths: Sequence[Path]) -> None:
    """Apply an action to each of some paths, several at a time if they are many; raise the first error when all are done."""
    if len(paths) < (MANY if all(fs(path).is_local for path in paths) else 2):
        for path in paths:
            action(path)
        return
    from concurrent.futures import wait

    threads = _threads(fs(paths[-1]).at_once)
    done: list[Future[object]] = []
    try:
        done.extend(threads.submit(action, path) for path in paths)
        wait(done)
    finally:  # also after an interrupt: no thread may still be at work when the caller continues
        for each in done:
            each.cancel()
        wait(done)
    for each in done:
        each.result()


def one_by_one(action: Callable[[Path], object], paths: Sequence[Path]) -> None:
    """Apply an action to each of some files, in their order; to objects side by side, as each is a request."""
    for path in paths:
        if fs(path).is_local:
            action(path)
    side_by_side(action, [path for path in paths if not fs(path).is_local])


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Return threads that wait for work as long as the process lives: on a busy machine it takes longer to begin some than to flush files."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(count, "flush")


os.register_at_fork(after_in_child=_threads.cache_clear)


def _way_out(error: OSError) -> str:
    """Return the hint for a file that could not be written."""
    if error.errno in access.LIMITS:
        return f"{access.LIMITS[error.errno]}, then run again"
    if error.errno in (EACCES, EPERM, EROFS):
        return "run as somebody who may write there"
    return "free space or fix the disk, then run again"


class Files:
    """The file operations of the store.

    A test replaces `do`, which every operation passes through with its name and path, and may raise there, act after, or
    leave the action out. Errors of the operating system become `EngineError` (exit code 5) naming the path.
    """

    def do(self, operation: str, path: Path, action: Callable[[], Result]) -> Result:
        """Do one operation on one path. The only place from which the store changes anything."""
        try:
            return action()
        except OSError as error:
            raise EngineError(
                f"cannot {operation} the file: {error.strerror or error}",
                place=str(path),
                hint=f"{INVISIBLE}; {_way_out(error)}",
            ) from error

    def make_directory(self, path: Path, *, flush: bool = True) -> list[Path]:
        """Make a directory and those above it that are missing; return the made ones, outermost first.

        Each new name is flushed in the directory that holds it, as a file is only as durable as the path to it; without `flush` the caller
        has to flush the parents of the made directories.
        """
        missing: list[Path] = []
        while fs(path).has_directories and not fs(path).is_dir():
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            self.do("make", directory, partial(_make, directory))
            if flush:
                self.sync_directory(directory.parent)
        return missing[::-1]

    def write(self, path: Path, data: Bytes) -> Written:
        """Write a whole file, in place of the one before. It is not durable before `sync`."""
        self.do("write", path, partial(fs(path).put, data))
        return Written(memoryview(data).nbytes, checksum(data))

    def append(self, path: Path, *parts: Bytes, begin: bool) -> None:
        """Write at the end of a file, or, to begin, in place of the one before. It is not durable before `sync`."""

        def write_all() -> None:
            descriptor = Disk(path).new() if begin else access.open_plain(path, os.O_WRONLY | os.O_APPEND)
            try:
                for part in parts:
                    access.write_all(descriptor, part)
            finally:
                os.close(descriptor)

        self.do("write", path, write_all)

    def sync(self, path: Path) -> None:
        """Flush a file's bytes to the disk."""
        if not fs(path).is_durable:
            self.do("sync", path, lambda: _sync(access.open_plain(path)))

    def sync_directory(self, path: Path) -> None:
        """Flush a directory's names to the disk, which makes renames in it durable."""
        if not fs(path).is_durable:
            self.do("sync", path, lambda: _sync(access.open_directory(path)))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name; it replaces the file of that name in one step."""
        self.do("rename", source, partial(fs(source).replace, target))

    def link(self, source: Path, target: Path) -> None:
        """Give a file another name beside its own. An object is copied by the store, and so is a file where no link to it can be made."""
        self.do("link", target, partial(fs(source).copy_to, target))

    def create(self, path: Path, data: Bytes, waiting: Path) -> None:
        """Make a file appear whole, with its bytes on the disk; `waiting` is the name that it has until then.

        In an object store it must not exist yet: if two writers create it, one fails (LockedError, exit code 75).
        """
        if fs(path).is_durable:
            if not self.claim(path, data):
                problem, hint = "another run has committed first", "run again to read the new rows"
                raise LockedError(problem, place=str(path), hint=hint)
            return
        self.write(waiting, data)
        self.sync(waiting)
        self.rename(waiting, path)

    def put(self, path: Path, data: Bytes, number: int = 0) -> None:
        """Replace a file at once, or make it; when this returns it is on the disk, and so are the names beside it."""
        if fs(path).is_durable:
            self.write(path, data)
            return
        waiting = temporary(path, number)
        self.write(waiting, data)
        self.sync(waiting)
        self.sync_directory(path.parent)
        self.rename(waiting, path)
        self.sync_directory(path.parent)

    def claim(self, path: Path, data: Bytes) -> bool:
        """Make a file appear whole, unless there is one of its name already: then return False. It is on the disk when this returns."""
        if isinstance(path, ObjectPath):
            return self.do("create", path, partial(_claimed, path, data))
        waiting = temporary(path, 0)
        self.write(waiting, data)
        self.sync(waiting)
        made = self.do("link", path, partial(_link, waiting, path))
        if made:
            self.sync_directory(path.parent)
        self.remove(waiting)
        return made

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is no error."""
        self.do("remove", path, fs(path).unlink)

    def remove_all(self, paths: Sequence[Path]) -> None:
        """Remove files, in their order, and objects a thousand to a request where their store can; one that is gone already is no error."""
        buckets: dict[tuple[str, ...], list[ObjectPath]] = {}
        for path in paths:
            if isinstance(path, ObjectPath):
                buckets.setdefault(path.parts[1:3], []).append(path)
            else:
                self.remove(path)
        for first, *others in buckets.values():
            if len(others) < MANY or not self.do("remove", first, partial(first.unlink_with, others)):
                side_by_side(self.remove, [first, *others])

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; one that is gone already is no error."""
        if fs(path).has_directories:
            self.do("remove", path, partial(_remove_directory, path))


class PendingWrites:
    """Writes of new files; objects are on their way while their writer continues; `finish` waits for them.

    Threads may add some at once. No more than `PENDING` bytes are on their way, but for one file that is larger.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._done: list[Future[Written]] = []
        self._bytes = 0
        self._room = threading.Condition()

    def add(self, path: Path, data: Bytes) -> Written:
        """Write a file, or begin to write an object; return its size and checksum."""
        if fs(path).is_local:
            return self._files.write(path, data)
        size = memoryview(data).nbytes
        with self._room:
            self._room.wait_for(lambda: not self._bytes or self._bytes + size <= PENDING)
            self._bytes += size
            self._done.append(_threads(ObjectPath.at_once).submit(self._write, path, data, size))
        return Written(size, checksum(data))

    def finish(self) -> None:
        """Wait for all writes; raise the first error. After an interrupt none is at work, and those that had not begun never happen."""
        if not self._done:
            return
        from concurrent.futures import wait

        try:
            wait(self._done)
        finally:
            for each in self._done:
                each.cancel()
            wait(self._done)
        done, self._done = self._done, []
        for each in done:
            if not each.cancelled():
                each.result()

    def _write(self, path: Path, data: Bytes, size: int) -> Written:
        try:
            return self._files.write(path, data)
        finally:
            with self._room:
                self._bytes -= size
                self._room.notify_all()


def _claimed(path: ObjectPath, data: Bytes) -> bool:
    try:
        path.put(data, mode="create")
    except FileExistsError:
        return path.read_bytes() == data  # it is ours: the store's answer was lost, and the request made again
    return True


def _link(waiting: Path, path: Path) -> bool:
    with access.parent(path) as directory:
        try:
            os.link(waiting.name, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            return False
    return True


def _make(path: Path) -> None:
    with access.parent(path) as directory:
        try:
            os.mkdir(path.name, dir_fd=directory)
        except FileExistsError:
            if not Disk(path).is_dir():
                raise


def _remove_directory(path: Path) -> None:
    with suppress(FileNotFoundError), access.parent(path) as directory:
        os.rmdir(path.name, dir_fd=directory)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary(path: Path, number: int, mark: str = "") -> Path:
    """Return the name beside `path` under which its content waits for the commit with this number.

    The number distinguishes an attempt's file from one of the commit before it under the same final name: recovery
    would else publish the attempt's file. `mark` distinguishes simultaneous attempts.

    >>> from pathlib import PurePath
    >>> str(temporary(PurePath("out/_progress.json"), 7))
    'out/._progress.json.000000007.dd-tmp'
    """
    return path.with_name(f".{path.name}.{number:09d}{mark}{TEMPORARY}")
