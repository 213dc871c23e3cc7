"""Small matrices over tiny domains, and the plain-Python meaning that kernels are judged by."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import strategies as st

from ddcli.engine.jit import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXTREME = (-(2**63), 2**63 - 1)
LANES = st.one_of(st.integers(-1, 3), st.sampled_from(EXTREME))
DIFFS = st.integers(-2, 2)


def matrix(rows: Iterable[Iterable[int]], width: int) -> np.ndarray:
    """Return rows as a matrix, of the right width where there are none."""
    return np.array([list(row) for row in rows], np.int64).reshape(-1, width)


def summed(*batches: np.ndarray) -> dict[tuple[int, ...], int]:
    """Return the non-zero sums of diffs by the other lanes."""
    totals: dict[tuple[int, ...], int] = defaultdict(int)
    for batch in batches:
        for *lanes, diff in batch.tolist():
            totals[tuple(lanes)] += diff
    return {lanes: total for lanes, total in totals.items() if total}


def canonical(*batches: np.ndarray) -> list[list[int]]:
    """Return the sorted, consolidated rows of matrices."""
    return [[*lanes, total] for lanes, total in sorted(summed(*batches).items())]


@st.composite
def matrices(draw, width: int, *, consolidated: bool = False, size: int = 30, lanes=LANES) -> np.ndarray:
    """Draw a matrix of `width` lanes, the last of them a diff."""
    rows = draw(st.lists(st.tuples(*[lanes] * (width - 1), DIFFS), max_size=size))
    drawn = matrix(rows, width)
    return matrix(canonical(drawn), width) if consolidated else drawn


@contextmanager
def interpreted() -> Iterator[None]:
    """Run kernels as plain Python inside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDCLI_KERNELS", "python")
        registry.reset()
        yield
    registry.reset()
