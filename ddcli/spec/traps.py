"""The places where YAML's own punctuation cuts an SQL expression: a comma in a flow collection, ` #` in a plain scalar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
DANGLING = re.compile(r"(?:[-+*/|,(=<>]|\b(?:and|or|not|in|is|like|between|when|then|else|case))$", re.IGNORECASE)


def balance(expression: str) -> int:
    """Return the number of parentheses that an expression leaves open; negative if it closes more than it opens.

    >>> balance("coalesce(x"), balance("')' || upper(x)")
    (1, 0)
    """
    bare = QUOTED.sub("", expression)
    return bare.count("(") - bare.count(")")


def unfinished(expression: str) -> bool:
    """Return whether an expression must continue: it has an open quote or parenthesis, or an operator at its end."""
    bare = QUOTED.sub("''", expression)
    return (
        balance(expression) > 0
        or bare.count("'") % 2 == 1
        or bare.count('"') % 2 == 1
        or bool(DANGLING.search(bare.rstrip()))
    )


def cut_by_comma(parts: Sequence[str]) -> tuple[int, int] | None:
    """Return the parts of a flow collection where one expression begins and ends, if a comma cut one.

    One part must open a parenthesis and a later one close it: whole expressions never look like that.

    >>> cut_by_comma(["region", "coalesce(region", "0)", "day", "d"])
    (1, 2)
    """
    depth, first = 0, 0
    for index, part in enumerate(parts):
        change = balance(part)
        if depth <= 0 < change:
            depth, first = 0, index
        depth += change
        if change < 0 and depth == 0 and index > first:
            return first, index
    return None
