"""The updates of replaced and withdrawn files: their rows are taken back, and the rows of present files under the same names are inserted.

Of upserts, each key whose row differs between the two gets its newest row, as an upsert of the run.
A file keeps its place in the order of arrival, so other files may have newer rows. The newest row of a key is in a replaced file or in another one:
if the newest row among the replaced files stays the same, and in the same file, so does the key's record. For all other keys the rows of all files are read, because the state has only the newest row.
That reads the input, but computes only the changes of these keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.sources.slices import Corrected, InputSlice
from ddcli.store.log.newest_tables import WITHIN, natural
from ddcli.store.log.rows import MOMENT, ORDER, PRESENT, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.engine.columns import Matrix
    from ddcli.engine.lanes import Columns, Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Time
    from ddcli.store.log.reader import LogReader
    from ddcli.store.state.entries import InputFile, Times

FILE = "$file"
"""The column with the path of a row's file."""
BEFORE_ALL = -1
"""The order of the rows: new files of the run come later."""


@dataclass
class Replacement:
    """Some files of an input as they were taken in, and the files that are in their places now, if there are any."""

    before: LogReader
    after: LogReader
    time: Time
    closed: Times
    """The frontier up to which the rows of the earlier files were taken."""

    def rows(self, upper: Times) -> int:
        """Return an upper bound of the number of updates that the replacement makes before a frontier."""
        return self.before.take((), None, self.closed).rows + self.after.take((), None, upper).rows

    def taken(self, columns: Iterable[str], upper: Times, most: int | None = None) -> InputSlice:
        """Return the difference that the replacement makes before a frontier, in slices of at most `most` rows."""
        before, after = (
            self.before.take(columns, None, self.closed, most),
            self.after.take(columns, None, upper, most),
        )
        taken = ((before, -1), (after, 1))
        slices = [Corrected(part, self.time, sign) for each, sign in taken for part in each.slices]
        return InputSlice(slices, sum(each.rows for each, _ in taken))

    def files(self, upper: Times) -> tuple[InputFile, ...]:
        """Return the files that are there now, as the next manifest is to have them."""
        return self.after.take((), None, upper).files


@frozen
class ReadRows:
    """Updates that have been read."""

    rows: Rows

    def updates(self, layout: Layout, pool: Pool) -> Columns:
        return self.rows.columns(layout, pool)

    def matrix(self, layout: Layout, pool: Pool) -> Matrix:
        return self.updates(layout, pool).matrix()


@dataclass
class UpsertReplacement(Replacement):
    """Some files of upserts as they were read, and those that are in their places now."""

    whole: LogReader
    """The reader of all files as they are now, without new ones."""
    most: int
    """The number of rows that may be in memory."""

    def taken(self, columns: Iterable[str], upper: Times, most: int | None = None) -> InputSlice:
        columns = tuple(columns)
        found = [[*_with_files(reader, columns, self.closed)] for reader in (self.before, self.after)]
        some = [*found[0], *found[1]][:1]
        if not some:
            return InputSlice((), 0)
        old, new = (_newest(pl.concat([some[0].clear(), *frames]), self._keys) for frames in found)
        changed = _differing(old, new, self._keys)
        if not changed.height:
            return InputSlice((), 0)
        rows = self._now(columns, changed, old.drop(FILE))
        (time,) = self.before.schema.time
        times = pl.DataFrame({time: pl.repeat(self.time[0], rows.height, dtype=pl.Int64, eager=True)})
        frame = rows.with_columns(pl.lit(BEFORE_ALL, pl.Int64).alias(ORDER)).drop(MOMENT)
        diffs = pl.repeat(1, rows.height, dtype=pl.Int64, eager=True)
        return InputSlice((ReadRows(Rows(frame, diffs, times)),), rows.height)

    @property
    def _keys(self) -> list[str]:
        return list(self.before.log.key)

    def _now(self, columns: tuple[str, ...], changed: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
        """Return the newest row of each changed key; for one without any, its old row, which deletes it."""
        on = self._keys
        there = [
            frame.join(changed, on=on, how="semi", nulls_equal=True)
            for frame in _frames(self.whole, columns, self.closed, self.most)
        ]
        now = _newest(pl.concat([old.clear(), *there]), on)
        gone = old.join(changed, on=on, how="semi", nulls_equal=True).join(now, on=on, how="anti", nulls_equal=True)
        return pl.concat([now, gone.with_columns(pl.lit(0, pl.Int64).alias(PRESENT))])


def _frames(
    reader: LogReader, columns: tuple[str, ...], upper: Times, most: int | None = None
) -> Iterable[pl.DataFrame]:
    """Yield the rows of files with their times."""
    for part in reader.take(columns, None, upper, most).slices:
        rows = part.read()
        yield rows.frame.with_columns(rows.times.to_series().cast(pl.Int64).alias(MOMENT))


def _with_files(reader: LogReader, columns: tuple[str, ...], upper: Times) -> Iterable[pl.DataFrame]:
    """Yield the rows of files with their times, and the paths of their files, which their order of arrival shows."""
    paths = pl.Series(FILE, sorted((file.path for file in reader.listing.to_read), key=natural), pl.String)
    for frame in _frames(reader, columns, upper):
        yield frame.with_columns(paths[frame[ORDER] // (1 << WITHIN)])


def _newest(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the newest row of each key."""
    return rows.sort(MOMENT, ORDER).unique(keys, keep="last", maintain_order=True)


def _differing(old: pl.DataFrame, new: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the keys whose rows differ, or are in different files; all of both, where values of a type may be equal to polars that are not the same."""
    both = [old, new]
    values = [name for name in old.columns if name not in (MOMENT, ORDER)]
    if not any(kind.is_float() or kind.is_nested() for kind in old.schema.values()):
        both = [one.join(other, on=values, how="anti", nulls_equal=True) for one, other in ((old, new), (new, old))]
    return pl.concat([each.select(keys) for each in both]).unique()
