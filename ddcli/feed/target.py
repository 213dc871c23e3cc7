"""Targets that get each change exactly once: a directory of Parquet, or a table of a database, each with its position.

The position of a target is committed together with the rows, in one Parquet file or in one transaction. So a process that is killed
has delivered all or nothing, and of two that deliver the same changes one succeeds. A target belongs to one consumer of one log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ddcli.dataclass import frozen
from ddcli.errors import LockedError, StateError, UsageError
from ddcli.named_tuple import NamedTuple
from ddcli.store.state.consumers import token

if TYPE_CHECKING:
    import polars as pl

POSITION = "_position"
"""The column with the position up to which a row brings the target."""


class Subscription(NamedTuple):
    """The source and the reader of a feed: a consumer, and the log of a state that it reads."""

    consumer: str
    state: str
    log: str


class FeedTarget(Protocol):
    """A target of deliveries."""

    @property
    def place(self) -> str:
        """The target's place in messages."""

    def position(self) -> int:
        """Return the position up to which it has all changes; 0 if it is empty. Raises StateError if it belongs to another subscription."""

    def add(self, delivery: Delivery) -> None:
        """Add changes and their position. Raises LockedError if it is not at the position where they begin."""


def check_subscription(found: tuple[str, ...], subscription: Subscription, place: str) -> None:
    """Refuse a target of another consumer or another log (StateError)."""
    if found == tuple(subscription):
        return
    same = found[:1] == subscription[:1]
    raise StateError(
        "the output was written anew since this was delivered, or is another one"
        if same
        else f"it is of consumer '{found[0]}'",
        place=place,
        hint="deliver to another place"
        + (", or remove this one and `--drop` the consumer: both begin anew" if same else ""),
    )


def numbered(delivery: Delivery) -> pl.DataFrame:
    """Return the changes with a column of their position."""
    import polars as pl

    if POSITION in delivery.changes.columns:
        raise UsageError(
            f"the output has a column '{POSITION}', which is the target's own", hint="rename the output's column"
        )
    return delivery.changes.with_columns(pl.lit(delivery.position, pl.Int64).alias(POSITION))


def overtaken(place: str) -> LockedError:
    """Return the error for a target that is no longer at the position where the changes begin."""
    hint = "run again to deliver the new changes"
    return LockedError("another process has delivered these changes first", place=place, hint=hint)


@frozen
class Delivery:
    """The changes of an output from one position to another, netted: each record once, with the sum of its diffs."""

    since: int
    position: int
    changes: pl.DataFrame
    files: int

    @property
    def token(self) -> str:
        """The token that acknowledges the delivery."""
        return token(self.since, self.position)
