"""The claimants of an output's log: consumers and readers in other pipelines, each with the updates that it has not read.

Updates that a claimant lacks stay as they are, and are not summed up, within the bound of the output's `claims`. A claimant that was passed is refused when
it reads next: a consumer by the commits of the file that joins those that it lacks with others, a reader by the files that this one stands for.
Imports no third-party library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ddcli.named_tuple import NamedTuple
from ddcli.store.log.summary import NAME
from ddcli.store.state.consumers import read_consumers
from ddcli.store.state.holds import read_holds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ddcli.store.state.entries import FileEntry
    from ddcli.store.state.holds import Hold
    from ddcli.store.state.manifest import Manifest


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
