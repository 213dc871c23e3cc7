"""The files that the path of an input names: the files of a directory, of a glob, or one, here or in an object store; and the columns, the kind and the packing that their names state; and the names that columns have in a file.

The rules are our own: other readers disagree on hidden and temporary names. Columns of paths are Hive partitions, which are directories named `year=2024`, and parts of files' names,
`people-{day}.csv`. Imports no third-party library.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from itertools import pairwise
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote

from ddcli.dataclass import frozen
from ddcli.errors import InputError
from ddcli.expressions.types import ARRIVAL, ARRIVAL_TIME, PATTERN_HINT, Type, is_pattern
from ddcli.store.files.access import fs, locate
from ddcli.store.files.gate import TEMPORARY
from ddcli.store.files.objects import ObjectPath, tag_of
from ddcli.store.state.entries import InputFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ddcli.expressions.types import Schema

    FormerNames = Mapping[str, tuple[str, ...]]
    """The other names of columns that files may have, by column."""

T = TypeVar("T")


DELTA, ICEBERG, HUDI = "Delta Lake", "Iceberg", "Hudi"
LOGS = {"_delta_log": DELTA, ".hoodie": HUDI}
METADATA, SNAPSHOT = "metadata", ".metadata.json"
CHANGES = "_change_data"
"""The directory of a Delta table with its change feed: none of these files is superseded."""
DATA = "data"
"""The directory in which an Iceberg table keeps its files."""
HINTS = {
    DELTA: "as an input write `{delta: %s}` in its place; elsewhere write the table's rows to files of their own, as DuckDB's `delta_scan` reads them",
    ICEBERG: "as an input write `{iceberg: {catalog: NAME, table: NAMESPACE.TABLE}}` in its place; elsewhere write the table's rows to files of their own, as DuckDB's `iceberg_scan` reads them",
    HUDI: "write the table's rows to files of their own, as Spark reads them",
}


class LakeTable(NamedTuple):
    """A table with a log: its directory, the log in it, and its format."""

    directory: str
    log: str
    format: str


def table_of(path: str) -> LakeTable | None:
    """Return the table whose log a file belongs to, by the file's path alone.

    >>> table_of("lake/orders/_delta_log/00000000000000000000.json").directory
    'lake/orders'
    >>> table_of("lake/orders/part-0.parquet")
    """
    parts = path.split("/")
    for at, name in enumerate(parts[:-1]):
        if name in LOGS:
            return LakeTable("/".join(parts[:at]), name, LOGS[name])
    if len(parts) > 1 and parts[-2] == METADATA and parts[-1].endswith(SNAPSHOT):
        return LakeTable("/".join(parts[:-2]), METADATA, ICEBERG)
    return None


def refuse_lake_tables(directories: Iterable[Path]) -> None:
    """Raise InputError if one of some directories, or one above, is such a table."""
    seen = set()
    for directory in directories:
        for place in _candidates(directory):
            if place in seen:
                break
            seen.add(place)
            if table := _table_at(place):
                raise refusal(table, place)


def refusal(table: LakeTable, directory: Path) -> InputError:
    """Return the error for a file or directory inside of such a table."""
    return InputError(
        f"this is a table of {table.format}: only its log, `{table.log}/`, knows which of its files count",
        place=str(directory),
        hint=HINTS[table.format].replace("%s", str(directory)),
    )


def _candidates(directory: Path) -> Iterator[Path]:
    """Yield the directories that may be the table to which a directory belongs.

    In an object store each look is a request, and the objects below have been listed: there only the directories above partitions are looked at.
    """
    if fs(directory).is_local:
        yield directory
    for below, place in pairwise((directory, *directory.parents)):
        partition = "=" in below.name or below.name == DATA
        if below.name == CHANGES or not (fs(directory).is_local or partition):
            return
        yield place


def _table_at(directory: Path) -> LakeTable | None:
    for name, kind in LOGS.items():
        if (directory / name).is_dir():
            return LakeTable(str(directory), name, kind)
    try:
        names = [path.name for path in (directory / METADATA).iterdir()]
    except OSError:
        return None
    return LakeTable(str(directory), METADATA, ICEBERG) if any(name.endswith(SNAPSHOT) for name in names) else None


PACKINGS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}
"""The packing of a file, by the last ending of its name."""
PARQUET, IPC, CSV, NDJSON, ORC, AVRO, EXCEL = "Parquet", "Arrow IPC", "CSV", "NDJSON", "ORC", "Avro", "Excel"
TEXTS = (CSV, NDJSON, EXCEL)
"""Kinds of files that have the types of columns from the pipeline."""
KINDS = {
    ".arrow": IPC,
    ".ipc": IPC,
    ".feather": IPC,
    ".csv": CSV,
    ".tsv": CSV,
    ".ndjson": NDJSON,
    ".jsonl": NDJSON,
    ".json": NDJSON,
}
KINDS |= dict.fromkeys((".txt", ".dat", ".data"), CSV)
KINDS |= {".orc": ORC, ".avro": AVRO, ".xlsx": EXCEL}


def packing_of(name: str) -> str:
    """Return the ending of a packed file's name, in small letters; "" for a file that is not packed.

    >>> packing_of("a.csv.GZ"), packing_of("a.csv")
    ('.gz', '')
    """
    name = name.lower()
    return next((ending for ending in PACKINGS if name.endswith(ending)), "")


def bare(name: str) -> str:
    """Return a name in small letters without the ending of its packing.

    >>> bare("A.csv.gz"), bare("a.csv")
    ('a.csv', 'a.csv')
    """
    return name.lower().removesuffix(packing_of(name))


def name_of_kind(path: Path) -> str:
    """Return the kind of a file by the ending of its name: Parquet if nothing else."""
    ending = bare(path.name)
    return KINDS.get(ending[ending.rfind(".") :] if "." in ending else "", PARQUET)


UNFINISHED = (TEMPORARY, ".tmp", ".temp", ".part", ".partial", ".inprogress", ".crdownload", ".swp", "~")
"""Endings of names under which other tools write files that they have not finished."""
PRIVATE = (".", "_", "~$")
"""Beginnings of the names that are hidden, or their writer's own."""
SUFFIXES = (
    ".parquet",
    ".parq",
    ".pq",
    ".arrow",
    ".ipc",
    ".feather",
    ".orc",
    ".avro",
    ".xlsx",
    *(text + packing for text in (".csv", ".tsv", ".ndjson", ".jsonl") for packing in ("", *PACKINGS)),
)
"""Endings of the files that are taken from a directory: a README may be there too. A file or glob is taken as it is named."""
ONLY_NAMED = (".json", ".json.gz", ".json.bz2", ".json.zst")
"""Endings of files that hold data or settings: they are taken where a person names them, by a glob or one by one."""
ONLY_WHERE_NAMED = "JSON is read where `path` names it, as in '*.json'"
OUR_OWN = ("~$", "_progress.json", "_SUCCESS", "_metadata", "_common_metadata", "_started", "_committed")
"""Beginnings of private names that everybody expects beside data."""
NOT_THERE = "check the input's `path`; it is relative to the pipeline file"


@frozen
class PassedOver:
    """A file or directory of an input that is not read, relative to its root, and why."""

    path: str
    why: str


class NothingFound(InputError):
    """The error of a path where there is no file."""


def places_of(path: str, base: Path) -> tuple[Path, ...]:
    """Return the directories that an input's files may be relative to, whether or not they exist."""
    whole = locate(base, path)
    fixed = _fixed(whole) if isinstance(whole, ObjectPath) else pattern_of(path, base)[0]
    return tuple(dict.fromkeys((fixed, whole.parent) if fixed == whole else (fixed,)))


def _fixed(whole: ObjectPath) -> ObjectPath:
    """Return the part of a path in an object store that is no pattern."""
    while glob.has_magic(whole.key):
        whole = whole.parent
    return whole


def pattern_of(path: str, base: Path) -> tuple[Path, str]:
    """Return the directory in which a path's first pattern is looked for, the path itself if it has none, and the path as `glob` takes it.

    Only a part of what a person wrote is a pattern, none of `base`: a pipeline in a directory called `[ab]` reads none of `a`.

    >>> pattern_of("../in/*/a.csv", Path("/data/[ab]/shop"))
    (PosixPath('/data/[ab]/in'), '/data/[[]ab]/in/*/a.csv')
    """
    above = [part for part in Path(os.path.normpath(path)).parts if part == ".."]
    literal = Path("/") if path.startswith("/") else Path(os.path.normpath(base.joinpath(*above)))
    parts = locate(base, path).relative_to(literal).parts
    plain = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return literal.joinpath(*parts[:plain]), str(Path(glob.escape(str(literal)), *parts))


def find_files(path: str, base: Path, passed: list[PassedOver]) -> tuple[Path, Iterator[InputFile]]:
    """Return the root of an input and its files; those that are not read are added to `passed`."""
    whole = locate(base, path)
    if isinstance(whole, ObjectPath):
        return _find_objects(path, whole, passed)
    if whole.is_dir():
        return whole, _walk(str(whole), "", passed)
    if whole.is_file():  # a person has named it, so any name is allowed
        return whole.parent, iter([_entry(whole.name, whole.stat(), whole.parent)])
    if not glob.has_magic(path):
        raise _nothing(f"there is no file or directory '{path}'", whole)
    fixed, pattern = pattern_of(path, base)
    found = list(_matching(pattern, f"{fixed}".rstrip("/") + "/", passed))
    if not found:
        raise _nothing(f"the glob '{path}' matches no file", whole)
    return fixed, iter(found)


def _matching(pattern: str, fixed: str, passed: list[PassedOver]) -> Iterator[InputFile]:
    """Yield the files that a pattern below a directory matches."""
    for match in glob.iglob(pattern, recursive=True):  # noqa: PTH207 - Path.glob takes no absolute pattern
        name = match.removeprefix(fixed)
        if _ignored(name):
            _note(name, passed)
            continue
        found = os.stat(match)  # noqa: PTH116 - there may be tens of thousands
        if not S_ISDIR(found.st_mode):
            yield _entry(name, found, fixed[:-1])


def _nothing(problem: str, whole: Path) -> InputError:
    return NothingFound(problem, place=str(whole), hint=NOT_THERE)


def _find_objects(path: str, whole: ObjectPath, passed: list[PassedOver]) -> tuple[ObjectPath, Iterator[InputFile]]:
    """Return the root of an input in an object store and its files, by the same rules."""
    pattern = glob.has_magic(whole.key)
    root = _fixed(whole)
    found = []
    for object_path, entry in root.below():
        name = os.path.relpath(object_path.inner, root.inner)
        if table := table_of(name):
            raise refusal(table, root / table.directory)
        matches = _matches(object_path.parts, whole.parts) if pattern else name.lower().endswith(SUFFIXES)
        if matches and not _ignored(name):
            found.append(_object(name, entry))
        elif matches or not pattern:
            _note(name, passed)
    if found:
        return root, iter(found)
    if pattern:
        raise _nothing(f"the glob '{path}' matches no file", whole)
    if not whole.is_dir():
        try:
            return whole.parent, iter([_object(whole.name, whole.head())])
        except FileNotFoundError:
            raise _nothing(f"there is no file or directory '{path}'", whole) from None
    return whole, iter(())


def _object(name: str, entry: dict[str, Any]) -> InputFile:
    """Return the file of an object: its tag identifies its content, as a fingerprint does."""
    return InputFile(name, entry["size"], int(entry["last_modified"].timestamp()) * 1_000_000_000, tag_of(entry))


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a glob takes a path, both in parts: `**` stands for any number of directories.

    >>> _matches(["log", "2024", "a.parquet"], ["log", "**", "*.parquet"])
    True
    """
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_matches(names[at:], pattern[1:]) for at in range(len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


def _walk(
    directory: str, prefix: str, passed: list[PassedOver], above: tuple[tuple[int, int], ...] = ()
) -> Iterator[InputFile]:
    """Yield the files below a directory; `above` are the directories that lead to it, where a link is among them."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(PRIVATE) or name.endswith(UNFINISHED):
                _note(prefix + name, passed)
            elif entry.is_dir():
                if entry.is_symlink():
                    leading = {*above, *_directories(directory, prefix)}
                    there = entry.stat()
                    if (there.st_dev, there.st_ino) in leading:
                        passed.append(PassedOver(prefix + name, "a link to a directory above it"))
                        continue
                    yield from _walk(entry.path, f"{prefix}{name}/", passed, (*leading,))
                else:
                    yield from _walk(entry.path, f"{prefix}{name}/", passed, above)
            elif name.lower().endswith(SUFFIXES):
                yield _entry(name, entry.stat(), directory, prefix)
            else:
                _note(prefix + name, passed)


def _directories(directory: str, prefix: str) -> Iterator[tuple[int, int]]:
    """Yield a directory of an input and those above it up to its root, as the file system knows them."""
    for _ in range(prefix.count("/") + 1):
        found = os.stat(directory)  # noqa: PTH116 - as in `_matching`
        yield found.st_dev, found.st_ino
        directory = os.path.dirname(directory)  # noqa: PTH120 - as in `_matching`


def _note(path: str, passed: list[PassedOver]) -> None:
    """Add a file to those that are ignored with a note, but for hidden files and marks that other tools leave beside data."""
    name = path.rpartition("/")[2]
    if name.upper().startswith(("README", "LICENSE")):
        return
    hidden = any(part.startswith(".") for part in path.split("/"))
    if hidden or name.startswith(OUR_OWN) or name.endswith(TEMPORARY):
        return
    if name.endswith(UNFINISHED):
        why = "its name marks a file that isn't finished"
    elif any(part.startswith("_") for part in path.split("/")):
        why = "a name that begins with '_' is its writer's own"
    elif name.lower().endswith(ONLY_NAMED):
        why = ONLY_WHERE_NAMED
    else:
        ending = name[name.rfind(".") :] if "." in name else ""
        why = (
            f"no kind of file that is read ends in '{ending}'"
            if ending
            else "its name has no ending of a kind that is read"
        )
    passed.append(PassedOver(path, why))


def _entry(name: str, stat: os.stat_result, directory: str | Path, prefix: str = "") -> InputFile:
    """Return the file of this name in a directory; refuse a pipe or a device, whose read would wait or never end."""
    if not S_ISREG(stat.st_mode):
        raise InputError("the input is not a plain file", place=f"{directory}/{name}", hint="take it out of the input")
    return InputFile(prefix + name, stat.st_size, stat.st_mtime_ns)


def taken_from_directory(path: str) -> bool:
    """Return whether a file is one of those that are read of a directory."""
    return path.lower().endswith(SUFFIXES) and not _ignored(path)


def _ignored(path: str) -> bool:
    """Return whether a name in the path is hidden, private (as Spark's `_SUCCESS` and our `_progress.json`) or unfinished."""
    return any(name.startswith(PRIVATE) for name in path.split("/")) or path.endswith(UNFINISHED)


NULL = "__HIVE_DEFAULT_PARTITION__"
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

Partition = dict[str, str | None]


def partition_of(path: str) -> Partition:
    """Return the columns that the directories of a relative path state.

    >>> partition_of("year=2024/place=New%20York/a.parquet")
    {'year': '2024', 'place': 'New York'}
    """
    found: Partition = {}
    for directory in path.split("/")[:-1]:
        name, equals, value = directory.partition("=")
        if equals and name:
            found[unquote(name)] = None if value == NULL else unquote(value)
    return found


def named_by(pattern: str, path: str) -> Partition | None:
    """Return the columns in the name of a file, None for one that the pattern doesn't fit.

    >>> named_by("people-{day}.csv", "in/people-2024-01-02.csv")
    {'day': '2024-01-02'}
    """
    parts = re.split(r"\{(\w+)\}", pattern)
    expression = "".join(f"(?P<{part}>.+?)" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    found = re.fullmatch(expression, path.rpartition("/")[2])
    return None if found is None else dict(found.groupdict())


def types_of_partitions(partitions: Iterable[Partition], times: Iterable[str], declared: Schema | None) -> Schema:
    """Return a type for each column of paths: the declared one; else int64 if all its values are integers, else string; a time
    may also be a date.
    """
    values: dict[str, set[str | None]] = {}
    for partition in partitions:
        for name, value in partition.items():
            values.setdefault(name, set()).add(value)
    guessed = {name: Type(_guess(found, may_be_date=name in times), nullable=True) for name, found in values.items()}
    return guessed | {name: kind.or_null() for name, kind in (declared or {}).items()} | {ARRIVAL: ARRIVAL_TIME}


def _guess(values: set[str | None], *, may_be_date: bool) -> str:
    for kind, form in (("int64", INTEGER), *([("date", DATE)] if may_be_date else [])):
        if all(text is None or form.fullmatch(text) for text in values):
            return kind
    return "string"


def names_in_file(path: Path, former: FormerNames, found: Collection[str]) -> dict[str, str]:
    """Return a file's names of columns, of those that it has under another name. Raises InputError if it has a column under several.

    >>> from pathlib import Path
    >>> names_in_file(Path("a.csv"), {"area": ("Province_State", "Province/State")}, ["Province/State", "deaths"])
    {'area': 'Province/State'}
    """
    names = {}
    for column, others in former.items():
        having = [name for name in (column, *others) if name in found]
        if len(having) > 1:
            raise InputError(
                f"the file has several columns for '{column}': {', '.join(having)}",
                place=str(path),
                hint=f"remove all but one from the file, or take one out of the input's `columns: {{{column}: {{from: ...}}}}`",
            )
        if having and having[0] != column:
            names[column] = having[0]
    return names


def in_file(names: Mapping[str, str], columns: Mapping[str, T]) -> dict[str, T]:
    """Return a mapping of columns as one of the names that a file has for them.

    >>> in_file({"area": "Province/State"}, {"area": "string", "deaths": "int64"})
    {'Province/State': 'string', 'deaths': 'int64'}
    """
    return {names.get(column, column): value for column, value in columns.items()}


def by_column(names: Mapping[str, str], found: Mapping[str, T]) -> dict[str, T]:
    """Return a mapping of a file's names as one of columns.

    >>> by_column({"area": "Province/State"}, {"Province/State": "string", "deaths": "int64"})
    {'area': 'string', 'deaths': 'int64'}
    """
    columns = {name: column for column, name in names.items()}
    return {columns.get(name, name): value for name, value in found.items()}


def refuse_patterns(place: str, names: Iterable[str], declared: Schema | None = None) -> None:
    """Refuse columns that polars would take for several, unless the declared columns leave them out."""
    for name in names:
        if is_pattern(name) and (declared is None or name in declared):
            raise InputError(f"'{name}' can't be a column's name", place=place, hint=PATTERN_HINT)
