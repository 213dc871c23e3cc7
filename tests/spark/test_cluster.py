"""A cluster of its own: a master and two workers on this machine, one of whose executors is killed while it works."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from ddcli.store.manifest import read_newest
from ddcli.store.state import batch_files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PIPELINE = """
dd: 1
name: doomed
inputs: {a: {path: in/, columns: {k: int64}}}
collections:
  b:
    from: a
    apply:
      - map: {function: deadly:deadly, columns: {k: int64}}
      - count: {by: [k], as: n}
outputs: {b: out/b/}
"""
DEADLY = """
import os, signal
from pathlib import Path

def deadly(record):
    \"\"\"Kill the executor, which is what started what started this process. Once.\"\"\"
    if record["k"] == 7:
        try:
            (Path(__file__).parent / "killed").touch(exist_ok=False)
        except FileExistsError:
            return record
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(daemon), signal.SIGKILL)
    return record
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Return the master's address."""
    pyspark = pytest.importorskip("pyspark")
    if not Path("/proc").is_dir():
        pytest.skip("the test finds processes in /proc")
    home = Path(pyspark.__file__).parent
    folder = tmp_path_factory.mktemp("cluster")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
    }

    def begin(name, *arguments):
        command = [home / "bin/spark-class", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
        with (folder / f"{name}-{time.monotonic_ns()}.log").open("wb") as log:
            return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)

    started = [begin("master.Master", "--port", str(port), "--webui-port", "0")]
    try:
        until = time.monotonic() + 60
        while not listens(port):
            assert time.monotonic() < until, "the master does not start"
            time.sleep(0.2)
        workers = ["--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), address]
        started += [begin("worker.Worker", *workers) for _ in range(2)]
        yield address
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_killed_executor_is_one_more_attempt(cluster, tmp_path):
    """The answer is right, and of what the dead had written nothing is left."""
    (tmp_path / "deadly.py").write_text(DEADLY)
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    for file in range(4):
        keys = pl.DataFrame({"k": [at % 100 for at in range(1_000)], "time": file, "diff": 1})
        keys.write_parquet(tmp_path / f"in/{file}.parquet")
    settings = {
        "spark.speculation": "true",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    conf = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    command = [sys.executable, "-m", "ddcli", "run", path, "--engine", "spark", "--master", cluster, *conf]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").exists()
    log = pl.read_parquet(tmp_path / "out/b/*.parquet").filter(pl.col("time") == 3, pl.col("diff") > 0)
    assert log.select("k", "n").sort("k").rows() == [(key, 40) for key in range(100)]
    state = tmp_path / ".dd/doomed"
    named = {found for found, _ in batch_files(state, read_newest(state))}
    assert {found for found in (state / "arrangements").rglob("*") if found.is_file()} == named
    assert not (state / "spill").exists()
