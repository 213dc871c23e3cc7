"""Copies of a state: its branches, which share files with it, and exports into other directories.

A branch is a state of its own in `branches/<name>@<commit>/`, whose manifest also names files of the state that it began from.
Files of a state never change, and their names begin with the number of their commit. A branch counts on from the commit that it began at, so
a name alone shows whose file it is (see `document.home_of`), and beginning one copies no batch. A hold on main names that commit's manifest as long as the branch exists:
sweeps spare it and its files, and nothing that main computes depends on it. The logs of its outputs are linked, as readers take all files of a directory.

A branch that died before its first commit has no manifest, and counts as none; the next one of its name removes what it left.

An export takes no lock: runs may go on meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from ddcli.errors import EngineError, StateError, UsageError, suggestion
from ddcli.store.batch.checked_files import RESTORE, read_checked
from ddcli.store.files.access import fs, locate, real, relative
from ddcli.store.files.gate import Files, one_by_one, temporary
from ddcli.store.files.lock import take_lock
from ddcli.store.state.batch_lists import alone
from ddcli.store.state.contents import batch_directory, batch_path, batches_of, ledger_files, ledger_path
from ddcli.store.state.directory import BRANCH as BRANCH_HOLD
from ddcli.store.state.directory import Hold, State, find_hold, holding, new_identity, release, write_hold
from ddcli.store.state.document import BRANCH, BRANCHES
from ddcli.store.state.entries import Size, log_identity
from ddcli.store.state.manifest import Manifest, branch_of, manifest_path, read_manifest, read_newest
from ddcli.store.state.outputs import Owner, check_outputs, output_paths, read_owned, relative_file, write_progress
from ddcli.store.state.removal import find_removal, remove
from ddcli.store.state.upkeep import manifest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ddcli.store.files.lock import IfLocked, Lock, ObjectLock
    from ddcli.store.state.entries import FileEntry, OutputEntry
    from ddcli.store.state.transaction import Transaction

    Places = Callable[[Path], Mapping[str, Path]]


def find_branches(state: Path) -> dict[str, Path]:
    """Return the directories of a state's branches by their names."""
    return {name: path for name, path in _directories(state) if read_newest(path) is not None}


def find_branch(state: Path, name: str) -> Path:
    """Return the directory of a branch. Raises UsageError if there is none of this name."""
    found = find_branches(state)
    if name not in found:
        if name in dict(_directories(state)) or find_hold(state, BRANCH_HOLD + name) is not None:
            hint = f"one was begun or dropped halfway: `dd branch drop {name} PIPELINE` removes what is left of it"
            raise UsageError(f"the state has no branch '{name}'", place=str(state), hint=hint)
        made = f"branches: {', '.join(found)}" if found else "`dd branch new NAME PIPELINE` makes one"
        raise UsageError(f"the state has no branch '{name}'", place=str(state), hint=suggestion(name, found, made))
    return found[name]


def begin_branch(
    main: State, name: str, places: Places, file: Path, if_locked: IfLocked, link_inputs: Callable[[Path], None]
) -> tuple[Path, Manifest]:
    """Begin a branch at the newest commit of a state that this process has opened; return its directory and its first manifest.

    `places` returns the directories of its outputs, `file` is its pipeline file, `link_inputs` gives its directory what main's has of inputs. Raises UsageError if there is a branch of this name.
    """
    manifest, files = main.manifest, main.files
    assert manifest is not None, "a state without a commit has no branches"
    for other, path in _directories(main.directory):
        if other == name and read_newest(path) is not None:
            raise UsageError(
                f"there is a branch '{name}' already",
                place=str(path),
                hint=f"choose another name, or drop it: `dd branch drop {name} PIPELINE`",
            )
    end_branch(main.directory, name, places, if_locked)
    directory = main.directory / BRANCHES / f"{name}@{manifest.number:09d}"
    outputs = places(directory)
    hold = Hold(BRANCH_HOLD + name, str(directory), (), (), (), manifest.number)
    try:
        with holding(main.directory, files):
            write_hold(main.directory, hold, files)
        files.make_directory(directory)
        lock = take_lock(directory, files, if_locked)
        with State(directory, lock, files, frozenset(outputs.values()), new_identity()) as branch:
            branch.manifest = manifest
            branch.lock_outputs(outputs.values(), if_locked)
            branch.sweep(outputs.values())
            check_outputs(directory, None, outputs)
            link_inputs(directory)
            with branch.begin() as transaction:
                sources = output_paths(main.directory, manifest)
                made = {
                    each: _linked(transaction, sources[each], outputs[each], entry, manifest)
                    for each, entry in manifest.outputs.items()
                }
                begun = replace(manifest, outputs=made, file=relative_file(directory, file))
                return directory, transaction.commit(begun)
    except BaseException:
        if read_newest(directory) is None:
            end_branch(main.directory, name, places, if_locked)
        raise


def _linked(
    transaction: Transaction, source: Path, target: Path, entry: OutputEntry, manifest: Manifest
) -> OutputEntry:
    """Add the files of an output's log, and its progress, to a branch; return the entry of the log there."""
    transaction.state.files.make_directory(target)
    for folder, group in groupby(entry.files, lambda file: file.name.rpartition("/")[0]):
        names = [file.name for file in group]
        if folder:
            transaction.link_folder([source / each for each in names], target / folder)
        else:
            one_by_one(
                lambda path: transaction.link_output(source / path.name, path), [target / each for each in names]
            )
    _, owner = read_owned(real(source))
    log = log_identity(entry.log, transaction.number)
    write_progress(transaction, target, manifest.upper, (owner or Owner(horizon=entry.horizon))._replace(log=log))
    return replace(entry, path=relative(target, transaction.state.directory), log=log)


def base_of(directory: Path) -> Manifest:
    """Return the manifest that a branch began at. Raises StateError if main has it no more: then the branch has lost files, too."""
    branch = branch_of(directory)
    assert branch is not None, "a branch's directory"
    main = directory.parent.parent
    try:
        return read_manifest(manifest_path(main, branch[1]))
    except FileNotFoundError:
        raise StateError(
            f"the commit that the branch '{branch[0]}' began at is gone from the state", place=str(main), hint=RESTORE
        ) from None


def end_branch(
    state: Path, name: str, places: Places, if_locked: IfLocked, lock: Lock | ObjectLock | None = None
) -> int:
    """Remove the states of a name below a main state, with their outputs, and the hold on main; return how many files were removed, the hold among them.

    The caller may hold the `lock` of one of them.

    The hold goes last: until then main keeps the files, so an interrupted removal can be repeated.
    """
    count = 0
    for other, directory in _directories(state):
        if other != name:
            continue
        manifest = read_newest(directory)
        # A branch whose edit renamed an output has the log of its former name, too.
        outputs = {**places(directory), **(output_paths(directory, manifest) if manifest else {})}
        find = partial(find_removal, directory, manifest, outputs)
        found = find()
        own = lock if lock is not None and lock.path.parent == directory else None
        remove(found, find, if_locked=if_locked, lock=own)
        count += found.count
    if find_hold(state, BRANCH_HOLD + name) is not None:
        release(state, BRANCH_HOLD + name, Files())
        count += 1
    return count


def _directories(state: Path) -> list[tuple[str, Path]]:
    """Return the directories of branches, whether or not they have a commit, each with its name."""
    found = [entry.path for entry in fs(state / BRANCHES).entries(BRANCH) if entry.directory]
    return [(branch[0], path) for path in found if (branch := branch_of(path)) is not None]


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
    if fs(target).entries() or (fs(target).exists() and not fs(target).is_dir()):
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
