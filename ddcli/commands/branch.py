"""Branches of a pipeline: begun, listed, merged and dropped.

A branch of `sales.yaml` has a file of its own, `sales@q4.yaml`, and a command that gets this file works on the branch's state and outputs. A merge takes the changes
of its inputs and of its file into main, and main computes what follows; results are never merged.

So the only conflicts are changes of both sides to one file, to one key of an input, or to the pipeline file. They are found from the files that either side has read or
withdrawn since the branch began, and, of inputs with keys, from the rows of these files alone.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.dataclass import frozen
from ddcli.driver.run import open_state, run
from ddcli.errors import StateError, UsageError
from ddcli.job.inputs import find_inputs
from ddcli.job.paths import at_branch, log_of
from ddcli.job.request import newest_of, read_request
from ddcli.job.sizes import rows_held
from ddcli.privacy import preview
from ddcli.screen import near, shell
from ddcli.sources.readers import in_files, open_logs
from ddcli.spec.file import branch_file, read_text
from ddcli.store.files.access import locate, real
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import locked
from ddcli.store.log.pieces import natural
from ddcli.store.mirrors.mirror import link_mirror, mirror_of
from ddcli.store.state.branches import base_of, begin_branch, end_branch, find_branch, find_branches
from ddcli.store.state.document import NAMED
from ddcli.store.state.manifest import read_newest
from ddcli.store.tables.input_path import places_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.job.summary import RunSummary
    from ddcli.spec.model import Spec
    from ddcli.store.files.lock import IfLocked, Lock, ObjectLock
    from ddcli.store.state.directory import State
    from ddcli.store.state.entries import InputEntry, InputFile
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
        directory, begun = begin_branch(main, name, places, file, if_locked, partial(_link_tables, request, main))
    for each, made in request.spec.outputs.items():
        if made.target is not None:
            say(f"outputs.{each}: the branch has its log, and does not touch the table {near(made.target.place.value)}")
    return BranchChanges(name, directory, file, begun.number - 1)


def _link_tables(request: Request, main: State, directory: Path) -> None:
    """Give a branch the rows of tables as main has read them; its runs bring them up to the tables as they are then."""
    for name in request.spec.tables:
        link_mirror(mirror_of(main.directory, name), mirror_of(directory, name), main.files)


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
    No run of the branch comes between, as its changes would be dropped with it. Raises LockedError (75) while a run holds the branch or main.
    """
    request = read_request(pipeline, state, say=say)
    directory = find_branch(request.state, name)
    changes = _changes(request, name, directory)
    conflicts = find_conflicts(request, newest_of(request), base_of(directory), changes)
    if conflicts or dry_run:
        return changes, conflicts, None
    with locked(directory, Files(), if_locked) as lock:
        return _merged(request, name, state, if_locked, lock, say)


def _merged(
    request: Request,
    name: str,
    state: Path | None,
    if_locked: IfLocked,
    lock: Lock | ObjectLock,
    say: Callable[[str], None],
) -> tuple[BranchChanges, list[Conflict], RunSummary | None]:
    """Merge a branch whose lock is held."""
    pipeline, directory = request.spec.path, find_branch(request.state, name)
    changes, base, manifest = _changes(request, name, directory), base_of(directory), newest_of(request)
    if conflicts := find_conflicts(request, manifest, base, changes):
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
        now = newest_of(request)
        if text != before and now and manifest and now.pipeline == manifest.pipeline:  # the edit is not committed
            Files().put(pipeline, before.encode())
        raise
    _drop(request, name, if_locked, say, lock)
    return changes, [], summary


def drop(
    name: str,
    pipeline: Path,
    state: Path | None = None,
    if_locked: IfLocked = "fail",
    say: Callable[[str], None] = lambda _line: None,
) -> int:
    """Remove a branch, with its outputs, and its file unless that was edited; return how many files were removed. Main may remove old files again."""
    return _drop(read_request(pipeline, state), name, if_locked, say)


def _drop(
    request: Request, name: str, if_locked: IfLocked, say: Callable[[str], None], lock: Lock | ObjectLock | None = None
) -> int:
    """Remove a branch of a pipeline, as its file was when the request was read."""
    places = partial(_places, at_branch(request.spec, name), request.base)
    count = end_branch(request.state, name, places, if_locked, lock)
    pipeline = request.spec.path
    file = branch_file(pipeline, name)
    same = file.exists() and read_text(file) == read_text(pipeline)
    if not count and not same:
        find_branch(request.state, name)  # raises
    if same:
        Files().remove(file)
    elif file.exists():
        say(f"{near(str(file))} stays, as it differs from {near(str(pipeline))}")
    return count


FILE = "\0file"
"""The column with the path of a row's file; no column of an input has this name."""


@frozen
class BranchChanges:
    """The changes of a branch since it began: the files that its inputs have beside main's, those that it withdrew, and whether its file was edited."""

    name: str
    state: Path
    file: Path
    commit: int
    added: Mapping[str, Sequence[InputFile]] = field(default_factory=dict)
    withdrawn: Mapping[str, Sequence[InputFile]] = field(default_factory=dict)
    edited: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        added = {name: [file.archived for file in files] for name, files in self.added.items()}
        withdrawn = {name: [file.archived or file.path for file in files] for name, files in self.withdrawn.items()}
        plain = {"branch": self.name, "state": str(self.state), "file": str(self.file), "commit": self.commit}
        return plain | {"added": added, "withdrawn": withdrawn, "edited": self.edited}


@frozen
class Conflict:
    """A file, a key of an input or the pipeline file that both sides have changed, and each side's change."""

    what: str
    main: str
    branch: str


def changed_files(
    before: InputEntry | None, now: Iterable[InputFile]
) -> tuple[dict[str, InputFile], dict[str, InputFile]]:
    """Return the files of an input that are new or have other content than before, and those that were withdrawn since, by their keys."""
    known = {one.key: one for one in before.files} if before else {}
    new, gone = {}, {}
    for one in now:
        old = known.get(one.key)
        if one.withdrawn and not (old and old.withdrawn):
            gone[one.key] = one
        elif not one.withdrawn and (old is None or old.withdrawn or old.fingerprint != one.fingerprint):
            new[one.key] = one
    return new, gone


def find_conflicts(
    request: Request, manifest: Manifest | None, base: Manifest, changes: BranchChanges
) -> list[Conflict]:
    """Return the changes of a branch, which began at `base`, to what main has changed, too, or will with the files that it has not read yet."""
    found = []
    if changes.edited and request.digest not in (base.pipeline, read_request(changes.file, request.state).digest):
        found.append(Conflict(str(request.spec.path), "edited", "edited"))
    if manifest is None:
        return found
    for name, given in find_inputs(request, manifest).items():
        added = {one.key: one for one in changes.added.get(name, ())}
        withdrawn = {one.key: one for one in changes.withdrawn.get(name, ())}
        if not (added or withdrawn):
            continue
        entry, known = manifest.inputs.get(name), base.inputs.get(name)
        new, gone = changed_files(known, (*(entry.files if entry else ()), *given.listing.new))
        began = {one.key for one in known.files} if known else set()
        theirs = [one for key, one in added.items() if key not in new]
        theirs += [one for key, one in withdrawn.items() if key not in gone]
        mine = [one for key, one in new.items() if key not in added and (key not in withdrawn or key in began)]
        mine += [one for key, one in gone.items() if key not in withdrawn]
        found += _of_files(name, mine, theirs)
        own = request.spec.inputs[name]
        if own.format == "snapshots":
            snapshots = [[one for one in files if not one.withdrawn] for files in (mine, theirs)]
            if all(snapshots):
                found.append(Conflict(f"{name}: the newest snapshot", *(files[-1].path for files in snapshots)))
        elif own.key and mine and theirs:
            found += _of_keys(request, manifest, name, given, mine, theirs)
        if own.arrives and own.order_by is None:
            for one, later in _out_of_order([*added.values()]):
                if own.format == "snapshots":
                    found.append(Conflict(f"{name}: the newest snapshot", one.path, later[-1].path))
                elif own.key:
                    found += _of_keys(request, manifest, name, given, [one], later)
    return found


def _out_of_order(files: Sequence[InputFile]) -> Iterator[tuple[InputFile, list[InputFile]]]:
    """Yield each file with the files that the branch read after it, and main would read before it: in one run, by their names."""
    named = sorted(((natural(one.path), one) for one in files), key=lambda each: (each[1].at or 0, each[0]))
    first = [*accumulate((name for name, _ in reversed(named)), min)][::-1]  # by name, of each file and those after it
    for at, (name, one) in enumerate(named):
        if first[at] < name:
            yield one, [other for known, other in named[at + 1 :] if known < name]


def _of_files(name: str, mine: Sequence[InputFile], theirs: Sequence[InputFile]) -> Iterator[Conflict]:
    """Yield the files that main has read anew and the branch has withdrawn, and those that both have added, by their names or contents."""
    for one in theirs:
        for other in mine:
            if other.withdrawn:
                continue
            if one.withdrawn and one.key == other.key:
                yield Conflict(f"{name}: {one.path}", "replaced", "withdrawn")
            same = (one.size, one.fingerprint) == (other.size, other.fingerprint)
            if not one.withdrawn and (same or one.path == other.path.rpartition("/")[2]):
                yield Conflict(
                    f"{name}: {one.path}", f"read as {other.archived or other.path}", f"added from {one.archived}"
                )


def _of_keys(
    request: Request,
    manifest: Manifest,
    name: str,
    given: InputFiles,
    mine: Sequence[InputFile],
    theirs: Sequence[InputFile],
) -> Iterator[Conflict]:
    """Yield the keys that rows of files of both sides have, in order, each with the newest row of both."""
    keys = [text.value for text in request.spec.inputs[name].key]
    main, branch = (_rows(request, manifest, name, given, files) for files in (mine, theirs))
    if main is None or branch is None:
        return
    both = main.join(branch, on=keys, how="inner", nulls_equal=True, suffix="\0").sort(keys)
    columns = [column for column in main.columns if column not in keys and column != FILE]
    for row in both.iter_rows(named=True):
        key = ", ".join(f"{column}={preview(column, row[column])}" for column in keys)
        texts = [
            ", ".join(f"{column}={preview(column, row[column + end])}" for column in columns) for end in ("", "\0")
        ]
        yield Conflict(f"{name}: {key}", f"{row[FILE]}: {texts[0]}", f"{row[FILE + chr(0)]}: {texts[1]}")


def _rows(
    request: Request, manifest: Manifest, name: str, given: InputFiles, files: Sequence[InputFile]
) -> pl.DataFrame | None:
    """Return the newest row of each key in some files of an input, with its file; None if no file is left to read."""
    listing = given.listing
    # A withdrawn file has the digest of its whole content for a fingerprint, and is not compared with it.
    marks = ["" if one.withdrawn else one.fingerprint for one in files]
    entries = zip(files, marks, strict=True)
    chosen = [replace(one, done=False, withdrawn=False, since=None, fingerprint=mark) for one, mark in entries]
    chosen = [one for one in chosen if listing.path(one).exists()]
    alone = replace(
        listing, new=(), waiting=tuple(chosen), done=(), withdrawn=(), unmoved=(), grown={}, changed=frozenset()
    )
    most = rows_held(request.asked.resources.memory)
    opened = open_logs(request, manifest, {name: replace(given, listing=alone).with_arrival(0)}, most)
    reader = in_files(opened)[name]
    columns = [*reader.schema.columns]
    keys = [text.value for text in request.spec.inputs[name].key]
    places: dict[Path, str] = {listing.path(one): one.archived or one.path for one in chosen}
    frames = [
        rows.frame.select(columns).with_columns(pl.lit(places[path]).alias(FILE))
        for path, _, rows in reader.parts(columns, most)
    ]
    return pl.concat(frames).unique(keys, keep="last", maintain_order=True) if frames else None
