"""Cases that were wrong once, as the search printed them when they had been made small."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.judge.case import Arrival, Case, Run
from tests.judge.harness import judge
from tests.judge.memory import judge_in_memory
from tests.judge.sizes import cut

HEAD = (
    "dd: 1\nname: found\ninputs:\n  p: {path: in/p/, columns: {k: int64, v: 'int64', s: string, m: 'decimal(6, 2)'}}\n"
)
ONE, TWO, THREE = (1, 1, "a", Decimal("1.50")), (1, 2, "b", Decimal("0.00")), (1, 3, "", Decimal("1.50"))
SPREAD = "{function: 'tests.judge.functions:spread', columns: {a: int64}}"

FOUND = {
    # numpy 2.4 negates wrong rows of a lane that is strided by 64 bytes.
    "negated rows of eight lanes": (
        "[{extend: {a: v, b: v, c: v}}, {drop: [m]}, negate]",
        [ONE, TWO, THREE],
        [1, 1, 2],
    ),
    "a count that reads no column": ("[{reduce: {by: [], n: count(*)}}]", [ONE, TWO], [1, 1]),
    "an aggregate of what is grouped by": ("[{reduce: {by: [k], t: sum(k), hi: max(k)}}]", [ONE, TWO], [1, 1]),
    "no text that is there": ("[{reduce: {by: [k], lo: min(s)}}]", [ONE, TWO], [-1, -1]),
    "no median of what is not there": ("[{reduce: {by: [k], m: median(v)}}]", [ONE], [-1]),
    "no list of what is not there": ("[{reduce: {by: [k], l: array_agg(v order by v)}}]", [ONE], [-1]),
    "ties of texts": ("[{top_k: {k: 2, order_by: [k]}}]", [ONE, TWO, THREE], [1, 1, 1]),
    "a mean of none on balance": ("[{reduce: {by: [k], a: avg(v)}}]", [ONE, THREE], [1, -1]),
    "a mean of decimals that are there less than once": ("[{reduce: {by: [k], a: avg(m)}}]", [ONE], [-1]),
}


def once(apply: str, records: list, diffs: list) -> Case:
    """Return a case of one run over one file."""
    text = f"{HEAD}collections:\n  c: {{from: p, apply: {apply}}}\noutputs: {{c: out/c/}}\n"
    updates = tuple((record, (0,), diff) for record, diff in zip(records, diffs, strict=True))
    return Case(text, (Run((Arrival("p", updates),)),))


@pytest.mark.parametrize("name", FOUND)
def test_it_is_right_now(name, tmp_path):
    """Found by the search, and mended."""
    judge(once(*FOUND[name]), tmp_path)


def test_a_python_reducer_whose_group_is_emptied(tmp_path):
    """The one group that a run touches is left without rows, so there are none to call the function with."""
    apply = f"[{{reduce: {{by: [k], {SPREAD[1:-1]}}}}}]"
    case = once(apply, [ONE], [1])
    judge(Case(case.text, (*case.runs, Run((Arrival("p", ((ONE, (1,), -1),)),)))), tmp_path)


def test_a_group_whose_change_is_still_to_come_is_looked_at_where_it_goes_on():
    """Nothing comes at (1, 2, 1), but there two times meet: at round 1 the record is gone from where it was at round 0."""
    text = """\
dd: 1
name: found
inputs: {p: {path: in/p/, time: [x, y, z], columns: {k: int64, v: int64}}}
collections:
  c:
    iterate:
      variables: {x: p}
      body:
        once: {from: x, apply: [distinct]}
        x: {from: x, apply: [{map: {k: '0', v: v}}]}
      result: once
outputs: {c: out/c/}
"""
    updates = (((1, 1), (0, 0, 1), 1), ((1, 1), (1, 2, 0), -2))
    judge_in_memory(Case(text, (Run((Arrival("p", updates),)),)), finely=True)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_join_of_two_coordinates_returns_is_brought_together(seed, tmp_path):
    """It waits for its time in shards by all of its columns: without those by which it was filtered, equal records of an output were in several, and written as often."""
    text = """\
dd: 1
name: found
inputs:
  p: {path: in/p/, time: [x, y], columns: {k: int64, v: int64}}
  q: {path: in/q/, time: [x, y], columns: {k: int64, w: int64}}
collections:
  c: {from: p, apply: [{join: {with: q, 'on': [k]}}, {filter: v <> w}, {map: {k: k}}]}
outputs: {c: out/c/}
"""
    left = tuple(((k, 9), (0, 0), 1) for k in range(3))
    right = tuple(((k, w), (0, 0), 1) for k in range(3) for w in range(5))
    with cut(2, seed):
        judge(Case(text, (Run((Arrival("p", left), Arrival("q", right))),)), tmp_path)
