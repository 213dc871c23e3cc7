"""The table of functions: every name that an expression may call, with its meaning.

The table is data: documentation is generated from it, each example is a test, and a name that it lacks is an error,
never passed to an engine. It has operators under their signs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions import operators as rules
from ddcli.expressions.arithmetic import arithmetic, magnitude, negate, rounding
from ddcli.expressions.coerce import BOOL, INT64, STRING, Mismatch, convert, nullable_if_any
from ddcli.expressions.signatures import Function, check_arguments, parse_signature, table
from ddcli.expressions.time_functions import PART_SYNONYMS, TIME
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
    if name == "list_reduce":
        return list(args), made.or_null(), name
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


def _zipped(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `list_zip`, of lists, and a constant condition behind them."""
    cut = args[-1] if args and isinstance(args[-1], Literal) and args[-1].type.kind == "bool" else None
    lists = list(args[:-1] if cut else args)
    if not lists or any(each.type.inner is None or not each.type.inner.is_known for each in lists):
        raise Mismatch(f"{name} takes lists", next((each for each in lists if each.type.kind != "list"), None))
    _, inner, _ = rules.row("row", [Literal(None, each.type.inner) for each in lists if each.type.inner])
    return [*lists, cut or Literal(value=False, type=BOOL)], Type("list", inner=inner.or_null()), name


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
    function = next(each for each in LISTS if each.name == AGGREGATED[word.lower()])
    return function.rule(function.name, [args[0], *args[2:]])


LISTS = table(
    f"""
    array [array]: [a, ...], array[a, ...] -- A list. -- [1, 2] => [1, 2]
    cardinality(x: list) -> int64 -- Number of elements, nulls included. -- cardinality([1, null]) => 2
    array_length(x: list) -> int64 -- The same as cardinality. -- array_length([1, 2]) => 2 -- cardinality(x)
    element(x: list, n: integer) -> inner? -- `x[n]`: the n-th element, the first is 1, the last -1; null outside the list. -- element(['a', 'b'], 2) => 'b'
    list_slice(x: sequence, first: integer, last: integer = -1, step: constant integer = 1) -> x -- `x[first:last]`: the elements of a list, or the characters of a text, from `first` to `last`, both included; numbers below zero count from the end. Of a list, `x[first:last:step]` is every step-th, with a step below zero backwards from `first` to `last`; `x[first:-:step]` has no last. -- list_slice(['a', 'b', 'c'], 2, 3) => ['b', 'c']
    array_contains [array_contains]: array_contains(x, value) -- True if the list has the value; null elements are ignored, and a null value is unknown unless the list is empty. -- array_contains([1, 2], 2) => true
    list_count(x: list) -> int64 -- Number of elements that are not null. -- list_count([1, null]) => 1
    list_reverse(x: list) -> x -- The elements in reverse order. -- list_reverse([1, 2]) => [2, 1]
    list_concat [two_lists]: list_concat(x, y) -- The elements of two lists; a null list is empty. -- list_concat([1], [2]) => [1, 2]
    list_append(x: list, value: any) -> x -- The list with one more element at the end; a null list is empty. -- list_append([1], 2) => [1, 2] -- list_concat(x, [value])
    list_prepend(value: any, x: list) -> x -- The list with one more element at the beginning. -- list_prepend(1, [2]) => [1, 2] -- list_concat([value], x)
    list_sort [list_sort]: list_sort(x [, 'desc' [, 'nulls first']]) -- The elements in ascending order, or descending with 'desc'; nulls last unless 'nulls first' is written. -- list_sort([2, null, 1], 'desc') => [2, 1, null]
    list_reverse_sort [list_sort]: list_reverse_sort(x [, 'nulls first']) -- The elements in descending order. -- list_reverse_sort([1, 2]) => [2, 1]
    list_where [chosen]: list_where(x, mask) -- The elements for which the mask, a list of conditions, is true; a null in the mask is an error. -- list_where([1, 2, 3], [true, false, true]) => [1, 3]
    list_select [chosen]: list_select(x, positions) -- The elements at positions from 1, null for one outside; a null position is an error. -- list_select(['a', 'b'], [2, 1]) => ['b', 'a']
    flatten [flatten]: flatten(x) -- The elements of all lists of a list; null lists are left out. -- flatten([[1, 2], null, [3]]) => [1, 2, 3]
    generate_series [series]: generate_series(first, last, step = 1) -- The integers from first to last, at most 1048576; with one argument from 0. `range` leaves out the last. In a `from`, dates and timestamps, too. -- generate_series(1, 3) => [1, 2, 3]
    range [series]: range(first, end, step = 1) -- The integers from first up to the end, without it; with one argument from 0. -- range(3) => [0, 1, 2]
    list_distinct [of_ordered]: list_distinct(x) -- Each element once, at its first position; no nulls. -- list_distinct([2, null, 1, 2]) => [2, 1]
    list_min [of_ordered]: list_min(x) -- The smallest element; null if no element has a value. NaN is the largest number. -- list_min([2, 1]) => 1
    list_max [of_ordered]: list_max(x) -- The largest element; null if no element has a value. -- list_max([2, 1]) => 2
    list_sum [of_numbers]: list_sum(x) -- Sum of the elements, like that of rows, floats from the first to the last; null if no element has a value. -- list_sum([1, null, 2]) => 3
    list_avg [of_numbers]: list_avg(x) -- Mean of the elements, a float; null if no element has a value. -- list_avg([1, 2]) => 1.5e0
    list_aggregate [aggregated]: list_aggregate(x, 'sum') -- The same as list_sum(x); also avg, min, max, count and string_agg. -- list_aggregate([1, 2], 'max') => 2
    list_first(x: list) -> any -- The first element, `x[1]`. -- list_first([1, 2]) => 1 -- element(x, 1)
    list_last(x: list) -> any -- The last element. -- list_last([1, 2]) => 2 -- element(x, cardinality(x))
    list_unique(x: list) -> int64 -- Number of different elements that are not null. -- list_unique([1, 1, null]) => 1 -- cardinality(list_distinct(x))
    list_position [array_contains]: list_position(x, value) -- The first position of the value (or of null), from 1; null if the list does not have it. -- list_position(['a', 'b'], 'b') => 2
    list_intersect [two_lists]: list_intersect(x, y) -- The elements that both lists have, each once, without nulls; a null second list is empty. -- list_intersect([3, 1, 2, 3], [2, 3]) => [3, 2]
    list_except [two_lists]: list_except(x, y) -- The elements of the first list that the second lacks, each once, without nulls. -- list_except([3, 1, 2, 3], [2]) => [3, 1]
    list_has_any [two_lists]: list_has_any(x, y) -- True if the lists have an element in common; null elements are ignored. -- list_has_any([1, 2], [2]) => true
    list_has_all [two_lists]: list_has_all(x, y) -- True if the first list has each element of the second; null elements are ignored. -- list_has_all([1, 2], [2]) => true
    list_transform [of_lambda]: list_transform(x, lambda e: e + 1), [e + 1 for e in x] -- The values of an expression for each element; it may read columns, too. `x -> x + 1` is the same lambda; a second parameter, `lambda e, n: e + n`, is the position from 1. -- list_transform([1, 2], lambda e: e + 1) => [2, 3]
    list_filter [of_lambda]: list_filter(x, lambda e: e > 1), [e for e in x if e > 1] -- The elements for which a condition is true. -- list_filter([1, 2], lambda e: e > 1) => [2]
    list_reduce [of_lambda]: list_reduce(x, lambda a, e: a + e [, first]) -- The value that a lambda makes of the value so far and of each element, from `first` on; without it from the first element, and null for an empty list. -- list_reduce([1, 2, 3], lambda a, e: 10 * a + e) => 123
    list_zip [zipped]: list_zip(x, y, ... [, true]) -- The first elements of all lists as a `row`, the second ones, and so on: with nulls where a list is shorter, with `true` only as many as the shortest list has. -- list_zip([1], ['a']) => [named_struct('f1', 1, 'f2', 'a')]
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
    zipped=_zipped,
)

STRUCTS = table(
    """
    named_struct [named_struct]: {'a': x, ...}, struct_pack(a := x, ...), named_struct('a', x, ...) -- A struct of named values. -- {'a': 1, 'b': 'x'} => named_struct('a', 1, 'b', 'x')
    row [row]: row(a, ...), (a, b) -- A struct without names: its fields are called `f1`, `f2` and so on, and `[1]` is the first. -- row(1, 'x') => named_struct('f1', 1, 'f2', 'x')
    sort_key [sort_key]: sort_key(x) -- The text by which a list or a struct is compared and ordered: part by part, nulls last. -- sort_key([1]) => '-09223372036854775809 '
    struct_extract [struct_extract]: s.a, s['a'], struct_extract(s, 'a') -- A field of a struct; null if the struct is null. -- ({'a': 1, 'b': 'x'}).b => 'x'
    """,
    named_struct=rules.named_struct,
    struct_extract=rules.struct_extract,
    row=rules.row,
    sort_key=_sort_key,
)


TEXT = table(
    """
    || [joined]: a || b -- Join text; null if one is null. -- 'a' || 'b' => 'ab'
    concat [concat]: concat(a, ...) -- Join text; nulls are ignored. -- concat('a', null, 1) => 'a1'
    length(text: string) -> int64 -- Number of characters (code points). -- length('añb') => 3
    upper(text: string) -> string -- The text in upper case, each character by itself. -- upper('aß') => 'Aẞ'
    lower(text: string) -> string -- The text in lower case, each character by itself. -- lower('AÑ') => 'añ'
    trim(text: string, characters: constant string = ' ') -> string -- The text without these characters at both ends. -- trim('  a ') => 'a'
    ltrim(text: string, characters: constant string = ' ') -> string -- The text without these characters at the beginning. -- ltrim('xxa', 'x') => 'a'
    rtrim(text: string, characters: constant string = ' ') -> string -- The text without these characters at the end. -- rtrim('axx', 'x') => 'a'
    substring(text: string, start: integer, length: integer = null) -> string -- Characters from position start: the first is 1, the last -1. A negative length counts backwards. -- substring('hello', 2, 3) => 'ell'
    strpos(text: string, part: string) -> int64 -- Position of the first match, 0 if none. -- strpos('añb', 'b') => 3
    replace(text: string, old: string, new: string) -> string -- Replace every occurrence; an empty `old` replaces nothing. -- replace('aba', 'a', 'x') => 'xbx'
    starts_with(text: string, part: string) -> bool -- True if text begins with part. -- starts_with('abc', 'ab') => true
    ends_with(text: string, part: string) -> bool -- True if text ends with part. -- ends_with('abc', 'bc') => true
    contains(text: string, part: string) -> bool -- True if part occurs in text. -- contains('abc', 'b') => true
    split [split]: split(text, separator) -- The parts between separators; the characters if the separator is empty, the whole text if it is null. -- split('a,b', ',') => ['a', 'b']
    split_part(text: string, separator: string, position: integer) -> string -- The part at a position between separators, empty if there is none; the first is 1, the last -1. -- split_part('a/b/c', '/', 2) => 'b'
    lpad(text: string, n: integer, fill: constant string = ' ') -> string -- The text filled on the left to n characters, at most 1048576, or cut to n. The fill is one character. -- lpad('7', 3, '0') => '007'
    rpad(text: string, n: integer, fill: constant string = ' ') -> string -- The text filled on the right to n characters, or cut to n. The fill is one character. -- rpad('abc', 2) => 'ab'
    left(text: string, n: integer) -> string -- The first n characters; with a negative n all but the last -n. -- left('abc', 2) => 'ab'
    right(text: string, n: integer) -> string -- The last n characters; with a negative n all but the first -n. -- right('abc', 2) => 'bc'
    reverse(text: string) -> string -- Characters (code points) in reverse order. -- reverse('abc') => 'cba'
    like(text: string, pattern: constant string, escape: constant string = '') -> bool -- True if the whole text matches: `%` is any text, `_` any character. Also `text [not] like pattern escape '!'`. -- like('abc', 'a%') => true
    ilike(text: string, pattern: constant string, escape: constant string = '') -> bool -- `like`, ignoring case. -- ilike('ABC', 'a_c') => true
    regexp_like(text: string, pattern: constant string, flags: constant string = '') -> bool -- True if the pattern, a regular expression in [RE2's syntax](https://github.com/google/re2/wiki/Syntax), matches anywhere; `\\d`, `\\w`, `\\s` and `\\b` are ASCII only. Flags: `i` ignores case; with `s`, `.` also matches line breaks. -- regexp_like('ab12', '[0-9]+$') => true
    regexp_full_match(text: string, pattern: constant string, flags: constant string = '') -> bool -- True if the pattern matches the whole text. Flags as in regexp_like. -- regexp_full_match('ab12', '[a-z]+') => false
    regexp_split_to_array(text: string, pattern: constant string, flags: constant string = '') -> list[string] -- The parts of a text between matches of the pattern, which matches no empty text; of an empty pattern the characters. Flags as in regexp_like. -- regexp_split_to_array('a1b22c', '[0-9]+') => ['a', 'b', 'c']
    regexp_replace(text: string, pattern: constant string, new: constant string, flags: constant string = '') -> string -- Replace the first match, with the flag `g` every match; `\\1` in the new text is the first group. Other flags as in regexp_like. -- regexp_replace('a1b22', '([0-9]+)', '<\\1>', 'g') => 'a<1>b<22>'
    regexp_extract(text: string, pattern: constant string, group: constant integer = 0, flags: constant string = '') -> string? -- The first match or one of its groups; empty if there is none. -- regexp_extract('ab12', '[a-z]([0-9])', 1) => '1'
    regexp_extract_all(text: string, pattern: constant string, group: constant integer = 0, flags: constant string = '') -> list[string?] -- All matches, or one group of each; the pattern matches no empty text. A group needs a pattern that looks at nothing around a match (`^`, `$`, `\\b`). -- regexp_extract_all('a1b22', '([a-z])[0-9]+', 1) => ['a', 'b']
    regexp_substr(text: string, pattern: constant string) -> string? -- The first match; null if there is none. -- regexp_substr('ab12', '[0-9]') => '1'
    concat_ws [concat_ws]: concat_ws(separator: constant string, a, ...) -- Join text with a separator; nulls are ignored. -- concat_ws('-', 'a', null, 2) => 'a-2'
    repeat(text: string, n: integer) -> string -- The text n times, at most 1 MiB. -- repeat('ab', 2) => 'abab'
    translate(text: string, old: constant string, new: constant string) -> string -- Replace each character of `old` by the character of `new` at the same position, or remove it if there is none. -- translate('abcb', 'bc', 'x') => 'axx'
    initcap(text: string) -> string -- Each word with its first letter in upper case and the others in lower case. -- initcap('heLLo wOrld') => 'Hello World'
    octet_length [of_bytes]: octet_length(x) -- Number of bytes, of a text in UTF-8. -- octet_length('añb') => 4
    bit_length(text: string) -> int64 -- Number of bits in UTF-8. -- bit_length('a') => 8 -- 8 * octet_length(text)
    space(n: integer) -> string -- A text of n spaces. -- space(2) => '  ' -- repeat(' ', n)
    locate(part: string, text: string) -> int64 -- Position of the first match, 0 if none: `strpos` with the part first. -- locate('b', 'abc') => 2 -- strpos(text, part)
    md5 [of_bytes]: md5(x) -- The MD5 hash of bytes, or of a text's UTF-8, as 32 hexadecimal digits. -- md5('a') => '0cc175b9c0f1b6a831c399e269772661'
    sha256 [of_bytes]: sha256(x) -- The SHA-256 hash of bytes, or of a text's UTF-8, as 64 hexadecimal digits. -- sha256('a') => 'ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'
    sha1 [of_bytes]: sha1(x) -- The SHA-1 hash of bytes, or of a text's UTF-8, as 40 hexadecimal digits. -- sha1('a') => '86f7e437faa5a7fce15d1ddcb9eaeaea377667b8'
    encode(text: string) -> binary -- The bytes of a text in UTF-8. -- to_base64(encode('ñ')) => 'w7E='
    decode(x: binary) -> string -- The text of bytes in UTF-8; other bytes are an error. -- decode(encode('ñ')) => 'ñ'
    to_base64(x: binary) -> string -- Bytes in base64; of a text `to_base64(encode(text))`. -- to_base64(encode('abc')) => 'YWJj'
    from_base64(text: string) -> binary -- The bytes of a text in base64, with its `=` at the end; other text is an error. -- decode(from_base64('YWI=')) => 'ab'
    url_encode(text: string) -> string -- The text for a part of a URL: all bytes except letters, digits and `-_.~` as `%20`. -- url_encode('a b/c') => 'a%20b%2Fc'
    url_decode(text: string) -> string -- The text of a part of a URL; an error if its bytes are not UTF-8. -- url_decode('a%20b') => 'a b'
    strip_accents(text: string) -> string -- The text without the accents of its letters. -- strip_accents('mañana é') => 'manana e'
    levenshtein(a: string, b: string) -> int64 -- The least number of characters to insert, remove or replace that makes one text the other. -- levenshtein('kitten', 'sitting') => 3
    regexp_count(text: string, pattern: constant string) -> int64 -- The number of matches of the pattern. -- regexp_count('a1b22', '[0-9]+') => 2
    strftime(x: dated, format: constant string) -> string -- A date or timestamp as text: `%Y`, `%y`, `%m`, `%b`, `%B`, `%d`, `%j`, `%a`, `%A`, `%H`, `%I`, `%p`, `%M`, `%S`, `%f` (microseconds), `%%`. -- strftime(date '2024-02-01', '%d.%m.%Y') => '01.02.2024'
    unhex(text: string) -> binary -- The bytes of hexadecimal digits; other text is an error. -- decode(unhex('6162')) => 'ab'
    chr(code: integer) -> string -- The character with this Unicode code point; an error if there is none. -- chr(241) => 'ñ'
    ascii(text: string) -> int64 -- The Unicode code point of the first character; 0 for an empty text. -- ascii('ñu') => 241
    ord(text: string) -> int64 -- `ascii` of a text, but -1 for an empty one. -- ord('') => -1 -- case when text = '' then -1 else ascii(text) end
    hex [hexadecimal]: hex(x) -- The 64 bits of an integer in hexadecimal digits, from the first that is not 0; for bytes and a text, which is its bytes in UTF-8, two of them each. -- hex(255) => 'FF'
    """,
    joined=rules.joined,
    concat=rules.concat,
    split=rules.split,
    concat_ws=rules.concat_ws,
    hexadecimal=rules.hexadecimal,
    of_bytes=rules.of_bytes,
)

JSON = table(
    """
    json_extract_string [json_part]: x ->> path, json_extract_string(x, path: constant) -- The part of a JSON text at a path, `'$.a[0].b'`, or under a name, or at a position from 0; a text without its quotes, null if nothing or `null` is there. If several members have one name the first counts. A text that is not JSON, or nested more than 100 deep, is an error. -- json_extract_string('{"a": [{"b": "x"}]}', '$.a[0].b') => 'x'
    json_extract [json_part]: x -> path, json_extract(x, path: constant) -- The same value as JSON in a text: with its quotes, and with `null` as a text. Of both functions a path with `[*]` at its end, `'$.a[*]'`, is the list of the elements, empty where there is no list. -- json_extract('{"a": ["x", 1.50]}', '$.a') => '["x",1.50]'
    get_json_object [json_part]: get_json_object(x, path: constant) -- The same as `json_extract_string`; null for a text that is not JSON. -- get_json_object('{', '$.a') => null
    json_value [json_part]: json_value(x, path: constant) -- The same as `json_extract`, but null for objects, lists and `null`. -- json_value('{"a": [1]}', '$.a') => null
    json_array_length [json_part]: json_array_length(x, path: constant = '$') -- The number of elements of the list at the path: 0 of any other value, null if there is none. -- json_array_length('[1, 2]') => 2
    json_type [json_part]: json_type(x, path: constant = '$') -- The kind of the value at the path: `OBJECT`, `ARRAY`, `VARCHAR`, `BOOLEAN`, `NULL`, `UBIGINT` of a whole number, `BIGINT` of one below zero, `DOUBLE` of another number; null if there is none. -- json_type('[1, 2]', '$[0]') => 'UBIGINT'
    json_keys [json_part]: json_keys(x, path: constant = '$') -- The names of an object's members, in their order: none of another value, null if there is none. -- json_keys('{"a": 1, "b": 2}') => ['a', 'b']
    json_each [json_part]: json_each(x, path: constant = '$') -- The parts of an object or a list: a list of structs with `key`, `value`, `type`, `atom`, `id`, `parent`, `fullkey` and `path`. In a `from` each is a row with these columns. -- json_each('{"a": 1}')[1].fullkey => '$.a'
    json_tree [json_part]: json_tree(x, path: constant = '$') -- The same of the value itself, its parts, the parts of these and so on. -- cardinality(json_tree('{"a": [1]}')) => 3
    json_exists [json_part]: json_exists(x, path: constant) -- True if the path leads to a value, even a `null`. -- json_exists('{"a": null}', '$.a') => true
    json_contains(x: string, part: string) -> bool -- True if a JSON text contains another one: as an equal value, an object with at least its members, or a list with all its elements. -- json_contains('{"a": [1, 2]}', '2') => true
    json_merge_patch [merge_patch]: json_merge_patch(x, patch) -- An object with the members of a second object, which replace its own; a `null` removes a member. -- json_merge_patch('{"a": 1}', '{"a": null, "b": 2}') => '{"b":2}'
    to_json [to_json]: to_json(x) -- A value as JSON in a text: a text in quotes, a struct as an object. JSON from `->` or another such function stays as it is. -- to_json({'a': [1, null], 'b': 'x'}) => '{"a":[1,null],"b":"x"}'
    json_object [to_json]: json_object('a', x, ...) -- The JSON object of names and values in turn. -- json_object('a', 1, 'b', null) => '{"a":1,"b":null}'
    json_array [to_json]: json_array(a, ...) -- The JSON list of values. -- json_array(1, 'x') => '[1,"x"]'
    json(x: string) -> string -- A JSON text without white space between its parts. -- json('[1, 2]') => '[1,2]'
    parse_json(x: string) -> string -- A JSON text, unchanged, `x::json`; any other text is an error, or null from `try_parse_json`. -- parse_json('[1, 2]') => '[1, 2]'
    try_parse_json(x: string) -> string? -- The same; null for a text that is not JSON. -- try_parse_json('{') => null
    json_valid(x: string) -> bool -- True if a text is standard JSON, without words like `nan` and commas before a bracket. -- json_valid('{') => false
    json_structure(x: string) -> string -- The types of a JSON text's parts, as JSON for `from_json`. -- json_structure('{"a": [1, 2.5]}') => '{"a":["DOUBLE"]}'
    from_json [from_json]: from_json(x, structure: constant) -- The JSON in a text as a struct or a list: the structure is JSON with types for values, `'{"a": "INT", "b": ["VARCHAR"]}'`. What is missing or has another type is null. -- from_json('{"a": 1.6, "b": ["x", null]}', '{"a": "INT", "b": ["VARCHAR"]}').b => ['x', null]
    """,
    json_part=rules.json_part,
    from_json=rules.from_json,
    to_json=rules.to_json,
    merge_patch=rules.merge_patch,
)


ARITHMETIC = table(
    """
    + [arithmetic]: a + b -- Sum. Integer overflow is an error. An integer adds days to a date, an interval or a time makes it a timestamp. A time and an interval begin again at midnight. -- 2 + 3 => 5
    - [arithmetic]: a - b -- Difference; of two dates a number of days, of timestamps an interval. -- 2 - 3 => -1
    * [arithmetic]: a * b -- Product. Integer overflow is an error. An interval times or by a number is rounded to microseconds, half to even. -- 2 * 3 => 6
    / [arithmetic]: a / b -- Quotient: a float, of decimals a decimal with at least 6 digits after the point. Division by zero is an error, for floats too. -- 5 / 2 => 2.5e0
    // [arithmetic]: a // b -- Quotient of integers, cut toward zero. Division by zero is an error. -- -7 // 2 => -3
    % [arithmetic]: a % b -- Remainder of `//`, also of decimals and floats, with the sign of `a`. Division by zero is an error. -- -7 % 2 => -1
    mod [arithmetic]: mod(a, b) -- The same as `a % b`. -- mod(7, 3) => 1
    try_add [arithmetic]: try_add(a, b) -- `a + b`, null on overflow. -- try_add(1, 2) => 3
    try_subtract [arithmetic]: try_subtract(a, b) -- `a - b`, null on overflow. -- try_subtract(1, 2) => -1
    try_multiply [arithmetic]: try_multiply(a, b) -- `a * b`, null on overflow. -- try_multiply(4, 2) => 8
    try_divide [arithmetic]: try_divide(a, b) -- `a / b`, null when `b` is zero. -- try_divide(1, 0) => null
    negate [negate]: -a -- The value with the other sign. -- -(3) => -3
    abs [magnitude]: abs(x) -- Absolute value, in the type of x. -- abs(-3) => 3
    sign [magnitude]: sign(x) -- -1, 0 or 1; of NaN 0. -- sign(-2.5) => -1
    round [rounding]: round(x, digits = 0) -- Round half away from zero. A float is rounded by its binary value: 2.675e0 is less than 2.675. -- round(-2.5) => cast(-3 as decimal(2, 0))
    trunc [rounding]: trunc(x, digits = 0) -- Cut digits, toward zero. -- trunc(-2.58, 1) => -2.5
    floor [rounding]: floor(x) -- Largest whole number not above x. -- floor(-2.5e0) => -3e0
    ceil [rounding]: ceil(x) -- Smallest whole number not below x. -- ceil(2.1e0) => 3e0
    sqrt(x: float) -> float64 -- Square root; of a negative number an error. -- sqrt(16) => 4e0
    power(x: float, y: float) -> float64 -- x to the y. Zero to a negative power, or a negative number to a fractional one, is an error. -- power(2, 10) => 1024e0
    exp(x: float) -> float64 -- e to the x. -- exp(0) => 1e0
    ln(x: float) -> float64 -- Natural logarithm; of zero or less an error. -- ln(1) => 0e0
    log10(x: float) -> float64 -- Logarithm to base 10; of zero or less an error. -- log10(1000) => 3e0
    log(base: float, x: float) -> float64 -- Logarithm of x to a base, in this order. -- log(2, 8) => 3e0
    log2(x: float) -> float64 -- Logarithm to base 2; of zero or less an error. -- log2(8) => 3e0 -- log(2e0, x)
    cbrt(x: float) -> float64 -- Cube root. -- cbrt(27) => 3e0
    pi() -> float64 -- The ratio of a circle's circumference to its diameter. -- pi() => 3.141592653589793e0 -- 3.141592653589793e0
    sin(x: float) -> float64 -- Sine of an angle in radians; of an infinity NaN. -- sin(0) => 0e0
    cos(x: float) -> float64 -- Cosine of an angle in radians; of an infinity NaN. -- cos(0) => 1e0
    tan(x: float) -> float64 -- Tangent of an angle in radians; of an infinity NaN. -- tan(0) => 0e0
    asin(x: float) -> float64 -- The angle whose sine is x; an error outside of -1 to 1. -- asin(0) => 0e0
    acos(x: float) -> float64 -- The angle whose cosine is x; an error outside of -1 to 1. -- acos(1) => 0e0
    atan(x: float) -> float64 -- The angle whose tangent is x. -- atan(0) => 0e0
    atan2(y: float, x: float) -> float64 -- The angle of the point (x, y), from -pi to pi. -- atan2(0, 1) => 0e0
    degrees(x: float) -> float64 -- Radians as degrees. -- degrees(0) => 0e0 -- x * (180e0 / 3.141592653589793e0)
    radians(x: float) -> float64 -- Degrees as radians. -- radians(0) => 0e0 -- x * (3.141592653589793e0 / 180e0)
    is_nan(x: float) -> bool -- True if x is NaN. -- is_nan(cast('nan' as float64)) => true
    is_inf(x: float) -> bool -- True if x is an infinity. -- is_inf(1e0) => false -- abs(x) = cast('inf' as float64)
    is_finite(x: float) -> bool -- True if x is neither NaN nor an infinity. -- is_finite(1e0) => true -- abs(x) < cast('inf' as float64)
    """,
    arithmetic=arithmetic,
    negate=negate,
    magnitude=magnitude,
    rounding=rounding,
)

BITS = table(
    """
    & [bits]: a & b -- Bitwise and of integers. -- 5 & 3 => 1
    | [bits]: a | b -- Bitwise or. -- 5 | 3 => 7
    xor [bits]: xor(a, b) -- Bitwise exclusive or. -- xor(5, 3) => 6
    ~ [bits]: ~a -- Every bit flipped, `-a - 1`. -- ~5 => -6
    << [bits]: a << n -- a times 2 to the n. Overflow is an error, as is an n below zero. -- 5 << 2 => 20
    >> [bits]: a >> n -- a divided by 2 to the n, rounded down; 0 for an n outside of 0 to 63. -- -5 >> 1 => -3
    bit_count(x: integer) -> int64 -- The number of ones among its 64 bits. -- bit_count(7) => 3
    gcd(a: integer, b: integer) -> int64 -- The greatest common divisor, not below zero. -- gcd(-12, 18) => 6
    lcm(a: integer, b: integer) -> int64 -- The least common multiple, not below zero; overflow is an error. -- lcm(4, 6) => 12 -- case when a is null or b is null then null when a = 0 or b = 0 then 0 else abs(a // gcd(a, b) * b) end
    bin(x: integer) -> string -- The binary digits of its 64 bits, from the first 1 on. -- bin(5) => '101'
    """,
    bits=rules.bits,
)


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
    nullif [nullif]: nullif(a, b) -- Null if a equals b, otherwise a, in the type of a. -- nullif(1, 1) => null
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
    "date_sub": "datesub",
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
    "unhex": "from_hex",
    "bin": "to_binary",
    "gcd": "greatest_common_divisor",
    "lcm": "least_common_multiple",
    "levenshtein": "editdist3",
    "to_base64": "base64",
    "ord": "unicode",
    "regexp_split_to_array": "string_split_regex str_split_regex",
    "list_zip": "array_zip",
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
