"""The operators under `apply`, by the table that the planner has of them, and the collections that they take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from ddcli.errors import Text
from ddcli.spec.column_shapes import REFERENCE
from ddcli.spec.operator_model import Inline, Operator, Source
from ddcli.spec.reader import JsonSchema, NodePlace, Notes, OperatorForm, Refused, Shape, suggest
from ddcli.spec.shapes import As, ByKind, Defined, Key, Many, Nothing, Record
from ddcli.spec.tree import Mapping, Node, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping as Table

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


class OneOperator(Shape[Operator]):
    """An item of `apply`: a word, or a mapping of one operator to its arguments."""

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Operator:
        if isinstance(node, Scalar) and node.kind != "null":
            word, value = node.text, Scalar(Text("", node.span), "null", plain=True, comment=node.comment)
            first = re.match(r"\w+", word.value)
            if word.value not in notes.operators and first and first[0] in notes.operators:
                problem = f"{first[0]!r} is not followed by a colon"
                hint = f"write `- {first[0]}: {word.value[first.end() :].strip(': ')}`"
                raise notes.refuse(place.path, problem, node.span, hint)
            return self._known(word, value, place, notes)
        if not isinstance(node, Mapping):
            raise notes.mismatch(node, place, "an operator", "for example `- filter: amount > 0`")
        if len(node.entries) != 1:
            raise self._not_one(node, place, notes)
        return self._known(*node.entries[0], place, notes)

    def _known(self, word: Text, value: Node, place: NodePlace, notes: Notes) -> Operator:
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

    def _not_one(self, node: Mapping, place: NodePlace, notes: Notes) -> Refused:
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

    def _schema(self) -> JsonSchema:
        return {"$ref": "#/$defs/operator"}


LISTED = Many(OneOperator(), "a list of operators", least=0)


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
