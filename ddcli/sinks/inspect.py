"""The updates of an `inspect`, as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.store.time_text import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from ddcli.expressions.types import Type

SHOWN = 100
"""The most updates that are shown of one step, or of one shard."""


def seen(label: str, updates: pl.DataFrame, kinds: Sequence[Type]) -> Iterator[str]:
    """Yield a line for each update, the first few of many; `kinds` are the types of the times, which come last but for the diff."""
    *names, weight = updates.columns[-len(kinds) - 1 :]
    for row in updates.sort(names, maintain_order=True).head(SHOWN).iter_rows(named=True):
        time, diff = tuple(row.pop(name) for name in names), row.pop(weight)
        yield f"{label}: {row} @ {format_time(time, list(kinds))} {diff:+d}"
    if updates.height > SHOWN:
        yield f"{label}: and {updates.height - SHOWN} more updates"
