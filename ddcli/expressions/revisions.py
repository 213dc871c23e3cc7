"""Calls and casts whose values an earlier version computed differently: a state that was made with them has another plan now, and the next run computes it anew.

Otherwise this version could not retract the records that the earlier one inserted.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ddcli.expressions.patterns import in_rust
from ddcli.expressions.tree import Call, Cast, Expression, Lambda, Literal
from ddcli.expressions.types import MAX_PRECISION, Type
from ddcli.expressions.windows import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

QUOTIENTS = {"/", "try_divide"}
ROUNDED = {"round", "trunc"}
BY_CLOCKS = {"strftime", "last_day"}
FROM_END = {"substring": 3, "element": 2, "list_slice": 3}
"""Functions that counted only from the beginning, with their numbers of arguments."""
LIKE_DUCKDB = {"upper", "lower", "regexp_extract", "chr", "power", "sign", "log", "log10", ">>", "<<"}
LIKE_DUCKDB |= {"json_extract", "json_extract_string", "get_json_object", "json_array_length", "list_position"}
LIKE_DUCKDB |= {"list_intersect", "date_diff"}
"""Functions that have had DuckDB's meaning only since the second revision, for some of their values."""
BY_CALENDAR = {"add_days", "add_months", "try_add_months"}


def revisions_of(value: Any) -> tuple[str, ...]:
    """Return the words in the identity of a node for the revisions of its calls and casts."""
    found = list(expressions_in(value))
    return tuple(word for word, is_revised in REVISIONS.items() if any(map(is_revised, found)))


def expressions_in(value: Any) -> Iterator[Any]:
    """Yield the expressions in a part of a node, with all below them, and the aggregates."""
    if isinstance(value, Expression):
        for each in value.walk():
            yield each
            yield from expressions_in(each.body) if isinstance(each, Lambda) else ()
    elif isinstance(value, tuple | list):
        for each in value:
            yield from expressions_in(each)
    elif isinstance(value, dict):
        yield from expressions_in(list(value.values()))
    elif is_dataclass(value) and not isinstance(value, Type):
        yield value
        yield from expressions_in([getattr(value, each.name) for each in fields(value)])


def _is_rounded(call: Any) -> bool:
    """Return whether a call is a quotient by one number for all rows, or a text or month of a timestamp with a zone."""
    if not isinstance(call, Call):
        return False
    function, args, kind = call.function, call.args, call.type
    if function in QUOTIENTS:
        return kind.is_float and bool(args[0].columns()) and not args[1].columns()
    if function in ROUNDED:
        return kind.is_float and len(args) > 1 and isinstance(args[1], Literal) and bool(args[1].value)
    if function in BY_CLOCKS:
        return args[0].type.zone not in {None, "UTC"}
    if function == "date_diff":
        return len({arg.type.zone for arg in args[1:]}) > 1 or any(arg.type.unit == "ns" for arg in args[1:])
    if function == "list_avg":
        inner = args[0].type.inner
        return inner is not None and bool(inner.scale)
    if function in {"replace", "substring"}:
        return any(isinstance(arg, Literal) and arg.value is None for arg in args)
    return function in {"epoch", "seconds", "log", "log10"}


def _is_like_duckdb(node: Any) -> bool:
    """Return whether a call or a cast had another meaning before it had DuckDB's, by its arguments or for some of their values."""
    if isinstance(node, Cast):
        source, target = node.argument.type, node.type
        if target.kind == "string":
            return source.is_float or source.kind in ("datetime", "time")
        return (source.is_float and target.is_integer) or (source.kind == "string" and target.kind in ("bool", "date"))
    if not isinstance(node, Call):
        return False
    args = node.args
    if node.function in FROM_END:
        at_least = [1, 0][: FROM_END[node.function] - 1]
        return any(not is_whole(arg, least) for arg, least in zip(args[1:], at_least, strict=False))
    if node.function in ("split", "split_part"):
        return not (isinstance(args[1], Literal) and args[1].value)
    if node.function in ("greatest", "least", "replace", "array_contains"):
        return any(arg.type.nullable for arg in args)
    if node.function == "regexp_replace":
        return len(args) < 4
    return node.function in LIKE_DUCKDB


def is_whole(value: Expression, least: int) -> bool:
    """Return whether an expression is a constant integer that is not below the least."""
    return isinstance(value, Literal) and isinstance(value.value, int) and value.value >= least


def _is_by_calendar(call: Any) -> bool:
    """Return whether a call moves a timestamp by days or months of its zone, whose clocks may change between."""
    return isinstance(call, Call) and call.function in BY_CALENDAR and call.args[0].type.zone not in {None, "UTC"}


def _is_to_places(call: Any) -> bool:
    """Return whether a call rounds a float to digits behind the point."""
    digits = call.args[1] if isinstance(call, Call) and call.function == "round" and len(call.args) > 1 else None
    return isinstance(digits, Literal) and call.type.is_float and isinstance(digits.value, int) and digits.value > 0


def _is_exact(node: Any) -> bool:
    """Return whether a cast reads more texts than before, which were null, or rounds parts of a second that it cut before; or a mean of large integers."""
    if isinstance(node, Call) and node.function == "list_avg":
        inner = node.args[0].type.inner
        return inner is not None and not inner.is_float and not inner.scale
    if not isinstance(node, Cast):
        return False
    source, target = node.argument.type, node.type
    if source.kind == "string":
        return node.try_ or target.kind == "time" or target.unit == "ms"
    if target.kind == "date":
        return source.unit == "ns"
    return (
        source.kind == target.kind
        and source.kind in ("datetime", "duration")
        and source.second_digits > target.second_digits
    )


def _is_second_of_two(call: Any) -> bool:
    """Return whether a call moves a timestamp by months of its zone, to the second of two times that clocks show alike."""
    return _is_by_calendar(call) and call.function != "add_days"


def _is_with_exponents(node: Any) -> bool:
    """Return whether a cast reads decimals with exponents, which were null."""
    return isinstance(node, Cast) and node.try_ and node.argument.type.kind == "string" and node.type.kind == "decimal"


def _is_checked_twice(node: Any) -> bool:
    """Return whether a call has several checks with one problem, when only the first one counted: null instead of an error."""
    if not isinstance(node, Call):
        return False
    scales = {arg.type.scale for arg in node.args if arg.type.kind == "decimal"}
    is_long = node.type.kind == "decimal" and node.type.precision == MAX_PRECISION and len(scales) > 1
    return node.function in {"list_transform", "list_filter", "list_reduce"} or (
        node.function in {"+", "-"} and is_long
    )


def _is_pattern_of_re2(node: Any) -> bool:
    """Return whether a call has a regular expression that had another meaning in Rust, as one of words has."""
    if not isinstance(node, Call) or not node.function.startswith("regexp_"):
        return False
    pattern = node.args[1]
    return isinstance(pattern, Literal) and in_rust(str(pattern.value)) != pattern.value


def _is_of_interval(node: Any) -> bool:
    """Return whether a call is an interval by an integer, which was cut toward zero."""
    return isinstance(node, Call) and node.function in QUOTIENTS and node.type.kind == "duration"


OF_PAIRS = {"covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_sxy"}


def _is_of_pairs(node: Any) -> bool:
    """Return whether an aggregate is one of pairs, whose squares were no floats for very large or small values."""
    return not isinstance(node, Expression) and getattr(node, "function", "") in OF_PAIRS


def _is_of_parts_of_days(node: Any) -> bool:
    """Return whether a frame begins after a distance, or ends before one, that is no number of days: of dates it was rounded down."""
    if not isinstance(node, Frame):
        return False
    outer = [end.offset for end, way in ((node.start, 1), (node.end, -1)) if end.direction == way and end.offset]
    return any(isinstance(each.value, dt.timedelta) and bool(each.value % dt.timedelta(days=1)) for each in outer)


REVISIONS = {
    "rounded once, by the clocks of zones": _is_rounded,
    "as in DuckDB": _is_like_duckdb,
    "by the calendar of zones": _is_by_calendar,
    "rounded as in binary": _is_to_places,
    "casts and means as in DuckDB": _is_exact,
    "pairs of every size": _is_of_pairs,
    "the second of two times": _is_second_of_two,
    "decimals with exponents": _is_with_exponents,
    "each check of a call": _is_checked_twice,
    "patterns as in RE2": _is_pattern_of_re2,
    "intervals half to even": _is_of_interval,
    "frames by parts of days": _is_of_parts_of_days,
}
"""The revisions, each with the calls whose values it changed."""
