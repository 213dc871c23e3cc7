"""Window functions: the table, frames, and calls over the ordered rows of a partition.

Rows of a partition have one order: by the keys of the order, ties by all their other columns, ascending, texts by
their hashes. So a row has the same number in all runs. A record of multiplicity n is n rows; one of a multiplicity below 1 is none.
Rows that are equal in all keys of the order are *peers*.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from ddcli.dataclass import dataclass
from ddcli.expressions.coerce import convert
from ddcli.expressions.tree import Call, Column, MapStep

if TYPE_CHECKING:
    import polars as pl

    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.tree import Literal as Constant
    from ddcli.expressions.types import Type

Unit = Literal["rows", "range", "groups"]
Exclude = Literal["", "current row", "group", "ties"]


@dataclass(frozen=True)
class FrameBound:
    """An end of a frame: the current row (`direction` 0), or `offset` rows, groups or values before (-1) or after it (1); None: all.

    So many of the distance's `days` are counted by the calendar of a zone in which a day has not always 24 hours.
    """

    direction: int
    offset: Constant | None = None
    days: int = 0

    def text(self) -> str:
        """Return canonical SQL."""
        if not self.direction:
            return "current row"
        many = "unbounded" if self.offset is None else self.offset.text()
        if self.offset is not None and self.offset.type.kind == "float32":
            # A decimal is rounded to the key's type; a cast would be no constant.
            many = f"{Decimal(str(self.offset.value)):f}"
        if self.days and self.offset is not None:
            finer = (self.offset.value - timedelta(days=self.days)) // timedelta(microseconds=1)  # type: ignore[operator]
            many = f"interval '{self.days} days {finer} microseconds'" if finer else f"interval '{self.days}' day"
        return f"{many} {'preceding' if self.direction < 0 else 'following'}"

    @property
    def by_calendar(self) -> bool:
        """Return whether the distance has months, or days of a zone: its length depends on the value from which it is counted."""
        return self.offset is not None and (self.offset.type.kind == "months" or self.days != 0)

    def limits(self, rows: pl.DataFrame, name: str, kind: Type, *, descending: bool) -> tuple[pl.Series, pl.Series]:
        """Return an order's key in each row, and the date or time at the distance from it; null beyond the last one of its type."""
        from ddcli.expressions.arithmetic import arithmetic
        from ddcli.expressions.stage import FusedSteps

        assert self.offset is not None
        called = "try_add" if (self.direction > 0) != descending else "try_subtract"
        args, type_, function = arithmetic(called, [Column(name, kind), replace(self.offset, days=self.days)])
        columns = ("key", convert(Column(name, kind), type_)), ("limit", Call(function, tuple(args), type_))
        found = FusedSteps({name: kind}, (MapStep(columns),)).run(rows).frame
        return found["key"], found["limit"]


@dataclass(frozen=True)
class Frame:
    """The rows around the current one over which a call is computed."""

    unit: Unit
    start: FrameBound
    end: FrameBound
    exclude: Exclude = ""

    def text(self) -> str:
        """Return canonical SQL."""
        exclude = f" exclude {self.exclude}" if self.exclude else ""
        return f"{self.unit} between {self.start.text()} and {self.end.text()}{exclude}"

    @property
    def may_be_empty(self) -> bool:
        """Return whether the frame of a row can be empty: it can't if it always has the current row."""
        return self.start.direction > 0 or self.end.direction < 0 or self.exclude in ("current row", "group")

    @property
    def way(self) -> int:
        """1 if the frame has all rows up to the current one or its peers, -1 if all from there on, 0 for any other."""
        if self.exclude:
            return 0
        if not self.end.direction and self.start.direction < 0 and self.start.offset is None:
            return 1
        return -1 if not self.start.direction and self.end.direction > 0 and self.end.offset is None else 0


WHOLE = Frame("range", FrameBound(-1), FrameBound(1))
RUNNING = Frame("range", FrameBound(-1), FrameBound(0))
"""The frame where none is written: all rows up to the current one and its peers; without an order, all."""


@dataclass(frozen=True)
class WindowFunction:
    """One function of the table. `least` and `most` arguments; `ordered`: it needs an order; `picks`: its value is a row's, so it may ignore nulls."""

    name: str
    signature: str
    doc: str
    least: int = 0
    most: int = 0
    ordered: bool = False
    picks: bool = False


_TABLE = [
    WindowFunction("row_number", "row_number()", "Number of the row in its partition, from 1."),
    WindowFunction("rank", "rank()", "Number of the first of the row's peers: 1, 2, 2, 4.", ordered=True),
    WindowFunction("dense_rank", "dense_rank()", "Number of the row's peers among all peers: 1, 2, 2, 3.", ordered=True),
    WindowFunction("percent_rank", "percent_rank()", "(rank - 1) / (rows - 1), 0 for a single row; float64.", ordered=True),
    WindowFunction("cume_dist", "cume_dist()", "Part of the rows that are not after the row's peers; float64.", ordered=True),
    WindowFunction("ntile", "ntile(n)", "Number, from 1 to n, of the row's part: n parts that are as equal as possible, larger ones first.", 1, 1),
    WindowFunction("lag", "lag(x [, n [, default]])", "x in the row n before (default 1); the default, or null, if there is no such row. `lag(x ignore nulls)` and the functions below skip rows in which x is null.", 1, 3, ordered=True, picks=True),
    WindowFunction("lead", "lead(x [, n [, default]])", "x in the row n after.", 1, 3, ordered=True, picks=True),
    WindowFunction("first_value", "first_value(x)", "x in the first row of the frame; null for an empty frame.", 1, 1, ordered=True, picks=True),
    WindowFunction("last_value", "last_value(x)", "x in the last row of the frame.", 1, 1, ordered=True, picks=True),
    WindowFunction("nth_value", "nth_value(x, n)", "x in the nth row of the frame, null if it has fewer.", 2, 2, ordered=True, picks=True),
]  # fmt: skip
WINDOW_FUNCTIONS: dict[str, WindowFunction] = {each.name: each for each in _TABLE}


@dataclass(frozen=True)
class WindowCall:
    """A function of the table, or an aggregate over a frame.

    `args` are the value and, for `lag` and `lead`, the default, both of the call's `type`; `number` is the distance in rows, the
    number of the row, or the number of parts. `ignores_nulls`: rows in which the value is null are not counted.
    """

    function: str
    args: tuple[Expression, ...]
    type: Type
    number: int = 0
    frame: Frame | None = None
    aggregate: AggregateCall | None = None
    ignores_nulls: bool = False

    def columns(self) -> frozenset[str]:
        """Return the names of the columns it reads."""
        own = self.aggregate.columns() if self.aggregate is not None else frozenset[str]()
        return own.union(*(arg.columns() for arg in self.args))

    @property
    def reach(self) -> tuple[int, int] | None:
        """The numbers of rows before and after the current one that can affect its value; None if that has no bound."""
        if self.function in ("lag", "lead"):
            if self.ignores_nulls:
                return None
            return (self.number, 0) if self.function == "lag" else (0, self.number)
        if self.frame is None or self.frame.unit != "rows":
            return None
        ends = [
            0 if not end.direction else None if end.offset is None else end.direction * int(end.offset.value)  # type: ignore[arg-type]
            for end in (self.frame.start, self.frame.end)
        ]
        if ends[0] is None or ends[1] is None:
            return None
        return max(0, -ends[0]), max(0, ends[1])

    def text(self) -> str:
        """Return canonical SQL, without the partition and the order."""
        number = [str(self.number)] if self.number else []
        args = [arg.text() for arg in self.args]
        shown = ", ".join([*args[:1], *number, *args[1:]])
        ignored = " ignore nulls" if self.ignores_nulls else ""
        called = self.aggregate.text() if self.aggregate is not None else f"{self.function}({shown}{ignored})"
        return f"{called} over ({self.frame.text()})" if self.frame is not None else called
