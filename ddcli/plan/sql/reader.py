"""The reader of a query's expressions: columns by the names in scope, aggregates as columns of groups, subqueries as joined columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError
from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.coerce import BOOL, Mismatch
from ddcli.expressions.forms import BINARY
from ddcli.expressions.nested_values import values_of
from ddcli.expressions.parse import ExpressionReader, check_depth, expanded
from ddcli.expressions.reductions import ReductionReader
from ddcli.expressions.tree import Call, Column, Expression, Literal, deep_calls
from ddcli.expressions.types import ColumnScope
from ddcli.plan.conditions import all_of, any_of
from ddcli.plan.sql.calls import OWNED, find_aggregates, is_aggregate, quantifier, query_of_list
from ddcli.plan.sql.context import UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.syntax_tree import Tree
    from ddcli.plan.sql.block import Block

DIGITS = "`{}` of decimals is a decimal here, with 6 digits behind the point or more, and a float in DuckDB: cast to float64 for that"
MIDDLE = "`{}` of decimals is a float here, and a decimal in DuckDB: cast it"
OF_DECIMALS = {"/": DIGITS, "avg": DIGITS, "median": MIDDLE, "quantile_cont": MIDDLE}
"""Notes on functions of decimals that DuckDB computes in another type."""
QUERIES = (exp.Query, exp.Values, exp.Exists)
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.ILike, exp.NullSafeEQ, exp.NullSafeNEQ)
QUANTIFIED = "`any` and `all` take a subquery or a list, `any([1, 2])`, behind `=`, `<>`, `<`, `<=`, `>` or `>=`"
ANY = {"=": "array_contains(l, x)", "<>": "list_min(l) <> x or list_max(l) <> x"}
ANY |= dict.fromkeys(["<", "<="], "x {} list_max(l)") | dict.fromkeys([">", ">="], "x {} list_min(l)")
ANY = {sign: written.format(sign) for sign, written in ANY.items()}
"""The test whether a comparison with `x` is true for some element of a list `l`."""
OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
FROM_LIST = (
    "case when l is null then null when cardinality(l) = 0 then false when {} then true "
    "when x is null or list_count(l) < cardinality(l) then null else false end"
)
"""The test with SQL's nulls whether `{}` is true for some element: null if only a null could make it true."""


class RowExpressions(ExpressionReader):
    """The reader of expressions over the rows of a block's relation."""

    def __init__(self, tree: Tree, block: Block):
        super().__init__(tree, ColumnScope({}))
        self.block = block

    def expression(self, node: exp.Expr) -> Expression:
        """Return the typed tree of an expression of the statement."""
        with deep_calls():
            found = self.read(node)
        check_depth(found)
        return found

    def condition(self, node: exp.Expr, what: str) -> Expression:
        """Return the typed tree of a condition. Raises SpecError, with `what` in the message, if it is not a bool."""
        found = self.expression(node)
        if found.type.kind not in ("bool", "null"):
            hint = "compare it, for example with `= 1` or `is not null`"
            self.fail(node, f"{what} is a bool, not {found.type.required()}", hint)
        return found

    def read(self, node: exp.Expr) -> Expression:
        if (known := self.block.known.get(id(node))) is not None:
            return known
        if (found := self.of_query_around(node)) is not None:
            return found
        if isinstance(node, exp.Exists):
            (query,) = self.take(node, "this")
            return self.block.exists(query)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "exists":  # of a query in parentheses
            _, queries = self.take(node, "this", "expressions")
            if len(queries) == 1 and isinstance(queries[0], exp.Query):
                return self.block.exists(queries[0])
        if isinstance(node, exp.Query):
            return self.block.scalar(node)
        if isinstance(node, exp.In):
            value, query, listed = self.take(node, "this", "query", "expressions")
            if listed and len(listed) == 1 and isinstance(listed[0], exp.Values):
                (query,) = listed
            parts = values_of(self, value) if isinstance(value, exp.Tuple) else [value]
            if query is not None:
                return self.block.among([self.read(part) for part in parts], query)
            if not listed:
                self.fail(node, "`in` has no values")
            if isinstance(value, exp.Tuple) and all(isinstance(each, exp.Tuple) for each in listed):
                return any_of([self.same_row(node, parts, each) for each in listed])
        if type(node) in BINARY and (word := quantifier(node.args.get("expression"))):
            return self.quantified(node, word)
        if (
            isinstance(node, exp.EQ | exp.NEQ)
            and isinstance(node.this, exp.Tuple)
            and isinstance(node.expression, exp.Tuple)
        ):
            row, other = self.take(node, "this", "expression")
            found = self.same_row(node, values_of(self, row), other)
            return self.negated(node, found, isinstance(node, exp.NEQ))
        return super().read(node)

    def call(self, node: exp.Anonymous) -> Expression:
        """Read a function call; the rows of a subquery are a list if it has an order."""
        if (
            str(node.this).lower() == "array"
            and len(node.expressions) == 1
            and isinstance(node.expressions[0], exp.Query)
        ):
            self.take(node, "this", "expressions")
            found = query_of_list(node)
            if found is None:
                hint = "write `array(select x from ... order by x)`, with one column, which an order of distinct rows has to name"
                self.fail(node, "`array(select ...)` needs an order: a collection has none", hint)
            query, order = found
            self.tree.take_all(order)
            return self.resolve(node, "coalesce", [self.block.scalar(query), self.resolve(node, "array", [])])
        return super().call(node)

    def quantified(self, node: exp.Expr, word: str) -> Expression:
        """Return the condition that a comparison is true of some, or of every, row of a subquery or element of a list."""
        written, found = self.take(node, "this", "expression")
        query = self.take(found, "this", "expressions")[0 if isinstance(found, exp.Any | exp.All) else 1]
        (query,) = query if isinstance(query, list) and len(query) == 1 else (query,)
        while isinstance(query, exp.Paren):
            (query,) = self.take(query, "this")
        if type(node) not in COMPARISONS:
            self.fail(found, f"`{word}` is allowed only behind a comparison: `=`, `<>`, `<`, `like`")
        if isinstance(query, exp.Query | exp.Values):
            return self.block.quantified(node, self.read(written), query, every=word == "all")
        if not isinstance(query, exp.Array):
            return self.of_list(node, self.read(written), query, word)
        value, elements = self.read(written), self.take(query, "expressions")[0]
        parts = [self.resolve(node, BINARY[type(node)], [value, self.read(each)]) for each in elements]
        if not parts:
            return Literal(word == "all", BOOL)
        return all_of(parts) if word == "all" else any_of(parts)

    def of_list(self, node: exp.Expr, value: Expression, listed: exp.Expr, word: str) -> Expression:
        """Return the condition that a comparison is true of some, or of every, element of a list; `all` is read as no element for which the opposite is true."""
        sign = BINARY[type(node)]
        if sign not in ANY or not isinstance(listed, exp.Expr):
            self.fail(node, QUANTIFIED)
        elements = self.read(listed)
        if elements.type.kind != "list":
            self.fail(listed, QUANTIFIED)
        every = word == "all"
        written = FROM_LIST.format(ANY[OPPOSITE[sign] if every else sign])
        try:
            found = expanded(written, {"x": value, "l": elements}, self.place(node))
        except Mismatch as mismatch:
            self.fail(node, mismatch.problem, mismatch.hint)
        return self.negated(node, found, every)

    def same_row(self, node: exp.Expr, parts: Sequence[exp.Expr], other: exp.Expr) -> Expression:
        """Return the condition that the values of two rows are equal, one by one, null with null."""
        others = values_of(self, other) if isinstance(other, exp.Tuple) else [other]
        if len(others) != len(parts):
            self.fail(other, f"a row of {len(others)} values is compared with one of {len(parts)}")
        pairs = zip(parts, others, strict=True)
        return all_of(
            [self.resolve(node, "is not distinct from", [self.read(one), self.read(two)]) for one, two in pairs]
        )

    def of_query_around(self, node: exp.Expr) -> Expression | None:
        """Return the value of an aggregate that belongs to an outer query, on trial a null of its type; None for any other node."""
        called = node.this if isinstance(node, exp.Filter) else node
        outer = self.block.statement.outer
        if OWNED not in node.meta and (outer.trial is None or not is_aggregate(called)):
            return None
        if (found := outer.values.get(id(node))) is not None:
            self.block.scope.note(found.name)
            return found
        call, _ = AggregateCalls(self.tree, self.block).called(node, own=False)
        return Literal(None, call.type.or_null())

    def resolve(self, node: exp.Expr, name: str, args: Sequence[Expression]) -> Expression:
        """Return the call of a function, with a note on one that differs in DuckDB."""
        found = super().resolve(node, name, args)
        if isinstance(found, Call) and found.function == "/" and found.type.kind == "decimal":
            self.block.statement.note(node, DIGITS.format("/"))
        return found

    def is_table(self, name: str) -> bool:
        return any((each.table or "").lower() == name.lower() for each in self.block.scope.visible())

    def struct_column(self, name: str, field: str, node: exp.Expr, *, quoted: bool) -> Expression | None:
        if not self.block.scope.shadows(name, field):
            return None
        found = self.named(None, name, node, quoted=quoted)
        return found if found.type.kind == "struct" else None

    def window_alone(self, node: exp.Anonymous, name: str) -> NoReturn:
        hint = f"write `{name}({'...' if node.expressions else ''}) over (partition by ... order by ...)`"
        self.fail(node, f"{name} is a window function, and needs `over`", hint)

    def named(self, qualifier: str | None, name: str, node: exp.Expr, *, quoted: bool) -> Expression:
        """Return the column that a name means."""
        span = self.place(node)
        alias = None if qualifier else self.block.aliases.get(name.lower())
        try:
            found = self.block.scope.find(qualifier, name, span)
        except UnknownName as error:
            if alias is not None:
                return self.of_alias(node, name, alias)
            if not qualifier and not quoted:
                self.refuse_changing(node, name)
            if quoted and not error.meant:
                hint = f"text goes in single quotes: '{name}' ({error.hint})"
                raise SpecError(error.problem, span=span, hint=hint) from None
            raise
        if alias is not None and not self.block.scope.owns(found):  # it hides a column of the outer query
            return self.of_alias(node, name, alias)
        return Column(found, self.block.schema[found], span=span)

    def of_alias(self, node: exp.Expr, name: str, alias: exp.Expr) -> Expression:
        """Return the expression of a list's entry by its name, which no column has; within the entry the name is unknown."""
        if any(id(window) not in self.block.known for window in alias.find_all(exp.Window)):
            self.fail(
                node,
                f"`{name}` has a window function, which is not allowed here",
                "write `qualify` instead of `where`; a window over windows takes a subquery in the `from`",
            )
        if self.block.groups is None and find_aggregates([alias]):
            self.fail(
                node, f"`{name}` has an aggregate, which is not allowed here", "write `having` instead of `where`"
            )
        del self.block.aliases[name.lower()]
        try:
            found = self.block.known[id(alias)] = self.expression(alias)
        finally:
            self.block.aliases[name.lower()] = alias
        return found

    def unknown_function(self, node: exp.Anonymous, name: str) -> NoReturn:
        if is_aggregate(node):
            hint = (
                "groups have aggregates: in the list, in `having` and in `order by`; otherwise aggregate in a subquery"
            )
            self.fail(node, f"{name} is not allowed here, nor inside another aggregate", hint)
        super().unknown_function(node, name)

    def unknown_form(self, node: exp.Expr) -> NoReturn:
        if isinstance(node, exp.Window):
            hint = "they are allowed in the list, in `order by` and in `qualify`; otherwise compute it in a subquery of the `from`"
            self.fail(node, "a window function is not allowed here", hint)
        if isinstance(node, exp.Filter):
            self.fail(node, "`filter (where ...)` is allowed only behind an aggregate")
        super().unknown_form(node)


class AggregateCalls(ReductionReader):
    """The reader of a block's aggregate calls, whose arguments are expressions over its rows."""

    def __init__(self, tree: Tree, block: Block):
        super().__init__(tree, ColumnScope({}))
        self.inner = RowExpressions(tree, block)  # type: ignore[assignment]
        self.block = block

    def called(self, node: exp.Expr, *, own: bool = True) -> tuple[AggregateCall, Expression | None]:
        """Return the aggregate that a call describes, and the condition on its rows, or None if its arguments are null for the other rows.

        Without `own`, an aggregate over the query's own rows raises SpecError: the rows are not grouped at this place.
        """
        condition, whole = None, node
        if isinstance(node, exp.Filter):
            node, where = self.take(node, "this", "expression")
            (written,) = self.take(where, "this")
            condition = self.inner.condition(written, "a filter")  # type: ignore[attr-defined]
        if not isinstance(node, exp.Anonymous):
            self.unknown_form(node)
        written = str(node.this).lower()
        with deep_calls():
            found = self.aggregate(node, AGGREGATES[AGGREGATE_SYNONYMS.get(written, written)], written)
        read = found.columns()
        scope = self.block.scope
        # No scope owns the value of a subquery; without an outer query, the aggregate is over the query's own rows.
        around = scope.outer is not None and bool(read) and not any(scope.owns(name) for name in read)
        if condition is not None and any(scope.owns(name) for name in condition.columns()):
            around = False if not around else self.refuse_around(node, written)
        if around and not self.block.statement.outer.found(whole, scope, sorted(read)):
            self.refuse_around(node, written)
        if not around and not own:
            self.inner.unknown_function(node, written)
        if condition is None or found.function == "array_agg":  # `array_agg` keeps nulls
            return found, condition
        return self.kept(found, condition, node, written), None

    def arguments(self, node: exp.Anonymous, nodes: Sequence[exp.Expr], written: str) -> list[Expression]:
        """Return the arguments of an aggregate, with a note on one that differs in DuckDB."""
        found, name = super().arguments(node, nodes, written), AGGREGATE_SYNONYMS.get(written, written)
        if found and found[0].type.kind == "decimal" and name in OF_DECIMALS:
            self.block.statement.note(node, OF_DECIMALS[name].format(written))
        return found

    def refuse_around(self, node: exp.Expr, written: str) -> NoReturn:
        hint = "compute it there, and name it"
        self.fail(node, f"{written} aggregates only columns of the query around this one", hint)

    def kept(self, call: AggregateCall, condition: Expression, node: exp.Expr, written: str) -> AggregateCall:
        """Return an aggregate over the rows for which a condition is true: its arguments are null for the others."""
        if call.function == "array_agg":
            self.fail(
                node,
                f"`filter` is not supported for {written} over a window",
                "filter the rows in a subquery of the `from`",
            )
        first = call.args[0] if call.args else Literal(1, call.type)
        value = self.conditional(node, [(condition, first)], Literal(None, first.type.or_null()))
        order = call.order_by
        if call.function in ("first", "last"):  # the other rows are ordered away from the end that is taken
            kept = self.resolve(node, "coalesce", [condition, Literal(False, BOOL)])
            order = ((kept, call.function == "first"), *order)
        return replace(call, args=(value, *call.args[1:]), order_by=order, type=call.result(value.type))


class GroupExpressions(RowExpressions):
    """The reader of expressions over groups: grouping expressions, aggregates, and columns of the outer query."""

    def read(self, node: exp.Expr) -> Expression:
        groups = self.block.groups
        assert groups is not None
        if (known := groups.aggregates.get(id(node))) is not None:
            return known
        if groups.keys and not isinstance(node, exp.Column | exp.Literal) and not find_aggregates([node]):
            found = self.subquery_key(node) if contains_query(node) else self.key(node)
            if found is not None:
                return found
        return super().read(node)

    def column(self, node: exp.Column) -> Expression:
        groups = self.block.groups
        assert groups is not None
        if node.args.get("table") is None:
            return super().column(node)
        try:
            found = groups.reader.read(node)
        except SpecError:
            return super().column(node)
        if (key := self.over_keys(found, node)) is not None:
            return key
        if isinstance(found, Call) and all(groups.scope.owns(name) for name in found.columns()):
            written = self.tree.written(node)
            hint = f"add it to `group by`, or take one of its values: min({written})"
            self.fail(node, f"`{written}` may differ from row to row of a group", hint)
        return super().column(node)

    def over_keys(self, found: Expression, node: exp.Expr) -> Expression | None:
        """Return the key for a column or field that is a grouping expression, or a field of such a key; else None."""
        groups = self.block.groups
        assert groups is not None
        key = groups.keys.get(found.text())
        if key is None and isinstance(found, Call) and found.function == "struct_extract":
            whole, name = found.args
            struct = self.over_keys(whole, node)
            return struct and self.resolve(node, "struct_extract", [struct, name])
        return key

    def key(self, node: exp.Expr) -> Expression | None:
        """Return the column of the groups for a grouping expression; else None."""
        groups = self.block.groups
        assert groups is not None
        try:
            found = groups.reader.read(node)
        except SpecError:
            return None
        return groups.keys.get(found.text())

    def subquery_key(self, node: exp.Expr) -> Expression | None:
        """Return the column of the groups for a grouping expression with a subquery, by its SQL; else None."""
        groups = self.block.groups
        assert groups is not None
        if not groups.subqueries or (text := groups.subqueries.get(node.sql())) is None:
            return None
        self.tree.take_all(node)
        return groups.keys[text]

    def named(self, qualifier: str | None, name: str, node: exp.Expr, *, quoted: bool) -> Expression:
        groups = self.block.groups
        assert groups is not None
        try:
            found = groups.reader.named(qualifier, name, node, quoted=quoted)
        except SpecError:
            alias = groups.aliases.get(name.lower()) if qualifier is None else None
            if alias is None or any(each is node for each in alias.find_all(exp.Column)):
                raise
            return self.read(alias)
        assert isinstance(found, Column)
        if (key := groups.keys.get(found.text())) is not None:
            return key
        if not groups.scope.owns(found.name):
            return Column(found.name, self.block.schema[found.name], span=found.span)
        hint = f"add it to `group by`, or take one of its values: min({name})"
        return self.fail(node, f"`{name}` may differ from row to row of a group", hint)


def contains_query(node: exp.Expr) -> bool:
    """Return whether an expression contains a subquery."""
    return node.find(*QUERIES) is not None
