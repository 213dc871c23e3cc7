"""`dd feed --into postgresql://...`: each change is delivered once, whoever dies or races."""

import datetime as dt
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal

import polars as pl
import pytest

from ddcli.errors import LockedError, StateError, UsageError
from ddcli.feed.database_target import DatabaseFeed, Delivery
from ddcli.feed.delivery import OutputFeed
from ddcli.feed.targets import open_target
from ddcli.store.state.consumers import read_consumers
from tests import draws
from tests.draws import many
from tests.feed.test_histories import History
from tests.feed.test_targets import FRAME, ME
from tests.harness import contents
from tests.store.support import Dead


def held(execute, table):
    """Return what the changes in a table add up to."""
    found = Counter()
    for *row, diff, _ in execute(f"select * from {table}"):
        found[tuple(row)] += diff
    return {record: count for record, count in found.items() if count}


def test_each_change_is_delivered_once_whoever_dies(tmp_path, database, execute, monkeypatch):
    """A process dies before the transaction ends, after it, or not at all; then the output goes on."""
    real = DatabaseFeed._transaction
    for case in range(many(2)):
        execute("drop schema if exists marts cascade", "create schema marts")
        history = History(tmp_path / str(case), draws.chance(f"into postgres {case}"))
        history.supply()

        def deliver(dies=None, folder=history.folder):
            @contextmanager
            def transaction(self, *, write):
                with real(self, write=write) as connection:
                    yield connection
                    if write and dies == "before":
                        raise Dead
                if write and dies == "after":
                    raise Dead

            with monkeypatch.context() as patch:
                patch.setattr(DatabaseFeed, "_transaction", transaction)
                feed = OutputFeed.open("out/totals", folder)
                feed.transfer("index", lambda each: open_target(database, "marts.totals", each, folder))

        for _ in range(6):
            history.chance.choice([history.supply, history.supply, history.edit, history.reopen, history.compact])()
            try:
                deliver(history.chance.choice([None, "before", "after"]))
            except Dead:
                deliver()
            assert held(execute, "marts.totals") == contents(history.folder / "out/totals")
        (number,) = execute("select count(*) from marts.totals")
        deliver()
        assert execute("select count(*) from marts.totals") == [number]


def test_of_many_who_race_one_delivers(tmp_path, database, execute):
    def deliver(number):
        try:
            open_target(database, "t" if number % 2 else "public.t", ME, tmp_path).add(Delivery(0, 3, FRAME, 1))
        except LockedError:
            return 0
        return 1

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(deliver, range(8))) == 1
    assert execute("select k, region, diff from t order by k") == [(1, "a", 1), (2, None, -1)]
    with pytest.raises(LockedError):
        open_target(database, "t", ME, tmp_path).add(Delivery(1, 4, FRAME, 1))
    open_target(database, "public.t", ME, tmp_path).add(Delivery(3, 4, FRAME, 1))
    assert open_target(database, "t", ME, tmp_path).position() == 4
    with pytest.raises(StateError, match="it is of consumer 'index'"):
        open_target(database, "t", ME._replace(consumer="mail"), tmp_path).position()


def test_values_and_what_can_not_be_held(tmp_path, database, execute):
    values = {
        "b": ([True, None], pl.Boolean),
        "i": ([-(1 << 63), (1 << 63) - 1], pl.Int64),
        "f": ([0.1, float("nan")], pl.Float64),
        "s": (["a'\n\\", ""], pl.String),
        "x": ([b"\0\xff", b""], pl.Binary),
        "m": ([Decimal("-12345678901234567890.123456789"), None], pl.Decimal(38, 9)),
        "d": ([dt.date(1, 1, 1), dt.date(9999, 12, 31)], pl.Date),
        "z": ([dt.datetime(2024, 1, 1, 2, tzinfo=dt.UTC), None], pl.Datetime("us", "UTC")),
        "l": ([["a", None], []], pl.List(pl.String)),
    }
    frame = pl.DataFrame([pl.Series(name, *each) for name, each in values.items()]).with_columns(
        diff=pl.lit(1, pl.Int64)
    )
    open_target(database, "t", ME, tmp_path).add(Delivery(0, 3, frame, 1))
    found = execute("set timezone = 'UTC'", "select * from t")
    assert repr([row[:-1] for row in found]).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") == repr(
        frame.rows()
    ).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
    for column in (
        pl.Series([1]).cast(pl.Datetime("ns")),
        pl.Series([1]).cast(pl.Duration("us")),
        pl.Series([1], dtype=pl.UInt32),
        pl.Series([[[1]]]),
    ):
        with pytest.raises(UsageError, match="Postgres can't hold the column 'k' as it is"):
            open_target(database, "u", ME, tmp_path).add(Delivery(0, 3, column.alias("k").to_frame(), 1))
    execute("create table taken (k int)")
    with pytest.raises(StateError, match="has no position"):
        open_target(database, "taken", ME, tmp_path).position()
    with pytest.raises(StateError, match="other columns"):
        open_target(database, "t", ME, tmp_path).add(Delivery(3, 4, FRAME, 1))


def test_the_command(orders, database, execute):
    assert orders("run", "orders.yaml", "--quiet").code == 0
    line = ("feed", "out/totals", "--consumer", "index", "--into", database)
    first = orders(*line)
    assert (first.code, first.out) == (0, ""), first.err
    assert first.err.endswith(": totals: 2 changes, 0-1\n")
    assert orders(*line).err.endswith(": nothing new since 1\n")
    assert held(execute, "totals") == contents(orders.folder / "out/totals")
    other = ("feed", "out/totals", "--consumer", "other", "--into")
    refused = orders(*other, "postgresql://me:secret@/shop")
    assert (refused.code, "has no password in it" in refused.err, "secret" in refused.err) == (2, True, False)
    assert orders(*other, database.replace("/shop?", "/nowhere?")).code == 5
    assert "no names of more than 63 bytes" in orders(*other, database, "--table", "t" * 64).err
    assert [each.name for each in read_consumers(orders.folder / ".dd/orders")] == ["index"]
