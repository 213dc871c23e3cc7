"""The names that an expression may use, and table functions: the parts of parsing that need no parser."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, UnknownColumn, did_you_mean

if TYPE_CHECKING:
    from ddcli.errors import Span
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema, Type


@dataclass(frozen=True)
class ColumnScope:
    """The columns that an expression may name. `qualified` maps `("up", "manager")` to the column's own name."""

    columns: Schema
    qualified: dict[tuple[str, str], str] = field(default_factory=dict)

    def name(self, written: str, span: Span, quoted: bool = False) -> str:
        """Return the column of this name: as written, else ignoring case if only one matches. Else raises SpecError."""
        if written in self.columns:
            return written
        same = [column for column in self.columns if column.lower() == written.lower()]
        if len(same) > 1:
            hint = "write it as it is spelt: " + ", ".join(f'"{column}"' for column in same)
            raise SpecError(f"`{written}` may be any of {len(same)} columns", span=span, hint=hint)
        if not same:
            raise _unknown(written, list(self.columns), span, quoted=quoted)
        return same[0]

    def qualified_name(self, qualifier: str, written: str, span: Span) -> str:
        """Return the column of this qualifier and name, ignoring the case of both if only one matches. Else raises SpecError."""
        pairs = [pair for pair in self.qualified if pair[1].lower() == written.lower()]
        if (qualifier, written) in pairs:
            return self.qualified[qualifier, written]
        same = [pair for pair in pairs if pair[0].lower() == qualifier.lower()]
        if len(same) != 1:
            raise _unknown(f"{qualifier}.{written}", sorted(".".join(pair) for pair in self.qualified), span)
        return self.qualified[same[0]]


def _unknown(name: str, known: list[str], span: Span, *, quoted: bool = False) -> SpecError:
    """Return the error for a name that isn't in scope; a name in double quotes may have been meant as text."""
    lowered = {each.lower(): each for each in known}
    meant = lowered.get(did_you_mean(name.lower(), lowered) or "")
    listed = f"(in scope: {', '.join(sorted(known)) or 'nothing'})"
    hint = f"did you mean `{meant}`? {listed}" if meant else listed.strip("()")
    if quoted and not meant:
        hint = f"text goes in single quotes: '{name}' {listed}"
    return UnknownColumn(f"no column is named `{name}`", name, span=span, hint=hint)


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
