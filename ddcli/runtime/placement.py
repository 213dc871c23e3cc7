"""Which engine does which stage of a run: by what was asked for, and by how much a stage has to move.

Spark is started when a stage first wants it: that takes longer than most runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ddcli.dataclass import dataclass
from ddcli.engine.jit.settings import cache_dir
from ddcli.engine.lanes import Layout
from ddcli.errors import UsageError
from ddcli.job.sizes import GROWTH, LANE, WORKING, Sizes, sizes
from ddcli.plan.loops import is_looped
from ddcli.runtime.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ddcli.job.options import Engine
    from ddcli.job.request import Request
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.runtime.spark.session import Spark

T = TypeVar("T")

HEAVY = 256 << 20
"""Bytes of updates waiting for a stage for which it is worth to have Spark do it: a thread here takes seconds with them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When a stage goes to Spark. `ready`: it is said where Spark is. `heavy` bytes are so many that they would take long here, or not fit.

    The traces of one loop may take `room` bytes of memory; it takes some four times as many to work with them.
    """

    engine: Engine
    ready: bool
    heavy: int
    room: int

    def wants_spark(self, wishes: Collection[str], size: int) -> bool:
        """Say whether a stage goes to Spark, given what the file says of its collections and how many bytes wait for it.

        >>> rule = Rule("auto", ready=True, heavy=1000, room=0)
        >>> [rule.wants_spark(wishes, size) for wishes, size in [((), 999), ((), 1000), (["local"], 1000), (["spark"], 1)]]
        [False, True, False, True]

        Where nothing waits there is hardly anything to do: nobody need wait for Spark to start.

        >>> rule.wants_spark(["spark"], 0), Rule("spark", True, 1000, 0).wants_spark(["local"], 0)
        (False, True)
        """
        if self.engine != "auto":
            return self.engine == "spark"
        if "spark" in wishes:
            return size > 0
        return self.ready and size >= self.heavy and "local" not in wishes

    def wants_memory(self, moving: int, kept: int) -> bool:
        """Say whether what is left of a loop is done in memory, as one task: so many bytes move in a round, so many are in its traces.

        That is sooner than as many tasks, if its traces fit, with what they will have taken in when it is done.

        >>> rule = Rule("local", ready=False, heavy=100, room=1000)
        >>> rule.wants_memory(50, 400), rule.wants_memory(50, 401), rule.wants_memory(100, 0)
        (True, False, False)
        """
        return moving < self.heavy and kept + GROWTH * moving <= self.room


class Choosing:
    """The places where the stages of a run may be done: this process, and a Spark that is started when it is first wanted."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rule = Rule(
            request.engine, request.spark.ready, min(HEAVY, request.memory // WORKING), request.memory // 6
        )
        self.here = Threads(request.workers)
        self.spark: Spark | None = None
        """Spark, if it was started."""

    def cut(self, graph: PhysicalGraph, nt: int, rows: int, kept: frozenset[int]) -> tuple[Sizes, bool]:
        """Return how to cut a run that is fed so many updates, and whether its stages are chosen an engine each.

        The arrangements that the state has are of `kept` shards, times of `nt` coordinates.
        """
        request, wanted = self.request, self.request.spec.shards
        width = max((Layout(scan.schema).width for scan in graph.scans().values()), default=0) + nt + 1
        wishes = frozenset[str]().union(*(graph.engines.get(node.fingerprint, ()) for node in graph.nodes))
        size = rows * width * LANE
        looped = is_looped(graph.nodes)
        if not self.spreads(wishes, size):
            cut = sizes(rows, width, kept, request.workers, request.memory, wanted, looped=looped)
            if cut.room is None or not looped:
                return cut, False
            # Only as tasks does a loop go round by round, with a shard in memory at a time.
        # A task has one thread, and its part of the memory where it is done.
        cut = sizes(rows, width, kept, 1, self.task_memory(size), wanted, looped=looped)
        return cut.spread(rows, self.slots(size), new=not kept and wanted is None), True

    def spreads(self, wishes: Collection[str], size: int) -> bool:
        """Say whether a run that is fed so many bytes is to go stage by stage, so that some can go to Spark.

        Raises UsageError where the file wants it and there is none: that should not come out half-way.
        """
        if self.rule.engine == "auto" and "spark" in wishes and size:
            from ddcli.runtime.spark.start import check_installed

            self._wanted(lambda: check_installed(self.request.spark))
            return True
        return self.rule.wants_spark((), size)

    def slots(self, size: int) -> int:
        """Return how many tasks are done at once by whoever does the first stage, for which so many bytes wait."""
        return self.cluster(spark=self.rule.wants_spark((), size)).slots

    def task_memory(self, size: int) -> int:
        """Return the bytes that a task of the first stage may have. Later stages that are done elsewhere are smaller."""
        return self.cluster(spark=self.rule.wants_spark((), size)).task_memory(self.request.memory)

    def cluster(self, *, spark: bool) -> Spark | Threads:
        """Return who does tasks."""
        if not spark:
            return self.here
        if self.spark is None:
            request = self.request
            request.progress.begin("starting Spark")
            from ddcli.runtime.spark.start import start

            self.spark = self._wanted(lambda: start(request.spark, request.spec.name.value, cache_dir()))
            if self.spark.page:
                request.say(f"Spark: {self.spark.page}")
        return self.spark

    def _wanted(self, find: Callable[[], T]) -> T:
        """Return what is found of Spark; raise UsageError, at the place in the file that wants it, where it is not to be had."""
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
        """Let go of Spark."""
        if self.spark is not None:
            self.spark.close()
