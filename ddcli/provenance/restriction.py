"""The rows of the inputs on which some records can depend: values of columns, pushed down from a collection to the inputs below.

Rows of an input with other values can't matter to the records in question. Where a join's one side is restricted and its other side is not,
the keys of the rows that the restricted side can be made of restrict the other: of orders, the orders of the customers in one city. The
restriction is sound, not sharp: below a loop, or a Python function, any row may matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import polars as pl

from ddcli.plan import joins, logical

if TYPE_CHECKING:
    from ddcli.plan.node import Node, Values

MOST_KEYS = 1_000_000
"""The most keys of a join that restrict its other side."""
EXACT = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string", "date", "bool")
"""Types of keys whose values are equal exactly if the values of their columns in files are."""


class KeySet:
    """The values that a column may have, in place of one value: the other side's keys, at any time up to the question's.

    It equals itself alone, in `repr` too.
    """

    def __init__(self, values: pl.Series) -> None:
        self.values = values


class ColumnReader(Protocol):
    """A reader of the different values of an input's column among its updates that match a restriction; None if there are too many."""

    def __call__(self, source: logical.Source, values: Values, column: str) -> KeySet | None: ...


class Restrictions:
    """The alternatives that each input's rows may match: a row matters only if it has the values of one. An empty one matches all rows.

    With a `read`, they hold for records that exist at some time, not for the partners that a missing record lacks.
    """

    def __init__(self, node: Node, values: Values, read: ColumnReader | None = None) -> None:
        self._read = read
        self._keys: dict[tuple[str, str, str], KeySet | None] = {}
        self.sources: dict[str, list[Values]] = {}
        left: list[tuple[Node, Values]] = [(node, values)]
        seen: set[tuple[str, str]] = set()
        while left:
            below, given = left.pop()
            values = _plain(given)
            at = below.fingerprint, _text(values)
            if at in seen:
                continue
            seen.add(at)
            if isinstance(below, logical.Source):
                self.sources.setdefault(below.name, []).append(values)
            left += zip(below.inputs, self._restriction(below, values), strict=True)

    def alternatives(self, name: str) -> list[Values] | None:
        """Return the alternatives; a row of an input must match one of them; None if all rows may matter."""
        found = self.sources.get(name, [])
        return None if any(not values for values in found) else found

    def _restriction(self, node: Node, values: Values) -> list[Values]:
        """Return the restriction of each input, with the keys of a join's restricted side for its other side."""
        found = [_plain(each) for each in node.restriction(values)]
        if self._read is None:
            return found
        if isinstance(node, logical.Upsert | logical.Snapshots):
            return [self._of_keys(node, values, found[0])]
        if not isinstance(node, joins.BinaryNode) or not node.read_by:
            return found
        if not (node.requires_partner or (isinstance(node, joins.Join) and node.how == "inner")):
            return found
        for here, other in ((0, 1), (1, 0)):
            if found[other] or not found[here]:
                continue
            for own, theirs in zip(node.read_by[here], node.read_by[other], strict=True):
                kinds = node.inputs[here].schema[own].required(), node.inputs[other].schema[theirs].required()
                if kinds[0] == kinds[1] and str(kinds[0]) in EXACT:
                    keys = self._values(node.inputs[here], found[here], own)
                    found[other] |= {theirs: keys} if keys is not None else {}
            break
        return found

    def _of_keys(self, table: logical.Upsert | logical.Snapshots, values: Values, found: Values) -> Values:
        """Return the restriction of a table's rows: to all that have the key of one with the `values`."""
        for name in table.key:
            if name not in found and values and str(table.schema[name].required()) in EXACT:
                keys = self._values(table.inputs[0], values, name)
                found |= {name: keys} if keys is not None else {}
        return found

    def _values(self, node: Node, values: Values, column: str) -> KeySet | None:
        """Return values among which are all that the column has in the node's records with the `values`, at any time; None if none are known."""
        at = node.fingerprint, _text(values), column
        if at not in self._keys:
            self._keys[at] = self._sought(node, values, column)
        return self._keys[at]

    def _sought(self, node: Node, values: Values, column: str) -> KeySet | None:
        if isinstance(node, logical.Source):
            assert self._read is not None
            return self._read(node, values, column)
        if isinstance(
            node, logical.Upsert | logical.Snapshots
        ):  # each record is that of one row, not of all rows with its key
            return self._values(node.inputs[0], values, column)
        if isinstance(node, logical.SignedSum):
            parts = [self._values(child, values, column) for child in node.inputs]
            known = [each.values for each in parts if each is not None]
            return KeySet(pl.concat(known).unique()) if len(known) == len(parts) else None
        origins = node.column_origins().get(column, [])[:1]
        if not origins or (isinstance(node, joins.Join) and node.how != "inner"):
            return None
        ((which, own),) = origins
        return self._values(node.inputs[which], self._restriction(node, values)[which], own)


def _plain(values: Values) -> Values:
    return {name: value for name, value in values.items() if not isinstance(value, list)}


def _text(values: Values) -> str:
    return repr(sorted(values.items(), key=lambda item: item[0]))
