"""Tasks: a shard or some slices through a stage, in any process that can open the state's directory.

A task carries all that it needs: the run (`Job`, the same for all tasks of a run), the stage and its shards, and the files of the
updates sent to it. It makes its operators over the traces of the last commit and steps them as a run in one process does. Its result is
small: the names of the files that it wrote, not their content. Nothing of it counts before the driver commits, so a task may fail, be
repeated, or run twice at once.
"""

from __future__ import annotations

import os
import pickle
import time as clock
import zlib
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ddcli.circuit.graph import assemble
from ddcli.circuit.operators import CircuitContext
from ddcli.circuit.traces import Merged, Rest, ShardFiles, StateTraces
from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.counts import OUTPUT, Counts, RowCounts
from ddcli.engine.executor import Executor
from ddcli.engine.heap import BufferPool
from ddcli.engine.operators.base import consolidated
from ddcli.engine.pool import Pool
from ddcli.engine.process import Workers, processors
from ddcli.engine.rounds import reopened
from ddcli.engine.scope import Scope
from ddcli.engine.spill_store import SpillStore, run_loop
from ddcli.errors import DdError, EngineError, SpecError
from ddcli.privacy import hide
from ddcli.sinks.pieces import PieceWriter
from ddcli.sinks.side_logs import ErrorLog, seen
from ddcli.store.batch.checked_files import OpenBundles
from ddcli.store.files.access import fs, real
from ddcli.store.files.buckets import SCHEMES, adopt_settings
from ddcli.store.files.gate import Files
from ddcli.store.scratch.attempt import Attempt
from ddcli.store.scratch.spill import FileExchange, Sent
from ddcli.store.state.transaction import StateFiles
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import polars as pl

    from ddcli.circuit.graph import Assembled
    from ddcli.circuit.operators import Failed
    from ddcli.engine.executor import Part
    from ddcli.engine.lanes import Columns, Layout
    from ddcli.engine.operators.base import Delta
    from ddcli.engine.rounds import Interval
    from ddcli.engine.schedule import WorkItem
    from ddcli.engine.scope_tree import Address, Exchange, Memos, ScheduledActivation
    from ddcli.engine.times import Frontier
    from ddcli.engine.trace.spine import Trace
    from ddcli.expressions.types import Schema
    from ddcli.job.sizes import Sizes
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.sinks.pieces import Join, Piece, PieceFile
    from ddcli.sources.arrangement_input import SharedReader
    from ddcli.sources.slices import Feed, InputFacts, InputReport
    from ddcli.store.state.batch_lists import Listed
    from ddcli.store.state.directory import Claims
    from ddcli.store.state.entries import FileEntry
    from ddcli.store.state.manifest import Manifest

SHARED = "put the state, the inputs and the outputs at paths that all executors can open, a shared file system or s3://"
"""The way out where an executor lacks a file."""


@dataclass(frozen=True)
class Job:
    """The common description of all tasks of a run: its inputs, plan, outputs and shards. Without `number` it is a dry run."""

    state: Path
    scratch: Path
    """The folder in which tasks exchange updates."""
    token: str
    """A part of the names of this run's files that no other run has."""
    number: int | None
    """The number of the commit to come."""
    manifest: Manifest | None
    secret: bytes
    identity: str
    """The identity of the state."""
    graph: PhysicalGraph
    cut: Sizes
    interval: Interval
    upper: Frontier
    """The frontier that arrangements are written as of: the interval's, if the run closes its times."""
    time: Schema
    taken: Mapping[str, Feed]
    facts: Mapping[str, InputFacts]
    imports: Mapping[str, SharedReader]
    claims: Claims
    past: Mapping[str, int | None]
    only: Collection[str] | None
    answered: Manifest | None
    erases: bool
    outputs: Mapping[str, Path]
    """The outputs that the run writes."""
    inline: int
    """The bytes of outputs that a task may return in its result instead of in files."""
    most: int
    """The bytes of a file of an output after which a task begins another."""
    reopen: Frontier | None
    """The frontier from which times are open, to which a changed pipeline's past is moved. None: all are open, or there is no such past."""
    combines: bool
    """True: counts and sums of a part's few groups are added up before they are exchanged."""
    quarantines: bool
    """True: records on which an expression fails go to the quarantine, instead of ending the run."""
    cache_dir: Path
    """The folder of compiled kernels, on machines that have one."""
    store: Mapping[str, str] = field(default_factory=dict)
    """The address and credentials of the object store, for machines that have none of their own."""

    @cached_property
    def bundles(self) -> OpenBundles:
        """The open bundles of a process: its tasks read many of the same."""
        return OpenBundles(self.manifest.bundles if self.manifest else {})

    def traces(self, pools: Sequence[Pool]) -> StateTraces:
        """Return the traces that the run's operators begin with."""
        return StateTraces(
            real(self.state),
            self.manifest,
            pools,
            self.interval.lower,
            self.cut,
            imports=self.imports,
            claims=self.claims,
            past=self.past,
            only=self.only,
            answered=self.answered,
            erases=self.erases,
            bundles=OpenBundles() if fs(self.state).is_local else self.bundles,
        )


@dataclass(frozen=True)
class Task:
    """A work item of the schedule for some shards, or slices of inputs to read, or shards' files to merge, batches to copy out of worn bundles, or files of outputs to make.

    `sent` are the updates that wait for these shards, `memos` the state of their loops, `threads` the most that the task may use.
    """

    item: WorkItem | None = None
    shards: tuple[int, ...] = ()
    slices: tuple[tuple[str, int], ...] = ()
    sent: Mapping[Address, Sequence[Sent]] = field(default_factory=dict)
    memos: Memos = field(default_factory=dict)
    merges: tuple[Rest, ...] = ()
    moves: tuple[Listed, ...] = ()
    joins: tuple[Join, ...] = ()
    threads: int = 1


@dataclass
class Result:
    """A task's result: the files that it sent and wrote, and its counts. With an `error`, nothing of it counts."""

    sent: list[Sent] = field(default_factory=list)
    wakes: list[ScheduledActivation] = field(default_factory=list)
    memos: Memos = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    joined: list[tuple[str, PieceFile]] = field(default_factory=list)
    """Files of outputs that were made of other tasks' files."""
    kept: list[ShardFiles] = field(default_factory=list)
    merged: list[Merged] = field(default_factory=list)
    state: StateFiles = field(default_factory=StateFiles)
    read: dict[str, InputReport] = field(default_factory=dict)
    failed: Sequence[pl.DataFrame] = ()
    lines: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    error: DdError | None = None
    host: str | None = None
    """The machine whose system has caused the error: another machine may not have it."""


def packed(job: Job) -> bytes:
    """Return a job as all its tasks get it: behind the version of this package, as only the same version can read it."""
    return f"{__version__}\n".encode() + pickle.dumps(job)


def perform(common: bytes, task: bytes, attempt: str) -> bytes:
    """Return the packed `Result` of a pickled `Task` of a `packed` job. No two attempts at a task have the same name `attempt`.

    An error of the data, the pipeline or the system is part of the result, since Spark would repeat a task that raises.
    """
    try:
        return packed_result(TaskAttempt(unpacked(common), attempt).do(pickle.loads(task)))  # noqa: S301
    except (DdError, OSError) as error:
        return packed_result(failure(error))


def packed_result(result: Result) -> bytes:
    """Return a result as the driver gets it: compressed, as the names of its files are much alike."""
    return zlib.compress(pickle.dumps(result), 1)


def result_of(data: bytes) -> Result:
    """Return the result that was packed."""
    found = pickle.loads(zlib.decompress(data))  # noqa: S301
    assert isinstance(found, Result)
    return found


def failure(error: DdError | OSError) -> Result:
    """Return the result of a task that an error of the data, the pipeline or the system has ended."""
    host = os.uname().nodename
    if isinstance(error, SpecError):  # the driver could import all that the file names, this machine can't
        problem = f"an executor on {host} lacks what the pipeline names: {error.problem}"
        hint = "put the folder of the pipeline file where all executors can open it, and install there what its functions import"
        return Result(error=EngineError(problem, hint=hint))
    if isinstance(error, DdError):
        of_system = isinstance(error.__cause__ or error.__context__, OSError)
        of_store = isinstance(error, EngineError) and (error.place or "").startswith(SCHEMES)
        return Result(error=error, host=host if of_system or of_store else None)
    problem = f"the file can't be opened: {error.strerror or error}"
    return Result(error=EngineError(problem, place=error.filename and str(error.filename)), host=host)


_known: dict[bytes, Job] = {}
"""The job of this process's last task: most of its tasks belong to one run."""


def unpacked(common: bytes) -> Job:
    """Return the job that was `packed`, and prepare this process for its tasks."""
    found = _known.get(common)
    if found is None:
        _known.clear()
        version, _, data = common.partition(b"\n")
        if version.decode() != __version__:
            raise EngineError(
                f"an executor on {os.uname().nodename} has ddcli {__version__}, and this is {version.decode()}",
                hint="install the same version everywhere; `dd doctor --spark` compares the versions of all executors",
            )
        found = pickle.loads(data)  # noqa: S301
        assert isinstance(found, Job)
        _known[common] = found
        kernels.set_cache_dir(found.cache_dir)
        adopt_settings(found.store)
    return found


class TaskAttempt:
    """One attempt at a task."""

    def __init__(self, job: Job, attempt: str) -> None:
        self.job = job
        hide(job.graph.tags.get("", {}), job.identity)
        self.pool = Pool(job.secret)
        self.pools = [self.pool] * job.cut.passes
        self.name = f"{job.token}-{attempt}"
        self.attempt = None if job.number is None else Attempt(real(job.state), job.number, self.name)
        self.traces = job.traces(self.pools)
        self.errors = ErrorLog(job.time)
        self.facts = {name: facts.apart() for name, facts in job.facts.items()}
        outputs = {name: real(path) for name, path in job.outputs.items()}
        self.pieces = PieceWriter(self.attempt, outputs, job.time, job.inline, job.most)
        self.result = Result()
        self.scans = {name: scan.fingerprint for name, scan in job.graph.scans().items()}
        self.dataflow: Assembled
        self.seconds: dict[str, float] = defaultdict(float)
        """The time that reading inputs and writing outputs took, by their names in `counts`."""

    def do(self, task: Task) -> Result:
        """Do the task."""
        if task.merges or task.moves or task.joins:
            assert self.attempt is not None, "a dry run keeps nothing"
            self.result.merged = [self.traces.merge(rest, self.attempt, self.job.upper) for rest in task.merges]
            for name, shard, file in task.moves:
                moved = self.attempt.move(name, shard, file)
                self.result.merged.append(Merged(name, shard, frozenset([file.name]), (moved,)))
            self.result.joined = [(each.name, each.make(self.attempt, self.job.time)) for each in task.joins]
        else:
            exchange = self.files(task.sent)
            with self.stepping(exchange, task.threads, task.memos) as step:
                self._step(task, step, exchange)
            exchange.flush()
            self.result.sent = exchange.sent
        return self.finished()

    def finished(self) -> Result:
        """Return the result of all that was done."""
        self.result.pieces = self.pieces.finish()
        apart = [(name, RowCounts(seconds=spent)) for name, spent in self.seconds.items()]
        for name, count in (*apart, *self.traces.counts()):
            self.result.counts.note(name, count)
        if self.attempt is not None:
            self.result.state = self._placed(self.attempt)
        self.result.read = {name: facts.report() for name, facts in self.facts.items()}
        self.result.failed = self.errors.frames
        return self.result

    def _placed(self, attempt: Attempt) -> StateFiles:
        """Complete the attempt, and enter the places of its batches into the result."""

        def placed(of: ShardFiles | Merged) -> tuple[FileEntry, ...]:
            return tuple(attempt.placed(of.identity, of.shard, file) for file in of.files)

        self.result.kept = [replace(kept, files=placed(kept)) for kept in self.result.kept]
        self.result.merged = [replace(merged, files=placed(merged)) for merged in self.result.merged]
        written: tuple[ShardFiles | Merged, ...] = (*self.result.kept, *self.result.merged)
        every = ((each, file) for each in written for file in each.files)
        return attempt.finish(
            [
                (each.identity, each.shard, file)
                for each, file in every
                if attempt.has_made(each.identity, each.shard, file)
            ]
        )

    def _check_shared(self) -> None:
        """Raise EngineError unless the directories exist here that the driver has made: of the scratch files, and of the outputs."""
        places = [("state", self.job.scratch, self.job.state)]
        if self.attempt is not None:
            places += [(f"output '{name}'", path, path) for name, path in self.job.outputs.items()]
        for what, made, place in places:
            if fs(made).has_directories and not fs(real(made)).is_dir():
                problem = f"an executor on {os.uname().nodename} can't open the {what}"
                raise EngineError(problem, place=str(place), hint=SHARED)

    def assembled(self, threads: int) -> Assembled:
        """Return the dataflow, none of its operators made yet."""
        job = self.job
        return assemble(
            job.graph,
            Scope(
                len(job.time),
                workers=Workers(job.cut.passes, threads),
                counted=True,
                combines=job.combines,
                pairs=job.cut.pairs,
            ),
            CircuitContext(self.traces, self.pools, self._show, tuple(job.time.values()), self.facts, self._failed()),
            parted=True,
            lazily=True,
        )

    def _failed(self) -> Failed | None:
        """Return the function that receives the records on which an expression fails; None where such a record ends the run."""
        if not self.job.quarantines:
            return None
        return self.errors.add if self.job.reopen is None else self.errors.add_rebuilt(self.job.reopen)

    def files(self, sent: Mapping[Address, Sequence[Sent]]) -> FileExchange:
        """Return the exchange by files; `sent` are to be read."""
        return FileExchange(real(self.job.scratch), Files(), self.name, sent)

    @contextmanager
    def stepping(self, exchange: Exchange, threads: int = 1, memos: Memos | None = None) -> Iterator[Executor]:
        """Give the step, to take slices or shards through stages; in the end take over its counts and calls."""
        self._check_shared()
        Workers.most = min(threads, processors())
        self.dataflow = assembled = self.assembled(Workers.most)
        names = defaultdict(list)
        for name, handle in assembled.leaving.items():  # equal collections are one
            names[handle.index].append(name)

        def give(index: int, _shard: int, delta: Delta) -> None:
            for name in names[index]:
                self._give(name, consolidated(delta), assembled.outputs[name])

        nest, interval = assembled.nest, self.job.interval
        assembled.scope.open_traces = self.traces.open_ahead
        store = SpillStore(nest, self.pools, exchange, self._on_trace_ready, memos=dict(memos or {}))
        try:
            yield Executor(nest, interval, store, give)
        finally:
            assembled.scope.workers.close()
        self.result.wakes, self.result.memos = store.wakes, store.memos
        self.result.counts = Counts.of(assembled.scope.counts())

    def _step(self, task: Task, step: Executor, exchange: FileExchange) -> None:
        item = task.item
        assert item is not None
        if not item.path and step.nest.scope.stages[item.stage].first:
            self.step_slices(step, item.stage, task.slices)
        elif item.action in ("whole", "rest"):
            assert isinstance(step.store, SpillStore)
            run_loop(step.store, item, exchange.incoming, self.job.interval)
        else:
            step.perform(item, task.shards)

    def step_slices(self, step: Executor, stage: int, slices: Iterable[tuple[str, int]]) -> None:
        """Take slices of inputs through the first stage, whose number is `stage`."""
        assembled = self.dataflow
        parts = [(assembled.sources[name].index, self._part(name, at, assembled.layouts[name])) for name, at in slices]
        step.read(step.nest.scope.stages[stage], 0, parts, BufferPool())

    def _part(self, name: str, at: int, layout: Layout) -> Part:
        """Return a function that reads a slice of an input."""

        def read(shard: int) -> np.ndarray | Columns:
            began = clock.perf_counter()
            found = self.job.taken[name].slices[at].updates(layout, self.pools[shard])
            self.seconds[self.scans[name]] += clock.perf_counter() - began
            return found

        return read

    def _give(self, name: str, updates: np.ndarray, layout: Layout) -> None:
        """Add updates to an output's."""
        if name not in self.job.outputs:
            return
        if self.job.reopen is not None:
            updates = reopened(updates, self.job.reopen, len(self.job.time))
        if not len(updates):
            return
        began = clock.perf_counter()
        self.pieces.add(name, updates, layout, self.pool)
        self.seconds[OUTPUT + name] += clock.perf_counter() - began

    def _on_trace_ready(self, trace: Trace) -> None:
        if self.attempt is None:
            return
        self.result.kept += self.traces.store(trace, self.attempt, self.job.upper)

    def _show(self, label: str, updates: pl.DataFrame) -> None:
        if self.job.reopen is not None:  # its updates of the past were shown when they were new
            return
        self.result.lines += seen(label, updates, list(self.job.time.values()))
