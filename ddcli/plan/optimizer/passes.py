"""The passes over a logical graph, in order. Each returns a graph with the same outputs, by the choices of a generation.

Sums over joins are shared while a statement is bound (`shared_sums`); unused columns are dropped as the graph is lowered (`prune`); delta
joins replace joins of the lowered graph (`delta_joins`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

from ddcli.plan.optimizer.delta_joins import reordered
from ddcli.plan.optimizer.pushdown import Rewritten, as_written, pushed_down, read_by_several, side_name, sides
from ddcli.plan.optimizer.sharing import kept_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.plan.generations import Generation
    from ddcli.plan.node import Graph
    from ddcli.plan.optimizer.sharing import JoinSide


def reorder_joins(graph: Graph, choices: Generation) -> Rewritten:
    """Join small collections first, where that is chosen."""
    return reordered(graph, lambda node, _: choices.joins.get(node.place, False))


def push_filters_down(graph: Graph, choices: Generation) -> Rewritten:
    """Move filters below operators whose results have no other reader."""
    known = choices.several or {}
    several = {each for at, each, read in readers(graph) if known.get(at, read)}
    return pushed_down(graph, several, partners=choices.partners, crossed=choices.crossed)


def share_sides(graph: Graph, choices: Generation) -> Rewritten:
    """Move filters above joins whose sides are kept whole."""
    return kept_whole(graph, choices.wholes, side_place) if choices.wholes else as_written(graph)


Pass = Callable[["Graph", "Generation"], Rewritten]
PASSES: tuple[Pass, ...] = (reorder_joins, push_filters_down, share_sides)


def optimized(graph: Graph, choices: Generation, passes: Sequence[Pass] = PASSES) -> Rewritten:
    """Return a graph after passes, one after the other."""
    return reduce(lambda found, each: found.then(each(found.graph, choices)), passes, as_written(graph))


def side_places(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the sides of a graph's joins, each by place and by fingerprint."""
    for node in graph.nodes():
        for child, key in sides(node):
            yield side_name(child.place, key), side_name(child.fingerprint, key)


def readers(graph: Graph) -> Iterator[tuple[str, str, bool]]:
    """Yield each collection and side of a graph, by place and by fingerprint, and whether several read it."""
    several = read_by_several(graph)
    named = [(node.place, node.fingerprint) for node in graph.nodes()]
    for at, fingerprint in [*named, *dict.fromkeys(side_places(graph))]:
        yield at, fingerprint, several[fingerprint]


def side_place(side: JoinSide) -> str:
    """Return the name of a collection as it is kept by a key, without the filters of its readers."""
    return side_name(side.whole.place, side.key)
