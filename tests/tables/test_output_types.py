"""What tables of outputs can hold: values come back as what they were, and `dd check` refuses columns of which they would not."""

from datetime import date, time, timedelta
from decimal import Decimal

import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from ddcli.driver.run import run
from tests.cases import cases
from tests.tables.histories import properties_of

HELD = {
    "i8": ("int8?", pl.Int8, [-128, None]),
    "i16": ("int16?", pl.Int16, [32767, None]),
    "i32": ("int32", pl.Int32, [-(2**31), 2**31 - 1]),
    "i64": ("int64?", pl.Int64, [2**63 - 1, None]),
    "f32": ("float32?", pl.Float32, [float("nan"), None]),
    "f64": ("float64?", pl.Float64, [float("-inf"), 0.1]),
    "flag": ("bool?", pl.Boolean, [True, None]),
    "text": ("string?", pl.String, ["ä\0\n", None]),
    "data": ("binary?", pl.Binary, [b"\0\xff", None]),
    "day": ("date?", pl.Date, [date(1, 1, 1), None]),
    "plain": ("datetime[us]?", pl.Datetime("us"), [-1, None]),
    "zoned": ("datetime[us, UTC]?", pl.Datetime("us", "UTC"), [253_402_300_799_999_999, None]),
    "price": ("decimal(38, 10)?", pl.Decimal(38, 10), [Decimal("-1234567890123456789012345678.0000000001"), None]),
    "cents": ("decimal(12, 2)", pl.Decimal(12, 2), [Decimal("0.10"), Decimal("-0.01")]),
    "texts": ("list[string?]?", pl.List(pl.String), [["a", None, ""], None]),
    "lists": ("list[list[int64]]", pl.List(pl.List(pl.Int64)), [[[1, 2], []], []]),
}
"""Columns with a type that every table can hold, and two values each."""
ONLY_PARQUET = {
    "u64": ("uint64?", pl.UInt64, [2**64 - 1, None]),
    "clock": ("time?", pl.Time, [time(23, 59, 59, 999_999), None]),
    "span": ("duration[us]?", pl.Duration("us"), [timedelta(days=-1), None]),
    "exact": ("datetime[ns]?", pl.Datetime("ns"), [1, None]),
}
"""Columns with types that only Parquet can hold."""
SMALL = ("i8", "i16")
"""Columns that Iceberg can't hold."""


def iceberg(folder):
    """Return how a table of Iceberg is named as an output, and the properties of its catalog."""
    (folder / "lake").mkdir(exist_ok=True)
    properties = properties_of(folder / "lake")
    listed = ", ".join(f"{key}: '{value}'" for key, value in properties.items())
    return f"iceberg: {{catalog: {{{listed}}}, table: shop.t}}", properties


def read(folder, target):
    """Return what a table has, as its own package reads it."""
    if target.startswith("delta"):
        return pl.read_delta(str(folder / "t"))
    if target.startswith("iceberg"):
        table = load_catalog("default", **properties_of(folder / "lake")).load_table("shop.t")
        return pl.DataFrame(table.scan().to_arrow())
    return pl.read_parquet(folder / "t.parquet")


def write(folder, columns, target):
    """Write a pipeline whose output is a table with these columns, and their values."""
    (folder / "in").mkdir(exist_ok=True)
    data = {name: pl.Series(values, dtype=dtype, strict=True) for name, (_, dtype, values) in columns.items()}
    frame = pl.DataFrame(data).with_columns(time=pl.lit(0, pl.Int64), diff=pl.lit(1, pl.Int64))
    frame.write_parquet(folder / "in/0.parquet")
    declared = ", ".join(f'{name}: "{kind}"' for name, (kind, _, _) in columns.items())
    text = f"dd: 1\nname: p\ninputs: {{given: {{path: in/, columns: {{{declared}}}}}}}\n"
    (folder / "p.yaml").write_text(f"{text}outputs: {{given: {{as: table, {target}}}}}\n")
    return frame.drop("time", "diff")


def same(found, frame):
    """Whether two frames have the same rows and types; NaN equals NaN."""
    return found.schema == frame.schema and found.sort("i32").equals(frame.sort("i32"))


def test_columns_of_delta_are_nullable_as_the_outputs(tmp_path):
    write(tmp_path, HELD, "delta: t/")
    run(tmp_path / "p.yaml")
    nullable = {field.name: field.nullable for field in DeltaTable(str(tmp_path / "t")).schema().fields}
    assert nullable == {name: kind.endswith("?") for name, (kind, _, _) in HELD.items()}


def test_types_come_back_from_delta_as_an_input(tmp_path, shop):
    """Of another pipeline, which finds the types that this one had."""
    write(tmp_path, HELD, "delta: t/")
    run(tmp_path / "p.yaml")
    shop.write("q.yaml", "name: q\ninputs: {t: {delta: t/}}\noutputs: {t: {path: out/}}\n")
    assert shop("run", "q.yaml").code == 0
    found = pl.read_parquet(tmp_path / "out/*.parquet").select(*HELD)
    assert same(found, pl.read_delta(str(tmp_path / "t")))


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_types_come_back_from_written_and_rewritten_files(tmp_path, kind):
    """Rows that stay are read from the table's file and written again."""
    target = {"delta": "delta: t/", "iceberg": iceberg(tmp_path)[0], "parquet": "parquet: t.parquet"}[kind]
    columns = HELD | ONLY_PARQUET if kind == "parquet" else HELD
    if kind == "iceberg":
        columns = {name: column for name, column in HELD.items() if name not in SMALL}
    frame = write(tmp_path, columns, target)
    run(tmp_path / "p.yaml")
    assert same(read(tmp_path, target), frame)
    gone = frame.head(1).with_columns(time=pl.lit(1, pl.Int64), diff=pl.lit(-1, pl.Int64))
    gone.write_parquet(tmp_path / "in/1.parquet")
    run(tmp_path / "p.yaml")
    assert same(read(tmp_path, target), frame.tail(1))
    if kind == "iceberg":
        table = load_catalog("default", **iceberg(tmp_path)[1]).load_table("shop.t")
        optional = {field.name: field.optional for field in table.schema().fields}
        assert optional == {name: kind.endswith("?") for name, (kind, _, _) in columns.items()}


@pytest.mark.parametrize("name", ONLY_PARQUET)
def test_types_that_a_table_can_not_hold_are_refused(shop, name):
    write(shop.folder, {name: ONLY_PARQUET[name]}, "delta: t/")
    kind = ONLY_PARQUET[name][0].rstrip("?")
    for command in ("check", "run"):
        found = shop(command, "p.yaml")
        assert found.code == 2
        assert f"outputs.given.delta: Delta Lake can't hold the column '{name}' of type {kind}" in found.err + found.out
    assert not (shop.folder / "t").exists()
    write(shop.folder, {name: ONLY_PARQUET[name]}, "parquet: t.parquet")
    assert shop("check", "p.yaml").code == 0


def test_small_integers_are_refused_for_iceberg(shop):
    write(shop.folder, {"i32": HELD["i32"], **{name: HELD[name] for name in SMALL}}, iceberg(shop.folder)[0])
    found = shop("check", "p.yaml")
    assert found.code == 2
    for kind in ("int8", "int16"):
        assert f"Iceberg can't hold the column 'i{kind[3:]}' of type {kind}" in found.out + found.err
    assert "cast it to int32" in found.out + found.err


def test_names_that_a_table_can_not_have_are_refused(shop):
    shop.log(
        "in/0.parquet",
        [("x", "y", "z", 0, 1)],
        a=pl.String,
        A=pl.String,
        **{"b c": pl.String, "time": pl.Int64, "diff": pl.Int64},
    )
    shop.write("p.yaml", "dd: 1\nname: p\ninputs: {given: in/}\noutputs: {given: {as: table, delta: t/}}\n")
    found = shop("check", "p.yaml")
    assert found.code == 2
    assert "'A' and 'a' are one column to readers of Delta Lake" in found.err + found.out
    assert "no column with a name such as 'b c'" in found.err + found.out


def judge_refusal(shop, output, *words):
    """Check a pipeline whose output is wrong: the message has these words, and no password."""
    shop.log("in/0.parquet", [("x", 0, 1)], a=pl.String, time=pl.Int64, diff=pl.Int64)
    shop.write("p.yaml", f"dd: 1\nname: p\ninputs: {{given: in/}}\noutputs:\n  given: {output}\n")
    found = shop("check", "p.yaml")
    assert found.code == 2
    assert all(each in found.out + found.err for each in words), found
    assert "secret" not in found.out + found.err


@cases("""
text → problem
{as: table} → the table has no place
{as: table, path: out/} → the table has no place
{as: log, path: out/} → `as: log` is for tables of Delta Lake, Iceberg and DuckLake
{parquet: t.parquet} → a Parquet file has contents, and no log
{as: table, parquet: t/} → 't/' can't be a Parquet file
{as: tabel, delta: t/} → unknown form 'tabel'
{as: table, delta: t/, parquet: t.parquet} → an output is in one place, and this names delta and parquet
{as: table, delta: in/t/} → 'in/t/' and the input 'given' contain each other
{as: table, delta: .dd/} → '.dd/' and the state contain each other
{as: table, delta: out/t/, path: out/} → 'out/t/' and the log of 'given' contain each other
{as: table, iceberg: {catalog: c, table: s.t}}⏎  other: {from: given, as: table, iceberg: {catalog: c, table: s.t}} → another output is the table 's.t'
{from: given} → the key 'path' is missing
""")
def test_what_is_wrong_is_refused_at_its_place(shop, text, problem):
    judge_refusal(shop, text, problem, f"p.yaml:{5 + text.count(chr(10))}")
