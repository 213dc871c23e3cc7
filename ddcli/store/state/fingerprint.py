"""The fingerprints of outputs and arrangements: keyed multiset hashes of their records. Every commit brings an output's up to date by the updates that it adds.

So two numbers answer whether a log adds up to what was committed, and whether a copy of a state and its outputs has the same contents. A record of an output is hashed by the names and lanes of its
columns without nulls: the order of columns, and columns that are null in all records, don't matter. Times don't either: a log whose past is summed up keeps its fingerprint. A row of an
arrangement is hashed by its lanes: the fingerprint of what is stored is compared with that of an arrangement built anew.

The key is the state's secret. Without it nobody can choose other records with the same fingerprint; under another secret the log is hashed anew.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool
from ddcli.expressions.types import FLAGGED, FLOATS, INTEGERS, parse_schema
from ddcli.store.batch.stored_batch import stored_batches
from ddcli.store.log.log_files import DIFF, scan_entries

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from ddcli.engine.columns import Matrix
    from ddcli.expressions.types import Schema, Type
    from ddcli.store.state.entries import OutputEntry
    from ddcli.store.state.manifest import Manifest

BITS = 64
ROWS = 1 << 18
"""Rows of a log that are hashed together."""


class Fingerprint:
    """The fingerprint of updates under a secret, as they are added."""

    def __init__(self, secret: bytes, layout: Layout) -> None:
        seeds = [_digest(secret, name.encode()) >> 1 for name in layout.names]
        lanes = [layout.lanes(name) for name in layout.names]
        flags = [(1 if kind.nullable else 2) if kind.kind in FLAGGED else 0 for kind in layout.schema.values()]
        self._columns = np.array(
            [(seed, own.start, own.stop, flag) for seed, own, flag in zip(seeds, lanes, flags, strict=True)], np.int64
        ).reshape(-1, 4)

    def of(self, updates: Matrix) -> int:
        """Return the number to add for updates, whose last lane is the diff."""
        return kernels.multiset_hash(updates, self._columns)


def stated(secret: bytes, number: int) -> str:
    """Return a fingerprint as a manifest has it: eight digits for the key, sixteen for the contents."""
    return f"{_digest(secret) >> 32:08x}{number % (1 << BITS):016x}"


def number_in(secret: bytes, text: str) -> int | None:
    """Return the number in a fingerprint; None if it was made under another secret, or there is none."""
    return int(text[8:], 16) if text[:8] == stated(secret, 0)[:8] else None


def continues(before: Schema, now: Schema) -> bool:
    """Return whether the records of a log keep their hashes when its columns change from `before` to `now`."""
    return all(
        name in now and (kind == now[name] or _alike(kind.required(), now[name].required()))
        for name, kind in before.items()
    )


def _alike(before: Type, now: Type) -> bool:
    signed = {*INTEGERS} - {"uint64"}
    return before == now or {before.kind, now.kind} <= signed or {before.kind, now.kind} <= {*FLOATS}


def log_number(secret: bytes, directory: Path, entry: OutputEntry) -> int:
    """Return the number of an output's log as its files are. Reads them in parts."""
    schema = parse_schema(entry.schema)
    layout, pool = Layout(schema), Pool(secret)
    fingerprint, total = Fingerprint(secret, layout), 0
    for file, scan in zip(entry.files, scan_entries(directory, entry.files, schema, [DIFF]), strict=True):
        for first in range(0, file.rows, ROWS):
            frame = scan.slice(first, ROWS).collect()
            matrix = np.empty((frame.height, layout.width + 1), np.int64)
            encode(frame, layout, pool, matrix)
            matrix[:, -1] = frame[DIFF].fill_null(0).to_numpy()  # no commit writes a null: somebody changed the file
            total += fingerprint.of(matrix)
            pool.forget()
    return total % (1 << BITS)


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


def _digest(secret: bytes, name: bytes = b"") -> int:
    return int.from_bytes(hashlib.sha256(secret + b"fingerprints" + name).digest()[:8])
