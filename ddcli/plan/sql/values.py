"""Rows that depend on no table: `values`, a `select` without `from`, and the row of an aggregate over nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError
from ddcli.expressions.coerce import INT64, Mismatch, unify
from ddcli.expressions.scope import TableCall
from ddcli.expressions.steps import UnnestStep
from ddcli.expressions.tree import Case, Column, Expression, Literal
from ddcli.plan import logical
from ddcli.plan.conditions import call
from ddcli.plan.sql import nodes
from ddcli.plan.sql.names import renamed

if TYPE_CHECKING:
    from ddcli.errors import Span
    from ddcli.plan.node import Node
    from ddcli.plan.sql.context import Environment, QueryLowering, QueryResult

MOST = 1000
"""The most rows that a `values` may have."""


def values(statement: QueryLowering, node: exp.Values, environment: Environment) -> QueryResult:
    """Return the rows of `values`."""
    from ddcli.plan.sql.block import Block
    from ddcli.plan.sql.context import QueryResult
    from ddcli.plan.sql.names import Names

    (rows,) = statement.tree.take(node, "expressions", "with_", "order", "limit", "offset", "alias")[:1]
    span = statement.tree.place(node)
    if len(rows) > MOST:
        raise SpecError(f"`values` has more than {MOST} rows", span=span, hint="read them from a file, as an input")
    one = statement.one(environment, span)
    outer = environment.outer.scope if environment.outer is not None else None
    block = Block(statement, environment, Names([], outer), one)
    keys = tuple(one.schema) if environment.outer is not None else ()
    written = []
    for row in rows:
        parts = (
            statement.tree.take(row, "expressions")[0]
            if isinstance(row, exp.Tuple)
            else statement.tree.take(row, "this")
        )
        written.append([block.reader.expression(part) for part in parts])
        if len(written[-1]) != len(written[0]):
            raise SpecError("the rows of `values` have different numbers of values", span=statement.tree.place(row))
    kept = block.node
    (number,) = renamed(["#row"], kept.schema).values()
    names = list(renamed([f"col{at}" for at in range(len(written[0]))], [*kept.schema, number]).values())
    numbered = kept
    if len(written) > 1:
        series = TableCall("generate_series", tuple(Literal(each, INT64) for each in (1, len(written), 1)), INT64)
        numbered = logical.Apply((kept,), kept.schema | {number: INT64}, UnnestStep(number, series))
    columns: dict[str, Expression] = {key: nodes.column(numbered, key) for key in keys}
    for at, name in enumerate(names):
        try:
            same, kind = unify([row[at] for row in written], "`values`")
        except Mismatch as mismatch:
            raise SpecError(mismatch.problem, span=span, hint=mismatch.hint) from None
        if len(same) == 1:
            columns[name] = same[0]
            continue
        which = Column(number, INT64)
        branches = tuple(
            (call("=", which, Literal(index, INT64)), each) for index, each in enumerate(same[:-1], start=1)
        )
        columns[name] = Case(branches, same[-1], kind)
    found = nodes.mapped(numbered, columns)
    return QueryResult(found, keys, tuple((f"col{at}", name) for at, name in enumerate(names)), len(rows) == 1)


def one_row(statement: QueryLowering, span: Span) -> Node:
    """Return a node with one record, which exists from the first row of any input on."""
    from ddcli.plan.presence import once

    if len(statement.times.kinds) > 1:
        problem = "a row that depends on no other needs one time coordinate"
        raise SpecError(
            problem, span=span, hint="`values`, a `select` without `from` and aggregates without `group by` need it"
        )
    return once(list(statement.inputs()))
