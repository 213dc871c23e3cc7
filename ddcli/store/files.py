"""Every write that the store makes, through one gate, so that a test can fail, cut or record any of them.

Nothing here decides when to write: it writes a file whole, flushes it, renames it, removes it, and says what it wrote.
"""

from __future__ import annotations

import mmap
import os
import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ddcli.errors import EngineError, LockedError
from ddcli.store.objects import ObjectPath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Result = TypeVar("Result")
Bytes = bytes | bytearray | memoryview | mmap.mmap

TEMPORARY = ".dd-tmp"
"""The suffix of every file that nobody may read yet."""


def checksum(data: Bytes, start: int = 0) -> str:
    """Return the checksum of bytes that the state keeps beside each file's size: CRC-32 in hexadecimal.

    It is there to notice damage, not an adversary. CRC-32 misses no flipped byte and no burst of up to 32 bits; zlib's runs
    at 4.0 GiB/s where sha256 runs at 1.7 and blake2b at 0.9, so that checking a batch costs a tenth of decoding it.
    `start` is the value (`int(text, 16)`) of the bytes before these.

    >>> checksum(b"batch")
    'f80b52d4'
    """
    return f"{zlib.crc32(data, start):08x}"


@dataclass(frozen=True, slots=True)
class Written:
    """What a file must be from now on."""

    size: int
    checksum: str


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
                hint="nothing of this run is visible; free space or fix the disk, then run again",
            ) from error

    def make_directory(self, path: Path) -> list[Path]:
        """Make a directory and those above it that are missing; return the made ones, outermost first.

        Each new name is flushed in the directory that holds it: a file is only as durable as the path to it.
        """
        missing: list[Path] = []
        if isinstance(path, ObjectPath):
            return missing
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            self.do("make", directory, partial(directory.mkdir, exist_ok=True))
            self.sync_directory(directory.parent)
        return missing[::-1]

    def write(self, path: Path, data: Bytes) -> Written:
        """Write a whole file, replacing what is there. It is not durable before `sync`."""

        def write_all() -> None:
            if isinstance(path, ObjectPath):
                path.put(data)
                return
            with path.open("wb", buffering=0) as file:
                rest = memoryview(data).cast("B")
                while rest:  # one call writes at most 2 GiB, and less when the disk is nearly full
                    rest = rest[file.write(rest) :]

        self.do("write", path, write_all)
        return Written(memoryview(data).nbytes, checksum(data))

    def sync(self, path: Path) -> None:
        """Flush a file's bytes to the disk."""
        if not isinstance(path, ObjectPath):
            self.do("sync", path, lambda: _sync(path, os.O_RDONLY))

    def sync_directory(self, path: Path) -> None:
        """Flush a directory's names to the disk, which makes renames in it durable."""
        if not isinstance(path, ObjectPath):
            self.do("sync", path, lambda: _sync(path, os.O_RDONLY | os.O_DIRECTORY))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name, replacing what had it, all at once."""
        self.do("rename", source, lambda: source.replace(target))

    def create(self, path: Path, data: Bytes, waiting: Path) -> None:
        """Make a file appear whole, with its bytes on the disk; `waiting` is the name that it has until then.

        In an object store it must not be there yet: of two who create it, one is told so (LockedError, exit code 75).
        """
        if isinstance(path, ObjectPath):
            self.do("create", path, partial(_create, path, data))
            return
        self.write(waiting, data)
        self.sync(waiting)
        self.rename(waiting, path)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is no error."""
        self.do("remove", path, lambda: path.unlink(missing_ok=True))

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; one that is gone already is no error."""

        def remove() -> None:
            if path.is_dir():
                path.rmdir()

        if not isinstance(path, ObjectPath):
            self.do("remove", path, remove)


def _create(path: ObjectPath, data: Bytes) -> None:
    try:
        path.put(data, mode="create")
    except FileExistsError:
        if path.read_bytes() != data:  # else it is ours: the store's answer was lost, and the request made again
            raise LockedError(
                "another run has committed first", place=str(path), hint="run again to take in what is new since"
            ) from None


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary(path: Path, number: int, mark: str = "") -> Path:
    """Return the name beside `path` under which its content waits for the commit with this number.

    The number keeps what an attempt left apart from what the commit before it published under the same final name: recovery
    would else publish the attempt's file. `mark` tells apart two attempts that may be made at the same time.

    >>> from pathlib import PurePath
    >>> str(temporary(PurePath("out/_progress.json"), 7))
    'out/._progress.json.000000007.dd-tmp'
    """
    return path.with_name(f".{path.name}.{number:09d}{mark}{TEMPORARY}")
