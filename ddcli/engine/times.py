"""Times and frontiers: the lattice that updates live in.

A time is a tuple of integers, ordered component by component: (0, 1) and (1, 0) are not comparable. `join` is the
least time after both, `meet` the greatest before both. A frontier is an antichain of times, and promises that no update will
appear any more at a time that is not at or after one of them. The empty frontier is after everything: closed.

Frontiers form a lattice as well, by the times that they still allow: `join` allows those that both do, `meet` those that either does.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Time = tuple[int, ...]
LEAST = -(2**63)
BEYOND = 2**63
"""One more than the largest coordinate: the side of a box that has no end."""
CLOSED = "closed"


def less_equal(one: Time, other: Time) -> bool:
    """Return whether a time is at or before another.

    >>> less_equal((0, 1), (1, 0))
    False
    """
    if len(one) == 1 == len(other):  # as nearly all are
        return one[0] <= other[0]
    return all(x <= y for x, y in zip(one, other, strict=True))


def less_than(one: Time, other: Time) -> bool:
    """Return whether a time is before another."""
    return one != other and less_equal(one, other)


def join(one: Time, other: Time) -> Time:
    """Return the least time that is at or after both.

    >>> join((0, 1), (1, 0))
    (1, 1)
    """
    return tuple(max(x, y) for x, y in zip(one, other, strict=True))


def meet(one: Time, other: Time) -> Time:
    """Return the greatest time that is at or before both.

    >>> meet((0, 1), (1, 0))
    (0, 0)
    """
    return tuple(min(x, y) for x, y in zip(one, other, strict=True))


def box(corner: Time) -> Frontier:
    """Return the frontier that closes the times before `corner` in every coordinate, and no others.

    Times beside the box stay open, however early their other coordinates are. So no time can be advanced to a box: updates
    at (0, 0) and at (1, 0) are still distinct at (0, 7).

    >>> box((3, 4)) == Frontier([(3, LEAST), (LEAST, 4)])
    True
    """
    elements = ((LEAST,) * at + (value,) + (LEAST,) * (len(corner) - at - 1) for at, value in enumerate(corner))
    return Frontier(elements)


def up_to(time: Time) -> Frontier:
    """Return the frontier that closes a time and all before it; times after it in some coordinate stay open.

    >>> up_to((3, 4)) == box((4, 5))
    True
    """
    return box(tuple(value + 1 for value in time))


@dataclass(frozen=True, slots=True, init=False)
class Frontier:
    """An antichain of times, in lexicographic order, so that equal frontiers are equal objects. False when closed."""

    elements: tuple[Time, ...]

    def __init__(self, times: Iterable[Time] = ()):
        """Keep the minimal ones of `times`: those that no other is before."""
        times = tuple(times)
        if len(times) < 2:  # as nearly all are
            object.__setattr__(self, "elements", times)
            return
        kept: list[Time] = []
        # In lexicographic order every time comes after those that are before it.
        for time in sorted(set(times)):
            if not any(less_equal(element, time) for element in kept):
                kept.append(time)
        object.__setattr__(self, "elements", tuple(kept))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Frontier) and self.elements == other.elements)

    def __hash__(self) -> int:
        return hash(self.elements)

    def __iter__(self) -> Iterator[Time]:
        return iter(self.elements)

    def __len__(self) -> int:
        return len(self.elements)

    def less_equal(self, time: Time) -> bool:
        """Return whether an update may still appear at `time`."""
        if len(self.elements) == 1:
            return less_equal(self.elements[0], time)
        return any(less_equal(element, time) for element in self.elements)

    def less_than(self, time: Time) -> bool:
        """Return whether `time` is after one of the elements: then it can't be one of them."""
        return any(less_than(element, time) for element in self.elements)

    def dominates(self, other: Frontier) -> bool:
        """Return whether this frontier is at or before another: all that the other allows, this one does."""
        if len(other.elements) == 1:
            return self.less_equal(other.elements[0])
        return all(self.less_equal(time) for time in other.elements)

    def join(self, other: Frontier) -> Frontier:
        """Return the least frontier at or after both: it allows the times that both do."""
        return Frontier(join(one, two) for one in self.elements for two in other.elements)

    def meet(self, other: Frontier) -> Frontier:
        """Return the greatest frontier at or before both: it allows the times that either does."""
        return Frontier((*self.elements, *other.elements))

    def as_time(self) -> Time:
        """Return the greatest time at or before all elements: the one to advance to; a single element is that itself.

        A time's join with it stands for the time to every reader at or after the frontier: that is the meet over f of (time join f), as
        join distributes over meet (McSherry et al., "Shared Arrangements", VLDB 2020).
        """
        assert self.elements, "a closed frontier is no time"
        return self.elements[0] if len(self.elements) == 1 else reduce(meet, self.elements)

    def corners(self) -> tuple[Time, ...]:
        """Return the largest boxes of closed times, for people, each by its corner, which is not part of it.

        A time is closed when it is before some corner in every coordinate; a side without an end is at `BEYOND`. None where
        no time is closed.

        >>> Frontier([(LEAST, 4), (3, 2), (5, LEAST)]).corners()
        ((3, 4), (5, 2))
        """
        assert self.elements, "a closed frontier has no corners"
        found = {(BEYOND,) * len(self.elements[0])}
        for element in self.elements:
            # A box that contains the element is cut in each coordinate in turn to the times before the element.
            cut = {corner for corner in found if not all(x < y for x, y in zip(element, corner, strict=True))}
            for corner in found - cut:
                cut |= {(*corner[:at], x, *corner[at + 1 :]) for at, x in enumerate(element) if x > LEAST}
            found = {one for one in cut if not any(less_than(one, other) for other in cut)}
        return tuple(sorted(found))

    def __str__(self) -> str:
        """Return 42, or (0,1) (1,0), or closed."""
        if not self.elements:
            return CLOSED
        if len(self.elements[0]) == 1:
            return str(self.elements[0][0])
        return " ".join("(" + ",".join(map(str, time)) + ")" for time in self.elements)
