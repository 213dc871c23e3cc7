"""Sums over a join that are made of sums which the statement keeps anyway are the same, whatever the multiplicities."""

import random
from collections import Counter

import pytest

from ddcli.plan import logical
from ddcli.plan.groupings import Reduce
from ddcli.plan.joins import Join
from ddcli.plan.node import Graph
from ddcli.plan.relation import Relation
from ddcli.plan.sql import statement
from tests.draws import chance, many
from tests.reference.expressions import Fails
from tests.reference.model import Model, total
from tests.sql.judge import bound, random_row, records
from tests.sql.terms import TABLES

LARGE = "select a from u group by a having sum(c) > 1"
SHARED = [
    f"select t.a, t.b, sum(u.c) as s from t, u where t.a = u.a and t.a in ({LARGE}) group by t.a, t.b",
    f"select u.a, sum(c) as s from t, u where t.b = u.a and t.b in ({LARGE}) group by u.a",
    """select t.a, count(*) as n, count(u.c) as m, sum(u.c) + t.a as s from t join u on t.a = u.a
    where t.b in (select a from u group by a having count(*) < 9 and count(c) > 0 or sum(c) > 2) group by t.a""",
    "select w.a, sum(w.m) as s from w, t where t.a = w.a and t.a in (select a from w group by a having sum(m) > 0) group by w.a, t.b",
]
APART = {
    "the sum is of other rows": f"select t.a, sum(u.c) as s from t, u where t.a = u.a and u.d is null and t.a in ({LARGE}) group by t.a",
    "the groups are not by the key": f"select t.b, sum(u.c) as s from t, u where t.a = u.a and t.a in ({LARGE}) group by t.b",
    "another sum is kept": f"select t.a, count(u.c) as s from t, u where t.a = u.a and t.a in ({LARGE}) group by t.a",
    "values of the other side are added": f"select t.a, sum(t.b) as s from t, u where t.a = u.a and t.a in ({LARGE}) group by t.a",
    "the least is no sum": "select t.a, min(u.c) as s from t, u where t.a = u.a and t.a in (select a from u group by a having min(c) > 1) group by t.a",
    "partners may lack": f"select t.a, sum(u.c) as s from t left join u on t.a = u.a where t.a in ({LARGE}) group by t.a",
}


def is_shared(node):
    """Return whether a reduction is joined, of which the sum over the join is made."""
    nodes = Graph({"": node}).nodes()
    return any(isinstance(each, Join) and any(name.startswith("#part") for name in each.schema) for each in nodes)


def signed(rng: random.Random):
    rows = {}
    for name in TABLES:
        drawn = [random_row(rng, name) for _ in range(rng.randrange(7))]
        rows[name] = total(Counter({row: rng.choice([-2, -1, 1, 1, 2]) for row in drawn}).items())
    return rows


def sources(node):
    return {name: Relation(each) for name, each in logical.sources(Graph({"": node})).items()}


@pytest.mark.parametrize("text", SHARED)
def test_sums_of_sums_are_the_sums(text, monkeypatch):
    found = bound(text)
    assert is_shared(found)
    assert len([each for each in Graph({"": found}).nodes() if isinstance(each, Reduce)]) == 2
    monkeypatch.setattr(statement, "shared", lambda node, _: node)
    plain = bound(text)
    assert not is_shared(plain)
    for seed in range(many(40)):
        inputs = signed(chance(text, seed))
        try:
            wanted = records(Model(inputs, (0,), frozenset(TABLES)).output(plain).items())
        except Fails:
            continue
        assert records(Model(inputs, (0,), frozenset(TABLES)).output(found).items()) == wanted, inputs


@pytest.mark.parametrize("reason", APART)
def test_other_sums_stay(reason):
    assert not is_shared(bound(APART[reason]))


def test_sums_of_another_collection_stay():
    """A collection is computed once for all who name it: none of them remakes it for itself."""
    inner = bound(SHARED[0].replace(f" and t.a in ({LARGE})", ""))
    found = bound(f"select a, s from inn where a in ({LARGE})", sources(inner) | {"inn": Relation(inner)})
    (reduction,) = inner.inputs
    assert reduction in Graph({"": found}).nodes()
