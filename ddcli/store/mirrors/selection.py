"""The rows of a mirror, or of its table, for which a condition holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.store.files.access import reading
from ddcli.store.mirrors.cancellation import DIFF, consolidated
from ddcli.store.mirrors.source import COMMITTED, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.store.log.condition import RowCondition


def selected(frame: pl.DataFrame, condition: RowCondition, columns: Schema) -> pl.DataFrame:
    """Return the rows for which a condition over these columns holds; a column that the table had not then is null."""
    missing = [pl.lit(None).alias(name) for name in condition.columns if name not in frame.columns]
    kinds = [pl.col(name).cast(columns[name].to_polars()) for name in condition.columns]
    return frame.filter(~condition.keeps(frame.with_columns(missing).select(kinds)))


def count_selected(frames: Iterable[pl.DataFrame], condition: RowCondition, columns: Schema) -> int:
    """Return for how many rows a condition holds."""
    return sum(selected(frame, condition, columns).height for frame in frames)


def count_left(files: Sequence[Path], condition: RowCondition, columns: Schema) -> int:
    """Return the number of different rows of the table, by these files of its mirror, for which a condition holds.

    Some of the first files may have lost such rows already, so that the sum of the others may be negative.
    """
    found = [selected(frame, condition, columns) for frame in frames_of(files)]
    found = [frame.drop(VERSION, COMMITTED) for frame in found if frame.height]
    if not found:
        return 0
    whole = pl.concat(found, how="diagonal")
    rows = [name for name in whole.columns if name != DIFF]
    return sum(frame.filter(pl.col(DIFF) > 0).height for frame in consolidated([whole.select(*rows, DIFF)]))


def frames_of(files: Iterable[Path]) -> Iterable[pl.DataFrame]:
    """Yield the rows of each file of a mirror."""
    for path in files:
        with reading(path) as file:
            yield pl.read_parquet(file)
