"""The fingerprints of outputs and arrangements: keyed multiset hashes of their records. Every commit brings an output's up to date by the updates that it adds.

So two numbers answer whether a log adds up to what was committed, and whether a copy of a state and its outputs has the same contents. A record of an output is hashed by the names and lanes of its
columns without nulls: the order of columns, and columns that are null in all records, don't matter. Times don't either: a log whose past is summed up keeps its fingerprint. A row of an
arrangement is hashed by its lanes: the fingerprint of what is stored is compared with the fingerprint of an arrangement built anew.

The key is the state's secret. Without it nobody can choose other records with the same fingerprint; under another secret the log is hashed anew.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from functools import reduce
from operator import and_, ge, or_
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool
from ddcli.errors import StateError
from ddcli.expressions.types import FLOATS, INTEGERS, parse_schema
from ddcli.store.batch.checked_files import check_bytes
from ddcli.store.batch.stored_batch import stored_batches
from ddcli.store.files.access import fs, reading
from ddcli.store.log.log_files import DIFF, not_after, physically, scan_entries
from ddcli.store.log.writer import BITS, hashed_columns, number_in

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema, Type
    from ddcli.store.state.entries import FileEntry, OutputEntry
    from ddcli.store.state.manifest import Manifest

COUNT = "\0count"
"""The column with the multiplicity by the inputs less the multiplicity in the log."""
ROWS = 1 << 18
"""Rows of a log that are read together."""


def continues(before: Schema, now: Schema) -> bool:
    """Return whether the records of a log keep their hashes when its columns change from `before` to `now`."""
    return all(
        name in now and (kind == now[name] or _alike(kind.required(), now[name].required()))
        for name, kind in before.items()
    )


def _alike(before: Type, now: Type) -> bool:
    signed = {*INTEGERS} - {"uint64"}
    return before == now or {before.kind, now.kind} <= signed or {before.kind, now.kind} <= {*FLOATS}


class LogNumber:
    """The number of an output's log, of its records and their diffs as they are added."""

    def __init__(self, secret: bytes, schema: Schema) -> None:
        self._layout, self._pool = Layout(schema), Pool(secret)
        self._columns, self._total = hashed_columns(secret, self._layout), 0

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows of the log."""
        matrix = np.empty((frame.height, self._layout.width + 1), np.int64)
        encode(frame.select(self._layout.names), self._layout, self._pool, matrix)
        matrix[:, -1] = frame[DIFF].fill_null(0).to_numpy()  # no commit writes a null: somebody changed the file
        self._total += kernels.multiset_hash(matrix, self._columns)
        self._pool.forget()

    @property
    def value(self) -> int:
        return self._total % (1 << BITS)


def log_number(secret: bytes, directory: Path, entry: OutputEntry) -> int:
    """Return the number of an output's log as its files are. Reads them in parts."""
    schema = parse_schema(entry.schema)
    number = LogNumber(secret, schema)
    for file in entry.files:
        for frame in log_parts(directory, file, schema, [DIFF]):
            number.add(frame)
    return number.value


def log_parts(directory: Path, file: FileEntry, schema: Schema, others: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield the records of a file of an output, with `others` of its columns, some rows at a time."""
    (scan,) = scan_entries(directory, [file], schema, others)
    for first in range(0, file.rows, ROWS):
        yield scan.slice(first, ROWS).collect()


@frozen
class LogProof:
    """An output's log beside what the commits say of it: the `fingerprint` that they have kept, and the `fault` of the log, if it has one."""

    fingerprint: str
    fault: str | None


def read_log(
    directory: Path,
    manifest: Manifest,
    entry: OutputEntry,
    chosen: Callable[[pl.DataFrame], pl.Series] | None = None,
    at: Time = (),
) -> tuple[LogProof, pl.DataFrame, bool]:
    """Compare an output's log with its fingerprint, and its files with their checksums (a time can be wrong, too).

    Returns the proof, the records of the `chosen` rows as of `at`, with their multiplicities as COUNT, and whether the log has updates at open times, which an edit has made.

    With one coordinate the records have also what an edit has changed: that is at the first open time. Each file is read once.
    """
    schema, times = parse_schema(entry.schema), list(manifest.cache["time"])
    known = number_in(manifest.secret_bytes, entry.contents)
    number, kept = LogNumber(manifest.secret_bytes, schema), _Records(schema)
    fault, edited = None, False
    several = len(times) > 1 and bool(at)
    for file in entry.files:
        with _at_hand(directory, file.name) as place:
            for frame in log_parts(place, file, schema, [*times, DIFF]):
                if known is not None:
                    number.add(frame)
                if several:
                    edited = edited or not frame.filter(_is_open(times, manifest)).is_empty()
                if chosen is not None:
                    rows = frame.filter(chosen(frame))
                    kept.add(rows.filter(not_after(times, at)) if several else rows)
            try:
                check_bytes(place / file.name, file)
            except StateError as error:
                fault = fault or f"{error.problem}: {directory / file.name}"
    if known is not None and number.value != known:
        fault = "its records do not add up to those that the runs have committed"
    return LogProof(entry.contents, fault), kept.summed(), edited


class _Records:
    """Records with their multiplicities, as updates of a log are added."""

    def __init__(self, schema: Schema) -> None:
        self._columns = list(schema)
        types = {name: kind.to_polars() for name, kind in schema.items()}
        self._frame, self._most = pl.DataFrame(schema={**types, COUNT: pl.Int64()}), ROWS

    def add(self, rows: pl.DataFrame) -> None:
        """Add updates; sum them up where they have become twice as many."""
        self._frame = pl.concat([self._frame, rows.select(*self._columns, pl.col(DIFF).cast(pl.Int64).alias(COUNT))])
        if self._frame.height > self._most:
            self._frame = self.summed()
            self._most = 2 * self._frame.height + ROWS

    def summed(self) -> pl.DataFrame:
        """Return the records whose multiplicity is not 0."""
        summed = self._frame.group_by(self._columns).agg(pl.col(COUNT).sum())
        return summed.filter(pl.col(COUNT) != 0)


@contextmanager
def _at_hand(directory: Path, name: str) -> Iterator[Path]:
    """Yield the directory to read a file of an output in: of an object store a temporary one with a copy, so that the object is fetched once."""
    if fs(directory).is_local:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="dd-verify-", ignore_cleanup_errors=True) as scratch:
        copy = Path(scratch) / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with reading(directory / name) as file, copy.open("wb") as out:
            shutil.copyfileobj(file, out, 1 << 24)
        yield Path(scratch)


def _is_open(times: Sequence[str], manifest: Manifest) -> pl.Expr:
    """Return which rows of a log are at times that are open."""
    at_or_after = (reduce(and_, map(ge, physically(times), corner)) for corner in manifest.upper)
    return reduce(or_, at_or_after, pl.lit(value=False))


def rows_number(matrix: np.ndarray, nt: int, secret: bytes) -> int:
    """Return the fingerprint of rows of an arrangement, whatever their times."""
    seed = int.from_bytes(secret[:8]) >> 1
    return kernels.multiset_hash(matrix, np.array([[seed, 0, matrix.shape[1] - nt - 1, 2]], np.int64))


def stored_numbers(directory: Path, manifest: Manifest, chosen: Container[str]) -> Iterator[tuple[str, int]]:
    """Yield the fingerprint of each chosen arrangement of a state, a batch in memory at a time."""
    secret = manifest.secret_bytes
    for identity, entry in manifest.arrangements.items():
        if identity not in chosen:
            continue
        total = 0
        for shard in range(len(entry.shards)):
            _, batches = stored_batches(directory, identity, entry, shard, secret)
            while batches:
                batch = batches.pop()
                total += rows_number(batch.matrix(), len(batch.layout.times), secret)
        yield identity, total % (1 << 64)
