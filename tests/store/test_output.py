"""Output logs: what they hold, how their files are called, and that they are read back as inputs."""

# ruff: noqa: DTZ001 - datetimes without zone are a type of their own
import re
from datetime import date, datetime

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool
from ddcli.engine.times import LEAST, Frontier, box
from ddcli.expressions.types import from_polars, parse_type
from ddcli.store.files.access import relative
from ddcli.store.formats.base import Updates
from ddcli.store.log.reader import LogReader
from ddcli.store.log.writer import CHUNK, file_name, frontier_name, output_bytes
from ddcli.store.state.directory import State
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.entries import FileEntry, OutputEntry
from ddcli.store.state.manifest import Manifest
from ddcli.store.state.outputs import read_progress, write_progress
from ddcli.store.tables.inventory import list_input
from tests.secret import SECRET
from tests.store.support import names

INTEGER = {"time": parse_type("int64")}


def write(place, frame, lanes, time, lower, upper):
    """Write an output in one commit; return the entry and the directory."""
    out = place / "out"
    with State.open(place / "state", {}) as state, state.begin() as transaction:
        pool, layout = (
            Pool(SECRET),
            Layout({name: from_polars(dtype, nullable=True) for name, dtype in frame.schema.items()}),
        )
        lanes = np.array(lanes, np.int64).reshape(-1, len(time) + 1)
        updates = np.empty((frame.height, layout.width + lanes.shape[1]), np.int64)
        encode(frame, layout, pool, updates)
        updates[:, layout.width :] = lanes
        entry = None
        if len(lanes):
            data = output_bytes(updates, layout, pool, time)
            name = file_name(time, lower, upper)
            written = transaction.add_output(out / name, data)
            entry = FileEntry(name, len(lanes), written.size, written.checksum, lower, upper)
        write_progress(transaction, out, upper)
        files = state.manifest.outputs["out"].files if state.manifest else ()
        outputs = {"out": OutputEntry(relative(out, state.directory), {}, (*files, *([entry] if entry else [])))}
        transaction.commit(Manifest("p", upper, outputs=outputs))
    return entry, out


def test_updates_are_in_order_of_time_and_else_as_given(tmp_path):
    frame = pl.DataFrame({"a": [3, 1, 2, 0]})
    entry, out = write(tmp_path, frame, [(5, 1), (4, 1), (5, -1), (4, 2)], INTEGER, None, ((6,),))
    assert (entry.name, entry.rows, entry.lower, entry.upper) == ("updates-start-6.parquet", 4, None, ((6,),))
    assert pl.read_parquet(out / entry.name).rows() == [(1, 4, 1), (0, 4, 2), (3, 5, 1), (2, 5, -1)]
    assert read_progress(out) == ((6,),)


def test_many_updates_are_written_in_chunks(tmp_path):
    rows = 2 * CHUNK + 5
    entry, out = write(
        tmp_path,
        pl.DataFrame({"a": range(rows)}),
        [(rows - at, 1) for at in range(rows)],
        INTEGER,
        None,
        ((rows + 1,),),
    )
    found = pl.read_parquet(out / entry.name)
    assert found["time"].to_list() == list(range(1, rows + 1))
    assert found["a"].to_list() == list(range(rows))[::-1]


def test_an_interval_without_updates_writes_progress_only(tmp_path):
    write(tmp_path, pl.DataFrame({"a": [1]}), [(0, 1)], INTEGER, None, ((1,),))
    entry, out = write(tmp_path, pl.DataFrame({"a": []}, schema={"a": pl.Int64}), [], INTEGER, ((1,),), ((7,),))
    assert entry is None
    assert names(out) == [PROGRESS, "updates-start-1.parquet"]
    assert read_progress(out) == ((7,),)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("date", [15706, 0], [date(1970, 1, 1), date(2013, 1, 1)]),
        ("datetime[us]", [1_000_000, -1], [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1, 0, 0, 1)]),
    ],
)
def test_times_have_the_type_of_the_inputs_times(tmp_path, kind, values, expected):
    entry, out = write(
        tmp_path, pl.DataFrame({"a": [1, 2]}), [(value, 1) for value in values], {"at": parse_type(kind)}, None, ()
    )
    assert pl.read_parquet(out / entry.name)["at"].to_list() == expected


def test_product_times_and_records_without_columns(tmp_path):
    time = {"epoch": parse_type("int64"), "version": parse_type("int64")}
    entry, out = write(
        tmp_path, pl.DataFrame(height=3), [(1, 0, 1), (0, 9, 1), (0, 2, 4)], time, ((0, 0),), ((3, 0), (0, 14))
    )
    assert entry.name == "updates-0_0-0_14+3_0.parquet"
    assert pl.read_parquet(out / entry.name).rows() == [(0, 2, 4), (0, 9, 1), (1, 0, 1)]


def test_boxes_of_product_times_are_named_by_their_corners(tmp_path):
    time = {"day": parse_type("date"), "version": parse_type("int64")}
    first, second = box((15706, 4)), box((15706, 4)).join(box((2, 9)))
    entry, out = write(tmp_path, pl.DataFrame({"a": [1]}), [(0, -3, 1)], time, None, first.elements)
    assert entry.name == "updates-start-20130101x4.parquet"
    assert pl.read_parquet(out / entry.name).rows() == [(1, date(1970, 1, 1), -3, 1)]
    assert read_progress(out) == first.elements
    entry, _ = write(tmp_path, pl.DataFrame({"a": [1]}), [(0, 7, 1)], time, first.elements, second.elements)
    assert entry.name == "updates-20130101x4-19700103x9+20130101x4.parquet"


def test_other_readers_sum_the_directory_as_it_stands(tmp_path):
    write(tmp_path, pl.DataFrame({"a": [1, 2]}), [(0, 1), (0, 1)], INTEGER, None, ((1,),))
    _, out = write(tmp_path, pl.DataFrame({"a": [1, 3]}), [(5, -1), (6, 2)], INTEGER, ((1,),), ((7,),))
    sql = f"select a, sum(diff)::int from '{out}/*.parquet' where time <= 5 group by a having sum(diff) <> 0 order by a"
    assert duckdb.sql(sql).fetchall() == [(2, 1)]
    assert pl.scan_parquet(out / "*.parquet").select(pl.col("diff").sum()).collect().item() == 3


def test_an_output_is_an_input(tmp_path):
    _, out = write(tmp_path, pl.DataFrame({"a": [1, 2]}), [(0, 1), (4, -1)], INTEGER, None, ((5,),))
    reader = LogReader(list_input("out", tmp_path), Updates())
    assert read_progress(out) == ((5,),)
    (part,) = reader.take(["a"], None, ((5,),)).slices
    read = part.read()
    assert read.frame["a"].to_list() == [1, 2]
    assert read.diffs.to_list() == [1, -1]


@pytest.mark.parametrize(
    ("kind", "value", "name"),
    [
        ("int64", 42, "42"),
        ("int64", -42, "m42"),
        ("date", 15706, "20130101"),
        ("date", -10_000_000, "m10000000"),
        ("datetime[ms]", 1, "19700101T000000f001"),
        ("datetime[us]", 1_357_000_200_000_000, "20130101T003000"),
        ("datetime[ns]", -1, "19691231T235959f999999999"),
    ],
)
def test_frontiers_are_named_as_people_write_them(kind, value, name):
    assert frontier_name(((value,),), {"t": parse_type(kind)}) == name


coordinates = st.just(LEAST) | st.integers(LEAST, 2**63 - 1) | st.integers(-20, 20)
frontiers = st.none() | st.lists(st.tuples(coordinates, coordinates), max_size=12).map(Frontier)


@given(one=frontiers, other=frontiers, kind=st.sampled_from(["int64", "date", "datetime[us]"]))
def test_different_frontiers_have_different_safe_names(one, other, kind):
    time = {"a": parse_type(kind), "b": parse_type("int64")}
    texts = [frontier_name(frontier and frontier.elements, time) for frontier in (one, other)]
    assert (texts[0] == texts[1]) == (one == other)
    assert all(re.fullmatch(r"[A-Za-z0-9_+]{1,80}", text) for text in texts)
