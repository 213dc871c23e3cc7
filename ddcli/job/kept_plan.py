"""The meaning of a pipeline file, kept from one run to the next: a run of the same file neither parses nor plans again. One with nothing new takes 0.1 s of a processor in place of 0.21.

The meaning is kept in the user's own cache folder, beside compiled kernels and under the same conditions: nobody else can write there. A state directory may come from
anywhere, and a spec names the places where outputs are written. It belongs to one text of the file under one path, and to one version of dd and of the
modules that parse and plan (their files' sizes and times of change); a plan also to the types of the inputs' columns and to the state's memory of earlier
plans. A file that calls Python functions, or names a Spark, is not kept: it is read anew each time, as its functions are. A kept file with any
fault is ignored.

It is a table of immutable objects as JSON: each once, after its parts, so that no depth is too great. A value is a scalar as JSON has it, or
`[n]`, the n-th entry of the table. A long text is an entry, too: each place in a file has its whole line. An entry is a list: its kind, then its
parts. The kind is one of the plain ones in `PLAIN`, or a dataclass that the caller lists: `read` makes nothing else, and a table names no code. An
object that two others share remains one, and equal objects become one where no reader could distinguish them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib.util
import json
import os
from contextlib import suppress
from dataclasses import field, fields, is_dataclass, replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.engine.jit.settings import cache_dir, is_own, make_room, unsealed, write_whole
from ddcli.errors import UsageError
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.plan.physical import PhysicalGraph
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.spec.model import Spec


Table = list[list[Any]]
SCALARS = frozenset({str, int, float, bool, type(None)})
LONG = 100
"""Characters of a text above which it is in a table but once."""


@cache
def _decimal() -> type[Any]:
    """Return the class of decimals, which few tables have: it takes 5 ms to import."""
    from decimal import Decimal

    return Decimal


def _number(text: str) -> Any:
    return _decimal()(text)


PLAIN: dict[str, Callable[..., Any]] = {
    "tuple": lambda *parts: parts,
    "list": lambda *parts: [*parts],
    "dict": lambda *parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "set": lambda *parts: frozenset(parts),
    "decimal": _number,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
    "interval": dt.timedelta,
    "path": Path,
    "text": str,
}
"""The kinds that need no permission, each with the function that makes it of its parts."""
_KINDS: dict[type, str] = {tuple: "tuple", list: "list", dict: "dict", frozenset: "set"}
_OWN = {"list", "dict"}
"""The mutable kinds: two equal objects remain two, since each may change."""


class UnlistedClass(ValueError):
    """An object of a class that is not allowed."""


@dataclass(frozen=True)
class ClassList:
    """The classes that may be in a table: the dataclasses of some packages, but for those whose names have one of the words `without`."""

    packages: tuple[str, ...]
    without: tuple[str, ...] = ()

    @cache  # noqa: B019 - there are few of them, which stay
    def name(self, kind: type) -> str:
        """Return the name of a class in tables. Raises Unlisted."""
        inside = any(f"{kind.__module__}.".startswith(f"{package}.") for package in self.packages)
        if not inside or any(word in kind.__name__ for word in self.without) or not is_dataclass(kind):
            raise UnlistedClass(f"{kind.__module__}.{kind.__qualname__}")
        return f"{kind.__module__}:{kind.__name__}"

    def find(self, name: str) -> type:
        """Return the class of a name. Raises as `read` does; imports nothing that is not in the packages."""
        module, _, word = name.partition(":")
        if not any(f"{module}.".startswith(f"{package}.") for package in self.packages):
            raise UnlistedClass(name)
        kind = vars(import_module(module))[word]
        if not isinstance(kind, type) or self.name(kind) != name:
            raise UnlistedClass(name)
        return kind


def write(root: Any, listed: ClassList) -> Table:
    """Return the table of an object, its own entry the last.

    Raises Unlisted for an object of another class.
    """
    table: Table = []
    known: dict[int, list[int]] = {}
    equal: dict[str, list[int]] = {}
    texts: dict[str, list[int]] = {}
    left = [root]
    while left:
        value = left[-1]
        if id(value) in known:
            left.pop()
            continue
        kind, parts = _taken_apart(value, listed)
        entry: list[Any] = [kind]
        unknown = []
        for part in parts:
            if type(part) is str and len(part) > LONG:
                if part not in texts:
                    texts[part] = [len(table)]
                    table.append(["text", part])
                entry.append(texts[part])
            elif type(part) in SCALARS:
                entry.append(part)
            elif id(part) in known:
                entry.append(known[id(part)])
            else:
                unknown.append(part)
        if unknown:
            left += unknown
            continue
        same = repr(entry) if kind not in _OWN else ""
        if same in equal:
            known[id(value)] = equal[same]
            continue
        known[id(value)] = [len(table)]
        table.append(entry)
        if same:
            equal[same] = known[id(value)]
    return table


def read(table: Table, listed: ClassList) -> Any:
    """Return the object of a table. Raises ValueError, TypeError, KeyError or IndexError for a table that `write` hasn't made."""
    made: list[Any] = []
    classes: dict[str, tuple[type, tuple[str, ...]]] = {}
    for kind, *parts in table:
        values = [_value(part, made) for part in parts]
        if kind in PLAIN:
            made.append(PLAIN[kind](*values))
            continue
        if kind not in classes:
            found = listed.find(kind)
            classes[kind] = found, _fields(found)
        cls, names = classes[kind]
        made.append(cls(**dict(zip(names, values, strict=True))))
    return made[-1]


def _value(part: Any, made: list[Any]) -> Any:
    if not isinstance(part, list):
        return part
    (at,) = part
    if not 0 <= at < len(made):
        raise ValueError("an entry that is not there yet")
    return made[at]


def _taken_apart(value: Any, listed: ClassList) -> tuple[str, tuple[Any, ...]]:
    """Return a value's kind and its parts."""
    kind: Any = type(value)
    if kind in _KINDS:
        parts = tuple(part for item in value.items() for part in item) if kind is dict else tuple(value)
        return _KINDS[kind], parts
    if kind in (dt.date, dt.time, dt.datetime) and not (getattr(value, "tzinfo", None) or getattr(value, "fold", 0)):
        return kind.__name__, (value.isoformat(),)
    if kind is dt.timedelta:
        return "interval", (value.days, value.seconds, value.microseconds)
    if kind.__name__ == "Decimal" and kind is _decimal():
        return "decimal", (str(value),)
    if kind is type(Path()):
        return "path", (str(value),)
    return listed.name(kind), tuple(getattr(value, field) for field in _fields(kind))


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.init)


FOLDER = "plans"
MOST, LARGEST = 500, 1 << 26
"""The number of files that are kept, without the oldest; and the bytes of a file that is read, at most."""
WRONG = (OSError, ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError, RecursionError)
"""The errors of reading a file that holds anything else than we write."""
SOURCES = ("spec", "expressions", "plan", "plan/operators", "plan/optimizer", "plan/sql")
"""The packages that decide the meaning of a file, and how a kept one is read."""
LIBRARIES = ("sqlglot", "yaml")


CODE = ("Python", "Function", "Spark")
"""Words in the names of classes that call foreign code: none of these is kept, or ever read from a kept file."""
LISTED = ClassList(("ddcli.errors", "ddcli.expressions", "ddcli.spec", "ddcli.plan"), CODE)
"""The classes that a spec and a plan may be made of."""


@dataclass(frozen=True)
class KeptPlan:
    """The kept meaning of a file with this text at `path`: its spec, and a plan under some conditions, which is read when it is first asked for; empty at first."""

    path: Path
    text: str
    spec: Spec | None = None
    conditions: str = ""
    tree: Table = field(default_factory=list)
    _graphs: dict[tuple[str, str], PhysicalGraph] = field(default_factory=dict, compare=False)

    def graph(self, conditions: str, fingerprint: str) -> PhysicalGraph | None:
        """Return the plan if it was made under these conditions and has this fingerprint, which is computed from its nodes."""
        if conditions != self.conditions:
            return None
        if (conditions, fingerprint) not in self._graphs:
            try:
                found: PhysicalGraph = read(self.tree, LISTED)
                same = found.fingerprint == fingerprint
            except WRONG:
                return None
            if not same:
                return None
            self._graphs[conditions, fingerprint] = found
        return self._graphs[conditions, fingerprint]

    def keep(self, spec: Spec, conditions: str, graph: PhysicalGraph) -> None:
        """Keep a spec and a plan for later runs, if they may be kept and can be written."""
        try:
            # A run has no use for tests, which may be long.
            document = write(replace(spec, tests=()), LISTED)
            plan = write(graph, LISTED)
        except UnlistedClass:
            return
        with suppress(OSError):
            parts = (_origin(self.path, self.text), document, [conditions, plan])
            body = b"\n".join(json.dumps(part, separators=(",", ":")).encode() for part in parts)
            if len(body) < LARGEST:  # else nobody would read it
                _write(_place(self.path), body)


def conditions_of(bound: BoundPipeline, generations: object) -> str:
    """Return a digest of all that a plan depends on beside the file: `generations` is the state's memory of earlier plans, as JSON."""
    schemas = [
        [name, [(column, str(kind)) for column, kind in schema.items()]] for name, schema in bound.schemas.items()
    ]
    times = [(name, str(kind)) for name, kind in bound.time.items()]
    tags = [bound.spec.tags] if any(bound.spec.tags.values()) else []
    return _digest(json.dumps([schemas, times, sorted(bound.keys.items()), generations, *tags]))


def load(path: Path, text: str) -> KeptPlan:
    """Return the kept meaning of a pipeline file at `path` with this text, if the files that it includes and its variables are the same too."""
    found = _understood(path, text, _read(_place(path)))
    return found if found.spec is None or _same(found.spec) else KeptPlan(path, text)


def _same(spec: Spec) -> bool:
    """Return whether the files that a spec includes, and its variables, are as they were."""
    from ddcli.spec.file import digest_of, find

    # Each is looked up, as that records its use.
    if [digest_of(find(name)) for name, _ in spec.variables] != [digest for _, digest in spec.variables]:
        return False
    if not spec.fragments:
        return True
    from ddcli.spec.file import read_fragment

    try:
        return all(digest_of(read_fragment(Path(path))) == digest for path, digest in spec.fragments)
    except (OSError, UsageError):
        return False


@lru_cache(maxsize=2)
def _understood(path: Path, text: str, data: bytes) -> KeptPlan:
    """Return the kept meaning in a file's content, if it is of this pipeline file; remembered, as a watch asks each round."""
    nothing = KeptPlan(path, text)
    body = unsealed(data)
    if body is None:
        return nothing
    try:
        lines = body.split(b"\n")
        if json.loads(lines[0]) != _origin(path, text):
            return nothing
        conditions, tree = json.loads(lines[2])
        return KeptPlan(path, text, read(json.loads(lines[1]), LISTED), conditions, tree)
    except WRONG:
        return nothing


def _write(place: Path, body: bytes) -> None:
    """Write a file in one step: readers see all of it or nothing. Raises OSError."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_room(place.parent, MOST)
    write_whole(place, body)


def _place(path: Path) -> Path:
    """Return the path of a file's kept plan. Messages name the file as the caller did, so another name of it has a plan of its own."""
    return cache_dir() / FOLDER / _digest(f"{path}\n{path.absolute()}")[:32]


def _read(place: Path) -> bytes:
    """Return the content of a plain file that belongs to this user (or root); empty without such a file."""
    try:
        with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            return file.read() if is_own(status) and status.st_size <= LARGEST else b""
    except OSError:
        return b""


def _origin(path: Path, text: str) -> list[Any]:
    """Return the identity of the pipeline file that a kept one must have, JSON-able."""
    return [__version__, str(path), str(path.absolute()), _digest(text), _sources()]


@cache
def _sources() -> str:
    """Return the digest of sizes and times of change of the code that parses and plans."""
    return _digest("\n".join(_stamps()))


def _stamps() -> Iterator[str]:
    for name in SOURCES:
        with os.scandir(Path(__file__).parents[1] / name) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_file():
                    status = entry.stat()
                    yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"
    for name in LIBRARIES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            status = Path(spec.origin).stat()
            yield f"{spec.origin} {status.st_size} {status.st_mtime_ns}"


def _digest(text: str) -> str:
    """Return the digest of a text, which may name files whose names are not UTF-8."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
