"""A server of MariaDB that is stopped (SIGSTOP) at any of a run's queries, and goes on later."""

import pymysql
import pytest

from tests.draws import some
from tests.silence import ends_of_runs, stopper


@pytest.fixture
def stopped_at(server, monkeypatch):
    """Return what has the server stopped from a query on, and go on at the end; it yields the numbers of those that were begun."""
    process = int((server.parent / "pid").read_text())
    return stopper(monkeypatch, pymysql.Connection, "query", lambda: [process])


@pytest.mark.parametrize("how", [*some(["key: k", "cursor: k"])])
def test_a_table_in(tmp_path, database, execute, stopped_at, how):
    """Where the server stops as the run says goodbye, it had read all."""
    ends = ends_of_runs(tmp_path, database, execute, stopped_at, how)
    problems = [end for end in ends if end.problem]
    assert problems
    for end in problems:
        assert "Lost connection" in end.problem
        assert "DDCLI_DATABASE_TIMEOUT" in end.hint
