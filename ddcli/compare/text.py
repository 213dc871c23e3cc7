"""A comparison as text, coloured where that is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from ddcli.compare.cells import rows_of, texts
from ddcli.compare.matching import ADDED, CHANGED, REMOVED
from ddcli.compare.words import MARKS, column_words, left_out, notes, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.compare.cells import Row
    from ddcli.compare.difference import Difference

COLOURS = {ADDED: "green", REMOVED: "red", CHANGED: "yellow"}
ARROW = " -> "


def text_lines(found: Difference, limit: int | None) -> Iterator[Text]:
    """Give the lines of a comparison, with at most `limit` changed rows (None: all)."""
    wide = max(len(found.a.label), len(found.b.label))
    for name, side in (("A", found.a), ("B", found.b)):
        yield Text(f"{name}  {side.label:<{wide}}  {side.rows:,} rows  ({side.kind})")
    yield Text(f"key  {', '.join(found.compared.key)}" if found.compared.key else "no key: whole rows are compared")
    for line in notes(found):
        yield Text(f"note: {line}")
    if found.columns:
        yield Text("\ncolumns")
        for each in found.columns:
            yield Text(f"  {each.column}: {column_words(each)}", style="yellow")
    yield Text("\nrows")
    counts = {"same": found.same_rows, **{change: found.counts[change] for change in (REMOVED, CHANGED, ADDED)}}
    if not found.compared.key:
        del counts[CHANGED]
    width = max(len(f"{count:,}") for count in counts.values())
    for what, count in counts.items():
        yield Text(f"  {what:<8} {count:>{width},}", style=COLOURS.get(what, "") if count else "")
    if cells := {name: count for name, count in found.cells.items() if count}:
        yield Text("\nchanged cells")
        long = max(map(len, cells))
        for name, count in sorted(cells.items(), key=lambda pair: (-pair[1], pair[0])):
            yield Text(f"  {name:<{long}} {count:>{width},}")
    yield from _rows(found, limit)
    yield Text("")
    yield Text(verdict(found), style="bold green" if found.ok else "bold red")


def _rows(found: Difference, limit: int | None) -> Iterator[Text]:
    if not found.rows or limit == 0:
        return
    first = found.first(limit)
    yield Text("")
    for row in rows_of(first, found.compared, texts):
        yield _row(row)
    if (rest := left_out(first.height, found.changes.height)) is not None:
        yield Text(rest)


def _row(row: Row) -> Text:
    line = Text(f"{MARKS[row.change]} ", style=COLOURS[row.change])
    line.append("  ".join(f"{name}={value}" for name, value in row.key.items()), style="bold")
    if row.key and row.cells:
        line.append("  ")
    for at, (name, value) in enumerate(row.cells.items()):
        line.append("  " if at else "")
        if row.change == CHANGED:
            old, new = value
            line.append(f"{name}: ", style="default")
            line.append(old, style="red").append(ARROW, style="default").append(new, style="green")
        else:
            line.append(f"{name}={value}")
    if row.count > 1:
        line.append(f"  x{row.count:,}", style="bold")
    return line
