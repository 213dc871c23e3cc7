"""Lists in polars; and the sort keys of lists and structs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.lower import ElementLowering
from ddcli.expressions.lower_number import HIGH, LOW, checked, each, quotient, scaled, too_long, unscaled, wide
from ddcli.expressions.lower_text import FAR, LONGEST, constant, part
from ddcli.expressions.tree import Lambda, Literal
from ddcli.expressions.types import MAX_PRECISION

if TYPE_CHECKING:
    from ddcli.expressions.lower import Lower, Lowering
    from ddcli.expressions.tree import Call
    from ddcli.expressions.types import Type

MOST = 1.2e38
"""A number between the largest decimal, unscaled, and the largest integer of 128 bits."""


def _array(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    if not args:
        return pl.lit([], dtype=call.type.to_polars())
    inner = call.type.inner
    if inner is not None and inner.inner is not None:  # of lists `concat_list` would make one list
        rows = pl.concat_list(pl.struct(arg.alias("")) for arg in args)
        return rows.list.eval(pl.element().struct.field("")).cast(call.type.to_polars())
    return pl.concat_list(args).cast(call.type.to_polars())


def _element(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    values, n = args
    size = values.list.len().cast(pl.Int64)
    # polars' positions are 32 bits wide.
    inside = (n != 0) & (n <= size) & (n >= -size)
    value = values.list.get(pl.when(inside).then(n - (n > 0).cast(pl.Int64)).otherwise(0), null_on_oob=True)
    return pl.when(inside).then(value).otherwise(None).cast(call.type.to_polars())


def _list_slice(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    values, first, *last = args[:3]
    text, step = call.args[0].type.kind == "string", int(constant(call, 3, "1"))
    if step < 0:  # the elements in their order, from the end of the slice
        first, last = last[0], [first]
    size = (values.str.len_chars() if text else values.list.len()).cast(pl.Int64)
    offset, length = part(size, first, last[0] if last else None)
    found = values.str.slice(offset, length) if text else values.list.slice(offset, length)
    found = found.list.reverse() if step < 0 else found
    found = found.list.gather_every(min(abs(step), FAR)) if abs(step) > 1 else found
    return pl.when(*(each.is_not_null() for each in args[:3])).then(found)


def _array_contains(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    # polars finds a null in a list; here a null value is unknown, and in no empty list.
    found = pl.when(args[1].is_not_null()).then(args[0].list.contains(args[1], nulls_equal=False))
    return found.when(args[0].list.len() == 0).then(False)


def _least(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    # Sorted, since polars' min and max ignore NaN.
    ordered = args[0].list.drop_nulls().list.sort()
    return ordered.list.get(0 if call.function == "list_min" else -1, null_on_oob=True)


def _sum(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    (values,) = args
    kind = call.args[0].type.inner
    assert kind is not None
    some = values.list.drop_nulls().list.len() > 0
    if kind.is_float:
        # Added up in their order, since another order may round differently.
        total = values.list.eval(pl.element().drop_nulls().cum_sum().last()).list.first()
        found = total / values.list.drop_nulls().list.len() if call.function == "list_avg" else total
        return pl.when(some).then(found)
    whole = (pl.element().to_physical() if kind.kind == "decimal" else pl.element()).cast(pl.Int128)
    total = values.list.eval(whole.sum()).list.first()
    # A sum beyond 128 bits would be another number: the floats' sum shows that.
    near = values.list.eval(whole.cast(pl.Float64).sum()).list.first()
    if call.function == "list_avg":
        count = values.list.drop_nulls().list.len()
        exact = pl.when(near.abs() > MOST).then(near).otherwise(total.cast(pl.Float64))
        found = quotient(exact, 10.0**kind.scale) / count
        if not kind.scale:  # a float does not hold all digits of a larger sum
            by = pl.when(some).then(count).otherwise(1).cast(pl.Int128)
            sign = pl.when(total < 0).then(-1.0).otherwise(1.0)
            parts = (total.abs() // by).cast(pl.Float64) + (total.abs() % by).cast(pl.Float64) / by.cast(pl.Float64)
            found = pl.when(total.abs() > wide(2**53)).then(sign * parts).otherwise(found)
        return pl.when(some).then(found)
    if kind.kind == "decimal":
        failing = some & (too_long(total, MAX_PRECISION) | (near.abs() > MOST))
        fits = checked(low, call, total, failing, "the sum has more than 38 digits")
        return pl.when(some).then(scaled(fits, call.type))
    failing = some & ~total.is_between(wide(LOW), wide(HIGH))
    fits = checked(
        low, call, total, failing, "the sum is out of the range of int64", "cast the elements to decimal(38, 0) before"
    )
    return pl.when(some).then(fits.cast(pl.Int64))


def _list_sort(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    words = [str(arg.value) for arg in call.args[1:] if isinstance(arg, Literal)]
    return args[0].list.sort(descending="desc" in words, nulls_last="nulls first" not in words)


def _chosen(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    values, places = args
    low.fail_given(
        call, args, places.list.eval(pl.element().is_null()).list.any(), f"a null in the second list of {call.function}"
    )
    if call.function == "list_where":
        at = places.list.eval(pl.arg_where(pl.element()))
    else:
        at = places.list.eval(pl.when(pl.element() > 0).then(pl.element() - 1).otherwise(2**31))
    found = values.list.gather(at, null_on_oob=True)
    return pl.when(values.is_not_null() & places.is_not_null()).then(found)


def _series(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    def numbers(row: dict[str, int | None]) -> range | None:
        first, last, step = row.values()
        if first is None or last is None or step is None:
            return None
        end = last + (call.function == "generate_series") * (1 if step > 0 else -1)
        return range(first, end, step) if step else range(0)

    def is_long(row: dict[str, int | None]) -> bool:
        found = numbers(row)
        return found is not None and bool(found) and (found[-1] - found[0]) // found.step >= LONGEST

    rows = pl.struct(arg.alias(str(at)) for at, arg in enumerate(args))
    low.fail_given(
        call, args, each(rows, is_long, pl.Boolean), f"{call.function} would make more than {LONGEST} numbers"
    )
    return each(
        rows,
        lambda row: None if is_long(row) or (found := numbers(row)) is None else list(found),
        call.type.to_polars(),
    )


def _list_has(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    one, other = (each.list.drop_nulls() for each in args)
    if call.function == "list_has_any":
        found = one.list.set_intersection(other).list.len() > 0
    else:
        found = other.list.set_difference(one).list.len() == 0
    return pl.when(args[0].is_not_null() & args[1].is_not_null()).then(found)


def _shared(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    one, other = (each.list.drop_nulls() for each in args)
    if call.function == "list_except":
        return one.list.set_difference(other)
    some = pl.when(args[1].is_not_null()).then(one.list.set_intersection(other)).otherwise(one.list.head(0))
    return pl.when(args[0].is_not_null()).then(some)


def _list_position(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    # `eval` sees only the list: the value is put before its elements.
    values, value = args
    led = pl.concat_list(value, values)
    places = led.list.eval(pl.element().slice(1).eq_missing(pl.element().first()).arg_true().first() + 1)
    return pl.when(values.is_not_null()).then(places.list.first().cast(pl.Int64))


def _of_lambda(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Lower a function with a lambda. `eval` sees only the list, so columns that the lambda reads are put before its elements, in structs, and then into each."""
    function, (values, _, *read) = call.args[1], args
    assert isinstance(function, Lambda)
    element, *others = function.parameters
    given, packed = {element.name: pl.element()}, values
    if others:
        none = [pl.lit(None, dtype=each.type.to_polars()).alias(each.name) for each in function.parameters]
        first = pl.struct(none[0], *(value.alias(each.name) for value, each in zip(read, others, strict=True)))
        rest = values.list.eval(pl.struct(pl.element().alias(element.name), *none[1:]))
        given = {each.name: pl.element().struct.field(each.name) for each in function.parameters}
        of_first = pl.int_range(1, pl.len()) * 0
        filled = [given[each.name].gather(of_first) for each in others]
        packed = pl.concat_list(first, rest).list.eval(pl.struct(given[element.name].slice(1), *filled))
        packed = pl.when(values.is_not_null()).then(packed)
    inner = ElementLowering(given)
    one = given[element.name]
    body = inner.value(function.body)
    if element.name not in function.body.columns():
        body = pl.when(one.is_null() | one.is_not_null()).then(body)
    for check in inner.checks:
        failing = packed.list.eval(
            check.failing.fill_null(value=False) & (one.is_null() | one.is_not_null())
        ).list.any()
        low.fail(call, failing.fill_null(value=False), check.problem, check.hint)
    found = packed.list.eval(one.filter(body) if call.function == "list_filter" else body)
    return found.cast(call.type.to_polars())


def _reduced(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Lower `list_reduce`: a step for each position, for all rows together."""
    function, (values, _, start, *read) = call.args[1], args
    assert isinstance(function, Lambda)
    names = [each.name for each in function.parameters]
    inner = ElementLowering({name: pl.col(name) for name in names})
    body, checks = inner.value(function.body).cast(call.type.to_polars()), inner.checks
    state, element, *others = names
    failed = [f"\0failed{at}" for at in range(len(checks))]

    def folded(rows: pl.Series) -> pl.Series:
        frame = rows.struct.unnest().with_columns(pl.lit(value=False).alias(name) for name in failed)
        for at in range(max(filter(None, frame[LISTS].list.len().to_list()), default=0)):
            there = pl.col(LISTS).list.len() > at
            frame = frame.with_columns(pl.col(LISTS).list.get(at, null_on_oob=True).alias(element))
            fails = [
                (pl.col(name) | (there & check.failing.fill_null(value=False))).alias(name)
                for name, check in zip(failed, checks, strict=True)
            ]
            frame = frame.with_columns(pl.when(there).then(body).otherwise(pl.col(state)).alias(state), *fails)
        return frame.select(pl.struct(state, *failed).alias(rows.name)).to_series()

    given = [each.alias(name) for each, name in zip(read, others, strict=True)]
    rows = pl.struct(values.alias(LISTS), start.cast(call.type.to_polars()).alias(state), *given)
    made = pl.Struct({state: call.type.to_polars(), **dict.fromkeys(failed, pl.Boolean())})
    found = rows.map_batches(folded, return_dtype=made, is_elementwise=True)
    for name, check in zip(failed, checks, strict=True):
        low.fail(call, values.is_not_null() & found.struct.field(name), check.problem, check.hint)
    return pl.when(values.is_not_null()).then(found.struct.field(state))


LISTS = "\0lists"


def _zipped(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    inner, cut = call.type.inner, call.args[-1]
    assert inner is not None
    assert isinstance(cut, Literal)
    names, dtype = [name for name, _ in inner.fields], call.type.to_polars()
    lists = [
        pl.when(each.is_null()).then(pl.lit([], dtype=one.type.to_polars())).otherwise(each)
        for each, one in zip(args[:-1], call.args, strict=False)
    ]
    sizes = [each.list.len() for each in lists]
    size = pl.min_horizontal(sizes) if cut.value else pl.max_horizontal(sizes)

    def zipped(rows: pl.Series) -> pl.Series:
        frame = rows.struct.unnest().with_row_index(LISTS)
        apart = frame.filter(pl.col(names[0]).list.len() > 0).explode(names)
        together = apart.group_by(LISTS, maintain_order=True).agg(pl.struct(names).alias("\0"))
        found = frame.select(LISTS).join(together, on=LISTS, how="left", maintain_order="left")["\0"]
        return found.cast(dtype).fill_null(pl.Series([[]], dtype=dtype)).alias(rows.name)

    padded = [
        each.list.gather(pl.int_ranges(size), null_on_oob=True).alias(name)
        for each, name in zip(lists, names, strict=True)
    ]
    return pl.struct(padded).map_batches(zipped, return_dtype=dtype, is_elementwise=True)


NULL, VALUE, END, TEXT_END = "~", "-", " ", "\0\0"
"""The marks of a sort key: of a null, which is the last, of a value, and of the end of a list and of a text, which are before all that may follow."""
LOWEST = -(2**63)


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


LOWER: dict[str, Lower] = {
    "sort_key": lambda _, call, args: sort_key(args[0], call.args[0].type),
    "list_reduce": _reduced,
    "list_zip": _zipped,
    "list_transform": _of_lambda,
    "list_filter": _of_lambda,
    "array": _array,
    "element": _element,
    "list_slice": _list_slice,
    "array_contains": _array_contains,
    "cardinality": lambda _, __, args: args[0].list.len().cast(pl.Int64),
    "list_count": lambda _, __, args: args[0].list.drop_nulls().list.len().cast(pl.Int64),
    "list_reverse": lambda _, __, args: args[0].list.reverse(),
    "list_concat": lambda _, __, args: pl.when(args[0].is_not_null() & args[1].is_not_null()).then(
        args[0].list.concat(args[1])
    ),
    "list_sort": _list_sort,
    "list_where": _chosen,
    "list_select": _chosen,
    "flatten": lambda _, __, args: args[0].list.eval(pl.element().explode(keep_nulls=False)),
    "generate_series": _series,
    "range": _series,
    "list_distinct": lambda _, __, args: args[0].list.drop_nulls().list.unique(maintain_order=True),
    "list_min": _least,
    "list_max": _least,
    "list_sum": _sum,
    "list_avg": _sum,
    "list_position": _list_position,
    "list_intersect": _shared,
    "list_except": _shared,
    "list_has_any": _list_has,
    "list_has_all": _list_has,
    "array_to_string": lambda _, __, args: args[0].list.join(args[1], ignore_nulls=True),
}
