"""Errors where executors of a real cluster differ from this machine: the exit code, and a message with the executor's machine, the place and a remedy."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.store.state.manifest import read_newest
from ddcli.version import __version__
from tests.harness import ROOT
from tests.objects.conftest import refusing, s3_server
from tests.spark.deadly import DEADLY_HEAD
from tests.spark.servers import ON_THIS_MACHINE, standalone

FAR = "far-away"
APART = ("unshare", "--mount", "--uts", "sh", "-c")
"""The words before a script whose mounts and host name are its own."""


def able() -> bool:
    """Return whether a process may have mounts and a host name of its own here."""
    try:
        return subprocess.run([*APART, f"hostname {FAR}"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not able(), reason="a worker needs mounts and a host name of its own"),
]

PIPELINE = """name: sums
state: {state}
shards: 4
inputs: {{a: {{path: {input}, columns: {{k: int64}}}}}}
collections: {{b: {{from: a, apply: [{{reduce: {{by: [k], n: count(*)}}}}{more}]}}}}
outputs: {{b: {output}}}
"""
KEYS = 40_000
KILLING = (
    DEADLY_HEAD
    + """
def late(record):
    if record["k"] == 7:  # each time: the executor's Java, then this process, which writes nothing more
        os.kill(parent(os.getppid()), signal.SIGKILL)
        os._exit(1)
    return record
"""
)
BOTH = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    "spark.locality.wait": "0s",
}
"""Settings with which no task begins before both machines are there, nor waits for one of them, so that nearly always each has some."""
IMPATIENT = (
    "from ddcli.runtime.spark import classic; classic.PATIENCE = 3; from ddcli.cli.coreutils import main; main()"
)
"""A program that waits for an executor for a short time."""
HOST = rf"(?:{FAR}|{re.escape(os.uname().nodename)})"
SHARED = "hint: put the state, the inputs and the outputs at paths that all executors can open"


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """Return a folder in whose place the far machine has an empty one."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def master(tmp_path_factory, hidden):
    """Return the address of a cluster of two machines: this one, and one with a name and an empty folder of its own."""
    pytest.importorskip("pyspark")
    # Java asks for the address of its machine's name, in some environments only.
    script = (
        f'hostname {FAR} && mount -t tmpfs none "$0" && (cat /etc/hosts && echo 127.0.0.1 {FAR}) > "$0.hosts"'
        ' && mount --bind "$0.hosts" /etc/hosts && exec "$@"'
    )
    with standalone(tmp_path_factory.mktemp("cluster"), within={1: (*APART, script, str(hidden))}) as found:
        yield found.master


def pipeline(folder, *, state=".dd/sums", input_="in/", output="out/b/", more=""):
    """Write a pipeline and its input."""
    (folder / "p.yaml").write_text(PIPELINE.format(state=state, input=input_, output=output, more=more))
    (folder / input_).mkdir(parents=True, exist_ok=True)
    for at in range(4):
        pl.DataFrame({"k": range(at, KEYS, 4), "time": 0, "diff": 1}).write_parquet(folder / input_ / f"{at}.parquet")


def command(folder, master, conf):
    conf = ON_THIS_MACHINE | BOTH | {f"spark.{name}": value for name, value in conf.items()}
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return [sys.executable, "-m", "ddcli", "run", folder / "p.yaml", "--engine", "spark", "--master", master, *words]


def refused(folder, master, error, conf=()):
    """Run on the cluster; compare what is said with a pattern, and the exit code with that of a failure of the engine."""
    for _ in range(6):
        done = subprocess.run(
            command(folder, master, dict(conf)), cwd=folder, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            break
        # Spark gave all tasks to the machine that lacks nothing.
        for each in (".dd", "out"):
            shutil.rmtree(folder / each)
    assert done.returncode == 5, done.stderr
    said = "\n".join(line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING: "))
    assert re.fullmatch(error, said), said


def check(folder):
    """Run here, where nothing is missing, and compare the output with what it must be."""
    run(folder / "p.yaml", engine="local")
    out = pl.read_parquet(folder / "out/b/*.parquet").sort("k")
    assert out.select("k", "n", "diff").rows() == [(key, 1, 1) for key in range(KEYS)]


@pytest.mark.in_turn(9)
@pytest.mark.parametrize(
    ("lacks", "error"),
    [
        (
            "input_",
            rf"PLACE/\d\.parquet: error: on the executor's machine {FAR}: the file can't be read: .*\n{SHARED}.*",
        ),
        ("output", rf"PLACE: error: an executor on {FAR} can't open the output 'b'\n{SHARED}.*"),
        ("state", rf"PLACE: error: an executor on {FAR} can't open the state\n{SHARED}.*"),
    ],
)
def test_a_path_that_one_machine_lacks(master, hidden, tmp_path, lacks, error):
    place = hidden / tmp_path.name
    pipeline(tmp_path, **{lacks: f"{place}/"})
    refused(tmp_path, master, error.replace("PLACE", re.escape(str(place))))
    if lacks == "input_":
        check(tmp_path)
    else:
        assert not list(place.rglob("*.parquet"))


@pytest.mark.in_turn(9)
def test_the_doctor_finds_a_path_that_one_machine_lacks(master, hidden, tmp_path):
    place = hidden / tmp_path.name
    pipeline(tmp_path, input_=f"{place}/", output=f"{hidden}/")
    words = command(tmp_path, master, {})
    words[3:7] = ["doctor", tmp_path / "p.yaml", "--spark"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 5, done.stderr
    failed = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    said = "FAILED  paths       an executor can't open the"
    assert failed[0] == f"{said} input 'a', {place}: {FAR}: there is none"
    assert re.fullmatch(rf"{said} output 'b', {hidden}: {FAR}: it has no \S+, which is here", failed[1])
    assert len(failed) == 2


@pytest.mark.in_turn(9)
def test_another_version_of_the_program(master, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(ROOT / "ddcli", other / "ddcli", ignore=shutil.ignore_patterns("__pycache__"))
    version = other / "ddcli/version.py"
    version.write_text(version.read_text().replace(__version__, "9.9.9"))
    pipeline(tmp_path)
    error = (
        rf"error: an executor on {HOST} has ddcli 9\.9\.9, and this is {re.escape(__version__)}\n"
        "hint: install the same version everywhere; .*"
    )
    refused(tmp_path, master, error, {"executorEnv.PYTHONPATH": str(other)})
    check(tmp_path)


@pytest.mark.in_turn(9)
def test_too_little_memory_for_an_executor(master, tmp_path):
    """The cluster may be busy, so a run waits; it reports that, once."""
    pipeline(tmp_path)
    words = command(tmp_path, master, {"executor.memory": "8g", "scheduler.minRegisteredResourcesRatio": "0"})
    words[1:3] = ["-c", IMPATIENT]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE) as run_:
        lines = []
        for line in run_.stderr:
            lines.append(line.decode())
            if "no executor has started yet" in lines[-1]:
                break
        run_.send_signal(signal.SIGINT)
        run_.communicate(timeout=300)
    assert lines[-1].startswith(f"{master}: no executor has started yet, and tasks wait for the first; "), lines
    assert "--conf spark.executor.memory=" in lines[-1]
    assert run_.returncode == 130
    check(tmp_path)


@pytest.mark.in_turn(9)
def test_executors_whose_java_is_killed_each_time(master, tmp_path):
    name = f"killing_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(KILLING)
    pipeline(tmp_path, more=f", {{map: {{function: {name}:late, columns: {{k: int64, n: int64}}}}}}")
    refused(
        tmp_path,
        master,
        r"stages 1 to 3 of 3: .*: error: (?:an executor was lost on 127\.0\.0\.\d: |executors were lost with rows that others need, ).*\nhint: nothing of this run is visible; .*",
        {"shuffle.io.retryWait": "100ms"},  # else each stage waits 15 s for the rows of the executor before
    )
    assert read_newest(tmp_path / ".dd/sums") is None
    assert not (tmp_path / "out").exists()


@pytest.mark.in_turn(9)
@pytest.mark.parametrize("answers", [True, False])
def test_a_store_that_refuses_executors(master, tmp_path, answers):
    """Or that they can't reach: executors have an address of their own for it."""
    with s3_server(tmp_path / "log") as url, refusing() as other:
        urllib.request.urlopen(urllib.request.Request(f"{url}/lake", method="PUT")).close()  # noqa: S310 - our own server
        pipeline(tmp_path, state="s3://lake/state", output="s3://lake/out/b/")
        error = rf"s3://lake/.*: error: on the executor's machine {HOST}: .*\nhint: .*, on that machine, too"
        refused(tmp_path, master, error, {"executorEnv.AWS_ENDPOINT_URL": other if answers else "http://127.0.0.1:9"})
