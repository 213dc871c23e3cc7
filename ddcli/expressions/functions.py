"""The table of functions: every name that an expression may call, with its meaning.

The table is data: documentation is generated from it, each example is a test, and a name that is not here is an error,
never handed to an engine. Operators are in it under their signs.
"""

from __future__ import annotations

from ddcli.expressions import operators as rules
from ddcli.expressions.function import Function, derived, plain, ruled
from ddcli.expressions.list_functions import LISTS, STRUCTS
from ddcli.expressions.number_functions import ARITHMETIC, BITS
from ddcli.expressions.text_functions import JSON, TEXT
from ddcli.expressions.time_functions import PART_SYNONYMS, TIME

CONDITIONS = [
    ruled(
        "=",
        "a = b",
        "Equality. NaN equals NaN, -0.0 equals 0.0; null when a side is.",
        "1 = 1",
        "true",
        rules.comparison,
    ),
    ruled("<>", "a <> b", "Not equal.", "1 <> 1", "false", rules.comparison),
    ruled("<", "a < b", "Less. NaN is above every number; text by code points.", "'a' < 'b'", "true", rules.comparison),
    ruled("<=", "a <= b", "Less or equal.", "1 <= 1", "true", rules.comparison),
    ruled(">", "a > b", "Greater.", "cast('nan' as float64) > 1e308", "true", rules.comparison),
    ruled(">=", "a >= b", "Greater or equal.", "1 >= null", "null", rules.comparison),
    ruled(
        "is distinct from",
        "a is distinct from b",
        "Not equal, null being a value like any other; never null.",
        "1 is distinct from null",
        "true",
        rules.comparison,
    ),
    ruled(
        "is not distinct from",
        "a is not distinct from b",
        "Equal, null being equal to null.",
        "null is not distinct from null",
        "true",
        rules.comparison,
    ),
    ruled("is null", "a is [not] null", "Whether the value is missing.", "1 is null", "false", rules.is_null),
    ruled(
        "in",
        "a in (b, ...)",
        "Whether a equals one of the list; null if unknown.",
        "2 in (1, 2)",
        "true",
        rules.membership,
    ),
    ruled(
        "and",
        "a and b",
        "Three-valued. The right side is not evaluated where the left is false.",
        "false and null",
        "false",
        rules.logic,
    ),
    ruled(
        "or",
        "a or b",
        "Three-valued. The right side is not evaluated where the left is true.",
        "true or null",
        "true",
        rules.logic,
    ),
    ruled("not", "not a", "Negation; null stays null.", "not true", "false", rules.logic),
    ruled(
        "coalesce",
        "coalesce(a, ...)",
        "The first that is not null; later ones are not evaluated.",
        "coalesce(null, 2)",
        "2",
        rules.coalesce,
    ),
    plain(
        "error(message: constant string) -> null",
        "Fail, with this message: what is reached only where something is wrong.",
        "case when 1 > 2 then error('too large') else 1 end",
        "1",
    ),
    ruled("nullif", "nullif(a, b)", "Null if a equals b, else a.", "nullif(1, 1)", "null", rules.nullif),
    ruled(
        "greatest", "greatest(a, ...)", "The largest; null when one is null.", "greatest(1, 3, 2)", "3", rules.extremum
    ),
    ruled("least", "least(a, ...)", "The smallest; null when one is null.", "least(1, 3, 2)", "1", rules.extremum),
]

CONDITIONS += [
    derived("isnull(x: any) -> bool", "Whether the value is missing, `x is null`.", "isnull(1)", "false", "x is null"),
    derived(
        "isnotnull(x: any) -> bool",
        "Whether the value is not missing, `x is not null`.",
        "isnotnull(1)",
        "true",
        "x is not null",
    ),
    derived(
        "nvl2(x: any, a: any, b: any) -> any",
        "a where x is not null, b where it is null.",
        "nvl2(null, 1, 2)",
        "2",
        "case when x is not null then a else b end",
    ),
]

FUNCTIONS: dict[str, Function] = {
    f.name: f for f in (*ARITHMETIC, *BITS, *CONDITIONS, *TEXT, *JSON, *TIME, *LISTS, *STRUCTS)
}

# Other people's names for the same things.
SYNONYMS = {"ceiling": "ceil", "pow": "power", "char_length": "length", "character_length": "length", "len": "length"}
SYNONYMS |= {
    "substr": "substring",
    "position": "strpos",
    "if_null": "coalesce",
    "ifnull": "coalesce",
    "nvl": "coalesce",
}
SYNONYMS |= PART_SYNONYMS
SYNONYMS |= {"isnan": "is_nan", "truncate": "trunc", "split_to_array": "split", "regexp_matches": "regexp_like"}
SYNONYMS |= {"list_contains": "array_contains", "starts": "starts_with"}
SYNONYMS |= {
    "array_slice": "list_slice",
    "list_value": "array",
    "datetrunc": "date_trunc",
    "datediff": "date_diff",
}
SYNONYMS |= {
    "instr": "strpos",
    "charindex": "locate",
    "startswith": "starts_with",
    "prefix": "starts_with",
    "endswith": "ends_with",
    "suffix": "ends_with",
    "lcase": "lower",
    "ucase": "upper",
    "btrim": "trim",
    "rlike": "regexp_like",
    "string_split": "split",
    "str_split": "split",
    "string_to_array": "split",
    "array_join": "array_to_string",
    "datepart": "date_part",
    "strlen": "octet_length",
    "isinf": "is_inf",
    "isfinite": "is_finite",
    "signum": "sign",
    "size": "cardinality",
    "list_has": "array_contains",
    "array_has": "array_contains",
    "list_extract": "element",
    "list_element": "element",
    "array_extract": "element",
    "element_at": "element",
    "array_append": "list_append",
    "array_prepend": "list_prepend",
    "array_cat": "list_concat",
    "array_concat": "list_concat",
    "array_distinct": "list_distinct",
    "array_sort": "list_sort",
    "array_reverse": "list_reverse",
    "array_min": "list_min",
    "array_max": "list_max",
    "array_has_any": "list_has_any",
    "arrays_overlap": "list_has_any",
    "array_has_all": "list_has_all",
    "array_position": "list_position",
    "list_indexof": "list_position",
    "array_indexof": "list_position",
    "array_intersect": "list_intersect",
    "array_sum": "list_sum",
    "array_avg": "list_avg",
    "list_aggr": "list_aggregate",
    "array_aggregate": "list_aggregate",
    "array_aggr": "list_aggregate",
    "array_first": "list_first",
    "array_last": "list_last",
    "array_unique": "list_unique",
    "array_except": "list_except",
    "bitwise_xor": "xor",
    "bitcount": "bit_count",
    "json_extract_path_text": "json_extract_string",
    "json_extract_path": "json_extract",
    "json_extract_scalar": "json_extract_string",
}
