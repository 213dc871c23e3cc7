"""From what each instance wants to the updates that bring it about: delta(t) = want(t) - accumulated output at t."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels import reduce_rows
from ddcli.engine.kernels.errors import DiffOverflow
from ddcli.engine.kernels.reduce_times import NO_ROOM

if TYPE_CHECKING:
    from ddcli.engine.operators.reduce_instances import Instances, Lanes


def difference(instances: Instances, want: Lanes, history: Lanes, *, single: bool) -> Lanes:
    """Return the updates [key | output | time | diff] after which the output accumulates to `want` at every instance.

    `want` has rows [instance | output | count] in the order of instances; `single` promises at most one each. `history` is
    the output before: for one time lane [group | output | instance | diff], else [group | output | time | diff].
    The result is sorted and consolidated.
    """
    nt = instances.times.shape[1]
    rows = _in_turn(instances, want, history, single=single) if nt == 1 else _by_lattice(instances, want, history)
    nk = instances.keys.shape[1]
    out = np.empty((len(rows), rows.shape[1] - 1 + nk), np.int64)
    out[:, :nk] = instances.keys[rows[:, 0]]
    out[:, nk:] = rows[:, 1:]
    return kernels.consolidate(out)


def _in_turn(instances: Instances, want: Lanes, history: Lanes, *, single: bool) -> Lanes:
    """Totally ordered time: what an instance wants enters at its time and leaves at the group's next one."""
    groups = instances.groups()
    at = want[:, 0]
    leaves = at + 1 < instances.first[groups[at] + 1]
    enters = np.ones(len(want), np.bool_)
    if single and leaves.any():
        # What is wanted again at the very next instance neither leaves nor enters there.
        stays = leaves[:-1] & (at[1:] == at[:-1] + 1) & (want[1:, 1:] == want[:-1, 1:]).all(axis=1)
        leaves[:-1] &= ~stays
        enters[1:] &= ~stays
    entering, leaving = want[enters], want[leaves]
    out = np.empty((len(entering) + len(leaving) + len(history), want.shape[1] + 1), np.int64)
    a, b = len(entering), len(entering) + len(leaving)
    out[:a, 0] = groups[entering[:, 0]]
    out[:a, 1:-2] = entering[:, 1:-1]
    out[:a, -2] = instances.times[entering[:, 0], 0]
    out[:a, -1] = entering[:, -1]
    out[a:b, 0] = groups[leaving[:, 0]]
    out[a:b, 1:-2] = leaving[:, 1:-1]
    out[a:b, -2] = instances.times[leaving[:, 0] + 1, 0]
    # Not np.negative: numpy 2.4.6 reads wrong rows when both lanes are strided and the first by 64 bytes.
    np.multiply(leaving[:, -1], -1, out=out[a:b, -1])
    out[b:, :-2] = history[:, :-2]
    out[b:, -2] = instances.times[history[:, -2], 0]
    np.multiply(history[:, -1], -1, out=out[b:, -1])
    return out


def _by_lattice(instances: Instances, want: Lanes, history: Lanes) -> Lanes:
    """Any order of times: subtract what is accumulated at each instance, earlier instances first."""
    nt, no = instances.times.shape[1], want.shape[1] - 2
    past, wants = np.empty(len(instances.keys) + 1, np.int64), np.empty(len(instances) + 1, np.int64)
    history = kernels.consolidate(history)
    reduce_rows.runs(history, 0, past)
    reduce_rows.runs(want, 0, wants)
    room = 4 * (len(want) + len(history)) + 64
    while True:
        out, pool = np.empty((room, no + nt + 2), np.int64), np.empty((room, no + 1), np.int64)
        rows = reduce_rows.difference_at(
            instances.first, instances.times, past, history, wants, want, no, nt, pool, out
        )
        if rows == reduce_rows.OVERFLOW:
            raise DiffOverflow("the multiplicity of an output record leaves the 64-bit range")
        if rows != NO_ROOM:
            return out[:rows]
        room *= 4
