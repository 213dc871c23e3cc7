"""A comparison as a change log: the updates that make B of A."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.compare.pairs import ADDED, CHANGE, COUNT, KEY, NEW, OLD, REMOVED
from ddcli.errors import UsageError
from ddcli.sources.change_log import DIFF, TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.compare.difference import Difference


def updates(found: Difference) -> Iterator[pl.DataFrame]:
    """Yield the updates, a record once: data in the types in which it was compared, the time, and the diff; one frame at least.

    The time is that as of which B was read, where it is a log and was given one, else 0. What is within its tolerance is
    as it was, and columns that were not compared are not there.
    """
    at = found.at or {TIME: pl.Series([0], dtype=pl.Int64)}
    if taken := sorted({*at, DIFF} & set(found.compared.names)):
        raise UsageError(
            f"the rows have a column '{taken[0]}', which a change log has for itself",
            hint="rename it, or choose another `-o`",
        )
    names = found.compared.names
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
        yield summed.select(*names, *times, DIFF)
