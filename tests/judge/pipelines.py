"""Random pipelines that are valid: chains of operators and loops over inputs, a few of them outputs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.judge.columns import KIND_OF, Columns
from tests.judge.loops import loops
from tests.judge.operators import Sketch, failing, operators
from tests.yaml_text import write_yaml

MOST_OPERATORS = 6


@st.composite
def pipelines(
    draw,
    inputs: dict[str, dict[str, str]],
    *,
    nt: int = 1,
    looping: bool = False,
    nested: bool = False,
    fallible: bool = False,
) -> str:
    """Give the text of a pipeline over declared inputs whose times have `nt` coordinates; its loops may all be `nested`."""
    sketch = Sketch(nt, deepest=3 if nested else 2, nested=nested)
    for name, columns in inputs.items():
        kinds = {column: KIND_OF[kind.removesuffix("?")] for column, kind in columns.items()}
        sketch.columns[name] = Columns(kinds, fallible)
    if fallible:
        source = draw(st.sampled_from(list(inputs)))
        operator, columns = draw(failing(sketch.columns[source]))
        sketch.add("f", {"from": source, "apply": [operator]}, columns)
    # Each of some is there or not: a number by itself would mostly be small.
    left = max(1, sum(draw(st.integers(0, 3)) > 0 for _ in range(MOST_OPERATORS)))
    wanted = []
    if looping:
        left //= 4 if nested else 2
        at = draw(st.integers(0, left))
    while left:
        here = draw(st.integers(1, left))
        left -= here
        if looping and left < at:
            wanted.append(draw(loops(sketch)))
            looping = draw(st.integers(0, 3)) == 3
        source = draw(st.sampled_from(list(reversed(sketch.columns))))
        columns, apply = sketch.columns[source], []
        for _ in range(here):
            operator, columns = draw(operators(columns, sketch))
            apply.append(operator)
        sketch.add("c", {"from": source, "apply": apply}, columns)
    if looping:
        wanted.append(draw(loops(sketch)))
    made = [name for name in sketch.columns if name not in inputs]
    wanted += [name for name in made if name not in wanted and (name == made[-1] or draw(st.integers(0, 2)) == 2)]
    return pipeline_text(inputs, sketch, wanted)


def pipeline_text(declared: dict[str, dict[str, str]], sketch: Sketch, outputs: list[str]) -> str:
    """Return the text of a pipeline with these outputs."""
    time = {} if sketch.nt == 1 else {"time": [f"t{at}" for at in range(sketch.nt)]}
    inputs = {name: {"path": f"in/{name}/", "columns": columns} | time for name, columns in declared.items()}
    written: dict[str, Any] = {}
    for name in outputs:
        plain = name.replace(".", "_")
        path = f"out/{plain}/"
        written[plain] = path if plain == name else {"path": path, "from": name}
    tree = {"dd": 1, "name": "judged", "inputs": inputs, "collections": sketch.collections, "outputs": written}
    return write_yaml(tree, default_flow_style=None, allow_unicode=True)
