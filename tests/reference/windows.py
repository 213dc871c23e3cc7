"""Window calls from their definition: rows in order, and for each call the rows that one of them sees."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.reference.aggregates import aggregated
from tests.reference.expressions import Fails, add_months
from tests.reference.values import Descending, canonical, order
from tests.reference.xxhash64 import text_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddcli.expressions.windows import Frame, FrameBound, WindowCall
    from ddcli.plan import windows

    Rows = list[tuple[Mapping[str, Any], tuple[Any, ...]]]


class Ordered:
    """The rows of one partition, copies apart, in the window's order."""

    def __init__(self, node: windows.Window, rows: Rows) -> None:
        self.node = node
        ties = [name for name in node.inputs[0].schema if name not in dict(node.order_by) and name not in node.by]

        def keys(row: Mapping[str, Any]) -> list[Any]:
            found = [(order(canonical(row[name])), descending) for name, descending in node.order_by]
            return [Descending(key) if descending else key for key, descending in found]

        def position(each: tuple[Mapping[str, Any], tuple[Any, ...]]) -> list[Any]:
            values = [canonical(each[0][name]) for name in ties]
            return keys(each[0]) + [order(text_rank(v) if isinstance(v, str) else v) for v in values]

        self.rows = sorted(rows, key=position)
        self.keys = [keys(row) for row, _ in self.rows]

    def peers(self, at: int) -> list[int]:
        """Return the rows that are equal to one in the order's keys, itself among them."""
        return [other for other, key in enumerate(self.keys) if key == self.keys[at]]

    def group(self, at: int) -> int:
        """Return how many groups of peers end before a row's."""
        return sum(self.keys[other] != self.keys[other - 1] for other in range(1, at + 1))

    def value(self, call: WindowCall, at: int) -> Any:
        """Return what a call is at a row."""
        size, peers = len(self.rows), self.peers(at)
        match call.function:
            case "row_number":
                return at + 1
            case "rank":
                return peers[0] + 1
            case "dense_rank":
                return self.group(at) + 1
            case "percent_rank":
                return peers[0] / (size - 1) if size > 1 else 0.0
            case "cume_dist":
                return (peers[-1] + 1) / size
            case "ntile":
                parts = [size // call.number + (part < size % call.number) for part in range(call.number)]
                return next(part + 1 for part in range(call.number) if at < sum(parts[: part + 1]))
            case "lag" | "lead":
                others = range(at + 1, size) if call.function == "lead" else range(at - 1, -1, -1)
                others = [at, *self.counted(call, others)]
                if call.number < len(others):
                    return self.rows[others[call.number]][0][call.args[0].name]
                return self.rows[at][0][call.args[1].name] if call.args[1:] else None
        seen = self.counted(call, self.seen(call.frame, at))
        if call.aggregate is not None:
            rows = [(self.rows[other][0], 1) for other in seen]
            if rows:
                return aggregated(call.aggregate, rows)
            return 0 if call.aggregate.function == "count" else None
        number = {"first_value": 1, "last_value": len(seen)}.get(call.function, call.number)
        return self.rows[seen[number - 1]][0][call.args[0].name] if 0 < number <= len(seen) else None

    def counted(self, call: WindowCall, rows: Iterable[int]) -> list[int]:
        """Return the rows that a call counts: `ignore nulls` leaves out those in which its value is null."""
        return [at for at in rows if not call.ignores_nulls or self.rows[at][0][call.args[0].name] is not None]

    def seen(self, frame: Frame, at: int) -> list[int]:
        """Return the rows of the frame of one."""
        peers = self.peers(at)
        gone = {"": [], "current row": [at], "group": peers, "ties": [other for other in peers if other != at]}
        return [
            other
            for other in range(len(self.rows))
            if self._reaches(frame, frame.start, at, other, -1)
            and self._reaches(frame, frame.end, at, other, 1)
            and other not in gone[frame.exclude]
        ]

    def _reaches(self, frame: Frame, bound: FrameBound, at: int, other: int, side: int) -> bool:
        """Return whether a row is on the inner side of a bound of the frame: at or after its start, at or before its end."""
        if bound.direction and bound.offset is None:
            return True
        distance = 0 if bound.offset is None else bound.offset.value
        if frame.unit == "rows":
            return (other - at - bound.direction * distance) * side <= 0
        if frame.unit == "groups" or not bound.direction:
            return (self.group(other) - self.group(at) - bound.direction * (distance or 0)) * side <= 0
        name, descending = self.node.order_by[-1]
        mine, its = (canonical(self.rows[row][0][name]) for row in (at, other))
        if mine is None or its is None:  # nulls have no distance: their frames have their peers, others' have no null
            return (
                (self.group(other) - self.group(at)) * side <= 0 if mine is None else self._null_side(other, at, side)
            )
        direction = bound.direction * (-1 if descending else 1)
        months = bound.offset is not None and bound.offset.type.kind == "months"
        if isinstance(mine, dt.date) and not isinstance(mine, dt.datetime):
            mine, its = (dt.datetime.combine(each, dt.time()) for each in (mine, its))
        if bound.offset is not None and bound.offset.type.kind == "float32" and isinstance(mine, float):
            limit = float(np.float32(mine) + np.float32(direction * distance))
        else:
            limit = months_away(mine, distance * direction) if months else moved(mine, distance, direction)
        one, two = order(its), order(canonical(limit))
        if descending:
            return two <= one if side > 0 else one <= two
        return one <= two if side > 0 else two <= one

    def _null_side(self, other: int, at: int, side: int) -> bool:
        """Return whether a null is on the inner side of a bound by distance of a row that has a value: one that comes after the start is."""
        return (other - at) * side < 0


def months_away(value: Any, months: int) -> Any:
    """Return a date or time so many months away, no further than there are any."""
    try:
        return add_months(None, [value, months])  # type: ignore[arg-type]
    except Fails:
        return type(value).max if months > 0 else type(value).min


def moved(value: Any, distance: Any, direction: int) -> Any:
    """Return a value so far away."""
    if isinstance(value, dt.datetime):
        try:
            return value + direction * distance
        except OverflowError:
            return dt.datetime.max if direction > 0 else dt.datetime.min  # noqa: DTZ901 - as far as there are any
    return value + direction * distance
