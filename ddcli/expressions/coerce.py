"""Common types of expressions, and the casts to them.

Rules. Integers of different widths meet in `int64`; `uint64` with a signed integer meets in `decimal(20, 0)`, the
smallest type that holds both. An integer or decimal with a float meets in that type of floats, `float32` with `float64` in `float64`. A date with a timestamp meets in the
timestamp, a timestamp without a zone with one that has one in that zone. Nothing else converts by itself, with one convenience: a *literal* takes the type of the value beside it
(`1.5` beside a float is a float, `'2013-01-01'` beside a date is that date), and is refused in the spec if it can't.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from ddcli.errors import SpecError
from ddcli.expressions.moments import instant, within
from ddcli.expressions.nanoseconds import fraction_of
from ddcli.expressions.tree import Call, Cast, Expression, Literal
from ddcli.expressions.types import ALIASES, MAX_PRECISION, SECOND_DIGITS, SIGNED, SIMPLE, UTC, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.errors import Span


INT64, FLOAT32, FLOAT64, BOOL = (Type(k) for k in ("int64", "float32", "float64", "bool"))
STRING, DATE, TIME = (Type(k) for k in ("string", "date", "time"))
TIMESTAMP, DURATION, NULL = Type("datetime", unit="us"), Type("duration", unit="us"), Type("null", nullable=True)
ZONED = Type("datetime", unit="us", zone=UTC)
MONTHS = Type("months")  # calendar intervals have no fixed length: literals only, beside + and -
DAY = dt.timedelta(days=1)
DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19, "uint8": 3, "uint16": 5, "uint32": 10, "uint64": 20}


CLOCK = r"\d\d:\d\d(:\d\d([.,]\d+)?)?( ?Z|[+-]\d\d(:?\d\d(:\d\d)?)?)?"
FORMS = {"date": r"\d{4}-\d\d-\d\d", "time": CLOCK, "datetime": rf"\d{{4}}-\d\d-\d\d([ T]{CLOCK})?"}
"""The forms of constant dates and times: Python reads more, as weeks and any letter before the time."""


class Mismatch(Exception):
    """Arguments that a function does not take."""

    def __init__(self, problem: str, argument: Expression | None = None, hint: str | None = None):
        super().__init__(problem)
        self.problem, self.argument, self.hint = problem, argument, hint

    def at(self, whole: Span) -> SpecError:
        """Return the mismatch as an error of the file: at the place of the argument, or of the whole."""
        span = self.argument.span if self.argument is not None else None
        return SpecError(self.problem, span=span or whole, hint=self.hint)


def integer_range(kind: str) -> tuple[int, int]:
    """Return the least and largest value of an integer kind.

    >>> integer_range("uint8")
    (0, 255)
    """
    bits = int(kind.lstrip("uint"))
    return (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimal_type(precision: int, scale: int, *, nullable: bool = False) -> Type:
    """Return a decimal type, its precision limited to what 128 bits hold (overflow is checked row by row then)."""
    return Type("decimal", nullable, precision=min(max(precision, scale, 1), MAX_PRECISION), scale=scale)


def as_decimal(type_: Type) -> Type:
    """Return the decimal type that holds every value of an integer type; a decimal is itself."""
    return decimal_type(DIGITS[type_.kind], 0, nullable=type_.nullable) if type_.is_integer else type_


def meet(a: Type, b: Type) -> Type | None:
    """Return the type in which values of both are comparable, nullable if either is, or None."""
    nullable = a.nullable or b.nullable
    one, other = a.required(), b.required()
    if one == other or other.kind == "null":
        return replace(one, nullable=nullable)
    if one.kind == "null":
        return replace(other, nullable=nullable)
    if one.is_numeric and other.is_numeric:
        return replace(_meet_numbers(one, other), nullable=nullable)
    kinds = {one.kind, other.kind}
    if kinds == {"date", "datetime"}:
        return replace(one if one.kind == "datetime" else other, nullable=nullable)
    zones = {each.zone for each in (one, other) if each.zone is not None}
    if one.kind == other.kind and one.kind in ("datetime", "duration") and len(zones - {UTC}) <= 1:
        finer = max(one, other, key=lambda each: each.second_digits)
        zone = next(iter(zones - {UTC} or zones), None)
        return replace(finer, zone=zone, nullable=nullable)
    if one.kind == other.kind == "list" and one.inner and other.inner:
        inner = meet(one.inner, other.inner)
        return Type("list", nullable, inner=inner) if inner else None
    if one.kind == other.kind == "struct":
        fields = _meet_fields(one, other)
        return Type("struct", nullable, fields=fields) if fields else None
    return None


def _meet_fields(a: Type, b: Type) -> tuple[tuple[str, Type], ...]:
    """Return the fields in which structs are comparable, none if they aren't: their names must be equal, and no conversion may fail."""
    if [name for name, _ in a.fields] != [name for name, _ in b.fields]:
        return ()
    found = []
    for (name, one), (_, other) in zip(a.fields, b.fields, strict=True):
        common = meet(one, other)
        decimals = common is not None and common.kind == "decimal" and one.required() != other.required()
        if common is None or (decimals and "null" not in (one.kind, other.kind)):
            return ()
        found.append((name, common))
    return tuple(found)


def _meet_numbers(a: Type, b: Type) -> Type:
    if a.is_float or b.is_float:
        return FLOAT64 if "float64" in (a.kind, b.kind) else FLOAT32
    if a.is_integer and b.is_integer and "uint64" not in (a.kind, b.kind):
        return INT64
    if a.is_integer and b.is_integer and not {a.kind, b.kind} & set(SIGNED):
        return Type("uint64")
    one, other = as_decimal(a), as_decimal(b)
    scale = max(one.scale, other.scale)
    return decimal_type(max(one.precision - one.scale, other.precision - other.scale) + scale, scale)


def unify(args: Sequence[Expression], what: str) -> tuple[list[Expression], Type]:
    """Return all arguments in one common type, and that type. Literals take the type of the columns, not the other way round."""
    leading = [arg for arg in args if not isinstance(arg, Literal)] or list(args)
    common = leading[0].type
    for arg in leading[1:]:
        common = _met(common, arg, what)
    for arg in args:
        if isinstance(arg, Literal) and not adapts(arg, common):
            common = _met(common, arg, what)
    nullable = any(arg.type.nullable for arg in args)
    return [convert(arg, common) for arg in args], replace(common, nullable=nullable or common.kind == "null")


def _met(common: Type, arg: Expression, what: str) -> Type:
    """Return the type that has the values of both. Raises Mismatch."""
    found = meet(common, arg.type)
    if found is None:
        problem = f"{what} needs arguments of one type, got {common.required()} and {arg.type.required()}"
        raise Mismatch(problem, arg, "cast one of them")
    return found


def adapts(literal: Literal, type_: Type) -> bool:
    """Return whether a constant can be written as that type without losing anything."""
    value = literal.value
    if value is None:
        return True
    if literal.type.kind == "string" and type_.kind in ("date", "datetime", "time"):
        return True  # refused in `convert` when it doesn't read as one
    if not literal.type.is_numeric or isinstance(value, float):
        return literal.type.required() == type_.required()
    assert isinstance(value, int | Decimal)
    if type_.is_integer:
        low, high = integer_range(type_.kind)
        return value == int(value) and low <= value <= high and literal.type.is_integer
    if type_.kind == "decimal":
        return fits_decimal(Decimal(value), type_) and Decimal(value) == rescaled(Decimal(value), type_)
    return type_.is_float


def rescaled(value: Decimal, type_: Type) -> Decimal:
    """Return the value at the type's scale, half away from zero."""
    with localcontext() as context:
        context.prec = 2 * MAX_PRECISION + 2
        return value.quantize(Decimal(1).scaleb(-type_.scale), rounding=ROUND_HALF_UP)


def fits_decimal(value: Decimal, type_: Type) -> bool:
    """Return whether the rounded value has no more digits than the type allows."""
    try:
        return abs(rescaled(value, type_)) < Decimal(10) ** (type_.precision - type_.scale)
    except InvalidOperation:
        return False


def convert(arg: Expression, target: Type, hint: str | None = None) -> Expression:
    """Return the argument in another type (its own nullability kept): itself, a converted literal, or a cast, which fails with `hint`."""
    if arg.type.required() == target.required():
        return arg
    if isinstance(arg, Literal) and (arg.value is None or adapts(arg, target)):
        found = convert_literal(arg, target)
        return Cast(arg, target, span=arg.span) if has_nanoseconds(arg, target) else found
    if hint is None and arg.type.kind == "uint64" and target.is_integer:
        hint = "uint64 is computed with as int64: cast it to decimal(20, 0) before, which holds it"
    if hint is None and target.kind == "decimal" and target.scale > arg.type.scale:
        hint = f"it becomes a {target.required()} for a value beside it: cast that one to fewer decimal places"
    return Cast(arg, replace(target, nullable=arg.type.nullable), span=arg.span, hint=hint)


def convert_literal(literal: Literal, target: Type) -> Literal:
    """Return a constant as another type, for which `adapts` must be true."""
    value = literal.value
    if value is None:
        return replace(literal, type=replace(target, nullable=True))
    type_ = target.required()
    if isinstance(value, str) and type_.kind != "string":
        return replace(literal, value=temporal_value(value, type_, literal), type=type_)
    if type_.is_float and isinstance(value, int | Decimal):
        value = float(value)
    elif type_.kind == "decimal" and isinstance(value, int | Decimal):
        value = rescaled(Decimal(value), type_)
    return replace(literal, value=value, type=type_)


def has_nanoseconds(literal: Literal, type_: Type) -> bool:
    """Return whether a constant text has digits that the type keeps, and that Python, which has microseconds, would cut."""
    if not isinstance(literal.value, str) or type_.second_digits < SECOND_DIGITS["ns"]:
        return False
    return fraction_of(literal.value)[6:].strip("0") != ""


def temporal_value(text: str, type_: Type, literal: Expression) -> dt.date | dt.time:
    """Return the date, time or timestamp that a constant text names; raises Mismatch, also for digits of a second that the type can't hold."""
    form = {"date": "2013-01-31", "time": "23:59:59", "datetime": "2013-01-31 23:59:59"}[type_.kind]
    name = "timestamp" if type_.kind == "datetime" else type_.kind
    wrong = Mismatch(f"'{text}' is not a {name}", literal, f"write it as '{form}'")
    if not re.fullmatch(FORMS[type_.kind], text.strip()):
        raise wrong
    try:
        if type_.kind == "date":
            return dt.date.fromisoformat(text.strip())
        if type_.kind == "time":
            clock = dt.time.fromisoformat(text.strip())
            if clock.tzinfo:
                raise Mismatch(f"'{text}' has an offset from UTC", literal)
            return clock
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise wrong from None
    if fraction_of(text)[type_.second_digits :].strip("0"):
        finer = f"; cast('{text}' as {replace(type_, unit='ns')}) keeps nine" if type_.unit in {"us", "ms"} else ""
        hint = f"write at most {type_.second_digits}{finer}"
        raise Mismatch(f"'{text}' has more digits of a second than {type_} holds", literal, hint)
    if moment.tzinfo and not type_.zone:
        raise Mismatch(f"'{text}' has an offset from UTC", literal, f"write timestamptz '{text}'")
    try:
        if type_.zone:
            moment = moment.astimezone(ZoneInfo(type_.zone)) if moment.tzinfo else instant(moment, type_.zone)
            moment.astimezone(dt.UTC)
    except (OverflowError, ValueError):
        raise Mismatch(f"'{text}' is outside of the years 1 to 9999 in UTC", literal) from None
    if type_.unit == "ns" and not within(moment, type_):
        raise Mismatch(
            f"'{text}' is out of range for {type_}", literal, f"cast the other value to {replace(type_, unit='us')}"
        )
    return moment


def check_lengths(args: Sequence[Expression]) -> None:
    """Raise Mismatch for an interval of months among the arguments of a call: `+` and `-` have made others of theirs."""
    for arg in args:
        if arg.type.kind == "months":
            raise Mismatch("months and years differ in length", arg, "add them to a date: day + interval '1' month")


def nullable_if_any(type_: Type, args: Sequence[Expression]) -> Type:
    """Return the type, nullable when an argument is."""
    return replace(type_, nullable=any(arg.type.nullable for arg in args))


def as_date(moment: Expression) -> Expression | None:
    """Return the date of a timestamp that is the beginning of a day, by how it is computed: of a date, plus whole days or months; None for others.

    Dates are compared as they are so, in place of timestamps computed for each row.
    """
    if isinstance(moment, Literal) and isinstance(moment.value, dt.datetime):
        at_midnight = moment.value.time() == dt.time() and moment.value.tzinfo is None
        return replace(moment, value=moment.value.date(), type=DATE) if at_midnight else None
    if isinstance(moment, Cast) and moment.argument.type.kind == "date" and moment.type.unit == "us":
        return moment.argument
    if not isinstance(moment, Call) or moment.function not in ("+", "-", "add_months", "date_trunc"):
        return None
    first, second = moment.args
    if moment.function == "date_trunc":
        inner = as_date(second)
        units = ("year", "quarter", "month", "week", "day")
        if inner is None or not isinstance(first, Literal) or str(first.value).lower() not in units:
            return None
        return replace(moment, args=(first, inner), type=nullable_if_any(DATE, [inner]))
    inner = as_date(first)
    if inner is None:
        return None
    if moment.function == "add_months":
        return replace(moment, args=(inner, second), type=nullable_if_any(DATE, moment.args))
    if not isinstance(second, Literal) or not isinstance(second.value, dt.timedelta) or second.value % DAY:
        return None
    days = Literal(second.value.days if moment.function == "+" else -second.value.days, INT64, span=second.span)
    return Call("add_days", (inner, days), nullable_if_any(DATE, [inner]), span=moment.span)


TARGETS = [*(kind for kind in SIMPLE if kind != "null"), *ALIASES, "decimal(18, 2)", "datetime[us]", "duration[us]"]
HINTS = {
    ("date", "int64"): "use year(x), epoch(x) or date_diff(...)",
    ("datetime", "int64"): "use epoch(x) or date_diff(...)",
}
HINTS |= {
    ("string", "list"): "x::json::bigint[] reads JSON, split(x, ',') the parts between commas",
    ("string", "struct"): "x::json::struct(...) reads JSON",
    ("list", "string"): "to_json(x) writes it as JSON",
    ("struct", "string"): "to_json(x) writes it as JSON",
    ("string", "binary"): "encode(x) has the bytes of a text in UTF-8",
    ("binary", "string"): "decode(x) is the text of bytes in UTF-8",
}
HINTS |= {("int64", "date"): "use date '1970-01-01' + n * interval '1' day", ("duration", "int64"): "use seconds(x)"}
FLOAT32_END = 2.0**128 - 2.0**103
"""The distance from zero from which on numbers round to a float32 beyond the largest."""


def is_castable(source: Type, target: Type) -> bool:
    """Return whether a cast is in our table."""
    one, other = source.kind, target.kind
    if one == "null" or source.required() == target.required():
        return True
    if source.is_numeric:
        return target.is_numeric or other == "string" or (other == "bool" and source.is_integer)
    if one == "bool":
        return other == "string" or target.is_integer
    if one == "string":
        return target.is_numeric or other in ("bool", "date", "time", "datetime")
    if one == "date":
        return other in ("string", "datetime")
    if one == "datetime":
        return other in ("string", "date", "time", "datetime")
    if one == "list" and other == "list" and source.inner and target.inner:
        return source.inner.kind == "null" or source.inner.required() == target.inner.required()
    if one == other == "struct":
        pairs = zip(source.fields, target.fields, strict=False)
        same = all(a == b and (x.kind == "null" or x.required() == y.required()) for (a, x), (b, y) in pairs)
        return same and len(source.fields) == len(target.fields)
    return (one == "time" and other == "string") or (one == other == "duration")


def fold(literal: Literal, target: Type) -> Literal | None:
    """Return a constant cast when the tree is made, or None to leave it to the row; raises Mismatch if it fails."""
    value = literal.value
    if value is None:
        return replace(literal, type=target.or_null())
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not target.is_numeric:
        return None
    if target.is_float:
        if target.kind == "float32" and FLOAT32_END <= abs(float(value)) < math.inf:
            raise Mismatch(f"{value} is out of range for {target}")
        return replace(literal, value=float(value), type=target) if target.kind == "float64" else None
    if isinstance(value, float):
        return None
    exact = Decimal(value)
    if target.is_integer:
        low, high = integer_range(target.kind)
        with localcontext() as context:
            context.prec = 80
            whole = int(exact.quantize(Decimal(1), rounding=ROUND_HALF_UP))
        if not low <= whole <= high:
            raise Mismatch(f"{value} is out of range for {target}")
        return replace(literal, value=whole, type=target)
    if not fits_decimal(exact, target):
        raise Mismatch(f"{value} is out of range for {target}")
    return replace(literal, value=rescaled(exact, target), type=target)


def cast(argument: Expression, target: Type, span: Span, *, tried: bool) -> Expression:
    """Return a cast; the cast of a constant is computed. Raises SpecError if the types have no cast, or the constant can't be cast."""
    if not is_castable(argument.type, target):
        problem = f"{argument.type.required()} can't be cast to {target}"
        raise SpecError(problem, span=span, hint=HINTS.get((argument.type.kind, target.kind)))
    if argument.type.required() == target:
        return argument
    if target.kind == "date" and argument.type.kind == "datetime" and (day := as_date(argument)) is not None:
        return day
    if isinstance(argument, Literal) and (argument.value is None or argument.type.kind != "string"):
        try:
            folded = fold(argument, target)
        except Mismatch as mismatch:
            if not tried:
                raise SpecError(mismatch.problem, span=span) from None
            folded = Literal(None, target.or_null())
        if folded is not None:
            return replace(folded, span=span)
    return Cast(argument, target.or_null(argument.type.nullable or tried), try_=tried, span=span)
