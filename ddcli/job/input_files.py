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
    """The files of an input, and the upper of its progress, if it carries one."""

    progress: Frontier | None
    listing: Listing
    shared: Shared | None = None

    def past(self) -> InputFiles:
        """Return the files that were taken in already."""
        return replace(self, listing=self.listing.past())

    def whole(self) -> InputFiles:
        """Return all files of the input, to be read from the beginning."""
        return replace(self, listing=self.listing.whole())

    def with_arrival(self, time: int) -> InputFiles:
        """Return the same with `time` as the arrival of new files."""
        return replace(self, listing=self.listing.with_arrival(time))

    def mended(self, before: InputEntry) -> InputFiles:
        """Return the same after files were withdrawn, with new ones of the same names in their places."""
        return replace(self, listing=self.listing.mended(before.files))

    def known(self, before: InputEntry) -> InputFiles:
        """Return the same for an input that is read again: the files that the state has taken in. Raises InputError where one is gone."""
        return replace(self, listing=self.listing.known(before.files))

    def reopened(self, frontier: Frontier, last: int | None) -> InputFiles:
        """Return the same for a state that is taken back to a frontier: rows at or after it are no longer late.

        Under the clock of arrivals, where `last` is the time of the last run, files that came at or after it are new again.
        """
        if last is None:
            return replace(self, listing=self.listing.reopened(frontier.elements))
        return replace(self, listing=self.listing.before_arrival(frontier.as_time()[0], last))

    def marked(self, before: InputEntry | None, last: int | None) -> InputFiles:
        """Return the same for an input that is read again, without the rows that earlier runs put aside; files whose arrival is not
        recorded get the time of the `last` run.
        """
        return self if before is None else replace(self, listing=self.listing.marked(before.files, last))
