"""The context that the parts of a statement share: the names around a query, the result of a query, and the demands of its reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ddcli.dataclass import dataclass
from ddcli.expressions.tree import Column
from ddcli.plan.sql import nodes
from ddcli.plan.sql.names import renamed
from ddcli.plan.sql.nodes import column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import exp

    from ddcli.errors import Span
    from ddcli.expressions.parse import ExpressionReader
    from ddcli.expressions.row_order import RowOrder
    from ddcli.expressions.sql import Tree
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.plan.node import LoopName, Node
    from ddcli.plan.relation import Relation
    from ddcli.plan.sql.names import Names
    from ddcli.plan.sql.outer_aggregates import OuterAggregates


@dataclass(frozen=True, eq=False)
class Outer:
    """The surroundings of a subquery: the names that it may use, and the node with the columns that these mean."""

    scope: Names
    node: Node


@dataclass(frozen=True, eq=False)
class QueryResult:
    """A query's relation: for each row of the `keys`, columns of the query around, its rows of `columns`, (name, column) in order.

    `single`: at most one row for each row of the keys. `value`: the expression of a query that is one value, over the columns of its row, or over
    nulls if it has none.
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
    """A table of a `with` that reads columns around the query which defines it: it is lowered wherever it is named.

    `tables` are those that its query may refer to, `scope` the names around; `columns` are names for its first columns.
    """

    name: exp.Expr
    columns: Sequence[exp.Expr]
    query: exp.Expr
    tables: Mapping[str, QueryResult | CorrelatedTable]
    scope: Names


@dataclass(frozen=True, eq=False)
class Environment:
    """The names that a query may refer to: tables of a `with`, by name in small letters, and the query around it, None if it reads nothing of that.

    `taken` are the names of all columns around, which columns inside must not have.
    """

    tables: Mapping[str, QueryResult | CorrelatedTable]
    outer: Outer | None = None
    taken: frozenset[str] = frozenset()


class QueryLowering(Protocol):
    """A `Statement` while it is lowered, as its clauses see it. `statement` is not imported, as it imports them."""

    tree: Tree
    loop: LoopName | None
    coordinates: int
    leaving: frozenset[str]
    shown: exp.Expr | None
    collected: exp.Expr | None
    outer: OuterAggregates
    order: RowOrder

    @property
    def named(self) -> Callable[[str], Relation]:
        """Returns the relation of an input or a collection by its name."""

    @property
    def inputs(self) -> Callable[[], Sequence[Node]]:
        """Returns the nodes of all inputs."""

    def query(self, node: exp.Expr, environment: Environment, *, value: bool = False) -> QueryResult:
        """Return the relation of a query, for each row of the columns around that it reads."""

    def recursion_start(self, node: exp.Expr, environment: Environment, leaving: frozenset[str]) -> QueryResult:
        """Return the relation of a query without the sides of unions that name some tables."""

    def tried(self, node: exp.Expr, environment: Environment) -> None:
        """Lower a query only for the notes that its expressions leave."""

    def correlated(self, table: CorrelatedTable, environment: Environment) -> QueryResult:
        """Return the relation of a table that reads columns around the query which defines it, where it is named."""

    def reads_around(self, node: exp.Expr, environment: Environment) -> bool:
        """Return whether a query reads columns of the query around it."""

    def definition(self, table: exp.CTE) -> tuple[exp.Expr, list[exp.Expr], exp.Expr]:
        """Return the name, the columns' names and the query of a table of a `with`."""

    def columns_named(
        self, columns: Sequence[tuple[str, str]], names: Sequence[exp.Expr], table: str, place: exp.Expr
    ) -> tuple[tuple[str, str], ...]:
        """Return columns under the names that a list behind a table's name has for them."""

    def identifier(self, node: exp.Expr) -> str:
        """Return a name that stands alone."""

    def column_name(self, node: exp.Expr) -> str:
        """Return a name for a column."""

    def one(self, environment: Environment, span: Span) -> Node:
        """Return a record for each row of the query around; without that, one."""

    def note(self, node: exp.Expr, text: str) -> None:
        """Note something that is worth knowing."""


@dataclass(eq=False)
class Groups:
    """The parts of expressions over groups: expressions that were grouped by, by their text, and aggregates, by their syntax nodes.

    `reader` reads expressions over the rows before they were grouped, of the columns `schema`, under the names `scope`.
    """

    reader: ExpressionReader
    scope: Names
    schema: Schema
    keys: dict[str, Expression]
    aggregates: dict[int, Expression]
    aliases: dict[str, exp.Expr]


class SubqueryHost(Protocol):
    """A `Block`, a relation while it is built, as its reader of expressions sees it. `block` is not imported, as it imports that reader."""

    scope: Names
    groups: Groups | None
    known: dict[int, Expression]
    aliases: dict[str, exp.Expr]

    @property
    def statement(self) -> QueryLowering:
        """The statement that it is a part of."""

    @property
    def schema(self) -> Schema:
        """The columns."""

    def scalar(self, query: exp.Expr) -> Expression:
        """Return the value of a subquery."""

    def exists(self, query: exp.Expr) -> Expression:
        """Return for each record whether a subquery has rows."""

    def among(self, values: Sequence[Expression], query: exp.Expr) -> Expression:
        """Return for each record whether values are one of a subquery's rows."""

    def quantified(self, node: exp.Expr, left: Expression, query: exp.Expr, *, every: bool) -> Expression:
        """Return for each record whether a comparison is true of some, or of every row of a subquery."""
