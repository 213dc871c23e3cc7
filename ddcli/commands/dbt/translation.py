"""A compiled query as dd's SQL, with tables by their names in the pipeline."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlglot
from sqlglot.errors import SqlglotError

from ddcli.commands.projects.translation import (
    UNWRITABLE,
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
    from collections.abc import Mapping


def translate(code: str, file: str, names: Mapping[tuple[str, ...], str]) -> Translation:
    """Return a compiled query with the names of its tables in the pipeline. Raises SpecError if it can't be translated.

    `names` has the pipeline's names of relations by their parts, in lower case.
    """
    code = code.replace("\r\n", "\n")
    if bad := UNWRITABLE.search(code):
        raise SpecError("a pipeline file can't hold this character", span=span(file, code, bad.start()))
    try:
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
    edits = [*table_edits(trees[0], code, file, names)]
    edits += [(at.start() - 1, at.start(), "$$") for at in re.finditer(r"(?<=\$)\{", code)]
    edits += margins(code)
    edits.sort()
    return Translation(edited(code, edits), file, code, tuple(edits))
