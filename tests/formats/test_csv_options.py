"""CSV as its options state it: random text is read as Python's `csv`, `Decimal` and `strptime` read it, or refused as they refuse it."""

# ruff: noqa: DTZ001 - datetimes without zone are a type of their own
from __future__ import annotations

import bz2
import csv
import gzip
import json
import pickle
import random
import re
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from itertools import product

import polars as pl
import pytest

from ddcli.cli.arguments import parse_csv
from ddcli.commands.convert import convert_files
from ddcli.compare.columns import Settings
from ddcli.compare.diff import compare_named
from ddcli.compare.sides import SideReader
from ddcli.errors import InputError, SpecErrors, StateError, UsageError
from ddcli.expressions.csv_dialect import Dialect
from ddcli.expressions.types import parse_type
from ddcli.job.inputs import format_of
from ddcli.plan.pipeline_file import parse_spec
from ddcli.sources.change_log import ChangeLog
from ddcli.store.log.reader import LogReader
from ddcli.store.tables import text_syntax
from ddcli.store.tables.compression import is_padded
from ddcli.store.tables.files import Tables
from ddcli.store.tables.footers import Footers
from ddcli.store.tables.inventory import list_input
from tests.draws import many
from tests.formats.support import Place
from tests.formats.test_other_files import zstd

CASES = many(150)
TYPES = {
    "id": "int64",
    "name": "string?",
    "amount": "decimal(12, 2)?",
    "share": "float64?",
    "day": "date?",
    "at": "datetime[us]?",
}
DATES = ["%d.%m.%Y", "%m/%d/%y", "%Y%m%d", "%d %b %Y", "%d-%B-%Y"]
TIMES = ["%d.%m.%Y %H:%M", "%Y-%m-%dT%H:%M:%S.%f", "%m/%d/%y %I:%M %p", "%Y%m%d%H%M%S"]


PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}


def some_options(chance):
    """Return options of CSV, as a pipeline file has them."""
    options = {}
    delimiter = chance.choice([None, ";", "|", "\t", ",", ":"])
    quote = chance.choice(["", "'", '"', None])
    if delimiter:
        options["delimiter"] = delimiter
    if quote != "":
        options["quote"] = quote
    if chance.random() < 0.5:
        options["encoding"] = chance.choice(
            ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "windows-1252", "shift_jis", "cp932", "euc-kr"]
        )
    if chance.random() < 0.4:
        options["null"] = chance.sample(["NA", "-", "\\N", "0", ""], chance.randrange(1, 3))
    if chance.random() < 0.5:
        options["decimal"] = ","
    if chance.random() < 0.3:
        options["thousands"] = chance.choice(["'", " ", "\u00a0", "." if "decimal" in options else ",", "."])
    if chance.random() < 0.5:
        options["date_format"] = chance.choice(DATES)
    if chance.random() < 0.5:
        options["timestamp_format"] = chance.choice(TIMES)
    if chance.random() < 0.3:
        options["header"] = False
    if chance.random() < 0.3:
        options["comment"] = chance.choice(["#", "//", "é"])
    if chance.random() < 0.3:
        options["skip"] = chance.randrange(4)
    return options


def written(chance, options):
    """Return the text of a file that keeps to the options, mostly."""
    delimiter, quote = options.get("delimiter", ","), options.get("quote", '"')
    end = chance.choice(["\n", "\r\n"])

    def field(value):
        if value is None:
            return chance.choice(["", *options.get("null", [])])
        needs = any(each in value for each in (delimiter, quote or "", "\n")) if quote else False
        if quote and (needs or chance.random() < 0.2):
            return quote + value.replace(quote, quote * 2) + quote
        return value

    def moment(form, plain):
        when = datetime(
            chance.choice([1970, 1999, 2024]),
            chance.randrange(1, 13),
            chance.randrange(1, 29),
            chance.randrange(24),
            chance.randrange(60),
            chance.randrange(60),
        )
        return when.strftime(
            form
            if chance.random() < 0.93
            else chance.choice([*DATES, *TIMES, "%Y-%m-%d", "31.02.%Y"])
            if chance.random() < 0.5
            else plain
        )

    def grouped(number, mark):
        return f"{number:,}".replace(",", mark)

    def number():
        whole, sign = chance.randrange(10 ** chance.randrange(1, 8)), sign_of(options)
        if chance.random() < 0.1:
            wrong = chance.choice([",5", ".25", "1.000,5", ".125", ",004"])
            return f"{grouped(whole, chance.choice([',', '.', ' ', chr(39) * 2]))}{wrong}"
        text = grouped(whole, options.get("thousands", "")) if chance.random() < 0.4 else str(whole)
        fraction = chance.choice(["", "5", "25", "50", "500", *(["125", "004"] if chance.random() < 0.1 else [])])
        return f"{chance.choice(['', '-'])}{text}{sign if fraction else ''}{fraction}"

    words = [
        "\ufeffx",
        "ann",
        "say 'hi'",
        'a "b"',
        "x;y",
        "x,y",
        "#1",
        "é",
        "NA",
        "-",
        "a\nb",
        "//",
        "ü",
        "東",
        "A\uff5eB",
        "㈱①髙",
        "똠방",
    ]
    lines = [chance.choice(["junk", "", 'an "open', "# x"]) + end for _ in range(options.get("skip", 0))]
    if options.get("header", True):
        names = list(TYPES)
        lines.append(delimiter.join(field(name) for name in names) + end)
    for at in range(chance.randrange(6)):
        if chance.random() < 0.2:
            lines.append(
                chance.choice([end, options.get("comment", "") + "a remark" + delimiter + end, delimiter * 5 + end])
            )
        row = [
            str(at) if chance.random() < 0.9 else grouped(at * 1000, options.get("thousands", "")),
            chance.choice([None, *words]),
            chance.choice([None, number()]),
            chance.choice([None, number()]),
            chance.choice([None, moment(options.get("date_format", "%Y-%m-%d"), "%Y-%m-%d")]),
            chance.choice([None, moment(options.get("timestamp_format", "%Y-%m-%d %H:%M:%S"), "%Y-%m-%d %H:%M:%S")]),
        ]
        if chance.random() < 0.03:
            row = row[: chance.randrange(1, 6)]
        lines.append(delimiter.join(map(field, row)) + end)
    text = "".join(lines)
    if chance.random() < 0.1 and text:
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(['"', "'", delimiter, "\n", "é", "#"]) + text[at:]
    return text


def sign_of(options):
    """Return the decimal sign."""
    return options.get("decimal", "," if options.get("thousands") == "." else ".")


class Refused(Exception):
    """What Python's own readers do not read."""


def wanted(text, options, rounding):
    """Return the rows that Python's readers read of a text. Raises Refused."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)[options.get("skip", 0) :]
    quote = options.get("quote", '"')
    dialect = {"quoting": csv.QUOTE_NONE} if quote is None else {"quotechar": quote}
    rows = []
    pending = iter(lines)
    kept: list[str] = []

    def fed():
        for line in pending:
            if not kept and "comment" in options and line.startswith(options["comment"]):
                continue
            kept.append(line)
            yield line

    try:
        for record in csv.reader(fed(), delimiter=options.get("delimiter", ","), strict=True, **dialect):
            raw = "".join(kept)
            kept.clear()
            if record:
                rows.append((record, raw))
    except csv.Error as error:
        raise Refused(str(error)) from None
    names = list(TYPES)
    if options.get("header", True):
        if not rows:
            raise Refused("no header")
        names, _ = rows.pop(0)
        if sorted(names) != sorted(TYPES):
            raise Refused("names")
    if any(len(record) != len(names) for record, _ in rows):
        raise Refused("fields")
    found = []
    for record, raw in rows:
        if not any(record) and (quote or "\0") not in raw:
            continue
        values = dict(zip(names, record, strict=True))
        found.append(tuple(value_of(name, kind, values[name], options, rounding) for name, kind in TYPES.items()))
    return found


def value_of(name, kind, text, options, rounding):
    """Return a value, empty text as None."""
    if text in options.get("null", []) or not text:
        if name == "id":
            raise Refused("null")
        return None
    try:
        mark, sign = options.get("thousands"), sign_of(options)
        if name in ("id", "amount", "share") and mark and mark in text.strip(" "):
            text = text.strip(" ")
            if not re.fullmatch(rf"[+-]?\d{{1,3}}({re.escape(mark)}\d{{3}})+({re.escape(sign)}\d*)?", text, re.ASCII):
                refuse()
            text = text.replace(mark, "")
        if kind == "int64":
            return int(text) if re.fullmatch(r"\s*[+-]?\d+\s*", text, re.ASCII) else refuse()
        if name in ("amount", "share"):
            if sign == ",":
                text = "x" if "." in text else text.replace(",", ".", 1)
            if not re.fullmatch(r"\s*[+-]?\d+(\.\d*)?\s*", text, re.ASCII):
                refuse()
            if name == "share":
                return float(text)
            rounded = Decimal(text).quantize(Decimal("0.01"), ROUND_HALF_UP)
            return rounded if rounded == Decimal(text) or rounding else refuse()
        if name in ("day", "at"):
            form = options.get("date_format" if name == "day" else "timestamp_format")
            if form is None:
                found = (
                    datetime.fromisoformat(text.replace(" ", "T"))
                    if re.fullmatch(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?", text)
                    else refuse()
                )
            else:
                if re.search(r"\s$|^\s", text):
                    refuse()
                found = datetime.strptime(text, form)  # noqa: DTZ007 - text without a zone
            if name == "day" and form is None and len(text) > 10:
                refuse()
            return found.date() if name == "day" else found
    except (ValueError, InvalidOperation):
        refuse()
    return text


def refuse():
    raise Refused


def reader_of(folder, options, rounding=False, **more):
    text = json.dumps(
        {
            "dd": 1,
            "name": "p",
            "inputs": {
                "a": {"path": "in", "format": "append", "time": "id", "columns": TYPES}
                | ({"csv": options} if options else {})
                | ({"rounding": "half_up"} if rounding else {})
            },
            "outputs": {"a": "out"},
        }
    )
    spec = parse_spec(text, "p.yaml")
    return LogReader(list_input("in", folder), format_of(spec.inputs["a"]), **more)


def rows_of(reader, most):
    names = [name for name in TYPES if name != "id"]
    reader.largest_time()
    parts = []
    for part in reader.take(names, None, (), most).slices:
        rows = pickle.loads(pickle.dumps(part)).read()  # noqa: S301 - as a task of another process gets it
        parts.append(rows.frame.select(names).with_columns(rows.times.to_series().alias("id")).select(list(TYPES)))
    frame = pl.concat(parts) if parts else pl.DataFrame(schema=list(TYPES))
    return [tuple(None if value == "" else value for value in row) for row in frame.rows()]


@pytest.mark.parametrize("compiled", [False, True], ids=["judged", "sieved"])
def test_random_text_is_read_as_python_reads_it_or_refused(tmp_path, monkeypatch, compiled):
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    seen = {"refused": 0, "read": 0, "rows": 0}
    (tmp_path / "in").mkdir()
    for seed in range(CASES):
        chance = random.Random(f"csv {seed}")
        options = some_options(chance)
        if options.get("quote", '"') == options.get("delimiter", ",") or str(options.get("comment")).startswith(
            options.get("delimiter", ",")
        ):
            continue
        rounding = chance.random() < 0.3
        text = written(chance, options)
        encoding = {"shift_jis": "cp932", "euc-kr": "cp949"}.get(
            options.get("encoding"), options.get("encoding", "utf-8")
        )
        try:
            data = text.encode(encoding)
        except UnicodeEncodeError:
            text = text.encode("ascii", "ignore").decode()
            data = text.encode(encoding)
        ending = chance.choice(list(PACKERS))
        path = tmp_path / "in" / f"a.csv{ending}"
        path.write_bytes(PACKERS[ending](data) + (b"\0" * chance.choice([0, 1, 7, 600]) if ending == ".gz" else b""))
        try:
            want = wanted(text, options, rounding) if path.stat().st_size else refuse()
        except Refused as error:
            want = error
        try:
            reader = reader_of(tmp_path, options, rounding)
            found = rows_of(reader, chance.choice([None, 2]))
        except InputError as error:
            found = error
        about = (seed, options, text, found, want)
        if isinstance(want, Refused):
            assert isinstance(found, InputError), about
            assert str(path) in str(found.place), about
            seen["refused"] += 1
        else:
            assert found == want, about
            assert reader._tables.known_rows(path) == len(want), about  # counted as damage was looked for
            assert list(Footers(reader.log.declared(), {}, dialect=reader.log.dialect).footer(path)) == list(TYPES), (
                about
            )
            seen["read"] += 1
            seen["rows"] += len(want)
        path.unlink()
    assert seen["read"] > CASES // 4, seen
    assert seen["refused"] > CASES // 20, seen


def test_a_byte_order_mark_within_a_file_is_a_character_for_each_reader(tmp_path):
    """As of files joined by `cat`."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("\ufeffv,n\n\ufeffx,1\n\ufeff,2\n")
    found = []
    for dialect in (Dialect(), Dialect(comment="#"), Dialect(skip=1, header=False, names=("v", "n"))):
        tables = Tables({"v": parse_type("string"), "n": parse_type("int64")}, dialect=dialect)
        found.append(tables.collect([tmp_path / "in/a.csv"], ["v", "n"]).rows())
    assert found == [[("\ufeffx", 1), ("\ufeff", 2)]] * 3


def test_zeros_behind_a_packed_file_are_no_part_of_it(tmp_path):
    for name, text, zeros in product(("a.csv.gz", "a.ndjson.gz"), (b"a,b\n1,2\n", b""), (0, 1, 4, 9, 600)):
        rows = b'{"a": 1, "b": 2}\n' if text and "json" in name else text
        path = tmp_path / name
        path.write_bytes(gzip.compress(rows) * 2 + b"\0" * zeros)
        assert is_padded(path) == (zeros > 0)
        if text and "json" in name:
            tables = Tables({"a": parse_type("int64")})
            assert tables.collect([path], ["a"]).rows() == [(1,), (1,)]
        path.unlink()


def test_columns_without_a_name_have_names_that_no_file_has(tmp_path):
    (tmp_path / "a.csv").write_text("a,,b,\n1,2,3,4\n,,,5\n")
    for dialect in (Dialect(), Dialect(comment="#")):
        tables = Tables({"a": parse_type("int64"), "b": parse_type("int64")}, dialect=dialect)
        names = ["a", "", "b", "\0unnamed column 4"]
        assert list(tables.footer(tmp_path / "a.csv")) == names
        assert tables.collect([tmp_path / "a.csv"], names).rows() == [(1, "2", 3, "4"), (None, None, None, "5")]


NAMED = {"path": "in/", "format": "append", "time": "id", "columns": {"id": "int64", "name": "string"}}
ROW = "id;name\n1;Jürg\n"
WRONG = {
    "UTF-16 with a mark": ({}, ROW.encode("utf-16"), "the file is UTF-16, not UTF-8", "`csv: {encoding: utf-16}`"),
    "UTF-16 without one": ({}, ROW.encode("utf-16-be"), "the file is UTF-16-BE, not UTF-8", "{encoding: utf-16-be}"),
    "UTF-32": ({}, ROW.encode("utf-32"), "the file is UTF-32", "save the file as UTF-8"),
    "Latin-1": ({}, ROW.encode("latin-1"), "the line is not UTF-8", "encoding: windows-1252"),
    "UTF-8 for UTF-16": (
        {"encoding": "utf-16"},
        ROW.encode(),
        "the file is not UTF-16: no byte of it is zero",
        "leave out",
    ),
    "no mark": ({"encoding": "utf-16"}, ROW.encode("utf-16-le"), "doesn't begin with a byte order mark", "utf-16-le"),
    "the other order": (
        {"encoding": "utf-16-le"},
        ROW.encode("utf-16-be"),
        "the file is UTF-16-BE, not UTF-16-LE",
        "-be",
    ),
    "the other mark": ({"encoding": "utf-16-be"}, ROW.encode("utf-16"), "the file is UTF-16-LE, not UTF-16-BE", "-le"),
    "UTF-8 with a mark": (
        {"encoding": "latin-1"},
        ROW.encode("utf-8-sig"),
        "the file is UTF-8, not LATIN-1",
        "leave out",
    ),
    "UTF-8 for Latin-1": ({"encoding": "latin-1"}, ROW.encode(), "the file is UTF-8, not latin-1", "leave out"),
    "half of it": ({"encoding": "shift_jis"}, ROW.encode("latin-1"), "the line is not CP932", "another `encoding`"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_encoding_is_reported_as_such(tmp_path, case):
    options, data, problem, hint = WRONG[case]
    place = Place(tmp_path, **NAMED | {"csv": {"delimiter": ";"} | options})
    (tmp_path / "in/a.csv").write_bytes(data)
    with pytest.raises(InputError) as caught:
        place.run()
    assert problem in caught.value.problem
    assert hint in caught.value.hint
    assert "a.csv" in caught.value.place


def test_every_path_reads_the_options(tmp_path, monkeypatch):
    """Runs, in slices and whole, `read_log` of a log, `dd convert` and `dd diff`."""
    monkeypatch.chdir(tmp_path)
    options = {"delimiter": ";", "encoding": "windows-1252", "decimal": ",", "date_format": "%d.%m.%Y", "null": "-"}
    columns = {"id": "int64", "who": "string", "price": "decimal(9, 2)?", "day": "date"}
    text = 'id;"who ""x""";price;day\n1;Jürg;1234,50;31.12.2023\n2;Zoë;-;1.1.2024\n'.replace('"who ""x"""', "who")
    place = Place(tmp_path, format="append", time="id", columns=columns, csv=options)
    (tmp_path / "in/a.csv").write_text(text, encoding="cp1252")
    wanted = [(1, "Jürg", Decimal("1234.50"), date(2023, 12, 31)), (2, "Zoë", None, date(2024, 1, 1))]
    place.given["format"], place.given["time"] = "append", "day"
    place.say()
    place.run(memory=1000)
    found = pl.concat(map(pl.read_parquet, (tmp_path / "out").glob("*.parquet")))
    assert sorted(found.select("id", "who", "price", "time").rows()) == wanted
    csv_options = parse_csv(json.dumps(options))
    convert_files(
        {"path": "in", "format": "append", "time": "day", "columns": columns}, tmp_path / "made", csv=csv_options
    )
    (made,) = (tmp_path / "made").glob("*.parquet")
    assert sorted(pl.read_parquet(made).select("id", "who", "price", "time").rows()) == wanted
    pl.DataFrame(wanted, schema=["id", "who", "price", "day"], orient="row").write_parquet(tmp_path / "b.parquet")
    read = SideReader(dialect=csv_options)
    assert compare_named(("in/a.csv", read), ("b.parquet", read), Settings(("id",))).same
    with pytest.raises(UsageError, match="neither side is CSV"):
        compare_named(("b.parquet", read), ("b.parquet", read), Settings(("id",)))
    (tmp_path / "log.csv").write_text("n|time|diff\n1,5|3|1\n".replace("|", ";"))
    types = {"n": parse_type("float64"), "time": parse_type("int64")}
    log = ChangeLog.open("log.csv", tmp_path, columns=types, dialect=Dialect(delimiter=";", decimal=","))
    assert log.as_of("latest").collect().rows() == [(1.5, 1)]


def test_another_option_is_another_meaning(tmp_path):
    """The state was made of texts read otherwise, so what they are now is a difference that someone must ask for."""
    place = Place(tmp_path, format="append", time="id", columns={"id": "int64", "n": "string?"})
    (tmp_path / "in/a.csv").write_text("id,n\n1,NA\n")
    place.run()
    place.say(csv={"null": "NA"})
    with pytest.raises(StateError, match="the pipeline has changed"):
        place.run()
    place.run(apply=True)
    assert place.at(9, "n") == {(None,): 1}
    place.say(csv={"null": ["NA"], "delimiter": ","})
    with pytest.raises(StateError, match="the pipeline has changed"):
        place.run()


def test_files_without_a_header_have_the_declared_columns_that_paths_do_not_have(tmp_path):
    place = Place(
        tmp_path,
        format="append",
        time="day",
        columns={"id": "int64", "day": "date", "n": "string?"},
        file_name="a-{day}.{rest}",
        csv={"header": False},
    )
    (tmp_path / "in/a-2024-01-02.tsv").write_text("1\tx\n2\t\n")
    place.run()
    found = pl.concat(map(pl.read_parquet, (tmp_path / "out").glob("*.parquet")))
    assert sorted(found.rows()) == [(1, "x", date(2024, 1, 2), 1), (2, None, date(2024, 1, 2), 1)]


@pytest.mark.parametrize("ending", ["", ".bz2"])
def test_names_with_quotes_and_delimiters_are_read(tmp_path, ending):
    columns = {'a "b"': "int64", "c,d": "int64", 'e"f': "int64"}
    place = Place(tmp_path, format="append", time='a "b"', columns=columns)
    text = b'"a ""b""","c,d",e"f\n1,2,3\n'
    (tmp_path / f"in/a.csv{ending}").write_bytes(PACKERS[ending](text))
    place.run()
    assert place.at(9, "c,d", 'e"f') == {(2, 3): 1}


def test_a_header_whose_quote_is_never_closed_has_its_line(tmp_path):
    place = Place(tmp_path, **NAMED)
    path = tmp_path / "in/a.csv"
    path.write_text('id,"name\n1,x\n')
    for read in (place.run, lambda: Footers({"id": parse_type("int64")}, {}).footer(path)):
        with pytest.raises(InputError, match="a quote is opened and never closed") as caught:
            read()
        assert caught.value.place.endswith("a.csv:1")


def test_options_that_nothing_uses_are_refused(tmp_path):
    place = Place(tmp_path, format="append", time="id", columns={"id": "int64"}, csv={"delimiter": ";"})
    place.write("a", pl.DataFrame({"id": [1]}))
    with pytest.raises(InputError, match="no file of the input is CSV"):
        place.run()


BROKEN = {
    "{delimiter: ;;}": "';;' can't be a delimiter",
    "{delimiter: a}": "'a' can't be a delimiter",
    '{delimiter: "\'", quote: "\'"}': "begins as the delimiter does",
    "{quote: ','}": "begins as the default delimiter does",
    "{encoding: utf8}": "unknown encoding 'utf8'",
    "{decimal: ';'}": "unknown decimal sign ';'",
    "{date_format: '%d.%m'}": "must have one year: %Y or %y",
    "{date_format: '%d.%m.%Y %H'}": "is a format of timestamps",
    "{timestamp_format: '%d.%m.%Y %I'}": "must have %I and %p together",
    "{date_format: '%q'}": "unknown directive '%q'",
    "{comment: ';x', delimiter: ';'}": "begins as the delimiter does",
    "{skip: -1}": "a whole number from 0",
    "{}": "found an empty one",
    "{seperator: ';'}": "unknown key 'seperator'",
}


@pytest.mark.parametrize("options", BROKEN)
def test_broken_options_are_refused_at_their_place(options):
    text = f"dd: 1\nname: p\ninputs:\n  a:\n    path: in/\n    columns: {{a: int64}}\n    csv: {options}\noutputs: {{a: out/}}\n"
    with pytest.raises(SpecErrors) as caught:
        parse_spec(text, "p.yaml")
    error = caught.value.errors[0]
    assert BROKEN[options] in error.problem
    assert error.span.line in (5, 7)
