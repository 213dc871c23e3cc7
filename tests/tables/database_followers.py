"""Pipelines whose outputs are tables of databases, and what every database is judged by."""

import contextlib
import shutil
import sqlite3
from collections import Counter

import duckdb
import polars as pl
import psycopg
import pytest

from ddcli.driver.run import run
from ddcli.errors import DdError, EngineError, StateError
from ddcli.provenance.verification import verify
from ddcli.store.targets.database_table import DatabaseTable
from tests.draws import chance, many
from tests.harness import contents, write_log
from tests.store.support import Dead, Faulty
from tests.tables.followers import COLUMNS, Follower, race
from tests.tables.test_output_types import same, write

PIPELINE = """\
dd: 1
name: shop
inputs: {{sales: in/}}
collections:
  totals: {{from: sales, apply: [{{reduce: {{by: [city], n: count(*), total: sum(amount)}}}}]}}
outputs:
  t: {{from: {source}, as: table, to: "{uri}", table: '{table}'{key}}}
"""


class DatabaseFollower(Follower):
    """A folder with a pipeline whose output is a table of the database at a URI: the input's rows, or of each city one, by this key."""

    def __init__(self, folder, uri, *, keyed):
        super().__init__(folder, "parquet")
        self.uri, self.keyed = uri, keyed
        self.table = "t" if uri.startswith("sqlite") else "marts.t" if uri.startswith("postgres") else "main.t"
        key, source = (", key: city", "totals") if keyed else ("", "sales")
        (folder / "shop.yaml").write_text(PIPELINE.format(source=source, uri=uri, table=self.table, key=key))
        if not uri.startswith("postgres"):
            (folder / "lake").mkdir(exist_ok=True)

    def copy(self, folder):
        shutil.copytree(self.folder, folder)
        found = DatabaseFollower(folder, self.uri, keyed=self.keyed)
        found.step = self.step
        return found

    def execute(self, *statements):
        """Execute statements by the database's own client, and return the rows of the last one."""
        path = str(self.folder / "lake/t.db")
        if self.uri.startswith("postgres"):
            opened = psycopg.connect(self.uri, autocommit=True)
        else:
            opened = (
                duckdb.connect(path) if self.uri.startswith("duckdb") else sqlite3.connect(path, isolation_level=None)
            )
        with contextlib.closing(opened):
            for statement in statements:
                found = opened.execute(statement)
            if self.uri.startswith("postgres") and found.description is None:
                return []
            return found.fetchall()

    def read(self):
        return Counter(map(tuple, self.execute(f"select * from {self.table}")))

    def commits(self):
        space = "marts." if self.uri.startswith("postgres") else ""
        return [row[0] for row in self.execute(f"select number from {space}dd_commits")]

    def meant(self):
        rows = Counter(contents(self.folder / "in"))
        if not self.keyed:
            return rows
        cities = {city for city, _ in rows}
        totals = [(each, [(n, amount) for (city, amount), n in rows.items() if city == each]) for each in cities]
        return Counter(
            [(city, sum(n for n, _ in found), sum(n * amount for n, amount in found)) for city, found in totals]
        )


@contextlib.contextmanager
def dying(at=None, *, after=False):
    """Have the run die before the transaction with this number ends, or after it; yield the numbers of those that have begun."""
    begun, real = [], DatabaseTable._transaction

    @contextlib.contextmanager
    def transaction(self, *, write):
        here = len(begun) == at
        begun.append(len(begun))
        with real(self, write=write) as connection:
            yield connection
            if here and not after:
                raise Dead
        if here:
            raise Dead

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseTable, "_transaction", transaction)
        yield begun


def judge_histories(make, cases):
    """After each run the table has what its log adds up to, and one more commit if there is something new."""
    for seed in range(cases):
        draw, each = chance("databases", seed), make(seed)
        for _ in range(6):
            for _ in range(draw.choice([1, 1, 2])):
                each.supply(draw)
            before = each.commits() if each.step > 2 else []
            each.run()
            each.check()
            assert not each.run().changed
            (number,) = each.commits()
            assert not before or number >> 20 in (before[0] >> 20, (before[0] >> 20) + 1)


def judge_deaths(make, clear):
    """Have a run die at some of its operations on files, and before or after any transaction's end: the commit is made once."""
    draw = chance("deaths")
    first = make(0)
    first.supply(draw)
    first.run()
    first.supply(draw)
    saved = first.execute(f"select * from {first.table}")
    assert saved
    whole, files = clear(first, saved), Faulty()
    with dying() as transactions:
        whole.run(files)
    shutil.rmtree(whole.folder)
    operations = draw.sample(files.changes, min(many(3), len(files.changes)))
    deaths = [("files", at, draw.random() < 0.5) for at in operations]
    deaths += [("transactions", at, after) for at in transactions for after in (False, True)]
    for place, at, after in deaths:
        each = clear(first, saved)
        with contextlib.suppress(Dead):
            if place == "files":
                each.run(Faulty(at, after=after))
            else:
                with dying(at, after=after):
                    each.run()
        each.run()
        each.check()
        assert len(each.commits()) == 1
        assert each.commits()[0] >> 20 == 2, (place, after, at)
        shutil.rmtree(each.folder)


def judge_races(each):
    race(each)
    assert each.commits()[0] >> 20 == 3


def judge_copies(each, folder):
    """Judge a copy of the state that was left behind: it brings the table to what it knows, and takes no other's commit for its own."""
    draw = chance("copies")
    each.supply(draw)
    each.run()
    shutil.copytree(each.folder / ".dd", folder)
    each.supply(draw)
    with dying(2, after=True), contextlib.suppress(Dead):
        each.run()
    shutil.rmtree(each.folder / ".dd")
    shutil.move(folder, each.folder / ".dd")
    each.supply(draw)
    each.run()
    each.check()


def judge_others(each):
    """Rows of others are refused before the first commit; rows that are gone as soon as they are to go. A table without rows is written anew."""
    draw = chance("others")
    each.supply(draw)
    columns = "city text, n bigint, total bigint" if each.keyed else "city text, amount bigint"
    each.execute(f"create table {each.table} ({columns})", f"insert into {each.table} (city) values ('x')")
    for _ in range(2):
        with pytest.raises(StateError, match="that this pipeline has not written"):
            each.run()
    assert sum(each.read().values()) == 1
    each.execute(f"drop table {each.table}")
    each.run()
    each.check()
    each.execute(f"delete from {each.table}")
    write_log(each.folder / f"in/{each.step:03d}.parquet", [("new", 1, each.step, 1)], COLUMNS)
    each.run()
    each.check()
    each.execute(f"delete from {each.table} where city = 'new'")
    found = [(*record, each.step + 1, -n) for record, n in contents(each.folder / "in").items()]
    write_log(each.folder / f"in/{each.step + 1:03d}.parquet", found, COLUMNS)
    problem = (
        "rows, and had" if each.uri.startswith("duckdb") else "retracts a row that the table doesn't have: city = "
    )
    with pytest.raises((EngineError, StateError), match=problem):
        each.run()
    each.execute(f"drop table {each.table}")
    each.run()
    each.check()


def judge_another_writer(each):
    """Refuse a table that another state writes while it is empty, too, until it is dropped."""
    write_log(each.folder / "in/000.parquet", [("x", 1, 0, 1), ("x", 1, 0, -1)], COLUMNS)
    each.run()
    shutil.rmtree(each.folder / ".dd")
    for _ in range(2):
        with pytest.raises(StateError, match="another output writes the table, too"):
            each.run()
    each.execute(f"drop table {each.table}")
    each.step = 1
    each.supply(chance("another writer"))
    each.run()
    each.check()


def judge_names_of_one_table(each, names):
    """Notice that another pipeline writes the table by another name of it, also while it is empty; by that the same pipeline goes on."""
    write_log(each.folder / "in/000.parquet", [("x", 1, 0, 1), ("x", 1, 0, -1)], COLUMNS)
    each.run()
    text = (each.folder / "shop.yaml").read_text()
    for name in names:
        other = text.replace("name: shop", "name: other").replace(f"table: '{each.table}'", f"table: '{name}'")
        (each.folder / "other.yaml").write_text(other)
        for _ in range(2):
            with pytest.raises(StateError, match="another output writes the table, too"):
                run(each.folder / "other.yaml")
    each.step = 1
    for name in names:
        (each.folder / "shop.yaml").write_text(text.replace(f"table: '{each.table}'", f"table: '{name}'"))
        each.supply(chance("names", name))
        each.run()
        each.check()
    assert [number >> 20 for number in each.commits()] == [1 + len(names)]


def judge_a_former_name(each):
    """Have an output that got another name go on with its table."""
    draw = chance("former")
    for name in ("t", "u"):
        each.supply(draw)
        path = each.folder / "shop.yaml"
        path.write_text(path.read_text().replace("  t: {from", f"  {name}: {{from"))
        each.run(**({"apply": True} if name == "u" else {}))
        each.check()
    assert len(each.commits()) == 1
    path.write_text(path.read_text() + path.read_text().splitlines()[-1].replace("  u:", "  t:") + "\n")
    with pytest.raises(DdError, match=r"in the table .*, too|another output writes the table, too"):
        each.run(apply=True)


def judge_an_altered_table(each):
    """Refuse a table that lacks a column; count the rows of one that an older version wrote, which did not note how many there are."""
    draw = chance("altered")
    each.supply(draw)
    each.run()
    each.execute(f"alter table {each.table} rename column city to town")
    each.supply(draw)
    with pytest.raises(StateError, match="the table has no column 'city', which the output has"):
        each.run()
    each.execute(f"alter table {each.table} rename column town to city")
    space = "marts." if each.uri.startswith("postgres") else ""
    each.execute(f"create table {space}older as select writer, name, number, columns from {space}dd_commits")
    each.execute(f"drop table {space}dd_commits", f"alter table {space}older rename to dd_commits")
    each.run()
    each.check()
    ((held,),) = each.execute(f"select held from {space}dd_commits")
    assert held == sum(each.read().values())


def judge_removal(each):
    """Have a table be written anew that was dropped, or whose log is."""
    draw = chance("removed")
    each.supply(draw)
    each.run()
    each.execute(f"drop table {each.table}")
    each.supply(draw)
    each.run()
    each.check()
    each.supply(draw)
    each.run(rewrite=frozenset({"t"}))
    each.check()


def judge_types(folder, uri, table, columns, read):
    """Have values come back as what they were, and a row be found again that has them all."""
    frame = write(folder, columns, f"to: '{uri}', table: '{table}'")
    run(folder / "p.yaml")
    assert same(read(columns), frame)
    gone = frame.head(1).with_columns(time=pl.lit(1, pl.Int64), diff=pl.lit(-1, pl.Int64))
    gone.write_parquet(folder / "in/1.parquet")
    run(folder / "p.yaml")
    assert same(read(columns), frame.tail(1))


def judge_names(shop, uri, table):
    """Have hostile names of tables and columns be names."""
    names = ['x"; drop table t; --', "a b", "%s", "{0}", "sElect", "ä'"]
    shop.log("in/0.parquet", [(*range(6), 0, 1)], **dict.fromkeys([*names, "time", "diff"], pl.Int64))
    for at, key in enumerate(("", ", key: ['%s', 'x\"; drop table t; --']")):
        name = f"{table}{at}"
        text = f"dd: 1\nname: p{at}\ninputs: {{given: in/}}\n"
        shop.write(f"p{at}.yaml", f"{text}outputs: {{given: {{as: table, to: '{uri}', table: '{name}'{key}}}}}\n")
        run(shop.folder / f"p{at}.yaml")
    shop.log(
        "in/1.parquet",
        [(*range(6), 1, -1), (*range(6, 12), 1, 1)],
        **dict.fromkeys([*names, "time", "diff"], pl.Int64),
    )
    for at in range(2):
        run(shop.folder / f"p{at}.yaml")
    return names


def judge_keys(each):
    """Refuse two records of one key, and a key without a value, also where one of them was there; the table stays, and goes on later."""
    text = (each.folder / "shop.yaml").read_text()
    (each.folder / "shop.yaml").write_text(text.replace("{from: totals, as", "{from: sales, as"))

    def supply(*rows):
        write_log(each.folder / f"in/{each.step:03d}.parquet", [(*row[:2], each.step, row[2]) for row in rows], COLUMNS)
        each.step += 1

    supply(("a", 1, 1), ("b", 1, 1))
    each.run()
    before = each.read()
    for wrong, mended, problem in (
        ([("c", 1, 1), ("c", 2, 1)], [("c", 2, -1)], "several records have one key: city = c"),
        ([("d", 1, 2)], [("d", 1, -1)], "several records have one key: city = d"),
        ([("a", 2, 1)], [("a", 1, -1)], "several records have one key: city = a"),
        ([(None, 2, 1)], [(None, 2, -1)], "a record has a null in its key: city = None"),
    ):
        supply(*wrong)
        for _ in range(2):
            with pytest.raises(EngineError, match=problem):
                each.run()
            assert each.read() == before
        supply(*mended)
        each.run()
        before = each.read()
        assert before == Counter(contents(each.folder / "in"))


def judge_swaps(each):
    """Rows exchange the values of another unique index, that of `amount`, in one run, as whole cycles do; two rows of one value are refused."""
    text = (each.folder / "shop.yaml").read_text()
    (each.folder / "shop.yaml").write_text(text.replace("{from: totals, as", "{from: sales, as"))
    draw, held = chance("swaps", each.uri.partition(":")[0]), {}

    def supply(now):
        rows = [(*row, each.step, -1) for row in held.items() if now.get(row[0]) != row[1]]
        rows += [(*row, each.step, 1) for row in now.items() if held.get(row[0]) != row[1]]
        write_log(each.folder / f"in/{each.step:03d}.parquet", rows, COLUMNS)
        each.step += 1

    supply(now := {"a": 1, "b": 2, "c": 3})
    held = now
    each.run()
    each.execute(f"create unique index amounts on {each.table} (amount)")
    for _ in range(many(6)):
        values = draw.sample(range(1, 6), 4)
        now = {city: amount for city, amount in zip("abcd", values, strict=True) if draw.random() < 0.8}
        supply(now)
        held = now
        each.run()
        assert each.read() == Counter(now.items())
    supply({"a": 9, "b": 9})
    held, before = {"a": 9, "b": 9}, each.read()
    with pytest.raises(EngineError, match="the table can't be written"):
        each.run()
    assert each.read() == before
    supply({"a": 9, "b": 8})
    each.run()
    assert each.read() == Counter({("a", 9): 1, ("b", 8): 1})


def judge_verified(each):
    """Verification finds each row that another program changes, adds or removes, and nothing in a table that none has touched."""
    draw = chance("verified")
    for _ in range(2):
        each.supply(draw, rows=12)
        each.run()
    write_log(each.folder / "in/more.parquet", [("c", 1, 9, 1), ("c", 2, 9, 2)], COLUMNS)
    each.run()
    path = each.folder / "shop.yaml"
    assert verify(path, (0, 1)).same
    column, table = "total" if each.keyed else "amount", each.table
    statements = (
        f"update {table} set {column} = 77 where city = 'c'",
        f"delete from {table} where city = 'c'",
        f"insert into {table} (city, {column}) values ('x', 5)",
    )
    for at, statement in enumerate(statements):
        each.execute(statement)
        found = verify(path, (0, 1))
        assert not found.same
        assert [proof.same for proof in found.proofs] == [True]
        table_proof = found.tables["t"]
        assert not table_proof.same
        if statement.startswith("insert"):
            assert (table_proof.differing.height, table_proof.others) == (0, 1)
        each.execute(f"drop table {table}")
        assert not verify(path, (0, 1)).same
        write_log(each.folder / f"in/more{at}.parquet", [("d", at, 10 + at, 1)], COLUMNS)
        each.run()
        assert verify(path, (0, 1)).same
