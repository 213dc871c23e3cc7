"""The protocol of tables that follow the log of an output, and their progress: the last commit that one is known to have, and the one that may be made.

A commit of the table is announced before it is made: `next` names it, in a file that is on the disk by then. The table itself
holds the number of its last commit under the key of the state and the output, so the next process finds there whether it was made.
The lower bits of a number are random: a commit of another copy of the state is not taken for this one's.
Imports no third-party library: a run with nothing new looks here.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ddcli.dataclass import frozen
from ddcli.errors import LockedError, StateError
from ddcli.store.files.access import fs
from ddcli.store.state.contents import TABLES_OUT
from ddcli.store.state.document import (
    TABLE,
    Document,
    count_of,
    integer_of,
    mapping_of,
    optional,
    record_of,
    text_of,
    tuple_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Lanes
    from ddcli.store.files.gate import Files
    from ddcli.store.targets.change import Change


RANDOM_BITS = 20
COMMITTED = "the run is committed, and the table stays as it was"
"""The beginning of a hint: a commit that a table can't take in is not lost."""


@frozen
class TableFile:
    """A Parquet file of a table, with rows that the commit `run` sorted and cut into files: those from the one with the lanes `first` on."""

    name: str
    run: int
    rows: int
    first: tuple[int, ...] = ()

    def to_row(self) -> list[Any]:
        """Return it as a mark has it."""
        return [self.name, self.run, self.rows, *self.first]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        """Return the file that a mark holds as a row. Raises TypeError or ValueError for a row that `dd` never writes."""
        name, run, rows, *first = row
        return cls(text_of(name), count_of(run), count_of(rows), tuple(integer_of(lane) for lane in first))


@frozen
class CommitRecord:
    """A commit of a table: its number; the table has the updates of the `log` of this identity up to the state's commit `upto`.

    `left` distinguishes the table as the commit left it from a changed one, in terms of the table's own. The log had these `columns` then; none, if an
    older version wrote the mark.
    """

    number: int
    log: str
    upto: int
    pieces: tuple[TableFile, ...] = ()
    left: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)


@frozen
class FollowerCommits:
    """The last commit that a table is known to have, and the one that was announced after it."""

    done: CommitRecord | None
    next: CommitRecord | None


_commit = optional(partial(record_of, CommitRecord, pieces=tuple_of(TableFile.from_row), columns=mapping_of))
MARKS = Document(
    FollowerCommits,
    "the mark of an output's table is damaged",
    "remove the file and the table: the next run rewrites the table",
    done=_commit,
    next=_commit,
)


def directory_of(state: Path, output: str) -> Path:
    """Return the directory of a state with how far the table of an output is."""
    return state / TABLES_OUT / output


def read_marks(directory: Path) -> FollowerCommits:
    """Return the progress of a table. Raises StateError for a damaged file."""
    return MARKS.read(directory / TABLE) or FollowerCommits(None, None)


def write_marks(directory: Path, files: Files, marks: FollowerCommits) -> None:
    """Replace the file with how far a table is; it is on the disk when this returns."""
    files.make_directory(directory)
    MARKS.write(directory / TABLE, marks, files)


def number_after(number: int) -> int:
    """Return a number for the commit after the one with this."""
    random = int.from_bytes(os.urandom(4)) % (1 << RANDOM_BITS)
    return (((number >> RANDOM_BITS) + 1) << RANDOM_BITS) + random


class CommitKey(NamedTuple):
    """The key of one output's commits in a table: the state, by its identity, and the output."""

    state: str
    output: str

    def __str__(self) -> str:
        return f"dd/{self.state}/{self.output}"

    def is_former(self, writer: str, outputs: Collection[str]) -> bool:
        """Return whether a table's writer is an output that the pipeline now has under another name, or no longer has."""
        state, _, output = writer.removeprefix("dd/").partition("/")
        return state == self.state and output not in outputs


class Target(ABC):
    """A table that follows a log. To open one changes nothing."""

    @abstractmethod
    def number(self) -> int | None:
        """Return the number of the last commit that the table has of its key; None: it has none, or is not there."""

    @abstractmethod
    def check(self, known: CommitRecord | None) -> None:
        """Refuse rows that others wrote (StateError): `known` is the last commit, None where all is to be replaced."""

    @abstractmethod
    def publish(
        self, number: int, change: Change, known: CommitRecord | None, announce: Callable[[Sequence[TableFile]], None]
    ) -> None:
        """Commit a change under a number, all or nothing.

        `announce` is called before, with the files that the table then has: the table must not be changed before it returns. Where others write the
        files, it is called with none first, and again before the commit.
        """

    @abstractmethod
    def difference(self, change: Change) -> tuple[Lanes, int]:
        """Return the difference of the table to the contents of a whole log, for which `change` stands, and change nothing.

        The rows are `[data | diff]`: the multiplicity by the log less the table's. The number counts further rows of the table, which are like no record of the log.
        """

    def left(self) -> dict[str, Any]:
        """Return the properties of the table after the last commit, which `is_as_left` compares."""
        return {}

    def discard(self, number: int, pieces: Sequence[TableFile]) -> None:  # noqa: B027 - a transaction that was not committed leaves nothing
        """Remove these files, of a commit that was announced and not made, and all else that a dead run has left of the commit with the number."""


def other_columns(place: str, remove: str = "remove") -> StateError:
    """Return the error for a table that has other columns than its output."""
    hint = f"{remove} the table: the next run rewrites it, with the columns of the output"
    return StateError("the table has other columns than the output", place=place, hint=hint)


def overtaken(place: str) -> LockedError:
    """Return the error for a commit before which another program has made one."""
    problem, hint = "another program has committed to the table first", "run again to see the cause"
    return LockedError(problem, place=place, hint=hint)


def strange(place: str, problem: str) -> StateError:
    """Return the error for a table that others have written to."""
    hint = "remove the table: the next run rewrites it; or name another one"
    return StateError(f"{problem}, and a table is written by its output alone", place=place, hint=hint)


def size_and_time(file: Path) -> dict[str, Any]:
    """Return the size of a file, and the time of its last change; nothing for an object, as that takes a request."""
    if not fs(file).is_local:
        return {}
    stat = file.stat()
    return {"size": stat.st_size, "changed": stat.st_mtime_ns}
