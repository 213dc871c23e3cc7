"""The tree to polars: a value for every row, and checks that find the rows that fail.

polars returns null (or wraps) where the expression must fail, so a lowered expression has two parts: the value, which never raises,
and `Check`s, boolean expressions that are true where the row fails (see `checks`). A branch of `case` not taken, a later argument
of `coalesce`, the right side of `and` after false are not evaluated, so they can't fail. Lists and structs compare by sort keys.
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

from ddcli.expressions.checks import Checks, balanced
from ddcli.expressions.lower_number import unscaled, wide
from ddcli.expressions.moments import UTC, leaves_years
from ddcli.expressions.nanoseconds import Fine, counted
from ddcli.expressions.tree import Call, Case, Cast, Column, Expression, Lambda, Literal, deep_calls, depths
from ddcli.expressions.types import MAX_PRECISION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


NULL, VALUE, END, TEXT_END = "~", "-", " ", "\0\0"
"""The marks of a sort key: of a null, which is the last, of a value, and of the end of a list and of a text, which are before all that may follow."""
LOWEST = -(2**63)


def _struct_extract(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
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


def sort_key(value: pl.Expr, kind: Type) -> pl.Expr:
    """Return texts that are compared as lists or structs are: from the first part on, a null part as the last; null for null."""
    return pl.when(value.is_not_null()).then(_key(value, kind))


def _marked(value: pl.Expr, kind: Type) -> pl.Expr:
    return pl.when(value.is_not_null()).then(pl.lit(VALUE) + _key(value, kind)).otherwise(pl.lit(NULL))


def _key(value: pl.Expr, kind: Type) -> pl.Expr:
    """Return texts in the order of values, equal for equal ones. None is the beginning of another, so they may follow each other."""
    if kind.inner is not None:
        return value.list.eval(_marked(pl.element(), kind.inner)).list.join("") + END
    if kind.fields:
        return pl.concat_str([_marked(value.struct.field(name), inner) for name, inner in kind.fields])
    if kind.kind == "string":
        return value.str.replace_all("\0", "\0\1", literal=True) + TEXT_END
    if kind.kind == "binary":
        return value.bin.encode("hex") + END
    if kind.kind == "null":
        return value.cast(pl.String)
    if kind.is_wide:
        number = unscaled(value)
        digits = pl.when(number < 0).then(number + wide(10**MAX_PRECISION - 1)).otherwise(number)
        sign = pl.when(number < 0).then(pl.lit("0")).otherwise(pl.lit("1"))
        return sign + digits.cast(pl.String).str.zfill(MAX_PRECISION)
    return _unsigned(value, kind).cast(pl.String).str.zfill(20)


def _unsigned(value: pl.Expr, kind: Type) -> pl.Expr:
    """Return integers of 64 bits without a sign in the order of values."""
    if kind.kind == "uint64":
        return value
    if kind.is_float:
        number = value.cast(pl.Float64)
        plain = pl.when(number == 0).then(0.0).when(number.is_nan()).then(math.nan).otherwise(number)
        bits = plain.reinterpret(dtype=pl.Int64)
        number = pl.when(bits < 0).then(bits ^ ~LOWEST).otherwise(bits)
    else:
        number = (unscaled(value) if kind.kind == "decimal" else value.to_physical()).cast(pl.Int64)
    return (number ^ LOWEST).reinterpret(dtype=pl.UInt64)


OF_STRUCTS: dict[str, Lower] = {
    "named_struct": lambda _, call, args: pl.struct(
        [value.alias(name) for (name, _), value in zip(call.type.fields, args, strict=True)]
    ),
    "struct_extract": _struct_extract,
    "sort_key": lambda _, call, args: sort_key(args[0], call.args[0].type),
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


def _compare(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    sign = call.function
    if call.args[0].type.kind == "struct":
        left, right = args
        return compared_structs(sign, left, right, call.args[0].type)
    if sign.endswith("distinct from") and not any(arg.type.nullable for arg in call.args):
        sign = "=" if "not" in sign else "<>"
    return compared(sign, *args, constant=not call.args[0].columns())


def _in(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
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


def _extremum(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.type.kind in ("list", "struct"):
        best, key = args[0], sort_key(args[0], call.type)
        for arg in args[1:]:
            other = sort_key(arg, call.type)
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


def _error(low: Checks, call: Call, _: list[pl.Expr]) -> pl.Expr:
    (message,) = call.args
    assert isinstance(message, Literal)
    low.fail(call, pl.lit(True), str(message.value))
    return pl.lit(None, dtype=call.type.to_polars())


def _nullif(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    kind = call.args[0].type
    sides = [sort_key(arg, kind) if kind.kind in ("list", "struct") else arg for arg in args]
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
