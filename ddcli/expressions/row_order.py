"""Orders: rows by columns, each up or down, its nulls at either end; and the keys of values, structs field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ddcli.expressions.coerce import BOOL, STRING, Mismatch
from ddcli.expressions.operators import has_list, sort_key
from ddcli.expressions.tree import Call, Cast, Expression, Literal
from ddcli.expressions.types import ORDERLESS, Type

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl


if TYPE_CHECKING:
    Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)

RowOrder = tuple[tuple[str, bool, bool], ...]
"""The columns of an order, the first decides first: each with whether it descends, and whether its nulls are last."""


def in_order(rows: Rows, order: RowOrder, rest: Iterable[str] = ()) -> Rows:
    """Return rows in an order, ties by the columns `rest`, where null is the largest value; equal rows stay as they are."""
    keys = (*order, *((name, False, True) for name in rest if all(name != key[0] for key in order)))
    if not keys:
        return rows
    by, descending = [key[0] for key in keys], [key[1] for key in keys]
    return rows.sort(by, descending=descending, nulls_last=[key[2] for key in keys], maintain_order=True)


def parse_order(tree: object) -> RowOrder:
    """Return the order in a JSON value; an empty one for any other value."""
    found: list[tuple[str, bool, bool]] = []
    for key in tree if isinstance(tree, list) else ():
        match key:
            case [str(name), bool(descending), bool(last)]:
                found.append((name, descending, last))
            case _:
                return ()
    return tuple(found)


def order_among(order: RowOrder, columns: Iterable[str]) -> RowOrder:
    """Return an order if all of its columns are among these, else none."""
    return order if {name for name, _, _ in order} <= {*columns} else ()


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
