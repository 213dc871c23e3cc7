"""What is not supported, or wrong, is refused at its place, with a hint."""

import pytest

from ddcli.errors import DdError
from ddcli.expressions.types import NESTED, from_polars, parse_type
from ddcli.plan import logical
from ddcli.plan.relation import Relation
from tests.cases import cases
from tests.sql.judge import bound


@cases("""
text → place → problem
select x from t → 1:8 → no column is named `x`
select a from t, u → 1:8 → `a` may be any of 2 columns
select a, b from t group by a → 1:11 → `b` may differ from row to row of a group
select *⏎from t⏎where a + 1 → 3:7 → a condition is a bool, not int64
select a from t⏎where b = (select a, c from u) → 2:19 → a subquery used as a value has one column
select a from t limit 10% → → `percent` and `with ties` are not supported
select a from t limit 10 percent → → `percent` and `with ties` are not supported
select a ** 2 as x from t → 1:13 → unexpected `2`
select () as x from t → → a row has at least one value
select a from t where () = (a, b) → → a row has at least one value
select a from t where (a, b) in (()) → → a row has at least one value
select a from t where a in () → 1:23 → `in` has no values
select a from t where (a, b) in () → → `in` has no values
select quantile_cont(a, [0.1, 5]) as x from t → 1:31 → the fraction is a number from 0 to 1
select quantile_cont(a, [0.1, b]) as x from t → 1:31 → the fraction of a quantile must be a constant
select quantile_cont(a, []) as x from t → 1:8 → a list of fractions is not empty
select to_json([(a, s)]) as x from t → 1:18 → to_json of a row without names is a list in DuckDB
select json_object('x', row(a, b)) as x from t → 1:25 → json_object of a row without names is a list in DuckDB
select max(a, 0) as x from t → 1:8 → max(x, n) takes a constant n from 1 to 999999
select min(a, b) as x from t → 1:8 → min(x, n) takes a constant n from 1 to 999999
select a from t limit b → 1:23 → `limit` and `offset` take a constant whole number
select a from t where row_number() over (order by a) = 1 → 1:23 → a window function is not allowed here
select lag(a) over () from t → 1:8 → lag needs an order
select sum(a) over (order by b rows 1 following) as n from t → → this frame ends before it begins
select sum(a) over (order by b, a range 1 preceding) as n from t → → needs an order by one key
select sum(a) over (order by s range 1 preceding) as n from t → → a string has no distances
select sum(c) over (order by c range interval '1' month preceding) as n from u → → the distance of a
select sum(a) over (order by b rows b preceding) as n from t → 1:37 → a frame's bound is a constant
select sum(a) over (order by b rows -1 preceding) as n from t → → a bound in rows is a whole number
select sum(a) over w as n from t window v as (order by a) → → no window is named `w`
select sum(a) over (w partition by b) as n from t window w as (order by a)
select sum(a) over (w order by b) as n from t window w as (order by a) → → has an order already
select sum(a ignore nulls) over (order by b) as n from t → → `ignore nulls` is not supported for sum
select sum(a) ignore nulls over (order by b) as n from t → → `ignore nulls` is not supported for sum
select rank() respect nulls over (order by b) as n from t → → `respect nulls` is not supported for rank
select lag(a ignore nulls, 2) over (order by b) as n from t → 1:12 → `a` is not supported
select abs(a) over (order by b) as n from t → → abs is not a window function
select row_number() filter (where a > 1) over () as n from t → → `filter` is not supported for row_number
select array_agg(a order by b) filter (where a > 1) over () as n from t → → `filter` is not supported for array_agg over a window
select (select sum(t.b) filter (where u.c > 1) from u) as n from t → 1:16 → sum aggregates only columns of the query around
select t.a from t where exists (select sum(t.b) from u) → 1:40 → sum aggregates only columns of the query around
select a from t group by a having exists (select 1 from u where u.c > sum(u.a)) → 1:71 → sum is not allowed here
select sum(row_number() over ()) as n from t → → a window function is not allowed here
select ntile(0) over (order by a) as n from t → → ntile takes a constant whole number from 1 on
select lag(a, 1, s) over (order by b) as n from t → → `lag` needs arguments of one type
select t.a from t asof join u on t.a = u.a → 1:29 → an as-of join pairs rows by equalities and one of `>=`
select t.a from t asof join u on t.b >= u.c and t.a > u.a → 1:29 → by equalities and one of
select t.a from t asof join u on t.b >= u.c and t.a <> u.a → 1:29 → by equalities and one of
select t.a from t asof join u on t.b >= 1 → 1:29 → by equalities and one of
select t.a from t asof right join u on t.b >= u.c → 1:35 → an as-of join is `asof join` or `asof left join`
select l.a from t l asof join t r on l.s >= r.s → → an as-of join compares numbers, dates and times, not string
select list_transform([a], lambda x, i, j: x + i) as x from t → 1:8 → takes a lambda of one or two parameters, got 3
select list_reduce([a], lambda x: x) as x from t → 1:8 → takes a lambda of two or three parameters, got 1
select list_reduce([a]) as x from t → 1:8 → list_reduce takes a list and a lambda of two parameters
select list_reduce([a], lambda x, y: 'a') as x from t → 1:38 → list_reduce needs arguments of one type, got int64 and string
select list_zip(a, [1]) as x from t → 1:17 → list_zip takes lists
select generate_series(d, d, interval '1' day) as x from u → 1:8 → generate_series takes one to three integers
select json(s)['0'] as x from t → 1:8 → `['0']` of JSON is read differently elsewhere
select json(s)[a] as x from t → → json_extract: the path is a constant text, or a position
select s.in() as x from t → → no function is named `in`
select (a = 1).and() as x from t → → no function is named `and`
select distinct on (to_years(a)) a from t → 1:21 → can't group by months
select flatten([a]) as x from t → 1:17 → flatten takes a list of lists
select regexp_split_to_array(s, 'x*') as x from t → 1:33 → a pattern that matches no empty text
select list_sort([a], 'down') as x from t → 1:8 → list_sort takes a list, a direction
select bit_and(s) as x from t → 1:16 → bit_and expects integer, got string
select a from t where b = any (values (1, 2)) → → this subquery has 2 columns
select t.a from t asof join u on t.b >= (select max(c) from u) → → has no subquery in its condition
select (select count(*) from u asof join v on u.a = t.a and u.c >= v.k) as n from t → → an as-of join pairs rows by equalities and one of `>=`
select a from t tablesample (10) → → `sample` is not supported
select a from t for update → → `locks` is not supported
select a from t qualify a = 1 → → `qualify` without a window function
select a from t window w as (partition by b) → → no function uses the window `w`
select * from t pivot (sum(a) for b in (1, 2)) → → `pivot` and `unpivot` are not supported
select a from t union select s from t → → column `a` is int64 on one side and string on the other
select a as x, b as x from t → → two columns are named `x`
select a from t join t on true → → two tables are named `t`
select a from t where max(a) > 1 → → max is not allowed here
select distinct a from t order by b limit 1 → → with `distinct`, rows are ordered by columns of the list
with recursive r(x) as (select x + 1 from r) select x from r → → has no part to begin with
with recursive r(x) as (select 1 union all select count(*) from r) select x from r → → with `union all`
select a from t semi join u on t.a in (select k from v) → 1:32 → has no subquery in its condition
select a from t anti join unnest([t.b]) r(i) on a = i → 1:35 → the right side of `anti join` can't read columns of its left side
insert into t values (1) → → this is not a query
select a from t; select b from t → → `;` ends a query, but more follows
select a from
with r as (select 1 as x), R as (select 2 as x) select * from r → 1:28 → two tables are named `R`
with r(x, x) as (select a, b from t) select * from r → 1:11 → two columns of `r` are named `x`
select 1 as y from t q(x, x) → 1:27 → two columns of `q` are named `x`
select 1 as y from t join u using (a, a) → 1:39 → `using` has the column `a` twice
select row_number() from t → 1:8 → row_number is a window function, and needs `over`
select current_date from t → 1:8 → `current_date` changes by itself
select s is true from t → 1:8 → `is true` expects a condition, got string
select a from t where 1 = any(a) → → `any` and `all` take a subquery or a list
select a from t where s like any(split(s, ',')) → → `any` and `all` take a subquery or a list
select a + any([1]) as x from t → → `any` is allowed only behind a comparison
select a + all(select 1) as x from t → → `all` is allowed only behind a comparison
select 7.5 // 2 as x from t → 1:8 → `//` takes integers, got decimal(2, 1)
select unnest([a]) as x, unnest([b]) as y from t → 1:26 → `unnest` is allowed once in a list
select sum(a) as x, unnest([1]) as y from t → 1:21 → `unnest` is allowed once in a list, and not together with groups
select (a, b) = (1, 2, 3) as x from t → 1:18 → a row of 3 values is compared with one of 2
select (with m(x, y) as (select u.c from u where u.a = t.a) select max(x) from m) as n from t → → `m` has 1 columns, and 2 names
select s::varchar[1] as x from t → 1:11 → no type is named `varchar[1]`
select null as x from t → → column `x` has no type
select 2 * interval '1 month 1 day' as x from t → → column `x` has months
select count_if(*) as x from t → 1:17 → only in count(*)
select regr_count(*) over () as x from t → 1:19 → only in count(*)
select {'a': a, 'A': 1} from t → → two fields are named `A`
select ({'a': a}).b from t → → the struct has no field `b`
select t.a.b from t → → only a struct has fields, not int64
select x.t.a from t → → a column has at most one qualifier
select t.s.n.x from t → 1:8 → only a struct has fields, not string
select t.z.n.x from t → 1:8 → no column is named `t.z`
select a from t where exists (select 1 from u where t.z.n.x = u.a) → 1:53 → no column is named `t.z`
select a from t where exists (with recursive r(n) as (select t.a union select n + 1 from r where n < 4) select n from r) → 1:62 → can't read `t.a` of the outer query
select {'a': a} < {'b': 1} as x from t → → `<` needs arguments of one type, got struct[a: int64?] and struct[b: int64?]
select {'a': null} as x from t → → column `x` has no type
select list_transform([a], lambda x: list_transform([b], lambda y: list_transform([a], lambda z: x + y + z))) as x from t → → lambdas are nested more than two deep
select regexp_extract_all('baac', 'a*') as x from t → → all matches need a pattern that matches no empty text
select sort_key(a) as x from t → → sort_key takes a list or a struct
select {'': a} as x from t → 1:13 → the name of a field is a constant text
select {'a\0b': a} as x from t → → the name of a field is a constant text
select array_to_string([a], ',') as x from t → 1:25 → array_to_string joins texts, got list[int64?]
select p.s as z, p.i as y from n group by p.i → 1:8 → `p.s` may differ from row to row of a group
select n.p.s as z from n group by n.p.i → 1:8 → `n.p.s` may differ from row to row of a group
select percentile_cont(0.5) within group (order by a desc) as x from t → 1:8 → `within group` is not allowed behind this
select x + 1 as y, y as x from t → 1:8 → no column is named `x`
select row_number() over (order by a) as r, sum(r) over () as n from t → → `r` has a window function, which is not allowed here
select x from generate_series(date '2020-01-01', date '2020-02-01', interval 0 day) as g(x) → 1:15 → the interval of generate_series is 0
select x from generate_series(1, 2, interval 1 day) as g(x) → 1:15 → takes two dates or timestamps and a constant interval
select a, b as A from t union by name select a from u → → a side of `by name` has two columns of one name
select a from t union by name select s as a from t → → column `a` is int64 on one side and string on the other
select [x + 1 for x, i in [a]] as l from t → → a lambda is not allowed here
select list_transform([a], lambda x: sum(x)) as l from t → 1:42 → `x` is the parameter of a lambda, which no aggregate, window or subquery reads
select list_transform([a], lambda x: (select max(x) from u)) as l from t → → which no aggregate, window or subquery reads
select list_filter([a], lambda x: x + 1) as l from t → 1:8 → list_filter expects a condition, got int64
select list_filter([a], lambda x, i, j: x > i) as l from t → 1:8 → list_filter takes a lambda of one or two parameters, got 3
select list_filter(a, lambda x: x > 1) as l from t → 1:20 → list_filter expects a list, got int64
select list_transform([a], lambda x: abs(abs(abs(abs(abs(abs(abs(abs(abs(x)))))))))) as l from t → → nested more than 8 deep
select abs(lambda x: x) as l from t → 1:12 → a lambda is not allowed here
select s.upper(1) as l from t → 1:8 → upper takes 1 argument, got 2
select s.shout() as l from t → 1:8 → no function is named `shout`
select age(d, d) as x from u → 1:8 → no function is named `age`
select corr(a, s) as x from t → 1:16 → corr expects numbers, got string
select array_agg(distinct a order by b) as x from t → 1:8 → different values are ordered by themselves
select list_sum([s]) as x from t → 1:18 → list_sum takes a list of numbers
select strptime(s, '%d.%m') as x from t → 1:20 → strptime: the format must have one year: %Y or %y
select a, strftime(d, null) as x from u → 1:11 → strftime: `format` can't be null
pivot t on a using sum(b) → → `pivot` and `unpivot` are not supported
select a from t join using on a = b → 1:22 → expected a table name near `using`
select `a` from t → 1:10 → unexpected backtick
select 1 as y from t, u T → → two tables are named
select row_number() over (order by a) as r from t where r = 1 → 1:57 → `r` has a window function, which is not allowed here
select count(*) as n from t where n > 1 → 1:35 → `n` has an aggregate, which is not allowed here
select 1_000 from t → 1:9 → `1_000` is not a number
select a + 0x1F from t → 1:13 → `0x1F` is not a number
select t.a from t join u → 1:24 → a join needs `on` or `using`
select t.a from t left join u → 1:29 → a join needs `on` or `using`
select c from t positional join u → 1:33 → a join needs `on` or `using`
select c from t cross join u on b = c → 1:28 → a `cross join` has no condition
select c from t natural join u on b = c → 1:30 → a `natural join` has no condition
select c from t outer join u on b = c → 1:28 → `outer join` is not supported
select c from t left inner join u on b = c → 1:33 → `left inner join` is not supported
select c from t right semi join u on b = c → 1:33 → `right semi join` is not supported
select t.a from t left join (u cross join unnest([1]) as l(i)) on i = b → → `lateral` and `unnest` are not supported in the joins on the right side
with recursive r as (select 1 as l union select max(l) + 1 from r having max(l) < 4) select * from r → → with `union`, a recursive part has no windows
with recursive r as (select 1 as l union (select l + 1 from r where l < 4 limit 1)) select * from r → → with `union`, a recursive part has no windows
with recursive r as (select 1 as l union select l + 1 from r where l not in (select r.l from r)) select * from r → → with `union`, a recursive part has no windows
with recursive r as (select 1 as l union select l + 1 from r where not exists (select 1 from r q where q.l > 3)) select * from r → → with `union`, a recursive part has no windows
with recursive r as (select 1 as l union select rank() over (order by l) from r) select * from r → → with `union`, a recursive part has no windows
with recursive r as (select 1 as l union select t.a from t left join r on t.a = r.l) select * from r → → with `union`, a recursive part has no windows
with recursive r as (select 1 as l union (select a from t except select l from r)) select * from r → → with `union`, a recursive part has no windows
with recursive r as (select 1 as l union select (select l from r limit 1) + 1 from r where l < 4) select * from r → → with `union`, a recursive part has no windows
with recursive r as (select 1 as l union select l + 1 from r where l < 3 limit 1) select * from r → → a recursive table has no `order by`
with recursive r as (select 1 as l union all select l + count(*) over () from r where l < 3) select * from r → → with `union all`, a recursive part is a plain `select`
with recursive r as (select 1 as l union all select l + 1 from r where l < 3 qualify rank() over (order by l) = 1) select * from r → → with `union all`, a recursive part is a plain `select`
select array(select c from u where u.a = t.a) as x from t → 1:8 → `array(select ...)` needs an order
select array(select distinct c from u order by a) as x from t → 1:8 → `array(select ...)` needs an order
select map {'a': a} as x from t → 1:8 → maps are not supported
select {1: a} as x from t → 1:9 → a field is written with its name
select a,, b from t → 1:10 → a value is missing between these commas
select sum(a) export_state from t → 1:15 → `export_state` is not supported
select grouping(AS64) as g from t group by rollup (a) → 1:8 → grouping takes at most 63 expressions
select count(*) as n from t group by cube (a, b, s, a, b, s, a) → 1:44 → more than 64 sets of columns are grouped by
select (select min(u.a) from u group by grouping sets (t.a, u.a)) as m from t → → grouping sets can't have a column of the query around this one
select sum(a) over w as n from t window w as (order by a), W as (order by b) → → two windows are named
""")
def test_a_mistake_is_refused_at_its_place(text, place, problem):
    with pytest.raises(DdError) as found:
        bound(text.replace("AS64", ", ".join("a" * 64)))
    assert problem in found.value.problem
    if place:
        assert str(found.value.span).partition(":")[2] == place


def test_a_hint_says_what_to_write():
    hints = {
        "select encipher(s) from t": None,
        "select decode(a, 1, 2) from t": "write case x when",
        "select lenth(s) from t": "did you mean `length`?",
        "select string_agg(a, ',' order by a) from t": "cast it: cast(a as string)",
        "select to_char(c, 'YYYY') from u": "write strftime(",
        "select to_date(s, 'YYYY') from t": "write cast(strptime(",
        "select approx_quantile(a, 0.5) from t": "results here are exact",
        "select list_reduce(l, 1) from t": "list_reduce(x, lambda a, e: a + e)",
        "select aggregate(l, 1) from t": "write list_reduce(x, lambda a, e: a + e, first)",
        "select `a` from t": 'names go in double quotes: "name"',
        "select row_number() over (order by a) as r from t where r = 1": "write `qualify` instead of `where`",
        "select count(*) as n from t where n > 1": "write `having` instead of `where`",
        "select x from t, unnest(s) u(x)": "split(text, ',') makes a list; of a list in a JSON text write",
        "select explode([a]) from t": "write `from t, unnest(t.list) as e(x)`",
        "select c from t positional join u": "`cross join` pairs each row with each; the table before it is named `positional`",
        "selct a from t": "did you mean `select` instead of `selct`?",
        "select a form t": "did you mean `from` instead of `form`?",
        "select a from t wher a = 1": "did you mean `where` instead of `wher`?",
        "select a from t group a": "write `group by`",
        "select a + from t": None,
        "select a from t join using on a = b": 'a name that is a keyword goes in double quotes: "using"',
    }
    for text, hint in hints.items():
        with pytest.raises(DdError) as found:
            bound(text)
        assert (found.value.hint or "").startswith(hint or ""), text
        assert bool(found.value.hint) == bool(hint)


def test_a_column_without_a_name_has_its_text_as_one():
    texts = ["max(a) filter (where a > 1)", "rank() over (order by count(*))", "[max(a)]", "(max(a))", "max(a)::string"]
    texts.append(" + ".join(["max(a)"] * 20))
    assert list(bound(f"select {', '.join(texts)} from t").schema) == texts


def test_a_column_of_an_input_may_be_nothing_but_null():
    rows = Relation(logical.Source((), {"a": parse_type("int64"), "n": parse_type("null?")}, "x"))
    assert str(bound("select n, a from (select * from x where n is null)", {"x": rows}).schema["n"]) == "null?"


def test_deep_queries_are_bound():
    inner = "select a from t"
    for _ in range(30):
        inner = f"select a from t where a in ({inner}) and exists (select 1 from u where u.a = t.a)"
    assert list(bound(inner).schema) == ["a"]
    assert list(bound(" union ".join(["select a from t"] * 300)).schema) == ["a"]


def test_structs_are_made_as_deep_as_files_of_them_are_read():
    made = "a"
    for _ in range(NESTED):
        made = f"{{'x': {made}}}"
    kind = bound(f"select {made} as x from t").schema["x"]
    assert parse_type(str(kind)) == kind
    assert from_polars(kind.to_polars(), nullable=kind.nullable) == kind
    for deeper in (f"{{'x': {made}}}", f"[{made}]"):
        with pytest.raises(DdError) as found:
            bound(f"select {deeper} as x from t")
        assert found.value.problem == "lists and structs may be at most 32 deep inside each other"


def test_a_struct_has_any_number_of_fields_of_types_in_brackets():
    kind = parse_type(f"struct[{', '.join(f'd{at}: decimal(9, 2)?, t{at}: datetime[us]?' for at in range(40))}]?")
    assert kind is not None
    assert parse_type(str(kind)) == kind
