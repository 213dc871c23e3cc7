"""Object stores: a path `s3://bucket/key`, `gs://bucket/key` or `az://container/key` with the operations that the store uses on files.

There are no directories: a listing has the keys with one prefix; an object appears whole or not at all, and is durable when its
put has returned, so nothing is flushed; a rename is a copy and a removal.

What a commit relies on is the same in all three: a listing has every object that was put before it; an object is created only
if there is none of its name; it is replaced only if its version is still the known one (an entity tag in S3 and Azure, a
generation in Google's store).
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import stat
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path, PosixPath, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ddcli.errors import EngineError, UsageError, first_line
from ddcli.store.files.buckets import ABFSS, SCHEMES, WRITTEN, bucket, container_of, library, quoted, remedy

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

UPLOADS = 8
"""Parts of an object that are on their way together."""
COPIED = 5 << 30
"""Bytes of the largest object that a store copies by itself: S3's limit."""
BLOCK = 16 << 20
"""Bytes that are in memory together of an object that is copied through here."""
PART = 16 << 20
"""Bytes of a part of an object that is written piece by piece, if no size is expected."""
PARTS = 9 << 10
"""Parts of such an object at most: stores take 10 000."""
COPY_OF = "dd-copy-of"
"""The entry of a copy's metadata with the tag of its original: tags of equal objects may differ."""
FETCHED_TOGETHER = 1 << 16
"""Bytes that the first request of a reader fetches: most footers are smaller."""


class DirectoryEntry(NamedTuple):
    """A name in a directory: a directory's, a plain `file`'s, or another's."""

    path: Path
    directory: bool
    file: bool
    tag: str | None = None
    """The entity tag of an object."""


class ObjectPath(PosixPath):
    """An object, or all objects with its key as prefix. As a path it is `/s3:/bucket/key`, as text `s3://bucket/key`.

    Reads and listings work as a path's do. A path's other methods, and functions that open files by name, are refused: they would
    work on this machine's disk. Raises FileNotFoundError, and EngineError (exit code 5) for all other failures.
    """

    is_local = has_directories = False  # see `access.Disk`
    is_durable = True
    at_once = 64
    """Each request takes some 20 ms at the store, and next to nothing here."""

    @classmethod
    def parse(cls, url: str) -> ObjectPath:
        """Return the path of a URL, without `..` and doubled slashes."""
        if azure := ABFSS.fullmatch(url):
            url = f"az://{container_of(url, *azure.groups(''))}"
        scheme, _, rest = url.partition("://")
        inner = posixpath.normpath("/" + rest.lstrip("/"))
        if f"{scheme}://" not in SCHEMES or inner == "/":
            raise UsageError(f"'{url}' is not a path of an object store", hint=WRITTEN)
        return cls(f"/{scheme}:{inner}")

    def __str__(self) -> str:
        text = super().__str__()
        return text[1:].replace(":/", "://", 1) if text.startswith("/") else text

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is no file of this machine")

    @property
    def inner(self) -> str:
        """The path as text, `/s3:/bucket/key`."""
        return super().__str__()

    @property
    def key(self) -> str:
        """The key in the bucket."""
        return "/".join(self.parts[3:])

    @property
    def store(self) -> Any:
        """The bucket."""
        _, scheme, name, *_ = *self.parts, "", ""
        return bucket(scheme, name)

    def absolute(self) -> ObjectPath:
        return self

    def resolve(self, strict: bool = False) -> ObjectPath:
        return self

    def exists(self, **_options: bool) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self, **_options: bool) -> bool:
        try:
            self.head()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, **_options: bool) -> bool:
        with self._errors():
            return any(map(len, library().list(self.store, self.key, chunk_size=1)))

    def iterdir(self) -> Generator[ObjectPath, None, None]:
        for path, _ in self.tagged():
            yield path

    def tagged(self) -> Iterator[tuple[ObjectPath, str | None]]:
        """Yield the paths of `iterdir`, each object with its entity tag: as long as that is the same, so are its bytes."""
        with self._errors():
            found = library().list_with_delimiter(self.store, self.key)
        for prefix in found["common_prefixes"]:
            yield self._sibling(prefix), None
        for entry in found["objects"]:
            yield self._sibling(entry["path"]), quoted(entry)["e_tag"]

    def entries(self, *forms: re.Pattern[str]) -> list[DirectoryEntry]:
        """Return what `tagged` yields, in order, as `access.Disk` does: each may be an object, and the beginning of others."""
        with suppress(FileNotFoundError):
            return [
                DirectoryEntry(path, True, True, tag)
                for path, tag in sorted(self.tagged(), key=lambda found: found[0])
                if not forms or any(form.fullmatch(path.name) for form in forms)
            ]
        return []

    def files_below(self) -> Iterator[ObjectPath]:
        """Yield every object with this key as prefix."""
        return (path for path, _ in self.below())

    def below(self) -> Iterator[tuple[ObjectPath, dict[str, Any]]]:
        """Yield every object with this key as prefix, with its entry in the store's listing."""
        with self._errors():
            for some in library().list(self.store, self.key, chunk_size=1000):
                for entry in some:
                    yield self._sibling(entry["path"]), quoted(entry)

    def beginning(self, name: str) -> Iterator[ObjectPath]:
        """Yield the objects below this key whose paths from there on begin with a text. A store lists them in the order of their names."""
        start = f"{self.key}/{name}"
        with self._errors():
            for some in library().list(self.store, self.key, offset=start, chunk_size=1000):
                for entry in some:
                    if not entry["path"].startswith(start):
                        return
                    yield self._sibling(entry["path"])

    def head(self) -> dict[str, Any]:
        """Return the store's report of the object: `size`, `last_modified`, `e_tag`, `version`."""
        with self._errors():
            return quoted(library().head(self.store, self.key))

    def size(self) -> int:
        """Return the bytes of the object."""
        return int(self.head()["size"])

    def tag(self) -> str:
        """Return the tag that distinguishes the object's content from others."""
        return tag_of(self.head())

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        entry = self.head()
        seconds = int(entry["last_modified"].timestamp())
        return os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, entry["size"], seconds, seconds, seconds))

    def read_bytes(self) -> bytes:
        with self._errors():
            return bytes(library().get(self.store, self.key).bytes())

    def read_small(self, most: int) -> bytes | None:
        """Return the bytes of an object, None if it has more than `most`; one request."""
        with self._errors():
            found = library().get(self.store, self.key)
            return bytes(found.bytes()) if found.meta["size"] <= most else None

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Return some ranges of the bytes. They are requested at once, those that are close together as one.

        Stores refuse an empty range, so these are not requested.
        """
        asked = [(start, end) for start, end in ranges if start < end]
        if not asked:
            return [b""] * len(ranges)
        starts, ends = zip(*asked, strict=True)
        with self._errors():
            found = iter(library().get_ranges(self.store, self.key, starts=starts, ends=ends))
        return [next(found) if start < end else b"" for start, end in ranges]

    def open(
        self,
        mode: str = "r",
        *_: Any,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **_options: Any,
    ) -> Any:
        """Open for reading: only what is read is fetched, and more at a time where it is read from end to end."""
        if mode not in {"r", "rt", "rb"}:
            raise io.UnsupportedOperation(mode)
        data = io.BufferedReader(_Ranges(self), FETCHED_TOGETHER)
        return data if mode == "rb" else io.TextIOWrapper(data, encoding, errors, newline)

    def put(
        self,
        data: Any,
        *,
        mode: Literal["overwrite", "create"] | dict[str, Any] = "overwrite",
        attributes: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Write the object whole and return its `e_tag` and `version`.

        `mode` may be "create", or the object's last report, which must still hold: else FileExistsError.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        if isinstance(mode, dict):  # Google's store goes by the version, the others by the tag
            mode = {name: mode[name] for name in ("e_tag", "version") if mode.get(name)}
        with self._errors():
            try:
                return quoted(library().put(self.store, self.key, data, mode=mode, attributes=attributes))
            except (AlreadyExistsError, PreconditionError):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self)) from None

    def appender(self, attributes: dict[str, str] | None = None, *, expected: int = 0) -> Appender:
        """Return a binary file to write the object with, piece by piece. It appears whole when that is closed.

        Its parts are so large that no more than `PARTS` have the `expected` number of bytes.
        """
        part = max(PART, -(-expected // PARTS))
        with self._errors():
            file = library().open_writer(
                self.store, self.key, attributes=attributes, buffer_size=part, max_concurrency=UPLOADS
            )
        return Appender(self, file, part * PARTS, self._errors)

    def replace(self, target: Any) -> ObjectPath:
        """Copy the object to its new name and remove it. In between there are both; done again, it ends the same."""
        self.copy_to(target)
        self.unlink()
        return ObjectPath(target)

    def copy_to(self, target: Any) -> None:
        """Have the store copy the object to another key of its bucket.

        Azure may answer before its copy is whole, so there the bytes pass through this process.
        """
        if self.parts[1] == "az:":
            self._copy_through(target)
        else:
            self._copy_within(target)

    def _copy_within(self, target: Any) -> None:
        """Have the store copy the object to another key of the bucket, or copy it through here if it is too large for that."""
        try:
            with self._errors():
                library().copy(self.store, self.key, target.key)
        except EngineError:
            if self.head()["size"] <= COPIED:
                raise
            self._copy_through(target)

    def copy_apart(self, target: ObjectPath, tag: str) -> bool:
        """Copy the object to a path without an object (else FileExistsError), in any bucket; the copy is marked with the `tag` of the object. Return False where it has another by now.

        The bytes pass through this process: the store itself would not mark the copy, and would replace an object there.
        """
        from obstore.exceptions import PreconditionError

        marked = target.marked(tag)
        if self.head()["size"] <= BLOCK:
            with self._errors():
                try:
                    data = bytes(library().get(self.store, self.key, options={"if_match": tag}).bytes())
                except PreconditionError:
                    return False
            target.put(data, mode="create", attributes=marked)
            return True
        if (
            target.is_file()
        ):  # pieces have no condition: a program that writes to the archive in between breaks its rules
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        try:
            return self._copy_through(target, marked, tag)
        except EngineError:
            if self.head()["e_tag"] == tag:
                raise
            return False

    def marked(self, tag: str) -> dict[str, str]:
        """Return the attributes of this object as the copy of one that had a tag, or of an object in the place of such a copy."""
        return {self._copy_of: tag.strip('"')}

    def copy_of(self) -> str:
        """Return the tag of the original of an object that `copy_apart` made; "" for others."""
        with self._errors():
            found = library().get(self.store, self.key, options={"head": True}).attributes
        return str(found.get(self._copy_of, ""))

    def is_copy(self, tag: str) -> bool:
        """Return whether the object is the copy of one that had a tag."""
        return self.copy_of() == tag.strip('"')

    def _copy_through(self, target: ObjectPath, marked: dict[str, str] | None = None, tag: str = "") -> bool:
        """Copy an object piece by piece: one that is larger than stores copy by themselves. Return False, without a copy, where it has another `tag` by then: pieces are read without a condition."""
        copy = target.appender(marked, expected=self.head()["size"])
        with self.open("rb") as file:
            while block := file.read(BLOCK):
                copy.write(block)
        if tag and self.head()["e_tag"] != tag:
            return False
        copy.close()
        return True

    def unlink(self, missing_ok: bool = False) -> None:
        with suppress(FileNotFoundError), self._errors():
            library().delete(self.store, self.key)  # no error in S3 if it doesn't exist

    def unlink_with(self, others: Sequence[ObjectPath]) -> bool:
        """Remove the object and others of its bucket by requests for a thousand each; return False where the store has none or refuses one: then some may be there yet."""
        scheme, name = self.parts[1:3]
        if scheme == "gs:":
            return False
        try:
            with self._errors():
                library().delete(bucket(scheme, name, retries=0), [self.key, *(other.key for other in others)])
        except (EngineError, FileNotFoundError):
            return False
        return True

    @property
    def _copy_of(self) -> str:
        """The name of the entry of a copy's metadata: Azure's are identifiers."""
        return COPY_OF.replace("-", "_") if self.parts[1] == "az:" else COPY_OF

    def _sibling(self, key: str) -> ObjectPath:
        """Return the path of another key in the bucket."""
        return type(self)(*self.parts[:3], key)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self)) from None
        except (
            BaseError,
            OSError,
        ) as error:  # an object that is written piece by piece raises an OSError without a number
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise EngineError(
                f"the object store refuses or can't be reached: {first_line(error, quotes=False)}",
                place=str(self),
                hint=remedy(self.parts[1]),
            ) from None


def _refused(self: ObjectPath, *_given: object, **_options: object) -> None:
    raise TypeError(f"{self} is no file of this machine")


for _name in {*dir(Path)} - {*dir(PurePosixPath)} - {*vars(ObjectPath)}:
    if not _name.startswith("_"):
        setattr(ObjectPath, _name, _refused)


class Appender:
    """An object of at most `room` bytes that is being written (see `ObjectPath.appender`)."""

    def __init__(
        self, path: ObjectPath, file: Any, room: int, errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._path = path
        self._file = file
        self._room = room
        self._errors = errors

    def write(self, data: Any) -> None:
        """Add some bytes. Raises EngineError if there is no room for them."""
        self._room -= memoryview(data).nbytes
        if self._room < 0:
            raise EngineError(
                "the object has more bytes than its store takes in parts of this size",
                place=str(self._path),
                hint="let the first run read a part of the inputs only, and the next one the rest; or write to a disk",
            )
        with self._errors():
            self._file.write(data)

    def close(self) -> None:
        """Have the object appear."""
        with self._errors():
            self._file.close()


class _Ranges(io.RawIOBase):
    """An object as a file. A request fetches what is asked for; where reads follow each other, twice as much as the one before, up to `BLOCK`."""

    def __init__(self, path: ObjectPath) -> None:
        super().__init__()
        self._path = path
        self._at = 0
        self._ahead = memoryview(b"")
        self._next = 0

    @cached_property
    def _size(self) -> int:
        """The size of the object; a request."""
        return int(self._path.head()["size"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = offset + (self._at if whence == os.SEEK_CUR else self._size if whence == os.SEEK_END else 0)
        if at != self._at:
            self._at, self._ahead, self._next = at, self._ahead[:0], 0
        return at

    def readinto(self, buffer: Any) -> int:
        if not self._ahead:
            size = max(len(buffer), self._next)
            self._next = min(2 * size, BLOCK)
            (data,) = self._path.read_ranges([(self._at, min(self._at + size, self._size))])
            self._ahead = memoryview(data)
        count = min(len(buffer), len(self._ahead))
        buffer[:count] = self._ahead[:count]
        self._at, self._ahead = self._at + count, self._ahead[count:]
        return count

    def readall(self) -> bytes:
        if not self._at:
            data = self._path.read_bytes()
            self._at = len(data)
            return data
        (data,) = self._path.read_ranges([(self._at, self._size)])
        self._at, self._ahead = self._size, self._ahead[:0]
        return bytes(data)


def tag_of(entry: dict[str, Any]) -> str:
    """Return the tag that distinguishes an object's content from others, by its entry in the store's listing."""
    return entry["e_tag"] or str(int(entry["last_modified"].timestamp()))
