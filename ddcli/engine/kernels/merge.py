"""Merge sorted, consolidated matrices into one; take one matrix from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import DiffOverflow, overflow
from ddcli.engine.kernels.rows import compare, copy_row, copy_rows, gallop, sum_overflows
from ddcli.engine.kernels.sort import consolidate, fitted

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAK: Final = 16  # rows won in a row by one side, after which its run's end is sought and copied at once
FEW: Final = 256  # rows that are sorted at once: that costs less than preparing two-way merges
OVERFLOW: Final = -1
# Words of the state of a merge: next rows of both sides and of the output.
NEXT_A, NEXT_B, NEXT_OUT = 0, 1, 2


@kernel("MMMVi")
def merge_some(a: np.ndarray, b: np.ndarray, out: np.ndarray, state: np.ndarray, rows: int) -> int:
    """Continue a merge until about `rows` more rows are read; return 1 when done, 0 when not, or OVERFLOW where the two next rows can't be added."""
    x = state[NEXT_A]
    y = state[NEXT_B]
    o = state[NEXT_OUT]
    na = a.shape[0]
    nb = b.shape[0]
    d = a.shape[1] - 1
    stop = x + y + rows
    result = 0
    streak = 0
    while x < na and y < nb and x + y < stop:
        order = compare(a, x, b, y, d)
        if order < 0:
            copy_row(a, x, out, o)
            x += 1
            o += 1
            streak = streak + 1 if streak >= 0 else 1
            if streak == STREAK:
                end = gallop(a, x, min(na, x + stop - x - y), b, y, d, 0)
                copy_rows(a, x, end, out, o)
                o += end - x
                x = end
                streak = 0
        elif order > 0:
            copy_row(b, y, out, o)
            y += 1
            o += 1
            streak = streak - 1 if streak <= 0 else -1
            if streak == -STREAK:
                end = gallop(b, y, min(nb, y + stop - x - y), a, x, d, 0)
                copy_rows(b, y, end, out, o)
                o += end - y
                y = end
                streak = 0
        else:
            total = a[x, d] + b[y, d]
            if sum_overflows(a[x, d], b[y, d]):
                result = OVERFLOW
                break
            if total != 0:
                copy_row(a, x, out, o)
                out[o, d] = total
                o += 1
            x += 1
            y += 1
            streak = 0
    if result == 0 and (x == na or y == nb):
        # One side is used up: the rest of the other is copied, as far as the fuel lasts.
        end = min(na, x + max(stop - x - y, 0))
        copy_rows(a, x, end, out, o)
        o += end - x
        x = end
        end = min(nb, y + max(stop - x - y, 0))
        copy_rows(b, y, end, out, o)
        o += end - y
        y = end
        if x == na and y == nb:
            result = 1
    state[NEXT_A] = x
    state[NEXT_B] = y
    state[NEXT_OUT] = o
    return result


class Merge:
    """A two-way merge that is paid for in portions: call `work` until it returns True, then read `result`.

    Holds both inputs and an output of their summed size until then; memory of the output is used only as it fills.
    """

    __slots__ = ("_out", "_state", "a", "b", "done")

    def __init__(self, a: np.ndarray, b: np.ndarray) -> None:
        """Begin to merge two sorted, consolidated matrices of one width."""
        if a.shape[1] != b.shape[1]:
            msg = f"matrices of widths {a.shape[1]} and {b.shape[1]} can't be merged"
            raise ValueError(msg)
        self.a = a
        self.b = b
        self._out = np.empty((a.shape[0] + b.shape[0], a.shape[1]), np.int64)
        self._state = np.zeros(3, np.int64)
        self.done = False

    def work(self, rows: int) -> bool:
        """Read about `rows` more rows; return whether the merge is done. Raises DiffOverflow."""
        code = merge_some(self.a, self.b, self._out, self._state, rows)
        if code < 0:
            raise overflow("+", self.a[self._state[NEXT_A]], self.b[self._state[NEXT_B]])
        self.done = code == 1
        return self.done

    @property
    def result(self) -> np.ndarray:
        """The merged matrix, sorted and consolidated."""
        if not self.done:
            msg = "the merge is not done"
            raise RuntimeError(msg)
        return fitted(self._out, int(self._state[NEXT_OUT]))


def merge(batches: Sequence[np.ndarray]) -> np.ndarray:
    """Merge sorted, consolidated matrices of one width into one, the two smallest first.

    Returns an input itself where only one has rows. Raises DiffOverflow.

    >>> merge([np.array([[1, 1], [3, 1]]), np.array([[1, -1], [2, 1]])]).tolist()
    [[2, 1], [3, 1]]
    """
    if not batches:
        msg = "nothing to merge: not even a width is known"
        raise ValueError(msg)
    return merge_out_of([*batches])


def merge_out_of(batches: list[np.ndarray]) -> np.ndarray:
    """Merge batches as `merge` does, and remove each from the list: one without other references is released as soon as it is merged.

    >>> merge_out_of(batches := [np.array([[1, 1], [3, 1]]), np.array([[1, -1], [2, 1]])]).tolist(), batches
    ([[2, 1], [3, 1]], [])
    """
    none = batches[0]
    waiting = [batch for batch in batches if batch.shape[0]]
    batches.clear()
    if len(waiting) < 2:
        return waiting[0] if waiting else none
    if sum(map(len, waiting)) <= FEW:
        return consolidate(np.concatenate(waiting))
    waiting.sort(key=len, reverse=True)
    del none
    while len(waiting) > 1:
        small = waiting.pop()
        pair = Merge(waiting.pop(), small)
        del small
        pair.work(1 << 62)
        waiting.append(pair.result)
        del pair
        waiting.sort(key=len, reverse=True)
    return waiting[0]


def difference(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Return the consolidated updates that make `new` of `old`, in any order each. Raises DiffOverflow.

    >>> difference(np.array([[1, 2], [7, 1]]), np.array([[7, 1], [1, 1], [5, 1]])).tolist()
    [[1, 1], [5, -1]]
    """
    return consolidate(np.concatenate([new, negated(old)]))


def negated(updates: np.ndarray) -> np.ndarray:
    """Return updates with opposite diffs. Raises DiffOverflow.

    >>> negated(np.array([[7, 2], [8, -1]])).tolist()
    [[7, -2], [8, 1]]
    """
    found = updates.copy()
    negate(found)
    return found


def negate(updates: np.ndarray) -> None:
    """Negate the diffs in place, refusing to wrap around. Raises DiffOverflow."""
    diffs = updates[:, -1]
    if diffs.min(initial=0) == np.iinfo(np.int64).min:
        raise DiffOverflow("a diff left 64 bits when it was negated")
    # Not np.negative: numpy 2.4.6 reads wrong rows of a lane that is strided by 64 bytes.
    np.multiply(diffs, -1, out=diffs)
