"""The figures of runs on clusters that no test can start, from the code's own formulas: `python -m tests.bench.cluster` prints them.

A run has some stages and arrangements. The sizes of shards, passes and slices are those that a run on Spark would choose; the bytes of a
record are measured on a few. A commit in an object store waits for its requests, of which some are on their way at one time.
"""

from __future__ import annotations

import math
import pickle
import random
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddcli.circuit.traces import ShardFiles
from ddcli.engine.counts import Counts, RowCounts
from ddcli.engine.lanes import Layout
from ddcli.expressions.types import Type
from ddcli.job.sizes import LANE, sizes
from ddcli.runtime.chain import RESULT, Row
from ddcli.runtime.scheduler import TURNS, stage_tasks
from ddcli.runtime.spark.plans import in_batches
from ddcli.runtime.spark.session import share
from ddcli.runtime.task import Result, packed_result, result_of
from ddcli.sinks.outputs import WHOLE
from ddcli.sinks.pieces import INLINE, Piece, PieceFile, grouped
from ddcli.store.batch.file import BatchLayout
from ddcli.store.files.gate import Written
from ddcli.store.files.objects import ObjectPath
from ddcli.store.scratch.attempt import ALONE, FULL
from ddcli.store.state.batch_lists import DENSE, MOST, BatchList, list_bytes, most_again
from ddcli.store.state.contents import PAGE
from ddcli.store.state.entries import FileEntry
from ddcli.store.state.register import Segment, segment_bytes
from ddcli.store.state.transaction import StateFiles

if TYPE_CHECKING:
    from ddcli.store.state.batch_lists import Listed

WIDTH = 12
"""Lanes of a row, its time and its diff among them."""
PACKED = 0.5
"""Bytes in a batch file for each byte of its lanes."""
STAGES = 10
"""Stages after the one that reads the inputs."""
OPERATORS = 6
"""Operators of a stage: a task has counts of these."""
ARRANGEMENTS = 10
OUTPUTS = 5
"""Outputs, each of one stage."""
SHARE = 0.1
"""Bytes of all outputs' files for each byte of batch files of one arrangement."""
REQUEST = 0.02
"""Seconds of a request to an object store."""
SAMPLE = 2_000
"""Batches on which the bytes of a list are measured."""
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


def _batches(count: int) -> list[FileEntry]:
    """Return the entries of batches in bundles, one of each shard; they differ as those of a run do."""
    draw = random.Random(count)
    return [
        FileEntry(
            f"000000012-0a1b2c3d-1234-{at:04d}.parquet",
            draw.randrange(9_000, 11_000),
            draw.randrange(300_000, 400_000),
            f"{draw.getrandbits(32):08x}",
            ((480,),),
            ((540,),),
            ((480,),),
            f"{draw.getrandbits(32):08x}",
            bundle="000000012-0a1b2c3d-1234-b0.tar",
            at=350_000 * at,
        )
        for at in range(count)
    ]


def _listed(files: list[FileEntry]) -> tuple[Listed, ...]:
    return tuple(("14e78f24ce442d2e87c8", at * 251, file) for at, file in enumerate(files))


def result_bytes(batches: int) -> tuple[int, int]:
    """Return the bytes of the result of a task that has written so many batches and a file of an output, as the driver receives it, and as it keeps it.

    The tasks of the last stage pass on the results of the stages before, so a batch of Arrow has one of each. The driver has each as Arrow, as bytes, and unpacked.
    """
    layout = BatchLayout(Layout({"k": Type("int64")}), Layout({f"v{at}": Type("int64") for at in range(WIDTH - 3)}), 1)
    draw, files = random.Random(7), _batches(batches)
    listed = _listed(files)
    segment = Segment("000000012-0a1b2c3d-1234-9999.json", draw.getrandbits(20), f"{draw.getrandbits(32):08x}", batches)
    counts = Counts(
        {
            f"{draw.getrandbits(80):020x}": RowCounts(*(draw.getrandbits(24) for _ in range(3)), draw.random())
            for _ in range(OPERATORS)
        }
    )
    data = packed_result(
        Result(
            kept=[ShardFiles(name, shard, layout, (file,), True) for name, shard, file in listed],
            state=StateFiles(
                (Path(f"/data/state/bundles/{files[0].bundle}"), Path(f"/data/state/registers/{segment.name}")),
                {files[0].bundle: 1 << 24},
                BatchList(segment, listed),
            ),
            counts=counts,
            pieces=[Piece("sales", 9_000, 8_000, 7_000, 1_000, files=(_piece(draw.getrandbits(20), 7),))],
        )
    )
    tracemalloc.start()
    held = result_of(data)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(held.kept) == batches
    row = Row(9_999, RESULT, 0, STAGES, pickle.dumps((STAGES, 9_999, 65, data)))
    received = sum(len(batch.serialize()) for batch in in_batches(iter([row] * STAGES))) // STAGES
    return received, 2 * received + size


def _piece(size: int, at: int) -> PieceFile:
    """Return a file of an output that a task has written."""
    path = Path(f"/data/out/sales/.000000012-0a1b2c3d-{at}-0001.parquet.000000012.dd-tmp")
    return PieceFile(path, Written(size, "0a1b2c3d"), 9_000, "1a2b3c4d")


def output_files(size: float, tasks: int) -> tuple[int, int]:
    """Return the number of files of an output whose updates, of so many bytes, tasks have written, and those of them that other tasks have to make."""
    groups = grouped([_piece(int(size / tasks), at) for at in range(tasks)], WHOLE)
    return len(groups), sum(len(group) > 1 for group in groups)


def figures(rows: int, cluster: Cluster, kept: int = 0) -> Figures:
    """Return the figures of a run over some rows, a load, or a change of a state of `kept` shards."""
    shards = frozenset([kept]) if kept else frozenset[int]()
    cut = sizes(rows, WIDTH, shards, 1, cluster.task_memory, apart=True).spread(rows, cluster.slots, new=not kept)
    assert cut.most is not None
    count = max(shards, default=cut.shards)
    writers = STAGES * stage_tasks(cut.passes, cluster.slots, rows * WIDTH * LANE)
    tasks = min(math.ceil(rows / cut.most), TURNS * cluster.slots) + writers
    batches = min(rows, count) * ARRANGEMENTS
    of_task, size = math.ceil(batches / writers), PACKED * WIDTH * LANE * max(1, rows // count)
    # Large batches have files of their own; the others of a task are in bundles. Each task has an index.
    files = writers + (batches if size > ALONE else writers * math.ceil(of_task * size / FULL))
    if of_task >= DENSE:  # the manifest names the indices, and has a bit for each batch of the list before that is gone
        row = Segment("000000012-0a1b2c3d-1234-9999.json", 99_999, "0a1b2c3d", of_task).to_row()
        manifest, lists, unnamed = writers * len(segment_bytes([row])) + batches / 4, 1, 0
    else:  # a batch is new in a list, and as many others are written again at most
        listed = batches + min(most_again(batches), batches)
        manifest, lists = listed * len(list_bytes(_listed(_batches(SAMPLE)))) / SAMPLE, math.ceil(listed / MOST)
        unnamed = writers
    received, held = result_bytes(of_task)
    of_stage, written = writers // STAGES, SHARE * PACKED * WIDTH * LANE * rows
    outputs, joins = (OUTPUTS * count for count in output_files(written / OUTPUTS, of_stage))
    # Of a change those files go that it has merged, and indices that the manifest does not name: a page to a request. Each file of an output is copied to its
    # name and removed, and so is each that another was made of.
    gone = (files if kept else 0) + unnamed
    requests = lists + math.ceil(gone / PAGE) + 2 * outputs + OUTPUTS * of_stage
    # After a load the names of all files are listed, page by page; else those of tasks' files, of which each directory has few.
    pages = math.ceil(files / PAGE) if not kept else 2 + OUTPUTS
    return Figures(
        count,
        cut.passes,
        tasks + joins,
        tasks * received + INLINE,
        tasks * held + INLINE,
        files + outputs,
        manifest,
        (FIXED + pages + requests / ObjectPath.at_once) * REQUEST,
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
