"""Reductions in a loop: their input at the current round, and the rounds at which they must be evaluated again.

At round r a reduction needs its groups as accumulated up to r, of the groups that some update touched. With the round dropped,
the times that are left are the input's own coordinates: one evaluation covers all epochs, by the same code as outside
of loops.

Why that is enough. Let R and O be the group's input and output up to round r, and f(e) the records that the aggregates want of R at e,
less O at e. After the step of round r - 1, f was 0 everywhere. In round r some updates d are added: new ones, and those that
earlier intervals left at round r. f(e) can differ from 0 only where e is the lattice join of times in R and O, and is
at or after both a time of d and a new time (before any new time all is as it was when that history was made). So it
is evaluated at the times of the new updates and, for groups with old ones, at the first new times, closed under join
with what R and O hold.

Hence the rule that makes it differential: a group touched at some round is reconsidered at every later round at which its
history has an update. With loops around, a change at an outer round reaches later outer rounds in the same way.

There are two ways to R and O. A few groups are walked: their histories are read, all rounds of them, at each
evaluation. For many groups, round after round, that would be too expensive. They are swept: working traces hold them up to
the current round, and the next round adds its updates, new and old.

A reduction to first records is one call where it evaluates few groups, as in most rounds of a small change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels.revisit import reevaluate_first
from ddcli.engine.operators.reduce_instances import Due
from ddcli.engine.operators.sweep import Sweep, WholeGroups
from ddcli.engine.rounds import split_rounds, with_rounds, without_rounds
from ddcli.engine.times import Frontier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.operators.reduce_replay import Search
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.times import Time
    from ddcli.engine.trace.spine import Trace


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
        code = reevaluate_first(
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


Lanes = np.ndarray

FEW = 4_096
"""The most updates of histories that are walked."""

ONCE = 16
"""The most keys that are sought in all batches in memory at each evaluation."""

RUNS = 12
"""The most runs of copied rows."""


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

    def groups(
        self, keys: Lanes, delta: Lanes, interval: Interval, *, due: bool
    ) -> tuple[list[WholeGroups], Lanes, list[tuple[Rounds, Lanes]]] | None:
        """Return the groups of sorted, distinct keys of each trace as of the current round, whether each is to be evaluated, and the later rounds in which they change; None where their histories are too long.

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
        held = [WholeGroups([rows]) for rows in found[:2]][-len(self.traces) :]
        rest = found[2]
        live = marks > 0
        split = split_rounds(rest[live[rest[:, -1]]], 0, len(rounds)) if len(rest) else ()
        return held, live, [(later, keys[groups[:, -1]]) for later, groups in split]

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
            batches = trace.histories_for(rows)
            bounds, count = kernels.locate(rows, batches)
            if count > FEW:
                self.restart()
                return False
            if count:
                runs = [*self._remembered[at], kernels.gather_bounds(batches, bounds)]
                self._remembered[at] = runs if len(runs) <= RUNS else [kernels.consolidate(kernels.concat(runs))]
        self._keys.update(fresh)
        return True


NEVER = 2**63 - 1
SHORT = 32


class Memo(NamedTuple):
    """The knowledge of a reduction about the rounds in which it was stepped: the earliest new times, and the latest."""

    first: Sequence[Time]
    last: int


class IterativeReduce:
    """The rounds of a reduction in a loop, over the traces of its inputs (None where it keeps none) and of its output.

    A reduction to the first record of a `search` takes one call for a step of few groups.
    """

    def __init__(self, inputs: Trace | None, output: Trace, depth: int, search: Search | None = None):
        self.nk = output.nk
        self.nt = output.nt - depth
        self.traces = [output] if inputs is None else [inputs, output]
        self.wakes: list[Rounds] = []
        self._walk = Walk(self.traces)
        self._of_first = search is not None
        """True: it returns first records; it finds these in rows with rounds, too, also if rows of one value have different rounds."""
        self._few = FewGroups(self.traces, search, depth) if search else None
        self._none = np.empty((0, self.nk + output.nt), np.int64)
        self._sweep: Sweep | None = None
        self._scheduled: dict[Rounds, list[Lanes]] = {}
        self._within: Rounds | None = None
        self._around: tuple[Frontier, Frontier] | None = None
        self._first, self._last = Frontier(), 0

    def step(
        self, evaluate: Callable[..., tuple[Lanes, Lanes]], delta: Lanes, due: Lanes | None, interval: Interval
    ) -> tuple[Lanes, Lanes]:
        """Return the output's updates of the current round, sorted, and rows [key | time | rounds] still to be evaluated.

        `evaluate` is the step of a reduction over traces without rounds. `delta` holds the input's updates of this round, in ascending order of keys; `due` are rows [key | time] that earlier
        intervals left to be evaluated in this round.
        """
        rounds = interval.rounds
        self._move(interval)
        end = delta.shape[1] - 1 - len(rounds)
        if len(delta):
            self._note_times(delta[:, end - self.nt : end])
        called = self._scheduled.pop(rounds, [])
        if self._few and due is None and not self._sweep and (first := self._first.elements):
            earliest = first[0][0]
            ahead = self._last != earliest and self._ahead(delta[:, end - 1], some_seeds=bool(called))
            found = self._few.step(delta, called, interval, earliest, ahead=ahead)
            if found:
                self._schedule(found[1])
                return found[0], self._none
        if not (self._sweep and self._sweep.with_rounds):
            delta = without_rounds(delta, len(rounds))
        parts = [kernels.distinct_keys(delta, self.nk), *called]
        if due is not None:
            self._note_times(due[:, self.nk :])
            parts.append(kernels.distinct_keys(due, self.nk))
        keys = _union(parts) if len(parts) > 1 else parts[0]
        walked = None if self._sweep else self._walk.groups(keys, delta, interval, due=due is not None)
        inputs: Reader
        output: Reader
        if walked:
            sweep = None
            held, live, later = walked
            self._schedule(later)
            seeds = self._seeds(keys[live], due) if called else due
            inputs, output = held[0], held[-1]
        else:
            sweep = self._sweep = self._sweep or Sweep(self.traces, interval, with_rounds=self._of_first)
            old, scheduled = sweep.move(keys, rounds)
            self._schedule(scheduled)
            seeds = self._seeds(_union([*called, *old]), due) if called or old else due
            inputs, output = sweep.readers[0], sweep.readers[-1]
        ahead = self._ahead(delta[:, end - 1], some_seeds=seeds is not None)
        evaluated = Due(seeds, interval.upper.elements, ahead)
        updates, pending = evaluate(delta, output=output, inputs=inputs, due=evaluated)
        if sweep:
            sweep.take([updates] if len(self.traces) == 1 else [delta, updates])
        return with_rounds(updates, rounds, 1), with_rounds(pending, rounds, 0)

    def recall(self, interval: Interval, called: Mapping[Rounds, list[Lanes]], memo: Memo | None) -> None:
        """Continue where another worker was in this interval, from the updates that its `save_state` stored."""
        self._around = (interval.lower, interval.upper)
        for rounds, keys in called.items():
            self._scheduled.setdefault(rounds, []).extend(keys)
        if memo is not None:
            self._first, self._last = Frontier(memo.first), memo.last

    def save_state(self) -> tuple[dict[Rounds, Lanes], Memo]:
        """Return the keys to evaluate by later round, and the other knowledge about the interval."""
        left = {rounds: [*parts] for rounds, parts in self._scheduled.items()}
        if self._sweep:
            for rounds, keys in self._sweep.rest():
                left.setdefault(rounds, []).append(keys)
        called = {rounds: _union(parts) for rounds, parts in left.items()}
        return {rounds: keys for rounds, keys in called.items() if len(keys)}, Memo(self._first.elements, self._last)

    def close(self) -> None:
        """Release the copies made for the interval: it is over."""
        self._sweep = None
        self._walk.restart()

    def _move(self, interval: Interval) -> None:
        """Reset where the interval or an outer round has changed."""
        if self._around != (interval.lower, interval.upper):
            self._around = (interval.lower, interval.upper)
            self._within = None
            self._first, self._last = Frontier(), 0
            # Only rounds that a bounded loop did not reach can be left here.
            self._scheduled.clear()
        if self._within != interval.rounds[:-1]:
            self._within = interval.rounds[:-1]
            self._sweep = None

    def _note_times(self, times: Lanes) -> None:
        """Remember the earliest new times of the interval and, of totally ordered time, the latest."""
        if self.nt > 1:
            self._first = self._first.meet(Frontier(map(tuple, np.unique(times, axis=0).tolist())))
            return
        every = times[:, 0].tolist() if len(times) < SHORT else (int(times.min()), int(times.max()))
        low, high = min(every), max(every)
        first = self._first.elements
        self._last = max(self._last, high) if first else high
        if not first or low < first[0][0]:
            self._first = Frontier(((low,),))

    def _ahead(self, times: Lanes, *, some_seeds: bool) -> bool:
        """Return whether some time of the interval is after the first one to be evaluated now, in totally ordered time; `times` are the delta's."""
        if self.nt > 1 or not self._first.elements or self._last == self._first.elements[0][0]:
            return False
        first = self._first.elements[0][0] if some_seeds else int(times.min(initial=NEVER))
        return self._last > first

    def _seeds(self, keys: Lanes, due: Lanes | None) -> Lanes:
        """Return rows [key | time]: these keys at the first new times of the interval, and the due rows."""
        count = len(keys)
        seeds = np.empty((len(self._first) * count, self.nk + self.nt), np.int64)
        for at, time in enumerate(self._first):
            seeds[at * count : (at + 1) * count, : self.nk] = keys
            seeds[at * count : (at + 1) * count, self.nk :] = time
        return seeds if due is None else np.concatenate([seeds, due])

    def _schedule(self, later: list[tuple[Rounds, Lanes]]) -> None:
        """Schedule the evaluation of keys at later rounds."""
        for rounds, keys in later:
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
