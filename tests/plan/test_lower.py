"""The physical graph: what is fused, pruned, permuted, composed and shared."""

from collections import Counter
from random import Random

import polars as pl
import pytest

from ddcli.api import Dataflow
from ddcli.circuit.graph import assemble
from ddcli.circuit.operators import CircuitContext
from ddcli.engine.operators.linear import Linear, Permute, Select
from ddcli.engine.pool import Pool
from ddcli.engine.scope import Scope
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace
from ddcli.plan import generations
from tests.plan.support import chain, kinds, logical, nodes, plan, planned, problems
from tests.secret import SECRET


class Traces:
    def trace(self, identity, key, value, nt):
        return Trace(key.width, value.width, nt, since=Frontier([(0,)]))


def operators(graph):
    """Return the operators that the engine runs for a graph."""
    scope = Scope()
    assemble(graph, scope, CircuitContext(Traces(), Pool(SECRET), print))
    return [operator for place in scope.places for operator in place.shards]


def columns(node):
    return list(node.schema)


def test_adjacent_linear_operators_are_one_node():
    graph = planned(
        "filter: v > 1", "extend: {x: v * 2}", "flat_map: {y: 'generate_series(1, v)'}", "filter: y <> x",
        "explode: y", "map: {k: k, z: x + y}", "rename: {z: zz}", "project: [zz]",
    )  # fmt: skip
    assert kinds(graph) == ["Scan", "Linear"]
    (linear,) = nodes(graph, "Linear")
    assert columns(linear) == ["zz"]


def test_what_is_read_twice_is_computed_once():
    collections = (
        chain("filter: v > 1", name="a") + chain("map: {x: v}", source="a", name="b") + chain("map: {y: k}", source="a")
    )
    graph = plan(collections, "{b: b/, c: c/}")
    assert kinds(graph) == ["Scan", "Linear", "Linear", "Linear"]
    first, *others = nodes(graph, "Linear")
    assert all(other.inputs == (first,) for other in others)


def test_a_scan_has_the_columns_that_anything_reads():
    graph = planned("extend: {x: f + 1}", "filter: s = 'a'", "reduce: {by: [k], t: sum(v), x: max(n)}")
    (scan,) = nodes(graph, "Scan")
    assert set(scan.schema) == {"k", "v", "s", "n"}
    assert [columns(scan) for scan in nodes(planned("map: {k: k}"), "Scan")] == [["k"]]
    assert [columns(scan) for scan in nodes(planned("count: {by: [k]}"), "Scan")] == [["k"]]
    assert [columns(scan) for scan in nodes(planned("reduce: {by: [], n: count(*)}"), "Scan")] == [
        ["k"]
    ]  # to count rows by


def test_whole_records_are_compared_with_all_their_columns():
    (scan,) = nodes(planned("distinct", "project: [k]"), "Scan")
    assert len(scan.schema) == 6
    (scan,) = nodes(planned("top_k: {k: 1, by: [k], order_by: [v]}", "project: [s]"), "Scan")
    assert len(scan.schema) == 6


def test_a_join_reads_its_keys_and_what_is_wanted():
    graph = planned("join: {with: u, on: [k]}", "project: [w]")
    assert {scan.name: columns(scan) for scan in nodes(graph, "Scan")} == {"t": ["k"], "u": ["k", "w"]}
    graph = planned("semijoin: {with: u, on: [k]}", "map: {v: v}")
    assert {scan.name: columns(scan) for scan in nodes(graph, "Scan")} == {"t": ["k", "v"], "u": ["k"]}


def test_a_column_that_nothing_reads_is_not_evaluated():
    graph = planned("extend: {x: 1 / (v - v)}", "project: [k]")
    (operator,) = operators(graph)
    assert isinstance(operator, Permute)


@pytest.mark.parametrize(
    "chain_",
    [
        ["map: {a: v, b: k, c: v}"],
        ["rename: {v: x}", "drop: [s]", "project: [x, k]"],
        ["map: {a: n, b: v}", "extend: {a: b}"],
        ["map: {a: cast(null as int64), b: k}"],
    ],
)
def test_renaming_dropping_and_reordering_run_no_expression(chain_):
    graph = planned(*chain_)
    assert kinds(graph) == ["Scan", "Linear"]
    assert [type(operator) for operator in operators(graph)] == [Permute]


def test_a_column_that_passes_through_is_not_decoded():
    (operator,) = operators(planned("map: {s: s, x: v * 2, k: k}"))
    assert isinstance(operator, Linear)
    assert operator.computed.needs == ("v",)
    assert operator.lanes[0] == operator.source.lanes("s").start
    assert operator.computed.layout.names == ("x",)


def test_a_projection_after_a_join_is_the_choice_of_its_lanes():
    graph = planned(
        "join: {with: m, as: up, on: {manager: employee}}",
        "map: {employee: employee, manager: manager, skip: up.manager}",
        source="m",
    )
    assert kinds(graph) == ["Scan", "Arrangement", "Arrangement", "EquiJoin"]
    (join,) = nodes(graph, "EquiJoin")
    assert join.columns == (
        ("employee", "left", "employee"),
        ("manager", "left", "manager"),
        ("skip", "right", "manager"),
    )


def test_two_joins_on_one_collection_and_key_build_one_arrangement():
    collections = chain("join: {with: u, on: [k], as: x}", name="a") + chain(
        "filter: v > 1", "join: {with: u, on: [k], as: y}"
    )
    graph = plan(collections, "{a: a/, c: c/}")
    arranged = nodes(graph, "Arrangement")
    assert len(arranged) == 3
    first, second = nodes(graph, "EquiJoin")
    assert first.inputs[1] == second.inputs[1]


WIDE = chain("map: {k: k, x: f + 1, y: d}", name="wide")
ONE = chain("filter: v > 1", "join: {with: t, on: [k], as: x}", "map: {k: k, a: x.s}", name="one")
TWO = chain("filter: v > 2", "join: {with: t, on: [k], as: x}", "map: {k: k, a: x.n}", name="two")


def arrangement_of_the_scan(graph):
    """Return the columns of what arranges an input, in its order, which more is read of."""
    (node,) = [node for node in nodes(graph, "Arrangement") if "s" in node.schema]
    return columns(node)


def test_joins_arrange_the_columns_that_they_need_and_no_others():
    """However many more somebody else reads of the collection: those of all joins by the same key, which share it."""
    graph = plan(WIDE + ONE + TWO, "{wide: all/, one: o/, two: second/}")
    assert arrangement_of_the_scan(graph) == ["k", "s", "n"]
    assert {*nodes(graph, "Scan")[0].schema} == {"k", "v", "s", "n", "f", "d"}


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_an_outer_join_arranges_the_columns_that_it_needs(how):
    join = chain(f"join: {{with: t, on: [k], as: x, how: {how}}}", "map: {k: k, a: x.s, b: w}", source="u", name="one")
    assert arrangement_of_the_scan(plan(WIDE + join, "{wide: all/, one: o/}")) == ["k", "s"]


def test_a_state_keeps_what_it_arranged():
    """One of before there were sides arranged all columns of a collection, and goes on doing so; others add what they need."""
    both = logical(WIDE + ONE, "{wide: all/, one: o/}")
    now = generations.plan(both)
    assert arrangement_of_the_scan(now.graph) == ["k", "s"]
    tree = now.to_json()["generations"][0]
    old = tree | {"columns": {at: names for at, names in tree["columns"].items() if not at.endswith("]")}}
    (before,) = generations.known_generations({"generations": [old]})
    again = generations.plan(both, [before])
    assert {*arrangement_of_the_scan(again.graph)} == {"k", "v", "s", "f", "d"}
    (known,) = again.generations
    assert generations.plan(both, [known]).fingerprint == again.fingerprint != now.fingerprint
    # What needs a column that is not arranged is a generation of its own, and changes nothing of the others.
    more = logical(WIDE + ONE + TWO.replace("x.n", "x.f"), "{wide: all/, one: o/, two: second/}")
    added = generations.plan(more, now.generations)
    assert len(added.generations) == 2
    assert {node.fingerprint for node in now.graph.nodes} <= {node.fingerprint for node in added.graph.nodes}


def test_equal_collections_under_two_names_are_one():
    body = ["filter: v > 1", "reduce: {by: [k], t: sum(v)}"]
    graph = plan(chain(*body, name="a") + chain(*body), "{a: a/, c: c/}")
    assert graph.outputs["a"] is graph.outputs["c"]
    assert kinds(graph) == ["Scan", "Linear", "Accumulate", "Linear"]


def test_a_join_and_a_reduction_share_an_arrangement():
    collections = chain("join: {with: t, on: [k], as: x}", "map: {k: k, a: v, b: x.v}", name="a") + chain(
        "reduce: {by: [k], lo: min(v)}"
    )
    graph = plan(collections, "{a: a/, c: c/}")
    assert len(nodes(graph, "Arrangement")) == 1
    (group,) = nodes(graph, "Group")
    (join,) = nodes(graph, "EquiJoin")
    assert group.inputs[0] == join.inputs[0] == join.inputs[1]


def test_sums_and_counts_keep_no_input():
    assert kinds(planned("reduce: {by: [k], n: count(*), t: sum(v), a: avg(n), c: count(n)}")) == [
        "Scan",
        "Accumulate",
        "Linear",
    ]
    assert "Arrangement" in kinds(planned("reduce: {by: [k], n: count(*), t: sum(f)}"))  # floats: order would show


@pytest.mark.parametrize(
    ("how", "joins", "sums", "padded"), [("inner", 1, 0, 0), ("left", 2, 2, 1), ("right", 2, 2, 1), ("full", 3, 3, 2)]
)
def test_an_outer_join_is_a_join_and_what_has_no_partner(how, joins, sums, padded):
    graph = planned(f"join: {{with: u, on: [k], as: r, how: {how}}}")
    assert len(nodes(graph, "EquiJoin")) == joins
    assert len(nodes(graph, "SignedSum")) == sums
    assert len(nodes(graph, "Threshold")) == padded
    # Both sides' arrangements, and of each side that partners are sought in its keys and their distinct ones.
    assert len(nodes(graph, "Arrangement")) == 2 + 2 * padded


def test_a_self_join_arranges_a_collection_by_two_keys():
    graph = planned("join: {with: m, as: up, on: {manager: employee}}", source="m")
    assert [node.key for node in nodes(graph, "Arrangement")] == [("manager",), ("employee",)]
    assert len(nodes(planned("join: {with: m, as: x, on: [manager]}", source="m"), "Arrangement")) == 1


def test_records_with_a_null_key_stay_out_of_the_join():
    graph = planned("join: {with: u, on: {n: k}, as: r}")
    left, _ = nodes(graph, "Arrangement")
    assert str(left.schema["n"]) == "int64"
    (linear,) = [node for node in nodes(graph, "Linear") if node is left.inputs[0]]
    assert "n is null" in linear.identity_values[0]
    assert str(graph.outputs["c"].schema["n"]) == "int64"


def test_a_key_column_may_stand_for_two():
    graph = planned("join: {with: u, on: {k: k, v: k}, as: r}")
    left, right = nodes(graph, "Arrangement")
    assert left.key == ("k", "v")
    assert right.key == ("k", "k$1")
    assert right.schema["k$1"] == right.schema["k"]


def test_top_k_sorts_by_lanes_where_lanes_have_an_order():
    graph = planned("top_k: {k: 2, by: [k], order_by: [v desc, n]}")
    (ranked,) = nodes(graph, "OrderLanes")
    assert ranked.lanes == (("$order0", "v", True), ("$order1", "n", False))
    assert columns(graph.outputs["c"]) == ["k", "v", "s", "n", "f", "d"]
    assert not nodes(planned("top_k: {k: 2, by: [k], order_by: [s]}"), "OrderLanes")


@pytest.mark.parametrize(
    ("window", "reach"),
    [
        ("order_by: [v], columns: {x: 'lag(v, 2)', y: lead(n)}", 3),
        ("order_by: [v desc, n], frame: rows between 2 preceding and 1 preceding, columns: {x: sum(v)}", 2),
        ("order_by: [v], frame: rows between 3 following and 5 following, columns: {x: sum(v), y: lag(v)}", 6),
        ("order_by: [v], columns: {x: lag(v), y: row_number()}", None),
        ("order_by: [v], frame: rows unbounded preceding, columns: {x: sum(v)}", None),
        ("order_by: [v], frame: groups 1 preceding, columns: {x: sum(v)}", None),
        ("order_by: [s], columns: {x: lag(v)}", None),
    ],
)
def test_a_window_reads_what_is_near_where_it_can(window, reach):
    """Rows in the order of a text have no order of lanes; other frames than of rows may have any number of rows."""
    (found,) = nodes(planned(f"window: {{by: [k], {window}}}"), "WindowedGroup")
    assert found.reach == reach


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        ("exclude ties", "this is not a frame"),
        ("two rows", "this is not a frame"),
        ("groups 2", "a frame begins and ends at `current row`, or so many `preceding` or `following`"),
    ],
)
def test_what_is_no_frame_says_how_to_write_one(frame, problem):
    ((found, hint),) = problems(chain(f"window: {{by: [k], order_by: [v], frame: {frame}, columns: {{x: sum(v)}}}}"))
    assert found.endswith(f": {problem}")
    assert hint == f"write `{'groups' if 'groups' in frame else 'rows'} between 2 preceding and current row`"


def test_the_plan_of_a_frame_runs_in_polars():
    """A fused chain is one run: what it needs in, what it computes out."""
    graph = planned("filter: v > 1", "map: {k: k, x: v * 2}")
    (linear,) = operators(graph)
    frame, rows, weights = linear.computed.run(pl.DataFrame({"v": [1, 2, 3]}))
    assert frame["x"].to_list() == [4, 6]
    assert rows.tolist() == [1, 2]
    assert weights is None


def test_a_number_added_to_an_integer_is_added_lane_by_lane():
    graph = planned("map: {a: v + 1, b: v - 2, c: k, d: 3 + v}")
    (operator,) = operators(graph)
    assert isinstance(operator, Permute)
    (operator,) = operators(planned("map: {a: v + 1, b: v * 2}"))
    assert isinstance(operator, Linear)


COMPARED = {
    "a = b": lambda a, b, c, d, e, f, s, t: a == b,
    "a <> b and a < 2": lambda a, b, c, d, e, f, s, t: a != b and a < 2,
    "1 < a": lambda a, b, c, d, e, f, s, t: a > 1,
    "2 >= a and b >= a and c > b": lambda a, b, c, d, e, f, s, t: a <= 2 and b >= a and c > b,
    "e = f": lambda a, b, c, d, e, f, s, t: e == f,
    "e < f": lambda a, b, c, d, e, f, s, t: e < f,
    "s <> t": lambda a, b, c, d, e, f, s, t: s != t,
}
COMPUTED = {
    "s < t": lambda a, b, c, d, e, f, s, t: s < t,
    "a = d": lambda a, b, c, d, e, f, s, t: d is not None and a == d,
    "a = b or a = 1": lambda a, b, c, d, e, f, s, t: a in (b, 1),
    "a + 1 = b": lambda a, b, c, d, e, f, s, t: a + 1 == b,
    "s = 'x'": lambda a, b, c, d, e, f, s, t: s == "x",
}


@pytest.mark.parametrize("condition", [*COMPARED, *COMPUTED])
def test_filters_that_compare_lanes_select_by_them(condition):
    schema = {"a": "int64", "b": "int64", "c": "int32", "d": "int64?", "e": "float64", "f": "float64"}
    dataflow = Dataflow()
    given = dataflow.input("t", schema | {"s": "string", "t": "string"})
    output = given.filter(condition).map(s="s", b="b", a="a").output()
    random = Random(condition)
    floats = [float("-inf"), -0.0, 0.0, 1.5]
    rows = [
        (
            *random.choices(range(-1, 4), k=3),
            random.choice([None, 0, 1]),
            *random.choices(floats, k=2),
            *random.choices("xyz", k=2),
        )
        for _ in range(200)
    ]
    for row in rows:
        given.insert(row)
    given.close()
    dataflow.step()
    predicate = (COMPARED | COMPUTED)[condition]
    expected = Counter((row[6], row[1], row[0]) for row in rows if predicate(*row))
    found = Counter()
    for record, _, diff in output.updates():
        found[record] += diff
    assert found == expected
    places = dataflow.assemble().nest.scope.places
    selects = any(isinstance(operator, Select) for place in places for operator in place.shards)
    assert selects == (condition in COMPARED)
