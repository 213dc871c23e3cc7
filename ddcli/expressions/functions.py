"""The table of functions: every name that an expression may call, with its meaning.

The table is data: documentation is generated from it, each example is a test, and a name that it lacks is an error,
never passed to an engine. It has operators under their signs.
"""

from __future__ import annotations

from ddcli.expressions import operators as rules
from ddcli.expressions.function import Function, table
from ddcli.expressions.list_functions import LISTS, STRUCTS
from ddcli.expressions.number_functions import ARITHMETIC, BITS
from ddcli.expressions.text_functions import JSON, TEXT
from ddcli.expressions.time_functions import PART_SYNONYMS, TIME

CONDITIONS = table(
    """
    = [comparison]: a = b -- Equality. NaN equals NaN, -0.0 equals 0.0; null if a side is null. -- 1 = 1 => true
    <> [comparison]: a <> b -- Not equal. -- 1 <> 1 => false
    < [comparison]: a < b -- Less. NaN is above every number; text by code points. -- 'a' < 'b' => true
    <= [comparison]: a <= b -- Less or equal. -- 1 <= 1 => true
    > [comparison]: a > b -- Greater. -- cast('nan' as float64) > 1e308 => true
    >= [comparison]: a >= b -- Greater or equal. -- 1 >= null => null
    is distinct from [comparison]: a is distinct from b -- Not equal, with null as a value like any other; never null. -- 1 is distinct from null => true
    is not distinct from [comparison]: a is not distinct from b -- Equal, with null equal to null; never null. -- null is not distinct from null => true
    is null [is_null]: a is [not] null -- True if the value is missing. -- 1 is null => false
    in [membership]: a in (b, ...) -- True if a equals one of the list; null if unknown. -- 2 in (1, 2) => true
    and [logic]: a and b -- And of three values. The right side is not evaluated if the left is false. -- false and null => false
    or [logic]: a or b -- Or of three values. The right side is not evaluated if the left is true. -- true or null => true
    not [logic]: not a -- Negation; null stays null. -- not true => false
    coalesce [coalesce]: coalesce(a, ...) -- The first value that is not null; later ones are not evaluated. -- coalesce(null, 2) => 2
    error(message: constant string) -> null -- Fail with this message; for a branch that must not be reached. -- case when 1 > 2 then error('too large') else 1 end => 1
    nullif [nullif]: nullif(a, b) -- Null if a equals b, else a. -- nullif(1, 1) => null
    greatest [extremum]: greatest(a, ...) -- The largest value; nulls are ignored. Lists and structs are compared part by part, a null part as the largest. -- greatest(1, 3, 2) => 3
    least [extremum]: least(a, ...) -- The smallest value; nulls are ignored. -- least(1, 3, 2) => 1
    isnull(x: any) -> bool -- True if the value is missing, `x is null`. -- isnull(1) => false -- x is null
    isnotnull(x: any) -> bool -- True if the value is not missing, `x is not null`. -- isnotnull(1) => true -- x is not null
    nvl2(x: any, a: any, b: any) -> any -- a where x is not null, b where it is null. -- nvl2(null, 1, 2) => 2 -- case when x is not null then a else b end
    """,
    comparison=rules.comparison,
    is_null=rules.is_null,
    membership=rules.membership,
    logic=rules.logic,
    coalesce=rules.coalesce,
    nullif=rules.nullif,
    extremum=rules.extremum,
)

FUNCTIONS: dict[str, Function] = {
    f.name: f for f in (*ARITHMETIC, *BITS, *CONDITIONS, *TEXT, *JSON, *TIME, *LISTS, *STRUCTS)
}

OTHER_NAMES = {
    "ceil": "ceiling",
    "power": "pow",
    "length": "char_length character_length len",
    "substring": "substr",
    "strpos": "position instr",
    "coalesce": "if_null ifnull nvl",
    "is_nan": "isnan",
    "trunc": "truncate",
    "split": "split_to_array string_split str_split string_to_array",
    "regexp_like": "regexp_matches rlike",
    "array_contains": "list_contains list_has array_has",
    "starts_with": "starts startswith prefix",
    "list_slice": "array_slice",
    "array": "list_value list_pack",
    "date_trunc": "datetrunc",
    "date_diff": "datediff",
    "locate": "charindex",
    "ends_with": "endswith suffix",
    "lower": "lcase",
    "upper": "ucase",
    "trim": "btrim",
    "array_to_string": "array_join",
    "date_part": "datepart",
    "octet_length": "strlen",
    "is_inf": "isinf",
    "is_finite": "isfinite",
    "sign": "signum",
    "cardinality": "size",
    "element": "list_extract list_element array_extract element_at",
    "hex": "to_hex",
    "bin": "to_binary",
    "gcd": "greatest_common_divisor",
    "lcm": "least_common_multiple",
    "levenshtein": "editdist3",
    "to_base64": "base64",
    "ord": "unicode",
    "regexp_split_to_array": "string_split_regex str_split_regex",
    "list_where": "array_where",
    "list_select": "array_select",
    "list_reverse_sort": "array_reverse_sort",
    "list_append": "array_append",
    "list_prepend": "array_prepend",
    "list_concat": "array_cat array_concat list_cat",
    "list_distinct": "array_distinct",
    "list_sort": "array_sort",
    "list_reverse": "array_reverse",
    "list_min": "array_min",
    "list_max": "array_max",
    "list_has_any": "array_has_any arrays_overlap",
    "list_has_all": "array_has_all",
    "list_position": "array_position list_indexof array_indexof",
    "list_intersect": "array_intersect",
    "list_sum": "array_sum",
    "list_avg": "array_avg",
    "list_aggregate": "list_aggr array_aggregate array_aggr",
    "list_first": "array_first",
    "list_last": "array_last",
    "list_unique": "array_unique",
    "list_except": "array_except",
    "xor": "bitwise_xor",
    "bit_count": "bitcount",
    "json_extract_string": "json_extract_path_text json_extract_scalar",
    "json_extract": "json_extract_path",
    "from_json": "json_transform",
    "to_json": "json_quote array_to_json row_to_json",
}
"""The names of the same functions in other databases."""
SYNONYMS = PART_SYNONYMS | {other: name for name, others in OTHER_NAMES.items() for other in others.split()}
