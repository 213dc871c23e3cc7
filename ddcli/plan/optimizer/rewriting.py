"""A rewritten graph, with the nodes that stand for those of the graph as written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.plan.node import Graph, Node


@dataclass(frozen=True)
class Rewritten:
    """A graph rewritten: the new node of each node of the graph as written, by fingerprint.

    `same` has the nodes whose new node has the same records; `operators` also those whose records are filtered now.
    """

    graph: Graph
    same: Mapping[str, Node]
    operators: Mapping[str, Node]

    def then(self, later: Rewritten) -> Rewritten:
        """Return this rewriting with another one of its graph after it."""
        return Rewritten(later.graph, _through(self.same, later.same), _through(self.operators, later.operators))


def _through(written: Mapping[str, Node], later: Mapping[str, Node]) -> dict[str, Node]:
    return {each: later[node.fingerprint] for each, node in written.items() if node.fingerprint in later}


def as_written(graph: Graph) -> Rewritten:
    """Return a graph that is as it is written."""
    nodes = {node.fingerprint: node for node in graph.nodes()}
    return Rewritten(graph, nodes, nodes)
