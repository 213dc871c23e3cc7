"""The subjects of a budget's bounds: classes of work, and figures with their units."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen

if TYPE_CHECKING:
    from ddcli.errors import Text

_SIZES = {f"{letter}{i}b": base**at for i, base in (("", 1000), ("i", 1024)) for at, letter in enumerate("kmgt", 1)}
UNITS: dict[str, dict[str, float]] = {
    "rows": {"": 1, "k": 1e3, "m": 1e6, "g": 1e9},
    "seconds": {"": 1, "s": 1, "min": 60, "h": 3600},
    "bytes": {"": 1, "b": 1} | _SIZES,
}
EXAMPLES = {"rows": "a whole number: 1e6 or 500k", "seconds": "60 or 5min", "bytes": "500MB or 2GiB"}
NUMBER = re.compile(r"(\d{1,18}(?:_\d{1,18}){0,6}(?:\.\d{1,18})?(?:e\+?\d{1,2})?)\s*([a-z]*)")


def parse_bound(what: str, text: str) -> float:
    """Return a bound of rows, seconds or bytes as a number. Raises ValueError.

    >>> parse_bound("rows", "1.5e6"), parse_bound("seconds", "5min"), parse_bound("bytes", "2 GiB")
    (1500000.0, 300.0, 2147483648.0)
    """
    found = NUMBER.fullmatch(text.strip().lower())
    if found is None or found[2] not in UNITS[what]:
        raise ValueError(text)
    unit = UNITS[what][found[2]]
    most = float(found[1]) * unit
    if what == "rows" or (what == "bytes" and unit == 1):
        most = round(most, 6)  # 1.001k are 1001
        if not most.is_integer():
            raise ValueError(text)
    return most


WORK_CLASSES = ("change", "output", "groups", "partition", "everything")
"""The bounds of the rows that an operator reads for a change, each class with less work than the next.

The change: its own rows, and a bounded number of rows of the state for each of them. The output: the rows that match, or that change in the output. Groups and partition: all
rows of those that the change touches. Everything: all rows of an input, for any change.
"""


@frozen
class Bounds:
    """The most rows, seconds and bytes that something may take, as they are written, and the worst class of its work."""

    rows: Text | None = None
    seconds: Text | None = None
    bytes: Text | None = None
    work: Text | None = None


@frozen
class Budget:
    """Bounds of a whole run, of each operator, and of each operator of some collections, in place of those for all.

    The class of work of a `run` is that of each of its operators.
    """

    run: Bounds
    operator: Bounds
    collections: tuple[tuple[Text, Bounds], ...] = ()
