"""The operators: each with its shape, in one table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from ddcli.dataclass import dataclass
from ddcli.errors import Text
from ddcli.spec import operator_model
from ddcli.spec.column_shapes import (
    ALIAS,
    ASSIGNMENTS,
    BY,
    COLUMN,
    COLUMNS,
    EXPRESSION,
    NAME,
    ON,
    ORDER,
    REFERENCE,
    TYPED_COLUMNS,
)
from ddcli.spec.reader import JsonSchema, NodePlace, Notes, Refused, Shape, suggest
from ddcli.spec.shapes import As, ByKind, Defined, Key, Many, Nothing, Pairs, Record
from ddcli.spec.tree import Mapping, Node, Scalar
from ddcli.spec.values import Choice, ExpressionText, Flag, Whole, Words

if TYPE_CHECKING:
    from collections.abc import Callable

O = TypeVar("O", bound=operator_model.Operator)  # noqa: E741
K = TypeVar("K")


def operator(kind: Callable[..., O], argument: str, shape: Shape[K]) -> Shape[O]:
    """Return the shape of an operator with one argument, which has no key."""
    return As(shape, lambda place, value: kind(**{argument: value}, span=place.word.span, place=place.path))


def record(kind: Callable[..., O], keys: dict[str, Key], example: str) -> Shape[O]:
    """Return the shape of an operator that has several named arguments."""

    def build(place: NodePlace, arguments: dict[str, Any]) -> O:
        return kind(**arguments, span=place.word.span, place=place.path)

    return Record(build, keys, "a mapping", example)


def bare(kind: Callable[..., O]) -> Shape[O]:
    """Return the shape of an operator without arguments."""
    return Nothing(lambda place: kind(span=place.word.span, place=place.path))


def _inline(place: NodePlace, arguments: dict[str, Any]) -> operator_model.Inline:
    return operator_model.Inline(arguments["sources"], arguments.get("apply", ()), place.word.span, place.path)


def _function(_: NodePlace, arguments: dict[str, Any]) -> operator_model.PythonFunction:
    return operator_model.PythonFunction(**arguments)


def _one(_: NodePlace, value: K) -> tuple[K]:
    return (value,)


def _source() -> Shape[operator_model.Source]:
    return SOURCE


def _operators() -> Shape[tuple[operator_model.Operator, ...]]:
    return Many(OneOperator(), "a list of operators", least=0)


APPLY: Shape[tuple[operator_model.Operator, ...]] = Defined("apply", _operators)
A_SOURCE: Shape[Any] = Defined("source", _source)
SOURCES: Shape[tuple[operator_model.Source, ...]] = ByKind(
    "a name, a list of names, or a collection in place",
    scalar=As(A_SOURCE, _one),
    mapping=As(A_SOURCE, _one),
    sequence=Many(A_SOURCE, "a list of names"),
)
FLOW = {
    "from": Key(SOURCES, required=True, about="input or collection, or several that are added up", argument="sources"),
    "apply": Key(APPLY, about="operators, from top to bottom"),
}
INLINE: Shape[Any] = Record(_inline, FLOW, "a name or a collection", "{from: orders, apply: [distinct]}")
SOURCE: Shape[Any] = ByKind("a name or a collection in place", scalar=REFERENCE, mapping=INLINE)

FUNCTION_NAME = Words(
    "a Python function",
    r"[^\W\d][\w.]*:[^\W\d]\w*",
    "write `module:function`; a column can't be called `function` here",
)
FUNCTION = {
    "function": Key(FUNCTION_NAME, required=True, about="a Python function, module:function", argument="name"),
    "columns": Key(TYPED_COLUMNS, required=True, about="the columns it returns, and their types"),
    "batch": Key(Flag(), about="called with a DataFrame, not with one record"),
}
PYTHON = Record(_function, FUNCTION, "a mapping", "{function: 'prices:convert', columns: {price: int64}}")


def names_function(node: Node, place: NodePlace, notes: Notes) -> bool:
    """Return whether a mapping is about a Python function: it has the key, which then must name one."""
    for word, value in node.entries if isinstance(node, Mapping) else ():
        if word.value == "function":
            FUNCTION_NAME.read(value, place.key(word), notes)
            return True
    return False


def _python_reduce(place: NodePlace, arguments: dict[str, Any]) -> operator_model.PythonReduce:
    by, values = arguments.pop("by", ()), arguments.pop("values", None)
    function = operator_model.PythonFunction(**arguments)
    return operator_model.PythonReduce(by, function, values, span=place.word.span, place=place.path)


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


class ReduceSpec(Shape[operator_model.Reduce | operator_model.PythonReduce]):
    """`by`, and either output columns with their aggregates or a Python function."""

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> operator_model.Reduce | operator_model.PythonReduce:
        if not isinstance(node, Mapping):
            raise notes.mismatch(node, place, "a mapping", "for example `reduce: {by: [region], orders: count(*)}`")
        if names_function(node, place, notes):
            return PYTHON_REDUCE.read(node, place, notes)
        by: tuple[operator_model.GroupColumn, ...] = ()
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
        return operator_model.Reduce(by, columns, span=place.word.span, place=place.path)

    def _schema(self) -> JsonSchema:
        plain = {"type": "object", "properties": {"by": BY.schema()}, "additionalProperties": EXPRESSION.schema()}
        return {"anyOf": [PYTHON_REDUCE.schema(), plain | {"not": {"required": ["function"]}}]}


@dataclass(eq=False, repr=False, slots=True)
class PythonOr(Shape[Any]):
    """A Python function if there is a key `function`, else something else."""

    python: Shape[Any]
    other: Shape[Any]

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Any:
        return (self.python if names_function(node, place, notes) else self.other).read(node, place, notes)

    def _schema(self) -> JsonSchema:
        return {"anyOf": [self.python.schema(), self.other.schema() | {"not": {"required": ["function"]}}]}


def _flat_map(place: NodePlace, pairs: tuple[tuple[Text, Text], ...]) -> operator_model.FlatMap:
    return operator_model.FlatMap(*pairs[0], span=place.word.span, place=place.path)


WITH = Key(A_SOURCE, required=True, about="input or collection on the right", argument="right")
ON_KEY = Key(ON, required=True, about="common columns, or left column: right column")
RENAMES = Pairs(COLUMN, COLUMN, "a mapping of old to new names")
ONE_TABLE = Pairs(
    COLUMN, ExpressionText("unnest(...) or generate_series(...)"), "one column and its table expression", most=1
)
COUNT = {
    "by": Key(COLUMNS, about="the groups; without: each distinct record is counted"),
    "as": Key(As(COLUMN, lambda _, text: text.value), about="the column with the count", argument="name"),
}
TOP_K = {
    "by": Key(COLUMNS, about="the groups; without: the whole collection is one"),
    "k": Key(Whole(1), required=True, about="how many to keep of each group"),
    "order_by": Key(ORDER, required=True, about="`amount desc`"),
}
WINDOW = {
    "by": Key(COLUMNS, about="the partitions; without: the whole collection is one"),
    "order_by": Key(ORDER, about="`placed_at desc nulls last`"),
    "frame": Key(ExpressionText("a frame"), about="`rows between 2 preceding and current row`"),
    "columns": Key(ASSIGNMENTS, required=True, about="columns to add: `n: row_number()`, `change: x - lag(x)`"),
}
JOIN = {
    "with": WITH,
    "as": Key(ALIAS, about="qualifies the right side's columns", argument="name"),
    "on": ON_KEY,
    "how": Key(Choice("kind of join", ("inner", "left", "right", "full"))),
}
ASOF_JOIN = {
    "with": WITH,
    "as": Key(ALIAS, about="qualifies the right side's columns", argument="name"),
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
    "how": Key(Choice("kind of as-of join", ("inner", "left"))),
    "direction": Key(
        Choice("direction", ("backward", "forward")), about="the last at or before (default), or the first at or after"
    ),
    "strict": Key(Flag(), about="an equal value is no match"),
}
WHILE = {
    "from": Key(EXPRESSION, about="the first time of a record; without: always before `until`", argument="lower"),
    "until": Key(EXPRESSION, about="the first time at which it is gone; without: never gone", argument="upper"),
}
TEMPORAL_FILTER: Shape[operator_model.TemporalFilter] = Record(
    lambda place, arguments: operator_model.TemporalFilter(**arguments, span=place.word.span, place=place.path),
    WHILE,
    "a mapping with `from`, `until` or both",
    "temporal_filter: {from: placed_at, until: closed_at}",
    least=1,
)


class EnterScope(Shape[operator_model.Enter]):
    """The round in which a record enters the loop around."""

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> operator_model.Enter:
        notes.entering.append(place)
        return ENTER.read(node, place, notes)

    def _schema(self) -> JsonSchema:
        return ENTER.schema()


AT = Key(EXPRESSION, required=True, about="the round, an integer; below 0 it is the first")
ENTER = record(operator_model.Enter, {"at": AT}, "enter: {at: priority}")

OPERATORS: dict[str, Shape[Any]] = {
    "map": PythonOr(
        operator(operator_model.PythonMap, "function", PYTHON), operator(operator_model.Map, "columns", ASSIGNMENTS)
    ),
    "extend": operator(operator_model.Extend, "columns", ASSIGNMENTS),
    "project": operator(operator_model.Project, "columns", COLUMNS),
    "drop": operator(operator_model.Drop, "columns", COLUMNS),
    "rename": operator(operator_model.Rename, "columns", RENAMES),
    "filter": operator(operator_model.Filter, "condition", ExpressionText("a condition")),
    "flat_map": PythonOr(operator(operator_model.PythonFlatMap, "function", PYTHON), As(ONE_TABLE, _flat_map)),
    "explode": operator(operator_model.Explode, "weight", EXPRESSION),
    "negate": bare(operator_model.Negate),
    "concat": operator(operator_model.Concat, "sources", SOURCES),
    "consolidate": bare(operator_model.Consolidate),
    "join": record(operator_model.Join, JOIN, "join: {with: customers, on: [customer_id]}"),
    "asof_join": record(
        operator_model.AsofJoin, ASOF_JOIN, "asof_join: {with: quotes, on: [symbol], at: time, as: quote}"
    ),
    "semijoin": record(
        operator_model.Semijoin, {"with": WITH, "on": ON_KEY}, "semijoin: {with: customers, on: [customer_id]}"
    ),
    "antijoin": record(
        operator_model.Antijoin, {"with": WITH, "on": ON_KEY}, "antijoin: {with: customers, on: [customer_id]}"
    ),
    "reduce": ReduceSpec(),
    "count": ByKind(
        "nothing or a mapping",
        nothing=bare(operator_model.Count),
        mapping=record(operator_model.Count, COUNT, "count: {by: [region]}"),
    ),
    "distinct": bare(operator_model.Distinct),
    "threshold": operator(operator_model.Threshold, "multiplicity", EXPRESSION),
    "top_k": record(operator_model.TopK, TOP_K, "top_k: {by: [region], k: 3, order_by: [amount desc]}"),
    "window": record(
        operator_model.Window, WINDOW, "window: {by: [region], order_by: [placed_at], columns: {n: row_number()}}"
    ),
    "temporal_filter": TEMPORAL_FILTER,
    "join_function": operator(operator_model.JoinFunction, "function", PYTHON),
    "enter": EnterScope(),
    "arrange": record(
        operator_model.Arrange,
        {"by": Key(COLUMNS, required=True), "export": Key(NAME, about="its name for the pipelines that import it")},
        "arrange: {by: [customer_id]}",
    ),
    "inspect": operator(operator_model.Inspect, "label", Words("a label")),
}
BARE = ("negate", "consolidate", "count", "distinct")


ELSEWHERE = {
    **dict.fromkeys(("select", "transform"), "map"),
    **dict.fromkeys(("withcolumn", "withcolumns", "assign", "mutate", "derive"), "extend"),
    **dict.fromkeys(("where", "having"), "filter"),
    **dict.fromkeys(("groupby", "aggregate", "agg", "summarize", "summarise"), "reduce"),
    **dict.fromkeys(("union", "unionall", "append"), "concat"),
    **dict.fromkeys(("limit", "sort", "orderby", "head", "top"), "top_k"),
    **dict.fromkeys(("over", "partitionby", "rank", "rownumber", "lag", "lead"), "window"),
    **dict.fromkeys(("unique", "dedupe", "deduplicate", "dropduplicates"), "distinct"),
    **dict.fromkeys(("unnest", "flatten", "lateral"), "flat_map"),
    **dict.fromkeys(("leftjoin", "innerjoin", "rightjoin", "outerjoin", "fulljoin", "lookup"), "join"),
    **dict.fromkeys(("joinasof", "asof", "mergeasof"), "asof_join"),
    **dict.fromkeys(("anti", "except", "minus"), "antijoin"),
    **dict.fromkeys(("semi", "intersect", "exists"), "semijoin"),
    **dict.fromkeys(("debug", "print", "log", "tap"), "inspect"),
}
"""The names of operators in SQL and in data frames, without underscores."""


class OneOperator(Shape[operator_model.Operator]):
    """An item of `apply`: a word, or a mapping of one operator to its arguments."""

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> operator_model.Operator:
        if isinstance(node, Scalar) and node.kind != "null":
            word, value = node.text, Scalar(Text("", node.span), "null", plain=True, comment=node.comment)
            first = re.match(r"\w+", word.value)
            if word.value not in OPERATORS and first and first[0] in OPERATORS:
                problem = f"{first[0]!r} is not followed by a colon"
                hint = f"write `- {first[0]}: {word.value[first.end() :].strip(': ')}`"
                raise notes.refuse(place.path, problem, node.span, hint)
            return self._known(word, value, place, notes)
        if not isinstance(node, Mapping):
            raise notes.mismatch(node, place, "an operator", "for example `- filter: amount > 0`")
        if len(node.entries) != 1:
            raise self._not_one(node, place, notes)
        return self._known(*node.entries[0], place, notes)

    def _known(self, word: Text, value: Node, place: NodePlace, notes: Notes) -> operator_model.Operator:
        shape = OPERATORS.get(word.value)
        if shape is None:
            listed = f"(operators: {', '.join(OPERATORS)})"
            hint = suggest(word.value, OPERATORS, listed)
            if meant := ELSEWHERE.get(word.value.lower().replace("_", "")):
                hint = f"that is `{meant}` here {listed}"
            raise notes.refuse(place.path, f"unknown operator {word.value!r}", word.span, hint)
        found: operator_model.Operator = shape.read(value, place.entry(word), notes)
        return found

    def _not_one(self, node: Mapping, place: NodePlace, notes: Notes) -> Refused:
        """Refuse a mapping of no or several keys: mostly a wrong indentation or a missing dash."""
        words = [word.value for word, _ in node.entries]
        if not words:
            return notes.refuse(place.path, "must be an operator, found an empty mapping", node.span)
        second = node.entries[1][0]
        if second.value in OPERATORS:
            hint = f"begin each operator with a dash: `- {second.value}: ...`"
        else:
            hint = f"indent what belongs to `{words[0]}` further than `{words[0]}` itself"
        listed = ", ".join(repr(word) for word in words)
        return notes.refuse(place.path, f"one item is one operator, found {listed}", second.span, hint)

    def _schema(self) -> JsonSchema:
        known = [{"properties": {name: shape.schema()}, "required": [name]} for name, shape in OPERATORS.items()]
        return {
            "anyOf": [
                {"enum": list(BARE)},
                *({"type": "object"} | one | {"additionalProperties": False} for one in known),
            ]
        }
