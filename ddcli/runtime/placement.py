"""The engine of each stage of a run: by `--engine`, the file's `on`, and the bytes that wait for the stage; and the Spark of a request.

Spark starts when a stage first wants it: its start takes longer than most runs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from ddcli.dataclass import frozen
from ddcli.engine.jit.settings import cache_dir
from ddcli.engine.lanes import Layout
from ddcli.errors import UsageError
from ddcli.job.sizes import GROWTH, LANE, REMOTE, WORKING, Sizes, sizes
from ddcli.plan.loops import Iterate
from ddcli.plan.memo import MemoizedCalls
from ddcli.version import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from ddcli.engine.counts import Progress
    from ddcli.job.request import Request
    from ddcli.job.sizes import Engine, SparkOptions
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.runtime.spark.classic import Classic
    from ddcli.runtime.spark.connect import Connect
    from ddcli.runtime.spark.plans import Spark
    from ddcli.runtime.spark.session import Function


OLDEST = (4, 1)
"""The first version that brings rows to their shards by number (`repartitionById`)."""


def check_installed(options: SparkOptions) -> None:
    """Raise UsageError where there is no pyspark: a session brings its own."""
    if options.session is None and find_spec("pyspark") is None:
        raise UsageError("the engine spark needs pyspark, which is not installed", hint=install_command("spark"))


def start(options: SparkOptions, name: str, cache: Path) -> Spark:
    """Return the Spark of a request: the session's, one that runs in this process already, or a new one.

    Raises UsageError where pyspark or Java is missing or Spark is too old, EngineError where Spark doesn't start or answer.
    """
    check_installed(options)
    found = _start(options, name, cache)
    version, place = found.version, found.master
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        found.close()
        problem = f"the engine spark needs Spark 4.1 or newer, and this is {version}"
        hint = "use a newer one, or compute all of it here, with --engine local"
        raise UsageError(problem, place=place, hint=hint)
    return found


def _start(options: SparkOptions, name: str, cache: Path) -> Classic | Connect:
    session, master = options.session, options.master
    if session is not None:
        if type(session).__module__.startswith("pyspark.sql.connect."):
            from ddcli.runtime.spark.connect import Connect

            return Connect(session, owned=False)
        from ddcli.runtime.spark.classic import Classic

        return Classic(session, owned=False)
    if master is not None and master.startswith(REMOTE):
        from ddcli.runtime.spark.connect import connect

        return connect(options)
    from ddcli.runtime.spark.classic import launch

    return launch(options, name, cache)


class Threads:
    """Runs tasks here, as many at once as it has `slots`; the scheduler uses it as it does a `Spark`."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._attempts = count()

    def task_memory(self, here: int) -> int:
        """Return the bytes of memory of one task, of the `here` bytes that all tasks on this machine may use."""
        return here // self.slots

    def run(
        self, function: Function, common: bytes, tasks: Sequence[bytes], about: str, progress: Progress
    ) -> list[bytes]:
        named = [(task, f"here-{next(self._attempts)}") for task in tasks]
        if len(named) == 1:
            return [function(common, *named[0])]

        def do(given: tuple[bytes, str]) -> bytes:
            done = function(common, *given)
            progress.advance()
            return done

        with ThreadPoolExecutor(self.slots, "dd-task") as threads:
            return list(threads.map(do, named))


T = TypeVar("T")

HEAVY = 256 << 20
"""Bytes of updates that wait for a stage from which Spark is worth it: a thread here needs seconds for them."""


@frozen
class Rule:
    """The rule that decides whether a stage runs on Spark. `ready`: a master is known. `heavy`: the bytes that would take long here, or not fit.

    The traces of one loop may take `room` bytes of memory; work with them takes some four times as many.
    """

    engine: Engine
    ready: bool
    heavy: int
    room: int

    def wants_spark(self, wishes: Collection[str], size: int) -> bool:
        """Return whether a stage runs on Spark, given the engines that the file names for its collections, and the bytes that wait for it.

        >>> rule = Rule("auto", ready=True, heavy=1000, room=0)
        >>> [rule.wants_spark(wishes, size) for wishes, size in [((), 999), ((), 1000), (["local"], 1000), (["spark"], 1)]]
        [False, True, False, True]

        A stage for which nothing waits has hardly any work, and need not wait for Spark to start.

        >>> rule.wants_spark(["spark"], 0), Rule("spark", True, 1000, 0).wants_spark(["local"], 0)
        (False, True)
        """
        if self.engine != "auto":
            return self.engine == "spark"
        if "spark" in wishes:
            return size > 0
        return self.ready and size >= self.heavy and "local" not in wishes

    def wants_memory(self, moving: int, kept: int) -> bool:
        """Return whether the rest of a loop runs in memory, as one task: `moving` bytes move in a round, `kept` are in its traces.

        One task is quicker than many, if the traces fit, with all that they will have taken in at the loop's end.

        >>> rule = Rule("local", ready=False, heavy=100, room=1000)
        >>> rule.wants_memory(50, 400), rule.wants_memory(50, 401), rule.wants_memory(100, 0)
        (True, False, False)
        """
        return moving < self.heavy and kept + GROWTH * moving <= self.room


class Placement:
    """The places for the stages of a run: this process, and a Spark that starts when a stage first wants it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rule = Rule(
            request.asked.resources.engine,
            request.asked.resources.spark.ready,
            min(HEAVY, request.asked.resources.memory // WORKING),
            request.asked.resources.memory // 6,
        )
        self.here = Threads(request.asked.resources.workers)
        self.joined = 0
        """The rows of a join for which an attempt in memory had no room."""
        self.spark: Spark | None = None
        """Spark, once it has started."""

    def cut(self, graph: PhysicalGraph, nt: int, rows: int, kept: frozenset[int]) -> tuple[Sizes, bool]:
        """Return the sizes of a run over `rows` updates, and whether each of its stages chooses its engine.

        The state's arrangements have `kept` shards; times have `nt` coordinates.
        """
        request, wanted = self.request, self.request.spec.shards
        width = max((Layout(scan.schema).width for scan in graph.scans().values()), default=0) + nt + 1
        wishes = frozenset[str]().union(*(graph.engines.get(node.fingerprint, ()) for node in graph.nodes))
        size = rows * width * LANE
        looped = any(isinstance(node, Iterate) for node in graph.nodes)
        if not self.spreads(wishes, size):
            cut = sizes(
                rows,
                width,
                kept,
                request.asked.resources.workers,
                request.asked.resources.memory,
                wanted,
                looped=looped,
                calls=any(isinstance(node, MemoizedCalls) for node in graph.nodes),
                joined=self.joined,
            )
            if cut.room is None or not looped:
                return cut, False
            # Only tasks run a loop round by round, with one shard in memory at a time.
        # A task has one thread, and its part of its machine's memory.
        cut = sizes(rows, width, kept, 1, self.task_memory(size), wanted, looped=looped, apart=True, joined=self.joined)
        return cut.spread(rows, self.slots(size), new=not kept and wanted is None), True

    def spreads(self, wishes: Collection[str], size: int) -> bool:
        """Return whether a run over `size` bytes is done stage by stage, so that some stages can run on Spark.

        Raises UsageError if the file wants Spark and it isn't installed, before any work is done.
        """
        if self.rule.engine == "auto" and "spark" in wishes and size:
            self._wanted(lambda: check_installed(self.request.asked.resources.spark))
            return True
        return self.rule.wants_spark((), size)

    def slots(self, size: int) -> int:
        """Return the number of tasks that run at once in the first stage, for which `size` bytes wait."""
        return self.cluster(spark=self.rule.wants_spark((), size)).slots

    def task_memory(self, size: int) -> int:
        """Return the bytes of memory of a task of the first stage. Later stages that run elsewhere are smaller."""
        return self.cluster(spark=self.rule.wants_spark((), size)).task_memory(self.request.asked.resources.memory)

    def cluster(self, *, spark: bool) -> Spark | Threads:
        """Return Spark or the threads of this process."""
        return self.on_spark() if spark else self.here

    def on_spark(self) -> Spark:
        """Return Spark, started if need be."""
        if self.spark is None:
            request = self.request
            request.asked.progress.begin("starting Spark")
            from ddcli.runtime.spark.session import ASK_LESS, NO_EXECUTOR

            self.spark = self._wanted(
                lambda: start(request.asked.resources.spark, request.spec.name.value, cache_dir())
            )
            self.spark.keeps = self.spark.task_memory(request.asked.resources.memory)
            if self.spark.page:
                request.asked.say(f"Spark: {self.spark.page}")
            if self.spark.is_waiting:
                request.asked.say(f"{self.spark.master}: {NO_EXECUTOR}; {ASK_LESS}")
        return self.spark

    def _wanted(self, find: Callable[[], T]) -> T:
        """Return the result of `find`; raise its UsageError at the place in the file that wants Spark."""
        try:
            return find()
        except UsageError as error:
            wishes = [each.on for each in self.request.spec.collections.values() if each.on]
            span = next((wish.span for wish in wishes if wish.value == "spark"), None)
            if self.rule.engine != "auto" or span is None:
                raise
            hint = "; ".join([*([error.hint] if error.hint else []), "or compute all of it here, with --engine local"])
            raise UsageError(error.problem, span=span, hint=hint) from error

    def close(self) -> None:
        """Stop Spark, if it was started here."""
        if self.spark is not None:
            self.spark.close()
