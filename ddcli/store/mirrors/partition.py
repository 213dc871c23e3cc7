"""Rows of tables in parts that can be compared one by one, however many there are."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

HELD = 1 << 28
"""The bytes of rows that are held in memory; more are written to files."""
PARTS = 64
"""The number of parts of rows in files. Their memory is that of the largest part: rows of one key are never apart."""


def partition(sides: Sequence[Iterable[pl.DataFrame]], by: Sequence[str]) -> Iterator[list[list[pl.DataFrame]]]:
    """Yield parts of several sides, each with the frames of each side. Rows that are equal in the columns `by` are in one part."""
    held: list[list[pl.DataFrame]] = [[] for _ in sides]
    size = written = 0
    with ExitStack() as stack:
        folder: Path | None = None
        for side, frames in enumerate(sides):
            for frame in frames:
                held[side].append(frame)
                size += int(frame.estimated_size())
                if size > HELD:
                    folder = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dd-tables-")))
                    written = _put_away(folder, held, by, written)
                    size = 0
        if folder is None:
            yield held
            return
        written = _put_away(folder, held, by, written)
        for part in range(PARTS):
            found: list[list[pl.DataFrame]] = [[] for _ in sides]
            for path in sorted(folder.glob(f"{part}-*.arrow")):
                found[int(path.name.split("-")[1])].append(pl.read_ipc(path))
                path.unlink()
            yield found


def _put_away(folder: Path, held: list[list[pl.DataFrame]], by: Sequence[str], written: int) -> int:
    """Write the rows of each side to files, one for each part, and release them. Return the number of writes so far."""
    for side, frames in enumerate(held):
        if not frames:
            continue
        whole = pl.concat(frames)
        frames.clear()
        part = whole.select(by).hash_rows(1) % PARTS
        for (number,), rows in whole.with_columns(part.alias("\0part")).partition_by("\0part", as_dict=True).items():
            rows.drop("\0part").write_ipc(folder / f"{number}-{side}-{written:09d}.arrow", compression="lz4")
    return written + 1
