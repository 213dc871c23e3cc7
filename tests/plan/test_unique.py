"""Columns that are a key of a collection, and what joins make of them."""

import pytest

from ddcli.plan import groupings, physical
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph
from tests.sql.judge import bound

KEYS = {
    "select distinct a, b from t": [{"a", "b"}],
    "select a, count(*) as n from t group by a": [{"a"}],
    "select n, a as x from (select a, count(*) as n from t group by a) where n > 1": [{"x"}],
    "select n from (select a, count(*) as n from t group by a)": [],
    "select a, b from t": [],
    "select a, a as x from (select distinct a from t)": [{"a"}],
    "select a, n from (select a, count(*) as n from t group by a) order by n limit 1": [set(), {"a"}],
    "select q.a, t.b from t, (select distinct a from u) q where q.a = t.b": [],
    "select q.a, x.n from (select distinct a from t) q, (select c, count(*) as n from u group by c) x where q.a = x.c": [{"a"}],
    "select a from (select distinct a from t) where a in (select c from u)": [{"a"}],
    "select distinct a from t union all select distinct a from u": [],
    "select q.a, i from (select distinct a from t) q, generate_series(1, 2) g(i)": [],
}  # fmt: skip


@pytest.mark.parametrize("text", KEYS)
def test_columns_that_are_a_key_are_known(text):
    graph = Graph({"out": bound(text)})
    assert sorted(map(set, graph.outputs["out"].unique), key=sorted) == KEYS[text]


@pytest.mark.parametrize(
    ("text", "joins", "distinct"),
    [
        ("select t.a, n from t left join (select c, count(*) as n from u group by c) x on t.a = x.c", 1, 0),
        ("select t.a, x.c from t left join u x on t.a = x.c", 2, 1),
        ("select a from t where a in (select distinct c from u)", 1, 1),
        ("select a from t where a in (select c from u)", 1, 1),
        ("select a from t where a in (select c from u group by c having count(*) > 1)", 1, 0),
    ],
)
def test_a_join_with_a_side_of_unique_keys_is_one_join(text, joins, distinct):
    nodes = lower(Graph({"out": bound(text)})).nodes
    assert sum(isinstance(node, physical.EquiJoin) for node in nodes) == joins
    assert sum(isinstance(node, groupings.Threshold) for node in nodes) == distinct
