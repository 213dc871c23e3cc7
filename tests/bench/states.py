"""The cases of large states: bounded memory, ten times the state, two workers beside one, and what a state takes on disk."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING

from tests.bench import checksums, data
from tests.bench.files import COLUMNS, Program, median, side_by_side, size
from tests.bench.processes import dd, measure, python
from tests.bench.table import Asked, Figure
from tests.bench.workspace import SKIP_LEVEL, Workspace, pipeline_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.files import Session

MEMORY = 2 << 30
"""What the bounded case may have resident, at full size."""
LEAST_MEMORY = 256 << 20
MORE = 1.3
"""How many times the memory that a run was given it may have resident."""


def _crowd(session: Session, name: str, rows: int, *options: str) -> tuple[Workspace, Path]:
    """Return a workspace with so many people, and the log of those who move."""
    source = data.crowd(session.folder, rows)
    workspace = Workspace(session.place(name), SKIP_LEVEL, *options)
    for path in sorted(source.glob("base-*.parquet")):
        workspace.append(path)
    return workspace, source / "next.parquet"


def _check(workspace: Workspace, rows: int, *, moved: bool) -> None:
    """Refuse figures of a run that was wrong: compare with the sums of the managers' managers as they are computed by hand."""
    people = f"select p as employee, p // 2 as manager from range(1, {rows} + 1) people(p)"
    if moved:
        some = ", ".join(map(str, data.changed_people(rows).tolist()))
        people = (
            f"select p as employee, case when p in ({some}) then p // 3 else p // 2 end as manager "
            f"from range(1, {rows} + 1) people(p)"
        )
    wanted = checksums.of_query(
        f"with people as ({people}) select 1 as diff, a.employee, a.manager, b.manager as skip_manager "
        "from people a join people b on a.manager = b.employee",
        COLUMNS["skip_level"],
    )
    found = checksums.of_log(workspace.output, COLUMNS["skip_level"])
    if found != wanted:
        raise AssertionError(f"the log says {found}, it should be {wanted} (count, sums of columns, sum of hashes)")


def bounded(session: Session) -> list[Figure]:
    """Load five times the people in little memory, and move 1 000 of them; beside the load that has all memory, row by row."""
    memory = max(MEMORY * session.rows // 10_000_000, LEAST_MEMORY)
    rows = 5 * session.rows
    alone, _ = _crowd(session, "unbounded", session.rows)
    little, moves = _crowd(session, "bounded", rows, "--memory", str(memory))
    few = min(session.runs, 2)
    loads = side_by_side(
        {"all": Program(alone.command, alone.clear), "little": Program(little.command, little.clear)}, few
    )
    _check(little, rows, moved=False)
    little.append(moves)
    change = measure(little.command)
    _check(little, rows, moved=True)
    within = f"--memory {memory / (1 << 30):.3g}GiB"
    asked = Asked(seconds=2 * 5 * median(loads["all"]), peak=MORE * memory)
    return [
        Figure(
            f"skip-level, {size(rows)} rows, {within}",
            median(loads["little"]),
            asked,
            peak=max(run.peak for run in loads["little"]),
            full=session.full,
            runs=tuple(run.wall for run in loads["little"]),
        ),
        Figure(
            f"1 000 people moved among {size(rows)}, {within}",
            change.wall,
            Asked(seconds=3, peak=MORE * memory),
            peak=change.peak,
            full=session.full,
        ),
    ]


def tenfold(session: Session) -> list[Figure]:
    """Move 1 000 people anywhere in a state, and in one of ten times the size."""
    figures: list[Figure] = []
    for rows in (session.rows, 10 * session.rows):
        workspace, moves = _crowd(session, f"tenfold-{rows}", rows)
        workspace.load()
        workspace.append(moves)
        runs = side_by_side({"dd": Program(workspace.command, workspace.restore)}, session.runs)["dd"]
        _check(workspace, rows, moved=True)
        figures.append(
            Figure(
                f"1 000 people anywhere moved, state of {size(rows)} people",
                median(runs),
                Asked(seconds=2 * figures[0].seconds) if figures else Asked(),
                peak=max(run.peak for run in runs),
                full=session.full,
                runs=tuple(run.wall for run in runs),
            )
        )
    return figures


def workers(session: Session) -> list[Figure]:
    """Load people with everyone's move, engine only, with one worker and with two, in turns."""
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(min(session.runs, 3)):
        for count, seconds in found.items():
            run = measure(python("-m", "tests.bench.engine", "moves", str(session.rows), str(count)))
            seconds.append(json.loads(run.stdout)["moves"])
    one, two = (statistics.median(seconds) for seconds in found.values())
    title = f"engine: skip-level, {size(session.rows)} people and {size(session.rows)} moves"
    return [
        Figure(f"{title}, 1 worker", one, full=session.full, runs=tuple(found[1])),
        Figure(f"{title}, 2 workers", two, Asked(seconds=one / 1.6), full=session.full, runs=tuple(found[2])),
    ]


def disk(session: Session) -> list[Figure]:
    """Keep random values of random keys, and tell what a row takes on disk after compaction."""
    source = data.numbers(session.folder, session.rows)
    workspace = Workspace(session.place("disk"), pipeline_of("least"))
    workspace.append(source / "base.parquet")
    measure(workspace.command)
    measure(dd("state", "compact", workspace.folder / "pipeline.yaml"))
    said = json.loads(measure(dd("state", "ls", workspace.folder / "pipeline.yaml", "-o", "json")).stdout)
    largest = max(said["arrangements"], key=lambda entry: entry["rows"])
    title = f"state on disk, {size(session.rows)} pairs of a key and 62 random bits"
    return [Figure(title, largest["bytes"] / largest["rows"], Asked(seconds=12), full=session.full, unit="B/row")]
