"""Tables that change in batches: rows come, rows go, and values are replaced, as a log of updates and as the tables of now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Mapping

Frames = dict[str, pl.DataFrame]
FEW = 20
"""Rows of a table below which a batch may leave it as it is."""


class ChangingTables:
    """Tables that are there but for the rows that come later; `now` holds them as they stand after the last batch."""

    def __init__(
        self, tables: Mapping[str, pl.DataFrame], rng: random.Random, *, static: Collection[str] = (), late: float = 0.1
    ) -> None:
        self.rng, self.static, self.time = rng, static, 0
        self.now: Frames = {}
        self.late: Frames = {}
        self.sizes = {name: frame.height for name, frame in tables.items()}
        for name, frame in tables.items():
            at = self._some(name, frame.height, late) if frame.height > FEW else []
            is_late = _mask(frame.height, at)
            self.now[name], self.late[name] = frame.filter(~is_late), frame.filter(is_late)

    def load(self) -> Frames:
        """Return the updates of the load."""
        return {name: _log(frame, 0, 1) for name, frame in self.now.items()}

    def change(self, part: float) -> Frames:
        """Apply a batch, in which about this part of each table comes, as much goes, and as much changes; return its updates."""
        self.time += 1
        found: Frames = {}
        for name, frame in self.now.items():
            if name in self.static or (frame.height < FEW and self.rng.random() < 0.5):
                continue
            going = _mask(frame.height, self._some(name, frame.height, part))
            changing = _mask(frame.height, self._some(name, frame.height, part)) & ~going
            coming = self.late[name].head(self._count(self.sizes[name], part))
            self.late[name] = self.late[name].tail(-coming.height) if coming.height else self.late[name]
            old = frame.filter(changing)
            new = self._changed(frame, old)
            self.now[name] = pl.concat([frame.filter(~(going | changing)), new, coming])
            parts = [_log(frame.filter(going), self.time, -1), _log(old, self.time, -1)]
            parts += [_log(new, self.time, 1), _log(coming, self.time, 1)]
            updates = pl.concat(parts)
            if updates.height:
                found[name] = updates
        return found

    def _changed(self, frame: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the values of one column, not the first, taken from other rows."""
        if frame.width < 2 or not old.height:
            return old
        column = self.rng.choice(frame.columns[1:])
        values = frame[column].gather([self.rng.randrange(frame.height) for _ in range(old.height)])
        return old.with_columns(values.alias(column))

    def _some(self, name: str, height: int, part: float) -> list[int]:
        if name in self.static or not height:
            return []
        return self.rng.sample(range(height), min(height, self._count(height, part)))

    def _count(self, height: int, part: float) -> int:
        """Return how many rows are about a part of a table, now more, now fewer."""
        return int(height * part * 2 * self.rng.random() + self.rng.random())


def _mask(height: int, at: list[int]) -> pl.Series:
    mask = pl.repeat(value=False, n=height, eager=True, dtype=pl.Boolean)
    return mask.scatter(at, True) if at else mask  # type: ignore[no-any-return]


def _log(frame: pl.DataFrame, time: int, diff: int) -> pl.DataFrame:
    return frame.with_columns(time=pl.lit(time, pl.Int64), diff=pl.lit(diff, pl.Int64))
