"""Shapes of single values: texts, expressions, numbers, types, references to collections."""

from __future__ import annotations

import re

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, Text
from ddcli.expressions.types import ALIASES, SIMPLE, Type, no_column, parse_type
from ddcli.spec.identity import query_identity
from ddcli.spec.model import Query
from ddcli.spec.reader import JsonSchema, NodePlace, Notes, Reference, Shape, shape, suggest
from ddcli.spec.tree import Node, Scalar, Sequence, unfinished

TYPE_NAMES = (*SIMPLE, *ALIASES, "decimal(12, 2)", "datetime[us]", "datetime[us, UTC]", "duration[us]", "list[string]")


@dataclass(eq=False, repr=False, slots=True)
class Words(Shape[Text]):
    """Plain text. `pattern` it must match wholly, which `rule` states in words."""

    wants: str
    pattern: str = r"(?s).+"
    rule: str = ""

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Text:
        if not isinstance(node, Scalar) or node.kind == "null" or not node.text.value:
            raise notes.mismatch(node, place, self.wants)
        if node.kind in ("bool", "float"):
            raise notes.mismatch(node, place, self.wants, f"quote it if you mean the text: '{node.text.value}'")
        self.check(node.text, place, notes)
        return node.text

    def check(self, text: Text, place: NodePlace, notes: Notes) -> None:
        """Refuse a text that doesn't match the pattern."""
        if not re.fullmatch(self.pattern, text.value):
            raise notes.refuse(place.path, f"{text.value!r} can't be {self.wants}", text.span, self.rule or None)

    def _schema(self) -> JsonSchema:
        return {"type": ["string", "integer"], "minLength": 1}


class ColumnName(Words):
    """The name of a column: one that is neither a pattern for polars nor a plan's own column."""

    __slots__ = ()

    def check(self, text: Text, place: NodePlace, notes: Notes) -> None:
        """Refuse a name that no column can have."""
        if hint := no_column(text.value):
            raise notes.refuse(place.path, f"{text.value!r} can't be {self.wants}", text.span, hint)


LONGEST_NUMBER = 1000
"""The most digits of a whole number."""
LONGEST_NAME, LONGEST_PATH = 255, 3000
"""The bytes in UTF-8 that file systems take: of one name, and of a path with room for the folder before it."""


@dataclass(eq=False, repr=False, slots=True)
class PathWords(Words):
    """Plain text that becomes a path, or a name in one. A text that no file system accepts is refused here, at its place."""

    def check(self, text: Text, place: NodePlace, notes: Notes) -> None:
        """Refuse a text that doesn't match the pattern, or is too long for a path."""
        data = text.value.encode(errors="surrogatepass")
        if len(data) > LONGEST_PATH or max(map(len, data.split(b"/"))) > LONGEST_NAME:
            limit = f"a name in a path has at most {LONGEST_NAME} bytes, a path {LONGEST_PATH}"
            raise notes.refuse(
                place.path, f"{text.value[:20] + '...'!r} is too long for {self.wants}", text.span, limit
            )
        if re.match(r"\w+://[^/]*@", text.value):
            hint = "object stores read their credentials from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, ..."
            raise notes.refuse(place.path, f"{self.wants} has no credentials in it", text.span, hint)
        if b"\0" in data:
            raise notes.refuse(place.path, f"{text.value!r} can't be {self.wants}", text.span, "leave out the NUL")
        Words.check(self, text, place, notes)


@dataclass(eq=False, repr=False, slots=True)
class ExpressionText(Shape[Text]):
    """An SQL expression, kept as text."""

    wants: str = "an expression"

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Text:
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
            hint = "write the SQL null with its type: cast(null as int64)"
            raise notes.refuse(place.path, f"must be {self.wants}, found YAML's {text.value!r}", text.span, hint)
        if not text.value.strip():
            hint = "write it after the colon, quoted if it has a comma or begins with a special character"
            if ":" in place.word.value:
                hint = f"put a space after the colon: `{place.word.value.replace(':', ': ', 1)}`"
            raise notes.mismatch(node, place, self.wants, hint)
        return text

    def _schema(self) -> JsonSchema:
        return {"type": ["string", "integer", "number", "boolean"], "minLength": 1, "description": "an SQL expression"}


def _tables(query: Text, place: NodePlace, notes: Notes) -> tuple[Text, ...]:
    """Return the tables of a query, each with its place."""
    from ddcli.expressions.syntax_tree import read_statement, tables_of

    try:
        return tables_of(read_statement(query))
    except SpecError as error:
        raise notes.refuse(place.path, error.problem, error.span or query.span, error.hint) from None


@shape(lambda: {"type": "string", "minLength": 1, "description": "an SQL query"})
def query_text(node: Node, place: NodePlace, notes: Notes) -> Query:
    """Return an SQL query, kept as text with the names that it refers to."""
    if not isinstance(node, Scalar) or node.kind == "null" or not node.text.value.strip():
        hint = "write it as a block: `sql: |`, and the query below, indented"
        raise notes.mismatch(node, place, "a query", hint)
    if node.comment and node.plain and unfinished(node.text.value):
        hint = "write it as a block: `sql: |`, and the query below, indented"
        raise notes.refuse(place.path, "` #` cuts the query: a comment begins here", node.comment, hint)
    known = notes.queries.get(query_identity(node.text.value)) if notes.queries else None
    tables = _tables(node.text, place, notes) if known is None else tuple(Text(name, node.span) for name in known)
    notes.references += [Reference(table, place.owner) for table in tables]
    return Query(node.text, tables, place.path)


@dataclass(eq=False, repr=False, slots=True)
class Whole(Shape[int]):
    """An integer from a least one to a greatest, if there is one."""

    least: int
    most: int | None = None

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> int:
        wants = f"a whole number from {self.least}" + (f" to {self.most}" if self.most is not None else "")
        if not isinstance(node, Scalar) or not node.may_be("int"):
            raise notes.mismatch(node, place, wants)
        text = node.text.value
        if len(text) > LONGEST_NUMBER:  # Python refuses to read longer ones
            raise notes.mismatch(node, place, wants)
        value = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        if value < self.least or (self.most is not None and value > self.most):
            raise notes.mismatch(node, place, wants)
        return value

    def _schema(self) -> JsonSchema:
        return {"type": "integer", "minimum": self.least} | ({"maximum": self.most} if self.most is not None else {})


@shape(lambda: {"type": "number", "exclusiveMinimum": 0, "maximum": 100})
def percentage(node: Node, place: NodePlace, notes: Notes) -> Text:
    """Return a percentage as it is written, so that no digit of it is rounded."""
    if not isinstance(node, Scalar) or not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,20})?", node.text.value):
        raise notes.mismatch(node, place, "a number from 0 to 100", "for example `percent: 0.5`")
    return node.text


@shape(lambda: {"type": "boolean"})
def flag(node: Node, place: NodePlace, notes: Notes) -> bool:
    """Return true or false, but refuse a word that YAML 1.1 reads as one of them."""
    if not isinstance(node, Scalar) or not node.may_be("bool"):
        hint = None
        if isinstance(node, Scalar) and (word := {"yes": "true", "on": "true"}.get(node.text.value.lower())):
            hint = f"write `{word}`"
        elif isinstance(node, Scalar) and node.text.value.lower() in ("no", "off"):
            hint = "write `false`"
        raise notes.mismatch(node, place, "true or false", hint)
    return node.text.value.lower() == "true"


@dataclass(eq=False, repr=False, slots=True)
class Choice(Shape[str]):
    """One word of a few."""

    what: str
    words: tuple[str, ...]

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> str:
        listed = f"(known: {', '.join(self.words)})"
        if not isinstance(node, Scalar) or node.kind == "null":
            raise notes.mismatch(node, place, f"a {self.what}", f"one of {', '.join(self.words)}")
        if node.text.value not in self.words:
            problem = f"unknown {self.what} {node.text.value!r}"
            raise notes.refuse(place.path, problem, node.span, suggest(node.text.value, self.words, listed))
        return node.text.value

    def _schema(self) -> JsonSchema:
        return {"enum": list(self.words)}


@shape(
    lambda: {
        "type": ["string", "null"],
        "minLength": 1,
        "examples": ["int64", "string?", "decimal(12, 2)", "datetime[us]"],
    }
)
def column_type(node: Node, place: NodePlace, notes: Notes) -> Type:
    """Return the type of a column."""
    if not isinstance(node, Scalar) or not node.text.value:
        raise notes.mismatch(node, place, "a type", 'for example int64, string?, "decimal(12, 2)"')
    text = node.text.value
    if read := parse_type(text):
        return read
    listed = f"(types: {', '.join(SIMPLE)}, decimal(p, s), datetime[us], duration[us], list[...]; a `?` allows nulls)"
    bare = text.strip().removesuffix("?").lower()
    raise notes.refuse(place.path, f"unknown type {text!r}", node.span, suggest(bare, TYPE_NAMES, listed))


@dataclass(eq=False, repr=False, slots=True)
class ReferenceName(Shape[Text]):
    """The name of an input or collection, whose existence is checked when all names are known."""

    words: Words

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Text:
        text = self.words.read(node, place, notes)
        notes.references.append(Reference(text, place.owner))
        return text

    def _schema(self) -> JsonSchema:
        return self.words.schema()
