"""Shapes of single values: texts, expressions, numbers, types, references; of columns and orders; and of operators under `apply` with the collections that they take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, Text, suggestion_and_list
from ddcli.expressions.types import ALIASES, SIMPLE, Type, no_column, parse_type
from ddcli.spec import model
from ddcli.spec.file import query_identity
from ddcli.spec.model import Inline, Operator, Query, Source
from ddcli.spec.shapes import (
    As,
    ByKind,
    Defined,
    JsonSchema,
    Key,
    Many,
    NodePlace,
    Notes,
    Nothing,
    OperatorForm,
    Pairs,
    Record,
    Reference,
    Refused,
    Shape,
    shape,
)
from ddcli.spec.tree import Mapping, Node, Scalar, Sequence, unfinished

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping as Table


TYPE_NAMES = (*SIMPLE, *ALIASES, "decimal(12, 2)", "datetime[us]", "datetime[us, UTC]", "duration[us]", "list[string]")


@dataclass(eq=False, repr=False, slots=True)
class Words(Shape[Text]):
    """Plain text. `pattern` it must match wholly, which `rule` states in words; before, `fault` returns the problem of a text that can't be what it `wants`, and a hint."""

    wants: str
    pattern: str = r"(?s).+"
    rule: str = ""
    fault: Callable[[str, str], tuple[str, str] | None] | None = None

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Text:
        if not isinstance(node, Scalar) or node.kind == "null" or not node.text.value:
            raise notes.mismatch(node, place, self.wants)
        if node.kind in ("bool", "float"):
            raise notes.mismatch(node, place, self.wants, f"quote it if you mean the text: '{node.text.value}'")
        self.check(node.text, place, notes)
        return node.text

    def check(self, text: Text, place: NodePlace, notes: Notes) -> None:
        """Refuse a text that has a fault, or doesn't match the pattern."""
        if self.fault and (found := self.fault(text.value, self.wants)):
            raise notes.refuse(place.path, found[0], text.span, found[1])
        if not re.fullmatch(self.pattern, text.value):
            raise notes.refuse(place.path, f"{text.value!r} can't be {self.wants}", text.span, self.rule or None)

    def _schema(self) -> JsonSchema:
        return {"type": ["string", "integer"], "minLength": 1}


def column_fault(text: str, wants: str) -> tuple[str, str] | None:
    """Return the problem of a name that no column can have, as it is a pattern for polars or a plan's own column, and a hint."""
    hint = no_column(text)
    return (f"{text!r} can't be {wants}", hint) if hint else None


LONGEST_NUMBER = 1000
"""The most digits of a whole number."""
LONGEST_NAME, LONGEST_PATH = 255, 3000
"""The bytes in UTF-8 that file systems take: of one name, and of a path with room for the folder before it."""


def path_fault(text: str, wants: str) -> tuple[str, str] | None:
    """Return the problem of a text that becomes a path, or a name in one, and that no file system accepts, and a hint."""
    data = text.encode(errors="surrogatepass")
    if len(data) > LONGEST_PATH or max(map(len, data.split(b"/"))) > LONGEST_NAME:
        limit = f"a name in a path has at most {LONGEST_NAME} bytes, a path {LONGEST_PATH}"
        return f"{text[:20] + '...'!r} is too long for {wants}", limit
    if re.match(r"\w+://[^/]*@", text):
        hint = (
            "object stores read their credentials from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, ..."
        )
        return f"{wants} has no credentials in it", hint
    return (f"{text!r} can't be {wants}", "leave out the NUL") if b"\0" in data else None


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
        listed = f"known: {', '.join(self.words)}"
        if not isinstance(node, Scalar) or node.kind == "null":
            raise notes.mismatch(node, place, f"a {self.what}", f"one of {', '.join(self.words)}")
        if node.text.value not in self.words:
            problem = f"unknown {self.what} {node.text.value!r}"
            raise notes.refuse(place.path, problem, node.span, suggestion_and_list(node.text.value, self.words, listed))
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
    listed = f"types: {', '.join(SIMPLE)}, decimal(p, s), datetime[us], duration[us], list[...]; a `?` allows nulls"
    bare = text.strip().removesuffix("?").lower()
    raise notes.refuse(place.path, f"unknown type {text!r}", node.span, suggestion_and_list(bare, TYPE_NAMES, listed))


A_REFERENCE = Words("the name of an input or collection")


@shape(A_REFERENCE.schema)
def reference(node: Node, place: NodePlace, notes: Notes) -> Text:
    """Return the name of an input or collection, whose existence is checked when all names are known."""
    text = A_REFERENCE.read(node, place, notes)
    notes.references.append(Reference(text, place.owner))
    return text


LETTERS = "letters, digits, `_` and `-`"
NAME = Words("a name", r"\w[\w-]*", f"a name is made of {LETTERS}", path_fault)
PATH = Words("a path", fault=path_fault)
ALIAS = Words("a name", r"[^\W\d]\w*", "a name that qualifies columns is made of letters, digits and `_`")
COLUMN = Words("a column's name", fault=column_fault)
EXPRESSION = ExpressionText()
COLUMNS = Many(COLUMN, "a list of columns", distinct=True, alone=True)
ASSIGNMENTS = Pairs(COLUMN, EXPRESSION, "a mapping of columns to expressions")


def _columns(_: NodePlace, pairs: tuple[tuple[Text, Any], ...]) -> model.Columns:
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
                raise notes.refuse(f"{place.path}.{name.value}", "the key 'type' is missing", name.span, hint)
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


BY: Shape[tuple[model.GroupColumn, ...]] = ByKind(
    "a list of columns, or a mapping of names to expressions",
    scalar=As(COLUMN, lambda _, name: (model.GroupColumn(name),)),
    sequence=As(
        Many(COLUMN, "a list of columns", least=0, distinct=True),
        lambda _, names: tuple(map(model.GroupColumn, names)),
    ),
    mapping=As(ASSIGNMENTS, lambda _, pairs: tuple(model.GroupColumn(*pair) for pair in pairs)),
    hint="write `by: [region]` or `by: {day: cast(placed_at as date)}`",
)
ON: Shape[tuple[tuple[Text, Text], ...]] = ByKind(
    "a list of common columns, or a mapping of left to right columns",
    scalar=As(COLUMN, lambda _, name: ((name, name),)),
    sequence=As(COLUMNS, lambda _, names: tuple((name, name) for name in names)),
    mapping=Pairs(COLUMN, COLUMN, "a mapping of left to right columns"),
    hint="write `on: [customer_id]` or `on: {manager: employee}`",
)


def _order(_: NodePlace, text: Text) -> model.Order:
    match = re.fullmatch(r"(?is)(.*?\S)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", text.value)
    if match is None or not (match[2] or match[3]):
        return model.Order(text)
    nulls_first = (match[3] or "").lower() == "first"
    return model.Order(Text(match[1], text.span, text.inset), (match[2] or "").lower() == "desc", nulls_first)


ORDER = Many(As(EXPRESSION, _order), "a list of expressions", alone=True)


K = TypeVar("K")


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
INLINE: Shape[Any] = Record(
    lambda place, arguments: Inline(arguments["sources"], arguments.get("apply", ()), place.word.span, place.path),
    FLOW,
    "a name or a collection",
    "{from: orders, apply: [distinct]}",
)
SOURCE: Shape[Any] = ByKind("a name or a collection in place", scalar=reference, mapping=INLINE)


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
        listed = f"operators: {', '.join(notes.operators)}"
        hint = suggestion_and_list(word.value, notes.operators, listed)
        meant = word.value.lower().replace("_", "")
        for other in notes.operators.values():
            if meant in other.other_words:
                hint = f"that is `{other.name}` here ({listed})"
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
