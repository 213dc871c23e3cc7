"""Window calls as a function of gathered rows: rows in order, copies apart, with the cells of each call beside them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.circuit.groups import MOST_COPIES, column_of, gathered_function, kernel_aggregates, value_layout
from ddcli.engine.columns import NULL, SIGN, float_lanes, float_values
from ddcli.engine.lanes import Layout, decode, ranks
from ddcli.engine.operators import frames
from ddcli.engine.operators.reduce_aggregates import Gather, Gathered, null_test
from ddcli.engine.pool import PUBLIC
from ddcli.errors import EngineError
from ddcli.expressions.types import POOLED
from ddcli.plan.cells import is_gathered, window_cells

if TYPE_CHECKING:
    from ddcli.engine.columns import Lanes
    from ddcli.engine.operators.frames import Partitions
    from ddcli.engine.operators.reduce_aggregates import Aggregate, LaneRun
    from ddcli.engine.pool import Pool
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Literal
    from ddcli.expressions.types import Type
    from ddcli.expressions.windows import FrameBound, WindowCall
    from ddcli.plan import windows

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

    def __call__(self, given: Gathered) -> Lanes:
        """Return rows [instance | lanes | count] of the result."""
        rows, placed = self.placed(given)
        keys = given.keys[rows[placed.first[:-1], 0]]
        values = np.ascontiguousarray(rows[:, 1:-1])
        out = self.beside(rows)
        for at, call in enumerate(self.node.calls):
            found = self.called(at, call, placed, values, keys)
            out[:, [1 + lane for lane in self.cells[at]]] = found
        return out

    def placed(self, given: Gathered) -> tuple[Lanes, Partitions]:
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
            return self.looked_up(
                call, frames.neighbour(rows, call.number if call.function == "lead" else -call.number), values
            )
        if call.frame is None:
            if call.type.is_float:
                return float_lanes(frames.share(call.function, rows))[:, None]
            return frames.ranking(call.function, rows, call.number)[:, None]
        ends = frames.Ends(
            self.end_of(call.frame.unit, call.frame.start, rows, values, end=False),
            self.end_of(call.frame.unit, call.frame.end, rows, values, end=True),
        )
        parts = frames.pieces(rows, ends, call.frame.exclude)
        if call.aggregate is None:
            number = {"first_value": 1, "last_value": -1}.get(call.function, call.number)
            return self.looked_up(call, frames.nth(parts, number), values)
        return self.aggregated(at, call, rows, ends, frames.sizes(parts), values, keys)

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
        self, at: int, call: WindowCall, rows: Partitions, ends: frames.Ends, size: Lanes, values: Lanes, keys: Lanes
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
            return self.by_distance(offset, bound.direction, rows, values, end=end)
        assert isinstance(offset.value, int)
        return (frames.by_rows if unit == "rows" else frames.by_groups)(rows, offset.value, bound.direction, end=end)

    def by_distance(self, offset: Literal, direction: int, rows: Partitions, values: Lanes, *, end: bool) -> Lanes:
        name, descending = self.node.order_by[-1]
        kind, column = self.values.schema[name], column_of(self.values, name)
        test = null_test(column, 0)
        null = values[:, test.lane] == test.value if test.lane >= 0 else np.zeros(len(values), np.bool_)
        sign = -direction if descending else direction
        lanes = values[:, column.number]
        if kind.is_float:
            bounds = float_lanes(float_values(lanes.copy()) + sign * float(offset.value))  # type: ignore[arg-type]
        elif kind.is_wide:
            lanes, bounds = _wide(values, column, sign * _units(offset, kind), null)
        else:
            bounds = _moved(lanes, _units(offset, kind), sign)
        if descending:
            lanes, bounds = ~lanes, ~bounds
        return frames.by_values(rows, lanes, bounds, null, end=end)


def _units(offset: Literal, kind: Type) -> int:
    """Return a distance in the units of a type's lanes, rounded down: there are no values between them."""
    value: Any = offset.value
    if isinstance(value, dt.timedelta):
        micros = (value.days * 86400 + value.seconds) * 10**6 + value.microseconds
        if kind.kind == "date":
            return micros // (86400 * 10**6)
        if kind.kind == "time":
            return micros * 1000
        return micros * kind.per_second // 10**6
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
    import polars as pl

    series = frame[name]
    distinct = series.drop_nulls().unique().sort()
    places = pl.DataFrame({"value": distinct, "at": np.arange(len(distinct))})
    found = series.alias("value").to_frame().join(places, on="value", how="left", maintain_order="left")["at"]
    lanes: Lanes = found.fill_null(NULL).to_numpy()
    return lanes
