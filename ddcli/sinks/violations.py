"""Updates that a run shows, judges or hands out: of an `inspect`, of checks, whose commit can depend on them, and of a dry run's outputs."""

from __future__ import annotations

import threading
from dataclasses import field
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.privacy import previewed
from ddcli.store.time_text import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Type


MOST = 1_000_000
"""The most updates of a check that are noted; of more only the number is known."""
DIFF = "diff"


@dataclass
class NotedUpdates:
    """The updates of one check's collection in a run, from all threads and tasks, as long as there are few."""

    time: Sequence[str]
    """The columns of the log that have the times; the noted diffs are sums over all of them."""
    frames: list[pl.DataFrame] = field(default_factory=list)
    rows: int = 0
    total: int = 0
    """The sum of the diffs, of however many updates."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, frame: pl.DataFrame) -> None:
        """Note updates as a log has them. Threads may call at once."""
        with self._lock:
            self.rows += frame.height
            self.total += int(frame[DIFF].sum())
            if self.rows > MOST:
                self.frames.clear()
            elif frame.height:
                self.frames.append(frame.drop(self.time))

    def skip(self, rows: int, total: int) -> None:
        """Note that there are updates whose records aren't known here, and the sum of their diffs."""
        with self._lock:
            self.rows += MOST + rows
            self.total += total
            self.frames.clear()

    def net(self) -> pl.DataFrame | None:
        """Return the records that the run adds and removes, each with the sum of its diffs, in an order that depends on these alone; None if there are too many."""
        if self.rows > MOST:
            return None
        if not self.frames:
            return pl.DataFrame(schema={DIFF: pl.Int64})
        frame = pl.concat(self.frames)
        columns = [name for name in frame.columns if name != DIFF]
        if not columns:
            return frame.select(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
        summed = frame.group_by(columns, maintain_order=True).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
        return summed.sort([name for name in columns if not summed.schema[name].is_nested()] or [DIFF])


@dataclass
class ReceivedUpdates:
    """The updates that a dry run would add to outputs, in scratch files. Threads may add at once."""

    scratch: Path
    files: dict[str, list[Path]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, updates: pl.DataFrame) -> None:
        """Add updates of an output, as its log would have them."""
        with self._lock:
            files = self.files.setdefault(name, [])
            path = self.scratch / f"{len(self.files)}-{len(files)}.arrow"
            files.append(path)
        updates.write_ipc(path)

    def scan(self, name: str, columns: Iterable[str], count: str) -> Iterator[pl.LazyFrame]:
        """Yield the updates of an output in these columns, with their diffs in the column `count`."""
        for path in self.files.get(name, ()):
            yield pl.scan_ipc(path).select(*columns, pl.col(DIFF).alias(count))


def noted(checks: Sequence[str], time: Sequence[str]) -> dict[str, NotedUpdates]:
    """Return a note for each check."""
    return {name: NotedUpdates(tuple(time)) for name in checks}


SHOWN = 100
"""The most updates that are shown of one step, or of one shard."""


def seen(label: str, updates: pl.DataFrame, kinds: Sequence[Type]) -> Iterator[str]:
    """Yield a line for each update, the first few of many; `kinds` are the types of the times, which come last but for the diff."""
    *names, weight = updates.columns[-len(kinds) - 1 :]
    for row in updates.sort(names, maintain_order=True).head(SHOWN).iter_rows(named=True):
        time, diff = tuple(row.pop(name) for name in names), row.pop(weight)
        yield f"{label}: {previewed(row)} @ {format_time(time, list(kinds))} {diff:+d}"
    if updates.height > SHOWN:
        yield f"{label}: and {updates.height - SHOWN} more updates"
