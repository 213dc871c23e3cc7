"""Reading a log lazily: rows stream by when they are collected, and as much is read of the files as is asked for.

A lazy scan says nothing of nulls and of text that is no value, so what would be passed over in silence is looked for
first, in the columns that can have it.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.store.log.schema import INT64
from ddcli.store.tables.files import FAILING, READ_ERRORS, TOGETHER, damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.engine.times import Time
    from ddcli.errors import InputError
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.tables.files import Tables

DIFF = "diff"


def scan_files(tables: Tables, paths: Sequence[Path], schema: LogSchema, diff: str | None) -> list[pl.LazyFrame]:
    """Return the rows of each file in the log's types: data, times, diff (1, where the log has none).

    Refuses a null time or diff, and text that is no value of its column.
    """
    own = [diff] if diff and schema.diff else []
    names = [*schema.columns, *schema.time, *own]
    scans = [tables.scan([path], names) for path in paths]
    for path, odd in zip(paths, _odd(tables, paths, scans, [*schema.time, *own]), strict=True):
        if odd:
            frame = tables.collect([path], names)  # refuses text that is no value
            tables.refuse_nulls(path, frame, schema.time, "time column")
            tables.refuse_nulls(path, frame, own, "diff column")
    types = schema.columns | schema.time | dict.fromkeys(own, INT64)
    columns = [pl.col(name).cast(kind.to_polars()) for name, kind in types.items()]
    return [scan.select(*columns, *([] if own else [pl.lit(1, pl.Int64).alias(diff or DIFF)])) for scan in scans]


def _odd(
    tables: Tables, paths: Sequence[Path], scans: Sequence[pl.LazyFrame], required: Sequence[str]
) -> Iterator[bool]:
    """Say of each file whether it has a null in one of the required columns, or text that is no value; some files at a time."""
    checks = []
    for scan in scans:
        flags = [name for name in scan.collect_schema() if name.startswith(FAILING)]
        found = [*(pl.col(name).null_count() > 0 for name in required), *(pl.col(name).any() for name in flags)]
        checks.append(scan.select(pl.any_horizontal(found)) if found else scan.select(pl.lit(value=False)))
    for first in range(0, len(checks), TOGETHER):
        part = checks[first : first + TOGETHER]
        try:
            frames = pl.collect_all(part, engine="streaming")
        except (OSError, *READ_ERRORS):
            frames = [tables.streamed(*each) for each in zip(paths[first : first + TOGETHER], part, strict=True)]
        yield from (bool(frame.item()) for frame in frames)


def physically(names: Iterable[str]) -> list[pl.Expr]:
    """Return time columns as the integers that they are compared by."""
    return [pl.col(name).to_physical().cast(pl.Int64) for name in names]


def not_after(names: Sequence[str], time: Time) -> pl.Expr:
    """Return which rows count at a time: those at it or before it in every coordinate."""
    return reduce(and_, (column <= value for column, value in zip(physically(names), time, strict=True)))


def find_damaged(tables: Tables, paths: Sequence[Path]) -> InputError | None:
    """Return the error of the first file that can't be read whole, as which one it was a scan of several doesn't say."""
    for path in paths:
        try:
            tables.kind(path).scan([path]).select(pl.all().null_count()).collect(engine="streaming")
        except (OSError, *READ_ERRORS) as error:
            return damaged(tables.kind(path), path, error)
    return None
