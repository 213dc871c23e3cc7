"""The table of functions: those of texts."""

from __future__ import annotations

from ddcli.expressions import operators as rules
from ddcli.expressions.function import derived, plain, ruled

TEXT = [
    ruled("concat", "a || b, concat(a, ...)", "Join text; null when one is null.", "'a' || 'b'", "'ab'", rules.concat),
    plain("length(text: string) -> int64", "Number of characters (code points).", "length('añb')", "3"),
    plain("upper(text: string) -> string", "In upper case, by Unicode.", "upper('aß')", "'ASS'"),
    plain("lower(text: string) -> string", "In lower case, by Unicode.", "lower('AÑ')", "'añ'"),
    plain("trim(text: string, characters: constant string = ' ') -> string", "Without the characters at both ends.", "trim('  a ')", "'a'"),
    plain("ltrim(text: string, characters: constant string = ' ') -> string", "Without the characters at the beginning.", "ltrim('xxa', 'x')", "'a'"),
    plain("rtrim(text: string, characters: constant string = ' ') -> string", "Without the characters at the end.", "rtrim('axx', 'x')", "'a'"),
    plain("substring(text: string, start: integer, length: integer = null) -> string", "Characters from position start (the first is 1). A negative length is an error.", "substring('hello', 2, 3)", "'ell'"),
    plain("strpos(text: string, part: string) -> int64", "Position of the first match, 0 if none.", "strpos('añb', 'b')", "3"),
    plain("replace(text: string, old: string, new: string) -> string", "Replace every occurrence; an empty `old` replaces nothing.", "replace('aba', 'a', 'x')", "'xbx'"),
    plain("starts_with(text: string, part: string) -> bool", "Whether text begins so.", "starts_with('abc', 'ab')", "true"),
    plain("ends_with(text: string, part: string) -> bool", "Whether text ends so.", "ends_with('abc', 'bc')", "true"),
    plain("contains(text: string, part: string) -> bool", "Whether part occurs.", "contains('abc', 'b')", "true"),
    plain("split(text: string, separator: string) -> list[string]", "The parts between separators; an empty separator splits nothing.", "split('a,b', ',')", "['a', 'b']"),
    plain("split_part(text: string, separator: string, position: integer) -> string", "The part at a position between separators, empty where there is none; the first is 1, the last -1.", "split_part('a/b/c', '/', 2)", "'b'"),
    plain("lpad(text: string, n: integer, fill: constant string = ' ') -> string", "Filled on the left to n characters, or cut to n. The fill is one character.", "lpad('7', 3, '0')", "'007'"),
    plain("rpad(text: string, n: integer, fill: constant string = ' ') -> string", "Filled on the right to n characters, or cut to n. The fill is one character.", "rpad('abc', 2)", "'ab'"),
    plain("left(text: string, n: integer) -> string", "First n characters; all but the last -n.", "left('abc', 2)", "'ab'"),
    plain("right(text: string, n: integer) -> string", "Last n characters; all but the first -n.", "right('abc', 2)", "'bc'"),
    plain("reverse(text: string) -> string", "Characters (code points) in reverse order.", "reverse('abc')", "'cba'"),
    plain("like(text: string, pattern: constant string, escape: constant string = '') -> bool", "Whether the whole text matches: `%` is any text, `_` any character. Also `text [not] like pattern escape '!'`.", "like('abc', 'a%')", "true"),
    plain("ilike(text: string, pattern: constant string, escape: constant string = '') -> bool", "`like` without regard to case.", "ilike('ABC', 'a_c')", "true"),
    plain("regexp_like(text: string, pattern: constant string) -> bool", "Whether the pattern (Rust's regex syntax) matches anywhere.", "regexp_like('ab12', '[0-9]+$')", "true"),
    plain("regexp_replace(text: string, pattern: constant string, new: constant string, flags: constant string = 'g') -> string", "Replace every match; `\\1` in the new text is the first group.", "regexp_replace('a1b22', '([0-9]+)', '<\\1>')", "'a<1>b<22>'"),
    plain("regexp_extract(text: string, pattern: constant string, group: constant integer = 0) -> string?", "The first match or one of its groups; null if there is none.", "regexp_extract('ab12', '[a-z]([0-9])', 1)", "'1'"),
    ruled("concat_ws", "concat_ws(separator: constant string, a, ...)", "Join text with a separator; nulls are passed over.", "concat_ws('-', 'a', null, 2)", "'a-2'", rules.concat_ws),
    plain("repeat(text: string, n: integer) -> string", "The text n times, at most 1 MiB.", "repeat('ab', 2)", "'abab'"),
    plain("translate(text: string, old: constant string, new: constant string) -> string", "Replace each character of `old` by that of `new` at its place; those without one go.", "translate('abcb', 'bc', 'x')", "'axx'"),
    plain("initcap(text: string) -> string", "Each word, of letters and digits, with its first letter in upper case, the others in lower.", "initcap('heLLo wOrld')", "'Hello World'"),
    plain("octet_length(text: string) -> int64", "Number of bytes in UTF-8.", "octet_length('añb')", "4"),
    derived("bit_length(text: string) -> int64", "Number of bits in UTF-8.", "bit_length('a')", "8", "8 * octet_length(text)"),
    derived("space(n: integer) -> string", "So many spaces.", "space(2)", "'  '", "repeat(' ', n)"),
    derived("locate(part: string, text: string) -> int64", "Position of the first match, 0 if none: `strpos` with the part first.", "locate('b', 'abc')", "2", "strpos(text, part)"),
    plain("md5(text: string) -> string", "The MD5 hash of the UTF-8, as 32 hexadecimal digits.", "md5('a')", "'0cc175b9c0f1b6a831c399e269772661'"),
    plain("sha256(text: string) -> string", "The SHA-256 hash of the UTF-8, as 64 hexadecimal digits.", "sha256('a')", "'ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'"),
    plain("regexp_count(text: string, pattern: constant string) -> int64", "How often the pattern matches.", "regexp_count('a1b22', '[0-9]+')", "2"),
    plain("strftime(x: dated, format: constant string) -> string", "A date or timestamp as text: `%Y`, `%y`, `%m`, `%b`, `%B`, `%d`, `%j`, `%a`, `%A`, `%H`, `%I`, `%p`, `%M`, `%S`, `%f` (microseconds), `%%`.", "strftime(date '2024-02-01', '%d.%m.%Y')", "'01.02.2024'"),
    plain("chr(code: integer) -> string", "The character with this Unicode code point; where there is none, an error.", "chr(241)", "'ñ'"),
    plain("ascii(text: string) -> int64", "The Unicode code point of the first character, 0 of an empty text.", "ascii('ñu')", "241"),
    ruled("hex", "hex(x)", "The 64 bits of an integer in hexadecimal digits, from the first that is not 0; of a text its bytes in UTF-8.", "hex(255)", "'FF'", rules.hexadecimal),
]  # fmt: skip

JSON = [
    ruled("json_extract_string", "x ->> path, json_extract_string(x, path: constant)", "What stands in a JSON text at a path, `'$.a[0].b'`, or under a name, or at a position from 0; a text without its quotes, null where nothing or `null` is there. Of members of one name the last counts. What is no JSON, or more than 100 deep, is an error.", """json_extract_string('{"a": [{"b": "x"}]}', '$.a[0].b')""", "'x'", rules.json_part),
    ruled("json_extract", "x -> path, json_extract(x, path: constant)", "The same, as JSON in a text: with its quotes, and `null` as it is.", """json_extract('{"a": ["x", 1.50]}', '$.a')""", """'["x",1.50]'""", rules.json_part),
    ruled("get_json_object", "get_json_object(x, path: constant)", "The same as `json_extract_string`; of what is no JSON null.", "get_json_object('{', '$.a')", "null", rules.json_part),
    ruled("json_array_length", "json_array_length(x, path: constant = '$')", "How many elements the list has that stands at the path; null where there is none.", "json_array_length('[1, 2]')", "2", rules.json_part),
    plain("json_valid(x: string) -> bool", "Whether a text is JSON.", "json_valid('{')", "false"),
]  # fmt: skip
