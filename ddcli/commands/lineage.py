"""Column lineage across pipelines, for `dd lineage`: from outputs' columns to inputs' columns, and back.

An input that is another pipeline's output continues in that pipeline, if it is one of those that were named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.commands.check import bound_pipeline
from ddcli.commands.pipelines import find_pipelines
from ddcli.errors import UsageError, suggestion
from ddcli.plan import logical
from ddcli.plan.lineage import lineage
from ddcli.plan.pipeline_file import load_spec
from ddcli.plan.relation import Relation
from ddcli.render.lineage import ColumnLineage, ColumnName, LineageReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.commands.pipelines import Pipeline
    from ddcli.plan.pipeline_file import BoundPipeline


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
        """Return the lineage of an input's column: itself, or that of the column of another pipeline that it is."""
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
