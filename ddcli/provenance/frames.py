"""The rows of a partition that a window function's value can depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.expressions.windows import WindowCall
    from ddcli.plan import windows
    from ddcli.provenance.contents import Contents, Numbers

ROW = "\0row"
"""The name of the column with a row's number, beside a record's own columns."""


def in_reach(node: windows.Window, group: Contents, values: Mapping[str, Any]) -> tuple[Numbers, int]:
    """Return the numbers of a partition's records, the nearest to the one with these `values` first, and how many of these can affect it.

    The order is that of the window: a number of rows is one of rows of multiplicity 1. Without a bound all records can.
    """
    if not len(group):
        return np.zeros(0, np.int64), 0
    frame = group.frame().with_columns(pl.Series(ROW, np.arange(len(group))))
    keys = [name for name, _ in node.order_by]
    descends = [descending for _, descending in node.order_by]
    if keys:  # null is the largest value; ties stay in the order of lanes
        frame = frame.sort(keys, descending=descends, nulls_last=[not each for each in descends], maintain_order=True)
    order = frame[ROW].to_numpy()
    counts = np.maximum(group.matrix[order, -1], 0)
    ends = np.cumsum(counts)
    starts = ends - counts
    own = np.flatnonzero(np.isin(order, group.numbers(values)))
    if not len(own):
        return order, len(order)
    at = own[0]
    distances = np.where(starts < starts[at], starts[at] - ends + 1, starts - ends[at] + 1)
    distances[at] = 0
    nearest = np.lexsort([np.arange(len(order)) > at, np.abs(distances)])
    reach = _reach(node.calls)
    if reach is None:
        return order[nearest], len(order)
    before, after = reach
    limits = np.where(np.arange(len(order)) < at, before, after)
    reached = (distances <= limits) & (counts > 0)
    reached[at] = True
    chosen = [each for each in nearest.tolist() if reached[each]]
    left = [each for each in nearest.tolist() if not reached[each]]
    return order[np.array(chosen + left, np.int64)], len(chosen)


def _reach(calls: tuple[tuple[str, WindowCall], ...]) -> tuple[int, int] | None:
    """Return the numbers of rows before and after one that any of the calls can depend on; None without a bound."""
    found = [call.reach for _, call in calls]
    bounded = [each for each in found if each is not None]
    if len(bounded) < len(found):
        return None
    return max(before for before, _ in bounded), max(after for _, after in bounded)
