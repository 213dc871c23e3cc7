"""Tables and queries of Postgres as inputs: what it alone can; tests/tables/test_database.py has what all databases can."""

from collections import Counter
from decimal import Decimal

import polars as pl
import psycopg
import pytest

from ddcli import read_log
from ddcli.driver.run import run
from ddcli.errors import DdError, InputError, SpecErrors
from ddcli.store.mirrors.server_databases import PostgresReader, series
from ddcli.store.mirrors.source import DatabaseSource
from tests.cases import cases
from tests.harness import called
from tests.tables.test_database import held, pipeline

MADE = "create table orders (id int, region text, amount double precision)"


def test_tables_of_one_database_are_of_one_moment(tmp_path, database, execute, monkeypatch):
    """A row that is written as the first table is read is in neither."""
    execute(
        "create table a (id int)", "create table b (id int)", "insert into a values (1)", "insert into b values (1)"
    )
    file = tmp_path / "p.yaml"
    tables = ", ".join(f"{name}: {{database: '{database}', table: {name}}}" for name in "ab")
    file.write_text(f"name: p\ninputs: {{{tables}}}\noutputs: {{a: a/, b: b/}}\n")
    read = PostgresReader.rows

    def rows(*given):
        yield from read(*given)
        execute("insert into a values (2)", "insert into b values (2)")

    monkeypatch.setattr(PostgresReader, "rows", rows)
    run(file)
    assert held(tmp_path, "a") == held(tmp_path, "b") == Counter([(1,)])
    monkeypatch.setattr(PostgresReader, "rows", read)
    run(file)
    assert held(tmp_path, "a") == held(tmp_path, "b") == Counter([(1,), (2,), (2,)])


@pytest.mark.parametrize("end", ["", ";", " -- all of them"])
def test_a_query(tmp_path, database, execute, end):
    execute(MADE, "insert into orders values (1, 'a%', 1), (2, 'a%', 2.5), (3, 'b', 3)")
    query = (
        f"select region, sum(amount)::numeric(9, 2) as amount from orders where region like '%%%' group by region{end}"
    )
    query = query.replace("'", "''").replace("%%%", "%")
    run(pipeline(tmp_path, database, f"query: '{query}'"))
    assert held(tmp_path) == Counter([("a%", Decimal("3.50")), ("b", Decimal("3.00"))])


EXACT = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["4294967295"],
    "real": ["'1e-45'", "3.4028235e38", "'nan'", "'-infinity'", "0.1"],
    "double precision": ["'5e-324'", "1.7976931348623157e308", "'nan'", "'infinity'", "0.1"],
    "numeric(38, 0)": ["9" * 38, "-" + "9" * 38],
    "numeric(38, 38)": ["0." + "9" * 38],
    "numeric(6, 2)": ["-9999.99", "0.10"],
    "text": ["''", "'ä\U0001f600'", "'\\'", "E'a\\nb'", "'null'"],
    "varchar(3)": ["'ab '"],
    "char(3)": ["'ab'"],
    "uuid": ["'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "json": ["""'{"a": [1, null]}'"""],
    "jsonb": ["""'{"b":1.50,"a":"\\""}'"""],
    "mood": ["'so, so'"],
    "inet": ["'10.0.0.1/8'"],
    "bytea": ["'\\x00ff'", "''"],
    "date": ["'0001-01-01'", "'9999-12-31'"],
    "time": ["'00:00'", "'23:59:59.999999'"],
    "timestamp": ["'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.5'"],
    "timestamptz": ["'0001-01-02 00:00Z'", "'9999-12-31 23:59:59.999999Z'", "'2024-07-01 12:00 Europe/Berlin'"],
    "boolean[]": ["'{t,null,f}'"],
    "float4[]": ["'{0.1,nan}'"],
    "bytea[]": ["""'{"\\\\x00ff"}'"""],
    "integer[]": ["'{1,null}'", "'{}'"],
    "text[]": ["""'{"a,b","NULL",null,"\\"",""}'"""],
    "numeric(4, 1)[]": ["'{1.5,null}'"],
    "timestamptz[]": ["'{2024-01-01 00:00+01}'"],
    "mood[]": ["""'{"so, so",null}'"""],
    "date[]": ["'{2024-02-29}'"],
}


def test_values_come_over_as_they_are(database, execute):
    """Written into a table of the same type again they are the same, and a null is one."""
    execute("create type mood as enum ('so, so', 'ok')")
    for kind, values in EXACT.items():
        execute(f"create table t (id int, x {kind})", f"create table back (id int, x {kind})")
        for at, value in enumerate([*values, "null"]):
            execute(f"insert into t values ({at}, {value})")
        with psycopg.connect(database, autocommit=True) as connection:
            for at, value in read(database, "select * from t"):
                cast = f"%s::text::{kind}" if isinstance(value, str) else f"%s::{kind}"
                connection.execute(f"insert into back values (%s, {cast})", [at, value])
        written = "select id, x::text from {} order by id"
        assert execute(written.format("t")) == execute(written.format("back")), kind
        execute("drop table t", "drop table back")


def read(database, query):
    source = DatabaseSource(PostgresReader(database, query, {}, None, None), query, None, ())
    return pl.concat(list(source.whole()[1])).select(pl.exclude("^_.*$")).rows()


REFUSED = {
    "date": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"],
    "timestamp": ["infinity", "-infinity", "0044-03-15 BC", "294276-12-31"],
    "timestamptz": ["infinity", "0044-03-15 BC", "10000-01-01"],
    "time": ["24:00"],
    "numeric(9, 2)": ["nan"],
    "date[]": ["{infinity}"],
    "int[]": ["{{1,2},{3,4}}"],
}


def test_values_that_we_have_not_are_refused(database, execute):
    for kind, value in ((kind, value) for kind, values in REFUSED.items() for value in values):
        execute("drop table if exists t", f"create table t (x {kind})", f"insert into t values ('{value}')")
        with pytest.raises(InputError, match=r"the column 'x' has .*, which is no"):
            read(database, "select * from t")


# fmt: off
UNREAD = ["interval", "money", "bit(3)", "int4range", "point", "timetz", "numeric", "numeric(50, 2)", "numeric[]", "tsvector", "pair", "other.date"]
# fmt: on


def test_types_that_are_not_read_are_refused_by_name(tmp_path, database, execute):
    """But not where other columns are named. A type that has but the name of one is another."""
    execute("create type pair as (a int, b int)", "create schema other", "create type other.date as (a int)")
    for kind in UNREAD:
        execute("drop table if exists t", f"create table t (id int, x {kind})", "insert into t values (1)")
        with pytest.raises(InputError, match="the column 'x' is") as caught:
            read(database, "select * from t")
        assert ("declare it under `columns`" if "numeric" in kind else "cast it in a `query`") in caught.value.hint
    run(pipeline(tmp_path, database, "table: t, columns: {id: int32?}"))
    assert held(tmp_path) == Counter([(1,)])


def test_numbers_without_digits_are_held_to_those_that_are_declared(tmp_path, database, execute):
    execute("create table t (x numeric, n numeric, l numeric[])", "insert into t values (1.50, 12, '{0.10}')")
    file = pipeline(
        tmp_path, database, 'table: t, columns: {x: "decimal(9, 2)?", n: int64?, l: "list[decimal(4, 2)?]?"}'
    )
    run(file)
    run(file)
    assert read_log(tmp_path / "out", as_of="latest").rows() == [(Decimal("1.50"), 12, [Decimal("0.10")], 1)]
    for value, what in (("1.505", "1.505"), ("'nan'", "NaN"), ("12345678", "12345678")):
        execute("truncate t", f"insert into t values ({value})")
        with pytest.raises(InputError, match=f"the column 'x' has '{what}', which is no decimal"):
            run(file)


@cases("""
more → problem → hint
table: nothing → relation "nothing" does not exist → schema
table: orders, cursor: none → the query has no column 'none', its `cursor` → its columns are
table: orders, key: none → the query has no column 'none', its `key` → its columns are
table: orders, cursor: amount → the cursor 'amount' is float64 → an integer
table: orders, key: region → several rows have one key: region = a → name more columns
query: 'select 1 as a, 2 as a' → two columns 'a' → once
query: 'select * from orders; drop table orders' → the database can't be read
query: '1) as a; commit; drop table orders; --' → the database can't be read
query: 'select * from secret' → permission denied → grant select
""")
def test_what_can_not_be_read(tmp_path, database, execute, more, problem, hint):
    execute(MADE, "insert into orders values (1, 'a', 1), (2, 'a', 2)", "create table secret (id int)")
    execute("grant select on orders to guest")
    with pytest.raises(DdError) as caught:
        run(pipeline(tmp_path, database.replace("postgres@", "guest@"), more))
    assert problem in caught.value.problem
    assert caught.value.span is not None or caught.value.place.startswith("postgresql://")
    assert hint in (caught.value.hint or "")
    assert len(execute("select * from orders")) == 2


def test_a_server_that_is_not_there(tmp_path, database):
    for uri, what in (
        ("postgresql://me@/db?host=/nowhere", "check host and port"),
        (database.replace("/shop", "/none"), "name of the database"),
    ):
        with pytest.raises(InputError) as caught:
            run(pipeline(tmp_path, uri))
        assert what in caught.value.hint


def test_a_server_that_goes_as_it_is_read(tmp_path, database, execute, monkeypatch):
    """The run fails, and the next one begins where the last one ended."""
    execute(MADE, "insert into orders select g, 'a', g from generate_series(1, 300) g")
    file = pipeline(tmp_path, database)
    monkeypatch.setattr("ddcli.store.mirrors.server_databases.MOST", 100)
    calls = []

    def gone(*given):
        calls.append(given)
        if len(calls) == 4:
            execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
            )
        return series(*given)

    monkeypatch.setattr("ddcli.store.mirrors.server_databases.series", gone)
    with pytest.raises(InputError, match="the database can't be read"):
        run(file)
    monkeypatch.undo()
    run(file)
    assert len(held(tmp_path)) == 300


@pytest.mark.parametrize(
    "uri",
    ["postgresql://me:hidd3n@db.example/shop", "postgres://me:hi/dd3n@h/s", "postgresql://h/s?user=me&password=hidd3n"],
)
def test_a_password_is_refused_and_never_shown(tmp_path, capsys, uri):
    file = pipeline(tmp_path, uri, "table: orders, kye: id")
    for command in (["check"], ["run"], ["run", "--log-format", "json"], ["plan"]):
        assert called([*command, str(file)]) == 2
        shown = capsys.readouterr()
        assert "no password in it" in shown.out + shown.err
        assert "PGPASSWORD" in shown.out + shown.err
        assert "dd3n" not in shown.out + shown.err
    assert not any(
        "dd3n" in path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file() and path != file
    )
    with pytest.raises(SpecErrors):
        run(file)


def test_what_is_kept_names_no_user(tmp_path, database, execute):
    execute(MADE)
    run(pipeline(tmp_path, database))
    mark = (tmp_path / ".dd/p/tables/orders/.table.json").read_text()
    assert "postgresql://" in mark
    assert "postgres@" not in mark
