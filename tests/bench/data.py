"""Make the inputs: change logs in Parquet, made once for a number of rows and kept in `.bench/` for the next time.

`base` holds updates at time 0, `changes` or `next` those that come later; each log has the columns of its records, `time` and
`diff`, all int64. `now` is the same table as it stands after the changes, without time and diff: what a program that
keeps nothing would like to be given.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHANGED = 1_000
SEED = 2013
KEYS = 10
"""Rows a key has on average."""
WIDE = 2**62
"""Values in files are drawn below it: they use their whole lane."""
CROWD_PART = 5_000_000
"""People in a file."""
NARROW = 2**31
"""Values in memory are drawn below it: the reference figures are for pairs of 32-bit integers."""


def changed_people(rows: int) -> np.ndarray:
    """Return who gets another manager when `CHANGED` people do, in order."""
    return np.sort(np.random.default_rng(SEED).choice(rows, min(CHANGED, rows // 2), replace=False) + 1)


def people(folder: Path, rows: int) -> Path:
    """Make `base` with person p under manager p // 2, p = 1..rows; `changes`, where at time p person p moves to p // 3;
    and `next` and `now`, where some people do so at time 1.
    """
    everyone = np.arange(1, rows + 1)
    some = changed_people(rows)

    def moves(who: np.ndarray, time: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "manager": np.concatenate([who // 2, who // 3]),
            "employee": np.concatenate([who, who]),
            "time": np.concatenate([time, time]),
            "diff": np.repeat([-1, 1], len(who)),
        }

    def now() -> dict[str, np.ndarray]:
        manager = everyone // 2
        manager[some - 1] = some // 3
        return {"manager": manager, "employee": everyone}

    return _make(
        folder / f"people-{rows}",
        {
            "base": lambda: _log({"manager": everyone // 2, "employee": everyone}),
            "changes": lambda: moves(everyone, everyone),
            "next": lambda: moves(some, np.ones_like(some)),
            "now": now,
        },
    )


def crowd(folder: Path, rows: int) -> Path:
    """Make `base-0`, `base-1`, ... with the same people as `people`, so many that they are made a part at a time, and `next`."""
    some = np.random.default_rng(SEED).permutation(changed_people(rows))
    parts = {
        f"base-{at:02d}": partial(_crowd_part, first, min(first + CROWD_PART, rows + 1))
        for at, first in enumerate(range(1, rows + 1, CROWD_PART))
    }
    moves = {
        "manager": np.concatenate([some // 2, some // 3]),
        "employee": np.concatenate([some, some]),
        "time": np.ones(2 * len(some), np.int64),
        "diff": np.repeat([-1, 1], len(some)),
    }
    return _make(folder / f"crowd-{rows}", {**parts, "next": lambda: moves})


def _crowd_part(first: int, end: int) -> dict[str, np.ndarray]:
    some = np.arange(first, end)
    return _log({"manager": some // 2, "employee": some})


def numbers(folder: Path, rows: int) -> Path:
    """Make `base`, random values of random keys; and `next` and `now`, where some rows get another value at time 1."""
    base = random_rows(rows, WIDE)
    some = changed_people(rows) - 1
    fresh = np.random.default_rng(SEED + 1).integers(0, WIDE, len(some))

    def next_updates() -> dict[str, np.ndarray]:
        return {
            "key": np.tile(base[some, 0], 2),
            "value": np.concatenate([base[some, 1], fresh]),
            "time": np.ones(2 * len(some), np.int64),
            "diff": np.repeat([-1, 1], len(some)),
        }

    def now() -> dict[str, np.ndarray]:
        value = base[:, 1].copy()
        value[some] = fresh
        return {"key": base[:, 0], "value": value}

    return _make(
        folder / f"numbers-{rows}",
        {"base": lambda: _log({"key": base[:, 0], "value": base[:, 1]}), "next": next_updates, "now": now},
    )


def orders(folder: Path, rows: int) -> Path:
    """Make `before`, a table of six columns of four types, and `after`, in another order: of 1 000 rows one has another amount,
    one is gone, and one is new.
    """
    import polars as pl

    random = np.random.default_rng(SEED)
    customer = random.integers(0, max(rows // KEYS, 1), rows).astype(np.int32)
    placed = random.integers(1_600_000_000_000_000, 1_700_000_000_000_000, rows)
    before = pl.DataFrame(
        {
            "id": np.arange(rows),
            "customer": customer,
            "name": pl.Series(customer).cast(pl.String),
            "amount": random.random(rows) * 1000,
            "price": random.integers(0, 100_000, rows) / 100,
            "placed": pl.Series(placed).cast(pl.Datetime("us")),
        }
    ).with_columns(pl.format("customer number {}", "name").alias("name"))
    kind = pl.Series(random.integers(0, 1000, rows))
    amount = pl.when(kind == 0).then(pl.col("amount") + 1).otherwise(pl.col("amount"))
    after = pl.concat(
        [
            before.with_columns(amount).filter(kind != 1),
            before.head(rows // 1000).with_columns(pl.col("id") + rows),
        ]
    ).sample(fraction=1, shuffle=True, seed=SEED)
    return _make(folder / f"orders-{rows}", {"before": before.to_dict, "after": after.to_dict})


def random_rows(rows: int, below: int) -> np.ndarray:
    """Return rows of a random key, of which there are a tenth as many, and a random value."""
    random = np.random.default_rng(SEED)
    return np.stack([random.integers(0, max(rows // KEYS, 1), rows), random.integers(0, below, rows)], axis=1)


def _log(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    length = len(next(iter(columns.values())))
    return {**columns, "time": np.zeros(length, np.int64), "diff": np.ones(length, np.int64)}


def _make(folder: Path, files: dict[str, Callable[[], dict[str, Any]]]) -> Path:
    import polars as pl

    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in files.items():
        path = folder / f"{name}.parquet"
        if not path.exists():
            half = path.with_suffix(".half")
            pl.DataFrame(columns()).write_parquet(half)
            half.rename(path)
    return folder
