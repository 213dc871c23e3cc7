"""Sweeping: the groups of a reduction in a loop in working traces, which hold them up to the current round.

It is for many groups: their histories are read once. Each round adds its updates, new and old. If there is no history
yet, as in a load, working traces would hold exactly the updates that the rounds so far have appended: these may be read in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.reduce_instances import sizes
from ddcli.engine.rounds import split_rounds, without_rounds
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import MemoryBatch, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.rounds import Interval, Rounds

Lanes = np.ndarray

CANCELLED = 2
"""The ratio of appended rows to those left by consolidation from which on they are consolidated: groups are read again and again."""


class WholeGroups(NamedTuple):
    """Matrices that are read whole: the rows of some groups, or the updates that were appended to a trace in this interval, with their rounds."""

    matrices: list[Lanes]

    def batches_for(self, keys: Lanes) -> list[Lanes]:
        """Return all of them."""
        return self.matrices


class Sweep:
    """Working traces of some `histories`, rounds dropped, for the rounds of one loop; `later` holds old updates by round.

    A reader that can handle rows `with_rounds` reads the appended updates, while there is no history and few of them cancel.
    """

    def __init__(self, histories: Sequence[Trace], interval: Interval, *, with_rounds: bool):
        depth = len(interval.rounds)
        self.interval = interval
        self.histories = histories
        # The updates of this interval so far are of earlier rounds, unless they are of another round of an outer loop.
        self._runs_are_past = depth == 1
        # Without any history no key has to be looked up.
        self._fresh = not any(trace.batches or (trace.runs and not self._runs_are_past) for trace in histories)
        self._rows = self._left = 0
        self.with_rounds = with_rounds and self._fresh
        """True: rows are read with their rounds from now on."""
        self._working = [] if self.with_rounds else self._copied()
        self._touched = Trace(histories[0].nk, 0, 0, since=Frontier())
        self._later: list[dict[int, list[Lanes]]] = [{} for _ in histories]

    def _copied(self) -> list[Trace]:
        """Return working traces, which hold the updates of this interval so far."""
        working, (lower, upper, rounds) = [], self.interval
        depth, known = len(rounds), self._runs_are_past or self._fresh
        for trace in self.histories:
            runs = [kernels.consolidate(without_rounds(run, depth)) for run in trace.runs if known]
            past = [MemoryBatch(run, lower, upper) for run in runs]
            working.append(Trace(trace.nk, trace.nv, trace.nt - depth, since=lower, batches=past))
        return working

    @property
    def readers(self) -> Sequence[Reader]:
        """Return the readers of the groups of each history up to the current round, without its new updates."""
        return self._working or [WholeGroups(trace.runs) for trace in self.histories]

    def move(self, keys: Lanes, rounds: Rounds) -> tuple[list[Lanes], list[tuple[Rounds, Lanes]]]:
        """Move to the current rounds, in which `keys` are evaluated.

        Returns the keys with old updates here, and the groups to evaluate in later rounds of outer loops; groups with old updates
        later in this loop are returned in those rounds.
        """
        if self.with_rounds:
            for trace in self.histories:
                trace.fold_runs(len(keys))
        elif not self._working:
            self._working = self._copied()
        if self._fresh:
            return [], []
        scheduled = self._touch(self._untouched(keys), rounds)
        old = [self._add_old(at, later.pop(rounds[-1])) for at, later in enumerate(self._later) if rounds[-1] in later]
        return old, scheduled

    def take(self, parts: Sequence[Lanes]) -> None:
        """Take in the round's new updates, one matrix a trace, consolidated and without rounds, unless they are read `with_rounds`."""
        for trace, updates in zip(self._working, parts, strict=bool(self._working)):
            trace.insert(updates, self.interval.upper)
        if self.with_rounds:
            rows = sum(map(len, parts))
            self._rows += rows
            self._left += 2 * sum(map(kernels.inserted, parts)) - rows
            self.with_rounds = self._rows <= CANCELLED * max(self._left, 1)

    def rest(self) -> Iterator[tuple[Rounds, Lanes]]:
        """Yield the later rounds of this loop in which touched keys have old updates, each with the keys."""
        for trace, later in zip(self.histories, self._later, strict=True):
            for number, parts in later.items():
                for part in parts:
                    yield (*self.interval.rounds[:-1], number), kernels.distinct_keys(part, trace.nk)

    def _untouched(self, keys: Lanes) -> Lanes:
        """Return the keys that are new to this sweep, and remember them."""
        fresh = keys[sizes(kernels.locate(keys, self._touched.matrices())[0]) == 0] if self._touched.rows else keys
        self._touched.insert(np.concatenate([fresh, np.ones((len(fresh), 1), np.int64)], axis=1), Frontier())
        return fresh

    def _touch(self, keys: Lanes, now: Rounds) -> list[tuple[Rounds, Lanes]]:
        """Read the whole history of keys: up to the current round into the working traces, the rest into `later`."""
        scheduled: list[tuple[Rounds, Lanes]] = []
        for at, trace in enumerate(self.histories if len(keys) else ()):
            batches = trace.histories_for(keys) if self._runs_are_past else trace.batches_for(keys)
            bounds, rows = kernels.locate(keys, batches)
            if not rows:
                continue
            parts: list[Lanes] = []
            lane = trace.nk + trace.nv + self._working[at].nt
            for rounds, found in split_rounds(kernels.gather_bounds(batches, bounds), lane, len(now)):
                outer = tuple(map(max, rounds[:-1], now[:-1]))
                if outer != now[:-1]:
                    # A join with a later outer round: the sweep there finds the rest of the group's history.
                    scheduled.append(((*outer, rounds[-1]), kernels.distinct_keys(found, trace.nk)))
                elif rounds[-1] <= now[-1]:
                    parts.append(without_rounds(found, len(now)))
                else:
                    self._later[at].setdefault(rounds[-1], []).append(without_rounds(found, len(now)))
                    scheduled.append(((*outer, rounds[-1]), keys[:0]))
            if parts:
                self._add_old(at, parts)
        return scheduled

    def _add_old(self, at: int, parts: list[Lanes]) -> Lanes:
        """Take old updates of the current round or earlier ones into a working trace; return their keys."""
        old = kernels.consolidate(kernels.concat(parts))
        # Readers now do not distinguish epochs before the interval's lower.
        advanced = kernels.advance(old, self.interval.lower.as_time(), self._working[at].nt)
        self._working[at].insert(advanced, self.interval.upper)
        return kernels.distinct_keys(old, self.histories[at].nk)
