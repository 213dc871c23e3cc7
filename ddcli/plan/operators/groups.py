"""Rows of the table of operators; operators on groups: aggregates, counts, distinct records, orders and windows; Python functions as arguments of operators.

A row of the table of operators has its arguments in a file, its words, and the constructor of its result. The constructor is the function below the row: from the
collection before the operator to that after it. Its docstring's first line is the operator's documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, Text, noting, raise_all
from ddcli.expressions.operators import stored
from ddcli.expressions.python import AtHand, named
from ddcli.expressions.tree import Call, Column, PythonStep
from ddcli.expressions.types import Type
from ddcli.plan import groupings, logical
from ddcli.plan.memo import MemoizedCalls
from ddcli.plan.relation import Relation, columns_of, integer, mapped, require
from ddcli.plan.windows import with_window
from ddcli.spec.model import PythonFunction
from ddcli.spec.shapes import (
    As,
    ByKind,
    JsonSchema,
    Key,
    NodePlace,
    Notes,
    Nothing,
    OperatorForm,
    Record,
    Refused,
    Shape,
    shape,
)
from ddcli.spec.tree import Mapping, Node, Scalar
from ddcli.spec.values import (
    A_SOURCE,
    ASSIGNMENTS,
    BY,
    COLUMN,
    COLUMNS,
    EXPRESSION,
    ON,
    ORDER,
    TYPED_COLUMNS,
    ExpressionText,
    Whole,
    Words,
    flag,
    one,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ddcli.errors import DdError
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Expression
    from ddcli.plan.relation import Operands
    from ddcli.spec.model import Assignments, GroupColumn, Order

    Arguments = dict[str, Any]
    from ddcli.expressions.types import Schema
    from ddcli.plan.relation import BindContext


@dataclass(frozen=True, slots=True, eq=False)
class OperatorRow(OperatorForm):
    """A row of the table. `build` returns the result over operands, given the arguments that `shape` reads."""

    about: str
    example: str
    build: Callable[..., Relation]
    keeps_columns: bool
    """The mark of an operator that leaves columns as they are: the operators after a wrong one can be checked all the same."""


NOTHING: Shape[dict[str, Any]] = Nothing(lambda _: {})
RIGHT = Key(As(A_SOURCE, one), required=True, about="input or collection on the right", argument="inputs")
ON_KEY = Key(ON, required=True, about="common columns, or left column: right column")


def operator(
    name: str,
    example: str,
    shape: Shape[dict[str, Any]] | dict[str, Key],
    *,
    other_words: str = "",
    keeps_columns: bool = False,
    in_loop: bool = False,
) -> Callable[[Callable[..., Relation]], OperatorRow]:
    """Return the decorator that makes a constructor the row of an operator. `shape` may be the keys of a mapping; `example` is right for it."""
    example = f"{name}: {example}" if example else name
    if isinstance(shape, dict):
        shape = Record(lambda _, arguments: arguments, shape, "a mapping", example)
    given = shape

    def row(build: Callable[..., Relation]) -> OperatorRow:
        about = (build.__doc__ or "").partition("\n")[0]
        return OperatorRow(name, given, tuple(other_words.split()), in_loop, about, example, build, keeps_columns)

    return row


def argument(name: str, shape: Shape[Any]) -> Shape[dict[str, Any]]:
    """Return the shape of an operator with one argument, which has no key in the file."""
    return As(shape, lambda _, value: {name: value})


FUNCTION_NAME = Words(
    "a Python function",
    r"[^\W\d][\w.]*:[^\W\d]\w*",
    "write `module:function`; a column can't be called `function` here",
)
FUNCTION = {
    "function": Key(FUNCTION_NAME, required=True, about="a Python function, module:function", argument="name"),
    "columns": Key(TYPED_COLUMNS, required=True, about="the columns it returns, and their types"),
    "batch": Key(flag, about="called with a DataFrame, not with one record"),
}
EXAMPLE = "{function: 'prices:convert', columns: {price: int64}}"
PYTHON = Record(lambda _, arguments: PythonFunction(**arguments), FUNCTION, "a mapping", EXAMPLE)


@shape(lambda: {"type": ["boolean", "string", "integer"]})
def memory(node: Node, place: NodePlace, notes: Notes) -> str | None:
    """Return the name of a memory, empty for true, None for false: another name begins an empty one."""
    if isinstance(node, Scalar) and node.may_be("bool"):
        return "" if flag.read(node, place, notes) else None
    return Words("true, false or the name of a memory").read(node, place, notes).value


CALL = ByKind[dict[str, Any]](
    "a Python function",
    scalar=As(FUNCTION_NAME, lambda _, name: {"name": name}),
    mapping=Record(
        lambda _, arguments: arguments,
        {
            "call": Key(FUNCTION_NAME, required=True, about="a Python function, module:function", argument="name"),
            "memo": Key(memory, about="true: remember its results; or the name of the memory"),
            "calls": Key(Whole(1), about="the most records that a run calls it for"),
        },
        "a mapping",
        "{call: 'models:embed', memo: true}",
    ),
    hint="for example `function: 'prices:convert'`",
)
MEMOIZABLE = Record(
    lambda _, arguments: PythonFunction(**arguments.pop("called"), **arguments),
    FUNCTION
    | {
        "function": Key(
            CALL, required=True, about="a Python function, module:function, or a mapping", argument="called"
        )
    },
    "a mapping",
    EXAMPLE,
)
"""A function of single records, which may remember its results."""


def names_function(node: Node, place: NodePlace, notes: Notes, shape: Shape[Any] = FUNCTION_NAME) -> bool:
    """Return whether a mapping is about a Python function: it has the key, which then must name one."""
    for word, value in node.entries if isinstance(node, Mapping) else ():
        if word.value == "function":
            shape.read(value, place.key(word), notes)
            return True
    return False


@dataclass(eq=False, repr=False, slots=True)
class PythonOr(Shape[Any]):
    """A Python function if there is a key `function`, else something else."""

    python: Shape[Any]
    other: Shape[Any]

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Any:
        return (self.python if names_function(node, place, notes, CALL) else self.other).read(node, place, notes)

    def _schema(self) -> JsonSchema:
        return {"anyOf": [self.python.schema(), self.other.schema() | {"not": {"required": ["function"]}}]}


def defined(function: PythonFunction, arguments: int, around: BindContext) -> tuple[str, Schema]:
    """Return the name of a function and the types of its columns. Raises an error at its name if it doesn't take this number of arguments, as far as its text shows."""
    schema = {name: kind for name, (_, kind) in function.columns.items()}
    if isinstance(function.name.value, AtHand):
        return function.name.value, schema
    given = "a batch, a DataFrame" if function.batch else "a record, a dict"
    what = (
        f"one argument: {given}"
        if arguments == 1
        else "two arguments: the group's key, and its values with their counts"
    )
    return named(function.name, around.folder, arguments, what), schema


def applied_function(operands: Operands, function: PythonFunction) -> Relation:
    """Return the records that a function of a record returns."""
    name, schema = defined(function, 1, operands.around)
    if function.memo is not None:
        return Relation(_memoized(operands, function, name, schema))
    if function.calls is not None:
        hint = "set `memo: true`, too, or leave it out"
        raise SpecError("`calls` is the budget of a function that remembers", span=function.name.span, hint=hint)
    step = PythonStep(name, function.batch, tuple(schema.items()))
    return Relation(logical.Apply((operands.relation.node,), schema, step))


def _memoized(operands: Operands, function: PythonFunction, name: str, schema: Schema) -> MemoizedCalls:
    """Return the node of a function that remembers. Raises SpecError where it can't, or where another collection has its memory."""
    child, around = operands.relation.node, operands.around
    if child.free:
        problem = f"`{name}` can't remember its results in a loop, where a record comes and goes in rounds"
        raise SpecError(problem, span=function.name.span, hint="call it before the loop, or leave `memo` out")
    if not child.schema:
        raise SpecError(f"`{name}` has no column to remember its results by", span=function.name.span)
    found = MemoizedCalls((child,), schema, name, function.batch, function.memo or "", function.calls)
    if around.memories.setdefault(found.answers, found) != found:
        problem = f"`{name}` remembers its results for another collection already"
        hint = "apply it to one collection of all its arguments, and join that; or give this memory a name of its own, `memo: NAME`"
        raise SpecError(problem, span=function.name.span, hint=hint)
    return found


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


def _reduce_schema() -> JsonSchema:
    plain = {"type": "object", "properties": {"by": BY.schema()}, "additionalProperties": EXPRESSION.schema()}
    return {"anyOf": [PYTHON_REDUCE.schema(), plain | {"not": {"required": ["function"]}}]}


@shape(_reduce_schema)
def reduce_arguments(node: Node, place: NodePlace, notes: Notes) -> Arguments:
    """Return `by`, and either output columns with their aggregates or a Python function."""
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
        hint = "add a column with its aggregate, `orders: count(*)`; for the groups alone use `project` and `distinct`"
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


@operator(
    "reduce",
    "{by: [region], orders: count(*)}",
    reduce_arguments,
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
    """Count the records of each group, or of each distinct record."""
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
    """Keep each record with a positive multiplicity, once."""
    relation = operands.relation
    return relation.over(groupings.distinct(relation.node))


@operator("threshold", "least(count, 1)", argument("multiplicity", EXPRESSION), keeps_columns=True)
def threshold(operands: Operands, multiplicity: Text) -> Relation:
    """Set each record's multiplicity to the value of an expression over `count`, its present multiplicity."""
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
    """Keep the first `k` records of each group in an order. Without `by` the collection is one group."""
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
    """Add columns computed from the rows around each row, in its partition `by` and an order. `frame`: the rows that aggregates see."""
    return with_window(operands.relation, columns, by, order_by, frame)
