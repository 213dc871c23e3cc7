"""The tree to polars: a value for every row, and checks that tell which rows fail.

polars gives null (or wraps) where our meaning is an error, so a lowered expression has two parts: the value, which never raises,
and `Check`s, boolean expressions that are true where the row fails (see `checks`). A branch of `case` not taken, a later argument
of `coalesce`, the right side of `and` after false are not evaluated, so they can't fail.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions import lower_logic, lower_number, lower_text, lower_time
from ddcli.expressions.checks import Checks
from ddcli.expressions.lower_cast import lower_cast
from ddcli.expressions.tree import Call, Case, Cast, Column, Expression, Literal, deep_calls, depths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.bounds import Range
    from ddcli.expressions.checks import Lower
    from ddcli.expressions.types import Type


# Functions that polars has as methods of their first argument.
RECEIVERS = {
    "starts_with",
    "ends_with",
    "contains",
    "strpos",
    "replace",
    "split",
    "substring",
    "lpad",
    "rpad",
    "left",
    "right",
}
RECEIVERS |= {"element", "array_contains", "add_months", "try_add_months"}


SHALLOW, STEP = 8, 2
"""Trees deeper than the first are computed in steps of so many levels: each level may name the ones below it several times."""


class Lowering(Checks):
    """Lowers expressions and collects their checks, each once."""

    def __init__(self, ranges: Mapping[str, Range] | None = None) -> None:
        super().__init__(ranges)
        self.parts: list[list[pl.Expr]] = []
        """Columns to be computed before values and checks, in steps: each reads those of the steps before."""
        self._depths: dict[int, int] = {}

    def values(self, expressions: Sequence[Expression]) -> list[pl.Expr]:
        """Return the polars expressions of values that may be deep; adds to `checks` and to `parts`."""
        for expression in expressions:
            found = depths(expression)
            if found[id(expression)] > SHALLOW:
                self._depths |= found
        with deep_calls():
            return [self.value(expression) for expression in expressions]

    def value(self, expression: Expression) -> pl.Expr:
        """Return the polars expression of the value; adds to `checks`."""
        value = self._value(expression)
        depth = self._depths.get(id(expression), 0)
        is_bound = depth and not depth % STEP and expression.columns()
        return self._bound(value, depth // STEP) if is_bound else value

    def _bound(self, value: pl.Expr, level: int) -> pl.Expr:
        """Return a column that a value is given before the rest: what is over it may name it many times, and is not deep."""
        name = f"\0part{sum(map(len, self.parts))}"
        while len(self.parts) < level:
            self.parts.append([])
        self.parts[level - 1].append(value.alias(name))
        return pl.col(name)

    def _value(self, expression: Expression) -> pl.Expr:
        if isinstance(expression, Column):
            return pl.col(expression.name)
        if isinstance(expression, Literal):
            return literal(expression.value, expression.type)
        if not expression.columns():
            return self._constant(expression)
        return self._computed(expression)

    def _constant(self, expression: Expression) -> pl.Expr:
        """Return a constant's value, computed here: polars loses the frame's height over some calls of constants alone."""
        low = Lowering()
        value = low._computed(expression)
        found = pl.select(value.alias("value"), *(c.failing.any().alias(f"{i}") for i, c in enumerate(low.checks)))
        failed = [check for i, check in enumerate(low.checks) if found[f"{i}"].item()]
        for check in failed:
            self.fail(check.expression, pl.lit(True), check.problem, check.hint)
        return literal(None if failed else found["value"].to_list()[0], expression.type)

    def _computed(self, expression: Expression) -> pl.Expr:
        if isinstance(expression, Cast):
            argument = self.value(expression.argument)
            return self.trying(expression.try_, lambda: lower_cast(self, expression, argument))
        if isinstance(expression, Case):
            return self._case(expression)
        assert isinstance(expression, Call)
        if expression.function in ("and", "or"):
            return self._logic(expression)
        if expression.function == "coalesce":
            return self._coalesce(expression)
        name = expression.function
        # Of a list of constants, which may be long, `in` makes one series.
        listed = name == "in"
        args = [
            self.value(arg)
            for at, arg in enumerate(expression.args)
            if not (listed and at and isinstance(arg, Literal))
        ]
        lower = TABLE[name]
        if name in RECEIVERS and expression.columns() and not expression.args[0].columns():
            # Over a constant, some of polars' functions look at the first row of a column argument only.
            args[0] = pl.repeat(args[0], pl.len())
        return self.trying(name.startswith("try_"), lambda: lower(self, expression, args))

    def _guarded(self, expression: Expression, mask: pl.Expr, text: str) -> pl.Expr:
        return self.guarded(mask, text, lambda: self.value(expression))

    def _case(self, case: Case) -> pl.Expr:
        values: list[tuple[pl.Expr, pl.Expr]] = []
        before: list[pl.Expr] = []
        text = ""
        for condition, value in case.branches:
            when = self._guarded(condition, reduce(and_, before), text) if before else self.value(condition)
            taken = [*before, when]
            then = self._guarded(value, reduce(and_, taken), f"{text} and {condition.text()}")
            values.append((when, then))
            before.append(~when.fill_null(value=False) if condition.type.nullable else ~when)
            text = f"{text} and not {condition.text()}"
        result = self._guarded(case.default, reduce(and_, before), text)
        for when, then in reversed(values):
            result = pl.when(when).then(then).otherwise(result)
        return result

    def _logic(self, call: Call) -> pl.Expr:
        left, right = call.args
        value, stop = self.value(left), call.function == "or"
        reached = ~value if stop else value
        # Null decides nothing: the right side is evaluated then.
        reached = reached.fill_null(value=True) if left.type.nullable else reached
        other = self._guarded(right, reached, f"{'not ' if stop else ''}{left.text()}")
        return value | other if stop else value & other

    def _coalesce(self, call: Call) -> pl.Expr:
        values, missing, text = [self.value(call.args[0])], pl.lit(True), ""
        for previous, arg in zip(call.args, call.args[1:], strict=False):
            missing, text = missing & values[-1].is_null(), f"{text} and {previous.text()} is null"
            values.append(self._guarded(arg, missing, text))
        # Not pl.coalesce: given a constant first it forgets the frame's height.
        result = values[-1]
        for value in reversed(values[:-1]):
            result = pl.when(value.is_not_null()).then(value).otherwise(result)
        return result


def literal(value: object, type_: Type) -> pl.Expr:
    """Return a constant with exactly its type."""
    if type_.kind == "months":
        raise AssertionError("months stand only in add_months")
    return pl.lit(value, dtype=type_.to_polars())


TABLE: dict[str, Lower] = {
    **lower_logic.LOWER,
    **lower_number.LOWER,
    **lower_text.LOWER,
    **lower_time.LOWER,
}
"""The lowering of every function."""
