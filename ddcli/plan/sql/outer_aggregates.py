"""Aggregates in a subquery over the rows of an outer query, as in `select a, (select max(u.c) + sum(t.b) from u) from t group by a`.

An aggregate belongs to the innermost query that has a column of its argument, so `sum(t.b)` is computed where `t` is grouped, and the subquery
reads it there like a column. The query of a column is known only when the subquery is lowered: so before a query is grouped, its subqueries are
lowered over its rows, on trial, and this records the aggregates that they meet.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.plan.sql.calls import OWNED, is_aggregate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ddcli.expressions.tree import Column
    from ddcli.plan.sql.names import Names


@dataclass(eq=False)
class OuterAggregates:
    """The aggregates of a statement that belong to an outer query, each with that query, and their columns once it is grouped."""

    owned: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    values: dict[int, Column] = field(default_factory=dict)
    """The columns of the groups, by the aggregates' syntax nodes."""
    trial: tuple[exp.Expr, Names] | None = None
    """The query whose subqueries are on trial, and the names of its rows."""

    def found(self, aggregate: exp.Expr, scope: Names, columns: Sequence[str]) -> bool:
        """Record an aggregate that reads only outer columns, seen from `scope`; return False if no query can compute it, which is an error."""
        around = scope.outer
        while around is not None and not any(around.owns(name) for name in columns):
            around = around.outer
        if self.trial is not None and around is self.trial[1] and OWNED not in aggregate.meta:
            self.owned.append((aggregate, self.trial[0]))
            for node in (aggregate, aggregate.this) if isinstance(aggregate, exp.Filter) else (aggregate,):
                node.meta[OWNED] = True
        return self.trial is not None or OWNED in aggregate.meta

    def of(
        self, select: exp.Select, written: Sequence[exp.Expr], scope: Names, lower: Callable[[exp.Expr], object]
    ) -> list[exp.Expr]:
        """Return the aggregates over a `select`'s own rows in the subqueries of its expressions; `lower` lowers such a subquery."""
        for node, owner in self.owned:
            if owner is select:  # it was lowered before, on trial itself
                self.values.pop(id(node), None)
        names = {each.name.lower() for each in scope.names}
        for query in _queries(written):
            if any(is_aggregate(each) and _reads(each, names) for each in query.find_all(exp.Anonymous)):
                before, self.trial = self.trial, (select, scope)
                try:
                    lower(query)
                except SpecError:  # lowering it for good reports it
                    pass
                finally:
                    self.trial = before
        return [node for node, owner in self.owned if owner is select]

    def forget(self) -> None:
        """Remove the marks from the syntax nodes, which other statements share."""
        for node, _ in self.owned:
            for each in (node, node.this) if isinstance(node, exp.Filter) else (node,):
                del each.meta[OWNED]


def _reads(node: exp.Expr, names: set[str]) -> bool:
    """Return whether a column of an expression has one of `names`, in lower case."""
    return any(each.name.lower() in names for each in node.find_all(exp.Column))


def _queries(nodes: Sequence[exp.Expr]) -> Iterator[exp.Query]:
    """Yield the outermost queries in expressions."""
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Query):
            yield node
        else:
            pending += reversed(list(node.iter_expressions()))
