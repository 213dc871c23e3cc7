"""The parts of a project of Spark's declarative pipelines that can become a pipeline, and the reasons why the others can't.

For `auto cdc` a query makes the table from a source's changes. The rows of a key are read in the order of `sequence by`, however they arrive: so a
late row changes what it would have changed in time, as in Spark. Rows of one key at one place of that order have no defined order in Spark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml

from ddcli.commands.check import check_text
from ddcli.commands.projects import (
    ForeignProject,
    ImportedProject,
    ImportedQuery,
    ProjectImporter,
    ProjectNode,
    Translation,
    quoted,
    written,
)
from ddcli.commands.sdp_definitions import (
    ColumnList,
    Key,
    SparkDefinition,
    SparkProject,
    expectations_in_python,
    library_files,
    read_definitions,
    read_spec,
    text_of,
    yaml_value,
)
from ddcli.commands.sdp_translation import SparkQuery, differences, read_expression, read_query
from ddcli.errors import SpecError, UsageError
from ddcli.expressions.moments import is_zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.commands.check import Checked
    from ddcli.commands.sdp_definitions import ChangeFlow, Expectation
    from ddcli.errors import DdError


START, END = "__START_AT", "__END_AT"
"""The columns of an interval, as Spark names them; the end of one that lasts is null."""


def needs_columns(flow: ChangeFlow) -> bool:
    """Return whether the query of a flow names all columns of its source."""
    return flow.history or flow.ignores_nulls


def change_query(flow: ChangeFlow, source: str, columns: Sequence[str], sequence: str, deletes: str) -> str:
    """Return the query of a flow, given its translated conditions; `columns`: the source's columns, if the query needs them. Raises SpecError."""
    if not needs_columns(flow):
        listed = ", ".join(map(quoted, flow.columns.names))
        if flow.columns.excluded:
            listed = f"* exclude ({listed})" if listed else "*"
        return _present(listed, _names(flow.keys), source, f"({sequence})", f"coalesce(({deletes}), false)")
    keys = _selected(ColumnList(flow.keys, excluded=False), columns)
    chosen = _selected(flow.columns, columns)
    values = [name for name in chosen if name not in keys]
    deleted = f"coalesce(({deletes}), false)"
    # Changes may arrive twice.
    tables = [f"__rows as (select distinct *, ({sequence}) as __sequence, {deleted} as __deleted from {source})"]
    if flow.ignores_nulls:
        tables += _filled(keys, values)
    rows = "__filled" if flow.ignores_nulls else "__rows"
    if flow.history:
        tables += _runs(rows, keys, _selected(flow.tracked, values))
        query = f"select {_names(chosen)}, {START}, {END} from __intervals where __ends and not __deleted"
    else:
        query = _present(_names(chosen), _names(keys), rows, "__sequence", "__deleted")
    return "with\n  " + ",\n  ".join(tables) + f"\n{query}"


def _present(listed: str, keys: str, rows: str, sequence: str, deleted: str) -> str:
    """Return the query of the last row of each key, if that is no deletion."""
    last = f"select distinct on ({keys}) * from {rows} order by {keys}, {sequence} desc"
    return f"select {listed} from ({last}) where not {deleted}"


def _runs(rows: str, keys: Sequence[str], tracked: Sequence[str]) -> list[str]:
    """Return the tables of the intervals: consecutive rows of a key with the same tracked values are one, with the last of these rows."""
    order = f"over (partition by {_names(keys)} order by __sequence)"
    changed = [f"{quoted(name)} is distinct from lag({quoted(name)}) {order}" for name in tracked]
    begins = " or ".join(["__deleted", f"coalesce(lag(__deleted) {order}, true)", *changed])
    start, end = f"max(case when __begins then __sequence end) {order} as {START}", f"lead(__sequence) {order} as {END}"
    ends = f"coalesce(lead(__begins) {order}, true) as __ends"
    return [
        f"__runs as (select *, {begins} as __begins from {rows})",
        f"__intervals as (select *, {start}, {end}, {ends} from __runs)",
    ]


def _filled(keys: Sequence[str], values: Sequence[str]) -> list[str]:
    """Return the tables of rows in which a null is the last other value of its column since the key's last deletion."""
    there = [f"case when not __deleted then {quoted(name)} end" for name in values]
    life, order = f"partition by {_names(keys)}, __life", "order by __sequence"
    deleted = f"sum(case when __deleted then 1 else 0 end) over (partition by {_names(keys)} {order})"
    counts = "".join(f", count({each}) over ({life} {order}) as __at_{at}" for at, each in enumerate(there))
    filled = "".join(
        f", max({each}) over ({life}, __at_{at}) as {quoted(name)}"
        for at, (name, each) in enumerate(zip(values, there, strict=True))
    )
    return [
        f"__lives as (select *, {deleted} as __life from __rows)",
        f"__counted as (select *{counts} from __lives)",
        f"__filled as (select {_names(keys)}, __sequence, __deleted{filled} from __counted)",
    ]


def _selected(listed: ColumnList, columns: Sequence[str]) -> list[str]:
    """Return the columns that a list means. Raises SpecError for one that is not there."""
    there = {name.lower(): name for name in columns}
    if missing := next((name for name in listed.names if name.lower() not in there), None):
        raise SpecError(f"there is no column `{missing}`", hint=f"columns: {', '.join(columns)}")
    named = {name.lower() for name in listed.names}
    return [name for lower, name in there.items() if (lower in named) != listed.excluded]


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


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
            errors += expectations_in_python(file, path) if path.suffix == ".py" else ()
            continue
        found, wrong = read_definitions(file, text_of(path))
        definitions += found
        errors += wrong
    return _SparkImporter(spec, definitions, errors, target).run()


class _SparkImporter(ProjectImporter):
    """Imports a project of Spark's declarative pipelines."""

    program = "sdp"
    of_duckdb = False

    def __init__(
        self, spec: SparkProject, definitions: list[SparkDefinition], errors: list[SpecError], target: Path
    ) -> None:
        self.spec = spec
        self.parsed: dict[str, SparkQuery | SparkDefinition | SpecError] = {}
        """The query of each node, the flow of changes that writes it, or the reason why there is none."""
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
            ways = [*([each] if each.query or each.changes else []), *into]
            yield from self._expectations(one, each)
            if len(ways) < 2:
                way = ways[0] if ways else None
                yield self._node(one, each, way, sources)
                if way is not None and way.changes is not None and way.changes.query:
                    source = replace(way, kind="temporary view", query=way.changes.query, changes=None)
                    yield self._node(f"{one}.source", source, source, sources, name=f"{each.name[-1]}_source")
                continue
            if any(way.changes is not None for way in ways):
                problem = "several flows write to it, and one has `auto cdc`"
                self.parsed[one] = SpecError(problem, span=each.place, hint="leave one flow")
                yield _node_of(one, each, ())
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
        """Return the node of a definition, whose query is `way`'s."""
        reads: list[str] = []
        if way is not None and way.changes is not None:
            self.parsed[one] = way
            if way.changes.query:
                return _node_of(one, each, (f"{one}.source",), name)
            tables: tuple[Key, ...] = (tuple(part.lower() for part in way.changes.source),)
        else:
            try:
                query = None if way is None else read_query(way)
            except SpecError as error:
                self.parsed[one] = error
                return _node_of(one, each, (), name)
            self.parsed[one] = query or SpecError("no flow writes to it", span=each.place)
            tables = query.tables if query else ()
        for table in tables:
            key = self.spec.key(table)
            if key not in self.keys:
                self.keys[key] = f"source.{'.'.join(key)}"
                sources[key] = self._source(self.keys[key], table)
            reads.append(self.keys[key])
        return _node_of(one, each, tuple(reads), name)

    def _expectations(self, one: str, each: SparkDefinition) -> Iterator[ProjectNode]:
        """Yield the expectations of a table or a view as nodes that read it."""
        for at, expectation in enumerate(each.expectations):
            config = {"kind": "expectation", "definition": each, "expectation": expectation}
            name = f"{each.name[-1]}_{expectation.name}"
            place = expectation.place
            yield ProjectNode(
                f"test.{one}.{at}", name, "test", each.file, each.file, "", (), (one,), (), config, {}, {}, span=place
            )

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
        """Take a table, a view, a flow or an expectation over as a query or a check. Raises SpecError if it can't be imported."""
        definition: SparkDefinition = node.config["definition"]
        if node.kind == "test":
            self._take_expectation(node, definition, node.config["expectation"])
            return
        query = self._query(node, definition)
        kind = node.config["kind"]
        is_output = kind in OUTPUTS or (kind == "view" and not self._readers(node.id))
        parts = tuple(self.names[each] for each in self.parts.get(node.id, ()))
        if kind == "streaming table" and not isinstance(self.parsed.get(node.id), SparkDefinition):
            self.found.notes.append(
                f"{definition.place}: `{node.name}` is a streaming table: here it is always what its query makes of all rows"
            )
        self.queries[node.id] = ImportedQuery(node.id, self.names[node.id], query, written=is_output, parts=parts)

    def _readers(self, one: str) -> list[ProjectNode]:
        """Return the nodes that read a node, without its expectations."""
        return [each for each in self.project.nodes.values() if one in each.reads and each.kind != "test"]

    def _query(self, node: ProjectNode, definition: SparkDefinition) -> Translation:
        """Return the query of a node, without the rows that its expectations drop. Raises SpecError if it can't be imported."""
        found = self.parsed.get(node.id)
        if isinstance(found, SpecError):
            raise found
        dropped = [each for each in definition.expectations if each.action == "drop"]
        if isinstance(found, SparkDefinition):
            if dropped:
                problem = "an expectation that drops rows from a target of `auto cdc` can't be imported"
                raise SpecError(problem, span=dropped[0].place, hint="drop them in the query that the flow reads")
            return _whole(definition, self._changes(node, found))
        if found is None:
            if dropped:
                problem = "an expectation that drops rows of several flows can't be imported"
                raise SpecError(problem, span=dropped[0].place, hint="drop them in the queries of the flows")
            return _whole(definition, "-")
        query = found.translation({table: self.names[self.keys[self.spec.key(table)]] for table in found.tables})
        if not dropped or self._copied(node.id) is not None:
            return query
        return _around(
            query, "select * from (", f") where {' and '.join(_holds(definition, each) for each in dropped)}"
        )

    def _copied(self, one: str) -> str | None:
        """Return the input whose rows a node has as they are, if no other node reads it: then the input itself may lack rows."""
        found = self.parsed.get(one)
        read = self.project.nodes[one].reads
        if not isinstance(found, SparkQuery) or not found.is_copy or len(read) != 1:
            return None
        name = self.names[read[0]]
        return name if name in self.inputs and len(self._readers(read[0])) == 1 else None

    def _take_expectation(self, node: ProjectNode, definition: SparkDefinition, each: Expectation) -> None:
        """Turn an expectation into a check. Raises SpecError if it can't be imported."""
        (of,) = node.reads
        name, copied = self.names[node.id], self._copied(of)
        if each.action != "drop" or copied is not None:
            otherwise = {"": "warn", "drop": "quarantine", "fail": "fail"}[each.action]
            checked = copied if each.action == "drop" else self.names[of]
            self.checks[node.id] = {
                "row": _holds(definition, each),
                "of": checked,
                "name": name,
                "otherwise": otherwise,
            }
            return
        found = self.parsed[of]
        assert isinstance(found, SparkQuery), "of other tables no rows are dropped"
        query = found.translation({table: self.names[self.keys[self.spec.key(table)]] for table in found.tables})
        query = _around(query, "select * from (", f") where not {_holds(definition, each)}")
        self.queries[node.id] = ImportedQuery(node.id, name, query, written=False, otherwise="warn")

    def leave_check(self, one: str, error: DdError) -> None:
        """Leave out an expectation, and the table if it drops rows of it: the table would have them."""
        dropping = self.checks.get(one, {}).get("otherwise") == "quarantine"
        super().leave_check(one, error)
        if dropping:
            (of,) = self.project.nodes[one].reads
            table = self.project.nodes[of]
            problem = f"{self.about(table)}: its expectation `{self.project.nodes[one].name}` can't be imported"
            self.leave(of, SpecError(problem, span=table.span))

    def _changes(self, node: ProjectNode, flow: SparkDefinition) -> str:
        """Return the query of a flow of changes. Raises SpecError if it can't be imported."""
        assert flow.changes is not None, "it is a flow of changes"
        (source,) = node.reads
        columns = self._columns(source) if needs_columns(flow.changes) else ()
        sequence = read_expression(flow, flow.changes.sequence)
        deletes = read_expression(flow, flow.changes.deletes) if flow.changes.deletes else "false"
        return change_query(flow.changes, quoted(self.names[source]), columns, sequence, deletes)

    def _columns(self, one: str) -> list[str]:
        """Return the columns of an input or a query. Raises SpecError if they are not known."""
        name = self.names[one]
        queries = [replace(each, written=each.id == one) for each in self.queries.values() if not each.otherwise]
        if name in self.inputs:  # a pipeline has an output
            queries = [
                ImportedQuery(one, "source", Translation(f"select * from {quoted(name)}", "", "", ()), written=True)
            ]
        text = written(self.program, self.project.name, self.inputs, queries, {}, self.zone)
        outputs = check_text("\n".join(text.lines) + "\n", self.target).outputs
        if not outputs:
            hint = (
                f'state the columns of the inputs in the `configuration`, `{INPUT}TABLE: "{{path: ..., columns: ...}}"`'
            )
            raise SpecError(f"the columns of its source `{name}` are not known", hint=hint)
        (found,) = outputs.values()
        return list(found)


def _holds(definition: SparkDefinition, each: Expectation) -> str:
    """Return the condition under which an expectation holds: a null violates it."""
    return f"coalesce(({read_expression(definition, each.condition)}), false)"


def _whole(definition: SparkDefinition, text: str) -> Translation:
    """Return a query whose every place is the place of a definition's name."""
    at, end = definition.start, len(definition.text)
    return Translation(text, definition.file, definition.text, ((0, at, ""), (at, at + 1, text), (at + 1, end, "")))


def _around(query: Translation, before: str, after: str) -> Translation:
    """Return a query with text before and after it."""
    (start, first, _), *others, (last, end, _) = query.edits
    edits = ((start, first, before), *others, (last, end, after))
    return Translation(before + query.text + after, query.file, query.compiled, edits)


def _node_of(one: str, each: SparkDefinition, reads: tuple[str, ...], name: str = "") -> ProjectNode:
    config = {"kind": each.kind, "definition": each}
    *_, before, _ = one.split(".")
    name = name or each.name[-1]
    return ProjectNode(
        one, name, "model", each.file, each.file, "", (), reads, (), config, {}, {}, source=before, span=each.place
    )
