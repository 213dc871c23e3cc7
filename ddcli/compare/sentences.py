"""The results of a comparison in words: the lines that text, Markdown and HTML share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.compare.pairs import ADDED, CHANGED, REMOVED

if TYPE_CHECKING:
    from ddcli.compare.columns import ColumnDifference
    from ddcli.compare.difference import Difference

MARKS = {ADDED: "+", REMOVED: "-", CHANGED: "~"}


def column_words(each: ColumnDifference) -> str:
    """Return the difference of a column in words."""
    if each.change == "type":
        return f"{each.a} in A, {each.b} in B, {each.note}"
    return f"only in {'A' if each.change == 'only_a' else 'B'} ({each.a or each.b}), {each.note}"


def verdict(found: Difference) -> str:
    """Return the result in one line."""
    if found.same and found.columns:
        return "same, but for types, which are ignored"
    if found.same:
        return "same"
    what = [f"{found.counts[change]:,} {change}" for change in (REMOVED, CHANGED, ADDED) if found.counts[change]]
    if columns := found.counting_columns:
        what.append(f"{len(columns)} column{'s' if len(columns) > 1 else ''}")
    allowed = found.settings.max_changed
    bound = ""
    if allowed is not None and found.ok:
        bound = f"; {found.rows:,} rows are no more than --max-changed {allowed}"
    elif allowed is not None and found.rows:
        fits = allowed.allows(found.rows, found.a.rows)
        bound = (
            f"; --max-changed {allowed} is about rows, not columns"
            if fits
            else f"; {found.rows:,} rows are more than --max-changed {allowed}"
        )
    return f"different: {', '.join(what)}{bound}"


def notes(found: Difference) -> list[str]:
    """Return the notes on a comparison: on its sides, and on duplicate keys."""
    notes = list(found.notes)
    for name, side in (("A", found.a), ("B", found.b)):
        if side.repeated:
            many, whose = (f"{side.repeated:,} keys are", "their") if side.repeated > 1 else ("1 key is", "its")
            notes.append(f"{many} in {name} more than once: {whose} rows are paired in order")
    return notes


def left_out(shown: int, total: int) -> str | None:
    """Return a note on the changes that are not shown; None if all are."""
    return None if shown >= total else f"{total - shown:,} more not shown: see --limit"
