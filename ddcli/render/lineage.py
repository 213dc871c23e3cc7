"""A report of column lineage: as JSON, lines of text, a Mermaid flowchart, or an HTML page without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.render.drawing import as_label
from ddcli.screen import markup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SOURCES, INFLUENCES = "from", "decided by"
LOOK = """
:root { color-scheme: light dark; }
body { margin: 1.5rem; font: 15px/1.45 system-ui, sans-serif; }
table { border-collapse: collapse; margin-bottom: 2rem; }
th, td { padding: .3rem 1.2rem .3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
tr:target { background: color-mix(in srgb, currentColor 12%, transparent); }
small { opacity: .7; }
""".strip()


class ColumnName(NamedTuple):
    """A column of an input, a collection or an output: `of` is its name in the pipeline file."""

    pipeline: str
    of: str
    column: str

    def shown(self, *, alone: bool) -> str:
        """Return its name for people, without the pipeline if that is the only one."""
        return f"{self.of}.{self.column}" if alone else f"{self.pipeline}/{self.of}.{self.column}"


class ColumnLineage(NamedTuple):
    """The columns of inputs that a column comes from: its sources, which its values are made of, and influences, which only decide about it."""

    name: ColumnName
    type: str
    sources: list[ColumnName]
    influences: list[ColumnName]


class LineageReport(NamedTuple):
    """The lineage of columns, each with its pipeline's name; of inputs' columns, of all that these reach, and only in terms of them."""

    columns: list[ColumnLineage]
    alone: bool

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""

        def plain(names: Iterable[ColumnName]) -> list[dict[str, str]]:
            return [{"pipeline": name.pipeline, "name": name.of, "column": name.column} for name in names]

        return {
            "columns": [
                {
                    "pipeline": each.name.pipeline,
                    "name": each.name.of,
                    "column": each.name.column,
                    "type": each.type,
                    "sources": plain(each.sources),
                    "influences": plain(each.influences),
                }
                for each in self.columns
            ]
        }


def text(report: LineageReport) -> Iterator[str]:
    """Yield the lines of a report: for each column the columns that it comes from, then those that only decide about it."""
    for each in report.columns:
        yield f"{_name(report, each.name)} {each.type}"
        for word, names in _parts(each):
            yield f"  {word.ljust(len(INFLUENCES))}  {', '.join(_name(report, name) for name in names)}"


def mermaid(report: LineageReport) -> Iterator[str]:
    """Yield the lines of a flowchart: a solid arrow for a value's source, a dotted one for an influence."""
    yield "flowchart LR"
    ids: dict[ColumnName, str] = {}
    for each in report.columns:
        for name in (*each.sources, *each.influences, each.name):
            if name not in ids:
                ids[name] = f"c{len(ids)}"
                yield f'  {ids[name]}["{as_label(_name(report, name))}"]'
    for each in report.columns:
        yield from (f"  {ids[source]} --> {ids[each.name]}" for source in each.sources)
        yield from (f"  {ids[source]} -.-> {ids[each.name]}" for source in each.influences)


def tables(report: LineageReport) -> Iterator[str]:
    """Yield the HTML of a table of the columns, and of one of the columns of inputs with those that they reach; each name leads to its row."""
    reached: dict[ColumnName, tuple[list[ColumnName], list[ColumnName]]] = {}
    for each in report.columns:
        for names, at in ((each.sources, 0), (each.influences, 1)):
            for name in names:
                reached.setdefault(name, ([], []))[at].append(each.name)
    rows = [(each.name, each.type, each.sources, each.influences) for each in report.columns]
    back = [(name, "", *both) for name, both in sorted(reached.items())]
    yield from _table(report, ("Column", "From", "Decided by"), rows)
    yield from _table(report, ("Column of an input", "Goes into", "Decides about"), back)


def page(report: LineageReport) -> str:
    """Return a page with the tables of a report."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Column lineage</title>',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<style>{LOOK}</style></head><body><h1>Column lineage</h1>",
            *tables(report),
            "</body></html>",
        ]
    )


def _table(
    report: LineageReport,
    heads: Sequence[str],
    rows: Sequence[tuple[ColumnName, str, Sequence[ColumnName], Sequence[ColumnName]]],
) -> Iterator[str]:
    yield f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"
    for name, kind, *parts in rows:
        cells = "".join(f"<td>{', '.join(_link(report, each) for each in names)}</td>" for names in parts)
        shown = markup(_name(report, name))
        yield f'<tr id="{shown}"><td>{shown} <small>{markup(kind)}</small></td>{cells}</tr>'
    yield "</table>"


def _link(report: LineageReport, name: ColumnName) -> str:
    from urllib.parse import quote

    shown = _name(report, name)
    return f'<a href="#{quote(shown)}">{markup(shown)}</a>'


def _name(report: LineageReport, name: ColumnName) -> str:
    return name.shown(alone=report.alone)


def _parts(each: ColumnLineage) -> list[tuple[str, list[ColumnName]]]:
    parts = [(SOURCES, each.sources), (INFLUENCES, each.influences)]
    return [(word, names) for word, names in parts if names]
