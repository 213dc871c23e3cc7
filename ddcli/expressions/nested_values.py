"""The syntax of lists and structs, of their elements and fields, of lambdas over lists, and of parts of texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.expressions.coerce import INT64, NULL, STRING, Mismatch, cast, convert, is_castable, unify
from ddcli.expressions.dialect import COMPREHENSION
from ddcli.expressions.operators import JSON_MADE
from ddcli.expressions.tree import Call, Column, Literal, closure, depths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.forms import FormReader
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Type

DEEPEST = 2
"""The number of lambdas that may be around each other: polars evaluates no more levels of lists."""
SHALLOW = 8
"""The depth to which operators in a lambda may be nested: they are computed together."""


def nested(reader: FormReader, node: exp.Expr) -> Expression | None:
    """Return the typed tree of a list or a struct, or of a part of one; None for other syntax."""
    if isinstance(node, exp.Array):
        (elements,) = reader.take(node, "expressions")
        if len(elements) == 1 and COMPREHENSION in elements[0].meta:
            return reader.read(elements[0])
        return reader.resolve(node, "array", [reader.read(each) for each in elements])
    if isinstance(node, exp.Parameter):
        name, _ = reader.identifier(*reader.take(node, "this"))
        if name.lower() not in reader.parameters:
            problem = f"`{name}` is the parameter of a lambda, which no aggregate, window or subquery reads"
            reader.fail(node, problem)
        return replace(reader.parameters[name.lower()], span=reader.place(node))  # type: ignore[type-var]
    if isinstance(node, exp.Struct):
        (fields,) = reader.take(node, "expressions")
        return struct_of(reader, node, fields)
    if isinstance(node, exp.Tuple):
        return reader.resolve(node, "row", [reader.read(each) for each in values_of(reader, node)])
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        whole, named = reader.take(node, "this", "expression")
        return fields_of(reader, node, reader.read(whole), [reader.identifier(named)[0]])
    if isinstance(node, exp.Bracket):
        value, indices = reader.take(node, "this", "expressions")
        if len(indices) == 1:
            return _within(reader, node, value, indices[0])
    return None


def values_of(reader: FormReader, node: exp.Expr) -> list[exp.Expr]:
    """Return the values of a row `(a, b)`, as written."""
    (values,) = reader.take(node, "expressions")
    if not values:
        reader.fail(node, "a row has at least one value")
    return list(values)


def struct_of(reader: FormReader, node: exp.Expr, fields: Sequence[exp.Expr]) -> Expression:
    """Return the struct of the fields in `{'a': x}` or `struct_pack(a := x)`."""
    args: list[Expression] = []
    for field in fields:
        if not isinstance(field, exp.PropertyEQ):
            hint = "{'a': 1, 'b': 'x'}, or struct_pack(a := 1, b := 'x')"
            reader.fail(field, "a field is written with its name", hint)
        named, value = reader.take(field, "this", "expression")
        if isinstance(named, exp.Column):
            (named,) = reader.take(named, "this")
        is_name = isinstance(named, exp.Identifier)
        word = reader.identifier(named)[0] if is_name else str(reader.literal(named).value)
        args += [Literal(word, STRING), reader.read(value)]
    return reader.resolve(node, "named_struct", args)


def of_lambda(reader: FormReader, node: exp.Expr, name: str, args: Sequence[exp.Expr]) -> Expression:
    """Return the call of a function that takes a list and a lambda. The columns that the lambda reads become arguments.

    A lambda with one parameter more than the function's has the element's position, from 1 on: it is one of structs of elements and positions.
    """
    is_fold = name == "list_reduce"
    usage = (
        "list_reduce(x, lambda a, e: a + e), list_reduce(x, lambda a, e: a + e, 0)"
        if is_fold
        else f"{name}(x, lambda e: e > 1)"
    )
    if not 2 <= len(args) <= 2 + is_fold or not isinstance(args[1], exp.Lambda):
        reader.fail(node, f"{name} takes a list and a lambda{' of two parameters' if is_fold else ''}", usage)
    values, (written, words) = reader.read(args[0]), reader.take(args[1], "this", "expressions")
    names, least = [reader.identifier(each)[0].lower() for each in words], 1 + is_fold
    if not least <= len(names) <= least + 1:
        counts = f"{('one', 'two')[least - 1]} or {('two', 'three')[least - 1]} parameters"
        reader.fail(node, f"{name} takes a lambda of {counts}, got {len(names)}", usage)
    if values.type.inner is None or not values.type.inner.is_known:
        reader.fail(args[0], f"{name} expects a list, got {values.type.required()}")
    is_placed = len(names) > least
    values = _placed(reader, node, values) if is_placed else values
    element = _element(reader, node, values)
    given: list[Expression] = [element]
    if is_placed:
        given = [reader.resolve(node, "struct_extract", [element, Literal(each, STRING)]) for each in ("f1", "f2")]
    if is_fold:
        initial = reader.read(args[2]) if len(args) > 2 else None
        return _folded(reader, node, values, (written, names), given, initial)
    body = _body(reader, written, names, given)
    found = reader.resolve(node, name, [values, *closure(body, element)])
    if is_placed and name == "list_filter":
        return reader.resolve(node, "list_transform", [found, *closure(given[0], element)])
    return found


def _element(reader: FormReader, node: exp.Expr, values: Expression) -> Column:
    """Return the parameter that stands for the elements of a list."""
    if reader.lambdas >= DEEPEST:
        reader.fail(node, "lambdas are nested more than two deep", "compute the inner list as a column before")
    assert values.type.inner is not None
    return Column(f"\0element{reader.lambdas}", values.type.inner.or_null())


def _placed(reader: FormReader, node: exp.Expr, values: Expression) -> Expression:
    """Return the structs of a list's elements and their positions, null for null."""
    last = reader.resolve(node, "cardinality", [values])
    places = reader.resolve(node, "generate_series", [Literal(1, INT64), last])
    found = reader.resolve(node, "list_zip", [values, places])
    return _or_null(reader, node, values, found)


def _or_null(reader: FormReader, node: exp.Expr, value: Expression, found: Expression) -> Expression:
    """Return what was made of a value, null where that is null."""
    if not value.type.nullable:
        return found
    missing = reader.resolve(node, "is null", [value])
    return reader.conditional(node, [(missing, Literal(None, NULL))], found)


def _body(reader: FormReader, written: exp.Expr, names: Sequence[str], given: Sequence[Expression]) -> Expression:
    """Return the body of a lambda, in which names are parameters."""
    around = reader.parameters
    reader.parameters, reader.lambdas = around | dict(zip(names, given, strict=True)), reader.lambdas + 1
    try:
        body = reader.read(written)
    finally:
        reader.parameters, reader.lambdas = around, reader.lambdas - 1
    if depths(body)[id(body)] > SHALLOW:
        problem = f"operators of a lambda are nested more than {SHALLOW} deep"
        reader.fail(written, problem, "compute a part with another lambda before")
    return body


def _folded(
    reader: FormReader,
    node: exp.Expr,
    values: Expression,
    function: tuple[exp.Expr, Sequence[str]],
    given: Sequence[Expression],
    initial: Expression | None,
) -> Expression:
    """Return a call of `list_reduce`, which begins with the first element if no value is given: its type is one that has both that value and the lambda's."""
    element = _element(reader, node, values)
    start = initial
    if start is None:
        first = reader.resolve(node, "element", [values, Literal(1, INT64)])
        start = first if len(given) == 1 else reader.resolve(node, "struct_extract", [first, Literal("f1", STRING)])
        values = reader.resolve(node, "list_slice", [values, Literal(2, INT64)])
    state = Column(f"\0state{reader.lambdas}", start.type.or_null())
    body = _body(reader, *function, [state, *given])
    try:
        if body.type.required() != state.type.required():
            (start, _), kind = unify([start, body], "list_reduce")
            state = replace(state, type=kind.or_null())
            body = _body(reader, *function, [state, *given])
        if body.type.kind == state.type.kind == "decimal":  # sums have one digit more in each turn
            body = cast(body, state.type.required(), reader.place(node), tried=False)
        made, *read = closure(convert(body, state.type), state, element)
    except Mismatch as mismatch:
        raise mismatch.at(reader.place(node)) from None
    return reader.resolve(node, "list_reduce", [values, made, start, *read])


def converted(reader: FormReader, node: exp.Expr, value: Expression, target: Type, *, tried: bool) -> Expression:
    """Return the cast of a value, a list element by element and a struct by the names of its fields, without regard to case; with `tried` a part is null that can't be cast."""
    source = value.type
    is_nested = source.kind == target.kind and source.kind in ("list", "struct")
    if not is_nested or is_castable(source, target):
        return cast(value, target.required(), reader.place(node), tried=tried)
    if source.inner is not None and target.inner is not None:
        element = _element(reader, node, values=value)
        reader.lambdas += 1
        try:
            body = converted(reader, node, element, target.inner, tried=tried)
        finally:
            reader.lambdas -= 1
        return reader.resolve(node, "list_transform", [value, *closure(body, element)])
    names = {name.lower(): name for name, _ in source.fields}
    if not any(name.lower() in names for name, _ in target.fields):
        reader.fail(node, f"{source.required()} can't be cast to {target.required()}: they have no field in common")
    args: list[Expression] = []
    for name, kind in target.fields:
        part: Expression = Literal(None, kind.or_null())
        if (known := names.get(name.lower())) is not None:
            given = reader.resolve(node, "struct_extract", [value, Literal(known, STRING)])
            part = converted(reader, node, given, kind, tried=tried)
        args += [Literal(name, STRING), part]
    return _or_null(reader, node, value, reader.resolve(node, "named_struct", args))


def fields_of(reader: FormReader, node: exp.Expr, whole: Expression, names: Sequence[str]) -> Expression:
    """Return the field at a path of names in a struct."""
    for name in names:
        function = "json_extract" if _is_json(whole) else "struct_extract"
        whole = reader.resolve(node, function, [whole, _member(name) if _is_json(whole) else Literal(name, STRING)])
    return whole


def _is_json(value: Expression) -> bool:
    """Return whether an expression makes JSON, by its function: a column with JSON is a text."""
    return isinstance(value, Call) and value.function in JSON_MADE and value.type.kind == "string"


def _member(name: str) -> Literal:
    """Return the path to the member of an object."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return Literal(f'$."{escaped}"', STRING)


def _of_json(reader: FormReader, node: exp.Bracket, whole: Expression, index: Expression) -> Expression:
    """Return the part of JSON under a name, or at a position from 0, as JSON."""
    if isinstance(index, Literal) and isinstance(index.value, str):
        if index.value.isdigit() or index.value.startswith("$"):
            reader.fail(
                node, f"`['{index.value}']` of JSON is read differently elsewhere", "write a path: x -> '$.a[0]'"
            )
        index = _member(index.value)
    return reader.resolve(node, "json_extract", [whole, index])


def _within(reader: FormReader, node: exp.Bracket, value: exp.Expr, index: exp.Expr) -> Expression:
    """Read `tags[1]`, `tags[1:2]` and `tags[1:3:2]`, of a list or a text."""
    if isinstance(index, exp.Placeholder):  # `:n`, as parameters are written elsewhere: all up to the column
        bounds: Sequence[exp.Expr | None] = [None, exp.column(str(*reader.take(index, "this")))]
    else:
        bounds = reader.take(index, "this", "expression", "step") if isinstance(index, exp.Slice) else [index]
    whole, read = reader.read(value), [reader.read(each) if each is not None else None for each in bounds]
    given = [each for each in read if each is not None]
    if len(bounds) == 1 and _is_json(whole):
        return _of_json(reader, node, whole, given[0])
    if len(bounds) == 1:
        one = [Literal(1, INT64)] if whole.type.kind == "string" else []
        name = {"struct": "struct_extract", "string": "substring"}.get(whole.type.kind, "element")
        return reader.resolve(node, name, [whole, *given, *one])
    first, last, *step = read
    ends = [Literal(1, INT64), Literal(-1, INT64)]
    if step and step[0] is not None:
        if isinstance(step[0], Literal) and isinstance(step[0].value, int) and step[0].value < 0:
            ends.reverse()
        return reader.resolve(node, "list_slice", [whole, first or ends[0], last or ends[1], step[0]])
    return reader.resolve(node, "list_slice", [whole, first or ends[0], *([last] if last is not None else [])])
