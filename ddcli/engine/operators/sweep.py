"""Reductions in a loop: what they read at the current round, and when they must look again.

At round r a reduction needs its groups as accumulated up to r, of the groups that some update touched. With the round dropped,
the times that are left are the input's own coordinates: one evaluation covers all epochs, by the same code as outside
of loops.

Why that is enough. Let R and O be the group's input and output up to round r, and f(e) what the aggregates want of R at e,
less O at e. After the step of round r - 1, f was 0 everywhere. In round r some updates d are added: new ones, and those that
earlier intervals left at round r. f(e) can differ from 0 only where e is the lattice join of times in R and O, and is
at or after both a time of d and a new time (before any new time all is as it was when that history was made). So it
is evaluated at the times of the new updates and, for groups with old ones, at the first new times, closed under join
with what R and O hold.

Hence the rule that makes it differential: a group touched at some round is reconsidered at every later round at which its
history has an update. With loops around, a change at an outer round reaches later outer rounds in the same way.

There are two ways to R and O. A few groups are walked: their histories are read, all rounds of them, each time they are
looked at. To do that with many, round after round, is what would cost; they are swept: working traces hold them up to
the current round, and moving on adds the updates of the next round, new and old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.arrangement.trace import Trace
from ddcli.engine.operators.reduce_instances import sizes
from ddcli.engine.rounds import split_rounds, with_rounds, without_rounds
from ddcli.engine.times import Frontier

if TYPE_CHECKING:
    from ddcli.engine.operators.base import Interval
    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.rounds import Rounds

Lanes = np.ndarray
NEVER = 2**63 - 1

RUNS = 12
"""Runs of remembered rows that are kept apart."""

FEW = 4_096
"""Updates of histories that are walked at most."""


class Evaluate(Protocol):
    """A reduction over traces without rounds."""

    def __call__(
        self, delta: Lanes, output: Reader, inputs: Reader, seeds: Lanes | None, *, ahead: bool
    ) -> tuple[Lanes, Lanes]:
        """Return the output's updates, and rows [key | time] to be evaluated in later intervals."""


class Held(NamedTuple):
    """Some groups, whole."""

    updates: Lanes

    def batches_for(self, keys: Lanes) -> list[Lanes]:
        """Return them."""
        return [self.updates]


class Found(NamedTuple):
    """Some groups' histories: `rows` updates, at these bounds of these batches."""

    batches: list[Lanes]
    bounds: Lanes
    rows: int

    def gather(self) -> Lanes:
        """Return these updates, in ascending order of keys."""
        return kernels.gather_bounds(self.batches, self.bounds)


class _View:
    """One trace's updates of the touched groups, rounds dropped: `working` up to the current round, `later` by round."""

    def __init__(self, history: Trace, depth: int):
        self.history = history
        self.depth = depth
        self.nt = history.nt - depth
        self.at = history.nk + history.nv + self.nt
        self.remembered: list[Lanes] = []

    def restart(self, interval: Interval) -> None:
        self.working = Trace(self.history.nk, self.history.nv, self.nt, since=interval.lower)
        self.later: dict[int, list[Lanes]] = {}

    def find(self, keys: Lanes) -> Found:
        """Return where the history of these keys lies."""
        batches = self.history.batches_for(keys)
        return Found(batches, *kernels.locate(keys, batches))

    def remember(self, keys: Lanes) -> bool:
        """Copy what earlier intervals left of these keys: it is looked at again and again, and found quickly where it is small.

        Says whether it is small.
        """
        batches = self.history.settled_for(keys)
        bounds, rows = kernels.locate(keys, batches)
        if 0 < rows <= FEW:
            self.remembered.append(kernels.gather_bounds(batches, bounds))
            if len(self.remembered) > RUNS:
                self.remembered = [kernels.consolidate(kernels.concat(self.remembered))]
        return rows <= FEW

    def add(self, updates: Lanes, interval: Interval) -> None:
        """Take consolidated updates without rounds into the working trace."""
        self.working.insert(updates, interval.upper)

    def add_old(self, parts: list[Lanes], interval: Interval) -> Lanes:
        """Take old updates of the current round or earlier ones into the working trace; return their keys."""
        old = kernels.consolidate(kernels.concat(parts))
        # Before the interval's lower all epochs are one to whoever reads now.
        self.add(kernels.advance(old, interval.lower.as_time(), self.nt), interval)
        return kernels.distinct_keys(old, self.history.nk)


class Sweep:
    """The working traces of a reduction in a loop of `depth`: of its inputs (None where it keeps none) and of its output."""

    def __init__(self, inputs: Trace | None, output: Trace, depth: int):
        self.nk = output.nk
        self.output = _View(output, depth)
        self.inputs = None if inputs is None else _View(inputs, depth)
        self.views = [view for view in (self.inputs, self.output) if view is not None]
        self.wakes: list[Rounds] = []
        self._scheduled: dict[Rounds, list[Lanes]] = {}
        self._within: object = None
        self._around: object = None
        self._first, self._last = Frontier(), 0
        self._swept = self._fresh = False
        self._remembered: set[tuple[int, ...]] = set()

    def step(self, evaluate: Evaluate, delta: Lanes, due: Lanes | None, interval: Interval) -> tuple[Lanes, Lanes]:
        """Return the output's updates of the current round, sorted, and rows [key | time | rounds] still to be evaluated.

        `delta` holds the input's updates of this round, in ascending order of keys; `due` are rows [key | time] that earlier
        intervals left to be evaluated in this round.
        """
        rounds = interval.rounds
        self._move(interval)
        nt, depth = self.output.nt, len(rounds)
        delta = without_rounds(delta, depth)
        if len(delta):
            self._note_times(delta[:, -1 - nt : -1])
        called = self._scheduled.pop(rounds, [])
        parts = [kernels.distinct_keys(delta, self.nk), *called]
        if due is not None:
            self._note_times(due[:, self.nk :])
            parts.append(kernels.distinct_keys(due, self.nk))
        keys = _union(parts) if len(parts) > 1 else parts[0]
        walked = None if self._swept else self._walk(delta, keys, interval)
        if walked is None:
            updates, pending = self._sweep(evaluate, delta, keys, called, due, interval)
        else:
            held, live = walked
            seeds = self._seeds(keys[live > 0], due) if called else due
            updates, pending = evaluate(delta, held[-1], held[0], seeds, ahead=self._ahead(delta, seeds))
        return with_rounds(updates, rounds, 1), with_rounds(pending, rounds, 0)

    def _walk(self, delta: Lanes, keys: Lanes, interval: Interval) -> tuple[list[Held], Lanes] | None:
        """Read the whole histories of groups and schedule the rounds at which they go on; None where they are too long.

        Returns them as of now, and for each key whether it is to be looked at. A group that was touched earlier is as it was
        before the interval where all that changed in it has cancelled since then: it is left alone, now and later on, unless
        it is touched again.
        """
        if len(keys) > FEW or not self._remember(keys):
            return None
        live = np.zeros(len(keys), np.int64)
        since = interval.lower.as_time()
        held, later = [], []
        for view in self.views:
            walked = kernels.walk(keys, view.remembered, view.history.runs, delta, since, interval.rounds, live, FEW)
            if walked is None:
                return None
            held.append(Held(walked[0]))
            later.append(walked[1])
        then = kernels.concat(later)
        if len(then):
            for rounds, groups in split_rounds(then[live[then[:, -1]] > 0], 0, len(interval.rounds)):
                self._schedule(rounds, keys[groups[:, -1]])
        return held, live

    def _remember(self, keys: Lanes) -> bool:
        """Have the views remember the keys that they don't, and say whether they could."""
        fresh = [key for key in map(tuple, keys.tolist()) if key not in self._remembered]
        if not fresh:
            return True
        rows = np.array(fresh, np.int64)
        self._remembered.update(fresh)
        for view in self.views:
            if not view.remember(rows):
                self._forget()
                return False
        return True

    def _forget(self) -> None:
        self._remembered.clear()
        for view in self.views:
            view.remembered = []

    def _sweep(
        self, evaluate: Evaluate, delta: Lanes, keys: Lanes, called: list[Lanes], due: Lanes | None, interval: Interval
    ) -> tuple[Lanes, Lanes]:
        """Move the working traces on to the current round."""
        if not self._swept:
            self._swept = True
            # With no history at all nothing is to be looked up, whoever is touched.
            self._fresh = not any(view.history.rows for view in self.views)
            self._touched = Trace(self.nk, 0, 0, since=Frontier())
            for view in self.views:
                view.restart(interval)
        if not self._fresh:
            self._touch(self._untouched(keys), interval)
            for view in self.views:
                old = view.later.pop(interval.rounds[-1], None)
                if old is not None:
                    called = [*called, view.add_old(old, interval)]
        seeds = self._seeds(_union(called), due) if called else due
        inputs = self.inputs or self.output
        updates, pending = evaluate(delta, self.output.working, inputs.working, seeds, ahead=self._ahead(delta, seeds))
        if self.inputs:
            self.inputs.add(delta, interval)
        self.output.add(updates, interval)
        return updates, pending

    def _move(self, interval: Interval) -> None:
        """Begin anew where the interval or an outer round has moved on."""
        if self._around != (interval.lower, interval.upper):
            self._around = (interval.lower, interval.upper)
            self._within = None
            self._first, self._last = Frontier(), 0
            # What a bounded loop was not to look at any more is all that can be left here.
            self._scheduled.clear()
            self._forget()
        if self._within != interval.rounds[:-1]:
            self._within = interval.rounds[:-1]
            self._swept = False

    def _note_times(self, times: Lanes) -> None:
        """Remember the earliest new times of the interval and, of totally ordered time, the latest."""
        if times.shape[1] > 1:
            self._first = self._first.meet(Frontier(map(tuple, np.unique(times, axis=0).tolist())))
            return
        every = times[:, 0]
        low, high = (
            (min(every.tolist()), max(every.tolist())) if len(every) < 32 else (int(every.min()), int(every.max()))
        )
        self._last = max(self._last, high) if self._first else high
        if not self._first or low < self._first.elements[0][0]:
            self._first = Frontier([(low,)])

    def _ahead(self, delta: Lanes, seeds: Lanes | None) -> bool:
        """Say whether some time in the interval so far is after the first one to be evaluated now, in totally ordered time."""
        if self.output.nt > 1 or not self._first or self._last == self._first.elements[0][0]:
            return False
        first = self._first.elements[0][0] if seeds is not None else int(delta[:, -2].min(initial=NEVER))
        return self._last > first

    def _seeds(self, keys: Lanes, due: Lanes | None) -> Lanes | None:
        """Return rows [key | time]: these keys at the first new times of the interval, and what is due."""
        seeds = np.empty((len(self._first) * len(keys), self.nk + self.output.nt), np.int64)
        for at, time in enumerate(self._first):
            seeds[at * len(keys) : (at + 1) * len(keys), : self.nk] = keys
            seeds[at * len(keys) : (at + 1) * len(keys), self.nk :] = time
        return seeds if due is None else np.concatenate([seeds, due])

    def _untouched(self, keys: Lanes) -> Lanes:
        """Return which of the keys are new to this sweep, and note that they no longer are."""
        fresh = keys[sizes(kernels.locate(keys, self._touched.matrices())[0]) == 0] if self._touched.rows else keys
        self._touched.insert(np.concatenate([fresh, np.ones((len(fresh), 1), np.int64)], axis=1), Frontier())
        return fresh

    def _touch(self, keys: Lanes, interval: Interval) -> None:
        """Read the whole history of keys: up to the current round into the working traces, the rest is scheduled."""
        *outer, current = interval.rounds
        for view in self.views if len(keys) else ():
            parts: list[Lanes] = []
            found = view.find(keys)
            if not found.rows:
                continue
            for rounds, rows in split_rounds(found.gather(), view.at, view.depth):
                within = tuple(map(max, rounds[:-1], outer))
                if within != tuple(outer):
                    # A join with an outer round still to come: the sweep there finds the rest of the group's history.
                    self._schedule((*within, rounds[-1]), kernels.distinct_keys(rows, self.nk))
                elif rounds[-1] <= current:
                    parts.append(without_rounds(rows, view.depth))
                else:
                    view.later.setdefault(rounds[-1], []).append(without_rounds(rows, view.depth))
                    self.wakes.append((*within, rounds[-1]))
            if parts:
                view.add_old(parts, interval)

    def _schedule(self, rounds: Rounds, keys: Lanes) -> None:
        """Have keys reconsidered at these rounds."""
        self._scheduled.setdefault(rounds, []).append(keys)
        self.wakes.append(rounds)


def _union(parts: list[Lanes]) -> Lanes:
    """Return the distinct keys of several matrices of keys, sorted."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return parts[0]
    keys = np.ones((sum(map(len, filled)), filled[0].shape[1] + 1), np.int64)
    np.concatenate(filled, out=keys[:, :-1])
    return kernels.distinct_keys(kernels.consolidate(keys), keys.shape[1] - 1)
