"""The shapes that inputs, operators, outputs and tests have in common: names, columns, expressions, orders, and operators under `apply` with the collections that they take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ddcli.dataclass import dataclass
from ddcli.errors import Text
from ddcli.spec import operator_model
from ddcli.spec.operator_model import Inline, Operator, Source
from ddcli.spec.reader import JsonSchema, NodePlace, Notes, OperatorForm, Refused, Shape, shape, suggest
from ddcli.spec.shapes import As, ByKind, Defined, Key, Many, Nothing, Pairs, Record
from ddcli.spec.tree import Mapping, Node, Scalar
from ddcli.spec.values import ColumnName, ExpressionText, PathWords, ReferenceName, Words, column_type, flag

if TYPE_CHECKING:
    from collections.abc import Mapping as Table

    from ddcli.expressions.types import Type


LETTERS = "letters, digits, `_` and `-`"
NAME = PathWords("a name", r"\w[\w-]*", f"a name is made of {LETTERS}")
ALIAS = Words("a name", r"[^\W\d]\w*", "a name that qualifies columns is made of letters, digits and `_`")
COLUMN = ColumnName("a column's name")
REFERENCE = ReferenceName(Words("the name of an input or collection"))
EXPRESSION = ExpressionText()
COLUMNS = Many(COLUMN, "a list of columns", distinct=True, alone=True)
ASSIGNMENTS = Pairs(COLUMN, EXPRESSION, "a mapping of columns to expressions")


def _columns(_: NodePlace, pairs: tuple[tuple[Text, Any], ...]) -> operator_model.Columns:
    return {name.value: (name, type_) for name, type_ in pairs}


TYPED_COLUMNS = As(Pairs(COLUMN, column_type, "a mapping of columns to types"), _columns)
TAG = Words("a tag", r"\w[\w-]*", f"a tag is made of {LETTERS}")


class InputColumn(NamedTuple):
    """A column of an input: its type, its tags, the other names that files have for it, and whether a file may lack it. Without a type the column has tags alone."""

    type: Type | None
    tags: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    optional: bool = False


_TAGGED = {
    "type": Key(column_type, about="the column's type; it may be left out where all columns have tags alone"),
    "tags": Key(
        Many(TAG, "a list of tags", distinct=True, alone=True),
        about="words such as pii: commands that show rows show a digest of the column's values, unless `--show TAG` asks for them",
    ),
}
_IN_FILES = _TAGGED | {
    "from": Key(COLUMNS, about="other names that files have for the column", argument="former"),
    "optional": Key(flag, about="files may lack the column: it is null in their rows"),
}


def _input_column(_: NodePlace, arguments: dict[str, Any]) -> InputColumn:
    texts = {name: tuple(text.value for text in arguments[name]) for name in ("tags", "former") if name in arguments}
    return InputColumn(**{"type": None} | arguments | texts)


@dataclass(eq=False, repr=False, slots=True)
class InputColumns(Shape[tuple[tuple[Text, InputColumn], ...]]):
    """The columns of an input: each has a type, with more about it or not, or all have tags alone. Of a table they are not `in_files`."""

    in_files: bool = True

    @property
    def _pairs(self) -> Pairs[InputColumn]:
        keys, more = (_IN_FILES, "and names, tags or `optional`") if self.in_files else (_TAGGED, "and tags")
        mapping = Record(_input_column, keys, f"a type, {more}", "{type: string, tags: [pii]}", 1)
        typed = As(column_type, lambda _, kind: InputColumn(kind))
        return Pairs(COLUMN, ByKind("a type", scalar=typed, mapping=mapping), "a mapping of columns to types")

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> tuple[tuple[Text, InputColumn], ...]:
        found = self._pairs.read(node, place, notes)
        untyped = [name for name, column in found if column.type is None]
        for name, column in found:
            if column.type is None and (len(untyped) < len(found) or column != InputColumn(None, column.tags)):
                hint = (
                    "a column has a type; or all have `tags` alone, `{email: {tags: [pii]}}`, and files state the types"
                )
                notes.refuse(f"{place.path}.{name.value}", "the key 'type' is missing", name.span, hint)
                raise Refused
        return found

    def _schema(self) -> JsonSchema:
        return self._pairs.schema()


def declared(found: tuple[tuple[Text, InputColumn], ...]) -> dict[str, Any]:
    """Return the arguments of an input that its columns decide: their types, tags, and other names; without types `columns` stays undeclared."""
    columns = {name.value: (name, each.type) for name, each in found if each.type is not None}
    return {
        "columns": columns or None,
        "former": {name.value: each.former for name, each in found if each.former},
        "optional": tuple(name.value for name, each in found if each.optional),
        "tags": {name.value: each.tags for name, each in found if each.tags},
    }


BY: Shape[tuple[operator_model.GroupColumn, ...]] = ByKind(
    "a list of columns, or a mapping of names to expressions",
    scalar=As(COLUMN, lambda _, name: (operator_model.GroupColumn(name),)),
    sequence=As(
        Many(COLUMN, "a list of columns", least=0, distinct=True),
        lambda _, names: tuple(map(operator_model.GroupColumn, names)),
    ),
    mapping=As(ASSIGNMENTS, lambda _, pairs: tuple(operator_model.GroupColumn(*pair) for pair in pairs)),
    hint="write `by: [region]` or `by: {day: cast(placed_at as date)}`",
)
ON: Shape[tuple[tuple[Text, Text], ...]] = ByKind(
    "a list of common columns, or a mapping of left to right columns",
    scalar=As(COLUMN, lambda _, name: ((name, name),)),
    sequence=As(COLUMNS, lambda _, names: tuple((name, name) for name in names)),
    mapping=Pairs(COLUMN, COLUMN, "a mapping of left to right columns"),
    hint="write `on: [customer_id]` or `on: {manager: employee}`",
)


def _order(_: NodePlace, text: Text) -> operator_model.Order:
    match = re.fullmatch(r"(?is)(.*?\S)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", text.value)
    if match is None or not (match[2] or match[3]):
        return operator_model.Order(text)
    nulls_first = (match[3] or "").lower() == "first"
    return operator_model.Order(Text(match[1], text.span, text.inset), (match[2] or "").lower() == "desc", nulls_first)


ORDER = Many(As(EXPRESSION, _order), "a list of expressions", alone=True)


K = TypeVar("K")


def _inline(place: NodePlace, arguments: dict[str, Any]) -> Inline:
    return Inline(arguments["sources"], arguments.get("apply", ()), place.word.span, place.path)


def one(_: NodePlace, value: K) -> tuple[K]:
    """Return one value as several."""
    return (value,)


def _source() -> Shape[Source]:
    return SOURCE


def _operators() -> Shape[tuple[Operator, ...]]:
    return LISTED


APPLY: Shape[tuple[Operator, ...]] = Defined("apply", _operators)
A_SOURCE: Shape[Any] = Defined("source", _source)
SOURCES: Shape[tuple[Source, ...]] = ByKind(
    "a name, a list of names, or a collection in place",
    scalar=As(A_SOURCE, one),
    mapping=As(A_SOURCE, one),
    sequence=Many(A_SOURCE, "a list of names"),
)
FLOW = {
    "from": Key(SOURCES, required=True, about="input or collection, or several that are added up", argument="sources"),
    "apply": Key(APPLY, about="operators, from top to bottom"),
}
INLINE: Shape[Any] = Record(_inline, FLOW, "a name or a collection", "{from: orders, apply: [distinct]}")
SOURCE: Shape[Any] = ByKind("a name or a collection in place", scalar=REFERENCE, mapping=INLINE)


@shape(lambda: {"$ref": "#/$defs/operator"})
def one_operator(node: Node, place: NodePlace, notes: Notes) -> Operator:
    """Return an item of `apply`: a word, or a mapping of one operator to its arguments."""
    if isinstance(node, Scalar) and node.kind != "null":
        word, value = node.text, Scalar(Text("", node.span), "null", plain=True, comment=node.comment)
        first = re.match(r"\w+", word.value)
        if word.value not in notes.operators and first and first[0] in notes.operators:
            problem = f"{first[0]!r} is not followed by a colon"
            hint = f"write `- {first[0]}: {word.value[first.end() :].strip(': ')}`"
            raise notes.refuse(place.path, problem, node.span, hint)
        return _known(word, value, place, notes)
    if not isinstance(node, Mapping):
        raise notes.mismatch(node, place, "an operator", "for example `- filter: amount > 0`")
    if len(node.entries) != 1:
        raise _not_one(node, place, notes)
    return _known(*node.entries[0], place, notes)


def _known(word: Text, value: Node, place: NodePlace, notes: Notes) -> Operator:
    form = notes.operators.get(word.value)
    if form is None:
        listed = f"(operators: {', '.join(notes.operators)})"
        hint = suggest(word.value, notes.operators, listed)
        meant = word.value.lower().replace("_", "")
        for other in notes.operators.values():
            if meant in other.other_words:
                hint = f"that is `{other.name}` here {listed}"
        raise notes.refuse(place.path, f"unknown operator {word.value!r}", word.span, hint)
    inner = place.entry(word)
    if form.in_loop:
        notes.entering.append(inner)
    arguments = form.shape.read(value, inner, notes)
    inputs = arguments.pop("inputs", ())
    return Operator(form.name, arguments, word.span, inner.path, inputs)


def _not_one(node: Mapping, place: NodePlace, notes: Notes) -> Refused:
    """Refuse a mapping of no or several keys: mostly a wrong indentation or a missing dash."""
    words = [word.value for word, _ in node.entries]
    if not words:
        return notes.refuse(place.path, "must be an operator, found an empty mapping", node.span)
    second = node.entries[1][0]
    if second.value in notes.operators:
        hint = f"begin each operator with a dash: `- {second.value}: ...`"
    else:
        hint = f"indent what belongs to `{words[0]}` further than `{words[0]}` itself"
    listed = ", ".join(repr(word) for word in words)
    return notes.refuse(place.path, f"one item is one operator, found {listed}", second.span, hint)


LISTED = Many(one_operator, "a list of operators", least=0)


def operator_schema(operators: Table[str, OperatorForm]) -> JsonSchema:
    """Return the JSON Schema of an item of `apply`: a word alone, or a mapping of one operator to its arguments."""
    known = [{"properties": {name: form.shape.schema()}, "required": [name]} for name, form in operators.items()]
    return {
        "anyOf": [
            {"enum": [name for name, form in operators.items() if _needs_nothing(form.shape)]},
            *({"type": "object"} | each | {"additionalProperties": False} for each in known),
        ]
    }


def _needs_nothing(shape: Shape[Any]) -> bool:
    return isinstance(shape, Nothing) or (isinstance(shape, ByKind) and shape.nothing is not None)
