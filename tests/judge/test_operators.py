"""Each operator once, over logs that have a bit of everything: nulls, retractions, several times a run, runs with nothing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from tests.draws import some
from tests.judge.case import Arrival, Case, Run
from tests.judge.harness import judge

HEAD = """\
dd: 1
name: operators
inputs:
  p: {path: in/p/, columns: {k: 'int64?', v: 'int32?', s: 'string?'}}
  q: {path: in/q/, columns: {k: int64, x: 'float64?', m: 'decimal(6, 2)', d: 'date?', b: 'bool?'}}
collections:
  doubled: {from: [p, p], apply: [{filter: k < 3}]}
"""
inf, nan = float("inf"), float("nan")
LEAP, EARLY = dt.date(2024, 2, 29), dt.date(1969, 12, 31)
P = [((1, 10, "a"), (0,), 1), ((1, 20, "a"), (0,), 2), ((2, None, "b"), (1,), 1), ((None, 5, None), (1,), 1)]
P += [((1, 20, "a"), (2,), -1), ((3, 7, ""), (2,), 1), ((2, None, "b"), (3,), -1), ((2, 1, "é"), (3,), 1)]
P += [((1, 10, "a"), (5,), -1), ((1, 20, "a"), (5,), -1), ((3, 7, ""), (5,), 1), ((4, 1, "a,b"), (5,), 1)]
Q = [((1, 0.5, Decimal("1.50"), LEAP, True), (0,), 1), ((2, nan, Decimal("-2.25"), None, False), (1,), 1)]
Q += [((2, -0.0, Decimal("1.50"), EARLY, None), (1,), 2), ((1, 0.5, Decimal("1.50"), LEAP, True), (3,), -1)]
Q += [((5, inf, Decimal("0.00"), LEAP, False), (3,), 1), ((1, None, Decimal("0.00"), EARLY, True), (4,), 1)]
# One retraction comes before its insertion, and one never gets any.
MISSING = [((1, 10, "a"), (0,), -1), ((2, 8, "b"), (1,), -1), ((1, 10, "a"), (3,), 3), ((2, 9, "b"), (3,), 1)]

CHAINS = {
    "map": "p: [{map: {n: k + 1, t: \"coalesce(s, 'none')\"}}]",
    "extend": "p: [{extend: {v: k * 2, w: v is null}}]",
    "project": "p: [{project: [s, k]}]",
    "drop": "p: [{drop: [v]}]",
    "rename": "p: [{rename: {k: v, v: k}}]",
    "filter": "p: [{filter: \"k > 1 or s = 'a'\"}]",
    "flat_map unnest": "p: [{flat_map: {word: \"unnest(split(s, ','))\"}}]",
    "flat_map generate_series": "p: [{flat_map: {n: 'generate_series(0, k)'}}]",
    "flat_map python": "p: [{flat_map: {function: 'tests.judge.functions:twice', columns: {k: 'int64?', n: int64}}}]",
    "flat_map python in batches": "p: [{flat_map: {function: 'tests.judge.functions:twice_in_batches',"
    " columns: {k: 'int64?', n: int64}, batch: true}}]",
    "explode": "p: [{explode: 'coalesce(k, 0) - 2'}]",
    "negate": "p: [negate]",
    "concat": "p: [{concat: {from: p, apply: [negate, {filter: k = 1}]}}, {concat: doubled}]",
    "consolidate": "doubled: [consolidate]",
    "arrange": "p: [{arrange: {by: [k]}}]",
    "inspect": "p: [{inspect: seen}]",
    "join": "p: [{join: {with: q, on: [k]}}]",
    "join left": "p: [{join: {with: q, on: [k], how: left}}]",
    "join right": "p: [{join: {with: q, on: [k], how: right}}]",
    "join full": "p: [{join: {with: q, on: [k], how: full}}]",
    "join on two keys": "p: [{join: {with: doubled, as: other, on: [k, s], how: full}}]",
    "join with itself": "p: [{join: {with: p, as: up, on: {v: v}}}, {map: {a: k, b: up.k}}]",
    "joins that share an arrangement": "p: [{join: {with: q, on: [k]}}, {join: {with: q, as: r, on: {v: k}, how: left}}]",
    "asof_join": "p: [{asof_join: {with: q, on: [k], at: {v: k}, how: left}}]",
    "asof_join of dates": "q: [{asof_join: {with: q, as: next, at: d, direction: forward, strict: true}}]",
    "asof_join with itself": "p: [{asof_join: {with: p, as: last, on: [s], at: k, strict: true, how: left}}]",
    "semijoin": "p: [{semijoin: {with: q, on: [k]}}]",
    "antijoin": "p: [{antijoin: {with: q, on: [k]}}]",
    "reduce sums": "q: [{reduce: {by: [k], n: count(*), c: count(x), m: sum(m), k2: sum(k), a: avg(k)}}]",
    "reduce nullable sums": "p: [{reduce: {by: [s], n: count(v), t: sum(v), a: avg(v)}}]",
    "reduce floats": "q: [{reduce: {by: [k], t: sum(x), a: avg(x), lo: min(x), hi: max(x)}}]",
    "reduce avg of decimals": "q: [{reduce: {by: [k], a: avg(m)}}]",
    "reduce extremes": "p: [{reduce: {by: [k], lo: min(v), hi: max(v), t: max(s)}}]",
    "reduce extremes of dates": "q: [{reduce: {by: [k], lo: min(d), hi: max(d), n: count(*)}}]",
    "reduce first and last": "p: [{reduce: {by: [k], f: first(s order by v), l: last(v order by s desc)}}]",
    "reduce bools": "q: [{reduce: {by: [k], e: bool_and(b), a: bool_or(b)}}]",
    "reduce distinct": "p: [{reduce: {by: [k], n: count(distinct s), t: sum(distinct v)}}]",
    "reduce all": "p: [{reduce: {n: count(*), m: median(v), w: mode(s)}}]",
    "reduce by expression": "p: [{reduce: {by: {odd: k % 2}, n: count(*) + 1, r: 'max(v) - min(v)'}}]",
    "reduce lists": "p: [{reduce: {by: [k], l: 'array_agg(v order by s, v)', t: \"string_agg(s, '+' order by v)\"}}]",
    "reduce python": "p: [{reduce: {by: [k], function: 'tests.judge.functions:spread', columns: {n: int64}}}]",
    "count": "p: [count]",
    "count by": "p: [{count: {by: [s], as: n}}]",
    "distinct": "doubled: [distinct]",
    "threshold": "doubled: [{threshold: 'case when count > 2 then count - 2 else 0 end'}]",
    "top_k": "p: [{top_k: {by: [k], k: 2, order_by: [v desc]}}]",
    "top_k of all": "p: [{top_k: {k: 3, order_by: [s, v]}}]",
    "window places": "p: [{window: {by: [k], order_by: [v desc], columns: {n: row_number(), r: rank(), d: dense_rank(), t: ntile(2)}}}]",
    "window shares": "p: [{window: {by: [s], order_by: [v nulls first], columns: {p: percent_rank(), c: cume_dist()}}}]",
    "window neighbours": "p: [{window: {by: [k], order_by: [v, s], columns: {c: v - lag(v), l: 'lead(s, 2, k || s)'}}}]",
    "window frames": "p: [{window: {by: [k], order_by: [v], frame: rows between 1 preceding and 1 following exclude current row,"
    " columns: {f: first_value(s), l: last_value(v), n: 'nth_value(v, 2)', t: sum(v), m: max(s), a: 'array_agg(v order by v)'}}}]",
    "window frames of values": "q: [{window: {order_by: [x], frame: range between 0.5 preceding and 1 following exclude ties,"
    " columns: {t: sum(x), a: avg(m), d: count(distinct k), e: median(x)}}}]",
    "window of dates": "q: [{window: {order_by: [d desc], frame: range between interval '60' day preceding and unbounded following,"
    " columns: {n: count(*), b: bool_and(b), s: min(x)}}}]",
    "window groups": "doubled: [{window: {order_by: [s], frame: groups between 1 preceding and 1 preceding, columns: {t: sum(v), n: count(*)}}}]",
    "diamond": "p: [{reduce: {by: [k], v: max(v)}}, {join: {with: p, as: whole, on: [k, v]}}, distinct]",
    "unions of joins": "p: [{join: {with: q, on: [k]}}, {project: [k, s]}, {concat: {from: p, apply: [{project: [k, s]}]}}]",
}

LATER = {
    "temporal filter": "p: [{temporal_filter: {from: k, until: k + 2}}]",
    "temporal filter from": "p: [{temporal_filter: {from: v - 4}}, {reduce: {by: [k], n: count(*)}}]",
    "temporal filter until": "p: [{temporal_filter: {until: v - 2}}, distinct]",
    "temporal filter of nothing": "p: [{temporal_filter: {from: k, until: k}}]",
    "temporal filter of two": "p: [{join: {with: q, on: [k]}}, {temporal_filter: {from: k, until: v}}, {project: [s, k]}]",
    "join_function": "p: [{join_function: {function: 'tests.judge.functions:later', columns: {k: 'int64?', n: int64}}}]",
    "join_function in batches": "p: [{join_function: {function: 'tests.judge.functions:later_in_batches',"
    " columns: {k: 'int64?', n: int64}, batch: true}}, {reduce: {by: [n], k: max(k)}}]",
}
CHAINS |= LATER


def whole(name: str) -> str:
    """Return the pipeline file of a chain."""
    source, _, apply = CHAINS[name].partition(": ")
    return f"{HEAD}  result: {{from: {source}, apply: {apply}}}\noutputs: {{result: out/result/}}\n"


def cut(*untils: int | None) -> tuple[Run, ...]:
    """Return runs up to these times, in each of which what is new by then arrives."""
    lower, runs = -1, []
    for until in untils:
        upper = 100 if until is None else until
        files = [(name, [u for u in rows if lower <= u[1][0] < upper]) for name, rows in (("p", P), ("q", Q))]
        runs.append(
            Run(tuple(Arrival(name, tuple(rows)) for name, rows in files), None if until is None else str(until))
        )
        lower = upper
    return tuple(runs)


@pytest.mark.parametrize("name", [*some(CHAINS)])
def test_an_operator(name, tmp_path):
    """Over logs in which nothing is ever there less than zero times, in four runs."""
    judge(Case(whole(name), cut(1, 3, 3, None)), tmp_path)


@pytest.mark.parametrize("name", LATER)
def test_what_is_moved_waits_for_its_time(name, tmp_path):
    """Long after all has arrived, run after run, and a row that brings nothing else about."""
    far = (Run((), "8"), Run((Arrival("q", ((Q[0][0], (9,), 1),)),), "9"), Run((), "12"), Run((), "40"), Run())
    judge(Case(whole(name), (*cut(1, 3, None), *far)), tmp_path)


DATED = {
    "date": (dt.date(1970, 1, 3), dt.date(1969, 12, 1), "interval '2' day"),
    "datetime[ms]": (dt.datetime(1970, 1, 1, 0, 0, 0, 2000), dt.datetime(1969, 12, 1), "interval '3' millisecond"),  # noqa: DTZ001
}


@pytest.mark.parametrize("time", DATED)
def test_now_is_of_the_type_of_time(time, tmp_path):
    """Dates and timestamps: bounds are written as such, and so are the times up to which runs close."""
    then, long_ago, while_ = DATED[time]
    text = (
        f"dd: 1\nname: dated\ninputs: {{p: {{path: in/p/, columns: {{d: '{time}?', k: int64}}}}}}\ncollections:\n"
        f'  c: {{from: p, apply: [{{temporal_filter: {{from: d, until: "d + {while_}"}}}}]}}\n'
        "  n: {from: c, apply: [{reduce: {by: [k], n: count(*)}}]}\noutputs: {c: out/c/, n: out/n/}\n"
    )
    rows = [
        ((then, 1), (0,), 1),
        ((long_ago, 1), (0,), 1),
        ((None, 2), (0,), 1),
        ((then, 1), (3,), 1),
        ((then, 2), (1,), 2),
    ]
    runs = (Run((Arrival("p", tuple(rows)),), "2"), Run((), "3"), Run((), "4"), Run((), "7"))
    judge(Case(text, runs, time), tmp_path)
