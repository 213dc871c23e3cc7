"""The stored batches of an arrangement, partitioned anew into another number of shards, a batch at a time.

A row's shard depends on its key and the number of shards, so nothing is computed again. Each batch becomes one for each shard that has
rows of it, with the same frontiers and times: the updates that a reader in another pipeline has read stay apart from the others as
before. Shards are ranges of hashes: if there are more, each has the runs of one, as they were; if there are fewer, each has the runs of several beside one
another, until they are merged. So it is with another secret, which makes other hashes of the same keys.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING

from ddcli.engine import kernels
from ddcli.engine.times import Frontier
from ddcli.errors import StateError
from ddcli.store.batch.compaction import NewBatch, append, in_order, writer_of
from ddcli.store.state.manifest import RESTORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddcli.store.batch.compaction import Writer
    from ddcli.store.batch.stored_batch import StoredBatch
    from ddcli.store.state.entries import FileEntry


def repartition(
    batch: StoredBatch, lanes: Sequence[int], shard: int, count: int, shards: int
) -> Iterator[tuple[int, NewBatch]]:
    """Yield the part of a batch for each of `shards`; the batch is of a shard of `count`, and `lanes` are the columns that decide a row's shard.

    Takes memory for half a million rows and for the batch's file. Raises StateError if a row is in another shard than its own:
    partitioned by the wrong lanes, it would never be found again.
    """
    layout = batch.layout
    writers: dict[int, Writer] = {}
    for matrix, pool in batch.parts():
        if len(kernels.exchange([matrix], lanes, count)[shard]) < len(matrix):
            raise StateError("the batch has rows of another shard", place=str(batch.path), hint=RESTORE)
        for at, rows in enumerate(kernels.exchange([matrix], lanes, shards)):
            if len(rows):
                append(writers.setdefault(at, writer_of(layout)), rows, layout, pool)
    for at in sorted(writers):
        writer = writers.pop(at)
        yield at, NewBatch(writer.finish(), writer.rows, batch.lower, batch.upper, batch.since, batch.entry.run)


def rehashed(batch: StoredBatch, lanes: Sequence[int], shards: int, run: int) -> Iterator[tuple[int, NewBatch]]:
    """Yield the part of a batch for each of `shards` shards by the hashes of its pool, instead of the hashes that it was written with; as of `run`.

    Takes memory for the batch. Files of one run overlap now, so that each begins a run of its own.
    """
    layout = batch.layout
    matrix = batch.rehashed()
    for at, rows in enumerate(kernels.exchange([matrix], lanes, shards)):
        if len(rows):
            writer = writer_of(layout)
            append(writer, rows, layout, batch.pool)
            yield at, NewBatch(writer.finish(), writer.rows, batch.lower, batch.upper, batch.since, run)
    batch.pool.forget()


def gathered(parts: Mapping[int, Sequence[FileEntry]]) -> tuple[FileEntry, ...]:
    """Return the files of a shard, given by the shards that they come from, with runs of their own.

    The runs of several shards are put in order of time, as one shard's are: batches that a reader has taken come first.
    """
    runs: list[tuple[Frontier, int, int, list[FileEntry]]] = []
    for shard, entries in parts.items():
        numbers = sorted({entry.run for entry in entries})
        files = [[entry for entry in entries if entry.run == number] for number in numbers]
        uppers = accumulate(
            (reduce(Frontier.join, (Frontier(one.upper) for one in each)) for each in files), Frontier.join
        )
        runs += zip(uppers, numbers, [shard] * len(files), files, strict=True)
    known = {upper for upper, *_ in runs}
    # Each is the frontier of a commit, so they are in order, and the place of one is how many come before it.
    places = {upper: sum(other.dominates(upper) for other in known) for upper in known}
    runs.sort(key=lambda run: (places[run[0]], *run[1:3]))
    return in_order(replace(entry, run=at) for at, (*_, files) in enumerate(runs) for entry in files)
