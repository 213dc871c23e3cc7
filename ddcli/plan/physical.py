"""The nodes of the physical graph: the engine's work. Logical operators become a few kinds of nodes, each with a known cost.

Linear chains are one `Linear`; joins and reductions read `Arrangement` nodes, equal ones shared; outer joins,
semijoins and antijoins are compositions. The state has the contents of nodes that keep some, by their fingerprint.
The engines that the file chooses are no part of any identity: the place where a collection is computed doesn't change it.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.dataclass import dataclass
from ddcli.expressions.tree import Column, ExplodeStep, FilterStep, Literal, MapStep, text_of
from ddcli.expressions.types import Schema, Type
from ddcli.plan import words
from ddcli.plan.node import Graph, Node, digest
from ddcli.plan.words import ALL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.tree import Expression, Step
    from ddcli.expressions.types import RowOrder
    from ddcli.plan.estimates import PastRows
    from ddcli.plan.node import Origins, Partition, Values


class Scan(Node):
    """The columns of an input that some operator reads."""

    kind: ClassVar[str] = "input"
    name: str
    nt: int
    meaning: str = ""
    arranged: tuple[str, ...] = ()
    """The key that another pipeline keeps it by."""

    @cached_property
    def is_physical(self) -> bool:
        """True: below it there is nothing else of a graph."""
        return True

    @property
    def work(self) -> None:
        return None

    def details(self) -> list[str]:
        return [" ".join(self.meaning.split())] if self.meaning else []


class WholeRecords(Node):
    """Records that are exchanged by all of their columns."""

    @property
    def exchanged_by(self) -> tuple[str, ...]:
        return tuple(self.schema)

    def partition(self, times: int) -> Partition:
        return self.partition_by(self.schema)


class ForwardedRecords(WholeRecords):
    """The input's records, each as often."""

    forwards: ClassVar[bool] = True

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        return [(self.inputs[0], known)]


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
    def keeps_signs(self) -> bool:
        return not any(isinstance(step, ExplodeStep) for step in self.steps)

    @property
    def repeats(self) -> bool:
        return any(each.in_parts or each.repeats for each in self.inputs)

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        conditions = [step.condition for step in self.steps if isinstance(step, FilterStep)]
        return inputs[0] * past.passing(self.fingerprint, conditions)

    def details(self) -> list[str]:
        texts = self.inputs[0].result_texts()
        lines = [words.step(step, texts) for step in self.steps]
        own = [name for name in self.schema if not words.OWN.fullmatch(name) and not words.is_copy(name, self.schema)]
        named = dict.fromkeys(map(words.named, own))
        return [line for line in lines if line] or [f"to {', '.join(named)}"]

    def texts(self) -> dict[str, str]:
        return self.with_steps(super().texts())

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        return [(self.inputs[0], self.restriction(known)[0])]

    def with_steps(self, texts: dict[str, str]) -> dict[str, str]:
        """Return the texts of the plan's own columns with those that the steps compute."""
        for step in self.steps:
            words.step(step, texts)
        return texts

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (text_of(self.steps),)

    @property
    def kind(self) -> str:
        """The words for its steps; "project" only if it has no other."""
        words = [step.kind for step in self.steps]
        return " + ".join(dict.fromkeys(word for word in words if word != "project")) or "project"


class Pick(Linear):
    """Some columns of a `Scan`. It is the scan of just these: it has the identity `scan`, even if other columns are read beside them."""

    scan: str

    def searched(self, known: Values) -> None:
        return None

    @property
    def name(self) -> str:
        """The input's name."""
        (whole,) = self.inputs
        assert isinstance(whole, Scan)
        return whole.name

    @cached_property
    def fingerprint(self) -> str:
        """The scan's identity."""
        return self.scan


class Arrangement(Node):
    """The input indexed by `key`. Its schema is the key columns, then the values. Kept as state under its fingerprint."""

    kind: ClassVar[str] = "arrange"
    forwards: ClassVar[bool] = True
    key: tuple[str, ...]

    @property
    def value(self) -> tuple[str, ...]:
        """Return the columns that are not of the key."""
        return tuple(name for name in self.schema if name not in self.key)

    def column_origins(self) -> Origins:
        return {name: [(0, name)] for name in self.schema}

    @property
    def is_imported(self) -> bool:
        """True for the very arrangement that another pipeline keeps."""
        (scan,) = self.inputs
        same = isinstance(scan, Scan) and scan.arranged == self.key
        return same and list(scan.schema.items()) == list(self.schema.items())

    @property
    def exchanged_by(self) -> tuple[str, ...] | None:
        return self.key

    @property
    def kept_by(self) -> tuple[str, ...]:
        return self.key

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        return None if self.is_imported else [(self.inputs[0], known)]

    def partition(self, times: int) -> Partition:
        return self.partition_by(self.key)

    def keeps_state(self, times: int) -> bool:
        return not self.is_imported

    @property
    def keeps_signs(self) -> bool:
        return True

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        return sum(inputs)

    def details(self) -> list[str]:
        return [f"by {self.key_text()}"]

    @property
    def groups(self) -> str:
        return "" if set(self.key) <= {ALL} else self.key_text()

    def key_text(self) -> str:
        """Return the columns of the key in the words of the pipeline file."""
        return words.key(self.key, self.texts())


class KeptArrangement(Arrangement):
    """An arrangement whose contents come from a state: its input is a `Scan` of them. It has the identity `identity`."""

    identity: str
    is_imported: ClassVar[bool] = False

    @property
    def work(self) -> None:
        return None

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the arrangement that it stands for."""
        return self.identity


class NarrowScan(Scan):
    """Some columns of an input, instead of the scan `identity` of all that a plan reads of it."""

    identity: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the node that it stands for."""
        return self.identity


class StateContents(NarrowScan):
    """A collection that a state holds as it is, instead of the node `identity` that computes it."""

    kind: ClassVar[str] = "contents"


class Filtered(Arrangement):
    """The input, an arrangement, without the rows for which some condition is not true. It is evaluated as rows are read: no state."""

    kind: ClassVar[str] = "filter on read"
    forwards: ClassVar[bool] = False
    is_imported: ClassVar[bool] = False
    exchanged_by: ClassVar[None] = None
    keeps_signs: ClassVar[bool] = False
    conditions: tuple[Expression, ...]

    def keeps_state(self, times: int) -> bool:
        return False

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        return inputs[0] * past.passing(self.fingerprint, self.conditions)

    def details(self) -> list[str]:
        return [f"where {words.without_parentheses(condition.text())}" for condition in self.conditions]


def origins_of_pairs(columns: Sequence[tuple[str, str, str]], on: Sequence[tuple[str, str]]) -> Origins:
    """Return the origins of the columns of pairs of records that are equal in the pairs of columns `on`: a column's own, and those that equal it."""
    found: Origins = {}
    for name, side, source in columns:
        at = int(side == "right")
        found[name] = [(at, source), *((1 - at, pair[1 - at]) for pair in on if pair[at] == source)]
    return found


class EquiJoin(Node):
    """Pairs of two arrangements with equal keys; `columns` has each column's side ("left" or "right") and name there."""

    kind: ClassVar[str] = "join"
    joins: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True
    columns: tuple[tuple[str, str, str], ...]

    @property
    def sides(self) -> tuple[Arrangement, Arrangement]:
        """The arrangements that are joined."""
        left, right = self.inputs
        assert isinstance(left, Arrangement)
        assert isinstance(right, Arrangement)
        return left, right

    def column_origins(self) -> Origins:
        left, right = self.sides
        return origins_of_pairs(self.columns, [*zip(left.key, right.key, strict=True)])

    @property
    def work(self) -> str:
        left, right = self.sides
        keys = zip(left.key, right.key, strict=True)
        alike = all(is_constant(left, one) or is_constant(right, other) for one, other in keys)
        return "everything" if alike else "output"

    def partition(self, times: int) -> Partition:
        if times > 1:  # its updates wait for their times, in shards by all of its columns
            return self.partition_by(self.schema)
        return self.partition_of_input(times)

    def keeps_state(self, times: int) -> bool:
        return times > 1

    @property
    def repeats(self) -> bool:
        """True if it leaves out columns that tell rows apart."""
        left, right = self.sides
        kept = {(side, source) for _, side, source in self.columns}
        return not kept >= {("left", name) for name in left.schema} | {("right", name) for name in right.value}

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        left, right = (child.fingerprint for child in self.inputs)
        return past.joined(self.fingerprint, left, right, inputs)

    def details(self) -> list[str]:
        left, right = self.sides
        named = (
            (
                words.column(words.copied(one, left.key), left.texts()),
                words.column(words.copied(other, right.key), right.texts()),
            )
            for one, other in zip(left.key, right.key, strict=True)
        )
        return [words.pairs(named)]


class OfGroups(Node):
    """An operator over the groups of an `Arrangement`. It leaves its groups in the shards in which they are arranged, and has their keys among its columns."""

    @property
    def arranged(self) -> Arrangement:
        """The arrangement."""
        (found,) = self.inputs
        assert isinstance(found, Arrangement)
        return found

    @property
    def kept_by(self) -> tuple[str, ...]:
        return self.inputs[0].kept_by

    @property
    def work(self) -> str:
        return self.work_of_groups("groups")

    def work_of_groups(self, groups: str) -> str:
        """Return the class of an operator that reads `groups` of its arrangement, which may be a single one, of all rows."""
        return "everything" if all(is_constant(self.arranged, name) for name in self.arranged.key) else groups

    def partition(self, times: int) -> Partition:
        return self.inputs[0].partition(times)


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

    def details(self) -> list[str]:
        texts = argument_texts(self)
        ordered = dict.fromkeys((column, inverted) for _, column, inverted in self.lanes)
        return ["by " + ", ".join(words.key([name], texts) + " desc" * inverted for name, inverted in ordered)]

    def partition(self, times: int) -> Partition:
        return self.inputs[0].partition(times)

    @property
    def repeats(self) -> bool:
        return any(each.in_parts or each.repeats for each in self.inputs)


WAITING = "-waiting"
"""The ending of a trace's name that keeps a node's updates until their time."""


def in_order_of_time(node: Node) -> bool:
    """Return whether the times of a node are totally ordered: one coordinate, outside of loops. Elsewhere windows and as-of joins read whole groups."""
    if node.free:
        return False
    while node.inputs:
        node = node.inputs[0]
    return not isinstance(node, Scan) or node.nt == 1


def argument_texts(node: Node) -> dict[str, str]:
    """Return the expressions behind the plan's own columns that a reduction reads."""
    (prepared,) = node.inputs
    if isinstance(prepared, Arrangement):
        (prepared,) = prepared.inputs
    if isinstance(prepared, OrderLanes):
        (prepared,) = prepared.inputs
    return prepared.with_steps(prepared.inputs[0].result_texts()) if isinstance(prepared, Linear) else {}


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


EXPORT = "export:"
"""The prefix of a graph's outputs that are arrangements for other pipelines."""
HISTORY = "history:"
"""The prefix of the names of arrangements in which histories look up the updates of keys, with all times; no name that a file exports has a colon."""


@dataclass(frozen=True)
class PhysicalGraph:
    """Outputs by name, and every node once, inputs before readers. `engines` has the engines of nodes for which the file chooses one.

    `orders` has the orders in which outputs are shown, `tags` the tags of their columns: neither is a part of the plan's identity.
    """

    outputs: dict[str, Node]
    nodes: tuple[Node, ...]
    engines: dict[str, frozenset[str]] = field(default_factory=dict)
    orders: dict[str, RowOrder] = field(default_factory=dict)
    tags: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the plan that built the state."""
        return digest(sorted((name, node.fingerprint) for name, node in self.outputs.items()))

    @property
    def exports(self) -> dict[str, str]:
        """The identities of the arrangements that other pipelines may read, by name."""
        return {
            name.removeprefix(EXPORT): node.fingerprint
            for name, node in self.outputs.items()
            if name.startswith(EXPORT)
        }

    @cached_property
    def only_joined(self) -> frozenset[str]:
        """The identities of the arrangements that are read by joins alone."""
        others = {node.fingerprint for node in self.outputs.values()}
        for node in self.nodes:
            if not node.joins:
                others.update(child.fingerprint for child in node.inputs)
        return frozenset(
            node.fingerprint for node in self.nodes if isinstance(node, Arrangement) and node.fingerprint not in others
        )

    def scans(self) -> dict[str, Scan]:
        """Return the inputs that are read, by name, with the columns they need."""
        return {node.name: node for node in self.nodes if isinstance(node, Scan)}


def physical_graph(outputs: dict[str, Node], engines: Engines | None = None) -> PhysicalGraph:
    """Return the graph of physical outputs."""
    return PhysicalGraph(outputs, tuple(Graph(outputs).nodes()), engines or {})


def latest_horizon(node: Node, horizons: Mapping[str, int]) -> int | None:
    """Return the first time at which a collection is known: the latest of its inputs' horizons; None without any."""
    scans = physical_graph({"": node}).scans()
    return max((horizons[name] for name in scans if name in horizons), default=None)


Engines = dict[str, frozenset[str]]
"""The engines that the file chooses, by fingerprint of nodes. A node that two collections share may have two."""
