"""Linear operators: each maps an update by itself, so the result of a delta is the delta of the result.

A chain that only renames, drops or reorders columns is a permutation of lanes; anything else decodes the columns that
it reads, runs its logic on them and encodes the computed columns, while columns that pass through keep their lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.jit.registry import DiffOverflow
from ddcli.engine.lanes import decode, encode
from ddcli.engine.operators.base import Delta, Operator, StatefulOperator, empty
from ddcli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from ddcli.engine.lanes import Columns, Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace

LEAST, GREATEST = -(2**63), 2**63 - 1
NESTED = frozenset({"list", "struct"})
"""Kinds of types whose values are expensive to decode."""


@frozen
class Constant:
    """A lane that holds one number in every row, such as the present-flag of a column that just became nullable."""

    value: int


@frozen
class Inverted:
    """A lane with every bit flipped, which reverses the order of integers."""

    lane: int


@frozen
class Plus:
    """A lane of 64-bit integers with a number added to each."""

    lane: int
    number: int


Lane = int | Constant | Inverted | Plus
"""The source of a lane of the result: a lane of the input, unchanged, inverted or with a number added, or a constant."""


def fill(out: np.ndarray, lanes: Sequence[Lane], updates: np.ndarray) -> None:
    """Write the first columns of `out` from the lanes of `updates`."""
    for at, lane in enumerate(lanes):
        if isinstance(lane, Constant):
            out[:, at] = lane.value
        elif isinstance(lane, Inverted):
            np.invert(updates[:, lane.lane], out=out[:, at])
        elif isinstance(lane, Plus):
            _add(updates[:, lane.lane], lane.number, out[:, at])
        else:
            out[:, at] = updates[:, lane]


def _add(lane: np.ndarray, number: int, out: np.ndarray) -> None:
    """Write lane + number, in place or elsewhere. Raises OverflowError."""
    if len(lane):
        each = lane.tolist() if len(lane) <= kernels.FEW else (int(lane.min()), int(lane.max()))
        if min(each) + number < LEAST or max(each) + number > GREATEST:
            raise OverflowError
        np.add(lane, number, out=out)


def permute(updates: np.ndarray, lanes: Sequence[Lane], tail: int, rows: np.ndarray | None = None) -> np.ndarray:
    """Return all rows, or some, with their data lanes taken from `lanes` and their last `tail` lanes (times, diff) kept."""
    width = updates.shape[1]
    if all(isinstance(lane, int) for lane in lanes):
        order = [*lanes, *range(width - tail, width)]
        return updates if rows is None and order == list(range(width)) else kernels.take(updates, order, rows)
    updates = updates if rows is None else updates[rows]
    out = np.empty((len(updates), len(lanes) + tail), np.int64)
    fill(out, lanes, updates)
    out[:, len(lanes) :] = updates[:, width - tail :]
    return out


class Permute(Operator):
    """Rename, drop or reorder columns, and add a number to some, lane by lane.

    `refuse` is the same chain evaluated as expressions: if a sum leaves its range, it raises the error in the words of the file.
    """

    def __init__(self, lanes: Sequence[Lane], nt: int, refuse: Linear | None = None):
        self.lanes = tuple(lanes)
        self.tail = nt + 1
        self.refuse = refuse
        # Adding a number to a lane keeps different rows different.
        kept = [lane.lane if isinstance(lane, Plus) else lane for lane in lanes if isinstance(lane, int | Plus)]
        self._lanes_kept = frozenset(kept)
        # For constants it reads only times and diffs.
        self.takes_columns = bool(lanes) and all(isinstance(lane, Constant) for lane in lanes)
        self._source = kept if len(kept) == len(lanes) else None
        numbers = [lane.number if isinstance(lane, Plus) else 0 for lane in lanes]
        self._numbers = np.array([*numbers, *[0] * self.tail], np.int64) if any(numbers) else None
        self._order: np.ndarray | None = None
        """The lanes that it takes, if none is constant or inverted: known once the width of the input is."""
        self._same = False
        """True: it takes all lanes, in their order."""

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        (delta,) = deltas
        width = delta.updates.shape[1]
        keeps_all = len(self._lanes_kept) == width - self.tail
        try:
            if self._source is not None:
                if self._order is None:
                    self._order = np.array([*self._source, *range(width - self.tail, width)], np.int64)
                    self._same = self.lanes == tuple(range(width - self.tail))
                distinct = delta.distinct and keeps_all
                if self._numbers is not None:
                    sums = kernels.take_sums(delta.updates, self._order, self._numbers)
                    return self._refused(deltas, interval) if sums is None else Delta(sums, distinct)
                return Delta(delta.updates if self._same else kernels.take(delta.updates, self._order), distinct)
            return Delta(permute(delta.updates, self.lanes, self.tail), delta.distinct and keeps_all)
        except OverflowError:
            return self._refused(deltas, interval)

    def _refused(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        assert self.refuse is not None, "an operator without it adds nothing"
        return self.refuse.step(deltas, interval)


class LaneComparison(NamedTuple):
    """A comparison of a lane with another, or with a number where there is no other lane; `orders` as in `kernels.select`."""

    lane: int
    orders: int
    other: int = -1
    number: int = 0


class Select(Operator):
    """Keep the rows for which all comparisons of lanes hold, with their data lanes taken from `lanes`."""

    def __init__(self, comparisons: Sequence[LaneComparison], lanes: Sequence[Lane], nt: int):
        self.lanes = tuple(lanes)
        self.tail = nt + 1
        self._comparisons = np.array(comparisons, np.int64)
        self._kept = frozenset(lane for lane in lanes if isinstance(lane, int))

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        (delta,) = deltas
        rows = kernels.select(delta.updates, self._comparisons)
        if not len(rows):
            return Delta(empty(len(self.lanes) + self.tail), distinct=True)
        keeps_all = len(self._kept) == delta.updates.shape[1] - self.tail
        every = None if len(rows) == len(delta.updates) else rows
        return Delta(permute(delta.updates, self.lanes, self.tail, every), delta.distinct and keeps_all)


class Logic(NamedTuple):
    """The result of a chain for a frame with the columns that it needs: a frame of a layout, the input's rows (None: all), and their weights."""

    run: Callable[[pl.DataFrame], tuple[pl.DataFrame, np.ndarray | None, np.ndarray | None]]
    needs: tuple[str, ...]
    layout: Layout


class Linear(Operator):
    """Run logic over the columns that it needs.

    `source` lays out the input, `computed` returns the columns that must be computed, and `lanes` has the source of each lane of the
    result: a lane of the input, or, counted on from the input's width, a lane of those columns. `whole` returns all columns of the
    result: for updates whose data are still in columns, only the remaining rows are encoded. If the logic fails and there is a `sift`,
    that returns the rows on which the logic does not fail, and puts the others aside, whose updates it gets by a mask.
    """

    sift: Callable[[pl.DataFrame, Callable[[np.ndarray], np.ndarray]], np.ndarray] | None = None

    def __init__(
        self, computed: Logic, whole: Logic, source: Layout, lanes: Sequence[Lane], pool: Pool, nt: int
    ) -> None:
        self.computed = computed
        self.whole = whole
        self.source = source
        self.lanes = tuple(lanes)
        self.pool = pool
        self.tail = nt + 1
        self.takes_columns = not any(source.schema[name].kind in NESTED for name in whole.needs)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates, columns = deltas[0].updates, deltas[0].columns
        if not len(updates):
            return Delta(empty(len(self.lanes) + self.tail), distinct=True)
        if columns is not None:
            return self._of_columns(columns)
        frame = decode(updates, self.source, self.pool, self.computed.needs, decoded=deltas[0].decoded)
        try:
            computed, rows, weights = self.computed.run(frame)
        except InputError:
            if self.sift is None:
                raise
            sound = self.sift(frame, updates.__getitem__)
            updates = updates[sound]
            computed, rows, weights = self.computed.run(frame.filter(sound))
        data = updates.shape[1] - self.tail
        if not self.computed.layout.width:
            out = permute(updates, self.lanes, self.tail, rows)
            return Delta(
                weigh(out, weights), deltas[0].distinct and self.lanes == tuple(range(data)) and weights is None
            )
        fresh = encode(computed, self.computed.layout, self.pool)
        plain = [lane if isinstance(lane, int) and lane < data else data for lane in self.lanes]
        out = kernels.take(updates, [*plain, *range(data, data + self.tail)], rows)
        for at, lane in enumerate(self.lanes):
            if isinstance(lane, int) and lane >= data:
                out[:, at] = fresh[:, lane - data]
            elif not isinstance(lane, int):
                fill(out[:, at : at + 1], [lane], updates if rows is None else updates[rows])
        return Delta(weigh(out, weights))

    def _of_columns(self, given: Columns) -> Delta:
        """Return the result of updates whose data are in columns."""
        frame = given.decoded(self.whole.needs)
        try:
            found, rows, weights = self.whole.run(frame)
        except InputError:
            if self.sift is None:
                raise
            sound = self.sift(frame, lambda mask: given.chosen(mask).matrix())
            given = given.chosen(sound)
            found, rows, weights = self.whole.run(frame.filter(sound))
        layout = self.whole.layout
        out = np.empty((found.height, layout.width + self.tail), np.int64)
        encode(found, layout, self.pool, out, tail=given.tail, rows=rows)
        return Delta(weigh(out, weights))


def weigh(updates: np.ndarray, weights: np.ndarray | None, by: str = "`explode`") -> np.ndarray:
    """Multiply diffs by `weights`, refusing to wrap around, and drop updates of weight zero."""
    if weights is None:
        return updates
    diffs = updates[:, -1]
    product = diffs * weights
    # A wrapped product differs from the true one by at least 2**64, which in floating point, rounded, is far over 2**63.
    if len(product) and np.abs(diffs.astype(np.float64) * weights - product).max() > 2.0**62:
        raise DiffOverflow(f"a diff left 64 bits when a record was multiplied by {by}")
    weighed = updates.copy()
    weighed[:, -1] = product
    kept: np.ndarray = weighed[product != 0]
    return kept


class Concat(Operator):
    """Sum collections of one layout, each times its sign: `concat` has only +1, `A - B` is (+1, -1)."""

    def __init__(self, signs: Sequence[int], width: int):
        self.signs = tuple(signs)
        self.width = width

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        parts = [(delta, sign) for delta, sign in zip(deltas, self.signs, strict=True) if len(delta.updates)]
        if not parts:
            return Delta(empty(self.width), distinct=True)
        if len(parts) == 1 and parts[0][1] == 1:
            return parts[0][0]
        out = np.concatenate([delta.updates for delta, _ in parts])
        start = 0
        for delta, sign in parts:
            end = start + len(delta.updates)
            if sign < 0:
                kernels.negate(out[start:end])
            start = end
        return Delta(out, len(parts) == 1 and parts[0][0].distinct)


class Consolidate(Operator):
    """Consolidate: at most one update for each record and time. If only `sorted_ones`, unsorted updates are passed on: sorting may cost more than it saves."""

    def __init__(self, *, sorted_ones: bool = False):
        self.sorted_ones = sorted_ones

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        (delta,) = deltas
        if delta.distinct or (self.sorted_ones and not kernels.is_sorted(delta.updates)):
            return delta
        return Delta(kernels.consolidate(delta.updates), distinct=True)


class Inspect(Operator):
    """Pass updates on, and call `show` with each step's."""

    def __init__(self, show: Callable[[np.ndarray], None]):
        self.show = show

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        (delta,) = deltas
        consolidated = delta.updates if delta.distinct else kernels.consolidate(delta.updates)
        if len(consolidated):
            self.show(consolidated)
        return Delta(consolidated, distinct=True)


class Once(StatefulOperator):
    """Emit the input's one record, once, at the first time at which its multiplicity is positive.

    Time has one coordinate. The trace holds the record once it was emitted. While the trace is empty, the input was empty so far, so
    that the sum of the new updates is the input's multiplicity.
    """

    def __init__(self, trace: Trace):
        assert trace.nt == 1, "times that are not ordered have no first one"
        assert trace.nv == 0, "a record is the same only as a whole"
        super().__init__(trace)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = deltas[0].updates
        if not self.trace.rows and len(updates):
            # The rows of a load mostly have one time: the sum at the first time needs no sorting.
            first = updates[updates[:, -2] == updates[:, -2].min()]
            if first[:, -1].sum() <= 0:
                updates = kernels.consolidate(updates)
                first = updates[np.cumsum(updates[:, -1]) > 0]
            if len(first):
                self.batch = first[:1].copy()
                self.batch[0, -1] = 1
        return Delta(self.batch, distinct=True)
