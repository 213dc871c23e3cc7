"""Walking: the groups of a reduction in a loop, read from their whole histories at each evaluation.

It is for a few groups. If they are more than very few, their history before this interval is copied when they are first touched: it is read again
and again, and quickly found in a small copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.rounds import split_rounds
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.trace.spine import Trace

Lanes = np.ndarray

FEW = 4_096
"""The most updates of histories that are walked."""

ONCE = 16
"""The most keys that are sought in all batches in memory at each evaluation."""

RUNS = 12
"""The most runs of copied rows."""


class WalkedGroups(NamedTuple):
    """Some whole groups."""

    updates: Lanes

    def batches_for(self, keys: Lanes) -> list[Lanes]:
        """Return the groups."""
        return [self.updates]


class Walked(NamedTuple):
    """Groups of each trace as of the current round, whether each is to be evaluated, and the later rounds in which they change."""

    held: list[WalkedGroups]
    live: np.ndarray
    later: list[tuple[Rounds, Lanes]]


class Walk:
    """The remembered histories of touched groups in each of the `traces`, for an interval."""

    def __init__(self, traces: Sequence[Trace]):
        self.traces = traces
        self._keys: set[tuple[int, ...]] = set()
        self._remembered: list[list[Lanes]] = [[] for _ in traces]

    def restart(self) -> None:
        """Forget all: an interval begins."""
        self._keys.clear()
        self._remembered = [[] for _ in self.traces]

    def groups(self, keys: Lanes, delta: Lanes, interval: Interval, *, due: bool) -> Walked | None:
        """Return the groups of sorted, distinct keys; None where their histories are too long.

        A group that was touched earlier is as before the interval where all its changes have cancelled since then,
        and `delta`, this round's input, has no row of it. It is not evaluated, now or later, unless it is touched again.
        """
        if len(keys) > FEW or not (self._is_read_whole(len(keys)) or self._remember(keys)):
            return None
        # Due groups of earlier intervals change only now: with some of them, all groups are evaluated.
        marks = np.full(len(keys), due, np.int64)
        since, rounds = interval.lower.as_time(), interval.rounds
        inputs, output = self._histories(len(keys))
        found = kernels.walk(keys, inputs, output, delta, since, rounds, marks, FEW)
        if found is None:
            return None
        held = [WalkedGroups(rows) for rows in found[:2]][-len(self.traces) :]
        rest = found[2]
        live = marks > 0
        split = split_rounds(rest[live[rest[:, -1]]], 0, len(rounds)) if len(rest) else ()
        return Walked(held, live, [(later, keys[groups[:, -1]]) for later, groups in split])

    def _histories(self, keys: int) -> tuple[kernels.Histories, kernels.Histories]:
        """Return the histories of input and output to read: for a few keys the whole traces, else the copies and the new updates."""
        if self._is_read_whole(keys):
            found = [kernels.Histories(trace.matrices(), len(trace.batches)) for trace in self.traces]
        else:
            found = [
                kernels.Histories([*remembered, *trace.runs], len(remembered))
                for trace, remembered in zip(self.traces, self._remembered, strict=True)
            ]
        return found[0] if len(found) > 1 else kernels.Histories([], 0), found[-1]

    def _is_read_whole(self, keys: int) -> bool:
        """Return whether it is quicker to seek `keys` keys in all batches each time than to copy their histories once."""
        return keys <= ONCE and all(trace.in_memory for trace in self.traces)

    def _remember(self, keys: Lanes) -> bool:
        """Copy the settled histories of keys that were not touched before; return whether they are short enough."""
        fresh = [key for key in map(tuple, keys.tolist()) if key not in self._keys]
        if not fresh:
            return True
        rows = np.array(fresh, np.int64)
        for at, trace in enumerate(self.traces):
            batches = trace.settled_for(rows)
            bounds, count = kernels.locate(rows, batches)
            if count > FEW:
                self.restart()
                return False
            if count:
                runs = [*self._remembered[at], kernels.gather_bounds(batches, bounds)]
                self._remembered[at] = runs if len(runs) <= RUNS else [kernels.consolidate(kernels.concat(runs))]
        self._keys.update(fresh)
        return True
