"""The trace of all shards of an arrangement, which one worker reads and extends when it steps over all of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.engine import kernels
from ddcli.engine.trace.spine import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.engine.times import Frontier


class UnitedTrace(Trace):
    """The sum of the traces of some `shards`; the lanes `by` determine the shard of a row.

    Its oldest batches are those of the shards, which it does not merge; behind them are its own. So no shard may be stepped
    before the union has dealt its own batches to the shards, and the union not before it has gathered theirs.
    """

    _theirs = 0
    """The number of the oldest batches, which are the shards'."""

    def __init__(self, shards: Sequence[Trace], by: Sequence[int]) -> None:
        first = shards[0]
        super().__init__(first.nk, first.nv, first.nt, since=first.since, layout=first.layout)
        self._shards = shards
        self._by = tuple(by)
        self._gathered = False

    def gather(self, upper: Frontier) -> None:
        """Take the shards' batches, which are all before `upper`."""
        if self._gathered:
            return
        self._gathered = True
        self.upper = upper
        self.batches = [batch for shard in self._shards for batch in shard.batches]
        self._theirs = self._resident = len(self.batches)
        self._settle()

    def deal(self, upper: Frontier, each: Callable[..., list[Any]]) -> None:
        """Deal its own rows, which are all before `upper`, to the shards; `each` is as in `exchange`."""
        if not self._gathered:
            return
        own = [batch.matrix() for batch in self.batches[self._theirs :]]
        self._gathered = False
        self.batches, self._merges, self._theirs, self._waiting = [], [], 0, 0
        for shard in self._shards:
            shard.set_logical_compaction(self._own)
        if own:
            # With unchanged times: readers of a shard may still distinguish them.
            parts = kernels.exchange([kernels.merge(own)], self._by, len(self._shards), each)
            for shard, part in zip(self._shards, parts, strict=True):
                shard.insert(part, upper)

    def _settle(self) -> None:
        super()._settle()
        self._settled = max(self._settled, self._theirs)
