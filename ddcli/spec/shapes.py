"""The parts that all shapes share: places, notes of errors, and reading that continues after an error; and shapes composed of others: lists, mappings, alternatives.

A shape reads a node into a value of the model. Errors are added to the `Notes`, with their places, and `Refused` is
raised; a reader of several nodes continues with the next, so that one pass finds all errors.
One description both checks a value and returns its JSON Schema, so the two agree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ddcli.dataclass import dataclass
from ddcli.errors import Span, SpecError, Text, did_you_mean, suggestion_and_list
from ddcli.spec.tree import Broken, Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Mapping as Table

    from ddcli.spec.values import Words


T = TypeVar("T")
K = TypeVar("K")
JsonSchema = dict[str, Any]
LONG = 60
"""Letters of a value that a message shows."""


class Refused(Exception):
    """The signal that a value could not be read; its errors are in the notes. `kept` is the part that could be read, if its reader can use it."""

    def __init__(self, kept: Any = None) -> None:
        super().__init__()
        self.kept = kept


@dataclass(eq=False, repr=False, slots=True)
class NodePlace:
    """The place of a node: its path, the word in the file that leads to it, and the path of the thing it belongs to."""

    path: str
    word: Text
    owner: str

    def key(self, word: Text) -> NodePlace:
        """Return the place of a value under a key of a fixed set, which belongs to the same thing."""
        return NodePlace(f"{self.path}.{word.value}" if self.path else word.value, word, self.path)

    def entry(self, word: Text) -> NodePlace:
        """Return the place of a thing of its own, under the name or operator that the user wrote."""
        path = f"{self.path}.{word.value}" if self.path else word.value
        return NodePlace(path, word, path)

    def item(self, index: int, node: Node) -> NodePlace:
        """Return the place of a list's item."""
        return NodePlace(f"{self.path}[{index}]", Text(str(index), node.span), self.owner)


@dataclass(eq=False, repr=False, slots=True)
class Reference:
    """A name that must be an input's or a collection's, and the path of the thing that uses it; messages name the `path`, if that is another one."""

    name: Text
    owner: str
    path: str = ""


@dataclass(eq=False, repr=False, slots=True)
class Notes:
    """Errors, references and loop entries that reading collects besides values."""

    errors: list[SpecError] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    entering: list[NodePlace] = field(default_factory=list)
    """The places of operators that need a loop around them; the check of names reports those outside of one."""
    operators: Table[str, OperatorForm] = field(default_factory=dict)
    """The operators that a file may name, by name: the planner has their table."""
    queries: Table[str, Iterable[str]] = field(default_factory=dict)
    """The tables of queries that this version of dd has parsed before, by `query_identity`: these are not parsed again."""

    def refuse(self, path: str, problem: str, span: Span, hint: str | None = None) -> Refused:
        """Record an error; the caller raises the result, or continues."""
        self.errors.append(SpecError(f"{path}: {problem}" if path else problem, span=span, hint=hint))
        return Refused()

    def mismatch(self, node: Node, place: NodePlace, wants: str, hint: str | None = None) -> Refused:
        """Report that a node is not of the wanted kind."""
        return self.refuse(place.path, f"must be {wants}, found {describe(node)}", span_of(node, place), hint)


def describe(node: Node) -> str:
    """Return a word for the kind of a node."""
    if isinstance(node, Scalar):
        text = node.text.value
        return "nothing" if node.kind == "null" else repr(text if len(text) <= LONG else f"{text[:LONG]}...")
    return "a list" if isinstance(node, Sequence) else "a mapping"


def span_of(node: Node, place: NodePlace) -> Span:
    """Return the span to point at for a node: for an empty node, the span of the word that leads to it."""
    empty = isinstance(node, Scalar) and not node.text.value
    return place.word.span if empty else node.span


class Shape(ABC, Generic[T]):
    """The accepted form of a value. Subclasses define it twice, side by side: `_read` and `_schema` accept the same."""

    def read(self, node: Node, place: NodePlace, notes: Notes) -> T:
        """Return the value of a node, or record its errors and raise `Refused`."""
        if isinstance(node, Broken):
            raise Refused
        return self._read(node, place, notes)

    def schema(self) -> JsonSchema:
        """Return the JSON Schema of the values that it reads."""
        return self._schema()

    @abstractmethod
    def _read(self, node: Node, place: NodePlace, notes: Notes) -> T: ...

    @abstractmethod
    def _schema(self) -> JsonSchema: ...


@dataclass(eq=False, repr=False, slots=True)
class _FunctionShape(Shape[T]):
    """The shape of the values that a function reads, with what returns their JSON Schema."""

    reader: Callable[[Node, NodePlace, Notes], T]
    form: Callable[[], JsonSchema]

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> T:
        return self.reader(node, place, notes)

    def _schema(self) -> JsonSchema:
        return self.form()


def shape(schema: Callable[[], JsonSchema]) -> Callable[[Callable[[Node, NodePlace, Notes], T]], Shape[T]]:
    """Return a decorator that makes a shape of a function from a node to its value; `schema` returns the JSON Schema of the same values."""
    return lambda reader: _FunctionShape(reader, schema)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorForm:
    """An operator in a file: the shape of its arguments, the words of other languages for it, and whether it needs a loop around it."""

    name: str
    shape: Shape[dict[str, Any]]
    other_words: tuple[str, ...]
    in_loop: bool


@dataclass(eq=False, repr=False, slots=True)
class Many(Shape[tuple[T, ...]]):
    """A list. `distinct`: no item is written twice; `alone`: a single item may be written without brackets."""

    each: Shape[T]
    wants: str
    least: int = 1
    distinct: bool = False
    alone: bool = False

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> tuple[T, ...]:
        if self.alone and isinstance(node, Scalar) and node.kind != "null":
            return (self.each.read(node, place, notes),)
        if not isinstance(node, Sequence):
            hint = f"write `[{node.text.value}]`" if isinstance(node, Scalar) and node.kind != "null" else None
            if (isinstance(node, Mapping) and not node.flow) or (isinstance(node, Scalar) and node.kind == "null"):
                hint = "begin each item with `- `"
            raise notes.mismatch(node, place, self.wants, hint)
        if len(node.items) < self.least:
            raise notes.refuse(place.path, f"must be {self.wants}, found an empty one", node.span)
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
        found |= {"uniqueItems": True} if self.distinct else {}
        return {"anyOf": [found, self.each.schema()]} if self.alone else found


@dataclass(eq=False, repr=False, slots=True)
class Pairs(Shape[tuple[tuple[Text, T], ...]]):
    """A mapping whose keys the user chooses. `things`: each entry is a named thing, such as an input, not a part of one."""

    name: Words
    each: Shape[T]
    wants: str
    things: bool = False
    least: int = 1
    most: int | None = None

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> tuple[tuple[Text, T], ...]:
        if not isinstance(node, Mapping):
            hint = "write `key: value`, without dashes or brackets" if isinstance(node, Sequence) else None
            raise notes.mismatch(node, place, self.wants, hint)
        if len(node.entries) < self.least:
            raise notes.refuse(place.path, f"must be {self.wants}, found an empty one", node.span)
        if self.most is not None and len(node.entries) > self.most:
            extra = node.entries[self.most][0]
            raise notes.refuse(place.path, f"must be {self.wants}, found {extra.value!r} too", extra.span)
        pairs, wrong = [], False
        for key, value in node.entries:
            try:
                inner = place.entry(key) if self.things else replace(place.key(key), owner=place.owner)
                self.name.check(key, replace(place, path=inner.path), notes)
                pairs.append((key, self.each.read(value, inner, notes)))
            except Refused:
                wrong = True
        if wrong:
            raise Refused(tuple(pairs))
        return tuple(pairs)

    def _schema(self) -> JsonSchema:
        found: JsonSchema = {"type": "object", "additionalProperties": self.each.schema()}
        found |= {"minProperties": self.least} if self.least else {}
        return found | ({"maxProperties": self.most} if self.most is not None else {})


@dataclass(eq=False, repr=False, slots=True)
class Key:
    """A key of a `Record`: its shape, whether it is required, its purpose, and the argument that it becomes, where that has another name."""

    shape: Shape[Any]
    required: bool = False
    about: str = ""
    argument: str = ""


def missing(keys: dict[str, Key], node: Mapping) -> list[str]:
    """Return the required keys that a mapping lacks, except misspelt ones, which are reported themselves."""
    there = {word.value if word.value in keys else did_you_mean(word.value, keys) for word, _ in node.entries}
    return [name for name, key in keys.items() if key.required and name not in there]


@dataclass(eq=False, repr=False, slots=True)
class Record(Shape[T]):
    """A mapping with known keys, at least `least` of them, built by `build(place, arguments)`. `example` shows a right one."""

    build: Callable[[NodePlace, dict[str, Any]], T]
    keys: dict[str, Key]
    wants: str
    example: str
    least: int = 0
    others: str = ""
    """The hint's last words: the place of all other keys."""

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> T:
        if not isinstance(node, Mapping):
            raise notes.mismatch(node, place, self.wants, f"for example `{self.example}`")
        if len(node.entries) < self.least:
            hint = f"for example `{self.example}`"
            raise notes.refuse(place.path, f"must be {self.wants}, found an empty one", node.span, hint)
        found, wrong = {}, False
        for word, value in node.entries:
            key = self.keys.get(word.value)
            if key is None:
                hint = suggestion_and_list(word.value, self.keys, f"keys: {', '.join(self.keys)}")
                hint = f"{hint}; {self.others}" if self.others else hint
                notes.refuse(place.path, f"unknown key {word.value!r}", word.span, hint)
                wrong = True
                continue
            try:
                found[key.argument or word.value] = key.shape.read(value, place.key(word), notes)
            except Refused:
                wrong = True
        for name in missing(self.keys, node):
            notes.refuse(place.path, f"the key {name!r} is missing", place.word.span, f"for example `{self.example}`")
            wrong = True
        if wrong:
            raise Refused
        return self.build(place, found)

    def _schema(self) -> JsonSchema:
        about = {name: {"description": key.about} if key.about else {} for name, key in self.keys.items()}
        properties = {name: key.shape.schema() | about[name] for name, key in self.keys.items()}
        required = [name for name, key in self.keys.items() if key.required]
        whole = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return whole | ({"minProperties": self.least} if self.least else {})


@dataclass(eq=False, repr=False, slots=True)
class ByKind(Shape[T]):
    """One shape for each kind of node; a kind without one is refused. `nothing` is for an empty value."""

    wants: str
    scalar: Shape[T] | None = None
    sequence: Shape[T] | None = None
    mapping: Shape[T] | None = None
    nothing: Shape[T] | None = None
    hint: str | None = None

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> T:
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
    """A shape whose value `build` converts to another one, given its place."""

    shape: Shape[K]
    build: Callable[[NodePlace, K], T]

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> T:
        return self.build(place, self.shape.read(node, place, notes))

    def _schema(self) -> JsonSchema:
        return self.shape.schema()


@dataclass(eq=False, repr=False, slots=True)
class Nothing(Shape[T]):
    """An empty value, or an empty mapping: the key alone has the meaning."""

    build: Callable[[NodePlace], T]

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> T:
        none = isinstance(node, Scalar) and node.kind == "null"
        if not none and not (isinstance(node, Mapping) and not node.entries):
            raise notes.mismatch(node, place, "empty", f"write `- {place.word.value}`")
        return self.build(place)

    def _schema(self) -> JsonSchema:
        return {"type": ["null", "object"], "maxProperties": 0}


@dataclass(eq=False, repr=False, slots=True)
class Defined(Shape[T]):
    """A shape with a name in the JSON Schema, so that it may contain itself."""

    name: str
    shape: Callable[[], Shape[T]]

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> T:
        return self.shape().read(node, place, notes)

    def _schema(self) -> JsonSchema:
        return {"$ref": f"#/$defs/{self.name}"}
