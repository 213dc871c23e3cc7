"""The columns that a collection can be looked up with, and the arrangements that answer; derived from the plan, without data."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass, frozen
from ddcli.expressions import stage
from ddcli.expressions.steps import FilterStep, MapStep, Step
from ddcli.expressions.tree import Column
from ddcli.plan import logical, physical
from ddcli.plan.logical import PRESENT
from ddcli.plan.node import Graph
from ddcli.plan.physical_joins import EquiJoin
from ddcli.plan.shape import not_null_column
from ddcli.plan.windows import RunningGroup
from ddcli.plan.words import ALL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ddcli.plan.node import Node
    from ddcli.plan.physical_graph import PhysicalGraph

Names = tuple[str, ...]


@frozen
class Way:
    """An arrangement with the records of a collection: its node, and the collection's names for its columns.

    It lacks records with a null in one of the columns `present`. It is sorted by its columns in the order of `columns`, so a
    look-up must have values for the first of them.
    """

    node: Node
    columns: dict[str, str]
    key: Names
    present: frozenset[str] = frozenset()

    def prefix(self, known: Mapping[str, bool], *, whole: bool = False) -> Names | None:
        """Return the known columns at the start of its key, which can be searched; None if it can't be searched.

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
        nodes = (node for node in self.graph.nodes if not isinstance(node, RunningGroup))
        return {node.fingerprint: node for node in nodes if node.fingerprint in self.held}

    def to(self, node: Node) -> list[Way]:
        """Return the arrangements with the collection of a node: its own, and the ones through which other operators read it."""
        found = []
        own = self._kept.get(node.fingerprint)
        if own is not None:
            found.append(Way(own, {name: name for name in own.schema}, own.kept_by))
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
        if isinstance(node, EquiJoin):
            return self.first(node, known) is not None
        found = node.searched(dict(known))
        return found is not None and all(self.answers(child, values) for child, values in found)

    def first(self, node: EquiJoin, known: Mapping[str, bool]) -> int | None:
        """Return the side of a join to search first; the other is searched for the keys found there. None if neither works."""
        sides = node.restriction(dict(known))
        keys = [side.kept_by for side in node.inputs]
        able = [
            at
            for at in (0, 1)
            if self.answers(node.inputs[at], sides[at])
            and self.answers(node.inputs[1 - at], dict.fromkeys(keys[1 - at], True))
        ]
        return max(able, key=lambda at: set(keys[at]) <= set(sides[at]), default=None)

    def keys(self, node: Node) -> list[Names]:
        """Return the keys that a node's records can be looked up with, in the names of its own columns."""
        keys = (tuple(dict.fromkeys(key)) for key in self._keys(node))
        found = [key for key in dict.fromkeys(keys) if self.answers(node, dict.fromkeys(key, True))]
        return [key for key in found if not any(other != key and key[: len(other)] == other for other in found)]

    def _keys(self, node: Node) -> Iterator[Names]:
        for way in self.to(node):
            key = tuple(way.columns[own] for own in way.key if own != ALL)
            if all(key):
                yield key
        if isinstance(node, EquiJoin):
            given = [*zip(node.inputs, node.decided(node.schema), strict=True)]
        else:
            given = node.searched({name: name for name in node.schema}) or []
        for child, names in given:
            keys = [child.kept_by, *self._keys(child)] if isinstance(node, EquiJoin) else self._keys(child)
            yield from (tuple(names[name] for name in key) for key in keys if names.keys() >= {*key})


def with_key(node: Node) -> Node:
    """Return the records of an input with their key where operators read fewer columns of them: the state keeps the key too."""
    base, steps = _over_linear_steps(node)
    keyed = isinstance(base, logical.Table) and not getattr(base, "lasting", False)
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
