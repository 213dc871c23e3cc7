"""The keys that rows are ordered by: values that have an order, the place of their nulls, and structs field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.coerce import BOOL, STRING, Mismatch
from ddcli.expressions.operators import has_list, sort_key
from ddcli.expressions.tree import Call, Cast, Expression, Literal
from ddcli.expressions.types import ORDERLESS, Type

if TYPE_CHECKING:
    from collections.abc import Iterable


Key = tuple[Expression, bool]
"""A sort key of rows, and whether it is descending; null is the largest value."""


def decisive(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return keys without those that are equal to an earlier one: they never decide."""
    found: dict[str, Key] = {}
    for key, descending in keys:
        found.setdefault(key.text(), (key, descending))
    return tuple(found.values())


def stored(key: Expression) -> Expression:
    """Return a key as a column of a state has it: a condition as 0 or 1, since runs read numbers from pages without pyarrow."""
    return Cast(key, Type("int64", nullable=key.type.nullable)) if key.type.kind == "bool" else key


def keys_of(key: Expression, descending: bool, nulls_first: bool | None = None) -> list[Key]:
    """Return the sort keys of a written key: if nulls are not at the large end, first the condition that it is null. Raises Mismatch."""
    if has_list(key.type):
        key = sort_key(key)
    if key.type.kind != "struct":
        if key.type.kind in ORDERLESS:
            raise Mismatch(f"can't order by {key.type.required()}", key)
        if nulls_first is None or nulls_first == descending or not key.type.nullable:
            return [(key, descending)]
        return [(Call("is null", (key,), BOOL), nulls_first), (key, descending)]
    last = descending if nulls_first is None else nulls_first
    found: list[Key] = [(Call("is null", (key,), BOOL), last)] if key.type.nullable else []
    for name, kind in key.type.fields:
        field = Call("struct_extract", (key, Literal(name, STRING)), kind.or_null(key.type.nullable), span=key.span)
        found += keys_of(field, descending)
    return found
