"""The context that the parts of a statement share: the scope of a query, and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.coerce import INT64
from ddcli.expressions.tree import Column
from ddcli.plan.sql import nodes
from ddcli.plan.sql.names import renamed
from ddcli.plan.sql.nodes import column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from ddcli.expressions.parse import ExpressionReader
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema, Type
    from ddcli.plan.node import Node
    from ddcli.plan.sql.names import Names


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
