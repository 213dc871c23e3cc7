"""The arguments of methods, as the names, expressions and columns of a pipeline file's operators."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ddcli.errors import Span, Text, UsageError
from ddcli.expressions.types import Schema, Type, parse_type
from ddcli.spec import operator_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

HERE = Span("<python>", 1, 1)


def text(value: str) -> Text:
    """Return a name or an expression with a place."""
    return Text(value, HERE)


def texts(values: Iterable[str]) -> tuple[Text, ...]:
    """Return names with places."""
    return tuple(text(value) for value in values)


def assign(columns: Mapping[str, str]) -> operator_model.Assignments:
    """Return columns with their expressions, as assignments."""
    return tuple((text(name), text(value)) for name, value in columns.items())


def expressions_of(
    given: Mapping[str, str] | None, named: Mapping[str, str], columns: object, what: str
) -> dict[str, str]:
    """Return the expressions of a method's call, from its mapping and its keywords. Refuses `columns`, which are for functions."""
    if columns is not None:
        hint = "a column of such a name is written in a mapping: {'columns': expression}"
        raise UsageError(f"`{what}` takes `columns` with a function only", hint=hint)
    found = {**(given or {}), **named}
    if not found and what != "reduce":
        raise UsageError(f"`{what}` takes expressions by column, or a function")
    return found


def needed(columns: Mapping[str, str | Type] | None, what: str) -> Mapping[str, str | Type]:
    """Return the columns that a function returns. Raises UsageError if its call has not named them."""
    if columns is None:
        hint = "for example `columns={'src': 'int64', 'name': 'string?'}`"
        raise UsageError(f"`{what}` with a function takes the columns that it returns", hint=hint)
    return columns


def pairs(on: Sequence[str] | Mapping[str, str]) -> tuple[tuple[Text, Text], ...]:
    """Return the columns that a join pairs."""
    return tuple((text(one), text(other)) for one, other in _items(on))


def keys(by: Sequence[str] | Mapping[str, str]) -> tuple[operator_model.GroupColumn, ...]:
    """Return the columns of groups: names, or names with expressions."""
    return tuple(
        operator_model.GroupColumn(text(name), None if name == value else text(value)) for name, value in _items(by)
    )


def _items(given: Sequence[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    if isinstance(given, str):
        raise UsageError(f"'{given}' is one name where several are expected", hint=f"write ['{given}']")
    return list(given.items()) if hasattr(given, "items") else [(name, name) for name in given]


def orders(order_by: Iterable[str]) -> tuple[operator_model.Order, ...]:
    """Return sort keys: a column or expression, perhaps with ` desc`."""
    return tuple(
        operator_model.Order(text(order.removesuffix(" desc")), descending=order.endswith(" desc"))
        for order in order_by
    )


def schema(columns: Mapping[str, str | Type], what: str) -> Schema:
    """Return columns with their types. Raises UsageError for a text that is not a type."""
    found: Schema = {}
    for name, given in columns.items():
        kind = parse_type(given) if isinstance(given, str) else given
        if kind is None:
            raise UsageError(f"{what}: column '{name}' has an unknown type '{given}'")
        found[name] = kind
    return found


def parameter_name(body: Callable[..., Any]) -> str:
    """Return the name of a body's first parameter, for messages."""
    try:
        return next(iter(inspect.signature(body).parameters), "variable")
    except (TypeError, ValueError):
        return "variable"
