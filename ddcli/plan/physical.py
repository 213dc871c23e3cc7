"""The nodes of the physical graph: the engine's work. Logical operators become a few kinds of nodes, each with a known cost.

Linear chains are one `Linear`; joins and reductions read `Arrangement` nodes, equal ones shared; outer joins,
semijoins and antijoins are compositions. The state has the contents of nodes that keep some, by their fingerprint.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.expressions import stage
from ddcli.expressions.steps import FilterStep, MapStep
from ddcli.expressions.tree import Column, Literal
from ddcli.expressions.types import Schema, Type
from ddcli.plan.loops import OfLoop
from ddcli.plan.node import Node

if TYPE_CHECKING:
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.steps import Step
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.windows import WindowCall
    from ddcli.plan.node import Origins, Partition


ALL = "$all"
"""The key of a collection that is one group: one constant."""


class Scan(Node):
    """The columns of an input that some operator reads."""

    kind: ClassVar[str] = "input"
    name: str
    nt: int
    meaning: str = ""
    arranged: tuple[str, ...] = ()
    """The key by which another pipeline keeps it."""

    @property
    def work(self) -> None:
        return None


class UpsertTable(Node):
    """The current record of each key, the key's columns first. The input has these columns, then `PRESENT` and `ORDER`.

    With a `lasting` order the record is the row with the greatest, with `PRESENT`, `ORDER` and `MOMENT` among its columns, also
    if the key has nothing; the input has `SEQUENCE` behind these columns.
    """

    kind: ClassVar[str] = "upserts"
    key: tuple[str, ...]
    name: str
    lasting: bool = False

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.key, self.name, "lasting") if self.lasting else (self.key, self.name)

    def partition(self, times: int) -> Partition:
        return self.partition_by(self.key)


class SnapshotTable(Node):
    """The current table, the columns of its key first; without a key the records are whole."""

    kind: ClassVar[str] = "snapshots"
    key: tuple[str, ...]
    name: str

    @property
    def work(self) -> str:
        return "everything"

    def partition(self, times: int) -> Partition:
        return self.partition_by(self.key or self.schema)


class WholeRecords(Node):
    """Records that are exchanged by all of their columns."""

    def partition(self, times: int) -> Partition:
        return self.partition_by(self.schema)


class WatchedRecords(WholeRecords):
    """An input whose records are watched for negative multiplicities."""

    kind: ClassVar[str] = "watch"
    name: str


class Linear(Node):
    """A fused chain of linear steps."""

    steps: tuple[Step, ...]

    def column_origins(self) -> Origins:
        (given,) = self.inputs
        names = {name: name for name in given.schema}
        for step in self.steps:
            names = {name: names[origin] for name, origin in step.origins(names).items() if origin in names}
        return {name: [(0, origin)] for name, origin in names.items()}

    def partition(self, times: int) -> Partition:
        return self.partition_of_input(times)

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (stage.FusedSteps(self.inputs[0].schema, self.steps).text(),)

    @property
    def kind(self) -> str:
        """The words for its steps; "project" only if it has no other."""
        words = [step.kind for step in self.steps]
        return " + ".join(dict.fromkeys(word for word in words if word != "project")) or "project"


class Pick(Linear):
    """Some columns of a `Scan`. It is the scan of just these: it has the identity `scan`, even if other columns are read beside them."""

    scan: str

    @property
    def name(self) -> str:
        """The input's name."""
        (whole,) = self.inputs
        assert isinstance(whole, Scan)
        return whole.name

    @cached_property
    def fingerprint(self) -> str:
        """Identity: that of the scan."""
        return self.scan


class SignedSum(Node):
    """Inputs of equal schema, each times its sign."""

    signs: tuple[int, ...]

    @property
    def kind(self) -> str:
        """The word for it by its signs."""
        return "negate" if self.signs == (-1,) else "subtract" if -1 in self.signs else "concat"

    def partition(self, times: int) -> Partition:
        """Return that of all inputs: equal records may come of different ones, so these must lie in shards by the same columns."""
        first, *others = [child.partition(times) for child in self.inputs]
        return first if all(other == first for other in others) else None


class StandingRecord(WholeRecords):
    """The input's record from the first time on at which it exists, for good."""

    kind: ClassVar[str] = "once"


class Consolidated(WholeRecords):
    """At most one update for a record and time."""

    kind: ClassVar[str] = "consolidate"


class Show(WholeRecords):
    """Updates shown to a person on their way."""

    kind: ClassVar[str] = "inspect"
    label: str


class Arrangement(Node):
    """The input indexed by `key`. Its schema is the key columns, then the values. Kept as state under its fingerprint."""

    kind: ClassVar[str] = "arrange"
    key: tuple[str, ...]

    @property
    def value(self) -> tuple[str, ...]:
        """Return the columns that are not of the key."""
        return tuple(name for name in self.schema if name not in self.key)

    def partition(self, times: int) -> Partition:
        return self.partition_by(self.key)


def is_imported(node: Node) -> bool:
    """Return whether a node is the very arrangement that another pipeline keeps."""
    if not isinstance(node, Arrangement) or isinstance(node, Filtered | KeptArrangement):
        return False
    (scan,) = node.inputs
    return (
        isinstance(scan, Scan) and scan.arranged == node.key and list(scan.schema.items()) == list(node.schema.items())
    )


class KeptArrangement(Arrangement):
    """An arrangement whose contents come from a state: its input is a `Scan` of them. It has the identity `identity`."""

    identity: str

    @property
    def work(self) -> None:
        return None

    @cached_property
    def fingerprint(self) -> str:
        """Identity: that of the arrangement that it stands for."""
        return self.identity


class StateContents(Scan):
    """A collection that a state holds as it is, instead of the node `identity` that computes it."""

    kind: ClassVar[str] = "contents"
    identity: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the node whose collection it is."""
        return self.identity


class Filtered(Arrangement):
    """The input, an arrangement, without the rows for which some condition is not true. It is evaluated as rows are read: no state."""

    kind: ClassVar[str] = "filter on read"
    conditions: tuple[Expression, ...]


class EquiJoin(Node):
    """Pairs of two arrangements with equal keys; `columns` has each column's side ("left" or "right") and name there."""

    kind: ClassVar[str] = "join"
    columns: tuple[tuple[str, str, str], ...]

    def column_origins(self) -> Origins:
        keys = [child.key for child in self.inputs if isinstance(child, Arrangement)]
        found: Origins = {}
        for name, side, source in self.columns:
            at = int(side == "right")
            partners = [(1 - at, other) for own, other in zip(keys[at], keys[1 - at], strict=True) if own == source]
            found[name] = [(at, source), *partners]
        return found

    @property
    def work(self) -> str:
        left, right = self.inputs
        assert isinstance(left, Arrangement)
        assert isinstance(right, Arrangement)
        keys = zip(left.key, right.key, strict=True)
        alike = all(is_constant(left, one) or is_constant(right, other) for one, other in keys)
        return "everything" if alike else "output"

    def partition(self, times: int) -> Partition:
        if times > 1:  # its updates wait for their times, in shards by all of its columns
            return self.partition_by(self.schema)
        return self.partition_of_input(times)


class RowLookup(Node):
    """New updates, the first input, that are looked up in the second, an `Arrangement`; no collection by itself.

    `on` pairs columns: first those of the arrangement's key, then its first values. It finds the rows from before the step and, with
    `new`, those that are new in it.
    """

    on: tuple[tuple[str, str], ...]
    new: bool

    @property
    def arranged(self) -> Arrangement:
        """The arrangement."""
        found = self.inputs[1]
        assert isinstance(found, Arrangement)
        return found

    @property
    def work(self) -> str:
        return "output"


class HalfJoin(RowLookup):
    """The updates with the rows that they find; `columns` is as of an `EquiJoin`, the updates at the left."""

    kind: ClassVar[str] = "half join"
    columns: tuple[tuple[str, str, str], ...]


class RowCount(RowLookup):
    """The updates that find rows: those columns first by which they are looked up, and a last one with the number of rows."""

    kind: ClassVar[str] = "count matches"


class FewerRows(Node):
    """The updates, of two consecutive `RowCount`s, for which the second finds `fewer` rows than the first, or the others; without both counts."""

    kind: ClassVar[str] = "choose"
    fewer: bool


ROWS = "$rows"
"""The prefix of columns that hold the number of rows that an update finds."""


class DeltaJoin(Node):
    """The join of several collections without kept results: its inputs are the results of the updates of each (see `plan.delta`)."""

    kind: ClassVar[str] = "delta join"


class OfGroups(Node):
    """An operator over the groups of an `Arrangement`. It leaves its groups in the shards in which they are arranged, and has their keys among its columns."""

    @property
    def work(self) -> str:
        return work_of_groups(self)

    def partition(self, times: int) -> Partition:
        return self.inputs[0].partition(times)


class AsofGroup(OfGroups):
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
        return "output" if in_order_of_time(self) else work_of_groups(self)


SIDE = "$side"
"""The column of an as-of join's rows that marks them as of the left or the right."""
AT = "$at"
"""The column that is compared, of which the rows have the lanes."""


class Accumulate(Node):
    """Sums of a group that continue from themselves: counts and sums of `calls`. Keeps them, not the input.

    The input is `by` then one column for each call's argument; the schema has the columns of `accumulators`. State.
    """

    kind: ClassVar[str] = "reduce"
    by: tuple[str, ...]
    calls: tuple[AggregateCall, ...]

    def partition(self, times: int) -> Partition:
        return self.partition_by(self.by)


class Group(OfGroups):
    """A reduction that reads the rows of its groups: `Arrangement` input, one value for each call, kept beside it. State."""

    kind: ClassVar[str] = "reduce"
    by: tuple[str, ...]
    calls: tuple[AggregateCall, ...]


class PythonGroup(OfGroups):
    """A reduction by a Python function over an `Arrangement` input. State."""

    kind: ClassVar[str] = "reduce"
    by: tuple[str, ...]
    values: tuple[str, ...]
    function: str


class Multiplicity(OfGroups):
    """Each record of an `Arrangement` input (all columns the key) as often as `function` of its count returns. State."""

    function: Expression | None

    @property
    def kind(self) -> str:
        """The word for it by its function."""
        return "threshold" if self.function else "distinct"

    @property
    def work(self) -> str:
        return "change"


class Top(OfGroups):
    """The first `k` rows of each group of an `Arrangement` input, in the order of `order_by`. State."""

    kind: ClassVar[str] = "top_k"
    k: int
    order_by: tuple[tuple[str, bool], ...]


class WindowedGroup(OfGroups):
    """The rows of each group of an `Arrangement` input in the order of `order_by`, each with the cells of `calls`. State."""

    kind: ClassVar[str] = "window"
    order_by: tuple[tuple[str, bool], ...]
    calls: tuple[WindowCall, ...]

    @property
    def reach(self) -> int | None:
        """The number of rows on each side of a change that affect its result; None if that has no bound, or the input is not in order."""
        reaches = [call.reach for call in self.calls]
        known = [each for each in reaches if each is not None]
        if not known or len(known) < len(reaches) or lane_column(0) not in self.inputs[0].schema:
            return None
        return max(before for before, _ in known) + max(after for _, after in known)

    @property
    def work(self) -> str:
        bounded = "output" if isinstance(self, RunningGroup) else None if self.reach is None else "change"
        return (bounded if in_order_of_time(self) else None) or work_of_groups(self, "partition")


class RunningGroup(WindowedGroup):
    """A window whose calls all continue from row to row; `backwards`: from the last row to the first, in which order its input is arranged. State."""

    backwards: bool


def lane_column(at: int) -> str:
    """Return the column of the lanes of the key of an order."""
    return f"$order{at}"


def lane_columns(name: str, kind: Type) -> Schema:
    """Return the columns that hold the lanes of a column of an ordered kind as plain integers."""
    return {name if not at else f"{name}.{at}": Type("int64") for at in range(kind.lanes)}


class OrderLanes(Node):
    """The input with further columns that hold lanes of others as integers: (name, column, whether inverted).

    Inverting reverses the order of integers, so that a descending order is an ascending one of lanes.
    """

    kind: ClassVar[str] = "order"
    lanes: tuple[tuple[str, str, bool], ...]

    def partition(self, times: int) -> Partition:
        return self.inputs[0].partition(times)


class EnterAt(OfLoop):
    """Each record of the input from the loop's round on that is in its last column, "$round"; without that column."""

    kind: ClassVar[str] = "enter"


class Shift(Node):
    """Each record of the input from the time "$from" to the time "$until", its last columns; without these.

    `lower` and `upper` are true for those of the two that exist. Its updates may be at future times, so a `Delay` reads it.
    """

    kind: ClassVar[str] = "temporal_filter"
    lower: bool
    upper: bool


class PythonShift(Node):
    """The updates that a Python function makes of each record: records, times, diffs. As for `Shift`, a `Delay` reads it."""

    kind: ClassVar[str] = "join_function"
    function: str
    batch: bool


WAITING = "-waiting"
"""The ending of a trace's name that keeps a node's updates until their time."""


class Delay(WholeRecords):
    """The input, whose updates at future times are kept until these times are reached. State."""

    kind: ClassVar[str] = "delay"


def in_order_of_time(node: Node) -> bool:
    """Return whether the times of a node are totally ordered: one coordinate, outside of loops. Elsewhere windows and as-of joins read whole groups."""
    if node.free:
        return False
    while node.inputs:
        node = node.inputs[0]
    return not isinstance(node, Scan) or node.nt == 1


def work_of_groups(node: Node, groups: str = "groups") -> str:
    """Return the class of an operator that reads `groups` of its arrangement, which may be a single one, of all rows."""
    (arranged,) = node.inputs
    assert isinstance(arranged, Arrangement)
    return "everything" if all(is_constant(arranged, name) for name in arranged.key) else groups


def is_constant(node: Node, column: str) -> bool:
    """Return whether a column has one value only, as far as its expression shows."""
    while isinstance(node, Linear | Arrangement | OrderLanes):
        for step in reversed(node.steps) if isinstance(node, Linear) else ():
            if isinstance(step, MapStep):
                found = dict(step.columns).get(column)
                if not isinstance(found, Column):
                    return isinstance(found, Literal)
                column = found.name
            elif not isinstance(step, FilterStep) and column not in node.inputs[0].schema:
                return False
        (node,) = node.inputs
    return column == ALL
