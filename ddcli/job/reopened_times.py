"""Reopening a state: the times from one on that earlier runs have closed are open again, and rows at them are taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.engine.times import Frontier, box
from ddcli.errors import StateError
from ddcli.store.time_text import parse_time

if TYPE_CHECKING:
    from ddcli.job.request import Request
    from ddcli.store.state.manifest import Manifest


def with_reopened_times(request: Request, manifest: Manifest | None, time: str) -> Request:
    """Return the request that takes its state back to a time, and does nothing else; the same request if that time is open already.

    Raises StateError without a state.
    """
    if manifest is None:
        hint = "no time is closed; the first `dd run` makes a state"
        raise StateError("there is no state here", place=str(request.state), hint=hint)
    from ddcli.job.frontier import find_time

    upper, closed = Frontier(manifest.upper), box(parse_time(time, find_time(manifest), "--from"))
    reopened = closed.meet(upper)
    return request if reopened == upper else request.deciding(reopened=reopened, closes=False)


def notes_on_past(manifest: Manifest | None) -> dict[str, Any]:
    """Return the notes on its past that each commit of a state keeps: how often it was reopened, the arrangements that were built anew, the
    files with rows that were forgotten, and the times from which on inputs have their updates.
    """
    cache = manifest.cache if manifest is not None else {}
    return {name: cache[name] for name in ("reopenings", "built", "forgot", "unclean", "horizons") if name in cache}


def reopenings(manifest: Manifest | None) -> int:
    """Return how often a state was reopened: files that are written after a reopening have names of their own."""
    return int(manifest.cache.get("reopenings", 0)) if manifest is not None else 0
