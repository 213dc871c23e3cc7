"""The options of a run, as a person or a program gives them, and the memory of a watch. Imports no third-party library."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.engine.counts import SILENT, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ddcli.job.sizes import Engine
    from ddcli.store.batch.open_batches import OpenBatches
    from ddcli.store.files.lock import IfLocked
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
    """The time of new rows under the clock of arrivals, a timestamp in UTC after the last run's; default: the present time."""
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
