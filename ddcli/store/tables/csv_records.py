"""The records of a CSV file as Python's own `csv` reads them, strictly, with their lines: the standard for all other readers."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TextIO

from ddcli.errors import InputError
from ddcli.expressions.csv_dialect import UNNAMED
from ddcli.privacy import unnamed
from ddcli.store.tables.compression import DAMAGED, SAVED, UTF_8, WIDER, Damage, unpacked, wrong_encoding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect

csv.field_size_limit(sys.maxsize)  # else 128 KiB of text in a field are an error

QUOTES = "quote a value that has a quote, a {} or a line's end, and write a quote in it twice"
WORDS = {
    "new-line character": "a carriage return is in a value that isn't quoted",
    "unexpected end of data": "a quote is opened and never closed",
    "' expected after '": "a closing quote is followed by neither a {} nor the line's end",
}
"""Errors of Python's `csv`, in words of the file."""
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space", ":": "colon"}
LONGEST_NAME = 10_000
"""Characters of a column's name in a file of text; a file without a line's end has one of as many as it has bytes."""


class CsvRecord(NamedTuple):
    """A record of a CSV file that is not blank, with its first and last line; `empty`: it has no value, not even empty text."""

    first: int
    last: int
    fields: list[str]
    empty: bool
    text: str
    """The lines as they are written."""


def no_header(path: Path) -> InputError:
    """Return the error for a file without a line that has a value, where the first has to name the columns."""
    hint = "begin it with the names of its columns, or remove it; the name of a file that isn't finished should begin with '_' or '.', or end in '.tmp'"
    return InputError("the file has no header", place=str(path), hint=hint)


def opened(path: Path, encoding: str = UTF_8, errors: str = "replace") -> TextIO:
    """Open a file of text, packed or not, whose lines end in a line feed; bytes that are no text become U+FFFD."""
    return io.TextIOWrapper(unpacked(path), encoding=WIDER.get(encoding, encoding), errors=errors, newline="\n")


def records(path: Path, dialect: Dialect) -> Iterator[CsvRecord]:
    """Yield the records of a CSV file, the header first if it has one. Raises Damage; bytes that are no UTF-8 are U+FFFD."""
    read: list[str] = []
    line = 0

    def fed(file: TextIO) -> Iterator[str]:
        nonlocal line
        for text in file:
            line += 1
            if line == 1:
                text = text.removeprefix("\ufeff")
            if line <= dialect.skip or (dialect.comment and not read and text.startswith(dialect.comment)):
                continue
            read.append(text)
            yield text

    try:
        with opened(path, dialect.encoding, "replace" if dialect.encoding == UTF_8 else "strict") as file:
            reader = _reader(fed(file), dialect)
            while (fields := next(reader, None)) is not None:
                text = "".join(read)
                if fields:
                    yield CsvRecord(
                        line - len(read) + 1,
                        line,
                        fields,
                        not any(fields) and (dialect.quote or "\0") not in text,
                        text,
                    )
                read.clear()
    except csv.Error as error:
        raise _worded(str(error), dialect, f"{path}:{line - len(read) + 1}") from None
    except UnicodeDecodeError:
        raise _first_not_text(path, dialect.encoding) from None


def _reader(lines: Iterator[str], dialect: Dialect) -> Iterator[list[str]]:
    """Return a reader of records as they are written."""
    if dialect.quote is None:
        return csv.reader(lines, delimiter=dialect.separator, quoting=csv.QUOTE_NONE, strict=True)
    return csv.reader(lines, delimiter=dialect.separator, quotechar=dialect.quote, strict=True)


def has_bare_quote(record: CsvRecord, dialect: Dialect) -> bool:
    """Return whether a field that isn't in quotes has one: to `csv` it is a character, to polars, which counts them, it may be more."""
    quote = dialect.quote
    return (
        quote is not None
        and quote in record.text
        and any(quote in field and not field.startswith(quote) for field in _raw_fields(record.text, dialect))
    )


def in_quotes(record: CsvRecord, dialect: Dialect) -> str:
    """Return the text of a record with all its fields in quotes but for empty ones that are in none."""
    quote = dialect.quote
    assert quote is not None
    raw = _raw_fields(record.text, dialect)
    assert len(raw) == len(record.fields), record.text
    return (
        dialect.separator.join(
            quote + value.replace(quote, quote * 2) + quote if value or field else ""
            for value, field in zip(record.fields, raw, strict=True)
        )
        + "\n"
    )


def values_of(record: CsvRecord, dialect: Dialect) -> list[str | None]:
    """Return the fields of a record, null for an empty one that is not in quotes."""
    if all(record.fields) or dialect.quote is None or dialect.quote not in record.text:
        return [field or None for field in record.fields]
    raw = _raw_fields(record.text, dialect)
    return [field or (field if written else None) for field, written in zip(record.fields, raw, strict=False)]


def _raw_fields(text: str, dialect: Dialect) -> list[str]:
    """Return the fields of a record as they are written."""
    text = text.removesuffix("\n").removesuffix("\r")
    delimiter, quote = re.escape(dialect.separator), re.escape(dialect.quote or "")
    form = rf"(?:\A|{delimiter})({quote}(?:[^{quote}]|{quote}{quote})*{quote}(?={delimiter}|\Z)|[^{delimiter}]*)"
    return [match[1] for match in re.finditer(form, text, re.DOTALL)]


def delimiter_name(dialect: Dialect) -> str:
    """Return the name of the delimiter in messages."""
    return DELIMITERS.get(dialect.separator, repr(dialect.separator))


def _worded(problem: str, dialect: Dialect, place: str) -> Damage:
    name = delimiter_name(dialect)
    message = next((words for part, words in WORDS.items() if part in problem), problem)
    hint = QUOTES if dialect.quote else "leave out `quote`: fields in quotes may have line ends"
    return Damage(message.format(name), place, hint.format(name))


def not_text(path: Path, line: int, encoding: str) -> Damage:
    """Return the damage of a line whose bytes are invalid in the encoding."""
    hint = f"{SAVED}, or of CSV name its encoding: `csv: {{encoding: windows-1252}}`"
    return Damage(
        f"the line is not {encoding.upper()}",
        f"{path}:{line}",
        hint if encoding == UTF_8 else f"{SAVED}, or name another `encoding`",
    )


def _first_not_text(path: Path, encoding: str) -> Damage:
    """Return the first line that is not encoded as it is declared."""
    with opened(path, encoding) as file:
        line = next((line for line, text in enumerate(file, start=1) if "\ufffd" in text), 1)
    return not_text(path, line, encoding)


def _is_text(path: Path, encoding: str, lines: int) -> bool:
    """Return whether the first lines of a file are encoded as it is declared."""
    try:
        with opened(path, encoding, "strict") as file:
            return any(line == lines for line, _ in enumerate(file, start=1))
    except UnicodeDecodeError:
        return False


def refuse_encoding(path: Path, dialect: Dialect) -> None:
    """Raise InputError if a file is seen to be encoded otherwise than it is declared."""
    if wrong := wrong_encoding(path, dialect.encoding):
        raise InputError(wrong[0], place=str(path), hint=wrong[1])


def names_of(path: Path, dialect: Dialect) -> list[str]:
    """Return the names of a file's columns, no two of them the same. Raises InputError, and OSError."""
    if not dialect.has_header:
        return list(dialect.names)
    header = next(records(path, dialect), None)
    if header is None:
        return []
    if "\ufffd" in header.text and not _is_text(path, dialect.encoding, header.last):
        raise not_text(path, header.last, dialect.encoding)
    refuse_long_names(header.fields, path, header.first)
    twice = next((name for name, count in Counter(header.fields).items() if name and count > 1), None)
    if twice is not None:
        hint = "rename one of the columns; if the first line is a row and no header: `csv: {header: false}`"
        raise InputError(f"the header has the name {unnamed(twice)!r} twice", place=f"{path}:{header.first}", hint=hint)
    nameless = [at for at, name in enumerate(header.fields) if not name]
    return [f"{UNNAMED}{at + 1}" if at in nameless[1:] else name for at, name in enumerate(header.fields)]


def refuse_long_names(names: list[str], path: Path, line: int = 1) -> None:
    """Raise InputError if a name in the header of a CSV file is absurdly long: each message would have it, and each table."""
    longest = max(map(len, names), default=0)
    if longest > LONGEST_NAME:
        raise InputError(
            f"the header has a name of {longest:,} characters, more than {LONGEST_NAME:,}",
            place=f"{path}:{line}",
            hint=DAMAGED,
        )
