"""The rows of groups at each instance, as every aggregate reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.jit.errors import DiffOverflow
from ddcli.engine.kernels import ordered_values, reduce_rows
from ddcli.engine.operators.reduce_instances import Instances, sizes
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from ddcli.engine.columns import Lanes


class SumOverflow(EngineError):
    """A sum that its type can't hold, at an interesting time; names the key's lanes and the aggregate's position."""

    def __init__(self, key: tuple[int, ...], aggregate: int):
        super().__init__(
            f"a sum is too large for its type, in the group with key lanes {key}",
            hint="cast its argument to a decimal, which holds 38 digits",
        )
        self.key = key
        self.aggregate = aggregate


def checked(rows: int) -> int:
    """Return a kernel's number of rows; raise the error if it is the mark of a count beyond 64 bits."""
    if rows == reduce_rows.OVERFLOW:
        raise DiffOverflow("the accumulated multiplicity of a record leaves the 64-bit range")
    return rows


@frozen
class Replay:
    """Rows [group | value | instance | diff], sorted and consolidated; group g begins at starts[g], its instances at first[g].

    A row counts from its instance on to the group's last. With one time lane a group is a key; otherwise it is an instance.
    """

    instances: Instances
    rows: Lanes
    starts: Lanes
    first: Lanes

    @property
    def nv(self) -> int:
        return int(self.rows.shape[1]) - 3

    def by_values(self, lanes: tuple[int, ...]) -> Replay:
        """Return the rows with other value lanes: reordered, or projected."""
        if lanes == tuple(range(self.nv)):
            return self
        take = [0, *(1 + lane for lane in lanes), self.nv + 1, self.nv + 2]
        return self.of(np.ascontiguousarray(self.rows[:, take]))

    def of(self, rows: Lanes) -> Replay:
        """Return the instances with other rows, which are consolidated."""
        rows = kernels.consolidate(rows)
        starts = np.empty_like(self.starts)
        reduce_rows.runs(rows, 0, starts)
        return Replay(self.instances, rows, starts, self.first)


def replay(instances: Instances, sources: list[Lanes], bounds: Lanes, nv: int) -> Replay:
    """Return the rows of the instances' keys from all sources, as they are inserted and retracted along the instances."""
    nk, nt = instances.keys.shape[1], instances.times.shape[1]
    placed = nt == 1
    rows = np.empty((int(sizes(bounds).sum()), nv + nt + 2), np.int64)
    reduce_rows.collect(sources, bounds, nk, nv, nt, int(placed), instances.first, instances.times, rows)
    rows = kernels.consolidate(rows)
    if not placed:
        starts = np.empty(len(instances.first), np.int64)
        reduce_rows.runs(rows, 0, starts)
        arguments = (rows, starts, nv, nt, instances.first, instances.times)
        room = checked(reduce_rows.accumulate_at(*arguments, np.empty((0, nv + 3), np.int64), 0))
        rows = np.empty((room, nv + 3), np.int64)
        reduce_rows.accumulate_at(*arguments, rows, 1)
    first = instances.first if placed else np.arange(len(instances) + 1)
    starts = np.empty(len(first), np.int64)
    reduce_rows.runs(rows, 0, starts)
    return Replay(instances, rows, starts, first)


def presence(rows: Replay) -> Lanes:
    """Return 1 for each instance whose group holds any record with a non-zero count, else 0."""
    out = np.zeros(len(rows.instances), np.int64)
    checked(ordered_values.count_values(rows.rows, rows.starts, rows.nv, -1, 0, rows.first, out))
    return (out > 0).astype(np.int64)
