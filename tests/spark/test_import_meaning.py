"""Expressions that `dd import sdp` imports hold Spark's values over random rows: each function that it lets through, in increments, and random ones."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import yaml

from ddcli import Dataflow
from ddcli.commands.sdp_translation import REWRITTEN, SAME
from ddcli.errors import DdError
from tests.draws import chance, many
from tests.spark.expressions import expression

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ZONE = "Europe/Berlin"
COLUMNS = {"id": "int64", "i": "int64", "n": "int64?", "k": "int32?", "f": "float64?", "m": "decimal(12, 2)?", "w": "decimal(20, 6)?", "s": "string?", "r": "string?", "d": "date?", "e": "date?", "t": "datetime[us]?", "z": "datetime[us, UTC]?", "b": "bool?"}  # fmt: skip
SPARK = "id long, i long, n long, k int, f double, m decimal(12,2), w decimal(20,6), s string, r string, d date, e date, t timestamp_ntz, z timestamp, b boolean"
ROWS = [
    *("i / 4", "i % 3", "i div 3", "-i", "n <=> i", "s || r", "i & 3", "~i", "n between 1 and 5", "s like 'a%'", "s ilike 'A%'"),
    *("abs(i)", "round(f)", "round(m, 1)", "floor(f)", "ceil(f)", "ceiling(m)", "sqrt(abs(f))", "power(i, 2)", "pow(i, 2)", "exp(n)", "ln(i * i + 1)"),
    *("log(i * i + 1)", "log(2, i * i + 1)", "log10(i * i + 1)", "sign(f)", "signum(i)", "greatest(i, n)", "least(i, n)", "coalesce(n, i)", "nullif(n, 1)"),
    *("ifnull(n, 1)", "nvl(n, 1)", "nvl2(n, 1, 2)", "if(n > 1, 1, 2)", "isnull(n)", "isnotnull(n)", "bit_count(i)", "pi()", "cbrt(i)", "mod(i, 3)"),
    *("hex(i * i)", "bin(i * i)", "try_add(i, n)", "try_subtract(i, n)", "try_multiply(i, n)", "try_divide(i, n)"),
    *("lower(s)", "lcase(s)", "length(s)", "char_length(s)", "character_length(s)", "octet_length(s)", "trim(s)", "ltrim(s)", "rtrim(s)", "btrim(s)"),
    *("substring(s, 2, 3)", "substr(s, -2)", "left(s, 2)", "right(s, 2)", "concat_ws('-', s, r)", "replace(s, 'b', 'X')", "replace(s, 'b')", "reverse(s)"),
    *("repeat(s, 2)", "lpad(s, 5, '*')", "rpad(s, 5, '*')", "instr(s, 'b')", "locate('b', s)", "position('b' in s)", "split(s, 'b')", "split_part(s, ',', 2)"),
    *("regexp_extract(s, '([a-z])([0-9])')", "regexp_extract(s, '[0-9]+', 0)", "regexp_replace(s, '[0-9]', '#')", "regexp_like(s, '^[a-z]')"),
    *("startswith(s, 'a')", "endswith(s, 'b')", "contains(s, 'b')", "ascii(s)", "chr(65)", "md5(s)", "translate(s, 'ab', 'x')", "space(3)", "hex(s)"),
    *("year(d)", "month(d)", "day(d)", "dayofmonth(d)", "dayofyear(d)", "weekofyear(d)", "quarter(d)", "last_day(d)", "datediff(e, d)", "1 -datediff(t, d) * 2", "date_add(d, 3)", "date_sub(d, 3)"),
    *("add_months(d, 1)", "make_date(2024, 3, 31)", "extract(year from d)", "date_part('month', d)", "d > date '2024-03-01'", "hour(t)", "minute(t)", "second(t)"),
    *("hour(cast(t as timestamp))", "cast(cast(t as timestamp) as date)", "date_trunc('month', d)", "date_trunc('day', t)", "date_trunc('hour', cast(t as timestamp))"),
    *("cast(t as timestamp) + interval 1 day", "cast(t as timestamp) > timestamp '2024-03-31 03:00:00'", "cast(d as timestamp)", "cast(t as date)"),
    *("cast(i as string)", "cast(m as double)", "cast(i as decimal(12, 2))", "cast(b as int)", "try_cast(s as int)", "try_cast(s as double)", "cast(m as string)"),
    *("array(i, 7)[0]", "array(i, 7)[i - i]", "size(split(s, ','))", "cardinality(split(s, ','))", "array_min(array(i, n))", "array_max(array(i, n))"),
    *("array_sort(array(i, n))", "array_join(split(s, ','), '-')", "named_struct('a', i).a"),
    *("row_number() over (partition by n order by id)", "rank() over (order by d)", "dense_rank() over (order by s desc)", "percent_rank() over (order by id)"),
    *("cume_dist() over (order by d)", "ntile(3) over (order by id)", "lag(m) over (order by id)", "lead(m, 2) over (partition by n order by id)"),
    *("first_value(s) over (partition by n order by id)", "last_value(s) over (order by id)", "nth_value(s, 2) over (order by id)"),
]  # fmt: skip
GROUPS = [
    *("count(*)", "count(distinct s)", "count_if(n > 1)", "sum(m)", "avg(m)", "mean(n)", "min(s)", "max(d)", "stddev(f)", "stddev_samp(f)", "stddev_pop(f)"),
    *("variance(f)", "var_pop(n)", "var_samp(n)", "median(f)", "percentile(f, 0.3)", "percentile(f, array(0.3, 0.9))[1]", "percentile_cont(0.3) within group (order by f)"),
    *("percentile_disc(0.3) within group (order by f)", "corr(f, i)", "covar_pop(f, i)", "covar_samp(f, i)", "regr_slope(f, i)", "regr_count(f, i)"),
    *("bool_and(b)", "bool_or(b)", "every(b)", "any(b)", "any_value(n)", "approx_count_distinct(n)", "mode(n)", "sum(n) filter (where b)"),
    *("listagg(s, ',') within group (order by id)", "string_agg(s, ',') within group (order by id)"),
]  # fmt: skip
LEFT_OUT = {
    "an interval in Spark": ["d - e", "max(e) over () - d"],
    "a date in Spark": ["d + interval 1 day", "e - interval 2 month", "greatest(d, e) + interval '1' year"],
    "a quotient of decimals": ["m / 3", "i / m", "try_divide(w, i)", "m / sum(m) over (partition by n)"],
    "mean of decimals": ["avg(w) over (partition by n)", "avg(cast(m as decimal(12, 1))) over ()"],
    "more than 38 digits": ["w * w", "w * cast(m as decimal(20, 2))"],
    "cuts in Spark": ["cast(f as bigint)", "cast(m as int)", "try_cast(w as bigint)"],
    "digits that it shows": ["round(f, 2)", "cast(f as decimal(12, 2))"],
    "has another form": ["cast(f as string)", "f || s"],
    "has an offset": ["cast(z as string)"],
    "of other forms": ["try_cast(s as decimal(12, 2))", "try_cast(s as date)", "try_cast(s as timestamp)"],
    "negative number of characters": ["left(s, -1)", "right(s, i)"],
    "position 0": ["substr(s, 0, 2)", "substring(s, i)"],
    "32 bits": ["k << 1", "try_multiply(k, 3)"],
    "seconds are a decimal": ["extract(second from t)", "date_part('seconds', t)"],
}
"""Expressions whose types decide that Spark has other values, by the reason."""
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
    words += [" 12 ", "Infinity", "NaN", "1e3", "1.5", "2024-3-1", ""]
    near = dt.datetime(2024, 3, 30, 12)  # noqa: DTZ001
    found = []
    for at in range(40):
        moment = near + dt.timedelta(minutes=30 * rng.randrange(-60, 60))
        row: list[Any] = [
            *(rng.choice([0, 1, -1, 2, 7, -8, 12345]), rng.choice([0, 1, 2, -3, 5, 10])),
            *(
                rng.choice([0, 1, -2, 100, 2147483647]),
                rng.choice([0.0, 0.5, 1.5, -2.5, 2.675, 1.005, -1234.5678, 1e10]),
            ),
            rng.choice([Decimal("0.00"), Decimal("1.25"), Decimal("-2.50"), Decimal("999.99")]),
            rng.choice([Decimal("0.000000"), Decimal("1.234567"), Decimal("-12345678.500000")]),
            *(rng.choice(words), rng.choice(words), near.date() + dt.timedelta(days=rng.randrange(-400, 400))),
            rng.choice([near.date(), dt.date(2000, 2, 29), dt.date(1970, 1, 1), dt.date(2023, 12, 31)]),
            *(moment + dt.timedelta(seconds=rng.choice([0, 12.345678])), moment.replace(tzinfo=dt.UTC)),
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


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    """Yield a session of Spark in a zone, with the rows as the table `t`."""
    from pyspark.sql import SparkSession

    assert spark
    found = SparkSession.builder.getOrCreate()
    before = found.conf.get("spark.sql.session.timeZone")
    found.conf.set("spark.sql.session.timeZone", ZONE)
    found.createDataFrame(rows(), SPARK).coalesce(1).createOrReplaceTempView("t")
    yield found
    found.conf.set("spark.sql.session.timeZone", before)


def query(expression: str, *, grouped: bool = False) -> str:
    return f"select {'n as id' if grouped else 'id'}, {expression} as x from t{' group by n' if grouped else ''}"


def import_views(shop: Any, models: dict[str, str]) -> dict[str, str]:
    """Import a project of views, and return the reasons for those that are left out."""
    given = json.dumps({"path": "t/", "format": "append", "columns": COLUMNS})
    settings = json.dumps({"dd.inputs.t": given, "spark.sql.session.timeZone": ZONE})
    shop.write(
        "p/spark-pipeline.yml",
        f"name: p\nstorage: s\nlibraries: [{{glob: {{include: sql/**}}}}]\nconfiguration: {settings}\n",
    )
    for name, sql in models.items():
        shop.write(f"p/sql/{name}.sql", f"create materialized view {name} as {sql}")
    report = json.loads(shop("import", "sdp", "p", "-o", "json").out)
    return {each["problem"].split("`")[1]: each["problem"] for each in report["left_out"]}


def of_spark(session: Any, expressions: list[str], *, grouped: bool = False) -> list[Counter[tuple[int, str]]]:
    """Return the values of expressions in Spark, all computed by one query; instants are read by their microseconds."""
    key, group = ("n", " group by n") if grouped else ("id", "")
    values = ", ".join(f"{each} as x{at}" for at, each in enumerate(expressions))
    frame = session.sql(f"select {key} as id, {values} from t{group}")
    names = [name for name in frame.columns if name != "id"]
    instants = {name for name in names if frame.schema[name].dataType.simpleString() == "timestamp"}
    rows = frame.selectExpr("id", *(f"unix_micros({x}) as {x}" if x in instants else x for x in names)).collect()
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

    def value(row: Any, name: str) -> Any:
        found = row[name]
        return epoch + dt.timedelta(microseconds=found) if name in instants and found is not None else found

    return [Counter((row["id"], repr(plain(value(row, name)))) for row in rows) for name in names]


@pytest.mark.in_turn(9)
def test_values_are_those_of_spark(session: Any, shop: Any) -> None:
    models, wanted = {}, {}
    for letter, expressions, grouped in (("r", ROWS, False), ("g", GROUPS, True)):
        names = [f"{letter}{at}" for at in range(len(expressions))]
        models |= {name: query(each, grouped=grouped) for name, each in zip(names, expressions, strict=True)}
        wanted |= dict(zip(names, of_spark(session, expressions, grouped=grouped), strict=True))
    assert import_views(shop, models) == {}
    every = rows()
    for at, some in enumerate((every[:25], every[25:])):
        shop.write(f"p/t/{at}.csv", "\n".join([",".join(COLUMNS), *(",".join(map(field, row)) for row in some)]) + "\n")
        ran = shop("run", "p/dd.yaml")
        assert ran.code == 0, ran.err
    assert not [sql for name, sql in models.items() if held(shop.folder / "p/out" / name) != wanted[name]]


def test_what_types_make_another_value_is_left_out(shop: Any) -> None:
    reasons = [(each, reason) for reason, some in LEFT_OUT.items() for each in some]
    models = {f"v{at}": query(each) for at, (each, _) in enumerate(reasons)}
    left = import_views(shop, models | {"kept": query("i")})
    assert not [
        (each, left.get(f"v{at}")) for at, (each, reason) in enumerate(reasons) if reason not in left.get(f"v{at}", "")
    ]


@pytest.mark.in_turn(9)
def test_random_expressions_have_the_values_of_spark_or_are_left_out(session: Any, shop: Any) -> None:
    """An error here is safer than another value; what fails in Spark has none to compare."""
    from pyspark.errors import PySparkException

    rng = chance("expressions of Spark")
    drawn = {}
    for at in range(many(400)):
        kind = rng.choice(["any"] * 8 + ["aggregate"] * 2 + ["window"])
        drawn[f"v{at}"] = expression(kind, rng), kind == "aggregate"
    models = {name: query(each, grouped=grouped) for name, (each, grouped) in drawn.items()}
    import_views(shop, models)
    collections = yaml.safe_load((shop.folder / "p/dd.yaml").read_text())["collections"]
    wrong, compared, in_spark = [], 0, {}
    for grouped in (False, True):
        names = [name for name in collections if drawn[name][1] == grouped]
        groups = [names[at : at + 20] for at in range(0, len(names), 20)]
        for some in groups:
            try:
                values = of_spark(session, [drawn[name][0] for name in some], grouped=grouped)
                in_spark |= dict(zip(some, values, strict=True))
            except PySparkException:
                groups += [[name] for name in some] if len(some) > 1 else []
    for name, wanted in in_spark.items():
        found, (_, grouped) = collections[name], drawn[name]
        dataflow = Dataflow(timezone=ZONE)
        table = dataflow.input("t", COLUMNS)
        with suppress(DdError):
            output = dataflow.sql(found["sql"], t=table).output()
            for row in rows():
                table.insert(row)
            table.close()
            dataflow.step()
            got = Counter[tuple[int, str]]()
            for (key, value), _, diff in output.updates():
                got[key, repr(plain(value))] += diff
            compared += 1
            if got != wanted:
                wrong.append((models[name], found["sql"], (got - wanted).most_common(1), (wanted - got).most_common(1)))
    assert not wrong
    assert compared > len(models) / 5
