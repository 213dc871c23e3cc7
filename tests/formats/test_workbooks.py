"""Workbooks as openpyxl and xlsxwriter write them: each cell has the text of the value that was written."""

# ruff: noqa: DTZ001 - datetimes without zone are a type of their own
from __future__ import annotations

import random
import re
import zipfile
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import openpyxl
import pytest

from ddcli.errors import InputError
from ddcli.expressions.types import parse_type
from ddcli.store.tables.sheets import sheet_of
from ddcli.store.tables.whole_files import Workbooks
from tests.draws import many
from tests.formats.support import Place
from tests.formats.test_other_files import read

DATE, MOMENT, CLOCK, LENGTH = "yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss", "hh:mm:ss", "[h]:mm:ss"


def some_value(chance):
    """Return a value, its number format, and its text."""
    day = date(chance.randrange(1901, 2999), chance.randrange(1, 13), chance.randrange(1, 29))
    clock = time(chance.randrange(24), chance.randrange(60), chance.randrange(60))
    length = timedelta(hours=chance.randrange(200), minutes=chance.randrange(60), seconds=chance.randrange(60))
    hours, rest = divmod(int(length.total_seconds()), 3600)
    number = chance.choice([0.1, -2.5, 1e-5, 1e-12, 1e15, 1e16, 1e21, 123456.789, -1e-7, 1 / 3, 2.0, 0.0])
    text = chance.choice(["x", "é😀", "two\nlines", " pad ", "=1+1", "007", "_x", "a_x0041", "<&>", '"'])
    midnight = datetime(day.year, day.month, day.day)
    return chance.choice(
        [
            (None, None, None),
            (True, None, "true"),
            (chance.randrange(-(10**9), 10**9), None, None),
            (number, None, None),
            (text, None, text),
            (day, DATE, day.isoformat()),
            (datetime.combine(day, clock), MOMENT, f"{day} {clock}"),
            (midnight, MOMENT, f"{day} 00:00:00"),
            (clock, CLOCK, str(clock)),
            (time(), CLOCK, "00:00:00"),
            (length, LENGTH, f"{hours:02}:{rest // 60:02}:{rest % 60:02}"),
        ]
    )


def with_openpyxl(path, rows):
    book = openpyxl.Workbook()
    for at, row in enumerate(rows, start=1):
        for column, (value, form, _) in enumerate(row, start=1):
            cell = book.active.cell(at, column, value)
            if form:
                cell.number_format = form
            if isinstance(value, str):
                cell.data_type = "s"
    book.save(path)


def with_xlsxwriter(path, rows):
    xlsxwriter = pytest.importorskip("xlsxwriter")
    book = xlsxwriter.Workbook(str(path))
    sheet = book.add_worksheet()
    forms = {form: book.add_format({"num_format": form}) for form in (DATE, MOMENT, CLOCK, LENGTH)}
    for at, row in enumerate(rows):
        for column, (value, form, _) in enumerate(row):
            if isinstance(value, str):
                sheet.write_string(at, column, value)
            elif form:
                sheet.write_datetime(at, column, value, forms[form])
            else:
                sheet.write(at, column, value)
    book.close()


@pytest.mark.parametrize("write", [with_openpyxl, with_xlsxwriter])
def test_a_cell_is_read_as_it_was_written(tmp_path, write):
    path = tmp_path / "a.xlsx"
    for seed in range(many(60)):
        chance = random.Random(f"workbook {seed}")
        width = chance.randrange(1, 5)
        rows = [[some_value(chance) for _ in range(width)] for _ in range(chance.randrange(1, 9))]
        write(path, [[(f"c{column}", None, f"c{column}") for column in range(width)], *rows])
        found = {row.number: row.cells for row in sheet_of(path)[2:]}
        for number, row in enumerate(rows, start=2):
            cells = [*found.get(number, []), *[None] * width][:width]
            for cell, (value, _, text) in zip(cells, row, strict=True):
                if isinstance(value, int | float) and not isinstance(value, bool):
                    assert "e" not in cell.lower()
                    assert Decimal(cell) == Decimal(repr(value)), (seed, value, cell)
                else:
                    assert cell == text, (seed, value)


@pytest.mark.parametrize("write", [with_openpyxl, with_xlsxwriter])
def test_a_declared_column_has_the_values(tmp_path, write):
    rows = [
        [("day", None, ""), ("at", None, ""), ("open", None, ""), ("price", None, ""), ("n", None, "")],
        [
            (datetime(2024, 1, 31), MOMENT, ""),
            (datetime(2024, 1, 31), MOMENT, ""),
            (timedelta(hours=8, minutes=30), LENGTH, ""),
            (0.00001, None, ""),
            (1e16, None, ""),
        ],
        [
            (date(2024, 2, 1), DATE, ""),
            (date(2024, 2, 1), DATE, ""),
            (time(), CLOCK, ""),
            (1e16, None, ""),
            (5, None, ""),
        ],
    ]
    columns = {"day": "date", "at": "datetime[us]", "open": "time", "price": "decimal(38, 10)", "n": "int64"}
    write(tmp_path / "a.xlsx", rows)
    kind = Workbooks({name: parse_type(text) for name, text in columns.items()})
    frame = kind.scan([tmp_path / "a.xlsx"]).with_columns(*kind.typed(list(columns))).collect()
    assert frame.rows() == [
        (date(2024, 1, 31), datetime(2024, 1, 31), time(8, 30), Decimal("0.00001"), 10**16),
        (date(2024, 2, 1), datetime(2024, 2, 1), time(), Decimal(10**16), 5),
    ]


def edited(path, part, change):
    """Write a workbook with a header and a row, one part of which is changed."""
    book = openpyxl.Workbook()
    book.active.append(["i", "s"])
    book.active.append([1, "x"])
    book.save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    before = parts[part]
    parts[part] = change(before)
    assert parts[part] != before
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(name, data)


SHEET = "xl/worksheets/sheet1.xml"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b"a_x000D_b", "a\rb"),
        (b"_x005F_x000D_", "_x000D_"),
        (b"_xD83D__xDE00_", "😀"),
        (b"_xD83D_", "\ufffd"),
        (b"_x00zz_", "_x00zz_"),
    ],
)
def test_characters_that_xml_can_not_have(tmp_path, written, text):
    edited(tmp_path / "a.xlsx", SHEET, lambda data: data.replace(b"<t>x</t>", b"<t>" + written + b"</t>"))
    assert sheet_of(tmp_path / "a.xlsx")[2].cells == ["1", text]


def cell(text):
    return lambda data: re.sub(rb'<c r="B2".*?</c>', text, data)


BROKEN = {
    "a text that isn't there": (cell(b'<c r="B2" t="s"><v>9</v></c>'), "the file can't be read as Excel"),
    "a text that is no number": (cell(b'<c r="B2" t="s"><v>x</v></c>'), "the file can't be read as Excel"),
    "a style that isn't there": (cell(b'<c r="B2" s="99"><v>1</v></c>'), None),
    "a far row": (
        lambda data: data.replace(b"</sheetData>", b'<row r="99999999999"><c><v>1</v></c></row></sheetData>'),
        "a row has a number beyond 1048576",
    ),
    "the row behind the last": (
        lambda data: data.replace(b"</sheetData>", b'<row r="1048577"><c><v>1</v></c></row></sheetData>'),
        "a row has a number beyond 1048576",
    ),
    "a row of no number": (lambda data: data.replace(b'<row r="2"', b'<row r="x"'), "the file can't be read as Excel"),
    "no XML": (lambda data: data[:-20], "the file can't be read as Excel"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_workbook_with_a_fault_is_refused_by_its_reason(tmp_path, name):
    change, problem = BROKEN[name]
    edited(tmp_path / "a.xlsx", SHEET, change)
    if problem is None:
        assert sheet_of(tmp_path / "a.xlsx")[2].cells == ["1", "1"]
        return
    with pytest.raises(InputError, match=problem) as caught:
        read(tmp_path, "a.xlsx")
    assert "a.xlsx" in caught.value.place


@pytest.mark.parametrize("path", ["in/", "in/*.xlsx"])
def test_the_file_beside_an_open_workbook_is_no_workbook(tmp_path, path):
    place = Place(tmp_path, format="append", time="i", columns={"i": "int64"})
    place.given["path"] = path
    place.say()
    with_openpyxl(tmp_path / "in/orders.xlsx", [[("i", None, "")], [(1, None, "")]])
    (tmp_path / "in/~$orders.xlsx").write_bytes(b"\x05Maria" + b" " * 49)
    summary = place.run()
    assert (summary.inputs["a"].files, summary.inputs["a"].passed) == (1, {})


@pytest.mark.parametrize(
    "part", ["xl/workbook.xml", SHEET, "xl/styles.xml", "[Content_Types].xml", "xl/_rels/workbook.xml.rels"]
)
@pytest.mark.parametrize("kind", ["a file", "a text", "ever more texts", "a document"])
def test_a_workbook_chooses_no_other_file(tmp_path, part, kind):
    """Entities and documents of XML could be any file that you can read, or grow without an end."""
    secret = tmp_path / "secret.txt"
    secret.write_text("TOPSECRET")
    grown = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 50 if n else "TOPSECRET"}">' for n in range(12))
    subset = {
        "a file": f'[<!ENTITY e11 SYSTEM "{secret.as_uri()}">]',
        "a text": '[<!ENTITY e11 "TOPSECRET">]',
        "ever more texts": f"[{grown}]",
        "a document": f'SYSTEM "{secret.as_uri()}" [<!ENTITY % p SYSTEM "{secret.as_uri()}"> %p;]',
    }[kind]

    def change(data):
        start = data.index(b"?>") + 2 if data.startswith(b"<?xml") else 0
        data = data[:start] + f"<!DOCTYPE a {subset}>".encode() + data[start:]
        return data.replace(b"<t>x</t>", b"<t>&e11;</t>" if kind != "a document" else b"<t>x</t>")

    edited(tmp_path / "a.xlsx", part, change)
    try:
        cells = [cell for row in sheet_of(tmp_path / "a.xlsx")[1:] for cell in row.cells]
    except InputError as error:
        assert "TOPSECRET" not in error.problem  # noqa: PT017 - it may be read, too
    else:
        assert kind == "a text" or "TOPSECRET" not in cells
        assert all(len(cell or "") < 100 for cell in cells)


@pytest.mark.parametrize(
    "target", ["file:///{folder}/secret.xml", "../../../{folder}/secret.xml", "/{folder}/secret.xml"]
)
@pytest.mark.parametrize("mode", ["", ' TargetMode="External"'])
def test_a_sheet_in_another_file_is_not_read(tmp_path, target, mode):
    edited(tmp_path / "b.xlsx", SHEET, lambda data: data.replace(b"<t>x</t>", b"<t>TOPSECRET</t>"))
    with zipfile.ZipFile(tmp_path / "b.xlsx") as other:
        (tmp_path / "secret.xml").write_bytes(other.read(SHEET))
    place = target.format(folder=str(tmp_path).lstrip("/")).encode()
    edited(
        tmp_path / "a.xlsx",
        "xl/_rels/workbook.xml.rels",
        lambda data: re.sub(
            rb'Target="/?(xl/)?worksheets/sheet1.xml"', b'Target="' + place + b'"' + mode.encode(), data
        ),
    )
    with pytest.raises(InputError):
        sheet_of(tmp_path / "a.xlsx")
