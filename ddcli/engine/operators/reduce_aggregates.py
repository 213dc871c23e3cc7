"""Descriptions of aggregates: the lanes of a value that they read, and the lanes of their results; and exact sums, added up from updates.

Sums alone are evaluated here, as they need no rows of their groups but the new ones; `reduce_replay` evaluates all others.

Lanes are counted from the beginning of the value part of `[key | value | time | diff]`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine.kernels import reduce_sums
from ddcli.engine.lanes import NULL
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.engine.lanes import Lanes
    from ddcli.engine.operators.reduce_instances import Instances

Number = Literal["signed", "unsigned", "wide"]
"""The number in a lane: an int64; a uint64 with its sign bit flipped; 128 bits in two lanes."""

LIMBS = {"signed": 4, "unsigned": 4, "wide": 6}
"""The lanes of the digits of a sum."""
NUMBERS = {"signed": reduce_sums.SIGNED, "unsigned": reduce_sums.UNSIGNED, "wide": reduce_sums.WIDE}


@frozen
class LaneRun:
    """A column's run of lanes: `width` lanes from `lane`, and the representation of null.

    "flag": the first lane of the run is 0, or 1 for null. "in_band": the first lane is the largest int64 for null.
    """

    lane: int
    width: int = 1
    null: Literal["none", "flag", "in_band"] = "none"

    @property
    def lanes(self) -> tuple[int, ...]:
        """All lanes of the column."""
        return tuple(range(self.lane, self.lane + self.width))

    @property
    def number(self) -> int:
        """The first lane that holds the value."""
        return self.lane + (self.null == "flag")

    @property
    def nothing(self) -> tuple[int, ...] | None:
        """The lanes of a null, or None where there are no nulls."""
        if self.null == "none":
            return None
        return (1 if self.null == "flag" else NULL, *(0,) * (self.width - 1))


class NullTest(NamedTuple):
    """A row is null if `lane` (-1: never) holds `value`."""

    lane: int
    value: int


def null_test(column: LaneRun | None, offset: int) -> NullTest:
    """Return the test for a column's nulls in rows whose value part begins at lane `offset`."""
    if column is None or column.null == "none":
        return NullTest(-1, 0)
    return NullTest(column.lane + offset, 1 if column.null == "flag" else NULL)


class OneRow:
    """An aggregate that returns at most one row for each group."""

    __slots__ = ()
    several: ClassVar[bool] = False


@frozen
class Count(OneRow):
    """The number of records (sum of diffs), or of those whose `column` is not null. One lane."""

    width: ClassVar[int] = 1
    column: LaneRun | None = None


@frozen
class ExactSum(OneRow):
    """The exact sum of a column of integers or decimals, nulls left out; 0 for no rows.

    `number` is how the column's lanes are read, `total` how the result is written: "signed" and "unsigned" one lane,
    "wide" two, less than 10**38 either side of zero. A sum out of range at an instance is an error.
    """

    column: LaneRun
    number: Number = "signed"
    total: Number = "signed"

    @property
    def width(self) -> int:
        return 2 if self.total == "wide" else 1


@frozen
class FloatSum(OneRow):
    """The sum of a column of floats, nulls left out, rounded once, so that the order of rows doesn't matter. One lane; 0 for no rows."""

    width: ClassVar[int] = 1
    column: LaneRun


@frozen
class FloatMean(OneRow):
    """Sum and number of a column of floats, nulls left out, whose quotient is the mean. Two lanes.

    Where the sum overflows and the mean doesn't, they are the mean and 1.
    """

    width: ClassVar[int] = 2
    column: LaneRun


@frozen
class CountDistinct(OneRow):
    """The number of distinct values of a column whose accumulated count is not zero, nulls left out. One lane."""

    width: ClassVar[int] = 1
    column: LaneRun


@frozen
class First(OneRow):
    """Some lanes of the first record (the last, with `last`) of the group by its `order` lanes; ties by its other lanes.

    Candidates are records with a positive count whose `skip` column, if given, is not null. Without any the lanes are
    `nothing`; where that is None the group has no row.
    """

    k: ClassVar[int] = 1
    hashed: ClassVar[tuple[int, ...]] = ()
    order: tuple[int, ...]
    take: tuple[int, ...]
    skip: LaneRun | None = None
    nothing: tuple[int, ...] | None = None
    last: bool = False

    @property
    def width(self) -> int:
        return len(self.take)


def minimum(column: LaneRun) -> First:
    """Return the aggregate for the least value of a column that is not null, null for none."""
    return First(column.lanes, column.lanes, column, column.nothing)


def maximum(column: LaneRun) -> First:
    """Return the aggregate for the greatest value of a column that is not null, null for none."""
    return First(column.lanes, column.lanes, column, column.nothing, last=True)


@frozen
class TopRows:
    """The first `k` records by their `order` lanes, counting multiplicities; ties by their other lanes.

    `last` takes them from the end. Lanes that are `hashed`
    under a secret break no ties: in their place the `ranks` of those lanes (n, hashed) do.
    """

    several: ClassVar[bool] = True
    skip: ClassVar[LaneRun | None] = None
    nothing: ClassVar[tuple[int, ...] | None] = None
    k: int
    order: tuple[int, ...]
    take: tuple[int, ...]
    last: bool = False
    hashed: tuple[int, ...] = ()
    ranks: Callable[[Lanes], Lanes] | None = None

    @property
    def width(self) -> int:
        return len(self.take)


class GatheredGroups(NamedTuple):
    """Groups at instances: instance i is key keys[i] at time times[i], with the rows [i | value | count] of `rows`.

    `rows` is in the order of instances, then of values; counts are not zero. Instances without rows may occur.
    """

    keys: Lanes
    times: Lanes
    rows: Lanes


@frozen
class Gather:
    """Any function of groups: `function` gets the groups' accumulated rows and returns rows [instance | lanes | count].

    With `single` it returns exactly one row, of count 1, for each instance that has rows, and may be combined with other
    aggregates. Without, it returns any rows and is the only aggregate. Large inputs come in pieces, cut between keys.
    """

    width: int
    function: Callable[[GatheredGroups], Lanes]
    single: bool = True

    @property
    def several(self) -> bool:
        return not self.single


Ordered = First | TopRows
"""Aggregates that are the first records of a group in an order."""
Aggregate = Count | ExactSum | FloatSum | FloatMean | CountDistinct | Ordered | Gather
"""One that returns `several` rows a group is the only one of its reduction."""


class SumOverflow(EngineError):
    """A sum that its type can't hold, at an interesting time; names the key's lanes and the aggregate's position."""

    def __init__(self, key: tuple[int, ...], aggregate: int):
        super().__init__(
            f"a sum is too large for its type, in the group with key lanes {key}",
            hint="cast its argument to a decimal, which holds 38 digits",
        )
        self.key = key
        self.aggregate = aggregate


class Sums:
    """Running sums of accumulable aggregates: rows are added to instances, then finalized once."""

    def __init__(self, instances: int, aggregates: tuple[Count | ExactSum, ...]):
        self.aggregates = aggregates
        self._sizes = [self._size(aggregate) for aggregate in aggregates]
        self._limbs = np.zeros((instances, sum(self._sizes)), np.int64)

    @classmethod
    def digits(cls, aggregates: tuple[Count | ExactSum, ...]) -> int:
        """Return how many lanes `limbs` has."""
        return sum(map(cls._size, aggregates))

    @classmethod
    def digits_of(cls, aggregates: tuple[Count | ExactSum, ...], among: tuple[Count | ExactSum, ...]) -> list[int]:
        """Return the lanes in the `limbs` of the aggregates `among` that belong to `aggregates`, a part of them."""
        starts = dict(zip(among, accumulate(map(cls._size, among), initial=0), strict=False))
        return [starts[aggregate] + digit for aggregate in aggregates for digit in range(cls._size(aggregate))]

    @staticmethod
    def _size(aggregate: Count | ExactSum) -> int:
        if isinstance(aggregate, Count):
            return LIMBS["signed"]
        return max(LIMBS[aggregate.number], LIMBS[aggregate.total])

    def add(self, rows: Lanes, offset: int, instances: Lanes) -> None:
        """Add rows whose value lanes begin at `offset` and whose last lane is the diff, each to its instance."""
        numbers, at = [], 0
        for aggregate, size in zip(self.aggregates, self._sizes, strict=True):
            lane, number = 0, reduce_sums.ONE
            if isinstance(aggregate, ExactSum):
                lane, number = offset + aggregate.column.number, NUMBERS[aggregate.number]
            numbers.append((lane, number, *null_test(aggregate.column, offset), at))
            at += size
        reduce_sums.add_rows(rows, np.array(numbers, np.int64), instances, self._limbs)

    def add_totals(self, rows: Lanes, offset: int, instances: Lanes) -> None:
        """Add finished sums: rows with the lanes of all aggregates from `offset` on, times their diff."""
        numbers, at, lane = [], 0, offset
        for aggregate, size in zip(self.aggregates, self._sizes, strict=True):
            number = NUMBERS[aggregate.total] if isinstance(aggregate, ExactSum) else reduce_sums.SIGNED
            numbers.append((lane, number, -1, 0, at))
            at += size
            lane += aggregate.width
        reduce_sums.add_rows(rows, np.array(numbers, np.int64), instances, self._limbs)

    def limbs(self) -> Lanes:
        """Return each instance's sums as digits, which never overflow: all aggregates' side by side."""
        reduce_sums.carry(self._limbs, np.array(self._sizes, np.int64))
        return self._limbs

    def add_limbs(self, rows: Lanes, offset: int, instances: Lanes) -> None:
        """Add digits that `limbs` returned elsewhere: rows that have them from lane `offset` on, times their diff."""
        reduce_sums.add_limbs(rows, offset, instances, self._limbs)

    def finalize(self, instances: Instances, first: Lanes, position: int = 0) -> tuple[Lanes, Lanes]:
        """Return the lanes of all aggregates at each instance, and 1 where any sum is not zero. Raises SumOverflow."""
        out = np.empty((len(instances), sum(aggregate.width for aggregate in self.aggregates)), np.int64)
        present = np.zeros(len(instances), np.int64)
        at = lane = 0
        for number, (aggregate, size) in enumerate(zip(self.aggregates, self._sizes, strict=True)):
            total = NUMBERS[aggregate.total] if isinstance(aggregate, ExactSum) else reduce_sums.SIGNED
            failed = reduce_sums.apply_sums(first, self._limbs, at, size, total, out, lane, present)
            if failed < 0:
                group = int(np.searchsorted(instances.first, -1 - failed, side="right")) - 1
                raise SumOverflow(tuple(instances.keys[group].tolist()), position + number)
            at += size
            lane += aggregate.width
        return out, present
