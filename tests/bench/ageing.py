"""What a run costs as its pipeline grows old: `python -m tests.bench.ageing --runs 10000`, about an hour; a line each at run 10, 1 000 and 10 000.

Each run takes in one new file of ten rows and changes ten of fifty groups. Measured are processes: the median of seven, user and
system time, then the bytes that a run writes and the files that there are.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ddcli.driver.run import run
from ddcli.store.files.gate import Files
from tests.harness import ROOT, write_log

MARKS = (10, 100, 1_000, 10_000)
TIMED = 7
PIPELINE = """\
dd: 1
name: a
inputs: {rows: in/}
collections: {c: {from: rows, apply: [{reduce: {by: [k], n: count(*), v: sum(v)}}]}}
outputs: {c: out/c/}
"""


def supply(folder: Path, time: int) -> None:
    rows = [((time * 7 + at) % 50, at, time, 1) for at in range(10)]
    write_log(folder / f"in/{time:06}.parquet", rows, ["k", "v", "time", "diff"])


def seconds(folder: Path) -> float:
    """Return the processor's time of a run in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "ddcli", "run", str(folder / "a.yaml"), "-q"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def written(folder: Path) -> int:
    """Return how many bytes a run writes."""
    total, meant = [0], Files.write

    def write(files: Files, path: Path, data: bytes) -> object:
        total[0] += memoryview(data).nbytes
        return meant(files, path, data)

    Files.write = write  # type: ignore[method-assign,assignment]
    try:
        run(folder / "a.yaml")
    finally:
        Files.write = meant  # type: ignore[method-assign]
    return total[0]


def measure(folder: Path, time: int) -> tuple[float, int]:
    """Return what a run costs from here on; the folder stays as it is."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        copy = Path(shutil.copytree(folder, Path(place) / "copy"))
        taken = []
        for at in range(1, TIMED + 2):  # the first one isn't counted
            supply(copy, time + at)
            taken.append(seconds(copy))
        supply(copy, time + TIMED + 2)
        return statistics.median(taken[1:]), written(copy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    options = parser.parse_args()
    first = None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "old"
        folder.mkdir()
        (folder / "a.yaml").write_text(PIPELINE)
        for time in range(1, options.runs + 1):
            supply(folder, time)
            run(folder / "a.yaml")
            if time in MARKS:
                spent, size = measure(folder, time)
                first = first or spent
                state = sum(path.is_file() for path in (folder / ".dd").rglob("*"))
                logs = len([*(folder / "out/c").glob("*.parquet")])
                print(
                    f"run {time:>6,}: {1000 * spent:.0f} ms, {spent / first:.2f} times the first; {size:,} bytes written; "
                    f"{logs} files of the log, {state} of the state",
                    flush=True,
                )


if __name__ == "__main__":
    main()
