"""The rows of a partition that a window function's value can depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.expressions.nanoseconds import to_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.expressions.windows import Frame, FrameBound, WindowCall
    from ddcli.plan import windows
    from ddcli.provenance.contents import Contents, Numbers

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

RANKS = ("row_number", "rank", "dense_rank")
"""Functions whose value depends on the rows up to the current one and its peers."""
ROW = "\0row"
"""The name of the column with a row's number, beside a record's own columns."""


def in_reach(node: windows.Window, group: Contents, values: Mapping[str, Any]) -> tuple[Numbers, int]:
    """Return the numbers of a partition's records, the nearest to the one with these `values` first, and how many of these can affect it.

    The order is that of the window: a number of rows is one of rows of multiplicity 1. Of a frame by values or groups of peers, all rows
    between its bounds can, those that it excludes, too.
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
    ordered = _Ordered(node, frame, np.where(np.arange(len(order)) < at, -distances, distances), at)
    reached = np.logical_or.reduce([ordered.seen(call) for _, call in node.calls]) & (counts > 0)
    reached[at] = True
    chosen = [each for each in nearest.tolist() if reached[each]]
    left = [each for each in nearest.tolist() if not reached[each]]
    return order[np.array(chosen + left, np.int64)], len(chosen)


class _Ordered:
    """The rows of a partition in the window's order, as the row `at` sees them: `distances` are the rows between, negative before it."""

    def __init__(self, node: windows.Window, frame: pl.DataFrame, distances: Numbers, at: int) -> None:
        self.node, self.frame, self.distances, self.at = node, frame, distances, at
        differs = [frame[name].ne_missing(frame[name].shift()).to_numpy() for name, _ in node.order_by]
        groups = np.cumsum(np.logical_or.reduce(differs)) if differs else np.zeros(len(frame), np.int64)
        self.groups: Numbers = groups - groups[at]
        self.everything = np.ones(len(frame), np.bool_)

    def seen(self, call: WindowCall) -> Mask:
        """Return the rows that a call's value can depend on."""
        if call.function in ("lag", "lead"):
            backwards = self.distances if call.function == "lag" else -self.distances
            return (backwards <= 0) & (backwards >= -call.number)
        if call.function in RANKS:
            return self.groups <= 0
        if call.frame is None:
            return self.everything
        return self._within(call.frame, call.frame.start, -1) & self._within(call.frame, call.frame.end, 1)

    def _within(self, frame: Frame, bound: FrameBound, side: int) -> Mask:
        """Return the rows at or after the start of a frame (`side` -1), or at or before its end (1), and those that these are counted by."""
        if bound.direction and bound.offset is None:
            return self.everything
        if frame.unit == "range" and bound.offset is not None:
            return self._within_values(bound, side)
        far = int(bound.offset.value) if bound.offset is not None and bound.direction == side else 0  # type: ignore[arg-type]
        return (self.distances if frame.unit == "rows" else self.groups) * side <= far

    def _within_values(self, bound: FrameBound, side: int) -> Mask:
        """Return the rows on the inner side of a value: the current row's, moved by the bound's offset. Null has null alone near it."""
        assert bound.offset is not None
        name, descending = self.node.order_by[-1]
        values = to_values(self.frame[name], self.node.schema[name])
        mine: Any = values[self.at]
        if mine is None:
            return self.groups * side <= 0
        rising = -1 if descending else 1
        try:
            limit = mine + bound.offset.value if bound.direction * rising > 0 else mine - bound.offset.value
        except (OverflowError, TypeError):  # beyond all values of the type, or none that Python can move
            return self.everything
        upwards = side * rising > 0
        return np.array([value is not None and (value <= limit if upwards else value >= limit) for value in values])
