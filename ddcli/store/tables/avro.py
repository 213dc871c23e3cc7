"""The rows of Avro files, which polars reads by another schema (see `avro_header`)."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from ddcli.errors import InputError, first_line
from ddcli.store.tables.avro_header import AvroColumn, AvroError, AvroHeader, read_header
from ddcli.store.tables.compression import NotWholeError, unpacked
from ddcli.store.tables.csv_records import Damage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TIME_HINT = "a time lies from 00:00:00 until before 24:00:00: correct the value, or leave the column out of the declared `columns`"
DAY = 86_400_000_000_000
"""The nanoseconds of a day."""


def columns_of_avro(path: Path) -> dict[str, pl.DataType | str]:
    """Return the columns of a file with their types; a text is the name of one that records can't have."""
    header, frame = _read(path, 1)
    return {name: column.unfit or _dtype(column) or frame[name].dtype for name, column in header.columns.items()}


def frame_of_avro(path: Path) -> pl.DataFrame:
    """Return the rows of a file, without columns that records can't have. A number that is no time becomes null: see `find_no_time`."""
    header, frame = _read(path)
    return pl.DataFrame([_typed(frame[name], column) for name, column in header.columns.items() if not column.unfit])


def find_no_time(path: Path, names: Iterable[str]) -> Damage | None:
    """Return the first value of these columns that is a time by its type, and lies outside of a day."""
    with unpacked_file(path) as file:
        limits = {name: limit for name, column in _header(path, file).columns.items() if (limit := column.limit)}
    times = [name for name in names if name in limits]
    frame = _read(path)[1] if times else pl.DataFrame()
    for name in times:
        outside = (frame[name] < 0) | (frame[name] >= limits[name])
        if outside.any():
            row = outside.arg_max() or 0
            value = f"{frame[name][row]}, first in row {row} (counted from 0)"
            return Damage(f"column '{name}' has a value that is no time of a day: {value}", str(path), TIME_HINT)
    return None


@contextmanager
def unpacked_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file, unpacked; a packed one that is not whole raises the error that polars has for a damaged file."""
    try:
        with unpacked(path) as file:
            yield file
    except NotWholeError as error:
        raise damaged_file(error) from None


def damaged_file(error: Exception) -> pl.exceptions.ComputeError:
    """Return the error that polars raises for a file that is damaged: no error of the system."""
    return pl.exceptions.ComputeError(first_line(error))


def _read(path: Path, rows: int | None = None) -> tuple[AvroHeader, pl.DataFrame]:
    """Return the columns of a file as polars reads them by the other schema."""
    with unpacked_file(path) as file:
        header = _header(path, file)
        return header, pl.read_avro(io.BytesIO(header.data + file.read()), n_rows=rows)


def _header(path: Path, file: BinaryIO) -> AvroHeader:
    try:
        return read_header(file)
    except AvroError as error:
        raise InputError(error.problem, place=str(path), hint=error.hint) from None


def _dtype(column: AvroColumn) -> pl.DataType | None:
    """Return the type of a column that polars reads as numbers."""
    return pl.Time() if column.limit else pl.String() if column.symbols else None


def _typed(series: pl.Series, column: AvroColumn) -> pl.Series:
    """Return a column in its own type."""
    if column.limit:
        return (series.cast(pl.Int64) * (DAY // column.limit)).cast(pl.Time, strict=False)
    if column.symbols:
        symbols = pl.Series(column.symbols, dtype=pl.String)
        return pl.select(pl.lit(symbols).gather(series)).to_series().alias(series.name)
    return series
