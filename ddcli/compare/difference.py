"""The result of a comparison: counts, the columns that differ, and the changed rows, in memory or in scratch files."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.compare.pairs import ADDED, CHANGE, CHANGED, COUNT, IS, KEY, NEW, OLD, REMOVED
from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ddcli.compare.buckets import Scratch
    from ddcli.compare.columns import ColumnDifference, Compared
    from ddcli.compare.settings import Settings


class ChangedRows:
    """Changed rows, as `pairs` finds them, in no order; those without room in memory are in scratch files."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self._held: list[pl.DataFrame] = []
        self._size = 0
        self._written: list[Path] = []
        self.height = 0

    def add(self, changes: pl.DataFrame) -> None:
        """Add the changes of some keys: all that there are of each."""
        self._held.append(changes)
        self.height += changes.height
        self._size += int(changes.estimated_size())
        if self._size > self.scratch.room:
            for frame in self._held:
                path = self.scratch.new_file()
                frame.write_ipc(path, compression="lz4")
                self._written.append(path)
            self._held, self._size = [], 0

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield all changes, those of a key together."""
        yield from self._held
        for path in self._written:
            yield pl.read_ipc(path)

    def ordered(self, by: list[str], limit: int | None = None) -> pl.DataFrame:
        """Return the first changes (None: all) in order."""
        least: pl.DataFrame | None = None
        for frame in self.frames():
            least = frame if least is None else pl.concat([least, frame])
            if limit is not None:
                least = least.sort(by, nulls_last=True).head(limit)
        assert least is not None, "each comparison adds its changes, be they none"
        return least.sort(by, nulls_last=True)

    @property
    def fits(self) -> bool:
        """Return whether all of them are in memory."""
        return not self._written


@dataclass
class Tally:
    """One side: its description, and the numbers of its rows and of its keys with more than one row."""

    label: str
    kind: str
    rows: int = 0
    repeated: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"name": self.label, "kind": self.kind, "rows": self.rows, "repeated_keys": self.repeated}


@dataclass
class Difference:
    """The changes that turn A into B. False if there are none.

    `added`, `removed` and `changed` are frames, whose column `count` is the number of rows that each stands for. `ok` is true if
    there is no difference, or none larger than allowed.
    """

    a: Tally
    b: Tally
    settings: Settings
    compared: Compared
    changes: ChangedRows
    at: Mapping[str, pl.Series] = field(default_factory=dict)
    """The time as of which B was read, by column, if it is a log of which a time was given."""
    notes: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    cells: Counter[str] = field(default_factory=Counter)
    """Changed cells by column."""

    def add(self, changes: pl.DataFrame) -> None:
        """Take in all changes of some keys."""
        self.changes.add(changes)
        for change, count in changes.group_by(CHANGE).agg(pl.col(COUNT).sum()).iter_rows():
            self.counts[change] += count
        if self.compared.key and self.compared.values and changes.height:
            cells = changes.select(
                pl.col(COUNT).filter(pl.col(IS + name)).sum().alias(name) for name in self.compared.values
            )
            self.cells.update(cells.row(0, named=True))

    @property
    def columns(self) -> tuple[ColumnDifference, ...]:
        """The columns that differ."""
        return self.compared.differences

    @property
    def rows(self) -> int:
        """The number of rows that were added, removed or changed."""
        return self.counts.total()

    @property
    def same_rows(self) -> int:
        """The number of rows of A that are unchanged in B."""
        return self.a.rows - self.counts[REMOVED] - self.counts[CHANGED]

    @property
    def counting_columns(self) -> tuple[ColumnDifference, ...]:
        """Those of them that count: types may have been asked to be ignored."""
        return tuple(each for each in self.columns if each.change != "type" or not self.settings.ignore_types)

    @property
    def same(self) -> bool:
        """Return whether there is no difference that counts."""
        return not self.rows and not self.counting_columns

    @property
    def ok(self) -> bool:
        """Return whether the sides are the same, or no more rows changed than may."""
        allowed = self.settings.max_changed
        return self.same or (
            allowed is not None and not self.counting_columns and allowed.allows(self.rows, self.a.rows)
        )

    def __bool__(self) -> bool:
        return not self.same

    @property
    def count(self) -> str:
        """The name of the column of frames with the number of rows that each stands for: `count`, or `count_` beside a column `count`."""
        name = COUNT
        while name in self.compared.types:
            name += "_"
        return name

    @property
    def added(self) -> pl.DataFrame:
        """Rows that B has and A hasn't, each with its `count`, in order of the key."""
        return self._one_sided(ADDED, NEW)

    @property
    def removed(self) -> pl.DataFrame:
        """Rows that A has and B hasn't, each with its `count`, in order of the key."""
        return self._one_sided(REMOVED, OLD)

    @property
    def changed(self) -> pl.DataFrame:
        """Changed rows in order of the key: the key, of each other column `old.NAME` and `new.NAME`, and their `count`."""
        values = [prefix + name for name in self.compared.values for prefix in (OLD, NEW)]
        return self._changes(CHANGED).select(*self._key(), *values, pl.col(COUNT).alias(self.count))

    def first(self, limit: int | None) -> pl.DataFrame:
        """Return the first changes, by key, or those without one by their values; None: all."""
        return self.changes.ordered(self.order, limit)

    @property
    def order(self) -> list[str]:
        """The columns by which changes are in order."""
        values = [prefix + name for name in self.compared.values for prefix in (OLD, NEW)]
        return [*(KEY + name for name in self.compared.key), CHANGE, *values]

    def _changes(self, change: str) -> pl.DataFrame:
        return self.first(None).filter(pl.col(CHANGE) == change)

    def _key(self) -> list[pl.Expr]:
        return [pl.col(KEY + name).alias(name) for name in self.compared.key]

    def _one_sided(self, change: str, prefix: str) -> pl.DataFrame:
        values = [pl.col(prefix + name).alias(name) for name in self.compared.values]
        return self._changes(change).select(*self._key(), *values, pl.col(COUNT).alias(self.count))
