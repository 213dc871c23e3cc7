"""Join the few new rows of both sides with the rows of the other side, in one call.

Few rows have few keys. Each is first sought in all batches of the other side, so that cache misses overlap; nothing is copied
before its matches are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ddcli.engine.jit.errors import overflow
from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import matrix_of
from ddcli.engine.kernels.gather import concat
from ddcli.engine.kernels.join import DONE, LEFT, RIGHT, STATE, ManyPairs, join, settled_overflow, settles
from ddcli.engine.kernels.reduce_times import find_keys
from ddcli.engine.kernels.rows import group_end, same
from ddcli.engine.kernels.uniform import matrix, parted, row_of
from ddcli.engine.kernels.value_pairs import COUNT, NEED, OVERFLOW, SUM_OVERFLOW, P, Q, pair_group, tail_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.kernels.uniform import Rows

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
    settling: int,
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
                    a, p, x_end, tails_a, sa, b, y, y, y_end, tails_b, sb, nk, nta, ntb, take, out, o, settling, state
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

    __slots__ = ("_bounds", "_keys", "_settling", "_state", "nk", "nt", "take", "width")

    def __init__(self, nk: int, nt: tuple[int, int], take: np.ndarray) -> None:
        """Prepare to join."""
        self.nk = nk
        self.nt = nt
        self.take = take
        self.width = take.size + max(nt) + 1
        self._keys = self._bounds = np.empty((0, 0), np.int64)
        self._state = np.zeros(STATE, np.int64)
        self._settling = -1

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
            self._settling = settles(left.shape[1] - nt[0] + right.shape[1] - nt[1] - 2 - nk, nk, take.tobytes())
            self._keys, self._bounds = np.empty((FEW, nk), np.int64), np.empty((FEW, 2 * batches), np.int64)
        room, left, right = FEW, matrix(left), matrix(right)
        sides = (left, *parted(rights), right, *parted(lefts))
        while True:
            out = np.empty((room, self.width), np.int64)
            code = pair_few(*sides, nk, *nt, take, self._settling, self._keys, self._bounds, out, state)
            if code == DONE:
                return out[: state[COUNT]]
            if code == SUM_OVERFLOW:
                raise settled_overflow(out, state)
            if code == OVERFLOW:
                side, at, p, q = (int(state[word]) for word in (LEFT, RIGHT, P, Q))
                raise overflow("x", row_of(lefts[at] if side else left, p), row_of(right if side else rights[at], q))
            if most is not None and room >= most:
                raise ManyPairs
            room = max(4 * room if most is None else min(4 * room, most), int(state[NEED]))
