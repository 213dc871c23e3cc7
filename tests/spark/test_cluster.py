"""A cluster of its own, a master and two workers on this machine, to which what may happen to a cluster happens."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import collect_garbage
from tests.harness import ROOT
from tests.spark.deadly import DEADLY_HEAD, PIPELINE
from tests.spark.servers import ON_THIS_MACHINE, await_idle, standalone
from tests.spark.support import unnamed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="the tests find processes in /proc"),
]

DEADLY = (
    DEADLY_HEAD
    + """
import ctypes, resource, sys

if (HERE / "lacking").exists():
    from pyspark import TaskContext
    if TaskContext.get() is not None:
        import no_such_package

def early(record):
    return when("early", record)

def late(record):
    return when("late", record)

def when(at, record):
    if record["k"] == 7 and (HERE / at).exists():
        what = (HERE / at).read_text()
        if what == "kill the executor" and once("killed"):  # what started what started this process, which writes nothing more
            os.kill(parent(os.getppid()), signal.SIGKILL)
            os._exit(1)
        if what == "wait for the other":
            # One attempt waits until another process gets here, too.
            (HERE / f"attempt-{os.getpid()}").touch()
            until = time.monotonic() + 300
            while len(list(HERE.glob("attempt-*"))) < 2 and time.monotonic() < until:
                time.sleep(0.05)
        if what == "kill the driver":
            known = (HERE / "known").read_text().split()
            while all(path.name in known for path in (HERE / ".dd").rglob("bundles/*.tar")):  # until the other task has written
                time.sleep(0.05)
            os.kill(int((HERE / "driver").read_text()), signal.SIGKILL)
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "raise":
            raise ValueError("unlucky\\n\\n  seven")
        if what == "exit":
            sys.exit("enough")
        if what == "crash":
            ctypes.string_at(0)
        if what == "take too much":  # under the limit that Spark sets, but nearer; what tells of it has more, or may die of it, too
            mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + (64 << 20), resource.RLIM_INFINITY))
            try:
                bytearray(1 << 30)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return record
"""
)
DRIVER = """
import json, os, signal, sys
from pathlib import Path
from ddcli.engine.jit.settings import cache_dir
from ddcli.errors import DdError
from ddcli.driver.run import run
from ddcli.job.options import SparkOptions
from ddcli.runtime.placement import start
from ddcli.store.state.transaction import Transaction
from tests.spark.servers import children

def killing(self, *given):
    if (place / "commit").exists():
        for executor in [child for worker in workers for child in children(worker)]:
            os.kill(executor, signal.SIGKILL)
            (place / "killed").touch()
    prepare(self, *given)

prepare, Transaction._prepare = Transaction._prepare, killing
master, workers, settings = json.loads(sys.argv[1])
start(SparkOptions(master, settings), "doomed", cache_dir())  # which all runs of this process find
for line in sys.stdin:
    place = Path(line.strip())
    try:
        run(place / "p.yaml", engine="spark")
        print("done", flush=True)
    except DdError as error:
        print(json.dumps(error.render()), flush=True)
"""
SETTINGS = ON_THIS_MACHINE | {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "5s",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}
"""One task a process of an executor, and second attempts at whatever takes longer than others, and long enough: an attempt may outlive its run, and write then."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of the cluster, below which its executors run."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def driver(folder):
    """Return a process that runs pipelines on a cluster, one after the other."""
    pytest.importorskip("pyspark")
    with standalone(folder) as (master, workers, _):
        command = [sys.executable, "-c", DRIVER, json.dumps([master, workers, SETTINGS])]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with (
            (folder / "driver.log").open("w") as log,
            subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=log, **streams) as process,
        ):
            yield process
            process.stdin.close()


@pytest.fixture
def place(tmp_path):
    """Return a folder with the pipeline, functions that no other test's have the name of, and input."""
    name = f"deadly_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(DEADLY)
    (tmp_path / "p.yaml").write_text(PIPELINE.replace("deadly:", f"{name}:"))
    (tmp_path / "in").mkdir()
    for time in range(4):
        more(tmp_path, time)
    return tmp_path


def more(place, time):
    keys = pl.DataFrame({"k": [at % 100 for at in range(1_000)], "time": time, "diff": 1})
    keys.write_parquet(place / f"in/{time}.parquet")


def ran(driver, place):
    """Run the pipeline on the cluster; return what is said of it, nothing where the driver is gone."""
    driver.stdin.write(f"{place}\n")
    driver.stdin.flush()
    return driver.stdout.readline().strip()


def end(process):
    """Kill a Python process of an executor, if there still is one, and wait until it's gone: then it writes no more."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    until = monotonic() + 300
    with suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{process}/cmdline").read_bytes():
            assert monotonic() < until, "a killed process still runs"
            sleep(0.01)


def check(place, times=4):
    """Compare the output with what it must be; there must be no file that nobody knows."""
    log = pl.read_parquet(place / "out/b/*.parquet").filter(pl.col("time") == times - 1, pl.col("diff") > 0)
    assert log.select("k", "n").sort("k").rows() == [(key, 10 * times) for key in range(100)]
    state, until = place / ".dd/doomed", monotonic() + 300
    while collect_garbage(state) or unnamed(
        state
    ):  # of attempts that have outlived the run, as Spark does some tasks twice
        assert monotonic() < until, "each sweep finds more"
    assert not (state / "spill").exists()
    assert not [path.name for path in (place / "out/b").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.in_turn(9)
def test_an_executor_is_killed(driver, place, when):
    """While it reads the input, or when some files of the state are written: there is one more attempt."""
    (place / when).write_text("kill the executor")
    assert ran(driver, place) == "done"
    assert (place / "killed").exists()
    check(place)


@pytest.mark.in_turn(9)
def test_all_executors_are_killed_while_the_driver_commits(driver, place):
    (place / "commit").touch()
    assert ran(driver, place) == "done"
    assert (place / "killed").exists()
    check(place)


@pytest.mark.in_turn(9)
def test_a_task_is_done_twice_at_once(driver, place):
    """Spark speculates: the first attempt waits until there is a second, and one of the two counts.

    The other may still write when the run has ended. What it leaves is no part of the state, and whoever opens the state next removes it.
    """
    (place / "late").write_text("wait for the other")
    assert ran(driver, place) == "done"
    attempts = [int(path.name.removeprefix("attempt-")) for path in place.glob("attempt-*")]
    assert len(attempts) == 2, "there was no second attempt"
    for process in attempts:
        end(process)
    collect_garbage(place / ".dd/doomed")
    check(place)


ENDS = {
    "raise": r"PLACE/MODULE\.py:\d+: error: MODULE:late raised ValueError: unlucky seven for the row {'k': 7, 'n': 10}$",
    "exit": r"PLACE/MODULE\.py:\d+: error: MODULE:late raised SystemExit: enough for the row {'k': 7, 'n': 10}$",
    "die": r"stages 1 to 3 of 3: .*: error: a Python process of an executor was killed on 127\.0\.0\.\d, .*\nhint: .*memoryOverhead",
    "crash": r"stages 1 to 3 of 3: .*: error: .* crashed on .*: Segmentation fault, in when at PLACE/MODULE\.py:\d+\nhint: ",
    "take too much": r"stages 1 to 3 of 3: .*: error: a task ran out of memory on \S+: in MODULE:late for the row .*\nhint: .*pyspark\.memory",
    "lacking": r"error: an executor on .* lacks .* module `MODULE` can't be imported: ModuleNotFoundError: No .*\nhint: ",
}
"""What functions do, or happens to them, each time that a task is tried, and what is said of it."""


@pytest.mark.in_turn(9)
@pytest.mark.parametrize("what", ENDS)
def test_what_fails_each_time_ends_the_run(driver, place, what):
    """It is told in a line and a hint, nothing is visible, and the next run, without it, is right. The next test sees that the cluster is."""
    flag = place / ("lacking" if what == "lacking" else "late")
    flag.write_text(what)
    said = json.loads(ran(driver, place))
    assert re.match(ENDS[what].replace("PLACE", str(place)).replace("MODULE", f"deadly_{place.name}"), said), said
    assert said.count("\n") <= 1
    assert not (place / "out").exists()
    assert read_newest(place / ".dd/doomed") is None
    flag.unlink()
    run(place / "p.yaml", engine="local")
    check(place)


@pytest.mark.in_turn(9)
def test_the_driver_is_killed(driver, place, folder):
    """Nothing of it is visible, what it left is collected, and the next run is right. It is the last of these tests.

    The task that kills waits for the other one, which writes its files: without two shards there is no other.
    """
    text = (place / "p.yaml").read_text()
    (place / "p.yaml").write_text(text.replace("name: doomed\n", "name: doomed\nshards: 2\n"))
    run(place / "p.yaml", engine="local")
    before = read_newest(place / ".dd/doomed").number
    more(place, 4)
    (place / "driver").write_text(str(driver.pid))
    (place / "known").write_text("\n".join(path.name for path in (place / ".dd").rglob("bundles/*.tar")))
    (place / "late").write_text("kill the driver")
    assert ran(driver, place) == ""
    assert driver.wait(300) == -signal.SIGKILL
    await_idle(folder / "work")  # until its executors notice
    assert read_newest(place / ".dd/doomed").number == before
    assert collect_garbage(place / ".dd/doomed"), "the driver died too early for the test"
    (place / "late").unlink()
    run(place / "p.yaml", engine="local")
    check(place, 5)
