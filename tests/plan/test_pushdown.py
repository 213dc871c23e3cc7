"""Where filters are asked: what they pass, and what they don't."""

import pytest

from ddcli.expressions.tree import FilterStep
from ddcli.plan import generations, physical
from ddcli.plan.physical import physical_graph
from tests.plan.support import chain, logical, nodes
from tests.sql.judge import bound_notes

BELOW_JOIN = [
    ("join: {with: u, on: [k], as: x}", "v > 1", True),
    ("join: {with: u, on: [k], as: x}", "w > 1", True),
    ("join: {with: u, on: [k], as: x}", "w > v", False),
    ("join: {with: u, on: [k], as: x}", "(v = 1 and w = 2) or (v = 3 and w = 4)", True),
    ("join: {with: u, on: [k], as: x}", "(v = 1 and w = 2) or w > f", False),
    ("join: {with: u, on: [k], as: x}", "v > 1 and 1 / v > 0", False),  # may fail
    ("join: {with: u, on: [k], as: x, how: left}", "v > 1", True),
    ("join: {with: u, on: [k], as: x, how: left}", "w > 1", True),  # drops what has no partner
    ("join: {with: u, on: [k], as: x, how: left}", "w is not null or w > 5", True),
    ("join: {with: u, on: [k], as: x, how: left}", "v > 2 * w", True),
    ("join: {with: u, on: [k], as: x, how: left}", "w is null or w > 1", False),
    ("join: {with: u, on: [k], as: x, how: left}", "coalesce(w, 2) > 1", False),
    ("join: {with: u, on: [k], as: x, how: left}", "w > 2 * v", False),  # may fail where there is no partner
    ("join: {with: u, on: [k], as: x, how: left}", "w / v > 1", False),
    ("join: {with: u, on: [k], as: x, how: full}", "v > 1", False),
    ("semijoin: {with: u, on: [k]}", "v > 1", True),
    ("antijoin: {with: u, on: [k]}", "v > 1", True),
    ("distinct", "v > 1", True),
    ("reduce: {by: [v], n: count(*)}", "v > 1", True),
    ("reduce: {by: [v], n: count(*)}", "n > 1", False),
    ("reduce: {by: [v], n: sum(k)}", "v > 1", False),  # the sum may be too large
    ("top_k: {k: 1, by: [v], order_by: [n]}", "v > 1", True),
    ("top_k: {k: 1, by: [v], order_by: [n]}", "n > 1", False),
    ("window: {by: [v], order_by: [n], columns: {r: row_number()}}", "v > 1", True),
    ("window: {by: [v], order_by: [n], columns: {r: row_number()}}", "r = 1", False),
    (
        "window: {by: [v], order_by: [n], columns: {r: row_number()}}",
        "n > 1",
        False,
    ),  # others of the partition are counted
    ("window: {by: [v], order_by: [n], columns: {r: max(k)}}", "v > 1", True),
    ("window: {by: [v], order_by: [n], columns: {r: sum(k)}}", "v > 1", False),  # the sum may be too large
    ("window: {by: [v], order_by: [n], columns: {r: lag(1 / k)}}", "v > 1", True),  # not what may fail below
    ("asof_join: {with: u, as: x, on: [k], at: {v: w}}", "v > 1", True),
    ("asof_join: {with: u, as: x, on: [k], at: {v: w}}", "w > 1", False),
    ("threshold: count - 1", "v > 1", False),
    ("inspect: seen", "v > 1", False),
]


@pytest.mark.parametrize(("operator", "condition", "moves"), BELOW_JOIN)
def test_what_a_filter_passes(operator, condition, moves):
    graph = logical(chain(operator, f"filter: {condition}"))
    assert moves == (generations.plan(graph).fingerprint != generations.plan(graph, choices=None).fingerprint)


@pytest.mark.parametrize(
    "operator",
    [
        "semijoin: {with: u, on: [k]}",
        "antijoin: {with: u, on: [k]}",
        "asof_join: {with: u, as: x, on: [k], at: {v: w}}",
    ],
)
def test_a_filter_of_keys_is_asked_of_both_sides(operator):
    plan = generations.plan(logical(chain(operator, "filter: k = 1 and v > 2")))
    asked = set()
    for node in nodes(plan.graph, "Linear"):
        names = "".join(physical_graph({"": node}).scans())
        asked |= {(names, step.condition.text()) for step in node.steps if isinstance(step, FilterStep)}
    assert asked >= {("t", "((k = 1) and (v > 2))"), ("u", "(k = 1)")}


def test_a_filter_passes_nothing_that_others_read():
    """Neither a collection nor a side that other joins by the same key share."""
    joined = chain("join: {with: u, on: [k], as: x}", name="a")
    alone = joined + chain("filter: v > 1", source="a")
    graph = logical(alone)
    assert generations.plan(graph).fingerprint != generations.plan(graph, choices=None).fingerprint
    graph = logical(alone, "{c: out/, a: a/}")
    assert generations.plan(graph).fingerprint == generations.plan(graph, choices=None).fingerprint
    shared = chain("join: {with: t, on: [k], as: x}", source="u", name="a")
    graph = logical(shared + chain("join: {with: u, on: [k], as: x}", "filter: v > 1"), "{c: out/, a: a/}")
    assert generations.plan(graph).fingerprint == generations.plan(graph, choices=None).fingerprint


def test_a_state_keeps_where_its_filters_are_asked():
    """Another reader changes nothing of it, nor does this version for what an earlier one made."""
    collections = chain("join: {with: u, on: [k], as: x}", name="a") + chain("filter: v > 1", source="a")
    before = generations.plan(logical(collections))
    (known,) = generations.known_generations(before.to_json())
    more = generations.plan(logical(collections, "{c: out/, a: a/}"), [known])
    assert {node.fingerprint for node in before.graph.nodes} <= {node.fingerprint for node in more.graph.nodes}
    old = generations.plan(logical(collections), choices=None)
    tree = old.to_json()
    assert "read" not in tree["generations"][0]
    assert generations.plan(logical(collections), generations.known_generations(tree)).fingerprint == old.fingerprint


def test_a_moved_filter_makes_arrangements_smaller():
    graph = logical(chain("join: {with: u, on: [k], as: x}", "filter: v > 1 and w < 3", "distinct"))
    (join,) = nodes(generations.plan(graph).graph, "EquiJoin")
    assert all("filter" in str(side.inputs[0].identity_values) for side in join.inputs)


def test_chains_of_any_length_are_planned():
    graph = logical(
        chain(*["filter: v > 1", "extend: {v: v}"] * 300, "join: {with: u, on: [k], as: x}", "filter: v > 2")
    )
    assert generations.plan(graph).fingerprint != generations.plan(graph, choices=None).fingerprint
    many = " and ".join(f"v <> {at}" for at in range(3000))
    graph = logical(chain("join: {with: u, on: [k], as: x}", f"filter: {many}"))
    assert generations.plan(graph).fingerprint != generations.plan(graph, choices=None).fingerprint


def test_an_equality_above_pairs_of_all_records_is_their_key():
    """Else each record of one side would be paired with each of the other, as in a state of an earlier version."""
    query = "select k, v, n from (select t.k, t.v, u.k as n from t, u) where v = n and k > 1"
    graph = logical(f'  c: {{sql: "{query}"}}\n')
    new = generations.plan(graph)
    assert [side.key for side in nodes(new.graph, "EquiJoin")[0].inputs] == [("v",), ("k",)]
    assert generations.plan(graph, generations.known_generations(new.to_json())).fingerprint == new.fingerprint
    before = generations.Generation({}, frozenset(), {}, crossed=False)
    old = generations.Generation.of(graph, before).to_json()
    del old["crossed"]
    earlier = generations.plan(graph, [generations.Generation.from_json(old)])
    assert [side.key for side in nodes(earlier.graph, "EquiJoin")[0].inputs] == [("#left",), ("#right",)]
    assert earlier.generations[0].to_json()["crossed"] is False


@pytest.mark.parametrize(
    ("query", "noted"),
    [
        ("select x from (select t.a as x, t.b, u.a as y from t, u) where b = y", False),
        ("select x from (select t.a as x, t.b, u.a as y from t, u) where b > y", True),
        ("with p as (select t.b, u.a from t, u) select b from p where a = b", False),
        ("with p as (select t.b, u.a from t, u) select b from p where a = b union all select a from p", True),
    ],
)
def test_pairs_of_all_records_are_noted_unless_an_equality_above_is_their_key(query, noted):
    assert ["no equality" in note for _, note in bound_notes(query)] == [True] * noted


@pytest.mark.parametrize(
    ("operator", "choice"),
    [
        ("window: {by: [v], order_by: [n], columns: {r: row_number()}}", "partners"),
        ("semijoin: {with: u, on: {v: k}}", "partners"),
        ("reduce: {by: [v], n: count(distinct k)}", "two_steps"),
    ],
)
def test_a_state_of_an_earlier_version_keeps_its_plan(operator, choice):
    """It knows nothing of filters that pass windows, and are asked of both sides of semijoins, nor of counts in two steps."""
    graph = logical(chain(operator, "filter: v > 1"))
    tree = generations.plan(graph).to_json()
    (known,) = generations.known_generations(tree)
    assert generations.plan(graph, [known]).fingerprint == generations.plan(graph).fingerprint
    del tree["generations"][0][choice]
    (earlier,) = generations.known_generations(tree)
    again = generations.plan(graph, [earlier])
    assert again.fingerprint != generations.plan(graph).fingerprint
    assert again.generations[0].to_json()[choice] is False


def test_in_a_state_of_an_earlier_version_conditions_of_no_column_are_asked_of_one_side():
    """As that version did: else its arrangements would be made anew, and `dd query` would refuse them until then."""
    graph = logical(chain("antijoin: {with: u, on: [k]}", "extend: {z: cast(null as int64)}", "filter: z is null"))
    tree = generations.plan(graph).to_json()
    del tree["generations"][0]["partners"]
    earlier = generations.plan(graph, generations.known_generations(tree))
    linear = [node for node in earlier.graph.nodes if isinstance(node, physical.Linear)]
    assert sum(isinstance(step, FilterStep) for node in linear for step in node.steps) == 1


@pytest.mark.parametrize("counted", ["reduce: {by: {g: '1'}, n: count(*)}", "reduce: {by: [], n: count(*)}"])
def test_who_counts_rows_only_keeps_its_plan(counted):
    """It reads no column, and counts by one that another output reads: by itself it would take a smaller one."""
    graph = logical(chain(counted, name="a") + chain("project: [s]"), "{c: out/, a: a/}")
    before = generations.plan(graph)
    assert generations.plan(graph, generations.known_generations(before.to_json())).fingerprint == before.fingerprint
