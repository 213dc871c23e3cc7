"""A compiled query as dd's SQL: tables by their names in the pipeline, quotients and means of decimals as floats, as in DuckDB."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import sqlglot
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from ddcli.commands.projects.translation import (
    UNWRITABLE,
    Edit,
    Translation,
    edited,
    margins,
    span,
    table_edits,
    unreadable,
)
from ddcli.errors import Span, SpecError
from ddcli.expressions.tree import deep_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

REFUSED = {
    **dict.fromkeys(
        ("corr", "regr_slope", "regr_intercept", "regr_r2"),
        ("it is null here where DuckDB has NaN: of one row, and of equal ones", "write it by sums and `nullif`"),
    ),
    **dict.fromkeys(
        ("median", "quantile_cont", "percentile_cont"),
        (
            "of decimals it is a float here, and in DuckDB a decimal of as many digits",
            "write it of `cast(x as double)`",
        ),
    ),
    **dict.fromkeys(
        ("array_to_string", "list_to_string"),
        ("of a list of nulls alone it is an empty text here, and null in DuckDB", "filter the nulls before"),
    ),
}
"""The functions whose values may be others here than in DuckDB, unless they are of floats."""
FLOATS = ("DOUBLE", "FLOAT8", "REAL", "FLOAT")


def translate(code: str, file: str, names: Mapping[tuple[str, ...], str]) -> Translation:
    """Return a compiled query with the names of its tables in the pipeline. Raises SpecError if it can't be translated.

    `names` has the pipeline's names of relations by their parts, in lower case.
    """
    code = code.replace("\r\n", "\n")
    if bad := UNWRITABLE.search(code):
        raise SpecError("a pipeline file can't hold this character", span=span(file, code, bad.start()))
    try:
        tokens = DuckDB().tokenize(code)
        with deep_calls():
            trees = sqlglot.parse(code, dialect="duckdb")
    except (SqlglotError, RecursionError) as error:
        at, column, problem = unreadable(error)
        lines = code.split("\n")
        place = Span(file, at, column, 1, lines[at - 1] if at <= len(lines) else "")
        raise SpecError(problem, span=place) from None
    if len(trees) != 1 or trees[0] is None:
        problem = "there is no query" if not any(trees) else "there are several statements"
        raise SpecError(problem, span=span(file, code, 0), hint="a model is one `select`")
    edits = [*table_edits(trees[0], code, file, names), *_numbers(code, file, tokens)]
    edits += [(at.start() - 1, at.start(), "$$") for at in re.finditer(r"(?<=\$)\{", code)]
    edits += margins(code)
    edits.sort()
    return Translation(edited(code, edits), file, code, tuple(edits))


def _numbers(code: str, file: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that make quotients and means of decimals floats; refuse functions that may differ."""
    for at, token in enumerate(tokens):
        word = token.text.lower() if token.token_type != TokenType.STRING else ""
        called = at + 1 < len(tokens) and tokens[at + 1].token_type == TokenType.L_PAREN
        if token.token_type == TokenType.SLASH:
            yield token.start, token.end + 1, "* 1e0 /"
        elif word in ("avg", "mean") and called:
            inside = _inside(tokens, at + 2)
            if inside and inside[0].text.lower() in ("distinct", "all"):
                inside = inside[1:]
            if inside:
                yield inside[0].start, inside[0].start, "cast("
                yield inside[-1].end + 1, inside[-1].end + 1, " as double)"
        elif word in REFUSED and called and not _is_of_floats(_inside(tokens, at + 2)):
            problem, hint = REFUSED[word]
            raise SpecError(f"`{word}`: {problem}", span=span(file, code, token.start, len(word)), hint=hint)


def _inside(tokens: Sequence[Token], start: int) -> Sequence[Token]:
    """Return the tokens from a place within parentheses up to the end of these."""
    depth, end = 1, start
    while end < len(tokens) and depth:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[end].token_type, 0)
        end += 1
    return tokens[start : end - 1]


def _is_of_floats(tokens: Sequence[Token]) -> bool:
    """Return whether the argument of a call is a cast to a float."""
    words = [token.text.upper() for token in tokens[:2]]
    cast = words == ["CAST", "("] and any(token.text.upper() in FLOATS for token in tokens)
    return cast or any(one.text == "::" and other.text.upper() in FLOATS for one, other in pairwise(tokens))
