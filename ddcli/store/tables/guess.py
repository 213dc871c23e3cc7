"""Guesses of the columns of a file of text, by its first rows, only for messages that propose to declare them."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING

from ddcli.store.tables.column_types import columns_of
from ddcli.store.tables.compression import NotWholeError
from ddcli.store.tables.csv_records import DamagedError, records
from ddcli.store.tables.json_values import numbered_lines

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect

ROWS = 100


def propose(path: Path, dialect: Dialect, *, json_lines: bool) -> str | None:
    """Return a value for an input's `columns`, guessed from the beginning of a file; None without rows to guess from. Raises OSError."""
    try:
        rows = _objects(path) if json_lines else _records(path, dialect)
    except (DamagedError, NotWholeError, ValueError, RecursionError):
        return None
    if not rows:
        return None
    texts = {name: [row.get(name, "") for row in rows] for name in rows[0]}
    found = columns_of(texts, dialect, is_csv=not json_lines).types
    return f"{{{', '.join(f'{_word(name)}: {_word(kind)}' for name, kind in found.items())}}}"


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


def _word(text: str) -> str:
    """Return a name or a type as YAML, quoted if needed."""
    return text if re.fullmatch(r"[A-Za-z_]\w*\??", text) else json.dumps(text)
