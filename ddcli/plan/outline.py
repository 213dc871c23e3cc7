"""A graph in words, for people: `dd plan` compares them when a pipeline has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.expressions.tree import Column
from ddcli.plan import groupings, logical

if TYPE_CHECKING:
    from ddcli.plan.node import Graph, Node

INPUT = "input"
"""The kind of an input."""


def outline(graph: Graph) -> dict[str, Any]:
    """Return a graph for people, JSON-able: each node's kind, words and inputs by its fingerprint, and the outputs' fingerprints."""
    nodes = {node.fingerprint: [*wording(node), [child.fingerprint for child in node.inputs]] for node in graph.nodes()}
    return {"nodes": nodes, "outputs": {name: node.fingerprint for name, node in graph.outputs.items()}}


def wording(node: Node) -> tuple[str, str]:
    """Return an operator's kind and its words, for people."""
    if isinstance(node, logical.Source):
        return INPUT, f"{node.name} ({', '.join(f'{name} {kind}' for name, kind in node.schema.items())})"
    if isinstance(node, logical.Apply):
        kind, _, words = str(node.identity_values[0]).partition(" ")
        return kind, words
    if isinstance(node, groupings.Reduce):
        return "reduce", _reduction(node)
    return node.operator.lower(), _plain(node.identity_values)


def _reduction(node: groupings.Reduce) -> str:
    by = ", ".join(
        name if expression.text() == Column(name, expression.type).text() else f"{name}: {expression.text()}"
        for name, expression in node.by
    )
    results = []
    for name, expression in node.results:
        words = expression.text()
        for at, call in enumerate(node.calls):
            words = words.replace(Column(f"${at}", call.type).text(), call.text())
        results.append(f"{name}: {words}")
    return f"by {by}: {', '.join(results)}" if by else ", ".join(results)


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_plain(each) for each in value if each is not None)
    return str(value)
