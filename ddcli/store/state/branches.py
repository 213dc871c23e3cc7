"""Branches of a state: a branch is a state of its own in `branches/<name>@<commit>/`, whose manifest also names files of the state that it began from.

Files of a state never change, and their names begin with the number of their commit. A branch counts on from the commit that it began at, so
a name alone shows whose file it is (see `document.home_of`), and beginning one copies no batch. A hold on main names that commit's manifest as long as the branch exists:
sweeps spare it and its files, and nothing that main computes depends on it. The logs of its outputs are linked, as readers take all files of a directory.

A branch that died before its first commit has no manifest, and counts as none; the next one of its name removes what it left.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from ddcli.errors import StateError, UsageError, did_you_mean
from ddcli.store.files.access import entries, real
from ddcli.store.files.gate import Files, one_by_one
from ddcli.store.files.lock import take_lock
from ddcli.store.log.progress import read_owned
from ddcli.store.log.writer import write_progress
from ddcli.store.state.directory import State, new_identity
from ddcli.store.state.document import BRANCH, BRANCHES, branch_of
from ddcli.store.state.entries import log_identity
from ddcli.store.state.manifest import RESTORE, Manifest, manifest_path, read_manifest, read_newest
from ddcli.store.state.outputs import check_outputs, output_paths, relative_file, relative_output
from ddcli.store.state.removal import find_removal, remove
from ddcli.store.state.shared_arrangements import BRANCH as BRANCH_HOLD
from ddcli.store.state.shared_arrangements import Hold, find_hold, holding, release, write_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.entries import OutputEntry
    from ddcli.store.state.transaction import Transaction

    Places = Callable[[Path], Mapping[str, Path]]


def find_branches(state: Path) -> dict[str, Path]:
    """Return the directories of a state's branches by their names."""
    return {name: path for name, path in _directories(state) if read_newest(path) is not None}


def find_branch(state: Path, name: str) -> Path:
    """Return the directory of a branch. Raises UsageError if there is none of this name."""
    found = find_branches(state)
    if name not in found:
        near = did_you_mean(name, found)
        if name in dict(_directories(state)) or find_hold(state, BRANCH_HOLD + name) is not None:
            hint = f"one was begun or dropped halfway: `dd branch drop {name} PIPELINE` removes what is left of it"
            raise UsageError(f"the state has no branch '{name}'", place=str(state), hint=hint)
        made = f"branches: {', '.join(found)}" if found else "`dd branch new NAME PIPELINE` makes one"
        hint = f"did you mean '{near}'?" if near else made
        raise UsageError(f"the state has no branch '{name}'", place=str(state), hint=hint)
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
            one_by_one(partial(_link, transaction, source), [target / each for each in names])
    _, owner = read_owned(real(source))
    log = log_identity(entry.log, transaction.number)
    reopenings, horizon, order = (owner.reopenings, owner.horizon, owner.order) if owner else (0, entry.horizon, ())
    tags = owner.tags if owner else None
    write_progress(transaction, target, manifest.upper, reopenings, horizon, order, log, tags)
    return replace(entry, path=relative_output(transaction.state.directory, target), log=log)


def _link(transaction: Transaction, source: Path, path: Path) -> None:
    transaction.link_output(source / path.name, path)


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


def end_branch(state: Path, name: str, places: Places, if_locked: IfLocked) -> int:
    """Remove the states of a name below a main state, with their outputs, and the hold on main; return how many files were removed, the hold among them.

    The hold goes last: until then main keeps the files, so an interrupted removal can be repeated.
    """
    count = 0
    for other, directory in _directories(state):
        if other != name:
            continue
        manifest = read_newest(directory)
        outputs = output_paths(directory, manifest) if manifest else places(directory)
        find = partial(find_removal, directory, manifest, outputs)
        found = find()
        remove(found, find, if_locked=if_locked)
        count += found.count
    if find_hold(state, BRANCH_HOLD + name) is not None:
        release(state, BRANCH_HOLD + name, Files())
        count += 1
    return count


def _directories(state: Path) -> list[tuple[str, Path]]:
    """Return the directories of branches, whether or not they have a commit, each with its name."""
    found = [entry.path for entry in entries(state / BRANCHES, BRANCH) if entry.directory]
    return [(branch[0], path) for path in found if (branch := branch_of(path)) is not None]
