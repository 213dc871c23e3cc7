"""The `from` of a query: its tables, derived tables, table functions and joins, as items of a product and conditions on them."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.coerce import INT64, convert
from ddcli.expressions.scope import TableCall
from ddcli.expressions.statement import table_name
from ddcli.expressions.steps import UnnestStep
from ddcli.expressions.tree import Call, Column, Literal
from ddcli.plan import logical
from ddcli.plan.asof import is_ordered
from ddcli.plan.conditions import call, conjuncts
from ddcli.plan.sql import nodes
from ddcli.plan.sql.block import Block, split
from ddcli.plan.sql.context import Environment, Outer, QueryResult
from ddcli.plan.sql.names import Name, Names, renamed
from ddcli.plan.sql.nodes import Pair
from ddcli.plan.sql.outer_join import outer_joined
from ddcli.plan.sql.product import between, product
from ddcli.plan.sql.reader import RowExpressions, contains_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.plan.logical import Node
    from ddcli.plan.sql.context import QueryLowering

CROSSED = "this joins each row of one side with each of the other: no equality connects them"
SERIES = ("generate_series", "range")
COMPARED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
"""The comparisons of an as-of join, and those with the sides exchanged."""


@dataclass(eq=False)
class FromItem:
    """What an entry of a `from` brings: a node, its names, and conditions that tie it to what is around the query."""

    node: Node
    names: list[Name]
    conditions: list[Expression] = field(default_factory=list)


@dataclass(eq=False)
class Chain:
    """Items joined so far, with the conditions on them; `names` are those in scope."""

    items: list[Node] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    later: list[exp.Expr] = field(default_factory=list)
    """Conditions with subqueries: they are asked of the product."""
    wide: bool = False
    """Whether items before a comma are among these, which a join behind the comma does not begin with."""


class From:
    """Builds the relation of a `from` with the plain conditions of a `where`."""

    def __init__(self, statement: QueryLowering, environment: Environment):
        self.statement, self.environment = statement, environment
        self.take, self.place = statement.tree.take, statement.tree.place
        self.whole = Chain()
        if environment.outer is not None:
            self.whole.items.append(environment.outer.node)

    def block(self, node: exp.Select) -> Block:
        """Return the block of a `select`: what its `from` and `where` leave."""
        self.select = node
        source, joins, where = (node.args.get(name) for name in ("from_", "joins", "where"))
        if source is not None:
            chain = self.item_chain(self.take(source, "this")[0])
            for join in joins or ():
                if is_comma(join):
                    self.merge(chain)
                    chain = self.item_chain(self.take(join, "this")[0])
                else:
                    chain = self.join(chain, join)
            self.merge(chain)
        elif not self.whole.items:
            self.whole.items.append(self.statement.one(self.environment, self.place(node)))
        later = self.whole.later
        if where is not None:
            for part in split(self.take(where, "this")[0], self.statement):
                if contains_query(part):
                    later.append(part)
                else:
                    self.whole.conditions.append(self.reader(self.whole).condition(part, "a condition"))
        later = [part for part in later if not self.asked_early(part)]
        found = Block(self.statement, self.environment, self.scope(self.whole), self.flushed(self.whole, node))
        for part in later:
            found.where(part)
        return found

    def asked_early(self, condition: exp.Expr) -> bool:
        """Ask a condition that is just a column `in` a query by itself of the item that has it; say whether it was asked.

        The fewer records an item has, the fewer are joined.
        """
        items = self.whole.items
        if len(items) < 2:  # the product is the item
            return False
        found = self.unjoined(self.whole).partners(condition, apart=True)
        if found is None:
            return False
        right, pairs, _ = found
        read = frozenset().union(*(pair.left.columns() for pair in pairs))
        at = next(at for at, item in enumerate(items) if read <= item.schema.keys())
        items[at] = nodes.semijoined(items[at], right, pairs)
        return True

    # --- what is joined so far ---------------------------------------------------------------------------------------

    def scope(self, chain: Chain) -> Names:
        outer = self.environment.outer.scope if self.environment.outer is not None else None
        return Names(list(chain.names), outer)

    def taken(self, chain: Chain) -> dict[str, object]:
        """Return the column names that are taken, those of what is around among them."""
        found: dict[str, object] = {}
        for each in (self.whole, chain):
            for item in each.items:
                found |= item.schema
        return found | dict.fromkeys(self.environment.taken)

    def reader(self, chain: Chain) -> RowExpressions:
        """Return a reader of expressions over a chain's items and all before."""
        return self.unjoined(chain).reader

    def unjoined(self, chain: Chain) -> Block:
        """Return a block with the columns of a chain's items and all before."""
        schema = {
            name: kind for each in (self.whole, chain) for item in each.items for name, kind in item.schema.items()
        }
        stand_in = logical.Source((), schema, "#items")
        return Block(self.statement, self.environment, self.scope(chain), stand_in)

    def merge(self, chain: Chain) -> None:
        """Add a chain to the whole: entries with a comma between them."""
        if chain is self.whole:
            return
        self.unique(self.whole.names, chain.names)
        self.whole.items += chain.items
        self.whole.conditions += chain.conditions
        self.whole.names += chain.names
        self.whole.later += chain.later

    def unique(self, names: Sequence[Name], others: Sequence[Name]) -> None:
        """Refuse a table that is named twice."""
        for table in {each.table for each in others if each.table}:
            if any(each.table and each.table.lower() == table.lower() for each in names):
                raise SpecError(
                    f"two tables are named `{table}`",
                    span=self.place(self.select),
                    hint=f"name one of them: {table} as other",
                )

    def flushed(self, chain: Chain, at: exp.Expr) -> Node:
        """Return the product of a chain's items under its conditions."""

        def crossed() -> None:
            self.statement.note(at if not isinstance(at, exp.Select) else at.args["from_"], CROSSED)

        return product(chain.items, chain.conditions, crossed)

    def everything(self, chain: Chain, at: exp.Expr) -> Chain:
        """Return one chain of all that is joined so far."""
        if chain is self.whole:
            return chain
        wide = bool(self.whole.items)
        self.merge(chain)
        found, self.whole = self.whole, Chain()
        if found.items:
            found.items = [self.flushed(found, at)]
        found.conditions, found.wide = [], wide
        return found

    # --- joins ------------------------------------------------------------------------------------------------------

    def item_chain(self, node: exp.Expr) -> Chain:
        """Return the chain that an entry begins."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):  # a join in parentheses
            (inner,) = self.take(node, "this")
            joins = inner.args.get("joins")
            chain = self.item_chain(inner)
            for join in joins or ():
                chain = self.join(chain, join)
            return chain
        if is_lateral(node):
            return self.lateral(Chain(), node, None)
        item = self.item(node, Chain())
        return Chain([item.node], list(item.conditions), item.names)

    def join(self, chain: Chain, join: exp.Join) -> Chain:
        """Return a chain with one more entry."""
        target, on, using = self.take(join, "this", "on", "using", "side", "kind", "method")[:3]
        side, kind, method = (str(join.args.get(name) or "").lower() for name in ("side", "kind", "method"))
        if kind not in ("", "inner", "outer", "cross", "semi", "anti") or method not in ("", "natural", "asof"):
            raise SpecError(f"`{kind or method} join` is not supported", span=self.place(target))
        asof = method == "asof"
        if asof and (kind not in ("", "inner", "outer") or side not in ("", "left") or is_lateral(target)):
            raise SpecError(
                "an as-of join is `asof join` or `asof left join`, with a table or a query", span=self.place(target)
            )
        if is_lateral(target) and side in ("right", "full") and target.find(exp.Column) is None:
            other = self.alone(target, chain)
        elif is_lateral(target):
            if side not in ("", "left") or using or method:
                raise SpecError(
                    "`lateral` follows a comma, `cross join`, `join` or `left join ... on`", span=self.place(target)
                )
            return self.lateral(chain, target, on, left=side == "left")
        elif isinstance(target, exp.Subquery) and isinstance(target.this, exp.Table):
            other = self.item_chain(target)
        else:
            item = self.item(target, chain)
            other = Chain([item.node], list(item.conditions), item.names)
        self.unique(chain.names, other.names)
        if other.later and (side or asof):
            word = "an as-of" if asof else "an outer"
            problem = f"a subquery in a condition inside of {word} join's side is not supported"
            raise SpecError(problem, span=self.place(target))
        if asof:
            return self.asof(chain, other, on, using, target, side or "inner")
        if kind in ("semi", "anti"):
            return self.semi(chain, other, on, using, target, anti=kind == "anti")
        columns = self.common(chain, other, target) if method else self.used(using)
        both = Chain(
            chain.items + other.items,
            chain.conditions + other.conditions,
            chain.names + other.names,
            chain.later + other.later,
        )
        equal, names = self.merged(chain, other, columns, side, target)
        if not side:
            both.conditions += equal
            both.names = names
            for part in split(on, self.statement) if on is not None else ():
                if contains_query(part):
                    both.later.append(part)
                else:
                    both.conditions.append(self.reader(both).condition(part, "a condition"))
            return both
        if on is None and not columns and not method:
            raise SpecError(f"a `{side} join` needs `on` or `using`", span=self.place(target))
        return self.outer(chain, other, side, equal, on, names, columns, join)

    def outer(
        self,
        chain: Chain,
        other: Chain,
        side: str,
        equal: list[Expression],
        on: exp.Expr | None,
        names: list[Name],
        columns: list[str],
        join: exp.Join,
    ) -> Chain:
        """Return the chain of a left, right or full join."""
        outer = self.environment.outer
        around = frozenset(outer.node.schema) if outer is not None else frozenset()
        conditions = list(equal)
        later: list[exp.Expr] = []
        probe = Chain(chain.items + other.items, [], names)
        for part in split(on, self.statement) if on is not None else ():
            if contains_query(part):
                later.append(part)
            else:
                conditions.append(self.reader(probe).condition(part, "a condition"))
        read = frozenset().union(*(each.columns() for each in (*conditions, *other.conditions, *chain.conditions)))
        if chain.wide and side != "left":
            problem = f"a `{side} join` behind a `lateral` that reads what is before a comma is not supported"
            raise SpecError(problem, span=self.place(join), hint="put the join into a derived table")
        asks = later or (chain.later and side != "left")
        depends = bool(around & read) or bool(asks and outer is not None)
        own = any(around & item.schema.keys() for item in chain.items)
        if depends and not own:
            if outer is None or not any(item is outer.node for item in self.whole.items):
                problem = f"a `{side} join` whose condition or side reads the query around it is not supported here"
                raise SpecError(
                    problem, span=self.place(join), hint="put what is read into the `from` by a `cross join` first"
                )
            self.whole.items = [item for item in self.whole.items if item is not outer.node]
            chain = replace(chain, items=[outer.node, *chain.items])
        left = self.flushed(chain, join)
        if chain.later and side != "left":  # they concern what is joined, not what the join pads
            left = self.asked(left, chain.names, chain.later)
            chain = replace(chain, later=[])
        tying = other.conditions if depends else []
        copies: dict[str, str] = {}
        if outer is not None and (depends or own) and side != "left":
            # The right side has a row for each row around, too: one without a partner belongs to that.
            copies = renamed(outer.node.schema, [*self.taken(chain), *self.taken(other)])
            copy = nodes.mapped(outer.node, {new: nodes.column(outer.node, old) for old, new in copies.items()})
            bound = {old: nodes.column(copy, new) for old, new in copies.items()}
            own_ties = [each.substitute(bound) for each in other.conditions]
            other, tying = replace(other, items=[copy, *other.items], conditions=own_ties), []
            conditions += [
                call("is not distinct from", nodes.column(outer.node, old), each) for old, each in bound.items()
            ]
            depends = False
        right = self.flushed(other if not depends else replace(other, conditions=[]), join)
        found = outer_joined(
            left, right, [*conditions, *tying], side, lambda node: self.asked(node, names, later) if later else node
        )
        if copies:
            found = _around(found, copies, side)
        if side == "full" and columns:
            added: dict[str, Expression] = {}
            for at, each in enumerate(names):
                if each.table is None and each.bare and each.name in columns:
                    one, two = each.column.split("\0")
                    (merged,) = renamed(
                        [each.name], found.schema.keys() | added.keys() | self.taken(chain).keys()
                    ).values()
                    added[merged] = call("coalesce", nodes.column(found, one), nodes.column(found, two))
                    names[at] = replace(each, column=merged)
            found = nodes.extended(found, added)
        return Chain([found], [], names, chain.later + other.later)

    def asof(
        self,
        chain: Chain,
        other: Chain,
        on: exp.Expr | None,
        using: Sequence[exp.Expr] | None,
        at: exp.Expr,
        how: str,
    ) -> Chain:
        """Return the chain with the nearest row of its last entry: by one comparison, among rows that are equal in all else."""
        equal, names = self.merged(chain, other, self.used(using), "", at)
        both = Chain(chain.items + other.items, [], chain.names + other.names)
        conditions = list(equal)
        for part in split(on, self.statement) if on is not None else ():
            if contains_query(part):
                raise SpecError("an as-of join has no subquery in its condition", span=self.place(part))
            conditions.append(self.reader(both).condition(part, "a condition"))
        own = frozenset(name for item in both.items for name in item.schema)
        if not own >= frozenset().union(
            *(each.columns() for each in (*conditions, *chain.conditions, *other.conditions))
        ):
            raise SpecError("an as-of join that reads the query around it is not supported", span=self.place(at))
        left, right = self.flushed(chain, at), self.flushed(other, at)
        parts = [part for each in conditions for part in conjuncts(each)]
        pairs = [between(part, left, right) for part in parts]
        compared = [_nearer(part, left, right) for part in parts]
        last = between(equal[-1], left, right) if equal else None  # of `using` the last column is compared
        if last is not None:
            pairs[len(equal) - 1], compared[len(equal) - 1] = None, (last, ">=")
        found = [each for each in compared if each is not None]
        if len(found) != 1 or any(one is None and other is None for one, other in zip(pairs, compared, strict=True)):
            problem = "an as-of join pairs rows by equalities and one of `>=`, `>`, `<=`, `<`, each with a side's columns on either side"
            hint = (
                "for example `asof join quotes q on t.symbol = q.symbol and t.at >= q.at`; ask for the rest in `where`"
            )
            raise SpecError(problem, span=self.place(at), hint=hint)
        ((nearest, sign),) = found
        if not is_ordered(nearest.left.type):
            problem = f"an as-of join compares numbers, dates and times, not {nearest.left.type.required()}"
            raise SpecError(problem, span=self.place(at))
        node = nodes.asof_joined(left, right, [pair for pair in pairs if pair is not None], nearest, sign, how)
        return Chain([node], [], names, chain.later)

    def asked(self, node: Node, names: list[Name], conditions: Sequence[exp.Expr]) -> Node:
        """Return the records of a product for which conditions with subqueries are true."""
        block = Block(self.statement, self.environment, self.scope(Chain(names=names)), node)
        for each in conditions:
            block.where(each)
        return nodes.projected(block.node, node.schema)

    def semi(
        self,
        chain: Chain,
        other: Chain,
        on: exp.Expr | None,
        using: Sequence[exp.Expr] | None,
        at: exp.Expr,
        *,
        anti: bool,
    ) -> Chain:
        """Return the chain whose rows have a partner, or none."""
        columns = self.used(using)
        equal, _ = self.merged(chain, other, columns, "", at)
        both = Chain(chain.items + other.items, [], chain.names + other.names)
        if on is not None and contains_query(on):
            hint = "write `where exists (...)`, with the subquery inside"
            raise SpecError("a `semi` or `anti` join has no subquery in its condition", span=self.place(on), hint=hint)
        conditions = [*equal, *([self.reader(both).condition(on, "a condition")] if on is not None else [])]
        conditions += other.conditions
        outer = self.environment.outer
        around = frozenset(outer.node.schema) if outer is not None else frozenset()
        read = frozenset().union(*(each.columns() for each in (*conditions, *chain.conditions)))
        if outer is not None and around & read and not any(around & item.schema.keys() for item in chain.items):
            if not any(item is outer.node for item in self.whole.items):
                problem = "a `semi` or `anti` join that reads the query around it is not supported here"
                raise SpecError(problem, span=self.place(at), hint="write `where exists (...)`")
            self.whole.items = [item for item in self.whole.items if item is not outer.node]
            chain = replace(chain, items=[outer.node, *chain.items])
        left, right = self.flushed(chain, at), self.flushed(replace(other, conditions=[]), at)
        pairs = [between(part, left, right) for each in conditions for part in conjuncts(each)]
        if pairs and all(pairs):
            found = nodes.semijoined(left, right, [pair for pair in pairs if pair is not None], anti=anti)
            return Chain([found], [], chain.names, chain.later)
        inner = product([left, right], conditions, lambda: None)
        found = nodes.without(left, inner)
        if not anti:
            found = nodes.without(left, found)
        return Chain([found], [], chain.names, chain.later)

    def common(self, chain: Chain, other: Chain, at: exp.Expr) -> list[str]:
        """Return the columns that a natural join compares."""
        right = {each.name.lower() for each in other.names if each.bare}
        found = [each.name for each in chain.names if each.bare and each.name.lower() in right]
        if not found:
            raise SpecError("a `natural join` needs common columns, and there are none", span=self.place(at))
        return found

    def used(self, using: Sequence[exp.Expr] | None) -> list[str]:
        """Return the columns that `using` lists, each once."""
        columns: list[str] = []
        for each in using or ():
            columns.append(self.statement.identifier(each))
            if columns[-1].lower() in (name.lower() for name in columns[:-1]):
                raise SpecError(f"`using` has the column `{columns[-1]}` twice", span=self.place(each))
        return columns

    def merged(
        self, chain: Chain, other: Chain, columns: Sequence[str], side: str, at: exp.Expr
    ) -> tuple[list[Expression], list[Name]]:
        """Return the equalities of columns that both sides have, and the names with one for each such pair."""
        equal: list[Expression] = []
        names, others = list(chain.names), list(other.names)
        reader = self.reader(Chain(chain.items + other.items, [], []))
        for name in columns:
            span = self.place(at)
            one, two = Names(names).find(None, name, span), Names(others).find(None, name, span)
            schema = reader.block.schema
            pair = [Column(one, schema[one], span), Column(two, schema[two], span)]
            equal.append(reader.resolve(at, "=", pair))
            merged = {"right": two, "full": f"{one}\0{two}"}.get(side, one)
            place = next(index for index, each in enumerate(names) if each.column == one and each.bare)
            names = [replace(each, bare=False) if each.column == one and each.bare else each for each in names]
            others = [replace(each, bare=False) if each.column == two and each.bare else each for each in others]
            names.insert(place, Name(None, names[place].name, merged))
        return equal, names + others

    # --- entries ----------------------------------------------------------------------------------------------------

    def item(self, node: exp.Expr, chain: Chain) -> FromItem:
        """Return what a table, a derived table or `values` brings."""
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
        """Return what an input, a collection, or a table of a `with` brings."""
        _, alias = self.take(node, "this", "alias", "db", "joins")[:2]
        self.take(node.this, "this", "quoted")
        if (database := node.args.get("db")) is not None:
            self.take(database, "this", "quoted")
        name = table_name(node)
        known = self.environment.tables.get(name.lower())
        if known is not None:
            return self.named(known, alias, name, chain, node)
        relation = self.statement.named(name)
        columns = tuple((each, each) for each in relation.schema)
        return self.named(QueryResult(relation.node, (), columns), alias, stem(node.name), chain, node)

    def named(
        self, result: QueryResult, alias: exp.Expr | None, name: str | None, chain: Chain, at: exp.Expr
    ) -> FromItem:
        """Return a result as an item: under names of columns that no other has, tied to what is around."""
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
            ties.append(call("is not distinct from", nodes.column(outer.node, key), nodes.column(node, given[key])))
        return FromItem(node, names, ties)

    # --- entries that read those before them --------------------------------------------------------------------------

    def lateral(self, chain: Chain, node: exp.Expr, on: exp.Expr | None, *, left: bool = False) -> Chain:
        """Return a chain with an entry that reads the columns of those before it."""
        alias: exp.Expr | None = node.args.get("alias")
        inner = node
        if isinstance(node, exp.Lateral):
            (inner,) = self.take(node, "this", "alias", "view", "outer")[:1]
        before = self.everything(chain, node)
        if not before.items:
            before.items = [self.statement.one(self.environment, self.place(node))]
        relation = before.items[0]
        if isinstance(inner, exp.Subquery):
            alias = alias or inner.args.get("alias")
            around = Environment(self.environment.tables, Outer(self.scope(before), relation), self.environment.taken)
            result = self.statement.query(inner, around)
        else:
            found, column, name = self.unnested(inner, before, relation)
            if (not left and on is None) or is_true(on):
                if on is not None:
                    self.take(on, "this")
                if not left:
                    names = self.alias_names(alias, name, column, node)
                    return replace(before, items=[found], names=[*before.names, *names])
            keys = tuple(relation.schema)
            result = QueryResult(nodes.distinct(found), keys, ((name, column),))
            rows = nodes.distinct(relation)
            found, column, name = self.unnested(inner, before, rows)
            result = QueryResult(found, keys, ((name, column),))
        separate = Environment(
            self.environment.tables, Outer(self.scope(before), relation), frozenset(self.taken(before))
        )
        entry = From(self.statement, separate)
        item = entry.named(result, alias, None, Chain(), node)
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
                relation, item.node, conditions, "left", lambda each: self.asked(each, names, later) if later else each
            )
            return replace(before, items=[joined], names=names)
        joined = product([relation, item.node], conditions, lambda: None)
        return replace(before, items=[joined], names=names, later=[*before.later, *later])

    def alone(self, node: exp.Expr, chain: Chain) -> Chain:
        """Return the chain of a table function that reads no column."""
        made = From(self.statement, Environment(self.environment.tables)).lateral(Chain(), node, None)
        ((item,), (name,)) = made.items, made.names
        result = QueryResult(nodes.projected(item, [name.column]), (), ((name.name, name.column),))
        found = self.named(result, None, name.table, chain, node)
        return Chain([found.node], [], found.names)

    def alias_names(self, alias: exp.Expr | None, name: str, column: str, at: exp.Expr) -> list[Name]:
        """Return the name of the column of a table function."""
        table: str | None = None
        if alias is not None:
            word, listed = self.take(alias, "this", "columns")
            table = self.statement.identifier(word) if word is not None else None
            name = self.statement.columns_named(((name, column),), listed or [], table or "the table", at)[0][0]
        return [Name(table, name, column)]

    def unnested(self, node: exp.Expr, chain: Chain, relation: Node) -> tuple[Node, str, str]:
        """Return each row with each element of a table function's value, the column's name in the relation, and its own."""
        reader = Block(self.statement, self.environment, self.scope(chain), relation).reader
        if isinstance(node, exp.Unnest):
            (written,) = self.take(node, "expressions", "alias", "offset")[:1]
            if node.args.get("offset"):
                raise SpecError("`with ordinality` is not supported", span=self.place(node))
            name = "unnest"
        else:
            function = node.this if isinstance(node, exp.Table) else node
            if isinstance(node, exp.Table):
                self.take(node, "this", "alias")
            name, written = self.take(function, "this", "expressions")
            name = str(name).lower()
        args = [reader.expression(each) for each in written]
        (column,) = renamed([name], self.taken(chain) | relation.schema).values()
        if name == "unnest":
            if len(args) != 1 or args[0].type.kind != "list" or args[0].type.inner is None:
                raise SpecError("unnest takes one list", span=self.place(node), hint="split(text, ',') makes a list")
            table = TableCall(name, tuple(args), args[0].type.inner)
        elif name in SERIES and 1 <= len(args) <= 3 and all(arg.type.is_integer for arg in args):
            ends = [Literal(0 if name == "range" else 1, INT64), *args] if len(args) == 1 else args
            first, last, *step = [convert(each, INT64) for each in ends]
            if name == "range":
                if step:
                    raise SpecError("range takes one or two numbers", span=self.place(node), hint="use generate_series")
                last = call("-", last, nodes.ONE)
            table = TableCall("generate_series", (first, last, *(step or [nodes.ONE])), INT64)
        else:
            hint = "unnest(list), generate_series(first, last), range(end)"
            if name.startswith("read_"):
                hint = "`dd sql` without `--from` names files: `from 'orders.csv'`; of a pipeline they are inputs"
            raise SpecError(
                f"no function that returns rows is named `{name}`, or it takes other arguments",
                span=self.place(node),
                hint=hint,
            )
        schema = relation.schema | {column: table.type}
        return logical.Apply((relation,), schema, UnnestStep(column, table)), column, name


def _around(found: Node, copies: dict[str, str], side: str) -> Node:
    """Return a right or full join with the columns of the rows around, of which the right side has copies, where the left has none."""
    columns: dict[str, Expression] = {}
    for name in found.schema:
        if name in copies:
            copy = nodes.column(found, copies[name])
            columns[name] = copy if side == "right" else call("coalesce", nodes.column(found, name), copy)
        elif name not in copies.values():
            columns[name] = nodes.column(found, name)
    return nodes.mapped(found, columns)


def stem(name: str) -> str:
    """Return what columns of a table are qualified by: of a file its name without folders and what it ends in.

    >>> stem("orders"), stem("data/orders.csv.gz")
    ('orders', 'orders')
    """
    return name.rstrip("/").rpartition("/")[2].partition(".")[0]


def is_comma(join: exp.Join) -> bool:
    """Say whether an entry follows a comma, or a `join` that says nothing more."""
    return not any(join.args.get(name) for name in ("on", "using", "side", "kind", "method"))


def is_lateral(node: exp.Expr) -> bool:
    """Say whether an entry may read those before it."""
    return isinstance(node, exp.Lateral | exp.Unnest) or (
        isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous)
    )


def is_true(node: exp.Expr | None) -> bool:
    """Say whether a condition is just `true`."""
    return isinstance(node, exp.Boolean) and bool(node.this)


def _nearer(condition: Expression, left: Node, right: Node) -> tuple[Pair, str] | None:
    """Return the sides of a comparison of which one is computed of the left's columns and one of the right's, and its sign."""
    if not isinstance(condition, Call) or condition.function not in COMPARED:
        return None
    one, other = condition.args
    if not one.columns() or not other.columns():
        return None
    if one.columns() <= left.schema.keys() and other.columns() <= right.schema.keys():
        return Pair(one, other, span=condition.span), condition.function
    if other.columns() <= left.schema.keys() and one.columns() <= right.schema.keys():
        return Pair(other, one, span=condition.span), COMPARED[condition.function]
    return None
