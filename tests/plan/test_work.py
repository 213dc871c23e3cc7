"""What bounds the work of operators: the class of each, by what a file writes."""

from __future__ import annotations

import pytest

from ddcli.plan import asof, windows
from ddcli.plan.lower import lower
from ddcli.spec.bounds import WORK_CLASSES
from tests.cases import cases
from tests.plan.support import chain, logical, planned


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
