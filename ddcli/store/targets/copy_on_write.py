"""The contents of a table in files: a change rewrites the files whose rows it retracts.

The rows that a commit adds are sorted by their lanes and cut into files, a run of them. So a retracted row is in one file of a run, and no other is
read; the newest runs are searched first. Rows that are near each other, such as consecutive numbers and times, are in few files. A run of files is merged with newer ones that are not much smaller: so there are few runs, and
a row is written again a logarithmic number of times. A retracted row costs one file, whose size is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.engine.columns import Lanes
    from ddcli.store.targets.mark import TableFile

SMALL = 1 << 16
"""Rows of a file, at most; more where a table has more than `MANY` such."""
MANY = 256
RATIO = 2
"""A run is merged with newer ones, unless it has more than this many times their rows."""
SPARSE = 8
"""A run is merged when its files have less than this part of the rows that they may."""


class FilePart(NamedTuple):
    """Sorted rows that become a file of a run, with their multiplicities, and the lanes from which on rows are in it."""

    run: int
    first: tuple[int, ...]
    rows: Lanes


class FileRewrite(NamedTuple):
    """The change of a table's files: these stay, those go, and these are new. `missing` are rows to retract that no file has."""

    kept: Sequence[TableFile]
    gone: Sequence[TableFile]
    new: Sequence[FilePart]
    missing: Lanes


def rewrite_files(
    pieces: Iterable[TableFile], updates: Lanes, read: Callable[[TableFile], Lanes], number: int
) -> FileRewrite:
    """Return the change of a table's files by a commit with this number. `read` returns a file's rows, consolidated; not all are read."""
    before = sorted(pieces, key=lambda piece: (-piece.run, piece.first))
    touched, missing = _retracted(before, updates[updates[:, -1] < 0], read)
    parts = [part for part in touched.values() if len(part.rows)]
    kept = [piece for piece in before if piece not in touched]
    added = updates[updates[:, -1] > 0]
    runs = _merged(kept, parts, _count(added))
    if runs or len(added):
        own = [part.rows for part in parts if part.run in runs] + [read(piece) for piece in kept if piece.run in runs]
        parts, kept = [part for part in parts if part.run not in runs], [one for one in kept if one.run not in runs]
        total = sum(piece.rows for piece in kept) + sum(_count(part.rows) for part in parts)
        parts += dealt(kernels.consolidate(kernels.concat([added, *own])), number, total)
    return FileRewrite(kept, [piece for piece in before if piece not in kept], parts, missing)


def dealt(rows: Lanes, run: int, beside: int = 0) -> list[FilePart]:
    """Return sorted rows as the files of a run, about equally large, of a table that has some rows `beside`."""
    total = _count(rows)
    if not total:
        return []
    size = -(-total // -(-total // max(SMALL, (total + beside) // MANY)))
    files = (np.cumsum(rows[:, -1]) - 1) // size
    parts = np.split(rows, np.flatnonzero(np.diff(files)) + 1)
    return [FilePart(run, tuple(part[0, :-1].tolist()), part) for part in parts]


def _retracted(
    pieces: Sequence[TableFile], gone: Lanes, read: Callable[[TableFile], Lanes]
) -> tuple[dict[TableFile, FilePart], Lanes]:
    """Return the files with retracted rows, each with the rest of its rows, and the retracted rows that none of them has."""
    touched: dict[TableFile, FilePart] = {}
    for run in dict.fromkeys(piece.run for piece in pieces):
        files = [piece for piece in pieces if piece.run == run]
        starts = [start_of(gone, piece.first) for piece in files]
        rest = [gone[: starts[0]]]
        for piece, start, end in zip(files, starts, [*starts[1:], len(gone)], strict=True):
            here = gone[start:end]
            if len(here):
                rows = read(piece)
                both = kernels.consolidate(kernels.concat([rows, here]))
                left, here = both[both[:, -1] > 0], both[both[:, -1] < 0]
                if _count(left) < _count(rows):
                    touched[piece] = FilePart(run, piece.first, left)
            rest.append(here)
        gone = kernels.concat(rest)
        if not len(gone):
            break
    return touched, gone


def start_of(rows: Lanes, first: tuple[int, ...]) -> int:
    """Return the place in sorted rows of the first with these lanes or greater ones."""
    return bisect_left(range(len(rows)), first, key=lambda at: tuple(rows[at, :-1].tolist()))


def _merged(kept: Sequence[TableFile], parts: Sequence[FilePart], added: int) -> set[int]:
    """Return the runs that become one with `added` new rows."""
    rows: dict[int, int] = {}
    files: dict[int, int] = {}
    for run, count in [*((one.run, one.rows) for one in kept), *((one.run, _count(one.rows)) for one in parts)]:
        rows[run], files[run] = rows.get(run, 0) + count, files.get(run, 0) + 1
    most = max(SMALL, (sum(rows.values()) + added) // MANY)
    merged = {run for run in rows if files[run] > 1 and rows[run] * SPARSE < files[run] * most}
    total = added + sum(rows[run] for run in merged)
    for run in sorted(rows, reverse=True):
        if run in merged:
            continue
        if not total or rows[run] > RATIO * total:
            break
        merged.add(run)
        total += rows[run]
    return merged


def _count(rows: Lanes) -> int:
    return int(rows[:, -1].sum())
