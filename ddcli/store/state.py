"""The state directory: opening it under the lock, finishing what a dead run left, and committing the next manifest.

A commit happens wholly or not at all. Until the rename of the manifest nothing that a reader looks at has changed; from
then on the state and the outputs are the new ones, and what remains to be done (renaming outputs, dropping files) is
written in the manifest and done again by whoever opens the state next.
"""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from ddcli.errors import EngineError, LockedError, StateError
from ddcli.store.files import TEMPORARY, Files, Written, temporary
from ddcli.store.holds import holding, read_claims
from ddcli.store.lock import IfLocked, Lock, take_lock
from ddcli.store.manifest import FileEntry, Manifest, manifest_numbers, manifest_path, read_manifest, read_newest
from ddcli.store.objects import locate, relative
from ddcli.store.progress import PROGRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from ddcli.store.object_lock import ObjectLock

SPILL = "spill"
"""The directory of a state in which a run puts away what it needs later: nothing in it outlives the run."""
UPDATES = "updates-"
"""How the names of an output log's files begin."""

COMMITTED = "the run is committed, but not all of its outputs may be there yet; free space or fix the disk, then run again to finish"


class State:
    """An open state: the lock is held and the newest manifest (`manifest`, None before the first commit) is in force."""

    def __init__(self, directory: Path, lock: Lock | ObjectLock, files: Files) -> None:
        self.directory = directory
        self.files = files
        self.manifest: Manifest | None = None
        self.lock = lock

    @classmethod
    def open(
        cls,
        directory: Path,
        outputs: Mapping[str, Path],
        *,
        if_locked: IfLocked = "fail",
        files: Files | None = None,
    ) -> Self:
        """Lock a state, read its manifest, and finish or clear away what a run that died has left.

        `outputs` are the directories that the pipeline's outputs go to: they must hold the files that the manifest names
        and no other updates, else the sums of their rows would be wrong from here on.
        Raises LockedError (75) and StateError (4: damaged, newer, or state and outputs don't belong together).
        """
        files = files or Files()
        # Paths in the manifest are relative, so both sides must be free of links to be compared.
        directory, outputs = directory.resolve(), {name: path.resolve() for name, path in outputs.items()}
        read_newest(directory)  # what can't be read is refused before anything is made or changed
        files.make_directory(directory)
        state = cls(directory, take_lock(directory, files, if_locked), files)
        try:
            state.manifest = read_newest(directory)
            if state.manifest is not None:
                publish(state.files, directory, state.manifest)
            # Before anything is swept away: put back, a lost manifest finds its files again, and outputs may be another state's.
            check_outputs(directory, state.manifest, outputs)
            state._clear(outputs)
        except BaseException:
            state.close()
            raise
        return state

    def close(self) -> None:
        """Release the lock."""
        self.lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> Transaction:
        """Return the transaction of the next manifest. Nothing is written before something is added to it."""
        return Transaction(self)

    def _clear(self, outputs: Mapping[str, Path]) -> None:
        """Remove what runs have left that did not come to their end."""
        if self.lock.sole:
            if (self.directory / SPILL).is_dir():
                for path in _entries(self.directory / SPILL):
                    self.files.remove(path)
                self.files.remove_directory(self.directory / SPILL)
            self.sweep(outputs.values())

    def sweep(self, outputs: Iterable[Path] = ()) -> None:
        """Remove every file of the state that the manifest in force doesn't name, and every temporary file of outputs.

        A manifest by which another pipeline may be reading is left, with its files.
        """
        if not (self.directory / "holds").is_dir():  # nobody ever read
            self._sweep(outputs, frozenset())
            return
        with holding(self.directory, self.files):
            self._sweep(outputs, read_claims(self.directory).manifests)

    def _sweep(self, outputs: Iterable[Path], held: frozenset[int]) -> None:
        number = self.manifest.number if self.manifest else 0
        for path in _entries(self.directory / "manifest"):
            if path.name.endswith(TEMPORARY):
                self.files.remove(path)
        for older in manifest_numbers(self.directory):
            if older < number and older not in held:
                self.files.remove(manifest_path(self.directory, older))
        kept = [read_manifest(manifest_path(self.directory, older)) for older in sorted(held) if older < number]
        named = {
            path for each in (self.manifest, *kept) if each is not None for path, _ in batch_files(self.directory, each)
        }
        for arrangement in _entries(self.directory / "arrangements"):
            for shard in _entries(arrangement):
                for path in _entries(shard):
                    if path not in named:
                        self.files.remove(path)
                if not _entries(shard):
                    self.files.remove_directory(shard)
            if not _entries(arrangement):
                self.files.remove_directory(arrangement)
        known = output_paths(self.directory, self.manifest).values() if self.manifest else ()
        for directory in {*outputs, *known}:
            for path in _entries(directory):
                if path.name.startswith(".") and path.name.endswith(TEMPORARY):
                    self.files.remove(path)


class Adding(Protocol):
    """Takes the batch files of the next manifest."""

    def add_batch(self, arrangement: str, shard: int, data: bytes | memoryview) -> tuple[str, Written]:
        """Write a batch file of an arrangement's shard; return its name and what was written."""


class Transaction:
    """One commit in the making: files are added under temporary names, then `commit` makes them count all at once.

    Files may be added by several threads at once; `commit` and `abort` are called when all of them are done. A file's name
    tells the commit and which of its directory's files it is, so that a retry overwrites what a dead attempt left.
    A transaction that is left without a commit, or fails before its manifest is in place, removes all it wrote.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.number = (state.manifest.number if state.manifest else 0) + 1
        self._files = state.files
        self._batches: list[tuple[Path, Path]] = []
        self._outputs: list[tuple[Path, Path]] = []
        self._made: list[Path] = []
        self._mark = state.lock.mark
        self._added: Counter[Path] = Counter()
        self._adding = threading.Lock()
        self._open = True
        self._elsewhere: tuple[Path, ...] | None = None

    def add_batch(self, arrangement: str, shard: int, data: bytes | memoryview) -> tuple[str, Written]:
        """Write a batch file of an arrangement's shard; return its name and what was written."""
        directory = batch_directory(self.state.directory, arrangement, shard)
        with self._adding:
            path = directory / f"{self.number:09d}-{self._added[directory]:04d}{self._mark}.parquet"
            self._added[directory] += 1
        return path.name, self._add(self._batches, path, data)

    def add_output(self, path: Path, data: bytes | memoryview) -> Written:
        """Write a file that appears as `path` with the commit. Progress appears last: the files that it speaks of are there then."""
        return self._add(self._outputs, path, data)

    def expect(self, outputs: Iterable[Path]) -> None:
        """Learn that other processes write files, too (see `attempt`), those of outputs into these directories.

        Files of attempts that failed have names that nobody knows, so if the transaction fails, the state is swept.
        """
        self._elsewhere = tuple(path.resolve() for path in outputs)

    def adopt(self, batches: Iterable[tuple[Path, Path]], outputs: Iterable[tuple[Path, Path]]) -> None:
        """Add files that others have written: where each is, and what its path is to be."""
        assert self._open, "the transaction has ended"
        self._batches += batches
        self._outputs += outputs

    def commit(self, manifest: Manifest) -> Manifest:
        """Make the transaction's files and this manifest count; return it as written, with its number and renames.

        The order is what makes it safe: files and their names are on the disk before the manifest that names them is;
        the manifest's rename is the commit; outputs are renamed after it; what no manifest names goes last.
        An EngineError raised after the manifest's rename leaves a committed state that the next `State.open` completes.
        """
        assert self._open, "a transaction commits once"
        directory = self.state.directory
        # In an order that doesn't hang on which thread came first: the same run writes the same manifest.
        self._outputs.sort(key=lambda pair: (pair[1].name == PROGRESS, pair[1]))
        pairs = tuple((relative(source, directory), relative(target, directory)) for source, target in self._outputs)
        manifest = manifest.numbered(self.number, pairs)
        final = manifest_path(directory, self.number)
        try:
            self._prepare()
            self._made += self._files.make_directory(final.parent)
            self.state.lock.check()
            self._files.create(final, manifest.to_bytes(), temporary(final, self.number))
        except BaseException as error:
            # Else the rename itself was interrupted, after it was done.
            if isinstance(error, LockedError) or not final.exists():
                self.abort()
            raise
        self._open = False
        self.state.manifest = manifest
        try:
            self._files.sync_directory(final.parent)
            publish(self._files, directory, manifest)
            self.state.sweep()
        except EngineError as error:
            error.hint = COMMITTED
            raise
        return manifest

    def abort(self) -> None:
        """Remove all that was written. Whatever can't be removed now, the next `State.open` removes."""
        self._open = False
        waiting = temporary(manifest_path(self.state.directory, self.number), self.number)
        for path in [
            waiting,
            *(path for pair in self._batches for path in pair),
            *(source for source, _ in self._outputs),
        ]:
            _try(partial(self._files.remove, path))
        for directory in reversed(self._made):
            _try(partial(self._files.remove_directory, directory))
        if self._elsewhere is not None:
            _try(partial(self.state.sweep, self._elsewhere))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.abort()

    def _add(self, pairs: list[tuple[Path, Path]], path: Path, data: bytes | memoryview) -> Written:
        assert self._open, "the transaction has ended"
        waiting = temporary(path, self.number, self._mark)
        with self._adding:  # two threads must not both make a directory: each would remove it
            self._made += self._files.make_directory(path.parent)
            pairs.append((waiting, path))  # before the write, so that a torn file is removed too
        return self._files.write(waiting, data)

    def _prepare(self) -> None:
        """Put every file and its name on the disk. Batches get their final names now: nobody looks before a manifest names them."""
        for source, _ in self._batches + self._outputs:
            self._files.sync(source)
        for source, target in self._batches:
            self._files.rename(source, target)
        for directory in sorted({target.parent for _, target in self._batches + self._outputs}):
            self._files.sync_directory(directory)


def publish(files: Files, directory: Path, manifest: Manifest) -> None:
    """Give the outputs of a commit their final names. Done again, it does nothing: what is renamed has no temporary file left."""
    waiting = unpublished(directory, manifest)
    for source, target in waiting:
        files.rename(source, target)
    for parent in sorted({target.parent for _, target in waiting}):
        files.sync_directory(parent)


def unpublished(directory: Path, manifest: Manifest) -> list[tuple[Path, Path]]:
    """Return the renames that a commit still has to do: with any, a run must open the state even if no input is new."""
    pairs = [(locate(directory, source), locate(directory, target)) for source, target in manifest.publish]
    return [pair for pair in pairs if pair[0].exists()]


def output_paths(directory: Path, manifest: Manifest) -> dict[str, Path]:
    """Return where each output of a manifest lies."""
    return {name: locate(directory, output.path) for name, output in manifest.outputs.items()}


def batch_files(directory: Path, manifest: Manifest) -> Iterator[tuple[Path, FileEntry]]:
    """Yield every batch file that a manifest names."""
    for name, arrangement in manifest.arrangements.items():
        for shard, files in enumerate(arrangement.shards):
            for file in files:
                yield batch_directory(directory, name, shard) / file.name, file


def batch_directory(directory: Path, arrangement: str, shard: int) -> Path:
    """Return where the batch files of an arrangement's shard lie."""
    return directory / "arrangements" / arrangement / str(shard)


def output_files(directory: Path, manifest: Manifest) -> Iterator[tuple[Path, FileEntry]]:
    """Yield every output file that a manifest names."""
    paths = output_paths(directory, manifest)
    for name, output in manifest.outputs.items():
        for file in output.files:
            yield paths[name] / file.name, file


def check_outputs(directory: Path, manifest: Manifest | None, outputs: Mapping[str, Path]) -> None:
    """Refuse a state and outputs that don't belong together (StateError): their sums would be wrong from here on.

    Looks at names only; `dd state verify` looks at bytes. Safe without the lock when nothing is unpublished.
    """
    named = set()
    there = {
        name: _entries(output) for name, output in outputs.items()
    }  # one look at each: a log has thousands of files
    for name, before in (same_outputs(directory, manifest, outputs) if manifest else {}).items():
        found = set(there[name])
        for file in manifest.outputs[before].files if manifest else ():
            path = outputs[name] / file.name
            named.add(path)
            if path not in found:
                raise StateError(
                    f"a file of output '{name}' that the state names is gone",
                    place=str(path),
                    hint="put it back, or remove the state and the outputs to compute them anew",
                )
    for name, paths in there.items():
        for path in paths:
            if path in named or not (path.name.startswith(UPDATES) or path.name == PROGRESS):
                continue
            if manifest is None:
                raise StateError(
                    f"output '{name}' exists, but the state that it was written from is missing",
                    place=str(path),
                    hint=f"put the state back at '{directory}', or remove the output's files to write it from the beginning",
                )
            if path.name != PROGRESS:
                raise StateError(
                    f"output '{name}' holds updates that the state doesn't know of",
                    place=str(path),
                    hint="put back the state that wrote them, or remove the file if it doesn't belong there",
                )


def same_outputs(directory: Path, manifest: Manifest, outputs: Mapping[str, Path]) -> dict[str, str]:
    """Return what a state calls each of the outputs that it knows: by where it is written, or where its files were moved to."""
    paths = {path.resolve(): name for name, path in output_paths(directory, manifest).items()}
    found = {name: paths[path.resolve()] for name, path in outputs.items() if path.resolve() in paths}
    for name in manifest.outputs.keys() & outputs.keys() - found.keys() - set(found.values()):
        files = manifest.outputs[name].files
        if files and all((outputs[name] / file.name).exists() for file in files):
            found[name] = name
    return found


def relative_output(directory: Path, output: Path) -> str:
    """Return an output's path as an `OutputEntry` keeps it: relative to the state, so that a moved folder stays whole."""
    return relative(output.resolve(), directory.resolve())


def _entries(directory: Path) -> list[Path]:
    """Return what lies in a directory, in order; nothing where there is none."""
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _try(action: Callable[[], None]) -> None:
    """Do what may fail: there is an error under way already, and it is the one to be told."""
    try:
        action()
    except EngineError:
        return
