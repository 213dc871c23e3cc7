"""The one sheet with rows of an Excel workbook, its cells as texts. Read with openpyxl, of the extra `excel`."""

from __future__ import annotations

import math
import warnings
import zipfile
from collections import Counter
from datetime import datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.errors import InputError, first_line
from ddcli.privacy import unnamed
from ddcli.store.tables.compression import DAMAGED, Damage, unpacked
from ddcli.version import package

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


MOST_ROWS = 1 << 20
"""The rows of a sheet, at most."""
PLAIN = 1e-30
"""The least number that is written without an exponent; the greatest is its inverse."""


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
        raise InputError(
            f"the header has the name {unnamed(twice)!r} twice", place=place, hint="rename one of the columns"
        )
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

    try:
        with (
            unpacked(path) as file,
            warnings.catch_warnings(action="ignore"),
        ):  # about styles, and parts that aren't read
            book = openpyxl.load_workbook(file, read_only=True, data_only=values)
            for sheet in book.worksheets:
                sheet.reset_dimensions()  # the size that a file states may be wrong
                yield sheet.title, _rows(path, sheet)
            book.close()
    except (zipfile.BadZipFile, EOFError, Damage) as error:
        problem = error.problem if isinstance(error, Damage) else first_line(error)
        raise Damage(f"the file is not whole Excel: {problem}", str(path)) from None
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - openpyxl checks little: a wrong number in a file ends in any error
        problem = f"the file can't be read as Excel: {type(error).__name__}: {first_line(error)}"
        raise InputError(problem, place=str(path), hint="open the workbook in Excel and save it") from None


def _rows(path: Path, sheet: Any) -> list[SheetRow]:
    """Return the rows of a sheet that have a value. openpyxl makes all rows before one, however large its number is."""
    rows, number = [], 0
    for number, row in enumerate(sheet.iter_rows(max_row=MOST_ROWS + 1), start=1):
        if cells := _cells(row):
            rows.append(SheetRow(number, cells))
    if number > MOST_ROWS:
        problem = f"a row has a number beyond {MOST_ROWS}, the last of a sheet"
        raise InputError(problem, place=f"{path}:{sheet.title}", hint="open the workbook in Excel and save it")
    return rows


def _cells(row: Sequence[Any]) -> list[str | None]:
    """Return the cells of a row as texts, without empty ones at the end."""
    cells = [_text(cell) for cell in row]
    while cells and cells[-1] is None:
        cells.pop()
    return cells


def _text(cell: Any) -> str | None:
    """Return a cell's value as a cast reads it."""
    value = cell.value
    if isinstance(value, str):
        return _unescaped(value) or None
    if isinstance(value, datetime) and value.time() == time():
        from openpyxl.styles.numbers import is_datetime

        return str(value.date()) if is_datetime(cell.number_format) == "date" else str(value)
    return None if value is None else text_of(value)


def text_of(value: Any) -> str:
    """Return the text of a value that is none: a number without an exponent, a length of time in hours.

    >>> [text_of(value) for value in (True, 3.0, 2.5, 1e-05, 1e16, datetime(2024, 1, 31, 7), timedelta(hours=30, seconds=1))]
    ['true', '3', '2.5', '0.00001', '10000000000000000', '2024-01-31 07:00:00', '30:00:01']
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value) or not PLAIN < abs(value) < 1 / PLAIN:
            return repr(value) if value else "0"
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    if isinstance(value, timedelta):
        seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 10**6)
        sign, fraction = "-" * (value < timedelta()), f".{micros:06}" if micros else ""
        return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
    return str(value)


def _unescaped(text: str) -> str:
    """Return a text with the characters that XML can't have, which Excel writes by their numbers: `_x000D_`."""
    if "_x" not in text:
        return text
    from openpyxl.utils.escape import unescape

    # A character beyond 16 bits has two numbers.
    return str(unescape(text)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
