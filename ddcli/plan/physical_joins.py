"""The nodes of joins in the physical graph: joins of two arrangements, and the steps of delta joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ddcli.plan import physical, words
from ddcli.plan.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.plan.estimates import Pair, PastRows
    from ddcli.plan.node import Origins, Partition


def origins_of_pairs(columns: Sequence[tuple[str, str, str]], on: Sequence[tuple[str, str]]) -> Origins:
    """Return the origins of the columns of pairs of records that are equal in the pairs of columns `on`: a column's own, and those that equal it."""
    found: Origins = {}
    for name, side, source in columns:
        at = int(side == "right")
        found[name] = [(at, source), *((1 - at, pair[1 - at]) for pair in on if pair[at] == source)]
    return found


class EquiJoin(Node):
    """Pairs of two arrangements with equal keys; `columns` has each column's side ("left" or "right") and name there."""

    kind: ClassVar[str] = "join"
    joins: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True
    columns: tuple[tuple[str, str, str], ...]

    @property
    def sides(self) -> tuple[physical.Arrangement, physical.Arrangement]:
        """The arrangements that are joined."""
        left, right = self.inputs
        assert isinstance(left, physical.Arrangement)
        assert isinstance(right, physical.Arrangement)
        return left, right

    def column_origins(self) -> Origins:
        left, right = self.sides
        return origins_of_pairs(self.columns, [*zip(left.key, right.key, strict=True)])

    @property
    def work(self) -> str:
        left, right = self.sides
        keys = zip(left.key, right.key, strict=True)
        alike = all(physical.is_constant(left, one) or physical.is_constant(right, other) for one, other in keys)
        return "everything" if alike else "output"

    def partition(self, times: int) -> Partition:
        if times > 1:  # its updates wait for their times, in shards by all of its columns
            return self.partition_by(self.schema)
        return self.partition_of_input(times)

    def keeps_state(self, times: int) -> bool:
        return times > 1

    @property
    def repeats(self) -> bool:
        """True if it leaves out columns that tell rows apart."""
        left, right = self.sides
        kept = {(side, source) for _, side, source in self.columns}
        return not kept >= {("left", name) for name in left.schema} | {("right", name) for name in right.value}

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        left, right = (child.fingerprint for child in self.inputs)
        return past.joined(self.fingerprint, left, right, inputs)

    def details(self) -> list[str]:
        left, right = self.sides
        named = (
            (
                words.column(words.copied(one, left.key), left.texts()),
                words.column(words.copied(other, right.key), right.texts()),
            )
            for one, other in zip(left.key, right.key, strict=True)
        )
        return [words.pairs(named)]


class RowLookup(Node):
    """New updates, the first input, that are looked up in the second, an `Arrangement`; no collection by itself.

    `on` pairs columns: first the arrangement's key, then its first values. It finds the rows from before the step and, with
    `new`, those that are new in it.
    """

    on: tuple[tuple[str, str], ...]
    new: bool

    @property
    def arranged(self) -> physical.Arrangement:
        """The arrangement."""
        found = self.inputs[1]
        assert isinstance(found, physical.Arrangement)
        return found

    @property
    def is_in_order(self) -> bool:
        """True if updates come sorted by the key of their lookup, in the shards where it is."""
        stream, key, own = self.inputs[0], self.arranged.key, [one for one, _ in self.on]
        if isinstance(stream, FewerRows):
            (stream,) = stream.inputs
        if isinstance(stream, RowCount):
            sorted_by = [one for one, _ in stream.on[: len(stream.arranged.key)]]
        elif isinstance(stream, physical.Arrangement):
            sorted_by = [*stream.key]
        else:
            return False
        return sorted_by == own[: len(key)] and [*stream.schema][: len(own)] == own

    @property
    def work(self) -> str:
        return "output"

    def details(self) -> list[str]:
        on = words.pairs((one, words.copied(other, self.arranged.key)) for one, other in self.on)
        return [on, "with the run's own rows" if self.new else "with the rows of earlier runs"]


class HalfJoin(RowLookup):
    """The updates with the rows that they find; `columns` is as of an `EquiJoin`, the updates at the left."""

    kind: ClassVar[str] = "half join"
    columns: tuple[tuple[str, str, str], ...]

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        def pairs(new: Pair, before: Pair) -> float:
            return new[0] * (before[1] + (new[1] if self.new else 0.0))

        given, found = (child.fingerprint for child in self.inputs)
        return past.joined(self.fingerprint, given, found, inputs, pairs)


class RowCount(RowLookup):
    """The updates that find rows: the columns of the lookup first, and a last one with the number of rows."""

    kind: ClassVar[str] = "count matches"

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        return inputs[0] if self.new or past.held.get(self.arranged.fingerprint) else 0.0


class FewerRows(Node):
    """The updates, of two consecutive `RowCount`s, for which the second finds `fewer` rows than the first, or the others; without both counts."""

    kind: ClassVar[str] = "choose"
    fewer: bool

    def details(self) -> list[str]:
        return ["fewer rows in the second" if self.fewer else "no fewer rows in the second"]


ROWS = "$rows"
"""The prefix of columns that hold the number of rows that an update finds."""


class DeltaJoin(Node):
    """The join of several collections without kept results: its inputs are the results of the updates of each (see `optimizer.delta_joins`)."""

    kind: ClassVar[str] = "delta join"

    def keeps_state(self, times: int) -> bool:
        return times > 1

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        return sum(inputs)
