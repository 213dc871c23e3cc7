"""The beginning of a rebuild: the changed plan, the inputs as they are read now, and the frontier as of which everything is built."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.driver.requested_changes import renamed
from ddcli.engine.times import Frontier

if TYPE_CHECKING:
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.plan.changes import PlanChanges
    from ddcli.store.state.entries import OutputEntry
    from ddcli.store.state.manifest import Manifest


@dataclass
class Rebuild:
    """The parts of a state that are built anew, their sources, and the frontier as of which they are built."""

    request: Request
    manifest: Manifest
    changes: PlanChanges
    found: dict[str, InputFiles]
    time: Schema
    at: int | None = None
    """The time of a run at which files are withdrawn, or all is taken in anew: under the clock of arrivals."""

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
        """The frontier after the rebuild: that of the state, an earlier one, or just after the time of the run that withdraws files or takes all in anew."""
        if self.request.decided.reopened is not None:
            return self.request.decided.reopened
        return Frontier(self.manifest.upper) if self.at is None else Frontier([(self.at + 1,)])

    @property
    def reopens(self) -> bool:
        """Return whether the state is taken back to an earlier frontier."""
        return self.request.decided.reopened is not None

    @cached_property
    def opened(self) -> Frontier:
        """The frontier of the times at which outputs may change."""
        return self.upper if self.at is None else Frontier([(self.at,)])

    def known(self, name: str) -> OutputEntry | None:
        """Return the state's entry of an output, under the name that it had; None for one that is written from the beginning."""
        if name in self.request.decided.rewrite:
            return None
        return self.manifest.outputs.get(renamed(self.request, self.manifest).get(name, ""))
