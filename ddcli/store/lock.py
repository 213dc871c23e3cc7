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

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.store.files import Files

IfLocked = Literal["fail", "wait", "skip"]


class Lock:
    """The held lock of a state directory. Raises LockedError (exit code 75) where another run holds it.

    `wait` waits for it instead. `skip` raises as `fail` does: what is skipped, and with which exit code, is up to who runs.
    """

    def __init__(self, state: Path, files: Files, if_locked: IfLocked = "fail") -> None:
        self.path = state / "LOCK"
        # Opened and locked by hand, as nothing durable hangs on it; closed on exec, so a child doesn't keep it.
        self._descriptor = files.do("open", self.path, lambda: os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644))
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if if_locked == "wait" else fcntl.LOCK_NB))
            files.do("write", self.path, self._sign)
        except BlockingIOError:
            holder = self._holder()
            self.release()
            raise LockedError(
                f"the state is in use by {holder}",
                place=str(self.path),
                hint="wait for it to end, or run with `--if-locked wait`",
            ) from None
        except BaseException:  # interrupted while waiting, or no room to sign
            self.release()
            raise

    def release(self) -> None:
        """Let the next run have it. Done again, it does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _sign(self) -> None:
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": " ".join(sys.argv),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        data = json.dumps(holder).encode() + b"\n"
        os.pwrite(self._descriptor, data, 0)  # over the former holder's, so that no reader finds the file empty
        os.ftruncate(self._descriptor, len(data))

    def _holder(self) -> str:
        try:
            holder = json.loads(os.pread(self._descriptor, 1 << 16, 0))
            return f"process {holder['pid']} on {holder['host']}, started {holder['started']}: {holder['command']}"
        except (ValueError, KeyError, TypeError):  # caught between taking the lock and signing it
            return "a process that has just started"
