"""The scheduler: it cuts a step into tasks for other processes and collects their results.

Stages run one after the other: no task of a stage begins before all tasks of the previous one have ended. The driver handles names of
files, never the updates in them, but for the few of an output that results have room for.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from dataclasses import field
from operator import itemgetter
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ddcli.dataclass import dataclass
from ddcli.engine.counts import SILENT, Counts, Progress, RowCounts
from ddcli.engine.jit.settings import cache_dir
from ddcli.engine.schedule import Schedule, WorkItem
from ddcli.errors import EngineError
from ddcli.job.sizes import LANE
from ddcli.job.summary import SparkSummary
from ddcli.plan.memo import remembered
from ddcli.runtime.chain import RESULT, TASK, ChainedStage, Row, marks
from ddcli.runtime.spark.session import AGAIN
from ddcli.runtime.task import SHARED, Job, Result, Task, packed, perform, result_of
from ddcli.sinks.pieces import INLINE
from ddcli.store.files.access import fs, real
from ddcli.store.files.buckets import SCHEMES, settings_in_use
from ddcli.store.files.gate import Files
from ddcli.store.scratch.spill import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.circuit.graph import Assembled
    from ddcli.circuit.traces import Rest, StateTraces
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.scope_tree import Address, Memos, Path
    from ddcli.errors import DdError
    from ddcli.job.sizes import Sizes
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.runtime.placement import Placement
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.sinks.side_logs import ErrorLog
    from ddcli.sources.slices import Feed, InputFacts
    from ddcli.store.scratch.spill import Sent
    from ddcli.store.state.transaction import Transaction

T = TypeVar("T")
Waiting: TypeAlias = "Mapping[Address, Sequence[Sent]]"

TURNS = 3
"""Tasks of a stage for each slot: shards differ in size, and a slot that is free early takes another."""
FEW = 64
"""Tasks of a stage on Spark that may be however few updates wait for it, if there are as many shards and slots."""
LARGE_RESULT = 64 << 20
"""Bytes of outputs in the result of a task of a dry run: of more updates of a check only the number is known."""
PORTION = 4 << 20
"""Bytes of waiting updates for each further task: a task costs Spark's driver a millisecond, and the commit two files."""


@dataclass
class TaskScheduler:
    """The step of a run as tasks: each stage runs on this machine or on Spark, by the rule of `places`."""

    job: Job
    assembled: Assembled
    """The dataflow as each task assembles it; the driver reads its stages and layouts only."""
    places: Placement
    traces: StateTraces
    publishing: OutputWriter
    transaction: Transaction | None
    facts: dict[str, InputFacts]
    errors: ErrorLog
    say: Callable[[str], None]
    progress: Progress = SILENT
    widths: Mapping[str, float] = field(default_factory=dict)
    """The bytes of a row of each input, if known."""
    watch: Callable[[Counts], None] | None = None
    """Receives the counts so far before each stage; it may raise, to end the step."""
    tasks: Counter[bool] = field(default_factory=Counter)
    stages: Counter[bool] = field(default_factory=Counter)
    """The tasks and stages done so far on Spark (True) and here (False)."""
    counts: Counts = field(default_factory=Counts)
    schedule: Schedule[Sent] = field(init=False)
    _turn: tuple[Path, Rounds] | None = None
    _memos: Memos = field(default_factory=dict)
    _rests: list[Rest] = field(default_factory=list)

    def __post_init__(self) -> None:
        nest, shards = self.assembled.nest, range(self.job.cut.passes)
        self.schedule = Schedule(nest, shards, self.places.rule.wants_memory, lambda sent: sent.size)

    def run(self) -> None:
        """Run the step."""
        common = packed(self.job)
        work_items = self.schedule.work_items()
        for item, sent in work_items:
            if self.watch is not None:
                self.watch(self.counts)
            spark = self.places.rule.wants_spark(self._wishes(item), self._size(item))
            if spark and not item.path and item.action == "stage" and not self._is_remembering(item.stage):
                self._run_chain(common, item, sent, work_items)
                continue
            tasks = self._tasks(item, sent, spark=spark)
            self._perform(common, tasks, self._title(item), spark=spark)
            self._count_turn(item)
        if self._rests:
            known = self.job.manifest.arrangements if self.job.manifest else {}
            entries = [(known[rest.identity], rest.shard) for rest in self._rests if rest.identity in known]
            size = sum(file.size for entry, shard in entries for file in entry.shards[shard])
            spark = self.places.rule.wants_spark((), size)
            tasks = [
                Task(merges=tuple(some)) for some in in_groups(self._rests, self.places.cluster(spark=spark).slots)
            ]
            self._perform(common, tasks, "merging files of the state", spark=spark)
        spark = self.tasks[True] > 0
        joins = self.publishing.joins(apart=spark)
        if joins:  # on Spark, if it has made any of it and is elsewhere: this process may be far from these files
            spark = spark and not self.places.on_spark().master.startswith("local")
            tasks = [Task(joins=tuple(each)) for each in in_groups(joins, self.places.cluster(spark=spark).slots)]
            self._perform(common, tasks, "joining files of outputs", spark=spark)
        moves = self.traces.worn() if self.transaction is not None else []
        if moves:
            spark = self.places.rule.wants_spark((), sum(file.size for _, _, file in moves))
            some = in_groups(moves, self.places.cluster(spark=spark).slots)
            self._perform(common, [Task(moves=tuple(each)) for each in some], "emptying bundles", spark=spark)

    def _count_turn(self, item: WorkItem) -> None:
        """Count a round of a loop's body, to which several items may belong."""
        if item.action == "stage" and item.path and (item.path, item.rounds) != self._turn:
            self._turn = item.path, item.rounds
            loop = self.schedule.nest.scopes[item.path[:-1]].places[item.path[-1]]
            self.counts.note(loop.name, RowCounts(turns=1))

    # --- chains ---------------------------------------------------------------------------------------------------

    def _run_chain(
        self, common: bytes, item: WorkItem, sent: Waiting, work_items: Iterator[tuple[WorkItem, Waiting]]
    ) -> None:
        """Run a stage on Spark, and the `work_items` after it up to a loop or a stage that is to run here, as one plan."""
        stages, first = self.schedule.nest.scope.stages, item.stage
        waiting, size = [sent], self._size(item)
        for number in range(first + 1, len(stages)):
            wishes = self._wishes(WorkItem("stage", stage=number))
            if stages[number].whole or self._is_remembering(number) or not self.places.rule.wants_spark(wishes, size):
                break
            waiting.append(next(work_items)[1])
        last, slots = first + len(waiting) - 1, self.places.on_spark().slots
        titles = [self._title(WorkItem("stage", stage=number)) for number in range(first, last + 1)]
        about = titles[0]
        if last > first:
            names = "; ".join(self.schedule.nest.scope.title(stage) for stage in stages[first : last + 1])
            about = f"stages {first + 1} to {last + 1} of {len(stages)}: {names}"
        partitions = stage_tasks(self.job.cut.passes, slots, size)
        counts = [partitions] * len(waiting)
        work = dict.fromkeys(range(first, last + 1), self.job.cut.passes)
        rows = list(marks(waiting, first, self.job.cut.passes))
        if stages[first].first:
            slices = [(name, at) for name in self.assembled.layouts for at in range(len(self.job.taken[name].slices))]
            rows += [Row(at, TASK, 0, first, pickle.dumps(each)) for at, each in enumerate(slices)]
            counts[0] = max(min(len(slices), TURNS * slots), 1)
            work[first] = len(slices)
        steps = [ChainedStage(common, number, last, partitions, title) for number, title in enumerate(titles, first)]
        self.progress.begin(about, sum(counts))
        try:
            done = self.places.on_spark().exchange(steps, rows, counts, about, self.progress)
        except EngineError as error:
            error.place = error.place or about
            raise
        found = sorted((pickle.loads(row.chunk) for row in done if row.edge == RESULT), key=itemgetter(0, 1))  # noqa: S301
        self._take_in_all([result_of(data) for _, _, _, data in found], len(waiting), spark=True)
        for number, _, stepped, _ in found:
            work[number] -= stepped
        if any(work.values()):  # never seen, but lost rows would be wrong results that nobody notices
            raise EngineError("Spark has lost rows of its shuffle, or has some twice", place=about, hint=AGAIN)

    # --- where ----------------------------------------------------------------------------------------------------

    def _is_remembering(self, stage: int) -> bool:
        """Return whether functions of a stage remember. Spark computes lost rows of a shuffle anew, and others would have the former results: so no chain has such a stage."""
        scope = self.schedule.nest.scope
        remembering = {node.fingerprint for node in remembered(self.job.graph.nodes).values()}
        return any(scope.places[index].name in remembering for index in scope.stages[stage].places)

    def _size(self, item: WorkItem) -> int:
        """Return the bytes of updates that wait for a work item."""
        if item.path or not self.schedule.nest.scope.stages[item.stage].first:
            return item.size
        nt, layouts = len(self.job.time), self.assembled.layouts.items()
        return sum(self.job.taken[name].rows * (layout.width + nt + 1) * LANE for name, layout in layouts)

    def _wishes(self, item: WorkItem) -> frozenset[str]:
        """Return the engines that the pipeline file names for a work item's operators."""
        scope = self.schedule.nest.scope
        indices = item.path[:1] or scope.stages[item.stage].places
        places = [scope.places[index] for index in indices]
        # An operator on single rows runs where the operators run that its rows come from.
        deciding = [place for place in places if place.gathers or place.whole] or places
        return frozenset[str]().union(*(self.job.graph.engines.get(place.name, ()) for place in deciding))

    def _title(self, item: WorkItem) -> str:
        """Return a work item's name in the progress display."""
        scope = self.schedule.nest.scope
        number = (
            next(at for at, stage in enumerate(scope.stages) if item.path[0] in stage.places)
            if item.path
            else item.stage
        )
        title = f"stage {number + 1} of {len(scope.stages)}: {scope.title(scope.stages[number])}"
        if not item.path:
            return title
        scope = self.schedule.nest.scopes[item.path]
        rounds = ".".join(map(str, item.rounds))
        match item.action:
            case "stage" | "sum":
                return f"{title}, round {rounds}: {scope.title(scope.stages[item.stage])}"
            case "enter":
                return f"{title}, beginning"
            case "end":
                return f"{title}, writing its state"
            case _:
                return f"{title}, in memory"

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _tasks(self, item: WorkItem, sent: Waiting, *, spark: bool) -> list[Task]:
        """Return the tasks of a work item, each with the updates that were sent to its shards."""
        slots = self.places.cluster(spark=spark).slots
        if not item.path and self.schedule.nest.scope.stages[item.stage].first:
            slices = [(name, at) for name in self.assembled.layouts for at in range(len(self.job.taken[name].slices))]
            return [Task(item, slices=tuple(some)) for some in in_groups(slices, slots)]
        if item.action in ("whole", "rest"):
            return [Task(item, sent=sent, memos=self._memos, threads=slots)]  # no other task runs meanwhile
        tasks = []
        for group in in_groups(item.shards, slots):
            mine = frozenset(group)
            here = {at: parts for at, parts in sent.items() if at.shard in mine}
            memos = {at: memo for at, memo in self._memos.items() if at[1] in mine}
            tasks.append(Task(item, tuple(group), sent=here, memos=memos))
        return tasks

    def _perform(self, common: bytes, tasks: Sequence[Task], about: str, *, spark: bool) -> None:
        """Run tasks and take in their results; raise the first error of one."""
        if not tasks:
            return
        cluster = self.places.cluster(spark=spark)
        self.progress.begin(about, len(tasks))
        try:
            done = cluster.run(perform, common, [pickle.dumps(task) for task in tasks], about, self.progress)
        except EngineError as error:
            error.place = error.place or about
            raise
        self._take_in_all([result_of(each) for each in done], 1, spark=spark)

    def _take_in_all(self, results: Sequence[Result], stages: int, *, spark: bool) -> None:
        """Take in the results of the tasks of some stages; raise the first error of one."""
        self.tasks[spark] += len(results)
        self.stages[spark] += stages
        for result in results:
            if self.transaction is not None:  # when one fails, the files of the others are removed, too
                self.transaction.adopt(result.state)
        for result in results:
            if result.error is not None:
                raise on_executor(result.error, result.host) if spark and result.host else result.error
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
        for name, file in result.joined:
            self.publishing.take_joined(name, file)
        for kept in result.kept:
            rest = self.traces.note(kept)
            if rest is not None:
                self._rests.append(rest)
        for merged in result.merged:
            self.traces.replace(merged)
        for name, report in result.read.items():
            self.facts[name].add(report)
        self.errors.take_in(result.failed)
        self.counts.add(result.counts)
        self._show(result)
        for line in result.lines:
            self.say(line)

    def _show(self, result: Result) -> None:
        """Show the rows that a task has read and written in the progress display."""
        for name, scan in self.job.graph.scans().items():
            rows = result.counts[scan.fingerprint].rows_out if scan.fingerprint in result.counts else 0
            self.progress.read(rows, round(rows * self.widths.get(name, 0)))
        for piece in result.pieces:
            self.progress.wrote(piece.rows, piece.bytes)
        for kept in result.kept:
            self.progress.wrote(*kept.fresh(self.job.number or 0))


def on_executor(error: DdError, host: str) -> EngineError:
    """Return the error of a file that the system of an executor, or an object store, refuses, with the name of its machine."""
    of_store = (error.place or "").startswith(SCHEMES)
    hint = f"{error.hint}, on that machine, too" if of_store and error.hint else SHARED
    return EngineError(f"on the executor's machine {host}: {error.problem}", place=error.place, hint=hint)


def stage_tasks(shards: int, slots: int, size: int) -> int:
    """Return the number of tasks of a stage on Spark to which `size` bytes of updates go.

    A small change of a large state has few tasks, each of many shards: how many may run at once is not all that counts.

    >>> stage_tasks(200, 2, 10**6), stage_tasks(65_536, 4_000, 10**9), stage_tasks(65_536, 4_000, 10**13)
    (6, 239, 12000)
    """
    return min(shards, TURNS * slots, max(FEW, -(-size // PORTION)))


def in_groups(things: Sequence[T], slots: int) -> list[Sequence[T]]:
    """Return things in groups, `TURNS` for each slot at most."""
    count = min(len(things), TURNS * slots)
    return [things[at::count] for at in range(count)]


def run_as_tasks(
    graph: PhysicalGraph,
    assembled: Assembled,
    taken: Mapping[str, Feed],
    cut: Sizes,
    interval: Interval,
    traces: StateTraces,
    publishing: OutputWriter,
    transaction: Transaction | None,
    placement: Placement,
    facts: dict[str, InputFacts],
    errors: ErrorLog,
    watch: Callable[[Counts], None],
    widths: Mapping[str, float],
) -> tuple[Counts, SparkSummary | None]:
    """Step task by task, each where it is best done; return their counts, and where they were done if some were on Spark.

    `watch` receives the counts so far before each stage, and may raise. `widths` are the bytes of an input's files per row,
    for the progress display.
    """
    request = publishing.request
    outputs = {name: request.outputs[name] for name in publishing.layouts}
    if transaction is not None:
        transaction.expect(outputs.values())
    # A dry run leaves the state alone: its tasks run on this machine only. So do all tasks of the local engine.
    beside = transaction is not None and (request.asked.resources.engine != "local" or fs(request.state).is_local)
    files = transaction.state.files if transaction is not None and beside else Files()
    with (
        nullcontext(request.state) if beside else tempfile.TemporaryDirectory() as place,
        scratch(real(FilePath(place) if isinstance(place, str) else place), files) as here,
    ):
        job = Job(
            state=request.state,
            scratch=here,
            token=os.urandom(4).hex(),
            number=transaction.number if transaction is not None else None,
            manifest=traces.manifest,
            secret=traces.pools[0].secret,
            identity=traces.manifest.identity if traces.manifest else "",
            graph=graph,
            cut=cut,
            interval=interval,
            upper=traces.frontier or interval.upper,
            time=publishing.time,
            taken=taken,
            facts=facts,
            imports=traces.imports,
            claims=traces.claims,
            past=traces.past,
            only=traces.only,
            answered=traces.answered,
            erases=traces.erases,
            outputs=outputs,
            inline=_inline(assembled, taken, cut, dry=transaction is None, received=request.asked.receives is not None),
            most=publishing.most,
            reopen=publishing.reopen,
            combines=assembled.scope.combines,
            quarantines=request.spec.errors is not None,
            cache_dir=cache_dir(),
            store=settings_in_use(),
        )
        scheduler = TaskScheduler(
            job,
            assembled,
            placement,
            traces,
            publishing,
            transaction,
            facts,
            errors,
            request.asked.say,
            request.asked.progress,
            widths,
            watch,
        )
        scheduler.run()
    tasks, stages = scheduler.tasks, scheduler.stages
    if placement.spark is None or not tasks[True]:
        return scheduler.counts, None
    where = placement.spark.master
    return scheduler.counts, SparkSummary(where, tasks[True], stages[True], tasks[False], stages[False])


def _inline(assembled: Assembled, taken: Mapping[str, Feed], cut: Sizes, *, dry: bool, received: bool) -> int:
    """Return the bytes of outputs that the result of a task may have; a dry run writes none to files, and its results stay on this machine."""
    if received:  # who compares the updates needs all of them
        return sys.maxsize
    if dry:
        return LARGE_RESULT
    slices = max((len(feed.slices) for feed in taken.values()), default=0)
    stages = max(len(assembled.nest.scope.stages), 1)  # none, where a change only removes outputs
    return INLINE // (stages * max(cut.passes, slices))
