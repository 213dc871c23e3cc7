"""The order in which rows arrived, which decides among the rows of a key where times don't."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.store.log.newest_tables import natural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.store.log.pieces import FilePiece

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
