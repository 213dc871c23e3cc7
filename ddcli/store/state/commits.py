"""The wait for commits: a state's manifests are watched, or, in an object store, listed now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ddcli.store.files.changes import Waker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 1.0
"""Seconds between looks: not every file system notifies of changes, and an object store never does."""


def commits(state: Path, refresh: Callable[[], bool], count: int | None, timeout: float | None) -> Iterator[None]:
    """Yield at once, and then whenever `refresh` returns that it has moved to a newer commit: `count` times, or for `timeout` seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    yield
    left, waker = count, Waker(PATIENCE)
    while left is None or left > 0:
        rest = None if end is None else end - time.monotonic()
        if rest is not None and rest <= 0:
            return
        waker.wait([state / "manifest"], rest)
        if refresh():
            left = None if left is None else left - 1
            yield
