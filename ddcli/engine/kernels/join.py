"""Join sorted matrices by key: every match of a key is a row at the lattice join of the times, with the product of the diffs.

The matches of a key come out together and consolidated, so that no sort of the whole output is needed where it keeps the key.

Few new rows of both sides are joined with the rows of the other side in one call: they have few keys, and each is first sought in all batches of the
other side, so that cache misses overlap; nothing is copied before its matches are known.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import matrix_of, overflow
from ddcli.engine.kernels.gather import concat
from ddcli.engine.kernels.reduce_times import find_keys
from ddcli.engine.kernels.rows import compare, group_end, same, seek_by
from ddcli.engine.kernels.sort import fitted
from ddcli.engine.kernels.uniform import Rows, Uniform, matrix, parted, row_of
from ddcli.engine.kernels.value_pairs import COUNT, MORE, NEED, OVERFLOW, SUM_OVERFLOW, P, Q, pair_group, tail_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.jit.registry import DiffOverflow


# Words of the state from which a join continues that ran out of room, after the words of `pair_group`.
LEFT, RIGHT = 4, 5  # which batches
X, X_END, Y, Y_END = 6, 7, 8, 9  # rows of the key on both sides; no key has begun while X_END <= X
STATE: Final = 10
DONE: Final = 0
MANY: Final = 4096  # rows of the smaller side from which on room for the larger side's rows is allocated at once
SPARSE: Final = 8  # a side with this many times its partner's rows is searched in large steps


class ManyPairs(Exception):
    """A join has more rows than it may return at once: `rows`, where they were counted."""

    def __init__(self, rows: int = 0) -> None:
        super().__init__(rows)
        self.rows = rows


@kernel("LMLMiiiViMV")
def join_some(
    lefts: list[np.ndarray],
    tails_a: np.ndarray,
    rights: list[np.ndarray],
    tails_b: np.ndarray,
    nk: int,
    nta: int,
    ntb: int,
    take: np.ndarray,
    repeating: int,
    out: np.ndarray,
    state: np.ndarray,
) -> int:
    """Continue to join every left batch with every right one; return DONE, or MORE where there is no room left. Tails are as `parted` returns them.

    Returns OVERFLOW where the diffs of the rows at P and Q can't be multiplied, and SUM_OVERFLOW where the two rows of the result at COUNT can't be added.
    """
    o = 0
    x = state[X]
    x_end = state[X_END]
    y = state[Y]
    y_end = state[Y_END]
    p = state[P]
    q = state[Q]
    left = state[LEFT]
    right = state[RIGHT]
    result = DONE
    while left < len(lefts) and result == DONE:
        a = matrix_of(lefts, left)
        b = matrix_of(rights, right)
        na = a.shape[0]
        nb = b.shape[0]
        sa = tail_of(tails_a, left)
        sb = tail_of(tails_b, right)
        step_a = na // (SPARSE * nb + 1) + 1
        step_b = nb // (SPARSE * na + 1) + 1
        while result == DONE:
            if x_end <= x:
                order = 1
                while x < na and y < nb:
                    order = compare(a, x, b, y, nk)
                    if order < 0:
                        x = seek_by(a, x, na, b, y, nk, 0, step_a)
                    elif order > 0:
                        y = seek_by(b, y, nb, a, x, nk, 0, step_b)
                    else:
                        break
                if x >= na or y >= nb:
                    break
                x_end = group_end(a, x, na, nk)
                y_end = group_end(b, y, nb, nk)
                p = x
                q = y
            end = pair_group(
                a, p, x_end, tails_a, sa, b, q, y, y_end, tails_b, sb, nk, nta, ntb, take, out, o, repeating, state
            )
            if end < 0:
                result = end
            else:
                o = end
                x = x_end
                y = y_end
        if result == DONE:
            x = 0
            x_end = 0
            y = 0
            y_end = 0
            right += 1
            if right == len(rights):
                right = 0
                left += 1
    state[X] = x
    state[X_END] = x_end
    state[Y] = y
    state[Y_END] = y_end
    state[LEFT] = left
    state[RIGHT] = right
    if result == DONE:
        state[COUNT] = o
    return result


def join(
    a: Rows | Sequence[Rows],
    b: Rows | Sequence[Rows],
    nk: int,
    nt: int | tuple[int, int],
    take: np.ndarray,
    most: int | None = None,
) -> np.ndarray:
    """Join matrices, or the batches of traces, sorted by all lanes and each consolidated, by their first `nk` lanes; they may be `Uniform`.

    `a` and `b` are [key | values | times | diff], each with values of its own. Both have `nt` time lanes, or `a` has nt[0] and `b` nt[1]:
    the side with fewer entered a loop from outside. It exists from round 0 on, so the coordinates that it
    lacks are the other side's. A row of the result is the lanes `take` (numbers of lanes of
    [key | values of a | values of b]), the times' lattice join, and the product of the diffs. Where `take` keeps every key
    lane, the rows of each pair of batches are consolidated by key, though not sorted (more than 4096 rows of a key may
    hold equal ones where value lanes are left out). Raises DiffOverflow, and ManyPairs for more than `most` rows, before it has made twice as many.

    >>> join(np.array([[1, 7, 0, 1]]), np.array([[1, 8, 3, 2]]), 1, 1, np.array([2, 1])).tolist()
    [[8, 7, 3, 2]]
    >>> join(np.array([[1, 7, 4, 1]]), np.array([[1, 8, 3, 5, 2]]), 1, (1, 2), np.array([2, 1])).tolist()
    [[8, 7, 4, 5, 2]]
    """
    chunks: list[np.ndarray] = []
    rows = 0
    for chunk in join_chunks(a, b, nk, nt, take, most):
        rows += len(chunk)
        if most is not None and rows > most:
            raise ManyPairs
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def join_chunks(
    a: Rows | Sequence[Rows],
    b: Rows | Sequence[Rows],
    nk: int,
    nt: int | tuple[int, int],
    take: np.ndarray,
    most: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield the result of `join` in chunks, at least one; later ones are larger, up to `most` rows, or the rows of one pair of values."""
    lefts = [a] if isinstance(a, np.ndarray | Uniform) else list(a)
    rights = [b] if isinstance(b, np.ndarray | Uniform) else list(b)
    nta, ntb = (nt, nt) if isinstance(nt, int) else nt
    width = take.size + max(nta, ntb) + 1
    few, many = sorted((sum(map(len, lefts)), sum(map(len, rights))))
    if few == 0:
        yield np.empty((0, width), np.int64)
        return
    repeating = repeats(lefts[0].shape[1] - nta + rights[0].shape[1] - ntb - 2 - nk, nk, take.tobytes())
    # Memory is used only as it is written to: ample room costs little, and spares concatenating chunks. Allocating very much
    # at each small step would cost more.
    room = 64 + 2 * few + (min(many, SPARSE * few) if many < SPARSE * few or few > MANY else 0)
    room = room if most is None else min(room, most)
    state = np.zeros(STATE, np.int64)
    sides = (*parted(lefts), *parted(rights))
    code = MORE
    while code == MORE:
        out = np.empty((room, width), np.int64)
        code = join_some(*sides, nk, nta, ntb, take, repeating, out, state)
        if code == SUM_OVERFLOW:
            raise sum_overflow(out, state)
        if code == OVERFLOW:
            left, right, p, q = (int(state[word]) for word in (LEFT, RIGHT, P, Q))
            raise overflow("x", row_of(lefts[left], p), row_of(rights[right], q))
        yield fitted(out, int(state[COUNT]))
        room = max(4 * room if most is None else min(4 * room, most), int(state[NEED]))


def sum_overflow(out: np.ndarray, state: np.ndarray) -> DiffOverflow:
    """Return the error for the two rows that a call which ended with SUM_OVERFLOW could not add."""
    at = int(state[COUNT])
    return overflow("+", out[at], out[at + 1])


@cache
def repeats(data: int, nk: int, take: bytes) -> int:
    """Return 1 where `take` keeps all key lanes but not all value lanes, so that rows of one key may become equal; else 0."""
    taken = set(np.frombuffer(take, np.int64).tolist())
    if taken and not (min(taken) >= 0 and max(taken) < data):
        raise ValueError(f"lanes {sorted(taken)} of {data}")
    return int(len(taken) < data and taken.issuperset(range(nk)))


FEW: Final = 64  # rows up to which each key is sought by itself


@kernel("MLMMLMiiiViMMMV")
def pair_few(
    left: np.ndarray,
    rights: list[np.ndarray],
    tails_b: np.ndarray,
    right: np.ndarray,
    lefts: list[np.ndarray],
    tails_a: np.ndarray,
    nk: int,
    nta: int,
    ntb: int,
    take: np.ndarray,
    repeating: int,
    keys: np.ndarray,
    bounds: np.ndarray,
    out: np.ndarray,
    state: np.ndarray,
) -> int:
    """Join `left` with each of `rights`, and each of `lefts` with `right`; return DONE, or as `pair_group` does.

    Few rows, so each key is sought in all of a side's batches before its rows are paired. Tails are as `parted` returns them,
    `keys` and `bounds` are scratch.
    """
    o = 0
    for side in range(2):
        few = left if side == 0 else right
        many = rights if side == 0 else lefts
        count = 0
        for i in range(few.shape[0]):
            if count == 0 or not same(keys, count - 1, few, i, nk):
                for c in range(nk):
                    keys[count, c] = few[i, c]
                count += 1
        if count == 0 or len(many) == 0:
            continue
        find_keys(keys, count, many, nk, bounds)
        start = 0
        for g in range(count):
            end = group_end(few, start, few.shape[0], nk)
            for s in range(len(many)):
                if bounds[g, 2 * s] == bounds[g, 2 * s + 1]:
                    continue
                m = matrix_of(many, s)
                a = few if side == 0 else m
                b = m if side == 0 else few
                sa = -1 if side == 0 else tail_of(tails_a, s)
                sb = tail_of(tails_b, s) if side == 0 else -1
                p = start if side == 0 else bounds[g, 2 * s]
                x_end = end if side == 0 else bounds[g, 2 * s + 1]
                y = bounds[g, 2 * s] if side == 0 else start
                y_end = bounds[g, 2 * s + 1] if side == 0 else end
                o = pair_group(
                    a, p, x_end, tails_a, sa, b, y, y, y_end, tails_b, sb, nk, nta, ntb, take, out, o, repeating, state
                )
                if o < 0:
                    state[LEFT] = side
                    state[RIGHT] = s
                    return o
            start = end
    state[COUNT] = o
    return DONE


class JoinOfFew:
    """A join by `nk` key lanes that is called many times; `nt` and `take` are as in `join`. Its scratch is allocated once, so only one thread at a time may call it.

    >>> one, other, none = np.array([[1, 7, 0, 1]]), np.array([[1, 8, 3, 2]]), np.empty((0, 4), np.int64)
    >>> JoinOfFew(1, (1, 1), np.array([2, 1])).join(one, [other], none, []).tolist()
    [[8, 7, 3, 2]]
    """

    __slots__ = ("_bounds", "_keys", "_repeating", "_state", "nk", "nt", "take", "width")

    def __init__(self, nk: int, nt: tuple[int, int], take: np.ndarray) -> None:
        """Prepare to join."""
        self.nk = nk
        self.nt = nt
        self.take = take
        self.width = take.size + max(nt) + 1
        self._keys = self._bounds = np.empty((0, 0), np.int64)
        self._state = np.zeros(STATE, np.int64)
        self._repeating = -1

    def join(
        self, left: Rows, rights: Sequence[Rows], right: Rows, lefts: Sequence[Rows], most: int | None = None
    ) -> np.ndarray:
        """Return the rows of `join` for `left` and `rights`, and for `lefts` and `right`, in one call if these are few; raise ManyPairs as it does."""
        nk, nt, take, state = self.nk, self.nt, self.take, self._state
        few, batches = max(len(left), len(right)), 2 * max(len(rights), len(lefts))
        if few > FEW:
            parts = [join(left, rights, nk, nt, take, most)] if len(left) and rights else []
            parts += [join(lefts, right, nk, nt, take, most)] if len(right) and lefts else []
            return concat(parts) if parts else np.empty((0, self.width), np.int64)
        if few > self._bounds.shape[0] or batches > self._bounds.shape[1]:
            self._repeating = repeats(left.shape[1] - nt[0] + right.shape[1] - nt[1] - 2 - nk, nk, take.tobytes())
            self._keys, self._bounds = np.empty((FEW, nk), np.int64), np.empty((FEW, 2 * batches), np.int64)
        room, left, right = FEW, matrix(left), matrix(right)
        sides = (left, *parted(rights), right, *parted(lefts))
        while True:
            out = np.empty((room, self.width), np.int64)
            code = pair_few(*sides, nk, *nt, take, self._repeating, self._keys, self._bounds, out, state)
            if code == DONE:
                return out[: state[COUNT]]
            if code == SUM_OVERFLOW:
                raise sum_overflow(out, state)
            if code == OVERFLOW:
                side, at, p, q = (int(state[word]) for word in (LEFT, RIGHT, P, Q))
                raise overflow("x", row_of(lefts[at] if side else left, p), row_of(right if side else rights[at], q))
            if most is not None and room >= most:
                raise ManyPairs
            room = max(4 * room if most is None else min(4 * room, most), int(state[NEED]))
