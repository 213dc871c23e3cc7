"""The nodes of a plan, operators over collections, and graphs of them; `logical` and `physical` have the operators.

A node has inputs and a schema. Its identity is its fingerprint: the hash of its own fields and of its inputs'
fingerprints. Names of collections, places in the file and formatting are no part of it, so equal subgraphs are one
node however they are written, and new names or another format change nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import field, fields, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, dataclass_transform, overload

from ddcli.dataclass import dataclass
from ddcli.expressions.revisions import revisions_of
from ddcli.expressions.tree import Column, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ddcli.errors import Span
    from ddcli.expressions.tree import Expression, Step
    from ddcli.expressions.types import RowOrder, Schema, Type
    from ddcli.plan.estimates import PastRows
    from ddcli.plan.lower import GraphLowering


_JSON = json.JSONEncoder(separators=(",", ":"))


def digest(*parts: Any) -> str:
    """Return a short stable hash of JSON-able parts."""
    return hashlib.sha256(_JSON.encode(parts).encode()).hexdigest()[:20]


T = TypeVar("T")


class inherited(cached_property[T]):  # noqa: N801 - read as a decorator, as `cached_property` is
    """A cached property of a node that is computed from the same property of its inputs.

    That of the nodes below is computed first, from the inputs on, so that no graph is too deep.
    """

    @overload
    def __get__(self, node: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, node: object, owner: type[Any] | None = None) -> T: ...
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

    The caller makes each node known before it takes the next: nodes below a known one are left out. `inputs` may return other
    nodes that must come before a node.
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
    "KeptArrangement": "Kept",
    "LoopVariable": "Variable",
    "StateContents": "Contents",
    "Upsert": "Upserts",
}
"""Nodes whose classes had other names when states were first written."""


Columns = frozenset[str]
Keys = frozenset[Columns]
"""Sets of columns that each identify a record of a collection: at every time, at most one has each of their values."""
NO_KEYS: Keys = frozenset()


InputColumn = tuple[int, str]
"""The number of an input, and one of its columns."""
Origins = dict[str, list[InputColumn]]
Partition = tuple[tuple[str, "Type"], ...] | None
"""The columns that a collection is partitioned by, each with the type that it had at the exchange, which decided its lanes. None: nothing is known."""
Values = dict[str, Any]
"""Values of some of a record's columns."""


def pairs_of(columns: Iterable[Iterable[str]]) -> list[InputColumn]:
    """Return the columns of each input, one list, in order."""
    return [(at, name) for at, names in enumerate(columns) for name in sorted(names)]


class LoopName(NamedTuple):
    """A loop's name, and the depth of its body in loops."""

    depth: int
    name: str


Written = tuple[str | dict[str, Any], list[Any]]
"""A collection in a pipeline file: its source, or all of it, and the operators after that."""


class Unwritten(Exception):
    """A node for which a pipeline file has no operators; the message names it."""


class Writer(Protocol):
    """The writer of a query's nodes as operators of a pipeline file, as the nodes see it."""

    def chain(self, node: Node, /) -> Written:
        """Return a node's collection."""

    def named(self, node: Node, /) -> str:
        """Return the name of a collection with a node's records."""

    def after(self, node: Node, /, *operators: Any) -> Written:
        """Return a node's first input with operators after it."""

    def matched(self, node: Any, word: str, /) -> Written:
        """Return a collection whose records have partners in another one, or none: `word` is its operator."""

    def joined(
        self,
        node: Any,
        word: str,
        how: str,
        columns: Iterable[tuple[str, str, str]],
        at: tuple[str, str] | None = None,
        **more: Any,
    ) -> Written:
        """Return a join with these columns of its sides, whose operator is `word`; `at` is a pair of columns that it compares."""

    def left(self, node: Any, /) -> Written:
        """Return a collection that leaves a loop."""


@dataclass_transform(frozen_default=True, eq_default=False)
@dataclass(frozen=True, eq=False)
class Node:
    """An operator over collections. `schema` is its result's. Its subclasses are made dataclasses like this one."""

    inputs: tuple[Node, ...]
    schema: Schema

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False)(cls)

    @property
    def operator(self) -> str:
        """Return the operator's name in fingerprints. States hold them: it stays as it is when its class is renamed."""
        if self.physical_name and self.is_physical:
            return self.physical_name
        return FORMER_NAMES.get(type(self).__name__, type(self).__name__)

    physical_name: ClassVar[str] = ""
    """The operator's name in physical graphs, where states hold another one than in logical graphs; a new node needs none."""

    @inherited
    def is_physical(self) -> bool:
        """True in a physical graph: some nodes are in logical graphs, too."""
        return any(child.is_physical for child in self.inputs)

    @property
    def kind(self) -> str:
        """The word for a physical node's work, for counts, plans and pictures."""
        raise NotImplementedError

    @property
    def identity_values(self) -> tuple[Any, ...]:
        """Return the fields that distinguish the node from others of its class over the same inputs, JSON-able: the texts of its own fields."""
        kind: Any = type(self)
        return tuple(_plain_value(getattr(self, name)) for name in _own_fields(kind))

    @inherited
    def fingerprint(self) -> str:
        """Identity: equal fingerprints mean equal collections."""
        columns = [(name, str(kind)) for name, kind in self.schema.items()]
        parts = (self.operator, self.identity_values, columns, [node.fingerprint for node in self.inputs])
        kind: Any = type(self)
        return digest(*parts, *revisions_of([getattr(self, name) for name in _own_fields(kind)]))

    @inherited
    def place(self) -> str:
        """Identity without the columns of its inputs that it doesn't use.

        Unlike its fingerprint, that stays when an input declares one more column, or a file has one more.
        """
        return digest(self.operator, self.place_values, [child.place for child in self.inputs])

    @inherited
    def free(self) -> frozenset[LoopName]:
        """The loops whose round the collection depends on; without any, it is the same in every round."""
        return frozenset().union(*(node.free for node in self.inputs))

    @property
    def level(self) -> int:
        """The depth of the innermost loop whose round the collection depends on; 0: it depends on none."""
        return max((loop.depth for loop in self.free), default=0)

    def over(self, inputs: tuple[Node, ...]) -> Self:
        """Return the node over other inputs: itself, where they are those that it has."""
        same = all(new is old for new, old in zip(inputs, self.inputs, strict=True))
        return self if same else replace(self, inputs=inputs)

    def reads(self, wanted: Columns) -> list[Columns]:
        """Return the columns of each input that the node reads to compute its `wanted` columns; by default all."""
        return [frozenset(child.schema) for child in self.inputs]

    def value_sources(self, name: str) -> list[InputColumn]:
        """Return the columns of inputs that a column's values are made of; those that only decide which of them it has are left out where that is known."""
        return self.column_origins().get(name) or self.value_dependencies(name)

    def value_dependencies(self, name: str) -> list[InputColumn]:
        """Return the columns of inputs that decide a column's values: its sources, and for example the order of a window."""
        return pairs_of(self.reads(frozenset({name})))

    def presence_dependencies(self) -> list[InputColumn]:
        """Return the columns of inputs that decide which records there are, and how often, if no multiplicity is negative."""
        return pairs_of(self.reads(frozenset()))

    @property
    def place_values(self) -> tuple[Any, ...]:
        """Return its part of the collection's place, which states hold: `identity_values` without the columns of its inputs that it doesn't use."""
        return self.identity_values

    @property
    def wording(self) -> tuple[str, str]:
        """Return the operator's kind and its words, for people; states hold them."""
        return self.operator.lower(), _in_words(self.identity_values)

    def lowered(self, lowering: GraphLowering) -> Node:
        """Return the physical node of a logical one, with the columns that some reader needs."""
        raise NotImplementedError

    def written(self, writer: Writer) -> Written:
        """Return the operators of a pipeline file that return the node's records, for a node of SQL. Raises Unwritten if there are none."""
        raise Unwritten(self.operator)

    @property
    def work(self) -> str | None:
        """The class of work, one of `WORK_CLASSES`, which bounds the rows that a physical node reads for a change, not the time that this takes.

        None: it computes nothing, as inputs, loops, and the nodes at which collections enter or leave these. Only the work of a person's Python functions
        has no bound here.
        """
        return "change"

    def partition(self, times: int) -> Partition:
        """Return the columns that the records of a physical node are partitioned by: all of them are in the record, so equal ones are together.

        Times have `times` coordinates. If equal records already share a shard, no exchange is needed.
        """
        return None

    def partition_of_input(self, times: int) -> Partition:
        """Return the partition of the first input, under the names that its columns have in the result; None where one is gone."""
        given, key = self.inputs[0], f"partition at {times}"
        for each in below(given, lambda node: key in node.__dict__):  # from the inputs on, so that no graph is too deep
            each.__dict__[key] = each.partition(times)
        columns, names = given.__dict__[key], self.decided(self.schema)[0]
        if columns is None or any(column not in names for column, _ in columns):
            return None
        return tuple((names[column], kind) for column, kind in columns)

    def partition_by(self, names: Iterable[str]) -> Partition:
        """Return the partition by columns of the result itself."""
        return tuple((name, self.schema[name]) for name in names)

    @property
    def exchanged_by(self) -> tuple[str, ...] | None:
        """The columns of a physical node's input that decide a row's shard; None if they stay in theirs."""
        return None

    def keeps_state(self, times: int) -> bool:
        """Return whether a physical node keeps state, for times with `times` coordinates. Where it is forgotten, the next change of the pipeline drops the state."""
        return False

    @property
    def keeps_signs(self) -> bool:
        """True for a physical node that emits only inserts for inserts."""
        return False

    joins: ClassVar[bool] = False
    """True for a physical node that only pairs records of the arrangements that it reads."""

    in_parts: ClassVar[bool] = False
    """True for a node that may emit its rows in parts."""

    @property
    def repeats(self) -> bool:
        """True for a physical node whose equal rows may be in several of the parts in which a join below emits its rows."""
        return False

    @property
    def kept_by(self) -> tuple[str, ...]:
        """The columns that sort the records that a physical node keeps."""
        return tuple(self.schema)

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        """Return the nodes, each with values, whose records suffice to compute a physical node's records with the `known` values; None if none do."""
        return None

    forwards: ClassVar[bool] = False
    """True for a physical node that returns the records of the node that is searched for it."""

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        """Return the rows that a physical node is expected to emit for these numbers of rows of its inputs."""
        return sum(inputs) * past.measured(self.fingerprint, 1.0)

    def details(self) -> list[str]:
        """Return lines of a few words each with the details of a physical node's work; none if its kind is enough."""
        return []

    @property
    def title(self) -> str:
        """The operator of a logical graph for people, in a few words; "" if it changes no record."""
        return ""

    def leaves_out(self, values: Values) -> str:
        """Return the reason, for people, why a record of the only input may be missing from the records with these values; "" if none may."""
        return ""

    @property
    def computed(self) -> Step | None:
        """The linear step on the only input's records whose values the result's records have; None if their columns all have origins."""
        return None

    @property
    def reads_counts(self) -> bool | None:
        """True if a record depends on how often the inputs' records occur, False if only on whether they do; None: where its own count matters."""
        return None

    def texts(self) -> dict[str, str]:
        """Return the contents of the plan's own columns, in the words of the pipeline file."""
        return self.inputs[0].texts() if len(self.inputs) == 1 else {}

    def result_texts(self) -> dict[str, str]:
        """Return the columns of a reduction's results in the words of the file: the plan's own, and those computed from them."""
        return {}

    @property
    def groups(self) -> str:
        """The columns of a physical node's key, or the columns that it groups by, in the words of the file; "" if it has none."""
        return ""

    def column_origins(self) -> Origins:
        """Return for each column of the result the columns of inputs, each with the number of its input, that have the same value; its own comes first.

        A record of the result depends on no record of that input with another value there. By default none is known.
        """
        return {}

    def restriction(self, values: Values) -> list[Values]:
        """Return for each input the values of its columns without which its records don't matter to the result's records with `values`."""
        return [{own: values[name] for own, name in decided.items()} for decided in self.decided(values)]

    def decided(self, columns: Iterable[str]) -> list[dict[str, str]]:
        """Return for each input its columns that some of the result's `columns` decide, each with the first of these that does, of its own if possible."""
        all_origins = self.column_origins()
        known = [(name, all_origins[name]) for name in columns if name in all_origins]
        found: list[dict[str, str]] = [{} for _ in self.inputs]
        for name, origins in [*((name, each[:1]) for name, each in known), *((name, each[1:]) for name, each in known)]:
            for at, own in origins:
                found[at].setdefault(own, name)
        return found

    def unchanged(self) -> Origins:
        """Return the origins of columns that all inputs have as they are in the result."""
        return {name: [(at, name) for at in range(len(self.inputs))] for name in self.schema}

    def over_input(self, at: int) -> dict[str, Expression]:
        """Return columns of the result as expressions over an input's: conditions on them may be evaluated on its records, if they pass the operator."""
        child, found = self.inputs[at], dict[str, "Expression"]()
        for name, origins in self.column_origins().items():
            own = next((column for number, column in origins if number == at), None)
            if own is not None and child.schema[own].required() == self.schema[name].required():
                found[name] = Column(own, child.schema[own])
        return found

    @property
    def lets_pass(self) -> bool:
        """True if a condition on the result may be applied to all inputs instead: the operator fails on no record."""
        return False

    gathers: ClassVar[bool] = False
    """True for an operator whose records depend on all records of a group: a condition on the group may always be applied before."""

    @property
    def read_by(self) -> tuple[tuple[str, ...], ...]:
        """The keys that the node reads its inputs by, one for each; none if it does not read them by a key."""
        return ()

    @inherited
    def unique(self) -> Keys:
        """The keys of the collection that are known."""
        return NO_KEYS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


@cache
def _own_fields(kind: Any) -> tuple[str, ...]:
    """Return the names of a class's fields beside inputs and schema."""
    return tuple(each.name for each in fields(kind)[2:])


def _plain_value(value: Any) -> Any:
    """Return a field's value as JSON has it: expressions and aggregate calls as text, functions with their identity."""
    if isinstance(value, tuple):
        return tuple(map(_plain_value, value))
    if isinstance(value, str):
        return identity(value)
    return value.text() if hasattr(value, "text") else value


def _in_words(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_in_words(each) for each in value if each is not None)
    return str(value)


@dataclass(frozen=True)
class Graph:
    """A pipeline's named outputs over its sources. `engines` has the engines of nodes for which the file chooses one.

    `notes` are remarks on its queries, each with its place; `places` has, by fingerprint, the path at which a node is written,
    and its place; `orders` has the orders in which outputs are shown, of those that have one, `tags` the tags of their columns (see `tags_of`).
    """

    outputs: dict[str, Node]
    engines: dict[str, frozenset[str]] = field(default_factory=dict)
    notes: tuple[tuple[Span, str], ...] = ()
    places: dict[str, tuple[str, Span]] = field(default_factory=dict)
    orders: dict[str, RowOrder] = field(default_factory=dict)
    tags: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)

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

    def outline(self) -> dict[str, Any]:
        """Return the graph for people, JSON-able: each node's kind, words and inputs by its fingerprint, and the outputs' fingerprints."""
        nodes = {
            node.fingerprint: [*node.wording, [child.fingerprint for child in node.inputs]] for node in self.nodes()
        }
        return {"nodes": nodes, "outputs": {name: node.fingerprint for name, node in self.outputs.items()}}
