"""The settings of a comparison, parsed from texts: `amount=0.01`, `amount=0.1%`, `at=5s`, `1%`. Imports nothing heavy."""

from __future__ import annotations

import re
from dataclasses import field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9}
DURATION = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(NANOSECONDS)})")
TOLERANCES = "write it as amount=0.01, amount=0.1%, or, of a time, at=5s (ns, us, ms, s, m, h, d)"


@frozen
class Tolerance:
    """The largest distance at which two values of a column count as equal: `limit`, inclusive.

    `limit` is a number; a share of the larger absolute value (`relative`); or nanoseconds (`lasting`).
    """

    limit: Decimal
    relative: bool = False
    lasting: bool = False


@frozen
class MaxChanged:
    """The most rows that may differ in a comparison that passes: a number, or a percentage of A's rows."""

    limit: Decimal
    percent: bool = False

    def allows(self, changed: int, rows: int) -> bool:
        """Return whether this number of changed rows is allowed if A has `rows`."""
        return changed * 100 <= self.limit * rows if self.percent else changed <= self.limit

    def __str__(self) -> str:
        return f"{self.limit}%" if self.percent else str(self.limit)


@frozen
class Settings:
    """The settings of a comparison. Without a `key`, whole records are compared."""

    key: tuple[str, ...] | None = None
    ignore: frozenset[str] = frozenset()
    ignore_types: bool = False
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    max_changed: MaxChanged | None = None

    def __post_init__(self) -> None:
        if self.tolerances and self.key is None:
            hint = "name the columns by which rows belong together, as in `--key id`"
            raise UsageError("a tolerance needs a key: without one, no two rows belong together", hint=hint)
        for name in self.key or ():
            if name in self.ignore or name in self.tolerances:
                what = "ignored" if name in self.ignore else "given a tolerance"
                raise UsageError(f"the column '{name}' is in the key, and can't be {what}")

    def check(self, columns: Sequence[str]) -> None:
        """Refuse names of columns that neither side has."""
        for name in (*(self.key or ()), *sorted(self.ignore), *self.tolerances):
            if name not in columns:
                near = did_you_mean(name, columns)
                hint = f"did you mean '{near}'?" if near else f"the columns are: {', '.join(columns)}"
                raise UsageError(f"neither side has a column '{name}'", hint=hint)


def parse_tolerances(texts: Iterable[str]) -> dict[str, Tolerance]:
    """Parse tolerances and return them by column.

    >>> parse_tolerances(["amount=0.1%", "at=1.5s"])["at"].limit
    Decimal('1500000000.0')
    """
    found = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        tolerance = _tolerance(value.strip()) if name else None
        if tolerance is None:
            raise UsageError(f"'{text}' is not a tolerance", hint=TOLERANCES)
        found[name] = tolerance
    return found


def _tolerance(text: str) -> Tolerance | None:
    if match := DURATION.fullmatch(text):
        return Tolerance(Decimal(match[1]) * NANOSECONDS[match[2]], lasting=True)
    limit = _number(text.removesuffix("%"))
    if limit is None:
        return None
    return Tolerance(limit / 100, relative=True) if text.endswith("%") else Tolerance(limit)


def parse_max_changed(text: str) -> MaxChanged:
    """Parse a bound on the number of changed rows.

    >>> parse_max_changed("0.5%").allows(5, 1000)
    True
    """
    limit = _number(text.strip().removesuffix("%"))
    percent = text.strip().endswith("%")
    if limit is None or not (percent or limit == int(limit)):
        raise UsageError(f"'{text}' is not a number of rows", hint="write it as 100, or as 0.5% of A's rows")
    return MaxChanged(limit, percent)


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and number >= 0 else None
