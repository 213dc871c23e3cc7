"""Statements are what DuckDB makes of them after each change, or refused; and the engine agrees with the reference on them."""

import random

import pytest

from ddcli import Dataflow
from ddcli.errors import UsageError
from ddcli.plan import joins, logical
from ddcli.plan.logical import Apply, Source
from ddcli.plan.node import Graph
from tests.draws import chance, many, some
from tests.sql.asof import AsofStatements
from tests.sql.generate import Statements
from tests.sql.judge import Judged, bound, connect, judge
from tests.sql.windows import WindowStatements

STATEMENTS = [
    "select a, b+1 as x from t where b > 1",
    "select t.a, u.c from t, u where t.a=u.a and t.b>1",
    "select b, s, d from (select * from t, u) where b = c",
    "select * from (select t.b, u.c, v.x, v.k, u.d from t, u cross join v) where x = b and c = x and k = c and d is not null",
    "select x, f from (select k as x, f, cast(a as int) as y from v cross join w where f) where x = y or x = 1 and x = y",
    "select t.a, u.c from t left join u on t.a=u.a and t.b>u.c",
    "select t.a, u.c, u.a as ua from t right join u on t.a=u.a",
    "select t.a, u.c, u.a as ua from t full join u on t.a=u.a",
    "select t.a, u.c, u.a as ua from t full join u on t.a=u.a and t.b < u.c",
    "select t.a, u.c, u.a as ua from t full join u on t.b < u.c",
    "select * from t full join u using (a)",
    "select * from t natural left join u",
    "select * from t natural join w",
    "select a, sum(b) s, count(*) as n from t group by 1 having count(*)>1",
    "select a from t where exists (select 1 from u where u.a=t.a) and b in (select c from u)",
    "select a from t where b not in (select a from u)",
    "select a from t where not exists (select 1 from u where u.a=t.b)",
    "select a, (select max(c) from u where u.a = t.b) m from t",
    "select a, (select count(*) from u where u.a = t.b) m from t",
    "select a, (select count(*) from u where u.a is not distinct from t.b) m from t",
    "select a, (select count(*)+t.a from u where u.a is not distinct from t.b or t.b is null) m from t",
    "select count(*) as n, sum(b) as s from t",
    "select count(*) as n, sum(b) as s from t where a > 5",
    "select distinct a from t",
    "select a, b from t order by a, b, s limit 2",
    "select a, b from t order by b desc, a, s limit 2 offset 1",
    "select a from t union select a from u",
    "select a from t union all select c from u",
    "select a from t intersect select a from u",
    "select a from t intersect all select c from u",
    "select a from t except select a from u",
    "select a from t except all select c from u",
    "with x as (select a, count(*) n from t group by a) select x.n, y.n as m from x, x y where x.a = y.n",
    "select a, b, count(*) as n from t group by rollup (a, b)",
    "select a, b, sum(a) as n from t group by cube (a, b)",
    "select a, b, count(*) n from t group by grouping sets ((a), (b), ())",
    "select a, b in (select c from u where u.a = t.a) as i from t",
    "select a, b not in (select u.a from u where u.c = t.a) as i from t",
    "select a, b > all (select c from u where u.a = t.a) as i, b >= any (select a from u) as j from t",
    "select t.a, l.n from t, lateral (select count(*) as n from u where u.a = t.a) l",
    "select t.a, l.c from t left join lateral (select c from u where u.a = t.a and u.c > t.b) l on true",
    "select (select x.a from (select u.a, u.c from u where u.c > t.a) x order by x.c, x.a limit 1) as z from t",
    "select a, case when exists (select 1 from v where v.k = t.a) then 1 else 0 end as e from t",
    "select 1 as one, 'x' as y",
    "values (1, 'a'), (2, null)",
    "select range, range > 1 as x from range(4) where range < 3",
    "select a, p from n order by p, a limit 3",
    "select a, p from n order by p desc, a desc limit 2 offset 1",
    "select a, p from n order by p nulls first, a limit 2",
    "select a, p, row_number() over (order by p desc nulls last, a) as x, rank() over (partition by a order by p) as y from n",
    "select a, p, p in ({'i': 1, 's': 'x'}, {'i': a, 's': null}, null) as x, p not in ({'i': a, 's': 'x'}) as y from n",
    "select array_agg(a order by p, a) as x, string_agg(p.s, ',' order by p) as y from n",
    "select distinct on (a) a, p from n order by a, p",
    "select a & b x, a | b y, xor(a, b) z, ~b as w, a << 2 p, b >> 1 q, bit_count(b) r, hex(b) s, bin(a) t from t",
    "select chr(cast(a + 65 as integer)) x, ascii(s) y, hex(s) z, a & 1 = 0 as w from t",
    "select isoyear(d) x, yearweek(d) y, extract(decade from d) z, century(d) p, millennium(d) q, date_part('millisecond', d + interval '1' second) r from u",
    "select list_position([a, b, 2], 2) x, list_position(['x', s], coalesce(s, 'q')) y from t",
    "select list_position([s], struct_pack(n := a, t := null).t) x, list_contains([s], struct_pack(n := a, t := null).t) y from t",
    "select ('{\"k\": [' || a || ', \"x\"], \"n\": null}') ->> '$.k[0]' as x, ('{\"k\": [1, {\"y\": 2}]}' -> 'k') as y, json_array_length('[1, ' || b || ']') z from t",
    "select a, [a, b]::bigint[] as x, []::varchar[] as y, (array_agg(b order by b)::bigint[])[1] as z from t group by a, b",
    "select s ->> 'x' as x from (select '{\"x\": ' || coalesce('\"' || s || '\"', 'null') || '}' as s from t) j where json_valid(s)",
    "select a, array(select c from u where u.a = t.a order by c desc) as x, array(select u.c + t.b from u order by d, c limit 2) as y from t",
    "select array(select distinct a from t order by 1) as x, array(select a from t union all select c from u order by 1 desc) as y",
    "select a, count(*) as n, array(select max(c) from u group by a order by a, count(*)) as x from t group by a",
    "select array(select b as a from t order by a, b, s) as x, array_length(array(select s || 'x' from t order by 1 desc nulls last)) as y",
    "select d + interval (a) day as x, d - interval (c * 2) hours as y, d + interval '1 day 2 hours' as z, d + to_minutes(c) as w from u",
    "select a + 9223372036854775808 as x, a = 9223372036854775808 as y from t",
    "select a from t where a = (select max(a) from t)",
    "select a from t t1 where a > (select avg(a) from t where t.s = t1.s)",
    "select sum(x) from (select a + (select count(*) from u) as x from t) q(x)",
    "select a from t where exists (select 1 from u where exists (select 1 from v where v.k = u.a and v.x = t.b))",
    "select * exclude (b) from t",
    "select t.* replace (a+1 as a) from t",
    "select (select a from u where u.c = t.b) as z from t",
    "select count(distinct b) filter (where a > 1) as n, sum(a) filter (where b is null) as s from t",
    "select distinct on (a) a, b from t order by a, b, s",
    "with recursive r(x) as (select a from t union select c + 1 from u, r where u.a = r.x and r.x < 6) select * from r",
    "with recursive r(x, n) as (select a, 0 from t union all select c, n + 1 from u, r where u.a = r.x and n < 3) select x, n from r",
    "with recursive r(x) as (select 1 union all select x + 1 from r where x < 5), s as (select x * 2 as y from r) select y from s where y > 3",
    "with recursive e as (select k, x from v), p(k, x) as (select k, x from e union select p.k, e.x from p join e on p.x = e.k) select * from p",
    "select a from t where b = any ((select a from u) union all (select c from u))",
    "select x from (select 0, 0 union select a, b from t) as q(x, y)",
    "select x, y from (select t.a, u.a from t, u intersect select a, b from t) as q(x, y)",
    "select x.a, w.m from (select cast(null as bigint) as a from u) x join w on x.a = w.a",
    "select a, count(*) n from t group by all",
    "select b as z, a from t order by z, a limit 3",
    "select distinct b as z from t order by z limit 2",
    "select t.a + 1 as a2, count(*) as n from t group by a + 1",
    "select a2, n from (select a + 1 as a2, count(*) as n from t group by a2) where n > 1",
    "select s, (select count(*) from u where u.a = q.m) as c from (select s, max(a) as m from t group by s) q",
    "select a::varchar as s, b::decimal(10,2) as d, '2020-01-01'::date as x from t",
    "select x, y from (values (1, 'a'), (2, 'b')) as q(x, y)",
    "select i from generate_series(1, 3) as g(i)",
    "select t.a, i from t left join range(4) as g(i) on t.b = g.i",
    "select t.a, i, j from t join unnest([1, 2, 2]) as g(i) on t.b = g.i and t.a < 3 left join range(3) as h(j) on h.j > g.i",
    "select b, count(*) as n from v join generate_series(0, 2) as g(k) using (k) join t on t.a = k group by b",
    "select t.a, i from t, generate_series(1, t.a) as g(i)",
    "select t.a, i from t, range(0, t.a + 3, 2) as g(i)",
    "select t.a, i from t, range(t.a, -2, -2) as g(i)",
    "select t.a, i from t, range(t.a, 5, t.a + 1) as g(i)",
    "select a, unnest(generate_series(d, d + 2, interval '1' day)) as x from u",
    "select a, cast(x as date) as x from u, unnest(range(d, d + 2, interval '1' day)) as g(x)",
    "select a, unnest(generate_series(1, a)) as x from u",
    "select sum(a > 1) as n, sum(f) as m, sum(distinct f) as o from w",
    "select a, sum(b = 1) as n from t group by a",
    "select a, sum(f) over (order by a, m, f) as n from w",
    "select t.a, i from t left join generate_series(1, t.a) as g(i) on true",
    "select t.a, x from t, unnest([t.a, t.b]) as g(x)",
    "select sum(a) from t having count(*) > 100",
    "select 1 as x from t group by a having max(b) is null",
    "select a from t where (a, b) in (select c, a from u)",
    "select (a, b) = (b, a) as x, (a, b) <> (b, 1) as y, (a, b) in ((1, 2), (null, 1)) as z, (a, b) < (b, a) as w from t",
    "select t.a, u.c from t join u on (t.a, t.b) = (u.c, u.a)",
    "select a, list_reduce([a, b, 3], lambda x, y: coalesce(x, 0) + y) as r, list_zip([a, b], [b]) as z, list_filter([a, b], lambda x, i: i > 1) as f from t",
    "select a from t where (a, b) not in (select c, a from u)",
    "select a from t where b not in (select x from v where v.k = t.a or t.s is null) and not a not in (select k from v)",
    "select a, count(*) as n from t where b + 1 not in (select max(c) from u where u.a is not distinct from t.b) group by a",
    "select a, b = any([1, a]) as x, b <> all([1, null]) as y, not (b = any([null, 2])) as z from t",
    "select a from t left join v on v.k > all([t.a, 0]) where b >= some([a, x])",
    "select a, max(b) <> all([a, 2]) as x from t group by a having count(*) = any([1, max(b)])",
    "select a from t semi join u on t.a = u.c",
    "select a, b from t anti join u using (a)",
    "select x from v anti join generate_series(0, 1) r(i) on v.x = i",
    "select (select count(*) from v semi join unnest([0, 2]) r(i) on v.x > i and v.k = t.a) as n from t",
    "select a from t natural anti join u",
    "select x from v natural semi join range(2) r(x)",
    "select a, b from t semi join u on t.a = u.a and t.b > u.c",
    "select a, b from t anti join (select k, x from v where x > 1) q on t.a = q.k and t.b = q.x",
    "select m from w where a in (select a from t where b in (select c from u)) and f",
    "select t.a, w.m from t, w where t.a = w.a and t.b in (select x from v)",
    "from t select a where b > 0",
    "select a, b = any(l) as p, b <> any(l) as q, b < any(l) as r, b >= some(l) as s from (select a, b, [a, b, 2] as l from t union all select a, c, [] from u) x",
    "select a, b = all(l) as p, b <> all(l) as q, b > all(l) as r, b <= all(l) as s from (select a, b, [a, b, 2] as l from t union all select a, c, [] from u) x",
    "select a from t where a = any(list_append([b], 1)) and not 2 <> all([b])",
    "select s, count_if(a > 1) as n, approx_count_distinct(b) as m from t group by s having count_if(b is null) < 2",
    "select concat_ws('-', s, a, b) as x, md5(s) as y, repeat(s, b) as z, translate(s, 'xy', 'ab') as w from t",
    "select strptime(strftime(d, '%d/%m/%y'), '%d/%m/%y') as a, try_strptime(strftime(d, '%B %d, %Y'), '%b %d, %Y') as b, try_strptime(strftime(d, '%m-%d-%Y'), '%d-%m-%Y') as c from u",
    "select date_part('year', d) as y, cast(date_add(d, interval '1' day) as date) as n, last_day(d) as l, dayname(d) as w, strftime(d, '%d.%m.%Y') as s from u",
    "select date_sub('day', d, date '2020-02-01') as y, date_sub('week', d, date '2020-03-01') as w, epoch_ms(d) as e, time_bucket(interval '2' day, d::timestamp) as b from u",
    "select list_sort(list_distinct([a, b, 1])) as l, list_min([a, b]) as m, list_max([a, b]) as n, list_has_any([a], [b, 1]) as h, list_concat([a], [b]) as c from t",
    "select a, p.i, n.p.s as s, (p).I as j, p['s'] as k from n",
    "select p, count(*) as c, max(a) as m from n group by p",
    "select p.i + 1 as z, count(*) as c from n group by p.i having max(p.s) is not null",
    "select distinct p from n union all select {'i': 7, 's': 'q'} except select p from n where a > 2",
    "select x.a, y.a as b, y.p from n x left join n y on x.p = y.p and x.a <> y.a",
    "select x.a, y.a as b from n x join n y on x.p is not distinct from y.p",
    "select a, p = {'i': 1, 's': 'x'} as e, p <> {'i': 1, 's': null} as f, p is distinct from {'i': a, 's': null} as g, p is null as h from n",
    "select struct_pack(u := a, v := p).v.s as z, {'a': {'b': a}}.a.b as w, coalesce(p, {'i': 0, 's': 'none'}) as q from n",
    "select a, e.k, e from n, unnest([{'k': a, 'v': p}, {'k': p.i, 'v': null}]) as u(e) where e.k > 1",
    "select a from n where p in (select p from n m where m.a < n.a) and p.i = any (select a from t)",
    "select a, (select max(m.a) from n m where m.p = n.p) as z, exists (select 1 from n m where m.p.i = n.p.i and m.a > n.a) as y from n",
    "select q.p.i, x.s from (select p, p.s from n) q join (select s from t) x on x.s = q.p.s",
    "select n.a as x, p.a from n, (select 3 as a) p where n.a = 1",
    "select (select max(x.t.i) from (select p as t from n) x where t.i = 1) as c from t",
    "select a, p, row_number() over (partition by p order by a) as r from (select distinct * from n) n",
    "select count(distinct p) as c, count(p) as d, count(*) filter (where p.i = 1) as e from n",
    "select max(a + 1) over (partition by a + 1 order by b) as m, lag(a + 1) over (partition by a + 1 order by b, s) as l, count(*) over (partition by a + 1) as c from t",
    "select sum(p.i) over (partition by p.i order by a) as m, max(a) over (partition by p.i order by p.i) as z, max(p.i) over (partition by p.i) as y from n",
    "select q.r.i as z, q.r.s as y, count(*) as c from (select {'r': p, 'a': a} as q from n) as m group by q.r having q.r.i > 0 or q.r.i is null",
    "select m.q.r.i + 1 as z, max(m.q.a) as y from (select {'r': p, 'a': a} as q from n) as m group by m.q.r having m.q.r.s is not null",
    "select p.i as z, p.s as y, sum(a) as c from n group by rollup (p.i, p.s)",
    "select cast(null as struct(i bigint, s varchar)) as z, case when a > 1 then p end as y from n",
    "select a, s[1:2] as x, s[2] as y, s[:1] as z, s[a:] as w from t",
    "with t as (select * from t where a > 1) select * from t",
    "select a, b, grouping(a) as g, grouping(a, b) as h, count(*) as n from t group by rollup (a, b)",
    "select a, grouping(a) + grouping(b) as l, sum(b) s from t group by cube (a, b) having grouping(a) = 0 order by grouping(b), a limit 20",
    "select t.a, i from t full join generate_series(0, 3) as g(i) on t.a = i",
    "select a, first(b order by s, b) filter (where b > 1) as x, last(b order by s, b) filter (where s is not null) as y from t group by a",
    "select a, string_agg(s, '-' order by s, b) filter (where b > 1) as x from t group by a",
    "select a, (select sum(t.b)) as x from t group by a",
    "select a from t group by a having exists (select 1 from u where u.c = sum(t.b))",
    "select a, (select count(t.b) + sum(u.a) from u) as x from t group by a",
    "select (select (select max(t.b) from u x limit 1) from w limit 1) as x from t",
    "select (select sum(u.c + (select max(t.b) from v limit 1)) from u) as x from t",
    "select a, (select count(*) from u where u.c > count(t.b) filter (where t.s is not null)) as x from t group by a",
    "select (select sum(t.b) from u limit 1) as x, (select q.y from (select sum(t.b) as y) q) as z from t",
    "select a, (select sum(x.n) from (select u.c + sum(t.b) as n from u) x) as x from t group by a",
    "select a, array_agg(b order by s, b) filter (where b > 1) as x, array_agg(s order by s) filter (where b is null) as y, count(*) as n from t group by a",
    "select array_agg(b order by s, b) filter (where a > 1) as x from t",
    "select a, max(b, 2) as x, min(s, 3) as y, max(s, 1) filter (where b > 1) as z, quantile_cont(b, [0, 0.5]) as q from t group by a",
    "select max(b, 2) as x, quantile_disc(b, list_value(0.5)) as y, quantile_disc(s, [1, 0]) filter (where a > 1) as z, min(a, 3) as n from t where b > 2",
    "select a, percentile_cont([0.25, 1]) within group (order by b) as x, max(b, 2)[1] as y from t group by a having len(max(b, 2)) > 1",
    "select a, b, max(b, 2) over (partition by a) as x, quantile_disc(b, [0.5, 1]) over (order by a, b rows 2 preceding) as y from t",
    "select a, x, count(*) over (order by x range between 0.1 preceding and 0.2 following) as n from (select a, cast(a / 10 as float) as x from t) q",
    "select a, (select array_agg(u.a order by u.a) filter (where u.c > t.b) from u) as x from t group by a, b",
    "select a, b, array_agg(s order by s) filter (where a > 1) as x from t group by rollup (a, b)",
    "select a, (select count(*) from u right join v on u.a = v.k and u.c > t.a) as n from t",
    "select a, (select sum(x.c) from u x full join v on x.a = v.k and x.c > t.a) as n from t",
    "select a, (select count(*) from v left join u on u.a = t.a and u.c = v.k right join w on w.a = v.x) as n from t",
    "select a, (select count(*) from u join v on u.a in (select k from v where v.x = t.b) right join w on w.a = u.a) as n from t",
    "select a from t where exists (select 1 from u, v where u.c = v.k and u.a = t.b and v.x > 0) or b in (select k from v)",
    "select a from t where b in (select a from w anti join u on u.c = t.a)",
    "select a, (select count(*) from u semi join (select k from v where v.x = t.b) q on q.k = u.a) as n from t",
    "select a, (select max(u.a) from u join v on (u.a = v.k or v.x <> t.b) semi join w on u.d is null) as n from t",
    "select a from t where not exists (select 1 from u where u.a = t.b and u.c > 1) and a in (select x from v where v.k = t.a)",
    """select "#value0", "#key0" + 1 as l, sum("#key0") + count("#value0") as n from (select a as "#value0", b as "#key0" from t) group by "#value0", "#key0" + 1""",
    "select t.a, t.b, u.c from t asof join (select a, c, max(d) as d from u group by a, c) u on t.a = u.a and t.b >= u.c",
    "select t.a, t.b, c from t asof left join (select a, c from u group by a, c) u on u.c <= t.b + 1",
    "select * from t asof join (select a, max(k) as b, max(x) as x from (select k as a, k, x from v) q group by a) w using (a, b)",
    "select * from t asof left join (select k as a, x as b, count(*) as n from v group by k, x) w using (a, b)",
    "select t.a, i, u.c from t, unnest([t.a, t.b]) l(i) full join u on u.a = l.i",
    "select t.a, w.m, l.n, u.c from t, w join lateral (select v.x as n from v where v.k = t.a) l on l.n = w.a right join u on u.a = l.n",
    "select a, (select max(x) from u, lateral (select w.a from w where w.a = u.c and w.f) l full join v on v.k = l.a and v.x > t.b) as n from t",
    "select a, unnest([a, b]) + 1 as x from t where a > 0 order by x limit 3",
    "select a from t where b in (select unnest([u.a, t.a]) from u) or a in (values (1), (t.b))",
    "select a, (a, b) not in ((1, 2), (2, 3)) as x, (a, b) <> (2, 3) as y from t where b is not null",
    "select [a, b, 3][2:3] as x, [a, b][:1] as y, [a, b][a:] as z, [a, b][b:a] as w, len([a, b]) as n from t",
    "select a // 2 as x, (a - 3) // 2 as y from t",
    "select a, (select max(q.x) from u asof left join (select k, max(x) as x from v where v.x = t.b group by k) q on u.c >= q.k) as n from t",
    "select a, (with m as (select c from u where u.a = t.b), n as (select max(c) as z from m) select z + (select count(*) from m, n where c = z) from n) as x from t",
    "select a, (with m as (select u.c from u where u.a = r.b) select max(c) from m where exists (select 1 from v r, m z where r.k = z.c and r.x = m.c)) as n from t r",
    "select a, l.n from t, lateral (with m(c) as (select c from u where u.a = t.a) select count(*) as n from m, m k) l",
    "select b, (select sum(x) from unnest(q.l) u(x)) as s from (select b, array_agg(a order by a) filter (where a > 1) as l from t group by b) q",
    "select (select count(*) from u right join v on u.a = v.k and u.c > len(q.l)) as n, q.l from (select b, array_agg(a order by a) filter (where a < 2) as l from t group by b) q",
    "select k from v where k not in ((with q as (select r.x from w right join v r on w.a = r.x where date '2020-01-03' = all (select null::date from v s where r.k = s.k)) select x from q))",
    "select a, list(b order by b) as l, any_value(a) as c, count() as n from t group by a",
    "select a, b, sum((select count(*) from u where u.a = t.a)) as x from t group by rollup (a, b) having sum((select count(*) from u)) > 0",
    "select count(distinct (select count(*) from v where v.k = t.b)) as x, max((select c from u where u.a = t.a order by c limit 1)) filter (where b > 0) as y from t",
    "select s, bool_and(exists (select 1 from u where u.a = t.a)) as x, array_agg((select max(c) from u where u.a = t.a) order by a, b) as y from t group by s",
    "select a, list_transform(array_agg(b order by b), lambda x: x + a) as l, list_filter([a, b], lambda x: x > 1) as m from t group by a, b",
    "select s, [x * count(*) for x in array_agg(a order by a) if x > min(b)] as l from t group by s",
    "select (a + b).abs() as x, s.upper().lower().length() as y, t.s.left(1).concat(s, 'x')[1] as z, (s || 'x').upper() as v, upper(s).substr(1)[1:2] as w from t",
    "select s.lower() as k, a.sum() as x, a.max() + 1 as y, b.list(order by b).list_transform(lambda x: x + 1) as z from t group by s",
    "select s, covar_pop(a, b) as p, covar_samp(b, a) as q, regr_count(a, b) as n, regr_avgx(a, b) as x, regr_avgy(a, b) as y from t group by s",
    "select regr_sxx(a, b) as x, regr_syy(a, b) filter (where s is not null) as y, regr_sxy(a, 2 * b) as z from t",
    "select k, case when count(distinct x) > 1 then corr(x, x + 1) end as c, case when count(distinct x) > 1 then regr_slope(2 * x, x) end as l from v group by k",
    "select s, case when max(b) > min(b) then regr_intercept(a, b) end as i, regr_r2(a, b) as r from t where a is not null group by s",
    "select a, b, covar_pop(a, b) over (partition by s order by a, b rows between 1 preceding and current row) as c, regr_count(a, b) over (partition by s) as n from (select distinct a, b, s from t) q",
    "select a, array_agg(distinct b order by b desc) as x, string_agg(distinct s, '-' order by s) as y, array_agg(distinct s order by s nulls first) filter (where b > 0) as z from t group by a",
    "select mode() within group (order by b) as m, percentile_cont(0.3) within group (order by b) filter (where a > 1) as p, percentile_disc(0.5) within group (order by s) as d from t",
    "select a, b from t order by all limit 3",
    "select b, a, s from t order by all desc limit 2",
    "select a, count(*) as n from t group by all order by all limit 2",
    "(select a from t) union (select c from u) order by all limit 2",
    "select cast(list_sum([a, b]) as bigint) as x, list_avg([a, b, 1]) as y, cast(list_aggregate([a, b], 'sum') as bigint) as z, list_aggregate([a, b], 'max') as m, list_unique([a, b, 2]) as u, list_last([a, b]) as w from t",
    "select a % 2 as a, max(p) as x, min(p) as y, max(p) filter (where a > 1) as z from n group by a % 2",
    "select array_agg({'a': a, 'p': p} order by a desc, p) as x, first(p order by a, p) as y, last({'p': p} order by a, p desc) as z, arg_max({'b': a}, a + 0) filter (where a is not null) as w from n",
    "select a, p, max(p) over (partition by a order by a) as m from (select distinct * from n) q",
    "select a, b + 1 as x, x * 2 as y, y - x as z, case when y > 2 then s end as w from t",
    "select a as x, x + 1 as y, exists (select 1 from u where u.a = t.b) as n, y - x as m from t",
    "select a, b, lag(b) over (order by a, b, s) as p, b - p as d, rank() over (order by k) as r from (select *, a % 2 as k from t) q",
    "select b * 2 as k, sum(k) over (partition by k) as n, n > 2 as m from t qualify n is not null and k < 6",
    "select a + 1 as x, x as y from t order by y, a limit 3",
    "select cast(x as date) as x, count(u.a) as n from generate_series(date '2019-12-30', date '2020-01-04', interval 1 day) as t(x) left join u on u.d = x group by 1",
    "select a, cast(m as date) as m from u, generate_series(d, date '2020-03-05', interval '1 month') as g(m)",
    "select a, cast(m as date) as m from u, range(date '2020-03-05', d, interval '-7' day) as g(m)",
    "select cast(m as date) as m from generate_series(date '2020-01-15', date '2020-06-30', interval 1 month) as g(m)",
    "select m from generate_series(timestamp '2020-01-01 00:00:00', timestamp '2020-01-01 03:00:00', interval 45 minute) as g(m)",
    "select a, g.m from u, lateral generate_series(cast(d as timestamp), timestamp '2020-01-03 12:00:00', interval '12 hours') as g(m)",
    "select cast(x as date) as x from generate_series(date '2020-01-04', date '2020-01-01', interval 1 day) as t(x)",
    "select x from generate_series(timestamp '2020-01-04 00:00:00', timestamp '2020-01-03 23:00:00', interval 1 day) as t(x)",
    "select cast(x as date) as x from range(date '2020-01-01', date '2020-01-04', interval 1 day) as t(x)",
    "select a, (select count(*) from generate_series(u.d, date '2020-01-05', interval 2 day) g(x)) as n from u",
    "select a, b from t union all by name select c as b, a from u",
    "select a, s from t union by name select d, a from u",
    "select a from t union all by name select x from v",
    "(select a, b from t) union all by name (select c, a from u) union all by name select k as b, m as z from (select a as k, m from w) q",
    "select a, (select count(*) from (select t.a as p union all by name select c as q from u) x) as n from t",
    """select distinct on ("#key0" + 1) "#key0", "#key1" from (select a as "#key0", b as "#key1" from t) order by "#key0" + 1, "#key1" * 2, "#key1" limit 3""",
    "select first(a order by b, b) as x, last(a order by b, b) as y from t",
    "select s, first(b order by a, a) as x, last(b order by a, b, a) as y from t group by s",
    "select t.a, v.k, u.c from t left join u join v on u.a = v.k on t.a = u.a",
    "select t.a, v.k, u.c from t left join (u join v on u.a = v.k) on t.a = u.a",
    "select t.a, x.b, y.b as c from t left join (t x join t y on x.a = y.a) on t.a = x.a",
    "select t.a, b.a as c, b.c as d from t full join (u b right join (v join u on u.a = v.k) on b.a = v.k) on t.a = b.a",
    "select q.a, t.b, u.c from ((select 1 as a) q join u on q.a = u.a) cross join t",
    "select * from ((t join u using (a)))",
    "select a, (select count(*) from t x left join (t y join u on y.a = u.a and u.c > t.a) on x.a = y.b) as n from t",
    "select exists (select 1 from u where u.a = t.a) as g, count(*) as n from t group by g",
    "select case when exists (select 1 from u where u.a = t.a) then 1 end as g, count(*) as n from t group by exists (select 1 from u where u.a = t.a)",
    "select (select max(c) from u where u.a = t.a) + 1 as g, count(*) as n from t group by all having (select max(c) from u where u.a = t.a) + 1 > 0",
    "select count(*) as n, grouping(exists (select 1 from u where u.a = t.a)) as h from t group by rollup (exists (select 1 from u where u.a = t.a))",
    "select (select max(c) from u where u.a = t.a) as g, (select count(*) from v where v.k = max(t.b)) as n from t group by g",
    "select (select (select sum(i.a) + sum(j.c) + sum(m.k) from v m) from u j) as x from t i",
    "select 1 as one from t having true",
    "select 1 as one, 'x' as y from t having 1 = 2",
    "select a, (select 1 from u where u.a = t.a having true) as z from t",
    "select a as k, sum(b) as s from t group by k",
    "select a as b, count(*) as n from t group by b, a",
    "select substring(s for 1) as x, substring(s from 2) as y, substring(s from 2 for 1) as z, substring('hello' for a) as w from t",
    """select t.a, f.x, f.x ->> '$.n' as n from t, unnest(('{"f": [{"n": ' || t.a || '}, {"n": null}]}') -> '$.f[*]') as f(x)""",
    """select t.a, e.key, e.value, e.type, e.atom, id, parent, fullkey, path from t, json_each('{"n": ' || t.a || ', "m k": [1, {"x": "y"}], "z": null}') as e""",
    """select t.a, e.* from t left join lateral json_each('[' || t.a || ', [true, "s"]]', '$[1]') as e(k, v) on true""",
    """select key, count(*) as n from t, json_tree('{"a": {"b": [' || t.a || ']}}') group by key""",
    """select a, j ->> '$[*]' as x, j -> '$[*]' as y, (j -> '$.a[*]')[1] as z from (select a, '["' || s || '", null, 1.25]' as j from t where s is not null) q""",
    "select a + 1 as d, b from t where d > 2",
    "select a as b, b as c from t where b = 1 and c = 2",
    "select (select u.c + 1 as a from u where a > 2 limit 1) as q from t",
    "select max(y) as z from (select t.s, (select max(y) from (select u.c + 1 as a, a + 1 as y from u) q) as y from t) r",
    "select a, (select max(v.k) from v where v.x = t.a) as m from t where m > 0 or a = 1",
    "select a + 1 as x, x * 2 as y from t where y > 3 and b is not null",
    "select a, count(*) as n, a + 1 as d from t where d > 1 group by a",
    "select s ~ '^x' as p, s !~ 'y' as q, s ~* 'X' as r, s !~* '[YZ]' as u, not s ~ 'x' as v from t",
    """select json_array_length('{"f": [1, 2]}' -> 'f') + a as x, coalesce('{"f": [1, 2]}' ->> 'g', s) as y from t""",
    "select a, x, sum(a) over (order by x desc range between 1e-1 preceding and current row) as y from (select a, cast(a / 10 as float) as x from t) q",
    "select a, x, count(a) over (order by x range 1 preceding) as z from (select a, cast(a / 10 as float) as x from t) q",
]  # fmt: skip


@pytest.fixture(scope="module")
def base():
    return connect()


@pytest.mark.parametrize("text", [*some(STATEMENTS)])
def test_a_statement_is_what_duckdb_makes_of_it(text, base):
    judged = Judged()
    assert judge(text, 1, base, judged) is None
    assert judged.compared == 1, judged.refused + judged.left


def test_a_subquery_that_equalities_tie_is_a_semijoin_with_its_table():
    """It reads no distinct rows of what is around."""
    graph = Graph({"": bound("select a from t where exists (select 1 from u where u.a = t.b and u.c > 1)")})
    assert [type(node).__name__ for node in graph.nodes() if not isinstance(node, Apply | Source)] == ["Semijoin"]
    fails = Graph({"": bound("select a from t where exists (select 1 from u where u.a = t.b and 1 / u.c > 1)")})
    assert "Threshold" in [type(node).__name__ for node in fails.nodes()], "it would fail on rows that nobody asks for"


def test_random_statements_are_what_duckdb_makes_of_them_or_refused(base):
    judged, statements = Judged(), many(15)
    draw = chance("statements")
    for seed in [draw.randrange(1 << 32) for _ in range(statements)]:
        assert judge(Statements(random.Random(seed)).statement(), seed, base, judged) is None
    assert judged.compared > statements // 2, judged.refused


def test_random_windows_are_what_duckdb_makes_of_them(base):
    judged, statements = Judged(), many(35)
    for seed in range(statements):
        assert judge(WindowStatements(chance("windows", seed)).statement(), seed, base, judged) is None
    assert judged.compared == statements, judged.refused + judged.left


def test_random_asof_joins_are_what_duckdb_makes_of_them(base):
    judged, statements = Judged(), many(35)
    for seed in range(statements):
        assert judge(AsofStatements(chance("asof", seed)).statement(), seed, base, judged) is None
    assert judged.compared == statements, judged.refused + judged.left


def test_a_not_in_that_may_meet_nulls_is_decided_for_distinct_values():
    """The rows themselves meet what is decided, by equality alone."""
    graph = Graph({"": bound("select a, s from t where b not in (select a from u)")})
    found = [node for node in graph.nodes() if isinstance(node, joins.Semijoin | joins.Join)]
    assert len([node for node in found if "s" in node.inputs[0].schema]) == 1
    assert len(found) == 4


def test_a_condition_with_a_constant_date_is_asked_before_a_join():
    for date, early in (("date '2020-01-01' + interval 1 year", 2), ("cast('2020-13-01' as date)", 1)):
        node = bound(f"select t.a from t join u on t.a = u.a where u.d < {date} and t.b > 1")
        found = [each for each in Graph({"": node}).nodes() if isinstance(each, joins.Join)]
        assert [isinstance(side, logical.Apply) for side in found[0].inputs].count(True) == early


def test_a_series_with_a_condition_is_joined_by_its_keys():
    """And not each row with each number, of which there may be many."""
    for written in (
        "join range(9) as g(i) on t.a = g.i",
        "left join unnest([1, 2]) as g(i) on t.a = g.i",
        "join range(9) as g(a) using (a)",
    ):
        found = [
            each for each in Graph({"": bound(f"select b from t {written}")}).nodes() if isinstance(each, joins.Join)
        ]
        assert [len(each.on) for each in found] == [1]


def test_a_collection_can_be_queried():
    dataflow = Dataflow()
    edges = dataflow.input("edges", {"src": "int64", "dst": "int64"})
    two = edges.sql("select a.src, b.dst from self a join others b on a.dst = b.src", others=edges).output()
    edges.insert((1, 2))
    edges.insert((2, 3))
    edges.advance_to(1)
    dataflow.step()
    assert two.updates() == [((1, 3), 0, 1)]
    with pytest.raises(UsageError, match="no collection is named `edge`") as found:
        dataflow.sql("select src\nfrom edge", edges=edges)
    assert str(found.value.span) == "query:2:6"


def test_a_recursive_table_may_begin_inside_of_an_aggregate():
    dataflow = Dataflow()
    edges = dataflow.input("edges", {"src": "int64", "dst": "int64", "w": "int64"})
    best = dataflow.sql(
        "with recursive best(node, d) as (select node, min(d) from (select 0 as node, 0 as d union all"
        " select e.dst, b.d + e.w from best b join edges e on e.src = b.node) group by node) select * from best",
        edges=edges,
    ).output()
    for edge in [(0, 1, 4), (0, 2, 1), (2, 1, 1), (1, 3, 5)]:
        edges.insert(edge)
    edges.advance_to(1)
    dataflow.step()
    assert sorted(record for record, _, _ in best.updates()) == [(0, 0), (1, 2), (2, 1), (3, 7)]


def test_an_aggregate_of_a_table_that_never_had_a_row_has_its_row():
    dataflow = Dataflow()
    t, u = (dataflow.input(name, {"a": "int64"}) for name in "tu")
    output = dataflow.sql("select count(*) as n, sum(a) as s from t", t=t).output()
    u.insert((1,))
    for session in (t, u):
        session.advance_to(1)
    dataflow.step()
    assert output.updates() == [((0, None), 0, 1)]
