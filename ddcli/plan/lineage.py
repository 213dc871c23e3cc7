"""Column lineage: the columns of inputs that a collection's columns come from, or that decide them.

A column of a collection has *sources*, of which its values are made, and *influences*, which only decide which value a record has or which
records there are: conditions, join keys, groups, orders. Both are found by walking down from the column over the facts of each node
(`value_sources`, `value_dependencies`, `presence_dependencies`). The walk is over columns of nodes, each once as a source and once as an
influence; so loops, whose variables are read by their own definitions, end.

It is an upper bound, and holds for every content of the inputs whose multiplicities are not negative: if the values of an input's column
change, only columns change that have it as a source or an influence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.named_tuple import NamedTuple
from ddcli.plan.logical import Source
from ddcli.plan.loops import Iterate, Leave, LoopVariable
from ddcli.plan.node import below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddcli.plan.node import Node

SourceColumn = tuple[str, str]
"""An input's name, and one of its columns."""


class Lineage(NamedTuple):
    """The columns of inputs that a column comes from: by value, or because they decide about it. Each is in one of both, in order."""

    sources: list[SourceColumn]
    influences: list[SourceColumn]


PRESENCE = None
"""The records that a node has, in place of a column's name."""
Step = tuple["Node", str | None, bool]
"""A column of a node or its `PRESENCE`, and whether all on the way to it were sources."""


def lineage(node: Node, name: str) -> Lineage:
    """Return the lineage of a column of a logical node."""
    loops = _loops(node)
    sources, influences = set[SourceColumn](), set[SourceColumn]()
    met = set[tuple[str, str | None, bool]]()
    left: list[Step] = [(node, name, True), (node, PRESENCE, False)]
    while left:
        here, column, by_value = left.pop()
        known = here.fingerprint, column, by_value
        if known in met:
            continue
        met.add(known)
        if isinstance(here, Source):
            if column is not PRESENCE:
                (sources if by_value else influences).add((here.name, column))
        else:
            left += _steps(here, column, by_value, loops)
    return Lineage(sorted(sources), sorted(influences - sources))


def _steps(node: Node, column: str | None, by_value: bool, loops: dict[str, Iterate]) -> Iterator[Step]:
    """Yield the columns and presences of other nodes on which a node's column, or its presence, depends directly."""
    through = _forwarded(node, loops)
    if through is not None:
        yield from ((each, column, by_value) for each in through)
    elif column is PRESENCE:
        yield from ((child, PRESENCE, False) for child in node.inputs)
        yield from ((node.inputs[at], name, False) for at, name in node.presence_dependencies())
    else:
        sources = node.value_sources(column)
        yield from ((node.inputs[at], name, by_value) for at, name in sources)
        others = [each for each in node.value_dependencies(column) if each not in sources]
        yield from ((node.inputs[at], name, False) for at, name in others)


def _forwarded(node: Node, loops: dict[str, Iterate]) -> Iterable[Node] | None:
    """Return the nodes whose records those of a node are, where it only brings records into a loop, round it, or out of it."""
    if isinstance(node, LoopVariable):
        loop = loops[node.loop]
        return loop.initials[node.index], loop.bodies[node.index]
    if isinstance(node, Leave):
        (left,) = node.inputs
        assert isinstance(left, Iterate)
        # Without rounds a variable is its initial collection.
        return (left.bodies[node.which], *left.initials[node.which : node.which + 1])
    return None


def _loops(node: Node) -> dict[str, Iterate]:
    """Return the loops below a node by name."""
    found: dict[str, Iterate] = {}
    known = set[str]()
    for each in below(node, lambda known_node: known_node.fingerprint in known):
        known.add(each.fingerprint)
        if isinstance(each, Iterate):
            found[each.loop] = each
    return found
