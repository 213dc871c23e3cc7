"""`dd import sdp`: the pipeline holds what the SQL of the project means in Spark, and what can't be imported is listed."""

import json
import shutil
from collections import Counter
from decimal import Decimal

import polars as pl
import pytest

from ddcli.commands.sdp_definitions import read_definitions
from ddcli.commands.sdp_translation import read_query
from ddcli.errors import SpecError
from tests.draws import chance, many
from tests.harness import ROOT, contents, write_log

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


def test_expectations_are_checks(shop):
    """A row for which a condition is not true, null included, is reported, dropped, or stops the run; dropped rows are reported, too."""
    raw = "dd.inputs.raw: '{path: ../raw/, format: append, columns: {k: int64, v: string?, w: int64?}}'"
    sql = """
        create or refresh streaming table bronze (
          constraint `has v` expect (v is not null) on violation drop row,
          constraint small expect (w < 10),
          constraint positive expect (w >= 0) on violation fail update
        ) as select * from stream(raw);
        create temporary view some (constraint v2 expect (v <> "b") on violation drop row) as select k, v from bronze where k > 2;
        create materialized view counts as select v, count(*) as n from some group by v;
        create materialized view wrong (constraint bad expect (dayofweek(w) > 1) on violation drop row) as select 1 as a from raw;
        create materialized view warned (constraint bad expect (nothing(k) > 1), constraint known expect (k is not null)) as select k from bronze;
    """
    report = imported(shop, sql, spec=SPEC + f"configuration:\n  {raw}\n", code=1)
    problems = {each["problem"].split(":")[0]: each["line"] for each in report["left_out"]}
    assert problems == {"materialized view `wrong`": 9, "expectation `warned_bad`": 10, "expectation `wrong_bad`": 9}
    lines = report["text"].split("checks:\n")[1]
    assert "quarantine" not in lines  # `wrong` reads the input, too
    report = imported(shop, sql.replace("from raw", "from bronze"), spec=SPEC + f"configuration:\n  {raw}\n", code=1)
    assert '"of": "raw", "name": "bronze_has_v", "otherwise": "quarantine"' in report["text"]
    rows = [(1, "a", 1), (2, None, -1), (3, "b", 12), (4, "c", 3), (5, "c", 10)]
    write_log(shop.folder / "raw/1.parquet", rows, {"k": int, "v": str, "w": int})
    assert shop("run", "p/dd.yaml").code == 0
    assert contents(shop.folder / "p/out/counts") == {("c", 2): 1}
    assert set(contents(shop.folder / "p/out/bronze")) == {row for row in rows if row[1]}
    found = json.loads(shop("checks", "p/dd.yaml", "-o", "json").out)["checks"]
    assert {name: each["violations"] for name, each in found.items()} == {
        "bronze_has_v": 1,
        "bronze_small": 2,
        "bronze_positive": 0,
        "some_v2": 1,
        "warned_known": 0,
    }
    write_log(shop.folder / "raw/2.parquet", [(6, "d", None)], {"k": int, "v": str, "w": int})
    failed = shop("run", "p/dd.yaml")
    assert failed.code == 7
    assert "bronze_positive" in failed.err


def test_expectations_in_python_are_left_out_with_their_reason(shop):
    """The file is parsed and never run; one that is no Python is left out as a whole."""
    raw = "dd.inputs.raw: '{path: ../raw/, format: append, columns: {k: int64}}'"
    shop.write(
        "p/sql/a.py",
        """from pyspark import pipelines as dp
raise SystemExit("never run")
@dp.table
@dp.expect("known", "k is not null")
@dp.expect_or_drop(name="small", condition="k < 10")
@dp.expect_all_or_fail({"positive": "k > 0", LIMIT: f"k < {LIMIT}"})
def t(): ...
""",
    )
    shop.write("p/sql/b.py", "def (")
    spec = f"{SPEC}configuration:\n  {raw}\n"
    report = imported(shop, "create materialized view v as select k from raw;", spec=spec, code=1)
    left = {(each["file"], each["line"], each["problem"], each["hint"]) for each in report["left_out"]}
    wanted = {
        ("known", 4): "constraint known expect (k is not null)",
        ("small", 5): "constraint small expect (k < 10) on violation drop row",
        ("positive", 6): "constraint positive expect (k > 0) on violation fail update",
        ("...", 6): "constraint ... expect (...) on violation fail update",
    }
    expectations = {
        (
            *("sql/a.py", line, f"expectation `{name}` of `t`: it is written in Python"),
            f"write the table in SQL, with `{text}`",
        )
        for (name, line), text in wanted.items()
    }
    files = {
        (f"sql/{name}.py", None, "it is written in Python", "write it in SQL, or as `function` by hand")
        for name in "ab"
    }
    assert left == expectations | files


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("create streaming table t (a int) as select 1 as a", "its columns are declared"),
        ("create streaming table t (constraint c check (a > 1)) as select 1 as a", "is not `expect"),
        ("create streaming table t (constraint c expect (a > 1) on violation warn) as select 1 as a", "followed by"),
        ("create streaming table t (constraint c expect (a > 1), a int) as select 1 as a", "its columns are declared"),
        ("create flow f as auto cdc into t from s sequence by x", "there is no `keys`"),
        ("create flow f as auto cdc into t from s keys (a)", "there is no `sequence by`"),
        (
            "create flow f as auto cdc into t from s keys (a) sequence by x apply as truncate when b",
            "can't be imported",
        ),
        ("create flow f as auto cdc into t from s keys (a) sequence by x stored as bitemporal", "`scd type 1` or"),
        ("create flow f as auto cdc into t from s keys (a) sequence by x track history on b", "is for `scd type 2`"),
        ("create flow f as auto cdc into t from s keys (a + b) sequence by x", "a list of columns"),
        ("create flow f as auto cdc into t from s keys (a) sequence by x columns to update b", "a list of columns"),
        ("create flow f as auto cdc into t from s keys (a) sequence by x ignore null updates on b", "of some columns"),
    ],
)
def test_clauses_that_are_refused(sql, problem):
    found, errors = read_definitions("f.sql", sql)
    assert found == []
    assert problem in errors[0].problem


@pytest.mark.parametrize(
    ("flows", "problem"),
    [
        ("from s keys (a) sequence by b; create flow g as insert into t select a, b from s", "several flows"),
        ("from s keys (c) sequence by b stored as scd type 2", "there is no column `c`"),
        ("from u keys (c) sequence by b stored as scd type 2", "the columns of its source `u` are not known"),
        ("from s keys (a) sequence by dayofweek(b)", "the week begins with 1"),
    ],
)
def test_flows_of_changes_that_are_left_out(shop, flows, problem):
    s = "dd.inputs.s: '{path: s/, format: append, columns: {a: int64, b: int64}}'"
    sql = f"create streaming table t; create flow f as auto cdc into t {flows}; create view v as select * from s"
    report = imported(
        shop, sql, spec=SPEC + f"configuration: {{{s}}}\n".replace("'{", '"{').replace("}'", '}"'), code=1
    )
    assert problem in report["left_out"][0]["problem"]


CDC = "dd.inputs.cdc: '{path: cdc/, format: append, columns: {k: int64, v: string?, W: int64?, op: string?, s: int64}}'"


def events(draw):
    """Return changes of a few keys in a random order: each place of a key's order is that of one change, which may arrive twice."""
    found = {}
    for _ in range(draw.randrange(1, 16)):
        key, at = draw.randrange(2), draw.randrange(12)
        found[key, at] = (
            *(key, draw.choice([None, "a", "b"]), draw.choice([None, 1, 2])),
            *(draw.choice(["u", "u", None, "d"]), at),
        )
    rows = [*found.values(), *draw.sample([*found.values()], draw.randrange(len(found)))]
    return draw.sample(rows, len(rows))


def applied(rows, clauses):
    """Return the target that changes lead to by the definition: of each key its record, or with `history` the intervals of its records."""
    names, wanted = ("k", "v", "W", "op", "s"), []
    chosen = [name for name in names if name in clauses["columns"]]
    tracked = [name for name in chosen if name in clauses["track"] and name != "k"]
    for key in {row[0] for row in rows}:
        intervals, now = [], None
        for row in sorted({row for row in rows if row[0] == key}, key=lambda row: row[4]):
            new = dict(zip(names, row, strict=True))
            if clauses["deletes"] and new["op"] == "d":
                if now is not None:
                    intervals[-1][-1] = new["s"]
                now = None
                continue
            if clauses["ignores"] and now is not None:
                new = {name: now[name] if value is None else value for name, value in new.items()}
            if now is None or any(now[name] != new[name] for name in tracked):
                if now is not None:
                    intervals[-1][-1] = new["s"]
                intervals.append([None, row[4], None])
            intervals[-1][0] = tuple(new[name] for name in chosen)
            now = new
        if clauses["history"]:
            wanted += [(*record, start, end) for record, start, end in intervals]
        elif now is not None:
            wanted.append(tuple(now[name] for name in chosen))
    return Counter(wanted)


def random_clauses(draw):
    """Return the clauses of a flow of changes, and what they mean."""
    every = ["k", "v", "W", "op", "s"]
    chosen, columns = draw.choice(
        [(every, ""), (["k", "v", "W"], "columns * except (op, S)"), (["k", "v", "W", "op"], "columns (K, op, w, v)")]
    )
    history = draw.random() < 0.6
    track, tracked = draw.choice(
        [(every, ""), (["v"], "track history on v"), (["v", "op", "s"], "track history on * except (W)")]
    )
    if "s" not in chosen and "except" in tracked:
        track, tracked = ["v", "op"], "track history on * except (w)"
    deletes, ignores = draw.random() < 0.7, draw.random() < 0.4
    parts = ["apply as delete when op = 'd'" * deletes, columns, "ignore null updates" * ignores]
    parts += ["sequence by s", f"stored as scd type {1 + history}"] + [tracked] * history
    text = "keys (k) " + " ".join(draw.sample(parts, len(parts)))
    return text, {"columns": chosen, "track": track, "deletes": deletes, "ignores": ignores, "history": history}


def test_changes_are_applied_as_the_definition_says(shop):
    """Targets of `auto cdc` over random changes that arrive in any order, after each of some runs."""
    draw = chance("auto cdc")
    flows = [random_clauses(draw) for _ in range(many(40))]
    sql = "".join(
        f"create streaming table t{at};\ncreate flow f{at} as auto cdc into t{at} from {source} {text};\n"
        for at, (text, _) in enumerate(flows)
        for source in [draw.choice(["stream(cdc)", "stream cdc", "cdc", "(select * from stream(cdc) where k >= 0)"])]
    )
    imported(shop, sql, spec=SPEC + f"configuration:\n  {CDC}\n".replace("path: cdc/", "path: ../cdc/"))
    rows = [row for _ in range(3) for row in events(draw)]
    places = {}
    rows = [row for row in rows if places.setdefault((row[0], row[4]), row) == row]
    ends = [len(rows) // 3, len(rows) - 1, len(rows)]
    for first, last in zip([0, *ends], ends, strict=False):
        columns = {"k": int, "v": str, "W": int, "op": str, "s": int}
        write_log(shop.folder / f"cdc/{last}.parquet", rows[first:last], columns)
        assert shop("run", "p/dd.yaml", "--quiet").code == 0
        for at, (text, clauses) in enumerate(flows):
            log = pl.read_parquet(shop.folder / f"p/out/t{at}/*.parquet").rename(str.lower)
            names = [*map(str.lower, clauses["columns"]), *["__start_at", "__end_at"] * clauses["history"]]
            found = Counter()
            for *row, diff in log.select(*names, "diff").rows():
                found[tuple(row)] += diff
            assert +found == applied(rows[:last], clauses) == Counter({row: n for row, n in found.items() if n}), text
