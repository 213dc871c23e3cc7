"""The columns of a change log, as its files' footers have them and as the pipeline declares them.

All files of a log must agree. With declared columns a file may have others beside (they are not read) and may hold a type
that widens to the declared one; without, every file must have exactly the columns of the first.
"""

from __future__ import annotations

import json
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NoReturn

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import InputError, suggestion
from ddcli.expressions.csv_dialect import DEFAULT, is_named
from ddcli.expressions.moments import iso
from ddcli.expressions.types import ARRIVAL, Schema, Type, from_polars, no_column, parse_schema
from ddcli.privacy import has_tags, is_tagged
from ddcli.store.tables.footers import Unfit, name_of
from ddcli.store.tables.input_path import CSV, TEXTS, name_of_kind, named_by, partition_of
from ddcli.store.tables.wider_types import widens, wider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.store.formats.base import Format
    from ddcli.store.tables.input_path import Partition
    from ddcli.store.tables.kinds import Footer
    from ddcli.store.tables.listing import Listing

INT64 = Type("int64")
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?", re.ASCII)
"""The name of a column that is rather a value."""


@frozen
class LogSchema:
    """The columns of a log: data, times in order (int64, date or datetime, never null), and whether it has diffs.

    `diff` is None for a log that has no file yet; then its times are only supposed to be integers.
    """

    columns: Schema
    time: Schema
    diff: bool | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a manifest keeps of it, so that later files are held to the schema of earlier ones."""
        columns, time = ({name: str(column) for name, column in schema.items()} for schema in (self.columns, self.time))
        return {"columns": columns, "time": time, "diff": self.diff}

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> LogSchema:
        """Return the schema that `to_json` wrote."""
        columns, time = (parse_schema(tree[part]) for part in ("columns", "time"))
        return cls(columns, time, tree["diff"])


@dataclass(frozen=True)
class PinnedColumns:
    """The columns of an input by name, the file that they were found in first, and whether a state has them already. A file may lack those that are `optional`."""

    columns: dict[str, str]
    file: str
    known: bool
    doubts: dict[str, str] = field(default_factory=dict)
    """Doubts about the columns that were found, by name; an empty name is for columns without one."""
    optional: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    """The changes that new files make, for people."""
    grows: bool = False

    @property
    def remark(self) -> str:
        """Return the addition to an error about the columns: since when they are known, and from which file."""
        if self.grows:
            return (
                f"with `columns: grow` each file has the columns of the first one, '{self.file}', in types that hold all values; else declare them, "
                f"with `from: [NAME]` for one that was renamed, `optional: true` for one that files may lack: `columns: {self.shown}`"
            )
        return self.note

    @property
    def note(self) -> str:
        """Return the columns for people: since when they are known, and from which file."""
        where = f"from '{self.file}'" if self.file else "from its files"
        when = "pinned by the first run" if self.known else "inferred now"
        if self.grows:
            when = "as its files have had them so far" if self.known else "found now"
        return "; ".join([f"its columns are {when}, {where}: {self.shown}", *map(shown_doubt, self.doubts.items())])

    @property
    def shown(self) -> str:
        """The columns as a pipeline file would declare them."""
        texts = {name: json.dumps(kind) for name, kind in self.columns.items()}
        texts |= {name: f"{{type: {texts[name]}, optional: true}}" for name in self.optional}
        return "{" + ", ".join(f"{name}: {text}" for name, text in texts.items()) + "}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a state keeps of them."""
        return {"columns": self.columns, "file": self.file} | ({"optional": [*self.optional]} if self.optional else {})


def shown_doubt(doubt: tuple[str, str]) -> str:
    """Return a doubt about a column for people."""
    return f"'{doubt[0]}' is {doubt[1]}" if doubt[0] else doubt[1]


def columns_from_paths(log: Format, listing: Listing) -> dict[Path, Partition]:
    """Return the columns of files that are not in their content: paths, names, and the time of arrival."""
    found = {}
    anywhere = log.file_name is not None or ARRIVAL in log.time
    for file in listing.files:
        if not anywhere and "=" not in file.path:
            continue
        columns = partition_of(file.path)
        if log.file_name is not None:
            named = named_by(log.file_name, file.path)
            if named is None:
                raise InputError(
                    f"the file's name is not like '{log.file_name}'",
                    place=str(listing.root / file.path),
                    hint="move the file, or correct the input's `file_name`",
                )
            columns |= {name: _as_iso(log, name, text) for name, text in named.items()}
        if tagged := next(filter(is_tagged, columns), None):
            raise InputError(
                f"'{tagged}' is in the names of files or folders, which no command hides",
                place=str(listing.root),
                hint="leave its tags out, or move the files to names without it",
            )
        if ARRIVAL in log.time:
            columns[ARRIVAL] = str(file.at or 0)
        if columns:
            found[listing.path(file)] = columns
    return found


def _as_iso(log: Format, name: str, text: str | None) -> str | None:
    """Return a date or timestamp in a file's name in ISO 8601, if it is written as the input's `csv` states; another text as it is."""
    column = (log.columns or {}).get(name)
    form = log.dialect.form_of(column) if column else None
    if form is None or text is None:
        return text
    import polars as pl

    found: str | None = pl.select(iso(pl.lit(text), form)).item()
    return found or text


def schema_of(
    log: Format, listing: Listing, footer: Callable[[Path], Footer], known: LogSchema | None = None
) -> LogSchema:
    """Return the columns of a log: as in earlier runs (`known`), else as in its first file, else as they are declared.

    `footer` returns the columns of a file. Raises InputError if neither files nor declarations define columns.
    """
    kinds = (
        {name_of_kind(listing.path(file)) for file in listing.files} if log.dialect != DEFAULT or log.rounds else set()
    )
    for used, name, fitting in ((log.dialect != DEFAULT, "csv", (CSV,)), (log.rounds, "rounding", TEXTS)):
        if used and kinds and kinds.isdisjoint(fitting):
            what = "CSV" if name == "csv" else "text"
            problem = f"no file of the input is {what}, so its `{name}` is not used"
            raise InputError(problem, place=str(listing.root), hint=f"leave `{name}` out")
    if known and known.diff is not None and tuple(known.time) == log.time:
        return known if log.data is None else replace(known, columns=log.data)
    for file in [*listing.to_read, *(file for file in listing.done if file.key not in listing.gone)][:1]:
        path = listing.path(file)
        return _first_schema(log, path, log.footer(path, footer(path)))
    if log.columns is None or log.data is None:
        raise InputError(
            "the log has no files yet, so its columns are unknown",
            place=str(listing.root),
            hint="declare them under the input's `columns`",
        )
    return LogSchema(log.data, {name: log.columns.get(name, INT64) for name in log.time}, None)


def _first_schema(log: Format, path: Path, found: Footer) -> LogSchema:
    """Return the schema of a log by its first file."""
    time = {name: _time_type(log, path, found, name) for name in log.time}
    columns = log.data
    if columns is None:
        names = [name for name in found if name not in log.time and name != log.diff and name not in log.ignored]
        columns = {name: _type(path, found, name, "data") for name in names}
    if not found.keys() - {ARRIVAL}:
        raise InputError("the file has no columns", place=str(path), hint="write the file again, with columns")
    for name in columns:
        if hint := no_column(name):
            raise InputError(f"'{name}' can't be a column's name", place=str(path), hint=hint)
    return LogSchema(columns, time, log.diff in found)


def check_file(log: Format, schema: LogSchema, path: Path, found: Footer, *, later: bool = False) -> None:
    """Refuse a file with other columns than the log's: InputError with file, column, found and wanted type.

    `later`: other files of the log were read before, with all columns, so a missing one may have got another name.
    """
    try:
        if later:
            _refuse_renamed(log, schema, path, found)
        _check_file(log, schema, path, found)
    except InputError as error:
        if log.inferred:
            error.hint = f"{error.hint}; {log.inferred}" if error.hint else log.inferred
        raise


def _may_be_row(path: Path, names: Iterable[str]) -> bool:
    """Return whether the names of a file's columns may be values that are hidden: its first line is maybe a row, and no message quotes it."""
    return has_tags() and name_of_kind(path) in TEXTS and not any(map(is_tagged, names))


def _refuse_renamed(log: Format, schema: LogSchema, path: Path, found: Footer) -> None:
    """Refuse a file that lacks a column and has others; one may be the column under a new name."""
    known = {*schema.columns, *schema.time, log.diff, *log.ignored, ARRIVAL}
    others = [name for name in found if name not in known]
    kinds = schema.columns | {name: kind for name, kind in schema.time.items() if name != ARRIVAL}
    missing = next((name for name in kinds if name not in found), None)
    if missing is None or not others or log.nested or _may_be_row(path, found):
        return
    from ddcli.store.tables.footers import renamed_hint

    raise InputError(
        f"the file has no column '{missing}'",
        place=str(path),
        hint=renamed_hint(missing, kinds[missing], others, log.former),
    )


def _check_file(log: Format, schema: LogSchema, path: Path, found: Footer) -> None:
    loose = log.data is None
    for name, wanted in schema.time.items():
        actual = _time_type(log, path, found, name)
        if actual != wanted and not widens(actual, wanted):
            _wrong_type(path, name, actual, wanted, "the log's other files have")
    for name, wanted in schema.columns.items():
        actual = _type(path, found, name, "data")
        if actual.required() != wanted.required() and (loose or not widens(actual, wanted)):
            _wrong_type(path, name, actual, wanted, "the log's other files have" if loose else "the pipeline declares")
    if log.diff and log.diff in found and not _type(path, found, log.diff, "diff").is_integer:
        _wrong_type(path, log.diff, _type(path, found, log.diff, "diff"), INT64, "a diff is")
    if log.diff and (log.diff in found) != schema.diff:
        raise InputError(
            f"the file has {'a' if log.diff in found else 'no'} diff column '{log.diff}', unlike the log's other files",
            place=str(path),
            hint="write the column in every file of the log (1 where a record is inserted), or in none",
        )
    for name in found:
        if (loose or (log.inferred and is_named(name))) and name not in {
            *schema.columns,
            *schema.time,
            log.diff,
            *log.ignored,
        }:
            raise InputError(
                f"the file has a column '{name}' that the log's other files don't have",
                place=str(path),
                hint="declare the columns to read under the input's `columns`, or write the log's files alike",
            )


def logged_columns(before: Schema, now: Schema) -> Schema | None:
    """Return the columns of a log that gets rows with other columns than before: a new one is null in older rows. None if one is gone, or of a type that does not hold its values.

    >>> before = parse_schema({"a": "int32", "b": "string"})
    >>> found = logged_columns(before, parse_schema({"a": "int64", "c": "bool", "b": "string"}))
    >>> {name: str(kind) for name, kind in found.items()}
    {'a': 'int64', 'c': 'bool?', 'b': 'string'}
    >>> print(logged_columns(before, parse_schema({"a": "int32"})))
    None
    """
    known = {name: wider(kind, now[name]) for name, kind in before.items() if name in now}
    if len(known) < len(before) or any(kind.required() != now[name].required() for name, kind in known.items()):
        return None
    nullable = {name: name not in before or before[name].nullable or kind.nullable for name, kind in now.items()}
    return {name: kind.or_null(nullable[name]) for name, kind in now.items()}


def keeps_columns(before: Schema, now: Schema) -> bool:
    """Return whether a log keeps its columns, which may only become nullable, when it gets the difference to rows with other ones.

    >>> before = parse_schema({"a": "int32", "b": "string?"})
    >>> [keeps_columns(before, parse_schema({"a": kind, "b": "string"})) for kind in ("int32?", "int64")]
    [True, False]
    """
    return [(name, kind.required()) for name, kind in before.items()] == [
        (name, kind.required()) for name, kind in now.items()
    ]


def united_columns(log: Format, paths: Sequence[Path], found: Sequence[Footer]) -> Schema | None:
    """Return the data columns of files that may lack some of each other's, each in the widest type; None where all are the same."""
    if all([*each.items()] == [*found[0].items()] for each in found):
        return None
    columns: Schema = {}
    for path, each in zip(paths, found, strict=True):
        own = {
            name: kind for name, kind in columns_of_file(log, path, each).items() if name not in {*log.time, log.diff}
        }
        columns |= {name: wider(columns[name], kind) if name in columns else kind for name, kind in own.items()}
    return columns


def columns_of_file(log: Format, path: Path, found: Footer) -> Schema:
    """Return the columns that a file states, of its data, its times and its diff. Raises InputError for one of a type that records can't have."""
    return {name: _type(path, found, name, "data") for name in found if name not in {*log.ignored, ARRIVAL}}


def _time_type(log: Format, path: Path, found: Footer, name: str) -> Type:
    """Return the type of a time column: integers of any size are int64, dates and datetimes themselves."""
    column = _type(
        path, found, name, "time", f"; name the time column under the input's `time`{log.clock_hint}"
    ).required()
    if column.is_integer:
        return INT64
    if column.kind not in ("date", "datetime"):
        raise InputError(
            f"the time column '{name}' is {column}",
            place=str(path),
            hint="a time is an integer, a date or a datetime; name the right column under the input's `time`",
        )
    return column


def _type(path: Path, found: Footer, name: str, role: str, advice: str = "") -> Type:
    if name not in found:
        own = [one for one in found if one != ARRIVAL]
        if _may_be_row(path, own):
            hint = "compare its first line with the input's `columns`; if that is a row and no header: `csv: {header: false}`"
            raise InputError(f"the file has no column '{name}'", place=str(path), hint=hint)
        hint = suggestion(name, own, f"its columns are: {', '.join(own)}{advice}")
        if name_of_kind(path) == CSV and any(map(NUMBER.fullmatch, own)):
            hint += "; if the first line is a row and no header: `csv: {header: false}`"
        if len(own) == 1 and (other := re.search(r"[;|\t]", own[0])):
            hint = f"the header has {other[0]!r} between its names: set `csv: {{delimiter: {json.dumps(other[0])}}}` under the input"
        if next(iter(own), "").lower().startswith("sep="):
            hint = (
                "the first line states the delimiter for Excel: set `csv: {skip: 1}` under the input, and `delimiter`"
            )
        which = f", the {role} column" if role != "data" else ""
        raise InputError(f"the file has no column '{name}'{which}", place=str(path), hint=hint)
    column = type_of(found[name])
    if column is None:
        raise InputError(
            f"column '{name}' is {name_of(found[name])}, a type that records can't have",
            place=str(path),
            hint="leave it out of the columns declared under the input's `columns`, or write its parts as columns of their own",
        )
    return column


def _wrong_type(path: Path, name: str, actual: Type, wanted: Type, who: str) -> NoReturn:
    raise InputError(
        f"column '{name}' is {actual.required()}, but {who} {wanted.required()}",
        place=str(path),
        hint="write the column in that type, or declare another one for it under the input's `columns`",
    )


def type_of(found: pl.DataType | Type | Unfit) -> Type | None:
    """Return our type for a column of a file, which may always hold nulls; None when lanes can't carry it."""
    if isinstance(found, Unfit):
        return None
    return found if isinstance(found, Type) else from_polars(found, nullable=True)
