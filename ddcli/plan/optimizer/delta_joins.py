"""Joins of several collections: as delta joins, for which the state keeps no result between the sides, and in another order than the file has.

A join of two keeps both sides arranged, and a third is joined with their result, arranged again: for a graph's edges these are all paths of two,
far more than the edges. A delta join has a chain of lookups for the updates of each side instead: they meet the other sides one by one. It is
chosen if the arrangements that the join's own sides have anyway are enough for all lookups, so that the state only gets smaller.

The sides are in an order. The updates of a step meet the sides before their own with the step's updates, and those after it without: so a
combination of rows is found once, in the chain of its last new row. A lookup may continue from an arrangement's key into its first values; its
rows are sorted by these, too; then no arrangement by more columns is needed.

A collection that only adds columns to a small one is joined with that first: `(large join small) join other`, where the other's key is of the small collection, becomes `large join (small join other)`: the large collection is
arranged once less, and all equal lookups share it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from itertools import chain, combinations, count
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.tree import Column, FilterStep, MapStep
from ddcli.expressions.types import Type
from ddcli.plan import joins, logical, loops, physical, physical_joins
from ddcli.plan.logical import Rewritten
from ddcli.plan.node import Graph, below, digest
from ddcli.plan.physical import is_constant
from ddcli.plan.shape import conform, is_not_null, not_null_column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ddcli.expressions.tree import Step
    from ddcli.expressions.types import Schema
    from ddcli.plan.joins import Join
    from ddcli.plan.node import Node
    from ddcli.plan.physical import Engines


Place = tuple[int, str]
"""A side's number, and a column of the collection that it is of."""
ROW_COUNT = Type("int64")
MOST, MOST_ARRANGED = 6, 4
"""The most sides of a delta join, which has a chain for each, and the most arrangements of its sides, whose subsets are all tried."""


def delta_joins(
    outputs: Mapping[str, Node], wanted: Callable[[Node], bool], engines: Collection[str] = ()
) -> dict[str, Node]:
    """Return the delta joins to use, by the fingerprints of the joins that they replace.

    `wanted` decides for each join that may become one. A join whose parts have a wish in `engines` stays as it is.
    """
    nodes = Graph({**outputs}).nodes()
    readers = Counter(child.fingerprint for node in nodes for child in node.inputs)
    readers.update(node.fingerprint for node in outputs.values())
    found: dict[str, Node] = {}
    taken: set[str] = set()
    for node in reversed(nodes):
        if isinstance(node, physical.EquiJoin) and node.fingerprint not in taken:
            join = _Joined(readers)
            join.add(node)
            other = join.delta() if join.parts.isdisjoint(engines) else None
            if other is not None and wanted(node):
                found[node.fingerprint] = other
                taken |= join.parts
    return found


def identity(node: Node) -> str:
    """Return the identity of a join, which doesn't depend on the columns that are read."""
    return digest("delta", *(child.fingerprint for child in node.inputs))


@dataclass
class _Side:
    """A side: the arrangement of the join as written, and the collection's name of each of its columns.

    The side lacks the collection's records with a null in a column of `present`.
    """

    arranged: physical.Arrangement
    names: dict[str, str]
    collection: str
    present: frozenset[str]


@dataclass
class _Joined:
    """A join of several sides, found below a join of two: its sides, its equal columns, and the origins of its own columns."""

    readers: Mapping[str, int]
    sides: list[_Side] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    """The fingerprints of its joins of two, of their inner arrangements, and of the nodes between these."""
    equal: dict[Place, Place] = field(default_factory=dict)
    result: list[tuple[str, Place]] = field(default_factory=list)
    schema: Schema = field(default_factory=dict)

    def add(self, node: physical.EquiJoin) -> None:
        """Add the last join, with the joins below it."""
        self.schema = node.schema
        places = self._join(node)
        self.result = [(name, places[name]) for name in node.schema]

    def _join(self, node: physical.EquiJoin, depth: int = 1) -> dict[str, Place]:
        """Add a join at this depth below the last one, and return the origin of each of its columns."""
        self.parts.add(node.fingerprint)
        left, right = node.inputs
        assert isinstance(left, physical.Arrangement)
        assert isinstance(right, physical.Arrangement)
        found = {"left": self._side(left, depth), "right": self._side(right, depth)}
        for one, other in zip(left.key, right.key, strict=True):
            pair = self._representative(found["left"][one]), self._representative(found["right"][other])
            if pair[0] != pair[1]:
                self.equal[pair[0]] = pair[1]
        return {name: found[side][source] for name, side, source in node.columns}

    def _side(self, node: physical.Arrangement, depth: int) -> dict[str, Place]:
        """Add a side of a join, or the sides of the join below it, if that has no other reader; return the origins of its columns.

        Joins deeper than the number of sides that a delta join may have are not taken apart.
        """
        if type(node) is physical.Arrangement and self.readers[node.fingerprint] == 1 and depth < MOST:
            names, below, passed, _ = _unwrapped(node)
            alone = all(self.readers[each.fingerprint] == 1 for each in (*passed, below))
            if alone and isinstance(below, physical.EquiJoin):
                places = self._join(below, depth + 1)
                self.parts.update(each.fingerprint for each in (node, *passed))
                return {name: places[source] for name, source in names.items()}
        names, below, _, present = _unwrapped(node)
        self.sides.append(_Side(node, names, below.fingerprint, present))
        return {name: (len(self.sides) - 1, source) for name, source in names.items()}

    def _representative(self, place: Place) -> Place:
        """Return the representative of all columns that equal one."""
        while place in self.equal:
            place = self.equal[place]
        return place

    def delta(self) -> Node | None:
        """Return the delta join over as few of the sides' arrangements as possible; None if they don't suffice, or the sides are of several collections."""
        arranged = {side.arranged.fingerprint: side for side in self.sides}
        alike = len({side.collection for side in self.sides}) == 1
        plain = all(type(side.arranged) is physical.Arrangement for side in self.sides)
        levels = {side.arranged.level for side in self.sides}
        if not 3 <= len(self.sides) <= MOST or not alike or len(levels) > 1 or not plain:
            return None
        if len(arranged) > MOST_ARRANGED or any(
            is_constant(side.arranged, side.arranged.key[0]) for side in self.sides
        ):
            return None
        choices = (some for number in range(1, len(arranged) + 1) for some in combinations(arranged.values(), number))
        for some in choices:
            chains: list[Node] = []
            for at in range(len(self.sides)):
                ends = self._chains(at, some)
                if not ends:
                    break
                chains += ends
            else:
                return physical_joins.DeltaJoin(tuple(chains), self.schema)
        return None

    def _is_joined(self, place: Place) -> bool:
        """Return whether a column must equal another: a record with a null in it has no partner then."""
        return place in self.equal or place in self.equal.values()

    # --- one chain --------------------------------------------------------------------------------------------------

    def _chains(self, start: int, arranged: Sequence[_Side]) -> list[Node]:
        """Return chains of lookups that together are those for the updates of a side; none if a lookup has no arrangement.

        They begin with an arrangement's own updates, if possible one that has them in the order of the first lookup.
        """
        found = [self._chains_from(start, each, arranged) for each in arranged if self._serves(each, start)]
        return max((way for way in found if way), key=lambda way: way[0], default=(False, []))[1]

    def _chains_from(self, start: int, first: _Side, arranged: Sequence[_Side]) -> tuple[bool, list[Node]] | None:
        """Return the chains for a side's updates, read from an arrangement, and whether they are in the order of the first lookup; None if a chain fails."""
        places = {name: self._representative((start, first.names[name])) for name in first.arranged.schema}
        bound: dict[Place, str] = {place: name for name, place in places.items()}
        if len(bound) < len(places):  # two columns must be equal, which isn't known here
            return None
        left = frozenset(range(len(self.sides))) - {start}
        ends = self._continued(self._joinable(first.arranged, bound), bound, _OpenChain(start, left, arranged))
        if not ends:
            return None
        node = ends[0]
        while node.inputs[0] is not first.arranged:
            node = node.inputs[0]
        alike = isinstance(node, physical_joins.RowLookup) and node.on[: len(node.arranged.key)]
        return [one for one, _ in alike or ()] == [*first.arranged.key], ends

    def _continued(self, node: Node, bound: Mapping[Place, str], way: _OpenChain) -> list[Node]:
        """Return the ends of chains that look up the remaining sides; none if one can't be looked up.

        If two sides find the same columns, each update continues with the one that has fewer rows for it, and these are then looked up in the
        other: the shorter of two lists is enough to find their common rows. A chain forks once at most.
        """
        if not way.left:
            kinds = {name: (node.schema[name], kind) for name, kind in self.schema.items()}
            return [conform(node, self.schema)] if all(a == b or a.or_null() == b for a, b in kinds.values()) else []
        tried = (self._lookup(node, bound, at, each, way) for at in sorted(way.left) for each in way.arranged)
        lookups = sorted((each for each in tried if each is not None), key=lambda each: each.rank, reverse=True)
        if not lookups:
            return []
        best = lookups[0]
        other = next((each for each in lookups if each.side != best.side and each.places == best.places), None)
        if way.parted or other is None or not best.found or not (best.is_plain and other.is_plain):
            return self._after_lookup(node, bound, best, way)
        node, best = _widened(node, best)
        node, other = _widened(node, other)
        counted = _counted(_counted(node, best, 1), other, 2)
        columns = dict([*counted.schema.items()][:-2])
        ends: list[Node] = []
        for lookup, fewer in ((best, False), (other, True)):
            chosen = physical_joins.FewerRows((counted,), columns, fewer)
            found = self._after_lookup(chosen, bound, lookup, replace(way, parted=True))
            if not found:
                return self._after_lookup(node, bound, best, way)
            ends += found
        return ends

    def _serves(self, arranged: _Side, at: int) -> bool:
        """Return whether an arrangement has the records of a side, with all columns that the join reads."""
        own = self.sides[at]
        present = all(self._is_joined((at, name)) for name in arranged.present)
        return present and arranged.collection == own.collection and {*own.names.values()} <= {*arranged.names.values()}

    def _joinable(self, node: Node, bound: Mapping[Place, str]) -> Node:
        """Return updates without those whose null has no partner: columns that must be equal have types without nulls."""
        nullable = [name for place, name in bound.items() if node.schema[name].nullable and self._is_joined(place)]
        if not nullable:
            return node
        steps: list[Step] = [FilterStep(is_not_null(Column(name, node.schema[name]))) for name in nullable]
        schema = {name: kind.required() if name in nullable else kind for name, kind in node.schema.items()}
        steps.append(MapStep(tuple((name, Column(name, kind)) for name, kind in schema.items())))
        return physical.Linear((node,), schema, tuple(steps))

    def _lookup(self, node: Node, bound: Mapping[Place, str], at: int, each: _Side, way: _OpenChain) -> _Lookup | None:
        """Return the lookup of a side in an arrangement by the columns known so far, if these are its key and the first of its other columns."""
        if not self._serves(each, at):
            return None
        on: list[tuple[str, str]] = []
        schema, key = each.arranged.schema, each.arranged.key
        for name in schema:
            known = bound.get(self._representative((at, each.names[name])))
            if known is None:
                if len(on) < len(key):
                    return None
                break
            if node.schema[known] != schema[name].required():  # joined columns have no nulls by now
                return None
            on.append((known, name))
        rest = [*schema][len(on) :]
        places = [self._representative((at, each.names[name])) for name in rest]
        if len(set(places)) < len(places) or any(place in bound for place in places):
            return None
        known_since = [*bound.values()]
        since = max(known_since.index(one) for one, _ in on[: len(key)])
        return _Lookup(at, each, tuple(on), tuple(zip(rest, places, strict=True)), since, at < way.start)

    def _after_lookup(self, node: Node, bound: Mapping[Place, str], lookup: _Lookup, way: _OpenChain) -> list[Node]:
        """Return the ends of chains that continue with a lookup; the last lookup returns the columns of the join."""
        node, lookup = _widened(node, lookup)
        arranged, left = lookup.of.arranged, way.left - {lookup.side}
        given = {place: ("left", name, node.schema[name]) for place, name in bound.items()}
        given |= {place: ("right", name, arranged.schema[name]) for name, place in lookup.found}
        needed = {self._representative(place) for _, place in self.result} | {
            self._representative(place) for place in self.equal
        }
        columns: list[tuple[str, str, str]] = []
        schema: Schema = {}
        found: dict[Place, str] = {}
        wanted = [(name, self._representative(place)) for name, place in self.result] if not left else []
        for place in given if left else ():
            if place in needed:
                wanted.append((_fresh(given[place][1], {name for name, _ in wanted}), place))
        for name, place in wanted:
            side, source, schema[name] = given[place]
            columns.append((name, side, source))
            found[place] = name
        joined = physical_joins.HalfJoin((node, arranged), schema, lookup.on, lookup.new, tuple(columns))
        return self._continued(self._joinable(joined, found) if left else joined, found, replace(way, left=left))


@dataclass(frozen=True)
class _OpenChain:
    """A chain in the making: the side whose updates it has, the sides that are left, and the existing arrangements."""

    start: int
    left: frozenset[int]
    arranged: Sequence[_Side]
    parted: bool = False


@dataclass(frozen=True)
class _Lookup:
    """A lookup of a side in an arrangement: the pairs that are equal, the columns that it finds, and whether it sees new updates.

    `since` is the step of the chain from which on all of the key is known: the earlier, the fewer keys there are to look up.
    """

    side: int
    of: _Side
    on: tuple[tuple[str, str], ...]
    found: tuple[tuple[str, Place], ...]
    since: int
    new: bool

    @property
    def rank(self) -> tuple[int, int, bool]:
        """Return the lookup's rank: first more columns, then an earlier key, then those that see no new updates, as these find nothing in a first load."""
        return len(self.on), -self.since, not self.new

    @property
    def places(self) -> frozenset[Place]:
        """The places of the columns that it finds."""
        return frozenset(place for _, place in self.found)

    @property
    def is_plain(self) -> bool:
        """Return whether each column is looked up once."""
        return len({one for one, _ in self.on}) == len(self.on)


def _widened(node: Node, lookup: _Lookup) -> tuple[Node, _Lookup]:
    """Return updates and a lookup with columns of equal types: the rows' columns may be nullable where they are values."""
    columns = {name: Column(name, kind) for name, kind in node.schema.items()}
    on: list[tuple[str, str]] = []
    for one, other in lookup.on:
        kind, name = lookup.of.arranged.schema[other], one
        if kind != node.schema[one]:
            name = _fresh(f"{one}?", columns)
            columns[name] = Column(one, kind)
        on.append((name, other))
    if len(columns) == len(node.schema):
        return node, lookup
    schema = {name: column.type for name, column in columns.items()}
    return physical.Linear((node,), schema, (MapStep(tuple(columns.items())),)), replace(lookup, on=tuple(on))


def _counted(node: Node, lookup: _Lookup, number: int) -> Node:
    """Return updates with the number of rows that a lookup finds for each, in the lookup's order."""
    count = _fresh(f"{physical_joins.ROWS}{number}", node.schema)
    columns = {one: node.schema[one] for one, _ in lookup.on} | node.schema | {count: ROW_COUNT}
    return physical_joins.RowCount((node, lookup.of.arranged), columns, lookup.on, lookup.new)


def _unwrapped(node: physical.Arrangement) -> tuple[dict[str, str], Node, list[Node], frozenset[str]]:
    """Return the collection that is arranged, its names of the columns, the nodes between, and the columns that must have a value.

    The nodes between choose columns, and drop records with a null in the key.
    """
    passed: list[Node] = []
    present: set[str] = set()
    names, found = {name: name for name in node.schema}, node.inputs[0]
    while isinstance(found, physical.Linear):
        given, filtered = names, set[str]()
        for step in reversed(found.steps):
            key = {given[name]: name for name in node.key}
            if isinstance(step, FilterStep) and (column := not_null_column(step)) in key:
                filtered.add(key[column or ""])
            elif isinstance(step, MapStep) and (chosen := _chosen(step, given)) is not None:
                given = chosen
            else:
                return names, found, passed, frozenset(names[name] for name in present)
        names = given
        present |= filtered
        passed.append(found)
        (found,) = found.inputs
    return names, found, passed, frozenset(names[name] for name in present)


def _chosen(step: MapStep, names: Mapping[str, str]) -> dict[str, str] | None:
    """Return the names of columns before a step that only chooses columns; None if it computes some."""
    given = dict(step.columns)
    columns = {name: given[own] for name, own in names.items()}
    plain = {name: column.name for name, column in columns.items() if isinstance(column, Column)}
    return plain if len(plain) == len(columns) else None


def _fresh(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken yet."""
    return next(each for each in chain([name], (f"{name}_{at}" for at in count(2))) if each not in taken)


def with_delta_joins(outputs: Mapping[str, Node], found: Mapping[str, Node]) -> dict[str, Node]:
    """Return outputs with the joins in `found` replaced by delta joins. A loop with another body is another loop, with its own identity."""
    if not found:
        return {**outputs}
    done: dict[str, Node] = {}

    def over(node: Node) -> Node:
        other = node.over(tuple(done[child.fingerprint] for child in node.inputs))
        return other if other is node or not isinstance(other, loops.Iterate) else loops.identified(other)

    for node in Graph({**outputs}).nodes():
        for each in below(found.get(node.fingerprint, node), lambda known: known.fingerprint in done):
            done[each.fingerprint] = over(each)
        if node.fingerprint in found:
            done[node.fingerprint] = done[found[node.fingerprint].fingerprint]
    return {name: done[node.fingerprint] for name, node in outputs.items()}


MUCH = 32
"""The ratio of the first collection to the others from which on another order is worth it."""


def reordered(graph: Graph, wanted: Callable[[joins.BinaryNode, joins.BinaryNode], bool]) -> Rewritten:
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


def much_smaller(sizes: Mapping[str, int], node: joins.BinaryNode, first: joins.BinaryNode) -> bool:
    """Return whether the collections that `node` would join first are much smaller than the one that is joined with them then, by the bytes of inputs."""
    large, small, other = (_size(each, sizes) for each in (*first.inputs, node.right))
    return large is not None and small is not None and other is not None and MUCH * max(small, other) <= large


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
