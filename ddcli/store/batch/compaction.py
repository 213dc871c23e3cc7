"""Compaction of a shard's stored batches: the choice of batches to merge, and the merges, a part at a time; and the shards of an arrangement distributed anew.

A shard is a spine on disk. Its *runs* are sorted batches, oldest first, each at least `RATIO` times the size of the next once
nothing is due; so a lookup asks few of them, and retracted rows are removed soon. A run is one file, or several of about `MOST` rows
that hold a key range each. Updates add up in any order, so any files may be merged at any time, not only whole runs: where
a large run is due to be merged into a larger one, a commit merges some of its files, each with those that share its keys. No
merge is half done after a commit: each leaves whole files that have all updates.

The cost: a row passes through at most log4(rows / inserted) runs, and each time at most `RATIO` rows are written again for it.
A commit merges at most `FUEL` rows for each that it inserted, or `LEAST` if that is more, but for the last file that it
begins: that may be up to `RATIO` + 1 files of work (10 M rows, a second) however few rows were inserted.

For another number of shards nothing is computed again, as a row's shard depends on its key and the number alone. Each batch becomes one for each shard that has
rows of it, with the same frontiers and times: the updates that a reader in another pipeline has read stay apart from the others as
before. Shards are ranges of hashes: if there are more, each has the runs of one, as they were; if there are fewer, each has the runs of several beside one
another, until they are merged. So it is with another secret, which makes other hashes of the same keys.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.lanes import decode, encode
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.engine.trace import policy
from ddcli.errors import StateError
from ddcli.expressions.types import POOLED
from ddcli.store.batch.checked_files import RESTORE
from ddcli.store.batch.file import GROUP, footer_checksum, in_byte_order
from ddcli.store.batch.row_group_file import is_plain, row_group_file
from ddcli.store.batch.stored_batch import place
from ddcli.store.batch.writers import FrameWriter, LaneWriter, is_packed
from ddcli.store.state.entries import FileEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddcli.engine.lanes import Matrix
    from ddcli.store.batch.file import BatchLayout, FileSink
    from ddcli.store.batch.stored_batch import StoredBatch


Writer = FrameWriter | LaneWriter
BLOCK = 4 * GROUP
"""Rows that are made into columns together."""


def writer_of(layout: BatchLayout, about: int = 0) -> Writer:
    """Return a writer of a file of `about` rows, 0 if that is not known."""
    return (
        LaneWriter(layout, about)
        if is_packed(layout)
        else FrameWriter(layout.columns, layout.leading_column, layout.key.width)
    )


def append(writer: Writer, matrix: Matrix, layout: BatchLayout, pool: Pool) -> None:
    """Add rows to a file. Block by block: lanes are picked from rows that are in the cache by then, 2.5 times faster."""
    if isinstance(writer, LaneWriter):
        writer.append(matrix)
        return
    writer.mark = pool.mark if layout.hashed else ""
    for at in range(0, len(matrix), BLOCK):
        block = matrix[at : at + BLOCK]
        writer.append(layout.to_frame(block, pool), block[:, : layout.record.width], layout.constants(block))


RATIO = 4
"""Each run is to be this many times the size of the next. With 2 as many rows would be written, and twice as many runs searched."""
MOST = 1 << 21
"""Rows of a file, about."""
CHUNK = 1 << 18
"""Rows that are merged in memory at once, about. Four times as many take twice the memory, and longer."""
FUEL = 40
"""Rows merged for each one inserted: a row of 250 000, into 2 000 M, passes through 6 runs and costs 5 rows in each."""
LEAST = 1 << 18
"""Rows that may be merged however few were inserted: they take a thirtieth of the second that a process takes anyway."""


# Policy: sizes and key ranges in, decisions out.


@frozen
class FileRange:
    """The facts of a file that the policy uses: its rows, its first and its last record (in any form that compares)."""

    rows: int
    first: Any
    last: Any


def portion(older: Sequence[FileRange], younger: Sequence[FileRange], limit: int) -> tuple[set[int], set[int]]:
    """Return which files of two neighbouring runs to merge now: at least one of the younger, and all that share keys with it.

    Those that meet the fewest rows of the older come first; no more than `limit` rows, and no more than are due.
    """
    meets = [
        {at for at, other in enumerate(older) if other.first <= part.last and part.first <= other.last}
        for part in younger
    ]
    costs = [sum(older[at].rows for at in met) / part.rows for met, part in zip(meets, younger, strict=True)]
    above, below = sum(part.rows for part in older), sum(part.rows for part in younger)
    mine: set[int] = set()
    theirs: set[int] = set()
    spent = 0
    for at in sorted(range(len(younger)), key=costs.__getitem__):
        cost = younger[at].rows + sum(older[met].rows for met in meets[at] - theirs)
        if mine and (spent + cost > limit or above >= RATIO * below):
            break
        mine.add(at)
        theirs |= meets[at]
        spent += cost
        above, below = above + younger[at].rows, below - younger[at].rows
    return theirs, mine


# The compaction itself.


@frozen
class NewBatch:
    """A batch file in the making: its content, and the values of its entry. The times of its updates have been advanced to `since`."""

    content: memoryview
    rows: int
    lower: Frontier
    upper: Frontier
    since: Frontier
    run: int = 0
    updates: Matrix | None = None
    """The updates in it, if they are in memory as a whole, with their values in the pool of fresh updates."""

    def write(self, transaction: FileSink, arrangement: str, shard: int) -> FileEntry:
        """Add it to a transaction."""
        name, written = transaction.add_batch(arrangement, shard, self.content)
        bounds = self.lower.elements, self.upper.elements, self.since.elements
        footer = footer_checksum(self.content)
        return FileEntry(name, self.rows, written.size, written.checksum, *bounds, footer, self.run)


@frozen
class Fresh:
    """Updates that are in no file yet, sorted and consolidated, of [lower, upper); their values are in `pool`."""

    updates: kernels.Rows
    lower: Frontier
    upper: Frontier
    pool: Pool


@frozen
class _Merge:
    """Files, and perhaps fresh updates, that become files of one run. Times are advanced to `since`, unless a reader keeps them apart."""

    stored: tuple[StoredBatch, ...]
    fresh: Fresh | None
    since: Frontier | None
    run: int


class Compaction:
    """The compaction of a shard's batches: `kept` stay as they are, `made()` returns those that replace all others.

    `made` reads a quarter of a million rows at a time, and nothing is read before it is called; so one content may be made when the one
    before is written. Threads may do it for different shards.
    """

    def __init__(self, layout: BatchLayout, stored: Sequence[StoredBatch], merges: Sequence[_Merge]) -> None:
        self.layout = layout
        self._merges = merges
        used = {id(batch) for merge in merges for batch in merge.stored}
        self.kept = [batch.entry for batch in stored if id(batch) not in used]

    @property
    def changes(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self._merges)

    def made(self) -> Iterator[NewBatch]:
        """Yield the new batches."""
        for merge in self._merges:
            yield from _merged(merge, self.layout)

    def write(self, transaction: FileSink, arrangement: str, shard: int) -> tuple[FileEntry, ...]:
        """Add the new batches to a transaction; return all entries of the shard, in order."""
        return in_order([*self.kept, *(entry for entry, _ in self.added(transaction, arrangement, shard))])

    def added(self, transaction: FileSink, arrangement: str, shard: int) -> Iterator[tuple[FileEntry, Matrix | None]]:
        """Add the new batches to a transaction; yield the entry of each, and its updates as `NewBatch` has them."""
        for batch in self.made():
            yield batch.write(transaction, arrangement, shard), batch.updates


def in_order(entries: Iterable[FileEntry]) -> tuple[FileEntry, ...]:
    """Return the files of a shard as its manifest has them, the files of the oldest run first."""
    return tuple(sorted(entries, key=lambda entry: (entry.run, entry.name)))


def next_run(entries: Iterable[FileEntry]) -> int:
    """Return a number for a run that is younger than all of these files."""
    return max((entry.run for entry in entries), default=-1) + 1


def compact(
    layout: BatchLayout,
    stored: Sequence[StoredBatch],
    fresh: Fresh | None,
    *,
    since: Frontier,
    through: Frontier,
    inserted: int | None = None,
) -> Compaction:
    """Return a commit's compaction of a shard's batches, `fresh` included (None, or without rows: there are no new ones).

    Times are advanced to `since`. Batches that reach beyond `through`, the meet of the frontiers that the shard's readers in other
    pipelines have reached (closed: there is none), are merged among themselves only, and their times left as they are.
    `inserted` is the number of rows that pay for merges; default: the rows of `fresh`; they may be in files by now.
    """
    if fresh is not None and not len(fresh.updates):
        fresh = None
    rows = len(fresh.updates) if fresh is not None else 0
    limit = max(LEAST, FUEL * (rows if inserted is None else inserted))
    number = next_run(batch.entry for batch in stored)
    runs = _runs(stored)
    free = next((at for at, files in enumerate(runs) if not _free(files, through)), len(runs))
    held = fresh is not None and not fresh.upper.dominates(through)
    # Of a batch that a holder has taken in part, times decide which rows it has seen: they stay.
    merges = [
        *_spine(layout, runs[:free], None if held else fresh, limit, since, number),
        *_spine(layout, runs[free:], fresh if held else None, limit, None, number),
    ]
    return Compaction(layout, stored, merges)


def compact_wholly(
    layout: BatchLayout, stored: Sequence[StoredBatch], *, since: Frontier, through: Frontier
) -> Compaction:
    """Return the compaction that makes one run of all batches of a shard that reach no further than `through`, with their times at `since`.

    If there is just one file, and it is as of `since`, there is nothing to do.
    """
    free = [batch for files in _runs(stored) if _free(files, through) for batch in files]
    done = len(_runs(free)) < 2 and all(batch.since == since for batch in free)
    merges = [] if done else [_Merge(tuple(free), None, since, min(batch.entry.run for batch in free))]
    return Compaction(layout, stored, merges)


def compact_together(
    layout: BatchLayout, stored: Sequence[StoredBatch], fresh: Fresh | None, since: Frontier
) -> Compaction:
    """Return the compaction that makes one run of all batches of a shard and fresh updates, with times advanced to `since`."""
    number = min((batch.entry.run for batch in stored), default=0)
    return Compaction(layout, stored, [_Merge(tuple(stored), fresh, since, number)])


def compact_alone(layout: BatchLayout, stored: Sequence[StoredBatch], fresh: Sequence[Fresh | None]) -> Compaction:
    """Return the compaction that merges each batch with the fresh updates in its place alone, if there are any; further ones become runs of their own."""
    merges = [
        _Merge((batch,), each, batch.since or None, batch.entry.run)
        for batch, each in zip(stored, fresh, strict=False)
        if each is not None
    ]
    number = next_run(batch.entry for batch in stored)
    merges += [_Merge((), each, None, number) for each in fresh[len(stored) :] if each is not None]
    return Compaction(layout, stored, merges)


def _spine(
    layout: BatchLayout,
    runs: list[list[StoredBatch]],
    fresh: Fresh | None,
    limit: int,
    since: Frontier | None,
    number: int,
) -> Iterator[_Merge]:
    """Yield the merges that are due: fresh updates with the runs that they are large beside; and of older runs, the first that are due."""
    sizes = [sum(batch.rows for batch in files) for files in runs]
    if fresh is not None:
        first = policy.fold([*sizes, len(fresh.updates)], limit, RATIO)
        taken = tuple(batch for files in runs[first:] for batch in files)
        yield _Merge(taken, fresh, since, taken[0].entry.run if taken else number)
        runs, sizes = runs[:first], sizes[:first]
    older = policy.next_merge(sizes, RATIO)
    if older is None:
        return
    first = policy.fold(sizes[: older + 2], limit, RATIO)
    if first <= older:
        taken = tuple(batch for files in runs[first : older + 2] for batch in files)
    else:
        above, below = runs[older : older + 2]
        theirs, mine = portion(_parts(layout, above), _parts(layout, below), limit)
        taken = (*(above[at] for at in sorted(theirs)), *(below[at] for at in sorted(mine)))
    yield _Merge(taken, None, since, runs[min(first, older)][0].entry.run)


def _parts(layout: BatchLayout, files: Sequence[StoredBatch]) -> list[FileRange]:
    """Return the facts of files that the policy uses: sizes and key ranges, which are in the files' footers."""
    width = layout.record.width
    ends = [batch.starts(width)[[0, -1]].tolist() if width else [b"", b""] for batch in files]
    return [FileRange(batch.rows, first, last) for batch, (first, last) in zip(files, ends, strict=True)]


def _runs(stored: Iterable[StoredBatch]) -> list[list[StoredBatch]]:
    """Return the files of each run, the oldest first."""

    def run(batch: StoredBatch) -> int:
        return batch.entry.run

    return [list(files) for _, files in groupby(sorted(stored, key=run), run)]


def _free(files: Sequence[StoredBatch], through: Frontier) -> bool:
    return all(batch.upper.dominates(through) for batch in files)


def _merged(merge: _Merge, layout: BatchLayout) -> Iterator[NewBatch]:
    """Merge range by range, and cut the rows into files of about one size."""
    nt, fresh = len(layout.times), merge.fresh
    total = sum(batch.rows for batch in merge.stored) + (len(fresh.updates) if fresh else 0)
    count = -(-total // MOST)
    each = -(-total // max(count, 1))
    lowers = [*(batch.lower for batch in merge.stored), *([fresh.lower] if fresh else ())]
    uppers = [*(batch.upper for batch in merge.stored), *([fresh.upper] if fresh else ())]
    sinces = [*(batch.since for batch in merge.stored), *([fresh.lower] if fresh else ())]
    lower = Frontier(time for frontier in lowers for time in frontier)
    # A closed upper is beyond all others.
    upper = reduce(Frontier.join, uppers)
    since = merge.since or Frontier(time for frontier in sinces for time in frontier)
    if total <= GROUP and is_plain(layout):
        ((matrix, pool, owned),) = _ranges(merge, layout, total)
        rows = kernels.advance(matrix, merge.since.as_time(), nt, owned=owned) if merge.since else matrix
        if len(rows):
            whole = rows if not layout.hashed or (fresh is not None and pool is fresh.pool) else None
            yield NewBatch(row_group_file(rows, layout, pool), len(rows), lower, upper, since, merge.run, whole)
        return
    writer: Writer | None = None
    before, files = 0, 1
    room = np.empty((0, layout.width), np.int64)
    for matrix, pool, owned in _ranges(merge, layout, total):
        rows = matrix
        if merge.since:
            if not owned and len(room) < len(matrix):
                room = np.empty((len(matrix) + len(matrix) // 8, layout.width), np.int64)
            # Writers keep none of the appended rows.
            rows = kernels.advance(matrix, merge.since.as_time(), nt, owned=owned, room=room)
        for at in range(0, len(rows), CHUNK):
            part = rows[at : at + CHUNK]
            if writer is None:
                writer = writer_of(layout, each)
            append(writer, part, layout, pool)
            if files < count and before + writer.rows + len(part) // 2 >= total * files / count:
                yield NewBatch(writer.finish(), writer.rows, lower, upper, since, merge.run)
                before, files, writer = before + writer.rows, files + 1, None
    if writer is not None:
        yield NewBatch(writer.finish(), writer.rows, lower, upper, since, merge.run)


def _record_end(updates: Matrix, at: int, data: int) -> int:
    """Return the first row from `at` on that begins another record, of sorted rows with `data` lanes of data.

    >>> _record_end(np.array([[7, 0, 1], [8, 0, 1], [8, 1, 1], [8, 2, 1], [9, 0, 1]]), 2, 1)
    4
    """
    some = 8
    while at < len(updates):
        others = (updates[at : at + some, :data] != updates[at - 1, :data]).any(axis=1)
        if others.any():
            return at + int(others.argmax())
        at, some = at + len(others), min(8 * some, GROUP)
    return len(updates)


def _ranges(merge: _Merge, layout: BatchLayout, total: int) -> Iterator[tuple[Matrix, Pool, bool]]:
    """Yield the merged updates, about `CHUNK` rows of adjacent records at a time, with the pool of their values.

    The third value is true if the caller may change them. Each range has a pool of its own, or the values of all would be in memory.
    """
    fresh = merge.fresh
    if not merge.stored:
        assert fresh is not None
        rows, at = kernels.leading(fresh.updates), 0
        # A row group at a time: it is still in the cache when it is written, once it has been advanced.
        most = GROUP if total > GROUP else len(rows)
        while at < len(rows):
            start, at = at, _record_end(rows, at + most, layout.width - len(layout.times) - 1)
            if isinstance(fresh.updates, kernels.Uniform):
                yield fresh.updates.between(start, at).matrix(), fresh.pool, True
            else:
                yield rows[start:at], fresh.pool, False
        return
    updates = kernels.matrix(fresh.updates) if fresh else np.empty((0, layout.width), np.int64)
    bounds = [None, *_cuts(merge, layout, -(-total // CHUNK)), None]
    pooled = any(kind.kind in POOLED for kind in layout.record.schema.values())
    for first, end in pairwise(bounds):
        pool = fresh.pool if fresh and len(bounds) == 2 else Pool(merge.stored[0].pool.secret)
        parts = [batch.between(first, end, pool) for batch in merge.stored]
        own = any(map(len, parts)) and not any(batch.held for batch in merge.stored)
        if fresh:
            begin = 0 if first is None else place(updates, first)
            part = updates[begin : len(updates) if end is None else place(updates, end)]
            if pooled and pool is not fresh.pool:
                encode(decode(part, layout.record, fresh.pool), layout.record, pool)
            parts.append(part)
        yield kernels.merge(parts), pool, own


def _cuts(merge: _Merge, layout: BatchLayout, count: int) -> list[Matrix]:
    """Return records, (1, width) each, that cut the updates into about `count` ranges of one size: first records of row groups."""
    width = layout.record.width
    if count < 2 or not width:
        return []
    indices = [batch.file.index for batch in merge.stored]
    starts = [index.records[: -1 : max(1, GROUP // index.group)] for index in indices]
    if merge.fresh:
        starts.append(kernels.leading(merge.fresh.updates)[::GROUP, :width])
    records = np.concatenate(starts)
    records = records[np.argsort(in_byte_order(records))]
    cuts = records[[len(records) * at // count for at in range(1, count)]]
    return [cut.reshape(1, width) for cut in np.unique(cuts, axis=0)]


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
