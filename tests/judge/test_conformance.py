"""The conformance kit: given an operator and small random inputs, the reference and all executions of the engine agree.

An operator is judged in memory, out of core, as tasks, and as tasks that leave files, alone and by turns. Each step begins with new operators over the traces
that the step before left, as after a restart; one execution stays in memory throughout. `judge/operators.py` draws the operators.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ddcli.plan.operators.table import OPERATORS as TABLE
from tests.draws import many, some
from tests.judge.case import Arrival, Case, Run
from tests.judge.columns import KIND_OF, Columns
from tests.judge.logs import cuts, declared_columns, updates
from tests.judge.memory import judge_by_rounds, judge_in_memory
from tests.judge.operators import NEEDS, OPERATORS, Sketch, operators
from tests.judge.pipelines import pipeline_text
from tests.judge.rounds import WAYS
from tests.judge.sizes import AS_THEY_ARE, few
from tests.judge.test_operators import CHAINS, MISSING, Q, cut, whole
from tests.judge.test_random import SEARCH

NAMES = [name for name in OPERATORS if not name.endswith(" again") and name != "enter"]


def conforms(case: Case, seed: int) -> None:
    """Judge a case in all executions of the engine; raise AssertionError if one differs from the reference at any closed time."""
    chance = random.Random(seed)
    finely = chance.random() < 0.3
    with few(chance.choice([AS_THEY_ARE, 8, 0])):
        judge_in_memory(case, finely=finely)
        for ways in (*((way,) for way in WAYS), WAYS):
            with tempfile.TemporaryDirectory() as folder:
                judge_by_rounds(case, chance.choice([2, 3]), chance, Path(folder), finely=finely, ways=ways)


@st.composite
def operator_cases(draw, name: str) -> Case:
    """Draw an operator over two inputs, and perhaps one that reads its result."""
    nt = draw(st.sampled_from([1, 1, 1, 2]))
    types = {given_name: draw(declared_columns(looping=False)) for given_name in ("p", "q")}
    sketch, valid = Sketch(nt), draw(st.booleans())
    for given_name, columns in types.items():
        sketch.columns[given_name] = Columns({n: KIND_OF[kind.removesuffix("?")] for n, kind in columns.items()}, False)
    assume(name not in NEEDS or NEEDS[name](sketch.columns["p"], sketch))
    operator, columns = draw(OPERATORS[name](sketch.columns["p"], sketch))
    result = sketch.add("c", {"from": "p", "apply": [operator]}, columns)
    outputs = [result]
    if draw(st.booleans()):
        reader, columns = draw(operators(columns, sketch))
        outputs.append(sketch.add("c", {"from": result, "apply": [reader]}, columns))
    logs = {each: draw(updates(columns, nt, valid=valid, looping=False)) for each, columns in types.items()}
    return Case(pipeline_text(types, sketch, outputs), draw(cuts(logs, nt)))


def test_each_operator_is_drawn():
    missing = TABLE.keys() - OPERATORS.keys() - {"semijoin"}  # `antijoin` draws either
    assert missing == set(), "write its use in random pipelines, in OPERATORS of tests/judge/operators.py"


@pytest.mark.parametrize("name", [*some(NAMES)])
def test_an_operator_conforms(name):
    @settings(SEARCH, max_examples=many(6))
    @given(operator_cases(name), st.integers(0, 2**32))
    def judged(case, seed):
        conforms(case, seed)

    judged()


@pytest.mark.parametrize("name", [*some(CHAINS)])
def test_a_form_of_an_operator_conforms(name):
    """Over logs in which nothing is ever there less than zero times, and over retractions whose insertions come later."""
    conforms(Case(whole(name), cut(1, 3, 3, None)), 0)
    early = Run((Arrival("p", tuple(MISSING[:2])), Arrival("q", tuple(Q[:3]))), "2")
    conforms(Case(whole(name), (early, Run((Arrival("p", tuple(MISSING[2:])),)))), 1)
