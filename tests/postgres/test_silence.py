"""A server of Postgres that is stopped (SIGSTOP) at any of a command's round trips, and goes on later: what the command reports, and what the next one makes of it."""

import gc
from pathlib import Path
from time import monotonic

import psycopg
import pytest

from ddcli import read_log
from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError, LockedError
from ddcli.feed.delivery import OutputFeed
from ddcli.feed.targets import open_target
from tests.draws import chance, many
from tests.feed.test_histories import History
from tests.harness import contents
from tests.postgres.test_feed import held
from tests.silence import SILENCE, SOON, stopper
from tests.tables.database_followers import DatabaseFollower


@pytest.fixture
def stopped_at(server, monkeypatch):
    """Return what has the server stopped from a round trip on, and go on at the end; it yields the numbers of those that were begun."""
    (main, *_) = (server / "data/postmaster.pid").read_text().split()

    def processes():
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [*map(int, (main, *children))]

    return stopper(monkeypatch, psycopg.Connection, "wait", processes)


def moments(draw, trips, usual=3):
    """Return some round trips: the last two, which commit, among them."""
    return {*draw.sample(trips, min(many(usual), len(trips))), *trips[-2:]}


def again(what):
    """Do something anew until nobody else is at it: a transaction whose client has left may be under way when the server goes on."""
    until = monotonic() + 300
    while True:
        try:
            return what()
        except LockedError:
            assert monotonic() < until


@pytest.mark.parametrize("keyed", [False, True])
def test_a_table_out(tmp_path, database, execute, stopped_at, keyed):
    """The run is committed and ends soon; the next one writes the table, once, whether the transaction was made or not."""
    execute("create schema marts")
    each, draw = DatabaseFollower(tmp_path / "shop", database, keyed=keyed), chance("silence", keyed)
    each.supply(draw)
    each.run()
    each.supply(draw)
    with stopped_at() as trips:
        each.run()
    for at in moments(draw, trips):
        each.supply(draw)
        begun = monotonic()
        with stopped_at(at), pytest.raises(EngineError, match=f"the server has been silent for {SILENCE} s") as caught:
            each.run()
        assert monotonic() - begun < SOON
        assert "the next run writes what is missing" in caught.value.hint
        again(each.run)
        each.check()


def test_a_feed(tmp_path, database, execute, stopped_at):
    """Nothing is delivered twice, and nothing is lost."""
    execute("create schema marts")
    history, draw = History(tmp_path / "shop", chance("silent feed")), chance("silent moments")

    def deliver():
        feed = OutputFeed.open("out/totals", history.folder)
        return feed.transfer("index", lambda each: open_target(database, "marts.totals", each, history.folder))

    history.supply()
    deliver()
    history.supply()
    with stopped_at() as trips:
        deliver()
    for at in moments(draw, trips):
        history.supply()
        with stopped_at(at), pytest.raises(EngineError, match=f"the server has been silent for {SILENCE} s"):
            deliver()
        again(deliver)
        assert held(execute, "marts.totals") == contents(history.folder / "out/totals")


@pytest.mark.filterwarnings("ignore:.*ServerCursor.*was deleted while still open:ResourceWarning")
@pytest.mark.parametrize("how", ["snapshot", "cursor: k"])
def test_a_table_in(tmp_path, database, execute, stopped_at, how):
    """The run takes in nothing; the next one all."""
    execute("create table t (k bigint primary key, v text)", "insert into t select n, 'a' from generate_series(1, 9) n")
    table = f"{{database: '{database}', table: t, {'key: k' if how == 'snapshot' else how}}}"
    (tmp_path / "p.yaml").write_text(f"name: p\ninputs: {{t: {table}}}\noutputs: {{t: out/}}\n")
    run(tmp_path / "p.yaml")
    execute("insert into t values (100, 'b')")
    with stopped_at() as trips:
        run(tmp_path / "p.yaml")
    assert trips
    for number, at in enumerate(moments(chance("silent", how), trips)):
        execute(f"insert into t values ({200 + number}, null)")
        with stopped_at(at), pytest.raises(InputError, match=f"the server has been silent for {SILENCE} s") as caught:
            run(tmp_path / "p.yaml")
        assert caught.value.hint
        del caught
        gc.collect()  # the cursor of the broken connection goes here, where its warning is expected
        run(tmp_path / "p.yaml")
        rows = read_log(tmp_path / "out", as_of="latest").select("k", "v")
        assert rows.sort("k").rows() == execute("select * from t order by k")
