"""A commit in the making in a state's directory: files that no reader opens yet, then a manifest that makes them count.

A commit happens wholly or not at all. Until the rename of the manifest no file that a reader opens has changed; from
then on the state and the outputs are the new ones, and the remaining work (renames of outputs, removals of files) is
written in the manifest and done again by the process that opens the state next.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from ddcli.dataclass import frozen
from ddcli.errors import EngineError, LockedError
from ddcli.store.batch.checked_files import OpenBundles
from ddcli.store.files.access import fs, real, relative
from ddcli.store.files.gate import PendingWrites, Written, checksum, one_by_one, side_by_side, temporary
from ddcli.store.log.joint_files import JointFile
from ddcli.store.state.batch_lists import BUNDLES, END, FULL, Bundle, alone, fits, footprint, inside, worn
from ddcli.store.state.contents import (
    LEDGER,
    batch_directory,
    batch_path,
    batches_of,
    publish,
    waiting_path,
)
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.entries import FileEntry
from ddcli.store.state.manifest import Manifest, home_of, manifest_path, remember
from ddcli.store.state.register import SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from ddcli.store.state.batch_lists import BatchList
    from ddcli.store.state.directory import State


def try_to(action: Callable[[], None]) -> None:
    """Do an action that may fail: the first error is the one to report."""
    try:
        action()
    except EngineError:
        return


COMMITTED = "the run is committed, but not all of its outputs may be there yet; free space or fix the disk, then run again to finish"


@frozen
class StateFiles:
    """Files in a state's directory that a task has written: all their paths, the sizes of its bundles by their names, and the index of its batches."""

    paths: tuple[Path, ...] = ()
    bundles: Mapping[str, int] = field(default_factory=dict)
    index: BatchList | None = None


class Transaction:
    """One commit in the making: files are added, outputs' files under temporary names, then `commit` makes them count all at once.

    Files may be added by several threads at once; `commit` and `abort` are called when all of them are done. A file's name
    has the number of the commit and of the file in its directory, so that a retry overwrites the files of a dead attempt.
    A transaction that is left without a commit, or fails before its manifest is in place, removes all its files.
    Paths of outputs have no links: they were resolved when the request was read, and a link that comes later is refused.
    """

    def __init__(self, state: State, *, bundled: bool = False, of: Sequence[Transaction] = ()) -> None:
        self.state = state
        self.bundled = bundled
        self.number = (state.manifest.number if state.manifest else 0) + 1
        self._files = state.files
        self._batches: list[Path] = []
        """The files of the state: no manifest names them, so they have their own names at once."""
        self._pending = PendingWrites(self._files)
        self._outputs: list[tuple[Path, Path]] = []
        self._first: list[tuple[Path, Path]] = []
        self._retired: list[tuple[Path, Path]] = []
        self._made: list[Path] = []
        self._moved: list[Path] = []
        """The files in folders that wait for their names."""
        self._joint: list[JointFile] = []
        self._mark = state.lock.mark
        self._added: Counter[str] = Counter()
        self._small: dict[tuple[str, int, str], bytes] = {}
        self._room = FULL
        self._bytes = 0
        """The bytes of the batches that this process has added."""
        self._bundles: dict[str, int] = {}
        """The bundles of tasks, with their sizes."""
        self.erases = False
        """True: no bundle stays that has batches which are out of use."""
        self._indices: list[BatchList] = []
        self._opened = OpenBundles()
        self._adding = threading.Lock()
        self._open = True
        self._elsewhere: tuple[Path, ...] | None = None
        self._staged = of
        for each in of:
            self._take(each)

    def add_batch(self, arrangement: str, shard: int, data: bytes | memoryview) -> tuple[str, Written]:
        """Write a batch file of an arrangement's shard, or keep it for the commit's bundle; return its name, and its size and checksum."""
        name, size = self._next(f"{arrangement}/{shard}", "parquet"), memoryview(data).nbytes
        with self._adding:
            self._bytes += size
            if self.bundled and size <= self._room and fits(inside(arrangement, shard, name), size):
                self._room -= size
                self._small[arrangement, shard, name] = bytes(data)
                return name, Written(size, checksum(data))
        path = batch_directory(self.state.directory, arrangement, shard) / name
        return name, self._add_named(path, data)

    def add_ledger(self, data: bytes | memoryview, rows: int, footer: str) -> FileEntry:
        """Write a file of an input's ledger, with so many rows and this checksum of its footer; return its entry."""
        name = self._next(LEDGER, "parquet")
        written = self._add_named(self.state.directory / LEDGER / name, data)
        return FileEntry(name, rows, written.size, written.checksum, None, (), footer=footer)

    def take_out(self, arrangement: str, shard: int, file: FileEntry) -> FileEntry:
        """Extract a bundled batch to a file of its own; return its entry. A batch that has its own file, or that a branch has from main, stays as it is."""
        directory = self.state.directory
        if not file.bundle or home_of(directory, file.name) != directory:
            return file
        data = self._opened.read_checked(batch_path(directory, arrangement, shard, file), file)
        self._add_named(batch_directory(directory, arrangement, shard) / file.name, data)
        return alone(file)

    def _gathered(self, manifest: Manifest) -> Manifest:
        """Write this commit's bundle, with the batches left in worn bundles; return the manifest with the new places."""
        known = self._bundles | (self.state.manifest.bundles if self.state.manifest else {})
        alive: Counter[str] = Counter()
        for _, _, file in batches_of(manifest):
            if file.bundle:
                alive[file.bundle] += footprint(file.size)
        emptied = worn({name: (known[name], alive[name]) for name in alive}, self._bytes)
        if self.erases:
            emptied |= {name for name in alive if known[name] > alive[name] + len(END)}
        left = {name: size for name, size in known.items() if name in alive and name not in emptied}
        path = self.state.directory / BUNDLES / f"{self.number:09d}{self._mark}.tar"
        bundle = Bundle()

        def place(identity: str, shard: int, file: FileEntry) -> FileEntry:
            if file.bundle in emptied:
                data = self._opened.read_checked(batch_path(self.state.directory, identity, shard, file), file)
            elif (identity, shard, file.name) in self._small:
                data = self._small[identity, shard, file.name]
            else:
                return file
            return replace(file, bundle=path.name, at=bundle.add(inside(identity, shard, file.name), data))

        if not emptied and not self._small:
            return replace(manifest, bundles=left)
        entries = {}
        for identity, entry in manifest.arrangements.items():
            shards = [tuple(place(identity, at, file) for file in files) for at, files in enumerate(entry.shards)]
            entries[identity] = replace(entry, shards=tuple(shards))
        if bundle.size:
            left[path.name] = self._add_named(path, bundle.content()).size
        return replace(manifest, arrangements=entries, bundles=left)

    def _add_segment(self, data: bytes) -> tuple[str, Written]:
        """Write a segment of a register; return its name, and its size and checksum."""
        name = self._next(SEGMENTS, "json")
        return name, self._add_named(self.state.directory / SEGMENTS / name, data)

    def _next(self, place: str, ending: str) -> str:
        """Return the name of the next file in a directory of the state."""
        with self._adding:
            self._added[place] += 1
            return f"{self.number:09d}-{self._added[place] - 1:04d}{self._mark}.{ending}"

    def add_output(self, path: Path, data: bytes | memoryview, *, first: bool = False) -> Written:
        """Write a file that appears as `path` with the commit. Progress appears last, after the files that it covers.

        A file that is to appear `first` does so before any file is taken from its readers: it names those that it stands for.
        """
        waiting = self._wait(self._first if first else self._outputs, path)
        return self._pending.add(waiting, data)

    def join_output(self, path: Path, expected: int = 0) -> JointFile:
        """Return a file to add parts to, of the `expected` bytes at least, which appears as `path` with the commit."""
        waiting = self._wait(self._outputs, path)
        joint = JointFile(self._files, waiting, expected)
        self._joint.append(joint)
        return joint

    def link_output(self, source: Path, path: Path) -> None:
        """Add a file that exists elsewhere, and never changes, under another name; it appears as `path` with the commit."""
        self._files.link(source, self._wait(self._outputs, path))

    def link_folder(self, sources: Sequence[Path], folder: Path) -> None:
        """Add the files of a large commit that exist elsewhere, in their order, as `link_output` adds one."""
        waiting = {waiting_path(folder / source.name, self.number, self._mark): source for source in sources}
        self._begin(folder)
        one_by_one(lambda path: self._files.link(waiting[path], path), list(waiting))
        self.adopt_folder(list(waiting), folder)

    def withdraw_file(self, path: Path) -> Path:
        """Return the temporary file of a file that was added, and is not to appear after all: the caller reads and removes it."""
        self._pending.finish()
        waiting = next(source for source, target in self._outputs if target == path)
        self._outputs = [pair for pair in self._outputs if pair[0] != waiting]
        return waiting

    def retire(self, path: Path) -> None:
        """Take a file of an output from its readers with the commit: it gets a name that waits, and is removed like others of the kind."""
        self._retired.append((path, waiting_path(path, self.number, self._mark)))

    @property
    def unpublished(self) -> Sequence[tuple[Path, Path]]:
        """The files of outputs that have been added, each with its final path."""
        return self._outputs

    def expect(self, outputs: Iterable[Path]) -> None:
        """Expect that other processes write files, too (see `attempt`), and files of outputs into these directories.

        Files of failed attempts have unknown names, so if the transaction fails, the state is swept.
        """
        self._elsewhere = tuple(map(real, outputs))

    def adopt(self, files: StateFiles) -> None:
        """Add files of the state that a task has written."""
        assert self._open, "the transaction has ended"
        self._batches += files.paths
        self._bundles |= files.bundles
        self._indices += [files.index] if files.index is not None else []

    def adopt_output(self, waiting: Path, path: Path) -> None:
        """Add a file of an output that a task has written, with its final path."""
        assert self._open, "the transaction has ended"
        self._outputs.append((waiting, path))

    def adopt_folder(self, waiting: Sequence[Path], folder: Path) -> list[Path]:
        """Add the files of a large commit that tasks have written; return their final paths, in a folder that a file system shows all at once."""
        assert self._open, "the transaction has ended"
        parts = [folder / f"{number:04d}.parquet" for number in range(1, len(waiting) + 1)]
        if not fs(folder).has_directories:
            self._outputs += zip(waiting, parts, strict=True)
            return parts
        aside = self._wait(self._outputs, folder)
        self._made += self._files.make_directory(aside, flush=False)
        for source, part in zip(waiting, parts, strict=True):
            self._moved.append(aside / part.name)
            self._files.rename(source, self._moved[-1])
        return parts

    def commit(self, manifest: Manifest) -> Manifest:
        """Make the transaction's files and this manifest count; return it as written, with its number and renames.

        The order makes it safe: files and their names are on the disk before the manifest that names them;
        the manifest's rename is the commit; outputs are renamed after it; files that no manifest names are removed last.
        An EngineError raised after the manifest's rename leaves a committed state that the next `State.open` completes.
        """
        assert self._open, "a transaction commits once"
        if self.state.staged is not None:
            return self._stage(manifest)
        directory = self.state.directory
        # In an order that doesn't depend on the order of threads: the same run writes the same manifest.
        self._outputs.sort(key=lambda pair: (pair[1].name == PROGRESS, pair[1]))
        renamings = [*self._first, *self._retired, *self._outputs]
        pairs = tuple((relative(source, directory), relative(target, directory)) for source, target in renamings)
        final = manifest_path(directory, self.number)
        waiting = temporary(final, self.number)
        try:
            manifest = self._gathered(manifest).stored(self.state.manifest, self._add_segment, self._indices)
            manifest = manifest.numbered(self.number, pairs, self.state.identity)
            self._made += self._files.make_directory(final.parent, flush=False)
            data = manifest.to_bytes()
            self._prepare(data, final, waiting)
        except BaseException as error:
            self._open = False
            # Else the rename itself was interrupted, after it was done: the waiting files belong to a commit, and the next run publishes them.
            if isinstance(error, LockedError) or not fs(final).exists():
                self.abort()
            raise
        self._open = False
        remember(final, data, manifest)
        before, self.state.manifest, self.state.replaced = self.state.manifest, manifest, None
        try:
            self._files.sync_directory(final.parent)
            publish(self._files, renamings)
            if self._retired or self._staged:
                self.state.sweep()
            else:
                self.state.drop(before, self._batches if self._elsewhere is not None else ())
        except EngineError as error:
            error.hint = COMMITTED
            raise
        return manifest

    def _stage(self, manifest: Manifest) -> Manifest:
        """Put the manifest in force for this process alone, until `joined` ends: its files wait for a later commit."""
        manifest = self._gathered(manifest).stored(self.state.manifest, self._add_segment, self._indices)
        self._pending.finish()
        self._open = False
        assert self.state.staged is not None, "commits that wait"
        self.state.staged.append(self)
        self.state.manifest = manifest.numbered(self.number, (), self.state.identity)
        return self.state.manifest

    def _take(self, other: Transaction) -> None:
        """Take the files of a commit that has waited, in the order of commits; a file that appears twice appears as the later one."""
        self._batches += other._batches
        self._made += other._made
        self._moved += other._moved
        self._first += other._first
        self._retired += other._retired
        later = {target for _, target in other._outputs}
        for waiting in [source for source, target in self._outputs if target in later]:
            self._files.remove(waiting)
        self._outputs = [pair for pair in self._outputs if pair[1] not in later] + other._outputs
        if other._elsewhere is not None:
            self.expect((*(self._elsewhere or ()), *other._elsewhere))

    def abort(self) -> None:
        """Remove all written files. The next `State.open` removes those that can't be removed now."""
        self._open = False
        waiting = temporary(manifest_path(self.state.directory, self.number), self.number)
        for joint in self._joint:
            try_to(joint.close)
        try_to(self._pending.finish)  # else a file might appear after its removal
        folders = {path.parent for path in self._moved}
        sources = (source for source, _ in (*self._first, *self._outputs) if source not in folders)
        written = [*self._batches, *self._moved, *sources, waiting]
        one_by_one(lambda path: try_to(partial(self._files.remove, path)), written)
        for directory in reversed(self._made):
            try_to(partial(self._files.remove_directory, directory))
        if self._elsewhere is not None:
            try_to(partial(self.state.sweep, self._elsewhere))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.abort()

    def _add_named(self, path: Path, data: bytes | memoryview) -> Written:
        """Write a file of the state under its own name, which no manifest has; it replaces the file of a dead attempt."""
        with self._adding:
            self._begin(path)
            self._batches.append(path)
        return self._pending.add(path, data)

    def _wait(self, pairs: list[tuple[Path, Path]], path: Path) -> Path:
        """Return the path under which a file's content waits for the commit."""
        waiting = waiting_path(path, self.number, self._mark)
        with self._adding:
            self._begin(path)
            pairs.append((waiting, path))
        return waiting

    def _begin(self, path: Path) -> None:
        """Make the directory of a file; to be noted before it is written, so that a torn one is removed, too.

        One thread at a time: two must not both make a directory, as each would remove it.
        """
        assert self._open, "the transaction has ended"
        self._made += self._files.make_directory(path.parent, flush=False)

    def _prepare(self, data: bytes, final: Path, waiting: Path) -> None:
        """Put every file and its name on the disk, then the manifest `data`.

        Everything is flushed at the same time, contents and names alike: each file has been made, and none of it counts before the manifest
        has its name, which comes last. So the flushes may end in any order, and the power may fail at any time.
        """
        alone = fs(final).is_durable
        self._pending.finish()
        outputs = self._first + self._outputs
        written = [*self._batches, *(source for source, _ in outputs)]
        named = [*self._batches, *self._moved, *(target for _, target in outputs), *self._made]
        directories = {path.parent for path in named}
        if not alone:
            self._files.write(waiting, data)
            written.append(waiting)

        def flush(path: Path) -> None:
            if path in directories:
                self._files.sync_directory(path)
            else:
                self._files.sync(path)

        side_by_side(flush, [*(path for path in written if path not in directories), *sorted(directories)])
        self.state.check_locks()
        if alone:
            self._files.create(final, data, waiting)
        else:
            self._files.rename(waiting, final)
