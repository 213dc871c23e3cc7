"""Modules of Python that a pipeline names: found without running any, and imported from the pipeline's folder.

`find` and `reached` read only files and their text, so commands that run no code of a pipeline may call them. `imported` runs a
module, and is the only place that changes `sys.path`: a pipeline's folder is its last entry, and only while a module
in the folder is imported. So a file beside a pipeline never replaces a module of dd or of a library, whatever its name.

A name means one module: a module beside the pipeline with the name of one of the environment is an error, not a choice. Pipelines in
different folders may have different modules of the same name.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import stat
import sys
import threading
import warnings
from dataclasses import field
from functools import lru_cache
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, ModuleType

LARGEST = 1 << 20
"""Bytes of a module's text that are read: its tree takes up to 500 times as much."""


def read(file: str) -> bytes:
    """Return the text of a module. Raises SpecError."""
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except OSError as error:
        raise SpecError(f"{file} can't be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise SpecError(f"{file} is larger than a module may be: {LARGEST >> 20} MiB")
    return data


@lru_cache(maxsize=2)
def parse(data: bytes, file: str) -> ast.Module:
    """Return the tree of a module's text. Raises SpecError if it is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings: the import reports them
            return ast.parse(importlib.util.decode_source(data), file)
    except SyntaxError as error:  # of a text in an unknown encoding, too
        raise SpecError(f"{file}:{error.lineno or 1}: this is not valid Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"{file}: this is not valid Python: {error}") from None


def digest(data: bytes) -> str:
    """Return a digest of a module's text."""
    return hashlib.sha256(data).hexdigest()


ALL = 8 * LARGEST
"""The most bytes in the texts of a module beside a pipeline and of those that it imports."""
WHERE = "it is searched next to the pipeline file and in the environment"


@frozen
class Module:
    """A module that was found, not run. `file` has its text; None: it is compiled, or part of Python. `beside`: it is the pipeline's own."""

    name: str
    file: str | None
    package: bool
    beside: bool

    def absolute(self, name: str | None, level: int) -> str:
        """Return the absolute name of the module in a relative import `from ..name import`; empty if it is outside of the package.

        >>> Module("a.b", None, False, True).absolute("c", 1), Module("a.b", None, False, True).absolute("c", 2)
        ('a.c', '')
        """
        parts = self.name.split(".")
        base = parts[: len(parts) - level + self.package] if level else []
        return ".".join([*base, *filter(None, [name])]) if base or not level else ""


def find(name: str, folder: str) -> Module:
    """Return the module of a name, in a pipeline's folder or in the environment; nothing is imported, not even packages.

    Raises SpecError if there is none, or one in each, which makes the name ambiguous.
    """
    top, *rest = name.split(".")
    here = _spec_in(folder, top)
    there = _elsewhere(top, here)
    if here is not None and there is not None:
        if _is_namespace(here):  # any folder is a namespace package to Python: a module with text comes first
            here = None
        elif not _is_namespace(there):
            problem = (
                f"there are two modules `{top}`: {here.origin}, and {there.origin or 'one that is imported already'}"
            )
            raise SpecError(problem, hint="rename the one next to the pipeline file")
    spec = here or there or _loaded(top)
    for at in range(len(rest)):
        spec = spec and _below(spec, ".".join([top, *rest[: at + 1]]), beside=here is not None)
    if spec is None or _is_namespace(spec):
        raise SpecError(f"there is no module `{name}`", hint=WHERE)
    file = spec.origin if spec.origin and spec.origin.endswith(tuple(SOURCE_SUFFIXES)) else None
    return Module(name, file, spec.submodule_search_locations is not None, here is not None)


def reached(module: Module, folder: str) -> tuple[set[str], set[str], set[str]]:
    """Return the first names of the imports of a module beside the pipeline and of all modules beside it that it imports, of those that functions import when called, and the directories of these modules.

    Raises SpecError if a module beside it has the name of one of the environment.
    """
    mentioned, late, places = {_first(module.name)}, set[str](), {folder}
    pending, seen, size = [module], set[str](), 0
    while pending:
        each = pending.pop()
        if each.name in seen or each.file is None or not each.beside:
            continue
        seen.add(each.name)
        places.add(str(Path(each.file).parent))
        data = read(each.file)
        size += len(data)
        if size > ALL:
            problem = f"`{module.name}` imports more than {ALL >> 20} MiB of modules next to the pipeline"
            raise SpecError(problem, hint="install them as a package of the environment")
        for name, called in _imports(each, parse(data, each.file)):
            mentioned.add(_first(name))
            if _spec_in(folder, _first(name)) is None:
                continue
            try:
                found = find(name, folder)
            except SpecError as error:
                if error.hint == WHERE:  # a name in a module, or a module that only some machines have
                    continue
                raise SpecError(f"{each.file} imports `{name}`: {error.problem}", hint=error.hint) from None
            if found.beside:
                pending.append(found)
                late |= {name} if called else set()
    return mentioned, late, places


def imported(name: str, folder: str, text: str) -> ModuleType:
    """Return a module of a pipeline's folder, or of the environment, imported: this runs it.

    `text` is the digest of its text when it was found, empty if it has none; a module that was imported with another text is
    imported anew. Raises SpecError if the text has changed since, and the errors of the module.
    """
    with _importing:
        known = _folders[folder].known(name, text) if folder in _folders else None
        if known is not None:
            return known
        module = find(name, folder)
        if not module.beside:
            return importlib.import_module(name)
        home = _folders.setdefault(folder, _Folder(folder))
        found = home.load(module)
        if home.texts.get(str(module.file), text) != text:
            raise SpecError(f"{module.file} has changed since the pipeline was read", hint="run again")
        return found


_importing = threading.RLock()
_folders: dict[str, _Folder] = {}
"""The folders from which modules were imported."""


@dataclass
class _Folder:
    """The modules that were imported from a folder, by name, and the digests of the texts that were run, by file.

    `late` are those that functions import when called: Python must find them then, so they stay in `sys.modules`, and no
    folder with other modules of these names can be used beside this one.
    """

    path: str
    modules: dict[str, ModuleType] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)

    def known(self, name: str, text: str) -> ModuleType | None:
        """Return the module that was imported with this text, else None."""
        found = self.modules.get(name)
        return found if found is not None and self.texts.get(str(_file_of(found)), text) == text else None

    def load(self, module: Module) -> ModuleType:
        """Import a module, and its imports; anew if it was imported before, as its text differs."""
        mentioned, late, places = reached(module, self.path)
        own = set(map(_first, self.modules))
        others = [folder for folder in _folders.values() if folder is not self]
        for other in others:
            if met := set(map(_first, other.late)) & (mentioned | own):
                name = min(met)
                raise SpecError(
                    f"a function in {other.path} imports `{name}` when it is called, and {self.path} needs another module of that name",
                    hint=f"import `{name}` at the top of the module there, or use a process for each pipeline",
                )
        if module.name in self.modules:
            self._forget()
        for other in others:
            other.hide()
        sys.modules.update(self.modules)
        before = set(sys.modules)
        sys.path_importer_cache |= {place: _finder(place) for place in places}
        sys.path.append(self.path)
        try:
            wanted = importlib.import_module(module.name)
            for name in sorted(late):
                _try(name)
        finally:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(self.path)]
            self.late |= late
            self._note(before)
        return wanted

    def hide(self) -> None:
        """Remove the modules from Python's, except those that functions import when called: modules of other folders must not import them."""
        stay = set(map(_first, self.late))
        for name in [name for name, each in self._here() if _first(name) not in stay]:
            self.modules[name] = sys.modules.pop(name)

    def _here(self) -> list[tuple[str, ModuleType]]:
        """Return the imported modules of this folder; functions may have imported more of a package.

        A package that the program itself had imported stays the program's, with its modules.
        """
        own = {name for name in self.modules if name == _first(name)}
        known = [
            (name, each) for name, each in list(sys.modules.items()) if name in self.modules or _first(name) in own
        ]
        return [(name, each) for name, each in known if _is_in(self.path, _file_of(each))]

    def _note(self, before: set[str]) -> None:
        new = [(name, each) for name, each in list(sys.modules.items()) if name not in before]
        self.modules |= {name: each for name, each in new if _is_in(self.path, _file_of(each))}

    def _forget(self) -> None:
        for name, _ in self._here():
            if name in self.modules:
                del sys.modules[name]
        self.modules.clear()
        self.texts.clear()
        self.late.clear()


class _TextLoader(SourceFileLoader):
    """The loader of a module's present text: it neither reads nor writes bytecode, which may be of another text."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        data = self.get_data(path)
        for folder in _folders.values():
            if _is_in(folder.path, path):
                folder.texts[path] = digest(data)
        if self.is_package(fullname):
            sys.path_importer_cache[os.path.dirname(path)] = _finder(os.path.dirname(path))  # noqa: PTH120 - the key is text
        code: CodeType = self.source_to_code(data, path)
        return code


def _finder(folder: str) -> FileFinder:
    """Return the finder of modules in a folder; a new one knows all its files."""
    return FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_TextLoader, SOURCE_SUFFIXES))


def _spec_in(folder: str, name: str) -> ModuleSpec | None:
    """Return the module of a name in a folder, in Python's own order. Only the few possible files are read: a folder may have thousands."""
    last = name.rpartition(".")[2]
    if not last.isidentifier():
        return None
    place = f"{folder}/{last}"
    package = stat.S_ISDIR(_mode(place))
    for begin in ([f"{place}/__init__"] if package else []) + [place]:
        for end in (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES):
            if stat.S_ISREG(_mode(begin + end)):
                loader = (_TextLoader if end in SOURCE_SUFFIXES else ExtensionFileLoader)(name, begin + end)
                inside = [place] if begin != place else None
                return importlib.util.spec_from_file_location(
                    name, begin + end, loader=loader, submodule_search_locations=inside
                )
    if not package:
        return None
    spec = ModuleSpec(name, None)
    spec.submodule_search_locations = [place]
    return spec


def _mode(path: str) -> int:
    """Return the mode of the file at a path, through links; 0 if there is none."""
    try:
        return os.stat(path).st_mode  # noqa: PTH116 - asked a hundred times a function; making a Path takes ten times as long
    except (OSError, ValueError):
        return 0


def _is_namespace(spec: ModuleSpec) -> bool:
    return spec.origin is None and spec.submodule_search_locations is not None


def _elsewhere(top: str, here: ModuleSpec | None) -> ModuleSpec | None:
    """Return the module of a name in the environment, or one that is imported already, if it is neither `here` nor another pipeline's."""
    loaded = sys.modules.get(top)
    if loaded is not None and not any(loaded is one for each in _folders.values() for one in each.modules.values()):
        return None if _is_same(here, _file_of(loaded)) else getattr(loaded, "__spec__", None) or _loaded(top)
    for finder in sys.meta_path:
        look = getattr(finder, "find_spec", None)
        spec = look(top, None) if look and top.isidentifier() else None
        if spec is not None:
            places = [spec.origin] if spec.has_location else [*(spec.submodule_search_locations or ())]
            return None if any(_is_same(here, place) for place in places) else spec
    return None


def _is_same(here: ModuleSpec | None, place: str | None) -> bool:
    """Return whether a module is at a place: the environment may find the same file in the pipeline's folder."""
    if here is None or place is None:
        return False
    places = [here.origin, *(here.submodule_search_locations or ())]
    return any(each == place or _is_in(each, place) for each in places if each is not None)


def _loaded(name: str) -> ModuleSpec | None:
    """Return a spec for a module that is imported already, wherever it is from: a program's own, for instance."""
    module = sys.modules.get(name)
    if module is None:
        return None
    places = [*getattr(module, "__path__", ())]
    spec = ModuleSpec(name, None, origin=getattr(module, "__file__", None) or "?", is_package=bool(places))
    spec.submodule_search_locations = places or None
    return spec


def _below(spec: ModuleSpec, name: str, *, beside: bool) -> ModuleSpec | None:
    """Return a module of a package, or a stand-in for one whose package is no folder."""
    if not beside and (loaded := _loaded(name)):
        return loaded
    places = [*(spec.submodule_search_locations or ())]
    found = [_spec_in(place, name) for place in places]
    specs = sorted(filter(None, found), key=_is_namespace)
    if not specs and places and not any(map(os.path.isdir, places)):
        unseen = ModuleSpec(name, None, origin="?")
        unseen.submodule_search_locations = places
        return unseen
    return specs[0] if specs else None


def _file_of(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return file
    return next((place for place in getattr(module, "__path__", ()) if isinstance(place, str)), None)


def _is_in(folder: str, file: str | None) -> bool:
    """Return whether a file is below a folder, also through links."""
    if file is None or file.startswith(f"{folder}/"):
        return file is not None
    return f"{os.path.realpath(file)}/".startswith(f"{os.path.realpath(folder)}/".replace("//", "/"))


def _imports(module: Module, tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the names that a module may import, and whether a function does so when it is called."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, called = pending.pop()
        called |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (base := module.absolute(node.module, node.level)):
            names = [f"{base}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield from ((".".join(parts[: at + 1]), called) for at in range(len(parts)))
        pending += [(child, called) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]


def _first(name: str) -> str:
    return name.partition(".")[0]


def _try(name: str) -> None:
    """Import a module for functions that import when called; they raise its errors themselves."""
    try:
        importlib.import_module(name)
    except (Exception, SystemExit):  # noqa: BLE001 - a user's module may raise anything, and a function may be ready for it
        return
