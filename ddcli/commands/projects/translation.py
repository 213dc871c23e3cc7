"""What a project becomes: its queries as dd's SQL, single words translated, so a place in one has a place in the other; and the text of its pipeline file, each line with the node that it comes from."""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import TokenType

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import Span, SpecError
from ddcli.expressions.statement import is_own
from ddcli.expressions.tree import delimited
from ddcli.expressions.zones import UTC
from ddcli.screen import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


UNWRITABLE = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]")
"""The characters that can't stand unescaped in a block of a YAML file."""
Edit = tuple[int, int, str]
"""The start and end of a replaced part, and its replacement."""


@frozen
class Translation:
    """The text of a query in the pipeline, its compiled text, and the edits between them."""

    text: str
    file: str
    compiled: str
    edits: tuple[Edit, ...]

    def place(self, offset: int, length: int = 1) -> Span:
        """Return the place in the compiled file of a character of the text."""
        moved = 0
        for start, end, new in self.edits:
            if offset < start + moved:
                break
            if offset < start + moved + len(new):
                return span(self.file, self.compiled, start, max(1, end - start))
            moved += len(new) - (end - start)
        return span(self.file, self.compiled, offset - moved, length)


def span(file: str, text: str, offset: int, length: int = 1) -> Span:
    """Return a place in a text."""
    offset = min(offset, len(text))
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    line = text[start : len(text) if end < 0 else end]
    return Span(file, text.count("\n", 0, offset) + 1, offset - start + 1, length, line)


def unreadable(error: Exception, line: int = 1) -> tuple[int, int, str]:
    """Return the line and the column of a parser's error, counted from 1, and the problem; `line` is for an error without a place."""
    first = (getattr(error, "errors", None) or [{}])[0]
    why = str(first.get("description") or "")
    problem = "this can't be read as SQL" + (f": {why}" if why and "class" not in why else "")
    return first.get("line") or line, first.get("col") or 1, problem


def table_edits(tree: exp.Expr, code: str, file: str, names: Mapping[tuple[str, ...], str]) -> list[Edit]:
    """Return edits that replace tables by their names in the pipeline, with the old names as aliases."""
    edits: list[Edit] = []
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            continue
        parts = [part for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part]
        key = tuple(part.name.lower() for part in parts)
        start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
        if len(parts) == 1 and is_own(node, node.name):
            continue
        if key not in names:
            problem = f"`{code[start:end]}` is not a model, seed, snapshot or source of the project"
            hint = "name it by `ref` or `source`, and compile the project again"
            raise SpecError(problem, span=span(file, code, start, end - start), hint=hint)
        name = names[key]
        if is_own(node, name):
            problem = f"a `with` has a table `{name}`, the name of this one in the pipeline"
            raise SpecError(problem, span=span(file, code, start, end - start), hint="rename the table of the `with`")
        called = re.split(r"[/\\]", key[-1])[-1].split(".")[0] if len(parts) == 1 else node.name
        alias = "" if node.alias or called.lower() == name.lower() else f" as {quoted(called)}"
        edits.append((start, end, quoted(name) + alias))
    return edits


def margins(code: str) -> list[Edit]:
    """Return edits that remove blank space before and after the query: a block of YAML can't begin or end with it."""
    start, end = len(code) - len(code.lstrip()), len(code.rstrip())
    return [each for each in ((0, start, ""), (end, len(code), "")) if each[0] < each[1]]


def edited(code: str, edits: Sequence[Edit]) -> str:
    """Apply edits, which are in order and don't overlap, to a text."""
    parts, last = [], 0
    for start, end, new in edits:
        parts += [code[last:start], new]
        last = end
    return "".join([*parts, code[last:]])


def quoted(name: str) -> str:
    """Return a name in SQL, quoted if needed."""
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name, re.IGNORECASE | re.ASCII):
        tokens = DuckDB().tokenize(name)
        if len(tokens) == 1 and tokens[0].token_type == TokenType.VAR:
            return name
    return delimited(name)


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
