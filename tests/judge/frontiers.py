"""What a run closes, in plain functions: a frontier is a tuple of times, none before another; what is not at or after one is closed.

They are the judge's own, so that a mistake in the engine's can't hide itself.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from tests.reference.model import Time, lattice_join, less_equal

if TYPE_CHECKING:
    from collections.abc import Iterable

Frontier = tuple[Time, ...]
BEGINNING = -(2**63)


def minimal(times: Iterable[Time]) -> Frontier:
    """Return the times that no other one is before, in lexicographic order."""
    kept = set(times)
    return tuple(sorted(t for t in kept if not any(other != t and less_equal(other, t) for other in kept)))


def box(corner: Time) -> Frontier:
    """Return the frontier that closes the times before the corner in every coordinate.

    >>> box((3, 5)) == ((BEGINNING, 5), (3, BEGINNING))
    True
    """
    sides = len(corner)
    return minimal(tuple(x if i == j else BEGINNING for j in range(sides)) for i, x in enumerate(corner))


def is_closed(frontier: Frontier, time: Time) -> bool:
    """Return whether nothing may appear any more at a time."""
    return not any(less_equal(element, time) for element in frontier)


def both(one: Frontier, other: Frontier) -> Frontier:
    """Return the frontier that closes what either does."""
    return minimal(lattice_join(*pair) for pair in product(one, other))


def either(frontiers: Iterable[Frontier]) -> Frontier:
    """Return the frontier that closes what all do."""
    return minimal(element for frontier in frontiers for element in frontier)


def grid(times: Iterable[Time]) -> list[Time]:
    """Return all times of the coordinates of some: whatever lattice joins they have are among these."""
    coordinates = [sorted(set(values)) for values in zip(*times, strict=True)]
    return list(product(*coordinates)) if coordinates else []


def closing(done: Iterable[Time], times: Iterable[Time]) -> Frontier:
    """Return the frontier that of some times closes those that are done and what is before one of them."""
    sides = [range(min(values), max(values) + 2) for values in zip(*times, strict=True)]
    return minimal(time for time in product(*sides) if not any(less_equal(time, other) for other in done))
