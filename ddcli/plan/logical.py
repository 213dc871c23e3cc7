"""The logical graph: one node an operator, as its definition reads; the reference model in tests evaluates just this.

A node knows its inputs and its schema. Its identity is its fingerprint: the hash of what it says and of its inputs'
fingerprints. Names of collections, places in the file and formatting are no part of it, so equal subgraphs are one
node however they are written, and renaming or reformatting changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import field, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ddcli.dataclass import dataclass
from ddcli.expressions import stage
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.errors import Span
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.row_order import RowOrder
    from ddcli.expressions.steps import Step
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.expressions.windows import WindowCall


_JSON = json.JSONEncoder(separators=(",", ":"))


def digest(*parts: Any) -> str:
    """Return a short stable hash of JSON-able parts."""
    return hashlib.sha256(_JSON.encode(parts).encode()).hexdigest()[:20]


T = TypeVar("T")


class inherited(cached_property[T]):  # noqa: N801 - read as a decorator, as `cached_property` is
    """A cached property of a node that is made of the same property of its inputs.

    That of the nodes below is computed first, from the inputs on, so that no graph is too deep.
    """

    def __get__(self, node: Any, owner: type[Any] | None = None) -> Any:
        if node is None:
            return self
        name = self.attrname
        assert name is not None
        if any(name not in child.__dict__ for child in node.inputs):
            for each in below(node, lambda known: name in known.__dict__):
                if each is not node:
                    getattr(each, name)  # a class may have a way of its own
        found = node.__dict__[name] = self.func(node)
        return found


def below(
    node: Node, known: Callable[[Node], bool], inputs: Callable[[Node], Sequence[Node]] = lambda node: node.inputs
) -> Iterator[Node]:
    """Yield a node and those below it, each after its inputs, without those that are `known`.

    Whoever takes a node makes it known before the next: what is below a node that is known is passed over. `inputs` may say of a
    node that it has others to come first.
    """
    left = [node]
    while left:
        unknown = [child for child in inputs(left[-1]) if not known(child)]
        left += reversed(unknown)
        if not unknown:
            found = left.pop()
            if not known(found):
                yield found


FORMER_NAMES = {
    "Arrangement": "Arranged",
    "Consolidated": "Consolidate",
    "KeptArrangement": "Kept",
    "LoopVariable": "Variable",
    "SignedSum": "Sum",
    "SnapshotTable": "Snapshots",
    "StateContents": "Contents",
    "Upsert": "Upserts",
    "UpsertTable": "Upserts",
    "WatchedRecords": "Watched",
}
"""Nodes whose classes had other names when states were first written."""


class LoopName(NamedTuple):
    """A loop by name, and how many loops deep its body is."""

    depth: int
    name: str


@dataclass(frozen=True, eq=False)
class Node:
    """An operator over collections. `schema` is that of its result."""

    inputs: tuple[Node, ...]
    schema: Schema

    @property
    def operator(self) -> str:
        """What fingerprints call the operator. States hold them: it stays as it is when its class is renamed."""
        return FORMER_NAMES.get(type(self).__name__, type(self).__name__)

    @property
    def says(self) -> tuple[Any, ...]:
        """What distinguishes the node from others of its class over the same inputs, JSON-able: the texts of its own fields."""
        kind: Any = type(self)
        return tuple(_plain_value(getattr(self, name)) for name in _own_fields(kind))

    @inherited
    def fingerprint(self) -> str:
        """Identity: equal fingerprints mean equal collections."""
        columns = [(name, str(kind)) for name, kind in self.schema.items()]
        return digest(self.operator, self.says, columns, [node.fingerprint for node in self.inputs])

    @inherited
    def free(self) -> frozenset[LoopName]:
        """The loops whose round the collection depends on; without any, it is the same in every round."""
        return frozenset().union(*(node.free for node in self.inputs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


@cache
def _own_fields(kind: Any) -> tuple[str, ...]:
    """Return the names of a class's fields beside inputs and schema."""
    return tuple(each.name for each in fields(kind)[2:])


def _plain_value(value: Any) -> Any:
    """Return a field's value as JSON has it: expressions and aggregate calls as text, functions with what identifies them."""
    if isinstance(value, tuple):
        return tuple(map(_plain_value, value))
    if isinstance(value, str):
        return stage.identity(value)
    return value.text() if hasattr(value, "text") else value


@dataclass(frozen=True, eq=False)
class Source(Node):
    """An input of the pipeline, by name; `time` names its time columns, `meaning` is how its rows are understood."""

    name: str
    time: tuple[str, ...] = ("time",)
    meaning: str = ""
    arranged: tuple[str, ...] = ()
    """The key by which another pipeline keeps it."""

    @property
    def says(self) -> tuple[Any, ...]:
        return (self.name, len(self.time), self.meaning, self.arranged)


@dataclass(frozen=True, eq=False)
class Upsert(Node):
    """The current record of each key of an input whose rows say what keys have from their time on.

    The rows have, beside the records, `PRESENT` (0: nothing) and `ORDER`, which decides among those of a key at one time. If it is
    `lasting`, `ORDER` decides among all rows of a key, whatever their times; of equal ones `MOMENT`, then `SEQUENCE`.
    """

    key: tuple[str, ...]
    lasting: bool = False

    @property
    def says(self) -> tuple[Any, ...]:
        return (self.key, "lasting") if self.lasting else (self.key,)


@dataclass(frozen=True, eq=False)
class Snapshots(Node):
    """The current table of an input whose rows of one time are the whole table; with a key, of one record a key."""

    key: tuple[str, ...]


EXPORT = "export:"
"""How the names of a graph's outputs begin that are arrangements for other pipelines."""


@dataclass(frozen=True, eq=False)
class Watched(Node):
    """An input whose records are watched: none should be there less than no times."""


PRESENT, ORDER, MOMENT, SEQUENCE = "$present", "$order", "$moment", "$sequence"
"""Columns of rows that are upserts, beside their data."""


@dataclass(frozen=True, eq=False)
class Apply(Node):
    """A linear step over each record: filter, map, unnest, explode or a Python function."""

    step: Step

    @property
    def says(self) -> tuple[Any, ...]:
        return (stage.FusedSteps(self.inputs[0].schema, (self.step,)).text(),)


@dataclass(frozen=True, eq=False)
class FilterOnRead(Apply):
    """A filter of an `Arrange`, or of another such: a join by the arrangement's key reads the arrangement and evaluates the condition."""


@dataclass(frozen=True, eq=False)
class JoinFunction(Node):
    """What a Python function makes of each record: records, each with a time that is joined with the record's own,
    and a factor of its diff. With `batch` it is given frames.
    """

    function: str
    batch: bool


@dataclass(frozen=True, eq=False)
class Temporal(Node):
    """Each record while `lower <= now < upper`, `now` being the time one reads at. The bounds have the time's type.

    None is no bound on that side; where a bound's value is null, the record is never there.
    """

    lower: Expression | None
    upper: Expression | None


@dataclass(frozen=True, eq=False)
class Negate(Node):
    """The input with each diff negated."""


@dataclass(frozen=True, eq=False)
class Concat(Node):
    """The sum of inputs of equal schema."""


@dataclass(frozen=True, eq=False)
class Consolidate(Node):
    """The input itself, with at most one update for a record and time."""


@dataclass(frozen=True, eq=False)
class Arrange(Node):
    """The input itself, indexed by key for every join or reduction by it."""

    by: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Inspect(Node):
    """The input itself, whose updates are shown to a person under a label."""

    label: str


@dataclass(frozen=True, eq=False)
class Once(Node):
    """One record, 1, from the first time on at which the input has a record, whatever becomes of that.

    What SQL has rows of that depend on no row: `values`, an aggregate of nothing. A collection that is there without any input can't be written
    to a log, whose times the inputs' are.
    """


@dataclass(frozen=True, eq=False)
class Pairing(Node):
    """Pairs of a left and a right record, one from each of two inputs."""

    @property
    def left(self) -> Node:
        return self.inputs[0]

    @property
    def right(self) -> Node:
        return self.inputs[1]


@dataclass(frozen=True, eq=False)
class Join(Pairing):
    """Pairs of records with equal, non-null keys; `how`: which records without a partner stay, with nulls.

    `on` pairs a left column with a right one. `columns` has where each column of the result comes from: its name,
    the side ("left", "right", or "key" for one that equals both sides' key) and the column's name there (the left
    one's for a key).
    """

    on: tuple[tuple[str, str], ...]
    how: str
    columns: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, eq=False)
class AsofJoin(Pairing):
    """Each left record with the right record of its key that is nearest: of those at or before its value, one with the greatest.

    `on` pairs columns that are equal, `at` is the pair that is compared. With `forward` it is the least value at or after, and `strict` leaves
    equal values out. Of several such records it is the first by the right columns in the order of `columns`, lane by lane. Nulls are
    neither equal nor before. A right record, of these columns alone, counts once if its multiplicity is positive; the left one's is that of the result. `how`
    says whether left records without a partner stay, with nulls; `columns` is as of a join.
    """

    on: tuple[tuple[str, str], ...]
    at: tuple[str, str]
    how: str
    forward: bool
    strict: bool
    columns: tuple[tuple[str, str, str], ...]

    def sides(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what is known of the left and of the right record by values of the result's; of the right one also its key."""
        known = [(side, source, values[name]) for name, side, source in self.columns if name in values]
        left = {source: value for side, source, value in known if side != "right"}
        right = {other: left[one] for one, other in self.on if one in left}
        return left, right | {source: value for side, source, value in known if side == "right"}

    @property
    def condition(self) -> str:
        """What is compared, by the columns' names in the result."""
        named = {source: name for name, side, source in self.columns if side == "right"}
        return f"{self.at[0]} {self.compared} {named.get(self.at[1], self.at[1])}"

    @property
    def compared(self) -> str:
        """How the left value compares with the right one's."""
        return ("<" if self.forward else ">") + "=" * (not self.strict)


@dataclass(frozen=True, eq=False)
class Semijoin(Node):
    """Left records whose key is (or, with `anti`, is not) the key of some right record; a null key equals none."""

    on: tuple[tuple[str, str], ...]
    anti: bool


@dataclass(frozen=True, eq=False)
class Reduce(Node):
    """One record a group: the `by` expressions, then `results`, expressions over "$i", the i-th of `calls`."""

    by: tuple[tuple[str, Expression], ...]
    calls: tuple[AggregateCall, ...]
    results: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, eq=False)
class Grouped(Node, ABC):
    """An operator whose records of a group, those with equal `by` columns, depend on all of the input's and on no other group's."""

    by: tuple[str, ...]

    @property
    @abstractmethod
    def title(self) -> str:
        """What people call it, without its groups and its order."""


@dataclass(frozen=True, eq=False)
class PythonReduce(Grouped):
    """A Python reducer: `(key, [(value, count), ...]) -> [(value, count), ...]` a group; tuples of columns."""

    values: tuple[str, ...]
    function: str

    @property
    def title(self) -> str:
        return f"reduce {self.function}"


@dataclass(frozen=True, eq=False)
class Threshold(Node):
    """Each record with the multiplicity that `function` (an expression over "count") returns; None is distinct."""

    function: Expression | None


@dataclass(frozen=True, eq=False)
class TopK(Grouped):
    """The first `k` records of each group, counting multiplicities, in the order of `order_by` (a column and
    whether it descends), ties by the remaining columns in lane order.
    """

    k: int
    order_by: tuple[tuple[str, bool], ...]

    @property
    def title(self) -> str:
        return f"top {self.k}"


@dataclass(frozen=True, eq=False)
class Window(Grouped):
    """Each row, copies of a record being rows of their own, with the values of `calls` over the ordered rows of its partition, in columns more.

    The order is that of `order_by` (a column and whether it descends), ties by the remaining columns in lane order. A record whose
    multiplicity is negative is no row.
    """

    order_by: tuple[tuple[str, bool], ...]
    calls: tuple[tuple[str, WindowCall], ...]

    @property
    def title(self) -> str:
        return f"window {', '.join(call.text() for _, call in self.calls)}"


@dataclass(frozen=True)
class Graph:
    """A pipeline's named outputs over its sources. `engines` has the engines of nodes for which the file chooses one.

    `notes` are what is worth knowing of its queries, each at its place; `places` says where nodes are written, by fingerprint: the
    path there, and its place; `orders` has the orders in which outputs are shown, of those that have one.
    """

    outputs: dict[str, Node]
    engines: dict[str, frozenset[str]] = field(default_factory=dict)
    notes: tuple[tuple[Span, str], ...] = ()
    places: dict[str, tuple[str, Span]] = field(default_factory=dict)
    orders: dict[str, RowOrder] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the whole: equal for equal outputs under equal names."""
        return digest(sorted((name, node.fingerprint) for name, node in self.outputs.items()))

    def nodes(self) -> list[Node]:
        """Return every node once, inputs before their readers."""
        return [*self._nodes]

    @cached_property
    def _nodes(self) -> tuple[Node, ...]:
        seen: dict[str, Node] = {}
        for node in self.outputs.values():
            for reached in below(node, lambda known: known.fingerprint in seen):
                seen[reached.fingerprint] = reached
        return (*seen.values(),)

    def sources(self) -> dict[str, Source]:
        """Return the inputs that some output reads, by name."""
        return {node.name: node for node in self.nodes() if isinstance(node, Source)}
