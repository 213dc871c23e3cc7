"""Lists that are null, or have nulls: asked as the standard has it of a subquery, but null of a null list; compared and ordered as in DuckDB."""

import datetime as dt
import math
from collections import Counter
from decimal import Decimal

import duckdb
import pytest

from ddcli import Dataflow
from tests.draws import chance

CASES = {
    "1 = any(l)": [None, False, True, None, None],
    "2 <> any(l)": [None, False, True, True, True],
    "1 = all(l)": [None, True, False, False, False],
    "1 < all(l)": [None, True, False, None, None],
    "0 < all(l)": [None, True, True, None, None],
    "3 > any(l)": [None, False, True, None, None],
    "4 > any(l)": [None, False, True, True, True],
    "cast(null as bigint) = any(l)": [None, False, None, None, None],
    "not (2 = any(l))": [None, True, False, None, None],
    "list_has_any([], [])": [False] * 5,
    "list_has_all([], [null])": [True] * 5,
    "array_to_string([null], '-') = ''": [True] * 5,
}
LISTS = [None, [], [1, 2], [None, 3], [None, 3]]


@pytest.mark.parametrize("text", CASES)
def test_a_comparison_with_a_list(text):
    dataflow = Dataflow()
    rows = dataflow.input("t", {"n": "int64", "l": "list[int64?]?"})
    output = dataflow.sql(f"select n, {text} as x from t", t=rows).output()
    for number, elements in enumerate(LISTS):
        rows.insert((number, elements))
    rows.close()
    dataflow.step()
    found = dict(record for record, _, _ in output.updates())
    assert [found[number] for number in range(len(LISTS))] == CASES[text]


KINDS = {
    "bigint[]": ("list[int64?]?", [None, [], [None], [1], [1, None], [1, 2], [2**63 - 1], [-(2**63), 0], [-1]]),
    "double[]": (
        "list[float64?]?",
        [None, [], [0.0], [-0.0, 1.0], [math.nan], [math.inf], [-math.inf], [-1.5], [5e-324]],
    ),
    "varchar[]": ("list[string?]?", [None, [], [""], ["a"], ["a", ""], ["ab"], ["a\x01"], ["ü"], ["A", None], ["🙂"]]),
    "boolean[]": ("list[bool?]?", [None, [], [True], [False, True], [None, False]]),
    "decimal(38, 2)[]": (
        "list[decimal(38, 2)?]?",
        [None, *([Decimal(each)] for each in ("-1.50", "-1.49", "0", "9" * 36))],
    ),
    "date[]": ("list[date?]?", [None, [dt.date(1, 1, 1)], [dt.date(1969, 12, 31)], [dt.date(9999, 12, 31), None]]),
    "bigint[][]": ("list[list[int64?]?]?", [None, [], [[]], [None], [[1], [2]], [[1, 2]], [[1], None], [[1, None]]]),
    "struct(a bigint, b varchar[])": (
        "struct[a: int64?, b: list[string?]?]?",
        [None, *({"a": a, "b": b} for a in (None, 1, 2) for b in (None, [], ["x"], ["x", None]))],
    ),
}
QUERIES = """
select a.n, b.n as m, a.x = b.x as e, a.x < b.x as l, a.x >= b.x as g, a.x is distinct from b.x as d, nullif(a.x, b.x) as v from t a, t b
select a.n, b.n as m from t a join t b on a.x = b.x
select a.n, b.n as m from t a left join t b on a.x < b.x and a.n <> b.n
select n % 3 as k, min(x) as v, max(x) as w, count(distinct x) as c, min_by(n, x) as b from t group by k
select x, count(*) as c from t group by x having x > (select min(x) from t)
select n, rank() over (order by x desc) as r, max(x) over (partition by n % 2) as m from t
select x from t order by x desc nulls last, n limit 4
select n from t where x in (select x from t where n % 2 = 0)
select n from t where x not in (select x from t where n % 2 = 0 and x is not null)
select n from t where x in ((select x from t where n = 1), (select x from t where n = 2))
select n, (select max(u.x) from t u where u.n < t.n) as m from t
select array_agg(x order by x, n) as a from t
select a.n, b.n as m, greatest(a.x, b.x) as g, least(b.x, a.x, null) as l from t a, t b
select a.n, [a.x, null, b.x] as p, list_select([a.x, b.x], [2]) as s from t a, t b where a.n < b.n
"""


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", KINDS)
def test_lists_and_structs_are_compared_and_ordered_as_in_duckdb(kind):
    """After each of two steps, with rows that go again."""
    ours, values = KINDS[kind]
    rng, base = chance("lists", kind), duckdb.connect()
    drawn = [(n, rng.choice(values)) for n in range(12)]
    base.execute(f"create table t (n bigint, x {kind})")
    base.executemany("insert into t values (?, ?)", drawn)
    dataflow = Dataflow()
    rows = dataflow.input("t", {"n": "int64", "x": ours})
    queries = [
        each
        for each in QUERIES.strip().splitlines()
        if kind != "bigint[][]" or ("array_agg" not in each and "[a.x" not in each)
    ]
    outputs = [dataflow.sql(each, t=rows).output() for each in queries]
    held: list[Counter[str]] = [Counter() for _ in queries]
    gone = [(100 + n, rng.choice(values)) for n in range(4)]
    for step, changes in enumerate(
        [[*((row, 1) for row in drawn[:8] + gone)], [*((row, 1) for row in drawn[8:]), *((row, -1) for row in gone)]]
    ):
        for row, diff in changes:
            rows.update(row, diff)
        rows.advance_to(step + 1)
        dataflow.step()
        for output, each in zip(outputs, held, strict=True):
            for record, _, diff in output.updates():
                each[_shown(record)] += diff
    for query, each in zip(queries, held, strict=True):
        wanted = Counter(map(_shown, base.execute(query).fetchall()))
        assert +each == wanted, query


def _shown(record: object) -> str:
    """Return a record as text, with one zero."""
    return repr(record).replace("-0.0", "0.0")
