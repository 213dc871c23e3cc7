"""Statements with a subquery of each kind in each clause."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

SUBQUERIES = """
(select max(c) from u)
(select max(c) from u where u.a = t.a)
(select count(*) from u where u.c > t.b)
(select min(x) from v where v.k = t.a and exists (select 1 from u where u.c = v.x and u.a = t.b))
(select u.c from u where u.a = t.a order by u.c limit 1)
(select t.b)
(select t.a + max(x) from v)
(select sum(q) from (select c + t.a as q from u union all select t.b) z)
(with m as (select max(x) as y from v where v.k = t.a) select y from m)
(select max(u.c) + (select count(*) from v where v.k = u.a and v.x = t.b) from u group by u.a order by 1 limit 1)
(select 1 from u having true)
(select case when exists (select 1 from u where u.a = t.a) then 1 else 0 end)
(select 7)
(select max(r) from (select row_number() over (order by c, d) as r from u where u.a = t.a) z)
(select count(distinct u.c) filter (where u.c > t.b) from u)
(select u.c from u where u.a = t.a union select v.x from v where v.k = t.b order by 1 nulls last limit 1)
(select sum(l.y) from u, lateral (select u.c + t.b as y) l)
(select sum(l.y) from u, lateral (select max(v.x) as y from v where v.k = u.a and v.x > t.a) l)
(select max(g) from (select count(*) as g from v group by v.k having count(*) >= t.a) z)
(select max(u.c) from u where u.a in (select v.k from v where v.x = t.b))
(select max(u.c) from u where u.a not in (select v.k from v where v.x is null or v.x > t.a))
(select (with q as (select max(c) as y from u) select y + t.a from q))
(select y from (values (t.a), (t.b), (null)) z(y) order by 1 desc nulls last limit 1)
(select max(u.c) from u left join v on v.k = u.a and v.x = t.b where v.x is null)
"""
CONDITIONS = """
exists (select 1 from u where u.a = t.a)
not exists (select 1 from u where u.c > t.b)
t.a in (select c from u)
t.b not in (select x from v where v.k = t.a)
t.b > any (select c from u where u.a = t.a)
t.a <= all (select x from v)
(t.a, t.b) in (select k, x from v)
t.b >= any (values (t.a), (1), (null))
t.a < all (values (t.b), (2))
t.b not in (values (1), (t.a))
t.b not in (select nullif(u.c, 1) from u where u.a = t.a)
t.a not in (select v.x from v where v.x is not null)
exists (select 1 from u where u.a = t.a and u.c in (select v.x from v where v.k = t.b))
exists (select 1 from u where u.a = t.a except select 1 from v where v.k = t.b)
t.b = some (select l.y from u, lateral (select u.c + t.a as y) l)
(t.a, t.b) not in (select v.k, v.x from v where v.k is not null)
{value} > 1
"""
CLAUSES = """
select a, {value} as x from t
select a, {value} + {value} as x from t
select a, {condition} as x from t
select a from t where {condition}
select a from t where {condition} or {condition}
select a from t where {value} = a
select {value} as g, count(*) as n from t group by g
select {value} as g, count(*) as n from t group by 1
select {condition} as g, sum(b) as n from t group by all
select count(*) as n from t group by {value}
select {value} as g, count(*) as n from t group by rollup (1)
select {value} as g, s, count(*) as n from t group by cube (1, s)
select a, b, {value} as x, count(*) as n from t group by a, b
select a, b, max({value}) as x from t group by a, b
select max({value}) as x, min(b) as y from t
select count(*) filter (where {condition}) as x from t
select a, count(*) as n from t group by a having count(*) > (select count(*) from v)
select a, b, count(*) as n from t group by a, b having {condition}
select count(*) as n from t having exists (select 1 from u)
select a, array_agg(b order by {value}, b) as x from t group by a
select first(b order by {value} desc, b, s) as x from t
select a, b, s from t order by {value}, a, b, s limit 2
select a, b, s from t order by {condition} desc, a, b, s limit 2 offset 1
select distinct {value} as x from t
select distinct on ({value}) a, b, s from t order by {value}, a, b, s
select a, row_number() over (partition by {value} order by a, b, s) as x from t
select a, row_number() over (order by {value}, a, b, s) as x from t
select a, sum({value}) over (partition by a) as x from t
select a, b, s from t qualify row_number() over (partition by {value} order by a, b, s) = 1
select a, b, s, lag(b) over (order by a, b, s) as x from t qualify {condition}
select t.a, v.x from t join v on t.a = v.k and {condition}
select t.a, v.x from t left join v on t.a = v.k and {condition}
select t.a, v.x from t left join v on {value} = v.k
select t.a, v.x from v right join t on t.a = v.k and {value} > 0
select t.a, v.x from t full join v on t.a = v.k and {condition}
select t.a, l.x from t, lateral (select {value} as x) l
select t.a, l.x from t left join lateral (select {value} as x where {condition}) l on true
select t.a, l.x from t, unnest([{value}, 1]) as l(x)
select t.a, l.x from t, generate_series(0, coalesce({value}, 0) % 3) as l(x)
select a, unnest([{value}, b]) as x from t
select a, {value} as x from t union select b, {value} from t
select a from t where a in (select {value} from w) intersect all select b from t where {condition}
select a, x from (select a, {value} as x from t) q where x > 0
with q as (select a, {value} as x from t) select q.a, r.x from q join q r on q.x = r.x
with recursive r(n) as (select a from t where {condition} union select n + 1 from r where n < (select max(c) from u)) select n from r
select a, case when {condition} then {value} else b end as x from t
select a, [{value}, b] as x, {{'p': {value}}} as y from t
select a, [a, b, 1][1 + coalesce({value}, 0) % 2] as x from t
select a, coalesce({value}, {value}, 0) as x from t
select a, {value} in (1, b, {value}) as x from t
select a, {value} between a and {value} as x from t
select a, {value} is null as x from t
select a, (with q as (select {value} as y) select max(y) from q) as x from t
select a from t where exists (select 1 from u where u.a = t.a and u.c > {value})
select a, (select max(c) from u where u.c >= all (select {value})) as x from t
select a, l.n from t, lateral (select count(*) as n from u where u.a = t.a and u.c <> {value}) l where {condition}
select a, sum(b) over (order by a, b, s rows between 1 preceding and current row) as x from t where {condition} qualify x > 0 or {condition}
select s, count(*) filter (where {condition}) as n, max(a) as m from t group by s having max(a) in (select c from u)
select a, case when {condition} then 1 end as x from t except select a, {value} from t
select a, max(b) = {grouped} as x from t group by a
select a, (select count(*) from u where u.c >= count(t.b)) as x from t group by a having {grouped} is not null
select x.a, {nested} as z from t x
select (select max(y) from (values (t.a), ({value})) z(y)) as x from t
select t.a, w.m from t semi join v on t.a = v.k join w on w.a = {value}
select t.a from t anti join (select c from u where c > 1) q on q.c = t.a where {condition}
"""
GROUPED = "(select max(c) from u) ; (select max(c) from u where u.a = t.a) ; (select sum(t.b)) ; (select count(t.b) + count(*) from v)"
NESTED = """
(select (select {value} from t where t.a = x.a order by t.b, t.s limit 1) from u where u.a = x.a order by u.c limit 1)
(select max((select count(*) from v where v.k = u.a and v.x = x.b)) from u)
(select (select sum(x.a) + sum(u.c) from v limit 1) from u limit 1)
"""


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def statement(draw: random.Random, clause: str) -> str:
    """Return a clause's statement with subqueries in its holes."""
    for _ in range(3):
        for hole, texts in (("{value}", SUBQUERIES), ("{condition}", CONDITIONS), ("{nested}", NESTED)):
            while hole in clause:
                clause = clause.replace(hole, draw.choice(lines(texts)), 1)
        while "{grouped}" in clause:
            clause = clause.replace("{grouped}", draw.choice([each.strip() for each in GROUPED.split(";")]), 1)
    return clause.replace("{{", "{").replace("}}", "}")
