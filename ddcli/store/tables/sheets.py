"""The one sheet with rows of an Excel workbook, its cells as texts. Read with openpyxl, of the extra `excel`."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ddcli.errors import InputError, first_line
from ddcli.named_tuple import NamedTuple
from ddcli.store.extras import package
from ddcli.store.tables.compression import DAMAGED, unpacked
from ddcli.store.tables.csv_records import Damage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class SheetRow(NamedTuple):
    """A row of a sheet with a value, its number, and its cells as texts."""

    number: int
    cells: list[str | None]


def names_of_sheet(path: Path) -> list[str]:
    """Return the names of a workbook's columns, or refuse it: InputError."""
    sheet, header, *_ = sheet_of(path)
    place = f"{path}:{sheet}!{header.number}"
    if not all(header.cells):
        raise InputError("a name is missing in the header", place=place, hint="give each column a name")
    names = [str(name) for name in header.cells]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"the header has the name '{twice}' twice", place=place, hint="rename one of the columns")
    return names


def sheet_of(path: Path) -> tuple[Any, ...]:
    """Return the name of the one sheet with values, and its rows that have some, the header first. Raises InputError."""
    status = path.stat()
    return _sheet(path, (status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=8)
def _sheet(path: Path, _: tuple[int, int]) -> tuple[Any, ...]:
    found = [(name, rows) for name, rows in _sheets(path, values=True) if rows]
    if not found:
        raise InputError("the workbook has no sheet with rows", place=str(path), hint=DAMAGED)
    if len(found) > 1:
        names = ", ".join(name for name, _ in found)
        raise InputError(
            f"the workbook has several sheets with rows: {names}",
            place=str(path),
            hint="save the sheet to read as a workbook of its own, or as CSV",
        )
    ((name, rows),) = found
    return (name, *rows)


def _sheets(path: Path, *, values: bool) -> Iterator[tuple[str, list[SheetRow]]]:
    """Yield the sheets of a workbook with their rows; without `values` with the formulas."""
    openpyxl = package("openpyxl")
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        with unpacked(path) as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=values)
            for sheet in book.worksheets:
                sheet.reset_dimensions()  # the size that a file states may be wrong
                rows = [
                    SheetRow(number, _cells(row))
                    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1)
                ]
                yield sheet.title, [row for row in rows if row.cells]
            book.close()
    except (InvalidFileException, zipfile.BadZipFile, KeyError, ValueError, EOFError, SyntaxError) as error:
        raise InputError(f"the file is not whole Excel: {first_line(error)}", place=str(path), hint=DAMAGED) from None


def _cells(row: Sequence[Any]) -> list[str | None]:
    """Return the cells of a row as texts, without empty ones at the end."""
    cells = [_text(value) for value in row]
    while cells and cells[-1] is None:
        cells.pop()
    return cells


def _text(value: Any) -> str | None:
    """Return a cell's value as a cast reads it.

    >>> [_text(value) for value in (None, True, 3.0, 2.5, datetime(2024, 1, 31), "x", "")]
    [None, 'true', '3', '2.5', '2024-01-31', 'x', None]
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1 << 53 else repr(value)
    if isinstance(value, datetime):
        return str(value.date()) if value.time() == time() else str(value)
    if isinstance(value, date | time | timedelta):
        return str(value)
    return str(value)


def formula_without_value(path: Path, sheet: str) -> Damage | None:
    """Return the first formula of a sheet if the file has the value of none: a program wrote it that computes no formulas."""
    values = {row.number: row.cells for name, rows in _sheets(path, values=True) if name == sheet for row in rows}
    first = 0
    for name, rows in _sheets(path, values=False):
        for row in rows if name == sheet else ():
            have = values.get(row.number, [])
            for at, text in enumerate(row.cells):
                if text is not None and text.startswith("="):
                    if at < len(have) and have[at] is not None:
                        return None
                    first = first or row.number
    hint = "open the workbook in Excel and save it: that computes its formulas"
    return Damage("no formula has its value in the file", f"{path}:{sheet}!{first}", hint) if first else None
