"""The case of `dd run --watch`: from a whole file in its place to the commit of what it changes, many times over."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tests.bench import checksums, data
from tests.bench.files import COLUMNS, size
from tests.bench.processes import ROOT, UNUSUAL
from tests.bench.table import Asked, Figure
from tests.bench.workspace import SKIP_LEVEL, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.files import Session

ROUNDS, WARM = 200, 5
PATIENCE = 60.0
LOOK = 0.0002
"""Seconds between two looks for a commit."""


@contextmanager
def watching(workspace: Workspace) -> Iterator[Path]:
    """Run `dd run --watch` over a pipeline that has a state; yield the folder that each commit leaves a file in."""
    log = (workspace.folder / "watch.log").open("w")
    environment = {name: value for name, value in os.environ.items() if name not in UNUSUAL}
    command = [*workspace.command, "--watch"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log, stdout=subprocess.DEVNULL)
    try:
        (place,) = (workspace.folder / ".dd").glob("*/manifest")
        yield place
        if process.poll() is not None:
            raise AssertionError(
                f"the watch ended with {process.returncode}: {(workspace.folder / 'watch.log').read_text()}"
            )
    finally:
        process.terminate()
        process.wait()
        log.close()


def commit_after(place: Path, file: Path, target: Path) -> float:
    """Move a file to where it is waited for; return the seconds until there is another commit."""
    before = {each.name for each in place.iterdir()}
    file.rename(target)
    begin = time.perf_counter()
    while not any(each.suffix == ".json" and each.name not in before for each in place.iterdir()):
        if time.perf_counter() - begin > PATIENCE:
            raise AssertionError(f"no commit within {PATIENCE} s of {target.name}")
        time.sleep(LOOK)
    return time.perf_counter() - begin


def flushed(folder: Path, files: list[bytes]) -> float:
    """Return the seconds that it takes to write files, and to flush each and their folder."""
    folder.mkdir(exist_ok=True)
    begin = time.perf_counter()
    for at, content in enumerate(files):
        with (folder / str(at)).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    return time.perf_counter() - begin


def _moves(people: np.ndarray, rounds: int, folder: Path) -> list[Path]:
    """Write a file for each round, in which these people go to another manager, and in the next one back."""
    found = []
    for at in range(1, rounds + 1):
        before, after = (people // 2, people // 3) if at % 2 else (people // 3, people // 2)
        columns = {
            "manager": np.concatenate([before, after]),
            "employee": np.tile(people, 2),
            "time": np.full(2 * len(people), at),
            "diff": np.repeat([-1, 1], len(people)),
        }
        found.append(folder / f"{at:06d}.parquet")
        pl.DataFrame(columns).write_parquet(found[-1])
    return found


def _written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def rounds(session: Session) -> list[Figure]:
    """Let 200 files of 1 000 moves come one after the other; beside what writing and flushing the files of a round takes."""
    source = data.people(session.folder, session.rows)
    workspace = Workspace(session.place("watch"), SKIP_LEVEL)
    workspace.append(source / "base.parquet")
    workspace.load()
    people = data.changed_people(session.rows)
    count = ROUNDS if session.full else 2 * WARM
    waiting = workspace.folder / "waiting"
    waiting.mkdir()
    files = _moves(people, WARM + count, waiting)
    taken = []
    with watching(workspace) as place:
        for at, file in enumerate(files):
            before = _written(workspace.folder / ".dd") | _written(workspace.output) if at == WARM else {}
            seconds = commit_after(place, file, workspace.input / file.name)
            time.sleep(0.05)  # the outputs get their names after the commit
            if at == WARM:
                after = _written(workspace.folder / ".dd") | _written(workspace.output)
                contents = [path.read_bytes() for path, stamp in after.items() if before.get(path) != stamp]
            if at >= WARM:
                taken.append(seconds)
    _check(workspace, people, session.rows, moved=len(files) % 2 == 1)
    title = f"--watch, {size(len(people))} moves among {size(session.rows)} people, from the file to the commit"
    alone = statistics.median(flushed(workspace.folder / "flushed", contents) for _ in range(9))
    percentile = sorted(taken)[-(-99 * len(taken) // 100) - 1]
    runs = tuple(taken)
    return [
        Figure(f"{title}, p50", statistics.median(taken), Asked(seconds=30e-3), full=session.full, runs=runs),
        Figure(f"{title}, p99", percentile, Asked(seconds=60e-3), full=session.full),
        Figure(f"{title}: writing and flushing its {len(contents)} files alone", alone, full=session.full),
    ]


def _check(workspace: Workspace, people: np.ndarray, rows: int, *, moved: bool) -> None:
    """Refuse figures of a watch whose output is wrong."""
    manager = np.arange(rows + 1) // 2
    if moved:
        manager[people] = people // 3
    everyone = np.arange(1, rows + 1)
    managed = everyone[manager[everyone] > 0]
    wanted = workspace.folder / "wanted.parquet"
    pl.DataFrame(
        {"employee": managed, "manager": manager[managed], "skip_manager": manager[manager[managed]]}
    ).write_parquet(wanted)
    found = checksums.of_log(workspace.output, COLUMNS["skip_level"])
    meant = checksums.of_table(wanted, COLUMNS["skip_level"])
    if found != meant:
        raise AssertionError(f"the log says {found}, it should be {meant}")
