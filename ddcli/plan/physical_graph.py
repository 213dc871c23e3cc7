"""The physical graph: the outputs of a pipeline as nodes of `physical`, and their common parts.

The engines that the file chooses for its collections belong to nodes of the plan and are no part of any identity: the place
where a collection is computed doesn't change it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.plan import loops
from ddcli.plan.logical import EXPORT
from ddcli.plan.node import Graph, Node, digest
from ddcli.plan.physical import Arrangement, Scan
from ddcli.plan.physical_joins import EquiJoin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ddcli.expressions.types import RowOrder
    from ddcli.plan.estimates import PastRun


@dataclass(frozen=True)
class PhysicalGraph:
    """Outputs by name, and every node once, inputs before readers. `engines` has the engines of nodes for which the file chooses one.

    `orders` has the orders in which outputs are shown, `tags` the tags of their columns: neither is a part of the plan's identity.
    """

    outputs: dict[str, Node]
    nodes: tuple[Node, ...]
    engines: dict[str, frozenset[str]] = field(default_factory=dict)
    orders: dict[str, RowOrder] = field(default_factory=dict)
    tags: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the plan that built the state."""
        return digest(sorted((name, node.fingerprint) for name, node in self.outputs.items()))

    @property
    def exports(self) -> dict[str, str]:
        """The identities of the arrangements that other pipelines may read, by name."""
        return {
            name.removeprefix(EXPORT): node.fingerprint
            for name, node in self.outputs.items()
            if name.startswith(EXPORT)
        }

    @cached_property
    def only_joined(self) -> frozenset[str]:
        """The identities of the arrangements that are read by joins alone."""
        others = {node.fingerprint for node in self.outputs.values()}
        for node in self.nodes:
            if not isinstance(node, EquiJoin):
                others.update(child.fingerprint for child in node.inputs)
        return frozenset(
            node.fingerprint for node in self.nodes if isinstance(node, Arrangement) and node.fingerprint not in others
        )

    def scans(self) -> dict[str, Scan]:
        """Return the inputs that are read, by name, with the columns they need."""
        return {node.name: node for node in self.nodes if isinstance(node, Scan)}


def physical_graph(outputs: dict[str, Node], engines: Engines | None = None) -> PhysicalGraph:
    """Return the graph of physical outputs."""
    return PhysicalGraph(outputs, tuple(Graph(outputs).nodes()), engines or {})


def latest_horizon(node: Node, horizons: Mapping[str, int]) -> int | None:
    """Return the first time at which a collection is known: the latest of its inputs' horizons; None without any."""
    scans = physical_graph({"": node}).scans()
    return max((horizons[name] for name in scans if name in horizons), default=None)


def estimated_rows(
    graph: PhysicalGraph,
    taken: Mapping[str, float],
    held: Mapping[str, int],
    earlier: Sequence[PastRun] = (),
) -> dict[str, float]:
    """Return the rows that operators are expected to emit, by fingerprint, in a run that takes these numbers of rows from inputs, by name.

    `held` are the rows in the state before that run, by fingerprint. There are no estimates for an input that is not `taken`, nor for
    its readers; none in loops, or behind them.
    """
    from ddcli.plan.estimates import PastRows  # few runs estimate anything

    past = PastRows(held, earlier)
    found: dict[str, float] = {}
    for node in graph.nodes:
        inputs = [found.get(child.fingerprint) for child in node.inputs]
        known = [each for each in inputs if each is not None]
        if node.free or isinstance(node, loops.OfLoop | loops.Leave) or len(known) < len(inputs):
            continue
        rows = taken.get(node.name) if isinstance(node, Scan) else node.emitted(known, past)
        if rows is not None:
            found[node.fingerprint] = rows
            before = held.get(node.fingerprint, 0) if isinstance(node, Arrangement) else 0
            below = [past.unfiltered[child.fingerprint] for child in node.inputs]
            past.unfiltered[node.fingerprint] = max([before + rows, *below])
    return found


Engines = dict[str, frozenset[str]]
"""The engines that the file chooses, by fingerprint of nodes. A node that two collections share may have two."""


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
