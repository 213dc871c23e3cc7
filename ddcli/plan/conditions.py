"""Conditions: the parts that `and` connects, each by itself, and those that fail on no record."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from ddcli.errors import InputError
from ddcli.expressions.coerce import INT64, integer_range
from ddcli.expressions.functions import FUNCTIONS
from ddcli.expressions.tree import Call, Case, Cast, Column, Expression, FilterStep, Literal, MapStep
from ddcli.expressions.types import MAX_PRECISION, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Step


def call(name: str, *args: Expression) -> Expression:
    """Return the call of a built-in function, whose arguments must have suitable types."""
    converted, kind, canonical = FUNCTIONS[name].rule(name, args)
    return Call(canonical, tuple(converted), kind)


def conjuncts(condition: Expression) -> list[Expression]:
    """Return the conditions that `and` connects; for an `or`, the conditions that all alternatives share, and the rest."""
    if isinstance(condition, Call) and condition.function == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    if isinstance(condition, Call) and condition.function == "or":
        ways = [conjuncts(each) for each in alternatives(condition)]
        shared = {part.text() for part in ways[0]}.intersection(*({part.text() for part in each} for each in ways[1:]))
        common = [part for part in ways[0] if part.text() in shared]
        rests = [[part for part in each if part.text() not in shared] for each in ways]
        if common and all(is_certain(part) for part in common):
            if not all(rests):
                return common
            return [*common, any_of([all_of(rest) for rest in rests])]
    return [condition]


def alternatives(condition: Expression) -> list[Expression]:
    """Return the conditions that `or` connects."""
    if isinstance(condition, Call) and condition.function == "or":
        return [part for arg in condition.args for part in alternatives(arg)]
    return [condition]


def all_of(conditions: Sequence[Expression]) -> Expression:
    """Return conditions connected by `and`, in their order."""
    return _connected("and", conditions)


def any_of(conditions: Sequence[Expression]) -> Expression:
    """Return conditions connected by `or`, in their order."""
    return _connected("or", conditions)


def _connected(name: str, conditions: Sequence[Expression]) -> Expression:
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return call(name, _connected(name, conditions[:half]), _connected(name, conditions[half:]))


STRICT_AND_CERTAIN = {"=", "<>", "<", "<=", ">", ">=", "not", "like", "ilike", "starts_with", "ends_with", "contains"}
STRICT_AND_CERTAIN |= {"upper", "lower", "length", "year", "quarter", "month", "day"}
"""Functions that fail on no record, and return null for a null argument."""
CERTAIN = STRICT_AND_CERTAIN | {"is distinct from", "is not distinct from", "is null", "in", "and", "or", "coalesce"}
CERTAIN |= {
    "sort_key",
    "struct_extract",
    "named_struct",
    "array_contains",
    "cardinality",
    "list_min",
    "list_max",
    "list_count",
}


CERTAIN_AGGREGATES = frozenset({"count", "min", "max", "bool_and", "bool_or"})
"""Aggregates that fail on no rows; sums overflow."""


def is_certain_call(call: AggregateCall) -> bool:
    """Return whether an aggregate fails on no rows."""
    expressions = [*call.args, *(expression for expression, _ in call.order_by)]
    return call.function in CERTAIN_AGGREGATES and all(map(is_certain, expressions))


def is_certain_step(step: Step) -> bool:
    """Return whether a step is a filter or a projection that fails on no record."""
    if isinstance(step, FilterStep):
        return is_certain(step.condition)
    return isinstance(step, MapStep) and all(is_certain(each) for _, each in step.columns)


def is_certain(expression: Expression) -> bool:
    """Return whether an expression fails on no record: such a condition may be applied earlier than it is written."""
    if isinstance(expression, Column | Literal):
        return True
    if isinstance(expression, Call) and expression.function not in CERTAIN:
        return not expression.columns() and _has_value(expression)
    if isinstance(expression, Cast) and not (expression.try_ or _widens(expression.argument.type, expression.type)):
        return False
    return isinstance(expression, Call | Cast | Case) and all(map(is_certain, expression.children))


def _widens(have: Type, want: Type) -> bool:
    """Return whether a type holds each value of another."""
    if have.is_integer and want.is_integer:
        (least, most), (low, high) = integer_range(have.kind), integer_range(want.kind)
        return low <= least and most <= high
    if have.kind == "decimal" and want.kind == "decimal":
        return want.scale >= have.scale and want.precision - want.scale >= have.precision - have.scale
    if have.is_integer and want.kind == "decimal":
        return bool(10 ** (want.precision - want.scale) > integer_range(have.kind)[1])
    if have.kind == "date" and want.kind == "datetime" and want.unit != "ns":
        return True
    return bool(have.required() == want.required() or (want.kind == "float64" and (have.is_integer or have.is_float)))


def _has_value(expression: Expression) -> bool:
    """Return whether an expression without columns is known to have a value: it is decided for dates plus months and sums of decimals, the common ones."""
    if isinstance(expression, Call) and expression.function == "add_months":
        day, months = (each.value if isinstance(each, Literal) else None for each in expression.args)
        if isinstance(day, dt.date) and isinstance(months, int) and dt.MINYEAR < day.year + months / 12 < dt.MAXYEAR:
            return True
    is_sum = isinstance(expression, Call) and expression.function in ("+", "-") and expression.type.kind == "decimal"
    if (
        is_sum
        and expression.type.precision < MAX_PRECISION
        and all(isinstance(each, Literal) for each in expression.children)
    ):
        return True
    import polars as pl

    from ddcli.expressions.stage import FusedSteps

    try:
        FusedSteps({"#one": INT64}, (MapStep((("#value", expression),)),)).run(pl.DataFrame({"#one": [1]}))
    except InputError:
        return False
    return True
