"""One function of the table: its signature, its meaning, and the types of its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.signatures import check_arguments, parse_signature, result_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.arithmetic import Resolved, Rule
    from ddcli.expressions.tree import Expression


@dataclass(frozen=True)
class Function:
    """One function: its signature, its meaning, and an example with its value (both SQL)."""

    name: str
    signature: str
    doc: str
    example: str
    result: str
    rule: Rule | None = None
    calls: str | None = None
    means: str = ""
    """The expression over the parameters that a call stands for, if the function is derived from others."""

    def resolve(self, args: Sequence[Expression]) -> Resolved:
        """Return the converted arguments, the type of the result and the canonical name; raises Mismatch."""
        if self.rule:
            return self.rule(self.name, args)
        signature = parse_signature(self.signature)
        converted = check_arguments(signature, args)
        return converted, result_type(signature, converted), self.calls or self.name


def ruled(name: str, signature: str, doc: str, example: str, result: str, rule: Rule) -> Function:
    """Return a function whose result type a rule computes from its arguments."""
    return Function(name, signature, doc, example, result, rule)


def derived(signature: str, doc: str, example: str, result: str, means: str) -> Function:
    """Return a function that stands for an expression of others."""
    return Function(signature.partition("(")[0], signature, doc, example, result, means=means)


def plain(signature: str, doc: str, example: str, result: str, calls: str | None = None) -> Function:
    """Return a function whose types its signature states."""
    return Function(signature.partition("(")[0], signature, doc, example, result, calls=calls)
