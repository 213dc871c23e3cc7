"""The logical graph: one node for each operator, as it is defined; the reference model in tests evaluates just this.

An operator has the columns that it reads, those that identify its records, and its name for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.expressions import stage
from ddcli.expressions.steps import ExplodeStep, FilterStep, MapStep, UnnestStep
from ddcli.expressions.tree import Column
from ddcli.plan.node import NO_KEYS, Node, inherited

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddcli.expressions.steps import Step
    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Columns, Graph, Keys, Origins


def columns_of(expressions: Iterable[Expression]) -> Columns:
    """Return the columns that any of the expressions reads."""
    return frozenset(name for expression in expressions for name in expression.columns())


def is_unique(keys: Keys, columns: Iterable[str]) -> bool:
    """Return whether no two records agree on these columns."""
    return any(key <= set(columns) for key in keys)


def _renamed(keys: Keys, names: Mapping[str, str]) -> Keys:
    """Return the keys of which all columns have a new name."""
    return frozenset(frozenset(names[name] for name in key) for key in keys if key <= names.keys())


class Source(Node):
    """An input of the pipeline, by name; `time` names its time columns, `meaning` has the options by which its rows are read."""

    name: str
    time: tuple[str, ...] = ("time",)
    meaning: str = ""
    arranged: tuple[str, ...] = ()
    """The key by which another pipeline keeps it."""

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.name, len(self.time), self.meaning, self.arranged)


class Upsert(Node):
    """The current record of each key of an input whose rows set a key's record from their time on.

    The rows have, beside the records, `PRESENT` (0: nothing) and `ORDER`, which decides among those of a key at one time. If it is
    `lasting`, `ORDER` decides among all rows of a key, at any times; among equal ones `MOMENT`, then `SEQUENCE`.
    """

    key: tuple[str, ...]
    lasting: bool = False

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.key, "lasting") if self.lasting else (self.key,)

    def column_origins(self) -> Origins:
        return {name: [(0, name)] for name in self.key}

    def reads(self, wanted: Columns) -> list[Columns]:
        sequence = {MOMENT, SEQUENCE} if self.lasting else set()
        return [wanted | {*self.key, PRESENT, ORDER} | sequence]


class Snapshots(Node):
    """The current table of an input whose rows of one time are the whole table; with a key, a table of one record for each key."""

    key: tuple[str, ...]

    def column_origins(self) -> Origins:
        return {name: [(0, name)] for name in self.key or self.schema}

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted | set(self.key)]


EXPORT = "export:"
"""The prefix of a graph's outputs that are arrangements for other pipelines."""


class Passthrough(Node):
    """The input itself."""

    def column_origins(self) -> Origins:
        return self.unchanged()

    @inherited
    def unique(self) -> Keys:
        return self.inputs[0].unique


class Watched(Passthrough):
    """An input whose records are watched: no multiplicity should be negative."""


PRESENT, ORDER, MOMENT, SEQUENCE = "$present", "$order", "$moment", "$sequence"
"""Columns of rows that are upserts, beside their data."""


class Apply(Node):
    """A linear step over each record: filter, map, unnest, explode or a Python function."""

    step: Step

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (stage.FusedSteps(self.inputs[0].schema, (self.step,)).text(),)

    def column_origins(self) -> Origins:
        return {name: [(0, origin)] for name, origin in self.step.origins(self.inputs[0].schema).items()}

    def reads(self, wanted: Columns) -> list[Columns]:
        step = self.step
        if isinstance(step, FilterStep):
            return [wanted | step.condition.columns()]
        if isinstance(step, MapStep):
            return [columns_of(expression for name, expression in step.columns if name in wanted)]
        if isinstance(step, UnnestStep):
            return [(wanted - {step.name}) | columns_of(step.call.args)]
        if isinstance(step, ExplodeStep):
            return [wanted | step.weight.columns()]
        return super().reads(wanted)

    @inherited
    def unique(self) -> Keys:
        if isinstance(self.step, FilterStep):
            return self.inputs[0].unique
        if isinstance(self.step, MapStep):
            have = self.inputs[0].schema
            names: dict[str, str] = {}
            for name, each in self.step.columns:  # one that there is twice under its own name, where it has that
                if isinstance(each, Column) and each.type.required() == have[each.name].required():
                    names[each.name] = name if name == each.name else names.get(each.name, name)
            return _renamed(self.inputs[0].unique, names)
        return NO_KEYS


class FilterOnRead(Apply):
    """A filter of an `Arrange`, or of another such: a join by the arrangement's key reads the arrangement and evaluates the condition."""


class JoinFunction(Node):
    """The records that a Python function makes of each record, each with a time that is joined with the record's own,
    and a factor of its diff. With `batch` it is given frames.
    """

    function: str
    batch: bool


class Temporal(Node):
    """Each record while `lower <= now < upper`, `now` being the time one reads at. The bounds have the time's type.

    None is no bound on that side; where a bound's value is null, the record is never there.
    """

    lower: Expression | None
    upper: Expression | None

    def column_origins(self) -> Origins:
        return self.unchanged()

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted | columns_of(bound for bound in (self.lower, self.upper) if bound)]


class Negate(Node):
    """The input with each diff negated."""

    def column_origins(self) -> Origins:
        return self.unchanged()

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted]


class Concat(Node):
    """The sum of inputs of equal schema."""

    def column_origins(self) -> Origins:
        return self.unchanged()

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted for _ in self.inputs]


class Consolidate(Passthrough):
    """The input itself, with at most one update for a record and time."""

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted]


class Arrange(Passthrough):
    """The input itself, indexed by key for every join or reduction by it."""

    by: tuple[str, ...]

    @property
    def read_by(self) -> tuple[tuple[str, ...], ...]:
        return (self.by,)

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted | set(self.by)]


class Inspect(Passthrough):
    """The input itself, whose updates are shown to a person under a label."""

    label: str


class Once(Node):
    """One record, 1, from the first time on at which the input has a record, even if that is retracted.

    It stands for rows of SQL that depend on no table: `values`, an aggregate of nothing. A collection without any input can't be written
    to a log, whose times are the inputs'.
    """

    @inherited
    def unique(self) -> Keys:
        return frozenset({frozenset()})


class BinaryNode(Node):
    """Pairs of a left and a right record, one from each of two inputs."""

    @property
    def left(self) -> Node:
        return self.inputs[0]

    @property
    def right(self) -> Node:
        return self.inputs[1]


class Join(BinaryNode):
    """Pairs of records with equal, non-null keys; `how`: which records without a partner stay, with nulls.

    `on` pairs a left column with a right one. `columns` has where each column of the result comes from: its name,
    the side ("left", "right", or "key" for one that equals both sides' key) and the column's name there (the left
    one's for a key).
    """

    on: tuple[tuple[str, str], ...]
    how: str
    columns: tuple[tuple[str, str, str], ...]

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
            found |= _renamed(self.inputs[0].unique, left)
        if self.how == "inner" and is_unique(self.inputs[0].unique, [one for one, _ in self.on]):
            found |= _renamed(self.inputs[1].unique, right)
        return found

    def sides(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the known columns of the left and of the right record, from values of the result's. A key that one side has is the other's, too, unless it is null."""
        known = [(side, source, values[name]) for name, side, source in self.columns if name in values]
        left = {source: value for side, source, value in known if side != "right"}
        right = {source: value for side, source, value in known if side == "right"}
        for one, other in self.on:
            if left.get(one) is not None:
                right.setdefault(other, left[one])
            elif right.get(other) is not None:
                left.setdefault(one, right[other])
        return left, right


class AsofJoin(BinaryNode):
    """Each left record with the right record of its key that is nearest: of those at or before its value, one with the greatest.

    `on` pairs columns that are equal, `at` is the pair that is compared. With `forward` it is the least value at or after, and `strict` leaves
    equal values out. Of several such records it is the first by the right columns in the order of `columns`, lane by lane. Nulls are
    neither equal nor before. A right record, of these columns alone, counts once if its multiplicity is positive; the left one's is that of the result. `how`
    decides whether left records without a partner stay, with nulls; `columns` is as in a join.
    """

    on: tuple[tuple[str, str], ...]
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

    def reads(self, wanted: Columns) -> list[Columns]:
        """Read of the right side all columns that the join has, wanted or not: they decide among records with equal values."""
        left = {source for name, side, source in self.columns if name in wanted and side != "right"}
        right = {source for _, side, source in self.columns if side == "right"}
        ons = [frozenset(pair[side] for pair in (*self.on, self.at)) for side in (0, 1)]
        return [ons[0] | left, ons[1] | right]

    @inherited
    def unique(self) -> Keys:
        return _renamed(
            self.inputs[0].unique, {source: name for name, side, source in reversed(self.columns) if side != "right"}
        )

    def sides(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the known columns of the left and of the right record, from values of the result's; of the right one also its key."""
        known = [(side, source, values[name]) for name, side, source in self.columns if name in values]
        left = {source: value for side, source, value in known if side != "right"}
        right = {other: left[one] for one, other in self.on if one in left}
        return left, right | {source: value for side, source, value in known if side == "right"}

    @property
    def condition(self) -> str:
        """Return the comparison, by the columns' names in the result."""
        named = {source: name for name, side, source in self.columns if side == "right"}
        return f"{self.at[0]} {self.compared} {named.get(self.at[1], self.at[1])}"

    @property
    def compared(self) -> str:
        """Return the operator that compares the left value with the right one."""
        return ("<" if self.forward else ">") + "=" * (not self.strict)


class Semijoin(Node):
    """Left records whose key is (or, with `anti`, is not) the key of some right record; a null key equals none."""

    on: tuple[tuple[str, str], ...]
    anti: bool

    @property
    def read_by(self) -> tuple[tuple[str, ...], ...]:
        return tuple(zip(*self.on, strict=True))

    def column_origins(self) -> Origins:
        return {name: [(0, name), *((1, other) for one, other in self.on if one == name)] for name in self.schema}

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted | {one for one, _ in self.on}, frozenset(other for _, other in self.on)]

    @inherited
    def unique(self) -> Keys:
        return self.inputs[0].unique


def sources(graph: Graph) -> dict[str, Source]:
    """Return the inputs that some output reads, by name."""
    return {node.name: node for node in graph.nodes() if isinstance(node, Source)}
