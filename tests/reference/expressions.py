"""Expressions and aggregates by their documented meaning, in plain Python, one record at a time.

Shares nothing with the lowering to polars but the typed tree. `evaluate` gives a value or raises `Fails` where the row is an error.
Integers and decimals are exact (int, Fraction), floats are Python's, which are the same IEEE doubles.
"""

from __future__ import annotations

import binascii
import calendar
import datetime as dt
import functools
import hashlib
import itertools
import json
import math
import operator
import re
import struct
import unicodedata
from contextlib import suppress
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ddcli.expressions.tree import Call, Case, Cast, Column, Expression, Lambda, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.types import Type

RANGES = {
    sign + str(bits): (0, 2**bits - 1) if sign == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in ("int", "uint")
    for bits in (8, 16, 32, 64, 128)
}
"""The least and the largest value of each type of integers."""
LOW, HIGH = RANGES["int64"]
MICROSECOND = dt.timedelta(microseconds=1)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without a zone


class Fails(Exception):
    """The row is an error."""


def evaluate(expression: Expression, row: Mapping[str, Any]) -> Any:
    """Return the expression's value for one record; raises Fails."""
    if isinstance(expression, Column):
        return row[expression.name]
    if isinstance(expression, Literal):
        return expression.value
    if isinstance(expression, Cast):
        value = evaluate(expression.argument, row)
        return attempt(expression.try_, lambda: cast(value, expression.argument.type, expression.type))
    if isinstance(expression, Case):
        for condition, value in expression.branches:
            if evaluate(condition, row) is True:
                return evaluate(value, row)
        return evaluate(expression.default, row)
    assert isinstance(expression, Call)
    return call_function(expression, row)


def attempt(tried: bool, compute: Callable[[], Any]) -> Any:
    """Return a value, or null in its place when it fails and that was asked for."""
    try:
        return compute()
    except Fails:
        if tried:
            return None
        raise


def call_function(call: Call, row: Mapping[str, Any]) -> Any:
    """Evaluate a call: the ones that don't evaluate all their arguments first."""
    name = call.function
    if name in ("and", "or"):
        stop = name == "or"
        left = evaluate(call.args[0], row)
        if left is stop:
            return stop
        right = evaluate(call.args[1], row)
        return right if left is not None or right is stop else None
    if name == "coalesce":
        values = (evaluate(arg, row) for arg in call.args)
        return next((value for value in values if value is not None), None)
    if name in ("list_transform", "list_filter", "list_reduce"):
        return of_lambda(call, row)
    args = [evaluate(arg, row) for arg in call.args]
    if name in NULL_TAKING:
        return NULL_TAKING[name](call, args)
    if any(arg is None for arg in args):
        return None
    return attempt(name.startswith("try_"), lambda: STRICT[name](call, args))


def of_lambda(call: Call, row: Mapping[str, Any]) -> Any:
    """Return the values of a lambda, the elements for which it is true, or what it makes of all of them."""
    values, function = evaluate(call.args[0], row), call.args[1]
    assert isinstance(function, Lambda)
    element, *others = (each.name for each in function.parameters)
    if values is None:
        return None
    if call.function == "list_reduce":
        state, element, *others = (each.name for each in function.parameters)
        given = {name: evaluate(arg, row) for name, arg in zip(others, call.args[3:], strict=True)}
        found = evaluate(call.args[2], row)
        for each in values:
            found = evaluate(function.body, {state: found, element: each, **given})
        return found
    around = {name: evaluate(arg, row) for name, arg in zip(others, call.args[2:], strict=True)}
    made = [evaluate(function.body, {element: each, **around}) for each in values]
    return made if call.function == "list_transform" else [x for x, y in zip(values, made, strict=True) if y]


def compare(a: Any, b: Any) -> int:
    """Order two values of one type: NaN equals itself and is above every number."""
    if isinstance(a, float) and isinstance(b, float) and (math.isnan(a) or math.isnan(b)):
        return math.isnan(a) - math.isnan(b)
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    if isinstance(a, dict):
        return compare([*a.values()], [*b.values()])
    if isinstance(a, list):  # by the first parts that differ, null being like null and the last
        parts = ((x is None) - (y is None) or (0 if x is None else compare(x, y)) for x, y in zip(a, b, strict=False))
        return next(filter(None, parts), len(a) - len(b))
    return (a > b) - (a < b)


def equal(a: Any, b: Any) -> bool | None:
    """SQL's `=`."""
    return None if a is None or b is None else compare(a, b) == 0


def same(a: Any, b: Any) -> bool:
    """`is not distinct from`."""
    return a is b is None or bool(equal(a, b))


def is_in(_: Call, args: list[Any]) -> bool | None:
    found = [equal(args[0], item) for item in args[1:]]
    return True if True in found else None if None in found else False


def extremum(call: Call, args: list[Any]) -> Any:
    present = [arg for arg in args if arg is not None]
    return (max if call.function == "greatest" else min)(present, key=cmp_to_key(compare), default=None)


def nullif(_: Call, args: list[Any]) -> Any:
    return None if equal(args[0], args[1]) else args[0]


def split(_: Call, args: list[Any]) -> list[str] | None:
    text, separator = args
    if text is None or separator is None:
        return None if text is None else [text]
    return text.split(separator) if separator else list(text)


def array_contains(_: Call, args: list[Any]) -> bool | None:
    if args[0] is None or (args[1] is None and args[0]):
        return None
    return any(equal(item, args[1]) for item in args[0] if item is not None)


def failing(_: Call, args: list[Any]) -> Any:
    raise Fails(args[0])


def zipped(call: Call, args: list[Any]) -> list[dict[str, Any]]:
    *lists, cut = args
    size = (min if cut else max)(len(each or ()) for each in lists)
    names = [name for name, _ in call.type.inner.fields]  # type: ignore[union-attr]
    return [
        {
            name: each[at] if each is not None and at < len(each) else None
            for name, each in zip(names, lists, strict=True)
        }
        for at in range(size)
    ]


NULL_TAKING: dict[str, Callable[[Call, list[Any]], Any]] = {
    "list_zip": zipped,
    "error": failing,
    "is null": lambda _, args: args[0] is None,
    "is distinct from": lambda _, args: not same(*args),
    "is not distinct from": lambda _, args: same(*args),
    "in": is_in,
    "greatest": extremum,
    "least": extremum,
    "nullif": nullif,
    "array": lambda _, args: list(args),
    "list_position": lambda _, args: next(
        (at for at, each in enumerate(args[0] or (), start=1) if same(each, args[1])), None
    ),
    "list_intersect": lambda _, args: (
        None if args[0] is None else [x for x in dict.fromkeys(args[0]) if x is not None and x in (args[1] or ())]
    ),
    "split": split,
    "named_struct": lambda call, args: {name: value for (name, _), value in zip(call.type.fields, args, strict=True)},
    "array_contains": array_contains,
    "concat_ws": lambda _, args: args[0].join(each for each in args[1:] if each is not None),
}


# ------------------------------------------------------------------------------------------------ numbers


def half_away(value: Fraction) -> int:
    """Round to a whole number, half away from zero."""
    size = abs(value)
    whole = int(size + Fraction(1, 2))
    return -whole if value < 0 else whole


def to_decimal(value: Fraction, type_: Type) -> Decimal:
    """Round to the type's scale; too many digits fail."""
    unscaled = half_away(value * 10**type_.scale)
    if abs(unscaled) >= 10**type_.precision:
        raise Fails
    with localcontext() as context:
        context.prec = 80
        return Decimal(unscaled).scaleb(-type_.scale)


def int64(value: int) -> int:
    """Refuse what int64 can't hold."""
    if not LOW <= value <= HIGH:
        raise Fails
    return value


def truncated(a: Any, b: Any) -> int:
    """Divide, cut toward zero."""
    if b == 0:
        raise Fails
    size = abs(a) // abs(b)
    return int(-size if (a < 0) != (b < 0) else size)


def arithmetic(call: Call, args: list[Any]) -> Any:
    sign = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/"}.get(
        call.function, call.function
    )
    a, b = args
    if call.args[0].type.kind in ("date", "datetime", "duration"):
        return temporal(call, sign, a, b)
    if call.type.kind == "time":
        moved = dt.datetime.combine(dt.date(1970, 1, 1), a)
        by = b % dt.timedelta(days=1)
        return (moved + by if sign == "+" else moved - by).time()
    if call.type.is_float:
        if sign == "/" and b == 0:
            raise Fails
        if sign == "%":
            if b == 0:
                raise Fails
            return math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)
        found = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[sign]()
        return nearest_single(found) if call.type.kind == "float32" else found
    if call.type.is_integer:
        if sign == "//":
            return int64(truncated(a, b))
        if sign == "%":
            return a - truncated(a, b) * b
        return int64(a + b if sign == "+" else a - b if sign == "-" else a * b)
    return decimal_arithmetic(call, sign, Fraction(a), Fraction(b))


def decimal_arithmetic(call: Call, sign: str, a: Fraction, b: Fraction) -> Decimal:
    out, other = call.type, call.args[1].type
    limit = 10**38
    if sign in "+-":
        # Documented: each side must fit 38 digits at the scale of the result.
        if abs(a) * 10**out.scale >= limit or abs(b) * 10**out.scale >= limit:
            raise Fails
        return to_decimal(a + b if sign == "+" else a - b, out)
    if sign == "*":
        return to_decimal(a * b, out)
    if b == 0:
        raise Fails
    if sign == "/":
        if abs(a) * 10 ** (out.scale + other.scale) >= limit:
            raise Fails
        return to_decimal(a / b, out)
    quotient = abs(a) // abs(b)
    return to_decimal(a - b * (-quotient if (a < 0) != (b < 0) else quotient), out)


def negate(call: Call, args: list[Any]) -> Any:
    if call.type.kind == "decimal":
        return to_decimal(-Fraction(args[0]), call.type)
    return int64(-args[0]) if call.type.is_integer else interval(-args[0]) if call.type.kind == "duration" else -args[0]


def absolute(call: Call, args: list[Any]) -> Any:
    if call.type.kind == "decimal":
        return to_decimal(abs(Fraction(args[0])), call.type)
    return int64(abs(args[0])) if call.type.is_integer else abs(args[0])


def sign_of(_: Call, args: list[Any]) -> int:
    if isinstance(args[0], float) and math.isnan(args[0]):
        return 0
    if isinstance(args[0], dt.timedelta):
        return compare(args[0], dt.timedelta())
    return compare(args[0], type(args[0])(0))


def rounding(call: Call, args: list[Any]) -> Any:
    value, places = args[0], args[1] if len(args) > 1 else 0
    cut = {"round": half_away, "floor": math.floor, "ceil": math.ceil, "trunc": int}[call.function]
    if isinstance(value, float):
        return round_float(cut, value, places)
    found = Fraction(cut(Fraction(value) * Fraction(10) ** places)) / Fraction(10) ** places
    return int64(int(found)) if call.type.is_integer else to_decimal(found, call.type)


def round_float(cut: Callable[[Fraction], int], value: float, places: int) -> float:
    power = float(10 ** abs(places))
    if cut is half_away and places > 0 and math.isfinite(value):
        return math.copysign(float(Fraction(cut(Fraction(value) * 10**places), 10**places)), value)
    moved = value * power if places > 0 else value / power if places < 0 else value
    if not math.isfinite(moved):
        return value
    rounded = float(cut(Fraction(moved)))
    return rounded / power if places > 0 else rounded * power if places < 0 else rounded


def sqrt(_: Call, args: list[Any]) -> float:
    if args[0] < 0:
        raise Fails
    return math.sqrt(args[0])


def logarithm(base: float, value: float) -> float:
    if value <= 0 or base <= 0 or base == 1:
        raise Fails
    if math.isnan(value) or math.isnan(base) or (math.isinf(value) and math.isinf(base)):
        return math.nan
    return math.log(value) / math.log(base) if math.isfinite(value) else math.copysign(math.inf, math.log(base))


def exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def power(_: Call, args: list[Any]) -> float:
    x, y = args
    if (x == 0 and y < 0) or (x < 0 and math.isfinite(x) and math.isfinite(y) and y != math.floor(y)):
        raise Fails
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf


# ------------------------------------------------------------------------------------------------ text


def substring(_: Call, args: list[Any]) -> str:
    text, start, *rest = args
    begin = len(text) + start if start < 0 else start - 1
    end = begin + rest[0] if rest else max(begin, len(text))
    return text[max(min(begin, end), 0) : max(begin, end, 0)]


def sliced(_: Call, args: list[Any]) -> Any:
    values, first, *last = args[:3]
    if args[3:] and args[3] < 0:
        return sliced(_, [values, *last, first])[::-1][:: -args[3]]
    begin = max(len(values) + first, 0) if first < 0 else max(first - 1, 0)
    end = len(values) if not last else last[0] if last[0] >= 0 else len(values) + last[0] + 1
    return values[begin : max(end, begin) : args[3] if args[3:] else 1]


def element(_: Call, args: list[Any]) -> Any:
    values, n = args
    return values[n - 1 if n > 0 else n] if n and -len(values) <= n <= len(values) else None


def like(call: Call, args: list[Any]) -> bool:
    text, pattern, *rest = args
    escape, found, position = (rest[0] if rest else ""), "", 0
    while position < len(pattern):
        character = pattern[position]
        if escape and character == escape:
            position += 1
            found += re.escape(pattern[position])
        else:
            found += {"%": ".*", "_": "."}.get(character, re.escape(character))
        position += 1
    flags = re.DOTALL | (re.IGNORECASE if call.function == "ilike" else 0)
    return re.fullmatch(found, text, flags) is not None


def pad(call: Call, args: list[Any]) -> str:
    text, n, fill = args[0], max(args[1], 0), args[2] if len(args) > 2 else " "
    if n > 1 << 20:
        raise Fails
    filling = fill * (n - len(text))
    return (filling + text if call.function == "lpad" else text + filling)[:n]


def trim(call: Call, args: list[Any]) -> str:
    characters = args[1] if len(args) > 1 else " "
    if not characters:
        return args[0]
    return {"trim": args[0].strip, "ltrim": args[0].lstrip, "rtrim": args[0].rstrip}[call.function](characters)


def split_part(_: Call, args: list[Any]) -> str:
    text, separator, position = args
    parts = text.split(separator) if separator else list(text)
    if position == 0 or abs(position) > len(parts):
        return ""
    return parts[position - 1 if position > 0 else position]


def left(_: Call, args: list[Any]) -> str:
    return args[0][: args[1]]


def right(_: Call, args: list[Any]) -> str:
    text, n = args
    return text[max(len(text) - n, 0) :] if n >= 0 else text[-n:]


def regular(pattern: str) -> str:
    """Return a regular expression whose digits, words and spaces are of ASCII, as in RE2."""
    sets = {"d": "[0-9]", "w": "[0-9A-Za-z_]", "s": r"[\t\n\f\r ]"}
    return re.sub(
        r"\\([dws])",
        lambda found: sets[found[1]],
        re.sub(r"\\([DWS])", lambda m: "[^" + sets[m[1].lower()][1:], pattern),
    )


def flags_of(text: str) -> int:
    return (re.IGNORECASE if "i" in text else 0) | (re.DOTALL if "s" in text else 0)


def regexp_replace(_: Call, args: list[Any]) -> str:
    flags = args[3] if len(args) > 3 else ""
    return re.sub(regular(args[1]), args[2], args[0], count=0 if "g" in flags else 1, flags=flags_of(flags))


def regexp_extract(_: Call, args: list[Any]) -> str:
    text, pattern, group, flags = [*args, *(0, "")[len(args) - 2 :]]
    match = re.search(regular(pattern), text, flags_of(flags))
    return (match[group] if match else None) or ""


def regexp_substr(_: Call, args: list[Any]) -> str | None:
    match = re.search(args[1], args[0])
    return match[0] if match else None


def by_character(text: str, change: Callable[[str], str]) -> str:
    """Change the case of each character that has one character in the other case."""
    return "".join(found if len(found := change(each)) == 1 else each for each in text)


def upper(_: Call, args: list[Any]) -> str:
    text = args[0].replace("ß", "ẞ")
    return by_character(text, lambda each: each.upper() if len(each.upper()) == 1 else each.title())


# ------------------------------------------------------------------------------------------------ time


def microseconds(value: Any) -> int:
    """Return the physical integer of a moment or interval."""
    if isinstance(value, dt.timedelta):
        return value // MICROSECOND
    moment = value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001
    return (moment - EPOCH) // MICROSECOND


def interval(value: dt.timedelta) -> dt.timedelta:
    int64(value // MICROSECOND)
    return value


def temporal(call: Call, sign: str, a: Any, b: Any) -> Any:
    try:
        if sign in "*/":
            return scaled(call, sign, a // MICROSECOND, b)
        if isinstance(b, dt.time):
            return dt.datetime.combine(a.date(), b)
        found = a + b if sign == "+" else a - b
    except OverflowError:
        raise Fails from None
    return interval(found) if isinstance(found, dt.timedelta) else found


def scaled(call: Call, sign: str, size: int, number: Any) -> dt.timedelta:
    """Multiply or divide an interval, half to even; by other numbers than integers as floats."""
    if sign == "/" and not number:
        raise Fails
    exact = call.args[1].type.is_integer
    by, whole = (Fraction(number), Fraction(size)) if exact else (float(number), float(size))
    found = whole * by if sign == "*" else whole / by
    if not math.isfinite(found):
        raise Fails
    return interval(round(found) * MICROSECOND)


def add_months(_: Call, args: list[Any]) -> Any:
    moment, months = args
    total = moment.year * 12 + moment.month - 1 + months
    year, month = total // 12, total % 12 + 1
    if not 1 <= year <= 9999:
        raise Fails
    for day in (moment.day, 30, 29, 28):
        try:
            if day <= moment.day:
                return moment.replace(year=year, month=month, day=day)
        except ValueError:
            continue
    raise AssertionError


def date_trunc(_: Call, args: list[Any]) -> Any:
    unit, moment = args[0].lower(), args[1]
    if unit == "week":
        moment -= dt.timedelta(days=moment.weekday())
        unit = "day"
    if unit == "quarter":
        moment = moment.replace(month=(moment.month - 1) // 3 * 3 + 1, day=1)
        unit = "month"
    order = ["microsecond", "second", "minute", "hour", "day", "month", "year"]
    first = {"microsecond": 0, "second": 0, "minute": 0, "hour": 0, "day": 1, "month": 1}
    finer = [part for part in order[: order.index(unit)] if hasattr(moment, part)]
    return moment.replace(**{part: first[part] for part in finer})


SIZES = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
SIZES |= {"day": 86400 * 10**6, "week": 7 * 86400 * 10**6}
MONTHS = {"month": 1, "quarter": 3, "year": 12}


def date_diff(_: Call, args: list[Any]) -> int:
    """Count the units that begin after one moment, up to the other; a week is seven days."""
    unit, (a, b) = args[0].lower(), map(microseconds, args[1:])
    if unit in MONTHS:
        first, last = ((EPOCH + dt.timedelta(microseconds=each)) for each in (a, b))
        return (last.year * 12 + last.month - 1) // MONTHS[unit] - (first.year * 12 + first.month - 1) // MONTHS[unit]
    if unit == "week":
        return truncated(b // SIZES["day"] - a // SIZES["day"], 7)
    return b // SIZES[unit] - a // SIZES[unit]


def date_sub(_: Call, args: list[Any]) -> int:
    """Count the whole units between two moments."""
    unit, (a, b) = args[0].lower(), map(microseconds, args[1:])
    if unit in MONTHS:
        first, last = ((EPOCH + dt.timedelta(microseconds=each)) for each in sorted((a, b)))
        whole = months_between(first, last) // MONTHS[unit]
        return whole if a <= b else -whole
    return truncated(b - a, SIZES[unit])


def make_date(_: Call, args: list[Any]) -> dt.date:
    try:
        return dt.date(*args)
    except (ValueError, OverflowError):
        raise Fails from None


def epoch(_: Call, args: list[Any]) -> float:
    return microseconds(args[0]) / 1e6


def _part(read: Callable[[Any], int]) -> Callable[[Call, list[Any]], int]:
    return lambda _, args: read(args[0])


def in_order(values: list[Any]) -> list[Any]:
    return sorted((each for each in values if each is not None), key=cmp_to_key(compare))


def list_sort(_: Call, args: list[Any]) -> list[Any]:
    values, nulls = in_order(args[0]), [None] * args[0].count(None)
    values = values[::-1] if "desc" in args else values
    return nulls + values if "nulls first" in args else values + nulls


def places(listed: list[Any]) -> range:
    if None in listed:
        raise Fails
    return range(len(listed))


def series(call: Call, args: list[Any]) -> list[int]:
    """Count from the first number by the step, as long as the last one is not passed."""
    first, last, step = args
    found, most = [], 1 << 20
    while step and (first <= last if step > 0 else first >= last) and not (call.function == "range" and first == last):
        found.append(first)
        first += step
        if len(found) > most:
            raise Fails
    return found


@functools.cache
def distance(one: str, other: str) -> int:
    """Return the least number of edits, by the definition: of the texts without their first characters."""
    if not one or not other:
        return len(one or other)
    if one[0] == other[0]:
        return distance(one[1:], other[1:])
    return 1 + min(distance(one[1:], other), distance(one, other[1:]), distance(one[1:], other[1:]))


def text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fails from None


def from_base64(_: Call, args: list[Any]) -> bytes:
    if len(args[0]) % 4 or not re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", args[0], re.ASCII):
        raise Fails
    return binascii.a2b_base64(args[0])


def structure(found: Parts) -> Any:
    """Return the kinds of a value's parts, by what all values at a place are."""
    kind, *rest = found
    if kind == "object":
        return {name: joint([each for other, each in rest if other == name]) for name, _ in rest}
    return [joint(rest)] if kind == "list" else json_kind(found)


def joint(values: list[Parts]) -> Any:
    """Return the structure of all values at one place."""
    some = [each for each in values if each != ["value", None]]
    kinds = {each[0] if each[0] in ("object", "list") else json_kind(each) for each in some}
    if kinds == {"object"}:
        return structure(["object", *(member for each in some for member in each[1:])]) or "JSON"
    if kinds == {"list"}:
        return [joint([inner for each in some for inner in each[1:]])]
    if not kinds:
        return "NULL"
    if kinds <= {"UBIGINT", "BIGINT", "DOUBLE"} and len(kinds) > 1:
        return "DOUBLE" if "DOUBLE" in kinds else "HUGEINT"
    return kinds.pop() if len(kinds) == 1 else "JSON"


def arc(call: Call, args: list[Any]) -> float:
    if abs(args[0]) > 1:
        raise Fails
    return math.asin(args[0]) if call.function == "asin" else math.acos(args[0])


def repeat(_: Call, args: list[Any]) -> str:
    if len(args[0].encode()) * args[1] > 1 << 20:
        raise Fails
    return args[0] * args[1]


def strftime(_: Call, args: list[Any]) -> str:
    x = args[0] if isinstance(args[0], dt.datetime) else dt.datetime(args[0].year, args[0].month, args[0].day)  # noqa: DTZ001
    return re.sub("%(.)", lambda part: f"{x.year:04}" if part[1] == "Y" else x.strftime(part[0]), args[1])


def strptime(call: Call, args: list[Any]) -> Any:
    """Python's own, with digits and years as the formats of the tests have them: it also takes spaces and other digits."""
    if args[0].isascii() and args[0] == args[0].strip() and "  " not in args[0]:
        with suppress(ValueError):
            form = args[1].replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S").replace("%R", "%H:%M")
            return dt.datetime.strptime(args[0], form)  # noqa: DTZ007
    if call.function == "strptime":
        raise Fails
    return None


def bits(count: int, value: int) -> int:
    if count < 0 or (count > 63 and value):
        raise Fails
    return min(count, 64)


def character(_: Call, args: list[Any]) -> str:
    try:
        return chr(args[0]).encode().decode()
    except (ValueError, OverflowError):
        raise Fails from None


def read_json(text: str) -> tuple[bool, Any]:
    """Return whether a text is JSON, and what it holds: numbers marked, as they are written; words like NaN are none."""

    def marked(digits: str) -> tuple[str, str]:
        return "\0", digits

    try:
        return True, json.loads(
            text,
            parse_int=marked,
            parse_float=marked,
            parse_constant=int,
            object_pairs_hook=lambda pairs: dict(pairs) | dict(pairs[::-1]),
        )
    except ValueError:
        return False, None


def list_sum(call: Call, args: list[Any]) -> Any:
    """Add up the elements: exactly, but floats from the first to the last."""
    values = [each for each in args[0] if each is not None]
    if not values:
        return None
    is_float = isinstance(values[0], float)
    whole = functools.reduce(operator.add, values) if is_float else sum(map(Fraction, values))
    if call.function == "list_avg":
        return whole / len(values) if is_float else float(whole / len(values))
    return whole if is_float else int64(int(whole)) if call.type.is_integer else to_decimal(whole, call.type)


def json_part(call: Call, args: list[Any]) -> Any:
    """Go along a path of names without signs, and positions."""
    is_json, found = read_json(args[0])
    if not is_json and call.function != "get_json_object":
        raise Fails
    steps = re.findall(r"\w+", args[1]) if args[1].startswith("$") else [args[1]]
    each = args[1].startswith("$") and args[1].endswith("[*]")
    for step in steps if is_json else ():
        inside = isinstance(found, dict) and step in found
        reached = isinstance(found, list) and step.isdigit() and int(step) < len(found)
        if not inside and not reached:
            return [] if each else None
        found = found[step] if inside else found[int(step)]
    if each:
        return [json_shown(call, one) for one in found] if isinstance(found, list) else []
    if call.function == "json_array_length":
        return len(found) if isinstance(found, list) else 0
    return json_shown(call, found)


Parts = list[Any]
"""A value of JSON with a mark of its kind before it: names and values of an object in turn, a number as it is written."""


def parts(text: str) -> Parts:
    try:
        found = json.loads(
            text,
            parse_int=lambda digits: ["number", digits],
            parse_float=lambda digits: ["number", digits],
            parse_constant=int,
            object_pairs_hook=lambda pairs: ["object", *pairs],
        )
    except ValueError:
        raise Fails from None
    return marked(found)


def marked(found: Any) -> Parts:
    if isinstance(found, list) and found[:1] == ["number"]:
        return found
    if isinstance(found, list) and found[:1] == ["object"]:
        return ["object", *((name, marked(each)) for name, each in found[1:])]
    return ["list", *map(marked, found)] if isinstance(found, list) else ["value", found]


def unmarked(found: Parts) -> str:
    kind, *rest = found
    if kind == "object":
        return "{" + ",".join(f"{dumped(name)}:{unmarked(each)}" for name, each in rest) + "}"
    return (
        rest[0] if kind == "number" else "[" + ",".join(map(unmarked, rest)) + "]" if kind == "list" else dumped(*rest)
    )


def at_path(found: Parts, path: str) -> Parts | None:
    for step in re.findall(r"\w+", path) if path.startswith("$") else [path]:
        inside = [each for name, each in found[1:] if name == step] if found[0] == "object" else []
        listed = found[1:] if found[0] == "list" and step.isdigit() else []
        inside += [*listed[int(step) : int(step) + 1]] if listed else []
        if not inside:
            return None
        found = inside[0]
    return found


def json_at(call: Call, args: list[Any]) -> Any:
    found = at_path(parts(args[0]), args[1])
    if call.function == "json_exists" or found is None:
        return found is not None if call.function == "json_exists" else None
    if call.function == "json_keys":
        return [name for name, _ in found[1:]] if found[0] == "object" else []
    return json_kind(found)


def json_rows(call: Call, args: list[Any]) -> list[dict[str, Any]]:
    """Return the rows below a path, or of the value there; all values and names of the text are numbered in its order."""
    numbers = itertools.count()
    every: list[tuple[tuple[str, ...], Parts, int, str]] = []

    def walk(found: Parts, keys: tuple[str, ...], full: str) -> None:
        every.append((keys, found, next(numbers), full))
        for at, each in enumerate(found[1:] if found[0] in ("object", "list") else ()):
            if found[0] == "object":
                next(numbers)
                simple = re.fullmatch("[a-zA-Z][a-zA-Z0-9_]*", each[0])
                quoted = each[0].replace("\\", "\\\\").replace('"', '\\"')
                walk(each[1], (*keys, each[0]), f"{full}.{each[0]}" if simple else f'{full}."{quoted}"')
            else:
                walk(each, (*keys, str(at)), f"{full}[{at}]")

    walk(parts(args[0]), (), "$")
    at = tuple(re.findall(r"\w+", args[1])) if args[1].startswith("$") else (args[1],)
    of_path = {keys: (number, full) for keys, _, number, full in reversed(every)}
    inner = next((found[0] in ("object", "list") for keys, found, *_ in every if keys == at), False)
    rows = []
    for keys, found, number, full in every:
        depth = len(keys) - len(at)
        if keys[: len(at)] != at or (call.function == "json_each" and depth != inner):
            continue
        kind, above = json_kind(found), of_path.get(keys[:-1])
        row = {"key": keys[-1] if depth else None, "value": unmarked(found), "type": kind}
        row["atom"] = None if kind in {"OBJECT", "ARRAY", "NULL"} else row["value"]
        row |= {"id": number, "parent": above[0] if depth and above and call.function == "json_tree" else None}
        rows.append({**row, "fullkey": full, "path": above[1] if depth and above else full})
    return rows


def json_kind(found: Parts) -> str:
    kind, value = found[0], found[-1]
    if kind == "number":
        whole = value.lstrip("-").isdigit() and -(2**63) <= int(value) < 2**64
        return "DOUBLE" if not whole else "BIGINT" if value[0] == "-" else "UBIGINT"
    of_value = {bool: "BOOLEAN", str: "VARCHAR", type(None): "NULL"}
    return {"object": "OBJECT", "list": "ARRAY"}.get(kind) or of_value[type(value)]


def json_contains(_: Call, args: list[Any]) -> bool:
    def has(whole: Parts, part: Parts) -> bool:
        if whole[0] != part[0]:
            return False
        if part[0] == "object":
            return all((inner := at_path(whole, name)) is not None and has(inner, each) for name, each in part[1:])
        if part[0] == "list":
            return all(any(has(one, each) for one in whole[1:]) for each in part[1:])
        if part[0] == "number":
            floats = {json_kind(each) == "DOUBLE" for each in (whole, part)}
            return len(floats) == 1 and (float if floats.pop() else int)(whole[1]) == (
                float if json_kind(part) == "DOUBLE" else int
            )(part[1])
        return type(whole[1]) is type(part[1]) and whole[1] == part[1]

    def found(whole: Parts, part: Parts) -> bool:
        inner = whole[1:] if whole[0] == "list" else [each for _, each in whole[1:]] if whole[0] == "object" else []
        return has(whole, part) or any(found(each, part) for each in inner)

    whole, part = map(parts, args)
    return found(whole, part)


def json_merge_patch(_: Call, args: list[Any]) -> str:
    def merged(value: Parts | None, patch: Parts) -> Parts:
        if patch[0] != "object":
            return patch
        own = value[1:] if value and value[0] == "object" else []
        names = [name for name, _ in patch[1:]]
        changed = [
            (name, merged(next((x for other, x in own if other == name), None), each))
            for name, each in patch[1:]
            if each != ["value", None]
        ]
        return ["object", *(each for each in own if each[0] not in names), *changed]

    value, patch = map(parts, args)
    return unmarked(merged(value, patch) if value[0] == "object" else patch)


def as_json(value: Any, kind: Type) -> str:
    if value is None:
        return "null"
    if kind.kind == "list":
        return "[" + ",".join(as_json(each, kind.inner) for each in value) + "]"
    if kind.kind == "struct":
        return "{" + ",".join(f"{dumped(name)}:{as_json(value[name], inner)}" for name, inner in kind.fields) + "}"
    if kind.is_float and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kind.is_float:
        exact = (
            f"{Decimal(repr(value or 0.0)):f}".rstrip("0").rstrip(".")
            if "." in f"{Decimal(repr(value)):f}"
            else f"{Decimal(repr(value)):f}"
        )
        size = abs(value)
        if size == 0 or 1e-6 <= size < 1e21:
            return exact if "." in exact else exact + ".0"
        return re.sub(r"(\.0)?e([+-]?)0*(\d+)", lambda m: f"e{m[2].strip('+')}{m[3]}", f"{value!r}")
    if kind.kind == "decimal":
        return re.sub(r"(\.\d+?)0*$", r"\1", f"{value:f}")
    text = to_text(value)
    return text if kind.is_numeric or kind.kind == "bool" else dumped(text)


def to_json(call: Call, args: list[Any]) -> str:
    made = {
        "json_extract",
        "to_json",
        "json_object",
        "json_array",
        "json",
        "json_merge_patch",
        "parse_json",
        "try_parse_json",
    }
    shown = [
        unmarked(parts(value))
        if value is not None and isinstance(arg, Call) and arg.function in made
        else as_json(value, arg.type)
        for arg, value in zip(call.args, args, strict=True)
    ]
    if call.function == "json_object":
        return "{" + ",".join(f"{name}:{value}" for name, value in zip(shown[::2], shown[1::2], strict=True)) + "}"
    return "[" + ",".join(shown) + "]" if call.function == "json_array" else shown[0]


NULL_TAKING |= {"json_object": to_json, "json_array": to_json}


def json_shown(call: Call, found: Any) -> str | None:
    """Return a value as text, or as JSON."""
    if found is None and call.function != "json_extract":
        return None
    if isinstance(found, str) and call.function != "json_extract":
        return found
    return re.sub(r'\["\\u0000","([^"]*)"\]', r"\1", dumped(found))


def from_json(call: Call, args: list[Any]) -> Any:
    is_json, found = read_json(args[0])
    if not is_json:
        raise Fails
    return shaped(found, call.type)


def shaped(found: Any, kind: Type) -> Any:
    """Return a value of JSON as one of a type; null where it is of another."""
    if found is None:
        return None
    number = found[1] if isinstance(found, tuple) else None
    if kind.kind == "list":
        return [shaped(each, kind.inner) for each in found] if isinstance(found, list) and number is None else None
    if kind.kind == "struct":
        members = found if isinstance(found, dict) else {}
        return {name: shaped(members.get(name), inner) for name, inner in kind.fields}
    text = number if number is not None else found
    if kind.kind == "string":
        return found if isinstance(found, str) else re.sub(r'\["\\u0000","([^"]*)"\]', r"\1", dumped(found))
    if isinstance(found, bool):
        text = str(int(found)) if kind.is_numeric else str(found).lower()
    if not isinstance(text, str) or (number is not None and kind.kind in ("date", "time", "datetime")):
        return None
    try:
        if number is not None and kind.is_integer:
            return whole_number(int(text) if text.lstrip("-").isdigit() else round(float(text)), kind)
        if number is not None and kind.kind == "decimal":
            return to_decimal(Fraction(text), kind)
        if number is not None and kind.kind == "bool":
            return float(text) != 0
        return from_text(text.strip(" \t\n\v\f\r"), kind)
    except (Fails, OverflowError):
        return None


def dumped(found: Any) -> str:
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def shown_at(local: dt.datetime, zone: str) -> dt.datetime:
    """Return the instant at which clocks of a zone show a time: of two the later; where it is skipped, that of the clock that was not changed."""
    own = ZoneInfo(zone)
    wanted = [
        instant
        for offset in {(local + dt.timedelta(days=n)).replace(tzinfo=own).utcoffset() for n in (-1, 0, 1)}
        if (instant := (local - offset).replace(tzinfo=dt.UTC)).astimezone(own).replace(tzinfo=None) == local
    ]
    before = (local - dt.timedelta(days=1)).replace(tzinfo=own).utcoffset()
    return max(wanted, default=(local - before).replace(tzinfo=dt.UTC))


def timezone(_: Call, args: list[Any]) -> Any:
    zone, moment = args
    if moment.tzinfo:
        return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return shown_at(moment, zone)


def add_days(_: Call, args: list[Any]) -> Any:
    try:
        return args[0] + dt.timedelta(days=args[1])
    except OverflowError:
        raise Fails from None


def time_bucket(_: Call, args: list[Any]) -> Any:
    begin = dt.datetime(2000, 1, 3)  # noqa: DTZ001
    try:
        if not isinstance(args[1], dt.datetime):
            moment = dt.datetime(args[1].year, args[1].month, args[1].day)  # noqa: DTZ001
            return (begin + (moment - begin) // args[0] * args[0]).date()
        return begin + (args[1] - begin) // args[0] * args[0]
    except OverflowError:
        raise Fails from None


def months_between(a: dt.datetime, b: dt.datetime) -> int:
    """Return the most months that can be added to one moment without passing the other."""
    sign = 1 if a <= b else -1
    count = 0
    months = (b.year - a.year) * 12 + b.month - a.month

    def after(n: int) -> dt.datetime | None:
        try:
            return add_months(None, [a, n])  # type: ignore[arg-type]
        except Fails:
            return None

    for n in (months, months - sign):
        found = after(n)
        if found is not None and n * sign >= 0 and (found - b) * sign <= dt.timedelta():
            count = n
            break
    return count


def in_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def unhexed(_: Call, args: list[Any]) -> bytes:
    try:
        return bytes.fromhex(("0" if len(args[0]) % 2 else "") + args[0].replace(" ", "x"))
    except ValueError:
        raise Fails from None


STRICT: dict[str, Callable[[Call, list[Any]], Any]] = {
    "=": lambda _, args: compare(*args) == 0,
    "<>": lambda _, args: compare(*args) != 0,
    "<": lambda _, args: compare(*args) < 0,
    "<=": lambda _, args: compare(*args) <= 0,
    ">": lambda _, args: compare(*args) > 0,
    ">=": lambda _, args: compare(*args) >= 0,
    "not": lambda _, args: not args[0],
    "nullif": nullif,
    **dict.fromkeys(
        ["+", "-", "*", "/", "//", "%", "try_add", "try_subtract", "try_multiply", "try_divide"], arithmetic
    ),
    "negate": negate,
    "abs": absolute,
    "sign": sign_of,
    **dict.fromkeys(["round", "floor", "ceil", "trunc"], rounding),
    "sqrt": sqrt,
    "power": power,
    "exp": lambda _, args: exp(args[0]),
    "ln": lambda _, args: logarithm(math.e, args[0]),
    "log10": lambda _, args: logarithm(10.0, args[0]),
    "log": lambda _, args: logarithm(*args),
    "is_nan": lambda _, args: math.isnan(args[0]),
    "||": lambda _, args: "".join(args),
    "length": lambda _, args: len(args[0]),
    "upper": upper,
    "lower": lambda _, args: by_character(args[0].replace("İ", "i"), str.lower),
    **dict.fromkeys(["trim", "ltrim", "rtrim"], trim),
    "substring": substring,
    "strpos": lambda _, args: args[0].find(args[1]) + 1,
    "replace": lambda _, args: args[0].replace(args[1], args[2]) if args[1] else args[0],
    "starts_with": lambda _, args: args[0].startswith(args[1]),
    "ends_with": lambda _, args: args[0].endswith(args[1]),
    "contains": lambda _, args: args[1] in args[0],
    "split_part": split_part,
    "lpad": pad,
    "rpad": pad,
    "left": left,
    "right": right,
    "reverse": lambda _, args: args[0][::-1],
    "like": like,
    "ilike": like,
    "regexp_like": lambda _, args: re.search(args[1], args[0], flags_of(args[2] if len(args) > 2 else "")) is not None,
    "regexp_replace": regexp_replace,
    "regexp_extract": regexp_extract,
    "regexp_substr": regexp_substr,
    "year": _part(lambda x: x.year),
    "quarter": _part(lambda x: (x.month + 2) // 3),
    "month": _part(lambda x: x.month),
    "week": _part(lambda x: x.isocalendar()[1]),
    "day": _part(lambda x: x.day),
    "doy": _part(lambda x: x.timetuple().tm_yday),
    "dow": _part(lambda x: x.isoweekday() % 7),
    "isodow": _part(lambda x: x.isoweekday()),
    "isoyear": _part(lambda x: x.isocalendar()[0]),
    "yearweek": _part(lambda x: x.isocalendar()[0] * 100 + x.isocalendar()[1]),
    "decade": _part(lambda x: x.year // 10),
    "century": _part(lambda x: math.ceil(x.year / 100)),
    "millennium": _part(lambda x: math.ceil(x.year / 1000)),
    "millisecond": _part(lambda x: x.second * 1000 + x.microsecond // 1000),
    "microsecond": _part(lambda x: x.second * 10**6 + x.microsecond),
    "hour": _part(lambda x: x.hour),
    "minute": _part(lambda x: x.minute),
    "second": _part(lambda x: x.second),
    "epoch": epoch,
    "seconds": epoch,
    "date_trunc": date_trunc,
    "date_diff": date_diff,
    "date_sub": date_sub,
    "make_date": make_date,
    "add_months": add_months,
    "try_add_months": add_months,
    "sort_key": lambda _, args: args[0],
    "struct_extract": lambda _, args: args[0][args[1]],
    "cardinality": lambda _, args: len(args[0]),
    "list_count": lambda _, args: sum(each is not None for each in args[0]),
    "list_reverse": lambda _, args: args[0][::-1],
    "list_concat": lambda _, args: args[0] + args[1],
    "list_sort": list_sort,
    "list_where": lambda _, args: [args[0][at] if at < len(args[0]) else None for at in places(args[1]) if args[1][at]],
    "list_select": lambda _, args: [
        args[0][at - 1] if 0 < at <= len(args[0]) else None for at in args[1] if at is not None or places(args[1])
    ],
    "flatten": lambda _, args: [each for inner in args[0] if inner is not None for each in inner],
    **dict.fromkeys(["generate_series", "range"], series),
    "gcd": lambda _, args: int64(math.gcd(*args)),
    "atan2": lambda _, args: math.atan2(*args),
    "levenshtein": lambda _, args: distance(*args),
    "regexp_full_match": lambda _, args: re.fullmatch(args[1], args[0], flags_of("".join(args[2:]))) is not None,
    "regexp_split_to_array": lambda _, args: (
        re.split(args[1], args[0], flags=flags_of("".join(args[2:]))) if args[1] else list(args[0])
    ),
    "encode": lambda _, args: args[0].encode(),
    "decode": lambda _, args: text_of(args[0]),
    "to_base64": lambda _, args: binascii.b2a_base64(args[0], newline=False).decode(),
    "from_base64": from_base64,
    "url_encode": lambda _, args: "".join(
        chr(each) if re.match(r"[\w.~-]", chr(each), re.ASCII) else f"%{each:02X}" for each in args[0].encode()
    ),
    "url_decode": lambda _, args: text_of(
        re.sub(rb"%([0-9a-fA-F]{2})", lambda match: bytes([int(match[1], 16)]), args[0].encode())
    ),
    "strip_accents": lambda _, args: re.sub(
        "[\u0300-\u036f]", "", "".join(unicodedata.normalize("NFD", each) for each in args[0])
    ),
    "json_value": lambda _, args: (
        None
        if (found := at_path(parts(args[0]), args[1])) is None or found[0] in ("object", "list") or found[-1] is None
        else unmarked(found)
    ),
    "json_structure": lambda _, args: json.dumps(
        structure(parts(args[0])) or "JSON", ensure_ascii=False, separators=(",", ":")
    ),
    "list_distinct": lambda _, args: list(dict.fromkeys(each for each in args[0] if each is not None)),
    "list_min": lambda _, args: next(iter(in_order(args[0])), None),
    "list_max": lambda _, args: next(reversed(in_order(args[0])), None),
    **dict.fromkeys(["list_sum", "list_avg"], list_sum),
    "list_has_any": lambda _, args: any(each in args[1] for each in args[0] if each is not None),
    "list_has_all": lambda _, args: all(each in args[0] for each in args[1] if each is not None),
    "array_to_string": lambda _, args: args[1].join(each for each in args[0] if each is not None),
    "list_except": lambda _, args: [x for x in dict.fromkeys(args[0]) if x is not None and x not in args[1]],
    "&": lambda _, args: args[0] & args[1],
    "|": lambda _, args: args[0] | args[1],
    "xor": lambda _, args: args[0] ^ args[1],
    "~": lambda _, args: ~args[0],
    "<<": lambda _, args: int64(args[0] << bits(args[1], args[0])),
    ">>": lambda _, args: args[0] >> args[1] if 0 <= args[1] < 64 else 0,
    "bit_count": lambda _, args: (args[0] % 2**64).bit_count(),
    "bin": lambda _, args: f"{args[0] % 2**64:b}",
    "hex": lambda _, args: f"{args[0] % 2**64:X}" if isinstance(args[0], int) else in_bytes(args[0]).hex().upper(),
    "unhex": unhexed,
    "chr": character,
    "ascii": lambda _, args: ord(args[0][:1] or "\0"),
    "json_extract": json_part,
    "json_extract_string": json_part,
    "get_json_object": json_part,
    "from_json": from_json,
    "json_array_length": json_part,
    **dict.fromkeys(["json_type", "json_keys", "json_exists"], json_at),
    **dict.fromkeys(["json_each", "json_tree"], json_rows),
    "json_contains": json_contains,
    "json_merge_patch": json_merge_patch,
    "to_json": to_json,
    "json": lambda _, args: unmarked(parts(args[0])),
    **dict.fromkeys(["parse_json", "try_parse_json"], lambda _, args: args[0] if parts(args[0]) else None),
    "json_valid": lambda _, args: read_json(args[0])[0],
    "cbrt": lambda _, args: math.cbrt(args[0]),
    "sin": lambda _, args: math.nan if math.isinf(args[0]) else math.sin(args[0]),
    "cos": lambda _, args: math.nan if math.isinf(args[0]) else math.cos(args[0]),
    "tan": lambda _, args: math.nan if math.isinf(args[0]) else math.tan(args[0]),
    "asin": arc,
    "acos": arc,
    "atan": lambda _, args: math.atan(args[0]),
    "repeat": repeat,
    "translate": lambda _, args: args[0].translate(
        {ord(c): args[2][at : at + 1] for at, c in [*enumerate(args[1])][::-1]}
    ),
    "initcap": lambda _, args: re.sub(r"[^\W\d_]+", lambda word: word[0][0].upper() + word[0][1:].lower(), args[0]),
    "octet_length": lambda _, args: len(in_bytes(args[0])),
    "sha1": lambda call, args: hashlib.new(call.function, in_bytes(args[0])).hexdigest(),
    "md5": lambda call, args: hashlib.new(call.function, in_bytes(args[0])).hexdigest(),
    "sha256": lambda call, args: hashlib.new(call.function, in_bytes(args[0])).hexdigest(),
    "regexp_count": lambda _, args: len(re.findall(args[1], args[0])),
    "strftime": strftime,
    "strptime": strptime,
    "try_strptime": strptime,
    "add_days": add_days,
    "try_add_days": add_days,
    "last_day": lambda _, args: dt.date(
        args[0].year, args[0].month, calendar.monthrange(args[0].year, args[0].month)[1]
    ),
    "time_bucket": time_bucket,
    "timezone": timezone,
    "list_slice": sliced,
    "element": element,
}


# ------------------------------------------------------------------------------------------------ casts


def cast(value: Any, source: Type, target: Type) -> Any:
    """Convert a value; raises Fails."""
    if value is None:
        return None
    if source.kind == "struct":
        inner = dict(source.fields)
        return {name: cast(value[name], inner[name], kind) for name, kind in target.fields}
    if source.kind == "string":
        return value if target.kind == "string" else from_text(value.strip(" \t\n\v\f\r"), target)
    if target.kind == "string":
        return to_text(value)
    if target.is_float:
        return single(float(value)) if target.kind == "float32" else float(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Fails
        if target.kind == "decimal":
            moved = value * float(10**target.scale)
            if not math.isfinite(moved):
                raise Fails
            return to_decimal(Fraction(half_away(Fraction(moved)), 10**target.scale), target)
        return whole_number(round(value), target)
    if target.kind == "decimal":
        return to_decimal(Fraction(value), target)
    if target.is_integer:
        return whole_number(half_away(Fraction(value)), target)
    if target.kind == "bool":
        return value != 0
    return cast_moment(value, source, target)


def cast_moment(value: Any, source: Type, target: Type) -> Any:
    if source.zone and not target.zone:
        value = value.astimezone(ZoneInfo(source.zone)).replace(tzinfo=None, fold=0)
    if source.kind == "date":
        value = dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001
    if target.zone and not source.zone:
        return shown_at(value, target.zone)
    if target.kind == "date":
        return value.date()
    if target.unit == "ms":
        size, start = dt.timedelta(milliseconds=1), dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return start + half_away(Fraction((value - start) // dt.timedelta(microseconds=1), 1000)) * size
    return value.time() if target.kind == "time" else value


def single(value: float) -> float:
    """Return the nearest float of 32 bits; raises Fails beyond the largest."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        raise Fails from None


def nearest_single(value: float) -> float:
    """Return the nearest float of 32 bits, infinite beyond the largest; of a result in 64 bits that of the exact one."""
    try:
        return single(value)
    except Fails:
        return math.copysign(math.inf, value)


def whole_number(value: int, target: Type) -> int:
    low, high = RANGES[target.kind]
    if not low <= value <= high:
        raise Fails
    return value


def from_text(text: str, target: Type) -> Any:
    """Read a value from text of exactly its form."""
    number = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)"
    if target.is_integer:
        return whole_number(int(matched(r"[+-]?[0-9]+", text)), target)
    if target.kind == "decimal":
        return to_decimal(Fraction(matched(f"(?i){number}(e[+-]?[0-9]+)?", text)), target)
    if target.is_float:
        found = float(matched(f"(?i){number}(e[+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", text))
        if math.isinf(found) and any(character.isdigit() for character in text):
            raise Fails
        return single(found) if target.kind == "float32" else found
    if target.kind == "bool":
        return matched("(?i)true|t|yes|y|1|false|f|no|n|0", text).lower() in ("true", "t", "yes", "y", "1")
    clock = r"([01]?[0-9]|2[0-3]):([0-5]?[0-9](:([0-5]?[0-9](\.[0-9]*)?)?)?)?"
    day = r"[0-9]{4}(-[0-9]{1,2}-|/[0-9]{1,2}/)[0-9]{1,2}"
    try:
        if target.kind == "date":
            offset = "(Z|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])?"
            return day_of(matched(f"{day}([ T]{clock}{offset})?", text))
        if target.kind == "time":
            return time_of(matched(clock, text))
        matched(f"{day}([ T]{clock})?", text)
        return dt.datetime.combine(day_of(text), time_of(re.split("[ T]", text)[1]) if ":" in text else dt.time())
    except ValueError:
        raise Fails from None


def day_of(text: str) -> dt.date:
    """Return the day at the beginning of a text."""
    return dt.date(*map(int, re.split("[-/]", re.split("[ T]", text)[0])))


def time_of(text: str) -> dt.time:
    """Return a time, whose last parts may be missing."""
    hour, minute, second, fraction = [*re.split("[:.]", text), "", "", ""][:4]
    return dt.time(int(hour), int(minute or 0), int(second or 0), int(fraction.ljust(6, "0")[:6]))


def matched(pattern: str, text: str) -> str:
    if not re.fullmatch(pattern, text, re.ASCII):
        raise Fails
    return text


def to_text(value: Any) -> str:
    """Return the text of a value, as cast to string and `||` give it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dt.datetime | dt.time):
        fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
        return value.replace(microsecond=0).isoformat(*([" "] if isinstance(value, dt.datetime) else [])) + fraction
    return str(value)


def float_text(value: float) -> str:
    """Return the shortest text that reads back, as Python writes it; of zero without its sign."""
    return repr(value) if value else "0.0"


# ------------------------------------------------------------------------------------------------ aggregates


def aggregate(call: AggregateCall, rows: list[tuple[Mapping[str, Any], int]]) -> Any:
    """Return an aggregate over records with positive multiplicities; raises Fails on overflow."""
    if call.function == "count" and not call.args:
        return sum(count for _, count in rows)
    values = [(evaluate(call.args[0], row), count) for row, count in rows]
    if call.order_by:
        return ordered_aggregate(call, rows)
    if call.function in PAIRS:
        return of_pairs(call, rows)
    present = [(value, count) for value, count in values if value is not None]
    if call.distinct:
        unique: list[tuple[Any, int]] = []
        for value, _ in present:
            if not any(compare(value, other) == 0 for other, _ in unique):
                unique.append((value, 1))
        present = unique
    if call.function == "count":
        return sum(count for _, count in present)
    return AGGREGATES[call.function](call, present) if present else None


def ordered_aggregate(call: AggregateCall, rows: list[tuple[Mapping[str, Any], int]]) -> Any:
    """first, last, array_agg, string_agg: null keys are the largest, ties by the value, its nulls last."""

    def before(one: tuple[Any, list[Any]], other: tuple[Any, list[Any]]) -> int:
        for (_, descending), a, b in zip(call.order_by, one[1], other[1], strict=True):
            if found := null_last(a, b):
                return -found if descending else found
        return null_last(one[0], other[0])

    found = []
    for row, count in rows:
        keys = [evaluate(key, row) for key, _ in call.order_by]
        found += [(evaluate(call.args[0], row), keys)] * count
    values = [value for value, _ in sorted(found, key=cmp_to_key(before))]
    if call.distinct:
        values = [
            value for at, value in enumerate(values) if not any(null_last(value, one) == 0 for one in values[:at])
        ]
    if call.function in ("first", "last"):
        return values[0 if call.function == "first" else -1] if values else None
    if call.function == "array_agg" and call.args[1:]:
        return [value for value in values if value is not None][: call.args[1].value] or None
    if call.function == "array_agg":
        return values
    texts = [value for value in values if value is not None]
    separator = call.args[1]
    assert isinstance(separator, Literal)
    return str(separator.value).join(texts) if texts else None


def null_last(a: Any, b: Any) -> int:
    """Order with null as the largest."""
    if a is None or b is None:
        return (a is None) - (b is None)
    return compare(a, b)


def total(call: AggregateCall, present: list[tuple[Any, int]]) -> Any:
    if call.type.is_float:
        return float_sum(present)
    if call.type.kind == "duration":
        return interval(sum((value * count for value, count in present), dt.timedelta()))
    exact = sum(Fraction(value) * count for value, count in present)
    return int64(int(exact)) if call.type.is_integer else to_decimal(Fraction(exact), call.type)


def float_sum(present: list[tuple[float, int]]) -> float:
    """Return the exact sum, rounded once; infinities and NaN as in IEEE."""
    special = [value for value, _ in present if not math.isfinite(value)]
    if special:
        return sum(special)
    return nearest(sum((Fraction(value) * count for value, count in present), Fraction()))


def nearest(exact: Fraction) -> float:
    """Return the nearest float, infinite beyond the largest."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def root(exact: Fraction) -> float:
    """Return the square root of a number that may be too large for a float."""
    scale = max(exact.numerator.bit_length() - exact.denominator.bit_length(), 0) // 2
    return math.ldexp(math.sqrt(exact / 4**scale), scale)


def mean(call: AggregateCall, present: list[tuple[Any, int]]) -> Any:
    count = sum(count for _, count in present)
    kind = call.args[0].type
    if kind.is_float:
        total = float_sum(present)
        if math.isfinite(total) or any(not math.isfinite(value) for value, _ in present):
            return total / count
    if kind.kind == "duration":
        return truncated(sum((value // MICROSECOND) * n for value, n in present), count) * MICROSECOND
    exact = sum(Fraction(value) * n for value, n in present) / count
    if kind.is_float:  # the sum is rounded where it is a float, 128 bits lower
        return math.ldexp(float(exact * count / 2**128) / count, 128)
    return to_decimal(exact, call.type) if call.type.kind == "decimal" else float(exact)


def spread(call: AggregateCall, present: list[tuple[Any, int]]) -> float | None:
    count = sum(count for _, count in present)
    sample = call.function.endswith("samp")
    if count - sample <= 0:
        return None
    if any(not math.isfinite(value) for value, _ in present):
        return math.nan
    middle = sum(Fraction(value) * n for value, n in present) / count
    variance = sum((Fraction(value) - middle) ** 2 * n for value, n in present) / (count - sample)
    return root(variance) if call.function.startswith("std") else nearest(variance)


def of_pairs(call: AggregateCall, rows: list[tuple[Mapping[str, Any], int]]) -> float | None:
    """Return an aggregate of pairs, of those that have both values, by its definition."""
    pairs = [tuple(evaluate(arg, row) for arg in call.args) for row, count in rows for _ in range(count)]
    pairs = [(y, x) for y, x in pairs if y is not None and x is not None]
    count = len(pairs)
    if count <= (call.function == "covar_samp"):
        return None
    ways = {"regr_sxx": (1,)}.get(call.function, (0, 1))
    if any(not math.isfinite(pair[at]) for pair in pairs for at in ways):
        x_varies = len({x for _, x in pairs}) > 1 or any(not math.isfinite(x) for _, x in pairs)
        y_varies = len({y for y, _ in pairs}) > 1 or any(not math.isfinite(y) for y, _ in pairs)
        needed = {"corr": x_varies and y_varies}.get(call.function, x_varies)
        return math.nan if needed or not PAIRS[call.function] else None
    exact = [(Fraction(y if 0 in ways else 0), Fraction(x)) for y, x in pairs]
    y_mean, x_mean = (sum(pair[at] for pair in exact) / count for at in (0, 1))
    xy = sum((y - y_mean) * (x - x_mean) for y, x in exact)
    yy, xx = sum((y - y_mean) ** 2 for y, _ in exact), sum((x - x_mean) ** 2 for _, x in exact)
    if PAIRS[call.function] and (not xx or (call.function == "corr" and not yy)):
        return None
    return nearest(
        {
            "covar_pop": lambda: xy / count,
            "covar_samp": lambda: xy / (count - 1),
            "corr": lambda: Fraction(math.sqrt(xy**2 / (xx * yy))) * (1 if xy > 0 else -1),
            "regr_slope": lambda: xy / xx,
            "regr_intercept": lambda: y_mean - xy / xx * x_mean,
            "regr_r2": lambda: xy**2 / (xx * yy) if yy else Fraction(1),
            "regr_sxx": lambda: xx,
            "regr_sxy": lambda: xy,
        }[call.function]()
    )


PAIRS = dict.fromkeys(["covar_pop", "covar_samp", "regr_sxx", "regr_sxy"], False)
PAIRS |= dict.fromkeys(["corr", "regr_slope", "regr_intercept", "regr_r2"], True)
"""Aggregates of pairs, and whether there is none where x is the same in all of them."""


def repeated(present: list[tuple[Any, int]]) -> list[Any]:
    """Return the values in order, each as often as it is there."""
    ordered = sorted(present, key=cmp_to_key(lambda a, b: compare(a[0], b[0])))
    return list(itertools.chain.from_iterable([value] * count for value, count in ordered))


def quantile(fraction: float, present: list[tuple[Any, int]]) -> float:
    values = repeated(present)
    position = fraction * (len(values) - 1)
    low = math.floor(position)
    if position == low:
        return float(values[low])
    one, other, share = values[low], values[low + 1], position - low
    if one == other:
        return float(one)
    if math.isfinite(other - one):
        return float(one + (other - one) * share)
    return float(one * (1 - share) + other * share)


def quantile_disc(fraction: float, present: list[tuple[Any, int]]) -> Any:
    values = repeated(present)
    return values[max(math.ceil(fraction * len(values)) - 1, 0)]


def of_fractions(call: AggregateCall, at: Callable[[float], Any]) -> Any:
    found = [at(each.value) for each in call.args[1:]]
    return found if call.type.kind == "list" else found[0]


def mode(_: AggregateCall, present: list[tuple[Any, int]]) -> Any:
    counts: list[list[Any]] = []
    for value in repeated(present):
        if counts and compare(counts[-1][0], value) == 0:
            counts[-1][1] += 1
        else:
            counts.append([value, 1])
    most = max(count for _, count in counts)
    return next(value for value, count in counts if count == most)


AGGREGATES: dict[str, Callable[[AggregateCall, list[tuple[Any, int]]], Any]] = {
    "sum": total,
    "avg": mean,
    "min": lambda _, present: repeated(present)[0],
    "max": lambda _, present: repeated(present)[-1],
    "bool_and": lambda _, present: all(value for value, _ in present),
    "bool_or": lambda _, present: any(value for value, _ in present),
    "bit_and": lambda _, present: functools.reduce(operator.and_, repeated(present)),
    "bit_or": lambda _, present: functools.reduce(operator.or_, repeated(present)),
    "bit_xor": lambda _, present: functools.reduce(operator.xor, repeated(present)),
    "product": lambda _, present: functools.reduce(operator.mul, repeated(present)),
    "median": lambda _, present: quantile(0.5, present),
    "quantile_cont": lambda call, present: of_fractions(call, lambda fraction: quantile(fraction, present)),
    "quantile_disc": lambda call, present: of_fractions(call, lambda fraction: quantile_disc(fraction, present)),
    **dict.fromkeys(["stddev_samp", "stddev_pop", "var_samp", "var_pop"], spread),
    "mode": mode,
}
