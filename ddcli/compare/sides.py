"""The sides that a person names: their files, their kind, log or table, and the types of their text columns.

A side is opened in two steps, because text has no types: first both sides list their columns (`SideArgument`), then each is read with the
types of the other, or the types that fit all its text (`Side`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.compare.columns import type_name
from ddcli.compare.pairs import WEIGHT, Side
from ddcli.dataclass import dataclass
from ddcli.engine.kernels.text_syntax import EXACT_DIGITS
from ddcli.errors import InputError, UsageError
from ddcli.expressions.csv_dialect import DEFAULT, Dialect
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column
from ddcli.expressions.types import Schema, Type, from_polars
from ddcli.privacy import hide, preview
from ddcli.sources.change_log import DIFF, LATEST, TIME, ChangeLog, tags_of_files
from ddcli.store.files.access import locate
from ddcli.store.log.log_files import find_damaged, not_after
from ddcli.store.state.outputs import read_progress
from ddcli.store.tables.compression import Damage
from ddcli.store.tables.files import FAILING, Tables
from ddcli.store.tables.footers import UNREADABLE
from ddcli.store.tables.input_path import CSV, NDJSON, NOT_THERE, name_of_kind, partition_of, refuse_patterns
from ddcli.store.tables.inventory import list_input
from ddcli.store.tables.json_kind import names_in_objects
from ddcli.store.tables.kinds import READ_ERRORS, damaged

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ddcli.expressions.types import Schema
    from ddcli.store.tables.listing import Listing


TEXT = Type("string", nullable=True)
FIRST = 10_000
"""The number of rows that are checked before the others."""
WHOLE = r"-?(0|[1-9][0-9]{0,17})"
SHORT = r"-?(0|[1-9][0-9]{0,14})"
POWER = r"([eE][+-]?[0-9]{1,3})?"
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
MOMENT = DAY + r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})"
FORMS = {
    Type("int64", nullable=True): WHOLE,
    Type("float64", nullable=True): rf"{SHORT}(\.[0-9]+)?{POWER}",
    Type("bool", nullable=True): "true|false",
    Type("date", nullable=True): DAY,
    Type("datetime", nullable=True, unit="us"): MOMENT,
    Type("datetime", nullable=True, unit="us", zone="UTC"): MOMENT + ZONE,
}
"""The types that text may have, the narrowest first, and the patterns of their values."""


TOGETHER = 20
"""The number of columns that are checked in one query: its time and memory grow with the square of its columns."""


def read(name: str, kind: Type) -> pl.Expr:
    """Return a column of text as values of a type, as pipelines read it; null for text that is not of the type."""
    return Lowering().value(Cast(Column(name, TEXT), kind, try_=True))


def infer_types(texts: Mapping[str, Sequence[pl.LazyFrame]]) -> Schema:
    """Return the types of text columns; `texts` has all frames with each column.

    Types that the first rows rule out are not checked in the others, which are read once.
    """
    by_frame: dict[int, tuple[pl.LazyFrame, list[str]]] = {}
    for name, frames in texts.items():
        for frame in frames:
            by_frame.setdefault(id(frame), (frame, []))[1].append(name)
    possible = {name: list(FORMS) for name in texts}
    valued: set[str] = set()
    longer = []
    for frame, names in by_frame.values():
        first = frame.select(names).head(FIRST).collect(engine="streaming")
        _rule_out(first.lazy(), names, possible, valued)
        if len(first) == FIRST:
            longer.append((frame, names))
    for frame, names in longer:
        _rule_out(frame, names, possible, valued)
    return {name: possible[name][0] if possible[name] and name in valued else TEXT for name in texts}


def _rule_out(rows: pl.LazyFrame, names: Sequence[str], possible: dict[str, list[Type]], valued: set[str]) -> None:
    """Remove from `possible` the types that one of these rows doesn't fit, and add columns with any value to `valued`."""
    for few in (names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)):
        checks = [pl.col(name).is_not_null().any().alias(f"{name}:any") for name in few]
        checks += [_fits(name, kind).alias(f"{name}:{kind}") for name in few for kind in possible[name]]
        found = rows.select(checks).collect(engine="streaming").row(0, named=True)
        for name in few:
            possible[name] = [kind for kind in possible[name] if found[f"{name}:{kind}"]]
            valued |= {name} if found[f"{name}:any"] else set()


def _fits(name: str, kind: Type) -> pl.Expr:
    """Return whether all values of a column fit a type: days and moments must exist, floats must equal the written numbers."""
    fits = pl.col(name).str.contains(f"^({FORMS[kind]})$")
    if kind.is_float:
        number = _digits(pl.col(name))
        fits &= (number.str.len_bytes() <= EXACT_DIGITS) | (number == _digits(read(name, kind).cast(pl.String)))
    if kind.kind in {"date", "datetime"}:
        fits &= read(name, kind).is_not_null()
    return (pl.col(name).is_null() | fits).all()


def _digits(text: pl.Expr) -> pl.Expr:
    """Return the digits of numbers, without point, exponent, or zeros at either end."""
    mantissa = text.str.extract(r"^-?([0-9.]*)")
    return mantissa.str.replace(".", "", literal=True).str.strip_chars("0")


ONCE = pl.lit(1, pl.Int64).alias(WEIGHT)
MOST_OF_TEXT = 1_000
"""The most columns of text of a side that are read in types: the time and memory of polars' queries grow with the square of their columns."""


@dataclass(frozen=True)
class SideReader:
    """The options for reading a path: the `time` columns of a log (None: as it states), the time that it is read `as_of` (None:
    with all updates), `plain` to read a log as rows, the `dialect` of CSV.
    """

    time: tuple[str, ...] | None = None
    diff: str = DIFF
    as_of: Any = None
    plain: bool = False
    dialect: Dialect = DEFAULT


@dataclass(frozen=True)
class FilesGiven:
    """Files of one kind: a directory, a file, a glob. `text` are the untyped rows of text files."""

    label: str
    whole: Path
    listing: Listing
    reading: SideReader
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
        """Return whether the rows are updates: they have a diff and a time; or if the caller has named the time columns, these."""
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

    def open(self, types: Schema, origin: str) -> Side:
        zoned = {name: kind for name, kind in types.items() if kind.zone is not None}
        declared = None if self.text is None else types | dict.fromkeys(zoned, TEXT)
        try:
            side = self._log(declared) if self.is_log else self._table(declared)
            side = _with_zones(side, zoned)
        except InputError as error:
            if self.text is None:
                raise
            hint = "the type is the other side's: correct the file, or leave the column out with `--ignore`"
            raise InputError(error.problem, place=error.place, hint=hint) from None
        return replace(side, notes=(*side.notes, origin)) if origin else side

    def _table(self, declared: Schema | None) -> Side:
        partitions = {
            self.listing.path(file): named for file in self.listing.files if (named := partition_of(file.path))
        }
        tables = Tables(declared, partitions, dialect=self.reading.dialect)
        found = [tables.footer(path) for path in self.paths]
        for path, columns in zip(self.paths, found, strict=True):
            _check_alike(path, columns, found[0])
            tables.check(path, columns)
        names = list(found[0])
        scans = []
        for path in self.paths:
            scan = tables.scan([path], names)
            flags = scan.select(pl.col(f"^{FAILING}.*$").any())
            if flags.collect_schema() and any(tables.streamed([path], flags).row(0)):
                tables.collect([path], names)  # raises the error with the row's number
            scans.append(scan.select(*names, ONCE))
        count = f"{len(self.paths)} files" if len(self.paths) > 1 else "a file"
        kind = f"{name_of_kind(self.paths[0])}, {count}"
        return Side(
            self.label,
            kind,
            found[0],
            scans,
            sliced=self.text is None,
            files=tuple((path, partitions.get(path, {})) for path in self.paths),
            refuse=lambda _error: find_damaged(tables, self.paths),
        )

    def _log(self, declared: Schema | None) -> Side:
        reading = self.reading
        log = ChangeLog.open(
            self.label, Path.cwd(), time=reading.time, diff=reading.diff, columns=declared, dialect=reading.dialect
        )
        keep, notes = None, (*log.notes,)
        at: dict[str, pl.Series] = {}
        if reading.as_of is not None and reading.as_of != LATEST:
            time = log.at(reading.as_of, "--as-of")
            keep = not_after(list(log.time), time)
            if closed := log.open_from(reading.as_of):
                notes += (f"{self.label} is complete before {closed}: as of {reading.as_of} it may still change",)
            at = {
                name: pl.Series([value]).cast(pl.Int32 if kind.kind == "date" else pl.Int64).cast(kind.to_polars())
                for value, (name, kind) in zip(time, log.time.items(), strict=True)
            }
        kind = f"change log as of {reading.as_of}" if at else "change log"
        return Side(
            self.label,
            kind,
            {name: column.to_polars() for name, column in log.columns.items()},
            [scan.with_columns(pl.col(log.diff).alias(WEIGHT)) for scan in log.reader.scans()],
            keep,
            sliced=self.text is None,
            at=at,
            notes=notes,
            is_log=True,
            log=self.whole,
            refuse=log.refusal,
        )


SideArgument = Side | FilesGiven
"""A side as a person names it, by its `label`: it has `known` types of columns, the columns of text with the rows that have each, and can be opened with their types and a note on the origin of these."""


def named_side(side: str | Path | pl.DataFrame | pl.LazyFrame, reading: SideReader, label: str) -> SideArgument:
    """Return the side that a caller named: a frame, or a path relative to the current directory. Raises InputError."""
    if isinstance(side, pl.DataFrame | pl.LazyFrame):
        frame = side.lazy()
        columns, held = dict(frame.collect_schema()), isinstance(side, pl.DataFrame)
        return Side(label, "frame", columns, [frame.with_columns(ONCE)], sliced=held)
    path = str(side)
    whole = locate(Path.cwd(), path)
    try:
        listing = list_input(path, Path.cwd())
    except InputError as error:
        if error.hint in (None, NOT_THERE):
            error.hint = "paths are relative to the current directory"
        raise
    if not listing.files:
        if read_progress(whole) is not None:
            return Side(path, "change log without updates", None, (), is_log=True)
        raise InputError(
            "there are no data files", place=path, hint="data is in .parquet, .arrow, .csv, .ndjson or .jsonl files"
        )
    paths = [listing.path(file) for file in listing.files]
    hide(tags_of_files(whole, paths))
    kinds = {name_of_kind(one) for one in paths}
    if len(kinds) > 1:
        raise InputError(
            f"there are files of several kinds: {', '.join(sorted(kinds))}",
            place=path,
            hint="name one kind by a glob, as in 'data/*.csv'",
        )
    (kind,) = kinds
    if kind not in {CSV, NDJSON}:
        partitions = {listing.path(file): named for file in listing.files if (named := partition_of(file.path))}
        return FilesGiven(path, whole, listing, reading, Tables(None, partitions).footer(paths[0]), None)
    text = _text(paths, kind, reading.dialect)
    return FilesGiven(path, whole, listing, reading, dict(text.collect_schema()), text)


def open_sides(a: SideArgument, b: SideArgument, ignore: Collection[str] = ()) -> tuple[Side, Side]:
    """Open both sides: text columns get the other side's types, if these are known, else the first type that fits all values of both sides.

    The columns to `ignore` stay text.
    """
    for dialect in {given.reading.dialect for given in (a, b) if isinstance(given, FilesGiven)} - {DEFAULT}:
        if not any(isinstance(given, FilesGiven) and name_of_kind(given.paths[0]) == CSV for given in (a, b)):
            raise UsageError("--csv is for CSV files, and neither side is CSV", hint="leave it out")
        if not dialect.has_header:
            raise UsageError(
                "files without a header have no names to compare by", hint="convert them first: `dd convert`"
            )
    unknown: dict[str, list[pl.LazyFrame]] = {}
    taken: list[Schema] = []
    for one, other in ((a, b), (b, a)):
        refuse_patterns(one.label, one.known)
        wanted = [name for name in one.texts if name not in ignore]
        if len(wanted) > MOST_OF_TEXT:
            raise InputError(
                f"it has {len(wanted)} columns of text, and at most {MOST_OF_TEXT} can be compared",
                place=one.label,
                hint="leave columns out with `--ignore`, or convert both sides to Parquet: `dd convert`",
            )
        types = {name: kind for name in wanted if (kind := _readable(other.known.get(name))) is not None}
        taken.append(types)
        for name in wanted:
            if name not in types:
                unknown.setdefault(name, []).append(one.texts[name])
    try:
        inferred = infer_types(unknown)
    except READ_ERRORS:
        inferred = dict.fromkeys(unknown, TEXT)  # opening reports the damaged file
    origins = [_origin(given, types, inferred, other) for given, types, other in zip((a, b), taken, "BA", strict=True)]
    notes = [f"{name} is text: {words}" if words else "" for name, words in zip("AB", origins, strict=True)]
    if origins[0] == origins[1]:
        notes = [f"both sides are text: {origins[0]}" if origins[0] else "", ""]
    left, right = (
        given.open({name: types.get(name) or inferred.get(name, TEXT) for name in given.texts}, note)
        for given, types, note in zip((a, b), taken, notes, strict=True)
    )
    return left, right


def _origin(given: SideArgument, taken: Schema, inferred: Schema, other: str) -> str:
    """Return a note on the origin of the types of a side's text columns; an empty text if it has none."""
    parts = [f"of {other}"] if taken else []
    guessed = [f"{name} {inferred[name].required()}" for name in given.texts if name in inferred and name not in taken]
    parts += [f"{'else ' if taken else ''}inferred: {', '.join(guessed)}"] if guessed else []
    return f"types {', '.join(parts)}" if parts else ""


def _readable(dtype: pl.DataType | None) -> Type | None:
    """Return the type of another side's column, if text can be read in it."""
    kind = from_polars(dtype, nullable=True) if dtype is not None else None
    return None if kind is None or kind.kind in UNREADABLE else kind


def _text(paths: Sequence[Path], kind: str, dialect: Dialect) -> pl.LazyFrame:
    """Return the rows of text files, untyped."""
    names: list[str] = []
    untyped = Tables({}, dialect=dialect)
    for path in paths if kind == NDJSON else paths[:1]:
        try:
            found = names_in_objects(path) if kind == NDJSON else untyped.footer(path)
            names += [name for name in found if name not in names]
        except (OSError, Damage, *READ_ERRORS) as error:
            raise damaged(untyped.kind(path), path, error) from None
    tables = Tables(dict.fromkeys(names, TEXT), dialect=dialect)
    as_first: list[Path] = []
    others: list[Path] = []
    for path in paths:
        found = tables.footer(path)
        tables.check(path, found)
        if kind != NDJSON:
            _check_alike(path, found, dict.fromkeys(names, pl.String()))
        first = tables.kind(path) is tables.kind(paths[0]) and (kind == NDJSON or list(found) == names)
        (as_first if first else others).append(path)
    # One scan assumes that all its files have their columns in one order.
    scans = [tables.kind(paths[0]).scan(as_first), *(tables.kind(path).scan([path]).select(names) for path in others)]
    return pl.concat(scans) if others else scans[0]


def _check_alike(path: Path, found: Mapping[str, pl.DataType], first: Mapping[str, pl.DataType]) -> None:
    """Refuse a file whose columns differ from the first file's."""
    for name in dict.fromkeys([*first, *found]):
        one, other = (type_name(side[name]) if name in side else None for side in (found, first))
        if one != other:
            what = f"has no column '{name}'" if one is None else f"has a column '{name}' of {one}"
            raise InputError(
                f"the file {what}, and the first file {'has none' if other is None else f'one of {other}'}",
                place=str(path),
                hint="files of one side must have the same columns: name those that have them by a glob",
            )


def _with_zones(side: Side, zoned: Schema) -> Side:
    """Return a side of text with some columns read as moments in a zone. Refuses text that is not a moment."""
    if not zoned or side.columns is None:
        return side
    moments = {name: read(name, kind) for name, kind in zoned.items() if name in side.columns}
    for scan in side.scans:
        for name, moment in moments.items():
            wrong = scan.filter(pl.col(name).is_not_null() & moment.is_null()).select(name).head(1).collect()
            if wrong.height:
                problem = (
                    f"{preview(name, wrong.item())!r} in column '{name}' can't be read as {zoned[name].required()}"
                )
                raise InputError(problem, place=side.label)
    types = {name: kind.to_polars() for name, kind in zoned.items() if name in moments}
    return replace(side, columns={**side.columns, **types}, scans=[scan.with_columns(**moments) for scan in side.scans])
