"""The options of CSV files as their first records look: the delimiter, and whether the first line is a header, a row or Excel's `sep=;`."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from ddcli.store.tables.column_types import NULLS
from ddcli.store.tables.compression import NotWholeError, bare
from ddcli.store.tables.csv_records import DamagedError, opened, records

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect

DELIMITERS = (",", ";", "\t", "|", " ")
SEPARATOR = re.compile(r'\ufeff?"?sep=(.)"?\r?\n?', re.IGNORECASE)
"""The line that states the delimiter for Excel."""
SEQUENCE = 3
"""The least count of names that are whole numbers in a row, as years are."""
ROWS = 100
NUMBER = re.compile(r"[+-]?\.?\d[\d.,'\u2019\u00a0 ]*(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
FORMS = [
    NUMBER,
    *(
        re.compile(form, re.ASCII | re.IGNORECASE)
        for form in (
            r"true|false",
            r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?",
            r"\d{1,2}:\d{2}(:\d{2}.*)?",
        )
    ),
]
"""The forms of values that are no text."""
NONE = ("", *NULLS)


def look_of(path: Path, dialect: Dialect) -> dict[str, Any]:
    """Return the options that the first records of a CSV file show, of those that the dialect leaves open, where they are not the defaults."""
    found: dict[str, Any] = {}
    if dialect.delimiter is None:
        if separator := _stated_separator(path, dialect):
            found |= {"delimiter": separator, "skip": 1}
        else:
            width, delimiter = widest(path, dialect)
            usual = dialect.of(bare(path.name), ())
            # Tabs are rare in values, commas are not.
            if delimiter != usual.separator and width > 1 and (delimiter == "\t" or _width(path, usual) <= 1):
                found["delimiter"] = delimiter
    if dialect.header is None and first_is_row(path, replace(dialect, **found)):
        found["header"] = False
    return found


def _stated_separator(path: Path, dialect: Dialect) -> str | None:
    """Return the delimiter that the first line states, if it does nothing else."""
    try:
        with opened(path, dialect.encoding) as file:
            match = None if dialect.skip else SEPARATOR.fullmatch(file.readline(len('\ufeff"sep=;"\r\n')))
    except NotWholeError:
        return None
    return match[1] if match and match[1].isascii() and not match[1].isalnum() else None


def widest(path: Path, dialect: Dialect) -> tuple[int, str]:
    """Return the greatest number of fields that all of the first records have, and the delimiter that makes it; among several the file's usual one."""
    usual = dialect.of(bare(path.name), ()).separator
    widths = {one: _width(path, replace(dialect, delimiter=one)) for one in DELIMITERS}
    best = max(DELIMITERS, key=lambda one: (widths[one], one == usual, one))
    return widths[best], best


def _width(path: Path, dialect: Dialect) -> int:
    """Return the number of fields of all the first records; 0 if they differ, and if there are words between spaces."""
    try:
        _, *rows = read = [record.fields for record in islice(records(path, dialect), ROWS // 2)] or [[]]
    except (DamagedError, NotWholeError, UnicodeDecodeError):
        return 0
    if dialect.delimiter == " " and not all(NUMBER.fullmatch(value) for row in rows or read for value in row):
        return 0
    widths = {len(row) for row in read}
    return widths.pop() if len(widths) == 1 else 0


def first_is_row(path: Path, dialect: Dialect) -> bool:
    """Return whether the first record looks like the others: where their values are numbers, dates or booleans, its own are such, too.

    Names that count, as years or the columns of a matrix do, are a header in spite of that.
    """
    try:
        read = list(islice(records(path, dialect.of(bare(path.name), ())), ROWS + 1))
    except (DamagedError, NotWholeError, UnicodeDecodeError):
        return False
    first, *others = [record.fields for record in read if not record.empty] or [[]]
    alike: list[str] = []
    for at, name in enumerate(first):
        body = [row[at] for row in others if at < len(row)] if others else [name]
        form = _form_of([value for value in body if value.strip() not in NONE])
        if form is None or name.strip() in NONE:
            continue
        if not form.fullmatch(name.strip()):
            return False
        alike.append(name)
    return bool(alike) and not _count(alike)


def _form_of(values: list[str]) -> re.Pattern[str] | None:
    """Return the form that all values have; None where there are none, and for text."""
    return next((form for form in FORMS if values and all(form.fullmatch(value.strip()) for value in values)), None)


def _count(names: list[str]) -> bool:
    """Return whether names are whole numbers with one step between them."""
    if len(names) < SEQUENCE or not all(re.fullmatch(r"\d{1,9}", name.strip(), re.ASCII) for name in names):
        return False
    return len({int(after) - int(before) for before, after in pairwise(names)} - {0}) == 1
