"""Random typed expressions mean the same by polars and by the plain evaluator: values and failing rows."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ddcli.errors import InputError, SpecError
from ddcli.expressions import execute, lower
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.steps import MapStep
from tests.draws import many
from tests.expressions.generate import COLUMNS, any_expression, rows
from tests.expressions.support import frame_of, scalar, schema
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
        patch.setattr(execute, "LARGE", 1 if way == "large" else 10**9)
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


def test_moments_are_compared_by_type() -> None:
    """A date is no timestamp, though Python's classes are related."""
    assert not agree(dt.date(2013, 1, 1), dt.datetime(2013, 1, 1))  # noqa: DTZ001
