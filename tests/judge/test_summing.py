"""Logs of which the older part is summed up, and what reads them: from the horizon on, all is as if nothing had been summed up.

Loops in loops, in time of several coordinates, however they are gone through: in memory, as tasks, through files.

Each example is judged by the reference model. The tests draw a few, the same each time; so many as a change of
loops is to be judged by are drawn with

    HYPOTHESIS_PROFILE=soak DD_EFFORT=500 pytest tests/judge/test_summing.py -k nested

which takes some hours on one processor. What it finds wrong is printed as a `Case`, to be kept below.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine import executor
from ddcli.errors import InputError, UsageError
from ddcli.sinks.log_compaction import compact
from ddcli.sources.change_log import read_log
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge.case import Arrival, Case, Run
from tests.judge.logs import cases
from tests.judge.memory import judge_by_rounds, judge_in_memory
from tests.judge.sizes import AS_THEY_ARE, few
from tests.judge.test_growing import ROWS, Twin
from tests.judge.test_random import SEARCH

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), ROWS),
        st.tuples(st.just("produce"), ROWS),
        st.tuples(st.just("read"), st.none()),
        st.tuples(st.just("compact"), st.sampled_from([None, None, 2, 4, 8])),
        st.tuples(st.just("reopen"), st.integers(2, 8)),
        st.tuples(st.just("change"), st.none()),
    ),
    min_size=4,
    max_size=14,
)
LATEST = 30


def contents(directory: Path, horizon: int) -> list[dict[tuple, int]]:
    """Return what a log holds at each time from the horizon on, as a glob sees it."""
    rows = pl.read_parquet(directory / "*.parquet").rows() if [*directory.glob("*.parquet")] else []
    found = []
    for time in range(horizon, LATEST):
        there = Counter()
        for *record, at, diff in rows:
            there[tuple(record)] += diff if at <= time else 0
        found.append({record: diff for record, diff in there.items() if diff})
    return found


def shown(directory: Path, time: int) -> dict[tuple, int] | None:
    try:
        return {tuple(row): diff for *row, diff in read_log(directory, as_of=time).iter_rows()}
    except InputError:
        return None


@settings(max_examples=many(8))
@given(STEPS, st.integers(0, 2))
def test_from_the_horizon_on_a_log_says_what_it_said(steps, apart):
    with tempfile.TemporaryDirectory() as folder:
        summed, plain = (Twin(Path(folder) / name, apart, 4) for name in ("summed", "plain"))
        horizon = 0
        for at, step in enumerate(steps):
            if step[0] == "compact":
                if not (summed.folder / "out/c/_progress.json").exists():
                    continue
                before = None if step[1] is None else str(step[1])
                (done,) = compact("out/c", summed.folder, before)
                if done.horizon is not None:
                    horizon = int(done.horizon)
                    assert done.files > 1
            else:
                ends = summed.do(step, at), plain.do(step, at)
                assert ends[0] == ends[1], (at, step, ends)
            for name in ("c", "d"):
                held = [contents(twin.folder / "out" / name, horizon) for twin in (summed, plain)]
                assert held[0] == held[1], (at, step, name)
            for time in (horizon, LATEST):
                assert shown(summed.folder / "out/c", time) == shown(plain.folder / "out/c", time)
            if horizon > 0:
                with pytest.raises(UsageError, match="remembers nothing before"):
                    read_log(summed.folder / "out/c", as_of=horizon - 1)
        summed.check()
        fresh = []
        for twin in (summed, plain):
            shutil.rmtree(twin.folder / ".dd/b", ignore_errors=True)
            shutil.rmtree(twin.folder / "out/d", ignore_errors=True)
            end = twin.do(("read", None), 0)
            closed = read_newest(twin.folder / ".dd/b")
            after = closed is not None and (not closed.upper or closed.upper[0][0] > horizon)
            fresh.append((end, contents(twin.folder / "out/d", horizon) if after else None))
        assert fresh[0] == fresh[1]


@settings(SEARCH, max_examples=many(10))
@given(
    st.sampled_from([2, 2, 3]).flatmap(lambda nt: cases(nt=nt, looping=True, nested=True)),
    st.sampled_from([AS_THEY_ARE, 8, 0]),
    st.integers(0, 2**32),
)
def test_nested_loops_are_right_whoever_goes_through_them(case, most, seed):
    """With histories that are walked or swept, in few steps or many, in any mixture of whole loops, rests of them and rounds."""
    judge_all(case, most, seed)


def judge_all(case, most, seed):
    """Judge a case in memory, and step by step in memory, as tasks, or as tasks that leave what goes between them in files."""
    chance = random.Random(seed)
    shards, finely = chance.choice([2, 2, 3]), chance.random() < 0.2
    with few(most), tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "GATHERING", chance.choice([1, 2, 64]))
        judge_in_memory(case, chance.choice([1, 1, shards]), finely=finely)
        judge_by_rounds(case, shards, chance, Path(folder), finely=finely)


EQUAL = """
dd: 1
name: judged
inputs: {p: {path: in/p/, columns: {k: int64, v: int64}}}
collections:
  l:
    iterate:
      variables: {x: p}
      body:
        one: {from: p, apply: [{map: {k: v, v: k % 5}}, distinct]}
        two: {from: p, apply: [{map: {k: v, v: k % 5}}, distinct]}
        x: {from: one, apply: [{map: {k: v, v: k}}, distinct]}
      result: [one, two, x]
      max_rounds: 2
outputs: {one: {from: l.one, path: out/one/}, two: {from: l.two, path: out/two/}}
"""


@pytest.mark.parametrize("seed", range(6))
def test_equal_collections_each_leave_a_loop(seed, tmp_path):
    """They are one collection in the body, which leaves by a port each."""
    runs = (Run((Arrival("p", (((0, 2), (0,), 2),)),)), Run((Arrival("p", (((1, 2), (1,), 1),)),)))
    judge_by_rounds(Case(EQUAL, runs), 2, random.Random(seed), tmp_path)
