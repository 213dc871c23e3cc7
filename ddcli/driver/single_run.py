"""The run proper: one step of the dataflow over the new updates, and the commit of all that it changed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ddcli.circuit.graph import assemble
from ddcli.circuit.retention import check_lengths, kept_past
from ddcli.circuit.traces import StateTraces
from ddcli.dataclass import dataclass
from ddcli.driver.meter import ProgressMeter, widths_of
from ddcli.driver.prepare import horizons_of, input_horizons
from ddcli.driver.step import StepExecutor, pools_for
from ddcli.engine.counts import OUTPUT, Counts, RowCounts
from ddcli.engine.kernels import ManyPairs
from ddcli.engine.lanes import Layout
from ddcli.engine.rounds import Interval
from ddcli.engine.scope import Scope
from ddcli.engine.times import LEAST, Frontier
from ddcli.engine.workers import Workers
from ddcli.job.clock import time_text
from ddcli.job.consumed_files import with_archive_paths
from ddcli.job.paths import unparsed_below
from ddcli.job.reopened_times import notes_on_past, reopenings
from ddcli.job.request import error_directory, late_directory
from ddcli.job.sizes import Sizes, rows_together
from ddcli.job.summary import InputSummary, OutputSummary, RunSummary, SparkSummary
from ddcli.sinks.inspect import seen
from ddcli.sinks.outputs import OutputWriter
from ddcli.sinks.side_logs import ErrorLog, put_aside
from ddcli.sources.arrangement_input import imported
from ddcli.sources.input_format import InputFacts, facts_of
from ddcli.sources.readers import (
    refuse_rewritten,
)
from ddcli.store.files.objects import locate
from ddcli.store.log.reader import LogReader
from ddcli.store.log.writer import again
from ddcli.store.state.entries import InputEntry, OutputEntry, Size, Times
from ddcli.store.state.holds import read_claims
from ddcli.store.state.manifest import Manifest
from ddcli.store.state.pipeline_file import relative_file
from ddcli.store.time_text import format_frontier
from ddcli.version import __version__

if TYPE_CHECKING:
    import polars as pl

    from ddcli.driver.run_plan import RunPlan
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.request import Request
    from ddcli.plan.physical_graph import PhysicalGraph
    from ddcli.runtime.placement import Choosing
    from ddcli.sources.readers import Reader
    from ddcli.store.log.pieces import ConsumedRange
    from ddcli.store.state.directory import State
    from ddcli.store.tables.listing import Listing


def state_size(manifest: Manifest | None) -> tuple[int, int]:
    """Return the number of rows and bytes in a state."""
    size = Size.of(manifest.files if manifest else ())
    return size.rows, size.bytes


@dataclass
class SingleRun:
    """One run that has something to do: read, step, commit."""

    request: Request
    manifest: Manifest | None
    state: State | None
    secret: bytes
    planning: RunPlan
    readers: dict[str, Reader]
    time: Schema
    """The time columns of the outputs and their types, one for each coordinate."""
    seen: Time | None
    upper: Frontier
    choosing: Choosing
    spread: SparkSummary | None = None
    counts: Counts = field(default_factory=Counts)

    @property
    def graph(self) -> PhysicalGraph:
        return self.planning.graph

    def run(self) -> RunSummary:
        """Run: in memory if that is large enough, also for the rows of joins, which are known only when they are made; else, from the beginning, out of core."""
        try:
            return self._attempt()
        except ManyPairs as many:
            self.choosing.joined = many.rows
        self.request.say(
            f"a join has {self.choosing.joined:,} rows, too many for the memory: the run begins again out of core"
        )
        return self._attempt()

    def _attempt(self) -> RunSummary:
        before = self.manifest.upper if self.manifest else None
        nt = len(self.time)
        # The first run begins at the frontier that every time is at or after.
        check_lengths(self.request.spec, self.kinds)
        interval = Interval(Frontier(before or [(LEAST,) * nt]), self.upper)
        for name, reader in self.readers.items():
            if isinstance(reader, LogReader) and reader.pinned is not None and not reader.pinned.known:
                self.request.say(f"inputs.{name}: {reader.log.inferred}; later files are held to them")
        taken, cut, spread = self._take(before)
        held = None
        if self.request.standby and self.state is not None:
            held = self.request.standby.take(self.request.state, self.manifest, self.secret, self.request.memory)
            held = held if not spread and cut.room is None else None
        pools = [held.pool] * cut.passes if held else pools_for(cut, self.secret)
        traces = StateTraces(
            self.request.state,
            self.manifest,
            pools,
            interval.lower,
            cut,
            imports=imported(self.graph, self.readers),
            claims=read_claims(self.request.state),
            past=kept_past(self.request.spec, self.graph, self.kinds),
            progress=self.request.progress,
            held=held,
        )
        workers = Workers(cut.passes, cut.threads)
        streams = not spread and cut.streams(sum(given.rows for given in taken.values()))
        scope = Scope(
            nt,
            workers=workers,
            counted=True,
            streams=streams,
            combines=spread or cut.room is not None,
            pairs=cut.pairs,
            progress=self.request.progress,
        )
        kinds = tuple(self.time.values())
        try:
            errors = ErrorLog(self.time)
            failed = errors.add if self.request.spec.errors else None
            facts = facts_of(self.request.spec, self.readers, before, self.upper.elements)
            assembled = assemble(
                self.graph,
                scope,
                traces,
                pools,
                self._show,
                kinds,
                parted=True,
                facts=facts,
                failed=failed,
                lazily=spread,
            )
            with (
                nullcontext()
                if self.state is None
                else self.state.begin(batches=traces.files, often=held is not None) as transaction
            ):
                publishing = OutputWriter(
                    self.request,
                    self.time,
                    before,
                    self.upper.elements,
                    assembled.outputs,
                    transaction,
                    reopenings=reopenings(self.manifest),
                    horizons={} if self.manifest else horizons_of(self.request, self.graph, self._listings),
                    known=self.manifest.outputs if self.manifest else {},
                    orders=self.graph.orders,
                )
                watching = ProgressMeter(self.request.progress)
                # Tasks report the rows that they read themselves.
                given = taken if spread else watching.watched(taken, self.readers)
                step = StepExecutor(assembled, given, cut, pools, traces, publishing, transaction, interval)
                if self.request.budget is not None:
                    scope.watch = lambda: self.planning.check_spent(Counts.of(scope.counts()))
                if spread:
                    widths = widths_of(taken, self.readers)
                    watch = self.planning.check_spent
                    self.counts, self.spread = step.run_as_tasks(
                        self.graph, self.choosing, facts, errors, watch, widths
                    )
                else:
                    step.run()
                    self.counts = self._counted(scope, watching, traces, publishing)
                for each in facts.values():
                    each.check()
                read = self._read(taken, facts)
                self.planning.check_spent(self.counts)
                if transaction is None:
                    return self._summary(read, publishing.summaries(), self.manifest, errors)
                bounds, called = (before, self.upper.elements), again(publishing.reopenings)
                errors.write(transaction, error_directory(self.request), bounds, called)
                put_aside(self.request, transaction, taken, self.time, bounds, called)
                manifest = self._manifest(taken, traces, publishing)
                if self.request.budget is not None:
                    self.planning.check_written(transaction, self.counts, manifest.arrangements, publishing)
                refuse_rewritten(self.readers)
                self.request.progress.begin("committing")
                committed = transaction.commit(manifest)
        finally:
            workers.close()
        if self.request.claims:
            self._claim_logs(committed)
        if held and self.request.standby:
            self.request.standby.keep(self.request.state, committed, held)
        if self.manifest is None:
            self.planning.keep(committed.cache["plan"]["generations"])
        return self._summary(read, publishing.summaries(), committed, errors)

    def _claim_logs(self, committed: Manifest) -> None:
        """Record the frontier up to which logs of other pipelines are taken."""
        if logs := [name for name, reader in self.readers.items() if reader.listing.growing]:
            from ddcli.sources.log_claims import claim_logs

            paths = [locate(self.request.base, self.request.spec.inputs[name].path.value) for name in logs]
            claim_logs(self.request.spec.name.value, self.request.state, paths, committed.upper)

    def _counted(self, scope: Scope, watching: ProgressMeter, traces: StateTraces, publishing: OutputWriter) -> Counts:
        """Return the counts of a step: an input's time is that of reading it, state and outputs are written in their nodes'."""
        scans = self.graph.scans()
        seconds = {scans[name].fingerprint: spent for name, spent in watching.seconds.items() if name in scans}
        seconds |= {f"{OUTPUT}{name}": spent for name, spent in publishing.seconds.items()}
        apart = ((name, RowCounts(seconds=spent)) for name, spent in seconds.items())
        return Counts.of([*scope.counts(), *apart, *traces.counts()])

    def _take(self, before: Times | None) -> tuple[dict[str, ConsumedRange], Sizes, bool]:
        """Find the updates of each input, the cut of the run, and whether each stage gets an engine of its own.

        An input that no output reads is only checked.
        """
        scans = self.graph.scans()
        columns = {name: tuple(scans[name].schema) if name in scans else () for name in self.readers}
        upper = self.upper.elements
        taken = {name: reader.take(columns[name], before, upper) for name, reader in self.readers.items()}
        rows = sum(taken[name].rows for name in scans)
        entries = self.manifest.arrangements.values() if self.manifest else ()
        kept = frozenset(len(entry.shards) for entry in entries)
        cut, spread = self.choosing.cut(self.graph, len(self.time), rows, kept)
        for name, reader in self.readers.items():
            width = (Layout(scans[name].schema).width if name in scans else 0) + len(self.time) + 1
            most = rows_together(rows, width, cut, apart=reader.seeks)
            if most is not None:
                taken[name] = reader.take(columns[name], before, upper, most)
        return taken, cut, spread

    def _read(self, taken: dict[str, ConsumedRange], facts: dict[str, InputFacts]) -> dict[str, InputSummary]:
        return {
            name: InputSummary(
                taken[name].rows,
                len(reader.listing.to_read),
                sum(not file.done for file in taken[name].files),
                taken[name].late,
                str(late_directory(self.request, name)) if taken[name].put_aside else None,
                *(facts[name].negatives() if name in facts else (0, None)),
                bytes=sum(file.size for file in reader.listing.to_read),
                unparsed=sum(each.numbers.len() for _, each in taken[name].unparsed),
                unparsed_in=str(unparsed_below(error_directory(self.request), name)) if taken[name].unparsed else None,
                passed={str(reader.listing.root / one.path): one.why for one in reader.listing.passed},
            )
            for name, reader in self.readers.items()
        }

    def _manifest(self, taken: dict[str, ConsumedRange], traces: StateTraces, publishing: OutputWriter) -> Manifest:
        """Return the manifest that the run commits."""
        times = self.upper.elements
        return Manifest(
            name=self.request.spec.name.value,
            upper=times,
            pipeline=self.request.digest,
            plan=self.graph.fingerprint,
            engine=__version__,
            file=relative_file(self.request.state, self.request.spec.path),
            inputs={
                name: InputEntry(
                    times,
                    with_archive_paths(self.request.spec.inputs[name], self.request.base, taken[name].files),
                    reader.kept(),
                )
                for name, reader in self.readers.items()
            },
            arrangements=traces.entries(self.upper),
            outputs={name: self._output(name, publishing) for name in publishing.layouts},
            exports=self.graph.exports,
            secret=self.secret.hex(),
            cache={
                "time": {name: str(kind) for name, kind in self.time.items()},
                "seen": self.seen and list(self.seen),
                "plan": self._outline(),
                **notes_on_past(self.manifest),
                **self._horizons(),
                **self._clock(traces),
            },
        )

    def _output(self, name: str, publishing: OutputWriter) -> OutputEntry:
        known = self.manifest.outputs[name] if self.manifest else None
        return publishing.entry(name, known, known.fingerprint if known else self.planning.plan.meanings[name])

    def _clock(self, traces: StateTraces) -> dict[str, Any]:
        """Return the facts that the next run needs under the clock of arrivals: that it is this clock, and when something is due."""
        return {"clock": "arrival", "due": traces.due()} if self.request.clock.arrival else {}

    def _horizons(self) -> dict[str, Any]:
        """Return, at the first commit, the times from which on inputs have their updates, where their past is summed up."""
        found = {} if self.manifest else input_horizons(self.request, self._listings)
        return {"horizons": found} if found else {}

    def _outline(self) -> Any:
        return self.planning.outline_of(self.manifest) if self.manifest else self.planning.outline()

    @property
    def _listings(self) -> dict[str, Listing]:
        return {name: reader.listing for name, reader in self.readers.items()}

    @property
    def kinds(self) -> list[Type]:
        return list(self.time.values())

    def _show(self, label: str, updates: pl.DataFrame) -> None:
        """Print the updates that reach an `inspect`."""
        for line in seen(label, updates, self.kinds):
            self.request.say(line)

    def _summary(
        self,
        read: dict[str, InputSummary],
        wrote: dict[str, OutputSummary],
        manifest: Manifest | None,
        errors: ErrorLog,
    ) -> RunSummary:
        rows, size = state_size(manifest) if self.state else (None, None)
        return RunSummary(
            name=self.request.spec.name.value,
            lower=format_frontier(Frontier(self.manifest.upper), self.kinds) if self.manifest else None,
            upper=format_frontier(self.upper, self.kinds),
            changed=True,
            time=time_text(self.request.clock, self.upper),
            inputs=read,
            outputs=wrote,
            state_bytes=size,
            state_rows=rows,
            dry=self.state is None,
            spark=self.spread,
            counts=self.counts,
            failed=errors.rows,
            errors=str(error_directory(self.request)) if errors.rows else None,
        )
