"""Waiting for commits: a state's manifests are watched, or, in an object store, looked for now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ddcli.store.objects import ObjectPath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ddcli.query.lookup import Lookup

PATIENCE = 1.0
"""Seconds after which one looks by oneself: not every file system tells of changes, and an object store tells of none."""


def commits(lookup: Lookup, count: int | None, timeout: float | None) -> Iterator[None]:
    """Yield at once, and then whenever there is a newer commit, which the lookup is then at: `count` times, or for so many seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    yield
    left = count
    while left is None or left > 0:
        patience = PATIENCE if end is None else min(PATIENCE, end - time.monotonic())
        if patience <= 0:
            return
        wait(lookup.request.state / "manifest", patience)
        if lookup.refresh():
            left = None if left is None else left - 1
            yield


def wait(directory: Path, seconds: float) -> None:
    """Return when something has changed in a directory, or so many seconds have passed."""
    if isinstance(directory, ObjectPath):
        time.sleep(seconds)
        return
    from watchfiles import watch

    milliseconds = max(1, int(seconds * 1000))
    next(watch(directory, rust_timeout=milliseconds, yield_on_timeout=True, debounce=50, step=10, raise_interrupt=True))
