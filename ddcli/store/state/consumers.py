"""The consumers of outputs' logs, and all claimants of one: consumers, and readers in other pipelines.

The position that a consumer has acknowledged is in a small file in `<state>/consumers/`. It is the number of a commit: a consumer at it has read the
files of all commits up to it. Its next delivery are the files of later commits, and, of a file that has grown since, the rows after the commits up to
the position (see `log.joint_files`). No other file may have updates of commits on both sides of a position: code that joins files asks for the claimants
(`claimants`).

A position is acknowledged only if it was offered, and only by a process to which it was offered from the consumer's present position: of two
processes with the same delivery, one acknowledges it.

Updates that a claimant lacks stay as they are, and are not summed up, within the bound of the output's `claims`. A claimant that was passed is refused when
it reads next: a consumer by the commits of the file that joins those that it lacks with others, a reader by the files that this one stands for.
Imports no third-party library.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from ddcli.dataclass import frozen
from ddcli.errors import LockedError, UsageError
from ddcli.store.files.access import fs
from ddcli.store.files.lock import locked
from ddcli.store.log.joint_files import NAME
from ddcli.store.state.directory import read_holds
from ddcli.store.state.document import CONSUMER, LOG, Document, named

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ddcli.store.files.gate import Files
    from ddcli.store.state.directory import Hold
    from ddcli.store.state.entries import FileEntry
    from ddcli.store.state.manifest import Manifest


CONSUMERS = "consumers"
"""The directory of a state with the consumers' files."""
MOST = 16
"""Positions that a consumer may be offered without acknowledging one; older offers lapse."""


@frozen
class Consumer:
    """The progress of a consumer of a log: the position that it `acknowledged` (0: none), the begin of that delivery, and the positions offered since.

    `output` is the name of the log's output in the state, for people.
    """

    name: str
    log: str
    output: str
    acknowledged: int = 0
    before: int = 0
    offered: tuple[int, ...] = ()

    def offering(self, position: int) -> Consumer:
        """Return the consumer when it has been offered all up to a position."""
        return replace(self, offered=tuple(sorted({*self.offered, position}))[-MOST:])

    def acknowledging(self, since: int, position: int) -> Consumer:
        """Return the consumer after it has acknowledged the delivery from one position to another; done again, it does nothing.

        Raises LockedError where another process has acknowledged some of that, UsageError for a position that was never offered.
        """
        if (since, position) == (self.before, self.acknowledged):
            return self
        if since < self.acknowledged:
            raise LockedError(
                f"consumer '{self.name}' is at {self.acknowledged}, and these changes are from {since} on: another process has "
                "acknowledged meanwhile",
                hint="leave these changes, and ask for those from there on",
            )
        if since > self.acknowledged or position not in self.offered:
            raise UsageError(
                f"consumer '{self.name}' was not offered {token(since, position)}",
                hint=f"its offers: {', '.join(token(self.acknowledged, each) for each in self.offered) or 'none'}",
            )
        later = tuple(each for each in self.offered if each > position)
        return replace(self, acknowledged=position, before=since, offered=later)


def _check(found: Consumer, path: Path) -> None:
    check_name(found.name), named(LOG, found.log)
    if not found.before <= found.acknowledged <= min(found.offered, default=found.acknowledged):
        raise ValueError("positions that are in no order")
    if path.name != _file(found.log, found.name):
        raise ValueError("another consumer's file")


DOCUMENT = Document(
    Consumer,
    "how far a consumer is can't be read",
    "remove the file if the consumer is gone; it starts again if it comes back",
    _check,
)


def token(since: int, position: int) -> str:
    """Return the name of the changes from one position to another."""
    return f"{since}-{position}"


def check_name(name: str) -> str:
    """Return the name of a consumer. Raises ValueError for one that is no file's name everywhere."""
    return named(CONSUMER, name)


def consuming(state: Path, files: Files) -> AbstractContextManager[object]:
    """Keep others from changing consumers for a moment."""
    return locked(state / CONSUMERS, files)


def read_consumers(state: Path) -> list[Consumer]:
    """Return the consumers of all outputs of a state, in order. One that can't be read is a StateError: it may be anywhere."""
    found = []
    for entry in fs(state / CONSUMERS).entries():
        if not entry.path.name.endswith(".json") or entry.path.name.startswith("."):
            continue
        if (consumer := DOCUMENT.read(entry.path)) is not None:
            found.append(consumer)
    return sorted(found, key=lambda each: (each.output, each.name))


def write_consumer(state: Path, consumer: Consumer, files: Files) -> None:
    """Write how far a consumer is. The caller has the consumers' lock."""
    DOCUMENT.write(state / CONSUMERS / _file(consumer.log, consumer.name), consumer, files)


def remove_consumer(state: Path, consumer: Consumer, files: Files) -> None:
    """Forget a consumer. The caller has the consumers' lock."""
    files.remove(state / CONSUMERS / _file(consumer.log, consumer.name))


def _file(log: str, name: str) -> str:
    return f"{log}-{name}.json"


class Claimant(NamedTuple):
    """A consumer that has got a log up to a commit, or a reader that has taken it up to a time."""

    kind: Literal["consumer", "reader"]
    name: str
    position: int

    def lacks(self, file: FileEntry) -> bool:
        """Return whether a file has, or may have, updates that it has not got."""
        if self.kind == "consumer":
            return file.commit > self.position
        return not file.upper or file.upper[0][0] > self.position


def claimants(directory: Path, log: str, files: Iterable[FileEntry]) -> list[Claimant]:
    """Return the claimants in a state of a log, which has these files. Consumers that were passed, or have read nothing, claim nothing.

    A consumer may still acknowledge an offered position, so it claims all after the first of these.
    """
    first = next(iter(files), None)
    found = []
    for each in read_consumers(directory):
        known = [position for position in (each.acknowledged, *each.offered) if position]
        if each.log == log and known and not is_passed(first, min(known)):
            found.append(Claimant("consumer", each.name, min(known)))
    for hold in read_holds(directory):
        if log in hold.arrangements:
            found += [Claimant("reader", hold.reader, time) for (time,) in hold.through]
    return found


def is_passed(first: FileEntry | None, position: int) -> bool:
    """Return whether a log, by its first file, is summed up beyond a consumer's position: it lacks a part of the file."""
    return first is not None and is_summed(first) and position > 0 and first.first <= position < first.commit


def passed_by(manifest: Manifest, hold: Hold) -> list[str]:
    """Return the outputs whose logs are summed up beyond the times that a reader has taken."""
    firsts = {
        name: next(iter(each.files), None) for name, each in manifest.outputs.items() if each.log in hold.arrangements
    }
    known = [Claimant("reader", hold.reader, time) for (time,) in hold.through]
    return [
        name
        for name, first in firsts.items()
        if first and is_summed(first) and any(each.lacks(first) for each in known)
    ]


def is_summed(file: FileEntry) -> bool:
    """Return whether a file stands for others, by its name."""
    return NAME.fullmatch(file.name) is not None
