"""Planned and unplanned dataflows side by side: the same answers at every time.

What the plan says of state, against what the engine asks for.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.circuit.graph import assemble
from ddcli.circuit.operators import CircuitContext
from ddcli.engine.pool import Pool
from ddcli.engine.scope import Scope
from ddcli.engine.times import LEAST, Frontier
from ddcli.engine.trace.spine import Trace
from ddcli.plan.changes import WAITING
from ddcli.plan.generations import known_generations, plan
from ddcli.plan.optimizer import delta_joins, sharing
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import compact_state
from tests.draws import many
from tests.judge.case import Arrival, Case, Run
from tests.judge.filters import filtered_cases, kept_cases, partitioned_cases, shared_cases
from tests.judge.harness import Meaning, graph_of, judge
from tests.judge.logs import cases
from tests.judge.memory import judge_graph
from tests.judge.sizes import cut
from tests.judge.test_changes import edited, judge_changes
from tests.judge.test_random import SEARCH
from tests.secret import SECRET


@settings(max_examples=many(30))
@given(
    st.one_of(
        st.sampled_from([1, 1, 2]).flatmap(filtered_cases),
        st.sampled_from([1, 2]).flatmap(lambda nt: cases(nt=nt, looping=nt == 1)),
    ),
    st.sampled_from([0, 0, 1, 2]),
)
def test_a_planned_dataflow_means_what_is_written(case, wrong):
    """Whatever is known of the sizes of inputs, which are mostly wrong here. And the plan is the same each time that it is made of what a state remembers."""
    meaning = Meaning(case)

    def choices(node, _):
        return int(node.fingerprint, 16) % (wrong + 1) == 0

    planned, plain = plan(meaning.graph, choices=choices), plan(meaning.graph, choices=None)
    again = plan(meaning.graph, known_generations(planned.to_json()), lambda *_: wrong > 0)
    assert (again.fingerprint, again.to_json()) == (planned.fingerprint, planned.to_json())
    assert planned.meanings == plain.meanings
    judge_graph(case, meaning, plain.graph)
    if planned.fingerprint != plain.fingerprint:
        judge_graph(case, meaning, planned.graph)


@settings(max_examples=many(40))
@given(st.sampled_from([1, 1, 2]).flatmap(partitioned_cases))
def test_what_is_asked_above_an_operator_of_groups_means_what_is_written(case):
    """Of the key it may be asked below it, of both sides if it has two; of anything else it may not."""
    meaning = Meaning(case)
    planned, plain = plan(meaning.graph), plan(meaning.graph, choices=None)
    judge_graph(case, meaning, plain.graph)
    if planned.fingerprint != plain.fingerprint:
        judge_graph(case, meaning, planned.graph)


@settings(max_examples=many(60))
@given(st.sampled_from([1, 1, 2]).flatmap(shared_cases), st.booleans())
def test_joins_whose_sides_are_shared_mean_what_is_written(case, wrong):
    """A condition that does not sink, as others read the side, too, is still asked; and a key is there once only where no join has made it several."""
    meaning = Meaning(case)
    planned, plain = plan(meaning.graph, choices=lambda *_: wrong), plan(meaning.graph, choices=None)
    judge_graph(case, meaning, plain.graph)
    if planned.fingerprint != plain.fingerprint:
        judge_graph(case, meaning, planned.graph)


@settings(max_examples=many(4))
@given(filtered_cases())
def test_runs_go_on_with_a_plan_that_was_chosen_otherwise(case):
    """Of the sizes that count for the first run, none counts later."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        much = iter([0, *[1 << 60] * 100])

        def options():
            patch.setattr(delta_joins, "MUCH", next(much))
            return {}

        judge(case, Path(folder), options)


@settings(max_examples=many(80))
@given(st.sampled_from([1, 1, 2]).flatmap(kept_cases), st.integers(0, 3), st.integers(1, 2))
def test_joins_of_what_is_kept_once_mean_what_is_written(case, wrong, shards):
    """Whatever share of the rows is expected to pass each filter. And the plan is the same each time that it is made of what a state remembers."""
    meaning = Meaning(case)

    def share(side):
        return 1.0 if wrong == 3 else int(side.identity, 16) % (wrong + 2) / (wrong + 1)

    planned, plain = plan(meaning.graph, share=share), plan(meaning.graph, share=lambda _: 0.0)
    again = plan(meaning.graph, known_generations(planned.to_json()), share=lambda _: float(wrong % 2))
    assert (again.fingerprint, again.to_json()) == (planned.fingerprint, planned.to_json())
    assert planned.meanings == plain.meanings
    assert not any(generation.wholes for generation in plain.generations)
    if planned.fingerprint != plain.fingerprint:
        judge_graph(case, meaning, planned.graph, shards)


ALWAYS, NEVER = (0.1, 0.0), (1 << 60, 2.0)


def kept_otherwise(patch, path, seed):
    """Return options of runs for which other shares of rows count from run to run; before some the state is compacted."""
    chance = random.Random(seed)

    def options():
        often, most = chance.choice([ALWAYS, ALWAYS, NEVER, (1, 0.5), (2, 0.5)])
        patch.setattr(sharing, "OFTEN", often)
        patch.setattr(sharing, "MOST", most)
        for directory in path.glob("*/.dd/judged") if chance.random() < 0.3 else ():
            compact_state(directory)
        return {}

    return options


@settings(max_examples=many(8))
@given(st.sampled_from([1, 1, 2]).flatmap(kept_cases), st.sampled_from([1, 2, 3]), st.integers(0, 2**32))
def test_runs_go_on_with_what_was_kept_once(case, shards, seed):
    """Of the shares that count for the first run, none counts later; in memory or out of core, and the state compacted between."""
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed), pytest.MonkeyPatch.context() as patch:
        judge(case, Path(folder), kept_otherwise(patch, Path(folder), seed))


@settings(max_examples=many(8))
@given(edited(kept_cases), st.sampled_from([1, 2]), st.integers(0, 2**32))
def test_an_edited_pipeline_goes_on_with_what_was_kept_once(found, shards, seed):
    """And what is new in it joins that, or is kept apart."""
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed), pytest.MonkeyPatch.context() as patch:
        judge_changes(*found, Path(folder), kept_otherwise(patch, Path(folder), seed))


JOINED = """\
dd: 1
name: judged
inputs:
  p: {path: in/p/, columns: {k: int64, v: int64}}
  q: {path: in/q/, columns: {k: int64, w: int64}}
outputs: {c: out/c/}
collections:
  c:
    from: p
    apply:
    - join: {with: q, 'on': [k]}
"""
ALTERNATIVES = (
    JOINED
    + """\
    - filter: (v = 1 and w = 2) or (v = 3 and w = 4)
"""
)


def test_each_side_is_asked_for_what_some_alternative_demands():
    """Not for what only one of them does."""
    left = tuple(((k, v), (0,), 1) for k in range(3) for v in range(5))
    right = tuple(((k, w), (1,), 1) for k in range(3) for w in range(5))
    case = Case(ALTERNATIVES, (Run((Arrival("p", left), Arrival("q", right))),))
    meaning = Meaning(case)
    planned = plan(meaning.graph)
    assert planned.fingerprint != plan(meaning.graph, choices=None).fingerprint
    judge_graph(case, meaning, planned.graph)


@pytest.mark.parametrize("bare", ["1 > 2", "null = 1", "1 < 2"])
def test_what_is_asked_of_no_column_is_asked(bare):
    """Where the other conditions sink without it."""
    rows = tuple(((k, v), (0,), 1) for k in range(2) for v in range(2))
    text = ALTERNATIVES.replace("(v = 1 and w = 2) or (v = 3 and w = 4)", f"v = 1 and {bare}")
    case = Case(text, (Run((Arrival("p", rows), Arrival("q", rows))),))
    meaning = Meaning(case)
    judge_graph(case, meaning, plan(meaning.graph).graph)


TWICE = (
    JOINED.replace("v: int64", "a: int64, v: int64")
    + """\
    - join: {with: q, as: r, 'on': [k]}
"""
)
PADDED = (
    JOINED.replace("[k]}", "[k], how: left, as: r}")
    + """\
    - join: {with: q, as: s, 'on': [k]}
    - filter: r.w is not null
"""
)


@pytest.mark.parametrize("text", [TWICE, PADDED])
def test_the_key_of_joins_by_the_same_one_stays_what_it_is(text):
    """Also where the second join comes first, and where the first is an inner one by then."""
    values = range(1, 3) if text == PADDED else [(a, v) for a in (7, 8) for v in (3, 4)]
    left = tuple(((k, *(v if isinstance(v, tuple) else (v,))), (0,), 1) for k in range(2) for v in values)
    right = tuple(((k, w), (0,), 2) for k in range(2) for w in (5, 6))
    case = Case(text, (Run((Arrival("p", left), Arrival("q", right))),))
    meaning = Meaning(case)
    for wanted in (True, False):
        judge_graph(case, meaning, plan(meaning.graph, choices=lambda *_, wanted=wanted: wanted).graph)


LOOKED_UP = (
    JOINED
    + """\
    - join: {with: p, as: r, 'on': {w: k}}
"""
)


def test_a_state_that_is_computed_anew_is_planned_anew(tmp_path, monkeypatch):
    """And a run that is not, goes on with the order of joins that it has."""
    rows = tuple(((k, v), (0,), 1) for k in range(3) for v in range(3))
    more = tuple(((k, v), (1,), 1) for k in range(3) for v in range(3))
    case = Case(LOOKED_UP, tuple(Run((Arrival("p", each), Arrival("q", each))) for each in (rows, more, ())))
    found, sizes = [], iter([1 << 60, 0, 0, 0])

    def options():
        found.extend(read_newest(path).plan for path in tmp_path.glob("cut/.dd/judged"))
        monkeypatch.setattr(delta_joins, "MUCH", next(sizes))
        return {"refresh": frozenset()} if len(found) == 2 else {}

    judge(case, tmp_path, options)
    assert found[0] == found[1] != read_newest(tmp_path / "cut/.dd/judged").plan


class Asked:
    """Gives empty traces, and remembers whose."""

    def __init__(self):
        self.identities = set()

    def trace(self, identity, key, value, nt, shard=0, by=None):
        self.identities.add(identity)
        return Trace(key.width, value.width, nt, since=Frontier([(LEAST,) * nt]))


@SEARCH
@given(st.tuples(st.integers(1, 3), st.booleans()).flatmap(lambda kind: cases(nt=kind[0], looping=kind[1])))
def test_the_plan_knows_which_nodes_keep_state(case):
    """A node that it forgot would lose its state with the next change of the file."""
    graph, nt = plan(graph_of(case)).graph, len(case.times)
    asked = Asked()
    assemble(graph, Scope(nt), CircuitContext(asked, Pool(SECRET), lambda label, updates: None, case.time_types))
    told = {node.fingerprint for node in graph.nodes if node.keeps_state(nt)}
    kept = {identity.removesuffix(WAITING) for identity in asked.identities}
    wrong = {type(node).__name__ for node in graph.nodes if node.fingerprint in told ^ kept}
    assert told == kept, f"`keeps_state` is wrong in {', '.join(sorted(wrong))}"
