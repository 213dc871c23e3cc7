"""Rows at closed times, or far ahead of the clock: the errors that refuse them, and the times to which late ones are moved."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from ddcli.engine.times import Frontier
from ddcli.errors import InputError
from ddcli.store.time_text import format_frontier, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Type
    from ddcli.store.state.entries import Times

LINE = re.compile(r":[0-9]+$")


def late_error(time: Time, row: int, place: str, kinds: Sequence[Type], lower: Times, least: Time) -> InputError:
    """Return the error of a row before the frontier `lower`; opened again from `least`, times take in all that is late."""
    closed = format_frontier(Frontier(lower), kinds) if lower else "the end: the input was closed"
    return InputError(
        f"late rows: {_row(row, place)} has the time {format_time(time, kinds)}, which is before {closed}, up to "
        "where earlier runs have closed the times",
        place=place,
        hint="a new file may only hold rows at times that are still open; leave times open for rows to come with "
        "`--until`, or write `late: quarantine` or `late: arrive` under the input; to open closed times again, "
        f"`dd state reopen PIPELINE --from {shlex.quote(format_time(least, kinds))}`",
    )


def _row(row: int, place: str) -> str:
    """Return a row for people: its place is the line of a text, or only the file."""
    return "this row" if LINE.search(place) else f"row {row} (counted from 0)"


def ahead_error(time: Time, row: int, place: str, kinds: Sequence[Type], present: str) -> InputError:
    """Return the error of a row that is too far ahead; `present` is the present time as text."""
    return InputError(
        f"{_row(row, place)} has the time {format_time(time, kinds)}, which is far ahead of the clock, {present}: "
        "a run would close all times before",
        place=place,
        hint="correct the row, or state how far rows may be ahead, `max_ahead: 30 days` under the input (`none`: any time)",
    )


def is_beyond(time: Time, limits: tuple[int | None, ...]) -> bool:
    """Return whether a coordinate is after its limit."""
    return any(limit is not None and value > limit for value, limit in zip(time, limits, strict=True))


def open_first(lower: Times, upper: Times) -> Times:
    """Return `lower` with an element first that `upper` closes, if there is one: late rows are moved up to the first."""
    closing = Frontier(upper)
    return tuple(sorted(lower, key=closing.less_equal))


def comes_before(lower: Times, upper: Times) -> bool:
    """Return whether the time to which late rows are moved is closed by `upper`."""
    return not lower or not Frontier(upper).less_equal(open_first(lower, upper)[0])
