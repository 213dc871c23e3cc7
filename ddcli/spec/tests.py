"""The tests of a pipeline, as plain values and as they are read: steps of changes to its inputs, and expectations of its collections.

Values stay nodes here: they are read when the types of their columns are known. Names are checked with all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ddcli.dataclass import frozen
from ddcli.errors import Text
from ddcli.spec.budget import STEP_BUDGET
from ddcli.spec.shapes import As, ByKind, Key, Many, NodePlace, Notes, Pairs, Record, Refused, Shape, shape
from ddcli.spec.tree import Mapping, Node, Scalar, Sequence
from ddcli.spec.values import COLUMN, COLUMNS, EXPRESSION, NAME, PATH, Words, flag

if TYPE_CHECKING:
    from ddcli.errors import Span
    from ddcli.spec.model import Budget


Cells: TypeAlias = "tuple[tuple[Text, Node], ...]"
"""A row: its columns and their values as they are written."""


@frozen
class WrittenRows:
    """Rows as they are written, each with its place; or the `file` that they are in, relative to the pipeline file."""

    span: Span
    items: tuple[tuple[Cells, Span], ...] = ()
    file: Text | None = None


@frozen
class WrittenExpectation:
    """An expectation of a collection: its whole `contents` (at the time `at`, else when the step is done), the `changes` that
    the step made, and conditions that hold for any record of it. `tolerance` is the greatest difference of floats.
    """

    collection: Text
    span: Span
    place: str
    contents: WrittenRows | None = None
    changes: WrittenRows | None = None
    at: Node | None = None
    tolerance: float | None = None
    unique: tuple[Text, ...] = ()
    not_null: tuple[Text, ...] = ()
    accepted: tuple[tuple[Text, tuple[Node, ...]], ...] = ()
    always: Text | None = None
    non_negative: bool = False

    @property
    def is_empty(self) -> bool:
        """Return whether it has no expectation, so that no collection could fail it."""
        rules = (self.unique, self.not_null, self.accepted, self.always, self.non_negative)
        return self.standing and not any(rules)

    @property
    def standing(self) -> bool:
        """Return whether it may be expected at any time, because it names no rows."""
        return self.contents is None and self.changes is None


@frozen
class WrittenStep:
    """Rows that are `given` to inputs, at the time `time` if they have none of their own; then the times up to the last are closed.

    The cost of that must not exceed the `budget`.
    """

    span: Span
    time: Node | None = None
    given: tuple[tuple[Text, WrittenRows], ...] = ()
    expect: tuple[WrittenExpectation, ...] = ()
    budget: Budget | None = None


@frozen
class WrittenTest:
    """Steps from empty inputs on. Without steps: expectations after each step of all others, and of states that runs have kept."""

    name: Text
    span: Span
    steps: tuple[WrittenStep, ...] = ()
    expect: tuple[WrittenExpectation, ...] = ()


@shape(lambda: {"type": "number", "minimum": 0})
def tolerance(node: Node, place: NodePlace, notes: Notes) -> float:
    """Return a number from 0."""
    if not isinstance(node, Scalar) or node.kind not in ("int", "float") or not float(node.text.value) >= 0:
        raise notes.mismatch(node, place, "a number from 0")
    return float(node.text.value)


VALUE: Shape[Node] = shape(dict)(lambda node, _place, _notes: node)
"""A value of any kind: the column decides."""
ROWS = Many(Pairs(COLUMN, VALUE, "a row, a mapping of columns to values"), "a list of rows", least=0)
TABLE: Record[tuple[tuple[Text, ...], tuple[tuple[Node, ...], ...]]] = Record(
    lambda _, arguments: (arguments["columns"], arguments["rows"]),
    {
        "columns": Key(COLUMNS, required=True, about="the columns of the rows, in order"),
        "rows": Key(Many(Many(VALUE, "a list of values"), "a list of rows", least=0), required=True),
    },
    "rows",
    "{columns: [id, name], rows: [[1, Ann], [2, Bo]]}",
)


@shape(ROWS.schema)
def mapping_rows(node: Node, place: NodePlace, notes: Notes) -> WrittenRows:
    """Return rows that are mappings."""
    rows = ROWS.read(node, place, notes)
    assert isinstance(node, Sequence)
    return WrittenRows(place.word.span, tuple((cells, item.span) for cells, item in zip(rows, node.items, strict=True)))


@shape(TABLE.schema)
def list_rows(node: Node, place: NodePlace, notes: Notes) -> WrittenRows:
    """Return rows that are lists of values, under the names of their columns."""
    columns, rows = TABLE.read(node, place, notes)
    wrong, items = False, []
    written = node.get("rows") if isinstance(node, Mapping) else None
    assert isinstance(written, Sequence)
    for at, (row, item) in enumerate(zip(rows, written.items, strict=True)):
        if len(row) != len(columns):
            problem = f"the row has {len(row)} values, there are {len(columns)} columns"
            notes.refuse(f"{place.path}.rows[{at}]", problem, item.span, "write null for a value that is missing")
            wrong = True
        items.append((tuple(zip(columns, row, strict=False)), item.span))
    if wrong:
        raise Refused
    return WrittenRows(place.word.span, tuple(items))


GIVEN: Shape[WrittenRows] = ByKind(
    "rows or a file",
    scalar=As(PATH, lambda place, path: WrittenRows(place.word.span, file=path)),
    sequence=mapping_rows,
    mapping=list_rows,
    hint="for example `[{id: 1, name: Ann}]`",
)


ACCEPTED = Pairs(COLUMN, Many(VALUE, "a list of values"), "a mapping of columns to the values that they may have")
ONE_EXPECTATION: Record[WrittenExpectation] = Record(
    lambda place, arguments: WrittenExpectation(span=place.word.span, place=place.path, **arguments),
    {
        "collection": Key(Words("the name of a collection"), required=True, about="or input, or output"),
        "contents": Key(GIVEN, about="all its records, in the named columns; `diff` is the multiplicity, default 1"),
        "changes": Key(GIVEN, about="the updates of the step; `diff` defaults to +1; the time may be named"),
        "at": Key(VALUE, about="the time of the contents; default: when the step is done"),
        "tolerance": Key(tolerance, about="the greatest difference of equal floats; default: 1e-9 of their size"),
        "unique": Key(COLUMNS, about="columns that identify a record"),
        "not_null": Key(COLUMNS, about="columns that are never null"),
        "accepted": Key(ACCEPTED, about="the values that columns may have; null is always accepted"),
        "always": Key(EXPRESSION, about="a condition that is true of each record"),
        "non_negative": Key(flag, about="true: no record has a negative multiplicity"),
    },
    "what is expected",
    "{collection: orders, unique: [id]}",
    least=1,
)
RULES = "contents, changes, unique, not_null, accepted, always, non_negative"
QUALIFIED = {"at": ("contents",), "tolerance": ("contents", "changes")}
"""The keys that only qualify others, and those that they qualify."""


@shape(lambda: ONE_EXPECTATION.schema() | {"anyOf": [{"required": [name]} for name in RULES.split(", ")]})
def expectation(node: Node, place: NodePlace, notes: Notes) -> WrittenExpectation:
    """Return an expectation. Refuse a collection's name, alone or as a key, and an option of an expectation without one."""
    if isinstance(node, Mapping) and len(node.entries) == 1:
        word, value = node.entries[0]
        if word.value not in ONE_EXPECTATION.keys and isinstance(value, Sequence):
            hint = f"for the rows of a collection write `{{collection: {word.value}, contents: [...]}}`"
            raise notes.refuse(place.path, f"unknown key {word.value!r}", word.span, hint)
    found = ONE_EXPECTATION.read(node, place, notes)
    if found.is_empty:
        raise notes.refuse(place.path, "nothing is expected of the collection", node.span, f"add one of {RULES}")
    assert isinstance(node, Mapping)
    words = {word.value: word for word, _ in node.entries}
    for name, rules in QUALIFIED.items():
        if name in words and not words.keys() & {*rules}:
            problem = f"`{name}` is about {' or '.join(rules)}, and there is none"
            raise notes.refuse(place.path, problem, words[name].span, f"add `{rules[0]}`, or remove `{name}`")
    return found


EXPECTED = expectation
EXPECT: Shape[tuple[WrittenExpectation, ...]] = ByKind(
    "what is expected, or a list of that",
    mapping=As(EXPECTED, lambda _, one: (one,)),
    sequence=Many(EXPECTED, "a list of what is expected"),
    hint="for example `{collection: orders, unique: [id]}`",
)
STEP_KEYS = {
    "time": Key(VALUE, about="the time of rows without their own; default: the number of the step, from 0"),
    "given": Key(Pairs(NAME, GIVEN, "a mapping of inputs to rows"), about="rows of inputs, in their format; or a file"),
    "expect": Key(EXPECT, about="expectations once the times of the step are closed"),
    "budget": Key(
        STEP_BUDGET, about="the most rows, seconds or bytes that the step, or each of its operators, may take"
    ),
}
ONE_STEP: Record[WrittenStep] = Record(
    lambda place, arguments: WrittenStep(place.word.span, **arguments),
    STEP_KEYS,
    "a step",
    "{given: {orders: [{id: 1}]}, expect: {collection: orders, contents: [{id: 1}]}}",
    least=1,
)


_TEST: Record[dict[str, Any]] = Record(
    lambda _, arguments: arguments,
    {
        "name": Key(Words("a name"), about="the name of the test"),
        "steps": Key(Many(ONE_STEP, "a list of steps"), about="one after the other, from empty inputs on"),
        **STEP_KEYS,
    },
    "a test",
    "{name: counts, given: {orders: [{id: 1}]}, expect: {collection: totals, contents: [{n: 1}]}}",
    least=1,
)


@shape(_TEST.schema)
def one_test(node: Node, place: NodePlace, notes: Notes) -> WrittenTest:
    """Return a test: of several steps, of one, or of expectations that always hold."""
    found = _TEST.read(node, place, notes)
    name: Text | None = found.pop("name", None)
    steps: tuple[WrittenStep, ...] = found.pop("steps", ())
    expect: tuple[WrittenExpectation, ...] = found.get("expect", ())
    if steps and found:
        problem = f"has both 'steps' and {next(iter(found))!r}"
        raise notes.refuse(place.path, problem, node.span, "move these keys into the steps")
    if "time" in found and "given" not in found:
        raise notes.refuse(place.path, "has a time, but no `given`", node.span, "add `given`")
    standing = not steps and "given" not in found
    if standing and "budget" in found:
        raise notes.refuse(place.path, "has a budget, but no `given`", node.span, "add `given`")
    if standing:
        _check_standing(expect, node, place, notes)
    if name is None:
        if not standing:
            hint = "`- name: a word on it`: `dd test --only` selects by that"
            raise notes.refuse(place.path, "the key 'name' is missing", node.span, hint)
        name = Text(f"{', '.join(dict.fromkeys(each.collection.value for each in expect))} always", node.span)
    if standing:
        return WrittenTest(name, node.span, (), expect)
    return WrittenTest(name, node.span, steps or (WrittenStep(node.span, **found),))


def _check_standing(expect: tuple[WrittenExpectation, ...], node: Node, place: NodePlace, notes: Notes) -> None:
    if not expect:
        raise notes.refuse(place.path, "neither `given` nor `expect`", node.span, "add `given` and `expect`")
    for each in expect:
        if not each.standing:
            hint = "add `given`; or expect a condition: unique, not_null, accepted, always, non_negative"
            raise notes.refuse(each.place, "rows are expected, but there is no `given`", each.span, hint)


_TESTS = Many(one_test, "a list of tests", least=0)


@shape(_TESTS.schema)
def tests(node: Node, place: NodePlace, notes: Notes) -> tuple[WrittenTest, ...]:
    """Return a list of tests, whose names differ."""
    if not isinstance(node, Sequence):
        raise notes.mismatch(node, place, "a list of tests", "begin each test with `- `")
    found = _TESTS.read(node, place, notes)
    known: dict[str, WrittenTest] = {}
    for test in found:
        if test.steps and test.name.value in known:
            first = known[test.name.value].name.span
            problem = f"two tests are named {test.name.value!r}, the first at {first}"
            raise notes.refuse(place.path, problem, test.name.span, "rename one of the two")
        known[test.name.value] = test
    return found
