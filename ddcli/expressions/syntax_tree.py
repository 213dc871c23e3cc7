"""A syntax tree with the places of its nodes, whose every part must be used."""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ddcli.errors import SpecError

if TYPE_CHECKING:
    from ddcli.errors import Span, Text

SHOWN = 60
"""The number of letters of a part that a message shows."""


class Tree:
    """A syntax tree whose every part must be used."""

    def __init__(self, text: Text, root: exp.Expr):
        self.text, self.root = text, root
        self.nodes: list[exp.Expr] = list(root.walk())
        self._places = _places(text.value, self.nodes)
        self._taken: set[int] = set()

    def at(self, text: Text) -> Tree:
        """Return the tree of the same text at another place, with no part used yet."""
        found = copy(self)
        found.text, found._taken = text, set()  # noqa: SLF001 - its own class
        return found

    def place(self, node: exp.Expr) -> Span:
        """Return the place of a syntax node: without its own, that of its parts together; without parts, as for `null`, that of its parent."""
        within: exp.Expr | None = node
        while within is not None and id(within) not in self._places:
            within = within.parent
        found = self._places.get(id(within))
        return self.text.at(found[0], found[1] - found[0]) if found else self.text.span

    def written(self, node: exp.Expr) -> str:
        """Return a node's text, cut if it is long."""
        start, end = self._places.get(id(node), (0, len(self.text.value)))
        return self.text.value[start:end] if end - start <= SHOWN else self.text.value[start : start + SHOWN] + " ..."

    def take(self, node: exp.Expr, *names: str) -> list[Any]:
        """Return arguments of a node by name, None for one that isn't set. Raises SpecError if any other argument is set."""
        self._taken.add(id(node))
        for name, value in node.args.items():
            if name not in names and _is_set(value):
                parts = value if isinstance(value, list) else [value]
                at = next((part for part in parts if isinstance(part, exp.Expr)), node)
                if name == "pivots":
                    raise pivoted(self.place(at))
                written = name.strip("_").replace("_", " ")
                hint = "the table of functions has those that are"
                raise SpecError(
                    f"`{written}` is not supported in `{self.written(node)}`", span=self.place(at), hint=hint
                )
        return [node.args.get(name) for name in names]

    def take_all(self, node: exp.Expr) -> None:
        """Mark all of a node as used: one with the same text has been read in its place."""
        self._taken.update(id(each) for each in node.walk())

    def finish(self) -> None:
        """Raise SpecError for the first node that was never taken."""
        for node in self.nodes:
            if id(node) not in self._taken:
                raise SpecError(f"`{self.written(node)}` is not supported here", span=self.place(node))


def pivoted(span: Span) -> SpecError:
    """Return the error for a `pivot` or an `unpivot`."""
    hint = "group, with a column for each value: `sum(x) filter (where kind = 'a') as a`; to unpivot, `union all` the columns"
    return SpecError("`pivot` and `unpivot` are not supported", span=span, hint=hint)


def _is_set(value: object) -> bool:
    """Return whether an argument was written: sqlglot omits others, or sets them to one of these values."""
    return value is not None and value is not False and value != []


def _places(text: str, nodes: list[exp.Expr]) -> dict[int, tuple[int, int]]:
    """Return the begin and end of nodes, each spanning its parts. `nodes` has every parent before its children."""
    found: dict[int, tuple[int, int]] = {}
    for node in reversed(nodes):
        mark = node.meta if "start" in node.meta else None
        own = (mark["start"], mark["end"] + 1) if mark else None
        start, end = _hull(own, found.get(id(node))) or (-1, -1)
        if start < 0:
            continue
        if isinstance(node, exp.Anonymous | exp.Paren | exp.Extract | exp.Filter):
            closing = CLOSING.match(text, end)
            end = closing.end() if closing else end
        found[id(node)] = (start, end)
        if node.parent is not None:
            found[id(node.parent)] = _hull((start, end), found.get(id(node.parent))) or (start, end)
    return found


CLOSING = re.compile(r"\s*\)")


def _hull(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])
