"""The updates that produce the records that each instance wants: delta(t) = want(t) - accumulated output at t."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.jit.errors import DiffOverflow
from ddcli.engine.kernels import reduce_rows, reduce_turns
from ddcli.engine.kernels.reduce_times import NO_ROOM
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from ddcli.engine.columns import Lanes
    from ddcli.engine.operators.reduce_instances import Instances


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


class FormerOutput(NamedTuple):
    """The output before: in each of some sources, [key | output | time | diff], the rows `bounds`, `rows` in all at most."""

    sources: list[Lanes]
    bounds: Lanes
    rows: int


def difference(instances: Instances, want: Single | Lanes, output: FormerOutput) -> Lanes:
    """Return the updates [key | output | time | diff] after which the output accumulates to `want` at every instance.

    `want` is one record for each instance, or rows [instance | output | count] in the order of groups (for more than one time lane, of
    instances). The result is sorted and consolidated.
    """
    if instances.times.shape[1] > 1:
        return kernels.consolidate(_by_lattice(instances, want, output))
    found = _in_turn(instances, want, output)
    # The kernel has sorted the rows of each group, but for large groups.
    settled = isinstance(want, Single) and len(found) <= reduce_turns.SETTLED_ROWS
    return found if settled else kernels.consolidate(found)


def checked(rows: int) -> int:
    """Return a kernel's number of rows; raise the error if it is the mark of a count beyond 64 bits."""
    if rows == reduce_rows.OVERFLOW:
        raise DiffOverflow("the multiplicity of an output record leaves the 64-bit range")
    return rows


def _in_turn(instances: Instances, want: Single | Lanes, output: FormerOutput) -> Lanes:
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


def _by_lattice(instances: Instances, want: Single | Lanes, output: FormerOutput) -> Lanes:
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


def collect(instances: Instances, output: FormerOutput, no: int) -> Lanes:
    """Return the output before as rows [group | output | time | diff], with the instance for the time where that is one lane."""
    nk, nt = instances.keys.shape[1], instances.times.shape[1]
    rows = np.empty((output.rows, no + nt + 2), np.int64)
    count = reduce_rows.collect(
        output.sources, output.bounds, nk, no, nt, int(nt == 1), instances.first, instances.times, rows
    )
    return rows[:count]
