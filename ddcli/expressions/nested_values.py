"""The syntax of lists and structs, of their elements and fields, of lambdas over lists, and of parts of texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.expressions.coerce import INT64, STRING
from ddcli.expressions.dialect import COMPREHENSION
from ddcli.expressions.operators import JSON_MADE
from ddcli.expressions.tree import Call, Column, Literal, closure, depths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.forms import FormReader
    from ddcli.expressions.tree import Expression

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
        return replace(reader.parameters[name.lower()], span=reader.place(node))
    if isinstance(node, exp.Struct):
        (fields,) = reader.take(node, "expressions")
        return struct_of(reader, node, fields)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        whole, named = reader.take(node, "this", "expression")
        return fields_of(reader, node, reader.read(whole), [reader.identifier(named)[0]])
    if isinstance(node, exp.Bracket):
        value, indices = reader.take(node, "this", "expressions")
        if len(indices) == 1:
            return _within(reader, node, value, indices[0])
    return None


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
    """Return the call of a function that takes a list and a lambda. The columns that the lambda reads become arguments."""
    if len(args) != 2 or not isinstance(args[1], exp.Lambda):
        reader.fail(node, f"{name} takes a list and a lambda of one parameter", f"{name}(x, lambda e: e > 1)")
    values, (written, names) = reader.read(args[0]), reader.take(args[1], "this", "expressions")
    if len(names) != 1:
        reader.fail(node, f"{name} takes a lambda of one parameter, got {len(names)}")
    if values.type.inner is None or not values.type.inner.is_known:
        reader.fail(args[0], f"{name} expects a list, got {values.type.required()}")
    word, around = reader.identifier(names[0])[0], reader.parameters
    if len(around) == DEEPEST:
        reader.fail(node, "lambdas are nested more than two deep", "compute the inner list as a column before")
    element = Column(f"\0element{len(around)}", values.type.inner.or_null())
    reader.parameters = around | {word.lower(): element}
    try:
        body = reader.read(written)
    finally:
        reader.parameters = around
    if depths(body)[id(body)] > SHALLOW:
        problem = f"operators of a lambda are nested more than {SHALLOW} deep"
        reader.fail(written, problem, "compute a part with another lambda before")
    return reader.resolve(node, name, [values, *closure(body, element)])


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
    """Read `tags[1]` and `tags[1:2]`, of a list or a text."""
    if isinstance(index, exp.Placeholder):  # `:n`, as parameters are written elsewhere: all up to the column
        bounds: list[exp.Expr | None] = [None, exp.column(str(*reader.take(index, "this")))]
    else:
        bounds = reader.take(index, "this", "expression") if isinstance(index, exp.Slice) else [index]
    whole, read = reader.read(value), [reader.read(each) if each is not None else None for each in bounds]
    given = [each for each in read if each is not None]
    if len(bounds) == 1 and _is_json(whole):
        return _of_json(reader, node, whole, given[0])
    if len(bounds) == 1:
        one = [Literal(1, INT64)] if whole.type.kind == "string" else []
        name = {"struct": "struct_extract", "string": "substring"}.get(whole.type.kind, "element")
        return reader.resolve(node, name, [whole, *given, *one])
    first = read[0] or Literal(1, INT64)
    return reader.resolve(node, "list_slice", [whole, first, *([read[1]] if read[1] is not None else [])])
