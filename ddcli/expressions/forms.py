"""The forms of SQL that have syntax of their own: conditions, `case`, casts, and constants: numbers, dates and times, intervals."""

from __future__ import annotations

import datetime as dt
import math
import re
from abc import ABC, abstractmethod
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from ddcli.errors import SpecError, did_you_mean, suggestion
from ddcli.expressions.arithmetic import minus
from ddcli.expressions.coerce import (
    BOOL,
    DATE,
    DURATION,
    FLOAT64,
    INT64,
    MONTHS,
    NULL,
    STRING,
    TARGETS,
    TIME,
    TIMESTAMP,
    ZONED,
    Mismatch,
    check_lengths,
    convert,
    decimal_type,
    has_nanoseconds,
    integer_range,
    temporal_value,
    unify,
)
from ddcli.expressions.moments import DIFF_UNITS, MONTH_UNITS
from ddcli.expressions.operators import JSON_MADE
from ddcli.expressions.time_functions import PARTS, part_named
from ddcli.expressions.tree import MAX_DEPTH, Call, Case, Cast, Expression, Literal
from ddcli.expressions.types import (
    ALIASES,
    MAX_PRECISION,
    SQL_NAMES,
    current_zone,
    localized,
    parse_sql_type,
    parse_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.errors import Span
    from ddcli.expressions.syntax_tree import Tree
    from ddcli.expressions.types import Type


TEMPORAL = {"date": DATE, "timestamp": TIMESTAMP, "time": TIME, "datetime": TIMESTAMP, "timestamptz": ZONED}
"""Types whose name may come before a text: `date '2013-01-01'`."""
LONGEST_WHOLE = 40
"""Digits of a whole number, more than those that any type has."""


def number(digits: str, span: Span) -> Literal:
    """Return a number: whole ones are int64, beyond its range decimals, `1.5` is a decimal, `1e3` a float. Raises SpecError for one that no type holds."""
    if re.fullmatch(r"-?\d+", digits):
        value = _whole(digits)
        low, high = integer_range("int64")
        if low <= value <= high:
            return Literal(value, INT64, span=span)
        size = len(str(abs(value)))
        if size > MAX_PRECISION:
            raise SpecError(f"{digits} has more than {MAX_PRECISION} digits", span=span)
        return Literal(Decimal(value), decimal_type(size, 0), span=span)
    if re.fullmatch(r"-?\d*\.\d*", digits):
        exact = Decimal(digits) or Decimal(digits.lstrip("-"))  # decimals have no -0.0
        whole, _, fraction = digits.lstrip("-").partition(".")
        precision = len(whole.lstrip("0")) + len(fraction)
        if precision > MAX_PRECISION:
            raise SpecError(f"{digits} has more than {MAX_PRECISION} digits", span=span)
        return Literal(exact, decimal_type(precision, len(fraction)), span=span)
    try:
        approximate = float(digits)
    except ValueError:
        raise SpecError(f"`{digits}` is not a number", span=span) from None
    if math.isinf(approximate):
        raise SpecError(f"{digits} is too large for float64", span=span)
    return Literal(approximate, FLOAT64, span=span)


def temporal(literal: Literal, target: Type) -> Literal:
    """Return a text as a date or a time. Raises SpecError for any other text."""
    try:
        return Literal(temporal_value(str(literal.value), target, literal), target, span=literal.span)
    except Mismatch as mismatch:
        raise SpecError(mismatch.problem, span=literal.span, hint=mismatch.hint) from None


PART = re.compile(
    r"\s*([+-]?)(?:(\d+):(\d\d)(?::(\d\d(?:\.\d{1,6})?))?$|(\d+(?:\.\d+)?)\s*([a-z]+)(?=[\s\d+-]|$))", re.IGNORECASE
)
"""A part of an interval: a clock at its end, or a number of units."""
UNIT_NAMES = {
    "microsecond": "us usec usecs usecond useconds",
    "millisecond": "ms msec msecs msecond mseconds",
    "second": "s sec secs",
    "minute": "m min mins",
    "hour": "h hr hrs",
    "day": "d",
    "week": "w",
    "month": "mon mons",
    "year": "y yr yrs",
}
"""Other names of units in the text of an interval, as in DuckDB."""
UNIT_OF = {other: unit for unit, others in UNIT_NAMES.items() for other in others.split()}


def interval_of(text: str, span: Span) -> Expression:
    """Return the interval that a text names, `1 day 02:30:00` or `1 year 6 months`: of months beside days the sum of both. Raises SpecError for any other text."""
    parts: list[Literal] = []
    at = 0
    body = re.sub(r"(?i)\s+ago\s*$", "", text)
    while match := PART.match(body, at):
        sign, hours, minutes, seconds, number, named = match.groups()
        if hours:
            if body != text or any(each.type != MONTHS and each.value and not each.in_days for each in parts):
                break
            parts += [
                interval(sign + size, unit, span)
                for unit, size in (("hour", hours), ("minute", minutes), ("second", seconds or "0"))
            ]
        else:
            word = named.lower()
            parts.append(interval(sign + number, UNIT_OF.get(word, word.removesuffix("s")), span))
        at = match.end()
    if not parts or body[at:].strip():
        raise SpecError(
            f"'{text}' is no interval", span=span, hint="as in interval '1 day' or interval '2 hours 30 minutes'"
        )
    back = -1 if body != text else 1
    months = sum(back * each.value for each in parts if isinstance(each.value, int))
    lengths = [each for each in parts if isinstance(each.value, dt.timedelta)]
    size = sum(each.value // dt.timedelta(microseconds=1) for each in lengths)  # type: ignore[operator, misc]
    length = replace(_length(back * size, span), days=back * sum(each.days for each in lengths))
    if len(lengths) == len(parts):
        return length
    found = Literal(months, MONTHS, span=span)
    return Call("+", (found, length), MONTHS, span=span) if lengths else found


def interval(amount: str, unit: str, span: Span) -> Literal:
    """Return the interval of `amount` units. Raises SpecError for an unknown unit, and for an amount that is not a whole number or is too large."""
    if unit not in DIFF_UNITS and unit not in MONTH_UNITS:
        hint = f"one of {', '.join([*DIFF_UNITS, *MONTH_UNITS])}"
        raise SpecError(f"unknown unit of an interval: `{unit}`", span=span, hint=hint)
    whole, _, digits = amount.partition(".")
    if not re.fullmatch(r"[+-]?\d+", whole) or (digits and unit in MONTH_UNITS):
        hint = f"write interval '30' {unit}; a column: n * interval '1' {unit}"
        raise SpecError("an interval takes a constant whole number", span=span, hint=hint)
    if unit in MONTH_UNITS:
        return Literal(_whole(whole) * MONTH_UNITS[unit], MONTHS, span=span)
    part = Fraction(f"{'-' if amount[0] == '-' else ''}0.{digits or 0}") * DIFF_UNITS[unit]
    size = _whole(whole) * DIFF_UNITS[unit] + int(abs(part) + Fraction(1, 2)) * (-1 if part < 0 else 1)
    length, day = _length(size, span), DIFF_UNITS["day"]
    return replace(length, days=int(Fraction(size, day))) if unit in {"day", "week"} else length


def _length(size: int, span: Span) -> Literal:
    """Return an interval of so many microseconds. Raises SpecError if it is too long."""
    try:
        value = dt.timedelta(microseconds=size)
    except OverflowError:
        value = None
    if value is None or abs(size) > integer_range("int64")[1]:
        raise SpecError("this interval is too long", span=span)
    return Literal(value, DURATION, span=span)


def _whole(digits: str) -> int:
    """Return a whole number; for more digits than any type holds, another such number: Python reads at most some thousand digits."""
    sign, rest = ("-" if digits[:1] == "-" else ""), digits.lstrip("+-").lstrip("0")
    return int(sign + (rest or "0") if len(rest) <= LONGEST_WHOLE else f"{sign}1{'0' * LONGEST_WHOLE}")


BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "//",
    exp.Mod: "%",
    exp.DPipe: "||",
}
BINARY |= {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
BINARY |= {exp.And: "and", exp.Or: "or", exp.Like: "like", exp.ILike: "ilike"}
BINARY |= {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>"}
BINARY |= {exp.NullSafeEQ: "is not distinct from", exp.NullSafeNEQ: "is distinct from"}


class FormReader(ABC):
    """The reader of a syntax tree's forms into a typed tree; subclasses know the meanings of names."""

    tree: Tree
    place: Callable[[exp.Expr], Span]
    take: Callable[..., list[Any]]
    parameters: dict[str, Expression]
    """The parameters of the lambdas around, by name in lower case."""
    lambdas = 0
    """The number of the lambdas around."""

    @abstractmethod
    def read(self, node: exp.Expr) -> Expression:
        """Return the typed tree of a syntax node."""

    @abstractmethod
    def literal(self, node: exp.Literal) -> Literal:
        """Read a number, or text in single quotes."""

    @abstractmethod
    def resolve(self, node: exp.Expr, name: str, args: Sequence[Expression]) -> Expression:
        """Return the call of a function of the table, its arguments checked and converted."""

    @abstractmethod
    def converted(self, node: exp.Expr, value: Expression, target: Type, *, tried: bool) -> Expression:
        """Return the cast of a value, a list element by element and a struct field by field."""

    @abstractmethod
    def identifier(self, node: exp.Expr) -> tuple[str, bool]:
        """Read a name, and whether it is in double quotes."""

    @abstractmethod
    def unknown_form(self, node: exp.Expr) -> NoReturn:
        """Raise SpecError for syntax without a meaning here."""

    def fail(self, node: exp.Expr, problem: str, hint: str | None = None) -> NoReturn:
        """Raise SpecError at a node."""
        raise SpecError(problem, span=self.place(node), hint=hint)

    def connected(self, node: exp.And | exp.Or) -> Expression:
        """Read `a and b and ...`. More than `MAX_DEPTH` conditions make a balanced tree, which means the same."""
        operands: list[exp.Expr] = []
        inner: exp.Expr = node
        while type(inner) is type(node):
            inner, last = self.take(inner, "this", "expression")
            operands.append(last)
        conditions = [self.read(operand) for operand in (inner, *reversed(operands))]
        name = BINARY[type(node)]
        if len(conditions) > MAX_DEPTH:
            return self.balanced(node, name, conditions)
        return reduce(lambda left, right: self.resolve(node, name, [left, right]), conditions)

    def balanced(self, node: exp.Expr, name: str, conditions: list[Expression]) -> Expression:
        """Return conditions in their order, connected as a balanced tree."""
        if len(conditions) == 1:
            return conditions[0]
        half = len(conditions) // 2
        sides = [self.balanced(node, name, part) for part in (conditions[:half], conditions[half:])]
        return self.resolve(node, name, sides)

    def like(self, node: exp.Expr, escape: exp.Expr | None = None) -> Expression:
        """Read `like` and `ilike`; sqlglot keeps `not like` as an argument."""
        value, pattern, negate = self.take(node, "this", "expression", "negate")
        args = [self.read(each) for each in (value, pattern, escape) if each is not None]
        return self.negated(node, self.resolve(node, BINARY[type(node)], args), negate)

    def matched(self, node: exp.Expr) -> Expression:
        """Read `text ~ 'pattern'`, and `~*` without regard to case, as a match anywhere in the text."""
        args = [self.read(each) for each in self.take(node, "this", "expression")]
        args += [Literal("i", STRING)] if isinstance(node, exp.RegexpILike) else []
        return self.resolve(node, "regexp_like", args)

    def negated(self, node: exp.Expr, condition: Expression, negate: object) -> Expression:
        """Return a condition or its negation."""
        return self.resolve(node, "not", [condition]) if negate else condition

    def between(self, node: exp.Between) -> Expression:
        """Read `between`; `symmetric` takes the bounds in either order."""
        parts = self.take(node, "this", "low", "high", "symmetric")
        value, low, high = (self.read(part) for part in parts[:3])

        def within(least: Expression, most: Expression) -> Expression:
            sides = [self.resolve(node, op, [value, side]) for op, side in ((">=", least), ("<=", most))]
            return self.resolve(node, "and", sides)

        return self.resolve(node, "or", [within(low, high), within(high, low)]) if parts[3] else within(low, high)

    def extract(self, node: exp.Extract) -> Expression:
        """Read `extract(year from x)`."""
        named, value = self.take(node, "this", "expression")
        word = self.literal(named).value if isinstance(named, exp.Literal) else self.take(named, "this")[0]
        part = str(word).lower()
        function = part_named(part)
        if function is None:
            hint = suggestion(part, PARTS, f"one of {', '.join(sorted(PARTS))}", mark="`")
            self.fail(node, f"extract has no part `{part}`", hint)
        return self.resolve(node, function.name, [self.read(value)])

    def negative(self, node: exp.Neg) -> Expression:
        """Read unary minus; before a number it is a part of the number, so that the least int64 can be written."""
        (inner,) = self.take(node, "this")
        if isinstance(inner, exp.Literal) and not inner.is_string:
            digits, _ = self.take(inner, "this", "is_string")
            return number(f"-{digits}", self.place(node))
        value = self.read(inner)
        if value.type.kind == "months" or (isinstance(value, Literal) and value.type.kind == "duration"):
            return minus(value)
        return self.resolve(node, "negate", [value])

    def typed_literal(self, node: exp.Cast) -> Expression:
        """Read `date '2013-01-01'` and its like; sqlglot reads a cast behind it as one of the text alone."""
        text, named = self.take(node, "this", "to")
        if isinstance(text, exp.Cast):
            first = text
            while isinstance(first.this, exp.Cast):
                first = first.this
            literal = first.this
            first.set("this", exp.Cast(this=literal, to=named))
            try:
                return self.read(text)
            finally:  # the tree may be read again
                first.set("this", literal)
                node.set("to", named)
        kind = str(self.take(named, "this")[0].name).lower()
        if kind not in TEMPORAL:
            self.unknown_form(node)
        value = self.literal(text)
        found = temporal(value, localized(TEMPORAL[kind], current_zone()))
        return Cast(value, found.type, span=found.span) if has_nanoseconds(value, found.type) else found

    def interval(self, node: exp.Interval) -> Expression:
        """Read `interval '30' day`, `interval '1 day 2 hours'`, and `interval (n) day`, n times the length of one."""
        size, named = self.take(node, "this", "unit")
        if named is None and isinstance(size, exp.Literal):
            written, is_text = self.take(size, "this", "is_string")
            if is_text:
                return interval_of(str(written), self.place(node))
        if named is not None and not isinstance(named, exp.Var):
            self.fail(named, "an interval has one unit", "add two intervals: interval '1' day + interval '2' hour")
        unit = str(*self.take(named, "this")).lower().removesuffix("s") if named else ""
        if isinstance(size, exp.Paren) and (unit in DIFF_UNITS or unit in MONTH_UNITS):
            return self.resolve(node, "*", [self.read(size), interval("1", unit, self.place(node))])
        amount = str(self.take(size, "this", "is_string")[0]) if isinstance(size, exp.Literal) else ""
        return interval(amount, unit, self.place(node))

    def is_(self, node: exp.Is) -> Expression:
        """Read `is null`, `is true`, `is false`."""
        tested, other, negate = self.take(node, "this", "expression", "negate")
        value = self.read(tested)
        if isinstance(other, exp.Null):
            self.take(other)
            return self.negated(node, self.resolve(node, "is null", [value]), negate)
        if isinstance(other, exp.Boolean):
            (wanted,) = self.take(other, "this")
            if value.type.kind not in ("bool", "null"):
                problem = f"`is {str(wanted).lower()}` expects a condition, got {value.type.required()}"
                self.fail(tested, problem, "compare it with something")
            found = self.resolve(node, "is not distinct from", [value, Literal(bool(wanted), BOOL)])
            return self.negated(node, found, negate)
        return self.unknown_form(node)

    def cast(self, node: exp.Expr, value: exp.Expr, named: exp.Literal, *, tried: bool) -> Expression:
        """Read `cast(x as type)`, `try_cast(x as type)` and `x::type`."""
        argument, written = self.read(value), str(self.literal(named).value)
        span = self.place(node)
        if written.lower() == "json":
            return self.json(node, argument, tried=tried)
        target = TIMESTAMP if written.lower() == "timestamp_s" else parse_sql_type(written)
        if target is None or target.kind == "null":
            meant = did_you_mean(written.lower(), TARGETS)
            at = self.place(named)
            where = replace(at, length=len(written)) if at.length == 1 or at.length != len(written) else at
            hint = f"did you mean `{meant}`?" if meant else None
            if written.lower() in ("jsonb", "variant"):
                hint = "JSON stays a text, which `x ->> '$.a'` takes apart"
            elif written.lower() == "uuid":
                hint = "a UUID is a text here"
            elif written.endswith("]") and parse_type(written[: written.rindex("[")]):
                hint = "an element of what is cast is `(x::type)[1]`; lists of a fixed length are not supported"
            raise SpecError(f"no type is named `{written}`", span=where, hint=hint)
        if target.kind == "duration" and isinstance(argument, Literal) and isinstance(argument.value, str):
            return interval_of(argument.value, span)
        is_json = isinstance(argument, Call) and argument.function in JSON_MADE and argument.type.kind == "string"
        if is_json and target.kind in ("list", "struct"):
            return Cast(argument, target.or_null(), try_=tried, span=span)
        if is_json and isinstance(argument, Call) and target.kind != "string":
            root = argument.args if argument.function == "json_extract" else [argument, Literal("$", STRING)]
            argument = self.resolve(node, "json_extract_string", root)
        found = self.converted(node, argument, localized(target.required(), current_zone()), tried=tried)
        if (argument.type.is_float or is_json) and ALIASES.get(written.lower()) == "decimal(38, 0)":
            return self.half_even(node, argument, found)
        if written.lower() == "timestamp_s":
            return self.resolve(node, "whole_seconds", [found])
        # An `integer` has 32 bits: its values are the int64 values that these hold.
        return convert(found, INT64) if SQL_NAMES.get(written.lower()) == "int32" else found

    def half_even(self, node: exp.Expr, value: Expression, larger: Expression) -> Expression:
        """Return the whole number nearest to a float or to JSON, of two the even one, as in a cast to an integer; larger ones are whole."""
        span = self.place(node)
        number = value if value.type.is_float else Cast(value, FLOAT64.or_null(), try_=True, span=span)
        near = self.resolve(node, "<", [self.resolve(node, "abs", [number]), Literal(2.0**53, FLOAT64)])
        whole = Cast(number, INT64.or_null(number.type.nullable), span=span)
        return self.conditional(node, [(near, Cast(whole, larger.type, span=span))], larger)

    def json(self, node: exp.Expr, value: Expression, *, tried: bool) -> Expression:
        """Read a cast to JSON: a text must be JSON, and stays as it is; another value is written as JSON."""
        if value.type.kind != "string":
            return self.resolve(node, "to_json", [value])
        return self.resolve(node, "try_parse_json" if tried else "parse_json", [value])

    def case(self, node: exp.Case) -> Expression:
        """Read both forms of case."""
        tested, arms, default = self.take(node, "this", "ifs", "default")
        subject = self.read(tested) if tested else None
        branches = []
        for arm in arms:
            when, then = self.take(arm, "this", "true")
            condition = self.read(when)
            if subject is not None:
                condition = self.resolve(when, "=", [subject, condition])
            branches.append((condition, self.read(then)))
        return self.conditional(node, branches, self.read(default) if default else Literal(None, NULL))

    def conditional(
        self, node: exp.Expr, branches: list[tuple[Expression, Expression]], default: Expression
    ) -> Expression:
        """Return a `case` with its values converted to one type."""
        conditions = []
        for condition, _ in branches:
            if condition.type.kind not in ("bool", "null"):
                problem = f"`when` expects a condition, got {condition.type.required()}"
                raise SpecError(problem, span=condition.span or self.place(node))
            conditions.append(convert(condition, BOOL))
        try:
            values, common = unify([*(value for _, value in branches), default], "`case`")
            check_lengths(values)
        except Mismatch as mismatch:
            raise mismatch.at(self.place(node)) from None
        pairs = tuple(zip(conditions, values[:-1], strict=True))
        return Case(pairs, values[-1], common, span=self.place(node))
