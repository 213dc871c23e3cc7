"""Snapshots: all rows of one time are the whole table as it was then."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from ddcli.dataclass import dataclass
from ddcli.expressions.scope import ColumnScope
from ddcli.store.formats.base import BadRow, Format
from ddcli.store.formats.upsert import parsed_order, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from ddcli.errors import Text
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema


@dataclass(frozen=True)
class SnapshotsFormat(Format):
    """Each time's rows replace the rows of the time before. With a `key`, no two rows of one time have the same.

    Where rows have the time of the run that takes them in, those with the greatest `order_by` are the newest table.
    """

    tables: ClassVar[bool] = True

    key: tuple[str, ...] = field(default=(), kw_only=True)  # type: ignore[misc]
    order_by: Text | None = field(default=None, kw_only=True)
    orders: Expression | None = field(default=None, kw_only=True)
    kinds: Schema = field(default_factory=dict, kw_only=True)

    @property
    def adds_up(self) -> bool:
        return False

    @property
    def judges(self) -> bool:
        return self.order_by is not None

    def bound(self, columns: Schema, time: Schema) -> Self:
        orders = parsed_order(self.order_by, ColumnScope(columns | time))
        return replace(self, orders=orders, kinds=columns | time)

    def wanted(self, columns: Sequence[str]) -> list[str]:
        return list(dict.fromkeys([*self.key, *columns, *self.ordering()]))

    def ordering(self) -> list[str]:
        """Return the columns that `order_by` reads."""
        return sorted(self.orders.columns()) if self.orders else []

    def ordered(self, frame: pl.DataFrame) -> pl.Series:
        """Return the order of typed rows. Raises `BadRow`."""
        assert self.orders is not None, "tables without an order"
        order = value_of(frame.select(self.ordering()), self.orders, self.kinds)
        if order.null_count():
            raise BadRow(order.is_null().arg_true(), "`order_by` is null", "each row needs the order of its table")
        return order
