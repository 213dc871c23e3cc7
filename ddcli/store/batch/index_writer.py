"""The writer of a batch file's index, row group by row group, for all writers of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.store.batch import file
from ddcli.store.batch.page_index import PageIndex, leaf_length, leaf_of, row_checksums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.engine.columns import Matrix
    from ddcli.store.batch.page_index import Data, PageColumn

REPEATED = 256
"""Different values of a column in its first rows up to which they are numbered, not packed."""


def most_numbered(rows: int) -> int:
    """Return the number of different values in the first `rows` rows up to which a column's are numbered, not packed."""
    return min(REPEATED, max(1, rows // 2))


class IndexWriter:
    """The index of a batch file: `add` each row group when its pages are written, then `finish`."""

    def __init__(self, key: int) -> None:
        """Make the index of no rows yet; a key has so many lanes."""
        self._rows = 0
        self._key = key
        self._records: list[Matrix] = []
        self._last: Matrix | None = None
        self._leaves: list[Matrix] = []
        self._constants: dict[str, int] | None = None

    def note_constants(self, found: Mapping[str, int]) -> None:
        """Take in which columns hold just one number, in some rows of the file."""
        before = self._constants
        self._constants = {name: at for name, at in found.items() if before is None or before.get(name) == at}

    def add(
        self, data: Data, start: int, columns: Sequence[PageColumn], firsts: Matrix, last: Matrix, rows: int
    ) -> int:
        """Add a row group; return the size of its leaf in bytes.

        Its bytes are `data`, and in the file begin at `start`, with the magic if it is the first. `firsts` are the data lanes of the first row of each page,
        `last` the lanes of the last row, or of a later one.
        """
        pages = len(firsts)
        heights = np.minimum(rows - np.arange(pages) * file.PAGE, file.PAGE)
        keys = np.concatenate([firsts, last])[:, : self._key]
        length = len(self._leaves[0]) if self._leaves else leaf_length(pages, self._key, len(columns))
        leaf = leaf_of(data, start, [column.form for column in columns], keys, heights, length)
        self._leaves.append(leaf)
        self._records.append(firsts[:1].copy())
        self._last = last.copy()
        self._rows += rows
        return leaf.nbytes

    def finish(self, columns: tuple[PageColumn, ...], start: int, mark: str = "") -> tuple[bytes, bytes]:
        """Return the leaves, which are to begin at `start` in the file, and the index proper. `mark` identifies the secret of hashed lanes."""
        assert self._last is not None, "an empty batch has no index"
        leaves, records = np.stack(self._leaves), np.concatenate([*self._records, self._last])
        sizes = self._rows, file.GROUP, file.PAGE, self._key, start
        index = PageIndex(*sizes, records, row_checksums(leaves), columns, self._constants or {}, mark)
        return leaves.tobytes(), index.to_bytes()
