"""Rows of a log's files as updates: what the format makes of them, in their types, without nulls where none may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcli.engine.columns import encode_column
from ddcli.engine.lanes import Layout, encode
from ddcli.errors import InputError
from ddcli.expressions.types import from_polars
from ddcli.store.formats.base import BadRow, Turned, Upserted
from ddcli.store.log_schema import INT64
from ddcli.store.log_times import physical

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.engine.pool import Pool
    from ddcli.store.formats.base import Format
    from ddcli.store.kinds import Footer
    from ddcli.store.log_schema import LogSchema
    from ddcli.store.tables import Tables

    Matrix = np.ndarray[Any, np.dtype[np.int64]]


class Rows(NamedTuple):
    """Updates: data columns, times as columns of physical integers, diffs; and what they say of their keys, in upserts.

    What is read stays in the chunks it was read in: putting 10 M integers in one piece costs 50 ms in fresh memory alone.
    """

    frame: pl.DataFrame
    diffs: pl.Series
    times: pl.DataFrame
    upserted: Upserted | None = None

    def matrix(self, layout: Layout, pool: Pool) -> Matrix:
        """Return `[data lanes | time lanes | diff]`, the data as a layout has it; of upserts with lanes `present | order`."""
        nt, extra = self.times.width, 2 if self.upserted else 0
        matrix = np.empty((len(self.diffs), layout.width + extra + nt + 1), np.int64)
        if self.upserted:
            self._fill_upserts(layout, pool, matrix, self.upserted)
        else:
            encode(self.frame, layout, pool, matrix)
        for lane, series in enumerate([*self.times, self.diffs], start=layout.width + extra):
            row = 0
            for chunk in series.get_chunks():
                matrix[row : row + len(chunk), lane] = chunk.to_numpy()
                row += len(chunk)
            assert row == len(matrix), f"{len(matrix)} rows of room for {row}"
        return matrix

    def _fill_upserts(self, layout: Layout, pool: Pool, matrix: Matrix, upserted: Upserted) -> None:
        """Write data, presence and order; where a key has nothing, its value is zeros, which nobody looks at."""
        key = Layout({name: layout.schema[name] for name in upserted.key})
        value = Layout({name: kind for name, kind in layout.schema.items() if name not in upserted.key})
        encode(self.frame, key, pool, matrix)
        present = upserted.present.to_numpy()
        matrix[:, key.width : layout.width] = 0
        matrix[present, key.width : layout.width] = encode(self.frame.filter(upserted.present), value, pool)
        matrix[:, layout.width] = present
        order = from_polars(upserted.order.dtype, nullable=False)
        assert order is not None, f"an order of {upserted.order.dtype}"
        encode_column(upserted.order, order, pool, matrix[:, layout.width + 1 : layout.width + 2])


def joined(reads: Sequence[Rows]) -> Rows:
    """Return the updates of several reads together."""
    frames, diffs, times = ([getattr(rows, name) for rows in reads] for name in ("frame", "diffs", "times"))
    said = [rows.upserted for rows in reads if rows.upserted]
    upserted = None
    if said:
        present, order = (pl.concat([getattr(each, name) for each in said]) for name in ("present", "order"))
        upserted = Upserted(said[0].key, present, order)
    return Rows(pl.concat(frames), pl.concat(diffs), pl.concat(times), upserted)


@dataclass(frozen=True)
class RowReader:
    """Reads rows of files as updates of a log."""

    tables: Tables
    log: Format
    schema: LogSchema

    def read(
        self,
        paths: Sequence[Path],
        found: Footer,
        columns: Sequence[str],
        piece: tuple[int | None, int],
        times: pl.DataFrame | None,
        inside: pl.Expr | None,
    ) -> Rows:
        """Return updates of files that are alike: of the rows (first, count), or (None, count) all of them.

        `times` are their times, if they are known already; `inside` says of times which rows to take.
        """
        first, count = piece
        columns = self.log.wanted(columns)
        names = list(dict.fromkeys([*self.log.reads(columns, found), *(self.schema.time if times is None else ())]))
        raw = pl.DataFrame(height=count)
        if names:
            raw = self.tables.collect(paths, names, None if first is None else (first, count))
        if raw.height != count:
            raise InputError("the file changed while it was read", place=str(paths[0]), hint="run again")
        if times is None:
            times = physical(self.tables, paths, raw, self.schema.time)
        if inside is not None:
            mask = times.select(inside).to_series()
            raw, times = raw.filter(mask), times.filter(mask)
        try:
            turned = self.log.turn(raw, columns)
            rows = self._typed(paths, turned, columns)
        except (BadRow, _Null):
            self._find(paths, found, columns, names)
            raise
        return Rows(*rows[:2], times if turned.rows is None else times[turned.rows], rows[2])

    def _typed(
        self, paths: Sequence[Path], turned: Turned, columns: Sequence[str]
    ) -> tuple[pl.DataFrame, pl.Series, Upserted | None]:
        """Return data in its types, diffs, and what upserts say; raises `_Null` and `BadRow` with the row of `turned`."""
        kinds = self.schema.columns | self.schema.time
        beside = [name for name in turned.frame.columns if name not in kinds]
        series = [self.tables.fit(paths, turned.frame[name], kinds[name]) for name in columns]
        frame = (
            pl.DataFrame([*series, *turned.frame.select(beside)])
            if series
            else pl.DataFrame(height=turned.frame.height)
        )
        upserted = self.log.upserted(frame)
        for name in columns:
            if kinds[name].nullable or not frame[name].null_count():
                continue
            null = frame[name].is_null()
            if upserted and name not in self.log.key:
                null &= upserted.present
            if null.any():
                raise _Null(null.arg_max() or 0, "column", name)
        diffs = turned.diffs
        if diffs is None:
            diffs = pl.repeat(1, frame.height, dtype=pl.Int64, eager=True)
        elif diffs.null_count():
            raise _Null(diffs.is_null().arg_max() or 0, "diff column", diffs.name)
        return frame.select(columns) if columns else frame, self.tables.fit(paths, diffs, INT64), upserted

    def _find(self, paths: Sequence[Path], found: Footer, columns: Sequence[str], names: Sequence[str]) -> None:
        """Raise the error of the first file that has a row which means nothing, with its number in that file."""
        for path in paths:
            raw, turned = self.tables.collect([path], names), None
            try:
                turned = self.log.turn(raw, columns)
                self._typed([path], turned, columns)
            except BadRow as bad:
                row = bad.row if turned is None or turned.rows is None else turned.rows[bad.row]
                where = self.tables.kind(path).place(path, row)
                raise InputError(f"row {row} (counted from 0): {bad.problem}", place=where, hint=bad.hint) from None
            except _Null as null:
                row = null.row if turned is None or turned.rows is None else turned.rows[null.row]
                raise self.tables.null(path, row, null.what, null.name) from None


class _Null(Exception):
    """A null where none may be."""

    def __init__(self, row: int, what: str, name: str) -> None:
        super().__init__(name)
        self.row, self.what, self.name = row, what, name
