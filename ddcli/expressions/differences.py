"""What expressions mean elsewhere: a table of those that DuckDB or Spark answers differently, each with its value there."""

from __future__ import annotations

from ddcli.dataclass import dataclass

ERROR = "an error"


@dataclass(frozen=True)
class Elsewhere:
    """An expression, its value here, in DuckDB and in Spark (SQL, or `ERROR`); the functions that it is about, and what to write instead."""

    functions: tuple[str, ...]
    expression: str
    here: str
    duckdb: str
    spark: str
    instead: str


DIFFERENCES = [
    Elsewhere(("/",), "5 / 2", "2", "2.5e0", "2.5e0", "cast(5 as float64) / 2"),
    Elsewhere(("/",), "1 / 0", ERROR, "cast('inf' as float64)", ERROR, "try_divide(1, 0)"),
    Elsewhere(("concat",), "concat('a', null)", "null", "'a'", "null", "concat('a', coalesce(b, ''))"),
    Elsewhere(("greatest",), "greatest(1, null)", "null", "1", "1", "greatest(1, coalesce(b, 1))"),
    Elsewhere(("least",), "least(1, null)", "null", "1", "1", "least(1, coalesce(b, 1))"),
    Elsewhere(
        ("+", "-"),
        "date '2024-01-31' + interval '1' month",
        "date '2024-02-29'",
        "timestamp '2024-02-29 00:00:00'",
        "date '2024-02-29'",
        "cast(day + interval '1' month as timestamp)",
    ),
    Elsewhere(
        ("-",),
        "date '2024-01-31' - date '2024-01-01'",
        "interval '30' day",
        "30",
        "interval '30' day",
        "date_diff('day', date '2024-01-01', date '2024-01-31')",
    ),
    Elsewhere((), "cast(0.5e0 as bigint)", "1", "0", "0", "cast(trunc(x) as int64)"),
    Elsewhere(("=",), "'1' = 1", ERROR, "true", "true", "cast('1' as int64) = 1"),
    Elsewhere(("trim",), "trim('xax', 'x')", "'a'", "'a'", "''", "trim(both 'x' from 'xax')"),
    Elsewhere(
        ("sqrt",),
        "sqrt(-1)",
        ERROR,
        "cast('nan' as float64)",
        "cast('nan' as float64)",
        "case when x >= 0 then sqrt(x) end",
    ),
    Elsewhere(("ln",), "ln(0)", ERROR, "cast('-inf' as float64)", "null", "case when x > 0 then ln(x) end"),
    Elsewhere(("substring",), "substring('hello', 0, 2)", "'h'", "'h'", "'he'", "substring('hello', 1, 2)"),
    Elsewhere(("dow",), "dayofweek(date '2024-01-07')", "0", "0", "1", "dow(day) + 1"),
]


def differences_of(name: str) -> list[Elsewhere]:
    """Return the differences of a function, by its name."""
    return [each for each in DIFFERENCES if name in each.functions]
