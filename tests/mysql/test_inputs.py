"""Tables and queries of MySQL, here MariaDB, as inputs: what it alone can; tests/tables/test_database.py has what all databases can."""

import datetime as dt
import time
from collections import Counter
from decimal import Decimal

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.errors import InputError, SpecErrors
from ddcli.store.mirrors import server_databases
from ddcli.store.mirrors.server_databases import MysqlReader
from tests.tables.test_database import held, pipeline

MADE = "create table orders (id int, region varchar(9), amount double)"


def test_a_database_in_which_nobody_wrote_is_not_read(tmp_path, database, execute, monkeypatch):
    """As far as one log has all that is written; the server itself writes there for a while after a change."""
    execute(MADE, "insert into orders values (0, 'a', 0.5)")
    file = pipeline(tmp_path, database)
    reads, rows = [], MysqlReader.rows

    def read(*arguments):
        reads.append(arguments)
        return rows(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(MysqlReader, "rows", read)
        assert run(file).changed
        for _ in range(50):
            reads.clear()
            assert not run(file).changed
            if not reads:
                break
            time.sleep(0.1)
        else:
            pytest.fail("it is read each time")
    execute("create table apart (k int) engine = MyISAM")
    (tmp_path / "apart").mkdir()
    file = pipeline(tmp_path / "apart", database, "table: apart")
    for key in (1, 2):
        execute(f"insert into apart values ({key})")
        run(file)
    assert held(tmp_path / "apart") == Counter([(1,), (2,)])


def test_a_row_that_is_not_committed_is_taken_in_when_it_is(tmp_path, database, execute, server):
    import pymysql

    execute(MADE)
    file = pipeline(tmp_path, database)
    with pymysql.connect(unix_socket=str(server), user="root", database="shop") as other:
        other.cursor().execute("insert into orders values (1, 'x', 1)")
        run(file)
        assert not held(tmp_path) if (tmp_path / "out").exists() and [*(tmp_path / "out").glob("*.parquet")] else True
        other.commit()
        run(file)
        assert held(tmp_path) == Counter([(1, "x", 1.0)])


TYPES = {
    "tinyint": (pl.Int8, -128),
    "smallint unsigned": (pl.UInt16, 65535),
    "mediumint": (pl.Int32, -(1 << 23)),
    "int unsigned": (pl.UInt32, (1 << 32) - 1),
    "bigint": (pl.Int64, -(1 << 63)),
    "bigint unsigned": (pl.UInt64, (1 << 64) - 1),
    "float": (pl.Float32, 16777215.0),
    "double": (pl.Float64, 0.1),
    "decimal(38, 9)": (pl.Decimal(38, 9), Decimal("-12345678901234567890123456789.123456789")),
    "decimal(5, 0) unsigned": (pl.Decimal(5, 0), Decimal(12345)),
    "varchar(9)": (pl.String, "ä'\n"),
    "longtext": (pl.String, "x" * 70000),
    "varbinary(9)": (pl.Binary, b"\0\xff'"),
    "blob": (pl.Binary, b"\x80"),
    "enum('a', 'b')": (pl.String, "b"),
    "date": (pl.Date, dt.date(9999, 12, 31)),
    "datetime(6)": (pl.Datetime("us"), dt.datetime(2024, 2, 3, 4, 5, 6, 7)),  # noqa: DTZ001 - it has no zone
    "timestamp(3) null": (pl.Datetime("us", "UTC"), dt.datetime(2024, 2, 3, 4, 5, 6, 7000, tzinfo=dt.UTC)),
    "time(6)": (pl.Time, dt.time(23, 59, 59, 999999)),
    "year": (pl.Int16, 2024),
}


def test_types_come_over(tmp_path, database, execute):
    names = [f"c{at}" for at in range(len(TYPES))]
    listed = ", ".join(f"{name} {kind}" for name, kind in zip(names, TYPES, strict=True))
    marks = [
        f"x'{each.hex()}'" if isinstance(each, bytes) else f"'{each}'".replace("'\n", "''\n").replace("+00:00'", "'")
        for _, each in TYPES.values()
    ]
    execute("set time_zone = '+00:00'", f"create table t ({listed})", f"insert into t values ({', '.join(marks)})")
    execute(f"insert into t values ({', '.join(['null'] * len(names))})")
    reader = MysqlReader(database, "select * from t", {}, None, None)
    assert reader.kinds == {
        name: kind if isinstance(kind, pl.DataType) else kind()
        for name, (kind, _) in zip(names, TYPES.values(), strict=True)
    }
    from ddcli.store.mirrors.source import DatabaseSource

    found = pl.concat(DatabaseSource(reader, "", None, ()).whole()[1])
    assert found.select(names).rows() == [tuple(value for _, value in TYPES.values()), (None,) * len(names)]


UNREAD = {
    "bit(3)": ("b'1'", "has a type that is not read"),
    "decimal(60, 9)": ("1", "has more than 38 digits"),
    "time": ("'25:00:00'", "has '25:00:00', which is no time"),
    "date": ("'0000-00-00'", "has '0000-00-00', which is no date"),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_what_is_not_read_is_refused(tmp_path, database, execute, kind):
    value, problem = UNREAD[kind]
    execute("set sql_mode = ''", f"create table t (v {kind}, k int)", f"insert into t values ({value}, 1)")
    with pytest.raises(InputError, match=problem):
        run(pipeline(tmp_path, database, "table: t"))
    hidden = "query: 'select k from t'" if "which is no" in problem else "table: t, columns: {k: int32?}"
    run(pipeline(tmp_path, database, hidden))
    assert held(tmp_path) == Counter([(1,)])


def test_errors_say_what_to_do(tmp_path, database):
    for uri, more, problem in (
        (database, "table: nowhere", "doesn't exist"),
        (database.replace("/shop?", "/elsewhere?"), "table: t", "Unknown database"),
        ("mysql://root@127.0.0.1:1/shop", "table: t", "Can't connect"),
    ):
        with pytest.raises(InputError, match=problem) as refused:
            run(pipeline(tmp_path, uri, more))
        assert refused.value.hint
    with pytest.raises(SpecErrors, match="has the parameter 'compress=1'"):
        run(pipeline(tmp_path, f"{database}&compress=1", "table: t"))
    with pytest.raises(SpecErrors, match="has no password in it"):
        run(pipeline(tmp_path, "mysql://root:secret@/shop", "table: t"))


@pytest.mark.parametrize("moment", ["_written", "_stamp"])
def test_a_row_that_comes_while_a_run_begins_is_not_lost(tmp_path, database, execute, monkeypatch, moment):
    """How far the log was is read before the rows of one moment are fixed: what comes in between is read twice, what comes later next time."""
    execute(MADE, "insert into orders values (1, 'x', 1)")
    file = pipeline(tmp_path, database)
    plain = getattr(server_databases, moment)

    def late(*given):
        found = plain(*given)
        if not written:
            written.append(execute("insert into orders values (2, 'y', 2)"))
        return found

    written = [None]
    monkeypatch.setattr(server_databases, moment, late)
    run(file)
    written.clear()
    execute("insert into orders values (3, 'z', 3)")
    run(file)
    assert written, "it came meanwhile"
    run(file)
    assert held(tmp_path) == Counter([(1, "x", 1.0), (2, "y", 2.0), (3, "z", 3.0)])
