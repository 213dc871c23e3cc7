"""Each operator of a pipeline file has the result of its twin, a statement that DuckDB runs over all rows so far: names, types, nulls and multiplicities."""

import duckdb
import pytest

from ddcli.plan.operators.table import OPERATORS
from tests.draws import chance, many

T, U = "k bigint, s varchar, n bigint", "k bigint, w varchar"
JOINED = "select t.k, t.s, t.n, u.w from t"

KEYS = "{from: u, apply: [map: {c: k}]}"
TWINS = {
    "map": ("map: {a: n + 1, s: s}", "select n + 1 as a, s from t"),
    "extend": ("extend: {a: 'coalesce(n, 0) * 2'}", "select *, coalesce(n, 0) * 2 as a from t"),
    "project": ("project: [s, k]", "select s, k from t"),
    "drop": ("drop: [s]", "select k, n from t"),
    "rename": ("rename: {s: name}", 'select k, s as "name", n from t'),
    "filter": ("filter: n > 1 or s is null", "select * from t where n > 1 or s is null"),
    "sample": (
        "sample: {by: [k, s], percent: 40}",
        "select * from t where left(md5(concat_ws(',', k, s)), 8) <= '66666666'",
    ),
    "explode": ("explode: coalesce(abs(k - 1), 0)", "select k, s, n from t, unnest(range(abs(k - 1)))"),
    "concat": ("concat: t", "select * from t union all select * from t"),
    "consolidate": ("consolidate", "select * from t"),
    "join": ("join: {with: u, on: [k]}", f"{JOINED} join u using (k)"),
    "left join": ("join: {with: u, on: [k], how: left}", f"{JOINED} left join u using (k)"),
    "right join": ("join: {with: u, on: [k], how: right}", "select k, t.s, t.n, u.w from t right join u using (k)"),
    "full join": ("join: {with: u, on: [k], how: full}", "select k, t.s, t.n, u.w from t full join u using (k)"),
    "semijoin": ("semijoin: {with: u, on: [k]}", "select * from t where exists (from u where u.k = t.k)"),
    "antijoin": ("antijoin: {with: u, on: [k]}", "select * from t where not exists (from u where u.k = t.k)"),
    "reduce": (
        "reduce: {by: [k], c: count(*), d: count(n), a: sum(n), b: max(s)}",
        "select k, count(*) as c, count(n) as d, sum(n)::bigint as a, max(s) as b from t group by k",
    ),
    "reduce without groups": ("reduce: {c: min(n)}", "select min(n) as c from t having count(*) > 0"),
    "count": ("count", "select *, count(*) as count from t group by all"),
    "count by": ("count: {by: [s], as: c}", "select s, count(*) as c from t group by s"),
    "distinct": ("distinct", "select distinct * from t"),
    "threshold": (
        "threshold: least(count, 2)",
        "select k, s, n from (select *, row_number() over (partition by k, s, n) as r from t) where r <= 2",
    ),
    "top_k": (
        "top_k: {by: [k], k: 2, order_by: [n desc nulls last, s nulls first]}",
        "select * from t qualify row_number() over (partition by k order by n desc nulls last, s nulls first) <= 2",
    ),
    "window": (
        "window: {by: [s], order_by: [n nulls first], columns: {r: rank(), m: max(k)}}",
        "select *, rank() over w as r, max(k) over w as m from t window w as (partition by s order by n nulls first)",
    ),
    "flat_map": ("flat_map: {a: 'generate_series(1, k)'}", "select *, unnest(generate_series(1, k)) as a from t"),
    "asof_join": (
        f"asof_join: {{with: {KEYS}, at: {{n: c}}, how: left}}",
        "select *, (select max(u.k) from u where u.k <= t.n) as c from t",
    ),
    "asof_join forward": (
        f"asof_join: {{with: {KEYS}, at: {{n: c}}, direction: forward, strict: true}}",
        "from (select *, (select min(u.k) from u where u.k > t.n) as c from t) where c is not null",
    ),
    "temporal_filter": ("temporal_filter: {from: k, until: n}", "select * from t where k <= $now and $now < n"),
    "temporal_filter until": ("temporal_filter: {until: n}", "select * from t where $now < n"),
}
"""An operator over `t`, and the statement with its result at the time $now. A name's first word is the operator's, where it has several."""
SIGNED = {
    "negate": ("negate", "select *, -1 as diff from t"),
    "explode below 0": ("explode: coalesce(k - 1, 0)", "select *, k - 1 as diff from t"),
}
WITHOUT = {"join_function", "enter", "arrange", "inspect"}
"""Operators that no twin is stated for: they call functions, depend on a loop, or change nothing."""


def test_each_operator_has_a_twin_or_is_named_as_having_none():
    named = {name for case in TWINS | SIGNED for name in [case, *case.split()] if name in OPERATORS}
    assert named | WITHOUT == set(OPERATORS), "state its twin in TWINS, or its name in WITHOUT"
    assert not named & WITHOUT


def pipeline():
    """Return a pipeline file with an output for each operator."""
    lines = ["dd: 1", "name: twins", "inputs:", "  t: {path: t/}", "  u: {path: u/}", "collections:"]
    cases = [yaml for yaml, _ in (TWINS | SIGNED).values()]
    for at, operator in enumerate(cases):
        lines += [f"  c{at}:", "    from: t", "    apply:", f"      - {operator}"]
    lines += ["outputs:", *(f"  c{at}: out/c{at}/" for at in range(len(cases)))]
    return "\n".join(lines) + "\n"


def drawn(rng, columns):
    """Return a record, of few values, so that records and keys meet."""
    texts, numbers = (None, "", "a", "é"), (None, -1, 0, 1, 2)
    return tuple(rng.choice((None, 0, 1, 2) if at == 0 else texts if at == 1 else numbers) for at in range(columns))


def change(base, rng, name, columns, time):
    """Write a step's updates of a table: new records, some of them three times, and present ones that go."""
    present = base.execute(f"from {name}").fetchall()
    gone = [(*record, time, -1) for record in rng.sample(present, len(present) // 3)]
    updates = [(*drawn(rng, columns), time, rng.choice((1, 1, 3))) for _ in range(rng.randrange(1, 9))] + gone
    base.executemany(f"insert into {name}_updates values ({', '.join('?' * (columns + 2))})", updates)
    base.execute(f"copy (from {name}_updates where time = {time}) to '{name}/{time}.parquet'")


def columns(base, query):
    """Return the names and types of a query's columns."""
    return [(row[0], row[1]) for row in base.execute(f"describe {query}").fetchall()]


def records(base, query):
    """Return the records of a query with their multiplicities, the sums of its column diff."""
    summed = f"select * exclude (diff), sum(diff)::bigint as multiplicity from ({query}) group by all"
    return sorted(base.execute(f"from ({summed}) where multiplicity <> 0").fetchall(), key=repr)


@pytest.mark.parametrize("seed", range(many(8)))
def test_operators_have_the_results_of_their_twins(shop, seed):
    rng = chance("twins", seed)
    shop.write("p.yaml", pipeline())
    base = duckdb.connect()
    for name, kinds in (("t", T), ("u", U)):
        (shop.folder / name).mkdir()
        base.execute(f"create table {name}_updates ({kinds}, time bigint, diff bigint)")
        names = ", ".join(kind.split()[0] for kind in kinds.split(", "))
        summed = f"select {names}, sum(diff)::bigint as m from {name}_updates group by all"
        base.execute(f"create view {name} as select {names} from ({summed}), unnest(range(m))")
    for time in range(3):
        change(base, rng, "t", 3, time)
        change(base, rng, "u", 2, time)
        result = shop("run", "p.yaml")
        assert result.code == 0, result.err
        for at, (case, (operator, twin)) in enumerate((TWINS | SIGNED).items()):
            twin = twin.replace("$now", str(time))
            found = f"select * exclude (time, diff) from 'out/c{at}/*.parquet'"
            wanted = f"select * exclude (diff) from ({twin})" if case in SIGNED else twin
            assert columns(base, found) == columns(base, wanted), case
            ours = f"select * exclude (time) from 'out/c{at}/*.parquet'"
            theirs = twin if case in SIGNED else f"select *, 1 as diff from ({twin})"
            assert records(base, ours) == records(base, theirs), f"{operator} at {time}"
