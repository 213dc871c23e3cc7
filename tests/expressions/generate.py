"""Random well-typed expressions, as text, and random rows for them to be evaluated on."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

from hypothesis import strategies as st

COLUMNS = {
    "i": "int64",
    "j": "int64?",
    "k": "int8",
    "u": "uint64?",
    "f": "float64",
    "g": "float64?",
    "d": "decimal(12, 2)",
    "e": "decimal(38, 6)?",
    "s": "string",
    "t": "string?",
    "b": "bool",
    "c": "bool?",
    "day": "date",
    "at": "datetime[us]?",
    "clock": "time",
    "span": "duration[us]?",
    "xs": "list[string]?",
    "st": "struct[n: int64?, t: string?]?",
    "nested": "struct[inner: struct[x: float64?]?, l: list[int64?]?]",
}

INTEGERS = [0, 1, -1, 2, 3, 7, -8, 10, 2**31, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1]
FLOATS = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.1,
    1e308,
    -1e308,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
    3.0,
    1e16,
    2.0**63,
]
TEXTS = [
    "",
    "a",
    "b",
    "abc",
    "aXb",
    "ñandú",
    "e\u0301",
    "🙂x",
    " 5 ",
    "12",
    "-7",
    "1.255",
    "-0.5",
    "1e3",
    "true",
    "x,y,,z",
    "nan",
    "%_",
]
TEXTS += ["1e400", "-1e39", "0000-01-01", "9999-12-31", "0000-12-31 23:59:59"]
TEXTS += ["2013-01-31", "2013-02-30", "2013-01-31 10:20:30.5", "07:08:09", "99999999999999999999", "A\nb", "abcabc"]


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    small = st.integers(-1000, 1000)
    near = 6 * 10 ** (precision - 5)  # fits with four digits more, and twice it does not
    return st.one_of(small, st.sampled_from([most, -most, 0, 5, -5, near]), st.integers(-most, most)).map(
        lambda n: Decimal(f"{n}e-{scale}")
    )


MOMENTS = st.datetimes(dt.datetime.fromisoformat("1900-01-01"), dt.datetime.fromisoformat("2100-01-01"))
ENDS = [dt.datetime.fromisoformat("0001-01-01"), dt.datetime.fromisoformat("9999-12-31 23:59:59.999999")]
VALUES: dict[str, st.SearchStrategy[object]] = {
    "int64": st.one_of(st.integers(-5, 5), st.sampled_from(INTEGERS), st.integers(-(2**63), 2**63 - 1)),
    "int8": st.integers(-128, 127),
    "uint64": st.sampled_from([0, 1, 5, 2**63 - 1, 2**63, 2**64 - 1]),
    "float64": st.one_of(st.sampled_from(FLOATS), st.floats(-1000, 1000)),
    "decimal(12, 2)": _decimals(12, 2),
    "decimal(38, 6)": _decimals(38, 6),
    "string": st.sampled_from(TEXTS),
    "bool": st.booleans(),
    "date": st.one_of(st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)), st.sampled_from([dt.date.min, dt.date.max])),
    "datetime[us]": st.one_of(MOMENTS, st.sampled_from(ENDS)),
    "time": st.times(),
    "duration[us]": st.timedeltas(dt.timedelta(days=-400), dt.timedelta(days=400)),
    "list[string]": st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "12"])), max_size=3),
}
VALUES["struct[n: int64?, t: string?]"] = st.fixed_dictionaries(
    {"n": st.sampled_from([None, 0, 1, 7]), "t": st.sampled_from([None, "a", "12"])}
).map(lambda drawn: {name: drawn[name] for name in ("n", "t")})
VALUES["struct[inner: struct[x: float64?]?, l: list[int64?]?]"] = st.fixed_dictionaries(
    {
        "inner": st.sampled_from([None, {"x": None}, {"x": 0.5}, {"x": math.nan}]),
        "l": st.sampled_from([None, [], [1, None]]),
    }
).map(lambda drawn: {name: drawn[name] for name in ("inner", "l")})


def rows() -> st.SearchStrategy[dict[str, object]]:
    """Return a strategy of records of all the columns, structs with their fields in the order of the type."""
    values = {}
    for name, type_ in COLUMNS.items():
        some = VALUES[type_.removesuffix("?")]
        values[name] = st.one_of(st.none(), some, some, some) if type_.endswith("?") else some
    return st.fixed_dictionaries(values)


def _call(draw: st.DrawFn, form: str, depth: int) -> str:
    """Fill the `{kind}` places of a form with smaller expressions."""
    out, rest = "", form
    while "{" in rest:
        before, _, rest = rest.partition("{")
        kind, _, rest = rest.partition("}")
        out += before + draw(expressions(kind, depth - 1))
    return out + rest


LEAVES = {
    "int": ["i", "j", "k", "1", "0", "-3", "7", "9223372036854775807"],
    "float": ["f", "g", "1.5e0", "0e0", "1e300", "cast('nan' as float64)"],
    "decimal": ["d", "e", "1.5", "0.0", "0.005", "-2.50"],
    "text": ["s", "t", "'a'", "''", "'x,y'", "'12'"],
    "bool": ["b", "c", "true", "false"],
    "date": ["day", "date '2013-01-31'"],
    "moment": ["at", "timestamp '2013-01-31 10:20:30.5'"],
    "clock": ["clock", "time '07:08:09'"],
    "span": ["span", "interval '3' hour", "interval '-2' day"],
    "list": ["xs", "['a', 'b']"],
    "unsigned": ["u"],
    "json": [
        """'{"a": [1, "x", null, 2.50], "b": {"a": "ñ"}}'""",
        """'[true, {"a": 1e3}]'""",
        """'{"a": "12", "b": null}'""",
    ],
    "struct": ["st", "st", "named_struct('n', 1, 't', 'a')", "{'n': 0, 't': null}"],
    "struct of a float": ["nested.inner", "{'x': 0.5e0}"],
}
NUMERIC = ["({%s} + {%s})", "({%s} - {%s})", "({%s} * {%s})", "abs({%s})", "(- {%s})"]
ANY = ["coalesce({%s}, {%s})", "case when {bool} then {%s} else {%s} end", "nullif({%s}, {%s})", "greatest({%s}, {%s})"]
ANY += ["least({%s}, {%s})", "case when {bool} then {%s} when {bool} then {%s} end"]


def _forms(kind: str, forms: list[str]) -> list[str]:
    return [form.replace("%s", kind) for form in forms]


FORMS = {
    "int": [
        *_forms("int", NUMERIC + ANY),
        "({int} // {int})",
        "({int} % {int})",
        "try_add({int}, {int})",
        "try_multiply({int}, {int})",
        "cast({float} as int64)",
        "cast({decimal} as int64)",
        "try_cast({text} as int64)",
        "cast({text} as int64)",
        "cast({bool} as int64)",
        "try_cast({int} as tinyint)",
        "round({int}, -1)",
        "({unsigned} + {int})",
        "sign({decimal})",
        "sign({float})",
        "({int} & {int})",
        "({int} | {int})",
        "xor({int}, {int})",
        "(~ {int})",
        "({int} << {int})",
        "(k << 3)",
        "({int} >> {int})",
        "bit_count({int})",
        "list_reduce([{int}, {int}, {int}], lambda a, n: a % (n + 1) + j % n)",
        "list_sum([k % (n + 1) + i % n for n in [{int}, {int}] if n // i >= j // n])",
        "ascii({text})",
        "isoyear({date})",
        "yearweek({moment})",
        "decade({moment})",
        "extract(century from {date})",
        "date_part('millennium', {date})",
        "extract(milliseconds from {clock})",
        "microsecond({moment})",
        "list_position({list}, {text})",
        "json_array_length({json}, '$.a')",
        """from_json({json}, '["BIGINT"]')[2]""",
        """from_json({json}, '["TINYINT"]')[2]""",
        "json_array_length({json})",
        "cardinality(json_keys({json}))",
        "json_each({json})[2].id",
        "json_tree({json}, '$.a')[-1].parent",
        "list_position([{int}, {int}], {int})",
        "length({text})",
        "strpos({text}, {text})",
        "octet_length({text})",
        "bit_length({text})",
        "locate({text}, {text})",
        "regexp_count({text}, '[a-z]')",
        "date_part('month', {moment})",
        "date_diff('month', {moment}, {moment})",
        "date_diff('quarter', {date}, {moment})",
        "date_sub('year', {moment}, {date})",
        "epoch_ms({moment})",
        "epoch_us({moment})",
        "list_count({list})",
        "list_sum([{int}, k, null])",
        "list_aggregate([{int}, {int}], 'sum')",
        "list_unique({list})",
        "list_max([{int}, {int}, null])",
        "nvl2({text}, {int}, {int})",
        "iif({bool}, {int}, {int})",
        "({struct}).n",
        "struct_extract({struct}, 'n')",
        "nested.l[k]",
        "cardinality({list})",
        "extract(year from {date})",
        "extract(dow from {moment})",
        "week({date})",
        "quarter({moment})",
        "doy({date})",
        "hour({clock})",
        "date_diff('day', {date}, {moment})",
        "date_diff('week', {date}, {moment})",
        "date_diff('millisecond', {moment}, {moment})",
        "date_sub('month', {moment}, {date})",
        "date_sub('hour', {moment}, {moment})",
        "({date} - {date})",
        "case {int} when {int} then {int} else {int} end",
    ],
    "float": [
        *_forms("float", NUMERIC + ANY),
        "({float} / {float})",
        "({float} % {float})",
        "({int} / {int})",
        "try_divide({int}, {int})",
        "({int} + {float})",
        "({decimal} * {float})",
        "cast({int} as float64)",
        "try_cast({text} as float64)",
        "sqrt({float})",
        "({struct of a float}).x",
        "power({float}, {int})",
        "exp({float})",
        "ln({float})",
        "round({float}, 1)",
        "round({float})",
        "floor({float})",
        "ceil({float})",
        "trunc({float}, 1)",
        "epoch({moment})",
        "seconds({span})",
        "cast(cast({float} as float32) as float64)",
        "cast(cast({text} as float32) as float64)",
        "try_divide({float}, {float})",
        "log2({float})",
        "cbrt({float})",
        "sin({float})",
        "cos({float})",
        "tan({float})",
        "asin({float})",
        "acos({float})",
        "atan({float})",
        "degrees({float})",
        "radians({int})",
        "list_min([{float}, {float}])",
        "list_sum([{float}, {float}, {float}])",
        "list_avg([{float}, {float}])",
        "list_avg([{int}, {int}, null])",
        "list_avg([{decimal}, {decimal}])",
        "list_max([{float}, {float}])",
    ],
    "decimal": [
        *_forms("decimal", NUMERIC + ANY),
        "({decimal} / {decimal})",
        "({decimal} % {decimal})",
        "list_sum([{decimal}, {decimal}, {decimal}])",
        "({int} + {decimal})",
        "({decimal} / {int})",
        "cast({int} as decimal(10, 1))",
        "try_cast({float} as decimal(20, 2))",
        "try_cast({text} as decimal(10, 2))",
        "cast({decimal} as decimal(9, 1))",
        "cast({decimal} as decimal(38, 10))",
        "cast({float} as hugeint)",
        "({decimal} + cast({decimal} as decimal(38, 10)))",
        "round({decimal}, 1)",
        "floor({decimal})",
        "ceil({decimal})",
        "trunc({decimal}, 1)",
        "round({decimal}, -1)",
        "try_divide({decimal}, {decimal})",
    ],
    "text": [
        *_forms("text", ANY),
        "({text} || {text})",
        "concat({text}, {int})",
        "cast({decimal} as string)",
        "cast({float} as string)",
        "cast({bool} as string)",
        "cast({date} as string)",
        "cast({moment} as string)",
        "cast({clock} as string)",
        "({json} ->> 'a')",
        "({json} -> '$.a[1]')",
        "get_json_object({json}, '$.b.a')",
        "json_type({json})",
        "to_json({text})",
        "to_json({list})",
        "json_array({int}, {text}, ({json} -> 'a'))",
        """from_json({json}, '["VARCHAR"]')[1]""",
        "get_json_object({text}, '$')",
        "json_extract_string({json}, '$[0]')",
        "hex({int})",
        "hex({text})",
        "bin({int})",
        "chr({int})",
        "upper({text})",
        "lower({text})",
        "concat_ws('-', {text}, {int}, {bool})",
        "repeat({text}, k)",
        "repeat({text}, {int})",
        "space(k)",
        "translate({text}, 'abca', 'xé')",
        "initcap({text})",
        "md5({text})",
        "sha256({text})",
        "strftime({date}, '%d.%m.%Y %j %A %a %B %b %y')",
        "strftime({moment}, '%Y-%m-%dT%H:%M:%S.%f%% %I %p')",
        "dayname({moment})",
        "monthname({date})",
        "array_to_string({list}, '+')",
        "list_min({list})",
        "trim({text})",
        "ltrim({text}, 'ab')",
        "rtrim({text}, 'ab')",
        "substring({text}, {int})",
        "substring({text}, {int}, {int})",
        "replace({text}, {text}, {text})",
        "replace({text}, 'a', 'é$1')",
        "lpad({text}, 4, '*')",
        "rpad({text}, 2)",
        "left({text}, k)",
        "split_part({text}, {text}, k)",
        "right({text}, k)",
        "reverse({text})",
        "element({list}, {int})",
        "({struct})['t']",
        "st.T",
        "({text})[k]",
        "({text})[k:2]",
        "({text})[:k]",
        "regexp_replace({text}, '([a-z])', '<\\1>')",
        "regexp_replace({text}, '\\W|\\d', '_', 'g')",
        "regexp_extract({text}, '\\s*\\w\\S+')",
        "regexp_extract({text}, '([a-z])([a-z])', 2)",
    ],
    "bool": [
        *_forms("bool", ANY),
        "({bool} and {bool})",
        "({bool} or {bool})",
        "(not {bool})",
        *(
            f"({{{kind}}} {op} {{{kind}}})"
            for kind in ("int", "float", "decimal", "text", "date")
            for op in ("=", "<", ">=", "<>")
        ),
        "({int} < {float})",
        "({unsigned} > {int})",
        "({int} = {decimal})",
        "({moment} < {date})",
        "({clock} = {clock})",
        "({span} > {span})",
        "({float} is not distinct from {float})",
        "({text} is distinct from {text})",
        "({int} is null)",
        "({bool} is not true)",
        "({struct} is null)",
        *(
            f"({{{kind}}} {op} {{{kind}}})"
            for kind in ("struct", "struct of a float")
            for op in ("=", "<>", "is distinct from", "is not distinct from")
        ),
        "({int} in ({int}, 1, 2))",
        "({float} in (0e0, 1.5e0, cast('nan' as float64)))",
        "({text} not in ('a', 'b'))",
        "({int} between {int} and {int})",
        "({text} like 'a%')",
        "({text} like '%b%')",
        "({text} like 'a_b')",
        "({text} like '!%!_' escape '!')",
        "({text} ilike '%B')",
        "starts_with({text}, {text})",
        "ends_with({text}, {text})",
        "contains({text}, {text})",
        "regexp_like({text}, '^[a-z]+$')",
        "array_contains({list}, {text})",
        "is_nan({float})",
        "is_inf({float})",
        "is_finite({float})",
        "isnull({int})",
        "isnotnull({list})",
        "list_has_any({list}, {list})",
        "list_has_all({list}, {list})",
        "try_cast({text} as bool)",
        "json_valid({text})",
        "json_valid({json})",
        "json_exists({json}, '$.a')",
        "json_contains({json}, {json})",
        "sort_key({list}) < sort_key({list})",
        "({list} = {list})",
    ],
    "date": [
        *_forms("date", ANY),
        "try_cast({text} as date)",
        "cast({moment} as date)",
        "cast({date} + interval '30' day as date)",
        "cast({date} - interval '1' month as date)",
        "cast({date} + {int} * interval '1' month as date)",
        "cast(k * interval '1' year * 2 + {date} as date)",
        "({date} + 3000000)",
        "({date} - k)",
        "add_months({date}, {int})",
        "add_months({date}, k)",
        "cast(date_trunc('quarter', {date}) as date)",
        "add_days({date}, k)",
        "date_add({date}, {int})",
        "date_sub({date}, k)",
        "last_day({moment})",
        "time_bucket(interval '11' day, {date})",
        "time_bucket(interval '7' hour, {date})",
        "last_day({date})",
        "make_date(2013, {int}, k)",
        "make_date({int}, 1, 1)",
    ],
    "moment": [
        *_forms("moment", ANY),
        "try_cast({text} as timestamp)",
        "cast({date} as timestamp)",
        "({moment} + {span})",
        "({moment} - interval '13' month)",
        "({moment} - interval '100000' week)",
        "({date} + interval '36' hour)",
        "({date} + interval '3' day)",
        "({date} + {clock})",
        "({clock} + {date})",
        "({date} - interval '1 month -2 days 03:04:05.5')",
        "({moment} + {int} * (interval '36.5 hours' - interval '1' month))",
        "date_sub({date}, interval '1' month)",
        "date_trunc('week', {date})",
        "date_trunc('hour', {moment})",
        "add_days({moment}, {int})",
        "date_add({moment}, {span})",
        "time_bucket(interval '15' minute, {moment})",
        "date_trunc('week', {moment})",
        "strptime(strftime({moment}, '%d.%m.%Y %H:%M:%S.%f'), '%d.%m.%Y %H:%M:%S.%f')",
        "strptime(strftime({moment}, '%y %b %d, %I%p'), '%y %b %d, %I%p')",
        "strptime({text}, '%Y%m%d')",
        "try_strptime(cast({moment} as string), '%F %T')",
        "try_strptime(cast({int} as string) || '-' || cast({int} as string) || '-2024', '%m-%d-%Y')",
    ],
    "clock": [
        *_forms("clock", ANY),
        "cast({moment} as time)",
        "try_cast({text} as time)",
        "({clock} + {span})",
        "({span} + {clock})",
        "({clock} - {span})",
        "({clock} - {int} * interval '1' month)",
        "({clock} + interval '1 month 90 mins ago')",
    ],
    "span": [
        *_forms("span", ANY),
        "({span} + {span})",
        "({moment} - {moment})",
        "({date} - {moment})",
        "({span} * 3)",
        "({span} / k)",
        "({span} / -7)",
        "(0.3 * {span})",
        "({span} / {float})",
    ],
    "list": [
        "list_concat({list}, {list})",
        "list_append({list}, {text})",
        "list_prepend({text}, {list})",
        "list_reverse({list})",
        "({list})[{int}:{int}:2]",
        "({list})[{int}:{int}:-1]",
        "({list})[:-:-2]",
        "list_intersect({list}, {list})",
        "list_except({list}, {list})",
        "list_sort({list})",
        "list_distinct({list})",
        "split({text}, ',')",
        "split({text}, {text})",
        "[{text}, {text}]",
        "coalesce({list}, {list})",
    ],
    "json": [
        *_forms("json", ANY),
        "concat('[', {int}, ',\"', {int}, '\"]')",
        "concat(chr(123), '\"a\": \"', {text}, '\"', chr(125))",
        "({json} -> 'b')",
        "json_merge_patch({json}, {json})",
        "json_object('a', ({json} -> 'a'), 'b', {text}, 'c', {int}, 'd', {date})",
        "json({json})",
        "coalesce({text}, {json})",
    ],
    "unsigned": ["coalesce({unsigned}, {unsigned})", "try_cast({int} as uint64)"],
    "struct": [
        "coalesce({struct}, {struct})",
        "case when {bool} then {struct} else {struct} end",
        "named_struct('n', {int}, 't', {text})",
        "struct_pack(n := {int}, t := null)",
        "element([{struct}, {struct}], {int})",
    ],
    "struct of a float": [
        "named_struct('x', {float})",
        "case when {bool} then {struct of a float} else {struct of a float} end",
        "named_struct('y', {struct of a float}).y",
    ],
}


@st.composite
def expressions(draw: st.DrawFn, kind: str, depth: int) -> str:
    """Return an expression of a kind."""
    if depth <= 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(LEAVES[kind]))
    return _call(draw, draw(st.sampled_from(FORMS[kind])), depth)


def any_expression(depth: int = 3) -> st.SearchStrategy[str]:
    """Return a strategy of expressions of every kind."""
    return st.sampled_from(sorted(FORMS)).flatmap(lambda kind: expressions(kind, depth))
