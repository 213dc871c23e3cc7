"""The time of a run: under `clock: arrival` all updates that it reads have this time.

It is in microseconds of UTC, and strictly after the times of earlier runs. The commit records it: a run that dies leaves none.

A run under a clock that was ahead would move "now" for good. So a time that is stated may not be far ahead of the clock, and a run whose last one is far
ahead of it is refused: the state is reopened, or the clock is set.
"""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.errors import StateError, UsageError
from ddcli.expressions.types import ARRIVAL_TIME
from ddcli.store.time_text import format_time, parse_time

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.engine.times import Frontier
    from ddcli.store.state.entries import Times
    from ddcli.store.state.manifest import Manifest

MICROSECOND = 1000
"""Nanoseconds."""
SECOND = 1_000_000
"""Microseconds."""
NOTED, AHEAD = 60 * SECOND, 86_400 * SECOND
"""The distances that the time of a run may be ahead of the clock without a note, and at all."""


@frozen
class RunClock:
    """The clock of a request: `arrival` if rows have the time of the run that takes them in, and the present time, which the caller may have `given`."""

    arrival: bool = False
    now: int = 0
    given: bool = False


def time_now(given: str | None) -> int:
    """Return the present time, or the time that `--now` states. Raises UsageError if that is more than a day ahead."""
    now = time.time_ns() // MICROSECOND
    if given is None:
        return now
    (at,) = parse_time(given, {"time": ARRIVAL_TIME}, "--now", "clock's")
    if at > now + AHEAD:
        raise UsageError(
            f"`--now {given}` is more than a day ahead of the clock, which is at {_text(now // SECOND * SECOND)}",
            hint="give an earlier time, or set the clock: no later run could have a time before it",
        )
    return at


def refuse_clock(clock: RunClock, manifest: Manifest, pipeline: Path) -> str | None:
    """Return a note if the last run's time is ahead of the clock, under the clock of arrivals. Raises StateError if it is more than a day ahead."""
    if not clock.arrival or clock.given or (first := _first(manifest.upper)) is None:
        return None
    ahead, last = first - 1 - clock.now, _text((first - 1) // SECOND * SECOND)
    if ahead > AHEAD:
        now = _text(clock.now // SECOND * SECOND)
        raise StateError(
            f"the time of the last run, {last}, is more than a day ahead of the clock, which is at {now}",
            place=str(pipeline),
            hint=f"if the clock is behind, set it; if it was ahead then, take back the runs from now on: `dd state reopen {shlex.quote(str(pipeline))} --from '{now}'`",
        )
    return (
        f"the time of the last run, {last}, is ahead of the clock: this one's is just after it"
        if ahead > NOTED
        else None
    )


def run_time(clock: RunClock, manifest: Manifest | None) -> int:
    """Return the time of a run after the last one of a state: that of the clock, but always later than earlier runs'.

    Raises UsageError if `--now` states a time that is not later.
    """
    first = None if manifest is None else _first(manifest.upper)
    if first is None:
        return clock.now
    if clock.now < first and clock.given:
        problem = f"the time of a run is after the last one's: {_text(clock.now)} is before {_text(first)}"
        raise UsageError(problem, hint="give a later time with `--now`, or leave it out")
    return max(clock.now, first)


def last_time(manifest: Manifest) -> int:
    """Return the time of the last run of a state."""
    first = _first(manifest.upper)
    assert first is not None, "a state without a last run"
    return first - 1


def _first(upper: Times) -> int | None:
    """Return the first open time, of times of one coordinate."""
    return upper[0][0] if len(upper) == 1 and len(upper[0]) == 1 else None


def time_text(clock: RunClock, upper: Frontier | None) -> str | None:
    """Return the time of the run that closed the times up to a frontier, as a person reads it; None under another clock."""
    first = _first(upper.elements) if upper and clock.arrival else None
    return None if first is None else _text(first - 1)


def is_due(manifest: Manifest, at: int) -> bool:
    """Return whether something in a state waits for a time that is not after this one."""
    due = manifest.cache.get("due")
    return due is not None and bool(due <= at)


def kept_clock(manifest: Manifest) -> str:
    """Return the clock of a state."""
    return str(manifest.cache.get("clock", "event"))


def _text(at: int) -> str:
    return format_time((at,), [ARRIVAL_TIME])
