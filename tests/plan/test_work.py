"""What bounds the work of operators: the class of each, by what a file writes.

How many rows operators are expected to put out: by rules, and by what earlier runs measured.
"""

from __future__ import annotations

import pytest

from ddcli.plan import asof, windows
from ddcli.plan.estimates import PastRun, estimated_rows
from ddcli.plan.lower import lower
from ddcli.spec.model import WORK_CLASSES
from tests.cases import cases
from tests.draws import chance
from tests.plan.support import chain, logical, nodes, plan, planned


def classes(graph):
    """Return the classes of a graph that are more than the change, the worst last."""
    found = {node.work for node in graph.nodes} - {None, "change"}
    return sorted(found, key=WORK_CLASSES.index)


@cases("""
operators → found
filter: v > 1; extend: {x: v * 2}; flat_map: {y: 'generate_series(1, v)'}; distinct
reduce: {by: [k], n: count(*), s: sum(v)}
reduce: {by: [], n: count(*), s: sum(v)}
{join: {with: u, as: other, on: [k]}} → output
{asof_join: {with: u, as: other, at: {v: k}}} → output
{semijoin: {with: u, on: [k]}} → output
reduce: {by: [k], m: max(v)} → groups
reduce: {by: [k], m: max(v), n: count(*)} → groups
reduce: {by: [], m: max(v)} → everything
extend: {c: 1}; reduce: {by: [c], m: max(v)} → everything
extend: {c: 1}; filter: v > 2; rename: {c: e}; top_k: {k: 1, by: [e], order_by: [v]} → everything
top_k: {k: 3, by: [k], order_by: [v desc]} → groups
top_k: {k: 3, order_by: [v desc]} → everything
window: {by: [k], order_by: [v], columns: {l: lag(v)}}
window: {by: [k], order_by: [v], columns: {r: row_number(), s: sum(v), n: 'nth_value(v, 2)'}} → output
window: {order_by: [v desc], columns: {r: rank(), m: max(v), c: count(*), f: first_value(v)}} → output
window: {by: [k], order_by: [v], frame: groups between current row and unbounded following, columns: {r: avg(v)}} → output
window: {by: [k], order_by: [v], columns: {r: ntile(4)}} → partition
window: {by: [k], order_by: [v], columns: {r: sum(cast(v as float64))}} → partition
window: {by: [k], order_by: [cast(v as string)], columns: {r: row_number()}} → partition
window: {by: [k], columns: {r: row_number()}} → partition
window: {by: [k], order_by: [v], columns: {r: row_number(), l: lag(v)}} → partition
window: {order_by: [v], columns: {r: percent_rank()}} → everything
extend: {c: 1}; {join: {with: u, as: other, on: {c: k}}} → everything
""")
def test_classes(operators, found):
    assert classes(planned(*operators.split("; "))) == found.split()


LOOP = "  c: {{iterate: {{variables: {{x: s}}, body: {{x: {{from: x, apply: [{operator}, {project}, {{concat: s}}, distinct]}}}}, result: x}}}}\n"


@pytest.mark.parametrize(
    ("operator", "alone", "elsewhere"),
    [
        ("window: {by: [k], order_by: [v], columns: {l: lag(v)}}", "change", "partition"),
        ("window: {by: [k], order_by: [v], columns: {r: row_number()}}", "output", "partition"),
        ("window: {order_by: [v], columns: {r: row_number()}}", "output", "everything"),
        ("asof_join: {with: u, as: other, at: {v: w}, on: [k]}", "output", "groups"),
    ],
)
def test_whole_groups_are_read_where_times_are_not_in_order(operator, alone, elsewhere):
    project = "project: [k, v]"
    start = chain(project, "distinct", name="s")
    for collections, time, found in (
        (chain(operator), ("int64",), alone),
        (chain(operator), ("int64", "int64"), elsewhere),
        (start + LOOP.format(operator=operator, project=project), ("int64",), elsewhere),
    ):
        graph = lower(logical(collections, time=time))
        (node,) = [node for node in graph.nodes if isinstance(node, windows.WindowedGroup | asof.AsofGroup)]
        assert node.work == found
        assert (found in ("partition", "everything")) == ("reads whole partitions" in node.details())


TAKEN = {"t": 6000, "u": 200, "m": 50}


def last(graph, kind, **options):
    """Return what is expected of the last node of a kind."""
    return estimated_rows(graph, TAKEN, {}, **options)[nodes(graph, kind)[-1].fingerprint]


@cases("""
operators → kind → rows: int
filter: v = 3 → Linear → 600
filter: v > 3 → Linear → 2000
filter: v > 3 and s = 'a' → Linear → 200
filter: v in (1, 2) → Linear → 1200
filter: v = 1 or v = 2 → Linear → 1140
filter: not v = 1 → Linear → 5400
filter: n is not null → Linear → 6000
map: {x: v + 1} → Linear → 6000
reduce: {by: [k], n: count(*)} → Accumulate → 600
reduce: {by: [], n: count(*)} → Accumulate → 2
concat: {from: t} → SignedSum → 12000
{join: {with: u, as: o, on: [k]}} → EquiJoin → 6000
filter: v = 1; {join: {with: u, as: o, on: [k]}} → EquiJoin → 600
{join: {with: {from: u, apply: [{filter: w = 1}]}, as: o, on: [k]}} → EquiJoin → 600
""")
def test_by_rules(operators, kind, rows):
    assert round(last(planned(*operators.split("; ")), kind)) == rows


def test_nothing_is_expected_where_something_is_not_known():
    graph = planned("{join: {with: u, as: o, on: [k]}}", "filter: v > 3")
    known = estimated_rows(graph, {"t": 9}, {})
    (join,) = nodes(graph, "EquiJoin")
    assert join.fingerprint not in known
    assert {graph.scans()["t"].fingerprint} <= known.keys()
    body = "{iterate: {variables: {x: s}, body: {x: {from: x, apply: [{concat: s}, distinct]}}, result: x}}"
    looped = plan(chain("distinct", name="s") + f"  c: {body}\n")
    known = estimated_rows(looped, TAKEN, {})
    assert [node.fingerprint in known for node in nodes(looped, "Threshold")] == [True, False]
    assert looped.outputs["c"].fingerprint not in known


def test_by_what_was_measured():
    """A join of which each pair of keys matches as often as before, with sides that grow: the numbers are what comes."""
    graph = planned("filter: v > 3", "{join: {with: u, as: o, on: [k]}}")
    (join,) = nodes(graph, "EquiJoin")
    left, right = (node.fingerprint for node in join.inputs)
    draw, held, earlier = chance("joins that are measured"), {left: 0, right: 0}, []
    for at in range(6):
        new = draw.randrange(40, 400), draw.randrange(40, 400)
        came = (new[0] * (held[right] + new[1]) + held[left] * new[1]) // 5
        if at:
            taken = {"t": new[0] * 4, "u": new[1]}
            found = estimated_rows(graph, taken, held, earlier)
            assert found[left] == pytest.approx(new[0])
            assert found[join.fingerprint] == pytest.approx(came, rel=0.01)
        (passed,) = {
            node.fingerprint: (new[0] * 4, new[0]) for node in graph.nodes if node is join.inputs[0].inputs[0]
        }.items()
        rows = {left: (new[0], new[0]), right: (new[1], new[1]), join.fingerprint: (sum(new), came)}
        earlier.append(PastRun(rows | dict([passed]), dict(held)))
        held = {left: held[left] + new[0], right: held[right] + new[1]}
