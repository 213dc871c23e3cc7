"""Models that `dd import dbt` imports hold the values that DuckDB computes, function by function; those that may differ are left out."""

# ruff: noqa: DTZ001 - the timestamps of the models have no zone

import copy
import datetime as dt
import json
from decimal import Decimal

import duckdb
import pytest

from tests.draws import chance
from tests.harness import ROOT, contents

COMPILED = json.loads((ROOT / "fixtures/dbt/target/manifest.json").read_text())
RESULTS = (ROOT / "fixtures/dbt/target/run_results.json").read_text()
COLUMNS = {"id": "int64", "a": "datetime[us]", "b": "datetime[us]", "s": "string?", "f": "float64?", "m": "decimal(12, 2)?", "n": "int64?", "d": "date"}  # fmt: skip
TABLE = "id bigint, a timestamp, b timestamp, s varchar, f double, m decimal(12, 2), n bigint, d date"
VALUES = [
    *("n / 4", "m / 3", "m / n", "(m + n) / 7 * 2", "n // 4", "n % 3", "f / 2", "-n / 2"),
    *("date_diff('hour', a, b)", "datediff('day', a, b)", "date_diff('month', a, b)", "date_sub('month', a, b)"),
    *("regexp_replace(s, '[0-9]', '#')", "regexp_extract(s, '[0-9]+')", "regexp_replace(s, '[a-z]', '', 'g')"),
    *("substring(s, -2)", "substring(s, 0, 2)", "cast(f as bigint)", "try_cast(s as int8)", "try_cast(s as integer)"),
    *(
        "md5(cast(id as text) || '-' || cast(a as text))",
        "concat(s, n)",
        "greatest(n, id)",
        "least(f, n)",
        "cast(m as text)",
    ),
    *("d + interval '1' month", "d - interval 1 day", "d - date '2024-01-01'", "a - interval '36' hour", "d + 3"),
    *("date_trunc('month', d)", "date_trunc('week', a)", "extract(dow from d)", "strftime(a, '%Y-%m')", "last_day(d)"),
    *(
        "round(m, 1)",
        "round(f)",
        "floor(f)",
        "cast(f as decimal(12, 1))",
        "cast(s as varchar(2))",
        "upper(s)",
        "split_part(s, '-', 1)",
    ),
    *(
        "cast(a as date)",
        "cast(d as timestamp)",
        "cast(n as double) / 3",
        "coalesce(f, m)",
        "n is distinct from id",
        "cast(n as float)",
    ),
    *(
        "left(s, 2)",
        "regexp_matches(s, '^[a-z]')",
        "length(s)",
        "nullif(n, 1)",
        "case when m > 1 then 'x' else 'y' end",
        "s like 'a%'",
    ),
]
GROUPS = [
    *(
        "avg(m)",
        "avg(n)",
        "avg(distinct n)",
        "avg(f)",
        "sum(m) / count(*)",
        "sum(m)",
        "min(s)",
        "max(d)",
        "count(distinct s)",
    ),
    *(
        "avg(m) filter (where n > 1)",
        "median(cast(m as double))",
        "stddev(f)",
        "max_by(s, id)",
        "string_agg(s, ',' order by id)",
    ),
    *("sum(n) / sum(id)", "avg(m) + 1", "bool_or(n > 2)", "mode(n)"),
]
WINDOWS = [
    *("avg(m) over (partition by n)", "sum(m) over (order by id)", "lag(m) over (order by id) / 2"),
    *(
        "row_number() over (partition by n order by id desc)",
        "avg(m) over (order by id rows between 2 preceding and current row)",
    ),
    *("first_value(s) over (partition by n order by id)", "ntile(3) over (order by id)", "rank() over (order by m)"),
]
LEFT_OUT = ["corr(f, n)", "median(m)", "quantile_cont(m, 0.5)", "regr_slope(f, n)", "array_to_string(list(s), ',')"]


def rows():
    rng = chance("dbt meaning")
    found = []
    for at in range(60):
        a = dt.datetime(2024, 2, 28, 23, 59) + dt.timedelta(
            minutes=rng.randrange(-90_000, 90_000), seconds=rng.choice([0, 0.5])
        )
        b = a + dt.timedelta(minutes=rng.randrange(-9000, 9000))
        s = rng.choice(["a1b2", "x-y", "300", "-7", "ß a", "3000000000", None, "12"])
        f = rng.choice([0.5, 1.5, 2.5, -0.5, 1e3, 0.1, None])
        m = rng.choice([Decimal("1.25"), Decimal("0.10"), Decimal("-3.33"), Decimal("99.99"), None])
        found.append((at + 1, a, b, s, f, m, rng.choice([1, 2, 3, 7, None]), a.date()))
    return found


def written(some):
    lines = [",".join("" if each is None else str(each) for each in row) for row in some]
    return "\n".join([",".join(COLUMNS), *lines]) + "\n"


@pytest.fixture
def models():
    """Return models by their names: one for each expression."""
    source = '"shop"."raw"."t"'
    found = {f"v{at}": f"select id, {each} as x from {source}" for at, each in enumerate(VALUES + WINDOWS)}
    found |= {f"g{at}": f"select n as id, {each} as x from {source} group by n" for at, each in enumerate(GROUPS)}
    return found | {
        f"left{at}": f"select n as id, {each} as x from {source} group by n" for at, each in enumerate(LEFT_OUT)
    }


def project(folder, models):
    """Write a project as dbt compiles it, with one source over CSV files, and metrics."""
    source = copy.deepcopy(next(iter(COMPILED["sources"].values())))
    source |= {
        "name": "t",
        "identifier": "t",
        "unique_id": "source.shop.raw.t",
        "relation_name": '"shop"."raw"."t"',
        "schema": "raw",
    }
    source |= {"columns": {}, "meta": {"dd": {"path": "proj/raw/", "format": "append", "columns": COLUMNS}}}
    source["config"] = {**source.get("config", {}), "meta": source["meta"]}
    plain, nodes = COMPILED["nodes"]["model.shop.customer_orders"], {}
    for name, sql in models.items():
        node = copy.deepcopy(plain) | {
            "name": name,
            "alias": name,
            "unique_id": f"model.shop.{name}",
            "compiled_code": sql,
        }
        node |= {
            "relation_name": f'"shop"."main"."{name}"',
            "depends_on": {"macros": [], "nodes": ["source.shop.raw.t"]},
        }
        node |= {"original_file_path": f"models/{name}.sql", "compiled_path": f"target/compiled/{name}.sql"}
        nodes[node["unique_id"]] = node
    apart = {
        "metrics": {"a": {"name": "a"}, "b": {"name": "b"}},
        "semantic_models": {"c": {"name": "c"}},
        "saved_queries": {},
    }
    tree = (
        COMPILED | {"nodes": nodes, "sources": {"source.shop.raw.t": source}, "unit_tests": {}, "exposures": {}} | apart
    )
    (folder / "proj/target").mkdir(parents=True)
    (folder / "proj/target/manifest.json").write_text(json.dumps(tree))
    (folder / "proj/target/run_results.json").write_text(RESULTS)


def plain(value):
    """Return a value without its type, as far as types may differ: numbers are equal if they are to twelve digits."""
    return float(f"{value:.12g}") if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else value


def sorted_rows(found):
    return sorted(
        (tuple(map(plain, row)) for row in found), key=lambda row: tuple((each is None, str(each)) for each in row)
    )


@pytest.mark.in_turn
def test_each_model_has_the_values_of_duckdb_or_is_left_out(shop, models):
    project(shop.folder, models)
    report = shop("import", "dbt", "proj", "p.yaml", "-o", "json")
    found = json.loads(report.out)
    left = [each["problem"].partition("`")[2].partition("`")[0] for each in found["left_out"]]
    assert sorted(left) == sorted(name for name in models if name.startswith("left")), found["left_out"]
    assert "not imported, as they produce no data: 2 metrics, 1 semantic model" in found["notes"]
    database = duckdb.connect()
    database.execute(f"attach ':memory:' as shop; create schema shop.raw; create table shop.raw.t({TABLE})")
    given = rows()
    for at, some in enumerate((given[:30], given[30:45], given[45:])):
        shop.write(f"proj/raw/{at}.csv", written(some))
        ran = shop("run", "p.yaml")
        assert ran.code == 0, ran.err
        database.executemany("insert into shop.raw.t values (?, ?, ?, ?, ?, ?, ?, ?)", some)
        wrong = []
        for name, sql in models.items():
            if name not in left:
                got = sorted_rows(
                    row for row, count in contents(shop.folder / "out" / name).items() for _ in range(count)
                )
                if got != sorted_rows(database.execute(sql).fetchall()):
                    wrong.append(sql)
        assert not wrong


def test_metrics_alone_are_no_error(shop, models):
    project(shop.folder, {"v0": models["v0"]})
    report = shop("import", "dbt", "proj", "p.yaml")
    assert report.code == 0
    assert report.err.count("metric") == 1
