"""Reading a log lazily: rows stream by when they are collected, and as much is read of the files as is asked for.

A lazy scan says nothing of nulls and of text that is no value, so what would be passed over in silence is looked for
first, in the columns that can have it.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.store.log_schema import INT64
from ddcli.store.tables import FAILING, READ_ERRORS, damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.engine.times import Time
    from ddcli.errors import InputError
    from ddcli.store.log_schema import LogSchema
    from ddcli.store.tables import Tables

DIFF = "diff"


def scan_file(tables: Tables, path: Path, schema: LogSchema, diff: str | None) -> pl.LazyFrame:
    """Return the rows of one file in the log's types: data, times, diff (1, where the log has none).

    Refuses a null time or diff, and text that is no value of its column.
    """
    own = [diff] if diff and schema.diff else []
    names = [*schema.columns, *schema.time, *own]
    scan = tables.scan([path], names)
    for name, role in (dict.fromkeys(schema.time, "time column") | dict.fromkeys(own, "diff column")).items():
        if tables.streamed(path, scan.select(pl.col(name).null_count())).item():
            tables.refuse_nulls(path, tables.collect([path], [name]), [name], role)
    flags = scan.select(pl.col(f"^{FAILING}.*$").any())
    if flags.collect_schema() and any(tables.streamed(path, flags).row(0)):
        tables.collect([path], names)  # says which row it is
    types = schema.columns | schema.time | dict.fromkeys(own, INT64)
    columns = [pl.col(name).cast(kind.to_polars()) for name, kind in types.items()]
    return scan.select(*columns, *([] if own else [pl.lit(1, pl.Int64).alias(diff or DIFF)]))


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
