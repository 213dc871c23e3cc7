"""A changed pipeline's state: new arrangements are built from kept ones and from the inputs, and outputs are corrected.

The work is the work of a run over all times before the frontier, with a graph that begins at the kept arrangements.
Outputs whose contents change are given the difference, at the frontier: no closed time changes. It is one commit.

Files are withdrawn the same way: the arrangements above their inputs are built from the files that remain. Under the clock of arrivals that
happens at the time of a run, which is closed with it; so does a full refresh, which takes in new files as well: files that replace
others count from the time on at which these no longer do. A state is reopened the same way: all of it is built as of the earlier frontier, from
the files that were taken in. Each output gets the difference to all of its updates, at that frontier and at the times after it, which are open then.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from ddcli.circuit.retention import kept_past
from ddcli.circuit.traces import StateTraces
from ddcli.dataclass import dataclass
from ddcli.driver.erasure import erase, forgotten_notes
from ddcli.driver.ledgers import with_whole_ledgers
from ddcli.driver.prepare import horizons_of, input_horizons
from ddcli.driver.rebuild import (
    Rebuild,
    correct_side_logs,
    corrected_outputs,
    inputs_after,
    kept_sources,
    name_ending,
    readers_of,
    retire_rewritten,
    settled_inputs,
    with_corrections,
)
from ddcli.driver.replacement import with_copied_rows
from ddcli.driver.requested_changes import (
    find_changes,
    refuse_later_imports,
    refuse_other_frontiers,
    refuse_rewriting,
    refuse_taking_back,
    with_new_columns,
)
from ddcli.driver.step import OWN_TIMES, DataflowRun, StepInput, pools_for
from ddcli.engine.counts import Counts
from ddcli.engine.rounds import Interval
from ddcli.engine.times import LEAST, Frontier, join
from ddcli.job.inputs import TAGS, find_inputs, find_seen, refuse_beyond_imports, refuse_changed, tags_of_exports
from ddcli.job.request import last_time, run_time
from ddcli.job.sizes import rows_held, rows_read
from ddcli.plan.generations import narrowed
from ddcli.plan.physical import WAITING
from ddcli.sinks.replacement import CorrectingWriter, replace_archived
from ddcli.sinks.side_logs import SideLogs
from ddcli.sources.readers import (
    find_forgotten,
    in_files,
    largest_seen,
    open_logs,
    take,
    take_in_parts,
)
from ddcli.store.state.directory import read_holds
from ddcli.store.state.outputs import relative_file
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from ddcli.driver.prepare import RunPlan
    from ddcli.engine.lanes import Layout
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.job.corrections import ErasureRequest
    from ddcli.job.request import Request
    from ddcli.job.summary import OutputSummary, SparkSummary
    from ddcli.job.verdict import Verdict
    from ddcli.runtime.placement import Placement
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.sinks.side_logs import ErrorLog
    from ddcli.sources.readers import Reader
    from ddcli.sources.slices import Feed, InputFacts
    from ddcli.store.state.directory import State
    from ddcli.store.state.entries import ArrangementEntry, InputEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction
    from ddcli.store.tables.listing import Listing

    Rebuilt = tuple[
        Manifest, dict[str, OutputSummary], Counts, SparkSummary | None, dict[str, Verdict], dict[str, frozenset[str]]
    ]


def rebuild(
    request: Request, manifest: Manifest, state: State | None, planning: RunPlan, time: Schema, placement: Placement
) -> Rebuilt:
    """Bring a state to a changed plan, at its frontier; return the manifest, the changes of outputs, the counts, Spark's share, the verdicts of checks,
    and of each input from which files are withdrawn the files that remain or replace them.

    Without a state, in a dry run, nothing is committed. Raises StateError where outputs would be rewritten and the request doesn't ask for it.
    """
    request = with_new_columns(request, manifest, planning.plan)
    changes = find_changes(request, manifest, planning.plan)
    if request.decided.withdrawn or request.decided.reopened is not None or request.decided.forgetting is not None:
        refuse_taking_back(request, manifest, changes)
    else:
        refuse_rewriting(
            request, manifest, changes, lambda applied: rebuild(applied, manifest, None, planning, time, placement)[1]
        )
    found = find_inputs(request, manifest, anew=not changes.known.inputs)
    refuse_changed(found)
    if request.decided.reopened is not None:
        refuse_other_frontiers(request.decided.reopened, found, time)
        noted = last_time(manifest) if request.clock.arrival else None
        found = {name: given.reopened(request.decided.reopened, noted) for name, given in found.items()}
    else:
        refuse_beyond_imports(request, time, found, Frontier(manifest.upper))
    if not changes.known.inputs:
        noted = last_time(manifest) if request.clock.arrival else None
        found = {name: given.marked(manifest.inputs.get(name), noted) for name, given in found.items()}
    if request.decided.forgetting is not None:
        refuse_later_imports(manifest, found)
        found = {
            name: given if given.shared or given.progress is not None else given.known(manifest.inputs[name])
            for name, given in found.items()
        }
    refreshed = request.decided.refreshes_all and request.decided.forgetting is None
    at = (
        run_time(request.clock, manifest)
        if request.clock.arrival and (request.decided.withdrawn or refreshed)
        else None
    )
    for name in request.decided.withdrawn:
        keeps = request.spec.inputs[name].changed == "replace"
        found[name] = found[name].mended(manifest.inputs[name], None if keeps else at)
    if at is not None and refreshed:
        # All new files arrive now: those in the place of others would else be missed until the next run.
        found = {name: given.with_arrival(at) for name, given in found.items()}
    elif request.clock.arrival:
        # New files of a known input are the next run's; a new input has been there since the last one.
        last = last_time(manifest)
        later = last + 1 if at is None else at
        found = {name: given.with_arrival(later if name in manifest.inputs else last) for name, given in found.items()}
    begun = Rebuild(request, manifest, changes, found, time, at, state.waiting if state else request.asked.at_hand)
    if request.decided.forgetting is not None and (erased := erase(begun, state)) is not None:
        return erased, {}, Counts(), None, {}, {}
    return _Migration(request, manifest, state, planning, placement, time, begun).run()


@dataclass
class _Migration(DataflowRun):
    """A rebuild: over all times before the frontier."""

    rebuild: Rebuild
    _inputs: dict[str, InputEntry] = field(default_factory=dict)
    _known: frozenset[str] = frozenset()

    def run(self) -> Rebuilt:
        """Compute and commit; return the results of `rebuild`."""
        done = self.compute()
        assert done.manifest is not None, "a rebuild has a state"
        # In a dry run the manifest is the one from before: it does not tell which files are left.
        left = {
            name: frozenset(file.key for file in self._listings[name].files)
            for name in self.rebuild.request.decided.withdrawn
        }
        return done.manifest, done.writer.output_summaries(), done.counts, done.spark, done.verdicts, left

    @property
    def waits(self) -> bool:
        """Return whether the run goes on to new rows, or to files that are withdrawn, before the commit counts."""
        decided = self.request.decided
        return self.state is not None and self.state.staged is not None and (decided.closes or decided.joint)

    def begin(self) -> StepInput:
        rebuild, forgetting = self.rebuild, self.rebuild.request.decided.forgetting
        graph = with_corrections(rebuild, rebuild.changes.cut())
        if self.state is None or rebuild.request.spec.errors is None:  # a log of errors has whole records
            graph = narrowed(graph)
        readers, self._known = readers_of(rebuild, graph)
        most = rows_read(rebuild.request.asked.resources.memory)
        if forgetting is not None:
            find_forgotten(forgetting, rebuild.manifest, readers, most)
        scans, times = graph.scans(), rebuild.upper.elements
        taken = take(readers, scans, None, times)
        kept = kept_sources(rebuild, scans, most)
        rows = sum(taken[name].rows for name in scans if name in taken) + sum(each.rows for each in kept.values())
        cut, spread = self.placement.cut(graph, rebuild.nt, rows, self._kept())
        take_in_parts(taken, readers, scans, None, times, rows, cut)
        self._inputs = inputs_after(rebuild, readers, taken, self._known)
        sources: dict[str, Feed] = {**settled_inputs(rebuild, graph, taken), **kept}
        if spread:
            sources = with_copied_rows(sources, readers)
        first = Frontier([(LEAST,) * rebuild.nt])
        pools, interval = pools_for(cut, rebuild.secret), Interval(first, rebuild.upper)
        past = kept_past(rebuild.request.spec, graph, self.kinds) if forgetting else {}
        built = frozenset(rebuild.changes.built) | rebuild.changes.remembered
        traces = StateTraces(
            rebuild.request.state,
            None,
            pools,
            interval.lower,
            cut,
            past=past,
            only=built,
            answered=rebuild.manifest,
            erases=forgetting is not None,
        )
        streams = not spread and cut.streams(rows)
        return StepInput(graph, readers, sources, cut, spread, pools, traces, interval, None, streams=streams)

    def collector(self, errors: ErrorLog) -> Callable[..., None]:
        return errors.add if self.request.decided.forgetting else errors.add_rebuilt(self.rebuild.opened)

    def writer(self, given: StepInput, layouts: dict[str, Layout], transaction: Transaction | None) -> OutputWriter:
        rebuild, plan = self.rebuild, self.rebuild.changes.plan
        forgets = rebuild.request.decided.forgetting is not None
        count = rebuild.manifest.reopenings + rebuild.reopens
        # Others are computed, if at all, for the arrangements on the way to them.
        changed = {
            name: layout for name, layout in layouts.items() if rebuild.changes.outputs.get(name, "same") != "same"
        }
        return CorrectingWriter(
            rebuild.request,
            rebuild.time,
            None if forgets else rebuild.manifest.upper,
            given.interval.upper.elements,
            changed,
            transaction,
            None if forgets else rebuild.opened,
            name_ending(rebuild, transaction, count),
            count,
            horizons_of(rebuild.request, plan.graph, self._listings),
            orders=plan.graph.orders,
            tags=plan.graph.tags,
            secret=rebuild.secret,
            whole=forgets,
        )

    def next_manifest(
        self, given: StepInput, writer: OutputWriter, errors: ErrorLog, transaction: Transaction
    ) -> Manifest:
        rebuild, readers, inputs = self.rebuild, given.readers, self._inputs
        forgetting, times, called = rebuild.request.decided.forgetting, rebuild.upper.elements, writer.called
        assert isinstance(writer, CorrectingWriter), "as made for a rebuild"
        entries = corrected_outputs(rebuild, writer)
        if forgetting:
            files = in_files(readers)
            SideLogs(rebuild.request, transaction, rebuild.time, (None, times), called).rewrite(errors, files)
            inputs |= replace_archived(forgetting, transaction, files, inputs)
        else:
            retire_rewritten(rebuild, transaction)
            correct_side_logs(rebuild, readers, transaction, errors, called, anew=not self._known)
        until = rebuild.opened.elements[0][0] if rebuild.nt == 1 and rebuild.opened else None
        inputs = with_whole_ledgers(rebuild.request, transaction, inputs, rebuild.manifest, readers, until)
        seen = self._seen(readers)
        return replace(
            rebuild.manifest,
            upper=times,
            pipeline=rebuild.request.digest,
            plan=rebuild.changes.plan.fingerprint,
            engine=__version__,
            file=relative_file(rebuild.request.state, rebuild.request.spec.path),
            inputs=inputs,
            arrangements=self._arrangements() | given.traces.entries(rebuild.upper),
            outputs=entries,
            exports=rebuild.changes.plan.graph.exports,
            secret=rebuild.secret.hex(),
            cache={name: each for name, each in rebuild.manifest.cache.items() if name != TAGS}
            | {"plan": self.planning.outline()}
            | tags_of_exports(rebuild.changes.plan.graph)
            | self._due(given.traces)
            | ({"reopenings": writer.reopenings} if rebuild.reopens else {})
            | {"seen": None if seen is None else list(seen), OWN_TIMES: forgetting is not None}
            | self._built(transaction.number)
            | (self._forgotten(forgetting, transaction.number) if forgetting else {}),
        )

    def show(self, label: str, updates: pl.DataFrame) -> None:
        """Print nothing: these updates were printed when they were new."""

    def continues(self, name: str) -> bool:
        """Return whether the log of a check has the updates of earlier commits: one that is written anew has none."""
        return self.rebuild.request.decided.forgetting is None and self.rebuild.known(name) is not None

    def check(self, facts: dict[str, InputFacts]) -> None:
        """Refuse nothing: the run that took an input in has checked it."""

    @property
    def _listings(self) -> dict[str, Listing]:
        return {name: given.listing for name, given in self.rebuild.found.items()}

    def _seen(self, readers: dict[str, Reader]) -> Time | None:
        """Return the largest value of each time coordinate in all files, as far as it matters: one in a withdrawn file closes nothing later."""
        rebuild = self.rebuild
        seen = find_seen(rebuild.manifest)
        if rebuild.reopens:
            return largest_seen(None, readers)
        if (
            seen is None
            or rebuild.nt > 1
            or not rebuild.request.decided.withdrawn
            or rebuild.at is not None
            or not rebuild.upper.less_equal(seen)
        ):
            return seen
        waiting = {
            name: replace(given, listing=replace(given.listing, new=()))
            for name, given in rebuild.found.items()
            if given.shared is None
        }
        left = largest_seen(
            None,
            open_logs(rebuild.request, rebuild.manifest, waiting, rows_held(rebuild.request.asked.resources.memory)),
        )
        ((first,),) = rebuild.upper.elements
        return (first - 1,) if left is None else join(left, (first - 1,))

    def _forgotten(self, forgetting: ErasureRequest, number: int) -> dict[str, Any]:
        """Return the state's notes on forgotten rows, and the times from which on inputs have their updates."""
        return forgotten_notes(forgetting, number) | {"horizons": input_horizons(self.request, self._listings)}

    def _built(self, number: int) -> dict[str, Any]:
        """Return the commits that have built exported arrangements anew: this one, for those in which something may have been taken back, or that a reader has not read to the end."""
        rebuild = self.rebuild
        built = dict(rebuild.manifest.cache.get("built", {}))
        others = (
            rebuild.reopens
            or rebuild.request.decided.forgetting is not None
            or (rebuild.request.decided.refreshes_all and self._has_other_files())
        )
        anew = {
            name
            for name in rebuild.changes.plan.graph.exports.values()
            if others
            or name in rebuild.changes.touched
            or (name in rebuild.changes.built and self._breaks_a_reader(name))
        }
        built |= dict.fromkeys(anew, number)
        return {"built": built} if built else {}

    def _breaks_a_reader(self, name: str) -> bool:
        """Return whether a reader can't go on with an arrangement as it is built: it has not read up to there, or has read it before it was dropped."""
        gone = name not in self.rebuild.manifest.arrangements
        return any(
            name in hold.arrangements and (gone or Frontier(hold.since) != self.rebuild.upper)
            for hold in read_holds(self.rebuild.request.state)
        )

    def _has_other_files(self) -> bool:
        """Return whether a file that the state has taken in has changed since, or is gone."""
        rebuild = self.rebuild
        return any(
            not {(file.key, file.fingerprint) for file in entry.files if not file.withdrawn}
            <= {(file.key, file.fingerprint) for file in rebuild.found[name].listing.files}
            for name, entry in rebuild.manifest.inputs.items()
            if name in rebuild.found
        )

    def _due(self, traces: StateTraces) -> dict[str, Any]:
        """Return when something is due under the clock of arrivals, in built and in kept arrangements."""
        rebuild = self.rebuild
        if not rebuild.request.clock.arrival:
            return {}
        before = rebuild.manifest.cache.get("due") if rebuild.changes.kept else None
        known = [due for due in (before, traces.due()) if due is not None]
        return {"due": min(known, default=None)}

    def _kept(self) -> frozenset[int]:
        """Return the numbers of shards of kept arrangements: those that are built have as many, or as their rows ask for."""
        rebuild = self.rebuild
        return frozenset(
            len(entry.shards)
            for identity, entry in rebuild.manifest.arrangements.items()
            if identity.removesuffix(WAITING) in rebuild.changes.kept or rebuild.request.decided.forgetting is not None
        )

    def _arrangements(self) -> dict[str, ArrangementEntry]:
        """Return the kept arrangements. Nothing in them changes up to the frontier."""
        rebuild = self.rebuild
        return {
            identity: replace(entry, upper=rebuild.upper.elements)
            for identity, entry in rebuild.manifest.arrangements.items()
            if identity.removesuffix(WAITING) in rebuild.changes.kept or identity in rebuild.changes.remembered
        }
