"""The table of functions of lists and structs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions import operators as rules
from ddcli.expressions.arithmetic import nullable_if_any
from ddcli.expressions.coerce import BOOL, INT64, STRING, Mismatch, convert
from ddcli.expressions.function import table
from ddcli.expressions.signatures import check_arguments, parse_signature
from ddcli.expressions.tree import Literal
from ddcli.expressions.types import Type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.arithmetic import Resolved
    from ddcli.expressions.tree import Expression

JOINED = "array_to_string(x: list, separator: constant string) -> string"


def _joined(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `array_to_string`, of a list of texts."""
    values, separator = check_arguments(parse_signature(JOINED), args)
    inner = values.type.inner
    if inner is not None and inner.kind not in ("string", "null"):
        raise Mismatch(f"{name} joins texts, got {values.type.required()}", args[0], "cast the elements before")
    texts = convert(values, Type("list", inner=STRING.or_null()))
    return [texts, separator], nullable_if_any(STRING, [texts]), name


def _of_lambda(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a function of a list with a lambda, whose further arguments are columns."""
    values, function, *_ = args
    made = function.type
    if name == "list_filter":
        if made.kind not in ("bool", "null"):
            raise Mismatch(f"{name} expects a condition, got {made.required()}", hint="compare it with something")
        return list(args), values.type, name
    if not made.is_known or made.kind == "months":
        raise Mismatch(f"{name} can't tell the type of the elements", hint="cast them")
    return list(args), Type("list", values.type.nullable, inner=made.or_null()), name


def _sort_key(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `sort_key`, of one list or struct."""
    if len(args) != 1 or args[0].type.kind not in ("list", "struct"):
        raise Mismatch(f"{name} takes a list or a struct", args[0] if args else None)
    return list(args), nullable_if_any(STRING, args), name


def _list_sort(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `list_sort` and `list_reverse_sort`, both as `list_sort(x, direction, place of nulls)`."""
    words = [str(arg.value).lower() if isinstance(arg, Literal) else "" for arg in args[1:]]
    words = words if name == "list_sort" else ["desc", *words]
    wanted = zip(words, (("asc", "desc"), ("nulls first", "nulls last")), strict=False)
    if len(words) > 2 or not all(word in known for word, known in wanted):
        raise Mismatch(
            f"{name} takes a list, a direction and the place of nulls", hint="list_sort(x, 'desc', 'nulls first')"
        )
    values, type_, _ = rules.of_ordered(name, args[:1])
    return [*values, *(Literal(word, STRING) for word in words)], type_, "list_sort"


def _chosen(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `list_where` and `list_select`: a list, and a list of conditions or positions."""
    values, places = check_arguments(parse_signature(f"{name}(x: list, places: list) -> x"), args)
    wanted, inner = BOOL if name == "list_where" else INT64, places.type.inner
    if (
        inner is not None
        and inner.kind != "null"
        and not (inner.is_integer and wanted is INT64)
        and inner.kind != wanted.kind
    ):
        raise Mismatch(f"{name} takes a list of {wanted} as its second argument, got {places.type.required()}", places)
    given = [values, convert(places, Type("list", inner=wanted.or_null()))]
    inner = values.type.inner
    return given, Type("list", any(each.type.nullable for each in given), inner=inner and inner.or_null()), name


def _flatten(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `flatten`, of a list of lists."""
    inner = args[0].type.inner if len(args) == 1 else None
    if inner is None or inner.inner is None:
        raise Mismatch(f"{name} takes a list of lists", args[0] if args else None)
    return list(args), nullable_if_any(inner, args), name


def _series(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `generate_series` and `range`, of integers: its first number, its last one or its end, and its step."""
    if not 1 <= len(args) <= 3 or any(not each.type.is_integer and each.type.kind != "null" for each in args):
        raise Mismatch(
            f"{name} takes one to three integers",
            hint=f"of days and timestamps write it in the `from`: from {name}(a, b, interval 1 day) as s(day)",
        )
    given = [Literal(0, INT64), *args] if len(args) == 1 else list(args)
    given = [convert(each, INT64) for each in (*given, Literal(1, INT64))[:3]]
    return given, nullable_if_any(Type("list", inner=INT64), given), name


AGGREGATED = {
    "sum": "list_sum",
    "avg": "list_avg",
    "mean": "list_avg",
    "min": "list_min",
    "max": "list_max",
    "count": "list_count",
    "string_agg": "array_to_string",
}
"""The functions of lists that are aggregates of rows, by the aggregates' names."""


def _aggregated(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `list_aggregate(x, 'sum')`, which is `list_sum(x)`."""
    word = args[1].value if len(args) > 1 and isinstance(args[1], Literal) else None
    if not isinstance(word, str) or word.lower() not in AGGREGATED:
        hint = f"{name}(x, 'sum'); one of {', '.join(AGGREGATED)}"
        raise Mismatch(f"{name} takes a list and the name of an aggregate", args[1] if len(args) > 1 else None, hint)
    return next(each for each in LISTS if each.name == AGGREGATED[word.lower()]).resolve([args[0], *args[2:]])


LISTS = table(
    f"""
    array [array]: [a, ...], array[a, ...] -- A list. -- [1, 2] => [1, 2]
    cardinality(x: list) -> int64 -- Number of elements, nulls included. -- cardinality([1, null]) => 2
    array_length(x: list) -> int64 -- The same as cardinality. -- array_length([1, 2]) => 2 -- cardinality(x)
    element(x: list, n: integer) -> inner? -- `x[n]`: the n-th element, the first is 1, the last -1; null outside the list. -- element(['a', 'b'], 2) => 'b'
    list_slice(x: sequence, first: integer, last: integer = -1) -> x -- `x[first:last]`: the elements of a list, or the characters of a text, from `first` to `last`, both included; numbers below zero count from the end. -- list_slice(['a', 'b', 'c'], 2, 3) => ['b', 'c']
    array_contains [array_contains]: array_contains(x, value) -- True if the list has the value; null elements are ignored, and a null value is unknown unless the list is empty. -- array_contains([1, 2], 2) => true
    list_count(x: list) -> int64 -- Number of elements that are not null. -- list_count([1, null]) => 1
    list_reverse(x: list) -> x -- The elements in reverse order. -- list_reverse([1, 2]) => [2, 1]
    list_concat [two_lists]: list_concat(x, y) -- The elements of two lists; a null list is empty. -- list_concat([1], [2]) => [1, 2]
    list_append(x: list, value: any) -> x -- The list with one more element at the end; a null list is empty. -- list_append([1], 2) => [1, 2] -- list_concat(x, [value])
    list_prepend(value: any, x: list) -> x -- The list with one more element at the beginning. -- list_prepend(1, [2]) => [1, 2] -- list_concat([value], x)
    list_sort [list_sort]: list_sort(x [, 'desc' [, 'nulls first']]) -- The elements in ascending order, or descending with 'desc'; nulls last unless 'nulls first' is written. -- list_sort([2, null, 1], 'desc') => [2, 1, null]
    list_reverse_sort [list_sort]: list_reverse_sort(x [, 'nulls first']) -- The elements in descending order. -- list_reverse_sort([1, 2]) => [2, 1]
    list_where [chosen]: list_where(x, mask) -- The elements at whose places the mask, a list of conditions, is true; a null in the mask is an error. -- list_where([1, 2, 3], [true, false, true]) => [1, 3]
    list_select [chosen]: list_select(x, positions) -- The elements at positions from 1, null for one outside; a null position is an error. -- list_select(['a', 'b'], [2, 1]) => ['b', 'a']
    flatten [flatten]: flatten(x) -- The elements of all lists of a list; null lists are left out. -- flatten([[1, 2], null, [3]]) => [1, 2, 3]
    generate_series [series]: generate_series(first, last, step = 1) -- The integers from first to last, at most 1048576; with one argument from 0. `range` leaves out the last. In a `from` also of dates and timestamps. -- generate_series(1, 3) => [1, 2, 3]
    range [series]: range(first, end, step = 1) -- The integers from first up to the end, without it; with one argument from 0. -- range(3) => [0, 1, 2]
    list_distinct [of_ordered]: list_distinct(x) -- Each element once, at its first position; no nulls. -- list_distinct([2, null, 1, 2]) => [2, 1]
    list_min [of_ordered]: list_min(x) -- The smallest element; null if no element has a value. NaN is the largest number. -- list_min([2, 1]) => 1
    list_max [of_ordered]: list_max(x) -- The largest element; null if no element has a value. -- list_max([2, 1]) => 2
    list_sum [of_numbers]: list_sum(x) -- Sum of the elements, like that of rows, floats from the first to the last; null if no element has a value. -- list_sum([1, null, 2]) => 3
    list_avg [of_numbers]: list_avg(x) -- Mean of the elements, a float; null if no element has a value. -- list_avg([1, 2]) => 1.5e0
    list_aggregate [aggregated]: list_aggregate(x, 'sum') -- The same as list_sum(x); so for avg, min, max, count and string_agg. -- list_aggregate([1, 2], 'max') => 2
    list_first(x: list) -> any -- The first element, `x[1]`. -- list_first([1, 2]) => 1 -- element(x, 1)
    list_last(x: list) -> any -- The last element. -- list_last([1, 2]) => 2 -- element(x, cardinality(x))
    list_unique(x: list) -> int64 -- Number of different elements that are not null. -- list_unique([1, 1, null]) => 1 -- cardinality(list_distinct(x))
    list_position [array_contains]: list_position(x, value) -- The first position of the value, also of a null, from 1; null if the list does not have it. -- list_position(['a', 'b'], 'b') => 2
    list_intersect [two_lists]: list_intersect(x, y) -- The elements of the first list that the second has, too, each once, without nulls; a null second list is empty. -- list_intersect([3, 1, 2, 3], [2, 3]) => [3, 2]
    list_except [two_lists]: list_except(x, y) -- The elements of the first list that the second lacks, each once, without nulls. -- list_except([3, 1, 2, 3], [2]) => [3, 1]
    list_has_any [two_lists]: list_has_any(x, y) -- True if the lists have an element in common; null elements are ignored. -- list_has_any([1, 2], [2]) => true
    list_has_all [two_lists]: list_has_all(x, y) -- True if the first list has each element of the second; null elements are ignored. -- list_has_all([1, 2], [2]) => true
    list_transform [of_lambda]: list_transform(x, lambda e: e + 1), [e + 1 for e in x] -- The values of an expression for each element; it may read columns, too. `x -> x + 1` is the same lambda. -- list_transform([1, 2], lambda e: e + 1) => [2, 3]
    list_filter [of_lambda]: list_filter(x, lambda e: e > 1), [e for e in x if e > 1] -- The elements for which a condition is true. -- list_filter([1, 2], lambda e: e > 1) => [2]
    array_to_string [joined]: {JOINED} -- The texts of a list, joined; nulls are ignored. -- array_to_string(['a', null, 'b'], ',') => 'a,b'
    """,
    array=rules.array,
    array_contains=rules.array_contains,
    two_lists=rules.two_lists,
    of_ordered=rules.of_ordered,
    of_numbers=rules.of_numbers,
    aggregated=_aggregated,
    joined=_joined,
    list_sort=_list_sort,
    chosen=_chosen,
    flatten=_flatten,
    series=_series,
    of_lambda=_of_lambda,
)

STRUCTS = table(
    """
    named_struct [named_struct]: {'a': x, ...}, struct_pack(a := x, ...), named_struct('a', x, ...) -- A struct of named values. -- {'a': 1, 'b': 'x'} => named_struct('a', 1, 'b', 'x')
    sort_key [sort_key]: sort_key(x) -- The text that stands for a list or a struct in comparisons and orders: part by part, nulls last. -- sort_key([1]) => '-09223372036854775809 '
    struct_extract [struct_extract]: s.a, s['a'], struct_extract(s, 'a') -- A field of a struct; null if the struct is null. -- ({'a': 1, 'b': 'x'}).b => 'x'
    """,
    named_struct=rules.named_struct,
    struct_extract=rules.struct_extract,
    sort_key=_sort_key,
)
