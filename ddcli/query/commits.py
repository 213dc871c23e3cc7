"""Waiting for commits: a state's manifests are watched, or, in an object store, looked for now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ddcli.store.files.changes import Waker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.query.lookup import Lookup

PATIENCE = 1.0
"""Seconds after which one looks by oneself: not every file system tells of changes, and an object store tells of none."""


def commits(lookup: Lookup, count: int | None, timeout: float | None) -> Iterator[None]:
    """Yield at once, and then whenever there is a newer commit, which the lookup is then at: `count` times, or for so many seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    yield
    left, waker = count, Waker(PATIENCE)
    while left is None or left > 0:
        rest = None if end is None else end - time.monotonic()
        if rest is not None and rest <= 0:
            return
        waker.wait([lookup.request.state / "manifest"], rest)
        if lookup.refresh():
            left = None if left is None else left - 1
            yield
