"""A state of the last landed version goes on: nothing of it is built anew, whatever the planner's code has become.

`former_state.tar.xz` has the folder of a pipeline after its first run, by the version that it was written with. To write it anew:

    python -m tests.store.test_former_state
"""

import json
import tarfile
import tempfile
from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal

import ddcli
from tests.harness import Folder, called

FILE = Path(__file__).with_name("former_state.tar.xz")
COLUMNS = {"k": pl.Int64, "v": pl.Int64, "s": pl.String, "x": pl.Float64, "d": pl.Decimal(10, 2)}
PIPELINE = """\
dd: 1
name: former
inputs:
  t: t/
  u: u/
  latest: {path: latest/, format: upsert, key: [k], columns: {k: int64, v: int64, time: int64}}
  table: {path: table/, format: snapshots, key: [k], columns: {k: int64, v: int64, time: int64}}
collections:
  mapped: {from: t, apply: [{filter: v > 2}, {extend: {w: v * 2}}, {map: {k: k, w: w, s: upper(s)}}]}
  unnested: {from: t, apply: [{extend: {i: v % 3}}, {project: [k, i]}, {flat_map: {at: "generate_series(0, i)"}}]}
  weighted: {from: t, apply: [{project: [k, s]}, {explode: "coalesce(k, 0) + 1"}, consolidate, {count: {as: n}}]}
  summed: {from: t, apply: [{reduce: {by: [s], n: count(*), v: sum(v), x: sum(x), d: avg(d), least: min(v), most: max(s)}}]}
  total: {from: t, apply: [{reduce: {by: [], n: count(*), v: sum(v), m: median(v), c: "count(distinct s)"}}]}
  joined: {from: t, apply: [{join: {with: u, on: [k], as: r}}, {map: {k: k, v: v, w: r.v}}]}
  outer: {from: t, apply: [{join: {with: latest, on: [k], as: r, how: full}}, {map: {k: "coalesce(k, r.k)", v: v, w: r.v}}]}
  three: {from: t, apply: [{join: {with: u, on: [k], as: a}}, {join: {with: table, on: [k], as: b}}, {map: {k: k, v: v, a: a.s, b: b.v}}]}
  partners: {from: t, apply: [{semijoin: {with: u, on: [k]}}, {antijoin: {with: table, on: [k, v]}}]}
  nearest: {from: t, apply: [{project: [k, v]}, {asof_join: {with: latest, on: [k], at: v, as: r, how: left}}, {map: {k: k, v: v, w: r.v}}]}
  apart: {from: t, apply: [{project: [k]}, distinct, {concat: [{from: u, apply: [{project: [k]}, negate]}]}, consolidate]}
  once: {from: t, apply: [{project: [s]}, {threshold: "case when count > 2 then 2 else count end"}]}
  first: {from: t, apply: [{top_k: {by: [s], k: 2, order_by: [v desc, k, x, d]}}]}
  ranked: {from: t, apply: [{window: {by: [s], order_by: [v, k, x, d], columns: {n: row_number(), before: lag(v), upto: sum(v)}}}]}
  passing: {from: t, apply: [{project: [k, v]}, {temporal_filter: {from: v, until: v + 3}}]}
  edges: {from: t, apply: [{map: {a: k, b: v}}, distinct]}
  reached:
    iterate:
      variables: {paths: edges}
      body: {paths: {from: paths, apply: [{join: {with: edges, on: {b: a}, as: e}}, {map: {a: a, b: e.b}}, {concat: edges}, distinct]}}
      result: paths
  asked:
    sql: >
      select t.s, count(*) as n, sum(t.v) filter (where t.x > 1) as v, max(l.v) as l
      from t left join latest l on l.k = t.k where t.k in (select k from u) group by t.s having count(*) > 1
  per_day:
    sql: select s, v, sum(v) over (partition by s order by v, k, x, d rows between 1 preceding and current row) as near from t
outputs: {OUTPUTS}
"""
OUTPUTS = [
    "mapped",
    "unnested",
    "weighted",
    "summed",
    "total",
    "joined",
    "outer",
    "three",
    "partners",
    "nearest",
    "apart",
    "once",
    "first",
    "ranked",
    "passing",
    "reached",
    "asked",
    "per_day",
]


def rows(step):
    """Return rows of a log, the same in each process: those of the second step take some of the first back."""
    found = [(at % 5, (at * 7 + step) % 11, "abc"[at % 3], at / 4, f"{at}.5", step, 1) for at in range(20)]
    return found + [(*row[:5], step, -1) for row in rows(step - 1)[::3] if row[6] > 0] if step else found


def write_step(folder, step):
    """Write the files of one time into a folder."""
    for name, every in (("t", 1), ("u", 3)):
        frame = pl.DataFrame(rows(step)[::every], [*COLUMNS, "time", "diff"], orient="row").with_columns(
            pl.col("d").cast(pl.Decimal(10, 2))
        )
        path = folder / name / f"{step}.parquet"
        path.parent.mkdir(exist_ok=True)
        frame.write_parquet(path)
    for name in ("latest", "table"):
        path = folder / name / f"{step}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("k,v,time\n" + "".join(f"{at},{at * 3 % 7 + step},{step}\n" for at in range(step, step + 5)))


def begun(folder):
    """Write the pipeline and its first files."""
    (folder / "p.yaml").write_text(
        PIPELINE.replace("{OUTPUTS}", "{" + ", ".join(f"{name}: out/{name}/" for name in OUTPUTS) + "}")
    )
    write_step(folder, 0)


def contents(folder):
    """Return what each output holds after the last run."""
    return {name: ddcli.read_log(folder / "out" / name).sort(pl.all()) for name in OUTPUTS}


def test_a_state_of_the_last_version_goes_on_without_a_rebuild(tmp_path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    with tarfile.open(FILE) as archive:
        archive.extractall(old, filter="data")
    new.mkdir()
    begun(new)
    assert (old / "p.yaml").read_text() == (new / "p.yaml").read_text()
    for folder in (old, new):
        write_step(folder, 1)
        ran = Folder(folder, capsys)("run", folder / "p.yaml", "-o", "json")
        assert ran.code == 0, ran.err
        if folder == old:
            said = json.loads(ran.out)
            assert not said["rebuilt"]
            assert {name: taken["files"] for name, taken in said["inputs"].items()} == dict.fromkeys(said["inputs"], 1)
    for name, frame in contents(new).items():
        assert_frame_equal(contents(old)[name], frame)


def main():
    """Write the archive, by the code as it is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun(folder)
        assert called(["run", str(folder / "p.yaml"), "-q"]) == 0
        with tarfile.open(FILE, "w:xz", preset=9) as archive:
            archive.add(folder, ".")


if __name__ == "__main__":
    main()
