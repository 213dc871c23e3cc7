"""What of a project of Spark's declarative pipelines can be taken over as a pipeline, and why the rest can't."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ddcli.commands.dbt.manifest import CompiledProject, DbtNode
from ddcli.commands.dbt.pipeline import ImportedQuery
from ddcli.commands.dbt.project import ABSORBED, DbtImport, Importing
from ddcli.commands.dbt.translation import Translation
from ddcli.commands.sdp.definitions import SparkDefinition, read_definitions
from ddcli.commands.sdp.translation import SparkQuery, read_query
from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, UsageError
from ddcli.spec.syntax import too_deep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SPECS = ("spark-pipeline.yml", "spark-pipeline.yaml")
FIELDS = {"name", "storage", "catalog", "database", "schema", "configuration", "libraries"}
INPUT = "dd.inputs."
"""How keys of the `configuration` begin that hold inputs as a pipeline file has them, as text."""
LARGEST = 1 << 20
"""Bytes of the specification, and of an SQL file."""
OUTPUTS = ("materialized view", "streaming table")
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SparkProject:
    """What a project's specification says: where its definitions lie, and the names that stand before those of tables."""

    path: Path
    name: str
    libraries: tuple[str, ...]
    before: tuple[str, str]
    """The catalog and the database of a name that says none, in small letters; of no name, ''."""
    configuration: dict[str, str]

    def key(self, parts: Key) -> Key:
        """Return the full name of a table."""
        lower = tuple(part.lower() for part in parts)
        return (*self.before[: max(0, 3 - len(lower))], *lower)


def import_sdp(project: Path, target: Path) -> DbtImport:
    """Return the pipeline file that a project becomes, for a place of its own. Raises UsageError where nothing of it can be one."""
    spec = read_spec(project)
    definitions: list[SparkDefinition] = []
    errors: list[SpecError] = []
    for path in _library_files(spec):
        file = str(path.relative_to(spec.path.parent))
        if path.suffix != ".sql":
            what = "it is written in Python" if path.suffix == ".py" else "it is no SQL file"
            errors.append(SpecError(what, place=file, hint="write it in SQL, or as `function` by hand"))
            continue
        found, wrong = read_definitions(file, _text(path))
        definitions += found
        errors += wrong
    return _SparkImporting(spec, definitions, errors, target).run()


def read_spec(project: Path) -> SparkProject:
    """Return the specification in a folder, or of a file. Raises UsageError for what Spark would not take either."""
    path = project
    if project.is_dir():
        there = [project / name for name in SPECS if (project / name).is_file()]
        if len(there) != 1:
            problem = f"there are {' and '.join(SPECS)}" if there else f"there is no {SPECS[0]}"
            raise UsageError(problem, place=str(project), hint="name the file of the pipeline's specification")
        (path,) = there
    try:
        tree = _yaml(_text(path))
    except (yaml.YAMLError, ValueError) as error:
        problem = f"no YAML: {str(error).splitlines()[0]:.200}"
        raise UsageError(problem, place=str(path), hint="correct the file") from None
    try:
        return _spec_of(tree, path)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else str(error)
        hint = "correct the file: `spark-pipelines dry-run` refuses it, too"
        raise UsageError(f"no specification of a pipeline: {why:.200}", place=str(path), hint=hint) from None


def _spec_of(tree: dict[str, Any], path: Path) -> SparkProject:
    """Return the specification that a file has. Raises what comes of a tree that is none."""
    if unknown := sorted(map(str, tree.keys() - FIELDS)):
        raise ValueError(f"`{unknown[0]}` is no field of it")
    given = {name: tree.get(name) for name in ("name", "catalog", "database", "schema")}
    if not isinstance(tree["name"], str) or any(not isinstance(each, str | None) for each in given.values()):
        raise ValueError("a name is no text")
    libraries = tuple(each["glob"]["include"] for each in tree.get("libraries") or ())
    configuration = dict(tree.get("configuration") or {})
    if not all(isinstance(each, str) for each in (*libraries, *configuration, *configuration.values())):
        raise ValueError("a path or a setting is no text")
    for each in libraries:
        if glob.has_magic(each.removesuffix("/**")):
            raise ValueError(f"`{each}` is no file and no folder with `/**` behind it")
    before = (given["catalog"] or "").lower(), (given["database"] or given["schema"] or "").lower()
    return SparkProject(path, tree["name"], libraries, before, configuration)


def _yaml(text: str) -> Any:
    """Return what a YAML text says, by libyaml, which is right about `string?` in braces. Raises YAMLError and ValueError."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if too_deep(yaml.parse(text, Loader=loader)):
        raise ValueError("nested too deeply")
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe one


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"larger than {LARGEST >> 20} MiB", place=str(path))
        return path.read_text(encoding="utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise UsageError(f"can't read it: {error.strerror}", place=str(path)) from None
    except UnicodeDecodeError:
        raise UsageError("not UTF-8", place=str(path)) from None


def _library_files(spec: SparkProject) -> list[Path]:
    """Return the files that the libraries name, each once, in order."""
    folder = spec.path.parent
    found: dict[Path, None] = {}
    for each in spec.libraries:
        if not each.endswith("/**"):
            paths = [folder / each]
        else:
            paths = [
                Path(place, name) for place, _, names in os.walk(folder / each.removesuffix("/**")) for name in names
            ]
        if outside := next((path for path in paths if not _is_below(path, folder)), None):
            raise UsageError("a library that lies outside of the project", place=str(outside), hint="move it there")
        found |= dict.fromkeys(
            path for path in sorted(paths) if path.is_file() and "__pycache__" not in path.parts and path != spec.path
        )
    return list(found)


def _is_below(path: Path, folder: Path) -> bool:
    return Path(os.path.normpath(path.absolute())).is_relative_to(Path(os.path.normpath(folder.absolute())))


class _SparkImporting(Importing):
    """A project of Spark's declarative pipelines while its pipeline is made."""

    program = "sdp"
    absorbed = tuple(each for each in ABSORBED if not each.startswith("concat "))

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
        super().__init__(CompiledProject(spec.name, nodes, True, ()), spec.path.parent, target)
        self.found.left_out += errors
        self.found.notes += self.notes

    def _nodes(self, definitions: list[SparkDefinition]) -> Iterator[DbtNode]:
        """Yield tables, views, flows and sources as nodes, each with what it reads."""
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
                    problem = f"flow `{each.name[-1]}`: `{'.'.join(each.target)}` is no streaming table of the project"
                    self.errors.append(SpecError(problem, span=each.place))
        sources: dict[Key, DbtNode] = {}
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
        self, one: str, each: SparkDefinition, way: SparkDefinition | None, sources: dict[Key, DbtNode], name: str = ""
    ) -> DbtNode:
        """Return a node with the query of a definition."""
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

    def _source(self, one: str, table: Key) -> DbtNode:
        """Return a table that the project reads and doesn't define."""
        meta: dict[str, Any] = {}
        given = self.spec.configuration.get(INPUT + ".".join(table))
        if given is not None:
            try:
                meta = {"dd": _yaml(given)}
            except (yaml.YAMLError, ValueError):
                meta = {}
            if not isinstance(meta.get("dd"), dict):
                raise UsageError(
                    f"`{INPUT}{'.'.join(table)}` is no input",
                    place=str(self.spec.path),
                    hint='write it as a pipeline file does, in quotes: "{path: landing/orders/, format: append}"',
                )
        return DbtNode(
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

    def run(self) -> DbtImport:
        """Take over what can be."""
        others = [key for key in self.spec.configuration if not key.startswith(INPUT)]
        if others:
            self.found.notes.append(f"{self.spec.path.name}: `configuration` is not taken over: {', '.join(others)}")
        return super().run()

    def about(self, node: DbtNode) -> str:
        """Return what a person calls a node."""
        return f"{node.config['kind']} `{node.name}`" if node.config else super().about(node)

    def input_of(self, node: DbtNode) -> tuple[dict[str, Any], str]:
        """Return a table that the project doesn't define as an input."""
        if isinstance(own := node.meta.get("dd"), dict):
            return own, ""
        folder = f"{node.source}/{node.name}" if node.source else node.name
        named = f"{node.source}.{node.name}" if node.source else node.name
        remark = f'? where its files lie, and its columns: state it in the `configuration`, `{INPUT}{named}: "{{path: ...}}"`'
        return {"path": f"sources/{folder}/", "format": "append"}, remark

    def take(self, node: DbtNode, relations: Mapping[Key, str]) -> None:
        """Take a table, a view or a flow over as a query, or leave it out with the reason."""
        kind = node.config["kind"]
        definition = node.config["definition"]
        read = [each for each in self.manifest.nodes.values() if node.id in each.reads]
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
            self.found.notes += [f"{definition.place}: {note}" for note in found.notes]
        if kind == "streaming table":
            self.found.notes.append(
                f"{definition.place}: `{node.name}` is a streaming table: here it is always what its query makes of all rows"
            )
        self.queries[node.id] = ImportedQuery(node.id, self.names[node.id], query, written=is_output, parts=parts)


def _node_of(one: str, each: SparkDefinition, reads: tuple[str, ...], name: str = "") -> DbtNode:
    config = {"kind": each.kind, "definition": each}
    *_, before, _ = one.split(".")
    name = name or each.name[-1]
    return DbtNode(one, name, "model", each.file, each.file, "", (), reads, (), config, {}, {}, source=before)
