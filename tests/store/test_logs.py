"""Reading change logs: what is taken, and every way in which a file may be refused (with its name, column and row)."""

# ruff: noqa: DTZ001 - datetimes without zone are a type of their own
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from ddcli.engine.lanes import Layout
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.errors import InputError, Span, Text
from ddcli.expressions.parse import parse_scalar
from ddcli.expressions.types import ColumnScope, parse_type
from ddcli.store.formats.base import Append, Updates
from ddcli.store.log.reader import LogReader
from ddcli.store.log.rows import RowCondition
from ddcli.store.log.schema import LogSchema
from ddcli.store.tables.footers import Footers, Unfit
from ddcli.store.tables.inventory import list_input
from tests.secret import SECRET

PLAIN = pl.DataFrame({"a": [1, 2, 3], "s": ["x", None, "z"], "time": [5, 6, 7], "diff": [1, 1, -1]})


def schema(**columns):
    return {name: parse_type(text) for name, text in columns.items()}


@pytest.fixture
def log(tmp_path):
    class Log:
        root = tmp_path / "log"

        def write(self, name, frame, **options):
            self.root.mkdir(exist_ok=True)
            frame.write_parquet(self.root / name, **options)
            return self.root / name

        def listing(self, consumed=()):
            return list_input("log", tmp_path, consumed)

        def reader(self, consumed=(), known=None, **options):
            return LogReader(self.listing(consumed), Updates(**options), known)

        def refused(self, lower=None, upper=((10**9,),), consumed=(), known=None, **options):
            def read():
                reader = self.reader(consumed, known, **options)
                taken = reader.take(reader.schema.columns, lower, upper)
                [part.read() for part in taken.slices]

            with pytest.raises(InputError) as caught:
                read()
            assert caught.value.exit_code == 3
            return caught.value

    return Log()


class Read:
    """All slices of an interval, read."""

    def __init__(self, reader, columns, lower, upper, most=None):
        taken = reader.take(columns, lower, upper, most)
        self.files, self.slices = taken.files, taken.slices
        reads = [part.read() for part in taken.slices]
        assert all(part.rows >= len(read.diffs) for part, read in zip(taken.slices, reads, strict=True))
        self.updates = [
            (*row, *time, diff)
            for read in reads
            for row, time, diff in zip(read.frame.iter_rows(), read.times.iter_rows(), read.diffs, strict=True)
        ]
        self.times = [time for read in reads for time in read.times.iter_rows()]
        self.schema = reads[0].frame.schema if reads else None


def rows(read):
    """Return the rows of a read with their times and diffs."""
    return read.updates


# --- what is read ---------------------------------------------------------------------------------------------


def test_undeclared_columns_are_what_the_footer_says_and_may_be_null(log):
    log.write("a.parquet", PLAIN)
    reader = log.reader()
    assert reader.schema == LogSchema(schema(a="int64?", s="string?"), schema(time="int64"), diff=True)
    assert LogSchema.from_json(reader.schema.to_json()) == reader.schema
    assert reader.largest_time() == (7,)
    read = Read(reader, ["a", "s"], None, ((8,),))
    assert rows(read) == [(1, "x", 5, 1), (2, None, 6, 1), (3, "z", 7, -1)]
    assert [file.done for file in read.files] == [True]


def test_only_columns_asked_for_are_read(log):
    log.write("a.parquet", PLAIN)
    assert rows(Read(log.reader(), ["s"], None, ((8,),))) == [("x", 5, 1), (None, 6, 1), ("z", 7, -1)]
    assert rows(Read(log.reader(), [], None, ((8,),))) == [(5, 1), (6, 1), (7, -1)]
    assert rows(Read(log.reader(), [], None, ((6,),))) == [(5, 1)]


def test_a_log_without_diffs_inserts(log):
    log.write("a.parquet", PLAIN.drop("diff"))
    assert rows(Read(log.reader(), ["a"], None, ((8,),))) == [(1, 5, 1), (2, 6, 1), (3, 7, 1)]
    assert rows(Read(log.reader(), [], None, ((8,),))) == [(5, 1), (6, 1), (7, 1)]


def test_rows_at_or_after_the_upper_wait_in_their_files(log):
    log.write("a.parquet", PLAIN)
    log.write("b.parquet", PLAIN.with_columns(time=pl.col("time") + 10))
    read = Read(log.reader(), ["a"], None, ((7,),))
    assert rows(read) == [(1, 5, 1), (2, 6, 1)]
    assert [file.done for file in read.files] == [False, False]
    read = Read(log.reader(read.files), ["a"], ((7,),), ((17,),))
    assert rows(read) == [(3, 7, -1), (1, 15, 1), (2, 16, 1)]
    assert [(file.path, file.done) for file in read.files] == [("a.parquet", True), ("b.parquet", False)]
    read = Read(log.reader(read.files), ["a"], ((17,),), ((18,),))
    assert rows(read) == [(3, 17, -1)]
    assert all(file.done for file in read.files)
    assert log.reader(read.files).largest_time() is None
    assert rows(Read(log.reader(read.files), ["a"], ((18,),), ((19,),))) == []


def test_rows_in_no_order_of_time_are_taken_too(log):
    log.write("a.parquet", pl.DataFrame({"a": range(6), "time": [9, 1, 5, 2, 8, 3]}))
    read = Read(log.reader(), ["a"], None, ((5,),))
    assert rows(read) == [(1, 1, 1), (3, 2, 1), (5, 3, 1)]
    assert rows(Read(log.reader(read.files), ["a"], ((5,),), ((9,),))) == [(2, 5, 1), (4, 8, 1)]


def test_a_closed_upper_takes_all(log):
    log.write("a.parquet", PLAIN)
    assert len(Read(log.reader(), ["a"], None, ()).updates) == 3


def test_product_times(log):
    frame = pl.DataFrame({"a": [1, 2, 3, 4], "epoch": [0, 0, 3, 2], "version": [1, 9, 0, 5]})
    log.write("a.parquet", frame)
    options = {"time": ("epoch", "version")}
    reader = log.reader(**options)
    assert list(reader.schema.time) == ["epoch", "version"]
    assert reader.largest_time() == (3, 9)
    upper = ((3, 0), (0, 4))
    read = Read(reader, ["a"], None, upper)
    assert rows(read) == [(1, 0, 1, 1)]
    read = Read(log.reader(read.files, **options), ["a"], upper, ((4, 0), (0, 10)))
    assert rows(read) == [(2, 0, 9, 1), (3, 3, 0, 1), (4, 2, 5, 1)]
    late = log.refused(lower=upper, upper=((9, 9),), **options).problem
    assert "row 0 (counted from 0) has the time 0,1, which is before 0,* or 3,4 or *,0, up to where" in late


# Every row is taken once, by the first run whose upper closes its time, and is late for all that come after.
DOMAIN = list(itertools.product(range(3), repeat=3))
uppers = st.lists(st.lists(st.sampled_from(DOMAIN), max_size=4).map(Frontier), min_size=1, max_size=4)


@given(
    asked=uppers,
    files=st.lists(st.lists(st.sampled_from(DOMAIN), max_size=6), min_size=1, max_size=2),
    most=st.sampled_from([None, 1, 2, 5]),
    kept=st.booleans(),
)
def test_each_row_is_taken_by_the_run_that_closes_its_time(tmp_path_factory, asked, files, most, kept):
    place = tmp_path_factory.mktemp("log")
    for name, times in enumerate(files):
        frame = pl.DataFrame(times, schema=dict.fromkeys("xyz", pl.Int64), orient="row")
        frame.with_columns(a=pl.Series(range(len(times)), dtype=pl.Int64)).write_parquet(place / f"{name}.parquet")
    consumed, lower = (), None
    for upper in asked:
        if lower is not None:
            upper = upper.join(lower)
        reader = LogReader(list_input(".", place, consumed), Updates(("x", "y", "z")), most=None if kept else most)
        read = Read(reader, ["a"], None if lower is None else lower.elements, upper.elements, most)
        assert most is not None or len(read.slices) <= 1
        assert all(part.rows <= (most or part.rows) for part in read.slices)
        open_ = lambda time, lower=lower: lower is None or lower.less_equal(time)  # noqa: E731
        want = [time for times in files for time in times if open_(time) and not upper.less_equal(time)]
        assert sorted(read.times) == sorted(want)
        assert [file.done for file in read.files] == [not any(map(upper.less_equal, times)) for times in files]
        consumed, lower = read.files, upper
    # Found anew, the files would be late if any of their rows had been taken.
    reader = LogReader(list_input(".", place), Updates(("x", "y", "z")))
    if all(map(lower.less_equal, itertools.chain(*files))):
        Read(reader, [], lower.elements, ())
    else:
        with pytest.raises(InputError, match="late rows"):
            Read(reader, [], lower.elements, ())


@pytest.mark.parametrize(
    ("values", "kind", "physical"),
    [
        ([date(2013, 1, 1), date(1969, 12, 31)], "date", [15706, -1]),
        ([datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 1)], "datetime[us]", [1_000_000, 0]),
    ],
)
def test_dates_and_datetimes_are_times(log, values, kind, physical):
    log.write("a.parquet", pl.DataFrame({"a": [1, 2], "time": values}))
    reader = log.reader()
    assert reader.schema.time == schema(time=kind)
    assert Read(reader, ["a"], None, ((10**9,),)).times == [(value,) for value in physical]


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int32, pl.UInt16, pl.UInt64])
def test_times_and_diffs_may_be_integers_of_any_size(log, dtype):
    log.write("a.parquet", PLAIN.head(2).cast({"time": dtype, "diff": dtype}))
    assert rows(Read(log.reader(), ["a"], None, ((8,),))) == [(1, 5, 1), (2, 6, 1)]


def test_declared_columns_are_checked_and_widened_and_others_ignored(log):
    frame = PLAIN.with_columns(
        a=pl.col("a").cast(pl.Int32),
        at=pl.Series([datetime(2013, 1, 1)] * 3).cast(pl.Datetime("ms")),
        price=pl.Series(["1.5"] * 3).cast(pl.Decimal(5, 2)),
        kind=pl.Series(["k"] * 3).cast(pl.Categorical),
        nothing=pl.Series([None] * 3),
        other=pl.struct(pl.lit(1)),
    )
    log.write("a.parquet", frame)
    declared = schema(a="int64", at="datetime[us]", price="decimal(12, 4)", kind="string", nothing="int32?")
    read = Read(log.reader(columns=declared), declared, None, ((8,),))
    assert read.schema == {name: column.to_polars() for name, column in declared.items()}
    assert read.updates[0] == (1, datetime(2013, 1, 1), Decimal("1.5"), "k", None, 5, 1)


def test_files_of_several_types_are_read_in_the_declared_one(log):
    for at, dtype in enumerate((pl.Int64, pl.Int32, pl.Int64, pl.UInt8)):
        log.write(f"{at}.parquet", pl.DataFrame({"a": [at], "time": [0]}).cast({"a": dtype}))
    read = Read(log.reader(columns=schema(a="int64")), ["a"], None, ((1,),))
    assert sorted(rows(read)) == [(at, 0, 1) for at in range(4)]


def test_many_files_of_one_schema(log):
    for at in range(50):
        log.write(f"{at:02d}.parquet", pl.DataFrame({"a": [at], "time": [at]}))
    assert rows(Read(log.reader(), ["a"], None, ((50,),))) == [(at, at, 1) for at in range(50)]


def test_a_name_with_glob_characters_or_hive_keys_is_only_a_name(log):
    (log.root / "a=7").mkdir(parents=True)
    log.write("a=7/[x]*.parquet", pl.DataFrame({"a": [1], "time": [0]}))
    assert rows(Read(log.reader(), ["a"], None, ((1,),))) == [(1, 0, 1)]


def test_a_log_without_files_has_its_declared_columns(log):
    log.root.mkdir()
    reader = log.reader(columns=schema(a="int64", s="string?"))
    assert reader.schema.diff is None
    assert reader.largest_time() is None
    read = Read(reader, ["s"], None, ((1,),))
    assert rows(read) == []
    assert "so its columns are unknown" in log.refused().problem
    log.write("a.parquet", PLAIN.drop("diff").with_columns(time=date(2013, 1, 1)))  # what nobody knew binds nobody
    assert log.reader(columns=schema(a="int64"), known=reader.schema).schema == LogSchema(
        schema(a="int64"), schema(time="date"), diff=False
    )


def test_a_file_of_no_rows_is_taken(log):
    log.write("a.parquet", PLAIN.clear())
    reader = log.reader()
    assert reader.largest_time() is None
    read = Read(reader, ["a"], ((3,),), ((8,),))
    assert rows(read) == []
    assert read.files[0].done


def test_the_schema_of_earlier_runs_stands_when_nothing_is_new(log):
    log.write("a.parquet", PLAIN)
    consumed = [replace(file, done=True) for file in log.listing().new]
    assert log.reader(consumed).schema.columns == schema(a="int64?", s="string?")


# --- what is refused ------------------------------------------------------------------------------------------


def test_files_that_are_not_parquet(log):
    path = log.write("a.parquet", PLAIN)
    whole = path.read_bytes()
    for data, problem in (
        (b"", "is empty"),
        (whole[:-30], "not whole Parquet"),
        (b"a,b\n1,2\n" * 9, "not whole Parquet"),
    ):
        path.write_bytes(data)
        error = log.refused()
        assert error.place == str(path)
        assert problem in error.problem
        assert "write the file again" in error.hint


def test_damaged_pages_name_their_file(log):
    frame = pl.DataFrame({"a": np.random.default_rng(0).integers(0, 2**60, 50_000), "time": [0] * 50_000})
    log.write("a.parquet", frame)
    path = log.write("b.parquet", frame)
    data = bytearray(path.read_bytes())
    data[4:20_000] = b"\xff" * 19_996  # the page's header too: values alone have no checksum in Parquet
    path.write_bytes(data)
    error = log.refused()
    assert error.place == str(path)
    assert "can't be read as Parquet" in error.problem


def test_a_missing_column(log):
    path = log.write("a.parquet", PLAIN.rename({"time": "tiem"}))
    error = log.refused()
    assert error.problem == "the file has no column 'time', the time column"
    assert (error.place, error.hint) == (str(path), "did you mean 'tiem'?")
    log.write("a.parquet", PLAIN)
    error = log.refused(columns=schema(b1="int64"))
    assert error.problem == "the file has no column 'b1'"
    assert error.hint == "its columns are: a, s, time, diff"


@pytest.mark.parametrize(
    ("declared", "found"),
    [("int32", "int64"), ("string", "int64"), ("float64", "int64"), ("uint64", "int64"), ("decimal(18, 0)", "int64")],
)
def test_another_type(log, declared, found):
    path = log.write("a.parquet", PLAIN)
    error = log.refused(columns=schema(a=declared))
    assert error.problem == f"column 'a' is {found}, but the pipeline declares {declared}"
    assert error.place == str(path)


def test_a_type_that_no_record_can_have(log):
    log.write("a.parquet", PLAIN.with_columns(a=pl.concat_list("a").list.to_array(1)))
    assert "a type that records can't have" in log.refused().problem


def test_a_check_and_a_run_take_the_same_types_of_arrow(log, tmp_path):
    """Decimals of more than 38 digits are no damage; UUIDs are binary."""
    path, few, many = log.write("a.parquet", PLAIN), pa.decimal256(38, 2), pa.decimal256(39, 2)
    for column, problem in (
        (pa.array([1, None], few), None),
        (pa.array([1, None], many), "column 'a' is decimal(39, 2), a type that records can't have"),
        (pa.array([b"a" * 16, None], pa.uuid()), None),
        (pa.array([1, None], pa.int64()).cast(pa.decimal128(20, 0)), None),
    ):
        pq.write_table(pa.table({"a": column, "time": [0, 1], "diff": [1, 1]}), path)
        checked = Footers(None, {}).footer(path)["a"]
        if problem is None:
            assert log.reader().schema.columns["a"] == checked
        else:
            assert isinstance(checked, Unfit)
            assert log.refused().problem == problem
            pq.write_table(pa.table({"a": column, "time": [0, 1], "diff": [1, 1]}), path, store_schema=False)
            assert log.refused().problem == problem


def test_times_and_diffs_of_wrong_types(log):
    log.write("a.parquet", PLAIN.cast({"time": pl.Float64}))
    assert log.refused().problem == "the time column 'time' is float64"
    log.write("a.parquet", PLAIN.cast({"diff": pl.Float64}))
    assert log.refused().problem == "column 'diff' is float64, but a diff is int64"


def test_files_that_disagree(log):
    log.write("a.parquet", PLAIN)
    path = log.write("b.parquet", PLAIN.cast({"a": pl.Int32}))
    assert log.refused().problem == "column 'a' is int32, but the log's other files have int64"
    log.write("b.parquet", PLAIN.with_columns(b=1))
    assert "has a column 'b' that the log's other files don't have" in log.refused().problem
    log.write("b.parquet", PLAIN.drop("s"))
    assert "no column 's'" in log.refused().problem
    log.write("b.parquet", PLAIN.drop("diff"))
    for columns in (None, schema(a="int64")):
        error = log.refused(columns=columns)
        assert "the file has no diff column 'diff', unlike the log's other files" in error.problem
        assert error.place == str(path)
    log.write("b.parquet", PLAIN.with_columns(time=date(2013, 1, 1)))
    assert log.refused().problem == "column 'time' is date, but the log's other files have int64"


def test_a_new_file_must_be_like_those_of_earlier_runs(log):
    log.write("a.parquet", PLAIN)
    reader = log.reader()
    consumed = Read(reader, [], None, ((8,),)).files
    log.write("b.parquet", PLAIN.cast({"a": pl.Float64}))
    assert "the log's other files have int64" in log.refused(consumed=consumed, known=reader.schema).problem


def test_nulls_name_file_column_and_row(log):
    log.write("a.parquet", PLAIN)
    path = log.write("b.parquet", PLAIN.with_columns(a=pl.Series([1, None, None])))
    error = log.refused(columns=schema(a="int64"))
    assert error.problem == "column 'a' has a null, first in row 1 (counted from 0)"
    assert error.place == str(path)
    assert "int64?" in error.hint
    error = log.refused(columns=schema(a="int64"), upper=((7,),))  # also of a file that is read in part
    assert error.problem == "column 'a' has a null, first in row 1 (counted from 0)"
    assert len(Read(log.reader(columns=schema(a="int64?")), ["a"], None, ((8,),)).updates) == 6
    log.write("b.parquet", PLAIN.with_columns(time=pl.Series([5, 6, None])))
    assert log.refused().problem == "time column 'time' has a null, first in row 2 (counted from 0)"
    log.write("b.parquet", PLAIN.with_columns(diff=pl.Series([None, 1, None], dtype=pl.Int64)))
    error = log.refused()
    assert error.problem == "diff column 'diff' has a null, first in row 0 (counted from 0)"
    assert error.place == str(path)


def test_late_rows_and_nulls_are_found_where_times_are_not_kept(log):
    log.write("a.parquet", pl.DataFrame({"a": range(6), "time": [5, 6, 7, 8, 9, 4]}))
    reader = LogReader(log.listing(), Updates(), most=2)
    assert reader.largest_time() == (9,)
    with pytest.raises(InputError, match=r"late rows: row 5 \(counted from 0\) has the time 4, which is before 5"):
        reader.take(["a"], ((5,),), ((9,),), 2)
    read = Read(reader, ["a"], None, ((9,),), 2)
    assert rows(read) == [(0, 5, 1), (1, 6, 1), (2, 7, 1), (3, 8, 1), (5, 4, 1)]
    assert len(read.slices) == 3
    log.write("a.parquet", pl.DataFrame({"a": range(6), "time": [5, 6, 7, None, 9, 4]}))
    for most in (None, 2):
        reader = LogReader(log.listing(), Updates(), most=most)
        with pytest.raises(InputError, match="has a null, first in row 3"):
            reader.largest_time()


@pytest.mark.parametrize(("most", "reads"), [(None, 0), (100, 0), (9, 0), (8, 3), (2, 3)])
def test_a_file_of_text_is_read_once_for_its_times(log, monkeypatch, most, reads):
    """All together where no more rows are kept than the look for damage has counted; else each for its ends alone."""
    log.root.mkdir()
    for at in range(3):
        (log.root / f"{at}.csv").write_text("a,time\n" + "".join(f"{at},{at * 10 + row}\n" for row in range(3)))
    read, collect = [], pl.LazyFrame.collect

    def counted(scan, *given, **options):
        read.append(scan)
        return collect(scan, *given, **options)

    monkeypatch.setattr(pl.LazyFrame, "collect", counted)
    reader = LogReader(log.listing(), Updates(columns=schema(a="int64", time="int64")), most=most)
    read.clear()
    assert reader.largest_time() == (22,)
    assert len(read) == reads, "few rows are read together"
    monkeypatch.undo()
    taken = Read(reader, ["a"], None, ((21,),), 2)
    assert sorted(rows(taken)) == [(at, at * 10 + row, 1) for at in range(3) for row in range(3) if at * 10 + row < 21]


def test_slices_are_read_side_by_side(log):
    for at in range(3):
        log.write(f"{at}.parquet", pl.DataFrame({"a": range(at * 10, at * 10 + 10), "time": 0}))
    taken = log.reader().take(["a"], None, ((1,),), 4)
    with ThreadPoolExecutor(4) as threads:
        reads = list(threads.map(lambda part: part.matrix(Layout(schema(a="int64")), Pool(SECRET)), taken.slices))
    assert [len(read) for read in reads] == [part.rows for part in taken.slices] == [4, 4, 2] * 3
    assert np.concatenate(reads)[:, 0].tolist() == list(range(30))
    assert taken.rows == 30


def test_late_rows(log):
    log.write("a.parquet", PLAIN)
    consumed = Read(log.reader(), [], None, ((8,),)).files
    path = log.write("b.parquet", pl.DataFrame({"a": [1, 2], "s": ["", ""], "time": [8, 7], "diff": [1, 1]}))
    error = log.refused(consumed=consumed, lower=((8,),))
    assert error.problem.startswith("late rows: row 1 (counted from 0) has the time 7, which is before 8")
    assert error.place == str(path)


def test_late_rows_show_times_as_people_write_them(log):
    log.write("a.parquet", pl.DataFrame({"a": [1], "time": [date(2013, 1, 1)]}))
    assert "has the time 2013-01-01, which is before 2013-01-02" in log.refused(lower=((15707,),)).problem
    log.write("a.parquet", pl.DataFrame({"a": [1], "time": [datetime(1970, 1, 1, 0, 0, 1)]}))
    assert (
        "has the time 1970-01-01 00:00:01, which is before 1970-01-01 00:00:02"
        in log.refused(lower=((2_000_000,),)).problem
    )
    assert "before the end" in log.refused(lower=()).problem


def test_values_out_of_range(log):
    path = log.write("a.parquet", pl.DataFrame({"a": [1, 2], "time": [0, 2**63]}, schema_overrides={"time": pl.UInt64}))
    error = log.refused()
    assert (
        error.problem
        == "column 'time' has a value out of the range of int64: 9223372036854775808, first in row 1 (counted from 0)"
    )
    assert error.place == str(path)
    far = pl.DataFrame({"a": [datetime(2013, 1, 1), datetime(9013, 1, 1)], "time": [0, 0]})
    log.write("a.parquet", far)
    assert "out of the range of datetime[ns]: 9013-01-01" in log.refused(columns=schema(a="datetime[ns]")).problem


def test_a_file_that_goes_away_meanwhile(log):
    path = log.write("a.parquet", PLAIN)
    listing = log.listing()
    reader = LogReader(listing, Updates())
    reader.largest_time()
    path.unlink()
    with pytest.raises(InputError, match="can't be read"):
        Read(reader, ["a"], None, ((8,),))
    with pytest.raises(InputError, match="can't be read"):
        LogReader(listing, Updates())
    log.write("a.parquet", PLAIN)
    reader = LogReader(listing, Updates())
    reader.largest_time()
    log.write("a.parquet", PLAIN.head(2))
    with pytest.raises(InputError, match="changed while it was read"):
        Read(reader, ["a"], None, ((8,),))


def test_late_rows_of_product_times_are_moved_to_the_lattice_join_with_the_first_open_time(log):
    log.write("a.parquet", pl.DataFrame({"a": [1, 2, 3], "x": [0, 2, 5], "y": [1, 0, 1]}))
    reader = LogReader(log.listing(), Append(("x", "y"), late="arrive"))
    taken = reader.take(["a"], ((3, 0), (0, 4)), ((9, 0),), 2)
    assert taken.late == 2
    assert [row for part in taken.slices for row in part.read().times.rows()] == [(3, 1), (3, 0), (5, 1)]
    reader = LogReader(log.listing(), Append(("x", "y"), late="quarantine"))
    taken = reader.take([], ((3, 0), (0, 4)), ((9, 0),), 2)
    assert [row for part in taken.slices for row in part.read().times.rows()] == [(5, 1)]
    assert [row for part in taken.put_aside for row in part.read().frame.rows()] == [(1,), (2,)]
    with pytest.raises(InputError, match="before the end: the input was closed"):
        reader.take([], (), (), 2)


@pytest.mark.parametrize("most", [2, 5, 100])
def test_rows_are_found_by_a_condition_in_files_that_are_read_together(log, most):
    """Files of one kind are read together: each row has its number in its own file."""
    frames = [
        pl.DataFrame({"a": [1, 2, 1], "time": [5, 6, 7]}),
        pl.DataFrame({"a": [], "time": []}, {"a": pl.Int64, "time": pl.Int64}),
        pl.DataFrame({"a": [2, 3], "time": [5, 6]}),
        pl.DataFrame({"a": [3, 1, 1, 1, 2, 1], "time": [5, 6, 7, 8, 9, 10]}),
        pl.DataFrame({"time": [7], "a": [1]}),
    ]
    for at, frame in enumerate(frames):
        log.write(f"{at}.parquet", frame)
    reader = LogReader(log.listing(), Append())
    condition = RowCondition(
        parse_scalar(Text("a = 1", Span("", 1, 1, 5, "a = 1")), ColumnScope(schema(a="int64"))),
        frozenset({"a", "time"}),
    )
    found = [(file.path, numbers) for file, numbers in reader.where(condition, most)]
    assert found == [
        (f"{at}.parquet", [row for row, a in enumerate(frame["a"]) if a == 1]) for at, frame in enumerate(frames)
    ]
