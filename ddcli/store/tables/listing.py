"""What files an input has, and which of them are new, by our own rules: other readers disagree on hidden and temporary names.

Consumed files are facts: their new content can't be compared with the rows that were read, so one that changed or vanished
refuses the run. Imports no third-party library; 1 000 unchanged files take about 5 ms.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
from dataclasses import replace
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.errors import InputError
from ddcli.store.files.gate import TEMPORARY
from ddcli.store.files.objects import ObjectPath, is_utf8, locate
from ddcli.store.state.entries import InputFile
from ddcli.store.tables.lakes import refusal, refuse_lake_tables, table_of
from ddcli.store.tables.packing import NAMES as PACKINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

UNFINISHED = (TEMPORARY, ".tmp", ".temp", ".part", ".partial", ".inprogress", ".crdownload", ".swp", "~")
"""Endings of names under which other tools write files that they have not finished."""
PRIVATE = (".", "_")
"""Beginnings of the names that are hidden, or their writer's own."""
SUFFIXES = (
    ".parquet",
    ".parq",
    ".pq",
    ".arrow",
    ".ipc",
    ".feather",
    ".orc",
    ".avro",
    ".xlsx",
    *(text + packing for text in (".csv", ".tsv", ".ndjson", ".jsonl") for packing in ("", *PACKINGS)),
)
"""Endings of the files that are taken from a directory: a README may lie there too. A file or glob is taken as it is named."""
ONLY_NAMED = (".json", ".json.gz", ".json.bz2", ".json.zst")
"""Endings of files that hold data or settings: they are taken where a person names them, by a glob or one by one."""
ONLY_WHERE_NAMED = "JSON is read where `path` names it, as in '*.json'"
OUR_OWN = ("_progress.json", "_SUCCESS", "_metadata", "_common_metadata", "_started", "_committed")
"""Beginnings of private names that everybody expects beside data."""
HEAD, TAIL = 4 << 10, 64 << 10
WHOLE = 32
"""Bytes of the digest of a whole file; the fingerprint of parts has half as many."""
PUT_BACK = (
    "put the file back as it was: what is new goes into a file of its own; or withdraw it, and take in what lies there now: "
    "`dd retract PIPELINE FILE`; or compute all anew from the files as they are now: `dd run --full-refresh all`"
)
WITHDRAWN = "it was withdrawn (`dd retract`), and is taken in again with other content or under another name"
NOT_THERE = "check the input's `path`; it is relative to the pipeline file"
OTHER_CONTENT = "it has the same size and other content"


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A file or directory of an input that is not read, relative to its root, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of an input, each list sorted by path; their paths are relative to `root`.

    `passed` are those that are not read. `new` have never been taken from; in `waiting` rows were left at or after the last upper; `done` are taken in full.
    `withdrawn` were taken back, and lie there as they were, or in the archive; of the new ones those that lie there instead are `amended`. Archived files have paths relative to `base`; those that are still
    to be moved there are `unmoved`.
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

    def only(self, ready: Callable[[Path], bool]) -> Listing:
        """Return the listing with those of its new files that are ready to be read."""
        return replace(self, new=tuple(file for file in self.new if ready(self.path(file))))

    @property
    def to_read(self) -> tuple[InputFile, ...]:
        """The files that this run must look into."""
        return (*self.waiting, *self.new)

    def past(self) -> Listing:
        """Return the listing of the files that were taken from, to read them all again."""
        past = tuple(sorted((*self.waiting, *self.done), key=lambda file: file.path))
        return Listing(self.root, (), past, (), (), self.withdrawn, self.base, self.unmoved)

    def anew(self) -> Listing:
        """Return the listing of an input that is taken in anew: files that lie elsewhere by now are as new as those that lie there."""
        new = tuple(sorted((*self.new, *self.done), key=lambda file: file.path))
        return replace(self, new=new, done=())

    def mended(self, before: Iterable[InputFile]) -> Listing:
        """Return the listing with its new files in the place of files under the same names, as if they had been taken in then."""
        marked = self.marked(before)
        return replace(marked, new=(), waiting=tuple(sorted((*self.waiting, *marked.new), key=lambda file: file.path)))

    def whole(self) -> Listing:
        """Return the listing with all files to read."""
        return replace(self.past(), new=self.new)

    def marked(self, before: Iterable[InputFile]) -> Listing:
        """Return the listing with what earlier runs noted of the files under its new files' names: which rows they put aside, and
        when they took the file in.
        """
        known = {file.key: file for file in before}
        return replace(
            self,
            new=tuple(
                replace(file, since=known[file.key].since, at=known[file.key].at) if file.key in known else file
                for file in self.new
            ),
        )

    def arriving(self, time: int) -> Listing:
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
            if isinstance(path, ObjectPath) or not file.fingerprint:
                continue  # of an object the listing has compared it
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
        return self.root / file.path


def list_input(path: str, base: Path, consumed: Iterable[InputFile] = (), *, forgets: bool = False) -> Listing:
    """List a directory (with those below it), one file, or a glob; `path` is relative to `base`.

    A file of the same size and modification time is taken as unchanged (until it is read again: see `Listing.verify`), one of
    the same size and another time if its fingerprint is the same. Raises `InputError` for a path that is not there, a glob that
    matches nothing, a directory that a table's own log explains, and a consumed file that changed or vanished. Where an input
    `forgets`, files that were taken in whole may vanish, and where they are archived, or withdrawn, there may be none.
    """
    consumed = tuple(consumed)
    try:
        passed: list[PassedOver] = []
        try:
            root, found = _find(path, base, passed)
        except NothingFound:
            emptied = _emptied(path, base, consumed, forgets=forgets)
            if emptied is None:
                raise
            root, found = emptied, iter(())
        listing = _sorted_out(root, sorted(found, key=lambda file: file.path), consumed, base, forgets=forgets)
        passed += [PassedOver(file.path, WITHDRAWN) for file in listing.withdrawn if not file.archived]
        if passed:
            listing = replace(listing, passed=tuple(sorted(passed, key=lambda one: one.path)))
        if listing.new and locate(base, path) != listing.path(
            listing.new[0]
        ):  # one file that a person names is that file
            objects = isinstance(root, ObjectPath)
            refuse_lake_tables([root] if objects else sorted({listing.path(file).parent for file in listing.new}))
    except OSError as error:  # no permission, a link to nothing, a file that went away meanwhile
        name = str(error.filename or path)
        if isinstance(error, FileNotFoundError) and os.path.islink(name):  # noqa: PTH114 - as in `_matching`
            target = os.readlink(name)  # noqa: PTH115 - as in `_matching`
            problem = f"a link to '{target}', which is not there"
            raise InputError(problem, place=name, hint="remove the link, or put the file back") from None
        raise InputError(f"the input can't be listed: {error.strerror}", place=str(error.filename or path)) from None
    return listing


def unmoved(path: str, base: Path, consumed: Iterable[InputFile]) -> list[tuple[InputFile, Path]]:
    """Return the archived files of an input that still lie in it, each with where it lies."""
    root, found = glimpse(path, base)
    names = _by_path(file for file in consumed if file.archived and not file.withdrawn)
    try:
        each = [(_again(root, file, names.get(file.path, ())), root / file.path) for file in found]
    except OSError:  # one went away meanwhile: another run will see
        return []
    return [(file, place) for file, place in each if file is not None]


def glimpse(path: str, base: Path) -> tuple[Path, list[InputFile]]:
    """Return where an input lies, and its files as a look at names, sizes and times tells them; none of one that isn't there."""
    try:
        root, found = _find(path, base, [])
        return root, list(found)
    except (InputError, OSError):
        return locate(base, path), []


class NothingFound(InputError):
    """The error of a path where there is no file."""


def _emptied(path: str, base: Path, consumed: Sequence[InputFile], *, forgets: bool) -> Path | None:
    """Return the root of an input of one file, or a glob, all files of which may be gone; None where something is missing."""
    root, name = places_of(path, base)[-1], locate(base, path).name
    gone = any(file.archived for file in consumed) or all(file.withdrawn for file in consumed)
    may_be = bool(consumed) and (forgets or gone)
    named = glob.has_magic(path) or all(file.path == name for file in consumed)
    return root if may_be and named and root.is_dir() else None


def _sorted_out(
    root: Path, found: Sequence[InputFile], consumed: Iterable[InputFile], base: Path, *, forgets: bool
) -> Listing:
    known = {file.key: file for file in consumed}
    apart = {key: known.pop(key) for key in [key for key, file in known.items() if file.archived or file.forgotten]}
    withdrawn = [apart.pop(key) for key in [key for key, file in apart.items() if file.withdrawn]]
    names = _by_path(apart.values())
    new, waiting, done, unmoved = [], [], [], []
    amended = set()
    for file in found:
        if not is_utf8(file.path):
            raise InputError("the file's name is not UTF-8", place=str(root / file.path), hint="rename it")
        before = known.pop(file.path, None)
        if before is None and (again := _again(root, file, names.get(file.path, ()))) is not None:
            apart.pop(again.key)
            if again.archived:
                unmoved.append(again)
            else:
                again = replace(again, forgotten=False, mtime_ns=file.mtime_ns)
            done.append(again)
            continue
        if before is not None and before.withdrawn:
            same = _withdrawn(root, before, file)
            if same is not None:
                withdrawn.append(same)
                continue
            before = None
            amended.add(file.path)
        if before is None:
            new.append(replace(file, fingerprint=_fingerprint(root, file)))
        elif before.done:
            done.append(_unchanged(root, before, file))
        else:
            waiting.append(_unchanged(root, before, file))
    if forgets:
        done += [replace(file, forgotten=True) for file in known.values() if file.done and not file.withdrawn]
        known = {path: file for path, file in known.items() if not file.done}
    done += apart.values()
    if vanished := [path for path, file in known.items() if not file.withdrawn]:
        gone = min(vanished)
        raise InputError(
            f"a file that was already taken in has vanished: '{gone}'", place=str(root / gone), hint=PUT_BACK
        )
    lists = (tuple(new), tuple(waiting), tuple(done))
    return Listing(
        root, *lists, withdrawn=tuple(withdrawn), base=base, unmoved=tuple(unmoved), amended=frozenset(amended)
    )


def _by_path(files: Iterable[InputFile]) -> dict[str, list[InputFile]]:
    """Return files by the path that they have, or had, in their input."""
    found: dict[str, list[InputFile]] = {}
    for file in files:
        found.setdefault(file.path, []).append(file)
    return found


def _again(root: Path, now: InputFile, known: Iterable[InputFile]) -> InputFile | None:
    """Return which of some files that have been archived, or forgotten, a file is: of the first the very same, that was not moved yet."""
    for before in known:
        same = now.size == before.size and (before.forgotten or now.mtime_ns == before.mtime_ns)
        if same and _fingerprint(root, now) == before.fingerprint:
            return before
    return None


def _withdrawn(root: Path, before: InputFile, now: InputFile) -> InputFile | None:
    """Return a withdrawn file's entry, with the digest of all its content, if it lies there as it was; None if it has other content.

    As long as the digest is that of a part, a large file that was written to since it was taken in counts as another.
    """
    if now.size != before.size:
        return None
    if now.fingerprint:  # of an object
        return before if now.fingerprint == before.fingerprint else None
    written = now.mtime_ns != before.mtime_ns
    if len(before.fingerprint) == 2 * WHOLE:
        same = not written or content_digest(root / now.path) == before.fingerprint
        return replace(before, mtime_ns=now.mtime_ns) if same else None
    if (written and now.size > HEAD + TAIL) or _fingerprint(root, now) != before.fingerprint:
        return None
    return replace(before, mtime_ns=now.mtime_ns, fingerprint=content_digest(root / now.path))


def content_digest(path: Path) -> str:
    """Return the digest of all of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=WHOLE)).hexdigest()


def places_of(path: str, base: Path) -> tuple[Path, ...]:
    """Return the directories that an input's files may be relative to, whether or not they exist."""
    whole = locate(base, path)
    fixed = whole
    while glob.has_magic(str(fixed)):
        fixed = fixed.parent
    return tuple(dict.fromkeys((fixed, whole.parent) if fixed == whole else (fixed,)))


def _unchanged(root: Path, before: InputFile, now: InputFile) -> InputFile:
    """Return a consumed file's entry with its present time, or refuse it."""
    if now.size != before.size:
        change = f"it had {before.size} bytes and has {now.size}"
    elif now.mtime_ns == before.mtime_ns and now.fingerprint in {"", before.fingerprint}:
        return before
    elif _fingerprint(root, now) == before.fingerprint:
        return replace(before, mtime_ns=now.mtime_ns)
    else:
        change = OTHER_CONTENT
    raise _changed(root / now.path, change)


def _changed(path: Path, change: str) -> InputError:
    return InputError(f"a file that was already taken in has changed: {change}", place=str(path), hint=PUT_BACK)


def _fingerprint(root: Path, file: InputFile) -> str:
    """Return a file's fingerprint: that of an object came with the listing."""
    return file.fingerprint or fingerprint(root / file.path, file.size)


def fingerprint(path: Path, size: int) -> str:
    """Return a cheap digest of a file: its size, first 4 KiB and last 64 KiB, where Parquet keeps its footer with all offsets."""
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb", buffering=0) as file:
        digest.update(file.read(HEAD))
        file.seek(max(HEAD, size - TAIL))
        digest.update(file.read(TAIL))
    return digest.hexdigest()


def _find(path: str, base: Path, passed: list[PassedOver]) -> tuple[Path, Iterator[InputFile]]:
    """Return the root of an input and its files; those that are not read are added to `passed`."""
    whole = locate(base, path)
    if isinstance(whole, ObjectPath):
        return _find_objects(path, whole, passed)
    if whole.is_dir():
        return whole, _walk(str(whole), "", passed)
    if whole.is_file():  # named by a person: taken whatever it is called
        return whole.parent, iter([_entry(whole.name, whole.stat(), whole.parent)])
    if not glob.has_magic(path):
        raise _nothing(f"there is no file or directory '{path}'", whole)
    fixed = whole
    while glob.has_magic(str(fixed)):
        fixed = fixed.parent
    found = list(_matching(str(whole), f"{fixed}".rstrip("/") + "/", passed))
    if not found:
        raise _nothing(f"the glob '{path}' matches no file", whole)
    return fixed, iter(found)


def _matching(pattern: str, fixed: str, passed: list[PassedOver]) -> Iterator[InputFile]:
    """Yield the files that a pattern below a directory matches."""
    for match in glob.iglob(pattern, recursive=True):  # noqa: PTH207 - Path.glob takes no absolute pattern
        name = match.removeprefix(fixed)
        if _ignored(name):
            _note(name, passed)
            continue
        found = os.stat(match)  # noqa: PTH116 - there may be tens of thousands
        if not S_ISDIR(found.st_mode):
            yield _entry(name, found, fixed[:-1])


def _nothing(problem: str, whole: Path) -> InputError:
    return NothingFound(problem, place=str(whole), hint=NOT_THERE)


def _find_objects(path: str, whole: ObjectPath, passed: list[PassedOver]) -> tuple[ObjectPath, Iterator[InputFile]]:
    """Return the root of an input in an object store and its files, by the same rules."""
    pattern = glob.has_magic(whole.key)
    root = whole
    while glob.has_magic(root.key):
        root = root.parent
    found = []
    for object_path, entry in root.below():
        name = os.path.relpath(object_path.inner, root.inner)
        if table := table_of(name):
            raise refusal(table, root / table.directory)
        matches = _matches(object_path.parts, whole.parts) if pattern else name.lower().endswith(SUFFIXES)
        if matches and not _ignored(name):
            found.append(_object(name, entry))
        elif matches or not pattern:
            _note(name, passed)
    if found:
        return root, iter(found)
    if pattern:
        raise _nothing(f"the glob '{path}' matches no file", whole)
    if not whole.is_dir():
        try:
            return whole.parent, iter([_object(whole.name, whole.head())])
        except FileNotFoundError:
            raise _nothing(f"there is no file or directory '{path}'", whole) from None
    return whole, iter(())


def _object(name: str, entry: dict[str, Any]) -> InputFile:
    """Return the file of an object: its tag identifies its content, as a fingerprint does."""
    changed = int(entry["last_modified"].timestamp())
    return InputFile(name, entry["size"], changed * 1_000_000_000, entry["e_tag"] or str(changed))


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Say whether a glob takes a path, both in parts: `**` stands for any number of directories.

    >>> _matches(["log", "2024", "a.parquet"], ["log", "**", "*.parquet"])
    True
    """
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_matches(names[at:], pattern[1:]) for at in range(len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


def _walk(
    directory: str, prefix: str, passed: list[PassedOver], above: tuple[tuple[int, int], ...] = ()
) -> Iterator[InputFile]:
    """Give the files below a directory; `above` are the directories that lead to it, where a link is among them."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(PRIVATE) or name.endswith(UNFINISHED):
                _note(prefix + name, passed)
            elif entry.is_dir():
                if entry.is_symlink():
                    leading = {*above, *_directories(directory, prefix)}
                    there = entry.stat()
                    if (there.st_dev, there.st_ino) in leading:
                        passed.append(PassedOver(prefix + name, "a link to a directory that it lies in"))
                        continue
                    yield from _walk(entry.path, f"{prefix}{name}/", passed, (*leading,))
                else:
                    yield from _walk(entry.path, f"{prefix}{name}/", passed, above)
            elif name.lower().endswith(SUFFIXES):
                yield _entry(name, entry.stat(), directory, prefix)
            else:
                _note(prefix + name, passed)


def _directories(directory: str, prefix: str) -> Iterator[tuple[int, int]]:
    """Give a directory of an input and those above it up to its root, as the file system knows them."""
    for _ in range(prefix.count("/") + 1):
        found = os.stat(directory)  # noqa: PTH116 - as in `_matching`
        yield found.st_dev, found.st_ino
        directory = os.path.dirname(directory)  # noqa: PTH120 - as in `_matching`


def _note(path: str, passed: list[PassedOver]) -> None:
    """Add to what is passed over, unless nobody would look for it: what is hidden, and marks that other tools leave beside data."""
    name = path.rpartition("/")[2]
    if name.upper().startswith(("README", "LICENSE")):
        return
    hidden = any(part.startswith(".") for part in path.split("/"))
    if hidden or name.startswith(OUR_OWN) or name.endswith(TEMPORARY):
        return
    if name.endswith(UNFINISHED):
        why = "its name is that of a file that isn't finished"
    elif any(part.startswith("_") for part in path.split("/")):
        why = "a name that begins with '_' is its writer's own"
    elif name.lower().endswith(ONLY_NAMED):
        why = ONLY_WHERE_NAMED
    else:
        ending = name[name.rfind(".") :] if "." in name else ""
        why = (
            f"no kind of file that is read ends in '{ending}'"
            if ending
            else "its name has no ending of a kind that is read"
        )
    passed.append(PassedOver(path, why))


def _entry(name: str, stat: os.stat_result, directory: str | Path, prefix: str = "") -> InputFile:
    """Return the file of this name in a directory; what is no file, a pipe or a device, would be waited for or never end."""
    if not S_ISREG(stat.st_mode):
        raise InputError("the input is not a plain file", place=f"{directory}/{name}", hint="take it out of the input")
    return InputFile(prefix + name, stat.st_size, stat.st_mtime_ns)


def taken_from_directory(path: str) -> bool:
    """Say whether a file is one of those that are read of a directory."""
    return path.lower().endswith(SUFFIXES) and not _ignored(path)


def _ignored(path: str) -> bool:
    """Say whether a name in the path is hidden, private (as Spark's `_SUCCESS` and our `_progress.json`) or unfinished."""
    return any(name.startswith(PRIVATE) for name in path.split("/")) or path.endswith(UNFINISHED)
