"""The changes of an output from one position to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.store.state.consumers import token

if TYPE_CHECKING:
    import polars as pl


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
