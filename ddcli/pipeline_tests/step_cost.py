"""The cost of a test's step, as a run counts it: rows, seconds, and the bytes that its commit would write."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.counts import OUTPUT, Counts
from ddcli.engine.times import LEAST, Frontier
from ddcli.errors import BudgetError
from ddcli.job.budget import RunCost, run_budget
from ddcli.pipeline_tests.expectation import Failure
from ddcli.plan.bound import BoundPipeline
from ddcli.plan.lower import GraphLowering
from ddcli.plan.physical import WAITING
from ddcli.plan.places import OperatorPlace, places_of
from ddcli.plan.test_steps import collection_named
from ddcli.store.batch.compaction import Fresh, compact
from ddcli.store.batch.layout import BatchLayout
from ddcli.store.log.writer import output_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.circuit.trial import Kept, Trial
    from ddcli.engine.columns import Matrix
    from ddcli.errors import Span
    from ddcli.pipeline_tests.sources import Subject
    from ddcli.plan.node import Graph
    from ddcli.spec.bounds import Budget

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
        gone[:, -1] *= -1
        fresh = kernels.consolidate(np.concatenate([gone, now]))
        batch = Fresh(fresh, Frontier([(LEAST,) * self.trial.times]), upper, self.subject.pool)
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
