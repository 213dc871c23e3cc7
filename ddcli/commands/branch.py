"""Branches of a pipeline: begun, listed, merged and dropped.

A branch of `sales.yaml` has a file of its own, `sales@q4.yaml`, and a command that gets this file works on the branch's state and outputs. A merge takes the changes
of its inputs and of its file into main, and main computes what follows; results are never merged. So only inputs and files can conflict.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ddcli.commands.branch_conflicts import BranchChanges, Conflict, changed_files, find_conflicts
from ddcli.driver.run import open_state, run
from ddcli.errors import StateError, UsageError
from ddcli.job.paths import log_of
from ddcli.job.request import at_branch, newest_of, read_request
from ddcli.screen import near, shell
from ddcli.spec.file import branch_file, read_text
from ddcli.store.files.access import real
from ddcli.store.files.gate import Files
from ddcli.store.files.objects import locate
from ddcli.store.state.branches import base_of, begin_branch, end_branch, find_branch, find_branches
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.names import NAMED
from ddcli.store.tables.input_path import places_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ddcli.job.request import Request
    from ddcli.job.summary import RunSummary
    from ddcli.spec.model import Spec
    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.manifest import Manifest


def begin(
    name: str,
    pipeline: Path,
    state: Path | None = None,
    if_locked: IfLocked = "fail",
    say: Callable[[str], None] = lambda _line: None,
) -> BranchChanges:
    """Begin a branch of a pipeline at the newest commit of its state, with a copy of its file; return it without changes.

    Raises UsageError for a name that can't be a branch's, SpecError for an input that a branch can't read, and StateError where the state was made by another version of the file.
    """
    if not NAMED.fullmatch(name) or name == "main":
        raise UsageError(f"'{name}' can't be the name of a branch", hint="use letters, digits, `_` and `-`")
    request = read_request(pipeline, state, say=say)
    if request.branch:
        raise UsageError(
            "a branch has no branches", place=str(pipeline), hint="name main's file, and merge branches there"
        )
    own, file, text = at_branch(request.spec, name), branch_file(pipeline, name), read_text(pipeline)
    manifest = newest_of(request)
    if manifest is None:
        hint = f"the first `{shell('dd', 'run', pipeline)}` makes one"
        raise StateError("there is no state to begin a branch at", place=str(request.state), hint=hint)
    if file.exists() and read_text(file) != text:
        hint = "move it away, or choose another name"
        raise UsageError("the file of the branch exists already, with another text", place=str(file), hint=hint)
    with open_state(request, if_locked, manifest) as main:
        _refuse_changed(request, main.manifest)
        places = partial(_places, own, request.base)
        Files().put(file, text.encode())
        directory, begun = begin_branch(main, name, places, file, if_locked)
    for each, made in request.spec.outputs.items():
        if made.target is not None:
            say(f"outputs.{each}: the branch has its log, and does not touch the table {near(made.target.place.value)}")
    return BranchChanges(name, directory, file, begun.number - 1)


def _refuse_changed(request: Request, manifest: Manifest | None) -> None:
    """Raise StateError where a state was made by another version of its pipeline file."""
    if manifest is None or manifest.pipeline != request.digest:
        raise StateError(
            "the pipeline has changed since its state was made",
            place=str(request.spec.path),
            hint=f"put the file back, or run it first: `{shell('dd', 'run', request.spec.path, '--apply')}`",
        )


def _places(spec: Spec, base: Path, directory: Path) -> dict[str, Path]:
    """Return the directories of the outputs of a branch with this state."""
    return {name: real(log_of(made, base, directory)) for name, made in spec.outputs.items()}


def branches(pipeline: Path, state: Path | None = None) -> list[BranchChanges]:
    """Return the branches of a pipeline, each with its changes."""
    request = read_request(pipeline, state)
    return [_changes(request, name, path) for name, path in find_branches(request.state).items()]


def _changes(main: Request, name: str, directory: Path) -> BranchChanges:
    """Return the changes of a branch: its inputs' files compared with those at the commit that it began at."""
    base, now = base_of(directory), read_newest(directory)
    assert now is not None, "a branch has a commit"
    file = branch_file(main.spec.path, name)
    added, withdrawn = {}, {}
    for each, entry in now.inputs.items():
        new, gone = changed_files(base.inputs.get(each), entry.files)
        if files := [one for one in new.values() if one.archived]:
            added[each] = files
        if files := [one for one in gone.values() if not one.archived]:
            withdrawn[each] = files
    edited = file.exists() and read_request(file, main.state).digest != base.pipeline
    return BranchChanges(name, directory, file, base.number, added, withdrawn, edited)


def merge(
    name: str,
    pipeline: Path,
    state: Path | None = None,
    if_locked: IfLocked = "fail",
    *,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> tuple[BranchChanges, list[Conflict], RunSummary | None]:
    """Take the changes of a branch into main with its next run, in one commit, and drop the branch; return its changes, the conflicts, and the summary of that run.

    With conflicts, and in a dry run, nothing is written. Should the process die, the branch is there as long as it is not merged: the merge is repeated, and what was done is not done again.
    """
    request = read_request(pipeline, state, say=say)
    directory = find_branch(request.state, name)
    changes, base, manifest = _changes(request, name, directory), base_of(directory), newest_of(request)
    conflicts = find_conflicts(request, manifest, base, changes)
    if conflicts or dry_run:
        return changes, conflicts, None

    def check(now: Manifest | None) -> None:
        if now != manifest and (found := find_conflicts(request, now, base, changes)):
            problem = (
                f"main has run meanwhile, and {len(found)} of its changes conflict with the branch: {found[0].what}"
            )
            raise StateError(problem, place=str(request.state), hint="repeat the merge: it lists them all")

    before = read_text(pipeline)
    text = read_text(changes.file) if changes.edited else before
    if text != before:
        Files().put(pipeline, text.encode())
    roots = {each: places_of(request.spec.inputs[each].path.value, request.base)[0] for each in changes.withdrawn}
    try:
        summary = run(
            pipeline,
            state=state,
            if_locked=if_locked,
            apply=changes.edited,
            added=[
                (each, locate(request.base, one.archived)) for each, files in changes.added.items() for one in files
            ],
            withdraw=[roots[each] / one.path for each, files in changes.withdrawn.items() for one in files],
            strict=True,
            joint=True,
            check=check,
            say=say,
        )
    except BaseException:
        if text != before and newest_of(request) == manifest:
            Files().put(pipeline, before.encode())
        raise
    drop(name, pipeline, state, if_locked, say)
    return changes, [], summary


def drop(
    name: str,
    pipeline: Path,
    state: Path | None = None,
    if_locked: IfLocked = "fail",
    say: Callable[[str], None] = lambda _line: None,
) -> int:
    """Remove a branch, with its outputs, and its file unless that was edited; return how many files were removed. Main may remove old files again."""
    request = read_request(pipeline, state)
    count = end_branch(request.state, name, partial(_places, at_branch(request.spec, name), request.base), if_locked)
    file = branch_file(pipeline, name)
    same = file.exists() and read_text(file) == read_text(pipeline)
    if not count and not same:
        find_branch(request.state, name)  # raises
    if same:
        Files().remove(file)
    elif file.exists():
        say(f"{near(str(file))} stays, as it differs from {near(str(pipeline))}")
    return count
