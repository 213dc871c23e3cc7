"""The fate of input files that were taken in whole: they stay, may go, or are moved into an archive after the commit.

The manifest that takes a file in names its place in the archive. So a process that dies between the commit and the move leaves a file
that the next run knows and moves. Imports no third-party library.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ddcli.errors import EngineError, InputError
from ddcli.job.summary import plural
from ddcli.store.files.access import real
from ddcli.store.files.gate import one_by_one
from ddcli.store.files.objects import ObjectPath, locate
from ddcli.store.tables.input_path import PRIVATE, places_of
from ddcli.store.tables.inventory import list_input, unmoved

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ddcli.errors import Text
    from ddcli.spec.model import InputSpec, Spec
    from ddcli.store.files.gate import Files
    from ddcli.store.state.entries import InputEntry, InputFile
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.tables.listing import Listing


def archives_of(spec: Spec) -> list[tuple[str, Text]]:
    """Return the archives that a file names, each with the keys that name it."""
    return [(f"inputs.{name}.consumed", given.archive) for name, given in spec.inputs.items() if given.archive]


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


def list_here(given: InputSpec, base: Path, entry: InputEntry | None) -> Listing:
    """List the existing files of an input, all as new, to learn its columns; archived files are listed in their archive."""
    known = apart(given, base, entry.files) if entry is not None and given.consumed != "keep" else []
    emptied = entry is not None and not entry.files
    listing = list_input(given.path.value, base, known, forgets=given.consumed == "forget", emptied=emptied).anew()
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
        parts = (path.relative_to(directory).parts for path in _files_below(directory))
        if count := sum(not any(part.startswith(PRIVATE) for part in each) for each in parts):
            found[name] = (
                f"its archive '{given.archive.value}' has {count:,} {plural(count, 'file')} that this pipeline has not read"
            )
    return found


def _files_below(directory: Path) -> Iterable[Path]:
    if isinstance(directory, ObjectPath):
        return (path for path, _ in directory.below())
    return (path for path in directory.rglob("*") if path.is_file())


def with_archive_paths(given: InputSpec, base: Path, files: Sequence[InputFile]) -> Sequence[InputFile]:
    """Return the files of an input for a commit: those that are to be archived have a path in the archive that no other file has."""
    if given.archive is None:
        return files
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
        from ddcli.store.files.move import move
        from ddcli.store.tables.file_identity import is_file

        try:
            one_by_one(lambda place: move(files, place, targets[place], partial(is_file, found[place])), moved)  # noqa: B023 - done before the next input
        except EngineError as error:
            error.hint = "the run is committed; make room or permit it, then run again to move the file"
            raise


def refuse_shared_files(spec: Spec, listings: Mapping[str, Listing]) -> None:
    """Raise InputError for a file that one input archives and another one reads."""
    if not archives_of(spec):
        return
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
