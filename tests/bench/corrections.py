"""The cases of files that come again: one of 1 000 files has 30 other rows, or is withdrawn, also where rows have keys; and the cost of the copies in a first run."""

from __future__ import annotations

import json
import shutil
import statistics
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tests.bench.data import SEED
from tests.bench.files import size
from tests.bench.processes import dd, measure
from tests.bench.table import Asked, Figure

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.files import Session
    from tests.bench.processes import Run

FILES = 1000
OTHERS = 30
"""Rows that the corrected file has instead of others."""
PIPELINE = """\
dd: 1
name: corrections
inputs:
  sales:
    path: days/
    format: {format}
    changed: {changed}
    columns: {{id: int64, region: int64, status: string, amount: int64}}
collections:
  totals: {{from: sales, apply: [{{filter: status = 'paid'}}, {{reduce: {{by: [region], n: count(*), s: sum(amount)}}}}]}}
outputs: {{totals: out/}}
"""


def part(rows: int, at: int) -> pl.DataFrame:
    """Return the rows of a file."""
    count, random = rows // FILES, np.random.default_rng([SEED, at])
    return pl.DataFrame(
        {
            "id": np.arange(at * count, (at + 1) * count),
            "region": random.integers(0, 50, count),
            "status": random.choice(["paid", "open", "sent"], count),
            "amount": random.integers(1, 10_000, count),
        }
    )


def corrections(session: Session) -> list[Figure]:
    """Load all files with copies and without, then bring a corrected file, then withdraw it: by the clock, each time from the same state."""
    folder = session.place("corrections")
    days, file = folder / "days", folder / "pipeline.yaml"
    days.mkdir(parents=True)
    for at in range(FILES):
        part(session.rows, at).write_csv(days / f"{at:04d}.csv")
    loads = {}
    for changed in ("refuse", "replace"):
        loads[changed] = _load(folder, changed, "append")
    title = f"{size(session.rows)} rows in {FILES} files of CSV"
    label = f"{title}: load with copies of the files"
    plain, copied = (loads[each] for each in ("refuse", "replace"))
    asked = Asked(seconds=1.2 * plain.wall)
    figures = [Figure(label, copied.wall, asked, peak=copied.peak, full=session.full, runs=(copied.wall,))]
    loaded = session.place("corrections-loaded")
    for name in (".dd", "out"):
        shutil.copytree(folder / name, loaded / name)
    place = days / f"{FILES // 2:04d}.csv"

    def correct() -> None:
        frame = part(session.rows, FILES // 2)
        other = np.array(frame["amount"])
        other[:OTHERS] += 1
        frame.with_columns(pl.Series("amount", other)).write_csv(place)

    ways = {
        "one of them is withdrawn": ((), dd("retract", file, place, "-o", "json")),
        f"one of them comes again with {OTHERS} other rows": ((correct,), dd("run", file, "-o", "json")),
    }
    for way, (before, command) in ways.items():
        for change in before:
            change()
        runs = []
        for _ in range(min(session.runs, 3)):
            for name in (".dd", "out"):
                shutil.rmtree(folder / name)
                shutil.copytree(loaded / name, folder / name)
            runs.append(measure(command))
            read = json.loads(runs[-1].stdout)["inputs"]["sales"]["rows"]
            assert read <= 4 * (session.rows // FILES), f"{way}: {read} rows were read"
        check(folder, way, withdrawn=None if before else place)
        walls = tuple(run.wall for run in runs)
        peak = max(run.peak for run in runs)
        figures.append(
            Figure(
                f"{title}: {way}",
                statistics.median(walls),
                Asked(seconds=0.5),
                peak=peak,
                full=session.full,
                runs=walls,
            )
        )
    part(session.rows, FILES // 2).write_csv(place)
    _load(folder, "replace", "upsert\n    key: [id]")
    correct()
    run = measure(dd("run", file))
    check(folder, "with keys", withdrawn=None)
    label = f"{title}: one of them comes again with {OTHERS} other rows, each with a key"
    figures.append(Figure(label, run.wall, Asked(seconds=0.5), peak=run.peak, full=session.full, runs=(run.wall,)))
    return figures


def _load(folder: Path, changed: str, format_: str) -> Run:
    """Make the state and the output anew."""
    (folder / "pipeline.yaml").write_text(PIPELINE.format(changed=changed, format=format_))
    for place in (".dd", "out"):
        shutil.rmtree(folder / place, ignore_errors=True)
    return measure(dd("run", folder / "pipeline.yaml"))


def check(folder: Path, way: str, withdrawn: Path | None) -> None:
    """Refuse figures of a wrong answer."""
    from ddcli import read_log

    ours = read_log(folder / "out", as_of="latest").select("region", "n", "s").sort("region")
    files = [path for path in sorted((folder / "days").iterdir()) if path != withdrawn]
    paid = pl.scan_csv(files).filter(pl.col("status") == "paid")
    totals = paid.group_by("region").agg(pl.len().cast(pl.Int64).alias("n"), pl.col("amount").sum().alias("s"))
    if not ours.equals(totals.sort("region").collect()):
        raise AssertionError(f"dd and polars disagree: {way}")
