"""Loops in loops, in time of several coordinates, however they are gone through: in memory, as tasks, through files.

Each example is judged by the reference model. The tests draw a few, the same each time; so many as a change of
loops is to be judged by are drawn with

    HYPOTHESIS_PROFILE=soak DD_EFFORT=500 pytest tests/judge/test_rounds.py -k nested

which takes some hours on one processor. What it finds wrong is printed as a `Case`, to be kept below.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine import loop, out_of_core
from tests.draws import many
from tests.judge.case import Arrival, Case, Run
from tests.judge.logs import cases
from tests.judge.memory import judge_by_rounds, judge_in_memory
from tests.judge.sizes import AS_THEY_ARE, few
from tests.judge.test_random import SEARCH


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
        for module in (loop, out_of_core):
            patch.setattr(module, "GATHERING", chance.choice([1, 2, 64]))
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
