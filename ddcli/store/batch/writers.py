"""The choice of a batch file's writer, by the types of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.store.batch.file import GROUP
from ddcli.store.batch.frame_file import FrameWriter
from ddcli.store.batch.lane_file import LaneWriter, is_packed

if TYPE_CHECKING:
    from ddcli.engine.columns import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.store.batch.layout import BatchLayout


Writer = FrameWriter | LaneWriter
BLOCK = 4 * GROUP
"""Rows that are made into columns together."""


def writer_of(layout: BatchLayout, about: int = 0) -> Writer:
    """Return a writer of a file of `about` rows, 0 if that is not known."""
    return (
        LaneWriter(layout, about)
        if is_packed(layout)
        else FrameWriter(layout.columns, layout.leading_column, layout.key.width)
    )


def append(writer: Writer, matrix: Matrix, layout: BatchLayout, pool: Pool) -> None:
    """Add rows to a file. Block by block: lanes are picked from rows that are in the cache by then, 2.5 times faster."""
    if isinstance(writer, LaneWriter):
        writer.append(matrix)
        return
    writer.mark = pool.mark if layout.hashed else ""
    for at in range(0, len(matrix), BLOCK):
        block = matrix[at : at + BLOCK]
        writer.append(layout.to_frame(block, pool), block[:, : layout.record.width], layout.constants(block))
