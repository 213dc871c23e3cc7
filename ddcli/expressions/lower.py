"""The tree to polars: a value for every row, and checks that find the rows that fail.

polars returns null (or wraps) where the expression must fail, so a lowered expression has two parts: the value, which never raises,
and `Check`s, boolean expressions that are true where the row fails. A part that is only reached under a condition fails nowhere else: a branch of `case` not taken, a later argument
of `coalesce`, the right side of `and` after false. A failing value inside a `try_` function is null. There is no check if the types or the known ranges of columns rule failure out.
Lists and structs compare by sort keys.
"""

from __future__ import annotations

import datetime as dt
import math
from functools import cache, lru_cache, reduce
from importlib import import_module
from itertools import pairwise
from operator import and_, or_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.expressions.lower_number import balanced
from ddcli.expressions.moments import leaves_years
from ddcli.expressions.nanoseconds import Fine, counted
from ddcli.expressions.ranges import bounds, is_safe
from ddcli.expressions.tree import Call, Case, Cast, Column, Expression, Lambda, Literal, deep_calls, depths
from ddcli.expressions.types import UTC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.expressions.ranges import Range
    from ddcli.expressions.types import Type

    Lower = Callable[["Lowering", Call, list[pl.Expr]], pl.Expr]
    """Returns a call's value of its arguments' values; adds the checks of the rows that it fails on."""


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

    return name in STRICT or (name in FUNCTIONS and FUNCTIONS[name].by_signature)


@dataclass(frozen=True)
class Check:
    """Rows that fail: where `failing` is true (null is false), `expression` has the `problem`."""

    failing: pl.Expr
    problem: str
    hint: str | None
    expression: Expression


class Lowering:
    """The lowering of expressions to polars, which collects their checks, each once.

    `ranges` holds the least and largest value of integer columns, of decimals as unscaled integers, if known: failures that they and the types rule out are not checked.
    """

    def __init__(self, ranges: Mapping[str, Range] | None = None) -> None:
        self.ranges = ranges or {}
        self.checks: list[Check] = []
        self._mask: pl.Expr | None = None
        self._tried: list[pl.Expr] | None = None
        self._known: set[tuple[str, int, int]] = set()
        self._lowered = 0
        """The number of checks so far of the call or cast that is lowered: it may have several with one problem."""
        self._masks: dict[tuple[int, str], int] = {}
        self.reached = 0
        """The number of the mask: equal numbers are equal masks."""
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
        """Return the value of a part that is only reached where `mask` is true; `number` is the mask's number from `after`."""
        outer, reached = self._mask, self.reached
        self._mask = mask if outer is None else outer & mask
        self.reached = number
        value = self.value(expression)
        self._mask, self.reached = outer, reached
        return value

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

    # --- checks ---------------------------------------------------------------------------------------------------

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
        key = (expression.text(), self._lowered, self.reached)
        self._lowered += 1
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
        """Return the result of `lower`, the lowering of one call or cast; with `tried` it is null where that fails."""
        outer, around = self._tried, self._lowered
        self._tried, self._lowered = [] if tried else outer, 0
        value = lower()
        failing, self._tried, self._lowered = self._tried, outer, around
        if not tried:
            return value
        # A null in `failing` is no failure: `otherwise` takes it.
        return pl.when(reduce(or_, failing)).then(None).otherwise(value) if failing else value

    def after(self, number: int, text: str) -> int:
        """Return the number of a mask under which a condition holds, too: equal conditions under equal masks are equal masks."""
        return self._masks.setdefault((number, text), len(self._masks) + 1)

    def of_elements(self) -> Lowering:
        """Return the lowering of values of a list's elements: no column holds a part of one."""
        return ElementLowering({})


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


KINDS = ("number", "text", "time", "list", "json")
"""The modules of functions, in the order of their search: most pipelines need only the first, and the others are imported when needed."""


@cache
def lowering_of(function: str) -> Lower:
    """Return the function that lowers a function's calls to polars. Raises KeyError."""
    if function in LOWER:
        return LOWER[function]
    for kind in KINDS:
        found: dict[str, Lower] = import_module(f"ddcli.expressions.lower_{kind}").LOWER
        if function in found:
            return found[function]
    raise KeyError(function)


def _struct_extract(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    name = call.args[1]
    assert isinstance(name, Literal)
    return args[0].struct.field(str(name.value))


def compared_structs(sign: str, left: pl.Expr, right: pl.Expr, kind: Type) -> pl.Expr:
    """Return a comparison of structs: fields are equal where both are null, a struct that is null is unknown to `=` and `<>`."""
    if sign.endswith("distinct from"):
        found = _same(left, right, kind)
        return found if "not" in sign else ~found
    equal = _fields(left, right, kind)
    found = equal if sign == "=" else ~equal
    return pl.when(left.is_not_null() & right.is_not_null()).then(found)


def _same(left: pl.Expr, right: pl.Expr, kind: Type) -> pl.Expr:
    if kind.kind != "struct":
        return left.eq_missing(right)
    there = left.is_not_null() & right.is_not_null()
    return pl.when(there).then(_fields(left, right, kind)).otherwise(left.is_null() & right.is_null())


def _fields(left: pl.Expr, right: pl.Expr, kind: Type) -> pl.Expr:
    pairs = ((left.struct.field(name), right.struct.field(name), inner) for name, inner in kind.fields)
    return reduce(and_, [_same(*pair) for pair in pairs])


OF_STRUCTS: dict[str, Lower] = {
    "named_struct": lambda _, call, args: pl.struct(
        [value.alias(name) for (name, _), value in zip(call.type.fields, args, strict=True)]
    ),
    "struct_extract": _struct_extract,
}


# polars compares floats as we do: NaN equals NaN and is above every number, -0.0 equals 0.0.


COMPARE: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "is not distinct from": lambda a, b: a.eq_missing(b),
    "is distinct from": lambda a, b: a.ne_missing(b),
}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(sign: str, left: pl.Expr, right: pl.Expr, *, constant: bool) -> pl.Expr:
    """Return a comparison; `constant`: the left side depends on no column.

    A constant is put on the right: compared with a column of a single value, it would return one row.
    """
    return COMPARE[MIRRORED.get(sign, sign)](right, left) if constant else COMPARE[sign](left, right)


def _compare(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    sign = call.function
    if call.args[0].type.kind == "struct":
        left, right = args
        return compared_structs(sign, left, right, call.args[0].type)
    if sign.endswith("distinct from") and not any(arg.type.nullable for arg in call.args):
        sign = "=" if "not" in sign else "<>"
    return compared(sign, *args, constant=not call.args[0].columns())


def _in(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    value, *others = args  # without the constants
    listed = [arg.value for arg in call.args[1:] if isinstance(arg, Literal)]
    constants = [constant for constant in listed if constant is not None]
    constant = not call.args[0].columns()
    found = [compared("=", value, item, constant=constant) for item in others]
    if constants:
        found.insert(0, value.is_in(pl.Series(constants, dtype=call.args[0].type.to_polars()).implode()))
    if len(constants) < len(listed):  # a null: a value that is not found may equal it
        found.append(compared("=", value, pl.lit(None, call.args[0].type.to_polars()), constant=constant))
    return balanced(or_, found)


def _extremum(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.type.kind in ("list", "struct"):
        sort_key = lowering_of("sort_key")
        best, key = args[0], sort_key(low, call, args[:1])
        for arg in args[1:]:
            other = sort_key(low, call, [arg])
            better = key.is_null() | ((other < key) if call.function == "least" else (other > key)).fill_null(
                value=False
            )
            best, key = pl.when(better).then(arg).otherwise(best), pl.when(better).then(other).otherwise(key)
        return best
    # polars ignores NaN beside other values: that is right only for the least.
    if call.function == "least":
        best = pl.min_horizontal(args)
    else:
        best = pl.max_horizontal(args)
        if call.type.is_float:
            best = pl.when(balanced(or_, [value.is_nan() for value in args])).then(math.nan).otherwise(best)
    return best


def _error(low: Lowering, call: Call, _: list[pl.Expr]) -> pl.Expr:
    (message,) = call.args
    assert isinstance(message, Literal)
    low.fail(call, pl.lit(True), str(message.value))
    return pl.lit(None, dtype=call.type.to_polars())


def _nullif(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    nested = call.args[0].type.kind in ("list", "struct")
    sides = [lowering_of("sort_key")(low, call, [arg]) for arg in args] if nested else args
    return pl.when(compared("=", *sides, constant=not call.args[0].columns())).then(None).otherwise(args[0])


LOWER: dict[str, Lower] = {
    **OF_STRUCTS,
    **dict.fromkeys(COMPARE, _compare),
    "not": lambda _, __, args: ~args[0],
    "is null": lambda _, __, args: args[0].is_null(),
    "in": _in,
    "greatest": _extremum,
    "least": _extremum,
    "error": _error,
    "nullif": _nullif,
}
