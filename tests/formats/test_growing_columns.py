"""Columns that grow: a column that comes later is null in files without it, in inputs, outputs, tables and feeds."""

import contextlib
import json
import os
import re
import shutil
import sqlite3
from collections import Counter
from decimal import Decimal

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from ddcli import read_log
from ddcli.errors import UsageError
from ddcli.plan.pipeline_file import parse_spec
from tests.draws import chance, many
from tests.tables.followers import make_lake
from tests.tables.histories import properties_of

PIPELINE = """\
name: p
clock: {clock}
shards: {shards}
inputs:
  t: {{path: in/, format: {format}, columns: grow{replaces}}}
collections:
  sums: {{from: t, apply: [{{reduce: {{by: [k], n: count(*), s: sum(v)}}}}]}}
  kept: {{from: t, apply: [distinct]}}
outputs:
  all: {{from: t, path: out/all/}}
  sums: out/sums/
  kept: out/kept/
  held: {{from: kept, as: table, {table}}}
"""
DOWNSTREAM = """\
name: q
clock: event
inputs:
  a: {path: out/all/, format: updates, columns: grow}
outputs: {a: more/}
"""
LATER = ("w", "x", "y")
WIDTHS = {"v": [pl.Int32, pl.Int64], "x": [pl.Int32, pl.Int64], "d": [pl.Decimal(10, 2), pl.Decimal(12, 2)]}
TABLES = {
    "parquet": "parquet: lake/t.parquet",
    "delta": "delta: lake/t",
    "iceberg": "",
    "ducklake": "ducklake: {catalog: 'sqlite:///lake/lake.sqlite', table: main.t}",
    "sqlite": "to: 'sqlite:///lake/t.db', table: t",
    "duckdb": "to: 'duckdb:///lake/t.db', table: t",
}


def values_of(draw, names):
    """Return a row with some values of these columns."""
    texts, numbers = draw.choice(["a", "b", None]), draw.choice([None, 1, 2])
    found = {"k": draw.randrange(4), "v": draw.randrange(3), "w": texts, "x": numbers, "y": draw.choice(["u", None])}
    found["d"] = Decimal(draw.randrange(300)) / 100
    return {name: found[name] for name in names}


def write(path, rows, names, widths):
    """Write rows as a file of the kind that its name states; columns of numbers have the least or the second width."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        kinds = {name: WIDTHS[name][widths[name]] if name in WIDTHS else pl.String for name in names}
        kinds |= {"k": pl.Int64, "time": pl.Int64}
        pl.DataFrame(rows, {name: kinds[name] for name in names}).write_parquet(path)
    elif path.suffix == ".csv":
        lines = [",".join("" if row[name] is None else str(row[name]) for name in names) for row in rows]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
    else:
        path.write_text("".join(json.dumps({name: row[name] for name in names}, default=float) + "\n" for row in rows))


def as_rows(found):
    """Return rows as sets of the values that they have, each with its column: a column that a row lacks is null."""
    for row in found:
        numbers = {"d": Decimal(str(row["d"]))} if row.get("d") is not None else {}
        yield frozenset({name: value for name, value in (row | numbers).items() if value is not None}.items())


def counted(frame):
    """Return the records of a frame of updates, with their multiplicities."""
    found = Counter()
    rows = frame.drop("time", strict=False).to_dicts()
    for row, diff in zip(
        as_rows([{n: v for n, v in row.items() if n != "diff"} for row in rows]), frame["diff"], strict=True
    ):
        found[row] += diff
    return Counter({row: count for row, count in found.items() if count})


def fed_rows(folder):
    """Return what the changes in the target of a feed add up to."""
    (path,) = folder.glob("fed.*")
    with contextlib.closing((sqlite3 if path.suffix == ".sqlite" else duckdb).connect(str(path))) as connection:
        found = connection.execute('select * from "all"')
        names = [each[0] for each in found.description]
        frame = pl.DataFrame(found.fetchall(), names, orient="row", infer_schema_length=None)
    return counted(frame.drop("_position"))


def lake_rows(place):
    """Return the rows of a table of DuckLake: its files have its columns, and those that were there when they were written, in types that its present ones hold."""
    found = {"int32": pl.Int32, "int64": pl.Int64, "varchar": pl.String}
    with contextlib.closing(sqlite3.connect(place / "lake.sqlite")) as catalogue:
        files = catalogue.execute(
            "select f.path from ducklake_data_file f join ducklake_table t using (table_id) where f.end_snapshot is null and t.end_snapshot is null"
        ).fetchall()
        columns = dict(
            catalogue.execute("select column_name, column_type from ducklake_column where end_snapshot is null")
        )
    frames = [pl.read_parquet(place / "data/main/t" / name) for (name,) in files]
    for frame in frames:
        assert {*frame.columns} <= columns.keys()
        for name, kind in frame.schema.items():
            held = re.fullmatch(r"decimal\((\d+),(\d+)\)", columns[name].replace(" ", ""))
            wanted = pl.Decimal(int(held[1]), int(held[2])) if held else found[columns[name]]
            assert frame[name].cast(wanted).cast(kind).equals(frame[name]), (name, kind, wanted)
    return [row for frame in frames for row in frame.to_dicts()]


def table_rows(folder, kind):
    """Return the rows of the table by its own package."""
    place = folder / "lake"
    if kind == "delta":
        return pl.DataFrame(DeltaTable(str(place / "t")).to_pyarrow_table()).to_dicts()
    if kind == "iceberg":
        return pl.DataFrame(
            load_catalog("default", **properties_of(place)).load_table("shop.t").scan().to_arrow()
        ).to_dicts()
    if kind == "parquet":
        return pl.read_parquet(place / "t.parquet").to_dicts()
    if kind == "ducklake":
        return lake_rows(place)
    with contextlib.closing((sqlite3 if kind == "sqlite" else duckdb).connect(str(place / "t.db"))) as connection:
        found = connection.execute("select * from t")
        names = [each[0] for each in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", TABLES)
def test_random_histories(shop, kind):
    """Files come, and come again, with more columns and wider types: each output is that of all files as they are, in all columns that any of them has."""
    for case in range(many(5)):
        draw = chance("grow", kind, case)
        for path in shop.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        event, upsert, replaces = (draw.random() < 0.5 for _ in range(3))
        ending = draw.choice(["parquet", "parquet", "csv", "ndjson"])
        catalog = ", ".join(f"{key}: '{value}'" for key, value in properties_of(shop.folder / "lake").items())
        (shop.folder / "lake").mkdir()
        if kind == "ducklake":
            make_lake(shop.folder / "lake")
        shop.write(
            "p.yaml",
            PIPELINE.format(
                clock="event" if event else "arrival",
                shards=draw.randrange(1, 4),
                format="upsert, key: [k]" if upsert else "append",
                replaces=", changed: replace" if replaces else "",
                table=TABLES[kind] or f"iceberg: {{catalog: {{{catalog}}}, table: shop.t}}",
            ),
        )
        shop.write("q.yaml", DOWNSTREAM)
        base = ["k", "v", *(["d"] if ending == "parquet" and kind != "sqlite" else []), *(["time"] if event else [])]
        known, widths, files = [], dict.fromkeys(WIDTHS, 0), {}
        for step in range(6):
            if draw.random() < 0.6 and len(known) < len(LATER):
                known.append(LATER[len(known)])
            if draw.random() < 0.4:
                widths[draw.choice(sorted(WIDTHS))] = 1
            new = [f"{step}-{at}.{ending}" for at in range(draw.randrange(1, 3))]
            again = draw.sample(sorted(files), min(len(files), draw.randrange(2))) if replaces else []
            for name in (*new, *again):
                names = [*base, *draw.sample(known, draw.randrange(len(known) + 1) if files else 0)]
                at = int(name[0]) * 10 + int(name[2])
                rows = [values_of(draw, [n for n in names if n != "time"]) for _ in range(draw.randrange(1, 5))]
                if upsert:  # of a key one row at a time, and one that is not null
                    rows = [*{row["k"]: row for row in rows}.values()]
                files[name] = [row | ({"time": at} if event else {}) for row in rows]
                path = shop.folder / "in" / name
                path.unlink(missing_ok=True)
                write(path, files[name], names, {n: w and draw.randrange(2) for n, w in widths.items()})
                os.utime(path, (step + 1, step + 1))
            result = shop("run", "p.yaml", "-o", "json", *(["--until", str(step * 10 + 10)] if event else []))
            assert result.code == 0, (case, step, result.err)
            # What does not read the new columns is kept; the table of an upsert has them all.
            reads = upsert or again or "'v'" in result.err
            assert reads or "sums" not in json.loads(result.out).get("rebuilt", {}), (case, step)
            every = [{n: v for n, v in row.items() if n != "time"} for name in sorted(files) for row in files[name]]
            rows = [*{row["k"]: row for row in every}.values()] if upsert else every
            wanted = Counter(as_rows(rows))
            assert counted(read_log(shop.folder / "out/all", as_of="latest")) == wanted, (case, step)
            assert (
                counted(duckdb.sql(f"from read_parquet('{shop.folder}/out/all/*.parquet', union_by_name=true)").pl())
                == wanted
            )
            distinct = Counter({*wanted})
            assert counted(read_log(shop.folder / "out/kept", as_of="latest")) == distinct, (case, step)
            assert Counter(as_rows(table_rows(shop.folder, kind))) == distinct, (case, step)
            sums = Counter((row["k"], sum(one["v"] for one in rows if one["k"] == row["k"])) for row in rows)
            held = read_log(shop.folder / "out/sums", as_of="latest")
            assert {(k, s): n for k, n, s in held.select("k", "n", "s").rows()} == dict(sums), (case, step)
            fed = shop(
                "feed", "out/all", "--consumer", "c", "--into", "fed.sqlite" if kind == "sqlite" else "fed.duckdb"
            )
            assert fed.code == 0, (case, step, fed.err)
            assert fed_rows(shop.folder) == wanted, (case, step)
            result = shop("run", "q.yaml")
            assert result.code == 0, (case, step, result.err)
            assert counted(read_log(shop.folder / "more", as_of="latest")) == wanted, (case, step)


EVOLVING = """\
name: p
clock: CLOCK
shards: SHARDS
inputs:
  t:
    path: in/
    format: FORMAT
    TIME
    CHANGED
    columns:
      k: {type: int64, from: [%(k)s]}
      v: {type: int64, from: [%(v)s]}
      d: {type: int64, from: [%(d)s]}
      w: {type: "string?", optional: true, from: [W, "w/1"]}
collections:
  sums: {from: t, apply: [{reduce: {by: [k], n: count(*), s: sum(v)}}]}
outputs:
  all: {from: t, path: all/}
  sums: sums/
"""
EVOLVING_FORMATS = {"append": "append", "upsert": "upsert\n    key: [k]", "snapshots": "snapshots"}
FORMER = {"k": ["Key", "the key", "k/1"], "v": ["Value", "v v"], "d": ["Day", "day.of", "$d"], "w": ["W", "w/1"]}


def write_evolved(draw, path, rows, names):
    """Write rows as a file that has columns under these names, in Parquet also in narrower types."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    written = [{names[column]: value for column, value in row.items() if column in names} for row in rows]
    if path.suffix == ".parquet":
        kinds = {names[column]: draw.choice([pl.Int32, pl.Int64]) for column in "kvd"}
        pl.DataFrame(written, kinds | ({names["w"]: pl.String} if "w" in names else {})).write_parquet(path)
    elif path.suffix == ".csv":
        lines = [",".join("" if value is None else str(value) for value in row.values()) for row in written]
        path.write_text("\n".join([",".join(written[0]), *lines]) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in written))


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", EVOLVING_FORMATS)
@pytest.mark.parametrize("ending", ["parquet", "csv", "ndjson"])
def test_random_histories_of_columns_that_are_renamed(shop, kind, ending):
    """Files have columns under other names, in narrower types, or lack an optional one: a name that is not stated is refused, and once it is stated only new files are read."""
    for case in range(many(3)):
        draw = chance("renamed", kind, ending, case)
        for path in shop.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        event, replaces = draw.random() < 0.5, draw.random() < 0.5
        stated, files = {name: ["unused " + name] for name in "kvd"}, {}
        text = EVOLVING.replace("SHARDS", str(draw.randrange(1, 4))).replace("FORMAT", EVOLVING_FORMATS[kind])
        text = text.replace("CLOCK", "event\n" if event else "arrival\n").replace("TIME", "time: d" if event else "")
        text = text.replace("CHANGED", "changed: replace" if replaces else "")
        for step in range(5):
            again = draw.sample(sorted(files), min(len(files), draw.randrange(2))) if replaces else []
            unknown = set()
            for name in (*again, *(f"{step}-{at}.{ending}" for at in range(draw.randrange(1, 3)))):
                rows = [
                    {
                        "k": draw.randrange(4),
                        "v": draw.randrange(5),
                        "d": int(name[0] + name[2]),
                        "w": draw.choice("ab"),
                    }
                    for _ in range(draw.randrange(1, 5))
                ]
                rows = [*{row["k"]: row for row in rows}.values()] if kind == "upsert" else rows
                names = {column: draw.choice([column, *others]) for column, others in FORMER.items()}
                if name in again:
                    names |= {column: draw.choice([column, *others]) for column, others in stated.items()}
                if draw.random() < 0.4:
                    del names["w"]
                    rows = [row | {"w": None} for row in rows]
                unknown |= {(each, names[each]) for each in "kvd" if names[each] not in (each, *stated[each])}
                files[name] = rows
                write_evolved(draw, shop.folder / "in" / name, rows, names)
                os.utime(shop.folder / "in" / name, (step + 1, step + 1))
            until = ["--until", str(step * 10 + 10)] if event else []
            shop.write("p.yaml", text % {name: ", ".join(map(json.dumps, others)) for name, others in stated.items()})
            if unknown:
                result = shop("run", "p.yaml", *until)
                assert result.code == 3, (case, step)
                assert any(other in result.err for _, other in unknown), (case, step, result.err)
                assert not step or "state both names under the input's `columns`" in result.err
                for column, other in sorted(unknown):
                    stated[column].append(other)
                names = {name: ", ".join(map(json.dumps, others)) for name, others in stated.items()}
                shop.write("p.yaml", text % names)
            result = shop("run", "p.yaml", "-o", "json", *until)
            assert result.code == 0, (case, step, result.err)
            assert again or not json.loads(result.out).get("rebuilt"), (case, step)
            every = [files[name] for name in sorted(files)]
            rows = every[-1] if kind == "snapshots" else [row for each in every for row in each]
            rows = [*{row["k"]: row for row in rows}.values()] if kind == "upsert" else rows
            log = read_log(shop.folder / "all", as_of="latest")
            shown = [{name: value for name, value in row.items() if not (event and name == "d")} for row in rows]
            log = log.drop("d") if event and "d" in log.columns else log
            assert counted(log) == Counter(as_rows(shown)), (case, step)
            sums = Counter((row["k"], sum(one["v"] for one in rows if one["k"] == row["k"])) for row in rows)
            held = read_log(shop.folder / "sums", as_of="latest")
            assert {(k, s): n for k, n, s in held.select("k", "n", "s").rows()} == dict(sums), (case, step)


OPTIONAL = """\
name: p
inputs: {t: {path: in/, format: append, columns: {k: int64, w: {type: "string?", optional: true}}}}
outputs: {t: out/}
"""


@pytest.mark.parametrize("ending", ["csv", "ndjson", "parquet"])
def test_a_declared_column_that_files_may_lack(shop, ending):
    shop.write("p.yaml", OPTIONAL)
    expected = Counter()
    for step in range(4):
        names = ["k", "w"][: 1 + step % 2] if step < 3 else ["w", "k"]
        rows = [{"k": step, "w": "a"}, {"k": step, "w": None}]
        write(shop.folder / f"in/{step}.{ending}", rows, names, {})
        expected.update(as_rows([{name: row[name] for name in names} for row in rows]))
        assert shop("check", "p.yaml").code == 0
        if step % 2:
            assert shop("run", "p.yaml").code == 0
            assert counted(read_log(shop.folder / "out", as_of="latest")) == expected


def test_a_file_without_a_column_of_the_first_one_is_refused_with_the_ways_on(shop):
    shop.write("p.yaml", OPTIONAL.replace('{k: int64, w: {type: "string?", optional: true}}', "grow"))
    shop.write("in/1.csv", "k,v\n1,2\n")
    assert shop("run", "p.yaml").code == 0
    shop.write("in/2.csv", "k,area\n1,x\n")
    err = shop("run", "p.yaml").err
    assert "in/2.csv: error: the file has no column 'v'\n" in err
    columns = '{k: "int64?", v: "int64?", area: {type: "string?", optional: true}}'
    assert f"`optional: true` for one that files may lack: `columns: {columns}`" in err
    shop.write("p.yaml", OPTIONAL.replace("k: int64, w:", "k: int64, v: {type: int64?, optional: true}, area:"))
    assert shop("run", "p.yaml", "--apply").code == 0
    held = counted(read_log(shop.folder / "out", as_of="latest"))
    assert held == Counter(as_rows([{"k": 1, "v": 2}, {"k": 1, "area": "x"}]))


def test_values_that_do_not_fit_the_type_so_far_are_refused(shop):
    shop.write("p.yaml", OPTIONAL.replace('{k: int64, w: {type: "string?", optional: true}}', "grow"))
    write(shop.folder / "in/1.parquet", [{"k": 1, "v": 2}], ["k", "v"], {"v": 1})
    assert shop("run", "p.yaml").code == 0
    write(shop.folder / "in/2.parquet", [{"k": 1, "v": 3}], ["k", "v"], {"v": 0})  # int32, which int64 holds
    assert shop("run", "p.yaml").code == 0
    pl.DataFrame({"k": [1], "v": ["x"]}).write_parquet(shop.folder / "in/3.parquet")
    assert "column 'v' is string, but the pipeline declares int64" in shop("run", "p.yaml").err


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "delta"])
def test_an_output_gets_a_computed_column(shop, kind):
    """Rows that were written lack it: they are taken back with null there, and come again with its value. Tables get the column."""
    text = OPTIONAL.replace(
        "outputs: {t: out/}",
        "collections: {c: {from: t}}\noutputs:\n  c: out/\n  held: {from: c, as: table, " + TABLES[kind] + "}",
    )
    shop.write("p.yaml", text)
    (shop.folder / "lake").mkdir()
    shop.write("in/1.csv", "k,w\n1,a\n2,b\n")
    assert shop("run", "p.yaml").code == 0
    shop.write("p.yaml", text.replace("{from: t}", "{from: t, apply: [{extend: {double: 2 * k}}]}"))
    assert shop("run", "p.yaml").code == 4
    assert shop("run", "p.yaml", "--apply").code == 0
    shop.write("in/2.csv", "k,w\n3,a\n")
    assert shop("run", "p.yaml").code == 0
    wanted = Counter(as_rows([{"k": k, "w": w, "double": 2 * k} for k, w in ((1, "a"), (2, "b"), (3, "a"))]))
    assert counted(read_log(shop.folder / "out", as_of="latest")) == wanted
    assert counted(duckdb.sql(f"from read_parquet('{shop.folder}/out/*.parquet', union_by_name=true)").pl()) == wanted
    assert Counter(as_rows(table_rows(shop.folder, kind))) == wanted
    assert shop("log", "compact", "out").code == 0
    assert counted(read_log(shop.folder / "out", as_of="latest")) == wanted
    shop.write("p.yaml", text)
    err = shop("run", "p.yaml", "--apply").err
    assert "a log may get new columns and wider types, but keeps its columns: give the output another `path`" in err


def test_a_comparison_of_an_output_before_and_after_it_grew(shop):
    """The column is null in rows from before: as of one time and another, and between two states of the log. Before the file is delivered it can't be compared."""
    shop.write("p.yaml", OPTIONAL.replace('{k: int64, w: {type: "string?", optional: true}}', "grow"))
    shop.write("in/1.csv", "k\n1\n2\n")
    assert shop("run", "p.yaml", "--now", "2020-01-01").code == 0
    shutil.copytree(shop.folder / "out", shop.folder / "before")
    shop.write("fix.csv", "k,w\n3,x\n")
    early = shop("diff", "--against", ".dd/p", "p.yaml", "--with", "t+=fix.csv")
    assert (early.code, "the added files can't be compared: a new column" in early.err) == (2, True)
    shop.write("in/2.csv", "k,w\n3,x\n")
    assert shop("run", "p.yaml", "--now", "2020-01-02", "--dry-run").code == 0
    assert shop("run", "p.yaml", "--now", "2020-01-02").code == 0
    result = shop("diff", "out", "--from", "2020-01-01", "--to", "2020-01-02", "-o", "jsonl")
    added = {"change": "added", "count": 1, "row": {"k": 3, "w": "x"}}
    assert (result.code, [json.loads(line) for line in result.out.splitlines()]) == (1, [added])
    result = shop("diff", "before", "out", "--key", "k", "--ignore", "w", "-o", "jsonl")
    assert [json.loads(line)["key"] for line in result.out.splitlines()] == [{"k": 3}]
    assert "w: only in B (string" in shop("diff", "before", "out", "--key", "k").out


@pytest.mark.parametrize(
    ("keys", "columns", "problem"),
    [
        ("format: append", "{a: {type: int64, optional: true}}", "'a' is null in files without it"),
        ("format: upsert, key: a", "{a: {type: int64?, optional: true}}", "'a' is a column of the key"),
        ("format: append, time: a", "{a: {type: int64?, optional: true}}", "'a' is the time, so each file must"),
        (
            "format: append, csv: {header: false}",
            "{a: {type: int64?, optional: true}}",
            "files without a header have all columns",
        ),
        ("format: append, csv: {header: false}", "grow", "files without a header don't name new columns"),
        ("format: debezium, key: a", "grow", "which can't grow"),
        ("format: debezium, key: a", "{a: int64, b: {type: int64?, optional: true}}", "so none is optional"),
    ],
    ids=["null", "key", "time", "no header", "no names", "events", "optional of events"],
)
def test_columns_that_cannot_grow_are_refused(keys, columns, problem):
    text = f"inputs: {{t: {{path: in/, {keys}, columns: {columns}}}}}\noutputs: {{t: out/}}\n"
    with pytest.raises(UsageError, match=problem):
        parse_spec(text, "p.yaml")
