"""Access to the files of a state and of outputs: no link is followed on the way to one, and only plain files are opened.

The directory of a state or of an output is resolved once, when a person names it (`real`): links above it are its owner's. From then
on a link in a path would be an intruder's. So a directory is opened part by part without following any, files
are opened relative to it, and anything but a plain file (a link, a pipe, a device) is refused before it is opened: StateError.
`fs` returns a path's operations in its own file system: on this machine, or in an object store, whose paths are used as they are.
`locate` returns the path for a text in a pipeline file or a manifest, and `relative` the text. Imports no third-party library.
"""

from __future__ import annotations

import errno
import mmap
import os
import posixpath
import re
import stat
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar

from ddcli.errors import EngineError, InputError, StateError, UsageError
from ddcli.store.files.buckets import SCHEMES
from ddcli.store.files.objects import DirectoryEntry, ObjectPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Bytes = bytes | bytearray | memoryview | mmap.mmap

AnyPath = TypeVar("AnyPath", bound="Path")

LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""The flags with which a directory on a path is opened: that needs no permission to list it."""
PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
OPENED = "/proc/self/fd"
"""The directory in which Linux shows the file of a descriptor."""
LARGEST, SMALL = 1 << 30, 1 << 20
"""The bytes of the largest file of a state, or of a log's progress, that is read into memory as a whole."""
LARGE = 1 << 20
"""Bytes of a file that the system begins to write out at once."""
WRITE = 2
"""Linux's SYNC_FILE_RANGE_WRITE."""
UNLINKABLE = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
"""The errors of file systems that have no room for another name of a file, or no such names."""
REMOVE = "remove it if it doesn't belong there; `dd` follows no links below the directory of a state or an output"


def real(path: AnyPath) -> AnyPath:
    """Return the path of a state's or output's directory without links. Loops stay as they are, and are refused when they are opened."""
    if not fs(path).is_local:
        return path
    text = os.fspath(path)
    found = _resolved(text) or os.path.realpath(text)
    return path if found == text else type(path)(found)


@contextmanager
def parent(path: Path) -> Iterator[int]:
    """Yield a descriptor of the directory that has a path, reached through no link. Raises OSError, and StateError for a link."""
    descriptor = _directory(os.path.dirname(os.path.abspath(path)))  # noqa: PTH100, PTH120 - files are opened by text
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_plain(path: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Return a descriptor of a plain file, which exists or may be made (O_CREAT). Raises OSError, and StateError for anything else.

    A file that may be written to has no second name elsewhere.
    """
    with parent(path) as directory:
        if not flags & os.O_EXCL:
            try:
                _refuse_others(path, os.stat(path.name, dir_fd=directory, follow_symlinks=False), flags)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
        descriptor = os.open(path.name, flags | PLAIN, mode, dir_fd=directory)
    try:
        _refuse_others(path, os.fstat(descriptor), flags)  # it may have changed since
    except StateError:
        os.close(descriptor)
        raise
    return descriptor


def open_directory(path: Path) -> int:
    """Return a descriptor of a directory that can be listed and flushed. Raises OSError, and StateError for a link."""
    above = _directory(os.path.abspath(path))  # noqa: PTH100 - as above
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)
    finally:
        os.close(above)


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file for reading. Raises FileNotFoundError where there is none, StateError where it may not be read, EngineError where the disk fails.

    So does an error of the system while it is read, also by polars, which names no file.
    """
    try:
        file: BinaryIO = fs(path).open("rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from None
    with file:
        try:
            yield file
        except OSError as error:
            if error.filename is not None:  # of another file
                raise
            raise unreadable(path, error) from None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have errors of the system name a file that is read: errors of a read, unlike errors of opening it, name none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """Return the content of a plain file. Raises FileNotFoundError where there is none, StateError where it can't be read.

    One of more than `most` bytes is refused (StateError): a file with holes takes no room on a disk, and all memory here.
    """
    with reading(path) as file:
        size = file.seek(0, os.SEEK_END) if fs(path).is_local else 0  # of an object it is another request
        file.seek(0)
        data = file.read() if size <= most else b""
    if max(size, len(data)) > most:
        raise StateError(f"the file has more than {most:,} bytes", place=str(path), hint=REMOVE)
    return data


def read_given(path: Path) -> bytes:
    """Return the content of a small file that isn't ours, perhaps behind links. Raises OSError, and InputError for anything but a file."""
    if isinstance(path, ObjectPath):
        data = path.read_small(SMALL)
    else:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError("it is not a plain file", place=str(path), hint="put a file in its place, or remove it")
        data = path.read_bytes() if found.st_size <= SMALL else None
    if data is None:
        raise InputError(
            f"the file has more than {SMALL:,} bytes", place=str(path), hint="put the right one in its place"
        )
    return data


def fs(path: Path) -> Disk | ObjectPath:
    """Return the operations on a path in its file system: both classes have them, so a caller asks for what it needs, not for the class."""
    return path if isinstance(path, ObjectPath) else Disk(path)


class Disk:
    """The operations on a path of this machine, which follow no links and leave alone all but plain files. `ObjectPath` has those on an object."""

    is_local = True
    """True: the files are on this machine, so that a look costs no request, and a file can be mapped."""
    has_directories = True
    """True: there are directories, which have to be made, and may be empty. False: they are the beginnings of names."""
    is_durable = False
    """True: a file that is written appears whole, and stays. False: it must be flushed, and renamed to its name, to be so."""
    at_once = 8
    """The operations that wait at one time: a disk flushes eight files in little more time than one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, _mode: Literal["rb"]) -> BinaryIO:
        """Open the file for reading."""
        return os.fdopen(open_plain(self._path), "rb")

    def size(self) -> int:
        """Return the size of a plain file. Raises OSError, and StateError for anything else."""
        with parent(self._path) as directory:
            found = os.stat(self._path.name, dir_fd=directory, follow_symlinks=False)
        _refuse_others(self._path, found, os.O_RDONLY)
        return found.st_size

    def exists(self) -> bool:
        """Return whether there is something of this name, a link too."""
        try:
            with parent(self._path) as directory:
                os.stat(self._path.name, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise unreadable(self._path, error) from None
        return True

    def is_dir(self) -> bool:
        """Return whether there is a directory. A link is refused: StateError."""
        try:
            os.close(_directory(os.path.abspath(self._path)))  # noqa: PTH100 - as above
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise unreadable(self._path, error) from None
        return True

    def entries(self, *forms: re.Pattern[str]) -> list[DirectoryEntry]:
        """Return the entries of a directory, in order, whose names have one of the forms, or any; none if it does not exist.

        Raises StateError for a link, and for a directory that can't be listed.
        """
        try:
            descriptor = open_directory(self._path)
            try:
                with os.scandir(descriptor) as found:
                    known = [
                        (each.name, each.is_dir(follow_symlinks=False), each.is_file(follow_symlinks=False))
                        for each in found
                        if not forms or any(form.fullmatch(each.name) for form in forms)
                    ]
                # By name: to compare paths takes ten times as long.
                return [DirectoryEntry(self._path / name, directory, file) for name, directory, file in sorted(known)]
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise unreadable(self._path, error) from None

    def beginning(self, name: str) -> Iterable[Path]:
        """Return the files in a directory whose names begin with a text, in order."""
        return [each.path for each in self.entries() if each.file and each.path.name.startswith(name)]

    def files_below(self) -> Iterator[Path]:
        """Yield every file below a directory, and links to files."""
        return (path for path in self._path.rglob("*") if path.is_file())

    def tag(self) -> str:
        """Return the mark that a store gives to an object's content; "" for a file, which has none."""
        return ""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return some ranges [start, end) of the file's bytes; less where it ends before."""
        with reading(self._path) as file:
            return [file.read(end - file.seek(start)) for start, end in ranges]

    def put(self, data: Bytes) -> None:
        """Write the file whole: a new one, as one of its name may have another name elsewhere."""
        descriptor = self.new()
        try:
            write_all(descriptor, data)
            if memoryview(data).nbytes >= LARGE and (begin := _sync_file_range()) is not None:
                begin(descriptor, 0, 0, WRITE)  # so that a later flush has little to wait for
        finally:
            os.close(descriptor)

    def new(self) -> int:
        """Return a descriptor of a new, empty file, in place of the one before."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            return open_plain(self._path, flags)
        except FileExistsError:
            self.unlink()
            return open_plain(self._path, flags)

    def copy_to(self, target: Path) -> None:
        """Give the file another name beside its own; copy it where no link to it can be made."""
        with parent(self._path) as before, parent(target) as after:
            with suppress(FileNotFoundError):  # of a dead attempt
                os.unlink(target.name, dir_fd=after)
            try:
                os.link(self._path.name, target.name, src_dir_fd=before, dst_dir_fd=after, follow_symlinks=False)
            except OSError as error:
                if error.errno not in UNLINKABLE:
                    raise
                Disk(target).put(read_bytes(self._path))

    def replace(self, target: Path) -> None:
        """Rename the file in one step; it replaces the file of that name."""
        with parent(self._path) as before, parent(target) as after:
            os.replace(self._path.name, target.name, src_dir_fd=before, dst_dir_fd=after)

    def unlink(self) -> None:
        """Remove the file, or the link; one that is gone already is no error."""
        with suppress(FileNotFoundError), parent(self._path) as directory:
            os.unlink(self._path.name, dir_fd=directory)


def write_all(descriptor: int, data: Bytes) -> None:
    """Write bytes to an opened file."""
    rest = memoryview(data).cast("B")
    while rest:  # one call writes at most 2 GiB, and less when the disk is nearly full
        rest = rest[os.write(descriptor, rest) :]


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's call with which the system begins to write a file to the disk; None elsewhere."""
    import ctypes

    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call


LIMITS = dict.fromkeys((errno.EMFILE, errno.ENFILE), "let a process open more files, `ulimit -n`")
LIMITS |= {errno.EFBIG: "let a process write larger files, `ulimit -f`"}
"""The hints for limits of the process, by the number of the error."""
FAILED = {errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO}
"""The errors of a disk, or of one that is far, that fails."""


def unreadable(path: Path, error: OSError) -> StateError | EngineError:
    """Return the error for a file that can't be read: an error of the disk, or of the file's permissions."""
    number = error.errno or 0
    if found := re.search(r"os error (\d+)", str(error)):  # as polars words it
        number = int(found[1])
    problem = f"the file can't be read: {os.strerror(number) if number else error}"
    if number in FAILED:
        return EngineError(problem, place=str(path), hint="fix the disk, then run again")
    return StateError(problem, place=str(path), hint=LIMITS.get(number, "see its permissions"))


def _resolved(path: str) -> str | None:
    """Return an existing path without links, as the system knows it; None if the system can't return it. To resolve it part by part takes ten times as long."""
    if not hasattr(os, "O_PATH"):
        return None
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = os.readlink(f"{OPENED}/{descriptor}")  # noqa: PTH115 - as below
        return found if os.path.samestat(os.fstat(descriptor), os.lstat(found)) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _directory(path: str) -> int:
    """Return a descriptor of a directory whose path has no link. Raises OSError, and StateError for a link on the way."""
    try:
        descriptor = os.open(path, LOOK)
    except FileNotFoundError:
        above, name = os.path.split(path)
        at = _directory(above)
        try:
            return _below(name, at, path)
        finally:
            os.close(at)
    except OSError:
        return _stepwise(path)
    try:
        if os.readlink(f"{OPENED}/{descriptor}") == path:  # noqa: PTH115 - one look, not one a part
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return _stepwise(path)


def _stepwise(path: str) -> int:
    """Open a directory part by part (see `_directory`)."""
    at, gone = os.open("/", LOOK), "/"
    try:
        for name in filter(None, path.split("/")):
            gone = f"{gone.rstrip('/')}/{name}"
            below = _below(name, at, gone)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at


def _below(name: str, at: int, path: str) -> int:
    """Open a directory in another one; its `path` is for messages."""
    try:
        return os.open(name, LOOK, dir_fd=at)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK} and _is_link(name, at):
            raise _link(path) from None
        raise


def _is_link(name: str, at: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)


def _link(path: str) -> StateError:
    return StateError("there is a link where a directory or file of our own should be", place=path, hint=REMOVE)


def _refuse_others(path: Path, found: os.stat_result, flags: int) -> None:
    """Refuse anything but a plain file, and a file with other names that would be written to: StateError."""
    if stat.S_ISLNK(found.st_mode):
        raise _link(str(path))
    if not stat.S_ISREG(found.st_mode):
        raise StateError("it is not a plain file", place=str(path), hint=REMOVE)
    if flags & (os.O_WRONLY | os.O_RDWR) and found.st_nlink > 1:
        raise StateError("the file has another name elsewhere, too", place=str(path), hint=REMOVE)


def locate(base: Path, text: str) -> Path:
    """Return the path for a text in a pipeline file or a manifest beside `base`: relative to it, absolute or a URL.

    Raises UsageError where a name in it is not UTF-8: neither Parquet's readers nor a manifest can name such a file.
    """
    # The key has the class of the path, too: paths of a file system and of an object store may be equal.
    return _located(type(base), base, text)


@lru_cache(maxsize=1 << 12)
def _located(_kind: type[Path], base: Path, text: str) -> Path:
    """Return the path that `locate` returns: a run asks for the same few paths again and again."""
    path = text if isinstance(base, ObjectPath) else f"{base}/{text}"
    if not is_utf8(path):
        raise UsageError("the path is not UTF-8", place=path, hint="rename the file or the directory")
    if (
        "://" in text or f"{text.partition('/')[0]}//" in SCHEMES
    ):  # as `Path` writes it, `s3:/bucket`: refused, as it is no directory here
        return ObjectPath.parse(text)
    if isinstance(base, ObjectPath) and not text.startswith("/"):
        return ObjectPath(posixpath.normpath(posixpath.join(base.inner, text)))
    return Path(os.path.normpath(base / text if not isinstance(base, ObjectPath) else text))


def is_utf8(path: str) -> bool:
    """Return whether a path is UTF-8; Python has bytes of it that are not as lone surrogates."""
    return path.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in path)


def relative(path: Path, base: Path) -> str:
    """Return the text from which `locate` finds a path again, also when both have moved together."""
    if isinstance(path, ObjectPath) and isinstance(base, ObjectPath) and path.parts[1] == base.parts[1]:
        return posixpath.relpath(path.inner, base.inner)
    if isinstance(path, ObjectPath) or isinstance(base, ObjectPath):
        return str(path)
    return os.path.relpath(path, base)
