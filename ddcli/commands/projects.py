"""A project of another program as a pipeline: the imported parts, and the reasons why others are left out.

Its queries become dd's SQL, with single words translated, so that a place in one has a place in the other. Each line of the pipeline file's text has the node of the
project that it comes from.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import Token, TokenType

from ddcli.commands.check import check_text
from ddcli.dataclass import dataclass, frozen
from ddcli.errors import DdError, InputError, Span, SpecError, UsageError
from ddcli.expressions.syntax_tree import is_own
from ddcli.expressions.tree import delimited
from ddcli.expressions.types import UTC
from ddcli.screen import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.commands.check import Checked


@dataclass(eq=False)
class ImportedProject:
    """The result of an import: the text of the pipeline, the errors of the parts that were left out, and notes."""

    text: str = ""
    inputs: int = 0
    models: int = 0
    tests: int = 0
    left_out: list[DdError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ProjectImporter(ABC):
    """Imports a project. A subclass for each program converts inputs, models and tests."""

    program: str
    """The program's name in `dd import`."""
    zone = UTC
    """The zone of its sessions."""
    of_duckdb = True
    """True for queries of DuckDB: then notes on it matter."""

    def __init__(self, project: ForeignProject, folder: Path, target: Path) -> None:
        self.project, self.folder, self.target = project, folder, target
        self.found = ImportedProject()
        self.gone: set[str] = set()
        self.inputs: dict[str, tuple[dict[str, Any], str]] = {}
        self.names = _names(project)
        self.queries: dict[str, ImportedQuery] = {}
        self.checks: dict[str, dict[str, Any]] = {}
        """The tests that are checks of a kind of ours, by id."""

    def run(self) -> ImportedProject:
        """Return the imported project. Raises UsageError if no part of it can be imported."""
        nodes = self.project.nodes
        for kind, name, file in self.project.unread:
            self.leave(f"{kind} {name}", SpecError(f"{kind} `{name}` can't be imported", place=file))
        if self.project.apart:
            self.found.notes.append(f"not imported, as they produce no data: {', '.join(self.project.apart)}")
        # A source may be a table that the project makes itself: then it is that one.
        relations = {each.relation: self.names[each.id] for each in nodes.values() if each.kind == "source"}
        own = {each.relation: self.names[each.id] for each in nodes.values() if each.kind not in ("source", "test")}
        relations |= own
        for one in _in_order(self.project):
            node = nodes[one]
            if node.kind == "source" and node.relation in own and node.relation:
                continue
            if node.kind in ("seed", "source", "snapshot") and not self.is_history(node):
                self.inputs[self.names[one]] = self.input_of(node)
            else:
                with self.leaving(node):
                    self.refuse_missing(node)
                    self.take(node, relations)
        text, checked = self.checked()
        for place, note in checked.bound.graph.notes if checked.bound is not None else ():
            if (found := text.origin(place)) is not None and ("DuckDB" not in note or self.of_duckdb):
                self.found.notes.append(f"{found[1]}: {note}")
        doubtful: dict[str, list[str]] = {}
        for name, (_, remark) in self.inputs.items():
            if remark:
                doubtful.setdefault(remark.removeprefix("? "), []).append(f"inputs.{name}")
        self.found.notes += [f"{', '.join(names)}: {remark}" for remark, names in doubtful.items()]
        self.found.text = "\n".join(text.lines) + "\n"
        kept = [nodes[query.id] for query in self.queries.values()]
        self.found.models = sum(node.kind in ("model", "snapshot") for node in kept)
        self.found.tests = len(self.checks) + sum(bool(query.otherwise) for query in self.queries.values())
        self.found.inputs = len(self.inputs)
        return self.found

    @abstractmethod
    def input_of(self, node: ProjectNode) -> tuple[dict[str, Any], str]:
        """Return the input of a node for the pipeline file, and a remark."""

    def is_history(self, _node: ProjectNode) -> bool:
        """Return whether a node is the history of a query, which becomes an output."""
        return False

    @abstractmethod
    def take(self, node: ProjectNode, relations: dict[tuple[str, ...], str]) -> None:
        """Take a model or a test over as a query or a check. Raises SpecError if it can't be imported."""

    def about(self, node: ProjectNode) -> str:
        """Return a node's kind and name for messages."""
        return f"{node.kind} `{node.name}`"

    @contextmanager
    def leaving(self, node: ProjectNode) -> Iterator[None]:
        """Leave a node out if the block can't take it over, with the reason."""
        try:
            yield
        except SpecError as error:
            problem = f"{self.about(node)}: {error.problem}"
            self.leave(node.id, SpecError(problem, span=error.span or node.span, place=error.place, hint=error.hint))

    def refuse_missing(self, node: ProjectNode) -> None:
        """Raise SpecError if a node reads one that is left out."""
        if missing := next((each for each in node.reads if each in self.gone), None):
            problem = f"it reads `{missing.split('.')[-1]}`, which is left out"
            raise SpecError(problem, span=node.span, place=node.compiled)

    def leave(self, one: str, error: SpecError) -> None:
        """Leave a node out, with the reason."""
        if one not in self.gone:
            self.gone.add(one)
            self.found.left_out.append(error)
        self.queries.pop(one, None)
        self.checks.pop(one, None)

    def checked(self) -> tuple[PipelineText, Checked]:
        """Return the pipeline without the nodes that have errors, which are left out together with all that read them."""
        while True:
            if not any(query.written for query in self.queries.values()):
                problem = "nothing of the project can be imported"
                first = self.found.left_out[0] if self.found.left_out else None
                where = (
                    {"span": first.span, "place": first.place} if first is not None else {"place": str(self.project)}
                )
                raise UsageError(
                    problem + (f": {first.problem}" if first else ""), hint=first.hint if first else None, **where
                )
            if not self.inputs:
                hint = "a pipeline keeps up with inputs; write one by hand for tables that never change"
                raise UsageError("the project reads no table", place=str(self.folder), hint=hint)
            text = written(
                self.program, self.project.name, self.inputs, list(self.queries.values()), self.checks, self.zone
            )
            checked = check_text("\n".join(text.lines) + "\n", self.target)
            errors: list[tuple[Span | None, DdError]] = [(each.span, each) for each in checked.errors]
            errors += [(each.span, each) for each in self.differing(checked)]
            before, elsewhere = (len(self.gone), len(self.checks)), []
            for place, error in errors:
                if place is not None and place.line in text.checks:
                    self.leave_check(text.checks[place.line], error)
                    continue
                missing = isinstance(error, InputError) and error.problem.startswith(
                    "outputs."
                )  # where a history begins
                found = None if place is None or missing else text.origin(place)
                if found is None:
                    elsewhere.append(error)
                    continue
                query, span = found
                about = self.about(self.project.nodes[query.id])
                problem = error.problem.removeprefix(f"collections.{query.name}.sql: ")
                self.leave(query.id, SpecError(f"{about}: {problem}", span=span, hint=error.hint))
            for one in [*self.queries, *self.checks]:
                with self.leaving(self.project.nodes[one]):
                    self.refuse_missing(self.project.nodes[one])
            if (len(self.gone), len(self.checks)) == before:
                for error in elsewhere:
                    if not isinstance(error, InputError):
                        self.found.left_out.append(error)
                        continue
                    # Its files are not there yet. If the input has a remark, that says more.
                    name = error.problem.partition(":")[0].removeprefix("inputs.")
                    if not self.inputs.get(name, ({}, ""))[1]:
                        self.found.notes.append(str(error.problem))
                if any(isinstance(error, InputError) and error.problem.startswith("inputs.") for error in elsewhere):
                    again = "import again, with `--force`, when their files are there"
                    self.found.notes.append(f"models of inputs whose columns are not known are not checked: {again}")
                return text, checked

    def differing(self, checked: Checked) -> list[SpecError]:
        """Return an error for each expression of the checked pipeline that means something else in the program."""
        return []

    def leave_check(self, one: str, error: DdError) -> None:
        """Leave out a test that can't be a check of its collection; the collection stays."""
        if self.checks.pop(one, None) is not None:
            test = self.project.nodes[one]
            problem = f"{self.about(test)}: {error.problem}"
            self.leave(one, SpecError(problem, span=test.span, place=test.file, hint=error.hint))


def _in_order(project: ForeignProject) -> list[str]:
    """Return the nodes of the pipeline, each after those that it reads, tests last; ephemeral models are part of the queries that read them."""
    kinds = ("model", "seed", "source", "snapshot", "test")
    kept = {
        one: [each for each in node.reads if each in project.nodes]
        for one, node in project.nodes.items()
        if node.kind in kinds and node.materialized != "ephemeral"
    }
    try:
        order = list(TopologicalSorter(kept).static_order())
    except CycleError as error:
        raise UsageError(f"models read each other: {' <- '.join(map(str, error.args[1]))}") from None
    tests = [one for one in order if one in kept and project.nodes[one].kind == "test"]
    return [one for one in order if one in kept and one not in set(tests)] + tests


def _names(project: ForeignProject) -> dict[str, str]:
    """Return the name of each node in the pipeline: its own, if that is taken with the name of its source or package before it."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    first = sorted(project.nodes.values(), key=lambda node: (node.kind != "model", node.kind == "test", node.id))
    for node in first:
        plain = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in node.name)
        before = node.source or node.id.partition(".")[2].partition(".")[0]
        name, at = plain, 2
        while not name or name.lower() in taken:
            name, before, at = (f"{before}_{plain}", "", at) if before else (f"{plain}_{at}", "", at + 1)
        taken.add(name.lower())
        found[node.id] = name
    return found


@frozen
class ProjectNode:
    """A model, seed, snapshot, test or source, in dbt's terms. `relation` are the parts of its table's name in compiled SQL, in lower case."""

    id: str
    name: str
    kind: str
    file: str
    compiled: str
    """The file with its compiled SQL; empty if it is not compiled."""
    code: str | None
    relation: tuple[str, ...]
    reads: tuple[str, ...]
    macros: tuple[str, ...]
    config: dict[str, Any]
    types: dict[str, str]
    """The columns and their `data_type`, `''` if they have none."""
    meta: dict[str, Any]
    language: str = "sql"
    source: str = ""
    test: dict[str, Any] = field(default_factory=dict)
    """A generic test's name, its `kwargs`, its node and its column."""
    span: Span | None = None
    """The place of its name, if the program reports places."""

    @property
    def materialized(self) -> str:
        """The materialisation of a model."""
        return str(self.config.get("materialized") or "")


@frozen
class ForeignProject:
    """The nodes of a project by their unique ids; `full_refresh`: no model was compiled as incremental."""

    name: str
    nodes: dict[str, ProjectNode]
    full_refresh: bool
    unread: tuple[tuple[str, str, str], ...]
    """Kind, name and file of each part that is neither a table nor a test of one."""
    apart: tuple[str, ...] = ()
    """The parts that produce no data, each a number with a noun."""


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


def tables_in(tree: exp.Expr) -> Iterator[tuple[exp.Table, tuple[str, ...], int, int]]:
    """Yield the tables that a query reads, without those that it defines itself: each with the parts of its name, in lower case, and where it begins and ends."""
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Identifier):
            parts = [part for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part]
            if len(parts) > 1 or not is_own(node, node.name):
                key = tuple(part.name.lower() for part in parts)
                yield node, key, parts[0].meta["start"], parts[-1].meta["end"] + 1


DEPTHS = {TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.R_PAREN: -1, TokenType.R_BRACKET: -1}


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the parenthesis or bracket that closes another, or the last index."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += DEPTHS.get(tokens[at].token_type, 0)
        if not depth:
            return at
    return len(tokens) - 1


def table_edits(tree: exp.Expr, code: str, file: str, names: Mapping[tuple[str, ...], str]) -> list[Edit]:
    """Return edits that replace tables by their names in the pipeline, with the old names as aliases."""
    edits: list[Edit] = []
    for node, key, start, end in tables_in(tree):
        if key not in names:
            problem = f"`{code[start:end]}` is not a model, seed, snapshot or source of the project"
            hint = "name it by `ref` or `source`, and compile the project again"
            raise SpecError(problem, span=span(file, code, start, end - start), hint=hint)
        name = names[key]
        if is_own(node, name):
            problem = f"a `with` has a table `{name}`, the name of this one in the pipeline"
            raise SpecError(problem, span=span(file, code, start, end - start), hint="rename the table of the `with`")
        called = re.split(r"[/\\]", key[-1])[-1].split(".")[0] if len(key) == 1 else node.name
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
