"""Interesting times: the keys and times at which a reduction must be evaluated, and the updates that follow. Time logic only, no values.

At each such instance the updates are delta(t) = want(t) - accumulated output at t.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.jit.registry import DiffOverflow
from ddcli.engine.kernels import reduce_rows, reduce_times, reduce_turns
from ddcli.engine.kernels.reduce_rows import runs
from ddcli.engine.kernels.reduce_times import NO_ROOM
from ddcli.engine.rounds import some_before

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddcli.engine.lanes import Lanes


@frozen
class Instances:
    """Keys at interesting times: key g at the rows first[g]:first[g + 1] of `times`, in lexicographic order.

    Shapes: keys (groups, nk), sorted and distinct; first (groups + 1,); times (instances, nt).
    """

    keys: Lanes
    first: Lanes
    times: Lanes

    def __len__(self) -> int:
        return len(self.times)

    def groups(self) -> Lanes:
        """Return the group of each instance."""
        return np.repeat(np.arange(len(self.keys)), np.diff(self.first))

    def slice(self, start: int, stop: int) -> Instances:
        """Return the instances of the groups start to stop, numbered from 0."""
        low, high = self.first[start], self.first[stop]
        return Instances(self.keys[start:stop], self.first[start : stop + 1] - low, self.times[low:high])

    def where(self, mask: NDArray[np.bool_]) -> tuple[Instances, Lanes]:
        """Return the instances that `mask` keeps, and the groups that still have any."""
        counts = np.bincount(self.groups()[mask], minlength=len(self.keys))
        left = np.flatnonzero(counts)
        return Instances(self.keys[left], ends(counts[left]), self.times[mask]), left

    def pairs(self) -> Lanes:
        """Return the instances as rows [key | time]."""
        return np.concatenate([self.keys[self.groups()], self.times], axis=1)


def ends(counts: Any) -> Lanes:
    """Return where each of adjacent runs begins, with an end mark."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


class Due(NamedTuple):
    """The times at which a step evaluates groups beside the times of its new updates.

    `seeds` are rows [key | time] to be evaluated. Interesting times not before the `upper` are left for later steps; without one none is.
    In totally ordered time the traces' times are all before the new updates', unless the traces are `ahead`: then later
    times in them are interesting as well.
    """

    seeds: Lanes | None = None
    upper: Sequence[Sequence[int]] | None = None
    ahead: bool = False


NOTHING_DUE = Due()


def new_instances(updates: Lanes, nk: int, at: int, nt: int, seeds: Lanes | None = None) -> Instances:
    """Return the keys and times of new updates and of `seeds`, rows [key | time] that were scheduled earlier.

    `updates` must have the rows of a key together, in ascending order of keys, and the time from lane `at`.
    """
    if seeds is not None and len(seeds):
        pairs = np.ones((len(updates) + len(seeds), nk + nt + 1), np.int64)
        pairs[: len(updates), :nk] = updates[:, :nk]
        pairs[: len(updates), nk : nk + nt] = updates[:, at : at + nt]
        pairs[len(updates) :, : nk + nt] = seeds
        updates, at = kernels.consolidate(pairs), nk
    n = len(updates)
    keys, times = np.empty((n, nk), np.int64), np.empty((n, nt), np.int64)
    first = np.empty(n + 1, np.int64)
    groups = reduce_times.new_times(updates, nk, at, nt, keys, first, times)
    first = first[: groups + 1]
    return Instances(keys[:groups], first, times[: first[-1]])


def sizes(bounds: Lanes) -> Lanes:
    """Return how many rows of each key `bounds` names."""
    rows: Lanes = (bounds[:, 1::2] - bounds[:, 0::2]).sum(axis=1)
    return rows


class History(NamedTuple):
    """The rows `bounds` of some sources, `rows` at most; bounds of further sources are ignored. The time is at lane `at`."""

    sources: list[Lanes]
    bounds: Lanes
    rows: int
    at: int


def close(new: Instances, inputs: History, outputs: History) -> Instances:
    """Close the new times of each key under lattice join with each other and with the times of its history.

    The new times are the times of the batch as it arrived: consolidated with a compacted history, an update could cancel
    and hide its time.
    """
    nt = new.times.shape[1]
    first = np.empty(len(new.first), np.int64)
    if nt == 1:
        times = np.empty((len(new) + inputs.rows + outputs.rows, 1), np.int64)
        (sources, bounds, _, at), (former, there, _, out_at) = inputs, outputs
        found = reduce_turns.later_times(
            new.first, new.times, sources, len(sources), bounds, at, former, there, out_at, first, times
        )
        return Instances(new.keys, first, times[:found])
    parts = []
    for sources, bounds, rows, at in (inputs, outputs):
        part = np.empty((rows, nt + 2), np.int64)
        parts.append(part[: reduce_times.collect_times(sources, bounds, at, nt, part)])
    history = np.concatenate(parts)
    history[:, -1] = 1
    history = kernels.consolidate(history)
    past = np.empty(len(new.keys) + 1, np.int64)
    runs(history, 0, past)
    room = 2 * len(new) + 64
    while True:
        times = np.empty((room, nt), np.int64)
        table = np.full(1 << (2 * room).bit_length(), -1, np.int64)
        found = reduce_times.close(new.first, new.times, past, history, nt, first, times, table)
        if found != reduce_times.NO_ROOM:
            return Instances(new.keys, first, times[:found].copy())
        room *= 4


def interesting(
    new: Instances, inputs: History, outputs: History, upper: Sequence[Sequence[int]] | None
) -> tuple[Instances, Lanes, Lanes | slice]:
    """Return the instances of `close` before `upper`, the others as rows [key | time], and which groups have any of the first."""
    closed = close(new, inputs, outputs)
    some = some_before(closed.times, upper)
    if some is None:
        return closed, np.empty((0, closed.keys.shape[1] + closed.times.shape[1]), np.int64), slice(None)
    kept, left = closed.where(some)
    return kept, closed.pairs()[~some], left


class Single(NamedTuple):
    """One wanted record an instance: row i of `lanes`, where `present` (instances,) is not 0."""

    lanes: Lanes
    present: Lanes

    def rows(self) -> Lanes:
        """Return the records as rows [instance | lanes | 1]."""
        at = np.flatnonzero(self.present)
        out = np.empty((len(at), self.lanes.shape[1] + 2), np.int64)
        out[:, 0] = at
        out[:, 1:-1] = self.lanes[at]
        out[:, -1] = 1
        return out


class Reduced(NamedTuple):
    """The output's updates [key | output | time | diff], sorted and consolidated, and the instances that are still to be evaluated.

    `pending` has rows [key | time]: interesting times not before the step's upper. Hand them in again, as `seeds`, in the
    step whose interval they are in.
    """

    updates: Lanes
    pending: Lanes


def difference(instances: Instances, want: Single | Lanes, output: History) -> Lanes:
    """Return the updates [key | output | time | diff] after which the output accumulates to `want` at every instance.

    The `output` before is [key | output | time | diff] in each of its sources. `want` is one record for each instance, or rows [instance | output | count] in the order of groups (for more than one time lane, of
    instances). The result is sorted and consolidated.
    """
    if instances.times.shape[1] > 1:
        return kernels.consolidate(_by_lattice(instances, want, output))
    found = _in_turn(instances, want, output)
    # The kernel has sorted the rows of each group, but for large groups.
    consolidated = isinstance(want, Single) and len(found) <= reduce_turns.SPAN
    return found if consolidated else kernels.consolidate(found)


def checked(rows: int) -> int:
    """Return a kernel's number of rows; raise the error if it is the mark of a count beyond 64 bits."""
    if rows == reduce_rows.OVERFLOW:
        raise DiffOverflow("the multiplicity of an output record leaves the 64-bit range")
    return rows


def _in_turn(instances: Instances, want: Single | Lanes, output: History) -> Lanes:
    """Totally ordered time: an instance's record is inserted at its time and retracted at the group's next one."""
    keys, first, times = instances.keys, instances.first, instances.times
    nk = keys.shape[1]
    if isinstance(want, Single):
        out = np.empty((2 * len(times) + output.rows, nk + want.lanes.shape[1] + 2), np.int64)
        rows = reduce_turns.take_turns(keys, first, times, want.lanes, want.present, output.sources, output.bounds, out)
    else:
        out = np.empty((2 * len(want) + output.rows, nk + want.shape[1]), np.int64)
        rows = reduce_turns.take_turns_several(keys, first, times, want, output.sources, output.bounds, out)
    return out[: checked(rows)]


def _by_lattice(instances: Instances, want: Single | Lanes, output: History) -> Lanes:
    """Any order of times: subtract the output accumulated at each instance, earlier instances first."""
    want = want.rows() if isinstance(want, Single) else want
    nk, nt, no = instances.keys.shape[1], instances.times.shape[1], want.shape[1] - 2
    past, wants = np.empty(len(instances.keys) + 1, np.int64), np.empty(len(instances) + 1, np.int64)
    history = kernels.consolidate(collect(instances, output, no))
    reduce_rows.runs(history, 0, past)
    reduce_rows.runs(want, 0, wants)
    room = 4 * (len(want) + len(history)) + 64
    while True:
        rows, pool = np.empty((room, no + nt + 2), np.int64), np.empty((room, no + 1), np.int64)
        count = reduce_rows.difference_at(
            instances.first, instances.times, past, history, wants, want, no, nt, pool, rows
        )
        if count != NO_ROOM:
            break
        room *= 4
    rows = rows[: checked(count)]
    out = np.empty((len(rows), no + nt + 1 + nk), np.int64)
    out[:, :nk] = instances.keys[rows[:, 0]]
    out[:, nk:] = rows[:, 1:]
    return out


def collect(instances: Instances, output: History, no: int) -> Lanes:
    """Return the output before as rows [group | output | time | diff], with the instance for the time where that is one lane."""
    nk, nt = instances.keys.shape[1], instances.times.shape[1]
    rows = np.empty((output.rows, no + nt + 2), np.int64)
    count = reduce_rows.collect(
        output.sources, output.bounds, nk, no, nt, int(nt == 1), instances.first, instances.times, rows
    )
    return rows[:count]
