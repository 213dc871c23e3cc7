"""Several pipelines, ordered by their dependencies, and the lineage of columns across them: from outputs' columns to inputs' columns, and back.

A pipeline needs another whose outputs (or logs of rows put aside, or tables) are its inputs, or whose arrangements it imports. Only
pipeline files are read, no data. An input that is another pipeline's output continues in that pipeline, if it is one of those that were named.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.commands.check import bound_pipeline
from ddcli.dataclass import dataclass
from ddcli.errors import DdError, UsageError, suggestion
from ddcli.job.paths import catalog_of, database_file, logs_aside, state_of, takes
from ddcli.job.tables import place_of
from ddcli.plan import logical
from ddcli.plan.lineage import lineage
from ddcli.plan.pipeline_file import load_spec, read_spec
from ddcli.plan.relation import Relation
from ddcli.render.lineage import ColumnLineage, ColumnName, LineageReport
from ddcli.spec.document import included_files
from ddcli.spec.file import AT, ENDINGS, read_text
from ddcli.spec.model import DATABASE, SPARK
from ddcli.spec.tree import Mapping, parse_tree
from ddcli.store.files.access import locate, real

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.errors import Text
    from ddcli.plan.pipeline_file import BoundPipeline
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


def find_lineage(paths: Iterable[Path], wanted: Sequence[str] = ()) -> LineageReport:
    """Return the lineage of columns of pipeline files, and of those right in directories; no row is read.

    Each of `wanted` is the name of an output, a collection or an input, or of one of its columns, `sales.amount`. Columns of inputs
    are followed to the outputs' columns that they reach, others to the columns of inputs that they come from. Without any: all outputs' columns.
    Raises UsageError for an unknown name, or for inputs among others.
    """
    pipelines, _ = find_pipelines(paths)
    for pipeline in pipelines:
        if pipeline.spec is None:
            load_spec(pipeline.path)  # raises its errors
    labelled = {_label(each, pipelines): each for each in pipelines}
    followed = _FollowedPipelines(labelled, {label: bound_pipeline(each.path) for label, each in labelled.items()})
    outputs = [name for each in followed.bound for name in followed.columns_of_outputs(each)]
    if not wanted:
        return LineageReport([followed.lineage(name) for name in outputs], len(pipelines) == 1)
    columns = [name for text in wanted for name in followed.named(text)]
    inputs = [name for name in columns if followed.is_input(name)]
    if not inputs:
        return LineageReport([followed.lineage(name) for name in columns], len(pipelines) == 1)
    if len(inputs) < len(columns):
        raise UsageError(
            "inputs are followed to outputs, and outputs to inputs: not both at once",
            hint="call the command once for each direction",
        )
    asked = set(inputs)
    found = []
    for name in outputs:
        each = followed.lineage(name)
        own = [source for source in each.sources if source in asked]
        others = [source for source in each.influences if source in asked]
        if own or others:
            found.append(ColumnLineage(name, each.type, own, others))
    return LineageReport(found, len(pipelines) == 1)


def lineage_of(bound: BoundPipeline) -> list[ColumnLineage]:
    """Return the lineage of all columns of a pipeline's outputs, to columns of its inputs."""
    name = bound.spec.name.value
    followed = _FollowedPipelines({}, {name: bound})
    return [followed.lineage(column) for column in followed.columns_of_outputs(name)]


class _FollowedPipelines:
    """Pipelines, each after those that it reads from, with the lineage of columns that were asked for so far."""

    def __init__(self, pipelines: dict[str, Pipeline], bound: dict[str, BoundPipeline]) -> None:
        self._pipelines, self.bound = pipelines, bound
        self._known: dict[ColumnName, ColumnLineage] = {}

    def columns_of_outputs(self, label: str) -> list[ColumnName]:
        """Return the columns of a pipeline's outputs, without its checks' outputs."""
        spec = self.bound[label].spec
        return [name for output in spec.outputs if output not in spec.checks for name in self._columns(label, output)]

    def is_input(self, name: ColumnName) -> bool:
        """Return whether a column is an input's that no other of the pipelines writes."""
        bound = self.bound[name.pipeline]
        return name.of in bound.spec.inputs and name.of not in bound.spec.outputs and not self._origin(name)

    def named(self, text: str) -> list[ColumnName]:
        """Return the columns that a text means: `sales`, `sales.amount`, or either with its pipeline, `month/sales.amount`."""
        whole = {
            shown: (label, of)
            for label, bound in reversed(self.bound.items())
            for of in (*bound.relations, *bound.spec.outputs)
            for shown in (of, f"{label}/{of}")
        }
        if text in whole:
            return self._columns(*whole[text])
        columns = {f"{shown}.{name.column}": name for shown, each in whole.items() for name in self._columns(*each)}
        if text in columns:
            return [columns[text]]
        listed = ", ".join(name for name in whole if "/" not in name)
        hint = suggestion(text, [*columns, *whole], f"they are: {listed}")
        raise UsageError(f"no input, collection or output, and no column of one, is named '{text}'", hint=hint)

    def lineage(self, name: ColumnName) -> ColumnLineage:
        """Return the lineage of a column, through all pipelines."""
        if name not in self._known:
            relation = self._relation(name.pipeline, name.of)
            by_value, deciding = lineage(relation.node, name.column)
            sources, influences = set[ColumnName](), set[ColumnName]()
            for given in by_value:
                through = self._through(name.pipeline, *given)
                sources.update(through.sources)
                influences.update(through.influences)
            for given in deciding:
                through = self._through(name.pipeline, *given)
                influences.update(through.sources, through.influences)
            kind = str(relation.schema[name.column])
            self._known[name] = ColumnLineage(name, kind, sorted(sources), sorted(influences - sources))
        return self._known[name]

    def _through(self, label: str, of: str, column: str) -> ColumnLineage:
        """Return the lineage of an input's column: itself, or, where it is another pipeline's column, that column's."""
        bound = self.bound[label]
        names = [ColumnName(label, of, each) for each in _written(bound, of, column)]
        if len(names) != 1 or names[0].column != column:
            return ColumnLineage(ColumnName(label, of, column), "", names, [])
        origin = self._origin(names[0])
        return self.lineage(origin) if origin is not None else ColumnLineage(names[0], "", names, [])

    def _origin(self, name: ColumnName) -> ColumnName | None:
        """Return the column of another pipeline's output or collection that an input's column is; None if it is none."""
        given = self.bound[name.pipeline].spec.inputs[name.of]
        for label, other in self._pipelines.items():
            if label != name.pipeline and (of := self._pipelines[name.pipeline].origin(given, other)):
                found = ColumnName(label, of, name.column)
                return found if found in self._columns(label, of) else None
        return None

    def _relation(self, label: str, of: str) -> Relation:
        bound = self.bound[label]
        return bound.relations[bound.spec.outputs[of].source.value if of in bound.spec.outputs else of]

    def _columns(self, label: str, of: str) -> list[ColumnName]:
        return [ColumnName(label, of, column) for column in self._relation(label, of).schema]


def _label(pipeline: Pipeline, others: Sequence[Pipeline]) -> str:
    """Return a pipeline's name, or its path if another one has that name."""
    assert pipeline.spec is not None
    names = [each.spec.name.value for each in others if each.spec is not None]
    name = pipeline.spec.name.value
    return name if names.count(name) == 1 else str(pipeline.path)


def _written(bound: BoundPipeline, of: str, column: str) -> Sequence[str]:
    """Return the columns that the file names for a column of an input: the columns in `delete_when` and `order_by` for the ones that the engine adds."""
    given = bound.spec.inputs[of]
    texts = {logical.PRESENT: given.delete_when, logical.ORDER: given.order_by}
    if column not in (*texts, logical.MOMENT, logical.SEQUENCE):
        return (column,)
    text = texts.get(column)
    if text is None:
        return ()  # rows are there, and in the order of their arrival
    rows = Relation(logical.Source((), bound.schemas[of], of))
    return sorted(rows.scalar(text).columns())
