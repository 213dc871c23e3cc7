"""Random typed expressions mean the same by polars and by the plain evaluator: values and failing rows."""

from __future__ import annotations

import datetime as dt
import math
from contextlib import suppress
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ddcli.errors import InputError, SpecError
from ddcli.expressions import lower
from ddcli.expressions import stage as stages
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import MapStep
from tests.draws import chance, many, some
from tests.expressions.generate import COLUMNS, any_expression, rows
from tests.expressions.support import frame_of, scalar, schema, values
from tests.reference.expressions import Fails, evaluate

SCHEMA = schema(COLUMNS)


def agree(a: object, b: object) -> bool:
    """Return whether two values are equal; transcendental functions may differ in the last bits."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-12)
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a == b and a.as_tuple().exponent == b.as_tuple().exponent
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(agree(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(agree, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("way", ["small", "large", "in steps"])
@settings(max_examples=many(100))
@given(written=any_expression(), records=st.lists(rows(), min_size=1, max_size=4))
def test_values_and_failures_agree(way: str, written: str, records: list[dict[str, object]]) -> None:
    """Each row alone, so that a failing row is told from the others; the paths of large frames and of deep trees too."""
    try:
        expression = scalar(written, COLUMNS)
    except SpecError as error:
        # The grammar of `generate` is by kind; digits of decimals are known to the type checker alone.
        assume("digits" not in error.problem and "range" not in error.problem)
        raise
    stage = FusedSteps(SCHEMA, (MapStep((("value", expression),)),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "LARGE", 1 if way == "large" else 10**9)
        if way == "in steps":
            patch.setattr(lower, "SHALLOW", 0)
            patch.setattr(lower, "STEP", 1)
        fine = []
        for record in records:
            try:
                expected = evaluate(expression, record)
            except (Fails, OverflowError):
                with pytest.raises(InputError):
                    stage.run(frame_of(SCHEMA, [record]))
                continue
            fine.append((record, expected))
        found = stage.run(frame_of(SCHEMA, [record for record, _ in fine])).frame["value"]
        assert found.dtype == expression.type.to_polars()
        for value, (record, expected) in zip(found.to_list(), fine, strict=True):
            assert agree(value, expected), (written, str(expression), record, value, expected)
            assert expression.type.nullable or value is not None


@settings(max_examples=many(300))
@given(written=any_expression(), records=st.lists(rows(), min_size=2, max_size=5))
def test_a_value_does_not_depend_on_the_rows_beside_it(written: str, records: list[dict[str, object]]) -> None:
    """To the last bit: what one run inserts among others another run retracts alone."""
    try:
        expression = scalar(written, COLUMNS)
    except SpecError:
        assume(False)
    stage = FusedSteps(SCHEMA, (MapStep((("value", expression),)),))
    alone: list[tuple[dict[str, object], str]] = []
    for record in records:
        with suppress(InputError):
            alone.append((record, repr(stage.run(frame_of(SCHEMA, [record])).frame["value"].to_list())))
    together = stage.run(frame_of(SCHEMA, [record for record, _ in alone] * 2)).frame["value"]
    for at, (record, found) in enumerate(alone * 2):
        assert repr([together[at] if not isinstance(together[at], pl.Series) else together[at].to_list()]) == found, (
            written,
            record,
        )


@pytest.mark.parametrize("kind", [*some(["float64", "float32", "int64"])])
@pytest.mark.parametrize(
    "form",
    [
        *("x / 10e0", "x / 3e0", "try_divide(x, 7e0)", "x / cast(0.1 as float32)", "1e0 / cast(x as float64)", "x / y"),
        *("round(cast(x as float64), 2)", "round(x / 1e3, 3)", "round(cast(x as float64), -2)", "trunc(x / 7e0, 1)"),
        *("log10(abs(x) + 1)", "log(7, abs(x) + 1)", "radians(x)", "degrees(x)", "avg"),
    ],
)
def test_quotients_are_rounded_once_whatever_the_rows(kind: str, form: str) -> None:
    rng = chance("quotients", kind, form)
    kinds = {"x": kind, "y": "float64"}
    draw = (lambda: rng.randrange(-(10**12), 10**12)) if kind == "int64" else (lambda: rng.uniform(-1e9, 1e9))
    given_ = [draw() for _ in range(many(200))]
    if form == "avg":
        form = "list_avg([cast(x as decimal(20, 3)), 1.5])"
    # A column of one value is a number for all rows to polars, too.
    several = values(form, kinds, x=given_, y=[7.3] * len(given_))
    for given_one, found in zip(given_, several, strict=True):
        assert values(form, kinds, x=[given_one], y=[7.3]) == [found], given_one
    if kind != "float32" and form in ("x / 10e0", "x / 3e0", "x / y"):
        by = {"x / 10e0": 10.0, "x / 3e0": 3.0, "x / y": 7.3}[form]
        assert several == [one / by for one in given_]


@pytest.mark.parametrize("digits", [1, 2, 3, 8, 18])
def test_a_float_is_rounded_as_it_is_in_binary(digits: int) -> None:
    """Few decimal fractions that end with a 5 are halfway: 2.675 is less in binary, and 1.115 is more."""
    rng = chance("rounded", digits)
    given_ = [2.675, 1.115, 0.125, 2.0**52 / 10**digits, 2.0**53 + 2, 1e300, 5e-324, math.inf]
    for _ in range(many(500)):
        tie = (rng.randrange(-(10**6), 10**6) * 10 + 5) / 10 ** (digits + 1)
        exact = (rng.randrange(-(10**6), 10**6) * 2 + 1) / 2 ** rng.randrange(1, 20)
        given_ += [tie, math.nextafter(tie, 0), exact, math.ldexp(rng.uniform(-1, 1), rng.randrange(-80, 60))]
    wanted = [one if math.isinf(one) else _to_places(one, digits) for one in given_]
    assert values(f"round(x, {digits})", {"x": "float64"}, x=given_) == wanted


def _to_places(value: float, digits: int) -> float:
    with localcontext(Context(prec=2000)):
        return float(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def test_moments_are_compared_by_type() -> None:
    """A date is no timestamp, though Python's classes are related."""
    assert not agree(dt.date(2013, 1, 1), dt.datetime(2013, 1, 1))  # noqa: DTZ001
