"""Small files of a mirror become one, and nothing else changes by that: no contents, no earlier time, whatever dies, is changed or forgotten meanwhile."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from collections import Counter

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import ddcli.store.state.directory
from ddcli import read_log
from ddcli.driver.run import run
from ddcli.job import inputs
from ddcli.store.files.gate import Files
from ddcli.store.mirrors import mirror
from ddcli.store.state import register
from ddcli.store.state.manifest import read_newest
from ddcli.store.tables import inventory
from tests.draws import chance, many
from tests.harness import called
from tests.judge.test_arrival import EPOCH
from tests.store.support import Dead, Faulty

PIPELINE = """\
name: p
CLOCK
inputs: {t: {database: sqlite:///t.db, query: "select k, v from t"TIME}}
collections:
  c: {from: t, apply: [FILTER{map: {k: k, v: v}}]}
  n: {from: t, apply: [{reduce: {by: [v], n: count(*)}}]}
outputs: {c: c/, n: n/}
"""


class Shop:
    """A table of SQLite, and a pipeline that mirrors it."""

    def __init__(self, folder, *, versions):
        self.folder, self.versions, self.now, self.seen, self.filter = folder, versions, 0, {}, ""
        self.file, self.rows = folder / "p.yaml", Counter()
        self.execute("create table t (k integer, v text)")
        self.write()

    def write(self):
        text = PIPELINE.replace("CLOCK", "clock: event" if self.versions else "clock: arrival")
        text = text.replace("TIME", ", time: version" if self.versions else "").replace("FILTER", self.filter)
        self.file.write_text(text)

    def execute(self, statement, *values):
        with contextlib.closing(sqlite3.connect(self.folder / "t.db")) as database:
            database.execute(statement, values)
            database.commit()

    def change(self, draw):
        k, v = draw.randrange(4), draw.choice(["a", "b", "c"])
        how = draw.choice(["insert", "insert", "update", "delete"])
        if how == "insert":
            self.execute("insert into t values (?, ?)", k, v)
        elif how == "update":
            self.execute("update t set v = ? where k = ?", v, k)
        else:
            self.execute("delete from t where rowid = (select min(rowid) from t)")

    def run(self, death=None, **options):
        """Run, and again if it dies."""
        for at in [death, None] if death is not None else [None]:
            files = Faulty(at) if at is not None else Files()
            self.now += 7
            now = {} if self.versions else {"now": (EPOCH + dt.timedelta(microseconds=self.now)).isoformat()}
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(ddcli.store.state.directory, "Files", lambda files=files: files)
                    run(self.file, **now, **options)
                    break
            except Dead:
                continue
        with contextlib.closing(sqlite3.connect(self.folder / "t.db")) as database:
            found = Counter(database.execute("select k, v from t").fetchall())
        ((upper,),) = read_newest(self.folder / ".dd/p").upper
        self.seen[upper - 1] = found
        assert self.held() == found

    def held(self, time=None):
        """Return what the output holds at a time, or now; of the other one the same, counted."""
        found, counts = Counter(), Counter()
        for output, into in (("c", found), ("n", counts)):
            for file in sorted((self.folder / output).glob("*.parquet")):
                frame = pl.read_parquet(file).with_columns(pl.col("time").to_physical())
                frame = frame if time is None else frame.filter(pl.col("time") <= time)
                for *row, diff in frame.drop("time").iter_rows():
                    into[tuple(row)] += diff
        assert {row for row, n in counts.items() if n} == {
            (v, n) for v, n in self.counted({row: n for row, n in found.items() if n}).items()
        }
        return Counter({row: n for row, n in found.items() if n})

    def counted(self, rows):
        counts = Counter()
        for (_, v), n in rows.items():
            counts[v] += n
        return counts

    def check(self):
        for time, rows in self.seen.items():
            assert self.held(time) == rows, time

    @property
    def files(self):
        return [*(self.folder / ".dd/p/tables/t").glob("*")]


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", range(many(12)))
def test_nothing_changes_by_it(tmp_path, monkeypatch, seed):
    draw = chance("joint", seed)
    monkeypatch.setattr(mirror, "FILES", draw.choice([2, 3, 5]))
    monkeypatch.setattr(mirror, "SMALL", draw.choice([1000, 1 << 16]))
    shop, most = Shop(tmp_path, versions=draw.random() < 0.4), 0
    shop.execute("insert into t values (7, 'x')")
    shop.run()
    for _ in range(draw.randrange(8, 24)):
        for _ in range(draw.choice([0, 1, 1, 3])):
            shop.change(draw)
        how = draw.choice(["run"] * 9 + ["apply", "forget", "refresh"])
        if how == "apply":  # the same meaning, of another plan
            shop.filter = "" if shop.filter else "{filter: k >= 0}, "
            shop.write()
        refresh = {"refresh": frozenset()} if how == "refresh" else {}
        shop.run(draw.choice([None, draw.randrange(120)]), apply=how == "apply", **refresh)
        if how == "forget":  # the log is written anew, of what is kept of the table
            assert called(["forget", str(shop.file), "--where", "k = 99"]) == 0
            assert shop.held() == shop.seen[max(shop.seen)]
        most = max(most, len(shop.files))
    shop.check()
    assert most <= 2 * mirror.FILES + 6
    assert called(["state", "verify", str(shop.file)]) == 0
    assert called(["forget", str(shop.file), "--where", "k = 99"]) == 0
    shop.check()


def test_what_is_kept_of_many_versions_is_bounded(tmp_path, monkeypatch):
    """Each version that changes a row costs the bytes of this row, not those of a file."""
    monkeypatch.setattr(mirror, "FILES", 16)  # a quarter of what they are, as the versions that it takes
    monkeypatch.setattr(register, "LATELY", 16)
    write_deltalake(str(tmp_path / "table"), pl.DataFrame({"k": range(300), "v": ["a"] * 300}))
    file = tmp_path / "p.yaml"
    file.write_text("name: p\ninputs: {orders: {delta: table/}}\noutputs: {orders: out/}\n")
    run(file)
    counts, sizes, manifests = [], [], []
    for version in range(1, 41):
        DeltaTable(str(tmp_path / "table")).update(predicate=f"k = {version}", updates={"v": "'b'"})
        run(file)
        found = [path.stat().st_size for path in (tmp_path / ".dd/p/tables/orders").glob("*.parquet")]
        counts.append(len(found))
        sizes.append(sum(found))
        manifests.append(max((tmp_path / ".dd/p/manifest").glob("*.json")).stat().st_size)
    assert max(counts) <= mirror.FILES + 2
    assert min(sizes[30:]) - sizes[0] < 30 * 100
    assert max(manifests[20:]) < 1.2 * max(manifests[:20])
    assert read_log(tmp_path / "out", as_of="latest").filter(v="b").height == 40


@pytest.mark.parametrize("command", ["dry run", "plan", "sql", "why"])
def test_who_looks_while_files_are_joined_sees_each_row_once(shop, monkeypatch, command):
    """A run joins files and commits between the moment at which somebody without the lock reads the manifest, and that at which they list the files."""
    monkeypatch.setattr(mirror, "FILES", 2)
    write_deltalake(str(shop.folder / "table"), pl.DataFrame({"k": [1, 2], "v": ["a", "b"]}))
    shop.write("p.yaml", "name: p\ninputs: {orders: {delta: table/}}\noutputs: {orders: out/}\n")
    for k in range(3, 8):
        assert shop("run", "p.yaml", "-q").code == 0
        write_deltalake(str(shop.folder / "table"), pl.DataFrame({"k": [k], "v": ["new"]}), mode="append")
    plain, waiting = inventory.list_input, [True]

    def listed(*given, **options):
        if waiting and given[0] != "in":
            waiting.clear()
            before = {path.name for path in (shop.folder / ".dd/p/tables/orders").glob("*.parquet")}
            run(shop.folder / "p.yaml")
            assert before - {path.name for path in (shop.folder / ".dd/p/tables/orders").glob("*.parquet")}
        return plain(*given, **options)

    monkeypatch.setattr(inputs, "list_input", listed)
    if command == "sql":
        found = shop(
            "sql",
            "select k, count(*) as n from orders group by k order by k",
            "--from",
            "p.yaml",
            "-o",
            "csv",
            "--as-of",
            "latest",
        )
        assert found.out.split() == ["k,n", *(f"{k},1" for k in range(1, 8))]
    elif command == "why":
        found = shop("why", "p.yaml", "orders", "k=6")
        assert found.out.count("+1 at") == 1
    elif command == "plan":
        found = shop("plan", "p.yaml")
    else:
        found = shop("run", "p.yaml", "--dry-run")
        assert "nothing new" in found.err
    assert found.code == 0
    assert not waiting


def test_who_asks_finds_updates_where_they_are_now(shop, monkeypatch):
    monkeypatch.setattr(mirror, "FILES", 2)
    write_deltalake(str(shop.folder / "table"), pl.DataFrame({"k": [1, 2], "v": ["a", "b"]}))
    shop.write("p.yaml", "name: p\ninputs: {orders: {delta: table/}}\noutputs: {orders: out/}\n")
    assert shop("run", "p.yaml", "-q").code == 0
    for k in range(3, 8):
        write_deltalake(str(shop.folder / "table"), pl.DataFrame({"k": [k], "v": ["new"]}), mode="append")
        assert shop("run", "p.yaml", "-q").code == 0
    found = sorted(path.name for path in (shop.folder / ".dd/p/tables/orders").glob("*.parquet"))
    assert len(found) < 4
    asked = shop("sql", "select * from orders order by k", "--from", "p.yaml", "-o", "csv").out.split()
    assert asked == ["k,v", "1,a", "2,b", *(f"{k},new" for k in range(3, 8))]
    assert f"tables/orders/{found[0]}" in shop("why", "p.yaml", "orders", "k=3").out
    assert shop("plan", "p.yaml").code == 0
    assert shop("run", "p.yaml").err.startswith("p: nothing new since")
