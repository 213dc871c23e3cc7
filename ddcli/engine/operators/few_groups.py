"""A reduction to first records in a loop as one call, where it evaluates few groups, as in most rounds of a small change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine.kernels.revisit import first_again

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.operators.reduce_replay import Search
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.trace.spine import Trace

Lanes = np.ndarray

GROUPS = 16
"""The most groups that one call evaluates; each of them is sought in all batches in memory."""
ROWS = 128
"""The most rows of their histories up to the current round, of either trace."""
BATCHES = 64
"""The most batches of a trace."""


class FewGroups:
    """The walking of a `IterativeReduce` of the traces of input and output, in totally ordered time, where few groups change."""

    def __init__(self, traces: Sequence[Trace], search: Search, depth: int) -> None:
        self.inputs, self.output = traces
        nk, nv, no = self.inputs.nk, self.inputs.nv, self.output.nv
        times = GROUPS + ROWS + 2 * ROWS
        self._shape = nk, nv, no, depth, times
        deciding = min(search.deciding, nv)
        self._how = np.array([search.last, deciding, *search.null], np.int64), search.take, search.nothing
        self._scratch: list[Lanes] = []
        self._since: tuple[int, ...] | None = None

    def _make_room(self) -> None:
        """Allocate a call's output and scratch, once, as calls are made in every round."""
        nk, nv, no, depth, times = self._shape

        def room(rows: int, width: int) -> Lanes:
            return np.empty((rows, width), np.int64)

        self._scratch = [
            *(room(GROUPS, nk), room(GROUPS, 2 * BATCHES), room(GROUPS, 4), room(GROUPS, 2)),
            *(room(times, 1), room(times, 1), room(2 * ROWS, depth + 1), room(times, no), room(4, 2)),
            *(room(2 * times + ROWS, nk + no + 2), room(6, times + 1)),
        ]
        self._held_in, self._held_out = room(ROWS, nk + nv + 2), [room(ROWS, nk + no + 2)]
        self._out = room(2 * times + ROWS, nk + no + 2 + depth)
        self._later = room(2 * ROWS, depth), room(2 * ROWS, nk)
        self._counts = np.empty(2, np.int64)

    def step(
        self, delta: Lanes, called: list[Lanes], interval: Interval, earliest: int, *, ahead: bool
    ) -> tuple[Lanes, list[tuple[Rounds, Lanes]]] | None:
        """Return the output's updates of the current rounds, and the keys to evaluate in later rounds; None where there are too many groups or rows.

        `delta` has the input's new updates, with their rounds, `called` further keys to evaluate; live ones from the
        `earliest` new time on. `ahead` is as in `Reduce`.
        """
        if len(delta) > ROWS or not (self.inputs.in_memory and self.output.in_memory):
            return None
        inputs, outputs = self.inputs.matrices(), self.output.matrices()
        if len(inputs) > BATCHES or len(outputs) > BATCHES:
            return None
        if not self._scratch:
            self._make_room()
        rounds = interval.rounds
        lower = interval.lower.as_time()
        if lower != self._since:
            self._since, self._bound = lower, np.array(lower, np.int64)
        code = first_again(
            delta,
            called,
            inputs,
            len(self.inputs.batches),
            outputs,
            len(self.output.batches),
            self._bound,
            np.array(rounds, np.int64),
            earliest,
            int(ahead),
            *self._how,
            [self._held_in, delta],
            self._held_out,
            self._scratch,
            self._out,
            *self._later,
            self._counts,
        )
        if code < 0:
            return None
        rows, later = self._counts.tolist()
        return self._out[:rows].copy(), self._split(later) if later else []

    def _split(self, count: int) -> list[tuple[Rounds, Lanes]]:
        """Return the keys of each of the later rounds."""
        keys, each = self._later[1][:count].copy(), self._later[0][:count].tolist()
        found, start = [], 0
        for end in range(1, count + 1):
            if end == count or each[end] != each[start]:
                found.append((tuple(each[start]), keys[start:end]))
                start = end
        return found
