"""Calls of a function whose results are kept: for each record, the results of the first call.

The trace is an arrangement from records to results, `[record | outcome | result | time | diff]`. Their times have no meaning: a record has the same results at all times, so the
operator is linear, and its output is exact whatever the function returns. The results stay when the record is retracted. A record without results has a row with the outcome 0.

Updates of records whose call fails wait in a second trace, `[record | reason | time | diff]`, and each later step calls again for them. Once a call returns
something, they are emitted as of that step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, StatefulOperator, empty
from ddcli.engine.times import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.trace.spine import Batch, Trace


TOGETHER = 1 << 16
"""The most records that are called for, or joined with their results, at once: so what is computed of them stays in the cache, and memory is used again."""


Answers = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""The results of calls for some records: rows `[outcome | result]`, and the number of the record of each; the numbers of records without an answer, and the lanes of their reasons."""


class FormerAnswers(NamedTuple):
    """The results that an earlier plan of the state has kept: read instead of a call. `whole`: all stay, and not only the results of records that come again."""

    batches: Sequence[Batch] = ()
    whole: bool = True


class MemoizedCalls(StatefulOperator):
    """The results of the first call for each record. The output has the given `lanes` of them.

    `call` is given records whose results are unknown. `refused`, if there is one, receives the changes of the records that wait, in rows of their trace; else `call` raises
    the error of a call.
    """

    def __init__(
        self,
        trace: Trace,
        waiting: Trace,
        call: Callable[[np.ndarray], Answers],
        lanes: Sequence[int],
        former: FormerAnswers,
        refused: Callable[[np.ndarray], None],
    ) -> None:
        super().__init__(trace)
        self.waiting = StatefulOperator(waiting)
        self.traces = (trace, waiting)
        self.call, self.refused, self.former = call, refused, former
        self.lanes = [trace.nk + lane for lane in lanes]

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Ask for a step if records wait, or results are to be copied."""
        return [()] if self.waiting.trace.rows or self.former.batches else []

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        nk, nt = self.trace.nk, self.trace.nt
        now = _first(interval)
        updates = kernels.consolidate(deltas[0].updates)
        waiting = self._waiting(now)
        if len(waiting):
            again = np.delete(waiting, range(nk, nk + self.waiting.trace.nv), axis=1)
            updates = kernels.consolidate(np.concatenate([updates, again]))
        keys = kernels.distinct_keys(updates, nk)
        known, failed, reasons = self._answered(keys, kernels.distinct_keys(waiting, nk), now[0])
        if len(failed) or len(waiting):
            self._wait(updates, np.repeat(np.arange(len(keys)), _counts(keys, updates)), failed, reasons, waiting)
        some = known[:, nk] != 0
        results = known if some.all() else known[some]
        out = kernels.join(updates, results, nk, nt, np.array(self.lanes, np.int64))
        self.batch[:, -nt - 1 : -1] = now
        return Delta(out)

    def _answered(self, keys: np.ndarray, late: np.ndarray, turn: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the results of records, in rows of the trace, those without an answer and their reasons; store the new ones.

        All times are the least one, so a join with the records has the records' times. Records that wait come `late`, after the new ones, and begin elsewhere at
        each `turn`: else records whose calls always fail might use up the calls of a run before it comes to the others.
        """
        nk, nt = self.trace.nk, self.trace.nt
        nothing = empty(nk + self.trace.nv + nt + 1)

        def without_times(matrices: Iterable[np.ndarray]) -> np.ndarray:
            rows = np.concatenate([nothing, *matrices])
            rows[:, -nt - 1 : -1] = LEAST
            return kernels.consolidate(rows)

        def looked_up(matrices: Iterable[np.ndarray], wanted: np.ndarray) -> np.ndarray:
            return without_times(kernels.gather(np.ascontiguousarray(matrix), nk, wanted) for matrix in matrices)

        known = looked_up(self.trace.batches_for(keys), keys)
        missing = _counts(keys, known) == 0
        fresh = [nothing]
        if self.former.batches:
            found = looked_up([batch.for_keys(keys[missing]) for batch in self.former.batches], keys[missing])
            known = kernels.merge([known, found])
            missing = _counts(keys, known) == 0
            if self.former.whole:
                found = without_times(batch.matrix() for batch in self.former.batches)
                self.former = FormerAnswers()
            fresh.append(found)
        asked = np.flatnonzero(missing)
        again = _counts(keys, late)[asked] > 0 if len(late) else np.zeros(len(asked), np.bool_)
        first, then = asked[~again], asked[again]
        start = turn % max(len(then), 1)
        # In each group the parts are in order: a part has greater records than the part before.
        groups = [group for group in (first, then[start:], then[:start]) if len(group)]
        failed, reasons = [asked[:0]], [empty(self.waiting.trace.nv)]
        new = [self._called(keys, group, failed, reasons) for group in groups]
        self.batch = kernels.merge([*fresh, *new])
        order = np.argsort(numbers := np.concatenate(failed))
        return kernels.merge([known, *new]), numbers[order], np.concatenate(reasons)[order]

    def _called(
        self, keys: np.ndarray, asked: np.ndarray, failed: list[np.ndarray], reasons: list[np.ndarray]
    ) -> np.ndarray:
        """Call for the records with these ascending numbers, and return the results, in rows of the trace; `failed` and `reasons` get the numbers of those without an answer, and why."""
        nk, nt = self.trace.nk, self.trace.nt
        # Most functions return one result for a record.
        new, filled = np.empty((len(asked), nk + self.trace.nv + nt + 1), np.int64), 0
        for at in range(0, len(asked), TOGETHER):
            some = asked[at : at + TOGETHER]
            results, records, unanswered, why = self.call(kernels.take(keys, range(nk), some))
            end = filled + len(records)
            if end > len(new):
                new = np.concatenate([new[:filled], np.empty((end, new.shape[1]), np.int64)])
            rows = new[filled:end]
            rows[:, :nk] = kernels.take(keys, range(nk), some[records])
            rows[:, nk : -nt - 1] = results
            rows[:, -nt - 1 : -1] = LEAST
            rows[:, -1] = 1
            consolidated = kernels.consolidate(rows)
            if consolidated is not rows:
                new[filled : filled + len(consolidated)] = consolidated
            filled += len(consolidated)
            failed.append(some[unanswered])
            reasons.append(why)
        return new[:filled]

    # --- records without an answer ------------------------------------------------------------------------------------

    def _waiting(self, now: Sequence[int]) -> np.ndarray:
        """Return the updates that wait, as of now."""
        trace = self.waiting.trace
        if not trace.rows:
            return self.waiting.batch
        rows = np.concatenate(trace.matrices())
        rows[:, trace.nk + trace.nv : -1] = now
        return kernels.consolidate(rows)

    def _wait(
        self, updates: np.ndarray, key: np.ndarray, failed: np.ndarray, reasons: np.ndarray, before: np.ndarray
    ) -> None:
        """Have the updates of records without an answer wait, and no others."""
        trace = self.waiting.trace
        at = np.searchsorted(failed, key)
        mine = (at < len(failed)) & (failed[np.minimum(at, len(failed) - 1)] == key) if len(failed) else key < 0
        rows = np.empty((int(mine.sum()), trace.nk + trace.nv + trace.nt + 1), np.int64)
        rows[:, : trace.nk] = updates[mine, : trace.nk]
        rows[:, trace.nk : trace.nk + trace.nv] = reasons[at[mine]]
        rows[:, trace.nk + trace.nv :] = updates[mine, trace.nk :]
        self.waiting.batch = kernels.difference(rows, before)
        if len(self.waiting.batch):
            self.refused(self.waiting.batch)

    def seal(self, interval: Interval) -> None:
        super().seal(interval)
        self.waiting.seal(interval)

    def close(self, interval: Interval) -> None:
        super().close(interval)
        self.waiting.close(interval)


def _counts(keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return how many rows each key has."""
    bounds = kernels.locate(keys, [rows])[0]
    counts: np.ndarray = bounds[:, 1] - bounds[:, 0]
    return counts


def _first(interval: Interval) -> Sequence[int]:
    """Return a first time of an interval."""
    lower = interval.lower.elements
    found = next((time for time in lower if not interval.upper.less_equal(time)), lower[0])
    return [max(value, LEAST) for value in found]
