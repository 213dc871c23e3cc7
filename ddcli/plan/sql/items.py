"""The items of a `from`: tables, derived tables and table functions, each with column names that no other item has.

Items are joined by the conditions on them: equalities become keys, the other conditions filters.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.syntax_tree import table_name
from ddcli.expressions.tree import Call, Cast, Column, Expression
from ddcli.expressions.types import renamed
from ddcli.plan import groupings, logical
from ddcli.plan.conditions import all_of, conjuncts, is_certain
from ddcli.plan.joins import comparable
from ddcli.plan.sql import nodes
from ddcli.plan.sql.block import Block, split
from ddcli.plan.sql.calls import with_rows
from ddcli.plan.sql.context import CorrelatedTable, Environment, Name, Names, Outer, QueryResult
from ddcli.plan.sql.nodes import Pair
from ddcli.plan.sql.reader import RowExpressions, contains_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.plan.node import Node
    from ddcli.plan.sql.statement import Statement


def product(items: Sequence[Node], conditions: Sequence[Expression], crossed: Callable[[Node], None]) -> Node:
    """Return the combinations of the items' records for which all conditions are true; `crossed` is called with each join without a key.

    Conditions that could fail are applied last, in the written order: to no more records than as written.
    """
    parts = [part for condition in conditions for part in conjuncts(condition)]
    early = [part for part in parts if is_certain(part)]
    late = [part for part in parts if not is_certain(part)]
    left = [_kept(item, early) for item in items]
    early = [
        part for part in early if not any(part.columns() <= item.schema.keys() for item in left) or not part.columns()
    ]
    constants = [part for part in early if not part.columns()]
    early = [part for part in early if part.columns()]
    node = left.pop(0)
    while left:
        at, pairs = _next(node, left, early)
        if not pairs:
            at, pairs = _next(node, left, late)
        other = left.pop(at)
        node = nodes.joined(node, other, [pair for _, pair in pairs])
        if not pairs:
            crossed(node)
        used = {id(part) for part, _ in pairs}
        early = [part for part in early if id(part) not in used]
        late = [part for part in late if id(part) not in used]
        covered = [part for part in early if part.columns() <= node.schema.keys()]
        early = [part for part in early if not part.columns() <= node.schema.keys()]
        if covered:
            node = nodes.filtered(node, all_of(covered))
    if rest := [*constants, *early, *late]:
        node = nodes.filtered(node, all_of(rest))
    return node


def equal(condition: Expression) -> Pair | None:
    """Return the two sides of a condition that is an equality, else None."""
    if isinstance(condition, Call) and condition.function in ("=", "is not distinct from"):
        left, right = (_bare(arg) for arg in condition.args)
        if not comparable(left.type, right.type):
            left, right = condition.args
        return Pair(left, right, null_safe=condition.function != "=", span=condition.span)
    return None


def between(condition: Expression, left: Node, right: Node) -> Pair | None:
    """Return the sides of an equality between an expression over the left's columns and one over the right's; else None."""
    pair = equal(condition)
    if pair is None or not pair.left.columns() or not pair.right.columns():
        return None
    if pair.left.columns() <= left.schema.keys() and pair.right.columns() <= right.schema.keys():
        return pair
    if pair.right.columns() <= left.schema.keys() and pair.left.columns() <= right.schema.keys():
        return Pair(pair.right, pair.left, pair.null_safe, pair.span)
    return None


def _next(
    node: Node, items: Sequence[Node], conditions: Sequence[Expression]
) -> tuple[int, list[tuple[Expression, Pair]]]:
    """Return the index of the first item that equalities connect with a node, and these equalities; 0 and none if there is no such item."""
    for at, item in enumerate(items):
        pairs = [(part, pair) for part in conditions if (pair := between(part, node, item)) is not None]
        if pairs:
            return at, pairs
    return 0, []


def _kept(item: Node, conditions: Sequence[Expression]) -> Node:
    """Return an item filtered by the conditions that read only its columns."""
    own = [part for part in conditions if part.columns() and part.columns() <= item.schema.keys()]
    return nodes.filtered(item, all_of(own)) if own else item


def _bare(expression: Expression) -> Expression:
    """Return the expression without a widening cast that keeps the value's lanes."""
    if isinstance(expression, Cast) and not expression.try_:
        inner, kind = expression.argument.type, expression.type
        if (inner.is_integer and kind.kind == "int64" and inner.kind != "uint64") or (inner.is_float and kind.is_float):
            return expression.argument
    return expression


def outer_joined(
    left: Node, right: Node, conditions: Sequence[Expression], side: str, filter_matches: Callable[[Node], Node]
) -> Node:
    """Return the outer join of two nodes; `filter_matches` keeps the matches for which further conditions are true.

    A condition on the padding side alone filters that side before the join: a row that it drops matches nothing. A condition that is neither
    that nor an equality filters the pairs with equal keys; a record whose pairs are all dropped has no match.
    """
    parts = [part for condition in conditions for part in conjuncts(condition)]
    pairs, rest = [], []
    for part in parts:
        pair = between(part, left, right)
        if pair is not None:
            pairs.append(pair)
        elif side == "left" and part.columns() and part.columns() <= right.schema.keys():
            right = nodes.filtered(right, part)
        elif side == "right" and part.columns() and part.columns() <= left.schema.keys():
            left = nodes.filtered(left, part)
        else:
            rest.append(part)
    matches = nodes.joined(left, right, pairs)
    inner = filter_matches(nodes.filtered(matches, all_of(rest)) if rest else matches)
    if inner is matches and pairs:
        if side == "right":
            swapped = [nodes.Pair(pair.right, pair.left, pair.null_safe, pair.span) for pair in pairs]
            return nodes.projected(nodes.joined(right, left, swapped, "left"), matches.schema)
        return nodes.joined(left, right, pairs, side)
    schema = {
        name: kind.or_null() if (name in right.schema) == (side == "left") or side == "full" else kind
        for name, kind in matches.schema.items()
    }
    schema |= {name: left.schema[name] for name in left.schema if side == "left"}
    schema |= {name: right.schema[name] for name in right.schema if side == "right"}
    schema |= {
        name: kind.or_null()
        for name, kind in (left.schema | right.schema).items()
        if side == "full" or name in (right if side == "left" else left).schema
    }
    found = [nodes.mapped(inner, {name: Column(name, kind) for name, kind in schema.items()})]
    if side in ("left", "full"):
        found.append(nodes.padded(nodes.without(left, inner), schema))
    if side in ("right", "full"):
        found.append(nodes.padded(nodes.without(right, inner), schema))
    return nodes.concat(found)


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

    def __init__(self, statement: Statement, environment: Environment):
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

        def crossed(join: Node) -> None:
            self.statement.note_product(at if not isinstance(at, exp.Select) else at.args["from_"], join)

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
            alias, table = alias or inner.args.get("alias"), None
            around = Environment(self.environment.tables, Outer(self.scope(before), relation), self.environment.taken)
            result = self.statement.query(inner, around)
        else:
            found, columns, table = with_rows(self.over(before, relation), inner, self.taken(before))
            if (not left and on is None) or is_true(on):
                if on is not None:
                    self.take(on, "this")
                if not left:
                    names = self.alias_names(alias, columns, table, node)
                    return replace(before, items=[found], names=[*before.names, *names])
            keys = tuple(relation.schema)
            rows = groupings.distinct(relation)
            found, columns, table = with_rows(self.over(before, rows), inner, self.taken(before))
            result = QueryResult(found, keys, columns)
        separate = Environment(
            self.environment.tables, Outer(self.scope(before), relation), frozenset(self.taken(before))
        )
        item = Items(self.statement, separate).named(result, alias, table, Chain(), node)
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
        joined = product([relation, item.node], conditions, lambda _: None)
        return replace(before, items=[joined], names=names, later=[*before.later, *later])

    def alone(self, node: exp.Expr, chain: Chain) -> Chain:
        """Return the chain of a table function that reads no column."""
        made = Items(self.statement, Environment(self.environment.tables)).lateral(Chain(), node, None)
        (item,), columns = made.items, [(name.name, name.column) for name in made.names]
        result = QueryResult(nodes.projected(item, [column for _, column in columns]), (), tuple(columns))
        found = self.named(result, None, made.names[0].table, chain, node)
        return Chain([found.node], [], found.names)

    def alias_names(
        self, alias: exp.Expr | None, columns: tuple[tuple[str, str], ...], table: str | None, at: exp.Expr
    ) -> list[Name]:
        """Return the names of a table function's columns, (name, column), and its table's; an alias may rename them."""
        if alias is not None:
            word, listed = self.take(alias, "this", "columns")
            table = self.statement.identifier(word) if word is not None else None
            columns = self.statement.columns_named(columns, listed or [], table or "the table", at)
        return [Name(table, name, column) for name, column in columns]


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
