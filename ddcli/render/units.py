"""Numbers and texts of reports in few letters, and their width on a terminal or in a fixed-width font."""

from __future__ import annotations

import textwrap
import unicodedata
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from ddcli.job.summary import size_of
from ddcli.screen import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.engine.counts import RowCounts
    from ddcli.render.view import HeldState, LoopView, OperatorView


def cells(text: str) -> int:
    """Return the width of a text in columns: East Asian letters and pictures take two, marks on letters none.

    >>> cells("añ"), cells("日本")
    (2, 4)
    """
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def clipped(text: str, most: int) -> str:
    """Cut a text to at most this many columns, with an ellipsis if it is longer.

    >>> clipped("a long text", 6), clipped("short", 6)
    ('a lon…', 'short')
    """
    text = visible(text)
    if cells(text) <= most:
        return text
    widths = list(accumulate(map(cells, text)))
    return text[: bisect_right(widths, most - 1)] + "…"


def wrapped(texts: Iterable[str], most: int, lines: int) -> list[str]:
    """Wrap texts into at most `lines` lines of `most` columns, each text on lines of its own."""
    found = [line for text in texts for line in textwrap.wrap(visible(text), most) or [""] if text]
    if len(found) > lines:
        found = [*found[: lines - 1], found[lines - 1] + " …"]
    return [clipped(line, most) for line in found]


def amount(count: float) -> str:
    """Return a number for people, in a few letters.

    >>> amount(999), amount(12_345), amount(1_500_000)
    ('999', '12.3 k', '1.5 M')
    """
    if count < 1000:
        return f"{count:.0f}"
    for unit in ("k", "M", "G"):
        count /= 1000
        if count < 999.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} T"


def duration(seconds: float) -> str:
    """Return a time for people.

    >>> duration(0.000_012), duration(0.0345), duration(3.21), duration(75), duration(7260)
    ('12 µs', '34.5 ms', '3.21 s', '1:15 min', '2:01 h')
    """
    if seconds < 0.000_999_5:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def flow(count: RowCounts, operator: OperatorView) -> str:
    """Return the flow of an operator: rows in, rows out, and the numbers of insertions and retractions among these.

    Then the expected number of rows, except for arrangements; and the number of earlier rows that it read for each row in.
    """
    into = f"{amount(count.rows_in)} → " if count.rows_in else ""
    read = ""
    if count.rows_read and count.rows_in:
        each = count.rows_read / count.rows_in
        read = f", read {amount(count.rows_read)}, {amount(each) if each >= 100 else f'{each:.1f}'} a row"
    known = operator.estimated is not None and operator.kind not in ("input", "arrange")
    expected = f" ({amount(operator.estimated or 0)} expected)" if known else ""
    return f"{into}{amount(count.rows_out)} rows{expected}  +{amount(count.inserted)} -{amount(count.retracted)}{read}"


def spent(count: RowCounts | None, held: HeldState | None) -> str:
    """Return the cost of an operator: its seconds, its part of the state, and the rows of it that were scanned for keys."""
    time = duration(count.seconds) if count and count.seconds else ""
    state = f"state {amount(held.rows)} rows, {size_of(held.bytes)}" if held else ""
    scanned = f"scanned the keys of {amount(count.rows_scanned)}" if count and count.rows_scanned else ""
    return " · ".join(part for part in (time, state, scanned) if part)


def loop_title(loop: LoopView, count: RowCounts | None) -> str:
    """Return the heading of a loop: its variables, its bound of rounds, and the turns and time of its body."""
    title = f"loop {', '.join(loop.variables)}"
    if loop.bound is not None:
        title += f", {loop.bound} rounds"
    if count and count.turns:
        title += f" · {amount(count.turns)} {'turn' if count.turns == 1 else 'turns'} · {duration(count.seconds)}"
    return title
