"""The look of text files: types, formats and nulls of columns by their values, and the options of CSV by its first records.

`dd init --from` writes them, for a person to check, and messages that propose to declare a file's columns have them by its first rows. The options are
the delimiter, and whether the first line is a header, a row or Excel's `sep=;`.
"""

from __future__ import annotations

import json
import re
from dataclasses import field, replace
from datetime import datetime
from decimal import Decimal
from itertools import islice, pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.store.tables.compression import Damage
from ddcli.store.tables.csv_records import opened, records, values_of
from ddcli.store.tables.input_path import bare
from ddcli.store.tables.json_values import numbered_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect


OPTIONS = ("decimal", "thousands", "date_format", "timestamp_format")
"""Options of CSV that decide which texts are values of a type."""
NULLS = ("NA", "N/A", "n/a", "NULL", "null", "\\N", "-", "#N/A", "None", "nan", "NaN")
"""Texts that stand for null in a column whose other values are numbers or dates."""
NO_TEXT = "\\N"
"""The one of these that no text is: databases write it."""
WORDS = (("wahr", "falsch"), ("vrai", "faux"), ("ja", "nein"), ("oui", "non"), ("yes", "no"), ("y", "n"))
"""Words for true and for false in spreadsheets, which are text here."""
DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d")
CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
INTEGER, CODE = re.compile(r"[+-]?\d+", re.ASCII), re.compile(r"0\d+", re.ASCII)
POINT, COMMA = (re.compile(rf"[+-]?(\d+({sign}\d*)?|{sign}\d+)", re.ASCII) for sign in (r"\.", ","))
SCIENTIFIC = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
ONE_GROUP = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}{re.escape(mark)}\d{{3}}", re.ASCII) for mark in ".,"}
"""Numbers with one mark, which may be the decimal sign or between thousands."""
GROUPED = re.compile(
    r"[+-]?\d{1,3}(?P<mark>[.,'\u2019\u00a0\u202f ])\d{3}(?:(?P=mark)\d{3})*(?:(?P<sign>[.,])\d+)?", re.ASCII
)
NO_VALUE = "no value was seen"
ESCAPED = re.compile(r"\\[\\bfnrtv]")
"""What a line break, a tab and others are in Postgres's text format."""
BESIDE = re.compile(r"(?P<before>[^\w.,+-]*)[+-]?[\d.,]*\d(?P<after>[^\w.,]*([A-Z]{3})?)")
"""A number with a currency or a percent sign before or behind it."""
SOME = 10
"""The fewest values of a column in which a tenth may be exceptions."""
MOST_DIGITS = 38
"""Digits of the longest decimal."""
ISO = {
    "date": re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII),
    "datetime[us]": re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII),
    "datetime[us, UTC]": re.compile(
        r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}(:?\d{2})?)", re.ASCII
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
    delimiter: str = ","
    """The delimiter of the files: beside a semicolon the decimal sign is usually a comma."""

    def look_at(self, texts: Mapping[str, Sequence[str | None]], *, is_csv: bool) -> FoundColumns:
        """Add columns by their values, which are text; null where they have none. Those with marks that may be between thousands come last: others may have shown the decimal sign."""
        there = {name: {value for value in values if value} for name, values in texts.items()}
        doubtful = [name for name, values in there.items() if is_csv and self._mark_of(_bare(values)) is not None]
        for name in [*(name for name in texts if name not in doubtful), *doubtful]:
            kind = (
                self._grouped(name, _bare(there[name]))
                if name in doubtful
                else self._kind(name, there[name], is_csv=is_csv)
            )
            if is_csv and kind != "string" and "" in texts[name] and "" not in self._nulls:
                kind = self._with_empty(name, kind)
            missing = any(not value or value in self._nulls for value in texts[name])
            self.types[name] = kind + "?" if missing else kind
            if kind == "string" and NO_TEXT in self._nulls and any(map(ESCAPED.search, there[name])):
                self.doubts[name] = (
                    "text with escapes of Postgres's text format, kept as they are: use `copy ... to ... csv`"
                )
        self.types = {name: self.types[name] for name in [*(n for n in self.types if n not in texts), *texts]}
        return self

    def _with_empty(self, name: str, kind: str) -> str:
        """Return the type of a column in which some fields are two quotes alone, which are an empty text: they are null by an option, or the column is text."""
        if self.closed:
            self.doubts[name] = 'text, as a field is `""`, which is no value of another type: see `null`'
            return "string"
        self.options["null"] = sorted({*self._nulls, ""})
        self.doubts.setdefault(name, '`""` is read as null: see `null`')
        return kind

    @property
    def _nulls(self) -> list[str]:
        found = self.options.get("null", [])
        assert isinstance(found, list)
        return found

    def _mark_of(self, values: set[str]) -> str | None:
        """Return the mark that all values have that are no small integers, if it may be the decimal sign or between thousands."""
        known = {
            value for value in values - {*self._nulls, *NULLS} if not re.fullmatch(r"[+-]?\d{1,3}", value, re.ASCII)
        }
        return next((mark for mark, form in ONE_GROUP.items() if known and all(map(form.fullmatch, known))), None)

    def _grouped(self, name: str, values: set[str]) -> str:
        """Return the type of a column in which `1.000` may be a thousand, or one: as other columns show, or as is usual beside the delimiter."""
        mark = self._mark_of(values)
        assert mark is not None
        example = min(value for value in values if mark in value)
        usual = "," if self.delimiter == ";" else "."
        thousands = self.options.get("thousands")
        sign = self.options.get("decimal", {None: None, ".": ","}.get(thousands, "."))  # type: ignore[call-overload]
        if mark == sign or (sign is None and thousands is None and mark == usual):
            kind = self._kind(name, values, is_csv=True)
            if sign is None and kind != "string":
                self.doubts[name] = f"read with a decimal sign in {example!r}; if it marks thousands: `thousands`"
            if kind != "string":
                return kind
        elif thousands == mark or (thousands is None and sign is not None and not self.closed):
            self.options["thousands"] = mark
            return self._kind(name, {value.replace(mark, "") for value in values}, is_csv=True)
        self.doubts[name] = (
            f"text, as {example!r} has a decimal sign or a mark between thousands: see `decimal` and `thousands`"
        )
        return "string"

    def _kind(self, name: str, values: set[str], *, is_csv: bool) -> str:
        """Return the type that all values have; adds options that they need."""
        if not values:
            self.doubts[name] = NO_VALUE
            return "string"
        known = values - set(self._nulls)
        nulls = {value for value in known if value in NULLS} if is_csv and not self.closed else set[str]()
        for some in (known, known - nulls) if nulls else (known,):
            if some and (kind := self._of_all(name, some, is_csv=is_csv)) != "string":
                if some != known:
                    self.options["null"] = sorted({*self._nulls, *nulls})
                return kind
        if NO_TEXT in nulls and known != {NO_TEXT}:
            self.options["null"] = sorted({*self._nulls, NO_TEXT})
            self.doubts.setdefault(name, f"{NO_TEXT} is read as null: see `null`")
        if is_csv and not self.closed and name not in self.doubts and len(known) >= SOME:
            self._note_near(name, known - nulls)
        return "string"

    def _note_near(self, name: str, values: set[str]) -> None:
        """Note a column of text that would be one of numbers or dates without a few values, a total's name for instance, or without what stands beside each number."""
        others = {value for value in values if not any(form.fullmatch(value.strip()) for form in FORMS)}
        if others and len(others) <= len(values) // SOME:
            alone = FoundColumns(options=dict(self.options), delimiter=self.delimiter)
            kind = alone.look_at({name: [*values - others]}, is_csv=True).types[name]
            if kind != "string":
                self.doubts[name] = (
                    f"text, as {min(others)!r} is no {kind}, which the other values are: see `errors: quarantine`"
                )
            return
        found = [BESIDE.fullmatch(value.strip()) for value in values]
        beside = {(match["before"], match["after"]) for match in found if match}
        if None not in found and len(beside) == 1 and beside != {("", "")}:
            marks = " and ".join(repr(mark) for mark in beside.pop() if mark)
            self.doubts[name] = f"text, as each number has {marks} beside it: take it off with `replace` and `cast`"

    def _of_all(self, name: str, texts: set[str], *, is_csv: bool) -> str:
        """Return the type that all texts have. Spaces around a value have no meaning but in text, and in formats of dates."""
        values = _bare(texts)
        if all(map(INTEGER.fullmatch, values)):
            return self._integers(name, values)
        if {value.lower() for value in values} <= {"true", "false"}:
            return "bool"
        if values <= {"t", "f"}:
            self.doubts[name] = "bool, if t and f stand for true and false"
            return "string"
        if pair := next((pair for pair in WORDS if {value.lower() for value in values} == {*pair}), None):
            first, second = sorted(values, key=lambda value: value.lower() != pair[0])[:: len(values) - 1]
            self.doubts[name] = (
                f"text; `\"{name}\" = '{first}'` is a bool, if {first} and {second} stand for true and false"
            )
            return "string"
        for kind, form in ISO.items():
            if all(map(form.fullmatch, values)) and not self._stated(kind):
                return kind
        comma = "." if self.closed else ","
        if is_csv and all(map(COMMA.fullmatch, values)) and self.options.get("decimal", comma) == ",":
            self.options["decimal"] = ","
            return self._decimals(name, [value.replace(",", ".") for value in values])
        if all(map(POINT.fullmatch, values)) and self.options.setdefault("decimal", ".") == ".":
            return self._decimals(name, values)
        if all(map(SCIENTIFIC.fullmatch, values)) and self.options.get("decimal", ".") == ".":
            return "float64" if all(map(_is_written_float, values)) else "string"
        if is_csv and (plain := self._without_marks(name, values)):
            return self._decimals(name, plain) if any("." in value for value in plain) else self._integers(name, plain)
        return self._moments(name, texts) if is_csv else "string"

    def _integers(self, name: str, values: Collection[str]) -> str:
        """Return the type of whole numbers: text where a leading zero or a plus sign would be lost."""
        if any(map(CODE.fullmatch, values)):
            self.doubts[name] = "text, because of leading zeros"
            return "string"
        signs = {value[0] for value in values} & {"+", "-"}
        if signs == {"+"}:
            self.doubts[name] = "text, because of plus signs, as phone numbers have them"
            return "string"
        return "int64" if all(map(_is_int64, values)) else number_type(values)

    def _decimals(self, name: str, values: Collection[str]) -> str:
        """Return the type of numbers with decimals."""
        kind = number_type(values)
        if kind.startswith("decimal") and not self.closed:
            self.doubts[name] = "a value with more decimals is refused; float64 if it is measured"
        return kind

    def _without_marks(self, name: str, values: set[str]) -> list[str] | None:
        """Return numbers without the marks between their thousands and with a decimal point; None where some have none, or other options are stated."""
        found = [match for value in values if (match := GROUPED.fullmatch(value))]
        stated = self.options.get("thousands")
        marks = {stated} if stated is not None else {match["mark"] for match in found}
        fitting = [
            pair for mark in marks if (pair := self._pair(str(mark), found)) and all(map(_numbers(*pair), values))
        ]
        if len(fitting) != 1:
            return None
        ((mark, sign),) = fitting
        if self.closed and (stated is None or self.options.get("decimal", sign if mark == "." else ".") != sign):
            self.doubts[name] = f"text, as numbers have {mark!r} between thousands: see `thousands`"
            return None
        self.options |= {"thousands": mark, "decimal": sign}
        return [value.replace(mark, "").replace(sign, ".") for value in values]

    def _pair(self, mark: str, found: Sequence[re.Match[str]]) -> tuple[str, str] | None:
        """Return a mark between thousands and the decimal sign beside it; None for a pair unlike other columns'."""
        signs = {match["sign"] for match in found if match["mark"] == mark and match["sign"]}
        sign = self.options.get("decimal", min(signs, default="," if mark == "." else "."))
        return None if sign == mark or signs - {sign} else (mark, str(sign))

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


def columns_of(texts: Mapping[str, Sequence[str | None]], dialect: Dialect, *, is_csv: bool) -> FoundColumns:
    """Return the columns of files whose options are stated."""
    options: dict[str, object] = {key: value for key, value in dialect.stated() if key in OPTIONS}
    options["null"] = list(dialect.null)
    return FoundColumns(options=options, closed=True, delimiter=dialect.separator).look_at(texts, is_csv=is_csv)


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


def _bare(values: set[str]) -> set[str]:
    """Return values without spaces around them."""
    return {value.strip(" ") for value in values}


def _numbers(mark: str, sign: str) -> Callable[[str], object]:
    """Return the test whether a text is a number with these marks between thousands, or none, and this decimal sign."""
    thousands = re.escape(mark)
    return re.compile(rf"[+-]?(\d{{1,3}}({thousands}\d{{3}})+|\d+)({re.escape(sign)}\d+)?", re.ASCII).fullmatch


def _is_int64(value: str) -> bool:
    return len(value) <= MOST_DIGITS and -(2**63) <= int(value) < 2**63


def _is_float(value: str) -> bool:
    """Return whether a float is this very number as it would be written again."""
    return Decimal(repr(float(value))) == Decimal(value)


def _is_written_float(value: str) -> bool:
    """Return whether a text is a float as programs write them: one with an exponent may have idle digits."""
    return isfinite(float(value)) if "e" in value.lower() else _is_float(value)


def _reads(form: str) -> Callable[[str], bool]:
    def reads(value: str) -> bool:
        try:
            datetime.strptime(value, form)  # noqa: DTZ007 - whether it can be read is all that is asked
        except ValueError:
            return False
        return value == value.strip()

    return reads


ROWS = 100


def propose(path: Path, dialect: Dialect, *, json_lines: bool) -> str | None:
    """Return a value for an input's `columns`, guessed from the beginning of a file; None without rows to guess from. Raises OSError."""
    try:
        rows = _objects(path) if json_lines else _records(path, dialect)
    except (Damage, ValueError, RecursionError):
        return None
    if not rows:
        return None
    texts = {name: [row.get(name) for row in rows] for name in rows[0]}
    found = columns_of(texts, dialect, is_csv=not json_lines).types
    return f"{{{', '.join(f'{_word(name)}: {_word(kind)}' for name, kind in found.items())}}}"


def _records(path: Path, dialect: Dialect) -> list[dict[str, str | None]]:
    """Return the first rows of CSV; the last one may be cut where it has no end."""
    header, *rows = islice(records(path, dialect), ROWS)
    rows = rows if not rows or rows[-1].text.endswith("\n") else rows[:-1] or rows
    return [dict(zip(header.fields, values_of(row, dialect), strict=False)) for row in rows]


def _objects(path: Path) -> list[dict[str, str | None]]:
    """Return the first objects of NDJSON, their values as text has them."""
    lines = [line for _, line in islice(numbered_lines(path), ROWS) if line.strip()]
    lines = lines if not lines or lines[-1].endswith("\n") else lines[:-1] or lines
    objects = [json.loads(line) for line in lines]
    return [{name: _text(value) for name, value in row.items()} for row in objects if isinstance(row, dict)]


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _word(text: str) -> str:
    """Return a name or a type as YAML, quoted if needed."""
    return text if re.fullmatch(r"[A-Za-z_]\w*\??", text) else json.dumps(text)


DELIMITERS = (",", ";", "\t", "|", " ")
SEPARATOR = re.compile(r'\ufeff?"?sep=(.)"?\r?\n?', re.IGNORECASE)
"""The line that states the delimiter for Excel."""
SEQUENCE = 3
"""The least count of names that are whole numbers in a row, as years are."""
NUMBER = re.compile(r"[+-]?\.?\d[\d.,'\u2019\u00a0 ]*(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
FORMS = [
    NUMBER,
    *(
        re.compile(form, re.ASCII | re.IGNORECASE)
        for form in (
            r"true|false",
            r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?",
            r"\d{1,2}:\d{2}(:\d{2}.*)?",
        )
    ),
]
"""The forms of values that are no text."""
NONE = ("", *NULLS)


def look_of(path: Path, dialect: Dialect) -> dict[str, Any]:
    """Return the options that the first records of a CSV file show, of those that the dialect leaves open, where they are not the defaults."""
    found: dict[str, Any] = {}
    if dialect.delimiter is None:
        if separator := _stated_separator(path, dialect):
            found |= {"delimiter": separator, "skip": 1}
        else:
            width, delimiter = widest(path, dialect)
            usual = dialect.of(bare(path.name), ())
            # Tabs are rare in values, commas are not.
            if delimiter != usual.separator and width > 1 and (delimiter == "\t" or _width(path, usual) <= 1):
                found["delimiter"] = delimiter
    if dialect.header is None and first_is_row(path, replace(dialect, **found)):
        found["header"] = False
    return found


def _stated_separator(path: Path, dialect: Dialect) -> str | None:
    """Return the delimiter that the first line states, if it states nothing else."""
    try:
        with opened(path, dialect.encoding) as file:
            match = None if dialect.skip else SEPARATOR.fullmatch(file.readline(len('\ufeff"sep=;"\r\n')))
    except Damage:
        return None
    return match[1] if match and match[1].isascii() and not match[1].isalnum() else None


def widest(path: Path, dialect: Dialect) -> tuple[int, str]:
    """Return the greatest number of fields that all of the first records have, and the delimiter that makes it; among several the file's usual one."""
    usual = dialect.of(bare(path.name), ()).separator
    widths = {one: _width(path, replace(dialect, delimiter=one)) for one in DELIMITERS}
    best = max(DELIMITERS, key=lambda one: (widths[one], one == usual, one))
    return widths[best], best


def _width(path: Path, dialect: Dialect) -> int:
    """Return the number of fields of all the first records; 0 if they differ, and if there are words between spaces."""
    try:
        _, *rows = read = [record.fields for record in islice(records(path, dialect), ROWS // 2)] or [[]]
    except (Damage, UnicodeDecodeError):
        return 0
    if dialect.delimiter == " " and not all(NUMBER.fullmatch(value) for row in rows or read for value in row):
        return 0
    widths = {len(row) for row in read}
    return widths.pop() if len(widths) == 1 else 0


def first_is_row(path: Path, dialect: Dialect) -> bool:
    """Return whether the first record looks like the others: where their values are numbers, dates or booleans, its own are such, too.

    Names that count, as years or the columns of a matrix do, are a header in spite of that.
    """
    try:
        read = list(islice(records(path, dialect.of(bare(path.name), ())), ROWS + 1))
    except (Damage, UnicodeDecodeError):
        return False
    first, *others = [record.fields for record in read if not record.empty] or [[]]
    alike: list[str] = []
    for at, name in enumerate(first):
        body = [row[at] for row in others if at < len(row)] if others else [name]
        form = _form_of([value for value in body if value.strip() not in NONE])
        if form is None or name.strip() in NONE:
            continue
        if not form.fullmatch(name.strip()):
            return False
        alike.append(name)
    return bool(alike) and not _count(alike)


def _form_of(values: list[str]) -> re.Pattern[str] | None:
    """Return the form that all values have; None where there are none, and for text."""
    return next((form for form in FORMS if values and all(form.fullmatch(value.strip()) for value in values)), None)


def _count(names: list[str]) -> bool:
    """Return whether names are whole numbers with one step between them."""
    if len(names) < SEQUENCE or not all(re.fullmatch(r"\d{1,9}", name.strip(), re.ASCII) for name in names):
        return False
    return len({int(after) - int(before) for before, after in pairwise(names)} - {0}) == 1
