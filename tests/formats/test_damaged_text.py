"""Damaged text: a file that was cut, or had something left out, added or written twice, is refused with its place, or read as it is written.

As it is written is what Python's `csv` and `json` read of it: a record of as many fields as the header has names, an object
that has each key once.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ddcli.commands.convert import convert_files
from ddcli.compare.diff import diff
from ddcli.engine.kernels.text_syntax import MARKS
from ddcli.errors import InputError
from ddcli.expressions.types import ARRIVAL, ARRIVAL_TIME, parse_type
from ddcli.sources.change_log import ChangeLog
from ddcli.store.formats.base import Append
from ddcli.store.log.reader import LogReader
from ddcli.store.tables import text_syntax
from ddcli.store.tables.files import Tables
from ddcli.store.tables.inventory import list_input
from ddcli.store.tables.json_values import ExactColumns
from tests.draws import many
from tests.formats.support import Place

CASES = many(160)
"""Files of a kind; 20 000 take some minutes."""
TYPES = {"id": "int64", "name": "string?", "amount": "decimal(9, 2)?", "note": "string?", "time": "int64"}
CENT = Decimal("0.01")
COLUMNS = {name: parse_type(text) for name, text in TYPES.items()}
WORDS = ["ann", "bo b", 'say "hi"', "x,y", "two\nlines", "é", "{}", "[1]", 'a":1', "\\", "😀", "\u2028", "-"]


def some_rows(chance: random.Random) -> list[dict[str, object]]:
    """Return rows of a table."""
    word = lambda: chance.choice([None, *WORDS])  # noqa: E731 - drawn anew for each value
    amount = lambda: chance.choice([None, "1.50", "0.07", "-3.00"])  # noqa: E731
    return [
        {"id": at, "name": word(), "amount": amount(), "note": word(), "time": chance.randrange(99)}
        for at in range(chance.randrange(1, 6))
    ]


def as_csv(chance: random.Random, rows: list[dict[str, object]]) -> str:
    """Return rows as CSV, quoted as needed or always, its lines ended either way."""
    file = io.StringIO()
    end, quoting = chance.choice(["\n", "\r\n"]), chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
    writer = csv.writer(file, lineterminator=end, quoting=quoting)
    writer.writerow(TYPES)
    plain = csv.writer(file, lineterminator=end)
    for row in rows:  # in quotes an empty field is empty text
        (plain if None in row.values() else writer).writerow(row.values())
    return chance.choice(["", "", "\ufeff"]) + file.getvalue()


def as_json(chance: random.Random, rows: list[dict[str, object]]) -> str:
    """Return rows as NDJSON; a null may be left out, keys may come in any order."""
    lines = []
    for row in rows:
        pairs = [(name, value) for name, value in row.items() if value is not None or chance.random() < 0.5]
        chance.shuffle(pairs)
        apart = chance.choice([(",", ":"), (", ", ": ")])
        lines.append(json.dumps(dict(pairs), ensure_ascii=chance.random() < 0.5, separators=apart))
    return chance.choice(["", "", "\ufeff"]) + "\n".join(lines) + chance.choice(["\n", ""])


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Return a file's content with some damage."""
    at, other = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    lines = data.splitlines(keepends=True)
    which = chance.randrange(len(lines))
    line = lines[which]
    spots = [match.start() for match in re.finditer(rb"[,:{}\"\n]", line)] or [0]
    spot, last = sorted(chance.choice(spots) for _ in range(2))
    key = re.search(rb'"(\w+)": ?[^,}]+', line)
    ways = [
        data[:at],  # cut
        data[:at] + data[other:],  # a piece is missing
        data[:other] + data[at:],  # a piece is there twice
        data[:at] + bytes([chance.choice(b'",:{}[]\\\n\r\x00 x1')]) + data[at:],
        b"".join([*lines[:which], line[:spot] + line[last:], *lines[which + 1 :]]),  # fields are missing
        b"".join([*lines[:which], line[:last] + line[spot:], *lines[which + 1 :]]),  # fields are there twice
        b"".join([*lines[:which], line.rstrip(b"\r\n") + b",9\n", *lines[which + 1 :]]),
        b"".join([*lines[:which], *lines[which + 1 :]]),
        b"".join([*lines[:which], line.rstrip(b"\r\n"), *lines[which + 1 :]]),  # two lines are one
        data.replace(b"name", chance.choice([b"note", b"id", b"name,name"]), 1),
        data.replace(line, line[: key.start()] + key[0] + b"," + line[key.start() :], 1) if key else data[:at],
        data,
    ]
    return chance.choice(ways)


def read_csv(text: str) -> list[tuple[object, ...]] | None:
    """Return the rows that Python reads of a CSV file; None where it is not whole."""
    try:
        header, *records = [
            record for record in csv.reader(lines_of(text.removeprefix("\ufeff")), strict=True) if record
        ]
    except (csv.Error, ValueError):
        return None
    named = [name for name in header if name]
    if len(set(named)) < len(named) or any(len(record) != len(header) for record in records):
        return None
    return [dict(zip(header, record, strict=True)) for record in records if any(record)]


def lines_of(text: str) -> list[str]:
    """Return lines that end in a line feed, as `csv` and `json` are to be handed them."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def read_json(text: str):
    """Return the objects that Python reads of NDJSON; None where it is not whole."""

    def once(pairs):
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("twice")
        return dict(pairs)

    def refuse(word):
        raise ValueError(word)

    try:
        found = [
            json.loads(line, object_pairs_hook=once, parse_constant=refuse)
            for line in lines_of(text.removeprefix("\ufeff"))
            if line.strip(" \t\r\n")
        ]
        json.dumps(found, ensure_ascii=False).encode()
    except ValueError:
        return None
    return found if all(isinstance(one, dict) for one in found) else None


def typed(rows) -> list[tuple[object, ...]] | None:
    """Return rows in the types of the columns, null and empty text alike; None where a value is none of its type."""
    found = []
    for row in rows:
        record: list[object] = []
        for name, kind in TYPES.items():
            value = row.get(name)
            text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
            if kind.startswith("string"):
                record.append(text)
            elif not text:
                if not kind.endswith("?"):
                    return None
                record.append(None)
            elif not re.fullmatch(r"[+-]?\d+" if kind == "int64" else r"[+-]?\d*\.?\d*", text.strip()):
                return None
            else:
                record.append(int(text) if kind == "int64" else Decimal(text).quantize(CENT, ROUND_HALF_UP))
        found.append(tuple(record))
    return found


def ours(path):
    """Return the rows that a run takes from a file, of several slices if there are many; or the error that refuses it.

    The rows were counted when damage was looked for, however they are read.
    """
    try:
        found = taken(path)
    except InputError as error:
        return error
    listing = list_input(path.name, path.parent)
    reader = LogReader(listing.with_arrival(0), Append((ARRIVAL,), COLUMNS | {ARRIVAL: ARRIVAL_TIME}), most=2)
    assert reader._tables.known_rows(path) == len(found)
    assert sum(part.read().frame.height for part in reader.take(["id"], None, (), 2).slices) == len(found)
    return found


def taken(path):
    reader = LogReader(list_input(path.name, path.parent), Append(("time",), COLUMNS))
    found = []
    for part in reader.take(list(COLUMNS), None, (), 2).slices:
        rows = part.read()
        times = rows.times.to_series()
        frame = rows.frame.with_columns(time=times) if "time" not in rows.frame.columns else rows.frame
        found.append(frame.select(list(TYPES)))
    frame = pl.concat(found) if found else pl.DataFrame(schema=list(TYPES))
    frame = frame.with_columns(pl.col("name", "note").cast(pl.String).fill_null(""))
    return frame.rows()


@pytest.mark.parametrize("compiled", [False, True], ids=["judged", "sieved"])
@pytest.mark.parametrize("kind", ["csv", "ndjson", "csv.gz", "ndjson.gz"])
def test_a_damaged_file_is_refused_or_read_as_it_is_written(tmp_path, monkeypatch, kind, compiled):
    """Every way in begins here: the reader of a log refuses what the reader of values would pass over."""
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    text, packed = kind.removesuffix(".gz"), kind.endswith(".gz")
    writer, reader = {"csv": (as_csv, read_csv), "ndjson": (as_json, read_json)}[text]
    path = tmp_path / f"a.{kind}"
    seen = {"refused": 0, "read": 0}
    for seed in range(CASES // (4 if packed else 1)):
        chance = random.Random(f"{kind} {seed}")
        whole = writer(chance, some_rows(chance)).encode()
        content = damaged(chance, whole)
        if packed:
            content = damaged(chance, gzip.compress(whole)) if chance.random() < 0.7 else gzip.compress(content)
        path.write_bytes(content)
        found = ours(path)
        if isinstance(found, InputError):
            assert str(path) in str(found.place), (seed, content, found)
            seen["refused"] += 1
            continue
        seen["read"] += 1
        plain = gzip.decompress(content) if packed else content
        want = reader(plain.decode())
        assert want is not None, (seed, content, found)
        assert found == typed(want), (seed, content)
    assert min(seen.values()) > CASES // 40, seen


HEADED = "id,name,amount,note,time\n"
LINE = '{"id": 1, "name": "x", "amount": null, "note": "y", "time": 3}\n'
BAD = {
    "a record that was cut": ("csv", f"{HEADED}1,x,,y,3\n2", ":3", "the line has 1 fields, the header 5", "was cut"),
    "a record that is too long": (
        "csv",
        f"{HEADED}1,x,,y,3\n2,x,,y,z,3\n",
        ":3",
        "the line has 6 fields, the header 5",
        "quote a value that has a comma",
    ),
    "a quote that is never closed": ("csv", f'{HEADED}1,x,,"y,3\n2,x,,y,3\n', ":2", "a quote is opened", "in it twice"),
    "text after a quote": ("csv", f'{HEADED}1,x,,"y"y,3\n', ":2", "a closing quote is followed by", "in it twice"),
    "a carriage return alone": (
        "csv",
        f"{HEADED}1,x,,y,3\r2,x,,y,3\n",
        ":2",
        "a carriage return is in a value",
        "quote a value",
    ),
    "a header without an end": (
        "csv",
        "id,note,amount,time," + "\0" * 1_000_000,
        ":1",
        "the header has a name of 1,000,000 characters, more than 10,000",
        "write the file again",
    ),
    "a header that has a name twice": (
        "csv",
        "id,name,amount,name,time\n1,x,,y,3\n",
        ":1",
        "the header has the name 'name' twice",
        "rename one of the columns",
    ),
    "a key twice": (
        "ndjson",
        LINE + LINE.replace('"note"', '"id"'),
        ":2",
        "the key 'id' is in an object twice",
        "write each key once",
    ),
    "a key twice, once escaped": (
        "ndjson",
        LINE + LINE.replace('"note"', '"\\u0069d"'),
        ":2",
        "the key 'id' is in an object twice",
        "write each key once",
    ),
    "a key twice in an object within": (
        "ndjson",
        LINE.replace('"y"', '[{"a": 1}, {"a": 1, "b": {"c": 1, "c": 2}}]'),
        ":1",
        "the key 'c' is in an object twice",
        "write each key once",
    ),
    "half a character": ("ndjson", LINE.replace('"y"', r'"\ud83d y"'), ":1", "an escape is half a character", "again"),
    "half a line": ("ndjson", LINE + LINE[:20], ":2:19", "not JSON: Unterminated string", "again"),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["judged", "sieved"])
def test_a_second_byte_order_mark_is_no_mark(tmp_path, monkeypatch, compiled):
    """Nor is one before another line than the first."""
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    place = Place(tmp_path, format="upsert", key="id", columns=TYPES)
    for text, line in (("\ufeff\ufeff" + LINE, 1), (LINE + "\ufeff" + LINE, 2)):
        (tmp_path / "in/a.ndjson").write_text(text)
        for memory in (None, 1):
            with pytest.raises(InputError, match="not JSON: Unexpected UTF-8 BOM") as caught:
                place.run(memory=memory)
            assert caught.value.place.endswith(f"a.ndjson:{line}:1")


@pytest.mark.parametrize("compiled", [False, True], ids=["judged", "sieved"])
@pytest.mark.parametrize("case", BAD)
def test_damage_is_refused_with_its_line_everywhere(tmp_path, monkeypatch, case, compiled):
    """By runs, in memory or in slices, by `read_log`, `dd diff`, `dd convert` and a test's file of rows."""
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    monkeypatch.chdir(tmp_path)
    kind, text, line, problem, hint = BAD[case]
    place = Place(tmp_path, format="upsert", key="id", columns=TYPES)
    path = tmp_path / f"in/a.{kind}"
    path.write_text(text, newline="")
    other = tmp_path / f"b.{kind}"
    other.write_text(HEADED + "1,x,,y,3\n" if kind == "csv" else LINE)
    for read in (
        place.run,
        lambda: place.run(memory=1),
        lambda: ChangeLog.open("in", tmp_path, columns=COLUMNS),
        lambda: diff(str(path), str(other), key=["id"]),
        lambda: diff(str(other), str(path)),
        lambda: convert_files({"path": "in", "format": "append", "time": "time", "columns": TYPES}, tmp_path / "made"),
    ):
        with pytest.raises(InputError) as caught:
            read()
        assert caught.value.place.endswith(f"a.{kind}{line}"), caught.value
        assert problem in caught.value.problem
        assert hint in caught.value.hint
    assert not [*(tmp_path / "out").glob("*.parquet")]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("compiled", [False, True], ids=["judged", "sieved"])
@pytest.mark.parametrize("line", ["null", "5", '"x"', "[{}]", " true", "[1, 2]"])
def test_a_line_that_is_no_object_is_refused_in_the_same_words(tmp_path, monkeypatch, line, compiled):
    """The first such line, and at once, not by the reader of its rows."""
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    path = tmp_path / "a.ndjson"
    path.write_text(LINE * 3 + line + "\n" + LINE + "null\n")
    damage = text_syntax.Syntax().json_damage(path)
    assert (damage.problem, damage.place) == ("must be a JSON object on each line", f"{path}:4")


@pytest.mark.parametrize("kind", ["csv", "ndjson", "csv.gz"])
def test_rows_that_arrive_are_counted_as_damage_is_looked_for(tmp_path, monkeypatch, kind):
    """A driver of tasks reads large text once before it makes slices, and has no query read it again."""
    rows = [
        {"id": at, "name": f"{at * 7919 % 1000003}", "amount": None, "note": "\n", "time": at} for at in range(99_000)
    ]
    text = as_csv(random.Random(kind), rows) if "csv" in kind else "".join(json.dumps(row) + "\n" for row in rows)
    path = tmp_path / f"a.{kind}"
    path.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    size = path.stat().st_size
    assert size > 10 * text_syntax.SMALL
    log = Append((ARRIVAL,), COLUMNS | {ARRIVAL: ARRIVAL_TIME})
    for read in range(2):  # the first loads modules besides
        monkeypatch.setattr(Tables, "_collected", lambda *_: pytest.fail("a query reads the file"))
        before = bytes_read()
        reader = LogReader(list_input(path.name, tmp_path).with_arrival(0), log, most=1000)
        slices = reader.take(["id", "name"], None, (), 1000).slices
        assert bytes_read() - before < 1.5 * size or not read  # the beginning is read several times, for the header
        monkeypatch.undo()
        assert sum(piece.count for part in slices for piece in part.pieces) == len(rows)
        assert slices[-1].read().frame["id"].to_list()[-1] == len(rows) - 1


def bytes_read():
    """Return the bytes that this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("keys", [1, 3, 64, 65, 200])
def test_wide_and_deep_objects_are_sound(tmp_path, monkeypatch, keys):
    """What the sieve can't hold is judged, and found sound; so is a key that is in another object, too."""
    monkeypatch.setattr(text_syntax, "SMALL", -1)
    flat = {f"key {at}": {"key 0": [at, {"key 1": at}]} for at in range(keys)}
    deep = "[" * keys + "]" * keys
    path = tmp_path / "a.ndjson"
    path.write_text(f'{json.dumps(flat)}\n{{"a": {deep}, "b": {{}}, "c": "{{\\"a\\": 1}}"}}\n')
    assert text_syntax.Syntax().json_damage(path) is None
    path.write_text(f'{json.dumps(flat)}\n{{"a": {deep}, "b": {{}}, "a": 1}}\n')
    damage = text_syntax.Syntax().json_damage(path)
    assert (damage.problem, damage.place) == ("the key 'a' is in an object twice", f"{path}:2")


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_blocks_may_end_anywhere(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_syntax, "SMALL", -1)
    monkeypatch.setattr(text_syntax, "BLOCK", block)
    table, objects = tmp_path / "a.csv", tmp_path / "a.ndjson"
    for end in ("\n", "\r\n"):
        text = f'{HEADED}1,"x\n""y"" ,",,y,3\n\n2,,,,"3"\n'.replace("\n", end)
        for whole in (text, text.rstrip(), "\ufeff" + text):
            table.write_text(whole, newline="", encoding="utf-8")
            assert text_syntax._sound_rows(table) == 2, repr(whole)
        table.write_text(text.replace("2,,,,", "2,,,"), newline="")
        assert text_syntax._sound_rows(table) is None
        for mark in ("", "\ufeff"):
            objects.write_text(mark + (LINE * 3 + "\n" + LINE).replace("\n", end), newline="")
            assert text_syntax._json_is_sound(objects, ExactColumns({}, nested=False), np.zeros(MARKS, np.int64))
