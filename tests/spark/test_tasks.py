"""Runs whose tasks are done one by one, from pickles, by whoever comes: held against the reference, and against runs in memory."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.engine import executor
from ddcli.errors import EngineError
from ddcli.runtime import placement, scheduler, task
from ddcli.runtime.placement import Placement, Rule
from ddcli.runtime.scheduler import on_executor
from ddcli.sinks.pieces import PieceWriter
from ddcli.store.scratch.attempt import Attempt
from ddcli.store.state import batch_lists
from ddcli.store.state.batch_lists import footprint
from ddcli.store.state.contents import batches_of
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import verify_state
from tests.crash.shop import Shop
from tests.draws import many, some
from tests.judge.case import Arrival, Case, Run
from tests.judge.harness import judge
from tests.judge.logs import cases
from tests.judge.sizes import AS_THEY_ARE, cut, few
from tests.judge.test_arrival import FORMATS, WRITERS, histories, judge_arrivals
from tests.judge.test_changes import edited, judge_changes
from tests.judge.test_random import SEARCH
from tests.spark.support import Elsewhere, Here, Told, started, switching


@SEARCH
@given(
    st.tuples(st.sampled_from([1, 1, 1, 2, 3]), st.booleans()).flatmap(lambda way: cases(nt=way[0], looping=way[1])),
    st.sampled_from([1, 3, 8]),
    st.integers(0, 2**32),
)
def test_tasks_are_right_whoever_did_the_run_before(case, shards, seed):
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed), started(Here(seed)):
        judge(case, Path(folder), switching(seed))


@settings(SEARCH, max_examples=many(6))
@given(
    st.sampled_from(list(FORMATS)),
    histories(),
    st.sampled_from(list(WRITERS)),
    st.none() | st.integers(0, 4),
    st.sampled_from([1, 3]),
    st.integers(0, 2**32),
)
def test_rows_that_arrive_are_right_whoever_did_the_run_before(format_, history, kind, change, shards, seed):
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed), started(Here(seed)):
        judge_arrivals(Path(folder), format_, history, kind, change, switching(seed))


@pytest.mark.in_turn
@settings(SEARCH, max_examples=many(6))
@given(
    st.tuples(st.sampled_from([1, 1, 1, 2, 3]), st.booleans()).flatmap(lambda way: cases(nt=way[0], looping=way[1])),
    st.sampled_from([1, 3, 8]),
    st.integers(0, 2**32),
)
def test_stages_are_right_wherever_each_is_done(case, shards, seed):
    chance = random.Random(seed)
    patching = pytest.MonkeyPatch.context()
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed), started(Here(seed)), patching as patch:
        patch.setattr(Placement, "spreads", lambda *_: chance.random() < 0.8)
        patch.setattr(Rule, "wants_spark", lambda *_: chance.random() < 0.5)
        judge(case, Path(folder), dict)


@pytest.mark.in_turn
@settings(SEARCH, max_examples=many(6))
@given(
    st.sampled_from([1, 1, 2, 3]).flatmap(lambda nt: cases(nt=nt, looping=True)),
    st.sampled_from([1, 3, 8]),
    st.sampled_from([0, 8, AS_THEY_ARE]),
    st.integers(0, 2**32),
)
def test_loops_are_right_however_they_are_gone_through(case, shards, rows, seed):
    """Round by round, the rest of them in one place, whole, or in memory: whichever the run before did."""
    chance = random.Random(seed)
    share = chance.choice([0, 0.2, 0.5])
    patching = pytest.MonkeyPatch.context()
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed), few(rows), started(Here(seed)), patching as patch:
        patch.setattr(Rule, "wants_memory", lambda *_: chance.random() < share)
        patch.setattr(executor, "GATHERING", chance.choice([1, 2, 64]))
        judge(case, Path(folder), switching(seed, 0.7))


@SEARCH
@given(
    st.tuples(st.sampled_from([1, 1, 1, 2, 3]), st.sampled_from([False, False, True])).flatmap(
        lambda way: edited(nt=way[0], looping=way[1])
    ),
    st.sampled_from([1, 3, 8]),
    st.integers(0, 2**32),
)
def test_a_changed_pipeline_is_brought_up_by_tasks(found, shards, seed):
    """From arrangements, logs and outputs of whichever engine."""
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed), started(Here(seed)):
        judge_changes(*found, Path(folder), switching(seed, 0.7))


@settings(SEARCH, max_examples=many(5))
@given(st.booleans().flatmap(lambda looping: cases(looping=looping, fallible=True)), st.integers(0, 2**32))
def test_a_row_that_a_task_fails_on_refuses_the_run(case, seed):
    """And nothing of what the other tasks wrote is left."""
    with tempfile.TemporaryDirectory() as folder, started(Here(seed)):
        judge(case, Path(folder), switching(seed, 0.8))


UP_TO = """
dd: 1
name: up_to
inputs: {p: {path: in/, columns: {k: int64}}}
collections:
  reached:
    iterate:
      variables: {x: p}
      body: {x: {from: x, apply: [{map: {k: "least(k + 1, LAST)"}}, {concat: p}, distinct]}}
      result: x
outputs: {reached: out/}
"""
"""The numbers of `p`, and those after them up to a last one."""
TWICE = """\
  both:
    from: reached
    apply: [{count: {by: [k], as: n}}, {project: [k]}, {concat: reached}]
outputs: {both: out/}
"""


def test_what_a_loop_gives_goes_to_each_reader_once(tmp_path):
    """It is sent on from where it left the loop, under the same address."""
    (tmp_path / "in").mkdir()
    pl.DataFrame({"k": [1], "time": 0, "diff": 1}).write_parquet(tmp_path / "in/0.parquet")
    (tmp_path / "p.yaml").write_text(UP_TO.replace("LAST", "5").replace("outputs: {reached: out/}\n", TWICE))
    with started(Here(1)):
        run(tmp_path / "p.yaml", engine="spark")
    assert pl.read_parquet(tmp_path / "out/*.parquet").sort("k").rows() == [(k, 0, 2) for k in range(1, 6)]


ENTERED = """
dd: 1
name: entered
inputs: {p: {path: in/, columns: {k: int64}}}
collections:
  few: {from: p, apply: [{map: {k: "k + k"}}, distinct]}
  reached:
    iterate:
      variables: {x: few}
      body:
        x: {from: few, apply: [{semijoin: {with: x, on: {k: k}}}, {map: {k: "(k + k) % 5"}}, {concat: few}, distinct]}
      result: x
outputs: {reached: out/}
"""


@pytest.mark.parametrize("shards", [1, 3])
def test_an_arrangement_that_enters_a_loop_is_read_by_a_later_stage(tmp_path, monkeypatch, shards):
    """Its one stage finds it where it is; what it took in is sent to the others."""
    (tmp_path / "in").mkdir()
    pl.DataFrame({"k": [0, 1], "time": 0, "diff": 1}).write_parquet(tmp_path / "in/0.parquet")
    (tmp_path / "p.yaml").write_text(ENTERED)
    monkeypatch.setattr(placement, "HEAVY", 0)
    with cut(shards, 1), started(Here(1)):
        run(tmp_path / "p.yaml", engine="spark")
    assert pl.read_parquet(tmp_path / "out/*.parquet")["k"].sort().to_list() == [0, 2, 4]


ALONE = """
dd: 1
name: judged
inputs: {p: {path: in/p/, columns: {k: int64}}, q: {path: in/q/, columns: {k: int64, to: int64}}}
collections:
  few: {from: p, apply: [distinct]}
  far:
    iterate:
      variables: {x: few}
      body:
        near:
          iterate:
            variables: {y: x}
            body: {y: {from: y, apply: [{map: {k: "least(k + 1, k - k % 3 + 2)"}}, {concat: x}, distinct]}}
            result: y
        x: {from: q, apply: [{join: {with: near, as: near, on: [k]}}, {map: {k: to}}, {concat: few}, distinct]}
      result: x
outputs: {far: out/far/}
"""


@pytest.mark.parametrize("shards", [1, 3])
def test_what_enters_a_loop_alone_in_its_stage_is_sent_on(tmp_path, monkeypatch, shards):
    """No other operator is between the exchanges that it is between: a loop is, that it is not read by."""
    monkeypatch.setattr(placement, "HEAVY", 0)
    first = Run((Arrival("p", (((0,), (0,), 1),)), Arrival("q", (((2, 3), (0,), 1), ((5, 6), (0,), 1)))))
    second = Run((Arrival("q", (((8, 9), (1,), 1), ((4, 12), (1,), 1), ((2, 3), (1,), -1))),))
    with cut(shards, 1), started(Here(1)):
        judge(Case(ALONE, (first, second)), tmp_path, lambda: {"engine": "spark"})


WAITED = """
dd: 1
name: judged
inputs: {p: {path: in/p/, columns: {k: int64, v: int64}, time: [t0, t1]}}
collections:
  reached:
    iterate:
      variables: {x: p}
      body:
        x: {from: p, apply: [{semijoin: {with: x, on: {k: k}}}, {map: {k: k % 2, v: (k + v) % 5}}, {concat: p}, distinct]}
      result: x
outputs: {reached: out/reached/}
"""


@pytest.mark.parametrize("engines", [("local", "spark"), ("spark", "spark"), ("spark", "local")])
def test_what_waited_for_a_time_is_there_in_its_round(tmp_path, monkeypatch, engines):
    """The same record comes to be at (0, 2) and (1, 0), in other runs: at (1, 2), that a third one closes, it is there once."""
    monkeypatch.setattr(placement, "HEAVY", 0)
    first, second = (Arrival("p", (each,)) for each in [((2, 4), (0, 2), 1), ((0, 1), (1, 0), 1)])
    case = Case(WAITED, (Run((first, second), "1,3"), Run((), "2,2"), Run((), "2,3")), "int64")
    ways = iter([engines[0], *engines, *engines])
    with cut(1, 0), started(Here(1)):
        judge(case, tmp_path, lambda: {"engine": next(ways)})


MET_LATER = """
dd: 1
name: judged
inputs: {q: {path: in/q/, columns: {k: int64, v: int64}}}
collections:
  links: {from: q, apply: [{map: {k: v, v: k}}, distinct]}
  far:
    iterate:
      variables: {x: links}
      body:
        known: {from: x, apply: [distinct]}
        near:
          iterate:
            variables: {y: known}
            body:
              ends: {from: y, apply: [{join: {with: known, as: known, on: {v: v}}}]}
              y: {from: known, apply: [{join: {with: y, as: y, on: {v: k}}}, {map: {k: k, v: y.v}}, {concat: known}, distinct]}
            result: [ends]
        x: {from: x, apply: [{join: {with: links, as: links, on: {v: k}}}, {map: {k: k, v: links.v}}, {concat: links}, distinct]}
      result: near.ends
outputs: {far: out/far/}
"""

TOUCHED_WITHIN = """
dd: 1
name: judged
inputs: {p: {path: in/p/, columns: {k: int64}}, q: {path: in/q/, columns: {k: int64}}}
collections:
  far:
    iterate:
      variables: {x: p}
      body:
        near:
          iterate:
            variables: {y: x}
            body:
              y: {from: y, apply: [{semijoin: {with: q, on: [k]}}, {map: {k: "least(k + 10, 30 + k % 10)"}}, {concat: x}, distinct]}
            result: y
        x: {from: x, apply: [{map: {k: "least(k + 1, 4)"}}, {concat: p}, distinct]}
      result: near
outputs: {far: out/far/}
"""

BY_TURNS = {
    # What of an inner loop's join is of a later round of the outer one: two keys meet that are of other rounds each.
    "met later": Case(
        MET_LATER,
        (
            Run((Arrival("q", (((2, 4), (0,), 2), ((4, 2), (0,), 1))),)),
            Run((Arrival("q", (((2, 3), (1,), 1),)),)),
        ),
    ),
    # Only the inner loop has something to do in later rounds of the outer one.
    "touched within": Case(
        TOUCHED_WITHIN,
        (
            Run((Arrival("p", (((1,), (0,), 1),)), Arrival("q", ()))),
            Run((Arrival("q", (((1,), (1,), 1), ((2,), (1,), 1), ((3,), (1,), 1))),)),
        ),
    ),
}


@pytest.mark.in_turn
@pytest.mark.parametrize("name", BY_TURNS)
@pytest.mark.parametrize("which", [*some([1, 2, 3, 6])])
def test_what_waits_in_a_loop_goes_from_one_way_to_go_through_it_to_the_other(tmp_path, monkeypatch, name, which):
    """One loop, or the rest of one, is gone through in memory, all before and after it round by round."""
    asked = itertools.count()

    def how():
        nonlocal asked
        asked = itertools.count()
        return {"engine": "spark"}

    monkeypatch.setattr(Rule, "wants_memory", lambda *_: next(asked) == which)
    with cut(3, 1), started(Here(1)):
        judge(BY_TURNS[name], tmp_path, how)


CHAIN = UP_TO.replace("LAST", "40")


@pytest.fixture
def chain(tmp_path):
    (tmp_path / "in").mkdir()
    pl.DataFrame({"k": [1, 3], "time": 0, "diff": 1}).write_parquet(tmp_path / "in/0.parquet")
    path = tmp_path / "p.yaml"
    path.write_text(CHAIN)
    return path


@pytest.mark.parametrize(("heavy", "rounds", "whole"), [(0, 38, 0), (1 << 20, 0, 1)])
def test_what_is_left_of_a_loop_is_one_task_when_it_is_little(chain, monkeypatch, heavy, rounds, whole):
    monkeypatch.setattr(placement, "HEAVY", heavy)
    with started(Told(1)) as cluster:
        run(chain, engine="spark")
    abouts = list(dict.fromkeys(cluster.abouts))
    found = {about.partition(":")[0] for about in (each.partition(", round ")[2] for each in abouts) if about}
    assert (len(found), sum(about.endswith("in memory") for about in abouts)) == (rounds, whole)
    assert pl.read_parquet(chain.parent / "out/*.parquet").sort("k").rows() == [(k, 0, 1) for k in range(1, 41)]


def test_a_loop_that_does_not_settle_is_refused_by_the_task_that_finds_out(chain, monkeypatch):
    monkeypatch.setattr(placement, "HEAVY", 0)
    chain.write_text(CHAIN.replace("result: x", "result: x\n      max_rounds: {guard: 5}"))
    with (
        started(Here(1)),
        pytest.raises(EngineError, match="not settled after 5 rounds: its variable 'x' still changes"),
    ):
        run(chain, engine="spark")
    assert not (chain.parent / "out").exists()


@contextmanager
def without(folder, other=None):
    """Have a folder nowhere for a while, or another in its place."""
    away = folder.with_suffix(".away")
    folder.rename(away)
    if other is not None:
        (folder / other).mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        away.rename(folder)


@pytest.fixture
def sums(tmp_path):
    """Return a pipeline whose outputs and inputs are in folders of their own."""
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: sums\ninputs: {a: in/}\n"
        "collections: {sums: {from: a, apply: [{reduce: {by: [k], n: count(*)}}]}}\noutputs: {sums: out/sums/}\n"
    )
    (tmp_path / "in").mkdir()
    pl.DataFrame({"k": range(200_000), "time": 0, "diff": 1}).write_parquet(tmp_path / "in/0.parquet")
    return path


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("away", "other", "problem"),
    [
        ("in", None, f"on the executor's machine {os.uname().nodename}: "),
        ("out", None, f"an executor on {os.uname().nodename} can't open the output 'sums'"),
        ("out", "sums", f"on the executor's machine {os.uname().nodename}: a part of the output that another task"),
    ],
)
def test_a_path_that_an_executor_does_not_have_is_named(sums, tmp_path, monkeypatch, away, other, problem):
    monkeypatch.setattr(scheduler, "INLINE", 0)
    folder = sums.parent / away
    with started(Elsewhere(tmp_path, lambda: without(folder, other))), pytest.raises(EngineError) as raised:
        run(sums, engine="spark")
    assert raised.value.problem.startswith(problem)
    assert str(folder) in raised.value.place
    assert "executors" in raised.value.hint
    assert run(sums).changed


def test_a_store_that_refuses_an_executor_is_named_with_its_machine():
    """The store's own hint is the remedy: another path would not help."""
    refused = EngineError("the object store refuses: 403", place="s3://lake/out/x.parquet", hint="check AWS_REGION")
    result = task.failure(refused)
    error = on_executor(result.error, result.host)
    assert error.problem == f"on the executor's machine {os.uname().nodename}: the object store refuses: 403"
    assert (error.place, error.hint) == ("s3://lake/out/x.parquet", "check AWS_REGION, on that machine, too")
    assert task.failure(EngineError("a loop does not settle", place="p.yaml")).host is None


@pytest.mark.parametrize("after", ["finish", "keep"])
def test_a_task_whose_last_writes_are_refused_ends_the_run_with_its_machine(sums, monkeypatch, after):
    """Spark would repeat a task that raises, and then report a bug."""

    def refusing(*_):
        raise EngineError("the object store refuses: 403", place="s3://lake/out/x.parquet", hint="check AWS_REGION")

    monkeypatch.setattr(scheduler, "INLINE", 0)
    monkeypatch.setattr(*{"finish": (PieceWriter, "finish", refusing), "keep": (Attempt, "finish", refusing)}[after])
    with started(Here(3)), pytest.raises(EngineError) as raised:
        run(sums, engine="spark")
    assert raised.value.problem == f"on the executor's machine {os.uname().nodename}: the object store refuses: 403"
    monkeypatch.undo()
    assert run(sums).changed


def test_an_executor_with_another_version_is_refused(sums, tmp_path, monkeypatch):
    monkeypatch.setattr(task, "__version__", "0.0.9")
    with (
        started(Elsewhere(tmp_path)),
        pytest.raises(EngineError, match=r"has ddcli .*, and this is 0\.0\.9"),
    ):
        run(sums, engine="spark")
    assert run(str(sums), state=str(sums.parent / ".dd/sums")).changed


def test_tasks_empty_bundles_that_are_mostly_out_of_use(tmp_path, monkeypatch):
    """No more is dead in the bundles of tasks than is alive, and their batches are read as before."""
    moved = []
    monkeypatch.setattr(batch_lists, "SLACK", 0)
    monkeypatch.setattr(batch_lists, "FULL", 0)  # the driver copies none
    real = Attempt.move
    monkeypatch.setattr(Attempt, "move", lambda *given: moved.append(given) or real(*given))
    shop = Shop.make(tmp_path / "shop")
    with started(Here(7)):
        for step in range(8):
            shop.supply(step)
            shop.run(engine="spark")
            manifest = read_newest(shop.state)
            assert manifest.bundles
            alive = sum(footprint(file.size) for _, _, file in batches_of(manifest) if file.bundle)
            assert sum(manifest.bundles.values()) <= 2 * alive + 1024 * len(manifest.bundles)
    assert moved
    assert shop.rows() == shop.meant(8)
    assert not list(verify_state(shop.state, manifest))
