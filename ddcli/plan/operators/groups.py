"""Operators on groups: aggregates, counts, distinct records, orders and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.errors import SpecError, Text
from ddcli.expressions.order import stored
from ddcli.expressions.tree import Call, Column
from ddcli.expressions.types import Type
from ddcli.plan import groupings, logical
from ddcli.plan.error_path import noting, raise_all
from ddcli.plan.operators.functions import FUNCTION, defined, names_function
from ddcli.plan.operators.row import NOTHING, argument, columns_of, integer, mapped, operator, require
from ddcli.plan.relation import Relation
from ddcli.plan.windows import with_window
from ddcli.spec.column_shapes import ASSIGNMENTS, BY, COLUMN, COLUMNS, EXPRESSION, ORDER
from ddcli.spec.operator_model import PythonFunction
from ddcli.spec.reader import JsonSchema, NodePlace, Notes, Refused, Shape
from ddcli.spec.shapes import As, ByKind, Key, Record
from ddcli.spec.tree import Mapping, Node
from ddcli.spec.values import ExpressionText, Whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.errors import DdError
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Expression
    from ddcli.plan.operators.row import Operands
    from ddcli.spec.operator_model import Assignments, GroupColumn, Order

    Arguments = dict[str, Any]


def _python_reduce(_: NodePlace, arguments: Arguments) -> Arguments:
    own = {name: arguments.pop(name) for name in ("by", "values") if name in arguments}
    return own | {"function": PythonFunction(**arguments)}


PYTHON_REDUCE = Record(
    _python_reduce,
    {
        "by": Key(BY, about="the groups"),
        **FUNCTION,
        "values": Key(COLUMNS, about="the columns it receives; default: all that are not in `by`"),
    },
    "a mapping",
    "{by: [id], function: 'prices:median', columns: {price: int64}}",
)


class ReduceShape(Shape["Arguments"]):
    """`by`, and either output columns with their aggregates or a Python function."""

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Arguments:
        if not isinstance(node, Mapping):
            raise notes.mismatch(node, place, "a mapping", "for example `reduce: {by: [region], orders: count(*)}`")
        if names_function(node, place, notes):
            return PYTHON_REDUCE.read(node, place, notes)
        by: tuple[GroupColumn, ...] = ()
        wrong = False
        for word, value in node.entries:
            if word.value == "by":
                try:
                    by = BY.read(value, place.key(word), notes)
                except Refused:
                    wrong = True
        rest = tuple(entry for entry in node.entries if entry[0].value != "by")
        if not rest:
            hint = (
                "add a column with its aggregate, `orders: count(*)`; for the groups alone use `project` and `distinct`"
            )
            raise notes.refuse(place.path, "no column is computed", place.word.span, hint)
        columns = ASSIGNMENTS.read(Mapping(rest, node.span, node.flow), place, notes)
        for name in columns:
            if any(name[0].value == key.name.value for key in by):
                notes.refuse(
                    place.path, f"the column {name[0].value!r} is in `by` too", name[0].span, "rename one of the two"
                )
                wrong = True
        if wrong:
            raise Refused
        return {"by": by, "columns": columns}

    def _schema(self) -> JsonSchema:
        plain = {"type": "object", "properties": {"by": BY.schema()}, "additionalProperties": EXPRESSION.schema()}
        return {"anyOf": [PYTHON_REDUCE.schema(), plain | {"not": {"required": ["function"]}}]}


@operator(
    "reduce",
    "{by: [region], orders: count(*)}",
    ReduceShape(),
    other_words="groupby aggregate agg summarize summarise",
)
def reduce(
    operands: Operands,
    by: tuple[GroupColumn, ...] = (),
    columns: Assignments = (),
    function: PythonFunction | None = None,
    values: tuple[Text, ...] | None = None,
) -> Relation:
    """Aggregate each group: the columns are `by` and then `columns`, or a function's columns. Empty `by`: the collection is one group."""
    if function is not None:
        return _reduced_by_function(operands, by, function, values)
    relation = operands.relation
    errors: list[DdError] = []
    keys: tuple[tuple[str, Expression], ...] = ()
    with noting(errors):
        keys = _keys(relation, by)
    calls: dict[str, AggregateCall] = {}
    results = []
    for name, text in columns:
        with noting(errors):
            require(name.value not in dict(keys), name, f"'{name.value}' is a column of `by` already")
            reduction = relation.reduction(text)
            places: dict[str, Expression] = {}
            for at, call in enumerate(reduction.calls):
                calls.setdefault(call.text(), call)
                places[f"${at}"] = Column(f"${list(calls).index(call.text())}", call.type)
            results.append((name.value, reduction.result.substitute(places)))
    raise_all(errors)
    schema = {name: expression.type for name, expression in [*keys, *results]}
    return Relation(groupings.Reduce((relation.node,), schema, keys, tuple(calls.values()), tuple(results)))


def _reduced_by_function(
    operands: Operands, by: tuple[GroupColumn, ...], function: PythonFunction, given: tuple[Text, ...] | None
) -> Relation:
    relation = operands.relation
    keys = _keys(relation, by)
    names = tuple(name for name, _ in keys)
    if given is None:
        values = tuple(name for name in relation.schema if name not in names)
    else:
        values = tuple(relation.column(text) for text in given)
    values = tuple(dict.fromkeys(values))
    prepared = mapped(relation, [*keys, *[(v, Column(v, relation.schema[v])) for v in values if v not in names]]).node
    name, returned = defined(function, 2, operands.around)
    schema = {key: expression.type for key, expression in keys} | returned
    return Relation(groupings.PythonReduce((prepared,), schema, names, values, name))


def _keys(relation: Relation, keys: Iterable[GroupColumn]) -> tuple[tuple[str, Expression], ...]:
    by: list[tuple[str, Expression]] = []
    errors: list[DdError] = []
    for key in keys:
        with noting(errors):
            if key.expression is not None:
                by.append((key.name.value, relation.scalar(key.expression)))
            else:
                column = relation.column(key.name)
                by.append((key.name.value, Column(column, relation.schema[column])))
    raise_all(errors)
    return tuple(by)


COUNT = {
    "by": Key(COLUMNS, about="the groups; without: each distinct record is counted"),
    "as": Key(As(COLUMN, lambda _, text: text.value), about="the column with the count", argument="name"),
}


@operator(
    "count",
    "{by: [region]}",
    ByKind(
        "nothing or a mapping",
        nothing=NOTHING,
        mapping=Record(lambda _, arguments: arguments, COUNT, "a mapping", "count: {by: [region]}"),
    ),
)
def count(operands: Operands, name: str = "count", by: tuple[Text, ...] | None = None) -> Relation:
    """Count records: in each group, or each distinct one beside it."""
    relation = operands.relation
    names = tuple(relation.schema) if by is None else tuple(relation.column(text) for text in by)
    if name in names:
        raise SpecError(f"there is a column '{name}' already", hint="name the count: `count: {as: n}`")
    reduction = relation.reduction(Text("count(*)", operands.span))
    keys = tuple((key, Column(key, relation.schema[key])) for key in names)
    schema = {key: relation.schema[key] for key in names} | {name: reduction.result.type}
    results = ((name, reduction.result),)
    return relation.over(groupings.Reduce((relation.node,), schema, keys, reduction.calls, results))


@operator("distinct", "", NOTHING, other_words="unique dedupe deduplicate dropduplicates")
def distinct(operands: Operands) -> Relation:
    """Keep each record once whose multiplicity is positive."""
    relation = operands.relation
    return relation.over(groupings.distinct(relation.node))


@operator("threshold", "least(count, 1)", argument("multiplicity", EXPRESSION), keeps_columns=True)
def threshold(operands: Operands, multiplicity: Text) -> Relation:
    """Set each record's multiplicity to the value of an expression over `count`, its multiplicity now."""
    relation = operands.relation
    counts = Relation(logical.Source((), {"count": Type("int64")}, "count"))
    function = integer(counts, multiplicity, "threshold returns")
    return relation.over(groupings.Threshold((relation.node,), relation.schema, function))


@operator(
    "top_k",
    "{by: [region], k: 3, order_by: [amount desc]}",
    {
        "by": Key(COLUMNS, about="the groups; without: the whole collection is one"),
        "k": Key(Whole(1), required=True, about="how many to keep of each group"),
        "order_by": Key(ORDER, required=True, about="`amount desc`"),
    },
    other_words="limit sort orderby head top",
    keeps_columns=True,
)
def top_k(operands: Operands, k: int, order_by: tuple[Order, ...], by: tuple[Text, ...] = ()) -> Relation:
    """Keep the first `k` records of each group in an order. Empty `by`: the collection is one group."""
    relation = operands.relation
    keys = tuple(relation.column(text) for text in by)
    order: list[tuple[str, bool]] = []
    hidden: dict[str, Expression] = {}
    for at, item in enumerate(order_by):
        expression = relation.scalar(item.expression)
        if item.nulls_first != item.descending and expression.type.nullable:
            # Elsewhere than at the large end: first by whether it is null.
            hidden[f"$order{at}.null"] = stored(Call("is null", (expression,), Type("bool")))
            order.append((f"$order{at}.null", item.nulls_first))
        if isinstance(expression, Column):
            order.append((expression.name, item.descending))
        else:
            hidden[f"$order{at}"] = expression
            order.append((f"$order{at}", item.descending))
    node = mapped(relation, (columns_of(relation.schema) | hidden).items()).node if hidden else relation.node
    top = Relation(groupings.first(node, keys, k, order))
    return relation.over(mapped(top, columns_of(relation.schema).items()).node if hidden else top.node)


@operator(
    "window",
    "{by: [region], order_by: [placed_at], columns: {n: row_number()}}",
    {
        "by": Key(COLUMNS, about="the partitions; without: the whole collection is one"),
        "order_by": Key(ORDER, about="`placed_at desc nulls last`"),
        "frame": Key(ExpressionText("a frame"), about="`rows between 2 preceding and current row`"),
        "columns": Key(ASSIGNMENTS, required=True, about="columns to add: `n: row_number()`, `change: x - lag(x)`"),
    },
    other_words="over partitionby rank rownumber lag lead",
)
def window(
    operands: Operands,
    columns: Assignments,
    by: tuple[Text, ...] = (),
    order_by: tuple[Order, ...] = (),
    frame: Text | None = None,
) -> Relation:
    """Add columns that see the rows around each row, in its partition `by` and an order. `frame`: which of them aggregates see."""
    return with_window(operands.relation, columns, by, order_by, frame)
