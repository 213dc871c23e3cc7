"""The table of functions of texts."""

from __future__ import annotations

from ddcli.expressions import operators as rules
from ddcli.expressions.function import table

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
    split [split]: split(text, separator) -- The parts between separators: characters if it is empty, the whole text if it is null. -- split('a,b', ',') => ['a', 'b']
    split_part(text: string, separator: string, position: integer) -> string -- The part at a position between separators, empty if there is none; the first is 1, the last -1. -- split_part('a/b/c', '/', 2) => 'b'
    lpad(text: string, n: integer, fill: constant string = ' ') -> string -- The text filled on the left to n characters, at most 1048576, or cut to n. The fill is one character. -- lpad('7', 3, '0') => '007'
    rpad(text: string, n: integer, fill: constant string = ' ') -> string -- The text filled on the right to n characters, or cut to n. The fill is one character. -- rpad('abc', 2) => 'ab'
    left(text: string, n: integer) -> string -- The first n characters; with a negative n all but the last -n. -- left('abc', 2) => 'ab'
    right(text: string, n: integer) -> string -- The last n characters; with a negative n all but the first -n. -- right('abc', 2) => 'bc'
    reverse(text: string) -> string -- Characters (code points) in reverse order. -- reverse('abc') => 'cba'
    like(text: string, pattern: constant string, escape: constant string = '') -> bool -- True if the whole text matches: `%` is any text, `_` any character. Also `text [not] like pattern escape '!'`. -- like('abc', 'a%') => true
    ilike(text: string, pattern: constant string, escape: constant string = '') -> bool -- `like` without regard to case. -- ilike('ABC', 'a_c') => true
    regexp_like(text: string, pattern: constant string, flags: constant string = '') -> bool -- True if the pattern (Rust's regex syntax) matches anywhere. Flags: `i` without regard to case, `s` if `.` matches line breaks, too. -- regexp_like('ab12', '[0-9]+$') => true
    regexp_full_match(text: string, pattern: constant string, flags: constant string = '') -> bool -- True if the pattern matches the whole text. Flags as in regexp_like. -- regexp_full_match('ab12', '[a-z]+') => false
    regexp_split_to_array(text: string, pattern: constant string, flags: constant string = '') -> list[string] -- The parts of a text between matches of the pattern, which matches no empty text; of an empty pattern the characters. Flags as in regexp_like. -- regexp_split_to_array('a1b22c', '[0-9]+') => ['a', 'b', 'c']
    regexp_replace(text: string, pattern: constant string, new: constant string, flags: constant string = '') -> string -- Replace the first match, with the flag `g` every match; `\\1` in the new text is the first group. Other flags as in regexp_like. -- regexp_replace('a1b22', '([0-9]+)', '<\\1>', 'g') => 'a<1>b<22>'
    regexp_extract(text: string, pattern: constant string, group: constant integer = 0, flags: constant string = '') -> string? -- The first match or one of its groups; empty if there is none. -- regexp_extract('ab12', '[a-z]([0-9])', 1) => '1'
    regexp_extract_all(text: string, pattern: constant string, group: constant integer = 0, flags: constant string = '') -> list[string?] -- All matches, or one group of each; the pattern matches no empty text. A group needs a pattern that looks at nothing around a match (`^`, `$`, `\\b`). -- regexp_extract_all('a1b22', '([a-z])[0-9]+', 1) => ['a', 'b']
    regexp_substr(text: string, pattern: constant string) -> string? -- The first match; null if there is none. -- regexp_substr('ab12', '[0-9]') => '1'
    concat_ws [concat_ws]: concat_ws(separator: constant string, a, ...) -- Join text with a separator; nulls are ignored. -- concat_ws('-', 'a', null, 2) => 'a-2'
    repeat(text: string, n: integer) -> string -- The text n times, at most 1 MiB. -- repeat('ab', 2) => 'abab'
    translate(text: string, old: constant string, new: constant string) -> string -- Replace each character of `old` by that of `new` at its place; those without one are removed. -- translate('abcb', 'bc', 'x') => 'axx'
    initcap(text: string) -> string -- Each word, of letters, with its first one in upper case, the others in lower. -- initcap('heLLo wOrld') => 'Hello World'
    octet_length(text: string) -> int64 -- Number of bytes in UTF-8. -- octet_length('añb') => 4
    bit_length(text: string) -> int64 -- Number of bits in UTF-8. -- bit_length('a') => 8 -- 8 * octet_length(text)
    space(n: integer) -> string -- A text of n spaces. -- space(2) => '  ' -- repeat(' ', n)
    locate(part: string, text: string) -> int64 -- Position of the first match, 0 if none: `strpos` with the part first. -- locate('b', 'abc') => 2 -- strpos(text, part)
    md5(text: string) -> string -- The MD5 hash of the UTF-8, as 32 hexadecimal digits. -- md5('a') => '0cc175b9c0f1b6a831c399e269772661'
    sha256(text: string) -> string -- The SHA-256 hash of the UTF-8, as 64 hexadecimal digits. -- sha256('a') => 'ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'
    sha1(text: string) -> string -- The SHA-1 hash of the UTF-8, as 40 hexadecimal digits. -- sha1('a') => '86f7e437faa5a7fce15d1ddcb9eaeaea377667b8'
    encode(text: string) -> binary -- The bytes of a text in UTF-8. -- to_base64(encode('ñ')) => 'w7E='
    decode(x: binary) -> string -- The text of bytes in UTF-8; other bytes are an error. -- decode(encode('ñ')) => 'ñ'
    to_base64(x: binary) -> string -- Bytes in base64; of a text `to_base64(encode(text))`. -- to_base64(encode('abc')) => 'YWJj'
    from_base64(text: string) -> binary -- The bytes of a text in base64, with its `=` at the end; other text is an error. -- decode(from_base64('YWI=')) => 'ab'
    url_encode(text: string) -> string -- The text for a part of a URL: all bytes but those of letters, digits and `-_.~` as `%20`. -- url_encode('a b/c') => 'a%20b%2Fc'
    url_decode(text: string) -> string -- The text of a part of a URL; an error if its bytes are not UTF-8. -- url_decode('a%20b') => 'a b'
    strip_accents(text: string) -> string -- The text without the accents of its letters. -- strip_accents('mañana é') => 'manana e'
    levenshtein(a: string, b: string) -> int64 -- The least number of characters to insert, remove or replace that makes one text the other. -- levenshtein('kitten', 'sitting') => 3
    regexp_count(text: string, pattern: constant string) -> int64 -- The number of matches of the pattern. -- regexp_count('a1b22', '[0-9]+') => 2
    strftime(x: dated, format: constant string) -> string -- A date or timestamp as text: `%Y`, `%y`, `%m`, `%b`, `%B`, `%d`, `%j`, `%a`, `%A`, `%H`, `%I`, `%p`, `%M`, `%S`, `%f` (microseconds), `%%`. -- strftime(date '2024-02-01', '%d.%m.%Y') => '01.02.2024'
    chr(code: integer) -> string -- The character with this Unicode code point; an error if there is none. -- chr(241) => 'ñ'
    ascii(text: string) -> int64 -- The Unicode code point of the first character; 0 for an empty text. -- ascii('ñu') => 241
    ord(text: string) -> int64 -- `ascii` of a text, but -1 for an empty one. -- ord('') => -1 -- case when text = '' then -1 else ascii(text) end
    hex [hexadecimal]: hex(x) -- The 64 bits of an integer in hexadecimal digits, from the first that is not 0; for a text, its bytes in UTF-8. -- hex(255) => 'FF'
    """,
    joined=rules.joined,
    concat=rules.concat,
    split=rules.split,
    concat_ws=rules.concat_ws,
    hexadecimal=rules.hexadecimal,
)

JSON = table(
    """
    json_extract_string [json_part]: x ->> path, json_extract_string(x, path: constant) -- The part of a JSON text at a path, `'$.a[0].b'`, or under a name, or at a position from 0; a text without its quotes, null if nothing or `null` is there. If several members have one name the first counts. A text that is no JSON, or more than 100 deep, is an error. -- json_extract_string('{"a": [{"b": "x"}]}', '$.a[0].b') => 'x'
    json_extract [json_part]: x -> path, json_extract(x, path: constant) -- The same value as JSON in a text: with its quotes, and with `null` as a text. Of both functions a path with `[*]` at its end, `'$.a[*]'`, is the list of the elements, empty where there is no list. -- json_extract('{"a": ["x", 1.50]}', '$.a') => '["x",1.50]'
    get_json_object [json_part]: get_json_object(x, path: constant) -- The same as `json_extract_string`; null for a text that is no JSON. -- get_json_object('{', '$.a') => null
    json_value [json_part]: json_value(x, path: constant) -- The same as `json_extract` of a value that is no object and no list; null for these and for `null`. -- json_value('{"a": [1]}', '$.a') => null
    json_array_length [json_part]: json_array_length(x, path: constant = '$') -- The number of elements of the list at the path: 0 of any other value, null if there is none. -- json_array_length('[1, 2]') => 2
    json_type [json_part]: json_type(x, path: constant = '$') -- The kind of the value at the path: `OBJECT`, `ARRAY`, `VARCHAR`, `BOOLEAN`, `NULL`, `UBIGINT` of a whole number, `BIGINT` of one below zero, `DOUBLE` of another number; null if there is none. -- json_type('[1, 2]', '$[0]') => 'UBIGINT'
    json_keys [json_part]: json_keys(x, path: constant = '$') -- The names of an object's members, in their order: none of another value, null if there is none. -- json_keys('{"a": 1, "b": 2}') => ['a', 'b']
    json_exists [json_part]: json_exists(x, path: constant) -- True if the path leads to a value, also to a `null`. -- json_exists('{"a": null}', '$.a') => true
    json_contains(x: string, part: string) -> bool -- True if a JSON text has another one in it: equal to it or a value in it, of objects with at least its members, of lists with all its elements. -- json_contains('{"a": [1, 2]}', '2') => true
    json_merge_patch [merge_patch]: json_merge_patch(x, patch) -- An object with the members of a second one, which replace its own; a `null` there removes one. -- json_merge_patch('{"a": 1}', '{"a": null, "b": 2}') => '{"b":2}'
    to_json [to_json]: to_json(x) -- A value as JSON in a text: a text in quotes, a struct as an object, JSON that `->` or another such function made as it is. -- to_json({'a': [1, null], 'b': 'x'}) => '{"a":[1,null],"b":"x"}'
    json_object [to_json]: json_object('a', x, ...) -- The JSON object of names and values in turn. -- json_object('a', 1, 'b', null) => '{"a":1,"b":null}'
    json_array [to_json]: json_array(a, ...) -- The JSON list of values. -- json_array(1, 'x') => '[1,"x"]'
    json(x: string) -> string -- A JSON text without white space between its parts. -- json('[1, 2]') => '[1,2]'
    parse_json(x: string) -> string -- A text that is JSON, as it is, `x::json`; an error for another one, null from `try_parse_json`. -- parse_json('[1, 2]') => '[1, 2]'
    try_parse_json(x: string) -> string? -- The same; null for a text that is no JSON. -- try_parse_json('{') => null
    json_valid(x: string) -> bool -- True if a text is JSON. -- json_valid('{') => false
    json_structure(x: string) -> string -- The types of a JSON text's parts, as JSON, which `from_json` takes. -- json_structure('{"a": [1, 2.5]}') => '{"a":["DOUBLE"]}'
    from_json [from_json]: from_json(x, structure: constant) -- The JSON in a text as a struct or a list: the structure is JSON with types for values, `'{"a": "INT", "b": ["VARCHAR"]}'`. What is missing or has another type is null. -- from_json('{"a": 1.6, "b": ["x", null]}', '{"a": "INT", "b": ["VARCHAR"]}').b => ['x', null]
    """,
    json_part=rules.json_part,
    from_json=rules.from_json,
    to_json=rules.to_json,
    merge_patch=rules.merge_patch,
)
