"""The nodes of delta joins in the physical graph: lookups of updates in arrangements, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ddcli.plan import physical, words
from ddcli.plan.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.plan.estimates import Pair, PastRows


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
