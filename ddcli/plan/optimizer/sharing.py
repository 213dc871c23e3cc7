"""Filters moved from the sides of joins to their results, if the sides are then one collection, which the state keeps once.

Joins that read a collection by one key, each through a filter that most of its rows pass, keep most of it several times. If the filters apply to the joins' results instead,
there is one arrangement of the collection; joins with the same other side are then one join, with all columns of both sides, and each reader picks its own. Such a
join at most pairs the rows that its filter drops in vain. So a filter that drops many rows stays where it is.

Only filters of inner joins move, outside of loops, with conditions that fail on no record: these may be evaluated on any records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.steps import FilterStep, MapStep
from ddcli.expressions.tree import Column
from ddcli.plan import joins, logical
from ddcli.plan.conditions import conjuncts, is_certain
from ddcli.plan.estimates import share_of_rows
from ddcli.plan.node import Graph, digest
from ddcli.plan.optimizer.join_order import joined_whole
from ddcli.plan.optimizer.prune import Rewritten, as_written
from ddcli.plan.optimizer.pushdown import filtered_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.plan.engines import Engines
    from ddcli.plan.node import Node

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
Wholes = dict[str, dict[str, bool]]
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


def chosen_wholes(graph: Graph, before: Wholes | None, share: Share, name: Callable[[JoinSide], str]) -> Wholes:
    """Return the collections of a graph to keep whole, by the name of collection and key. Keep the choice in `before` if there is one, else choose where keeping one pays.

    A collection may be the join of two that are kept so. So the choice is repeated until it finds no more.
    """
    found = {*(before or ())}
    while True:
        sides: dict[str, list[JoinSide]] = {}
        answers: Wholes = {}

        def above(side: JoinSide, sides: dict[str, list[JoinSide]] = sides, answers: Wholes = answers) -> bool:
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


def kept_whole(graph: Graph, wholes: Wholes, name: Callable[[JoinSide], str]) -> Rewritten:
    """Return a graph with the filters of sides above their joins, if their collection is kept whole."""
    return _with_filters(graph, lambda side: _is_above(wholes.get(name(side)), side))


def sides_above(graph: Graph, wholes: Wholes, name: Callable[[JoinSide], str]) -> list[list[JoinSide]]:
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
        elif isinstance(node.step, MapStep) and (picked := _picked(node.step, child)) is not None:
            names = {name: picked[source].name for name, source in names.items()}
            conditions = [each.substitute(picked) for each in conditions]
        else:
            break
        node = child
    return JoinSide(node, tuple(names[name] for name in key), tuple(conditions), names)


def _picked(step: MapStep, child: Node) -> dict[str, Column] | None:
    """Return the columns of a projection that computes nothing; else None."""
    found = {name: each for name, each in step.columns if isinstance(each, Column)}
    plain = all(each.type == child.schema[each.name] for each in found.values())
    return found if plain and len(found) == len(step.columns) else None


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
