"""Runs whose tasks are done one by one, from pickles, by whoever comes: held against the reference, and against runs in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judge.harness import judge
from tests.judge.logs import cases
from tests.judge.sizes import cut
from tests.judge.test_random import EXAMPLES, SEARCH
from tests.spark.support import Here, started, switching


@SEARCH
@given(
    st.tuples(st.sampled_from([1, 1, 1, 2, 3]), st.booleans()).flatmap(lambda way: cases(nt=way[0], looping=way[1])),
    st.sampled_from([1, 3, 8]),
    st.integers(0, 2**32),
)
def test_tasks_are_right_whoever_did_the_run_before(case, shards, seed):
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed), started(Here(seed)):
        judge(case, Path(folder), switching(seed))


@settings(SEARCH, max_examples=max(5, EXAMPLES // 4))
@given(st.booleans().flatmap(lambda looping: cases(looping=looping, fallible=True)), st.integers(0, 2**32))
def test_a_row_that_a_task_fails_on_refuses_the_run(case, seed):
    """And nothing of what the other tasks wrote is left."""
    with tempfile.TemporaryDirectory() as folder, started(Here(seed)):
        judge(case, Path(folder), switching(seed, 0.8))
