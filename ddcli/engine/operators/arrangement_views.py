"""Arrangements that are another's: one that another dataflow keeps, and one without the records that a predicate drops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.operators.base import Delta, Stateless
from ddcli.engine.trace.trace_import import FilteredTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import numpy as np

    from ddcli.engine.operators.join import Joinable
    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.trace_import import FilteredImport, ImportedTrace, UnitedImport


class Imported(Stateless):
    """Pass on the input, the updates of the trace beyond those taken so far; count them as taken when all readers are done."""

    shared = True

    def __init__(self, trace: ImportedTrace | FilteredImport | UnitedImport):
        self.trace = trace

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return deltas[0]

    def close(self, interval: Interval) -> None:
        self.trace.take(interval.upper)


class Filtered(Stateless):
    """Pass on the rows of an arrangement's batch that `keep` keeps, which reads the lanes `asked`, in their order; its trace is filtered the same way."""

    def __init__(self, source: Joinable, keep: Callable[[np.ndarray], np.ndarray], asked: Collection[int]):
        self.trace = FilteredTrace(source.trace, keep, asked)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return Delta(self.trace.keep(deltas[0].updates), distinct=True)
