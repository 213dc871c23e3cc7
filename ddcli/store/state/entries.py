"""The entries of a manifest: the files of inputs, arrangements and outputs, and their frontiers.

This module imports no third-party library, as `manifest`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ddcli.dataclass import frozen
from ddcli.store.state.document import (
    BATCH,
    BEYOND,
    CHECKSUM,
    CONTENTS,
    FOLDER,
    LEAST,
    LOG,
    OF_LOG,
    PART,
    columns_of,
    count_of,
    integer_of,
    mapping_of,
    named,
    path_inside,
    path_of,
    text_of,
)
from ddcli.store.state.register import Register, RegisterEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    Read = Callable[[str], bytes]
T = TypeVar("T", bound=RegisterEntry)
PLAIN = 5
"""The number of values in the row of a plain file whose rows were not counted: its identity, and whether all of it was taken in."""
PLAINLY = 256
"""Characters of a path that need no closer look."""

UPDATES = "updates-"
"""The prefix of an output log's files."""
Times = tuple[tuple[int, ...], ...]
"""A frontier: times as tuples of integers. Empty: closed, no time is at or after it."""


def split_path(path: str) -> tuple[str, str]:
    """Return the directory of a log, and the path of a file in it.

    >>> split_path("out/updates-0-1.parquet"), split_path("out/updates-1-2/0001.parquet")
    (('out', 'updates-0-1.parquet'), ('out', 'updates-1-2/0001.parquet'))
    """
    directory, _, name = path.rpartition("/")
    above, _, folder = directory.rpartition("/")
    if FOLDER.fullmatch(folder) and PART.fullmatch(name):
        return above, f"{folder}/{name}"
    return directory, name


@frozen
class FileEntry:
    """One Parquet file of the state or of an output: its name, its size and checksums, and the times that it covers.

    `lower` is None in the first file of a log, which has no earlier bound. `footer` is the checksum of all that follows the row
    groups. The files of a shard that have one `run` hold a key range each of one sorted batch, and the youngest run has the
    highest number. A file in a `bundle` (see `batch_lists`) begins `at` a byte of it. A file of an output has the updates of the
    commits from `first` to `commit`; `first` is 0 for one before commits were recorded.
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
    bundle: str = ""
    at: int = 0
    first: int = 0
    commit: int = 0

    @property
    def key(self) -> str:
        """Return the name, which no other file of the output has."""
        return self.name

    def to_row(self) -> list[Any]:
        """Return the file of an output as its register has it."""
        return [
            self.name,
            self.rows,
            self.size,
            self.checksum,
            self.lower,
            self.upper,
            self.footer,
            self.first,
            self.commit,
        ]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        """Return the file of an output that a register has as `row`."""
        name, rows, size, sum_, lower, upper, footer, *commits = row
        named(OF_LOG, name), count_of(rows), count_of(size), named(CHECKSUM, sum_), text_of(footer)
        first, commit = commits or (0, 0)
        if count_of(first) > count_of(commit):
            raise ValueError(f"commits {first} to {commit}")
        bounds = times(lower), frontier_of(upper)
        return cls(name, rows, size, sum_, *bounds, footer=footer, first=first, commit=commit)


@frozen
class InputFile:
    """One file of an input: its path relative to the input's root, and the facts that show whether it changed.

    `done` is false while rows at or after the input's upper still wait in it. Rows before `since` were late and put aside.
    `at` is the time of the run that took it in, where that is the time of its rows. The state has no rows of a file that was
    `withdrawn`: it is remembered so that it isn't taken in again unchanged, and, if it is in an archive, so that it can be withdrawn again. One that was
    `archived` has that path, relative to the pipeline file or absolute; one that was `forgotten` is gone. Another file may have the name of one of these.
    Runs have taken in so many of its `rows`, the last of them with the `commit`; None and 0: unknown. So many of all its rows were `late`.
    """

    path: str
    size: int
    mtime_ns: int
    fingerprint: str = ""
    done: bool = False
    since: Times | None = None
    at: int | None = None
    withdrawn: bool = False
    archived: str = ""
    forgotten: bool = False
    digest: str = ""
    """That of an object's content, where its store gives each writing of it another fingerprint."""
    rows: int | None = None
    commit: int = 0
    late: int = 0

    @property
    def key(self) -> str:
        """The key of the file within its input: an archived or forgotten file's begins with a slash, as the path of no file in the input does."""
        if self.forgotten:
            return f"//{self.fingerprint}/{self.path}"
        return f"/{self.archived}" if self.archived else self.path

    def counted_as(self, other: InputFile) -> InputFile:
        """Return the file with the rows that were counted in another."""
        return replace(self, rows=other.rows, commit=other.commit, late=other.late)

    def to_row(self) -> list[Any]:
        """Return it as its register has it: a list, as an input may have tens of thousands."""
        row = [self.key, self.size, self.mtime_ns, self.fingerprint, self.done]
        row += [] if self.rows is None else [self.rows, self.commit]
        archive = self.path, self.archived, self.forgotten
        more = [self.since, self.at, self.withdrawn, *archive, self.digest, self.late]
        defaults = _defaults(self.key)
        while more and more[-1] == defaults[len(more) - 1]:
            more.pop()
        return [*row, *more]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        """Return the file that a register has as `row`."""
        if len(row) == PLAIN and _is_plain(*row):
            return cls(*row)
        key, size, changed, fingerprint, done, *rest = row
        rows, commit = None, 0
        if len(rest) >= 2 and type(rest[0]) is int:  # in its place others have a frontier, or null
            rows, commit, *rest = count_of(rest[0]), count_of(rest[1]), *rest[2:]
            if not rest and _is_plain(key, size, changed, fingerprint, done):
                return cls(key, size, changed, fingerprint, done, None, None, False, "", False, "", rows, commit)
        defaults = _defaults(key)
        since, at, withdrawn, path, archived, forgotten, digest, late = [*rest, *defaults[len(rest) :]]
        path_inside(path), count_of(size), integer_of(changed), text_of(fingerprint), text_of(digest), count_of(late)
        if archived:
            path_of(archived)
        at = None if at is None else integer_of(at)
        facts = fingerprint, bool(done), times(since), at, bool(withdrawn), archived, bool(forgotten), digest
        found = cls(path, size, changed, *facts, rows, commit, late)
        if found.key != key:
            raise ValueError(f"a file of another key: {key!r:.80}")
        return found


@frozen
class ReplacedFile:
    """A file of an input as it was before a run replaced or withdrew it: its rows count before the time `until`.

    `path` is the path of the file that has its place now; `commit` is the number of the run's.
    """

    path: str
    until: int
    commit: int
    file: InputFile

    def to_row(self) -> list[Any]:
        """Return it as a manifest has it."""
        return [self.path, self.until, self.commit, *self.file.to_row()]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        """Return the file that a manifest has as `row`."""
        path, until, commit, *file = row
        return cls(path_inside(path), integer_of(until), count_of(commit), InputFile.from_row(file))


@frozen
class InputEntry:
    """An input: the rows before `upper` of these files are in the state. `schema` belongs to the log's reader; it has the columns at least.
    `ledger` are the files with copies of those, oldest first (see `ledger`); `replaced` are files as they were before, in the order of the runs.
    `keys` are the files with the hashes of the keys in them, where their rows have keys (see `ledger`).
    """

    upper: Times
    files: Sequence[InputFile]
    schema: dict[str, Any]
    ledger: tuple[FileEntry, ...] = ()
    replaced: tuple[ReplacedFile, ...] = ()
    keys: tuple[FileEntry, ...] = ()

    @classmethod
    def from_json(cls, tree: dict[str, Any], read: Read) -> Self:
        """Return the entry that a manifest holds as `tree`."""
        files = Register.from_json(InputFile, tree, read)
        schema = mapping_of(tree["schema"])
        columns_of(schema["columns"]), columns_of(schema["time"])
        if schema["diff"] not in {True, False, None}:
            raise ValueError(f"no yes or no: {schema['diff']!r:.80}")
        if "newest" in schema:
            order, at = schema["newest"]
            integer_of(order), integer_of(at)
        if "identity" in schema:
            text_of(schema["identity"])
            frontier_of(schema["begin"])
            count_of(schema.get("built", 0)), text_of(schema.get("mark", ""))
        ledger, keys = (tuple(_copies_from(*row) for row in tree.get(name, ())) for name in ("ledger", "keys"))
        replaced = tuple(map(ReplacedFile.from_row, tree.get("replaced", ())))
        return cls(frontier_of(tree["upper"]), files, schema, ledger, replaced, keys)

    def numbered(self, number: int) -> InputEntry:
        """Return the input whose files have the number of the commit, where it takes in rows of them."""
        if isinstance(self.files, Register):  # they are as they were
            return self
        files = (
            replace(file, commit=number) if file.rows is not None and not file.commit else file for file in self.files
        )
        return replace(self, files=tuple(files))

    @property
    def is_imported(self) -> bool:
        """Return whether it is an arrangement of another pipeline."""
        return "identity" in self.schema

    @property
    def identity(self) -> str:
        """Return the identity of an imported arrangement."""
        return str(self.schema["identity"])

    @property
    def built(self) -> int:
        """Return the commit in which the state of an imported arrangement built it anew, 0 for none."""
        return int(self.schema.get("built", 0))

    @property
    def mark(self) -> str:
        """Return the mark of the commit that was read of the state of an imported arrangement, as an earlier version has none."""
        return str(self.schema.get("mark", ""))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a manifest holds of it."""
        plain: dict[str, Any] = {"upper": self.upper, "schema": self.schema}
        for name, files in (("ledger", self.ledger), ("keys", self.keys)):
            if files:
                plain[name] = [(each.name, each.rows, each.size, each.checksum, each.footer) for each in files]
        plain |= {"replaced": [each.to_row() for each in self.replaced]} if self.replaced else {}
        return plain | register_of(InputFile, self.files).to_json()


@frozen
class Size:
    """The size of the batches of a state, or of a part of it."""

    rows: int
    bytes: int
    batches: int

    @classmethod
    def of(cls, files: Collection[FileEntry]) -> Size:
        """Return the size of some files together."""
        return cls(sum(file.rows for file in files), sum(file.size for file in files), len(files))


@frozen
class ArrangementEntry:
    """An arrangement: the `fingerprint` of its collection, its frontiers, its columns with the key's first, its batch files by shard."""

    fingerprint: str
    since: Times | None
    upper: Times
    key: tuple[str, ...]
    schema: dict[str, str]
    shards: tuple[tuple[FileEntry, ...], ...]

    @classmethod
    def from_json(cls, tree: dict[str, Any], shards: tuple[tuple[FileEntry, ...], ...]) -> Self:
        """Return the entry that a manifest holds as `tree`, with the batches of its shards."""
        bounds = {"since": times(tree["since"]), "upper": frontier_of(tree["upper"])}
        found = cls(**{**tree, **bounds, "key": tuple(tree["key"]), "shards": shards})
        text_of(found.fingerprint)
        if not shards or not set(found.key) <= columns_of(found.schema).keys():
            raise ValueError("no shards, or a key that is no column")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a manifest holds of it: its batches are elsewhere (see `batch_lists`)."""
        plain = {name: getattr(self, name) for name in ("fingerprint", "since", "upper", "key", "schema")}
        return plain | {"shards": len(self.shards)}

    @property
    def files(self) -> list[FileEntry]:
        """Its batch files, of all shards."""
        return [file for shard in self.shards for file in shard]


@frozen
class OutputEntry:
    """An output log: its directory relative to the state's, so that a moved folder stays whole, its columns, its files, oldest first, and the `fingerprint` of its collection.

    `log` distinguishes it from other logs of the state, and from the log that it was before it was written from the beginning. If it was made of logs whose past
    was summed up by then, it has no times before the `horizon`. `contents` is the fingerprint of its records (see `fingerprint`); "" for one of an earlier version.
    """

    path: str
    schema: dict[str, str]
    files: Sequence[FileEntry] = ()
    fingerprint: str = ""
    log: str = ""
    horizon: int | None = None
    contents: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a manifest holds of it."""
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in ("path", "schema", "fingerprint", "log", "contents")
        }
        plain |= {} if self.horizon is None else {"horizon": self.horizon}
        return plain | register_of(FileEntry, self.files).to_json()

    @classmethod
    def from_json(cls, tree: dict[str, Any], read: Read) -> Self:
        """Return the entry that a manifest holds as `tree`."""
        files = Register.from_json(FileEntry, tree, read)
        horizon = None if tree.get("horizon") is None else integer_of(tree["horizon"])
        contents = text_of(tree.get("contents", ""))
        found = cls(tree["path"], tree["schema"], files, tree["fingerprint"], tree["log"], horizon, contents)
        path_of(found.path), columns_of(found.schema), text_of(found.fingerprint), named(LOG, found.log)
        if contents:
            named(CONTENTS, contents)
        return found


def log_identity(output: str, commit: int) -> str:
    """Return the identity of the log that a commit begins for an output: no other of the state has it."""
    return hashlib.sha256(f"{commit}/{output}".encode()).hexdigest()[:16]


def times(tree: Any) -> Any:
    """Return a frontier from its JSON form, lists of lists; None stays None. Raises TypeError or ValueError."""
    if tree is None:
        return None
    found = tuple([tuple([integer_of(value) for value in time]) for time in tree])
    if len({len(time) for time in found}) > 1 or () in found:
        raise ValueError("times of several lengths")
    return found


def frontier_of(tree: Any) -> Times:
    """Return a frontier that must be there; raises as `times` does."""
    if tree is None:
        raise ValueError("no frontier")
    found: Times = times(tree)
    return found


def _defaults(key: str) -> list[Any]:
    """Return the values that the row of a file may leave out at its end, those that follow the plain ones."""
    return [None, None, False, key, "", False, "", 0]


def _copies_from(name: Any, rows: Any, size: Any, checksum: Any, footer: Any) -> FileEntry:
    """Return a file of a ledger from its row in a manifest."""
    named(BATCH, name), count_of(rows), count_of(size), named(CHECKSUM, checksum), named(CHECKSUM, footer)
    return FileEntry(name, rows, size, checksum, None, (), footer=footer)


def register_of(kind: type[T], files: Sequence[T]) -> Register[T]:
    """Return the register of some files: their own, or one that has them all as recent."""
    return files if isinstance(files, Register) else Register(kind, (), files)


def _is_plain(path: object, size: object, changed: object, fingerprint: object, done: object) -> bool:
    """Return whether a row has the plain form of nearly all, a file that was taken in: then its other values need no check."""
    return (
        type(path) is str
        and type(size) is type(changed) is int
        and 0 <= size < BEYOND
        and LEAST <= changed < BEYOND
        and type(fingerprint) is str
        and type(done) is bool
        and 0 < len(path) < PLAINLY
        and path[0] != "/"
        and ".." not in path
        and "\0" not in path
    )
