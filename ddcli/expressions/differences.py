"""What expressions mean elsewhere: a table of those that DuckDB or Spark answers differently, each with its value there."""

from __future__ import annotations

from ddcli.dataclass import dataclass

ERROR = "an error"


@dataclass(frozen=True)
class Difference:
    """An expression, its value here, in DuckDB and in Spark (SQL, or `ERROR`); the functions that it is about, and what to write instead."""

    functions: tuple[str, ...]
    expression: str
    here: str
    duckdb: str
    spark: str
    instead: str


DIFFERENCES = [
    Difference(("/",), "5 / 2", "2", "2.5e0", "2.5e0", "cast(5 as float64) / 2"),
    Difference(("/",), "1 / 0", ERROR, "cast('inf' as float64)", ERROR, "try_divide(1, 0)"),
    Difference(("concat",), "concat('a', null)", "null", "'a'", "null", "concat('a', coalesce(b, ''))"),
    Difference(("greatest",), "greatest(1, null)", "null", "1", "1", "greatest(1, coalesce(b, 1))"),
    Difference(("least",), "least(1, null)", "null", "1", "1", "least(1, coalesce(b, 1))"),
    Difference(
        ("+", "-"),
        "date '2024-01-31' + interval '1' month",
        "date '2024-02-29'",
        "timestamp '2024-02-29 00:00:00'",
        "date '2024-02-29'",
        "cast(day + interval '1' month as timestamp)",
    ),
    Difference(("=",), "'1' = 1", ERROR, "true", "true", "cast('1' as int64) = 1"),
    Difference(("trim",), "trim('xax', 'x')", "'a'", "'a'", "''", "trim(both 'x' from 'xax')"),
    Difference(
        ("sqrt",),
        "sqrt(-1)",
        ERROR,
        "cast('nan' as float64)",
        "cast('nan' as float64)",
        "case when x >= 0 then sqrt(x) end",
    ),
    Difference(("ln",), "ln(0)", ERROR, "cast('-inf' as float64)", "null", "case when x > 0 then ln(x) end"),
    Difference(("substring",), "substring('hello', 0, 2)", "'h'", "'h'", "'he'", "substring('hello', 1, 2)"),
    Difference(("dow",), "dayofweek(date '2024-01-07')", "0", "0", "1", "dow(day) + 1"),
]


def differences_of(name: str) -> list[Difference]:
    """Return the differences of a function, by its name."""
    return [each for each in DIFFERENCES if name in each.functions]
