"""The comparison of expected and actual records, by multiplicity, with a tolerance for floats, in any order."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.circuit.trial import as_of, closed
from ddcli.dataclass import dataclass, frozen
from ddcli.engine.records import decode_records
from ddcli.errors import InputError, SpecError
from ddcli.expressions.nanoseconds import Fine, to_values
from ddcli.expressions.python_values import to_series
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import FilterStep
from ddcli.plan.test_steps import DIFF, Expected, expected_beside
from ddcli.store.files.access import locate
from ddcli.store.tables.files import Tables
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddcli.engine.lanes import Layout, Matrix
    from ddcli.engine.times import Frontier
    from ddcli.errors import Span
    from ddcli.expressions.types import Schema
    from ddcli.pipeline_tests.rows import Subject
    from ddcli.plan.test_steps import Expectation

CLOSE = 1e-9
"""The greatest relative difference of floats without a given tolerance: sums in another order differ."""

Record = tuple[Any, ...]


@frozen
class FailureRow:
    """A row of a failure's table, `count` times: "-" is missing, "+" is not expected."""

    mark: str
    values: Record
    count: int


@frozen
class Failure:
    """An expectation that fails: its place in the file, the problem, and the rows that show it, under their columns."""

    span: Span
    problem: str
    columns: tuple[str, ...] = ()
    rows: tuple[FailureRow, ...] = ()
    hint: str | None = None


@dataclass(frozen=True)
class Seen:
    """The collection of an expectation: the changes of a step, and the whole log up to its `upper`."""

    subject: Subject
    layout: Layout
    step: Matrix
    log: Matrix
    upper: Frontier

    def failures(self, each: Expectation) -> list[Failure]:
        """Return the failures of an expectation."""
        found: list[Failure] = []
        if each.contents is not None:
            found += self._contents(each, each.contents)
        if each.changes is not None:
            found += self._changes(each, each.changes)
        if each.written.standing:
            found += standing_failures(each, self.layout.schema, self._records(self._end()))
        return found

    @property
    def size(self) -> int:
        """Return the number of distinct records at the end."""
        return len(self._end())

    def _end(self) -> Matrix:
        """Return the collection after all closed times."""
        times = len(self.subject.time)
        width = self.layout.width
        latest = [int(value) for value in self.log[:, width:-1].max(axis=0)] if len(self.log) else [0] * times
        return as_of(self.log, times, latest)

    def _records(self, collection: Matrix) -> Counter[Record]:
        records = decode_records(collection, self.layout, self.subject.pool)
        return Counter(dict(zip(map(canonical, records), collection[:, -1].tolist(), strict=True)))

    def _contents(self, each: Expectation, expected: Expected) -> list[Failure]:
        collection = self._end()
        when = ""
        if each.at is not None:
            at = engine_time(each.at, self.subject)
            when = f" at {format_time(at, self.subject.kinds)}"
            if not closed(self.upper, np.array([at])).all():
                hint = "a step closes the times up to the last that it names"
                node = each.written.at
                assert node is not None
                raise SpecError(f"the contents{when} are not known yet", span=node.span, hint=hint)
            collection = as_of(self.log, len(self.subject.time), at)
        expected = self._filled(expected, timed=False)
        there = projected(self._records(collection), self._places(expected.columns))
        wanted: Counter[Record] = Counter()
        for values, count, _, _ in expected.rows:
            wanted[canonical(values)] += count
        return self._compared(each, f"has other contents{when}", expected, wanted, there)

    def _changes(self, each: Expectation, expected: Expected) -> list[Failure]:
        expected = self._filled(expected, timed=True)
        timed = any(time is not None for _, _, time, _ in expected.rows)
        places = self._places(expected.columns)
        there: Counter[Record] = Counter()
        width = self.layout.width
        records = decode_records(self.step, self.layout, self.subject.pool)
        for record, row in zip(records, self.step[:, width:].tolist(), strict=True):
            time = (format_time(tuple(row[:-1]), self.subject.kinds),) if timed else ()
            there[canonical((*(record[at] for at in places), *time))] += row[-1]
        wanted: Counter[Record] = Counter()
        for values, count, time_said, _ in expected.rows:
            shown = (format_time(engine_time(time_said, self.subject), self.subject.kinds),) if time_said else ()
            wanted[canonical((*values, *(shown if timed else ())))] += count
        beside = (",".join(self.subject.time),) if timed else ()
        return self._compared(each, "has other changes", expected, wanted, there, beside)

    def _places(self, columns: Sequence[str]) -> list[int]:
        names = list(self.layout.schema)
        return [names.index(name) for name in columns]

    def _compared(
        self,
        each: Expectation,
        problem: str,
        expected: Expected,
        wanted: Counter[Record],
        there: Counter[Record],
        beside: tuple[str, ...] = (),
    ) -> list[Failure]:
        missing, extra = mismatches(wanted, there, each.written.tolerance)
        if not missing and not extra:
            return []
        rows = [
            *(FailureRow("-", *pair) for pair in missing.items()),
            *(FailureRow("+", *pair) for pair in extra.items()),
        ]
        rows.sort(key=lambda row: (row.mark != "-", sort_key(row.values)))
        columns = (*expected.columns, *beside)
        return [Failure(expected.span, f"{each.collection} {problem}", columns, tuple(rows))]

    def _filled(self, expected: Expected, *, timed: bool) -> Expected:
        """Return expected rows, read from their file if they are in one, with columns to show."""
        if expected.file is None:
            # Without an expected row no columns are named: the actual rows are shown with all. With rows that name none, rows are counted.
            return (
                expected if expected.columns or expected.rows else replace(expected, columns=tuple(self.layout.schema))
            )
        subject, schema = self.subject, self.layout.schema
        path = locate(subject.request.base, expected.file.value)
        beside = expected_beside(schema, subject.time, timed=timed)
        tables = Tables({**schema, **beside})
        try:
            found = tables.footer(path)
            tables.check(path, found)
            unknown = [name for name in found if name not in schema and name not in beside]
            if unknown:
                hint = f"{expected.file.value} has it; columns: {', '.join(schema)}"
                raise SpecError(f"there is no column '{unknown[0]}'", span=expected.file.span, hint=hint)
            frame = tables.collect([path], list(found))
            kinds = {name: (schema | beside)[name] for name in found}
            columns_read = {
                name: to_values(tables.fit([path], frame[name], kind), kind) for name, kind in kinds.items()
            }
        except InputError as error:
            raise SpecError(error.problem, span=expected.file.span, hint=error.hint) from error
        columns = tuple(name for name in schema if name in found)
        times = [name for name in beside if name != DIFF and name in found]
        rows = tuple(
            (
                tuple(row[name] for name in columns),
                row.get(DIFF, 1),
                tuple(row[name] for name in times) if times else None,
                expected.span,
            )
            for row in (dict(zip(found, values, strict=True)) for values in zip(*columns_read.values(), strict=True))
        )
        return Expected(columns, rows, expected.span)


def engine_time(time: Sequence[Any], subject: Subject) -> tuple[int, ...]:
    """Return a time's coordinates as the engine's integers."""
    pairs = zip(time, subject.kinds, strict=True)
    return tuple(int(to_series("", [value], kind).to_physical().cast(pl.Int64).item()) for value, kind in pairs)


def projected(collection: Counter[Record], places: Sequence[int]) -> Counter[Record]:
    """Return some columns of records; the counts of records that become equal are summed."""
    found: Counter[Record] = Counter()
    for record, count in collection.items():
        found[tuple(record[at] for at in places)] += count
    return found


def mismatches(
    wanted: Counter[Record], there: Counter[Record], tolerance: float | None
) -> tuple[Counter[Record], Counter[Record]]:
    """Return the missing and the unexpected records. Records with near numbers count as equal.

    >>> mismatches(Counter({("a", 0.3): 1, ("b", 1.0): 2}), Counter({("a", 0.1 + 0.2): 1, ("b", 1.0): 1}), None)
    (Counter({('b', 1.0): 1}), Counter())
    """
    missing, extra = Counter(wanted), Counter(there)
    for record in wanted:
        _settle(missing, extra, record, record)
    numbers = [record for record in missing if missing[record] and any(isinstance(v, float | Decimal) for v in record)]
    for record in numbers:
        for other in [other for other in extra if extra[other] and _near(record, other, tolerance)]:
            _settle(missing, extra, record, other)
    return (Counter({r: n for r, n in missing.items() if n}), Counter({r: n for r, n in extra.items() if n}))


def _settle(missing: Counter[Record], extra: Counter[Record], record: Record, other: Record) -> None:
    """Subtract from both their common count, if the counts have one sign."""
    one, two = missing[record], extra[other]
    if one * two > 0:
        common = min(one, two) if one > 0 else max(one, two)
        missing[record] -= common
        extra[other] -= common


def _near(one: Record, other: Record, tolerance: float | None) -> bool:
    for a, b in zip(one, other, strict=True):
        if a is b or a == b:
            continue
        if not (isinstance(a, float) and isinstance(b, float)) and not (isinstance(a, Decimal) and tolerance):
            return False
        if b is None or not math.isclose(a, b, rel_tol=CLOSE if tolerance is None else 0.0, abs_tol=tolerance or 0.0):
            return False
    return True


def canonical(record: Iterable[Any]) -> Record:
    """Return a record whose values are hashable and equal if they mean the same: one NaN, one zero, tuples for lists."""
    return tuple(_canonical(value) for value in record)


NAN = float("nan")
"""The only NaN of canonical records: tuples with it are equal, because Python compares identities first."""


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return Fields((name, _canonical(each)) for name, each in value.items())
    return tuple(map(_canonical, value)) if isinstance(value, list) else value


class Fields(dict[str, Any]):
    """A struct that can be a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def _plain(value: Any) -> Any:
    """Return the value of a canonical one."""
    if isinstance(value, Fields):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def sort_key(record: Record) -> list[tuple[bool, str, Any]]:
    """Return the key that orders records for people: nulls last, values of one type by size."""
    numbers = (int, float, Decimal)
    return [
        (value is None, "" if isinstance(value, numbers) else _class_of(value).__name__, 0 if value is None else value)
        for value in (str(each) if isinstance(each, Fields) else each for each in record)
    ]


def _class_of(value: Any) -> type:
    return value.plain_class if isinstance(value, Fine) else type(value)


# --- standing expectations ----------------------------------------------------------------------------------------


def standing_failures(each: Expectation, schema: Schema, records: Counter[Record]) -> list[Failure]:
    """Return the failures of a standing expectation for a collection's records and their counts."""
    names, found = list(schema), []
    there = {record: count for record, count in records.items() if count}
    written = each.written

    def fail(span: Span, problem: str, rows: Iterable[Record], columns: Sequence[str] = tuple(schema)) -> None:
        shown = tuple(FailureRow("+", row, there.get(row, 1)) for row in sorted(rows, key=sort_key))
        if shown:
            found.append(Failure(span, f"{each.collection}: {problem}", tuple(columns), shown))

    if written.unique:
        keys = [names.index(text.value) for text in written.unique]
        counts = projected(Counter(there), keys)
        twice = {key for key, count in counts.items() if count > 1}
        listed = ", ".join(text.value for text in written.unique)
        same = [record for record in there if tuple(record[at] for at in keys) in twice]
        fail(written.unique[0].span, f"records have the same {listed}", same)
    for text in written.not_null:
        at = names.index(text.value)
        fail(text.span, f"'{text.value}' is null", [record for record in there if record[at] is None])
    spans = {name.value: name.span for name, _ in written.accepted}
    for name, values in each.accepted:
        known, at = {canonical([value]) for value in values} | {(None,)}, names.index(name)
        other = [record for record in there if canonical([record[at]]) not in known]
        fail(spans[name], f"'{name}' has values that are not accepted", other)
    if each.always is not None and there:
        assert written.always is not None
        false = _false(each, schema, list(there))
        fail(written.always.span, f"`{written.always.value}` is not true", false)
    if written.non_negative:
        fail(written.span, "records have negative multiplicities", [r for r, count in there.items() if count < 0])
    return found


def _false(each: Expectation, schema: Schema, records: Sequence[Record]) -> list[Record]:
    """Return the records for which a condition is not true."""
    assert each.always is not None
    frame = pl.DataFrame(
        [
            to_series(name, [_plain(record[at]) for record in records], kind)
            for at, (name, kind) in enumerate(schema.items())
        ]
    )
    kept = FusedSteps(dict(schema), (FilterStep(each.always),)).run(frame).rows
    true = set(range(len(records)) if kept is None else kept.tolist())
    return [record for at, record in enumerate(records) if at not in true]
