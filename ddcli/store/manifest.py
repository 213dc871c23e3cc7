"""The manifest: everything that a state consists of, in one JSON file that is replaced as a whole.

The manifest with the highest number is the truth. A file that it doesn't name is not part of the state, whatever it holds.
Only the newest is kept: the files that an older one named are dropped with it, so it could not be returned to anyway.
A manifest gets its name by a rename after its bytes are on the disk, so a crash leaves no torn one; a damaged one (its
checksum is its first field) is damage to the disk or by hand, and is never skipped in favour of an older one.

This module imports no third-party library: a run with nothing new reads a manifest and nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from ddcli.errors import StateError
from ddcli.store.files import checksum

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 3
NAME = re.compile(r"(\d{9})\.json")
RESTORE = "restore the state directory from a backup, or remove it and the outputs to compute them anew"

Times = tuple[tuple[int, ...], ...]
"""A frontier: times as tuples of integers. Empty: closed, no time is at or after it."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One Parquet file of the state or of an output: its name, what it must be, and the times that it covers.

    `lower` is None in the first file of a log, which has no earlier bound. What follows speaks of batches only: `footer` is
    the checksum of all that follows the row groups; the files of a shard that have one `run` hold a key range each of what is
    one sorted batch, and the youngest run has the highest number.
    """

    name: str
    rows: int
    size: int
    checksum: str
    lower: Times | None
    upper: Times
    since: Times | None = None
    footer: str = ""
    run: int = 0

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        """Return the entry that a manifest holds as `tree`."""
        return cls(**{**tree, **{name: times(tree[name]) for name in ("lower", "upper", "since")}})


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of an input: its path relative to the input's root, and what tells whether it changed.

    `done` is false while rows at or after the input's upper still wait in it. Rows before `since` were late and put aside.
    """

    path: str
    size: int
    mtime_ns: int
    fingerprint: str = ""
    done: bool = False
    since: Times | None = None


@dataclass(frozen=True, slots=True)
class InputEntry:
    """An input: the rows before `upper` of these files are in the state. `schema` is what the log's reader wants kept."""

    upper: Times
    files: tuple[InputFile, ...] = ()
    schema: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        """Return the entry that a manifest holds as `tree`."""
        # The files' fields go in a list each time: a log may have tens of thousands of files.
        files = (InputFile(*file[:5], *map(times, file[5:])) for file in tree["files"])
        return cls(times(tree["upper"]), tuple(files), tree["schema"])

    @property
    def identity(self) -> str:
        """Of an imported arrangement, which one it is."""
        return str(self.schema["identity"])

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest holds of it."""
        files = [
            [file.path, file.size, file.mtime_ns, file.fingerprint, file.done, *([file.since] if file.since else [])]
            for file in self.files
        ]
        return {"upper": self.upper, "schema": self.schema, "files": files}


@dataclass(frozen=True, slots=True)
class ArrangementEntry:
    """An arrangement: what it is of (`fingerprint`), its frontiers, its columns with the key's first, its batch files by shard."""

    fingerprint: str
    since: Times | None
    upper: Times
    key: tuple[str, ...]
    schema: dict[str, str]
    shards: tuple[tuple[FileEntry, ...], ...]

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        """Return the entry that a manifest holds as `tree`."""
        shards = tuple(tuple(FileEntry.from_json(file) for file in shard) for shard in tree["shards"])
        bounds = {"since": times(tree["since"]), "upper": times(tree["upper"])}
        return cls(**{**tree, **bounds, "key": tuple(tree["key"]), "shards": shards})


@dataclass(frozen=True, slots=True)
class OutputEntry:
    """An output log: its directory relative to the state's, its columns, its files, oldest first, and what it says (`fingerprint`)."""

    path: str
    schema: dict[str, str]
    files: tuple[FileEntry, ...] = ()
    fingerprint: str = ""

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        """Return the entry that a manifest holds as `tree`."""
        return cls(**{**tree, "files": tuple(FileEntry.from_json(file) for file in tree["files"])})


@dataclass(frozen=True, slots=True)
class Manifest:
    """A state, whole.

    `pipeline` is the SHA-256 of the pipeline file's bytes, `plan` the fingerprint of what it means. `publish` holds
    (temporary, final) paths relative to the state: renames that belong to this commit and may be done again. `exports` are the
    arrangements that other pipelines may read, by name. `cache` belongs to the driver.
    """

    name: str
    upper: Times
    number: int = 0
    pipeline: str = ""
    plan: str = ""
    engine: str = ""
    inputs: dict[str, InputEntry] = field(default_factory=dict)
    arrangements: dict[str, ArrangementEntry] = field(default_factory=dict)
    outputs: dict[str, OutputEntry] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    publish: tuple[tuple[str, str], ...] = ()
    cache: dict[str, Any] = field(default_factory=dict)

    def numbered(self, number: int, publish: tuple[tuple[str, str], ...]) -> Manifest:
        """Return the manifest as a commit writes it."""
        return replace(self, number=number, publish=publish)

    def to_bytes(self) -> bytes:
        """Return the manifest as the JSON text that `read_manifest` reads; the first field is the checksum of all after it."""
        tree = {"format": FORMAT} | {name: getattr(self, name) for name in FIELDS}
        rest = json.dumps(tree, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()[1:] + b"\n"
        return _head(rest) + rest

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        """Return the manifest of a JSON tree."""

        def entries(name: str, kind: Any) -> dict[str, Any]:
            return {key: kind.from_json(entry) for key, entry in tree[name].items()}

        plain = {name: tree[name] for name in FIELDS}
        plain["upper"] = times(tree["upper"])
        plain["publish"] = tuple((source, target) for source, target in tree["publish"])
        plain["inputs"] = entries("inputs", InputEntry)
        plain["arrangements"] = entries("arrangements", ArrangementEntry)
        plain["outputs"] = entries("outputs", OutputEntry)
        return cls(**plain)


FIELDS = tuple(entry.name for entry in fields(Manifest))


def times(tree: Any) -> Any:
    """Return a frontier from its JSON form, lists of lists; None stays None."""
    return None if tree is None else tuple(tuple(time) for time in tree)


def _plain(value: Any) -> Any:
    return value.to_json() if isinstance(value, InputEntry) else {f.name: getattr(value, f.name) for f in fields(value)}


def _head(rest: bytes) -> bytes:
    return b'{"crc32":"%s",' % checksum(rest).encode()


def manifest_path(state: Path, number: int) -> Path:
    """Return the path of the manifest with this number."""
    return state / "manifest" / f"{number:09d}.json"


def manifest_numbers(state: Path) -> list[int]:
    """Return the numbers of the manifests that are there, in order. Temporary files are none."""
    try:
        names = [path.name for path in (state / "manifest").iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for name in names if (match := NAME.fullmatch(name)))


def read_newest(state: Path) -> Manifest | None:
    """Return the manifest that is the truth, or None where there is no state.

    Takes no lock: a manifest is replaced as a whole. When a commit drops the one that was just found, look again.
    """
    while numbers := manifest_numbers(state):
        try:
            return read_manifest(manifest_path(state, numbers[-1]))
        except FileNotFoundError:
            continue
    return None


def read_manifest(path: Path) -> Manifest:
    """Read one manifest. A newer format or a damaged file is a `StateError` (exit code 4)."""
    data = path.read_bytes()
    damaged = StateError("the manifest of the state is damaged", place=str(path), hint=RESTORE)
    try:
        tree = json.loads(data)
        version = tree["format"]
    except (ValueError, KeyError, TypeError):
        raise damaged from None
    # The version is judged first: a newer format may well put its checksum elsewhere.
    if isinstance(version, int) and version > FORMAT:
        raise StateError(
            f"the state was written by a newer version: its format is {version}, this version reads {FORMAT}",
            place=str(path),
            hint="run a newer `dd`, or use another state directory with `--state`",
        )
    rest = data[len(_head(b"")) :]
    if data != _head(rest) + rest or not isinstance(version, int):
        raise damaged
    if version < FORMAT:
        raise StateError(
            f"the state was written by an older version: its format is {version}, this version reads {FORMAT}",
            place=str(path),
            hint="run that version, or remove the state and the outputs to compute them anew",
        )
    return Manifest.from_json(tree)
