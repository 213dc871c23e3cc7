"""A compiled query as dd's SQL: tables by their names in the pipeline, `/` and `desc` with DuckDB's meaning."""

from __future__ import annotations

import re
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
    from collections.abc import Mapping, Sequence


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
    edits = [*table_edits(trees[0], code, file, names), *_words(tokens)]
    edits += [(at.start() - 1, at.start(), "$$") for at in re.finditer(r"(?<=\$)\{", code)]
    edits += margins(code)
    edits.sort()
    return Translation(edited(code, edits), file, code, tuple(edits))


def _words(tokens: Sequence[Token]) -> list[Edit]:
    """Return edits that make `/` a quotient of floats, and null the last value of a descending order, as in DuckDB."""
    edits = []
    for at, token in enumerate(tokens):
        after = tokens[at + 1].text.lower() if at + 1 < len(tokens) else ""
        if token.token_type == TokenType.SLASH:
            edits.append((token.start, token.end + 1, "* 1e0 /"))
        elif token.token_type == TokenType.DESC and after != "nulls":
            edits.append((token.end + 1, token.end + 1, " nulls last"))
    return edits
