"""A trace read near some places of its keys: for large batches in files only the rows there.

A *place* is a row's first lanes, the key and some more. Ranges of places, one for each key, are inclusive at both ends; the least and the greatest integers in
the lanes behind the key span the whole key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.trace.spine import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ddcli.engine.columns import Lanes


LEAST, MOST = -(2**63), 2**63 - 1


@runtime_checkable
class RangedBatch(Protocol):
    """A batch from which a part of a key can be read: one of the store, which the engine doesn't import."""

    def limits(self, first: Lanes, last: Lanes, nk: int) -> tuple[Lanes, Lanes] | None:
        """Return wider ranges of places that are cheap to read; None where the whole batch is in memory."""

    def in_ranges(self, first: Lanes, last: Lanes, nk: int) -> Lanes:
        """Return a sorted matrix with every update in some ranges of places, of ascending keys; others may be in it too."""


class Nearby(NamedTuple):
    """Matrices that together hold each update from `low` to `high` exactly once: a row for each key, ascending; other updates may be in them too."""

    matrices: list[Lanes]
    low: Lanes
    high: Lanes

    def bounds(self, sources: Sequence[Lanes]) -> Lanes:
        """Return the bounds of these rows in the matrices, or in further sources, as `kernels.locate` does."""
        found, _ = kernels.locate(self.low, sources)
        found[:, 1::2] = kernels.locate(self.high, sources)[0][:, 1::2]
        return found

    def edges(self, nk: int) -> Lanes:
        """Return for each key 1 if it may have rows before these, 2 behind them, 3 for both."""
        found: Lanes = (self.low[:, nk:] != LEAST).any(axis=1) + 2 * (self.high[:, nk:] != MOST).any(axis=1)
        return found


def nearby(trace: object, first: Lanes, last: Lanes, nk: int) -> Nearby | None:
    """Return the rows near ranges of places, one for each key; None if a read of whole keys costs no more."""
    if not isinstance(trace, Trace):
        return None
    ranged = [batch for batch in trace.batches if isinstance(batch, RangedBatch)]
    limits = [found for batch in ranged if (found := batch.limits(first, last, nk)) is not None]
    if not limits:
        return None
    low, high = limits[0]
    for lower, upper in limits[1:]:
        low = np.where(_before(low, lower)[:, None], lower, low)
        high = np.where(_before(upper, high)[:, None], upper, high)
    return within(trace, np.ascontiguousarray(low), np.ascontiguousarray(high), nk)


def within(trace: object, low: Lanes, high: Lanes, nk: int) -> Nearby:
    """Return the rows in ranges of places, of a trace for which `nearby` returned rows."""
    assert isinstance(trace, Trace)
    keys = np.ascontiguousarray(low[:, :nk])
    matrices = [
        batch.in_ranges(low, high, nk) if isinstance(batch, RangedBatch) else batch.for_keys(keys)
        for batch in trace.batches
    ]
    return Nearby([*matrices, *trace.runs], low, high)


def _before(one: Lanes, other: Lanes) -> NDArray[np.bool_]:
    """Return for each pair of rows whether the one of the first matrix is before that of the second."""
    less, same = np.zeros(len(one), np.bool_), np.ones(len(one), np.bool_)
    for lane in range(one.shape[1]):
        less |= same & (one[:, lane] < other[:, lane])
        same &= one[:, lane] == other[:, lane]
    return less
