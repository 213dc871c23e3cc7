"""Rows divided by a hash of their key, in memory as long as they fit, else in scratch files.

Rows with the same key are in one bucket, and on all sides in the bucket of the same number, so that sides are compared bucket by bucket. Equal floats
(0.0 and -0.0, all NaN) have one hash. The reader of a bucket that is still too large divides it again, by another hash.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import weakref
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

COUNT = 64
"""The number of buckets: of 10 M rows, a hash table over one bucket's rows fits in a processor's cache."""
HELD = 1 << 28
"""The bytes of rows that `partition` holds in memory; more are written to files."""
SMALL = 32 << 20
"""The most bytes of a side whose rows are not divided."""
NUMBER = "\0bucket"


class Scratch:
    """A directory for rows that don't fit in `room` bytes. It is made when it is needed, and removed with this object."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._directory: Path | None = None
        self._files = 0

    def new_file(self) -> Path:
        """Return the path of a new file."""
        if self._directory is None:
            try:
                self._directory = Path(tempfile.mkdtemp(prefix="dd-rows-"))
            except OSError as error:
                raise EngineError(f"no scratch directory can be made: {error.strerror}", hint="set TMPDIR") from None
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        self._files += 1
        return self._directory / f"{self._files:06d}"


@dataclass
class Bucket:
    """Frames of the same columns: some in memory, the others in a file, at the places `written` (offset, length)."""

    held: list[pl.DataFrame] = field(default_factory=list)
    size: int = 0
    """The bytes of all of them in memory."""
    written: list[tuple[int, int]] = field(default_factory=list)
    path: Path | None = None

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield all frames."""
        if self.path is not None:
            with self.path.open("rb") as file:
                for start, length in self.written:
                    file.seek(start)
                    yield pl.read_ipc(io.BytesIO(file.read(length)))
        yield from self.held

    def clear(self) -> None:
        """Drop all frames."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        self.held, self.written, self.size, self.path = [], [], 0, None

    def write(self, scratch: Scratch) -> None:
        """Write the rows in memory to the file."""
        if not self.held:
            return
        self.path = self.path or scratch.new_file()
        data = io.BytesIO()
        pl.concat(self.held).write_ipc(data, compression="lz4")
        try:
            with self.path.open("ab") as file:
                start = file.tell()
                file.write(data.getvalue())
        except OSError as error:
            hint = "free space there, or set TMPDIR to a directory with more"
            raise EngineError(
                f"cannot write a scratch file: {error.strerror}", place=str(self.path), hint=hint
            ) from None
        self.written.append((start, len(data.getvalue())))
        self.held = []


class Buckets:
    """The rows of one side, in one bucket as long as they are few, then divided. `seed` chooses the hash; it is the same on both sides."""

    def __init__(self, by: Sequence[str], scratch: Scratch, seed: int) -> None:
        self.scratch = scratch
        self.buckets = [Bucket()]
        self._by, self._seed = list(by), seed
        self._held = 0

    @property
    def together(self) -> bool:
        """Return whether all rows are still in one bucket."""
        return len(self.buckets) == 1

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows, and write all to scratch files if memory is short."""
        if not self.together:
            self._divide(rows)
        else:
            self._put(self.buckets[0], rows)
            if self._held > min(SMALL, self.scratch.room // 8):
                self.divide()
        if self._held > self.scratch.room:
            for bucket in self.buckets:
                bucket.write(self.scratch)
            self._held = 0

    def divide(self) -> None:
        """Divide all rows into buckets, if they are still together."""
        if self.together:
            rows, self.buckets, self._held = self.buckets[0].held, [Bucket() for _ in range(COUNT)], 0
            for frame in rows:
                self._divide(frame)

    def _divide(self, rows: pl.DataFrame) -> None:
        number = (rows.select(self._by).hash_rows(self._seed) % COUNT).cast(pl.UInt8).alias(NUMBER)
        numbered = rows.with_columns(number).partition_by(NUMBER, as_dict=True, maintain_order=False)
        for (number,), part in numbered.items():
            self._put(self.buckets[number], part.drop(NUMBER))

    def _put(self, bucket: Bucket, rows: pl.DataFrame) -> None:
        size = int(rows.estimated_size())
        bucket.held.append(rows)
        bucket.size += size
        self._held += size


def partition(sides: Sequence[Iterable[pl.DataFrame]], by: Sequence[str]) -> Iterator[list[list[pl.DataFrame]]]:
    """Yield parts of several sides, each with the frames of each side. Rows that are equal in the columns `by` are in one part."""
    scratch = Scratch(HELD // len(sides))
    found = [Buckets(by, scratch, 1) for _ in sides]
    for buckets, frames in zip(found, sides, strict=True):
        for frame in frames:
            buckets.add(frame)
    if not all(buckets.together for buckets in found):
        for buckets in found:
            buckets.divide()
    for part in zip(*(buckets.buckets for buckets in found), strict=True):
        frames_of = [[*bucket.frames()] for bucket in part]
        for bucket in part:
            bucket.clear()
        yield frames_of
