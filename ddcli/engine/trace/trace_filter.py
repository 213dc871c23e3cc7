"""A trace without the records that a predicate drops; the predicate is evaluated as the trace is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import numpy as np

    from ddcli.engine.operators.join import Readable


class FilteredTrace:
    """The rows of `source` that `keep` keeps, which reads the lanes `asked`, in their order. It is evaluated only for the keys that are looked up."""

    def __init__(self, source: Readable, keep: Callable[[np.ndarray], np.ndarray], asked: Collection[int]):
        self.source = source
        self.keep = keep
        self.asked = asked
        self.nk, self.nv, self.nt = source.nk, source.nv, source.nt

    @property
    def rows(self) -> int:
        """Return an upper bound of the number of updates."""
        return self.source.rows

    def matching(self, updates: np.ndarray, spared: Collection[int] = ()) -> list[np.ndarray]:
        """Return matrices that together hold each update whose key is in `updates`, sorted by key, exactly once; the `spared` lanes are not read."""
        keys = kernels.distinct_keys(updates, self.nk)
        found = self.source.matching(updates, [lane for lane in spared if lane not in self.asked])
        return self.kept([*map(kernels.matrix, found)], keys)

    def kept(self, matrices: list[np.ndarray], keys: np.ndarray) -> list[np.ndarray]:
        """Return the rows of the sorted, distinct `keys` that stay."""
        found = [kernels.gather(matrix, self.nk, keys) for matrix in matrices]
        return [self.keep(matrix) for matrix in found if len(matrix)]
