"""The first rows of a file by column, as texts: types are guessed from these."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Self

from ddcli.store.parquet.footers import CSV, EXCEL, NDJSON, name_of_kind
from ddcli.store.tables.compression import bare
from ddcli.store.tables.csv_records import names_of, records, refuse_encoding, values_of
from ddcli.store.tables.json_values import numbered_lines

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect

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
