"""The bytecode of the modules that commands import, kept in one file: a process of ours reads it instead of some seven hundred.

For each module Python lists folders, looks at its source, and opens, reads and checks a file of its bytecode. A command that imported many modules in that
way keeps them all beside compiled kernels, under the same conditions: nobody else can write there. A module is taken from there while its
source has the same size and time of change, the module path is the same, and its folders are unchanged; else Python finds
it as ever. Only a process of ours does so, never a program that uses us as a library.
"""

from __future__ import annotations

import _imp
import marshal
import mmap
import os
import struct
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source
from types import ModuleType
from typing import TYPE_CHECKING
from zlib import crc32

from ddcli.engine.jit.ownership import DIGEST, find_foreign_owner, is_own, make_room, write_whole
from ddcli.engine.jit.settings import named_dir
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import CodeType

FOLDER = "modules"
MANY = 20
"""Modules found elsewhere from which on all are kept anew, which takes as long as finding some hundreds."""
MOST = 8
"""Files that are kept, one for each environment of packages; the oldest are removed."""
NUMBERS = struct.Struct("<QQ")
"""The head of the file, behind its digest: the length of the table of modules, and its checksum."""
HEAD = 16
"""Bytes before the bytecode in a file of Python's."""
CACHED = cache_from_source("/a.py").removeprefix("/__pycache__/a")
"""The ending of the name of the file in which Python keeps a module's bytecode, where the rest of it is the source's; elsewhere, a path."""
WRONG = (OSError, ValueError, TypeError, EOFError, LookupError, struct.error)
"""The errors of reading a file with content that dd never writes."""


class KeptModule(NamedTuple):
    """A module as it was when its bytecode was kept: its source, the folder that it was found in, and where its bytecode is."""

    source: str
    folder: str
    is_package: bool
    modified: int
    size: int
    start: int = 0
    end: int = 0
    checksum: int = 0

    def is_same(self) -> bool:
        """Return whether the source is unchanged."""
        try:
            status = os.stat(self.source)  # noqa: PTH116 - pathlib is slow, hundreds of times
        except OSError:
            return False
        return (status.st_mtime_ns, status.st_size) == (self.modified, self.size)


class KeptLoader(SourceFileLoader):
    """The loader of a module from its kept bytecode, if that is whole, else from its file."""

    def __init__(self, name: str, kept: KeptModule, part: memoryview) -> None:
        super().__init__(name, kept.source)
        self.checksum, self.part = kept.checksum, part

    def get_code(self, fullname: str) -> CodeType | None:
        with suppress(*WRONG):
            if crc32(self.part) == self.checksum:
                code: CodeType = marshal.loads(self.part)  # noqa: S302 - nobody else could write it
                _imp._fix_co_filename(code, self.path)  # type: ignore[attr-defined]  # noqa: SLF001 - as Python does where a file was compiled elsewhere
                return code
        return super().get_code(fullname)


class Bytecode:
    """The kept bytecode of modules, as a finder for `sys.meta_path`."""

    def __init__(self) -> None:
        self.path, self.before = list(sys.path), frozenset(sys.modules)
        self.origin = (sys.version, sys.flags.optimize, tuple((folder, _changed(folder)) for folder in self.path))
        self.place: Path | None = None
        self.modules: dict[str, KeptModule] = {}
        self.content = memoryview(b"")
        with suppress(*WRONG, RuntimeError):  # of links in a circle
            environment = crc32(repr((sys.version, self.path)).encode())
            self.place = named_dir().resolve() / FOLDER / f"{environment:08x}"
            self._read(self.place)

    def _read(self, place: Path) -> None:
        """Read the kept bytecode, if it is of the same folders. Raises one of `WRONG` if there is none, or another file."""
        with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not is_own(os.fstat(file.fileno())) or find_foreign_owner(place.parent) is not None:
                return
            # The digest of the whole is not checked, as a run takes a part: each module has a checksum of its own.
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[DIGEST:]
        length, checksum = NUMBERS.unpack_from(whole)
        table = whole[NUMBERS.size : NUMBERS.size + length]
        if crc32(table) == checksum:
            origin, modules = marshal.loads(table)  # noqa: S302 - as above
            if origin == self.origin:
                self.modules = {name: KeptModule(*each) for name, each in modules.items()}
                self.content = whole[NUMBERS.size + length :]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module whose bytecode is kept; None if it isn't, or Python might find another module."""
        kept = self.modules.get(name)
        if kept is None or (self.path != sys.path if path is None else kept.folder != path[0]) or not kept.is_same():
            return None
        loader = KeptLoader(name, kept, self.content[kept.start : kept.end])
        found = ModuleSpec(name, loader, origin=kept.source, is_package=kept.is_package)
        found.has_location = True
        if CACHED.startswith("."):  # else Python computes it, which takes as long as all the rest of this
            folder, _, file = kept.source.rpartition("/")
            found.cached = f"{folder}/__pycache__/{file.removesuffix('.py')}{CACHED}"
        if kept.is_package:
            found.submodule_search_locations = [os.path.dirname(kept.source)]  # noqa: PTH120 - as the import system has it
        return found

    def keep(self) -> None:
        """Keep the imported modules, beside those kept before, if many came from files of their own. Raises OSError if they can't be written."""
        new = dict(self._found_elsewhere())
        if self.place is None or sys.dont_write_bytecode or len(new) < MANY:
            return
        modules: dict[str, KeptModule] = {}
        parts: list[bytes | memoryview] = []
        end = 0
        for name, kept in (self.modules | new).items():
            part = _code(name, kept) if name in new else self.content[kept.start : kept.end]
            if kept.is_same():
                modules[name] = kept._replace(start=end, end=end + len(part), checksum=crc32(part))
                parts.append(part)
                end += len(part)
        table = marshal.dumps((self.origin, {name: tuple(kept) for name, kept in modules.items()}))
        folder = self.place.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if find_foreign_owner(folder) is None:
            make_room(folder, MOST)
            write_whole(self.place, b"".join([NUMBERS.pack(len(table), crc32(table)), table, *parts]))

    def _found_elsewhere(self) -> Iterator[tuple[str, KeptModule]]:
        """Yield the modules that came from sources in the folders of the path since this began, and their parts to keep."""
        for name, module in tuple(sys.modules.items()):
            loader = getattr(vars(module).get("__spec__"), "loader", None) if type(module) is ModuleType else None
            if name in self.before or type(loader) is not SourceFileLoader or loader.name != name:
                continue
            source, is_package = loader.path, loader.is_package(name)
            folder = os.path.dirname(source)  # noqa: PTH120 - as above
            if is_package:
                folder = os.path.dirname(folder)  # noqa: PTH120 - as above
            if "." in name or folder in self.path:
                with suppress(OSError):
                    status = os.stat(source)  # noqa: PTH116 - as above
                    yield name, KeptModule(source, folder, is_package, status.st_mtime_ns, status.st_size)


def _code(name: str, kept: KeptModule) -> bytes:
    """Return a module's bytecode from Python's own file of it, which is smaller than a new one by `marshal`."""
    with suppress(OSError):
        with open(cache_from_source(kept.source), "rb") as file:  # noqa: PTH123 - as above
            data = file.read()
        stamp = struct.pack("<III", 0, kept.modified // 10**9 & 0xFFFFFFFF, kept.size & 0xFFFFFFFF)
        if data[:HEAD] == MAGIC_NUMBER + stamp:
            return data[HEAD:]
    return marshal.dumps(SourceFileLoader(name, kept.source).get_code(name))


def _changed(folder: str) -> int | None:
    """Return the time at which a folder's entries last changed; None if there is no such folder."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - as above
    except OSError:
        return None


def use_kept() -> Bytecode:
    """Add a finder of the kept bytecode before Python's own, and return it."""
    found = Bytecode()
    sys.meta_path.insert(sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else 0, found)
    return found
