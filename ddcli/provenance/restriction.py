"""The rows of the inputs on which some records can depend: values of columns, pushed down from a collection to the inputs below.

Rows of an input with other values can't matter to the records in question. The restriction is sound, not sharp: below a loop, or a
Python function, any row may matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.plan import groupings, logical, loops

if TYPE_CHECKING:
    from ddcli.plan.node import Node, Values

ALIKE = (logical.Passthrough, logical.SignedSum, groupings.Threshold)
"""Nodes whose records change exactly as those of their inputs do."""
SAME = (*ALIKE, logical.Temporal, loops.Enter)
"""Nodes whose records are those of their inputs."""


class Restrictions:
    """The alternatives that each input's rows may match: a row matters only if it has the values of one. An empty one matches all rows."""

    def __init__(self, node: Node, values: Values) -> None:
        self.sources: dict[str, list[Values]] = {}
        left: list[tuple[Node, Values]] = [(node, values)]
        seen: set[tuple[str, str]] = set()
        while left:
            below, given = left.pop()
            values = {name: value for name, value in given.items() if not isinstance(value, list)}
            at = below.fingerprint, repr(sorted(values.items(), key=lambda item: item[0]))
            if at in seen:
                continue
            seen.add(at)
            if isinstance(below, logical.Source):
                self.sources.setdefault(below.name, []).append(values)
            left += zip(below.inputs, below.restriction(values), strict=True)

    def alternatives(self, name: str) -> list[Values] | None:
        """Return the alternatives of which a row of an input must match one; None if all rows may matter."""
        found = self.sources.get(name, [])
        return None if any(not values for values in found) else found
