"""The wait until a log is complete up to a time, or has closed a time that is young enough."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from ddcli.engine.times import Frontier, box
from ddcli.errors import InputError, UsageError
from ddcli.sources.change_log import ChangeLog
from ddcli.store.files.access import is_there
from ddcli.store.files.changes import Waker
from ddcli.store.files.objects import locate
from ddcli.store.log.progress import PROGRESS
from ddcli.store.time_text import format_frontier

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 1.0
"""Seconds between two looks, if the system reports no change."""
AGE = re.compile(r"\d{1,6}\s*[smhdw]")
CALENDAR = ("date", "datetime")


def wait(
    log: str, base: Path, complete: str | None, newer_than: str | None, most: float | None, say: Callable[[str], None]
) -> bool:
    """Return True once the log has closed the times before `complete`, and those that are older than `newer_than`; False after `most` seconds.

    A log that does not exist yet is waited for. `say` gets the obstacle once it is known, if the wait isn't over at once.
    """
    if complete is None and newer_than is None:
        hint = "`--complete T` waits for the times before T, `--newer-than 2h` for times that are at most as old"
        raise UsageError("the wait has no end", hint=hint)
    if newer_than is not None and not AGE.fullmatch(newer_than):
        raise UsageError(f"'{newer_than}' is no age", hint="write it as 90s, 30m, 2h, 1d or 1w")
    wanted = [
        *([] if complete is None else [("--complete", complete)]),
        *([] if newer_than is None else [("--newer-than", f"-{newer_than}")]),
    ]
    place, waker, began, told = locate(base, log), Waker(PATIENCE), time.monotonic(), ""
    while True:
        missing = _missing(log, base, place, wanted)
        if missing is None:
            return True
        left = None if most is None else most - (time.monotonic() - began)
        if missing != told:
            say(missing)
            told = missing
        if left is not None and left <= 0:
            return False
        waker.wait([place, place.parent], left)


def _missing(log: str, base: Path, place: Path, wanted: list[tuple[str, str]]) -> str | None:
    """Return the times that a log still lacks, in words; None if it has all."""
    if not is_there(place / PROGRESS):
        return f"{log}: no run has written the log yet"
    try:
        found = ChangeLog.open(log, base)
    except InputError as error:
        if is_there(place / PROGRESS) and "no updates yet" not in error.problem:
            raise
        return f"{log}: {error.problem}"
    assert found.progress is not None, "it is there"
    for option, text in wanted:
        kinds = list(found.time.values())
        if option == "--newer-than" and any(kind.kind not in CALENDAR for kind in kinds):
            hint = "`--complete T` waits for a time of the log's own"
            raise UsageError(
                f"{option}: the log's time, {', '.join(map(str, kinds))}, has no age", place=log, hint=hint
            )
        frontier = box(found.at(",".join([text] * len(kinds)) if option == "--newer-than" else text, option))
        if not all(frontier.less_equal(element) for element in found.progress.elements):
            closed = format_frontier(Frontier(found.progress.elements), kinds)
            return f"{log}: the times before {closed} are closed"
    return None
