"""Calls of aggregates, of `grouping` and of `any` and `all` in expressions, as syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.forms import BINARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

OWNED = "owned"
"""The key in the `meta` of an aggregate's syntax node that marks it as one of an outer query."""


def quantifier(node: object) -> str:
    """Return `any` or `all` if a node is a quantified subquery or list, else ''; sqlglot parses some as calls of functions."""
    if isinstance(node, exp.Any | exp.All):
        return "all" if isinstance(node, exp.All) else "any"
    if isinstance(node, exp.Anonymous) and str(node.this).lower() in ("any", "some", "all"):
        word = str(node.this).lower()
        inside = node.expressions[0] if node.expressions else None
        around = node.parent
        compared = type(around) in BINARY and around is not None and around.args.get("expression") is node
        return word.replace("some", "any") if compared or isinstance(inside, exp.Query | exp.Array) else ""
    return ""


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is the call of an aggregate over the rows of its own query."""
    if not isinstance(node, exp.Anonymous) or quantifier(node) or OWNED in node.meta:
        return False
    name = str(node.this).lower()
    return AGGREGATE_SYNONYMS.get(name, name) in AGGREGATES


def is_grouping(node: exp.Expr) -> bool:
    """Return whether a node is the call of `grouping`."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in ("grouping", "grouping_id")


def find_aggregates(nodes: list[exp.Expr]) -> list[exp.Expr]:
    """Return the aggregate calls in expressions, with their filters, without those in subqueries and over windows."""

    def called(node: exp.Expr) -> exp.Expr:
        return called(node.this) if isinstance(node, exp.Filter | exp.WithinGroup) else node

    return outermost(nodes, lambda node: is_aggregate(called(node)), _read_of_groups)


def find_groupings(nodes: list[exp.Expr]) -> list[exp.Expr]:
    """Return the calls of `grouping` in expressions, without those in subqueries."""
    return outermost(nodes, is_grouping, _read_of_groups)


def outermost(
    nodes: Sequence[exp.Expr],
    wanted: Callable[[exp.Expr], bool],
    parts: Callable[[exp.Expr], Iterable[exp.Expr]] = lambda node: node.iter_expressions(),
) -> list[exp.Expr]:
    """Return the outermost nodes in expressions for which `wanted` is true, without those in subqueries; `parts` returns the children of a node."""
    found, left = [], list(reversed(nodes))
    while left:
        node = left.pop()
        if wanted(node):
            found.append(node)
        elif not isinstance(node, exp.Query):
            left += reversed(list(parts(node)))
    return found


def _read_of_groups(node: exp.Expr) -> Iterable[exp.Expr]:
    """Return the parts of a node that may have aggregates of groups. A window's own aggregate is none, but its arguments may have some."""
    if not isinstance(node, exp.Window):
        return node.iter_expressions()
    called = node.this.this if isinstance(node.this, exp.Filter) else node.this
    parts = [part for part in node.iter_expressions() if part is not node.this] + list(called.iter_expressions())
    return parts + ([node.this.expression] if isinstance(node.this, exp.Filter) else [])
