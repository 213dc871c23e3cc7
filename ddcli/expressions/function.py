"""One function of the table: its signature, its meaning, and the types of its calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.signatures import check_arguments, parse_signature, result_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    means: str = ""
    """The expression over the parameters that a call stands for, if the function is derived from others."""

    def resolve(self, args: Sequence[Expression]) -> Resolved:
        """Return the converted arguments, the type of the result and the canonical name; raises Mismatch."""
        if self.rule:
            return self.rule(self.name, args)
        signature = parse_signature(self.signature)
        converted = check_arguments(signature, args)
        return converted, result_type(signature, converted), self.name


def table(text: str, **rules: Rule) -> list[Function]:
    """Return the functions of a table, a row each: `signature -- meaning -- example => its value`.

    A function that stands for an expression of others has that as a fourth part. One whose types a rule computes begins with
    `name [rule]: ` instead, and is written as people call it.
    """
    return [_function(row.strip(), rules) for row in text.strip().splitlines()]


def _function(row: str, rules: Mapping[str, Rule]) -> Function:
    signature, doc, example, *means = row.split(" -- ")
    example, _, result = example.partition(" => ")
    if ruled := re.match(r"(.+?) \[(\w+)\]: ", signature):
        return Function(ruled[1], signature[ruled.end() :], doc, example, result, rules[ruled[2]])
    return Function(signature.partition("(")[0], signature, doc, example, result, means="".join(means))
