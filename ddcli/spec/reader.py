"""The parts that all shapes share: places, notes of errors, and reading that continues after an error.

A shape reads a node into a value of the model. Errors are added to the `Notes`, with their places, and `Refused` is
raised; a reader of several nodes continues with the next, so that one pass finds all errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ddcli.dataclass import dataclass
from ddcli.errors import Span, SpecError, Text, did_you_mean
from ddcli.spec.tree import Broken, Node, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
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
    operators: Mapping[str, OperatorForm] = field(default_factory=dict)
    """The operators that a file may name, by name: the planner has their table."""
    queries: Mapping[str, Iterable[str]] = field(default_factory=dict)
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
    """Return the span to point at for a node: for an empty node, that of the word that leads to it."""
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


def suggest(word: str, known: Iterable[str], listed: str) -> str:
    """Return the hint for a word that isn't known."""
    near = did_you_mean(word, known)
    return f"did you mean `{near}`? {listed}" if near else listed.strip("()")
