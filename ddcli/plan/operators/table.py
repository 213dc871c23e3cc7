"""The table of operators, its rows in modules by kind, and the collections that operators of a pipeline file return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.errors import Text
from ddcli.plan.error_path import Unbuilt, noting, placing, raise_all
from ddcli.plan.operators import collections, groups, records, times
from ddcli.plan.operators.row import BindContext, Operands, OperatorRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ddcli.errors import DdError
    from ddcli.plan.relation import Relation
    from ddcli.spec.operator_model import Operator, Source

OPERATORS: dict[str, OperatorRow] = {
    row.name: row
    for module in (records, collections, groups, times)
    for row in vars(module).values()
    if isinstance(row, OperatorRow)
}
"""All operators by name, in the order in which messages and the schema list them."""
HERE = BindContext()


def apply_operators(
    relation: Relation,
    operators: Iterable[Operator],
    source: Callable[[Source], Relation],
    around: BindContext = HERE,
) -> Relation:
    """Return `relation` with the operators applied in order; `source` returns the relation that a name means.

    Raises the errors of all operators up to one whose columns can't be known.
    """
    errors: list[DdError] = []
    for operator in operators:
        before = len(errors)
        try:
            with noting(errors), placing(operator.place, operator.span):
                others = tuple(source(each) for each in operator.inputs)
                names = tuple(each.value if isinstance(each, Text) else None for each in operator.inputs)
                operands = Operands(relation, operator.span, around, others, names)
                relation = applied(operator.name, operands, operator.arguments, operator.place)
        except Unbuilt:
            raise_all(errors)
            raise
        if len(errors) > before and not OPERATORS[operator.name].keeps_columns:
            break
    raise_all(errors)
    return relation


def applied(name: str, operands: Operands, arguments: dict[str, Any], place: str) -> Relation:
    """Return the result of an operator, given the arguments of its constructor; `place` is its path in the file."""
    found = OPERATORS[name].build(operands, **arguments)
    operands.around.places.setdefault(found.node.fingerprint, (place, operands.span))
    return found
