"""From a spec and the schemas of its inputs to the logical graph, with every error of names and types at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from ddcli.errors import DdError, SpecError, SpecErrors, Text
from ddcli.expressions import stage
from ddcli.expressions.foreign import load_function
from ddcli.expressions.tree import Column
from ddcli.expressions.types import INTEGERS, Schema, Type
from ddcli.plan import logical
from ddcli.plan.joining import join, match_keys
from ddcli.plan.relation import Relation
from ddcli.plan.shaping import column_as
from ddcli.spec import model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ddcli.errors import Span
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Expression


class _Unbuilt(Exception):
    """The collection referred to could not be built; its own errors say why."""


def build(spec: model.Spec, schemas: Mapping[str, Schema]) -> logical.Graph:
    """Return the logical graph of the outputs of `spec`; `schemas` gives each input's columns.

    Raise SpecErrors with every unknown column, ill-typed expression and mismatch in the file.
    """
    builder = _Builder(spec, schemas)
    for name in spec.collections:
        builder.try_named(name)
    outputs = {}
    for name, output in spec.outputs.items():
        relation = builder.try_named(output.source.value)
        if relation is not None:
            outputs[name] = relation.node
            builder.check_output(output, relation)
    if builder.errors:
        raise SpecErrors(builder.errors)
    return logical.Graph(outputs)


@dataclass
class _Builder:
    spec: model.Spec
    schemas: Mapping[str, Schema]
    errors: list[DdError] = field(default_factory=list)
    _named: dict[str, Relation | None] = field(default_factory=dict)

    def check_output(self, output: model.Output, relation: Relation) -> None:
        """Note a column that the log's own time or diff would meet."""
        for name in _own_columns(self.spec):
            if name in relation.schema:
                source = output.source.value
                rename = f"rename: {{{name}: {name}_1}}"
                error = SpecError(
                    f"outputs.{output.name.value}: '{source}' has a column '{name}', as the log itself has",
                    span=output.source.span,
                    hint=f"write a collection that renames it: `{{from: {source}, apply: [{{{rename}}}]}}`"
                    if source in self.spec.inputs
                    else f"rename it: `- {rename}` at the end of '{source}'",
                )
                self.errors.append(error)

    def try_named(self, name: str) -> Relation | None:
        if name not in self._named:
            try:
                self._named[name] = self._build_named(name)
            except _Unbuilt:
                self._named[name] = None
            except SpecErrors as error:
                self.errors.extend(error.errors)
                self._named[name] = None
            except SpecError as error:
                self.errors.append(error)
                self._named[name] = None
        return self._named[name]

    def _build_named(self, name: str) -> Relation:
        if name in self.spec.inputs:
            given = self.spec.inputs[name]
            _check_declared(given)
            return Relation(
                logical.Source((), dict(self.schemas[name]), name, tuple(text.value for text in given.time))
            )
        collection = self.spec.collections[name]
        return self._chain(collection.sources, collection.apply, collection.name.span)

    def _source(self, source: model.Source) -> Relation:
        if isinstance(source, model.Inline):
            return self._chain(source.sources, source.apply, source.span)
        relation = self.try_named(source.value)
        if relation is None:
            raise _Unbuilt
        return relation

    def _chain(self, sources: Iterable[model.Source], operators: Iterable[model.Operator], span: Span) -> Relation:
        relation = self._concat([self._source(source) for source in sources], span, "from")
        return apply_operators(relation, operators, self._source)

    @staticmethod
    def _concat(relations: Sequence[Relation], span: Span, what: str) -> Relation:
        return relations[0] if len(relations) == 1 else concat(relations, span, what)


def apply_operators(
    relation: Relation, operators: Iterable[model.Operator], source: Callable[[model.Source], Relation]
) -> Relation:
    """Return `relation` with the operators applied in order; `source` gives the relation that a name means."""
    apply = _Apply(source)
    for operator in operators:
        try:
            relation = apply.operator(operator, relation)
        except SpecError as error:
            raise _placed(error, operator) from error
        except SpecErrors as found:
            raise SpecErrors([_placed(error, operator) for error in found.errors]) from found
    return relation


def _own_columns(spec: model.Spec) -> tuple[str, ...]:
    """Return what the outputs' logs have beside their data: coordinates of a product are called as in the inputs."""
    time = next((given.time for given in spec.inputs.values()), ())
    return (*(text.value for text in time), "diff") if len(time) > 1 else ("time", "diff")


def _check_declared(given: model.Input) -> None:
    """Refuse declared columns that are the log's time or diff: they are no data."""
    for role, texts in (("time", given.time), ("diff", [given.diff] if given.diff else [])):
        for text in texts:
            if given.columns is not None and text.value in given.columns:
                raise SpecError(
                    f"inputs.{given.name.value}.columns: '{text.value}' is the log's {role}, not data",
                    span=given.columns[text.value][0].span,
                    hint="leave it out, or name another column under `time` or `diff`",
                )


def _placed(error: DdError, operator: model.Operator) -> DdError:
    """Return the error with its place in the tree, which says what operator of a long chain is meant."""
    if error.problem.startswith("collections."):  # from within a collection in place
        return error
    return SpecError(f"{operator.place}: {error.problem}", span=error.span or operator.span, hint=error.hint)


@dataclass(frozen=True)
class _Apply:
    """One method for each operator of the spec: a relation in, a relation out."""

    source: Callable[[model.Source], Relation]

    @singledispatchmethod
    def operator(self, operator: model.Operator, relation: Relation) -> Relation:
        raise AssertionError(type(operator), relation)

    @operator.register
    def _(self, operator: model.Map, relation: Relation) -> Relation:
        return _map(relation, _parse_all(relation, operator.columns))

    @operator.register
    def _(self, operator: model.Extend, relation: Relation) -> Relation:
        columns = _keep(relation.schema) | dict(_parse_all(relation, operator.columns))
        return relation.over(_map(relation, columns.items()).node)

    @operator.register
    def _(self, operator: model.Project, relation: Relation) -> Relation:
        columns = {text.value: relation.column(text) for text in operator.columns}
        return relation.over(_map(relation, [(n, Column(c, relation.schema[c])) for n, c in columns.items()]).node)

    @operator.register
    def _(self, operator: model.Drop, relation: Relation) -> Relation:
        dropped = {relation.column(text) for text in operator.columns}
        kept = _keep({name: kind for name, kind in relation.schema.items() if name not in dropped})
        return relation.over(_map(relation, kept.items()).node)

    @operator.register
    def _(self, operator: model.Rename, relation: Relation) -> Relation:
        new = {relation.column(old): to.value for old, to in operator.columns}
        names = [new.get(name, name) for name in relation.schema]
        for _, to in operator.columns:
            if names.count(to.value) > 1:
                raise SpecError(
                    f"two columns would be named '{to.value}'", span=to.span, hint="drop or rename the other one"
                )
        return _map(relation, [(new.get(name, name), column) for name, column in _keep(relation.schema).items()])

    @operator.register
    def _(self, operator: model.Filter, relation: Relation) -> Relation:
        condition = relation.scalar(operator.condition)
        _require(
            condition.type.kind in ("bool", "null"),
            operator.condition,
            f"a filter is a bool, not {condition.type}",
            "compare it, for example with `= 1` or `is not null`",
        )
        return relation.over(logical.Apply((relation.node,), relation.schema, stage.Filter(condition)))

    @operator.register
    def _(self, operator: model.FlatMap, relation: Relation) -> Relation:
        call = relation.table(operator.expression)
        schema = relation.schema | {operator.column.value: call.type}
        return relation.over(logical.Apply((relation.node,), schema, stage.Unnest(operator.column.value, call)))

    @operator.register(model.PythonMap)
    @operator.register(model.PythonFlatMap)
    def _(self, operator: model.PythonMap | model.PythonFlatMap, relation: Relation) -> Relation:
        function = _loadable(operator.function)
        schema = {name: kind for name, (_, kind) in function.columns.items()}
        step = stage.Python(function.name.value, function.batch, tuple(schema.items()))
        return Relation(logical.Apply((relation.node,), schema, step))

    @operator.register
    def _(self, operator: model.Explode, relation: Relation) -> Relation:
        weight = relation.scalar(operator.weight)
        fits = weight.type.kind in INTEGERS and not weight.type.nullable
        problem = f"explode takes an integer that is never null, not {weight.type}"
        hint = (
            f"coalesce({operator.weight.value}, 0) drops records whose weight is null"
            if weight.type.is_integer
            else None
        )
        _require(fits, operator.weight, problem, hint)
        return relation.over(logical.Apply((relation.node,), relation.schema, stage.Explode(weight)))

    @operator.register
    def _(self, operator: model.Negate, relation: Relation) -> Relation:
        return relation.over(logical.Negate((relation.node,), relation.schema))

    @operator.register
    def _(self, operator: model.Concat, relation: Relation) -> Relation:
        others = [self.source(source) for source in operator.sources]
        return relation.over(concat([relation, *others], operator.span, "concat").node)

    @operator.register
    def _(self, operator: model.Consolidate, relation: Relation) -> Relation:
        return relation.over(logical.Consolidate((relation.node,), relation.schema))

    @operator.register
    def _(self, operator: model.Join, relation: Relation) -> Relation:
        named = operator.right.value if isinstance(operator.right, Text) else None
        name = operator.name.value if operator.name else named
        return join(relation, self.source(operator.right), operator.on, operator.how, name, operator.span)

    @operator.register(model.Semijoin)
    @operator.register(model.Antijoin)
    def _(self, operator: model.Semijoin | model.Antijoin, relation: Relation) -> Relation:
        right = self.source(operator.right)
        on = match_keys(relation, right, operator.on)
        anti = isinstance(operator, model.Antijoin)
        schema = dict(relation.schema)
        if not anti:
            schema |= {left: schema[left].required() for left, _ in on}
        return relation.over(logical.Semijoin((relation.node, right.node), schema, on, anti))

    @operator.register
    def _(self, operator: model.Reduce, relation: Relation) -> Relation:
        by = _keys(relation, operator.by)
        calls: dict[str, AggregateCall] = {}
        results = []
        for name, text in operator.columns:
            _require(name.value not in dict(by), name, f"'{name.value}' is a column of `by` already")
            reduction = relation.reduction(text)
            places: dict[str, Expression] = {}
            for at, call in enumerate(reduction.calls):
                calls.setdefault(call.text(), call)
                places[f"${at}"] = Column(f"${list(calls).index(call.text())}", call.type)
            results.append((name.value, reduction.result.substitute(places)))
        schema = {name: expression.type for name, expression in [*by, *results]}
        return Relation(logical.Reduce((relation.node,), schema, by, tuple(calls.values()), tuple(results)))

    @operator.register
    def _(self, operator: model.PythonReduce, relation: Relation) -> Relation:
        by = _keys(relation, operator.by)
        names = tuple(name for name, _ in by)
        if operator.values is None:
            values = tuple(name for name in relation.schema if name not in names)
        else:
            values = tuple(relation.column(text) for text in operator.values)
        values = tuple(dict.fromkeys(values))
        prepared = _map(relation, [*by, *[(v, Column(v, relation.schema[v])) for v in values if v not in names]]).node
        given = {name: kind for name, (_, kind) in _loadable(operator.function).columns.items()}
        schema = {name: expression.type for name, expression in by} | given
        return Relation(logical.PythonReduce((prepared,), schema, names, values, operator.function.name.value))

    @operator.register
    def _(self, operator: model.Count, relation: Relation) -> Relation:
        keys = tuple(relation.schema) if operator.by is None else tuple(relation.column(text) for text in operator.by)
        if operator.name in keys:
            raise SpecError(f"there is a column '{operator.name}' already", hint="name the count: `count: {as: n}`")
        reduction = relation.reduction(Text("count(*)", operator.span))
        by = tuple((name, Column(name, relation.schema[name])) for name in keys)
        schema = {name: relation.schema[name] for name in keys} | {operator.name: reduction.result.type}
        results = ((operator.name, reduction.result),)
        return relation.over(logical.Reduce((relation.node,), schema, by, reduction.calls, results))

    @operator.register
    def _(self, operator: model.Distinct, relation: Relation) -> Relation:
        return relation.over(logical.Threshold((relation.node,), relation.schema, None))

    @operator.register
    def _(self, operator: model.Threshold, relation: Relation) -> Relation:
        counts = Relation(logical.Source((), {"count": Type("int64")}, "count"))
        function = counts.scalar(operator.multiplicity)
        fits = function.type.kind in INTEGERS and not function.type.nullable
        _require(fits, operator.multiplicity, f"threshold gives an integer that is never null, not {function.type}")
        return relation.over(logical.Threshold((relation.node,), relation.schema, function))

    @operator.register
    def _(self, operator: model.TopK, relation: Relation) -> Relation:
        by = tuple(relation.column(text) for text in operator.by)
        order, hidden = [], {}
        for at, item in enumerate(operator.order_by):
            expression = relation.scalar(item.expression)
            if isinstance(expression, Column):
                order.append((expression.name, item.descending))
            else:
                hidden[f"$order{at}"] = expression
                order.append((f"$order{at}", item.descending))
        node = _map(relation, (_keep(relation.schema) | hidden).items()).node if hidden else relation.node
        top = Relation(logical.TopK((node,), node.schema, by, operator.k, tuple(order)))
        return relation.over(_map(top, _keep(relation.schema).items()).node if hidden else top.node)

    @operator.register
    def _(self, operator: model.Arrange, relation: Relation) -> Relation:
        by = tuple(relation.column(text) for text in operator.by)
        return relation.over(logical.Arrange((relation.node,), relation.schema, by))

    @operator.register
    def _(self, operator: model.Inspect, relation: Relation) -> Relation:
        return relation.over(logical.Inspect((relation.node,), relation.schema, operator.label.value))


def _loadable(function: model.Function) -> model.Function:
    """Return the function, which can be imported, or say where the file names one that can't."""
    try:
        load_function(function.name.value)
    except SpecError as error:
        raise SpecError(error.problem, span=function.name.span, hint=error.hint) from error
    return function


def _require(holds: bool, text: Text, problem: str, hint: str | None = None) -> None:
    if not holds:
        raise SpecError(problem, span=text.span, hint=hint)


def _keep(schema: Schema) -> dict[str, Expression]:
    return {name: Column(name, kind) for name, kind in schema.items()}


def _parse_all(relation: Relation, columns: model.Assignments) -> list[tuple[str, Expression]]:
    """Parse each column's expression, gathering the errors of all of them."""
    parsed, errors = [], []
    for name, text in columns:
        try:
            parsed.append((name.value, relation.scalar(text)))
        except SpecError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise SpecErrors(errors)
    return parsed


def _map(relation: Relation, columns: Iterable[tuple[str, Expression]]) -> Relation:
    columns = tuple(columns)
    schema = {name: expression.type for name, expression in columns}
    return Relation(logical.Apply((relation.node,), schema, stage.Map(columns)))


def _keys(relation: Relation, keys: Iterable[model.Key]) -> tuple[tuple[str, Expression], ...]:
    by = []
    for key in keys:
        if key.expression is not None:
            by.append((key.name.value, relation.scalar(key.expression)))
        else:
            column = relation.column(key.name)
            by.append((key.name.value, Column(column, relation.schema[column])))
    return tuple(by)


def concat(relations: Sequence[Relation], span: Span, what: str) -> Relation:
    """Return the sum of relations that have the same columns, in any order, of types with a common one."""
    first = relations[0].schema
    schema = dict(first)
    for relation in relations[1:]:
        if set(relation.schema) != set(first):
            missing = ", ".join(sorted(set(first) ^ set(relation.schema)))
            raise SpecError(
                f"`{what}` sums collections with the same columns; these are not in all of them: {missing}",
                span=span,
                hint="`project`, `rename` or `map` them to the same columns first",
            )
        for name, kind in relation.schema.items():
            common = _common_type(schema[name], kind)
            if common is None:
                raise SpecError(
                    f"`{what}`: column '{name}' is {schema[name]} in one collection and {kind} in another",
                    span=span,
                    hint=f"cast one of them: `extend: {{{name}: cast({name} as ...)}}`",
                )
            schema[name] = common
    return Relation(logical.Concat(tuple(with_schema(relation.node, schema) for relation in relations), schema))


def with_schema(node: logical.Node, schema: Schema) -> logical.Node:
    """Return the node with its columns in the order and of the types of `schema`, which must hold all its values."""
    if list(node.schema.items()) == list(schema.items()):
        return node
    columns = tuple((name, column_as(name, node.schema[name], kind)) for name, kind in schema.items())
    return logical.Apply((node,), schema, stage.Map(columns))


def _common_type(one: Type, other: Type) -> Type | None:
    nullable = one.nullable or other.nullable
    if one.required() == other.required():
        return one.or_null(nullable)
    if one.kind == "null" or other.kind == "null":
        return (other if one.kind == "null" else one).or_null()
    if one.is_integer and other.is_integer and "uint64" not in (one.kind, other.kind):
        return Type("int64", nullable)
    if one.is_float and other.is_float:
        return Type("float64", nullable)
    return None
