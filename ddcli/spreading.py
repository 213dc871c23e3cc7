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
from ddcli.sizes import LANE
from ddcli.tasks import Result, Task, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.assemble.graph import Assembled
    from ddcli.choosing import Rule
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


class Places(Protocol):
    """Who does the tasks of a stage."""

    @property
    def rule(self) -> Rule:
        """Return when a stage goes to Spark."""

    def cluster(self, *, spark: bool) -> Cluster:
        """Return who does tasks on Spark, or here."""


@dataclass
class Done:
    """How much was done in one place."""

    tasks: int = 0
    stages: int = 0


@dataclass
class Spreading:
    """The step of a run that is done as tasks, each stage where it is best done."""

    job: Job
    assembled: Assembled
    """The dataflow as it is in each task: here it tells where things are."""
    places: Places
    traces: StateTraces
    publishing: Publishing
    transaction: Transaction | None
    facts: dict[str, InputFacts]
    errors: ErrorLog
    say: Callable[[str], None]
    progress: Progress = SILENT
    done: dict[bool, Done] = field(default_factory=lambda: {True: Done(), False: Done()})
    """What was done so far on Spark, and what was not."""
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
            spark = self._wants_spark(stage)
            tasks = self._tasks(number, stage, self.places.cluster(spark=spark).slots)
            # Read by all, then; what comes to a port is sent on from there, and waits at the same address again.
            read = {True: stage.members, False: stage.seals | stage.members}
            for address in [at for at in self._waiting if at.place in read[at.brought]]:
                del self._waiting[address]
            self._perform(common, tasks, about, spark=spark)
        if self._rests:
            known = self.job.manifest.arrangements if self.job.manifest else {}
            entries = [(known[rest.identity], rest.shard) for rest in self._rests if rest.identity in known]
            size = sum(file.size for entry, shard in entries for file in entry.shards[shard])
            spark = self.places.rule.wants_spark((), size)
            tasks = [Task(merges=tuple(some)) for some in dealt(self._rests, self.places.cluster(spark=spark).slots)]
            self._perform(common, tasks, "merging files of the state", spark=spark)

    def _wants_spark(self, stage: Stage) -> bool:
        """Say whether a stage goes to Spark."""
        places = [self.assembled.scope.places[index] for index in stage.places]
        # What is done row by row goes along with what its rows come from.
        deciding = [place for place in places if place.gathers or place.whole] or places
        wishes = [self.job.graph.engines.get(place.name, frozenset()) for place in deciding]
        if stage.first:
            width = {
                name: (layout.width + len(self.job.time) + 1) * LANE for name, layout in self.assembled.layouts.items()
            }
            size = sum(self.job.taken[name].rows * each for name, each in width.items())
        else:
            size = sum(sent.part.unpacked for parts in self._sent(stage).values() for sent in parts)
        return self.places.rule.wants_spark(frozenset[str]().union(*wishes), size)

    def _sent(self, stage: Stage) -> dict[Address, list[Sent]]:
        """Return what waits for a stage."""
        read = {True: stage.members, False: stage.reads | stage.members}
        return {at: parts for at, parts in self._waiting.items() if at.place in read[at.brought]}

    def _tasks(self, number: int, stage: Stage, slots: int) -> list[Task]:
        """Return the tasks of a stage, each told what was sent to where it looks."""
        if stage.first:
            slices = [(name, at) for name in self.assembled.layouts for at in range(len(self.job.taken[name].slices))]
            return [Task(number, slices=tuple(some)) for some in dealt(slices, slots)]
        waiting = self._sent(stage)
        shards = range(self.job.cut.passes)
        groups = [shards] if stage.whole else dealt(shards, slots)
        tasks = []
        for group in groups:
            mine = frozenset(group)
            sent = {at: parts for at, parts in waiting.items() if at.shard in mine}
            tasks.append(Task(number, () if stage.whole else tuple(group), sent=sent))
        return tasks

    def _perform(self, common: bytes, tasks: Sequence[Task], about: str, *, spark: bool) -> None:
        """Have tasks done, and take in what they give."""
        if not tasks:
            return
        cluster = self.places.cluster(spark=spark)
        self.progress.begin(about, len(tasks))
        done = cluster.run(perform, common, [pickle.dumps(task) for task in tasks], about, self.progress)
        self.done[spark].tasks += len(tasks)
        self.done[spark].stages += 1
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
        self._tell(result)
        for line in result.lines:
            self.say(line)

    def _tell(self, result: Result) -> None:
        """Tell who watches what a task has read and written."""
        scans = {scan.fingerprint for scan in self.job.graph.scans().values()}
        self.progress.read(sum(count.rows_out for name, count in result.counts.items() if name in scans))
        for piece in result.pieces:
            self.progress.wrote(piece.rows, piece.file[1].size if piece.file else 0)
        for kept in result.kept:
            self.progress.wrote(*kept.fresh(self.job.number or 0))


def dealt(things: Sequence[T], slots: int) -> list[Sequence[T]]:
    """Return things in as many groups as are worth it for who has so many slots."""
    count = min(len(things), TURNS * slots)
    return [things[at::count] for at in range(count)]
