"""As-of joins: each left row with the nearest right row of its group.

The join is linear in the left rows. So for totally ordered time its updates come from the left rows, each with its nearest right row at its time, and
and the left rows to which a changed right row is nearest, before or after: the left rows from the changed place up to the next. Both are read from
the arrangement, and no output is kept. Otherwise whole groups are evaluated, as reductions are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels.neighbours import NEAR, met, nearest, rows_around
from ddcli.engine.kernels.reduce_times import NO_ROOM
from ddcli.engine.operators.reduce_aggregates import GatheredGroups
from ddcli.engine.operators.reduce_replay import checked
from ddcli.engine.trace.trace_import import nearby

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.engine.lanes import Lanes
    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.operators.reduce_aggregates import Gather


class Neighbours:
    """A window over the groups of an arrangement with `nk` key and `nv` value lanes, which reads at most `reach` rows to either side.

    The first `deciding` lanes of a value are its place; with fewer than `nv`, ranks and not lanes decide among rows with one place.
    """

    def __init__(self, nk: int, nv: int, window: Gather, reach: int, deciding: int):
        self.nk, self.nv, self.reach, self.deciding = nk, nv, reach, deciding
        self.window = window
        self.rows_read = 0
        """The number of rows read, including the changes."""

    def step(self, delta: Lanes, inputs: Reader) -> Lanes:
        """Return the window's updates [key | lanes | time | diff] for new updates, sorted by all lanes; `inputs` is the trace before them."""
        nk, width = self.nk, self.window.width
        if not len(delta):
            return np.empty((0, nk + width + 2), np.int64)
        changes, around = self._around(delta, inputs)
        self.rows_read += len(around)
        opens = np.flatnonzero(np.diff(around[:, 0], prepend=-1))
        segment = np.cumsum(np.diff(around[:, 0], prepend=-1) != 0) - 1
        seen = np.empty((2 * len(around), self.nv + 2), np.int64)
        for after in (0, 1):
            part = seen[after * len(around) : (after + 1) * len(around)]
            part[:, 0] = 2 * segment + after
            part[:, 1:-1] = around[:, 1:-2]
            part[:, -1] = around[:, -2 + after]
        seen = seen[seen[:, -1] > 0]
        seen = np.ascontiguousarray(seen[np.argsort(seen[:, 0], kind="stable")])
        of = changes[np.repeat(around[opens, 0], 2)]
        found = self.window.function(GatheredGroups(of[:, :nk], of[:, -1:], seen))
        out = np.empty((len(found), nk + width + 2), np.int64)
        change = of[found[:, 0]]
        out[:, :nk], out[:, nk:-2], out[:, -2] = change[:, :nk], found[:, 1:-1], change[:, -1]
        out[:, -1] = np.where(found[:, 0] % 2, found[:, -1], -found[:, -1])
        return kernels.consolidate(out)

    def _around(self, delta: Lanes, inputs: Reader) -> tuple[Lanes, Lanes]:
        """Return the changes [key | value | time], by key, time and value, and the rows around them: see `rows_around`.

        For large partitions in files only the nearby rows are read, and all if these are not enough.
        """
        keys = kernels.distinct_keys(delta, self.nk)
        of, _ = kernels.locate(keys, [delta])
        group = np.repeat(np.arange(len(keys)), of[:, 1] - of[:, 0])
        order = np.lexsort((np.arange(len(delta)), delta[:, -2], group))
        changes, group = np.ascontiguousarray(delta[order, :-1]), group[order]
        lanes = self.nk + self.deciding
        for near in (nearby(inputs, delta[of[:, 0], :lanes], delta[of[:, 1] - 1, :lanes], self.nk), None):
            matrices = inputs.batches_for(keys) if near is None else near.matrices
            sources = [*matrices, delta]
            bounds = kernels.locate(keys, sources)[0] if near is None else near.bounds(sources)
            edges = np.zeros(len(changes), np.int64)
            around = self._rows_around(sources, np.ascontiguousarray(bounds[group]), changes, edges)
            if near is None or not (near.edges(self.nk)[group] & edges).any():
                break
        return changes, around

    def _rows_around(self, sources: list[Lanes], bounds: Lanes, changes: Lanes, edges: Lanes) -> Lanes:
        """Return rows [segment | value | count before | count after], and write the changes at which the partition ends."""
        cursor, least = np.empty((3, max(len(sources), 2)), np.int64), least_times(sources)
        lanes = (self.nk, self.nv, self.deciding, self.reach)

        def write(out: Lanes) -> int:
            edges[:] = 0
            return rows_around(sources, bounds, changes, *lanes, *least, cursor, edges, out)

        return _written(write, len(changes) * (2 * min(self.reach, 8) + 2) + 64, self.nv + 3)


def _written(write: Callable[[Lanes], int], room: int, width: int) -> Lanes:
    """Return the rows that a kernel writes to a matrix of `width` lanes, made larger while it returns NO_ROOM."""
    while True:
        out = np.empty((room, width), np.int64)
        count = write(out)
        if count != NO_ROOM:
            return out[: checked(count)]
        room *= 4


def least_times(sources: list[Lanes]) -> tuple[Lanes, Lanes]:
    """Return the least time of each NEAR, and of each NEAR * NEAR, rows of the last source."""
    times = sources[-1][:, -2]
    near, far = (np.minimum.reduceat(times, np.arange(0, len(times), each)) for each in (NEAR, NEAR * NEAR))
    return near, far


class AsofJoin:
    """An as-of join over an arrangement with `nk` key and `nv` value lanes: [side | order | left | right].

    The order has `lanes` lanes, the right's columns begin at lane `right` of a value. `ranked` returns values with ranks that break ties in place
    of unordered lanes; None where all lanes are ordered.
    """

    rows_read = 0
    """Not counted: the join reads a few rows for each new one, and those that it emits."""

    def __init__(
        self,
        nk: int,
        nv: int,
        lanes: int,
        right: int,
        ranked: Callable[[Lanes], Lanes] | None,
        *,
        inner: bool,
        strict: bool,
    ):
        self.nk, self.nv, self.lanes, self.right = nk, nv, lanes, right
        self.ranked, self.inner, self.strict = ranked, inner, strict

    @property
    def width(self) -> int:
        """Return the number of lanes of the result that are not the key's."""
        return self.nv - 1 - self.lanes

    # --- values: functions of the rows ---------------------------------------------------------------------------

    def gathered(self, given: GatheredGroups) -> Lanes:
        """Return the rows [instance | lanes | count] of the result over whole groups."""
        rows, lanes = given.rows, self.lanes
        is_right = rows[:, 1] == 1
        lefts = rows[~is_right]
        rights = self.firsts(rows[is_right & (rows[:, -1] > 0)][:, :-1], 2 + lanes)
        places = np.concatenate([rights[:, [0, *range(2, 2 + lanes)]], lefts[:, [0, *range(2, 2 + lanes)]]])
        is_left = np.arange(len(places)) >= len(rights)
        flags = ~is_left if self.strict else is_left
        order = np.lexsort((flags, *(places[:, lane] for lane in reversed(range(lanes + 1)))))
        before = np.maximum.accumulate(np.where(is_left[order], -1, np.arange(len(order)))) if len(order) else order
        partner = np.full(len(places), -1)
        partner[order] = np.where(before < 0, -1, order[before])
        found = partner[len(rights) :]
        found[(found < 0) | (rights[found, 0] != lefts[:, 0] if len(rights) else True)] = -1
        out = np.empty((len(lefts), self.width + 2), np.int64)
        out[:, 0], out[:, -1] = lefts[:, 0], lefts[:, -1]
        out[:, 1:-1] = self.joined(lefts[:, 1:-1], rights[:, 1:], found)
        return np.ascontiguousarray(out[found >= 0]) if self.inner else out

    def firsts(self, rows: Lanes, same: int) -> Lanes:
        """Return the first of those rows [group | value], which are in order, that are equal in the first `same` lanes."""
        opens = np.ones(len(rows), np.bool_)
        opens[1:] = (rows[1:, :same] != rows[:-1, :same]).any(axis=1)
        if self.ranked is not None and not opens.all():
            group = np.cumsum(opens)
            ranked = self.ranked(rows)
            order = np.lexsort((*(ranked[:, lane] for lane in reversed(range(self.nv))), group))
            rows = rows[order]
        return rows[opens]

    def joined(self, lefts: Lanes, rights: Lanes, partner: Lanes) -> Lanes:
        """Return the result's lanes of left values, each with its partner among the right ones; -1 stands for none, and its lanes are null already."""
        out = lefts[:, 1 + self.lanes :].copy()
        some = np.flatnonzero(partner >= 0)
        out[some, self.right - 1 - self.lanes :] = rights[partner[some], self.right :]
        return out

    # --- times: updates from changes ----------------------------------------------------------------------------------

    def step(self, delta: Lanes, inputs: Reader) -> Lanes:
        """Return the join's updates [key | lanes | time | diff] for new updates, sorted by all lanes; `inputs` is the trace before them."""
        nk, lanes = self.nk, self.lanes
        if not len(delta):
            return np.empty((0, nk + self.width + 2), np.int64)
        keys = kernels.distinct_keys(delta, nk)
        sources = [*inputs.batches_for(keys), delta]
        of_lefts, of_rights = (self._of_side(keys, sources, side) for side in (0, 1))
        group = np.repeat(np.arange(len(keys)), of_rights[:, -1] - of_lefts[:, -2])
        is_left = delta[:, nk] == 0
        new, changed = delta[is_left], delta[~is_left]
        # Where right rows change, each place and time once.
        moved = np.ones((len(changed), lanes + 3), np.int64)
        moved[:, 0], moved[:, 1:-2], moved[:, -2] = group[~is_left], changed[:, nk + 1 : nk + 1 + lanes], changed[:, -2]
        moved = kernels.consolidate(moved)
        probes = np.empty((len(new) + 2 * len(moved), lanes + 2), np.int64)
        mine, before, after = np.split(probes, [len(new), len(new) + len(moved)])
        mine[:, :lanes], mine[:, -2], mine[:, -1] = new[:, nk + 1 : nk + 1 + lanes], self.strict, new[:, -2]
        for part in (before, after):
            part[:, :lanes], part[:, -2], part[:, -1] = moved[:, 1:-2], 0, moved[:, -2]
        of = np.concatenate([group[is_left], moved[:, 0], moved[:, 0]])
        bounds = of_rights[of]
        # Before the first new time only the trace has rows; elsewhere 'before' is the time minus one.
        first = before[:, -1] == delta[:, -2].min()
        bounds[len(new) : len(new) + len(moved), -2:][first] = 0
        before[~first, -1] -= 1
        found, partner = self._nearest(sources, bounds, probes)
        was, now = np.split(partner[len(new) :], 2)
        # A place without right rows before and at the time changes nothing: the right rows nearest to it change at their own place.
        here = self._at(found, was, moved) | self._at(found, now, moved)
        others = np.flatnonzero(here & self._differ(found, was, now))
        touched = self._met(sources, of_rights[moved[others, 0]], of_lefts[moved[others, 0]], moved[others, 1:-1])
        at = others[touched[:, 0]]
        parts = [
            (group[is_left], new[:, nk:-2], partner[: len(new)], new[:, -2], new[:, -1]),
            (moved[at, 0], touched[:, 1:-1], was[at], moved[at, -2], -touched[:, -1]),
            (moved[at, 0], touched[:, 1:-1], now[at], moved[at, -2], touched[:, -1]),
        ]
        return kernels.consolidate(np.concatenate([self._updates(keys, found, *part) for part in parts]))

    def _of_side(self, keys: Lanes, sources: list[Lanes], side: int) -> Lanes:
        """Return the bounds of the rows of a side of each key."""
        sided = np.full((len(keys), self.nk + 1), side, np.int64)
        sided[:, : self.nk] = keys
        return kernels.locate(sided, sources)[0]

    def _nearest(self, sources: list[Lanes], bounds: Lanes, probes: Lanes) -> tuple[Lanes, Lanes]:
        """Return the values of right rows, and the number of the nearest one for each probe, or -1."""
        sizes, least = (self.nk, self.nv, self.lanes), least_times(sources)
        cursor = np.empty((2, max(len(sources), 2)), np.int64)
        out = _written(
            lambda out: nearest(sources, bounds, probes, *sizes, *least, cursor, out), len(probes) + 64, self.nv + 1
        )[::-1]  # the first of each probe come first
        found = self.firsts(out, 1)
        partner = np.full(len(probes), -1)
        partner[found[:, 0]] = np.arange(len(found))
        return found[:, 1:], partner

    def _met(self, sources: list[Lanes], rights: Lanes, lefts: Lanes, changes: Lanes) -> Lanes:
        """Return the left rows [change | value | diff] whose nearest right row may have changed."""
        changes, least = np.ascontiguousarray(changes), least_times(sources)
        sizes, cursor = (self.nk, self.nv, self.lanes, int(self.strict)), np.empty((2, max(len(sources), 2)), np.int64)
        return _written(
            lambda out: met(sources, rights, lefts, changes, *sizes, *least, cursor, out),
            4 * len(changes) + 64,
            self.nv + 2,
        )

    @staticmethod
    def _differ(found: Lanes, one: Lanes, other: Lanes) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return where two partners are different rows."""
        differ: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = (one < 0) != (other < 0)
        both = np.flatnonzero((one >= 0) & (other >= 0))
        differ[both] = (found[one[both]] != found[other[both]]).any(axis=1)
        return differ

    def _at(self, found: Lanes, partner: Lanes, moved: Lanes) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which partners are at the changed place itself."""
        at: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = partner >= 0
        some = np.flatnonzero(at)
        at[some] = (found[partner[some], 1 : 1 + self.lanes] == moved[some, 1:-2]).all(axis=1)
        return at

    def _updates(
        self, keys: Lanes, found: Lanes, group: Lanes, lefts: Lanes, partner: Lanes, times: Lanes, diffs: Lanes
    ) -> Lanes:
        out = np.empty((len(lefts), self.nk + self.width + 2), np.int64)
        out[:, : self.nk], out[:, self.nk : -2] = keys[group], self.joined(lefts, found, partner)
        out[:, -2], out[:, -1] = times, diffs
        return out[partner >= 0] if self.inner else out
