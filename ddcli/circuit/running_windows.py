"""Window calls that continue from row to row: rows after a change are computed from the results before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.circuit.groups import column_of, kernel_aggregates
from ddcli.circuit.windows import WindowCalls
from ddcli.engine.lanes import Layout
from ddcli.engine.operators import frames
from ddcli.engine.operators.reduce_aggregates import Count, ExactSum
from ddcli.engine.operators.reduce_evaluate import Sums
from ddcli.engine.operators.reduce_instances import Instances
from ddcli.engine.operators.reduce_replay import Replay
from ddcli.engine.operators.running_windows import Continued
from ddcli.expressions.types import Type
from ddcli.named_tuple import NamedTuple
from ddcli.plan.cells import window_cells
from ddcli.plan.physical import lane_column, lane_columns

if TYPE_CHECKING:
    from ddcli.circuit.windows import Mask
    from ddcli.engine.columns import Lanes
    from ddcli.engine.operators.frames import Partitions
    from ddcli.engine.operators.reduce_aggregates import Gathered
    from ddcli.engine.operators.running_windows import Carry
    from ddcli.engine.pool import Pool
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.types import Schema
    from ddcli.expressions.windows import WindowCall
    from ddcli.plan import windows

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

    `number` is that of each row: among all of its partition if a call asks for it, else among those at hand.
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

    def over(self, given: Gathered, before: Carry) -> Continued:
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
        return Continued(out, np.ascontiguousarray(np.concatenate(columns, axis=1)))

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
        if function == ("first_value" if self.backwards else "last_value"):
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
                found.append(sums.settle(instances, instances.first, at)[0])
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
