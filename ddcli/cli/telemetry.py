"""Traces and metrics of `dd run` for OpenTelemetry: a run is a span, its stages and its operators are spans below it.

The environment names the receiver, as for all programs that OpenTelemetry watches, and its own packages make and send all: once, when the
run has ended. A receiver that can't be reached is reported and stops no run.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from ddcli.cli.metrics import METRICS, newest_inputs, samples_of
from ddcli.engine.counts import Progress
from ddcli.errors import DdError, UsageError
from ddcli.store.extras import check_package, package
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ddcli.job.summary import RunSummary

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

    def measured(self, put: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
        """Return a function that puts a record into the summary's file, and sends its metrics."""
        if not self._sends or not _is_wanted("metrics"):
            return put

        def both(tree: dict[str, Any]) -> None:
            put(tree)
            reader = package("opentelemetry.sdk.metrics.export").InMemoryMetricReader()
            provider = package("opentelemetry.sdk.metrics").MeterProvider([reader], resource=_resource())
            meter = provider.get_meter("ddcli", __version__)
            gauges = {name: meter.create_gauge(name, description=said) for name, said in METRICS.items()}
            for record in tree.get("pipelines", [tree]):
                for name, labels, value in samples_of(record, lambda pipeline: newest_inputs(pipeline, self._state)):
                    gauges[name].set(float(value), {"pipeline": record["pipeline"], **labels})
            self._send("metrics", reader.get_metrics_data())
            provider.shutdown()

        return both

    def _operators(self, pipeline: Path, summary: RunSummary) -> list[dict[str, Any]]:
        from ddcli.commands.explain import explain
        from ddcli.render.profile import profile

        try:
            return profile(explain(pipeline, self._state), summary).to_json() if summary.changed else []
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
