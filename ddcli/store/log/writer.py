"""The writer of an output log: one file of updates for each commit, named by the interval that it covers, and the fingerprint of its records (see `state.fingerprint`).

A small commit is added to the newest file where there are many (see `joint_files`), which keeps its name.

A commit has at most one row for a record at a time, so that any Parquet reader may take `*.parquet` in the directory as they
are: sum(diff) by all columns where time <= t is the collection at t. It sees a commit wholly or not at all, as that is one file; a large
one that Spark has computed is a folder of files.
A file is in order of time; if it was written in parts, each of its row groups is.
"""

from __future__ import annotations

import hashlib
import io
import re
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from ddcli.engine import kernels
from ddcli.engine.arrow import series_of
from ddcli.engine.lanes import decode
from ddcli.engine.times import BEYOND, LEAST, Frontier
from ddcli.expressions.nanoseconds import EPOCH
from ddcli.expressions.types import FLAGGED
from ddcli.store.state.entries import UPDATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ddcli.engine.lanes import Layout, Matrix
    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Schema, Type
    from ddcli.store.state.entries import Times

    Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


NAME = re.compile(rf"{UPDATES}([\w+]+)-([\w+]+)(?:-(?:(again|reopened)([0-9]+)|\w+))?(?:\.|/[0-9]+\.)parquet", re.ASCII)
"""A file's name: from when to when, and a suffix that makes it unique: the number of reopenings before it was written, or its reopening; in a folder of that name, its number."""
FIRST_DAY, LAST_DAY = -350_000, 2_900_000  # the years 1011 to 9909
LONG = 80
"""Characters of a frontier's text beyond which a file name has its digest instead; names end at 255."""
WHOLE = 1 << 30
"""Bytes up to which the updates that a commit of Spark's adds to a log are one file."""
DIFF = "diff"
"""The diff column of an output's log."""


CHUNK = 1 << 17
"""Rows that are encoded together."""
LEVEL = 1
"""The level of zstd that files are written with: its default, 3, makes them a tenth smaller and takes a third longer."""


def output_bytes(updates: Matrix, layout: Layout, pool: Pool, time: Schema) -> memoryview:
    """Return the content of a file of updates `[data | times | diff]`. Changes nothing else: threads may do it.

    The updates must be consolidated. They are sorted by time, and keep their order within one.
    """
    updates = kernels.sort_by(updates, range(layout.width, layout.width + len(time)))
    return parquet_bytes(len(updates), lambda start, end: output_frame(updates[start:end], layout, pool, time))


def parquet_bytes(
    rows: int, chunk: Callable[[int, int], pl.DataFrame], metadata: dict[str, str] | None = None
) -> memoryview:
    """Return the content of a Parquet file of `rows` rows; `chunk(start, end)` returns any range of them.

    Chunks are made and encoded one after the other: as one frame, 10 M rows would take 0.3 GB of fresh memory more, which
    takes as long as to encode them. `metadata` is put into the footer.
    """
    data = io.BytesIO()
    if rows <= CHUNK:
        chunk(0, rows).write_parquet(
            data, compression="zstd", compression_level=LEVEL, statistics=True, row_group_size=CHUNK, metadata=metadata
        )
        return memoryview(data.getvalue())

    def chunks(
        with_columns: list[str] | None, _predicate: pl.Expr | None, _rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        for start in range(0, rows, CHUNK):
            frame = chunk(start, min(start + CHUNK, rows))
            yield frame.select(with_columns) if with_columns else frame

    register_io_source(chunks, schema=chunk(0, 1).schema).sink_parquet(
        data, compression="zstd", compression_level=LEVEL, statistics=True, row_group_size=CHUNK, metadata=metadata
    )
    return memoryview(data.getvalue())


def output_frame(updates: Matrix, layout: Layout, pool: Pool, time: Schema) -> pl.DataFrame:
    """Return updates as the columns of a log's file, in their order."""
    assert not {*time, DIFF} & {*layout.names}, f"the columns {[*time, DIFF]} of the log are also columns of its data"
    lanes = range(layout.width, layout.width + len(time))
    times = [time_column(name, updates[:, at], kind) for at, (name, kind) in zip(lanes, time.items(), strict=True)]
    return decode(updates, layout, pool).hstack([*times, series_of(DIFF, updates[:, -1].copy())])


def frame_bytes(frame: pl.DataFrame, time: Schema, metadata: dict[str, str] | None = None) -> memoryview:
    """Return the content of a file that has the rows of a frame of `output_frame`, sorted by time."""
    if len(time) > 1 or not frame[next(iter(time))].is_sorted():  # most files are
        frame = frame.sort(list(time), maintain_order=True)
    return parquet_bytes(frame.height, lambda start, end: frame[start:end], metadata)


def in_columns(frame: Frame, schema: Schema) -> Frame:
    """Return rows of a file of a log with the data columns that the log has by now: null where the file lacks one, in a type that holds its values."""
    there, kinds = frame.collect_schema(), {name: kind.to_polars() for name, kind in schema.items()}
    lacking = [pl.lit(None, dtype).alias(name) for name, dtype in kinds.items() if name not in there]
    other = [pl.col(name).cast(dtype) for name, dtype in kinds.items() if there.get(name, dtype) != dtype]
    return frame.with_columns(*other, *lacking) if lacking or other else frame


def file_name(time: Schema, lower: Times | None, upper: Times, called: str = "") -> str:
    """Return the name of a file of the updates of [lower, upper).

    `called` is added where there are several commits of one interval: a correction is made at the frontier, and after a reopening
    (see `again`) intervals come again.
    """
    return f"{UPDATES}{frontier_name(lower, time)}-{frontier_name(upper, time)}{called}.parquet"


def again(reopenings: int) -> str:
    """Return the addition to the names of files that a state writes after this number of reopenings: no name comes twice."""
    return f"-again{reopenings}" if reopenings else ""


def is_plain(name: str, suffix: str) -> bool:
    """Return whether a file has the name of a run's commit, to which `again` has added this suffix."""
    match = NAME.fullmatch(name)
    return match is not None and name == f"{UPDATES}{match[1]}-{match[2]}{suffix}.parquet"


def beyond(names: Iterable[str], upper: Times, time: Schema, reopenings: int = 0) -> frozenset[str]:
    """Return the files of an output that are of commits after the one that has written its progress, which has this `upper` and number of `reopenings`.

    There are some between a run that died in the midst of publishing and the next one, which finishes that; and for a moment where
    a run publishes while others read. The files of each commit begin where the files of the last one ended.
    """
    found = [
        ((match[1], count - (match[3] == "reopened")), (match[2], count), match[0])
        for name in names
        if (match := NAME.fullmatch(name))
        for count in [int(match[4] or 0)]
    ]
    last = frontier_name(upper, time), reopenings
    reached, new = {last}, {last}
    while new:
        new = {end for begin, end, _ in found if begin in new} - reached
        reached |= new
    reached.discard(last)
    return frozenset(name for _, end, name in found if end in reached)


def time_column(name: str, lane: Matrix, kind: Type) -> pl.Series:
    """Return a time coordinate in its type: int64, date or datetime."""
    physical = lane.astype(np.int32) if kind.kind == "date" else np.ascontiguousarray(lane)
    return series_of(name, physical).cast(kind.to_polars())


def frontier_name(frontier: Times | None, time: Schema) -> str:
    """Return a frontier for a file name: different ones have different names, of letters, digits and `_+` only.

    Where it closes boxes of times, it is named by them, as it is shown to people: `3x4`; else by its elements.

    >>> from ddcli.engine.times import box
    >>> from ddcli.expressions.types import Type
    >>> frontier_name(((42,),), {"time": Type("int64")}), frontier_name(((15706,),), {"day": Type("date")})
    ('42', '20130101')
    >>> product = {"epoch": Type("int64"), "version": Type("int64")}
    >>> frontier_name(box((3, 4)).elements, product), frontier_name(((0, 4), (3, -1)), product)
    ('3x4', '0_4+3_m1')
    """
    if frontier is None:
        return "start"
    if not frontier:
        return "end"
    kinds = list(time.values())
    elements = Frontier(frontier)
    corners = elements.corners()
    boxes = corners and all(BEYOND not in corner for corner in corners)
    sign, times = ("x", corners) if boxes else ("_", elements)
    text = "+".join(sign.join(_coordinate(*pair) for pair in zip(time, kinds, strict=True)) for time in times)
    return text if len(text) <= LONG else hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _coordinate(value: int, kind: Type) -> str:
    """Return a coordinate as people read it, a date or a datetime; its physical integer outside the years that have four digits."""
    if value == LEAST:
        return "start"
    if kind.kind == "date" and FIRST_DAY <= value <= LAST_DAY:
        return (EPOCH + timedelta(value)).date().isoformat().replace("-", "")
    if kind.kind == "datetime":
        seconds, fraction = divmod(value, kind.per_second)
        if FIRST_DAY <= seconds // 86_400 < LAST_DAY:
            moment = (EPOCH + timedelta(seconds=seconds)).strftime("%Y%m%dT%H%M%S")
            return f"{moment}f{fraction:0{kind.second_digits}}" if fraction else moment
    return str(value).replace("-", "m")


BITS = 64


def hashed_columns(secret: bytes, layout: Layout) -> Matrix:
    """Return the columns of a layout as `multiset_hash` reads them: its result is what updates add to a fingerprint under a secret."""
    seeds = [_digest(secret, name.encode()) >> 1 for name in layout.names]
    lanes = [layout.lanes(name) for name in layout.names]
    flags = [(1 if kind.nullable else 2) if kind.kind in FLAGGED else 0 for kind in layout.schema.values()]
    columns = [(seed, own.start, own.stop, flag) for seed, own, flag in zip(seeds, lanes, flags, strict=True)]
    return np.array(columns, np.int64).reshape(-1, 4)


def stated(secret: bytes, number: int) -> str:
    """Return a fingerprint as a manifest has it: eight digits for the key, sixteen for the contents."""
    return f"{_digest(secret) >> 32:08x}{number % (1 << BITS):016x}"


def number_in(secret: bytes, text: str) -> int | None:
    """Return the number in a fingerprint; None if it was made under another secret, or there is none."""
    return int(text[8:], 16) if text[:8] == stated(secret, 0)[:8] else None


def _digest(secret: bytes, name: bytes = b"") -> int:
    return int.from_bytes(hashlib.sha256(secret + b"fingerprints" + name).digest()[:8])
