"""The columns that identify a record of a collection: at every time, at most one record has each of their values.

A join with such a side needs neither its distinct keys nor a second join to know which records have a partner.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from ddcli.expressions.steps import FilterStep, MapStep
from ddcli.expressions.tree import Column
from ddcli.plan import logical

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Keys = frozenset[frozenset[str]]
NONE: Keys = frozenset()


def unique_columns(graph: logical.Graph) -> dict[str, Keys]:
    """Return, by node fingerprint, sets of columns that are each a key of the node's collection."""
    found: dict[str, Keys] = {}
    for node in graph.nodes():
        found[node.fingerprint] = _keys(node, [found[child.fingerprint] for child in node.inputs])
    return found


def is_unique(keys: Keys, columns: Sequence[str]) -> bool:
    """Say whether no two records agree on these columns."""
    return any(key <= set(columns) for key in keys)


def _renamed(keys: Keys, names: Mapping[str, str]) -> Keys:
    """Return the keys of which all columns have a new name."""
    return frozenset(frozenset(names[name] for name in key) for key in keys if key <= names.keys())


@singledispatch
def _keys(node: logical.Node, below: list[Keys]) -> Keys:  # noqa: ARG001 - nothing is known of other nodes
    return NONE


@_keys.register(logical.Arrange | logical.Consolidate | logical.Inspect | logical.Semijoin)
def _passes(node: logical.Node, below: list[Keys]) -> Keys:  # noqa: ARG001
    return below[0]


@_keys.register
def _once(node: logical.Once, below: list[Keys]) -> Keys:  # noqa: ARG001
    return frozenset({frozenset()})


@_keys.register
def _apply(node: logical.Apply, below: list[Keys]) -> Keys:
    if isinstance(node.step, FilterStep):
        return below[0]
    if isinstance(node.step, MapStep):
        have = node.inputs[0].schema
        names: dict[str, str] = {}
        for name, each in node.step.columns:  # one that there is twice under its own name, where it has that
            if isinstance(each, Column) and each.type.required() == have[each.name].required():
                names[each.name] = name if name == each.name else names.get(each.name, name)
        return _renamed(below[0], names)
    return NONE


@_keys.register
def _threshold(node: logical.Threshold, below: list[Keys]) -> Keys:  # noqa: ARG001
    return frozenset({frozenset(node.schema)}) if node.function is None else NONE


@_keys.register
def _reduce(node: logical.Reduce, below: list[Keys]) -> Keys:  # noqa: ARG001
    return frozenset({frozenset(name for name, _ in node.by)})


@_keys.register
def _top(node: logical.TopK, below: list[Keys]) -> Keys:
    return below[0] | {frozenset(node.by)} if node.k == 1 else below[0]


@_keys.register
def _asof_join(node: logical.AsofJoin, below: list[Keys]) -> Keys:
    return _renamed(below[0], {source: name for name, side, source in reversed(node.columns) if side != "right"})


@_keys.register
def _join(node: logical.Join, below: list[Keys]) -> Keys:
    """Return a side's keys, where each of its records has one partner at most."""
    found = NONE
    left = {source: name for name, side, source in reversed(node.columns) if side != "right"}
    right = {source: name for name, side, source in reversed(node.columns) if side == "right"}
    for one, other in node.on:  # a key, which the record has under the left one's name
        if one in left and node.how == "inner":
            right.setdefault(other, left[one])
    if node.how in ("inner", "left") and is_unique(below[1], [other for _, other in node.on]):
        found |= _renamed(below[0], left)
    if node.how == "inner" and is_unique(below[0], [one for one, _ in node.on]):
        found |= _renamed(below[1], right)
    return found
