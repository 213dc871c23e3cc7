"""Replacements for functions of other databases that the table lacks, by their names."""

from __future__ import annotations

WRITTEN = "write strftime(day, '%d.%m.%Y'); `cast(day as string)` is '2024-01-31'"
READ = "write cast(strptime(text, '%d.%m.%Y') as date), or cast(text as date) where it is '2024-01-31'"
PARSED = "write strptime(text, '%d.%m.%Y %H:%M:%S'), or cast(text as timestamp) where it is '2024-01-31 10:20:30'"
COUNTED = "write timestamp '1970-01-01 00:00:00' + interval '1' second * n, and of a timestamp epoch(t)"
EACH = "put the elements into rows: `from t, unnest(t.list) as e(x)`, then sum(x) or array_agg(x order by x) by the key"
JSON = """from_json(x, '{"a": "INT"}') makes a struct or a list of it, `x ->> '$.a'` a text"""
EXACT = "results here are exact: median(x), quantile_cont(x, 0.5), count(distinct x)"

INSTEAD: dict[str, str] = {
    **dict.fromkeys(["to_char", "date_format", "format_date", "format_datetime", "format_timestamp"], WRITTEN),
    **dict.fromkeys(["to_date", "str_to_date", "parse_date"], READ),
    "to_timestamp": f"of a number of seconds write timestamp '1970-01-01 00:00:00' + n * interval '1' second; of a text {PARSED.removeprefix('write ')}",
    **dict.fromkeys(["parse_timestamp", "parse_datetime"], PARSED),
    "columns": "name the columns; `* exclude (a)` leaves some out, `* replace (f(a) as a)` computes one",
    **dict.fromkeys(["from_unixtime", "unix_timestamp", "to_unixtime", "timestamp_seconds"], COUNTED),
    **dict.fromkeys(["list_transform", "array_transform", "transform", "list_apply", "list_filter", "filter"], EACH),
    **dict.fromkeys(["array_filter", "list_reduce", "array_reduce", "reduce", "aggregate"], EACH),
    **dict.fromkeys(["json_value", "json_query", "parse_json", "json_table", "json_tuple"], JSON),
    **dict.fromkeys(["approx_quantile", "approx_percentile", "percentile_approx", "approx_top_k"], EXACT),
    **dict.fromkeys(["collect_list", "array_collect"], "write array_agg(x order by y)"),
    "collect_set": "write array_agg(distinct x order by x)",
    **dict.fromkeys(["unicode", "ord"], "write ascii(text), which is 0 of an empty text"),
    "to_hex": "write hex(x), or lower(hex(x)) for small letters",
    **dict.fromkeys(["dateadd", "timestampadd"], "write day + interval '1' month"),
    **dict.fromkeys(["timestampdiff", "days_between", "months_between", "age"], "write date_diff('day', a, b)"),
    **dict.fromkeys(["logical_and", "logical_or"], "write bool_and(x) or bool_or(x)"),
    **dict.fromkeys(
        ["bit_xor", "bit_and", "bit_or"],
        "no aggregate of bits is maintained; of two numbers write xor(a, b), a & b or a | b",
    ),
    **dict.fromkeys(
        ["explode", "posexplode", "flatten"], "write `from t, unnest(t.list) as e(x)`, a row for each element"
    ),
    "decode": "write case x when 1 then 'a' else 'b' end",
    "sum_if": "write sum(x) filter (where condition)",
    "avg_if": "write avg(x) filter (where condition)",
    "regexp_full_match": "write regexp_like(text, '^(?:pattern)$')",
    "zeroifnull": "write coalesce(x, 0)",
    "typeof": "`dd check -o json` prints the types of the columns",
}
