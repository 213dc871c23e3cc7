"""Columns as footers say them: with and without polars the same, for every kind of file and every type; damage is told."""

import gzip

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from ddcli import diff
from ddcli.errors import InputError
from ddcli.expressions.types import parse_type
from ddcli.plan.pipeline_file import parse_spec
from ddcli.store.log.schema import type_of
from ddcli.store.parquet.row_groups import row_count
from ddcli.store.tables.files import Tables
from ddcli.store.tables.footers import Footers
from ddcli.store.tables.input_path import partition_of

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.binary(4),
]
UNITS = ("s", "ms", "us", "ns")
MOMENTS = [
    *map(pa.timestamp, UNITS),
    *map(pa.duration, UNITS),
    *(pa.timestamp("ms", zone) for zone in ("UTC", "Europe/Berlin")),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
]
DECIMALS = [pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(38, 5), pa.decimal256(40, 3)]
NESTED = [
    pa.list_(pa.int64()),
    pa.large_list(pa.string()),
    pa.list_(pa.list_(pa.timestamp("ms"))),
    *(pa.list_(pa.date64()), pa.struct({"a": pa.list_(pa.struct({"b": pa.date64()}))})),
    pa.list_(pa.struct({"a": pa.int64()})),
    pa.list_(pa.int64(), 3),
    pa.struct({"a": pa.int64(), "b": pa.string()}),
    pa.map_(pa.string(), pa.int64()),
]
OTHERS = [pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.dictionary(pa.int32(), pa.string())]
KINDS = [*INTEGERS, *TEXTS, *MOMENTS, *DECIMALS, *NESTED, *OTHERS]
TABLE = pa.table({f"{at} {kind}": pa.nulls(1, kind) for at, kind in enumerate(KINDS)})


def write(path, *, plain=False):
    if path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, TABLE.schema) as writer:
            writer.write_table(TABLE)
    else:
        parquet.write_table(TABLE, path, store_schema=not plain)


@pytest.mark.parametrize(("name", "plain"), [("a.parquet", False), ("a.parquet", True), ("a.arrow", False)])
def test_every_type_is_read_as_polars_reads_it(tmp_path, name, plain):
    """Parquet says less of types where Arrow's schema is not beside its own."""
    write(tmp_path / name, plain=plain)
    options = {"declared": None, "partitions": {}, "nested": True}
    ours, theirs = (each(**options).footer(tmp_path / name) for each in (Footers, Tables))
    assert {column: type_of(kind) for column, kind in ours.items()} == {
        column: type_of(kind) for column, kind in theirs.items()
    }


UNREAD = [
    pa.run_end_encoded(pa.int32(), pa.string()),
    pa.list_view(pa.int64()),
    pa.large_list_view(pa.int64()),
    pa.month_day_nano_interval(),
    pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
    pa.sparse_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
]
"""Types at which polars panics."""


def nested(kind):
    return {
        "alone": kind,
        "in a list": pa.list_(kind),
        "in a struct": pa.struct({"a": pa.int64(), "b": pa.list_(pa.struct({"c": kind}))}),
        "in a list of a fixed size": pa.list_(kind, 2),
    }


@pytest.mark.parametrize("where", ["alone", "in a list", "in a struct", "in a list of a fixed size"])
def test_a_type_that_polars_panics_at_is_refused_before_it_does(tmp_path, capfd, where):
    """By `dd check` and a run in the same words; every other type alone is read by polars without a word."""
    number = pa.int64()
    for at, kind in enumerate([*UNREAD, *KINDS]):
        path = tmp_path / f"{at}.arrow"
        schema = pa.schema({"k": number, "v": nested(kind)[where], "w": number})
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema):
            pass
        for each in (Footers, Tables):
            if kind in UNREAD:
                with pytest.raises(
                    InputError, match=r"column 'v' is .*, a type with which the file can't be read"
                ) as caught:
                    each(None, {}).footer(path)
                assert (caught.value.place, str(kind) in caught.value.problem) == (str(path), True)
            else:
                assert list(each(None, {}).footer(path)) == ["k", "v", "w"], kind
        assert capfd.readouterr() == ("", ""), kind


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize("kind", [pa.decimal256(20, 3), pa.decimal256(40, 3), pa.list_(pa.decimal256(40, 3))], ids=str)
def test_decimals_that_polars_lacks_keep_nobody_from_the_other_columns(tmp_path, capfd, name, kind):
    """The rows of decimals of 256 bits in Arrow, and of more than 38 digits anywhere, are not read; `dd diff` reports that they are not compared."""
    table = pa.table({"k": pa.array([1, 2]), "v": pa.nulls(2, kind)})
    for each in (tmp_path / name, tmp_path / f"b-{name}"):
        if name == "a.arrow":
            with pa.OSFile(str(each), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            parquet.write_table(table, each)
    ours, theirs = (each(None, {}).footer(tmp_path / name) for each in (Footers, Tables))
    readable = name == "a.parquet" and kind == pa.decimal256(20, 3)
    assert (type_of(ours["v"]) is not None) == (type_of(theirs["v"]) is not None) == readable
    assert Tables().collect([tmp_path / name], ["k"])["k"].to_list() == [1, 2]
    found = diff(tmp_path / name, tmp_path / f"b-{name}", key="k")
    assert found.same  # byte for byte
    table = table.append_column("w", pa.array([1, 2]))
    with pa.OSFile(str(tmp_path / "c.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    found = diff(tmp_path / name, tmp_path / "c.arrow", key="k", ignore=["w"])
    assert [(each.column, each.note) for each in found.columns] == [("v", "not compared")]
    assert not found.same
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.ndjson"])
def test_text_has_the_types_that_are_declared(tmp_path, name):
    path = tmp_path / "day=2024-01-31" / name
    path.parent.mkdir()
    text = '\ufeff"i",more\n1,2\n' if "csv" in name else '{"i": 1}\n'
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    declared = {"i": parse_type("int32"), "day": parse_type("date")}
    partitions = {path: partition_of(f"day=2024-01-31/{name}")}
    ours, theirs = (each(declared, partitions).footer(path) for each in (Footers, Tables))
    assert ours == {column: type_of(kind) for column, kind in theirs.items()}
    assert ours["day"] == parse_type("date?")


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.csv.gz"])
@pytest.mark.parametrize("content", [b"", b"PAR1 and no more \xff"])
def test_damage_is_told(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        InputError, match="the file is not whole|the line is not UTF-8" if content else "the file is empty"
    ):
        Footers({"a": parse_type("int64")}, {}).footer(tmp_path / name)


def test_a_file_that_may_not_be_read(tmp_path):
    with pytest.raises(InputError, match="can't be read: No such file"):
        Footers(None, {}).footer(tmp_path / "a.parquet")


def test_a_type_that_records_can_not_have_says_its_name(tmp_path):
    pl.DataFrame({"s": [{"a": [1]}]}, {"s": pl.Struct({"a": pl.Array(pl.Int64, 1)})}).write_parquet(
        tmp_path / "a.parquet"
    )
    assert str(Footers(None, {}).footer(tmp_path / "a.parquet")["s"]) == "struct<a: fixed_size_list<element: int64>[1]>"


EVERY_TYPE = """\
n,x,day,at,yes,text,money,none
1,1e3,2024-01-31,2024-01-31 10:00,true,a,1.25,
-2,0.125,2024-02-29,2024-01-31T10:00:00.5,false,7,3,
,,,,,,,
9.5,"""  # cut off
PROPOSED = {
    "a.csv": (
        EVERY_TYPE,
        '{n: int64?, x: float64?, day: date?, at: "datetime[us]?", yes: bool?, text: string?, money: "decimal(18, 2)?", none: string?}',
    ),
    "b.csv": ('1st,"a, b"\n1,2\n3,4\n', '{"1st": int64, "a, b": int64}'),
    "a.ndjson": ('{"n": 1, "s": "x", "b": true, "l": null}\n', "{n: int64, s: string, b: bool, l: string?}"),
    "c.csv": ("", "{id: int64, name: string?}"),
    "d.csv": ("only,a,header\n", "{id: int64, name: string?}"),
    "b.ndjson": ("no json\n", "{id: int64, name: string?}"),
}


@pytest.mark.parametrize("name", PROPOSED)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_types_are_proposed_by_the_first_rows(tmp_path, name, ending):
    text, proposed = PROPOSED[name]
    path = tmp_path / (name + ending)
    path.write_bytes(gzip.compress(text.encode()) if ending else text.encode())
    for reader in (Footers, Tables):
        with pytest.raises(InputError) as told:
            reader(None, {}).footer(path)
        assert told.value.hint.endswith(f"`columns: {proposed}`")


def test_what_is_proposed_can_be_declared():
    for text, proposed in [found for name, found in PROPOSED.items() if found[1].startswith("{n:")]:
        spec = f"dd: 1\nname: p\ninputs: {{a: {{path: in/, columns: {proposed}}}}}\noutputs: {{a: out/}}\n"
        assert len(parse_spec(spec, "p.yaml").inputs["a"].columns) == len(proposed.split(": ")) - 1, text


def test_the_number_of_rows_is_that_of_polars(tmp_path):
    """Where the footer is not quickly gone through, or can't be read, nobody tells it."""
    path = tmp_path / "rows.parquet"
    for rows, columns in ((0, 1), (1, 3), (5000, 2)):
        frame = pl.DataFrame({f"c{at}": range(rows) for at in range(columns)})
        frame.write_parquet(path, row_group_size=1000)
        assert row_count(path) == rows
        parquet.write_table(frame.to_arrow(), path)
        assert row_count(path) == rows
    data = path.read_bytes()
    for wrong in (
        b"",
        b"PAR1",
        data[:-1],
        data[:-8] + b"\xff\xff\xff\x7fPAR1",
        data[:-20],
        data[: len(data) // 2] + data[-8:],
    ):
        path.write_bytes(wrong)
        assert row_count(path) is None
    pl.DataFrame({f"c{at}": [1] for at in range(1000)}).write_parquet(path)
    assert row_count(path) is None
    assert row_count(tmp_path / "none.parquet") is None
