"""Reports of `dd run` for programs that watch it: traces and metrics for OpenTelemetry, and the file of `--metrics` for Prometheus.

For OpenTelemetry a run is a span, with its stages and operators as spans below it. The environment names the receiver, as for all programs that OpenTelemetry watches, and its own
packages make and send everything once, when the run has ended. A receiver that can't be reached is reported and stops no run.

The file of `--metrics` has the last run of each pipeline in Prometheus' text format, as node_exporter's textfile collector reads it.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.engine.counts import Progress
from ddcli.errors import DdError, UsageError
from ddcli.version import __version__, check_package, package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ddcli.job.summary import RunSummary

    Sample = tuple[str, Mapping[str, str], float]
    """The name of a metric, its labels beside the pipeline's, and its value."""


PACKAGE = "opentelemetry-exporter-otlp-proto-http"
RECEIVER = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXPORTERS = {
    "traces": ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter"),
    "metrics": ("opentelemetry.exporter.otlp.proto.http.metric_exporter", "OTLPMetricExporter"),
}
"""The module and the class that send each signal."""


def _is_wanted(signal: str) -> bool:
    """Return whether the environment names a receiver of a signal."""
    own = signal.upper()
    if (
        os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or os.environ.get(f"OTEL_{own}_EXPORTER", "otlp") != "otlp"
    ):
        return False
    return any(os.environ.get(name) for name in (RECEIVER, f"OTEL_EXPORTER_OTLP_{own}_ENDPOINT"))


class Telemetry:
    """Sends what is known of runs to the environment's receivers."""

    def __init__(self, state: Path | None, warn: Callable[[str], None]) -> None:
        self._state, self._warn = state, warn
        self._sends = self._is_installed()

    def _is_installed(self) -> bool:
        """Return whether the packages are there. The receiver may be meant for other programs, so a run goes on without them."""
        try:
            check_package(PACKAGE)
        except UsageError as error:
            self._warn(f"the environment names a receiver of OpenTelemetry; {error.problem}: {error.hint}")
            return False
        import logging

        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # failures are reported here
        return True

    def traced(self, run: Callable[..., RunSummary]) -> Callable[..., RunSummary]:
        """Return a function that runs a pipeline as `run` does, and sends the run's spans when it has ended."""
        if not self._sends or not _is_wanted("traces"):
            return run

        def observed(pipeline: Path, *, progress: Progress, **options: Any) -> RunSummary:
            spans = _Spans(pipeline, progress)
            try:
                summary = run(pipeline, progress=spans, **options)
            except BaseException as error:
                self._send("traces", spans.ended(error))
                raise
            spans.end()
            spans.operators(self._operators(pipeline, summary))
            self._send("traces", spans.ended())
            return summary

        return observed

    def measure(self, tree: dict[str, Any]) -> None:
        """Send the metrics of a run, or of several, which have the record of `--summary`."""
        if not self._sends or not _is_wanted("metrics"):
            return
        reader = package("opentelemetry.sdk.metrics.export").InMemoryMetricReader()
        provider = package("opentelemetry.sdk.metrics").MeterProvider([reader], resource=_resource())
        meter = provider.get_meter("ddcli", __version__)
        gauges = {name: meter.create_gauge(name, description=said) for name, said in METRICS.items()}
        for record in tree.get("pipelines", [tree]):
            for name, labels, value in samples_of(record, self._state):
                gauges[name].set(float(value), {"pipeline": record["pipeline"], **labels})
        self._send("metrics", reader.get_metrics_data())
        provider.shutdown()

    def _operators(self, pipeline: Path, summary: RunSummary) -> list[dict[str, Any]]:
        from ddcli.commands.explain import explain
        from ddcli.render.text import profile

        try:
            return profile(explain(pipeline, self._state), summary).operators if summary.changed else []
        except DdError:  # the file was edited while the run was at work
            return []

    def _send(self, signal: str, data: Any) -> None:
        module, name = EXPORTERS[signal]
        try:
            exporter = getattr(package(module), name)()
            failed = exporter.export(data).name != "SUCCESS"
            exporter.shutdown()
        except Exception as error:  # noqa: BLE001 - of any receiver; the run has ended
            failed = True
            self._warn(f"no {signal} were sent to OpenTelemetry's receiver: {type(error).__name__}: {error}")
        else:
            if failed:
                self._warn(f"no {signal} were sent: OpenTelemetry's receiver can't be reached, or refuses them")


class _Spans(Progress):
    """The spans of one run; its notifications go on to a display."""

    def __init__(self, pipeline: Path, display: Progress) -> None:
        trace, export = package("opentelemetry.sdk.trace"), package("opentelemetry.sdk.trace.export")
        self._display = display
        self._done = package("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
        provider = trace.TracerProvider(resource=_resource())
        provider.add_span_processor(export.SimpleSpanProcessor(self._done))
        self._tracer = provider.get_tracer("ddcli", __version__)
        self._api = package("opentelemetry.trace")
        propagator = package("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()
        caller = propagator.extract({"traceparent": os.environ.get("TRACEPARENT", "")})  # as shells and CI hand it on
        self._run = self._tracer.start_span(
            f"dd run {pipeline.name}", context=caller, attributes={"dd.pipeline": str(pipeline)}
        )
        self._below = self._api.set_span_in_context(self._run)
        self._began = time.time_ns()
        self._stage: Any = None

    def begin(self, what: str, tasks: int | None = None) -> None:
        """Begin the span of a stage."""
        self._end_stage()
        self._stage = self._tracer.start_span(what, context=self._below)
        if tasks is not None:
            self._stage.set_attribute("dd.tasks", tasks)
        self._display.begin(what, tasks)

    def advance(self, tasks: int = 1) -> None:
        """Show finished tasks."""
        self._display.advance(tasks)

    def follow(self, done: int, active: int, failed: int) -> None:
        """Show the numbers of tasks."""
        self._display.follow(done, active, failed)

    def read(self, rows: int, size: int = 0) -> None:
        """Show rows that were read."""
        self._display.read(rows, size)

    def wrote(self, rows: int, size: int = 0) -> None:
        """Show rows that were written."""
        self._display.wrote(rows, size)

    def end(self) -> None:
        """End the stage."""
        self._end_stage()
        self._display.end()

    def operators(self, found: list[dict[str, Any]]) -> None:
        """Add a span for each operator: as long as its seconds, over all threads, from the run's begin on, as operators take turns."""
        for each in found:
            about = {f"dd.{name}": each[name] for name in ("kind", "rows_in", "rows_out", "inserted", "retracted")}
            names = " ".join((each["kind"], *each["names"]))
            span = self._tracer.start_span(names, context=self._below, attributes=about, start_time=self._began)
            span.end(self._began + round(each["seconds"] * 1e9))

    def ended(self, error: BaseException | None = None) -> Any:
        """End the run's span; return all spans."""
        self._end_stage()
        if error is not None:
            self._run.record_exception(error)
            self._run.set_status(self._api.StatusCode.ERROR, str(error))
        self._run.end()
        return self._done.get_finished_spans()

    def _end_stage(self) -> None:
        if self._stage is not None:
            self._stage.end()
            self._stage = None


def _resource() -> Any:
    """Return what the environment says of this service; its name is `dd` unless that names another."""
    resource = package("opentelemetry.sdk.resources").Resource
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return resource.create({"service.version": __version__} | ({} if named else {"service.name": "dd"}))


LASTING = "dd_run_success_timestamp_seconds"
VIOLATIONS = "dd_check_violations"
METRICS = {
    "dd_run_timestamp_seconds": "End of the last run, in seconds since 1970.",
    LASTING: "End of the last run that succeeded.",
    "dd_run_duration_seconds": "Seconds that the last run took.",
    "dd_run_exit_code": "Exit code of the last run; 0 if it succeeded.",
    "dd_run_changed": "1 if the last run that succeeded had something to do.",
    "dd_run_peak_memory_bytes": "The most memory that the process of the last run had.",
    "dd_input_rows": "Rows that the last run that succeeded took from an input.",
    "dd_input_files": "Files that it read of an input.",
    "dd_input_waiting_files": "Files with rows at times that are not closed yet.",
    "dd_input_late_rows": "Rows that came after their time was closed.",
    "dd_input_unparsed_rows": "Rows that could not be read and were put aside.",
    "dd_input_newest_timestamp_seconds": "Modification time of the newest file that was read, of an input of files.",
    "dd_output_rows": "Updates that the last run that succeeded wrote to an output.",
    "dd_output_inserted": "Sum of their positive diffs.",
    "dd_output_retracted": "Sum of their negative diffs, as a positive number.",
    "dd_state_rows": "Rows in the state.",
    "dd_state_bytes": "Bytes of the state.",
    "dd_closed_until": "The time up to which outputs are complete: seconds since 1970 for dates and timestamps, else the number.",
    "dd_failed_records": "Records on which an expression failed and that were put aside.",
    VIOLATIONS: "Violations of a check at the last run that tested it.",
}
"""Every metric with its help. Each is a gauge and has the label `pipeline`, the file as it was named."""


def put_metrics(path: Path, state: Path | None, tree: dict[str, Any]) -> None:
    """Replace the file by the metrics of a run, or of several, which have the record of `--summary`, in one step.

    A run that failed or was skipped has no counts, and one with nothing new tests few checks: the counts of the run before stay.
    """
    from ddcli.store.files.access import real
    from ddcli.store.files.gate import Files

    prometheus = package("prometheus_client")
    registry = prometheus.CollectorRegistry()
    before = _read(path)
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {name: {} for name in METRICS}
    for record in tree.get("pipelines", [tree]):
        found = list(samples_of(record, state))
        new = [each[:2] for each in found]
        found += [
            each for each in before.get(record["pipeline"], []) if each[:2] not in new and _lasts(each[0], record)
        ]
        for name, labels, value in found:
            samples[name][tuple(sorted({"pipeline": record["pipeline"], **labels}.items()))] = value
    for name, values in samples.items():
        if values:
            names = sorted({label for key in values for label, _ in key})
            gauge = prometheus.Gauge(name, METRICS[name], names, registry=registry)
            for key, value in values.items():
                gauge.labels(**dict(key)).set(value)
    file = real(path.parent) / path.name
    Files().create(file, prometheus.generate_latest(registry), file.with_name(f".{file.name}.tmp"))


def _lasts(name: str, record: Mapping[str, Any]) -> bool:
    """Return whether the samples of a metric that a run has not made stay as the run before left them."""
    summary = record["summary"]
    return summary is None or (name == VIOLATIONS and not summary["changed"])


def newest_inputs(pipeline: Path, state: Path | None) -> dict[str, float]:
    """Return for each input of files that a pipeline's state has read the modification time of its newest file, in seconds since 1970."""
    from ddcli.job.paths import state_of
    from ddcli.plan.pipeline_file import load_spec
    from ddcli.store.state.manifest import read_newest

    try:
        manifest = read_newest(state or state_of(load_spec(pipeline), pipeline.absolute().parent))
    except DdError:
        return {}
    inputs = manifest.inputs if manifest is not None else {}
    return {name: max(file.mtime_ns for file in entry.files) / 1e9 for name, entry in inputs.items() if entry.files}


def samples_of(record: Mapping[str, Any], state: Path | None) -> Iterator[Sample]:
    """Yield the samples of one run."""
    began, ended = (datetime.fromisoformat(record[name]).timestamp() for name in ("began", "ended"))
    yield "dd_run_timestamp_seconds", {}, ended
    yield "dd_run_duration_seconds", {}, ended - began
    yield "dd_run_exit_code", {}, record["exit_code"]
    yield "dd_run_peak_memory_bytes", {}, _peak_memory()
    summary = record["summary"]
    checks = (summary or record["error"] or {}).get("checks") or {}
    for verdict in checks.values() if isinstance(checks, dict) else checks:
        yield VIOLATIONS, {"check": verdict["title"]}, verdict["violations"]
    if summary is None:
        return
    yield LASTING, {}, ended
    yield "dd_run_changed", {}, summary["changed"]
    for name, given in summary["inputs"].items():
        for part in ("rows", "files"):
            yield f"dd_input_{part}", {"input": name}, given[part]
        yield "dd_input_waiting_files", {"input": name}, given["waiting"]
        yield "dd_input_late_rows", {"input": name}, given["late"]
        yield "dd_input_unparsed_rows", {"input": name}, given["unparsed"]
    for name, newest_time in newest_inputs(Path(record["pipeline"]), state).items():
        yield "dd_input_newest_timestamp_seconds", {"input": name}, newest_time
    for name, written in summary["outputs"].items():
        for part in ("rows", "inserted", "retracted"):
            yield f"dd_output_{part}", {"output": name}, written[part]
    for part in ("rows", "bytes"):
        if summary[f"state_{part}"] is not None:
            yield f"dd_state_{part}", {}, summary[f"state_{part}"]
    yield "dd_failed_records", {}, summary["failed"]
    closed = _number(summary["upper"] or summary["time"])
    if closed is not None:
        yield "dd_closed_until", {}, closed


def _number(time: str | None) -> float | None:
    """Return a time as a number; None for one of several coordinates, or none at all."""
    try:
        return float(time or "")
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(time or "")
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _peak_memory() -> float:
    """Return the most bytes of memory that this process had."""
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _read(path: Path) -> dict[str, list[Sample]]:
    """Return the samples in an earlier file by pipeline; none where it is not one of ours."""
    found: dict[str, list[Sample]] = {}
    try:
        text = path.read_text(encoding="utf-8")
        for family in package("prometheus_client.parser").text_string_to_metric_families(text):
            for sample in family.samples:
                labels = dict(sample.labels)
                if family.name in METRICS and "pipeline" in labels:
                    found.setdefault(labels.pop("pipeline"), []).append((family.name, labels, sample.value))
    except (OSError, ValueError, KeyError):
        return {}
    return found
