"""`dd import sdp`: the pipeline holds what the SQL of the project means in Spark, and what can't be imported is listed."""

import json
import shutil
from collections import Counter
from decimal import Decimal

import pytest

from ddcli.commands.sdp.definitions import read_definitions
from ddcli.commands.sdp.translation import read_query
from ddcli.errors import SpecError
from tests.harness import ROOT, contents

PROJECT = ROOT / "fixtures" / "sdp"
SPEC = "name: p\nstorage: s\nlibraries: [{glob: {include: sql/**}}]\n"


@pytest.fixture
def project(shop):
    shutil.copytree(PROJECT, shop.folder / "in/sdp")
    return shop


def imported(shop, *sql, spec=SPEC, code=0):
    """Import a project of some files and return the report, with the text of the pipeline."""
    shop.write("p/spark-pipeline.yml", spec)
    for at, text in enumerate(sql):
        shop.write(f"p/sql/{at}.sql", text)
    result = shop("import", "sdp", "p", "--force", "-o", "json")
    assert result.code == code, result.err
    return json.loads(result.out) | {"text": (shop.folder / "p/dd.yaml").read_text()}


def translated(sql):
    (definition,), errors = read_definitions("f.sql", sql)
    assert not errors
    query = read_query(definition)
    return query.translation({table: "_".join(table) for table in query.tables})


def test_the_example_is_taken_over_and_holds_what_its_queries_mean(project):
    result = project("import", "sdp", "in/sdp", "-o", "json")
    assert result.code == 1
    report = json.loads(result.out)
    left = [(each["file"], each["line"], each["problem"]) for each in report["left_out"]]
    assert left == [
        ("transformations/enriched.py", None, "it is written in Python"),
        (
            "transformations/reports.sql",
            15,
            "materialized view `weekdays`: the week begins with 1 in Spark and with 0 here",
        ),
        ("transformations/reports.sql", 17, "materialized view `busy_days`: it reads `weekdays`, which is left out"),
    ]
    assert (report["inputs"], report["models"]) == (3, 6)
    assert [note.split(":")[0] for note in report["notes"]] == [
        "spark-pipeline.yml",
        "transformations/orders.sql",
    ]
    west = [(1, "ann", "5.00", "paid"), (2, "bob", "7.50", ""), (3, "ann", "2.00", "open")]
    east = [(4, "cid", "1.00", "paid"), (5, "ann", "4.00", "paid"), (6, "bob", "3.00", None)]
    orders = []
    for name, rows in (("west", west), ("east", east)):
        for at, row in enumerate(rows):
            values = ",".join("" if value is None else f'"{value}"' for value in row)
            project.write(f"landing/{name}/{at}.csv", f"id,customer,amount,status\n{values}\n")
        orders += [(at, who, Decimal(amount), status) for at, who, amount, status in rows]
    project.write("landing/customers/1.csv", "customer,region\nann,north\nbob,south\n")
    ran = project("run", "in/sdp/dd.yaml")
    assert ran.code == 0, ran.err
    out = project.folder / "in/sdp/out"
    columns = ("amount", "customer", "id", "status")
    found = contents(out / "orders")
    assert Counter({tuple(map(str, sorted(map(str, row)))): count for row, count in found.items()}) == Counter(
        tuple(sorted(map(str, row))) for row in orders
    ), columns
    means = {region: (count, amount, round(mean, 9)) for region, count, amount, mean in contents(out / "by_region")}
    assert means == {"north": (2, Decimal("9.00"), 4.5), None: (1, Decimal("1.00"), 1.0)}
    # Null is the least status, and of equal ones the greatest id comes first.
    assert set(contents(out / "last_orders")) == {("ann", 3, "open"), ("bob", 6, None), ("cid", 4, "paid")}


@pytest.mark.parametrize(
    ("spark", "ours"),
    [
        ("select `a b`, `c``d`, x from y", 'select "a b", "c`d", x from y'),
        ("select \"it's\", 'q\"' from y", "select 'it''s', 'q\"' from y"),
        ("select 'it''s' from y", "select 'it''s' from y"),
        ("select * from stream(a.b) as s", "select * from a_b as s"),
        ("select * from stream a.b", "select * from  a_b as b"),
        ("select * from a, stream `B`", "select * from a,  b"),
        ("select a from x join stream y on true", "select a from x join  y on true"),
        ("select stream from t", "select stream from t"),
        ("select stream(a) from t", "select stream(a) from t"),
        ("with a as (select 1) select * from a, main.a", "with a as (select 1) select * from a, main_a as a"),
        ("select a, stream(b) from t, stream(u)", "select a, stream(b) from t, u"),
        ("select * from t order by sum(x) over (order by a nulls last), nulls", "select * from t order by sum(x) over (order by a nulls last) nulls first, nulls nulls first"),
        ("select a / b from t", "select a / b from t"),
        ("select a[0], a[b], a['c'] from t", "select a[1], a[(b) + 1], a['c'] from t"),
        ("select regexp_replace(a, 'b', 'c') from t", "select regexp_replace(a, 'b', 'c', 'g') from t"),
        ("select regexp_extract(a, '(b)') from t", "select regexp_extract(a, '(b)', 1) from t"),
        ("select cast(a as timestamp), timestamp '2024-01-01' from t", "select cast(a as timestamptz), timestamptz '2024-01-01' from t"),
        ("select date_trunc('month', a) from t", "select date_trunc('month', cast(a as timestamptz)) from t"),
        ("select split(a, ',')[0] from t", "select split(a, ',')[1] from t"),
        ("select datediff(a, b) - 1 from t", "select (-date_diff('day', a, b)) - 1 from t"),
        ("with a(x, y) as (select 1, 2), b (z) as (select 3) select x from a", "with a(x, y) as (select 1, 2), b (z) as (select 3) select x from a"),
        ("select x.n from (select count(*) from t) as x(n) where (x.n) in (1)", "select x.n from (select count(*) from t) as x(n) where (x.n) in (1)"),
        ("select '/', `/` from t", "select '/', \"/\" from t"),
        ("select * from t order by a", "select * from t order by a nulls first"),
        ("select * from t order by a desc, nvl(b, c) asc, d nulls last limit 2", "select * from t order by a desc nulls last, nvl(b, c) asc nulls first, d nulls last limit 2"),
        ("select sum(a) over (order by b rows 1 preceding) from t", "select sum(a) over (order by b nulls first rows 1 preceding) from t"),
        ("select * from (select a from t order by b limit 1) x", "select * from (select a from t order by b nulls first limit 1) x"),
        ("select '${A}' from t", "select '$${A}' from t"),
    ],
)  # fmt: skip
def test_a_query_means_here_what_it_means_in_spark(spark, ours):
    assert translated(f"create materialized view v as\n  {spark} ;\n").text == ours


@pytest.mark.parametrize(
    ("sql", "place", "problem"),
    [
        ("select dayofweek(a) from t", "dayofweek", "the week begins with 1"),
        ("select concat(a, b) from t", "concat", "is null in Spark"),
        ("select regexp_replace(a, 'b', '$0') from t", "regexp_replace", "may mean something else"),
        ("select split(a, '[b]') from t", "split", "takes a pattern"),
        ("select extract(seconds from a) from t", "extract", "with six digits in Spark"),
        ("select initcap(a) from t", "initcap", "not known to mean the same"),
        ("select array_position(a, 1) from t", "array_position", "not known to mean the same"),
        ("select extract(dow from a) from t", "extract", "other numbers"),
        ("select max_by(a, b) from t", "max_by", "a row whose value is null"),
        ("select trim(a, b) from t", "trim", "takes the characters first"),
        (r"select 'a\n' from t", r"'a\n'", "a text with a backslash"),
        (r"select r'a' from t", "r'a'", "a text with a backslash"),
        ("select 'a' 'b' from t", "'b'", "side by side"),
        ('select "a""b" from t', '"b"', "side by side"),
        ("select a from t sort by a", "sort by", "orders parts"),
        ("selec a from t", None, "read as SQL|no query"),
        ("insert into t values (1)", "insert", "not a query"),
        ("select 'a\0' from t", "\0", "can't hold this character"),
    ],
)
def test_what_means_something_else_is_refused_at_its_place(sql, place, problem):
    text = f"-- first line\ncreate materialized view v as\n{sql}"
    (definition,), _ = read_definitions("f.sql", text)
    with pytest.raises(SpecError, match=problem) as caught:
        read_query(definition)
    assert caught.value.span.line == 3
    if place is not None:
        assert caught.value.span.column == sql.index(place) + 1


def test_a_place_in_the_pipeline_is_one_in_the_file(shop):
    """What our parser and our types refuse is reported where it stands in Spark's file."""
    spec = SPEC + "configuration: {dd.inputs.t: '{path: t/, format: append, columns: {a: int64}}'}\n"
    sql = (
        "-- c\ncreate materialized view `v w` comment 'x' as\n\n select a,\n  /* y */ nothing(a) as b\n from stream(t);"
    )
    good = "create view ok as select a from t;\ncreate streaming table empty;\ncreate flow f as insert into nowhere select 1"
    report = imported(shop, sql, good, spec=spec, code=1)
    left = {(each["file"], each["line"], each["column"]): each["problem"] for each in report["left_out"]}
    assert left.pop(("sql/0.sql", 5, 11)).startswith("materialized view `v w`: ")
    assert left.pop(("sql/1.sql", 2, 24)) == "streaming table `empty`: no flow writes to it"
    assert left.pop(("sql/1.sql", 3, 13)) == "flow `f`: the project has no streaming table `nowhere`"
    assert left == {}
    assert '"ok": "out/ok/"' in report["text"]


def test_names_are_told_apart_by_catalog_and_database(shop):
    spec = SPEC + "catalog: C\nschema: D\n"
    sql = "create materialized view t as select a from x; create materialized view e.t as select 2 as a;"
    read = "create materialized view u as select * from t union all select * from e.T union all select * from c.d.t"
    text = imported(shop, sql, read, spec=spec)["text"]
    assert "select * from t union all select * from e_t as T union all select * from t\n" in text
    again = imported(shop, sql, "create temporary view T as select 3 as a", spec=spec, code=1)
    assert [each["problem"] for each in again["left_out"]] == ["`T` is defined before"]


def test_a_table_that_nothing_defines_is_an_input_to_be_looked_at(shop):
    report = imported(shop, "create materialized view v as select count(*) as n from db.t", code=0)
    assert '"t": {"path": "sources/db/t/", "format": "append"}  # ? the path of its files' in report["text"]
    assert "dd.inputs.db.t" in report["text"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("", "not a pipeline's specification"),
        ("[", "this is not YAML"),
        ("[" * 5000, "this is not YAML: nested too deeply"),
        ("- a", "not a pipeline's specification"),
        ("name: p", "`libraries`|not a pipeline's specification|nothing"),
        ("name: 1\nstorage: s", "a name is not text"),
        (SPEC + "target: x\n", "`target` is not a field of it"),
        (SPEC.replace("sql/**", "sql/*/x.sql"), "neither a file nor a folder"),
        (SPEC.replace("sql/**", "../**"), "outside of the project"),
        (SPEC.replace("{include: sql/**}", "1"), "not a pipeline's specification"),
        (SPEC + "configuration: {a: 1}\n", "a setting is not text"),
        (SPEC + "configuration: {dd.inputs.t: '['}\n", "`dd.inputs.t` is not an input"),
        ("a: &a [1]\nb: *a\n" + SPEC, "is not a field"),
    ],
)
def test_a_specification_that_is_none_is_refused(shop, spec, problem):
    shop.write("p/spark-pipeline.yml", spec)
    shop.write("p/sql/0.sql", "create materialized view v as select a from t")
    shop.write("x.sql", "select 1")
    result = shop("import", "sdp", "p")
    assert result.code == 2
    assert any(each in result.err for each in problem.split("|")), result.err
    assert not (shop.folder / "p/dd.yaml").exists()


def test_a_file_is_not_replaced_and_a_project_needs_a_specification(shop):
    spec = SPEC + "configuration: {dd.inputs.t: '{path: t/, format: append, columns: {a: int64}}'}\n"
    imported(shop, "create materialized view v as select a from t", spec=spec)
    assert "exists already" in shop("import", "sdp", "p").err
    assert shop("import", "sdp", "p/spark-pipeline.yml", "q.yaml").code == 0
    assert "there is no spark-pipeline.yml" in shop("import", "sdp", ".").err
    assert shop("check", "q.yaml").code == 0


def test_a_project_that_reads_no_table_is_refused(shop):
    """A pipeline file without inputs is none."""
    shop.write("p/spark-pipeline.yml", SPEC)
    shop.write("p/sql/0.sql", "create materialized view v as select a from values (1) as t(a)")
    result = shop("import", "sdp", "p")
    assert (result.code, "the project reads no table" in result.err) == (2, True), result.err
    assert not (shop.folder / "p/dd.yaml").exists()
