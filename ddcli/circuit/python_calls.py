"""Operators that call functions of the user for records: those that return times, and those whose results are remembered."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.circuit.linear import INT64, lanes_as
from ddcli.engine.lanes import DIFF, Layout, decode, encode, time_names
from ddcli.engine.operators.memo import Answers, FormerAnswers, MemoizedCalls
from ddcli.engine.operators.shift import PythonShift
from ddcli.engine.times import LEAST
from ddcli.errors import InputError
from ddcli.expressions.python import RAISED
from ddcli.expressions.python_values import Foreign, MisshapenError
from ddcli.expressions.stage import failing
from ddcli.expressions.tree import (
    PythonStep,
)
from ddcli.expressions.types import Type
from ddcli.plan.memo import OUTCOME, REASON
from ddcli.privacy import unnamed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from ddcli.circuit.operators import Failed, Traces
    from ddcli.engine.pool import Pool
    from ddcli.plan import memo, temporal


WAITS = {REASON: Type("string")}


class CallTurns:
    """The turns of an operator's shards to call its function, and the `calls` that are left to a run (None: any number).

    The shard that has the `turn` calls, so the function is called by one thread at a time. Others meanwhile encode results and write them.
    """

    def __init__(self, calls: int | None) -> None:
        self.calls = self.left = calls
        self.turn = threading.Lock()

    def take(self, count: int) -> None:
        """Count calls of the shard that has the turn. Raises MisshapenError if fewer are left."""
        if self.left is None:
            return
        if count > self.left:
            raise MisshapenError(f"was not called, as the run had used up its `calls: {self.calls}`,")
        self.left -= count


def memoized_calls(
    node: memo.MemoizedCalls,
    shard: int,
    nt: int,
    traces: Traces,
    pool: Pool,
    tell: Failed | None,
    turns: CallTurns,
) -> MemoizedCalls:
    """Return a shard of the operator of a function that remembers, at times of `nt` coordinates; `tell` receives records whose call failed."""
    arguments, results, reasons = Layout(node.inputs[0].schema), Layout(node.results), Layout(WAITS)
    calls = _Calls(node, pool, turns, lenient=tell is not None)
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

    def __init__(self, node: memo.MemoizedCalls, pool: Pool, turns: CallTurns, *, lenient: bool) -> None:
        self.pool, self.turns, self.lenient = pool, turns, lenient
        self.arguments, self.results = Layout(node.inputs[0].schema), Layout(node.results)
        self._foreign = Foreign(
            PythonStep(node.function, node.batch, tuple(node.schema.items())), node.inputs[0].schema
        )
        self._made: dict[str, tuple[Any, BaseException | None]] = {}
        written, batch = self._foreign.function, node.batch

        def counted(given: Any) -> Any:
            turns.take(given.height if batch else 1)
            return written(given)

        function = written if turns.calls is None else counted
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
        frame = decode(records, self.arguments, self.pool)
        with self.turns.turn:
            found, rows, errors = self._called(frame)
        sound = np.delete(np.arange(frame.height), [*errors])
        without = np.flatnonzero(np.bincount(rows, minlength=len(sound)) == 0)
        empty = pl.DataFrame({name: [None] for name in found.columns}, schema=found.schema)
        whole = pl.concat([found, *[empty] * bool(len(without))]).rename(lambda name: f"${name}")
        outcome = np.append(np.ones(found.height, np.int64), np.zeros(whole.height - found.height, np.int64))
        lanes = encode(whole.with_columns(pl.Series(OUTCOME, outcome)), self.results, self.pool)
        each = np.append(np.arange(found.height), np.full(len(without), found.height))
        why = pl.DataFrame({REASON: [error.problem for error in errors.values()]}, schema={REASON: pl.String})
        return (
            lanes[each] if len(without) else lanes,
            sound[np.append(rows, without)],
            np.array([*errors], np.int64),
            encode(why, Layout(WAITS), self.pool),
        )

    def _called(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray, dict[int, InputError]]:
        """Return what the function returns for the records on which it doesn't fail, the number of each one's record among these, and the errors of the others."""
        errors: dict[int, InputError] = {}
        try:
            found, rows = self._run(frame)
        except InputError:
            if not self.lenient:
                raise
            errors = dict(sorted(failing(self._run, frame)))
            found, rows = self._run(frame[np.delete(np.arange(frame.height), [*errors])])
        self._made.clear()
        return found, rows, errors

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


def python_shift(node: temporal.JoinFunction, pool: Pool, time: Sequence[Type], nt: int) -> PythonShift:
    """Return the operator of a function whose times are of the types `time`, one an input coordinate; `nt` counts rounds, too.

    A function for records returns (record, time, diff); one for batches returns columns of those names beside
    the record's. Both become columns of one output, checked like the output of any Python function.
    """
    (child,) = node.inputs
    names = [*time_names(len(time)), DIFF] if node.batch else [f"${at}" for at in range(len(time) + 1)]
    added = dict(zip(names, [*(kind.or_null() for kind in time), INT64], strict=True))
    foreign = Foreign(PythonStep(node.function, node.batch, tuple((node.schema | added).items())), child.schema)
    if not node.batch:
        foreign.function = _flat(foreign.function, names, node.schema.keys())
        foreign.parts = dict.fromkeys(names[:-1], "the time") | {names[-1]: "the diff"}

    def logic(frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        found, rows, _ = foreign.run((frame, None, None))
        times = np.empty((found.height, len(time)), np.int64)
        for at, name in enumerate(names[:-1]):
            times[:, at] = found[name].to_physical().cast(INT64.to_polars()).fill_null(LEAST).to_numpy()
        return found.select(list(node.schema)), rows, found[names[-1]].to_numpy(), times

    return PythonShift(logic, Layout(child.schema), Layout(node.schema), pool, nt)


def _flat(
    function: Callable[..., Iterable[Any]], names: Sequence[str], columns: AbstractSet[str]
) -> Callable[..., Iterator[Any]]:
    """Return the function with each (record, time, diff) as one record, in which time and diff have these names."""

    def flat(record: dict[str, Any]) -> Iterator[Any]:
        found = function(record)
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise MisshapenError(f"returned {unnamed(found)!r}, expected a list of (record, time, diff)")
        for given in found:
            if not isinstance(given, tuple) or len(given) != 3 or not isinstance(given[0], dict):
                raise MisshapenError(
                    f"returned {unnamed(given)!r}, expected (record, time, diff), the record as a dict"
                )
            data, time, diff = given
            if data.keys() != columns:
                raise MisshapenError(f"returned the keys {sorted(data)}, expected the keys {sorted(columns)}")
            times = time if isinstance(time, tuple) else (time,) * (len(names) - 1) if time is None else (time,)
            if len(times) != len(names) - 1:
                raise MisshapenError(f"returned the time {time!r}, expected {len(names) - 1} coordinates, or None")
            yield data | dict(zip(names, (*times, diff), strict=True))

    return flat
