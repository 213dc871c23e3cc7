"""What a generator knows of a collection while it builds a pipeline: its columns by kind, and expressions over them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal

from hypothesis import strategies as st

from ddcli.expressions.tree import quoted

VALUES = {
    "int64": [0, 1, 2, 3, 4],
    "int32": [0, 1, 2, -1],
    "int16": [0, 1, -2],
    "uint64": [0, 1, 2**64 - 1],
    "float64": [0.0, 0.5, -1.5, -0.0, float("inf"), float("-inf"), float("nan")],
    "float32": [0.0, 0.5, -1.5],
    "string": ["", "a", "b", "é", "1", "ab"],
    "bool": [False, True],
    "date": [dt.date(2024, 2, 28), dt.date(2024, 3, 1), dt.date(1969, 12, 31)],
    "datetime[us]": [dt.datetime(2024, 2, 28, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 1)],  # noqa: DTZ001 - without zone
    "decimal(6, 2)": [Decimal("0.00"), Decimal("1.50"), Decimal("-2.25")],
    "decimal(30, 1)": [Decimal("0.0"), Decimal("12345678901234567890.5"), Decimal("-2.5")],
    "list[int64?]": [[], [1], [2, 1, None]],
    "struct[a: int64?, s: string?]": [{"a": 1, "s": "a"}, {"a": None, "s": None}, {"a": 1, "s": None}],
    "list[struct[a: decimal(30, 1)?, l: list[string]?]]": [
        [],
        [{"a": Decimal("2.5"), "l": ["a", "b"]}, {"a": None, "l": None}],
    ],
}
KIND_OF = {
    "int64": "int",
    "int32": "int",
    "int16": "int",
    "float64": "float",
    "float32": "float",
    "decimal(6, 2)": "dec",
}
KIND_OF |= {"string": "string", "bool": "bool", "date": "date", "list[int64?]": "list int"}
KIND_OF |= {"struct[a: int64?, s: string?]": "struct"}
KIND_OF = {kind: KIND_OF.get(kind, kind) for kind in VALUES}
FALLIBLE = 8
"""One in so many numbers is an expression that fails on some rows."""


@dataclass
class Columns:
    """The columns of a collection: for each a kind, "int" for example, or the text of a type that is only passed on."""

    kinds: dict[str, str]
    fallible: bool = False

    def of(self, *kinds: str) -> list[str]:
        """Return the columns of some kinds, or all."""
        return [name for name, kind in self.kinds.items() if not kinds or kind in kinds]

    def ordered(self) -> list[str]:
        """Return the columns whose values have an order."""
        return [name for name, kind in self.kinds.items() if not kind.startswith(("list", "struct"))]


@st.composite
def expressions(draw, columns: Columns, kind: str, depth: int = 2) -> str:
    """Give SQL text of a kind over some columns, small ones first."""
    leaves = [*map(quoted, columns.of(kind)), *map(quoted, columns.of(kind)), *LITERALS.get(kind, ())]
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(leaves))

    def part(other: str = kind) -> str:
        return draw(expressions(columns, other, depth - 1))

    if kind in {"int", "string"} and columns.fallible and draw(st.integers(0, FALLIBLE)) == FALLIBLE:
        return f"cast({part('string')} as int64)" if kind == "int" else f"cast({part('int')} / {part('int')} as string)"
    form = draw(st.sampled_from(FORMS[kind]))
    return form(part)


LITERALS = {
    "int": ("0", "1", "2", "-1"),
    "float": ("0e0", "0.5e0", "-1.5e0", "cast('nan' as float64)"),
    "dec": ("1.50", "cast(0 as decimal(6, 2))"),
    "string": ("''", "'a'", "'é'", "'1'"),
    "bool": ("true", "false", "cast(null as bool)"),
    "date": ("date '2024-02-28'",),
    "struct": ("{'a': 1, 's': 'a'}",),
}
FORMS = {
    "int": (
        lambda part: f"({part()} + {part()})",
        lambda part: f"({part()} - {part()})",
        lambda part: f"({part()} * 2)",
        lambda part: f"({part()} % 2)",
        lambda part: f"abs({part()})",
        lambda part: f"length({part('string')})",
        lambda part: f"coalesce({part()}, {part()})",
        lambda part: f"nullif({part()}, 1)",
        lambda part: f"case when {part('bool')} then {part()} else {part()} end",
        lambda part: f"greatest({part()}, {part()})",
        lambda part: f"day({part('date')})",
        lambda part: f"({part('struct')}).a",
    ),
    "float": (
        lambda part: f"({part()} + {part()})",
        lambda part: f"(- {part()})",
        lambda part: f"cast({part('int')} as float64)",
        lambda part: f"coalesce({part()}, {part()})",
    ),
    "dec": (
        lambda part: f"coalesce({part()}, {part()})",
        lambda part: f"case when {part('bool')} then {part()} end",
    ),
    "string": (
        lambda part: f"({part()} || {part()})",
        lambda part: f"upper({part()})",
        lambda part: f"coalesce({part()}, {part()})",
        lambda part: f"cast({part('int')} as string)",
        lambda part: f"left({part()}, 1)",
    ),
    "bool": (
        lambda part: f"({part('int')} = {part('int')})",
        lambda part: f"({part('int')} < {part('int')})",
        lambda part: f"({part('string')} <= {part('string')})",
        lambda part: f"({part('float')} >= {part('float')})",
        lambda part: f"({part('int')} is null)",
        lambda part: f"({part('string')} is not distinct from {part('string')})",
        lambda part: f"({part()} and {part()})",
        lambda part: f"({part()} or {part()})",
        lambda part: f"(not {part()})",
        lambda part: f"({part('int')} in (0, {part('int')}))",
        lambda part: f"({part('date')} < {part('date')})",
        lambda part: f"({part('struct')} = {part('struct')})",
        lambda part: f"({part('struct')} is not distinct from {part('struct')})",
    ),
    "date": (
        lambda part: f"cast({part()} + interval '1' day as date)",  # the sum is a timestamp
        lambda part: f"coalesce({part()}, {part()})",
    ),
    "struct": (
        lambda part: f"named_struct('a', cast({part('int')} as int64), 's', {part('string')})",  # as wide as an input's
        lambda part: f"coalesce({part()}, {part()})",
    ),
}
KINDS = tuple(FORMS)
