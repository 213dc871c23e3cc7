"""The case of commits: batches of a few rows for one arrangement, and for as many as 22 queries have.

python -m tests.bench.commits FOLDER ARRANGEMENTS       # prints the seconds of a commit, its batches made, as JSON
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddcli.circuit.traces import StateTraces
from ddcli.cli.startup import YOUNG
from ddcli.engine.lanes import Layout
from ddcli.engine.pool import PUBLIC, Pool
from ddcli.engine.times import Frontier
from ddcli.job.sizes import Sizes
from ddcli.store.state.directory import State
from ddcli.store.state.manifest import Manifest
from tests.bench.batches import INT64, LAYOUT
from tests.bench.processes import measure, python
from tests.bench.table import Asked, Figure

if TYPE_CHECKING:
    from tests.bench.files import Session

ARRANGEMENTS = 132
ROWS, TURNS = 10, 9
MORE = 40e-3
"""Seconds that a commit of so many arrangements may take more than one of one."""


def committed(folder: Path, arrangements: int) -> float:
    """Return how long a commit takes with new rows of each arrangement, taken in and written as by a run; the median of some."""
    key, value, taken = LAYOUT.key, Layout({"a": INT64, "b": INT64}), []
    with State.open(folder, {}) as state:
        for turn in range(TURNS):
            rows = np.zeros((ROWS, LAYOUT.width), np.int64)
            rows[:, 0], rows[:, -2], rows[:, -1] = np.arange(ROWS), turn, 1
            lower, upper = Frontier([(turn,)]), Frontier([(turn + 1,)])
            begin = time.perf_counter()
            kept = StateTraces(folder, state.manifest, [Pool(PUBLIC)], lower, Sizes(1, 1, 1))
            traces = [kept.trace(f"a{at}", key, value, 1, 0) for at in range(arrangements)]
            with state.begin(batches=kept.files) as transaction:
                for trace in traces:
                    trace.insert(rows.copy(), upper)
                    kept.write(trace, transaction, upper, frozenset())
                manifest = state.manifest or Manifest("commits", ((0,),))
                transaction.commit(replace(manifest, upper=upper.elements, arrangements=kept.entries(upper)))
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
    gc.set_threshold(YOUNG)  # as every command does
    print(json.dumps(committed(Path(sys.argv[1]), int(sys.argv[2]))))
