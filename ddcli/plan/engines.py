"""The engines that the file chooses for its collections, lowered_wishes over to the nodes of the plan.

They are no part of any identity: the place where a collection is computed doesn't change it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ddcli.plan.node import Node

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
