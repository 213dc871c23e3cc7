"""Typed expressions whose values are others in Spark: the queries that have one are left out, each with the reason.

Names alone don't decide: a cast of an integer has Spark's value, and that of a float rounds here and cuts in Spark. So the checked graph is read,
in which each expression has its type.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ddcli.expressions.aggregates import AggregateCall
from ddcli.expressions.tree import Call, Cast, Expression, Literal
from ddcli.expressions.types import MAX_PRECISION, Type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.errors import Span
    from ddcli.plan.node import Graph

Difference = tuple[str, str | None]
"""A problem, and a hint."""
WHOLE = {"floor", "ceil", "round", "trunc"}
SUMS = {"+", "-", "try_add", "try_subtract", "add_months", "try_add_months"}
NARROW = {"<<", ">>", "try_add", "try_subtract", "try_multiply"}
FLOATS = "cast to double, of which both have the same values"
MEAN = "the mean of decimals has another number of digits in Spark, unless they have two behind the point"
QUOTIENT = "a quotient of decimals has more digits in Spark"
DIGITS = "Spark cuts digits behind the point where a decimal may have more than 38 digits"


def differences(graph: Graph) -> Iterator[tuple[Span | None, str, str | None]]:
    """Yield the place, the problem and a hint for each expression of a graph whose value may be another one in Spark."""
    collections: dict[str, Span] = {}
    """The places of the collections in whose queries nodes are, by the nodes' fingerprints."""
    for node in reversed(graph.nodes()):
        if node.fingerprint in graph.places:
            collections[node.fingerprint] = graph.places[node.fingerprint][1]
        around = collections.get(node.fingerprint)
        if around is not None:
            collections |= {each.fingerprint: around for each in node.inputs}
        for part in _parts([getattr(node, each.name) for each in fields(node) if each.name != "inputs"]):
            found = _of_aggregate(part) if isinstance(part, AggregateCall) else _of_expression(part)
            if found is not None:
                inside = part.args if isinstance(part, AggregateCall) else part.walk()
                yield next((each.span for each in inside if each.span is not None), around), *found


def _parts(value: Any) -> Iterator[Expression | AggregateCall]:
    """Yield the expressions and the aggregates in a part of a node, with all below them."""
    if isinstance(value, Expression):
        yield from value.walk()
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from _parts(each)
    elif isinstance(value, dict):
        yield from _parts(list(value.values()))
    elif is_dataclass(value) and not isinstance(value, Type):
        if isinstance(value, AggregateCall):
            yield value
        yield from _parts([getattr(value, each.name) for each in fields(value)])


def _of_aggregate(call: AggregateCall) -> Difference | None:
    if call.function == "avg" and call.args[0].type.kind == "decimal" and call.args[0].type.scale != 2:
        return MEAN, FLOATS
    return None


def _of_expression(node: Expression) -> Difference | None:
    if isinstance(node, Cast):
        return _of_cast(node)
    if not isinstance(node, Call):
        return None
    name, args, kind = node.function, node.args, node.type
    if kind.kind == "decimal" and name in ("+", "-", "*", "/", "try_add", "try_subtract", "try_multiply", "try_divide"):
        return _of_decimals(name, args[0].type, args[1].type, kind.scale)
    if name == "date_diff" and isinstance(args[0], Literal) and args[0].span is None:
        return "the difference of two dates is an interval in Spark, and a number here", "write `datediff(a, b)`"
    if name in SUMS and kind.kind == "datetime" and any(map(_is_date_as_timestamp, args)):
        hint = "write `date_add` or `add_months`, or cast the date to a timestamp of its own"
        return "a date plus an interval is a date in Spark, and a timestamp here", hint
    if name == "round" and kind.is_float and len(args) > 1:
        hint = "round a decimal, or without digits"
        return "Spark rounds the digits that it shows of a float, so `round(1.005, 2)` is 1.01 there", hint
    if name in ("left", "right") and not _is_at_least(args[1], 0):
        return f"`{name}` of a negative number of characters is an empty text in Spark", "write a constant"
    if name == "substring" and (not isinstance(args[1], Literal) or args[1].value == 0):
        return "position 0 of a text is the first one in Spark", "write a constant position, from 1 on"
    if name in NARROW and any(isinstance(each, Cast) and each.argument.type.is_integer for each in args):
        return f"`{name}` of an int has 32 bits in Spark, and 64 here", "cast it to bigint"
    return None


def _of_cast(node: Cast) -> Difference | None:
    """Return the difference of a cast: Spark cuts numbers, and writes texts in another way."""
    source, target = node.argument.type, node.type
    inside = node.argument
    is_whole = isinstance(inside, Call) and inside.function in WHOLE and len(inside.args) == 1
    if target.is_integer and (source.is_float or (source.kind == "decimal" and source.scale)) and not is_whole:
        return "a cast to an integer rounds here, and cuts in Spark", "cast `floor(x)`, `ceil(x)` or `round(x)`"
    if target.kind == "decimal" and source.is_float:
        return "Spark rounds the digits that it shows of a float", None
    if target.kind in ("decimal", "date", "datetime") and source.kind == "string" and node.try_:
        return f"Spark reads texts of other forms as a {target.kind}, too, as `1e3` and `2024-3-1`", "write `cast`"
    if target.kind == "string" and source.is_float:
        return "a float as a text has another form in Spark, `1.0E10`", "cast it to a decimal first"
    if target.kind == "string" and source.kind == "datetime" and source.zone is not None:
        return "a timestamp as a text has an offset here, and none in Spark", "cast it to timestamp_ntz first"
    return None


def _of_decimals(name: str, one: Type, other: Type, scale: int) -> Difference | None:
    if name in ("/", "try_divide"):
        return QUOTIENT, FLOATS
    whole = max(one.precision - one.scale, other.precision - other.scale)
    digits = one.precision + other.precision if name in ("*", "try_multiply") else whole + scale
    # Six digits behind the point are never cut.
    return (DIGITS, "cast the parts to fewer digits") if scale > 6 and digits + 1 > MAX_PRECISION else None


def _is_date_as_timestamp(value: Expression) -> bool:
    return isinstance(value, Cast) and value.argument.type.kind == "date" and value.type.zone is None


def _is_at_least(value: Expression, least: int) -> bool:
    return isinstance(value, Literal) and isinstance(value.value, int) and value.value >= least
