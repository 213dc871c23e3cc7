"""A step that other processes do, task by task: what each is to do, and what comes of what they did.

Stage after stage: no task of one begins before all tasks of the one before are done. The driver sees where things are, never the
updates themselves, but for the few of an output that would make too small a file.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from ddcli.engine.counts import Counts
from ddcli.progress import SILENT, Progress
from ddcli.tasks import Result, Task, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.assemble.graph import Assembled
    from ddcli.engine.outofcore import Address
    from ddcli.engine.stages import Stage
    from ddcli.facts import InputFacts
    from ddcli.keeping import Rest, StateTraces
    from ddcli.publishing import Publishing
    from ddcli.siding import ErrorLog
    from ddcli.store.exchange import Sent
    from ddcli.store.state import Transaction
    from ddcli.tasks import Job

T = TypeVar("T")

TURNS = 3
"""Tasks of a stage for each that can be done at once: shards differ, and whoever is done early takes another."""


class Cluster(Protocol):
    """Processes that do tasks."""

    @property
    def slots(self) -> int:
        """Return how many tasks are done at once."""

    def run(
        self,
        function: Callable[[bytes, bytes, str], bytes],
        common: bytes,
        tasks: Sequence[bytes],
        about: str,
        progress: Progress,
    ) -> list[bytes]:
        """Return what `function(common, task, attempt)` gives for each task; `attempt` is a name that no other attempt has.

        `progress` is told how far the tasks are, where that is known before all are done.
        """


@dataclass
class Spreading:
    """The step of a run whose tasks a cluster does."""

    job: Job
    assembled: Assembled
    """The dataflow as it is in each task: here it tells where things are."""
    cluster: Cluster
    traces: StateTraces
    publishing: Publishing
    transaction: Transaction | None
    facts: dict[str, InputFacts]
    errors: ErrorLog
    say: Callable[[str], None]
    progress: Progress = SILENT
    tasks: int = 0
    stages: int = 0
    """What was done so far."""
    counts: Counts = field(default_factory=Counts)
    _waiting: dict[Address, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    _rests: list[Rest] = field(default_factory=list)

    def run(self) -> None:
        """Do the step."""
        assembled = self.assembled
        assembled.scope.prepare()
        stages = assembled.scope.stages
        common = pickle.dumps(self.job)
        for number, stage in enumerate(stages):
            about = f"stage {number + 1} of {len(stages)}: {assembled.scope.told(stage)}"
            tasks = self._tasks(number, stage)
            # Read by all, then; what comes to a port is sent on from there, and waits at the same address again.
            read = {True: stage.members, False: stage.seals | stage.members}
            for address in [at for at in self._waiting if at.place in read[at.brought]]:
                del self._waiting[address]
            self._perform(common, tasks, about)
        if self._rests:
            tasks = [Task(merges=tuple(some)) for some in self._dealt(self._rests)]
            self._perform(common, tasks, "merging files of the state")

    def _tasks(self, number: int, stage: Stage) -> list[Task]:
        """Return the tasks of a stage, each told what was sent to where it looks."""
        if stage.first:
            slices = [(name, at) for name in self.assembled.layouts for at in range(len(self.job.taken[name].slices))]
            return [Task(number, slices=tuple(some)) for some in self._dealt(slices)]
        read = {True: stage.members, False: stage.reads | stage.members}
        shards = range(self.job.cut.passes)
        groups = [shards] if stage.whole else self._dealt(shards)
        tasks = []
        for group in groups:
            mine = frozenset(group)
            sent = {
                at: parts for at, parts in self._waiting.items() if at.shard in mine and at.place in read[at.brought]
            }
            tasks.append(Task(number, () if stage.whole else tuple(group), sent=sent))
        return tasks

    def _dealt(self, things: Sequence[T]) -> list[Sequence[T]]:
        count = min(len(things), TURNS * self.cluster.slots)
        return [things[at::count] for at in range(count)]

    def _perform(self, common: bytes, tasks: Sequence[Task], about: str) -> None:
        """Have tasks done, and take in what they give."""
        if not tasks:
            return
        self.progress.begin(about, len(tasks))
        done = self.cluster.run(perform, common, [pickle.dumps(task) for task in tasks], about, self.progress)
        self.tasks += len(tasks)
        self.stages += 1
        results: list[Result] = [pickle.loads(each) for each in done]  # noqa: S301
        for result in results:
            if self.transaction is not None:  # what the others wrote is to be removed, too, when one failed
                self.transaction.adopt(result.batches, ())
        for result in results:
            if result.error is not None:
                raise result.error
        for result in results:
            self._take_in(result)

    def _take_in(self, result: Result) -> None:
        for sent in result.sent:
            self._waiting[sent.to].append(sent)
        for piece in result.pieces:
            self.publishing.take_in(piece)
        for kept in result.kept:
            rest = self.traces.note(kept)
            if rest is not None:
                self._rests.append(rest)
        for merged in result.merged:
            self.traces.replace(merged)
        for name, told in result.told.items():
            self.facts[name].hear(told)
        self.errors.hear(result.failed)
        self.counts.add(result.counts)
        for line in result.lines:
            self.say(line)
