"""A dataflow: inputs, collections over them, outputs, and the steps that close times."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ddcli.api.collection import Arranged, Collection
from ddcli.api.functions import schema as schema_of
from ddcli.api.loops import Loop, iterated
from ddcli.api.passes import ShardedDataflow, ShardTraces
from ddcli.api.sessions import Clock, Input, Upserts
from ddcli.api.traces import KeptTraces, Output
from ddcli.circuit import graph
from ddcli.circuit.graph import Assembled, assemble
from ddcli.circuit.operators import CircuitContext
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.base import Delta
from ddcli.engine.pool import Pool, new_secret
from ddcli.engine.process import Workers
from ddcli.engine.rounds import Interval
from ddcli.engine.scope import Scope
from ddcli.engine.times import Frontier
from ddcli.engine.trace.trace_import import Imported, UnitedImport
from ddcli.errors import EngineError, UsageError
from ddcli.expressions.moments import is_zone
from ddcli.expressions.types import POOLED, UTC, in_zone, localized
from ddcli.plan import logical
from ddcli.plan.generations import Generation
from ddcli.plan.node import Graph
from ddcli.plan.optimizer.delta_joins import delta_joins, with_delta_joins
from ddcli.plan.physical import PhysicalGraph
from ddcli.plan.relation import BindContext, Relation
from ddcli.plan.shape import arrange
from ddcli.spec.model import GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars as pl

    from ddcli.api.traces import TraceHandle, Update
    from ddcli.circuit.graph import IndexedSource
    from ddcli.circuit.operators import Traces
    from ddcli.engine.stages import Deltas
    from ddcli.engine.trace.trace_import import FilteredImport, ImportedTrace
    from ddcli.expressions.types import Type
    from ddcli.plan.node import LoopName


class ImportedArrangement(Arranged):
    """An arrangement that another dataflow keeps, as a collection of this one; and the input that feeds it from there."""

    def __init__(self, dataflow: Dataflow, relation: Relation, handle: TraceHandle):
        super().__init__(dataflow, relation, handle.key, None)
        self.handle = handle
        self._traces: list[ImportedTrace | FilteredImport] = []

    @property
    def frontier(self) -> Frontier:
        """The frontier of the dataflow that keeps the arrangement."""
        return self.handle.upper

    def indexed(self) -> graph.IndexedSource:
        """Return the arrangement's source in this dataflow's graph. From now on the source holds the trace, and the handle doesn't."""
        self._traces = self.handle.imported(self.dataflow.frontier)
        self.handle.close()
        return graph.IndexedSource(self.key, self.handle.arranged, [Imported(trace) for trace in self._traces])

    def united(self) -> graph.IndexedSource:
        """Return one source of all its shards together."""
        return graph.IndexedSource(self.key, self.handle.arranged, [Imported(UnitedImport(self._traces))])

    def fit(self, layout: Layout) -> None:
        """Do nothing: an arrangement has all its columns."""

    def flush(self) -> None:
        """Do nothing: the times that the other dataflow has closed are ready."""

    def take_before(self, upper: Frontier) -> list[Delta]:
        found = [trace.next_before(upper) for trace in self._traces]
        for matrix in found:
            self._share_values(matrix)
        return [Delta(matrix, distinct=True) for matrix in found]

    def release(self) -> None:
        """Release the trace: the dataflow takes no further step."""
        self.handle.close()
        for trace in self._traces:
            trace.release()

    def _share_values(self, matrix: np.ndarray) -> None:
        """Bring the values that hashed lanes stand for into this dataflow's pool."""
        layout = Layout(self.handle.arranged)
        for name, kind in layout.schema.items():
            if kind.kind in POOLED and len(matrix):
                lanes = np.unique(matrix[:, layout.lanes(name).start])
                self.dataflow.pool.intern(self.handle.dataflow.pool.values(lanes, kind), kind)


def queried(dataflow: Dataflow, query: str, relations: Mapping[str, Relation]) -> Relation:
    """Return the result of a query over collections by name. Raises SpecError at the place of a mistake in the text."""
    from ddcli.expressions.syntax_tree import check_tables, query_text
    from ddcli.plan.sql.context import Times
    from ddcli.plan.sql.statement import bind

    text = query_text(query)
    check_tables(text, relations, "collections given")
    around = dataflow.surroundings
    with in_zone(dataflow.timezone):
        found, _ = bind(text, relations.__getitem__, around.inputs, around.loop, Times(around.time))
    return found


SHARDS = 2
"""The number of shards for each of several workers: a worker's next shard reuses the memory of the last, and no worker waits long for another."""

SECRET = new_secret()
"""The secret under which values are hashed, the same in all dataflows of the process: one may read the arrangements of another."""


class Dataflow:
    """Inputs, collections over them, outputs. The first `step` fixes the graph.

    `time` is the number of coordinates of times, which are integers and begin at 0, or their types: `"date"`,
    `["date", "int64"]`. With several `workers` each operator is cut by key into shards, which step side by side in as many threads;
    the updates are the same. `timezone` is the zone by whose clocks timestamps with a zone are cast and cut.

    >>> df = Dataflow()
    >>> numbers = df.input("numbers", {"n": "int64"})
    >>> even = numbers.filter("n % 2 = 0").output()
    >>> numbers.insert((2,))
    >>> numbers.insert((3,))
    >>> numbers.advance_to(1)
    >>> print(df.step())
    1
    >>> even.updates()
    [((2,), 0, 1)]
    """

    def __init__(
        self, workers: int = 1, time: int | str | Type | Sequence[str | Type] = 1, timezone: str = UTC
    ) -> None:
        if workers < 1:
            raise UsageError(f"{workers} workers: it takes at least one worker to run a dataflow")
        if not is_zone(timezone):
            raise UsageError(f"no time zone is named '{timezone}'", hint="for example 'Europe/Berlin'")
        self.timezone = timezone
        self.clock = Clock(time)
        self.pool = Pool(SECRET)
        self.frontier = Frontier([self.clock.start])
        self.surroundings = BindContext(
            self.clock.kinds, inputs=lambda: [each.relation.node for each in self._feeds.values()]
        )
        self.written_loop: Loop | None = None
        self.workers = workers
        self._workers = Workers(SHARDS * workers if workers > 1 else 1, workers)
        self._feeds: dict[str, Input | Upserts | ImportedArrangement] = {}
        self._outputs: dict[str, Output] = {}
        self._watched: dict[str, Relation] = {}
        self._showing: dict[str, tuple[int, Callable[[Update], Any]]] = {}
        self._one_at_a_time = Lock()
        self._kept: dict[str, KeptTraces] = {}
        self._assembled: Assembled | ShardedDataflow | None = None
        self._closed = False
        self._failed: Exception | None = None
        self.torn = False
        """True while something is done that must be done wholly."""

    # --- building -------------------------------------------------------------------------------------------------

    def input(self, name: str, schema: Mapping[str, str | Type]) -> Input:
        """Return a new input with these columns; it is a collection, and a session that takes updates."""
        session = Input(self, self.source(name, schema), name)
        self._feeds[name] = session
        return session

    def upsert_input(self, name: str, schema: Mapping[str, str | Type], key: Sequence[str]) -> Upserts:
        """Return a new input with at most one record for each key, whose session takes a key's present record. Time has one coordinate."""
        if self.clock.count > 1:
            hint = "`input` takes updates at any time"
            raise UsageError("upserts need a time of one coordinate: of several, none of them is the last", hint=hint)
        relation = self.source(name, schema)
        if not key or any(column not in relation.schema for column in key):
            raise UsageError(f"input '{name}': the key is some of its columns, not {list(key)}")
        session = Upserts(self, relation, name, tuple(dict.fromkeys(key)))
        self._feeds[name] = session
        return session

    def source(self, name: str, schema: Mapping[str, str | Type]) -> Relation:
        """Return the collection of a new input."""
        self._open()
        if name in self._feeds:
            raise UsageError(f"an input '{name}' exists already")
        given = schema_of(schema, f"input '{name}'")
        columns = {column: localized(kind, self.timezone) for column, kind in given.items()}
        return Relation(logical.Source((), columns, name, tuple(self.clock.names)))

    def sql(self, query: str, /, **collections: Collection) -> Collection:
        """Return the result of an SQL query over collections, under their keywords.

        >>> df = Dataflow()
        >>> edges = df.input("edges", {"src": "int64", "dst": "int64"})
        >>> two = df.sql("select a.src, b.dst from edges a join edges b on a.dst = b.src", edges=edges)
        >>> list(two.schema)
        ['src', 'dst']
        """
        if any(each.dataflow is not self for each in collections.values()):
            raise UsageError("`sql` is given a collection of another dataflow")
        return Collection(self, queried(self, query, {name: each.relation for name, each in collections.items()}))

    def iterate(
        self,
        variables: Mapping[str, Collection],
        body: Callable[..., Any],
        *,
        max_rounds: int | None = None,
        guard: int = GUARD,
    ) -> Any:
        """Return the collections that leave a loop with several variables, which have their values in the first round by name.

        `body` receives the variables, in their order, and returns the collection of each in the next round: a collection, a tuple in the
        same order, or a dictionary by name, in which further collections leave too. The same form is returned. It may be called
        more than once: until the variables' types hold the body's results. The loop continues until nothing changes,
        which is an error after `guard` rounds; or it takes `max_rounds` rounds, and the collections of the last one leave.
        """
        return iterated(self, variables, body, max_rounds, guard)

    @contextmanager
    def loop(self, *, max_rounds: int | None = None, guard: int = GUARD) -> Iterator[Loop]:
        """Yield a loop whose body is written in the `with` block; see `loops`."""
        self._open()
        loop = Loop(self, max_rounds, guard)
        with self.inside(loop.name, loop):
            yield loop
        loop.close()

    @contextmanager
    def inside(self, name: LoopName, loop: Loop | None = None) -> Iterator[None]:
        """Make operators that are added within the block part of a loop's body."""
        around = self.surroundings, self.written_loop
        self.surroundings, self.written_loop = replace(self.surroundings, loop=name), loop
        try:
            yield
        finally:
            self.surroundings, self.written_loop = around

    def leave(self, collection: Collection) -> Collection:
        """Return the collection that leaves the loop that is being written; see `Collection.leave`."""
        if self.written_loop is None:
            hint = "`iterate` returns what its body returns; `leave` is for the block of `with df.loop()`"
            raise UsageError("`leave` is outside of a loop that is written step by step", hint=hint)
        return self.written_loop.leave(collection)

    def import_trace(self, handle: TraceHandle, name: str | None = None) -> ImportedArrangement:
        """Return the arrangement that a handle of another dataflow reads, as a collection of this one.

        It is not copied. It begins with the contents as of the handle's `since`, at that time, and gets each new batch of the other
        dataflow; this one's frontier waits for the other's. The handle may be closed then.
        """
        source = handle.dataflow
        if source is self:
            raise UsageError("a dataflow imports from others", hint="use the arrangement itself")
        if source.clock.kinds != self.clock.kinds:
            raise UsageError("a dataflow imports from others with the same type of time")
        if source.workers != self.workers:
            raise UsageError(
                f"a dataflow with {self.workers} workers can't import from one with {source.workers}",
                hint="a shard of one is a shard of the other: give both as many workers",
            )
        name = name or f"import {len(self._feeds)}"
        imported = ImportedArrangement(self, self.source(name, handle.columns), handle.copy())
        self._feeds[name] = imported
        return imported

    def arranged(self, relation: Relation) -> Arranged:
        """Return the arrangement of `relation`'s node. Outside of loops it is kept for handles."""
        node = relation.node
        assert isinstance(node, logical.Arrange)
        if node.free:
            return Arranged(self, relation, node.by, None)
        for feed in self._feeds.values():
            if isinstance(feed, ImportedArrangement) and feed.key == node.by and feed.relation.node == node.inputs[0]:
                return feed
        if node.fingerprint not in self._kept:
            self._open()
            self._kept[node.fingerprint] = KeptTraces(self, relation, node.by)
        return Arranged(self, relation, node.by, self._kept[node.fingerprint])

    def output_of(self, relation: Relation) -> Output:
        """Return a new output with the updates of a collection."""
        self._open()
        if relation.node.free:
            raise UsageError("a collection of a loop's body is read outside of the loop", hint="let it leave the loop")
        output = Output(self, relation, Layout(relation.schema))
        self._outputs[f"output{len(self._outputs)}"] = output
        return output

    def shown(self, show: str | Callable[[Update], Any], columns: int) -> str:
        """Return a new label under which updates of records with this number of columns are passed to a function, or printed after a text."""
        self._open()
        label = f"inspect{len(self._showing)}"
        self._showing[label] = columns, show if callable(show) else partial(print, *([f"{show}:"] if show else []))
        return label

    def watch(self, label: str, relation: Relation) -> None:
        """Have a collection whose updates are shown computed, even without a reader. In a loop it is, if the loop is."""
        if not relation.node.free:
            self._watched[label] = relation

    def _open(self) -> None:
        if self._assembled is not None:
            raise UsageError(
                "the dataflow has run: its graph is fixed", hint="make all inputs, collections and outputs first"
            )

    # --- stepping -------------------------------------------------------------------------------------------------

    @property
    def time(self) -> Any:
        """The time before which all times are closed; None if the frontier has several elements, or none."""
        return self.clock.value(self.frontier.elements[0]) if len(self.frontier) == 1 else None

    def step(self) -> Frontier:
        """Close every time that all inputs have passed, and return the new frontier.

        A record that doesn't fit its input's columns stops the step before anything is taken in: InputError, and the dataflow can continue. A later
        failure, of an expression, or of a loop that doesn't settle, leaves the dataflow between two times: it can't step any more. After an interrupt
        (Ctrl-C) the dataflow either has all its updates, or can't step any more.
        """
        if self._closed:
            raise UsageError("the dataflow is closed")
        if self._failed is not None:
            hint = "make a new dataflow, and feed it without what it can't take"
            raise EngineError(f"an earlier step failed, and its updates are lost: {self._failed}", hint=hint)
        if self.torn:
            raise EngineError("an earlier step was interrupted, and its updates are lost", hint="make a new dataflow")
        assembled = self._assembled or self.assemble()
        if not self._feeds:
            return self.frontier
        first, *others = [feed.frontier for feed in self._feeds.values()]
        # The meet of several is computed only if they differ: it would slow a small step.
        upper = first if others.count(first) == len(others) else Frontier(t for f in (first, *others) for t in f)
        if upper == self.frontier:
            return upper
        for feed in self._feeds.values():
            feed.flush()
        # An interrupt may come at any moment, even in an `except` block: the step counts as torn until it is whole.
        self.torn = True
        try:
            self._close_times_before(upper, assembled)
        except Exception as error:
            self._failed = error
            raise
        self.frontier = upper
        self.torn = False
        return upper

    def _close_times_before(self, upper: Frontier, assembled: Assembled | ShardedDataflow) -> None:
        fed: dict[str, Delta | Deltas] = {}
        for name, feed in self._feeds.items():
            updates = feed.take_before(upper)
            if updates is not None and name in assembled.sources:
                fed[name] = updates
            del updates  # only the step may hold their memory
        for name, deltas in assembled.step(fed, Interval(self.frontier, upper)).items():
            if name in self._outputs:
                self._outputs[name].accept(deltas)

    def step_while(self, condition: Callable[[], bool]) -> None:
        """Step while `condition` holds and stepping moves the frontier."""
        while condition():
            before = self.frontier
            if self.step() == before:
                return

    def assemble(self) -> Assembled | ShardedDataflow:
        """Fix the graph: the first step does this, and the first reader of a trace."""
        if self._assembled is None:
            traces, graph = ShardTraces(self.frontier), self._graph()
            indexed = {name: feed.indexed() for name, feed in self._indexed().items()}
            assembled = self._assembled_over(self._workers, traces, graph, indexed)
            for name, layout in assembled.layouts.items():
                self._feeds[name].fit(layout)
            for name, shards in assembled.arranged.items():
                assert len(shards) == self._workers.count, "an import is no arrangement of this dataflow's own"
                self._kept[name].bind(shards)

            def united(traces: Traces) -> Assembled:
                indexed = {name: feed.united() for name, feed in self._indexed().items()}
                return self._assembled_over(Workers(), traces, graph, indexed)

            several = self._workers.count > 1
            self._assembled = ShardedDataflow(assembled, traces, self._workers, united) if several else assembled
        return self._assembled

    def _assembled_over(
        self,
        workers: Workers,
        traces: Traces,
        graph: PhysicalGraph,
        indexed: Mapping[str, IndexedSource],
    ) -> Assembled:
        """Return the graph's operators in the shards of these workers, over these traces."""
        scope = Scope(self.clock.count, workers=workers)
        return assemble(graph, scope, CircuitContext(traces, self.pool, self._show, self.clock.kinds), indexed)

    def _graph(self) -> PhysicalGraph:
        """Return the graph for the engine: the outputs, the collections that are shown, and the kept arrangements."""
        roots = {name: output.relation.node for name, output in self._outputs.items()}
        roots |= {name: relation.node for name, relation in self._watched.items()}
        roots |= {name: kept.relation.node for name, kept in self._kept.items()}
        # A source that comes arranged is read with all columns, so every reader reads the same arrangement.
        indexed = {name: feed.relation.node for name, feed in self._indexed().items()}
        written = Graph(roots | indexed)
        lowered = Generation.of(written).lowered(written).outputs
        lowered = with_delta_joins(lowered, delta_joins(lowered, lambda _: True))
        outputs = {
            name: arrange(node, self._kept[name].key) if name in self._kept else node
            for name, node in lowered.items()
            if name in roots
        }
        nodes = Graph(outputs | {name: lowered[name] for name in indexed}).nodes()
        return PhysicalGraph(outputs, tuple(nodes))

    def _indexed(self) -> dict[str, ImportedArrangement | Upserts]:
        """Return the inputs that are arranged by themselves."""
        return {name: feed for name, feed in self._feeds.items() if isinstance(feed, ImportedArrangement | Upserts)}

    def _show(self, label: str, updates: pl.DataFrame) -> None:
        """Show the updates of a frame whose last columns are times and diffs; shards step in threads, and take turns here."""
        columns, show = self._showing[label]
        count = columns + self.clock.count
        with self._one_at_a_time:
            for row in updates.iter_rows():
                time, rounds = self.clock.value(row[columns:count]), row[count:-1]
                if rounds:
                    time = (*time, *rounds) if isinstance(time, tuple) else (time, *rounds)
                show((row[:columns], time, row[-1]))

    # --- ending ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the workers' threads and release imported traces: the dataflow takes no further step."""
        self._closed = True
        self._workers.close()
        for feed in self._feeds.values():
            if isinstance(feed, ImportedArrangement):
                feed.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
