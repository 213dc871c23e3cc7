"""Evaluation of aggregates over replayed rows: value logic only, times are numbers of instances here.

Every aggregate is evaluated from the same `Replay`, and gives its lanes for all instances in a few kernel calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels import reduce_floats, reduce_ordered, reduce_rows, reduce_sums
from ddcli.engine.kernels.errors import DiffOverflow
from ddcli.engine.operators.reduce_aggregates import (
    NUMBERS,
    Column,
    Count,
    CountDistinct,
    First,
    FloatSum,
    Gather,
    Gathered,
    NullTest,
    Sum,
    TopK,
    null_test,
)
from ddcli.engine.operators.reduce_instances import Instances, sizes
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from ddcli.engine.operators.reduce_aggregates import Aggregate
    from ddcli.engine.operators.reduce_instances import Lanes

LIMBS = {"signed": 4, "unsigned": 4, "wide": 6}


class SumOverflow(EngineError):
    """A sum that its type can't hold, at an interesting time; names the key's lanes and the aggregate's position."""

    def __init__(self, key: tuple[int, ...], aggregate: int):
        super().__init__(
            f"a sum is too large for its type, in the group with key lanes {key}",
            hint="cast its argument to a decimal, which holds 38 digits",
        )
        self.key = key
        self.aggregate = aggregate


def checked(rows: int) -> int:
    """Return what a kernel returned, unless it says that a count left the 64-bit range."""
    if rows == reduce_rows.OVERFLOW:
        raise DiffOverflow("the accumulated multiplicity of a record leaves the 64-bit range")
    return rows


@dataclass(frozen=True, slots=True)
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
        """Return the same with other value lanes: reordered, or projected."""
        if lanes == tuple(range(self.nv)):
            return self
        take = [0, *(1 + lane for lane in lanes), self.nv + 1, self.nv + 2]
        rows = kernels.consolidate(np.ascontiguousarray(self.rows[:, take]))
        starts = np.empty_like(self.starts)
        reduce_rows.runs(rows, 0, starts)
        return Replay(self.instances, rows, starts, self.first)


def replay(instances: Instances, sources: list[Lanes], bounds: Lanes, nv: int) -> Replay:
    """Return the rows of the instances' keys from all sources, as they come and go along the instances."""
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
    checked(reduce_ordered.count_values(rows.rows, rows.starts, rows.nv, -1, 0, rows.first, out))
    return (out > 0).astype(np.int64)


def evaluate(aggregate: Aggregate, rows: Replay, position: int) -> tuple[Lanes, Lanes | None]:
    """Return an aggregate's lanes (instances, width), and which instances have them (None: all)."""
    match aggregate:
        case Count() | Sum():
            sums = Sums(len(rows.instances), (aggregate,))
            sums.add(rows.rows, 1, np.ascontiguousarray(rows.rows[:, -2]))
            out, _ = sums.settle(rows.instances, rows.first, position)
            return out, None
        case FloatSum():
            return float_sums(aggregate.column, rows)[:, None], None
        case CountDistinct():
            return _distinct(aggregate.column, rows)[:, None], None
        case First():
            return _first(aggregate, rows)
        case Gather():
            given = gathered(aggregate, rows)
            out = np.zeros((len(rows.instances), aggregate.width), np.int64)
            out[given[:, 0]] = given[:, 1:-1]
            return out, None
        case TopK():
            raise AssertionError("a top-k has rows of its own, see `several`")


def several(aggregate: TopK | Gather, rows: Replay) -> Lanes:
    """Return the rows [instance | lanes | count] of an aggregate that gives several an instance."""
    if isinstance(aggregate, Gather):
        given = gathered(aggregate, rows)
        return given[np.argsort(given[:, 0], kind="stable")]
    want, _ = ordered_rows(aggregate, rows)
    return want


class Sums:
    """Running sums of accumulable aggregates: rows are added to instances, then settled once."""

    def __init__(self, instances: int, aggregates: tuple[Count | Sum, ...]):
        self.aggregates = aggregates
        self._sizes = [self._size(aggregate) for aggregate in aggregates]
        self._limbs = np.zeros((instances, sum(self._sizes)), np.int64)

    @staticmethod
    def _size(aggregate: Count | Sum) -> int:
        if isinstance(aggregate, Count):
            return LIMBS["signed"]
        return max(LIMBS[aggregate.number], LIMBS[aggregate.total])

    def add(self, rows: Lanes, offset: int, instances: Lanes) -> None:
        """Add rows whose value lanes begin at `offset` and whose last lane is the diff, each to its instance."""
        at = 0
        for aggregate, size in zip(self.aggregates, self._sizes, strict=True):
            null = null_test(aggregate.column, offset)
            lane, number = 0, reduce_sums.ONE
            if isinstance(aggregate, Sum):
                lane, number = offset + aggregate.column.number, NUMBERS[aggregate.number]
            reduce_sums.add_rows(rows, lane, number, null.lane, null.value, instances, self._limbs, at)
            at += size

    def add_totals(self, rows: Lanes, offset: int, instances: Lanes) -> None:
        """Add what was settled before: rows with the lanes of all aggregates from `offset` on, times their diff."""
        at, lane = 0, offset
        for aggregate, size in zip(self.aggregates, self._sizes, strict=True):
            number = NUMBERS[aggregate.total] if isinstance(aggregate, Sum) else reduce_sums.SIGNED
            reduce_sums.add_rows(rows, lane, number, -1, 0, instances, self._limbs, at)
            at += size
            lane += aggregate.width

    def settle(self, instances: Instances, first: Lanes, position: int = 0) -> tuple[Lanes, Lanes]:
        """Return the lanes of all aggregates at each instance, and 1 where any sum is not zero. Raises SumOverflow."""
        out = np.empty((len(instances), sum(aggregate.width for aggregate in self.aggregates)), np.int64)
        present = np.zeros(len(instances), np.int64)
        at = lane = 0
        for number, (aggregate, size) in enumerate(zip(self.aggregates, self._sizes, strict=True)):
            total = NUMBERS[aggregate.total] if isinstance(aggregate, Sum) else reduce_sums.SIGNED
            failed = reduce_sums.settle(first, self._limbs, at, size, total, out, lane, present)
            if failed < 0:
                group = int(np.searchsorted(instances.first, -1 - failed, side="right")) - 1
                raise SumOverflow(tuple(instances.keys[group].tolist()), position + number)
            at += size
            lane += aggregate.width
        return out, present


def float_sums(column: Column, rows: Replay) -> Lanes:
    """Return the lane of a column's float sum at each instance."""
    starts, order = np.empty(len(rows.instances) + 1, np.int64), np.empty(len(rows.rows), np.int64)
    reduce_rows.by_lane(rows.rows, rows.nv + 1, starts, order)
    null = null_test(column, 1)
    out = np.empty(len(rows.instances), np.int64)
    limbs, digits = np.zeros(reduce_floats.LIMBS, np.int64), np.zeros(reduce_floats.LIMBS, np.int64)
    reduce_floats.sum_floats(
        rows.rows, 1 + column.number, null.lane, null.value, starts, order, rows.first, limbs, digits, out
    )
    return out


def _distinct(column: Column, rows: Replay) -> Lanes:
    rows = rows.by_values(column.lanes)
    null = null_test(Column(0, column.width, column.null), 1)
    out = np.zeros(len(rows.instances), np.int64)
    checked(reduce_ordered.count_values(rows.rows, rows.starts, rows.nv, *null, rows.first, out))
    return out


def _first(aggregate: First, rows: Replay) -> tuple[Lanes, Lanes | None]:
    want, _ = ordered_rows(aggregate, rows)
    return scatter(aggregate, want, len(rows.instances))


def scatter(aggregate: First, want: Lanes, instances: int) -> tuple[Lanes, Lanes | None]:
    """Return rows [instance | lanes | 1] as lanes for every instance, and which have any unless all have."""
    out = np.empty((instances, aggregate.width), np.int64)
    some = None
    if len(want) < instances:
        out[:] = aggregate.nothing or 0
        if aggregate.nothing is None:
            some = np.zeros(instances, np.int64)
            some[want[:, 0]] = 1
    out[want[:, 0]] = want[:, 1:-1]
    return out, some


def ordered_rows(aggregate: First | TopK, rows: Replay) -> tuple[Lanes, Lanes]:
    """Return the rows [instance | lanes | count] of an aggregate by order, and which instances are present."""
    lanes = aggregate.order + tuple(lane for lane in range(rows.nv) if lane not in aggregate.order)
    moved = rows.by_values(lanes)
    where = {lane: at for at, lane in enumerate(lanes)}
    bounds = np.stack([moved.starts[:-1], moved.starts[1:]], axis=1)
    times = np.arange(len(rows.instances))[:, None]
    null = null_test(aggregate.skip, 1)
    if aggregate.skip is not None and null.lane >= 0:
        null = null._replace(lane=1 + where[aggregate.skip.lane])
    take = np.array([1 + where[lane] for lane in aggregate.take], np.int64)
    return first_values(aggregate, [moved.rows], bounds, 1, rows.nv, moved.first, times, null, take)


def first_values(
    aggregate: First | TopK,
    sources: list[Lanes],
    bounds: Lanes,
    nk: int,
    nv: int,
    first: Lanes,
    times: Lanes,
    null: NullTest,
    take: Lanes,
) -> tuple[Lanes, Lanes]:
    """Return the rows [instance | lanes | count] of an aggregate over sources in its order, and which instances are present.

    Reads only as much of each group as it takes to find them. `null` and `take` name lanes of the sources.
    """
    instances = len(times)
    k = aggregate.k if isinstance(aggregate, TopK) else 1
    room = instances if k == 1 else int((np.minimum(sizes(bounds), k) * np.diff(first)).sum())
    out = np.empty((room, len(take) + 2), np.int64)
    following, wanted = np.empty(instances + 1, np.int64), np.empty(instances, np.int64)
    present = np.empty(instances, np.int64)
    cursor = np.empty((4, len(sources)), np.int64)
    rows = reduce_ordered.first_values(
        sources,
        bounds,
        nk,
        nv,
        first,
        times,
        k,
        int(aggregate.last),
        *null,
        take,
        following,
        wanted,
        present,
        cursor,
        out,
    )
    return out[: checked(rows)], present


def gathered(aggregate: Gather, rows: Replay) -> Lanes:
    """Return what an aggregate's function makes of the groups' accumulated rows: [instance | lanes | count]."""
    instances = rows.instances
    if len(rows.first) == len(instances) + 1:
        seen = np.delete(rows.rows, rows.nv + 1, axis=1)  # each instance is its own group: accumulated already
    else:
        arguments = (rows.rows, rows.starts, rows.nv, rows.first)
        room = checked(reduce_rows.expand(*arguments, np.empty((0, rows.nv + 2), np.int64), 0))
        spread = np.empty((room, rows.nv + 2), np.int64)
        reduce_rows.expand(*arguments, spread, 1)
        order = np.empty(room, np.int64)
        reduce_rows.by_lane(spread, 0, np.empty(len(instances) + 1, np.int64), order)
        seen = spread[order]
    given = np.ascontiguousarray(
        aggregate.function(Gathered(instances.keys[instances.groups()], instances.times, seen))
    )
    assert given.shape[1:] == (aggregate.width + 2,), (
        f"rows of {given.shape}, not [instance | {aggregate.width} lanes | count]"
    )
    return given
