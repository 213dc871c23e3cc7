"""Values of Parquet, Arrow IPC, ORC and Avro: each is read as it was written, or the file is refused by the reason."""

from __future__ import annotations

import random
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, orc, parquet

from ddcli.compare.diff import diff
from ddcli.errors import InputError
from ddcli.store.formats.base import Append
from ddcli.store.log.reader import LogReader
from ddcli.store.log.schema import schema_of, type_of
from ddcli.store.tables.files import Tables
from ddcli.store.tables.footers import Footers
from ddcli.store.tables.inventory import list_input
from tests.cases import cases
from tests.draws import many
from tests.formats.avro import avro_file

DAY = 86_400
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FIRST, LAST = -62_135_596_800, 253_402_300_799
"""The seconds of 0001-01-01 and of the last one of 9999."""
INTS = [-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**63 - 1, None]
TIMES = [kind for unit in TICKS for kind in [(pa.time32 if unit in ("s", "ms") else pa.time64)(unit)]]
MOMENTS = [kind(unit, *zone) for unit in TICKS for kind, zone in ((pa.timestamp, ()), (pa.timestamp, ("UTC",)))]
LENGTHS = [pa.duration(unit) for unit in TICKS]


def edges(kind):
    """Return numbers near the limits of a type, which it may not have."""
    ticks = TICKS[getattr(kind, "unit", "s")]
    if pa.types.is_time(kind):
        near = [0, DAY * ticks - 1, DAY * ticks, 2 * DAY * ticks]
    elif pa.types.is_date(kind):
        near = [FIRST // DAY - 1, FIRST // DAY, LAST // DAY, LAST // DAY + 1]
    else:
        near = [FIRST * ticks - 1, FIRST * ticks, (LAST + 1) * ticks - 1, (LAST + 1) * ticks, (2**63 - 1) // 1000 + 1]
    bits = kind.bit_width - 1
    return [None, *(each for each in [*INTS[:-1], *near] if -(2**bits) <= each < 2**bits)]


def is_ours(kind, number):
    """Return whether we have a value for a number of a type."""
    ticks = TICKS[getattr(kind, "unit", "s")]
    if number is None:
        return True
    if pa.types.is_time(kind):
        return 0 <= number < DAY * ticks
    if pa.types.is_date(kind):
        return FIRST // DAY <= number <= LAST // DAY
    if pa.types.is_duration(kind):
        return kind.unit != "s" or abs(number) <= (2**63 - 1) // 1000
    return FIRST * ticks <= number < (LAST + 1) * ticks


def array(kind, numbers):
    return pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


WRITERS = {"parquet": parquet.write_table, "arrow": feather.write_feather, "orc": orc.write_table}


def write(path, table):
    if path.suffix == ".arrow":
        feather.write_feather(table, path, compression="uncompressed")
    else:
        WRITERS[path.suffix[1:]](table, path)


def read(path):
    reader = LogReader(list_input(path.name, path.parent), Append(("time",)))
    names = [*reader.schema.columns]
    return pl.concat([part.read().frame for part in reader.take(names, None, ()).slices])


NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def scaled(kind, numbers, *, nanos):
    """Return the numbers as polars counts: times in nanoseconds, seconds as milliseconds."""
    unit = getattr(kind, "unit", None)
    by = NANOS[unit] if unit and (nanos or pa.types.is_time(kind)) else 1000 if unit == "s" else 1
    return [None if each is None else each * by for each in numbers]


@pytest.mark.parametrize("name", ["parquet", "arrow", "orc"])
@pytest.mark.parametrize("kind", [*TIMES, *MOMENTS, *LENGTHS, pa.date32()], ids=str)
def test_a_number_of_a_moment_is_read_as_it_is_or_refused(tmp_path, kind, name):
    """Above all none becomes null, as times outside of a day do in polars, or another moment, as seconds do that wrap around."""
    path = tmp_path / f"a.{name}"
    chance = random.Random(f"{kind} {name}")
    refused = 0
    drawn = [chance.choices(edges(kind), k=chance.randrange(1, 4)) for _ in range(many(60))]
    for numbers in [*([each] for each in edges(kind)), *drawn]:
        if len(numbers) > 1 and chance.random() < 0.3:
            numbers = [each for each in numbers if is_ours(kind, each)] or [0]
        if not is_written(path, kind, numbers):
            continue
        ours = all(is_ours(kind, each) for each in numbers)
        try:
            found, refusal = read(path)["v"], None
        except InputError as error:
            found, refusal = None, error
        if refusal is None:
            assert ours, numbers
            assert found.to_physical().to_list() == scaled(kind, numbers, nanos=name == "orc")
        else:
            refused += 1
            assert not ours or name == "orc", (numbers, refusal)  # which has nanoseconds alone
            assert "not whole" not in refusal.problem
            assert refusal.place == str(path)
    assert refused or name == "orc" or kind in ALL_OURS or (name == "parquet" and str(kind).startswith("timestamp[s"))


ALL_OURS = [*LENGTHS[1:], pa.timestamp("ns"), pa.timestamp("ns", "UTC")]


def is_written(path, kind, numbers):
    """Write a file; return False where pyarrow can't, or wraps around itself."""
    seconds = getattr(kind, "unit", "") == "s" and not pa.types.is_duration(kind)
    if path.suffix == ".parquet" and seconds and any(abs(each or 0) >= 2**31 // 1000 for each in numbers):
        return False
    table = pa.table({"v": array(kind, numbers), "time": pa.array([0] * len(numbers))})
    try:
        write(path, table)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def holding(values):
    """Return tables with an array of values within other types."""
    struct = pa.StructArray.from_arrays([values, pa.array(range(len(values)))], ["t", "n"])
    return {
        "list": pa.ListArray.from_arrays(range(len(values) + 1), values),
        "struct": struct,
        "list of structs": pa.ListArray.from_arrays(range(len(values) + 1), struct),
    }


@pytest.mark.parametrize("name", ["parquet", "arrow"])
@pytest.mark.parametrize("where", ["list", "struct", "list of structs"])
def test_times_within_other_types_are_looked_at_too(tmp_path, name, where):
    path = tmp_path / f"a.{name}"
    for last, fits in ((DAY * 10**6 - 1, True), (DAY * 10**6, False), (-1, False)):
        values = array(pa.time64("us"), [0, None, last])
        write(path, pa.table({"v": holding(values)[where], "time": [0, 0, 0]}))
        if fits:
            assert "23, 59, 59, 999999" in repr(read(path)["v"].to_list())
        else:
            with pytest.raises(InputError, match="column 'v' has a value that"):
                read(path)
            with pytest.raises(InputError, match="column 'v' has a value that"):
                diff(path, path)


def test_a_time_in_a_column_that_is_not_read_keeps_nobody_from_the_others(tmp_path):
    write(tmp_path / "a.parquet", pa.table({"v": array(pa.time64("us"), [DAY * 10**6]), "k": [5], "time": [0]}))
    kind = type_of(pl.Int64())
    reader = LogReader(list_input("a.parquet", tmp_path), Append(("time",), {"k": kind}))
    assert [part.read().frame["k"].to_list() for part in reader.take(["k"], None, ()).slices] == [[5]]


# --- Avro -----------------------------------------------------------------------------------------------------


def logical(shape, called, **more):
    return {"type": shape, "logicalType": called, **more}


RECORD = {"type": "record", "name": "q", "fields": [{"name": "a", "type": "long"}]}
ENUM = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
MONEY = logical("bytes", "decimal", precision=5, scale=2)
UNIT = {"time-millis": 10**6, "time-micros": 10**3}


def avro(path, kind, values):
    fields = [{"name": "v", "type": kind}, {"name": "time", "type": "long"}]
    path.write_bytes(
        avro_file({"type": "record", "name": "r", "fields": fields}, [{"v": v, "time": 0} for v in values])
    )
    return path


READ = {
    "boolean": ("boolean", [True, False]),
    "long": ("long", [-(2**63), 2**63 - 1]),
    "text or null": (["null", "string"], ["", None, "é"]),
    "fixed": ({"type": "fixed", "name": "f", "size": 2}, [b"ab"]),
    "enumeration": (ENUM, ["B", "A"]),
    "enumeration or null": (["null", ENUM], [None, "B"]),
    "array": ({"type": "array", "items": ["null", "long"]}, [[1, None], []]),
    "record": (RECORD, [{"a": 1}]),
    "record or null": ([RECORD, "null"], [None, {"a": 1}]),
    "a type by its name": (
        {
            "type": "record",
            "name": "q",
            "fields": [{"name": "a", "type": ENUM | {"type": "fixed", "size": 1}}, {"name": "b", "type": "e"}],
        },
        [{"a": b"x", "b": b"y"}],
    ),
}


@pytest.mark.parametrize("name", READ)
def test_avro_is_read_as_it_was_written(tmp_path, name):
    kind, values = READ[name]
    path = avro(tmp_path / "a.avro", kind, values)
    assert read(path)["v"].to_list() == values
    assert type_of(Footers(None, {}).footer(path)["v"]) == type_of(Tables().footer(path)["v"])


@pytest.mark.parametrize("name", UNIT)
@pytest.mark.parametrize("optional", [False, True])
def test_times_of_avro_are_those_that_were_written(tmp_path, name, optional):
    shape = logical("int" if name == "time-millis" else "long", name)
    day = DAY * 10**9 // UNIT[name]
    nothing = [None] if optional else []
    kind = ["null", shape] if optional else shape
    path = avro(tmp_path / "a.avro", kind, [0, day - 1, *nothing])
    assert read(path)["v"].to_physical().to_list() == [0, (day - 1) * UNIT[name], *nothing]
    for wrong in (day, -1, 2**31 - 1 if name == "time-millis" else 2**62):
        avro(tmp_path / "a.avro", kind, [0, wrong])
        with pytest.raises(InputError, match=r"column 'v' has a value that is not a time of day.* in row 1 "):
            read(path)


UNFIT = {
    "map": ({"type": "map", "values": "long"}, [{"a": 1}, {}], "map\\[long\\]"),
    "map or null": (["null", {"type": "map", "values": RECORD}], [None, {"a": {"a": 1}}], "map\\[record\\]"),
    "list of maps": (
        {"type": "array", "items": {"type": "map", "values": "string"}},
        [[{"a": "b"}]],
        "map\\[string\\]",
    ),
    "duration": (logical("fixed", "duration", name="d", size=12), [b"0" * 12], "duration"),
    "list of times": ({"type": "array", "items": logical("long", "time-micros")}, [[DAY * 10**6]], "time-micros"),
    "list of enumerations": ({"type": "array", "items": ENUM}, [["A"]], "enum"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_column_of_avro_that_records_can_not_have_is_left_out(tmp_path, capfd, name):
    kind, values, called = UNFIT[name]
    path = avro(tmp_path / "a.avro", kind, values)
    with pytest.raises(InputError, match=f"column 'v' is {called}, a type that records can't have"):
        read(path)
    assert Tables().collect([path], ["time"])["time"].to_list() == [0] * len(values)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        (["long", "string"], [5], "column 'v' is a union of long and string, a type with which the file can't be read"),
        ("null", [None], "column 'v' is or holds null, a type with which the file can't be read"),
        (MONEY, [b"\1" + b"\0" * 16], "the file can't be read as Avro: .*more than 16 bytes"),
    ],
)
def test_avro_that_can_not_be_read_is_named_by_its_reason(tmp_path, kind, values, problem):
    path = avro(tmp_path / "a.avro", kind, values)
    for each in (read, Footers(None, {}).footer):
        with pytest.raises(InputError, match=problem):
            each(path)


def test_a_number_of_more_digits_than_its_type_is_refused(tmp_path):
    for number, fits in ((99_999, True), (100_000, False), (-100_000, False), (2**78, False)):
        path = avro(tmp_path / "a.avro", MONEY, [number.to_bytes(10, "big", signed=True)])
        if fits:
            assert read(path)["v"].to_list() == [Decimal("999.99")]
        else:
            with pytest.raises(InputError, match=r"column 'v' has a value out of the range of decimal\(5, 2\)"):
                read(path)


# --- files that can't be read ---------------------------------------------------------------------------------


def twice():
    return pa.Table.from_arrays([pa.array([1])] * 3, names=["k", "k", "time"])


def test_a_whole_file_is_not_called_damaged(tmp_path):
    parquet.write_table(twice(), tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "b.arrow"), "wb") as file, pa.ipc.new_stream(file, twice().schema) as writer:
        writer.write_table(twice())
    orc.write_table(
        pa.table({"k": pa.array([FIRST], pa.int64()).view(pa.timestamp("s")), "time": [0]}), tmp_path / "c.orc"
    )
    for name, problem in (
        ("a.parquet", "the file can't be read as Parquet: "),
        ("b.arrow", "the file is a stream of Arrow IPC, which has no footer"),
        ("c.orc", "the file can't be read as ORC: ORC timestamp"),
    ):
        with pytest.raises(InputError) as caught:
            read(tmp_path / name)
        assert caught.value.problem.startswith(problem)
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[:-5])
        with pytest.raises(InputError) as caught:
            read(tmp_path / name)
        assert "not whole" in caught.value.problem or name == "b.arrow"


@cases("""
columns → problem
{} → the file has no columns
{"": [1]} → '' can't be a column's name
{"x": [1], "": [1]} → '' can't be a column's name
""")
@pytest.mark.parametrize("clock", ["event", "arrival"])
def test_columns_without_names_or_none_at_all_are_refused(tmp_path, columns, problem, clock):
    write(tmp_path / "a.parquet", pa.table(eval(columns)))  # noqa: S307 - it is ours
    times = () if clock == "event" else ("$arrival",)
    with pytest.raises(InputError, match=problem):
        LogReader(list_input("a.parquet", tmp_path), Append(times))


def test_a_struct_that_is_nested_deeper_than_records_are_is_left_out_and_a_very_deep_one_refused(tmp_path):
    for depth, problem in ((90, "a type that records can't have"), (900, "nested deep")):
        kind, value = pa.int64(), 1
        for _ in range(depth):
            kind, value = pa.struct([("f", kind)]), {"f": value}
        write(tmp_path / "a.parquet", pa.table({"s": pa.array([value], kind), "time": [7]}))
        with pytest.raises(InputError, match=problem):
            read(tmp_path / "a.parquet")
        with pytest.raises(InputError, match=problem.replace("nested deep", "nested")):
            type_checked(tmp_path / "a.parquet")
        if depth < 100:
            assert Tables().collect([tmp_path / "a.parquet"], ["time"])["time"].to_list() == [7]


def type_checked(path):
    """Have `dd check` look at a file."""
    schema_of(Append(("time",)), list_input(path.name, path.parent), Footers(None, {}).footer)
