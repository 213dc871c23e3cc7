"""`dd run --openlineage`: events as the standard's client makes them, of datasets with the names that the standard gives them."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ddcli import version
from ddcli.commands import check, pipelines

SALES = """\
dd: 1
name: sales
inputs:
  orders: {path: in/, format: append, columns: {region: string, amount: int64, open: bool, day: date}, time: day}
collections: {totals: {sql: "select region, sum(amount) as total from orders where open group by region"}}
outputs: {sales: {from: totals, path: out/sales/}}
checks:
  - {row: amount < 100, of: orders, name: small, otherwise: warn}
"""


@pytest.fixture
def sales(shop, monkeypatch):
    # The client itself sets variables.
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    shop.write("sales.yaml", SALES)
    shop.write("in/1.csv", "region,amount,open,day\nnorth,10,true,2024-01-01\nsouth,500,true,2024-01-02\n")
    return shop


def events(shop, *, name="events.jsonl"):
    return [json.loads(line) for line in (shop.folder / name).read_text().splitlines()]


def test_a_run_begins_and_completes_with_its_datasets(sales):
    assert sales("run", "sales.yaml", "--openlineage", "events.jsonl").code == 0
    start, complete = events(sales)
    assert [each["eventType"] for each in (start, complete)] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["job"]["namespace"], start["job"]["name"] == ("dd", "sales")
    (given,), (written,) = complete["inputs"], complete["outputs"]
    assert (given["namespace"], given["name"]) == ("file", str(sales.folder / "in"))
    assert (written["namespace"], written["name"]) == ("file", str(sales.folder / "out/sales"))
    assert [field["name"] for field in given["facets"]["schema"]["fields"]] == ["region", "amount", "open"]
    assert [(field["name"], field["type"]) for field in written["facets"]["schema"]["fields"]] == [
        ("region", "string"),
        ("total", "int64"),
    ]
    statistics = given["inputFacets"]["inputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (2, 1)
    assert statistics["size"] == (sales.folder / "in/1.csv").stat().st_size
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 2
    (assertion,) = given["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["name"], assertion["success"]) == ("small", False)


def test_columns_have_their_lineage(sales):
    sales("run", "sales.yaml", "--openlineage", "events.jsonl")
    fields = events(sales)[-1]["outputs"][0]["facets"]["columnLineage"]["fields"]
    found = {
        column: {(each["field"], each["transformations"][0]["type"]) for each in field["inputFields"]}
        for column, field in fields.items()
    }
    assert found["total"] == {("amount", "DIRECT"), ("region", "INDIRECT"), ("open", "INDIRECT")}
    assert found["region"] == {("region", "DIRECT"), ("open", "INDIRECT")}
    assert {(each["namespace"], each["name"]) for field in fields.values() for each in field["inputFields"]} == {
        ("file", str(sales.folder / "in"))
    }


def test_a_run_that_fails_has_its_message(sales):
    sales.write("in/2.csv", "region,amount,open,day\nnorth,many,true,2024-01-05\n")
    assert sales("run", "sales.yaml", "--openlineage", "events.jsonl").code == 3
    start, failed = events(sales)
    assert (start["eventType"], failed["eventType"]) == ("START", "FAIL")
    assert "many" in failed["run"]["facets"]["errorMessage"]["message"]
    assert "sales" not in str(failed["run"]["facets"]["errorMessage"].get("stackTrace"))


def test_a_run_that_checks_stop_has_their_verdicts(sales):
    checks = "  - {unique: [region], of: orders}\n  - {not_null: [region], of: orders}\n"
    sales.write("sales.yaml", SALES + checks)
    sales.write("in/2.csv", "region,amount,open,day\nnorth,1,true,2024-01-05\n")
    assert sales("run", "sales.yaml", "--openlineage", "events.jsonl").code == 7
    (given,) = events(sales)[-1]["inputs"]
    found = given["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(each["assertion"], each["name"], each["success"]) for each in found] == [
        ("unique", "orders_unique_region", False)
    ]


def test_a_file_that_can_t_be_read_has_events_without_datasets(sales):
    sales.write("broken.yaml", "inputs: [")
    assert sales("run", "broken.yaml", "--openlineage", "events.jsonl").code == 2
    assert [(each["eventType"], each["inputs"]) for each in events(sales)] == [("START", []), ("FAIL", [])]


def test_a_dry_run_sends_nothing(sales):
    assert sales("run", "sales.yaml", "-n", "--openlineage", "events.jsonl").code == 0
    assert not (sales.folder / "events.jsonl").exists()


class Server(HTTPServer):
    """A receiver that keeps the bodies of posts."""

    def __init__(self):
        self.bodies = []
        super().__init__(("127.0.0.1", 0), Receiver)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.bodies.append(
            (
                self.path,
                self.headers.get("Authorization"),
                json.loads(self.rfile.read(int(self.headers["Content-Length"]))),
            )
        )
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_server_gets_the_events(sales, server, monkeypatch, by):
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret key")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    if by == "environment":
        monkeypatch.setenv("OPENLINEAGE_URL", server.url)
    words = ["--openlineage", server.url] if by == "option" else []
    result = sales("run", "sales.yaml", *words)
    assert result.code == 0
    assert "no event" not in result.err
    assert [(path, key, body["eventType"], body["job"]["namespace"]) for path, key, body in server.bodies] == [
        ("/api/v1/lineage", "Bearer secret key", kind, "shop") for kind in ("START", "COMPLETE")
    ]


def test_a_server_that_can_t_be_reached_stops_no_run(sales, server):
    url = server.url
    server.server_close()
    result = sales("run", "sales.yaml", "--openlineage", url)
    assert result.code == 0
    assert "no event of OpenLineage was sent: Connection refused" in result.err


def test_passwords_are_in_no_event(sales):
    sales.write(
        "sales.yaml",
        """\
dd: 1
name: sales
inputs:
  orders: {path: in/, format: append, columns: {region: string, amount: int64, open: bool, day: date}, time: day}
  old: {database: "postgres://ann:geheim@127.0.0.1:1/shop", table: orders, columns: {id: int64}}
outputs: {sales: {from: orders, path: out/sales/}, file: {from: orders, as: table, to: "sqlite:///shop.db", table: t, key: [region]}}
""",
    )
    sales("run", "sales.yaml", "--openlineage", "events.jsonl")
    text = (sales.folder / "events.jsonl").read_text()
    assert "geheim" not in text


def test_without_the_client_the_option_is_refused_and_the_environment_noted(sales, monkeypatch):
    monkeypatch.setitem(version.MODULES, "openlineage-python", "openlineage_that_is_not_there")
    result = sales("run", "sales.yaml", "--openlineage", "events.jsonl")
    assert result.code == 2
    assert "events of OpenLineage need the package openlineage-python" in result.err
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    result = sales("run", "sales.yaml")
    assert result.code == 0
    assert "the environment names a receiver of OpenLineage" in result.err


@pytest.mark.parametrize("place", ["new/", "in", "in/"])
def test_a_directory_is_refused_before_the_run(sales, place):
    done = sales("run", "sales.yaml", "--openlineage", place)
    assert done.code == 2
    assert f"hint: name a file in it: `--openlineage {place.rstrip('/')}/events.ndjson`" in done.err
    assert not (sales.folder / "out").exists()


def test_a_run_binds_its_pipeline_once_for_all_events(sales, monkeypatch):
    calls = []
    bind = check.bound_pipeline
    monkeypatch.setattr(check, "bound_pipeline", lambda path: calls.append(path) or bind(path))
    monkeypatch.setattr(pipelines, "bound_pipeline", check.bound_pipeline)
    assert sales("run", "sales.yaml", "--openlineage", "events.jsonl").code == 0
    assert len(events(sales)) == 2
    assert len(calls) == 1
