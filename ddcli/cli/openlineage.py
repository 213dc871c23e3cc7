"""Events of OpenLineage for `dd run`: each run begins, and completes, fails or is aborted, with its datasets, their columns and where these come from.

The standard's own client makes and sends the events. A server that can't be reached is reported and stops no run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddcli.errors import DdError, UsageError, failed_checks
from ddcli.job.paths import database_file
from ddcli.screen import shell
from ddcli.spec.model import DATABASE, SPARK
from ddcli.store.files.access import fs, locate, real
from ddcli.version import __version__, check_package, package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.job.summary import RunSummary
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.render.lineage import ColumnLineage
    from ddcli.spec.model import Spec

CLIENT = "openlineage.client"
NAMESPACE = "OPENLINEAGE_NAMESPACE"
"""The variable with the namespace of jobs, as the standard's other producers read it."""
JOBS = "dd"
"""The namespace without that variable."""
PRODUCER = f"urn:ddcli:{__version__}"
EVERY = "select * from "
"""The query of an input that is a table, before its name."""
RETRIES = {"total": 1, "backoff_factor": 0.1, "allowed_methods": ["POST"]}
"""The attempts after one that failed: a run does not wait long for a server."""
Dataset = tuple[str, str]
"""A dataset's namespace and name, by the standard's rules for names."""


def emitting(
    run: Callable[..., RunSummary], place: str | None, warn: Callable[[str], None]
) -> Callable[..., RunSummary]:
    """Return a function that runs a pipeline as `run` does, and sends events to a URL, adds them to a file, or, with None, sends them to the receiver that the environment names.

    Raises UsageError for a directory, and where the client is not installed, but for a receiver that only the environment names: it may be meant for other programs.
    """
    if place is not None and (place.endswith("/") or Path(place).is_dir()) and not _is_url(place):
        hint = f"name a file in it: `--openlineage {shell(os.path.join(place, 'events.ndjson'))}`"  # noqa: PTH118 - a `Path` has no `/` behind it
        raise UsageError("events of OpenLineage are added to a file, and this is a directory", place=place, hint=hint)
    try:
        check_package("openlineage-python")
    except UsageError as error:
        if place is not None:
            raise
        warn(f"the environment names a receiver of OpenLineage; {error.problem}")
        return run
    send = _sender(place)

    def observed(pipeline: Path, **options: Any) -> RunSummary:
        events = _RunEvents(pipeline, send, warn)
        events.emit("START")
        try:
            summary = run(pipeline, **options)
        except BaseException as error:
            events.emit("FAIL" if isinstance(error, Exception) else "ABORT", error=error)
            raise
        events.emit("COMPLETE", summary)
        return summary

    return observed


def _verdicts(summary: RunSummary | None, error: BaseException | None) -> list[dict[str, Any]]:
    """Return the verdicts of a run's checks as plain values, or the verdicts of the checks that have stopped it."""
    if summary is not None:
        return [each.to_json() for each in summary.checks.values()]
    return [each.verdict for each in failed_checks(error)]


def _reason(failure: BaseException) -> str:
    """Return why nothing was sent, in the system's own words if there are any, else in the client's."""
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return f"{type(failure).__name__}: {failure}"


def _is_url(place: str) -> bool:
    return urlsplit(place).scheme in ("http", "https")


def _sender(place: str | None) -> Callable[[Any], None]:
    client = package(CLIENT)
    if place is None:
        found = client.OpenLineageClient()
    elif _is_url(place):
        http = package(f"{CLIENT}.transport.http")
        key = os.environ.get("OPENLINEAGE_API_KEY")
        auth = {"auth": http.ApiKeyTokenProvider({"apiKey": key})} if key else {}
        found = client.OpenLineageClient(transport=http.HttpTransport(http.HttpConfig(place, retry=RETRIES, **auth)))
    else:
        file = package(f"{CLIENT}.transport.file")
        found = client.OpenLineageClient(transport=file.FileTransport(file.FileConfig(place, append=True)))
    emit: Callable[[Any], None] = found.emit
    return emit


class _RunEvents:
    """The events of one run of a pipeline."""

    def __init__(self, pipeline: Path, send: Callable[[Any], None], warn: Callable[[str], None]) -> None:
        self._pipeline, self._send, self._warn = pipeline, send, warn
        self._failed = False
        self._run = str(package(f"{CLIENT}.uuid").generate_new_uuid())

    def emit(self, kind: str, summary: RunSummary | None = None, error: BaseException | None = None) -> None:
        """Send an event. A failure to do so is reported to the person, and then no further event of the run is sent."""
        if self._failed:
            return
        try:
            self._send(self._event(kind, summary, error))
        except Exception as failure:  # noqa: BLE001 - of any transport; the run goes on
            self._failed = True
            self._warn(f"no event of OpenLineage was sent: {_reason(failure)}")

    def _event(self, kind: str, summary: RunSummary | None, error: BaseException | None) -> Any:
        events, facets = package(f"{CLIENT}.event_v2"), package(f"{CLIENT}.facet_v2")
        bound = self._bound
        engine = facets.processing_engine_run.ProcessingEngineRunFacet(
            version=__version__, name="dd", openlineageAdapterVersion=__version__
        )
        run = {"processing_engine": engine}
        if error is not None:
            message = error.problem if isinstance(error, DdError) else f"{type(error).__name__}: {error}"
            run["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(
                message=message, programmingLanguage="PYTHON"
            )
        job = facets.job_type_job.JobTypeJobFacet(processingType="BATCH", integration="DD", jobType="PIPELINE")
        name = bound.spec.name.value if bound is not None else self._pipeline.stem
        return events.RunEvent(
            eventTime=datetime.now(UTC).isoformat(timespec="milliseconds"),
            eventType=getattr(events.RunState, kind),
            run=events.Run(runId=self._run, facets=run),
            job=events.Job(namespace=os.environ.get(NAMESPACE, JOBS), name=name, facets={"jobType": job}),
            producer=PRODUCER,
            inputs=list(self._inputs(bound, summary, error, events, facets)) if bound is not None else [],
            outputs=list(self._outputs(bound, summary, events, facets)) if bound is not None else [],
        )

    @cached_property
    def _bound(self) -> BoundPipeline | None:
        """The pipeline with its columns, as it is when the run begins; None if its file, or an input of it, can't be read."""
        from ddcli.commands.check import bound_pipeline

        try:
            return bound_pipeline(self._pipeline)
        except DdError:
            return None

    def _inputs(
        self, bound: BoundPipeline, summary: RunSummary | None, error: BaseException | None, events: Any, facets: Any
    ) -> Iterator[Any]:
        for name, schema in bound.schemas.items():
            namespace, place = dataset_of_input(bound.spec, name, self._pipeline.absolute().parent)
            found, own = {"schema": _schema(facets, schema)}, {}
            given = summary.inputs.get(name) if summary is not None else None
            if given is not None:
                own["inputStatistics"] = facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                    rowCount=given.rows, size=given.bytes, fileCount=given.files
                )
            assertions = [
                facets.data_quality_assertions_dataset.Assertion(
                    assertion=each["kind"], success=each["passed"], name=each["title"]
                )
                for each in _verdicts(summary, error)
                if each["of"] == name
            ]
            if assertions:
                own["dataQualityAssertions"] = facets.data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
                    assertions=assertions
                )
            yield events.InputDataset(namespace=namespace, name=place, facets=found, inputFacets=own)

    def _outputs(self, bound: BoundPipeline, summary: RunSummary | None, events: Any, facets: Any) -> Iterator[Any]:
        from ddcli.commands.pipelines import lineage_of

        columns: dict[str, dict[str, ColumnLineage]] = {}
        for each in lineage_of(bound):
            columns.setdefault(each.name.of, {})[each.name.column] = each
        base = self._pipeline.absolute().parent
        for name, found_columns in columns.items():
            output = bound.spec.outputs[name]
            namespace, place = dataset_of_output(bound, name, base)
            schema = bound.relations[output.source.value].schema
            lineage = facets.column_lineage_dataset
            fields = {
                column: lineage.Fields(inputFields=list(_fields(lineage, bound, found, base)))
                for column, found in found_columns.items()
            }
            found = {
                "schema": _schema(facets, schema),
                "columnLineage": lineage.ColumnLineageDatasetFacet(fields=fields),
            }
            written = summary.outputs.get(name) if summary is not None else None
            own = {}
            if written is not None:
                own["outputStatistics"] = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                    rowCount=written.rows
                )
            yield events.OutputDataset(namespace=namespace, name=place, facets=found, outputFacets=own)


def _fields(lineage: Any, bound: BoundPipeline, found: ColumnLineage, base: Path) -> Iterator[Any]:
    """Yield the columns of inputs that a column comes from: `DIRECT` by value, `INDIRECT` if they only decide about it."""
    for names, kind in ((found.sources, "DIRECT"), (found.influences, "INDIRECT")):
        for name in names:
            namespace, place = dataset_of_input(bound.spec, name.of, base)
            yield lineage.InputField(
                namespace=namespace,
                name=place,
                field=name.column,
                transformations=[lineage.Transformation(type=kind)],
            )


def _schema(facets: Any, schema: Any) -> Any:
    fields = facets.schema_dataset.SchemaDatasetFacetFields
    return facets.schema_dataset.SchemaDatasetFacet(
        fields=[
            fields(name=name, type=str(kind), ordinal_position=at) for at, (name, kind) in enumerate(schema.items(), 1)
        ]
    )


def dataset_of_input(spec: Spec, name: str, base: Path) -> Dataset:
    """Return the name of an input's dataset. A query's dataset is its database."""
    given = spec.inputs[name]
    if given.table == "database":
        query = given.query.value if given.query is not None else ""
        if not query.startswith(EVERY):
            return _database(base, given.path.value, "")
        return _database(base, given.path.value, query.removeprefix(EVERY).replace('"', ""))
    if given.table == "ducklake" and given.query is not None:
        return _database(base, given.path.value, given.query.value)
    if given.table in ("iceberg", SPARK):
        return given.table, given.path.value
    if given.arrangement is not None:
        namespace, place = _file(base, given.path.value)
        return namespace, f"{place}/{given.arrangement.value}"
    return _file(base, given.path.value)


def dataset_of_output(bound: BoundPipeline, name: str, base: Path) -> Dataset:
    """Return the name of an output's dataset: its table, or the directory of its log."""
    output = bound.spec.outputs[name]
    if output.target is None:
        return _file(base, output.place.value)
    if output.target.kind in (DATABASE, "ducklake"):
        return _database(base, output.target.place.value, output.target.called)
    if output.target.kind in ("iceberg", SPARK):
        return output.target.kind, output.target.place.value
    return _file(base, output.target.place.value)


def _file(base: Path, text: str) -> Dataset:
    """Return the name of files: the bucket and the key, or `file` and the absolute path."""
    path = locate(base, text)
    if fs(path).is_local:
        return "file", str(real(path))
    url = urlsplit(str(path))
    return f"{url.scheme}://{url.netloc}", url.path.strip("/") or "/"


def _database(base: Path, uri: str, table: str) -> Dataset:
    """Return the name of a table: of a server, without user and password, or of a file, as SQLite's and DuckDB's are; then the table's."""
    if path := database_file(uri):
        namespace, place = _file(base, path)
        return namespace, f"{place}#{table}" if table else place
    url = urlsplit(uri)
    kind = "postgres" if url.scheme.startswith("postgres") else url.scheme
    port = url.port or {"postgres": 5432, "mysql": 3306}.get(kind)
    names = [url.path.strip("/"), table]
    return f"{kind}://{url.hostname or 'localhost'}:{port}", ".".join(name for name in names if name)
