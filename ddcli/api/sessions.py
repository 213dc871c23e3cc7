"""Sessions: the inputs through which a program's updates enter a dataflow, each with a frontier that only moves forward; and its clock: times as the program writes them and as the engine holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.api.collection import Collection
from ddcli.circuit import graph
from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode, time_names
from ddcli.engine.operators.base import Delta
from ddcli.engine.pool import PUBLIC, Pool
from ddcli.engine.records import are_integers, decode_records, encode_records
from ddcli.engine.rounds import before, times_of
from ddcli.engine.times import LEAST, Frontier, Time
from ddcli.errors import DdError, InputError, UsageError
from ddcli.expressions.types import Type, parse_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from ddcli.api.dataflow import Dataflow
    from ddcli.api.traces import Record
    from ddcli.plan.relation import Relation


@frozen
class Buffer:
    """The updates that a session was given: `pending` as they were, `flushed` as matrices; `count` of them have been flushed so far."""

    pending: list[Any]
    flushed: list[np.ndarray]
    count: int = 0


class Session(Collection):
    """A collection that a program feeds.

    It may still change at the times from its frontier on. `insert`, `remove` and `update` put their updates at `time`, the frontier's
    element, as long as there is a single one.
    """

    def __init__(self, dataflow: Dataflow, relation: Relation, name: str):
        super().__init__(dataflow, relation)
        self.name = name
        self.frontier = Frontier([dataflow.clock.start])
        self._buffer = Buffer([], [])

    @property
    def time(self) -> Any:
        """Return the time of updates without their own; None if there is no such time."""
        elements = self.frontier.elements
        return self.dataflow.clock.value(elements[0]) if len(elements) == 1 else None

    def advance_to(self, time: Any) -> None:
        """Promise that no further update is at a time before `time`.

        For a product that means: every update is at or after it in all coordinates. After `advance_to((1, 1))` no update comes at
        (0, 5) any more. A list of times, or a `Frontier`, promises that each update is at or after one of them; so
        `advance_to([(0, 2), (1, 0)])` closes (0, 0) and (0, 1) alone.
        """
        frontier = self.dataflow.clock.frontier(time)
        if not self.frontier.dominates(frontier):
            show = self.dataflow.clock.show
            raise UsageError(
                f"input '{self.name}' has advanced to {show(self.frontier)}; it can't go back to {show(frontier)}"
            )
        self.frontier = frontier

    def close(self) -> None:
        """Promise that there is no further update at all."""
        self.frontier = Frontier()

    def flush(self) -> None:
        """Hand the buffered updates to the dataflow: all of them, or, if a record doesn't fit its columns, none (InputError).

        After an interrupt, at any moment, the dataflow takes no further step: its pool may have a part of their values.
        """
        known = self._buffer
        if not known.pending:
            return
        self.dataflow.torn = True
        try:
            updates = self._encoded(known.pending)
        except DdError as error:
            if isinstance(error, InputError):
                self._buffer = Buffer([], known.flushed, known.count)
            self.dataflow.torn = False
            raise
        self._buffer = Buffer([], [*known.flushed, updates], known.count + len(known.pending))
        self.dataflow.torn = False

    def _encoded(self, pending: list[Any]) -> np.ndarray:
        """Return buffered updates as a matrix. Raises InputError if a record doesn't fit its columns."""
        raise NotImplementedError

    def _due(self, upper: Frontier) -> np.ndarray | None:
        """Return the flushed updates before a frontier, and keep the others."""
        known = self._buffer
        due, later = _cut(known.flushed, upper, self.dataflow.clock.count)
        self._buffer = Buffer(known.pending, later, known.count)
        return due

    def _now(self) -> Time:
        """Return the session's time as the engine holds it."""
        elements = self.frontier.elements
        if len(elements) != 1 or LEAST in elements[0]:
            raise UsageError(
                f"input '{self.name}' is at {self.dataflow.clock.show(self.frontier)}, which is not one time",
                hint="state the time of an update with `update_at`, or `advance_to` a time first",
            )
        return elements[0]

    def _at(self, time: Any) -> Time:
        """Return the time of an update as the engine holds it. Refuses closed times."""
        lanes = self.dataflow.clock.time(time)
        if not self.frontier.less_equal(lanes):
            raise self._closed(f"time {time} is closed")
        return lanes

    def _closed(self, what: str) -> UsageError:
        return UsageError(f"input '{self.name}' has advanced to {self.dataflow.clock.show(self.frontier)}: {what}")


class Input(Session):
    """A collection that a program feeds with changes of multiplicities."""

    def __init__(self, dataflow: Dataflow, relation: Relation, name: str):
        super().__init__(dataflow, relation, name)
        self.layout = Layout(relation.schema)
        self._columns: list[int] | None = None

    def insert(self, record: Record) -> None:
        """Add a record at the session's time."""
        self._buffer.pending.append((record, self._now(), 1))

    def remove(self, record: Record) -> None:
        """Retract a record at the session's time."""
        self._buffer.pending.append((record, self._now(), -1))

    def update(self, record: Record, diff: int) -> None:
        """Change a record's multiplicity at the session's time."""
        self._buffer.pending.append((record, self._now(), diff))

    def update_at(self, record: Record, time: Any, diff: int) -> None:
        """Change a record's multiplicity at a time that the session has not passed."""
        self._buffer.pending.append((record, self._at(time), diff))

    def insert_many(self, data: np.ndarray, time: Any = None, diff: int | np.ndarray = 1) -> None:
        """Add a matrix of integers, whose rows are records, all at once; the columns must be integers that are never null.

        `time` is one for all, or a vector of times as the engine holds them, one for each record (a matrix for a product).
        """
        if data.shape[1] != self.layout.width or any(
            not kind.is_integer or kind.nullable for kind in self.layout.schema.values()
        ):
            raise UsageError(f"input '{self.name}' takes matrices only where every column is an integer, one lane each")
        width, count = self.layout.width, self.dataflow.clock.count
        updates = np.empty((len(data), width + count + 1), np.int64)
        updates[:, :width] = data
        if isinstance(time, np.ndarray):
            updates[:, width:-1] = time.reshape(-1, count)
            if before(updates[:, width:-1], self.frontier).any():
                raise self._closed("earlier times are closed")
        else:
            updates[:, width:-1] = self._now() if time is None else self._at(time)
        updates[:, -1] = diff
        self._buffer.flushed.append(updates)

    def _encoded(self, pending: list[tuple[Record, Time, int]]) -> np.ndarray:
        records = [record for record, _, _ in pending]
        if are_integers(records, self.layout):
            try:
                return np.array([(*record, *time, diff) for record, time, diff in pending], np.int64)
            except OverflowError:
                pass  # the general way below reports the column
        width, count = self.layout.width, self.dataflow.clock.count
        updates = np.empty((len(records), width + count + 1), np.int64)
        updates[:, :width] = encode_records(records, self.layout, self.dataflow.pool)
        for at in range(count):
            updates[:, width + at] = [time[at] for _, time, _ in pending]
        updates[:, -1] = [diff for _, _, diff in pending]
        return updates

    def fit(self, layout: Layout) -> None:
        lanes = self.layout.take(layout.names)
        width = self.layout.width
        whole = lanes == list(range(width))
        self._columns = None if whole else [*lanes, *range(width, width + self.dataflow.clock.count + 1)]

    def take_before(self, upper: Frontier) -> Delta | None:
        """Return the updates at times before `upper`, which must not be after the input's frontier; the others stay."""
        due = self._due(upper)
        if due is None:
            return None
        return Delta(due if self._columns is None else kernels.take(due, self._columns))


class Upserts(Session):
    """A collection of one record for each key, which a program feeds with keys' present records.

    >>> from ddcli import Dataflow
    >>> df = Dataflow()
    >>> prices = df.upsert_input("prices", {"item": "string", "price": "int64"}, key=["item"])
    >>> output = prices.output()
    >>> prices.upsert("pen", 3)
    >>> prices.advance_to(1)
    >>> prices.upsert("pen", 4)
    >>> prices.close()
    >>> df.step_while(lambda: True)
    >>> output.updates()
    [(('pen', 3), 0, 1), (('pen', 3), 1, -1), (('pen', 4), 1, 1)]
    """

    def __init__(self, dataflow: Dataflow, relation: Relation, name: str, key: tuple[str, ...]):
        super().__init__(dataflow, relation, name)
        self.key = key
        self._key = Layout({column: relation.schema[column] for column in key})
        self._value = Layout({column: kind for column, kind in relation.schema.items() if column not in key})

    def upsert(self, key: Any, value: Any) -> None:
        """Set the record of a key from the session's time on: values of the other columns, or None for no record.

        If a key has several upserts at one time the last counts. A single column needs no tuple.
        """
        self._buffer.pending.append((key, value, self._now()))

    def upsert_at(self, key: Any, value: Any, time: Any) -> None:
        """Set the record of a key from a time on that the session has not passed."""
        self._buffer.pending.append((key, value, self._at(time)))

    def _encoded(self, pending: list[tuple[Any, Any, Time]]) -> np.ndarray:
        present = [at for at, (_, value, _) in enumerate(pending) if value is not None]
        pool, nk, width = self.dataflow.pool, self._key.width, self._key.width + self._value.width
        updates = np.zeros((len(pending), width + 4), np.int64)
        updates[:, :nk] = encode_records([_several(key) for key, _, _ in pending], self._key, pool)
        values = encode_records([_several(pending[at][1]) for at in present], self._value, pool)
        updates[present, nk:width] = values
        updates[present, width] = 1
        updates[:, width + 1] = np.arange(self._buffer.count, self._buffer.count + len(pending))
        updates[:, width + 2] = [time for _, _, (time,) in pending]
        updates[:, -1] = 1
        return updates

    def indexed(self) -> graph.IndexedSource:
        """Return the collection's source in the dataflow's graph."""
        return graph.IndexedSource(self.key, self._key.schema | self._value.schema)

    united = indexed
    """The source for steps over all shards together, which is the same."""

    def fit(self, layout: Layout) -> None:
        """Do nothing: a key's record has all columns."""

    def take_before(self, upper: Frontier) -> Delta | None:
        due = self._due(upper)
        return None if due is None else Delta(due)


def _several(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)


def _cut(flushed: list[np.ndarray], upper: Frontier, count: int) -> tuple[np.ndarray | None, list[np.ndarray]]:
    """Return the updates before a frontier, and the others; `count` is the number of a time's coordinates."""
    if not flushed:
        return None, flushed
    updates = flushed[0] if len(flushed) == 1 else np.concatenate(flushed)
    if count == 1 and upper.elements:
        times = updates[:, -2]
        latest = max(times.tolist(), default=LEAST) if len(times) <= kernels.FEW else times.max()
        if latest < upper.elements[0][0]:
            return updates, []
    due = before(times_of(updates, count), upper)
    return (updates, []) if due.all() else (updates[due], [updates[~due]])


KINDS = ("int64", "date", "datetime")


class Clock:
    """The coordinates of a dataflow's time: a number of integers, or their types, one or several.

    >>> Clock(2).time((3, 4))
    (3, 4)
    >>> import datetime as dt
    >>> Clock("date").time(dt.date(1970, 1, 3))
    (2,)
    """

    def __init__(self, time: int | str | Type | Sequence[str | Type] = 1):
        given = ["int64"] * time if isinstance(time, int) else [time] if isinstance(time, str | Type) else list(time)
        kinds = [parse_type(kind) if isinstance(kind, str) else kind for kind in given]
        for text, kind in zip(given, kinds, strict=True):
            if kind is None or kind.kind not in KINDS or kind.nullable:
                hint = "a coordinate is int64, date or datetime, and never null; `time=2` is a pair of integers"
                raise UsageError(f"'{text}' is not a type of time", hint=hint)
        if not kinds:
            raise UsageError("a time has at least one coordinate", hint="`time=1` is an integer, `time=2` a pair")
        self.kinds = tuple(kind for kind in kinds if kind is not None)
        self.count = len(self.kinds)
        self.names = time_names(self.count)
        self._pool = Pool(PUBLIC)  # it stays empty: times are in lanes of their own
        self._layout = Layout(dict(zip(self.names, self.kinds, strict=True)))
        self._plain = all(kind.kind == "int64" for kind in self.kinds)
        self.start: Time = tuple(0 if kind.kind == "int64" else LEAST for kind in self.kinds)
        """The first time: integers count from 0, dates and timestamps begin before all."""

    def time(self, value: Any) -> Time:
        """Return a time as the engine holds it. Raises UsageError for a value that is not a time."""
        if type(value) is int and self._plain and self.count == 1 and -LEAST > value > LEAST:
            return (value,)
        values = (value,) if self.count == 1 and not isinstance(value, tuple) else value
        if isinstance(values, tuple) and len(values) == self.count:
            values = tuple(int(each) if isinstance(each, np.integer) else each for each in values)
            if self._plain and all(type(each) is int and -LEAST > each > LEAST for each in values):
                return values
            try:
                return tuple(encode_records([values], self._layout, self._pool)[0].tolist())
            except InputError:
                pass
        kinds = ", ".join(map(str, self.kinds))
        raise UsageError(f"{value!r} is not a time: here it is {f'a tuple ({kinds})' if self.count > 1 else kinds}")

    def value(self, time: Time) -> Any:
        """Return a time as the program's value; None for one before the least value."""
        if self._plain:
            return time if self.count > 1 else time[0]
        return None if LEAST in time else self.values(np.array([time], np.int64))[0]

    def values(self, lanes: np.ndarray) -> list[Any]:
        """Return the times in a matrix as the program's values."""
        if self._plain and self.count == 1:
            found: list[Any] = lanes[:, 0].tolist()
            return found
        records = decode_records(np.ascontiguousarray(lanes), self._layout, self._pool)
        return records if self.count > 1 else [time for (time,) in records]

    def columns(self, lanes: np.ndarray) -> list[pl.Series]:
        """Return the times in a matrix as columns of a frame."""
        return decode(np.ascontiguousarray(lanes), self._layout, self._pool).get_columns()

    def frontier(self, given: Any) -> Frontier:
        """Return the frontier of one time or several; a frontier is returned as it is. A list of no times closes everything.

        >>> Clock(2).frontier([(0, 3), (1, 2), (1, 4)])
        Frontier(elements=((0, 3), (1, 2)))
        """
        if type(given) is int:
            return Frontier((self.time(given),))
        if isinstance(given, Frontier):
            if any(len(time) != self.count for time in given):
                raise UsageError(f"the frontier {given} is not of times with {self.count} coordinates")
            return given
        if isinstance(given, list | set | frozenset):
            return Frontier(self.time(time) for time in given)
        return Frontier([self.time(given)])

    def show(self, frontier: Frontier) -> str:
        """Return a frontier in words, for messages."""
        return " ".join(str(self.value(time)) for time in frontier) or str(frontier)
