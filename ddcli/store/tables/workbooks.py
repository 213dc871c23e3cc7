"""Excel workbooks (`.xlsx`): the cells of their one sheet with rows, as text that is read as other text is.

A formula has the value that Excel has kept beside it; a workbook without such values is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.errors import first_line
from ddcli.store.parquet.footers import EXCEL
from ddcli.store.tables.csv_records import Damage
from ddcli.store.tables.sheets import formula_without_value, names_of_sheet, sheet_of
from ddcli.store.tables.text_kind import TextKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.store.tables.kinds import Footer


MIDNIGHT = " 00:00:00"
"""The time of a cell that is a date and is shown with a time."""


class Workbooks(TextKind):
    """Workbooks with one sheet of rows below a header. An empty cell is null, a row without any value is ignored."""

    name = EXCEL

    def footer(self, path: Path) -> Footer:
        names = names_of_sheet(path)
        return {name: self.declared[name].to_polars() if name in self.declared else pl.String() for name in names}

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        return pl.concat([self._frame(path).lazy() for path in paths])

    def _frame(self, path: Path) -> pl.DataFrame:
        _, header, *rows = sheet_of(path)
        names = [str(name) for name in header.cells]
        texts = [[*row.cells, *[None] * (len(names) - len(row.cells))] for row in rows]
        days = [name for name in names if name in self.declared and self.declared[name].kind == "date"]
        frame = pl.DataFrame(texts, schema=dict.fromkeys(names, pl.String), orient="row")
        return frame.with_columns(pl.col(days).str.strip_suffix(MIDNIGHT))

    def find_damage(self, path: Path) -> Damage | None:
        sheet, header, *rows = sheet_of(path)
        for row in rows:
            if len(row.cells) > len(header.cells):
                return Damage(
                    f"the row has {len(row.cells)} cells, the header {len(header.cells)}",
                    f"{path}:{sheet}!{row.number}",
                    "give each column a name in the header, or remove what is beside the table",
                )
        return formula_without_value(path, sheet)

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        return Damage(f"the file is not whole {EXCEL}: {first_line(error)}", str(path))

    def lines(self, path: Path, rows: Sequence[int]) -> list[int | None]:
        _, _, *found = sheet_of(path)
        return [found[row].number if row < len(found) else None for row in rows]

    def place(self, path: Path, row: int) -> str:
        sheet, _, *rows = sheet_of(path)
        return f"{path}:{sheet}!{rows[row].number}" if row < len(rows) else str(path)
