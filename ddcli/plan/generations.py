"""Lowering in generations: outputs that are added later change nothing in the plan of the earlier ones.

The lowering of a collection depends on all its readers: they decide which of its columns are kept, and whether its linear steps are fused
into its reader's. So a new output could change the arrangements of all others, and its removal could again. Therefore the
state remembers the choices for lowering the outputs of a *generation* together. A new or edited output joins a generation in which
every column that it reads is kept already, and shares all that is there; otherwise it begins a generation of its own. Equal nodes of two
generations are shared all the same.

A collection is known by its *place* (see `Node.place`).

The optimizer's passes over a logical graph are here too, as they read a generation's choices (`PASSES`). Sums over joins are shared while a statement is bound
(`shared_sums`); unused columns are dropped as the graph is lowered (`prune`); delta joins replace joins of the lowered graph (`delta_joins`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Self

from ddcli.dataclass import dataclass
from ddcli.expressions.tree import Column, FilterStep, MapStep
from ddcli.plan import logical, physical
from ddcli.plan.joins import BinaryNode
from ddcli.plan.logical import Rewritten, as_written
from ddcli.plan.lower import GraphLowering, lower, read_by_several, read_counts, required_columns, side_name, sides
from ddcli.plan.node import Graph
from ddcli.plan.optimizer.delta_joins import delta_joins, identity, much_smaller, reordered, with_delta_joins
from ddcli.plan.optimizer.pushdown import pushed_down
from ddcli.plan.optimizer.sharing import Share, by_conditions, choose_shared_sides, sides_above, with_shared_sides
from ddcli.plan.physical import PhysicalGraph, physical_graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Node
    from ddcli.plan.optimizer.sharing import JoinSide
    from ddcli.plan.physical import Engines


def has_joins(nodes: Iterable[Node]) -> bool:
    """Return whether there are several joins: one alone has no other order, and is no delta join."""
    return sum(isinstance(node, BinaryNode) or node.joins for node in nodes) > 1


def reorder_joins(graph: Graph, choices: Generation) -> Rewritten:
    """Join small collections first, where that is chosen."""
    return (
        reordered(graph, lambda node, _: choices.joins.get(node.place, False)) if choices.joins else as_written(graph)
    )


def push_filters_down(graph: Graph, choices: Generation) -> Rewritten:
    """Move filters below operators whose results have no other reader; no operator is below an input."""
    filters = (node for node in graph.nodes() if isinstance(node, logical.Apply) and isinstance(node.step, FilterStep))
    if not any(node.inputs[0].inputs for node in filters):
        return as_written(graph)
    known = choices.several or {}
    several = {each for at, each, read in readers(graph) if known.get(at, read)}
    return pushed_down(graph, several, partners=choices.partners, crossed=choices.crossed)


def share_sides(graph: Graph, choices: Generation) -> Rewritten:
    """Move filters above joins whose sides are kept whole."""
    return with_shared_sides(graph, choices.wholes, side_place) if choices.wholes else as_written(graph)


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


Choices = Callable[["BinaryNode", "BinaryNode"], bool]
"""Returns for a join, and the join on its left, whether its right side is joined before that one's."""


def written_order(_node: BinaryNode, _first: BinaryNode) -> bool:
    """Return False: joins keep the written order."""
    return False


def by_sizes(sizes: Mapping[str, int]) -> Choices:
    """Return the choices for inputs of these sizes in bytes."""
    return lambda node, first: much_smaller(sizes, node, first)


@dataclass(frozen=True)
class Generation:
    """The choices for lowering collections, by place.

    * `columns`: of collections, and of the sides of joins (see `prune`). Without a side, all columns of its collection were arranged.
    * `once`: the collections that had a single reader.
    * `several`: whether collections and sides, as they are written, had several readers, which decides where filters are applied;
      None: filters are applied where they are written.
    * `joins`: whether joins, as they are written, were computed before the join on their left.
    * `deltas`: whether possible delta joins are delta joins; None: none is.
    * `wholes`: the collections that are kept whole, each by a key, instead of their filtered parts, and the filters among these that
      apply to the results of joins; None: no collection ever is.
    """

    columns: dict[str, frozenset[str]]
    once: frozenset[str]
    several: dict[str, bool] | None = None
    joins: dict[str, bool] = field(default_factory=dict)
    deltas: dict[str, bool] | None = None
    wholes: dict[str, dict[str, bool]] | None = None
    partners: bool = True
    """True: filters on keys also pass windows, and also apply to the right sides of semijoins and as-of joins."""
    two_steps: bool = True
    """True: distinct values are counted in two steps, so that a group's values are in all shards."""
    crossed: bool = True
    """True: joins without a key get the one that equalities above them state."""
    _pushed: dict[str, Rewritten] = field(default_factory=dict, compare=False)
    _moved: dict[str, Rewritten] = field(default_factory=dict, compare=False)
    _lowerings: dict[str, GraphLowering] = field(default_factory=dict, compare=False)
    """Caches of graphs with filters moved, and lowered, by fingerprint: a plan needs them several times."""

    @classmethod
    def of(
        cls,
        written: Graph,
        before: Generation | None = None,
        choices: Choices | None = written_order,
        share: Share = by_conditions,
    ) -> Self:
        """Return the generation of a graph: nodes that `before` knows keep their choices, and nothing stays that the graph no longer has.

        For other nodes, `choices` decides, and `share`, which returns the share of rows that are expected to pass filters. Without
        `choices`, the graph is lowered as it is written.
        """
        several, joins = None, dict[str, bool]()
        if choices is not None and (before is None or before.several is not None):
            known_joins = before.joins if before else {}

            def first(node: BinaryNode, other: BinaryNode) -> bool:
                at = node.place
                joins[at] = known_joins[at] if at in known_joins else choices(node, other)
                return joins[at]

            several = _read_by_several(reordered(written, first).graph if has_joins(written.nodes()) else written)
            several |= {at: value for at, value in (before.several or {} if before else {}).items() if at in several}
        partners, two_steps = before is None or before.partners, before is None or before.two_steps
        crossed = before is None or before.crossed
        old = (before.columns, before.once) if before else ({}, frozenset[str]())
        known = cls(*old, several, joins, partners=partners, crossed=crossed)
        wholes = None
        if several is not None and (before is None or before.wholes is not None):
            graph, chosen = known.moved(written).graph, before.wholes if before else None
            # A collection with one reader has no other side to share.
            is_shared = any(count > 1 for count in read_counts(graph).values())
            wholes = choose_shared_sides(graph, chosen, share, side_place) if chosen or is_shared else {}
            known = replace(known, wholes=wholes, _moved={}, _lowerings={})
        graph = known.moved(written).graph
        counts, needed = read_counts(graph), required_columns(graph, known.kept_columns(graph))
        columns: dict[str, frozenset[str]] = {}
        alone: dict[str, bool] = {}
        for node in graph.nodes():
            at = node.place
            columns[at] = columns.get(at, frozenset()) | known.columns.get(at, frozenset()) | needed[node.fingerprint]
            single = at in known.once if at in known.columns else counts[node.fingerprint] == 1
            alone[at] = single and alone.get(at, True)
        for at, by_fingerprint in side_places(graph):
            columns[at] = columns.get(at, frozenset()) | known.columns.get(at, frozenset()) | needed[by_fingerprint]
        once = frozenset(at for at, single in alone.items() if single)
        return cls(
            columns, once, several, joins, wholes=wholes, partners=partners, two_steps=two_steps, crossed=crossed
        )

    def sides_of_wholes(self, written: Graph) -> list[list[JoinSide]]:
        """Return the sides of a graph's joins that read a whole collection instead of its filtered part, by collection and key."""
        return sides_above(self._pushed_down(written).graph, self.wholes, side_place) if self.wholes else []

    def moved(self, written: Graph) -> Rewritten:
        """Return a graph as this generation rewrites it."""
        if self.several is None:
            return as_written(written)
        if written.fingerprint not in self._moved:
            pushed = self._pushed_down(written)
            self._moved[written.fingerprint] = pushed.then(optimized(pushed.graph, self, PASSES[-1:]))
        return self._moved[written.fingerprint]

    def _pushed_down(self, written: Graph) -> Rewritten:
        """Return a graph after the passes before sharing."""
        if written.fingerprint not in self._pushed:
            self._pushed[written.fingerprint] = optimized(written, self, PASSES[:-1])
        return self._pushed[written.fingerprint]

    def kept_columns(self, graph: Graph) -> dict[str, frozenset[str]]:
        """Return the columns to keep of the nodes of a graph, and of their sides, by fingerprint."""
        found = {
            node.fingerprint: self.columns[node.place] & node.schema.keys()
            for node in graph.nodes()
            if node.place in self.columns
        }
        for node in graph.nodes():
            for child, key in sides(node):
                at = side_name(child.place, key) if self._has_sides else child.place
                if at in self.columns:
                    found[side_name(child.fingerprint, key)] = self.columns[at] & child.schema.keys()
        return found

    @cached_property
    def _has_sides(self) -> bool:
        return any(at.endswith("]") for at in self.columns)

    def fits(self, node: Node) -> bool:
        """Return whether an output reads only columns that are kept of known collections."""
        graph = self.moved(Graph({"": node})).graph
        needed = required_columns(
            graph, self.kept_columns(graph)
        )  # an operator that only counts rows reads a column that is kept
        return all(
            needed[each.fingerprint] <= self.columns.get(each.place, each.schema.keys()) for each in graph.nodes()
        ) and all(
            needed[fingerprint] <= self.columns.get(at, needed[fingerprint]) for at, fingerprint in side_places(graph)
        )

    def lowered(self, written: Graph) -> PhysicalGraph:
        """Return the physical graph of a graph that this is the generation of."""
        return self._lowering(written).graph(self.moved(written).graph)

    def nodes(self, written: Graph) -> dict[str, Node]:
        """Return the physical node of each logical node, by fingerprint, without those kept only in part, as their readers filter them."""
        return self._lowered(written, self.moved(written).same)

    def operators(self, written: Graph) -> dict[str, Node]:
        """Return the physical node of each logical node, by fingerprint, also where only some of its records are kept, or it is part of a delta join."""
        return self.joined(self._lowered(written, self.moved(written).operators), self.lowered(written))

    def lowered_whole(self, written: Graph, whole: Node) -> Node:
        """Return the physical node of a collection of `sides_of_wholes`."""
        return self._lowering(written).nodes(self.moved(written).graph)[whole.fingerprint]

    def _lowered(self, written: Graph, names: Mapping[str, Node]) -> dict[str, Node]:
        found = self._lowering(written).nodes(self.moved(written).graph)
        return {name: found[node.fingerprint] for name, node in names.items() if node.fingerprint in found}

    def _lowering(self, written: Graph) -> GraphLowering:
        if written.fingerprint not in self._lowerings:
            graph = self.moved(written).graph
            found = GraphLowering.of(
                graph,
                self.kept_columns(graph),
                frozenset(node.fingerprint for node in graph.nodes() if node.place in self.once),
                alike=self.several is not None,
                two_steps=self.two_steps,
            )
            self._lowerings[written.fingerprint] = found
        return self._lowerings[written.fingerprint]

    def with_deltas(self, lowered: PhysicalGraph, known: Mapping[str, bool], *, deltas: bool) -> Self:
        """Return this generation with its graph's delta joins decided: for `known` joins as they were, for others by `deltas`."""
        chosen: dict[str, bool] = {}

        def wanted(join: Node) -> bool:
            name = identity(join)
            chosen[name] = known.get(name, deltas)
            return chosen[name]

        if has_joins(lowered.nodes):
            delta_joins(lowered.outputs, wanted, lowered.engines)
        return replace(self, deltas=chosen)

    def joined(self, nodes: Mapping[str, Node], lowered: PhysicalGraph) -> dict[str, Node]:
        """Return physical nodes by name, with the joins replaced that are delta joins in the generation's graph, `lowered`."""
        if not any((self.deltas or {}).values()):
            return {**nodes}
        deltas = self.deltas or {}
        return with_delta_joins(
            nodes, delta_joins(lowered.outputs, lambda join: deltas.get(identity(join), False), lowered.engines)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a manifest keeps of the generation."""
        columns = {name: sorted(columns) for name, columns in self.columns.items()}
        tree: dict[str, Any] = {"columns": columns, "once": sorted(self.once), "two_steps": self.two_steps}
        if self.several is not None:
            tree["read"] = {
                words: sorted(at for at, several in self.several.items() if several == wanted)
                for words, wanted in (("once", False), ("several", True))
            }
            tree["joins"] = {
                words: sorted(at for at, first in self.joins.items() if first == wanted)
                for words, wanted in (("first", True), ("written", False))
            }
            tree["partners"] = self.partners
            tree["crossed"] = self.crossed
        if self.deltas is not None:
            tree["deltas"] = self.deltas
        if self.wholes is not None:
            tree["wholes"] = self.wholes
        return tree

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        """Return the generation that `to_json` wrote."""
        columns = {name: frozenset(columns) for name, columns in tree["columns"].items()}
        read = tree.get("read")
        several = read and dict.fromkeys(read["once"], False) | dict.fromkeys(read["several"], True)
        joins = tree.get("joins", {"first": (), "written": ()})
        known = dict.fromkeys(joins["first"], True) | dict.fromkeys(joins["written"], False)
        # A state of an earlier version stays as it is.
        partners, two_steps, crossed = (bool(tree.get(name)) for name in ("partners", "two_steps", "crossed"))
        once, deltas, wholes = frozenset(tree["once"]), tree.get("deltas"), tree.get("wholes")
        return cls(columns, once, several, known, deltas, wholes, partners, two_steps, crossed)


def _read_by_several(graph: Graph) -> dict[str, bool]:
    """Return for each collection and side, by place, whether several read it."""
    found: dict[str, bool] = {}
    for at, _, several in readers(graph):
        found[at] = several or at in found
    return found


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
    whole = replace(lowered_graph, orders=graph.orders, tags=graph.tags)
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


def narrowed(graph: PhysicalGraph) -> PhysicalGraph:
    """Return a part of a plan with scans of the columns alone that its fused steps need, where nothing else reads them: the whole plan may read more of an input. All nodes keep their identity."""
    from ddcli.expressions.stage import FusedSteps

    needs: dict[str, frozenset[str]] = {}
    for node in graph.nodes:
        for child in node.inputs:
            own = FusedSteps(child.schema, node.steps).needs if isinstance(node, physical.Linear) else child.schema
            needs[child.fingerprint] = needs.get(child.fingerprint, frozenset()) | frozenset(own)
    left = {node.fingerprint for node in graph.outputs.values()}
    scans: dict[str, Node] = {}
    for node in graph.nodes:
        if type(node) is physical.Scan and not node.arranged and node.fingerprint not in left:
            schema = {name: kind for name, kind in node.schema.items() if name in needs[node.fingerprint]}
            if len(schema) < len(node.schema):
                scans[node.fingerprint] = physical.NarrowScan(
                    (), schema, node.name, node.nt, node.meaning, identity=node.fingerprint
                )
    return replace(
        physical_graph(substitute(graph.outputs, scans.get), graph.engines), orders=graph.orders, tags=graph.tags
    )


def substitute(outputs: dict[str, Node], other: Callable[[str], Node | None]) -> dict[str, Node]:
    """Return outputs in which each node is replaced by the one that `other` returns for its fingerprint, if it returns one.

    The others keep their identity if the replacements have the identity of the nodes that they replace.
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
