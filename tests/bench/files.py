"""The cases of whole processes: `dd run` from Parquet to committed state and output log, beside peers on the same files."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import checksums, data
from tests.bench.processes import ROOT, dd, measure, python
from tests.bench.table import Asked, Figure, beside_rust
from tests.bench.workspace import SKIP_LEVEL, Workspace, pipeline_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.bench.processes import Run

FULL = 10_000_000
PEERS = {name: ROOT / "tests" / "bench" / "peers" / f"{name}_files.py" for name in ("polars", "duckdb")}
IMPORT = python("-c", "import polars")
"""What a process that uses polars takes before it does anything."""
COLUMNS = {
    "skip_level": ("employee", "manager", "skip_manager"),
    "least_and_count": ("key", "lo", "n"),
    "least": ("key", "lo"),
    "count": ("key", "n"),
}
TITLES = {
    "skip_level": "skip-level",
    "least_and_count": "min and count per key",
    "least": "min per key",
    "count": "count per key",
}


@dataclass(frozen=True)
class Session:
    """What all cases of a call share: the number of rows and of runs, and a folder that is kept from call to call."""

    rows: int
    runs: int
    folder: Path

    @property
    def full(self) -> bool:
        """Whether figures can be held against what was asked for."""
        return self.rows == FULL

    def place(self, name: str) -> Path:
        """Return an empty path for what a case writes."""
        path = self.folder / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        return path


@dataclass(frozen=True)
class Program:
    """A command, and what has to be done before each run of it, which is not measured."""

    command: list[str]
    prepare: Callable[[], None] = lambda: None


def side_by_side(programs: dict[str, Program], runs: int) -> dict[str, list[Run]]:
    """Measure each program `runs` times, in turns, after one run of each that warms what can be warm."""
    found: dict[str, list[Run]] = {name: [] for name in programs}
    for turn in range(runs + 1 if runs > 1 else 1):
        for name, program in programs.items():
            program.prepare()
            run = measure(program.command)
            if turn or runs == 1:
                found[name].append(run)
    return found


def median(runs: list[Run]) -> float:
    """Return the median of wall times."""
    return statistics.median(run.wall for run in runs)


def figure(case: str, measured: dict[str, list[Run]], asked: Asked, peers: dict[str, str], *, full: bool) -> Figure:
    """Return a row from runs by program; `peers` says which program is which peer's."""
    ours = measured["dd"]
    return Figure(
        case,
        median(ours),
        asked,
        {peer: median(measured[name]) for peer, name in peers.items()},
        peak=max(run.peak for run in ours),
        full=full,
        runs=tuple(run.wall for run in ours),
    )


def same(name: str, ours: checksums.Checksum, other: checksums.Checksum) -> None:
    """Refuse figures of programs that do not agree."""
    if ours != other:
        raise AssertionError(f"dd and {name} disagree: {ours} and {other} (count, sums of columns, sum of hashes)")


def size(rows: int) -> str:
    """Return a number of rows for people.

    >>> size(10_000_000)
    '10 M'
    """
    for unit, one in (("M", 1_000_000), ("k", 1000)):
        if rows >= one and rows % one == 0:
            return f"{rows // one} {unit}"
    return str(rows)


def load(session: Session, task: str) -> list[Figure]:
    """Load a table from nothing; the peers do the same work once."""
    source = (data.people if task == "skip_level" else data.numbers)(session.folder, session.rows)
    base = source / "base.parquet"
    workspace = Workspace(session.place(f"load-{task}"), pipeline_of(task))
    workspace.append(base)
    programs = {"dd": Program(workspace.command, workspace.clear)}
    for peer, program in PEERS.items():
        programs[peer] = Program(python(program, task, session.place(f"{task}-{peer}.parquet"), base))
    measured = side_by_side(programs, session.runs)
    ours = checksums.of_log(workspace.output, COLUMNS[task])
    for peer in PEERS:
        same(peer, ours, checksums.of_table(session.folder / "work" / f"{task}-{peer}.parquet", COLUMNS[task]))
    title = f"{TITLES[task]}, {size(session.rows)} rows"
    return [figure(title, measured, Asked(times=2), {peer: peer for peer in PEERS}, full=session.full)]


def moves(session: Session) -> list[Figure]:
    """Load the people together with everyone's move, each at a time of its own: three updates a person in one run."""
    source = data.people(session.folder, session.rows)
    workspace = Workspace(session.place("moves"), SKIP_LEVEL)
    for name in ("base", "changes"):
        workspace.append(source / f"{name}.parquet")
    runs = side_by_side({"dd": Program(workspace.command, workspace.clear)}, min(session.runs, 3))
    for time in (session.rows, session.rows // 2, 0):
        people = (
            f"select p as employee, case when p <= {time} then p // 3 else p // 2 end as manager "
            f"from range(1, {session.rows} + 1) people(p)"
        )
        expected = checksums.of_query(
            f"with people as ({people}) select 1 as diff, a.employee, a.manager, b.manager as skip_manager "
            "from people a join people b on a.manager = b.employee",
            COLUMNS["skip_level"],
        )
        same(f"the tables at time {time}", checksums.of_log(workspace.output, COLUMNS["skip_level"], time), expected)
    title = f"skip-level, {size(session.rows)} people and {size(session.rows)} moves at as many times"
    return [figure(title, runs, Asked(seconds=45, peak=beside_rust(1.6e9)), {}, full=session.full)]


def update(session: Session, task: str) -> list[Figure]:
    """Take in 1 000 changed rows on a loaded state; the peers start from files.

    They do so twice: from the same logs, whose updates they have to sum first, and from a table as it stands after
    the changes, which someone else has made for them.
    """
    source = (data.people if task == "skip_level" else data.numbers)(session.folder, session.rows)
    logs = [source / "base.parquet", source / "next.parquet"]
    workspace = Workspace(session.place(f"update-{task}"), pipeline_of(task))
    workspace.append(logs[0])
    workspace.load()
    workspace.append(logs[1])
    programs = {"dd": Program(workspace.command, workspace.restore), "import": Program(IMPORT)}
    inputs = {"log": f"log:{','.join(map(str, logs))}", "now": str(source / "now.parquet")}
    outputs = {}
    for peer, program in PEERS.items():
        for given, path in inputs.items():
            name = f"{peer}-{given}"
            outputs[name] = session.place(f"update-{task}-{name}.parquet")
            programs[name] = Program(python(program, task, outputs[name], path))
    measured = side_by_side(programs, session.runs)
    ours = checksums.of_log(workspace.output, COLUMNS[task])
    for name, path in outputs.items():
        same(name, ours, checksums.of_table(path, COLUMNS[task]))
    asked = Asked(seconds=2.2 * median(measured["import"]), fastest=True)
    changed = size(len(data.changed_people(session.rows)))
    return [
        figure(
            f"{changed} changed rows, {TITLES[task]}; peers from {what}",
            measured,
            asked,
            {peer: f"{peer}-{given}" for peer in PEERS},
            full=session.full,
        )
        for given, what in (("log", "the logs"), ("now", "the table of now"))
    ]


def nothing(session: Session) -> list[Figure]:
    """Run when there is nothing new, and ask for help."""
    source = data.people(session.folder, session.rows)
    workspace = Workspace(session.place("nothing"), SKIP_LEVEL)
    workspace.append(source / "base.parquet")
    workspace.load()
    found = side_by_side({"dd": Program(workspace.command), "import": Program(IMPORT)}, session.runs)
    imported = median(found["import"])
    if "nothing new" not in found["dd"][0].stderr:
        raise AssertionError(f"there was something new: {found['dd'][0].stderr}")
    helped = side_by_side({"dd": Program(dd("--help"))}, session.runs)
    return [
        figure("nothing new", found, Asked(seconds=0.7 * imported), {}, full=session.full),
        Figure("python -c 'import polars'", imported, full=session.full),
        figure("dd --help", helped, Asked(), {}, full=session.full),
    ]


def compile_kernels(session: Session) -> list[Figure]:
    """Run over a handful of rows without any compiled kernel, and with all."""
    source = data.people(session.folder, 2_000)
    workspace = Workspace(session.place("compile"), SKIP_LEVEL)
    workspace.append(source / "base.parquet")
    cold, warm = [], []
    for _ in range(min(session.runs, 3)):
        with tempfile.TemporaryDirectory(dir=workspace.folder) as cache:
            environment = {**os.environ, "DDCLI_CACHE_DIR": cache}
            for found, compiles in ((cold, True), (warm, False)):
                workspace.clear()
                run = measure(workspace.command, environment if compiles else None)
                if ("compiling" in run.stderr) != compiles:
                    raise AssertionError(f"kernels were compiled at the wrong time: {run.stderr}")
                found.append(run)
    return [
        figure("2 000 rows, kernels not yet compiled", {"dd": cold}, Asked(seconds=12), {}, full=True),
        figure("2 000 rows, all kernels cached", {"dd": warm}, Asked(), {}, full=True),
    ]
