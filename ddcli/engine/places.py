"""Places: the operators of a scope in their order, the places that each reads, and the updates that a shard emits at some of them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.counts import RowCounts
from ddcli.engine.operators.base import Delta

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.base import Operator
    from ddcli.engine.rounds import Rounds
    from ddcli.engine.trace.spine import Trace

Deltas = list[Delta]
"""The new updates of a collection: one delta for each shard."""


@frozen
class Handle:
    """A place in a scope whose updates others may read."""

    index: int


class Inner(Protocol):
    """A scope within a scope: one place that reads several collections, and has several ports. A `LoopScope`.

    `loop` is not imported: it imports `scope`, which imports this module.
    """

    @property
    def turns(self) -> RowCounts:
        """Return the counts of its rounds."""

    def counts(self) -> Iterator[tuple[str, RowCounts]]:
        """Yield the counts of each of its named places."""

    def traces(self) -> Iterator[Trace]:
        """Yield the traces of all its operators."""


@dataclass(slots=True)
class OperatorSlot:
    """An operator in a scope. `shards` are its operators, none for a place that is fed; `route` are the lanes of the input that decide a row's shard.

    `layout` has the types of the lanes, for writers of rows, which need the values behind hashes. `name` identifies the place in counts,
    `label` for people; `counts` has each shard's counts, of rows in where it `takes` them, of rows out where it `emits` them. A place that
    `keeps_signs` returns only insertions for insertions.
    """

    inputs: tuple[int, ...]
    none: Delta
    layout: Layout | None = None
    shards: Sequence[Operator] = ()
    inner: Inner | None = None
    ports: tuple[int, ...] = ()
    route: tuple[int, ...] = ()
    shifts: bool = False
    wraps: bool = False
    arranges: bool = False
    fed: bool = False
    reads: tuple[tuple[int, Delta], ...] = ()
    name: str = ""
    label: str = ""
    keeps_signs: bool = False
    takes: bool = True
    emits: bool = True
    counts: dict[int, RowCounts] = field(default_factory=dict)

    @property
    def gathers(self) -> bool:
        """Return whether its input is exchanged by key, or comes by shard from outside."""
        return bool(self.route) or self.fed

    @property
    def whole(self) -> bool:
        """Return whether it takes all shards at once."""
        return self.inner is not None

    def count(self, shard: int) -> RowCounts:
        """Return the counts of a shard, which one thread steps at a time."""
        found = self.counts.get(shard)
        if found is None:
            found = self.counts[shard] = RowCounts()
        return found

    def counted(self, shard: int, given: Sequence[Delta], found: Delta, seconds: float) -> Delta:
        """Count a step of a shard; return its updates, marked if all are known to insert: the updates of a first load are read once for that."""
        count, rows, rows_in, known = self.count(shard), len(found.updates), 0, self.keeps_signs
        for delta in given:  # a loop, as each round of a loop runs this
            if len(delta.updates):
                rows_in += len(delta.updates)
                known = known and delta.inserts
        inserted = rows if known or found.inserts else kernels.inserted(found.updates)
        if self.takes:
            count.rows_in += rows_in
        if self.emits:
            count.rows_out += rows
            count.inserted += inserted
        count.seconds += seconds
        inserts = inserted == rows
        return found if inserts == found.inserts else found._replace(inserts=inserts)


@dataclass(slots=True)
class StageResult:
    """The result of a shard in a stage: updates by place, with later rounds apart, the places that it woke, the places that stepped, and the number of rows."""

    found: dict[int, Delta] = field(default_factory=dict)
    later: list[tuple[int, Rounds, Delta]] = field(default_factory=list)
    wakes: list[tuple[int, Rounds]] = field(default_factory=list)
    stepped: list[int] = field(default_factory=list)
    rows: int = 0


NOTHING = StageResult()
"""The result of a shard without work."""
