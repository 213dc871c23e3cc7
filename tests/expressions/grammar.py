"""Random SQL text, without a parenthesis that precedence makes redundant, of what means the same here and in DuckDB.

`typed` follows SQL's grammar level by level, so that most of what it gives has a meaning. `wild` puts operands and operators in a
row as they come: whoever accepts it must read it as DuckDB does. What the two mean otherwise, by documentation, is left out or
written in a way that they share: division by zero (an error here, null there), `greatest`, `least` and `concat` of nulls, rounding
and texts of floats, the difference of dates, casts of texts that have not the form of the type.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

from hypothesis import strategies as st

COLUMNS = {"i": "int64?", "j": "int64", "f": "float64?", "d": "decimal(6, 2)?", "s": "string?", "u": "string"}
COLUMNS |= {"p": "bool?", "q": "bool?", "r": "bool", "day": "date?", "seen": "datetime[us]?"}
SQL_TYPES = {"int64": "bigint", "float64": "double", "decimal(6, 2)": "decimal(6, 2)", "string": "varchar"}
SQL_TYPES |= {"bool": "boolean", "date": "date", "datetime[us]": "timestamp"}

NUMBERS = (None, 0, 1, -1, 2, 3, -7, 9)
VALUES: dict[str, tuple[object, ...]] = {
    "i": NUMBERS,
    "j": NUMBERS[1:],
    "f": (None, 0.0, 0.5, -1.5, 3.0, math.inf, math.nan),
    "d": (None, Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("3.00")),
    "s": (None, "", "a", "ab", "A%b", "b_", "xax", "  a "),
    "u": ("", "a", "ab", "aB", "a!"),
    "p": (None, True, False),
    "q": (None, True, False),
    "r": (True, False),
    "day": (None, dt.date(2013, 1, 31), dt.date(2012, 2, 29), dt.date(1969, 12, 28)),
    "seen": (None, dt.datetime(2013, 1, 31, 10, 20, 30), dt.datetime(1969, 12, 31, 23, 59, 59, 500000)),  # noqa: DTZ001
}


def rows(count: int) -> list[dict[str, object]]:
    """Return rows that hold the values in different company: as many values in turn, each column at its own pace."""
    return [
        {name: values[(n // (pace + 1) + n * pace) % len(values)] for pace, (name, values) in enumerate(VALUES.items())}
        for n in range(count)
    ]


# Each level's forms, written in lower levels: `{bool}` is any condition, `{is}` one that binds tighter, and so on.
GRAMMAR = """
bool:      {and} ; {and} ; {and} or {and} ; {and} or {and} or {and}
and:       {not} ; {not} ; {not} and {not} ; {not} and {not} and {not}
not:       {is} ; {is} ; not {not}
is:        {compare} ; {compare} ; {compare} ; {condition} is {no}null ; {number} is {no}null ; {text} is {no}null
is:        {condition} is {no}true ; {condition} is {no}false ; {condition} is {no}unknown ; {date} is {no}null
is:        {number} isnull ; {text} notnull ; {number} is {no}distinct from {number} ; {text} is {no}distinct from {text}
is:        {date} is {no}distinct from {date}
compare:   {range} ; {range} ; {number} {sign} {number} ; {number} {sign} {number} ; {text} {sign} {text}
compare:   {date} {sign} {date} ; {moment} {sign} {moment} ; {condition} {sign} {condition}
sign:      = ; <> ; < ; <= ; > ; >= ; == ; !=
range:     {condition} ; {number} {no}between {number} and {number} ; {date} {no}between {date} and {date}
range:     {number} {no}in ({number}, {number}, 1) ; {text} {no}in ('a', {text}) ; {text} {no}in ('ab', null)
range:     {text} {no}like {pattern}{escape} ; {text} {no}ilike {pattern}{escape} ; {text} ~~ 'a%' ; {text} !~~ '%b'
range:     {text} ~~* 'A_' ; {text} !~~* '%B' ; {text} {no}between {text} and {text}
pattern:   'a%' ; '%b' ; 'a_' ; '%' ; 'a!%b' ; '%!_%' ; '' ; 'A%'
condition: p ; q ; r ; true ; false ; ({bool}) ; ({bool}) ; coalesce({bool}, {bool}) ; if({bool}, {bool}, {bool})
condition: case when {bool} then {bool} else {bool} end ; starts_with({text}, {text}) ; contains({text}, 'a')
condition: ends_with({text}, 'b') ; nullif({condition}, {condition})
number:    {product} ; {product} ; {product} + {product} ; {product} - {product} ; {product} - {product} - {product}
number:    {product} + {product} - {product}
product:   {unary} ; {unary} ; {unary} * {unary} ; {unary} * {unary} * {unary} ; {whole} / 3 ; {whole} % 4
product:   {whole} // 2 * {unary} ; {whole} / 2 * {unary} ; {whole} * {whole} % 5 ; {whole} % 5 * {unary} ; {real} / 4e0
unary:     {whole} ; {whole} ; {real} ; {exact} ; -{whole} ; - {real} ; -{exact} ; +{whole}
whole:     i ; j ; i ; j ; 1 ; 2 ; 7 ; 0 ; length({text}) ; abs({whole}) ; strpos({text}, {text}) ; sign({whole})
whole:     extract(year from {date}) ; extract(dow from {moment}) ; month({date}) ; cast({bool} as bigint)
whole:     coalesce({whole}, {whole}) ; case {whole} when {whole} then {whole} when 2 then {whole} end ; [{whole}, 5][1]
whole:     case when {bool} then {whole} when {bool} then {whole} else {whole} end ; nullif({whole}, {whole})
whole:     position('a' in {text}) ; cast('12' as bigint) ; date_diff('day', {date}, {date}) ; quarter({date})
whole:     if({bool}, {whole}, {whole}) ; least(j, 3) ; greatest(j, -1) ; (j + {whole}) ; (1 - {whole})
real:      f ; f ; 1.5e0 ; 2e0 ; cast({whole} as double) ; coalesce({real}, {real}) ; abs({real}) ; floor({real})
real:      (f + {real}) ; (1e0-{real}) ; 1e0+{real} ; case when {bool} then {real} end
exact:     d ; d ; 1.5 ; 0.25 ; coalesce({exact}, 1.5) ; abs({exact})
text:      {word} ; {word} ; {word} || {word} ; {word} || {whole} ; {word} || {word} || {whole} + 1
word:      s ; u ; s ; u ; 'a' ; '' ; 'it''s' ; upper({text}) ; lower({text}) ; trim({text}) ; ltrim({text}, 'x')
word:      trim(both 'x' from {text}) ; substring({text} from 2 for 1) ; substring({text}, 2) ; nullif({text}, 'a')
word:      replace({text}, 'a', 'cc') ; left({text}, 1) ; right({text}, 2) ; lpad({text}, 3, '*') ; reverse({text}) ; split_part({text}, 'a', i)
word:      coalesce({text}, {text}) ; cast({whole} as varchar) ; cast({bool} as varchar) ; cast({date} as varchar)
word:      case when {bool} then {text} else {text} end ; rpad({text}, 2, '-')
date:      day ; day ; date '2013-01-31' ; date '2012-12-01' ; coalesce({date}, {date}) ; cast({moment} as date)
date:      make_date(2013, 2, 3) ; cast(date_trunc('month', {date}) as date) ; case when {bool} then {date} else {date} end
moment:    seen ; seen ; timestamp '2013-01-31 10:20:30' ; seen + interval '90' minute ; seen - interval '1' month
moment:    date_trunc('hour', seen) ; seen + interval '2' day - interval '1' hour ; coalesce({moment}, {moment})
moment:    cast({date} as timestamp) ; {date} + interval '1' month ; {date} - interval '3' day ; interval '2' day + seen
"""


def _levels(text: str) -> dict[str, list[str]]:
    """Return the forms of each level."""
    found: dict[str, list[str]] = {"no": ["", "not "], "escape": ["", "", " escape '!'"]}
    for line in text.strip().splitlines():
        level, _, forms = line.partition(":")
        found.setdefault(level, []).extend(form.strip() for form in forms.split(" ; "))
    return found


LEVELS = _levels(GRAMMAR)
PLAIN = {level: [form for form in forms if "{" not in form] or forms[:1] for level, forms in LEVELS.items()}
"""The forms with which a text comes to its end."""
KINDS = ("bool", "bool", "bool", "number", "text", "date", "moment")


@st.composite
def typed(draw: st.DrawFn, depth: int = 6) -> str:
    """Return the text of an expression that means something."""

    def written(level: str, left: int) -> str:
        out, rest = "", draw(st.sampled_from(LEVELS[level] if left > 0 else PLAIN[level]))
        while "{" in rest:
            before, _, rest = rest.partition("{")
            inner, _, rest = rest.partition("}")
            # A level below is the same expression; parentheses and arguments are deeper.
            out += before + written(inner, left - 1)
        return out + rest

    return written(draw(st.sampled_from(KINDS)), draw(st.integers(depth - 4, depth)))


PREFIX = {"bool": ["not"], "whole": ["-", "- -"], "text": []}
OPERANDS = {"bool": ["p", "q", "r", "true", "null"], "whole": ["i", "j", "1", "2", "null"], "text": ["s", "u", "'a'"]}
INFIX = {
    "bool": ["and", "or", "=", "<>", "<", ">=", "is distinct from", "is not distinct from", "in (true) =", "== "],
    "whole": [
        "+",
        "-",
        "*",
        "/ 3 +",
        "// 3 -",
        "% 4 -",
        "=",
        "<",
        "<>",
        "and",
        "or",
        "between",
        "not between",
        "||",
        ">",
        "*-",
    ],
    "text": ["||", "=", "<", "like", "not like", "ilike", "and", "or", "is distinct from", "between", "~~", "!~~"],
}
POSTFIX = ["is null", "is not null", "isnull", "notnull", "is true", "is not false", "is unknown", "in (1, 2)"]
POSTFIX += ["not in (null, 2)", "like 'a%'", "not like 'a'", "not ilike '%B' escape '!'", "between 1 and 2", "+ 1"]
POSTFIX += ["between true and false", "not between 'a' and 'b'", "in (p, r)", "= j", "= q", "is distinct from j"]
KEYWORDS = ["symmetric", "asymmetric", "distinct", "all", "any", "escape", "collate", "filter", "over", "ignore nulls"]
KEYWORDS += [
    "nulls first",
    "similar to",
    "glob",
    "rlike",
    "regexp",
    "div",
    "mod",
    "xor",
    "^",
    "&",
    "|",
    "~",
    "**",
    "//",
]
KEYWORDS += [
    "::int",
    "at time zone 'UTC'",
    "as",
    "is",
    "not",
    "null",
    "then",
    "between",
    "and",
    "escape 'a'",
    "%",
    "<=>",
]
KEYWORDS += [
    "exists",
    "array",
    "interval",
    "day",
    "date",
    "timestamp",
    "like any",
    "->",
    "=>",
    ":=",
    "?",
    "??",
    "(",
    ")",
]


@st.composite
def wild(draw: st.DrawFn) -> str:
    """Return operands and operators in a row, mostly of one type, with a foreign word now and then."""
    kind = draw(st.sampled_from(["bool", "bool", "whole", "text"]))
    words: list[str] = []
    for number in range(draw(st.integers(2, 4))):
        if number:
            words.append(draw(st.sampled_from(INFIX[kind])))
        if PREFIX[kind] and draw(st.integers(0, 2)) == 0:
            words.append(draw(st.sampled_from(PREFIX[kind])))
        words.append(draw(st.sampled_from(OPERANDS[kind])))
        if draw(st.integers(0, 2)) == 0:
            words.append(draw(st.sampled_from(POSTFIX)))
        if draw(st.integers(0, 9)) == 0:
            words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(KEYWORDS)))
    return " ".join(words)
