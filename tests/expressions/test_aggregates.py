"""Aggregates: how they are read, and the general ones against their definition."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.errors import SpecError
from ddcli.expressions.aggregates import AGGREGATES, AggregateCall, aggregate_expression
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import MapStep
from tests.cases import cases
from tests.draws import many
from tests.expressions.generate import VALUES
from tests.expressions.support import frame_of, reduction, schema
from tests.expressions.test_agreement import agree
from tests.reference.expressions import Fails, aggregate

COLUMNS = {
    "i": "int64?",
    "f": "float64?",
    "d": "decimal(12, 2)?",
    "s": "string?",
    "b": "bool?",
    "y": "int64?",
    "n": "int64",
}
SCHEMA = schema(COLUMNS)


def polars_value(call: AggregateCall, rows: list[tuple[dict[str, object], int]]) -> object:
    """Evaluate a general aggregate as its contract says: arguments, order keys, repeated rows, sorted."""
    columns = [(f"a{i}", arg) for i, arg in enumerate(call.args)] + [
        (f"o{i}", key) for i, (key, _) in enumerate(call.order_by)
    ]
    repeated = [row for row, count in rows for _ in range(count)]
    frame = FusedSteps(SCHEMA, (MapStep(tuple(columns)),)).run(frame_of(SCHEMA, repeated)).frame
    keys = [f"o{i}" for i in range(len(call.order_by))]
    descending = [order for _, order in call.order_by]
    frame = frame.sort([*keys, "a0"], descending=[*descending, False], nulls_last=[*(not d for d in descending), True])
    found = frame.group_by(pl.lit(1).alias("group"), maintain_order=True).agg(
        aggregate_expression(call).alias("value")
    )["value"]
    assert found.dtype == call.type.to_polars(), (call.text(), found.dtype)
    return found.to_list()[0]


GENERAL = [
    "count(distinct i)",
    "count(distinct f)",
    "sum(distinct d)",
    "sum(distinct i)",
    "avg(distinct d)",
    "avg(distinct i)",
    "bool_and(b)",
    "bool_or(b)",
    "bit_and(i)",
    "bit_or(i)",
    "bit_xor(i)",
    "bit_xor(distinct i)",
    "product(f)",
    "product(distinct f)",
    "mode(i)",
    "mode(s)",
    "mode(f)",
    "median(f)",
    "quantile_cont(f, 0.3)",
    "quantile_disc(i, 0.3)",
    "quantile_disc(f, 0)",
    "array_agg(s order by y)",
    "array_agg(i order by y desc, s)",
    "string_agg(s, ', ' order by i desc)",
    "array_agg(distinct s order by s desc)",
    "array_agg(distinct f order by f nulls first)",
    "string_agg(distinct s, '+' order by s)",
]
PAIRS = [
    "corr",
    "covar_pop",
    "covar_samp",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
]
FEW = st.one_of(st.none(), st.sampled_from([0.0, -1.5, 2.0, 3.25, 100.0, 0.1, math.inf, math.nan]))
SIZES = st.sampled_from([0, 1023, 1000, 500, 401, 400, -399, -401, -500, -970])
"""Powers of two: their squares, and products of two of them, may be no floats."""
PARTS = st.sampled_from([0.0, 1.0, -1.0, 0.5, -0.75, 1 + 2.0**-52, 1 - 2.0**-53])


@pytest.mark.parametrize("name", [*PAIRS, "regr_count", "regr_avgx", "regr_avgy"])
@settings(max_examples=many(25))
@given(values=st.lists(st.tuples(FEW, FEW, st.integers(1, 3)), min_size=1, max_size=6))
def test_aggregates_of_pairs_agree(name: str, values: list[tuple[float | None, float | None, int]]) -> None:
    """Of rows in which both are there, to the last digits that floats have."""
    (call,) = reduction(f"{name}(f, g)", {"f": "float64?", "g": "float64?"}).calls
    rows = [({"f": y, "g": x}, count) for y, x, count in values]
    expected = aggregate(call, rows)
    if call.function in PAIRS:
        found = of_pairs(call, rows)
        assert (found is None) == (expected is None), (found, expected)
        assert found is None or math.isnan(found) == math.isnan(expected), (found, expected)
        assert found is None or math.isnan(found) or math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)
    else:
        both = [(y, x) for y, x, count in values for _ in range(count) if y is not None and x is not None]
        assert (call.function, expected) == ("count", len(both)) or call.function == "avg"


def of_pairs(call: AggregateCall, rows: list[tuple[dict[str, float | None], int]]) -> float | None:
    """Return an aggregate of pairs, by polars."""
    repeated = [row for row, count in rows for _ in range(count)]
    columns = {f"a{at}": [row[arg.name] for row in repeated] for at, arg in enumerate(call.args)}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64)).sort("a0", "a1", nulls_last=True)
    (found,) = frame.group_by(pl.lit(1)).agg(aggregate_expression(call).alias("value"))["value"].to_list()
    return found


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=many(60))
@given(values=st.lists(st.tuples(PARTS, PARTS, st.integers(1, 3)), min_size=1, max_size=5), y_size=SIZES, x_size=SIZES)
def test_aggregates_of_pairs_of_every_size_agree(
    name: str, values: list[tuple[float, float, int]], y_size: int, x_size: int
) -> None:
    """Values whose squares are no floats, and values that are next to each other."""
    (call,) = reduction(f"{name}(f, g)", {"f": "float64?", "g": "float64?"}).calls
    rows = [({"f": math.ldexp(y, y_size), "g": math.ldexp(x, x_size)}, count) for y, x, count in values]
    found, expected = of_pairs(call, rows), aggregate(call, rows)
    assert (found is None) == (expected is None), (found, expected)
    assert found is None or found == expected or is_near(name, rows, found, expected), (found, expected)


def is_near(name: str, rows: list[tuple[dict[str, float], int]], found: float, expected: float) -> bool:
    """Return whether both differ by a billionth of what an aggregate can be at most: what is left of sums that cancel out is as exact as their parts."""
    if not math.isfinite(found) or not math.isfinite(expected):
        return False
    y, x = ([Fraction(row[side]) for row, count in rows for _ in range(count)] for side in "fg")
    yy, xx = (sum((each - sum(side) / len(side)) ** 2 for each in side) for side in (y, x))
    most = {"corr": 1, "regr_r2": 1, "regr_sxx": xx**2, "regr_syy": yy**2}.get(name, xx * yy)
    if name in ("regr_slope", "regr_intercept"):
        most = yy / xx * (1 if name == "regr_slope" else max(map(abs, x)) ** 2)
    most += max(map(abs, y)) ** 2 if name == "regr_intercept" else 0
    return (Fraction(found) - Fraction(expected)) ** 2 <= most / 10**18 + Fraction(1e-320) ** 2


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("mode() within group (order by f)", "mode(f)"),
        ("percentile_cont(0.25) within group (order by f)", "quantile_cont(f, 0.25)"),
        ("percentile_disc(0.25) within group (order by f)", "quantile_disc(f, 0.25)"),
        ("listagg(s, ',') within group (order by i desc, s)", "string_agg(s, ',' order by i desc, s)"),
        ("string_agg(distinct s, ',') within group (order by s)", "string_agg(distinct s, ',' order by s)"),
        ("regr_syy(f, i)", "regr_sxx(i, f)"),
    ],
)
def test_other_ways_to_write_them(written: str, same: str) -> None:
    """They are one call."""
    assert reduction(written, COLUMNS).calls == reduction(same, COLUMNS).calls


@pytest.mark.parametrize("written", GENERAL)
@settings(max_examples=many(25))
@given(data=st.data())
def test_general_aggregates_agree(written: str, data: st.DataObject) -> None:
    """Values and multiplicities, by polars and by definition."""
    (call,) = reduction(written, COLUMNS).calls
    maybe = {
        name: st.one_of(st.none(), VALUES[type_.removesuffix("?")]) for name, type_ in COLUMNS.items() if name != "n"
    }
    records = st.fixed_dictionaries({**maybe, "n": st.just(0), "y": st.one_of(st.none(), st.integers(0, 2))})
    rows = data.draw(st.lists(st.tuples(records, st.integers(1, 3)), min_size=1, max_size=5))
    try:
        expected = aggregate(call, rows)
    except Fails:
        assert polars_value(call, rows) is None
        return
    assert agree(polars_value(call, rows), expected)


@pytest.mark.parametrize(
    ("written", "values", "expected"),
    [
        ("median(f)", [1.0, 4.0, 2.0, 3.0], 2.5),
        ("median(f)", [-math.inf, -math.inf], -math.inf),
        ("median(f)", [-math.inf, 1.0], -math.inf),
        ("median(f)", [-math.inf, math.inf], math.nan),
        ("median(f)", [-1.7e308, 1.7e308], 0.0),
        ("median(f)", [math.nan, 2.0, 1.0], 2.0),
        ("quantile_cont(f, 0.75)", [1.0, math.inf], math.inf),
        ("quantile_cont(f, 0.75)", [-1e308, 1e308], 5e307),
        ("quantile_cont(f, 0.25)", [1.0, 2.0, 3.0, 4.0], 1.75),
        ("product(f)", [2.5, None, -4.0, 0.5], -5.0),
        ("product(f)", [None], None),
        ("product(f)", [math.inf, 0.0], math.nan),
        ("stddev_samp(f)", [1.0, 3.0], math.sqrt(2)),
        ("stddev_samp(f)", [1.0], None),
        ("stddev_pop(f)", [1.0, 3.0], 1.0),
        ("var_samp(f)", [1.0, 3.0], 2.0),
        ("var_pop(f)", [1.0, None, 3.0], 1.0),
        ("var_pop(f)", [0.1, 0.1, 0.1], 0.0),
        ("stddev_samp(f)", [1e308, 1e308], 0.0),
        ("var_pop(f)", [math.inf], math.nan),
        ("var_samp(f)", [math.inf], None),
        ("stddev_samp(f)", [math.inf, 1.0], math.nan),
    ],
)
def test_statistics(written: str, values: list[float | None], expected: float | None) -> None:
    """The ones that need no extremes."""
    (call,) = reduction(written, COLUMNS).calls
    rows = [({"i": 0, "d": None, "s": "", "b": True, "y": 0, "n": 0, "f": value}, 1) for value in values]
    for found in (polars_value(call, rows), aggregate(call, rows)):
        assert agree(found, expected)


def test_an_expression_over_aggregates() -> None:
    """Equal calls are made once; the result reads their columns."""
    found = reduction("round(sum(d) / count(*), 2) + 0 * sum(d)", COLUMNS)
    assert [call.text() for call in found.calls] == ["sum(d)", "count(*)"]
    assert found.result.columns() == {"$0", "$1"}
    assert str(found.calls[0].type) == "decimal(38, 2)?"
    assert str(found.calls[1].type) == "int64"
    columns = {f"${i}": call.type for i, call in enumerate(found.calls)}
    stage = FusedSteps(columns, (MapStep((("mean", found.result),)),))
    frame = frame_of(columns, [{"$0": Decimal("10.00"), "$1": 3}])
    assert stage.run(frame).frame.to_dicts() == [{"mean": Decimal("3.33")}]


def test_max_by_is_last() -> None:
    """A row without a key counts last for both, as in SQL."""
    (call,) = reduction("max_by(s, y)", COLUMNS).calls
    assert call.function == "last"
    rows = [({"s": text, "y": key}, 1) for text, key in (("a", 1), ("b", 2), ("c", None))]
    assert aggregate(call, rows) == "b"
    (call,) = reduction("min_by(s, y)", COLUMNS).calls
    assert aggregate(call, rows) == "a"


@cases("""
written → problem → hint
i + sum(i) → `i` may differ → group by it
first(i) → a collection has no order → order by
sum(sum(i)) → inside another aggregate → twice
cuont(*) → no function is named `cuont` → `count`
sum(s) → expects numbers, got string
count(distinct i, y) → one value
sum(i order by y) → does not depend on an order
median(distinct i) → takes no `distinct`
mode() within group (order by i desc) → is not allowed behind this → ascending
sum(i) within group (order by i) → is not allowed behind this → percentile_cont
array_agg(distinct i order by y) → ordered by themselves → distinct x order by x
corr(i, s) → expects numbers, got string
corr(i) → takes 2 arguments, got 1 → corr(y, x)
sum(i) over () → a window function is not allowed here → `window`
count(*) filter (where b) → not supported → case when
quantile_cont(f, 2) → from 0 to 1
1 + 1 → not an aggregate → count(*)
sum(i, y) → takes 1 argument
sum(*) → only in count(*)
""")
def test_mistakes(written: str, problem: str, hint: str) -> None:
    """Each is reported at its place, with a way out."""
    with pytest.raises(SpecError) as caught:
        reduction(written, COLUMNS)
    assert problem in caught.value.problem
    assert hint in (caught.value.hint or "")
    assert caught.value.span


@pytest.mark.parametrize(
    "written", ["max(i, 2)", "min(i, 1)", "quantile_disc(i, [0.5e0])", "quantile_disc(i, [0.0e0, 1.0e0])"]
)
def test_the_text_of_a_list_of_values_is_that_of_its_call(written: str) -> None:
    (call,) = reduction(written, COLUMNS).calls
    assert call.text() == written


def test_the_table_documents_every_aggregate() -> None:
    """Signature and sentence."""
    for aggregate_ in AGGREGATES.values():
        assert aggregate_.signature.startswith(aggregate_.name)
        assert aggregate_.doc.endswith(".")
