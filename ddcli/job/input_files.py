"""The files of an input, and the progress that it carries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from ddcli.engine.times import Frontier
    from ddcli.store.state.entries import InputEntry
    from ddcli.store.state.shared_arrangements import Shared
    from ddcli.store.tables.listing import Listing


@dataclass(frozen=True)
class InputFiles:
    """What there is of an input: the upper of its progress, if it carries one, and its files."""

    progress: Frontier | None
    listing: Listing
    shared: Shared | None = None

    def past(self) -> InputFiles:
        """Return what was taken in already."""
        return replace(self, listing=self.listing.past())

    def whole(self) -> InputFiles:
        """Return all that there is, to be read from the beginning."""
        return replace(self, listing=self.listing.whole())

    def arriving(self, time: int) -> InputFiles:
        """Return what there is of an input whose new files have this time."""
        return replace(self, listing=self.listing.arriving(time))

    def mended(self, before: InputEntry) -> InputFiles:
        """Return what there is of an input from which files were withdrawn, those of the same names in their places."""
        return replace(self, listing=self.listing.mended(before.files))

    def known(self, before: InputEntry) -> InputFiles:
        """Return what there is of an input that is taken in anew, of the files that the state has taken in. Raises InputError where one is gone."""
        return replace(self, listing=self.listing.known(before.files))

    def reopened(self, frontier: Frontier) -> InputFiles:
        """Return what there is of an input of a state that is taken back to a frontier: rows at or after it are late no more."""
        return replace(self, listing=self.listing.reopened(frontier.elements))

    def marked(self, before: InputEntry | None, last: int | None) -> InputFiles:
        """Return what there is of an input that is taken in anew, without the rows that earlier runs put aside; with the time of the `last` run
        where nobody noted when a file was taken in.
        """
        return self if before is None else replace(self, listing=self.listing.marked(before.files, last))
