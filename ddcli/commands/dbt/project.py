"""What of a dbt project can be taken over as a pipeline, and why the rest can't."""

from __future__ import annotations

from dataclasses import field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from ddcli.commands.check import check_text
from ddcli.commands.dbt.inputs import input_of
from ddcli.commands.dbt.manifest import INCREMENTAL, CompiledProject, read_manifest
from ddcli.commands.dbt.pipeline import ImportedQuery, PipelineText, written
from ddcli.commands.dbt.translation import translate
from ddcli.dataclass import dataclass
from ddcli.errors import DdError, InputError, Span, SpecError, UsageError
from ddcli.expressions.aggregates import BY_PAIR

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.commands.check import Checked
    from ddcli.commands.dbt.manifest import DbtNode

TABLES = ("table", "incremental", "external", "materialized_view")
"""Materializations that are outputs; a view is one where nothing reads it."""
PLAIN = {
    "severity": "ERROR",
    "where": None,
    "limit": None,
    "fail_calc": "count(*)",
    "warn_if": "!= 0",
    "error_if": "!= 0",
}
"""The settings of a test that fails for each row that it finds."""
ABSORBED = tuple(f"{name} is null where" for name in ("concat", "greatest", "least", *sorted(BY_PAIR)))
"""How notes begin on functions that are null here and not in DuckDB."""
NEVER: dict[str, Any] = {"always": "false"}


@dataclass(eq=False)
class DbtImport:
    """A project taken over: the text of the pipeline, what was left out with the reason, and what is worth knowing."""

    text: str = ""
    inputs: int = 0
    models: int = 0
    tests: int = 0
    left_out: list[DdError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def import_project(project: Path, target: Path) -> DbtImport:
    """Return the pipeline file that a project becomes, for a place of its own. Raises UsageError where nothing of it can be one."""
    manifest = read_manifest(project)
    return Importing(manifest, project, target).run()


class Importing:
    """A project while its pipeline is made."""

    program = "dbt"
    absorbed = ABSORBED
    """How notes begin on functions that are null here and not there."""

    def __init__(self, manifest: CompiledProject, project: Path, target: Path) -> None:
        self.manifest, self.project, self.target = manifest, project, target
        self.found = DbtImport()
        self.gone: set[str] = set()
        self.inputs: dict[str, tuple[dict[str, Any], str]] = {}
        self.names = _names(manifest)
        self.queries: dict[str, ImportedQuery] = {}

    def run(self) -> DbtImport:
        nodes = self.manifest.nodes
        for kind, name, file in self.manifest.unread:
            self.leave(f"{kind} {name}", SpecError(f"{kind} `{name}` can't be taken over", place=file))
        relations = {}
        for each in nodes.values():
            if each.id in self.names and each.relation:
                relations[each.relation] = self.names[each.id]
        for one in _in_order(self.manifest):
            node = nodes[one]
            if node.kind in ("seed", "source", "snapshot"):
                self.inputs[self.names[one]] = self.input_of(node)
                if node.kind == "snapshot":
                    self.found.notes.append(
                        f"{node.file}: the snapshot `{node.name}` is an input: dbt goes on taking it"
                    )
            else:
                self.take(node, relations)
        text, checked = self.checked()
        for place, note in checked.bound.graph.notes if checked.bound is not None else ():
            if (found := text.origin(place)) is not None:
                self.found.notes.append(f"{found[1]}: {note}")
        for name, schema in checked.outputs.items():
            spans = [column for column, kind in schema.items() if kind.kind == "duration"]
            if spans:
                days = "a difference of dates is a duration here, a number of days in DuckDB: date_diff('day', a, b)"
                self.found.notes.append(f"{name}: {', '.join(spans)}: {days}")
        self.found.notes += [
            f"inputs.{name}: {remark.removeprefix('? ')}" for name, (_, remark) in self.inputs.items() if remark
        ]
        self.found.text = "\n".join(text.lines) + "\n"
        kept = [nodes[query.id] for query in self.queries.values()]
        self.found.models = sum(node.kind == "model" for node in kept)
        self.found.tests = sum(len(query.expected) for query in self.queries.values())
        self.found.inputs = len(self.inputs)
        return self.found

    def input_of(self, node: DbtNode) -> tuple[dict[str, Any], str]:
        """Return an input as the pipeline file has it, and a remark."""
        return input_of(node, self.project, self.target.absolute().parent)

    def about(self, node: DbtNode) -> str:
        """Return what a person calls a node."""
        return f"{node.kind} `{node.name}`"

    def leave(self, one: str, error: SpecError) -> None:
        """Leave a node out."""
        if one not in self.gone:
            self.gone.add(one)
            self.found.left_out.append(error)
        self.queries.pop(one, None)

    def take(self, node: DbtNode, relations: dict[tuple[str, ...], str]) -> None:
        """Take a model or a test over as a query, or leave it out with the reason."""
        try:
            self.refuse(node)
            if node.kind == "test" and self.expect(node):
                return
            assert node.code is not None
            query = translate(node.code, node.compiled, relations)
        except SpecError as error:
            self.leave(
                node.id,
                SpecError(f"{self.about(node)}: {error.problem}", span=error.span, place=error.place, hint=error.hint),
            )
            return
        if node.kind == "test":
            expected = ((node.name, NEVER),)
            self.queries[node.id] = ImportedQuery(
                node.id, self.names[node.id], query, written=True, folder="out/checks", expected=expected
            )
            return
        readers = (each for each in self.manifest.nodes.values() if node.id in each.reads and each.kind == "model")
        output = node.materialized in TABLES or not any(readers)
        self.queries[node.id] = ImportedQuery(node.id, self.names[node.id], query, written=output)
        if node.materialized == "incremental":
            self.found.notes.append(
                f"{node.file}: `{node.name}` is incremental: here it is always what a full refresh would hold"
            )
        for hook in ("pre-hook", "post-hook"):
            if node.config.get(hook):
                self.found.left_out.append(
                    SpecError(f"model `{node.name}`: its {hook} can't be taken over", place=node.file)
                )

    def refuse(self, node: DbtNode) -> None:
        """Refuse what has no query here, or may have been compiled as another."""
        if missing := next((each for each in node.reads if each in self.gone), None):
            raise SpecError(f"it reads `{missing.split('.')[-1]}`, which is left out", place=node.compiled)
        if node.language != "sql":
            raise SpecError(
                f"it is written in {node.language}", place=node.file, hint="write it in SQL, or as `function` by hand"
            )
        known = (*TABLES, "view", "test")
        if node.materialized not in known:
            raise SpecError(f"the materialization `{node.materialized}` is none of dbt's own", place=node.file)
        if node.code is None:
            raise SpecError("it is not compiled", place=node.file, hint="run `dbt compile --full-refresh`")
        if INCREMENTAL in node.macros and (not self.manifest.full_refresh or node.config.get("full_refresh") is False):
            forced = node.config.get("full_refresh") is False
            problem = "its `is_incremental()` may be true in what dbt compiled"
            hint = "take `full_refresh: false` out of its config" if forced else "run `dbt compile --full-refresh`"
            raise SpecError(problem, place=node.file, hint=hint)
        if node.kind == "test":
            for name, usual in PLAIN.items():
                if name not in ("where", "severity") and (node.config.get(name) or usual) != usual:
                    raise SpecError(f"its `{name}` can't be taken over", place=node.file)
            if str(node.config.get("severity") or "ERROR").upper() != "ERROR":
                self.found.notes.append(f"{node.file}: the test `{node.name}` warns in dbt; here it fails")

    def expect(self, node: DbtNode) -> bool:
        """Expect of an output what a generic test says, where that means the same; say whether it does."""
        of, column, kwargs = node.test.get("of"), node.test.get("column"), node.test.get("kwargs", {})
        query = self.queries.get(str(of))
        if query is None or not query.written or not column or node.test["package"] or node.config.get("where"):
            return False
        if node.test["name"] == "not_null":
            what: dict[str, Any] = {"not_null": [column]}
        elif node.test["name"] == "accepted_values" and isinstance(kwargs.get("values"), list):
            what = {"accepted": {column: kwargs["values"]}}
        else:  # `unique` passes over nulls in dbt
            return False
        self.queries[str(of)] = replace(query, expected=(*query.expected, (node.name, what)))
        return True

    def checked(self) -> tuple[PipelineText, Checked]:
        """Return the pipeline of what is right; what is wrong, and all that reads it, is left out."""
        while True:
            if not any(query.written for query in self.queries.values()):
                problem = "nothing of the project can be taken over"
                first = self.found.left_out[0] if self.found.left_out else None
                where = (
                    {"span": first.span, "place": first.place} if first is not None else {"place": str(self.project)}
                )
                raise UsageError(
                    problem + (f": {first.problem}" if first else ""), hint=first.hint if first else None, **where
                )
            if not self.inputs:
                hint = "a pipeline keeps up with inputs; write one by hand for tables that never change"
                raise UsageError("the project reads no table", place=str(self.project), hint=hint)
            text = written(self.program, self.manifest.project, self.inputs, list(self.queries.values()))
            checked = check_text("\n".join(text.lines) + "\n", self.target)
            errors: list[tuple[Span | None, DdError]] = [(each.span, each) for each in checked.errors]
            if checked.bound is not None and not errors:
                errors = [
                    (place, SpecError(note, span=place))
                    for place, note in checked.bound.graph.notes
                    if note.startswith(self.absorbed)
                ]
            before, elsewhere = len(self.gone), []
            for place, error in errors:
                if place is not None and place.line in text.expected:
                    self.expect_no_more(*text.expected[place.line], error)
                    continue
                found = text.origin(place) if place is not None else None
                if found is None:
                    elsewhere.append(error)
                    continue
                query, span = found
                about = self.about(self.manifest.nodes[query.id])
                problem = error.problem.removeprefix(f"collections.{query.name}.sql: ")
                self.leave(query.id, SpecError(f"{about}: {problem}", span=span, hint=error.hint))
            self.leave_readers()
            if len(self.gone) == before:
                for error in elsewhere:
                    if isinstance(error, InputError):  # of files that are not there yet
                        self.found.notes.append(str(error.problem))
                    else:
                        self.found.left_out.append(error)
                return text, checked

    def expect_no_more(self, query: ImportedQuery, about: str, error: DdError) -> None:
        """Leave out a test that can't be expected of a collection, which stays."""
        test = next((each for each in self.manifest.nodes.values() if each.kind == "test" and each.name == about), None)
        if test is None or test.id in self.gone or query.id not in self.queries:
            return
        kept = self.queries[query.id]
        left = tuple(each for each in kept.expected if each[0] != about)
        self.queries[query.id] = replace(kept, expected=left)
        self.leave(test.id, SpecError(f"test `{about}`: {error.problem}", place=test.file, hint=error.hint))

    def leave_readers(self) -> None:
        """Leave out what reads something that is left out."""
        for one in list(self.queries):
            node = self.manifest.nodes[one]
            if missing := next((each for each in node.reads if each in self.gone), None):
                problem = f"{self.about(node)}: it reads `{missing.split('.')[-1]}`, which is left out"
                self.leave(one, SpecError(problem, place=node.compiled))


def _in_order(manifest: CompiledProject) -> list[str]:
    """Return what the pipeline is made of, each behind what it reads; ephemeral models stand in the queries that read them."""
    kinds = ("model", "seed", "source", "snapshot", "test")
    kept = {
        one: [each for each in node.reads if each in manifest.nodes]
        for one, node in manifest.nodes.items()
        if node.kind in kinds and node.materialized != "ephemeral"
    }
    try:
        order = list(TopologicalSorter(kept).static_order())
    except CycleError as error:
        raise UsageError(f"models read each other: {' <- '.join(map(str, error.args[1]))}") from None
    tests = [one for one in order if one in kept and manifest.nodes[one].kind == "test"]
    return [one for one in order if one in kept and one not in set(tests)] + tests


def _names(manifest: CompiledProject) -> dict[str, str]:
    """Return the name in the pipeline of each node: its own, where another has that its source or package before it."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    first = sorted(manifest.nodes.values(), key=lambda node: (node.kind != "model", node.kind == "test", node.id))
    for node in first:
        plain = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in node.name)
        before = node.source or node.id.partition(".")[2].partition(".")[0]
        name, at = plain, 2
        while not name or name.lower() in taken:
            name, before, at = (f"{before}_{plain}", "", at) if before else (f"{plain}_{at}", "", at + 1)
        taken.add(name.lower())
        found[node.id] = name
    return found
