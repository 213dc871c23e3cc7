"""`dd wait`: it ends when the log has closed the times, and not before."""

import threading
import time

import pytest

from ddcli.cli.arguments import Seconds
from tests.harness import ORDER_COLUMNS

PIPELINE = "inputs: {orders: {path: in/, columns: {region: string, amount: int64}}}\noutputs: {orders: out/}\n"


@pytest.fixture
def log(shop):
    """Return a folder with a log that is closed before time 3."""
    shop.write("p.yaml", PIPELINE)
    shop.log("in/0.parquet", [("north", 1, 2, 1)], **ORDER_COLUMNS)
    assert shop("run", "p.yaml").code == 0
    return shop


def test_times_that_are_closed(log):
    assert log("wait", "out", "--complete", "3").code == 0
    late = log("wait", "out", "--complete", "4", "--timeout", "0")
    assert (late.code, late.err) == (1, "out: the times before 3 are closed\n")
    assert log("wait", "out", "--complete", "4", "--timeout", "0", "--quiet").err == ""


def test_a_wait_ends_with_a_run(log):
    found = []
    began = time.monotonic()
    waiting = log.process("wait", "out", "--complete", "3", "--timeout", "300")
    assert waiting.code == 0

    def run():
        time.sleep(0.5)
        log.log("in/1.parquet", [("north", 2, 5, 1)], **ORDER_COLUMNS)
        found.append(log.process("run", "p.yaml").code)

    thread = threading.Thread(target=run)
    thread.start()
    assert log("wait", "out", "--complete", "6", "--timeout", "300").code == 0
    thread.join()
    assert found == [0]
    assert time.monotonic() - began >= 0.5


def test_a_log_that_is_not_there(shop):
    late = shop("wait", "out", "--complete", "3", "--timeout", "0")
    assert (late.code, late.err) == (1, "out: no run has written the log yet\n")


def test_ages(shop):
    shop.write("p.yaml", PIPELINE.replace("columns:", "format: append, columns:"))
    shop.write("in/1.csv", "region,amount\nnorth,1\n")
    assert shop("run", "p.yaml", "--now", "2024-01-01T00:00").code == 0
    assert shop("wait", "out", "--newer-than", "2h", "--timeout", "0").code == 1
    assert shop("wait", "out", "--newer-than", "9000w", "--timeout", "0").code == 0
    assert shop("wait", "out", "--complete", "2024-01-01", "--newer-than", "2h", "--timeout", "0").code == 1
    shop.write("in/2.csv", "region,amount\nnorth,1\n")
    assert shop("run", "p.yaml").code == 0
    assert shop("wait", "out", "--newer-than", "2h").code == 0


def test_wrong_use(log):
    assert "the wait has no end" in log("wait", "out").err
    assert "p.yaml: error: this is a file, and a log is a directory" in log("wait", "p.yaml", "--complete", "3").err
    assert "'soon' is no age" in log("wait", "out", "--newer-than", "soon").err
    assert "has no age" in log("wait", "out", "--newer-than", "2h").err
    assert "'soon' is not a time" in log("wait", "out", "--complete", "soon").err
    for wrong in ("soon", "1 fortnight", "m", "-1s", ""):
        assert log("wait", "out", "--complete", "3", "--timeout", wrong).code == 2, wrong


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1.5", 1.5), ("90s", 90), ("10m", 600), ("2 h", 7200), ("1d", 86400)]
)
def test_a_length_of_time(text, seconds):
    assert Seconds().convert(text, None, None) == seconds
