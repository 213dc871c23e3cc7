"""A step that other processes do, task by task: what each is to do, and what comes of what they did.

Stage after stage: no task of one begins before all tasks of the one before are done. The driver sees where things are, never the
updates themselves, but for the few of an output that would make too small a file.
"""

from __future__ import annotations

import pickle
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

from ddcli.dataclass import dataclass
from ddcli.engine.counts import Counts, RowCounts
from ddcli.engine.schedule import Leg, Schedule
from ddcli.errors import EngineError
from ddcli.job.sizes import LANE
from ddcli.progress import SILENT, Progress
from ddcli.runtime.task import Result, Task, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.circuit.graph import Assembled
    from ddcli.circuit.traces import Rest, StateTraces
    from ddcli.engine.rounds import Rounds
    from ddcli.engine.scope_tree import Address, Memos, Path
    from ddcli.runtime.placement import Rule
    from ddcli.runtime.task import Job
    from ddcli.sinks.outputs import Publishing
    from ddcli.sinks.side_logs import ErrorLog
    from ddcli.sources.input_format import InputFacts
    from ddcli.store.scratch.exchange import Sent
    from ddcli.store.state.directory import Transaction

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
    widths: Mapping[str, float] = field(default_factory=dict)
    """The bytes of a row of each input, where they are known."""
    done: dict[bool, Done] = field(default_factory=lambda: {True: Done(), False: Done()})
    """What was done so far on Spark, and what was not."""
    counts: Counts = field(default_factory=Counts)
    schedule: Schedule[Sent] = field(init=False)
    _turn: tuple[Path, Rounds] | None = None
    _memos: Memos = field(default_factory=dict)
    _rests: list[Rest] = field(default_factory=list)

    def __post_init__(self) -> None:
        nest, shards = self.assembled.nest, range(self.job.cut.passes)
        self.schedule = Schedule(nest, shards, self.places.rule.wants_memory, attrgetter("size"))

    def run(self) -> None:
        """Do the step."""
        common = pickle.dumps(self.job)
        for leg, sent in self.schedule.legs():
            spark = self._wants_spark(leg)
            tasks = self._tasks(leg, sent, spark=spark)
            self._perform(common, tasks, self._told(leg), spark=spark)
            self._count_turn(leg)
        if self._rests:
            known = self.job.manifest.arrangements if self.job.manifest else {}
            entries = [(known[rest.identity], rest.shard) for rest in self._rests if rest.identity in known]
            size = sum(file.size for entry, shard in entries for file in entry.shards[shard])
            spark = self.places.rule.wants_spark((), size)
            tasks = [Task(merges=tuple(some)) for some in dealt(self._rests, self.places.cluster(spark=spark).slots)]
            self._perform(common, tasks, "merging files of the state", spark=spark)

    def _count_turn(self, leg: Leg) -> None:
        """Count a turn of a loop's body, which several legs may be of."""
        if leg.action == "stage" and leg.path and (leg.path, leg.rounds) != self._turn:
            self._turn = leg.path, leg.rounds
            loop = self.schedule.nest.scopes[leg.path[:-1]].places[leg.path[-1]]
            self.counts.note(loop.name, RowCounts(turns=1))

    # --- where ----------------------------------------------------------------------------------------------------

    def _wants_spark(self, leg: Leg) -> bool:
        """Say whether a leg goes to Spark."""
        if not leg.path and self.schedule.nest.scope.stages[leg.stage].first:
            nt, layouts = len(self.job.time), self.assembled.layouts.items()
            size = sum(self.job.taken[name].rows * (layout.width + nt + 1) * LANE for name, layout in layouts)
        else:
            size = leg.size
        return self.places.rule.wants_spark(self._wishes(leg), size)

    def _wishes(self, leg: Leg) -> frozenset[str]:
        """Return what the file says of where a leg is to be done."""
        scope = self.schedule.nest.scope
        indices = leg.path[:1] or scope.stages[leg.stage].places
        places = [scope.places[index] for index in indices]
        # What is done row by row goes along with what its rows come from.
        deciding = [place for place in places if place.gathers or place.whole] or places
        return frozenset[str]().union(*(self.job.graph.engines.get(place.name, ()) for place in deciding))

    def _told(self, leg: Leg) -> str:
        """Return what a leg is, for those who watch."""
        scope = self.schedule.nest.scope
        number = (
            next(at for at, stage in enumerate(scope.stages) if leg.path[0] in stage.places) if leg.path else leg.stage
        )
        told = f"stage {number + 1} of {len(scope.stages)}: {scope.told(scope.stages[number])}"
        if not leg.path:
            return told
        scope = self.schedule.nest.scopes[leg.path]
        rounds = ".".join(map(str, leg.rounds))
        match leg.action:
            case "stage" | "sum":
                return f"{told}, round {rounds}: {scope.told(scope.stages[leg.stage])}"
            case "enter":
                return f"{told}, beginning"
            case "end":
                return f"{told}, writing its state"
            case _:
                return f"{told}, in memory"

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _tasks(self, leg: Leg, sent: Mapping[Address, Sequence[Sent]], *, spark: bool) -> list[Task]:
        """Return the tasks of a leg, each told what was sent to where it looks."""
        slots = self.places.cluster(spark=spark).slots
        if not leg.path and self.schedule.nest.scope.stages[leg.stage].first:
            slices = [(name, at) for name in self.assembled.layouts for at in range(len(self.job.taken[name].slices))]
            return [Task(leg, slices=tuple(some)) for some in dealt(slices, slots)]
        if leg.action in ("whole", "rest"):
            return [Task(leg, sent=sent, memos=self._memos, threads=slots)]  # nobody else has anything to do
        tasks = []
        for group in dealt(leg.shards, slots):
            mine = frozenset(group)
            here = {at: parts for at, parts in sent.items() if at.shard in mine}
            memos = {at: memo for at, memo in self._memos.items() if at[1] in mine}
            tasks.append(Task(leg, tuple(group), sent=here, memos=memos))
        return tasks

    def _perform(self, common: bytes, tasks: Sequence[Task], about: str, *, spark: bool) -> None:
        """Have tasks done, and take in what they give."""
        if not tasks:
            return
        cluster = self.places.cluster(spark=spark)
        self.progress.begin(about, len(tasks))
        try:
            done = cluster.run(perform, common, [pickle.dumps(task) for task in tasks], about, self.progress)
        except EngineError as error:
            error.place = error.place or about
            raise
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
            self.schedule.add(sent.to, sent)
        for wake in result.wakes:
            self.schedule.wake(wake)
        self._memos |= result.memos
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
        for name, scan in self.job.graph.scans().items():
            rows = result.counts[scan.fingerprint].rows_out if scan.fingerprint in result.counts else 0
            self.progress.read(rows, round(rows * self.widths.get(name, 0)))
        for piece in result.pieces:
            self.progress.wrote(piece.rows, piece.file[1].size if piece.file else 0)
        for kept in result.kept:
            self.progress.wrote(*kept.fresh(self.job.number or 0))


def dealt(things: Sequence[T], slots: int) -> list[Sequence[T]]:
    """Return things in as many groups as are worth it for who has so many slots."""
    count = min(len(things), TURNS * slots)
    return [things[at::count] for at in range(count)]
