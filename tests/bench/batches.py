"""The case of lookups in a batch file: keys anywhere among 6 M rows of a key and two values, all that a run does for it included.

python -m tests.bench.batches FOLDER ROWS       # prints seconds for 1 000 and for 100 000 keys, opening the file included, as JSON
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine.lanes import Layout
from ddcli.engine.pool import PUBLIC, Pool
from ddcli.engine.times import Frontier
from ddcli.expressions.types import Type
from ddcli.store.batch.compaction import NewBatch, append, writer_of
from ddcli.store.batch.file import BatchLayout
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.state.contents import batch_directory
from ddcli.store.state.directory import State
from ddcli.store.state.entries import ArrangementEntry
from ddcli.store.state.manifest import Manifest, read_newest
from tests.bench.files import size
from tests.bench.processes import measure, python
from tests.bench.table import Asked, Figure

if TYPE_CHECKING:
    from tests.bench.files import Session

ROWS = 6_000_000
KEYS = (1_000, 100_000)
LONGEST = (15e-3, 120e-3)
TURNS = 9
INT64 = Type("int64")
LAYOUT = BatchLayout(Layout({"key": INT64}), Layout({"a": INT64, "b": INT64}), 1)
PART = 1_000_000
BEGIN, END = Frontier([(0,)]), Frontier([(1,)])


def make(folder: Path, rows: int) -> None:
    """Write a state with one batch: each key once, its values random."""
    rng = np.random.default_rng(1)
    with State.open(folder, {}) as state, state.begin() as transaction:
        writer = writer_of(LAYOUT)
        for at in range(0, rows, PART):
            count = min(PART, rows - at)
            matrix = np.zeros((count, LAYOUT.width), np.int64)
            matrix[:, 0] = np.arange(at, at + count) * 7
            matrix[:, 1] = rng.integers(0, 1 << 20, count)
            matrix[:, 2] = rng.integers(0, 1 << 40, count)
            matrix[:, -1] = 1
            append(writer, matrix, LAYOUT, Pool(PUBLIC))
        entry = NewBatch(writer.finish(), rows, BEGIN, END, BEGIN).write(transaction, "lookups", 0)
        columns = {"key": "int64", "a": "int64", "b": "int64"}
        kept = ArrangementEntry("lookups", ((0,),), ((1,),), ("key",), columns, ((entry,),))
        transaction.commit(Manifest("lookups", ((1,),), arrangements={"lookups": kept}))


def found(folder: Path, rows: int) -> list[float]:
    """Return how long lookups of so many keys take, medians; the pages of the file are in the system's cache."""
    manifest = read_newest(folder)
    assert manifest is not None
    (entry,) = manifest.arrangements["lookups"].shards[0]
    rng, times = np.random.default_rng(2), []
    for count in KEYS:
        took = []
        for _ in range(TURNS):
            numbers = np.unique(rng.integers(0, rows, min(count, rows)))
            keys = (numbers * 7).reshape(-1, 1)
            begin = time.perf_counter()
            batch = StoredBatch(batch_directory(folder, "lookups", 0) / entry.name, entry, LAYOUT, Pool(PUBLIC))
            matrix = batch.for_keys(keys)
            took.append(time.perf_counter() - begin)
            if not np.array_equal(matrix[:, 0], keys[:, 0]):
                raise AssertionError(f"{len(matrix)} rows of {len(keys)} keys")
        times.append(statistics.median(took[1:]))
    return times


def in_batches(session: Session) -> list[Figure]:
    """Look keys up among 6 M rows, and among so many times more."""
    figures: list[Figure] = []
    for times in (1, 17):
        rows = ROWS * session.rows // 10_000_000 * times
        folder = session.place(f"batches-{times}")
        make(folder, rows)
        took = [
            json.loads(measure(python("-m", "tests.bench.batches", str(folder), str(rows))).stdout)
            for _ in range(min(session.runs, 3))
        ]
        for at, count in enumerate(KEYS):
            seconds = statistics.median(each[at] for each in took)
            most = LONGEST[at] if times == 1 else 1.5 * figures[at].seconds
            title = f"{size(count)} keys anywhere in a batch of {size(rows)} rows"
            runs = tuple(each[at] for each in took)
            figures.append(Figure(title, seconds, Asked(seconds=most), full=session.full, runs=runs))
    return figures


def main(folder: str, rows: str) -> None:
    """Print how long lookups take."""
    print(json.dumps(found(Path(folder), int(rows))))


if __name__ == "__main__":
    main(*sys.argv[1:])
