"""Small files of a mirror that become one: all of their updates, each with the time at which it was taken in.

A run that takes in rows adds a file, and most of its bytes are its footer. So when there are many small ones, the newest become one file, together
with older ones that are not much larger: so there are few files, and an update is written again a few times in all.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.types import ARRIVAL, ARRIVAL_TIME
from ddcli.store.files.access import reading
from ddcli.store.mirrors.mirror import JOINED, LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILES = 64
"""Files that become one, at least."""
SMALL = 1 << 16
"""The bytes of a file that counts as small in any case."""
RATIO = 2
"""A file stays as it is if it has more than this many times the bytes of all newer ones."""


def due(sizes: Sequence[int]) -> int:
    """Return the number of the newest files that become one, 0 for none; `sizes` has the bytes of each, oldest first.

    >>> due([900_000] + [2_000] * 64), due([200_000] + [2_000] * 64), due([2_000] * 63)
    (64, 65, 0)
    """
    total = count = 0
    for size in reversed(sizes):
        if total + size > JOINED or size > RATIO * max(total, SMALL):
            break
        total, count = total + size, count + 1
    return count if count >= FILES else 0


def joint_updates(files: Sequence[tuple[Path, int | None]]) -> bytes:
    """Return a file with the updates of some files of a mirror, which runs of these times have taken in; None: the times are in the files.

    A column that the table had not yet is null there.
    """
    frames = []
    for path, at in files:
        with reading(path) as file:
            frame = pl.read_parquet(file)
        if at is not None and ARRIVAL not in frame.columns:
            frame = frame.with_columns(pl.lit(at, pl.Int64).cast(ARRIVAL_TIME.to_polars()).alias(ARRIVAL))
        frames.append(frame)
    data = io.BytesIO()
    pl.concat(frames, how="diagonal").write_parquet(data, compression="zstd", compression_level=LEVEL)
    return data.getvalue()
