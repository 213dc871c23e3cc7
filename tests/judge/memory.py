"""Judge a case without files: the same dataflow, stepped interval by interval, on any number of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ddcli.circuit.graph import assemble
from ddcli.circuit.operators import CircuitContext
from ddcli.engine.operators.base import Delta
from ddcli.engine.pool import Pool
from ddcli.engine.process import Workers
from ddcli.engine.records import decode_records, encode_records
from ddcli.engine.rounds import Interval
from ddcli.engine.scope import Scope
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace
from ddcli.errors import EngineError
from ddcli.plan.lower import lower
from tests.judge.frontiers import BEGINNING, closing, is_closed
from tests.judge.harness import Meaning, same
from tests.judge.rounds import WAYS, Rounds
from tests.reference.model import accumulate
from tests.reference.values import canonical, plain
from tests.secret import SECRET

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Layout
    from ddcli.expressions.types import Type
    from ddcli.plan.node import Graph
    from ddcli.plan.physical import PhysicalGraph
    from tests.judge.case import Case
    from tests.judge.frontiers import Frontier as Antichain
    from tests.reference.model import Time


Lowering = Callable[["Graph"], "PhysicalGraph"]


class Traces:
    """Empty traces, as of the beginning."""

    def __init__(self, nt: int) -> None:
        self.since = Frontier([(BEGINNING,) * nt])

    def trace(self, _identity: str, key: Layout, value: Layout, nt: int, _shard: int, _by: object = None) -> Trace:
        return Trace(key.width, value.width, nt, since=self.since)


def _each_time(times: list[Time]) -> list[Antichain]:
    """Return the frontiers that close one time after the other."""
    order = sorted(times, key=lambda time: (sum(time), time))
    return [closing(order[: at + 1], order) for at in range(len(order))]


class Resident:
    """A dataflow that stays in memory from step to step."""

    def __init__(self, graph: PhysicalGraph, types: list[Type], shards: int) -> None:
        self.pool, nt = Pool(SECRET), len(types)
        scope = Scope(nt, workers=Workers(shards))
        self.made = assemble(
            graph, scope, CircuitContext(Traces(nt), self.pool, lambda *_: None, types), parted=shards > 1
        )
        self.step = self.made.step


def judge_in_memory(case: Case, shards: int = 1, *, finely: bool = False, lowered: Lowering = lower) -> None:
    """Step the dataflow of a case; raise AssertionError if its outputs are wrong at any closed time.

    Its runs are the steps, or `finely` each time that occurs is one.
    """
    meaning = Meaning(case)
    _judge(case, meaning, Resident(lowered(meaning.graph), case.time_types, shards), finely=finely)


def judge_graph(case: Case, meaning: Meaning, graph: PhysicalGraph, shards: int = 1) -> None:
    """Judge a physical graph of a case in the same way."""
    _judge(case, meaning, Resident(graph, case.time_types, shards), finely=False)


def judge_by_rounds(
    case: Case,
    shards: int,
    chance: random.Random,
    folder: Path,
    *,
    finely: bool = False,
    lowered: Lowering = lower,
    ways: Sequence[str] = WAYS,
) -> Rounds:
    """Judge a case as `judge_in_memory` does, each step done in one of these ways; return how. See `rounds`."""
    meaning = Meaning(case)
    rounds = Rounds(lowered(meaning.graph), case.time_types, shards, chance, folder, ways)
    _judge(case, meaning, rounds, finely=finely)
    return rounds


def _judge(case: Case, meaning: Meaning, flow: Resident | Rounds, *, finely: bool) -> None:
    made, pool, nt = flow.made, flow.pool, len(case.times)
    closed = Frontier([(BEGINNING,) * nt])
    said: dict[str, Counter] = {name: Counter() for name in made.outputs}
    for upper in _each_time(meaning.times()) if finely else case.uppers():
        interval = Interval(closed, Frontier(upper))
        if interval.lower == interval.upper:
            continue
        times = [time for time in meaning.times() if is_closed(upper, time)]
        diverges = any(isinstance(meaning.at(time), Exception) for time in times)
        fed = {}
        for name, layout in made.layouts.items():
            new = [row for row in case.updates(name) if is_closed(upper, row[1]) and not is_closed(closed, row[1])]
            read = [list(case.schema(name)).index(column) for column in layout.names]
            lanes = encode_records([tuple(plain(record[at]) for at in read) for record, _, _ in new], layout, pool)
            tail = np.array([(*time, diff) for _, time, diff in new], np.int64).reshape(-1, nt + 1)
            fed[name] = Delta(np.concatenate([lanes, tail], axis=1))
        try:
            found = flow.step(fed, interval)
        except EngineError:
            assert diverges, "the step was refused"
            return
        assert not diverges, "the step was not refused"
        for name, deltas in found.items():
            if not deltas:
                continue
            delta = Delta(np.concatenate([d.updates for d in deltas]), all(d.distinct for d in deltas))
            records = decode_records(delta.updates, made.outputs[name], pool)
            rows = delta.updates[:, :-1].tolist()
            assert not delta.distinct or len(set(map(tuple, rows))) == len(rows), f"{name}: rows that are not distinct"
            for record, (*time, diff) in zip(records, delta.updates[:, -1 - nt :].tolist(), strict=True):
                assert is_closed(upper, tuple(time)), f"{name}: {record} at {time} is early, {upper} was closed"
                assert not is_closed(closed, tuple(time)), (
                    f"{name}: {record} at {time} was closed before, up to {closed}"
                )
                said[name][canonical(record), tuple(time)] += diff
        closed = interval.upper
        for name, log in said.items():
            updates = [(record, time, diff) for (record, time), diff in log.items()]
            for time in {*times, *(time for _, time, _ in updates)}:
                same(accumulate(updates, time), meaning.at(time)[0][name], f"{name} at {time}")
