"""The newest of the tables that arrive together: the others are ignored.

Without an order each file is a table, or all files of a directory below the input's are one; the last by name is the newest. With an order,
the rows of its greatest value are the newest table, and a table whose order is less than that of an earlier arrival is ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.store.log.pieces import FilePiece
    from ddcli.store.state.entries import InputFile


@frozen
class Newest:
    """The newest table so far: its order, and when it arrived."""

    order: int
    at: int


@dataclass(frozen=True)
class NewestTables:
    """The tables that count, of some files: the files' numbers, each with its order, None: any."""

    files: Mapping[int, int | None]
    times: frozenset[int]
    """The times at which a table came."""
    newest: Newest | None = field(default=None)


def by_name(files: Sequence[InputFile]) -> NewestTables:
    """Return the newest of the tables that arrived at each time, the last by name."""
    kept: dict[int, int | None] = {}
    arrived = _arrived(files)
    for together in arrived.values():
        last = max(natural(_table(files[at].path)) for at in together)
        kept |= dict.fromkeys((at for at in together if natural(_table(files[at].path)) == last), None)
    return NewestTables(kept, frozenset(arrived))


def by_order(files: Sequence[InputFile], greatest: Callable[[int], int | None], known: Newest | None) -> NewestTables:
    """Return the newest of the tables that arrived at each time, by the greatest order of each file; `known` is that of before."""
    kept: dict[int, int | None] = {}
    times = []
    arrived = sorted(_arrived(files).items())
    if known is not None and arrived and arrived[0][0] <= known.at:
        known = None  # these files are read from the beginning
    for time, together in arrived:
        orders = {at: order for at in together if (order := greatest(at)) is not None}
        if not orders or (known is not None and max(orders.values()) < known.order):
            continue
        known = Newest(max(orders.values()), time)
        times.append(time)
        kept |= dict.fromkeys(orders, known.order)
    return NewestTables(kept, frozenset(times), known)


def _arrived(files: Sequence[InputFile]) -> dict[int, list[int]]:
    """Return the numbers of files by the time at which they arrived."""
    found: dict[int, list[int]] = defaultdict(list)
    for at, file in enumerate(files):
        found[file.at or 0].append(at)
    return found


def _table(path: str) -> str:
    """Return the name of the table that a file belongs to: its directory's, or its own beside others."""
    directory, slash, _ = path.rpartition("/")
    return directory if slash else path


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return the sort key of names that puts numbers in them in the order of their size.

    >>> sorted(["day-10.csv", "day-9.csv"], key=natural)
    ['day-9.csv', 'day-10.csv']
    """
    parts = re.split(r"([0-9]+)", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


WITHIN = 33
"""Bits that number the rows of a file."""


def ranks(paths: Sequence[str]) -> list[int]:
    """Return the place of each file in the order of their names, numbers in these by size."""
    ranked = [0] * len(paths)
    for place, at in enumerate(sorted(range(len(paths)), key=lambda at: natural(paths[at]))):
        ranked[at] = place
    return ranked


def arrival_order(piece: FilePiece, counts: Sequence[int], ranks: Sequence[int]) -> pl.Series:
    """Return numbers of a piece's rows in the order in which they arrived: file by file, as these are ranked.

    `counts` are the rows of the piece's files, should it be all of them.
    """
    first = piece.first or 0
    parts = [
        pl.arange(first, first + count, eager=True) + (ranks[at] << WITHIN)
        for at, count in zip(piece.files, counts if piece.first is None else [piece.count], strict=True)
    ]
    return pl.concat(parts).cast(pl.Int64)
