"""The logical graph: one node for each operator, as it is defined; the reference model in tests evaluates just this. Many of them are the engine's work as they are, over physical nodes.

An operator has the columns that it reads, those that identify its records, and its name for people.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.dataclass import dataclass
from ddcli.expressions.tree import Call, Column, ExplodeStep, FilterStep, Literal, MapStep, UnnestStep, quoted
from ddcli.expressions.types import Type
from ddcli.plan import physical, words
from ddcli.plan.node import NO_KEYS, Node, Unwritten, inherited
from ddcli.plan.physical import ForwardedRecords, WholeRecords
from ddcli.plan.shape import conform, linear

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.expressions.tree import Expression, Step
    from ddcli.expressions.types import Schema
    from ddcli.plan.estimates import PastRows
    from ddcli.plan.lower import GraphLowering
    from ddcli.plan.node import Columns, Graph, InputColumn, Keys, Origins, Partition, Values, Writer, Written


INT64 = Type("int64")


def columns_of(expressions: Iterable[Expression]) -> Columns:
    """Return the columns that any of the expressions reads."""
    return frozenset(name for expression in expressions for name in expression.columns())


def is_unique(keys: Keys, columns: Iterable[str]) -> bool:
    """Return whether no two records agree on these columns."""
    return any(key <= set(columns) for key in keys)


def renamed_keys(keys: Keys, names: Mapping[str, str]) -> Keys:
    """Return the keys whose columns all have a new name."""
    return frozenset(frozenset(names[name] for name in key) for key in keys if key <= names.keys())


INPUT = "input"
"""The kind of an input, for people."""


class Source(Node):
    """An input of the pipeline, by name; `time` names its time columns, `meaning` has the options for reading its rows."""

    name: str
    time: tuple[str, ...] = ("time",)
    meaning: str = ""
    arranged: tuple[str, ...] = ()
    """The key that another pipeline keeps it by."""

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.name, len(self.time), self.meaning, self.arranged)

    @property
    def wording(self) -> tuple[str, str]:
        return INPUT, f"{self.name} ({', '.join(f'{name} {kind}' for name, kind in self.schema.items())})"

    def lowered(self, lowering: GraphLowering) -> Node:
        return physical.Scan((), lowering.schema(self), self.name, len(self.time), self.meaning, self.arranged)


PRESENT, ORDER, MOMENT, SEQUENCE = "$present", "$order", "$moment", "$sequence"
"""Columns of rows that are upserts, beside their data."""


class Table(Node):
    """The current table of an input: as it is computed, with the columns of its `key` first, then the others."""

    key: tuple[str, ...]
    name: str

    @property
    def source(self) -> Source:
        """The input, in a logical graph."""
        (found,) = self.inputs
        assert isinstance(found, Source)
        return found

    def value_sources(self, name: str) -> list[InputColumn]:
        return [(0, name)]

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.key, self.name) if self.is_physical else (self.key,)

    def record(self, wanted: Schema) -> Schema:
        """Return the columns that are computed for the `wanted` ones."""
        return {name: self.schema[name] for name in self.key} | wanted

    @property
    def exchanged_by(self) -> tuple[str, ...]:
        return self.key or tuple(self.schema)

    def partition(self, times: int) -> Partition:
        return self.partition_by(self.exchanged_by)

    @property
    def kept_by(self) -> tuple[str, ...]:
        return self.exchanged_by

    def keeps_state(self, times: int) -> bool:
        return True

    def details(self) -> list[str]:
        return [f"key {', '.join(self.key)}"] if self.key else []


class Upsert(Table):
    """The current record of each key of an input whose rows set a key's record from their time on.

    The rows have, beside the records, `PRESENT` (0: nothing) and `ORDER`, which decides among the rows of a key at one time. If it is
    `lasting`, `ORDER` decides among all rows of a key, at any times; among equal ones `MOMENT`, then `SEQUENCE`. Then the engine's record is the
    row with the greatest, with `PRESENT`, `ORDER` and `MOMENT` among its columns, also if the key has nothing.
    """

    kind: ClassVar[str] = "upserts"
    lasting: bool = False

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (*super().identity_values, "lasting") if self.lasting else super().identity_values

    def column_origins(self) -> Origins:
        return {name: [(0, name)] for name in self.key}

    def reads(self, wanted: Columns) -> list[Columns]:
        sequence = {MOMENT, SEQUENCE} if self.lasting else set()
        return [wanted | {*self.key, PRESENT, ORDER} | sequence]

    def lowered(self, lowering: GraphLowering) -> Node:
        schema = lowering.schema(self)
        record = self.record(schema)
        rows = record | {name: self.source.schema[name] for name in (PRESENT, ORDER)}
        if not self.lasting:
            table = replace(self, inputs=(lowering.exactly(self.source, rows),), schema=record)
            return conform(table, schema, fuse=True)
        rows |= {MOMENT: INT64}
        fed = lowering.exactly(self.source, rows | {SEQUENCE: INT64})
        present = Call("=", (Column(PRESENT, rows[PRESENT]), Literal(1, INT64)), Type("bool"))
        there = linear(replace(self, inputs=(fed,), schema=rows), [FilterStep(present)], rows, fuse=True)
        return conform(there, schema, fuse=True)


class Snapshots(Table):
    """The current table of an input whose rows of one time are the whole table; with a key, a table of one record for each key."""

    kind: ClassVar[str] = "snapshots"

    @property
    def work(self) -> str:
        return "everything"

    def column_origins(self) -> Origins:
        return {name: [(0, name)] for name in self.key or self.schema}

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted | set(self.key)]

    def lowered(self, lowering: GraphLowering) -> Node:
        schema = lowering.schema(self)
        record = self.record(schema)
        return conform(replace(self, inputs=(lowering.exactly(self.source, record),), schema=record), schema, fuse=True)


class Passthrough(Node):
    """The input itself."""

    def column_origins(self) -> Origins:
        return self.unchanged()

    def value_dependencies(self, name: str) -> list[InputColumn]:
        return [(0, name)]

    def presence_dependencies(self) -> list[InputColumn]:
        return []

    @inherited
    def unique(self) -> Keys:
        return self.inputs[0].unique


class Watched(Passthrough, ForwardedRecords):
    """An input whose records are watched: no multiplicity should be negative."""

    kind: ClassVar[str] = "watch"
    name: str

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.name,) if self.is_physical else ()

    def lowered(self, lowering: GraphLowering) -> Node:
        (source,) = self.inputs
        watched = replace(self, inputs=(lowering.exactly(source, source.schema),), schema=source.schema)
        return conform(watched, lowering.schema(self), fuse=True)

    def keeps_state(self, times: int) -> bool:
        return True


class Apply(Node):
    """A linear step over each record: filter, map, unnest, explode or a Python function."""

    step: Step

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.step.text(),)

    @property
    def place_values(self) -> tuple[Any, ...]:
        if not isinstance(self.step, MapStep):
            return self.identity_values
        columns = [(name, expression.text()) for name, expression in self.step.columns]
        return tuple((name, text) for name, text in columns if text != quoted(name))

    @property
    def wording(self) -> tuple[str, str]:
        kind, _, text = str(self.identity_values[0]).partition(" ")
        return kind, text

    @property
    def title(self) -> str:
        return words.title(self.step)

    def leaves_out(self, values: Values) -> str:
        if isinstance(self.step, FilterStep):
            return f"{words.without_parentheses(self.step.condition.text())} is not true of"
        origins = self.column_origins()
        others = (name for name in values if name not in origins and not words.OWN.fullmatch(name))
        return f"{self.title} returns another {' and '.join(others) or 'value'} for"

    @property
    def computed(self) -> Step | None:
        if isinstance(self.step, FilterStep) or not self.inputs[0].schema:  # without columns there is but one record
            return None
        copies = isinstance(self.step, MapStep) and all(isinstance(each, Column) for _, each in self.step.columns)
        return None if copies else self.step

    @property
    def lets_pass(self) -> bool:
        from ddcli.plan.conditions import is_certain_step  # only an optimizer asks

        return is_certain_step(self.step)

    def over_input(self, at: int) -> dict[str, Expression]:
        return dict(self.step.columns) if isinstance(self.step, MapStep) else super().over_input(at)

    def written(self, writer: Writer) -> Written:
        step = self.step
        if isinstance(step, FilterStep):
            return writer.after(self, {"filter": str(step.condition)})
        if isinstance(step, ExplodeStep):
            return writer.after(self, {"explode": str(step.weight)})
        if isinstance(step, UnnestStep):
            return writer.after(self, {"flat_map": {step.name: step.call.text()}})
        if isinstance(step, MapStep):
            return writer.after(self, *_written_columns(step.columns, self.inputs[0].schema))
        raise Unwritten("a Python function")

    def lowered(self, lowering: GraphLowering) -> Node:
        (child,) = self.inputs
        step = self.step
        schema = lowering.schema(self)
        below = lowering.node(child)
        if isinstance(step, MapStep):
            step = MapStep(tuple((name, expression) for name, expression in step.columns if name in schema))
            return linear(below, [step], schema, fuse=lowering.read_once(child))
        after = step.schema(below.schema)
        return conform(linear(below, [step], after, fuse=lowering.read_once(child)), schema, fuse=True)

    def column_origins(self) -> Origins:
        return {name: [(0, origin)] for name, origin in self.step.origins(self.inputs[0].schema).items()}

    def reads(self, wanted: Columns) -> list[Columns]:
        return [self.step.reads(wanted, self.inputs[0].schema)]

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
            return renamed_keys(self.inputs[0].unique, names)
        return NO_KEYS


class FilterOnRead(Apply):
    """A filter of an `Arrange`, or of another such: a join by the arrangement's key reads the arrangement and evaluates the condition."""

    lets_pass: ClassVar[bool] = False


class SignedSum(Node):
    """The sum of inputs of equal schema, each with its sign."""

    physical_name: ClassVar[str] = "Sum"
    lets_pass: ClassVar[bool] = True
    signs: tuple[int, ...]

    def written(self, writer: Writer) -> Written:
        if -1 in self.signs:
            return writer.after(self, "negate")
        first, *others = self.inputs
        source, operators = writer.chain(first)
        return source, [*operators, {"concat": [writer.named(each) for each in others]}]

    @property
    def kind(self) -> str:
        """The word for it by its signs."""
        return "negate" if self.signs == (-1,) else "subtract" if -1 in self.signs else "concat"

    @property
    def operator(self) -> str:
        return super().operator if self.is_physical else "Negate" if -1 in self.signs else "Concat"

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.signs,) if self.is_physical else ()

    def column_origins(self) -> Origins:
        return self.unchanged()

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted for _ in self.inputs]

    def lowered(self, lowering: GraphLowering) -> Node:
        schema = lowering.schema(self)
        return replace(self, inputs=tuple(lowering.exactly(child, schema) for child in self.inputs), schema=schema)

    def partition(self, times: int) -> Partition:
        """Return the partition that all inputs share: equal records may come from different inputs, so these must be in shards by the same columns."""
        first, *others = [child.partition(times) for child in self.inputs]
        return first if all(other == first for other in others) else None

    @property
    def keeps_signs(self) -> bool:
        return -1 not in self.signs

    @property
    def repeats(self) -> bool:
        return any(each.in_parts or each.repeats for each in self.inputs)

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        return sum(inputs)

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        return [(child, known) for child in self.inputs]


def summed(inputs: Sequence[Node], schema: Schema) -> SignedSum:
    """Return the sum of nodes of a schema."""
    return SignedSum((*inputs,), schema, (1,) * len(inputs))


def negated(node: Node) -> SignedSum:
    """Return a node with each diff negated."""
    return SignedSum((node,), node.schema, (-1,))


class Consolidate(Passthrough, ForwardedRecords):
    """The input itself, with at most one update for a record and time."""

    kind: ClassVar[str] = "consolidate"
    keeps_signs: ClassVar[bool] = True
    lets_pass: ClassVar[bool] = True

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted]

    def lowered(self, lowering: GraphLowering) -> Node:
        schema = lowering.schema(self)
        return replace(self, inputs=(lowering.exactly(self.inputs[0], schema),), schema=schema)


class Arrange(Passthrough):
    """The input itself, indexed by key for every join or reduction by it."""

    by: tuple[str, ...]

    @property
    def read_by(self) -> tuple[tuple[str, ...], ...]:
        return (self.by,)

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted | set(self.by)]

    def lowered(self, lowering: GraphLowering) -> Node:
        return lowering.node(self.inputs[0])


class Inspect(Passthrough, ForwardedRecords):
    """The input itself, whose updates are shown to a person under a label."""

    kind: ClassVar[str] = "inspect"
    physical_name: ClassVar[str] = "Show"
    keeps_signs: ClassVar[bool] = True
    label: str

    def lowered(self, lowering: GraphLowering) -> Node:
        return replace(self, inputs=(lowering.exactly(self.inputs[0], self.schema),))

    def details(self) -> list[str]:
        return [self.label]


class Once(WholeRecords):
    """One record, 1, from the first time on at which the input has a record, even if that is retracted.

    It stands for rows of SQL that depend on no table: `values`, an aggregate of nothing. A collection without any input can't be written
    to a log, whose times are the inputs'.
    """

    kind: ClassVar[str] = "once"
    reads_counts: ClassVar[bool] = False
    title: ClassVar[str] = "from the first row of its inputs on"
    physical_name: ClassVar[str] = "StandingRecord"

    def written(self, writer: Writer) -> Written:
        (column,) = self.schema
        return {"sql": f"select 1 as {quoted(column)}"}, []

    def value_dependencies(self, name: str) -> list[InputColumn]:
        return []

    def presence_dependencies(self) -> list[InputColumn]:
        return []

    def restriction(self, values: Values) -> list[Values]:
        return [values]

    @inherited
    def unique(self) -> Keys:
        return frozenset({frozenset()})

    def lowered(self, lowering: GraphLowering) -> Node:
        return replace(self, inputs=(lowering.exactly(self.inputs[0], self.schema),))

    def keeps_state(self, times: int) -> bool:
        return True


def _written_columns(columns: Sequence[tuple[str, Expression]], below: Schema) -> list[Any]:
    """Return the operators of a pipeline file that compute columns from the input's columns, `below`."""
    same = [name for name, each in columns if isinstance(each, Column) and each.name == name]
    if not columns:
        return [{"map": words.NO_COLUMN}]
    if len(same) == len(columns):
        return [] if same == list(below) else [{"project": same}]
    if below and same == list(below) == [name for name, _ in columns[: len(same)]]:
        return [{"extend": words.assignments(columns[len(same) :])}]
    return [{"map": words.assignments(columns)}]


def sources(graph: Graph) -> dict[str, Source]:
    """Return the inputs that some output reads, by name."""
    return {node.name: node for node in graph.nodes() if isinstance(node, Source)}


@dataclass(frozen=True)
class Rewritten:
    """A graph rewritten: the new node of each node of the graph as written, by fingerprint.

    `same` has the nodes whose new node has the same records; `operators` also those whose records are filtered now.
    """

    graph: Graph
    same: Mapping[str, Node]
    operators: Mapping[str, Node]

    def then(self, later: Rewritten) -> Rewritten:
        """Return this rewriting with another one of its graph after it."""
        return Rewritten(later.graph, _through(self.same, later.same), _through(self.operators, later.operators))


def _through(written: Mapping[str, Node], later: Mapping[str, Node]) -> dict[str, Node]:
    return {each: later[node.fingerprint] for each, node in written.items() if node.fingerprint in later}


def as_written(graph: Graph) -> Rewritten:
    """Return a graph that is as it is written."""
    nodes = {node.fingerprint: node for node in graph.nodes()}
    return Rewritten(graph, nodes, nodes)
