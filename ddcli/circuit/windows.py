"""Window calls as a function of gathered rows: rows in order, copies apart, with the cells of each call beside them.

Calls that continue from row to row compute rows after a change from the results before it.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcli.circuit.groups import MOST_COPIES, gathered_function
from ddcli.circuit.linear import column_of, kernel_aggregates, value_layout
from ddcli.engine.lanes import NULL, SIGN, Layout, decode, float_lanes, float_values, ranks
from ddcli.engine.operators import frames
from ddcli.engine.operators.reduce_aggregates import Count, ExactSum, Gather, GatheredGroups, Sums, null_test
from ddcli.engine.operators.reduce_instances import Instances
from ddcli.engine.operators.reduce_replay import Replay
from ddcli.engine.pool import PUBLIC
from ddcli.errors import EngineError
from ddcli.expressions.types import POOLED, Type
from ddcli.plan.physical import lane_column, lane_columns
from ddcli.plan.shape import is_gathered, window_cells

if TYPE_CHECKING:
    from ddcli.engine.lanes import Lanes
    from ddcli.engine.operators.frames import Partitions
    from ddcli.engine.operators.reduce_aggregates import Aggregate, LaneRun
    from ddcli.engine.operators.running_windows import Carry
    from ddcli.engine.pool import Pool
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Literal
    from ddcli.expressions.types import Schema
    from ddcli.expressions.windows import FrameBound, WindowCall
    from ddcli.plan import windows


if TYPE_CHECKING:
    Mask = np.ndarray[Any, np.dtype[np.bool_]]

LARGEST = 2**63 - 1
TOGETHER = 500_000
"""The rows of windows that are evaluated together: each has several copies and a dozen numbers meanwhile."""


def window(node: windows.WindowedGroup, pool: Pool) -> Gather:
    """Return the aggregate that computes, for each row of a group, the result's columns that are not the key."""
    calls = WindowCalls(node, pool)
    return Gather(calls.result.width, calls, single=False)


def deciding_lanes(node: windows.WindowedGroup, pool: Pool) -> int:
    """Return how many of the first lanes of the arrangement's values decide a row's place: the keys, where hashes come after them."""
    (arranged,) = node.inputs
    values = value_layout(arranged.schema, arranged.key)  # type: ignore[attr-defined]
    hashed = any(kind.kind in POOLED for kind in values.schema.values()) and pool.secret != PUBLIC
    return sum(arranged.schema[name].lanes for name, _ in node.order_by) if hashed else values.width


class WindowCalls:
    """The calls of a window over an arrangement's values."""

    def __init__(self, node: windows.WindowedGroup, pool: Pool):
        (arranged,) = node.inputs
        by = arranged.key  # type: ignore[attr-defined]
        self.node, self.pool = node, pool
        self.values = value_layout(arranged.schema, by)
        self.result = value_layout(node.schema, by)
        made = [window_cells(at, call) for at, call in enumerate(node.calls)]
        own = {name for each in made for name in each}
        self.cells = [self.result.take(each) for each in made]
        carried = [name for name in self.result.names if name not in own]
        self.take = self.values.take(carried)
        self.put = self.result.take(carried)

    def __call__(self, given: GatheredGroups) -> Lanes:
        """Return rows [instance | lanes | count] of the result."""
        rows, placed = self.placed(given)
        keys = given.keys[rows[placed.first[:-1], 0]]
        values = np.ascontiguousarray(rows[:, 1:-1])
        out = self.beside(rows)
        for at, call in enumerate(self.node.calls):
            found = self.called(at, call, placed, values, keys)
            out[:, [1 + lane for lane in self.cells[at]]] = found
        return out

    def placed(self, given: GatheredGroups) -> tuple[Lanes, Partitions]:
        """Return rows [instance | value | 1], each as often as it occurs, in the window's order, and where their partitions and peers are."""
        rows = given.rows[given.rows[:, -1] > 0]
        if rows[:, -1].sum(dtype=np.float64) > MOST_COPIES:
            raise EngineError(
                f"a window takes records as often as they occur, and here that is more than {MOST_COPIES:,} times",
                hint="make the records distinct before",
            )
        rows, same = self.in_order(rows)
        counts = rows[:, -1]
        first = np.cumsum(counts) - counts
        rows = np.repeat(rows, counts, axis=0)
        rows[:, -1] = 1
        alike = np.ones(len(rows), np.bool_)  # copies of a row are its peers
        alike[first] = same
        return rows, frames.partitions(rows[:, 0], alike)

    def beside(self, rows: Lanes) -> Lanes:
        """Return rows [instance | lanes | 1] of the result without the cells of the calls."""
        out = np.empty((len(rows), self.result.width + 2), np.int64)
        out[:, 0], out[:, -1] = rows[:, 0], 1
        out[:, [1 + lane for lane in self.put]] = rows[:, [1 + lane for lane in self.take]]
        return out

    def in_order(self, rows: Lanes) -> tuple[Lanes, Mask]:
        """Return rows [instance | value | count] in the window's order, and which of them are equal to the row before in its keys.

        They come in the order of their lanes, which breaks ties where no lane is a hash.
        """
        sorts = [self.sort_lanes(rows, name, descending) for name, descending in self.node.order_by]
        lanes = [rows[:, 0], *(lane for each in sorts for lane in each)]
        order = np.lexsort(lanes[::-1])
        lanes = [lane[order] for lane in lanes]
        rows = rows[order]
        same = np.ones(len(rows), np.bool_)
        for lane in lanes:
            same[1:] &= lane[1:] == lane[:-1]
        same[:1] = False
        hashed = any(kind.kind in POOLED for kind in self.values.schema.values())
        if hashed and self.pool.secret != PUBLIC and same.any():
            tied = same.copy()
            tied[:-1] |= same[1:]
            at = np.flatnonzero(tied)
            group = np.cumsum(~same)[at]
            ranked = ranks(rows[at], self.values, self.pool, 1)
            again = np.lexsort((*(ranked[:, lane] for lane in reversed(range(self.values.width))), group))
            rows[at] = rows[at[again]]
        return np.ascontiguousarray(rows), same

    def sort_lanes(self, rows: Lanes, name: str, descending: bool) -> list[Lanes]:
        """Return integers in the order of a column."""
        if self.values.schema[name].kind not in POOLED:
            lanes = [rows[:, 1 + lane] for lane in self.values.lanes(name)]
        else:
            lanes = [_text_order(decode(np.ascontiguousarray(rows[:, 1:-1]), self.values, self.pool, [name]), name)]
        return [~lane for lane in lanes] if descending else lanes

    # --- calls ----------------------------------------------------------------------------------------------------

    def called(self, at: int, call: WindowCall, rows: Partitions, values: Lanes, keys: Lanes) -> Lanes:
        """Return the lanes of a call's cells, one row for each."""
        if call.function in ("lag", "lead"):
            number = call.number if call.function == "lead" else -call.number
            if not call.ignores_nulls:
                return self.looked_up(call, frames.neighbour(rows, number), values)
            part = (rows.position + 1, rows.end) if number > 0 else (rows.start, rows.position)
            return self.looked_up(call, frames.nth_of([part], number, self.has_value(call, values)), values)
        if call.frame is None:
            if call.type.is_float:
                return float_lanes(frames.share(call.function, rows))[:, None]
            return frames.ranking(call.function, rows, call.number)[:, None]
        ends = (
            self.end_of(call.frame.unit, call.frame.start, rows, values, end=False),
            self.end_of(call.frame.unit, call.frame.end, rows, values, end=True),
        )
        parts = frames.pieces(rows, ends, call.frame.exclude)
        if call.aggregate is None:
            number = {"first_value": 1, "last_value": -1}.get(call.function, call.number)
            if call.ignores_nulls:
                return self.looked_up(call, frames.nth_of(parts, number, self.has_value(call, values)), values)
            return self.looked_up(call, frames.nth(parts, number), values)
        return self.aggregated(at, call, rows, ends, frames.sizes(parts), values, keys)

    def has_value(self, call: WindowCall, values: Lanes) -> Mask:
        """Return in which rows a call's value is not null."""
        return ~_is_null(column_of(self.values, call.args[0].name), values)  # type: ignore[attr-defined]

    def looked_up(self, call: WindowCall, found: Lanes, values: Lanes) -> Lanes:
        """Return the lanes of a call's value in other rows; -1: the default's here, or null."""
        value, *default = [column_of(self.values, arg.name) for arg in call.args]  # type: ignore[attr-defined]
        out: Lanes = values[:, value.lanes][found]
        missing = found < 0
        if default:
            out[missing] = values[:, default[0].lanes][missing]
        elif missing.any():
            assert value.nothing is not None, "a value that may be missing may be null"
            out[missing] = value.nothing
        return out

    def read_by(self, aggregate: AggregateCall) -> Layout:
        """Return the layout of the columns that an aggregate reads."""
        wanted = aggregate.columns()
        return Layout({name: kind for name, kind in self.values.schema.items() if name in wanted})

    def aggregated(
        self,
        at: int,
        call: WindowCall,
        rows: Partitions,
        ends: tuple[Lanes, Lanes],
        size: Lanes,
        values: Lanes,
        keys: Lanes,
    ) -> Lanes:
        aggregate = call.aggregate
        assert aggregate is not None
        assert call.frame is not None
        layout = self.read_by(aggregate)
        replay = frames.replayed(rows, ends, call.frame.exclude, values[:, self.values.take(layout.names)], keys)
        position = at
        kernels: list[Aggregate]
        if is_gathered(aggregate):
            ((name, kind),) = window_cells(at, call).items()
            kernels = [Gather(kind.lanes, gathered_function(aggregate, position, kind, layout, self.pool))]
            nothing = column_of(Layout({name: kind}), name).nothing
        else:
            kernels = kernel_aggregates(aggregate, layout)
            nothing = column_of(layout, aggregate.args[0].name).nothing if aggregate.args else None  # type: ignore[attr-defined]
        return np.concatenate([frames.over_frames(each, replay, nothing, size, position) for each in kernels], axis=1)

    # --- frames ---------------------------------------------------------------------------------------------------

    def end_of(self, unit: str, bound: FrameBound, rows: Partitions, values: Lanes, *, end: bool) -> Lanes:
        """Return the begin of each row's frame, or its `end`."""
        offset = bound.offset
        if not bound.direction:  # the current row: with its peers but in rows
            unit, number = ("rows", 0) if unit == "rows" else ("groups", 0)
            return (frames.by_rows if unit == "rows" else frames.by_groups)(rows, number, 0, end=end)
        if offset is None:
            return rows.start if bound.direction < 0 else rows.end
        if unit == "range":
            return self.by_distance(bound, offset, rows, values, end=end)
        assert isinstance(offset.value, int)
        return (frames.by_rows if unit == "rows" else frames.by_groups)(rows, offset.value, bound.direction, end=end)

    def by_distance(self, bound: FrameBound, offset: Literal, rows: Partitions, values: Lanes, *, end: bool) -> Lanes:
        name, descending = self.node.order_by[-1]
        kind, column = self.values.schema[name], column_of(self.values, name)
        null = _is_null(column, values)
        sign = -bound.direction if descending else bound.direction
        lanes = values[:, column.number]
        if bound.by_calendar:
            frame = decode(values, self.values, self.pool, [name])
            keys, limits = bound.limits(frame, name, kind, descending=descending)
            lanes = keys.to_physical().cast(int).fill_null(0).to_numpy()
            bounds = limits.to_physical().cast(int).fill_null(LARGEST if sign > 0 else -LARGEST - 1).to_numpy()
        elif kind.is_float:
            number = np.float32 if offset.type.kind == "float32" else np.float64
            with np.errstate(over="ignore"):  # no value is beyond an infinity
                moved = float_values(lanes.copy()).astype(number) + number(sign * offset.value)  # type: ignore[arg-type, operator]
            bounds = float_lanes(moved.astype(np.float64))
        elif kind.is_wide:
            lanes, bounds = _wide(values, column, sign * _units(offset, kind), null)
        else:
            bounds = _moved(lanes, _units(offset, kind, up=end == (bound.direction < 0)), sign)
        if descending:
            lanes, bounds = ~lanes, ~bounds
        return frames.by_values(rows, lanes, bounds, null, end=end)


def _is_null(column: LaneRun, values: Lanes) -> Mask:
    """Return in which rows a column is null."""
    test = null_test(column, 0)
    found: Mask = values[:, test.lane] == test.value if test.lane >= 0 else np.zeros(len(values), np.bool_)
    return found


def _units(offset: Literal, kind: Type, *, up: bool = False) -> int:
    """Return a distance in the units of a type's lanes, rounded down or `up`: there are no values between them."""
    value: Any = offset.value
    if isinstance(value, dt.timedelta):
        micros = value // dt.timedelta(microseconds=1)
        units, per = (micros, 86400 * 10**6) if kind.kind == "date" else (micros * kind.per_second, 10**6)
        return -(-units // per) if up else units // per
    if isinstance(value, Decimal):
        return int(value.scaleb(kind.scale))
    return int(value)


def _moved(lanes: Lanes, by: int, sign: int) -> Lanes:
    """Return numbers moved by a distance, no further than 64 bits reach."""
    by = min(by, LARGEST)
    if sign > 0:
        return np.where(lanes > LARGEST - by, LARGEST, lanes + np.minimum(by, LARGEST - np.maximum(lanes, 0)))
    return np.where(lanes < by - LARGEST, -LARGEST - 1, lanes - np.minimum(by, LARGEST + np.minimum(lanes, 0)))


def _wide(values: Lanes, column: LaneRun, by: int, null: Mask) -> tuple[Lanes, Lanes]:
    """Return numbers in the order of decimals of two lanes, and of them moved by a distance."""
    high, low = (values[:, lane] for lane in column.lanes)
    whole = [
        0 if gone else (h << 64) | (w & (2**64 - 1))
        for h, w, gone in zip(high.tolist(), (low ^ SIGN).tolist(), null.tolist(), strict=True)
    ]
    moved = [each + by for each in whole]
    place = {each: at for at, each in enumerate(sorted({*whole, *moved}))}
    return np.array([place[each] for each in whole], np.int64), np.array([place[each] for each in moved], np.int64)


def _text_order(frame: Any, name: str) -> Lanes:
    """Return the place of each value of a column among all its different ones, null last."""
    series = frame[name]
    distinct = series.drop_nulls().unique().sort()
    places = pl.DataFrame({"value": distinct, "at": np.arange(len(distinct))})
    found = series.alias("value").to_frame().join(places, on="value", how="left", maintain_order="left")["at"]
    lanes: Lanes = found.fill_null(NULL).to_numpy()
    return lanes


ROWS = "$rows"
"""The column of a mark that counts the rows of the partition up to there."""


def order_columns(node: windows.RunningGroup) -> Schema:
    """Return the columns of the arrangement that hold a row's place in the order."""
    schema = node.inputs[0].schema
    found: Schema = {}
    for at, (name, _) in enumerate(node.order_by):
        found |= lane_columns(lane_column(at), schema[name])
    return found


def counts_rows(node: windows.RunningGroup) -> bool:
    """Return whether a call needs, beside its state, the number of rows before."""
    return any(call.function in ("rank", "nth_value") for call in node.calls)


def mark_layout(node: windows.RunningGroup) -> Layout:
    """Return the layout of a mark's values: its place, the number of rows up to there if that matters, and the cells of each call."""
    found = order_columns(node) | ({ROWS: Type("int64")} if counts_rows(node) else {})
    for at, call in enumerate(node.calls):
        found |= window_cells(at, call)
    return Layout(found)


class _Block(NamedTuple):
    """Rows of partitions in order, their values, the partitions' keys, and which of these have rows before.

    `number` is the number of each row: among all of its partition if a call asks for it, else among those at hand.
    """

    rows: Partitions
    values: Lanes
    keys: Lanes
    number: Lanes
    known: Mask


class ContinuedCalls(WindowCalls):
    """The calls of a running window over an arrangement's values: `Running`'s protocol."""

    def __init__(self, node: windows.RunningGroup, pool: Pool):
        super().__init__(node, pool)
        self.backwards = node.backwards
        self.counts = counts_rows(node)
        self.order = Layout(order_columns(node)).width
        self.own = [lane for each in self.cells for lane in each]

    @property
    def width(self) -> int:
        """Return the number of lanes of the result."""
        return self.result.width

    @property
    def carried(self) -> int:
        """Return the number of lanes that a mark has behind its place."""
        return self.counts + len(self.own)

    def over(self, given: GatheredGroups, before: Carry) -> tuple[Lanes, Lanes]:
        """Return the result's rows, and the calls' states at the last row of each place."""
        rows, placed = self.placed(given)
        groups = rows[placed.first[:-1], 0]
        values, out = np.ascontiguousarray(rows[:, 1:-1]), self.beside(rows)
        lanes, known = before.lanes[groups], before.known[groups] != 0
        number = placed.position - placed.start + 1
        if self.counts:
            number += np.repeat(lanes[:, 0], np.diff(placed.first))
        block, lane = _Block(placed, values, given.keys[groups], number, known), int(self.counts)
        for at, call in enumerate(self.node.calls):
            own = np.ascontiguousarray(lanes[:, lane : lane + len(self.cells[at])])
            lane += len(self.cells[at])
            out[:, [1 + each for each in self.cells[at]]] = self.continued(at, call, block, own)
        last = np.flatnonzero(placed.position == placed.peers_end - 1)
        columns = [rows[last, : 1 + self.order], out[last][:, [1 + each for each in self.own]]]
        if self.counts:
            columns.insert(1, number[last, None])
        return out, np.ascontiguousarray(np.concatenate(columns, axis=1))

    def in_order(self, rows: Lanes) -> tuple[Lanes, Mask]:
        """Return rows in the order of the window, that is backwards where its frames reach to the end."""
        rows, same = super().in_order(rows)
        if not self.backwards or not len(rows):
            return rows, same
        first = np.append(np.flatnonzero(np.diff(rows[:, 0], prepend=-1)), len(rows))
        sizes = np.diff(first)
        turned = np.repeat(first[:-1] + first[1:] - 1, sizes) - np.arange(len(rows))
        following = np.append(same[1:], False)[turned]
        return np.ascontiguousarray(rows[turned]), following

    def continued(self, at: int, call: WindowCall, block: _Block, own: Lanes) -> Lanes:
        """Return the lanes of a call's cells, one row for each, continued from the states `own`, in partitions whose past is known."""
        rows, number = block.rows, block.number
        sizes = np.diff(rows.first)
        function = call.function
        if function == "rank":
            return number[rows.peers][:, None]
        if function in ("row_number", "dense_rank"):
            return (frames.ranking(function, rows) + np.repeat(own[:, 0], sizes))[:, None]
        assert call.frame is not None
        by_rows = call.frame.unit == "rows"
        if call.aggregate is not None:
            return self.aggregated_on(at, call.aggregate, block, own, rows.position if by_rows else rows.peers)
        reached = rows.position if by_rows else rows.peers_end - 1
        latest = function == ("first_value" if self.backwards else "last_value")
        if call.ignores_nulls:
            there = frames.nth_of([(rows.start, reached + 1)], -1 if latest else 1, self.has_value(call, block.values))
            found = self.looked_up(call, there, block.values)
            known = block.known & ~_is_null(column_of(Layout({ROWS: call.type}), ROWS), own)
            past = np.repeat(known, sizes) & ((there < 0) if latest else True)
            found[past] = np.repeat(own, sizes, axis=0)[past]
            return found
        if latest:
            return self.looked_up(call, reached, block.values)
        if function == "nth_value":
            wanted = rows.start + call.number - number[rows.start]
            past = wanted < rows.start
        else:
            wanted, past = rows.start, np.repeat(block.known, sizes)
        there = np.where(past, rows.start, np.where(wanted <= reached, wanted, -1))
        found = self.looked_up(call, there, block.values)
        found[past] = np.repeat(own, sizes, axis=0)[past]
        return found

    def aggregated_on(self, at: int, aggregate: AggregateCall, block: _Block, own: Lanes, enters: Lanes) -> Lanes:
        """Return an aggregate's lanes over all rows up to each: a row's value enters at its row in `enters`, the state before at the first."""
        layout = self.read_by(aggregate)
        given = np.ascontiguousarray(block.values[:, self.values.take(layout.names)])
        instances = Instances(block.keys, block.rows.first, block.rows.position[:, None])
        past = np.concatenate([own, block.known[:, None].astype(np.int64)], axis=1)
        lane, found = 0, []
        for each in kernel_aggregates(aggregate, layout):
            before = np.ascontiguousarray(past[:, [*range(lane, lane + each.width), -1]])
            lane += each.width
            if isinstance(each, Count | ExactSum):
                sums = Sums(len(given), (each,))
                once = np.concatenate([given, np.ones((len(given), 1), np.int64)], axis=1)
                sums.add(np.ascontiguousarray(once), 0, enters)
                sums.add_totals(before, 0, instances.first[:-1])
                found.append(sums.finalize(instances, instances.first, at)[0])
                continue
            some = np.flatnonzero(before[:, -1])
            events = np.empty((len(given) + len(some), given.shape[1] + 3), np.int64)
            events[:, 0], events[:, -1] = np.concatenate([instances.groups(), some]), 1
            events[:, 1:-2] = np.concatenate([given, before[some, :-1]])
            events[:, -2] = np.concatenate([enters, instances.first[some]])
            replay = Replay(instances, events[:0], instances.first.copy(), instances.first).of(events)
            nothing = column_of(layout, layout.names[0]).nothing
            found.append(frames.over_frames(each, replay, nothing, np.ones(len(given), np.int64), at))
        return np.concatenate(found, axis=1)
