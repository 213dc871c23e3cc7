"""Whatever is in a file, reading it gives a model or says what is wrong."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ddcli.errors import SpecErrors
from ddcli.plan.pipeline_file import parse_spec
from ddcli.spec.model import Spec
from tests.draws import YAML_PIECES

PIPELINES = [
    path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parents[2] / "pipelines").glob("*.yaml"))
]
WHOLE = """\
dd: 1
name: all
inputs:
  a: {path: a/, columns: {x: int64?, y: "decimal(12, 2)"}, time: [e, v], diff: ~, format: updates}
  b: b/
collections:
  c:
    from: [a, {from: b, apply: [distinct]}]
    apply:
      - filter: x > 0 and y = 'z'   # why
      - join: {with: b, as: r, on: {x: y}, how: left}
      - reduce:
          by: {k: "coalesce(x, 0)"}
          n: count(*)
      - &top {top_k: {by: [k], k: 3, order_by: [n desc]}}
      - flat_map: {function: "m:f", columns: {x: int64}, batch: true}
      - map:
          x: |
            x + 1
  d: {from: c, apply: [*top, negate, {concat: [a, b, l.w]}]}
  l:
    iterate:
      variables: {v: c, w: {from: b}}
      body:
        v: {from: [v, x], apply: [{enter: {at: k}}, {temporal_filter: {from: x, until: y}}]}
        w:
          iterate: {variables: {i: v, j: w}, body: {i: {from: [i, x]}, j: {from: i}}, result: i, max_rounds: {guard: 9}}
          apply: [{join_function: {function: "m:f", columns: {x: int64}}}]
        x: {from: w, apply: [{join: {with: v, on: [k]}}]}
      result: [v, w]
      max_rounds: 3
outputs: {c: c/, d: {path: d/, from: c}, l: {path: l/, from: l.v}}
tests:
  - {expect: {collection: c, unique: [k], always: k > 1}}
  - {name: t, time: 1, given: {a: [{k: 1}], b: f.csv}, expect: [{collection: l, changes: {columns: [k], rows: [[1]]}}]}
  - name: u
    steps: [{expect: {collection: c, contents: [], at: 3, tolerance: 0.5, accepted: {k: [1]}, not_null: [k], non_negative: true}}]
"""


@st.composite
def mutilated(draw):
    """Draw a pipeline file with pieces cut out, put in, doubled and moved."""
    text = draw(st.sampled_from([*PIPELINES, WHOLE]))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        put = draw(
            st.one_of(
                st.sampled_from([*YAML_PIECES, "\ud800"]),
                st.just(""),
                st.just(text[start:end] * 2),
                st.text(max_size=5),
            )
        )
        text = text[:start] + put + text[end:]
    return text


def read(text):
    """Read a file; what is wrong has a problem, and a place in the file."""
    wrong: SpecErrors | None = None
    try:
        assert isinstance(parse_spec(text, "p.yaml"), Spec)
    except SpecErrors as found:
        wrong = found
    if wrong:
        assert wrong.errors
        assert wrong.render()
        assert all(error.problem for error in wrong.errors)
        assert all(error.span.line >= 1 and error.span.column >= 1 for error in wrong.errors if error.span)


def test_the_whole_is_right():
    assert isinstance(parse_spec(WHOLE, "p.yaml"), Spec)


@given(mutilated())
def test_mutilated_files(text):
    read(text)


@given(st.text(st.sampled_from(sorted({piece[0] for piece in YAML_PIECES}) + list("ab1 \n:-"))))
def test_noise(text):
    read(text)


def test_cut_off_files():
    for end in range(0, len(WHOLE), 7):
        read(WHOLE[:end])
