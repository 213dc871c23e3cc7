"""A changed pipeline's state: what is new in the plan is built from what is kept and from the inputs, and outputs are corrected.

The work is that of a run over all times before the frontier, of a graph that begins at the arrangements which are kept.
Outputs that say something else now are given the difference, at the frontier: no closed time changes. One commit for all.

Files are withdrawn the same way: what is above their inputs is built from the files that remain. Under the clock of arrivals that
happens at the time of a run, which is closed with it. And a state is reopened so: all of it is built as of the earlier frontier, from
the files that were taken in. Each output gets the difference to all that it says, at that frontier and at the times after it, which are open then.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddcli.circuit.graph import assemble
from ddcli.circuit.retention import kept_past
from ddcli.circuit.traces import StateTraces
from ddcli.dataclass import dataclass
from ddcli.driver.prepare import horizons_of, input_horizons
from ddcli.driver.requested_changes import (
    find_changes,
    refuse_later_imports,
    refuse_other_frontiers,
    refuse_rewriting,
    refuse_taking_back,
    renamed,
)
from ddcli.driver.step import Stepping, pools_for
from ddcli.engine.counts import Counts
from ddcli.engine.lanes import Layout
from ddcli.engine.rounds import Interval
from ddcli.engine.scope import Scope
from ddcli.engine.times import LEAST, Frontier, join
from ddcli.engine.workers import Workers
from ddcli.errors import StateError
from ddcli.expressions.types import parse_type
from ddcli.job.clock import last_time, run_time
from ddcli.job.frontier import find_seen, refuse_beyond_imports
from ddcli.job.inputs import find_inputs
from ddcli.job.reopening import reopenings
from ddcli.job.request import error_directory
from ddcli.job.sizes import rows_held, rows_read
from ddcli.plan.changes import CONTENTS, PlanChanges
from ddcli.plan.physical import WAITING, Scan, SignedSum, SnapshotTable, StandingRecord, UpsertTable, physical_graph
from ddcli.sinks.archives import replace_archived
from ddcli.sinks.outputs import Publishing
from ddcli.sinks.side_logs import Correction, ErrorLog, replace_side_logs
from ddcli.sources.imported import SharedReader
from ddcli.sources.input_format import facts_of
from ddcli.sources.readers import (
    UNCLEAN,
    find_forgotten,
    in_files,
    largest_seen,
    open_logs,
    refuse_rewritten,
    refuse_unclean,
)
from ddcli.sources.slices import ArrangementFile, Fed, Said, Settled
from ddcli.store.batch.layout import BatchLayout
from ddcli.store.files.access import is_there
from ddcli.store.log.writer import write_progress
from ddcli.store.state.contents import batch_path
from ddcli.store.state.entries import ArrangementEntry, InputEntry, OutputEntry
from ddcli.store.state.pipeline_file import relative_file
from ddcli.store.state.verify import check_bytes
from ddcli.version import __version__

if TYPE_CHECKING:
    from ddcli.driver.run_plan import RunPlan
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.forgetting import Forgetting
    from ddcli.job.input_files import InputFiles
    from ddcli.job.request import Request
    from ddcli.job.summary import OutputSummary, SparkSummary
    from ddcli.plan.logical import Node
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.runtime.placement import Choosing
    from ddcli.sources.readers import Reader
    from ddcli.sources.slices import Slice
    from ddcli.store.state.directory import State, Transaction
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.tables.listing import Listing

    Rebuilt = tuple[Manifest, dict[str, OutputSummary], Counts, SparkSummary | None]

WRITTEN = "written:"
"""Begins the names of sources that hold the updates of an output so far; no input's name has a colon."""


def rebuild(
    request: Request, manifest: Manifest, state: State | None, planning: RunPlan, time: Schema, choosing: Choosing
) -> Rebuilt:
    """Bring a state to a changed plan, at the frontier where it is; return the manifest, what was written to outputs, counted, and where.

    Without a state, a dry run, nothing is committed. Raises StateError where outputs would be rewritten and that is not asked for.
    """
    changes = find_changes(request, manifest, planning.plan)
    if request.withdrawn or request.reopened is not None or request.forgetting is not None:
        refuse_taking_back(request, manifest, changes)
    else:
        refuse_rewriting(request, manifest, changes)
    found = find_inputs(request, manifest, anew=not changes.known.inputs)
    if request.reopened is not None:
        refuse_other_frontiers(request.reopened, found, time)
        found = {name: given.reopened(request.reopened) for name, given in found.items()}
    else:
        refuse_beyond_imports(replace(request, until=None), time, found, Frontier(manifest.upper))
    found |= {name: found[name].mended(manifest.inputs[name]) for name in request.withdrawn}
    if not changes.known.inputs:
        found = {name: given.marked(manifest.inputs.get(name)) for name, given in found.items()}
    if request.forgetting is not None:
        refuse_later_imports(manifest, found)
        found = {
            name: given if given.shared or given.progress is not None else given.known(manifest.inputs[name])
            for name, given in found.items()
        }
    if request.clock.arrival:
        # What is new in a known input is the next run's; a new input has been there since the last one.
        last, later = last_time(manifest), last_time(manifest) + 1
        found = {name: given.arriving(later if name in manifest.inputs else last) for name, given in found.items()}
    at = run_time(request.clock, manifest) if request.withdrawn and request.clock.arrival else None
    return _Rebuild(request, manifest, state, planning, changes, found, time, choosing, at).run()


def _beginning(nt: int) -> Frontier:
    return Frontier([(LEAST,) * nt])


def _timed(graph: PhysicalGraph) -> frozenset[str]:
    """Return the inputs of which more than the sum matters: rows of keys, and rows of which one was there, if only for a time."""
    keyed = {node.name for node in graph.nodes if isinstance(node, UpsertTable | SnapshotTable)}
    standing: dict[str, Node] = {
        str(at): node for at, node in enumerate(graph.nodes) if isinstance(node, StandingRecord)
    }
    return frozenset(keyed | physical_graph(standing).scans().keys())


@dataclass
class _Rebuild:
    request: Request
    manifest: Manifest
    state: State | None
    planning: RunPlan
    changes: PlanChanges
    found: dict[str, InputFiles]
    time: Schema
    choosing: Choosing
    at: int | None = None
    """The time at which files are withdrawn, where that is a run's."""

    def run(self) -> Rebuilt:
        graph = self._correcting(self.changes.cut())
        readers, known = self._readers(graph)
        most = rows_read(self.request.memory)
        forgetting = self.request.forgetting
        if forgetting is not None:
            find_forgotten(forgetting, readers, most)
        inputs, sources = self._sources(graph, readers, known, most)
        rows = sum(source.rows for source in sources.values())
        cut, spread = self.choosing.cut(graph, self.nt, rows, self._kept())
        if spread and cut.most is not None and cut.most < most:
            inputs, sources = self._sources(graph, readers, known, cut.most)
        pools, interval = pools_for(cut, self.secret), Interval(_beginning(self.nt), self.upper)
        past = kept_past(self.request.spec, graph, self.kinds) if forgetting else {}
        traces = StateTraces(
            self.request.state, None, pools, interval.lower, cut, past=past, only=frozenset(self.changes.built)
        )
        facts = facts_of(self.request.spec, readers, None, self.upper.elements)
        errors = ErrorLog(self.time)
        add = errors.add if forgetting else errors.add_rebuilt(self.opened)
        failed = add if self.request.spec.errors else None
        quiet = lambda _label, _updates: None  # noqa: E731
        workers = Workers(cut.passes, cut.threads)
        scope = Scope(self.nt, workers=workers, counted=True, progress=self.request.progress)
        try:
            assembled = assemble(
                graph,
                scope,
                traces,
                pools,
                quiet,
                self.kinds,
                parted=True,
                facts=facts,
                failed=failed,
                lazily=spread,
            )
            with nullcontext() if self.state is None else self.state.begin() as transaction:
                times = self.upper.elements
                count = reopenings(self.manifest) + self.reopens
                called = self._called(transaction, count)
                # Others are computed, where they are, for the arrangements on the way to them.
                layouts = {
                    name: layout
                    for name, layout in assembled.outputs.items()
                    if self.changes.outputs.get(name, "same") != "same"
                }
                interval_ = (None if forgetting else self.manifest.upper, times)
                moved = None if forgetting else self.opened
                listings = {name: given.listing for name, given in self.found.items()}
                begun = horizons_of(self.request, self.changes.plan.graph, listings)
                publishing = Publishing(
                    self.request, self.time, *interval_, layouts, transaction, moved, called, count, begun
                )
                step = Stepping(assembled, sources, cut, pools, traces, publishing, transaction, interval)
                if self.request.budget is not None:
                    scope.watch = lambda: self.planning.check_spent(Counts.of(scope.counts()))
                where: SparkSummary | None = None
                if spread:
                    counts, where = step.run_as_tasks(graph, self.choosing, facts, errors, self.planning.check_spent)
                else:
                    step.run()
                    counts = Counts.of(scope.counts())
                self.planning.check_spent(counts)
                if transaction is None:
                    return self.manifest, publishing.summaries(), counts, where
                entries = self._outputs(publishing)
                if forgetting:
                    replace_side_logs(self.request, transaction, errors, in_files(readers), self.time, times, called)
                    inputs |= replace_archived(forgetting, transaction, in_files(readers), inputs)
                else:
                    self._retire(transaction)
                    self._correct_side_logs(readers, transaction, errors, called, anew=not known)
                manifest = replace(
                    self.manifest,
                    upper=times,
                    pipeline=self.request.digest,
                    plan=self.changes.plan.fingerprint,
                    engine=__version__,
                    file=relative_file(self.request.state, self.request.spec.path),
                    inputs=inputs,
                    arrangements=self._arrangements() | traces.entries(self.upper),
                    outputs=entries,
                    exports=self.changes.plan.graph.exports,
                    secret=self.secret.hex(),
                    cache=self.manifest.cache
                    | {"plan": self.planning.outline()}
                    | self._due(traces)
                    | ({"reopenings": count} if self.reopens else {})
                    | {"seen": (seen := self._seen(readers)) and list(seen)}
                    | self._built(transaction.number)
                    | (self._forgotten(forgetting, transaction.number, listings) if forgetting else {}),
                )
                if self.request.budget is not None:
                    self.planning.check_written(transaction, counts, traces.entries(self.upper), publishing)
                refuse_rewritten(readers)
                return transaction.commit(manifest), publishing.summaries(), counts, where
        finally:
            workers.close()

    @cached_property
    def secret(self) -> bytes:
        """The secret of the state."""
        return self.manifest.secret_bytes

    @property
    def nt(self) -> int:
        return len(self.time)

    @property
    def kinds(self) -> tuple[Type, ...]:
        return tuple(self.time.values())

    @cached_property
    def upper(self) -> Frontier:
        """The frontier at which all is done: that of the state, an earlier one, or just after the time at which files are withdrawn."""
        if self.request.reopened is not None:
            return self.request.reopened
        return Frontier(self.manifest.upper) if self.at is None else Frontier([(self.at + 1,)])

    @property
    def reopens(self) -> bool:
        """Whether the state is taken back to an earlier frontier."""
        return self.request.reopened is not None

    @cached_property
    def opened(self) -> Frontier:
        """The frontier of the times at which outputs may change."""
        return self.upper if self.at is None else Frontier([(self.at,)])

    def _seen(self, readers: dict[str, Reader]) -> Time | None:
        """Return the largest time of each coordinate in all files, as far as it matters: one in a withdrawn file closes nothing later."""
        seen = find_seen(self.manifest)
        if self.reopens:
            return largest_seen(None, readers)
        if (
            seen is None
            or self.nt > 1
            or not self.request.withdrawn
            or self.at is not None
            or not self.upper.less_equal(seen)
        ):
            return seen
        waiting = {
            name: replace(given, listing=replace(given.listing, new=()))
            for name, given in self.found.items()
            if given.shared is None
        }
        left = largest_seen(None, open_logs(self.request, self.manifest, waiting, rows_held(self.request.memory)))
        ((first,),) = self.upper.elements
        return (first - 1,) if left is None else join(left, (first - 1,))

    def _forgotten(self, forgetting: Forgetting, number: int, listings: dict[str, Listing]) -> dict[str, Any]:
        """Return what the state notes of rows that were forgotten: where they still are, and from when on the inputs say anything."""
        return {UNCLEAN: forgetting.unclean, "forgot": number, "horizons": input_horizons(self.request, listings)}

    def _built(self, number: int) -> dict[str, Any]:
        """Return which exported arrangements commits have built anew, this one those in which something may have been taken back."""
        built = dict(self.manifest.cache.get("built", {}))
        others = (
            self.reopens
            or self.request.forgetting is not None
            or (self.request.refreshes_all and self._has_other_files())
        )
        anew = {name for name in self.changes.plan.graph.exports.values() if others or name in self.changes.touched}
        built |= dict.fromkeys(anew & self.manifest.arrangements.keys(), number)
        return {"built": built} if built else {}

    def _has_other_files(self) -> bool:
        """Say whether a file that the state has taken in has changed since, or is gone."""
        return any(
            not {(file.key, file.fingerprint) for file in entry.files if not file.withdrawn}
            <= {(file.key, file.fingerprint) for file in self.found[name].listing.files}
            for name, entry in self.manifest.inputs.items()
            if name in self.found
        )

    def _due(self, traces: StateTraces) -> dict[str, Any]:
        """Return when something is due under the clock of arrivals, in what was built or is kept."""
        if not self.request.clock.arrival:
            return {}
        before = self.manifest.cache.get("due") if self.changes.kept else None
        known = [due for due in (before, traces.due()) if due is not None]
        return {"due": min(known, default=None)}

    # --- what there is --------------------------------------------------------------------------------------------

    def _correcting(self, graph: PhysicalGraph) -> PhysicalGraph:
        """Return the graph with, for each output that changed, its new collection less its updates so far."""
        outputs = dict(graph.outputs)
        for name, change in self.changes.outputs.items():
            if change == "changed":
                node = outputs[name]
                self._check_columns(name, node.schema)
                self._check_files(name)
                written = Scan((), node.schema, WRITTEN + name, self.nt)
                outputs[name] = SignedSum((node, written), node.schema, (1, -1))
        return physical_graph(outputs, graph.engines)

    def _check_columns(self, name: str, schema: Schema) -> None:
        """Refuse other columns than an output's log has."""
        entry = self._known(name)
        wanted = {column: str(kind) for column, kind in schema.items()}
        if entry is None or list(entry.schema.items()) != list(wanted.items()):
            before = entry.schema if entry else {}
            columns = [", ".join(f"{column}: {kind}" for column, kind in each.items()) for each in (before, wanted)]
            raise StateError(
                f"output '{name}' would have other columns ({columns[1]}) than its log has ({columns[0]})",
                place=str(self.request.spec.path),
                hint="a log has the same columns in all its files: give the output another `path`, where it begins anew",
            )

    def _check_files(self, name: str) -> None:
        """Refuse an output whose files aren't what was written: of what isn't there any more the difference would be wrong."""
        entry = self._known(name)
        for file in entry.files if entry else ():
            check_bytes(self.request.outputs[name] / file.name, file)

    def _known(self, name: str) -> OutputEntry | None:
        """Return what the state says of an output, whatever it was called; nothing of one that is written from the beginning."""
        if name in self.request.rewrite:
            return None
        return self.manifest.outputs.get(renamed(self.request, self.manifest).get(name, ""))

    def _readers(self, graph: PhysicalGraph) -> tuple[dict[str, Reader], frozenset[str]]:
        """Return readers of the inputs that are read again or for the first time, and the inputs that the state knows.

        Of those only files are read that were taken from.
        """
        known, needed = self.changes.known.inputs, graph.scans()
        past = {name: given.past() if name in known else given for name, given in self.found.items()}
        again = past if self.reopens else self.request.withdrawn
        read = {name: given for name, given in past.items() if name in needed or name not in known or name in again}
        before = self.manifest.read_anew() if known or self.request.forgetting is not None else None
        if before is not None and (self.reopens or self.request.forgetting is not None):
            # An import begins anew, as of its frontier now.
            own = {name: entry for name, entry in before.inputs.items() if past[name].shared is None}
            before = replace(before, inputs=own)
        readers = open_logs(self.request, before, read, rows_held(self.request.memory))
        if self.request.forgetting is None:
            refuse_unclean(self.manifest, read)
        return readers, known

    def _sources(
        self, graph: PhysicalGraph, readers: dict[str, Reader], known: frozenset[str], most: int
    ) -> tuple[dict[str, InputEntry], dict[str, Fed]]:
        """Return the inputs as the next manifest has them, and what the graph is fed: rows before the frontier, collections' contents.

        Rows that say what keys have from their time on keep their times; of others only the sum matters.
        """
        times = self.upper.elements
        inputs = {name: replace(self.manifest.inputs[name], upper=times) for name in self.found if name in known}
        sources: dict[str, Fed] = {}
        scans = graph.scans()
        timed = _timed(graph)
        for name, reader in readers.items():
            columns = tuple(scans[name].schema) if name in scans else ()
            taken = reader.take(columns, None, times, most)
            whole = name not in known or name in self.request.withdrawn or self.reopens
            files = taken.files if whole else inputs[name].files
            inputs[name] = InputEntry(times, files, reader.kept())
            if name in scans:
                slices = [
                    part if name in timed or self.request.forgetting is not None else self._settled(part)
                    for part in taken.slices
                ]
                sources[name] = Fed(tuple(slices), taken.rows)
        for name in scans:
            if name.startswith(CONTENTS):
                sources[name] = self._contents(name.removeprefix(CONTENTS))
            elif name.startswith(WRITTEN):
                sources[name] = self._written(name.removeprefix(WRITTEN), most)
        return {name: inputs[name] for name in self.found}, sources

    def _contents(self, identity: str) -> Fed:
        """Return the contents of an arrangement in the state, as of the frontier, a file at a time."""
        entry = self.manifest.arrangements[identity]
        schema = {name: kind for name, text in entry.schema.items() if (kind := parse_type(text)) is not None}
        key = Layout({name: schema[name] for name in entry.key})
        value = Layout({name: kind for name, kind in schema.items() if name not in entry.key})
        layout, place = BatchLayout(key, value, self.nt), self.request.state
        files = [(at, file) for at, each in enumerate(entry.shards) for file in each]
        slices = [ArrangementFile(batch_path(place, identity, at, file), file, layout) for at, file in files]
        return Fed(tuple(map(self._settled, slices)), sum(file.rows for _, file in files))

    def _written(self, name: str, most: int) -> Fed:
        """Return all updates of an output so far, from its own files."""
        entry = self._known(name)
        assert entry is not None, "an output that changed has a log"
        slices = []
        for file in entry.files:
            path = self.request.outputs[name] / file.name
            slices += [Said(path, at, most, tuple(self.time)) for at in range(0, file.rows, most)]
        return Fed(tuple(slices), sum(file.rows for file in entry.files))

    def _settled(self, part: Slice) -> Settled:
        return Settled(part, self.upper, self.nt)

    def _called(self, transaction: Transaction | None, count: int) -> str:
        """Return what is added to the names of files of a commit, where so many reopenings have been."""
        if self.reopens or transaction is None:
            return f"-reopened{count}" if self.reopens else ""
        return f"-{'change' if self.request.forgetting is None else 'forgotten'}{transaction.number}"

    def _correct_side_logs(
        self, readers: dict[str, Reader], transaction: Transaction, errors: ErrorLog, called: str, *, anew: bool
    ) -> None:
        """Have all side logs say what is so now; those of inputs where these are taken in `anew`, or something is taken back."""
        aside, times = error_directory(self.request), self.upper.elements
        if self.request.withdrawn or self.reopens:
            errors.correct(transaction, aside, self.opened, (self.manifest.upper, times), called)
        else:
            errors.write(transaction, aside, (times, times), f"-{self.changes.plan.fingerprint}")
        if anew or self.request.withdrawn or self.reopens:
            self._correct_aside(readers, transaction, called)

    def _correct_aside(self, readers: dict[str, Reader], transaction: Transaction, called: str) -> None:
        """Have the logs of late rows, and of rows that can't be read, say what the files hold of these now."""
        correction = Correction(
            self.request, transaction, self.time, (self.manifest.upper, self.upper.elements), called
        )
        for name, reader in readers.items():
            before = self.manifest.inputs.get(name)
            if before is None or isinstance(reader, SharedReader):
                continue
            now = {(file.path, file.fingerprint) for file in reader.listing.files}
            again = not self.reopens and (name in self.request.withdrawn or not self.request.withdrawn)
            if reader.log.quarantines and again:
                correction.of_unparsed(name, reader)
            if self.reopens:
                changed = any(
                    file.since and Frontier(file.since) != self.upper.meet(Frontier(file.since))
                    for file in before.files
                )
            else:
                changed = any(file.since and (file.path, file.fingerprint) not in now for file in before.files)
            if changed:
                correction.of_late(name, reader)

    def _kept(self) -> frozenset[int]:
        """Return the numbers of shards of what is kept: what is built has as many, or as its rows ask for."""
        return frozenset(
            len(entry.shards)
            for identity, entry in self.manifest.arrangements.items()
            if identity.removesuffix(WAITING) in self.changes.kept or self.request.forgetting is not None
        )

    # --- what comes of it -----------------------------------------------------------------------------------------

    def _outputs(self, publishing: Publishing) -> dict[str, OutputEntry]:
        """Return the outputs with their differences. One that is in the plan no more is forgotten; its files stay."""
        entries = {}
        for name, meaning in self.changes.plan.meanings.items():
            if name not in self.request.outputs:
                continue
            known = self._known(name)
            if self.changes.outputs[name] != "same":
                if self.request.forgetting is not None:
                    before = self.manifest.outputs.get(renamed(self.request, self.manifest).get(name, ""))
                    entries[name] = publishing.replace(name, before, meaning, self.request.forgetting)
                else:
                    entries[name] = publishing.entry(name, known, meaning)
            else:
                assert known is not None, "an output that stays the same has a log"
                entries[name] = replace(known, fingerprint=meaning)
                if self.at is not None and publishing.transaction is not None:
                    write_progress(
                        publishing.transaction,
                        self.request.outputs[name],
                        self.upper.elements,
                        publishing.reopenings,
                        known.horizon,
                    )
        return entries

    def _retire(self, transaction: Transaction) -> None:
        """Have the commit take away the files so far of outputs that are written from the beginning, those that are still there."""
        for name, before in renamed(self.request, self.manifest).items():
            if name in self.request.rewrite:
                for file in self.manifest.outputs[before].files:
                    path = self.request.outputs[name] / file.name
                    if is_there(path):
                        transaction.retire(path)

    def _arrangements(self) -> dict[str, ArrangementEntry]:
        """Return what is kept. Nothing of it changes up to the frontier."""
        return {
            identity: replace(entry, upper=self.upper.elements)
            for identity, entry in self.manifest.arrangements.items()
            if identity.removesuffix(WAITING) in self.changes.kept
        }
