"""What may be a side: files of every kind, logs, directories, mixed; and what is said of text's types."""

import gzip
import json

import polars as pl
import pytest

from ddcli import diff
from ddcli.compare import sides
from ddcli.errors import DdError, InputError, UsageError
from tests.draws import some

ROWS = pl.DataFrame(
    {
        "id": [1, 2, 3],
        "name": ["x", None, 'z, "q"'],
        "amount": [1.5, 2.0, None],
        "day": ["2024-01-01", "2024-01-02", None],
    }
)
TYPED = ROWS.with_columns(pl.col("day").str.to_date())


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, frame):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        {
            ".parquet": frame.write_parquet,
            ".csv": frame.write_csv,
            ".ndjson": frame.write_ndjson,
            ".jsonl": frame.write_ndjson,
            ".arrow": frame.write_ipc,
        }[path.suffix](path)


KINDS = ["a.parquet", "a.csv", "a.csv.gz", "a.ndjson", "a.jsonl", "a.arrow"]


@pytest.mark.in_turn
@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("other", [*some(KINDS)])
def test_kinds_of_files_mix(folder, one, other):
    write(folder / "one" / one, TYPED)
    write(folder / "other" / other, TYPED)
    found = diff(folder / "one", folder / "other" / other, key="id")
    assert found.same, (found.columns, found.added, found.removed)
    assert (found.a.rows, found.b.rows, found.same_rows) == (3, 3, 3)
    changed = TYPED.with_columns(pl.col("amount").fill_null(7.0))
    write(folder / "other" / other, changed)
    found = diff(folder / "one", folder / "other" / other, key="id")
    assert found.cells == {"name": 0, "amount": 1, "day": 0}
    assert found.changed.row(0, named=True)["new.amount"] == 7.0


def test_text_takes_the_types_of_the_other_side(folder):
    write(folder / "a.csv", ROWS.with_columns(pl.col("id").cast(pl.String).str.zfill(3)))
    write(folder / "b.parquet", TYPED.with_columns(pl.col("amount").cast(pl.Decimal(9, 3))))
    found = diff("a.csv", "b.parquet")
    assert found.same
    assert found.notes == ("A is text: types of B",)


@pytest.mark.in_turn
@pytest.mark.parametrize("together", [sides.TOGETHER, 2])
def test_text_alone_has_the_narrowest_types_in_which_all_its_values_can_be_read(folder, monkeypatch, together):
    monkeypatch.setattr(sides, "TOGETHER", together)
    (folder / "a.csv").write_text(
        "id,zip,amount,day,at,zoned,flag,big,empty\n"
        "1,01234,1,2024-01-01,2024-01-01 10:00,2024-01-01T10:00:00Z,true,9223372036854775808,\n"
    )
    (folder / "b.csv").write_text(
        "id,zip,amount,day,at,zoned,flag,big,empty\n"
        "1,1234,1e0,2024-01-01,2024-01-01 10:00:00.000,2024-01-01 11:00:00+01:00,true,9223372036854775809,\n"
    )
    found = diff("a.csv", "b.csv", key="id")
    types = (
        "id int64, zip string, amount float64, day date, at datetime[us], zoned datetime[us, UTC], flag bool, "
        "big string, empty string"
    )
    assert found.notes == (f"both sides are text: types inferred: {types}",)
    assert set(+found.cells) == {"zip", "big"}


@pytest.mark.parametrize("ending", ["csv", "ndjson"])
def test_more_columns_of_text_than_can_be_compared_are_refused(folder, monkeypatch, ending):
    monkeypatch.setattr(sides, "MOST_OF_TEXT", 2)
    for side in "ab":
        frame = pl.DataFrame({"k": [1], "v": [2], "w": [3 if side == "a" else 4]})
        getattr(frame, f"write_{ending}")(folder / f"{side}.{ending}")
        frame.write_parquet(folder / f"{side}.parquet")
    with pytest.raises(InputError, match="it has 3 columns of text, and at most 2 can be compared"):
        diff(f"a.{ending}", f"b.{ending}", key="k")
    assert diff(f"a.{ending}", f"b.{ending}", key="k", ignore=["w"]).same
    assert not diff("a.parquet", "b.parquet", key="k").same


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["0", "-7", "123456789012345678"], "int64"),
        (["1234567890123456789"], "string"),
        (["0.00001234567890123456", "511.8216247002567", "1e-7", "-0.0", "3"], "float64"),
        (["1234567890123456.5"], "string"),
        (["00.5"], "string"),
        (["+1"], "string"),
        (["true", "false"], "bool"),
        (["true", "1"], "string"),
        (["2024-02-29"], "date"),
        (["2023-02-29"], "string"),
        (["2024-02-29 10:00", "2024-02-29"], "string"),
        ([*["1"] * 20_000, "x"], "string"),
    ],
)
def test_types_that_values_allow(folder, texts, kind):
    for name in ("a.csv", "b.csv"):
        (folder / name).write_text("v\n" + "".join(f"{text}\n" for text in texts))
    assert diff("a.csv", "b.csv").notes[0] == f"both sides are text: types inferred: v {kind}"


def test_text_of_moments_with_a_zone(folder):
    moments = pl.Series(["2024-01-01 10:00", "2024-06-01 10:00", None]).str.to_datetime(time_zone="UTC")
    for zone in ("UTC", "Europe/Berlin"):
        write(folder / "a.parquet", pl.DataFrame({"id": [1, 2, 3], "at": moments.dt.convert_time_zone(zone)}))
        (folder / "b.csv").write_text("id,at\n1,2024-01-01T10:00:00Z\n2,2024-06-01 12:00:00+0200\n3,\n")
        assert diff("a.parquet", "b.csv").same
        write(folder / "c.csv", pl.read_parquet("a.parquet"))
        assert diff("a.parquet", "c.csv").same
    (folder / "b.csv").write_text("id,at\n1,2024-01-01T10:00:00Z\n2,soon\n")
    with pytest.raises(InputError, match="'soon' in column"):
        diff("a.parquet", "b.csv")


def test_text_that_the_other_sides_type_does_not_hold_is_refused_at_its_line(folder):
    write(folder / "b.parquet", TYPED)
    (folder / "a.csv").write_text("id,name,amount,day\n1,x,1.5,2024-01-01\n2,y,n/a,\n")
    with pytest.raises(InputError) as told:
        diff("a.csv", "b.parquet", key="id")
    assert str(told.value) == (
        "a.csv:3: error: 'n/a' in column 'amount' can't be read as float64\n"
        "hint: the type is the other side's: correct the file, or leave the column out with `--ignore`"
    )
    assert diff("a.csv", "b.parquet", key="id", ignore=["amount"]).counts == {"changed": 1, "added": 1}


def test_a_table_in_many_files_and_partitions(folder):
    for at in range(6):
        write(folder / f"whole/year={2020 + at % 2}/{at}.parquet", pl.DataFrame({"id": [at], "v": [at]}))
    write(folder / "one.parquet", pl.DataFrame({"id": range(6), "v": range(6), "year": [2020, 2021] * 3}))
    found = diff("whole", "one.parquet", key="id")
    assert found.same
    assert found.a.kind == "Parquet, 6 files"
    assert diff("whole/*/[0-2].parquet", "one.parquet", key="id").counts == {"added": 3}


def log(path, rows, time=pl.Int64, **columns):
    write(path, pl.DataFrame(rows, schema={"id": pl.Int64, **columns, "time": time, "diff": pl.Int64}, orient="row"))


def test_a_log_as_of_two_times_and_against_a_table(folder):
    log(folder / "log/1.parquet", [(1, "a", 0, 1), (2, "b", 0, 1)], name=pl.String)
    log(folder / "log/2.parquet", [(1, "a", 5, -1), (1, "c", 5, 1), (3, "d", 7, 2)], name=pl.String)
    found = diff("log", "log", key="id", from_time=4, to_time=6)
    assert found.changed.rows() == [(1, "a", "c", 1)]
    assert (found.a.rows, found.b.rows) == (2, 2)
    assert found.a.kind == "change log as of 4"
    found = diff("log", "log", key="id", from_time=6)
    assert found.added.rows() == [(3, "d", 2)]
    assert found.b.repeated == 1
    write(folder / "now.csv", pl.DataFrame({"id": [1, 2], "name": ["c", "b"]}))
    assert diff("log", "now.csv", as_of=6).same


def test_a_log_without_diffs_is_one_if_its_time_is_named(folder):
    write(folder / "log.parquet", pl.DataFrame({"id": [1, 2], "day": [1, 2]}))
    assert diff("log.parquet", "log.parquet", time=["day"], from_time=1, to_time=2).added["id"].to_list() == [2]
    assert diff("log.parquet", pl.DataFrame({"id": [1], "day": [1]})).counts == {"removed": 1}


def test_a_time_at_which_a_log_may_still_change_is_said(folder):
    log(folder / "log/1.parquet", [(1, 0, 1)])
    (folder / "log/_progress.json").write_text('{"upper": [[5]]}')
    assert diff("log", "log", from_time=4, to_time=5).notes == (
        "log is complete before 5: as of 5 it may still change",
    )


def test_a_log_in_text(folder):
    (folder / "log.csv").write_text("id,time,diff\n1,2024-01-01,1\n2,2024-01-02,1\n1,2024-01-03,-1\n")
    write(folder / "now.ndjson", pl.DataFrame({"id": [2]}))
    assert diff("log.csv", "now.ndjson").same
    assert diff("log.csv", "now.ndjson", as_of="2024-01-02").removed.rows() == [(1, 1)]


def test_a_log_of_a_product_time(folder):
    rows = [(1, 0, 0, 1), (2, 0, 1, 1), (3, 1, 0, 1)]
    schema = {"id": pl.Int64, "x": pl.Int64, "y": pl.Int64, "diff": pl.Int64}
    write(folder / "log/1.parquet", pl.DataFrame(rows, schema=schema, orient="row"))
    found = diff("log", "log", time=["x", "y"], from_time="0,1", to_time="1,0")
    assert (found.removed["id"].to_list(), found.added["id"].to_list()) == ([2], [3])
    assert {name: value[0] for name, value in found.at.items()} == {"x": 1, "y": 0}


def test_a_log_without_files_is_empty_whatever_its_columns(folder):
    (folder / "empty").mkdir()
    (folder / "empty/_progress.json").write_text('{"upper": [[7]]}')
    log(folder / "log/1.parquet", [(1, 0, 1)])
    assert diff("empty", "log").counts == {"added": 1}
    assert diff("log", "empty", key="id").counts == {"removed": 1}
    assert diff("empty", "empty").same


def test_a_sum_of_diffs_that_is_too_large_is_an_error(folder):
    log(folder / "log/1.parquet", [(1, 0, 2**62), (1, 0, 2**62)])
    with pytest.raises(DdError, match="out of the range"):
        diff("log", "log", to_time=-1)


def test_files_of_the_same_bytes_are_the_same(folder):
    for name in ("one", "other"):
        write(folder / name / "a.parquet", TYPED)
        write(folder / name / "b.parquet", TYPED)
    found = diff("one", "other", key="id")
    assert found.same
    assert found.notes == ("the files of both sides are the same, byte for byte",)
    assert (found.a.rows, found.b.rows, found.same_rows) == (6, 6, 6)
    with pytest.raises(UsageError):
        diff("one", "other", key="idd")


def test_files_of_the_same_bytes_in_other_partitions_are_not_the_same(folder):
    write(folder / "one/year=2020/a.parquet", TYPED)
    write(folder / "other/year=2021/a.parquet", TYPED)
    assert diff("one", "other", key="id").cells == {"name": 0, "amount": 0, "day": 0, "year": 3}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "there is no file or directory 'side'"),
        (lambda folder: (folder / "side").mkdir(), "there are no data files"),
        (
            lambda folder: (write(folder / "side/1.csv", ROWS), write(folder / "side/2.parquet", ROWS)),
            "several kinds: CSV, Parquet",
        ),
        (
            lambda folder: (write(folder / "side/1.parquet", ROWS), write(folder / "side/2.parquet", TYPED)),
            "has a column 'day' of date, and the first file one of string",
        ),
        (lambda folder: (folder / "side").write_bytes(b"PAR1 not"), "not whole Parquet"),
        (lambda folder: (folder / "side").write_bytes(b""), "the file is empty"),
        (lambda folder: ((folder / "side").mkdir(), (folder / "side/1.csv").write_text("")), "empty"),
        (
            lambda folder: ((folder / "side").mkdir(), (folder / "side/1.csv").write_text("id,v\n1,2,3\n")),
            "the line has 3 fields, the header 2",
        ),
        (
            lambda folder: ((folder / "side").mkdir(), (folder / "side/1.ndjson").write_text('{"id": 1}\n{"id"')),
            "not JSON",
        ),
    ],
)
def test_what_can_not_be_read_is_refused(folder, make, said):
    make(folder)
    write(folder / "b.csv", ROWS)
    for both in (("side", "b.csv"), ("b.csv", "side")):
        with pytest.raises(InputError) as told:
            diff(*both)
        assert said in told.value.problem
        assert told.value.place


def test_a_page_that_is_damaged_is_told_with_its_file(folder):
    write(folder / "a.parquet", pl.DataFrame({"id": range(100_000)}))
    write(folder / "b.parquet", pl.DataFrame({"id": range(1, 100_001)}))
    data = bytearray((folder / "a.parquet").read_bytes())
    data[100:3000] = b"\xff" * 2900
    (folder / "a.parquet").write_bytes(data)
    with pytest.raises(InputError) as told:
        diff("a.parquet", "b.parquet")
    assert told.value.place == f"{folder}/a.parquet"


def test_json_objects_without_a_key_have_null_there(folder):
    (folder / "a.ndjson").write_text('{"id": 1}\n{"id": 2, "v": 3}\n')
    (folder / "b.ndjson").write_text('{"id": 1, "v": null}\n{"v": 3, "id": 2}\n')
    assert diff("a.ndjson", "b.ndjson", key="id").same


def test_a_lazy_frame_and_a_file(folder):
    write(folder / "a.parquet", TYPED)
    assert diff(TYPED.lazy(), "a.parquet").same
    assert json.loads(json.dumps(diff(TYPED, "a.parquet").a.to_json()))["name"] == "A"


def test_files_of_csv_have_the_same_columns_in_any_order(folder):
    write(folder / "parts/0.csv", ROWS.head(2))
    write(folder / "parts/1.csv", ROWS.tail(1).select(reversed(ROWS.columns)))
    write(folder / "whole.csv", ROWS)
    assert diff("parts", "whole.csv").same
    write(folder / "parts/2.csv", ROWS.drop("name"))
    with pytest.raises(InputError) as caught:
        diff("parts", "whole.csv")
    assert "the file has no column 'name', and the first file one of string" in str(caught.value)
    assert "parts/2.csv" in str(caught.value)
