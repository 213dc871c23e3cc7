"""Numbers of NDJSON are read by their digits, or refused: judged by Python's `json` with `parse_float=Decimal`.

polars takes what has a point or an exponent for a float, whatever its column is: 0.12345678901234567 in a decimal would lose its
last digit without a word.
"""

from __future__ import annotations

import json
import math
from decimal import ROUND_HALF_UP, Decimal, localcontext

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ddcli.commands.convert import convert_files
from ddcli.compare.diff import diff
from ddcli.errors import InputError
from ddcli.expressions.types import parse_type
from ddcli.sources.change_log import ChangeLog
from ddcli.store.formats.base import Append
from ddcli.store.formats.debezium import Debezium
from ddcli.store.log.reader import LogReader
from ddcli.store.tables import text_syntax
from ddcli.store.tables.inventory import list_input
from ddcli.store.tables.json_values import ExactColumns, plain_digits
from tests.draws import many
from tests.formats.support import Place

TYPES = {
    "d": "decimal(38, 20)?",
    "n": "decimal(18, 3)?",
    "i": "int64?",
    "u": "uint64?",
    "f": "float64?",
    "s": "string?",
}
COLUMNS = {name: parse_type(text) for name, text in TYPES.items()}
LONG = "1234567.12345678901234567"
MODES = pytest.mark.parametrize("compiled", [False, True], ids=["judged", "sieved"])


def digits(least, most):
    return st.text("0123456789", min_size=least, max_size=most)


@st.composite
def numbers(draw):
    """Give a number as JSON writes it: short or long, with a point, an exponent, both or none."""
    whole = draw(
        st.sampled_from(["0", "9007199254740993", "9223372036854775807", "18446744073709551615"])
        | digits(1, 22)
        | digits(36, 60)
    )
    text = draw(st.sampled_from(["", "-"])) + (whole.lstrip("0") or "0")
    if draw(st.booleans()):
        text += "." + draw(st.sampled_from(["0", "5", "000000000000000000000"]) | digits(1, 24))
    if draw(st.integers(0, 3)) == 0:
        text += draw(st.sampled_from("eE")) + draw(st.sampled_from(["", "+", "-"])) + draw(digits(1, 3))
    return text


def wanted(name, number):
    """Return what a column holds of a number; raises ValueError where it must refuse it."""
    value = number if isinstance(number, Decimal) else Decimal(number)
    if name == "f":
        return float(value)
    if name == "s":
        return value
    kind = COLUMNS[name]
    with localcontext() as context:
        context.prec = 1000
        if kind.is_integer:
            least, most = (-(2**63), 2**63 - 1) if name == "i" else (0, 2**64 - 1)
            if value != value.to_integral_value() or not least <= value <= most:
                raise ValueError(number)
            return int(value)
        found = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
        if found != value or abs(found) >= Decimal(10) ** (kind.precision - kind.scale):
            raise ValueError(number)
        return found


def read(path, most=None, form=None):
    """Return the rows that a run takes of a file, of several slices if it is to."""
    reader = LogReader(
        list_input(path.name, path.parent), form or Append(("time",), {**COLUMNS, "time": parse_type("int64")})
    )
    frames = [part.read().frame for part in reader.take(list(TYPES), None, (), most).slices]
    return pl.concat(frames).select(list(TYPES)).rows(named=True)


def attempt(path, most):
    """Return the rows that a run takes of a file, or why it refuses it."""
    try:
        return read(path, most)
    except InputError as error:
        return error.problem


UNDECLARED = "z"
rows = st.lists(st.dictionaries(st.sampled_from([*TYPES, UNDECLARED]), numbers(), max_size=3), min_size=1, max_size=4)


@pytest.mark.in_turn
@MODES
@settings(max_examples=many(180))
@given(found=rows, most=st.sampled_from([None, 2]))
@example(found=[{"d": LONG}, {"d": "0.12345678901234567890"}], most=None)
@example(found=[{"i": "9007199254740993.0"}, {"u": "18446744073709551615.00", "i": "1e3"}, {"i": "1.0"}], most=2)
@example(found=[{"i": "1e-400"}], most=None)
@example(found=[{"d": "-94610940.358831e-353"}, {"d": "0.001"}], most=None)
@example(found=[{"d": "0e-999", "i": "-0.0e-5000", "n": "0.0015"}], most=None)
@example(found=[{"i": "9007199254740993.5"}], most=None)
@example(found=[{"d": "1e-5000", "s": "1e-5000"}], most=None)
@example(found=[{"s": "9" * 39, "f": "-" + "9" * 80, UNDECLARED: "9" * 300}], most=None)
@example(found=[{UNDECLARED: "9" * 5000}], most=None)
@example(found=[{"s": "123456789012345678e-3", "f": "0.30000000000000004"}], most=None)
def test_numbers_are_read_by_their_digits_or_refused(tmp_path_factory, compiled, found, most):
    path = tmp_path_factory.mktemp("n") / "a.ndjson"
    lines = [
        "{" + ", ".join([f'"{name}": {text}' for name, text in row.items()] + ['"time": 1']) + "}" for row in found
    ]
    path.write_text("\n".join(lines) + "\n")
    want = []
    for line in lines:
        row = json.loads(line, parse_float=Decimal, parse_int=Decimal)
        if any(math.isinf(float(value)) for value in row.values()):
            want = None
            break
        try:
            want.append({name: wanted(name, row[name]) if name in row else None for name in TYPES})
        except ValueError:
            want = None
            break
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
        got = attempt(path, most)
    if isinstance(got, str):
        assert "not whole" not in got
        assert want is None or "'-0' in column 'u'" in got, got  # a negative zero, where no number is negative
        return
    got = [{**row, "s": row["s"] if row["s"] is None else Decimal(row["s"])} for row in got]
    assert got == want


@MODES
def test_what_is_not_watched_stays_as_it_is(tmp_path, monkeypatch, compiled):
    """Long numbers elsewhere in the line, in an object beside, in text, before blank lines and over blocks."""
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    monkeypatch.setattr(text_syntax, "BLOCK", 64)
    path = tmp_path / "a.ndjson"
    beside = f'"other": {{"d": {LONG}, "x": [{{"n": {LONG}}}]}}, "note": "\\"d\\": {LONG},"'
    lines = [
        f'{{{beside}, "d" :  {LONG} , "n": 1.5, "time": 1}}',
        "",
        f'{{"d": {LONG}, "f": {LONG}, "time": 1 }}',
        " \t",
    ]
    path.write_text("\r\n".join(lines * 3))
    got = read(path)
    assert [row["d"] for row in got] == [Decimal(LONG).quantize(Decimal("1e-20"))] * 6
    assert [row["n"] for row in got] == [Decimal("1.500"), None] * 3
    assert [row["f"] for row in got] == [None, float(LONG)] * 3
    path.write_text("\r\n".join([*lines, '{"n": "x", "time": 1}']))
    with pytest.raises(InputError) as caught:
        read(path)
    assert caught.value.place == f"{path}:5"


@MODES
def test_keys_may_have_escapes(tmp_path, monkeypatch, compiled):
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    path = tmp_path / "a.ndjson"
    path.write_text(f'{{"\\u0064": {LONG}, "time": 1}}\n')
    assert [row["d"] for row in read(path)] == [Decimal(LONG).quantize(Decimal("1e-20"))]


@MODES
def test_json_in_a_column_of_text_keeps_its_digits(tmp_path, monkeypatch, compiled):
    """And where it is no JSON, quotes don't make it any."""
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    path = tmp_path / "a.ndjson"
    path.write_text(f'{{"s": [{{"a": {LONG}}}, "\\u00e9"], "time": 1}}\n')
    (row,) = read(path)
    assert json.loads(row["s"], parse_float=Decimal) == [{"a": Decimal(LONG)}, "é"]
    for bad in (f"[{LONG}, 01]", f"{LONG}.5", f"0{LONG}", f"[{LONG}", f"{LONG}x"):
        path.write_text(f'{{"s": {bad}, "time": 1}}\n')
        with pytest.raises(InputError):
            read(path)


@MODES
def test_every_way_in(tmp_path, monkeypatch, compiled):
    """Runs in memory and in slices, `read_log`, `dd diff`, `dd convert`, and the objects within Debezium's events."""
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    monkeypatch.chdir(tmp_path)
    columns = {"id": "int64", "d": TYPES["d"], "time": "int64"}
    place = Place(tmp_path, format="upsert", key="id", columns=columns)
    other = LONG[:-1] + "8"
    (tmp_path / "in/a.ndjson").write_text(f'{{"id": 9007199254740993.0, "d": {LONG}, "time": 0, "diff": 1}}\n')
    (tmp_path / "b.ndjson").write_text(f'{{"id": 9007199254740993.0, "d": {other}, "time": 0}}\n')
    want = [(9007199254740993, Decimal(LONG).quantize(Decimal("1e-20")))]
    place.run()
    assert list(place.at(0, "id", "d")) == want
    types = {name: parse_type(kind) for name, kind in columns.items()}
    (scan,) = ChangeLog.open("in", tmp_path, columns=types).reader.scans()
    assert scan.select("id", "d").collect().rows() == want
    convert_files({"path": "in", "format": "append", "time": "time", "columns": columns}, tmp_path / "made")
    assert pl.read_parquet(tmp_path / "made/*.parquet").select("id", "d").rows() == want
    found = diff(str(tmp_path / "in/a.ndjson"), str(tmp_path / "b.ndjson"), key=["id"])
    assert found.counts["changed"] == 1
    path = tmp_path / "c.ndjson"
    event = f'{{"op": "u", "ts_ms": 1, "before": {{"d": {LONG}, "i": 1e3}}, "after": {{"d": {other}, "s": {LONG}}}}}\n'
    path.write_text(event)
    before, after = read(path, form=Debezium(("ts_ms",), COLUMNS))
    assert [before["d"], after["d"]] == [Decimal(text).quantize(Decimal("1e-20")) for text in (LONG, other)]
    assert (before["i"], after["s"]) == (1000, LONG)


@given(numbers())
def test_plain_digits_are_the_same_number(number):
    assert Decimal(plain_digits(number)) == Decimal(number)


def is_json(line):
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


@given(st.binary(max_size=40) | st.text('{}[]:,"\\ d1.e', max_size=60).map(str.encode))
def test_quotes_make_no_json_of_what_is_none(noise):
    """Whatever comes before or behind a long number, and without an error."""
    watched = ExactColumns(COLUMNS, nested=True)
    for line in (noise, noise + LONG.encode(), b'{"d": ' + LONG.encode() + noise, b'{"s": [' + LONG.encode() + noise):
        assert is_json(watched.exact(line)) == is_json(line)
