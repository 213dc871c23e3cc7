"""Aggregates: the table, how `round(sum(amount) / count(*), 2)` is read, and the general ones as polars expressions.

A reduction is a set of aggregate calls and an expression over their results, the columns `$0`, `$1` ... A collection is a multiset
without an order, so an aggregate whose answer hangs on the order of rows must say `order by`; ties are broken by the value, so that the
answer is one. Nulls are passed over as in SQL; of no value at all the answer is null (0 for counts).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError, did_you_mean
from ddcli.expressions.coerce import BOOL, FLOAT64, INT64, STRING, Mismatch, convert, decimal_type
from ddcli.expressions.functions import FUNCTIONS
from ddcli.expressions.parse import Reader, Scope
from ddcli.expressions.sql import place, read
from ddcli.expressions.tree import Call, Column, Expression, Literal
from ddcli.expressions.types import MAX_PRECISION, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    import polars as pl

    from ddcli.errors import Text


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate over a group's rows. `order_by` holds (key, descending); `type` is never wrong about null."""

    function: str
    args: tuple[Expression, ...]
    distinct: bool
    order_by: tuple[tuple[Expression, bool], ...]
    type: Type

    def columns(self) -> frozenset[str]:
        """Return the names of the columns it reads."""
        parts = [*self.args, *(key for key, _ in self.order_by)]
        return frozenset().union(*(part.columns() for part in parts))

    def text(self) -> str:
        """Return canonical SQL."""
        inside = ", ".join(arg.text() for arg in self.args) or "*"
        keys = ", ".join(key.text() + (" desc" if descending else "") for key, descending in self.order_by)
        return f"{self.function}({'distinct ' if self.distinct else ''}{inside}{' order by ' + keys if keys else ''})"


@dataclass(frozen=True)
class Reduction:
    """Aggregate calls, each once, and the expression over their results: columns `$0`, `$1`, ..."""

    calls: tuple[AggregateCall, ...]
    result: Expression

    def columns(self) -> frozenset[str]:
        """Return the names of the columns it reads."""
        return frozenset().union(*(call.columns() for call in self.calls))

    def text(self) -> str:
        """Return canonical SQL."""
        return f"{self.result.text()} where {', '.join(f'${i} = {call.text()}' for i, call in enumerate(self.calls))}"


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of the table. `accepts` names the kinds of argument, `ordered` that `order by` must be there."""

    name: str
    signature: str
    doc: str
    accepts: str
    result: Callable[[Type], Type]
    ordered: bool = False
    takes_distinct: bool = False
    args: int = 1


def _sum(type_: Type) -> Type:
    if type_.kind == "decimal":
        return decimal_type(MAX_PRECISION, type_.scale, nullable=type_.nullable)
    return replace(_average(type_) if type_.is_float or type_.kind == "duration" else INT64, nullable=type_.nullable)


def _average(type_: Type) -> Type:
    if type_.kind == "duration":
        return type_
    if type_.kind == "decimal":
        return decimal_type(MAX_PRECISION, max(6, type_.scale), nullable=type_.nullable)
    return replace(FLOAT64, nullable=type_.nullable)


def _same(type_: Type) -> Type:
    return type_


def _maybe_float(type_: Type) -> Type:
    return FLOAT64.or_null(type_.nullable)


def _always(type_: Type) -> Callable[[Type], Type]:
    return lambda _: type_


def _if_any(type_: Type) -> Callable[[Type], Type]:
    return lambda argument: type_.or_null(argument.nullable)


_TABLE = [
    Aggregate("count", "count(*), count([distinct] x)", "Number of rows, or of values that are not null.", "any", _always(INT64), takes_distinct=True),
    Aggregate("sum", "sum([distinct] x)", "Sum: int64 of integers (overflow is an error), decimal(38, s) of decimals, float64 of floats, correctly rounded.", "summable", _sum, takes_distinct=True),
    Aggregate("avg", "avg([distinct] x)", "Mean: float64; of decimals a decimal with at least 6 digits after the point, rounded half away from zero.", "summable", _average, takes_distinct=True),
    Aggregate("min", "min(x)", "Smallest value; NaN is the largest number.", "ordered", _same, takes_distinct=True),
    Aggregate("max", "max(x)", "Largest value; NaN is the largest number.", "ordered", _same, takes_distinct=True),
    Aggregate("bool_and", "bool_and(x)", "Whether x is true in every row. Also `every`.", "bool", _if_any(BOOL), takes_distinct=True),
    Aggregate("bool_or", "bool_or(x)", "Whether x is true in some row. Also `any`.", "bool", _if_any(BOOL), takes_distinct=True),
    Aggregate("first", "first(x order by y [desc], ...)", "x in the first row by that order, null if it is null there; of equal rows the smallest x. A null key is the largest.", "ordered", _same, ordered=True),
    Aggregate("last", "last(x order by y [desc], ...)", "x in the last row by that order; of equal rows the largest x.", "ordered", _same, ordered=True),
    Aggregate("median", "median(x)", "The middle value, or the mean of the two middle ones.", "number", _maybe_float),
    Aggregate("quantile_cont", "quantile_cont(x, fraction)", "The value below which that constant fraction lies, interpolated.", "number", _maybe_float, args=2),
    Aggregate("quantile_disc", "quantile_disc(x, fraction)", "The smallest value with at least that constant fraction of the values at or below it.", "ordered", _same, args=2),
    Aggregate("stddev_samp", "stddev_samp(x)", "Standard deviation of a sample; null of fewer than two. Also `stddev`.", "number", _always(FLOAT64.or_null())),
    Aggregate("stddev_pop", "stddev_pop(x)", "Standard deviation of the whole.", "number", _maybe_float),
    Aggregate("var_samp", "var_samp(x)", "Variance of a sample; null of fewer than two. Also `variance`.", "number", _always(FLOAT64.or_null())),
    Aggregate("var_pop", "var_pop(x)", "Variance of the whole.", "number", _maybe_float),
    Aggregate("mode", "mode(x)", "The most frequent value, the smallest of several.", "ordered", _same),
    Aggregate("array_agg", "array_agg(x order by y [desc], ...)", "All values as a list, nulls included.", "ordered", lambda t: Type("list", inner=t.or_null()), ordered=True),
    Aggregate("string_agg", "string_agg(x, separator order by y [desc], ...)", "All texts joined by a constant separator.", "string", _same, ordered=True, args=2),
]  # fmt: skip
AGGREGATES: dict[str, Aggregate] = {each.name: each for each in _TABLE}
AGGREGATE_SYNONYMS = {
    "every": "bool_and",
    "any": "bool_or",
    "mean": "avg",
    "stddev": "stddev_samp",
    "variance": "var_samp",
}
AGGREGATE_SYNONYMS |= {
    "n_unique": "count",
    "std": "stddev_samp",
    "var": "var_samp",
    "listagg": "string_agg",
    "group_concat": "string_agg",
}
AGGREGATE_SYNONYMS |= {
    "first_value": "first",
    "last_value": "last",
    "arg_min": "first",
    "arg_max": "last",
    "all": "bool_and",
}
AGGREGATE_SYNONYMS |= {"min_by": "first", "max_by": "last"}
BY_PAIR = {"min_by", "max_by", "arg_min", "arg_max"}


def parse_reduction(text: Text, scope: Scope) -> Reduction:
    """Return the reduction that a text describes; raises SpecError at the place of the mistake."""
    reader = _ReductionReader(text, scope)
    result = reader.read(read(text))
    if not reader.calls:
        raise SpecError(
            "this gives no aggregate",
            span=text.span,
            hint="count(*), sum(x), min(x) ...; a column to group by belongs into `by`",
        )
    return Reduction(tuple(reader.calls), result)


class _ReductionReader(Reader):
    """Reads the outside of aggregates; columns stand only inside them."""

    def __init__(self, text: Text, scope: Scope):
        super().__init__(text, scope)
        self.calls: list[AggregateCall] = []
        self.inner = _ArgumentReader(text, scope)

    def column(self, node: exp.Column) -> Expression:
        found = super().column(node)
        assert isinstance(found, Column)
        hint = f"group by it (`by: [{found.name}]`), or take one of its values: min({found.name})"
        self.fail(node, f"`{found.name}` may differ from row to row of a group", hint)

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
        return Column(f"${self.calls.index(call)}", call.type, span=place(self.text, node))

    def unknown_function(self, node: exp.Anonymous, name: str) -> NoReturn:
        known = [*AGGREGATES, *AGGREGATE_SYNONYMS, *(each for each in FUNCTIONS if each[0].isalpha())]
        meant = did_you_mean(name, known)
        self.fail(node, f"no function is named `{name}`", f"did you mean `{meant}`?" if meant else None)

    def aggregate(self, node: exp.Anonymous, aggregate: Aggregate, written: str) -> AggregateCall:
        """Read one aggregate call."""
        nodes, distinct, order = self.parts(node, aggregate)
        distinct = distinct or written == "n_unique"
        if aggregate.name == "count" and len(nodes) == 1 and isinstance(nodes[0], exp.Star) and not distinct:
            return AggregateCall("count", (), False, (), INT64)
        args = [self.inner.read(each) for each in nodes]
        if written in BY_PAIR and len(args) == 2 and not order:
            order, args = self.by_pair(aggregate.name, args[1]), args[:1]
        if len(args) != aggregate.args:
            wanted = f"{aggregate.args} argument{'s' if aggregate.args > 1 else ''}"
            self.fail(node, f"{written} takes {wanted}, got {len(args)}", aggregate.signature)
        if aggregate.ordered and not order:
            self.fail(node, f"{written} needs an order: a collection has no order", f"write {aggregate.signature}")
        if order and not aggregate.ordered:
            self.fail(node, f"{written} does not depend on an order", "leave `order by` out")
        if distinct and not aggregate.takes_distinct:
            self.fail(node, f"{written} takes no `distinct`")
        try:
            args = _checked(aggregate, args)
        except Mismatch as mismatch:
            where = mismatch.argument.span if mismatch.argument and mismatch.argument.span else place(self.text, node)
            raise SpecError(mismatch.problem, span=where, hint=mismatch.hint) from None
        # Repetition changes nothing for these, so the two spellings are one call.
        if aggregate.name in ("min", "max", "bool_and", "bool_or"):
            distinct = False
        return AggregateCall(aggregate.name, tuple(args), distinct, order, aggregate.result(args[0].type))

    @staticmethod
    def by_pair(name: str, key: Expression) -> tuple[tuple[Expression, bool], ...]:
        """Return the order that makes min_by(x, y) of `first` and max_by(x, y) of `last`: rows with a null y count last."""
        if name == "first" or not key.type.nullable:
            return ((key, False),)
        present = Call("not", (Call("is null", (key,), BOOL),), BOOL)
        return ((present, False), (key, False))

    def parts(
        self, node: exp.Anonymous, aggregate: Aggregate
    ) -> tuple[list[exp.Expr], bool, tuple[tuple[Expression, bool], ...]]:
        """Take arguments, distinct and order by apart; sqlglot hangs the order on the last argument."""
        nodes, distinct = list(node.expressions), False
        order: tuple[tuple[Expression, bool], ...] = ()
        if nodes and isinstance(nodes[-1], exp.Order):
            keys = []
            for key in nodes[-1].expressions:
                expression = self.inner.read(key.this)
                if expression.type.kind in ("list", "null"):
                    self.fail(key, f"can't order by {expression.type.required()}")
                keys.append((expression, bool(key.args.get("desc"))))
            order, nodes[-1] = tuple(keys), nodes[-1].this
        if nodes and isinstance(nodes[0], exp.Distinct):
            distinct = True
            nodes = [*nodes[0].expressions, *nodes[1:]]
            if len(nodes) > aggregate.args:
                self.fail(node, "distinct takes one value", "count(distinct a || ',' || b) counts pairs")
        return nodes, distinct, order


class _ArgumentReader(Reader):
    """Reads the inside of aggregates."""

    def unknown_function(self, node: exp.Anonymous, name: str) -> NoReturn:
        if name in AGGREGATES or name in AGGREGATE_SYNONYMS:
            self.fail(node, f"{name} can't stand inside another aggregate", "reduce twice")
        super().unknown_function(node, name)


def _checked(aggregate: Aggregate, args: Sequence[Expression]) -> list[Expression]:
    """Return the arguments in the types that the aggregate computes with; raises Mismatch."""
    arg, *rest = args
    kind = arg.type
    if aggregate.accepts in ("number", "summable"):
        summable = aggregate.accepts == "summable" and kind.kind == "duration"
        if not (kind.is_numeric or summable):
            raise Mismatch(f"{aggregate.name} expects numbers, got {kind.required()}", arg)
        if not summable and aggregate.accepts == "number":
            arg = convert(arg, FLOAT64)
        elif kind.is_integer:
            arg = convert(arg, INT64)
        elif kind.is_float:
            arg = convert(arg, FLOAT64)
    elif aggregate.accepts in ("bool", "string"):
        if kind.kind != aggregate.accepts:
            raise Mismatch(f"{aggregate.name} expects {aggregate.accepts}, got {kind.required()}", arg)
    elif aggregate.accepts == "ordered" and kind.kind in ("list", "null", "months"):
        raise Mismatch(f"{aggregate.name} does not take {kind.required()}", arg)
    for each in rest:
        if not isinstance(each, Literal):
            raise Mismatch(f"{aggregate.name}: the second argument must be a constant", each)
        if aggregate.name.startswith("quantile"):
            each = convert(each, FLOAT64) if each.type.is_numeric else each
            if not isinstance(each, Literal) or not isinstance(each.value, float) or not 0 <= each.value <= 1:
                raise Mismatch("the fraction is a number from 0 to 1", each)
        elif each.type.required() != STRING or each.value is None:
            raise Mismatch("the separator is text", each)
    return [arg, *args[1:]] if not aggregate.name.startswith("quantile") else [arg, convert(args[1], FLOAT64)]


def is_kernel(call: AggregateCall) -> bool:
    """Return whether the reduce operator has a kernel for it; the others go through `aggregate_expression`."""
    return call.function in ("count", "sum", "avg", "min", "max", "first", "last") and not call.distinct


def aggregate_expression(call: AggregateCall) -> pl.Expr:
    """Return the polars expression of a call, to be used in `group_by(...).agg(...)`.

    The frame holds a group's rows with columns `a0`, `a1` ... (the call's arguments) and `o0`, `o1` ... (its order keys), each row
    REPEATED as often as its multiplicity says, and SORTED within the group by the order keys (null being the largest: last ascending,
    first descending), then by `a0` ascending, nulls last. So the answer depends on the multiset alone.
    Sums and means of floats here may differ from the kernels' in the last bit; sums of integers are exact in 128 bits and null on
    overflow of the result type, which the caller must tell from a null by `a0` having values.
    """
    import polars as pl

    value = pl.col("a0")
    present = value.drop_nulls()
    if call.distinct:
        present = present.unique()
    if call.function in ("count", "sum", "avg", "min", "max"):
        return _repeatable(call, present)
    ordered = present.sort()
    simple: dict[str, Callable[[], pl.Expr]] = {
        # polars' `all` and `any` of nothing are true and false; ours are null.
        "bool_and": lambda: pl.when(present.len() > 0).then(present.all()),
        "bool_or": lambda: pl.when(present.len() > 0).then(present.any()),
        "first": value.first,
        "last": value.last,
        "median": present.median,
        "quantile_cont": lambda: present.quantile(_constant(call), "linear"),
        "quantile_disc": lambda: ordered.get(
            ((present.len() * _constant(call)).ceil().cast(pl.Int64) - 1).clip(0, None), null_on_oob=True
        ),
        "stddev_samp": lambda: present.std(ddof=1),
        "stddev_pop": lambda: present.std(ddof=0),
        "var_samp": lambda: present.var(ddof=1),
        "var_pop": lambda: present.var(ddof=0),
        "mode": lambda: present.mode().sort().first(),
        "array_agg": value.implode,
        "string_agg": lambda: pl.when(present.len() > 0).then(present.str.join(_separator(call))),
    }
    return simple[call.function]()


def _repeatable(call: AggregateCall, present: pl.Expr) -> pl.Expr:
    """Return the aggregates that kernels have, for their `distinct` forms."""
    import polars as pl

    if call.function == "count":
        return present.len().cast(pl.Int64) if call.args else pl.len().cast(pl.Int64)
    if call.function == "sum":
        return _sum_expression(present, call, call.type.to_polars())
    if call.function == "avg":
        return _average_expression(present, call)
    # polars passes over NaN in min and max; here it is the largest, so the order decides.
    return present.sort().first() if call.function == "min" else present.sort().last()


def _constant(call: AggregateCall) -> float:
    literal = call.args[1]
    assert isinstance(literal, Literal)
    assert isinstance(literal.value, float)
    return literal.value


def _separator(call: AggregateCall) -> str:
    literal = call.args[1]
    assert isinstance(literal, Literal)
    return str(literal.value)


def _sum_expression(present: pl.Expr, call: AggregateCall, dtype: pl.DataType) -> pl.Expr:
    import polars as pl

    if call.type.is_float or call.type.kind == "duration":
        total = present.sum()
    elif call.type.kind == "decimal":
        total = present.to_physical().cast(pl.Int128).sum().reinterpret(dtype=dtype)
    else:
        total = present.cast(pl.Int128).sum().cast(dtype, strict=False)
    return pl.when(present.len() > 0).then(total)


def _average_expression(present: pl.Expr, call: AggregateCall) -> pl.Expr:
    import polars as pl

    if call.type.kind != "decimal":
        return present.mean()
    argument = call.args[0].type
    total = present.to_physical().cast(pl.Int128).sum() * 10 ** (call.type.scale - argument.scale)
    count = present.len().cast(pl.Int128)
    size = total.abs()
    rounded = size // count + (size % count >= count - size % count).cast(pl.Int128)
    rounded = pl.when(total < 0).then(pl.lit(0, dtype=pl.Int128) - rounded).otherwise(rounded)
    return pl.when(count > 0).then(rounded).reinterpret(dtype=call.type.to_polars())


__all__ = [
    "AGGREGATES",
    "AGGREGATE_SYNONYMS",
    "Aggregate",
    "AggregateCall",
    "Call",
    "Reduction",
    "aggregate_expression",
    "is_kernel",
    "parse_reduction",
]
