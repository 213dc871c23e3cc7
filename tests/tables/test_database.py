"""Tables and queries of databases as inputs: what all kinds have in common, and SQLite and DuckDB; tests/postgres and tests/mysql have what those servers alone can."""

import json
import os
import random
from collections import Counter
from itertools import product

import duckdb
import pytest

from ddcli import read_log
from ddcli.driver.run import run
from ddcli.errors import DdError, InputError, SpecErrors, UsageError
from tests.databases import KINDS
from tests.draws import SEED, many, some
from tests.harness import called

EVERY = pytest.mark.parametrize("kind", KINDS)
MADE = "create table orders (id integer, region varchar(9), amount double precision)"
GROWING = {
    "sqlite": "text collate nocase",
    "duckdb": "varchar collate nocase",
    "postgres": 'text collate "en-x-icu"',
    "mysql": "varchar(9)",
}
"""A type whose order is another than that of bytes."""
MOMENTS = {"sqlite": "integer", "duckdb": "timestamptz", "postgres": "timestamptz", "mysql": "datetime(6)"}
"""A type that says when a row was written; SQLite holds values to none of time."""
WAITS = {
    "postgres": ("pg_sleep(wait)::text", "the server has been silent for 1 s"),
    "mysql": ("cast(sleep(wait) as char)", "Lost connection"),
}
"""An expression that waits, and how the end of patience is reported."""


def rows(base):
    """Return what the table holds."""
    return Counter(base("select * from orders"))


def pipeline(folder, database, more="table: orders"):
    """Write the pipeline file for a database, or for a URI."""
    file = folder / "p.yaml"
    table = f"{{database: '{getattr(database, 'uri', database)}', {more}}}"
    file.write_text(f"name: p\ninputs: {{orders: {table}}}\noutputs: {{orders: out/}}\n")
    return file


def held(folder, output="out"):
    return Counter({tuple(row): diff for *row, diff in read_log(folder / output, as_of="latest").rows()})


@pytest.mark.in_turn
@pytest.mark.parametrize(("kind", "seed"), [*some(product(KINDS, range(many(3))))])
def test_a_random_history(tmp_path, base, seed):
    """After each run the output is what the database has, equal rows and nulls too; without a change there is no update."""
    draw = random.Random(f"{SEED}-{seed}")
    base(MADE, "insert into orders values (0, 'a', 0.5)")
    full = {"postgres": "public.orders", "mysql": "shop.orders"}.get(base.kind, "orders")
    file = pipeline(tmp_path, base, draw.choice(["table: orders", f"table: {full}, time: version"]))
    run(file)
    for _ in range(4):
        at, word = draw.randrange(4), draw.choice(["'a'", "'b'", "null"])
        steps = [
            f"insert into orders values ({at}, {word}, {draw.choice(['0.5', 'null'])}), ({at}, {word}, 0.5)",
            f"update orders set region = {word} where id = {at}",
            f"delete from orders where id = {at}",
        ]
        base(*draw.sample(steps, draw.randrange(3)))
        before = held(tmp_path)
        summary = run(file)
        assert held(tmp_path) == rows(base)
        if held(tmp_path) == before:
            assert not sum(output.inserted + output.deleted for output in summary.outputs.values())


@pytest.mark.in_turn
@EVERY
@pytest.mark.parametrize("key", ["id", "[id, region]"])
def test_a_history_by_key(tmp_path, monkeypatch, base, key):
    """Also where rows are more than fit into memory; a key that two rows have is refused, and named."""
    monkeypatch.setattr("ddcli.store.scratch.buckets.HELD", 100)
    draw = random.Random(f"{SEED}-{key}")
    base(MADE, "insert into orders values (0, 'a', 0.5), (1, null, 1), (null, null, 1)")
    file = pipeline(tmp_path, base, f"table: orders, key: {key}")
    run(file)
    for _ in range(3):
        at = draw.randrange(9)
        base(
            f"delete from orders where id = {at} or id = 8",
            f"insert into orders values ({at}, 'b', {at})",
            f"update orders set amount = {draw.randrange(3)} where id <> {at}",
        )
        run(file)
        assert held(tmp_path) == rows(base)
    base("insert into orders values (null, null, 7)")
    with pytest.raises(InputError, match="several rows have one key: id = None"):
        run(file)


@EVERY
def test_texts_grow_by_their_bytes(tmp_path, base):
    """In the order of a language, or of one that disregards case, `B` comes after `a`: it would be read twice."""
    base(f"create table t (code {GROWING[base.kind]})", "insert into t values ('a'), ('B')")
    file = pipeline(tmp_path, base, "table: t, cursor: code")
    run(file)
    base("insert into t values ('c%'), ('A')")
    run(file)
    assert held(tmp_path) == Counter([("a",), ("B",), ("c%",)])
    base("insert into t values (null)")
    with pytest.raises(InputError, match="the cursor 'code' has a null"):
        run(file)


@EVERY
def test_a_cursor_by_key_replaces_rows(tmp_path, base):
    """Rows with the greatest value so far are read again: one that was written at that same moment is not missed."""

    def at(day):
        return str(day) if base.kind == "sqlite" else f"'2024-01-0{day} 00:00:00'"

    base(
        f"create table t (id integer, moment {MOMENTS[base.kind]}, v varchar(9))",
        f"insert into t values (1, {at(1)}, 'a'), (2, {at(2)}, 'b')",
    )
    file = pipeline(tmp_path, base, "table: t, cursor: moment, key: id")
    run(file)
    base(
        f"insert into t values (3, {at(2)}, 'c')",
        f"update t set moment = {at(3)}, v = 'new' where id = 1",
        "delete from t where id = 2",
    )
    assert run(file).inputs["orders"].rows == 3
    assert {(row[0], row[2]) for row in held(tmp_path)} == {(1, "new"), (2, "b"), (3, "c")}
    base(f"insert into t values (3, {at(5)}, 'd')")
    run(file)
    assert {(row[0], row[2]) for row in held(tmp_path)} == {(1, "new"), (2, "b"), (3, "d")}


@pytest.mark.parametrize("kind", WAITS)
def test_a_server_that_is_silent(tmp_path, base, monkeypatch):
    """A query whose second row takes long: the run ends with the problem, and the next one reads all."""
    wait, problem = WAITS[base.kind]
    base("create table t (k int, wait double precision)", "insert into t values (1, 0), (2, 30)")
    file = pipeline(tmp_path, base, f"query: 'select k, {wait} as w from t'")
    with monkeypatch.context() as patch:
        patch.setenv("DDCLI_DATABASE_TIMEOUT", "1")
        with pytest.raises(InputError, match=problem) as caught:
            run(file)
    assert "DDCLI_DATABASE_TIMEOUT" in caught.value.hint
    base("update t set wait = 0")
    assert run(file).changed  # in the usual time: a busy machine takes longer
    assert {row[0] for row in held(tmp_path)} == {1, 2}
    monkeypatch.setenv("DDCLI_DATABASE_TIMEOUT", "soon")
    base("insert into t values (3, 0)")
    with pytest.raises(UsageError, match="DDCLI_DATABASE_TIMEOUT is 'soon'"):
        run(file)


@EVERY
def test_a_growing_column(tmp_path, base):
    """Only rows with greater values are read: one that goes is not missed."""
    base(MADE, "insert into orders values (1, 'a', 1), (2, 'b', 2)")
    file = pipeline(tmp_path, base, "table: orders, cursor: id")
    run(file)
    base("delete from orders where id = 1", "insert into orders values (3, 'c', 3), (3, 'd', 4)")
    assert run(file).inputs["orders"].rows == 2
    assert held(tmp_path) == Counter([(1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0), (3, "d", 4.0)])
    base("insert into orders values (null, 'e', 5)")
    with pytest.raises(InputError, match="the cursor 'id' has a null"):
        run(file)


def test_by_a_growing_column_no_other_column_can_come(tmp_path, base):
    """Neither can it be left out by a query, which would be another one: only the hint that helps is there."""
    base(MADE, "insert into orders values (1, 'a', 1)")
    file = pipeline(tmp_path, base, "table: orders, cursor: id")
    run(file)
    base("alter table orders add column more int", "insert into orders values (2, 'b', 2, 2)")
    with pytest.raises(InputError, match="have no value in a column that is new") as caught:
        run(file)
    assert caught.value.hint.startswith("`dd reset PIPELINE --outputs`")


@EVERY
def test_a_query_with_declared_columns(tmp_path, base):
    base(MADE, "insert into orders values (1, 'a', 1.25), (2, 'a', 2)")
    query = "query: 'select region, cast(sum(amount) as decimal(9, 2)) as amount, date(''2024-01-31'') as day from orders group by region'"
    columns = "columns: {region: string?, amount: 'decimal(9, 2)?', day: date?}"
    query = query if base.kind == "sqlite" else query.replace("date(''", "cast(''").replace("31'')", "31'' as date)")
    run(pipeline(tmp_path, base, f"{query}, {columns}"))
    ((record, count),) = held(tmp_path).items()
    assert (str(record[0]), str(record[1]), str(record[2]), count) == ("a", "3.25", "2024-01-31", 1)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_a_database_that_has_not_changed_is_not_read(tmp_path, base, monkeypatch):
    """A server of MySQL writes by itself for a while; see tests/mysql."""
    base(MADE, "insert into orders values (1, 'a', 1)")
    if base.kind != "postgres":
        os.utime(tmp_path / "shop.db", (1, 1))
    file = pipeline(tmp_path, base)
    run(file)
    monkeypatch.setattr("ddcli.store.mirrors.source.DatabaseSource._read", lambda *_: pytest.fail("it was read"))
    assert not run(file).changed


@EVERY
def test_names_that_need_quotes(tmp_path, base):
    mark = "`" if base.kind == "mysql" else '"'
    names = {"table": "a \"b`' %s;--", "key": "%(a)s", "cursor": 'x "`y'}
    table, key, cursor = (f"{mark}{name.replace(mark, 2 * mark)}{mark}" for name in names.values())
    base(f"create table {table} ({cursor} int, {key} varchar(9))", f"insert into {table} values (1, '%s')")
    run(pipeline(tmp_path, base, json.dumps(names)[1:-1]))
    assert held(tmp_path) == Counter([(1, "%s")])


@EVERY
def test_another_query_counts_from_the_next_run_on(tmp_path, base):
    """Although the database is the same; by a growing column its former rows could not be told, so that is refused."""
    base(MADE, "insert into orders values (1, 'a', 1), (2, 'b', 2)")
    if base.kind in ("sqlite", "duckdb"):
        os.utime(tmp_path / "shop.db", (1, 1))
    run(pipeline(tmp_path, base))
    run(pipeline(tmp_path, base, "query: select * from orders where id > 1"))
    assert held(tmp_path) == Counter([(2, "b", 2.0)])
    with pytest.raises(InputError, match="by another query or without this `cursor`"):
        run(pipeline(tmp_path, base, "table: orders, cursor: id"))


def test_values_that_are_none_of_their_type_are_refused(tmp_path, base):
    base(MADE, "insert into orders values (1, 'a', 1), ('x', 'b', 2)")
    with pytest.raises(InputError, match="the column 'id' is int64, and 'x' is not"):
        run(pipeline(tmp_path, base))
    base("create table days (day date)")
    with pytest.raises(InputError, match="'day' is DATE, which SQLite does not hold values to"):
        run(pipeline(tmp_path, base, "table: days"))
    base("insert into days values ('2024-01-31'), ('31.1.')")
    with pytest.raises(InputError, match=r"the column 'day' is date, and '31\.1\.' is not"):
        run(pipeline(tmp_path, base, "table: days, columns: {day: date?}"))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("table: nothing", "the database can't be read"),
        ("table: orders, cursor: none", "the query has no column 'none', its `cursor`"),
        ("query: 'select * from orders; drop table orders'", "the database can't be read"),
    ],
)
@EVERY
def test_what_can_not_be_read(tmp_path, base, more, problem):
    base(MADE)
    with pytest.raises(DdError) as caught:
        run(pipeline(tmp_path, base, more))
    assert problem in caught.value.problem
    assert rows(base) == Counter()


@pytest.mark.parametrize("kind", ["duckdb"])
def test_other_files_are_out_of_a_query_s_reach(tmp_path, base):
    base(MADE)
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match="the database can't be read"):
        run(pipeline(tmp_path, base, f"query: \"select * from read_csv('{tmp_path}/secret.csv')\""))


@pytest.mark.parametrize("more", ["cursor: id", "table: orders, query: select 1"])
def test_a_file_that_names_no_rows_or_two_kinds(tmp_path, base, more):
    with pytest.raises(SpecErrors) as caught:
        run(pipeline(tmp_path, base, more))
    assert "must have `table` or `query`, and not both" in caught.value.errors[0].problem


@EVERY
@pytest.mark.parametrize("more", ["", ", columns: {id: int64?, region: string?}"])
def test_looking_before_the_first_run(tmp_path, base, capsys, more):
    """`dd check` and `dd explain` see the columns, and there are no files to miss."""
    base(MADE)
    file = str(pipeline(tmp_path, base, f"table: orders{more}"))
    assert called(["check", file]) == 0
    shown = capsys.readouterr()
    assert "no files here" not in shown.err + shown.out
    assert called(["explain", file]) == 0
    assert "orders" in capsys.readouterr().out


def test_a_column_that_is_not_named_need_not_be_readable(tmp_path, base):
    base("create table days (id integer, day date)", "insert into days values (1, 'x')")
    run(pipeline(tmp_path, base, "table: days, columns: {id: int64?}"))
    assert held(tmp_path) == Counter([(1,)])
    base("update days set day = '2024-01-31'")
    file = pipeline(tmp_path, base, "table: days, columns: {id: int64?, day: date?}")
    file.write_text(file.read_text().replace("out/", "new/"))
    run(file, apply=True)
    ((record, count),) = held(tmp_path, "new").items()
    assert (record[0], str(record[1]), count) == (1, "2024-01-31", 1)


def test_a_query_of_duckdb_is_one_statement(tmp_path, base, shop):
    """More of them could change settings, such as the file of a log of queries."""
    with duckdb.connect(str(shop.folder / "t.db")) as database:
        database.execute("create table t as select 1 as x")
    for query in (
        "select x from t) as a; set log_query_path = 'queries.log'; select * from (select 1 as x",
        "select 1 as x) as a; attach 'other.db'; select * from (select 1 as x",
    ):
        shop.write(
            "p.yaml",
            f'inputs: {{a: {{database: duckdb:///t.db, query: "{query}"}}}}\noutputs: {{a: out/}}\n',
        )
        for command in ("check", "run"):
            done = shop(command, "p.yaml")
            assert done.code == 3
            assert "the query is more than one statement" in done.err
    assert not [*shop.folder.glob("*.log"), *shop.folder.glob("other*")]
