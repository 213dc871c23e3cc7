"""The traces of a pipeline's state: read from the batches that the manifest names, written back as batches of the next one."""

from __future__ import annotations

import threading
import time as clock
from collections import defaultdict
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from ddcli.circuit.operators import Traces
from ddcli.circuit.retention import since as since_of
from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.counts import SILENT, Progress, RowCounts
from ddcli.engine.operators.memo import FormerAnswers
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace
from ddcli.plan.physical import WAITING
from ddcli.store.batch.checked_files import OpenBundles
from ddcli.store.batch.compaction import Fresh, compact, in_order, next_run
from ddcli.store.batch.file import BatchLayout, batch_layout, fetch_ends
from ddcli.store.batch.stored_batch import BatchShare, KeyShards, ShardBatch, StoredBatch, fetch_together
from ddcli.store.files.access import fs
from ddcli.store.files.gate import side_by_side
from ddcli.store.state.batch_lists import footprint, is_of_task, worn
from ddcli.store.state.contents import batch_directory, batch_path, own_path
from ddcli.store.state.directory import Claims
from ddcli.store.state.entries import ArrangementEntry
from ddcli.store.state.fingerprint import rows_number
from ddcli.store.state.manifest import home_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.kernels import Rows
    from ddcli.engine.lanes import Layout
    from ddcli.engine.trace.spine import Batch
    from ddcli.job.sizes import Sizes
    from ddcli.sources.arrangement_input import SharedReader
    from ddcli.store.batch.file import BatchFile, FileSink
    from ddcli.store.batch.open_batches import OpenBatches
    from ddcli.store.state.batch_lists import Listed
    from ddcli.store.state.entries import FileEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction


@dataclass
class _Arrangement:
    """An arrangement as the run leaves it: the files of each shard.

    For a shard that several passes share: the number of passes that have not written yet, and the rows that the others wrote.
    """

    layout: BatchLayout
    files: list[tuple[FileEntry, ...]]
    waiting: list[int]
    inserted: list[int]


@frozen
class _Given:
    """A trace that was given to an operator: its arrangement, and the shards of the state that it has, or the one that it has a part of.

    `stored` has the batches of each shard; `lanes` decide the shard of a row.
    """

    trace: Trace
    identity: str
    shards: range
    pool: Pool
    stored: tuple[tuple[StoredBatch, ...], ...]
    whole: bool
    lanes: tuple[int, ...] = ()
    before: int = 0
    """Rows that had been scanned in these batches, which may have been open, before they were given."""

    @property
    def rows_scanned(self) -> int:
        """Return the number of rows scanned since then, each as often as it was."""
        return sum(batch.file.rows_scanned for each in self.stored for batch in each) - self.before


@frozen
class ShardFiles:
    """The result of writing a trace: files of a shard of the state, all that it has now (`whole`), or those that one of several passes adds."""

    identity: str
    shard: int
    layout: BatchLayout
    files: tuple[FileEntry, ...]
    whole: bool
    due: int | None = None
    """The first of the times for which updates wait."""

    def fresh(self, number: int) -> tuple[int, int]:
        """Return the number of rows, and of bytes, in the files of the commit with this number."""
        files = [file for file in self.files if file.name.startswith(f"{number:09d}-")]
        return sum(file.rows for file in files), sum(file.size for file in files)


@frozen
class Rest:
    """A shard whose files from before may be merged, as all passes have read them, and the number of inserted rows."""

    identity: str
    shard: int
    layout: BatchLayout
    inserted: int


@frozen
class Merged:
    """Files of a shard that come in place of others, which are `gone`."""

    identity: str
    shard: int
    gone: frozenset[str]
    files: tuple[FileEntry, ...]


@frozen
class StateAnswers:
    """The results of functions that remember, as a commit of a state has them."""

    directory: Path
    manifest: Manifest

    def batches(self, identity: str, layout: BatchLayout, pool: Pool) -> list[StoredBatch]:
        """Return the batches of an arrangement of results; none if the commit lacks it. Their values are in `pool`, which has the state's secret."""
        entry, opened = self.manifest.arrangements.get(identity), OpenBundles(self.manifest.bundles)
        return [
            StoredBatch(batch_path(self.directory, identity, at, file), file, layout, pool, bundles=opened)
            for at, each in enumerate(entry.shards if entry else ())
            for file in each
        ]


@dataclass
class StateTraces(Traces):
    """The traces of a run: opened for operators, and written with the updates that they have taken in.

    A run of more passes than an arrangement has shards reads each shard in several of them, each its own keys. A run of few
    updates has one pass, whose trace has all shards.
    """

    directory: Path
    manifest: Manifest | None
    pools: Sequence[Pool]
    since: Frontier
    sizes: Sizes
    imports: Mapping[str, SharedReader] = field(default_factory=dict)
    """The arrangements that other pipelines keep, by identity: they are read there, and not written."""
    claims: Claims = field(default_factory=Claims)
    """The claims of other pipelines on arrangements that are kept here."""
    past: Mapping[str, int | None] = field(default_factory=dict)
    """The length of the past that is kept, by fingerprint."""
    only: Collection[str] | None = None
    """The nodes whose arrangements are to be kept, by fingerprint; None: all."""
    progress: Progress = SILENT
    frontier: Frontier | None = None
    """The frontier that the traces are written as of, if it is not the upper of the step: a correction at the first open time closes nothing."""
    answered: Manifest | None = None
    """The commit that has the results of functions that remember, where the traces begin empty."""
    erases: bool = False
    """True: of these, the results for records that do not come again are dropped."""
    held: OpenBatches | None = None
    """The batches that are open already, and those that are to be."""
    bundles: OpenBundles = field(default_factory=OpenBundles)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The seconds that writing took, in all threads together, by the fingerprint of the node."""
    numbers: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """The fingerprints of the arrangements that a dry run has built."""
    rows_scanned: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """The number of rows of the state that were scanned for keys, by the fingerprint of the node."""
    _given: dict[int, _Given] = field(default_factory=dict)
    _unopened: list[BatchFile] = field(default_factory=list)
    _dues: list[int] = field(default_factory=list)
    _arrangements: dict[str, _Arrangement] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def trace(
        self, identity: str, key: Layout, value: Layout, nt: int, shard: int, by: Sequence[int] | None = None
    ) -> Trace:
        """Return the trace of one pass: the state's arrangement of this identity, or an empty one."""
        if identity in self.imports:
            pool = self.pools[shard]
            shared = self.imports[identity].batches(self.since, shard, self.sizes.passes, pool)
            self._wait_to_open(batch.stored for batch in shared)
            trace = Trace(key.width, value.width, nt, since=self.since, batches=shared)
            self._given[id(trace)] = _Given(trace, identity, range(shard, shard + 1), pool, (), whole=False)
            return trace
        entry = self.manifest.arrangements.get(identity) if self.manifest else None
        count, passes = len(entry.shards) if entry else self.sizes.shards, self.sizes.passes
        assert passes % count == 0 or passes == 1, f"{passes} passes over {count} shards"
        known = self._arrangements.get(identity)
        layout = known.layout if known else batch_layout(key, value, nt)
        shards, pool = (
            range(count) if passes < count else range(own := shard * count // passes, own + 1),
            self.pools[shard],
        )
        files = [entry.shards[at] if entry else () for at in shards]
        stored = tuple(
            tuple(self._open(identity, at, file, layout, pool) for file in each)
            for at, each in zip(shards, files, strict=True)
        )
        batches: list[Batch] = [batch for each in stored for batch in each]
        self._wait_to_open(batch for each in stored for batch in each)
        lanes = tuple(range(key.width)) if by is None else tuple(by)
        if count < passes:
            batches = [BatchShare(batch, lanes, shard, passes) for each in stored for batch in each]
        elif passes < count and by is None:
            key_shards = KeyShards(key.width, count)
            batches = [ShardBatch(batch, key_shards, at) for at, each in enumerate(stored) for batch in each]
        trace = Trace(key.width, value.width, nt, since=self.since, batches=batches, layout=layout.record)
        if len(batches) > 1 and not fs(self.directory).is_local:
            trace.fetch = fetch_together
        before = sum(batch.file.rows_scanned for each in stored for batch in each)
        self._given[id(trace)] = _Given(trace, identity, shards, pool, stored, passes <= count, lanes, before)
        self._arrangement(identity, layout)
        return trace

    def _wait_to_open(self, batches: Iterable[StoredBatch]) -> None:
        with self._lock:
            self._unopened += [batch.file for batch in batches if batch.file.is_far]

    def open_ahead(self) -> None:
        """Open the files in object stores of all traces that were given since the last time, side by side: each is a request, or several."""
        files: dict[Path, list[BatchFile]] = defaultdict(list)
        with self._lock:
            while self._unopened:
                file = self._unopened.pop()
                files[file.path].append(file)
        side_by_side(lambda path: fetch_ends(files[path]), [*files])

    def former(self, identity: str, key: Layout, value: Layout, nt: int, shard: int) -> FormerAnswers | None:
        """Return the results of a pass's records that the earlier commit has, whatever shards these were in."""
        if self.answered is None:
            return None
        kept = StateAnswers(self.directory, self.answered).batches(
            identity, batch_layout(key, value, nt), self.pools[shard]
        )
        shares = [BatchShare(batch, tuple(range(key.width)), shard, self.sizes.passes) for batch in kept]
        return FormerAnswers(shares, whole=not self.erases)

    def _open(self, identity: str, shard: int, entry: FileEntry, layout: BatchLayout, pool: Pool) -> StoredBatch:
        path = batch_path(self.directory, identity, shard, entry)
        if self.held is None:
            return StoredBatch(path, entry, layout, pool, bundles=self.bundles)
        own = own_path(self.directory, identity, shard, entry) if entry.bundle else path
        return self.held.batch(own, entry, layout, path if entry.bundle else None, self.bundles)

    def _arrangement(self, identity: str, layout: BatchLayout) -> _Arrangement:
        """Return an arrangement as the run has left it so far."""
        if identity not in self._arrangements:
            entry = self.manifest.arrangements.get(identity) if self.manifest else None
            count = len(entry.shards) if entry else self.sizes.shards
            self._arrangements[identity] = _Arrangement(
                layout, list(entry.shards) if entry else [()] * count, [self.sizes.passes // count] * count, [0] * count
            )
        return self._arrangements[identity]

    def measure(self, trace: Trace) -> None:
        """Add the new updates of a trace to the fingerprint of its arrangement, in a dry run that writes none."""
        given = self._given.pop(id(trace))
        if (
            given.identity not in self.imports
            and self._is_kept(given.identity)
            and not given.identity.endswith(WAITING)
        ):
            number = sum(rows_number(kernels.matrix(rows), trace.nt, given.pool.secret) for rows in trace.resident())
            with self._lock:
                self.numbers[given.identity] += number

    def traces(self) -> list[Trace]:
        """Return the traces that have not been written."""
        return [given.trace for given in self._given.values()]

    @property
    def files(self) -> int:
        """Return about how many files writing these takes."""
        return sum(len(given.shards) for given in self._given.values())

    def write(
        self, trace: Trace, transaction: Transaction, upper: Frontier, shared: frozenset[int] | None = None
    ) -> None:
        """Write the updates that a trace has taken in, as of `upper`, and release it. Threads may do it with different traces at once."""
        upper = self.frontier or upper
        for kept in self.store(trace, transaction, upper, shared):
            rest = self.note(kept)
            if rest:
                self.replace(self.merge(rest, transaction, upper))
            self.progress.wrote(*kept.fresh(transaction.number))

    def store(
        self, trace: Trace, transaction: FileSink, upper: Frontier, shared: frozenset[int] | None = None
    ) -> list[ShardFiles]:
        """Write a trace's new updates and return their files, shard by shard; none if another pipeline keeps the arrangement. See `write`.

        `shared` identifies the memory of matrices that others read (see `memory_of`), None: any may be.
        """
        began, given = clock.perf_counter(), self._given.pop(id(trace))
        if scanned := given.rows_scanned:
            with self._lock:
                self.rows_scanned[given.identity.removesuffix(WAITING)] += scanned
        if given.identity in self.imports or not self._is_kept(given.identity):
            trace.batches.clear()
            return []
        memory = trace.resident()
        due = _due(given, memory, upper) if given.identity.endswith(WAITING) else None
        trace.batches.clear()
        since, through = self._since(given.identity, upper), self.claims.through(given.identity)
        updates: Rows | None = None
        if memory:
            # Rows that share their tail become whole rows a part at a time, as they are written.
            sole = len(memory) == len(given.shards) == 1
            updates = memory[0] if sole else kernels.merge([*map(kernels.matrix, memory)])
            if (
                isinstance(updates, np.ndarray)
                and not through
                and shared is not None
                and memory_of(updates) not in shared
            ):
                # In place, as there is no other reader: compaction gets the final times.
                updates = kernels.advance(updates, since.as_time(), trace.nt, owned=True)
        memory.clear()
        parts = [updates] * len(given.shards)
        if updates is not None and len(parts) > 1:
            parts = [*kernels.exchange([kernels.matrix(updates)], given.lanes, len(parts))]
        del updates
        found = []
        for at, stored in zip(given.shards, given.stored, strict=True):
            part = parts.pop(0)
            fresh = Fresh(part, self.since, upper, given.pool) if part is not None else None
            del part
            files = self._compacted(given, at, stored, fresh, since, through, transaction)
            found.append(
                ShardFiles(given.identity, at, self._arrangements[given.identity].layout, files, given.whole, due)
            )
        self._spent(given.identity, began)
        return found

    def _compacted(
        self,
        given: _Given,
        shard: int,
        stored: tuple[StoredBatch, ...],
        fresh: Fresh | None,
        since: Frontier,
        through: Frontier,
        transaction: FileSink,
    ) -> tuple[FileEntry, ...]:
        """Write the new updates of a shard, with the merges that are due; return the files that the shard has now, for one of several passes only its own."""
        layout = self._arrangements[given.identity].layout
        stored = stored if given.whole else ()
        work = compact(layout, stored, fresh, since=since, through=through)
        added = list(work.added(transaction, given.identity, shard))
        if self.held is not None:
            place, kept = batch_directory(self.directory, given.identity, shard), {one.name for one in work.kept}
            self.held.drop(place / batch.entry.name for batch in stored if batch.entry.name not in kept)
            for entry, matrix in added:
                if matrix is not None:
                    self.held.add(place / entry.name, entry, layout, matrix)
        return in_order([*work.kept, *(entry for entry, _ in added)])

    def note(self, kept: ShardFiles) -> Rest | None:
        """Record the files of a trace; return the shard whose files are to be merged, once all its passes are done."""
        with self._lock:
            if kept.due is not None:
                self._dues.append(kept.due)
            arrangement, shard = self._arrangement(kept.identity, kept.layout), kept.shard
            if kept.whole:
                arrangement.files[shard] = kept.files
                return None
            known = arrangement.files[shard]
            run = next_run(known)
            arrangement.files[shard] = (*known, *(replace(entry, run=run + entry.run) for entry in kept.files))
            arrangement.inserted[shard] += sum(entry.rows for entry in kept.files)
            arrangement.waiting[shard] -= 1
            if arrangement.waiting[shard]:
                return None
            return Rest(kept.identity, shard, kept.layout, arrangement.inserted[shard])

    def merge(self, rest: Rest, transaction: FileSink, upper: Frontier) -> Merged:
        """Merge the earlier files of a shard that are due."""
        since, through = self._since(rest.identity, upper), self.claims.through(rest.identity)
        entry = self.manifest.arrangements.get(rest.identity) if self.manifest else None
        began = clock.perf_counter()
        files = entry.shards[rest.shard] if entry else ()
        pool = Pool(self.pools[0].secret)
        paths = [batch_path(self.directory, rest.identity, rest.shard, file) for file in files]
        pairs = zip(paths, files, strict=True)
        stored = [StoredBatch(path, file, rest.layout, pool, bundles=self.bundles) for path, file in pairs]
        work = compact(rest.layout, stored, None, since=since, through=through, inserted=rest.inserted)
        gone = frozenset(file.name for file in files) - {file.name for file in work.kept}
        made = tuple(batch.write(transaction, rest.identity, rest.shard) for batch in work.made())
        self._spent(rest.identity, began)
        return Merged(rest.identity, rest.shard, gone, made)

    def counts(self) -> Iterator[tuple[str, RowCounts]]:
        """Yield the seconds of writing, and the rows scanned, by the fingerprint of the node."""
        yield from ((name, RowCounts(seconds=spent)) for name, spent in self.seconds.items())
        yield from ((name, RowCounts(rows_scanned=rows)) for name, rows in self.rows_scanned.items())

    def _spent(self, identity: str, began: float) -> None:
        with self._lock:
            self.seconds[identity.removesuffix(WAITING)] += clock.perf_counter() - began

    def replace(self, merged: Merged) -> None:
        """Replace a shard's files from before by their merge."""
        files = self._arrangements[merged.identity].files
        kept = [entry for entry in files[merged.shard] if entry.name not in merged.gone]
        files[merged.shard] = (*kept, *merged.files)

    def worn(self) -> list[Listed]:
        """Return the batches that are left in those bundles of tasks that are mostly out of use, once all traces have been written."""
        sizes = self.manifest.bundles if self.manifest else {}
        left: dict[str, list[Listed]] = defaultdict(list)
        for identity, arrangement in self._arrangements.items():
            for shard, files in enumerate(arrangement.files if self._is_kept(identity) else ()):
                for file in files:
                    own = home_of(self.directory, file.name) == self.directory  # not one that a branch has of main
                    if own and is_of_task(file.bundle) and file.bundle in sizes:
                        left[file.bundle].append((identity, shard, file))
        alive = {name: sum(footprint(file.size) for _, _, file in files) for name, files in left.items()}
        emptied = worn({name: (sizes[name], alive[name]) for name in left}, sum(sizes.values()))
        return [each for name in sorted(emptied) for each in left[name]]

    def entries(self, upper: Frontier) -> dict[str, ArrangementEntry]:
        """Return the arrangements as the next manifest has them, when all traces have been written."""
        assert not self._given, "traces that were not written"
        times = upper.elements
        found = {}
        for identity, arrangement in self._arrangements.items():
            if not self._is_kept(identity):
                continue
            layout = arrangement.layout
            schema = {name: str(kind) for name, kind in layout.record.schema.items()}
            shards = tuple(in_order(files) for files in arrangement.files)
            since = self._since(identity, upper).elements
            found[identity] = ArrangementEntry(identity, since, times, layout.key.names, schema, shards)
        return found

    def due(self) -> int | None:
        """Return the first time for which something waits, when all traces have been written; it may have been taken back since."""
        return min(self._dues, default=None)

    def _is_kept(self, identity: str) -> bool:
        return self.only is None or identity.removesuffix(WAITING) in self.only

    def _since(self, identity: str, upper: Frontier) -> Frontier:
        """Return the frontier to which an arrangement's times may be advanced: times that the file's `history` and readers keep stay apart."""
        entry = self.manifest.arrangements.get(identity) if self.manifest else None
        before = Frontier(entry.since) if entry and entry.since is not None else self.since
        node = identity.removesuffix(WAITING)
        since = since_of(upper, self.past[node], before) if node in self.past else upper
        return self.claims.since(identity, since)


def _due(given: _Given, memory: Sequence[Rows], upper: Frontier) -> int | None:
    """Return the first time at or after `upper` in a trace of waiting updates, whose first lane is their time."""
    if given.trace.nt != 1 or not upper:
        return None
    ((first,),) = upper.elements
    found = [first_from(kernels.leading(rows), first) for rows in memory]
    found += [first_from(part, first) for stored in given.stored for batch in stored for part in batch.near(first)]
    return min((each for each in found if each is not None), default=None)


def first_from(matrix: np.ndarray, least: int) -> int | None:
    """Return the first value of a sorted matrix's first lane that is not below `least`."""
    at = int(np.searchsorted(matrix[:, 0], least))
    return int(matrix[at, 0]) if at < len(matrix) else None


def memory_of(matrix: np.ndarray) -> int:
    """Return the identity of a matrix's memory: views of one matrix share it."""
    return id(matrix if matrix.base is None else matrix.base)
