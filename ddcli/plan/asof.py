"""As-of joins: as they are written, and as the engine computes them, over one arrangement of both sides' rows in the order of the compared columns."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.errors import SpecError
from ddcli.expressions.coerce import meet
from ddcli.expressions.tree import Call, Column, FilterStep, Literal, MapStep, Step
from ddcli.expressions.types import POOLED, Type
from ddcli.plan import logical, physical, words
from ddcli.plan.joins import BinaryNode, check_comparable, joined_columns, match_keys
from ddcli.plan.logical import renamed_keys
from ddcli.plan.node import inherited
from ddcli.plan.relation import Relation
from ddcli.plan.shape import INT64, arrange, column_as, is_not_null, linear, project
from ddcli.plan.words import ALL, AT, SIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.errors import Span, Text
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.plan.lower import GraphLowering
    from ddcli.plan.node import Columns, InputColumn, Keys, Node, Origins, Values, Writer, Written


class AsofJoin(BinaryNode):
    """Each left record with the right record of its key that is nearest: of those at or before its value, one with the greatest.

    `on` pairs columns that are equal, `at` is the pair that is compared. With `forward` it is the least value at or after, and `strict` leaves
    equal values out. Of several such records it is the first by the right columns in the order of `columns`, lane by lane. Nulls are
    neither equal nor before. A right record, of these columns alone, counts once if its multiplicity is positive; the left one's is the result's. `how`
    decides whether left records without a partner stay, with nulls; `columns` is as in a join.
    """

    at: tuple[str, str]
    how: str
    forward: bool
    strict: bool
    columns: tuple[tuple[str, str, str], ...]

    def column_origins(self) -> Origins:
        """Return the origins of the left side's columns: the nearest record depends on all that have the key."""
        return {
            name: [(0, source), *((1, other) for one, other in self.on if one == source)]
            for name, side, source in self.columns
            if side != "right"
        }

    def value_sources(self, name: str) -> list[InputColumn]:
        return [(int(side == "right"), source) for each, side, source in self.columns if each == name]

    def reads(self, wanted: Columns) -> list[Columns]:
        """Read of the right side all columns that the join has, wanted or not: they decide among records with equal values."""
        left = {source for name, side, source in self.columns if name in wanted and side != "right"}
        right = {source for _, side, source in self.columns if side == "right"}
        ons = [frozenset(pair[side] for pair in (*self.on, self.at)) for side in (0, 1)]
        return [ons[0] | left, ons[1] | right]

    @inherited
    def unique(self) -> Keys:
        return renamed_keys(
            self.inputs[0].unique, {source: name for name, side, source in reversed(self.columns) if side != "right"}
        )

    @property
    def title(self) -> str:
        on = f"{words.pairs(self.on)}, " if self.on else "on "
        return f"{'' if self.how == 'inner' else self.how + ' '}asof_join {on}{self.condition}"

    def sides(self, values: Values) -> tuple[Values, Values | None]:
        known = [(side, source, values[name]) for name, side, source in self.columns if name in values]
        left = {source: value for side, source, value in known if side != "right"}
        right = {other: left[one] for one, other in self.on if one in left}
        right |= {source: value for side, source, value in known if side == "right"}
        return left, right if right.get(self.at[1], self.at) is not None else None

    @property
    def condition(self) -> str:
        """Return the comparison, by the columns' names in the result."""
        named = {source: name for name, side, source in self.columns if side == "right"}
        return f"{self.at[0]} {self.compared} {named.get(self.at[1], self.at[1])}"

    @property
    def compared(self) -> str:
        """Return the operator that compares the left value with the right one."""
        return ("<" if self.forward else ">") + "=" * (not self.strict)

    @property
    def place_values(self) -> tuple[Any, ...]:
        return (self.on, self.at, self.how, self.compared)

    def written(self, writer: Writer) -> Written:
        more: dict[str, Any] = {"direction": "forward"} if self.forward else {}
        more |= {"strict": True} if self.strict else {}
        return writer.joined(self, "asof_join", self.how, self.columns, self.at, **more)

    def lowered(self, lowering: GraphLowering) -> Node:
        return lower_asof(self, lowering.node(self.left), lowering.node(self.right), lowering.schema(self))


class AsofGroup(physical.OfGroups):
    """The left rows of each group of an `Arrangement` input, each with the nearest right row's columns. State.

    The first of a row's values, `SIDE`, is 0 or 1 for its side; then come `lanes` integers, in whose order the last right row before
    a left one is its nearest; then the left's columns, and `rights` of the right. `condition` is its comparison for people.
    """

    kind: ClassVar[str] = "asof_join"
    lanes: int
    rights: tuple[str, ...]
    inner: bool
    strict: bool
    condition: str

    @property
    def work(self) -> str:
        return "output" if physical.in_order_of_time(self) else super().work

    def keeps_state(self, times: int) -> bool:
        return times > 1 or self.level > 0

    def details(self) -> list[str]:
        partner = f"the nearest with {self.condition}"
        return [f"of each {self.arranged.key_text()}", partner, "inner" if self.inner else "left"]


def asof_join(
    left: Relation,
    right: Relation,
    compared: tuple[Text, Text],
    on: Sequence[tuple[Text, Text]],
    how: str,
    forward: bool,
    strict: bool,
    name: str | None,
    span: Span,
) -> Relation:
    """Return the as-of join of two relations, with the columns that a join would have."""
    pairs = match_keys(left, right, on)
    one, other = compared
    at = left.column(one), right.column(other)
    for kind in (left.schema[at[0]], right.schema[at[1]]):
        if not is_ordered(kind):
            problem = f"`at` compares numbers, dates and times, not {kind.required()}"
            raise SpecError(problem, span=one.span, hint="cast it to one of these before")
    check_comparable("`at` compares", left, right, at, one.span)
    schema, columns, qualified, aliases = joined_columns(left, right, pairs, how, name, span)
    node = AsofJoin((left.node, right.node), schema, pairs, at, how, forward, strict, tuple(columns))
    return Relation(node, qualified, aliases)


def is_ordered(kind: Type) -> bool:
    """Return whether values of a type have lanes in their order."""
    return kind.kind not in POOLED and kind.kind not in ("null", "months")


def lower_asof(node: AsofJoin, left: Node, right: Node, wanted: Schema) -> Node:
    """Return the physical nodes of an as-of join over its sides, with the `wanted` columns.

    Rows with a null in a compared column have no partner: none of them is arranged.
    """
    on: dict[str, tuple[str, str]] = {}
    for one, other in sorted(node.on):
        on[one if one not in on else f"{one}${len(on)}"] = (one, other)
    keys: Schema = {name: _common(left.schema[one], right.schema[other]) for name, (one, other) in on.items()}
    keys = keys or {ALL: INT64}
    given: dict[str, tuple[int, str, Type]] = {}  # the value columns of rows, by their names in the result
    for name, side, source in node.columns:
        if side == "right":
            given[name] = (1, source, right.schema[source])
        elif name in wanted and source not in on:
            given[name] = (0, source, left.schema[source])
    values: Schema = {name: kind.or_null() for name, (_, _, kind) in given.items()}
    ordered = physical.lane_columns(physical.lane_column(0), left.schema[node.at[0]].required())

    def rows(child: Node, side: int) -> Node:
        """Return one side's rows: the key, the side, the lanes of the order, and the columns of both sides, null for the other side's."""
        sources = [(name, pair[side]) for name, pair in on.items()]
        columns: dict[str, Expression] = {
            name: column_as(source, child.schema[source].required(), keys[name]) for name, source in sources
        } or {ALL: Literal(0, INT64)}
        at = child.schema[node.at[side]].required()
        columns |= {SIDE: Literal(side, INT64), AT: Column(node.at[side], at)}
        for name, (of, source, kind) in given.items():
            here = column_as(source, kind, values[name])
            columns[name] = here if of == side else Literal(None, values[name])
        steps: list[Step] = [FilterStep(is_not_null(each)) for each in compared(child, side)]
        steps.append(MapStep(tuple(columns.items())))
        schema = {name: expression.type for name, expression in columns.items()}
        prepared = linear(child, steps, schema, fuse=False)
        shown = keys | {SIDE: INT64} | ordered | values
        return physical.OrderLanes((prepared,), shown, ((physical.lane_column(0), AT, node.forward),))

    def compared(child: Node, side: int) -> list[Expression]:
        """Return the compared columns of a side that may be null."""
        names = dict.fromkeys([*(pair[side] for pair in on.values()), node.at[side]])
        return [Column(name, child.schema[name]) for name in names if child.schema[name].nullable]

    inner = node.how == "inner"
    both = logical.SignedSum((rows(left, 0), rows(right, 1)), keys | {SIDE: INT64} | ordered | values, (1, 1))
    rights = tuple(name for name, (side, _, _) in given.items() if side)
    found = AsofGroup((arrange(both, keys),), keys | values, len(ordered), rights, inner, node.strict, node.condition)
    named = {one: name for name, (one, _) in reversed(on.items())}
    results: dict[str, Expression] = {}
    for name, side, source in node.columns:
        if name in wanted:
            own = name if side == "right" or source not in named else named[source]
            results[name] = column_as(own, found.schema[own], wanted[name])
    matched = project(found, results, wanted, fuse=True)
    without = compared(left, 0)
    if inner or not without:
        return matched
    columns = tuple(
        (name, Literal(None, wanted[name]) if side == "right" else column_as(source, left.schema[source], wanted[name]))
        for name, side, source in node.columns
        if name in wanted
    )
    missing = reduce(_either, [Call("is null", (each,), Type("bool")) for each in without])
    alone = linear(left, [FilterStep(missing), MapStep(columns)], wanted, fuse=False)
    return logical.SignedSum((matched, alone), wanted, (1, 1))


def _either(one: Call, other: Call) -> Call:
    return Call("or", (one, other), Type("bool"))


def _common(one: Type, other: Type) -> Type:
    """Return the type in whose lanes values of two comparable types are compared."""
    found = meet(one.required(), other.required())
    assert found is not None, "comparable types have one"
    return found
