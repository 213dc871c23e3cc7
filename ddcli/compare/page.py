"""A comparison as one HTML page, and the values and counts of a comparison as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.compare.pairs import ADDED, CHANGE, CHANGED, COUNT, IS, KEY, NEW, OLD, REMOVED
from ddcli.dataclass import frozen
from ddcli.expressions.types import from_polars
from ddcli.privacy import preview_column
from ddcli.render.rows import as_text
from ddcli.screen import json_number, json_value, json_visible, markup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ddcli.compare.columns import ColumnDifference, Compared
    from ddcli.compare.diff import Difference


NULL = "null"


@frozen
class ChangedRow:
    """One change: the cells of the key, and the other cells; if `change` is `changed`, only those that changed, as pairs (old, new)."""

    change: str
    count: int
    key: dict[str, Any]
    cells: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON."""
        key = {"key": self.key} if self.key else {}
        if self.change != CHANGED:
            return {"change": self.change, "count": self.count, **key, "row": self.cells}
        cells = {name: {"old": old, "new": new} for name, (old, new) in self.cells.items()}
        return {"change": self.change, "count": self.count, **key, "cells": cells}


def rows_of(changes: pl.DataFrame, compared: Compared, cell: Callable[[pl.Series], list[Any]]) -> Iterator[ChangedRow]:
    """Yield changes one by one; `cell` converts a column's values: `texts` or `plain`."""

    def cells_of(prefix: str, name: str) -> list[Any]:
        return cell(preview_column(name, changes[prefix + name]))

    key = {name: cells_of(KEY, name) for name in compared.key}
    old, new = ({name: cells_of(prefix, name) for name in compared.values} for prefix in (OLD, NEW))
    flags = {name: changes[IS + name].to_list() for name in compared.values}
    for at, (change, count) in enumerate(zip(changes[CHANGE].to_list(), changes[COUNT].to_list(), strict=True)):
        if change == CHANGED:
            cells = {name: (old[name][at], new[name][at]) for name in compared.values if flags[name][at]}
        else:
            cells = {name: (new if change == ADDED else old)[name][at] for name in compared.values}
        yield ChangedRow(change, count, {name: values[at] for name, values in key.items()}, cells)


def texts(column: pl.Series) -> list[str]:
    """Return values as text for a person: strings in quotes, so that they can't be mistaken for null or a number."""
    if isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum) or column.dtype.is_nested():
        return [NULL if value is None else _quoted(value) for value in column.to_list()]
    return _as_text(column).fill_null(NULL).to_list()


def plain(column: pl.Series) -> list[Any]:
    """Return values for JSON: numbers as numbers, decimals and values of types that JSON lacks as text."""
    dtype = column.dtype
    if dtype.is_float():
        return [None if value is None else json_number(value) for value in column.to_list()]
    if isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Boolean | pl.Null) or dtype.is_integer():
        return column.to_list()
    if dtype.is_nested():
        return [json_value(value) for value in column.to_list()]
    return _as_text(column).to_list()


def _as_text(column: pl.Series) -> pl.Series:
    return column.cast(pl.String) if from_polars(column.dtype, nullable=True) is None else as_text(column)


def _quoted(value: Any) -> str:
    """Return a value as JSON of visible characters only."""
    return json_visible(json.dumps(json_value(value), ensure_ascii=False))


MARKS = {ADDED: "+", REMOVED: "-", CHANGED: "~"}


def column_words(each: ColumnDifference) -> str:
    """Return the difference of a column in words."""
    if each.change == "type":
        return f"{each.a} in A, {each.b} in B, {each.note}"
    return f"only in {'A' if each.change == 'only_a' else 'B'} ({each.a or each.b}), {each.note}"


def verdict(found: Difference) -> str:
    """Return the result in one line."""
    if found.same and found.columns:
        return "same, except for ignored types"
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


STYLE = """
:root { color-scheme: light dark; --line: #8884; --removed: #d1242f22; --added: #1a7f3722; --changed: #bf870022 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
table { border-collapse: collapse; margin: .8rem 0; display: block; overflow-x: auto }
th, td { border: 1px solid var(--line); padding: .2rem .6rem; text-align: left; vertical-align: top }
td { font-family: ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
.removed, del { background: var(--removed) } .added, ins { background: var(--added) } .changed { background: var(--changed) }
del, ins { text-decoration: none; padding: 0 .2rem } .ok { color: #1a7f37 } .no { color: #d1242f }
"""


SHOWN = 20
"""The most changed rows of a difference in another page."""


def page(titled: Sequence[tuple[str | None, Difference]], notes: Sequence[str], limit: int | None) -> str:
    """Return the page: `notes`, then each difference under its title, with at most `limit` changed rows (None: all)."""
    lines = [f"<p>{markup(line)}</p>" for line in notes]
    for title, found in titled:
        lines += _section(title, found, limit)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>dd diff</title><style>{STYLE}</style>'
    return "\n".join(["<!doctype html>", f'<html lang="en"><head>{head}</head><body>', *lines, "</body></html>", ""])


def fragment(found: Difference) -> str:
    """Return a difference as a part of another page, with the first of its changed rows."""
    return "\n".join(_section(None, found, SHOWN))


def _section(title: str | None, found: Difference, limit: int | None) -> list[str]:
    a, b = found.a, found.b
    lines = [f"<h2>{markup(title or f'{a.label} → {b.label}')}</h2>"]
    lines.append(f'<p class="{"ok" if found.ok else "no"}"><strong>{markup(verdict(found))}</strong></p>')
    sides = [[name, side.label, side.kind, f"{side.rows:,}"] for name, side in (("A", a), ("B", b))]
    lines.append(_table(["", "side", "what it is", "rows"], sides))
    lines.append(
        f"<p>{markup('key: ' + ', '.join(found.compared.key) if found.compared.key else 'no key: whole rows are compared')}</p>"
    )
    lines += [f"<p>{markup(line)}</p>" for line in notes(found)]
    lines.append(_table([*found.tally], [[f"{count:,}" for count in found.tally.values()]]))
    if found.columns:
        lines.append(_table(["column", "difference"], [[each.column, column_words(each)] for each in found.columns]))
    if cells := [[name, f"{count:,}"] for name, count in found.changed_cells]:
        lines.append(_table(["column", "changed cells"], cells))
    if found.rows and limit != 0:
        first = found.first(limit)
        head = "".join(f"<th>{markup(name)}</th>" for name in ("", *found.compared.names))
        rows = "\n".join(_row(row, found.compared.names) for row in rows_of(first, found.compared, texts))
        lines.append(f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>")
        lines += [f"<p>{rest}</p>"] if (rest := left_out(first.height, found.changes.height)) else []
    return lines


def _row(row: ChangedRow, names: Sequence[str]) -> str:
    cells = [f"{row.change}{f' x{row.count:,}' if row.count > 1 else ''}"]
    for name in names:
        value = row.key.get(name, row.cells.get(name))
        if row.change == CHANGED and name in row.cells:
            old, new = row.cells[name]
            cells.append(f"<del>{markup(old)}</del> <ins>{markup(new)}</ins>")
        else:
            cells.append("" if value is None else markup(value))
    return f'<tr class="{row.change}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{markup(cell)}</th>" for cell in head)
    body = "\n".join(f"<tr>{''.join(f'<td>{markup(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table>"
