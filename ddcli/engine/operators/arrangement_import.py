"""An arrangement that another dataflow keeps, as an operator of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.operators.base import Delta, Stateless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.trace_import import FilteredImport, ImportedTrace, UnitedImport


class Imported(Stateless):
    """Pass on what is fed, the updates that the trace has beyond what was taken; count them as taken when all have read them."""

    shared = True

    def __init__(self, trace: ImportedTrace | FilteredImport | UnitedImport):
        self.trace = trace

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return deltas[0]

    def close(self, interval: Interval) -> None:
        self.trace.take(interval.upper)
