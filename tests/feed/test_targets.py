"""`dd feed --into`: each change is delivered once, whoever dies or races; what a target can't hold is refused."""

import datetime as dt
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from decimal import Decimal

import duckdb
import polars as pl
import psycopg
import pytest

from ddcli.errors import EngineError, LockedError, StateError, UsageError
from ddcli.feed.delivery import OutputFeed
from ddcli.feed.targets import DatabaseFeed, Delivery, Subscription, open_target
from ddcli.store.state.consumers import read_consumers
from tests import draws
from tests.feed.test_histories import History
from tests.harness import contents

TARGETS = ["changes", "changes.duckdb", "changes.sqlite"]
ON_SERVERS = [*TARGETS, "postgres"]
ME = Subscription("index", "0" * 32, "1" * 16)
FRAME = pl.DataFrame({"k": [1, 2], "region": ["a", None], "diff": [1, -1]})


@pytest.fixture
def text(kind, request):
    """Return the name of a target of a kind, as a person writes it."""
    return request.getfixturevalue("postgres_database") if kind == "postgres" else kind


def rows_in(path, table="totals"):
    """Return the rows of a target, without their positions: what glob and SQL see. It is a file, a folder, or a URI of Postgres."""
    if str(path).startswith("postgresql:/"):
        with psycopg.connect(str(path)) as database:
            rows = database.execute(f'select * from "{table}"').fetchall()
    elif path.suffix == ".duckdb":
        with closing(duckdb.connect(path)) as database:
            rows = database.execute(f'from "{table}"').fetchall()
    elif path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute(f'select * from "{table}"').fetchall()
    else:
        rows = pl.read_parquet(path / "*.parquet").rows()
    return [row[:-1] for row in rows]


def held(path, table="totals"):
    """Return what the changes in a target add up to."""
    found = Counter()
    for row in rows_in(path, table):
        found[row[:-1]] += row[-1]
    return {record: count for record, count in found.items() if count}


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ON_SERVERS)
def test_each_change_is_delivered_once_whoever_dies(tmp_path, kind, text, monkeypatch):
    """A process dies before the target's commit, after it, or not at all; then the output goes on."""
    for case in draws.some(range(2)):
        history, table = History(tmp_path / str(case), draws.chance(f"into {kind} {case}")), f"totals{case}"
        folder, chance = history.folder, history.chance
        history.supply()
        target = text if kind == "postgres" else folder / kind

        def deliver(dies=None, folder=folder, table=table):
            feed = OutputFeed.open("out/totals", folder)
            opened = lambda each: open_target(text, table, each, folder)  # noqa: E731
            if dies is None:
                return feed.transfer("index", opened)
            with monkeypatch.context() as patch:
                patch.setattr(*dies)
                with pytest.raises(KeyboardInterrupt):
                    feed.transfer("index", opened)
            return None

        files = [("os.fsync", _die), ("pathlib.Path.hardlink_to", _die)]
        before = files if kind == "changes" else [(DatabaseFeed, "_transaction", _dying(DatabaseFeed._transaction))]
        deaths = [(OutputFeed, "acknowledge", _die), *before]
        for _ in range(8):
            chance.choice([history.supply, history.supply, history.edit, history.reopen, history.compact])()
            if chance.random() < 0.5:
                deliver(chance.choice(deaths) if _has_news(folder, text, table) else None)
                continue
            deliver()
            assert held(target, table) == contents(folder / "out/totals")
            number = len(rows_in(target, table))
            deliver()
            assert len(rows_in(target, table)) == number
        deliver()
        assert held(target, table) == contents(folder / "out/totals")
        assert [*folder.glob("changes/.*")] == []


def _die(*_arguments, **_named):
    raise KeyboardInterrupt


def _dying(real):
    """Return what makes transactions of which those that write die before they are committed."""

    @contextmanager
    def transaction(self, *, write):
        with real(self, write=write) as connection:
            yield connection
            if write:
                raise KeyboardInterrupt

    return transaction


def _has_news(folder, text, table):
    """Return whether a delivery has something to write."""
    feed = OutputFeed.open("out/totals", folder)
    manifest, output = feed._newest()
    at = open_target(text, table, Subscription("index", manifest.identity, output.log), folder).position()
    return feed.changes(at, output.log).files > 0


@pytest.mark.parametrize("kind", ON_SERVERS)
def test_of_many_who_race_one_delivers(tmp_path, kind, text):
    target = text if kind == "postgres" else tmp_path / kind

    def deliver(number):
        try:
            open_target(text, "public.t" if kind == "postgres" and number % 2 else "t", ME, tmp_path).add(
                Delivery(0, 3, FRAME, 1)
            )
        except LockedError:
            return 0
        return 1

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(deliver, range(8))) == 1
    assert rows_in(target, "t") == [(1, "a", 1), (2, None, -1)]
    with pytest.raises(LockedError):
        open_target(text, "t", ME, tmp_path).add(Delivery(1, 4, FRAME, 1))
    open_target(text, "t", ME, tmp_path).add(Delivery(3, 4, FRAME, 1))
    assert open_target(text, "t", ME, tmp_path).position() == 4
    assert len(rows_in(target, "t")) == 4


@pytest.mark.parametrize("kind", ON_SERVERS)
@pytest.mark.parametrize("other", [("mail", *ME[1:]), (ME[0], "2" * 32, ME[2]), (*ME[:2], "2" * 16)])
def test_a_target_of_somebody_else_is_refused(tmp_path, kind, text, other):
    open_target(text, "t", ME, tmp_path).add(Delivery(0, 3, FRAME, 1))
    theirs = open_target(text, "t", Subscription(*other), tmp_path)
    with pytest.raises(StateError, match=r"consumer 'index'|was rewritten"):
        theirs.position()
    with pytest.raises(StateError):
        theirs.add(Delivery(3, 4, FRAME, 1))
    assert len(rows_in(text if kind == "postgres" else tmp_path / kind, "t")) == 2


def test_a_database_has_several_tables_with_names_of_any_kind(tmp_path):
    names = ["totals", 'a "b"', "x; drop table totals", "ü", "select"]
    for kind in TARGETS[1:]:
        for name in names:
            open_target(kind, name, ME, tmp_path).add(Delivery(0, 3, FRAME, 1))
            assert open_target(kind, name, ME, tmp_path).position() == 3
        with pytest.raises(UsageError, match="table that `dd` itself makes"):
            open_target(kind, "DD_feeds", ME, tmp_path)
    with pytest.raises(EngineError, match="SQLite refuses the changes"):
        open_target(TARGETS[2], "sqlite_x", ME, tmp_path).add(Delivery(0, 3, FRAME, 1))


def test_a_table_that_no_feed_made_or_with_other_columns_is_refused(tmp_path):
    with (
        closing(duckdb.connect(tmp_path / "changes.duckdb")) as one,
        closing(sqlite3.connect(tmp_path / "changes.sqlite")) as other,
    ):
        one.execute("create table t (k integer)")
        other.execute("create table t (k integer)")
    for kind in TARGETS[1:]:
        with pytest.raises(StateError, match="has no position"):
            open_target(kind, "T", ME, tmp_path).position()
        open_target(kind, "u", ME, tmp_path).add(Delivery(0, 3, FRAME, 1))
        for frame in (FRAME.with_columns(k=pl.lit("x")), FRAME.rename({"k": "j"}), FRAME.drop("k")):
            with pytest.raises(StateError, match="other columns"):
                open_target(kind, "u", ME, tmp_path).add(Delivery(3, 4, frame, 1))
        assert open_target(kind, "u", ME, tmp_path).position() == 3


@pytest.mark.parametrize("text", ["", "no parquet", "PAR1PAR1"])
def test_a_file_that_no_feed_wrote_is_refused(tmp_path, text):
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes/changes-000000007.parquet").write_text(text)
    with pytest.raises(StateError, match="`dd feed` did not write this file"):
        open_target("changes", "", ME, tmp_path).position()
    pl.DataFrame({"k": [1]}).write_parquet(tmp_path / "changes/changes-000000007.parquet")
    with pytest.raises(StateError, match="`dd feed` did not write this file"):
        open_target("changes", "", ME, tmp_path).position()
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="can't be read"):
        open_target("file", "", ME, tmp_path).position()


VALUES = pl.DataFrame(
    {
        "b": [True, None],
        "i": [-(1 << 63), (1 << 63) - 1],
        "f": [0.1, float("inf")],
        "s": ["a\0'\n", ""],
        "x": [b"\0\xff", b""],
        "m": pl.Series([Decimal("-12345678901234567890.123456789"), None], dtype=pl.Decimal(38, 9)),
        "d": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        "t": pl.Series([1, None], dtype=pl.Int64).cast(pl.Datetime("us")),
        "n": pl.Series([1, None], dtype=pl.Int64).cast(pl.Datetime("ns")),
        "z": pl.Series([1, None], dtype=pl.Int64).cast(pl.Datetime("us", "UTC")),
        "l": [[1, None], []],
        "diff": [1, 2],
    }
)


def test_values_survive(tmp_path):
    for kind in TARGETS:
        open_target(kind, "t", ME, tmp_path).add(Delivery(0, 3, VALUES, 1))
    back = pl.read_parquet(tmp_path / "changes/*.parquet").drop("_position")
    assert back.equals(VALUES)
    assert back.schema == VALUES.schema
    with closing(duckdb.connect(tmp_path / "changes.duckdb")) as database:
        database.execute("set timezone = 'UTC'")
        found = pl.from_arrow(database.sql("select * exclude _position from t").to_arrow_table())
    assert found.cast(dict(VALUES.schema)).equals(VALUES)
    texts = rows_in(tmp_path / "changes.sqlite", "t")
    assert texts[0] == (
        *(1, -(1 << 63), 0.1, "a\0'\n", b"\0\xff", "-12345678901234567890.123456789", "0001-01-01"),
        *(
            "1970-01-01 00:00:00.000001",
            "1970-01-01 00:00:00.000000001",
            "1970-01-01 00:00:00.000001+00:00",
            "[1, null]",
            1,
        ),
    )


@pytest.mark.parametrize("kind", TARGETS)
def test_structs_survive_with_the_nulls_in_them(tmp_path, kind):
    """In SQLite as texts, as in CSV: a struct that is gone is the text that it was when it came."""
    structs = [{"a b": 1, "l": [{"x": None}, None]}, {"a b": None, "l": None}, None]
    inner = pl.Struct({"a b": pl.Int64, "l": pl.List(pl.Struct({"x": pl.Int64}))})
    frame = pl.DataFrame({"s": pl.Series(structs, dtype=inner), "diff": [1, 1, 1]})
    open_target(kind, "t", ME, tmp_path).add(Delivery(0, 3, frame, 1))
    open_target(kind, "t", ME, tmp_path).add(Delivery(3, 4, frame[:1].with_columns(diff=-pl.col("diff")), 1))
    texts = ['{"a b": 1, "l": [{"x": null}, null]}', '{"a b": null, "l": null}', None]
    here = texts if kind.endswith("sqlite") else structs
    assert rows_in(tmp_path / kind, "t") == [*((row, 1) for row in here), (here[0], -1)]


@pytest.mark.parametrize("change", ["alter table dd_feeds drop column form", "update dd_feeds set form = 2"])
def test_a_table_of_another_version_is_refused(tmp_path, change):
    """Its values may have other texts: a row that goes would not be the one that came."""
    open_target("changes.sqlite", "t", ME, tmp_path).add(Delivery(0, 3, FRAME, 1))
    with closing(sqlite3.connect(tmp_path / "changes.sqlite")) as database, database:
        database.execute(change)
    with pytest.raises(StateError, match="another version of `dd` wrote the table"):
        open_target("changes.sqlite", "t", ME, tmp_path).add(Delivery(3, 4, FRAME, 1))
    assert len(rows_in(tmp_path / "changes.sqlite", "t")) == 2


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("changes.duckdb", pl.Series([1]).cast(pl.Datetime("ns", "UTC"))),
        ("changes.duckdb", pl.Series([1]).cast(pl.Duration("ns"))),
        ("changes.duckdb", pl.Series([[1]]).cast(pl.List(pl.Duration("us")))),
        ("changes.duckdb", pl.Series([{"a": 1}]).cast(pl.Struct({"a": pl.Duration("us")}))),
        ("changes.sqlite", pl.Series([float("nan")])),
        ("changes.sqlite", pl.Series([1 << 63], dtype=pl.UInt64)),
    ],
)
def test_what_a_database_can_not_hold_is_refused(tmp_path, kind, values):
    target = open_target(kind, "t", ME, tmp_path)
    with pytest.raises(UsageError, match="can't hold the column 'k' as it is"):
        target.add(Delivery(0, 3, values.alias("k").to_frame(), 1))
    assert target.position() == 0
    with pytest.raises(UsageError, match="has a column '_position'"):
        target.add(Delivery(0, 3, FRAME.rename({"k": "_position"}), 1))


def test_the_command_delivers_and_keeps_the_consumer_where_the_target_is(orders):
    assert orders("run", "orders.yaml", "--quiet").code == 0
    line = ("feed", "out/totals", "--consumer", "index", "--into")
    for kind in TARGETS:
        place = orders.folder / "to" / kind
        place.parent.mkdir(exist_ok=True)
        line = ("feed", "out/totals", "--consumer", f"c.{place.suffix[1:]}x", "--into", f"to/{kind}")
        first = orders(*line)
        assert (first.code, first.out) == (0, ""), first.err
        assert first.err.endswith(": 2 changes, 0-1\n")
        assert orders(*line).err.endswith(": nothing new since 1\n")
        assert held(place) == contents(orders.folder / "out/totals")
        assert {each.acknowledged for each in read_consumers(orders.folder / ".dd/orders")} == {1}
        elsewhere = orders(*line[:-1], f"to/other-{kind}")
        assert elsewhere.code == 4
        assert "the target is at 0, and consumer" in elsewhere.err
    assert orders(*line, "--ack").code == 2
    assert orders("feed", "out/totals", "--consumer", "m", "--table", "t").code == 2
    assert orders("feed", "out/totals", "--consumer", "m", "--into", "s3://bucket/x").code == 2


@pytest.mark.parametrize("kind", ON_SERVERS)
def test_a_consumer_to_which_nothing_was_delivered_is_not_kept(orders, kind, text, monkeypatch):
    """It would hold the log for ever."""
    orders("run", "orders.yaml", "--quiet")
    consumers = lambda: [each.name for each in read_consumers(orders.folder / ".dd/orders")]  # noqa: E731
    line = ("feed", "out/totals", "--consumer", "m", "--into", text)
    with monkeypatch.context() as patch:
        for target in ("targets.ParquetFeed", "targets.DatabaseFeed"):
            patch.setattr(f"ddcli.feed.{target}.add", _refuse)
        assert orders(*line).code == 5
    assert consumers() == []
    assert orders(*line).code == 0
    assert consumers() == ["m"]


def _refuse(*_arguments):
    raise EngineError("the disk is full")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["to/changes.xlsx"], "to a directory of Parquet files or a database"),
        (["to/changes.Parquet"], "to a directory of Parquet files or a database"),
        (["to/changes", "--table", "t"], "--table is for a database"),
        (["to/changes.duckdb", "--table", ""], "--table is empty"),
        ([""], "--into is empty"),
    ],
)
def test_a_target_is_what_its_name_says(orders, words, problem):
    orders("run", "orders.yaml", "--quiet")
    refused = orders("feed", "out/totals", "--consumer", "m", "--into", *words)
    assert refused.code == 2
    assert problem in refused.err
    assert not (orders.folder / "to").exists()
    assert not [*orders.folder.glob("*.parquet")]
    assert "m" not in orders("feed", "out/totals", "--list").out.split()


@pytest.mark.parametrize("target", ["out/totals", "out/totals/changes", "out/totals/changes.duckdb", "link"])
def test_no_target_lies_in_the_directory_of_an_output(orders, target):
    """A file of another there would end the pipeline's next run, and `dd log` would take it for a part of the output."""
    orders("run", "orders.yaml", "--quiet")
    (orders.folder / "link").symlink_to("out/totals")
    before = sorted(each.name for each in (orders.folder / "out/totals").iterdir())
    refused = orders("feed", "out/totals", "--consumer", "mail", "--into", target)
    assert (refused.code, refused.out) == (2, "")
    assert "the target is in a directory of an output, '" in refused.err
    assert sorted(each.name for each in (orders.folder / "out/totals").iterdir()) == before
    assert "mail" not in orders("feed", "out/totals", "--list").out
    assert orders("run", "orders.yaml", "--quiet").code == 0


@pytest.mark.parametrize("target", ["orders", "./orders/", "orders/changes", "link"])
def test_no_target_lies_where_an_input_reads(orders, target):
    """The next run would take the changes in as rows of the input, or refuse their file."""
    orders("run", "orders.yaml", "--quiet")
    (orders.folder / "link").symlink_to("orders")
    refused = orders("feed", "out/totals", "--consumer", "mail", "--into", target)
    assert (refused.code, refused.out) == (2, "")
    assert "the target is among the files of the input 'orders' of orders.yaml" in refused.err
    assert "mail" not in orders("feed", "out/totals", "--list").out
    assert orders("feed", "out/totals", "--consumer", "mail", "--into", "beside").code == 0
    assert orders("run", "orders.yaml").err.startswith("orders: nothing new")


@pytest.mark.parametrize("target", [".dd/orders", ".dd/orders/changes", ".dd/orders/registers/changes.db"])
def test_no_target_lies_in_a_state(orders, target):
    """Nobody else's file belongs there: `dd reset` would remove it, or refuse to."""
    orders("run", "orders.yaml", "--quiet")
    refused = orders("feed", "out/totals", "--consumer", "mail", "--into", target)
    assert (refused.code, refused.out) == (2, "")
    assert "the target is in a state, '" in refused.err
    assert "mail" not in orders("feed", "out/totals", "--list").out
    assert orders("state", "verify", "orders.yaml").code == 0
