"""Reading tables from files: when one can't be read, or holds what it must not, the error names that file and its first row.

Rows are only searched once a cheap count has shown that there is one to find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.errors import InputError
from ddcli.store.widening import widen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Type

Footer = dict[str, pl.DataType]
DAMAGED = "write the file again; the name of one that isn't finished should begin with '_' or '.', or end in '.tmp'"
READ_ERRORS = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)  # a damaged page makes polars panic now and then
TOGETHER = 64


def read_footer(path: Path) -> Footer:
    """Return the columns of a Parquet file with their polars types, or refuse the file."""
    try:
        return dict(
            pl.scan_parquet(path, glob=False, hive_partitioning=False).collect_schema()
        )  # a name with * is a name
    except OSError as error:
        raise InputError(f"the file can't be read: {error.strerror or error}", place=str(path)) from None
    except pl.exceptions.PolarsError as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: BaseException) -> InputError:
    """Return the error for a file that is not whole Parquet."""
    size = path.stat().st_size
    problem = (
        "the file is empty: it has no bytes"
        if not size
        else f"the file is not whole Parquet: {str(error).splitlines()[0]}"
    )
    return InputError(problem, place=str(path), hint=DAMAGED)


def collect(paths: Sequence[Path], columns: Sequence[str], rows: tuple[int, int] | None = None) -> pl.DataFrame:
    """Read columns of files that agree exactly, or name the first of them that is damaged."""
    scan = _scan(paths, columns)
    return _collected(paths, scan.slice(*rows) if rows else scan)


def collect_each(paths: Sequence[Path], columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Read columns of each file, some files at a time: 1 000 small ones take 0.2 s, and 0.5 s one by one."""
    for first in range(0, len(paths), TOGETHER):
        part = paths[first : first + TOGETHER]
        try:
            yield from pl.collect_all([_scan([path], columns) for path in part])
        except (OSError, *READ_ERRORS):
            yield from [collect([path], columns) for path in part]


def count_rows(path: Path) -> int:
    """Return how many rows a file has."""
    rows: int = _collected([path], _scan([path], ()).select(pl.len())).item()
    return rows


def ends(path: Path, columns: Sequence[str]) -> tuple[pl.DataFrame, bool]:
    """Return the least and the largest value of each column as two rows, and whether one has a null; the file streams by."""
    least, largest = ([getattr(pl.col(name), end)() for name in columns] for end in ("min", "max"))
    nulls = [pl.col(name).null_count() for name in columns]
    scan = _scan([path], columns)
    parts = [_collected([path], scan.select(part), streaming=True) for part in (least, largest, nulls)]
    return pl.concat(parts[:2]), any(parts[2].row(0))


def _scan(paths: Sequence[Path], columns: Iterable[str]) -> pl.LazyFrame:
    scan = pl.scan_parquet(list(paths), glob=False, hive_partitioning=False)
    names = list(dict.fromkeys(columns))
    return scan.select(names) if names else scan


def _collected(paths: Sequence[Path], scan: pl.LazyFrame, *, streaming: bool = False) -> pl.DataFrame:
    """Return what a scan of files gives, or name the first of them that is damaged."""
    try:
        return scan.collect(engine="streaming" if streaming else "auto")
    except OSError as error:
        place = str(error.filename or paths[0])
        raise InputError(f"the file can't be read: {error.strerror or error}", place=place) from None
    except READ_ERRORS as error:
        columns = scan.collect_schema().names()
        for path in paths if len(paths) > 1 else ():
            collect([path], columns)
        raise damaged(paths[0], error) from None


def refuse_nulls(path: Path, frame: pl.DataFrame, names: Iterable[str], what: str) -> None:
    """Refuse a null in any of these columns of a whole file; `what` is what the message calls such a column."""
    for name in names:
        if frame[name].null_count():
            row = frame[name].is_null().arg_max()
            raise InputError(
                f"{what} '{name}' has a null, first in row {row} (counted from 0)",
                place=str(path),
                hint="a column declared with '?' may hold nulls, as in `int64?`"
                if what == "column"
                else "each row must have one",
            )


def fit(paths: Sequence[Path], series: pl.Series, wanted: Type) -> pl.Series:
    """Return a column in its type; where a value is out of the type's range, name the file that has it and the first row."""
    try:
        return widen(series, wanted)
    except OverflowError:
        for path in paths:
            whole = collect([path], [series.name])[series.name]
            for row in range(len(whole)):
                if not _fits(whole[row : row + 1], wanted):
                    raise InputError(
                        f"column '{series.name}' has a value out of the range of {wanted}: {whole[row]}, first in row {row} "
                        "(counted from 0)",
                        place=str(path),
                    ) from None
        raise


def _fits(series: pl.Series, wanted: Type) -> bool:
    try:
        widen(series, wanted)
    except OverflowError:
        return False
    return True
