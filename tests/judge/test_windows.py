"""Windows against their definition: every kind of frame over random logs, with ties, nulls, retractions, at any times, in loops."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import many
from tests.judge.case import Case
from tests.judge.columns import KIND_OF, VALUES, Columns
from tests.judge.harness import judge
from tests.judge.logs import cuts, updates
from tests.judge.memory import judge_in_memory
from tests.judge.operators import Sketch
from tests.judge.pipelines import pipeline_text
from tests.judge.sizes import AS_THEY_ARE, IN_MEMORY, few
from tests.judge.windows import window

KEYS = ["int64", "int64?", "int32?", "string?", "date?", "uint64?", "float64?", "decimal(6, 2)?", "decimal(30, 1)?"]
KINDS = [kind for kind in VALUES if not kind.startswith(("list", "struct"))]


@st.composite
def windowed(draw, nt: int = 1, *, looping: bool = False) -> Case:
    """Give a window or two over one input, or over what a loop's variable holds, and what reads them."""
    columns = {"k": draw(st.sampled_from(["int64", "int64?", "string?"])), "o": draw(st.sampled_from(KEYS))}
    if draw(st.booleans()):
        columns["x"] = draw(st.sampled_from(KINDS)) + draw(st.sampled_from(["", "?"]))
    known = Columns({name: KIND_OF[kind.removesuffix("?")] for name, kind in columns.items()})
    log = draw(updates(columns, nt, valid=draw(st.booleans()), looping=False))
    sketch = Sketch(nt)
    first, after = draw(window(known))
    if looping:
        # Each round numbers what the last one left, and takes away a part of it: some rounds until nothing is.
        number = {"window": first["window"] | {"columns": {"round": "row_number()"} | first["window"]["columns"]}}
        kept = {"filter": draw(st.sampled_from(["round > 1", "round % 2 = 0", "round < 3"]))}
        body = {"left": {"from": "left", "apply": [number, kept, {"project": list(columns)}]}}
        loop = {
            "iterate": {
                "variables": {"left": "p"},
                "body": body,
                "result": "left",
                "max_rounds": draw(st.integers(1, 4)),
            }
        }
        sketch.add("loop", loop, known)
        chain: dict[str, Any] = {"from": next(iter(sketch.collections)), "apply": [first]}
    else:
        chain = {"from": "p", "apply": [first]}
        if draw(st.integers(0, 2)) == 2:
            names = list(after.kinds)
            chain["apply"].append(
                draw(
                    st.sampled_from(
                        [{"project": names[-2:]}, {"count": {"by": names[-1:], "as": "c"}}, draw(window(after))[0]]
                    )
                )
            )
    sketch.add("c", chain, replace(after))
    names = list(sketch.collections)
    return Case(pipeline_text({"p": columns}, sketch, names), draw(cuts({"p": log}, nt)))


@settings(max_examples=many(25))
@given(windowed(), st.sampled_from([AS_THEY_ARE, 2]))
def test_windows_are_what_they_mean(case, most):
    """At every time, however the input is cut into files and runs."""
    with tempfile.TemporaryDirectory() as folder, few(most):
        judge(case, Path(folder))


@settings(max_examples=many(40))
@given(windowed(), *IN_MEMORY)
def test_windows_in_memory(case, most, shards, finely):
    """On several workers, and in many small steps."""
    with few(most):
        judge_in_memory(case, shards, finely=finely)


@settings(max_examples=many(20))
@given(
    st.sampled_from([1, 2, 2, 3]).flatmap(lambda nt: windowed(nt, looping=nt % 2 == 1)),
    st.integers(1, 2),
    st.booleans(),
)
def test_windows_at_times_of_several_coordinates_and_in_loops(case, shards, finely):
    """Where times have no order, and where what a round numbers is what the next one reads."""
    judge_in_memory(case, shards, finely=finely)
