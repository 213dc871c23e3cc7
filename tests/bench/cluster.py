"""The figures of runs on clusters that no test can start, from the code's own formulas: `python -m tests.bench.cluster` prints them.

A run has some stages and arrangements. The sizes of shards, passes and slices are those that a run on Spark would choose; the bytes of a
record are measured on a few. A commit in an object store waits for its requests, of which some are on their way at one time.
"""

from __future__ import annotations

import math
import pickle
import tracemalloc
from typing import NamedTuple

from ddcli.circuit.traces import ShardFiles
from ddcli.engine.lanes import Layout
from ddcli.expressions.types import Type
from ddcli.job.sizes import LANE, sizes
from ddcli.runtime.scheduler import TURNS
from ddcli.runtime.spark.session import share
from ddcli.runtime.task import Result
from ddcli.store.batch.layout import BatchLayout
from ddcli.store.files.gate import REQUESTS
from ddcli.store.state.batch_lists import LATELY, MOST, list_bytes
from ddcli.store.state.entries import FileEntry

WIDTH = 12
"""Lanes of a row, its time and its diff among them."""
STAGES = 10
"""Stages after the one that reads the inputs."""
TASK_BYTES = 2_000
"""Bytes of the record of a task of a pipeline of some operators, without its batches: counts above all."""
ARRANGEMENTS = 10
REQUEST = 0.02
"""Seconds of a request to an object store."""
SAMPLE = 2_000
"""Records on which the bytes of one are measured."""
FIXED = 12
"""Requests of a commit that come one after the other: lock, manifest, outputs and their progress."""


class Cluster(NamedTuple):
    """Executors of some cores and so many GiB of memory each."""

    executors: int
    cores: int = 4
    memory: int = 16

    @property
    def slots(self) -> int:
        """The tasks at once."""
        return self.executors * self.cores

    @property
    def task_memory(self) -> int:
        """The bytes of memory of a task."""
        return share({"spark.master": "yarn", "spark.executor.memory": f"{self.memory}g"}, self.cores, self.slots, 0)


class Figures(NamedTuple):
    """The figures of a run: counts, bytes and seconds."""

    shards: int
    passes: int
    tasks: int
    results: float
    driver: float
    files: int
    manifest: float
    commit: float


def record_bytes() -> tuple[float, float]:
    """Return the bytes of a task's record of a batch file that it wrote, as the driver receives it, and as it keeps it."""
    layout = BatchLayout(Layout({"k": Type("int64")}), Layout({f"v{at}": Type("int64") for at in range(WIDTH - 3)}), 1)
    kept = [ShardFiles("14e78f24ce442d2e87c8", each.shard, layout, (each.entry,), True) for each in _batches()]
    data = pickle.dumps(Result(kept=kept))
    tracemalloc.start()
    held = pickle.loads(data)  # noqa: S301 - our own
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(held.kept) == SAMPLE
    return len(data) / SAMPLE, size / SAMPLE


class _Batch(NamedTuple):
    shard: int
    entry: FileEntry


def _batches() -> list[_Batch]:
    checksum = "0123456789abcdef" * 4
    return [
        _Batch(
            at,
            FileEntry(
                f"000000012-0a1b2c3d-{at}-0001.parquet",
                10_000,
                400_000,
                checksum,
                ((480,),),
                ((540,),),
                footer=checksum,
            ),
        )
        for at in range(SAMPLE)
    ]


def entry_bytes() -> float:
    """Return the bytes of a batch in a list."""
    return len(list_bytes(("14e78f24ce442d2e87c8", each.shard, each.entry) for each in _batches())) / SAMPLE


def figures(rows: int, cluster: Cluster, kept: int = 0) -> Figures:
    """Return the figures of a run over some rows, a load, or a change of a state of `kept` shards."""
    shards = frozenset([kept]) if kept else frozenset[int]()
    cut = sizes(rows, WIDTH, shards, 1, cluster.task_memory, apart=True).spread(rows, cluster.slots, new=not kept)
    assert cut.most is not None
    # Each task of a stage has a record, whatever it sends; and each batch that one writes is in its record.
    tasks = min(math.ceil(rows / cut.most), TURNS * cluster.slots) + STAGES * min(cut.passes, TURNS * cluster.slots)
    received, held = record_bytes()
    files = max(shards, default=cut.shards) * ARRANGEMENTS if rows >= kept else rows * ARRANGEMENTS
    # A batch is new in its list; those that it was merged with go, and as many others are written again at most.
    listed = files + min(MOST, files) if files > LATELY else files
    removed = files if kept else 0
    requests = math.ceil(listed / MOST) + removed
    return Figures(
        max(shards, default=cut.shards),
        cut.passes,
        tasks,
        tasks * TASK_BYTES + files * received,
        tasks * TASK_BYTES + files * held,
        files,
        listed * entry_bytes(),
        (FIXED + requests / REQUESTS) * REQUEST,
    )


def loads() -> dict[str, tuple[Figures, Figures]]:
    """Return the figures of three loads, each with those of a batch of 1 GB after it."""
    found = {}
    for name, rows, executors in (("100 GB", 10**9, 25), ("1 TB", 10**10, 100), ("10 TB", 10**11, 1000)):
        load = figures(rows, Cluster(executors))
        found[name] = load, figures(10**7, Cluster(executors), load.shards)
    return found


def main() -> None:
    """Print the table."""
    print(f"{WIDTH * LANE} bytes of lanes a row, {ARRANGEMENTS} arrangements, {REQUEST * 1000:.0f} ms a request")
    for name, runs in loads().items():
        for what, each in zip((name, "  then 1 GB"), runs, strict=True):
            print(
                f"{what:12} {each.shards:6,} shards {each.passes:6,} passes {each.tasks:7,} tasks"
                f"  to the driver {each.results / 1e6:11,.0f} MB, held {each.driver / 1e9:9,.1f} GB"
                f"  {each.files:8,} files  manifest {each.manifest / 1e6:6,.1f} MB  commit {each.commit:7.1f} s"
            )


if __name__ == "__main__":
    main()
