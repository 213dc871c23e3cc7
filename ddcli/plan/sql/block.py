"""A block: the relation of one `select` while it is built, and the subqueries that its expressions attach to it.

A subquery is a function of the outer columns that it reads. It is lowered over the distinct rows of just these columns, as a relation that
has them beside its own, and joined back on them, null being equal to null. This serves subqueries everywhere; where a condition of a
`where` is `[not] exists` or `in` alone, that join is a semijoin or an antijoin.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.aggregates import AggregateCall
from ddcli.expressions.coerce import BOOL, INT64, STRING
from ddcli.expressions.forms import BINARY
from ddcli.expressions.operators import keys_of
from ddcli.expressions.tree import Call, Case, Column, Expression, Literal
from ddcli.expressions.types import renamed
from ddcli.plan import groupings, joins, logical
from ddcli.plan.conditions import all_of, call, is_certain_step
from ddcli.plan.node import Graph
from ddcli.plan.sql import nodes
from ddcli.plan.sql.calls import names_present
from ddcli.plan.sql.context import Environment, Outer
from ddcli.plan.sql.nodes import TRUE, Pair, column
from ddcli.plan.sql.present import present_filter
from ddcli.plan.sql.reader import GroupExpressions, RowExpressions, contains_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.errors import Span
    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Node
    from ddcli.plan.sql.context import Groups, Names, QueryResult
    from ddcli.plan.sql.statement import Statement


def decorrelated(found: Node, around: Node) -> Node | None:
    """Return a subquery's rows computed without the outer rows `around`, or None if more than equalities ties it to them.

    A subquery is lowered over the distinct rows of the outer columns that it reads, joined with its tables. If a join by equality covers all of
    these columns, then the other side's columns have their values, and the outer rows need not be read: the result for them is the same. It also has
    rows for values that no outer row has, which the join back drops. So this is only done where no expression can fail on these additional rows.
    """
    steps: list[Node] = []
    node = found
    while not (isinstance(node, joins.Join) and node.how == "inner" and node.left == around):
        if not (is_certain_step(node.step) if isinstance(node, logical.Apply) else _joins_more(node, around)):
            return None
        steps.append(node)
        node = node.inputs[0]
    partners = dict(reversed(node.on))
    left, right = node.inputs
    if partners.keys() != left.schema.keys() or _reads(right, around):
        return None
    if any(left.schema[one].required() != right.schema[other].required() for one, other in partners.items()):
        return None
    columns: dict[str, Expression] = {}
    for name, side, source in node.columns:
        own = source if side == "right" else partners[source]
        columns[name] = Column(own, node.schema[name] if own in partners.values() else right.schema[own])
    made = nodes.mapped(_present(right, partners.values()), columns)
    for step in reversed(steps):
        made = replace(step, inputs=(made, *step.inputs[1:]))
    return made


def _joins_more(node: Node, around: Node) -> bool:
    """Return whether a node joins its left input with rows that don't depend on `around`."""
    return isinstance(node, joins.Join) and node.how == "inner" and not _reads(node.right, around)


def _reads(node: Node, around: Node) -> bool:
    return any(each == around for each in Graph({"": node}).nodes())


def _present(node: Node, names: Iterable[str]) -> Node:
    """Return the records of a node that have no null in these columns, whose types are then not nullable."""
    missing = [name for name in dict.fromkeys(names) if node.schema[name].nullable]
    if not missing:
        return node
    there = [call("not", call("is null", nodes.column(node, name))) for name in missing]
    kept = nodes.filtered(node, all_of(there))
    return nodes.mapped(
        kept, {name: Column(name, kind.required() if name in missing else kind) for name, kind in node.schema.items()}
    )


NOT_ONE = "a subquery used as a value returned more than one row"
UNKNOWN = Literal(None, BOOL.or_null())


@dataclass(eq=False)
class Block:
    """A relation while it is built: its node, and the names in scope."""

    statement: Statement
    environment: Environment
    scope: Names
    node: Node
    groups: Groups | None = None
    known: dict[int, Expression] = field(default_factory=dict)
    """The expressions of syntax nodes that are computed already, by `id`: window calls, and entries of the list that others name."""
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    """The entries of the list by their names, in lower case, for names that no column has."""
    keys: dict[str, Expression] = field(default_factory=dict)
    """The grouping expressions with subqueries, by their SQL."""

    @property
    def schema(self) -> Schema:
        return self.node.schema

    @cached_property
    def reader(self) -> RowExpressions:
        """The reader of expressions over the relation."""
        return (GroupExpressions if self.groups else RowExpressions)(self.statement.tree, self)

    def where(self, condition: exp.Expr) -> None:
        """Keep the records for which a condition is true."""
        for part in split(condition, self.statement):
            kept = None
            if names_present(part, self) and not contains_query(part):
                kept = present_filter(self.node, part, self.reader, self.statement.times)
            if kept is not None:
                self.node = kept
            elif not (contains_query(part) and self._semijoin(part)):
                found = self.reader.condition(part, "a condition")
                self.node = nodes.filtered(self.node, found)

    # --- subqueries -------------------------------------------------------------------------------------------------

    def scalar(self, query: exp.Expr) -> Expression:
        """Return the value of a subquery: null if it has no row, an error if it has two."""
        result, pairs = self._lowered(query, value=True)
        if len(result.columns) != 1:
            span = self.statement.tree.place(query)
            raise SpecError(f"a subquery used as a value has one column, this one has {len(result.columns)}", span=span)
        if result.value is not None:
            self._join(result.node, pairs)
            return result.value
        ((_, name),) = result.columns
        found = result.node
        if result.single:
            self._join(found, pairs)
            return column(self.node, name)
        kind = found.schema[name]
        if kind.kind in ("null", "months"):
            problem = f"a subquery used as a value returns a {kind.required()} here, and may return several"
            raise SpecError(problem, span=self.statement.tree.place(query), hint="add `limit 1`")
        count, value = renamed(("#rows", name), self.schema.keys() | found.schema.keys() - {name}).values()
        by = nodes.every(found, [pair.right.name for pair in pairs if isinstance(pair.right, Column)])
        calls = [
            AggregateCall("count", (), False, (), INT64),
            _largest(column(found, name)),
        ]
        self._join(nodes.reduced(found, by, calls, [count, value]), pairs)
        several = call(">", column(self.node, count), Literal(1, INT64))
        wrong = Call("error", (Literal(NOT_ONE, STRING),), kind.or_null(), span=self.statement.tree.place(query))
        return Case(((several, wrong),), column(self.node, value), kind.or_null(), span=wrong.span)

    def exists(self, query: exp.Expr) -> Expression:
        """Return a condition that is true for the records for which a subquery has rows."""
        result, pairs = self._lowered(query)
        return self._marked(result.node, pairs)

    def among(self, values: Sequence[Expression], query: exp.Expr) -> Expression:
        """Return a condition that is true for the records whose `values` are a row of a subquery, and null where SQL's `in` is null."""
        result, pairs = self._members(values, query)
        found = result.node
        members = [column(found, name) for _, name in result.columns]
        some_null = any(each.type.nullable for each in (*values, *members))
        if len(values) > 1 and some_null:
            equal = all_of([call("=", *each) for each in zip(values, members, strict=True)])
            return self._quantified(equal, values, result, pairs, every=False)
        matches = [*pairs, *(Pair(*each) for each in zip(values, members, strict=True))]
        branches: list[tuple[Expression, Expression]] = [(self._marked(found, matches), TRUE)]
        if members[0].type.nullable:
            missing = nodes.filtered(found, call("is null", members[0]))
            branches.append((self._marked(missing, pairs), UNKNOWN))
        if values[0].type.nullable:
            some = self._marked(found, pairs)
            branches.append((call("and", call("is null", values[0]), some), UNKNOWN))
        return Case(tuple(branches), Literal(False, BOOL), BOOL.or_null(some_null))

    def quantified(self, node: exp.Expr, left: Expression, query: exp.Expr, *, every: bool) -> Expression:
        """Return a condition that a comparison is true of some row of a subquery, or of `every` row; null as for SQL's `any` and `all`."""
        result, pairs = self._members([left], query)
        right = column(result.node, result.columns[0][1])
        compared = self.reader.resolve(node, BINARY[type(node)], [left, right])
        return self._quantified(compared, [left], result, pairs, every=every)

    def _quantified(
        self,
        condition: Expression,
        values: Sequence[Expression],
        result: QueryResult,
        pairs: Sequence[Pair],
        *,
        every: bool,
    ) -> Expression:
        """Return the condition that `condition`, over the records' values and a subquery's rows, is true of some or of `every` row.

        It is computed only for the distinct values.
        """
        mine = [pair.left.name for pair in pairs if isinstance(pair.left, Column)]
        names = renamed([f"#value{at}" for at in range(len(values))], self.schema.keys() | result.node.schema.keys())
        given = dict(zip(names, values, strict=True))
        several = groupings.distinct(nodes.mapped(self.node, nodes.every(self.node, mine) | given))
        compared = condition.substitute({})
        bound = {each.text(): Column(name, each.type) for name, each in given.items()}
        compared = _replaced(compared, bound)
        rows = nodes.joined(several, result.node, [Pair(column(several, pair.left.name), pair.right, null_safe=True) for pair in pairs if isinstance(pair.left, Column)])  # fmt: skip
        rows = nodes.extended(rows, {"#holds": compared})
        holds = column(rows, "#holds")
        kind = BOOL.or_null(holds.type.nullable)
        calls = [
            AggregateCall("count", (), False, (), INT64),
            AggregateCall("count", (holds,), False, (), INT64),
            AggregateCall("bool_and" if every else "bool_or", (holds,), False, (), kind),
        ]
        counted = nodes.reduced(rows, nodes.every(rows, several.schema), calls, ["#all", "#known", "#some"])
        own = renamed(counted.schema, self.schema)
        counted = nodes.mapped(counted, {new: column(counted, old) for old, new in own.items()})
        on = [Pair(column(self.node, name), column(counted, own[name]), null_safe=True) for name in mine]
        on += [Pair(value, column(counted, own[name]), null_safe=True) for name, value in given.items()]
        self._join(counted, on)
        total, known, some = (column(self.node, own[name]) for name in ("#all", "#known", "#some"))
        decided = call("not", some) if every else some
        branches = ((decided, Literal(not every, BOOL)), (call("<", known, total), UNKNOWN))
        return Case(branches, Literal(every, BOOL), BOOL.or_null())

    def _members(self, values: Sequence[Expression], query: exp.Expr) -> tuple[QueryResult, list[Pair]]:
        result, pairs = self._lowered(query)
        if len(result.columns) != len(values):
            span = self.statement.tree.place(query)
            wants = "one column" if len(values) == 1 else f"{len(values)} columns"
            raise SpecError(f"this subquery has {len(result.columns)} columns, and is compared with {wants}", span=span)
        return result, pairs

    def _lowered(self, query: exp.Expr, *, value: bool = False) -> tuple[QueryResult, list[Pair]]:
        """Return a subquery's result under names that the relation lacks, and the pairs of columns on which it is joined."""
        result = self.statement.query(query, self._around(), value=value)
        if result.keys:
            alone = decorrelated(result.node, groupings.distinct(nodes.projected(self.node, result.keys)))
            result = replace(result, node=alone or result.node)
        result, keys = result.apart(self.schema)
        return result, nodes.same(keys, self.node, result.node)

    def _around(self) -> Environment:
        """Return the environment of a subquery in an expression over the relation."""
        return Environment(self.environment.tables, Outer(self.scope, self.node), self.environment.taken)

    def _join(self, found: Node, pairs: Sequence[Pair]) -> None:
        """Add the columns of a subquery's result to the records, null for records without a row."""
        self.node = nodes.joined(self.node, found, pairs, "left")

    def _marked(self, found: Node, pairs: Sequence[Pair]) -> Expression:
        """Return a condition that is true for the records that have a partner among the rows found."""
        right = [pair.right.name for pair in pairs if isinstance(pair.right, Column)]
        (mark,) = renamed(["#found"], self.schema.keys() | found.schema.keys()).values()
        given = renamed(right, self.schema.keys() | {mark})
        marked = nodes.extended(
            groupings.distinct(
                nodes.mapped(found, {new: column(found, old) for old, new in given.items()} or {mark: TRUE})
            ),
            {mark: TRUE} if given else {},
        )
        on = [
            Pair(pair.left, column(marked, given[pair.right.name]), pair.null_safe)
            for pair in pairs
            if isinstance(pair.right, Column)
        ]
        self._join(marked, on)
        return call("not", call("is null", column(self.node, mark)))

    def _semijoin(self, condition: exp.Expr) -> bool:
        """Keep the records for which a condition holds, by a semijoin, and return True; return False if it is not just `[not] exists` or `in`."""
        found = self.partners(condition)
        if found is None:
            return False
        result, pairs, negated = found
        self.node = nodes.semijoined(self.node, result, pairs, anti=negated)
        return True

    def _others(
        self, value: Expression, found: Node, member: Column, pairs: Sequence[Pair], place: Span
    ) -> tuple[Node, list[Pair]]:
        """Return the distinct values that are `not in` a subquery's rows, beside the outer columns that it reads, and the pairs to join records with them.

        Any value, also null, is not in an empty result; else the condition is null if the value is null or a row has null. That is decided for the
        distinct values alone, which are fewer than the records.
        """
        mine = [pair.left.name for pair in pairs if isinstance(pair.left, Column)]
        names = renamed([*mine, "#value"], self.schema.keys() | found.schema.keys())
        given = {names[name]: column(self.node, name) for name in mine} | {names["#value"]: value}
        left = groupings.distinct(nodes.mapped(self.node, given))
        tested = column(left, names["#value"])
        tied = [
            Pair(column(left, names[pair.left.name]), pair.right, null_safe=True)
            for pair in pairs
            if isinstance(pair.left, Column)
        ]
        left = nodes.semijoined(left, found, [*tied, Pair(tested, member, span=place)], anti=True)
        if member.type.nullable:
            left = nodes.semijoined(left, nodes.filtered(found, call("is null", member)), tied, anti=True)
        if value.type.nullable:
            left = nodes.semijoined(left, found, [*tied, Pair(call("is null", tested), TRUE)], anti=True)
        return left, [Pair(each, column(left, name), null_safe=True) for name, each in given.items()]

    def partners(self, condition: exp.Expr, *, apart: bool = False) -> tuple[Node, list[Pair], bool] | None:
        """Return the query, the pairs to join it on, and True for an antijoin, if a condition is just `[not] exists` or `in`; else None.

        With `apart`, return them only for a column `in` a query that reads no outer column.
        """
        node, negated, parts = condition, False, []
        while isinstance(node, exp.Not | exp.Paren):
            negated ^= isinstance(node, exp.Not)
            parts.append(node)
            node = node.this
        tree, reader = self.statement.tree, self.reader
        pairs: list[Pair] = []
        if isinstance(node, exp.Exists) and not apart:
            (query,) = tree.take(node, "this")
            result, pairs = self._lowered(query)
        elif (
            isinstance(node, exp.In)
            and isinstance(node.args.get("query"), exp.Query)
            and not isinstance(node.this, exp.Tuple)
        ):
            written, query = tree.take(node, "this", "query")
            if apart and (negated or self.statement.reads_around(query, self._around())):
                return None
            value = reader.expression(written)
            if apart and not isinstance(value, Column):
                return None
            result, pairs = self._members([value], query)
            member = column(result.node, result.columns[0][1])
            if negated and (value.type.nullable or member.type.nullable):
                found, pairs = self._others(value, result.node, member, pairs, tree.place(node))
                result, negated = replace(result, node=found), False
            else:
                pairs.append(Pair(value, member, span=tree.place(node)))
        else:
            return None
        for part in parts:
            tree.take(part, "this")
        return result.node, pairs, negated


def _replaced(expression: Expression, by_text: Mapping[str, Expression]) -> Expression:
    """Return an expression whose parts are replaced by their text."""
    found = by_text.get(expression.text())
    if found is not None:
        return found
    return expression.with_children(tuple(_replaced(child, by_text) for child in expression.children))


def _largest(value: Column) -> AggregateCall:
    """Return the call for the largest value of a column."""
    if value.type.kind in ("list", "struct"):
        return AggregateCall(
            "last", (value,), False, tuple(keys_of(value, descending=False, nulls_first=True)), value.type
        )
    return AggregateCall("max", (value,), False, (), value.type)


def is_semijoin(condition: exp.Expr) -> bool:
    """Return whether a condition, as syntax, is just `[not] exists` or `in`."""
    while isinstance(condition, exp.Not | exp.Paren):
        condition = condition.this
    return isinstance(condition, exp.Exists | exp.In)


def split(condition: exp.Expr, statement: Statement) -> list[exp.Expr]:
    """Return the conditions, as syntax, that `and` connects."""
    left, found = [condition], []
    while left:
        node = left.pop()
        inner = node
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.And):
            while node is not inner:
                (node,) = statement.tree.take(node, "this")
            left += reversed(statement.tree.take(inner, "this", "expression"))
        else:
            found.append(node)
    return found
