"""The rows of groups at each instance, as every aggregate reads them: all, or the first in an order, found without reading the rest of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.jit.registry import DiffOverflow
from ddcli.engine.kernels import ordered_values, reduce_rows
from ddcli.engine.operators.reduce_aggregates import NullTest, TopRows, null_test
from ddcli.engine.operators.reduce_instances import Instances, Single, sizes
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddcli.engine.columns import Lanes
    from ddcli.engine.operators.reduce_aggregates import Ordered


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
