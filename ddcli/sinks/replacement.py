"""The files of a log whose history has changed: those with other rows are replaced, the rest stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.engine.times import BEYOND, LEAST
from ddcli.store.files.access import reading

DIFF = "diff"

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ddcli.store.state.entries import FileEntry


def spans(files: Sequence[FileEntry]) -> Iterator[tuple[int, int]]:
    """Yield the interval of times that belongs to each file of a log, in their order; together they have all times up to the last.

    Times have one coordinate. A file that corrects earlier ones, which have its times already, has none of its own.
    """
    reached = LEAST
    for file in files:
        end = file.upper[0][0] if file.upper else BEYOND
        yield reached, end
        reached = max(reached, end)


def rows_between(path: Path, time: str, start: int, end: int) -> pl.DataFrame:
    """Return the rows of a log's file at times from one to before another."""
    at = pl.col(time).to_physical().cast(pl.Int64)
    with reading(path) as file:
        return pl.scan_parquet(file, glob=False, hive_partitioning=False).filter(at >= start, at < end).collect()


def summed_up(rows: pl.DataFrame, time: str, horizon: int) -> pl.DataFrame:
    """Return rows of a log; rows up to a time are summed up as of then."""
    at = pl.col(time).to_physical().cast(pl.Int64)
    kind, diff = rows.schema[time], rows.schema[DIFF]
    moved = pl.when(at < horizon).then(pl.lit(horizon)).otherwise(at)
    day = moved.cast(pl.Int32) if kind == pl.Date else moved
    by = [name for name in rows.columns if name != DIFF]
    sums = rows.with_columns(day.cast(kind).alias(time)).group_by(by, maintain_order=True).agg(pl.col(DIFF).sum())
    return sums.filter(pl.col(DIFF) != 0).select(pl.col(by), pl.col(DIFF).cast(diff)).select(rows.columns)


def replaced(path: Path, rows: pl.DataFrame) -> pl.DataFrame | None:
    """Return the new content of a log's file that is to have just these rows; None if it has them already, in any order.

    Rows that it has already stay in their order, which may be the reason that it is small.
    """
    with reading(path) as file:
        before = pl.read_parquet(file, glob=False, hive_partitioning=False)
    if before.schema != rows.schema or any(kind.is_nested() for kind in rows.dtypes):
        return None if before.equals(rows) else rows
    left = before.join(rows, on=rows.columns, how="semi", nulls_equal=True, maintain_order="left")
    if left.height == before.height == rows.height:
        return None
    added = rows.join(before, on=rows.columns, how="anti", nulls_equal=True, maintain_order="left")
    return pl.concat([left, added]) if left.height + added.height == rows.height else rows
