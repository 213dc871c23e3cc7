"""The hashes of the keys in files: which files may have a row of a key, without reading them.

A reader notes them as it reads rows, and the state keeps them beside the copies of files. Two keys may have one hash: a file that has it may lack the key,
one that lacks it has none.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import PUBLIC, Pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from ddcli.expressions.types import Schema

BOUND = (1 << 31) - 1
"""Hashes are below it."""
MARK = 8
"""Bytes before the hashes of a file: they state the types of the key."""


class KeyHashes:
    """The hashes of keys of these columns, of the rows of files, by their numbers: noted as they are read, of at most `most` rows."""

    def __init__(self, kinds: Schema, most: int) -> None:
        self.kinds = dict(kinds)
        self._left = most
        self._noted: dict[int, dict[int, tuple[int, np.ndarray]]] = {}

    def note(
        self, frame: pl.DataFrame, numbers: pl.Series | None, files: Sequence[int], counts: Sequence[int], first: int
    ) -> None:
        """Note the keys of rows that were read of some files, so many of each, from the row `first` of the only one on; `numbers` has the place of each row among these."""
        if self._left < 0 or not self.kinds.keys() <= {*frame.columns}:
            return
        self._left -= frame.height
        if self._left < 0:
            self._noted.clear()
            return
        hashes, ends = hashes_of(frame, self.kinds), np.cumsum(counts)
        places = np.arange(frame.height) if numbers is None else numbers.to_numpy()
        owners = np.searchsorted(ends, places, "right")
        order = np.argsort(owners, kind="stable")
        cuts = np.searchsorted(owners[order], np.arange(1, len(files)))
        for at, count, own in zip(files, counts, np.split(hashes[order], cuts), strict=True):
            self._noted.setdefault(at, {})[first] = count, own

    def content(self, at: int, rows: int) -> bytes | None:
        """Return the hashes of a file of this number of rows; None if not all of them were read."""
        parts, reached = sorted(self._noted.get(at, {}).items()), 0
        for first, (count, _) in parts:
            if first != reached:
                return None
            reached += count
        if reached != rows or not parts:
            return None
        return mark_of(self.kinds) + np.unique(np.concatenate([own for _, (_, own) in parts])).tobytes()


def mark_of(kinds: Schema) -> bytes:
    """Return the bytes that state the columns of a key with their types."""
    return hashlib.sha256(repr([(name, str(kind)) for name, kind in kinds.items()]).encode()).digest()[:MARK]


def hashes_of(frame: pl.DataFrame, kinds: Schema) -> np.ndarray:
    """Return the hash of each row's key. They are in files: a change makes states forget which files have which keys."""
    layout = Layout(kinds)
    lanes = encode(frame.select(list(kinds)), layout, Pool(PUBLIC))
    return kernels.shard_of(lanes, layout.width, BOUND).astype(np.uint32)


def holding(
    contents: Mapping[str, bytes], kinds: Schema, paths: Sequence[str], keys: pl.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each path and each key whether the file may have a row of it, and for each path whether its hashes are known: without them it may have all."""
    hashes, mark = hashes_of(keys, kinds), mark_of(kinds)
    found, known = np.ones((len(paths), len(hashes)), np.bool_), np.zeros(len(paths), np.bool_)
    for at, path in enumerate(paths):
        content = contents.get(path, b"")
        if content[:MARK] == mark:
            there = np.frombuffer(content, np.uint32, offset=MARK)
            places = np.minimum(np.searchsorted(there, hashes), len(there) - 1)
            found[at] = there[places] == hashes if len(there) else False
            known[at] = True
    return found, known
