"""Comparisons with the present time in a `where`: `day >= current_date - 7` becomes the times at which a record exists.

Now is the time of a run, or of the collection. A side of a comparison is a chain of functions of it that never fall while time passes. So `e <= f(now)` is
true from the first time on at which f reaches `e`, and this time is computed from `e` by the functions' inverses, the outermost first. All four comparisons
are a bound of this kind; see `_Chain.first`.

In a zone whose clocks change, hours occur twice: sums of days and timestamps without a zone fall there, and are refused. Sums of dates are not.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, Text
from ddcli.expressions.coerce import DATE, TIMESTAMP, ZONED
from ddcli.expressions.parse import expanded
from ddcli.expressions.tree import Call, Literal
from ddcli.expressions.types import UTC, current_zone, localized, parse_sql_type
from ddcli.plan import temporal
from ddcli.plan.operators.table import bound
from ddcli.plan.sql import nodes
from ddcli.plan.sql.calls import names_present, present_kind

if TYPE_CHECKING:
    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Node
    from ddcli.plan.sql.context import Times
    from ddcli.plan.sql.reader import RowExpressions


COMPARISONS: dict[type[exp.Expr], str] = {exp.GTE: ">=", exp.GT: ">", exp.LTE: "<=", exp.LT: "<", exp.EQ: "="}
TURNED = {">=": "<=", ">": "<", "<=": ">=", "<": ">", "=": "="}
WHOLE_DAYS = ("year", "quarter", "month", "week", "day")
BEGINNING = "cast(cast(x as timestamp) - interval '1' microsecond as timestamptz) + interval '1' microsecond"
"""The first instant of a day, after the last one of the day before, which no change of the clocks repeats or skips."""
FIRST, LAST = dt.date(1, 1, 1), dt.date(9999, 12, 31)
YEAR = 366


@dataclass(frozen=True)
class _Step:
    """A function of the present time: the `day` of an instant, the `date` of a timestamp, the `timestamp` of a date, `days`, `months`, `exact` lengths of time, or `trunc`."""

    name: str
    amount: int = 0
    length: dt.timedelta = dt.timedelta()
    unit: str = ""


def present_filter(node: Node, condition: exp.Expr, reader: RowExpressions, times: Times) -> Node | None:
    """Return the records of a node while a comparison with the present time is true; None for a condition that is none."""
    whole = condition
    while isinstance(condition, exp.Paren):
        condition = condition.this
    block = reader.block
    found: list[tuple[str, exp.Expr, exp.Expr]]
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        value = condition.this
        found = [(">=", value, condition.args["low"]), ("<=", value, condition.args["high"])]
    elif type(condition) in COMPARISONS:
        found = [(COMPARISONS[type(condition)], condition.this, condition.expression)]
    else:
        return None
    chains = []
    for sign, left, right in found:
        one, other = _chain(left, reader), _chain(right, reader)
        if one is not None and other is None and not names_present(right, block):
            chains.append((TURNED[sign], right, one))
        elif other is not None and one is None and not names_present(left, block):
            chains.append((sign, left, other))
        elif names_present(left, block) or names_present(right, block):
            return None
        else:
            chains.append((sign, left, right))  # type: ignore[arg-type]
    taken = {id(each) for _, value, _ in chains for each in value.walk()}
    for each in whole.walk():
        if id(each) not in taken:
            reader.tree.take(each, *each.args)
    for sign, value, chain in chains:
        if isinstance(chain, _Chain):
            node = chain.kept(node, sign, reader.expression(value), times)
        else:
            sides = [reader.expression(value), reader.expression(chain)]
            node = nodes.filtered(node, reader.resolve(condition, sign, sides))
    return node


def _chain(node: exp.Expr, reader: RowExpressions) -> _Chain | None:
    """Return the functions of the present time that an expression is; None for any other expression."""
    if isinstance(node, exp.Paren):
        return _chain(node.this, reader)
    if base := present_kind(node, reader.block):
        return _Chain(base, base, (), reader, node)
    if isinstance(node, exp.Add | exp.Sub):
        left, right = node.this, node.expression
        if isinstance(left, exp.Interval) and isinstance(node, exp.Add):
            left, right = right, left
        chain = _chain(left, reader)
        return chain and chain.moved(right, -1 if isinstance(node, exp.Sub) else 1)
    if isinstance(node, exp.Cast) and isinstance(node.args["to"], exp.Literal):
        chain = _chain(node.this, reader)
        return chain and chain.cast(str(node.args["to"].this))
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 2:
        name, (first, second) = str(node.this).lower(), node.expressions
        if name == "cast" and isinstance(second, exp.Literal):
            chain = _chain(first, reader)
            return chain and chain.cast(str(second.this))
        if name in ("date_trunc", "datetrunc") and isinstance(first, exp.Literal):
            chain = _chain(second, reader)
            return chain and chain.cut(str(first.this).lower())
    return None


@dataclass(frozen=True)
class _Chain:
    """Functions of the present time, the innermost first. `base` is its kind, `kind` the result's: a `date`, a `local` timestamp that is the beginning of a day plus an exact length, or an `instant`."""

    base: str
    kind: str
    steps: tuple[_Step, ...]
    reader: RowExpressions
    node: exp.Expr

    def then(self, kind: str, *steps: _Step) -> _Chain:
        """Return the chain with further functions."""
        return replace(self, kind=kind, steps=(*self.steps, *steps))

    def moved(self, length: exp.Expr, sign: int) -> _Chain | None:
        """Return the chain plus an interval, or a number of days."""
        if isinstance(length, exp.Literal) and not length.is_string and str(length.this).isdigit():
            return self.then("date", _Step("days", sign * int(str(length.this)))) if self.kind == "date" else None
        if not isinstance(length, exp.Interval):
            return None
        found: _Chain | None = self
        interval = self.reader.interval(length)
        for part in interval.args if isinstance(interval, Call) and interval.function == "+" else (interval,):
            found = found and found.later(part, sign) if isinstance(part, Literal) else None
        return found

    def later(self, literal: Literal, sign: int) -> _Chain | None:
        """Return the chain plus a constant interval, of months or of a length."""
        changes = current_zone() != UTC
        if isinstance(literal.value, int):
            return self._of_day("months", sign * literal.value)
        assert isinstance(literal.value, dt.timedelta)
        if literal.in_days and self.kind != "instant":
            return self._of_day("days", sign * literal.value.days)
        if self.kind == "instant" and literal.days and changes:
            return None
        kind = "local" if self.kind == "date" else self.kind
        return self.then(kind, *self._as_local(), _Step("exact", length=sign * literal.value))

    def _as_local(self) -> tuple[_Step, ...]:
        return (_Step("timestamp"),) if self.kind == "date" else ()

    def _of_day(self, name: str, amount: int) -> _Chain | None:
        """Return the chain moved by days or months, if it is at the beginning of a day: other times of day would fall where a month is shorter."""
        exact = any(step.name == "exact" for step in self.steps)
        if self.kind == "instant" or exact:
            return None
        # A date plus an interval is a timestamp, at the beginning of a day.
        return self.then("local", *self._as_local(), _Step(name, amount))

    def cast(self, written: str) -> _Chain | None:
        """Return the chain cast to a type."""
        kind = parse_sql_type(written)
        if kind is None:
            return None
        if kind.kind == "date":
            return self if self.kind == "date" else self.then("date", *self._to_day())
        if kind == TIMESTAMP and self.kind in ("date", "local"):
            return self.then("local", *self._as_local())
        if kind == TIMESTAMP and self.kind == "instant" and current_zone() == UTC:
            return self
        return self if kind == ZONED and self.kind == "instant" else None

    def cut(self, unit: str) -> _Chain | None:
        """Return the beginning of the chain's year, month, day and so on."""
        if unit not in WHOLE_DAYS:
            return None
        return self.then("local", *self._to_day(), _Step("trunc", unit=unit))

    def _to_day(self) -> tuple[_Step, ...]:
        return () if self.kind == "date" else (_Step("day" if self.kind == "instant" else "date"),)

    def kept(self, node: Node, sign: str, value: Expression, times: Times) -> Node:
        """Return the records of a node while `value sign chain` is true."""
        lower = upper = None
        if sign in ("<=", "=", ">"):
            reached = self.first(value, times, after=False)
            lower, upper = (reached, None) if sign != ">" else (None, reached)
        if sign in ("<", "=", ">="):
            passed = self.first(value, times, after=True)
            lower, upper = (passed, upper) if sign == "<" else (lower, passed)
        return temporal.Temporal((node,), node.schema, lower, upper)

    def first(self, value: Expression, times: Times, *, after: bool) -> Expression:
        """Return the first time at which the chain is at least a value, or `after` it."""
        span = self.reader.place(self.node)
        if len(times.kinds) > 1 or times.kinds[0].is_integer:
            problem = "the present time is compared where times are numbers, or have several coordinates"
            raise SpecError(problem, span=span, hint="`temporal_filter` compares with such a time")
        kind = {"date": DATE, "local": TIMESTAMP}.get(self.kind, localized(ZONED, current_zone()))
        self.reader.resolve(self.node, "=", [value, Literal(None, kind.or_null())])  # may be compared at all
        found = _Reached(value, after, self)
        found.enter()
        for step in reversed(self.steps):
            found.back(step)
        return bound(found.time(times), Text("", span), times.kinds[0])

    @property
    def margin(self) -> int:
        """Return more days than the functions move."""
        return YEAR + sum(
            abs(step.amount) * (31 if step.name == "months" else 1) + abs(step.length.days) + 1 for step in self.steps
        )


class _Reached:
    """A value while the functions of a chain are undone: the chain up to here is at least the value, or `after` it."""

    def __init__(self, value: Expression, after: bool, chain: _Chain) -> None:
        self.value, self.after, self.chain = value, after, chain
        self.kind = chain.kind

    def write(self, text: str) -> None:
        """Replace the value by an expression over it, `x`."""
        self.value = expanded(text, {"x": self.value}, self.chain.reader.place(self.chain.node))

    def enter(self) -> None:
        """Convert the value to the chain's kind, away from the ends of the calendar, where sums would leave it."""
        room = dt.timedelta(days=self.chain.margin)
        if room * 2 > LAST - FIRST:
            raise SpecError("this interval is too long", span=self.chain.reader.place(self.chain.node))
        low, high = FIRST + room, LAST - room
        if self.value.type.kind == "string":
            self.write(f"cast(x as {'date' if self.kind == 'date' else 'timestamp'})")
        if self.value.type.kind == "date":
            self.write(
                f"case when x < date '{low}' then date '{low}' when x > date '{high}' then date '{high}' else x end"
            )
        elif self.value.type.zone:
            low_, high_ = (f"timestamptz '{each} 00:00:00Z'" for each in (low, high))
            self.write(f"case when x < {low_} then {low_} when x > {high_} then {high_} else x end")
        else:
            low_, high_ = (f"timestamp '{each} 00:00:00'" for each in (low, high))
            self.write(f"case when x < {low_} then {low_} when x > {high_} then {high_} else x end")
        if self.kind == "instant":
            finer = self.value.type.unit == "ns" and not self.after
            up = "case when cast(x as timestamptz) < x then cast(x as timestamptz) + interval '1' microsecond else cast(x as timestamptz) end"
            self.write(up if finer else "cast(x as timestamptz)")
        elif self.value.type.zone or (self.kind == "local" and self.value.type.kind == "date"):
            self.write("cast(x as timestamp)")
        if self.kind == "date" and self.value.type.kind != "date":
            self.up_to_day()

    def up_to_day(self) -> None:
        """Replace a timestamp by the first day whose beginning is at least it, or after it."""
        if self.after:
            self.write("cast(x as date)")
        else:
            self.write(
                "case when cast(cast(x as date) as timestamp) = x then cast(x as date) else cast(x as date) + 1 end"
            )
        self.kind = "date"

    def at_least_day(self) -> None:
        """Replace the value by a day that the chain, a date or the beginning of one, has to be at least."""
        if self.value.type.kind != "date":
            self.up_to_day()
        if self.after:
            self.write("x + 1")
        self.after = False

    def back(self, step: _Step) -> None:
        """Undo a function."""
        if step.name == "timestamp":
            if self.value.type.kind != "date":
                self.up_to_day()
        elif step.name == "date":
            self.at_least_day()
            self.write("cast(x as timestamp)")
        elif step.name == "day":
            self.at_least_day()
            self.write(BEGINNING)
        elif step.name == "exact":
            self.write(f"x - interval '{step.length // dt.timedelta(microseconds=1)}' microsecond")
        elif step.name == "days":
            if self.value.type.kind != "date":
                self.up_to_day()
            self.write(f"x - {step.amount}" if step.amount >= 0 else f"x + {-step.amount}")
        elif step.name == "months":
            self.at_least_day()
            back = f"cast(x - interval '{step.amount}' month as date)"
            reached = f"cast({back} + interval '{step.amount}' month as date) >= x"
            self.write(f"case when {reached} then {back} else {back} + 1 end")
        else:
            self.at_least_day()
            begin = f"cast(date_trunc('{step.unit}', x) as date)"
            self.write(f"case when {begin} = x then x else cast({begin} + interval '1' {step.unit} as date) end")

    def time(self, times: Times) -> Expression:
        """Return the value as a time, at or after which the present time is at least it, or after it."""
        (kind,) = times.kinds
        of_clocks = kind.zone is None and not times.arrives
        if self.chain.base == "date":
            self.at_least_day()
            if kind.kind == "date":
                return self.value
            if of_clocks:
                self.write("cast(x as timestamp)")
                return self.value
            self.write(BEGINNING)
        elif kind.kind == "date":
            problem = "times are dates here, and have no time of day"
            raise SpecError(problem, span=self.chain.reader.place(self.chain.node), hint="compare with `current_date`")
        if self.value.type.kind == "datetime" and self.value.type.zone is None:
            self.write("cast(x as timestamptz)")
        if self.chain.base == "instant" and self.after:
            self.write("cast(x as timestamptz) + interval '1' microsecond")
        if times.arrives:
            self.write(f"timezone('{UTC}', x)")
        elif of_clocks:
            self.write("cast(x as timestamp)")
        return self.value
