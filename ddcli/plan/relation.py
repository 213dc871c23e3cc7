"""A collection while it is being built: its node, and the names of its columns in expressions; and the collections that an operator is applied to.

Collections are converted to one schema, so that their records may be added up: columns in one order, types that hold all values.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, UnknownColumn, UsageError, noting, raise_all, suggestion_and_list
from ddcli.expressions.aggregates import AggregateCall, Reduction
from ddcli.expressions.coerce import INT64
from ddcli.expressions.tree import PLAIN_NAME, RESERVED, Call, Column, FilterStep, Literal, MapStep, TableCall
from ddcli.expressions.types import INTEGERS, ColumnScope, Schema, Type
from ddcli.plan import logical
from ddcli.plan.node import Graph
from ddcli.plan.shape import column_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.errors import DdError, Span, Text
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import RowOrder
    from ddcli.expressions.window_calls import OrderedBy
    from ddcli.expressions.windows import Frame, WindowCall
    from ddcli.plan.node import LoopName, Node
    from ddcli.spec.model import Assignments


@dataclass(frozen=True)
class Relation:
    """A node with the names in scope above it.

    `qualified` maps `up.manager`, as ("up", "manager"), to a column; `aliases` maps plain names of columns that a join
    merged into another (the right side's keys) to the column that holds their value. `order` is that in which its rows are shown; relations that are
    made of it have none.
    """

    node: Node
    qualified: dict[tuple[str, str], str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    order: RowOrder = ()

    @property
    def schema(self) -> Schema:
        return self.node.schema

    def over(self, node: Node) -> Relation:
        """Return the relation of a node that keeps this one's columns; names whose column is gone are dropped."""
        kept = {name: column for name, column in self.qualified.items() if column in node.schema}
        aliases = {
            name: column for name, column in self.aliases.items() if column in node.schema and name not in node.schema
        }
        return Relation(node, kept, aliases)

    def scalar(self, text: Text) -> Expression:
        """Parse an expression over the relation's columns.

        Most are a plain or a qualified name: those need no parser, whose import takes longer than a small run's work.
        """
        column = self._plain(text.value)
        if column is not None:
            return Column(column, self.schema[column], span=text.span)
        from ddcli.expressions.parse import parse_scalar

        return self._resolve(parse_scalar(text, self._scope()))

    def _plain(self, name: str) -> str | None:
        """Return the column that a text means if it is just a name as it stands."""
        words = name.split(".")
        if len(words) > 2 or any(word in RESERVED or not PLAIN_NAME.fullmatch(word) for word in words):
            return None
        if len(words) == 2:
            return self.qualified.get((words[0], words[1]))
        return name if name in self.schema else self.aliases.get(name)

    def table(self, text: Text) -> TableCall:
        """Parse a table expression over the relation's columns."""
        from ddcli.expressions.parse import parse_table

        call = parse_table(text, self._scope())
        return replace(call, args=tuple(self._resolve(argument) for argument in call.args))

    def reduction(self, text: Text) -> Reduction:
        """Parse an expression of aggregates over the relation's columns."""
        from ddcli.expressions.reductions import parse_reduction

        reduction = parse_reduction(text, self._scope())
        return Reduction(tuple(self._resolve_call(call) for call in reduction.calls), reduction.result)

    def windowed(self, text: Text, order: OrderedBy, frame: Frame | None) -> tuple[tuple[WindowCall, ...], Expression]:
        """Return the calls of a text with window functions over the relation's columns, in an order and frame, and the expression over these columns and the calls."""
        from ddcli.expressions.window_calls import parse_windowed

        calls, result = parse_windowed(text, self._scope(), order, frame)
        return tuple(self._resolve_window(call) for call in calls), self._resolve(result)

    def column(self, text: Text) -> str:
        """Return the column that a plain or qualified name means."""
        name = text.value
        if name in self.schema:
            return name
        if name in self.aliases:
            return self.aliases[name]
        qualifier, dot, rest = name.partition(".")
        if dot and (qualifier, rest) in self.qualified:
            return self.qualified[qualifier, rest]
        hint = suggestion_and_list(name, self.schema, f"columns: {', '.join(self.schema)}")
        raise UnknownColumn(f"there is no column '{name}'", name, span=text.span, hint=hint)

    def _scope(self) -> ColumnScope:
        columns = {alias: self.schema[column] for alias, column in self.aliases.items()} | self.schema
        return ColumnScope(columns, self.qualified)

    def _resolve(self, expression: Expression) -> Expression:
        """Put the columns behind the aliases in an expression."""
        if not self.aliases:
            return expression
        return expression.substitute({alias: Column(name, self.schema[name]) for alias, name in self.aliases.items()})

    def _resolve_window(self, call: WindowCall) -> WindowCall:
        aggregate = self._resolve_call(call.aggregate) if call.aggregate is not None else None
        return replace(call, args=tuple(self._resolve(argument) for argument in call.args), aggregate=aggregate)

    def _resolve_call(self, call: AggregateCall) -> AggregateCall:
        order = tuple((self._resolve(key), descending) for key, descending in call.order_by)
        return replace(call, args=tuple(self._resolve(argument) for argument in call.args), order_by=order)


def concat(relations: Sequence[Relation], span: Span, what: str) -> Relation:
    """Return the sum of relations that have the same columns, in any order, of types with a common one."""
    schema = dict(relations[0].schema)
    rule = f"`{what}` sums collections with the same columns"
    for relation in relations[1:]:
        places = ("in one collection", "in another")
        schema = common_schema(schema, relation.schema, rule, f"`{what}`", places, span)
    return Relation(logical.summed([with_schema(relation.node, schema) for relation in relations], schema))


def common_schema(one: Schema, other: Schema, rule: str, what: str, places: tuple[str, str], span: Span) -> Schema:
    """Return the columns of `one`, of types that hold the values of both; `other` has the same columns in any order.

    If it has others, a SpecError states the `rule`; if a column has types without a common one, in `what` and at which `places` it has them.
    """
    if set(one) != set(other):
        missing = ", ".join(sorted(set(one) ^ set(other)))
        raise SpecError(
            f"{rule}; these are not in all of them: {missing}",
            span=span,
            hint="`project`, `rename` or `map` them to the same columns first",
        )
    schema: Schema = {}
    for name, kind in one.items():
        common = _common_type(kind, other[name])
        if common is None:
            raise SpecError(
                f"{what}: column '{name}' is {kind} {places[0]} and {other[name]} {places[1]}",
                span=span,
                hint=f"cast one of them: `extend: {{{name}: cast({name} as ...)}}`",
            )
        schema[name] = common
    return schema


def with_schema(node: Node, schema: Schema) -> Node:
    """Return the node with its columns in the order and of the types of `schema`, which must hold all its values."""
    if list(node.schema.items()) == list(schema.items()):
        return node
    columns = tuple((name, column_as(name, node.schema[name], kind)) for name, kind in schema.items())
    return logical.Apply((node,), schema, MapStep(columns))


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


PRESENCE = "#one"


def once(nodes: Sequence[Node]) -> Node:
    """Return one record, 1, from the first row of the inputs below these nodes on. It depends on raw rows, which no later row takes back."""
    sources = {
        each.fingerprint: each
        for node in nodes
        for each in Graph({"": node}).nodes()
        if isinstance(each, logical.Source)
    }
    if not sources:
        hint = "such rows are there from the first row of an input on: add an input"
        raise UsageError("a query that reads no table also needs an input", hint=hint)
    parts: list[Node] = []
    for each in sources.values():
        rows: Node = each
        if logical.PRESENT in each.schema:
            there = Call("=", (Column(logical.PRESENT, INT64), Literal(1, INT64)), Type("bool"))
            rows = logical.Apply((each,), each.schema, FilterStep(there))
        parts.append(logical.Apply((rows,), {PRESENCE: INT64}, MapStep(((PRESENCE, Literal(1, INT64)),))))
    found = parts[0] if len(parts) == 1 else logical.summed(parts, {PRESENCE: INT64})
    return logical.Once((found,), {PRESENCE: INT64})


@dataclass(frozen=True)
class BindContext:
    """The context of operators: the types of the coordinates of time, the loop in whose body they are, if any, and the file's folder."""

    time: tuple[Type, ...] = (Type("int64"),)
    loop: LoopName | None = None
    arrives: bool = False
    """The mark of times of runs, in UTC."""
    folder: str = ""
    inputs: Callable[[], Sequence[Node]] = tuple
    """Returns the nodes of all inputs: rows that depend on no table exist from the first row of these on."""
    exports: dict[str, Node] = field(default_factory=dict)
    """The arrangements for other pipelines that were met, by name."""
    memories: dict[str, Node] = field(default_factory=dict)
    """The calls of functions that remember, by the identity of their results."""
    notes: list[tuple[Span, str]] = field(default_factory=list)
    """Notes on queries, each at its place."""
    places: dict[str, tuple[str, Span]] = field(default_factory=dict)
    """The place of each node in the file, by fingerprint: the path of the operator and its span. Equal nodes are one: the first counts."""


@dataclass(frozen=True)
class Operands:
    """The collections that an operator is applied to: the one before it, and others; `names` has their names in the file."""

    relation: Relation
    span: Span
    around: BindContext = field(default_factory=BindContext)
    others: tuple[Relation, ...] = ()
    names: tuple[str | None, ...] = ()

    @property
    def right(self) -> Relation:
        """Return the only other collection."""
        (right,) = self.others
        return right

    def qualifier(self, name: Text | None) -> str | None:
        """Return the name that qualifies the columns of the only other collection: the one given, or its own."""
        return name.value if name else self.names[0]


def require(holds: bool, text: Text, problem: str, hint: str | None = None) -> None:
    """Raise an error at a text if a condition doesn't hold."""
    if not holds:
        raise SpecError(problem, span=text.span, hint=hint)


def integer(relation: Relation, text: Text, what: str, coalesced: str | None = None) -> Expression:
    """Parse an expression that must be an integer and never null; `coalesced` describes the effect of 0 for null."""
    expression = relation.scalar(text)
    fits = expression.type.kind in INTEGERS and not expression.type.nullable
    hint = f"coalesce({text.value}, 0) {coalesced}" if coalesced and expression.type.is_integer else None
    require(fits, text, f"{what} an integer that is never null, not {expression.type}", hint)
    return expression


def columns_of(schema: Schema) -> dict[str, Expression]:
    """Return the columns of a schema as expressions, by name."""
    return {name: Column(name, kind) for name, kind in schema.items()}


def parse_all(relation: Relation, columns: Assignments) -> list[tuple[str, Expression]]:
    """Parse each column's expression, gathering the errors of all of them."""
    parsed: list[tuple[str, Expression]] = []
    errors: list[DdError] = []
    for name, text in columns:
        with noting(errors):
            parsed.append((name.value, relation.scalar(text)))
    raise_all(errors)
    return parsed


def mapped(relation: Relation, columns: Iterable[tuple[str, Expression]]) -> Relation:
    """Return a relation with exactly these columns, and no other names for them."""
    columns = tuple(columns)
    schema = {name: expression.type for name, expression in columns}
    return Relation(logical.Apply((relation.node,), schema, MapStep(columns)))
