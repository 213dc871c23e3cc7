"""The options of a run, as a person or a program gives them, its resources and its time, and the memory of a watch.

Under `clock: arrival` all updates that a run reads have its time. It is in microseconds of UTC, and strictly after the times of earlier runs. The
commit records it: a run that dies leaves none. A run under a clock that was ahead would move "now" for good. So a time that is stated may not be far
ahead of the clock, and a run whose last one is far ahead of it is refused: the state is reopened, or the clock is set.

Imports no third-party library: most runs need no Spark.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Self

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.counts import SILENT, Progress
from ddcli.engine.workers import processors
from ddcli.errors import StateError, UsageError
from ddcli.expressions.types import ARRIVAL_TIME
from ddcli.job.sizes import default_memory
from ddcli.store.texts import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.times import Frontier
    from ddcli.store.batch.open_batches import OpenBatches
    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.entries import Times
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.tables.inventory import ListingSnapshot

    Mark = tuple[Path, str, int, str]


SHARE = 16
"""The part of a round's memory that the kept batches and values may take is one in this many."""


@dataclass
class WatchCache:
    """The open batches that the last round left, with the state and the commit that they belong to; nothing at first."""

    listings: dict[tuple[str, Path], ListingSnapshot] = field(default_factory=dict)
    """The look at each input that found the round worth while, by its path and the directory that this is relative to."""
    _kept: OpenBatches | None = None
    _mark: Mark | None = None

    def left(self, memory: int) -> int:
        """Return the part of a round's memory that kept batches don't take."""
        return memory - memory // SHARE

    def listing(self, path: str, base: Path) -> ListingSnapshot | None:
        """Return the look at an input, once: a second caller wants the files as they are by then."""
        return self.listings.pop((path, base), None)

    def clean(self, state: Path) -> int | None:
        """Return the number of the commit after which the last round left nothing behind in a state; None if no round did."""
        return self._mark[2] if self._mark is not None and self._mark[0] == state else None

    def take(self, state: Path, manifest: Manifest | None, secret: bytes, memory: int) -> OpenBatches:
        """Return the open batches of the commit from which a round continues, none if they are of another. They are kept no longer."""
        kept, mark = self._kept, self._mark
        self._kept = self._mark = None
        if kept is not None and manifest is not None and mark == _mark_of(state, manifest):
            return kept
        from ddcli.store.batch.open_batches import OpenBatches  # not for a run with nothing new

        return OpenBatches(secret, memory // SHARE)

    def keep(self, state: Path, manifest: Manifest, batches: OpenBatches) -> None:
        """Keep the open batches of a committed round for the next one."""
        if batches.end_round():
            self._kept, self._mark = batches, _mark_of(state, manifest)


def _mark_of(state: Path, manifest: Manifest) -> Mark:
    return state, manifest.identity, manifest.number, manifest.secret


REMOTE = "sc://"
"""The prefix of a Spark Connect address, behind which Spark's driver runs."""
Engine = Literal["auto", "local", "spark"]


@dataclass(frozen=True)
class SparkOptions:
    """The choice of a Spark: its master, or the address of Spark Connect, with settings; or an existing session."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    session: Any = None

    @classmethod
    def of(
        cls, master: str | None, remote: str | None, conf: Mapping[str, str] | None = None, session: Any = None
    ) -> Self:
        """Return the options that a person asks for. Raises UsageError where they name more than one place."""
        if master is not None and remote is not None:
            raise UsageError("Spark is in one place: a master or the address of Spark Connect", hint="give one of them")
        if remote is not None and not remote.startswith(REMOTE):
            hint = "write it as sc://host:15002, or give a master"
            raise UsageError("this is not an address of Spark Connect", place=remote, hint=hint)
        return cls(master or remote, conf or {}, session)

    def before(self, other: SparkOptions) -> SparkOptions:
        """Return these options, completed by another's."""
        return SparkOptions(self.master or other.master, {**other.conf, **self.conf}, self.session or other.session)

    @property
    def ready(self) -> bool:
        """Return whether Spark's address is known, and pyspark is installed."""
        known = self.session is not None or self.master is not None or "spark.master" in self.conf
        return known and find_spec("pyspark") is not None


@dataclass(frozen=True)
class Resources:
    """The resources of a run: memory, threads, and the engine to compute on."""

    memory: int = field(default_factory=default_memory)
    """The bytes that the process may have resident."""
    workers: int = field(default_factory=processors)
    """The threads that step shards."""
    engine: Engine = "auto"
    """The engine; `auto`: Spark, if its address is known, for the stages that exceed this machine's memory."""
    spark: SparkOptions = field(default_factory=SparkOptions)

    def limited(
        self,
        memory: int | None = None,
        workers: int | None = None,
        engine: Engine | None = None,
        spark: SparkOptions | None = None,
    ) -> Resources:
        """Return the resources with those that are given in place of these."""
        return Resources(
            memory or self.memory,
            workers or self.workers,
            engine or self.engine,
            spark.before(self.spark) if spark else self.spark,
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `ddcli.run`."""

    state: Path | str | None = None
    """The state directory; default: the file's, else beside the file."""
    until: str | None = None
    """The time before which all times are closed; of a product the box before "x,y". Default: the least upper of the inputs that carry their progress, else all seen."""
    dry_run: bool = False
    """True: the run only counts its changes."""
    apply: bool = False
    """True: outputs get the difference that a change of the pipeline makes."""
    refresh: frozenset[str] | None = None
    """The outputs to compute anew; empty: all, with the inputs read again."""
    rewrite: frozenset[str] = frozenset()
    """The outputs to write from the beginning."""
    memory: int | None = None
    """The bytes that the process may have resident; default: three quarters of the machine's."""
    workers: int | None = None
    """The threads that step shards; default: the number of processors."""
    engine: Engine = "auto"
    """The place of the computation: here (`local`), as tasks on Spark (`spark`), or wherever it is quicker (`auto`). The state is the same, so each run may choose anew."""
    master: str | None = None
    """The master of Spark."""
    remote: str | None = None
    """The address of a Spark Connect."""
    conf: Mapping[str, str] | None = None
    """Settings of Spark."""
    spark: Any = None
    """A session of Spark to compute in."""
    if_locked: IfLocked = "fail"
    """The behaviour while another run has the state."""
    no_code: bool = False
    """True: a pipeline that names Python functions is refused, as with DDCLI_NO_CODE=1."""
    cache_dir: Path | None = None
    """The directory of compiled kernels."""
    say: Callable[[str], None] | None = None
    """The receiver of lines for people."""
    ready: Callable[[Path], bool] | None = None
    """The test whether a new file may be read now."""
    progress: Progress = SILENT
    """The receiver of the run's progress."""
    watch_cache: WatchCache | None = None
    """The memory of a watch from the last round, and for the next."""
    now: str | None = None
    """The time of new rows under the clock of arrivals, a timestamp in UTC after that of the last run; default: the present time."""
    added: Sequence[tuple[str, Path]] = ()
    """Files that inputs, by name, have beside those in their directories."""
    joint: bool = False
    """True: what the run withdraws, adds, reads and changes in the outputs for an edited file is one commit."""
    check: Callable[[Manifest | None], None] | None = None
    """A test of the newest commit once the run has the lock; it raises an error to end the run."""
    withdraw: Sequence[Path] = ()
    """Files of inputs that earlier runs took in: they are taken back before anything is read; under the clock of events no time is closed then."""
    withdraw_missing: bool = False
    """True: files that earlier runs took in and that are gone are taken back, too."""
    again: bool = False
    """Withdraw repaired files, too, that were read after they were withdrawn."""
    strict: bool = False
    """True: a file to withdraw that no run has read is an error, also if others were read."""
    reopen: str | None = None
    """The time to which the run takes the state back: the times from it on are open again. Nothing else is done."""
    budget: Mapping[str, str] | None = None
    """The bounds on the run's cost, each in place of the file's: `{"rows": "1e6", "operator.seconds": "5min"}`. A run that exceeds one raises BudgetError."""
    accept: Sequence[str] = ()
    """The checks that may fail in this run."""
    reason: str | None = None
    """The reason why they may, which the state keeps."""


MICROSECOND = 1000
"""Nanoseconds."""
SECOND = 1_000_000
"""Microseconds."""
NOTED, AHEAD = 60 * SECOND, 86_400 * SECOND
"""The distances that the time of a run may be ahead of the clock without a note, and at all."""


@frozen
class RunClock:
    """The clock of a request: `arrival` if rows have the time of the run that takes them in, and the present time, which the caller may have `given`."""

    arrival: bool = False
    now: int = 0
    given: bool = False


def time_now(given: str | None) -> int:
    """Return the present time, or the time that `--now` states. Raises UsageError if that is more than a day ahead."""
    now = time.time_ns() // MICROSECOND
    if given is None:
        return now
    (at,) = parse_time(given, {"time": ARRIVAL_TIME}, "--now", "clock's")
    if at > now + AHEAD:
        raise UsageError(
            f"`--now {given}` is more than a day ahead of the clock, which is at {_text(now // SECOND * SECOND)}",
            hint="give an earlier time, or set the clock: no later run could have a time before it",
        )
    return at


def refuse_clock(clock: RunClock, manifest: Manifest, pipeline: Path) -> str | None:
    """Return a note if the last run's time is ahead of the clock, under the clock of arrivals. Raises StateError if it is more than a day ahead."""
    if not clock.arrival or clock.given or (first := _first(manifest.upper)) is None:
        return None
    ahead, last = first - 1 - clock.now, _text((first - 1) // SECOND * SECOND)
    if ahead > AHEAD:
        now = _text(clock.now // SECOND * SECOND)
        raise StateError(
            f"the time of the last run, {last}, is more than a day ahead of the clock, which is at {now}",
            place=str(pipeline),
            hint=f"if the clock is behind, set it; if it was ahead then, take back the runs from now on: `dd state reopen {shlex.quote(str(pipeline))} --from '{now}'`",
        )
    return (
        f"the time of the last run, {last}, is ahead of the clock: this one's is just after it"
        if ahead > NOTED
        else None
    )


def run_time(clock: RunClock, manifest: Manifest | None) -> int:
    """Return the time of a run after the last one of a state: that of the clock, but always later than earlier runs'.

    Raises UsageError if `--now` states a time that is not later.
    """
    first = None if manifest is None else _first(manifest.upper)
    if first is None:
        return clock.now
    if clock.now < first and clock.given:
        problem = f"the time of a run is after the last one's: {_text(clock.now)} is before {_text(first)}"
        raise UsageError(problem, hint="give a later time with `--now`, or leave it out")
    return max(clock.now, first)


def last_time(manifest: Manifest) -> int:
    """Return the time of the last run of a state."""
    first = _first(manifest.upper)
    assert first is not None, "a state without a last run"
    return first - 1


def _first(upper: Times) -> int | None:
    """Return the first open time, of times of one coordinate."""
    return upper[0][0] if len(upper) == 1 and len(upper[0]) == 1 else None


def time_text(clock: RunClock, upper: Frontier | None) -> str | None:
    """Return the time of the run that closed the times up to a frontier, as a person reads it; None under another clock."""
    first = _first(upper.elements) if upper and clock.arrival else None
    return None if first is None else _text(first - 1)


def is_due(manifest: Manifest, at: int) -> bool:
    """Return whether something in a state waits for a time that is not after this one."""
    due = manifest.cache.get("due")
    return due is not None and bool(due <= at)


def kept_clock(manifest: Manifest) -> str:
    """Return the clock of a state."""
    return str(manifest.cache.get("clock", "event"))


def _text(at: int) -> str:
    return format_time((at,), [ARRIVAL_TIME])
