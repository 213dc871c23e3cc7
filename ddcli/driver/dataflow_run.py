"""The skeleton of a run: a graph is computed over an interval of times, checks decide, and one commit has all that it changed.

A run over new rows (`single_run`) and the rebuild of a state (`migration`) are made of it: each states its sources, its outputs, and the manifest
that it commits.
"""

from __future__ import annotations

import getpass
import io
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.circuit.graph import assemble
from ddcli.circuit.operators import CircuitContext
from ddcli.dataclass import dataclass, frozen
from ddcli.driver.step import StepExecutor
from ddcli.engine.counts import Counts
from ddcli.engine.kernels import ManyPairs
from ddcli.engine.process import Workers
from ddcli.engine.scope import Scope
from ddcli.errors import UsageError, suggestion
from ddcli.job.verdict import (
    ACCEPTED,
    KEPT,
    MOST_ACCEPTED,
    SHOWN,
    begun,
    kept_of,
    measured,
    measured_as,
    number_of,
    record_text,
    refuse,
    without_measures,
)
from ddcli.plan.memo import remembered
from ddcli.sinks.side_logs import ErrorLog
from ddcli.sources.input_format import facts_of
from ddcli.sources.readers import refuse_rewritten
from ddcli.store.state.outputs import output_paths
from ddcli.store.state.verify import read_checked

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.circuit.traces import StateTraces
    from ddcli.driver.prepare import RunPlan
    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Interval
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.request import Request
    from ddcli.job.sizes import Sizes
    from ddcli.job.summary import SparkSummary
    from ddcli.job.verdict import Verdict
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.runtime.placement import Placement
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.sinks.side_logs import NotedUpdates
    from ddcli.sources.input_format import InputFacts
    from ddcli.sources.readers import Feed, Reader
    from ddcli.spec.model import CheckSpec, Spec
    from ddcli.store.state.directory import State
    from ddcli.store.state.entries import Times
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction


DIFF = "diff"
OWN_TIMES = "own_times"
"""The key of a manifest's cache that is true while outputs and arrangements have all updates at the times of the rows that they come from: no run has corrected any."""


@dataclass
class CheckGate:
    """The checks of a request at one commit, judged by the updates of their collections that it adds. `continues` returns whether the log of a
    check has the updates of earlier commits.
    """

    request: Request
    before: Manifest | None
    noted: Mapping[str, NotedUpdates]
    removed: Counter[str]
    continues: Callable[[str], bool]
    _found: dict[str, tuple[Verdict, dict[str, Any] | None]] = field(default_factory=dict)

    def judge(self) -> dict[str, Verdict]:
        """Return the verdict of each check."""
        self._found = {name: self._verdict(name, check) for name, check in self.request.spec.checks.items()}
        return {name: verdict for name, (verdict, _) in self._found.items()}

    def refuse(self) -> None:
        """Raise CheckError if a check stops the run.

        Taking back a time, and forgetting rows, are demands of a person that no check stops.
        """
        if self._found and self.request.decided.reopened is None and not self._forgets:
            refuse(self.request.spec, {name: verdict for name, (verdict, _) in self._found.items()})

    def and_then(self, request: Request, noted: Mapping[str, NotedUpdates], removed: Counter[str]) -> CheckGate:
        """Return the gate of the one commit that this one becomes with a later one, which adds these updates."""
        both = {name: self.noted[name].and_then(later) for name, later in noted.items()}
        return replace(self, request=request, noted=both, removed=self.removed + removed, _found={})

    def commit(self, transaction: Transaction, manifest: Manifest, readers: Mapping[str, Reader]) -> Manifest:
        """Commit a manifest, with what it keeps of the checks. Raises RewrittenError if a log has been rewritten since it was read."""
        refuse_rewritten(readers)
        self.request.asked.progress.begin("committing")
        return transaction.commit(self._written(manifest))

    @property
    def _forgets(self) -> bool:
        return self.request.decided.forgetting is not None

    def _written(self, manifest: Manifest) -> Manifest:
        """Return a manifest with the numbers of its checks, and the acceptances of those that fail."""
        before = self.before.cache if self.before else {}
        accepted = list(before.get(ACCEPTED, ()))
        if self._forgets:
            accepted = without_measures(self.request.spec, accepted)
        elif not self._found:
            return manifest
        kept: dict[str, Any] = {}
        at = datetime.now(UTC).isoformat(timespec="seconds")
        for name, (verdict, measures) in self._found.items():
            kept[name] = kept_of(self.request.spec.checks[name], verdict.violations, verdict.problems, measures)
            if verdict.accepted is not None:
                kept[name]["accepted"] = verdict.accepted
                accepted.append({"check": name, "at": at, "by": verdict.accepted, "found": verdict.words})
            elif self._forgets and (word := before.get(KEPT, {}).get(name, {}).get("accepted")):
                kept[name]["accepted"] = word
        notes = ({KEPT: kept} if kept else {}) | ({ACCEPTED: accepted[-MOST_ACCEPTED:]} if accepted else {})
        others = {name: each for name, each in manifest.cache.items() if name != ACCEPTED}
        return replace(manifest, cache=others | notes)

    def _verdict(self, name: str, check: CheckSpec) -> tuple[Verdict, dict[str, Any] | None]:
        """Return the verdict of a check, and its measures after this commit.

        Where rows are forgotten, a measure has no former value from which it has changed, as that may have had such rows.
        """
        known = self.before.cache.get(KEPT, {}).get(name) if self.before and self.continues(name) else None
        noted = self.noted.get(name)
        net = noted.net() if noted else None
        verdict = begun(check)
        measures: dict[str, Any] | None = None
        if check.measures:
            held = known.get("measures") if known else None
            same = known is not None and known.get("measured", measured_as(check)) == measured_as(check)
            before = held if same and not self._forgets else None
            after = held or {}
            if net is None or net.height:
                rows = [] if net is None else [row for row in net.iter_rows(named=True) if row["diff"] > 0]
                after = {column: number_of(value) for row in rows for column, value in row.items() if column != "diff"}
            measures = after
            verdict = replace(verdict, problems=measured(check, before, after, self.removed, self.request.clock.now))
        else:
            total = (known["violations"] if known else 0) + (noted.total if noted else 0)
            verdict = replace(verdict, violations=total, new=None if net is None else 0)
            if net is not None and net.height:
                added = net.filter(net["diff"] > 0)
                first = tuple(added.head(SHOWN).drop("diff").iter_rows(named=True))
                new, texts = int(added["diff"].sum()), tuple(map(record_text, first))
                verdict = replace(verdict, new=new, first=texts, records=first)
        if not verdict.passed and name in self.request.decided.accepts:
            verdict = replace(verdict, accepted=self.request.decided.accepts[name])
        if (
            verdict.stops
            and verdict.violations
            and not verdict.first
            and known
            and net is not None
            and not self._forgets
        ):
            first = self._known_violations(name, net)
            verdict = replace(verdict, first=tuple(map(record_text, first)), records=first)
        return verdict, measures

    def _known_violations(self, name: str, net: pl.DataFrame) -> tuple[dict[str, Any], ...]:
        """Return the first violations that the last commit had and this one has: the log's, with the run's changes."""
        assert self.before is not None, "it has them"
        log, place = self.before.outputs[name], output_paths(self.request.state, self.before)[name]
        updates = [pl.read_parquet(io.BytesIO(read_checked(place / file.name, file))) for file in log.files]
        parts = [frame.select(*log.schema, DIFF) for frame in [*updates, *([net] if net.height else [])]]
        sums = pl.concat(parts).group_by(*log.schema, maintain_order=True).agg(pl.col(DIFF).sum())
        return tuple(sums.filter(pl.col(DIFF) > 0).head(SHOWN).drop(DIFF).iter_rows(named=True))


def waiting_gate(state: State | None) -> CheckGate | None:
    """Return the checks at a commit that waits to become one with the next one."""
    return state.checks if state is not None and isinstance(state.checks, CheckGate) else None


def refuse_waiting(state: State | None) -> None:
    """Raise CheckError if a check stops the commit that waits for the next one: there is none."""
    if (waiting := waiting_gate(state)) is not None:
        waiting.refuse()


def accepting(spec: Spec, names: Sequence[str], reason: str | None) -> Mapping[str, str]:
    """Return the acceptance of each of some checks: the user and the reason. Raises UsageError for an unknown check, or without a reason."""
    if not names:
        if reason is not None:
            raise UsageError("`--reason` needs `--accept`", hint="name the check: `--accept NAME`")
        return {}
    if not (reason or "").strip():
        raise UsageError(
            "`--accept` takes a reason", hint="state it: `--reason 'the supplier sends it again tomorrow'`"
        )
    known = {check.title: name for name, check in spec.checks.items()} | {name: name for name in spec.checks}
    for name in names:
        if name not in known:
            hint = suggestion(name, known, f"checks: {', '.join(spec.checks) or 'none'}")
            raise UsageError(f"no check is named '{name}'", place=str(spec.path), hint=hint)
    return {known[name]: f"{_user()}: {reason}" for name in names}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "an unnamed user"


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
                    watch = self.planning.check_spent
                    counts, spark = step.run_as_tasks(given.graph, self.placement, facts, errors, watch, given.widths)
                else:
                    step.run()
                    if transaction is None and request.asked.arranged is not None:
                        for trace in traces.traces():
                            traces.measure(trace)
                        request.asked.arranged(traces.numbers)
                    counts = self.counted(scope, given, writer)
                self.check(facts)
                self.planning.check_spent(counts)
                waiting = waiting_gate(self.state)
                if waiting is None:
                    gate = CheckGate(request, self.manifest, writer.noted, writer.removed, self.continues)
                else:
                    gate = waiting.and_then(request, writer.noted, writer.removed)
                verdicts = gate.judge()
                if not self.waits:
                    gate.refuse()
                if transaction is None:
                    return StepResult(self.manifest, writer, counts, spark, facts, errors, verdicts)
                manifest = self.next_manifest(given, writer, errors, transaction)
                if request.asked.budget is not None:
                    made = traces.entries(given.interval.upper)
                    self.planning.check_written(transaction, counts, made, writer)
                committed = gate.commit(transaction, manifest, given.readers)
                done = StepResult(committed, writer, counts, spark, facts, errors, verdicts)
                if self.waits and self.state is not None:
                    self.state.checks = gate
                return done
        finally:
            workers.close()

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
