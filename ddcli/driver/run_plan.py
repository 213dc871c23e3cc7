"""The plan of a run: the one that an earlier run kept, or a new one."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.job.kept_plan import conditions_of

if TYPE_CHECKING:
    from ddcli.job.request import Request
    from ddcli.plan.bound import BoundPipeline
    from ddcli.plan.generations import Plan
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.store.state.manifest import Manifest


@dataclass
class RunPlan:
    """The plan of a run: the one that was kept if it is for just this, else a new one, of which more is known."""

    request: Request
    manifest: Manifest | None
    bound: BoundPipeline

    @cached_property
    def plan(self) -> Plan:
        """The plan, made from what the file says."""
        return self.bound.plan(self.manifest.cache["plan"] if self.manifest else None)

    @cached_property
    def known(self) -> PhysicalGraph | None:
        """The graph that was kept, if it is the one that the state was made by."""
        kept, manifest = self.request.kept, self.manifest
        if kept is None or manifest is None:
            return None
        return kept.graph(conditions_of(self.bound, manifest.cache["plan"]["generations"]), manifest.plan)

    @property
    def graph(self) -> PhysicalGraph:
        """What is to be computed."""
        return self.known or self.plan.graph

    def keep(self, generations: Any) -> None:
        """Keep the plan for runs on a state that remembers these generations."""
        kept = self.request.kept
        if kept is None or self.known is not None:
            return
        again = self.bound.plan({"generations": generations}).graph
        if again.fingerprint == self.plan.fingerprint:
            kept.keep(self.request.spec, conditions_of(self.bound, generations), again)
