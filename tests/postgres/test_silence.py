"""A server of Postgres that is stopped (SIGSTOP) at any of a command's round trips, and goes on later: what the command reports, and what the next one makes of it."""

from pathlib import Path
from time import monotonic

import psycopg
import pytest

from ddcli.errors import LockedError
from ddcli.feed.delivery import OutputFeed
from ddcli.feed.targets import open_target
from tests.draws import chance, some
from tests.feed.test_histories import History
from tests.feed.test_targets import held
from tests.harness import contents
from tests.silence import SILENCE, end_of, ends_of_runs, moments, stopper
from tests.tables.database_followers import DatabaseFollower


@pytest.fixture
def stopped_at(server, monkeypatch):
    """Return what has the server stopped from a round trip on, and go on at the end; it yields the numbers of those that were begun."""
    (main, *_) = (server / "data/postmaster.pid").read_text().split()

    def processes():
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [*map(int, (main, *children))]

    return stopper(monkeypatch, psycopg.Connection, "wait", processes)


def again(what):
    """Do something anew until nobody else is at it: a transaction whose client has left may be under way when the server goes on."""
    until = monotonic() + 300
    while True:
        try:
            return what()
        except LockedError:
            assert monotonic() < until


def assert_silent(end, hint=""):
    """Assert that a command which came to the round trip reported the silence, and that another one ended well."""
    problem = f"the server has been silent for {SILENCE} s" if end.reached else ""
    assert problem in end.problem
    assert bool(problem) == bool(end.problem)
    assert hint in end.hint or not end.reached


@pytest.mark.parametrize("keyed", [*some([False, True])])
def test_a_table_out(tmp_path, database, execute, stopped_at, keyed):
    """The run is committed and ends soon; the next one writes the table, once, whether the transaction was made or not."""
    execute("create schema marts")
    each, draw = DatabaseFollower(tmp_path / "shop", database, keyed=keyed), chance("silence", keyed)
    each.supply(draw)
    each.run()
    each.supply(draw)
    with stopped_at() as trips:
        each.run()
    ends = []
    for at in moments(draw, trips):
        each.supply(draw)
        ends.append(end_of(each.run, stopped_at, at))
        assert_silent(ends[-1], "the next run writes what is missing")
        again(each.run)
        each.check()
    assert any(end.reached for end in ends)


def test_a_feed(tmp_path, database, stopped_at):
    """Nothing is delivered twice, and nothing is lost."""
    history, draw = History(tmp_path / "shop", chance("silent feed")), chance("silent moments")

    def deliver():
        feed = OutputFeed.open("out/totals", history.folder)
        return feed.transfer("index", lambda each: open_target(database, "totals", each, history.folder))

    history.supply()
    deliver()
    history.supply()
    with stopped_at() as trips:
        deliver()
    ends = []
    for at in moments(draw, trips):
        history.supply()
        ends.append(end_of(deliver, stopped_at, at))
        assert_silent(ends[-1])
        again(deliver)
        assert held(database) == contents(history.folder / "out/totals")
    assert any(end.reached for end in ends)


@pytest.mark.filterwarnings("ignore:.*ServerCursor.*was deleted while still open:ResourceWarning")
@pytest.mark.parametrize("how", [*some(["key: k", "cursor: k"])])
def test_a_table_in(tmp_path, database, execute, stopped_at, how):
    ends = ends_of_runs(tmp_path, database, execute, stopped_at, how)
    assert any(end.reached for end in ends)
    for end in ends:
        assert_silent(end)
