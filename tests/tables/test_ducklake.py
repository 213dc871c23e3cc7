"""Tables of DuckLake as inputs, against what DuckDB's own reader has of each snapshot: `ducklake.tar.xz` has a lake in four stages, as DuckDB 1.5.5 wrote it.

Its rows were inlined, deleted in the catalogue and in files, flushed, merged with those of other snapshots and rewritten.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import duckdb as native
import polars as pl
import pytest

from ddcli.compare.scenarios import scenarios
from ddcli.sources.change_log import read_log
from ddcli.store.mirrors.ducklake_columns import LakeColumn
from tests.draws import chance

LAKE = Path(__file__).with_name("ducklake.tar.xz")
PIPELINE = """\
dd: 1
name: lake
CLOCK
inputs: {t: {ducklake: {catalog: 'KIND:///KIND.lake', table: main.t}TIME}}
outputs: {t: out/}
"""


@pytest.fixture
def lake(shop):
    """Return a folder with the files of the lake; `catalogue(kind, stage)` puts a catalogue in its place."""
    with tarfile.open(LAKE) as found:
        found.extractall(shop.folder, filter="data")
    shop.stages = json.loads((shop.folder / "stages.json").read_text())
    return shop


def pipeline(lake, kind, *, arrival=False):
    text = PIPELINE.replace("CLOCK", "clock: arrival" if arrival else "").replace(
        "TIME", "" if arrival else ", time: version"
    )
    lake.write("p.yaml", text.replace("KIND", kind))


def brought(lake, kind, stage):
    """Bring the lake to a stage, and run the pipeline."""
    shutil.copy(lake.folder / f"{kind}.lake.{stage}", lake.folder / f"{kind}.lake")
    result = lake("run", "p.yaml")
    assert result.code == 0, result.err
    return result


def wanted(lake, kind, version):
    found = pl.read_parquet(lake.folder / f"{kind}-{version}.parquet")
    return found.columns, Counter(found.rows())


def held(lake, columns, as_of="latest"):
    found = read_log(lake.folder / "out", as_of=as_of).select(*columns, "diff")
    return Counter({row[:-1]: row[-1] for row in found.rows()})


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_each_snapshot_is_a_change(lake, kind):
    pipeline(lake, kind)
    for stage, last in enumerate(lake.stages[kind][:3], 1):
        brought(lake, kind, stage)
        columns, rows = wanted(lake, kind, last)
        assert held(lake, columns) == rows
    for version in range(lake.stages[kind][0], last + 1):
        columns, rows = wanted(lake, kind, version)
        assert held(lake, columns, version) == rows, version
    assert "nothing new" in brought(lake, kind, 3).err


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_scenarios_give_rows_new_values(lake, kind):
    """In the rows that the last version has, with all types of values; at each stage these are rows of earlier snapshots, too."""
    pipeline(lake, kind, arrival=kind == "sqlite")
    lake.write("s.yaml", "s: {set: {t: {s: \"'new'\", d: d + 1, where: i < 103}}}\n")
    for stage, version in enumerate(lake.stages[kind][:3], 1):
        brought(lake, kind, stage)
        columns, rows = wanted(lake, kind, version)
        effect = Counter()
        for row, count in rows.items():
            record = dict(zip(columns, row, strict=True))
            if record["i"] is not None and record["i"] < 103:
                new = record | {"s": "new", "d": None if record["d"] is None else record["d"] + 1}
                effect[row] -= count
                effect[tuple(new.values())] += count
        found = scenarios(lake.folder / "p.yaml", lake.folder / "s.yaml")["t"].select(*columns, "diff")
        assert effect
        assert {row[:-1]: row[-1] for row in found.rows()} == {row: diff for row, diff in effect.items() if diff}


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_stages_may_be_skipped_and_a_new_column_has_its_default_in_old_rows(lake, kind):
    pipeline(lake, kind, arrival=True)
    brought(lake, kind, 1)
    brought(lake, kind, 4)
    columns, rows = wanted(lake, kind, lake.stages[kind][3])
    assert "extra" in columns
    log = held(lake, columns)
    assert log == rows


def test_rows_of_a_snapshot_that_the_lake_has_expired_are_found_by_difference(lake):
    pipeline(lake, "sqlite", arrival=True)
    brought(lake, "sqlite", 2)
    shutil.copy(lake.folder / "sqlite.lake.3", lake.folder / "sqlite.lake")
    with sqlite3.connect(lake.folder / "sqlite.lake") as catalogue:
        catalogue.execute("delete from ducklake_snapshot where snapshot_id < ?", [lake.stages["sqlite"][2]])
    assert lake("run", "p.yaml").code == 0
    columns, rows = wanted(lake, "sqlite", lake.stages["sqlite"][2])
    assert held(lake, columns) == rows


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("update ducklake_metadata set value = '0.3' where key = 'version'", "has version 0.3 of DuckLake, and 1.0 is read"),
        ("update ducklake_metadata set value = 'true' where key = 'encrypted'", "are encrypted"),
        ("update ducklake_table set table_name = 'u'", "has no table 'main.t'"),
        ("update ducklake_data_file set mapping_id = 1", "added by their columns' names"),
        ("update ducklake_data_file set path = '../../../../../etc/passwd'", "outside of its folder"),
        ("update ducklake_data_file set file_format = 'vortex'", "of the format 'vortex'"),
        ("drop table ducklake_snapshot", "can't be read"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_refused(lake, statement, problem):
    pipeline(lake, "sqlite")
    shutil.copy(lake.folder / "sqlite.lake.2", lake.folder / "sqlite.lake")
    with sqlite3.connect(lake.folder / "sqlite.lake") as catalogue:
        catalogue.execute(statement)
    result = lake("run", "p.yaml")
    assert result.code == 3
    assert problem in result.err
    assert not (lake.folder / "out").exists()


def test_a_name_in_the_catalogue_is_no_statement(lake):
    """The catalogue names the tables in which it holds rows itself."""
    pipeline(lake, "sqlite")
    brought(lake, "sqlite", 2)
    with sqlite3.connect(lake.folder / "sqlite.lake") as catalogue:
        named = "insert into ducklake_inlined_data_tables select table_id, '(select 1 as end_snapshot)', 1 from ducklake_table"
        catalogue.execute(named)
    lake.write("in.csv", "id\n1\n")
    table = "{as: table, ducklake: {catalog: 'sqlite:///sqlite.lake', table: main.t}}"
    lake.write(
        "w.yaml", f"inputs: {{t: {{path: in.csv, format: append, columns: {{id: int64}}}}}}\noutputs: {{t: {table}}}\n"
    )
    result = lake("run", "w.yaml")
    assert result.code != 0
    assert "no such table" in result.err, result.err


def test_a_missing_catalogue_is_refused_with_the_statement_that_makes_one(shop):
    shop.write("in.csv", "id\n1\n")
    table = "{as: table, ducklake: {catalog: 'sqlite:///new.lake', table: main.t}}"
    shop.write(
        "w.yaml", f"inputs: {{t: {{path: in.csv, format: append, columns: {{id: int64}}}}}}\noutputs: {{t: {table}}}\n"
    )
    for command, code in (("check", 3), ("run", 5)):
        result = shop(command, "w.yaml")
        assert result.code == code
        assert "there is no such database" in result.err
        assert "DuckDB makes one: `attach 'ducklake:sqlite:new.lake' (data_path 'lake/')`" in result.err


def test_a_table_that_was_rolled_back_is_refused_by_version(lake):
    pipeline(lake, "duckdb")
    brought(lake, "duckdb", 3)
    shutil.copy(lake.folder / "duckdb.lake.1", lake.folder / "duckdb.lake")
    result = lake("run", "p.yaml")
    assert (result.code, "rolled back" in result.err) == (3, True), result.err


PYTHON = Path(sys.prefix) / "ducklake/bin/python"
DUCKDB = """
import json, sys, duckdb
from importlib.util import find_spec
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
con.execute("set enable_progress_bar = false")  # it is printed among the results on a busy machine
for name in ("ducklake", "sqlite_scanner", "postgres_scanner"):
    (place,) = find_spec(f"duckdb_extension_{name}").submodule_search_locations
    con.execute(f"load '{place}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")
con.execute(f"attach 'ducklake:{sys.argv[1]}' as lake (data_path 'data/')")
con.execute("use lake")
print(json.dumps([con.execute(query).fetchall() for query in sys.argv[2:]], default=str))
"""
WRITTEN = """\
dd: 1
name: written
inputs: {t: {path: in/, format: upsert, key: [id], columns: {id: int64, name: string?, price: "decimal(10, 2)?", day: date?, x: float64?}}}
collections: {c: {from: t, apply: [{map: {id: id, name: name, price: price, day: day, x: x, 'share %?': x, near: "[id, id + 1]", s: "{'a': id, 'b': {'n': name}}"MORE}}]}}
outputs: {c: {as: table, ducklake: {catalog: 'URI', table: main.c}}}
"""


def live(shop, kind, request):
    """Return the address of a catalogue of a kind, and what has DuckDB run statements in it."""
    uri, attached = f"{kind}:///lake.db", f"{kind}:lake.db" if kind == "sqlite" else "lake.db"
    if kind == "postgres":
        uri = request.getfixturevalue("postgres_database")
        attached = f"postgres:host={uri.partition('host=')[2]} user=postgres dbname=shop"

    def duckdb(*queries):
        done = subprocess.run(
            [PYTHON, "-c", DUCKDB, attached, *queries], capture_output=True, text=True, cwd=shop.folder, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return uri, duckdb


@pytest.mark.skipif(not PYTHON.exists(), reason="DuckDB 1.5.5 with DuckLake is not installed: make tools")
@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_duckdb_reads_the_table_that_is_written(shop, kind, request):
    """Each snapshot, by conditions for which it leaves files out; it adds a row itself, which a later commit of ours refuses."""
    uri, duckdb = live(shop, kind, request)
    duckdb()
    shop.write("p.yaml", WRITTEN.replace("URI", uri).replace("MORE", ""))
    for step in range(2):
        rows = "".join(
            f"{at},n{at},{at}.5,2024-01-{1 + at % 28:02},{at / 8}\n" for at in range(step * 20, step * 20 + 40)
        )
        shop.write(f"in/{step}.csv", f"id,name,price,day,x\n{rows}900,,{step},,\n")
        result = shop("run", "p.yaml")
        assert result.code == 0, result.err
    shop.write("p.yaml", WRITTEN.replace("URI", uri).replace("MORE", ", twice: id * 2"))
    result = shop("run", "p.yaml", "--apply")
    assert result.code == 0, result.err
    conditions = [
        "id = 7",
        "price > 50",
        "day is null",
        "name = 'n7'",
        "x < 0.5",
        "s.a = 7",
        "s.b.n is null",
        "list_contains(near, 60)",
        "twice = 14",
    ]
    counts = duckdb(*(f"select count(*) from c where {each}" for each in conditions))
    assert [found[0][0] for found in counts] == [1, 10, 1, 1, 4, 1, 1, 1, 1]
    first, last, row = duckdb(
        "select count(*), sum(id) from c at (version => 1)", "select count(*), sum(id), sum(twice) from c",
        "select * from c where id = 900",
    )  # fmt: skip
    assert (first, last) == ([[41, sum(range(40)) + 900]], [[61, sum(range(60)) + 900, 2 * (sum(range(60)) + 900)]])
    assert row == [[900, None, "1.00", None, None, None, [900, 901], {"a": 900, "b": {"n": None}}, 1800]]
    duckdb("insert into c (id, name, price, near, s, twice) values (7, 'a''b', 1.5, [], null, 0)")
    shop.write(
        "read.yaml",
        PIPELINE.replace("CLOCK", "")
        .replace("KIND:///KIND.lake", uri)
        .replace("main.t", "main.c")
        .replace("TIME", ", time: version"),
    )
    assert shop("run", "read.yaml").code == 0
    found = read_log(shop.folder / "out", as_of="latest")
    assert (found.height, found["id"].sum()) == (62, sum(range(60)) + 907)
    assert [str(each) for each in found.filter(id=7)["price"].sort()] == ["1.50", "7.50"]
    shop.write("in/2.csv", "id,name,price,day,x\n1,,,,\n")
    result = shop("run", "p.yaml")
    assert (result.code, "another program has changed rows" in result.err) == (4, True), result.err


NESTED = {
    "ints": "int[]", "words": "varchar[]", "deep": "double[][]", "days": "date[]", "moments": "timestamp_ns[]", "prices": "decimal(20, 3)[]",
    "bytes": "blob[]", "one": "struct(a int, b varchar)", "many": 'struct(x int, "y z" struct(d date, w varchar[]))[]', "named": "map(varchar, int)",
}  # fmt: skip
WORDS = [
    "a",
    "b,c",
    "d'e",
    "",
    "null",
    "NULL",
    'x"y',
    "é\\z",
    " sp ",
    "[1]",
    "{}",
    "a: b",
    "\n",
    "\\",
    "'",
    "\\'",
    "1",
    "-",
    "x=y",
    "(",
    "→",
]


def literal(random, kind):
    """Return a value of a type as DuckDB's SQL has it."""
    if random.random() < 0.15:
        return "null"
    if kind.endswith("[]"):
        return f"[{', '.join(literal(random, kind[:-2]) for _ in range(random.randrange(4)))}]::{kind}"
    word = "'{}'".format(random.choice(WORDS).replace("'", "''"))
    number = random.choice([0, -1, 7, 2**31 - 1])
    return {
        "int": str(number), "varchar": word, "double": f"({number} / 8)", "date": f"date '0001-01-01' + {random.randrange(3_000_000)}",
        "timestamp_ns": f"timestamp_ns '2024-01-01 00:00:00.{random.randrange(10**9):09}'", "decimal(20, 3)": f"{number}.125",
        "blob": random.choice(["'abc'::blob", "'\\x00\\xff\\x5C,'::blob", "''::blob"]), "struct(a int, b varchar)": f"{{a: {number}, b: {word}}}",
        "map(varchar, int)": f"map {{'k': {number}}}",
    }.get(kind) or f"{{x: {number}, 'y z': {{d: {literal(random, 'date')}, w: {literal(random, 'varchar[]')}}}}}"  # fmt: skip


@pytest.mark.skipif(not PYTHON.exists(), reason="DuckDB 1.5.5 with DuckLake is not installed: make tools")
@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_lists_and_structs_are_read_as_they_were_written(shop, kind, request):
    """As in a table of DuckDB without a lake: of rows in the catalogue and in files, also of files from before a struct had a field, or had it by another name.

    Its reader of lakes loses quotes and backslashes of structs in a catalogue in SQLite or Postgres. Maps are left out.
    """
    uri, duckdb = live(shop, kind, request)
    random = chance(kind)
    columns = ", ".join(f"{name} {each}" for name, each in NESTED.items())

    def rows(first, count, kinds):
        drawn = ", ".join(
            f"({first + at}, {', '.join(literal(random, each) for each in kinds.values())})" for at in range(count)
        )
        return f"insert into t (id, {', '.join(kinds)}) values {drawn}"

    less = {name: each for name, each in NESTED.items() if name not in ("one", "many")}
    steps = [
        [f"create table t (id bigint, {columns})", rows(0, 6, NESTED)],
        [rows(10, 40, NESTED), rows(60, 5, NESTED)],
        ["alter table t add column one.c int[]", "alter table t rename column one.b to e", rows(70, 4, less)],
        ["alter table t drop column one.a", rows(80, 30, less)],
    ]
    plain = native.connect()
    for step, statements in enumerate(steps):
        duckdb(*statements)
        for each in statements:
            plain.execute(each)
        read = [name for name in NESTED if name != "named"]
        # Of a moment with nine digits Python has six: as text it has all.
        shown = ", ".join(f"{name}::varchar[] as {name}" if name == "moments" else f'"{name}"' for name in read)
        wanted = plain.execute(f"select id, {shown} from t order by id").fetchall()
        shop.write(
            "p.yaml", f"dd: 1\nname: p{step}\ninputs: {{t: {{ducklake: {{catalog: '{uri}', table: main.t}}}}}}\noutputs: {{t: out{step}/}}\n"
        )  # fmt: skip
        result = shop("run", "p.yaml")
        assert result.code == 0, result.err
        log = read_log(shop.folder / f"out{step}", as_of="latest").sort("id")
        assert "named" not in log.columns
        moments = pl.element().dt.strftime("%Y-%m-%d %H:%M:%S%.9f").str.strip_chars_end("0").str.strip_chars_end(".")
        log = log.with_columns(pl.col("moments").list.eval(moments)).select("id", *read)
        assert log.rows() == wanted


@pytest.mark.skipif(not PYTHON.exists(), reason="DuckDB 1.5.5 with DuckLake is not installed: make tools")
def test_lists_that_an_earlier_version_left_out_are_read_of_old_rows_too(shop, request, monkeypatch):
    uri, duckdb = live(shop, "sqlite", request)
    duckdb("create table t (id bigint, l int[])", "insert into t values (1, [1]), (2, null)")
    shop.write(
        "p.yaml", PIPELINE.replace("CLOCK", "clock: arrival").replace("KIND:///KIND.lake", uri).replace("TIME", "")
    )
    with monkeypatch.context() as patch:
        patch.setattr(LakeColumn, "dtype", property(lambda self: None if self.parts else pl.Int64()))
        assert shop("run", "p.yaml").code == 0
        assert "l" not in read_log(shop.folder / "out", as_of="latest").columns
    duckdb("insert into t values (3, [3])")
    result = shop("run", "p.yaml", "--apply")
    assert result.code == 0, result.err
    found = read_log(shop.folder / "out", as_of="latest").select("id", "l", "diff").sort("id")
    assert found.rows() == [(1, [1], 1), (2, None, 1), (3, [3], 1)]
