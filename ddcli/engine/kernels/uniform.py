"""Updates that share one time and diff, as a first load's updates do: their common tail is kept once.

Only joins (see `join`), and the traces that keep the rows for them, know this form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.kernels.gather import gather, gather_bounds, take
from ddcli.engine.kernels.rows import same
from ddcli.engine.kernels.sort import consolidate, sort_by

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST: Final = 1 << 14
"""Rows from which on a tail is kept once: fewer are read in whole rows."""
REPEATED: Final = 8
"""At most one of so many rows is equal to another: of more it would be a waste to keep them."""
NO_TAILS: Final = np.empty((0, 0), np.int64)


@kernel("MiV")
def all_hold(m: np.ndarray, at: int, values: np.ndarray) -> int:
    """Return whether every row has these values from lane `at` on."""
    for i in range(m.shape[0]):
        for c in range(values.size):
            if m[i, at + c] != values[c]:
                return 0
    return 1


@kernel("M")
def count_different(m: np.ndarray) -> int:
    """Return the number of different rows, where equal ones are adjacent."""
    count = min(m.shape[0], 1)
    for i in range(1, m.shape[0]):
        count += not same(m, i - 1, m, i, m.shape[1])
    return int(count)


def rounds_equal(m: np.ndarray, at: int, rounds: tuple[int, ...]) -> bool:
    """Return whether every row has the values `rounds` in the lanes from `at` on; stops at the first that has not.

    >>> rounds_equal(np.array([[7, 3, 1], [8, 3, 1]]), 1, (3,))
    True
    """
    if not 0 <= at <= at + len(rounds) <= m.shape[1]:
        raise ValueError(f"lanes {at} to {at + len(rounds)} of a matrix of {m.shape[1]}")
    return all_hold(m, at, np.array(rounds, np.int64)) == 1


class Uniform:
    """Updates of one time and one positive diff: `data`, (rows, lanes), sorted, and once the `tail` of each row, its times and diff.

    A record with a larger multiplicity is repeated accordingly, which must be rare. The length and the shape are the
    consolidated matrix's; it has no other attribute of a matrix: code that takes it for one fails, and reads no wrong lanes.
    """

    __slots__ = ("_rows", "data", "tail", "tails")

    def __init__(self, data: np.ndarray, tail: np.ndarray) -> None:
        """Keep sorted rows by their parts."""
        self.data = data
        self.tail = tail
        self.tails = np.array([[*tail.tolist(), 1]], np.int64)
        """The tail as `parted` returns it."""
        self._rows = int(count_different(data))

    def __len__(self) -> int:
        return self._rows

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of the matrix of whole rows."""
        return self._rows, self.data.shape[1] + self.tail.size

    def of(self, keys: np.ndarray) -> Uniform:
        """Return the rows of sorted, distinct keys."""
        return Uniform(gather(self.data, keys.shape[1], keys), self.tail)

    def between(self, start: int, end: int) -> Uniform:
        """Return the rows `data[start:end]`."""
        return Uniform(self.data[start:end], self.tail)

    def matrix(self) -> np.ndarray:
        """Return whole rows, consolidated, which others may write over."""
        rows, lanes = self.data.shape
        out = np.empty((rows, lanes + self.tail.size), np.int64)
        out[:, :lanes] = self.data
        out[:, lanes:] = self.tail
        return out if self._rows == rows else consolidate(out)


Rows = np.ndarray | Uniform
"""Consolidated updates, sorted: a matrix, or its shorter form."""


def matrix(rows: Rows) -> np.ndarray:
    """Return whole rows: a matrix itself, or a copy of rows that are kept by their parts.

    >>> matrix(Uniform(np.array([[7], [8]]), np.array([3, 1]))).tolist()
    [[7, 3, 1], [8, 3, 1]]
    """
    return rows.matrix() if isinstance(rows, Uniform) else rows


def leading(rows: Rows) -> np.ndarray:
    """Return a matrix of the data lanes at least, without a copy: enough to look for keys."""
    return rows.data if isinstance(rows, Uniform) else rows


def rows_within(rows: Rows, bounds: np.ndarray) -> Rows:
    """Return the rows bounds[g, 0] to bounds[g, 1] of each g, one after the other: sorted if these ascend."""
    found = gather_bounds([leading(rows)], bounds)
    return Uniform(found, rows.tail) if isinstance(rows, Uniform) else found


def common_tail(m: np.ndarray, nt: int) -> np.ndarray | None:
    """Return the `nt` times and the diff that all rows have; None where they differ, the diff is not positive, or the rows are too few.

    >>> from unittest.mock import patch
    >>> with patch(f"{__name__}.LEAST", 2):
    ...     print(common_tail(np.array([[7, 3, 1], [8, 3, 1]]), 1), common_tail(np.array([[7, 3, 1], [8, 4, 1]]), 1))
    [3 1] None
    """
    if len(m) < LEAST:
        return None
    at = m.shape[1] - nt - 1
    tail: np.ndarray = m[0, at:].copy()
    return tail if tail[-1] > 0 and rounds_equal(m, at, tuple(tail.tolist())) else None


def consolidated_parts(data: np.ndarray, tail: np.ndarray) -> Rows:
    """Return the updates with these data, in any order, and this tail each; `data` has no other reader. If many are equal, they are a matrix.

    >>> consolidated_parts(np.array([[8], [7], [8]]), np.array([3, 1])).tolist()
    [[7, 3, 1], [8, 3, 2]]
    """
    parts = Uniform(sort_by(data, range(data.shape[1]), owned=True), tail)
    return parts if len(data) - len(parts) <= len(data) // REPEATED else parts.matrix()


def shared(m: np.ndarray, nt: int) -> Rows:
    """Return consolidated rows by their parts where they share times and diff, else as they are."""
    tail = common_tail(m, nt)
    return m if tail is None else Uniform(take(m, range(m.shape[1] - nt - 1)), tail)


def parted(rows: Sequence[Rows]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the matrices of rows, without tails where they share one, and for kernels a row for each: the tail that it shares and 1, or zeros.

    The last rows may be missing, where all are zeros.

    >>> parted([np.array([[1, 0, 1]]), Uniform(np.array([[7], [8]]), np.array([3, 1]))])[1].tolist()
    [[0, 0, 0], [3, 1, 1]]
    """
    found = [*rows]
    count = [*map(type, found)].count(Uniform)
    if not count:
        return found, NO_TAILS  # type: ignore[return-value]
    if count == 1 and isinstance(oldest := found[0], Uniform):  # mostly it is that one
        found[0] = oldest.data
        return found, oldest.tails  # type: ignore[return-value]
    uniform = {at: each for at, each in enumerate(rows) if isinstance(each, Uniform)}
    tails = np.zeros((len(found), max(each.tails.size for each in uniform.values())), np.int64)
    for at, each in uniform.items():
        found[at], tails[at] = each.data, each.tails
    return found, tails  # type: ignore[return-value]


def row_of(rows: Rows, at: int) -> np.ndarray:
    """Return one whole row."""
    return np.concatenate([rows.data[at], rows.tail]) if isinstance(rows, Uniform) else rows[at]
