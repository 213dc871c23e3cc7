"""The memory of a watch from one round to the next: the batches of the state that are open, or in memory, with the values of their lanes; and its
last look at the inputs.

A round takes it, and puts it back when it has committed. If a round ends in any other way, or something comes between two (another state, another
secret, another process's commit), the next round begins from the manifest, as a new process does.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.store.batch.open_batches import SHARE, OpenBatches

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.store.state.manifest import Manifest
    from ddcli.store.tables.inventory import ListingSnapshot

    Mark = tuple[Path, str, int, str]


@dataclass
class WatchCache:
    """The open batches that the last round left, with the state and the commit that they belong to; nothing at first."""

    glimpses: dict[tuple[str, Path], ListingSnapshot] = field(default_factory=dict)
    """The look at each input that found the round worth while, by its path and the directory that this is relative to."""
    _kept: OpenBatches | None = None
    _mark: Mark | None = None

    def left(self, memory: int) -> int:
        """Return the part of a round's memory that kept batches don't take."""
        return memory - memory // SHARE

    def glimpsed(self, path: str, base: Path) -> ListingSnapshot | None:
        """Return the look at an input, once: a second caller wants the files as they are by then."""
        return self.glimpses.pop((path, base), None)

    def clean(self, state: Path) -> int | None:
        """Return the number of the commit after which the last round left nothing behind in a state; None if no round did."""
        return self._mark[2] if self._mark is not None and self._mark[0] == state else None

    def take(self, state: Path, manifest: Manifest | None, secret: bytes, memory: int) -> OpenBatches:
        """Return the open batches of the commit from which a round continues, none if they are of another. They are kept no longer."""
        kept, mark = self._kept, self._mark
        self._kept = self._mark = None
        if kept is not None and manifest is not None and mark == _mark_of(state, manifest):
            return kept
        return OpenBatches(secret, memory // SHARE)

    def keep(self, state: Path, manifest: Manifest, batches: OpenBatches) -> None:
        """Keep the open batches of a committed round for the next one."""
        if batches.end_round():
            self._kept, self._mark = batches, _mark_of(state, manifest)


def _mark_of(state: Path, manifest: Manifest) -> Mark:
    return state, manifest.identity, manifest.number, manifest.secret
