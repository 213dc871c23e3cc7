"""Formats of dates and timestamps, such as `%d.%m.%Y`: text in the format becomes text that a cast reads, other text becomes null.

The directives work as in `strptime`. A number has the digits that its directive allows; next to another number it has all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

DIGITS = {
    "Y": (4, 4),
    "y": (2, 2),
    "m": (1, 2),
    "d": (1, 2),
    "H": (1, 2),
    "I": (1, 2),
    "M": (1, 2),
    "S": (1, 2),
    "f": (1, 6),
}
"""The least and the most digits of each directive that is a number."""
MONTHS = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
]  # fmt: skip
WORDS = {
    "b": "|".join(month[:3] for month in MONTHS),
    "B": "|".join(MONTHS),
    "p": "am|pm",
    "z": r"Z|[+-][0-9]{2}(?::?[0-9]{2})?",
}
SAME = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "R": "%H:%M"}
"""The directives that stand for several others."""
PIVOT = 69
"""Years of two digits from this one on are of the 20th century, as POSIX has it."""


class FormatError(ValueError):
    """A format without a date."""


def parts_of(text: str) -> list[tuple[str, str]]:
    """Return a format as pairs of a directive's letter, or nothing, and literal text. Raises FormatError.

    >>> parts_of("%d.%m.%y")
    [('d', ''), ('', '.'), ('m', ''), ('', '.'), ('y', '')]
    """
    for letter, longer in SAME.items():
        text = text.replace(f"%{letter}", longer)
    parts: list[tuple[str, str]] = []
    for match in re.finditer(r"%(.?)|[^%]+", text, re.DOTALL):
        letter = match[1]
        if letter is None or letter == "%":
            parts.append(("", letter or match[0]))
        elif letter in DIGITS or letter in WORDS:
            parts.append((letter, ""))
        else:
            known = " ".join(f"%{each}" for each in (*DIGITS, *WORDS, *SAME, "%"))
            raise FormatError(f"unknown directive '%{letter}' (known: {known})")
    letters = [letter for letter, _ in parts if letter]
    if twice := next((letter for letter in letters if letters.count(letter) > 1), None):
        raise FormatError(f"'%{twice}' occurs twice")
    for several, what in (("Yy", "year"), ("mbB", "month"), ("d", "day")):
        if len(set(several) & set(letters)) != 1:
            named = " or ".join(f"%{each}" for each in several)
            raise FormatError(f"must have one {what}: {named}")
    if ("I" in letters) != ("p" in letters) or {"I", "H"} <= set(letters):
        raise FormatError("must have %I and %p together, or %H")
    return parts


def has_time(text: str) -> bool:
    """Return whether a format has hours, or a part of them."""
    return any(letter and letter in "HIMSfpz" for letter, _ in parts_of(text))


def iso(column: pl.Expr, text: str) -> pl.Expr:
    """Return text in a format converted to ISO 8601; null for other text. The date may not exist: a cast reports that."""
    import polars as pl

    found = column.str.extract_groups(_pattern(text))
    letters = [letter for letter, _ in parts_of(text) if letter]
    part = {letter: found.struct.field(letter) for letter in letters}
    two = {letter: part[letter].str.zfill(2) for letter in letters if letter in "mdHMS"}
    if "y" in part:
        year = pl.when(part["y"].cast(pl.Int64) >= PIVOT).then(pl.lit("19")).otherwise(pl.lit("20")) + part["y"]
    else:
        year = part["Y"]
    month = two.get("m")
    if month is None:
        name = part["b" if "b" in part else "B"].str.to_lowercase().str.slice(0, 3)
        month = name.replace({each[:3]: f"{at:02}" for at, each in enumerate(MONTHS, start=1)})
    whole = [year, month, two["d"]]
    date = pl.concat_str(whole, separator="-")
    if not has_time(text):
        return date
    hour = two.get("H", pl.lit("00"))
    if "I" in part:
        twelve = part["I"].cast(pl.Int64)
        half = pl.when(part["p"].str.to_lowercase() == "pm").then(12).otherwise(0)
        hour = (twelve % 12 + half).cast(pl.String).str.zfill(2)
    time = pl.concat_str([hour, two.get("M", pl.lit("00")), two.get("S", pl.lit("00"))], separator=":")
    pieces = [date, pl.lit(" "), time]
    if "f" in part:
        pieces += [pl.lit("."), part["f"]]
    if "z" in part:
        pieces.append(part["z"].str.replace(r"^([+-][0-9]{2}):?([0-9]{2})$", "${1}:${2}"))
    return pl.concat_str(pieces)


def _pattern(text: str) -> str:
    return f"^{''.join(_patterns(parts_of(text)))}$"


def _patterns(parts: list[tuple[str, str]]) -> Iterator[str]:
    for at, (letter, literal) in enumerate(parts):
        if not letter:
            yield "".join(each if each.isalnum() or each in " /,:;_" else rf"\x{{{ord(each):x}}}" for each in literal)
        elif letter == "I":
            yield "(?P<I>1[0-2]|0?[1-9])"
        elif letter in WORDS:
            yield f"(?P<{letter}>(?i:{WORDS[letter]}))"
        else:
            least, most = DIGITS[letter]
            beside = [parts[other][0] for other in (at - 1, at + 1) if 0 <= other < len(parts)]
            if any(each in DIGITS for each in beside) and letter != "f":
                least = most
            yield f"(?P<{letter}>[0-9]{{{least},{most}}})"
