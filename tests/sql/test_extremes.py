"""Calls over null, empty and extreme values, mixed as constants and columns: the engine has the reference's value, or the call is refused or fails; it never crashes."""

from collections import Counter
from decimal import Decimal
from fractions import Fraction

import pytest

from ddcli import Dataflow
from ddcli.errors import DdError, InputError
from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.functions import FUNCTIONS, SYNONYMS
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import MapStep
from ddcli.plan import logical
from ddcli.plan.relation import Relation
from tests.draws import chance, many, some
from tests.expressions.support import frame_of, scalar, schema
from tests.reference.expressions import Fails, evaluate
from tests.reference.model import Model, total
from tests.reference.values import canonical
from tests.reference.values import plain as unfrozen
from tests.sql.extremes import COLUMNS, FORMS, VALUES, Calls
from tests.sql.judge import bound

SCHEMA = schema(COLUMNS)
CALLED = [name for name in [*FUNCTIONS, *SYNONYMS] if name.isidentifier()]
CALLED = [
    name
    for name in CALLED
    if name not in ("substring", "substr", "in", "like", "ilike", "and", "or", "not", "negate", "error")
]
HOLES = [form.strip() for form in FORMS.replace("\n", ";").split(";") if form.strip()]


def shown(value, *, nested=False):
    """Return a value as text: floats in ten digits, and an element of a list without its type."""
    if isinstance(value, float) or (nested and isinstance(value, int | Decimal) and not isinstance(value, bool)):
        return f"{float(value) + 0.0:.10g}"
    if isinstance(value, Decimal):
        return str(Fraction(value))
    if isinstance(value, list):
        return [shown(each, nested=True) for each in value]
    if isinstance(value, dict):
        return {name: shown(each, nested=True) for name, each in value.items()}
    return str(value)


def rows(draw, count):
    return [{name: draw.choice(values) for name, values in VALUES.items()} for _ in range(count)]


def check(text, draw):
    """Return False if a call is refused; else check its values, in each row alone and in all together."""
    try:
        expression = scalar(text, COLUMNS)
    except DdError:
        return False
    if not expression.type.is_known or expression.type.kind == "months":  # no column has either
        return False
    stage = FusedSteps(SCHEMA, (MapStep((("value", expression),)),))
    fine, wanted = [], []
    for row in rows(draw, 4):
        try:
            value = evaluate(expression, row)
        except Fails:
            with pytest.raises(InputError):
                stage.run(frame_of(SCHEMA, [row]))
            continue
        fine.append(row)
        wanted.append(value)
    found = stage.run(frame_of(SCHEMA, fine)).frame["value"].to_list()
    assert list(map(shown, found)) == list(map(shown, wanted)), (text, fine)
    return True


@pytest.mark.parametrize("name", [*some(CALLED)])
def test_a_function_of_any_values(name):
    draw = chance("extremes", name)
    for _ in range(many(10)):
        check(Calls(draw).scalar(name), draw)


@pytest.mark.parametrize("form", [*some(HOLES), "cast"])
def test_a_form_of_any_values(form):
    draw = chance("extremes", form)
    for _ in range(many(40)):
        check(Calls(draw).cast() if form == "cast" else Calls(draw).form(form), draw)


@pytest.mark.parametrize("name", [*some([*AGGREGATES, *sorted(AGGREGATE_SYNONYMS)])])
def test_an_aggregate_of_any_values(name):
    draw = chance("extremes", name)
    for _ in range(many(8)):
        call = Calls(draw).aggregate(name)
        by = draw.choice(["", " group by b", " group by tiny"])
        # Moments of floats are not exact.
        exact = AGGREGATES[AGGREGATE_SYNONYMS.get(name, name)].accepts not in ("number", "numbers")
        judge(f"select {call} as r from x{by}", rows(draw, 6), exact=exact)


def judge(text, given, *, exact):
    """Check that a statement over a table `x` with these rows has a result, with `exact` the reference's."""
    try:
        node = bound(text, {"x": Relation(logical.Source((), SCHEMA, "x"))})
    except DdError:
        return
    counts = Counter(tuple(canonical(value) for value in row.values()) for row in given)
    try:
        model = Model({"x": total(counts.items())}, (0,), frozenset("x"))
        wanted = sorted(str((list(map(shown, map(unfrozen, record))), n)) for record, n in model.output(node).items())
    except Fails:
        wanted = None
    dataflow = Dataflow()
    table = dataflow.input("x", COLUMNS)
    output = dataflow.sql(text, x=table).output()
    for row in given:
        table.insert(tuple(row.values()))
    table.advance_to(1)
    try:
        dataflow.step()
        found = sorted(str((list(map(shown, record)), diff)) for record, _, diff in output.updates())
    except DdError:
        found = None
    assert found == wanted or not exact, (text, given)
