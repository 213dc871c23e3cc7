"""OpenTelemetry: what a receiver gets from `dd run`, read by the messages that OpenTelemetry's own package defines."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.harness import same_environment

KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SALES = """\
name: sales
inputs: {orders: {path: in/, format: append, columns: {region: string, amount: int64}}}
collections: {sales: {sql: "select region, sum(amount) as amount from orders group by region"}}
outputs: {sales: out/sales/}
"""


@pytest.fixture
def received(monkeypatch):
    """Return the requests that a receiver gets, which the environment names."""
    found = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            data = self.rfile.read(int(self.headers["Content-Length"]))
            data = gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data
            message = KINDS[self.path]()
            message.ParseFromString(data)
            found.append(message)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with same_environment():
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def sales(shop):
    shop.write("sales.yaml", SALES)
    shop.write("in/1.csv", "region,amount\nnorth,10\nsouth,5\nnorth,1\n")
    return shop


def spans(message):
    (resource,) = message.resource_spans
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    return names, {span.name: span for scope in resource.scope_spans for span in scope.spans}


def values(message):
    (resource,) = message.resource_metrics
    return {
        (metric.name, *sorted(each.value.string_value for each in point.attributes)): point.as_int or point.as_double
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.gauge.data_points
    }


def test_a_run_is_a_trace_of_its_stages_and_operators(sales, received, monkeypatch):
    monkeypatch.setenv("TRACEPARENT", CALLER)
    assert sales("run", "sales.yaml").code == 0
    names, found = spans(received[0])
    assert names["service.name"] == "dd"
    run = found["dd run sales.yaml"]
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == tuple(CALLER.split("-")[1:3])
    assert {"looking at the inputs", "reading inputs", "committing"} < set(found)
    operator = next(span for name, span in found.items() if name.startswith("reduce"))
    assert {each.key: each.value.int_value for each in operator.attributes}["dd.rows_in"] == 3
    for name, span in found.items():
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert name == run.name or (span.parent_span_id, span.trace_id) == (run.span_id, run.trace_id)
        assert run.start_time_unix_nano <= span.start_time_unix_nano
    samples = values(received[1])
    assert samples["dd_input_rows", "orders", "sales.yaml"] == 3
    assert samples["dd_output_rows", "sales", "sales.yaml"] == 2


def test_a_run_that_fails_has_its_error(sales, received):
    sales.write("in/2.csv", "region,amount\nnorth,many\n")
    assert sales("run", "sales.yaml").code == 3
    _, found = spans(received[0])
    run = found["dd run sales.yaml"]
    assert run.status.code == 2
    assert "many" in run.status.message
    assert values(received[1])["dd_run_exit_code", "sales.yaml"] == 3


def test_what_the_environment_leaves_out(sales, received, monkeypatch):
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    sales("run", "sales.yaml")
    assert [type(each) for each in received] == [ExportTraceServiceRequest]
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    sales.write("in/2.csv", "region,amount\nnorth,1\n")
    sales("run", "sales.yaml")
    sales("run", "sales.yaml", "--dry-run")
    assert len(received) == 1


def test_a_receiver_that_is_gone_stops_no_run(sales, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    result = sales("run", "sales.yaml")
    assert result.code == 0
    assert "no traces were sent" in result.err
    assert "Traceback" not in result.err


def test_without_the_package_a_run_says_so(sales, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    result = sales("run", "sales.yaml")
    assert result.code == 0
    assert "otel" in result.err
