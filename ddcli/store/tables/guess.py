"""What the columns of a file of text may be, as its first rows look: what a message proposes to declare. Nothing goes by it."""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROWS = 100
FORMS = {
    "int64": r"-?\d{1,18}",
    "date": r"\d{4}-\d{2}-\d{2}",
    '"datetime[us]"': r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?",
    "bool": r"true|false",
    "float64": r"-?\d+(\.\d*)?([eE][+-]?\d+)?",
}
CENTS = re.compile(r"-?\d+(\.\d{1,2})?")
"""What is most often money, which floats would round."""


def propose(text: str, *, json_lines: bool) -> str | None:
    r"""Return a value for an input's `columns` from the beginning of a file; None where there is nothing to go by.

    >>> propose("day,who,amount\n2024-03-01,ann,12.40\n2024-03-02,,7\n", json_lines=False)
    '{day: date, who: string?, amount: "decimal(18, 2)"}'
    """
    try:
        rows = _objects(text) if json_lines else _records(text)
        # The last row may be cut where a file goes on.
        rows = rows if text.endswith("\n") else rows[:-1] or rows
    except (csv.Error, ValueError, RecursionError):
        return None
    if not rows:
        return None
    columns = {name: [row.get(name, "") for row in rows] for name in rows[0]}
    return f"{{{', '.join(f'{_key(name)}: {_type(values)}' for name, values in columns.items())}}}"


def _records(text: str) -> list[dict[str, str]]:
    """Return the first rows of CSV."""
    header, *rows = islice(csv.reader(io.StringIO(text, newline="")), ROWS)
    return [dict(zip(header, row, strict=False)) for row in rows]


def _objects(text: str) -> list[dict[str, str]]:
    """Return the first objects of NDJSON, their values as text has them."""
    lines = [line for line in text[: text.rfind("\n") + 1 or None].splitlines() if line.strip()][:ROWS]
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
            money = name == "float64" and all(CENTS.fullmatch(value) for value in there)
            kind = '"decimal(18, 2)"' if money else name
            return kind[:-1] + null + '"' if kind.endswith('"') else kind + null
    return "string" + null
