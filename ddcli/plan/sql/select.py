"""A `select`: its list over the rows or groups of `from`, `where` and `group by`, then `distinct`, `order by`, `limit` and `offset`.

With a limit an order chooses the first rows. Without one it only affects how rows are shown, for a collection has none.

Its window functions are calls over partitions and orders, or named windows, and `qualify` filters by them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError, suggestion
from ddcli.expressions.coerce import BOOL, Mismatch
from ddcli.expressions.operators import keys_of, stored
from ddcli.expressions.tree import Call, Column, Expression, Literal
from ddcli.expressions.types import fresh, renamed
from ddcli.expressions.window_calls import CallReader, OrderedBy
from ddcli.plan import groupings, logical
from ddcli.plan.sql import nodes
from ddcli.plan.sql.calls import find_unnested, outermost, spread_list
from ddcli.plan.sql.context import Environment, Outer, QueryResult
from ddcli.plan.sql.groups import Entry, check_groups, grouped, is_grouped, listed_entries, position_of
from ddcli.plan.sql.joins import From
from ddcli.plan.sql.nodes import column
from ddcli.plan.sql.reader import AggregateCalls, contains_query
from ddcli.plan.windows import windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.expressions.operators import Key
    from ddcli.expressions.types import RowOrder
    from ddcli.expressions.windows import WindowCall
    from ddcli.plan.sql.block import Block
    from ddcli.plan.sql.statement import Statement


def find_windows(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the window calls in expressions, without those in subqueries and in other window calls."""
    return outermost(nodes, lambda node: isinstance(node, exp.Window))


def window_clauses(node: exp.Select) -> list[exp.Expr]:
    """Return the clauses of a `select` beside its list that may have window calls."""
    clauses = [node.args.get(name) for name in ("order", "qualify", "distinct")]
    return [clause for clause in clauses if clause is not None]


def attach(statement: Statement, block: Block, node: exp.Select, entries: Sequence[Entry], keys: Sequence[str]) -> None:
    """Add columns with the values of a `select`'s window calls, by row of the outer `keys`; then keep the rows for which `qualify` is true."""
    definitions = _definitions(statement, node)
    written = [entry.written for entry in entries if entry.written is not None]
    calls = find_windows([*written, *window_clauses(node)])
    reader = AggregateCalls(statement.tree, block)
    reader.inner = block.reader  # type: ignore[assignment]
    inner = CallReader(block.reader, reader)
    around: list[Expression] = [column(block.node, key) for key in keys]
    # All calls are read before any is computed: a subquery in one of them adds columns to the rows of all.
    groups: dict[tuple[str, ...], tuple[list[Expression], OrderedBy, dict[str, WindowCall]]] = {}
    places: dict[int, tuple[tuple[str, ...], str]] = {}
    for each in calls:
        called, partition, order_by, spec = _resolved(statement, each, definitions)
        by = [block.reader.expression(part) for part in partition]
        for part, expression in zip(partition, by, strict=True):
            if expression.type.kind in ("null", "months"):
                problem = f"can't partition by {expression.type.required()}"
                raise SpecError(problem, span=statement.tree.place(part))
        count = len(order_by.expressions) if order_by is not None else 0
        order = OrderedBy(tuple(order_keys(statement, order_by, block.reader.expression)), count)
        call = inner.call(called, order, inner.frame(spec, order) if spec is not None else None)
        text = (*(part.text() for part in by), "order", *(f"{key.text()} {down}" for key, down in order.keys))
        mine = groups.setdefault(text, ([*around, *by], order, {}))[2]
        mine.setdefault(call.text(), call)
        places[id(each)] = text, call.text()
    used = {each.args["alias"].name.lower() for each in [*calls, *definitions.values()] if each.args.get("alias")}
    for name, definition in definitions.items():
        if name not in used:
            span = statement.tree.place(definition)
            raise SpecError(f"no function uses the window `{name}`", span=span, hint="leave it out")
    for text, (by, order, wanted) in groups.items():
        names = list(renamed([f"#window{at}" for at in range(len(wanted))], block.schema).values())
        block.node = windowed(block.node, by, order, dict(zip(names, wanted.values(), strict=True)), "#")
        named = dict(zip(wanted, names, strict=True))
        for at, (own, call_text) in places.items():
            if own == text:
                block.known[at] = column(block.node, named[call_text])
    qualify = node.args.get("qualify")
    if qualify is not None:
        if not calls:
            raise SpecError(
                "`qualify` without a window function",
                span=statement.tree.place(qualify),
                hint="write `where` or `having`",
            )
        block.where(statement.tree.take(qualify, "this")[0])


def _definitions(statement: Statement, node: exp.Select) -> dict[str, exp.Window]:
    """Return the named windows of a `select`, by name in lower case."""
    found: dict[str, exp.Window] = {}
    for each in node.args.get("windows") or ():
        name = statement.identifier(each.this)
        if name.lower() in found:
            raise SpecError(f"two windows are named `{name}`", span=statement.tree.place(each))
        found[name.lower()] = each
    return found


def _resolved(
    statement: Statement, node: exp.Expr, definitions: Mapping[str, exp.Window], depth: int = 0
) -> tuple[exp.Expr, list[exp.Expr], exp.Order | None, exp.WindowSpec | None]:
    """Return a window's call, or its name, with its partition, order and frame, including parts of the named window that it extends."""
    tree = statement.tree
    called, partition, order, spec, alias = tree.take(node, "this", "partition_by", "order", "spec", "alias", "over")[
        :5
    ]
    partition = list(partition or ())
    if alias is None:
        return called, partition, order, spec
    name = statement.identifier(alias)
    base = definitions.get(name.lower())
    if base is None or depth > len(definitions):
        hint = suggestion(name.lower(), definitions, "name it behind `from`: window w as (partition by ...)", mark="`")
        raise SpecError(f"no window is named `{name}`", span=tree.place(node), hint=hint)
    _, its_partition, its_order, its_spec = _resolved(statement, base, definitions, depth + 1)
    if partition:
        raise SpecError(f"the window `{name}` has its partition already", span=tree.place(node))
    if order is not None and its_order is not None:
        raise SpecError(f"the window `{name}` has an order already", span=tree.place(node))
    return called, its_partition, order or its_order, spec or its_spec


CLAUSES = (
    "expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "limit", "offset", "with_",
    "windows", "qualify",
)  # fmt: skip


LISTED = "\0"
"""The prefix of a list column's name where columns of the rows are in scope, too."""


def select(statement: Statement, node: exp.Select, environment: Environment, *, value: bool) -> QueryResult:
    """Return the relation of a `select`."""
    statement.tree.take(node, *CLAUSES)
    block = From(statement, environment).block(node)
    entries = listed_entries(statement, block.scope, node)
    having, distinct = node.args.get("having"), node.args.get("distinct")
    limit, offset = bounds(statement, node)
    keys = tuple(environment.outer.node.schema) if environment.outer is not None else ()
    single = False
    listed = [each.written for each in entries if each.written is not None]
    is_windowed = bool(
        find_windows([*listed, *window_clauses(node)]) or node.args.get("windows") or node.args.get("qualify")
    )
    clauses = [node.args[name] for name in ("having", "order", "qualify") if node.args.get(name) is not None]
    around = Environment(environment.tables, Outer(block.scope, block.node), environment.taken)
    owned = statement.outer.of(
        node, [*listed, *clauses], block.scope, lambda each: statement.lower_on_trial(each, around)
    )
    if owned or is_grouped(node, listed):
        plain = having is None and distinct is None and limit is None and not offset and len(entries) == 1
        plain = plain and not is_windowed and not owned
        deferred = value and plain and not (entries[0].written is not None and contains_query(entries[0].written))
        block, single = grouped(statement, block, node, entries, owned, deferred=deferred)
        if having is not None:
            block.where(statement.tree.take(having, "this")[0])
        if deferred and single:
            (found,) = _expressions(block, entries)
            rest = [name for name in block.node.schema if name not in keys]
            order = node.args.get("order")
            if order is not None:
                order_keys(statement, order, block.reader.expression)
            return QueryResult(
                block.node, keys, ((entries[0].name, rest[0] if rest else keys[0]),), single=True, value=found
            )
    for at, call in enumerate(find_unnested(listed)):
        if at or block.groups is not None or is_windowed:
            problem = "`unnest` is allowed once in a list, and not together with groups or windows"
            hint = "put it into the `from`: `from t, unnest(tags) as u(tag)`"
            raise SpecError(problem, span=statement.tree.place(call), hint=hint)
        spread_list(block, call)
    if block.groups is None:
        for each in reversed(entries):
            if each.written is not None:
                block.aliases[each.name.lower()] = each.written
    if is_windowed:
        attach(statement, block, node, entries, keys)
    expressions = _expressions(block, entries)
    return _listed(statement, node, block, entries, expressions, keys, limit, offset, single=single)


def _listed(
    statement: Statement, node: exp.Select, block: Block, entries: list[Entry], expressions: list[Expression],
    keys: tuple[str, ...], limit: int | None, offset: int, *, single: bool,
) -> QueryResult:  # fmt: skip
    """Return the result: the columns of the list, of the rows that `distinct`, `limit` and `offset` keep."""
    distinct, order = node.args.get("distinct"), node.args.get("order")
    names: list[str] = []
    for entry in entries:
        names.append(fresh(entry.name, {*keys, *names}))
    columns = tuple((each.name, name) for each, name in zip(entries, names, strict=True))
    listed = dict(zip(names, expressions, strict=True))
    on = statement.tree.take(distinct, "on", "expressions")[0] if distinct is not None else None
    before = block.node
    order_by = order_keys(
        statement,
        order,
        lambda each: _order_key(statement, block, each, columns, listed, whole=distinct is not None and on is None),
        len(columns),
    )
    if statement.collected is node and on is None and limit is None and not offset:
        statement.order = listed_order(order_by, {LISTED + name: name for name in names})
    by: list[Expression] = []
    if on is not None:
        (written,) = statement.tree.take(on, "expressions")
        by = [_order_key(statement, block, each, columns, listed, whole=False) for each in written]
        for key, each in zip(by, written, strict=True):
            check_groups(statement, key, each)
    elif limit is None and not offset and statement.shown is not node:
        block.node = before  # this order drops no row: the columns that compute it are not needed
    rows: dict[str, Expression] = {key: nodes.column(block.node, key) for key in keys} | listed
    if distinct is not None and on is None:
        found = groupings.distinct(nodes.mapped(block.node, rows))
        plain = {LISTED + name: nodes.column(found, name) for name in names}
        order_by = [(key.substitute(plain), descending) for key, descending in order_by]
        return limited(statement, node, QueryResult(found, keys, columns, single), order_by, limit, offset)
    if limit is None and not offset and on is None and statement.shown is not node:
        found = nodes.mapped(block.node, rows)
        return limited(statement, node, QueryResult(found, keys, columns, single), order_by, None, 0)
    taken = rows.keys() | before.schema.keys()
    hidden = list(renamed([f"#key{at}" for at in range(len(order_by) + len(by))], taken).values())
    extra = dict(zip(hidden, [*(key for key, _ in order_by), *by], strict=True))
    kept: list[Key] = []
    for name, (key, descending) in zip(hidden, order_by, strict=False):
        if isinstance(key, Column) and key.name.startswith(LISTED):
            del extra[name]
            kept.append((Column(key.name.removeprefix(LISTED), key.type), descending))
        else:
            kept.append((Column(name, key.type), descending))
    inlined = {LISTED + name: each for name, each in listed.items()}
    extra = {name: each.substitute(inlined) for name, each in extra.items()}
    result = QueryResult(nodes.mapped(block.node, rows | extra), keys, columns, single)
    if on is not None:
        groups = (*keys, *hidden[len(order_by) :])
        order_columns = tuple((key.name, descending) for key, descending in kept if isinstance(key, Column))
        result = replace(result, node=groupings.first(result.node, groups, 1, order_columns))
    if limit is not None or offset:
        result = first(result, kept, limit, offset)
    if statement.shown is node:
        statement.order = listed_order(kept, {name: name for name in result.node.schema})
        return result
    return replace(result, node=nodes.projected(result.node, [*keys, *names]))


def _order_key(
    statement: Statement,
    block: Block,
    written: exp.Expr,
    columns: tuple[tuple[str, str], ...],
    listed: dict[str, Expression],
    *,
    whole: bool,
) -> Expression:
    """Return the expression of an `order by` entry: a column of the list by position or name, else an expression over the rows.

    The name of a list's column has the prefix `LISTED`; with `whole`, only such columns are allowed.
    """
    position = position_of(statement, written, len(columns))
    if position is not None:
        name = columns[position][1]
        return Column(LISTED + name, listed[name].type)
    if isinstance(written, exp.Column) and not written.args.get("table") and isinstance(written.this, exp.Identifier):
        wanted = written.name.lower()
        same = [name for shown, name in columns if shown.lower() == wanted]
        if same and len({listed[name].text() for name in same}) == 1:
            statement.identifier(written)
            return Column(LISTED + same[0], listed[same[0]].type)
    found = block.reader.expression(written)
    for name, each in listed.items():
        if each.text() == found.text():
            return Column(LISTED + name, each.type)
    if whole:
        hint = "list it, or name a column that is listed"
        raise SpecError(
            "with `distinct`, rows are ordered by columns of the list", span=statement.tree.place(written), hint=hint
        )
    return found


def _expressions(block: Block, entries: list[Entry]) -> list[Expression]:
    """Return the expression that computes each entry of a list."""
    found: list[Expression] = []
    for entry in entries:
        if entry.written is not None:
            found.append(block.reader.expression(entry.written))
        elif block.groups is None:
            found.append(nodes.column(block.node, entry.column))
        else:
            plain = Column(entry.column, block.groups.schema[entry.column])
            key = block.groups.keys.get(plain.text())
            if key is None:
                hint = f"add it to `group by`, or take one of its values: min({entry.name})"
                raise SpecError(
                    f"`{entry.name}` may differ from row to row of a group",
                    span=block.statement.tree.text.span,
                    hint=hint,
                )
            found.append(key)
    return found


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
