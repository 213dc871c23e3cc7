"""The columns by which a collection can be looked up, and the arrangements that answer; derived from the plan, without data."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass, frozen
from ddcli.expressions import stage
from ddcli.expressions.steps import FilterStep, MapStep, Step
from ddcli.expressions.tree import Column
from ddcli.plan import asof, groupings, loops, physical, physical_joins, windows
from ddcli.plan.logical import PRESENT
from ddcli.plan.node import Graph
from ddcli.plan.shape import not_null_column
from ddcli.plan.words import ALL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ddcli.plan.node import Node
    from ddcli.plan.physical_graph import PhysicalGraph

Names = tuple[str, ...]


@frozen
class Way:
    """An arrangement whose records are those of a collection: its node, and the collection's names for its columns.

    It lacks records with a null in one of the columns `present`. It is sorted by its columns in the order of `columns`, so a
    look-up must have values for the first of them.
    """

    node: Node
    columns: dict[str, str]
    key: Names
    present: frozenset[str] = frozenset()

    def prefix(self, known: Mapping[str, bool], *, whole: bool = False) -> Names | None:
        """Return the first of its own columns that are known, by which it can be searched; None if it can't be searched.

        `known` maps a column to True for a value, False for null. If it may be read `whole`, no column has to be known.
        """
        if not all(known.get(name) for name in self.present):
            return None
        found = []
        for own, name in self.columns.items():
            if own != ALL and name not in known:
                break
            found.append(own)
        return tuple(found) if found or whole or not self.key else None


@dataclass(frozen=True)
class Ways:
    """The arrangements of a plan that a state has, by their identities `held`; each is searched by its key, or may be read `whole`."""

    graph: PhysicalGraph
    held: Collection[str]
    whole: bool = False

    @cached_property
    def _kept(self) -> dict[str, Node]:
        # For a running window, a state keeps marks, not its records.
        nodes = (node for node in self.graph.nodes if not isinstance(node, windows.RunningGroup))
        return {node.fingerprint: node for node in nodes if node.fingerprint in self.held}

    def to(self, node: Node) -> list[Way]:
        """Return the arrangements with the collection of a node: its own, and those by which other operators read it."""
        found = []
        own = self._kept.get(node.fingerprint)
        if own is not None:
            found.append(Way(own, {name: name for name in own.schema}, _key(own)))
        base, steps = _over_linear_steps(node)
        for other in self._kept.values():
            if isinstance(other, physical.Arrangement):
                below, more = _over_linear_steps(other.inputs[0])
                if below.fingerprint == base.fingerprint and _text(below, more[: len(steps)]) == _text(base, steps):
                    found += _renamed(node, other, more[len(steps) :])
        return found

    def usable(self, node: Node, known: Mapping[str, bool]) -> list[tuple[Way, Names]]:
        """Return the arrangements with all of a node's records that have values for these columns, each with the columns to search by."""
        ways = ((way, way.prefix(known, whole=self.whole)) for way in self.to(node))
        return [(way, prefix) for way, prefix in ways if prefix is not None]

    def of_inputs(self, names: Collection[str]) -> Iterator[Node]:
        """Yield the arrangements whose records are all made of rows of these inputs, so that one with a record proves a row."""
        for node in self._kept.values():
            if isinstance(node, physical.Arrangement) and PRESENT not in node.schema:
                below = Graph({"": node}).nodes()
                if all(each.name in names for each in below if isinstance(each, physical.Scan)):
                    yield node

    def answers(self, node: Node, known: Mapping[str, bool]) -> bool:
        """Return whether a node's records can be found by these columns: True for a known value, False for a null."""
        if self.usable(node, known):
            return True
        match node:
            case physical.Linear() if not isinstance(node, physical.Pick):
                return self.answers(node.inputs[0], node.restriction(dict(known))[0])
            case physical.SignedSum():
                return all(self.answers(child, known) for child in node.inputs)
            case physical_joins.EquiJoin():
                return self.first(node, known) is not None
            case physical.Delay() if isinstance(node.inputs[0], physical.Shift):
                return self.answers(node.inputs[0].inputs[0], known)
            case windows.WindowedGroup():
                by = partition(node)
                return known.keys() >= {*by} and self.answers(node.inputs[0], {name: known[name] for name in by})
        below = same(node)
        return below is not None and self.answers(below, known)

    def first(self, node: physical_joins.EquiJoin, known: Mapping[str, bool]) -> int | None:
        """Return the side of a join to search first; the other is searched for the keys found there. None if neither works."""
        sides = node.restriction(dict(known))
        keys = [_key(side) for side in node.inputs]
        able = [
            at
            for at in (0, 1)
            if self.answers(node.inputs[at], sides[at])
            and self.answers(node.inputs[1 - at], dict.fromkeys(keys[1 - at], True))
        ]
        return max(able, key=lambda at: set(keys[at]) <= set(sides[at]), default=None)

    def keys(self, node: Node) -> list[Names]:
        """Return the keys by which a node's records can be found, in the names of its own columns."""
        keys = (tuple(dict.fromkeys(key)) for key in self._keys(node))
        found = [key for key in dict.fromkeys(keys) if self.answers(node, dict.fromkeys(key, True))]
        return [key for key in found if not any(other != key and key[: len(other)] == other for other in found)]

    def _keys(self, node: Node) -> Iterator[Names]:
        for way in self.to(node):
            key = tuple(way.columns[own] for own in way.key if own != ALL)
            if all(key):
                yield key
        match node:
            case physical.Linear() if not isinstance(node, physical.Pick):
                (names,) = node.decided(node.schema)
                yield from (
                    tuple(names[name] for name in key) for key in self._keys(node.inputs[0]) if names.keys() >= {*key}
                )
            case physical.SignedSum():
                for child in node.inputs:
                    yield from self._keys(child)
            case physical_joins.EquiJoin():
                for side, names in zip(node.inputs, node.decided(node.schema), strict=True):
                    keys = [_key(side), *self._keys(side)]
                    yield from (tuple(names[name] for name in key) for key in keys if names.keys() >= {*key})
            case windows.WindowedGroup():
                yield partition(node)
            case physical.Delay() if isinstance(node.inputs[0], physical.Shift):
                yield from (key for key in self._keys(node.inputs[0].inputs[0]) if node.schema.keys() >= {*key})
            case _ if (below := same(node)) is not None:
                yield from (key for key in self._keys(below) if node.schema.keys() >= {*key})


def same(node: Node) -> Node | None:
    """Return the node below with the same records for each key, perhaps with other multiplicities or more columns."""
    match node:
        case loops.Leave():
            iterate = node.inputs[0]
            assert isinstance(iterate, loops.Iterate)
            return iterate.bodies[node.which]
        case physical.Consolidated() | physical.Show() | physical.WatchedRecords() | loops.EnterAt():
            return node.inputs[0]
        case groupings.Threshold() | physical.Filtered():
            return node.inputs[0]
        case physical.Arrangement() if not node.is_imported:
            return node.inputs[0]
    return None


def partition(node: windows.WindowedGroup) -> Names:
    """Return the columns that partition a window's rows: one row's values depend on all rows of its partition."""
    return tuple(name for name in _key(node) if name != ALL)


def _key(node: Node) -> Names:
    """Return the key by which a node's arrangement is kept."""
    if isinstance(node, physical.Arrangement | physical.UpsertTable):
        return node.key
    if isinstance(node, physical.SnapshotTable) and node.key:
        return node.key
    if isinstance(node, groupings.TopK | windows.WindowedGroup | asof.AsofGroup):
        return _key(node.inputs[0])
    if isinstance(node, groupings.Accumulate | groupings.Group | groupings.PythonGroup):
        return node.by
    return tuple(node.schema)


def with_key(node: Node) -> Node:
    """Return the records of an input with their key where operators read fewer columns of them: the state keeps the key too."""
    base, steps = _over_linear_steps(node)
    keyed = isinstance(base, physical.UpsertTable | physical.SnapshotTable) and not getattr(base, "lasting", False)
    plain = all(
        isinstance(step, MapStep) and all(isinstance(made, Column) and made.name == name for name, made in step.columns)
        for step in steps
    )
    return base if keyed and plain else node


def _over_linear_steps(node: Node) -> tuple[Node, tuple[Step, ...]]:
    """Return a node as linear steps over a node that is not linear."""
    steps: tuple[Step, ...] = ()
    while isinstance(node, physical.Linear) and not isinstance(node, physical.Pick):
        steps = (*node.steps, *steps)
        node = node.inputs[0]
    return node, steps


def _text(node: Node, steps: Iterable[Step]) -> str:
    return stage.FusedSteps(node.schema, tuple(steps)).text()


def _renamed(node: Node, arranged: physical.Arrangement, steps: Iterable[Step]) -> Iterator[Way]:
    """Yield the way to a node through an arrangement of it after `steps`, if those only rename columns and drop nulls."""
    names = {name: name for name in node.schema}
    present: set[str] = set()
    for step in steps:
        if isinstance(step, FilterStep) and (column := not_null_column(step)) in names:
            present.add(names[column or ""])
        elif isinstance(step, MapStep):
            plain = [(name, expression) for name, expression in step.columns if isinstance(expression, Column)]
            names = {name: names[expression.name] for name, expression in plain if expression.name in names}
        else:
            return
    if {*names.values()} >= node.schema.keys():
        columns = {name: names.get(name, "") for name in arranged.schema}
        yield Way(arranged, columns, arranged.key, frozenset(present))
