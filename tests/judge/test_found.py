"""Cases that were wrong once, as the search printed them when they had been made small."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.judge.case import Arrival, Case, Run
from tests.judge.harness import judge
from tests.judge.memory import judge_in_memory

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


LEFT_FOR_LATER = Case(
    """\
dd: 1
name: judged
inputs:
  p:
    path: in/p/
    columns: {k: 'int64?', v: 'int64?'}
    time: &id001 [t0, t1, t2]
  q:
    path: in/q/
    columns: {k: int64, v: int64}
    time: *id001
collections:
  l16:
    iterate:
      variables:
        x1:
          from: q
          apply:
          - map: {v: v, k: k}
        y2:
          from: q
          apply:
          - map: {k: v, v: v}
      body:
        i3:
          from: y2
          apply:
          - map: {k: k, v: v}
          - distinct
        i5:
          from: x1
          apply:
          - map: {k: v, v: k}
          - distinct
        l9:
          iterate:
            variables: {x4: i3, y6: i5}
            body:
              x4:
                from: x4
                apply:
                - join:
                    with: y6
                    as: r7
                    'on': {v: k}
                - map: {k: k, v: r7.v}
                - {concat: i3}
                - distinct
              y6:
                from: y6
                apply:
                - join:
                    with: y6
                    as: r8
                    'on': {v: k}
                - map: {k: k, v: r8.v}
                - concat:
                    from: i5
                    apply:
                    - enter: {at: 'coalesce((2) % 5, 0)'}
                - distinct
            result: y6
        i10:
          from: i3
          apply:
          - map: {a: v, b: k}
          - distinct
        i11:
          from: i10
          apply:
          - map: {n: b, l: a}
          - distinct
        l15:
          iterate:
            variables: {b12: i11}
            body:
              a14:
                from: b12
                apply:
                - join:
                    with: i10
                    as: r13
                    'on': {n: a}
                - map: {n: b, l: l + 1}
                - concat:
                    from: i11
                    apply:
                    - enter: {at: 'coalesce((day(date ''2024-02-28'')) % 5, 0)'}
              b12:
                from: a14
                apply:
                - top_k:
                    by: [n]
                    k: 1
                    order_by: [l]
            result: [a14]
        x1:
          from: l9
          apply:
          - reduce:
              by: []
              a: min(v)
          - negate
          - map: {v: a, k: '-1'}
          - distinct
        y2:
          from: i3
          apply:
          - {inspect: seen}
          - map: {k: '0', v: v}
          - distinct
      result: i10
      max_rounds: 4
  c17:
    from: q
    apply:
    - join_function:
        function: tests.judge.functions:later_of_3
        columns: {k: 'int64?', n: int64}
  c18:
    from: p
    apply:
    - {threshold: count - 1}
outputs: {l16: out/l16/, c18: out/c18/}
""",
    (
        Run(
            (
                Arrival(
                    "p",
                    (
                        ((4, None), (1, 2, 1), -2),
                        ((4, 3), (1, 0, 1), -2),
                        ((None, None), (0, 2, 2), -2),
                        ((1, 1), (2, 2, 0), 2),
                    ),
                ),
                Arrival(
                    "p",
                    (
                        ((None, None), (1, 2, 0), 1),
                        ((0, 2), (2, 0, 2), 2),
                        ((None, None), (0, 1, 2), 1),
                        ((None, None), (0, 1, 1), 2),
                    ),
                ),
                Arrival(
                    "q",
                    (
                        ((4, 2), (0, 2, 2), -1),
                        ((6, 7), (0, 0, 0), 1),
                        ((4, 1), (0, 0, 1), 1),
                    ),
                ),
                Arrival(
                    "q",
                    (
                        ((2, 1), (1, 1, 0), 1),
                        ((1, 2), (1, 2, 0), -2),
                        ((3, 1), (1, 2, 0), -2),
                        ((1, 0), (2, 2, 2), 2),
                        ((4, 5), (2, 2, 2), -1),
                        ((7, 0), (1, 1, 1), -2),
                        ((2, 3), (2, 0, 2), 2),
                        ((7, 4), (2, 1, 1), -1),
                    ),
                ),
            ),
            until=None,
            progress=(
                (
                    "q",
                    (
                        (-9223372036854775808, -9223372036854775808, 2),
                        (-9223372036854775808, 3, -9223372036854775808),
                        (0, -9223372036854775808, -9223372036854775808),
                    ),
                ),
                (
                    "p",
                    (
                        (-9223372036854775808, -9223372036854775808, 3),
                        (-9223372036854775808, 2, -9223372036854775808),
                        (1, -9223372036854775808, 1),
                        (1, 0, -9223372036854775808),
                        (2, -9223372036854775808, -9223372036854775808),
                    ),
                ),
            ),
        ),
    ),
)


def test_a_group_whose_change_is_still_to_come_is_looked_at_where_it_goes_on():
    """With product times, in a loop in a loop, a time after the other."""
    judge_in_memory(LEFT_FOR_LATER, 1, finely=True)
