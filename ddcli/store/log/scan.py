"""A lazy scan of a log: it reads the files when rows are collected, and only as much of them as the query needs.

A lazy scan reports neither nulls nor text that is no value, so these are searched for
first, in the columns that can have them.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.store.log.schema import INT64
from ddcli.store.tables.files import FAILING, READ_ERRORS, TOGETHER, Tables, damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.engine.times import Time
    from ddcli.errors import InputError
    from ddcli.expressions.types import Schema
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.state.entries import FileEntry

DIFF = "diff"


def scan_files(
    tables: Tables, groups: Sequence[Sequence[Path]], schema: LogSchema, diff: str | None
) -> list[pl.LazyFrame]:
    """Return the rows of each group of files that are alike, in the log's types: data, times, diff (1, where the log has none).

    Refuses a null time or diff, and text that is no value of its column. A scan a file would take polars megabytes for each.
    """
    own = [diff] if diff and schema.diff else []
    names = [*schema.columns, *schema.time, *own]
    scans = [tables.scan(group, names) for group in groups]
    for group, odd in zip(groups, _odd(tables, groups, scans, [*schema.time, *own]), strict=True):
        for path in group if odd else ():
            frame = tables.collect([path], names)  # refuses text that is no value
            tables.refuse_nulls(path, frame, schema.time, "time column")
            tables.refuse_nulls(path, frame, own, "diff column")
    types = schema.columns | schema.time | dict.fromkeys(own, INT64)
    columns = [pl.col(name).cast(kind.to_polars()) for name, kind in types.items()]
    return [scan.select(*columns, *([] if own else [pl.lit(1, pl.Int64).alias(diff or DIFF)])) for scan in scans]


def _odd(
    tables: Tables, groups: Sequence[Sequence[Path]], scans: Sequence[pl.LazyFrame], required: Sequence[str]
) -> Iterator[bool]:
    """Return for each group whether it has a null in one of the required columns, or text that is no value; some groups at a time."""
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
            for group, each in zip(groups[first : first + TOGETHER], part, strict=True):
                if len(group) == 1:
                    yield bool(tables.streamed(group[0], each).item())
                else:
                    single = [[path] for path in group]
                    names = scans[0].collect_schema().names()
                    apart = [
                        tables.scan(one, [name for name in names if not name.startswith(FAILING)]) for one in single
                    ]
                    yield any(list(_odd(tables, single, apart, required)))
        else:
            yield from (bool(frame.item()) for frame in frames)


def physically(names: Iterable[str]) -> list[pl.Expr]:
    """Return time columns as the integers that they are compared by."""
    return [pl.col(name).to_physical().cast(pl.Int64) for name in names]


def not_after(names: Sequence[str], time: Time) -> pl.Expr:
    """Return which rows count at a time: those at it or before it in every coordinate."""
    return reduce(and_, (column <= value for column, value in zip(physically(names), time, strict=True)))


def find_damaged(tables: Tables, paths: Sequence[Path]) -> InputError | None:
    """Return the error of the first file that can't be read whole: a scan of several files doesn't name it."""
    for path in paths:
        try:
            tables.kind(path).scan([path]).select(pl.all().null_count()).collect(engine="streaming")
        except (OSError, *READ_ERRORS) as error:
            return damaged(tables.kind(path), path, error)
    return None


def scan_entries(
    directory: Path, files: Iterable[FileEntry], schema: Schema, others: Sequence[str]
) -> Iterator[pl.LazyFrame]:
    """Yield the data columns of an output's files, and others, as of the commit that names them: the newest may have grown since, older ones may lack columns."""
    tables = Tables(schema, {}, absent=tuple(schema))
    for entry in files:
        data = [pl.col(name).cast(kind.to_polars()) for name, kind in schema.items()]
        yield tables.scan([directory / entry.name], [*schema, *others]).head(entry.rows).select(*data, *others)
