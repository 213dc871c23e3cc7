"""The functions of Spark that a query keeps: those with the same values here, found by comparison over random rows, and those that are rewritten."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType

from ddcli.commands.projects.translation import span
from ddcli.commands.sdp.definitions import NAMED, word_of
from ddcli.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot.tokenizer_core import Token

    from ddcli.commands.projects.translation import Edit


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SAME = _words("""
    abs add_months any any_value approx_count_distinct array array_join array_max array_min array_sort ascii avg bin
    bit_count bool_and bool_or btrim cardinality cast cbrt ceil ceiling char_length character_length chr coalesce
    concat_ws contains corr count count_if covar_pop covar_samp cume_dist current_date current_timestamp date_add
    date_part date_sub day dayofmonth dayofyear dense_rank endswith every exp extract first_value floor greatest hex
    hour if ifnull instr isnotnull isnull lag last_day last_value lcase lead least left length listagg ln locate
    log10 lower lpad ltrim make_date max max_by md5 mean median min min_by minute mod mode month named_struct now
    nth_value ntile nullif nvl nvl2 octet_length percent_rank percentile percentile_cont percentile_disc pi position
    pow power quarter rank regexp_like regr_count regr_slope repeat reverse right round row_number rpad rtrim second
    sign signum size space split_part sqrt startswith stddev stddev_pop stddev_samp string_agg sum translate trim
    try_add try_cast try_divide try_multiply try_subtract var_pop var_samp variance weekofyear year
    """)
"""The functions whose values are the same in Spark and here, as far as types are."""
REWRITTEN = _words("date_trunc datediff log regexp_extract regexp_replace replace split substr substring")
GRAMMAR = _words("""
    all and anti any as between by case char cube dec decimal distinct else end except exists filter from group
    having ilike in inner intersect interval is join lateral left like limit minus natural not numeric offset on or
    order over partition qualify recursive right rlike rollup select semi sets some stream then union unpivot using
    values varchar when where window with within
    """)
"""The words that may stand before a parenthesis and are no functions."""
OTHER_PARTS = {
    **dict.fromkeys(("DOW", "DAYOFWEEK", "DOW_ISO", "DAYOFWEEK_ISO"), "the days of a week have other numbers in Spark"),
    **dict.fromkeys(
        ("SECOND", "SECONDS", "S", "SEC", "SECS"), "seconds are a decimal with six digits in Spark: `second` is whole"
    ),
}
"""The parts of a date or a timestamp that are others here, with the reason."""
PLAIN = re.compile(r"[\w ,;:/=@#&~!<>'\"-]+")
"""A pattern that is a text without letters of special meaning."""


def function_edits(text: str, file: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that give functions, subscripts and timestamps Spark's meaning; refuse functions that may mean something else here."""
    opened: list[str] = []
    for at, token in enumerate(tokens):
        word = word_of(token).lower()
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        before = word_of(tokens[at - 1]).lower() if at else ""
        if word == "(":
            opened.append(before)
        elif word == ")":
            opened = opened[:-1]
        elif word == "[":
            yield from _subscript(tokens, at)
        elif word == "timestamp" and after is not None:
            cast = before == "::" or (before == "as" and opened[-1:] and opened[-1] in ("cast", "try_cast"))
            if cast or after.token_type == TokenType.STRING:
                yield token.start, token.end + 1, "timestamptz"
        elif word and after is not None and word_of(after) == "(" and _is_call(tokens, at, before):
            yield from _call(text, file, tokens, at)


def _is_call(tokens: Sequence[Token], at: int, before: str) -> bool:
    """Return whether a word before a parenthesis is a function: not a word of the grammar, nor a table with names for its columns."""
    word = word_of(tokens[at]).lower()
    last = word.rsplit(" ", maxsplit=1)[-1]
    if last in GRAMMAR and word not in SAME:
        return False
    if not re.fullmatch(r"\w+", word) or before in ("as", "with", "recursive", ")"):
        return False
    closing = _closing(tokens, at + 1)
    follows = word_of(tokens[closing + 1]).lower() if closing + 1 < len(tokens) else ""
    return not (before == "," and follows == "as" and word_of(tokens[min(closing + 2, len(tokens) - 1)]) == "(")


def _call(text: str, file: str, tokens: Sequence[Token], at: int) -> Iterator[Edit]:
    """Yield the edits of a call; refuse one that is not known to mean the same."""
    name, closing = word_of(tokens[at]).lower(), _closing(tokens, at + 1)
    token, end = tokens[at], tokens[closing]
    args = _arguments(tokens, at + 1, closing)
    place = span(file, text, token.start, len(token.text))
    if name in SAME:
        part = tokens[at + 2].text.upper() if name in ("extract", "date_part") else ""
        if part in OTHER_PARTS:
            raise SpecError(OTHER_PARTS[part], span=place)
        return
    if name not in REWRITTEN:
        hint = "write it with other functions, or leave it to the pipeline file"
        raise SpecError(f"`{name}` is not known to mean the same here", span=place, hint=hint)
    if name == "datediff" and len(args) == 2:  # the end comes first in Spark
        yield token.start, tokens[at + 1].end + 1, "(-date_diff('day', "
        yield end.start, end.end + 1, "))"
    elif name == "log" and len(args) == 1:
        yield token.start, token.end + 1, "ln"
    elif name == "replace" and len(args) == 2:
        yield end.start, end.start, ", ''"
    elif name == "date_trunc" and len(args) == 2:
        yield args[1][0].start, args[1][0].start, "cast("
        yield end.start, end.start, " as timestamptz)"
    elif name == "regexp_extract" and len(args) == 2:
        yield end.start, end.start, ", 1"
    elif name == "regexp_replace":
        new = args[2] if len(args) == 3 else []
        if len(new) != 1 or new[0].token_type != TokenType.STRING or "$" in new[0].text:
            hint = "write a new text without `$`, and no position"
            raise SpecError("this `regexp_replace` may mean something else here", span=place, hint=hint)
        yield end.start, end.start, ", 'g'"
    elif name == "split":
        form = args[1] if len(args) == 2 else []
        if len(form) != 1 or form[0].token_type != TokenType.STRING or not PLAIN.fullmatch(form[0].text):
            hint = "write a separator of letters, digits, commas and the like, and no limit"
            raise SpecError("`split` takes a pattern in Spark, and a text here", span=place, hint=hint)


def _subscript(tokens: Sequence[Token], at: int) -> Iterator[Edit]:
    """Yield the edits of a subscript: elements are counted from 0 in Spark, and from 1 here."""
    depth, end = 1, at + 1
    while end < len(tokens) and depth:
        depth += {"[": 1, "]": -1}.get(word_of(tokens[end]), 0)
        end += 1
    inside = tokens[at + 1 : end - 1]
    if len(inside) == 1 and inside[0].token_type == TokenType.NUMBER and inside[0].text.isdigit():
        yield inside[0].start, inside[0].end + 1, str(int(inside[0].text) + 1)
    elif inside and inside[0].token_type not in NAMED[:2]:
        yield inside[0].start, inside[0].start, "("
        yield inside[-1].end + 1, inside[-1].end + 1, ") + 1"


def _closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the parenthesis that closes another."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(word_of(tokens[at]), 0)
        if not depth:
            return at
    return len(tokens) - 1


def _arguments(tokens: Sequence[Token], opening: int, closing: int) -> list[list[Token]]:
    """Return the tokens of each argument of a call."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[opening + 1 : closing]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word_of(token), 0)
        if not depth and word_of(token) == ",":
            found.append([])
        else:
            found[-1].append(token)
    return found if found[0] else []
