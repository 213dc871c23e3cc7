"""What the table of differences states of this program and of DuckDB is so, and what is noted of it."""

import re
from functools import cache

import duckdb
import pytest

from ddcli import Dataflow
from ddcli.errors import DdError
from ddcli.expressions.aggregates import AGGREGATES
from ddcli.expressions.catalogue import search
from ddcli.expressions.differences import DIFFERENCES, ERROR
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
    assert (each.here, each.here) != (each.duckdb, each.spark)
    assert all(name in FUNCTIONS or name in AGGREGATES for name in each.functions)


def kind(text):
    """Return the type of a constant of the table."""
    if text.startswith("interval"):
        return "duration[us]"
    if re.fullmatch(r"[\d.]+e\d+", text):
        return "float64"
    if "." in text and "e" not in text:
        return f"decimal(38, {len(text.partition('.')[2])})"
    return "string?" if text.startswith("'") else "date" if text.startswith("date") else "int64"


def test_what_reads_otherwise_elsewhere_is_noted():
    noted = {
        "select a / 2 as x from t": "`/` of integers",
        "select concat(s, 'x') as x from t": "concat is null",
        "select greatest(a, b) as x from t": "greatest is null",
        "select max_by(a, b) as x from t group by s": "max_by is null",
        "select arg_min(b, a) as x from t group by s": "arg_min is null",
    }
    for text, words in noted.items():
        ((span, note),) = bound_notes(text)
        assert words in note
        assert str(span) == "query:1:8"
    assert bound_notes("select a / 2.0 as x, greatest(a, 1) as y, concat('x', 'y') as z from t") == ()
    assert bound_notes("select s || 'x' as x from t") == ()
    assert bound_notes("select max_by(b, a) filter (where b is not null) as x, max_by(a, a + 1) as y from t") == ()


def test_functions_are_found_by_name_and_by_meaning():
    assert search("substr")[0].name == "substring"
    assert "week" in [each.name for each in search("ISO week")]
    assert search("nothing of the kind") == []
