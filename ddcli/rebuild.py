"""A changed pipeline's state: what is new in the plan is built from what is kept and from the inputs, and outputs are corrected.

The work is that of a run over all times before the frontier, of a graph that begins at the arrangements which are kept.
Outputs that say something else now are given the difference, at the frontier: no closed time changes. One commit for all.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli import __version__
from ddcli.assemble.graph import assemble
from ddcli.engine import kernels
from ddcli.engine.arrangement.trace import Trace
from ddcli.engine.dataflow import Scope
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.operators.base import Delta, Interval
from ddcli.engine.pool import Pool
from ddcli.engine.reopening import as_of, reopened
from ddcli.engine.times import LEAST, Frontier
from ddcli.errors import StateError
from ddcli.expressions.types import parse_type
from ddcli.facts import facts_of
from ddcli.inputs import open_logs
from ddcli.plan.changes import CONTENTS, WAITING, Changes, Known
from ddcli.plan.physical import Snapshots, Upserts
from ddcli.request import find_inputs
from ddcli.siding import ErrorLog, error_directory
from ddcli.sizes import sizes
from ddcli.store.batches import BatchLayout, StoredBatch, batch_bytes, write_batch
from ddcli.store.manifest import ArrangementEntry, InputEntry, Manifest, OutputEntry
from ddcli.store.output import output_bytes, write_output
from ddcli.store.state import batch_directory, relative_output, same_outputs
from ddcli.store.verify import check_bytes
from ddcli.summary import OutputSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.assemble.graph import Assembled
    from ddcli.expressions.types import Schema, Type
    from ddcli.inputs import Reader
    from ddcli.plan.generations import Plan
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.request import Found, Request
    from ddcli.store.manifest import FileEntry
    from ddcli.store.state import State, Transaction


def is_changed(request: Request, manifest: Manifest, plan: Plan) -> bool:
    """Say whether a state is not what the plan wants, or where the file wants it, or is to be computed anew."""
    if request.refresh is not None or manifest.plan != plan.fingerprint:
        return True
    return same_outputs(request.state, manifest, request.outputs).keys() != request.outputs.keys()


def find_changes(request: Request, manifest: Manifest, plan: Plan) -> Changes:
    """Return what the plan changes of a state, and what the request wants to be computed anew."""
    everything = request.refreshes_all
    known = Known(
        frozenset() if everything else frozenset(manifest.arrangements),
        {now: manifest.outputs[before].fingerprint for now, before in renamed(request, manifest).items()},
        frozenset() if everything else frozenset(manifest.inputs),
        manifest.cache["plan"]["outline"],
    )
    refresh = frozenset(plan.meanings) if everything else frozenset(request.refresh or ())
    return Changes(plan, known, len(manifest.cache["time"]), refresh)


def renamed(request: Request, manifest: Manifest) -> dict[str, str]:
    """Return what each output of a state was called, by the name that it has now; one that is gone keeps its own."""
    found = same_outputs(request.state, manifest, request.outputs)
    gone = {name: name for name in manifest.outputs if name not in request.outputs and name not in found.values()}
    return gone | found


def refuse_rewriting(request: Request, changes: Changes) -> None:
    """Raise StateError if outputs would say something else, and nobody has said that this is meant."""
    if not changes.rewritten or request.apply:
        return
    lines = [f"output '{name}': {'; '.join(changes.why(name)) or 'changed'}" for name in changes.rewritten]
    raise StateError(
        "the pipeline has changed since its state was made, and outputs would change: " + "; ".join(lines),
        place=str(request.spec.path),
        hint=f"see `dd plan {request.spec.path}`; `dd run --apply` writes the difference to the outputs; or put the file back",
    )


def rebuild(
    request: Request, manifest: Manifest, state: State | None, plan: Plan, time: Schema
) -> tuple[Manifest, dict[str, OutputSummary]]:
    """Bring a state to a changed plan, at the frontier where it is; return the manifest and what was written to outputs.

    Without a state, a dry run, nothing is committed. Raises StateError where outputs would be rewritten and that is not asked for.
    """
    changes = find_changes(request, manifest, plan)
    refuse_rewriting(request, changes)
    found = find_inputs(request, manifest if changes.known.inputs else None)
    return _Rebuild(request, manifest, state, changes, found, time).run()


@dataclass(frozen=True, slots=True)
class _Made:
    """A trace that was given to an operator; `by` are the lanes of its rows that say to which shard they belong."""

    trace: Trace
    layout: BatchLayout
    by: tuple[int, ...]


@dataclass
class _FreshTraces:
    """Traces that begin empty."""

    made: dict[str, list[_Made]] = field(default_factory=dict)

    def trace(
        self, identity: str, key: Layout, value: Layout, nt: int, shard: int = 0, by: Sequence[int] | None = None
    ) -> Trace:
        trace = Trace(key.width, value.width, nt, since=_beginning(nt))
        lanes = tuple(range(key.width) if by is None else by)
        self.made.setdefault(identity, []).append(_Made(trace, BatchLayout(key, value, nt), lanes))
        return trace


def _beginning(nt: int) -> Frontier:
    return Frontier([(LEAST,) * nt])


@dataclass
class _Rebuild:
    request: Request
    manifest: Manifest
    state: State | None
    changes: Changes
    found: dict[str, Found]
    time: Schema
    pool: Pool = field(default_factory=Pool)
    shards: int = 1

    def run(self) -> tuple[Manifest, dict[str, OutputSummary]]:
        graph, traces = self.changes.cut(), _FreshTraces()
        readers, known = self._readers(graph)
        facts = facts_of(self.request.spec, readers, None, self.upper.elements)
        errors = ErrorLog(self.time)
        failed = errors.add_rebuilt(self.upper) if self.request.spec.errors else None
        quiet = lambda _label, _updates: None  # noqa: E731
        assembled = assemble(graph, Scope(self.nt), traces, self.pool, quiet, self.kinds, facts=facts, failed=failed)
        inputs, fed = self._read(assembled, readers, known, _keyed(graph))
        deltas = assembled.step(fed, Interval(_beginning(self.nt), self.upper)) if fed else {}
        self.shards = self._shards(sum(len(delta.updates) for delta in fed.values()))
        fed.clear()
        outputs = {
            name: self._difference(name, assembled.outputs[name], deltas.get(name, ()))
            for name, change in self.changes.outputs.items()
            if change != "same"
        }
        if self.state is None:
            return self.manifest, {name: _count(rows) for name, rows in outputs.items()}
        with self.state.begin() as transaction:
            entries, wrote = self._write_outputs(transaction, outputs, assembled)
            arrangements = self._write_arrangements(transaction, traces)
            interval = self.upper.elements, self.upper.elements
            errors.write(transaction, error_directory(self.request), interval, f"-{self.changes.plan.fingerprint}")
            manifest = replace(
                self.manifest,
                pipeline=self.request.digest,
                plan=self.changes.plan.fingerprint,
                engine=__version__,
                inputs=inputs,
                arrangements=arrangements,
                outputs=entries,
                exports=self.changes.plan.exports,
                cache=self.manifest.cache | {"plan": self.changes.plan.to_json()},
            )
            return transaction.commit(manifest), wrote

    def _shards(self, rows: int) -> int:
        """Return how many shards what is built has: as many as the arrangements that are kept, or as its rows ask for."""
        kept = frozenset(
            len(entry.shards)
            for identity, entry in self.manifest.arrangements.items()
            if identity.removesuffix(WAITING) in self.changes.kept
        )
        request = self.request
        return sizes(rows, 1, kept, request.workers, request.memory, request.spec.shards).shards

    @property
    def nt(self) -> int:
        return len(self.time)

    @property
    def kinds(self) -> tuple[Type, ...]:
        return tuple(self.time.values())

    @cached_property
    def upper(self) -> Frontier:
        """The frontier of the state, at which all is done."""
        return Frontier(self.manifest.upper)

    # --- what there is --------------------------------------------------------------------------------------------

    def _readers(self, graph: PhysicalGraph) -> tuple[dict[str, Reader], frozenset[str]]:
        """Return readers of the inputs that are read again or for the first time, and the inputs that the state knows.

        Of those only files are read that were taken from.
        """
        known, needed = self.changes.known.inputs, graph.scans()
        past = {name: given.past() if name in known else given for name, given in self.found.items()}
        read = {name: given for name, given in past.items() if name in needed or name not in known}
        return open_logs(self.request, self.manifest if known else None, read), known

    def _read(
        self, assembled: Assembled, readers: dict[str, Reader], known: frozenset[str], keyed: frozenset[str]
    ) -> tuple[dict[str, InputEntry], dict[str, Delta]]:
        """Return the inputs as the next manifest has them, and what the graph is fed: rows before the frontier, collections' contents.

        Rows that say what keys have from their time on, of the `keyed` inputs, keep their times; of others only the sum matters.
        """
        inputs = {name: self.manifest.inputs[name] for name in self.found if name in known}
        fed = {}
        for name, reader in readers.items():
            layout = assembled.layouts.get(name)
            taken = reader.take(layout.names if layout else (), None, self.upper.elements)
            parts = [part.matrix(layout, self.pool) for part in taken.slices] if layout else []
            if parts:
                rows = kernels.concat(parts)
                fed[name] = Delta(rows if name in keyed else as_of(rows, self.upper, self.nt))
            files = taken.files if name not in known else inputs[name].files
            inputs[name] = InputEntry(self.upper.elements, files, reader.schema.to_json())
        for name in assembled.layouts:
            if name.startswith(CONTENTS):
                fed[name] = Delta(self._contents(name.removeprefix(CONTENTS)), distinct=True)
        return {name: inputs[name] for name in self.found}, fed

    def _contents(self, identity: str) -> np.ndarray:
        """Return the contents of an arrangement in the state, as of the frontier."""
        entry = self.manifest.arrangements[identity]
        schema = {name: kind for name, text in entry.schema.items() if (kind := parse_type(text)) is not None}
        key = Layout({name: schema[name] for name in entry.key})
        value = Layout({name: kind for name, kind in schema.items() if name not in entry.key})
        layout = BatchLayout(key, value, self.nt)
        batches = [
            StoredBatch(
                batch_directory(self.request.state, identity, shard) / file.name, file, layout, self.pool
            ).matrix()
            for shard, files in enumerate(entry.shards)
            for file in files
        ]
        width = layout.width
        return as_of(kernels.concat(batches) if batches else np.empty((0, width), np.int64), self.upper, self.nt)

    def _difference(self, name: str, layout: Layout, deltas: Sequence[Delta]) -> np.ndarray:
        """Return what makes an output say what it is to say, at times that are open."""
        parts = [delta.updates for delta in deltas]
        if self.changes.outputs[name] == "changed":
            said = self._said(name, layout)
            said[:, -1] *= -1
            parts.append(said)
        parts = [part for part in parts if len(part)]
        if not parts:
            return np.empty((0, layout.width + self.nt + 1), np.int64)
        return reopened(kernels.consolidate(kernels.concat(parts)), self.upper, self.nt)

    def _said(self, name: str, layout: Layout) -> np.ndarray:
        """Return all that an output has said so far, from its own files."""
        before = renamed(self.request, self.manifest)[name]
        entry = self.manifest.outputs[before]
        schema = {column: str(kind) for column, kind in layout.schema.items()}
        if list(entry.schema.items()) != list(schema.items()):
            told = [", ".join(f"{column}: {kind}" for column, kind in each.items()) for each in (entry.schema, schema)]
            raise StateError(
                f"output '{name}' would have other columns ({told[1]}) than its log has ({told[0]})",
                place=str(self.request.spec.path),
                hint="a log has the same columns in all its files: give the output another `path`, where it begins anew",
            )
        matrices = [np.empty((0, layout.width + self.nt + 1), np.int64)]
        for file in entry.files:
            path = self.request.outputs[name] / file.name
            check_bytes(path, file)  # of what isn't there any more the difference would be wrong
            frame = pl.read_parquet(io.BytesIO(path.read_bytes()))
            matrix = encode(frame, layout, self.pool, np.empty((frame.height, layout.width + self.nt + 1), np.int64))
            for at, column in enumerate((*self.time, "diff"), start=layout.width):
                matrix[:, at] = frame[column].to_physical().cast(pl.Int64).to_numpy()
            matrices.append(matrix)
        return kernels.concat(matrices)

    # --- what comes of it -----------------------------------------------------------------------------------------

    def _write_outputs(
        self, transaction: Transaction, outputs: dict[str, np.ndarray], assembled: Assembled
    ) -> tuple[dict[str, OutputEntry], dict[str, OutputSummary]]:
        """Write the differences. An output that is in the plan no more is forgotten; its files stay."""
        entries, wrote = {}, {}
        called = renamed(self.request, self.manifest)
        for name, directory in self.request.outputs.items():
            known = self.manifest.outputs.get(called.get(name, ""))
            meaning = self.changes.plan.meanings[name]
            if name not in outputs:
                assert known is not None, "an output that says the same has said something"
                entries[name] = replace(known, fingerprint=meaning)
                continue
            layout, rows = assembled.outputs[name], outputs[name]
            data = output_bytes(rows, layout, self.pool, self.time) if len(rows) else None
            upper = self.upper.elements
            file = write_output(
                transaction, directory, data, len(rows), self.time, upper, upper, f"-change{transaction.number}"
            )
            schema = {column: str(kind) for column, kind in layout.schema.items()}
            path = relative_output(self.request.state, directory)
            files = known.files if known else ()
            entries[name] = OutputEntry(path, schema, (*files, file) if file else files, meaning)
            wrote[name] = replace(_count(rows), file=str(directory / file.name) if file else None)
        return entries, wrote

    def _write_arrangements(self, transaction: Transaction, traces: _FreshTraces) -> dict[str, ArrangementEntry]:
        """Write what was built beside what is kept."""
        kept = {
            identity: entry
            for identity, entry in self.manifest.arrangements.items()
            if identity.removesuffix(WAITING) in self.changes.kept
        }
        times = self.upper.elements
        for identity, made in traces.made.items():
            if identity.removesuffix(WAITING) not in self.changes.built:
                continue
            layout, by = made[0].layout, made[0].by
            matrices = [matrix for each in made for matrix in each.trace.matrices() if len(matrix)]
            files: list[tuple[FileEntry, ...]] = [()] * self.shards
            if matrices:
                rows = kernels.consolidate(kernels.concat(matrices))
                rows = kernels.advance(rows, self.upper.as_time(), len(layout.times))
                owners = (
                    kernels.shard_of(kernels.take(rows, list(by)), len(by), self.shards) if self.shards > 1 else None
                )
                for shard in range(self.shards):
                    mine = rows if owners is None else rows[owners == shard]
                    if len(mine):
                        files[shard] = (self._write_batch(transaction, identity, shard, mine, layout),)
            schema = {name: str(kind) for name, kind in layout.record.schema.items()}
            kept[identity] = ArrangementEntry(identity, times, times, layout.key.names, schema, tuple(files))
        return kept

    def _write_batch(
        self, transaction: Transaction, identity: str, shard: int, rows: np.ndarray, layout: BatchLayout
    ) -> FileEntry:
        data = batch_bytes(rows, layout, self.pool)
        return write_batch(transaction, identity, shard, data, len(rows), _beginning(self.nt), self.upper, self.upper)


def _keyed(graph: PhysicalGraph) -> frozenset[str]:
    """Return the inputs whose rows are no updates yet."""
    return frozenset(node.name for node in graph.nodes if isinstance(node, Upserts | Snapshots))


def _count(updates: np.ndarray) -> OutputSummary:
    inserted = int(np.count_nonzero(updates[:, -1] > 0))
    return OutputSummary(len(updates), inserted, len(updates) - inserted, None)
