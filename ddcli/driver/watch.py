"""`--watch`: another round whenever inputs change, until a signal or an error ends it.

Changes are found by names, sizes and times of files, as in a run with nothing new; reports of the system only make the watch
quicker. So links, later directories, and file systems without such reports are watched as well.
"""

from __future__ import annotations

import glob
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ddcli.dataclass import dataclass
from ddcli.errors import DdError, EngineError, LockedError, ProcessError, StateError, UsageError
from ddcli.job.options import WatchCache
from ddcli.job.request import imports, read_request, time_now
from ddcli.spec.model import SPARK
from ddcli.store.files.access import fs, locate
from ddcli.store.files.changes import QUIET, Waker, Wholeness, has_end
from ddcli.store.mirrors.delta_commits import COMMIT, LOG
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.manifest import manifest_numbers, read_newest
from ddcli.store.tables.input_path import places_of
from ddcli.store.tables.inventory import take_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.job.request import Request
    from ddcli.job.summary import RunSummary
    from ddcli.spec.model import InputSpec
    from ddcli.store.tables.inventory import ListingSnapshot

PATIENCE = 2.0
"""Seconds between two looks, notified or not; five times that for object stores: each look is a request."""
SETTLING, LONGEST = 0.2, 5.0
"""Seconds without a change after which a round begins, unless all new files are whole; and the most that it waits."""
SPARK_TABLES = 60.0
"""Seconds between two rounds for tables that only Spark can look at."""
AGAIN, UNLOCKED = 30.0, 3.0
"""Seconds after which a failed round is tried again whose cause may pass without a change of inputs: a cause here, or another run's lock."""

SECOND, MOMENT = 1_000_000, 0.001
"""Microseconds in a second; and the seconds between the time at which something is due and its round."""

Look = frozenset[tuple[Any, ...]]
FILE = 4
"""The facts that a poll learns about a file of an input: its input, its path there, its size, and the time of its last change."""


class Stopped(BaseException):
    """A signal came in the middle of a round, which is given up; `signal` is its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@dataclass
class WatchLoop:
    """Runs `round` again and again. `round` receives the judge of whether files are whole, and raises errors; `done` receives its
    result, once a signal can't interrupt the round any more.

    `refused` receives errors after which the watch continues: the input, or the pipeline file, may be corrected. `waiting` receives
    each file that is not whole, once. `watch_cache` has the leftovers of rounds, and the last look at the inputs. After a ProcessError the next round
    is a new process's, in place of this one.
    """

    pipeline: Path
    state: Path | None
    round: Callable[[Wholeness], RunSummary]
    done: Callable[[RunSummary], None]
    refused: Callable[[DdError], None]
    waiting: Callable[[Path], None]
    watch_cache: WatchCache = field(default_factory=WatchCache)
    _stop: threading.Event = field(default_factory=threading.Event)
    _at_work: bool = False
    _spent: bool = False
    _refused_before: str = ""
    _stamps: set[tuple[Any, ...]] = field(default_factory=set)

    def run(self) -> None:
        """Run rounds until a signal comes between two of them. Raises `Stopped` if it comes within one; and an error that needs
        a person's decision, or wrong use that the first round finds.
        """
        whole = Wholeness(self.waiting)
        request, first = self._request(), True
        seen = self._look(request)
        waker = Waker(PATIENCE, self._stop)
        with self._listening():
            while not self._stop.is_set():
                before, request = request, self._again(request)
                if request.digest != before.digest:
                    seen = self._look(request)
                whole.unsettled = False
                again = self._one(whole, first=first)
                first = False
                if again is None:
                    again = due_in(request)
                if whole.unsettled:
                    again = min(QUIET, again or QUIET)
                seen = self._wait(waker, request, seen, again)
                if self._spent and not self._stop.is_set():
                    begin_again()

    def _request(self) -> Request:
        """Return the model of the pipeline file."""
        return read_request(self.pipeline, self.state, runs=True)

    def _again(self, before: Request) -> Request:
        """Return the request of the pipeline file as it is now; of a broken file, which the round reports, the request before. An unchanged file is not read."""
        stamps = {_stamp(path) for path in (self.pipeline, *before.included)}
        if stamps == self._stamps:
            return before
        self._stamps = stamps
        try:
            return self._request()
        except DdError:
            from ddcli.spec.document import included_files

            return replace(before, included=tuple(included_files(self.pipeline)))

    def _one(self, whole: Wholeness, *, first: bool) -> float | None:
        """Do a round; return the seconds after which another is worth trying even without a change, or None."""
        try:
            self._at_work = True
            summary = self.round(whole)
        except DdError as error:
            if isinstance(error, StateError) or (first and isinstance(error, UsageError)):
                raise
            if error.render() != self._refused_before:
                self._refused_before = error.render()
                self.refused(error)
            self._spent = isinstance(error, ProcessError)
            return UNLOCKED if isinstance(error, LockedError) else AGAIN if isinstance(error, EngineError) else None
        finally:
            self._at_work = False
        self._refused_before = ""
        self.done(summary)
        return None

    def _wait(self, waker: Waker, request: Request, seen: Look, again: float | None) -> Look:
        """Return the next look at the inputs, once they have changed and then stayed the same for a moment, after `again` seconds, or on a signal."""
        end = None if again is None else time.monotonic() + again
        patience = PATIENCE * (1 if all(fs(path).is_local for path in roots(request)) else 5)
        waker.patience = patience
        while not self._stop.is_set():
            now = self._look(request)
            if now == seen:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return now
                waker.wait(watched(request), left)
                continue
            if is_whole(request, seen, now):
                return now
            latest = time.monotonic() + LONGEST
            while time.monotonic() < latest and not self._stop.wait(
                0 if came_at_once(request, seen, now) else SETTLING
            ):
                before, now = now, self._look(request)
                if now == before:
                    break
            return now
        return seen

    def _look(self, request: Request) -> Look:
        """Return the state of the inputs; the next round takes them as they are now."""
        self.watch_cache.listings.clear()
        return look(self.pipeline, request, self.watch_cache.listings)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Let Ctrl-C and a request to terminate end the wait, or abandon the round."""

        def end(number: int, _frame: object) -> None:
            self._stop.set()
            if self._at_work:
                raise Stopped(number)

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def begin_again() -> NoReturn:
    """Run this process's command from its beginning, in its place: under its number, with its terminal. Its locks are free."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the command that this is


def due_in(request: Request) -> float | None:
    """Return the seconds until something is due in the state under the clock of arrivals, or tables of Spark are to be looked at; None if nothing waits."""
    seconds = [SPARK_TABLES] if any(given.table == SPARK for given in request.spec.tables.values()) else []
    if (waits := _until_due(request)) is not None:
        seconds.append(waits)
    return min(seconds, default=None)


def _until_due(request: Request) -> float | None:
    if not request.clock.arrival:
        return None
    try:
        manifest = read_newest(request.state)
    except DdError:
        return None  # the next round reports the error
    due = manifest.cache.get("due") if manifest is not None else None
    return None if due is None else max(0.0, (due - time_now(None)) / SECOND + MOMENT)


def roots(request: Request) -> list[Path]:
    """Return the paths of the inputs that have files."""
    return [
        _log_of(request, given) if given.table else locate(request.base, given.path.value)
        for given in _with_files(request)
    ]


def _with_files(request: Request) -> Iterator[InputSpec]:
    """Yield the inputs that have files."""
    return (given for given in request.spec.inputs.values() if given.arrangement is None and given.in_files)


def _log_of(request: Request, given: InputSpec) -> Path:
    """Return the directory in which each version of a table leaves a file."""
    return locate(request.base, (given.origin or given.path).value) / LOG


def _tip_of(request: Request, given: InputSpec) -> str:
    """Return the tip of a table in a catalog, which changes with the table; "" on an error, which a round reports."""
    from ddcli.job.tables import open_table

    try:
        return open_table(given, request.base).tip
    except DdError:
        return ""


def watched(request: Request) -> list[Path]:
    """Return the directories in which a change matters."""
    states = [state / "manifest" for state, _ in imports(request).values()]
    tables = [_log_of(request, given) for given in _with_files(request) if given.table]
    files = [places_of(given.path.value, request.base)[0] for given in _with_files(request) if not given.table]
    return [*(path if path.is_dir() else path.parent for path in (*tables, *files)), *states]


def look(pipeline: Path, request: Request, listings: dict[tuple[str, Path], ListingSnapshot] | None = None) -> Look:
    """Return a look at the inputs, the pipeline file and the imported states; it differs from the one before if one of them has changed.

    `listings` receives the listing of each input in files.
    """
    found: set[tuple[Any, ...]] = {_stamp(path) for path in (pipeline, *request.included)}
    for given in request.spec.inputs.values():
        if given.arrangement is not None:
            state = locate(request.base, given.path.value)
            found.add((str(state), *manifest_numbers(state)[-1:]))
            continue
        if not given.in_files:
            found.add((given.name.value, _tip_of(request, given)))
            continue
        if given.table:
            log = _log_of(request, given)
            found.add((str(log), *(entry.path.name for entry in fs(log).entries(COMMIT)[-1:])))
            continue
        root = locate(request.base, given.path.value)
        found.add(_stamp(root / PROGRESS))
        snapshot = take_snapshot(given.path.value, request.base)
        if snapshot is None:
            continue
        place = str(snapshot.root)
        found.update((place, file.path, file.size, file.mtime_ns) for file in snapshot.files)
        if listings is not None:
            listings[given.path.value, request.base] = snapshot
    return frozenset(found)


def is_whole(request: Request, seen: Look, now: Look) -> bool:
    """Return whether all new files are whole files of inputs, or their progress, and no more is to be expected of the same time.

    Several inputs that carry no progress are closed together: one's rows are late once the other's file has been taken in.
    """
    added, places = now - seen, roots(request)
    progress = {str(place / PROGRESS) for place in places}
    if not added or (len(places) > 1 and not progress <= {entry[0] for entry in now if len(entry) > 1}):
        return False
    known = progress | {str(state) for state, _ in imports(request).values()}
    known |= {str(_log_of(request, given)) if given.in_files else name for name, given in request.spec.tables.items()}
    before = {entry[:2] for entry in seen if len(entry) == FILE}
    return all(
        has_end(Path(*entry[:2])) and entry[:2] not in before if len(entry) == FILE else entry[0] in known
        for entry in added
    )


def came_at_once(request: Request, seen: Look, now: Look) -> bool:
    """Return whether all new files are whole and in new directories that were renamed into place, where each input looks for its files.

    Then nothing more is to be expected of the same time. But `now` may have looked for some inputs before the rename: look again.
    """
    added = now - seen
    if not added or not _share_directories(request) or any(len(entry) != FILE for entry in added):
        return False
    files = [Path(*entry[:2]) for entry in added]
    known = {Path(*entry[:2]).parent for entry in seen if len(entry) == FILE}
    places = {file.parent for file in files}
    return not places & known and all(map(_was_renamed, places)) and all(map(has_end, files))


def _share_directories(request: Request) -> bool:
    """Return whether all inputs look for their files in the same directories, by a pattern such as in/*/orders.parquet."""
    folder, *others = {
        given.path.value.rpartition("/")[0] if given.in_files and not given.table and given.arrangement is None else ""
        for given in request.spec.inputs.values()
    }
    return not others and glob.has_magic(folder) and "**" not in folder


def _was_renamed(directory: Path) -> bool:
    """Return whether a directory was renamed after its last entry came, or changed in another way that leaves its entries as they are."""
    try:
        stat = directory.stat()
    except OSError:
        return False
    return stat.st_ctime_ns > stat.st_mtime_ns


def _stamp(path: Path) -> tuple[Any, ...]:
    try:
        stat = path.stat()
    except OSError:
        return (str(path),)
    return str(path), stat.st_size, stat.st_mtime_ns
