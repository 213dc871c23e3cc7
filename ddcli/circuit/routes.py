"""The lanes by which the rows that a node reads find their shard, or the rows that they look up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.lanes import Layout
from ddcli.plan import physical, physical_joins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.plan.node import Node


def route(node: Node) -> Sequence[int]:
    """Return the lanes of a node's input by which its rows find their shard; none where they stay in theirs."""
    return () if node.exchanged_by is None else Layout(node.inputs[0].schema).take(node.exchanged_by)


def is_in_order(node: physical_joins.RowLookup) -> bool:
    """Return whether updates come sorted by the key by which they are looked up, in the shards where it is."""
    stream, key, own = node.inputs[0], node.arranged.key, [one for one, _ in node.on]
    if isinstance(stream, physical_joins.FewerRows):
        (stream,) = stream.inputs
    if isinstance(stream, physical_joins.RowCount):
        sorted_by = [one for one, _ in stream.on[: len(stream.arranged.key)]]
    elif isinstance(stream, physical.Arrangement):
        sorted_by = [*stream.key]
    else:
        return False
    return sorted_by == own[: len(key)] and [*stream.schema][: len(own)] == own


def lookup_lanes(node: physical_joins.RowLookup) -> tuple[list[int], int]:
    """Return the lanes of updates with those first by which they are looked up, and how many these are."""
    layout = Layout(node.inputs[0].schema)
    key = layout.take(one for one, _ in node.on)
    return key + [lane for lane in range(layout.width) if lane not in key], len(key)
