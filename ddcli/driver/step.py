"""The step of a run: from slices of inputs through the dataflow to files of outputs and state, in memory, out of core, or as tasks."""

from __future__ import annotations

import os
import tempfile
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.circuit.traces import memory_of
from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.jit.settings import cache_dir
from ddcli.engine.operators.base import Delta, consolidated, empty
from ddcli.engine.pool import Pool
from ddcli.job.sizes import MUCH
from ddcli.job.summary import SparkSummary
from ddcli.sinks.outputs import LARGE
from ddcli.sinks.pieces import INLINE
from ddcli.store.files.access import fs, real
from ddcli.store.files.buckets import settings_in_use
from ddcli.store.files.gate import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    import numpy as np

    from ddcli.circuit.graph import Assembled
    from ddcli.circuit.traces import StateTraces
    from ddcli.engine.counts import Counts
    from ddcli.engine.executor import Part
    from ddcli.engine.lanes import Layout
    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace
    from ddcli.job.sizes import Sizes
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.runtime.placement import Placement
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.sinks.side_logs import ErrorLog
    from ddcli.sources.input_format import InputFacts
    from ddcli.sources.readers import Feed, Slice
    from ddcli.store.state.transaction import Transaction


LARGE_RESULT = 64 << 20
"""Bytes of outputs in the result of a task of a dry run: of more updates of a check only the number is known."""


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

    def _inline(self) -> int:
        """Return the bytes of outputs that the result of a task may have; a dry run writes none to files, and its results stay on this machine."""
        if self.transaction is None:
            return LARGE_RESULT
        slices = max((len(feed.slices) for feed in self.taken.values()), default=0)
        stages = max(len(self.assembled.nest.scope.stages), 1)  # none, where a change only removes outputs
        return INLINE // (stages * max(self.cut.passes, slices))

    def run_as_tasks(
        self,
        graph: PhysicalGraph,
        placement: Placement,
        facts: dict[str, InputFacts],
        errors: ErrorLog,
        watch: Callable[[Counts], None],
        widths: Mapping[str, float] | None = None,
    ) -> tuple[Counts, SparkSummary | None]:
        """Step task by task, each where it is best done; return their counts, and where they were done if some were on Spark.

        `watch` receives the counts so far before each stage, and may raise. `widths` are the bytes of an input's files per row,
        for the progress display.
        """
        from ddcli.runtime.scheduler import TaskScheduler
        from ddcli.runtime.task import Job
        from ddcli.store.scratch.spill import scratch

        transaction, traces, publishing = self.transaction, self.traces, self.publishing
        request = publishing.request
        outputs = {name: request.outputs[name] for name in publishing.layouts}
        if transaction is not None:
            transaction.expect(outputs.values())
        # A dry run leaves the state alone: its tasks run on this machine only. So do all tasks of the local engine.
        beside = transaction is not None and (request.asked.resources.engine != "local" or fs(request.state).is_local)
        files = transaction.state.files if transaction is not None and beside else Files()
        with (
            nullcontext(request.state) if beside else tempfile.TemporaryDirectory() as place,
            scratch(real(Path(place) if isinstance(place, str) else place), files) as here,
        ):
            job = Job(
                state=request.state,
                scratch=here,
                token=os.urandom(4).hex(),
                number=transaction.number if transaction is not None else None,
                manifest=traces.manifest,
                secret=traces.pools[0].secret,
                identity=traces.manifest.identity if traces.manifest else "",
                graph=graph,
                cut=self.cut,
                interval=self.interval,
                upper=traces.frontier or self.interval.upper,
                time=publishing.time,
                taken=self.taken,
                facts=facts,
                imports=traces.imports,
                claims=traces.claims,
                past=traces.past,
                only=traces.only,
                answered=traces.answered,
                erases=traces.erases,
                outputs=outputs,
                inline=self._inline(),
                most=publishing.most,
                reopen=publishing.reopen,
                combines=self.assembled.scope.combines,
                quarantines=request.spec.errors is not None,
                cache_dir=cache_dir(),
                store=settings_in_use(),
            )
            scheduler = TaskScheduler(
                job,
                self.assembled,
                placement,
                traces,
                publishing,
                transaction,
                facts,
                errors,
                request.asked.say,
                request.asked.progress,
                widths or {},
                watch,
            )
            scheduler.run()
        tasks, stages = scheduler.tasks, scheduler.stages
        if placement.spark is None or not tasks[True]:
            return scheduler.counts, None
        where = placement.spark.master
        return scheduler.counts, SparkSummary(where, tasks[True], stages[True], tasks[False], stages[False])
