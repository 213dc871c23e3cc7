"""The consumers of outputs' logs: the position that each has acknowledged, in a small file each in `<state>/consumers/`.

A position is the number of a commit: a consumer at it has read the files of all commits up to it. Its next delivery are
the files of later commits, and, of a file that has grown since, the rows after the commits up to the position (see `log.lineage`). No other file may
have updates of commits on both sides of a position: code that joins files asks for the claimants (see `claimants`).

A position is acknowledged only if it was offered, and only by a process to which it was offered from the consumer's present position: of two
processes with the same delivery, one acknowledges it. Imports no third-party library.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import frozen
from ddcli.errors import LockedError, UsageError
from ddcli.store.files.access import entries
from ddcli.store.files.document import Document
from ddcli.store.files.lock import locked
from ddcli.store.state.names import CONSUMER, LOG, count_of, named, text_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ddcli.store.files.gate import Files

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

    @classmethod
    def from_json(cls, tree: dict[str, Any], file: str) -> Consumer:
        """Return the consumer that a file of this name has as `tree`. Raises ValueError, TypeError or KeyError for a tree that `dd` never writes."""
        found = cls(**{**tree, "offered": tuple(map(count_of, tree["offered"]))})
        check_name(found.name), named(LOG, found.log), text_of(found.output)
        if not count_of(found.before) <= count_of(found.acknowledged) <= min(found.offered, default=found.acknowledged):
            raise ValueError("positions that are in no order")
        if file != _file(found.log, found.name):
            raise ValueError("another consumer's file")
        return found

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


DOCUMENT = Document(
    lambda tree, path: Consumer.from_json(tree, path.name),
    asdict,
    "how far a consumer is can't be read",
    "remove the file if the consumer is gone; it begins anew if it comes back",
)


def token(since: int, position: int) -> str:
    """Return the name of the changes from one position to another."""
    return f"{since}-{position}"


def check_name(name: str) -> str:
    """Return the name of a consumer. Raises ValueError for one that is no file's name everywhere."""
    return named(CONSUMER, name)


def consuming(state: Path, files: Files) -> AbstractContextManager[None]:
    """Keep others from changing consumers for a moment."""
    return locked(state / CONSUMERS, files)


def read_consumers(state: Path) -> list[Consumer]:
    """Return the consumers of all outputs of a state, in order. One that can't be read is a StateError: it may be anywhere."""
    found = []
    for entry in entries(state / CONSUMERS):
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
