"""Tables of Spark's catalogs: as inputs they are what Spark has, version by version; what dies in between changes nothing of that."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import polars as pl
import pytest

from ddcli import read_log
from ddcli.commands.check import check
from ddcli.driver.run import run
from ddcli.driver.watch import due_in
from ddcli.errors import InputError, SpecErrors, UsageError
from ddcli.job.request import read_request
from tests.draws import chance, many
from tests.harness import ROOT, called, contents
from tests.reference.values import canonical
from tests.store.support import Dead, Faulty
from tests.tables.followers import through

COLUMNS = "id bigint, region string, amount double, at timestamp, day date, cents decimal(9, 2), tags array<int>, place struct<x: int, name: string>"
VALUES = {
    "id": ["1", "2", "3"],
    "region": ["'a'", "'ä'", "null"],
    "amount": ["0.5", "double('NaN')", "double('-0.0')", "0.0", "null"],
    "at": ["timestamp'2024-03-10 02:30:00'", "timestamp'1969-12-31 23:59:59.999999'", "null"],
    "day": ["date'0001-01-01'", "date'2024-02-29'"],
    "cents": ["1.25", "-9999999.99"],
    "tags": ["array(1, null)", "array()", "null"],
    "place": ["named_struct('x', 1, 'name', null)", "null"],
}


@pytest.fixture
def session(spark, monkeypatch):
    """Return a session whose moments are in another zone than the machine's."""
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = SparkSession(spark.context).newSession()
    found.conf.set("spark.sql.session.timeZone", "America/New_York")
    found.sql("create database if not exists shop")
    yield found
    found.sql("drop database shop cascade")


def pipeline(folder, where="{table: shop.orders}", more=""):
    path = folder / "p.yaml"
    path.write_text(f"name: p\ninputs: {{orders: {{spark: {where}{more}}}}}\noutputs: {{orders: out/}}\n")
    return path


def held(folder):
    """Return the rows of the output, with their multiplicities."""
    return Counter({canonical(row): diff for *row, diff in read_log(folder / "out", as_of="latest").rows()})


def rows(frame):
    return Counter(map(canonical, pl.from_arrow(frame.toArrow()).rows()))


def drawn(draw):
    return f"({', '.join(draw.choice(values) for values in VALUES.values())})"


def change(session, draw):
    """Change the table at random: rows come, or others take the place of all."""
    added = ", ".join(drawn(draw) for _ in range(draw.randint(1, 4)))
    if draw.random() < 0.6:
        session.sql(f"insert into shop.orders values {added}")
    else:
        kept = session.sql(f"select * from shop.orders where id <> {draw.randint(1, 3)}").collect()
        frame = session.createDataFrame(kept, COLUMNS).unionAll(session.sql(f"select * from values {added}"))
        frame.write.insertInto("shop.orders", overwrite=True)


@pytest.mark.in_turn(9)
def test_an_input_is_what_spark_reads(session, tmp_path):
    """After each run the input has the table's rows, with their types, nulls and multiplicities; a run without a change has no update."""
    for seed in range(2):
        draw, folder = chance("tables of spark", seed), tmp_path / str(seed)
        folder.mkdir()
        session.sql("drop table if exists shop.orders")
        session.sql(f"create table shop.orders ({COLUMNS}) using parquet")
        file = pipeline(folder, draw.choice(["{table: shop.orders}", "{query: 'select * from shop.orders -- all'}"]))
        change(session, draw)
        for _ in range(3):
            before = run(file, spark=session).changed
            assert held(folder) == rows(session.table("shop.orders"))
            assert not before or not run(file, spark=session).changed
            change(session, draw)


def test_a_run_that_dies_while_it_reads_a_table_leaves_no_trace(session, tmp_path):
    """Whatever operation on files it dies at, the next run has the table's rows once."""
    session.sql("create table shop.orders (id bigint, region string) using parquet")
    session.sql("insert into shop.orders values (1, 'a'), (1, 'a'), (2, null)")
    counted = Faulty()
    (tmp_path / "whole").mkdir()
    with through(counted):
        run(pipeline(tmp_path / "whole"), spark=session)
    draw = chance("deaths of reads of spark")
    mirrored = [at for at in counted.changes if "tables" in counted.log[at][1].parts]
    assert mirrored
    for number in draw.sample(mirrored, min(many(2), len(mirrored))):
        folder = tmp_path / str(number)
        folder.mkdir()
        with suppress(Dead), through(Faulty(number, after=draw.random() < 0.5)):
            run(pipeline(folder), spark=session)
        session.sql("insert into shop.orders values (3, 'c')")
        run(folder / "p.yaml", spark=session)
        assert held(folder) == rows(session.table("shop.orders"))
        assert not list(folder.rglob("*.dd-tmp"))


def test_columns_of_other_types_are_left_out_and_new_ones_come(session, tmp_path):
    session.sql("create table shop.orders (id bigint, m map<string, int>) using parquet")
    session.sql("insert into shop.orders values (1, map('a', 1))")
    file = pipeline(tmp_path, more=", time: version")
    run(file, spark=session)
    assert contents(tmp_path / "out") == {(1,): 1}
    session.sql("alter table shop.orders add columns (region string)")
    session.sql("insert into shop.orders values (2, null, 'a')")
    run(file, spark=session, apply=True, rewrite=frozenset({"orders"}))
    assert contents(tmp_path / "out") == {(1, None): 1, (2, "a"): 1}
    session.sql("drop table shop.orders")
    session.sql("create table shop.orders (id string) using parquet")
    with pytest.raises(InputError, match=r"no column 'region' any more|has 'id' as string, which was int64"):
        run(file, spark=session)


def test_what_spark_refuses_is_named(session, tmp_path):
    for where, problem in (
        ("{table: shop.nothing}", "TABLE_OR_VIEW_NOT_FOUND"),
        ("{query: 'drop table shop.orders'}", "PARSE_SYNTAX_ERROR"),
        ("{query: 'select 1 as a, 2 as a'}", "two columns are named 'a'"),
    ):
        with pytest.raises(InputError, match=problem) as caught:
            run(pipeline(tmp_path, where), spark=session)
        assert caught.value.problem.startswith("inputs.orders: ")
        assert caught.value.span is not None
    with pytest.raises(InputError, match="DIVIDE_BY_ZERO"):
        run(pipeline(tmp_path, "{query: 'select 1 / id as a from range(2)'}"), spark=session)


def test_without_a_session_a_run_states_how_to_start(tmp_path):
    """Other commands have the columns that the file declares; a query is code."""
    file = pipeline(tmp_path)
    with pytest.raises(UsageError, match="this is a table of Spark, and no Spark is named") as caught:
        run(file, engine="local")
    assert "--master" in caught.value.hint
    (error,) = check(file).errors
    assert "no run has read this table of Spark yet" in error.problem
    assert not check(pipeline(tmp_path, more=", columns: {id: int64}")).errors
    with pytest.raises(SpecErrors, match="may call code of Java"):
        run(pipeline(tmp_path, "{query: select 1 as a}"), no_code=True)
    for where in ("{}", "{table: a, query: select 1}", "{table: 'a;b'}"):
        assert called(["check", str(pipeline(tmp_path, where))]) == 2


@pytest.mark.in_turn(9)
def test_other_commands_use_the_rows_of_the_last_run(session, tmp_path, capsys):
    session.sql("create table shop.orders (id bigint) using parquet")
    session.sql("insert into shop.orders values (1)")
    file = pipeline(tmp_path)
    run(file, spark=session)
    session.sql("insert into shop.orders values (2)")
    assert called(["sql", "--from", str(file), "select id from orders"]) == 0
    assert capsys.readouterr().out.split() == ["id", "1"]
    assert not check(file).errors
    assert run(file, spark=session, dry_run=True).outputs["orders"].inserted == 1


def test_a_watch_looks_at_tables_of_spark_each_minute(tmp_path):
    """No file beside it changes with such a table: a round looks at it."""
    path = tmp_path / "p.yaml"
    for given, seconds in (
        ("spark: {table: shop.t}, columns: {a: int64}", 60),
        ("path: in/, columns: {a: int64}", None),
    ):
        path.write_text(f"name: p\ninputs: {{t: {{{given}}}}}\noutputs: {{t: out/}}\n")
        assert due_in(read_request(path, None, runs=True)) == seconds
