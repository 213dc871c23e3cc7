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
    """A model or a test: the node's id, its query, and whether it is written to an output. A test is a check with an `otherwise`; its rows are violations."""

    id: str
    name: str
    query: Translation
    written: bool
    otherwise: str = ""
    parts: tuple[str, ...] = ()
    """The collections whose sum it is, instead of a query."""
    history: dict[str, Any] | None = None
    """The `key` of a snapshot that becomes a history, the columns that it may `track`, and the file that it may `begin` from."""


@dataclass(eq=False)
class PipelineText:
    """The lines of a file, and the query from which each comes, with the offset of its first character there."""

    lines: list[str] = field(default_factory=list)
    origins: dict[int, tuple[ImportedQuery, int | None]] = field(default_factory=dict)
    checks: dict[int, str] = field(default_factory=dict)
    """The ids of tests without a query of their own, by their lines."""

    def add(self, line: str, query: ImportedQuery | None = None, offset: int | None = None) -> None:
        """Add a line."""
        self.lines.append(line)
        if query is not None:
            self.origins[len(self.lines)] = query, offset

    def add_query(self, query: ImportedQuery) -> None:
        """Add a query as a block."""
        self.add("    sql: |", query)
        offset = 0
        for line in query.query.text.split("\n"):
            self.add(" " * INSET + line if line.strip() else "", query, offset)
            offset += len(line) + 1

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
    checks: Mapping[str, Mapping[str, Any]],
    zone: str = UTC,
) -> PipelineText:
    """Return the pipeline file of inputs, queries and `checks`, by the ids of their nodes."""
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
    for query in (query for query in queries if not query.otherwise):
        text.add(f"  {yaml(query.name)}:", query)
        if query.parts:
            first, *others = query.parts
            text.add(f"    from: {yaml(first)}", query)
            text.add(f"    apply: [{yaml({'concat': others})}]", query)
            continue
        text.add_query(query)
    text.add("outputs:")
    for query in queries:
        if query.written:
            place: Any = f"out/{query.name}/"
            if query.history is not None:
                place = {"as": "history", **query.history, "parquet": f"out/{query.name}.parquet"}
            text.add(f"  {yaml(query.name)}: {yaml(place)}", query)
    tests = [query for query in queries if query.otherwise]
    if tests or checks:
        text.add("checks:")
    for one, check in checks.items():
        text.add(f"  - {yaml(check)}")
        text.checks[len(text.lines)] = one
    for query in tests:
        text.add(f"  - name: {yaml(query.name)}", query)
        text.add(f"    otherwise: {query.otherwise}", query)
        text.add_query(query)
    return text


def yaml(value: Any) -> str:
    """Return a value as YAML on one line, without variables."""
    return json.dumps(value, ensure_ascii=True).replace("${", "$${")
