"""`dd feed --into postgresql://...`: values, what it can't hold, and the command; `tests/feed` has what all targets share."""

import datetime as dt
from decimal import Decimal

import polars as pl
import pytest

from ddcli.errors import StateError, UsageError
from ddcli.feed.targets import Delivery, open_target
from ddcli.store.state.consumers import read_consumers
from tests.feed.test_targets import FRAME, ME, held
from tests.harness import contents


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
    assert held(database) == contents(orders.folder / "out/totals")
    other = ("feed", "out/totals", "--consumer", "other", "--into")
    refused = orders(*other, "postgresql://me:secret@/shop")
    assert (refused.code, "has no password in it" in refused.err, "secret" in refused.err) == (2, True, False)
    assert orders(*other, database.replace("/shop?", "/nowhere?")).code == 5
    assert "no names of more than 63 bytes" in orders(*other, database, "--table", "t" * 64).err
    assert [each.name for each in read_consumers(orders.folder / ".dd/orders")] == ["index"]
