"""Arranged collections: indexed by key once, for all joins and reductions by that key, and to be read through handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.api.collection import Collection
from ddcli.api.traces import Kept, TraceHandle
from ddcli.circuit import graph
from ddcli.engine.columns import POOLED
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.imported import Imported
from ddcli.errors import UsageError
from ddcli.plan import logical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.api.dataflow import Dataflow
    from ddcli.api.functions import Columns
    from ddcli.engine.times import Frontier
    from ddcli.plan.relation import Relation
    from ddcli.spec import model


class Arranged(Collection):
    """A collection indexed by `key`. Joins and reductions by that key read the one arrangement; it is also the default of theirs."""

    def __init__(
        self,
        dataflow: Dataflow,
        relation: Relation,
        key: tuple[str, ...],
        kept: Kept | None,
        conditions: tuple[str, ...] = (),
    ):
        super().__init__(dataflow, relation)
        self.key = key
        self.kept = kept
        self._conditions = conditions

    def as_collection(self) -> Collection:
        """Return the collection by itself."""
        return Collection(self.dataflow, self.relation)

    def filter(self, condition: str | Callable[..., Any]) -> Collection:
        """Keep the records for which the condition is true.

        Of an expression the result is arranged, too, and nothing is arranged anew: a join by the key reads this arrangement, and asks
        the condition of what it finds.
        """
        found = super().filter(condition)
        if not isinstance(condition, str):
            return found
        node = self.relation.node
        if not isinstance(node, logical.Arrange | logical.FilterOnRead):
            node = logical.Arrange((node,), node.schema, self.key)
        asked = found.relation.node
        assert isinstance(asked, logical.Apply)
        relation = found.relation.over(logical.FilterOnRead((node,), asked.schema, asked.step))
        return Arranged(self.dataflow, relation, self.key, self.kept, (*self._conditions, condition))

    def join(
        self,
        other: Collection,
        on: Sequence[str] | Mapping[str, str] | None = None,
        how: model.How = "inner",
        name: str | None = None,
    ) -> Collection:
        """Join, by the keys if nothing else is said: those of both sides, or columns of the same names in `other`."""
        if on is None:
            theirs = other.key if isinstance(other, Arranged) else self.key
            if len(theirs) != len(self.key):
                raise UsageError(
                    f"the sides are arranged by {', '.join(self.key)} and by {', '.join(theirs)}", hint="say `on`"
                )
            on = dict(zip(self.key, theirs, strict=True))
        return super().join(other, on, how, name)

    def reduce(
        self,
        by: Sequence[str] | Mapping[str, str] | None = None,
        to: Callable[..., Any] | Mapping[str, str] | None = None,
        *,
        columns: Columns | None = None,
        values: Sequence[str] | None = None,
        **aggregates: str,
    ) -> Collection:
        """Aggregate each group, of the arrangement's key if `by` doesn't say another."""
        by = self.key if by is None else by
        return super().reduce(by, to, columns=columns, values=values, **aggregates)

    def trace(self) -> TraceHandle:
        """Return a handle on the arrangement: from its first time on, or, once it has stepped, from what can still be read."""
        if self.kept is None:
            raise UsageError(
                "this arrangement is kept elsewhere: in a loop, or by the dataflow that it is imported from",
                hint="take the handle there, where `arrange_by_key` was called outside of a loop",
            )
        shards = self.kept.shards
        handle = TraceHandle(self.kept, shards[0].since if shards else self.dataflow.frontier)
        for condition in self._conditions:
            with handle:
                handle = handle.filter(condition)
        return handle


class Import(Arranged):
    """An arrangement that another dataflow keeps, as a collection of this one; and what feeds it from there."""

    def __init__(self, dataflow: Dataflow, relation: Relation, handle: TraceHandle):
        super().__init__(dataflow, relation, handle.key, None)
        self.handle = handle
        self._shards: list[Imported] = []

    @property
    def frontier(self) -> Frontier:
        """The frontier of the dataflow that keeps the arrangement."""
        return self.handle.upper

    def indexed(self) -> graph.Import:
        """Return what stands for the arrangement in this dataflow's graph. From now on that holds it, the handle no more."""
        self._shards = [Imported(trace) for trace in self.handle.imported(self.dataflow.frontier)]
        self.handle.close()
        return graph.Import(self.key, self.handle.arranged, self._shards)

    def fit(self, layout: Layout) -> None:
        """Do nothing: an arrangement has all its columns."""

    def flush(self) -> None:
        """Do nothing: what the other dataflow has closed is ready."""

    def take_before(self, upper: Frontier) -> list[Delta]:
        found = [shard.trace.next_before(upper) for shard in self._shards]
        for matrix in found:
            self._share_values(matrix)
        return [Delta(matrix, distinct=True) for matrix in found]

    def release(self) -> None:
        """Hold the trace no more: the dataflow steps no further."""
        self.handle.close()
        for shard in self._shards:
            shard.trace.release()

    def _share_values(self, matrix: np.ndarray) -> None:
        """Bring the values that hashed lanes stand for into this dataflow's pool."""
        layout = Layout(self.handle.arranged)
        for name, kind in layout.schema.items():
            if kind.kind in POOLED and len(matrix):
                lanes = np.unique(matrix[:, layout.lanes(name).start])
                self.dataflow.pool.intern(self.handle.dataflow.pool.values(lanes, kind), kind)
