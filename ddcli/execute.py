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
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.base import Delta, Interval
from ddcli.engine.pool import Pool
from ddcli.engine.times import LEAST, Frontier
from ddcli.errors import StateError
from ddcli.inputs import largest_seen, open_logs, time_columns
from ddcli.plan.build import build
from ddcli.plan.lower import lower
from ddcli.request import find_inputs, find_upper, nothing_new
from ddcli.store.batches import BatchLayout, StoredBatch, batch_bytes, write_batch
from ddcli.store.manifest import ArrangementEntry, InputEntry, Manifest, OutputEntry, Times
from ddcli.store.output import output_bytes, write_output
from ddcli.store.state import relative_output
from ddcli.store.time_text import format_frontier, format_time
from ddcli.summary import InputSummary, OutputSummary, RunSummary

if TYPE_CHECKING:
    import polars as pl

    from ddcli.assemble.graph import Assembled
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema, Type
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.request import Request
    from ddcli.store.logs import LogReader
    from ddcli.store.state import State, Transaction


def execute(request: Request, manifest: Manifest | None, state: State | None) -> RunSummary:
    """Take in what is new as of now and commit it to `state`; without a state, a dry run, commit nothing."""
    if str(request.base) not in sys.path:  # where `module:function` is looked for first
        sys.path.insert(0, str(request.base))
    found = find_inputs(request, manifest)
    readers = open_logs(request, manifest, found)
    time = time_columns(request, manifest, readers)
    schemas = {name: reader.schema.columns for name, reader in readers.items()}
    graph = lower(build(request.spec, schemas, list(time.values())))
    if manifest is not None and manifest.plan != graph.fingerprint:
        raise StateError(
            "the pipeline has changed since its state was made: its outputs hold the results of another plan",
            place=str(request.spec.path),
            hint="put the file back, or remove the state and the outputs to compute them anew",
        )
    before = Frontier(manifest.upper) if manifest else None
    seen = largest_seen(manifest, readers)
    upper = find_upper(request, time, found, before, seen)
    if upper is None or upper == before:
        if manifest is not None:
            for reader in readers.values():
                # takes nothing, but refuses new files with rows that come too late
                reader.take((), manifest.upper, manifest.upper)
            return nothing_new(request, manifest)
        return RunSummary(request.spec.name.value, None, None, changed=False)
    return _Run(request, manifest, state, graph, readers, time, seen, upper).run()


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
    time: Schema
    """The time columns of the outputs and their types, one a coordinate."""
    seen: Time | None
    upper: Frontier

    def run(self) -> RunSummary:
        pool = Pool()
        before = self.manifest.upper if self.manifest else None
        nt = len(self.time)
        # The first run begins where every time is at or after.
        lower = Frontier(before or [(LEAST,) * nt])
        traces = _StateTraces(self.request, self.manifest, pool, lower)
        assembled = assemble(self.graph, Scope(nt), traces, pool, self._show, tuple(self.time.values()))
        inputs, fed, read = self._read(assembled, pool, before)
        deltas = assembled.step(fed, Interval(lower, self.upper))
        fed.clear()
        outputs = {name: _consolidated(deltas.pop(name)) for name in list(deltas)}
        if self.state is None:
            return self._summary(read, {name: _count(rows) for name, rows in outputs.items()}, self.manifest)
        with self.state.begin() as transaction:
            entries, wrote, arrangements = self._write(transaction, outputs, assembled, traces)
            time = {name: str(kind) for name, kind in self.time.items()}
            committed = transaction.commit(
                Manifest(
                    name=self.request.spec.name.value,
                    upper=self.upper.elements,
                    pipeline=self.request.digest,
                    plan=self.graph.fingerprint,
                    engine=__version__,
                    inputs=inputs,
                    arrangements=arrangements,
                    outputs=entries,
                    cache={"time": time, "seen": self.seen},
                )
            )
        return self._summary(read, wrote, committed)

    @property
    def kinds(self) -> list[Type]:
        return list(self.time.values())

    def _show(self, label: str, updates: pl.DataFrame) -> None:
        """Say what an `inspect` sees, a line an update, the first few of many."""
        shown, nt = 100, len(self.time)
        *names, weight = updates.columns[-nt - 1 :]
        for row in updates.sort(names, maintain_order=True).head(shown).iter_rows(named=True):
            time, diff = tuple(row.pop(name) for name in names), row.pop(weight)
            self.request.say(f"{label}: {row} @ {format_time(time, self.kinds)} {diff:+d}")
        if updates.height > shown:
            self.request.say(f"{label}: and {updates.height - shown} more updates")

    def _read(
        self, assembled: Assembled, pool: Pool, before: Times | None
    ) -> tuple[dict[str, InputEntry], dict[str, Delta], dict[str, InputSummary]]:
        """Read each input's updates of the interval into lanes; an input that no output reads is only checked."""
        inputs, fed, summaries = {}, {}, {}
        for name, reader in self.readers.items():
            layout = assembled.layouts.get(name)
            taken = reader.take(layout.names if layout else (), before, self.upper.elements)
            matrices = [part.matrix(layout or Layout({}), pool) for part in taken.slices]
            rows = sum(map(len, matrices))
            if layout is not None and matrices:
                (fed[name],) = map(Delta, matrices)
            del matrices
            inputs[name] = InputEntry(self.upper.elements, taken.files, reader.schema.to_json())
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
    ) -> tuple[dict[str, OutputEntry], dict[str, OutputSummary], dict[str, ArrangementEntry]]:
        """Write the outputs' updates and the traces' new batches. Files' contents are made in threads, and added in order."""
        before = self.manifest.upper if self.manifest else None
        times = self.upper.elements
        held = [*outputs.values(), *(matrix for trace, _ in traces.made.values() for matrix in resident(trace))]
        shared = frozenset(memory for memory, count in Counter(map(memory_of, held)).items() if count > 1)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            made = {
                name: threads.submit(self._output, outputs.pop(name), assembled.outputs[name], traces.pool)
                for name in list(outputs)
            }
            batches = {
                identity: threads.submit(_batch, trace, layout, traces.pool, self.upper, shared)
                for identity, (trace, layout) in traces.made.items()
            }
            entries, wrote = {}, {}
            for name in list(made):
                data, counts = made.pop(name).result()
                directory = self.request.outputs[name]
                file = write_output(transaction, directory, data, counts.rows, self.time, before, times)
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
                    files.append(write_batch(transaction, identity, 0, batch, rows, lower, self.upper, self.upper))
                schema = {name: str(kind) for name, kind in layout.record.schema.items()}
                arrangements[identity] = ArrangementEntry(
                    identity, times, times, layout.key.names, schema, (tuple(files),)
                )
        return entries, wrote, arrangements

    def _output(self, updates: np.ndarray, layout: Layout, pool: Pool) -> tuple[memoryview | None, OutputSummary]:
        """Return the content of an output's file, None without updates, and what is in it."""
        counts = _count(updates)
        return output_bytes(updates, layout, pool, self.time) if len(updates) else None, counts

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
            lower=format_frontier(Frontier(self.manifest.upper), self.kinds) if self.manifest else None,
            upper=format_frontier(self.upper, self.kinds),
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
