"""The operators of a pipeline file over relations: the result of each, and its errors."""

from __future__ import annotations

from dataclasses import field, replace
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, Text
from ddcli.expressions.order import stored
from ddcli.expressions.python import AtHand, named
from ddcli.expressions.steps import ExplodeStep, FilterStep, MapStep, PythonStep, UnnestStep
from ddcli.expressions.tree import Call, Column
from ddcli.expressions.types import INTEGERS, Schema, Type
from ddcli.plan import groupings, joins, logical, loops
from ddcli.plan.asof import asof_join
from ddcli.plan.error_path import Unbuilt, noting, placing, raise_all
from ddcli.plan.joins import join, match_keys
from ddcli.plan.relation import Relation
from ddcli.plan.temporal import bound
from ddcli.plan.union import concat
from ddcli.plan.windows import apply_window
from ddcli.spec import operator_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.errors import DdError, Span
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import LoopName, Node


@dataclass(frozen=True)
class BindContext:
    """The context of operators: the types of the coordinates of time, the loop in whose body they are, if any, and the file's folder."""

    time: tuple[Type, ...] = (Type("int64"),)
    loop: LoopName | None = None
    arrives: bool = False
    """The mark of times that are those of runs, in UTC."""
    folder: str = ""
    inputs: Callable[[], Sequence[Node]] = tuple
    """Returns the nodes of all inputs: rows that depend on no table exist from the first row of these on."""
    exports: dict[str, Node] = field(default_factory=dict)
    """The arrangements for other pipelines that were met, by name."""
    notes: list[tuple[Span, str]] = field(default_factory=list)
    """Notes on queries, each at its place."""
    places: dict[str, tuple[str, Span]] = field(default_factory=dict)
    """The place of each node in the file, by fingerprint: the path of the operator and its span. Equal nodes are one: the first counts."""


HERE = BindContext()
KEEPING = (
    *(
        operator_model.Filter,
        operator_model.TemporalFilter,
        operator_model.Explode,
        operator_model.Threshold,
        operator_model.TopK,
    ),
    *(operator_model.Antijoin, operator_model.Enter, operator_model.Arrange),
)
"""Operators that leave columns as they are: the operators after a wrong one can be checked all the same. A semijoin leaves no null in its key."""


def apply_operators(
    relation: Relation,
    operators: Iterable[operator_model.Operator],
    source: Callable[[operator_model.Source], Relation],
    around: BindContext = HERE,
) -> Relation:
    """Return `relation` with the operators applied in order; `source` returns the relation that a name means.

    Raises the errors of all operators up to one whose columns can't be known.
    """
    apply = _Apply(source, around)
    errors: list[DdError] = []
    for operator in operators:
        before = len(errors)
        try:
            with noting(errors), placing(operator.place, operator.span):
                relation = apply.operator(operator, relation)
                around.places.setdefault(relation.node.fingerprint, (operator.place, operator.span))
        except Unbuilt:
            raise_all(errors)
            raise
        if len(errors) > before and not isinstance(operator, KEEPING):
            break
    raise_all(errors)
    return relation


@dataclass(frozen=True)
class _Apply:
    """One method for each operator of the spec: a relation in, a relation out."""

    source: Callable[[operator_model.Source], Relation]
    around: BindContext

    @singledispatchmethod
    def operator(self, operator: operator_model.Operator, relation: Relation) -> Relation:
        raise AssertionError(type(operator), relation)

    @operator.register
    def _(self, operator: operator_model.Map, relation: Relation) -> Relation:
        return _map(relation, _parse_all(relation, operator.columns))

    @operator.register
    def _(self, operator: operator_model.Extend, relation: Relation) -> Relation:
        columns = _keep(relation.schema) | dict(_parse_all(relation, operator.columns))
        return relation.over(_map(relation, columns.items()).node)

    @operator.register
    def _(self, operator: operator_model.Project, relation: Relation) -> Relation:
        columns = {text.value: relation.column(text) for text in operator.columns}
        return relation.over(_map(relation, [(n, Column(c, relation.schema[c])) for n, c in columns.items()]).node)

    @operator.register
    def _(self, operator: operator_model.Drop, relation: Relation) -> Relation:
        dropped = {relation.column(text) for text in operator.columns}
        kept = _keep({name: kind for name, kind in relation.schema.items() if name not in dropped})
        return relation.over(_map(relation, kept.items()).node)

    @operator.register
    def _(self, operator: operator_model.Rename, relation: Relation) -> Relation:
        new = {relation.column(old): to.value for old, to in operator.columns}
        names = [new.get(name, name) for name in relation.schema]
        for _, to in operator.columns:
            if names.count(to.value) > 1:
                raise SpecError(
                    f"two columns would be named '{to.value}'", span=to.span, hint="drop or rename the other one"
                )
        return _map(relation, [(new.get(name, name), column) for name, column in _keep(relation.schema).items()])

    @operator.register
    def _(self, operator: operator_model.Filter, relation: Relation) -> Relation:
        condition = relation.scalar(operator.condition)
        _require(
            condition.type.kind in ("bool", "null"),
            operator.condition,
            f"a filter is a bool, not {condition.type}",
            "compare it, for example with `= 1` or `is not null`",
        )
        return relation.over(logical.Apply((relation.node,), relation.schema, FilterStep(condition)))

    @operator.register
    def _(self, operator: operator_model.FlatMap, relation: Relation) -> Relation:
        call = relation.table(operator.expression)
        schema = relation.schema | {operator.column.value: call.type}
        return relation.over(logical.Apply((relation.node,), schema, UnnestStep(operator.column.value, call)))

    @operator.register(operator_model.PythonMap | operator_model.PythonFlatMap)
    def _(self, operator: operator_model.PythonMap | operator_model.PythonFlatMap, relation: Relation) -> Relation:
        function = self._defined(operator.function, 1)
        schema = {name: kind for name, (_, kind) in function.columns.items()}
        step = PythonStep(function.name.value, function.batch, tuple(schema.items()))
        return Relation(logical.Apply((relation.node,), schema, step))

    @operator.register
    def _(self, operator: operator_model.Explode, relation: Relation) -> Relation:
        weight = _integer(relation, operator.weight, "explode takes", "drops records whose weight is null")
        return relation.over(logical.Apply((relation.node,), relation.schema, ExplodeStep(weight)))

    @operator.register
    def _(self, operator: operator_model.Negate, relation: Relation) -> Relation:
        return relation.over(logical.negated(relation.node))

    @operator.register
    def _(self, operator: operator_model.Concat, relation: Relation) -> Relation:
        others = [self.source(source) for source in operator.sources]
        return relation.over(concat([relation, *others], operator.span, "concat").node)

    @operator.register
    def _(self, operator: operator_model.Consolidate, relation: Relation) -> Relation:
        return relation.over(logical.Consolidate((relation.node,), relation.schema))

    @operator.register
    def _(self, operator: operator_model.Join, relation: Relation) -> Relation:
        named = operator.right.value if isinstance(operator.right, Text) else None
        name = operator.name.value if operator.name else named
        return join(relation, self.source(operator.right), operator.on, operator.how, name, operator.span)

    @operator.register
    def _(self, operator: operator_model.AsofJoin, relation: Relation) -> Relation:
        named = operator.right.value if isinstance(operator.right, Text) else None
        name = operator.name.value if operator.name else named
        return asof_join(relation, self.source(operator.right), operator, name)

    @operator.register(operator_model.Semijoin | operator_model.Antijoin)
    def _(self, operator: operator_model.Semijoin | operator_model.Antijoin, relation: Relation) -> Relation:
        right = self.source(operator.right)
        on = match_keys(relation, right, operator.on)
        anti = isinstance(operator, operator_model.Antijoin)
        schema = dict(relation.schema)
        if not anti:
            schema |= {left: schema[left].required() for left, _ in on}
        return relation.over(joins.Semijoin((relation.node, right.node), schema, on, anti))

    @operator.register
    def _(self, operator: operator_model.Reduce, relation: Relation) -> Relation:
        errors: list[DdError] = []
        by: tuple[tuple[str, Expression], ...] = ()
        with noting(errors):
            by = _keys(relation, operator.by)
        calls: dict[str, AggregateCall] = {}
        results = []
        for name, text in operator.columns:
            with noting(errors):
                _require(name.value not in dict(by), name, f"'{name.value}' is a column of `by` already")
                reduction = relation.reduction(text)
                places: dict[str, Expression] = {}
                for at, call in enumerate(reduction.calls):
                    calls.setdefault(call.text(), call)
                    places[f"${at}"] = Column(f"${list(calls).index(call.text())}", call.type)
                results.append((name.value, reduction.result.substitute(places)))
        raise_all(errors)
        schema = {name: expression.type for name, expression in [*by, *results]}
        return Relation(groupings.Reduce((relation.node,), schema, by, tuple(calls.values()), tuple(results)))

    @operator.register
    def _(self, operator: operator_model.PythonReduce, relation: Relation) -> Relation:
        by = _keys(relation, operator.by)
        names = tuple(name for name, _ in by)
        if operator.values is None:
            values = tuple(name for name in relation.schema if name not in names)
        else:
            values = tuple(relation.column(text) for text in operator.values)
        values = tuple(dict.fromkeys(values))
        prepared = _map(relation, [*by, *[(v, Column(v, relation.schema[v])) for v in values if v not in names]]).node
        function = self._defined(operator.function, 2)
        given = {name: kind for name, (_, kind) in function.columns.items()}
        schema = {name: expression.type for name, expression in by} | given
        return Relation(groupings.PythonReduce((prepared,), schema, names, values, function.name.value))

    @operator.register
    def _(self, operator: operator_model.Count, relation: Relation) -> Relation:
        keys = tuple(relation.schema) if operator.by is None else tuple(relation.column(text) for text in operator.by)
        if operator.name in keys:
            raise SpecError(f"there is a column '{operator.name}' already", hint="name the count: `count: {as: n}`")
        reduction = relation.reduction(Text("count(*)", operator.span))
        by = tuple((name, Column(name, relation.schema[name])) for name in keys)
        schema = {name: relation.schema[name] for name in keys} | {operator.name: reduction.result.type}
        results = ((operator.name, reduction.result),)
        return relation.over(groupings.Reduce((relation.node,), schema, by, reduction.calls, results))

    @operator.register
    def _(self, operator: operator_model.Distinct, relation: Relation) -> Relation:
        return relation.over(groupings.Threshold((relation.node,), relation.schema, None))

    @operator.register
    def _(self, operator: operator_model.Threshold, relation: Relation) -> Relation:
        counts = Relation(logical.Source((), {"count": Type("int64")}, "count"))
        function = _integer(counts, operator.multiplicity, "threshold returns")
        return relation.over(groupings.Threshold((relation.node,), relation.schema, function))

    @operator.register
    def _(self, operator: operator_model.TopK, relation: Relation) -> Relation:
        by = tuple(relation.column(text) for text in operator.by)
        order: list[tuple[str, bool]] = []
        hidden: dict[str, Expression] = {}
        for at, item in enumerate(operator.order_by):
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
        node = _map(relation, (_keep(relation.schema) | hidden).items()).node if hidden else relation.node
        top = Relation(groupings.TopK((node,), node.schema, by, operator.k, tuple(order)))
        return relation.over(_map(top, _keep(relation.schema).items()).node if hidden else top.node)

    @operator.register
    def _(self, operator: operator_model.Window, relation: Relation) -> Relation:
        return apply_window(relation, operator)

    @operator.register
    def _(self, operator: operator_model.TemporalFilter, relation: Relation) -> Relation:
        if len(self.around.time) > 1:
            problem = f"a temporal_filter needs one time coordinate; here time has {len(self.around.time)}"
            raise SpecError(problem, hint="now is not before or after a bound where times have no order")
        bounds = [
            bound(relation.scalar(text), text, self.around.time[0]) if text else None
            for text in (operator.lower, operator.upper)
        ]
        return relation.over(logical.Temporal((relation.node,), relation.schema, *bounds))

    @operator.register
    def _(self, operator: operator_model.JoinFunction, relation: Relation) -> Relation:
        function = self._defined(operator.function, 1)
        schema = {name: kind for name, (_, kind) in function.columns.items()}
        several = len(self.around.time) > 1
        own = {"row", "diff", *(f"time{at}" if several else "time" for at, _ in enumerate(self.around.time))}
        for name, (text, _) in function.columns.items():
            problem = f"the column '{name}' would hide the frame's own: it holds the row, time and diff of each update"
            _require(not function.batch or name not in own, text, problem, "rename it, or leave `batch` out")
        return Relation(logical.JoinFunction((relation.node,), schema, function.name.value, function.batch))

    @operator.register
    def _(self, operator: operator_model.Enter, relation: Relation) -> Relation:
        loop = self.around.loop
        if loop is None:
            raise SpecError("`enter` is outside of a loop", hint="it sets the round of a loop in which a record enters")
        at = _integer(relation, operator.at, "enter takes", "lets records in at once whose round is null")
        return relation.over(loops.Enter((relation.node,), relation.schema, loop.name, loop.depth, at))

    @operator.register
    def _(self, operator: operator_model.Arrange, relation: Relation) -> Relation:
        by = tuple(relation.column(text) for text in operator.by)
        found = relation.over(logical.Arrange((relation.node,), relation.schema, by))
        if operator.export is not None:
            self._export(operator.export, found)
        return found

    def _defined(self, function: operator_model.PythonFunction, arguments: int) -> operator_model.PythonFunction:
        """Return a function that takes this number of arguments, as far as the text of its module shows; else raise an error at its name in the file."""
        if isinstance(function.name.value, AtHand):
            return function
        given = "a batch, a DataFrame" if function.batch else "a record, a dict"
        what = (
            f"one argument: {given}"
            if arguments == 1
            else "two arguments: the group's key, and its values with their counts"
        )
        name = named(function.name, self.around.folder, arguments, what)
        return replace(function, name=replace(function.name, value=name))

    def _export(self, name: Text, relation: Relation) -> None:
        """Record an arrangement that other pipelines may import."""
        _require(self.around.loop is None, name, "an arrangement of a loop's body can't be exported", "let it leave")
        _require(name.value not in self.around.exports, name, f"two arrangements are exported as '{name.value}'")
        self.around.exports[name.value] = relation.node

    @operator.register
    def _(self, operator: operator_model.Inspect, relation: Relation) -> Relation:
        return relation.over(logical.Inspect((relation.node,), relation.schema, operator.label.value))


def _require(holds: bool, text: Text, problem: str, hint: str | None = None) -> None:
    if not holds:
        raise SpecError(problem, span=text.span, hint=hint)


def _integer(relation: Relation, text: Text, what: str, coalesced: str | None = None) -> Expression:
    """Parse an expression that must be an integer and never null; `coalesced` describes the effect of 0 for null."""
    expression = relation.scalar(text)
    fits = expression.type.kind in INTEGERS and not expression.type.nullable
    hint = f"coalesce({text.value}, 0) {coalesced}" if coalesced and expression.type.is_integer else None
    _require(fits, text, f"{what} an integer that is never null, not {expression.type}", hint)
    return expression


def _keep(schema: Schema) -> dict[str, Expression]:
    return {name: Column(name, kind) for name, kind in schema.items()}


def _parse_all(relation: Relation, columns: operator_model.Assignments) -> list[tuple[str, Expression]]:
    """Parse each column's expression, gathering the errors of all of them."""
    parsed: list[tuple[str, Expression]] = []
    errors: list[DdError] = []
    for name, text in columns:
        with noting(errors):
            parsed.append((name.value, relation.scalar(text)))
    raise_all(errors)
    return parsed


def _map(relation: Relation, columns: Iterable[tuple[str, Expression]]) -> Relation:
    columns = tuple(columns)
    schema = {name: expression.type for name, expression in columns}
    return Relation(logical.Apply((relation.node,), schema, MapStep(columns)))


def _keys(relation: Relation, keys: Iterable[operator_model.GroupColumn]) -> tuple[tuple[str, Expression], ...]:
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
