"""The lock of a state: one run at a time; the error of a second one names the first.

`flock` is the lock, so the lock of a dead process is free again; the text in the file
is only for people. A state's file stays. An output's is removed before it is released, as people look into outputs; so a process that has
locked a file checks that it still has its name: a lock on a removed file would keep no other process out.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ddcli.errors import DdError, EngineError
from ddcli.store.files.access import open_plain, parent
from ddcli.store.files.lock_holder import in_use, signature
from ddcli.store.files.objects import ObjectPath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ddcli.store.files.gate import Files
    from ddcli.store.files.lock_holder import IfLocked
    from ddcli.store.files.object_lock import ObjectLock


NAME = "LOCK"
OF_OUTPUT = "_lock"
LOCAL = "put the state and its outputs on a file system with locks (`flock`), or into an object store"
LOOK = 0.01
"""Seconds between looks at a lock that is waited for."""


def take_lock(
    directory: Path, files: Files, if_locked: IfLocked = "fail", writer: Path | None = None
) -> Lock | ObjectLock:
    """Return the held lock of a state, or of an output's directory for the state that is its `writer`.

    Raises LockedError (exit code 75) where another run holds it. `wait` waits for it instead. `skip` raises as `fail` does: the
    caller decides what to skip, and the exit code.
    """
    if isinstance(directory, ObjectPath):
        from ddcli.store.files.object_lock import ObjectLock

        return ObjectLock(directory / lock_name(writer), files, if_locked, writer)
    return Lock(directory, files, if_locked, writer)


@contextmanager
def locked(directory: Path, files: Files) -> Iterator[None]:
    """Make a directory and hold its lock for a moment; other processes that want it wait."""
    files.make_directory(directory)
    lock = take_lock(directory, files, "wait")
    try:
        yield
    finally:
        lock.release()


def lock_name(writer: Path | None) -> str:
    """Return the name of a state's lock, or an output's: readers of a log pass over names like that."""
    return NAME if writer is None else OF_OUTPUT


class Lock:
    """The held lock of a directory (see `take_lock`)."""

    sole = True
    """True: no other process can be writing to the state, not even an earlier holder of the lock."""
    mark = ""
    """A part of the names of files that aren't committed, so that no other process writes to them: empty, as none does."""

    def __init__(self, directory: Path, files: Files, if_locked: IfLocked = "fail", writer: Path | None = None) -> None:
        self.path = directory / lock_name(writer)
        self._files = files
        self._writer = writer
        self._descriptor = -1
        while not self._has_its_name():
            self._close()
            self._lock(if_locked)

    def _lock(self, if_locked: IfLocked) -> None:
        # Opened and locked directly, as nothing durable depends on it; closed on exec, so that a child doesn't keep it.
        descriptor = self._files.do("open", self.path, lambda: open_plain(self.path, os.O_RDWR | os.O_CREAT, 0o644))
        self._descriptor = descriptor
        try:
            self._take(if_locked)
            self._files.do("write", self.path, self._sign)
        except BaseException:  # held by another, interrupted while waiting, or no room to sign
            self._close()
            raise

    def _take(self, if_locked: IfLocked) -> None:
        # Never blocked in a call: a signal that comes just before one, or to another thread, does not end it.
        while True:
            try:
                return fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            except OSError as error:
                problem = f"the file system has no lock for the file: {error.strerror or error}"
                raise EngineError(problem, place=str(self.path), hint=LOCAL) from None
            if if_locked != "wait":
                raise in_use(self.path, os.pread(self._descriptor, 1 << 16, 0), self._writer)
            time.sleep(LOOK)

    def _has_its_name(self) -> bool:
        """Return whether the locked file still has its name, so that the next process meets this lock."""
        if self._descriptor < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.path.stat(follow_symlinks=False))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock for the next run. Done again, it does nothing."""
        if self._writer is not None and self._has_its_name():
            with suppress(OSError, DdError), parent(self.path) as directory:  # a file that stays is no lock
                os.unlink(self.path.name, dir_fd=directory)
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def check(self) -> None:
        """Make sure that the lock is held: it is as long as the process lives."""

    def _sign(self) -> None:
        data = signature(self._writer)
        os.pwrite(self._descriptor, data, 0)  # over the former holder's, so that no reader finds the file empty
        os.ftruncate(self._descriptor, len(data))
