"""Corrections of a state that a person asks for: files to withdraw, by their paths, rows to forget, by a condition for each input, and the time from which on it is reopened."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.times import Frontier, box
from ddcli.errors import InputError, StateError, UsageError, suggestion
from ddcli.job.paths import database_file
from ddcli.job.summary import size_of
from ddcli.screen import near, plural, shell
from ddcli.spec.model import SPARK
from ddcli.store.files.access import fs, locate, real, relative
from ddcli.store.tables.input_path import places_of
from ddcli.store.tables.inventory import list_input, moved, take_snapshot
from ddcli.store.tables.listing import Listing, fingerprint
from ddcli.store.texts import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.job.request import Request
    from ddcli.spec.model import InputSpec
    from ddcli.store.log.rows import RowCondition
    from ddcli.store.state.entries import FileEntry, InputEntry, InputFile
    from ddcli.store.state.manifest import Manifest


def with_withdrawn_files(
    request: Request,
    manifest: Manifest | None,
    files: Sequence[Path],
    *,
    missing: bool = False,
    strict: bool = False,
    again: bool = False,
) -> Request:
    """Return the request with the files that it withdraws: the `files` that are in the state, from each input that has taken them in, and all that are `missing` if these are asked for.

    Under the clock of events it closes no time. A file that was withdrawn already, or that no run has read, is reported. Raises InputError if no
    run has read any of them, or, in a `strict` call, one of them; also for a repaired file that has replaced a withdrawn one, and has not changed since,
    unless it is to go `again`: who repeats a command that has replaced a file wants to lose no rows.
    """
    known = _taken(request, manifest) if manifest is not None else {}
    gone = _missing(request, manifest) if missing and manifest is not None else []
    if missing and not gone:
        request.asked.say("no file that was read is missing")
    files = [*files, *gone]
    found: dict[str, set[str]] = {}
    unread: list[Path] = []
    for path in files:
        entries = _one_each(path, next((known[name] for name in _names(path) if name in known), []))
        table = next((given for given in request.spec.inputs.values() if _is_in(path, given, request)), None)
        if table is not None:
            raise InputError(
                f"the input '{table.name.value}' is a table: its files are not withdrawn",
                place=str(path),
                hint="delete the rows from the table itself, or restore an older version of it: the next run takes that in",
            )
        if not entries:
            unread.append(path)
            continue
        for name, entry in entries:
            if not entry.withdrawn:
                if not again and manifest is not None:
                    _refuse_repaired(request, manifest.inputs[name], request.spec.inputs[name], entry)
                found.setdefault(name, set()).add(entry.key)
        if all(entry.withdrawn for _, entry in entries):
            request.asked.say(f"{near(str(path))} was withdrawn before, and nothing of it is in the state")
    if manifest is not None:
        _refuse_renamed(request, manifest, unread)
    if unread and (strict or len(unread) == len(files)):
        raise InputError(
            "no run has read this file",
            place=str(unread[0]),
            hint="name a file by its path in an input's directory, also one that is gone; `dd check` lists the inputs",
        )
    for path in unread:
        request.asked.say(f"{near(str(path))}: no run has read this file, so there is nothing to withdraw")
    withdrawn = {name: frozenset(paths) for name, paths in found.items()}
    return request.deciding(withdrawn=withdrawn, closes=request.clock.arrival)


def _refuse_repaired(request: Request, entry: InputEntry, given: InputSpec, file: InputFile) -> None:
    """Raise InputError for a file that was read in place of a withdrawn one, and is still there as it was read. Where runs replace files, nobody withdraws one to have it replaced."""
    if given.changed == "replace" or file.archived or file.path not in {each.path for each in entry.replaced}:
        return
    for root in places_of(given.path.value, request.base):
        place = root / file.path
        if Listing(root, ()).is_as_listed(file) or (
            fs(place).is_local
            and place.is_file()
            and place.stat().st_size == file.size
            and fingerprint(place, file.size) == file.fingerprint
        ):
            raise InputError(
                "this file was withdrawn before, and read again after it was repaired; it has not changed since",
                place=str(place),
                hint="to withdraw it as it is now, state `--again`",
            )


def with_added_files(request: Request, manifest: Manifest | None, added: Sequence[tuple[str, Path]]) -> Request:
    """Return the request with files that inputs, by name, have beside those in their directories; they stay where they are.

    Each counts as an archived file: the state names its path relative to the pipeline file, and a copy of it that appears in the input is the same file.
    Raises UsageError for an input that takes no such file, and InputError for a file that was added before with other content.
    """
    found: dict[str, list[InputFile]] = {}
    for name, path in added:
        given = request.spec.inputs.get(name)
        if given is None or given.table or given.arrangement is not None:
            hint = suggestion(name, request.spec.inputs, f"inputs: {', '.join(request.spec.inputs)}")
            raise UsageError(f"there is no input '{name}' of files", place=str(request.spec.path), hint=hint)
        listing = list_input(str(path), Path.cwd())
        if fs(listing.root).is_local != fs(locate(request.base, given.path.value)).is_local:
            raise UsageError(
                f"of the input '{name}' and the file, one is in an object store and the other is not",
                place=str(path),
                hint="copy the file to where the input is",
            )
        entry = manifest.inputs.get(name) if manifest else None
        for file in listing.new:
            place = listing.path(file)
            one = replace(file, path=place.name, archived=relative(real(place), real(request.base)))
            before = next((each for each in entry.files if each.key == one.key), None) if entry else None
            if before is not None and (before.withdrawn or before.fingerprint != one.fingerprint):
                raise InputError(
                    f"the input '{name}' has read this file before, and {'it was withdrawn' if before.withdrawn else 'it has other content now'}",
                    place=str(path),
                    hint="add a file of another name",
                )
            found.setdefault(name, []).append(one)
    return request.deciding(added=found)


def _missing(request: Request, manifest: Manifest) -> list[Path]:
    """Return the paths of the files that a state has taken in, and that are no longer in their inputs although these keep them: not those that only have another name."""
    found = []
    for name, given in request.spec.inputs.items():
        entry = manifest.inputs.get(name)
        if given.arrangement is not None or given.table or given.consumed == "forget" or entry is None:
            continue
        roots = places_of(given.path.value, request.base)
        left = (file for file in entry.files if not (file.withdrawn or file.archived or file.forgotten))
        gone = [file for file in left if not any((root / file.path).exists() for root in roots)]
        renamed = {before.path for before, _ in _moved(request, given, entry)} if gone else set()
        found += [roots[0] / file.path for file in gone if file.path not in renamed]
    return found


def _moved(request: Request, given: InputSpec, entry: InputEntry) -> list[tuple[InputFile, InputFile | None]]:
    """Return the files of an input that have another name since they were read, as `inventory.moved` does."""
    from ddcli.job.inputs import renaming

    may_rename = renaming(given, entry.files)
    seen = take_snapshot(given.path.value, request.base) if may_rename is not None else None
    return [] if may_rename is None or seen is None else moved(seen.root, seen.files, entry.files, may_rename)


def _refuse_renamed(request: Request, manifest: Manifest, unread: Sequence[Path]) -> None:
    """Raise InputError for a file whose content was read under a name that it no longer has: its rows are known by that one until a commit."""
    names = {name for path in unread for name in _names(path)}
    for name, given in request.spec.inputs.items() if unread else ():
        entry = manifest.inputs.get(name)
        if given.arrangement is not None or given.table or entry is None:
            continue
        for root in places_of(given.path.value, request.base):
            for before, now in _moved(request, given, entry):
                if now is not None and not names.isdisjoint(_names(root / now.path)):
                    raise InputError(
                        f"this file was read as '{before.path}', and no run has recorded its new name",
                        place=str(root / now.path),
                        hint="remove it, and withdraw its rows under the former name: "
                        f"`dd retract PIPELINE {shell(near(str(root / before.path)))}`",
                    )


def _taken(request: Request, manifest: Manifest) -> dict[str, list[tuple[str, InputFile]]]:
    """Return the files that a state knows, each with its input, by every name that it may have."""
    found: dict[str, list[tuple[str, InputFile]]] = {}
    for name, given in request.spec.inputs.items():
        entry = manifest.inputs.get(name)
        if given.arrangement is not None or given.table or entry is None:
            continue
        roots = {str(each) for root in places_of(given.path.value, request.base) for each in (root, real(root))}
        for file in entry.files:
            places = {os.path.normpath(f"{root}/{file.path}") for root in roots}
            if file.archived:
                place = locate(request.base, file.archived)
                places |= {os.path.normpath(str(each)) for each in (place, real(place))}
            for each in places:
                found.setdefault(each, []).append((name, file))
    return found


def _is_in(path: Path, given: InputSpec, request: Request) -> bool:
    """Return whether a path is in a table, in its mirror, or is the database of the table."""
    if given.origin is None:
        return False
    places = [given.path.value]
    if given.table not in ("iceberg", SPARK):  # a catalog names its place
        places.append(database_file(given.origin.value) if given.table == "database" else given.origin.value)
    whole = [str(real(locate(request.base, place))) for place in places if place]
    return any(name == place or name.startswith(f"{place}/") for place in whole for name in _names(path))


def _one_each(path: Path, entries: Sequence[tuple[str, InputFile]]) -> list[tuple[str, InputFile]]:
    """Return the file of each input that a path names: the one at that path now, else the only one that had this path and is not withdrawn."""
    found = []
    for name in dict.fromkeys(name for name, _ in entries):
        files = [file for of, file in entries if of == name]
        left = [file for file in files if not file.withdrawn] or files[:1]
        lying = [file for file in files if file.key == file.path] or left
        if len(lying) > 1:
            places = ", ".join(f"'{file.archived or file.path}'" for file in lying)
            raise InputError(
                f"the input '{name}' has read several files of this name",
                place=str(path),
                hint=f"name one by the path that it has now: {places}",
            )
        found += [(name, file) for file in lying]
    return found


def _names(path: Path) -> list[str]:
    """Return the names under which a file may be known."""
    if not fs(path).is_local:
        return [os.path.normpath(str(path))]
    whole = path.absolute()
    return list(dict.fromkeys(map(os.path.normpath, (whole, real(whole.parent) / whole.name, real(whole)))))


def with_reopened_times(request: Request, manifest: Manifest | None, time: str) -> Request:
    """Return the request that takes its state back to a time, and does nothing else; the same request if that time is open already.

    Raises StateError without a state.
    """
    if manifest is None:
        hint = "no time is closed; the first `dd run` makes a state"
        raise StateError("there is no state here", place=str(request.state), hint=hint)
    from ddcli.job.inputs import find_time

    upper, closed = Frontier(manifest.upper), box(parse_time(time, find_time(manifest), "--from"))
    reopened = closed.meet(upper)
    return request if reopened == upper else request.deciding(reopened=reopened, closes=False)


@frozen
class ForgottenRows:
    """The number of rows of an input's files that were forgotten, and of unreadable ones, for which the condition can't be decided."""

    rows: int = 0
    undecided: int = 0


@frozen
class RewrittenFile:
    """A file that was replaced, its replacement, and their sizes; a path is None if there was no file before, or is none after."""

    was: str | None
    file: str | None
    bytes_before: int
    bytes: int


def digest_of(numbers: Sequence[int]) -> str:
    """Return a digest of sorted numbers of rows."""
    return hashlib.sha256(",".join(map(str, numbers)).encode()).hexdigest()[:20]


@dataclass
class ErasureRequest:
    """The conditions of a request to forget, by input, and its results: the inputs' rows, the files that were replaced and kept, and the places that still have such rows."""

    conditions: Mapping[str, RowCondition]
    mirrored: frozenset[str] = frozenset()
    """The inputs that are tables; the files of their mirrors belong to the state."""
    inputs: dict[str, ForgottenRows] = field(default_factory=dict)
    rewritten: list[RewrittenFile] = field(default_factory=list)
    kept: list[FileEntry] = field(default_factory=list)
    still_in: list[str] = field(default_factory=list)
    unclean: dict[str, dict[str, str]] = field(default_factory=dict)
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    """The digests of the numbers of these rows, by input and file, of the files that still have some."""
    archived: dict[str, list[tuple[InputFile, list[int]]]] = field(default_factory=dict)
    """The archived files, or files of a mirror, that hold such rows, by input, with the rows' numbers."""
    counts: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """The numbers of these rows, by input and file; None where some of them may not have been taken in."""

    def begin(self) -> None:
        """Drop the findings of an earlier attempt."""
        for each in (self.inputs, self.rewritten, self.kept, self.still_in, self.unclean, self.digests):
            each.clear()
        self.archived.clear()
        self.counts.clear()

    def counted(self, name: str, entry: InputEntry) -> InputEntry:
        """Return the entry of an input whose files count the rows that are left."""
        counts = self.counts.get(name, {})

        def left(file: InputFile) -> InputFile:
            gone = counts.get(file.key, 0)
            return replace(file, rows=None if gone is None or file.rows is None else file.rows - gone)

        return replace(entry, files=tuple(map(left, entry.files))) if counts else entry

    def note(self, was: Path | None, before: int, file: Path | None, size: int) -> None:
        """Record that a file has replaced another."""
        names = None if was is None else str(was), None if file is None else str(file)
        self.rewritten.append(RewrittenFile(*names, before, size))


@frozen
class ForgettingSummary:
    """The summary of a request to forget, for a person or a program."""

    name: str
    seconds: float
    dry: bool
    inputs: dict[str, ForgottenRows]
    rewritten: list[RewrittenFile]
    kept_files: int
    kept_bytes: int
    state_bytes_before: int
    state_bytes: int
    still_in: list[str]
    versions_in: list[str]
    """The outputs whose tables no longer have the rows, but may keep older versions that do."""
    readers: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        rows = sum(each.rows for each in self.inputs.values())
        dry = ", dry run" if self.dry else ""
        lines = [f"{self.name}: {rows:,} {plural(rows, 'row')} forgotten, {self.seconds:.2f} s{dry}"]
        for name, each in self.inputs.items():
            lines.append(f"  forgot {name}: {each.rows:,} {plural(each.rows, 'row')}")
            if each.undecided:
                lines.append(
                    f"  left   {name}: {each.undecided:,} {plural(each.undecided, 'row')} that can't be read: look for them in the log of these"
                )
        if not self.dry:
            before, after = (sum(getattr(one, what) for one in self.rewritten) for what in ("bytes_before", "bytes"))
            lines.append(
                f"  wrote  {len(self.rewritten):,} {plural(len(self.rewritten), 'file')} anew: {size_of(before)} before, {size_of(after)} now"
            )
            lines.append(
                f"  kept   {self.kept_files:,} {plural(self.kept_files, 'file')} without such rows, {size_of(self.kept_bytes)}"
            )
            lines.append(f"  state  {size_of(self.state_bytes_before)} before, {size_of(self.state_bytes)} now")
        lines += [f"  still in {near(path)}: remove the rows there, and repeat this command" for path in self.still_in]
        lines += [
            f"  older versions of the table of {name} may be left: remove them there" for name in self.versions_in
        ]
        return lines + [f"  read by {name}: forget them there, too" for name in self.readers]
