"""Differences of expressions elsewhere: a table of those that have another value in DuckDB or Spark, each with its value there."""

from __future__ import annotations

from ddcli.dataclass import dataclass

ERROR = "an error"


@dataclass(frozen=True)
class Elsewhere:
    """An expression, its value here, in DuckDB and in Spark (SQL, or `ERROR`); the functions in it, and a replacement."""

    functions: tuple[str, ...]
    expression: str
    here: str
    duckdb: str
    spark: str
    instead: str


DIFFERENCES = [
    Elsewhere(("/",), "1 / 0", ERROR, "cast('inf' as float64)", ERROR, "try_divide(1, 0)"),
    Elsewhere(("/",), "1.5 / 2", "0.750000", "0.75e0", "0.750000", "cast(1.5 as float64) / 2"),
    Elsewhere(("avg",), "avg(1.50)", "1.500000", "1.5e0", "1.500000", "avg(cast(x as float64))"),
    Elsewhere(("corr",), "corr(1, 1)", "null", "cast('nan' as float64)", "null", "coalesce(corr(y, x), cast('nan' as float64))"),
    Elsewhere(("regr_slope",), "regr_slope(1, 1)", "null", "cast('nan' as float64)", "null", "coalesce(regr_slope(y, x), cast('nan' as float64))"),
    Elsewhere(("median", "quantile_cont"), "median(1.50)", "1.5e0", "1.50", "1.5e0", "cast(median(x) as decimal(12, 2))"),
    Elsewhere(("=",), "'1' = 1", ERROR, "true", "true", "cast('1' as int64) = 1"),
    Elsewhere(("sqrt",), "sqrt(-1)", ERROR, "cast('nan' as float64)", "cast('nan' as float64)", "case when x >= 0 then sqrt(x) end"),
    Elsewhere(("ln",), "ln(0)", ERROR, "cast('-inf' as float64)", "null", "case when x > 0 then ln(x) end"),
    Elsewhere(("array_to_string",), "array_to_string([cast(null as varchar)], ',')", "''", "null", "''", "nullif(array_to_string(x, ','), '')"),
    Elsewhere(("json_extract_string",), """json_extract_string('{"a": 1e3}', '$.a')""", "'1e3'", "'1000.0'", "'1000.0'", "cast(cast(x ->> '$.a' as float64) as string)"),
]  # fmt: skip


def differences_of(name: str) -> list[Elsewhere]:
    """Return the differences of a function, by its name."""
    return [each for each in DIFFERENCES if name in each.functions]
