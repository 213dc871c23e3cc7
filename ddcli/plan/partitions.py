"""The columns that partition a dataflow: the records that rows of inputs lead to depend on no row with other values there.

So these rows can be taken back, at all times, by computing the graph over the rows of their partitions alone, with and without them: the difference
in each arrangement and each output is the same as that of all rows. That is exact because operators over groups depend on the records of a
group alone, and each group lies in one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.plan import groupings, logical, physical, physical_joins

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ddcli.plan.node import Columns, Node, Origins
    from ddcli.plan.physical_graph import PhysicalGraph

    Places = Mapping[str, Columns]
    """The columns of a collection that have the value of a column of the inputs in each record, by that column."""

EXACT = frozenset(
    ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string", "date", "datetime", "bool")
)
"""The kinds of columns whose values are equal exactly if those in files are."""
LINEAR = (
    physical.Linear,
    physical.Arrangement,
    physical.OrderLanes,
    physical.Shift,
    physical.PythonShift,
    physical.Delay,
    physical_joins.FewerRows,
    physical_joins.DeltaJoin,
    logical.SignedSum,
    logical.Passthrough,
)
"""Nodes that take each record by itself. Joins of two collections that both change are none."""


class Partitions:
    """The partitions of a graph by columns of the inputs `names`, which all of these have: `columns`, none if its operators mix all rows.

    `places` has, by fingerprint, where the records of a node that depends on these inputs have these columns.
    """

    def __init__(self, graph: PhysicalGraph, names: Collection[str]) -> None:
        self.places: dict[str, Places] = {}
        self._lost: set[str] = set()
        scans = [scan for name, scan in graph.scans().items() if name in names]
        common = dict(scans[0].schema) if scans else {}
        for scan in scans[1:]:
            common = {name: kind for name, kind in common.items() if scan.schema.get(name) == kind}
        self._wanted = [name for name, kind in common.items() if kind.kind in EXACT and not name.startswith("$")]
        for node in graph.nodes:  # inputs come before readers
            if isinstance(node, physical.Scan):
                if node.name in names:
                    self.places[node.fingerprint] = {name: frozenset({name}) for name in self._wanted}
            elif any(child.fingerprint in self.places for child in _decisive(node)):
                self.places[node.fingerprint] = self._placed(node)
                if node.free:
                    self._lost.update(self._wanted)
        self.columns = tuple(name for name in self._wanted if name not in self._lost)

    def _placed(self, node: Node) -> Places:
        """Return the places of the columns in a node's records; columns that do not partition it are lost."""
        inputs = [self.places.get(child.fingerprint) for child in node.inputs]
        if isinstance(node, physical_joins.EquiJoin):
            left, right = node.sides
            self._require_pairs(inputs, [*zip(left.key, right.key, strict=True)])
            return self._joined(inputs, node.column_origins())
        if isinstance(node, physical_joins.HalfJoin):
            self._require_pairs(inputs, node.on)
            origins: Origins = {}
            for name, side, own in node.columns:
                at = int(side == "right")
                partners = [(1 - at, pair[1 - at]) for pair in node.on if pair[at] == own]
                origins[name] = [(at, own), *partners]
            return self._joined(inputs, origins)
        if isinstance(node, physical_joins.RowCount):
            return self._kept(inputs[:1], frozenset(node.schema))
        if isinstance(node, physical.Linear):
            return self._joined(inputs, node.column_origins())
        if isinstance(node, physical.PythonShift):
            return dict.fromkeys(self._wanted, frozenset())
        if isinstance(node, physical.OfGroups):
            return self._grouped(inputs, node.arranged.key)
        if isinstance(node, groupings.Accumulate):
            return self._grouped(inputs, node.by)
        if isinstance(node, logical.Upsert):
            return self._grouped(inputs, node.key)
        found = self._kept(inputs, frozenset(node.schema))
        if not isinstance(node, LINEAR):
            self._lost.update(self._wanted)
        return found

    def _kept(self, inputs: Collection[Places | None], columns: Columns) -> Places:
        """Return the places of the columns in records that have the inputs' columns under the same names."""
        known = [each for each in inputs if each is not None]
        return {
            name: columns.intersection(*(each[name] for each in known)) if known else frozenset()
            for name in self._wanted
        }

    def _grouped(self, inputs: Collection[Places | None], key: Collection[str]) -> Places:
        """Return the places of the columns in the records of groups, whose key must have them."""
        found = self._kept(inputs, frozenset(key))
        self._lost.update(name for name, places in found.items() if not places)
        return found

    def _require_pairs(self, inputs: Collection[Places | None], on: Collection[tuple[str, str]]) -> None:
        """Lose the columns that two joined collections both have, and that are not among those that are compared."""
        left, right = inputs
        if left is None or right is None:
            return
        for name in self._wanted:
            if not any(one in left[name] and other in right[name] for one, other in on):
                self._lost.add(name)

    def _joined(self, inputs: Collection[Places | None], origins: Origins) -> Places:
        """Return the places of the columns in records whose columns have these origins."""
        known = [each or dict.fromkeys(self._wanted, frozenset[str]()) for each in inputs]
        return {
            name: frozenset(
                column for column, found in origins.items() if any(own in known[at][name] for at, own in found)
            )
            for name in self._wanted
        }


def _decisive(node: Node) -> Collection[Node]:
    """Return the inputs that decide a node's records: which of several lookups an update takes, by the rows that it finds, changes no result."""
    return node.inputs[:1] if isinstance(node, physical_joins.RowCount) else node.inputs
