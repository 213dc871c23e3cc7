"""The protocol of all tables that follow the log of an output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ddcli.errors import StateError
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.engine.columns import Lanes
    from ddcli.store.targets.change import Change
    from ddcli.store.targets.mark import CommitRecord, TableFile


class CommitKey(NamedTuple):
    """The key of one output's commits in a table: the state, by its identity, and the output."""

    state: str
    output: str

    def __str__(self) -> str:
        return f"dd/{self.state}/{self.output}"


class Target(Protocol):
    """A table that follows a log. To open one changes nothing."""

    def number(self) -> int | None:
        """Return the number of the last commit that the table has of its key; None: it has none, or is not there."""

    def check(self, known: CommitRecord | None) -> None:
        """Refuse rows that others wrote (StateError): `known` is the last commit, None where all is to be replaced."""

    def publish(
        self, number: int, change: Change, known: CommitRecord | None, announce: Callable[[Sequence[TableFile]], None]
    ) -> None:
        """Commit a change under a number, all or nothing.

        `announce` is called before, with the files that the table then has: the table must not be changed before it returns. Where others write the
        files, it is called with none first, and again before the commit.
        """

    def difference(self, change: Change) -> tuple[Lanes, int]:
        """Return the difference of the table to the contents of a whole log, for which `change` stands, and change nothing.

        The rows are `[data | diff]`: the multiplicity by the log less that in the table. The number is that of further rows of the table that are like no record of the log.
        """

    def left(self) -> dict[str, Any]:
        """Return the properties of the table after the last commit, which `is_as_left` compares."""

    def discard(self, number: int, pieces: Sequence[TableFile]) -> None:
        """Remove these files, of a commit that was announced and not made, and all else that a dead run has left of the commit with the number."""


def strange(place: str, problem: str) -> StateError:
    """Return the error for a table that others have written to."""
    hint = "remove the table: the next run writes it anew; or name another one"
    return StateError(f"{problem}, and a table is written by its output alone", place=place, hint=hint)
