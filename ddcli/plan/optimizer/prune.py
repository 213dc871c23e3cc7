"""The columns of each collection that any operator reads: the others are dropped at the scan and wherever the state would keep them.

To drop a column of a collection is a projection, and every operator that does not read the column has the same
result over the projection. A node has the columns that its operator reads; operators that compare whole records read all columns, and so do loops.

A *side* is a collection as joins by one key read it. It is arranged with the columns that these joins need, even if others
read more columns of the collection.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.plan import logical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Columns, Graph, Node


def required_columns(graph: Graph, least: Mapping[str, Columns] | None = None) -> dict[str, Columns]:
    """Return, by node fingerprint, the columns of each node that some reader or output needs, and the columns in `least`.

    Sides are included, by the fingerprint of the collection and the key (see `side_name`).
    """
    required: dict[str, Columns] = {}
    for node in graph.outputs.values():
        required[node.fingerprint] = frozenset(node.schema)
    for node in reversed(graph.nodes()):
        if least and node.fingerprint in least:
            required[node.fingerprint] = required.get(node.fingerprint, frozenset()) | least[node.fingerprint]
        if isinstance(node, logical.Source) and node.arranged:
            # Read in place, whole: a part of it would have to be arranged anew.
            required[node.fingerprint] = frozenset(node.schema)
        # An operator that counts rows only needs some column: any that others read will do.
        wanted = required[node.fingerprint] = required[node.fingerprint] or cheapest(node.schema)
        needs = node.reads(wanted)
        for child, columns in zip(node.inputs, needs, strict=True):
            required[child.fingerprint] = required.get(child.fingerprint, frozenset()) | columns
        for (child, key), columns in zip(sides(node), needs, strict=False):
            name = side_name(child.fingerprint, key)
            whole = isinstance(child, logical.Source) and child.arranged
            known = least.get(name, frozenset()) if least else frozenset()
            some = frozenset(child.schema) if whole else columns.union(key)
            required[name] = required.get(name, frozenset()) | some | known
    return required


def side_name(identity: str, key: Iterable[str]) -> str:
    """Return the name of the collection with this identity as joins by a key read it."""
    return f"{identity} by {json.dumps(sorted(set(key)))}"


def sides(node: Node) -> list[tuple[Node, tuple[str, ...]]]:
    """Return the collections that a node reads by a key, in the order of its inputs, and the keys."""
    return [(arranged(child), key) for child, key in zip(node.inputs, node.read_by, strict=False)]


def arranged(node: Node) -> Node:
    """Return the collection that is arranged where a node is: the one below explicit arrangements."""
    while isinstance(node, logical.Arrange):
        (node,) = node.inputs
    return node


def cheapest(schema: Schema) -> Columns:
    """Return one column, of fixed width if possible: an operator that only counts rows needs some column."""
    return frozenset(sorted(schema, key=lambda name: schema[name].kind in ("string", "binary", "list", "struct"))[:1])


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
