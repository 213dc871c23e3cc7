"""Lowering in generations: outputs that are added later change nothing in the plan of the earlier ones.

The lowering of a collection depends on all its readers: they decide which of its columns are kept, and whether its linear steps are fused
into its reader's. So a new output could change the arrangements of all others, and its removal could again. Therefore the
state remembers the choices for lowering the outputs of a *generation* together. A new or edited output joins a generation in which
every column that it reads is kept already, and shares all that is there; otherwise it begins a generation of its own. Equal nodes of two
generations are shared all the same.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.expressions.steps import MapStep
from ddcli.expressions.tree import Column
from ddcli.plan import logical, physical
from ddcli.plan.generation import Choices, Generation, written_order
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph
from ddcli.plan.optimizer.join_order import keeps_key, reordered
from ddcli.plan.optimizer.sharing import Share, by_conditions
from ddcli.plan.physical_graph import PhysicalGraph, physical_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.expressions.types import Schema
    from ddcli.plan.engines import Engines
    from ddcli.plan.joins import Join
    from ddcli.plan.node import Node


@dataclass(frozen=True)
class Plan:
    """A run's computation, as a logical and a physical graph, and the generations of its outputs."""

    logical: Graph
    graph: PhysicalGraph
    generations: tuple[Generation, ...]
    parts: tuple[Graph, ...] = ()
    """The logical graphs of the outputs of each generation."""

    @cached_property
    def meanings(self) -> dict[str, str]:
        """Return for each output the fingerprint that it has by itself: equal ones mean equal collections, with any other outputs beside them.

        An observer of a collection changes nothing of its meaning.
        """
        plain = unobserved(self.logical.outputs)
        return {name: lower(Graph({name: node})).outputs[name].fingerprint for name, node in plain.items()}

    def lowered(self, node: Node) -> list[Node]:
        """Return the physical nodes of a logical node, one of each generation that has it."""
        parts = zip(self.generations, self.parts, strict=True)
        known = [generation.nodes(part).get(node.fingerprint) for generation, part in parts]
        return [found for found in known if found is not None]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the plan that built the state."""
        return self.graph.fingerprint

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a manifest keeps of the plan."""
        return {
            "generations": [generation.to_json() for generation in self.generations],
            "outline": self.logical.outline(),
        }


def known_generations(cached: Mapping[str, Any] | None) -> tuple[Generation, ...]:
    """Return the generations in a result of `Plan.to_json`, if it has any."""
    return tuple(Generation.from_json(tree) for tree in cached["generations"]) if cached else ()


def wrongly_keyed(graph: Graph, cached: Mapping[str, Any]) -> frozenset[str]:
    """Return the outputs whose keys may have wrong values in a state that kept `cached` (`Plan.to_json`): an earlier version reordered joins so that keys were lost."""
    trees = [tree for tree in cached["generations"] if not tree.get("keys")]
    first = {at for tree in trees for at in tree.get("joins", {"first": ()})["first"]}
    found: set[str] = set()
    for name, output in graph.outputs.items() if first else ():

        def put_first(node: Join, other: Join, name: str = name) -> bool:
            if node.place in first and keeps_key(node, other):
                found.add(name)
            return node.place in first

        reordered(Graph({name: output}), put_first)
    return frozenset(found)


def plan(
    graph: Graph,
    before: Sequence[Generation] = (),
    choices: Choices | None = written_order,
    *,
    deltas: bool = True,
    share: Share = by_conditions,
) -> Plan:
    """Return the plan of a graph: nodes that the generations `before` have keep their choices; `choices` and `share` are as for `Generation.of`.

    With `deltas`, possible delta joins that no generation knows become delta joins, unless `choices` is None.
    """
    groups: list[dict[str, Node]] = [{} for _ in (*before, None)]
    for name, node in graph.outputs.items():
        known = sorted(range(len(before)), key=lambda at: -_common(node, before[at]))
        fitting = next((at for at in known if before[at].fits(node)), len(before))
        groups[fitting][name] = node
    generations: list[Generation] = []
    parts: list[Graph] = []
    outputs: dict[str, Node] = {}
    engines: Engines = {}
    for at, group in enumerate(groups):
        if group:
            together = Graph(group, graph.engines)
            old = before[at] if at < len(before) else None
            found = Generation.of(together, old, choices, share)
            lowered = found.lowered(together)
            none: dict[str, bool] | None = {} if choices is not None else None
            joined = none if old is None else old.deltas
            if joined is not None:
                found = found.with_deltas(lowered, joined, deltas=deltas)
            generations.append(found)
            parts.append(together)
            outputs |= found.joined(lowered.outputs, lowered)
            engines |= lowered.engines
    ordered = {name: outputs[name] for name in graph.outputs}
    lowered_graph = physical_graph(one_scan_an_input(ordered), engines)
    whole = replace(lowered_graph, orders=graph.orders)
    return Plan(graph, whole, tuple(generations), tuple(parts))


def _common(node: Node, generation: Generation) -> int:
    """Return the number of collections below an output that a generation has."""
    return sum(below.place in generation.columns for below in Graph({"": node}).nodes())


def one_scan_an_input(outputs: dict[str, Node]) -> dict[str, Node]:
    """Return outputs in which each input is read once: generations that need different columns pick theirs from one scan."""
    scans: dict[str, dict[str, physical.Scan]] = {}
    for node in Graph(outputs).nodes():
        if isinstance(node, physical.Scan):
            scans.setdefault(node.name, {})[node.fingerprint] = node
    picks: dict[str, Node] = {}
    for found in scans.values():
        if len(found) > 1:
            schema: Schema = {column: kind for scan in found.values() for column, kind in scan.schema.items()}
            whole = replace(next(iter(found.values())), schema=schema)
            for scan in found.values():
                if list(scan.schema) != list(schema):
                    columns = tuple((column, Column(column, kind)) for column, kind in scan.schema.items())
                    pick = physical.Pick((whole,), scan.schema, (MapStep(columns),), scan.fingerprint)
                    picks[scan.fingerprint] = pick
                else:
                    picks[scan.fingerprint] = whole
    return substitute(outputs, picks.get) if picks else outputs


def substitute(outputs: dict[str, Node], other: Callable[[str], Node | None]) -> dict[str, Node]:
    """Return outputs in which each node is replaced by the one that `other` returns for its fingerprint, if it returns one.

    The others keep their identity if the replacements have that of the nodes that they replace.
    """
    done: dict[str, Node] = {}
    for node in Graph(outputs).nodes():
        found = other(node.fingerprint)
        if found is None:
            found = node.over(tuple(done[child.fingerprint] for child in node.inputs))
        done[node.fingerprint] = found
    return {name: done[node.fingerprint] for name, node in outputs.items()}


def unobserved(outputs: dict[str, Node]) -> dict[str, Node]:
    """Return logical outputs without the nodes that only show or watch collections."""
    done: dict[str, Node] = {}
    for node in Graph(outputs).nodes():
        inputs = tuple(done[child.fingerprint] for child in node.inputs)
        observes = isinstance(node, logical.Inspect | logical.Watched)
        done[node.fingerprint] = inputs[0] if observes else node.over(inputs)
    return {name: done[node.fingerprint] for name, node in outputs.items()}
