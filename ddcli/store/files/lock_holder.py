"""The holder of a lock: how a process signs it, and the error of a process that finds it held."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from ddcli.errors import LockedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
