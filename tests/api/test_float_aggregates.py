"""Aggregates of floats at the ends of their range: sums are exact and rounded once, whatever comes and goes.

Judged by fractions over the values that are there, group by group and time by time.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.api import Dataflow
from tests.draws import many
from tests.reference.aggregates import as_float

if TYPE_CHECKING:
    from collections.abc import Iterable

FLOATS = [1e16, 1.0, -1e16, 0.1, 0.3, 1e308, 1.7e308, -1.7e308, 5e-324, math.inf, -math.inf, math.nan, None]
AGGREGATES = {
    "sum": "sum(x)",
    "mean": "avg(x)",
    "sum_of_distinct": "sum(distinct x)",
    "mean_of_distinct": "avg(distinct x)",
    "var_pop": "var_pop(x)",
    "var_samp": "var_samp(x)",
    "stddev": "stddev_pop(x)",
}


def total(values: Iterable[float]) -> float:
    """Return the float nearest to the sum."""
    values = list(values)
    if not all(map(math.isfinite, values)):
        return sum(value for value in values if not math.isfinite(value))
    return as_float(sum(map(Fraction, values)))


def mean(values: list[float]) -> float | None:
    """Return the sum, rounded once, over the number: finite wherever the mean is."""
    if not values:
        return None
    found = total(values)
    if math.isfinite(found) or not all(map(math.isfinite, values)):
        return found / len(values)
    return math.ldexp(float(sum(map(Fraction, values)) / 2**128) / len(values), 128)


def variance(values: list[float], sample: int) -> float | None:
    """Return the mean square of the distances from the mean."""
    if len(values) <= sample:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    return as_float(exact_variance(values) / (len(values) - sample) * len(values))


def exact_variance(values: list[float]) -> Fraction:
    """Return the mean square of the distances from the mean, exactly."""
    middle = sum(map(Fraction, values)) / len(values)
    return sum((Fraction(value) - middle) ** 2 for value in values) / Fraction(len(values))


def deviation(values: list[float]) -> float | None:
    """Return the root of the variance, which may be a float where that isn't."""
    if not values or not all(map(math.isfinite, values)):
        return math.nan if values else None
    square = exact_variance(values)
    with localcontext() as context:
        context.prec = 40
        return float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())


def expected(rows: Counter[float | None]) -> dict[str, float | None]:
    """Return what the aggregates are, from the definition."""
    values = [value for value in rows.elements() if value is not None]
    distinct = [value for value in rows if value is not None]
    return {
        "sum": total(values) if values else None,
        "mean": mean(values),
        "sum_of_distinct": total(distinct) if distinct else None,
        "mean_of_distinct": mean(distinct),
        "var_pop": variance(values, 0),
        "var_samp": variance(values, 1),
        "stddev": deviation(values),
    }


def agree(name: str, ours: object, wanted: float | None) -> bool:
    """Return whether they are the same float. Variances are exact where they are 0, infinite or NaN, else near."""
    if ours is None or wanted is None:
        return ours is wanted
    assert isinstance(ours, float)
    if math.isnan(wanted) or math.isnan(ours):
        return math.isnan(wanted) and math.isnan(ours)
    if name in ("var_pop", "var_samp", "stddev") and wanted != 0:
        return math.isclose(ours, wanted, rel_tol=1e-9)
    return ours == wanted


@settings(max_examples=many(40))
@given(
    epochs=st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(FLOATS), st.sampled_from([1, 1, 2, -1])), max_size=6),
        min_size=1,
        max_size=3,
    )
)
def test_floats_come_and_go(epochs: list[list[tuple[str, float | None, int]]]) -> None:
    """At each time every aggregate is what the definition says of the values that are there."""
    dataflow = Dataflow()
    given_ = dataflow.input("given", {"k": "string", "x": "float64?"})
    output = given_.reduce(by=["k"], **AGGREGATES).output()
    there: dict[str, Counter[float | None]] = {"a": Counter(), "b": Counter()}
    found: Counter[tuple[object, ...]] = Counter()
    for time, updates in enumerate(epochs):
        for key, value, diff in updates:
            most = max(diff, -there[key][value])  # nothing is there less than no times
            if most:
                given_.update((key, value), most)
                there[key][value] += most
        given_.advance_to(time + 1)
        dataflow.step()
        for record, _, diff in output.updates():
            found[tuple("nan" if part != part else part for part in record)] += diff  # noqa: PLR0124
        groups = {record[0]: record[1:] for record, count in found.items() if count}
        assert set(groups) == {key for key, rows in there.items() if rows.total()}
        for key, record in groups.items():
            rows = Counter({value: count for value, count in there[key].items() if count})
            for (name, wanted), ours in zip(expected(rows).items(), record, strict=True):
                value = math.nan if ours == "nan" else ours
                assert agree(name, value, wanted), (name, value, wanted, rows)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1e16, 1.0, -1e16], {"sum_of_distinct": 1.0, "mean_of_distinct": 1.0 / 3}),
        ([1e308, 1e308], {"mean": 1e308, "sum": math.inf, "var_pop": 0.0, "stddev": 0.0}),
        ([1.7e308, 1e308], {"mean_of_distinct": 1.35e308}),
        ([0.1, 0.1, 0.1], {"var_pop": 0.0, "var_samp": 0.0}),
        ([1e308, -1e308], {"var_pop": math.inf, "stddev": 1e308}),
    ],
)
def test_ends_of_the_range(values: list[float], wanted: dict[str, float]) -> None:
    """Examples, to be read."""
    dataflow = Dataflow()
    given_ = dataflow.input("given", {"k": "int64", "x": "float64"})
    output = given_.reduce(by=["k"], **{name: AGGREGATES[name] for name in wanted}).output()
    for value in values:
        given_.insert((0, value))
    given_.advance_to(1)
    dataflow.step()
    assert [record[1:] for record, _, _ in output.updates()] == [tuple(wanted.values())]
