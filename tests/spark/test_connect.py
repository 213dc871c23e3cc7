"""Spark Connect: a server that this process only has the address of."""

from __future__ import annotations

import os
import time

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.engine.counts import Progress
from ddcli.errors import EngineError, InputError, SpecError, UsageError
from ddcli.runtime import scheduler
from ddcli.runtime.spark import connect
from tests.spark.servers import connect_server, free_port
from tests.spark.support import Bug, assert_all_named

PIPELINE = """
dd: 1
name: counts
inputs: {a: {path: in/, columns: {k: int64, word: string}}}
collections: {b: {from: a, apply: [{count: {by: [word], as: n}}]}}
outputs: {b: out/b/}
"""


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """Return the address of a server, and its process."""
    pytest.importorskip("grpc")
    with connect_server(tmp_path_factory.mktemp("connect")) as found:
        yield found


@pytest.fixture
def server(serving):
    """Return the address of the server."""
    return serving[0]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "in").mkdir()
    more(tmp_path, 0)
    found = tmp_path / "p.yaml"
    found.write_text(PIPELINE)
    return found


def more(folder, time):
    rows = {"k": range(1_000), "word": [f"w{at % 30}" for at in range(1_000)]}
    pl.DataFrame(rows).with_columns(time=time, diff=1).write_parquet(folder / f"in/{time}.parquet")


def counts(path):
    """Return what the output says at the end."""
    log = pl.read_parquet(path.parent / "out/b/*.parquet")
    return dict(log.group_by("word", "n").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0).rows_by_key("word"))


class Heard(Progress):
    """Keeps what it hears."""

    def __init__(self):
        self.stages, self.followed = [], []

    def begin(self, what, tasks=None):
        self.stages.append((what, tasks))

    def follow(self, done, active, failed):
        self.followed.append((done, active, failed))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.in_turn(9)
def test_a_server_and_this_machine_continue_each_others_states(server, path):
    heard = Heard()
    summary = run(path, engine="spark", remote=server, progress=heard)
    assert summary.spark.tasks > 1
    assert summary.spark.master.startswith("sc://127.0.0.1")
    tasks = max(tasks for _, tasks in heard.stages if tasks)
    assert all(0 <= done <= tasks and active >= 0 for done, active, _ in heard.followed)
    more(path.parent, 1)
    run(path, engine="local")
    more(path.parent, 2)
    path.write_text(f"{PIPELINE}spark: {{remote: '{server}'}}\n")
    assert run(path, engine="spark").spark
    found = {word: n for word, ((n, _),) in counts(path).items()}
    assert found == {f"w{at}": 3 * len(range(at, 1_000, 30)) for at in range(30)}
    state = path.parent / ".dd/counts"
    assert_all_named(state)


@pytest.mark.in_turn(9)
@pytest.mark.spark
@pytest.mark.slow
def test_a_session_of_connect_is_used_and_left(server, path):
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(server).create()
    assert run(path, spark=session).spark.tasks
    assert session.range(3).count() == 3
    assert not session.getTags()
    log = path.parent / "numbers"
    session.range(3).write.format("dd").mode("append").save(str(log))
    assert session.read.format("dd").load(str(log)).count() == 3
    lost = "a relative path means nothing in Spark Connect"  # Python works in a temporary directory there
    with pytest.raises(Exception, match=lost):
        session.range(3).write.format("dd").mode("append").save("lost")
    with pytest.raises(Exception, match=lost):
        session.read.format("dd").load("lost").count()
    session.stop()


@pytest.mark.in_turn(9)
@pytest.mark.spark
@pytest.mark.slow
def test_errors_are_told_in_a_line(server, path, monkeypatch):
    (path.parent / "odd_function.py").write_text("def odd(record):\n    raise ValueError('unlucky')\n")
    odd = "{map: {function: odd_function:odd, columns: {word: string}}}"
    path.write_text(PIPELINE.replace("[{count", f"[{odd}, {{count"))
    with pytest.raises(InputError, match=r"odd_function:odd.*unlucky"):
        run(path, engine="spark", remote=server)
    path.write_text(PIPELINE)
    with pytest.raises(UsageError, match=r"the setting spark.driver.memory can't be made: \[CANNOT_MODIFY"):
        run(path, engine="spark", remote=server, conf={"spark.driver.memory": "1g"})
    monkeypatch.setattr(scheduler, "ChainedStage", Bug)
    with pytest.raises(EngineError, match=rf"a task failed on {os.uname().nodename}: KeyError: 'gone'"):
        run(path, engine="spark", remote=server)
    assert not list((path.parent / ".dd").rglob("*.parquet"))


@pytest.mark.in_turn(9)
@pytest.mark.spark
@pytest.mark.slow
def test_a_server_that_dies_is_told_of_and_leaves_nothing(serving, path, monkeypatch):
    """It is the last test of the server."""
    monkeypatch.setattr(connect, "RETRIES", 2)
    address, process = serving
    ours = path.parent / "fatal.py"
    ours.write_text(f"import os, signal\ndef fatal(record):\n    os.kill({process.pid}, signal.SIGKILL)\n")
    odd = "{map: {function: fatal:fatal, columns: {word: string}}}"
    path.write_text(PIPELINE.replace("[{count", f"[{odd}, {{count"))
    started = time.monotonic()
    with pytest.raises(EngineError, match="Spark does not answer any more"):
        run(path, engine="spark", remote=address)
    assert time.monotonic() - started < 300
    path.write_text(PIPELINE)
    run(path, engine="local")
    assert len(counts(path)) == 30


def test_an_address_where_nobody_answers_is_told_of_at_once(path):
    pytest.importorskip("grpc")
    port = free_port()
    with pytest.raises(EngineError, match="Spark Connect does not answer: Connection refused") as caught:
        run(path, engine="spark", remote=f"sc://127.0.0.1:{port}")
    assert caught.value.place == f"sc://127.0.0.1:{port}"
    with pytest.raises(UsageError, match="not an address of Spark Connect"):
        run(path, engine="spark", remote="local[2]")
    with pytest.raises(UsageError, match="not an address of Spark Connect"):
        run(path, engine="spark", remote="sc://:port")


def test_spark_is_in_one_place(path):
    with pytest.raises(UsageError, match="in one place"):
        run(path, engine="spark", remote="sc://a", master="local[2]")
    path.write_text(f"{PIPELINE}spark: {{master: 'local[2]', remote: 'sc://a'}}\n")
    with pytest.raises(SpecError, match="in one place"):
        run(path, engine="spark")
