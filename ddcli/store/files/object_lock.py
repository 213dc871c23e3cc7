"""The lock of a state in an object store: an object that is created if it doesn't exist, and renewed while it is held.

Such a lock isn't freed when its holder dies, so it is taken over
* at once, if the holder was a process of this machine that is gone;
* else if it has not been renewed for half an hour by the store's clock. Holders renew it every few minutes, and no clock
  whose requests a store accepts is more than a quarter of an hour wrong.

A former holder that was only delayed can do no harm when it continues. Its manifest is created only if none has that number;
its files carry a mark of its own, so it overwrites no other's; and the new holder removes nothing before its own commit, after
which the former can't commit any more. A holder also checks the lock before it commits.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ddcli.errors import DdError, LockedError
from ddcli.store.files.lock_holder import in_use, signature

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.store.files.gate import Files
    from ddcli.store.files.lock_holder import IfLocked
    from ddcli.store.files.objects import ObjectPath

RENEWED = 240.0
EXPIRES = timedelta(minutes=30)
LOOK = 0.5
"""Seconds between looks at a lock that is waited for."""
_held: set[str] = set()
"""The marks of the locks that this process holds."""


class ObjectLock:
    """The held lock of a state in an object store (see `lock.take_lock`)."""

    def __init__(
        self, path: ObjectPath, files: Files, if_locked: IfLocked = "fail", writer: Path | None = None
    ) -> None:
        self.path = path
        self.mark = f"-{uuid.uuid4().hex[:12]}"
        self.sole = True
        self._files = files
        self._signed = signature(writer, mark=self.mark)
        self._held: dict[str, Any] | None = None
        while not files.do("lock", path, self._take):
            if if_locked != "wait":
                raise in_use(path, self._holder(), writer)
            time.sleep(LOOK)
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
