"""The state directory: it is opened under the lock, and the work of a dead run is finished; and the holds of its readers.

The work that a commit leaves is written in its manifest (see `transaction`), and done here by the process that opens the state next.

A hold is a reader's claim on a state, a small file in `<state>/holds/`. A reader that has taken an arrangement's updates up to a frontier must be able to take the rest, and to
distinguish times from there on. So times at or after the meet of all holds' `since` stay apart, and batches that reach beyond their `through` are neither merged with
older ones nor advanced. While a reader reads, its hold names the manifest that it reads by: a sweep leaves that and its files.

A short lock, `holds/LOCK`, is held while a hold is written and the newest manifest read, and while the holds are read and files swept: so no
file vanishes under a reader. Imports no third-party library: a run with nothing new looks here.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Self

from ddcli.dataclass import frozen
from ddcli.engine.times import Frontier
from ddcli.errors import StateError
from ddcli.privacy import hide
from ddcli.store.files.access import fs, real
from ddcli.store.files.gate import Files, one_by_one
from ddcli.store.files.lock import NAME as LOCK
from ddcli.store.files.lock import ObjectLock, locked, take_lock
from ddcli.store.state.batch_lists import worthwhile
from ddcli.store.state.contents import (
    SPILL,
    check_directory,
    check_renamings,
    clear_scratch,
    gone,
    left_by_attempts,
    publish,
    remove_unnamed,
    unpublished,
)
from ddcli.store.state.document import DAMAGED, HOLD, Document
from ddcli.store.state.entries import Times, frontier_of
from ddcli.store.state.manifest import branch_of, manifest_path, read_newest
from ddcli.store.state.outputs import check_files, check_outputs, check_unlocked
from ddcli.store.state.transaction import Transaction, try_to

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType

    from ddcli.store.files.lock import IfLocked, Lock
    from ddcli.store.state.manifest import Manifest


BRANCH = "branch."
"""Begins the name of the hold of a branch, which reads one manifest as long as it exists; the holds of pipelines end with eight digits after a hyphen."""


@frozen
class Hold:
    """The claim of one reader: its arrangements (by identity), the times from which on it reads them, and the manifest that it may be reading.

    `state` is the reader's own state directory, for people. `marks` identify the commits of this state that the reader has read, or reads now:
    a copy of this state that was restored has others.
    """

    reader: str
    state: str
    arrangements: tuple[str, ...]
    since: Times
    through: Times
    manifest: int | None = None
    marks: tuple[str, ...] = ()

    @property
    def branch(self) -> str:
        """Return the name of the branch that has the hold; "" for the hold of a pipeline."""
        return self.reader.removeprefix(BRANCH) if self.reader.startswith(BRANCH) else ""


def _check(found: Hold, path: Path) -> None:
    if found.reader != path.stem:
        raise ValueError(f"the hold of {found.reader!r}")


HOLDS = Document(
    Hold,
    "the hold of a reader can't be read",
    "remove the file if its reader is gone, or have the reader run again with `--full-refresh all`",
    _check,
    since=frontier_of,
    through=frontier_of,
)


@frozen
class Claims:
    """All holds on a state, as compaction and sweeps look at them."""

    holds: tuple[Hold, ...] = ()

    def since(self, arrangement: str, own: Frontier) -> Frontier:
        """Return the frontier that an arrangement's times may be advanced to: its keeper's own, held back by readers."""
        if not self.holds:
            return own
        held = [Frontier(hold.since) for hold in self._of(arrangement)]
        return Frontier(time for frontier in (own, *held) for time in frontier)

    def through(self, arrangement: str) -> Frontier:
        """Return the frontier beyond which batches stay as they are; closed without readers."""
        return Frontier(time for hold in self._of(arrangement) for time in hold.through)

    @property
    def manifests(self) -> frozenset[int]:
        """The numbers of the manifests that may have readers now."""
        return frozenset(hold.manifest for hold in self.holds if hold.manifest is not None)

    def _of(self, arrangement: str) -> Iterator[Hold]:
        return (hold for hold in self.holds if arrangement in hold.arrangements)


def read_holds(directory: Path) -> tuple[Hold, ...]:
    """Return all holds on a state, in order of their readers' names. One that can't be read is a StateError: it may hold anything."""
    paths = [entry.path for entry in fs(directory / "holds").entries() if HOLD.fullmatch(entry.path.name)]
    return tuple(hold for path in paths if (hold := HOLDS.read(path)) is not None)


def read_claims(directory: Path) -> Claims:
    """Return the claims of readers on a state."""
    return Claims(read_holds(directory))


def holding(directory: Path, files: Files) -> AbstractContextManager[object]:
    """Keep others from changing holds, and from sweeping, for a moment."""
    return locked(directory / "holds", files)


def write_hold(directory: Path, hold: Hold, files: Files) -> None:
    """Write a reader's hold in the place of its last one. The caller has the holds' lock."""
    HOLDS.write(_path(directory, hold.reader), hold, files)


def find_hold(directory: Path, reader: str) -> Hold | None:
    """Return a reader's hold, if it has one."""
    return next((hold for hold in read_holds(directory) if hold.reader == reader), None)


def is_reading(directory: Path, reader: str) -> bool:
    """Return whether a reader reads a state now, or died while it did."""
    try:
        hold = HOLDS.try_read(_path(directory, reader))
    except (FileNotFoundError, *DAMAGED):
        return False  # the process that writes it next reports an unreadable one
    return hold.manifest is not None


def release(directory: Path, reader: str, files: Files) -> Hold | None:
    """Drop a reader's hold and return it; None where there is none."""
    with holding(directory, files):
        found = find_hold(directory, reader)
        if found is not None:
            files.remove(_path(directory, reader))
    return found


def _path(directory: Path, reader: str) -> Path:
    return directory / "holds" / f"{reader}.json"


class State:
    """A state that this process has opened, under its lock: the newest manifest (`manifest`, None before the first commit) is in force."""

    def __init__(
        self, directory: Path, lock: Lock | ObjectLock, files: Files, written: frozenset[Path], identity: str
    ) -> None:
        self.directory = directory
        self.files = files
        self.written = written
        """The directories outside of the state that may be written to."""
        self.manifest: Manifest | None = None
        self.identity = identity
        """The identity of the state, shared only by copies of it; outputs record it as their owner."""
        self.staged: list[Transaction] | None = None
        """The commits that wait to become one; None: each is made at once."""
        self.replaced: Manifest | None = None
        """The manifest on the disk, while that in force is of a commit that waits."""
        self.checks: object = None
        """What the driver has of the checks of a commit that waits: they are judged with the commit that it becomes one with."""
        self.lock = lock
        self._locks: list[Lock | ObjectLock] = []
        self._made: list[Path] = []

    @property
    def waiting(self) -> dict[Path, Path]:
        """The places of files of outputs that commits which wait to become one have written, by the paths that they will have."""
        return {target: source for each in self.staged or () for source, target in each.unpublished}

    def close(self) -> None:
        """Release the locks; if nothing was ever committed, remove the directories that were made for them."""
        with ExitStack() as last:  # if one fails, the others are released
            if self.manifest is None:
                for directory in self._made:  # the outermost goes last
                    last.callback(try_to, partial(self.files.remove_directory, directory))
            for lock in (self.lock, *self._locks):
                last.callback(lock.release)
            remote: dict[Path, ObjectLock] = {each.path: each for each in self._locks if isinstance(each, ObjectLock)}
            last.callback(one_by_one, lambda path: remote[path].release(), [*remote])  # what was released stays so

    def check_locks(self) -> None:
        """Make sure that no other process has taken over a lock meanwhile (LockedError)."""
        locks = {lock.path: lock for lock in (self.lock, *self._locks)}
        one_by_one(lambda path: locks[path].check(), [*locks])

    def lock_outputs(self, outputs: Iterable[Path], if_locked: IfLocked) -> None:
        """Keep other states from writing to these directories. All that wait take them in one order, so none waits for one that waits for it."""

        def take(path: Path) -> None:
            self._made += self.files.make_directory(path)
            self._locks.append(take_lock(path, self.files, if_locked, self.directory))

        paths = sorted(set(outputs), key=str)
        if if_locked != "wait":
            one_by_one(take, paths)
            return
        for path in paths:
            take(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def drop(self, before: Manifest | None, of_tasks: Collection[Path] = ()) -> None:
        """Remove files that the commit `before` named and the one in force doesn't; search for other unnamed files only if there may be some.

        Attempts at tasks that have failed leave files where others have written the files `of_tasks`.
        """
        now = self.manifest
        assert now is not None, "something was committed"
        held = branch_of(self.directory) or fs(self.directory / "holds").is_dir()
        if before is None or _shape(before) != _shape(now) or held:  # a commit of a branch drops files that are main's
            self.sweep()
            return
        self.files.remove(manifest_path(self.directory, before.number))
        left = left_by_attempts(self.directory, now, of_tasks, self.written) if of_tasks else ()
        self.files.remove_all([*gone(self.directory, before, now), *left])

    def sweep(self, outputs: Iterable[Path] = ()) -> None:
        """Remove every file of the state that the manifest in force doesn't name, and every temporary file of outputs.

        A manifest that another pipeline may be reading by is left, with its files; so is the one on the disk while the one in force waits.
        """
        outputs = {*outputs, *self.written}
        replaced = () if self.replaced is None else (self.replaced.number,)
        if not fs(self.directory / "holds").is_dir():  # there never was a reader
            remove_unnamed(self.files, self.directory, self.manifest, replaced, outputs)
            return
        with holding(self.directory, self.files):
            held = {*read_claims(self.directory).manifests, *replaced}
            remove_unnamed(self.files, self.directory, self.manifest, held, outputs)

    @classmethod
    def open(
        cls,
        directory: Path,
        outputs: Mapping[str, Path],
        *,
        written: Iterable[Path] | None = None,
        anew: Collection[str] = (),
        if_locked: IfLocked = "fail",
        files: Files | None = None,
        clean: int | None = None,
        before: Manifest | None = None,
    ) -> Self:
        """Lock a state, read its manifest, and finish or remove the leavings of a run that died.

        `outputs` are the directories that the pipeline's outputs go to: they must hold the files that the manifest names
        and no other updates, else the sums of their rows would be wrong from here on. `written` are all directories outside
        of the state that are written to (default: these): no file is renamed or removed elsewhere, even if the manifest names it.
        The outputs named in `anew` are about to be written from the beginning: files of these may be gone.
        `clean` is the number of the commit after which this process has left nothing: while it is the newest, the directories are not searched for leavings.
        `before` is the newest manifest, if the caller has read it; without the lock it may be replaced at any time.
        Raises LockedError (75) and StateError (4: damaged, newer, or state and outputs don't belong together).
        """
        files = files or Files()
        # Paths in the manifest are relative, so both sides must be free of links to be compared.
        directory, outputs = real(directory), {name: real(path) for name, path in outputs.items()}
        allowed = frozenset(outputs.values() if written is None else map(real, written))
        before = before or read_newest(
            directory
        )  # an unreadable manifest is refused before anything is made or changed
        if before is None:
            check_directory(directory)
        try:
            check_unlocked(
                directory, before, outputs, anew, published=lambda: before is None or not unpublished(directory, before)
            )
        except StateError:
            newest = read_newest(directory)
            if (newest and newest.number) == (before and before.number):
                raise  # else another run has committed since, and under the lock all is looked at again
        files.make_directory(directory)
        state = cls(directory, take_lock(directory, files, if_locked), files, allowed, new_identity())
        try:
            if before is None:  # from here on the lock marks this as a state
                files.sync(directory / LOCK)
                files.sync_directory(directory)
            state.lock_outputs(outputs.values(), if_locked)
            # Another run may have committed before this one had the lock. One that was read before is not fetched again: in an object store that costs a listing.
            state.manifest = read_newest(directory)
            if state.manifest is not None and state.manifest.identity:
                state.identity = state.manifest.identity
            hide({}, state.identity)
            if state.manifest is not None:
                waiting = unpublished(directory, state.manifest)
                check_renamings(directory, waiting, allowed)
                publish(state.files, waiting)
            # Before anything is swept away: put back, a lost manifest finds its files again, and outputs may be another state's.
            check_outputs(directory, state.manifest, outputs, anew)
            known = state.manifest is not None and state.manifest.number == clean
            if state.manifest is not None:
                appended = {name: path for name, path in outputs.items() if name not in anew}
                check_files(directory, state.manifest, appended, few=known)
            if not known:
                state._clear(outputs)
        except BaseException:
            state.close()
            raise
        return state

    def begin(self, *, batches: int = 0, often: bool = False) -> Transaction:
        """Return the transaction of the next manifest, with about `batches` batches; such commits may come `often`.

        It writes nothing before something is added to it.
        """
        return Transaction(self, bundled=worthwhile(batches, often=often))

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Make one commit of all that are made in the block: they wait until it ends, and are undone if it fails."""
        before: Manifest | None = self.manifest
        staged: list[Transaction] = []
        self.staged, self.replaced = staged, before
        try:
            try:
                yield
            finally:
                self.staged = None
            last = self.manifest
            if staged:
                assert last is not None, "the last commit of the block"
                with Transaction(self, of=staged) as whole:
                    staged = []
                    whole.commit(last)
        except BaseException:
            for each in reversed(staged):
                each.abort()
            if self.manifest is None or not fs(manifest_path(self.directory, self.manifest.number)).exists():
                self.manifest = before
            raise
        finally:
            self.replaced = self.checks = None

    def _clear(self, outputs: Mapping[str, Path]) -> None:
        """Remove the leavings of runs that did not come to their end."""
        if self.lock.sole:
            clear_scratch(self.directory / SPILL, self.files)
            self.sweep(outputs.values())


def _shape(manifest: Manifest) -> tuple[dict[str, int], set[str]]:
    """Return the number of shards of each arrangement, and the paths of the outputs."""
    shards = {identity: len(entry.shards) for identity, entry in manifest.arrangements.items()}
    return shards, {output.path for output in manifest.outputs.values()}


def new_identity() -> str:
    """Return an identity that no other state has."""
    return os.urandom(16).hex()
