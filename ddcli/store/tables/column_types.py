"""Types, formats and nulls of columns of text, by the look of their values: `dd init --from` writes them, for a person to check."""

from __future__ import annotations

import re
from dataclasses import field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

NULLS = ("NA", "N/A", "n/a", "NULL", "null", "\\N", "-", "#N/A", "None", "nan", "NaN")
"""Texts that stand for null in a column whose other values are numbers or dates."""
DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d")
CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
INTEGER, CODE = re.compile(r"[+-]?\d+", re.ASCII), re.compile(r"0\d+", re.ASCII)
POINT, COMMA = (re.compile(rf"[+-]?\d+({sign}\d+)?", re.ASCII) for sign in (r"\.", ","))
SCIENTIFIC = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,'\u00a0 ]\d{3})+([.,]\d+)?", re.ASCII)
MOST_DIGITS = 38
"""Digits of the longest decimal."""
ISO = {
    "date": re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII),
    "datetime[us]": re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII),
    "datetime[us, UTC]": re.compile(
        r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})", re.ASCII
    ),
}


@dataclass
class FoundColumns:
    """The columns of an input: types by name, the doubts about them, and the options of CSV that they need."""

    types: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    closed: bool = False
    """True: the options are stated, so none is added: a column that needs another is text."""

    def look_at(self, texts: Mapping[str, Sequence[str | None]], *, is_csv: bool) -> FoundColumns:
        """Add columns by their values, which are text; null where they have none."""
        for name, values in texts.items():
            there = {value for value in values if value}
            kind = self._kind(name, there, is_csv=is_csv)
            missing = any(not value or value in self._nulls for value in values)
            self.types[name] = kind + "?" if missing else kind
        return self

    @property
    def _nulls(self) -> list[str]:
        found = self.options.get("null", [])
        assert isinstance(found, list)
        return found

    def _kind(self, name: str, values: set[str], *, is_csv: bool) -> str:
        """Return the type that all values have; adds options that they need."""
        if not values:
            self.doubts[name] = "no value was seen"
            return "string"
        known = values - set(self._nulls)
        nulls = {value for value in known if value in NULLS} if is_csv and not self.closed else set[str]()
        for some in (known, known - nulls) if nulls else (known,):
            if some and (kind := self._of_all(name, some, is_csv=is_csv)) != "string":
                if some != known:
                    self.options["null"] = sorted({*self._nulls, *nulls})
                return kind
        if all(map(THOUSANDS.fullmatch, known)):
            self.doubts[name] = "numbers with marks between thousands are read as text"
        return "string"

    def _of_all(self, name: str, values: set[str], *, is_csv: bool) -> str:
        if any(map(CODE.fullmatch, values)) and all(map(INTEGER.fullmatch, values)):
            self.doubts[name] = "text, because of leading zeros"
            return "string"
        if all(map(INTEGER.fullmatch, values)):
            return "int64" if all(map(_is_int64, values)) else number_type(values)
        if values <= {"true", "false"}:
            return "bool"
        for kind, form in ISO.items():
            if all(map(form.fullmatch, values)) and not self._stated(kind):
                return kind
        comma = "." if self.closed else ","
        if is_csv and all(map(COMMA.fullmatch, values)) and self.options.get("decimal", comma) == ",":
            self.options["decimal"] = ","
            return number_type([value.replace(",", ".") for value in values])
        if all(map(POINT.fullmatch, values)) and self.options.setdefault("decimal", ".") == ".":
            return number_type(values)
        if all(map(SCIENTIFIC.fullmatch, values)) and self.options.get("decimal", ".") == ".":
            return "float64" if all(map(_is_float, values)) else "string"
        return self._moments(name, values) if is_csv else "string"

    def _stated(self, kind: str) -> bool:
        """Return whether another column has given such values a format, which then all of them have."""
        return ("date_format" if kind == "date" else "timestamp_format") in self.options

    def _moments(self, name: str, values: set[str]) -> str:
        """Return the type of dates or timestamps in a format of their own."""
        for kind, option, forms in (
            ("date", "date_format", DATES),
            ("datetime[us]", "timestamp_format", [f"{date} {clock}" for clock in CLOCKS for date in DATES]),
        ):
            fitting = [form for form in forms if all(map(_reads(form), values))]
            stated = self.options.get(option)
            if stated in fitting:
                return kind
            if fitting and stated is None and not self.closed:
                self.options[option] = fitting[0]
                if len(fitting) > 1:
                    self.doubts[name] = f"the values fit {' and '.join(fitting)}: see `{option}`"
                return kind
            if fitting and not self.closed:
                self.doubts[name] = f"it is written {fitting[0]}, another column {stated}: so it is read as text"
        return "string"


def number_type(values: Collection[str]) -> str:
    """Return the type that has all these numbers exactly, a decimal where it can: floats would round money. Text where none has them.

    >>> number_type(["9223372036854775808", "1"]), number_type(["0.5", "12"]), number_type(["0.125"]), number_type(["9" * 39])
    ('decimal(19, 0)', 'decimal(18, 2)', 'float64', 'string')
    """
    parts = [value.lstrip("+-").partition(".") for value in values]
    whole, fraction = max(len(part[0].lstrip("0")) for part in parts), max(len(part[2]) for part in parts)
    if fraction <= 2 and whole <= 16 and fraction + whole:
        whole, fraction = 16, 2
    elif fraction > 2 and all(map(_is_float, values)):
        return "float64"
    return f"decimal({whole + fraction}, {fraction})" if whole + fraction <= MOST_DIGITS else "string"


def _is_int64(value: str) -> bool:
    return len(value) <= MOST_DIGITS and -(2**63) <= int(value) < 2**63


def _is_float(value: str) -> bool:
    """Return whether a float is this very number as it would be written again."""
    return Decimal(repr(float(value))) == Decimal(value)


def _reads(form: str) -> Callable[[str], bool]:
    def reads(value: str) -> bool:
        try:
            datetime.strptime(value, form)  # noqa: DTZ007 - whether it can be read is all that is asked
        except ValueError:
            return False
        return value == value.strip()

    return reads
