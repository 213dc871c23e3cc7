"""`dd run` with several pipelines: their order, what a failure skips, and which of them are selected."""

import json

import pytest

from ddcli.commands.pipelines import find_pipelines
from ddcli.errors import UsageError
from tests.harness import ORDER_COLUMNS, contents

FILES = {
    "z-first": """\
inputs: {orders: ../orders/}
collections:
  clean: {from: orders, apply: [{filter: amount > 0}, {arrange: {by: [region], export: clean}}]}
outputs: {clean: ../out/clean/}
""",
    "b-second": """\
inputs: {clean: ../out/clean/}
collections: {totals: {from: clean, apply: [{reduce: {by: [region], amount: sum(amount)}}]}}
outputs: {totals: ../out/totals/}
""",
    "a-third": """\
inputs: {clean: {import: {state: .dd/z-first, arrangement: clean}}}
collections: {regions: {from: clean, apply: [{project: [region]}, distinct]}}
outputs: {regions: ../out/regions/}
""",
    "m-alone": """\
inputs: {others: ../others/}
outputs: {others: ../out/others/}
""",
}


@pytest.fixture
def four(shop):
    """Return a shop with four pipelines: a-third reads from b-second and z-first, b-second from z-first, m-alone from none."""
    for name, text in FILES.items():
        shop.write(f"flows/{name}.yaml", text)
    shop.write("flows/shared.yml", "x: 1\n")
    shop.log("orders/1.parquet", [("north", 10, 1, 1), ("south", -7, 1, 1)], **ORDER_COLUMNS)
    shop.log("others/1.parquet", [("east", 1, 1, 1)], **ORDER_COLUMNS)
    return shop


def ran(shop, *arguments, code=0):
    """Run pipelines; return how each ended, in order: `new`, `idle`, `failed` or `skipped`, by its file's name."""
    result = shop("run", *arguments, "-o", "json")
    assert result.code == code, result.err
    tree = json.loads(result.out)
    assert tree["exit_code"] == code
    return {
        each["pipeline"].removeprefix("flows/"): "failed"
        if each["error"]
        else "skipped"
        if each["skipped"]
        else "new"
        if each["summary"]["changed"]
        else "idle"
        for each in tree["pipelines"]
    }


TABLES = {
    "delta: ../lake/t/": "delta: ../lake/t/",
    "parquet: ../lake/t.parquet": "path: ../lake/, format: snapshots, key: region",
    "iceberg: {catalog: {type: sql, uri: 'sqlite:///c.db', warehouse: w}, table: s.t}": "iceberg: {catalog: {warehouse: w, type: sql, uri: 'sqlite:///c.db'}, table: s.t}",
    "to: 'sqlite:///../t.db', table: t": "database: 'sqlite:///../flows/../t.db', table: main.t",
    "to: 'duckdb:///../t.db'": "database: 'duckdb:///../t.db', table: last",
}


@pytest.mark.parametrize("written", TABLES)
def test_a_table_is_written_before_it_is_read(shop, written):
    columns = "columns: {region: string?}"
    text = f"clock: arrival\ninputs: {{last: {{{TABLES[written]}, {columns}}}}}\noutputs: {{read: ../out/}}\n"
    shop.write("flows/first.yaml", text)
    text = f"inputs: {{orders: ../orders/}}\ncollections: {{last: {{from: orders, apply: [project: [region]]}}}}\noutputs: {{last: {{as: table, {written}}}}}\n"
    shop.write("flows/second.yaml", text)
    found, _ = find_pipelines([shop.folder / "flows"])
    assert all(each.spec for each in found)
    assert [each.path.name for each in found] == ["second.yaml", "first.yaml"]


def test_a_directory_runs_in_the_order_of_its_dependencies(four):
    assert list(ran(four, "flows").items()) == [
        ("m-alone.yaml", "new"),
        ("z-first.yaml", "new"),
        ("a-third.yaml", "new"),
        ("b-second.yaml", "new"),
    ]
    assert contents(four.folder / "out/totals") == {("north", 10): 1}
    assert contents(four.folder / "out/regions") == {("north",): 1}
    four.log("orders/2.parquet", [("west", 1, 2, 1)], **ORDER_COLUMNS)
    found = ran(four, "flows/b-second.yaml", "flows/m-alone.yaml", "flows/z-first.yaml", "flows/b-second.yaml")
    assert list(found.items()) == [("m-alone.yaml", "idle"), ("z-first.yaml", "new"), ("b-second.yaml", "new")]
    result = four("run", "flows")
    assert "flows/shared.yml: skipped, as it has neither inputs nor outputs" in result.err
    assert "4 pipelines: 1 brought up to date, 3 with nothing new" in result.err


@pytest.mark.parametrize("broken", ["collections: 3\n", "inputs: [\n"])
def test_a_failure_skips_what_needs_it(four, broken):
    four.write("flows/z-first.yaml", "outputs: {clean: ../out/clean/}\n" + broken)
    found = ran(four, "flows", "--summary", "run.json", code=2)
    assert next(iter(found.items())) == ("z-first.yaml", "failed")
    assert found["m-alone.yaml"] == "new"
    tree = json.loads((four.folder / "run.json").read_text())
    assert [tree["exit_code"], tree["pipelines"][0]["exit_code"]] == [2, 2]


def test_input_that_is_refused_skips_what_needs_it(four):
    assert set(ran(four, "flows").values()) == {"new"}
    four.write("orders/2.parquet", "no Parquet")
    assert ran(four, "flows", code=3) == {
        "m-alone.yaml": "idle",
        "z-first.yaml": "failed",
        "a-third.yaml": "skipped",
        "b-second.yaml": "skipped",
    }
    result = four("run", "flows")
    assert (
        "flows/b-second.yaml: skipped: flows/z-first.yaml, which it reads from, was not brought up to date"
        in result.err
    )
    assert "orders/2.parquet" in result.err


@pytest.mark.parametrize(
    ("select", "meant"),
    [
        (["totals"], ["b-second"]),
        (["+totals"], ["z-first", "b-second"]),
        (["clean+"], ["z-first", "a-third", "b-second"]),
        (["+totals+", "others"], ["m-alone", "z-first", "b-second"]),
    ],
)
def test_select(four, select, meant):
    ran(four, "flows")
    found = ran(four, "flows", *(word for name in select for word in ("--select", name)))
    assert list(found) == [f"{name}.yaml" for name in meant]


def test_wrong_use(four):
    assert "did you mean 'totals'?" in four("run", "flows", "--select", "totls").err
    assert "are for one pipeline" in four("run", "flows", "--watch").err
    (four.folder / "empty").mkdir()
    assert "the directory has no pipeline file" in four("run", "empty").err
    four.write("flows/z-first.yaml", "inputs: {t: ../out/totals/}\noutputs: {clean: {path: ../out/clean/, from: t}}\n")
    result = four("run", "flows")
    assert (
        result.code,
        "pipelines read from each other: 'flows/b-second.yaml', 'flows/z-first.yaml'" in result.err,
    ) == (2, True)


def test_a_pipeline_reads_an_output_that_has_no_rows_so_far(shop):
    """By the columns of its file, as a reader by a glob does; later rows are beside it."""
    shop.write(
        "p.yaml",
        "inputs: {t: {path: in/, format: append, columns: {k: int64}}}\ncollections: {few: {from: t, apply: [{filter: k < 0}]}}\noutputs: {few: mid/}\n",
    )
    shop.write(
        "q.yaml",
        'inputs: {few: {path: mid/}}\ncollections: {n: {sql: "select count(*) as n, sum(k) as s from few"}}\noutputs: {n: out/}\n',
    )
    shop.write("in/1.csv", "k\n1\n")
    assert shop("run", "p.yaml", "q.yaml").code == 0
    assert contents(shop.folder / "mid") == contents(shop.folder / "out") == {}
    for number, row in enumerate((-1, -2), start=2):
        shop.write(f"in/{number}.csv", f"k\n{row}\n5\n")
        assert shop("run", "p.yaml", "q.yaml").code == 0
        assert contents(shop.folder / "mid") == dict.fromkeys(((-one,) for one in range(1, number)), 1)
        assert contents(shop.folder / "out") == {(number - 1, -sum(range(number))): 1}
    assert shop("state", "verify", "p.yaml").code == 0


def test_hints_name_a_pipeline_only_while_it_runs(four):
    assert four("run", "flows").code == 0
    assert UsageError("gone", hint="`dd run PIPELINE`").hint == "`dd run PIPELINE`"
