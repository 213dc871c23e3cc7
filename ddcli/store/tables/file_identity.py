"""The identity of a file that was taken in: by its size and time, else by its fingerprint.

A database in a file, or a file that is put in place as a whole, has a stamp that changes with it. Imports no third-party library.
"""

from __future__ import annotations

import hashlib
import time as clock
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from ddcli.errors import InputError
from ddcli.store.files.access import fs, naming
from ddcli.store.files.gate import one_by_one
from ddcli.store.files.objects import ObjectPath, locate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.store.state.entries import InputFile


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
RESTORE = (
    "put the file back as it was",
    "withdraw its rows: `dd retract PIPELINE FILE`, or `dd retract PIPELINE --missing` for all files that are gone",
    "keep the rows of files that are gone: `consumed: forget` under the input",
    "take out the rows of files that are gone, from now on: `missing: retract` under the input",
    "recompute everything from the present files: `dd run PIPELINE --full-refresh all`",
)
"""The ways on for a person whose input file is gone."""


OTHER_CONTENT = "it has the same size and other content"


def taken_again(root: Path, base: Path, now: InputFile, known: Iterable[InputFile]) -> InputFile | None:
    """Return the archived or forgotten file that a file is: an archived one must be the very same, which was not moved yet.

    An object gets another time when it is moved, so an added one that came into its input is known by its tag.
    """
    for before in known:
        timed = before.forgotten or now.mtime_ns == before.mtime_ns
        if now.size != before.size or not (timed or now.fingerprint) or not has_content(root, now, before):
            continue
        if timed or not _is_copied(locate(base, before.archived)):
            return before
    return None


def _is_copied(path: Path) -> bool:
    """Return whether an object is the copy that a run has put into an archive."""
    try:
        return isinstance(path, ObjectPath) and bool(path.copy_of())
    except FileNotFoundError:
        return False


def is_file(file: InputFile, path: Path) -> bool:
    """Return whether a path has the very file, or object, that was read, wherever it lies now."""
    if tag := fs(path).tag():
        return tag == file.fingerprint
    found = path.stat()
    same = (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)
    return same and fingerprint(path, file.size) == file.fingerprint


def withdrawn_entry(root: Path, before: InputFile, now: InputFile) -> InputFile | None:
    """Return a withdrawn file's entry, with the digest of all its content, if it is still there, unchanged; None if it has other content.

    As long as the digest is that of a part, a large file that was written to since it was taken in counts as another.
    """
    if now.size != before.size:
        return None
    if now.fingerprint:  # of an object
        same = now.fingerprint == before.fingerprint or now.size <= HEAD + TAIL
        return replace(before, fingerprint=now.fingerprint) if same and has_content(root, now, before) else None
    written = now.mtime_ns != before.mtime_ns
    if len(before.fingerprint) == 2 * WHOLE:
        same = not written or content_digest(root / now.path) == before.fingerprint
        return replace(before, mtime_ns=now.mtime_ns) if same else None
    if (written and now.size > HEAD + TAIL) or mark_in(root, now) != before.fingerprint:
        return None
    return replace(before, mtime_ns=now.mtime_ns, fingerprint=content_digest(root / now.path))


def content_digest(path: Path) -> str:
    """Return the digest of all of a file's bytes."""
    with naming(path), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=WHOLE)).hexdigest()


def has_changed(root: Path, before: InputFile, now: InputFile) -> bool:
    """Return whether a consumed file may have other content by now: one that was written to does, if its fingerprint leaves out some of its bytes."""
    if now.size != before.size:
        return True
    if now.mtime_ns == before.mtime_ns and now.fingerprint in {"", before.fingerprint}:
        return False
    written = now.fingerprint != before.fingerprint  # as a file of this machine counts without a look
    return (written and now.size > HEAD + TAIL) or not has_content(root, now, before)


def present_entry(root: Path, before: InputFile, now: InputFile) -> tuple[InputFile, int | None]:
    """Return a consumed file's present entry, and if it has grown, how many rows it had; refuse one that changed otherwise."""
    if now.size != before.size:
        change = f"it had {before.size} bytes and has {now.size}"
    elif now.mtime_ns == before.mtime_ns and now.fingerprint in {"", before.fingerprint}:
        return before, None
    elif has_content(root, now, before):
        fingerprint = now.fingerprint or before.fingerprint
        return replace(before, mtime_ns=now.mtime_ns, fingerprint=fingerprint), None
    else:
        change = OTHER_CONTENT
    from ddcli.store.log.joint_files import rows_of  # only here: of files that have changed

    path = root / now.path
    if before.fingerprint and now.path.endswith(".parquet") and (rows := rows_of(path, before.fingerprint)) is not None:
        return replace(now, fingerprint=mark_in(root, now), since=before.since).counted_as(before), rows
    raise _changed(path, change)


def _changed(path: Path, change: str) -> InputError:
    return InputError(f"a file that was already read has changed: {change}", place=str(path), hint=PUT_BACK)


def has_content(root: Path, now: InputFile, before: InputFile) -> bool:
    """Return whether a file has the content of one of the same size, by their fingerprints; of objects whose store gives each writing another one, by their digests."""
    return mark_in(root, now) == before.fingerprint or (bool(now.digest) and now.digest == before.digest)


def with_digests(root: Path, found: Sequence[InputFile], consumed: Iterable[InputFile]) -> Sequence[InputFile]:
    """Return objects of Azure's store with the digests of those that were not taken in with their tags: a tag is that of one writing there.

    So a lake that is copied into another container is what it was. A digest is of parts, so only objects get one whose parts are all of it, and
    Parquet files, whose footers have all offsets. Each takes one or two requests; they go side by side.
    """
    if fs(root).is_local or root.parts[1] != "az:":
        return found
    known = {(file.path, file.fingerprint): file.digest for file in consumed}
    new = [file for file in found if (file.path, file.fingerprint) not in known and _is_told_by_parts(file)]
    sizes: dict[Path, int] = {root / file.path: file.size for file in new}
    digests: dict[Path, str] = {}
    one_by_one(lambda path: digests.update({path: fingerprint(path, sizes[path])}), [*sizes])
    return [replace(file, digest=digests.get(root / file.path, "")) for file in found]


def _is_told_by_parts(file: InputFile) -> bool:
    return file.size <= HEAD + TAIL or file.path.lower().endswith((".parquet", ".parq", ".pq"))


def mark_in(root: Path, file: InputFile) -> str:
    """Return a file's fingerprint: that of an object came with the listing."""
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


LOGS = ("-wal", ".wal", "-journal")
"""The endings of files beside a database with changes that are not in it yet."""
RACY = 2.0
"""Seconds before a look at a file in which a change of it may not show in its time."""


def stamp_of(file: Path) -> str:
    """Return sizes and times of a database's files; another text each time where one has changed just now."""
    found, now = [], clock.time()
    for path in (file, *(file.with_name(file.name + ending) for ending in LOGS)):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append(f"{stat.st_size}:{stat.st_mtime_ns}")
        if stat.st_mtime > now - RACY:
            found.append(str(clock.time_ns()))
    return " ".join(found)


def size_and_time(file: Path) -> dict[str, Any]:
    """Return the size of a file, and the time of its last change; nothing for an object, as that takes a request."""
    if not fs(file).is_local:
        return {}
    stat = file.stat()
    return {"size": stat.st_size, "changed": stat.st_mtime_ns}
