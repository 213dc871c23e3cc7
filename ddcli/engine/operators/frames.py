"""Ordered rows in partitions, the frames of a window as ranges of them, and aggregates over frames. The only values here are the order's keys.

A frame is a range of rows whose ends move forward from row to row of a partition. So with rows in the place of times, a value enters at
the first row whose frame reaches it and leaves at the first that begins after it, as updates do: aggregates over frames are aggregates of a
reduction at instances, linear in the rows for all kinds of frames. Where clocks are set back, frames of whole days move back: there the values leave and enter again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine.operators.reduce_aggregates import Gather
from ddcli.engine.operators.reduce_instances import Instances
from ddcli.engine.operators.reduce_replay import Replay, evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddcli.engine.lanes import Lanes
    from ddcli.engine.operators.reduce_aggregates import Aggregate

    Mask = NDArray[np.bool_]


@frozen
class Partitions:
    """Rows in order: partition g has the rows first[g]:first[g + 1]; for each row the bounds of its partition and of its peers."""

    first: Lanes
    start: Lanes
    end: Lanes
    peers: Lanes
    peers_end: Lanes
    group: Lanes
    """Number of the row's peers among all peers of all partitions."""
    groups: Lanes
    """The first row of each group of peers, with an end mark."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def position(self) -> Lanes:
        """Return the number of each row."""
        return np.arange(len(self))


def partitions(group: Lanes, same: Mask) -> Partitions:
    """Return rows of ascending `group` (n,); `same` (n,): whether each is equal to the row before in the keys of the order."""
    n = len(group)
    opens = np.ones(n, np.bool_)
    opens[1:] = group[1:] != group[:-1]
    first = np.append(np.flatnonzero(opens), n)
    groups = np.append(np.flatnonzero(opens | ~same), n)
    sizes, peers = np.diff(first), np.diff(groups)
    return Partitions(
        first,
        np.repeat(first[:-1], sizes),
        np.repeat(first[1:], sizes),
        np.repeat(groups[:-1], peers),
        np.repeat(groups[1:], peers),
        np.repeat(np.arange(len(peers)), peers),
        groups,
    )


def by_rows(rows: Partitions, offset: int | None, direction: int, *, end: bool) -> Lanes:
    """Return the begins of frames, or their ends, `offset` rows away; None is the partition's end."""
    if offset is None:
        return rows.start if direction < 0 else rows.end
    reach = min(offset, len(rows)) * direction
    return np.clip(rows.position + reach + end, rows.start, rows.end)


def by_groups(rows: Partitions, offset: int | None, direction: int, *, end: bool) -> Lanes:
    """Return the begins of frames, or their ends, `offset` groups of peers away; 0 are the row's own peers."""
    if offset is None:
        return rows.start if direction < 0 else rows.end
    if not len(rows):
        return rows.start
    reach = min(offset, len(rows)) * direction
    least, most = rows.group[rows.start], rows.group[rows.end - 1] + 1
    return rows.groups[np.clip(rows.group + reach + end, least, most)]


def by_values(rows: Partitions, places: Lanes, bounds: Lanes, null: Mask, *, end: bool) -> Lanes:
    """Return the begins of frames, or their ends, by a distance: the first row whose place is not before (`end`: is after) the row's bound.

    `places` of the rows ascend in each partition but for nulls, which are together at one end. The frame of a null has its peers.
    """
    out = np.where(end, rows.peers_end, rows.peers)
    there = np.flatnonzero(~null)
    if not len(there):
        return out
    partition = rows.start[there]
    values, wanted = places[there], bounds[there]
    n = len(there)
    # Of equal ones the bound comes first where frames begin, and last where they end.
    flags = np.concatenate([np.full(n, not end), np.full(n, end)]).astype(np.int8)
    order = np.lexsort((flags, np.concatenate([values, wanted]), np.concatenate([partition, partition])))
    is_value = order < n
    count = np.empty(2 * n, np.int64)
    count[order] = np.cumsum(is_value)
    # So many values are before the bound, of all partitions; those that are not null are adjacent in each.
    opens = np.flatnonzero(np.diff(partition, prepend=-1))
    sizes = np.diff(np.append(opens, n))
    out[there] = np.repeat(there[opens] - opens, sizes) + count[n:]
    return out


def pieces(rows: Partitions, frame: tuple[Lanes, Lanes], exclude: str) -> list[tuple[Lanes, Lanes]]:
    """Return the ranges of rows that each frame has, in order; an empty one may end before it begins. `frame` has the rows at which each begins and ends, before exclusion."""
    begin, end = frame
    at = rows.position
    if exclude == "current row":
        return [(begin, np.minimum(end, at)), (np.maximum(begin, at + 1), end)]
    if exclude in ("group", "ties"):
        own = [(np.maximum(begin, at), np.minimum(end, at + 1))] if exclude == "ties" else []
        return [(begin, np.minimum(end, rows.peers)), *own, (np.maximum(begin, rows.peers_end), end)]
    return [(begin, end)]


def sizes(parts: Sequence[tuple[Lanes, Lanes]]) -> Lanes:
    """Return how many rows each frame has."""
    return sum((np.maximum(end - begin, 0) for begin, end in parts), np.zeros(len(parts[0][0]), np.int64))


def nth(parts: Sequence[tuple[Lanes, Lanes]], number: int) -> Lanes:
    """Return the nth row (from 1; -1 is the last) of each frame, -1 if it has none."""
    found = np.full(len(parts[0][0]), -1)
    left = np.full(len(found), abs(number))
    for begin, end in parts if number > 0 else reversed(parts):
        size = np.maximum(end - begin, 0)
        here = (found < 0) & (left > 0) & (left <= size)
        at = begin + left - 1 if number > 0 else end - left
        found = np.where(here, at, found)
        left = left - size
    return found


def nth_of(parts: Sequence[tuple[Lanes, Lanes]], number: int, counted: Mask) -> Lanes:
    """Return the nth row of each frame among those that are `counted` (n,), as `nth` does among all."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(counted)])
    found = nth([(before[begin], before[np.maximum(begin, end)]) for begin, end in parts], number)
    return np.where(found < 0, -1, np.append(np.flatnonzero(counted), -1)[found])


def replayed(rows: Partitions, frame: tuple[Lanes, Lanes], exclude: str, values: Lanes, keys: Lanes) -> Replay:
    """Return values (n, nv) of the rows as they enter and leave the frames of rows, which are the instances; `keys` are each partition's."""
    at, n = rows.position, len(rows)
    begin, end = frame
    end = np.maximum(end, begin)
    events: list[tuple[Lanes, Lanes, int]] = []  # from one row on until another: so many

    def seen(first: Lanes, last: Lanes, count: int) -> None:
        events.append((np.maximum(first, enters), np.minimum(last, leaves), count))

    backwards = np.flatnonzero((np.diff(begin) < 0) | (np.diff(end) < 0)) + 1
    for low, high in pairwise([0, *backwards.tolist(), n]):
        # A row is in the frames from the first that ends behind it to the first that begins behind it.
        enters = np.minimum(low + np.searchsorted(end[low:high], at, "right"), rows.end)
        leaves = np.minimum(low + np.searchsorted(begin[low:high], at, "right"), rows.end)
        seen(rows.start, rows.end, 1)
        if exclude == "current row":
            seen(at, at + 1, -1)
        elif exclude in ("group", "ties"):
            seen(rows.peers, rows.peers_end, -1)
            if exclude == "ties":
                seen(at, at + 1, 1)
    parts = []
    group = np.repeat(np.arange(len(rows.first) - 1), np.diff(rows.first))
    for first, last, count in events:
        some = np.flatnonzero(first < last)
        gone = some[last[some] < rows.end[some]]
        for which, when, diff in ((some, first[some], count), (gone, last[gone], -count)):
            part = np.empty((len(which), values.shape[1] + 3), np.int64)
            part[:, 0], part[:, 1:-2], part[:, -2], part[:, -1] = group[which], values[which], when, diff
            parts.append(part)
    instances = Instances(keys, rows.first, np.arange(n)[:, None])
    return Replay(instances, np.empty((0, values.shape[1] + 3), np.int64), rows.first.copy(), rows.first).of(
        np.concatenate(parts)
    )


def over_frames(
    aggregate: Aggregate, replay: Replay, nothing: Sequence[int] | None, size: Lanes, position: int
) -> Lanes:
    """Return an aggregate's lanes over each frame; `nothing` for a frame without a value. Raises SumOverflow with the `position`."""
    out, present = evaluate(aggregate, replay, position)
    missing = size == 0 if isinstance(aggregate, Gather) else (present == 0 if present is not None else None)
    if missing is not None and missing.any():
        assert nothing is not None, "an aggregate whose frame may be empty may be null"
        out[missing] = nothing
    return out


def ranking(function: str, rows: Partitions, number: int = 0) -> Lanes:
    """Return the value of a ranking function for each row; `number` is the number of parts of `ntile`."""
    at, size = rows.position - rows.start, rows.end - rows.start
    if function == "row_number":
        return at + 1
    if function == "rank":
        return rows.peers - rows.start + 1
    if function == "dense_rank":
        return rows.group - rows.group[rows.start] + 1 if len(rows) else at
    assert function == "ntile", function
    least, larger = size // number, size % number
    inside = larger * (least + 1)  # the first `larger` parts have one row more
    return np.where(at < inside, at // (least + 1), larger + (at - inside) // np.maximum(least, 1)) + 1


def share(function: str, rows: Partitions) -> NDArray[np.float64]:
    """Return the share of rows that are before each row's peers, or not after them."""
    size = rows.end - rows.start
    if function == "percent_rank":
        found: NDArray[np.float64] = (rows.peers - rows.start) / np.maximum(size - 1, 1)
    else:
        assert function == "cume_dist", function
        found = (rows.peers_end - rows.start) / np.maximum(size, 1)
    return found


def neighbour(rows: Partitions, offset: int) -> Lanes:
    """Return the row `offset` rows away in the same partition, -1 if there is none."""
    found = rows.position + max(min(offset, len(rows)), -len(rows))
    return np.where((found >= rows.start) & (found < rows.end), found, -1)
