"""The meaning of a pipeline file, kept from one run to the next: a run of the same file neither parses nor plans again.

It is kept in the user's own cache folder, beside compiled kernels and under the same conditions: nobody else can write there. A state directory may come from
anywhere, and a spec names the places where outputs are written. It belongs to one text of the file under one path, and to one version of dd and of the
modules that parse and plan (their files' sizes and times of change); a plan also to the types of the inputs' columns and to the state's memory of earlier
plans. A file that calls Python functions, or names a Spark, is not kept: it is read anew each time, as its functions are. A kept file with any
fault is ignored.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from contextlib import suppress
from dataclasses import field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.engine.jit.settings import cache_dir, is_own, make_room, unsealed, write_whole
from ddcli.errors import UsageError
from ddcli.job import object_table
from ddcli.job.object_table import Listed
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.plan.bound import BoundPipeline
    from ddcli.plan.physical_graph import PhysicalGraph
    from ddcli.spec.model import Spec

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
LISTED = Listed(("ddcli.errors", "ddcli.expressions", "ddcli.spec", "ddcli.plan"), CODE)
"""The classes that a spec and a plan may be made of."""


@dataclass(frozen=True)
class KeptPlan:
    """The kept meaning of a file with this text at `path`: its spec, and a plan under some conditions, which is read when it is first asked for; empty at first."""

    path: Path
    text: str
    spec: Spec | None = None
    conditions: str = ""
    tree: object_table.Table = field(default_factory=list)
    _graphs: dict[tuple[str, str], PhysicalGraph] = field(default_factory=dict, compare=False)

    def graph(self, conditions: str, fingerprint: str) -> PhysicalGraph | None:
        """Return the plan if it was made under these conditions and has this fingerprint, which is computed from its nodes."""
        if conditions != self.conditions:
            return None
        if (conditions, fingerprint) not in self._graphs:
            try:
                found: PhysicalGraph = object_table.read(self.tree, LISTED)
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
            document = object_table.write(replace(spec, tests=()), LISTED)
            plan = object_table.write(graph, LISTED)
        except object_table.Unlisted:
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
    return _digest(json.dumps([schemas, times, sorted(bound.keys.items()), generations]))


def load(path: Path, text: str) -> KeptPlan:
    """Return the kept meaning of a pipeline file at `path` with this text, if the files that it includes and its variables are the same too."""
    found = _understood(path, text, _read(_place(path)))
    return found if found.spec is None or _same(found.spec) else KeptPlan(path, text)


def _same(spec: Spec) -> bool:
    """Return whether the files that a spec includes, and its variables, are as they were."""
    from ddcli.spec.variables import digest_of, find

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
        return KeptPlan(path, text, object_table.read(json.loads(lines[1]), LISTED), conditions, tree)
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
