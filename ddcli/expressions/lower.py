"""The tree to polars: a value for every row, and checks that find the rows that fail.

polars returns null (or wraps) where the expression must fail, so a lowered expression has two parts: the value, which never raises,
and `Check`s, boolean expressions that are true where the row fails (see `checks`). A branch of `case` not taken, a later argument
of `coalesce`, the right side of `and` after false are not evaluated, so they can't fail.
"""

from __future__ import annotations

import datetime as dt
from functools import cache, lru_cache
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.checks import Checks
from ddcli.expressions.moments import UTC, leaves_years
from ddcli.expressions.nanoseconds import Fine, counted
from ddcli.expressions.tree import Call, Case, Cast, Column, Expression, Lambda, Literal, deep_calls, depths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.checks import Check, Lower, Range
    from ddcli.expressions.types import Type


# Functions that polars has as methods of their first argument.
RECEIVERS = {
    "starts_with", "ends_with", "contains", "strpos", "replace", "split", "split_part", "substring", "lpad", "rpad",
    "left", "right", "element", "array_contains", "add_months", "try_add_months", "add_days", "try_add_days",
}  # fmt: skip


STRICT = {
    "+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "&", "|", "~", "<<", ">>", "mod", "xor", "negate", "abs", "round",
    "try_add", "try_subtract", "try_multiply", "try_divide", "list_except", "list_has_any", "list_has_all",
}  # fmt: skip
"""The functions with a rule of their own for types that return null if an argument is null."""
SHALLOW, STEP = 8, 2
"""Trees deeper than SHALLOW are computed in steps of STEP levels: each level may name the ones below it several times."""
LONG = 16
"""The branches of a `case`, or arguments of `coalesce`, after which their condition becomes a column, as all later ones use it."""


def _is_strict(name: str) -> bool:
    """Return whether a function returns null if an argument is null. The table of functions is imported for a null alone."""
    from ddcli.expressions.functions import FUNCTIONS

    return name in STRICT or (name in FUNCTIONS and FUNCTIONS[name].rule is None)


class Lowering(Checks):
    """The lowering of expressions to polars, which collects their checks, each once."""

    def __init__(self, ranges: Mapping[str, Range] | None = None) -> None:
        super().__init__(ranges)
        self.parts: list[list[pl.Expr]] = []
        """Columns to be computed before values and checks, in steps: each reads the columns of the steps before."""
        self._depths: dict[int, int] = {}
        self._levels: dict[str, int] = {}

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
        return self.bound(value, depth // STEP) if is_bound else value

    def bound(self, value: pl.Expr, level: int = 1) -> pl.Expr:
        """Return a column that holds a value and is computed before the rest: expressions may use it many times, and stay flat.

        It is computed in the step `level`, or in a later one: after the columns that it names.
        """
        name = f"\0part{len(self._levels)}"
        named = [self._levels[root] for root in value.meta.root_names() if root in self._levels]
        level = self._levels[name] = max(level, 1 + max(named, default=0))
        while len(self.parts) < level:
            self.parts.append([])
        self.parts[level - 1].append(value.alias(name))
        return pl.col(name)

    def _value(self, expression: Expression) -> pl.Expr:
        if isinstance(expression, Column):
            return pl.col(expression.name)
        if isinstance(expression, Literal):
            return literal(expression.value, expression.type)
        if isinstance(expression, Lambda):
            return pl.lit(None)  # the function that takes it lowers its body
        if not expression.columns():
            return self._constant(expression)
        return self._computed(expression)

    def _constant(self, expression: Expression) -> pl.Expr:
        """Return a constant's value, computed here: for some calls of constants alone, polars loses the frame's height."""
        known = _constant_value(expression, expression.text())
        if known is not None:
            return literal(known[0], expression.type)
        _, failed = _evaluated(expression)
        for check in failed:
            self.fail(check.expression, pl.lit(True), check.problem, check.hint)
        return literal(None, expression.type)

    def _computed(self, expression: Expression) -> pl.Expr:
        if isinstance(expression, Cast):
            argument = self.value(expression.argument)
            if expression.argument.type.kind == "string" and expression.type.kind in ("list", "struct"):
                from ddcli.expressions.lower_json import lower_cast
            else:
                from ddcli.expressions.lower_cast import lower_cast

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
            self._argument(arg)
            for at, arg in enumerate(expression.args)
            if not (listed and at and isinstance(arg, Literal))
        ]
        if any(_is_null(arg) for arg in expression.args) and _is_strict(name):
            return literal(None, expression.type)  # not all of polars' functions take a constant null
        lower = lowering_of(name)
        if name in RECEIVERS and expression.columns() and not expression.args[0].columns():
            # For a constant, some of polars' functions read only the first row of a column argument.
            args[0] = pl.repeat(args[0], pl.len())
        return self.trying(name.startswith("try_"), lambda: lower(self, expression, args))

    def _argument(self, expression: Expression) -> pl.Expr:
        value = self.value(expression)
        nested = _is_named_often(expression) and any(
            _is_named_often(part) for child in expression.children for part in child.walk()
        )
        return self.bound(value) if nested else value

    def _guarded(self, expression: Expression, mask: pl.Expr, number: int) -> pl.Expr:
        return self.guarded(mask, number, lambda: self.value(expression))

    def _case(self, case: Case) -> pl.Expr:
        values: list[tuple[pl.Expr, pl.Expr]] = []
        before: pl.Expr | None = None
        number, varies = self.reached, bool(case.columns())
        for at, (condition, value) in enumerate(case.branches, start=1):
            when = self.value(condition) if before is None else self._guarded(condition, before, number)
            taken = when if before is None else before & when
            values.append((when, self._guarded(value, taken, self.after(number, condition.text()))))
            passed = ~when.fill_null(value=False) if condition.type.nullable else ~when
            before = passed if before is None else before & passed
            before = before if at % LONG or not varies else self.bound(before)
            number = self.after(number, f"not {condition.text()}")
        assert before is not None, "a case has a branch"
        result = self._guarded(case.default, before, number)
        for at, (when, then) in enumerate(reversed(values), start=1):
            result = pl.when(when).then(then).otherwise(result)
            result = result if at % LONG or not varies else self.bound(result)
        return result

    def _logic(self, call: Call) -> pl.Expr:
        left, right = call.args
        value, stop = self.value(left), call.function == "or"
        reached = ~value if stop else value
        # Null does not decide: the right side is evaluated then.
        reached = reached.fill_null(value=True) if left.type.nullable else reached
        other = self._guarded(right, reached, self.after(self.reached, f"{'not ' if stop else ''}{left.text()}"))
        return value | other if stop else value & other

    def _coalesce(self, call: Call) -> pl.Expr:
        values, missing, number = [self.value(call.args[0])], pl.lit(True), self.reached
        varies = bool(call.columns())
        for at, (previous, arg) in enumerate(pairwise(call.args), start=1):
            missing = missing & values[-1].is_null()
            missing = missing if at % LONG or not varies else self.bound(missing)
            number = self.after(number, f"{previous.text()} is null")
            values.append(self._guarded(arg, missing, number))
        # Not pl.coalesce: given a constant first it forgets the frame's height.
        result = values[-1]
        for at, value in enumerate(reversed(values[:-1]), start=1):
            result = pl.when(value.is_not_null()).then(value).otherwise(result)
            result = result if at % LONG or not varies else self.bound(result)
        return result


class ElementLowering(Lowering):
    """The lowering of a lambda's body: of expressions over the elements of one list."""

    def __init__(self, values: Mapping[str, pl.Expr]) -> None:
        super().__init__()
        self._values = values

    def bound(self, value: pl.Expr, level: int = 1) -> pl.Expr:
        return value

    def _value(self, expression: Expression) -> pl.Expr:
        return self._values[expression.name] if isinstance(expression, Column) else super()._value(expression)


def _is_named_often(expression: Expression) -> bool:
    """Return whether a computed value is named several times by what reads it, or names its arguments several times: nested, these multiply."""
    if not isinstance(expression, Call) or not expression.columns():
        return False
    return expression.type.kind in ("date", "datetime") or expression.function in ("//", "%")


def _is_null(expression: Expression) -> bool:
    """Return whether an expression is a constant null."""
    if isinstance(expression, Literal | Lambda) or expression.columns():
        return isinstance(expression, Literal) and expression.value is None
    known = _constant_value(expression, expression.text())
    return known is not None and known[0] is None


def _evaluated(expression: Expression) -> tuple[object, list[Check]]:
    """Return the value of an expression that reads no column, and the checks that it fails; a column for nanoseconds, which Python would cut, and for years that it lacks."""
    low = Lowering()
    value = low._computed(expression)  # noqa: SLF001 - its own class
    frame = pl.DataFrame({"": [None]})
    for step in low.parts:
        frame = frame.with_columns(step)
    found = frame.select(value.alias("value"), *(c.failing.any().alias(f"{i}") for i, c in enumerate(low.checks)))
    finer = expression.type.kind == "time" or expression.type.unit == "ns" or leaves_years(found["value"])
    constant = found["value"] if finer else found["value"].to_list()[0]
    return constant, [check for i, check in enumerate(low.checks) if found[f"{i}"].item()]


@lru_cache(maxsize=256)
def _constant_value(expression: Expression, _text: str) -> tuple[object] | None:
    """Return the value of an expression that reads no column, None if it fails: the error is raised apart, as equal ones fail at different places.

    It is cached, as each query over a large frame needs it again. The text distinguishes zeros by their signs.
    """
    value, failed = _evaluated(expression)
    return None if failed else (value,)


def literal(value: object, type_: Type) -> pl.Expr:
    """Return a constant with exactly its type."""
    if type_.kind == "months":
        raise AssertionError("months are allowed only in add_months")
    if type_.fields or (type_.inner is not None and type_.inner.fields):
        return pl.lit(pl.Series([value], dtype=type_.to_polars())).first()
    if isinstance(value, Fine):
        value = pl.Series([counted(value)])
    if isinstance(value, pl.Series):
        return pl.lit(value.cast(type_.to_polars())).first()
    if isinstance(value, dt.datetime) and type_.zone not in {None, UTC}:
        # By its instant: polars knows no summer time after the year 2099, and reads Python's clocks wrongly there.
        instant = pl.lit(value.astimezone(dt.UTC), dtype=pl.Datetime(type_.unit or "us", UTC))  # type: ignore[arg-type]
        return instant.dt.convert_time_zone(type_.zone or UTC)
    return pl.lit(value, dtype=type_.to_polars())


KINDS = ("logic", "number", "text", "time", "list", "json")
"""The modules of functions, in the order of their search: most pipelines need only the first two, and the others are imported when needed."""


@cache
def lowering_of(function: str) -> Lower:
    """Return the function that lowers a function's calls to polars. Raises KeyError."""
    for kind in KINDS:
        found: dict[str, Lower] = import_module(f"ddcli.expressions.lower_{kind}").LOWER
        if function in found:
            return found[function]
    raise KeyError(function)
