"""The parts of a project of Spark's declarative pipelines that can become a pipeline, and the reasons why the others can't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from ddcli.commands.projects.pipeline import ImportedQuery
from ddcli.commands.projects.takeover import ForeignProject, ImportedProject, ProjectImporter, ProjectNode
from ddcli.commands.projects.translation import Translation
from ddcli.commands.sdp.definitions import SparkDefinition, read_definitions
from ddcli.commands.sdp.differences import differences
from ddcli.commands.sdp.specification import Key, SparkProject, library_files, read_spec, text_of, yaml_value
from ddcli.commands.sdp.translation import SparkQuery, read_query
from ddcli.errors import SpecError, UsageError
from ddcli.expressions.zones import is_zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ddcli.commands.check import Checked

INPUT = "dd.inputs."
"""The prefix of the keys of the `configuration` for inputs, which are texts in the form of a pipeline file."""
ZONE = "spark.sql.session.timeZone"
OUTPUTS = ("materialized view", "streaming table")


def import_sdp(project: Path, target: Path) -> ImportedProject:
    """Return the project as a pipeline file for the place `target`. Raises UsageError if no part of it can be imported."""
    spec = read_spec(project)
    definitions: list[SparkDefinition] = []
    errors: list[SpecError] = []
    for path in library_files(spec):
        file = str(path.relative_to(spec.path.parent))
        if path.suffix != ".sql":
            what = "it is written in Python" if path.suffix == ".py" else "it is not an SQL file"
            errors.append(SpecError(what, place=file, hint="write it in SQL, or as `function` by hand"))
            continue
        found, wrong = read_definitions(file, text_of(path))
        definitions += found
        errors += wrong
    return _SparkTakeover(spec, definitions, errors, target).run()


class _SparkTakeover(ProjectImporter):
    """The takeover of a project of Spark's declarative pipelines."""

    program = "sdp"
    of_duckdb = False

    def __init__(
        self, spec: SparkProject, definitions: list[SparkDefinition], errors: list[SpecError], target: Path
    ) -> None:
        self.spec = spec
        self.parsed: dict[str, SparkQuery | SpecError] = {}
        self.parts: dict[str, list[str]] = {}
        self.keys: dict[Key, str] = {}
        """The nodes by the full names of their tables."""
        self.notes: list[str] = []
        self.errors = errors
        nodes = {node.id: node for node in self._nodes(definitions)}
        super().__init__(ForeignProject(spec.name, nodes, True, ()), spec.path.parent, target)
        self.found.left_out += errors
        self.found.notes += self.notes

    def _nodes(self, definitions: list[SparkDefinition]) -> Iterator[ProjectNode]:
        """Yield tables, views, flows and sources as nodes, with the nodes that each reads."""
        tables: dict[Key, SparkDefinition] = {}
        flows: dict[Key, list[SparkDefinition]] = {}
        for each in definitions:
            if each.kind == "flow":
                flows.setdefault(self.spec.key(each.target), []).append(each)
                continue
            key = self.spec.key(each.name)
            if key in tables:
                self.errors.append(SpecError(f"`{'.'.join(each.name)}` is defined before", span=each.place))
                continue
            tables[key] = each
            self.keys[key] = f"{each.kind}.{'.'.join(key)}"
        for key, some in flows.items():
            if key not in tables or tables[key].kind != "streaming table":
                for each in some:
                    problem = f"flow `{each.name[-1]}`: the project has no streaming table `{'.'.join(each.target)}`"
                    self.errors.append(SpecError(problem, span=each.place))
        sources: dict[Key, ProjectNode] = {}
        for key, each in tables.items():
            one, into = self.keys[key], flows.get(key, []) if each.kind == "streaming table" else []
            ways = [*([each] if each.query else []), *into]
            if len(ways) < 2:
                yield self._node(one, each, ways[0] if ways else None, sources)
                continue
            self.parts[one] = [f"{one}.{at}" for at in range(len(ways))]
            for part, way in zip(self.parts[one], ways, strict=True):
                yield self._node(part, way, way, sources, name=f"{each.name[-1]}_{way.name[-1]}")
            yield _node_of(one, each, tuple(self.parts[one]))
        yield from sources.values()

    def _node(
        self,
        one: str,
        each: SparkDefinition,
        way: SparkDefinition | None,
        sources: dict[Key, ProjectNode],
        name: str = "",
    ) -> ProjectNode:
        """Return the node of a definition, whose query is that of `way`."""
        reads: list[str] = []
        try:
            query = None if way is None else read_query(way)
        except SpecError as error:
            self.parsed[one] = error
            return _node_of(one, each, (), name)
        self.parsed[one] = query or SpecError("no flow writes to it", span=each.place)
        for table in query.tables if query else ():
            key = self.spec.key(table)
            if key not in self.keys:
                self.keys[key] = f"source.{'.'.join(key)}"
                sources[key] = self._source(self.keys[key], table)
            reads.append(self.keys[key])
        return _node_of(one, each, tuple(reads), name)

    def _source(self, one: str, table: Key) -> ProjectNode:
        """Return the node of a table that the project reads but doesn't define."""
        meta: dict[str, Any] = {}
        given = self.spec.configuration.get(INPUT + ".".join(table))
        if given is not None:
            try:
                meta = {"dd": yaml_value(given)}
            except (yaml.YAMLError, ValueError):
                meta = {}
            if not isinstance(meta.get("dd"), dict):
                raise UsageError(
                    f"`{INPUT}{'.'.join(table)}` is not an input",
                    place=str(self.spec.path),
                    hint='write it as a pipeline file does, in quotes: "{path: landing/orders/, format: append}"',
                )
        return ProjectNode(
            one,
            table[-1],
            "source",
            str(self.spec.path.name),
            "",
            None,
            (),
            (),
            (),
            {},
            {},
            meta,
            source=".".join(table[:-1]),
        )

    def run(self) -> ImportedProject:
        """Take the project over, with a note on the settings that are not."""
        zone = self.spec.configuration.get(ZONE)
        if zone is not None and is_zone(zone):
            self.zone = zone
        others = [
            key for key in self.spec.configuration if not key.startswith(INPUT) and (key != ZONE or zone != self.zone)
        ]
        if others:
            self.found.notes.append(f"{self.spec.path.name}: `configuration` is not imported: {', '.join(others)}")
        return super().run()

    def differing(self, checked: Checked) -> list[SpecError]:
        if checked.bound is None or any(isinstance(each, SpecError) for each in checked.errors):
            return []  # they are checked when those that have errors are left out
        return [SpecError(problem, span=at, hint=hint) for at, problem, hint in differences(checked.bound.graph)]

    def about(self, node: ProjectNode) -> str:
        """Return a node's kind and name for messages."""
        return f"{node.config['kind']} `{node.name}`" if node.config else super().about(node)

    def input_of(self, node: ProjectNode) -> tuple[dict[str, Any], str]:
        """Return the input for a table that the project doesn't define, and a remark."""
        if isinstance(own := node.meta.get("dd"), dict):
            return own, ""
        folder = f"{node.source}/{node.name}" if node.source else node.name
        named = f"{node.source}.{node.name}" if node.source else node.name
        remark = f'? the path of its files, relative to this file, and its columns: set them in the `configuration`, `{INPUT}{named}: "{{path: ...}}"`'
        return {"path": f"sources/{folder}/", "format": "append"}, remark

    def take(self, node: ProjectNode, relations: Mapping[Key, str]) -> None:
        """Take a table, a view or a flow over as a query, or leave it out with the reason."""
        kind = node.config["kind"]
        definition = node.config["definition"]
        read = [each for each in self.project.nodes.values() if node.id in each.reads]
        is_output = kind in OUTPUTS or (kind == "view" and not read)
        found = self.parsed.get(node.id)
        if missing := next((each for each in node.reads if each in self.gone), None):
            found = SpecError(f"it reads `{missing.split('.')[-1]}`, which is left out", span=definition.place)
        if isinstance(found, SpecError):
            self.leave(node.id, SpecError(f"{self.about(node)}: {found.problem}", span=found.span, hint=found.hint))
            return
        parts = tuple(self.names[each] for each in self.parts.get(node.id, ()))
        if found is None:
            at, end = definition.start, len(definition.text)
            query = Translation(
                "-", definition.file, definition.text, ((0, at, ""), (at, at + 1, "-"), (at + 1, end, ""))
            )
        else:
            query = found.translation({table: self.names[self.keys[self.spec.key(table)]] for table in found.tables})
        if kind == "streaming table":
            self.found.notes.append(
                f"{definition.place}: `{node.name}` is a streaming table: here it is always what its query makes of all rows"
            )
        self.queries[node.id] = ImportedQuery(node.id, self.names[node.id], query, written=is_output, parts=parts)


def _node_of(one: str, each: SparkDefinition, reads: tuple[str, ...], name: str = "") -> ProjectNode:
    config = {"kind": each.kind, "definition": each}
    *_, before, _ = one.split(".")
    name = name or each.name[-1]
    return ProjectNode(one, name, "model", each.file, each.file, "", (), reads, (), config, {}, {}, source=before)
