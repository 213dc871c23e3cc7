"""Batches: immutable, sorted, consolidated updates of an arrangement over an interval of time.

Batches of a trace are contiguous: each `lower` is the previous `upper`. A batch in memory is its matrix; a batch in a
file (the store's) has the same interface and loads only the rows of a lookup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ddcli.dataclass import dataclass
from ddcli.engine import kernels

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np

    from ddcli.engine.times import Frontier


class Batch(Protocol):
    """The interface of batches: an interval, a size and rows."""

    @property
    def lower(self) -> Frontier:
        """Return the frontier that every time in the batch is at or after."""

    @property
    def upper(self) -> Frontier:
        """Return the frontier that no time in the batch is at or after, before compaction moved it."""

    @property
    def rows(self) -> int:
        """Return the number of updates."""

    def matrix(self) -> np.ndarray:
        """Return all updates, `[key | value | time | diff]`, sorted by all lanes but the last."""

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        """Return a sorted matrix with every update of the sorted, distinct `keys`; others may be in it too.

        The `spared` lanes are not read: they may have any content that leaves the rows sorted.
        """

    def release(self) -> None:
        """Release loaded rows that can be loaded again."""


@dataclass(slots=True, eq=False)
class MemoryBatch:
    """A batch whose updates are in memory, as a matrix or `Uniform`. Immutable."""

    updates: kernels.Rows
    lower: Frontier
    upper: Frontier

    @property
    def rows(self) -> int:
        return len(self.updates)

    def matrix(self) -> np.ndarray:
        return kernels.matrix(self.updates)

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        return self.updates.of(keys).matrix() if isinstance(self.updates, kernels.Uniform) else self.updates

    def release(self) -> None:
        """Do nothing: the updates are only in memory."""
