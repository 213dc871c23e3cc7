"""Files of other kinds hold the same table as NDJSON: arrays of JSON, ORC, Avro, Excel, packed text; what is passed over is named."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
from datetime import date, datetime
from decimal import Decimal

import openpyxl
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import orc

from ddcli.cli.main import main
from ddcli.compare.diff import diff
from ddcli.errors import InputError
from ddcli.expressions.types import parse_type
from ddcli.store.formats.base import Append
from ddcli.store.log.reader import LogReader
from ddcli.store.log.schema import type_of
from ddcli.store.tables.footers import Footers
from ddcli.store.tables.inventory import list_input
from tests.draws import many
from tests.formats.support import Place

# ruff: noqa: DTZ001 - datetimes without zone are a type of their own
TYPES = {
    "i": "int64",
    "f": "float64?",
    "s": "string?",
    "d": "date?",
    "m": "datetime[us]?",
    "p": "decimal(12, 2)?",
    "b": "bool?",
}
COLUMNS = {name: parse_type(text) for name, text in TYPES.items()}
SCHEMA = {name: kind.to_polars() for name, kind in COLUMNS.items()}
WORDS = ["ann", 'say "hi"', "x,y", "two\nlines", "é", "[1]", "}", "=1+1", "7", " pad ", "\\", "NA", "😀"]


def some_rows(chance):
    maybe = lambda value: chance.choice([None, value, value])  # noqa: E731 - drawn anew for each value
    return [
        {
            "i": chance.randrange(-(10**9), 10**9),
            "f": maybe(chance.choice([0.1, -2.5, 3.0, 1e22, 1 / 3, 12345678.9])),
            "s": maybe(chance.choice(WORDS)),
            "d": maybe(date(2024, chance.randrange(1, 13), 3)),
            "m": maybe(datetime(2024, 1, chance.randrange(1, 29), chance.choice([0, 7]), 30)),
            "p": maybe(Decimal(chance.randrange(-99999, 99999)) / 100),
            "b": maybe(chance.random() < 0.5),
        }
        for _ in range(chance.randrange(6))
    ]


def plain(row):
    return {name: value if isinstance(value, int | float | str | None) else str(value) for name, value in row.items()}


def as_json(chance, rows):
    indent = chance.choice([None, 2])
    text = json.dumps([plain(row) for row in rows], indent=indent, ensure_ascii=chance.random() < 0.5)
    if chance.random() < 0.3:
        text = chance.choice(["\n", " "]).join(json.dumps(plain(row), indent=indent) for row in rows)
    return (chance.choice(["", "\ufeff"]) + text + chance.choice(["", "\n"])).encode()


def as_lines(chance, rows):
    return (chance.choice(["", "\ufeff"]) + "".join(json.dumps(plain(row)) + "\n" for row in rows)).encode()


def as_orc(_, rows):
    sink = io.BytesIO()
    orc.write_table(frame(rows).to_arrow(), sink)
    return sink.getvalue()


def as_avro(_, rows):
    sink = io.BytesIO()
    frame(rows).drop("p").write_avro(sink)
    return sink.getvalue()


def as_excel(chance, rows):
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(list(TYPES))
    for row in rows:
        if chance.random() < 0.2:
            sheet.append([])
        sheet.append([str(value) if name == "s" and value is not None else value for name, value in row.items()])
        cell = sheet.cell(sheet.max_row, 3)
        if cell.data_type == "f":
            cell.data_type = "s"
    if chance.random() < 0.5:
        book.create_sheet("empty")
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def frame(rows):
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return sink.getvalue().to_pybytes()


KINDS = {
    "json": as_json,
    "json.gz": lambda chance, rows: gzip.compress(as_json(chance, rows)),
    "ndjson": as_lines,
    "ndjson.gz": lambda chance, rows: gzip.compress(as_lines(chance, rows)),
    "ndjson.zst": lambda chance, rows: zstd(as_lines(chance, rows)),
    "jsonl.bz2": lambda chance, rows: bz2.compress(as_lines(chance, rows)),
    "orc": as_orc,
    "avro": as_avro,
    "xlsx": as_excel,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_holds_the_table_that_was_written(tmp_path, kind):
    columns = {name: type_ for name, type_ in COLUMNS.items() if kind != "avro" or name != "p"}
    if kind == "orc":  # which has nanoseconds only
        columns["m"] = parse_type("datetime[ns]?")
    path = tmp_path / f"a.{kind}"
    for seed in range(many(40)):
        chance = random.Random(f"{kind} {seed}")
        rows = some_rows(chance)
        path.write_bytes(KINDS[kind](chance, rows))
        log = Append(("i",), columns)
        reader = LogReader(list_input(path.name, tmp_path), log)
        names = [name for name in columns if name != "i"]
        parts = [part.read() for part in reader.take(names, None, (), chance.choice([None, 2])).slices]
        found = [
            (time, *row) for part in parts for time, row in zip(part.times.to_series(), part.frame.rows(), strict=True)
        ]
        assert found == [tuple(row[name] for name in columns) for row in rows], seed
        declared = None if kind in ("orc", "avro") else log.declared()
        ours = Footers(declared, {}).footer(path)
        assert {name: type_of(one) for name, one in ours.items()} == {
            name: type_of(one) for name, one in reader._tables.footer(path).items()
        }


DAMAGED = {
    "a.json": [
        (b'[{"i": 1}', "a.json:1:10", "Expecting ',' delimiter"),
        (b'[{"i": 1},\n {"i": 1, "i": 2}]', "a.json:2", "the key 'i' is in an object twice"),
        (b'[{"i": 1}]\n[]', "a.json:2", "something comes after the array"),
        (b'[{"i": 1},\n 7]', "a.json:2", "must be a JSON object"),
        (b'[{"i":\n 1, "s": "\xff"}]', "a.json:2", "the line is not UTF-8"),
        (b"[" * (1 << 17), "a.json:1", "nested too deep"),
        (b'[{"i": "x"}]', "a.json:1", "'x' in column"),
    ],
    "a.orc": [(b"ORC and no more", "a.orc", "the file is not whole ORC"), (b"", "a.orc", "the file is empty")],
    "a.avro": [(b"Obj\x01 and no more", "a.avro", "the file is not whole Avro")],
    "a.xlsx": [(b"PK and no more", "a.xlsx", "the file is not whole Excel")],
    "a.ndjson.zst": [(zstd(b'{"i": 1}\n' * 99)[:-5], "a.ndjson.zst", "the file is not whole zstd")],
    "a.csv.bz2": [(bz2.compress(b"i\n1\n")[:-5], "a.csv.bz2", "the file is not whole bzip2")],
}


@pytest.mark.parametrize(
    ("name", "data", "place", "problem"), [(name, *one) for name, some in DAMAGED.items() for one in some]
)
def test_damage_is_refused_with_its_place(tmp_path, name, data, place, problem):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as caught:
        read(tmp_path, name)
    assert str(caught.value.place).endswith(place), caught.value
    assert problem in caught.value.problem


def read(folder, name):
    reader = LogReader(list_input(name, folder), Append(("i",), {"i": parse_type("int64")}))
    return [part.read() for part in reader.take(["i"], None, ()).slices]


def book(tmp_path, *sheets):
    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, rows in sheets:
        sheet = made.create_sheet(name)
        for row in rows:
            sheet.append(row)
    made.save(tmp_path / "a.xlsx")
    return tmp_path / "a.xlsx"


SHEETS = {
    "several sheets with rows: A, B": [("A", [["i"], [1]]), ("B", [["i"], [2]])],
    "no formula has its value": [("A", [["i", "s"], ["=1+1", "x"]])],
    "the row has 2 cells, the header 1": [("A", [["i"], [1, "a remark"]])],
    "a name is missing in the header": [("A", [["i", None, "s"], [1, 2, 3]])],
    "the header has the name 'i' twice": [("A", [["i", "i"], [1, 2]])],
    "no sheet with rows": [("A", [])],
    "'x' in column": [("A", [["i"], [], [1], ["x"]])],
    "'#N/A' in column": [("A", [["i"], [1], ["#N/A"]])],
}


@pytest.mark.parametrize("problem", SHEETS)
def test_a_workbook_that_is_no_table_is_refused(tmp_path, problem):
    book(tmp_path, *SHEETS[problem])
    with pytest.raises(InputError, match=problem) as caught:
        read(tmp_path, "a.xlsx")
    assert "a.xlsx" in caught.value.place
    if "x' is" in problem:
        assert caught.value.place.endswith("a.xlsx:A!4")


def test_what_is_passed_over_is_named_with_its_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    place = Place(tmp_path, format="append", time="i", columns={"i": "int64"})
    (tmp_path / "in/a.csv").write_text("i\n1\n")
    for name in ("notes.txt", "b.csv.tmp", "_c.csv", ".hidden.csv", "_SUCCESS", "settings.json", "plain"):
        (tmp_path / "in" / name).write_text("i\n2\n")
    (tmp_path / "in/below").mkdir()
    (tmp_path / "in/below/again").symlink_to("..", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/d.csv").write_text("i\n3\n")
    (tmp_path / "in/below/there").symlink_to("../../elsewhere", target_is_directory=True)
    summary = place.run()
    assert summary.inputs["a"].files == 2
    found = {path.split("/in/")[1]: why for path, why in summary.inputs["a"].passed.items()}
    assert found == {
        "_c.csv": "a name that begins with '_' is its writer's own",
        "b.csv.tmp": "its name marks a file that isn't finished",
        "below/again": "a link to a directory above it",
        "notes.txt": "no kind of file that is read ends in '.txt'",
        "plain": "its name has no ending of a kind that is read",
        "settings.json": "JSON is read where `path` names it, as in '*.json'",
    }
    assert "  skipped a: in/_c.csv: a name that begins" in "\n".join(summary.lines())
    assert "and 1 more" in "\n".join(summary.lines())
    main(["check", "p.yaml"])
    assert "in/below/again is skipped: a link to a directory above it" in capsys.readouterr().err


def test_a_link_that_leads_into_itself_does_not_end_the_walk(tmp_path):
    (tmp_path / "in/a/b").mkdir(parents=True)
    (tmp_path / "in/a/b/x.csv").write_text("i\n1\n")
    (tmp_path / "in/a/b/up").symlink_to(tmp_path / "in", target_is_directory=True)
    (tmp_path / "in/a/other").symlink_to("b", target_is_directory=True)
    listing = list_input("in", tmp_path)
    assert [file.path for file in listing.new] == ["a/b/x.csv", "a/other/x.csv"]
    assert {one.path for one in listing.passed} == {"a/b/up", "a/other/up"}


def test_diff_takes_them_too(tmp_path):
    rows = some_rows(random.Random(5))
    paths = []
    for kind in ("json", "ndjson.zst", "orc"):
        paths.append(tmp_path / f"a.{kind}")
        paths[-1].write_bytes(KINDS[kind](random.Random(1), rows))
    frame(rows).write_parquet(tmp_path / "a.parquet")
    for path in paths:
        assert diff(str(path), str(tmp_path / "a.parquet"), ignore_types=True).same, path
