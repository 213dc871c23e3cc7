"""The columns of each collection that any operator reads: the others are dropped at the scan and wherever the state would keep them.

Dropping a column of a collection is a projection, and every operator that does not read the column has the same
result over the projection. Operators that compare whole records (distinct, top_k, window, the right side of asof_join, Python) read all of them, and so do loops.

A *side* is a collection as joins by one key read it. It is arranged with the columns that these joins need, however many more
somebody else reads of the collection.
"""

from __future__ import annotations

import json
from functools import singledispatch
from typing import TYPE_CHECKING

from ddcli.expressions.steps import ExplodeStep, FilterStep, MapStep, UnnestStep
from ddcli.plan import logical, loops

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema

Columns = frozenset[str]


def required_columns(graph: logical.Graph, least: Mapping[str, Columns] | None = None) -> dict[str, Columns]:
    """Return, by node fingerprint, the columns that some reader or output needs of each node; and those of `least`.

    Those of sides are there, too, by the fingerprint of the collection and the key (see `side_name`).
    """
    required: dict[str, Columns] = {}
    for node in graph.outputs.values():
        required[node.fingerprint] = frozenset(node.schema)
    for node in reversed(graph.nodes()):
        if least and node.fingerprint in least:
            required[node.fingerprint] = required.get(node.fingerprint, frozenset()) | least[node.fingerprint]
        if isinstance(node, logical.Source) and node.arranged:
            # Read where it lies, whole: a part of it would have to be arranged anew.
            required[node.fingerprint] = frozenset(node.schema)
        # Who counts rows only needs some column: any that others read will do.
        wanted = required[node.fingerprint] = required[node.fingerprint] or cheapest(node.schema)
        needs = reads(node, wanted)
        for child, columns in zip(node.inputs, needs, strict=True):
            required[child.fingerprint] = required.get(child.fingerprint, frozenset()) | columns
        for (child, key), columns in zip(sides(node), needs, strict=False):
            name = side_name(child.fingerprint, key)
            whole = isinstance(child, logical.Source) and child.arranged
            known = least.get(name, frozenset()) if least else frozenset()
            some = frozenset(child.schema) if whole else columns.union(key)
            required[name] = required.get(name, frozenset()) | some | known
    return required


def side_name(identity: str, key: Iterable[str]) -> str:
    """Return the name of the collection with this identity as joins by a key read it."""
    return f"{identity} by {json.dumps(sorted(set(key)))}"


def sides(node: logical.Node) -> list[tuple[logical.Node, tuple[str, ...]]]:
    """Return the collections that a node reads by a key, in the order of its inputs, and the keys."""
    if isinstance(node, logical.Arrange):
        return [(arranged(node), node.by)]
    if isinstance(node, logical.Join | logical.Semijoin):
        keys = zip(*node.on, strict=True)
        return [(arranged(child), key) for child, key in zip(node.inputs, keys, strict=True)]
    return []


def arranged(node: logical.Node) -> logical.Node:
    """Return the collection that is arranged where a node is: the one below explicit arrangements."""
    while isinstance(node, logical.Arrange):
        (node,) = node.inputs
    return node


def cheapest(schema: Schema) -> Columns:
    """Return one column, of fixed width if there is one: where only rows are counted, something must be there to count."""
    return frozenset(sorted(schema, key=lambda name: schema[name].kind in ("string", "binary", "list", "struct"))[:1])


def columns_of(expressions: Iterable[Expression]) -> Columns:
    """Return the columns that any of the expressions reads."""
    return frozenset(name for expression in expressions for name in expression.columns())


@singledispatch
def reads(node: logical.Node, wanted: Columns) -> list[Columns]:  # noqa: ARG001 - the default needs everything
    """Return the columns that a node reads of each input to give its `wanted` columns."""
    return [frozenset(child.schema) for child in node.inputs]


@reads.register(logical.Negate | logical.Concat | logical.Consolidate)
def _passes(node: logical.Node, wanted: Columns) -> list[Columns]:
    return [wanted for _ in node.inputs]


@reads.register
def _apply(node: logical.Apply, wanted: Columns) -> list[Columns]:
    step = node.step
    if isinstance(step, FilterStep):
        return [wanted | step.condition.columns()]
    if isinstance(step, MapStep):
        return [columns_of(expression for name, expression in step.columns if name in wanted)]
    if isinstance(step, UnnestStep):
        return [(wanted - {step.name}) | columns_of(step.call.args)]
    if isinstance(step, ExplodeStep):
        return [wanted | step.weight.columns()]
    return [frozenset(node.inputs[0].schema)]


@reads.register
def _upserts(node: logical.Upsert, wanted: Columns) -> list[Columns]:
    sequence = {logical.MOMENT, logical.SEQUENCE} if node.lasting else set()
    return [wanted | {*node.key, logical.PRESENT, logical.ORDER} | sequence]


@reads.register
def _snapshots(node: logical.Snapshots, wanted: Columns) -> list[Columns]:
    return [wanted | set(node.key)]


@reads.register
def _arrange(node: logical.Arrange, wanted: Columns) -> list[Columns]:
    return [wanted | set(node.by)]


@reads.register
def _join(node: logical.Join, wanted: Columns) -> list[Columns]:
    left = {source for name, side, source in node.columns if name in wanted and side != "right"}
    right = {source for name, side, source in node.columns if name in wanted and side == "right"}
    return [frozenset(left | {one for one, _ in node.on}), frozenset(right | {other for _, other in node.on})]


@reads.register
def _asof_join(node: logical.AsofJoin, wanted: Columns) -> list[Columns]:
    """Read of the right side all columns that the join has, wanted or not: they decide among records with equal values."""
    left = {source for name, side, source in node.columns if name in wanted and side != "right"}
    right = {source for _, side, source in node.columns if side == "right"}
    ons = [frozenset(pair[side] for pair in (*node.on, node.at)) for side in (0, 1)]
    return [ons[0] | left, ons[1] | right]


@reads.register
def _semijoin(node: logical.Semijoin, wanted: Columns) -> list[Columns]:
    return [wanted | {one for one, _ in node.on}, frozenset(other for _, other in node.on)]


@reads.register
def _reduce(node: logical.Reduce, wanted: Columns) -> list[Columns]:  # noqa: ARG001 - a group's presence needs its keys
    arguments = [argument for call in node.calls for argument in call.args]
    order = [expression for call in node.calls for expression, _ in call.order_by]
    return [columns_of([expression for _, expression in node.by] + arguments + order)]


@reads.register
def _temporal(node: logical.Temporal, wanted: Columns) -> list[Columns]:
    return [wanted | columns_of(bound for bound in (node.lower, node.upper) if bound)]


@reads.register
def _enter(node: loops.Enter, wanted: Columns) -> list[Columns]:
    return [wanted | node.at.columns()]
