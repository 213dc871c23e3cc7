"""The columns by which a collection is partitioned: if equal records already share a shard, no exchange is needed."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from ddcli.plan import physical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.expressions.types import Type
    from ddcli.plan.node import Node

Owned = tuple[tuple[str, "Type"], ...] | None
"""The columns by which a collection is partitioned, each with the type that it had at the exchange, which decided
its lanes. None if nothing is known."""


@singledispatch
def owned(node: Node, times: int) -> Owned:  # noqa: ARG001 - nodes that know their input's are registered below
    """Return the columns by which the records of a node are in shards: all of them are in the record, so equal ones are together.

    Times have `times` coordinates.
    """
    return None


@owned.register(physical.Arrangement)
def _(node: physical.Arrangement, _times: int) -> Owned:
    return _typed(node, node.key)


@owned.register(physical.UpsertTable | physical.SnapshotTable)
def _(node: physical.UpsertTable | physical.SnapshotTable, _times: int) -> Owned:
    return _typed(node, node.key or node.schema)


@owned.register(physical.Accumulate)
def _(node: physical.Accumulate, _times: int) -> Owned:
    return _typed(node, node.by)


@owned.register(
    physical.Group
    | physical.PythonGroup
    | physical.Top
    | physical.AsofGroup
    | physical.WindowedGroup
    | physical.Multiplicity
)
def _(node: Node, times: int) -> Owned:
    # A reduction leaves its groups where its arrangement has them, and has them among its columns.
    return owned(node.inputs[0], times)


@owned.register(
    physical.WatchedRecords | physical.Consolidated | physical.Show | physical.Delay | physical.StandingRecord
)
def _(node: Node, _times: int) -> Owned:
    return _typed(node, node.schema)


@owned.register(physical.EquiJoin)
def _(node: physical.EquiJoin, times: int) -> Owned:
    if times > 1:  # its updates wait for their times, in shards by all of its columns
        return _typed(node, node.schema)
    left = node.inputs[0]
    assert isinstance(left, physical.Arrangement)
    return _renamed(_typed(left, left.key), node)


@owned.register(physical.Linear)
def _(node: physical.Linear, times: int) -> Owned:
    return _renamed(owned(node.inputs[0], times), node)


@owned.register(physical.OrderLanes)
def _(node: physical.OrderLanes, times: int) -> Owned:
    return owned(node.inputs[0], times)


@owned.register(physical.SignedSum)
def _(node: physical.SignedSum, times: int) -> Owned:
    # Equal records may come of different inputs, so these must lie in shards by the same columns.
    first, *others = [owned(child, times) for child in node.inputs]
    return first if all(other == first for other in others) else None


def _typed(node: Node, names: Iterable[str]) -> Owned:
    return tuple((name, node.schema[name]) for name in names)


def _renamed(columns: Owned, node: Node) -> Owned:
    """Return columns of a node's first input under the names of its result; None where one is gone."""
    names = node.decided(node.schema)[0]
    if columns is None or any(column not in names for column, _ in columns):
        return None
    return tuple((names[column], kind) for column, kind in columns)
