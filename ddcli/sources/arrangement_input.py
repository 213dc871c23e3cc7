"""Inputs from other pipelines: arrangements, read in place without a copy, and the claims on logs whose updates have not been read.

An arrangement begins as of the exporter's frontier when it was first held: its contents then are taken at the last times before
that. From then on a run takes the updates between its own frontier before and after. The updates that earlier runs have taken are the
contents of the arrangement that joins read, batch by batch; in batches that reach beyond, an update's time decides whether it was taken.
In a batch that was taken wholly it does not: the exporter may have advanced times to the frontier up to which its reader has read.

Updates of a log that its reader has not read are not summed up: a hold in the state that writes the log, under another name than the holds of
imports, has the frontier up to which all is taken. Without a hold, as where that state can't be found or written to, a log that was summed up too far
is refused when it is read.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.pool import HashCollision, Pool
from ddcli.engine.rounds import as_of, before, times_of
from ddcli.engine.times import Frontier
from ddcli.errors import DdError, StateError, UsageError
from ddcli.expressions.types import POOLED
from ddcli.store.batch.checked_files import OpenBundles
from ddcli.store.batch.file import BatchLayout
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.files.access import locate, real
from ddcli.store.files.gate import Files
from ddcli.store.log.pieces import ConsumedRange
from ddcli.store.state.contents import batch_path
from ddcli.store.state.directory import Hold, find_hold, holding, write_hold
from ddcli.store.state.entries import times as frontier_of
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import output_paths, read_owned
from ddcli.store.state.shared_arrangements import reader_name, taken_up_to
from ddcli.store.texts import format_frontier

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.job.inputs import InputFiles
    from ddcli.store.log.pieces import LogSlice
    from ddcli.store.state.entries import InputEntry, Times
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.shared_arrangements import Shared
    from ddcli.store.tables.listing import Listing


@dataclass(frozen=True)
class SharedSlice:
    """Updates of some batch files that are to be taken, not read yet."""

    reader: SharedReader
    batches: tuple[int, ...]
    lower: Frontier | None
    upper: Frontier

    @property
    def rows(self) -> int:
        """Return an upper bound of the number of its updates."""
        return sum(self.reader.rows(at) for at in self.batches)

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        """Return the updates as `[data lanes | time lanes | diff]`."""
        record = self.reader.layout.record
        take = [*record.take(layout.names), *range(record.width, self.reader.layout.width)]
        parts = [np.empty((0, len(take)), np.int64)]
        for at in self.batches:
            rows = self.reader.due(at, pool, self.lower, self.upper)
            parts.append(kernels.take(rows, take))
        return kernels.concat(parts)

    updates = matrix


class SharedReader:
    """The reader of an arrangement that another pipeline exports: its new updates, and the batches that were read before.

    `known` is the input as the last run left it. Raises StateError if the updates that it has not read are no longer kept apart.
    """

    def __init__(self, shared: Shared, time: Sequence[str], listing: Listing, known: InputEntry | None) -> None:
        self.shared = shared
        self.listing = listing
        entry = shared.entry
        schema = shared.schema(time)
        self.key = entry.key
        self.layout = BatchLayout(
            Layout({name: schema.columns[name] for name in entry.key}),
            Layout({name: kind for name, kind in schema.columns.items() if name not in entry.key}),
            len(schema.time),
        )
        begin = frontier_of(known.schema["begin"]) if known and known.is_imported else shared.manifest.upper
        self.schema = schema
        self.begin = Frontier(begin)
        self._bundles = OpenBundles(shared.manifest.bundles)
        self._files = [(shard, file) for shard, files in enumerate(entry.shards) for file in files]
        if known is not None and (problem := _break_in(shared, known)) is not None:
            raise StateError(
                problem,
                place=str(shared.state),
                hint="run with `--full-refresh all`: it reads the arrangement again, and writes the difference to the outputs",
            )

    @cached_property
    def nt(self) -> int:
        """The number of coordinates of its times."""
        return len(self.layout.times)

    def kept(self) -> dict[str, Any]:
        """Return the JSON that a manifest keeps of it beside its files: its columns, which arrangement it is, since when it is imported, the commit that has built it anew, and the mark of the one read."""
        shared = self.shared
        found = {"identity": shared.identity, "begin": self.begin.elements, "mark": shared.mark}
        return self.schema.to_json() | found | ({"built": shared.built} if shared.built else {})

    def largest_time(self) -> tuple[int, ...] | None:
        """Return None: the exporter's frontier decides which times are complete."""
        return None

    seeks = True
    """Any rows can be read without those before them."""

    def take(self, columns: Iterable[str], lower: Times | None, upper: Times, most: int | None = None) -> ConsumedRange:
        """Take the updates at or after `lower` (None: from the beginning) and not at or after `upper`.

        With `most`, a slice is a file, and none is large; else all are one slice. Raises UsageError where times before `upper` are
        no longer kept apart.
        """
        since = None if lower is None else Frontier(lower)
        until = Frontier(upper)
        wanted = [at for at in range(len(self._files)) if since is None or not self._taken(at, since)]
        for at in wanted:
            self._refuse_merged(at, until)
        groups = [(at,) for at in wanted] if most is not None else [tuple(wanted)] if wanted else []
        slices = [SharedSlice(self, group, since, until) for group in groups]
        return ConsumedRange(cast("list[LogSlice]", slices), ())  # they are read as slices of logs are

    def frames(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield some columns of each file, also of updates that cancel each other."""
        layout = Layout({name: self.schema.columns[name] for name in columns})
        for at in range(len(self._files)):
            pool = Pool(self.shared.manifest.secret_bytes)
            slice_ = SharedSlice(self, (at,), None, Frontier())
            yield decode(slice_.matrix(layout, pool), layout, pool)

    def _refuse_merged(self, at: int, upper: Frontier) -> None:
        """Raise UsageError where times of a file's updates decide which are before a frontier, and they have been advanced beyond it."""
        file = self._files[at][1]
        merged = Frontier(file.since or ())
        if not merged or merged.dominates(upper) or self._taken(at, upper) or self._old(Frontier(file.upper)):
            return
        if file.lower is not None and upper.dominates(Frontier(file.lower)):
            return  # all of them are later
        first = format_frontier(merged, list(self.schema.time.values()))
        raise UsageError(
            f"the imported arrangement '{self.shared.name}' no longer keeps times before {first} apart",
            hint=f"ask as of {first} or later",
        )

    def rows(self, at: int) -> int:
        """Return the number of rows of a file."""
        return self._files[at][1].rows

    def batch(self, at: int, pool: Pool) -> StoredBatch | Rehashed:
        """Return a file's batch, in the lanes of the pool."""
        shard, file = self._files[at]
        path = batch_path(self.shared.state, self.shared.identity, shard, file)
        batch = StoredBatch(path, file, self.layout, pool, bundles=self._bundles)
        return batch if self._is_hashed_as(pool) else Rehashed(batch, self.shared.manifest.secret_bytes)

    def _is_hashed_as(self, pool: Pool) -> bool:
        """Return whether the arrangement has the lanes of a pool, and so its order and its shards."""
        return not self.layout.hashed or self.shared.manifest.secret_bytes == pool.secret

    def due(self, at: int, pool: Pool, lower: Frontier | None, upper: Frontier) -> np.ndarray:
        """Return the updates of a file at or after `lower` and not at or after `upper`."""
        matrix = self._placed(self.batch(at, pool))
        if self._taken(at, upper) and not before(times_of(matrix, self.nt), upper).all():
            matrix = as_of(matrix, upper, self.nt)  # advanced for a reader that has read up to there
        times = times_of(matrix, self.nt)
        due = before(times, upper)
        if lower is not None:
            due &= ~before(times, lower)
        return matrix if due.all() else matrix[due]

    def batches(self, taken: Frontier, shard: int, shards: int, pool: Pool) -> list[SharedBatch]:
        """Return the updates before a frontier whose keys are in one of `shards` shards."""
        nk = self.layout.key.width

        def mine(matrix: np.ndarray) -> np.ndarray:
            if shards > 1:
                matrix = matrix[kernels.shard_of(np.ascontiguousarray(matrix[:, :nk]), nk, shards) == shard]
            return matrix

        def part(matrix: np.ndarray) -> np.ndarray:
            rows: np.ndarray = mine(matrix)
            there: np.ndarray = rows[before(times_of(rows, self.nt), taken)]
            return there

        found = []
        for at, (own, file) in enumerate(self._files):
            count = len(self.shared.entry.shards)
            if self._is_hashed_as(pool):  # shards are ranges of hashes
                if count % shards == 0 and own * shards // count != shard:
                    continue
                if shards % count == 0 and shard * count // shards != own:
                    continue
            if self._taken(at, taken):
                found.append(SharedBatch(self.batch(at, pool), mine))
            elif self._old(Frontier(file.upper)) or not taken.dominates(Frontier(file.lower or ())):
                found.append(SharedBatch(self.batch(at, pool), part, self._placed))
        return found

    def _old(self, upper: Frontier) -> bool:
        """Return whether a batch up to this frontier was there when the import began."""
        return upper.dominates(self.begin)

    def _taken(self, at: int, taken: Frontier) -> bool:
        """Return whether all of a file's updates are before a frontier."""
        upper = Frontier(self._files[at][1].upper)
        return upper.dominates(taken) and (not self._old(upper) or self.begin.dominates(taken))

    def _placed(self, batch: StoredBatch | Rehashed) -> np.ndarray:
        """Return a batch's updates at the times at which they are taken."""
        matrix = batch.matrix()
        return as_of(matrix, self.begin, self.nt) if self._old(batch.upper) else matrix


def _break_in(shared: Shared, known: InputEntry) -> str | None:
    """Return the reason why an arrangement doesn't continue the one that a reader knows; None if it does."""
    name = shared.name
    if not known.is_imported or known.identity != shared.identity:
        return f"the imported arrangement '{name}' is another one now"
    if not Frontier(known.upper).dominates(Frontier(shared.manifest.upper)):
        return None  # that pipeline was reopened: see `refuse_beyond_imports`
    if known.built != shared.built:
        return f"the imported arrangement '{name}' was rebuilt since: something in it was taken back, or its times are no longer kept apart"
    # A hold may be younger than the last run: a run that wrote it, after the one before was dropped, has failed or died.
    if not shared.since.dominates(taken_up_to(known)):
        return f"the hold on the imported arrangement '{name}' is gone: the updates that were not read yet are no longer known"
    if not shared.continues(known):
        return f"the state that has the imported arrangement '{name}' is another copy now: it was restored, or has lost its hold, since the last run read it"
    return None


def continued(manifest: Manifest, found: Mapping[str, InputFiles]) -> dict[str, InputEntry]:
    """Return the entries of the imports in a manifest that still continue."""
    return {
        name: entry
        for name, entry in manifest.inputs.items()
        if name in found
        and (shared := found[name].shared) is not None
        and entry.is_imported
        and _break_in(shared, entry) is None
    }


class Rehashed:
    """A batch that was written under another secret, in the lanes of its pool (the engine's protocol `Batch`).

    Keys are looked up by their values, hashed as they were there. Where that can't be (of a key the lane alone is known, or two
    values there have one hash), the batch is read as a whole, which takes none of those hashes.
    """

    def __init__(self, batch: StoredBatch, secret: bytes) -> None:
        self.batch = batch
        self.rows, self.lower, self.upper = batch.rows, batch.lower, batch.upper
        self._secret = secret
        self._matrix: np.ndarray | None = None

    def matrix(self) -> np.ndarray:
        """Return all rows, sorted, and keep them until `release`."""
        if self._matrix is None:
            self._matrix = self.batch.rehashed()
        return self._matrix

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        """Return a sorted matrix with each row of the sorted, distinct `keys`; others may be in it."""
        layout, key, pool = self.batch.layout, self.batch.layout.key, self.batch.pool
        if self._matrix is not None or not _has_values(keys, key, pool):
            return self.matrix()
        theirs = Pool(self._secret)
        try:
            wanted = kernels.sort_by(encode(decode(keys, key, pool), key, theirs), range(key.width))
            there = self.batch.under(theirs).for_keys(wanted)
            found = there.copy()
            encode(decode(there, layout.record, theirs), layout.record, pool, found)
        except HashCollision:
            return self.matrix()
        return kernels.sort_by(found, range(layout.width))

    def release(self) -> None:
        """Forget the rows that `matrix` keeps."""
        self._matrix = None


def _has_values(keys: np.ndarray, key: Layout, pool: Pool) -> bool:
    """Return whether a pool knows the values behind the lanes of keys."""
    hashed = ((key.lanes(name).start, kind) for name, kind in key.schema.items() if kind.kind in POOLED)
    return all(pool.has(keys[:, lane], kind) for lane, kind in hashed)


class SharedBatch:
    """Those rows of another pipeline's batch that are of a shard, and taken (the engine's protocol `Batch`)."""

    def __init__(
        self,
        batch: StoredBatch | Rehashed,
        mine: Callable[[np.ndarray], np.ndarray],
        whole: Callable[[StoredBatch | Rehashed], np.ndarray] | None = None,
    ) -> None:
        self.batch = batch
        self.rows, self.lower, self.upper = batch.rows, batch.lower, batch.upper
        self._mine = mine
        self._whole = whole

    @property
    def stored(self) -> StoredBatch:
        """Return the batch as it is in that state."""
        return self.batch.batch if isinstance(self.batch, Rehashed) else self.batch

    def matrix(self) -> np.ndarray:
        """Return the rows, sorted."""
        return self._mine(self._whole(self.batch) if self._whole else self.batch.matrix())

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        """Return a sorted matrix with each row of the sorted, distinct `keys`; others may be in it."""
        return self.matrix() if self._whole else self._mine(self.batch.for_keys(keys))

    def release(self) -> None:
        """Forget the rows that `matrix` keeps."""
        self.batch.release()


LOGS = "-logs"
"""Ends the name of a reader that holds logs."""


def claim_logs(pipeline: str, own: Path, directories: Iterable[Path], upper: Times) -> None:
    """Record that the pipeline with the state `own` has taken the updates before a frontier of the logs in these directories."""
    name = f"{reader_name(pipeline, own)}{LOGS}"
    logs: dict[Path, set[str]] = {}
    for directory in directories:
        with suppress(DdError, OSError):
            place = real(directory)
            _, owner = read_owned(place)
            state = real(locate(place, owner.path)) if owner else None
            manifest = read_newest(state) if state else None
            if owner and state and manifest and manifest.identity == owner.state:
                paths = output_paths(state, manifest)
                logs.setdefault(state, set()).update(
                    manifest.outputs[each].log for each, path in paths.items() if real(path) == place
                )
    for state, found in logs.items():
        hold = Hold(name, str(own), tuple(sorted(found)), upper, upper)
        with suppress(DdError, OSError):
            if find_hold(state, name) != hold:
                with holding(state, Files()):
                    write_hold(state, hold, Files())
