"""A dataflow: inputs, collections over them, outputs, and the steps that close times."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from ddcli.assemble.graph import Assembled, assemble
from ddcli.engine.arrangement.trace import Trace
from ddcli.engine.dataflow import Scope
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.base import Interval
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.engine.workers import Workers
from ddcli.errors import UsageError
from ddcli.library.clock import Clock
from ddcli.library.loops import Loop, iterated
from ddcli.library.outputs import Output
from ddcli.library.sessions import Feed, Input
from ddcli.library.words import schema as schema_of
from ddcli.plan import logical
from ddcli.plan.lower import lower
from ddcli.plan.operators import Surroundings
from ddcli.plan.relation import Relation
from ddcli.spec.model import GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars as pl

    from ddcli.expressions.types import Type
    from ddcli.library.collection import Collection
    from ddcli.library.outputs import Update
    from ddcli.plan.logical import Loop as LoopName


class Dataflow:
    """Inputs, collections over them, outputs. The first `step` fixes the graph.

    `time` is the number of coordinates of times, which are integers and begin at 0, or their types: `"date"`,
    `["date", "int64"]`. With several `workers` each operator is cut by key into as many shards, which step side by side in threads;
    what is emitted is the same.

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

    def __init__(self, workers: int = 1, time: int | str | Type | Sequence[str | Type] = 1) -> None:
        if workers < 1:
            raise UsageError(f"{workers} workers: it takes at least one worker to run a dataflow")
        self.clock = Clock(time)
        self.pool = Pool()
        self.frontier = Frontier([self.clock.start])
        self.surroundings = Surroundings(self.clock.kinds)
        self.written_loop: Loop | None = None
        self._workers = Workers(workers)
        self._feeds: dict[str, Feed] = {}
        self._outputs: dict[str, Output] = {}
        self._watched: dict[str, Relation] = {}
        self._showing: dict[str, tuple[int, Callable[[Update], Any]]] = {}
        self._one_at_a_time = Lock()
        self._assembled: Assembled | None = None

    # --- building -------------------------------------------------------------------------------------------------

    def input(self, name: str, schema: Mapping[str, str | Type]) -> Input:
        """Return a new input with these columns; it is a collection, and a session that takes updates."""
        session = Input(self, self.source(name, schema), name)
        self._feeds[name] = session
        return session

    def source(self, name: str, schema: Mapping[str, str | Type]) -> Relation:
        """Return the collection of an input that is new."""
        self._open()
        if name in self._feeds:
            raise UsageError(f"there is an input '{name}' already")
        columns = schema_of(schema, f"input '{name}'")
        return Relation(logical.Source((), columns, name, tuple(self.clock.names)))

    def iterate(
        self,
        variables: Mapping[str, Collection],
        body: Callable[..., Any],
        *,
        max_rounds: int | None = None,
        guard: int = GUARD,
    ) -> Any:
        """Return what leaves a loop with several variables, each given by name with what it is in the first round.

        `body` is given the variables, in their order, and returns what each is in the next round: a collection, a tuple in the
        same order, or a dictionary by name, in which further collections leave too. The same form is returned. It may be called
        more than once: until the variables' types hold what the body makes of them. The loop goes on until nothing changes,
        and after `guard` rounds that is an error; or it takes `max_rounds` rounds, and what leaves is as it is then.
        """
        return iterated(self, variables, body, max_rounds, guard)

    @contextmanager
    def loop(self, *, max_rounds: int | None = None, guard: int = GUARD) -> Iterator[Loop]:
        """Give a loop to write the body of, in a `with` block; see `loops`."""
        self._open()
        loop = Loop(self, max_rounds, guard)
        with self.inside(loop.name, loop):
            yield loop
        loop.close()

    @contextmanager
    def inside(self, name: LoopName, loop: Loop | None = None) -> Iterator[None]:
        """Take what is written now for a part of a loop's body."""
        around = self.surroundings, self.written_loop
        self.surroundings, self.written_loop = replace(self.surroundings, loop=name), loop
        try:
            yield
        finally:
            self.surroundings, self.written_loop = around

    def output_of(self, relation: Relation) -> Output:
        """Let the updates of a collection be read."""
        self._open()
        if relation.node.free:
            raise UsageError("a collection of a loop's body is read outside of the loop", hint="let it leave the loop")
        output = Output(self, relation, Layout(relation.schema))
        self._outputs[f"output{len(self._outputs)}"] = output
        return output

    def shown(self, show: str | Callable[[Update], Any], columns: int) -> str:
        """Return the label under which updates of so many columns are shown by a function, or printed under a text."""
        self._open()
        label = f"inspect{len(self._showing)}"
        self._showing[label] = columns, show if callable(show) else partial(print, *([f"{show}:"] if show else []))
        return label

    def watch(self, label: str, relation: Relation) -> None:
        """Have a collection whose updates are shown computed, though nobody may read it. In a loop it is, if the loop is."""
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
        """Return the time before which all is closed; None where the frontier is not a single one."""
        return self.clock.value(self.frontier.elements[0]) if len(self.frontier) == 1 else None

    def step(self) -> Frontier:
        """Close every time that all inputs have passed, and return the new frontier."""
        assembled = self._assembled or self._assemble()
        if not self._feeds:
            return self.frontier
        first, *others = [feed.frontier for feed in self._feeds.values()]
        # The meet of several is computed only where they differ: one small step is not to notice it.
        upper = first if all(other == first for other in others) else Frontier(t for f in (first, *others) for t in f)
        if upper == self.frontier:
            return upper
        fed = {}
        for name, feed in self._feeds.items():
            updates = feed.take_before(upper)
            if updates is not None and name in assembled.sources:
                fed[name] = updates
        for name, delta in assembled.step(fed, Interval(self.frontier, upper)).items():
            if name in self._outputs:
                self._outputs[name].accept(delta)
        self.frontier = upper
        return upper

    def step_while(self, condition: Callable[[], bool]) -> None:
        """Step while `condition` holds and stepping moves the frontier."""
        while condition():
            before = self.frontier
            if self.step() == before:
                return

    def _assemble(self) -> Assembled:
        relations = {name: output.relation for name, output in self._outputs.items()} | self._watched
        graph = lower(logical.Graph({name: relation.node for name, relation in relations.items()}))
        scope = Scope(self.clock.count, workers=self._workers)
        self._assembled = assemble(graph, scope, self, self.pool, self._show, self.clock.kinds)
        for name, layout in self._assembled.layouts.items():
            self._feeds[name].fit(layout)
        return self._assembled

    def trace(self, identity: str, key: Layout, value: Layout, nt: int) -> Trace:
        """Return an empty trace: the dataflow's state is its own."""
        return Trace(key.width, value.width, nt, since=self.frontier)

    def _show(self, label: str, updates: pl.DataFrame) -> None:
        """Show the updates of a frame that ends with times and diffs; shards step in threads, and take turns here."""
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
        """Let the workers' threads go; from now on a step does all its work in the thread that calls it."""
        self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
