"""Expressions that `dd import sdp` imports hold Spark's values over random rows, in increments: each function that it lets through is here."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.commands.sdp.functions import REWRITTEN, SAME
from tests.draws import chance

if TYPE_CHECKING:
    from pathlib import Path

ZONE = "Europe/Berlin"
COLUMNS = {"id": "int64", "i": "int64", "n": "int64?", "f": "float64?", "m": "decimal(12, 2)?", "s": "string?", "r": "string?", "d": "date?", "t": "datetime[us]?", "b": "bool?"}  # fmt: skip
SPARK = "id long, i long, n long, f double, m decimal(12,2), s string, r string, d date, t timestamp_ntz, b boolean"
ROWS = [
    *("i / 4", "m / 3", "i % 3", "i div 3", "-i", "n <=> i", "s || r", "i & 3", "~i", "n between 1 and 5", "s like 'a%'", "s ilike 'A%'"),
    *("abs(i)", "round(f)", "round(m, 1)", "floor(f)", "ceil(f)", "ceiling(m)", "sqrt(abs(f))", "power(i, 2)", "pow(i, 2)", "exp(n)", "ln(i * i + 1)"),
    *("log(i * i + 1)", "log(2, i * i + 1)", "log10(i * i + 1)", "sign(f)", "signum(i)", "greatest(i, n)", "least(i, n)", "coalesce(n, i)", "nullif(n, 1)"),
    *("ifnull(n, 1)", "nvl(n, 1)", "nvl2(n, 1, 2)", "if(n > 1, 1, 2)", "isnull(n)", "isnotnull(n)", "bit_count(i)", "pi()", "cbrt(i)", "mod(i, 3)"),
    *("hex(i * i)", "bin(i * i)", "try_add(i, n)", "try_subtract(i, n)", "try_multiply(i, n)", "try_divide(i, n)"),
    *("lower(s)", "lcase(s)", "length(s)", "char_length(s)", "character_length(s)", "octet_length(s)", "trim(s)", "ltrim(s)", "rtrim(s)", "btrim(s)"),
    *("substring(s, 2, 3)", "substr(s, -2)", "left(s, 2)", "right(s, 2)", "concat_ws('-', s, r)", "replace(s, 'b', 'X')", "replace(s, 'b')", "reverse(s)"),
    *("repeat(s, 2)", "lpad(s, 5, '*')", "rpad(s, 5, '*')", "instr(s, 'b')", "locate('b', s)", "position('b' in s)", "split(s, 'b')", "split_part(s, ',', 2)"),
    *("regexp_extract(s, '([a-z])([0-9])')", "regexp_extract(s, '[0-9]+', 0)", "regexp_replace(s, '[0-9]', '#')", "regexp_like(s, '^[a-z]')"),
    *("startswith(s, 'a')", "endswith(s, 'b')", "contains(s, 'b')", "ascii(s)", "chr(65)", "md5(s)", "translate(s, 'ab', 'x')", "space(3)", "hex(s)"),
    *("year(d)", "month(d)", "day(d)", "dayofmonth(d)", "dayofyear(d)", "weekofyear(d)", "quarter(d)", "last_day(d)", "date_add(d, 3)", "date_sub(d, 3)"),
    *("add_months(d, 1)", "make_date(2024, 3, 31)", "extract(year from d)", "date_part('month', d)", "d > date '2024-03-01'", "hour(t)", "minute(t)", "second(t)"),
    *("hour(cast(t as timestamp))", "cast(cast(t as timestamp) as date)", "date_trunc('month', d)", "date_trunc('day', t)", "date_trunc('hour', cast(t as timestamp))"),
    *("cast(t as timestamp) + interval 1 day", "cast(t as timestamp) > timestamp '2024-03-31 03:00:00'", "cast(d as timestamp)", "cast(t as date)"),
    *("cast(i as string)", "cast(m as double)", "cast(i as decimal(12, 2))", "cast(b as int)", "try_cast(s as int)", "try_cast(s as date)", "cast(m as string)"),
    *("array(i, 7)[0]", "array(i, 7)[i - i]", "size(split(s, ','))", "cardinality(split(s, ','))", "array_min(array(i, n))", "array_max(array(i, n))"),
    *("array_sort(array(i, n))", "array_join(split(s, ','), '-')", "named_struct('a', i).a"),
    *("row_number() over (partition by n order by id)", "rank() over (order by d)", "dense_rank() over (order by s desc)", "percent_rank() over (order by id)"),
    *("cume_dist() over (order by d)", "ntile(3) over (order by id)", "lag(m) over (order by id)", "lead(m, 2) over (partition by n order by id)"),
    *("first_value(s) over (partition by n order by id)", "last_value(s) over (order by id)", "nth_value(s, 2) over (order by id)"),
]  # fmt: skip
GROUPS = [
    *("count(*)", "count(distinct s)", "count_if(n > 1)", "sum(m)", "avg(m)", "mean(n)", "min(s)", "max(d)", "stddev(f)", "stddev_samp(f)", "stddev_pop(f)"),
    *("variance(f)", "var_pop(n)", "var_samp(n)", "median(f)", "percentile(f, 0.3)", "percentile_cont(0.3) within group (order by f)"),
    *("percentile_disc(0.3) within group (order by f)", "corr(f, i)", "covar_pop(f, i)", "covar_samp(f, i)", "regr_slope(f, i)", "regr_count(f, i)"),
    *("bool_and(b)", "bool_or(b)", "every(b)", "any(b)", "any_value(n)", "approx_count_distinct(n)", "mode(n)", "sum(n) filter (where b)"),
    *("listagg(s, ',') within group (order by id)", "string_agg(s, ',') within group (order by id)"),
]  # fmt: skip
UNTRIED = {"current_date", "current_timestamp", "now", "max_by", "min_by", "some"}
"""Those that change by themselves, and those that the import refuses for other reasons."""


def test_each_function_is_tried() -> None:
    written = " ".join([*ROWS, *GROUPS])
    assert not [name for name in (SAME | REWRITTEN) - UNTRIED if f"{name}(" not in written]


def rows() -> list[tuple[Any, ...]]:
    rng = chance("sdp meaning")
    words = [
        "a",
        "a1b2",
        "x-yb",
        "Hello World",
        "a,b,,c",
        "  pad ",
        "Ab_c",
        "12",
        "-5",
        "2024-03-31",
        "true",
        "aXbXc",
        "naïve é",
    ]
    near = dt.datetime(2024, 3, 30, 12)  # noqa: DTZ001
    found = []
    for at in range(40):
        row: list[Any] = [
            rng.choice([0, 1, -1, 2, 7, -8, 12345]),
            rng.choice([0, 1, 2, -3, 5, 10]),
            rng.choice([0.0, 0.5, 1.5, -2.5, 2.675, -1234.5678]),
        ]
        row += [
            rng.choice([Decimal("0.00"), Decimal("1.25"), Decimal("-2.50"), Decimal("999.99")]),
            rng.choice(words),
            rng.choice(words),
        ]
        row += [
            near.date() + dt.timedelta(days=rng.randrange(-400, 400)),
            near + dt.timedelta(minutes=30 * rng.randrange(-60, 60)),
            rng.random() < 0.5,
        ]
        found.append((at, row[0], *(None if rng.random() < 0.1 else each for each in row[1:])))
    return found


def plain(value: Any) -> Any:
    """Return a value without its type, as far as types may differ: numbers to twelve digits, instants in UTC."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return "nan" if math.isnan(value) else float(f"{value:.12g}") + 0.0  # no -0.0
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def held(folder: Path) -> Counter[tuple[int, str]]:
    """Return the contents of an output's log."""
    found = Counter[tuple[int, str]]()
    for key, value, diff in pl.read_parquet(folder / "*.parquet").select("id", "x", "diff").rows():
        found[key, repr(plain(value))] += diff
    return +found


def field(value: Any) -> str:
    return "" if value is None else f'"{value}"'.replace("True", "true").replace("False", "false")


def test_values_are_those_of_spark(spark: Any, shop: Any) -> None:
    models = {f"r{at}": f"select id, {each} as x from t" for at, each in enumerate(ROWS)}
    models |= {f"g{at}": f"select n as id, {each} as x from t group by n" for at, each in enumerate(GROUPS)}
    given = json.dumps({"path": "t/", "format": "append", "columns": COLUMNS})
    settings = json.dumps({"dd.inputs.t": given, "spark.sql.session.timeZone": ZONE})
    shop.write(
        "p/spark-pipeline.yml",
        f"name: p\nstorage: s\nlibraries: [{{glob: {{include: sql/**}}}}]\nconfiguration: {settings}\n",
    )
    shop.write("p/sql/all.sql", ";\n".join(f"create materialized view {name} as {sql}" for name, sql in models.items()))
    report = shop("import", "sdp", "p", "-o", "json")
    assert report.code == 0, json.loads(report.out)["left_out"]
    every = rows()
    from pyspark.sql import SparkSession

    assert spark
    spark = SparkSession.builder.getOrCreate()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    try:
        for at, some in enumerate((every[:25], every[25:])):
            shop.write(
                f"p/t/{at}.csv", "\n".join([",".join(COLUMNS), *(",".join(map(field, row)) for row in some)]) + "\n"
            )
            ran = shop("run", "p/dd.yaml")
            assert ran.code == 0, ran.err
        spark.createDataFrame(every, SPARK).coalesce(1).createOrReplaceTempView("t")
        wrong = []
        for name, sql in models.items():
            kind = spark.sql(sql).schema["x"].dataType.simpleString()
            asked = f"select id, unix_micros(x) as x from ({sql})" if kind == "timestamp" else sql
            wanted = {row["id"]: row["x"] for row in spark.sql(asked).collect()}
            if kind == "timestamp":
                epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
                wanted = {
                    key: None if each is None else epoch + dt.timedelta(microseconds=each)
                    for key, each in wanted.items()
                }
            if held(shop.folder / "p/out" / name) != Counter((key, repr(plain(each))) for key, each in wanted.items()):
                wrong.append(sql)
        assert not wrong
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
