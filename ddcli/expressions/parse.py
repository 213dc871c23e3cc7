"""SQL text to a checked, typed tree.

All errors of an expression that don't depend on data are found here: in syntax, names, types, constants. Each
error has its place inside the expression. Syntax that sqlglot reads but the table lacks is refused, never passed on.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from ddcli.errors import Span, SpecError, Text, UnknownColumn, did_you_mean
from ddcli.expressions.coerce import BOOL, INT64, NULL, STRING, ZONED, Mismatch, cast, check_lengths, convert
from ddcli.expressions.dialect import LAMBDAS, keyword_hint
from ddcli.expressions.forms import BINARY, FormReader, number
from ddcli.expressions.functions import FUNCTIONS, SYNONYMS
from ddcli.expressions.nested_values import converted, fields_of, nested, of_lambda, struct_of
from ddcli.expressions.signatures import check_arguments, parse_signature
from ddcli.expressions.syntax_tree import read, too_deep
from ddcli.expressions.tree import MAX_DEPTH, Call, Column, Expression, Literal, TableCall, deep_calls, depths
from ddcli.expressions.types import ColumnScope, current_zone, localized

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.expressions.signatures import Function
    from ddcli.expressions.syntax_tree import Tree
    from ddcli.expressions.types import Type

WRITTEN = "write strftime(day, '%d.%m.%Y'); `cast(day as string)` is '2024-01-31'"
READ = "write cast(strptime(text, '%d.%m.%Y') as date), or cast(text as date) where it is '2024-01-31'"
PARSED = "write strptime(text, '%d.%m.%Y %H:%M:%S'), or cast(text as timestamp) where it is '2024-01-31 10:20:30'"
COUNTED = "write timestamp '1970-01-01 00:00:00' + interval '1' second * n, and of a timestamp epoch(t)"
JSON = """from_json(x, '{"a": "INT"}') makes a struct or a list of it, `x ->> '$.a'` a text"""
EXACT = "results here are exact: median(x), quantile_cont(x, 0.5), count(distinct x)"

INSTEAD: dict[str, str] = {
    **dict.fromkeys(["to_char", "date_format", "format_date", "format_datetime", "format_timestamp"], WRITTEN),
    **dict.fromkeys(["to_date", "str_to_date", "parse_date"], READ),
    "to_timestamp": f"of a number of seconds write timestamp '1970-01-01 00:00:00' + n * interval '1' second; of a text {PARSED.removeprefix('write ')}",
    **dict.fromkeys(["parse_timestamp", "parse_datetime"], PARSED),
    "columns": "name the columns; `* exclude (a)` leaves some out, `* replace (f(a) as a)` computes one",
    **dict.fromkeys(["from_unixtime", "unix_timestamp", "to_unixtime", "timestamp_seconds"], COUNTED),
    "aggregate": "write list_reduce(x, lambda a, e: a + e, first)",
    **dict.fromkeys(["json_query", "json_table", "json_tuple"], JSON),
    **dict.fromkeys(["approx_quantile", "approx_percentile", "percentile_approx", "approx_top_k"], EXACT),
    **dict.fromkeys(["collect_list", "array_collect"], "write array_agg(x order by y)"),
    "collect_set": "write array_agg(distinct x order by x)",
    **dict.fromkeys(["dateadd", "timestampadd"], "write day + interval '1' month"),
    **dict.fromkeys(["timestampdiff", "days_between", "months_between"], "write date_diff('day', a, b)"),
    "age": "no type holds months and days together; for age(a, b) write a - b for the time, date_sub('year', b, a) or date_sub('month', b, a) for whole years or months",
    **dict.fromkeys(["logical_and", "logical_or"], "write bool_and(x) or bool_or(x)"),
    **dict.fromkeys(["explode", "posexplode"], "write `from t, unnest(t.list) as e(x)`, a row for each element"),
    "decode": "write case x when 1 then 'a' else 'b' end",
    **dict.fromkeys(["json_group_array", "json_agg", "jsonb_agg"], "write to_json(array_agg(x order by y))"),
    **dict.fromkeys(["weighted_avg", "wavg"], "write sum(x * weight) / sum(weight) filter (where x is not null)"),
    **dict.fromkeys(["geomean", "geometric_mean"], "write exp(avg(ln(x)))"),
    "sum_if": "write sum(x) filter (where condition)",
    "avg_if": "write avg(x) filter (where condition)",
    "zeroifnull": "write coalesce(x, 0)",
    "typeof": "`dd check -o json` prints the types of the columns",
}

AGGREGATE_HINT = "aggregates belong into `reduce`"
CHANGING = {
    "now",
    "get_current_timestamp",
    "transaction_timestamp",
    "random",
    "uuid",
    "gen_random_uuid",
    "today",
    "current_user",
}
CHANGING |= {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
"""The functions and words whose value changes from call to call in databases."""
SAME = "an expression must return the same value for the same row"
DATES_OF_NOW = {"current_date", "today"}
INSTANTS_OF_NOW = {"now", "current_timestamp", "get_current_timestamp", "transaction_timestamp"}
PRESENT_HINT = (
    "in the `where` of a query compare a value with it, `day >= current_date - 7`: that is kept up to date; "
    "for operators `temporal_filter: {from: day, until: day + 8}`"
)


def changing_hint(name: str) -> str:
    """Return the hint for a word whose value changes: the present time has its place."""
    return PRESENT_HINT if name.lower() in DATES_OF_NOW | INSTANTS_OF_NOW else SAME


def parse_scalar(text: Text, scope: ColumnScope) -> Expression:
    """Return the tree of an expression over one row; raises SpecError at the place of the mistake."""
    return _scalar(text, tuple(scope.columns.items()), tuple(scope.qualified.items()), current_zone())


@lru_cache(maxsize=256)
def _scalar(
    text: Text,
    columns: tuple[tuple[str, Type], ...],
    qualified: tuple[tuple[tuple[str, str], str], ...],
    _zone: str,
    *,
    is_part: bool = False,
) -> Expression:
    """Return the tree of an expression, from a cache: a tree never changes, and long ones take a second to read. A part of one may be an interval of months."""
    found = ExpressionReader(read(text), ColumnScope(dict(columns), dict(qualified))).whole()
    if not is_part:
        try:
            check_lengths([found])
        except Mismatch as mismatch:
            raise mismatch.at(text.span) from None
    return found


def parse_table(text: Text, scope: ColumnScope) -> TableCall:
    """Return a call of a table function; raises SpecError at the place of the mistake."""
    tree = read(text)
    node, reader = tree.root, ExpressionReader(tree, scope)
    written, nodes = tree.take(node, "this", "expressions") if isinstance(node, exp.Anonymous) else ("", [])
    name = str(written).lower()
    if name not in ("unnest", "generate_series"):
        hint = "flat_map knows unnest(list), generate_series(first, last) and generate_series(first, last, step)"
        raise SpecError("expected a function that returns rows", span=tree.place(node), hint=hint)
    with deep_calls():
        args = [reader.read(arg) for arg in nodes]
    tree.finish()
    for arg in args:
        check_depth(arg)
    if name == "unnest":
        if len(args) != 1 or args[0].type.kind != "list" or args[0].type.inner is None:
            got = str(args[0].type.required()) if len(args) == 1 else f"{len(args)} arguments"
            raise SpecError(
                f"unnest expects one list, got {got}", span=tree.place(node), hint="split(text, ',') makes a list"
            )
        return TableCall(name, tuple(args), args[0].type.inner)
    if len(args) not in (2, 3) or not all(arg.type.is_integer for arg in args):
        raise SpecError("generate_series expects 2 or 3 integers", span=tree.place(node))
    converted = tuple(convert(arg, INT64) for arg in args)
    step = converted[2] if len(args) > 2 else Literal(1, INT64)
    return TableCall(name, (*converted[:2], step), INT64)


def check_depth(expression: Expression) -> None:
    """Raise SpecError for a tree that is too deep for recursion, at the place where it gets too deep."""
    found = depths(expression)
    if found[id(expression)] > MAX_DEPTH:
        deep = (node for node in expression.walk() if found[id(node)] == MAX_DEPTH + 1 and node.span)
        first = next(deep, expression)
        raise too_deep(first.span)


def expand_derived(function: Function, args: Sequence[Expression], span: Span | None) -> Expression:
    """Return the expression that a call of a derived function stands for. Raises Mismatch."""
    signature = parse_signature(function.signature)
    given = dict(zip((each.name for each in signature.parameters), check_arguments(signature, args), strict=False))
    return expanded(function.means, given, span)


def expanded(written: str, values: Mapping[str, Expression], span: Span | None) -> Expression:
    """Return an expression over names with values substituted for them, all of it at one place in the file. Raises Mismatch."""
    columns = tuple((name, value.type) for name, value in values.items())
    try:
        found = _scalar(
            Text(written, Span("functions", 1, 1, len(written), written)), columns, (), current_zone(), is_part=True
        )
    except SpecError as error:
        raise Mismatch(error.problem, hint=error.hint) from None
    return placed(found, span).substitute(values)


def placed(expression: Expression, span: Span | None) -> Expression:
    """Return an expression with every part at one place in the file."""
    parts = tuple(placed(child, span) for child in expression.children)
    return replace(expression.with_children(parts), span=span)  # type: ignore[type-var]


class ExpressionReader(FormReader):
    """The reader of syntax trees into typed ones. The readers of aggregates and of window calls extend it."""

    def __init__(self, tree: Tree, scope: ColumnScope):
        self.tree, self.place, self.take = tree, tree.place, tree.take
        self.scope = scope
        self.parameters = {}

    def whole(self) -> Expression:
        """Return the typed tree of the whole text; no part of it is ignored."""
        with deep_calls():
            found = self.read(self.tree.root)
        self.tree.finish()
        check_depth(found)
        return found

    def read(self, node: exp.Expr) -> Expression:
        """Return the typed tree of a syntax node."""
        if isinstance(node, exp.Paren):
            (inner,) = self.take(node, "this")
            return self.read(inner)
        if isinstance(node, exp.Column):
            return self.column(node)
        if isinstance(node, exp.Literal):
            return self.literal(node)
        if isinstance(node, exp.Null):
            self.take(node)
            return Literal(None, NULL, span=self.place(node))
        if isinstance(node, exp.Boolean):
            (value,) = self.take(node, "this")
            return Literal(bool(value), BOOL, span=self.place(node))
        if isinstance(node, exp.Neg):
            return self.negative(node)
        if isinstance(node, exp.Anonymous):
            return self.call(node)
        if isinstance(node, exp.Like | exp.ILike):
            return self.like(node)
        if isinstance(node, exp.And | exp.Or):
            return self.connected(node)
        if type(node) in BINARY:
            sides = self.take(node, "this", "expression")
            return self.resolve(node, BINARY[type(node)], [self.read(side) for side in sides])
        return self.special(node)

    def literal(self, node: exp.Literal) -> Literal:
        """Read a number, or text in single quotes."""
        written, is_text = self.take(node, "this", "is_string")
        span = self.place(node)
        return Literal(str(written), STRING, span=span) if is_text else number(str(written), span)

    def member(self, node: exp.Expr, value: Expression, choices: list[Expression]) -> Expression:
        """Return `value in (...)`; for structs the comparisons with each, connected by `or`."""
        if value.type.kind != "struct":
            return self.resolve(node, "in", [value, *choices])
        return self.balanced(node, "or", [self.resolve(node, "=", [value, each]) for each in choices])

    def special(self, node: exp.Expr) -> Expression:
        """Read the forms that have syntax of their own."""
        if isinstance(node, exp.Not):
            (inner,) = self.take(node, "this")
            return self.resolve(node, "not", [self.read(inner)])
        if isinstance(node, exp.JSONExtract | exp.JSONExtractScalar):
            name = "json_extract" if type(node) is exp.JSONExtract else "json_extract_string"
            return self.resolve(node, name, [self.read(each) for each in self.take(node, "this", "expression")])
        if isinstance(node, exp.RegexpLike | exp.RegexpILike):
            return self.matched(node)
        if isinstance(node, exp.BitwiseNot):
            (inner,) = self.take(node, "this")
            return self.resolve(node, "~", [self.read(inner)])
        if isinstance(node, exp.Is):
            return self.is_(node)
        if isinstance(node, exp.Between):
            return self.between(node)
        if isinstance(node, exp.In) and node.expressions:
            value, choices = self.take(node, "this", "expressions")
            return self.member(node, self.read(value), [self.read(each) for each in choices])
        if isinstance(node, exp.Escape) and isinstance(node.this, exp.Like | exp.ILike):
            like, escape = self.take(node, "this", "expression")
            return self.like(like, escape)
        if isinstance(node, exp.Case):
            return self.case(node)
        if (
            isinstance(node, exp.Cast)
            and isinstance(node.args["to"], exp.DataType)
            and isinstance(node.this, exp.Literal | exp.Cast)
        ):
            return self.typed_literal(node)
        if isinstance(node, exp.Cast) and isinstance(node.args["to"], exp.Literal):
            return self.cast(node, *self.take(node, "this", "to"), tried=False)
        if isinstance(node, exp.Interval):
            return self.interval(node)
        if isinstance(node, exp.Extract) and isinstance(node.this, exp.Var | exp.Literal):
            return self.extract(node)
        if isinstance(node, exp.AtTimeZone):
            value, zone = self.take(node, "this", "zone")
            return self.resolve(node, "timezone", [self.read(zone), self.read(value)])
        return nested(self, node) or self.unknown_form(node)

    def unknown_form(self, node: exp.Expr) -> NoReturn:
        """Raise SpecError for syntax without a meaning here."""
        if isinstance(node, exp.Star):
            self.fail(node, "`*` is allowed only in count(*)")
        if isinstance(node, exp.Alias):
            alias = node.args["alias"]
            self.fail(
                alias,
                f"unexpected `{alias.name}`",
                "an operator or a comma is missing before it, or quotes around a name",
            )
        if isinstance(node, exp.Cast):
            self.fail(node, "unknown syntax", "write cast(value as type)")
        if isinstance(node, exp.Window):
            self.fail(node, "a window function is not allowed here", "use the operator `window`")
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            self.fail(node, "subqueries are not supported", "use `join`, `semijoin` or `antijoin`")
        if isinstance(node, exp.In) and node.args.get("query") is None:
            self.fail(node, "`in` has no values")
        if isinstance(node, exp.In):
            self.fail(node, "subqueries are not supported", "use `semijoin`, or `antijoin` for `not in`")
        if isinstance(node, exp.WithinGroup):
            hint = "mode(), percentile_cont(0.5), percentile_disc(0.5) and string_agg(x, ',') take one key there, the first three an ascending one"
            self.fail(node, "`within group` is not allowed behind this", hint)
        if isinstance(node, exp.Lambda | exp.Comprehension):
            self.fail(node, "a lambda is not allowed here", "list_transform, list_filter and list_reduce take one")
        if isinstance(node, exp.BitwiseXor | exp.Pow):
            self.fail(node, f"`{self.tree.written(node)}` is not supported", "write `power(a, b)`; of bits `xor(a, b)`")
        written = self.tree.written(node)
        keyword = keyword_hint(written.split(maxsplit=1)[0] if written.strip() else "")
        self.fail(node, f"`{written}` is not supported", keyword or "the table of functions has those that are")

    def resolve(self, node: exp.Expr, name: str, args: Sequence[Expression]) -> Expression:
        """Return the call of a function of the table, its arguments checked and converted."""
        span, function = self.place(node), FUNCTIONS[name]
        try:
            if function.means:
                return expand_derived(function, args, span)
            converted, type_, canonical = function.rule(function.name, args)
            if type_.kind != "months":
                check_lengths(converted)
        except Mismatch as mismatch:
            mismatch.hint = INSTEAD.get(name, mismatch.hint)
            raise mismatch.at(span) from None
        return Call(canonical, tuple(converted), type_, span=span)

    def call(self, node: exp.Anonymous) -> Expression:
        """Read a function call by name."""
        written, args = self.take(node, "this", "expressions")
        name = str(written).lower()
        name = SYNONYMS.get(name, name)
        if name in ("cast", "try_cast"):
            return self.cast(node, *node.expressions, tried=name == "try_cast")
        if name in ("if", "iif", "iff") and len(args) in (2, 3):
            condition, value, *default = (self.read(each) for each in args)
            return self.conditional(node, [(condition, value)], default[0] if default else Literal(None, NULL))
        if name == "struct_pack":
            return struct_of(self, node, args or ())
        if name in LAMBDAS:
            return of_lambda(self, node, LAMBDAS[name], args or ())
        is_called = (
            name in FUNCTIONS and name[0].isalpha() and " " not in name and name not in ("in", "and", "or", "not")
        )
        if not is_called and name != "make_timestamptz":
            self.unknown_function(node, name)
        for arg in args or ():
            if isinstance(arg, exp.Distinct | exp.Order):
                self.fail(node, f"{name} takes no `distinct` and no `order by`", AGGREGATE_HINT)
        values = [self.read(arg) for arg in args or ()]
        if name == "length" and len(values) == 1 and values[0].type.kind == "list":
            name = "cardinality"
        if name == "strftime" and len(values) == 2 and values[0].type.kind == "string":
            values.reverse()
        if name == "nullif" and len(values) == 2:
            return self.nullif(node, *values)
        if name == "make_timestamptz":
            local = self.resolve(node, "make_timestamp", values[:6])
            if len(values) < 7:
                return cast(local, localized(ZONED, current_zone()), self.place(node), tried=False)
            return self.resolve(node, "timezone", [values[6], local])
        return self.resolve(node, name, values)

    def converted(self, node: exp.Expr, value: Expression, target: Type, *, tried: bool) -> Expression:
        return converted(self, node, value, target, tried=tried)

    def nullif(self, node: exp.Anonymous, value: Expression, other: Expression) -> Expression:
        """Return `nullif(value, other)`, in the type of the value where they are compared in another one."""
        found = self.resolve(node, "nullif", [value, other])
        kinds = (value.type, found.type)
        if (
            kinds[0].required() == kinds[1].required()
            or kinds[0].kind == "null"
            or all(each.is_integer for each in kinds)
        ):
            return found
        equal = self.resolve(node, "=", [value, other])
        return self.conditional(node, [(equal, Literal(None, NULL))], value)

    def unknown_function(self, node: exp.Anonymous, name: str) -> NoReturn:
        """Raise SpecError for a function that the table lacks."""
        from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES

        if name in AGGREGATES or name in AGGREGATE_SYNONYMS:
            self.fail(node, f"{name} is an aggregate: it needs many rows, and here is one", AGGREGATE_HINT)
        if name in CHANGING:
            self.fail(node, f"{name}() changes by itself", changing_hint(name))
        known = [*(each for each in FUNCTIONS if each[0].isalpha()), *SYNONYMS, "cast", "try_cast"]
        self.no_function(node, name, known)

    def no_function(self, node: exp.Anonymous, name: str, known: Iterable[str]) -> NoReturn:
        """Raise SpecError for a name that no function has, with a hint at a replacement."""
        from ddcli.expressions.windows import WINDOW_FUNCTIONS

        if name in WINDOW_FUNCTIONS:
            self.window_alone(node, name)
        meant = did_you_mean(name, [each for each in known if each != name], cutoff=0.7)
        hint = INSTEAD.get(name) or (f"did you mean `{meant}`?" if meant else None)
        self.fail(node, f"no function is named `{name}`", hint)

    def window_alone(self, node: exp.Anonymous, name: str) -> NoReturn:
        """Raise SpecError for a window function without a window."""
        self.fail(node, f"{name} is a window function: it sees many rows, and here is one", "use the operator `window`")

    def column(self, node: exp.Column) -> Expression:
        """Read a column's name, plain or qualified, and names of fields behind it."""
        *around, named = self.take(node, "catalog", "db", "table", "this")
        if isinstance(named, exp.Star):
            self.fail(node, "`*` is allowed only in count(*), and in the list of a `select`")
        parts = [self.identifier(each) for each in (*around, named) if each is not None]
        (first, is_quoted), *rest = parts
        names = [name for name, _ in rest]
        if not rest:
            return self.named(None, first, node, quoted=is_quoted)
        struct = self.struct_column(first, names[0], node, quoted=is_quoted)
        if struct is not None:
            return fields_of(self, node, struct, names)
        try:
            whole = self.named(first, names[0], node, quoted=rest[0][1])
        except SpecError as error:
            if len(rest) == 1 or not error.problem.startswith("no column") or self.is_table(first):
                raise
            hint = "fields of a struct follow behind: `orders.address.city`"
            raise SpecError(
                "a column has at most one qualifier: `orders.id`", span=self.place(node), hint=hint
            ) from None
        return fields_of(self, node, whole, names[1:]) if names[1:] else whole

    def is_table(self, name: str) -> bool:
        """Return whether columns are qualified by this name."""
        return any(table.lower() == name.lower() for table, _ in self.scope.qualified)

    def struct_column(self, name: str, field: str, node: exp.Expr, *, quoted: bool) -> Expression | None:
        """Return the column `name` in `name.field`, None if the name is a qualifier and not a struct."""
        if (name.lower(), field.lower()) in {(one.lower(), other.lower()) for one, other in self.scope.qualified}:
            return None
        same = [each for each, kind in self.scope.columns.items() if each.lower() == name.lower() and kind.fields]
        same = [name] if name in same else same
        return Column(same[0], self.scope.columns[same[0]], span=self.place(node)) if len(same) == 1 else None

    def named(self, qualifier: str | None, name: str, node: exp.Expr, *, quoted: bool) -> Expression:
        """Return the column that a name means."""
        span = self.place(node)
        try:
            found = (
                self.scope.qualified_name(qualifier, name, span) if qualifier else self.scope.name(name, span, quoted)
            )
        except UnknownColumn:
            if not qualifier and not quoted:
                self.refuse_changing(node, name)
            raise
        return Column(found, self.scope.columns[found], span=span)

    def refuse_changing(self, node: exp.Expr, name: str) -> None:
        """Raise SpecError for a word for the present time, or the user, if no column has this name."""
        if name.lower() in CHANGING:
            self.fail(node, f"`{name}` changes by itself", changing_hint(name))

    def identifier(self, node: exp.Expr) -> tuple[str, bool]:
        """Read a name, and whether it is in double quotes."""
        if not isinstance(node, exp.Identifier):
            self.unknown_form(node)
        name, is_quoted = self.take(node, "this", "quoted")
        return str(name), bool(is_quoted)
