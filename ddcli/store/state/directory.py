"""The state directory: it is opened under the lock, and the work of a dead run is finished.

The work that a commit leaves is written in its manifest (see `transaction`), and done here by the process that opens the state next.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from ddcli.errors import StateError
from ddcli.privacy import hide
from ddcli.store.files.access import is_there, real
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import NAME as LOCK
from ddcli.store.files.lock import take_lock
from ddcli.store.state.batch_lists import worthwhile
from ddcli.store.state.contents import (
    SPILL,
    check_directory,
    check_renamings,
    clear_scratch,
    publish,
    unpublished,
)
from ddcli.store.state.manifest import manifest_path, read_newest
from ddcli.store.state.outputs import check_files, check_outputs, check_unlocked
from ddcli.store.state.transaction import LockedDirectory, Transaction, transactions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.manifest import Manifest


class State(LockedDirectory):
    """A state that this process has opened."""

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
        staged: list[object] = []
        self.staged, self.replaced = staged, before
        try:
            try:
                yield
            finally:
                self.staged = None
            last = self.manifest
            if staged:
                assert last is not None, "the last commit of the block"
                with Transaction(self, of=transactions(staged)) as whole:
                    staged = []
                    whole.commit(last)
        except BaseException:
            for each in reversed(transactions(staged)):
                each.abort()
            if self.manifest is None or not is_there(manifest_path(self.directory, self.manifest.number)):
                self.manifest = before
            raise
        finally:
            self.replaced = self.checks = None

    def _clear(self, outputs: Mapping[str, Path]) -> None:
        """Remove the leavings of runs that did not come to their end."""
        if self.lock.sole:
            clear_scratch(self.directory / SPILL, self.files)
            self.sweep(outputs.values())


def new_identity() -> str:
    """Return an identity that no other state has."""
    return os.urandom(16).hex()
