"""A `select`: its list over the rows or groups of `from`, `where` and `group by`, then `distinct`, order and limit.

Its window functions are calls over partitions and orders, or named windows, and `qualify` filters by them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError, suggestion
from ddcli.expressions.tree import Column, Expression
from ddcli.expressions.window_calls import CallReader, OrderedBy
from ddcli.plan import groupings
from ddcli.plan.sql import nodes
from ddcli.plan.sql.calls import find_unnested, outermost, spread_list
from ddcli.plan.sql.context import Environment, Outer, QueryResult
from ddcli.plan.sql.groups import Entry, check_groups, grouped, is_grouped, listed_entries
from ddcli.plan.sql.joins import From
from ddcli.plan.sql.names import renamed
from ddcli.plan.sql.nodes import column
from ddcli.plan.sql.reader import AggregateCalls, contains_query
from ddcli.plan.sql.top import bounds, first, limited, listed_order, order_keys, position_of
from ddcli.plan.windows import windowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.operators import Key
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
    names = _apart([each.name for each in entries], keys)
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
        order_by = [(_replaced_names(key, plain), descending) for key, descending in order_by]
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
    extra = {name: _inlined(each, listed) for name, each in extra.items()}
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


def _replaced_names(expression: Expression, columns: dict[str, Column]) -> Expression:
    """Return an expression with its columns replaced by name."""
    if isinstance(expression, Column):
        return columns.get(expression.name, expression)
    return expression.with_children(tuple(_replaced_names(child, columns) for child in expression.children))


def _inlined(expression: Expression, listed: dict[str, Expression]) -> Expression:
    """Return an expression over the rows: columns of the list are replaced by their expressions."""
    if isinstance(expression, Column) and expression.name.startswith(LISTED):
        return listed[expression.name.removeprefix(LISTED)]
    return expression.with_children(tuple(_inlined(child, listed) for child in expression.children))


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


def _apart(names: list[str], taken: tuple[str, ...]) -> list[str]:
    """Return column names for a list, all different and none of them taken."""
    from ddcli.plan.sql.names import fresh

    found: list[str] = []
    for name in names:
        found.append(fresh(f"{name}", {*taken, *found}))
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
