"""The `from` of a query with its `where`, as a block: the product of its entries, filtered by the conditions on them."""

from __future__ import annotations

from sqlglot import exp

from ddcli.expressions.dialect import COMMA
from ddcli.plan.sql import nodes
from ddcli.plan.sql.block import Block, is_semijoin, split
from ddcli.plan.sql.joins import Joins
from ddcli.plan.sql.present import names_present
from ddcli.plan.sql.reader import contains_query


class From(Joins):
    """The `from` of a `select`, which becomes a relation with the conditions of the `where`."""

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
