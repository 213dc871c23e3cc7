"""Rows in the order in which they are shown: by some columns, each up or down, its nulls at either end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

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
