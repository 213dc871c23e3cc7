"""Operators on each record by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.expressions.steps import ExplodeStep, FilterStep, UnnestStep
from ddcli.expressions.tree import Column
from ddcli.plan import logical
from ddcli.plan.operators.functions import MEMOIZABLE, PythonOr, applied_function
from ddcli.plan.operators.row import argument, columns_of, integer, mapped, operator, parse_all, require
from ddcli.spec.column_shapes import ASSIGNMENTS, COLUMN, COLUMNS, EXPRESSION
from ddcli.spec.shapes import As, Pairs
from ddcli.spec.values import ExpressionText

if TYPE_CHECKING:
    from ddcli.errors import Text
    from ddcli.plan.operators.row import Operands
    from ddcli.plan.relation import Relation
    from ddcli.spec.operator_model import Assignments, PythonFunction
    from ddcli.spec.reader import Shape

ONE_TABLE: Shape[dict[str, Any]] = As(
    Pairs(COLUMN, ExpressionText("unnest(...) or generate_series(...)"), "one column and its table expression", most=1),
    lambda _, pairs: dict(zip(("column", "expression"), pairs[0], strict=True)),
)


@operator(
    "map",
    "{id: id, total: price * amount}",
    PythonOr(argument("function", MEMOIZABLE), argument("columns", ASSIGNMENTS)),
    other_words="select transform",
)
def map_records(operands: Operands, columns: Assignments = (), function: PythonFunction | None = None) -> Relation:
    """Compute exactly these columns, or turn each record into one record of a function's columns."""
    if function is not None:
        return applied_function(operands, function)
    return mapped(operands.relation, parse_all(operands.relation, columns))


@operator(
    "extend",
    "{total: price * amount}",
    argument("columns", ASSIGNMENTS),
    other_words="withcolumn withcolumns assign mutate derive",
)
def extend(operands: Operands, columns: Assignments) -> Relation:
    """Add or replace columns."""
    relation = operands.relation
    found = columns_of(relation.schema) | dict(parse_all(relation, columns))
    return relation.over(mapped(relation, found.items()).node)


@operator("project", "[id, region]", argument("columns", COLUMNS))
def project(operands: Operands, columns: tuple[Text, ...]) -> Relation:
    """Keep these columns, in this order."""
    relation = operands.relation
    kept = {text.value: relation.column(text) for text in columns}
    return relation.over(mapped(relation, [(n, Column(c, relation.schema[c])) for n, c in kept.items()]).node)


@operator("drop", "[region]", argument("columns", COLUMNS))
def drop(operands: Operands, columns: tuple[Text, ...]) -> Relation:
    """Leave these columns out."""
    relation = operands.relation
    dropped = {relation.column(text) for text in columns}
    kept = columns_of({name: kind for name, kind in relation.schema.items() if name not in dropped})
    return relation.over(mapped(relation, kept.items()).node)


@operator("rename", "{id: order_id}", argument("columns", Pairs(COLUMN, COLUMN, "a mapping of old to new names")))
def rename(operands: Operands, columns: Assignments) -> Relation:
    """Rename columns: old name, new name."""
    relation = operands.relation
    new = {relation.column(old): to.value for old, to in columns}
    names = [new.get(name, name) for name in relation.schema]
    for _, to in columns:
        problem = f"two columns would be named '{to.value}'"
        require(names.count(to.value) <= 1, to, problem, "drop or rename the other one")
    return mapped(relation, [(new.get(name, name), column) for name, column in columns_of(relation.schema).items()])


@operator(
    "filter",
    "amount > 0",
    argument("condition", ExpressionText("a condition")),
    other_words="where having",
    keeps_columns=True,
)
def filter_records(
    operands: Operands, condition: Text | None = None, function: PythonFunction | None = None
) -> Relation:
    """Keep the records for which the condition is true."""
    relation = operands.relation
    if function is not None:
        return relation.over(applied_function(operands, function).node)
    assert condition is not None
    found = relation.scalar(condition)
    require(
        found.type.kind in ("bool", "null"),
        condition,
        f"a filter is a bool, not {found.type}",
        "compare it, for example with `= 1` or `is not null`",
    )
    return relation.over(logical.Apply((relation.node,), relation.schema, FilterStep(found)))


@operator(
    "flat_map",
    "{tag: 'unnest(tags)'}",
    PythonOr(argument("function", MEMOIZABLE), ONE_TABLE),
    other_words="unnest flatten lateral",
)
def flat_map(
    operands: Operands,
    column: Text | None = None,
    expression: Text | None = None,
    function: PythonFunction | None = None,
) -> Relation:
    """Turn each record into one for each element of `unnest(list)` or `generate_series(first, last)`, with the element in a column; or into any number of records of a function's columns."""
    if function is not None:
        return applied_function(operands, function)
    assert column is not None
    assert expression is not None
    relation = operands.relation
    call = relation.table(expression)
    schema = relation.schema | {column.value: call.type}
    return relation.over(logical.Apply((relation.node,), schema, UnnestStep(column.value, call)))


@operator("explode", "amount", argument("weight", EXPRESSION), keeps_columns=True)
def explode(operands: Operands, weight: Text) -> Relation:
    """Multiply the diff by an integer expression; columns stay as they are."""
    relation = operands.relation
    found = integer(relation, weight, "explode takes", "drops records whose weight is null")
    return relation.over(logical.Apply((relation.node,), relation.schema, ExplodeStep(found)))
