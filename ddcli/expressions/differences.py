"""Differences of expressions elsewhere: a table of those that have another value in DuckDB or Spark, each with its value there."""

from __future__ import annotations

from ddcli.dataclass import dataclass

ERROR = "an error"


@dataclass(frozen=True)
class Elsewhere:
    """An expression, its value here, in DuckDB and in Spark (SQL, or `ERROR`); the functions in it, a replacement, and the reason for the difference."""

    functions: tuple[str, ...]
    expression: str
    here: str
    duckdb: str
    spark: str
    instead: str
    reason: str


SAFER = "an error is safer"
AGREED = "Postgres and Spark agree"
DIFFERENCES = [
    Elsewhere(("/",), "1 / 0", ERROR, "cast('inf' as float64)", ERROR, "try_divide(1, 0)", SAFER),
    Elsewhere(("sqrt", "asin", "acos", "power"), "sqrt(-1)", ERROR, "cast('nan' as float64)", "cast('nan' as float64)", "case when x >= 0 then sqrt(x) end", SAFER),
    Elsewhere(("ln", "log", "log2", "log10"), "ln(0)", ERROR, "cast('-inf' as float64)", "null", "case when x > 0 then ln(x) end", SAFER),
    Elsewhere(("sum", "list_sum"), "list_sum([9223372036854775807, 1])", ERROR, "9223372036854775808", ERROR, "sum(cast(x as decimal(38, 0)))", SAFER),
    Elsewhere(("make_date", "+", "-"), "year(date '9999-12-31' + 1)", ERROR, "10000", "10000", "case when day < date '9999-12-31' then day + 1 end", SAFER),
    Elsewhere(("=",), "'1' = 1", ERROR, "true", "true", "cast('1' as int64) = 1", SAFER),
    Elsewhere((), "cast('1.5' as bigint)", ERROR, "2", ERROR, "cast(cast('1.5' as float64) as bigint)", AGREED),
    Elsewhere(("/", "avg"), "2.0 / 3", "0.666667", "0.6666666666666666e0", "0.666667", "cast(2.0 as float64) / 3", "a decimal stays exact, as in Postgres and Spark"),
    Elsewhere(("median", "quantile_cont"), "median(1.50)", "1.5e0", "1.50", "1.5e0", "cast(median(x) as decimal(12, 2))", AGREED),
    Elsewhere(("corr", "regr_slope"), "corr(1, 1)", "null", "cast('nan' as float64)", "null", "coalesce(corr(y, x), cast('nan' as float64))", AGREED),
    Elsewhere(("array_to_string", "list_aggregate"), "array_to_string([cast(null as varchar)], ',')", "''", "null", "''", "nullif(array_to_string(x, ','), '')", AGREED),
    Elsewhere((), "cast(cast(0.5 as decimal(1, 1)) as varchar)", "'0.5'", "'.5'", "'0.5'", "ltrim(cast(x as varchar), '0')", AGREED),
    Elsewhere(("reverse",), "ascii(reverse('e' || chr(769)))", "769", "101", "769", "reverse(text)", AGREED),
    Elsewhere(("list_distinct", "list_intersect", "list_except"), "list_distinct([1, 2])[1]", "1", "2", "1", "list_sort(list_distinct(x))", "the order there is no function of the list"),
    Elsewhere(("json_extract_string", "json_extract"), """json_extract_string('{"a": 1e3}', '$.a')""", "'1e3'", "'1000.0'", "'1000.0'", "cast(cast(x ->> '$.a' as float64) as string)", "numbers keep their digits"),
]  # fmt: skip


def differences_of(name: str) -> list[Elsewhere]:
    """Return the differences of a function, by its name."""
    return [each for each in DIFFERENCES if name in each.functions]
