"""Chains of stages: what goes through the shuffle, and what reaches the driver.

How long is waited for executors, before it is decided how a run is cut.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError
from ddcli.runtime import chain
from ddcli.runtime.chain import FAILED, MARK, RESULT
from ddcli.runtime.scheduler import TaskScheduler
from ddcli.runtime.spark import classic
from ddcli.runtime.spark.session import share
from ddcli.runtime.task import TaskAttempt
from ddcli.store.scratch import spill
from ddcli.store.state.manifest import read_newest
from tests.judge.sizes import cut
from tests.spark.support import Calm, Seen, started

PIPELINE = """
dd: 1
name: chain
shards: 6
inputs: {sales: {path: in/, columns: {shop: string, amount: int64}}}
collections:
  sums: {from: sales, apply: [{reduce: {by: [shop], amount: sum(amount)}}]}
  sizes: {from: sums, apply: [{reduce: {by: [amount], shops: count(*)}}]}
  both: {from: sums, apply: [{join: {with: sizes, on: [amount]}}, {join: {with: sales, as: each, on: [shop]}}]}
outputs: {both: out/both/, sizes: out/sizes/}
"""
LOOP = """
  below:
    iterate:
      variables: {x: sizes}
      body: {x: {from: x, apply: [{map: {amount: "greatest(amount - 100, 0)", shops: shops}}, {concat: sizes}, distinct]}}
      result: x
  last: {from: below, apply: [{reduce: {by: [shops], least: min(amount)}}]}
outputs: {both: out/both/, sizes: out/sizes/, last: out/last/}
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "in").mkdir()
    more(tmp_path, 0)
    found = tmp_path / "p.yaml"
    found.write_text(PIPELINE)
    return found


def more(folder, time):
    rows = [(f"s{at % 40}", at % (7 + time), time, 1) for at in range(400)]
    schema = {"shop": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
    pl.DataFrame(rows, schema, orient="row").write_parquet(folder / f"in/{time}.parquet")


def check(path, *, looped=False):
    """Compare the outputs with what polars makes of the input."""
    sales = pl.read_parquet(path.parent / "in/*.parquet").select("shop", each=pl.col("amount"))
    sums = sales.group_by("shop").agg(amount=pl.col("each").sum())
    sizes = sums.group_by("amount").agg(shops=pl.len().cast(pl.Int64))
    both = sums.join(sizes, on="amount").join(sales, on="shop")
    assert held(path, "sizes") == dict.fromkeys(sizes.select("amount", "shops").iter_rows(), 1)
    counted = both.select("shop", "amount", "shops", "each").group_by(pl.all()).len()
    assert held(path, "both") == {tuple(row): count for *row, count in counted.iter_rows()}
    if looped:
        assert held(path, "last") == {(shops, 0): 1 for (shops,) in sizes.select("shops").unique().iter_rows()}


def held(path, name):
    found = pl.read_parquet(path.parent / "out" / name / "*.parquet").drop("time")
    columns = [column for column in found.columns if column != "diff"]
    summed = found.group_by(columns).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    return {tuple(row): diff for *row, diff in summed.iter_rows()}


@pytest.mark.parametrize(("slots", "chunk"), [(1, 1_000), (2, 1), (5, 1_000), (5, 4 << 20)])
@pytest.mark.in_turn
def test_rows_go_from_stage_to_stage_without_files(path, monkeypatch, chunk, slots):
    """No part of what a task sends is known to the driver: it gets a row from each task."""
    monkeypatch.setattr(spill, "CHUNK", chunk)
    monkeypatch.setattr(chain, "ROOM", 10 * chunk)
    monkeypatch.setattr(spill.FileExchange, "add", None)
    results = []
    take_in = TaskScheduler._take_in
    monkeypatch.setattr(TaskScheduler, "_take_in", lambda self, result: results.append(result) or take_in(self, result))
    for time in range(2 if chunk == 1 else 3):
        if time:
            more(path.parent, time)
        with started(Seen(time, slots)) as cluster:
            summary = run(path, engine="spark")
        check(path)
        assert not any(result.sent for result in results)
        last = max(step.number for step, _, _ in cluster.rows if hasattr(step, "number"))
        reached = [row for step, _, rows in cluster.rows if getattr(step, "number", None) == last for row in rows]
        assert {row.edge for row in reached} == {RESULT}
        assert summary.spark.stages >= last + 1 >= 4
        tasks = sum(len({row.shard for row in part if row.edge == MARK}) > 0 for _, part, _ in cluster.rows)
        assert tasks <= 3 * slots * (last + 1) * 2, "three for each slot, some twice"


def test_each_shard_goes_through_each_stage_once(path, monkeypatch):
    with started(Seen(1)) as cluster:
        run(path, engine="spark")
    by_stage = {}
    for step, part, _ in cluster.rows:
        if hasattr(step, "number"):
            by_stage.setdefault(step.number, set()).update(row.shard for row in part if row.edge == MARK)
    assert set(map(len, by_stage.values())) == {6}


class Losing(Calm):
    """Loses the rows of a shard."""

    def stepped(self, step, part):
        return [row for row in super().stepped(step, part) if row.shard != 2 or row.edge == RESULT]


def test_rows_that_spark_loses_are_missed(path):
    with started(Losing()), pytest.raises(EngineError, match="Spark has lost rows"):
        run(path, engine="spark")
    assert read_newest(path.parent / ".dd/chain") is None
    assert not (path.parent / "out").exists()


def test_what_enters_a_loop_or_leaves_one_goes_through_files(path):
    path.write_text(PIPELINE[: PIPELINE.index("outputs:")] + LOOP.lstrip("\n"))
    for time in range(3):
        if time:
            more(path.parent, time)
        with started(Seen(time)):
            assert run(path, engine="spark").spark.stages > 4
        check(path, looped=True)
    assert not (path.parent / ".dd/chain/spill").exists()


@pytest.mark.parametrize("stage", range(5))
def test_after_an_error_later_stages_do_nothing(path, monkeypatch, stage):
    """But pass on results, so that what was written is removed; the error that is told is the first."""
    steps = itertools.count()
    finished = TaskAttempt.stepping

    def stepping(self, exchange, *given):
        if exchange.number == stage and next(steps) == min(stage, 1):  # the first stage has one task
            raise InputError("unlucky")
        assert exchange.number <= stage, "a later stage was stepped"
        return finished(self, exchange, *given)

    monkeypatch.setattr(TaskAttempt, "stepping", stepping)
    monkeypatch.setattr(Seen, "calm", True)
    with cut(6, 1), started(Seen(3, 5)) as cluster, pytest.raises(InputError, match="unlucky"):
        run(path, engine="spark")
    failed = [step.number for step, part, _ in cluster.rows if any(row.edge == FAILED for row in part)]
    assert set(failed) == set(range(stage + 1, 5))
    assert not list((path.parent / ".dd").rglob("*.parquet"))
    assert not (path.parent / "out").exists()


@pytest.fixture
def clock(monkeypatch):
    """Have time pass only where somebody waits for it."""
    now = SimpleNamespace(seconds=100.0)

    def sleep(seconds):
        now.seconds += seconds

    monkeypatch.setattr(
        classic, "time", SimpleNamespace(monotonic=lambda: now.seconds, time=lambda: now.seconds, sleep=sleep)
    )
    return now


class Cluster(classic.Classic):
    """Executors come at the given seconds after the context's start; the driver ends at a time."""

    def __init__(self, clock, coming, ends=1e9, **settings):
        super().__init__(SimpleNamespace(sparkContext=SimpleNamespace(startTime=100_000)), owned=True)
        self.clock, self.coming, self.ends = clock, coming, ends
        self.settings = {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}

    def _settings(self):
        return self.settings

    def _cores(self):
        return max(2, self._executors())  # as Spark says

    def _executors(self):
        return sum(self.clock.seconds - 100 >= each for each in self.coming)

    def _is_stopped(self):
        return self.clock.seconds - 100 >= self.ends


@pytest.mark.parametrize(
    ("looks", "coming", "there", "seconds"),
    [
        (0, [4.0], 1, 6),
        (0, [4.0, 4.5, 5.5], 3, 7.5),
        (0, [4.0, 5.9, 7.8, 20.0], 3, 9.8),  # who comes much later is not waited for
        (5, [4.0, 5.9], 2, 8.5),  # the first is there before anybody looks
        (0, [0.0], 1, 0),
        (0, [], 0, 60),
        (70, [69.0], 1, 105),
    ],
)
def test_executors_are_waited_for_until_no_more_come(clock, looks, coming, there, seconds):
    cluster = Cluster(clock, coming, master="spark://host:7077")
    clock.seconds += looks
    cluster.gather()
    assert cluster._executors() == there
    assert cluster.is_waiting == (there == 0)
    assert clock.seconds - 100 == pytest.approx(seconds, abs=0.7)


def test_nobody_is_waited_for_once_spark_has_stopped(clock):
    Cluster(clock, [], ends=5).gather()
    assert clock.seconds - 100 < 6


def test_executors_that_spark_asks_for_when_tasks_wait_are_counted_and_not_waited_for(clock):
    cluster = Cluster(
        clock,
        [],
        master="yarn",
        dynamicAllocation_enabled="true",
        dynamicAllocation_maxExecutors="9",
        executor_cores="4",
    )
    cluster.gather()
    assert clock.seconds == 100
    assert not cluster.is_waiting
    assert cluster.slots == 36
    assert Cluster(clock, [], master="yarn").slots == 2
    assert cluster.task_memory(0) == share(cluster.settings, 4, 36, 0)
