"""Files put together from row groups: any reader finds the rows of all parts, in order."""

import io
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

import ddcli.store.log.joint_files
from ddcli.errors import EngineError
from ddcli.store.files.gate import Files, Written, checksum
from ddcli.store.log.joint_files import JointFile
from ddcli.store.parquet.pages import PageReader
from ddcli.store.parquet.row_groups import (
    I32,
    MAGIC,
    STRUCT,
    RowGroups,
    fields,
    footer_of,
    number_bytes,
    row_count,
    struct_bytes,
    structs,
    structs_bytes,
)
from tests.draws import many

VALUES = {
    "i": (pl.Int64, [None, 0, -1, 2**63 - 1]),
    "u": (pl.UInt8, [None, 0, 255]),
    "s": (pl.String, [None, "", "a", "ä" * 40]),
    "x": (pl.Float64, [None, 0.5, float("inf"), -0.0]),
    "b": (pl.Boolean, [None, True, False]),
    "d": (pl.Date, [None, date(2013, 1, 1)]),
    "t": (pl.Datetime("us"), [None, datetime(2013, 1, 1, 1, 2, 3, 4)]),  # noqa: DTZ001 - a type of its own
    "p": (pl.Duration("ms"), [None, timedelta(seconds=1)]),
    "m": (pl.Decimal(38, 2), [None, Decimal("1.25")]),
    "y": (pl.Binary, [None, b"", b"\x00\xff"]),
    "l": (pl.List(pl.String), [None, [], ["a", None]]),
}


def part(draw, schema, most=60):
    rows = draw.choice([0, 1, draw.randrange(most)])
    frame = pl.DataFrame({name: [draw.choice(VALUES[name][1]) for _ in range(rows)] for name in schema}, schema)
    data = io.BytesIO()
    options = {
        "row_group_size": draw.choice([None, 1, 7]),
        "compression": draw.choice(["zstd", "uncompressed", "lz4"]),
        "statistics": draw.choice([True, False, "full"]),
    }
    if draw.random() < 0.7:
        frame.write_parquet(data, **options)
    else:  # another writer, whose files have an index of pages
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        version = {"row_group_size": options["row_group_size"], "write_page_index": True}
        pq.write_table(table, data, compression="snappy", **version)
        return frame, data.getvalue(), "pyarrow"
    return frame, data.getvalue(), "polars"


@pytest.mark.parametrize("seed", range(many(40)))
def test_any_reader_reads_what_was_put_together(tmp_path, seed):
    draw = random.Random(seed)
    schema = {name: VALUES[name][0] for name in draw.sample(list(VALUES), draw.randrange(1, 6))}
    parts = [part(draw, schema) for _ in range(draw.randrange(1, 6))]
    writer = parts[0][2]
    parts = [each for each in parts if each[2] == writer]  # columns of another's files are others
    path = tmp_path / "joint.parquet"
    joint = JointFile(Files(), path)
    for at, (_, data, _) in enumerate(parts):
        if draw.random() < 0.5:
            joint.add(data)
            continue
        place = tmp_path / f"part{at}"
        joint.add_file(place, Files().write(place, data))
        assert place.exists(), "another attempt at a task may read it, too"
    assert joint.finish() == Written(path.stat().st_size, checksum(path.read_bytes()))
    meant = pl.concat([frame for frame, *_ in parts])
    assert pl.read_parquet(path).equals(meant)
    assert pl.scan_parquet(path).collect(engine="streaming").equals(meant)
    table = pq.read_table(path)
    assert pl.from_arrow(table).cast(schema).equals(meant)
    assert table.num_rows == pq.read_metadata(path).num_rows == meant.height
    rows = duckdb.sql(f"select count(*), {', '.join(f'count({name})' for name in schema)} from '{path}'").fetchall()
    assert rows == [(meant.height, *(meant[name].count() for name in schema))]
    if len(parts) == 1:
        assert path.read_bytes() == parts[0][1]


def test_row_groups_are_found_by_their_statistics(tmp_path):
    """Each row group's offsets lead to its own pages: rows that a filter wants are read from the middle."""
    path = tmp_path / "joint.parquet"
    joint = JointFile(Files(), path)
    for at in range(20):
        data = io.BytesIO()
        pl.DataFrame({"a": range(at * 1000, at * 1000 + 1000)}).write_parquet(data, row_group_size=100)
        joint.add(data.getvalue())
    joint.finish()
    for low in (0, 999, 7_350, 19_999):
        assert pl.scan_parquet(path).filter(pl.col("a") == low).collect()["a"].to_list() == [low]
        assert duckdb.sql(f"select a from '{path}' where a = {low}").fetchall() == [(low,)]
    assert pq.ParquetFile(path).read_row_group(123)["a"].to_pylist() == list(range(12_300, 12_400))


def test_threads_add_parts_at_once(tmp_path):
    path = tmp_path / "joint.parquet"
    joint = JointFile(Files(), path)

    def add(at):
        data = io.BytesIO()
        pl.DataFrame({"a": [at] * 100}).write_parquet(data)
        joint.add(data.getvalue())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(50)))
    written = joint.finish()
    assert written == Written(path.stat().st_size, checksum(path.read_bytes()))
    assert sorted(pl.read_parquet(path)["a"].to_list()) == sorted(list(range(50)) * 100)


def test_a_large_part_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(ddcli.store.log.joint_files, "BLOCK", 100)
    frame = pl.DataFrame({"a": range(10_000)})
    joint = JointFile(Files(), tmp_path / "joint.parquet")
    for at in range(2):
        frame.write_parquet(tmp_path / f"{at}")
        data = (tmp_path / f"{at}").read_bytes()
        joint.add_file(tmp_path / f"{at}", Written(len(data), checksum(data)))
    joint.finish()
    assert pl.read_parquet(tmp_path / "joint.parquet").equals(pl.concat([frame, frame]))


def test_a_part_that_is_not_what_was_written_is_refused(tmp_path):
    path = tmp_path / "part"
    pl.DataFrame({"a": range(100)}).write_parquet(path)
    data = bytearray(path.read_bytes())
    written = Written(len(data), checksum(data))
    data[10] ^= 1
    path.write_bytes(data)
    with pytest.raises(EngineError, match="isn't what was written"):
        JointFile(Files(), tmp_path / "joint.parquet").add_file(path, written)


def test_parts_of_other_columns_are_refused():
    groups = RowGroups()
    for at, name in enumerate("ab"):
        data = io.BytesIO()
        pl.DataFrame({name: [1]}).write_parquet(data)
        view = data.getvalue()
        footer = footer_of(len(view), lambda start, end, view=view: view[start:end])
        if at:
            with pytest.raises(ValueError, match="different columns"):
                groups.add(len(view), footer)
        else:
            groups.add(len(view), footer)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b"PAR1\xff\xff\xff\x7fPAR1", b"x" * 100])
def test_what_is_no_parquet_is_refused(data):
    with pytest.raises(ValueError, match=r"footer|as Parquet"):
        RowGroups().add(len(data), footer_of(len(data), lambda start, end: data[start:end]))


def test_damaged_footers_raise_value_errors_only():
    data = io.BytesIO()
    pl.DataFrame({"a": [1, 2], "s": ["x", None]}).write_parquet(data)
    view = data.getvalue()
    good = footer_of(len(view), lambda start, end: view[start:end])
    draw = random.Random(0)
    for _ in range(2000):
        footer = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            footer[draw.randrange(len(footer))] = draw.randrange(256)
        groups = RowGroups()
        try:
            groups.add(len(view), good)
            groups.add(len(view), bytes(footer[: draw.randrange(len(footer))]))
        except ValueError:
            continue


def test_structs_are_written_as_they_were_read():
    data = io.BytesIO()
    pl.DataFrame({name: [values[-1]] for name, (_, values) in VALUES.items()}).write_parquet(data)
    view = data.getvalue()
    footer = footer_of(len(view), lambda start, end: view[start:end])
    assert struct_bytes(fields(footer)) + footer[-8:] == footer
    many = [struct_bytes({at: (I32, number_bytes(-at))}) for at in (1, 15, 16, 200)] * 5
    assert structs(structs_bytes(many)) == many
    assert fields(structs_bytes(many[:1])[1:]) == {1: (I32, number_bytes(-1))}
    assert STRUCT == 12
    assert view.startswith(MAGIC)


@pytest.mark.parametrize("seed", range(many(40)))
def test_sizes_of_row_groups_are_those_that_pyarrow_reads(tmp_path, seed):
    draw = random.Random(seed)
    _, data, _ = part(draw, {name: VALUES[name][0] for name in draw.sample(list(VALUES), draw.randrange(1, 6))}, 1000)
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    footer = pq.read_metadata(path)
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    sizes = [sum(group.column(at).total_compressed_size for at in range(group.num_columns)) for group in groups]
    assert PageReader().groups(path) == (max((group.num_rows for group in groups), default=0), max(sizes, default=0))


@pytest.mark.parametrize("seed", range(many(40)))
def test_sizes_in_a_damaged_footer_are_some_or_none(tmp_path, seed):
    draw = random.Random(seed)
    _, data, _ = part(draw, {name: VALUES[name][0] for name in draw.sample(list(VALUES), 2)}, 20)
    footer = bytearray(footer_of(len(data), lambda start, end: data[start:end]))[:-8]
    path = tmp_path / "a.parquet"
    for _ in range(20):
        damaged = footer[: draw.choice([len(footer), draw.randrange(1, len(footer))])]
        for _ in range(draw.randrange(3)):
            damaged[draw.randrange(len(damaged))] = draw.choice([0, 0x15, 0x19, 0xFC, 0xFF, draw.randrange(256)])
        path.write_bytes(MAGIC + damaged + len(damaged).to_bytes(4, "little") + MAGIC)
        assert min(PageReader().groups(path)) >= 0


def test_what_is_no_file_of_parquet_has_no_row_groups(tmp_path):
    path = tmp_path / "a.parquet"
    for data in (
        b"",
        b"PAR1",
        b"PAR1PAR1",
        b"x" * 100 + b"PAR1",
        b"PAR1" + bytes(100) + (99).to_bytes(4, "little") + MAGIC,
    ):
        path.write_bytes(data)
        assert PageReader().groups(path) == (0, 0)
    assert PageReader().groups(tmp_path / "none") == (0, 0)


@pytest.mark.parametrize(
    "footer",
    [
        b"",
        b"\x49\x1c",  # row groups, of which one is to come
        b"\x49\x1c\x36\x01\x00\x00",  # one of -1 rows
        b"\x49\xfc\xff\xff\xff\xff\x0f",  # four billion row groups
        bytes([0x1C] * 5_000),  # too deep
        b"\x49\x1c\x36" + b"\xff" * 5_000,  # a number of as many bytes
        b"\x1d\x00",  # a type that there is none of
    ],
)
def test_a_footer_that_can_not_be_has_no_row_groups(tmp_path, footer):
    path = tmp_path / "a.parquet"
    path.write_bytes(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC)
    assert PageReader().groups(path) == (0, 0)
    assert row_count(path) is None
