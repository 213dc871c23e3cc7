"""Recursion over graphs whose edges come and go is what networkx makes of each of them."""

import networkx as nx
import pytest

from ddcli import Dataflow
from tests.draws import chance, many

GRAPHS, CHANGES, NODES, SOURCE = many(3), 6, 8, 0


def reachable(graph):
    return {(one, other) for one in graph for _, other in nx.edge_bfs(graph, one)}


def lengths(graph):
    return set(nx.single_source_dijkstra_path_length(graph, SOURCE).items()) if SOURCE in graph else {(SOURCE, 0)}


def hops(graph):
    return set(nx.single_source_shortest_path_length(graph, SOURCE).items()) if SOURCE in graph else {(SOURCE, 0)}


def components(graph):
    return {(node, min(each)) for each in nx.connected_components(graph.to_undirected()) for node in each}


def same_generation(graph):
    """Return the pairs of nodes that some path of one length leads to from one node: pairs of the tensor product."""
    pairs = nx.tensor_product(graph, graph)
    begun = {(one, other) for parent in graph for one in graph[parent] for other in graph[parent]}
    return begun | {found for each in begun for found in nx.descendants(pairs, each)}


def odd_and_even(graph):
    """Return nodes with whether a walk of an odd, or an even number of edges leads there from the source."""
    sides = nx.tensor_product(graph, nx.DiGraph([(0, 1), (1, 0)]))
    start = (SOURCE, 0)
    found = {start} | (nx.descendants(sides, start) if start in sides else set())
    return {(node, ("even", "odd")[side]) for node, side in found}


def strong(graph):
    return {(node, min(each)) for each in nx.strongly_connected_components(graph) for node in each}


REACH = "reach(a, b) as (select src, dst from edges union select r.a, e.dst from reach r join edges e on r.b = e.src)"
CASES = {
    "reachability": (f"with recursive {REACH} select a, b from reach", reachable),
    "reachability by rules": (
        "with recursive reach(a, b) as (select src, dst from edges union select r.a, s.b from reach r join reach s on r.b = s.a) select a, b from reach",
        reachable,
    ),
    "shortest paths": (
        """\
with recursive best(node, length) as (
  select 0, 0
  union
  select e.dst, min(b.length + e.weight) from best b join edges e on b.node = e.src group by e.dst
)
select node, min(length) as length from best group by node""",
        lengths,
    ),
    "fewest hops": (
        f"""\
with recursive walk(node, n) as (
  select 0, 0 union select e.dst, w.n + 1 from walk w join edges e on w.node = e.src where w.n < {NODES}
)
select node, min(n) as n from walk group by node""",
        hops,
    ),
    "components": (
        """\
with recursive links(a, b) as (select src, dst from edges union select dst, src from edges),
label(node, least) as (
  select a, a from links
  union
  select l.b, min(x.least) from label x join links l on x.node = l.a group by l.b
)
select node, min(least) as least from label group by node""",
        components,
    ),
    "same generation": (
        """\
with recursive same(a, b) as (
  select one.dst, other.dst from edges one join edges other on one.src = other.src
  union
  select one.dst, other.dst from same s join edges one on one.src = s.a join edges other on other.src = s.b
)
select a, b from same""",
        same_generation,
    ),
    "odd and even, mutually": (
        """\
with recursive even(node) as (select 0 union select e.dst from odd o join edges e on e.src = o.node),
odd(node) as (select e.dst from even v join edges e on e.src = v.node)
select node, 'even' as side from even union all select distinct node, 'odd' from odd""",
        odd_and_even,
    ),
    "strong components": (
        f"""\
with recursive {REACH},
nodes(node) as (select src from edges union select dst from edges)
select node, coalesce((select min(r.b) from reach r join reach s on r.b = s.a and s.b = r.a where r.a = node and r.b < node), node) as least
from nodes""",
        strong,
    ),
}


def states(draw):
    """Yield graphs, each a few edges away from the one before; an edge keeps its weight."""
    edges = {}
    for _ in range(CHANGES):
        for _ in range(draw.randrange(1, 6)):
            edge = draw.randrange(NODES), draw.randrange(NODES)
            if edges and draw.random() < 0.5:
                del edges[draw.choice(sorted(edges))]
            elif edge not in edges:
                edges[edge] = draw.randrange(1, 6)
        yield dict(edges)


@pytest.mark.parametrize("name", CASES)
def test_recursion_is_what_networkx_makes_of_each_graph(name):
    text, meant = CASES[name]
    dataflow = Dataflow()
    session = dataflow.input("edges", {"src": "int64", "dst": "int64", "weight": "int64"})
    output = dataflow.sql(text, edges=session).output()
    found, before, time, began = {}, {}, 0, False
    for at in range(GRAPHS):
        for edges in states(chance("recursion", name, at)):
            for edge in {**before, **edges}:
                for had, diff in ((before, -1), (edges, 1)):
                    if edge in had and before.get(edge) != edges.get(edge):
                        session.update((*edge, had[edge]), diff)
            before, time, began = edges, time + 1, began or bool(edges)
            session.advance_to(time)
            dataflow.step()
            for record, _, diff in output.updates():
                found[record] = found.get(record, 0) + diff
            graph = nx.DiGraph([(*edge, {"weight": weight}) for edge, weight in edges.items()])
            # A row that depends on no other is there from the first edge on.
            wanted = dict.fromkeys(meant(graph), 1) if began else {}
            assert {record: count for record, count in found.items() if count} == wanted
