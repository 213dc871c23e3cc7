"""Joins as physical nodes: their arranged sides, and the rows with and without a partner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.steps import FilterStep, MapStep, Step
from ddcli.expressions.tree import Column, Expression, Literal
from ddcli.plan import logical, physical
from ddcli.plan.shape import arrange, column_as, conform, is_not_null, linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Node


def keyed(child: Node, keys: Sequence[str], *, fuse: bool) -> physical.Arrangement:
    """Return the arrangement of `child` by join keys. Null equals nothing, so records with a null key stay out.

    A column that stands for two keys exists twice.
    """
    names: list[str] = []
    extra: dict[str, str] = {}
    for key in keys:
        name = key if key not in names else f"{key}${len(names)}"
        names.append(name)
        if name != key:
            extra[name] = key
    nullable = [key for key in dict.fromkeys(keys) if child.schema[key].nullable]
    if nullable or extra:
        present = {name: kind.required() if name in nullable else kind for name, kind in child.schema.items()}
        steps: list[Step] = [FilterStep(is_not_null(Column(key, child.schema[key]))) for key in nullable]
        columns = [(name, Column(name, kind)) for name, kind in present.items()]
        columns += [(name, Column(key, present[key])) for name, key in extra.items()]
        schema = present | {name: present[key] for name, key in extra.items()}
        child = linear(child, [*steps, MapStep(tuple(columns))], schema, fuse=fuse)
    return arrange(child, names)


def matched(left: physical.Arrangement, right: physical.Arrangement, *, once: bool = False) -> physical.EquiJoin:
    """Return the rows of `left` whose key is in `right`: a join with its distinct keys, or with `right` itself if it has each `once`."""
    columns = tuple((name, "left", name) for name in left.schema)
    if once:
        return physical.EquiJoin((left, right), left.schema, columns)
    key_schema = {name: right.schema[name] for name in right.key}
    keys = conform(right if isinstance(right, physical.Filtered) else right.inputs[0], key_schema)
    distinct = physical.Multiplicity((arrange(keys, right.key),), key_schema, None)
    return physical.EquiJoin((left, arrange(distinct, right.key)), left.schema, columns)


def unmatched(child: Node, left: physical.Arrangement, right: physical.Arrangement, *, once: bool = False) -> Node:
    """Return the rows of `child` whose key is not in `right`, `left` being its arrangement: all of it less the matched.

    Rows with a null key are in `child` and never matched, so they stay.
    """
    found = conform(matched(left, right, once=once), child.schema, fuse=True)
    return physical.SignedSum((child, found), child.schema, (1, -1))


def joined_once(
    node: logical.Join,
    left: Node,
    left_arranged: physical.Arrangement,
    right_arranged: physical.Arrangement,
    columns: Sequence[tuple[str, str, str]],
    schema: Schema,
) -> Node:
    """Return a left join whose right side has each key once at most: the records that the inner join doesn't return have no partner."""
    names: dict[str, str] = {}
    for name, side, _ in columns:
        if side == "right":
            names[name] = name
            while names[name] in left_arranged.schema:
                names[name] = f"${names[name]}"
    wide = [(name, "left", name) for name in left_arranged.schema]
    wide += [(names[name], side, source) for name, side, source in columns if side == "right"]
    sides = {"left": left_arranged.schema, "right": right_arranged.schema}
    met = physical.EquiJoin(
        (left_arranged, right_arranged), {name: sides[side][source] for name, side, source in wide}, tuple(wide)
    )
    there = [
        (name, column_as(names[name] if side == "right" else source, sides[side][source], schema[name]))
        for name, side, source in columns
    ]
    mine = [(name, column_as(name, left_arranged.schema[name], kind)) for name, kind in left.schema.items()]
    found = linear(met, [MapStep(tuple(there))], schema, fuse=False)
    matched_ = linear(met, [MapStep(tuple(mine))], left.schema, fuse=False)
    alone = physical.SignedSum((left, matched_), left.schema, (1, -1))
    return physical.SignedSum((conform(found, schema), padded(node, alone, "left", schema)), schema, (1, 1))


def padded(node: logical.Join, alone: Node, kept: str, schema: Schema) -> Node:
    """Give records without a partner the columns of the join, null for those of the other side."""
    partner = {one: one if kept == "left" else other for one, other in reversed(node.on)}
    columns: list[tuple[str, Expression]] = []
    for name, side, source in node.columns:
        if name in schema:
            own = partner[source] if side == "key" else source
            held = side in ("key", kept)
            columns.append(
                (name, column_as(own, alone.schema[own], schema[name]) if held else Literal(None, schema[name]))
            )
    return linear(alone, [MapStep(tuple(columns))], schema, fuse=False)
