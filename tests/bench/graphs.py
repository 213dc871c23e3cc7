"""Queries of graphs with loops, through the library. Edges are pairs of nodes; the same edge may be there more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.api import Dataflow

if TYPE_CHECKING:
    from ddcli.api import Collection, Input, Output

BY_LENGTH = "256 * cast(ceil(log(2, label + 1) / 4) as bigint)"
"""The round in which a label enters: every 256 rounds come those of one hexadecimal digit more.

Until then all shorter ones have spread as far as they get, so that hardly any label goes further than its own node: rows in the
loop are a fifth of those of labels that enter at once (with a round or so between lengths, a fourth to two thirds). Single bits
instead of digits make no fewer rows, but more rounds, for changes too: each meets the rounds in which its nodes' labels came.
"""


def components(workers: int, at: str | None = None) -> tuple[Dataflow, Input, Output]:
    """Return the dataflow of the least node that each is connected to, by labels that enter at once or in the round `at`."""
    dataflow = Dataflow(workers)
    edges = _edges(dataflow)
    links = _both_ways(edges)
    labels = links.map(node="src", label="src").distinct()
    return dataflow, edges, _propagated(labels, links, at).output()


def distances(workers: int, root: int) -> tuple[Dataflow, Input, Output]:
    """Return the dataflow of the least number of edges from a root to each node."""
    dataflow = Dataflow(workers)
    edges = _edges(dataflow)
    links = _both_ways(edges)
    roots = dataflow.input("roots", {"node": "int64", "distance": "int64"})
    roots.insert((root, 0))
    roots.close()

    def body(reached: Collection) -> Collection:
        further = reached.join(links, on={"node": "src"}).map(node="dst", distance="distance + 1")
        return further.concat(roots).reduce(["node"], distance="min(distance)")

    return dataflow, edges, roots.iterate(body).output()


def cyclic(workers: int, at: str | None = None) -> tuple[Dataflow, Input, Output]:
    """Return the dataflow of the edges within strongly connected components.

    Such an edge has both ends where the least node arrives that reaches them, and where the least arrives that they reach.
    Each is found along the edges that are left of the other: two loops in one that ends when all edges that are left
    are such. (F. McSherry's algorithm, in the examples of Differential Dataflow.)
    """
    dataflow = Dataflow(workers)
    edges = _edges(dataflow)
    back = _turned(edges)
    labels = _both_ways(edges).map(node="src", label="src").distinct()

    def agreed(every: Collection, left: Collection) -> Collection:
        """Give, of every edge, those at both of whose ends the same label arrives along what is left; all turned round."""
        found = _propagated(labels, left, at)
        ends = every.join(found, on={"src": "node"}, name="head").join(found, on={"dst": "node"}, name="tail")
        return _turned(ends.filter("head.label = tail.label"))

    return dataflow, edges, edges.iterate(lambda left: agreed(back, agreed(edges, left))).output()


def _edges(dataflow: Dataflow) -> Input:
    return dataflow.input("edges", {"src": "int64", "dst": "int64"})


def _both_ways(edges: Collection) -> Collection:
    return edges.concat(_turned(edges))


def _turned(edges: Collection) -> Collection:
    return edges.map(src="dst", dst="src")


def _propagated(labels: Collection, links: Collection, at: str | None = None) -> Collection:
    """Return the least label that comes to each node along the links, its own included.

    With `at` a label is nowhere before that round. If small ones have spread by then, it goes no further than its node.
    """

    def body(best: Collection) -> Collection:
        come = best.join(links, on={"node": "src"}).map(node="dst", label="label")
        return come.concat(labels.enter(at)).reduce(["node"], label="min(label)")

    return (labels.filter("false") if at else labels).iterate(body)
