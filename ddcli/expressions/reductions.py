"""Expressions such as `round(sum(amount) / count(*), 2)`: aggregate calls, and an expression over their results.

The columns `$0`, `$1` ... of that expression are the calls. Columns of the rows are only allowed inside the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError
from ddcli.expressions.aggregates import (
    AGGREGATE_SYNONYMS,
    AGGREGATES,
    BY_PAIR,
    COUNTED,
    DISTINCT,
    OF_PAIRS,
    Aggregate,
    AggregateCall,
    Reduction,
    result_type,
)
from ddcli.expressions.coerce import BOOL, FLOAT64, INT64, NULL, STRING, Mismatch, convert
from ddcli.expressions.functions import FUNCTIONS
from ddcli.expressions.operators import decisive, keys_of
from ddcli.expressions.parse import ExpressionReader, check_depth
from ddcli.expressions.syntax_tree import read
from ddcli.expressions.tree import Call, Cast, Column, Expression, Literal
from ddcli.expressions.types import ORDERLESS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from ddcli.errors import Text
    from ddcli.expressions.operators import Key
    from ddcli.expressions.syntax_tree import Tree
    from ddcli.expressions.types import ColumnScope

MOST_LISTED = 1_000_000
"""One more than the values that `max(x, n)` lists at most, as in DuckDB."""
COMPOSITE = ("list", "struct")
"""The kinds of values that have parts."""


def parse_reduction(text: Text, scope: ColumnScope) -> Reduction:
    """Return the reduction that a text describes; raises SpecError at the place of the mistake."""
    reader = ReductionReader(read(text), scope)
    result = reader.whole()
    if not reader.calls:
        raise SpecError(
            "this is not an aggregate",
            span=text.span,
            hint="count(*), sum(x), min(x) ...; a column to group by belongs in `by`",
        )
    return Reduction(tuple(reader.calls), result)


class ReductionReader(ExpressionReader):
    """The reader of expressions over aggregates: columns are only allowed inside these."""

    def __init__(self, tree: Tree, scope: ColumnScope):
        super().__init__(tree, scope)
        self.calls: list[AggregateCall] = []
        self.inner = _ArgumentReader(tree, scope)

    def column(self, node: exp.Column) -> Expression:
        found = super().column(node)
        name = found.name if isinstance(found, Column) else found.text()
        hint = f"group by it (`by: [{name}]`), or take one of its values: min({name})"
        self.fail(node, f"`{name}` may differ from row to row of a group", hint)

    def special(self, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Filter):
            self.fail(node, "`filter (where ...)` is not supported", "write sum(case when condition then x end)")
        return super().special(node)

    def call(self, node: exp.Anonymous) -> Expression:
        written = str(node.this).lower()
        name = AGGREGATE_SYNONYMS.get(written, written)
        if name not in AGGREGATES:
            return super().call(node)
        call = self.aggregate(node, AGGREGATES[name], written)
        if call not in self.calls:
            self.calls.append(call)
        return Column(f"${self.calls.index(call)}", call.type, span=self.place(node))

    def unknown_function(self, node: exp.Anonymous, name: str) -> NoReturn:
        known = [*AGGREGATES, *AGGREGATE_SYNONYMS, *(each for each in FUNCTIONS if each[0].isalpha())]
        self.no_function(node, name, known)

    def aggregate(self, node: exp.Anonymous, aggregate: Aggregate, written: str) -> AggregateCall:
        """Read one aggregate call."""
        nodes, distinct, order = self.parts(node, aggregate)
        distinct = distinct or written in DISTINCT
        is_of_rows = all(isinstance(each, exp.Star) for each in nodes) and len(nodes) <= 1
        if written == "count" and is_of_rows and not (distinct or order):
            for star in nodes:
                self.take(star)
            return AggregateCall("count", (), False, (), INT64)
        args = self.arguments(node, nodes, written)
        for part in (*args, *(key for key, _ in order)):
            check_depth(part)
            if part.type.kind == "months":
                self.fail(node, "months and years differ in length", "aggregate days: interval '30' day")
        if written in BY_PAIR and len(args) == 2 and not order:
            order, value = self.by_pair(nodes[1], aggregate.name, *args)
            args = [value]
        if aggregate.name in ("min", "max") and len(args) == 1 and args[0].type.kind in COMPOSITE and not order:
            return self.extreme_nested(node, aggregate.name, args[0])
        if written in ("min", "max") and len(args) == 2 and not order:
            return self.extremes(node, written, args, distinct=distinct)
        if aggregate.name == "string_agg" and len(args) == 1:
            args = [*args, Literal(",", STRING)]
        self.check_form(node, aggregate, written, args, order, distinct=distinct)
        if args[0].type.kind in COMPOSITE and order:  # ties are broken by its parts
            order = (*order, *self.ordering(node, args[0], descending=False, nulls_first=None))
        listed = aggregate.name.startswith("quantile") and _is_list(args[1])
        try:
            args = _checked(aggregate, args)
        except Mismatch as mismatch:
            if written in ("any", "some") and args[0].type.kind == "list":
                self.fail(node, "`any` and `all` take a subquery", "of a list: array_contains(list, value)")
            raise mismatch.at(self.place(node)) from None
        # Repetition changes nothing for these, so the two spellings are one call.
        if aggregate.name in ("min", "max", "bool_and", "bool_or"):
            distinct = False
        kind = result_type(aggregate.name, args[0].type, listed=listed)
        return AggregateCall(aggregate.name, tuple(args), distinct, decisive(order), kind)

    def arguments(self, node: exp.Anonymous, nodes: Sequence[exp.Expr], written: str) -> list[Expression]:
        """Return the arguments of an aggregate, by the name as written."""
        args = [self.inner.read(each) for each in nodes]
        if written in COUNTED and len(args) == 1:
            return [self.inner.conditional(node, [(args[0], Literal(1, INT64))], Literal(None, NULL))]
        if written in OF_PAIRS and len(args) == 2:
            return [self.of_pair(node, args, OF_PAIRS[written][1])]
        return args[::-1] if written == "regr_syy" else args

    def check_form(
        self,
        node: exp.Anonymous,
        aggregate: Aggregate,
        written: str,
        args: Sequence[Expression],
        order: Sequence[Key],
        *,
        distinct: bool,
    ) -> None:
        """Raise SpecError for a wrong number of arguments, and for a `distinct` or `order by` that is not allowed."""
        if len(args) != aggregate.args:
            wanted = f"{aggregate.args} argument{'s' if aggregate.args > 1 else ''}"
            self.fail(node, f"{written} takes {wanted}, got {len(args)}", aggregate.signature)
        if aggregate.ordered and not order:
            self.fail(node, f"{written} needs an order: a collection has no order", f"write {aggregate.signature}")
        if order and not aggregate.ordered:
            self.fail(node, f"{written} does not depend on an order", "leave `order by` out")
        if distinct and not aggregate.takes_distinct:
            self.fail(node, f"{written} takes no `distinct`")
        if distinct and any(
            args[0].text() not in (key.text(), *(each.text() for each in key.children)) for key, _ in order
        ):
            self.fail(node, "different values are ordered by themselves", f"{written}(distinct x order by x)")

    def extremes(self, node: exp.Expr, name: str, args: Sequence[Expression], *, distinct: bool) -> AggregateCall:
        """Return `max(x, n)` or `min(x, n)`, the list of the first n values in their order."""
        value, count = args
        if not isinstance(count, Literal) or not isinstance(count.value, int) or not 0 < count.value < MOST_LISTED:
            self.fail(node, f"{name}(x, n) takes a constant n from 1 to {MOST_LISTED - 1}", f"{name}(x, 3)")
        order = tuple(self.ordering(node, value, descending=name == "max", nulls_first=name == "max"))
        kind = result_type("array_agg", value.type, limited=True)
        return AggregateCall("array_agg", (value, count), distinct, decisive(order), kind)

    def extreme_nested(self, node: exp.Expr, name: str, value: Expression) -> AggregateCall:
        """Return the smallest or the largest list or struct: the first or the last by its parts, among those that are not null."""
        order = tuple(self.ordering(node, value, descending=False, nulls_first=name == "max"))
        return AggregateCall("first" if name == "min" else "last", (value,), False, order, value.type)

    def of_pair(self, node: exp.Expr, args: Sequence[Expression], at: int) -> Expression:
        """Return one of two values, null in rows in which the other is null."""
        other = args[1 - at]
        for each in args:
            if not each.type.is_numeric and each.type.kind != "null":
                self.fail(node, f"{node.name} expects numbers, got {each.type.required()}")
        value = convert(args[at], FLOAT64)
        if not other.type.nullable:
            return value
        there = Call("not", (Call("is null", (other,), BOOL),), BOOL)
        return self.inner.conditional(node, [(there, value)], Literal(None, NULL))

    def by_pair(
        self, node: exp.Expr, name: str, value: Expression, key: Expression
    ) -> tuple[tuple[Key, ...], Expression]:
        """Return the order and the value with which `first` is min_by(x, y) and `last` max_by(x, y), over the rows in which both are not null."""
        keys = self.ordering(node, key, descending=False, nulls_first=None)
        if key.type.nullable:
            there = Call("not", (Call("is null", (key,), BOOL),), BOOL)
            value = self.inner.conditional(node, [(there, value)], Literal(None, NULL))
        if value.type.nullable:
            keys.insert(0, (Call("is null", (value,), BOOL), name == "last"))
        return tuple(keys), value

    def parts(self, node: exp.Anonymous, aggregate: Aggregate) -> tuple[list[exp.Expr], bool, tuple[Key, ...]]:
        """Return the arguments, whether they are `distinct`, and the order; sqlglot attaches the order to the last argument."""
        (written,) = self.take(node, "expressions", "this")[:1]
        nodes, distinct = list(written or ()), False
        order: tuple[Key, ...] = ()
        if nodes and isinstance(nodes[-1], exp.Order):
            nodes[-1], keys = self.take(nodes[-1], "this", "expressions")
            order = tuple(part for key in keys for part in self.order_key(key))
        if nodes and isinstance(nodes[0], exp.Distinct):
            distinct = True
            nodes = [*self.take(nodes[0], "expressions")[0], *nodes[1:]]
            if len(nodes) > aggregate.args:
                self.fail(node, "distinct takes one value", "count(distinct a || ',' || b) counts pairs")
        return nodes, distinct, order

    def order_key(self, node: exp.Expr) -> list[Key]:
        """Return a sort key; before it, if nulls aren't the largest, the condition that it is null."""
        if not isinstance(node, exp.Ordered):
            self.unknown_form(node)
        inner, descending, nulls_first = self.take(node, "this", "desc", "nulls_first")
        return self.ordering(node, self.inner.read(inner), descending=bool(descending), nulls_first=bool(nulls_first))

    def ordering(self, node: exp.Expr, key: Expression, *, descending: bool, nulls_first: bool | None) -> list[Key]:
        """Return the sort keys of a written key."""
        try:
            return keys_of(key, descending, nulls_first)
        except Mismatch as mismatch:
            self.fail(node, mismatch.problem)


class _ArgumentReader(ExpressionReader):
    """The reader of the arguments of aggregates."""

    def unknown_function(self, node: exp.Anonymous, name: str) -> NoReturn:
        if name in AGGREGATES or name in AGGREGATE_SYNONYMS:
            self.fail(node, f"{name} is not allowed inside another aggregate", "reduce twice")
        super().unknown_function(node, name)


def _checked(aggregate: Aggregate, args: Sequence[Expression]) -> list[Expression]:
    """Return the arguments in the types that the aggregate computes with; raises Mismatch."""
    arg, *rest = args
    if aggregate.accepts == "numbers":
        return [_number(aggregate, each) for each in args]
    kind = arg.type
    if aggregate.accepts in ("number", "summable"):
        if aggregate.name == "sum" and kind.kind == "bool":
            arg = Cast(arg, INT64.or_null(kind.nullable))
        elif aggregate.accepts == "number" or not (kind.is_numeric or kind.kind == "duration"):
            arg = _number(aggregate, arg)
        elif kind.is_integer:
            wide = f"{aggregate.name}(cast({arg.written} as decimal(38, 0)))"
            arg = convert(arg, INT64, f"use a decimal, which holds 38 digits: {wide}")
        elif kind.is_float:
            arg = convert(arg, FLOAT64)
    elif aggregate.accepts in ("bool", "string", "integer"):
        if aggregate.accepts != ("integer" if kind.is_integer else kind.kind):
            hint = f"cast it: cast({arg.written} as string)" if aggregate.accepts == "string" else None
            raise Mismatch(f"{aggregate.name} expects {aggregate.accepts}, got {kind.required()}", arg, hint)
        arg = convert(arg, INT64) if kind.is_integer else arg
    elif (
        aggregate.accepts == "ordered" and kind.kind in ORDERLESS and not (aggregate.ordered and kind.kind in COMPOSITE)
    ):
        hint = "take its parts one by one" if kind.kind in COMPOSITE else None
        raise Mismatch(f"{aggregate.name} does not take {kind.required()}", arg, hint)
    if aggregate.name.startswith("quantile"):
        return [arg, *_fractions(rest[0])]
    for each in rest:
        if not isinstance(each, Literal):
            raise Mismatch(f"{aggregate.name}: the second argument must be a constant", each)
        if each.type.required() != STRING or each.value is None:
            raise Mismatch("the separator is text", each)
    return [arg, *rest]


def _is_list(value: Expression) -> bool:
    return isinstance(value, Call) and value.function == "array"


def _fractions(written: Expression) -> list[Expression]:
    """Return the constant fraction of a quantile, or the fractions of a list; raises Mismatch."""
    found = [
        convert(each, FLOAT64) if each.type.is_numeric else each
        for each in (written.children if _is_list(written) else [written])
    ]
    for each in found:
        if not isinstance(each, Literal):
            raise Mismatch("the fraction of a quantile must be a constant", each)
        if not isinstance(each.value, float) or not 0 <= each.value <= 1:
            raise Mismatch("the fraction is a number from 0 to 1", each)
    if not found:
        raise Mismatch("a list of fractions is not empty", written)
    return found


def _number(aggregate: Aggregate, arg: Expression) -> Expression:
    """Return a number as a float; raises Mismatch."""
    if not arg.type.is_numeric:
        raise Mismatch(f"{aggregate.name} expects numbers, got {arg.type.required()}", arg)
    return convert(arg, FLOAT64)
