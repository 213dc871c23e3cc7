"""A graph run in memory, interval by interval, over given updates: it reads no file and leaves nothing behind.

It is the same plan and the same engine as a run's, without a state, so a step of a small graph takes milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.circuit.graph import assemble
from ddcli.circuit.operators import CircuitContext, Traces
from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.counts import Counts
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.memo import FormerAnswers
from ddcli.engine.process import Workers
from ddcli.engine.rounds import Interval, before
from ddcli.engine.scope import Scope
from ddcli.engine.times import BEYOND, LEAST, Frontier, up_to
from ddcli.engine.trace.spine import Trace
from ddcli.store.batch.file import batch_layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.circuit.traces import StateAnswers
    from ddcli.engine.lanes import Layout, Matrix
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Type
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.sources.slices import InputFacts


@frozen
class Kept:
    """An arrangement of a trial: its name in a state, its layouts, and its contents."""

    identity: str
    key: Layout
    value: Layout
    trace: Trace


class Trial(Traces):
    """An in-memory dataflow of a graph, whose arrangements are empty at first. `layouts` are the layouts of the inputs that it reads, `outputs` of its outputs.

    All values are in `pool`; trials that share it can be fed the same updates, and their outputs compared lane by lane.
    Records on which an expression fails are left out, if it is `lenient`, and end it otherwise. If it is `counted`, `counts` has its counts.
    Its arrangements are `kept`. Functions that remember have the results of `answers`, and are called for other records.
    """

    def __init__(
        self,
        graph: PhysicalGraph,
        time: Sequence[Type],
        pool: Pool,
        *,
        facts: Mapping[str, InputFacts] | None = None,
        shards: int = 1,
        lenient: bool = False,
        counted: bool = False,
        answers: StateAnswers | None = None,
    ) -> None:
        self._answers, self._pool = answers, pool
        self.times = len(time)
        self.frontier = Frontier([(LEAST,) * self.times])
        self.kept: list[Kept] = []
        scope = Scope(self.times, workers=Workers(shards, 1), counted=counted)
        failed = (lambda *_: None) if lenient else None
        context = CircuitContext(self, pool, lambda _label, _updates: None, time, facts or {}, failed)
        self._assembled = assemble(graph, scope, context, parted=shards > 1)
        self.layouts = self._assembled.layouts
        self.outputs = self._assembled.outputs

    def trace(
        self, identity: str, key: Layout, value: Layout, nt: int, shard: int, by: Sequence[int] | None = None
    ) -> Trace:
        """Return an empty trace that keeps all times apart."""
        trace = Trace(key.width, value.width, nt, since=Frontier([(LEAST,) * self.times]))
        self.kept.append(Kept(identity, key, value, trace))
        return trace

    def former(self, identity: str, key: Layout, value: Layout, nt: int, shard: int) -> FormerAnswers | None:
        """Return the results that a state has."""
        if self._answers is None:
            return None
        return FormerAnswers(self._answers.batches(identity, batch_layout(key, value, nt), self._pool), whole=False)

    def close(self, upper: Frontier, fed: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Close the times before `upper`, with the input updates `fed`; return each output's updates, consolidated."""
        if upper == self.frontier:
            return {name: self.nothing(name) for name in self.outputs}
        interval, self.frontier = Interval(self.frontier, upper), upper
        found = self._assembled.step({name: Delta(matrix) for name, matrix in fed.items()}, interval)
        return {name: self._consolidated(name, deltas) for name, deltas in found.items()}

    def contents(self, at: Time, fed: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Return each output's collection at a time, as `[data lanes | count]`, made of all input updates `fed` up to then.

        The time may be the last possible. No other times may have been closed before.
        """
        upper = Frontier([time for time in up_to(at) if BEYOND not in time])
        return {name: as_of(matrix, self.times, at) for name, matrix in self.close(upper, fed).items()}

    def counts(self) -> Counts:
        """Return the counts of each operator in all steps so far."""
        return Counts.of(self._assembled.scope.counts())

    def nothing(self, name: str) -> Matrix:
        """Return no updates of an output."""
        return np.empty((0, self.outputs[name].width + self.times + 1), np.int64)

    def _consolidated(self, name: str, deltas: Sequence[Delta]) -> Matrix:
        return kernels.consolidate(np.concatenate([self.nothing(name), *(delta.updates for delta in deltas)]))


def closed(upper: Frontier, times: Matrix) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows of times are closed by a frontier: at or after none of its elements."""
    return before(times, [[max(value, LEAST) for value in element] for element in upper])


def as_of(matrix: Matrix, times: int, time: Sequence[int]) -> Matrix:
    """Return the collection at a time that updates accumulate to: rows without times, each with its count."""
    width = matrix.shape[1] - times - 1
    then = matrix[(matrix[:, width:-1] <= np.array(time, np.int64)).all(axis=1)]
    return kernels.consolidate(np.ascontiguousarray(then[:, [*range(width), matrix.shape[1] - 1]]))
