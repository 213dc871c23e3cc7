"""The items of a `from`: tables, derived tables and table functions, each with column names that no other item has."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.statement import table_name
from ddcli.plan import groupings, logical
from ddcli.plan.sql import nodes
from ddcli.plan.sql.block import Block, split
from ddcli.plan.sql.context import CorrelatedTable, Environment, Outer, QueryResult
from ddcli.plan.sql.names import Name, Names, renamed
from ddcli.plan.sql.product import outer_joined, product
from ddcli.plan.sql.reader import RowExpressions, contains_query
from ddcli.plan.sql.table_functions import with_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Node
    from ddcli.plan.sql.context import QueryLowering

CROSSED = "this joins each row of one side with each of the other: no equality connects them"


@dataclass(eq=False)
class FromItem:
    """An entry of a `from`: a node, its names, and conditions that tie it to the outer query."""

    node: Node
    names: list[Name]
    conditions: list[Expression] = field(default_factory=list)


@dataclass(eq=False)
class Chain:
    """The items joined so far, with the conditions on them and the `names` in scope."""

    items: list[Node] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    later: list[exp.Expr] = field(default_factory=list)
    """Conditions with subqueries: they are applied to the product."""


class Items:
    """The entries of a `from` joined so far, and the methods that make another entry an item."""

    def __init__(self, statement: QueryLowering, environment: Environment):
        self.statement, self.environment = statement, environment
        self.take, self.place = statement.tree.take, statement.tree.place
        self.whole = Chain()
        if environment.outer is not None:
            self.whole.items.append(environment.outer.node)

    def scope(self, chain: Chain) -> Names:
        outer = self.environment.outer.scope if self.environment.outer is not None else None
        return Names(list(chain.names), outer)

    def taken(self, chain: Chain) -> dict[str, object]:
        """Return the column names that are taken, also by the outer query."""
        found: dict[str, object] = {}
        for each in (self.whole, chain):
            for item in each.items:
                found |= item.schema
        return found | dict.fromkeys(self.environment.taken)

    def reader(self, chain: Chain) -> RowExpressions:
        """Return a reader of expressions over the items of a chain and of the whole."""
        return self.unjoined(chain).reader

    def unjoined(self, chain: Chain) -> Block:
        """Return a block with the columns of the items of a chain and of the whole, over a stand-in for their join."""
        schema = {
            name: kind for each in (self.whole, chain) for item in each.items for name, kind in item.schema.items()
        }
        stand_in = logical.Source((), schema, "#items")
        return Block(self.statement, self.environment, self.scope(chain), stand_in)

    def merge(self, chain: Chain, at: exp.Expr) -> None:
        """Add a chain to the whole: entries with a comma between them."""
        if chain is self.whole:
            return
        self.unique(self.whole.names, chain.names, at)
        self.whole.items += chain.items
        self.whole.conditions += chain.conditions
        self.whole.names += chain.names
        self.whole.later += chain.later

    def unique(self, names: Sequence[Name], others: Sequence[Name], at: exp.Expr) -> None:
        """Raise SpecError for a table that is named twice."""
        for table in {each.table for each in others if each.table}:
            if any(each.table and each.table.lower() == table.lower() for each in names):
                raise SpecError(
                    f"two tables are named `{table}`",
                    span=self.place(at),
                    hint=f"name one of them: {table} as other",
                )

    def product_of(self, chain: Chain, at: exp.Expr) -> Node:
        """Return the product of a chain's items under its conditions."""

        def crossed() -> None:
            self.statement.note(at if not isinstance(at, exp.Select) else at.args["from_"], CROSSED)

        return product(chain.items, chain.conditions, crossed)

    def joined_whole(self, chain: Chain, at: exp.Expr) -> Chain:
        """Return one chain, of at most one item, of the whole and a chain; the whole is empty afterwards."""
        if chain is self.whole:
            return chain
        self.merge(chain, at)
        found, self.whole = self.whole, Chain()
        if found.items:
            found.items = [self.product_of(found, at)]
        found.conditions = []
        return found

    def over(self, chain: Chain, relation: Node) -> Block:
        """Return a block with a chain's names over a relation that has their columns."""
        return Block(self.statement, self.environment, self.scope(chain), relation)

    def where_all(self, node: Node, names: list[Name], conditions: Sequence[exp.Expr]) -> Node:
        """Return the records of a product for which conditions with subqueries are true."""
        block = self.over(Chain(names=names), node)
        for each in conditions:
            block.where(each)
        return nodes.projected(block.node, node.schema)

    # --- entries ----------------------------------------------------------------------------------------------------

    def item(self, node: exp.Expr, chain: Chain) -> FromItem:
        """Return the item of a table, a derived table or `values`."""
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self.table(node, chain)
        if isinstance(node, exp.Subquery | exp.Values | exp.Select):
            if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query | exp.Values):
                raise SpecError("a query is expected here", span=self.place(node))
            result = self.statement.query(node, self.environment)
            alias = node.args.get("alias")
            return self.named(result, alias, None, chain, node)
        raise SpecError(f"`{self.statement.tree.written(node)}` is not supported in `from`", span=self.place(node))

    def table(self, node: exp.Table, chain: Chain) -> FromItem:
        """Return the item of an input, a collection, or a table of a `with`."""
        _, alias = self.take(node, "this", "alias", "db", "joins")[:2]
        self.take(node.this, "this", "quoted")
        if (database := node.args.get("db")) is not None:
            self.take(database, "this", "quoted")
        name = table_name(node)
        known = self.environment.tables.get(name.lower())
        if isinstance(known, CorrelatedTable):
            known = self.statement.correlated(known, self.environment)
        if known is not None:
            return self.named(known, alias, name, chain, node)
        relation = self.statement.named(name)
        columns = tuple((each, each) for each in relation.schema)
        return self.named(QueryResult(relation.node, (), columns), alias, stem(node.name), chain, node)

    def named(
        self, result: QueryResult, alias: exp.Expr | None, name: str | None, chain: Chain, at: exp.Expr
    ) -> FromItem:
        """Return a result as an item: with column names that no other item has, and tied to the outer query."""
        table, columns = name, result.columns
        if alias is not None:
            word, listed = self.take(alias, "this", "columns")
            table = self.statement.identifier(word) if word is not None else name
            columns = self.statement.columns_named(columns, listed or [], table or "the table", at)
        taken = self.taken(chain)
        hidden = [each for each in result.node.schema if each not in {column for _, column in result.columns}]
        wanted: dict[str, str] = {}
        for shown, column in columns:
            if column not in wanted:
                plain = shown not in taken and shown not in wanted.values()
                wanted[column] = shown if plain else f"{table}.{shown}" if table else shown
        given = dict(zip([*wanted, *hidden], renamed([*wanted.values(), *hidden], taken).values(), strict=False))
        if len(set(given.values())) < len(wanted) + len(hidden):  # two columns of one name
            given = dict(
                zip(
                    [*wanted, *hidden],
                    renamed([f"{table}.{each}" for each in [*wanted, *hidden]], taken).values(),
                    strict=True,
                )
            )
        node = nodes.mapped(result.node, {given[each]: nodes.column(result.node, each) for each in [*wanted, *hidden]})
        names = [Name(table, shown, given[column]) for shown, column in columns]
        outer = self.environment.outer
        ties = []
        for key in result.keys:
            assert outer is not None
            ties.append(nodes.tie(nodes.column(outer.node, key), nodes.column(node, given[key])))
        return FromItem(node, names, ties)

    def lateral(self, chain: Chain, node: exp.Expr, on: exp.Expr | None, *, left: bool = False) -> Chain:
        """Return a chain with an entry that reads columns of the entries before it."""
        alias: exp.Expr | None = node.args.get("alias")
        inner = node
        if isinstance(node, exp.Lateral):
            (inner,) = self.take(node, "this", "alias", "view", "outer")[:1]
        before = self.joined_whole(chain, node)
        if not before.items:
            before.items = [self.statement.one(self.environment, self.place(node))]
        relation = before.items[0]
        if isinstance(inner, exp.Subquery):
            alias = alias or inner.args.get("alias")
            around = Environment(self.environment.tables, Outer(self.scope(before), relation), self.environment.taken)
            result = self.statement.query(inner, around)
        else:
            found, column, name = with_rows(self.over(before, relation), inner, self.taken(before))
            if (not left and on is None) or is_true(on):
                if on is not None:
                    self.take(on, "this")
                if not left:
                    names = self.alias_names(alias, name, column, node)
                    return replace(before, items=[found], names=[*before.names, *names])
            keys = tuple(relation.schema)
            result = QueryResult(groupings.distinct(found), keys, ((name, column),))
            rows = groupings.distinct(relation)
            found, column, name = with_rows(self.over(before, rows), inner, self.taken(before))
            result = QueryResult(found, keys, ((name, column),))
        separate = Environment(
            self.environment.tables, Outer(self.scope(before), relation), frozenset(self.taken(before))
        )
        item = Items(self.statement, separate).named(result, alias, None, Chain(), node)
        names = [*before.names, *item.names]
        conditions = list(item.conditions)
        later = []
        probe = Chain([relation, item.node], [], names)
        for part in split(on, self.statement) if on is not None and not is_true(on) else ():
            if contains_query(part):
                later.append(part)
            else:
                conditions.append(self.reader(probe).condition(part, "a condition"))
        if on is not None and is_true(on):
            self.take(on, "this")
        if left:
            joined = outer_joined(
                relation,
                item.node,
                conditions,
                "left",
                lambda each: self.where_all(each, names, later) if later else each,
            )
            return replace(before, items=[joined], names=names)
        joined = product([relation, item.node], conditions, lambda: None)
        return replace(before, items=[joined], names=names, later=[*before.later, *later])

    def alone(self, node: exp.Expr, chain: Chain) -> Chain:
        """Return the chain of a table function that reads no column."""
        made = Items(self.statement, Environment(self.environment.tables)).lateral(Chain(), node, None)
        ((item,), (name,)) = made.items, made.names
        result = QueryResult(nodes.projected(item, [name.column]), (), ((name.name, name.column),))
        found = self.named(result, None, name.table, chain, node)
        return Chain([found.node], [], found.names)

    def alias_names(self, alias: exp.Expr | None, name: str, column: str, at: exp.Expr) -> list[Name]:
        """Return the name of a table function's column, in a list; an alias may rename it."""
        table: str | None = None
        if alias is not None:
            word, listed = self.take(alias, "this", "columns")
            table = self.statement.identifier(word) if word is not None else None
            name = self.statement.columns_named(((name, column),), listed or [], table or "the table", at)[0][0]
        return [Name(table, name, column)]


def stem(name: str) -> str:
    """Return the name that qualifies a table's columns: for a file, its name without folders and endings.

    >>> stem("orders"), stem("data/orders.csv.gz")
    ('orders', 'orders')
    """
    return name.rstrip("/").rpartition("/")[2].partition(".")[0]


def is_lateral(node: exp.Expr) -> bool:
    """Return whether an entry may read columns of the entries before it."""
    return isinstance(node, exp.Lateral | exp.Unnest) or (
        isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous)
    )


def is_true(node: exp.Expr | None) -> bool:
    """Return whether a condition is just `true`."""
    return isinstance(node, exp.Boolean) and bool(node.this)
