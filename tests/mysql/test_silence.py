"""A server of MariaDB that is stopped (SIGSTOP) at any of a run's queries, and goes on later."""

from time import monotonic

import pymysql
import pytest

from ddcli import read_log
from ddcli.driver.run import run
from ddcli.errors import InputError
from tests.draws import chance, many
from tests.silence import SOON, stopper


@pytest.fixture
def stopped_at(server, monkeypatch):
    """Return what has the server stopped from a query on, and go on at the end; it yields the numbers of those that were begun."""
    process = int((server.parent / "pid").read_text())
    return stopper(monkeypatch, pymysql.Connection, "query", lambda: [process])


def tried(file):
    """Run a pipeline; return what was wrong with an input."""
    try:
        run(file)
    except InputError as error:
        return error
    return None


@pytest.mark.parametrize("how", ["key: k", "cursor: k"])
def test_a_run_takes_in_nothing_and_the_next_one_all(tmp_path, database, execute, stopped_at, how):
    execute("create table t (k bigint primary key, v varchar(9))", "insert into t values (1, 'a'), (2, 'b')")
    table = f"{{database: '{database}', table: t, {how}}}"
    (tmp_path / "p.yaml").write_text(f"name: p\ninputs: {{t: {table}}}\noutputs: {{t: out/}}\n")
    run(tmp_path / "p.yaml")
    execute("insert into t values (100, 'b')")
    with stopped_at() as queries:
        run(tmp_path / "p.yaml")
    moments = {*chance("silent", how).sample(queries, min(many(3), len(queries))), queries[-1]}
    problems = []
    for number, at in enumerate(moments):
        execute(f"insert into t values ({200 + number}, null)")
        begun = monotonic()
        with stopped_at(at):
            problem = tried(tmp_path / "p.yaml")
        assert monotonic() - begun < SOON
        if problem is not None:  # else it had read all, and said goodbye, or had fewer queries than the first one
            assert "Lost connection" in problem.problem
            assert "DDCLI_DATABASE_TIMEOUT" in problem.hint
        problems.append(problem)
        run(tmp_path / "p.yaml")
        rows = read_log(tmp_path / "out", as_of="latest").select("k", "v").sort("k").rows()
        assert rows == [*execute("select * from t order by k")]
    assert any(problems)
