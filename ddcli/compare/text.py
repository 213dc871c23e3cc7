"""A comparison as text, coloured on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.compare.cells import MARKS, column_words, left_out, notes, plain, rows_of, texts, verdict
from ddcli.compare.pairs import ADDED, CHANGED, REMOVED
from ddcli.screen import json_text, rich_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from ddcli.compare.cells import ChangedRow
    from ddcli.compare.difference import Difference

COLOURS = {ADDED: "green", REMOVED: "red", CHANGED: "yellow"}
ARROW = " -> "


def text_lines(found: Difference, limit: int | None) -> Iterator[Text]:
    """Yield the lines of a comparison, with at most `limit` changed rows (None: all)."""
    labels = [visible(side.label) for side in (found.a, found.b)]
    wide = max(map(len, labels))
    for name, label, side in zip(("A", "B"), labels, (found.a, found.b), strict=True):
        yield rich_text(f"{name}  {label:<{wide}}  {side.rows:,} rows  ({side.kind})")
    yield rich_text(
        f"key  {', '.join(found.compared.key)}" if found.compared.key else "no key: whole rows are compared"
    )
    for line in notes(found):
        yield rich_text(f"note: {line}")
    if found.columns:
        yield from (rich_text(""), rich_text("columns"))
        for each in found.columns:
            yield rich_text(f"  {each.column}: {column_words(each)}", style="yellow")
    yield from (rich_text(""), rich_text("rows"))
    counts = {"same": found.same_rows, **{change: found.counts[change] for change in (REMOVED, CHANGED, ADDED)}}
    if not found.compared.key:
        del counts[CHANGED]
    width = max(len(f"{count:,}") for count in counts.values())
    for what, count in counts.items():
        yield rich_text(f"  {what:<8} {count:>{width},}", style=COLOURS.get(what, "") if count else "")
    if cells := {visible(name): count for name, count in found.cells.items() if count}:
        yield from (rich_text(""), rich_text("changed cells"))
        long = max(map(len, cells))
        for name, count in sorted(cells.items(), key=lambda pair: (-pair[1], pair[0])):
            yield rich_text(f"  {name:<{long}} {count:>{width},}")
    yield from _rows(found, limit)
    yield rich_text("")
    yield rich_text(verdict(found), style="bold green" if found.ok else "bold red")


def _rows(found: Difference, limit: int | None) -> Iterator[Text]:
    if not found.rows or limit == 0:
        return
    first = found.first(limit)
    yield rich_text("")
    for row in rows_of(first, found.compared, texts):
        yield _row(row)
    if (rest := left_out(first.height, found.changes.height)) is not None:
        yield rich_text(rest)


def _row(row: ChangedRow) -> Text:
    line = rich_text(f"{MARKS[row.change]} ", style=COLOURS[row.change])
    line.append_text(rich_text("  ".join(f"{name}={value}" for name, value in row.key.items()), "bold"))
    if row.key and row.cells:
        line.append("  ")
    for at, (name, value) in enumerate(row.cells.items()):
        line.append("  " if at else "")
        if row.change == CHANGED:
            old, new = value
            line.append_text(rich_text(f"{name}: ", "default"))
            line.append_text(rich_text(old, "red")).append(ARROW, style="default").append_text(rich_text(new, "green"))
        else:
            line.append_text(rich_text(f"{name}={value}"))
    if row.count > 1:
        line.append_text(rich_text(f"  x{row.count:,}", "bold"))
    return line


def to_json(found: Difference, limit: int | None) -> dict[str, Any]:
    """Return the difference as JSON, with at most `limit` changed rows (None: all)."""
    first = found.first(limit) if limit != 0 else None
    rows = [] if first is None else [row.to_json() for row in rows_of(first, found.compared, plain)]
    allowed = found.settings.max_changed
    return {
        "same": found.same,
        "ok": found.ok,
        "verdict": verdict(found),
        "a": found.a.to_json(),
        "b": found.b.to_json(),
        "key": list(found.compared.key) or None,
        "max_changed": None if allowed is None else str(allowed),
        "rows": {"same": found.same_rows, **{change: found.counts[change] for change in (REMOVED, CHANGED, ADDED)}},
        "cells": {name: count for name, count in found.cells.items() if count},
        "columns": [
            {"column": each.column, "change": each.change, "a": each.a, "b": each.b, "note": each.note}
            for each in found.columns
        ],
        "notes": notes(found),
        "changes": rows,
        "changes_left_out": found.changes.height - len(rows),
    }


def json_lines(found: Difference, limit: int | None, output: str | None = None) -> Iterator[str]:
    """Yield a line for each changed row, in order of the key; in no order if all are wanted and don't fit in memory.

    `output` is the name of the pipeline's output that is compared.
    """
    named = {} if output is None else {"output": output}
    streams = limit is None and not found.changes.fits
    for frame in found.changes.frames() if streams else (found.first(limit),):
        for row in rows_of(frame, found.compared, plain):
            yield json_text({**named, **row.to_json()})
