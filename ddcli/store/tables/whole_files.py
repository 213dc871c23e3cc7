"""The kinds of files that are read whole: ORC, stripe by stripe, and Avro, which state their columns themselves, and workbooks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import first_line
from ddcli.store.tables.avro import columns_of_avro, damaged_file, find_no_time, frame_of_avro, unpacked_file
from ddcli.store.tables.compression import Damage
from ddcli.store.tables.footers import Unfit
from ddcli.store.tables.input_path import AVRO, EXCEL, ORC
from ddcli.store.tables.kinds import Parquet, lazy_frame
from ddcli.store.tables.sheets import formula_without_value, names_of_sheet, sheet_of
from ddcli.store.tables.text_kind import TextKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ddcli.store.tables.kinds import Footer


class WholeFile(Parquet):
    """A kind whose files are given to polars as frames, by functions: `columns` returns a file's columns, and `frames` yields its rows, some at a time."""

    def __init__(
        self, name: str, columns: Callable[[Path], Footer], frames: Callable[[Path], Iterator[pl.DataFrame]]
    ) -> None:
        self.name, self._columns, self._frames = name, columns, frames

    def footer(self, path: Path) -> Footer:
        return self._columns(path)

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        return pl.concat([self._scan(path) for path in paths])

    def _scan(self, path: Path) -> pl.LazyFrame:
        fitting = {name: dtype for name, dtype in self.footer(path).items() if not isinstance(dtype, Unfit)}
        return lazy_frame(partial(self._frames, path), pl.Schema(fitting))

    def find_altered(self, path: Path, columns: Footer) -> Damage | None:
        return find_no_time(path, columns) if self.name == AVRO else None


def _columns_of_orc(path: Path) -> Footer:
    with unpacked_file(path) as file:
        return dict(pl.DataFrame(_orc(file).schema.empty_table()).schema)


def _stripes_of_orc(path: Path) -> Iterator[pl.DataFrame]:
    import pyarrow as pa

    with unpacked_file(path) as file:
        found = _orc(file)
        for stripe in range(found.nstripes):
            try:
                yield pl.DataFrame(pa.Table.from_batches([found.read_stripe(stripe)]))
            except (pa.ArrowException, OSError) as error:
                raise damaged_file(error) from None


def _orc(file: object) -> Any:
    import pyarrow as pa
    from pyarrow import orc

    try:
        return orc.ORCFile(file)
    except (pa.ArrowException, OSError) as error:
        raise damaged_file(error) from None


def _columns_of_avro(path: Path) -> Footer:
    return {name: Unfit(kind) if isinstance(kind, str) else kind for name, kind in columns_of_avro(path).items()}


def _rows_of_avro(path: Path) -> Iterator[pl.DataFrame]:
    yield frame_of_avro(path)


WHOLE = {
    ORC: WholeFile(ORC, _columns_of_orc, _stripes_of_orc),
    AVRO: WholeFile(AVRO, _columns_of_avro, _rows_of_avro),
}
"""ORC, as pyarrow reads it, and Avro, as polars reads it by another schema."""

MIDNIGHT = " 00:00:00"
"""The time of a cell that is a date and is shown with a time."""


class Workbooks(TextKind):
    """Excel workbooks (`.xlsx`) with one sheet of rows below a header, whose cells are read as other text is.

    An empty cell is null, a row without any value is ignored. A formula has the value that Excel has kept beside it; a workbook without such values is refused.
    """

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
