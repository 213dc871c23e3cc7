"""A run that has something to do: one step of the dataflow over what is new, and the commit of all that it changed."""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ddcli import __version__
from ddcli.assemble.graph import assemble
from ddcli.engine import kernels
from ddcli.engine.arrangement import policy
from ddcli.engine.arrangement.batch import MemoryBatch
from ddcli.engine.arrangement.trace import Trace
from ddcli.engine.dataflow import Scope
from ddcli.engine.lanes import encode
from ddcli.engine.operators.base import Delta
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.errors import InputError, SpecError, StateError
from ddcli.expressions.types import Type
from ddcli.plan.build import build
from ddcli.plan.lower import lower
from ddcli.request import find_inputs, nothing_new
from ddcli.store.batches import BatchLayout, StoredBatch, batch_bytes, write_batch
from ddcli.store.log_schema import LogFormat, LogSchema
from ddcli.store.logs import LogReader
from ddcli.store.manifest import ArrangementEntry, InputEntry, Manifest, OutputEntry, Times
from ddcli.store.output import output_bytes, write_output
from ddcli.store.state import relative_output
from ddcli.summary import InputSummary, OutputSummary, RunSummary
from ddcli.until import format_time, parse_time

if TYPE_CHECKING:
    import polars as pl

    from ddcli.assemble.graph import Assembled
    from ddcli.engine.lanes import Layout
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.request import Found, Request
    from ddcli.store.state import State, Transaction

TIME = "time"
LARGEST = 2**63 - 1
BEGINNING = -(2**63)
"""The lower bound of the first run: every time is at or after it."""


def execute(request: Request, manifest: Manifest | None, state: State | None) -> RunSummary:
    """Take in what is new as of now and commit it to `state`; without a state, a dry run, commit nothing."""
    if str(request.base) not in sys.path:  # where `module:function` is looked for first
        sys.path.insert(0, str(request.base))
    found = find_inputs(request, manifest)
    readers = _open_logs(request, manifest, found)
    graph = lower(build(request.spec, {name: reader.schema.columns for name, reader in readers.items()}))
    if manifest is not None and manifest.plan != graph.fingerprint:
        raise StateError(
            "the pipeline has changed since its state was made: its outputs hold the results of another plan",
            place=str(request.spec.path),
            hint="put the file back, or remove the state and the outputs to compute them anew",
        )
    kind = _time_type(request, readers)
    before = manifest.upper if manifest else None
    upper = _upper(request, kind, found, readers, before)
    if upper is None or (before is not None and upper <= before[0][0]):
        if manifest is not None:
            for reader in readers.values():
                reader.read(
                    (), before, manifest.upper
                )  # takes nothing, but refuses new files with rows that come too late
            return nothing_new(request, manifest)
        return RunSummary(request.spec.name.value, None, None, changed=False)
    return _Run(request, manifest, state, graph, readers, kind, upper).run()


def _open_logs(request: Request, manifest: Manifest | None, found: dict[str, Found]) -> dict[str, LogReader]:
    """Return a reader for each input, held to the columns of earlier runs."""
    readers = {}
    for name, given in request.spec.inputs.items():
        if len(given.time) > 1:
            raise SpecError("an input has one time column", span=given.time[1].span, hint="name one: `time: column`")
        columns = {column: kind for column, (_, kind) in given.columns.items()} if given.columns is not None else None
        diff = given.diff.value if given.diff else "diff"
        log = LogFormat(tuple(text.value for text in given.time), diff, columns)
        entry = manifest.inputs.get(name) if manifest else None
        known = LogSchema.from_json(entry.schema) if entry else None
        readers[name] = LogReader(found[name].listing, log, known)
    return readers


def _time_type(request: Request, readers: dict[str, LogReader]) -> Type:
    """Return the type that all inputs' times have, or refuse a mixture."""
    kinds = {
        name: next(iter(reader.schema.time.values()))
        for name, reader in readers.items()
        if reader.schema.diff is not None
    }
    first = next(iter(kinds.values()), Type("int64"))
    for name, kind in kinds.items():
        if kind != first:
            other = next(iter(kinds))
            raise SpecError(
                f"the time of input '{name}' is {kind}, that of '{other}' is {first}",
                span=request.spec.inputs[name].name.span,
                hint="the inputs of a pipeline share one time: write them with the same type",
            )
    return first


def _upper(
    request: Request, kind: Type, found: dict[str, Found], readers: dict[str, LogReader], before: Times | None
) -> int | None:
    """Return the time before which this run closes all times, or None where there is nothing to go by.

    What `--until` says; else the least upper of the inputs that carry their progress; else one past the largest time seen.
    """
    if request.until is not None:
        return parse_time(request.until, kind)
    carried = [given.progress for given in found.values() if given.progress is not None]
    uppers = [progress[0][0] for progress in carried if progress]
    if uppers:
        return min(uppers)
    seen = [_after(time[0]) for reader in readers.values() if (time := reader.largest_time()) is not None]
    return max([*seen, *([before[0][0]] if before else [])], default=None)


def _after(time: int) -> int:
    """Return the upper that closes a time."""
    if time == LARGEST:
        raise InputError(f"the time {time} is the largest there is: no upper could close it", hint="use an earlier one")
    return time + 1


@dataclass
class _StateTraces:
    """The traces of the stateful nodes: what the manifest names, read from files when it is asked for."""

    request: Request
    manifest: Manifest | None
    pool: Pool
    lower: Frontier
    made: dict[str, tuple[Trace, BatchLayout]] = field(default_factory=dict)

    def trace(self, identity: str, key: Layout, value: Layout, nt: int) -> Trace:
        entry = self.manifest.arrangements.get(identity) if self.manifest else None
        layout = BatchLayout(key, value, nt)
        directory = self.request.state / "arrangements" / identity
        batches = [
            StoredBatch(directory / str(shard) / file.name, file, layout, self.pool)
            for shard, files in enumerate(entry.shards if entry else ())
            for file in files
        ]
        trace = Trace(key.width, value.width, nt, since=self.lower, batches=batches)
        self.made[identity] = (trace, layout)
        return trace


@dataclass
class _Run:
    """One run that has something to do: read, step, commit."""

    request: Request
    manifest: Manifest | None
    state: State | None
    graph: PhysicalGraph
    readers: dict[str, LogReader]
    kind: Type
    upper: int

    def run(self) -> RunSummary:
        pool = Pool()
        before = self.manifest.upper if self.manifest else None
        lower = Frontier(before or ((BEGINNING,),))
        upper = Frontier([(self.upper,)])
        traces = _StateTraces(self.request, self.manifest, pool, lower)
        assembled = assemble(self.graph, Scope(lower), traces, pool, self._show)
        inputs, fed, read = self._read(assembled, pool, before)
        deltas = assembled.scope.step(fed, upper)
        fed.clear()
        outputs = {name: _consolidated(deltas.pop(name)) for name in list(deltas)}
        if self.state is None:
            return self._summary(read, {name: _count(rows) for name, rows in outputs.items()}, self.manifest)
        with self.state.begin() as transaction:
            entries, wrote, arrangements = self._write(transaction, outputs, assembled, traces, upper)
            kept = self.manifest.cache if self.manifest else {}
            committed = transaction.commit(
                Manifest(
                    name=self.request.spec.name.value,
                    upper=((self.upper,),),
                    pipeline=self.request.digest,
                    plan=self.graph.fingerprint,
                    engine=__version__,
                    inputs=inputs,
                    arrangements=arrangements,
                    outputs=entries,
                    cache=kept | {"time": str(self.kind)},
                )
            )
        return self._summary(read, wrote, committed)

    def _show(self, label: str, updates: pl.DataFrame) -> None:
        """Say what an `inspect` sees, a line an update, the first few of many."""
        shown = 100
        for row in updates.sort("time", maintain_order=True).head(shown).iter_rows(named=True):
            time, diff = row.pop("time"), row.pop("diff")
            self.request.say(f"{label}: {row} @ {format_time(time, self.kind)} {diff:+d}")
        if updates.height > shown:
            self.request.say(f"{label}: and {updates.height - shown} more updates")

    def _read(
        self, assembled: Assembled, pool: Pool, before: Times | None
    ) -> tuple[dict[str, InputEntry], dict[int, Delta], dict[str, InputSummary]]:
        """Read each input's updates of the interval into lanes; an input that no output reads is only checked."""
        inputs, fed, summaries = {}, {}, {}
        for name, reader in self.readers.items():
            layout = assembled.layouts.get(name)
            taken = reader.read(layout.names if layout else (), before, ((self.upper,),))
            rows = len(taken.diffs)
            if layout is not None:
                matrix = np.empty((rows, layout.width + 2), np.int64)
                encode(taken.frame, layout, pool, matrix)
                taken.fill(matrix)
                fed[assembled.sources[name].index] = Delta(matrix)
            inputs[name] = InputEntry(((self.upper,),), taken.files, reader.schema.to_json())
            waiting = sum(not file.done for file in taken.files)
            summaries[name] = InputSummary(rows, len(reader.listing.to_read), waiting)
            del taken
        self.readers.clear()
        return inputs, fed, summaries

    def _write(
        self,
        transaction: Transaction,
        outputs: dict[str, np.ndarray],
        assembled: Assembled,
        traces: _StateTraces,
        upper: Frontier,
    ) -> tuple[dict[str, OutputEntry], dict[str, OutputSummary], dict[str, ArrangementEntry]]:
        """Write the outputs' updates and the traces' new batches. Files' contents are made in threads, and added in order."""
        before = self.manifest.upper if self.manifest else None
        times: Times = ((self.upper,),)
        held = [*outputs.values(), *(matrix for trace, _ in traces.made.values() for matrix in resident(trace))]
        shared = frozenset(memory for memory, count in Counter(map(memory_of, held)).items() if count > 1)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            made = {
                name: threads.submit(self._output, outputs.pop(name), assembled.outputs[name], traces.pool)
                for name in list(outputs)
            }
            batches = {
                identity: threads.submit(_batch, trace, layout, traces.pool, upper, shared)
                for identity, (trace, layout) in traces.made.items()
            }
            entries, wrote = {}, {}
            for name in list(made):
                data, counts = made.pop(name).result()
                directory = self.request.outputs[name]
                file = write_output(transaction, directory, data, counts.rows, {TIME: self.kind}, before, times)
                known = self.manifest.outputs[name].files if self.manifest else ()
                schema = {column: str(kind) for column, kind in assembled.outputs[name].schema.items()}
                path = relative_output(self.request.state, directory)
                entries[name] = OutputEntry(path, schema, (*known, file) if file else known)
                wrote[name] = replace(counts, file=str(directory / file.name) if file else None)
            arrangements = {}
            for identity, (_, layout) in traces.made.items():
                kept, batch, rows = batches.pop(identity).result()
                files = [stored.entry for stored in kept]
                if batch is not None:
                    lower = kept[-1].upper if kept else traces.lower
                    files.append(write_batch(transaction, identity, 0, batch, rows, lower, upper, upper))
                schema = {name: str(kind) for name, kind in layout.record.schema.items()}
                arrangements[identity] = ArrangementEntry(
                    identity, times, times, layout.key.names, schema, (tuple(files),)
                )
        return entries, wrote, arrangements

    def _output(self, updates: np.ndarray, layout: Layout, pool: Pool) -> tuple[memoryview | None, OutputSummary]:
        """Return the content of an output's file, None without updates, and what is in it."""
        counts = _count(updates)
        return output_bytes(updates, layout, pool, {TIME: self.kind}) if len(updates) else None, counts

    def _summary(
        self, read: dict[str, InputSummary], wrote: dict[str, OutputSummary], manifest: Manifest | None
    ) -> RunSummary:
        files = [
            file
            for entry in (manifest.arrangements.values() if manifest else ())
            for shard in entry.shards
            for file in shard
        ]
        return RunSummary(
            name=self.request.spec.name.value,
            lower=format_time(self.manifest.upper[0][0], self.kind) if self.manifest else None,
            upper=format_time(self.upper, self.kind),
            changed=True,
            inputs=read,
            outputs=wrote,
            state_bytes=sum(file.size for file in files),
            state_rows=sum(file.rows for file in files),
            dry=self.state is None,
        )


def _consolidated(delta: Delta) -> np.ndarray:
    """Return updates with at most one for a record and time."""
    return delta.updates if delta.distinct else kernels.consolidate(delta.updates)


def _count(updates: np.ndarray) -> OutputSummary:
    inserted = int(np.count_nonzero(updates[:, -1] > 0))
    return OutputSummary(len(updates), inserted, len(updates) - inserted, None)


def resident(trace: Trace) -> list[np.ndarray]:
    """Return the matrices of a trace's batches in memory."""
    return [batch.matrix() for batch in trace.batches if isinstance(batch, MemoryBatch)]


def memory_of(matrix: np.ndarray) -> int:
    """Return what tells the memory of one matrix from that of another: views of one share it."""
    return id(matrix if matrix.base is None else matrix.base)


def _batch(
    trace: Trace, layout: BatchLayout, pool: Pool, since: Frontier, shared: frozenset[int]
) -> tuple[list[StoredBatch], memoryview | None, int]:
    """Return the stored batches of a trace that stay, and the content and the rows of the file of all its other updates."""
    kept, fresh = compacted(trace, since, shared)
    trace.batches.clear()
    return kept, batch_bytes(fresh, layout, pool) if len(fresh) else None, len(fresh)


def compacted(trace: Trace, since: Frontier, shared: frozenset[int]) -> tuple[list[StoredBatch], np.ndarray]:
    """Return the stored batches of a trace that stay as they are, and all its other updates as one batch as of `since`.

    What is in memory is used up, but for what is `shared` with other traces or outputs (see `memory_of`).
    """
    stored = [batch for batch in trace.batches if isinstance(batch, StoredBatch)]
    memory = resident(trace)
    time = since.as_time()
    fresh = np.empty((0, 0), np.int64)
    if memory:
        merged = kernels.merge(memory)
        fresh = kernels.advance(merged, time, trace.nt, owned=memory_of(merged) not in shared)
    while len(fresh) and stored and policy.next_merge([stored[-1].rows, len(fresh)]) is not None:
        older = kernels.advance(stored.pop().matrix(), time, trace.nt)
        fresh = kernels.merge([older, fresh])
    return stored, fresh
