"""A comparison as one HTML page that needs nothing from the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.compare.cells import column_words, left_out, notes, rows_of, texts, verdict
from ddcli.compare.pairs import ADDED, CHANGED, REMOVED
from ddcli.screen import markup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddcli.compare.cells import ChangedRow
    from ddcli.compare.difference import Difference

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
    counts = [
        f"{count:,}" for count in (found.same_rows, *(found.counts[change] for change in (REMOVED, CHANGED, ADDED)))
    ]
    lines.append(_table(["same", "removed", "changed", "added"], [counts]))
    if found.columns:
        lines.append(_table(["column", "difference"], [[each.column, column_words(each)] for each in found.columns]))
    if cells := sorted(
        ((count, name) for name, count in found.cells.items() if count), key=lambda pair: (-pair[0], pair[1])
    ):
        lines.append(_table(["column", "changed cells"], [[name, f"{count:,}"] for count, name in cells]))
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
