"""The interactive surface: a dataflow in a Python program, on the same plan and engine as a pipeline file.

    df = Dataflow()
    manages = df.input("manages", {"manager": "int64", "employee": "int64"})
    skip = manages.join(manages, on={"manager": "employee"}, name="up").map(employee="employee", skip="up.manager").output()
    manages.insert((1, 2)); manages.insert((0, 1)); manages.advance_to(1); manages.flush()
    df.step()
    skip.updates()      # [((2, 0), 0, 1)]

Expressions are those of pipeline files. Nothing is emitted for a time until the frontier of every input has passed it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.assemble.graph import Assembled, assemble
from ddcli.engine import kernels
from ddcli.engine.arrangement.trace import Trace
from ddcli.engine.dataflow import Scope
from ddcli.engine.lanes import Layout, decode_records, encode_records
from ddcli.engine.operators.base import Delta, Interval
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.engine.updates import to_frame
from ddcli.engine.workers import Workers
from ddcli.errors import Span, Text, UsageError
from ddcli.expressions.types import Schema, Type, parse_type
from ddcli.plan import logical
from ddcli.plan.build import apply_operators
from ddcli.plan.lower import lower
from ddcli.plan.relation import Relation
from ddcli.spec import model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import polars as pl

HERE = Span("<python>", 1, 1)
Record = tuple[Any, ...]
Update = tuple[Record, int, int]


class Dataflow:
    """Inputs, collections over them, outputs. The first `step` fixes the graph."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise UsageError(f"{workers} workers: it takes at least one worker to run a dataflow")
        self.workers = workers
        self.pool = Pool()
        self.frontier = 0
        self._inputs: dict[str, Input] = {}
        self._outputs: dict[str, Output] = {}
        self._assembled: Assembled | None = None
        self._show: Callable[[str, pl.DataFrame], None] = print

    def input(self, name: str, schema: Mapping[str, str | Type]) -> Input:
        """Return a new input with these columns; it is a collection, and a session that takes updates."""
        self._open()
        if name in self._inputs:
            raise UsageError(f"there is an input '{name}' already")
        columns: Schema = {}
        for column, given in schema.items():
            kind = parse_type(given) if isinstance(given, str) else given
            if kind is None:
                raise UsageError(f"input '{name}': column '{column}' has an unknown type '{given}'")
            columns[column] = kind
        session = Input(self, Relation(logical.Source((), columns, name)), name, Layout(columns))
        self._inputs[name] = session
        return session

    def step(self) -> int:
        """Close every time that all inputs have passed, and return the new frontier."""
        assembled = self._assembled or self._assemble()
        upper = min((session.time for session in self._inputs.values()), default=self.frontier)
        if upper <= self.frontier:
            return self.frontier
        fed = {}
        for name in assembled.sources:
            updates = self._inputs[name].take_before(upper)
            if updates is not None:
                fed[name] = Delta(updates)
        for name, delta in assembled.step(fed, Interval(Frontier([(self.frontier,)]), Frontier([(upper,)]))).items():
            self._outputs[name].accept(delta)
        self.frontier = upper
        return upper

    def step_while(self, condition: Callable[[], bool]) -> None:
        """Step while `condition` holds and stepping moves the frontier."""
        while condition():
            before = self.frontier
            if self.step() == before:
                return

    def _open(self) -> None:
        if self._assembled is not None:
            raise UsageError(
                "the dataflow has run: its graph is fixed", hint="make all inputs, collections and outputs first"
            )

    def _assemble(self) -> Assembled:
        graph = lower(logical.Graph({name: output.relation.node for name, output in self._outputs.items()}))
        self._assembled = assemble(graph, Scope(workers=Workers(self.workers)), self, self.pool, self._show)
        for name, layout in self._assembled.layouts.items():
            self._inputs[name].fit(layout)
        return self._assembled

    def trace(self, identity: str, key: Layout, value: Layout, nt: int) -> Trace:
        """Return an empty trace: the dataflow's state is its own."""
        return Trace(key.width, value.width, nt, since=Frontier([(self.frontier,)]))

    def output_of(self, relation: Relation) -> Output:
        """Let the updates of a collection be read."""
        self._open()
        output = Output(self, relation, Layout(relation.schema))
        self._outputs[f"output{len(self._outputs)}"] = output
        return output


@dataclass(eq=False)
class Collection:
    """A multiset of records that changes with time. Methods give new collections, named as the operators of a pipeline."""

    dataflow: Dataflow
    relation: Relation

    def map(self, **columns: str) -> Collection:
        """Give exactly these columns, each by an expression."""
        return self._apply(model.Map(**_place("map"), columns=_assign(columns)))

    def extend(self, **columns: str) -> Collection:
        """Add or replace columns."""
        return self._apply(model.Extend(**_place("extend"), columns=_assign(columns)))

    def project(self, *columns: str) -> Collection:
        """Keep these columns, in this order."""
        return self._apply(model.Project(**_place("project"), columns=_texts(columns)))

    def rename(self, **columns: str) -> Collection:
        """Rename columns, old=new."""
        return self._apply(model.Rename(**_place("rename"), columns=_assign(columns)))

    def filter(self, condition: str) -> Collection:
        """Keep the records for which the condition is true."""
        return self._apply(model.Filter(**_place("filter"), condition=_text(condition)))

    def explode(self, weight: str) -> Collection:
        """Multiply each diff by an integer expression."""
        return self._apply(model.Explode(**_place("explode"), weight=_text(weight)))

    def negate(self) -> Collection:
        """Change the sign of every diff."""
        return self._apply(model.Negate(**_place("negate")))

    def concat(self, *others: Collection) -> Collection:
        """Add the updates of other collections."""
        return self._apply(model.Concat(**_place("concat"), sources=_texts(_names(others))), *others)

    def consolidate(self) -> Collection:
        """Give at most one update for a record and time."""
        return self._apply(model.Consolidate(**_place("consolidate")))

    def join(
        self,
        other: Collection,
        on: Sequence[str] | Mapping[str, str],
        how: model.How = "inner",
        name: str | None = None,
    ) -> Collection:
        """Join by equal columns; `name` qualifies the other side's columns in expressions."""
        operator = model.Join(**_place("join"), right=_text("0"), on=_on(on), how=how, name=_text(name or "right"))
        return self._apply(operator, other)

    def semijoin(self, other: Collection, on: Sequence[str] | Mapping[str, str]) -> Collection:
        """Keep the records that have a match in `other`."""
        return self._apply(model.Semijoin(**_place("semijoin"), right=_text("0"), on=_on(on)), other)

    def antijoin(self, other: Collection, on: Sequence[str] | Mapping[str, str]) -> Collection:
        """Keep the records that have no match in `other`."""
        return self._apply(model.Antijoin(**_place("antijoin"), right=_text("0"), on=_on(on)), other)

    def reduce(self, by: Sequence[str] | Mapping[str, str], **columns: str) -> Collection:
        """Aggregate each group: the columns are `by`, then these."""
        keys = [(name, name) for name in by] if not hasattr(by, "items") else list(by.items())
        groups = tuple(model.Key(_text(name), None if name == value else _text(value)) for name, value in keys)
        return self._apply(model.Reduce(**_place("reduce"), by=groups, columns=_assign(columns)))

    def count(self, by: Sequence[str] | None = None, name: str = "count") -> Collection:
        """Count how often each record occurs, or, with `by`, the records of each group."""
        return self._apply(model.Count(**_place("count"), name=name, by=None if by is None else _texts(by)))

    def distinct(self) -> Collection:
        """Give each record that is present once."""
        return self._apply(model.Distinct(**_place("distinct")))

    def threshold(self, multiplicity: str) -> Collection:
        """Give each record the multiplicity that an expression over `count` says."""
        return self._apply(model.Threshold(**_place("threshold"), multiplicity=_text(multiplicity)))

    def top_k(self, k: int, order_by: Sequence[str], by: Sequence[str] = ()) -> Collection:
        """Keep the first `k` records of each group; an order is a column or expression, perhaps with ` desc`."""
        orders = tuple(
            model.Order(_text(order.removesuffix(" desc")), descending=order.endswith(" desc")) for order in order_by
        )
        return self._apply(model.TopK(**_place("top_k"), k=k, order_by=orders, by=_texts(by)))

    def output(self) -> Output:
        """Return a handle from which the collection's updates can be read."""
        return self.dataflow.output_of(self.relation)

    def probe(self) -> Probe:
        """Return a handle that says which times can still change."""
        return Probe(self.dataflow)

    def _apply(self, operator: model.Operator, *others: Collection) -> Collection:
        if any(other.dataflow is not self.dataflow for other in others):
            raise UsageError(f"`{operator.place}` is given a collection of another dataflow")
        relations = {str(at): other.relation for at, other in enumerate(others)}

        def other(source: model.Source) -> Relation:
            assert isinstance(source, Text), "operators made here refer to others by name"
            return relations[source.value]

        relation = apply_operators(self.relation, [operator], other)
        return Collection(self.dataflow, relation)


@dataclass(eq=False)
class Input(Collection):
    """A collection that a program feeds. Its session's time only moves forward; updates carry it unless they say another."""

    name: str
    layout: Layout
    time: int = 0
    _pending: list[tuple[Record, int, int]] = field(default_factory=list)
    _flushed: list[np.ndarray] = field(default_factory=list)
    _columns: list[int] | None = None

    def insert(self, record: Record) -> None:
        """Add a record at the session's time."""
        self._pending.append((record, self.time, 1))

    def remove(self, record: Record) -> None:
        """Take a record away at the session's time."""
        self._pending.append((record, self.time, -1))

    def update(self, record: Record, diff: int) -> None:
        """Change a record's multiplicity at the session's time."""
        self._pending.append((record, self.time, diff))

    def update_at(self, record: Record, time: int, diff: int) -> None:
        """Change a record's multiplicity at a time that the session has not passed."""
        if time < self.time:
            raise UsageError(f"input '{self.name}' has advanced to {self.time}: time {time} is closed")
        self._pending.append((record, time, diff))

    def insert_many(self, data: np.ndarray, time: int | np.ndarray | None = None, diff: int | np.ndarray = 1) -> None:
        """Add a matrix of integers, a row a record, all at once; the columns must be integers that are never null."""
        if data.shape[1] != self.layout.width or any(
            not kind.is_integer or kind.nullable for kind in self.layout.schema.values()
        ):
            raise UsageError(f"input '{self.name}' takes matrices only where every column is an integer, one lane each")
        times = self.time if time is None else time
        if np.min(times, initial=self.time) < self.time:
            raise UsageError(f"input '{self.name}' has advanced to {self.time}: earlier times are closed")
        updates = np.empty((len(data), self.layout.width + 2), np.int64)
        updates[:, :-2] = data
        updates[:, -2] = times
        updates[:, -1] = diff
        self._flushed.append(updates)

    def advance_to(self, time: int) -> None:
        """Promise no further update before `time`."""
        if time < self.time:
            raise UsageError(f"input '{self.name}' has advanced to {self.time}; it can't go back to {time}")
        self.time = time

    def flush(self) -> None:
        """Hand what was buffered to the dataflow: all of it, or, where a record doesn't fit its columns, none (InputError)."""
        if self._pending:
            pending, self._pending = self._pending, []
            records = encode_records([record for record, _, _ in pending], self.layout, self.dataflow.pool)
            updates = np.empty((len(records), self.layout.width + 2), np.int64)
            updates[:, :-2] = records
            updates[:, -2] = [time for _, time, _ in pending]
            updates[:, -1] = [diff for _, _, diff in pending]
            self._flushed.append(updates)

    def fit(self, layout: Layout) -> None:
        """Learn which columns the dataflow reads."""
        lanes = self.layout.take(layout.names)
        width = self.layout.width
        self._columns = None if lanes == list(range(width)) else [*lanes, width, width + 1]

    def take_before(self, upper: int) -> np.ndarray | None:
        """Return the updates at times before `upper`, in the lanes that the dataflow reads; the others stay."""
        self.flush()
        if not self._flushed:
            return None
        updates = self._flushed[0] if len(self._flushed) == 1 else np.concatenate(self._flushed)
        self._flushed.clear()
        if self.time > upper or (len(updates) and updates[:, -2].max() >= upper):
            later = updates[:, -2] >= upper
            if later.any():
                self._flushed.append(updates[later])
                updates = updates[~later]
        return kernels.take(updates, self._columns) if self._columns is not None else updates


@dataclass(eq=False)
class Output:
    """The updates of a collection, as they become final."""

    dataflow: Dataflow
    relation: Relation
    layout: Layout
    _ready: list[Delta] = field(default_factory=list)

    def accept(self, delta: Delta) -> None:
        """Take a step's updates."""
        if len(delta.updates):
            self._ready.append(delta)

    def lanes(self) -> np.ndarray:
        """Return all updates since the last call as a matrix of lanes, consolidated."""
        parts = [delta.updates for delta in self._ready]
        distinct = len(self._ready) == 1 and self._ready[0].distinct
        self._ready.clear()
        if not parts:
            return np.empty((0, self.layout.width + 2), np.int64)
        updates = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return updates if distinct else kernels.consolidate(updates)

    def updates(self) -> list[Update]:
        """Return all updates since the last call as (record, time, diff), in the order of time."""
        lanes = self.lanes()
        records = decode_records(lanes, self.layout, self.dataflow.pool)
        found = [(record, int(row[-2]), int(row[-1])) for record, row in zip(records, lanes, strict=True)]
        return sorted(found, key=lambda update: update[1])

    def frame(self) -> pl.DataFrame:
        """Return all updates since the last call as a frame, with columns `time` and `diff` beside the data's."""
        for name in ("time", "diff"):
            if name in self.layout.schema:
                raise UsageError(
                    f"the column '{name}' would be there twice in a frame",
                    hint="rename it, or read `updates` or `lanes`",
                )
        return to_frame(self.lanes(), self.layout, self.dataflow.pool, 1)


@dataclass(frozen=True)
class Probe:
    """Asks whether a collection can still change at a time."""

    dataflow: Dataflow

    def less_than(self, time: int) -> Callable[[], bool]:
        """Return a condition that holds while times before `time` are open."""
        return lambda: self.dataflow.frontier < time


def _place(name: str) -> dict[str, Any]:
    return {"span": HERE, "place": name}


def _text(value: str) -> Text:
    return Text(value, HERE)


def _texts(values: Iterable[str]) -> tuple[Text, ...]:
    return tuple(_text(value) for value in values)


def _names(collections: Iterable[Collection]) -> list[str]:
    return [str(at) for at, _ in enumerate(collections)]


def _assign(columns: Mapping[str, str]) -> tuple[tuple[Text, Text], ...]:
    return tuple((_text(name), _text(value)) for name, value in columns.items())


def _on(on: Sequence[str] | Mapping[str, str]) -> tuple[tuple[Text, Text], ...]:
    pairs = [(name, name) for name in on] if not hasattr(on, "items") else list(on.items())
    return tuple((_text(one), _text(other)) for one, other in pairs)
