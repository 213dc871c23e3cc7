"""The shapes of names, columns, expressions and orders, which inputs, operators, outputs and tests have in common."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ddcli.errors import Text
from ddcli.spec import operator_model
from ddcli.spec.shapes import As, ByKind, Many, Pairs
from ddcli.spec.values import ColumnName, ColumnType, ExpressionText, PathWords, Referring, Words

if TYPE_CHECKING:
    from ddcli.spec.reader import NodePlace, Shape

LETTERS = "letters, digits, `_` and `-`"
NAME = PathWords("a name", r"\w[\w-]*", f"a name is made of {LETTERS}")
ALIAS = Words("a name", r"[^\W\d]\w*", "a name that qualifies columns is made of letters, digits and `_`")
COLUMN = ColumnName("a column's name")
REFERENCE = Referring(Words("the name of an input or collection"))
EXPRESSION = ExpressionText()
COLUMNS = Many(COLUMN, "a list of columns", distinct=True, alone=True)
ASSIGNMENTS = Pairs(COLUMN, EXPRESSION, "a mapping of columns to expressions")


def _columns(_: NodePlace, pairs: tuple[tuple[Text, Any], ...]) -> operator_model.Columns:
    return {name.value: (name, type_) for name, type_ in pairs}


TYPED_COLUMNS = As(Pairs(COLUMN, ColumnType(), "a mapping of columns to types"), _columns)


BY: Shape[tuple[operator_model.GroupColumn, ...]] = ByKind(
    "a list of columns, or a mapping of names to expressions",
    scalar=As(COLUMN, lambda _, name: (operator_model.GroupColumn(name),)),
    sequence=As(
        Many(COLUMN, "a list of columns", least=0, distinct=True),
        lambda _, names: tuple(map(operator_model.GroupColumn, names)),
    ),
    mapping=As(ASSIGNMENTS, lambda _, pairs: tuple(operator_model.GroupColumn(*pair) for pair in pairs)),
    hint="write `by: [region]` or `by: {day: cast(placed_at as date)}`",
)
ON: Shape[tuple[tuple[Text, Text], ...]] = ByKind(
    "a list of common columns, or a mapping of left to right columns",
    scalar=As(COLUMN, lambda _, name: ((name, name),)),
    sequence=As(COLUMNS, lambda _, names: tuple((name, name) for name in names)),
    mapping=Pairs(COLUMN, COLUMN, "a mapping of left to right columns"),
    hint="write `on: [customer_id]` or `on: {manager: employee}`",
)


def _order(_: NodePlace, text: Text) -> operator_model.Order:
    match = re.fullmatch(r"(?is)(.*?\S)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", text.value)
    if match is None or not (match[2] or match[3]):
        return operator_model.Order(text)
    nulls_first = (match[3] or "").lower() == "first"
    return operator_model.Order(Text(match[1], text.span, text.inset), (match[2] or "").lower() == "desc", nulls_first)


ORDER = Many(As(EXPRESSION, _order), "a list of expressions", alone=True)
