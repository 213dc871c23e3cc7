"""Replays: runs of the same updates in other cuts. A pipeline's result must not depend on how its input was cut, so all must agree.

A replay that disagrees has found a Python function that is not pure (it keeps a state, or reads a clock), or a bug of the engine.
"""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ddcli.circuit.trial import Trial, closed
from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.times import LEAST, Frontier
from ddcli.errors import DdError
from ddcli.plan import logical, physical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddcli.engine.columns import Matrix
    from ddcli.engine.times import Time
    from ddcli.pipeline_tests.rows import Material
    from ddcli.plan.physical import PhysicalGraph

SHUFFLES = 3
MOST_SHARDS = 4
BOUND_TO_TIME = (
    logical.Upsert,
    logical.Snapshots,
    physical.Shift,
    logical.JoinFunction,
    logical.Once,
)
"""The operators whose result depends on the times themselves, so that updates of one time can't be fed at different times."""


@dataclass(frozen=True)
class Disagreement:
    """A replay whose output differs from that of the steps, first in this collection: the updates that only one of both has."""

    replay: str
    collection: str
    only_steps: Matrix
    only_replay: Matrix


@dataclass(frozen=True)
class Replays:
    """The replays of a test over a graph; `logs` are the outputs of the steps."""

    material: Material
    graph: PhysicalGraph
    logs: Mapping[str, Matrix]

    def disagreement(self) -> tuple[int, Disagreement | None]:
        """Return the number of replays, and the first that disagrees."""
        tried = 0
        for name, log in self._replays():
            tried += 1
            for collection, found in log.items():
                steps = self.logs[collection]
                if not np.array_equal(found, steps):
                    differing = kernels.consolidate(np.concatenate([steps, _negated(found)]))
                    more, fewer = differing[differing[:, -1] > 0], _negated(differing[differing[:, -1] < 0])
                    return tried, Disagreement(name, collection, more, fewer)
        return tried, None

    def _replays(self) -> Iterator[tuple[str, dict[str, Matrix]]]:
        yield "all at once", self._run(self.material.updates, [self._last])
        one_by_one = [closing_up_to(time, self._times) for time in self._times]
        yield "one time at a time", self._run(self.material.updates, [*one_by_one, self._last])
        if (
            not any(isinstance(node, BOUND_TO_TIME) for node in self.graph.nodes)
            and len(self.material.subject.time) == 1
        ):
            # The state between two updates of one time may be one that the pipeline rightly rejects.
            with suppress(DdError):
                found = self._update_by_update()
                yield "one update at a time", found
        draw = random.Random(self.material.test.name)  # noqa: S311 - the same shuffles each time
        for number in range(1, SHUFFLES + 1):
            yield f"shuffled {number}", self._shuffled(draw)

    @property
    def _last(self) -> Frontier:
        return self.material.uppers[-1]

    @property
    def _times(self) -> list[Time]:
        """The times of all updates, in an order that extends their partial order."""
        nt = len(self.material.subject.time)
        found = {tuple(row) for matrix in self.material.updates.values() for row in matrix[:, -nt - 1 : -1].tolist()}
        return sorted(found, key=lambda time: (sum(time), time))

    def _run(self, updates: Mapping[str, Matrix], uppers: Sequence[Frontier], shards: int = 1) -> dict[str, Matrix]:
        """Run over updates, closing the times up to each frontier in turn, and return the outputs' logs."""
        subject = self.material.subject
        trial = Trial(
            self.graph,
            subject.kinds,
            subject.pool,
            facts=self.material.facts,
            shards=shards,
            lenient=subject.lenient,
        )
        return total(stepped(trial, updates, uppers))

    def _shuffled(self, draw: random.Random) -> dict[str, Matrix]:
        """Run over rows in another order, on another number of shards, cut at some of the times."""
        order = np.random.default_rng(draw.getrandbits(32))
        rows = {name: order.permutation(matrix) for name, matrix in self.material.updates.items()}
        cuts = [time for time in self._times if draw.random() < 0.5]
        uppers = [closing_up_to(time, self._times) for time in cuts]
        return self._run(rows, [*uppers, self._last], draw.randint(2, MOST_SHARDS))

    def _update_by_update(self) -> dict[str, Matrix]:
        """Run over the updates as if each were at a time of its own; of one time, retractions come first.

        In the returned logs, the changes at all these times are moved back to the original time.
        """
        parts = [
            (time, diff, name, at)
            for name, matrix in self.material.updates.items()
            for at, (time, diff) in enumerate(matrix[:, -2:].tolist())
        ]
        parts.sort(key=lambda part: part[:2])
        spread = {name: matrix.copy() for name, matrix in self.material.updates.items()}
        meant = np.empty(len(parts), np.int64)
        for number, (time, _, name, at) in enumerate(parts):
            spread[name][at, -2], meant[number] = number, time
        logs = self._run(spread, [Frontier([(number + 1,)]) for number in range(len(parts))] or [self._last])
        for log in logs.values():
            log[:, -2] = meant[log[:, -2]]
        return {name: kernels.consolidate(log) for name, log in logs.items()}


def stepped(trial: Trial, updates: Mapping[str, Matrix], uppers: Sequence[Frontier]) -> Iterator[dict[str, Matrix]]:
    """Yield the result of each step of a trial; a step closes the times up to the next frontier."""
    nt = trial.times
    for lower, upper in pairwise([Frontier([(LEAST,) * nt]), *uppers]):
        fed = {}
        for name in trial.layouts:
            times = updates[name][:, -nt - 1 : -1]
            fed[name] = np.ascontiguousarray(updates[name][closed(upper, times) & ~closed(lower, times)])
        yield trial.close(upper, fed)


def total(steps: Iterator[dict[str, Matrix]]) -> dict[str, Matrix]:
    """Return the logs of all steps together."""
    gathered: dict[str, list[Matrix]] = {}
    for step in steps:
        for name, matrix in step.items():
            gathered.setdefault(name, []).append(matrix)
    return {name: kernels.consolidate(np.concatenate(parts)) for name, parts in gathered.items()}


def closing_up_to(time: Time, times: Sequence[Time]) -> Frontier:
    """Return a frontier that closes the ordered `times` up to `time`, and no later ones."""
    done = times[: times.index(time) + 1]
    upper = Frontier([(LEAST,) * len(time)])
    for each in done:
        upper = upper.join(_after(each))
    return upper


def _after(time: Time) -> Frontier:
    """Return the frontier that closes a time and all before it; times after it in some coordinate stay open."""
    return Frontier((LEAST,) * at + (value + 1,) + (LEAST,) * (len(time) - at - 1) for at, value in enumerate(time))


def _negated(matrix: Matrix) -> Matrix:
    found = matrix.copy()
    found[:, -1] = -found[:, -1]
    return found
