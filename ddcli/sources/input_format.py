"""Properties of inputs beside their rows: their formats, and diagnostics for key violations."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.errors import InputError, SpecError
from ddcli.expressions.types import ARRIVAL, ARRIVAL_TIME
from ddcli.privacy import previewed
from ddcli.store.formats.base import Append, Format, SnapshotsFormat, Updates, UpsertFormat
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.expressions.types import Schema
    from ddcli.sources.arrangement_input import SharedReader
    from ddcli.spec.model import InputSpec, Spec
    from ddcli.store.log.reader import LogReader
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.state.entries import Times


TIME = "time"
"""The name of the time column of an output where the time has one coordinate."""
InputReport = tuple[list[tuple[str, int]], Counter[int], Counter[int]]
"""The reports of an input's operators: see `InputFacts`."""


def format_of(given: InputSpec) -> Format:
    """Return the format of an input's rows."""
    columns = {column: kind for column, (_, kind) in given.columns.items()} if given.columns is not None else None
    if given.arrives and columns is not None:
        columns[ARRIVAL] = ARRIVAL_TIME
    every: tuple[Any, ...] = tuple(text.value for text in given.time), columns
    file_name = given.file_name.value if given.file_name else None
    common: dict[str, Any] = {"file_name": file_name, "late": given.late, "ignored": given.ignored}
    common |= {"lasting": given.lasting, "quarantines": given.quarantines, "inferred": given.inferred}
    common["rounds"] = given.rounding is not None
    common["former"] = given.former
    if given.beside:
        common["clock_hint"] = given.clock_hint
    common["absent"] = given.optional
    if given.table and columns is not None:
        common["absent"] = tuple(name for name, kind in columns.items() if kind.nullable)
    if given.csv is not None:
        common["dialect"] = replace(given.csv, names=tuple(name for name in columns or () if name != ARRIVAL))
    key = tuple(text.value for text in given.key)
    match given.format:
        case "append":
            return Append(*every, **common)
        case "delta_cdf":
            from ddcli.store.formats.delta_cdf import DeltaCdf

            return DeltaCdf(*every, **common)
        case "snapshots":
            return SnapshotsFormat(*every, **common, key=key, order_by=given.order_by)
        case "debezium" if not given.flattened:
            from ddcli.store.formats.debezium import Debezium

            order = given.order_by.value if given.order_by else "source.lsn"
            return Debezium(*every, **common, key=key, order=order)
        case "upsert" | "debezium":
            kind = UpsertFormat
            if given.flattened:
                from ddcli.store.formats.debezium import Flattened as kind  # noqa: N813 - it is one

            return kind(*every, **common, key=key, delete_when=given.delete_when, order_by=given.order_by)
    return Updates(*every, **common, diff=given.diff.value if given.diff else None)


def shared_time(spec: Spec, schemas: Mapping[str, LogSchema]) -> Schema:
    """Return the outputs' time columns, of the types that all inputs' times have, or refuse a mixture.

    A single time is called `time`, the coordinates of a product as in the inputs; where there is no input, it is the time of arrivals.
    """
    if not schemas:
        return {TIME: ARRIVAL_TIME}
    # A log without files has no types; where no log has any, times are supposed to be integers.
    known = {name: tuple(schema.time.values()) for name, schema in schemas.items() if schema.diff is not None}
    columns = next(iter(schemas.values())).time
    first, kinds = next(iter(known.items()), ("", tuple(columns.values())))
    for name, other in known.items():
        if other != kinds:
            times = [", ".join(map(str, each)) for each in (other, kinds)]
            raise SpecError(
                f"the time of input '{name}' is {times[0]}, that of '{first}' is {times[1]}",
                span=spec.inputs[name].name.span,
                hint="the inputs of a pipeline share one time: write them with the same type",
            )
    return dict(zip(columns if len(kinds) > 1 else (TIME,), kinds, strict=True))


@dataclass
class InputFacts:
    """The description of an input that its operators read, and their reports. Shards may report from several threads."""

    given: InputSpec
    reader: LogReader
    snapshots: list[int] = field(default_factory=list)
    truncations: list[tuple[int, int]] = field(default_factory=list)
    watched: list[tuple[str, int]] = field(default_factory=list)
    """The problem of a negative record that is only reported, and the number of its shard's updates that have it."""
    _gone: Counter[int] = field(default_factory=Counter)
    _before: Counter[int] = field(default_factory=Counter)

    def apart(self) -> InputFacts:
        """Return empty facts for a task, whose attempt may fail."""
        return replace(self, watched=[], _gone=Counter(), _before=Counter())

    def report(self) -> InputReport:
        """Return all reports, for `add`."""
        return self.watched, self._gone, self._before

    def add(self, report: InputReport) -> None:
        """Add the reports of a task."""
        watched, gone, before = report
        self.watched += watched
        self._gone += gone
        self._before += before

    def tied(self, key: dict[str, Any], time: int) -> InputError:
        """Return the error for a key with two different rows at one time when neither is the last."""
        hint = "make their order different, or delete one of the rows"
        if self.given.order_by is None and not self.given.format.startswith("debezium"):
            hint = "choose the last of a key's rows at one time with the input's `order_by`"
        return self._refused(key, time, "has different rows of the same order at", hint)

    def twice(self, key: dict[str, Any], time: int) -> InputError:
        """Return the error for a key that is in a snapshot twice."""
        hint = "correct the file, or leave out the input's `key` to compare whole records"
        return self._refused(key, time, "is twice in the snapshot of", hint)

    def deleted(self, time: int, gone: int, before: int) -> None:
        """Count the records before a snapshot, in one shard, and those that are not in it."""
        self._gone[time] += gone
        self._before[time] += before

    def negative(self, record: dict[str, Any], time: int, count: int, found: int) -> None:
        """Refuse a record whose multiplicity is negative, or remember it; it is the first of those `found` in one shard."""
        values = ", ".join(f"{name} = {value!r}" for name, value in previewed(record).items())
        problem = f"the record {values} has the multiplicity {count} at the time {self._time(time)}"
        if self.given.negative == "error":
            place = self.reader.find(record, time) or self.given.path.value
            hint = "it was retracted more often than inserted; correct the input, or set `negative: warn` or `allow`"
            raise InputError(problem, place=place, hint=hint)
        self.watched.append((problem, found))

    def negatives(self) -> tuple[int, str | None]:
        """Return the number of updates that left a record with a negative multiplicity, and the problem of one of them."""
        return sum(found for _, found in self.watched), min((problem for problem, _ in self.watched), default=None)

    def check(self) -> None:
        """Refuse a snapshot that deletes more than it may."""
        most = self.given.max_delete
        if most is None:
            return
        from ddcli.spec.inputs import allowed

        for time in self.snapshots:
            gone, before = self._gone[time], self._before[time]
            if gone > allowed(most.value, before):
                raise InputError(
                    f"inputs.{self.given.name.value}: the snapshot of {self._time(time)} deletes {gone} of {before} records, "
                    f"more than `max_delete: {most.value}` allows",
                    span=most.span,
                    hint="look at the snapshot's files; if they are right, raise `max_delete` for this run",
                )

    def _refused(self, key: dict[str, Any], time: int, problem: str, hint: str) -> InputError:
        values = ", ".join(f"{name} = {value!r}" for name, value in previewed(key).items())
        place = self.reader.find(key, time) or self.given.path.value
        return InputError(f"the key {values} {problem} the time {self._time(time)}", place=place, hint=hint)

    def _time(self, time: int) -> str:
        return format_time((time,), list(self.reader.schema.time.values()))


def facts_of(
    spec: Spec, readers: Mapping[str, LogReader | SharedReader], lower: Times | None, upper: Times
) -> dict[str, InputFacts]:
    """Return the facts of the inputs that have keys or tables, for the times of an interval."""
    from ddcli.sources.arrangement_input import SharedReader

    found = {}
    for name, reader in readers.items():
        given = spec.inputs[name]
        if isinstance(reader, SharedReader):
            continue
        if given.format == "snapshots":
            found[name] = InputFacts(given, reader, reader.snapshot_times(lower, upper))
        elif given.key or given.negative != "allow":
            found[name] = InputFacts(given, reader, truncations=reader.truncations(lower, upper))
    return found
