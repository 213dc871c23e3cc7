"""The plan of a run: the one that an earlier run kept, or a new one."""

from __future__ import annotations

import time as clock
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.job.kept_plan import conditions_of
from ddcli.spec.file import excerpts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddcli.engine.counts import Counts
    from ddcli.job.request import Request
    from ddcli.plan.bound import BoundPipeline
    from ddcli.plan.generations import Plan
    from ddcli.plan.physical_graph import PhysicalGraph
    from ddcli.plan.places import OperatorPlace
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.store.state.entries import ArrangementEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction


@dataclass
class RunPlan:
    """The plan of a run: the graph that an earlier run kept, if inputs, file and state are the same, else a new plan, with all its parts."""

    request: Request
    manifest: Manifest | None
    bound: BoundPipeline

    @cached_property
    def plan(self) -> Plan:
        """The plan made from the file, with the decisions of the state's plan; a refresh of everything plans anew, but for one that forgets rows."""
        kept = (
            self.manifest
            if not self.request.decided.refreshes_all or self.request.decided.forgetting is not None
            else None
        )
        return self.bound.plan(kept.cache["plan"] if kept else None)

    @cached_property
    def known(self) -> PhysicalGraph | None:
        """The graph that an earlier run kept, if the state was made by it."""
        kept, manifest = self.request.kept, self.manifest
        if kept is None or manifest is None or self.request.decided.refreshes_all:
            return None
        return kept.graph(conditions_of(self.bound, manifest.cache["plan"]["generations"]), manifest.plan)

    @property
    def graph(self) -> PhysicalGraph:
        """The graph to compute."""
        return self.known or self.plan.graph

    @cached_property
    def places(self) -> dict[str, OperatorPlace]:
        """The places in the file of counted operators and outputs. Computed only for messages, as that takes the whole plan."""
        from ddcli.engine.counts import OUTPUT
        from ddcli.plan.places import OperatorPlace, places

        outputs = {
            OUTPUT + name: OperatorPlace(f"outputs.{name}", output.name.span, "output")
            for name, output in self.request.spec.outputs.items()
        }
        return places(self.bound, self.plan) | outputs

    def outline(self) -> dict[str, Any]:
        """Return the JSON that a manifest keeps of the plan."""
        from ddcli.plan.places import classes_of_work

        kept = self.plan.to_json()
        texts = {"collections": excerpts(self.request.spec)}
        return kept | {"outline": kept["outline"] | texts, "work": classes_of_work(self.bound, self.plan)}

    def outline_of(self, manifest: Manifest) -> dict[str, Any]:
        """Return the JSON that a state keeps of its own plan, with the present texts of its collections."""
        kept: dict[str, Any] = manifest.cache["plan"]
        if manifest.pipeline == self.request.digest and "collections" in kept["outline"]:
            return kept
        return kept | {"outline": kept["outline"] | {"collections": excerpts(self.request.spec)}}

    def check_work(self) -> None:
        """Raise the first error of operators that may do more work than the budget allows; a kept plan passed this check when it was made."""
        if self.request.budget is not None and self.known is None:
            errors = self.request.budget.check_work(self.plan.graph, lambda: self.places)
            if errors:
                raise errors[0]

    def check_spent(self, counts: Counts, written: Callable[[], Mapping[str, int]] = dict) -> None:
        """Raise BudgetError if a run took more than its budget so far; `written` returns the bytes that it wrote, by operator and output."""
        budget = self.request.budget
        if budget is not None:
            from ddcli.job.budget import RunCost

            budget.check(RunCost(counts, clock.perf_counter() - budget.began, written()), lambda: self.places)

    def check_written(
        self,
        transaction: Transaction,
        counts: Counts,
        arrangements: Mapping[str, ArrangementEntry],
        publishing: OutputWriter,
    ) -> None:
        """Raise BudgetError if a run is about to commit more than its budget: these `arrangements`, as it leaves them, and outputs."""
        from ddcli.job.budget import written_bytes

        files = written_bytes(transaction.number, arrangements, publishing.written())
        self.check_spent(counts, lambda: files)

    def keep(self, generations: Any) -> None:
        """Keep the plan for runs on a state that remembers these generations."""
        kept = self.request.kept
        if kept is not None and self.known is None:
            # The decisions that a plan remembers are made again as they were: no need to do that twice.
            kept.keep(self.request.spec, conditions_of(self.bound, generations), self.plan.graph)
