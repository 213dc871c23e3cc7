"""Stored batches that stay open from one run to the next in one process: small ones are in memory, large ones stay mapped.

A batch never changes, and its entry in the manifest has its checksums: an open one is used again only if its file is the one that was opened, and the
manifest names it with the same entry. Its rows stay in memory when it has moved to a bundle. All share one pool, as their lanes stand for its values.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.engine.pool import Pool
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.files.access import fs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ddcli.engine.lanes import Matrix
    from ddcli.store.batch.checked_files import OpenBundles
    from ddcli.store.batch.file import BatchLayout
    from ddcli.store.state.entries import FileEntry

    Stamp = tuple[int, int, int]

FEW = 1 << 16
"""The rows of a batch that is kept in memory. With 10 M rows, changed by 1 000 at a time, the batches up to it are a hundredth."""
OPEN = 256
"""Files that stay mapped: a process may have some 1 000 open."""


class OpenBatches:
    """The batches of one state, under one secret, by the path of their files, or that in a bundle they would have. Threads may add some at once."""

    def __init__(self, secret: bytes, room: int) -> None:
        """Keep nothing yet, and never more than about `room` bytes."""
        self.pool = Pool(secret)
        self.room = room
        self._before: dict[Path, tuple[StoredBatch, Stamp | None]] = {}
        self._used: dict[Path, tuple[StoredBatch, Stamp | None]] = {}
        self._stamps: dict[Path, Stamp | None] = {}
        """The stamps of bundles, since the last `end_round`."""
        self._lock = threading.Lock()

    def batch(
        self,
        path: Path,
        entry: FileEntry,
        layout: BatchLayout,
        bundle: Path | None = None,
        bundles: OpenBundles | None = None,
    ) -> StoredBatch:
        """Return the batch that a manifest names, from those that are open if it is one of them. It is in a `bundle`, or has a file."""
        place = bundle or path
        stamp = self._stamps.get(place) or _stamp(place)
        if bundle is not None:  # it has many batches, and never changes
            self._stamps[bundle] = stamp
        found, known = self._used.get(path) or self._before.get(path) or (None, None)
        moved = found is not None and found.entry.bundle != entry.bundle
        if (
            found is None
            or stamp is None
            or not (moved or stamp == known)
            or (found.entry != entry and replace(found.entry, bundle=entry.bundle, at=entry.at) != entry)
            or not found.layout.same(layout)
        ):
            found = StoredBatch(place, entry, layout, self.pool, bundles=bundles)
            found.stay_open(in_memory=found.rows <= FEW)
        elif moved:
            found.move(place, entry, bundles)
        self._used[path] = found, stamp
        return found

    def add(self, path: Path, entry: FileEntry, layout: BatchLayout, matrix: Matrix) -> None:
        """Keep a batch that is being written: its rows, with their values in the pool."""
        if len(matrix) > FEW:
            return
        found = StoredBatch(path, entry, layout, self.pool, matrix)
        found.stay_open(in_memory=True)
        with self._lock:
            self._used[path] = found, None

    def drop(self, paths: Iterable[Path]) -> None:
        """Forget batches that have been merged."""
        with self._lock:
            for path in paths:
                self._used.pop(path, None)

    def end_round(self) -> bool:
        """Release the batches that were not used since the last time, and those that exceed the room; return whether any can be kept."""
        room = self.room - self.pool.size
        if room < 0:
            return False
        self._before, self._used = self._used, {}
        self._stamps.clear()
        mapped = 0
        for path, (batch, stamp) in sorted(self._before.items(), key=lambda item: item[1][0].rows):
            room -= batch.held
            if room < 0:
                batch.unload()
            mapped += batch.file.is_mapped
            if mapped > OPEN:
                batch.file.close()
            if stamp is None:  # it has its name by now
                self._before[path] = batch, _stamp(path)
        return True


def _stamp(path: Path) -> Stamp | None:
    """Return the stamp that distinguishes a file from another of its name; None where that can't be known: batches of object stores are opened anew."""
    if not fs(path).is_local:
        return None
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - as quick as can be: it is asked of each batch
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
