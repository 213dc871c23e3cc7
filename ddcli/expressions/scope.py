"""What an expression may name, and what table functions are: all that others need of parsing without the parser."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema, Type


@dataclass(frozen=True)
class ColumnScope:
    """The columns that an expression may name. `qualified` maps `("up", "manager")` to the real column's name."""

    columns: Schema
    qualified: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableCall:
    """A function that returns rows: `unnest(list)` or `generate_series(first, last, step)`; `type` is one element's."""

    function: str
    args: tuple[Expression, ...]
    type: Type

    def columns(self) -> frozenset[str]:
        """Return the names of the columns it reads."""
        return frozenset().union(*(arg.columns() for arg in self.args))

    def text(self) -> str:
        """Return canonical SQL."""
        return f"{self.function}({', '.join(arg.text() for arg in self.args)})"
