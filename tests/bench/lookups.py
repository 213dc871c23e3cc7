"""The cases of `dd query`: a key looked up in a large state, by a process of its own and in one that has looked up others.

python -m tests.bench.lookups PIPELINE PEOPLE       # prints how long each lookup took, as JSON
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import data
from tests.bench.files import Program, figure, side_by_side, size
from tests.bench.processes import dd, measure, python
from tests.bench.table import Asked, Figure
from tests.bench.workspace import SKIP_LEVEL, Workspace

if TYPE_CHECKING:
    from tests.bench.files import Session

LOOKUPS = 500
COLUMNS = ("employee", "manager", "skip_manager")


def lookups(session: Session) -> list[Figure]:
    """Load the skip-level pipeline, then ask its output for people: of a join, which is kept as its two sides."""
    workspace = Workspace(session.place("lookups"), SKIP_LEVEL)
    workspace.append(data.people(session.folder, session.rows) / "base.parquet")
    workspace.load()
    pipeline, person = workspace.folder / "pipeline.yaml", session.rows // 3
    asking = Program(dd("query", pipeline, "skip_level", f"employee={person}", "-o", "json"))
    alone = side_by_side({"dd": asking}, session.runs)
    (found,) = json.loads(alone["dd"][0].stdout)
    check(found, person)
    warm = [
        json.loads(measure(python("-m", "tests.bench.lookups", str(pipeline), str(session.rows))).stdout)
        for _ in range(session.runs)
    ]
    title = f"dd query, {size(session.rows)} people, skip-level of one"
    return [
        figure(f"{title}, whole process", alone, Asked(), {}, full=session.full),
        *(
            Figure(
                f"{title}, {what}",
                statistics.median(times[at] for times in warm),
                runs=tuple(times[at] for times in warm),
            )
            for at, what in enumerate(("in the library, p50", "the same, p99"))
        ),
    ]


def check(found: dict[str, int], person: int) -> None:
    """Refuse an answer that is wrong: everyone's manager has half their number."""
    expected = dict(zip(COLUMNS, (person, person // 2, person // 4), strict=True)) | {"diff": 1}
    if found != expected:
        raise AssertionError(f"dd query found {found}, not {expected}")


def main(pipeline: str, people: str) -> None:
    """Look people up, one after the other."""
    from ddcli.query import Lookup

    lookup, took, rng = Lookup.open(Path(pipeline), "skip_level"), [], random.Random(1)
    for _ in range(LOOKUPS):
        person = rng.randrange(4, int(people) + 1)
        start = time.perf_counter()
        rows = lookup.rows({"employee": person})
        took.append(time.perf_counter() - start)
        check(rows.row(0, named=True), person)
    took = sorted(took[LOOKUPS // 10 :])  # the first ones learn where in the files keys are
    print(json.dumps([statistics.median(took), took[len(took) * 99 // 100]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
