"""Work of several parts of a plan done once: filters moved from the sides of joins to their results, and sums over joins.

A filter moves if the sides are then one collection, which the state keeps once. Joins that read a collection by one key, each through a filter that most of its rows pass, keep most of it
several times. If the filters apply to the joins' results instead, there is one arrangement of the collection; joins with the same other side are then one join, with all columns of both
sides, and each reader picks its own. Such a join at most pairs the rows that its filter drops in vain. So a filter that drops many rows stays where it is. Only filters of inner joins
move, outside of loops, with conditions that fail on no record: these may be evaluated on any records.

Sums over a join are computed from the sums over one of its sides, if another part of the statement keeps these: `select ..., sum(l_quantity) from orders join lineitem on ... group by
o_orderkey, ...` beside `o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300)` needs no join with the rows of `lineitem`: the reduction by the
join's key has their sum. It is exact for any multiplicities. If the groups include the join's key, a group consists of the other side's rows, of total multiplicity M,
each joined with all rows of one key, whose sum the kept record has. So the sum over the pairs is M times that, and so are the counts that decide
whether a group of a reduction exists. That needs the same calls in both reductions, over numbers that are summed exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.aggregates import AGGREGATES, AggregateCall
from ddcli.expressions.tree import Column, FilterStep, MapStep
from ddcli.expressions.types import renamed
from ddcli.plan import groupings, joins, logical
from ddcli.plan.conditions import conjuncts, is_certain
from ddcli.plan.estimates import share_of_rows
from ddcli.plan.logical import Rewritten, as_written
from ddcli.plan.node import Graph, Node, below, digest
from ddcli.plan.optimizer.delta_joins import joined_whole
from ddcli.plan.optimizer.pushdown import filtered_by
from ddcli.plan.shape import is_accumulable, picked
from ddcli.plan.sql import nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.plan.physical import Engines

    Kept = dict[tuple[str, frozenset[str], frozenset[str]], groupings.Reduce]
    """Reductions by the fingerprint of their rows, by the columns that they group by, and by the texts of their calls over the rows' columns."""


OFTEN = 2
"""The multiple of a collection's rows that one key is expected to keep, from which on the collection itself is kept instead."""
MOST = 0.5
"""The least share of rows that must pass a filter for it to move above a join."""


@dataclass(frozen=True)
class JoinSide:
    """The side of a join: a collection, the key, the conditions that its rows pass, and the collection's names of the side's columns."""

    whole: Node
    key: tuple[str, ...]
    conditions: tuple[Expression, ...]
    names: dict[str, str]

    @property
    def identity(self) -> str:
        """The digest that distinguishes it from the other sides of the same collection by the same key."""
        return digest([condition.text() for condition in self.conditions])


Share = Callable[["JoinSide"], float]
"""Returns the share of a collection's rows that a side of it is expected to have."""
SharedSides = dict[str, dict[str, bool]]
"""The collections that are kept whole, each by a key: by the identities of their sides, whether the side's filter is applied above the join."""


def by_conditions(side: JoinSide) -> float:
    """Return the share of rows that a side is expected to have, judged by its conditions."""
    return share_of_rows(side.conditions)


def passes_most(side: JoinSide, share: Share = by_conditions) -> bool:
    """Return whether most rows pass the filter of a side, so that it may be applied above the join."""
    return share(side) >= MOST


def kept_rows(sides: Iterable[JoinSide], share: Share) -> float:
    """Return the rows that sides keep whose filters most rows pass, as a multiple of the rows of their collection."""
    return sum({side.identity: share(side) for side in sides if passes_most(side, share)}.values())


def is_worth_it(sides: Sequence[JoinSide], share: Share) -> bool:
    """Return whether a collection is to be kept whole instead of these sides of it."""
    filtered = {side.identity for side in sides if side.conditions and passes_most(side, share)}
    return bool(filtered) and kept_rows(sides, share) >= OFTEN


def choose_shared_sides(
    graph: Graph, before: SharedSides | None, share: Share, name: Callable[[JoinSide], str]
) -> SharedSides:
    """Return the join inputs to arrange without their filters, so that joins share them, by the names of collection and key. An earlier choice, `before`, is kept.

    A collection may be the join of two that are kept so. So the choice is repeated until it finds no more.
    """
    found = {*(before or ())}
    while True:
        sides: dict[str, list[JoinSide]] = {}
        answers: SharedSides = {}

        def above(side: JoinSide, sides: dict[str, list[JoinSide]] = sides, answers: SharedSides = answers) -> bool:
            at = name(side)
            sides.setdefault(at, []).append(side)
            if at in found:
                answer = _is_above(before[at], side) if before is not None else passes_most(side, share)
                answers.setdefault(at, {})[side.identity] = answer
            return answers.get(at, {}).get(side.identity, False)

        _with_filters(graph, above)
        more = {at for at, each in sides.items() if at not in found and is_worth_it(each, share)}
        if before is not None or not more:
            return {at: each for at, each in answers.items() if any(each.values())}
        found.update(more)


def with_shared_sides(graph: Graph, wholes: SharedSides, name: Callable[[JoinSide], str]) -> Rewritten:
    """Return a graph with the filters of sides above their joins, if their collection is kept whole."""
    return _with_filters(graph, lambda side: _is_above(wholes.get(name(side)), side))


def sides_above(graph: Graph, wholes: SharedSides, name: Callable[[JoinSide], str]) -> list[list[JoinSide]]:
    """Return the sides of joins that read a collection which is kept whole, by collection and key."""
    found: dict[str, list[JoinSide]] = {}

    def above(side: JoinSide) -> bool:
        answer = _is_above(wholes.get(name(side)), side)
        if answer:
            found.setdefault(name(side), []).append(side)
        return answer

    _with_filters(graph, above)
    return [*found.values()]


def _is_above(known: Mapping[str, bool] | None, side: JoinSide) -> bool:
    """Return whether the filter of a side is applied above its join; a side that is not `known` follows its share of rows, if its collection is kept whole."""
    return known is not None and (known[side.identity] if side.identity in known else passes_most(side))


def side_of(node: Node, key: Iterable[str]) -> JoinSide:
    """Return a join's side with its collection, below the filters that fail on no record and the projections that only pick columns."""
    names = {name: name for name in node.schema}
    conditions: list[Expression] = []
    while type(node) is logical.Apply:
        (child,) = node.inputs
        if isinstance(node.step, FilterStep) and is_certain(node.step.condition):
            conditions = [*conjuncts(node.step.condition), *conditions]
        elif (own := picked(node.step, child.schema)) is not None:
            names = {name: own[source] for name, source in names.items()}
            columns = {name: Column(source, child.schema[source]) for name, source in own.items()}
            conditions = [each.substitute(columns) for each in conditions]
        else:
            break
        node = child
    return JoinSide(node, tuple(names[name] for name in key), tuple(conditions), names)


def _with_filters(graph: Graph, above: Callable[[JoinSide], bool]) -> Rewritten:
    """Return a graph with the filters of sides that are to be `above` their joins moved there.

    `above` is called for each side, in its state by then, of each join that allows it.
    """
    done: dict[str, Node] = {}
    stands: dict[str, Node] = {}
    """Filters that were moved above a join, by their former nodes."""
    moved_above: list[tuple[str, Node]] = []
    for node in graph.nodes():
        inputs = tuple(done[child.fingerprint] for child in node.inputs)
        found = node.over(inputs)
        if isinstance(found, joins.Join) and found.how == "inner" and not found.free:
            keys = [*zip(*found.on, strict=True)]
            sides = [side_of(child, key) for child, key in zip(inputs, keys, strict=True)]
            wanted = [above(side) for side in sides]
            if any(wanted):
                plain = [
                    JoinSide(child, key, (), {name: name for name in child.schema})
                    for child, key in zip(inputs, keys, strict=True)
                ]
                left, right = (sides[at] if each else plain[at] for at, each in enumerate(wanted))
                join, filtered, found = _joined(found, left, right)
                moved_above.append((node.fingerprint, join))
                for side, child in zip((left, right), node.inputs, strict=True):
                    stands |= dict.fromkeys(_moved_above(child, side, done), filtered)
        done[node.fingerprint] = found
    if not moved_above:
        return as_written(graph)
    outputs = {name: done[node.fingerprint] for name, node in graph.outputs.items()}
    there = {node.fingerprint for node in Graph(outputs).nodes()}
    stands = {each: done[each] if done[each].fingerprint in there else filtered for each, filtered in stands.items()}
    wishes: Engines = {}
    places = [(each, stands.get(each, node)) for each, node in done.items()]
    for each, node in [*places, *moved_above]:
        if each in graph.engines:
            wishes[node.fingerprint] = wishes.get(node.fingerprint, frozenset()) | graph.engines[each]
    same = {each: node for each, node in done.items() if node.fingerprint in there}
    operators = {each: stands.get(each, node) for each, node in done.items()}
    return Rewritten(Graph(outputs, wishes), same, {**operators, **same})


def _joined(node: joins.Join, left: JoinSide, right: JoinSide) -> tuple[Node, Node, Node]:
    """Return the join of two sides' whole collections, that join filtered by the sides' conditions, and that with the columns of the former join."""
    on = sorted(zip(left.key, right.key, strict=True))
    join, called = joined_whole(left.whole, right.whole, on)
    columns = {name: Column(called[name], join.schema[called[name]]) for name in called}
    own = {name: Column(name, join.schema[name]) for name in left.whole.schema}
    conditions = [each.substitute(own) for each in left.conditions] + [
        each.substitute(columns) for each in right.conditions
    ]
    filtered = filtered_by(join, conditions)
    picked = [
        (name, columns[right.names[source]].name if side == "right" else left.names[source])
        for name, side, source in node.columns
    ]
    step = MapStep(tuple((name, Column(source, node.schema[name])) for name, source in picked))
    return join, filtered, logical.Apply((filtered,), node.schema, step)


def _moved_above(node: Node, side: JoinSide, done: Mapping[str, Node]) -> Iterator[str]:
    """Yield the filters and projections of a side that are above the join by now; `node` is the join's former input."""
    while type(node) is logical.Apply and done[node.fingerprint].fingerprint != side.whole.fingerprint:
        yield node.fingerprint
        (node,) = node.inputs


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
