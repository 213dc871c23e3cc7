"""Files of every kind hold the same table; what can't be read is found at its line. Directories may say columns, too."""

# ruff: noqa: DTZ001 - datetimes without zone are a type of their own
import errno
import json
import os
from datetime import date, datetime
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.errors import InputError
from ddcli.expressions.types import parse_type
from ddcli.store.formats.base import Append, Updates
from ddcli.store.log.reader import LogReader
from ddcli.store.tables import kinds
from ddcli.store.tables.files import Tables
from ddcli.store.tables.inventory import list_input
from tests.cases import cases

COLUMNS = {
    name: parse_type(text)
    for name, text in {
        "i": "int64?",
        "u": "uint8?",
        "f": "float64?",
        "b": "bool?",
        "s": "string?",
        "d": "date?",
        "m": "datetime[us]?",
        "p": "decimal(12, 2)?",
    }.items()
}
EVERY = 10**6


def csv_of(frame):
    def field(value):
        if value is None:
            return ""
        if isinstance(value, str):
            return '"' + value.replace('"', '""') + '"'
        return str(value)

    lines = [",".join(map(field, row)) for row in frame.rows()]
    return "\n".join([",".join(frame.columns), *lines, ""])


WRITERS = {
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "csv": lambda frame, path: path.write_text(csv_of(frame)),
    "ndjson": pl.DataFrame.write_ndjson,
}


def read(root, *, log=None, most=None, columns=None, kind=Updates):
    log = log or kind(columns=COLUMNS if columns is None else columns)
    reader = LogReader(list_input(".", root), log, most=most)
    reader.largest_time()
    taken = reader.take(reader.schema.columns, None, ((EVERY,),), most)
    reads = [part.read() for part in taken.slices]
    return [
        (*row, *time, diff)
        for r in reads
        for row, time, diff in zip(r.frame.rows(), r.times.rows(), r.diffs, strict=True)
    ]


def refused(root, **options):
    with pytest.raises(InputError) as caught:
        read(root, **options)
    return caught.value


def frame(rows):
    schema = {name: kind.to_polars() for name, kind in COLUMNS.items()} | {"time": pl.Int64, "diff": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


texts = st.none() | st.text(st.sampled_from("a\",\n'é #;"), max_size=4)
records = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(0, 255),
    st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.none() | st.booleans(),
    texts,
    st.none() | st.dates(date(1900, 1, 1)),
    st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    st.none() | st.integers(-99999, 99999).map(lambda n: Decimal(n) / 100),
    st.integers(0, 9),
    st.sampled_from([1, -1]),
)


@given(rows=st.lists(records, max_size=5), most=st.sampled_from([None, 2]))
def test_every_kind_of_file_holds_the_same_table(tmp_path_factory, rows, most):
    root = tmp_path_factory.mktemp("log")
    for kind, write in WRITERS.items():
        (root / kind).mkdir()
        write(frame(rows), root / kind / f"a.{kind}")
        assert read(root / kind, most=most) == rows, kind


def test_text_needs_its_columns_declared_and_csv_its_header(tmp_path):
    (tmp_path / "a.csv").write_text("a,time\n1,2\n")
    error = refused(tmp_path, log=Append())
    assert error.problem == "a file of text, CSV, has no column types"
    assert "columns: {a: int64, time: int64}" in error.hint
    error = refused(tmp_path, columns={"b": parse_type("int64")}, kind=Append)
    assert error.problem == "the file has no column 'b'"
    assert read(tmp_path, columns={"a": parse_type("int8")}, kind=Append) == [(1, 2, 1)]


@cases("""
name → text → place → problem
a.csv → a,b,time⏎1,x,0⏎⏎,,⏎2,"y⏎z",0⏎no,z,0⏎ → :7 → 'no' in column 'a' can't be read as int64
a.csv → a,b,time⏎1,x,0⏎1.5,y,0⏎ → :3 → '1.5' in column 'a' can't be read as int64
a.csv → a,b,time⏎1,x,0⏎2,y,0,9⏎ → :3 → the line has 4 fields, the header 3
a.csv → a,b,time⏎1,x,0⏎2,y⏎ → :3 → the line has 2 fields, the header 3
a.csv → a,b,time⏎1,x,0⏎2,y,2013-01-01⏎ → :3 → '2013-01-01' in column 'time' can't be read as int64
a.csv → a,b,time⏎1,x,0⏎2,y,⏎ → :3 → time column 'time' has a null
a.csv → a,b,time⏎1,x,0⏎,y,0⏎ → :3 → column 'a' has a null
a.ndjson → {"a":1,"time":0}⏎⏎{"a":"x","time":0}⏎ → :3 → 'x' in column 'a' can't be read as int64
a.ndjson → {"a":1,"time":0}⏎{"a":1,⏎ → :2:8 → not JSON: Expecting property name
a.ndjson → {"a":1,"time":0}⏎[1]⏎ → :2 → must be a JSON object on each line
a.ndjson → {"a":1,"time":0}⏎{"time":0}⏎ → :2 → column 'a' has a null
a.arrow → nonononononononono → → the file is not whole Arrow IPC
""")
@pytest.mark.parametrize("most", [None, 1])
def test_what_can_not_be_read_is_found_at_its_line(tmp_path, name, text, place, problem, most):
    (tmp_path / name).write_text(text)
    (tmp_path / ("0" + name[1:])).write_text(text.splitlines()[0] + "\n")
    if name.endswith("arrow"):
        (tmp_path / ("0" + name[1:])).unlink()
    error = refused(tmp_path, columns={"a": parse_type("int64"), "b": parse_type("string?")}, kind=Append, most=most)
    assert error.problem.startswith(problem)
    assert error.place == str(tmp_path / name) + place


def test_text_may_be_packed(tmp_path):
    import gzip

    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("a,time\n1,2\nx,3\n")
    error = refused(tmp_path, columns={"a": parse_type("int64")}, kind=Append)
    assert error.place.endswith("a.csv.gz:3")
    assert read(tmp_path, columns={"a": parse_type("string")}, kind=Append) == [("1", 2, 1), ("x", 3, 1)]


def test_the_declared_columns_may_say_the_type_of_the_time(tmp_path):
    (tmp_path / "a.csv").write_text("a,time\n1,1970-01-03\n")
    columns = {"a": parse_type("int64"), "time": parse_type("date")}
    assert read(tmp_path, columns=columns, kind=Append) == [(1, 2, 1)]


def test_hive_partitions_are_columns(tmp_path):
    for year, place in ((2023, "New%20York"), (2024, "__HIVE_DEFAULT_PARTITION__")):
        (tmp_path / f"year={year}" / f"place={place}").mkdir(parents=True)
        for name in "ab":
            rows = pl.DataFrame({"a": [1, 2], "time": [0, 0]})
            rows.write_parquet(tmp_path / f"year={year}" / f"place={place}" / f"{name}.parquet")
    want = [(a, year, place, 0, 1) for year, place in ((2023, "New York"), (2024, None)) for _ in "ab" for a in (1, 2)]
    assert sorted(read(tmp_path, log=Append()), key=str) == sorted(want, key=str)
    assert sorted(read(tmp_path, log=Append(), most=1), key=str) == sorted(want, key=str)
    declared = {"year": parse_type("string")}
    assert sorted(read(tmp_path, columns=declared, kind=Append)) == sorted((str(row[1]), 0, 1) for row in want)
    assert sorted(read(tmp_path, log=Append(("year",)), most=3), key=str) == sorted(
        ((a, 0, place, year, 1) for a, year, place, *_ in want), key=str
    )
    error = refused(tmp_path, columns={"place": parse_type("int64?")}, kind=Append)
    assert error.problem == "the path has place=New York, which is no int64"
    assert "has a null" in refused(tmp_path, columns={"place": parse_type("string")}, kind=Append).problem


def test_partitions_of_text(tmp_path):
    (tmp_path / "day=2024-01-02").mkdir()
    (tmp_path / "day=2024-01-02" / "a.ndjson").write_text(json.dumps({"a": 1}) + "\n")
    (tmp_path / "day=2024-01-02" / "b.csv").write_text("a\n2\n")
    columns = {"a": parse_type("int64"), "day": parse_type("date")}
    assert sorted(read(tmp_path, log=Append(("day",), columns))) == [(1, 19724, 1), (2, 19724, 1)]


def test_files_that_disagree_are_refused_whatever_their_kind(tmp_path):
    pl.DataFrame({"a": [1], "time": [0]}).write_ipc(tmp_path / "a.arrow")
    pl.DataFrame({"a": [1.5], "time": [0]}).write_ipc(tmp_path / "b.arrow")
    assert refused(tmp_path, log=Append()).problem == "column 'a' is float64, but the log's other files have int64"
    pl.DataFrame({"a": [1], "b": [1], "time": [0]}).write_ipc(tmp_path / "b.arrow")
    assert "has a column 'b' that the log's other files don't have" in refused(tmp_path, log=Append()).problem


@pytest.mark.parametrize("kind", ["list[binary]", "struct[b: duration[us]]", "duration[us]?", "binary?"])
def test_types_that_text_does_not_hold_are_refused(tmp_path, kind):
    (tmp_path / "a.ndjson").write_text('{"a": [1], "time": 0}\n')
    error = refused(tmp_path, columns={"a": parse_type(kind)}, kind=Append)
    assert error.problem == f"column 'a' is {kind.removesuffix('?')}, which can't be read from NDJSON"


def test_a_byte_order_mark_and_lines_of_windows_are_no_matter(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfa,time\r\n1,0\r\n"2",1\r\n')
    assert read(tmp_path, columns={"a": parse_type("int64")}, kind=Append) == [(1, 0, 1), (2, 1, 1)]


@pytest.mark.parametrize(("number", "hint"), [(errno.EACCES, "see its permissions"), (errno.EMFILE, "ulimit -n")])
def test_a_file_that_the_system_refuses_has_a_hint(tmp_path, monkeypatch, number, hint):
    def refused(_kind, path):
        raise OSError(number, os.strerror(number), str(path))

    pl.DataFrame({"k": [1], "time": [0]}).write_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(kinds.Parquet, "footer", refused)
    with pytest.raises(InputError, match=os.strerror(number)) as caught:
        Tables().footer(tmp_path / "a.parquet")
    assert hint in caught.value.hint
