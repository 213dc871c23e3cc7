"""The structure of a scope: its places, in the order of their data, added one by one and then fixed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ddcli.engine.counts import SILENT, RowCounts
from ddcli.engine.operators.base import Delta, empty
from ddcli.engine.places import Handle, OperatorSlot
from ddcli.engine.stages import stages
from ddcli.engine.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ddcli.engine.counts import Progress
    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.base import Operator
    from ddcli.engine.operators.join import PairRoom
    from ddcli.engine.places import Inner
    from ddcli.engine.stages import Stage
    from ddcli.engine.trace.spine import Trace


class ScopeGraph:
    """The places of operators over times of `nt` lanes, the last `depth` of them rounds, and the stages in which they step.

    With `counted`, the rows of named places are counted. A scope that `streams` has small stages: places that read only
    sources take these in parts, and places that share nothing run in turn. In one that `combines` accumulations add up parts of their
    input before the exchange. `pairs` is the room for rows of joins, where it has a bound. `progress` is notified of the stages.
    """

    def __init__(
        self,
        nt: int = 1,
        depth: int = 0,
        workers: Workers | None = None,
        *,
        counted: bool = False,
        streams: bool = False,
        combines: bool = False,
        pairs: PairRoom | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self.nt = nt
        self.depth = depth
        self.workers = workers or Workers()
        self.counted = counted
        self.streams = streams
        self.combines = combines or streams
        self.pairs = pairs
        self.progress = progress
        self.watch: Callable[[], None] | None = None
        """Called before each stage: it may raise, to end the step."""
        self.turns = RowCounts()
        self.places: list[OperatorSlot] = []
        self.stages: list[Stage] = []
        self.kept: set[int] = set()

    def source(self, width: int, layout: Layout | None = None) -> Handle:
        """Add a place that is fed from outside, with `width` data lanes."""
        return self._add(OperatorSlot((), self._none(width), layout))

    def fed(self, shards: Sequence[Operator], width: int, layout: Layout | None = None) -> Handle:
        """Add operators that are fed from outside, each shard with its own updates, of `width` lanes in all."""
        none = Delta(empty(width), distinct=True)
        return self._add(OperatorSlot((len(self.places),), none, layout, shards, fed=True))

    def add(
        self,
        shards: Sequence[Operator],
        *inputs: Handle,
        width: int,
        layout: Layout | None = None,
        route: Sequence[int] = (),
        shifts: bool = False,
        wraps: bool = False,
        arranges: bool = False,
    ) -> Handle:
        """Add an operator that reads the given places, all added before it, and emits `width` data lanes.

        `shifts` marks that its updates may be in later rounds, `wraps` that its readers read its input's trace, `arranges`
        that its updates come from its trace.
        """
        places = tuple(handle.index for handle in inputs)
        none, shifts = self._none(width), shifts and self.depth > 0
        return self._add(
            OperatorSlot(
                places, none, layout, shards, route=tuple(route), shifts=shifts, wraps=wraps, arranges=arranges
            )
        )

    def add_inner(
        self, inner: Inner, *inputs: Handle, widths: Sequence[int], layouts: Sequence[Layout] = ()
    ) -> list[Handle]:
        """Add a scope within this one, whose collections leave with `widths` data lanes."""
        place = OperatorSlot(tuple(handle.index for handle in inputs), self._none(0), inner=inner)
        self._add(place)
        handles = [self.source(*each) for each in itertools.zip_longest(widths, layouts)]
        place.ports = tuple(handle.index for handle in handles)
        return handles

    def call(
        self,
        handle: Handle,
        name: str,
        label: str,
        *,
        keeps_signs: bool = False,
        takes: bool = True,
        emits: bool = True,
    ) -> None:
        """Set an operator's `name` in counts, its `label` for people, and whether it returns only insertions for insertions.

        Where an operator has several places, its rows in are counted at the one that `takes` them, its rows out at the one that `emits` them.
        """
        place = self.places[handle.index]
        place.name, place.label, place.keeps_signs, place.takes, place.emits = name, label, keeps_signs, takes, emits

    def keep(self, handle: Handle) -> None:
        """Have `turn` return the updates of a place."""
        self.kept.add(handle.index)

    def _none(self, width: int) -> Delta:
        return Delta(empty(width + self.nt + 1), distinct=True)

    def _add(self, place: OperatorSlot) -> Handle:
        assert not self.stages, "a scope that has stepped is fixed"
        self.places.append(place)
        return Handle(len(self.places) - 1)

    def prepare(self) -> None:
        """Fix the scope: find its stages, and the last reader of each place's updates, after which they are released."""
        if self.stages:
            return
        self.stages = stages(self.places, sharded=self.workers.count > 1 or self.streams, apart=self.streams)
        for place in self.places:
            place.reads = tuple((i, self.places[i].none) for i in place.inputs)

    def announce(self, stage: Stage, tasks: int | None = None) -> None:
        """Notify the progress, if there is one, that a stage begins."""
        if self.watch is not None:
            self.watch()
        if self.progress is SILENT:
            return
        number = self.stages.index(stage) + 1
        self.progress.begin(f"stage {number} of {len(self.stages)}: {self.title(stage)}", tasks)

    def title(self, stage: Stage) -> str:
        """Return a description of a stage for the display of progress."""
        labels = [self.places[index].label for index in stage.places]
        return ", ".join(dict.fromkeys(label for label in labels if label)) or "inputs"

    def counts(self) -> Iterator[tuple[str, RowCounts]]:
        """Yield the counts of each named place, and of those in scopes within."""
        for place in self.places:
            if place.name:
                for count in place.counts.values():
                    yield place.name, count
            if place.inner is not None:
                yield from place.inner.counts()
                if place.name:
                    yield place.name, place.inner.turns

    def traces(self) -> Iterator[Trace]:
        """Yield the traces of all operators."""
        for place in self.places:
            for operator in place.shards:
                yield from operator.traces
            if place.inner:
                yield from place.inner.traces()
