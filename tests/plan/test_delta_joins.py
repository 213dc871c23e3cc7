"""Which joins are delta joins, and what these keep."""

import re

import pytest

from ddcli.plan import generations
from tests.plan.support import chain, kinds, logical, nodes

TRIANGLES = "select e1.k as a, e2.k as b, e3.v as c from {0} e1, {1} e2, {2} e3 where {3}"
CLOSED = "e1.v = e2.k and e2.v = e3.v and e1.k = e3.k"
CLIQUES = (
    "select e1.k as a, e1.v as b, e2.v as c, e4.v as d from t e1, t e2, t e3, t e4, t e5, t e6 where e1.v = e2.k and e1.k = e3.k"
    " and e2.v = e3.v and e1.k = e4.k and e5.k = e1.v and e5.v = e4.v and e6.k = e2.v and e6.v = e4.v"
)


def sql(query, name="c"):
    return f"  {name}:\n    sql: |\n      {query}\n"


def triangles(*sides, where=CLOSED, name="c"):
    return sql(TRIANGLES.format(*(sides or ("t", "t", "t")), where), name)


def planned(collections, outputs="{c: out/}", **options):
    return generations.plan(logical(collections, outputs), **options)


def with_nulls(query):
    """Return a query of edges that may end nowhere."""
    return re.sub(r"(?<=e\d\.)v", "n", query)


@pytest.mark.parametrize("query", [triangles(), sql(CLIQUES), with_nulls(triangles()), with_nulls(sql(CLIQUES))])
def test_edges_are_kept_twice_and_nothing_else(query):
    graph = planned(query).graph
    assert {node.key for node in nodes(graph, "Arrangement")} in ({("k",), ("v",)}, {("k",), ("n",)})
    assert len(nodes(graph, "Arrangement")) == len(nodes(graph, "DeltaJoin")) * 2 == 2
    assert "EquiJoin" not in kinds(graph)


def test_each_side_meets_those_before_it_with_what_is_new():
    (join,) = nodes(planned(triangles()).graph, "DeltaJoin")
    seen = []
    for end in join.inputs:
        assert list(end.schema.items()) == list(join.schema.items())
        new, node = [], end
        while node.inputs:
            if type(node).__name__ == "HalfJoin":
                new.append(node.new)
            node = node.inputs[0]
        seen.append(sorted(new))
    assert seen == [[False, False]] * 2 + [[False, True]] * 2 + [[True, True]] * 2


@pytest.mark.parametrize(
    "query",
    [
        triangles("t", "u", "t", where=CLOSED.replace("e2.v", "e2.w")),
        triangles(where=f"{CLOSED} and e1.v > 3"),
        sql("select e1.k as a, e2.k as b, e3.v as c from t e1, t e2, t e3"),
    ],
    ids=["others", "filtered", "no keys"],
)
def test_other_joins_are_as_they_were(query):
    assert not nodes(planned(query).graph, "DeltaJoin")


def test_what_others_read_is_kept():
    paths = chain("join: {with: t, on: {v: k}, as: e}", "map: {a: k, b: v, c: e.v}", name="d")
    closed = chain("join: {with: t, on: {a: k, c: v}, as: f}", source="d")
    assert nodes(planned(paths + closed).graph, "DeltaJoin")
    assert not nodes(planned(paths + closed, "{c: c/, d: d/}").graph, "DeltaJoin")


def test_a_state_keeps_what_it_has():
    graph = logical(triangles())
    for chosen in (True, False):
        before = generations.plan(graph, deltas=chosen)
        known = generations.known_generations(before.to_json())
        again = generations.plan(graph, known, deltas=not chosen)
        assert (again.fingerprint, again.to_json()) == (before.fingerprint, before.to_json())
        assert bool(nodes(again.graph, "DeltaJoin")) == chosen
    older = before.to_json()
    del older["generations"][0]["deltas"]
    again = generations.plan(graph, generations.known_generations(older))
    assert again.fingerprint == before.fingerprint
    assert again.to_json() == older
