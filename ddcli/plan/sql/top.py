"""`order by`, `limit` and `offset`: with a limit the first rows of an order. Without one the order only affects how rows are shown, for a collection has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError
from ddcli.expressions.coerce import Mismatch
from ddcli.expressions.operators import keys_of, stored
from ddcli.expressions.tree import Call, Column, Expression
from ddcli.plan import groupings, logical
from ddcli.plan.sql import nodes
from ddcli.plan.sql.names import renamed
from ddcli.plan.sql.nodes import column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.expressions.operators import Key
    from ddcli.expressions.types import RowOrder
    from ddcli.plan.sql.context import QueryResult
    from ddcli.plan.sql.statement import Statement

UNORDERED = (
    "a collection has no order: `order by` without `limit` changes nothing here; `dd sql` shows rows in an order"
)
SHOWN = "a collection has no order: `order by` without `limit` only sets the order in which `dd log --as-of` and tables in files show its rows"
UNSHOWN = "a collection has no order, and this `order by` names more than its columns, so only `dd sql` can show it: select the columns that it orders by"


def order_keys(
    statement: Statement, order: exp.Order | None, key: Callable[[exp.Expr], Expression], listed: int = 0
) -> list[Key]:
    """Return the keys of an `order by`, each read by `key`; `all` is each of the `listed` columns."""
    if order is None:
        return []
    found: list[Key] = []
    (keys,) = statement.tree.take(order, "expressions")
    for each in keys:
        written, descending, nulls_first = statement.tree.take(each, "this", "desc", "nulls_first")
        if listed and len(keys) == 1 and isinstance(written, exp.Column) and written.sql().lower() == "all":
            statement.identifier(written)
            parts: list[exp.Expr] = [exp.Literal.number(at + 1) for at in range(listed)]
        else:
            parts = [written]
        try:
            for part in parts:
                found += keys_of(key(part), bool(descending), bool(nulls_first))
        except Mismatch as mismatch:
            raise SpecError(mismatch.problem, span=statement.tree.place(each)) from None
    return found


def bounds(statement: Statement, node: exp.Expr) -> tuple[int | None, int]:
    """Return the limit of a query, None without one, and its offset."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if isinstance(limit, exp.Fetch):
        written, options = statement.tree.take(limit, "count", "limit_options", "direction")[:2]
        _without_share(statement, limit, options)
        return _whole(statement, written), _offset(statement, offset)
    if limit is None:
        return None, _offset(statement, offset)
    written, options = statement.tree.take(limit, "expression", "limit_options")
    _without_share(statement, limit, options)
    if isinstance(written, exp.Column) and str(written.name).lower() == "all":
        statement.identifier(written)
        return None, _offset(statement, offset)
    return _whole(statement, written), _offset(statement, offset)


def _without_share(statement: Statement, limit: exp.Expr, options: exp.Expr | None) -> None:
    """Refuse a limit that is a share of the rows, or takes more rows for ties."""
    if options is not None:
        parts = statement.tree.take(options, "rows", "percent", "with_ties")
        if parts[1] or parts[2]:
            problem, hint = "`percent` and `with ties` are not supported", "a limit is a number of rows: `limit 10`"
            raise SpecError(problem, span=statement.tree.place(limit), hint=hint)


def _offset(statement: Statement, offset: exp.Expr | None) -> int:
    return 0 if offset is None else _whole(statement, *statement.tree.take(offset, "expression"))


def _whole(statement: Statement, node: exp.Expr | None) -> int:
    text, is_text = statement.tree.take(node, "this", "is_string") if isinstance(node, exp.Literal) else ("", False)
    if is_text or not str(text).isdigit() or len(str(text)) > 12:
        span = statement.tree.place(node) if node is not None else None
        raise SpecError("`limit` and `offset` take a constant whole number", span=span)
    return int(str(text))


def first(result: QueryResult, keys: Sequence[Key], limit: int | None, offset: int) -> QueryResult:
    """Return, for each row of the outer columns, the first `limit` rows after `offset` in an order; the other columns break ties."""
    node = result.node
    names = renamed([f"#order{at}" for at in range(len(keys))], node.schema)
    hidden = {name: stored(key) for name, (key, _) in zip(names, keys, strict=True) if not isinstance(key, Column)}
    order = tuple(
        (key.name if isinstance(key, Column) else name, descending)
        for name, (key, descending) in zip(names, keys, strict=True)
    )
    ranked = nodes.extended(node, hidden)
    if limit == 0:
        from ddcli.expressions.coerce import BOOL
        from ddcli.expressions.tree import Literal

        return replace(result, node=nodes.filtered(node, Literal(False, BOOL)))

    found = ranked if limit is None else groupings.first(ranked, result.keys, limit + offset, order)
    if offset:
        skipped = groupings.first(ranked, result.keys, offset, order)
        found = logical.summed((found, logical.negated(skipped)), ranked.schema)
    return replace(result, node=nodes.projected(found, node.schema), single=result.single or limit == 1)


def ordered(statement: Statement, node: exp.Expr, result: QueryResult) -> QueryResult:
    """Return the rows of a query that is not a `select` under its `order by`, `limit` and `offset`."""
    limit, offset = bounds(statement, node)
    by_name: dict[str, str] = {}
    for name, each in result.columns:
        by_name.setdefault(name.lower(), each)

    def key(written: exp.Expr) -> Expression:
        position = position_of(statement, written, len(result.columns))
        if position is not None:
            return column(result.node, result.columns[position][1])
        if isinstance(written, exp.Column) and not written.args.get("table"):
            name = statement.identifier(written)
            if name.lower() in by_name:
                return column(result.node, by_name[name.lower()])
        hint = "name a column of the result, or its position"
        raise SpecError("this is not a column of the result", span=statement.tree.place(written), hint=hint)

    keys = order_keys(statement, node.args.get("order"), key, len(result.columns))
    if statement.collected is node and limit is None and not offset:
        statement.order = listed_order(keys, {each: each for _, each in result.columns})
    return limited(statement, node, result, keys, limit, offset)


def limited(
    statement: Statement, node: exp.Expr, result: QueryResult, keys: Sequence[Key], limit: int | None, offset: int
) -> QueryResult:
    """Return the rows that limit and offset keep; add a note on an order without a limit that does not affect how rows are shown."""
    if statement.shown is node:
        names = renamed([f"#order{at}" for at in range(len(keys))], result.node.schema)
        by = dict(zip(names, (key for key, _ in keys), strict=True))
        result = replace(result, node=nodes.extended(result.node, by))
        keys = [(column(result.node, name), descending) for name, (_, descending) in zip(names, keys, strict=True)]
        statement.order = listed_order(keys, {name: name for name in names})
        return result if limit is None and not offset else first(result, keys, limit, offset)
    if limit is None and not offset:
        if keys:
            noted = SHOWN if statement.order else UNSHOWN
            statement.note(node.args["order"], noted if statement.collected is node else UNORDERED)
        return result
    return first(result, keys, limit, offset)


def listed_order(keys: Sequence[Key], listed: Mapping[str, str]) -> RowOrder:
    """Return an order by the names of its columns in `listed`; an empty one if a key is not such a column.

    If nulls are not at the large end, the condition that the column is null is a key before it (see `keys_of`).
    """
    found: dict[str, tuple[str, bool, bool]] = {}
    nulls: tuple[str, bool] | None = None
    for key, descending in keys:
        is_null = isinstance(key, Call) and key.function == "is null"
        named = key.children[0] if is_null else key
        if not isinstance(named, Column) or named.name not in listed or (nulls and (is_null or nulls[0] != named.name)):
            return ()
        nulls, before = (named.name, descending) if is_null else None, nulls
        if not is_null:
            name = listed[named.name]
            found.setdefault(name, (name, descending, not (before[1] if before else descending)))
    return () if nulls else tuple(found.values())


def position_of(statement: Statement, node: exp.Expr, count: int) -> int | None:
    """Return the index of the column that a whole number in `group by` and `order by` means; None for another node."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    text, _ = statement.tree.take(node, "this", "is_string")
    if not str(text).isdigit() or not 1 <= int(str(text)) <= count:
        hint = f"the first is 1, the last {count}"
        raise SpecError(f"there is no column {text}", span=statement.tree.place(node), hint=hint)
    return int(str(text)) - 1
