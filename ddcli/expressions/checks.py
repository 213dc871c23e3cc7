"""The checks of lowered expressions: boolean expressions that are true where a row fails, masked by the conditions that lead to them.

A part that is only reached under a condition is lowered with `guarded`: it fails nowhere else. A failing value inside a `try_`
function is null. There is no check if the types or the known ranges of columns rule failure out.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.expressions.bounds import bounds, is_safe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.expressions.bounds import Range
    from ddcli.expressions.tree import Call, Expression

    Lower = Callable[["Checks", Call, list[pl.Expr]], pl.Expr]
    """Returns a call's value of its arguments' values; adds the checks of the rows that it fails on."""


@dataclass(frozen=True)
class Check:
    """Rows that fail: where `failing` is true (null is false), `expression` has the `problem`."""

    failing: pl.Expr
    problem: str
    hint: str | None
    expression: Expression


class Checks:
    """The checks of expressions, each once.

    `ranges` holds the least and largest value of integer columns, of decimals as unscaled integers, if known: failures that they and the types rule out are not checked.
    """

    def __init__(self, ranges: Mapping[str, Range] | None = None) -> None:
        self.ranges = ranges or {}
        self.checks: list[Check] = []
        self._mask: pl.Expr | None = None
        self._tried: list[pl.Expr] | None = None
        self._known: set[tuple[str, str, int]] = set()
        self._masks: dict[tuple[int, str], int] = {}
        self.reached = 0
        """The number of the mask: equal numbers are equal masks."""

    def bound(self, value: pl.Expr, level: int = 1) -> pl.Expr:
        """Return an expression of the same value that can be used many times."""
        return value

    def never_negative(self, expression: Expression) -> bool:
        """Return whether an integer expression is known to be zero or more."""
        found = bounds(expression, self.ranges)
        return found is not None and found[0] >= 0

    def fail(self, expression: Expression, failing: pl.Expr, problem: str, hint: str | None = None) -> bool:
        """Add a check that fails the rows for which `failing` is true (inside a try_ function they are null); return whether any may."""
        if is_safe(expression, self.ranges):
            return False
        if self._tried is not None:
            self._tried.append(failing)
            return True
        key = (expression.text(), problem, self.reached)
        if key not in self._known:
            self._known.add(key)
            masked = failing if self._mask is None else failing & self._mask
            self.checks.append(Check(masked, problem, hint, expression))
        return True

    def fail_given(
        self, call: Call, args: Sequence[pl.Expr], failing: pl.Expr, problem: str, hint: str | None = None
    ) -> None:
        """`fail`, but not where an argument is null: then the call is null before it can fail."""
        for arg, value in zip(call.args, args, strict=True):
            if arg.type.nullable:
                failing = failing & value.is_not_null()
        self.fail(call, failing, problem, hint)

    def trying(self, tried: bool, lower: Callable[[], pl.Expr]) -> pl.Expr:
        if not tried:
            return lower()
        outer, self._tried = self._tried, []
        value = lower()
        failing, self._tried = self._tried, outer
        # A null in `failing` is no failure: `otherwise` takes it.
        return pl.when(reduce(or_, failing)).then(None).otherwise(value) if failing else value

    def guarded(self, mask: pl.Expr, number: int, lower: Callable[[], pl.Expr]) -> pl.Expr:
        """Return the result of `lower`, for a part that is only reached where `mask` is true; `number` is that of the mask from `after`."""
        outer, reached = self._mask, self.reached
        self._mask = mask if outer is None else outer & mask
        self.reached = number
        value = lower()
        self._mask, self.reached = outer, reached
        return value

    def after(self, number: int, text: str) -> int:
        """Return the number of a mask under which a condition holds, too: equal conditions under equal masks are equal masks."""
        return self._masks.setdefault((number, text), len(self._masks) + 1)
