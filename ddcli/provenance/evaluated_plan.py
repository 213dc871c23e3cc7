"""Worlds: the contents of each collection of a pipeline at one time, and in each round of its loops, searched by the values of some columns.

The pipeline is run in memory on the inputs as of that time, with every collection as an output. To show the contents inside a loop, its
body is run once more with the rounds as times: the loop's variables are inputs, fed in each round with the changes of the body's results.
So the rounds together cost no more than the changes between them, as in the engine's own loops.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.circuit.trial import Trial, as_of
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, NullInRequired, decode, encode
from ddcli.engine.records import decode_records, encode_records
from ddcli.engine.times import Frontier, Time
from ddcli.errors import InputError
from ddcli.expressions.nanoseconds import to_values
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import Call, Expression, FilterStep, Literal, MapStep
from ddcli.expressions.types import Type
from ddcli.plan import logical, loops, temporal
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph, LoopName

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from ddcli.circuit.traces import StateAnswers
    from ddcli.engine.lanes import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.expressions.tree import StageResult, Step
    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Node
    from ddcli.sources.slices import InputFacts


Record = tuple[Any, ...]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
FEW = 16
"""Look-ups of whole records after which it pays to index them."""


class EncodedValues:
    """Values encoded as lanes, by means of a pool. Encoded values are cached: one record is looked up in many collections.

    `answers` are the results of functions that remember.
    """

    def __init__(self, pool: Pool, answers: StateAnswers | None = None) -> None:
        self.pool, self.answers = pool, answers
        self.results: dict[str, Contents] = {}
        """Those that were read, with the records that they were given to, by the identity of their arrangement."""
        self._known: dict[tuple[str, str], Matrix | None] = {}

    def lanes(self, schema: Schema, values: Mapping[str, Any]) -> Matrix | None:
        """Return the lanes of values in columns of these types; None if a value doesn't have its column's type."""
        kinds = {name: schema[name] for name in values}
        record = tuple(values.values())
        at = " ".join(map(str, kinds.values())), repr(record)
        if at not in self._known:
            try:
                self._known[at] = encode_records([record], Layout(kinds), self.pool)
            except (InputError, NullInRequired):
                self._known[at] = None
        return self._known[at]

    def note(self, layout: Layout, records: Sequence[Record], matrix: Matrix) -> None:
        """Note the lanes of whole records, which are at the left of a matrix: those that are looked up then need not be encoded."""
        kinds = " ".join(map(str, layout.schema.values()))
        for at, record in enumerate(records):
            self._known[kinds, repr(record)] = matrix[at : at + 1, : layout.width]


class Contents:
    """Records with their multiplicities, as a matrix `[data lanes | count]`, consolidated."""

    def __init__(self, matrix: Matrix, schema: Schema, values: EncodedValues) -> None:
        self.matrix = matrix
        self.layout = Layout(schema)
        self.values = values
        self._asked = 0
        self._index: dict[bytes, int] | None = None

    def __len__(self) -> int:
        return len(self.matrix)

    def where(self, values: Mapping[str, Any]) -> Contents:
        """Return the records that have these values in these columns."""
        return self.rows(self.numbers(values))

    def numbers(self, values: Mapping[str, Any]) -> Numbers:
        """Return the numbers of the records that have these values in these columns."""
        lanes = self.values.lanes(self.layout.schema, values)
        if lanes is None:
            return np.zeros(0, np.int64)
        columns = self.layout.take(values)
        if self.layout.width and list(values) == list(self.layout.names):
            return self._whole(lanes)
        same = np.ones(len(self.matrix), np.bool_)
        for at, lane in enumerate(columns):
            same &= self.matrix[:, lane] == lanes[0, at]
        return np.flatnonzero(same)

    def count(self, record: Record) -> int:
        """Return a record's multiplicity."""
        found = self.where(dict(zip(self.layout.names, record, strict=True)))
        return int(found.matrix[:, -1].sum())

    def rows(self, chosen: Numbers) -> Contents:
        """Return some of the records, by their numbers."""
        return Contents(self.matrix[chosen], self.layout.schema, self.values)

    def same(self, frame: pl.DataFrame, values: Mapping[str, Any]) -> Numbers:
        """Return the numbers of a frame's rows that have these values; the frame has columns of these types."""
        lanes = self.values.lanes(self.layout.schema, values)
        if lanes is None:
            return np.zeros(0, np.int64)
        found = encode(frame.select(self.layout.names), self.layout, self.values.pool) if self.layout.width else None
        return np.arange(frame.height) if found is None else np.flatnonzero((found == lanes[0]).all(axis=1))

    def through(self, step: Step) -> tuple[StageResult, Contents]:
        """Return the result of a linear step on the records, without those that it fails on, and the records without those."""
        stage, frame = FusedSteps(self.layout.schema, (step,)), self.frame()
        try:
            return stage.run(frame), self
        except InputError:
            failing = [row for row, _ in stage.failing(frame)]
            kept = self.rows(np.setdiff1d(np.arange(len(self)), failing))
            return stage.run(kept.frame()), kept

    def taken(self, names: Sequence[str]) -> list[Record]:
        """Return the values of some columns of each record."""
        lanes = np.ascontiguousarray(self.matrix[:, self.layout.take(names)])
        # A column that is taken twice needs two names.
        kinds = {f"{at}": self.layout.schema[name] for at, name in enumerate(names)}
        return decode_records(lanes, Layout(kinds), self.values.pool)

    def records(self) -> list[Record]:
        """Return the records as values."""
        records = decode_records(self.matrix, self.layout, self.values.pool)
        self.values.note(self.layout, records, self.matrix)
        return records

    def counts(self) -> list[int]:
        """Return the multiplicities, in the order of `records`."""
        counts: list[int] = self.matrix[:, -1].tolist()
        return counts

    def first(self, most: int) -> list[tuple[Record, int]]:
        """Return the first records, at most so many, with their multiplicities."""
        chosen = self.rows(np.arange(min(len(self), most)))
        return list(zip(chosen.records(), chosen.counts(), strict=True))

    def frame(self) -> pl.DataFrame:
        """Return the records as a frame."""
        return decode(self.matrix, self.layout, self.values.pool)

    def _whole(self, lanes: Matrix) -> Numbers:
        """Return the number of the record that has just these lanes, if there is one."""
        self._asked += 1
        if self._index is None and self._asked <= FEW:
            return np.flatnonzero((self.matrix[:, :-1] == lanes[0]).all(axis=1))
        if self._index is None:
            data = np.ascontiguousarray(self.matrix[:, :-1])
            self._index = {row.tobytes(): at for at, row in enumerate(data)}
        at = self._index.get(lanes.tobytes())
        return np.array([] if at is None else [at], np.int64)


class SourceRows:
    """The updates of an input, found by their records; each is known by its row number in `matrix`."""

    def __init__(self, schema: Schema, updates: Contents, time: Time) -> None:
        self.layout = Layout(schema)
        self.matrix = updates.matrix
        self._contents = updates
        self._in_time = np.all(self.matrix[:, self.layout.width : -1] <= np.array(time), axis=1)
        self._index: dict[bytes, list[int]] | None = None

    def where(self, values: Mapping[str, Any]) -> Numbers:
        """Return the updates at or before the time whose records have these values."""
        numbers = self._contents.numbers(values)
        return numbers[np.flatnonzero(self._in_time[numbers])]

    def of(self, record: Record) -> Numbers:
        """Return the updates of a record at or before the time, in their order."""
        if self._index is None:
            self._index = {}
            for at, row in enumerate(np.ascontiguousarray(self.matrix[:, : self.layout.width])):
                self._index.setdefault(row.tobytes(), []).append(at)
        lanes = self._contents.values.lanes(self.layout.schema, dict(zip(self.layout.names, record, strict=True)))
        assert lanes is not None, "a record of an input has its types"
        numbers = np.array(self._index.get(lanes[0].tobytes(), []), np.int64)
        return numbers[np.flatnonzero(self._in_time[numbers])]

    def last(self, numbers: Numbers, *, exact: bool) -> Numbers:
        """Return the shortest end of a record's updates that sums to its multiplicity; or, not `exact`, its last insertion."""
        ordered = numbers[np.argsort(self.matrix[numbers, -2], kind="stable")]
        diffs = self.matrix[ordered, -1]
        if not exact:
            return ordered[np.flatnonzero(diffs > 0)[-1:]]
        after = np.cumsum(diffs[::-1])[::-1]
        whole = np.flatnonzero(after == diffs.sum()).tolist()
        return ordered[whole[-1] :] if whole else ordered


ROUND = Type("int64")
BOOL = Type("bool")
COUNTED = "#there"
KEYED = (logical.Upsert, logical.Snapshots)
"""Nodes whose source has rows that are not records of a collection."""


class Opaque(Exception):
    """A part of a pipeline that can't be traced; the message names it."""


class EvaluatedPlan:
    """The collections at the time `time`, computed from the inputs' updates `fed`, which are at or before it."""

    depth = 0

    def __init__(
        self,
        nodes: Sequence[Node],
        fed: Mapping[str, Matrix],
        time: Time,
        kinds: Sequence[Type],
        values: EncodedValues,
        facts: Mapping[str, InputFacts],
    ) -> None:
        self.time, self.kinds, self.values = time, kinds, values
        self.fed = fed
        raw = raw_sources(nodes)
        nodes = [n for n in nodes if n.level == 0 and not isinstance(n, loops.Iterate) and n not in raw.values()]
        wanted = {n.fingerprint: n if n.schema else counted(n) for n in nodes}
        trial = Trial(lower(Graph(wanted)), kinds, values.pool, facts=facts, lenient=True, answers=values.answers)
        found = trial.contents(time, advanced({name: fed[name] for name in trial.layouts}, raw, time))
        self._contents = {name: Contents(matrix, trial.outputs[name].schema, values) for name, matrix in found.items()}
        for node in nodes:
            if not node.schema:
                matrix = self._contents[node.fingerprint].matrix[:, -1:]
                self._contents[node.fingerprint] = Contents(matrix, {}, values)
        # A `Once` reads the raw rows, too: it needs to know whether there is one at all.
        self._contents |= {
            node.fingerprint: Contents(as_of(fed[name], len(kinds), time), node.schema, values)
            for name, node in raw.items()
        }
        self._loops: dict[tuple[str, Place], Rounds] = {}

    @property
    def now(self) -> list[Any]:
        """The time as Python values."""
        pairs = zip(self.time, self.kinds, strict=True)
        return [to_values(pl.Series([value], dtype=pl.Int64).cast(kind.to_polars()), kind)[0] for value, kind in pairs]

    def contents(self, node: Node) -> Contents:
        """Return the contents of a node's collection."""
        return self._contents[node.fingerprint]

    def updates(self, source: logical.Source) -> Contents:
        """Return the updates of an input as records with their times; their numbers are the rows' numbers in `fed`."""
        times = {f"\0time{at}": ROUND for at in range(len(self.time))}
        return Contents(self.fed[source.name], source.schema | times, self.values)

    def rounds(self, loop: loops.Iterate, place: Place) -> Rounds:
        """Return the rounds of a loop in a place: here, or in a round of the loop around it."""
        at = loop.fingerprint, place
        if at not in self._loops:
            self._loops[at] = Rounds(loop, place)
        return self._loops[at]

    @property
    def evaluated(self) -> EvaluatedPlan:
        """The evaluated plan of this place: itself."""
        return self

    def home(self, node: Node) -> Place:
        """Return the place where a node's collection is looked up: here, as an evaluated plan is outside of all loops."""
        return self


class Round:
    """A round of a loop, counted from 0, in the place around it."""

    def __init__(self, rounds: Rounds, number: int) -> None:
        self.all, self.number = rounds, number
        self.depth = rounds.loop.depth
        self.evaluated: EvaluatedPlan = rounds.around.evaluated

    def contents(self, node: Node) -> Contents:
        """Return the contents of a collection of the body in this round."""
        return self.all.contents(node, self.number)

    def home(self, node: Node) -> Place:
        """Return the place where a node's collection is looked up: this round, or a place around the loop if no round changes the node."""
        return self.all.around.home(node) if node.level < self.depth else self


Place = EvaluatedPlan | Round


class Rounds:
    """The rounds of a loop in a place: the contents of each collection of its body in each round. Raises Opaque."""

    def __init__(self, loop: loops.Iterate, around: Place) -> None:
        self.loop, self.around = loop, around
        self.values = around.evaluated.values
        self._constants: dict[str, Matrix] = {}
        self._entering: dict[str, Matrix] = {}
        self._cut: dict[str, Node] = {}
        self._body = {node.fingerprint: node for node in self._nodes()}
        graph = Graph({name: self._without_rounds(node) for name, node in self._body.items()})
        self._trial = Trial(lower(graph), [ROUND], self.values.pool, lenient=True)
        self._gathered: dict[str, list[Matrix]] = {name: [] for name in self._body}
        self.last = 0
        self._run()
        self._updates = {name: np.concatenate(parts) for name, parts in self._gathered.items()}
        self._known: dict[tuple[str, int], Contents] = {}
        self._rounds: dict[int, Round] = {}

    def _nodes(self) -> list[Node]:
        """Return the nodes whose collection changes from round to round of this loop but not of an inner one, and the bodies."""
        this = LoopName(self.loop.depth, self.loop.loop)
        inside = Graph({str(at): body for at, body in enumerate(self.loop.bodies)}).nodes()
        changing = [node for node in inside if node.schema and this in node.free and node.level == this.depth]
        return [*changing, *(body for body in self.loop.bodies if body.level < this.depth)]

    def round(self, number: int) -> Round:
        """Return one of the rounds."""
        return self._rounds.setdefault(number, Round(self, number))

    def contents(self, node: Node, number: int) -> Contents:
        """Return the contents of a collection of the body in a round."""
        at = node.fingerprint, number
        if at not in self._known:
            self._known[at] = Contents(as_of(self._updates[node.fingerprint], 1, (number,)), node.schema, self.values)
        return self._known[at]

    def first(self, node: Node, record: Record, number: int) -> int:
        """Return the first round from which on a record has the multiplicity that it has in round `number`."""
        layout = Layout(node.schema)
        history = Contents(self._updates[node.fingerprint], {**node.schema, "\0round": ROUND}, self.values)
        found = history.where(dict(zip(layout.names, record, strict=True))).matrix
        rounds = sorted({at for at in found[:, -2].tolist() if at <= number})
        counts = {at: int(found[found[:, -2] <= at, -1].sum()) for at in rounds}
        first, wanted = number, counts[rounds[-1]] if rounds else 0
        for at in reversed(rounds):
            if counts[at] != wanted:
                break
            first = at
        return first

    # --- running --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Feed the variables from round to round until nothing changes, or up to the loop's bound."""
        fed = dict(self._constants)
        for at, initial in enumerate(self.loop.initials):
            fed[f"variable {at}"] = _timed(self._initial(initial), 0)
        variables = [self._initial(initial) for initial in self.loop.initials]
        bodies = [matrix[:0] for matrix in variables]
        number = 0
        while True:
            for name, matrix in self._entering.items():
                fed[name] = matrix[np.maximum(matrix[:, -2], 0) == number]
            found = self._trial.close(
                Frontier([(number + 1,)]),
                {name: fed.get(name, self._no_updates(name)) for name in self._trial.layouts},
            )
            for name, matrix in found.items():
                self._gathered[name].append(matrix)
            self.last = number
            number += 1
            bodies = [
                kernels.consolidate(np.concatenate([before, np.delete(found[body.fingerprint], -2, axis=1)]))
                for before, body in zip(bodies, self.loop.bodies, strict=False)
            ]
            changes = [kernels.difference(new, old) for new, old in zip(bodies, variables, strict=True)]
            entering = any((matrix[:, -2] >= number).any() for matrix in self._entering.values())
            if number == self.loop.bound or not (entering or any(len(change) for change in changes)):
                return
            variables = bodies
            fed = {f"variable {at}": _timed(change, number) for at, change in enumerate(changes)}

    def _initial(self, node: Node) -> Matrix:
        matrix: Matrix = self.around.home(node).contents(node).matrix
        return matrix

    def _no_updates(self, name: str) -> Matrix:
        """Return no updates of an input of the body."""
        return np.empty((0, self._trial.layouts[name].width + 2), np.int64)

    # --- the body as a graph of its own ---------------------------------------------------------------------------

    def _without_rounds(self, node: Node) -> Node:
        """Return a node of the body with its variables and the entering collections replaced by inputs."""
        if node.fingerprint not in self._cut:
            self._cut[node.fingerprint] = self._replaced(node)
        return self._cut[node.fingerprint]

    def _replaced(self, node: Node) -> Node:
        if node.level < self.loop.depth:
            self._constants[f"constant {node.fingerprint}"] = _timed(self._initial(node), 0)
            return _source(f"constant {node.fingerprint}", node)
        if isinstance(node, loops.OfLoop) and node.loop == self.loop.loop:
            if isinstance(node, loops.LoopVariable):
                return _source(f"variable {node.index}", node)
            assert isinstance(node, loops.Enter)
            return self._enter(node)
        if isinstance(node, temporal.JoinFunction):
            raise Opaque("a `join_function` in a loop")
        inputs = tuple(self._without_rounds(child) for child in node.inputs)
        if isinstance(node, temporal.Temporal):
            return logical.Apply(inputs, node.schema, FilterStep(self._now_condition(node)))
        moved = replace(node, inputs=inputs)
        return loops.identified(moved) if isinstance(moved, loops.Iterate) else moved

    def _enter(self, node: loops.Enter) -> Node:
        (child,) = node.inputs
        if child.level >= self.loop.depth:
            raise Opaque("an `enter` of a collection that changes from round to round")
        rounds, contents = entered(node, self.around.home(child).contents(child))
        matrix = np.column_stack([contents.matrix[:, :-1], np.maximum(rounds, 0), contents.matrix[:, -1]])
        self._entering[f"entering {node.fingerprint}"] = np.ascontiguousarray(matrix)
        return _source(f"entering {node.fingerprint}", node)

    def _now_condition(self, node: temporal.Temporal) -> Expression:
        """Return the condition that a temporal filter's record exists now."""
        (now,) = self.around.evaluated.now
        conditions: list[Expression] = []
        if node.lower is not None:
            conditions.append(Call("<=", (node.lower, Literal(now, node.lower.type.required())), BOOL.or_null()))
        if node.upper is not None:
            conditions.append(Call("<", (Literal(now, node.upper.type.required()), node.upper), BOOL.or_null()))
        return conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), BOOL.or_null())


def raw_sources(nodes: Iterable[Node]) -> dict[str, Node]:
    """Return the sources, by name, whose rows are not records of a collection but upserts of keys, or rows of whole tables."""
    found = [child for node in nodes if isinstance(node, KEYED) for child in node.inputs]
    return {child.name: child for child in found if isinstance(child, logical.Source)}


def counted(node: Node) -> Node:
    """Return a collection without columns as one with a column that is 1: an output must have a column."""
    return logical.Apply((node,), {COUNTED: ROUND}, MapStep(((COUNTED, Literal(1, ROUND)),)))


def advanced(fed: Mapping[str, Matrix], raw: Container[str], time: Time) -> dict[str, Matrix]:
    """Return the updates advanced to one time, for a question about no earlier one: updates that cancel are gone, and a loop runs only
    as of that time. Upserts and rows of whole tables keep their times, which determine their meaning.
    """
    found = {}
    for name, matrix in fed.items():
        if name not in raw:
            matrix = matrix.copy()
            matrix[:, -len(time) - 1 : -1] = time
            matrix = kernels.consolidate(matrix)
        found[name] = matrix
    return found


def entered(node: loops.Enter, contents: Contents) -> tuple[Numbers, Contents]:
    """Return the round in which each record enters, and the records, without those on which the expression for the round fails."""
    found, kept = contents.through(MapStep((("$round", node.at),)))
    return found.frame["$round"].cast(pl.Int64).to_numpy(), kept


def _source(name: str, node: Node) -> Node:
    return logical.Source((), dict(node.schema), name)


def _timed(contents: Matrix, time: int) -> Matrix:
    """Return records with counts as updates of one time."""
    matrix = np.insert(contents, contents.shape[1] - 1, time, axis=1)
    return np.ascontiguousarray(matrix)
