"""The base of all tables of other programs: their rows as updates, in the columns of the mirror."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl

from ddcli.errors import InputError
from ddcli.store.files.access import reading
from ddcli.store.mirrors.cancellation import DIFF, consolidated
from ddcli.store.mirrors.mirror import ROWS, MirrorCursor
from ddcli.store.scratch.buckets import partition
from ddcli.store.tables.wider_types import type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.store.mirrors.mirror import Additions

VERSION, COMMITTED = "_commit_version", "_commit_timestamp"
OWN = {VERSION: pl.Int64(), COMMITTED: pl.Datetime("us", "UTC"), DIFF: pl.Int64()}
"""The columns of a mirror beside the table's."""
BEGIN = "`dd reset PIPELINE --outputs` starts again with the table as it is"
MICRO = 1_000_000


def labelled(frames: Iterable[pl.DataFrame], columns: Schema, end: MirrorCursor) -> Iterator[pl.DataFrame]:
    """Yield updates at a version, in the columns of a mirror. Rows without a diff are inserts."""
    at = (pl.lit(end.version).alias(VERSION), pl.lit(end.committed).cast(OWN[COMMITTED]).alias(COMMITTED))
    diff = pl.lit(1, pl.Int64).alias(DIFF)
    for frame in frames:
        whole = frame.with_columns(*at, *([] if DIFF in frame.columns else [diff]))
        yield whole.select(*columns, *(pl.col(name).cast(dtype) for name, dtype in OWN.items()))


class TableSource(ABC):
    """A table as it is now, at `place`. Columns of types that records can't have are left out."""

    identity: str
    version: int
    counts_from_rows = False
    """True: changes are those since the rows of the mirror, not since its mark."""
    key: tuple[str, ...] = ()
    """Columns that have other values in each row of the table."""
    numbers: Mapping[str, int] = {}
    """The numbers that identify its columns under any name, if the table has such numbers."""

    def __init__(self, place: str, found: Mapping[str, pl.DataType], nullable: Mapping[str, bool]) -> None:
        self.place = place
        self._nullable = nullable
        kinds = {name: type_of(dtype) for name, dtype in found.items()}
        self.columns: Schema = {name: kind.or_null() for name, kind in kinds.items() if kind is not None}
        if taken := sorted(OWN.keys() & self.columns.keys()):
            raise InputError(f"the table has a column '{taken[0]}', a name that its mirror needs", place=place)

    def check_identity(self, mark: MirrorCursor) -> None:
        """Raise InputError if a mark belongs to another table."""
        if mark.identity != self.identity:
            problem = "this is another table than the one that earlier runs have read: its identity is another"
            raise InputError(problem, place=self.place, hint=BEGIN)

    def _is_at(self, mark: MirrorCursor) -> bool:
        """Return whether a mark is of the table as it is now. Raises InputError where it is of another table, or its columns may not follow these."""
        self.check_identity(mark)
        self._check_columns(mark, [])
        now = {name: str(kind) for name, kind in self.columns.items()}
        return self.tip == mark.tip and now == mark.columns

    def _rolled_back(self, mark: MirrorCursor) -> InputError:
        """Return the error for a table whose version is before that of a mark, where each version counts."""
        problem = f"the table was rolled back to version {self.version}, and earlier runs have read {mark.version}"
        return InputError(
            problem, place=self.place, hint=f"under `clock: arrival` that is a change as any other; {BEGIN}"
        )

    @abstractmethod
    def changes(
        self, mark: MirrorCursor, mirrored: Sequence[Path], *, stepwise: bool
    ) -> tuple[MirrorCursor, Iterator[pl.DataFrame]] | None:
        """Return the mark that the updates since `mark`, or since these files, reach, and the updates, to be read one by one; None if nothing is newer.

        They are consolidated: with `stepwise` each version's, else all. Raises UnknownChange, also as they are read, if the
        table no longer has the versions or files that this takes: see `difference`.
        """

    @abstractmethod
    def _rows(self) -> Iterator[pl.DataFrame]:
        """Yield the table's rows as its package reads them."""

    @property
    def tip(self) -> str:
        """The tip of the newest version."""
        return self._tip(self.version)

    @abstractmethod
    def _tip(self, version: int) -> str:
        """Return the text that distinguishes a version from that of another table, or of another past of this one."""

    @abstractmethod
    def _committed_now(self, least: int) -> int:
        """Return when the newest version was committed, in microseconds; no earlier than `least`."""

    def whole(self) -> tuple[MirrorCursor, Additions]:
        """Return the mark of the table as it is, and its rows."""
        end = self._mark(self.version, self._committed_now(0))
        return end, self._labelled(self._summed(self._rows(), []) if self.key else self._rows(), end)

    def difference(self, mark: MirrorCursor, mirrored: Sequence[Path]) -> tuple[MirrorCursor, Additions]:
        """Return the mark of the table as it is, and its difference from the sum of these files of a mirror."""
        self._check_columns(mark, [])
        end = self._mark(self.version, self._committed_now(mark.committed + 1))
        return end, self._labelled(self._summed(self._rows(), mirrored), end)

    def joined(
        self, mirrored: Sequence[Path], frames: Iterable[pl.DataFrame], end: MirrorCursor
    ) -> Iterator[pl.DataFrame]:
        """Yield the sum of files of a mirror and later updates, without rows that have come and gone."""
        kept = map(self._kept, mirrored)
        yield from self._labelled(self._consolidated(self._signed(chain(kept, frames), 1)), end)

    def _mark(self, version: int, committed: int) -> MirrorCursor:
        columns = {name: str(kind) for name, kind in self.columns.items()}
        numbers = {name: self.numbers[name] for name in self.columns if name in self.numbers}
        return MirrorCursor(self.identity, version, committed, columns, self._tip(version), numbers=numbers)

    def _labelled(self, frames: Iterable[pl.DataFrame], end: MirrorCursor) -> Iterator[pl.DataFrame]:
        """Yield updates at a version, in the columns of the mirror."""
        return labelled(frames, self.columns, end)

    def _signed(self, frames: Iterable[pl.DataFrame], sign: int) -> Iterator[pl.DataFrame]:
        """Yield rows with their diffs, times a sign."""
        for frame in frames:
            diff = pl.col(DIFF) if DIFF in frame.columns else pl.lit(1, pl.Int64)
            yield frame.select(*self.columns, (diff * sign).alias(DIFF))

    def _consolidated(self, frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield updates with different rows, none with the diff 0."""
        for (part,) in partition([frames], list(self.columns)):
            yield from consolidated(part)

    def _summed(
        self, rows: Iterable[pl.DataFrame], mirrored: Sequence[Path], *, of_keys: bool = False
    ) -> Iterator[pl.DataFrame]:
        """Yield the difference of rows from the sum of these files of a mirror; `of_keys`: only from their rows with a key of the given rows."""
        sides = [self._signed(rows, 1), self._signed(map(self._kept, mirrored), -1)]
        for new, kept in partition(sides, self.key or list(self.columns)):
            if self.key and new:
                found = pl.concat(new).select(self.key)
                self._check_key(found)
                kept = (
                    [each.join(found, on=self.key, how="semi", nulls_equal=True) for each in kept] if of_keys else kept
                )
            elif of_keys:
                continue
            yield from consolidated([*new, *kept])

    def _check_key(self, found: pl.DataFrame) -> None:
        twice = found.filter(found.is_duplicated())
        if twice.height:
            shown = ", ".join(f"{name} = {value}" for name, value in twice.row(0, named=True).items())
            hint = "leave rows out with a `query`, name more columns under `key`, or leave it out"
            raise InputError(f"several rows have one key: {shown}", place=self.place, hint=hint)

    def _framed(self, batches: Iterable[Any]) -> Iterator[pl.DataFrame]:
        """Yield batches of Arrow as frames of many rows, in the columns' types."""
        held: list[pl.DataFrame] = []
        for batch in batches:
            held.append(pl.DataFrame(batch).select(*self.columns).cast(pl.Schema(self._dtypes)))
            if sum(each.height for each in held) >= ROWS:
                yield pl.concat(held)
                held = []
        if held:
            yield pl.concat(held)

    @property
    def _dtypes(self) -> dict[str, pl.DataType]:
        return {name: kind.to_polars() for name, kind in self.columns.items()}

    def _kept(self, path: Path) -> pl.DataFrame:
        """Return the updates of a file of the mirror; columns that the table had not then are null."""
        with reading(path.resolve()) as file:  # a dry run has links to the files of the mirror
            frame = pl.read_parquet(file)
        missing = [pl.lit(None, dtype).alias(name) for name, dtype in self._dtypes.items() if name not in frame.columns]
        return frame.with_columns(missing)

    def _check_columns(self, mark: MirrorCursor, described: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Refuse a table whose columns are gone or have other types, or that got some that can't be null; `described` are the columns of versions since then."""
        now = {name: str(kind) for name, kind in self.columns.items()}
        for name, kind in mark.columns.items():
            if name not in now:
                self._refuse(f"has no column '{name}' any more", name, described)
            if now[name] != kind:
                change = f"has '{name}' as {now[name].removesuffix('?')}, which was {kind.removesuffix('?')}"
                self._refuse(change, name, described)
            if self.renamed(mark, name):
                self._refuse(f"has another column under the name '{name}'", name, described)
        for name in now.keys() - mark.columns.keys():
            if not self._nullable[name]:
                self._refuse(f"has a new column '{name}' that can't be null", name, described)

    def renamed(self, mark: MirrorCursor, name: str) -> bool:
        """Return whether a name means another column now than when a mark was made."""
        return name in mark.numbers and mark.numbers[name] != self.numbers.get(name)

    def _refuse(self, change: str, name: str, described: Sequence[tuple[int, Mapping[str, Any]]]) -> NoReturn:
        last = described[-1][1].get(name) if described else None
        version = next((version for version, columns in described if columns.get(name) == last), self.version)
        problem = f"version {version} of the table {change}"
        raise InputError(problem, place=self.place, hint=f"added columns that may be null are read; {BEGIN}")
