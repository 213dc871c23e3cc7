"""An arrangement that another dataflow keeps, as an operator of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.operators.base import Delta, Stateless

if TYPE_CHECKING:
    from collections.abc import Sequence

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
