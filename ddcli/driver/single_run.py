"""The run proper: one step of the dataflow over the new updates, and the commit of all that it changed."""

from __future__ import annotations

import threading
import time as clock
from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ddcli.circuit.retention import check_lengths, kept_past
from ddcli.circuit.traces import StateTraces
from ddcli.dataclass import dataclass, frozen
from ddcli.driver.ledgers import with_ledgers
from ddcli.driver.prepare import horizons_of, input_horizons
from ddcli.driver.replacement import read_slice, with_copied_rows
from ddcli.driver.step import OWN_TIMES, DataflowRun, StepInput, pools_for
from ddcli.engine.counts import OUTPUT, Counts, RowCounts
from ddcli.engine.lanes import Columns, Layout
from ddcli.engine.rounds import Interval
from ddcli.engine.times import LEAST, Frontier, up_to
from ddcli.job.consumed_files import with_archive_paths
from ddcli.job.inputs import tags_of_exports
from ddcli.job.paths import unparsed_below
from ddcli.job.request import error_directory, late_directory, time_text
from ddcli.job.summary import InputSummary, RunSummary
from ddcli.plan.physical import HISTORY, Arrangement, Scan
from ddcli.sinks.outputs import OutputWriter
from ddcli.sinks.side_logs import SideLogs, seen
from ddcli.sources.arrangement_input import SharedReader, claim_logs
from ddcli.sources.readers import columns_read, take, take_in_parts
from ddcli.sources.slices import InputSlice
from ddcli.store.batch.checked_files import OpenBundles
from ddcli.store.files.access import locate
from ddcli.store.log.reader import LogReader
from ddcli.store.log.writer import again
from ddcli.store.state.directory import read_claims
from ddcli.store.state.entries import InputEntry, OutputEntry
from ddcli.store.state.manifest import Manifest
from ddcli.store.state.outputs import relative_file
from ddcli.store.texts import format_frontier
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import polars as pl

    from ddcli.driver.replacement import Replacement
    from ddcli.driver.step import StepResult
    from ddcli.engine.counts import Progress
    from ddcli.engine.pool import Pool
    from ddcli.engine.scope import Scope
    from ddcli.engine.times import Time
    from ddcli.job.sizes import Sizes
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.sinks.side_logs import ErrorLog
    from ddcli.sources.readers import Reader
    from ddcli.sources.slices import Feed, InputFacts, Slice
    from ddcli.store.batch.open_batches import OpenBatches
    from ddcli.store.log.pieces import ConsumedRange
    from ddcli.store.state.entries import Times
    from ddcli.store.state.transaction import Transaction
    from ddcli.store.tables.listing import Listing


PAST = ("reopenings", "built", "forgot", "unclean", "forgotten_rows", "horizons", OWN_TIMES)
"""The keys of a manifest's cache that runs hand on."""


@dataclass
class ProgressMeter:
    """Reports to `progress` which input is read, and sums up by input the time that takes, over all threads (`seconds`)."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watched(self, taken: Mapping[str, Feed], readers: Mapping[str, Reader]) -> dict[str, InputSlice]:
        """Return the input of each source, with its reading watched."""
        widths = widths_of(taken, readers)
        return {
            name: InputSlice([WatchedSlice(part, name, widths[name], self) for part in given.slices], given.rows)
            for name, given in taken.items()
        }

    def note(self, name: str, rows: int, size: float, seconds: float) -> None:
        """Count and report some rows of an input that were read."""
        with self._lock:
            self.seconds[name] += seconds
        self.progress.read(rows, int(size))


def widths_of(taken: Mapping[str, Feed], readers: Mapping[str, Reader]) -> dict[str, float]:
    """Return the bytes of an input's files per row: files don't state their rows' sizes, so each row counts as the mean."""
    sizes = {name: sum(file.size for file in readers[name].listing.to_read) for name in taken}
    return {name: sizes[name] / max(given.rows, 1) for name, given in taken.items()}


@frozen
class WatchedSlice:
    """Some updates of the input `name`, not read yet; a row takes `width` bytes of its file."""

    part: Slice
    name: str
    width: float
    watching: ProgressMeter

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        began = clock.perf_counter()
        found = self.part.matrix(layout, pool)
        self._note(len(found), began)
        return found

    def updates(self, layout: Layout, pool: Pool) -> np.ndarray | Columns:
        began = clock.perf_counter()
        found = self.part.updates(layout, pool)
        self._note(len(found.tail if isinstance(found, Columns) else found), began)
        return found

    def _note(self, rows: int, began: float) -> None:
        self.watching.note(self.name, rows, rows * self.width, clock.perf_counter() - began)


def state_size(manifest: Manifest | None) -> tuple[int, int]:
    """Return the number of rows and bytes in a state."""
    return (manifest.size.rows, manifest.size.bytes) if manifest else (0, 0)


def imported(graph: PhysicalGraph, readers: Mapping[str, object]) -> dict[str, SharedReader]:
    """Return the readers of the arrangements in a graph that other pipelines keep, by identity."""
    found = {}
    for node in graph.nodes:
        if isinstance(node, Arrangement) and node.is_imported:
            (scan,) = node.inputs
            assert isinstance(scan, Scan)
            reader = readers[scan.name]
            assert isinstance(reader, SharedReader)
            found[node.fingerprint] = reader
    return found


@dataclass
class SingleRun(DataflowRun):
    """A run over the new rows of its inputs."""

    secret: bytes
    readers: dict[str, Reader]
    seen: Time | None
    upper: Frontier
    replacements: Mapping[str, Replacement] = field(default_factory=dict)
    """The files that replace others, or are withdrawn, by input."""
    _taken: dict[str, ConsumedRange] = field(default_factory=dict)
    _sources: dict[str, Feed] = field(default_factory=dict)
    """The updates that were taken, with the differences that replaced files make."""
    _meter: ProgressMeter | None = None
    _held: OpenBatches | None = None
    """The batches that the last round of a watch left open."""

    @property
    def graph(self) -> PhysicalGraph:
        return self.planning.graph

    @property
    def before(self) -> Times | None:
        """The frontier of the state; None for the first run."""
        return self.manifest.upper if self.manifest else None

    @property
    def only_corrects(self) -> bool:
        """Return whether the run closes no time: then the differences that replaced files make are at the first open time, which stays open."""
        return bool(self.replacements) and self.manifest is not None and self.upper == Frontier(self.manifest.upper)

    def run(self) -> RunSummary:
        """Compute and commit, keep open batches and the plan for the next run, and return the summary."""
        done = self.compute()
        read = self._read(done.facts)
        if self.state is None or done.manifest is None:
            return self._summary(done, read)
        if self.request.asked.claims:
            self._claim_logs(done.manifest)
        if self._held and self.request.asked.watch_cache:
            self.request.asked.watch_cache.keep(self.request.state, done.manifest, self._held)
        if self.manifest is None:
            self.planning.keep(done.manifest.cache["plan"]["generations"])
        return self._summary(done, read)

    def begin(self) -> StepInput:
        request, nt = self.request, len(self.time)
        past = self._kept_past()
        # The first run begins at the frontier that every time is at or after.
        interval = Interval(Frontier(self.before or [(LEAST,) * nt]), self.upper)
        if self.only_corrects:
            interval = Interval(self.upper, up_to(self.upper.as_time()))
        for name, reader in self.readers.items():
            if isinstance(reader, LogReader) and reader.pinned is not None and not reader.pinned.known:
                later = "may add to them" if reader.pinned.grows else "are held to them"
                request.asked.say(f"inputs.{name}: {reader.pinned.note}; later files {later}")
        cut, spread = self._take()
        held = None
        if request.asked.watch_cache and self.state is not None:
            held = request.asked.watch_cache.take(
                request.state, self.manifest, self.secret, request.asked.resources.memory
            )
            held = held if not spread and cut.room is None else None
        self._held = held
        pools = [held.pool] * cut.passes if held else pools_for(cut, self.secret)
        traces = StateTraces(
            request.state,
            self.manifest,
            pools,
            interval.lower,
            cut,
            imports=imported(self.graph, self.readers),
            claims=read_claims(request.state),
            past=past,
            progress=request.asked.progress,
            frontier=self.upper if self.only_corrects else None,
            held=held,
            bundles=OpenBundles(self.manifest.bundles if self.manifest else {}),
        )
        self._meter = ProgressMeter(request.asked.progress)
        return StepInput(
            self.graph,
            self.readers,
            # Tasks report the rows that they read themselves.
            self._sources if spread else self._meter.watched(self._sources, self.readers),
            cut,
            spread,
            pools,
            traces,
            interval,
            self.before,
            self.upper.elements,
            streams=not spread and cut.streams(sum(given.rows for given in self._sources.values())),
            combines=spread or cut.room is not None,
            bundled=True,
            often=held is not None,
            widths=widths_of(self._sources, self.readers) if spread else None,
        )

    def collector(self, errors: ErrorLog) -> Callable[..., None]:
        return errors.add

    def writer(self, given: StepInput, layouts: dict[str, Layout], transaction: Transaction | None) -> OutputWriter:
        waits = self.state is not None and self.state.staged  # a file to grow may have no name yet
        return OutputWriter(
            self.request,
            self.time,
            self.before,
            self.upper.elements,
            layouts,
            transaction,
            called=self._called(transaction) if transaction is not None else "",
            reopenings=self.manifest.reopenings if self.manifest else 0,
            horizons={} if self.manifest else horizons_of(self.request, given.graph, self._listings),
            known=self.manifest.outputs if self.manifest and not (self.only_corrects or waits) else {},
            orders=given.graph.orders,
            tags=given.graph.tags,
            secret=self.secret,
        )

    def check(self, facts: dict[str, InputFacts]) -> None:
        for each in facts.values():
            each.check()

    def _claim_logs(self, committed: Manifest) -> None:
        """Record the frontier up to which logs of other pipelines are taken."""
        if logs := [name for name, reader in self.readers.items() if reader.listing.growing]:
            paths = [locate(self.request.base, self.request.spec.inputs[name].path.value) for name in logs]
            claim_logs(self.request.spec.name.value, self.request.state, paths, committed.upper)

    def counted(self, scope: Scope, given: StepInput, writer: OutputWriter) -> Counts:
        """Return the counts of a step: an input's time is the time of reading it, state and outputs are written in their nodes'."""
        assert self._meter is not None, "the step has begun"
        scans = self.graph.scans()
        seconds = {scans[name].fingerprint: spent for name, spent in self._meter.seconds.items() if name in scans}
        seconds |= {f"{OUTPUT}{name}": spent for name, spent in writer.seconds.items()}
        apart = ((name, RowCounts(seconds=spent)) for name, spent in seconds.items())
        return Counts.of([*scope.counts(), *apart, *given.traces.counts()])

    def _take(self) -> tuple[Sizes, bool]:
        """Find the updates of each input; return the sizes of the run, and whether each stage gets an engine of its own."""
        scans, before, upper = self.graph.scans(), self.before, self.upper.elements
        taken = take(self.readers, scans, before, upper)
        rows = sum(taken[name].rows for name in scans)
        rows += sum(each.rows(upper) for name, each in self.replacements.items() if name in scans)
        entries = self.manifest.arrangements.values() if self.manifest else ()
        kept = frozenset(len(entry.shards) for entry in entries)
        cut, spread = self.placement.cut(self.graph, len(self.time), rows, kept)
        take_in_parts(taken, self.readers, scans, before, upper, rows, cut)
        self._taken, self._sources = taken, {**taken}
        for name, replacement in self.replacements.items():
            own, more = taken[name], replacement.taken(columns_read(scans, name), upper, cut.most)
            if spread:  # tasks on other machines lack the copies
                more = InputSlice([read_slice(each) for each in more.slices], more.rows)
            self._sources[name] = InputSlice([*own.slices, *more.slices], own.rows + more.rows)
        if spread:
            self._sources = with_copied_rows(self._sources, self.readers)
        return cut, spread

    def _kept_past(self) -> dict[str, int | None]:
        """Return the length of the past that each arrangement keeps, if the file states any. Raises SpecErrors for lengths that the times don't have."""
        spec, graph = self.request.spec, self.graph
        stated = any((spec.history, *(each.history or each.keep for each in spec.outputs.values())))
        if not (stated or any(name.startswith(HISTORY) for name in graph.exports)):
            return {}
        check_lengths(spec, self.kinds)
        return kept_past(spec, graph, self.kinds)

    def _read(self, facts: dict[str, InputFacts]) -> dict[str, InputSummary]:
        taken = self._taken
        replaced = {name: each.after.listing.to_read for name, each in self.replacements.items()}
        return {
            name: InputSummary(
                self._sources[name].rows,
                len(reader.listing.to_read) + len(replaced.get(name, ())),
                sum(not file.done for file in taken[name].files),
                taken[name].late,
                str(late_directory(self.request, name)) if taken[name].put_aside else None,
                *(facts[name].negatives() if name in facts else (0, None)),
                bytes=sum(file.size for file in (*reader.listing.to_read, *replaced.get(name, ()))),
                unparsed=sum(each.numbers.len() for _, each in taken[name].unparsed),
                unparsed_in=str(unparsed_below(error_directory(self.request), name)) if taken[name].unparsed else None,
                passed={str(reader.listing.root / one.path): one.why for one in reader.listing.passed},
                gone=tuple(sorted(reader.listing.gone)),
            )
            for name, reader in self.readers.items()
        }

    def next_manifest(
        self, given: StepInput, writer: OutputWriter, errors: ErrorLog, transaction: Transaction
    ) -> Manifest:
        times, called = self.upper.elements, self._called(transaction) or again(writer.reopenings)
        if errors.frames or any(found.put_aside or found.unparsed for found in self._taken.values()):
            logs = SideLogs(self.request, transaction, self.time, (self.before, times), called)
            logs.add_errors(errors)
            logs.put_aside(self._taken)
        return Manifest(
            name=self.request.spec.name.value,
            upper=times,
            pipeline=self.request.digest,
            plan=self.graph.fingerprint,
            engine=__version__,
            file=relative_file(self.request.state, self.request.spec.path),
            inputs=self._inputs(transaction, times),
            arrangements=given.traces.entries(self.upper),
            outputs={name: self._output(name, writer) for name in writer.layouts},
            exports=self.graph.exports,
            secret=self.secret.hex(),
            cache={
                "time": {name: str(kind) for name, kind in self.time.items()},
                "seen": self.seen and list(self.seen),
                "plan": self.planning.outline_of(self.manifest) if self.manifest else self.planning.outline(),
                **tags_of_exports(self.graph),
                **self._past(),
                **({"clock": "arrival", "due": given.traces.due()} if self.request.clock.arrival else {}),
            },
        )

    def _called(self, transaction: Transaction) -> str:
        """Return the addition to the names of the files of a commit that closes no time: there may be several such."""
        return f"-change{transaction.number}" if self.only_corrects else ""

    def _inputs(self, transaction: Transaction, times: Times) -> dict[str, InputEntry]:
        """Return the inputs as the next manifest has them, with ledgers where files may be replaced, or were."""
        made = {name: self._entry(name, reader, times) for name, reader in self.readers.items()}
        inputs = {name: entry.numbered(transaction.number) for name, entry in made.items()}
        known = self.manifest.inputs if self.manifest else {}
        if not (
            self.replacements
            or any(given.changed == "replace" for given in self.request.spec.inputs.values())
            or any(entry.replaced for entry in known.values())
        ):
            return inputs
        return with_ledgers(self.request, transaction, inputs, self.manifest, self.readers, self.replacements)

    def _entry(self, name: str, reader: Reader, times: Times) -> InputEntry:
        """Return an input as the next manifest has it, without its ledger."""
        files = self._taken[name].files
        if name in self.replacements:
            files = tuple(sorted((*files, *self.replacements[name].files(times)), key=lambda file: file.path))
        given = self.request.spec.inputs[name]
        kept = with_archive_paths(given, self.request.base, files) if given.archive else files
        return InputEntry(times, kept, reader.kept())

    def _output(self, name: str, writer: OutputWriter) -> OutputEntry:
        known = self.manifest.outputs[name] if self.manifest else None
        return writer.entry(name, known, known.fingerprint if known else self.planning.plan.meanings[name])

    def _past(self) -> dict[str, Any]:
        """Return the notes on its past that each commit of a state keeps: how often it was reopened, the arrangements that were built anew, the
        files with rows that were forgotten, the times from which on inputs have their updates, and whether all updates have their own times.
        """
        if self.manifest:
            kept = {name: self.manifest.cache[name] for name in PAST if name in self.manifest.cache}
        else:
            horizons = input_horizons(self.request, self._listings)
            kept = {OWN_TIMES: True} | ({"horizons": horizons} if horizons else {})
        corrects = self.replacements or any(each.late for each in self._taken.values())
        return kept | ({OWN_TIMES: False} if corrects else {})

    @property
    def _listings(self) -> dict[str, Listing]:
        return {name: reader.listing for name, reader in self.readers.items()}

    def show(self, label: str, updates: pl.DataFrame) -> None:
        """Print the updates that reach an `inspect`."""
        for line in seen(label, updates, self.kinds):
            self.request.asked.say(line)

    def _summary(self, done: StepResult, read: dict[str, InputSummary]) -> RunSummary:
        rows, size = state_size(done.manifest) if self.state else (None, None)
        failed = done.errors.rows
        return RunSummary(
            name=self.request.spec.name.value,
            lower=format_frontier(Frontier(self.manifest.upper), self.kinds) if self.manifest else None,
            upper=format_frontier(self.upper, self.kinds),
            changed=True,
            time=time_text(self.request.clock, self.upper),
            inputs=read,
            outputs=done.writer.output_summaries(),
            state_bytes=size,
            state_rows=rows,
            dry=self.state is None,
            spark=done.spark,
            counts=done.counts,
            failed=failed,
            errors=str(error_directory(self.request)) if failed else None,
            checks=done.verdicts,
        )
