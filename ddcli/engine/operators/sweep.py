"""Sweeping: the groups of a reduction in a loop in working traces, which hold them up to the current round.

Good for many groups: their histories are read once. Moving on adds the updates of the next round, new and old. Where there is no history
yet, as in a load, what the rounds so far have appended is all that working traces would hold: it may be read as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.reduce_instances import sizes
from ddcli.engine.rounds import split_rounds, without_rounds
from ddcli.engine.times import Frontier
from ddcli.engine.trace.batch import MemoryBatch
from ddcli.engine.trace.spine import Trace
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.rounds import Interval, Rounds

Lanes = np.ndarray

CANCELLED = 2
"""How many times as many rows as are left of them make appended updates worth to be summed up: groups are read again and again."""


class AppendedRounds(NamedTuple):
    """What was appended to a trace in this interval, with its rounds; it need not be consolidated without them."""

    trace: Trace

    def batches_for(self, keys: Lanes) -> list[Lanes]:
        """Return all of it."""
        return self.trace.runs


class Sweep:
    """Working traces of some `histories`, rounds dropped, for the rounds of one loop; `later` holds old updates by round.

    Whose reader can do `with_rounds` reads what was appended, while there is nothing else and not much of it cancels.
    """

    def __init__(self, histories: Sequence[Trace], interval: Interval, *, with_rounds: bool):
        depth = len(interval.rounds)
        self.interval = interval
        self.histories = histories
        # What this interval has appended so far is of earlier rounds, unless in those of another loop around.
        self._runs_are_past = depth == 1
        # With no history at all nothing is to be looked up, whoever is touched.
        self._fresh = not any(trace.batches or (trace.runs and not self._runs_are_past) for trace in histories)
        self._rows = self._left = 0
        self.with_rounds = with_rounds and self._fresh
        """Whether rows have rounds where they are read from now on."""
        self._working = [] if self.with_rounds else self._copied()
        self._touched = Trace(histories[0].nk, 0, 0, since=Frontier())
        self._later: list[dict[int, list[Lanes]]] = [{} for _ in histories]

    def _copied(self) -> list[Trace]:
        """Return working traces, which hold what this interval has appended so far."""
        working, (lower, upper, rounds) = [], self.interval
        depth, known = len(rounds), self._runs_are_past or self._fresh
        for trace in self.histories:
            runs = [kernels.consolidate(without_rounds(run, depth)) for run in trace.runs if known]
            past = [MemoryBatch(run, lower, upper) for run in runs]
            working.append(Trace(trace.nk, trace.nv, trace.nt - depth, since=lower, batches=past))
        return working

    @property
    def readers(self) -> Sequence[Reader]:
        """Return what holds the groups in each of the histories up to the current round, less its new updates."""
        return self._working or [AppendedRounds(trace) for trace in self.histories]

    def move(self, keys: Lanes, rounds: Rounds) -> tuple[list[Lanes], list[tuple[Rounds, Lanes]]]:
        """Move on to the current rounds, where `keys` are looked at.

        Returns keys that have old updates here, and when which groups are to be looked at again: where some have old updates
        later in this loop they need not be named, they will be returned then.
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
        """Take in the round's new updates, consolidated and without rounds but for those that `with_rounds` are read, one matrix a trace."""
        for trace, updates in zip(self._working, parts, strict=bool(self._working)):
            trace.insert(updates, self.interval.upper)
        if self.with_rounds:
            rows = sum(map(len, parts))
            self._rows += rows
            self._left += 2 * sum(map(kernels.inserted, parts)) - rows
            self.with_rounds = self._rows <= CANCELLED * max(self._left, 1)

    def rest(self) -> Iterator[tuple[Rounds, Lanes]]:
        """Yield the rounds of this loop that touched keys have old updates in, later on, and the keys."""
        for trace, later in zip(self.histories, self._later, strict=True):
            for number, parts in later.items():
                for part in parts:
                    yield (*self.interval.rounds[:-1], number), kernels.distinct_keys(part, trace.nk)

    def _untouched(self, keys: Lanes) -> Lanes:
        """Return which of the keys are new to this sweep, and note that they no longer are."""
        fresh = keys[sizes(kernels.locate(keys, self._touched.matrices())[0]) == 0] if self._touched.rows else keys
        self._touched.insert(np.concatenate([fresh, np.ones((len(fresh), 1), np.int64)], axis=1), Frontier())
        return fresh

    def _touch(self, keys: Lanes, now: Rounds) -> list[tuple[Rounds, Lanes]]:
        """Read the whole history of keys: up to the current round into the working traces, the rest is for later."""
        scheduled: list[tuple[Rounds, Lanes]] = []
        for at, trace in enumerate(self.histories if len(keys) else ()):
            batches = trace.settled_for(keys) if self._runs_are_past else trace.batches_for(keys)
            bounds, rows = kernels.locate(keys, batches)
            if not rows:
                continue
            parts: list[Lanes] = []
            lane = trace.nk + trace.nv + self._working[at].nt
            for rounds, found in split_rounds(kernels.gather_bounds(batches, bounds), lane, len(now)):
                outer = tuple(map(max, rounds[:-1], now[:-1]))
                if outer != now[:-1]:
                    # A join with an outer round still to come: the sweep there finds the rest of the group's history.
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
        # Before the interval's lower all epochs are one to whoever reads now.
        advanced = kernels.advance(old, self.interval.lower.as_time(), self._working[at].nt)
        self._working[at].insert(advanced, self.interval.upper)
        return kernels.distinct_keys(old, self.histories[at].nk)
