"""The parts of a dbt project that can become a pipeline, and the reasons why the others can't."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ddcli.commands.dbt.inputs import OWN, input_of
from ddcli.commands.dbt.manifest import INCREMENTAL, read_manifest
from ddcli.commands.dbt.translation import translate
from ddcli.commands.projects.pipeline import ImportedQuery
from ddcli.commands.projects.takeover import ProjectImporter
from ddcli.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.commands.projects.takeover import ImportedProject, ProjectNode

NAME = re.compile(r"[A-Za-z_]\w*")
TABLES = ("table", "incremental", "external", "materialized_view")
"""The materializations that become outputs; a view becomes one if nothing reads it."""
PLAIN = {
    "severity": "ERROR",
    "where": None,
    "limit": None,
    "fail_calc": "count(*)",
    "warn_if": "!= 0",
    "error_if": "!= 0",
}
"""The settings of a test that fails if it finds a row."""


def import_project(project: Path, target: Path) -> ImportedProject:
    """Return the project as a pipeline file for the place `target`. Raises UsageError if no part of it can be imported."""
    return _DbtTakeover(read_manifest(project), project, target).run()


class _DbtTakeover(ProjectImporter):
    """The takeover of a dbt project."""

    program = "dbt"

    def input_of(self, node: ProjectNode) -> tuple[dict[str, Any], str]:
        """Return the input of a node for the pipeline file, and a remark."""
        if node.kind == "snapshot":
            self.found.notes.append(f"{node.file}: the snapshot `{node.name}` is an input: dbt still takes it")
        return input_of(node, self.folder, self.target.absolute().parent)

    def is_history(self, node: ProjectNode) -> bool:
        """Return whether a snapshot becomes a history: no model reads it, and no `meta` names the table that dbt keeps."""
        read = any(node.id in each.reads for each in self.project.nodes.values())
        return (
            node.kind == "snapshot" and node.code is not None and not read and not isinstance(node.meta.get(OWN), dict)
        )

    def take(self, node: ProjectNode, relations: dict[tuple[str, ...], str]) -> None:
        """Take a model or a test over as a query, or leave it out with the reason."""
        try:
            self.refuse(node)
            if node.kind == "test" and self.check(node):
                return
            assert node.code is not None
            history = _history(node) if node.kind == "snapshot" else None
            query = translate(node.code, node.compiled or node.file, relations)
        except SpecError as error:
            self.leave(
                node.id,
                SpecError(f"{self.about(node)}: {error.problem}", span=error.span, place=error.place, hint=error.hint),
            )
            return
        if history is not None:
            self.queries[node.id] = ImportedQuery(node.id, self.names[node.id], query, written=True, history=history)
            self.found.notes.append(
                f"{node.file}: the snapshot `{node.name}` is a history from the first run on, by the times of runs, and a record that is gone has an end; "
                f"to keep dbt's table, set its path in the snapshot's `meta: {{{OWN}: {{path: ...}}}}`"
            )
            return
        if node.kind == "test":
            self.queries[node.id] = ImportedQuery(
                node.id, self.names[node.id], query, written=False, otherwise=_otherwise(node)
            )
            return
        readers = (each for each in self.project.nodes.values() if node.id in each.reads and each.kind == "model")
        output = node.materialized in TABLES or not any(readers)
        self.queries[node.id] = ImportedQuery(node.id, self.names[node.id], query, written=output)
        if node.materialized == "incremental":
            self.found.notes.append(
                f"{node.file}: `{node.name}` is incremental: here it is always what a full refresh would hold"
            )
        for hook in ("pre-hook", "post-hook"):
            if node.config.get(hook):
                self.found.left_out.append(
                    SpecError(f"model `{node.name}`: its {hook} can't be imported", place=node.file)
                )

    def refuse(self, node: ProjectNode) -> None:
        """Refuse a node without a query, or whose compiled query may be another one."""
        if missing := next((each for each in node.reads if each in self.gone), None):
            raise SpecError(f"it reads `{missing.split('.')[-1]}`, which is left out", place=node.compiled)
        if node.language != "sql":
            raise SpecError(
                f"it is written in {node.language}", place=node.file, hint="write it in SQL, or as `function` by hand"
            )
        known = (*TABLES, "view", "test", "snapshot")
        if node.materialized not in known:
            raise SpecError(f"the materialization `{node.materialized}` is not one of dbt's own", place=node.file)
        if node.code is None:
            raise SpecError("it is not compiled", place=node.file, hint="run `dbt compile --full-refresh`")
        if INCREMENTAL in node.macros and (not self.project.full_refresh or node.config.get("full_refresh") is False):
            forced = node.config.get("full_refresh") is False
            problem = "its `is_incremental()` may be true in what dbt compiled"
            hint = "take `full_refresh: false` out of its config" if forced else "run `dbt compile --full-refresh`"
            raise SpecError(problem, place=node.file, hint=hint)
        if node.kind == "test":
            for name, usual in PLAIN.items():
                if name not in ("where", "severity") and (node.config.get(name) or usual) != usual:
                    raise SpecError(f"its `{name}` can't be imported", place=node.file)

    def check(self, node: ProjectNode) -> bool:
        """Turn a generic test into a check of our own kinds, and return whether that is possible."""
        of, column, kwargs = str(node.test.get("of")), node.test.get("column"), node.test.get("kwargs", {})
        known = of in self.queries or self.names.get(of) in self.inputs
        if not known or not column or node.test["package"] or node.config.get("where"):
            return False
        values = kwargs.get("values")
        what: dict[str, Any]
        if node.test["name"] in ("not_null", "unique"):
            what = {node.test["name"]: [column]}
        elif node.test["name"] == "accepted_values" and isinstance(values, list) and _are_plain(values):
            what = {"in": {column: values}}
        else:  # `relationships` counts rows, and a check of ours values
            return False
        name = {"name": self.names[node.id]} | ({"otherwise": "warn"} if _otherwise(node) == "warn" else {})
        self.checks[node.id] = what | {"of": self.names[of]} | name
        return True


def _history(node: ProjectNode) -> dict[str, list[str]]:
    """Return the key of a snapshot's history, and the columns whose changes begin a new row. Raises SpecError for a strategy of others."""
    config = node.config
    keys = config.get("unique_key")
    found: dict[str, Any] = {"key": [keys] if isinstance(keys, str) else keys}
    if config.get("strategy") == "timestamp":
        found["track"] = [config.get("updated_at")]
    elif config.get("strategy") != "check":
        raise SpecError(f"the strategy `{config.get('strategy')}` is not one of dbt's own", place=node.file)
    elif config.get("check_cols") != "all":
        columns = config.get("check_cols")
        found["track"] = [columns] if isinstance(columns, str) else columns
    for what, columns in found.items():
        if (
            not isinstance(columns, list)
            or not columns
            or not all(isinstance(each, str) and NAME.fullmatch(each) for each in columns)
        ):
            problem = f"its {'`unique_key`' if what == 'key' else 'columns of the strategy'} must be names of columns"
            raise SpecError(problem, place=node.file, hint="compute them in the snapshot's query")
    return found


def _otherwise(node: ProjectNode) -> str:
    """Return the consequence of a test: that of its severity."""
    return "fail" if str(node.config.get("severity") or "ERROR").upper() == "ERROR" else "warn"


def _are_plain(values: list[Any]) -> bool:
    """Return whether values are texts, as dbt compares them."""
    return bool(values) and all(isinstance(value, str) for value in values)
