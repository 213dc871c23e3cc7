"""The tests of a pipeline file with the types of its columns: every name and value in them is checked, no data is read.

Raises, or returns, errors with places in the file: `dd test` finds only the errors that need data.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import SpecError, SpecErrors, suggestion_and_list
from ddcli.expressions.coerce import FLOAT32_END, fits_decimal, rescaled
from ddcli.expressions.moments import counted, instant, within
from ddcli.expressions.nanoseconds import FRACTION, beyond_microseconds, finer, fraction_of
from ddcli.expressions.types import INTEGERS, SECOND_DIGITS, Type
from ddcli.plan.build import build_collections
from ddcli.spec import tree
from ddcli.spec.shapes import describe
from ddcli.spec.tree import Broken, Node, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddcli.errors import DdError, Span, Text
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.plan.relation import Relation
    from ddcli.spec import tests as written
    from ddcli.spec.model import Budget, InputSpec, Spec


WRITTEN = {
    "bool": "true or false",
    "date": "a date, 2013-01-31",
    "time": "a time, 06:30:00",
    "datetime": "a timestamp, 2013-01-31 06:30:00",
    "duration": "a length of time, 01:30:00",
    "binary": "bytes in hex, 0x6464",
    "list": "a list in brackets",
    "struct": "a mapping in braces, {a: 1}",
    "string": "a text",
}
NUMBERS = ("int", "float")
INFINITE = ("NaN", "Infinity", "-Infinity")
"""Floats that every command writes as these texts."""


def read_value(node: Node, kind: Type, what: str) -> Any:
    """Return the Python value of a node, of the type of a column; `what` is the column's name in the error, a SpecError.

    Numbers are numbers and not texts: `id: '1'` is refused for an int64 column, as `id: 1` is for one of texts.
    """
    if isinstance(node, Scalar) and node.kind == "null":
        if not kind.nullable:
            hint = f"its type is {kind}; a `?` behind it would allow null"
            raise SpecError(f"{what} is null, which it can't be", span=node.span, hint=hint)
        return None
    if kind.kind == "list" and isinstance(node, tree.Sequence):
        assert kind.inner is not None
        return [read_value(item, kind.inner, f"an element of {what}") for item in node.items]
    if kind.kind == "struct" and isinstance(node, tree.Mapping):
        return _read_fields(node, kind, what)
    try:
        if isinstance(node, Scalar) and kind.kind not in ("list", "struct"):
            return _read(node, kind)
    except (ValueError, InvalidOperation, OverflowError):
        pass
    wants = WRITTEN.get(kind.kind, f"a number ({kind})" if kind.is_numeric else str(kind))
    text = node.text.value if isinstance(node, Scalar) else None
    quote = f"quote it: '{text}'" if text and kind.kind == "string" else None
    found = "nothing" if isinstance(node, Broken) else describe(node)
    raise SpecError(f"{what} is {wants}, found {found}", span=node.span, hint=quote)


def _read_fields(node: tree.Mapping, kind: Type, what: str) -> dict[str, Any]:
    """Return the value of a struct, which must have all its fields."""
    known = dict(kind.fields)
    for name, _ in node.entries:
        if name.value not in known:
            raise SpecError(f"{what} has no field '{name.value}'", span=name.span, hint=f"it has {', '.join(known)}")
    found = {name: node.get(name) for name in known}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise SpecError(f"{what} lacks its field '{missing[0]}'", span=node.span, hint=f"{missing[0]}: null, if it is")
    return {
        name: read_value(value, known[name], f"the field '{name}' of {what}")
        for name, value in found.items()
        if value is not None
    }


def _read(node: Scalar, kind: Type) -> Any:
    """Return the value of a scalar. Raises ValueError if it is not of the type."""
    text = node.text.value
    if kind.is_integer:
        if node.kind != "int":
            raise ValueError(text)
        value = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        bits = int(kind.kind.lstrip("uint"))
        low, high = (0, 2**bits) if kind.kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        if not low <= value < high:
            raise ValueError(text)
        return value
    if kind.is_float:
        if node.kind not in NUMBERS and text not in INFINITE:
            raise ValueError(text)
        return _float(text, kind)
    if kind.kind == "decimal":
        return _decimal(node, kind)
    if kind.kind == "bool":
        if node.kind != "bool":
            raise ValueError(text)
        return text.lower() == "true"
    return _read_text(node, kind)


def _float(text: str, kind: Type) -> float:
    """Return a float; ValueError if its digits are beyond the largest of the type."""
    value = float(text.replace(".inf", "inf").replace(".nan", "nan").replace(".Inf", "inf").replace(".NaN", "nan"))
    written = any(character.isdigit() for character in text)
    if written and (math.isinf(value) or (kind.kind == "float32" and abs(value) >= FLOAT32_END)):
        raise ValueError(text)
    return value


def _decimal(node: Scalar, kind: Type) -> Decimal:
    value = Decimal(node.text.value)
    if node.kind not in (*NUMBERS, "str") or not value.is_finite():
        raise ValueError(node.text.value)
    if not fits_decimal(value, kind) or rescaled(value, kind) != value:
        raise ValueError(node.text.value)
    return rescaled(value, kind)


def _read_text(node: Scalar, kind: Type) -> Any:
    text = node.text.value
    match kind.kind:
        case "string":
            if node.kind != "str":
                raise ValueError(text)
            return text
        case "binary":
            return bytes.fromhex(text.removeprefix("0x"))
        case "date":
            return dt.date.fromisoformat(text)
        case "time":
            clock = dt.time.fromisoformat(text)
            if clock.tzinfo is not None:
                raise ValueError(text)
            return finer(clock, _nanoseconds(text, kind))
        case "datetime":
            return _moment(text, kind)
        case "duration":
            return _duration(text, kind)
    raise ValueError(text)


def _nanoseconds(text: str, kind: Type) -> int:
    """Return the nanoseconds of a second beyond its microseconds, which Python cuts. Raises ValueError if it has digits that the column lacks."""
    digits = fraction_of(text)
    if digits[kind.second_digits :].strip("0"):
        raise ValueError(text)
    return beyond_microseconds(digits)


def _moment(text: str, kind: Type) -> Any:
    """Return a timestamp; one with a zone, and without an offset, is a time on clocks of the zone."""
    more = _nanoseconds(text, kind)
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None and kind.zone:
        moment = instant(moment, kind.zone)
    utc = (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    if not within(utc, kind):
        raise ValueError(text)
    return finer(utc.replace(tzinfo=None) if kind.zone is None else utc.astimezone(ZoneInfo(kind.zone)), more)


def _duration(text: str, kind: Type) -> Any:
    """Return a length of time, [days ]hours:minutes:seconds."""
    more = _nanoseconds(text, kind)
    days, _, clock = text.rpartition(" ")
    hours, minutes, seconds = clock.split(":")
    cut = float(FRACTION.sub(lambda found: found[0][: 1 + SECOND_DIGITS["us"]], seconds))
    length = dt.timedelta(days=int(days or 0), hours=int(hours), minutes=int(minutes), seconds=cut)
    if not -(2**63) <= counted(length, kind) < 2**63 - more:
        raise ValueError(text)
    return finer(length, more)


INT64 = Type("int64")
DIFF = "diff"
BEGINNING = dt.datetime(2000, 1, 1)  # noqa: DTZ001 - times have no zone: they are in UTC

Nested = dict[str, "Type | dict[str, Type]"]
"""The columns of a file; the columns of a struct by themselves."""


@frozen
class GivenRows:
    """Rows of an input, as a file of its format would have them: columns, values by name, and the row's place. Or a file."""

    columns: Nested
    rows: tuple[tuple[dict[str, Any], Span], ...]
    span: Span
    file: Text | None = None


@frozen
class Expected:
    """The expected rows of a collection: the columns that are compared, then each row's values, count, time (if stated) and place."""

    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[Any, ...], int, tuple[Any, ...] | None, Span], ...]
    span: Span
    file: Text | None = None


@frozen
class Expectation:
    """An expectation of a collection, `written` so in the file; columns and values are those that the collection has."""

    written: written.WrittenExpectation
    contents: Expected | None
    changes: Expected | None
    at: tuple[Any, ...] | None
    accepted: tuple[tuple[str, tuple[Any, ...]], ...]
    always: Expression | None

    @property
    def collection(self) -> str:
        return self.written.collection.value


@frozen
class Step:
    """A step: the time of rows without their own, the rows for each input, the expected rows then, and its budget."""

    span: Span
    time: tuple[Any, ...]
    given: tuple[tuple[str, GivenRows], ...]
    expect: tuple[Expectation, ...]
    budget: Budget | None = None


@frozen
class Test:
    """A test; without steps, expectations that hold after each step."""

    name: str
    span: Span
    steps: tuple[Step, ...]
    expect: tuple[Expectation, ...]


def tested_collections(spec: Spec) -> dict[str, str]:
    """Return the names in the expectations of tests, each with the name of the collection that it means.

    A name means a collection or input of that name; if there is none, the collection that the output of that name writes.
    """
    steps = [step for test in spec.tests for step in test.steps]
    expected = [*(one for test in spec.tests for one in test.expect), *(one for step in steps for one in step.expect)]
    return {one.collection.value: collection_named(spec, one.collection.value) for one in expected}


def collection_named(spec: Spec, name: str) -> str:
    """Return the collection or input of a name, which may be an output's."""
    given = {one for collection in spec.collections.values() for one in collection.names}
    return name if name in given or name in spec.inputs else spec.outputs[name].source.value


def check_tests(spec: Spec, inputs: Mapping[str, Schema], time: Schema) -> None:
    """Raise SpecErrors with all that is wrong in the tests of a pipeline that is right otherwise."""
    if not spec.tests:
        return
    relations = build_collections(spec, inputs, list(time.values()))
    typed_tests(spec, inputs, time, {name: relations[of] for name, of in tested_collections(spec).items()})


def typed_tests(
    spec: Spec, inputs: Mapping[str, Schema], time: Schema, relations: Mapping[str, Relation]
) -> tuple[Test, ...]:
    """Return the tests of a pipeline whose `inputs` have these data columns and all the times `time`.

    `relations` come from `tested_collections`, by their names here. Raises SpecErrors with all errors.
    """
    reader = _TestReader(spec, inputs, time, relations, [])
    tests = tuple(reader.test(test) for test in spec.tests)
    if reader.errors:
        raise SpecErrors(reader.errors)
    return tests


@dataclass
class _TestReader:
    """The reader of tests: it collects errors, and continues with the rest."""

    spec: Spec
    inputs: Mapping[str, Schema]
    time: Schema
    relations: Mapping[str, Relation]
    errors: list[DdError]
    last: dt.datetime = BEGINNING
    """The time of the last step, if runs make the times."""

    def test(self, test: written.WrittenTest) -> Test:
        self.last = BEGINNING
        steps = tuple(self.step(step, at) for at, step in enumerate(test.steps))
        return Test(test.name.value, test.span, steps, self.expectations(test.expect))

    def step(self, step: written.WrittenStep, at: int) -> Step:
        time = self.times(step.time) if step.time is not None else None
        if time is None:
            time = self.default_time(step, at)
        if self.spec.clock == "arrival" and isinstance(time[0], dt.datetime):
            self.last = time[0]
        given = [(name.value, self.given(self.spec.inputs[name.value], rows, time)) for name, rows in step.given]
        return Step(step.span, time, tuple(given), self.expectations(step.expect), step.budget)

    def default_time(self, step: written.WrittenStep, at: int) -> tuple[Any, ...]:
        """Return the number of the step if times are integers; if runs make the times, one second after the last step's."""
        if self.spec.clock == "arrival":
            return (self.last + dt.timedelta(seconds=1),)
        if all(kind.kind in INTEGERS for kind in self.time.values()):
            return (at,) * len(self.time)
        if step.time is None:
            time = ", ".join(f"{name}: {kind}" for name, kind in self.time.items())
            self.errors.append(
                SpecError(f"a step needs a `time`: {time}", span=step.span, hint="add `time: 2013-01-31`")
            )
        return (None,) * len(self.time)

    def times(self, node: tree.Node) -> tuple[Any, ...] | None:
        """Return the coordinates of a time, written as a list if there are several."""
        kinds = list(self.time.items())
        nodes = node.items if len(kinds) > 1 and isinstance(node, tree.Sequence) else (node,)
        if len(nodes) != len(kinds):
            hint = f"write it as a list: [{', '.join(self.time)}]"
            self.errors.append(SpecError(f"a time has {len(kinds)} coordinates", span=node.span, hint=hint))
            return None
        values = [self.value(one, kind, f"the {name}") for one, (name, kind) in zip(nodes, kinds, strict=True)]
        return tuple(values)

    def value(self, node: tree.Node, kind: Type, what: str) -> Any:
        """Return a value; add its errors to `errors`."""
        try:
            return read_value(node, kind, what)
        except SpecError as error:
            self.errors.append(error)
            return None

    # --- given rows -----------------------------------------------------------------------------------------------

    def given(self, given: InputSpec, rows: written.WrittenRows, time: tuple[Any, ...]) -> GivenRows:
        columns = file_columns(given, self.inputs[given.name.value], self.time)
        times = dict(zip((text.value for text in given.time), time, strict=True))
        read = tuple((self.cells(columns, cells, times), span) for cells, span in rows.items)
        return GivenRows(columns, read, rows.span, rows.file)

    def cells(self, columns: Nested, cells: written.Cells, times: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a row. Columns that are left out are null; if the pipeline needs one, reading the data reports it."""
        row: dict[str, Any] = dict(times)
        for name, node in cells:
            kind = columns.get(name.value)
            if kind is None:
                self.unknown(name, columns)
            elif isinstance(kind, Type):
                row[name.value] = self.value(node, kind, f"'{name.value}'")
            elif isinstance(node, tree.Mapping):
                row[name.value] = self.cells({**kind}, node.entries, {})
            else:
                row[name.value] = self.value(node, Type("null", nullable=True), f"'{name.value}'")
        return row

    def unknown(self, name: Text, columns: Mapping[str, Any]) -> None:
        hint = suggestion_and_list(name.value, columns, f"columns: {', '.join(columns)}")
        self.errors.append(SpecError(f"there is no column '{name.value}'", span=name.span, hint=hint))

    # --- expected rows --------------------------------------------------------------------------------------------

    def expectations(self, expect: Sequence[written.WrittenExpectation]) -> tuple[Expectation, ...]:
        return tuple(self.expectation(each) for each in expect if each.collection.value in self.relations)

    def expectation(self, each: written.WrittenExpectation) -> Expectation:
        relation = self.relations[each.collection.value]
        schema = relation.schema
        for name in (*each.unique, *each.not_null, *(name for name, _ in each.accepted)):
            if name.value not in schema:
                self.unknown(name, schema)
        accepted = [
            (name.value, tuple(self.value(node, schema[name.value].or_null(), f"'{name.value}'") for node in nodes))
            for name, nodes in each.accepted
            if name.value in schema
        ]
        return Expectation(
            each,
            self.expected(each.contents, schema, timed=False) if each.contents else None,
            self.expected(each.changes, schema, timed=True) if each.changes else None,
            self.times(each.at) if each.at is not None else None,
            tuple(accepted),
            self.condition(each.always, relation) if each.always else None,
        )

    def condition(self, text: Text, relation: Relation) -> Expression | None:
        """Return a condition on the records of a collection."""
        try:
            condition = relation.scalar(text)
        except (SpecError, SpecErrors) as error:
            self.errors.append(error)
            return None
        if condition.type.kind not in ("bool", "null"):
            hint = "compare it, for example with `> 0`"
            self.errors.append(SpecError(f"a condition is a bool, not {condition.type}", span=text.span, hint=hint))
        return condition

    def expected(self, rows: written.WrittenRows, schema: Schema, *, timed: bool) -> Expected:
        beside = expected_beside(schema, self.time, timed=timed)
        known = schema | beside
        named = {name.value: name for cells, _ in rows.items for name, _ in cells}
        for name, text in named.items():
            if name not in known:
                self.unknown(text, known)
        columns = tuple(name for name in schema if name in named)
        read = [(*self.expected_row(cells, span, columns, schema, beside), span) for cells, span in rows.items]
        if len({time is None for _, _, time, _ in read}) > 1:
            hint = "give all of them a time, or none"
            self.errors.append(SpecError("some of the rows have a time, others don't", span=rows.span, hint=hint))
        return Expected(columns, tuple(read), rows.span, rows.file)

    def expected_row(
        self, cells: written.Cells, span: Span, columns: Sequence[str], schema: Schema, beside: Schema
    ) -> tuple[tuple[Any, ...], int, tuple[Any, ...] | None]:
        known = schema | beside
        found = {
            name.value: self.value(node, known[name.value], f"'{name.value}'")
            for name, node in cells
            if name.value in known
        }
        for name in columns:
            if name not in found and not schema[name].nullable:
                hint = "name the same columns in each row; only those are compared"
                self.errors.append(SpecError(f"the row lacks '{name}', which is never null", span=span, hint=hint))
        times = [name for name in beside if name != DIFF]
        written = [name for name in times if name in found]
        if written and written != times:
            self.errors.append(SpecError(f"the row has only {', '.join(written)} of its time", span=span))
        time = tuple(found[name] for name in times) if written == times and times else None
        return tuple(found.get(name) for name in columns), found.get(DIFF, 1), time


def expected_beside(schema: Schema, time: Schema, *, timed: bool) -> Schema:
    """Return the columns that expected rows may have beside the collection's own: the diff and, of changes, the time."""
    beside = {**(time if timed else {}), DIFF: INT64}
    return {name: kind for name, kind in beside.items() if name not in schema}


def file_columns(given: InputSpec, data: Schema, time: Schema) -> Nested:
    """Return the columns of a file of an input's format, in which rows may be given. A test may leave out columns that are not read."""
    # A delete has no values beside its key.
    own: Nested = dict(_null(data) if given.key or given.format == "delta_cdf" else data)
    if given.format == "debezium" and not given.flattened:
        order = (given.order_by.value if given.order_by else "source.lsn").split(".")
        own = {"before": dict(_null(data)), "after": dict(_null(data)), "op": Type("string", nullable=True)}
        if given.key:
            own |= {order[0]: {order[1]: INT64}} if len(order) == 2 else {order[0]: INT64}
    elif given.format == "delta_cdf":
        own |= {"_change_type": Type("string", nullable=True)}
    elif given.diff is not None or given.format == "import":
        own |= {given.diff.value if given.diff and not given.table else DIFF: INT64}
    times = zip((text.value for text in given.time), time.values(), strict=True)
    return own | dict(times)


def _null(schema: Schema) -> Iterator[tuple[str, Type]]:
    """Yield columns with nulls allowed."""
    return ((name, kind.or_null()) for name, kind in schema.items())
