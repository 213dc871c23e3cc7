"""Text functions in polars. Positions and lengths count characters (code points); patterns are constants."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from typing import TYPE_CHECKING
from unicodedata import category, normalize
from urllib.parse import quote, unquote_to_bytes

import polars as pl

from ddcli.expressions.lower_number import each
from ddcli.expressions.lower_time import on_clock
from ddcli.expressions.patterns import in_rust, like_pattern
from ddcli.expressions.tree import Call, Literal

if TYPE_CHECKING:
    from ddcli.expressions.lower import Lower, Lowering


FAR = 1 << 31
"""A number beyond the positions in any text."""
LONGEST = 1 << 20
"""Bytes of the longest text that `repeat` makes, and characters of the longest by `lpad` and `rpad`."""
TOO_LONG = "the text is longer than 1 MiB"


def constant(call: Call, index: int, default: str = "") -> str:
    """Return a constant argument as text."""
    if len(call.args) <= index:
        return default
    arg = call.args[index]
    assert isinstance(arg, Literal)
    return str(arg.value)


def _substring(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, start, *rest = args
    given = [literal.value if isinstance(literal, Literal) else None for literal in call.args[1:]]
    if all(isinstance(value, int) and 0 <= value - (not at) <= FAR for at, value in enumerate(given)):
        return text.str.slice(start - 1, *rest)
    # From the end where the start is below zero; both ends may be outside of the text.
    size = text.str.len_chars().cast(pl.Int64)
    near = start.clip(-FAR, FAR)
    begin = pl.when(near < 0).then(size + near).otherwise(near - 1)
    end = begin + rest[0].clip(-FAR, FAR) if rest else size
    low = pl.min_horizontal(begin, end).clip(0) if rest else begin.clip(0)
    high = pl.max_horizontal(begin, end).clip(0)
    known = [value.is_not_null() for value in (start, *rest)]
    return pl.when(*known).then(text.str.slice(low, (high - low).clip(0)))


def part(size: pl.Expr, first: pl.Expr, last: pl.Expr | None) -> tuple[pl.Expr, pl.Expr]:
    """Return the offset and the length of `x[first:last]`, both included, in something of a size; numbers below zero count from the end."""
    near = first.clip(-FAR, FAR)
    begin = pl.when(near > 0).then(near - 1).when(near < 0).then(size + near).otherwise(0).clip(0)
    if last is None:
        return begin, (size - begin).clip(0)
    near = last.clip(-FAR, FAR)
    return begin, (pl.when(near < 0).then(size + near + 1).otherwise(near) - begin).clip(0)


SEVERAL = "[\xdf\u0149\u01f0\u0390\u03b0\u0587\u1e96-\u1e9a\u1f50-\u1ffc\ufb00-\ufb17]"
"""A pattern of all characters that are several in upper case by the rules for whole texts, and of some others."""


def _upper(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    def raised(values: pl.Series) -> pl.Series:
        if not values.str.contains(SEVERAL).any():
            return values.str.to_uppercase()
        by_character = [None if one is None else "".join(map(_upper_character, one)) for one in values]
        return pl.Series(values.name, by_character, pl.String)

    return args[0].map_batches(raised, return_dtype=pl.String, is_elementwise=True)


def _upper_character(character: str) -> str:
    found = character.upper() if len(character.upper()) == 1 else character.title()
    return "ẞ" if character == "ß" else found if len(found) == 1 else character


def _lower(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    # By the rules for whole texts `İ` would be two characters, and the last sigma of a word another than those within.
    return args[0].str.replace_many(["İ", "\u03a3"], ["i", "\u03c3"]).str.to_lowercase()


def _strpos(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    text, part = args
    # polars' find counts bytes; the length of the text before the match counts characters.
    before = text.str.splitn(part, 2).struct.field("field_0").str.len_chars().cast(pl.Int64)
    found = text.str.contains(part, literal=True)
    position = pl.when(part == "").then(1).when(found).then(before + 1).otherwise(0)
    return pl.when(text.is_not_null() & part.is_not_null()).then(position).cast(pl.Int64)


def _replace(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, old, new = args
    if any(isinstance(arg, Literal) and arg.value is None for arg in call.args[1:]):
        return pl.when(False).then(text)
    if isinstance(call.args[1], Literal) and isinstance(call.args[2], Literal):
        return text.str.replace_all(old, new, literal=True) if call.args[1].value else text
    joined = text.str.split(old).list.join(new)
    # polars splits empty text into no parts, and by an empty separator into characters.
    value = pl.when((old == "") | (text == "")).then(text).otherwise(joined)
    return pl.when(old.is_not_null() & new.is_not_null()).then(value)


def _split(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    text, separator = args
    return (
        pl.when(text.is_null()).then(None)
        # polars splits the empty text by nothing into one part.
        .when((text == "") & (separator == "")).then(pl.lit([], dtype=pl.List(pl.String)))
        .when(separator.is_null() | ((text == "") & (separator != ""))).then(pl.concat_list(text))
        .otherwise(text.str.split(separator))
    )  # fmt: skip


def _split_part(checks: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    parts, n = _split(checks, call, args[:2]), args[2].cast(pl.Int64)
    count = parts.list.len().cast(pl.Int64)
    inside = (n != 0) & (n <= count) & (n >= -count)
    at = pl.when(inside).then(pl.when(n > 0).then(n - 1).otherwise(count + n)).otherwise(0)
    value = pl.when(inside).then(parts.list.get(at, null_on_oob=True)).otherwise(pl.lit(""))
    return pl.when(parts.is_not_null() & args[1].is_not_null() & n.is_not_null()).then(value)


def _pad(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, n = args[:2]
    fill = constant(call, 2, " ")
    low.fail_given(call, args, n > LONGEST, TOO_LONG)
    size = n.clip(0, LONGEST)
    padded = text.str.pad_start(size, fill) if call.function == "lpad" else text.str.pad_end(size, fill)
    return pl.when(n.is_not_null()).then(padded.str.slice(0, size))


def _end(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, n = args
    near = n.clip(-(2**31), 2**31)
    value = text.str.head(near) if call.function == "left" else text.str.tail(near)
    return pl.when(n.is_not_null()).then(value)


def _trim(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    characters, text = constant(call, 1, " "), args[0].str
    if not characters:
        return args[0]
    if call.function == "trim":
        return text.strip_chars(characters)
    return text.strip_chars_start(characters) if call.function == "ltrim" else text.strip_chars_end(characters)


def _reverse(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    # polars' reverse keeps graphemes together; characters are code points here.
    return args[0].str.split("").list.reverse().list.join("")


def _like(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, same_case = args[0], call.function == "like"
    pieces = like_pattern(constant(call, 1), constant(call, 2))
    words = [piece for piece in pieces if piece]
    if same_case and len(words) <= 1 and "" not in pieces:
        return _simple_like(text, pieces, words[0] if words else "")
    body = "".join(".*" if piece is None else re.escape(piece) if piece else "." for piece in pieces)
    return text.str.contains(f"(?s{'' if same_case else 'i'})^{body}$".replace("\\ ", " "))


def _simple_like(text: pl.Expr, pieces: list[str | None], word: str) -> pl.Expr:
    """Lower patterns with at most one word: they need no regular expression."""
    if None not in pieces:
        return text == word
    first, last = pieces[0] is None, pieces[-1] is None
    if not word:
        return text.str.contains("", literal=True)
    if first and last:
        return text.str.contains(word, literal=True)
    return text.str.ends_with(word) if first else text.str.starts_with(word)


def _regexp_replace(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    # Ours is \1, polars' is ${1}.
    new = constant(call, 2).replace("$", "$$")
    new = re.sub(r"\\(\\|\d)", lambda match: "\\" if match[1] == "\\" else "${" + match[1] + "}", new)
    flags = constant(call, 3)
    pattern = flagged(constant(call, 1), flags)
    return args[0].str.replace_all(pattern, new) if "g" in flags else args[0].str.replace(pattern, new)


def flagged(pattern: str, flags: str) -> str:
    """Return a pattern in Rust's syntax with flags: `i` for texts without regard to case, `s` for a point that is a line break, too."""
    own, written = "".join(each for each in "is" if each in flags), in_rust(pattern)
    return f"(?{own}){written}" if own else written


def _regexp_extract(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    found = args[0].str.extract(flagged(constant(call, 1), constant(call, 3)), int(constant(call, 2, "0")))
    return pl.when(args[0].is_not_null()).then(found.fill_null(""))


def _regexp_extract_all(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    pattern, group = flagged(constant(call, 1), constant(call, 3)), int(constant(call, 2, "0"))
    found = args[0].str.extract_all(pattern)
    return found.list.eval(pl.element().str.extract(pattern, group)) if group else found


def _regexp_split(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    (text,), pattern = args[:1], constant(call, 1)
    found = text.str.split(flagged(pattern, constant(call, 2)), literal=False) if pattern else text.str.split("")
    # polars splits the empty text by nothing into one part.
    of_empty = pl.concat_list(text) if pattern else pl.lit([], dtype=pl.List(pl.String))
    return pl.when(text == "").then(of_empty).otherwise(found)


def _repeat(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, n = args
    # The product may wrap: a number beyond the most is too large for any text but the empty one.
    beyond = (text != "") & ((n > LONGEST) | (text.str.len_bytes().cast(pl.Int64) * n.clip(0, LONGEST) > LONGEST))
    low.fail_given(call, args, beyond, TOO_LONG)
    count = pl.when(beyond | (text == "")).then(0).otherwise(n.clip(0, LONGEST)).cast(pl.UInt32)
    found = text.repeat_by(count).list.join("")
    return pl.when(text.is_not_null() & n.is_not_null()).then(found)


def _translate(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    old, new = constant(call, 1), constant(call, 2)
    by: dict[str, str] = {}
    for at, character in enumerate(old):
        by.setdefault(character, new[at : at + 1])
    return args[0].str.replace_many(list(by), list(by.values())) if by else args[0]


def _hashed(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    def digits(data: bytes) -> str:
        return hashlib.new(call.function, data, usedforsecurity=False).hexdigest()

    return each(args[0].cast(pl.Binary), digits)


def _decode(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Lower `decode`, and `url_decode`, which has its bytes first: both read UTF-8."""

    def text(value: bytes | str) -> str | None:
        try:
            return (value if isinstance(value, bytes) else unquote_to_bytes(value)).decode()
        except UnicodeDecodeError:
            return None

    found = each(args[0], text)
    low.fail_given(call, args, args[0].is_not_null() & found.is_null(), "the bytes are not text in UTF-8")
    return found


def _from_base64(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    whole = args[0].str.contains(r"\A(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z")
    low.fail_given(call, args, ~whole, "the text is not base64")
    return each(pl.when(whole).then(args[0]), base64.b64decode, pl.Binary)


def _unhex(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    whole = args[0].str.contains(r"\A[0-9A-Fa-f]*\z")
    low.fail_given(call, args, ~whole, "the text has characters that are not hexadecimal digits")
    return each(pl.when(whole).then(args[0]), lambda text: bytes.fromhex("0" * (len(text) % 2) + text), pl.Binary)


def _without_accents(text: str) -> str:
    apart = "".join(each for each in normalize("NFD", text) if not category(each).startswith("M"))
    return normalize("NFC", apart)


def _levenshtein(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    def distance(pair: dict[str, str | None]) -> int | None:
        one, other = pair.values()
        if one is None or other is None:
            return None
        row = list(range(len(other) + 1))
        for at, character in enumerate(one, start=1):
            before, row[0] = row[0], at
            for to, same in enumerate(other, start=1):
                before, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, before + (character != same))
        return row[-1]

    return each(pl.struct(args[0].alias("0"), args[1].alias("1")), distance, pl.Int64)


def _chr(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    (code,) = args
    outside = (code < 0) | (code > sys.maxunicode) | code.is_between(0xD800, 0xDFFF)
    low.fail_given(call, args, outside, "no character has this code point")
    return each(pl.when(~outside).then(code), chr)


def _hex(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.args[0].type.kind in ("string", "binary"):
        return args[0].cast(pl.Binary).bin.encode("hex").str.to_uppercase()
    return each(args[0], lambda number: f"{number % 2**64:X}")


def _strftime(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    # Fractions of seconds are nanoseconds in polars.
    written = re.sub(r"%(.)", lambda match: "%6f" if match[1] == "f" else match[0], constant(call, 1))
    return on_clock(call, args[0]).cast(pl.Datetime("us")).dt.to_string(written)


LOWER: dict[str, Lower] = {
    "concat_ws": lambda _, call, args: pl.concat_str(
        args[1:], separator=constant(call, 0), ignore_nulls=True
    ).fill_null(""),
    "repeat": _repeat,
    "translate": _translate,
    "initcap": lambda _, __, args: args[0].str.to_titlecase(),
    "octet_length": lambda _, __, args: args[0].cast(pl.Binary).bin.size().cast(pl.Int64),
    "chr": _chr,
    "ascii": lambda _, __, args: each(args[0], lambda text: ord(text[0]) if text else 0, pl.Int64),
    "hex": _hex,
    "md5": _hashed,
    "sha256": _hashed,
    "sha1": _hashed,
    "encode": lambda _, __, args: args[0].cast(pl.Binary),
    "decode": _decode,
    "to_base64": lambda _, __, args: args[0].bin.encode("base64"),
    "from_base64": _from_base64,
    "unhex": _unhex,
    "url_encode": lambda _, __, args: each(args[0], lambda text: quote(text, safe="")),
    "url_decode": _decode,
    "strip_accents": lambda _, __, args: each(args[0], _without_accents),
    "levenshtein": _levenshtein,
    "regexp_count": lambda _, call, args: args[0].str.count_matches(in_rust(constant(call, 1))).cast(pl.Int64),
    "strftime": _strftime,
    "||": lambda _, __, args: args[0] if len(args) == 1 else pl.concat_str(args, ignore_nulls=False),
    "length": lambda _, __, args: args[0].str.len_chars().cast(pl.Int64),
    "upper": _upper,
    "lower": _lower,
    **dict.fromkeys(["trim", "ltrim", "rtrim"], _trim),
    "substring": _substring,
    "strpos": _strpos,
    "replace": _replace,
    "starts_with": lambda _, __, args: args[0].str.starts_with(args[1]),
    "ends_with": lambda _, __, args: args[0].str.ends_with(args[1]),
    "contains": lambda _, __, args: args[0].str.contains(args[1], literal=True),
    "split": _split,
    "split_part": _split_part,
    "lpad": _pad,
    "rpad": _pad,
    "left": _end,
    "right": _end,
    "reverse": _reverse,
    "like": _like,
    "ilike": _like,
    "regexp_like": lambda _, call, args: args[0].str.contains(flagged(constant(call, 1), constant(call, 2))),
    "regexp_full_match": lambda _, call, args: args[0].str.contains(
        flagged(rf"\A(?:{constant(call, 1)})\z", constant(call, 2))
    ),
    "regexp_split_to_array": _regexp_split,
    "regexp_replace": _regexp_replace,
    "regexp_extract": _regexp_extract,
    "regexp_extract_all": _regexp_extract_all,
    "regexp_substr": lambda _, call, args: args[0].str.extract(in_rust(constant(call, 1)), 0),
}
