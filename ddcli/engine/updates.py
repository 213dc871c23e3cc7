"""Updates as frames and records: lanes at the rim of the engine, for logs, inspection and the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.arrow import series_of
from ddcli.engine.lanes import decode

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool

DIFF = "diff"


def time_names(nt: int) -> list[str]:
    """Return the names of the time columns of a frame of updates: "time", or "time0", "time1".. for a product.

    >>> time_names(2)
    ['time0', 'time1']
    """
    return ["time"] if nt == 1 else [f"time{at}" for at in range(nt)]


def to_frame(updates: np.ndarray, layout: Layout, pool: Pool, nt: int) -> pl.DataFrame:
    """Return updates as a frame: the data columns, then int64 times and diffs, with `_` in front where data have that name."""
    import polars as pl

    data = decode(updates, layout, pool)
    names = [*time_names(nt), DIFF]
    while set(names) & set(layout.schema):
        names = [f"_{name}" for name in names]
    tail = [series_of(name, updates[:, layout.width + at].copy()) for at, name in enumerate(names)]
    return pl.DataFrame([*data.get_columns(), *tail])
