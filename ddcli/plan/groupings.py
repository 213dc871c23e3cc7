"""The operators of a logical graph over groups of records: reductions, the first of a group, windows, multiplicities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ddcli.expressions.tree import Column
from ddcli.plan.logical import columns_of
from ddcli.plan.node import NO_KEYS, Node, inherited

if TYPE_CHECKING:
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.windows import WindowCall
    from ddcli.plan.node import Columns, Keys, Origins


class Reduce(Node):
    """One record a group: the `by` expressions, then `results`, expressions over "$i", the i-th of `calls`."""

    by: tuple[tuple[str, Expression], ...]
    calls: tuple[AggregateCall, ...]
    results: tuple[tuple[str, Expression], ...]

    def column_origins(self) -> Origins:
        return {name: [(0, each.name)] for name, each in self.by if isinstance(each, Column)}

    def reads(self, wanted: Columns) -> list[Columns]:  # a group's presence needs its keys
        arguments = [argument for call in self.calls for argument in call.args]
        order = [expression for call in self.calls for expression, _ in call.order_by]
        return [columns_of([expression for _, expression in self.by] + arguments + order)]

    @inherited
    def unique(self) -> Keys:
        return frozenset({frozenset(name for name, _ in self.by)})


class Grouped(Node, ABC):
    """An operator whose records of a group, those with equal `by` columns, depend on all of the input's records of the group and on no others."""

    certain: ClassVar[bool] = False
    """True: it fails on no group, so a condition may be applied to the group's rows before it."""
    by: tuple[str, ...]

    def column_origins(self) -> Origins:
        return {name: [(0, name)] for name in self.by}

    @property
    @abstractmethod
    def title(self) -> str:
        """The operator's name for people, without its groups and its order."""

    @property
    def order(self) -> tuple[tuple[str, bool], ...]:
        """The columns by which it orders a group, each with whether it descends."""
        return ()

    @property
    def leaves_out(self) -> str:
        """Return the reason, for people, why a record of the input may be missing from the result, if the result's records are some of the input's; else ""."""
        return ""


class PythonReduce(Grouped):
    """A Python reducer: `(key, [(value, count), ...]) -> [(value, count), ...]` a group; tuples of columns."""

    values: tuple[str, ...]
    function: str

    @property
    def title(self) -> str:
        return f"reduce {self.function}"


class Threshold(Node):
    """Each record with the multiplicity that `function` (an expression over "count") returns; None is distinct."""

    function: Expression | None

    def column_origins(self) -> Origins:
        return self.unchanged()

    @inherited
    def unique(self) -> Keys:
        return frozenset({frozenset(self.schema)}) if self.function is None else NO_KEYS


class TopK(Grouped):
    """The first `k` records of each group, counting multiplicities, in the order of `order_by` (a column and
    whether it descends), ties by the remaining columns in lane order.
    """

    certain: ClassVar[bool] = True
    k: int
    order_by: tuple[tuple[str, bool], ...]

    @property
    def title(self) -> str:
        return f"top {self.k}"

    @property
    def order(self) -> tuple[tuple[str, bool], ...]:
        return self.order_by

    @property
    def leaves_out(self) -> str:
        return f"not among the first {self.k}"

    @inherited
    def unique(self) -> Keys:
        return self.inputs[0].unique | {frozenset(self.by)} if self.k == 1 else self.inputs[0].unique


class Window(Grouped):
    """Each row, copies of a record being rows of their own, with the values of `calls` over the ordered rows of its partition, in additional columns.

    The order is that of `order_by` (a column and whether it descends), ties by the remaining columns in lane order. A record whose
    multiplicity is negative is no row.
    """

    order_by: tuple[tuple[str, bool], ...]
    calls: tuple[tuple[str, WindowCall], ...]

    @property
    def title(self) -> str:
        return f"window {', '.join(call.text() for _, call in self.calls)}"

    @property
    def order(self) -> tuple[tuple[str, bool], ...]:
        return self.order_by
