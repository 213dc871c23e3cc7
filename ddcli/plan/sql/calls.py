"""Calls of aggregates, of `grouping`, of `any` and `all`, and of `array` with a query, as syntax; aggregates of outer queries; functions that return rows.

In `select a, (select max(u.c) + sum(t.b) from u) from t group by a` an aggregate belongs to the innermost query that has a column of its argument, so
`sum(t.b)` is computed where `t` is grouped, and the subquery reads it there like a column. The query of a column is known only when the subquery is
lowered: so before a query is grouped, its subqueries are lowered over its rows, on trial, and this records the aggregates that they meet.

A function that returns rows, the elements of a list or the numbers or moments of a series, is called in a `from`, and `unnest` also in the list of a `select`, where it means the same as in a `lateral` behind the tables.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import field
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.coerce import INT64, STRING, TIMESTAMP, Mismatch, convert
from ddcli.expressions.forms import BINARY
from ddcli.expressions.parse import DATES_OF_NOW, INSTANTS_OF_NOW, expanded
from ddcli.expressions.tree import Column, Expression, Literal, TableCall, UnnestStep
from ddcli.expressions.types import UTC, renamed
from ddcli.plan import logical
from ddcli.plan.conditions import call
from ddcli.plan.sql import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ddcli.plan.node import Node
    from ddcli.plan.sql.block import Block
    from ddcli.plan.sql.context import Names
    from ddcli.plan.sql.statement import Statement


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
    parts, called = [part for part in node.iter_expressions() if part is not node.this], node.this
    while isinstance(called, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        parts += [called.expression] if isinstance(called, exp.Filter) else []
        called = called.this
    return [*parts, *called.iter_expressions()]


@dataclass(eq=False)
class OuterAggregates:
    """The aggregates of a statement that belong to an outer query, each with that query, and their columns once it is grouped."""

    owned: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    values: dict[int, Column] = field(default_factory=dict)
    """The columns of the groups, by the aggregates' syntax nodes."""
    trial: tuple[exp.Expr, Names] | None = None
    """The query whose subqueries are on trial, and the names of its rows."""

    def found(self, aggregate: exp.Expr, scope: Names, columns: Sequence[str]) -> bool:
        """Record an aggregate that reads only outer columns, seen from `scope`; return False if no query can compute it, which is an error."""
        around = scope.outer
        while around is not None and not any(around.owns(name) for name in columns):
            around = around.outer
        if self.trial is not None and around is self.trial[1] and OWNED not in aggregate.meta:
            self.owned.append((aggregate, self.trial[0]))
            for node in (aggregate, aggregate.this) if isinstance(aggregate, exp.Filter) else (aggregate,):
                node.meta[OWNED] = True
        return self.trial is not None or OWNED in aggregate.meta

    def of(
        self, select: exp.Select, written: Sequence[exp.Expr], scope: Names, lower: Callable[[exp.Expr], object]
    ) -> list[exp.Expr]:
        """Return the aggregates over a `select`'s own rows in the subqueries of its expressions; `lower` lowers such a subquery."""
        for node, owner in self.owned:
            if owner is select:  # it was lowered before, on trial itself
                self.values.pop(id(node), None)
        names = {each.name.lower() for each in scope.names}
        for query in _queries(written):
            if any(is_aggregate(each) and _reads(each, names) for each in query.find_all(exp.Anonymous)):
                before, self.trial = self.trial, (select, scope)
                try:
                    lower(query)
                except SpecError:  # lowering it for good reports it
                    pass
                finally:
                    self.trial = before
        return [node for node, owner in self.owned if owner is select]

    def forget(self) -> None:
        """Remove the marks from the syntax nodes, which other statements share."""
        for node, _ in self.owned:
            for each in (node, node.this) if isinstance(node, exp.Filter) else (node,):
                del each.meta[OWNED]


def _reads(node: exp.Expr, names: set[str]) -> bool:
    """Return whether a column of an expression has one of `names`, in lower case."""
    return any(each.name.lower() in names for each in node.find_all(exp.Column))


def _queries(nodes: Sequence[exp.Expr]) -> Iterator[exp.Query]:
    """Yield the outermost queries in expressions."""
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Query):
            yield node
        else:
            pending += reversed(list(node.iter_expressions()))


SERIES = ("generate_series", "range")
JSON_ROWS = ("json_each", "json_tree")
DAY = 86_400_000_000
"""Microseconds of a day."""
LISTS = "split(text, ',') makes a list; of a list in a JSON text write unnest(x -> '$[*]')"


def with_rows(
    block: Block, node: exp.Expr, taken: Iterable[str]
) -> tuple[Node, tuple[tuple[str, str], ...], str | None]:
    """Return a block's rows, each with each row of a table function: the node, the function's columns, (name, column) in order, and the name of its table, if it has several columns.

    The columns are not in `taken`.
    """
    statement = block.statement
    take, place = statement.tree.take, statement.tree.place
    if isinstance(node, exp.Unnest):
        (written,) = take(node, "expressions", "alias", "offset", "joins")[:1]
        if node.args.get("offset"):
            raise SpecError("`with ordinality` is not supported", span=place(node))
        name = "unnest"
    else:
        function = node.this if isinstance(node, exp.Table) else node
        if isinstance(node, exp.Table):
            take(node, "this", "alias", "joins")
        name, written = take(function, "this", "expressions")
        name = str(name).lower()
    series = name
    ends: Sequence[exp.Expr] = written or ()
    if name == "unnest" and len(ends) == 1 and isinstance(ends[0], exp.Anonymous) and ends[0].name.lower() in SERIES:
        series, inner = ends[0].name.lower(), ends[0].expressions
        if len(inner) == 3 and isinstance(inner[2], exp.Interval):
            (ends,) = take(ends[0], "expressions", "this")[:1]
    args = [block.reader.expression(each) for each in ends]
    (column,) = renamed([name], {*taken, *block.schema}).values()
    if series in SERIES and len(args) == 3 and args[2].type.kind in ("duration", "months"):
        try:
            return _moments(block, series, args, column), ((name, column),), None
        except Mismatch as mismatch:
            raise SpecError(mismatch.problem, span=place(node), hint=mismatch.hint) from None
    if name in JSON_ROWS:
        args = [block.reader.resolve(node, name, args)]
    table = _called("unnest" if name in JSON_ROWS else name, args, node, statement)
    found = logical.Apply((block.node,), block.schema | {column: table.type}, UnnestStep(column, table))
    if name not in JSON_ROWS:
        return found, ((name, column),), None
    names = renamed([field for field, _ in table.type.fields], {*taken, *found.schema})
    row = Column(column, table.type)
    parts = {
        names[field]: block.reader.resolve(node, "struct_extract", [row, Literal(field, STRING)])
        for field, _ in table.type.fields
    }
    return nodes.mapped(found, nodes.every(found, block.schema) | parts), tuple(names.items()), name


def _called(name: str, args: list[Expression], node: exp.Expr, statement: Statement) -> TableCall:
    """Return the call of a table function."""
    place = statement.tree.place
    if name == "unnest":
        if len(args) != 1 or args[0].type.kind != "list" or args[0].type.inner is None:
            raise SpecError("unnest takes one list", span=place(node), hint=LISTS)
        return TableCall(name, tuple(args), args[0].type.inner)
    if name in SERIES and 1 <= len(args) <= 3 and all(arg.type.is_integer for arg in args):
        ends = [Literal(0 if name == "range" else 1, INT64), *args] if len(args) == 1 else args
        first, last, *step = [convert(each, INT64) for each in ends]
        if name == "range" and step:
            last = expanded("b - sign(n)", {"b": last, "n": step[0]}, place(node))
        elif name == "range":
            last = call("-", last, nodes.ONE)
        return TableCall("generate_series", (first, last, *(step or [nodes.ONE])), INT64)
    hint = "unnest(list), generate_series(first, last), generate_series(day, day, interval 1 day), range(end)"
    if name.startswith("read_"):
        hint = "`dd sql` without `--from` names files: `from 'orders.csv'`; of a pipeline they are inputs"
    problem = f"no function that returns rows is named `{name}`, or it takes other arguments"
    raise SpecError(problem, span=place(node), hint=hint)


def _moments(block: Block, name: str, args: Sequence[Expression], column: str) -> Node:
    """Return a block's rows, each with each timestamp of a series: its first one and a number of steps. Raises Mismatch."""
    first, last, step = args
    if not isinstance(step, Literal) or not all(end.type.kind in ("date", "datetime") for end in (first, last)):
        raise Mismatch(
            f"{name} takes two dates or timestamps and a constant interval", hint=f"{name}(a, b, interval 1 day)"
        )
    size = step.value // dt.timedelta(microseconds=1) if isinstance(step.value, dt.timedelta) else int(str(step.value))
    if not size:
        raise Mismatch(f"the interval of {name} is 0")
    if step.type.kind == "months":
        count, value = f"date_sub('month', a, b) // {size}", f"add_months(a, n * {size})"
    else:
        count, value = f"(epoch_us(b) - epoch_us(a)) // {size}", "a + n * step"
        if step.in_days and first.type.zone not in {None, UTC}:  # by the calendar, whose days may be an hour shorter
            count, value = f"{count} + 1", f"add_days(a, n * {size // DAY})"
    (number,) = renamed(["#n"], {*block.schema, column}).values()
    first, last = (convert(end, TIMESTAMP) if end.type.kind == "date" else end for end in (first, last))
    ends = {"a": first, "b": last, "step": step}
    steps = TableCall("generate_series", (Literal(0, INT64), expanded(count, ends, step.span), nodes.ONE), INT64)
    rows = logical.Apply((block.node,), block.schema | {number: INT64}, UnnestStep(number, steps))
    moment = expanded(value, ends | {"n": Column(number, INT64)}, step.span)
    found = nodes.mapped(rows, nodes.every(rows, block.schema) | {column: moment})
    sign = ("<" if size > 0 else ">") + ("" if name == "range" else "=")
    return nodes.filtered(found, expanded(f"m {sign} b", {"m": Column(column, moment.type), "b": last}, step.span))


def find_unnested(written: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the calls of `unnest` in expressions, without those in subqueries."""
    return outermost(written, lambda node: isinstance(node, exp.Anonymous) and str(node.this).lower() == "unnest")


def spread_list(block: Block, call: exp.Expr) -> None:
    """Replace a block's rows by one row for each element of a list; from then on the call of `unnest` is read as that element."""
    block.node, ((_, column),), _ = with_rows(block, call, ())
    block.known[id(call)] = Column(column, block.schema[column], span=block.statement.tree.place(call))


def names_present(node: exp.Expr, block: Block) -> bool:
    """Return whether an expression names the present time, and no column of that name."""
    return any(present_kind(each, block) for each in node.walk())


def present_kind(node: exp.Expr, block: Block) -> str:
    """Return the kind of the present time that a node names: a `date`, an `instant`, or nothing."""
    name = ""
    if isinstance(node, exp.Anonymous) and not node.expressions:
        name = str(node.this).lower()
    elif isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.args.get("table"):
        name = "" if node.this.args.get("quoted") else str(node.name).lower()
        name = "" if block.scope.has(None, name) or name in block.aliases else name
    return "date" if name in DATES_OF_NOW else "instant" if name in INSTANTS_OF_NOW else ""
