"""The fate of input files that were taken in whole: they stay, may go, or are moved into an archive after the commit.

The manifest that takes a file in names its place in the archive. So a process that dies between the commit and the move leaves a file
that the next run knows and moves. The file belongs to another program: its move, also to another file system, never replaces a file, and one that dies on the way leaves the file
in its old place, or in both; done again, the move is completed. Imports no third-party library.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ddcli.errors import EngineError, InputError
from ddcli.screen import plural
from ddcli.store.files.access import fs, locate, real
from ddcli.store.files.gate import TEMPORARY, one_by_one
from ddcli.store.files.objects import ObjectPath
from ddcli.store.tables.input_path import PRIVATE, places_of
from ddcli.store.tables.inventory import ChangeRules, list_input, moved, take_snapshot, unmoved
from ddcli.store.tables.listing import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ddcli.spec.model import InputSpec, Spec
    from ddcli.store.files.gate import Files
    from ddcli.store.state.entries import InputEntry, InputFile
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.tables.inventory import MayRename
    from ddcli.store.tables.listing import Listing


def apart(given: InputSpec, base: Path, files: Iterable[InputFile]) -> list[InputFile]:
    """Return the files taken in that a new listing of the input would miss or pass over: withdrawn, archived or forgotten ones."""
    roots = places_of(given.path.value, base)
    found = []
    for file in files:
        if file.withdrawn or file.archived or file.forgotten:
            found.append(file)
        elif given.consumed == "forget" and file.done and not any((root / file.path).exists() for root in roots):
            found.append(replace(file, forgotten=True))  # gone since the last run
    return found


def withdrawn_files(consumed: Iterable[InputFile], keys: frozenset[str]) -> list[InputFile]:
    """Return files that were taken in, marked as withdrawn where they have these keys."""
    left = (file for file in consumed if file.key not in keys or not file.forgotten)
    return [replace(file, withdrawn=True) if file.key in keys else file for file in left]


def gone_files(
    given: InputSpec, base: Path, consumed: Iterable[InputFile], may_rename: MayRename | None
) -> list[InputFile]:
    """Return the files taken in of an input that are gone, without those that have another name now."""
    files, seen = tuple(consumed), take_snapshot(given.path.value, base)
    there = {file.path for file in seen.files} if seen is not None else set[str]()
    others = (file.withdrawn or file.archived or file.forgotten for file in files)
    gone = [file for file, apart in zip(files, others, strict=True) if not apart and file.path not in there]
    if not gone or seen is None or may_rename is None:
        return gone
    renamed = {before.path for before, _ in moved(seen.root, seen.files, files, may_rename)}
    return [file for file in gone if file.path not in renamed]


def list_here(given: InputSpec, base: Path, entry: InputEntry | None) -> Listing:
    """List the existing files of an input, all as new, to learn its columns; archived files are listed in their archive."""
    known = apart(given, base, entry.files) if entry is not None and given.consumed != "keep" else []
    emptied = entry is not None and not entry.files
    listing = list_input(given.path.value, base, known, ChangeRules(given.consumed == "forget"), emptied=emptied).anew()
    if not known:
        return listing
    return replace(
        listing, new=tuple(file for file in listing.new if not file.forgotten and listing.path(file).exists())
    )


def not_taken_in(spec: Spec, base: Path, known: Collection[str] = ()) -> dict[str, str]:
    """Return a note on each input, but those `known`, whose archive has files: another state has taken them in."""
    found = {}
    for name, given in spec.inputs.items():
        if given.archive is None or name in known:
            continue
        directory = real(locate(base, given.archive.value))
        parts = (path.relative_to(directory).parts for path in fs(directory).files_below())
        if count := sum(not any(part.startswith(PRIVATE) for part in each) for each in parts):
            found[name] = (
                f"its archive '{given.archive.value}' has {count:,} {plural(count, 'file')} that this pipeline has not read"
            )
    return found


def with_archive_paths(given: InputSpec, base: Path, files: Sequence[InputFile]) -> Sequence[InputFile]:
    """Return the files of an input with an archive for a commit: those that are to be archived have a path in it that no other file has."""
    assert given.archive is not None, "the caller asks"
    directory = given.archive.value.rstrip("/") or "/"
    known = {file.archived for file in files}
    moving = [file for file in files if file.done and not (file.archived or file.withdrawn or file.forgotten)]
    taken: dict[Path, bool] = {}
    first = [locate(base, f"{directory}/{file.path}") for file in moving]
    one_by_one(lambda path: taken.update({path: path.exists()}), first)
    found = []
    for file in files:
        if file.done and not (file.archived or file.withdrawn or file.forgotten):
            number, place = 1, f"{directory}/{file.path}"
            while place in known or _is_taken(locate(base, place), taken):
                number += 1
                place = f"{directory}/{number}/{file.path}"
            known.add(place)
            file = replace(file, archived=place)
        found.append(file)
    return tuple(found)


def _is_taken(path: Path, looked: Mapping[Path, bool]) -> bool:
    return looked[path] if path in looked else path.exists()


def archive(spec: Spec, base: Path, manifest: Manifest, files: Files) -> None:
    """Move the files that a commit has archived and that are still in their inputs. Raises EngineError if one can't be moved."""
    for name, given in spec.inputs.items():
        if given.archive is None or name not in manifest.inputs:
            continue
        directory = real(locate(base, given.archive.value))
        found = {place: file for file, place in unmoved(given.path.value, base, manifest.inputs[name].files)}
        targets = {place: locate(base, file.archived) for place, file in found.items()}
        # A file may have named another archive since.
        moved = [place for place, target in targets.items() if real(target).is_relative_to(directory)]
        if not moved:
            continue
        try:
            one_by_one(lambda place: move(files, place, targets[place], partial(is_file, found[place])), moved)  # noqa: B023 - done before the next input
        except EngineError as error:
            error.hint = "the run is committed; make room or permit it, then run again to move the file"
            raise


def refuse_shared_files(spec: Spec, listings: Mapping[str, Listing]) -> None:
    """Raise InputError for a file that one input archives and another one reads."""
    readers: dict[str, str] = {}
    for name, listing in listings.items():
        for path in map(str, _lying(listing)):
            other = readers.setdefault(path, name)
            if other != name and (spec.inputs[name].archive or spec.inputs[other].archive):
                raise InputError(
                    f"the inputs '{other}' and '{name}' both read the file, and one of them archives it",
                    place=path,
                    hint="read it by one input from which two collections are made, or leave `consumed` out",
                )


def _lying(listing: Listing) -> Iterable[Path]:
    """Yield the paths of the files that were neither archived nor forgotten."""
    yield from (real(listing.path(file)) for file in listing.files if not (file.archived or file.forgotten))


NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EACCES}
"""The errors of making a second name for a file where it can have none: another file system, one without links, another's file."""
BLOCK = 1 << 20


def move(files: Files, source: Path, target: Path, is_read: Callable[[Path], bool]) -> None:
    """Move a file to `target`, if it still is the one that was read: a program may have put another in its place at any moment, which stays.

    Raises EngineError if another file is at `target`; one with the same bytes is the file itself.
    """
    if isinstance(source, ObjectPath) and isinstance(target, ObjectPath):
        with suppress(FileNotFoundError):  # somebody has removed it
            tag = source.head()["e_tag"]
            if is_read(source) and files.do("archive", source, partial(_copy_object, source, target, tag)):
                files.do("archive", source, partial(_drop_object, source, target, tag))
        return
    source, target = real(source.parent) / source.name, real(target.parent) / target.name
    files.make_directory(target.parent)
    if files.do("archive", source, partial(_name, source, target, is_read)):
        files.sync_directory(target.parent)
        files.do("archive", source, partial(_drop, source, target, is_read))
        files.sync_directory(source.parent)


def _name(source: Path, target: Path, is_read: Callable[[Path], bool]) -> bool:
    """Give a file its second name, or write its copy; return False if it is not the file that was read."""
    if source.is_symlink():  # its target stays where it is
        return _copy(source, target, is_read)
    try:
        os.link(source, target)
    except FileNotFoundError:
        return False
    except FileExistsError:
        return _is_there(source, target, is_read)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _copy(source, target, is_read)
    if not is_read(target):  # what has the new name is looked at: the old one may belong to another file by now
        target.unlink()
        return False
    return True


def _is_there(source: Path, target: Path, is_read: Callable[[Path], bool]) -> bool:
    """Return whether the file at `target` is the source, of a run that died; False if the source is another file by now."""
    if _same(source, target):
        return True
    if target.is_file() and not target.is_symlink() and is_read(target):
        return False
    raise _taken(source, target)


def _copy(source: Path, target: Path, is_read: Callable[[Path], bool]) -> bool:
    """Write a copy of a file, which appears whole; return False if it is not the file that was read. The copy of a run that died is written again."""
    if target.exists() or target.is_symlink():
        return _is_there(source, target, is_read)
    waiting = target.with_name(f".{target.name}{TEMPORARY}")
    try:
        shutil.copy2(source, waiting)
    except FileNotFoundError:
        return False
    if not is_read(waiting):
        waiting.unlink()
        return False
    descriptor = os.open(waiting, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(waiting, target)  # fails where a file has come meanwhile
        waiting.unlink()
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        waiting.rename(target)
    return True


def _taken(source: Path, target: Path) -> EngineError:
    return EngineError(f"the file can't be archived: another file is at '{target}'", place=str(source))


def _copy_object(source: ObjectPath, target: ObjectPath, tag: str) -> bool:
    """Write a copy of an object; return False if it has another tag by now, or is gone. A copy that a run has written which died is the same."""
    try:
        return source.copy_apart(target, tag)
    except FileNotFoundError:
        return False
    except FileExistsError:
        if not target.is_copy(tag):
            raise _taken(source, target) from None
        return True


def _drop_object(source: ObjectPath, target: ObjectPath, tag: str) -> None:
    """Remove an object that has a copy, if it has not changed since. The library deletes without a condition, so an object that comes between both requests is lost."""
    with suppress(FileNotFoundError):
        if target.is_copy(tag) and source.head()["e_tag"] == tag:
            source.unlink()


def _drop(source: Path, target: Path, is_read: Callable[[Path], bool]) -> None:
    """Remove the file `source`, if it still is the file `target`, or equal to it.

    It is taken aside first: between a look at a name and its removal another file may get it. A file that a program has written to since it has
    both names is no longer the one that was read: it stays, and leaves the archive.
    """
    aside = source.with_name(f".{source.name}{TEMPORARY}")
    with suppress(FileNotFoundError):
        source.rename(aside)
        is_target = aside.samefile(target)
        if not (is_read(aside) if is_target else _same(aside, target)):
            with suppress(FileExistsError):  # a still newer file has replaced it
                _put_back(aside, source)
            if is_target:
                target.unlink()
        aside.unlink(missing_ok=True)


def _put_back(aside: Path, source: Path) -> None:
    try:
        os.link(aside, source, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        aside.rename(source)


def _same(one: Path, other: Path) -> bool:
    """Return whether two files have the same bytes."""
    if other.is_symlink() or not other.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            block = first.read(BLOCK)
            if block != second.read(BLOCK):
                return False
            if not block:
                return True


def is_file(file: InputFile, path: Path) -> bool:
    """Return whether a path has the very file, or object, that was read, wherever it lies now."""
    if tag := fs(path).tag():
        return tag == file.fingerprint
    found = path.stat()
    same = (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)
    return same and fingerprint(path, file.size) == file.fingerprint
