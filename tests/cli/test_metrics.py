"""`dd run --metrics`: a file that Prometheus' own parser reads, with the counts that the summary has."""

import json
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ddcli.cli.telemetry import METRICS
from tests.harness import ROOT

SALES = """\
dd: 1
name: sales
inputs: {orders: {path: in/, format: append, columns: {region: string, amount: int64, day: date}, time: day}}
collections: {sales: {sql: "select region, sum(amount) as amount from orders group by region"}}
outputs: {sales: out/sales/}
"""
MONTH = "dd: 1\nname: month\ninputs: {sales: out/sales/}\noutputs: {copy: {from: sales, path: out/copy/}}\n"


@pytest.fixture
def sales(shop):
    shop.write("sales.yaml", SALES)
    shop.write("in/1.csv", "region,amount,day\nnorth,10,2024-01-01\nsouth,5,2024-01-02\n")
    return shop


def metrics(shop, file="dd.prom"):
    """Return each sample's value by its name and its labels."""
    families = text_string_to_metric_families((shop.folder / file).read_text())
    return {
        (sample.name.removeprefix("dd_"), *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_run_has_the_counts_of_its_summary(sales):
    result = sales("run", "sales.yaml", "--metrics", "dd.prom", "-o", "json")
    summary = json.loads(result.out)
    found = metrics(sales)
    assert found["input_rows", "orders", "sales.yaml"] == 2
    assert found["input_files", "orders", "sales.yaml"] == 1
    assert found["output_rows", "sales", "sales.yaml"] == summary["outputs"]["sales"]["rows"] == 2
    assert found["output_inserted", "sales", "sales.yaml"] == 2
    assert found["state_rows", "sales.yaml"] == summary["state_rows"] > 0
    assert found["state_bytes", "sales.yaml"] == summary["state_bytes"] > 0
    assert found["closed_until", "sales.yaml"] == 1704240000  # 2024-01-03
    newest = (sales.folder / "in/1.csv").stat().st_mtime
    assert found["input_newest_timestamp_seconds", "orders", "sales.yaml"] == pytest.approx(newest, abs=1e-3)
    assert found["run_exit_code", "sales.yaml"] == 0
    assert found["run_changed", "sales.yaml"] == 1
    assert 0 < found["run_duration_seconds", "sales.yaml"] < 60
    assert found["run_peak_memory_bytes", "sales.yaml"] > 1 << 24
    assert [path.name for path in sales.folder.iterdir() if "prom" in path.name] == ["dd.prom"]


def test_a_run_with_nothing_new_has_the_state_s_size(sales):
    sales("run", "sales.yaml", "--metrics", "dd.prom")
    before = metrics(sales)
    sales("run", "sales.yaml", "--metrics", "dd.prom")
    found = metrics(sales)
    assert found["run_changed", "sales.yaml"] == 0
    for name in ("state_rows", "state_bytes", "closed_until"):
        assert found[name, "sales.yaml"] == before[name, "sales.yaml"]
    assert ("input_rows", "orders", "sales.yaml") not in found


def test_a_run_that_fails_keeps_what_the_last_one_had(sales):
    sales("run", "sales.yaml", "--metrics", "dd.prom")
    before = metrics(sales)
    sales.write("in/2.csv", "region,amount,day\nnorth,many,2024-01-05\n")
    assert sales("run", "sales.yaml", "--metrics", "dd.prom").code == 3
    found = metrics(sales)
    assert found["run_exit_code", "sales.yaml"] == 3
    assert found["run_timestamp_seconds", "sales.yaml"] > before["run_timestamp_seconds", "sales.yaml"]
    run = {
        key
        for key in before
        if key[0] in {"run_exit_code", "run_timestamp_seconds", "run_duration_seconds", "run_peak_memory_bytes"}
    }
    assert {key: found[key] for key in before.keys() - run} == {key: before[key] for key in before.keys() - run}


def test_a_check_keeps_its_violations_while_no_run_tests_it(sales):
    checks = "checks:\n  - {row: amount < 7, of: orders, name: small, otherwise: warn}\n  - {row: amount < 20, of: orders, name: big}\n"
    sales.write("sales.yaml", SALES + checks)
    for code, violations in ((0, 0), (0, 0), (7, 1)):
        assert sales("run", "sales.yaml", "--metrics", "dd.prom").code == code
        found = metrics(sales)
        assert found["check_violations", "small", "sales.yaml"] == 1
        assert found["check_violations", "big", "sales.yaml"] == violations
        if found["run_changed", "sales.yaml"] == 0:
            sales.write("in/2.csv", "region,amount,day\nnorth,30,2024-01-05\n")


def test_a_check_has_its_violations_whether_it_fails_or_warns(sales):
    checks = "checks:\n  - {row: amount < 7, of: orders, name: small, otherwise: OTHERWISE}\n"
    for otherwise, code in (("fail", 7), ("warn", 0)):
        sales.write("sales.yaml", SALES + checks.replace("OTHERWISE", otherwise))
        assert sales("run", "sales.yaml", "--metrics", f"{otherwise}.prom").code == code
        assert metrics(sales, f"{otherwise}.prom")["check_violations", "small", "sales.yaml"] == 1


def test_several_pipelines_are_in_one_file(sales):
    sales.write("month.yaml", MONTH)
    sales("run", ".", "--metrics", "dd.prom")
    found = metrics(sales)
    assert found["output_rows", "sales", "sales.yaml"] == found["output_rows", "copy", "month.yaml"] == 2


def test_each_metric_is_documented_and_written(sales):
    sales("run", "sales.yaml", "--metrics", "dd.prom")
    written = {key[0] for key in metrics(sales)}
    assert {name.removeprefix("dd_") for name in METRICS} - written == {"check_violations"}
    page = (ROOT / "docs/running.md").read_text()
    assert [name for name in METRICS if f"`{name}`" not in page] == []


def test_a_file_that_is_none_of_ours_is_replaced(sales):
    sales.write("dd.prom", "{{{ not metrics\n")
    sales("run", "sales.yaml", "--metrics", "dd.prom")
    assert metrics(sales)["run_exit_code", "sales.yaml"] == 0


def test_without_the_package_nothing_runs(sales, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    result = sales("run", "sales.yaml", "--metrics", "dd.prom")
    assert result.code == 2
    assert "metrics need the package prometheus_client" in result.err
    assert not (sales.folder / "out").exists()
    result = sales("run", "sales.yaml", "--metrics", "none/dd.prom")
    assert "the folder of the metrics does not exist: 'none'" in result.err
