"""Structs from files of Parquet to outputs: kept in the state, shown, tested, and in batch files that are large enough to have pages."""

import json

import duckdb
import polars as pl
import pytest

PIPELINE = """
dd: 1
name: nested
inputs:
  n:
    path: in/
    columns: {id: int64, s: "struct[a: int64?, b: string?]?", l: "list[struct[k: int64?, t: string?]?]?"}
collections:
  groups:
    sql: select s, l, count(*) as c, min(id) as m from n group by s, l
  items:
    sql: select n.id, e.k, e as item from n, unnest(n.l) as u(e)
  made:
    from: n
    apply:
      - filter: s.a = 1
      - map: {id: id, z: "{'u': s.b, 'v': l[1].k}"}
outputs: {groups: out/groups/, items: out/items/, made: out/made/}
tests:
  - name: fields
    steps:
      - given:
          n:
            - {id: 1, s: {a: 1, b: x}, l: [{k: 7, t: null}], time: 1}
            - {id: 2, s: null, l: null, time: 1}
        expect:
          - collection: made
            contents: [{id: 1, z: {u: x, v: 7}}]
            always: z.v = 7
"""
S = pl.Struct({"a": pl.Int64, "b": pl.String})
L = pl.List(pl.Struct({"k": pl.Int64, "t": pl.String}))
MEANT = {
    "groups": "select s, l, count(*) as c, min(id) as m from n group by s, l",
    "items": "select n.id, e.k, e as item from n, unnest(n.l) as u(e)",
    "made": "select id, {'u': s.b, 'v': l[1].k} as z from n where s.a = 1",
}


def rows(time, count):
    ids = [time * 1000 + at for at in range(count)]
    structs = [None if at % 7 == 0 else {"a": at % 5, "b": None if at % 3 == 0 else f"x{at % 900}"} for at in ids]
    lists = [None if at % 11 == 0 else [{"k": j, "t": f"t{j}"} for j in range(at % 4)] for at in ids]
    return {"id": ids, "time": [time] * count, "s": pl.Series(structs, dtype=S), "l": pl.Series(lists, dtype=L)}


def test_structs_go_from_files_to_outputs(shop):
    (shop.folder / "in").mkdir()
    shop.write("p.yaml", PIPELINE)
    for time, count in ((1, 3000), (5, 40), (6, 1)):
        pl.DataFrame(rows(time, count)).write_parquet(shop.folder / f"in/{time}.parquet")
        found = shop("run", "p.yaml")
        assert found.code == 0, found.err
    base = duckdb.connect()
    base.execute("create table n as from read_parquet('in/*.parquet')")
    for name, query in MEANT.items():
        columns = ", ".join(each for each, *_ in base.execute(f"describe {query}").fetchall())
        held = f"select {columns}, sum(diff) as d from read_parquet('out/{name}/*.parquet') group by all having sum(diff) <> 0"
        meant = f"select {columns}, count(*) as d from ({query}) group by all"
        differ = (
            f"select (select count(*) from ({held} except {meant})) + (select count(*) from ({meant} except {held}))"
        )
        assert base.execute(differ).fetchone() == (0,), name
    shown = shop("log", "out/made", "--as-of", "1", "-o", "jsonl").out.splitlines()
    assert {"id": 1006, "z": {"u": "x106", "v": 0}, "diff": 1} in map(json.loads, shown)
    assert '"{""u"": ""x106"", ""v"": 0}"' in shop("log", "out/made", "--as-of", "1", "-o", "csv").out
    asked = shop("sql", "select s.a, count(*) as c from n group by s.a", "--from", "p.yaml", "-o", "json")
    wanted = base.execute("select s.a, count(*) from n group by s.a order by s.a nulls last").fetchall()
    assert [tuple(row.values()) for row in json.loads(asked.out)] == wanted
    assert shop("test", "p.yaml").code == 0
    assert shop("why", "p.yaml", "made", "id=1006").code == 0


def test_a_float_in_a_struct_that_json_has_no_number_for_is_text(shop):
    rows = [{"x": float("nan"), "y": None}, {"x": 1.5, "y": [float("inf")]}, None]
    pl.DataFrame({"s": pl.Series(rows, dtype=pl.Struct({"x": pl.Float64, "y": pl.List(pl.Float64)}))}).write_parquet(
        shop.folder / "a.parquet"
    )
    found = shop("sql", "select s from 'a.parquet' order by s.x", "-o", "jsonl").out
    assert [json.loads(line)["s"] for line in found.splitlines()] == [
        {"x": 1.5, "y": ["Infinity"]},
        {"x": "NaN", "y": None},
        None,
    ]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_struct_with_a_field_that_has_no_fit_name_is_refused(shop, name):
    pl.DataFrame({"s": pl.Series([{name: 1}], dtype=pl.Struct({name: pl.Int64}))}).write_parquet(
        shop.folder / "a.parquet"
    )
    found = shop("sql", "select s from 'a.parquet'")
    assert found.code == 2
    assert "a type that records can't have" in found.err
