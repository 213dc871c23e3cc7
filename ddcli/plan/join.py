"""The columns that a join pairs, and those that it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import SpecError
from ddcli.plan import logical
from ddcli.plan.relation import Relation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.errors import Span, Text
    from ddcli.expressions.types import Schema, Type


def match_keys(left: Relation, right: Relation, on: Sequence[tuple[Text, Text]]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of key columns, which must have comparable types."""
    pairs = []
    for one, other in on:
        pair = (left.column(one), right.column(other))
        kinds = (left.schema[pair[0]], right.schema[pair[1]])
        if not comparable(*kinds):
            raise SpecError(
                f"`on` pairs '{pair[0]}', which is {kinds[0]}, with '{pair[1]}', which is {kinds[1]}",
                span=one.span,
                hint=f"cast one side first: `extend: {{{pair[0]}: cast({pair[0]} as {kinds[1].required()})}}`",
            )
        pairs.append(pair)
    return tuple(pairs)


def comparable(one: Type, other: Type) -> bool:
    """Return whether equal values of the two types have equal lanes, nulls aside."""
    if one.is_integer and other.is_integer:
        return one.kind == other.kind or "uint64" not in (one.kind, other.kind)
    if one.is_float and other.is_float:
        return True
    if one.kind == other.kind == "decimal":
        # One lane or two, by precision; the scale is the lane's unit.
        return one.scale == other.scale and (one.precision > 18) == (other.precision > 18)
    return one.required() == other.required()


def join(
    left: Relation, right: Relation, on: Sequence[tuple[Text, Text]], how: str, name: str | None, span: Span
) -> Relation:
    """Return the join: the left's columns, then the right's but for its keys, which are the left's."""
    pairs = match_keys(left, right, on)
    schema, columns, qualified, aliases = joined_columns(left, right, pairs, how, name, span)
    return Relation(logical.Join((left.node, right.node), schema, pairs, how, tuple(columns)), qualified, aliases)


def joined_columns(
    left: Relation, right: Relation, pairs: Sequence[tuple[str, str]], how: str, name: str | None, span: Span
) -> tuple[Schema, list[tuple[str, str, str]], dict[tuple[str, str], str], dict[str, str]]:
    """Return a join's schema, the origin of each of its columns, and the other names of the columns.

    A right column whose name the left has too is called `name.column`. Columns of a side that may be missing may be null.
    """
    keys = {one: right.schema[other] for one, other in reversed(pairs)}
    schema: Schema = {}
    columns = []
    for column, kind in left.schema.items():
        side = "key" if column in keys else "left"
        schema[column] = (
            _key_type(how, kind, keys[column]) if column in keys else kind.or_null(how in ("right", "full"))
        )
        columns.append((column, side, column))
    qualified = {names: column for names, column in left.qualified.items() if names[0] != name}
    aliases = dict(left.aliases)
    merged = {other: one for one, other in reversed(pairs)}
    for column, kind in right.schema.items():
        if column in merged:
            given = merged[column]
            if column not in left.schema:
                aliases[column] = given
        else:
            given = column if column not in left.schema else _qualified_name(left, name, column, span)
            schema[given] = kind.or_null(how in ("left", "full"))
            columns.append((given, "right", column))
        if name:
            qualified[name, column] = given
    return schema, columns, qualified, {alias: column for alias, column in aliases.items() if alias not in schema}


def _qualified_name(left: Relation, name: str | None, column: str, span: Span) -> str:
    if name is None:
        raise SpecError(
            f"both sides have a column '{column}'",
            span=span,
            hint="name the right side (`as: other`) or rename the column",
        )
    given = f"{name}.{column}"
    if given in left.schema:
        raise SpecError(
            f"the left side has columns '{column}' and '{given}' already",
            span=span,
            hint=f"name the right side otherwise than '{name}' (`as: other`)",
        )
    return given


def _key_type(how: str, left: Type, right: Type) -> Type:
    """Return the type of a key column: null only where the side that is kept whole has a null there."""
    if how == "inner":
        return left.required()
    if how == "left":
        return left
    kind = left.required()
    if left.required() != right.required() and left.is_integer:
        kind = type(left)("int64")
    elif left.required() != right.required() and left.is_float:
        kind = type(left)("float64")
    return kind.or_null(right.nullable or (how == "full" and left.nullable))
