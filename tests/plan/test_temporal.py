"""Operators that know of time: the types of bounds, and functions that give times."""

import datetime as dt

import polars as pl
import pytest

from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import MapStep
from ddcli.expressions.types import parse_type
from ddcli.plan.temporal import JoinFunction, Temporal
from tests.cases import cases
from tests.plan.support import SCHEMAS, chain, logical, problems


def bounds(filter_, time="int64"):
    """Return the bounds of a filter as texts of expressions and types."""
    (node,) = [
        each
        for each in logical(chain(f"temporal_filter: {filter_}", source="w"), time=(time,)).nodes()
        if isinstance(each, Temporal)
    ]
    return [bound and (bound.text(), str(bound.type)) for bound in (node.lower, node.upper)]


@pytest.mark.parametrize(
    ("filter_", "time", "found"),
    [
        ("{from: n, until: n + 3}", "int64", [("n", "int64?"), ("(n + 3)", "int64?")]),
        ("{from: i}", "int64", [("cast(i as int64)", "int64"), None]),
        ("{until: u}", "int64", [None, ("cast(u as int64)", "int64")]),
        ("{until: 7}", "int64", [None, ("7", "int64")]),
        ("{from: d}", "date", [("d", "date"), None]),
        ("{from: d}", "datetime[us]", [("cast(d as datetime[us])", "datetime[us]"), None]),
        ("{from: t}", "datetime[us]", [("t", "datetime[us]?"), None]),
        ("{from: m}", "datetime[us]", [("cast(m as datetime[us])", "datetime[us]"), None]),
        ("{from: m, until: \"m + interval '30' day\"}", "datetime[ms]", [("m", "datetime[ms]"), None]),
        ("{from: z}", "datetime[ns, UTC]", [("z", "datetime[ns, UTC]"), None]),
    ],
)
def test_bounds_have_the_type_of_time(filter_, time, found):
    given = bounds(filter_, time)
    assert given[0] == found[0]
    assert found[1] is None or given[1] == found[1]
    assert all(bound is None or bound[1].removesuffix("?") == time for bound in given)


def test_a_finer_bound_is_rounded_up():
    """Where now is a whole millisecond, `from <= now < until` holds of bounds in microseconds as of these."""
    graph = logical(chain("temporal_filter: {from: t}", source="w"), time=("datetime[ms]",))
    lower = graph.outputs["c"].lower
    day = dt.datetime(1969, 12, 31, 12, tzinfo=dt.UTC).replace(tzinfo=None)
    moments = [day + dt.timedelta(microseconds=each) for each in (0, 1, 999, 1000, 1001)]
    schema = {name: parse_type(kind) for name, kind in SCHEMAS["w"].items()}
    frame = pl.DataFrame({"t": [*moments, None]}, schema={"t": pl.Datetime("us")})
    found = FusedSteps(schema, (MapStep((("x", lower),)),)).run(frame).frame["x"]
    assert found.dtype == pl.Datetime("ms")
    assert [(each - day) // dt.timedelta(milliseconds=1) if each else None for each in found] == [0, 1, 1, 1, 2, None]


@cases("""
bound → time → problem → hint
d → int64 → a bound is of the type of the pipeline's time, int64, not date → give an integer, as time is
i → date → a bound is of the type of the pipeline's time, date, not int32 → give a date, as time is: `cast(... as date)`
m → date → a bound is of the type of the pipeline's time, date, not datetime[ms] → give a date, as time is: `cast(... as date)`
s → datetime[us] → a bound is of the type of the pipeline's time, datetime[us], not string → give a timestamp, as time is: `cast(... as timestamp)`
z → datetime[us] → a bound is of the type of the pipeline's time, datetime[us], not datetime[ns, UTC] → give a timestamp, as time is: `cast(... as timestamp)`
d → datetime[us, UTC] → a bound is of the type of the pipeline's time, datetime[us, UTC], not date → give a timestamp, as time is: `cast(... as timestamp)`
q → int64 → no column is named `q` → in scope: d, i, m, n, s, t, u, z
""")
def test_a_bound_of_another_type_is_refused(bound, time, problem, hint):
    found = problems(chain(f"temporal_filter: {{until: {bound}}}", source="w"), time=(time,))
    assert found == [(f"8:34 collections.c.apply[0].temporal_filter: {problem}", hint)]


def test_times_of_several_coordinates_know_no_now():
    ((problem, _),) = problems(chain("temporal_filter: {until: n}", source="w"), time=("int64", "int64"))
    assert (
        problem
        == "8:9 collections.c.apply[0].temporal_filter: a temporal_filter needs one time coordinate; here time has 2"
    )


def test_a_join_function_gives_its_columns():
    function = "join_function: {function: 'math:ceil', columns: {a: int64, time: string?}"
    graph = logical(chain(function + "}") + chain("drop: [time]", source="c", name="e"), "{e: e/}")
    (node,) = [each for each in graph.nodes() if isinstance(each, JoinFunction)]
    assert {name: str(kind) for name, kind in node.schema.items()} == {"a": "int64", "time": "string?"}
    assert (node.function, node.batch) == ("math:ceil", False)


@pytest.mark.parametrize(
    ("arguments", "time", "problem"),
    [
        ("function: 'math:ceill', columns: {a: int64}", 1, "8:35 collections.c.apply[0].join_function: module `math` has no function `ceill`"),
        ("function: 'math:ceil', batch: true, columns: {row: int64}", 1, "8:71 collections.c.apply[0].join_function: the column 'row' would hide the frame's own: it holds the row, time and diff of each update"),
        ("function: 'math:ceil', batch: true, columns: {time1: int64}", 2, "8:71 collections.c.apply[0].join_function: the column 'time1' would hide the frame's own: it holds the row, time and diff of each update"),
    ],
)  # fmt: skip
def test_a_wrong_join_function(arguments, time, problem):
    ((found, _),) = problems(chain(f"join_function: {{{arguments}}}"), time=("int64",) * time)
    assert found == problem
