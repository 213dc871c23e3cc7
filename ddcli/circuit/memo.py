"""Calls of Python functions that remember, over lanes: the operator keeps the results, this module makes the calls and counts them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.circuit.linear import lanes_as
from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.operators.memo import Answers, FormerAnswers, MemoizedCalls
from ddcli.errors import InputError
from ddcli.expressions.python import RAISED
from ddcli.expressions.python_calls import Foreign, MisshapenError
from ddcli.expressions.stage import failing
from ddcli.expressions.steps import PythonStep
from ddcli.expressions.types import Type
from ddcli.plan.memo import OUTCOME, REASON

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.circuit.context import Failed, Traces
    from ddcli.engine.pool import Pool
    from ddcli.plan import memo

WAITS = {REASON: Type("string")}
TOGETHER = 1 << 16
"""The most records that are given to a function in a batch, and whose results are Python values at once."""


class CallBudget:
    """The calls that are left to a run. All shards of an operator share it, so threads may take from it at once."""

    def __init__(self, calls: int) -> None:
        self.calls = self.left = calls
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Count calls. Raises MisshapenError if fewer are left."""
        with self._lock:
            if count > self.left:
                raise MisshapenError(
                    f"may be called for {self.calls} records in a run, by its `calls`, and more are new"
                )
            self.left -= count


def memoized_calls(
    node: memo.MemoizedCalls,
    shard: int,
    nt: int,
    traces: Traces,
    pool: Pool,
    tell: Failed | None,
    budget: CallBudget | None,
) -> MemoizedCalls:
    """Return a shard of the operator of a function that remembers, at times of `nt` coordinates; `tell` receives records whose call failed."""
    arguments, results, reasons = Layout(node.inputs[0].schema), Layout(node.results), Layout(WAITS)
    calls = _Calls(node, pool, budget, lenient=tell is not None)
    lanes = []
    for name, kind in node.schema.items():
        lanes += lanes_as([*results.lanes(f"${name}")], node.results[f"${name}"], kind)

    def refused(changes: np.ndarray) -> None:
        assert tell is not None, "without it a call that fails ends the run"
        why = decode(changes, reasons, pool, at=arguments.width)[REASON].to_list()
        tell(np.delete(changes, range(arguments.width, arguments.width + reasons.width), axis=1), arguments, pool, why)

    return MemoizedCalls(
        traces.trace(node.answers, arguments, results, nt, shard),
        traces.trace(node.waiting, arguments, reasons, nt, shard),
        calls.answers,
        [lane for lane in lanes if isinstance(lane, int)],
        traces.former(node.answers, arguments, results, nt, shard) or FormerAnswers(),
        refused,
    )


class _Calls:
    """The calls of a function for records of one pool."""

    def __init__(self, node: memo.MemoizedCalls, pool: Pool, budget: CallBudget | None, *, lenient: bool) -> None:
        self.pool, self.lenient = pool, lenient
        self.arguments, self.results = Layout(node.inputs[0].schema), Layout(node.results)
        self._foreign = Foreign(
            PythonStep(node.function, node.batch, tuple(node.schema.items())), node.inputs[0].schema
        )
        self._made: dict[str, tuple[Any, BaseException | None]] = {}
        written, batch = self._foreign.function, node.batch

        def counted(given: Any) -> Any:
            if budget is not None:
                budget.take(given.height if batch else 1)
            return written(given)

        function = written if budget is None else counted
        self._foreign.function = function if batch or not lenient else self._once(function)

    def _once(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the function, called once for each record while the failing ones among others are found."""

        def call(record: dict[str, Any]) -> Any:
            known = repr(record)
            if known not in self._made:
                self._made[known] = _tried(function, record)
            given, raised = self._made[known]
            if raised is not None:
                raise raised
            return given

        return call

    def answers(self, records: np.ndarray) -> Answers:
        """Call the function for records, and return their results. Raises InputError, if it isn't lenient."""
        parts = [self._some(records[at : at + TOGETHER], at) for at in range(0, len(records), TOGETHER)]
        return Answers(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _some(self, records: np.ndarray, first: int) -> Answers:
        frame, errors = decode(records, self.arguments, self.pool), dict[int, InputError]()
        sound = np.arange(frame.height)
        try:
            found, rows = self._run(frame)
        except InputError:
            if not self.lenient:
                raise
            errors = dict(sorted(failing(self._run, frame)))
            sound = np.delete(sound, [*errors])
            found, rows = self._run(frame[sound])
        self._made.clear()
        without = np.flatnonzero(np.bincount(rows, minlength=len(sound)) == 0)
        empty = pl.DataFrame({name: [None] for name in found.columns}, schema=found.schema)
        whole = pl.concat([found, *[empty] * bool(len(without))]).rename(lambda name: f"${name}")
        outcome = np.append(np.ones(found.height, np.int64), np.zeros(whole.height - found.height, np.int64))
        lanes = encode(whole.with_columns(pl.Series(OUTCOME, outcome)), self.results, self.pool)
        each = np.append(np.arange(found.height), np.full(len(without), found.height))
        why = pl.DataFrame({REASON: [error.problem for error in errors.values()]}, schema={REASON: pl.String})
        return Answers(
            lanes[each] if len(without) else lanes,
            sound[np.append(rows, without)] + first,
            np.array([*errors], np.int64) + first,
            encode(why, Layout(WAITS), self.pool),
        )

    def _run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        found, rows, _ = self._foreign.run((frame, None, None))
        return found, np.arange(frame.height) if rows is None else rows


def _tried(function: Callable[[Any], Any], record: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """Return what a function returns for a record, or the error that it raises. An iterator is read, as that can be done but once."""
    try:
        given = function(record)
        return [*given] if isinstance(given, Iterator) else given, None
    except RAISED as error:
        return None, error
