"""The context that the parts of a statement share: the names in scope, and a query's result.

Each item of a `from` has its columns under names that no other item or outer query uses, so that relations can be
joined without a clash. A name is looked up from inside out: in a query's own `from`, then in the outer query.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, UnknownColumn, did_you_mean
from ddcli.expressions.coerce import INT64
from ddcli.expressions.tree import Column
from ddcli.expressions.types import renamed
from ddcli.plan.sql import nodes
from ddcli.plan.sql.nodes import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlglot import exp

    from ddcli.errors import Span
    from ddcli.expressions.parse import ExpressionReader
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema, Type
    from ddcli.plan.node import Node


@dataclass(frozen=True)
class Times:
    """The types of the coordinates of time; times of runs (`arrives`) are in UTC."""

    kinds: tuple[Type, ...] = (INT64,)
    arrives: bool = False


TIMES = Times()
"""The times of a program that chooses no others."""


@dataclass(frozen=True, eq=False)
class Outer:
    """The outer query of a subquery: the names that the subquery may use, and the node with the columns that they mean."""

    scope: Names
    node: Node


@dataclass(frozen=True, eq=False)
class QueryResult:
    """A query's relation: for each row of the `keys`, which are columns of the outer query, its rows of `columns`, (name, column) in order.

    `single`: at most one row for each row of the keys. `value`: the expression for the value that a scalar query returns, computed from its
    columns, or from nulls for a row of the keys without a row.
    """

    node: Node
    keys: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    single: bool = False
    value: Expression | None = None

    def apart(self, taken: Mapping[str, object]) -> tuple[QueryResult, dict[str, str]]:
        """Return the result under column names that are not taken, and the new name of each key."""
        given = renamed(self.node.schema, taken)
        node = nodes.mapped(self.node, {new: column(self.node, old) for old, new in given.items()})
        value = None
        if self.value is not None:
            types = {each.name: each.type for each in self.value.walk() if isinstance(each, Column)}
            own = {old: new for old, new in given.items() if old in types and old not in self.keys}
            value = self.value.substitute({old: Column(new, types[old]) for old, new in own.items()})
        columns = tuple((name, given[each]) for name, each in self.columns)
        return QueryResult(node, self.keys, columns, self.single, value), {key: given[key] for key in self.keys}


@dataclass(frozen=True, eq=False)
class CorrelatedTable:
    """A table of a `with` that reads columns of a query outside the one that defines it: it is lowered wherever it is named.

    `tables` are those that its query may refer to, `scope` has the outer names; `columns` are names for its first columns.
    """

    name: exp.Expr
    columns: Sequence[exp.Expr]
    query: exp.Expr
    tables: Mapping[str, QueryResult | CorrelatedTable]
    scope: Names


@dataclass(frozen=True, eq=False)
class Environment:
    """The names that a query may refer to: tables of a `with`, by name in lower case, and the outer query, None if it reads no column of that.

    `taken` are the names of all outer columns: columns inside get other names.
    """

    tables: Mapping[str, QueryResult | CorrelatedTable]
    outer: Outer | None = None
    taken: frozenset[str] = frozenset()


@dataclass(eq=False)
class Groups:
    """The parts of expressions over groups: grouping expressions, by their text, and aggregates, by their syntax nodes.

    `subqueries` has the texts of the grouping expressions with subqueries by their SQL: read again, they would be other columns.
    `reader` reads expressions over the rows before they were grouped, which have the columns of `schema` and the names of `scope`.
    """

    reader: ExpressionReader
    scope: Names
    schema: Schema
    keys: dict[str, Expression]
    aggregates: dict[int, Expression]
    aliases: dict[str, exp.Expr]
    subqueries: dict[str, str]


@dataclass(frozen=True)
class Name:
    """A column's name in expressions: `table.name`, or only `name`; `bare`: it may be written without its table."""

    table: str | None
    name: str
    column: str
    bare: bool = True


class UnknownName(UnknownColumn):
    """A name that no column in scope has, and its table if that is written; `meant` is a similar name in scope, or None."""

    def __init__(self, table: str | None, name: str, meant: str | None, *, span: Span, hint: str):
        self.written = f"{table}.{name}" if table else name
        super().__init__(f"no column is named `{self.written}`", name, span=span, hint=hint)
        self.table, self.name, self.meant = table, name, meant


@dataclass(eq=False)
class Names:
    """The names of a query's `from`, in order, and the scope of the outer query. `used` collects the outer columns that are read."""

    names: list[Name] = field(default_factory=list)
    outer: Names | None = None
    used: dict[str, None] = field(default_factory=dict)
    hint: str = ""
    """The hint for an unknown name, in place of the list of names in scope."""

    def find(self, table: str | None, name: str, span: Span) -> str:
        """Return the column that a name means. Raises SpecError if it means none, or several."""
        found = self._found(table, name)
        if len(found) > 1:
            listed = ", ".join(f"`{each.table}.{each.name}`" for each in found)
            written = f"{table}.{name}" if table else name
            hint = (
                f"qualify it: {listed}"
                if not table and len({each.table for each in found}) > 1
                else "give them different names with `as`"
            )
            raise SpecError(f"`{written}` may be any of {len(found)} columns", span=span, hint=hint)
        if found:
            return found[0].column
        if self.outer is not None:
            column = self.outer.find(table, name, span)
            self.used[column] = None
            return column
        raise self._unknown(table, name, span)

    def has(self, table: str | None, name: str) -> bool:
        """Return whether a column has this name here, or in an outer query."""
        return bool(self._found(table, name)) or (self.outer is not None and self.outer.has(table, name))

    def shadows(self, table: str, name: str) -> bool:
        """Return whether `table.name` is a struct's field: a column named `table` is in a nearer scope than that table's column `name`."""
        if self._found(table, name):
            return False
        return bool(self._found(None, table)) or (self.outer is not None and self.outer.shadows(table, name))

    def note(self, column: str) -> None:
        """Record that a column is read, if it is one of an outer query."""
        if self.outer is not None and not self.owns(column):
            self.used[column] = None
            self.outer.note(column)

    def owns(self, column: str) -> bool:
        """Return whether a column is one of the query's own `from`."""
        return any(each.column == column for each in self.names)

    def of(self, table: str | None) -> list[Name]:
        """Return the columns that `*`, or `table.*`, stands for."""
        if table is None:
            return [each for each in self.names if each.bare]
        tables = {each.table for each in self.names if each.table}
        exact = table if table in tables else next((one for one in tables if one.lower() == table.lower()), None)
        return [each for each in self.names if exact is not None and each.table == exact]

    def visible(self) -> Iterator[Name]:
        """Yield all names, from inside out."""
        yield from self.names
        if self.outer is not None:
            yield from self.outer.visible()

    def _found(self, table: str | None, name: str) -> list[Name]:
        """Return the names that are spelt exactly so, or if none is, those that differ only in case."""
        known = [each for each in self.names if each.name.lower() == name.lower()]
        if table is None:
            known = [each for each in known if each.bare]
        else:
            known = [each for each in known if each.table is not None and each.table.lower() == table.lower()]
            known = [each for each in known if each.table == table] or known
        return [each for each in known if each.name == name] or known

    def _unknown(self, table: str | None, name: str, span: Span) -> UnknownName:
        listed = list(
            dict.fromkeys(
                f"{each.table}.{each.name}" if table and each.table else each.name
                for each in self.visible()
                if table is None or each.table
            )
        )
        written = f"{table}.{name}" if table else name
        lowered = {each.lower(): each for each in listed}
        meant = lowered.get(did_you_mean(written.lower(), lowered) or "")
        hint = self.hint or f"in scope: {', '.join(sorted(listed)) or 'nothing'}"
        if meant:
            hint = f"did you mean `{meant}`? ({hint})"
        return UnknownName(table, name, meant, span=span, hint=hint)
