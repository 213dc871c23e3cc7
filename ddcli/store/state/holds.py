"""Holds: the claims of readers in other pipelines on a state, a small file each in `<state>/holds/`.

A reader that has taken an arrangement's updates up to a frontier must be able to take the rest, and to distinguish times from there on.
So times at or after the meet of all holds' `since` stay apart, and batches that reach beyond their `through` are neither merged with
older ones nor advanced. While a reader reads, its hold names the manifest that it reads by: a sweep leaves that and its files.

A short lock, `holds/LOCK`, is held while a hold is written and the newest manifest read, and while the holds are read and files swept: so no
file vanishes under a reader. The first hold of a reader is made under the state's own lock, when no run is under way that would not
know it. Imports no third-party library.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.engine.times import Frontier
from ddcli.store.files.access import entries, real
from ddcli.store.files.lock import locked
from ddcli.store.state.document import DAMAGED, Document
from ddcli.store.state.entries import Times, frontier_of
from ddcli.store.state.names import HOLD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ddcli.store.files.gate import Files


BRANCH = "branch."
"""Begins the name of the hold of a branch, which reads one manifest as long as it exists; the holds of pipelines end with eight digits after a hyphen."""


@frozen
class Hold:
    """The claim of one reader: its arrangements (by identity), the times from which on it reads them, and the manifest that it may be reading.

    `state` is the reader's own state directory, for people. `marks` identify the commits of this state that the reader has read, or reads now:
    a copy of this state that was restored has others.
    """

    reader: str
    state: str
    arrangements: tuple[str, ...]
    since: Times
    through: Times
    manifest: int | None = None
    marks: tuple[str, ...] = ()

    @property
    def branch(self) -> str:
        """Return the name of the branch that has the hold; "" for the hold of a pipeline."""
        return self.reader.removeprefix(BRANCH) if self.reader.startswith(BRANCH) else ""


def _check(found: Hold, path: Path) -> None:
    if found.reader != path.stem:
        raise ValueError(f"the hold of {found.reader!r}")


HOLDS = Document(
    Hold,
    "the hold of a reader can't be read",
    "remove the file if its reader is gone, or have the reader run again with `--full-refresh all`",
    _check,
    since=frontier_of,
    through=frontier_of,
)


@frozen
class Claims:
    """All holds on a state, as compaction and sweeps look at them."""

    holds: tuple[Hold, ...] = ()

    def since(self, arrangement: str, own: Frontier) -> Frontier:
        """Return the frontier that an arrangement's times may be advanced to: its keeper's own, held back by readers."""
        if not self.holds:
            return own
        held = [Frontier(hold.since) for hold in self._of(arrangement)]
        return Frontier(time for frontier in (own, *held) for time in frontier)

    def through(self, arrangement: str) -> Frontier:
        """Return the frontier beyond which batches stay as they are; closed without readers."""
        return Frontier(time for hold in self._of(arrangement) for time in hold.through)

    @property
    def manifests(self) -> frozenset[int]:
        """The numbers of the manifests that may have readers now."""
        return frozenset(hold.manifest for hold in self.holds if hold.manifest is not None)

    def _of(self, arrangement: str) -> Iterator[Hold]:
        return (hold for hold in self.holds if arrangement in hold.arrangements)


def reader_name(pipeline: str, state: Path) -> str:
    """Return the name of a reader, which its state's place makes unique even among pipelines of one name."""
    return f"{pipeline}-{hashlib.sha256(str(real(state)).encode()).hexdigest()[:8]}"


def read_holds(directory: Path) -> tuple[Hold, ...]:
    """Return all holds on a state, in order of their readers' names. One that can't be read is a StateError: it may hold anything."""
    return tuple(hold for path in _files(directory) if (hold := HOLDS.read(path)) is not None)


def read_claims(directory: Path) -> Claims:
    """Return the claims of readers on a state."""
    return Claims(read_holds(directory))


def holding(directory: Path, files: Files) -> AbstractContextManager[None]:
    """Keep others from changing holds, and from sweeping, for a moment."""
    return locked(directory / "holds", files)


def write_hold(directory: Path, hold: Hold, files: Files) -> None:
    """Write a reader's hold in the place of its last one. The caller has the holds' lock."""
    HOLDS.write(_path(directory, hold.reader), hold, files)


def find_hold(directory: Path, reader: str) -> Hold | None:
    """Return a reader's hold, if it has one."""
    return next((hold for hold in read_holds(directory) if hold.reader == reader), None)


def is_reading(directory: Path, reader: str) -> bool:
    """Return whether a reader reads a state now, or died while it did."""
    try:
        hold = HOLDS.try_read(_path(directory, reader))
    except (FileNotFoundError, *DAMAGED):
        return False  # the process that writes it next reports an unreadable one
    return hold.manifest is not None


def release(directory: Path, reader: str, files: Files) -> Hold | None:
    """Drop a reader's hold and return it; None where there is none."""
    with holding(directory, files):
        found = find_hold(directory, reader)
        if found is not None:
            files.remove(_path(directory, reader))
    return found


def _path(directory: Path, reader: str) -> Path:
    return directory / "holds" / f"{reader}.json"


def _files(directory: Path) -> list[Path]:
    """Return the files of all holds on a state."""
    return [entry.path for entry in entries(directory / "holds") if HOLD.fullmatch(entry.path.name)]
