"""`make bench-spark`: what Spark is good for, and what it costs where it isn't, beside SQL by hand and this machine's threads.

* changes: skip-level with a move of each person (30 M updates in), by tasks, by SQL, and by threads. The SQL is the same join and
  consolidation, and keeps nothing; ours keeps and commits the state from which the next change is cheap.
* cluster: the same by tasks on a standalone master with two workers on this machine, and the largest peak of memory of each kind of process.
* loop: ten rounds of label propagation over a million edges, with ten to a node and followed one way, or two and both ways.
* skew: a load where all rows have one key, or each key has ten, on four executors that do a task each: the tasks run here one after the
  other, and their processor time counts. Spark's own work is not in it.
* store: TPC-H's 22 queries in one pipeline, a load and a batch, on a cluster of two workers: with state and outputs on the disk that they share, and in a
  server of the S3 protocol that answers each request 20 ms late. The results are compared with DuckDB's.
* small: a change of a thousand rows to a state that Spark loaded, in a process of its own: `--engine auto` starts no JVM.

One session, warm: each way once before it is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.driver.run import run
from ddcli.engine.jit.settings import cache_dir
from ddcli.job.sizes import SparkOptions
from ddcli.runtime.placement import start
from ddcli.sources.change_log import read_log
from tests.bench import data, tpch
from tests.bench.processes import ROOT, ProcessorTime, dd, measure
from tests.bench.workspace import BOTH_WAYS, LABELS, SKIP_LEVEL, Workspace
from tests.objects.conftest import s3_server
from tests.spark.servers import await_idle, children, standalone
from tests.spark.support import Calm, started

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.runtime.spark.classic import Classic

SQL = """
    select a.employee, a.manager, b.manager as skip_manager, greatest(a.time, b.time) as time, sum(a.diff * b.diff) as diff
    from manages a join manages b on a.manager = b.employee
    group by all having sum(a.diff * b.diff) != 0
"""
CONF = {
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "8",
    # The compiler of the JVM is wanted whole: the SQL runs there.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
PATH = "pipeline.yaml"
CLUSTER = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
"""Settings of a run on a cluster of this machine."""
REQUEST = 0.02
"""Seconds by which the store answers a request late."""


def measured(do: Callable[[], object], clear: Callable[[], object], runs: int) -> str:
    """Return the medians of the seconds that it takes by the clock and of processors, Spark's among them, after once in which nobody looks."""
    found, processors = [], ProcessorTime()
    for _ in range(runs + 1):
        clear()
        began, spent = time.perf_counter(), processors.seconds
        do()
        found.append((time.perf_counter() - began, processors.seconds - spent))
    seconds, spent = map(statistics.median, zip(*found[1:], strict=True))
    return f"{seconds:.1f} s, {spent:.1f} s of processors"


def by_sql(spark: Classic, place: Workspace) -> None:
    """Do what the pipeline does by Spark SQL."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark.context)
    session.read.parquet(str(place.input)).createOrReplaceTempView("manages")
    session.sql(SQL).write.mode("overwrite").parquet(str(place.folder / "by-sql"))


def changes(spark: Classic, folder: Path, given: argparse.Namespace) -> None:
    """Measure the load of 30 M updates."""
    place = moves(folder, given.people)
    ways: dict[str, Callable[[], object]] = {
        "tasks on Spark, state kept": lambda: run(place.folder / PATH, engine="spark"),
        "Spark SQL by hand": lambda: by_sql(spark, place),
        "threads of this machine, state kept": lambda: run(place.folder / PATH, engine="local", workers=2),
    }
    for what, do in ways.items():
        print(f"changes: {what}: {measured(do, place.clear, given.runs)}", flush=True)


def moves(folder: Path, people: int) -> Workspace:
    """Return a folder with the people and a move of each."""
    place = Workspace(folder / "work" / "spark", SKIP_LEVEL)
    for name in ("base", "changes"):
        place.append(data.people(folder, people) / f"{name}.parquet")
    return place


def loop(_: Classic, folder: Path, given: argparse.Namespace) -> None:
    """Measure ten rounds."""
    for way, more, each in (("one way", "", 10), ("both ways", BOTH_WAYS, 2)):
        place = Workspace(folder / "work" / "labels", LABELS.replace("%s", more))
        edges = np.random.default_rng(1).integers(0, given.edges // each, (given.edges, 2))
        frame = pl.DataFrame({"src": edges[:, 0], "dst": edges[:, 1]}).with_columns(time=0, diff=1)
        frame.write_parquet(place.input / "0.parquet")
        for engine in ("spark", "local"):
            took = measured(
                lambda engine=engine, at=place: run(at.folder / PATH, engine=engine), place.clear, given.runs
            )
            about = f"ten rounds over {given.edges:,} edges, {each} a node, {way}"
            print(f"loop: {about}, --engine {engine}: {took}", flush=True)


def small(_: Classic, folder: Path, given: argparse.Namespace) -> None:
    """Measure a small change to what Spark loaded, as a command."""
    people = data.people(folder, given.people)
    place = Workspace(folder / "work" / "small", SKIP_LEVEL)
    place.append(people / "base.parquet")
    run(place.folder / PATH, engine="spark")
    place.save()
    place.append(people / "next.parquet")
    for options in (("--engine", "auto", "--master", "local[2]"), ("--engine", "local")):
        found = []
        for _ in range(given.runs + 2):
            place.restore()
            found.append(measure(dd("run", place.folder / PATH, *options)).wall)
        print(f"small: {' '.join(options)}: {statistics.median(found[1:]):.2f} s", flush=True)


def cluster(folder: Path, given: argparse.Namespace) -> None:
    """Measure the load on a cluster, in a process of its own: the first run of a session, and what memory its processes had."""
    place = moves(folder, given.people)
    settings = CLUSTER | {"spark.executor.memory": given.executor}
    conf = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    with tempfile.TemporaryDirectory() as logs, standalone(Path(logs), memory=given.executor) as (master, workers, _):
        command = dd("run", place.folder / PATH, "--engine", "spark", "--master", master, *conf)
        started = time.perf_counter()
        with subprocess.Popen(command, cwd=ROOT) as driver:
            peaks = watched(driver, workers)
        assert driver.returncode == 0, "the run failed"
    print(f"cluster: tasks on Spark, state kept, started cold: {time.perf_counter() - started:.1f} s")
    for kind, peak in sorted(peaks.items()):
        print(f"cluster: peak of the largest {kind}: {peak / 2**20:,.0f} MiB", flush=True)


def watched(driver: subprocess.Popen, workers: list[int]) -> dict[str, int]:
    """Return the largest peak of memory of each kind of process, once the driver has ended."""
    peaks: dict[str, int] = defaultdict(int)
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.25):
            waiting = [driver.pid, *workers]
            while waiting:
                process = waiting.pop()
                waiting += children(process)
                kind, peak = memory(process)
                kind = "driver" if process == driver.pid else kind
                peaks[kind] = max(peaks[kind], peak)

    watch = threading.Thread(target=look)
    watch.start()
    driver.wait()
    over.set()
    watch.join()
    return peaks


def store(folder: Path, given: argparse.Namespace) -> None:
    """Measure TPC-H's queries with their state on a disk, and in an object store: by the clock, and the processor time of the cluster and the driver."""
    made, (orders, *_) = tpch.tables(folder, given.scale), tpch.changed(given.scale)
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as logs, s3_server(Path(logs) / "s3", delay=REQUEST) as url:
        urllib.request.urlopen(urllib.request.Request(f"{url}/lake", method="PUT")).close()  # noqa: S310 - our own server
        processors = ProcessorTime(but=children(os.getpid()))
        for where, root in (("disk", ""), ("store", "s3://lake/")):
            text = tpch.pipeline(list(tpch.QUERIES), given.scale).replace(": out/", f": {root}out/")
            place = tpch.Warehouse(folder / "work" / "store", f"dd: 1\nname: tpch\nstate: {root}state\n{text}")
            for what in ("load", f"batch-{orders}"):
                place.arrive(made / what)
                with standalone(Path(logs), memory=given.executor) as (master, _, _):
                    conf = [word for pair in CLUSTER.items() for word in ("--conf", "=".join(pair))]
                    conf += ["--conf", f"spark.executor.memory={given.executor}"]
                    spent = processors.seconds
                    run_ = measure([*place.command, "--engine", "spark", "--master", master, *conf])
                    await_idle(Path(logs) / "work")
                    spent = processors.seconds - spent
                found[what].append(run_.wall)
                print(f"store: {what}, {where}: {run_.wall:.1f} s, {spent:.1f} s of processors", flush=True)
            for name in tpch.QUERIES:
                output = f"{root}out/{name}/" if root else f"{place.folder}/out/{name}/"
                records = [row[:-1] for row in read_log(output, as_of="latest").rows() for _ in range(row[-1])]
                tpch.compare("dd", name, records, tpch.query(name, given.scale), made / f"now-{orders}")
    for what, (disk, far) in found.items():
        print(f"store: {what}: the store takes {far / disk:.2f} times as long", flush=True)


SKEWED = {
    "a join, and the sum of its rows": "[{join: {with: b, on: [k]}}, {reduce: {by: [name], n: count(*), t: sum(v)}}]",
    "a join": "[{join: {with: b, on: [k]}}]",
    "the sum of a key": "[{reduce: {by: [k], n: count(*), t: sum(v)}}]",
    "the least of a key": "[{reduce: {by: [k], t: min(v)}}]",
    "the distinct values of a key": "[{reduce: {by: [k], t: count(distinct v)}}]",
}


class Timed(Calm):
    """Notes the processor time of each task, by stages."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = 4
        self.stages: dict[int, list[float]] = defaultdict(list)

    def run(self, function: Any, common: bytes, tasks: Any, about: str, progress: Any) -> list[bytes]:
        stage = len(self.stages)
        return [self._timed(stage, lambda task=task: function(common, task, str(next(self.names)))) for task in tasks]

    def stepped(self, step: Any, part: Any) -> Any:
        return self._timed(-id(step), lambda: super(Timed, self).stepped(step, part))

    def _timed(self, stage: int, do: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = do()
        self.stages[stage].append(time.process_time() - began)
        return found

    @property
    def seconds(self) -> float:
        """The time of all stages, each of which begins when the one before has ended."""
        found = 0.0
        for tasks in self.stages.values():
            free = [0.0] * self.slots
            for each in tasks:
                free[free.index(min(free))] += each
            found += max(free)
        return found


def skew(folder: Path, given: argparse.Namespace) -> None:
    """Measure loads of one key, and of many."""
    rows = given.people
    for what, applied in SKEWED.items():
        collection = f"j: {{from: a, apply: {applied}}}"
        text = f"name: skew\ninputs: {{a: in/a/, b: in/b/}}\ncollections: {{{collection}}}\noutputs: {{j: out/j/}}\n"
        place, found = Workspace(folder / "work" / "skew", text), []
        keys = np.arange(rows // 10)
        for key in (np.random.default_rng(1).integers(0, len(keys), rows), np.zeros(rows, np.int64)):
            place.clear()
            for name, columns in (("a", {"k": key, "v": np.arange(rows)}), ("b", {"k": keys, "name": keys % 1000})):
                (place.input / name).mkdir(exist_ok=True)
                frame = pl.DataFrame(columns).with_columns(time=0, diff=1)
                frame.write_parquet(place.input / name / "0.parquet", row_group_size=100_000)
            with started(Timed()) as cluster:
                run(place.folder / PATH, engine="spark", memory=8 << 30)
            found.append(cluster.seconds)
        print(f"skew: {what}: {found[0]:.2f} s with {len(keys):,} keys, {found[1]:.2f} s with one", flush=True)


def memory(process: int) -> tuple[str, int]:
    """Return of what kind a process is, and the bytes that it had resident at its peak."""
    try:
        said = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return "other", 0
    kinds = {"deploy.worker": "worker", "ExecutorBackend": "executor's JVM", "SparkSubmit": "driver's JVM"}
    kinds |= {"pyspark.daemon": "Python process of an executor"}
    peak = next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
    return next((kind for word, kind in kinds.items() if word in said), "other"), peak


def main() -> None:
    """Measure, and print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=10_000_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--executor", default="4g", help="memory of an executor of the cluster")
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor of TPC-H")
    parser.add_argument("cases", nargs="*", help="changes, loop, small, cluster, skew, store; all without any")
    given = parser.parse_args()
    folder = ROOT / ".bench"
    wanted = given.cases or ["changes", "loop", "small", "cluster", "skew", "store"]
    if set(wanted) & {"changes", "loop", "small"}:
        started = time.perf_counter()
        spark: Classic = start(SparkOptions(given.master, CONF), "bench", cache_dir())  # type: ignore[assignment] # no remote
        print(f"Spark starts in {time.perf_counter() - started:.1f} s", flush=True)
        for case in (changes, loop, small):
            if case.__name__ in wanted:
                case(spark, folder, given)
        spark.close()
    for case in (cluster, skew, store):
        if case.__name__ in wanted:
            case(folder, given)


if __name__ == "__main__":
    main()
