"""A comparison as Markdown, for a comment in a pull request or a step summary: a table, details folded, within GitHub's limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.compare.cells import MARKS, column_words, left_out, notes, rows_of, texts, verdict
from ddcli.compare.pairs import ADDED, CHANGED, REMOVED
from ddcli.job.summary import plural
from ddcli.screen import markdown as escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl

    from ddcli.compare.cells import ChangedRow
    from ddcli.compare.difference import Difference

LIMIT = 65_000
"""The most bytes of a comment: GitHub takes 65 536 characters."""
LONGEST = 500
"""The most characters of a cell's text that are shown."""


def markdown(titled: Sequence[tuple[str | None, Difference]], notes: Sequence[str], limit: int | None) -> str:
    """Return `notes`, then each difference under its title, with as many changed rows as fit."""
    first = [(title, found, found.first(limit) if limit != 0 else None) for title, found in titled]
    most = max((frame.height for _, _, frame in first if frame is not None), default=0)
    while True:
        parts = [_section(title, found, None if frame is None else frame.head(most)) for title, found, frame in first]
        text = "\n".join([*_total(titled), *map(escaped, notes), *parts])
        if len(text.encode()) <= LIMIT:
            return text
        if most == 0:
            return (
                text.encode()[:LIMIT].decode(errors="ignore").rpartition("\n")[0]
                + "\n\n(cut: more than a comment holds)\n"
            )
        most //= 2


def _total(titled: Sequence[tuple[str | None, Difference]]) -> list[str]:
    """Return a line that counts the outputs that differ, if there are several."""
    if len(titled) < 2:
        return []
    differ = [found for _, found in titled if not found.same]
    rows = sum(found.rows for found in differ)
    counted = f"; {rows:,} rows" if differ else ""
    return [f"**{len(differ)} of {len(titled)} outputs differ{counted}**", ""]


def _mark(found: Difference) -> str:
    """Return a sign: a difference may be intended, one beyond a bound is not."""
    if found.ok:
        return "✅"
    return "📝" if found.settings.max_changed is None else "❌"


def _section(title: str | None, found: Difference, shown: pl.DataFrame | None) -> str:
    a, b = found.a, found.b
    lines = [
        f"### {_mark(found)} {_code(title) if title else f'{_code(a.label)} → {_code(b.label)}'}",
        "",
        verdict(found),
        "",
    ]
    counts = [
        f"{count:,}" for count in (found.same_rows, *(found.counts[change] for change in (REMOVED, CHANGED, ADDED)))
    ]
    lines += _table(
        ["A rows", "B rows", "same", "removed", "changed", "added"], [[f"{a.rows:,}", f"{b.rows:,}", *counts]]
    )
    for line in notes(found):
        lines += ["", f"> {escaped(line)}"]
    if found.columns:
        lines += [
            "",
            *_table(
                ["column", "difference"], [[_code(each.column), escaped(column_words(each))] for each in found.columns]
            ),
        ]
    if cells := sorted(
        ((count, name) for name, count in found.cells.items() if count), key=lambda pair: (-pair[0], pair[1])
    ):
        lines += ["", *_table(["column", "changed cells"], [[_code(name), f"{count:,}"] for count, name in cells])]
    if shown is not None and shown.height:
        rest = left_out(shown.height, found.changes.height)
        lines += ["", f"<details><summary>{_shown_of(shown.height, found.changes.height)}</summary>", ""]
        lines += _table(["", *map(_code, found.compared.key), "row"], map(_row, rows_of(shown, found.compared, texts)))
        lines += ["", *([rest, ""] if rest else []), "</details>"]
    elif found.rows and (rest := left_out(0, found.changes.height)):
        lines += ["", rest]
    return "\n".join([*lines, ""])


def _shown_of(shown: int, total: int) -> str:
    return f"{total:,} {plural(total, 'change')}" if shown == total else f"{shown:,} of {total:,} changes"


def _row(row: ChangedRow) -> list[str]:
    if row.change == CHANGED:
        cells = [f"{_code(name)}: {_code(old)} → {_code(new)}" for name, (old, new) in row.cells.items()]
    else:
        cells = [f"{_code(name)}: {_code(value)}" for name, value in row.cells.items()]
    times = f" x{row.count:,}" if row.count > 1 else ""
    return [f"{MARKS[row.change]}{times}", *map(_code, row.key.values()), ", ".join(cells)]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _code(text: str) -> str:
    """Return text as code in which Markdown, HTML and `@` have no effect."""
    cut = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return f"<code>{escaped(cut)}</code>"
