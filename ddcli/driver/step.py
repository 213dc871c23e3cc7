"""The skeleton of a run: a graph is computed over an interval of times in one step, checks decide, and one commit has all that it changed.

A run over new rows (`single_run`) and the rebuild of a state (`migration`) are made of it: each states its sources, its outputs, and the manifest
that it commits. The step leads from slices of inputs through the dataflow to files of outputs and state: in memory, or out of core; tasks on other
processes are `runtime.scheduler`'s.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.circuit.graph import assemble
from ddcli.circuit.operators import CircuitContext
from ddcli.circuit.traces import memory_of
from ddcli.dataclass import dataclass, frozen
from ddcli.driver.check_gate import gate_of
from ddcli.engine import kernels
from ddcli.engine.counts import Counts
from ddcli.engine.kernels import ManyPairs
from ddcli.engine.operators.base import Delta, consolidated, empty
from ddcli.engine.pool import Pool
from ddcli.engine.process import Workers
from ddcli.engine.scope import Scope
from ddcli.errors import UsageError
from ddcli.job.sizes import MUCH
from ddcli.job.summary import SparkSummary
from ddcli.plan.memo import remembered
from ddcli.sinks.outputs import LARGE
from ddcli.sinks.side_logs import ErrorLog
from ddcli.sources.readers import facts_of, refuse_rewritten
from ddcli.store.files.access import fs, real
from ddcli.store.files.gate import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    import numpy as np
    import polars as pl

    from ddcli.circuit.graph import Assembled
    from ddcli.circuit.traces import StateTraces
    from ddcli.driver.check_gate import CheckGate
    from ddcli.driver.prepare import RunPlan
    from ddcli.engine.executor import Part
    from ddcli.engine.lanes import Layout
    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.request import Request
    from ddcli.job.sizes import Sizes
    from ddcli.job.summary import SparkSummary
    from ddcli.job.verdict import Verdict
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.runtime.placement import Placement
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.sources.readers import Reader
    from ddcli.sources.slices import Feed, InputFacts, Slice
    from ddcli.store.state.directory import State
    from ddcli.store.state.entries import Times
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction


OWN_TIMES = "own_times"
"""The key of a manifest's cache that is true while outputs and arrangements have all updates at the times of the rows that they come from: no run has corrected any."""


def pools_for(cut: Sizes, secret: bytes) -> list[Pool]:
    """Return the pool of each pass: one for all where updates go from shard to shard in memory."""
    return [Pool(secret)] * cut.passes if cut.room is None else [Pool(secret) for _ in range(cut.passes)]


@dataclass
class StepExecutor:
    """The step of a run, from slices of inputs to files of outputs and state."""

    assembled: Assembled
    taken: Mapping[str, Feed]
    cut: Sizes
    pools: Sequence[Pool]
    traces: StateTraces
    publishing: OutputWriter
    transaction: Transaction | None
    interval: Interval

    def run(self) -> None:
        """Step as the run was cut. Scratch files are beside the state, or, if it is not on this machine, among temporary files."""
        if self.cut.room is None:
            self.run_in_memory()
            return
        state = self.transaction.state if self.transaction is not None else None
        if state is not None and fs(state.directory).is_local:
            self.run_out_of_core(state.directory, state.files)
            return
        with tempfile.TemporaryDirectory() as place:
            self.run_out_of_core(real(Path(place)), Files())

    def run_in_memory(self) -> None:
        """Step over all updates at once, then write outputs and traces. Large ones are written by threads as they are done, small ones by one thread, as two would wait for each other."""
        progress, scope = self.publishing.request.asked.progress, self.assembled.scope
        progress.begin("reading inputs")
        scope.prepare()
        first = {index for stage in scope.stages if stage.first for index in stage.places}
        # Inputs need not be read as a whole where their first operators take each row by itself.
        parts = [each for each in self._parts() if each[0] in first] if scope.streams else []
        with ThreadPoolExecutor(max(2, self.cut.threads)) as threads:
            writing = deque[Future[None]]()

            def on_trace_ready(trace: Trace) -> None:
                if self.transaction is None:
                    return
                if scope.workers.threads > 1:
                    # In the thread that has stepped the shard, so that its memory is free before the next shard begins.
                    self.traces.write(trace, self.transaction, self.interval.upper)
                    return
                writing.append(threads.submit(self.traces.write, trace, self.transaction, self.interval.upper))
                if len(writing) > self.cut.threads:
                    writing.popleft().result()

            left = set[int]()

            def leave(index: int, delta: Delta) -> bool:
                if len(delta.updates) <= LARGE:
                    return False
                left.add(index)
                updates = consolidated(delta)
                for name, handle in self.assembled.leaving.items():
                    if handle.index == index:
                        self.publishing.add(name, updates, self.pools[0])
                return True

            found = self.assembled.step_places(
                self._fed({index for index, _ in parts}),
                self.interval,
                parts,
                *((on_trace_ready, leave) if scope.streams else ()),
            )
            progress.begin("writing outputs and state")
            for write in writing:
                write.result()
            writing.clear()
            writes = self._writes(found, left)
            found.clear()
            if sum(given.rows for given in self.taken.values()) < MUCH:
                for work in writes:
                    work()
            else:
                writing.extend(map(threads.submit, writes))
            del writes
        for write in writing:
            write.result()

    def _parts(self) -> list[tuple[int, Part]]:
        """Return the parts of each input, by place."""

        def part(piece: Slice, layout: Layout) -> Part:
            return lambda shard: piece.updates(layout, self.pools[shard])

        return [
            (self.assembled.sources[name].index, part(piece, layout))
            for name, layout in self.assembled.layouts.items()
            for piece in self.taken[name].slices
        ]

    def _fed(self, apart: Container[int]) -> dict[int, Delta | list[Delta]]:
        """Read each input's updates of the interval into lanes, a slice a shard; but for the places that are read `apart`."""
        assembled, workers, count = self.assembled, self.assembled.scope.workers, self.cut.passes
        fed: dict[int, Delta | list[Delta]] = {}
        for name, layout in assembled.layouts.items():
            if assembled.sources[name].index in apart:
                continue
            slices = self.taken[name].slices

            def read(at: int, slices: Sequence[Slice] = slices, layout: Layout = layout) -> np.ndarray:
                return slices[at].matrix(layout, self.pools[0])

            matrices = workers.each(read, range(len(slices)), self.taken[name].rows)
            if not matrices:
                continue
            none = empty(matrices[0].shape[1])
            shards = [kernels.concat(matrices[at::count]) if matrices[at::count] else none for at in range(count)]
            fed[assembled.sources[name].index] = [Delta(matrix) for matrix in shards]
        return fed

    def _writes(self, found: dict[int, list[Delta]], left: Container[int]) -> list[Callable[[], None]]:
        """Return the work to do after the step, each part possibly in a thread of its own. Some updates of the places in `left` are written already."""
        parts: list[tuple[str, bool, np.ndarray]] = []
        for name, handle in self.assembled.leaving.items():
            deltas = found.get(handle.index, [])
            large = handle.index in left or (sum(len(delta.updates) for delta in deltas) > LARGE and len(deltas) > 1)
            if large:
                parts += [(name, False, consolidated(delta)) for delta in deltas]
            elif deltas:
                whole = [consolidated(delta) for delta in deltas if len(delta.updates)]
                parts.append((name, True, whole[0] if len(whole) == 1 else kernels.concat(whole)))
        traces = self.traces.traces() if self.transaction is not None else []
        held = [matrix for *_, matrix in parts]
        held += [kernels.leading(rows) for trace in traces for rows in trace.resident()]
        shared = frozenset(memory for memory, count in Counter(map(memory_of, held)).items() if count > 1)
        del held
        writes: list[Callable[[], None]] = [
            partial(self.publishing.add, name, matrix, self.pools[0], alone=alone) for name, alone, matrix in parts
        ]
        if self.transaction is not None:
            upper = self.interval.upper
            writes += [partial(self.traces.write, trace, self.transaction, upper, shared) for trace in traces]
        return writes

    def run_out_of_core(self, directory: Path, files: Files) -> None:
        """Step stage by stage and shard by shard, and write each part of outputs and traces as soon as it is known."""
        from ddcli.engine.executor import Executor
        from ddcli.engine.schedule import Schedule
        from ddcli.engine.spill_store import SpillStore
        from ddcli.store.scratch.spill import Spill

        assembled, nest = self.assembled, self.assembled.nest

        def give(index: int, shard: int, delta: Delta) -> None:
            updates = consolidated(delta)
            for name, handle in assembled.leaving.items():  # equal collections are one
                if handle.index == index:
                    self.publishing.add(name, updates, self.pools[shard])

        def on_trace_ready(trace: Trace) -> None:
            if self.transaction is not None:
                self.traces.write(trace, self.transaction, self.interval.upper)
            elif self.publishing.request.asked.arranged is not None:
                self.traces.measure(trace)

        assert self.cut.room is not None, "out of core has room for something"
        spill = Spill(directory, files, self.cut.room)
        try:
            store = SpillStore(nest, self.pools, spill, on_trace_ready)
            executor = Executor(nest, self.interval, store, give, self._parts())
            schedule = Schedule[Delta](nest, range(self.cut.passes))
            executor.run(schedule.work_items())
        finally:
            spill.clear()


@frozen
class StepInput:
    """A graph, the updates and traces that it begins with, and the interval over which it is computed."""

    graph: PhysicalGraph
    readers: dict[str, Reader]
    taken: Mapping[str, Feed]
    cut: Sizes
    spread: bool
    """True: each stage gets an engine of its own, as tasks."""
    pools: Sequence[Pool]
    traces: StateTraces
    interval: Interval
    since: Times | None
    """The frontier from which on the facts of inputs are noted: None for all of their times."""
    until: Times | None = None
    """The frontier up to which they are noted: None for the interval's."""
    streams: bool = False
    combines: bool = False
    bundled: bool = False
    """True: the commit may put small batches into one file."""
    often: bool = False
    widths: Mapping[str, float] | None = None


@frozen
class StepResult:
    """The result of a run's step, and the manifest that it committed; in a dry run the one from before."""

    manifest: Manifest | None
    writer: OutputWriter
    counts: Counts
    spark: SparkSummary | None
    facts: dict[str, InputFacts]
    errors: ErrorLog
    verdicts: dict[str, Verdict]


@dataclass
class DataflowRun(ABC):
    """A run that has something to do: read, step, commit. Without a state, in a dry run, nothing is committed."""

    request: Request
    manifest: Manifest | None
    state: State | None
    planning: RunPlan
    placement: Placement
    time: Schema
    """The time columns of the outputs and their types, one for each coordinate."""

    @property
    def waits(self) -> bool:
        """Return whether this commit becomes one with a later one, which its checks are judged by."""
        return False

    @property
    def kinds(self) -> list[Type]:
        return list(self.time.values())

    def compute(self) -> StepResult:
        """Compute and commit: in memory if that is large enough, also for the rows of joins, which are known only when they are made; else, from the beginning, out of core."""
        try:
            return self._attempt(self.begin())
        except ManyPairs as many:
            self.placement.joined = many.rows
        self.request.asked.say(
            f"a join has {self.placement.joined:,} rows, too many for the memory: the run starts again out of core"
        )
        return self._attempt(self.begin())

    def _attempt(self, given: StepInput) -> StepResult:
        request, cut, traces = self.request, given.cut, given.traces
        if given.spread:
            refuse_budgets(given.graph)
        facts = facts_of(request.spec, given.readers, given.since, given.until or given.interval.upper.elements)
        errors = ErrorLog(self.time)
        workers = Workers(cut.passes, cut.threads)
        scope = Scope(
            len(self.time),
            workers=workers,
            counted=True,
            streams=given.streams,
            combines=given.combines,
            pairs=cut.pairs,
            progress=request.asked.progress,
        )
        try:
            failed = self.collector(errors) if request.spec.errors else None
            context = CircuitContext(traces, given.pools, self.show, tuple(self.kinds), facts, failed)
            assembled = assemble(given.graph, scope, context, parted=True, lazily=given.spread)
            with (
                nullcontext()
                if self.state is None
                else self.state.begin(batches=traces.files if given.bundled else 0, often=given.often) as transaction
            ):
                writer = self.writer(given, assembled.outputs, transaction)
                step = StepExecutor(
                    assembled, given.taken, cut, given.pools, traces, writer, transaction, given.interval
                )
                if request.asked.budget is not None:
                    scope.watch = lambda: self.planning.check_spent(Counts.of(scope.counts()))
                spark: SparkSummary | None = None
                if given.spread:
                    from ddcli.runtime.scheduler import run_as_tasks

                    watch = self.planning.check_spent
                    counts, spark = run_as_tasks(
                        given.graph,
                        assembled,
                        given.taken,
                        cut,
                        given.interval,
                        traces,
                        writer,
                        transaction,
                        self.placement,
                        facts,
                        errors,
                        watch,
                        given.widths or {},
                    )
                else:
                    step.run()
                    if transaction is None and request.asked.arranged is not None:
                        for trace in traces.traces():
                            traces.measure(trace)
                        request.asked.arranged(traces.numbers)
                    counts = self.counted(scope, given, writer)
                self.check(facts)
                self.planning.check_spent(counts)
                gate = self._gate(writer)
                verdicts = gate.judge() if gate else {}
                if gate and not self.waits:
                    gate.refuse()
                if transaction is None:
                    return StepResult(self.manifest, writer, counts, spark, facts, errors, verdicts)
                manifest = self.next_manifest(given, writer, errors, transaction)
                if request.asked.budget is not None:
                    made = traces.entries(given.interval.upper)
                    self.planning.check_written(transaction, counts, made, writer)
                manifest = commit(request, transaction, gate.written(manifest) if gate else manifest, given.readers)
                done = StepResult(manifest, writer, counts, spark, facts, errors, verdicts)
                if self.waits and self.state is not None:
                    self.state.checks = gate
                return done
        finally:
            workers.close()

    def _gate(self, writer: OutputWriter) -> CheckGate | None:
        """Return the checks at the commit, and at the one that waits to become one with it; None without any."""
        request, waiting = self.request, self.state.checks if self.state else None
        if not (request.spec.checks or waiting or request.decided.forgetting):
            return None
        return gate_of(self.state, request, self.manifest, writer.noted, writer.removed, self.continues)

    @abstractmethod
    def begin(self) -> StepInput:
        """Return the graph with its sources and traces; a second attempt calls this again."""

    @abstractmethod
    def collector(self, errors: ErrorLog) -> Callable[..., None]:
        """Return the function that receives the records on which an expression fails."""

    @abstractmethod
    def writer(self, given: StepInput, layouts: dict[str, Layout], transaction: Transaction | None) -> OutputWriter:
        """Return the writer of the outputs, with the graph's `layouts`."""

    @abstractmethod
    def next_manifest(
        self, given: StepInput, writer: OutputWriter, errors: ErrorLog, transaction: Transaction
    ) -> Manifest:
        """Add the files beside outputs and traces to the commit, and return its manifest."""

    @abstractmethod
    def show(self, label: str, updates: pl.DataFrame) -> None:
        """Print the updates that reach an `inspect`."""

    def counted(self, scope: Scope, _given: StepInput, _writer: OutputWriter) -> Counts:
        """Return the counts of the step."""
        return Counts.of(scope.counts())

    def continues(self, _name: str) -> bool:
        """Return whether the log of a check has the updates of earlier commits."""
        return self.manifest is not None

    @abstractmethod
    def check(self, facts: dict[str, InputFacts]) -> None:
        """Refuse inputs for the facts that the step has found."""


def refuse_budgets(graph: PhysicalGraph) -> None:
    """Raise UsageError if a function has a budget of calls: tasks in several processes can't count these together."""
    for node in remembered(graph.nodes).values():
        if node.calls is not None:
            problem = f"`{node.function}` has a budget of calls, which tasks can't keep together"
            raise UsageError(problem, hint="run it with `--engine local`, or leave `calls` out")


def commit(request: Request, transaction: Transaction, manifest: Manifest, readers: Mapping[str, Reader]) -> Manifest:
    """Commit a manifest, and return it. Raises RewrittenError if a log has been rewritten since it was read."""
    refuse_rewritten(readers)
    request.asked.progress.begin("committing")
    return transaction.commit(manifest)
