"""The context that the parts of a statement share: the scope of a query, its result, and the protocols between the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ddcli.dataclass import dataclass
from ddcli.expressions.coerce import INT64
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
    from ddcli.expressions.syntax_tree import Tree
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema, Type
    from ddcli.plan.node import LoopName, Node
    from ddcli.plan.relation import Relation
    from ddcli.plan.sql.calls import OuterAggregates
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


class QueryLowering(Protocol):
    """A `Statement` while it is lowered, as its clauses see it. `statement` is not imported, as it imports them."""

    tree: Tree
    loop: LoopName | None
    times: Times
    leaving: frozenset[str]
    shown: exp.Expr | None
    collected: exp.Expr | None
    outer: OuterAggregates
    order: RowOrder

    @property
    def named(self) -> Callable[[str], Relation]:
        """The function that returns the relation of an input or a collection by name."""

    @property
    def inputs(self) -> Callable[[], Sequence[Node]]:
        """The function that returns the nodes of all inputs."""

    def query(self, node: exp.Expr, environment: Environment, *, value: bool = False) -> QueryResult:
        """Return the relation of a query, for each row of the outer columns that it reads."""

    def recursion_start(self, node: exp.Expr, environment: Environment, leaving: frozenset[str]) -> QueryResult:
        """Return the relation of a query without the sides of unions that name a table in `leaving`."""

    def lower_on_trial(self, node: exp.Expr, environment: Environment) -> None:
        """Lower a query only for the outer aggregates and columns that its expressions note, and drop the result."""

    def forget_columns(self) -> None:
        """Forget which outer columns each query reads."""

    def correlated(self, table: CorrelatedTable, environment: Environment) -> QueryResult:
        """Return the relation of a correlated table at a place where it is named."""

    def reads_around(self, node: exp.Expr, environment: Environment) -> bool:
        """Return whether a query reads columns of its outer query."""

    def definition(self, table: exp.CTE) -> tuple[exp.Expr, list[exp.Expr], exp.Expr]:
        """Return the name, the columns' names and the query of a table of a `with`."""

    def columns_named(
        self, columns: Sequence[tuple[str, str]], names: Sequence[exp.Expr], table: str, place: exp.Expr
    ) -> tuple[tuple[str, str], ...]:
        """Return columns renamed by the list of names behind a table's name."""

    def identifier(self, node: exp.Expr) -> str:
        """Return the name that a node without a qualifier is."""

    def column_name(self, node: exp.Expr) -> str:
        """Return a name for a column."""

    def one(self, environment: Environment, span: Span) -> Node:
        """Return a node with a record for each row of the outer query; without an outer query, one record."""

    def note(self, node: exp.Expr, text: str) -> None:
        """Add a note at the place of a node."""

    def note_product(self, node: exp.Expr, join: Node) -> None:
        """Add a note that a join has no key, which is dropped if an equality above it states one."""


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


class SubqueryHost(Protocol):
    """A `Block`, a relation while it is built, as its reader of expressions sees it. `block` is not imported, as it imports that reader."""

    scope: Names
    groups: Groups | None
    known: dict[int, Expression]
    aliases: dict[str, exp.Expr]

    @property
    def statement(self) -> QueryLowering:
        """The statement that the block is a part of."""

    @property
    def schema(self) -> Schema:
        """The columns of the relation."""

    def scalar(self, query: exp.Expr) -> Expression:
        """Return the value of a subquery."""

    def exists(self, query: exp.Expr) -> Expression:
        """Return a condition that is true for the records for which a subquery has rows."""

    def among(self, values: Sequence[Expression], query: exp.Expr) -> Expression:
        """Return a condition that is true for the records whose `values` are a row of a subquery."""

    def quantified(self, node: exp.Expr, left: Expression, query: exp.Expr, *, every: bool) -> Expression:
        """Return a condition that a comparison is true of some row of a subquery, or of `every` row."""
