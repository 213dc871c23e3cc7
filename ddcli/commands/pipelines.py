"""Several pipelines for one run, ordered by their dependencies.

A pipeline needs another whose outputs (or logs of rows put aside, or tables) are its inputs, or whose arrangements it imports. Only
pipeline files are read, no data.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import DdError, UsageError, suggestion
from ddcli.job.paths import catalog_of, database_file, logs_aside, state_of, takes
from ddcli.job.tables import place_of
from ddcli.plan.pipeline_file import read_spec
from ddcli.spec.document import included_files
from ddcli.spec.file import AT, ENDINGS, read_text
from ddcli.spec.model import DATABASE, SPARK
from ddcli.spec.tree import Mapping, parse_tree
from ddcli.store.files.access import real
from ddcli.store.files.objects import locate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.errors import Text
    from ddcli.spec.model import InputSpec, Spec


@dataclass(eq=False)
class Pipeline:
    """A pipeline file, with its spec if it can be read; `needs` are the pipelines that it reads from."""

    path: Path
    spec: Spec | None
    needs: list[Pipeline] = field(default_factory=list)

    @property
    def _base(self) -> Path:
        return self.path.absolute().parent

    @property
    def outputs(self) -> Sequence[str]:
        """The names of its outputs."""
        return tuple(self.spec.outputs) if self.spec else ()

    def written(self) -> dict[str, list[Path]]:
        """Return the files that it writes by output, "" for the rows put aside; a log is represented by one file in its directory."""
        if self.spec is None:
            return {}
        found = {"": [self._log(text) for _, text in logs_aside(self.spec)]}
        for name, output in self.spec.outputs.items():
            found[name] = [self._log(output.path)] if output.path is not None else []
            if output.target is not None and output.target.kind == "parquet":
                found[name].append(place_of(output.target, self._base))
        return found

    def _log(self, text: Text) -> Path:
        return real(locate(self._base, text.value)) / "updates.parquet"

    def tables(self) -> dict[str, tuple[object, ...]]:
        """Return the identities of the tables that it writes by output, without files."""
        found: dict[str, tuple[object, ...]] = {}
        for name, output in self.spec.outputs.items() if self.spec else ():
            if (target := output.target) is None:
                continue
            if target.kind == "iceberg":
                found[name] = (target.place.value, catalog_of(target.catalog))
            elif target.kind == "ducklake":
                found[name] = (target.kind, self._database(target.place.value), _unqualified(target.called))
            elif target.kind == DATABASE:
                found[name] = (self._database(target.place.value), _unqualified(target.called))
            elif target.kind == SPARK:
                found[name] = (target.kind, target.place.value)
            elif target.kind == "delta":
                found[name] = (target.kind, place_of(target, self._base))
        return found

    def _table(self, given: InputSpec) -> tuple[object, ...]:
        """Return the identity of an input's table, as `tables` does. The tables behind a query are unknown."""
        if given.table == "iceberg":
            return given.path.value, catalog_of(given.catalog)
        if given.table == SPARK:
            return given.table, given.path.value
        if given.table == "ducklake" and given.query:
            return given.table, self._database(given.path.value), _unqualified(given.query.value)
        if given.table == "database":
            query = given.query.value.removeprefix("select * from ") if given.query else ""
            return self._database(given.path.value), _unqualified(query.replace('"', ""))
        return given.table, real(locate(self._base, given.path.value))

    def _database(self, uri: str) -> object:
        """Return the identity of a database: its file, or its URI."""
        path = database_file(uri)
        return real(locate(self._base, path)) if path else uri

    def reads(self, other: Pipeline) -> bool:
        """Return whether one of its inputs is a log, a table or an arrangement of the other pipeline."""
        given = self.spec.inputs.values() if self.spec is not None else ()
        return any(self.origin(each, other) is not None for each in given)

    def origin(self, given: InputSpec, other: Pipeline) -> str | None:
        """Return the other pipeline's output, or the collection that it keeps arranged, that an input reads; "" for rows that it has put aside; None if it reads none."""
        if other.spec is None:
            return None
        if given.table:
            table = self._table(given)
            found = next((name for name, each in other.tables().items() if each == table), None)
            if found is not None:
                return found
        if not given.in_files:
            return None
        place = real(locate(self._base, given.path.value))
        if given.arrangement is not None:
            return given.arrangement.value if place == real(state_of(other.spec, other._base)) else None
        written = other.written().items()
        return next((name for name, paths in written if any(takes(place, path) for path in paths)), None)


def find_pipelines(paths: Iterable[Path]) -> tuple[list[Pipeline], list[Path]]:
    """Return the pipelines of files, and of the YAML files right in directories; and the YAML files that are not pipelines.

    Each comes after those that it reads from; else they are in the order of `paths`. Raises UsageError for a missing file, a directory
    without a pipeline, and for pipelines that read from each other.
    """
    found: dict[Path, Pipeline] = {}
    passed: list[Path] = []
    for path in paths:
        if not path.is_dir():
            if not path.exists():
                read_text(path)  # raises, before any of them is run
            found.setdefault(real(path), _open(path))
            continue
        files = sorted(file for file in path.iterdir() if file.suffix in ENDINGS and not file.name.startswith("."))
        files = [file for file in files if not _is_of_branch(file)]
        pipelines = [file for file in files if _is_pipeline(file)]
        if not pipelines:
            raise UsageError("the directory has no pipeline file", place=str(path), hint="name a file: dd run PIPELINE")
        passed += [file for file in files if file not in pipelines]
        opened = [_open(file) for file in pipelines]
        for pipeline in _no_fragments(opened):
            found.setdefault(real(pipeline.path), pipeline)
    every = list(found.values())
    for pipeline in every:
        pipeline.needs = [other for other in every if other is not pipeline and pipeline.reads(other)]
    return _in_order(every), passed


def select(pipelines: Sequence[Pipeline], wanted: Iterable[str]) -> list[Pipeline]:
    """Return the pipelines that write the `wanted` outputs; for `+name` also all that these need, for `name+` all that need these.

    Raises UsageError for an unknown output.
    """
    chosen: list[Pipeline] = []
    names = [name for pipeline in pipelines for name in pipeline.outputs]
    for text in wanted:
        name = text.strip("+")
        own = [pipeline for pipeline in pipelines if name in pipeline.outputs]
        if not own:
            hint = suggestion(name, names, f"outputs: {', '.join(names) or 'none'}")
            raise UsageError(f"no output is named '{name}'", hint=hint)
        chosen += own
        if text.startswith("+"):
            chosen += _needed(own)
        if text.endswith("+"):
            chosen += [each for each in pipelines if any(one in _needed([each]) for one in own)]
    return [pipeline for pipeline in pipelines if pipeline in chosen]


def _unqualified(table: str) -> str:
    """Return the name of a database's table without the default schema."""
    return table.removeprefix("public.").removeprefix("main.")


def _open(path: Path) -> Pipeline:
    """Read a pipeline file. Errors in it are left to its run to report."""
    try:
        return Pipeline(path, read_spec(path)[0])
    except DdError:
        return Pipeline(path, None)


def _is_of_branch(file: Path) -> bool:
    """Return whether a file belongs to a branch of the pipeline in the file beside it: a branch is run by its own name only."""
    main, at, _ = file.stem.partition(AT)
    return bool(at) and file.with_stem(main).exists()


def _is_pipeline(path: Path) -> bool:
    """Return whether a YAML file is a pipeline, as it has inputs, outputs or includes; one that can't be read may be."""
    try:
        tree = parse_tree(read_text(path), str(path))
    except DdError:
        return True
    if isinstance(tree.root, Mapping):
        return any(tree.root.get(section) is not None for section in ("inputs", "outputs", "include"))
    return bool(tree.errors)


def _no_fragments(pipelines: Sequence[Pipeline]) -> list[Pipeline]:
    """Return the pipelines without those that others include: their outputs are these others'."""
    included = {real(path) for pipeline in pipelines for path in included_files(pipeline.path)}
    return [pipeline for pipeline in pipelines if real(pipeline.path) not in included]


def _needed(pipelines: Iterable[Pipeline]) -> list[Pipeline]:
    """Return all pipelines that some need, directly or indirectly."""
    found: list[Pipeline] = []
    open_ = [need for pipeline in pipelines for need in pipeline.needs]
    while open_:
        pipeline = open_.pop()
        if pipeline not in found:
            found.append(pipeline)
            open_ += pipeline.needs
    return found


def _in_order(pipelines: Sequence[Pipeline]) -> list[Pipeline]:
    # Others may need a file that can't be read, so it comes first, with its error.
    left, found = sorted(pipelines, key=lambda one: one.spec is not None), []
    while left:
        following = next((one for one in left if not any(need in left for need in one.needs)), None)
        if following is None:
            listed = ", ".join(f"'{one.path}'" for one in left if one in _needed([one]))
            raise UsageError(
                f"pipelines read from each other: {listed}", hint="run each by itself, in the order you mean"
            )
        left.remove(following)
        found.append(following)
    return found
