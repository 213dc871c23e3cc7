"""Calls of aggregates, of `grouping`, of `any` and `all`, and of `array` with a query, as syntax."""

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
        return word.replace("some", "any") if compared or isinstance(inside, exp.Query | exp.Values | exp.Array) else ""
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


def query_of_list(call: exp.Anonymous) -> tuple[exp.Select, exp.Expr] | None:
    """Return a query with one value, the list that `array(select x from ... order by y)` is, and the order as written; None if the query has no order.

    The query becomes a derived table with the keys as further columns, over which `array_agg` takes the first one in their order.
    """
    made: tuple[exp.Select, exp.Expr] | None = call.meta.get("made")
    if made is not None:  # a tree may be read again
        return made
    query = call.expressions[0]
    order = query.args.get("order")
    if order is None or len(query.selects) != 1:
        return None
    if query.args.get("limit") is None and query.args.get("offset") is None:
        query.set("order", None)
    value, keys = query.selects[0], list[exp.Expr]()
    plain = isinstance(query, exp.Select) and not query.args.get("distinct")
    columns = [exp.to_identifier("value")]
    for each in order.expressions:
        key = exp.column("value")
        if not _is_entry(each.this, value, by_alias=not plain):
            if not plain:
                return None
            columns.append(exp.to_identifier(f"key{len(columns)}"))
            key = exp.column(columns[-1].copy())
            query.append("expressions", exp.alias_(each.this.copy(), f"#key{len(columns)}", quoted=True))
        keys.append(exp.Ordered(this=key, desc=each.args.get("desc"), nulls_first=each.args.get("nulls_first")))
    rows = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("rows"), columns=columns))
    listed = exp.Anonymous(this="array_agg", expressions=[exp.Order(this=exp.column("value"), expressions=keys)])
    made = exp.Select(expressions=[exp.alias_(listed, "list")], from_=exp.From(this=rows)), order
    call.meta["made"] = made
    return made


def _is_entry(key: exp.Expr, entry: exp.Expr, *, by_alias: bool) -> bool:
    """Return whether a key of an order is the only entry of the list: by its position, as it is written, or by its alias, which a column of its name may hide."""
    if isinstance(key, exp.Literal) and not key.is_string:
        return bool(key.this == "1")
    if by_alias and isinstance(key, exp.Column) and not key.table and key.name.lower() == entry.alias_or_name.lower():
        return True
    return bool(key == entry.unalias())


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
