"""The specification of a project of Spark's declarative pipelines: `spark-pipeline.yml`, and the files that it names."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import yaml

from ddcli.dataclass import frozen
from ddcli.errors import UsageError, first_line
from ddcli.spec.syntax import too_deep

SPECS = ("spark-pipeline.yml", "spark-pipeline.yaml")
FIELDS = {"name", "storage", "catalog", "database", "schema", "configuration", "libraries"}
LARGEST = 1 << 20
"""The most bytes of the specification, and of an SQL file."""
Key = tuple[str, ...]


@frozen
class SparkProject:
    """A project's specification: the paths of its definitions, and the default catalog and database."""

    path: Path
    name: str
    libraries: tuple[str, ...]
    before: tuple[str, str]
    """The default catalog and database of a table's name, in lower case; '' if there is none."""
    configuration: dict[str, str]

    def key(self, parts: Key) -> Key:
        """Return the full name of a table."""
        lower = tuple(part.lower() for part in parts)
        return (*self.before[: max(0, 3 - len(lower))], *lower)


def read_spec(project: Path) -> SparkProject:
    """Return the specification in a folder, or of a file. Raises UsageError for one that Spark would refuse, too."""
    path = project
    if project.is_dir():
        there = [project / name for name in SPECS if (project / name).is_file()]
        if len(there) != 1:
            problem = f"there are {' and '.join(SPECS)}" if there else f"there is no {SPECS[0]}"
            raise UsageError(problem, place=str(project), hint="name the file of the pipeline's specification")
        (path,) = there
    try:
        tree = yaml_value(text_of(path))
    except (yaml.YAMLError, ValueError) as error:
        problem = f"this is not YAML: {first_line(error):.200}"
        raise UsageError(problem, place=str(path), hint="correct the file") from None
    try:
        return _spec_of(tree, path)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else str(error)
        hint = "correct the file: `spark-pipelines dry-run` refuses it, too"
        raise UsageError(f"this is not a pipeline's specification: {why:.200}", place=str(path), hint=hint) from None


def _spec_of(tree: dict[str, Any], path: Path) -> SparkProject:
    """Return the specification of a file's tree. An unfit tree raises AttributeError, KeyError, TypeError or ValueError."""
    if unknown := sorted(map(str, tree.keys() - FIELDS)):
        raise ValueError(f"`{unknown[0]}` is not a field of it")
    given = {name: tree.get(name) for name in ("name", "catalog", "database", "schema")}
    if not isinstance(tree["name"], str) or any(not isinstance(each, str | None) for each in given.values()):
        raise ValueError("a name is not text")
    libraries = tuple(each["glob"]["include"] for each in tree.get("libraries") or ())
    configuration = dict(tree.get("configuration") or {})
    if not all(isinstance(each, str) for each in (*libraries, *configuration, *configuration.values())):
        raise ValueError("a path or a setting is not text")
    for each in libraries:
        if glob.has_magic(each.removesuffix("/**")):
            raise ValueError(f"`{each}` is neither a file nor a folder followed by `/**`")
    before = (given["catalog"] or "").lower(), (given["database"] or given["schema"] or "").lower()
    return SparkProject(path, tree["name"], libraries, before, configuration)


def yaml_value(text: str) -> Any:
    """Return the content of a YAML text, read by libyaml, which reads `string?` in braces right. Raises YAMLError and ValueError."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if too_deep(text, loader):
        raise ValueError("nested too deeply")
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe one


def text_of(path: Path) -> str:
    """Return the text of a file. Raises UsageError."""
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"larger than {LARGEST >> 20} MiB", place=str(path))
        return path.read_text(encoding="utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise UsageError(f"can't read it: {error.strerror}", place=str(path)) from None
    except UnicodeDecodeError:
        raise UsageError("not UTF-8", place=str(path)) from None


def library_files(spec: SparkProject) -> list[Path]:
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
            raise UsageError(
                "the library is outside of the project", place=str(outside), hint="move it into the project"
            )
        found |= dict.fromkeys(
            path for path in sorted(paths) if path.is_file() and "__pycache__" not in path.parts and path != spec.path
        )
    return list(found)


def _is_below(path: Path, folder: Path) -> bool:
    return Path(os.path.normpath(path.absolute())).is_relative_to(Path(os.path.normpath(folder.absolute())))
