"""The sides of a comparison: what a person names, opened as rows with multiplicities.

A side is opened in two steps, because text says nothing of its types: first both sides say which columns they have
(`Given`), then each is read with the types that the other has, or that its text allows (`Side`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from ddcli.changelog import DIFF, LATEST, TIME, ChangeLog
from ddcli.compare.columns import type_name
from ddcli.compare.text_types import infer_types
from ddcli.errors import DdError, EngineError, InputError
from ddcli.expressions.types import Schema, Type, from_polars
from ddcli.store.footers import CSV, NDJSON, UNREADABLE, name_of_kind
from ddcli.store.listing import list_input
from ddcli.store.log_scan import find_damaged, not_after
from ddcli.store.objects import locate
from ddcli.store.partitions import partition_of
from ddcli.store.progress import read_progress
from ddcli.store.tables import FAILING, READ_ERRORS, Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.store.listing import Listing

WEIGHT = "\0weight"
"""The column of a side's rows that says how often each is there."""
BYTES_READ = 1 << 20
INT64 = Type("int64", nullable=True)


@dataclass(frozen=True)
class Side:
    """One side, open: `rows` has its columns and `WEIGHT`; `kind` says in words what it is.

    `columns` is None for a log that has no files yet: it is empty, whatever its columns are. `at` is the time as of which a
    log is read, by column; `refuse` turns what reading raised into what a person can use.
    """

    label: str
    kind: str
    columns: Mapping[str, pl.DataType] | None
    rows: pl.LazyFrame
    at: Mapping[str, pl.Series] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_log: bool = False
    files: tuple[Path, ...] = ()
    refuse: Callable[[BaseException], DdError | None] = lambda _: None

    def failure(self, error: BaseException) -> DdError:
        """Return the error to raise when reading the side has failed."""
        return self.refuse(error) or EngineError(
            f"can't be read: {str(error).splitlines()[0]}",
            place=self.label,
            hint="a value may be out of the range of the type in which the sides are compared: see `--ignore`",
        )


class Given(Protocol):
    """What a person has named as a side."""

    @property
    def known(self) -> Mapping[str, pl.DataType]:
        """The columns whose types are known."""

    @property
    def texts(self) -> Mapping[str, pl.LazyFrame]:
        """The columns of text, each with the rows that have it."""

    def open(self, types: Schema, said: str) -> Side:
        """Open it with these types of its text; `said` tells where they come from."""


@dataclass(frozen=True)
class Reading:
    """How a path is to be read. `time` None: as the log says; `as_of` None: with all its updates; `plain`: as rows, in any case."""

    time: tuple[str, ...] | None = None
    diff: str = DIFF
    as_of: Any = None
    plain: bool = False


@dataclass(frozen=True)
class FrameGiven:
    """A frame of a program."""

    label: str
    frame: pl.LazyFrame

    @property
    def known(self) -> Mapping[str, pl.DataType]:
        return dict(self.frame.collect_schema())

    @property
    def texts(self) -> Mapping[str, pl.LazyFrame]:
        return {}

    def open(self, types: Schema, said: str) -> Side:
        return Side(self.label, "frame", self.known, self.frame.with_columns(pl.lit(1, pl.Int64).alias(WEIGHT)))


@dataclass(frozen=True)
class FilesGiven:
    """Files of one kind: a directory, a file, a glob. `text` are rows as they are written, of files that are text."""

    path: str
    whole: Path
    listing: Listing
    reading: Reading
    names: Mapping[str, pl.DataType]
    text: pl.LazyFrame | None

    @property
    def known(self) -> Mapping[str, pl.DataType]:
        return {} if self.text is not None else self.names

    @property
    def texts(self) -> Mapping[str, pl.LazyFrame]:
        return {} if self.text is None else dict.fromkeys(self.names, self.text)

    @property
    def is_log(self) -> bool:
        """Whether the rows are updates: they have a diff and a time; or a time at least, if it was said which columns that is."""
        reading = self.reading
        if reading.plain:
            return False
        if reading.time:
            return all(name in self.names for name in reading.time)
        return reading.diff in self.names and (TIME in self.names or read_progress(self.whole) is not None)

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [self.listing.path(file) for file in self.listing.files]

    def open(self, types: Schema, said: str) -> Side:
        declared = types if self.text is not None else None
        try:
            side = self._log(declared) if self.is_log else self._table(declared)
        except InputError as error:
            if self.text is None:
                raise
            hint = "the type is the other side's: correct the file, or leave the column out with `--ignore`"
            raise InputError(error.problem, place=error.place, hint=hint) from None
        return replace(side, notes=(said,)) if said else side

    def _table(self, declared: Schema | None) -> Side:
        partitions = {self.listing.path(file): said for file in self.listing.files if (said := partition_of(file.path))}
        tables = Tables(declared, partitions)
        found = [tables.footer(path) for path in self.paths]
        for path, columns in zip(self.paths, found, strict=True):
            _check_alike(path, columns, found[0])
        groups: dict[tuple[object, ...], list[Path]] = {}
        for path, columns in zip(self.paths, found, strict=True):
            groups.setdefault(tables.alike(path, columns), []).append(path)
        names = list(found[0])
        scans = []
        for paths in groups.values():
            scan = tables.scan(paths, names)
            flags = scan.select(pl.col(f"^{FAILING}.*$").any())
            if flags.collect_schema() and any(tables.streamed(paths[0], flags).row(0)):
                for path in paths:
                    tables.collect([path], names)
            scans.append(scan.select(*names, pl.lit(1, pl.Int64).alias(WEIGHT)))
        count = f"{len(self.paths)} files" if len(self.paths) > 1 else "a file"
        kind = f"{name_of_kind(self.paths[0])}, {count}"
        return Side(
            self.path,
            kind,
            found[0],
            pl.concat(scans),
            files=tuple(self.paths),
            refuse=lambda _error: find_damaged(tables, self.paths),
        )

    def _log(self, declared: Schema | None) -> Side:
        reading = self.reading
        log = ChangeLog.open(self.path, Path.cwd(), time=reading.time, diff=reading.diff, columns=declared)
        rows = pl.concat(log.reader.scans())
        at: dict[str, pl.Series] = {}
        if reading.as_of is not None and reading.as_of != LATEST:
            time = log.at(reading.as_of, "--as-of")
            rows = rows.filter(not_after(list(log.time), time))
            at = {
                name: pl.Series([value]).cast(pl.Int32 if kind.kind == "date" else pl.Int64).cast(kind.to_polars())
                for value, (name, kind) in zip(time, log.time.items(), strict=True)
            }
        kind = f"change log as of {reading.as_of}" if at else "change log"
        return Side(
            self.path,
            kind,
            {name: column.to_polars() for name, column in log.columns.items()},
            rows.select(*log.columns, pl.col(log.diff).alias(WEIGHT)),
            at,
            is_log=True,
            refuse=log.refusal,
        )


@dataclass(frozen=True)
class EmptyLog:
    """A log that nothing has been written to yet but its progress."""

    label: str
    known: Mapping[str, pl.DataType] = field(default_factory=dict)
    texts: Mapping[str, pl.LazyFrame] = field(default_factory=dict)

    def open(self, types: Schema, said: str) -> Side:
        return Side(self.label, "change log without updates", None, pl.LazyFrame(), is_log=True)


def give(side: str | Path | pl.DataFrame | pl.LazyFrame, reading: Reading, label: str) -> Given:
    """Return what was named as a side: a frame, or a path relative to the current directory. Raises InputError."""
    if isinstance(side, pl.DataFrame | pl.LazyFrame):
        return FrameGiven(label, side.lazy())
    path = str(side)
    whole = locate(Path.cwd(), path)
    try:
        listing = list_input(path, Path.cwd())
    except InputError as error:
        raise InputError(error.problem, place=error.place, hint="paths are relative to the current directory") from None
    if not listing.files:
        if read_progress(whole) is not None:
            return EmptyLog(path)
        raise InputError(
            "there are no files of data", place=path, hint="data is in .parquet, .arrow, .csv, .ndjson or .jsonl files"
        )
    paths = [listing.path(file) for file in listing.files]
    kinds = {name_of_kind(one) for one in paths}
    if len(kinds) > 1:
        raise InputError(
            f"there are files of several kinds: {', '.join(sorted(kinds))}",
            place=path,
            hint="name one kind by a glob, as in 'data/*.csv'",
        )
    (kind,) = kinds
    if kind not in {CSV, NDJSON}:
        partitions = {listing.path(file): said for file in listing.files if (said := partition_of(file.path))}
        return FilesGiven(path, whole, listing, reading, Tables(None, partitions).footer(paths[0]), None)
    text = _text(paths, kind)
    return FilesGiven(path, whole, listing, reading, dict(text.collect_schema()), text)


def open_sides(a: Given, b: Given) -> tuple[Side, Side]:
    """Open both sides: text gets the other side's types, if these are known, else those that all its values, on both sides, can be read in."""
    unknown: dict[str, list[pl.LazyFrame]] = {}
    taken: list[Schema] = []
    for one, other in ((a, b), (b, a)):
        types = {name: kind for name in one.texts if (kind := _readable(other.known.get(name))) is not None}
        taken.append(types)
        for name, frame in one.texts.items():
            if name not in types:
                unknown.setdefault(name, []).append(frame)
    try:
        inferred = infer_types(unknown)
    except READ_ERRORS:
        inferred = dict.fromkeys(unknown, Type("string", nullable=True))  # opening says which file is damaged
    opened = []
    for given, types, names in ((a, taken[0], "AB"), (b, taken[1], "BA")):
        own = {name: types.get(name) or inferred[name] for name in given.texts}
        guessed = [f"{name} {own[name].required()}" for name in own if name not in types]
        said = [f"those of {names[1]}"] if types else []
        said += [f"{'else ' if types else ''}inferred: {', '.join(guessed)}"] if guessed else []
        opened.append(given.open(own, f"{names[0]} is text: its types are {', '.join(said)}" if said else ""))
    return opened[0], opened[1]


def _readable(dtype: pl.DataType | None) -> Type | None:
    """Return the type that text can be read in to be like another side's column, if there is one."""
    kind = from_polars(dtype, nullable=True) if dtype is not None else None
    return None if kind is None or kind.kind in UNREADABLE else kind


def _text(paths: Sequence[Path], kind: str) -> pl.LazyFrame:
    """Return the rows of files of text as they are written."""
    try:
        if kind == CSV:
            names = list(Tables({}).footer(paths[0]))
        else:
            names = list(pl.scan_ndjson(list(paths), infer_schema_length=None).collect_schema())
    except READ_ERRORS:
        names = []
    tables = Tables({name: Type("string", nullable=True) for name in names})
    for path in paths:
        tables.footer(path)
    if not names:
        damage = find_damaged(tables, paths)
        raise damage or InputError("the file has no columns", place=str(paths[0]))
    return tables.kind(paths[0]).scan(list(paths))


def _check_alike(path: Path, found: Mapping[str, pl.DataType], first: Mapping[str, pl.DataType]) -> None:
    """Refuse a file whose columns are not those of the first one."""
    for name in dict.fromkeys([*first, *found]):
        one, other = (type_name(side[name]) if name in side else None for side in (found, first))
        if one != other:
            what = f"has no column '{name}'" if one is None else f"has a column '{name}' of {one}"
            raise InputError(
                f"the file {what}, and the first file {'has none' if other is None else f'one of {other}'}",
                place=str(path),
                hint="files of one side must have the same columns: name those that have them by a glob",
            )
