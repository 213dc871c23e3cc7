"""Joins: as they are written, with the columns that they pair and return, and as the engine computes them, over two arrangements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.errors import SpecError
from ddcli.expressions.tree import Column, Expression, FilterStep, Literal, MapStep, Step
from ddcli.plan import logical, physical, words
from ddcli.plan.groupings import distinct
from ddcli.plan.logical import Arrange, FilterOnRead, is_unique, renamed_keys
from ddcli.plan.node import NO_KEYS, Node, inherited
from ddcli.plan.physical import EquiJoin
from ddcli.plan.relation import Relation
from ddcli.plan.shape import arrange, column_as, conform, is_choice, is_not_null, linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.errors import Span, Text
    from ddcli.expressions.types import Schema, Type
    from ddcli.plan.lower import GraphLowering
    from ddcli.plan.node import Columns, InputColumn, Keys, Origins, Values, Writer, Written


class BinaryNode(Node):
    """Pairs of a left and a right record, one from each of two inputs. `on` pairs a left column with a right one."""

    on: tuple[tuple[str, str], ...]
    partners_only: ClassVar[bool] = True
    """True if right records only decide on the left ones, so that a condition on the key may also be applied to them."""

    is_outer: ClassVar[bool] = False
    """True if a record may lack a left or a right one, and so columns of the key its values."""

    selects: ClassVar[bool] = False
    """True if the result's records are some of the left ones."""

    def sides(self, values: Values) -> tuple[Values, Values | None]:
        """Return the known columns of the left and of the right record, from values of the result's; None if it has no partner."""
        left, right = self.restriction(values)
        return left, right

    @property
    def requires_partner(self) -> bool:
        """True if each record of the result has a partner on the right, and each has the key of the other."""
        return False

    @property
    def narrowed(self) -> tuple[bool, bool]:
        """The sides to which a condition on their columns may be applied instead of to the result."""
        return True, False

    @property
    def left(self) -> Node:
        return self.inputs[0]

    @property
    def right(self) -> Node:
        return self.inputs[1]


class Join(BinaryNode):
    """Pairs of records with equal, non-null keys; `how`: which records without a partner stay, with nulls.

    `columns` has where each column of the result comes from: its name,
    the side ("left", "right", or "key" for one that equals both sides' key) and the column's name there (the left
    one's for a key).
    """

    how: str
    columns: tuple[tuple[str, str, str], ...]
    partners_only: ClassVar[bool] = False

    @property
    def requires_partner(self) -> bool:
        return self.how == "inner"

    @property
    def is_outer(self) -> bool:  # type: ignore[override]
        return self.how != "inner"

    @property
    def narrowed(self) -> tuple[bool, bool]:
        return self.how in ("inner", "left"), self.how in ("inner", "right")

    def over_input(self, at: int) -> dict[str, Expression]:
        # The key that both sides have in a right join has the right one's value, but the left one's name.
        merged = {name for name, side, _ in self.columns if side == "key"} if self.how == "right" else set[str]()
        return {name: column for name, column in super().over_input(at).items() if name not in merged}

    @property
    def read_by(self) -> tuple[tuple[str, ...], ...]:
        return tuple(zip(*self.on, strict=True))

    def column_origins(self) -> Origins:
        """Return the origins of keys, and of the columns of a side that is never missing: a null of the other may stand for any record there."""
        kept = {
            "key",
            *(("left",) if self.how in ("inner", "left") else ()),
            *(("right",) if self.how in ("inner", "right") else ()),
        }
        found: Origins = {}
        for name, side, source in self.columns:
            if side in kept:
                partners = [(1, other) for one, other in self.on if one == source] if side == "key" else []
                found[name] = [(int(side == "right"), source), *partners]
        return found

    def value_sources(self, name: str) -> list[InputColumn]:
        side, source = next((side, source) for each, side, source in self.columns if each == name)
        if side != "key":
            return [(int(side == "right"), source)]
        partners = [(1, other) for one, other in self.on if one == source]
        return [*([(0, source)] if self.how != "right" else []), *(partners if self.how != "left" else [])]

    def reads(self, wanted: Columns) -> list[Columns]:
        left = {source for name, side, source in self.columns if name in wanted and side != "right"}
        right = {source for name, side, source in self.columns if name in wanted and side == "right"}
        return [frozenset(left | {one for one, _ in self.on}), frozenset(right | {other for _, other in self.on})]

    @inherited
    def unique(self) -> Keys:
        """Return a side's keys, where each of its records has one partner at most."""
        found = NO_KEYS
        left = {source: name for name, side, source in reversed(self.columns) if side != "right"}
        right = {source: name for name, side, source in reversed(self.columns) if side == "right"}
        for one, other in self.on:  # a key, which the record has under the left one's name
            if one in left and self.how == "inner":
                right.setdefault(other, left[one])
        if self.how in ("inner", "left") and is_unique(self.inputs[1].unique, [other for _, other in self.on]):
            found |= renamed_keys(self.inputs[0].unique, left)
        if self.how == "inner" and is_unique(self.inputs[0].unique, [one for one, _ in self.on]):
            found |= renamed_keys(self.inputs[1].unique, right)
        return found

    @property
    def title(self) -> str:
        return f"{'' if self.how == 'inner' else self.how + ' '}join {words.pairs(self.on)}"

    def sides(self, values: Values) -> tuple[Values, Values]:
        """Return the known columns of both records. A key that one side has is the other's, too, unless it is null."""
        known = [(side, source, values[name]) for name, side, source in self.columns if name in values]
        left = {source: value for side, source, value in known if side != "right"}
        right = {source: value for side, source, value in known if side == "right"}
        for one, other in self.on:
            if left.get(one) is not None:
                right.setdefault(other, left[one])
            elif right.get(other) is not None:
                left.setdefault(one, right[other])
        return left, right

    @property
    def place_values(self) -> tuple[Any, ...]:
        return (self.on, self.how)

    def written(self, writer: Writer) -> Written:
        return writer.joined(self, "join", self.how, self.columns)

    def lowered(self, lowering: GraphLowering) -> Node:
        schema = lowering.schema(self)
        on = tuple(sorted(self.on))
        one, other = [one for one, _ in on], [other for _, other in on]
        inner = self.how == "inner"
        left = keyed_side(lowering, self.left, one, fuse=inner and lowering.read_once(self.left), alone=inner)
        right = keyed_side(lowering, self.right, other, fuse=inner and lowering.read_once(self.right), alone=inner)
        columns = tuple(
            (name, "right" if side == "right" else "left", source)
            for name, side, source in self.columns
            if name in schema
        )
        if self.how == "left" and is_unique(self.right.unique, other):
            return joined_once(self, lowering.side(self.left, one), left, right, columns, schema)
        sides = {"left": left.schema, "right": right.schema}
        inner_schema = {name: sides[side][source] for name, side, source in columns}
        parts: list[Node] = [conform(EquiJoin((left, right), inner_schema, columns), schema, fuse=True)]
        if self.how in ("left", "full"):
            alone = unmatched(lowering.side(self.left, one), left, right)
            parts.append(padded(self, alone, "left", schema))
        if self.how in ("right", "full"):
            alone = unmatched(lowering.side(self.right, other), right, left)
            parts.append(padded(self, alone, "right", schema))
        return parts[0] if len(parts) == 1 else logical.SignedSum(tuple(parts), schema, (1,) * len(parts))


class Semijoin(BinaryNode):
    """Left records whose key is (or, with `anti`, is not) the key of some right record; a null key equals none."""

    selects: ClassVar[bool] = True
    anti: bool

    @property
    def title(self) -> str:
        return f"{'antijoin' if self.anti else 'semijoin'} {words.pairs(self.on)}"

    def sides(self, values: Values) -> tuple[Values, Values | None]:
        left, right = self.restriction(values)
        return left, None if self.anti else right

    @property
    def requires_partner(self) -> bool:
        return not self.anti

    @property
    def read_by(self) -> tuple[tuple[str, ...], ...]:
        return tuple(zip(*self.on, strict=True))

    def column_origins(self) -> Origins:
        return {name: [(0, name), *((1, other) for one, other in self.on if one == name)] for name in self.schema}

    def value_sources(self, name: str) -> list[InputColumn]:
        return [(0, name)]

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted | {one for one, _ in self.on}, frozenset(other for _, other in self.on)]

    @inherited
    def unique(self) -> Keys:
        return self.inputs[0].unique

    def written(self, writer: Writer) -> Written:
        return writer.matched(self, "antijoin" if self.anti else "semijoin")

    def lowered(self, lowering: GraphLowering) -> Node:
        schema = lowering.schema(self)
        on = tuple(sorted(self.on))
        keys, partners = [one for one, _ in on], [other for _, other in on]
        left = keyed_side(lowering, self.left, keys, fuse=False, alone=not self.anti)
        right = keyed_side(lowering, self.right, partners, fuse=False, alone=True)
        once = is_unique(self.right.unique, partners)
        if self.anti:
            rows = lowering.side(self.left, keys)
            return conform(unmatched(rows, left, right, once=once), schema, fuse=True)
        return conform(matched(left, right, once=once), schema, fuse=True)


def match_keys(left: Relation, right: Relation, on: Sequence[tuple[Text, Text]]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of key columns, which must have comparable types."""
    pairs = []
    for one, other in on:
        pair = (left.column(one), right.column(other))
        check_comparable("`on` pairs", left, right, pair, one.span)
        pairs.append(pair)
    return tuple(pairs)


def check_comparable(what: str, left: Relation, right: Relation, pair: tuple[str, str], span: Span) -> None:
    """Raise SpecError for columns of two relations, named by `pair`, that can't be compared; `what` begins the message."""
    kinds = (left.schema[pair[0]], right.schema[pair[1]])
    if not comparable(*kinds):
        problem = f"{what} '{pair[0]}', which is {kinds[0]}, with '{pair[1]}', which is {kinds[1]}"
        hint = f"cast one side first: `extend: {{{pair[0]}: cast({pair[0]} as {kinds[1].required()})}}`"
        raise SpecError(problem, span=span, hint=hint)


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
    return Relation(Join((left.node, right.node), schema, pairs, how, tuple(columns)), qualified, aliases)


def semijoin(left: Relation, right: Relation, on: Sequence[tuple[Text, Text]], *, anti: bool = False) -> Relation:
    """Return the left's records that have a partner, or with `anti` those that have none."""
    pairs = match_keys(left, right, on)
    schema = dict(left.schema)
    if not anti:
        schema |= {column: schema[column].required() for column, _ in pairs}
    return left.over(Semijoin((left.node, right.node), schema, pairs, anti))


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
            hint=f"give the right side another name than '{name}' (`as: other`)",
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


def keyed_side(
    lowering: GraphLowering, child: Node, keys: Sequence[str], *, fuse: bool, alone: bool
) -> physical.Arrangement:
    """Return the arrangement of a join's side by the join's keys. One that is filtered on read stays as it is, if it is by these keys.

    `fuse` it into `child`; and if `alone`, into the choice of columns, which has no other reader.
    """
    conditions: list[Expression] = []
    below = child
    while isinstance(below, FilterOnRead):
        assert isinstance(below.step, FilterStep)
        conditions.insert(0, below.step.condition)
        (below,) = below.inputs
    plain = len(set(keys)) == len(keys) and not any(below.schema[key].nullable for key in keys)
    if conditions and plain and isinstance(below, Arrange) and set(below.by) == set(keys):
        side = lowering.side(below, keys)
        whole = keyed(side, keys, fuse=lowering.alike and is_choice(side))
        return physical.Filtered((whole,), whole.schema, whole.key, tuple(conditions))
    side = lowering.side(child, keys, fuse=fuse)
    fuse = fuse or (alone and side is not lowering.node(child)) or (lowering.alike and is_choice(side))
    return keyed(side, keys, fuse=fuse)


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


def matched(left: physical.Arrangement, right: physical.Arrangement, *, once: bool = False) -> EquiJoin:
    """Return the rows of `left` whose key is in `right`: a join with its distinct keys, or with `right` itself if it has each `once`."""
    columns = tuple((name, "left", name) for name in left.schema)
    if once:
        return EquiJoin((left, right), left.schema, columns)
    key_schema = {name: right.schema[name] for name in right.key}
    keys = conform(right if isinstance(right, physical.Filtered) else right.inputs[0], key_schema)
    found = distinct(arrange(keys, right.key))
    return EquiJoin((left, arrange(found, right.key)), left.schema, columns)


def unmatched(child: Node, left: physical.Arrangement, right: physical.Arrangement, *, once: bool = False) -> Node:
    """Return the rows of `child` whose key is not in `right`, `left` being its arrangement: all of it less the matched.

    Rows with a null key are in `child` and never matched, so they stay.
    """
    found = conform(matched(left, right, once=once), child.schema, fuse=True)
    return logical.SignedSum((child, found), child.schema, (1, -1))


def joined_once(
    node: Join,
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
    met = EquiJoin(
        (left_arranged, right_arranged), {name: sides[side][source] for name, side, source in wide}, tuple(wide)
    )
    there = [
        (name, column_as(names[name] if side == "right" else source, sides[side][source], schema[name]))
        for name, side, source in columns
    ]
    mine = [(name, column_as(name, left_arranged.schema[name], kind)) for name, kind in left.schema.items()]
    found = linear(met, [MapStep(tuple(there))], schema, fuse=False)
    matched_ = linear(met, [MapStep(tuple(mine))], left.schema, fuse=False)
    alone = logical.SignedSum((left, matched_), left.schema, (1, -1))
    return logical.SignedSum((conform(found, schema), padded(node, alone, "left", schema)), schema, (1, 1))


def padded(node: Join, alone: Node, kept: str, schema: Schema) -> Node:
    """Give records without a partner the columns of the join, null for the other side's."""
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
