"""A collection while it is being built: its node, and the names of its columns in expressions."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import UnknownColumn, did_you_mean
from ddcli.expressions.aggregates import AggregateCall, Reduction
from ddcli.expressions.scope import ColumnScope, TableCall
from ddcli.expressions.tree import PLAIN_NAME, RESERVED, Column

if TYPE_CHECKING:
    from ddcli.errors import Text
    from ddcli.expressions.order import RowOrder
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.expressions.window_calls import OrderedBy, WindowedExpression
    from ddcli.expressions.windows import Frame, WindowCall
    from ddcli.plan.node import Node


@dataclass(frozen=True)
class Relation:
    """A node with the names in scope above it.

    `qualified` maps `up.manager`, as ("up", "manager"), to a column; `aliases` maps plain names of columns that a join
    merged into another (the right side's keys) to the column that holds their value. `order` is that in which its rows are shown; relations that are
    made of it have none.
    """

    node: Node
    qualified: dict[tuple[str, str], str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    order: RowOrder = ()

    @property
    def schema(self) -> Schema:
        return self.node.schema

    def over(self, node: Node) -> Relation:
        """Return the relation of a node that keeps this one's columns; names whose column is gone are dropped."""
        kept = {name: column for name, column in self.qualified.items() if column in node.schema}
        aliases = {
            name: column for name, column in self.aliases.items() if column in node.schema and name not in node.schema
        }
        return Relation(node, kept, aliases)

    def scalar(self, text: Text) -> Expression:
        """Parse an expression over the relation's columns.

        Most are a plain or a qualified name: those need no parser, whose import takes longer than a small run's work.
        """
        column = self._plain(text.value)
        if column is not None:
            return Column(column, self.schema[column], span=text.span)
        from ddcli.expressions.parse import parse_scalar

        return self._resolve(parse_scalar(text, self._scope()))

    def _plain(self, name: str) -> str | None:
        """Return the column that a text means if it is just a name as it stands."""
        words = name.split(".")
        if len(words) > 2 or any(word in RESERVED or not PLAIN_NAME.fullmatch(word) for word in words):
            return None
        if len(words) == 2:
            return self.qualified.get((words[0], words[1]))
        return name if name in self.schema else self.aliases.get(name)

    def table(self, text: Text) -> TableCall:
        """Parse a table expression over the relation's columns."""
        from ddcli.expressions.parse import parse_table

        call = parse_table(text, self._scope())
        return replace(call, args=tuple(self._resolve(argument) for argument in call.args))

    def reduction(self, text: Text) -> Reduction:
        """Parse an expression of aggregates over the relation's columns."""
        from ddcli.expressions.reductions import parse_reduction

        reduction = parse_reduction(text, self._scope())
        return Reduction(tuple(self._resolve_call(call) for call in reduction.calls), reduction.result)

    def windowed(self, text: Text, order: OrderedBy, frame: Frame | None) -> WindowedExpression:
        """Parse an expression of window functions over the relation's columns, in an order and frame."""
        from ddcli.expressions.window_calls import WindowedExpression, parse_windowed

        found = parse_windowed(text, self._scope(), order, frame)
        return WindowedExpression(
            tuple(self._resolve_window(call) for call in found.calls), self._resolve(found.result)
        )

    def column(self, text: Text) -> str:
        """Return the column that a plain or qualified name means."""
        name = text.value
        if name in self.schema:
            return name
        if name in self.aliases:
            return self.aliases[name]
        qualifier, dot, rest = name.partition(".")
        if dot and (qualifier, rest) in self.qualified:
            return self.qualified[qualifier, rest]
        near = did_you_mean(name, self.schema)
        known = "columns: " + ", ".join(self.schema)
        hint = f"did you mean `{near}`? ({known})" if near else known
        raise UnknownColumn(f"there is no column '{name}'", name, span=text.span, hint=hint)

    def _scope(self) -> ColumnScope:
        columns = {alias: self.schema[column] for alias, column in self.aliases.items()} | self.schema
        return ColumnScope(columns, self.qualified)

    def _resolve(self, expression: Expression) -> Expression:
        """Put the columns behind the aliases in an expression."""
        if not self.aliases:
            return expression
        return expression.substitute({alias: Column(name, self.schema[name]) for alias, name in self.aliases.items()})

    def _resolve_window(self, call: WindowCall) -> WindowCall:
        aggregate = self._resolve_call(call.aggregate) if call.aggregate is not None else None
        return replace(call, args=tuple(self._resolve(argument) for argument in call.args), aggregate=aggregate)

    def _resolve_call(self, call: AggregateCall) -> AggregateCall:
        order = tuple((self._resolve(key), descending) for key, descending in call.order_by)
        return replace(call, args=tuple(self._resolve(argument) for argument in call.args), order_by=order)
