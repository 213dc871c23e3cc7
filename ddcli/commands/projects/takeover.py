"""The takeover of a project by a pipeline: the imported parts, and the reasons why others are left out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from ddcli.commands.check import check_text
from ddcli.commands.projects.translation import ImportedQuery, PipelineText, written
from ddcli.dataclass import dataclass, frozen
from ddcli.errors import DdError, InputError, Span, SpecError, UsageError
from ddcli.expressions.zones import UTC

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.commands.check import Checked


@dataclass(eq=False)
class ImportedProject:
    """The result of a takeover: the text of the pipeline, the errors of the parts that were left out, and notes."""

    text: str = ""
    inputs: int = 0
    models: int = 0
    tests: int = 0
    left_out: list[DdError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ProjectImporter(ABC):
    """The takeover of a project. A subclass for each program converts inputs, models and tests."""

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
        """Take a model or a test over as a query, or leave it out with the reason."""

    def about(self, node: ProjectNode) -> str:
        """Return a node's kind and name for messages."""
        return f"{node.kind} `{node.name}`"

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
            self.leave_readers()
            if (len(self.gone), len(self.checks)) == before:
                for error in elsewhere:
                    if isinstance(error, InputError):  # of files that are not there yet
                        if not self.is_doubtful(error):
                            self.found.notes.append(str(error.problem))
                    else:
                        self.found.left_out.append(error)
                if any(isinstance(error, InputError) and error.problem.startswith("inputs.") for error in elsewhere):
                    again = "import again, with `--force`, when their files are there"
                    self.found.notes.append(f"models of inputs whose columns are not known are not checked: {again}")
                return text, checked

    def is_doubtful(self, error: InputError) -> bool:
        """Return whether an error is of an input that has a remark, which says more."""
        name = error.problem.partition(":")[0].removeprefix("inputs.")
        return name in self.inputs and bool(self.inputs[name][1])

    def differing(self, checked: Checked) -> list[SpecError]:
        """Return an error for each expression of the checked pipeline that means something else in the program."""
        return []

    def leave_check(self, one: str, error: DdError) -> None:
        """Leave out a test that can't be a check of its collection; the collection stays."""
        if self.checks.pop(one, None) is not None:
            test = self.project.nodes[one]
            problem = f"{self.about(test)}: {error.problem}"
            self.leave(one, SpecError(problem, span=test.span, place=test.file, hint=error.hint))

    def leave_readers(self) -> None:
        """Leave out the nodes that read one that is left out."""
        for one in [*self.queries, *self.checks]:
            node = self.project.nodes[one]
            if missing := next((each for each in node.reads if each in self.gone), None):
                problem = f"{self.about(node)}: it reads `{missing.split('.')[-1]}`, which is left out"
                self.leave(one, SpecError(problem, span=node.span, place=node.compiled))


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
    alias: str = ""
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
