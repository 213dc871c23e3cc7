"""The lock of a state: one run at a time; the error of a second one names the holder of the first.

On this machine `flock` is the lock, so the lock of a dead process is free again; the text in the file
is only for people. A state's file stays. An output's is removed before it is released, as people look into outputs; so a process that has
locked a file checks that it still has its name: a lock on a removed file would keep no other process out.

In an object store the lock is an object that is created if it doesn't exist, and renewed while it is held. It isn't freed when its holder dies, so it
is taken over:

* at once, if the holder was a process of this machine that is gone;
* else if it has not been renewed for half an hour by the store's clock. Holders renew it every few minutes, and no clock
  whose requests a store accepts is more than a quarter of an hour wrong.

A former holder that was only delayed can do no harm when it continues. Its manifest is created only if none has that number;
its files carry a mark of its own, so it overwrites no other's; and the new holder removes nothing before its own commit, after
which the former can't commit any more. A holder also checks the lock before it commits.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from ddcli.errors import DdError, EngineError, LockedError
from ddcli.store.files.access import open_plain, parent
from ddcli.store.files.objects import ObjectPath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ddcli.store.files.gate import Files


IfLocked = Literal["fail", "wait", "skip"]
HIDDEN = ("--where", "--conf")
"""Options with values that a lock's file must not have: conditions on rows that are to be forgotten, settings of Spark with credentials."""


def signature(writer: Path | None = None, **more: str) -> bytes:
    """Return the content of a lock that this process holds: the process, and the state that it writes from."""
    if writer is not None:
        more["state"] = str(writer)
    holder = {
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "command": " ".join(_arguments()),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return json.dumps(holder | more).encode() + b"\n"


def _arguments() -> Iterator[str]:
    """Yield the words of this process's command line, without the values of `HIDDEN` options: a lock's file stays, and others read it."""
    before = ""
    for word in sys.argv:
        name, is_whole, _ = word.partition("=")
        yield "..." if before in HIDDEN else f"{name}=..." if is_whole and name in HIDDEN else word
        before = word


def is_signed(data: bytes) -> bool:
    """Return whether this is the content of a lock of ours."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() >= {"pid", "host", "command", "started"}


def in_use(path: Path, signed: bytes, writer: Path | None = None) -> LockedError:
    """Return the error for a lock that another process has `signed`; `writer` is the state that would write an output."""
    other = "another state"
    try:
        found = json.loads(signed)
        holder = f"process {found['pid']} on {found['host']}, started {found['started']}: {found['command']}"
        other = f"the state at '{found['state']}'" if writer is not None else ""
    except (ValueError, KeyError, TypeError, RecursionError):  # caught between taking the lock and signing it
        holder = "a process that has just started"
    if writer is not None:
        return LockedError(
            f"the output is being written from {other}, and this run's is at '{writer}': {holder}",
            place=str(path),
            hint="give each pipeline's output a directory of its own",
        )
    return LockedError(
        f"the state is in use by {holder}",
        place=str(path),
        hint="wait for it to end, or run with `--if-locked wait`",
    )


RENEWED = 240.0
EXPIRES = timedelta(minutes=30)
LOOK_AT_OBJECT = 0.5
"""Seconds between looks at a lock that is waited for."""
_held: set[str] = set()
"""The marks of the locks that this process holds."""


class ObjectLock:
    """The held lock of a state in an object store (see `lock.take_lock`)."""

    def __init__(
        self, path: ObjectPath, files: Files, if_locked: IfLocked = "fail", writer: Path | None = None
    ) -> None:
        import uuid

        self.path = path
        self.mark = f"-{uuid.uuid4().hex[:12]}"
        self.sole = True
        self._files = files
        self._signed = signature(writer, mark=self.mark)
        self._held: dict[str, Any] | None = None
        while not files.do("lock", path, self._take):
            if if_locked != "wait":
                raise in_use(path, self._holder(), writer)
            time.sleep(LOOK_AT_OBJECT)
        _held.add(self.mark)
        self._ended = threading.Event()
        threading.Thread(target=self._keep, daemon=True).start()

    def check(self) -> None:
        """Make sure that the lock is held, or raise LockedError."""
        try:
            held = self._held is not None and self.path.head()["e_tag"] == self._held["e_tag"]
        except FileNotFoundError:
            held = False
        if not held:
            raise LockedError(
                "another run has taken the lock over, as this one had not renewed it",
                place=str(self.path),
                hint="run again",
            )

    def release(self) -> None:
        """Release the lock for the next run. Done again, it does nothing."""
        if self._ended.is_set():
            return
        self._ended.set()
        try:
            self.check()
            self._files.remove(self.path)
        except DdError:
            return  # it is another's, or goes when it expires
        finally:  # not before: this removal would free the lock of a process that had taken it by then
            _held.discard(self.mark)

    def _take(self) -> bool:
        """Create the lock or take over one without a living holder; return whether it is ours now."""
        try:
            self._held = self.path.put(self._signed, mode="create")
        except FileExistsError:
            pass
        else:
            return True
        try:
            entry, holder = self.path.head(), self._holder()
            gone, expired = _is_gone(holder), datetime.now(UTC) - entry["last_modified"] > EXPIRES
            if not gone and not expired:
                return False
            self._held = self.path.put(self._signed, mode=entry)
        except (FileExistsError, FileNotFoundError):  # another took it over, or it was released meanwhile
            return False
        self.sole = gone
        return True

    def _holder(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def _keep(self) -> None:
        """Renew the lock now and then, until it is released or lost."""
        while not self._ended.wait(RENEWED) and self._held is not None:
            try:
                self._held = self.path.put(self._signed, mode=self._held)
            except FileExistsError:
                self._held = None
            except DdError:
                continue  # the store is out of reach for a moment


def _is_gone(signed: bytes) -> bool:
    """Return whether a lock was signed by a process of this machine that has ended."""
    import socket

    try:
        holder = json.loads(signed)
        pid, mark = int(holder["pid"]), holder["mark"]
        if holder["host"] != socket.gethostname():
            return False
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    if pid == os.getpid():  # our own, or of a process before us that had the same number
        return mark not in _held
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


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
        return ObjectLock(directory / lock_name(writer), files, if_locked, writer)
    return Lock(directory, files, if_locked, writer)


@contextmanager
def locked(directory: Path, files: Files, if_locked: IfLocked = "wait") -> Iterator[Lock | ObjectLock]:
    """Make a directory and hold its lock for a while."""
    files.make_directory(directory)
    lock = take_lock(directory, files, if_locked)
    try:
        yield lock
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
