"""Guesses of the columns of a file of text, by its first rows, only for messages that propose to declare them."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING

from ddcli.store.tables.column_types import number_type
from ddcli.store.tables.compression import NotWholeError
from ddcli.store.tables.csv_records import DamagedError, records
from ddcli.store.tables.json_values import numbered_lines

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect

ROWS = 100
FORMS = {
    "int64": r"-?\d{1,18}",
    "date": r"\d{4}-\d{2}-\d{2}",
    '"datetime[us]"': r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?",
    "bool": r"true|false",
    "float64": r"-?\d+(\.\d*)?([eE][+-]?\d+)?",
}


def propose(path: Path, dialect: Dialect, *, json_lines: bool) -> str | None:
    """Return a value for an input's `columns`, guessed from the beginning of a file; None without rows to guess from. Raises OSError."""
    try:
        rows = _objects(path) if json_lines else _records(path, dialect)
    except (DamagedError, NotWholeError, ValueError, RecursionError):
        return None
    if not rows:
        return None
    columns = {name: [row.get(name, "") for row in rows] for name in rows[0]}
    return f"{{{', '.join(f'{_key(name)}: {_type(values)}' for name, values in columns.items())}}}"


def _records(path: Path, dialect: Dialect) -> list[dict[str, str]]:
    """Return the first rows of CSV; the last one may be cut where it has no end."""
    header, *rows = islice(records(path, dialect), ROWS)
    rows = rows if not rows or rows[-1].text.endswith("\n") else rows[:-1] or rows
    return [dict(zip(header.fields, row.fields, strict=False)) for row in rows]


def _objects(path: Path) -> list[dict[str, str]]:
    """Return the first objects of NDJSON, their values as text has them."""
    lines = [line for _, line in islice(numbered_lines(path), ROWS) if line.strip()]
    lines = lines if not lines or lines[-1].endswith("\n") else lines[:-1] or lines
    objects = [json.loads(line) for line in lines]
    return [{name: _text(value) for name, value in row.items()} for row in objects if isinstance(row, dict)]


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name)


def _type(values: Iterable[str]) -> str:
    """Return the first type whose form all values have; one that may be missing may be null."""
    there = [value for value in values if value]
    null = "?" if len(there) < len(list(values)) else ""
    for name, form in FORMS.items():
        if there and all(re.fullmatch(form, value) for value in there):
            plain = name == "float64" and all(re.fullmatch(r"-?\d+(\.\d+)?", value) for value in there)
            found = number_type(there) if plain else name
            kind = f'"{found}"' if found.startswith("decimal") else found
            return kind[:-1] + null + '"' if kind.endswith('"') else kind + null
    return "string" + null
