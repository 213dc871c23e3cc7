"""Random pipelines over random logs in random cuts, against the reference."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import many
from tests.judge.harness import graph_of, judge
from tests.judge.logs import cases
from tests.judge.memory import judge_in_memory
from tests.judge.sizes import IN_MEMORY, MOST_WALKED, cut, few
from tests.kernels.support import interpreted

SEARCH = settings(max_examples=many(12))


@SEARCH
@given(cases())
def test_the_outputs_are_what_the_pipeline_means(case):
    """At every time, however the input is cut into files and runs."""
    with tempfile.TemporaryDirectory() as folder:
        judge(case, Path(folder))


@SEARCH
@given(
    st.tuples(st.sampled_from([1, 1, 1, 2, 3]), st.booleans()).flatmap(lambda way: cases(nt=way[0], looping=way[1])),
    st.sampled_from([1, 3, 8]),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_shards_and_memory(case, shards, seed, streams):
    """Out of core, where all that lies between stages is put away, or not, from run to run, or streaming; on any number of shards."""
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed, streams=streams):
        judge(case, Path(folder))


@settings(SEARCH, max_examples=many(7))
@given(st.sampled_from([2, 2, 3]).flatmap(lambda nt: cases(nt=nt)))
def test_times_of_several_coordinates(case):
    """Ordered coordinate by coordinate, closed by boxes and by any other frontier that an input's progress says."""
    with tempfile.TemporaryDirectory() as folder:
        judge(case, Path(folder))


@settings(SEARCH, max_examples=many(7))
@given(st.sampled_from([1, 1, 2, 3]).flatmap(lambda nt: cases(nt=nt, looping=True)), MOST_WALKED)
def test_loops(case, most):
    """Recursive and mutually recursive, nested two deep, bounded or not, at every time of any number of coordinates."""
    with tempfile.TemporaryDirectory() as folder, few(most):
        judge(case, Path(folder))


@SEARCH
@given(
    st.sampled_from([1, 1, 2, 3]).flatmap(lambda nt: cases(nt=nt, looping=True)),
    *IN_MEMORY,
)
def test_loops_in_memory(case, most, shards, finely):
    """On several workers, and in many small steps."""
    with few(most):
        judge_in_memory(case, shards, finely=finely)


@settings(SEARCH, max_examples=many(5))
@given(st.booleans().flatmap(lambda looping: cases(looping=looping, fallible=True)))
def test_a_row_that_an_expression_fails_on_refuses_the_run(case):
    """Divisions and casts that fail on some row: the run is refused and leaves no trace."""
    with tempfile.TemporaryDirectory() as folder:
        judge(case, Path(folder))


@settings(SEARCH, max_examples=many(50))
@given(st.booleans().flatmap(lambda looping: cases(looping=looping)))
def test_generated_pipelines_are_valid(case):
    """A search among pipelines that are refused would find nothing."""
    assert graph_of(case).outputs


@settings(SEARCH, max_examples=many(4))
@given(st.sampled_from([1, 1, 2]).flatmap(lambda nt: cases(nt=nt, looping=True)), MOST_WALKED)
def test_kernels_run_as_python(case, most):
    """As a first run has them until the compiler is done: they wrap around and call each other as compiled ones do."""
    with tempfile.TemporaryDirectory() as folder, few(most), interpreted():
        judge(case, Path(folder))
