"""Operators on whole collections: sums and joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.plan import joins, logical
from ddcli.plan.asof import asof_join
from ddcli.plan.operators.row import NOTHING, ON_KEY, RIGHT, argument, operator
from ddcli.plan.relation import concat
from ddcli.spec.apply import SOURCES
from ddcli.spec.column_shapes import ALIAS, COLUMN, ON
from ddcli.spec.shapes import As, ByKind, Key, Pairs
from ddcli.spec.values import Choice, Flag

if TYPE_CHECKING:
    from ddcli.errors import Text
    from ddcli.plan.operators.row import Operands
    from ddcli.plan.relation import Relation
    from ddcli.spec.operator_model import Assignments

AS = Key(ALIAS, about="qualifies the right side's columns", argument="name")


@operator("negate", "", NOTHING)
def negate(operands: Operands) -> Relation:
    """Change the sign of every diff."""
    return operands.relation.over(logical.negated(operands.relation.node))


@operator("concat", "[returns]", argument("inputs", SOURCES), other_words="union unionall append")
def concat_with(operands: Operands) -> Relation:
    """Add the updates of other collections."""
    relation = operands.relation
    return relation.over(concat([relation, *operands.others], operands.span, "concat").node)


@operator("consolidate", "", NOTHING)
def consolidate(operands: Operands) -> Relation:
    """Sum the diffs of equal updates."""
    relation = operands.relation
    return relation.over(logical.Consolidate((relation.node,), relation.schema))


@operator(
    "join",
    "{with: customers, on: [customer_id]}",
    {
        "with": RIGHT,
        "as": AS,
        "on": ON_KEY,
        "how": Key(
            Choice("kind of join", ("inner", "left", "right", "full")), about="inner (default), left, right or full"
        ),
    },
    other_words="leftjoin innerjoin rightjoin outerjoin fulljoin lookup",
)
def join(operands: Operands, on: Assignments, how: str = "inner", name: Text | None = None) -> Relation:
    """Join with another collection where pairs of columns are equal."""
    return joins.join(operands.relation, operands.right, on, how, operands.qualifier(name), operands.span)


@operator(
    "asof_join",
    "{with: quotes, on: [symbol], at: time, as: quote}",
    {
        "with": RIGHT,
        "as": AS,
        "on": Key(ON, about="common columns, or left column: right column; without: all records are one group"),
        "at": Key(
            ByKind(
                "a common column, or a mapping of a left to a right column",
                scalar=As(COLUMN, lambda _, name: ((name, name),)),
                mapping=Pairs(COLUMN, COLUMN, "a mapping of a left to a right column", most=1),
                hint="write `at: time` or `at: {sold_at: quoted_at}`",
            ),
            required=True,
            about="the column that is compared, or left column: right column",
        ),
        "how": Key(Choice("kind of as-of join", ("inner", "left")), about="inner (default) or left"),
        "direction": Key(
            Choice("direction", ("backward", "forward")),
            about="the last at or before (default), or the first at or after",
        ),
        "strict": Key(Flag(), about="an equal value is no match"),
    },
    other_words="joinasof asof mergeasof",
)
def join_nearest(
    operands: Operands,
    at: Assignments,
    on: Assignments = (),
    how: str = "inner",
    direction: str = "backward",
    strict: bool = False,
    name: Text | None = None,
) -> Relation:
    """Join each record with the nearest of another collection by a pair of columns, of those where other pairs are equal."""
    forward, qualifier = direction == "forward", operands.qualifier(name)
    return asof_join(operands.relation, operands.right, at[0], on, how, forward, strict, qualifier, operands.span)


@operator(
    "semijoin",
    "{with: customers, on: [customer_id]}",
    {"with": RIGHT, "on": ON_KEY},
    other_words="semi intersect exists",
)
def semijoin(operands: Operands, on: Assignments) -> Relation:
    """Keep the records that have a match in another collection."""
    return joins.semijoin(operands.relation, operands.right, on)


@operator(
    "antijoin",
    "{with: customers, on: [customer_id]}",
    {"with": RIGHT, "on": ON_KEY},
    other_words="anti except minus",
    keeps_columns=True,
)
def antijoin(operands: Operands, on: Assignments) -> Relation:
    """Keep the records that have no match in another collection."""
    return joins.semijoin(operands.relation, operands.right, on, anti=True)
