"""The stamp of a database in a file, or of a file that is put in place as a whole: it changes with them. Imports no third-party library."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING, Any

from ddcli.store.files.objects import ObjectPath

if TYPE_CHECKING:
    from pathlib import Path

LOGS = ("-wal", ".wal", "-journal")
"""The endings of files beside a database with changes that are not in it yet."""
RACY = 2.0
"""Seconds before a look at a file in which a change of it may not show in its time."""


def stamp_of(file: Path) -> str:
    """Return sizes and times of a database's files; another text each time where one has changed just now."""
    found, now = [], clock.time()
    for path in (file, *(file.with_name(file.name + ending) for ending in LOGS)):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append(f"{stat.st_size}:{stat.st_mtime_ns}")
        if stat.st_mtime > now - RACY:
            found.append(str(clock.time_ns()))
    return " ".join(found)


def size_and_time(file: Path) -> dict[str, Any]:
    """Return the size of a file, and the time of its last change; nothing for an object, as that takes a request."""
    if isinstance(file, ObjectPath):
        return {}
    stat = file.stat()
    return {"size": stat.st_size, "changed": stat.st_mtime_ns}
