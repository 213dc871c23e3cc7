"""The lock of a state: one run at a time, and a second one is told which run it met.

`flock` is the lock, so one whose process is gone is free again whatever the file says; what stands in the file
is only for people. The file is never removed: a lock on a removed file would lock nobody out.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from ddcli.errors import LockedError
from ddcli.store.objects import ObjectPath

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.store.files import Files
    from ddcli.store.object_lock import ObjectLock

IfLocked = Literal["fail", "wait", "skip"]


NAME = "LOCK"


def take_lock(state: Path, files: Files, if_locked: IfLocked = "fail") -> Lock | ObjectLock:
    """Return the held lock of a state. Raises LockedError (exit code 75) where another run holds it.

    `wait` waits for it instead. `skip` raises as `fail` does: what is skipped, and with which exit code, is up to who runs.
    """
    if isinstance(state, ObjectPath):
        from ddcli.store.object_lock import ObjectLock

        return ObjectLock(state / NAME, files, if_locked)
    return Lock(state, files, if_locked)


class Lock:
    """The held lock of a state directory (see `take_lock`)."""

    sole = True
    """Whether nobody else can be writing to the state, even someone who held the lock before."""
    mark = ""
    """What names of files that aren't committed carry, so that nobody else writes to them: nobody else does."""

    def __init__(self, state: Path, files: Files, if_locked: IfLocked = "fail") -> None:
        self.path = state / NAME
        # Opened and locked by hand, as nothing durable hangs on it; closed on exec, so a child doesn't keep it.
        self._descriptor = files.do("open", self.path, lambda: os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644))
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if if_locked == "wait" else fcntl.LOCK_NB))
            files.do("write", self.path, self._sign)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 1 << 16, 0)
            self.release()
            raise in_use(self.path, holder) from None
        except BaseException:  # interrupted while waiting, or no room to sign
            self.release()
            raise

    def release(self) -> None:
        """Let the next run have it. Done again, it does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def check(self) -> None:
        """Make sure that the lock is held: it is as long as the process lives."""

    def _sign(self) -> None:
        data = signature()
        os.pwrite(self._descriptor, data, 0)  # over the former holder's, so that no reader finds the file empty
        os.ftruncate(self._descriptor, len(data))


def signature(**more: str) -> bytes:
    """Return who this process is, as a lock says it."""
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": " ".join(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return json.dumps(holder | more).encode() + b"\n"


def in_use(path: Path, signed: bytes) -> LockedError:
    """Return the error for a lock that another holds who has signed like this."""
    try:
        found = json.loads(signed)
        holder = f"process {found['pid']} on {found['host']}, started {found['started']}: {found['command']}"
    except (ValueError, KeyError, TypeError):  # caught between taking the lock and signing it
        holder = "a process that has just started"
    return LockedError(
        f"the state is in use by {holder}",
        place=str(path),
        hint="wait for it to end, or run with `--if-locked wait`",
    )
