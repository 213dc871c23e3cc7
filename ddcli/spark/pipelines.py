"""A pipeline between frames of Spark: its inputs are brought to some, its outputs are read as others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.driver.run import run as run_pipeline
from ddcli.errors import UsageError, suggestion
from ddcli.job.request import read_request
from ddcli.plan.pipeline_file import parse_spec
from ddcli.spark.tables import write_difference
from ddcli.spec.file import read_text
from ddcli.store.files.objects import locate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ddcli.job.summary import RunSummary
    from ddcli.spec.model import Spec


class OutputFrames(Mapping[str, "DataFrame"]):
    """The outputs of a pipeline as frames, each made when it is asked for: the records with their multiplicity `diff`, as they are when Spark reads them."""

    def __init__(self, session: SparkSession, paths: Mapping[str, Path]) -> None:
        self._session, self._paths = session, paths

    def __getitem__(self, name: str) -> DataFrame:
        return self._session.read.format("dd").load(str(self._paths[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class SparkRun(NamedTuple):
    """The result of a run: its summary, and the outputs as frames."""

    summary: RunSummary
    outputs: OutputFrames


def run(
    path: Path | str, session: SparkSession | Any, inputs: Mapping[str, DataFrame] | None = None, **options: Any
) -> SparkRun:
    """Bring inputs of a pipeline to the rows of frames, by difference, then its outputs up to date; `options` are the options of `ddcli.run`.

    Each of these inputs is a log of changes that only this writes, at its `path`. If the run fails, they keep the new rows for the next one. Raises
    a DdError for the pipeline, and Spark's errors for frames.
    """
    path = Path(path)
    spec = parse_spec(read_text(path), str(path))
    places = {name: _log_of(spec, name, path) for name in inputs or {}}
    for name, frame in (inputs or {}).items():
        write_difference(frame, str(places[name]))
    summary = run_pipeline(path, spark=session, **options)
    state = options.get("state")
    outputs = read_request(path, None if state is None else Path(state)).outputs
    return SparkRun(summary, OutputFrames(session, outputs))


def _log_of(spec: Spec, name: str, path: Path) -> Path:
    """Return the place of an input that may be brought to a frame."""
    given = spec.inputs.get(name)
    if given is None:
        hint = suggestion(name, spec.inputs, f"its inputs are: {', '.join(spec.inputs)}")
        raise UsageError(f"the pipeline has no input '{name}'", place=str(path), hint=hint)
    if given.table or given.arrangement is not None or given.format != "updates":
        raise UsageError(
            f"the input '{name}' is no log of changes, so no frame can be written to it",
            span=given.name.span,
            hint=f"write it as `{name}: {{path: in/{name}/}}`, a directory that only this call writes",
        )
    return locate(path.absolute().parent, given.path.value)
