"""The driver, or its Java process, is killed while its tasks write: nothing of it is visible, and the next run, of either engine, is right."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.store.state.manifest import read_newest
from tests.spark.deadly import DEADLY_HEAD, PIPELINE
from tests.spark.servers import SMALL, await_idle
from tests.spark.support import assert_all_named

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DEADLY = (
    DEADLY_HEAD
    + """
def early(record):
    return record

def late(record):
    \"\"\"Kill the JVM that started what started this process, or the driver, which started the JVM. Once.\"\"\"
    if record["k"] == 7 and once("killed"):
        while not any((HERE / ".dd").rglob("bundles/*.tar")):  # until the other task has written something
            time.sleep(0.01)
        java = parent(os.getppid())
        os.kill(java if os.environ["KILLED"] == "java" else parent(java), signal.SIGKILL)
    return record
"""
)


def doomed(folder):
    """Write a pipeline with a deadly function and its input; return the command that runs it on Spark."""
    pytest.importorskip("pyspark")
    (folder / "deadly.py").write_text(DEADLY)
    (folder / "p.yaml").write_text(PIPELINE)
    (folder / "in").mkdir()
    rows = pl.DataFrame({"k": [at % 100 for at in range(1_000)], "time": 0, "diff": 1})
    rows.write_parquet(folder / "in/0.parquet")
    command = [sys.executable, "-m", "ddcli", "run", folder / "p.yaml", "--engine", "spark", "--master", "local[2,4]"]
    return [*command, "--conf", f"spark.driver.extraJavaOptions={SMALL}"]


@pytest.mark.in_turn(9)
def test_a_watch_goes_on_in_a_new_process_after_its_java_was_killed(tmp_path):
    """Under the same number: this process can't start another Java."""
    command, environment, errors = [*doomed(tmp_path), "--watch"], os.environ | {"KILLED": "java"}, tmp_path / "stderr"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=stderr, stdin=subprocess.DEVNULL) as watch,
    ):
        try:
            until = time.monotonic() + 300
            while "the Java process of Spark's driver has ended" not in errors.read_text():
                assert watch.poll() is None, errors.read_text()
                assert time.monotonic() < until, errors.read_text()
                time.sleep(0.05)
            pl.DataFrame({"k": [5], "time": 1, "diff": 1}).write_parquet(tmp_path / "in/1.parquet")
            while not list((tmp_path / "out").rglob("updates-*")):
                assert watch.poll() is None, errors.read_text()
                assert time.monotonic() < until, errors.read_text()
                time.sleep(0.05)
        finally:
            watch.terminate()
            watch.wait(300)
    log = pl.read_parquet(tmp_path / "out/b/*.parquet").filter(pl.col("time") == 0)
    assert log.select("k", "n", "diff").sort("k").rows() == [(key, 10, 1) for key in range(100)]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the test finds processes in /proc")
@pytest.mark.parametrize("killed", ["driver", "java"])
@pytest.mark.in_turn(9)
def test_a_killed_driver(tmp_path, killed):
    command, path = doomed(tmp_path), tmp_path / "p.yaml"
    environment = os.environ | {"KILLED": killed}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    state = tmp_path / ".dd/doomed"
    assert read_newest(state) is None
    if killed == "java":
        assert done.returncode == 5, done.stderr
        assert "the Java process of Spark's driver has ended" in done.stderr
        assert "py4j" not in done.stderr, done.stderr
    else:
        assert done.returncode == -9, done.stderr
        assert list(state.rglob("bundles/*.tar")), "the driver died too early for the test"
    assert not list((tmp_path / "out").rglob("updates-*"))
    await_idle(tmp_path)  # until what the driver has started notices
    run(path, engine="local")
    log = pl.read_parquet(tmp_path / "out/b/*.parquet")
    assert log.select("k", "n", "diff").sort("k").rows() == [(key, 10, 1) for key in range(100)]
    assert_all_named(state)
    assert not (state / "spill").exists()
