"""`dd forget` in pipelines over tables: rows that have gone there are gone from mirrors, state and outputs, at all times; rows that are there still are refused."""

import sqlite3
from collections import Counter
from contextlib import closing, suppress
from itertools import product

import polars as pl
import pytest
from deltalake import DeltaTable

from ddcli.driver import migration
from ddcli.driver.forget import forget
from ddcli.driver.run import run
from ddcli.errors import StateError
from tests.draws import chance, many, some
from tests.store.support import Dead, Faulty
from tests.tables.followers import through
from tests.tables.histories import DeltaHistory, IcebergHistory, properties_of

PIPELINE = """\
name: p
inputs: {{orders: {{{place}, columns: {{k: int64?, v: string?}}}}}}
collections: {{n: {{from: orders, apply: [{{reduce: {{by: [v], n: count(*), k: sum(k)}}}}]}}}}
outputs: {{orders: out/orders/, n: out/n/}}
history: all
"""


class SqliteHistory:
    """A table of SQLite that changes at random."""

    def __init__(self, path, random):
        self.path, self.random = path, random
        self.execute("create table orders (k integer, v varchar)", "insert into orders values (1, 'a'), (2, 'b')")

    def execute(self, *statements):
        with closing(sqlite3.connect(self.path, isolation_level=None)) as database:
            for statement in statements:
                found = database.execute(statement)
            return found.fetchall()

    def change(self):
        key, word = self.random.randrange(4), self.random.choice("ab")
        self.execute(
            self.random.choice(
                [
                    f"insert into orders values ({key}, '{word}'), (1, '{word}')",
                    f"update orders set v = '{word}' where k >= {key}",
                    f"delete from orders where k = {key}",
                ]
            )
        )

    def contents(self):
        return Counter(self.execute("select k, v from orders"))


def made(folder, kind, draw, time):
    """Return a table that changes at random, the pipeline over it, and what deletes rows of a key there."""
    if kind == "delta":
        history, place = DeltaHistory(folder / "table", draw), "delta: table/"
        remove = lambda key: DeltaTable(str(folder / "table")).delete(f"k = {key}")  # noqa: E731
    elif kind == "iceberg":
        history = IcebergHistory(folder, draw)
        listed = ", ".join(f"{name}: '{value}'" for name, value in properties_of(folder).items())
        place = f"iceberg: {{catalog: {{{listed}}}, table: shop.orders}}"
        remove = lambda key: history.table.delete(f"k = {key}")  # noqa: E731
    else:
        history, place = SqliteHistory(folder / "shop.db", draw), "database: 'sqlite:///shop.db', table: orders"
        remove = lambda key: history.execute(f"delete from orders where k = {key}")  # noqa: E731
    file = folder / "p.yaml"
    file.write_text(PIPELINE.format(place=f"{place}{', time: version' if time else ''}"))
    return history, file, remove


def log_of(folder):
    """Return the updates of a log, each record's at a time together."""
    found = Counter()
    for *row, diff in pl.read_parquet(folder / "*.parquet").iter_rows():
        found[tuple(row)] += diff
    return {row: diff for row, diff in found.items() if diff}


def summed(log):
    """Return what the reduction's log must be, of a log of rows."""
    found, groups = Counter(), {}
    for time in sorted({row[-1] for row in log}):
        before = {group: (group, *values) for group, values in groups.items() if values[0]}
        for (k, v, at), diff in log.items():
            if at == time:
                n, total, known = groups.get(v, (0, 0, 0))
                groups[v] = (n + diff, total + (k or 0) * diff, known + (k is not None) * diff)
        after = {group: (group, *values) for group, values in groups.items() if values[0]}
        for state, diff in ((before, -1), (after, 1)):
            for group, n, total, known in state.values():
                found[group, n, total if known else None, time] += diff
    return {row: diff for row, diff in found.items() if diff}


def mirrored(folder):
    return pl.concat([pl.read_parquet(path) for path in folder.glob(".dd/p/tables/orders/*.parquet")], how="diagonal")


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
@pytest.mark.parametrize(("kind", "time"), [*some(product(["delta", "iceberg", "sqlite"], [False, True]))])
def test_a_random_history(tmp_path, kind, time):
    """The command may die at any operation; then it is repeated. The history is that without the rows, and goes on with the table."""
    for seed in range(many(1)):
        draw = chance("forgotten", kind, time, seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        history, file, remove = made(folder, kind, draw, time)
        for _ in range(4):
            run(file)
            history.change()
        remove(1)
        run(file)
        before = log_of(folder / "out/orders")
        files = Faulty(draw.randrange(60), after=draw.random() < 0.5)
        with through(files), suppress(Dead):
            forget(file, "k = 1")
        ways, erase = [], migration.erase
        with through(None), pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                migration, "erase", lambda *given, ways=ways, erase=erase: ways.append(erase(*given)) or ways[-1]
            )
            found = forget(file, "k = 1")
        assert None not in ways, "all was computed anew"
        assert found.still_in == []
        assert log_of(folder / "out/orders") == {row: diff for row, diff in before.items() if row[0] != 1}
        assert log_of(folder / "out/n") == summed(log_of(folder / "out/orders"))
        assert 1 not in mirrored(folder)["k"]
        again = forget(file, "k = 1")
        assert (again.rewritten, again.inputs["orders"].rows) == ([], 0)
        for _ in range(2):
            history.change()
            run(file)
        contents = history.contents(columns=["k", "v"]) if kind == "delta" else history.contents()
        latest = Counter()
        for row, diff in log_of(folder / "out/orders").items():
            latest[row[:-1]] += diff
        assert +latest == contents
        assert log_of(folder / "out/n") == summed(log_of(folder / "out/orders"))


def with_mark(folder):
    """Return the files of state and outputs in which the mark is, in their bytes or in what these are when they are decoded."""
    found = set()
    for path in [*(folder / ".dd").rglob("*"), *(folder / "out").rglob("*")]:
        if path.is_file():
            decoded = pl.read_parquet(path).write_json().encode() if path.suffix == ".parquet" else b""
            found |= {path.name} if b"ann-MARK" in path.read_bytes() + decoded else set()
    return found


def test_nothing_is_left_in_any_byte(tmp_path):
    history, file, remove = made(tmp_path, "sqlite", chance("bytes"), time=True)
    history.execute("insert into orders values (7, 'ann-MARK'), (7, 'bob')")
    run(file)
    remove(7)
    run(file)
    before = with_mark(tmp_path)
    assert any("-0000" in name for name in before)
    found = forget(file, "v = 'ann-MARK'")
    assert with_mark(tmp_path) == set()
    assert {each.was.rpartition("/")[2] for each in found.rewritten if "/tables/" in each.was} <= before
    assert (7, "bob") in {row[:2] for row in log_of(tmp_path / "out/orders")}


def test_rows_that_are_there_still_are_refused(tmp_path):
    """Also those that came since the last run took the others' going in: they would come back, or go without having been there."""
    _, file, remove = made(tmp_path, "sqlite", chance("there"), time=False)
    run(file)
    for dry in (True, False):
        with pytest.raises(StateError, match=r"still has such rows \(1 different ones\)"):
            forget(file, "k = 1", dry_run=dry)
    remove(1)
    with pytest.raises(StateError, match="still has such rows"):
        forget(file, "k = 1")
    run(file)
    assert forget(file, "k = 1", dry_run=True).inputs["orders"].rows == 2
    assert 1 in mirrored(tmp_path)["k"]
    assert forget(file, "k = 1").inputs["orders"].rows == 2


def test_by_a_cursor_the_table_is_asked(tmp_path):
    """No row is seen to go: its mirror has it until it is forgotten, and it does not come back."""
    history, file, remove = made(tmp_path, "sqlite", chance("cursor"), time=False)
    file.write_text(file.read_text().replace("table: orders", "table: orders, cursor: k"))
    run(file)
    with pytest.raises(StateError, match="still has such rows"):
        forget(file, "k = 2")
    remove(2)
    assert forget(file, "k = 2").inputs["orders"].rows == 1
    history.execute("insert into orders values (3, 'c')")
    run(file)
    assert {row[:2] for row in log_of(tmp_path / "out/orders")} == {(1, "a"), (3, "c")}


def test_who_dies_has_forgotten_all_or_nothing(tmp_path):
    """A run goes on after it; a new row of the kind is a new row."""
    draw = chance("between")
    history, file, remove = made(tmp_path, "sqlite", draw, time=False)
    run(file)
    remove(1)
    run(file)
    whole = Faulty()
    with through(whole):
        forget(file, "k = 1")
    for number in draw.sample(whole.changes, many(5)):
        if 1 not in mirrored(tmp_path)["k"]:
            history.execute("insert into orders values (1, 'z')")
            run(file)
        remove(1)
        run(file)
        files = Faulty(number)
        with through(files), suppress(Dead):
            forget(file, "k = 1")
        history.execute(f"insert into orders values ({10 + number}, 'e')")
        run(file)
        log = log_of(tmp_path / "out/orders")
        gone = 1 not in mirrored(tmp_path)["k"]
        assert gone == (1 not in {row[0] for row in log})
        assert sum(diff for row, diff in log.items() if row[0] == 1) == 0
        assert 10 + number in {row[0] for row in log}
    forget(file, "k = 1")
    assert 1 not in {row[0] for row in log_of(tmp_path / "out/orders")}
