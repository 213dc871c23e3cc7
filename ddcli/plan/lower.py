"""Lowering of the logical graph to the physical one: each node as its `lowered` returns it, once, with the columns that its readers need.

Columns that no operator reads are dropped at the scan and wherever the state would keep them. To drop a column of a collection is a projection, and every operator that does not read the column has the same
result over the projection. A node has the columns that its operator reads; operators that compare whole records read all columns, and so do loops.

A *side* is a collection as joins by one key read it. It is arranged with the columns that these joins need, even if others
read more columns of the collection.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Self

from ddcli.dataclass import dataclass
from ddcli.errors import UsageError
from ddcli.expressions.types import cheapest
from ddcli.plan import logical
from ddcli.plan.joins import keyed
from ddcli.plan.node import Graph, Node
from ddcli.plan.physical import EXPORT, Engines, PhysicalGraph
from ddcli.plan.shape import conform, is_choice

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Columns


def lower(graph: Graph) -> PhysicalGraph:
    """Return the physical graph that computes the outputs of `graph`; raise UsageError for one that a loop keeps inside."""
    return GraphLowering.of(graph).graph(graph)


def read_counts(graph: Graph) -> Counter[str]:
    """Return the number of readers of each node: a node with two is computed once, so it is fused into neither."""
    counts = Counter(child.fingerprint for node in graph.nodes() for child in node.inputs)
    counts.update(node.fingerprint for node in graph.outputs.values())
    return counts


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
        wanted = required[node.fingerprint] = required[node.fingerprint] or frozenset(cheapest(node.schema))
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


def read_by_several(graph: Graph) -> dict[str, bool]:
    """Return for each node of a graph, by fingerprint, and for each side, by name, whether several read it."""
    found: dict[str, bool] = {}

    def read(name: str) -> None:
        found[name] = name in found

    for node in graph.outputs.values():
        read(node.fingerprint)
    for node in graph.nodes():
        for child in node.inputs:
            read(child.fingerprint)
        for child, key in sides(node):
            read(side_name(child.fingerprint, key))
    return found


@dataclass
class GraphLowering:
    """The lowering of a logical graph's nodes to physical ones, each once."""

    required: dict[str, frozenset[str]]
    once: frozenset[str]
    alike: bool
    two_steps: bool
    _done: dict[str, Node] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: Graph,
        columns: Mapping[str, frozenset[str]] | None = None,
        once: frozenset[str] | None = None,
        *,
        alike: bool = False,
        two_steps: bool = True,
    ) -> Self:
        """Return the lowering of a graph's nodes.

        `columns` are the least to keep of each node, by fingerprint; `once` the nodes with a single reader. By default, and for nodes
        that `columns` doesn't have, both come from the graph. With `alike`, equal arrangements are one, whether or not their
        collection has other readers; older states have them apart. They have not counted distinct values in `two_steps`, either.
        """
        alone = {fingerprint for fingerprint, count in read_counts(graph).items() if count == 1}
        if once is not None:
            alone = {fingerprint for fingerprint in alone if fingerprint not in (columns or {})} | once
        return cls(required_columns(graph, columns), frozenset(alone), alike, two_steps)

    def graph(self, graph: Graph) -> PhysicalGraph:
        """Return the physical graph that computes the outputs of the graph; raise UsageError for one that a loop keeps inside."""
        for node in graph.outputs.values():
            if node.free:
                raise UsageError(
                    "a collection of a loop's body is read outside of the loop", hint="let it leave the loop"
                )
        self.nodes(graph)  # inputs first, so that no lowering recurses deeply
        outputs = {
            name: self.exported(node) if name.startswith(EXPORT) else self.node(node)
            for name, node in graph.outputs.items()
        }
        made = Graph(outputs).nodes()
        return PhysicalGraph(outputs, tuple(made), self.engines(graph.nodes(), graph.engines, made))

    def nodes(self, graph: Graph) -> dict[str, Node]:
        """Return the physical node of each node of the graph, by its fingerprint, with the columns of it that any reader needs.

        A node that is fused into its reader is in no physical graph; it maps to the node that the reader would read without fusion.
        """
        return {node.fingerprint: self.node(node) for node in graph.nodes()}

    def node(self, node: Node) -> Node:
        """Return the physical node with the required columns of a logical one, in its order."""
        done = self._done.get(node.fingerprint)
        if done is None:
            done = self._done[node.fingerprint] = node.lowered(self)
        return done

    def exported(self, node: Node) -> Node:
        """Return the arrangement of all columns of a collection by the key that it is exported with, as joins by that key read it.

        Records whose key is null are not in it: no lookup could find them.
        """
        assert isinstance(node, logical.Arrange)
        (child,) = node.inputs
        # Joins sort their keys, which may be written in any order.
        exported = self.exactly(child, child.schema)
        return keyed(exported, sorted(set(node.by)), fuse=self.alike and is_choice(exported))

    def engines(self, graph: Sequence[Node], wishes: Engines, nodes: Sequence[Node]) -> Engines:
        """Return the engine on which each physical node of a graph is to be computed."""
        return lowered_wishes(wishes, graph, self._done, nodes)

    def schema(self, node: Node) -> Schema:
        needed = self.required[node.fingerprint]
        return {name: kind for name, kind in node.schema.items() if name in needed}

    def read_once(self, node: Node) -> bool:
        return node.fingerprint in self.once

    def exactly(self, child: Node, schema: Schema) -> Node:
        """Return the physical node of `child` with just these columns, in this order, of these types."""
        return conform(self.node(child), schema, fuse=self.read_once(child))

    def side(self, child: Node, keys: Sequence[str], *, fuse: bool = False) -> Node:
        """Return the physical node of `child` with the columns that joins by these keys need, in its order."""
        whole, needed = self.node(child), self.required[side_name(arranged(child).fingerprint, keys)]
        return conform(whole, {name: kind for name, kind in whole.schema.items() if name in needed}, fuse=fuse)


def own_nodes(results: Iterable[Node], others: Collection[str]) -> Iterator[str]:
    """Yield the nodes that a collection adds to those that it refers to: nodes below `others` are not its own."""
    seen = set(others)
    left = list(results)
    while left:
        node = left.pop()
        if node.fingerprint not in seen:
            seen.add(node.fingerprint)
            yield node.fingerprint
            left += node.inputs


def lowered_wishes(wishes: Engines, graph: Sequence[Node], done: Mapping[str, Node], nodes: Iterable[Node]) -> Engines:
    """Return wishes for the nodes of a logical graph as wishes for the physical nodes that they became.

    `graph` has the logical nodes, inputs before readers, `done` the physical node of each. The wish for a step that was fused into its reader's
    passes to the other nodes of its collection below; without any, to the reader.
    """
    if not wishes:
        return {}
    present = {node.fingerprint for node in nodes}
    found: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    met: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    left: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    for node in graph:
        children = [child.fingerprint for child in node.inputs]
        wanted = wishes.get(node.fingerprint, frozenset()).union(*(left[child] for child in children))
        if not wanted:
            continue
        below = set(own_nodes([done[child] for child in children if child in done], ()))
        own = present.intersection(own_nodes([done[node.fingerprint]] if node.fingerprint in done else (), below))
        for each in own:
            found[each] |= wanted
        placed = wanted if own else wanted & frozenset[str]().union(*(met[child] for child in children))
        met[node.fingerprint], left[node.fingerprint] = placed, wanted - placed
    return dict(found)
