"""The word for what a physical node does: a run names its operators so, `dd plan` and pictures, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.steps import FilterStep, MapStep, PythonStep, UnnestStep
from ddcli.expressions.tree import Column
from ddcli.plan import loops, physical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.expressions.steps import Step
    from ddcli.plan.node import Node

KINDS: dict[type[Node], str] = {
    physical.Scan: "input",
    physical.StateContents: "contents",
    physical.UpsertTable: "upserts",
    physical.SnapshotTable: "snapshots",
    physical.WatchedRecords: "watch",
    physical.StandingRecord: "once",
    physical.Consolidated: "consolidate",
    physical.Show: "inspect",
    physical.Arrangement: "arrange",
    physical.KeptArrangement: "arrange",
    physical.Filtered: "filter on read",
    physical.EquiJoin: "join",
    physical.HalfJoin: "half join",
    physical.RowCount: "count matches",
    physical.FewerRows: "choose",
    physical.DeltaJoin: "delta join",
    physical.AsofGroup: "asof_join",
    physical.Accumulate: "reduce",
    physical.Group: "reduce",
    physical.PythonGroup: "reduce",
    physical.Top: "top_k",
    physical.WindowedGroup: "window",
    physical.RunningGroup: "window",
    physical.OrderLanes: "order",
    physical.EnterAt: "enter",
    physical.Shift: "temporal_filter",
    physical.PythonShift: "join_function",
    physical.Delay: "delay",
    loops.LoopVariable: "variable",
    loops.Iterate: "loop",
    loops.Leave: "leave",
}


def kind(node: Node) -> str:
    """Return the word for what a node does; of a fused chain, what stands out in it."""
    if isinstance(node, physical.Linear):
        return _linear(node.steps)
    if isinstance(node, physical.SignedSum):
        return "negate" if node.signs == (-1,) else "subtract" if -1 in node.signs else "concat"
    if isinstance(node, physical.Multiplicity):
        return "threshold" if node.function else "distinct"
    return KINDS[type(node)]


def _linear(steps: Iterable[Step]) -> str:
    words = [_step_kind(step) for step in steps]
    found = list(dict.fromkeys(word for word in words if word != "project")) or ["project"]
    return " + ".join(found)


def _step_kind(step: Step) -> str:
    if isinstance(step, MapStep):
        return "map" if any(not isinstance(expression, Column) for _, expression in step.columns) else "project"
    if isinstance(step, UnnestStep | PythonStep):
        return "flat_map"
    return "filter" if isinstance(step, FilterStep) else "explode"
