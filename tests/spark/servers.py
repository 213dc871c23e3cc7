"""What tests start of Spark beside themselves: processes of the package's own, on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.harness import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""What makes a JVM quick to start, and small: it believes that Spark's classes are sound, a sixth of its start."""
ON_THIS_MACHINE = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SMALL,
    "spark.driver.extraJavaOptions": SMALL,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
"""Settings of a run on a cluster whose machines are this one."""
FOUND = ROOT / "ddcli/spark/found"
"""The module by which Spark finds the format `dd`, which an installation has at its top: one from before may lack it."""


def home() -> Path:
    """Return where Spark is."""
    return Path(pytest.importorskip("pyspark").__file__).parent


def environment() -> dict[str, str]:
    """Return the environment that Spark's own processes are started in."""
    return os.environ | {
        "SPARK_HOME": str(home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(FOUND), os.environ.get("PYTHONPATH")))),
    }


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(port: int, process: subprocess.Popen, log: Path) -> None:
    """Wait until somebody listens at a port."""
    until = time.monotonic() + 300
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < until, log.read_text()[-2000:]
        time.sleep(0.1)


@contextmanager
def beside(folder: Path):
    """Give what begins processes; in the end they are stopped."""
    begun = []

    def begin(*command):
        path = folder / f"{len(begun)}.log"
        with path.open("wb") as log:
            begun.append(subprocess.Popen(command, env=environment(), cwd=folder, stdout=log, stderr=log))
        return begun[-1], path

    try:
        yield begin
    finally:
        for process in begun:
            process.terminate()
        for process in begun:
            process.wait(300)


@contextmanager
def connect_server(folder: Path):
    """Give the address of a server of Spark Connect, which does two tasks at once, and its process."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.codegen.wholeStage": "false",
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with beside(folder) as begin:
        submit = [home() / "bin/spark-submit", "--master", "local[2,4]", "--driver-java-options", SMALL]
        process, log = begin(*submit, *conf, *main)
        wait_for(port, process, log)
        yield f"sc://127.0.0.1:{port}", process


class Standalone(NamedTuple):
    """A cluster: its master's address, the processes of its workers, which do a task at once each, and a function that starts the worker of a number."""

    master: str
    workers: list[int]
    start: Callable[[int], int]


@contextmanager
def standalone(
    folder: Path, workers: int = 2, memory: str = "1g", within: Mapping[int, Sequence[str | Path]] | None = None
):
    """Give a cluster. `within` are words before the command of a worker, which change the machine that it finds."""
    port = free_port()
    command = [home() / "bin/spark-class"]
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    with beside(folder) as begin:
        master, log = begin(*command, "org.apache.spark.deploy.master.Master", *place, "--port", str(port))
        wait_for(port, master, log)
        address = f"spark://127.0.0.1:{port}"
        own = ["--webui-port", "0", "--cores", "1", "--memory", memory, "--work-dir", str(folder / "work"), address]

        def start(at: int) -> int:
            # On a host of its own, or Spark would not do a task on each.
            host = ["--host", f"127.0.0.{at + 1}"]
            before = (within or {}).get(at, ())
            return begin(*before, *command, "org.apache.spark.deploy.worker.Worker", *host, *own)[0].pid

        yield Standalone(address, [start(at) for at in range(workers)], start)


def at_work(folder: Path) -> list[bytes]:
    """Return the commands of the processes that were started in a folder or below, as executors and their Python processes are."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_bytes()[:200])
    return found


def await_idle(folder: Path) -> None:
    """Wait until no process that was started below a folder is left: then none of them writes any more."""
    until = time.monotonic() + 300
    while found := at_work(folder):
        assert time.monotonic() < until, found
        time.sleep(0.05)


def parent(process: int | str) -> int:
    """Return the process that has started another. Scripts of tests have this function, too."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def children(process: int) -> list[int]:
    """Return the processes that a process has started, and that are there."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                of = parent(path.name)
            except OSError:
                continue
            if of == process:
                found.append(int(path.name))
    return found
