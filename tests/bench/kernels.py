"""Time the kernels alone, in memory: `python tests/bench/kernels.py [--rows 10000000]` prints a table.

Seconds of the wall and of the processor (the least of the repetitions), one thread. The skip-level cases are those of the design:
everyone p has manager p/2, and then changes to p/3, each at a time of its own.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

TAKE = np.array([2, 0, 1])


def timed(name: str, run: Callable[[], object], repeat: int = 3) -> tuple[str, float, float]:
    """Return the name and the least wall and processor seconds of some runs."""
    walls, works = [], []
    for _ in range(repeat):
        wall, work = time.perf_counter(), time.thread_time()
        run()
        walls.append(time.perf_counter() - wall)
        works.append(time.thread_time() - work)
    return name, min(walls), min(works)


def people(n: int, *, changes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (person, manager) and (manager, person) updates of the skip-level case."""
    p = np.arange(n)
    parts = [(p, p // 2, p * 0, p * 0 + 1)]
    if changes:
        q = p[1:]
        parts += [(q, q // 2, q, q * 0 - 1), (q, q // 3, q, q * 0 + 1)]
    up = np.concatenate([np.stack(part, axis=1) for part in parts])
    return up, kernels.take(up, [1, 0, 2, 3])


def arrange_and_join(up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Arrange both sides and join them: a manager's manager, for everyone."""
    return kernels.join(kernels.consolidate(up), kernels.consolidate(down), 1, 1, TAKE)


def batches(m: np.ndarray, count: int = 10) -> list[np.ndarray]:
    """Deal rows to batches, each about twice the size of the next, as a spine has them."""
    which = np.minimum(np.random.default_rng(0).geometric(0.5, len(m)), count)
    return [np.ascontiguousarray(m[which == i + 1]) for i in range(count)]


def one_change(up: np.ndarray, down: np.ndarray, steps: int) -> tuple[str, float, float]:
    """Time steps that each change one manager, against two traces of ten batches; the median."""
    ups, downs = batches(kernels.consolidate(up)), batches(kernels.consolidate(down))
    walls = []
    for i in range(1, steps + 1):
        p = i * 7919 % len(up)
        change = np.array([[p, p // 2, 1, -1], [p, p // 3, 1, 1]])
        start = time.perf_counter()
        a = kernels.consolidate(change)
        b = kernels.consolidate(kernels.take(change, [1, 0, 2, 3]))
        both = [kernels.join(a, downs, 1, 1, TAKE), kernels.join(ups, b, 1, 1, TAKE)]
        kernels.consolidate(kernels.concat(both))
        walls.append(time.perf_counter() - start)
    median = sorted(walls)[steps // 2]
    return f"one change over {len(up):,} people, median", median, median


def sort_and_merge(rows: int) -> list[tuple[str, float, float]]:
    """Time consolidating random rows, and merging sorted ones."""
    draw = np.random.default_rng(1)
    random = draw.integers(0, rows, (rows, 4))
    random[:, 3] = 1
    runs = [random[::2].copy(), random[1::2].copy()]
    for run in runs:
        run[:, 0] = np.cumsum(draw.integers(1, 4, len(run)))
    return [
        timed(f"consolidate {rows:,} random rows of 4 lanes", lambda: kernels.consolidate(random)),
        timed(f"merge two runs of {rows // 2:,}", lambda: kernels.merge(runs)),
    ]


def measure(rows: int, steps: int) -> list[tuple[str, float, float]]:
    """Run every case."""
    table = sort_and_merge(rows)
    for changes in (False, True):
        up, down = people(rows // 2, changes=changes)
        name = f"skip-level, {rows // 2:,} people" + (", then as many changes" if changes else "")
        table.append(timed(name, lambda up=up, down=down: arrange_and_join(up, down), 1))
    table.append(one_change(*people(min(rows // 2, 1_000_000), changes=False), steps))
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time the kernels alone, in memory.")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--steps", type=int, default=5_000)
    options = parser.parse_args()
    arrange_and_join(*people(10, changes=True))  # loads, or compiles, what is timed
    for name, wall, work in measure(options.rows, options.steps):
        print(f"{name:<60} {wall:>12.6f} s wall {work:>12.6f} s processor")


if __name__ == "__main__":
    main()
