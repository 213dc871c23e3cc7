"""Side logs: change logs beside the outputs of what a run could not take as it is, published with its commit."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Protocol

import polars as pl

from ddcli.store.objects import locate
from ddcli.store.output import frontier_name, time_column

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.request import Request
    from ddcli.store.logs import Slice
    from ddcli.store.manifest import Times
    from ddcli.store.state import Transaction

DIFF = "diff"


class WithLate(Protocol):
    """What was taken of an input, and what was late."""

    @property
    def put_aside(self) -> tuple[Slice, ...]:
        """The late rows."""


def late_directory(request: Request, name: str) -> Path:
    """Return where the late rows of an input are put aside."""
    given = request.spec.inputs[name].quarantine
    return locate(request.base, given.value) if given else request.state / "late" / name


def put_aside(
    request: Request,
    transaction: Transaction,
    taken: Mapping[str, WithLate],
    times: Schema,
    interval: tuple[Times | None, Times],
) -> None:
    """Write the late rows of inputs that put them aside, with their times, as updates; a file each, a slice at a time in memory.

    Such a log has no progress: what comes late next time may be of any time.
    """
    for name, found in taken.items():
        for part, piece in enumerate(found.put_aside):
            schema = piece.reader.schema
            rows = piece.read()
            lanes = zip(times.items(), schema.time.values(), rows.times, strict=True)
            beside = [time_column(column, lane.to_numpy(), kind) for (column, _), kind, lane in lanes]
            taken_names = {*times, DIFF}
            data = rows.frame.rename({column: f"{column}_" for column in rows.frame.columns if column in taken_names})
            frame = (
                data.with_columns(*beside, rows.diffs.alias(DIFF))
                if data.width
                else pl.DataFrame([*beside, rows.diffs.alias(DIFF)])
            )
            write(transaction, late_directory(request, name), frame, times, interval, part)


def write(
    transaction: Transaction,
    directory: Path,
    frame: pl.DataFrame,
    times: Schema,
    interval: tuple[Times | None, Times],
    part: int = 0,
) -> None:
    """Add updates to a side log, each record at most once for a time, sorted by time."""
    others = [column for column in frame.columns if column != DIFF]
    updates = frame.group_by(others).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0).sort([*times, *others])
    if updates.is_empty():
        return
    data = io.BytesIO()
    updates.write_parquet(data, compression="zstd")
    names = "-".join(frontier_name(bound, times) for bound in interval)
    transaction.add_output(directory / f"updates-{names}{f'-{part:04d}' if part else ''}.parquet", data.getbuffer())
