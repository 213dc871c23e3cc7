"""The cases of rows that are forgotten: a thousand keys, which all files have, and one key; beside reading all files and writing them again."""

from __future__ import annotations

import json
import shutil
import statistics
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tests.bench.data import SEED
from tests.bench.files import size
from tests.bench.processes import dd, measure, python
from tests.bench.table import Asked, Figure

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.files import Session

FILES = 100
KEYS = 1000
PIPELINE = """\
dd: 1
name: forgetting
inputs:
  sales:
    path: days/
    format: append
    columns: {id: int64, customer: int64, status: string, amount: int64}
collections:
  paid: {from: sales, apply: [{filter: status = 'paid'}]}
  totals: {from: sales, apply: [{reduce: {by: [customer], n: count(*), s: sum(amount), most: max(amount)}}]}
outputs: {paid: out/paid/, totals: out/totals/}
"""
COPY = """\
import sys, pathlib, polars as pl
for folder in sys.argv[1:]:
    for path in pathlib.Path(folder).rglob("*.parquet"):
        pl.read_parquet(path).write_parquet(path)
"""


def load(folder: Path, rows: int) -> list[int]:
    """Write the files and make the state and its outputs; return the customers."""
    days, count = folder / "days", rows // FILES
    days.mkdir(parents=True)
    customers = max(rows // 10, KEYS)
    for at in range(FILES):
        random = np.random.default_rng([SEED, at])
        frame = pl.DataFrame(
            {
                "id": np.arange(at * count, (at + 1) * count),
                "customer": random.integers(0, customers, count),
                "status": random.choice(["paid", "open", "sent"], count),
                "amount": random.integers(1, 10_000, count),
            }
        )
        frame.write_parquet(days / f"{at:03d}.parquet")
    (folder / "pipeline.yaml").write_text(PIPELINE, "utf-8")
    measure(dd("run", folder / "pipeline.yaml"))
    chosen = np.random.default_rng(SEED).choice(customers, KEYS, replace=False)
    return [int(each) for each in np.sort(chosen)]


def forgetting(session: Session) -> list[Figure]:
    """Forget the rows of some keys, and of one, each time from the same state, which has them all."""
    folder, loaded = session.place("forgetting"), session.place("forgetting-loaded")
    keys = load(folder, session.rows)
    shutil.copytree(folder, loaded, dirs_exist_ok=True)
    copied = measure(python("-c", COPY, str(loaded / "days"), str(loaded / ".dd"), str(loaded / "out")))
    shutil.rmtree(loaded / "days")
    for name in (".dd", "out"):
        shutil.rmtree(loaded / name)
        shutil.copytree(folder / name, loaded / name)
    title = f"{size(session.rows)} rows in {FILES} files"
    figures = [
        Figure(f"{title}: read all, with state and outputs, and write them again", copied.wall, runs=(copied.wall,))
    ]
    for some, asked in ((keys, copied.wall), (keys[:1], 2.0)):
        runs = []
        for _ in range(min(session.runs, 3)):
            for name in (".dd", "out"):
                shutil.rmtree(folder / name)
                shutil.copytree(loaded / name, folder / name)
            where = f"customer in ({', '.join(map(str, some))})"
            runs.append(measure(dd("forget", folder / "pipeline.yaml", "--where", where, "-o", "json")))
            check(folder, some, json.loads(runs[-1].stdout)["inputs"]["sales"]["rows"])
        walls = tuple(run.wall for run in runs)
        label = f"{title}: forget {len(some):,} of their keys" if len(some) > 1 else f"{title}: forget one key"
        peak = max(run.peak for run in runs)
        figures.append(
            Figure(label, statistics.median(walls), Asked(seconds=asked), peak=peak, full=session.full, runs=walls)
        )
    return figures


def check(folder: Path, keys: list[int], rows: int) -> None:
    """Refuse figures of a wrong answer: some rows stay, or others are gone."""
    gone = pl.col("customer").is_in(keys)
    given = pl.scan_parquet(folder / "days/*.parquet")
    wanted = given.filter(~gone)
    paid = wanted.filter(pl.col("status") == "paid").select(pl.len(), pl.sum("amount")).collect()
    totals = wanted.select(pl.col("customer").n_unique(), pl.sum("amount")).collect()
    logs = {name: pl.scan_parquet(folder / f"out/{name}/updates-*.parquet") for name in ("paid", "totals")}
    found = [
        logs["paid"].select(pl.sum("diff"), (pl.col("amount") * pl.col("diff")).sum()).collect(),
        logs["totals"].select(pl.sum("diff"), (pl.col("s") * pl.col("diff")).sum()).collect(),
    ]
    left = [log.filter(gone).select(pl.len()).collect().item() for log in logs.values()]
    stored = sum(
        pl.scan_parquet(path).filter(gone).select(pl.len()).collect().item()
        for path in (folder / ".dd/forgetting/arrangements").rglob("*.parquet")
    )
    if rows != given.filter(gone).select(pl.len()).collect().item() or any(left) or stored:
        raise AssertionError(f"{rows} rows were forgotten, {left} and {stored} are left")
    if [each.row(0) for each in found] != [paid.row(0), totals.row(0)]:
        raise AssertionError("dd and polars disagree")
