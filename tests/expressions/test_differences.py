"""What the table of differences states of this program and of DuckDB is so, what is noted of it, and functions are found by their meaning."""

import re
from functools import cache

import duckdb
import pytest

from ddcli import Dataflow
from ddcli.cli.reference import DIFFERENCES, ERROR, search
from ddcli.errors import DdError
from ddcli.expressions.aggregates import AGGREGATES
from ddcli.expressions.functions import FUNCTIONS
from tests.sql.judge import bound_notes


def value(expression):
    """Return what an expression is here, with its Python type."""
    try:
        dataflow = Dataflow()
        rows = dataflow.input("t", {"a": "int64"})
        output = rows.sql(f"select {expression} as x from self").output()
        rows.insert((1,))
        rows.close()
        dataflow.step()
        (((found,), _, _),) = output.updates()
    except DdError:
        return ERROR
    return type(found), str(found)


OLD = int(duckdb.__version__.partition(".")[0]) < 2
"""Whether this DuckDB refuses some of what DuckDB 2, which the table is about, has a value for."""


@cache
def database():
    """Return the one database of this process, as opening one takes longer than what is asked."""
    return duckdb.connect()


def duckdb_value(expression):
    text = expression.replace("float64", "double")
    try:
        (found,) = database().execute(f"select {text}").fetchone()
    except duckdb.Error:
        return ERROR
    return type(found), str(found)


@pytest.mark.parametrize("each", DIFFERENCES, ids=lambda each: each.expression)
def test_an_expression_is_what_the_table_has(each):
    assert value(each.expression) == (ERROR if each.here == ERROR else value(f"cast({each.here} as {kind(each.here)})"))
    there = duckdb_value(each.expression)
    assert there == (ERROR if each.duckdb == ERROR else duckdb_value(each.duckdb)) or (OLD and there == ERROR)
    assert each.here != each.duckdb
    assert len(DIFFERENCES) <= 15
    assert all(name in FUNCTIONS or name in AGGREGATES for name in each.functions)


def kind(text):
    """Return the type of a constant of the table."""
    if text.startswith("'"):
        return "string?"
    if re.fullmatch(r"[\d.]+e\d+", text):
        return "float64"
    if "." in text and "e" not in text:
        return f"decimal(38, {len(text.partition('.')[2])})"
    return "date" if text.startswith("date") else "int64"


def test_what_duckdb_computes_in_another_type_is_noted():
    for call in ("m / a", "avg(m)", "mean(m)", "median(m)", "quantile_cont(m, 0.3)"):
        ((span, note),) = bound_notes(f"select {call} as x from w group by a, m")
        assert "of decimals" in note
        assert str(span) == "query:1:8"
    assert bound_notes("select a / 2 as x, avg(a) as y, median(cast(m as float64)) as z from w group by a") == ()


def test_functions_are_found_by_name_and_by_meaning():
    assert search("substr")[0].name == "substring"
    assert "week" in [each.name for each in search("ISO week")]
    assert search("nothing of the kind") == []


@pytest.mark.parametrize(
    ("part", "begins"),
    [
        ("select e.b, min(r.n + 1) from r join t e on r.a = e.a group by e.b", "groups here have all rows"),
        ("select x.a, y.n from r x join r y on x.n = y.a", "each side of a join here has all rows"),
        ("select e.b, r.n from r join t e on r.a = e.a", None),
    ],
)
def test_a_recursion_that_needs_more_than_the_last_round_is_noted(part: str, begins: str | None) -> None:
    """DuckDB shows a recursive part the rows of the last round alone, and here it has all rows."""
    notes = bound_notes(f"with recursive r(a, n) as (select a, 1 from t union {part}) select a, n from r")
    assert [note.startswith(begins or "-") for _, note in notes] == ([] if begins is None else [True] * len(notes))
    assert bool(notes) == (begins is not None)
