"""Contents in one Parquet file, which each commit replaces: a reader, or a glob, finds the file before or the one after.

A directory of files can't be replaced in one step for readers that glob it, so a change costs as much as the contents.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.errors import StateError, first_line
from ddcli.store.files.access import is_there, reading
from ddcli.store.files.gate import temporary
from ddcli.store.parquet.writer import CHUNK, LEVEL
from ddcli.store.tables.file_identity import size_and_time
from ddcli.store.targets.mark import CommitKey, strange

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ddcli.engine.columns import Lanes
    from ddcli.store.files.gate import Files
    from ddcli.store.targets.change import Change
    from ddcli.store.targets.mark import CommitRecord, TableFile

COMMIT = "dd"
"""The entry of the footer that has the key and the number of the commit."""


class ParquetTarget:
    """A Parquet file with the contents of an output."""

    def __init__(self, path: Path, key: CommitKey, files: Files) -> None:
        self._path, self._key, self._files = path, key, files

    def number(self) -> int | None:
        if not is_there(self._path):
            return None
        key, _, number = self._entry().rpartition(" ")
        return int(number) if key == str(self._key) else None

    def check(self, known: CommitRecord | None) -> None:
        if known is None and is_there(self._path) and self.number() is None:
            raise strange(str(self._path), "the file has rows that this pipeline has not written")

    def publish(
        self, number: int, change: Change, known: CommitRecord | None, announce: Callable[[Sequence[TableFile]], None]
    ) -> None:
        rows = change.updates()
        if known is not None:
            with reading(self._path) as file:
                frame = pl.read_parquet(file)
            before = change.encoded(frame, np.ones(frame.height, np.int64))
            rows = kernels.consolidate(kernels.concat([before, rows]))
        change.refuse_negative(rows)
        data = io.BytesIO()
        change.decoded(rows).write_parquet(
            data,
            compression="zstd",
            compression_level=LEVEL,
            row_group_size=CHUNK,
            metadata={COMMIT: f"{self._key} {number}"},
        )
        announce(())
        self._files.make_directory(self._path.parent)
        self._files.put(self._path, data.getvalue())

    def difference(self, change: Change) -> tuple[Lanes, int]:
        rows = change.updates()
        if not is_there(self._path):
            return rows, 0
        with reading(self._path) as file:
            frame = pl.read_parquet(file)
        there = change.encoded(frame, np.full(frame.height, -1, np.int64))
        return kernels.consolidate(kernels.concat([rows, there])), 0

    def left(self) -> dict[str, Any]:
        return size_and_time(self._path)

    def discard(self, number: int, pieces: Sequence[TableFile]) -> None:
        self._files.remove(temporary(self._path, 0))

    def _entry(self) -> str:
        try:
            with reading(self._path) as file:
                return pl.read_parquet_metadata(file).get(COMMIT, "")
        except (pl.exceptions.PolarsError, OSError) as error:
            problem = f"the file can't be read: {first_line(error)}"
            hint = "remove it: the next run writes it anew"
            raise StateError(problem, place=str(self._path), hint=hint) from None
