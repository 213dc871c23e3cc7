"""A comparison as a change log: the updates that turn A into B."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.compare.columns import WIDEST, type_name
from ddcli.compare.pairs import ADDED, CHANGE, COUNT, KEY, NEW, OLD, REMOVED
from ddcli.errors import UsageError
from ddcli.sources.change_log import DIFF, TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.compare.difference import Difference

WIDE = (pl.Int128, pl.UInt128)
OTHERWISE = "leave the column out with `--ignore`, or choose another `-o`"


def updates(found: Difference) -> Iterator[pl.DataFrame]:
    """Yield the updates, each record once: the compared columns in their common types, the time, and the diff; at least one frame.

    Integers of 128 bits, in which int64 is compared with uint64, are decimals, as Parquet has no such integers. The time is that as of
    which B was read, if it is a log that was read as of one, else 0. Values within their tolerance are unchanged.
    """
    at = found.at or {TIME: pl.Series([0], dtype=pl.Int64)}
    if taken := sorted({*at, DIFF} & set(found.compared.names)):
        raise UsageError(
            f"the rows have a column '{taken[0]}', a name that a change log needs for its own column",
            hint="rename it, or choose another `-o`",
        )
    names = found.compared.names
    wide = [name for name in names if found.compared.types[name] in WIDE]
    for name, kind in found.compared.types.items():
        if name not in wide and _holds_wide(kind):
            raise UsageError(f"the column '{name}' is {type_name(kind)}, which Parquet can't hold", hint=OTHERWISE)
    for frame in found.changes.frames():
        sides = []
        for prefix, other, sign in ((OLD, ADDED, -1), (NEW, REMOVED, 1)):
            key = [pl.col(KEY + name).alias(name) for name in found.compared.key]
            values = [pl.col(prefix + name).alias(name) for name in found.compared.values]
            sides.append(
                frame.filter(pl.col(CHANGE) != other).select(*key, *values, (sign * pl.col(COUNT)).alias(DIFF))
            )
        summed = pl.concat(sides).group_by(names).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0).sort(names)
        times = [pl.lit(value[0], value.dtype).alias(name) for name, value in at.items()]
        yield summed.select(*names, *times, DIFF).with_columns(_decimal(summed[name]) for name in wide)


def _decimal(values: pl.Series) -> pl.Series:
    try:
        return values.cast(pl.Decimal(WIDEST, 0))
    except pl.exceptions.InvalidOperationError:
        problem = f"the column '{values.name}' has integers of more than {WIDEST} digits, which Parquet can't hold"
        raise UsageError(problem, hint=OTHERWISE) from None


def _holds_wide(kind: object) -> bool:
    """Return whether a type is, or holds, an integer of 128 bits."""
    inner = [field.dtype for field in kind.fields] if isinstance(kind, pl.Struct) else [getattr(kind, "inner", None)]
    return kind in WIDE or any(_holds_wide(each) for each in inner if each is not None)
