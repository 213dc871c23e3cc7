"""`make bench-spark`: skip-level with a move of each person, on Spark: by tasks, by SQL, and beside both by this machine's threads.

One session, warm: each way once before it is measured. The SQL is the same join and consolidation, and keeps nothing; ours
keeps and commits the state from which the next change is cheap.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

from ddcli.engine.kernels.settings import cache_dir
from ddcli.pipeline import run
from ddcli.runtime.options import SparkOptions
from ddcli.runtime.spark import start
from tests.bench import data
from tests.bench.processes import ROOT
from tests.bench.workspace import SKIP_LEVEL, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.runtime.spark import Spark

SQL = """
    select a.employee, a.manager, b.manager as skip_manager, greatest(a.time, b.time) as time, sum(a.diff * b.diff) as diff
    from manages a join manages b on a.manager = b.employee
    group by all having sum(a.diff * b.diff) != 0
"""


def measured(do: Callable[[], object], clear: Callable[[], object], runs: int) -> float:
    """Return the median of the seconds that it takes, after once in which nobody looks."""
    found = []
    for _ in range(runs + 1):
        clear()
        started = time.perf_counter()
        do()
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


def by_sql(spark: Spark, place: Workspace) -> None:
    """Do what the pipeline does by Spark SQL."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark.context)
    session.read.parquet(str(place.input)).createOrReplaceTempView("manages")
    session.sql(SQL).write.mode("overwrite").parquet(str(place.folder / "by-sql"))


def main() -> None:
    """Measure, and print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    folder = ROOT / ".bench"
    people = data.people(folder, given.people)
    place = Workspace(folder / "work" / "spark", SKIP_LEVEL)
    for name in ("base", "changes"):
        place.append(people / f"{name}.parquet")
    path = place.folder / "pipeline.yaml"
    conf = {"spark.driver.memory": "6g", "spark.sql.shuffle.partitions": "8"}
    # The compiler of the JVM is wanted whole: the SQL runs there.
    conf["spark.driver.extraJavaOptions"] = "-XX:+UseParallelGC"
    started = time.perf_counter()
    spark = start(SparkOptions(given.master, conf), "bench", cache_dir())
    print(f"Spark starts in {time.perf_counter() - started:.1f} s")
    ways: dict[str, Callable[[], object]] = {
        "tasks on Spark, state kept": lambda: run(path, engine="spark"),
        "Spark SQL by hand": lambda: by_sql(spark, place),
        "threads of this machine, state kept": lambda: run(path, engine="local", workers=2),
    }
    for what, do in ways.items():
        print(f"{what}: {measured(do, place.clear, given.runs):.1f} s", flush=True)
    spark.close()


if __name__ == "__main__":
    main()
