"""The choices of a plan with their reasons, for people: filters and columns, the order of joins, delta joins, shared nodes."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.expressions.tree import Column, FilterStep, MapStep
from ddcli.plan import joins, logical, physical, physical_joins
from ddcli.plan.changes import describe
from ddcli.plan.node import Graph, below
from ddcli.plan.optimizer.delta_joins import MUCH, delta_joins, identity, reordered
from ddcli.plan.optimizer.sharing import OFTEN, by_conditions, kept_rows
from ddcli.plan.physical import physical_graph
from ddcli.plan.pipeline_file import places
from ddcli.plan.words import expression, without_parentheses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddcli.plan.generations import Generation, Plan
    from ddcli.plan.joins import BinaryNode
    from ddcli.plan.node import Node
    from ddcli.plan.pipeline_file import BoundPipeline


@frozen
class PlanChoice:
    """A choice of a plan: its kind, its subject (a path in the file, or an input), the choice, and the reason, with figures if these decide."""

    kind: str
    at: str
    chosen: str
    why: str


def plan_choices(
    bound: BoundPipeline, plan: Plan, expected: Mapping[str, float] = MappingProxyType({})
) -> list[PlanChoice]:
    """Return the choices of a plan, by kind; `expected` has the rows that nodes are expected to emit in a first run, by fingerprint."""
    found = [*_columns(bound, plan), *_shared(plan), *_apart(plan, expected)]
    for generation, part in zip(plan.generations, plan.parts, strict=True):
        found += [
            *_filters(generation, part),
            *_orders(bound, generation, part),
            *_deltas(bound, plan, generation, part),
            *_kept_once(generation, part, expected),
        ]
    return sorted(found, key=lambda each: (KINDS.index(each.kind), each.at))


KINDS = ("columns", "filter", "join order", "delta join", "shared", "kept once", "apart")


def _columns(bound: BoundPipeline, plan: Plan) -> Iterator[PlanChoice]:
    for name, scan in plan.graph.scans().items():
        there = len(bound.schemas[name])
        if len(scan.schema) < there:
            yield PlanChoice(
                "columns", f"inputs.{name}", f"reads {len(scan.schema)} of {there} columns", "nothing reads the others"
            )


def _shared(plan: Plan) -> Iterator[PlanChoice]:
    times = next((scan.nt for scan in plan.graph.scans().values()), 1)
    readers = Counter(child.fingerprint for node in plan.graph.nodes for child in node.inputs)
    for node in plan.graph.nodes:
        if readers[node.fingerprint] > 1 and node.keeps_state(times):
            why = f"{readers[node.fingerprint]} operators read the same"
            yield PlanChoice("shared", "collections", f"{describe(node)} is kept once", why)


def _kept_once(generation: Generation, part: Graph, expected: Mapping[str, float]) -> Iterator[PlanChoice]:
    """Yield the collections that are kept whole instead of several filtered parts; a state keeps that choice even if estimates have changed."""
    for sides in generation.sides_of_wholes(part):
        filters = {side.identity for side in sides if side.conditions}
        whole, key = sides[0].whole, sides[0].key
        words = (
            f"keeps {_listed(inputs_of(whole))} by {', '.join(key)} once instead of its {len(filters)} filtered parts; "
            "the filters apply to the joins' results"
        )
        times = kept_rows(sides, by_conditions)
        rows = expected.get(generation.lowered_whole(part, whole).fingerprint)
        why = f"apart they are expected to keep {times:.2g} times its rows; {OFTEN} times is worth it"
        if rows is not None:
            why = f"{rows:,.0f} rows are expected instead of {times * rows:,.0f}, {times:.2g} times as many; {OFTEN} times is worth it"
        yield PlanChoice("kept once", "collections", words, why)


def _apart(plan: Plan, expected: Mapping[str, float]) -> Iterator[PlanChoice]:
    """Yield the collections that are kept several times by one key, each time with another filter, though once would be much less.

    They remain if their filters drop many rows, or their readers are no inner joins (see `optimizer.sharing`).
    """
    groups: dict[tuple[str, tuple[str, ...]], list[Node]] = {}
    for node in plan.graph.nodes:
        if type(node) is physical.Arrangement and not node.free and (below := _unfiltered(node)) is not None:
            groups.setdefault((below.fingerprint, node.key), []).append(node)
    for (below_, key), nodes in groups.items():
        rows, whole = [expected.get(each.fingerprint) for each in nodes], expected.get(below_)
        known = [each for each in rows if each is not None]
        if sum(map(_is_filtered, nodes)) > 1 and whole and len(known) == len(rows) and sum(known) >= OFTEN * whole:
            words = (
                f"keeps {_listed(inputs_of(nodes[0]))} by {', '.join(key)} {len(nodes)} times, each with its own filter"
            )
            why = (
                f"{sum(known):,.0f} rows are expected, {whole:,.0f} without the filters: as one collection of the join, which the others filter, "
                "it is kept once"
            )
            yield PlanChoice("apart", "collections", words, why)


def _is_filtered(node: Node) -> bool:
    (below,) = node.inputs
    return type(below) is physical.Linear and any(isinstance(step, FilterStep) for step in below.steps)


def _unfiltered(node: physical.Arrangement) -> Node | None:
    """Return the collection that an arrangement only filters and projects; None if it computes anything else."""
    (below,) = node.inputs
    if type(below) is not physical.Linear:
        return below
    for step in below.steps:
        picks = isinstance(step, MapStep) and all(
            isinstance(each, Column) and each.name == name for name, each in step.columns
        )
        if not picks and not isinstance(step, FilterStep):
            return None
    return below.inputs[0]


def _filters(generation: Generation, part: Graph) -> Iterator[PlanChoice]:
    """Yield the filters that are applied elsewhere than they are written."""
    moved = generation.moved(part)
    stand = {node.fingerprint for node in moved.operators.values()}
    for node in moved.graph.nodes():
        if isinstance(node, logical.Apply) and isinstance(node.step, FilterStep) and node.fingerprint not in stand:
            if generation.wholes and _is_inner(node.inputs[0]):
                continue  # it may be there so that a collection is kept once
            names = inputs_of(node)
            of = f"inputs.{names[0]}" if len(names) == 1 else "collections"
            words = f"applies {without_parentheses(expression(node.step.condition.text(), {}))} to {_listed(names)}"
            yield PlanChoice(
                "filter", of, words, "it fails on no record, and the operators that it passes have no other reader"
            )


def _is_inner(node: Node) -> bool:
    """Return whether a node is an inner join, to whose result a filter may have moved so that its sides are kept once."""
    return isinstance(node, joins.BinaryNode) and node.requires_partner and not node.selects


def _orders(bound: BoundPipeline, generation: Generation, part: Graph) -> Iterator[PlanChoice]:
    """Yield the joins that are, or might be, computed before the join to their left."""
    pairs: list[tuple[BinaryNode, BinaryNode, bool]] = []

    def turned(node: BinaryNode, first: BinaryNode) -> bool:
        found = generation.joins.get(node.place, False)
        pairs.append((node, first, found))
        return found

    reordered(part, turned)  # it calls `turned` for each such pair
    sizes, paths = bound.sizes(), _paths(bound, part)
    for node, first, found in pairs:
        large, small, other = (inputs_of(each) for each in (*first.inputs, node.right))
        words = f"joins {_listed(small)} with {_listed(other)} first, then {_listed(large)} with that"
        if not found:
            words = f"joins {_listed(large)} with {_listed(small)}, then with {_listed(other)}, as it is written"
        yield PlanChoice(
            "join order", paths.get(node.fingerprint, "collections"), words, _compared(sizes, large, small, other)
        )


def _compared(sizes: Mapping[str, int], *names: list[str]) -> str:
    """Return the figures that an order is chosen by; a state keeps the order even if they have changed."""
    if not {name for each in names for name in each} <= sizes.keys():
        return "how large the inputs are is not known"
    large, *others = (max(sizes[name] for name in each) for each in names)
    ratio = large / max(others)
    times = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
    figures = " and ".join(f"{each:,}" for each in others)
    return f"{large:,} bytes of files against {figures}, {times} times as much; {MUCH} times is worth it"


def _deltas(bound: BoundPipeline, plan: Plan, generation: Generation, part: Graph) -> Iterator[PlanChoice]:
    """Yield the joins that may be delta joins."""
    lowered = generation.lowered(part)
    asked: list[Node] = []

    def wanted(join: Node) -> bool:
        asked.append(join)
        return (generation.deltas or {}).get(identity(join), False)

    found = delta_joins(lowered.outputs, wanted, lowered.engines)
    at = places(bound, plan)
    for join in asked:
        delta = found.get(join.fingerprint)
        if delta is None:
            yield PlanChoice(
                "delta join", "collections", f"joins {_listed(inputs_of(join))} two by two", "the state was made so"
            )
            continue
        kept = {
            node.arranged.fingerprint
            for node in physical_graph({"": delta}).nodes
            if isinstance(node, physical_joins.RowLookup)
        }
        path = at[delta.fingerprint].path if delta.fingerprint in at else "collections"
        words = f"keeps no intermediate results of the joins of {_listed(inputs_of(join))}"
        why = (
            f"{len(kept)} {'arrangement' if len(kept) == 1 else 'arrangements'} of its sides are enough for all lookups"
        )
        yield PlanChoice("delta join", path, words, why)


def _paths(bound: BoundPipeline, part: Graph) -> dict[str, str]:
    """Return the path in the file of each logical node, by fingerprint; a query's nodes have the path of the first query that computes them."""
    found: dict[str, str] = {}
    for node in part.nodes():  # inputs come before their readers
        if node.fingerprint in bound.graph.places:
            path, _ = bound.graph.places[node.fingerprint]
            for each in below(node, lambda known: known.fingerprint in found):
                found[each.fingerprint] = path
    return found


def inputs_of(node: Node) -> list[str]:
    """Return the names of the inputs that a node reads, directly or not."""
    return sorted({each.name for each in Graph({"": node}).nodes() if isinstance(each, logical.Source | physical.Scan)})


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
