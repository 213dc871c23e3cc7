"""Aggregates in a subquery over the rows of a query around it, as in `select a, (select max(u.c) + sum(t.b) from u) from t group by a`.

An aggregate belongs to the innermost query that has a column of its argument, so `sum(t.b)` is computed where `t` is grouped, and the subquery
reads it there as it reads a column. The query of a column is known when its subquery is lowered: before a query is grouped, its subqueries are lowered
over its rows, on trial, and the aggregates that they meet are recorded.
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
    """The aggregates of a statement that belong to a query around theirs, each with that query, and their expressions where it is grouped."""

    owned: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    values: dict[int, Column] = field(default_factory=dict)
    """The columns of the groups, by the aggregates' syntax nodes."""
    asking: tuple[exp.Expr, Names] | None = None
    """The query whose subqueries are on trial, and the names of its rows."""

    def found(self, aggregate: exp.Expr, scope: Names, columns: Sequence[str]) -> bool:
        """Record an aggregate that reads only columns around the query of `scope`; return whether it belongs to another query, and is no error."""
        around = scope.outer
        while around is not None and not any(around.owns(name) for name in columns):
            around = around.outer
        if self.asking is not None and around is self.asking[1] and OWNED not in aggregate.meta:
            self.owned.append((aggregate, self.asking[0]))
            for node in (aggregate, aggregate.this) if isinstance(aggregate, exp.Filter) else (aggregate,):
                node.meta[OWNED] = True
        return self.asking is not None or OWNED in aggregate.meta

    def of(
        self, select: exp.Select, written: Sequence[exp.Expr], scope: Names, lower: Callable[[exp.Expr], object]
    ) -> list[exp.Expr]:
        """Return the aggregates in subqueries of a `select` that are over its own rows; `lower` lowers such a subquery."""
        for node, owner in self.owned:
            if owner is select:  # it was lowered before, on trial itself
                self.values.pop(id(node), None)
        names = {each.name.lower() for each in scope.names}
        for query in _queries(written):
            if any(is_aggregate(each) and _reads(each, names) for each in query.find_all(exp.Anonymous)):
                before, self.asking = self.asking, (select, scope)
                try:
                    lower(query)
                except SpecError:  # where it is lowered for good, it is reported
                    pass
                finally:
                    self.asking = before
        return [node for node, owner in self.owned if owner is select]

    def forget(self) -> None:
        """Take the notes off the syntax nodes, which other statements share."""
        for node, _ in self.owned:
            for each in (node, node.this) if isinstance(node, exp.Filter) else (node,):
                del each.meta[OWNED]


def _reads(node: exp.Expr, names: set[str]) -> bool:
    """Return whether a column of an expression has one of some names, in small letters."""
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
