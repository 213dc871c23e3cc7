"""The case of commits: batches of a few rows for one arrangement, and for as many as 22 queries have.

python -m tests.bench.commits FOLDER ARRANGEMENTS       # prints the seconds of a commit, its batches made, as JSON
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine.pool import Pool
from ddcli.engine.secret import PUBLIC
from ddcli.engine.times import Frontier
from ddcli.store.batch.layout import append, write_batch
from ddcli.store.state.directory import State
from ddcli.store.state.entries import ArrangementEntry
from ddcli.store.state.manifest import Manifest
from tests.bench.batches import LAYOUT
from tests.bench.processes import measure, python
from tests.bench.table import Asked, Figure

if TYPE_CHECKING:
    from ddcli.store.state.entries import FileEntry
    from tests.bench.files import Session

ARRANGEMENTS = 132
ROWS, TURNS = 10, 9
MORE = 40e-3
"""Seconds that a commit of so many arrangements may take more than one of one."""


def committed(folder: Path, arrangements: int) -> float:
    """Return how long a commit takes with a new batch for each arrangement; the median of some."""
    rows, taken = np.zeros((ROWS, LAYOUT.width), np.int64), []
    rows[:, 0], rows[:, -1] = np.arange(ROWS), 1
    kept: dict[str, tuple[FileEntry, ...]] = {f"a{at}": () for at in range(arrangements)}
    columns = {"key": "int64", "a": "int64", "b": "int64"}
    manifest = Manifest("commits", ((0,),))
    with State.open(folder, {}) as state:
        for turn in range(TURNS):
            lower, upper = Frontier([(turn,)]), Frontier([(turn + 1,)])
            rows[:, -2] = turn
            begin = time.perf_counter()
            with state.begin() as transaction:
                for name, before in kept.items():
                    writer = LAYOUT.writer()
                    append(writer, rows, LAYOUT, Pool(PUBLIC))
                    entry = write_batch(transaction, name, 0, writer.finish(), ROWS, lower, upper, Frontier([(0,)]))
                    kept[name] = (*before, entry)
                entries = {
                    name: ArrangementEntry(name, ((0,),), upper.elements, ("key",), columns, (files,))
                    for name, files in kept.items()
                }
                transaction.commit(replace(manifest, upper=upper.elements, arrangements=entries))
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def commits(session: Session) -> list[Figure]:
    """Commit a batch for one arrangement, and for as many as all queries of TPC-H have."""
    figures: list[Figure] = []
    for count in (1, ARRANGEMENTS):
        command = python("-m", "tests.bench.commits", session.place(f"commits-{count}"), str(count))
        runs = tuple(json.loads(measure(command).stdout) for _ in range(min(session.runs, 3)))
        asked = Asked(seconds=figures[0].seconds + MORE) if figures else Asked()
        title = f"commit of {count} batch{'es' if count > 1 else ''} of {ROWS} rows, with making them"
        figures.append(Figure(title, statistics.median(runs), asked, full=session.full, runs=runs))
    return figures


if __name__ == "__main__":
    print(json.dumps(committed(Path(sys.argv[1]), int(sys.argv[2]))))
