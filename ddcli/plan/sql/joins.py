"""The `from` of a `select`: inner joins as conditions on a product, other joins as a node that becomes the only item of its chain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError
from ddcli.expressions.dialect import COMMA
from ddcli.expressions.tree import Call, Column
from ddcli.expressions.types import renamed
from ddcli.plan import groupings, logical
from ddcli.plan.asof import is_ordered
from ddcli.plan.conditions import call, conjuncts
from ddcli.plan.sql import nodes
from ddcli.plan.sql.block import Block, is_semijoin, split
from ddcli.plan.sql.calls import names_present
from ddcli.plan.sql.context import Environment, Name, Names, Outer
from ddcli.plan.sql.items import Chain, Items, between, is_lateral, is_true, outer_joined, product
from ddcli.plan.sql.nodes import Pair
from ddcli.plan.sql.reader import contains_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Node

CROSS = ("cross", COMMA)
"""The kinds of joins without a condition."""
KINDS = {("", kind) for kind in ("", "inner", *CROSS)}
KINDS |= {(side, kind) for side in ("left", "right", "full") for kind in ("", "outer")}
KINDS |= {(side, kind) for side in ("", "left") for kind in ("semi", "anti")}
"""The sides and kinds of joins."""
COMPARED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
"""The comparisons of an as-of join, each with the one for exchanged sides."""


class From(Items):
    """The `from` of a `select`: its items with the joins between them, which become a relation with the conditions of the `where`."""

    def chained(self, entry: exp.Expr, joins: Sequence[exp.Join]) -> Chain:
        """Return the chain of an entry and the joins behind it."""
        outer = self.environment.outer
        if any(outer is None or item is not outer.node for item in self.whole.items) and _pads_lateral(entry, joins):
            return self.dependent(entry, joins)
        chain = self.item_chain(entry)
        for join in joins:
            chain = self.join(chain, join)
        return chain

    def dependent(self, entry: exp.Expr, joins: Sequence[exp.Join]) -> Chain:
        """Return the whole joined with the chain of an entry and its joins, which is computed for each row of the earlier columns that it reads.

        A right or full join in the chain returns rows without a partner for each of these rows; so the whole can't be part of its left side.
        """
        before = self.joined_whole(Chain(), entry)
        (relation,) = before.items
        scope, taken = self.scope(before), frozenset(self.taken(before))

        def built(outer: Outer | None) -> Chain:
            inside = type(self)(self.statement, Environment(self.environment.tables, outer, taken))
            found = inside.joined_whole(inside.chained(entry, joins), entry)
            node = inside.where_all(found.items[0], found.names, found.later) if found.later else found.items[0]
            return Chain([node], [], found.names)

        read = Names([], scope)
        built(Outer(read, logical.Source((), relation.schema, "#around")))
        rows = groupings.distinct(nodes.projected(relation, read.used))
        found = built(Outer(Names([], scope), rows) if read.used else None)
        self.unique(before.names, found.names, entry)
        (node,) = found.items
        keys = renamed(read.used, {*relation.schema, *node.schema})
        node = nodes.mapped(node, {keys.get(name, name): nodes.column(node, name) for name in node.schema})
        ties = [nodes.tie(nodes.column(relation, old), nodes.column(node, new)) for old, new in keys.items()]
        joined = product([relation, node], ties, lambda _: None)
        return replace(before, items=[joined], names=[*before.names, *found.names])

    def with_outer_rows(self, chain: Chain, at: exp.Expr) -> Chain:
        """Return a chain with the outer query's rows, which it reads, as its first item; they are moved there from the whole."""
        outer = self.environment.outer
        assert outer is not None
        if any(outer.node.schema.keys() & item.schema.keys() for item in chain.items):
            return chain
        if not any(item is outer.node for item in self.whole.items):
            problem = "a join whose condition or side reads columns of the outer query is not supported here"
            hint = "bring these columns into the `from` by a `cross join` first"
            raise SpecError(problem, span=self.place(at), hint=hint)
        self.whole.items = [item for item in self.whole.items if item is not outer.node]
        return replace(chain, items=[outer.node, *chain.items])

    def around(self) -> frozenset[str]:
        """Return the names of the outer query's columns."""
        return frozenset(self.environment.outer.node.schema if self.environment.outer is not None else ())

    def item_chain(self, node: exp.Expr) -> Chain:
        """Return the chain of an entry, and of the joins in it."""
        if _is_parenthesized(node):
            return self.item_chain(*self.take(node, "this"))
        if is_lateral(node):
            chain = self.lateral(Chain(), node, None)
        else:
            item = self.item(node, Chain())
            chain = Chain([item.node], list(item.conditions), item.names)
        for join in node.args.get("joins") or ():
            chain = self.join(chain, join)
        return chain

    def side_chain(self, node: exp.Expr, left: Chain) -> Chain:
        """Return the chain of a join's right side, with column names that its left side lacks."""
        if (left.items or self.whole.items) and node.find(exp.Lateral, exp.Unnest) is not None:
            problem = "`lateral` and `unnest` are not supported in the joins on the right side of another"
            raise SpecError(problem, span=self.place(node), hint="compute it by a `with` before")
        environment = self.environment
        self.environment = replace(environment, taken=frozenset(self.taken(left)))
        try:
            return self.item_chain(node)
        finally:
            self.environment = environment

    def stands_alone(self, target: exp.Expr, on: exp.Expr | None, using: object, *, needed: bool) -> bool:
        """Return whether a table function that reads no column is a table of its own: where a join needs one, and where it has a condition, whose keys then join it."""
        if not is_lateral(target) or target.find(exp.Column, exp.Query) is not None:
            return False
        conditioned = bool(using) or (on is not None and not is_true(on))
        return needed or (conditioned and len(self.statement.times.kinds) == 1)

    def join(self, chain: Chain, join: exp.Join) -> Chain:
        """Return a chain with one more entry."""
        target, on, using = self.take(join, "this", "on", "using", "side", "kind", "method")[:3]
        side, kind, method = (str(join.args.get(name) or "").lower() for name in ("side", "kind", "method"))
        if (side, kind) not in KINDS or method not in ("", "natural", "asof") or (method and kind in CROSS):
            written = " ".join(word for word in (method, side, kind) if word)
            raise SpecError(f"`{written} join` is not supported", span=self.place(target))
        bare = kind in CROSS or method == "natural"
        if (on is None and not using) != bare:
            problem = f"a `{method or kind} join` has no condition" if bare else "a join needs `on` or `using`"
            named = f"; the table before it is named `{chain.names[-1].table}`" if chain.names else ""
            raise SpecError(problem, span=self.place(target), hint=f"`cross join` pairs each row with each{named}")
        asof = method == "asof"
        if asof and (kind not in ("", "inner", "outer") or side not in ("", "left") or is_lateral(target)):
            raise SpecError(
                "an as-of join is `asof join` or `asof left join`, with a table or a query", span=self.place(target)
            )
        partner = kind in ("semi", "anti")
        if self.stands_alone(target, on, using, needed=side in ("right", "full") or partner):
            other = self.alone(target, chain)
        elif is_lateral(target):
            if partner:
                problem = f"the right side of `{kind} join` can't read columns of its left side"
                hint = f"write `where {'not ' * (kind == 'anti')}exists (...)`, with the subquery inside"
                raise SpecError(problem, span=self.place(target), hint=hint)
            if side not in ("", "left") or using or method:
                raise SpecError(
                    "`lateral` follows a comma, `cross join`, `join` or `left join ... on`", span=self.place(target)
                )
            return self.lateral(chain, target, on, left=side == "left")
        elif target.args.get("joins") or _is_parenthesized(target):
            other = self.side_chain(target, chain)
        else:
            item = self.item(target, chain)
            other = Chain([item.node], list(item.conditions), item.names)
        self.unique(chain.names, other.names, target)
        if other.later and (side or asof):
            word = "an as-of" if asof else "an outer"
            problem = f"a subquery in a condition inside of {word} join's side is not supported"
            raise SpecError(problem, span=self.place(target))
        if asof:
            return self.asof(chain, other, on, using, target, side or "inner")
        columns = self.common(chain, other, target) if method else self.used(using)
        if partner:
            return self.semi(chain, other, on, columns, target, anti=kind == "anti")
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
        outer, around = self.environment.outer, self.around()
        conditions = list(equal)
        later: list[exp.Expr] = []
        probe = Chain(chain.items + other.items, [], names)
        for part in split(on, self.statement) if on is not None else ():
            if contains_query(part):
                later.append(part)
            else:
                conditions.append(self.reader(probe).condition(part, "a condition"))
        read = frozenset().union(*(each.columns() for each in (*conditions, *other.conditions, *chain.conditions)))
        asks = later or (chain.later and side != "left")
        depends = bool(around & read) or bool(asks and outer is not None)
        own = any(around & item.schema.keys() for item in chain.items)
        if depends:
            chain = self.with_outer_rows(chain, join)
        left = self.product_of(chain, join)
        if chain.later and side != "left":  # they are conditions on the left side's rows, not on the padded ones
            left = self.where_all(left, chain.names, chain.later)
            chain = replace(chain, later=[])
        tying = other.conditions if depends else []
        copies: dict[str, str] = {}
        if outer is not None and (depends or own) and side != "left":
            # The right side has a copy of the outer rows, too: a row without a partner belongs to one of them.
            copies = renamed(outer.node.schema, [*self.taken(chain), *self.taken(other)])
            copy = nodes.mapped(outer.node, {new: nodes.column(outer.node, old) for old, new in copies.items()})
            bound = {old: nodes.column(copy, new) for old, new in copies.items()}
            own_ties = [each.substitute(bound) for each in other.conditions]
            other, tying = replace(other, items=[copy, *other.items], conditions=own_ties), []
            conditions += [nodes.tie(nodes.column(outer.node, old), each) for old, each in bound.items()]
            depends = False
        right = self.product_of(other if not depends else replace(other, conditions=[]), join)
        found = outer_joined(
            left, right, [*conditions, *tying], side, lambda node: self.where_all(node, names, later) if later else node
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
        """Return the as-of join of a chain with an entry: by one comparison the nearest row, among those for which all equalities hold."""
        equal, names = self.merged(chain, other, self.used(using), "", at)
        both = Chain(chain.items + other.items, [], chain.names + other.names)
        conditions = list(equal)
        for part in split(on, self.statement) if on is not None else ():
            if contains_query(part):
                raise SpecError("an as-of join has no subquery in its condition", span=self.place(part))
            conditions.append(self.reader(both).condition(part, "a condition"))
        conditions += other.conditions
        left, right = self._sides(chain, other, conditions, at)
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

    def semi(
        self,
        chain: Chain,
        other: Chain,
        on: exp.Expr | None,
        columns: list[str],
        at: exp.Expr,
        *,
        anti: bool,
    ) -> Chain:
        """Return the semijoin of a chain with an entry on a condition and equal `columns`; with `anti` the antijoin."""
        equal, _ = self.merged(chain, other, columns, "", at)
        both = Chain(chain.items + other.items, [], chain.names + other.names)
        if on is not None and contains_query(on):
            hint = "write `where exists (...)`, with the subquery inside"
            raise SpecError("a `semi` or `anti` join has no subquery in its condition", span=self.place(on), hint=hint)
        conditions = [*equal, *([self.reader(both).condition(on, "a condition")] if on is not None else [])]
        conditions += other.conditions
        left, right = self._sides(chain, other, conditions, at)
        pairs = [between(part, left, right) for each in conditions for part in conjuncts(each)]
        if pairs and all(pairs):
            found = nodes.semijoined(left, right, [pair for pair in pairs if pair is not None], anti=anti)
            return Chain([found], [], chain.names, chain.later)
        inner = product([left, right], conditions, lambda _: None)
        found = nodes.without(left, inner)
        if not anti:
            found = nodes.without(left, found)
        return Chain([found], [], chain.names, chain.later)

    def _sides(self, chain: Chain, other: Chain, conditions: Sequence[Expression], at: exp.Expr) -> tuple[Node, Node]:
        """Return both sides of a join by these conditions, which include the right side's own; the left side has the outer rows, if they are read."""
        if self.around() & frozenset().union(*(each.columns() for each in (*conditions, *chain.conditions))):
            chain = self.with_outer_rows(chain, at)
        return self.product_of(chain, at), self.product_of(replace(other, conditions=[]), at)

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
        """Return the equalities between `columns` of both sides, and the names in scope, with one bare name for each such pair."""
        equal: list[Expression] = []
        names, others = list(chain.names), list(other.names)
        reader = self.reader(Chain(chain.items + other.items, [], []))
        for name in columns:
            span = self.place(at)
            one, two = Names(names).find(None, name, span), Names(others).find(None, name, span)
            schema = reader.block.schema
            pair = [Column(one, schema[one], span=span), Column(two, schema[two], span=span)]
            equal.append(reader.resolve(at, "=", pair))
            merged = {"right": two, "full": f"{one}\0{two}"}.get(side, one)
            place = next(index for index, each in enumerate(names) if each.column == one and each.bare)
            names = [replace(each, bare=False) if each.column == one and each.bare else each for each in names]
            others = [replace(each, bare=False) if each.column == two and each.bare else each for each in others]
            names.insert(place, Name(None, names[place].name, merged))
        return equal, names + others

    def block(self, node: exp.Select) -> Block:
        """Return the block of a `select`: the rows of its `from` that its `where` keeps."""
        source, joins, where = (node.args.get(name) for name in ("from_", "joins", "where"))
        if source is not None:
            groups: list[tuple[exp.Expr, list[exp.Join]]] = [(self.take(source, "this")[0], [])]
            for join in joins or ():
                if join.args.get("kind") == COMMA:
                    groups.append((self.take(join, "this", "kind")[0], []))
                else:
                    groups[-1][1].append(join)
            for entry, behind in groups:
                self.merge(self.chained(entry, behind), node)
        elif not self.whole.items:
            self.whole.items.append(self.statement.one(self.environment, self.place(node)))
        later = self.whole.later
        aliases = {each.alias.lower(): each.this for each in reversed(node.expressions) if isinstance(each, exp.Alias)}
        asked = {name for name, each in aliases.items() if contains_query(each)}
        if where is not None:
            rows = self.unjoined(self.whole)
            rows.aliases = dict(aliases)
            for part in split(self.take(where, "this")[0], self.statement):
                names = {each.name.lower() for each in part.find_all(exp.Column)}
                if contains_query(part) or names & asked or names_present(part, rows):
                    later.append(part)
                else:
                    self.whole.conditions.append(rows.reader.condition(part, "a condition"))
        later = [part for part in later if not self.filter_item(part)]
        found = Block(self.statement, self.environment, self.scope(self.whole), self.product_of(self.whole, node))
        found.aliases = aliases
        # Semijoins first: they only remove records, so the other subqueries are computed for fewer.
        for part in sorted(later, key=lambda part: not is_semijoin(part)):
            found.where(part)
        found.aliases = {}  # `group by` has its own rule
        return found

    def filter_item(self, condition: exp.Expr) -> bool:
        """Filter an item before the product by a condition that is just its column `in` an uncorrelated query; return whether the condition is one.

        The product then joins fewer records.
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


def _around(found: Node, copies: dict[str, str], side: str) -> Node:
    """Return a right or full join whose outer columns are taken from the right side's `copies` in rows without a left partner."""
    columns: dict[str, Expression] = {}
    for name in found.schema:
        if name in copies:
            copy = nodes.column(found, copies[name])
            columns[name] = copy if side == "right" else call("coalesce", nodes.column(found, name), copy)
        elif name not in copies.values():
            columns[name] = nodes.column(found, name)
    return nodes.mapped(found, columns)


def _is_parenthesized(node: exp.Expr) -> bool:
    """Return whether an entry is a table or joins in parentheses, and not a query."""
    inner = node.this if isinstance(node, exp.Subquery) else None
    if isinstance(inner, exp.Subquery):
        return bool(inner.args.get("joins") or inner.args.get("alias")) or _is_parenthesized(inner)
    return isinstance(inner, exp.Table | exp.Unnest | exp.Lateral)


def _pads_lateral(entry: exp.Expr, joins: Sequence[exp.Join]) -> bool:
    """Return whether an entry and its joins include a `lateral`, and a right or full join."""
    parts = [part for each in (entry, *joins) for part in each.walk()]
    pads = any(
        isinstance(part, exp.Join) and str(part.args.get("side") or "").lower() in ("right", "full") for part in parts
    )
    return pads and any(map(is_lateral, parts))


def _nearer(condition: Expression, left: Node, right: Node) -> tuple[Pair, str] | None:
    """Return the sides and the sign of a comparison between an expression over the left's columns and one over the right's; else None."""
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
