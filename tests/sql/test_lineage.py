"""Column lineage of SQL statements, judged by DuckDB: where a column of a table has other values, what it doesn't reach stays as it is."""

import random
from collections import Counter

import duckdb
import pytest

from ddcli.expressions.types import Type
from ddcli.plan.lineage import lineage
from ddcli.plan.pipeline_file import BoundPipeline, parse_spec
from tests.draws import chance, many
from tests.judge.test_lineage import ONE, counted, projected

TABLES = {
    "t": {"k": "int64", "g": "string?", "a": "int64?", "b": "int64?"},
    "u": {"k": "int64", "c": "int64?", "d": "string?"},
}
VALUES = {"int64": [1, 2, 3, 4], "int64?": [1, 2, 3, 4, None], "string?": ["x", "y", "z", None]}
PIPELINE = """\
name: p
inputs: {{t: {{path: t/, columns: {t}}}, u: {{path: u/, columns: {u}}}}}
collections:
  q:
    sql: >
      {sql}
outputs: {{q: out/}}
"""
FEWEST = 10
"""Draws of which one at least changes a column that does not reach all."""
STATEMENTS = """\
select g, a, b from t qualify row_number() over (partition by g order by a, b, k) = 1
select g, a from t qualify sum(b) over (partition by g) > 2
select g, max(a) as m from t group by g qualify rank() over (order by m) <= 2
select t.k, a, d from t left join u using (k) where c > 1 or c is null
select k, a, (select max(c) from u where u.k = t.k) as m from t
select k, case when a > 2 then b else k end as v, g from t
select k, a in (select c from u) as hit, b from t
select g, list(a order by b, k, a) as l, count(distinct b) as n from t group by g
select g, sum(a) filter (b > 1) as s from t group by g having count(*) > 1
select distinct g, a from t
select k, a from t union all select k, c from u
select k, a from t intersect select k, c from u
select k, a from t except select k, c from u
select g, a, sum(b) as s from t group by grouping sets ((g), (a))
select k, lag(a) over (partition by g order by b, k, a) as p, b from t
select k, coalesce(a, b) as v, nullif(a, b) as w from t
select t.k, a, c from t asof join u on t.k = u.k and t.a >= u.c
select k, x.a as a, x.b as b from (select k, {'a': a, 'b': b} as x from t)
select arg_max(a, b) as top, min(k) as k from t
select g, a from t order by b, k, a, g limit 2
select k, unnest([a, b]) as v, g from t
select t.k, a from t where exists (select 1 from u where u.k = t.k and u.d = t.g)
""".splitlines()


def drawn(draw: random.Random, table: str) -> list[tuple]:
    kinds = TABLES[table].values()
    return [tuple(draw.choice(VALUES[kind]) for kind in kinds) for _ in range(draw.randrange(1, 9))]


def result(base, sql, tables):
    """Return the names of a statement's columns and its rows, by DuckDB."""
    for name, columns in TABLES.items():
        kinds = ("bigint" if kind.startswith("int") else "varchar" for kind in columns.values())
        described = ", ".join(f"{column} {kind}" for column, kind in zip(columns, kinds, strict=True))
        base.execute(f"create or replace table {name} ({described})")
        base.execute(f"insert into {name} values {', '.join(map(literal, tables[name]))}")
    found = base.execute(sql)
    names = [column[0] for column in found.description]
    return names, Counter(tuple(map(repr, row)) for row in found.fetchall())


def literal(row):
    return "(" + ", ".join("null" if value is None else repr(value) for value in row) + ")"


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_column_that_is_not_reached_stays_as_it_is(sql):
    columns = {name: "{" + ", ".join(map(": ".join, each.items())) + "}" for name, each in TABLES.items()}
    types = {
        name: {column: Type(kind.removesuffix("?"), nullable=kind.endswith("?")) for column, kind in each.items()}
        for name, each in TABLES.items()
    }
    spec = parse_spec(PIPELINE.format(**columns, sql=sql), "p.yaml")
    node = counted(BoundPipeline(spec, types, {"time": Type("int64")}).relations["q"].node)
    reached = {
        column: {*sources, *influences} for column in node.schema for sources, influences in [lineage(node, column)]
    }
    draw, compared, base = chance(sql), 0, duckdb.connect()
    for _ in range(many(40)):
        tables = {name: drawn(draw, name) for name in TABLES}
        name = draw.choice([*TABLES])
        at = draw.randrange(len(TABLES[name]))
        column, kind = [*TABLES[name].items()][at]
        if (name, column) in reached[ONE]:
            continue
        rows = [(*row[:at], draw.choice(VALUES[kind]), *row[at + 1 :]) for row in tables[name]]
        names, before = result(base, sql, tables)
        _, after = result(base, sql, tables | {name: rows})
        assert {*names} == {*node.schema} - {ONE}
        kept = [each for each in names if (name, column) not in reached[each]]
        assert projected(before, names, kept) == projected(after, names, kept), (name, column)
        compared += bool(kept)
    base.close()
    assert compared or many(40) < FEWEST, "none of many columns leaves others as they are"
