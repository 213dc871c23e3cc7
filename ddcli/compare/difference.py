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

    from ddcli.compare.columns import ColumnDifference, Compared, Settings
    from ddcli.store.scratch.buckets import Scratch


class ChangedRows:
    """The changed rows that `pairs` finds, in no order; those that don't fit in memory are in scratch files."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self._held: list[pl.DataFrame] = []
        self._size = 0
        self._written: list[Path] = []
        self.height = 0

    def add(self, changes: pl.DataFrame) -> None:
        """Add all changes of some keys."""
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
        """Yield all changes, grouped by key."""
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
        assert least is not None, "each comparison adds a frame of changes, if an empty one"
        return least.sort(by, nulls_last=True)

    @property
    def fits(self) -> bool:
        """Return whether all changes are in memory."""
        return not self._written


@dataclass
class Tally:
    """One side: its name, its kind, its number of rows, and its number of keys with more than one row."""

    label: str
    kind: str
    rows: int = 0
    repeated: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the side as JSON."""
        return {"name": self.label, "kind": self.kind, "rows": self.rows, "repeated_keys": self.repeated}


@dataclass
class Difference:
    """The changes that turn A into B. It is false if there are none.

    `added`, `removed` and `changed` are frames, with a column `count`: the number of equal rows that each row stands for. `ok` states
    whether the comparison passes: there is no difference, or no more than allowed.
    """

    a: Tally
    b: Tally
    settings: Settings
    compared: Compared
    changes: ChangedRows
    at: Mapping[str, pl.Series] = field(default_factory=dict)
    """The time that B was read as of, by column, if it is a log and was read as of a time."""
    notes: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    cells: Counter[str] = field(default_factory=Counter)
    """The number of changed cells by column."""

    def add(self, changes: pl.DataFrame) -> None:
        """Add all changes of some keys."""
        self.changes.add(changes)
        if not changes.height:
            return
        for change, count in changes.group_by(CHANGE).agg(pl.col(COUNT).sum()).iter_rows():
            self.counts[change] += count
        if self.compared.key and self.compared.values:
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
        """The differing columns that count: differences of types may be ignored."""
        return tuple(each for each in self.columns if each.change != "type" or not self.settings.ignore_types)

    @property
    def same(self) -> bool:
        """Return whether there is no difference that counts."""
        return not self.rows and not self.counting_columns

    @property
    def ok(self) -> bool:
        """Return whether the sides are the same, or no more rows differ than `max_changed` allows."""
        allowed = self.settings.max_changed
        return self.same or (
            allowed is not None and not self.counting_columns and allowed.allows(self.rows, self.a.rows)
        )

    def __bool__(self) -> bool:
        return not self.same

    @property
    def count(self) -> str:
        """The name of the column with the number of equal rows: `count`, or `count_` beside a column `count`."""
        name = COUNT
        while name in self.compared.types:
            name += "_"
        return name

    @property
    def added(self) -> pl.DataFrame:
        """The rows that only B has, each with its `count`, in order of the key."""
        return self._one_sided(ADDED, NEW)

    @property
    def removed(self) -> pl.DataFrame:
        """The rows that only A has, each with its `count`, in order of the key."""
        return self._one_sided(REMOVED, OLD)

    @property
    def changed(self) -> pl.DataFrame:
        """The changed rows in order of the key: the key, `old.NAME` and `new.NAME` for each other column, and their `count`."""
        values = [prefix + name for name in self.compared.values for prefix in (OLD, NEW)]
        return self._changes(CHANGED).select(*self._key(), *values, pl.col(COUNT).alias(self.count))

    def first(self, limit: int | None) -> pl.DataFrame:
        """Return the first `limit` changes (None: all) in order of the key, or without a key, of their values."""
        return self.changes.ordered(self.order, limit)

    @property
    def order(self) -> list[str]:
        """The columns that changes are sorted by."""
        values = [prefix + name for name in self.compared.values for prefix in (OLD, NEW)]
        return [*(KEY + name for name in self.compared.key), CHANGE, *values]

    def _changes(self, change: str) -> pl.DataFrame:
        return self.first(None).filter(pl.col(CHANGE) == change)

    def _key(self) -> list[pl.Expr]:
        return [pl.col(KEY + name).alias(name) for name in self.compared.key]

    def _one_sided(self, change: str, prefix: str) -> pl.DataFrame:
        values = [pl.col(prefix + name).alias(name) for name in self.compared.values]
        return self._changes(change).select(*self._key(), *values, pl.col(COUNT).alias(self.count))
