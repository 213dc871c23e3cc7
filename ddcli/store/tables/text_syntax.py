"""The syntax of text files: CSV records with as many fields as the header has names, JSON objects that have each key once.

A reader of values notices neither fault: it fills a cut record with nulls, and takes the first of two values. So a file is
checked before its rows are read: compiled code accepts sound lines, and doubtful ones are judged by Python's own `csv` and
`json`, which also find the place of a fault. So are files that are too small to load compiled code for.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.kernels.text_syntax import (
    BLANK,
    DEEPEST,
    LONG,
    MARKS,
    MOST_KEYS,
    QUOTED,
    RECORD,
    ROWS,
    csv_is_sound,
    doubtful_lines,
)
from ddcli.expressions.csv_dialect import DEFAULT, Dialect
from ddcli.store.tables.compression import (
    LATIN,
    Damage,
    all_utf_8,
    is_utf_8,
    unpacked,
)
from ddcli.store.tables.csv_records import delimiter_name, has_bare_quote, records
from ddcli.store.tables.input_path import packing_of
from ddcli.store.tables.json_values import ExactColumns, has_mark, is_values, numbered_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import NoReturn

SMALL = 64 << 10
"""Bytes of text that Python judges sooner than compiled code is loaded."""
PACKED = 10
"""The factor that a packed file may grow by when it is unpacked."""
BLOCK = 4 << 20
"""Bytes that are looked at together."""
DOUBTS = 1 << 12
"""The doubtful lines of a block that are judged one by one; if there are more, the whole file is."""
SPACE = " \t\r\n"
NULL = "null"
"""A line without an object."""
PAYLOAD = '"payload"'
"""The text without which no object of a file has its event as payload, beside a schema."""
TOMBSTONES, ENVELOPES = MARKS, MARKS + 1
"""The marks of files with such lines, and with such texts: the first beyond the marks of the compiled code."""
SHOWN = 100
"""Digits of a number that a message quotes."""


def judge_csv(
    path: Path, dialect: Dialect = DEFAULT, bare: set[Path] | None = None, rows: dict[Path, int] | None = None
) -> Damage | None:
    """Return the first thing that is wrong with a CSV file; add it to `bare` if a field that isn't in quotes has one, and the number of its rows to `rows`."""
    wanted = len(dialect.names)
    valued = 0
    try:
        for number, record in enumerate(records(path, dialect)):
            wanted = wanted or len(record.fields)
            valued += not (record.empty or (number == 0 and dialect.has_header))
            if bare is not None and path not in bare and has_bare_quote(record, dialect):
                bare.add(path)
            if len(record.fields) != wanted:
                more, delimiter = len(record.fields) > wanted, delimiter_name(dialect)
                return Damage(
                    f"the line has {len(record.fields)} fields, {'the header' if dialect.has_header else 'there are'} {wanted}"
                    + ("" if dialect.has_header else " columns"),
                    f"{path}:{record.last}",
                    f"quote a value that has a {delimiter}"
                    if more
                    else f"the line was cut, or a {delimiter} is missing: write the file again",
                )
        if dialect.encoding in LATIN and is_utf_8(path):
            return Damage(f"the file is UTF-8, not {dialect.encoding}", str(path), all_utf_8(dialect.encoding))
    except Damage as damage:
        return damage
    if rows is not None:
        rows[path] = valued
    return None


def judge_json(
    path: Path,
    watched: ExactColumns | None = None,
    marks: np.ndarray | None = None,
    *,
    tombstones: bool = False,
) -> Damage | None:
    """Return the first damage of an NDJSON file; the lines before it set `marks`, if these are given. `tombstones`: a line may be `null`."""
    try:
        for line, text in numbered_lines(path):
            if marks is not None and watched is not None:
                mark(text, watched, marks)
                marks[ROWS] += bool(text.strip(SPACE))
            if damage := judge_object(text, f"{path}:{line}", tombstones=tombstones):
                return damage
    except Damage as found:
        return found
    return None


def mark(text: str, watched: ExactColumns, marks: np.ndarray) -> None:
    """Note of a line of NDJSON whether it is blank or no object, has a payload, or a number that a float may cut where that counts."""
    if PAYLOAD in text:
        marks[ENVELOPES] = 1
    if not text.strip(SPACE):
        marks[BLANK] = 1
    elif text.strip(SPACE) == NULL:
        marks[TOMBSTONES] = 1
    elif not marks[LONG]:
        line = text.encode()
        marks[LONG] = watched.exact(line) != line


def judge_object(text: str, place: str, *, tombstones: bool = False) -> Damage | None:
    """Return the damage of a line of NDJSON."""
    if tombstones and text.strip(SPACE) == NULL:
        return None
    if not text.strip(SPACE):
        return None
    try:
        found = json.loads(
            text.rstrip(SPACE),
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_finite,
            object_pairs_hook=_once,
        )
        if "\\" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except KeyError as twice:
        return Damage(f"the key {twice.args[0]!r} is in an object twice", place, "write each key once")
    except RecursionError:
        return Damage("values are nested too deep", place, "leave out values that no column reads")
    except UnicodeEncodeError:
        return Damage("an escape is half a character", place)
    except ValueError as wrong:
        return Damage(f"not JSON: {getattr(wrong, 'msg', wrong)}", f"{place}:{getattr(wrong, 'colno', 1)}")
    return None if isinstance(found, dict) else Damage("must be a JSON object on each line", place)


class Syntax:
    """Looks through files: up to `SMALL` bytes in all by Python alone, the others by compiled code first."""

    def __init__(
        self, watched: ExactColumns | None = None, dialect: Dialect = DEFAULT, *, tombstones: bool = False
    ) -> None:
        self._left = SMALL
        self._tombstones = tombstones
        self._dialect = dialect
        self._watched = watched or ExactColumns({}, nested=False)
        self.bare: set[Path] = set()
        """CSV files in which a field that isn't in quotes has one."""
        self.rows: dict[Path, int] = {}
        """The number of rows of CSV files that were looked through."""
        self.marks: dict[Path, np.ndarray] = {}
        """The marks of the lines of NDJSON files that were looked through."""
        self.preceded: set[Path] = set()
        """The files that begin with a byte order mark."""

    def csv_damage(self, path: Path) -> Damage | None:
        """Return the damage of a CSV file; None if each record is blank or has the fields of the header."""
        if self._dialect.is_plain and self._is_large(path) and (rows := _sound_rows(path, self._dialect)) is not None:
            self.rows[path] = rows
            return None
        return judge_csv(path, self._dialect, self.bare, self.rows)

    def json_damage(self, path: Path) -> Damage | None:
        """Return the damage of an NDJSON file; None if each line is blank or an object that has each key once."""
        marks = self.marks[path] = np.zeros(ENVELOPES + 1, np.int64)
        with suppress(Damage):  # the reader of the whole file reports it
            if has_mark(path):
                self.preceded.add(path)
        tombstones = self._tombstones
        if self._is_large(path) and _json_is_sound(path, self._watched, marks, tombstones=tombstones):
            return None
        marks[ROWS] = 0
        return judge_json(path, self._watched, marks, tombstones=tombstones)

    def _is_large(self, path: Path) -> bool:
        self._left -= path.stat().st_size * (PACKED if packing_of(path.name) else 1)
        return self._left < 0


def _sound_rows(path: Path, dialect: Dialect = DEFAULT) -> int | None:
    """Return the number of rows of a CSV file with a header; None if it may be unsound."""
    try:
        header = next(records(path, dialect))
        wanted = len(header.fields)
        state = np.array([RECORD, 0, 0, 0], np.int64)
        delimiter, quote = ord(dialect.separator), ord(dialect.quote) if dialect.quote else -1
        for at, block in enumerate(_blocks(path)):
            data = block.removeprefix(BOM_UTF8) if at == 0 else block
            if not csv_is_sound(np.frombuffer(data, np.uint8), len(data), wanted, delimiter, quote, state):
                return None
    except (StopIteration, Damage):
        return None
    ended, commas, valued, rows = state.tolist()
    sound = ended == RECORD or (ended != QUOTED and commas + 1 == wanted)
    return rows + valued - (not header.empty) if sound else None


def _json_is_sound(path: Path, watched: ExactColumns, marks: np.ndarray, *, tombstones: bool = False) -> bool:
    hashes, first, found = np.empty(MOST_KEYS, np.uint64), np.empty(DEEPEST, np.int64), np.empty(DOUBTS, np.int64)
    try:
        for lines in whole_lines(path):
            if tombstones and PAYLOAD.encode() in lines:
                marks[ENVELOPES] = 1
            data = np.frombuffer(lines, np.uint8)
            count = doubtful_lines(data, len(lines), hashes, first, watched.hashes, marks, found)
            if count == DOUBTS:
                return False
            for start in found[:count].tolist():
                end = lines.find(b"\n", start)
                text = lines[start : None if end < 0 else end].decode(errors="replace")
                mark(text, watched, marks)
                if judge_object(text, "", tombstones=tombstones):
                    return False
    except Damage:
        return False
    return True


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in blocks that end where a line does, an object of a `.json` file as a line; without a byte order mark."""
    if is_values(path):
        yield "".join(text for _, text in numbered_lines(path)).encode()
        return
    rest: list[bytes] = []
    mark = BOM_UTF8
    for block in _blocks(path):
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, block[:end]]).removeprefix(mark)
            rest.clear()
            mark = b""
        rest.append(block[end:])
    yield b"".join(rest).removeprefix(mark)


def _blocks(path: Path) -> Iterator[bytes]:
    with unpacked(path) as file:
        while block := file.read(BLOCK):
            yield block


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises KeyError for a key that it has twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise KeyError(next(name for at, name in enumerate(names) if name in names[:at]))
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ValueError(f"{text if len(text) < SHOWN else text[:SHOWN] + '...'} is out of range")
    return value
