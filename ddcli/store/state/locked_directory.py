"""A directory that this process alone writes to: its locks, the current manifest, and the removal of files that no manifest names."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

from ddcli.errors import EngineError
from ddcli.store.files.access import is_directory
from ddcli.store.files.lock import Lock, take_lock
from ddcli.store.state.contents import gone, left_by_attempts, remove_unnamed
from ddcli.store.state.manifest import Manifest, manifest_path
from ddcli.store.state.names import branch_of
from ddcli.store.state.shared_arrangements import holding, read_claims

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path
    from types import TracebackType

    from ddcli.store.files.gate import Files
    from ddcli.store.files.lock import IfLocked, ObjectLock


class LockedDirectory:
    """A state under its lock: the newest manifest (`manifest`, None before the first commit) is in force."""

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
        self.staged: list[object] | None = None
        """The commits that wait to become one; None: each is made at once."""
        self.lock = lock
        self._locks: list[Lock | ObjectLock] = []
        self._made: list[Path] = []

    def close(self) -> None:
        """Release the locks; if nothing was ever committed, remove the directories that were made for them."""
        with ExitStack() as last:  # if one fails, the others are released
            if self.manifest is None:
                for directory in self._made:  # the outermost goes last
                    last.callback(try_to, partial(self.files.remove_directory, directory))
            for lock in (self.lock, *self._locks):
                last.callback(lock.release)

    def check_locks(self) -> None:
        """Make sure that no other process has taken over a lock meanwhile (LockedError)."""
        for lock in (self.lock, *self._locks):
            lock.check()

    def lock_outputs(self, outputs: Iterable[Path], if_locked: IfLocked) -> None:
        """Keep other states from writing to these directories. All take them in one order, so none waits for one that waits for it."""
        for path in sorted(set(outputs), key=str):
            self._made += self.files.make_directory(path)
            self._locks.append(take_lock(path, self.files, if_locked, self.directory))

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
        held = branch_of(self.directory) or is_directory(self.directory / "holds")
        if before is None or _shape(before) != _shape(now) or held:  # a commit of a branch drops files that are main's
            self.sweep()
            return
        self.files.remove(manifest_path(self.directory, before.number))
        left = left_by_attempts(self.directory, now, of_tasks, self.written) if of_tasks else ()
        self.files.remove_all([*gone(self.directory, before, now), *left])

    def sweep(self, outputs: Iterable[Path] = ()) -> None:
        """Remove every file of the state that the manifest in force doesn't name, and every temporary file of outputs.

        A manifest that another pipeline may be reading by is left, with its files.
        """
        outputs = {*outputs, *self.written}
        if not is_directory(self.directory / "holds"):  # there never was a reader
            remove_unnamed(self.files, self.directory, self.manifest, frozenset(), outputs)
            return
        with holding(self.directory, self.files):
            remove_unnamed(self.files, self.directory, self.manifest, read_claims(self.directory).manifests, outputs)


def _shape(manifest: Manifest) -> tuple[dict[str, int], set[str]]:
    """Return the number of shards of each arrangement, and the paths of the outputs."""
    shards = {identity: len(entry.shards) for identity, entry in manifest.arrangements.items()}
    return shards, {output.path for output in manifest.outputs.values()}


def try_to(action: Callable[[], None]) -> None:
    """Do an action that may fail: the first error is the one to report."""
    try:
        action()
    except EngineError:
        return
