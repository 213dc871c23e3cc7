"""Sums over a join, computed from the sums over one of its sides that another part of the statement keeps.

`select ..., sum(l_quantity) from orders join lineitem on ... group by o_orderkey, ...` beside `o_orderkey in (select l_orderkey from lineitem
group by l_orderkey having sum(l_quantity) > 300)` needs no join with the rows of `lineitem`: the reduction by the join's key has their sum.

It is exact for any multiplicities. If the groups include the join's key, a group consists of the other side's rows, of total multiplicity M,
each joined with all rows of one key, whose sum the kept record has. So the sum over the pairs is M times that, and so are the counts that decide
whether a group of a reduction exists. That needs the same calls in both reductions, over numbers that are summed exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.expressions.aggregates import AGGREGATES, AggregateCall
from ddcli.expressions.steps import FilterStep
from ddcli.expressions.tree import Column
from ddcli.plan import groupings, joins, logical
from ddcli.plan.cells import is_accumulable
from ddcli.plan.node import Node, below
from ddcli.plan.sql import nodes
from ddcli.plan.sql.names import renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Kept = dict[tuple[str, frozenset[str], frozenset[str]], groupings.Reduce]
    """Reductions by the fingerprint of their rows, by the columns that they group by, and by the texts of their calls over the rows' columns."""


def shared(node: Node, leaves: Sequence[Node]) -> Node:
    """Return a statement's node with sums over joins computed from other sums in it. The leaves, which belong to other collections, stay as they are."""
    leaves = [
        *leaves,
        *(_rows(leaf)[0] for leaf in leaves),
    ]  # readers may have skipped a leaf that only renames columns
    made = {leaf.fingerprint: leaf for leaf in leaves}
    order: list[Node] = []
    seen = set(made)
    for each in below(node, lambda each: each.fingerprint in seen):
        seen.add(each.fingerprint)
        order.append(each)
    kept = _kept(order)
    if len(kept) < 2 or not any(isinstance(each, joins.Join) for each in order):
        return node

    instead: dict[str, Node] = {}

    def chosen(each: Node) -> Node:
        if each.fingerprint not in instead:
            instead[each.fingerprint] = (_over_sums(each, kept) if isinstance(each, groupings.Reduce) else None) or each
        return instead[each.fingerprint]

    for each in below(node, lambda each: each.fingerprint in made, lambda each: chosen(each).inputs):
        found = chosen(each)
        inputs = tuple(made[child.fingerprint] for child in found.inputs)
        same = all(one is other for one, other in zip(inputs, found.inputs, strict=True))
        made[each.fingerprint] = found if same else replace(found, inputs=inputs)
    return made[node.fingerprint]


def _kept(order: Iterable[Node]) -> Kept:
    """Return the nodes that group by columns and compute sums and counts alone."""
    found: Kept = {}
    for node in order:
        if isinstance(node, groupings.Reduce) and _sums(node) and not node.free:
            rows, names = _rows(node.inputs[0])
            by = [each for _, each in node.by]
            columns = frozenset(names[each.name] for each in by if isinstance(each, Column))
            if len(columns) == len(by):
                calls = frozenset(_renamed(call, names).text() for call in node.calls)
                found.setdefault((rows.fingerprint, columns, calls), node)
    return found


def _over_sums(node: groupings.Reduce, kept: Kept) -> groupings.Reduce | None:
    """Return sums over a join as sums over the join with a kept reduction in place of one side; None if no kept one fits."""
    join, names = _rows(node.inputs[0])
    if not isinstance(join, joins.Join) or join.how != "inner" or node.free or not _sums(node):
        return None
    sources = {name: (1 if side == "right" else 0, source) for name, side, source in join.columns}
    read = {name: sources[names[name]] for name in names}
    grouped = {read[each.name] for _, each in node.by if isinstance(each, Column)}
    if not all((0, one) in grouped or (1, other) in grouped for one, other in join.on):
        return None
    by = dict.fromkeys(name for _, each in node.by for name in sorted(each.columns()))
    for at in (0, 1):
        rows, own = _rows(join.inputs[at])
        keys = {pair[at] for pair in join.on}
        summed = {name: own[source] for name, (side, source) in read.items() if side == at}
        if not all(call.columns() <= summed.keys() for call in node.calls):
            continue
        if not all(read[name][0] != at or read[name][1] in keys for name in by):
            continue
        calls = [_renamed(call, summed).text() for call in node.calls]
        sums = kept.get((rows.fingerprint, frozenset(own[key] for key in keys), frozenset(calls)))
        if sums is None or sums is node:
            continue
        _, inner = _rows(sums.inputs[0])
        key_of = {inner[each.name]: name for name, each in sums.by if isinstance(each, Column)}
        texts = [_renamed(call, inner).text() for call in sums.calls]
        value_of = {texts[int(each.name[1:])]: name for name, each in sums.results if isinstance(each, Column)}
        if not value_of.keys() >= set(calls):
            continue
        side = ("left", "right")[at]
        columns = []
        for name in by:
            where, source = read[name]
            columns.append((name, ("left", "right")[where], key_of[own[source]] if where == at else source))
        parts = renamed([f"#part{index}" for index in range(len(calls))], by)
        columns += [(part, side, value_of[text]) for part, text in zip(parts.values(), calls, strict=True)]
        schema = {name: node.inputs[0].schema[name] for name in by}
        schema |= {part: sums.schema[value_of[text]] for part, text in zip(parts.values(), calls, strict=True)}
        totals = [
            AggregateCall("sum", (Column(part, schema[part]),), False, (), call.type)
            for part, call in zip(parts.values(), node.calls, strict=True)
        ]
        if any(AGGREGATES["sum"].result(call.args[0].type) != call.type for call in totals):
            continue
        on = tuple((key_of[own[one]], other) if at == 0 else (one, key_of[own[other]]) for one, other in join.on)
        # If the other side is restricted to few keys, the sums of these keys suffice.
        some = _restricted(join.inputs[1 - at], join.on[0][1 - at], sums) if len(join.on) == 1 else sums
        inputs = (some, join.right) if at == 0 else (join.left, some)
        return replace(node, inputs=(joins.Join(inputs, schema, on, "inner", tuple(columns)),), calls=tuple(totals))
    return None


def _restricted(node: Node, column: str, sums: groupings.Reduce) -> Node:
    """Return the filtered sums to which a semijoin below `node` restricts its `column`, or `sums` if there is no such semijoin."""
    while True:
        if isinstance(node, joins.Join) and node.how == "inner":
            at, column = next((int(side == "right"), source) for name, side, source in node.columns if name == column)
            node = node.inputs[at]
            continue
        if isinstance(node, joins.BinaryNode) and node.selects:
            if node.requires_partner and [one for one, _ in node.on] == [column]:
                below = node.right
                while isinstance(below, logical.Apply) and isinstance(below.step, FilterStep):
                    (below,) = below.inputs
                if below == sums and node.on[0][1] in {name for name, _ in sums.by}:
                    return node.right
            node = node.left
            continue
        found, names = _rows(node)
        if found is node:
            return sums
        node, column = found, names[column]


def _sums(node: groupings.Reduce) -> bool:
    """Return whether a reduction computes only sums and counts, and returns them unchanged."""
    plain = all(isinstance(result, Column) for _, result in node.results)
    return plain and all(is_accumulable(call) and call.function != "avg" for call in node.calls)


def _rows(node: Node) -> tuple[Node, dict[str, str]]:
    """Return the input of a node that only renames columns, else the node, and its columns by the node's names."""
    found = nodes.renaming(node)
    return (node, {name: name for name in node.schema}) if found is None else (node.inputs[0], found)


def _renamed(call: AggregateCall, names: Mapping[str, str]) -> AggregateCall:
    """Return a call over columns under other names."""
    return replace(call, args=tuple(nodes.over_renamed(arg, names) for arg in call.args))
