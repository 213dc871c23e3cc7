"""What the pipelines with loops mean at one time, by the algorithms of networkx and scipy.

Each function takes the collections of the inputs (records with their multiplicities, which are never negative) and the
time, and returns the records of each output, which are there once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.pipelines.support import Record, Time

    Inputs = dict[str, Iterable[Record]]
    Outputs = dict[str, set[Record]]


def reachable(inputs: Inputs, _: Time) -> Outputs:
    """Return the pairs of airports of which one is reached from the other by a leg or several: itself, too, where legs lead back."""
    graph = nx.DiGraph([(origin, dest) for _, origin, dest, _ in inputs["legs"]])
    return {"reachable": set(nx.transitive_closure(graph, reflexive=False).edges)}


def components(inputs: Inputs, now: Time) -> Outputs:
    """Return the least name in the component of each woman and event of the last 60 days."""
    graph = nx.Graph([(woman, event) for woman, event, day in inputs["attendance"] if day <= now < day + 60])
    return {"component": {(node, min(circle)) for circle in nx.connected_components(graph) for node in circle}}


def risk(inputs: Inputs, _: Time) -> Outputs:
    """Return who is in one component with somebody accused, when those who are vetted are taken out."""
    graph = nx.Graph([(one, other) for one, other, times in inputs["dealings"] if times >= 2])
    graph.add_nodes_from(accused for _, accused in inputs["accusations"])
    accused = {accused for _, accused in inputs["accusations"]}
    graph.remove_nodes_from(person for (person,) in inputs["vetted"])
    circles = [circle for circle in nx.connected_components(graph) if circle & accused]
    return {"at_risk": {(person,) for circle in circles for person in circle}}


def shortest(inputs: Inputs, _: Time) -> Outputs:
    """Return least miles and fewest legs from each start to each airport that can be reached from there."""
    miles: dict[tuple[str, str], int] = {}
    for _, origin, dest, length in inputs["legs"]:
        miles[origin, dest] = min(length, miles.get((origin, dest), length))
    starts = [start for (start,) in inputs["starts"]]
    airports = sorted({airport for pair in miles for airport in pair} | set(starts))
    if not starts:
        return {"distance": set()}
    graph = matrix(airports, miles)
    roots = [airports.index(start) for start in starts]
    least, fewest = dijkstra(graph, indices=roots), dijkstra(graph, indices=roots, unweighted=True)
    return {
        "distance": {
            (start, airport, int(least[row, column]), int(fewest[row, column]))
            for row, start in enumerate(starts)
            for column, airport in enumerate(airports)
            if np.isfinite(fewest[row, column])
        }
    }


def scc(inputs: Inputs, _: Time) -> Outputs:
    """Return each airline's legs with both ends in one strong component, and the least airport of each airport's component."""
    edges = {(carrier, origin, dest) for carrier, origin, dest, _ in inputs["legs"]}
    round_trips, network = set(), set()
    for carrier in {carrier for carrier, _, _ in edges}:
        pairs = {(src, dst) for by, src, dst in edges if by == carrier}
        airports = sorted({airport for pair in pairs for airport in pair})
        _, number = connected_components(matrix(airports, dict.fromkeys(pairs, 1)), connection="strong")
        label: dict[str, str] = {}
        for airport, component in zip(airports, number, strict=True):  # sorted: the first of a component is its least
            label[airport] = airports[number.tolist().index(component)]
        round_trips |= {(carrier, src, dst) for src, dst in pairs if label[src] == label[dst]}
        network |= {(carrier, *labelled) for labelled in label.items()}
    return {"round_trips": round_trips, "network": network}


def matrix(nodes: list[str], edges: dict[tuple[str, str], int]) -> csr_array:
    """Return a graph as scipy takes it: the edges' positive weights."""
    at = {node: index for index, node in enumerate(nodes)}
    rows, columns = [at[src] for src, _ in edges], [at[dst] for _, dst in edges]
    return csr_array((list(edges.values()), (rows, columns)), shape=(len(nodes), len(nodes)), dtype=float)


MEANING = {f.__name__: f for f in (reachable, components, risk, shortest, scc)}
