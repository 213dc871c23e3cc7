"""The rows of groups at each instance, as every aggregate reads them: all, or the first in an order, found without reading the rest of a group.

The values of aggregates over these rows are here too: value logic only, times are numbers of instances. Every aggregate is evaluated from the same `Replay`; its
lanes for all instances take a few kernel calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.jit.registry import DiffOverflow
from ddcli.engine.kernels import ordered_values, reduce_rows, reduce_sums
from ddcli.engine.lanes import NULL, float_lanes, float_values
from ddcli.engine.operators.reduce_aggregates import (
    Count,
    CountDistinct,
    ExactSum,
    First,
    FloatMean,
    FloatSum,
    Gather,
    GatheredGroups,
    LaneRun,
    NullTest,
    Sums,
    TopRows,
    null_test,
)
from ddcli.engine.operators.reduce_instances import Instances, Single, sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ddcli.engine.lanes import Lanes
    from ddcli.engine.operators.reduce_aggregates import Aggregate, Ordered


def checked(rows: int) -> int:
    """Return a kernel's number of rows; raise the error if it is the mark of a count beyond 64 bits."""
    if rows == reduce_rows.OVERFLOW:
        raise DiffOverflow("the accumulated multiplicity of a record leaves the 64-bit range")
    return rows


@frozen
class Replay:
    """Rows [group | value | instance | diff], sorted and consolidated; group g begins at starts[g], its instances at first[g].

    A row counts from its instance on to the group's last. With one time lane a group is a key; otherwise it is an instance.
    """

    instances: Instances
    rows: Lanes
    starts: Lanes
    first: Lanes

    @property
    def nv(self) -> int:
        return int(self.rows.shape[1]) - 3

    def by_values(self, lanes: tuple[int, ...]) -> Replay:
        """Return the rows with other value lanes: reordered, or projected."""
        if lanes == tuple(range(self.nv)):
            return self
        take = [0, *(1 + lane for lane in lanes), self.nv + 1, self.nv + 2]
        return self.of(np.ascontiguousarray(self.rows[:, take]))

    def of(self, rows: Lanes) -> Replay:
        """Return the instances with other rows, which are consolidated."""
        rows = kernels.consolidate(rows)
        starts = np.empty_like(self.starts)
        reduce_rows.runs(rows, 0, starts)
        return Replay(self.instances, rows, starts, self.first)


def replay(instances: Instances, sources: list[Lanes], bounds: Lanes, nv: int) -> Replay:
    """Return the rows of the instances' keys from all sources, as they are inserted and retracted along the instances."""
    nk, nt = instances.keys.shape[1], instances.times.shape[1]
    placed = nt == 1
    rows = np.empty((int(sizes(bounds).sum()), nv + nt + 2), np.int64)
    reduce_rows.collect(sources, bounds, nk, nv, nt, int(placed), instances.first, instances.times, rows)
    rows = kernels.consolidate(rows)
    if not placed:
        starts = np.empty(len(instances.first), np.int64)
        reduce_rows.runs(rows, 0, starts)
        arguments = (rows, starts, nv, nt, instances.first, instances.times)
        room = checked(reduce_rows.accumulate_at(*arguments, np.empty((0, nv + 3), np.int64), 0))
        rows = np.empty((room, nv + 3), np.int64)
        reduce_rows.accumulate_at(*arguments, rows, 1)
    first = instances.first if placed else np.arange(len(instances) + 1)
    starts = np.empty(len(first), np.int64)
    reduce_rows.runs(rows, 0, starts)
    return Replay(instances, rows, starts, first)


def presence(rows: Replay) -> Lanes:
    """Return 1 for each instance whose group holds any record with a non-zero count, else 0."""
    out = np.zeros(len(rows.instances), np.int64)
    checked(ordered_values.count_values(rows.rows, rows.starts, rows.nv, -1, 0, rows.first, out))
    return (out > 0).astype(np.int64)


ALL = 1 << 62
"""More lanes than a value has."""
NONE = np.empty(0, np.int64)


class Search(NamedTuple):
    """A search for the first `k` records of a group, whose sources are sorted in their order; lanes are numbered as in these."""

    k: int
    last: int
    deciding: int
    null: NullTest
    take: Lanes
    nothing: Lanes


def search_for(aggregate: Ordered, offset: int, where: Sequence[int] | None = None) -> Search:
    """Return the search in sources whose value lanes begin at `offset`, or are moved: lane i to offset + where[i]."""
    deciding = min((lane if where is None else where[lane] for lane in aggregate.hashed), default=ALL)
    null = null_test(aggregate.skip, offset)
    take = np.array(aggregate.take, np.int64)
    if where is not None:
        take = np.array(where, np.int64)[take]
        if aggregate.skip is not None and null.lane >= 0:
            null = null._replace(lane=offset + where[aggregate.skip.lane])
    nothing = np.array(aggregate.nothing or (), np.int64)
    return Search(aggregate.k, int(aggregate.last), deciding, null, take + offset, nothing)


class Sources(NamedTuple):
    """Groups, each with its instances: rows `bounds` of matrices [`nk` key lanes | `nv` value lanes | time | diff]."""

    matrices: list[Lanes]
    bounds: Lanes
    nk: int
    nv: int
    first: Lanes
    times: Lanes


def first_records(searches: Sequence[Search], sources: Sources) -> Single:
    """Return the lanes of the first record by each search, side by side; present are the instances that have all of them.

    Reads each group only as far as needed.
    """
    instances = len(sources.times)
    lanes = np.empty((instances, sum(len(search.take) for search in searches)), np.int64)
    present = np.empty(instances, np.int64)
    lane = 0
    for search in searches:
        here = present if not lane else np.empty(instances, np.int64)
        _seek(search, sources, here, lane, NONE, lanes)
        if lane:
            present &= here
        lane += len(search.take)
    return Single(lanes, present)


def top_rows(search: Search, sources: Sources) -> tuple[Lanes, NDArray[np.bool_]]:
    """Return the rows [instance | lanes | count] of the first records, group by group, and the groups whose ties are still to be broken."""
    room = int((np.minimum(sizes(sources.bounds), search.k) * np.diff(sources.first)).sum())
    out = np.empty((room, len(search.take) + 2), np.int64)
    tied = np.zeros(len(sources.first) - 1, np.int64)
    return out[: _seek(search, sources, NONE, -1, tied, out)], tied != 0


def break_ties(aggregate: Ordered, rows: Replay) -> Lanes:
    """Return the rows [instance | lanes | count] of the first records of groups whose ties are broken by ranks instead of hashes."""
    assert isinstance(aggregate, TopRows)
    assert aggregate.ranks is not None, "without ranks every lane decides"
    values = rows.rows[:, 1 : 1 + rows.nv]
    hashed = list(aggregate.hashed)
    ranked = values.copy()
    ranked[:, hashed] = aggregate.ranks(values[:, hashed])
    beside = np.concatenate([rows.rows[:, :1], ranked, values[:, hashed], rows.rows[:, -2:]], axis=1)
    moved = {lane: rows.nv + at for at, lane in enumerate(hashed)}
    take = tuple(moved.get(lane, lane) for lane in aggregate.take)
    found, _ = top_rows(*ordered_search(TopRows(aggregate.k, aggregate.order, take, aggregate.last), rows.of(beside)))
    return found


def _seek(search: Search, sources: Sources, present: Lanes, lane: int, tied: Lanes, out: Lanes) -> int:
    matrices, bounds, nk, nv, first, times = sources
    scratch = np.empty((2, len(times) + 1), np.int64)
    cursor = np.empty((4, len(matrices)), np.int64)
    k, last, deciding, null, take, nothing = search
    how = (k, last, min(deciding, nv), *null, take, nothing)
    return checked(
        ordered_values.first_values(
            matrices, bounds, nk, nv, first, times, *how, scratch, present, cursor, lane, tied, out
        )
    )


def ordered_search(aggregate: Ordered, rows: Replay) -> tuple[Search, Sources]:
    """Return replayed rows in the aggregate's order, and the search for its records there."""
    lanes = aggregate.order + tuple(lane for lane in range(rows.nv) if lane not in aggregate.order)
    moved = rows.by_values(lanes)
    where = sorted(range(rows.nv), key=lanes.__getitem__)
    bounds = np.stack([moved.starts[:-1], moved.starts[1:]], axis=1)
    times = np.arange(len(rows.instances))[:, None]
    return search_for(aggregate, 1, where), Sources([moved.rows], bounds, 1, rows.nv, moved.first, times)


SCALE = 128
"""More than the bits that a sum can have beyond the floats: the bits of a diff and of a number of rows."""


def evaluate(aggregate: Aggregate, rows: Replay, position: int) -> tuple[Lanes, Lanes | None]:
    """Return an aggregate's lanes (instances, width), and which instances have them (None: all)."""
    match aggregate:
        case Count() | ExactSum():
            sums = Sums(len(rows.instances), (aggregate,))
            sums.add(rows.rows, 1, np.ascontiguousarray(rows.rows[:, -2]))
            out, _ = sums.finalize(rows.instances, rows.first, position)
            return out, None
        case FloatSum():
            return float_sums(aggregate.column, rows)[:, None], None
        case FloatMean():
            number, _ = evaluate(Count(aggregate.column), rows, position)
            return float_means(number[:, 0], lambda scale: float_sums(aggregate.column, rows, scale)), None
        case CountDistinct():
            return _distinct(aggregate.column, rows)[:, None], None
        case First():
            search, sources = ordered_search(aggregate, rows)
            return first_records([search], sources)
        case Gather():
            given = gathered(aggregate, rows)
            out = np.zeros((len(rows.instances), aggregate.width), np.int64)
            out[given[:, 0]] = given[:, 1:-1]
            return out, None
        case _:
            raise AssertionError("an aggregate of several rows, see `several`")


def several(aggregate: Ordered | Gather, rows: Replay) -> Lanes:
    """Return the rows [instance | lanes | count], in the order of instances, of an aggregate that may have several results for an instance."""
    if isinstance(aggregate, Gather):
        given = gathered(aggregate, rows)
        return given[np.argsort(given[:, 0], kind="stable")]
    found, tied = top_rows(*ordered_search(aggregate, rows))
    if not tied.any():
        return found
    return in_order_of_instances(found, break_ties(aggregate, rows.of(rows.rows[tied[rows.rows[:, 0]]])))


def in_order_of_instances(*parts: Lanes) -> Lanes:
    """Return rows [instance | lanes | count] together."""
    rows = np.concatenate(parts)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def float_sums(column: LaneRun, rows: Replay, scale: int = 0) -> Lanes:
    """Return the lane of a column's float sum at each instance, over 2**scale where that is a normal float."""
    starts, order = np.empty(len(rows.instances) + 1, np.int64), np.empty(len(rows.rows), np.int64)
    reduce_rows.by_lane(rows.rows, rows.nv + 1, starts, order)
    return _sum_floats(rows.rows, 1 + column.number, null_test(column, 1), scale, starts, order, rows.first)


def _sum_floats(rows: Lanes, lane: int, null: NullTest, scale: int, starts: Lanes, order: Lanes, first: Lanes) -> Lanes:
    out = np.empty(len(starts) - 1, np.int64)
    limbs, digits = np.zeros(reduce_sums.LIMBS, np.int64), np.zeros(reduce_sums.LIMBS, np.int64)
    reduce_sums.sum_floats(rows, lane, null.lane, null.value, scale, starts, order, first, limbs, digits, out)
    return out


def float_means(numbers: Lanes, sums: Callable[[int], Lanes]) -> Lanes:
    """Return the lanes of `FloatMean`, from numbers of rows and a function that returns their sums over 2**scale."""
    out = np.column_stack([sums(0), numbers])
    large = np.flatnonzero(np.isinf(float_values(out[:, 0])) & (numbers != 0))
    if len(large):
        scaled = float_values(sums(SCALE)[large])
        # A sum that is infinite at every scale contains an infinity.
        large, scaled = large[np.isfinite(scaled)], scaled[np.isfinite(scaled)]
        with np.errstate(over="ignore"):
            out[large, 0] = float_lanes(np.ldexp(scaled / numbers[large], SCALE))
        out[large, 1] = 1
    return out


def distinct_floats(given: GatheredGroups, column: LaneRun, *, mean: bool) -> Lanes:
    """Return rows [instance | float | 1]: the exact sum, rounded once, of a column's values, each once; null for none.

    With `mean` that over their number.
    """
    instances = given.rows[:, 0][np.flatnonzero(np.diff(given.rows[:, 0], prepend=-1))]
    null = null_test(column, 1)
    there = given.rows[:, -1] > 0
    if null.lane >= 0:
        there &= given.rows[:, null.lane] != null.value
    pairs = np.unique(given.rows[there][:, [0, 1 + column.number]], axis=0)
    starts = np.append(np.searchsorted(pairs[:, 0], instances), len(pairs))
    once = np.column_stack([pairs, np.ones(len(pairs), np.int64)])
    order, first = np.arange(len(pairs)), np.arange(len(instances) + 1)

    def sums(scale: int) -> Lanes:
        return _sum_floats(once, 1, NullTest(-1, 0), scale, starts, order, first)

    numbers = np.diff(starts)
    if mean:
        totals = float_means(numbers, sums)
        found = float_lanes(float_values(totals[:, 0].copy()) / np.maximum(totals[:, 1], 1))
    else:
        found = sums(0)
    return np.column_stack([instances, np.where(numbers > 0, found, NULL), np.ones_like(instances)])


def _distinct(column: LaneRun, rows: Replay) -> Lanes:
    rows = rows.by_values(column.lanes)
    null = null_test(LaneRun(0, column.width, column.null), 1)
    out = np.zeros(len(rows.instances), np.int64)
    checked(ordered_values.count_values(rows.rows, rows.starts, rows.nv, *null, rows.first, out))
    return out


def gathered(aggregate: Gather, rows: Replay) -> Lanes:
    """Return the rows of an aggregate's function for the groups' accumulated rows: [instance | lanes | count]."""
    given = np.ascontiguousarray(aggregate.function(spread(rows)))
    assert given.shape[1:] == (aggregate.width + 2,), (
        f"rows of {given.shape}, not [instance | {aggregate.width} lanes | count]"
    )
    return given


def spread(rows: Replay) -> GatheredGroups:
    """Return the groups' accumulated rows at each instance."""
    instances = rows.instances
    if len(rows.first) == len(instances) + 1:
        seen = np.delete(
            rows.rows, rows.nv + 1, axis=1
        )  # each instance is its own group: its rows are accumulated already
    else:
        arguments = (rows.rows, rows.starts, rows.nv, rows.first)
        room = checked(reduce_rows.expand(*arguments, np.empty((0, rows.nv + 2), np.int64), 0))
        found = np.empty((room, rows.nv + 2), np.int64)
        reduce_rows.expand(*arguments, found, 1)
        order = np.empty(room, np.int64)
        reduce_rows.by_lane(found, 0, np.empty(len(instances) + 1, np.int64), order)
        seen = found[order]
    return GatheredGroups(instances.keys[instances.groups()], instances.times, seen)
