"""Planned and unplanned dataflows side by side: the same answers at every time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.plan.generations import known_generations, plan
from tests.draws import many
from tests.judge.filters import filtered_cases
from tests.judge.harness import Meaning
from tests.judge.logs import cases
from tests.judge.memory import judge_graph


@settings(max_examples=many(25))
@given(
    st.one_of(
        st.sampled_from([1, 1, 2]).flatmap(filtered_cases),
        st.sampled_from([1, 2]).flatmap(lambda nt: cases(nt=nt, looping=nt == 1)),
    )
)
def test_filters_may_be_asked_elsewhere(case):
    """And the plan is the same each time that it is made of what a state remembers of it."""
    meaning = Meaning(case)
    planned, plain = plan(meaning.graph), plan(meaning.graph, moved=False)
    again = plan(meaning.graph, known_generations(planned.to_json()))
    assert (again.fingerprint, again.to_json()) == (planned.fingerprint, planned.to_json())
    assert planned.meanings == plain.meanings
    judge_graph(case, meaning, plain.graph)
    if planned.fingerprint != plain.fingerprint:
        judge_graph(case, meaning, planned.graph)
