"""As-of joins against their definition: over random logs, with ties, nulls, retractions, at any times, in loops."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import many
from tests.judge.case import Arrival, Case, Run
from tests.judge.columns import KIND_OF, VALUES, Columns
from tests.judge.harness import judge
from tests.judge.logs import cuts, updates
from tests.judge.memory import judge_in_memory
from tests.judge.operators import Sketch, asof_join
from tests.judge.pipelines import pipeline_text
from tests.judge.sizes import IN_MEMORY, few

KINDS = [kind for kind in VALUES if not kind.startswith(("list", "struct"))]
ORDERED = [kind for kind in KINDS if kind != "string"]


@st.composite
def asof(draw, nt: int = 1, *, looping: bool = False) -> Case:
    """Give an as-of join of two inputs, or of one with what a loop's variable holds, and what reads it."""
    null = st.sampled_from(["", "?"])
    key, at = draw(st.sampled_from(["int64", "string", "int32"])), draw(st.sampled_from(ORDERED))
    inputs, logs = {}, {}
    sketch = Sketch(nt)
    for name in ("q", "p"):
        columns = {"k": key + draw(null), "t": at + draw(null)}
        if draw(st.booleans()):
            columns["x"] = draw(st.sampled_from(["string", draw(st.sampled_from(KINDS))])) + draw(null)
        inputs[name] = columns
        logs[name] = draw(updates(columns, nt, valid=draw(st.booleans()), looping=False))
        sketch.columns[name] = Columns({each: KIND_OF[kind.removesuffix("?")] for each, kind in columns.items()})
    if looping:
        # Each round joins what the last one left with what is there, so that what has no partner goes, or what has one.
        joined, _ = draw(asof_join(sketch.columns["p"], sketch))
        if not isinstance(joined, dict):
            joined = {"filter": "true"}
        chain = [joined, {"project": list(inputs["p"])}]
        body = {"left": {"from": "left", "apply": [*chain, draw(st.sampled_from(["distinct", {"filter": "true"}]))]}}
        own = draw(st.booleans())
        if own and "asof_join" in joined and joined["asof_join"]["with"] == "p":
            joined["asof_join"]["with"] = "left"
        loop = {"iterate": {"variables": {"left": "p"}, "body": body, "result": "left", "max_rounds": 3}}
        sketch.add("c", loop, sketch.columns["p"])
    else:
        joined, columns = draw(asof_join(sketch.columns["p"], sketch))
        apply: list[Any] = [joined]
        if draw(st.integers(0, 2)) == 2:
            names = list(columns.kinds)
            apply.append(draw(st.sampled_from([{"project": names[-1:]}, {"project": names[:1]}, "distinct"])))
        sketch.add("c", {"from": "p", "apply": apply}, columns)
    return Case(pipeline_text(inputs, sketch, list(sketch.collections)), draw(cuts(logs, nt)))


@settings(max_examples=many(25))
@given(asof())
def test_asof_joins_are_what_they_mean(case):
    """At every time, however the inputs are cut into files and runs."""
    with tempfile.TemporaryDirectory() as folder:
        judge(case, Path(folder))


@settings(max_examples=many(60))
@given(asof(), *IN_MEMORY)
def test_asof_joins_in_memory(case, most, shards, finely):
    """On several workers, and in many small steps."""
    with few(most):
        judge_in_memory(case, shards, finely=finely)


@settings(max_examples=many(25))
@given(
    st.sampled_from([1, 2, 2, 3]).flatmap(lambda nt: asof(nt, looping=nt % 2 == 1)), st.integers(1, 2), st.booleans()
)
def test_asof_joins_at_times_of_several_coordinates_and_in_loops(case, shards, finely):
    """Where times have no order, and where what a round joins is what the next one reads."""
    judge_in_memory(case, shards, finely=finely)


def test_a_changed_place_without_rows_before_and_after_moves_nothing():
    """What is nearest there changes at another place, whose change moves the left rows of both."""
    sketch = Sketch(1)
    joined = {"asof_join": {"with": "p", "as": "r", "at": "t", "how": "left"}}
    sketch.collections["c"] = {"from": "p", "apply": [joined]}
    text = pipeline_text({"p": {"k": "int64", "t": "date"}}, sketch, ["c"])
    early, between, late = date(1969, 12, 31), date(2024, 2, 28), date(2024, 3, 1)
    rows = (
        ((3, early), (0,), 1),
        ((2, late), (0,), -1),
        ((1, late), (1,), -2),
        ((3, between), (1,), 1),
    )
    case = Case(text, (Run((Arrival("p", rows),), "2", ()),), "int64")
    judge_in_memory(case, 1, finely=False)
