"""The tests of a pipeline, one by one: stepped, compared with their expectations, replayed; a step costs rows, seconds and bytes, as a run counts them."""

from __future__ import annotations

import time as clock
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.circuit.trial import Trial
from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.counts import OUTPUT, Counts
from ddcli.engine.lanes import Layout
from ddcli.engine.records import decode_records
from ddcli.engine.times import LEAST, Frontier
from ddcli.errors import BudgetError, DdError, SpecError, SpecErrors, UsageError
from ddcli.job.budget import RunCost, run_budget
from ddcli.job.request import newest_of, read_request, refuse_code
from ddcli.pipeline_tests.expectation import Failure, FailureRow, Seen, canonical, sort_key
from ddcli.pipeline_tests.rows import Disagreement, Material, Replays, Subject, stepped
from ddcli.plan.lower import GraphLowering, lower
from ddcli.plan.node import Graph
from ddcli.plan.physical import WAITING
from ddcli.plan.pipeline_file import BoundPipeline, OperatorPlace, places_of
from ddcli.plan.test_steps import collection_named
from ddcli.store.batch.compaction import Fresh, compact
from ddcli.store.batch.file import BatchLayout
from ddcli.store.formats.base import Updates
from ddcli.store.log.reader import LogReader
from ddcli.store.log.writer import output_bytes
from ddcli.store.tables.inventory import list_input
from ddcli.store.tables.listing import Listing
from ddcli.store.texts import format_frontier, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.circuit.trial import Kept
    from ddcli.engine.lanes import Matrix
    from ddcli.errors import Span
    from ddcli.plan.test_steps import Expectation, Test
    from ddcli.spec.model import Budget
    from ddcli.store.state.manifest import Manifest


HINTS = {
    "rows": "`work` in `dd explain` states the bound on an operator's rows",
    "seconds": "machines differ, and a first step starts the libraries: `rows` are the same each time",
}


@dataclass
class StepMeter:
    """The meter of a trial's steps, one after the other.

    A step's bytes are the bytes of the files that a run of its changes would add: for each arrangement its batch, as one shard, before it is
    merged with older ones, and for each output of a collection of the test its changes.
    """

    subject: Subject
    graph: Graph
    trial: Trial
    _counts: Counts = field(default_factory=Counts)
    _kept: dict[int, Matrix] = field(default_factory=dict)
    """The contents of each arrangement after the last step."""

    def cost(self, seconds: float, changes: Mapping[str, Matrix]) -> RunCost:
        """Return the cost of the trial's last step, whose outputs have these `changes`. It must be called after each step."""
        now = self.trial.counts()
        counts, self._counts = now.since(self._counts), now
        return RunCost(counts, seconds, self._written(changes))

    def failures(self, budget: Budget, spent: RunCost, span: Span) -> list[Failure]:
        """Return the failure of a step that exceeded its budget, at the bound, with the place of the operator that took most."""
        bounds = run_budget(budget, {})
        assert bounds is not None, "a budget has a bound"
        try:
            replace(bounds, whole="the step").check(spent, lambda: self._places)
        except BudgetError as error:
            *path, what = error.problem.partition(":")[0].split(".")
            text = getattr(budget.operator if "operator" in path else budget.run, what)
            return [Failure(text.span if text else span, f"{error.problem}, at {error.span}", hint=HINTS.get(what))]
        return []

    def _written(self, changes: Mapping[str, Matrix]) -> dict[str, int]:
        found: dict[str, int] = {}
        for number, kept in enumerate(self.trial.kept):
            name = kept.identity.removesuffix(WAITING)
            found[name] = found.get(name, 0) + self._batch_bytes(number, kept)
        time, pool = self.subject.time, self.subject.pool
        for name, collection in self._outputs.items():
            if len(changes[collection]):
                data = output_bytes(changes[collection], self.trial.outputs[collection], pool, time)
                found[OUTPUT + name] = data.nbytes
        return found

    def _batch_bytes(self, number: int, kept: Kept) -> int:
        """Return the bytes of the batch of an arrangement's new updates, with times advanced to the frontier, as in a state."""
        upper, layout = self.trial.frontier, BatchLayout(kept.key, kept.value, kept.trace.nt)
        none = np.empty((0, layout.width), np.int64)

        def held(matrices: Sequence[Matrix]) -> Matrix:
            advanced = [kernels.advance(each, upper.as_time(), kept.trace.nt) for each in matrices]
            return kernels.consolidate(np.concatenate([none, *advanced]))

        now, gone = held(kept.trace.matrices()), held([self._kept.get(number, none)])
        self._kept[number] = now
        batch = Fresh(kernels.difference(now, gone), Frontier([(LEAST,) * self.trial.times]), upper, self.subject.pool)
        work = compact(layout, (), batch, since=upper, through=Frontier(()))
        return sum(new.content.nbytes for new in work.made())

    @cached_property
    def _outputs(self) -> dict[str, str]:
        """The outputs of the test's collections, each with the name that the test uses."""
        spec = self.subject.spec
        named = {collection_named(spec, name): name for name in self.graph.outputs}
        return {name: named[of] for name in spec.outputs if (of := collection_named(spec, name)) in named}

    @cached_property
    def _places(self) -> dict[str, OperatorPlace]:
        """The places of operators and outputs in the file, which are computed only for messages, as they need the whole plan."""
        spec = self.subject.spec
        bound = BoundPipeline(spec, self.subject.inputs, self.subject.time)
        outputs = {
            OUTPUT + name: OperatorPlace(f"outputs.{name}", spec.outputs[name].name.span, "output")
            for name in self._outputs
        }
        return places_of(bound, self.graph, GraphLowering.of(self.graph).nodes(self.graph)) | outputs


@frozen
class Outcome:
    """The outcome of a test: its failures, or the reason why it was `skipped`; the numbers of steps and replays, and of the `records` that
    standing expectations checked.
    """

    name: str
    span: Span
    seconds: float
    failures: tuple[Failure, ...] = ()
    skipped: str | None = None
    steps: int = 0
    replays: int = 0
    records: int | None = None


@frozen
class Report:
    """The outcomes of a pipeline's tests."""

    pipeline: str
    outcomes: tuple[Outcome, ...]

    def count(self) -> tuple[int, int, int]:
        """Return the numbers of tests that passed, failed, and were skipped."""
        failed = sum(bool(one.failures) for one in self.outcomes)
        skipped = sum(one.skipped is not None for one in self.outcomes)
        return len(self.outcomes) - failed - skipped, failed, skipped

    @property
    def seconds(self) -> float:
        """The seconds of all tests together."""
        return sum(one.seconds for one in self.outcomes)


def run_tests(path: Path, *, state: Path | None = None, only: str | None = None, no_code: bool = False) -> Report:
    """Run the tests of a pipeline file whose names contain `only`, with the standing expectations of their collections. Reads no input and
    changes nothing.

    Raises a DdError if the pipeline or its tests are wrong, or it names Python functions and `no_code` is given, UsageError without a test.
    """
    request = read_request(path, state)
    refuse_code(request.spec, no_code=no_code)
    subject = Subject.of(request)
    tests = [test for test in subject.tests if only is None or only.casefold() in test.name.casefold()]
    if not subject.tests:
        hint = "add `tests:`; `dd test --help` shows one"
        raise UsageError("the pipeline has no tests", place=str(path), hint=hint)
    if not tests:
        listed = ", ".join(f"'{test.name}'" for test in subject.tests)
        raise UsageError(f"no test's name contains '{only}'", place=str(path), hint=f"tests: {listed}")
    named = {each.collection for test in tests if not test.steps for each in test.expect}
    tests = [test for test in subject.tests if test in tests or named & _named(test)]
    standing = [each for test in subject.tests if not test.steps for each in test.expect]
    manifest = newest_of(request)
    return Report(str(path), tuple(_outcome(subject, test, standing, manifest) for test in tests))


def _named(test: Test) -> set[str]:
    """Return the collections that a test's steps have expectations for."""
    return {each.collection for step in test.steps for each in step.expect}


def _outcome(subject: Subject, test: Test, standing: list[Expectation], manifest: Manifest | None) -> Outcome:
    started = clock.perf_counter()
    counts: dict[str, Any] = {}
    try:
        found = (
            _StepTest(subject, test, standing).run(counts)
            if test.steps
            else _StandingTest(subject, test, manifest).run(counts)
        )
    except (SpecError, SpecErrors):  # the test itself is wrong
        raise
    except DdError as error:
        found = [Failure(error.span or test.span, error.problem, hint=error.hint)]
    return Outcome(test.name, test.span, clock.perf_counter() - started, tuple(found), **counts)


@dataclass(frozen=True)
class _StepTest:
    """A test with steps; the standing expectations of its collections are checked after each, too."""

    subject: Subject
    test: Test
    standing: list[Expectation]

    def run(self, counts: dict[str, Any]) -> list[Failure]:
        subject, graph = self.subject, lower(self._logical())
        layouts = {name: Layout(scan.schema) for name, scan in graph.scans().items()}
        with Material(subject, self.test, layouts) as material:
            counted = any(step.budget for step in self.test.steps)
            trial = Trial(
                graph, subject.kinds, subject.pool, facts=material.facts, lenient=subject.lenient, counted=counted
            )
            meter = StepMeter(subject, self._logical(), trial) if counted else None
            logs = {name: trial.nothing(name) for name in graph.outputs}
            failures: list[Failure] = []
            steps = stepped(trial, material.updates, material.uppers)
            for number, (step, upper) in enumerate(zip(self.test.steps, material.uppers, strict=True)):
                began = clock.perf_counter()
                found = next(steps)
                seconds = clock.perf_counter() - began
                logs = {name: kernels.consolidate(np.concatenate([log, found[name]])) for name, log in logs.items()}
                for each in (*step.expect, *self._always()):
                    name = each.collection
                    seen = Seen(subject, trial.outputs[name], found[name], logs[name], upper)
                    failures += [self._placed(failure, number) for failure in seen.failures(each)]
                if meter is not None:
                    spent = meter.cost(seconds, found)
                    over = meter.failures(step.budget, spent, self.test.span) if step.budget else ()
                    failures += [self._placed(failure, number) for failure in over]
            counts["steps"] = len(self.test.steps)
            if not failures:
                counts["replays"], apart = Replays(material, graph, logs).disagreement()
                failures += [] if apart is None else [self._disagreement(apart, trial.outputs[apart.collection])]
        return failures

    def _always(self) -> Iterator[Expectation]:
        named = _named(self.test)
        return (each for each in self.standing if each.collection in named)

    def _logical(self) -> Graph:
        """Return the graph of the collections that the test names, by default of all outputs."""
        named = [each.collection for step in self.test.steps for each in step.expect] or list(self.subject.spec.outputs)
        return Graph({name: self.subject.relation(name).node for name in named})

    def _placed(self, failure: Failure, number: int) -> Failure:
        """Return a failure with the number of its step, if there are several."""
        step = f"step {number + 1}: " if len(self.test.steps) > 1 else ""
        return replace(failure, problem=f"{step}{failure.problem}")

    def _disagreement(self, apart: Disagreement, layout: Layout) -> Failure:
        problem = f"replayed {apart.replay}, {apart.collection} has other changes than step by step"
        hint = (
            "- rows result only from the steps, + rows only from the replay. If a Python function is applied, it must depend on its "
            "arguments alone; if none is, this is a bug of ours: please report it with the pipeline"
        )
        rows = [
            FailureRow(mark, (*record, format_time(tuple(time), self.subject.kinds)), count)
            for mark, matrix in (("-", apart.only_steps), ("+", apart.only_replay))
            for record, (*time, count) in zip(
                map(canonical, decode_records(matrix, layout, self.subject.pool)),
                matrix[:, layout.width :].tolist(),
                strict=True,
            )
        ]
        rows.sort(key=lambda row: sort_key(row.values))
        return Failure(self.test.span, problem, (*layout.names, ",".join(self.subject.time)), tuple(rows), hint)


@dataclass(frozen=True)
class _StandingTest:
    """A test of standing expectations, compared with the outputs of the last run. Tests with steps check them as well."""

    subject: Subject
    test: Test
    manifest: Manifest | None

    def run(self, counts: dict[str, Any]) -> list[Failure]:
        subject, failures = self.subject, list[Failure]()
        for each in self.test.expect:
            output = self._output(each)
            kept = None if output is None else self._kept(output, Layout(subject.relation(each.collection).schema))
            if kept is not None:
                counts["records"] = counts.get("records", 0) + kept.size
                before = format_frontier(kept.upper, subject.kinds)
                for failure in kept.failures(each):
                    problem = f"output {output}, times before {before}: {failure.problem}"
                    failures.append(replace(failure, problem=problem))
        named = {each.collection for each in self.test.expect}
        steps = [step for test in subject.tests if named & _named(test) for step in test.steps]
        if steps:
            counts["steps"] = len(steps)
        elif "records" not in counts:
            counts["skipped"] = f"no test's step expects anything of {', '.join(named)}, and no run has written it"
        return failures

    def _output(self, each: Expectation) -> str | None:
        """Return the output of a collection that a run has written, if there is one."""
        spec, manifest = self.subject.spec, self.manifest
        of = collection_named(spec, each.collection)
        known = manifest.outputs if manifest is not None else {}
        return next((name for name, one in spec.outputs.items() if one.source.value == of and name in known), None)

    def _kept(self, output: str, layout: Layout) -> Seen | None:
        """Return the contents of an output; None if it has other columns, or lacks its files: the next run handles that."""
        assert self.manifest is not None
        subject, times = self.subject, tuple(self.subject.time)
        listing = list_input(str(subject.request.outputs[output]), subject.request.base)
        none = np.empty((0, layout.width + len(times) + 1), np.int64)
        if not listing.new:
            written = self.manifest.outputs[output].files
            return None if written else Seen(subject, layout, none, none, Frontier(self.manifest.upper))
        found = LogReader(Listing(listing.root, listing.new[:1]), Updates(times)).schema.columns
        if [(name, kind.required()) for name, kind in found.items()] != [
            (name, kind.required()) for name, kind in layout.schema.items()
        ]:
            return None
        reader = LogReader(listing, Updates(times, layout.schema | subject.time))
        slices = reader.take(layout.names, None, self.manifest.upper).slices
        log = np.concatenate([none, *(part.matrix(layout, subject.pool) for part in slices)])
        return Seen(subject, layout, log, log, Frontier(self.manifest.upper))
