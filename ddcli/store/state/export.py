"""A copy of a state in another directory, made without the lock: runs may go on meanwhile."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.errors import EngineError, StateError, UsageError
from ddcli.store.files.access import entries, is_directory, is_there, real
from ddcli.store.files.gate import Files, temporary
from ddcli.store.files.lock import take_lock
from ddcli.store.files.objects import locate, relative
from ddcli.store.state.batch_lists import alone
from ddcli.store.state.contents import batch_directory, batch_path, batches_of, ledger_files, ledger_path
from ddcli.store.state.entries import Size
from ddcli.store.state.manifest import Manifest, manifest_path
from ddcli.store.state.outputs import output_paths
from ddcli.store.state.upkeep import manifest_of
from ddcli.store.state.verify import read_checked

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.store.files.lock import Lock, ObjectLock
    from ddcli.store.state.entries import FileEntry


def export_state(directory: Path, target: Path, *, files: Files | None = None) -> tuple[Manifest, Size]:
    """Copy the newest manifest of a state and its batches into a new or empty directory; return it, and the size of the files.

    The files that a manifest names never change, and only a newer commit removes them: when a file is gone, the copy continues with the
    newer manifest, and keeps the files that it has. The manifest comes last, so a copy that dies leaves no state; a copy that
    fails removes its files. Takes memory for one file.

    Outputs stay where they are, and the copy names their places.
    Raises UsageError for a target that is neither new nor empty, StateError for a damaged file, EngineError for one that can't be written.
    """
    directory, target = real(directory), real(target)
    copy = _Copy(directory, target, files or Files())
    manifest = manifest_of(directory)
    if entries(target) or (is_there(target) and not is_directory(target)):
        raise UsageError(
            "the target is neither new nor an empty directory",
            place=str(target),
            hint="name a new directory, or an empty one",
        )
    try:
        copy.begin()
        while True:
            try:
                return copy.take(manifest)
            except StateError:
                newer = manifest_of(directory)
                if newer.number == manifest.number:
                    raise
                manifest = newer
    except BaseException:
        copy.remove()
        raise
    finally:
        copy.end()


class _Copy:
    """The files that have been copied, the manifest first."""

    def __init__(self, directory: Path, target: Path, files: Files) -> None:
        self._directory, self._target, self._files = directory, target, files
        self._there: dict[Path, FileEntry] = {}
        self._made: list[Path] = []
        self._manifest: list[Path] = []
        self._lock: Lock | ObjectLock | None = None

    def begin(self) -> None:
        """Take the lock of the copy: it marks the directory as a state, even if the copy dies before it has a manifest."""
        self._made += self._files.make_directory(self._target)
        self._lock = take_lock(self._target, self._files)

    def end(self) -> None:
        """Let the copy be used."""
        if self._lock is not None:
            self._lock.release()

    def take(self, manifest: Manifest) -> tuple[Manifest, Size]:
        """Copy the files that a manifest names and the copy lacks, remove those that it doesn't name, and write the manifest."""
        named = {}
        for name, shard, file in batches_of(manifest):
            place, entry = batch_directory(self._target, name, shard) / file.name, alone(file)
            named[place] = entry
            if self._there.get(place) != entry:
                self._write(place, entry, read_checked(batch_path(self._directory, name, shard, file), file))
        for file in ledger_files(manifest):
            place = ledger_path(self._target, file)
            named[place] = file
            if self._there.get(place) != file:
                self._write(place, file, read_checked(ledger_path(self._directory, file), file))
        for place in self._there.keys() - named.keys():
            self._files.remove(place)
        for folder in sorted({place.parent for place in named}):
            self._files.sync_directory(folder)
        final = manifest_path(self._target, manifest.number)
        half = temporary(final, manifest.number)
        self._made += self._files.make_directory(final.parent)
        self._manifest = [final, half]
        self._files.create(final, self._moved(manifest).to_bytes(), half)
        self._files.sync_directory(final.parent)
        return manifest, Size.of(list(named.values()))

    def remove(self) -> None:
        """Remove all that was written, as far as that can be done; not the files of a manifest that stays."""
        with suppress(EngineError):
            for path in (*self._manifest, *self._there, *([self._lock.path] if self._lock else [])):
                self._files.remove(path)
            for folder in reversed(self._made):
                self._files.remove_directory(folder)

    def _write(self, place: Path, entry: FileEntry, data: bytes) -> None:
        self._made += self._files.make_directory(place.parent)
        self._there[place] = entry  # before the write, so that a torn file is removed too
        self._files.write(place, data)
        self._files.sync(place)

    def _moved(self, manifest: Manifest) -> Manifest:
        """Return the manifest for the copy: its relative paths lead to the same places.

        Its registers are whole in it; their segments and the lists of batches stay behind. Batches of bundles have files of their own. The copy belongs to the pipeline
        file that is first run on it.
        """
        paths = output_paths(self._directory, manifest)
        outputs = {
            name: replace(out, path=relative(paths[name], self._target), files=tuple(out.files))
            for name, out in manifest.outputs.items()
        }
        arrangements = {
            name: replace(entry, shards=tuple(tuple(map(alone, files)) for files in entry.shards))
            for name, entry in manifest.arrangements.items()
        }
        inputs = {name: replace(given, files=tuple(given.files)) for name, given in manifest.inputs.items()}
        publish = (
            tuple(relative(locate(self._directory, text), self._target) for text in pair) for pair in manifest.publish
        )
        return replace(
            manifest,
            inputs=inputs,
            arrangements=arrangements,
            outputs=outputs,
            bundles={},
            file="",
            publish=tuple((source, final) for source, final in publish),
        )
