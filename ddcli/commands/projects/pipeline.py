"""The text of a project's pipeline file, and the node from which each of its lines comes."""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass, frozen
from ddcli.expressions.zones import UTC
from ddcli.screen import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.commands.projects.translation import Translation
    from ddcli.errors import Span

INSET = 6
"""The number of blanks before a query's lines."""


@frozen
class ImportedQuery:
    """A model or a test as a collection: the node's id, its query, whether it is written to an output, and its expectations."""

    id: str
    name: str
    query: Translation
    written: bool
    folder: str = "out"
    expected: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    parts: tuple[str, ...] = ()
    """The collections whose sum it is, instead of a query."""


@dataclass(eq=False)
class PipelineText:
    """The lines of a file, and the query from which each comes, with the offset of its first character there."""

    lines: list[str] = field(default_factory=list)
    origins: dict[int, tuple[ImportedQuery, int | None]] = field(default_factory=dict)
    expected: dict[int, tuple[ImportedQuery, str]] = field(default_factory=dict)
    """The queries and names of tests, by their lines."""

    def add(self, line: str, query: ImportedQuery | None = None, offset: int | None = None) -> None:
        """Add a line."""
        self.lines.append(line)
        if query is not None:
            self.origins[len(self.lines)] = query, offset

    def origin(self, place: Span) -> tuple[ImportedQuery, Span] | None:
        """Return the query from which a place of the file comes, and its place in the compiled file."""
        if place.line not in self.origins:
            return None
        query, offset = self.origins[place.line]
        if offset is None:
            return query, query.query.place(0)
        return query, query.query.place(offset + max(0, place.column - 1 - INSET), place.length)


def written(
    program: str,
    name: str,
    inputs: Mapping[str, tuple[dict[str, Any], str]],
    queries: Sequence[ImportedQuery],
    zone: str = UTC,
) -> PipelineText:
    """Return the pipeline file of inputs and queries."""
    text = PipelineText()
    text.add(f"# Written by `dd import {program}`. A comment with a question mark is a guess: look at it.")
    text.add("dd: 1")
    text.add(f"name: {yaml(name)}")
    text.add("clock: arrival")
    if zone != UTC:
        text.add(f"timezone: {yaml(zone)}")
    text.add("inputs:")
    for called, (given, remark) in inputs.items():
        text.add(f"  {yaml(called)}: {yaml(given)}" + (f"  # {visible(remark)}" if remark else ""))
    text.add("collections:")
    for query in queries:
        text.add(f"  {yaml(query.name)}:", query)
        if query.parts:
            first, *others = query.parts
            text.add(f"    from: {yaml(first)}", query)
            text.add(f"    apply: [{yaml({'concat': others})}]", query)
            continue
        text.add("    sql: |", query)
        offset = 0
        for line in query.query.text.split("\n"):
            text.add(" " * INSET + line if line.strip() else "", query, offset)
            offset += len(line) + 1
    text.add("outputs:")
    for query in queries:
        if query.written:
            text.add(f"  {yaml(query.name)}: {yaml(f'{query.folder}/{query.name}/')}", query)
    expected = [(query, about, what) for query in queries for about, what in query.expected]
    if expected:
        text.add("tests:")
    for query, about, what in expected:
        text.add(f"  - name: {yaml(about)}")
        text.add(f"    expect: {yaml({'collection': query.name, **what})}")
        text.expected |= {len(text.lines) - back: (query, about) for back in (0, 1)}
    return text


def yaml(value: Any) -> str:
    """Return a value as YAML on one line, without variables."""
    return json.dumps(value, ensure_ascii=True).replace("${", "$${")
