"""Joins in another order than the file has: a collection that only adds columns to a small one is joined with that first.

`(large join small) join other`, where the other's key is of the small collection, becomes `large join (small join other)`: the large collection is
arranged once less, and all equal lookups share it.
"""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING

from ddcli.plan import joins, logical
from ddcli.plan.node import Graph
from ddcli.plan.optimizer.prune import Rewritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ddcli.expressions.types import Schema
    from ddcli.plan.engines import Engines
    from ddcli.plan.joins import Join
    from ddcli.plan.node import Node

MUCH = 32
"""The ratio of the first collection to the others from which on another order is worth it."""


def reordered(graph: Graph, wanted: Callable[[Join, Join], bool]) -> Rewritten:
    """Return a graph in which a join is computed before the one on its left if `wanted` is true for the join as written and that one."""
    done: dict[str, Node] = {}
    wishes: Engines = {}
    for node in graph.nodes():
        inputs = tuple(done[child.fingerprint] for child in node.inputs)
        found = node.over(inputs)
        if isinstance(node, joins.Join) and isinstance(found, joins.Join):
            first = inputs[0]
            if isinstance(first, joins.Join) and (other := _small_first(found, first)) and wanted(node, first):
                found = other
                if node.fingerprint in graph.engines:
                    wishes[found.right.fingerprint] = graph.engines[node.fingerprint]
        done[node.fingerprint] = found
    outputs = {name: done[node.fingerprint] for name, node in graph.outputs.items()}
    wishes |= {done[each].fingerprint: wish for each, wish in graph.engines.items() if each in done}
    found_graph = Graph(outputs, wishes)
    there = {node.fingerprint for node in found_graph.nodes()}
    same = {each: node for each, node in done.items() if node.fingerprint in there}
    return Rewritten(found_graph, same, same)


def much_smaller(sizes: Mapping[str, int], node: Join, first: Join) -> bool:
    """Return whether the collections that `node` would join first are much smaller than the one that is joined with them then, by the bytes of inputs."""
    large, small, other = (_size(each, sizes) for each in (*first.inputs, node.right))
    return large is not None and small is not None and other is not None and MUCH * max(small, other) <= large


def keeps_key(node: Join, first: Join) -> bool:
    """Return whether a join has a key of the one before it as a key of its own."""
    partner, origin = dict(first.on), {name: source for name, side, source in first.columns if side != "right"}
    return any(side == "key" and origin.get(source) in partner for _, side, source in node.columns)


def _size(node: Node, sizes: Mapping[str, int]) -> int | None:
    """Return the bytes of the largest input below; None if that is not known, or a loop is."""
    names = logical.sources(Graph({"": node}))
    if node.free or not names or not names.keys() <= sizes.keys():
        return None
    return max(sizes[name] for name in names)


def _small_first(node: Join, first: Join) -> Join | None:
    """Return a join whose left side is another, `first`, with the right sides joined first; None if its key is not of these alone."""
    if node.how != "inner" or first.how != "inner":
        return None
    large, small, other = first.left, first.right, node.right
    partner = dict(reversed(first.on))
    origin = {name: (side, source) for name, side, source in first.columns}
    own: dict[str, str] = {}
    """The columns of the small collection, by their names in the first join."""
    for name, (side, source) in origin.items():
        if side == "right":
            own[name] = source
        elif source in partner and small.schema[partner[source]].required() == large.schema[source].required():
            own[name] = partner[source]
    if not all(one in own for one, _ in node.on):
        return None
    on = tuple((own[one], other_key) for one, other_key in node.on)
    inner, called = joined_whole(small, other, on)
    result: list[tuple[str, str, str]] = []
    for name, side, source in node.columns:
        if side == "right":
            result.append((name, "right", called[source]))
        else:  # a key of the first join stays one: a join has it from its left side
            below, column = origin[source]
            result.append((name, below, column))
    return joins.Join((large, inner), node.schema, first.on, "inner", tuple(result))


def joined_whole(left: Node, right: Node, on: Iterable[tuple[str, str]]) -> tuple[Join, dict[str, str]]:
    """Return the inner join of two collections with all columns of both; the left columns keep their names. Also return the new names of the right columns."""
    on = (*on,)
    keys, other_keys = {one for one, _ in on}, {key for _, key in on}
    schema: Schema = {name: kind.required() if name in keys else kind for name, kind in left.schema.items()}
    columns = [(name, "left", name) for name in left.schema]
    called: dict[str, str] = {}
    for name, kind in right.schema.items():
        numbered = (f"{name}#{number}" for number in count(len(schema)))
        called[name] = next(each for each in chain([name], numbered) if each not in schema)
        schema[called[name]] = kind.required() if name in other_keys else kind
        columns.append((called[name], "right", name))
    return joins.Join((left, right), schema, on, "inner", tuple(columns)), called
