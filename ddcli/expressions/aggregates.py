"""Aggregates: the table, and the general ones as polars expressions.

A reduction is a set of aggregate calls and an expression over their results, the columns `$0`, `$1` ... A collection is a multiset
without an order, so an aggregate whose result depends on the order of rows must have `order by`; ties are broken by the value, so that the
result is unique. Nulls are ignored as in SQL; without any value the result is null (0 for counts).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.coerce import BOOL, FLOAT64, INT64, decimal_type
from ddcli.expressions.tree import Expression, Literal
from ddcli.expressions.types import MAX_PRECISION, Type

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate over a group's rows. `order_by` holds (key, descending); `type` is nullable exactly if a result may be null."""

    function: str
    args: tuple[Expression, ...]
    distinct: bool
    order_by: tuple[tuple[Expression, bool], ...]
    type: Type

    def columns(self) -> frozenset[str]:
        """Return the names of the columns it reads."""
        parts = [*self.args, *(key for key, _ in self.order_by)]
        return frozenset().union(*(part.columns() for part in parts))

    @property
    def values(self) -> tuple[Expression, ...]:
        """The arguments that differ from row to row, the first ones: not a fraction, or a separator."""
        return self.args if AGGREGATES[self.function].accepts == "numbers" else self.args[:1]

    @property
    def is_listed(self) -> bool:
        """True for a quantile of a list of fractions, which are the arguments behind the first one."""
        return self.function.startswith("quantile") and self.type.kind == "list"

    def result(self, kind: Type) -> Type:
        """Return the type of the same aggregate over values of another type."""
        return result_type(self.function, kind, listed=self.is_listed, limited=len(self.args) > 1)

    def text(self) -> str:
        """Return canonical SQL."""
        inside = ", ".join(arg.text() for arg in self.args) or "*"
        if self.is_listed:
            inside = f"{self.args[0].text()}, [{', '.join(arg.text() for arg in self.args[1:])}]"
        if self.function == "array_agg" and self.args[1:]:
            return f"{'max' if self.order_by[0][1] else 'min'}({inside})"
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
    """One aggregate of the table. `accepts` names the kinds of argument; `ordered`: it needs `order by`."""

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
    Aggregate("count", "count(*), count([distinct] x), count_if(condition)", "Number of rows, of values that are not null, or of rows for which a condition is true.", "any", _always(INT64), takes_distinct=True),
    Aggregate("sum", "sum([distinct] x)", "Sum: int64 of integers (overflow is an error), decimal(38, s) of decimals, float64 of floats, exact and rounded once.", "summable", _sum, takes_distinct=True),
    Aggregate("avg", "avg([distinct] x)", "Mean: float64, finite if the mean is; of decimals a decimal with at least 6 digits after the point, rounded half away from zero.", "summable", _average, takes_distinct=True),
    Aggregate("min", "min(x), min(x, n)", "Smallest value; NaN is the largest number. With a constant n the list of the n smallest, in their order; null if there is no value.", "ordered", _same, takes_distinct=True),
    Aggregate("max", "max(x), max(x, n)", "Largest value; NaN is the largest number. With a constant n the list of the n largest, from the largest on.", "ordered", _same, takes_distinct=True),
    Aggregate("bool_and", "bool_and(x)", "True if x is true in every row. Also `every`.", "bool", _if_any(BOOL), takes_distinct=True),
    Aggregate("bool_or", "bool_or(x)", "True if x is true in some row. Also `any`.", "bool", _if_any(BOOL), takes_distinct=True),
    Aggregate("bit_and", "bit_and([distinct] x)", "Bitwise and of integers.", "integer", _if_any(INT64), takes_distinct=True),
    Aggregate("bit_or", "bit_or([distinct] x)", "Bitwise or of integers.", "integer", _if_any(INT64), takes_distinct=True),
    Aggregate("bit_xor", "bit_xor([distinct] x)", "Bitwise exclusive or of integers.", "integer", _if_any(INT64), takes_distinct=True),
    Aggregate("product", "product([distinct] x)", "Product, a float: from the smallest value to the largest.", "number", _maybe_float, takes_distinct=True),
    Aggregate("first", "first(x order by y [desc], ...)", "x in the first row by that order, null if it is null there; among equal rows the smallest x. A null key is last, unless `nulls first` is written.", "ordered", _same, ordered=True),
    Aggregate("last", "last(x order by y [desc], ...)", "x in the last row by that order; among equal rows the largest x.", "ordered", _same, ordered=True),
    Aggregate("median", "median(x)", "The middle value, or the mean of the two middle ones; NaN is the largest number.", "number", _maybe_float),
    Aggregate("quantile_cont", "quantile_cont(x, fraction)", "The value below which that constant fraction of the values is, interpolated. Of a list of fractions the list of these values.", "number", _maybe_float, args=2),
    Aggregate("quantile_disc", "quantile_disc(x, fraction)", "The smallest value with at least that constant fraction of the values at or below it. Of a list of fractions the list of these values.", "ordered", _same, args=2),
    Aggregate("stddev_samp", "stddev_samp(x)", "Standard deviation of a sample; null for fewer than two values. Also `stddev`.", "number", _always(FLOAT64.or_null())),
    Aggregate("stddev_pop", "stddev_pop(x)", "Standard deviation of the whole.", "number", _maybe_float),
    Aggregate("var_samp", "var_samp(x)", "Variance of a sample; null for fewer than two values. Also `variance`.", "number", _always(FLOAT64.or_null())),
    Aggregate("var_pop", "var_pop(x)", "Variance of the whole; NaN with an infinity.", "number", _maybe_float),
    Aggregate("covar_pop", "covar_pop(y, x)", "Covariance over the rows in which both are not null.", "numbers", _always(FLOAT64.or_null()), args=2),
    Aggregate("covar_samp", "covar_samp(y, x)", "Covariance of a sample; null for fewer than two such rows.", "numbers", _always(FLOAT64.or_null()), args=2),
    Aggregate("corr", "corr(y, x)", "Correlation, from -1 to 1; null if y or x is the same in all rows.", "numbers", _always(FLOAT64.or_null()), args=2),
    Aggregate("regr_slope", "regr_slope(y, x)", "Slope of the least-squares line; null if x is the same in all rows.", "numbers", _always(FLOAT64.or_null()), args=2),
    Aggregate("regr_intercept", "regr_intercept(y, x)", "The y of that line at x = 0.", "numbers", _always(FLOAT64.or_null()), args=2),
    Aggregate("regr_r2", "regr_r2(y, x)", "Share of y's variance that the line explains: the square of the correlation; 1 if y is the same in all rows.", "numbers", _always(FLOAT64.or_null()), args=2),
    Aggregate("regr_sxx", "regr_sxx(y, x)", "Sum of the squares of x minus its mean, over the rows in which both are not null. `regr_syy` is the same for y.", "numbers", _always(FLOAT64.or_null()), args=2),
    Aggregate("regr_sxy", "regr_sxy(y, x)", "Sum of the products of x and y, each minus its mean. `regr_count`, `regr_avgx` and `regr_avgy` are count and means of these rows.", "numbers", _always(FLOAT64.or_null()), args=2),
    Aggregate("mode", "mode(x)", "The most frequent value; of several the smallest.", "ordered", _same),
    Aggregate("array_agg", "array_agg(x order by y [desc], ...), array_agg(distinct x order by x)", "All values as a list, nulls included; with `distinct` each once.", "ordered", lambda t: Type("list", inner=t.or_null()), ordered=True, takes_distinct=True),
    Aggregate("string_agg", "string_agg(x, separator = ',' order by y [desc], ...)", "All texts joined by a constant separator; with `distinct` each once.", "string", _same, ordered=True, takes_distinct=True, args=2),
]  # fmt: skip
AGGREGATES: dict[str, Aggregate] = {each.name: each for each in _TABLE}
DISTINCT = {"n_unique", "approx_count_distinct", "approx_distinct"}
"""The names of `count` that count different values: exactly, even if others approximate."""
COUNTED = {"count_if", "countif"}
"""Names of `count` that count the rows for which a condition is true."""
BY_PAIR = {"min_by", "max_by", "arg_min", "arg_max", "argmin", "argmax"}
OF_PAIRS = {"regr_count": ("count", 0), "regr_avgy": ("avg", 0), "regr_avgx": ("avg", 1)}
"""The aggregates of one of two values over the rows in which both are not null: by name, the plain aggregate and the value's index."""
OTHER_NAMES = {
    "bool_and": "every all",
    "bool_or": "any",
    "avg": "mean",
    "stddev_samp": "stddev std",
    "var_samp": "variance var",
    "string_agg": "listagg group_concat",
    "first": "first_value arg_min argmin min_by",
    "last": "last_value arg_max argmax max_by",
    "array_agg": "list",
    "min": "any_value arbitrary",
    "quantile_cont": "percentile percentile_cont",
    "quantile_disc": "percentile_disc quantile",
    "regr_sxx": "regr_syy",
}
"""The names of the same aggregates in other databases."""
AGGREGATE_SYNONYMS = {
    **{other: name for name, others in OTHER_NAMES.items() for other in others.split()},
    **dict.fromkeys([*DISTINCT, *COUNTED], "count"),
    **{name: meant for name, (meant, _) in OF_PAIRS.items()},
}


def result_type(function: str, kind: Type, *, listed: bool = False, limited: bool = False) -> Type:
    """Return the type of an aggregate of values of a type: `listed` quantiles have a list of fractions, a `limited` list a number of elements."""
    found = AGGREGATES[function].result(kind)
    if function == "array_agg" and limited:
        return found.or_null(kind.nullable)
    return Type("list", found.nullable, inner=found.or_null()) if listed else found


def aggregate_expression(call: AggregateCall) -> pl.Expr:
    """Return the polars expression of a call, to be used in `group_by(...).agg(...)`.

    The frame holds a group's rows with columns `a0`, `a1` ... (the call's arguments) and `o0`, `o1` ... (its order keys), each row
    REPEATED by its multiplicity, and SORTED within the group by the order keys (null being the largest: last ascending,
    first descending), then by `a0`, `a1` ... ascending, nulls last. So the result depends on the multiset alone.
    Sums and means of floats have kernels, distinct or not. Sums of integers are exact in 128 bits and null on overflow of the result
    type, which the caller must distinguish from a null by the values in `a0`.
    """
    import polars as pl

    value = pl.col("a0")
    present = value.drop_nulls()
    if call.distinct:
        value, present = (each.unique(maintain_order=True) for each in (value, present))
    if AGGREGATES[call.function].accepts == "numbers":
        return _of_pairs(call.function)
    if call.function in ("count", "sum", "avg", "min", "max"):
        return _repeatable(call, present)
    ordered = present.sort()
    simple: dict[str, Callable[[], pl.Expr]] = {
        # polars' `all` and `any` over no rows are true and false; ours are null.
        "bool_and": lambda: pl.when(present.len() > 0).then(present.all()),
        "bool_or": lambda: pl.when(present.len() > 0).then(present.any()),
        "bit_and": present.bitwise_and,
        "bit_or": present.bitwise_or,
        "bit_xor": present.bitwise_xor,
        "product": lambda: ordered.cum_prod().last(),
        "first": value.first,
        "last": value.last,
        "median": lambda: _interpolated(present, 0.5),
        "quantile_cont": lambda: _of_fractions(call, present, lambda fraction: _interpolated(present, fraction)),
        "quantile_disc": lambda: _of_fractions(
            call,
            present,
            lambda fraction: ordered.get(
                ((present.len() * fraction).ceil().cast(pl.Int64) - 1).clip(0, None), null_on_oob=True
            ),
        ),
        "stddev_samp": lambda: _spread(present, 1, root=True),
        "stddev_pop": lambda: _spread(present, 0, root=True),
        "var_samp": lambda: _spread(present, 1, root=False),
        "var_pop": lambda: _spread(present, 0, root=False),
        "mode": lambda: present.mode().sort().first(),
        "array_agg": lambda: _first_of(present, call) if call.args[1:] else value.implode(),
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
    # polars ignores NaN in min and max; here it is the largest value, so the sorted order decides.
    return present.sort().first() if call.function == "min" else present.sort().last()


def _interpolated(present: pl.Expr, fraction: float) -> pl.Expr:
    """Return the float at a fraction of the way through sorted floats: between two of them in proportion.

    That is so where their difference is beyond the floats, too: there polars returns NaN or an infinity.
    """
    import polars as pl

    position = (present.len().cast(pl.Float64) - 1) * fraction
    share = position - position.floor()
    low, high = (present.quantile(fraction, side) for side in ("lower", "higher"))
    apart = high - low
    within = pl.when(apart.is_finite()).then(low + apart * share).otherwise(low * (1 - share) + high * share)
    return pl.when((share == 0) | (low == high)).then(low).otherwise(within)


def _spread(present: pl.Expr, ddof: int, *, root: bool) -> pl.Expr:
    """Return a variance or standard deviation. Values are scaled, since squares of very large or small ones would leave the floats.

    It is 0 for equal values, where polars may return a little more, and null for values with an infinity.
    """
    import polars as pl

    size = present.abs().max()
    scale = pl.when(size > 2.0**500).then(2.0**-600).when(size < 2.0**-500).then(2.0**600).otherwise(1.0)
    scaled = present * scale
    computed = scaled.std(ddof=ddof) / scale if root else scaled.var(ddof=ddof) / scale / scale
    known = pl.when(~present.is_finite().all()).then(math.nan).when(present.min() == present.max()).then(0.0)
    return pl.when(present.len() > ddof).then(known.otherwise(computed))


def _of_pairs(function: str) -> pl.Expr:
    """Return an aggregate of pairs of floats, over the rows in which both are not null.

    It is null if a value is infinite. The mean of equal values may be another float: their distances from it are 0. Very large and very
    small values are computed 600 binary places lower or higher, as their squares would leave the floats.
    """
    import polars as pl

    y, x = pl.col("a0"), pl.col("a1")
    both = y.is_not_null() & x.is_not_null()
    count = both.sum()

    def places(value: pl.Expr) -> pl.Expr:
        size = value.abs().max()
        return pl.when(size > 2.0**400).then(600).when(size < 2.0**-400).then(-600).otherwise(0)

    def moved(value: pl.Expr, by: pl.Expr) -> pl.Expr:
        half = pl.lit(2.0).pow(by / 2)  # in two steps, as the power itself may be no float
        return value * half * half

    def apart(value: pl.Expr) -> pl.Expr:
        known = pl.when(~value.is_finite().all()).then(math.nan).when(value.min() == value.max()).then(0.0)
        distance = value - value.mean()
        return known.otherwise(distance - distance.mean())  # the mean has been rounded

    up, right = (places(value.filter(both)) for value in (y, x))
    y, x = moved(y.filter(both), -up), moved(x.filter(both), -right)
    xx, yy, xy = (
        (one * other).sum() for one, other in ((apart(x), apart(x)), (apart(y), apart(y)), (apart(y), apart(x)))
    )
    formulas: dict[str, Callable[[], pl.Expr]] = {
        "covar_pop": lambda: pl.when(count > 0).then(moved(xy / count, up + right)),
        "covar_samp": lambda: pl.when(count > 1).then(moved(xy / (count - 1), up + right)),
        "corr": lambda: pl.when((xx != 0) & (yy != 0)).then((xy / (xx.sqrt() * yy.sqrt())).clip(-1, 1)),
        "regr_slope": lambda: pl.when(xx != 0).then(moved(xy / xx, up - right)),
        "regr_intercept": lambda: pl.when(xx != 0).then(moved(y.mean() - xy / xx * x.mean(), up)),
        "regr_r2": lambda: pl.when(xx != 0).then(
            pl.when((yy == 0) & xx.is_finite()).then(1.0).otherwise(xy / xx * (xy / yy))
        ),
        "regr_sxx": lambda: pl.when(count > 0).then(moved(xx, right + right)),
        "regr_sxy": lambda: pl.when(count > 0).then(moved(xy, up + right)),
    }
    return formulas[function]()


def _of_fractions(call: AggregateCall, present: pl.Expr, quantile: Callable[[float], pl.Expr]) -> pl.Expr:
    """Return the quantile of a call's fraction, or the list of the quantiles of several."""
    import polars as pl

    found = [quantile(each.value) for each in call.args[1:]]  # type: ignore[attr-defined]
    return pl.when(present.len() > 0).then(pl.concat_list(found)) if call.is_listed else found[0]


def _first_of(present: pl.Expr, call: AggregateCall) -> pl.Expr:
    """Return the list of as many of the ordered values as the call says, null for none."""
    import polars as pl

    return pl.when(present.len() > 0).then(present.head(call.args[1].value).implode())  # type: ignore[attr-defined]


def _separator(call: AggregateCall) -> str:
    literal = call.args[1]
    assert isinstance(literal, Literal)
    return str(literal.value)


def _sum_expression(present: pl.Expr, call: AggregateCall, dtype: pl.DataType) -> pl.Expr:
    import polars as pl

    if call.type.kind == "duration":
        total = present.sum()
    elif call.type.kind == "decimal":
        total = _decimal(_total(present), dtype)
    else:
        total = present.cast(pl.Int128).sum().cast(dtype, strict=False)
    return pl.when(present.len() > 0).then(total)


def _average_expression(present: pl.Expr, call: AggregateCall) -> pl.Expr:
    import polars as pl

    if call.type.is_float:
        # Of integers; floats have a kernel.
        return pl.when(present.len() > 0).then(present.cast(pl.Int128).sum().cast(pl.Float64) / present.len())
    if call.type.kind != "decimal":
        return present.mean()
    argument = call.args[0].type
    total = _total(present, 10 ** (call.type.scale - argument.scale))
    count = present.len().cast(pl.Int128)
    size = total.abs()
    rounded = size // count + (size % count >= count - size % count).cast(pl.Int128)
    rounded = pl.when(total < 0).then(pl.lit(0, dtype=pl.Int128) - rounded).otherwise(rounded)
    return _decimal(pl.when(count > 0).then(rounded), call.type.to_polars())


def _total(present: pl.Expr, factor: int = 1) -> pl.Expr:
    """Return the sum of the integers of decimals times a factor, null where 128 bits may not hold it."""
    import polars as pl

    integers = present.to_physical().cast(pl.Int128)
    near = (integers.cast(pl.Float64).sum() * factor).abs() < 2.0**126.9  # then sums that wrap are right in the end
    return pl.when(near).then(integers.sum() * factor)


def _decimal(integer: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return the decimal of a 128-bit integer, null for one with too many digits."""
    import polars as pl

    return pl.when(integer.abs() < 10**MAX_PRECISION).then(integer).reinterpret(dtype=dtype)
