"""Aggregates over rows of which there may be less than none.

Sums and counts weigh each row by its count, whatever its sign, because they are linear. Everything else asks which rows
are there: those with a positive count. A sum over no rows on balance is null where its type has a null.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.reference.expressions import aggregate, evaluate
from tests.reference.values import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ddcli.expressions.aggregates import AggregateCall

Rows = list[tuple["Mapping[str, Any]", int]]
"""Rows of a group with counts that are not zero."""


def is_exact_sum(call: AggregateCall) -> bool:
    """Return whether a call is a sum over records that another record can cancel exactly: a count, a sum or a mean of numbers that are no floats."""
    if call.distinct or call.function not in ("count", "sum", "avg"):
        return False
    return call.function == "count" or not call.args[0].type.is_float


def is_present(calls: Iterable[AggregateCall], rows: Rows) -> bool:
    """Return whether a group has a result: while any row is left; where all its aggregates are sums, while one is not zero."""
    return any(sums(calls, rows)) if all(map(is_exact_sum, calls)) else bool(rows)


def sums(calls: Iterable[AggregateCall], rows: Rows) -> Iterator[Any]:
    """Give the sums that accumulable aggregates are functions of: of counts, of values times counts."""
    yield sum(count for _, count in rows)
    for call in calls:
        for argument in call.args:
            present = _present(call, rows)
            yield sum(count for _, count in present)
            if call.function != "count":
                zero = dt.timedelta() if argument.type.kind == "duration" else 0
                yield sum((value * count for value, count in present), zero)


def aggregated(call: AggregateCall, rows: Rows) -> Any:
    """Return what an aggregate gives for a group; raises Fails."""
    if call.function == "count" and call.distinct:
        return len(_net(call, rows))
    if call.distinct or call.function not in {"count", "sum", "avg"}:
        there = [(row, count) for row, count in rows if count > 0]
        return aggregate(call, there) if there else None
    if call.function == "count":
        return aggregate(call, rows)
    number = sum(count for _, count in _present(call, rows))
    if number == 0 and (call.function == "avg" or call.type.nullable):
        return None
    if call.args[0].type.is_float:
        net = _net(call, rows)
        total = float_sum(net)
        if call.function == "sum":
            return total
        if math.isfinite(total) or not all(map(math.isfinite, net)):
            return total / number
        return large_mean(sum(Fraction(value) * count for value, count in net.items()), number)
    return aggregate(call, rows)


def float_sum(net: dict[float, int]) -> float:
    """Return the sum of values times counts, rounded once; infinities and NaN as in IEEE."""
    if not all(map(math.isfinite, net)):
        return sum(value * count for value, count in net.items() if not math.isfinite(value))
    return as_float(sum(Fraction(value) * count for value, count in net.items()))


def large_mean(exact: Fraction | int, count: int) -> float:
    """Return the mean of what has a sum beyond the floats: the sum is rounded 128 bits lower, as others are."""
    try:
        return math.ldexp(float(Fraction(exact) / 2**128) / count, 128)
    except OverflowError:
        return math.inf if (exact > 0) == (count > 0) else -math.inf


def as_float(exact: Fraction | int) -> float:
    """Return the nearest float, infinite beyond the largest."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _net(call: AggregateCall, rows: Rows) -> dict[Any, int]:
    """Return the values that are not null with the sums of their counts, where those are not zero."""
    net: dict[Any, int] = defaultdict(int)
    for value, count in _present(call, rows):
        net[value] += count
    return {value: count for value, count in net.items() if count}


def _present(call: AggregateCall, rows: Rows) -> list[tuple[Any, int]]:
    """Return the values that are not null, and their counts."""
    values = [(canonical(evaluate(call.args[0], row)), count) for row, count in rows]
    return [(value, count) for value, count in values if value is not None]
