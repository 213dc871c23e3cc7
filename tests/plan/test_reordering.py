"""Which joins come first, by what is known of the inputs' sizes."""

from ddcli.plan import generations
from ddcli.plan.generations import by_sizes
from tests.plan.support import chain, logical, nodes

LOOKED_UP = chain(
    "join: {with: u, on: [k], as: x}", "join: {with: m, on: {w: manager}, as: y}", "map: {v: v, e: employee}"
)


def keys(plan):
    """Return the keys of arrangements, those of the large input first."""
    return sorted(node.key for node in nodes(plan.graph, "Arrangement"))


def sized(**sizes):
    return by_sizes(sizes)


def test_what_looks_up_more_of_a_small_input_is_joined_with_that_first():
    graph = logical(LOOKED_UP)
    written = generations.plan(graph, choices=None)
    assert generations.plan(graph).fingerprint == written.fingerprint  # nothing is known of the sizes
    turned = generations.plan(graph, choices=sized(t=10_000, u=100, m=10))
    small, large = nodes(turned.graph, "EquiJoin")
    assert {scan.name for scan in turned.graph.scans().values()} == {"t", "u", "m"}
    assert small.inputs[0].key == ("w",)
    assert large.inputs[0].key == ("k",)
    assert large.inputs[1].inputs[0] is not large.inputs[0]
    for sizes in ({"t": 1_000, "u": 100, "m": 10}, {"t": 10_000, "u": 10, "m": 1_000}, {"t": 10_000, "u": 10}):
        assert generations.plan(graph, choices=sized(**sizes)).fingerprint == written.fingerprint


def test_a_state_keeps_the_order():
    graph = logical(LOOKED_UP)
    for chosen, now in ((sized(t=10_000, u=100, m=10), sized(t=10, u=100, m=10)), (sized(), sized(t=10_000, u=1, m=1))):
        before = generations.plan(graph, choices=chosen)
        known = generations.known_generations(before.to_json())
        assert generations.plan(graph, known, now).fingerprint == before.fingerprint


def test_those_who_look_up_the_same_share_it():
    other = LOOKED_UP.replace("  c:", "  d:").replace("map: {v: v", "filter: v > 1\n      - map: {s: s")
    graph = logical(LOOKED_UP + other, "{c: c/, d: d/}")
    joins = nodes(generations.plan(graph, choices=sized(t=10_000, u=100, m=10)).graph, "EquiJoin")
    assert len(joins) == 2
