"""Upserts and snapshots: rows that state what holds from their time on.

In upserts each row is the record of its key from its time on, or states that the key has no record from then on. In snapshots all rows of one time
are the whole table as it was then.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.tree import MapStep
from ddcli.expressions.types import ColumnScope
from ddcli.store.formats.base import PAYLOAD, BadRow, Format, Upserted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from ddcli.errors import Text
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema


ORDERED = "an integer, a float, a date, a datetime or a decimal of up to 18 digits"


@dataclass(frozen=True)
class UpsertFormat(Format):
    """The format of upserts: the last row of a key at a time, by `order_by`, is its record. The key has none if `delete_when` is true, or
    (without such a condition) all columns beside the key are null.
    """

    key: tuple[str, ...] = field(default=(), kw_only=True)  # type: ignore[misc]
    delete_when: Text | None = field(default=None, kw_only=True)
    order_by: Text | None = field(default=None, kw_only=True)
    deletes: Expression | None = field(default=None, kw_only=True)
    orders: Expression | None = field(default=None, kw_only=True)
    kinds: Schema = field(default_factory=dict, kw_only=True)

    @property
    def enveloped(self) -> bool:
        return PAYLOAD not in (self.columns or {})

    @property
    def judges(self) -> bool:
        return self.orders is not None

    def bound(self, columns: Schema, time: Schema) -> Self:
        scope = ColumnScope(columns | time)
        deletes = _parsed(self.delete_when, scope)
        if deletes and self.delete_when and deletes.type.kind != "bool":
            raise SpecError(
                f"`delete_when` is {deletes.type}, not a condition",
                span=self.delete_when.span,
                hint="for example `delete_when: op = 'D'`",
            )
        orders = parsed_order(self.order_by, scope)
        return replace(self, deletes=deletes, orders=orders, kinds=columns | time)

    def wanted(self, columns: Sequence[str]) -> list[str]:
        used = [name for e in (self.deletes, self.orders) if e for name in sorted(e.columns())]
        every = [name for name in self.kinds if name not in self.time] if self.deletes is None else []
        return list(dict.fromkeys([*self.key, *columns, *used, *every]))

    def upserted(self, frame: pl.DataFrame) -> Upserted | None:

        present = ~self.deleted(frame)
        if self.orders is None:
            return Upserted(present, None)
        order = self._value(frame, self.orders)
        if order.null_count():
            raise BadRow(
                order.is_null().arg_true(), "`order_by` is null", "each row needs an order among the rows of its key"
            )
        return Upserted(present, order)

    def deleted(self, frame: pl.DataFrame) -> pl.Series:
        """Return, for each row, whether it deletes the record of its key."""
        import polars as pl

        if self.deletes is not None:
            return self._value(frame, self.deletes).fill_null(value=False)
        values = [name for name in self.kinds if name not in self.key and name not in self.time]
        if not values:
            return pl.repeat(value=False, n=frame.height, dtype=pl.Boolean, eager=True)
        return frame.select(pl.all_horizontal(pl.col(values).is_null())).to_series()

    def _value(self, frame: pl.DataFrame, expression: Expression) -> pl.Series:
        return value_of(frame, expression, self.kinds)


def value_of(frame: pl.DataFrame, expression: Expression, kinds: Schema) -> pl.Series:
    """Return an expression's values over the rows of a frame, whose columns are of these types."""
    from ddcli.expressions.stage import FusedSteps

    stage = FusedSteps({name: kinds[name] for name in frame.columns}, (MapStep((("value", expression),)),))
    return stage.run(frame).frame["value"]


def parsed_order(text: Text | None, scope: ColumnScope) -> Expression | None:
    """Return the expression of an `order_by`; raise SpecError for one whose values have no order."""
    orders = _parsed(text, scope)
    if (
        orders
        and text
        and (orders.type.required().lanes != 1 or orders.type.kind in ("string", "binary", "list", "struct", "null"))
    ):
        raise SpecError(
            f"`order_by` is {orders.type}, by which rows can't be put in order here",
            span=text.span,
            hint=f"order by {ORDERED}",
        )
    return orders


def _parsed(text: Text | None, scope: ColumnScope) -> Expression | None:
    """Return an expression that was given. Only then is the parser imported."""
    if text is None:
        return None
    from ddcli.expressions.parse import parse_scalar

    return parse_scalar(text, scope)


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
