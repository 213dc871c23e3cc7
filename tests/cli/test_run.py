"""`dd run` end to end: what is read, what is written, what is left alone."""

import gc
import json
import os
import re
import weakref

import duckdb
import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.engine.operators.groups import Group
from ddcli.engine.process import Workers, processors
from tests.harness import ORDER_COLUMNS, ORDERS, assert_no_time, contents, files, read_log, snapshot

HEAVY = ("polars", "numba", "llvmlite", "sqlglot", "pyarrow", "numpy")

QUIET = {
    "late": 0,
    "aside": None,
    "negative": 0,
    "example": None,
    "unparsed": 0,
    "unparsed_in": None,
    "passed": {},
    "gone": [],
}
"""What a summary says of an input in which nothing is wrong."""


def summary(result):
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert all(given.pop("bytes") >= 0 for given in found["inputs"].values()), "sizes hang on versions of libraries"
    return found


@pytest.fixture
def shipped(shop, root):
    """Return a shop with the repository's pipelines over its fixtures."""
    (shop.folder / "fixtures").symlink_to(root / "fixtures")
    for path in (root / "pipelines").glob("*.yaml"):
        shop.write(f"pipelines/{path.name}", path.read_text())
    return shop


def test_skip_level_is_the_manager_of_the_manager(shipped):
    assert shipped("run", "pipelines/skip_level.yaml").code == 0
    given = "read_parquet('fixtures/manages/*.parquet')"
    want = duckdb.sql(
        f"""with m as (select manager, employee, sum(diff) n from {given} where time < 5 group by all having n <> 0)
        select a.employee, a.manager, b.manager, sum(a.n * b.n)::bigint from m a join m b on a.manager = b.employee group by all"""
    ).fetchall()
    assert contents(shipped.folder / "out/skip_level", until=5) == {row[:-1]: row[-1] for row in want}
    assert len(want) > 50


def test_airborne_by_steps_counts_the_flights_in_the_air(shipped):
    flights = "read_parquet('fixtures/flights/flights/*.parquet')"
    before = -(2**62)
    for until in (480, 540, 600):
        done = summary(shipped("run", "pipelines/airborne.yaml", "--until", until, "-o", "json"))
        new = duckdb.sql(f"select count(*) from {flights} where time >= {before} and time < {until}").fetchall()
        assert [(done["inputs"]["flights"]["rows"],)] == new
        want = duckdb.sql(
            f"""select f.carrier, a.name, sum(f.diff)::bigint n from {flights} f
            join 'fixtures/flights/airlines.parquet' a using (carrier)
            where f.status = 'departed' and f.time < {until} group by all having n <> 0"""
        ).fetchall()
        assert contents(shipped.folder / "out/airborne", until) == {(c, k, n): 1 for c, n, k in want}
        log = read_log(shipped.folder / "out/airborne")
        assert log["time"].max() < until
        before = until
    assert len(list((shipped.folder / "out/airborne").iterdir())) == 4  # a file a run, and the progress


def test_delays_has_two_outputs_of_one_run(shipped):
    assert set(summary(shipped("run", "pipelines/delays.yaml", "-o", "json"))["outputs"]) == {"delays", "late_routes"}
    want = duckdb.sql(
        """select origin, dest, sum(diff)::bigint n from 'fixtures/flights/flights/*.parquet'
        where status = 'landed' and arr_delay >= 15 group by all having n >= 3"""
    ).fetchall()
    assert contents(shipped.folder / "out/late_routes") == dict.fromkeys(want, 1)


def test_an_output_is_the_changes_of_the_result(orders):
    result = orders("run", "orders.yaml")
    assert result.code == 0
    assert not result.out
    log = read_log(orders.folder / "out/totals")
    assert log["time"].to_list() == [0, 1, 1, 1, 2, 2]  # in order of time, at one time in any order
    assert sorted(log.rows()) == [
        ("north", 1, 5, 2, 1),
        ("north", 1, 10, 0, 1),
        ("north", 1, 10, 1, -1),
        ("north", 2, 15, 1, 1),
        ("north", 2, 15, 2, -1),
        ("south", 1, 7, 1, 1),
    ]
    assert [line.split()[0] for line in result.err.splitlines()] == ["orders:", "read", "wrote", "state"]


def test_the_library_takes_options_as_keywords_alone(orders):
    assert run(path=orders.folder / "orders.yaml", dry_run=True).dry
    for wrong in ({"args": ["state"]}, {"untill": "3"}):
        with pytest.raises(TypeError, match="argument"):
            run(orders.folder / "orders.yaml", *wrong.pop("args", []), **wrong)


def test_a_second_run_reads_the_new_file_only(orders):
    orders("run", "orders.yaml")
    first = orders.folder / "orders/1.parquet"
    stat = first.stat()
    first.write_bytes(b"x" * stat.st_size)  # of the same size and age: whoever looks into it fails
    os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    done = summary(orders("run", "orders.yaml", "-o", "json"))
    assert done["inputs"] == {"orders": {"rows": 1, "files": 1, "waiting": 0} | QUIET}
    assert (done["lower"], done["upper"]) == ("3", "4")
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 2, 8): 1}


def test_no_more_threads_than_asked_for_compute(orders):
    """Not in lookups either, which know no run: the process is told."""
    for threads in (3, 1):
        orders("run", "orders.yaml", "--workers", threads)
        assert Workers.most == threads
    orders("run", "orders.yaml")
    assert Workers.most == processors()


def test_rows_at_or_after_the_upper_wait_in_their_file(orders):
    done = summary(orders("run", "orders.yaml", "--until", "1", "-o", "json"))
    assert done["inputs"]["orders"] == {"rows": 1, "files": 1, "waiting": 1} | QUIET
    assert contents(orders.folder / "out/totals") == {("north", 1, 10): 1}
    done = summary(orders("run", "orders.yaml", "-o", "json"))
    assert done["inputs"]["orders"] == {"rows": 3, "files": 1, "waiting": 0} | QUIET
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 1, 7): 1}


def test_a_run_with_nothing_new_imports_nothing_heavy_and_changes_nothing(orders):
    assert orders("run", "orders.yaml").code == 0
    before = snapshot(*orders.kept)
    for arguments in ([], ["--until", "2"]):
        result = orders.importing(HEAVY, "run", "orders.yaml", *arguments)
        assert result.code == 0
        assert result.out == "[]\n"
        assert result.err == "orders: nothing new (times before 3 are closed)\n"
    assert snapshot(*orders.kept) == before


def test_the_same_until_again_takes_in_what_has_changed_since(orders):
    """The times before it are closed, but their rows are others now, or there is a row too many."""
    orders.write(
        "sums.yaml",
        "inputs: {sales: {path: in/, columns: {city: string, n: int64}}}\n"
        "collections: {sums: {from: sales, apply: [{reduce: {by: city, n: sum(n)}}]}}\noutputs: {sums: out/sums/}\n",
    )
    (orders.folder / "in").mkdir()
    orders.write("in/a.csv", "city,n,time,diff\nx,5,0,1\nx,7,9,1\n")
    assert orders("run", "sums.yaml", "--until", "4").code == 0
    orders.write("in/a.csv", "city,n,time,diff\nx,6,0,1\nx,7,9,1\n")
    for until in ("4", "2"):
        assert "a file that was already read has changed" in orders("run", "sums.yaml", "--until", until).err
    orders.write("sums.yaml", (orders.folder / "sums.yaml").read_text().replace("in/,", "in/, changed: replace,"))
    assert orders("run", "sums.yaml", "--until", "4").code == 0
    assert contents(orders.folder / "out/sums") == {("x", 6): 1}
    assert "nothing new" in orders("run", "sums.yaml", "--until", "4").err
    orders.write("in/b.csv", "city,n,time,diff\ny,1,3,1\n")
    assert "late rows" in orders("run", "sums.yaml", "--until", "4").err


def test_help_imports_nothing_heavy(shop):
    script = f"""
import sys
from ddcli.cli.main import main
for arguments in (["--help"], ["run", "--help"], ["--version"]):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code
print([name for name in {HEAVY} if name in sys.modules])
"""
    result = shop.process(script=script)
    assert result.code == 0
    assert result.out.splitlines()[-1] == "[]"
    assert "\n    dd run pipelines/airborne.yaml --until 720\n" in result.out


def test_a_warm_process_imports_no_compiler(orders):
    """What is compiled once is loaded by Python alone."""
    script = """
import sys
from ddcli.cli.main import main
try:
    main(["run", "orders.yaml", "-q"])
finally:
    print("numba" in sys.modules, "llvmlite.binding" in sys.modules, "polars" in sys.modules)
"""
    compiled = {"DDCLI_KERNELS": ""}
    assert orders.process(script=script, env=compiled).code == 0
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    assert orders.process(script=script, env=compiled).out == "False False True\n"
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 2, 8): 1}


def test_a_first_run_does_not_wait_for_the_compiler(orders, tmp_path):
    """Where no kernels are kept, small steps compute without them; the line does not state a time that no one knows."""
    result = orders.process("run", "orders.yaml", env={"DDCLI_KERNELS": "", "DDCLI_CACHE_DIR": str(tmp_path / "none")})
    assert result.code == 0
    assert re.match(r"compiling \d+ kernels, once on this machine; small steps don't wait for them\n", result.err)
    assert result.err.count("compiling") == 1
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 1, 7): 1}


def test_a_dry_run_writes_nothing_at_all(orders):
    before = snapshot(orders.folder)
    result = orders("run", "orders.yaml", "--dry-run")
    assert result.code == 0
    assert "dry run" in result.err
    assert "totals: 6 updates (+4 -2)\n" in result.err
    assert snapshot(orders.folder) == before


def test_a_dry_run_on_a_state_writes_nothing_and_says_what_the_run_would(orders):
    orders("run", "orders.yaml")
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    before = snapshot(orders.folder)
    dry = summary(orders("run", "orders.yaml", "-n", "-o", "json"))
    assert snapshot(orders.folder) == before
    wet = summary(orders("run", "orders.yaml", "-o", "json"))
    assert dry["dry"]
    assert dry["inputs"] == wet["inputs"]
    assert wet["outputs"]["totals"].pop("file")
    unwritten = {"file": None}
    assert dry["outputs"]["totals"] == wet["outputs"]["totals"] | unwritten


def test_the_summary_as_json(orders):
    result = orders("run", "orders.yaml", "-o", "json")
    done = summary(result)
    assert not result.err
    assert done.pop("seconds") > 0
    assert done.pop("state_bytes") > 0
    assert done == {
        "claims": [],
        "name": "orders",
        "lower": None,
        "upper": "3",
        "time": None,
        "changed": True,
        "inputs": {"orders": {"rows": 4, "files": 1, "waiting": 0} | QUIET},
        "failed": 0,
        "errors": None,
        "outputs": {
            "totals": {
                "rows": 6,
                "inserted": 4,
                "retracted": 2,
                "file": str(orders.folder / "out/totals/updates-start-3.parquet"),
            }
        },
        "state_rows": 2,
        "dry": False,
        "rebuilt": {},
        "spark": None,
        "replaced": {},
        "withdrawn": {},
        "reopened": None,
        "tables": {},
        "checks": {},
    }
    size = again = None
    for _ in range(2):
        again = summary(orders("run", "orders.yaml", "-o", "json"))
        assert (again["changed"], again["upper"], again["outputs"]) == (False, "3", {})
        assert (again["state_rows"], again["state_bytes"] > 0, size in {None, again["state_bytes"]}) == (2, True, True)
        size = again["state_bytes"]


def test_times_in_json_are_iso_8601_and_options_read_them(shop):
    shop.write(
        "p.yaml",
        "inputs: {a: {path: in/, columns: {k: int64}, format: append}}\noutputs: {b: {from: a, path: out/b}}\n",
    )
    shop.write("in/1.csv", "k\n1\n")
    found = summary(shop("run", "p.yaml", "-o", "json", "--now", "2024-01-02 03:04:05.25"))
    assert (found["time"], found["upper"]) == ("2024-01-02T03:04:05.25Z", "2024-01-02T03:04:05.250001Z") or found[
        "time"
    ] == "2024-01-02T03:04:05.250000Z"
    again = summary(shop("run", "p.yaml", "-o", "json"))
    assert (again["time"], again["changed"]) == (found["time"], False)
    assert json.loads(shop("plan", "p.yaml", "-o", "json").out)["upper"] == found["upper"]
    assert json.loads(shop("state", "ls", "p.yaml", "-o", "json").out)["upper"] == found["upper"]
    shop.write("in/2.csv", "k\n2\n")
    dry = summary(shop("run", "-n", "p.yaml", "-o", "json", "--now", "2024-01-02T04:04:05Z"))
    assert (dry["time"], dry["state_rows"], dry["state_bytes"]) == ("2024-01-02T04:04:05Z", None, None)
    assert "  state" not in shop("run", "-n", "p.yaml", "--now", "2024-01-02T04:04:05Z").err


def test_what_did_not_change_is_one_line(shop):
    names = ["a", "b", "c", "d"]
    shop.write(
        "p.yaml",
        "inputs: {a: {path: in/, columns: {k: int64}, format: append}, none: {path: none/, columns: {k: int64}, format: append}}\n"
        f"outputs: {{ {', '.join(f'{name}: {{from: {name}s, path: out/{name}}}' for name in names)}, n: {{from: none, path: out/n}} }}\n"
        "collections:\n"
        + "".join(f"  {name}s: {{from: a, apply: [filter: k > {at * 10}]}}\n" for at, name in enumerate(names)),
    )
    (shop.folder / "none").mkdir()
    shop.write("in/1.csv", "k\n15\n")
    first = shop("run").err.splitlines()
    assert first[1:5] == [
        "  read   a: 1 update in 1 file",
        "  wrote  a: 1 update (+1 -0)",
        "  wrote  b: 1 update (+1 -0)",
        "  same   input none, outputs c, d, n",
    ]
    shop.write("in/2.csv", "k\n-1\n")
    assert shop("run").err.splitlines()[2] == "  same   input none, 5 outputs"
    shop.write("in/3.csv", "k\n7\n")
    told = shop("run", "-v").err
    assert "  read   none: 0 updates in 0 files, 0 B\n" in told
    assert "  wrote  a: 1 update (+1 -0) -> out/a/updates-" in told
    assert "  wrote  n: no change\n" in told


def test_a_quiet_run_says_nothing(orders):
    for _ in range(2):
        assert orders("run", "orders.yaml", "--quiet") == type(orders("--version"))(0, "", "")


def test_the_state_can_lie_elsewhere(orders):
    assert orders("run", "orders.yaml", "--state", "kept/here").code == 0
    assert (orders.folder / "kept/here/manifest").is_dir()
    assert not (orders.folder / ".dd").exists()
    assert "nothing new" in orders("run", "orders.yaml", "--state", orders.folder / "kept/here").err
    assert orders("run", "orders.yaml").code == 4  # the outputs have a state, but it isn't there


def test_the_file_may_say_where_its_state_lies(orders):
    orders.write("orders.yaml", (orders.folder / "orders.yaml").read_text() + "state: kept/\n")
    assert orders("run", "orders.yaml").code == 0
    assert (orders.folder / "kept/manifest").is_dir()


def test_a_pipeline_is_run_from_anywhere(orders, monkeypatch):
    (orders.folder / "elsewhere").mkdir()
    monkeypatch.chdir(orders.folder / "elsewhere")
    assert orders("run", "../orders.yaml").code == 0
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 1, 7): 1}
    monkeypatch.chdir(orders.folder)
    assert "nothing new" in orders("run", orders.folder / "orders.yaml").err


SECOND = """\
dd: 1
name: regions
inputs:
  totals: out/totals/
collections:
  regions:
    from: totals
    apply:
      - filter: amount > 5
      - project: [region]
outputs:
  regions: out/regions/
"""


def test_the_output_of_one_pipeline_is_the_input_of_another(orders):
    orders.write("regions.yaml", SECOND)
    orders("run", "orders.yaml", "--until", "2")
    assert summary(orders("run", "regions.yaml", "-o", "json"))["upper"] == "2"
    assert contents(orders.folder / "out/regions") == {("north",): 1, ("south",): 1}
    # Nothing changes from here on, and that is progress too: the second pipeline closes the time with no update read.
    orders("run", "orders.yaml", "--until", "9")
    orders("run", "orders.yaml", "--until", "20")
    done = summary(orders("run", "regions.yaml", "-o", "json"))
    assert (done["lower"], done["upper"]) == ("2", "20")
    assert contents(orders.folder / "out/regions") == {("south",): 1}
    assert json.loads((orders.folder / "out/regions/_progress.json").read_text())["upper"] == [[20]]
    assert "nothing new" in orders("run", "regions.yaml").err


def test_rows_wait_for_a_plain_run_when_their_input_is_closed(orders):
    (orders.folder / "orders/_progress.json").write_text('{"upper": []}')
    assert summary(orders("run", "orders.yaml", "--until", "1", "-o", "json"))["upper"] == "1"
    assert summary(orders("run", "orders.yaml", "-o", "json"))["upper"] == "3"
    assert "nothing new" in orders("run", "orders.yaml").err


def test_a_pipeline_written_otherwise_goes_on_with_its_state(orders):
    orders("run", "orders.yaml")
    orders.write(
        "orders.yaml",
        """\
dd: 1
name: orders
inputs: {orders: {path: orders/, time: time}}      # the same, in other words
outputs: {totals: {path: ./out/totals, from: per_region}}
collections:
  per_region: {from: orders, apply: [{reduce: {by: [region], orders: "count( * )", amount: "SUM(amount)"}}]}
""",
    )
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    done = summary(orders("run", "orders.yaml", "-o", "json"))
    assert done["inputs"]["orders"]["rows"] == 1
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 2, 8): 1}


def test_a_changed_pipeline_stops_before_it_spoils_its_outputs(orders):
    orders("run", "orders.yaml")
    text = (orders.folder / "orders.yaml").read_text()
    orders.write("orders.yaml", text.replace("sum(amount)", "max(amount)"))
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    before = files(*orders.kept)
    result = orders("run", "orders.yaml")
    assert result.code == 4
    assert result.err.startswith("orders.yaml: error: the pipeline has changed since its state was made")
    assert "hint: " in result.err
    assert files(*orders.kept) == before
    orders.write("orders.yaml", text)
    assert orders("run", "orders.yaml").code == 0


def test_inspect_shows_updates_on_stderr_in_order_of_time(orders):
    text = (orders.folder / "orders.yaml").read_text()
    orders.write("orders.yaml", text.replace("- reduce", "- inspect: seen\n      - reduce"))
    result = orders("run", "orders.yaml", "-o", "json")
    summary(result)
    first, *middle, last = result.err.splitlines()
    assert first == "seen: {'region': 'north', 'amount': 10} @ 0 +1"
    assert sorted(middle) == [
        "seen: {'region': 'north', 'amount': 5} @ 1 +1",
        "seen: {'region': 'south', 'amount': 7} @ 1 +1",
    ]
    assert last == "seen: {'region': 'north', 'amount': 10} @ 2 -1"
    assert not orders("run", "orders.yaml", "-q").err


@pytest.mark.parametrize(
    ("kind", "until", "upper"),
    [
        (pl.Date(), "2013-01-02", "2013-01-02"),
        (pl.Datetime("us"), "2013-01-02", "2013-01-02T00:00:00Z"),
        (pl.Datetime("us"), "2013-01-01 06:30", "2013-01-01T06:30:00Z"),
        (pl.Datetime("us"), "2013-01-01T07:30+01:00", "2013-01-01T06:30:00Z"),
        (pl.Datetime("ms", "UTC"), "2013-01-01T06:30", "2013-01-01T06:30:00Z"),
    ],
    ids=str,
)
def test_until_is_written_as_the_time_of_the_inputs_is(orders, kind, until, upper):
    frame = pl.DataFrame({"region": ["n", "s"], "amount": [1, 2], "time": ["2013-01-01 06:00", "2013-01-02 06:00"]})
    times = pl.col("time").str.to_datetime("%Y-%m-%d %H:%M").cast(kind)
    (orders.folder / "orders/1.parquet").unlink()
    frame.with_columns(times).write_parquet(orders.folder / "orders/2.parquet")
    assert summary(orders("run", "orders.yaml", "--until", until, "-o", "json"))["upper"] == upper
    log = read_log(orders.folder / "out/totals")
    assert log["region"].to_list() == ["n"]
    assert log.schema["time"] == kind
    assert orders("run", "orders.yaml").code == 0
    assert contents(orders.folder / "out/totals") == {("n", 1, 1): 1, ("s", 1, 2): 1}


@pytest.mark.parametrize("until", ["soon", "2013-01-01", "1.5", "", "99999999999999999999"])
def test_an_until_that_is_no_time_is_wrong_use(orders, until):
    assert_no_time(orders, "orders.yaml", until, f"'{until}' is ")


def test_the_file_says_into_how_many_shards_arrangements_are_cut(orders):
    text = (orders.folder / "orders.yaml").read_text()
    (orders.folder / "orders.yaml").write_text(text + "shards: 3\n")
    orders("run", "orders.yaml")
    arrangements = sorted((orders.folder / ".dd/orders/arrangements").iterdir())
    assert arrangements
    (newest,) = (orders.folder / ".dd/orders/manifest").iterdir()
    kept = json.loads(newest.read_bytes())["arrangements"]
    assert {entry["shards"] for entry in kept.values()} == {3}
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    assert "totals: 2 updates" in orders("run", "orders.yaml").err


@pytest.mark.parametrize(("said", "told"), [("0", "from 1 to 4096"), ("5000", "from 1 to 4096"), ("many", "from 1")])
def test_shards_that_cannot_be(orders, said, told):
    text = (orders.folder / "orders.yaml").read_text()
    (orders.folder / "orders.yaml").write_text(text + f"shards: {said}\n")
    result = orders("run", "orders.yaml")
    assert result.code == 2
    assert told in result.err


@pytest.mark.parametrize("size", ["lots", "1KiB", "-1GiB", "1GiBs"])
def test_memory_that_cannot_be(orders, size):
    result = orders("run", "orders.yaml", "--memory", size)
    assert result.code == 2
    assert "--memory" in result.err


def test_operators_are_let_go_of_when_a_run_is_done(orders, monkeypatch):
    """Without a search for cycles: their traces map files, and a watch makes them anew in each round."""
    made, begin = [], Group.__init__

    def noted(operator, *given, **options):
        begin(operator, *given, **options)
        made.append(weakref.ref(operator))

    monkeypatch.setattr(Group, "__init__", noted)
    orders.write("orders.yaml", ORDERS.replace("sum(amount)", "sum(amount), most: max(amount)"))
    gc.collect()
    gc.disable()
    try:
        run(orders.folder / "orders.yaml")
        assert made
        assert not any(operator() for operator in made)
    finally:
        gc.enable()
