"""Columns that an input's files show and its state pins: of text as the first run found them (`columns: infer`), or as its files have had them so
far, and new files may add to (`columns: grow`).

A column that came after the first file is null in files without it: so it is optional from then on, and no row that was read gets another value. Each
file must have the columns of the first one: a file without one of them may have it under another name, and nulls in its place would be wrong in silence.

A type becomes one that holds the values of both: an integer or a float of more bits, a decimal of more digits, a finer timestamp. The types of text are guessed from a file's first rows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from ddcli.errors import InputError, StateError, Text
from ddcli.expressions.csv_dialect import DEFAULT, is_named
from ddcli.expressions.types import ARRIVAL, Type, parse_type
from ddcli.job.inputs import format_of
from ddcli.store.log.schema import LogSchema, PinnedColumns, columns_from_paths, columns_of_file
from ddcli.store.tables.compression import Damage
from ddcli.store.tables.csv_records import names_of, records, refuse_encoding, values_of
from ddcli.store.tables.footers import Footers
from ddcli.store.tables.input_path import (
    CSV,
    EXCEL,
    NDJSON,
    TEXTS,
    bare,
    name_of_kind,
    types_of_partitions,
)
from ddcli.store.tables.wider_types import wider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.expressions.types import Schema
    from ddcli.spec.model import InputSpec
    from ddcli.store.state.entries import InputEntry
    from ddcli.store.tables.listing import Listing


ROWS = 5_000
"""Rows of a file that are looked at."""
LONG = 1_000
"""Digits that no column's type has; Python reads integers of up to 4 300."""


class WrittenFloat(float):
    """A number of JSON that knows how it is written: it may have more digits than a float keeps."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Make one of its text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


TextColumns = dict[str, list[str | None]]


def first_rows(path: Path, dialect: Dialect) -> TextColumns:
    """Return the first rows of a file by column, as texts."""
    kind = name_of_kind(path)
    rows: list[dict[str, str | None]]
    if kind == CSV:
        dialect = dialect.of(bare(path.name), ())
        refuse_encoding(path, dialect)
        read = list(islice(records(path, dialect), ROWS))
        names = names_of(path, dialect) if dialect.has_header else numbered(len(read[0].fields) if read else 0)
        rows = [
            dict(zip(names, values_of(row, dialect), strict=False))
            for row in read[dialect.has_header :]
            if not row.empty
        ]
    elif kind == NDJSON:
        return of_objects(first_objects(path))
    elif kind == EXCEL:
        from ddcli.store.tables.sheets import names_of_sheet, sheet_of

        names = names_of_sheet(path)
        rows = [dict(zip(names, row.cells, strict=False)) for row in sheet_of(path)[2 : ROWS + 2]]
    else:
        from ddcli.store.tables.files import Tables

        tables = Tables()
        names = list(tables.footer(path))
        frame = tables.collect([path], names, (0, ROWS))
        return {name: [None if value is None else str(value) for value in frame[name]] for name in names}
    return {name: [row.get(name) for row in rows] for name in names}


def numbered(width: int) -> list[str]:
    """Return the names of columns in a file without a header: the same as DuckDB's.

    >>> numbered(2), numbered(11)[-2:]
    (['column0', 'column1'], ['column09', 'column10'])
    """
    return [f"column{at:0{len(str(width - 1))}}" for at in range(width)]


def first_objects(path: Path) -> list[object]:
    """Return the first objects of a file of JSON."""
    from ddcli.store.tables.json_values import numbered_lines  # not for `dd check`, as it imports numpy

    return [
        json.loads(text, parse_float=WrittenFloat, parse_int=_integer)
        for _, text in islice(numbered_lines(path), ROWS)
        if text.strip()
    ]


def _integer(text: str) -> int | WrittenFloat:
    """Return a whole number; one of more digits than Python reads as its text."""
    return int(text) if len(text) < LONG else WrittenFloat(text)


def events_of(objects: list[object]) -> list[dict[str, object]] | None:
    """Return Debezium's events, without the schemas beside them; None where objects are something else."""
    bodies = [each.get("payload", each) for each in objects if isinstance(each, dict)]
    found = [each for each in bodies if isinstance(each, dict)]
    return found if found and all({"op", "before", "after"} <= each.keys() for each in found) else None


def images_of(events: list[dict[str, object]]) -> list[object]:
    """Return the rows before and after the changes that events report."""
    return [row for event in events for row in (event["before"], event["after"]) if isinstance(row, dict)]


def of_objects(objects: list[object]) -> TextColumns:
    """Return objects by key, their values as texts."""
    rows = [each for each in objects if isinstance(each, dict)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [_text(row.get(name)) for row in rows] for name in names}


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.text if isinstance(value, WrittenFloat) else json.dumps(value)


T = TypeVar("T")
ROWLESS = "a row is needed; otherwise declare the columns, in a pipeline file under the input's `columns`"
UNNAMED = "a column without a name is left out"
FILES = 30
"""Files that are looked at."""


def inferred(given: InputSpec, listing: Listing, entry: InputEntry | None) -> PinnedColumns | None:
    """Return the columns of an input that has `infer`: those that its state has (`entry`), else those that its files show.

    None where the input declares columns, and where its files state them themselves, or there are none.
    """
    if not given.infers:
        return None
    if entry is not None:
        return columns_in_state(given, entry)
    texts = [file for file in listing.files if name_of_kind(listing.path(file)) in TEXTS]
    if not texts:
        return None
    some = some_of(texts)
    columns, doubts = infer_columns(given, listing, [listing.path(file) for file in some])
    return PinnedColumns(columns, some[0].path, known=False, doubts=doubts)


def some_of(files: Sequence[T]) -> list[T]:
    """Return the files that are looked at, of an input's: the first and the last ones."""
    return [*files] if len(files) <= FILES else [*files[: FILES // 2], *files[-FILES // 2 :]]


def with_columns(given: InputSpec, found: PinnedColumns | None) -> InputSpec:
    """Return an input that declares these columns."""
    if found is None:
        return given
    types = {name: parse_type(text) for name, text in found.columns.items()}
    wrong = next((name for name, kind in types.items() if kind is None), None)
    if wrong is not None:
        problem = f"inputs.{given.name.value}: the state has no type for the column '{wrong}'"
        raise StateError(problem, span=given.name.span, hint="remove the state: `dd reset`")
    columns = {name: (Text(name, given.name.span), kind) for name, kind in types.items() if kind is not None}
    return replace(given, columns=columns, inferred=found.remark, optional=found.optional)


def columns_in_state(given: InputSpec, entry: InputEntry) -> PinnedColumns | None:
    """Return the columns that a state has: those that it pinned, or those that were declared before."""
    if "pinned" in entry.schema:
        try:
            columns, file = entry.schema["pinned"]["columns"], entry.schema["pinned"]["file"]
            optional = tuple(map(str, entry.schema["pinned"].get("optional", ())))
            kinds = {str(name): str(kind) for name, kind in columns.items()}
            return PinnedColumns(kinds, str(file), known=True, optional=optional)
        except (KeyError, TypeError, AttributeError):
            problem = f"inputs.{given.name.value}: the state's columns can't be read"
            raise StateError(problem, span=given.name.span, hint="remove the state: `dd reset`") from None
    kept = LogSchema.from_json(entry.schema)
    if kept.diff is None or not (given.grows or any(name_of_kind(Path(file.path)) in TEXTS for file in entry.files)):
        return None
    times = {name: kind for name, kind in kept.time.items() if name != ARRIVAL}
    diff = {given.diff.value: Type("int64")} if given.diff and kept.diff else {}
    every = {name: str(kind) for name, kind in (kept.columns | times | diff).items()}
    return PinnedColumns(every, "", known=True, optional=tuple(entry.schema.get("optional", ())))


def infer_columns(given: InputSpec, listing: Listing, paths: list[Path]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the types that all values of some files have, and the doubts about them; a column may be null unless it is a key, a time or a diff."""
    from ddcli.store.tables.column_types import NO_VALUE, columns_of

    dialect = given.csv or DEFAULT
    is_csv = name_of_kind(paths[0]) == CSV
    if is_csv:
        _refuse_other_look(paths[0], dialect)
    tables = [_texts(given, path, dialect) for path in paths]
    names = list(dict.fromkeys(name for table in tables for name in table if is_named(name)))
    texts = {name: [value for table in tables for value in table.get(name, [None])] for name in names}
    if not names:
        raise InputError("the file has no row to find columns from", place=str(paths[0]), hint=ROWLESS)
    looked_at = columns_of(texts, dialect.of(bare(paths[0].name), ()), is_csv=is_csv)
    found = looked_at.types
    log = format_of(given)
    beside = types_of_partitions(columns_from_paths(log, listing).values(), log.time, None)
    found |= {name: str(kind) for name, kind in beside.items() if name not in found and name != ARRIVAL}
    required = {*(text.value for text in (*given.key, *given.time)), *([given.diff.value] if given.diff else [])}
    columns = {
        name: kind.removesuffix("?") + ("" if name in required else "?")
        for name, kind in found.items()
        if name not in given.ignored
    }
    doubts = {name: doubt for name, doubt in looked_at.doubts.items() if name in columns and doubt != NO_VALUE}
    return columns, doubts | ({"": UNNAMED} if any("" in table for table in tables) else {})


def _refuse_other_look(path: Path, dialect: Dialect) -> None:
    """Raise InputError for CSV that looks as if it were written otherwise than the input's options state."""
    from ddcli.store.tables.column_types import look_of

    refuse_encoding(path, dialect)
    look = look_of(path, dialect)
    usual = json.dumps(dialect.of(bare(path.name), ()).separator)
    if "skip" in look:
        delimiter = json.dumps(look["delimiter"])
        raise InputError(
            "the first line is not a header: it states the delimiter for Excel",
            place=f"{path}:1",
            hint=f"set `csv: {{delimiter: {delimiter}, skip: 1}}` under the input",
        )
    if "delimiter" in look:
        delimiter = json.dumps(look["delimiter"])
        raise InputError(
            f"the file would be one column: every record has {delimiter} between its fields",
            place=str(path),
            hint=f"set `csv: {{delimiter: {delimiter}}}` under the input; if it is one column, `csv: {{delimiter: {usual}}}`",
        )
    if "header" in look:
        raise InputError(
            "the first line looks like a row, not like a header",
            place=f"{path}:{dialect.skip + 1}",
            hint="set `csv: {header: false}` under the input, then its columns are column0, column1, ...; if the line is the header, `csv: {header: true}`",
        )


def _texts(given: InputSpec, path: Path, dialect: Dialect) -> TextColumns:
    """Return the first rows of a file by column; for events the rows of the table."""
    if name_of_kind(path) == NDJSON:
        try:
            objects = first_objects(path)
        except (Damage, ValueError, RecursionError) as error:
            raise _damaged_json(path, error) from None
        if given.format == "debezium" and not given.flattened:
            return of_objects(images_of(events_of(objects) or []))
        return of_objects([_payload(each) for each in objects])
    return first_rows(path, dialect)


def _damaged_json(path: Path, error: Exception) -> InputError:
    """Return the error for a file of JSON whose first objects can't be read: its first fault, with its place."""
    from ddcli.store.tables.text_syntax import judge_json

    damage = judge_json(path, tombstones=True)
    return damage or InputError(f"the file can't be read: {error}", place=str(path), hint="write it again")


def _payload(found: object) -> object:
    """Return the row in an object that has nothing but a schema beside it; another object as it is."""
    if isinstance(found, dict) and {"payload"} <= found.keys() <= {"payload", "schema"}:
        return found["payload"] if isinstance(found["payload"], dict) else None
    return found


def pinned(given: InputSpec, listing: Listing, entry: InputEntry | None) -> PinnedColumns | None:
    """Return the columns that an input's files show and its state pins; None where it declares them, and where its files state them and they don't grow."""
    return grown(given, listing, entry) if given.grows else inferred(given, listing, entry)


def grown(given: InputSpec, listing: Listing, entry: InputEntry | None) -> PinnedColumns | None:
    """Return the columns of an input: those that its state has (`entry`), with what its new files add; None where there are neither."""
    known = columns_in_state(given, entry) if entry is not None else None
    files = listing.new if known is not None else listing.files
    if known is None and not files:
        return None
    found = _columns_in(given, listing, [listing.path(file) for file in files])
    if known is None:
        path = listing.path(files[0])
        base, columns = {*found[path]}, dict[str, Type]()
    else:
        columns = {name: kind for name, text in known.columns.items() if (kind := parse_type(text)) is not None}
        base = {*columns} - {*known.optional}
    fixed = {*(text.value for text in (*given.key, *given.time)), *([given.diff.value] if given.diff else [])}
    news = []
    for file in files:
        for name, kind in found[listing.path(file)].items():
            before = columns.get(name)
            columns[name] = kind.or_null(name not in fixed) if before is None else wider(before, kind)
            if known is not None and before != columns[name]:
                was = "new column" if before is None else f"{before}, and now"
                news.append(f"'{name}': {was} {columns[name]}, by '{file.path}'")
    optional = [name for name in columns if name not in base and name not in fixed]
    shown = {name: str(kind) for name, kind in columns.items()}
    first = known.file if known is not None else files[0].path
    return PinnedColumns(shown, first, known=known is not None, optional=tuple(optional), news=tuple(news), grows=True)


def _columns_in(given: InputSpec, listing: Listing, paths: list[Path]) -> dict[Path, Schema]:
    """Return the columns of each file, as it states them; of text by the first rows of some files, among them every file with a column that the others lack."""
    log = format_of(given)
    texts = [path for path in paths if name_of_kind(path) in TEXTS]
    found: dict[Path, Schema] = {}
    if len(texts) < len(paths):
        from ddcli.store.tables.files import Tables

        tables = Tables(None, columns_from_paths(log, listing), times=log.time, former=log.former)
        for path in paths:
            if path not in texts:
                found[path] = columns_of_file(log, path, tables.footer(path))
    if texts:
        found |= _columns_in_text(given, listing, texts)
    return {path: found[path] for path in paths}


def _columns_in_text(given: InputSpec, listing: Listing, paths: list[Path]) -> dict[Path, Schema]:
    log = format_of(given)
    # The types don't matter: headers state the names.
    headers = Footers({ARRIVAL: Type("int64")}, columns_from_paths(log, listing), times=log.time, dialect=log.dialect)
    names = {path: {*headers.footer(path)} - {ARRIVAL} for path in paths if name_of_kind(path) != NDJSON}
    looked_at = some_of(paths)
    seen = {name for path in looked_at for name in names.get(path, ())}
    looked_at += [path for path in paths if path not in looked_at and not names.get(path, {""}) <= seen]
    columns, _ = infer_columns(given, listing, looked_at)
    kinds = {name: kind for name, text in columns.items() if (kind := parse_type(text)) is not None}
    return {
        path: {name: kind for name, kind in kinds.items() if path not in names or name in names[path]} for path in paths
    }
