"""What a value of a pipeline file may look like: one description that both checks it and gives its JSON Schema.

A shape reads a node into a value of the model. What is wrong goes to the `Notes`, with its place, and `Refused` is
raised; whoever reads several things goes on with the next, so that one pass finds everything.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ddcli.errors import Span, SpecError, Text, did_you_mean
from ddcli.expressions.types import ALIASES, SIMPLE, Type, parse_type
from ddcli.spec.traps import unfinished
from ddcli.spec.tree import Broken, Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
K = TypeVar("K")
JsonSchema = dict[str, Any]

TYPE_NAMES = (*SIMPLE, *ALIASES, "decimal(12, 2)", "datetime[us]", "datetime[us, UTC]", "duration[us]", "list[string]")


class Refused(Exception):  # noqa: N818 -- not an error to show: it was noted where it was found
    """The value could not be read; why is in the notes."""


@dataclass(eq=False, repr=False, slots=True)
class Place:
    """Where the reader is: a path, the word in the file that leads there, and the path of the thing it belongs to."""

    path: str
    word: Text
    owner: str

    def key(self, word: Text) -> Place:
        """Return the place of a value under a key of a fixed set, which belongs to the same thing."""
        return Place(f"{self.path}.{word.value}" if self.path else word.value, word, self.path)

    def entry(self, word: Text) -> Place:
        """Return the place of a thing of its own, under the name or operator that the user wrote."""
        path = f"{self.path}.{word.value}" if self.path else word.value
        return Place(path, word, path)

    def item(self, index: int, node: Node) -> Place:
        """Return the place of a list's item."""
        return Place(f"{self.path}[{index}]", Text(str(index), node.span), self.owner)


@dataclass(eq=False, repr=False, slots=True)
class Reference:
    """A name that must be an input's or a collection's, and the path of the thing that uses it."""

    name: Text
    owner: str


@dataclass(eq=False, repr=False, slots=True)
class Notes:
    """What reading finds besides values."""

    errors: list[SpecError] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)

    def refuse(self, path: str, problem: str, span: Span, hint: str | None = None) -> Refused:
        """Note an error; the caller raises what this returns, or goes on."""
        self.errors.append(SpecError(f"{path}: {problem}" if path else problem, span=span, hint=hint))
        return Refused()

    def mismatch(self, node: Node, place: Place, wants: str, hint: str | None = None) -> Refused:
        """Note that a node is not of the kind that is wanted here."""
        return self.refuse(place.path, f"wants {wants}, found {describe(node)}", span_of(node, place), hint)


def describe(node: Node) -> str:
    """Return a word for what a node is."""
    if isinstance(node, Scalar):
        return "nothing" if node.kind == "null" else repr(node.text.value)
    return "a list" if isinstance(node, Sequence) else "a mapping"


def span_of(node: Node, place: Place) -> Span:
    """Return where to point for a node: what isn't there is shown at the word that leads to it."""
    empty = isinstance(node, Scalar) and not node.text.value
    return place.word.span if empty else node.span


class Shape(ABC, Generic[T]):
    """What a value may look like. Subclasses say it twice, side by side: `_read` and `_schema` accept the same."""

    def read(self, node: Node, place: Place, notes: Notes) -> T:
        """Return the value that a node says, or note what is wrong and raise `Refused`."""
        if isinstance(node, Broken):
            raise Refused
        return self._read(node, place, notes)

    def schema(self) -> JsonSchema:
        """Return the JSON Schema of what is read."""
        return self._schema()

    @abstractmethod
    def _read(self, node: Node, place: Place, notes: Notes) -> T: ...

    @abstractmethod
    def _schema(self) -> JsonSchema: ...


@dataclass(eq=False, repr=False, slots=True)
class Words(Shape[Text]):
    """Plain text. `pattern` it must match wholly, which `rule` tells in words."""

    wants: str
    pattern: str = r"(?s).+"
    rule: str = ""

    def _read(self, node: Node, place: Place, notes: Notes) -> Text:
        if not isinstance(node, Scalar) or node.kind == "null" or not node.text.value:
            raise notes.mismatch(node, place, self.wants)
        if node.kind in ("bool", "float"):
            raise notes.mismatch(node, place, self.wants, f"quote it if you mean the text: '{node.text.value}'")
        self.check(node.text, place, notes)
        return node.text

    def check(self, text: Text, place: Place, notes: Notes) -> None:
        """Refuse a text that doesn't match the pattern."""
        if not re.fullmatch(self.pattern, text.value):
            raise notes.refuse(place.path, f"{text.value!r} can't be {self.wants}", text.span, self.rule or None)

    def _schema(self) -> JsonSchema:
        return {"type": ["string", "integer"], "minLength": 1}


@dataclass(eq=False, repr=False, slots=True)
class Expression(Shape[Text]):
    """An SQL expression, kept as text."""

    wants: str = "an expression"

    def _read(self, node: Node, place: Place, notes: Notes) -> Text:
        if isinstance(node, Sequence) and not node.flow:
            raise notes.mismatch(node, place, self.wants, "combine conditions with `and`")
        if not isinstance(node, Scalar):
            raise notes.mismatch(node, place, self.wants, "quote an expression that has brackets or braces")
        text = node.text
        if node.comment and (node.kind == "null" or (node.plain and unfinished(text.value))):
            raise notes.refuse(
                place.path, "` #` cuts the expression: a comment begins here", node.comment, "quote the expression"
            )
        if node.kind == "null" and text.value:
            hint = "for the SQL null say of which type: cast(null as int64)"
            raise notes.refuse(place.path, f"wants {self.wants}, found YAML's {text.value!r}", text.span, hint)
        if not text.value.strip():
            hint = "quote an expression that has a comma or begins with a special character"
            raise notes.mismatch(node, place, self.wants, hint)
        return text

    def _schema(self) -> JsonSchema:
        return {"type": ["string", "integer", "number", "boolean"], "minLength": 1, "description": "an SQL expression"}


@dataclass(eq=False, repr=False, slots=True)
class Whole(Shape[int]):
    """An integer, not below a least one."""

    least: int

    def _read(self, node: Node, place: Place, notes: Notes) -> int:
        wants = f"a whole number from {self.least}"
        if not isinstance(node, Scalar) or node.kind != "int":
            raise notes.mismatch(node, place, wants)
        text = node.text.value
        value = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        if value < self.least:
            raise notes.mismatch(node, place, wants)
        return value

    def _schema(self) -> JsonSchema:
        return {"type": "integer", "minimum": self.least}


class Flag(Shape[bool]):
    """True or false, and nothing that only looks like it."""

    def _read(self, node: Node, place: Place, notes: Notes) -> bool:
        if not isinstance(node, Scalar) or node.kind != "bool":
            hint = None
            if isinstance(node, Scalar) and (said := {"yes": "true", "on": "true"}.get(node.text.value.lower())):
                hint = f"write `{said}`"
            elif isinstance(node, Scalar) and node.text.value.lower() in ("no", "off"):
                hint = "write `false`"
            raise notes.mismatch(node, place, "true or false", hint)
        return node.text.value.lower() == "true"

    def _schema(self) -> JsonSchema:
        return {"type": "boolean"}


@dataclass(eq=False, repr=False, slots=True)
class Choice(Shape[str]):
    """One word of a few."""

    what: str
    words: tuple[str, ...]

    def _read(self, node: Node, place: Place, notes: Notes) -> str:
        listed = f"(known: {', '.join(self.words)})"
        if not isinstance(node, Scalar) or node.kind == "null":
            raise notes.mismatch(node, place, f"a {self.what}", f"one of {', '.join(self.words)}")
        if node.text.value not in self.words:
            problem = f"unknown {self.what} {node.text.value!r}"
            raise notes.refuse(place.path, problem, node.span, suggest(node.text.value, self.words, listed))
        return node.text.value

    def _schema(self) -> JsonSchema:
        return {"enum": list(self.words)}


class ColumnType(Shape[Type]):
    """The type of a column."""

    def _read(self, node: Node, place: Place, notes: Notes) -> Type:
        if not isinstance(node, Scalar) or not node.text.value:
            raise notes.mismatch(node, place, "a type", 'for example int64, string?, "decimal(12, 2)"')
        text = node.text.value
        if read := parse_type(text):
            return read
        listed = (
            f"(types: {', '.join(SIMPLE)}, decimal(p, s), datetime[us], duration[us], list[...]; a `?` allows nulls)"
        )
        bare = text.strip().removesuffix("?").lower()
        raise notes.refuse(place.path, f"unknown type {text!r}", node.span, suggest(bare, TYPE_NAMES, listed))

    def _schema(self) -> JsonSchema:
        return {
            "type": ["string", "null"],
            "minLength": 1,
            "examples": ["int64", "string?", "decimal(12, 2)", "datetime[us]"],
        }


@dataclass(eq=False, repr=False, slots=True)
class Referring(Shape[Text]):
    """The name of an input or collection; that there is one is checked when all names are known."""

    words: Words

    def _read(self, node: Node, place: Place, notes: Notes) -> Text:
        text = self.words.read(node, place, notes)
        notes.references.append(Reference(text, place.owner))
        return text

    def _schema(self) -> JsonSchema:
        return self.words.schema()


@dataclass(eq=False, repr=False, slots=True)
class Many(Shape[tuple[T, ...]]):
    """A list. `distinct`: no item is written twice."""

    each: Shape[T]
    wants: str
    least: int = 1
    distinct: bool = False

    def _read(self, node: Node, place: Place, notes: Notes) -> tuple[T, ...]:
        if not isinstance(node, Sequence):
            hint = f"write `[{node.text.value}]`" if isinstance(node, Scalar) and node.kind != "null" else None
            raise notes.mismatch(node, place, self.wants, hint)
        if len(node.items) < self.least:
            raise notes.refuse(place.path, f"wants {self.wants}, found an empty one", node.span)
        values, seen, wrong = [], set[str](), False
        for index, item in enumerate(node.items):
            try:
                values.append(self.each.read(item, place.item(index, item), notes))
            except Refused:
                wrong = True
            if self.distinct and isinstance(item, Scalar):
                if item.text.value in seen:
                    notes.refuse(place.path, f"{item.text.value!r} is listed twice", item.span, "keep one of the two")
                    wrong = True
                seen.add(item.text.value)
        if wrong:
            raise Refused
        return tuple(values)

    def _schema(self) -> JsonSchema:
        found: JsonSchema = {"type": "array", "items": self.each.schema()}
        found |= {"minItems": self.least} if self.least else {}
        return found | ({"uniqueItems": True} if self.distinct else {})


@dataclass(eq=False, repr=False, slots=True)
class Pairs(Shape[tuple[tuple[Text, T], ...]]):
    """A mapping whose keys the user chooses. `things`: each entry is a thing of its own, not a part of one."""

    name: Words
    each: Shape[T]
    wants: str
    things: bool = False
    least: int = 1
    most: int | None = None

    def _read(self, node: Node, place: Place, notes: Notes) -> tuple[tuple[Text, T], ...]:
        if not isinstance(node, Mapping):
            raise notes.mismatch(node, place, self.wants)
        if len(node.entries) < self.least:
            raise notes.refuse(place.path, f"wants {self.wants}, found an empty one", node.span)
        if self.most is not None and len(node.entries) > self.most:
            extra = node.entries[self.most][0]
            raise notes.refuse(place.path, f"wants {self.wants}, found {extra.value!r} too", extra.span)
        pairs, wrong = [], False
        for key, value in node.entries:
            try:
                inner = place.entry(key) if self.things else replace(place.key(key), owner=place.owner)
                self.name.check(key, replace(place, path=inner.path), notes)
                pairs.append((key, self.each.read(value, inner, notes)))
            except Refused:
                wrong = True
        if wrong:
            raise Refused
        return tuple(pairs)

    def _schema(self) -> JsonSchema:
        found: JsonSchema = {"type": "object", "additionalProperties": self.each.schema()}
        found |= {"minProperties": self.least} if self.least else {}
        return found | ({"maxProperties": self.most} if self.most is not None else {})


@dataclass(eq=False, repr=False, slots=True)
class Key:
    """A key of a `Record`: the argument it becomes, its shape, whether it must be there, what it is for."""

    argument: str
    shape: Shape[Any]
    required: bool = False
    about: str = ""


@dataclass(eq=False, repr=False, slots=True)
class Record(Shape[T]):
    """A mapping with known keys, built by `build(place, arguments)`. `example` shows a right one."""

    build: Callable[[Place, dict[str, Any]], T]
    keys: dict[str, Key]
    wants: str
    example: str

    def _read(self, node: Node, place: Place, notes: Notes) -> T:
        if not isinstance(node, Mapping):
            raise notes.mismatch(node, place, self.wants, f"for example `{self.example}`")
        found, wrong = {}, False
        for word, value in node.entries:
            key = self.keys.get(word.value)
            if key is None:
                listed = f"(keys: {', '.join(self.keys)})"
                notes.refuse(
                    place.path, f"unknown key {word.value!r}", word.span, suggest(word.value, self.keys, listed)
                )
                wrong = True
                continue
            try:
                found[key.argument] = key.shape.read(value, place.key(word), notes)
            except Refused:
                wrong = True
        present = {word.value for word, _ in node.entries}
        for name, key in self.keys.items():
            if key.required and name not in present:
                notes.refuse(
                    place.path, f"the key {name!r} is missing", place.word.span, f"for example `{self.example}`"
                )
                wrong = True
        if wrong:
            raise Refused
        return self.build(place, found)

    def _schema(self) -> JsonSchema:
        about = {name: {"description": key.about} if key.about else {} for name, key in self.keys.items()}
        properties = {name: key.shape.schema() | about[name] for name, key in self.keys.items()}
        required = [name for name, key in self.keys.items() if key.required]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@dataclass(eq=False, repr=False, slots=True)
class ByKind(Shape[T]):
    """One shape for each kind of node; a kind without one is refused. `nothing` is for an empty value."""

    wants: str
    scalar: Shape[T] | None = None
    sequence: Shape[T] | None = None
    mapping: Shape[T] | None = None
    nothing: Shape[T] | None = None
    hint: str | None = None

    def _read(self, node: Node, place: Place, notes: Notes) -> T:
        shape: Shape[T] | None = None
        if isinstance(node, Scalar):
            shape = self.nothing if node.kind == "null" else self.scalar
        elif isinstance(node, Sequence | Mapping):
            shape = self.sequence if isinstance(node, Sequence) else self.mapping
        if shape is None:
            raise notes.mismatch(node, place, self.wants, self.hint)
        return shape.read(node, place, notes)

    def _schema(self) -> JsonSchema:
        return {
            "anyOf": [shape.schema() for shape in (self.scalar, self.sequence, self.mapping, self.nothing) if shape]
        }


@dataclass(eq=False, repr=False, slots=True)
class As(Shape[T], Generic[K, T]):
    """A shape whose value is turned into another one; `build` also gets the place."""

    shape: Shape[K]
    build: Callable[[Place, K], T]

    def _read(self, node: Node, place: Place, notes: Notes) -> T:
        return self.build(place, self.shape.read(node, place, notes))

    def _schema(self) -> JsonSchema:
        return self.shape.schema()


@dataclass(eq=False, repr=False, slots=True)
class Nothing(Shape[T]):
    """An empty value, or an empty mapping: all is said by the key."""

    build: Callable[[Place], T]

    def _read(self, node: Node, place: Place, notes: Notes) -> T:
        none = isinstance(node, Scalar) and node.kind == "null"
        if not none and not (isinstance(node, Mapping) and not node.entries):
            raise notes.mismatch(node, place, "nothing", f"write `- {place.word.value}`")
        return self.build(place)

    def _schema(self) -> JsonSchema:
        return {"type": ["null", "object"], "maxProperties": 0}


@dataclass(eq=False, repr=False, slots=True)
class Defined(Shape[T]):
    """A shape with a name of its own in the JSON Schema, which may contain itself."""

    name: str
    shape: Callable[[], Shape[T]]

    def _read(self, node: Node, place: Place, notes: Notes) -> T:
        return self.shape().read(node, place, notes)

    def _schema(self) -> JsonSchema:
        return {"$ref": f"#/$defs/{self.name}"}


def suggest(word: str, known: Iterable[str], listed: str) -> str:
    """Return the hint for a word that isn't known."""
    near = did_you_mean(word, known)
    return f"did you mean `{near}`? {listed}" if near else listed.strip("()")
