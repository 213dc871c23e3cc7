"""A chain of stages on Spark: each of its tasks takes some shards through a stage, and sends their updates on as rows of a shuffle.

A stage reads a partition of rows: the rows of some shards, each shard's together. It steps each shard as any task does. Updates for later stages of the chain
become rows for these, and rows that only later stages read are passed on. So nothing of a chain but the results of its tasks, one row
each, reaches the driver. Updates for stages after the chain, such as the updates that enter a loop, go to files as in other tasks.

Spark may repeat a stage, do a task twice at once, or put several partitions into one: a shard's rows stay together, and which shards there are is known
from their marks, not from the partition.
"""

from __future__ import annotations

import pickle
import tempfile
from collections import defaultdict
from dataclasses import field
from itertools import chain, groupby
from operator import attrgetter
from typing import IO, TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.schedule import WorkItem
from ddcli.engine.scope_tree import EXCHANGED
from ddcli.errors import DdError
from ddcli.runtime.task import Result, TaskAttempt, failure, packed_result, unpacked
from ddcli.store.scratch.spill import chunks, from_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.engine.executor import Executor
    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.scope_tree import Address, ScopeTree
    from ddcli.store.scratch.spill import FileExchange, Sent

ROOM = 64 << 20
"""Bytes of rows that a task holds in memory until Spark takes them."""
FAILED, RESULT, TASK, MARK = -4, -3, -2, -1
"""Edges of rows without updates, which come before a shard's others: a task of an earlier stage has failed; a task's result; work for
the first stage; the shard exists."""


class Row(NamedTuple):
    """A row of the shuffle: a chunk of updates for a shard on an edge of the dataflow, in its turn. `last` is the last stage that reads it.

    The chunks that stay with their shard come from one task, and are read in their turns: an arrangement's updates are sorted.
    """

    shard: int
    edge: int
    turn: int
    last: int
    chunk: bytes


Step: TypeAlias = "Callable[[Iterator[Row], str], Iterator[Row]]"
"""A function over the rows of a partition, in the order of shards, edges and turns, and the name of the attempt, which no other attempt has."""


def edge(at: Address) -> int:
    """Return the number of an address's edge, which is the same for all shards."""
    return 2 * at.place[0] + (at.what == EXCHANGED)


def marks(waiting: Sequence[Mapping[Address, Sequence[Sent]]], first: int, shards: int) -> Iterator[Row]:
    """Yield a row for each shard, with its files that wait for each stage of a chain from the stage `first` on."""
    by_shard: dict[int, dict[int, dict[Address, Sequence[Sent]]]] = defaultdict(lambda: defaultdict(dict))
    for number, found in enumerate(waiting, first):
        for at, sent in found.items():
            by_shard[at.shard][number][at] = sent
    last = first + len(waiting) - 1
    for shard in range(shards):
        files = {number: dict(found) for number, found in by_shard[shard].items()} if shard in by_shard else None
        yield Row(shard, MARK, 0, last, pickle.dumps(files) if files else b"")


@dataclass
class ShuffleExchange:
    """The exchange of a task of a chain (the engine's protocol `Exchange`): rows for the stages of the chain, files for those after it."""

    files: FileExchange
    number: int
    """The task's stage."""
    end: int
    """The last stage of the chain."""
    nest: ScopeTree | None = None
    arrived: dict[int, list[bytes]] = field(default_factory=dict)
    """The chunks that have come for the shard, by edge."""
    turn: int = 0
    """The number of rows so far."""
    _rows: list[Row] = field(default_factory=list)
    _size: int = 0
    _beside: list[IO[bytes]] = field(default_factory=list)
    """Temporary files of this machine with rows that a shard sends before it is done, `ROOM` bytes each."""

    def add(self, to: Address, updates: np.ndarray, layout: Layout, pool: Pool) -> None:
        """Send updates."""
        assert self.nest is not None
        readers = [number for number in self.nest.readers(to) if number > self.number]
        last = max((number for number in readers if number <= self.end), default=None)
        if last is not None:
            for chunk in chunks(updates, layout, pool):
                self._rows.append(Row(to.shard, edge(to), self.turn, last, chunk))
                self.turn += 1
                self._size += len(chunk)
                if self._size >= ROOM:
                    self._put_beside()
        if readers and readers[-1] > self.end:
            self.files.add(to, updates, layout, pool)

    def _put_beside(self) -> None:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - `sent` closes it
        pickle.dump(self._rows, file, pickle.HIGHEST_PROTOCOL)
        self._beside.append(file)
        self._rows, self._size = [], 0

    def sent(self) -> Iterator[Row]:
        """Yield the rows that were sent, and forget each."""
        for file in self._beside:
            with file:
                file.seek(0)
                yield from pickle.load(file)  # noqa: S301
        yield from self._rows
        self._beside, self._rows, self._size = [], [], 0

    def take(self, at: Address, layout: Layout, pool: Pool, *, last: bool) -> np.ndarray | None:
        """Return the updates sent to an address, None if there are none."""
        filed = self.files.take(at, layout, pool, last=last)
        found = self.arrived.pop(edge(at), None) if last else self.arrived.get(edge(at))
        if not found:
            return filed
        updates = from_chunks(found, layout, pool)
        return updates if filed is None else np.concatenate((filed, updates))

    def parts(self, at: Address, layout: Layout, pool: Pool) -> list[np.ndarray]:
        """Return the updates sent to an address in a loop, each part as it was sent."""
        return self.files.parts(at, layout, pool)


@frozen
class ChainedStage:
    """A stage of a chain, as a step of Spark's plan."""

    common: bytes
    number: int
    end: int
    """The last stage of the chain."""
    partitions: int
    title: str

    def __call__(self, rows: Iterator[Row], attempt: str) -> Iterator[Row]:
        """Take the shards of a partition through the stage.

        After an error the tasks of later stages do nothing but pass on the results: Spark would repeat a task that raises.
        """
        begun = _Partition(self, attempt)
        results: list[Row] = []
        others = _without_results(rows, results)
        try:
            yield from begun.through(others)
            finished = None if begun.doing is None else begun.doing.finished()
        except (DdError, OSError) as error:
            result = failure(error)
            if begun.doing is not None and begun.doing.attempt is not None:
                result.state = begun.doing.attempt.abandon()
            yield self._result(begun, result)
            yield from (Row(shard, FAILED, 0, self.end, b"") for shard in range(self.partitions))
        else:
            if finished is not None:
                yield self._result(begun, finished)
        for _ in others:  # after a failure there are some
            pass
        yield from results

    def _result(self, begun: _Partition, result: Result) -> Row:
        data = pickle.dumps((self.number, begun.shard, begun.stepped, packed_result(result)))
        return Row(begun.shard, RESULT, 0, self.end + 1, data)


class _Partition:
    """An attempt at a task of a chain."""

    def __init__(self, stage: ChainedStage, attempt: str) -> None:
        self.stage = stage
        self.attempt = attempt
        self.shard = 0
        """The shard in work, in the end the last."""
        self.stepped = 0
        """The number of shards, or of slices, that have passed the stage."""
        self.doing: TaskAttempt | None = None
        self.exchange: ShuffleExchange

    def through(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows for later stages, but for results."""
        first = next(rows, None)
        if first is None:
            return
        if first.edge == FAILED:  # a task of an earlier stage
            if self.stage.number < self.stage.end:
                yield first
            return
        job = unpacked(self.stage.common)
        self.doing = doing = TaskAttempt(job, self.attempt)
        files = doing.files({})
        self.exchange = ShuffleExchange(files, self.stage.number, self.stage.end)
        with doing.stepping(self.exchange) as step:
            self.exchange.nest = step.nest
            yield from self._shards(chain((first,), rows), step, doing)
        files.flush()
        doing.result.sent = files.sent

    def _shards(self, rows: Iterator[Row], step: Executor, doing: TaskAttempt) -> Iterator[Row]:
        number, exchange = self.stage.number, self.exchange
        stage, lost = step.nest.scope.stages[number], False
        for self.shard, group in groupby(rows, attrgetter("shard")):
            mark, slices, arrived = None, [], defaultdict(list)
            for row in group:
                if row.last > number:
                    yield row
                if row.edge == FAILED:  # where Spark has put partitions together, it isn't the first
                    return
                if row.edge == MARK:
                    mark = row
                elif row.edge == TASK:
                    slices.append(pickle.loads(row.chunk))  # noqa: S301
                elif row.edge >= 0 and row.edge // 2 in (stage.members if row.edge % 2 else stage.reads):
                    arrived[row.edge].append(row.chunk)
            if stage.first:
                for each in slices:
                    doing.step_slices(step, number, [each])
                    self.stepped += 1
                    yield from exchange.sent()
                continue
            if mark is None:  # a shard of a task that has failed
                lost = lost or bool(arrived)
                continue
            exchange.arrived = arrived
            exchange.files.incoming = pickle.loads(mark.chunk).get(number, {}) if mark.chunk else {}  # noqa: S301
            step.perform(WorkItem("stage", stage=number), (self.shard,))
            self.stepped += 1
            yield from exchange.sent()
        assert not lost, "all rows of a shard are in one partition"


def _without_results(rows: Iterator[Row], results: list[Row]) -> Iterator[Row]:
    """Yield rows but for the results of tasks, which are added to a list."""
    for row in rows:
        if row.edge == RESULT:
            results.append(row)
        else:
            yield row
