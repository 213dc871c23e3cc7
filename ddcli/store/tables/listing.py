"""The listing of an input's files: those that are new, and those that are as they were. Imports no third-party library."""

from __future__ import annotations

import hashlib
from dataclasses import field, replace
from typing import IO, TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.engine.times import Frontier
from ddcli.errors import InputError
from ddcli.store.files.access import fs, locate, naming
from ddcli.store.files.objects import ObjectPath, tag_of
from ddcli.store.state.entries import UPDATES, split_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ddcli.store.log.joint_files import Part
    from ddcli.store.state.entries import InputFile, Times
    from ddcli.store.tables.input_path import PassedOver


def summed_up(
    root: Path, found: Sequence[InputFile], known: dict[str, InputFile]
) -> tuple[Sequence[InputFile], list[InputFile], tuple[int, ...] | None, dict[str, tuple[Part, ...]]]:
    """Return the files of an input without those that summed-up ones stand for, the summed-up files that are taken in already, the horizon, and, by path, the files that each stands for.

    The older files are removed from `known`. Raises InputError if some of them have been taken in, and others have not.
    """
    names = [file for file in found if "-summed" in file.path and UPDATES in file.path]
    if not names:
        return found, [], None, {}
    from ddcli.store.log.joint_files import NAME, read_summary

    read = {file.path: read_summary(root / file.path) for file in names if NAME.fullmatch(_split(file.path)[1])}
    summaries = {path: summary for path, summary in read.items() if summary is not None}
    gone = {_split(path)[0] + part.name for path, summary in summaries.items() for part in summary.parts}
    done: list[InputFile] = []
    for file in names:
        summary = summaries.get(file.path)
        if summary is None or file.path in gone:
            continue
        prefix = _split(file.path)[0]
        if file.path not in known and any(
            _split(key)[0] == prefix for key, each in known.items() if not each.withdrawn
        ):
            taken = taken_as(file, summary.parts, known.values())
            if taken is None:
                raise InputError(
                    "the log's older updates were summed up before this pipeline had taken all of them",
                    place=str(root / file.path),
                    hint="start again with its contents: `dd run --full-refresh all`",
                )
            done.append(replace(taken, fingerprint=mark_in(root, file)))
            gone.add(file.path)
        for key in _replaced_by(file, summary.parts):
            known.pop(key, None)
    horizon = max((summary.horizon for summary in summaries.values()), default=None)
    parts = {path: summary.parts for path, summary in summaries.items()}
    return [file for file in found if file.path not in gone], done, horizon, parts


def taken_as(file: InputFile, parts: Sequence[Part], before: Iterable[InputFile]) -> InputFile | None:
    """Return a file that stands for these parts as taken in with the last of them; None if it stands for none, or not all were taken in."""
    prefix = _split(file.path)[0]
    taken = {
        _split(each.path)[1]: each
        for each in before
        if _split(each.key)[0] == prefix and each.done and each.since is None and not each.withdrawn
    }
    marks = {name: each.fingerprint for name, each in taken.items()}
    if not parts or not all(part.is_known(marks) for part in parts):
        return None
    names = _replaced_by(file, parts)
    times = [each.at for each in taken.values() if each.path in names and each.at is not None]
    counts = [(each.rows, each.commit) for each in taken.values() if each.path in names]
    rows, commit = total(count for count, _ in counts), max((commit for _, commit in counts), default=0)
    return replace(file, done=True, at=max(times, default=None), rows=rows, commit=commit)


def total(rows: Iterable[int | None]) -> int | None:
    """Return the number of rows of several files; None if one is unknown."""
    every = [*rows]
    known = [count for count in every if count is not None]
    return sum(known) if len(known) == len(every) else None


def _replaced_by(file: InputFile, parts: Iterable[Part]) -> set[str]:
    """Return the paths of the files that a compacted file with these parts replaces, directly or through earlier ones."""
    prefix = _split(file.path)[0]
    return {prefix + name for part in parts for name in part.names()}


def _split(path: str) -> tuple[str, str]:
    """Return the directory of a relative path, with the slash after it, and the path in it."""
    _, name = split_path(path)
    return path.removesuffix(name), name


@frozen
class Listing:
    """The files of an input, each list sorted by path; their paths are relative to `root`.

    `passed` are those that are not read. `new` have never been taken from; `waiting` have rows at or after the last upper; `done` are taken in full.
    `withdrawn` were taken back, and are still in their places, or in the archive; new files in their places are `amended`. `changed` files were taken in with other content, and are in no list: their rows are replaced before anything else is read. Archived files have paths relative to `base`; those that are still
    to be moved there are `unmoved`. Waiting files that have `grown` are later versions of a file that was taken from: their first rows, this many, are
    the rows of the file before. If only these are to be read, the file counts as unchanged, and `limits` has their number.
    """

    root: Path
    new: tuple[InputFile, ...]
    waiting: tuple[InputFile, ...] = ()
    done: tuple[InputFile, ...] = ()
    passed: tuple[PassedOver, ...] = ()
    withdrawn: tuple[InputFile, ...] = ()
    base: Path | None = None
    unmoved: tuple[InputFile, ...] = ()
    amended: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    """The files that were taken in, are no longer there, and keep their rows."""
    copies: Mapping[str, Path] = field(default_factory=dict)
    """The copies of files that are gone and are to be read."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The former path of each file that was taken in under another name, with the same content."""
    grown: Mapping[str, tuple[int, InputFile]] = field(default_factory=dict)
    """The files of a log that were taken from, and to which the log's writer has added since: how many rows each had, and its entry then."""
    limits: Mapping[str, int] = field(default_factory=dict)
    growing: bool = False
    """True: it is a log whose writer may add to its files."""
    horizon: tuple[int, ...] | None = None
    """The time that older updates of a log were summed up as of; None: none were."""
    summed: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    """The files that a file stands for which has summed them up, by its path."""

    def is_as_listed(self, file: InputFile) -> bool:
        """Return whether a file is unchanged since it was listed, by its size and time."""
        path = self.path(file)
        try:
            if tag := fs(path).tag():
                return tag == file.fingerprint
            found = path.stat()
        except FileNotFoundError:
            return False
        return (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)

    def not_before(self, horizon: tuple[int, ...]) -> Listing:
        """Return the listing of a log that has no times before this one, or before an even later one."""
        return replace(self, horizon=horizon if self.horizon is None else max(horizon, self.horizon))

    def only(self, ready: Callable[[Path], bool]) -> Listing:
        """Return the listing with the new files that are ready to be read."""
        return replace(self, new=tuple(file for file in self.new if ready(self.path(file))))

    @property
    def to_read(self) -> tuple[InputFile, ...]:
        """The files that this run must read."""
        return (*self.waiting, *self.new)

    @property
    def size(self) -> int:
        """The bytes of its files, whether they are taken in or to be read."""
        return sum(file.size for file in self.files)

    def without(self, paths: Collection[str], before: Iterable[InputFile]) -> Listing:
        """Return the listing without these of its new files; withdrawn files whose replacements are left out stay known."""
        new = tuple(file for file in self.new if file.path not in paths)
        amended = self.amended & set(paths)
        known = tuple(file for file in before if file.withdrawn and file.key in amended)
        return replace(self, new=new, withdrawn=(*self.withdrawn, *known), amended=self.amended - amended)

    def reopened(self, frontier: Times) -> Listing:
        """Return the listing of an input whose rows at or after a frontier are open again: none of these was put aside."""
        return replace(
            self,
            waiting=tuple(_reopened(file, frontier) for file in self.waiting),
            done=tuple(_reopened(file, frontier) for file in self.done),
            grown={path: (rows, _reopened(file, frontier)) for path, (rows, file) in self.grown.items()},
        )

    def before_arrival(self, time: int, last: int) -> Listing:
        """Return the listing without the files that came at a time or later: they are new to the next run. `last` is the time of files that have none.

        Raises InputError where one of these is no longer in its place.
        """

        def before(files: Iterable[InputFile]) -> tuple[InputFile, ...]:
            return tuple(file for file in files if (last if file.at is None else file.at) < time)

        for file in {*self._taken()} - {*before(self._taken())}:
            if file.archived or file.forgotten or file.key in self.gone:
                raise InputError(
                    "the file was read at that time or later, and is no longer in its place",
                    place=str(self.path(file)),
                    hint="choose a later time; or put such files back, and start again: `dd reset PIPELINE --outputs`",
                )
        return replace(self, waiting=before(self.waiting), done=before(self.done), grown={})

    def past(self) -> Listing:
        """Return the listing of the files that were taken from, to read them all again."""
        limits = {path: rows for path, (rows, _) in self.grown.items()}
        past = tuple(self.grown[file.path][1] if file.path in limits else file for file in self._taken())
        return Listing(
            self.root,
            (),
            past,
            withdrawn=self.withdrawn,
            base=self.base,
            unmoved=self.unmoved,
            gone=self.gone,
            copies=self.copies,
            renamed=self.renamed,
            limits=limits,
            growing=self.growing,
        )

    def _taken(self) -> list[InputFile]:
        return sorted((*self.waiting, *self.done), key=lambda file: file.path)

    def anew(self) -> Listing:
        """Return the listing of an input that is taken in anew: files that were moved elsewhere are as new as those that are in place."""
        new = tuple(sorted((*self.new, *self.waiting, *self.done), key=lambda file: file.path))
        return replace(self, new=new, waiting=(), done=(), grown={}, renamed={})

    def mended(self, before: Iterable[InputFile], at: int | None = None) -> Listing:
        """Return the listing with its new files in the place of files under the same names, as if they had been taken in then, or at the time `at`."""
        new = self.marked(before).new
        if at is not None:
            new = tuple(replace(file, at=at) for file in new)
        return replace(self, new=(), waiting=tuple(sorted((*self.waiting, *new), key=lambda file: file.path)))

    def apart(self, paths: Collection[str], before: Iterable[InputFile]) -> tuple[Listing, Listing]:
        """Return the listing without its new files at these paths, and the listing of these alone, as if they had been taken in with the files that they replace."""
        chosen = replace(self, new=tuple(file for file in self.new if file.path in paths)).marked(before).new
        new = tuple(file for file in self.new if file.path not in paths)
        return replace(self, new=new, amended=self.amended - set(paths)), Listing(self.root, (), chosen, base=self.base)

    def whole(self) -> Listing:
        """Return the listing with all files to read."""
        return replace(self, waiting=tuple(self._taken()), done=(), passed=(), amended=frozenset(), grown={})

    def marked(self, before: Iterable[InputFile], last: int | None = None) -> Listing:
        """Return the listing with the notes of earlier runs on the files of the same names: the rows that they put aside, and
        the time at which they took the file in, or the last one of those that it stands for.

        If a state has no such time for a file that was taken in, it is the `last` run's.
        """
        before = tuple(before)
        known = {file.key: file for file in before}

        def noted(file: InputFile) -> InputFile:
            entry = known.get(file.key) or taken_as(file, self.summed.get(file.path, ()), before)
            if entry is None:
                return file
            at = last if entry.done and entry.at is None else entry.at
            same = entry.fingerprint == file.fingerprint
            return replace(file.counted_as(entry) if same else file, since=entry.since, at=at)

        return replace(self, new=tuple(map(noted, self.new)))

    def archived_as_now(self) -> Listing:
        """Return the listing with the present sizes and times of archived files among its new ones, which may differ from those when they were taken in."""
        return replace(self, new=tuple(self._as_now(file) if file.archived else file for file in self.new))

    def _as_now(self, file: InputFile) -> InputFile:
        path = self.path(file)
        if not path.is_file():
            return file
        if isinstance(path, ObjectPath):
            entry = path.head()
            mark = (path != self.root / file.path and path.copy_of()) or tag_of(entry)
            return replace(file, size=entry["size"], fingerprint=mark)
        size = path.stat().st_size
        return replace(file, size=size, fingerprint=fingerprint(path, size))

    def known(self, before: Iterable[InputFile]) -> Listing:
        """Return the listing of the new files that were taken in before, even if their content differs. Refuse a file that is gone."""
        taken = {file.key: file for file in before if not file.withdrawn}
        here = {file.key: file for file in self.new}
        if vanished := sorted(taken.keys() - here.keys()):
            raise InputError(
                f"a file that was already read has vanished: '{vanished[0]}'",
                place=str(self.path(taken[vanished[0]])),
                hint="put it back, or withdraw its rows: `dd retract PIPELINE FILE`",
            )
        return replace(self, new=tuple(file for file in self.new if file.key in taken))

    def with_arrival(self, time: int) -> Listing:
        """Return the listing with this time of arrival for files that have none."""
        new, waiting = (
            tuple(file if file.at is not None else replace(file, at=time) for file in files)
            for files in (self.new, self.waiting)
        )
        return replace(self, new=new, waiting=waiting)

    def verify(self) -> None:
        """Refuse a file that was taken from, is to be read again, and has another fingerprint; size and time may be as they were."""
        for file in (*self.waiting, *(file for file in self.new if file.archived)):
            path = self.path(file)
            if file.key in self.copies:
                continue
            if isinstance(path, ObjectPath):
                if file.path in self.limits:
                    continue
                # The listing has compared a file in the input; the reader reports one that is missing from the archive. An added file is no copy.
                apart = path != self.root / file.path and path.is_file()
                if apart and not path.is_copy(file.fingerprint) and tag_of(path.head()) != file.fingerprint:
                    raise _changed(path, OTHER_CONTENT)
                continue
            if not file.fingerprint or file.path in self.limits:
                continue
            try:
                same = fingerprint(path, file.size) == file.fingerprint
            except OSError:
                continue  # its reader reports why
            if not same:
                raise _changed(path, OTHER_CONTENT)

    @property
    def files(self) -> tuple[InputFile, ...]:
        """All files."""
        return (*self.done, *self.to_read)

    def path(self, file: InputFile) -> Path:
        """Return the path under which a file can be opened."""
        if file.archived and self.base is not None and file not in self.unmoved:
            return locate(self.base, file.archived)
        return self.copies.get(file.key) or self.root / file.path


def _reopened(file: InputFile, frontier: Times) -> InputFile:
    return file if file.since is None else replace(file, since=Frontier((*file.since, *frontier)).elements)


HEAD, TAIL = 4 << 10, 64 << 10
WHOLE = 32
"""Bytes of the digest of a whole file; the fingerprint of parts has half as many."""
PUT_BACK = (
    "put the file back as it was, and new rows into a file of their own",
    "withdraw it, and read the file that is there now: `dd retract PIPELINE FILE`",
    "replace the rows of files that have changed, from now on: `changed: replace` under the input",
    "recompute everything from the present files: `dd run PIPELINE --full-refresh all`",
)
"""The ways on for a person whose input file has changed."""
OTHER_CONTENT = "it has the same size and other content"


def content_digest(path: Path) -> str:
    """Return the digest of all of a file's bytes."""
    with naming(path), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=WHOLE)).hexdigest()


def _changed(path: Path, change: str) -> InputError:
    return InputError(f"a file that was already read has changed: {change}", place=str(path), hint=PUT_BACK)


def mark_in(root: Path, file: InputFile) -> str:
    """Return a file's fingerprint: an object's came with the listing."""
    return file.fingerprint or fingerprint(root / file.path, file.size)


def mark_of(path: Path, size: int) -> str:
    """Return the fingerprint that a listing has of a file, or an object, of `size` bytes."""
    return fs(path).tag() or fingerprint(path, size)


def fingerprint(path: Path, size: int) -> str:
    """Return a cheap digest of a file: its size, first 4 KiB and last 64 KiB, where Parquet keeps its footer with all offsets."""
    with naming(path), path.open("rb", buffering=0) as file:
        return fingerprint_of(file, size)


def fingerprint_of(file: IO[bytes], size: int) -> str:
    """Return the fingerprint of a file's content of `size` bytes."""
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    digest.update(file.read(HEAD))
    file.seek(max(HEAD, size - TAIL))
    digest.update(file.read(TAIL))
    return digest.hexdigest()
