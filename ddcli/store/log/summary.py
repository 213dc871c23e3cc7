"""Files of a log that stand for older ones: the sum of their updates, as of the last of their times, the horizon.

From the horizon on the log has the same contents; earlier times are no longer kept apart. The new file appears first, then those that it
stands for are removed, one after the other. So its footer names them: readers ignore those that still exist. They are named with
their fingerprints, and with the files for which they stood themselves: so a reader in another pipeline finds whether it has taken all.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ddcli.named_tuple import NamedTuple
from ddcli.store.log.lineage import read_metadata
from ddcli.store.state.names import split_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

KEY = "dd.summed"
"""The key of the footer's metadata that has the horizon and the files."""
NAME = re.compile(r"updates-[\w+-]+-summed[0-9]+\.parquet", re.ASCII)
DEEP = 8
"""The depth of summaries of summaries that a footer names."""


class Part(NamedTuple):
    """A file that another one stands for: its name, its fingerprint as an input's listing has it, and the files that it stood for."""

    name: str
    fingerprint: str
    parts: tuple[Part, ...] = ()

    @classmethod
    def from_row(cls, row: list[Any]) -> Part:
        """Return the part that a footer has as `row`. Raises ValueError or TypeError for another row."""
        name, fingerprint, parts = row
        if not isinstance(name, str) or not isinstance(fingerprint, str) or "/" in split_path(f"/{name}")[0]:
            raise TypeError(f"no file: {row!r:.80}")
        return cls(name, fingerprint, tuple(map(cls.from_row, parts)))

    def names(self) -> Iterator[str]:
        """Yield its name, and the names of all files that it stood for."""
        yield self.name
        for part in self.parts:
            yield from part.names()

    def is_known(self, known: Mapping[str, str]) -> bool:
        """Return whether it, or all that it stood for, is among files of these fingerprints."""
        return known.get(self.name) == self.fingerprint or (
            bool(self.parts) and all(part.is_known(known) for part in self.parts)
        )

    def cut(self, depth: int = DEEP) -> Part:
        """Return the part with the parts for which it stood, to this depth."""
        return self._replace(parts=tuple(part.cut(depth - 1) for part in self.parts) if depth else ())


class Summary(NamedTuple):
    """The updates that a file sums up: their files, and the horizon, the time that they are summed up as of.

    There are no files if rows were forgotten since: then no reader of these has the same updates.
    """

    horizon: tuple[int, ...]
    parts: tuple[Part, ...]

    def metadata(self) -> dict[str, str]:
        """Return the summary's entry in the file's footer."""
        return {KEY: json.dumps([self.horizon, [part.cut() for part in self.parts]], separators=(",", ":"))}


def read_summary(path: Path) -> Summary | None:
    """Return a file's summary; None for a file without one, or that is gone."""
    text = read_metadata(path, KEY)
    try:
        horizon, rows = json.loads(text or "")
        found = Summary(tuple(horizon), tuple(map(Part.from_row, rows)))
    except (ValueError, TypeError, RecursionError):
        return None
    return found if found.horizon and all(type(value) is int for value in found.horizon) else None
