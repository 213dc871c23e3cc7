"""Rows that can't be read, put aside: what the side log says of each kind of fault, and what is refused still. `tests/judge/test_unparsed.py` draws others."""

import json
from collections import Counter

import openpyxl
import polars as pl
import pytest
import yaml

from ddcli.driver.run import run
from ddcli.errors import InputError
from tests.harness import contents

EVENTS = [
    {"before": None, "after": {"id": 1, "v": 1.5}, "op": "c", "ts_ms": 1, "source": {"lsn": 1}},
    {"before": None, "after": {"id": "x", "v": 1.5}, "op": "c", "ts_ms": 1, "source": {"lsn": 2}},
    {"before": None, "after": "text", "op": "c", "ts_ms": 1, "source": {"lsn": 3}},
    {"before": None, "after": [1], "op": "c", "ts_ms": 2, "source": {"lsn": 4}},
    {"before": 0, "after": {"id": 2, "v": 2}, "op": "c", "ts_ms": 2, "source": {"lsn": 5}},
    {"before": None, "after": {"id": 3, "v": 3}, "op": "z", "ts_ms": 2, "source": {"lsn": 6}},
    {"before": {"id": 1, "v": 1.5}, "after": {"id": 1}, "op": "u", "ts_ms": 2, "source": {"lsn": 7}},
    {"before": {"id": 1, "v": 1.5}, "after": None, "op": "d", "ts_ms": "now", "source": {"lsn": 8}},
    {"before": {"id": 1, "v": 1.5}, "after": {"id": 1, "v": 4}, "op": "u", "ts_ms": 3, "source": {"lsn": 9}},
]
FAULTS = [
    (2, "after.id", "x", "no int64"),
    (3, "after", '"text"', "no JSON object"),
    (4, "after", "[1]", "no JSON object"),
    (5, "before", "0", "no JSON object"),
    (6, None, None, "the op 'z' is not a known change of a row"),
    (7, "v", None, "a null, where none may be"),
    (8, "ts_ms", "now", "no int64"),
]


def pipeline(folder, **given):
    said = {"clock": "event", "errors": "quarantine", "outputs": {"a": "out/"}}
    said["inputs"] = {"a": {"path": "in/", "columns": {"id": "int64", "v": "decimal(9, 2)"}, **given}}
    (folder / "in").mkdir(exist_ok=True)
    (folder / "p.yaml").write_text(yaml.safe_dump(said))
    return folder / "p.yaml"


def faults(folder):
    paths = sorted((folder / ".dd/p/errors/_unparsed/a").glob("*.parquet"))
    assert all((pl.read_parquet(path)["diff"] == 1).all() for path in paths)
    return pl.concat([pl.read_parquet(path) for path in paths]).sort("file", "line")


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("enveloped", [False, True])
def test_events(tmp_path, keyed, enveloped):
    path = pipeline(tmp_path, format="debezium", **({"key": "id"} if keyed else {}))
    events = [{"schema": {}, "payload": event} for event in EVENTS] if enveloped else EVENTS
    (tmp_path / "in/1.ndjson").write_text("".join(json.dumps(event) + "\n" for event in events))
    summary = run(path)
    found = faults(tmp_path)
    assert found.select("line", "column", "text", "reason").rows() == FAULTS
    assert summary.inputs["a"].unparsed == len(FAULTS)
    assert found.row(-1, named=True)["id"] == 1
    assert sorted(contents(tmp_path / "out").items()) == [((1, pl.Series([4]).cast(pl.Decimal(9, 2))[0]), 1)]


def test_the_log_has_all_digits_of_a_row_that_is_put_aside(tmp_path):
    path = pipeline(tmp_path, format="debezium", key="id", columns={"id": "int64", "v": "decimal(38, 10)"})
    number = "12345678901234567890.1234567891"
    lines = [json.dumps(EVENTS[0]), json.dumps(EVENTS[4]).replace('"v": 2}', f'"v": {number}}}')]
    (tmp_path / "in/1.ndjson").write_text("\n".join(lines))
    run(path)
    assert [str(value) for value in faults(tmp_path)["v"]] == [number]


def test_workbooks_and_columns_named_as_those_of_the_log(tmp_path):
    path = pipeline(tmp_path, format="append", time="day", columns={"file": "int64", "file_": "bool", "day": "date"})
    book = openpyxl.Workbook()
    for row in (["file", "file_", "day"], [1, True, "2024-01-01"], ["x", True, "2024-01-01"], [3, "?", "2024-02-30"]):
        book.active.append(row)
    book.save(tmp_path / "in/1.xlsx")
    run(path)
    found = faults(tmp_path)
    assert found.columns == ["file", "line", "column", "text", "reason", "file__", "file_", "time", "diff"]
    days = [str(day) for day in found["time"]]
    assert found.drop("time", "diff").rows() == [
        ("1.xlsx", 3, "file", "x", "no int64", None, True),
        ("1.xlsx", 4, "file_", "?", "no bool", 3, None),
    ]
    assert days == ["2024-01-01", "2024-01-01"], "a time that can't be read is the last that the run closes"


def test_all_that_a_run_has_may_be_unreadable_but_not_the_first(tmp_path):
    path = pipeline(tmp_path, format="append")
    (tmp_path / "in/1.csv").write_text("id,v,time\n1,x,1\n2,,2\n")
    with pytest.raises(InputError, match=r"no row can be read; the first: column 'v': 'x' is no decimal\(9, 2\)"):
        run(path)
    (tmp_path / "in/2.csv").write_text("id,v,time\n1,5,1\n")
    assert run(path).inputs["a"].unparsed == 2
    (tmp_path / "in/3.csv").write_text("id,v,time\n1,x,x\n")
    summary = run(path)
    assert (summary.changed, summary.lower, summary.inputs["a"].unparsed) == (True, summary.upper, 1)
    assert not run(path).changed
    assert len(faults(tmp_path)) == 3


def test_a_file_that_is_not_whole_is_refused_still(tmp_path):
    path = pipeline(tmp_path, format="append")
    (tmp_path / "in/1.csv").write_text("id,v,time\n1,2\n1,2,3\n")
    with pytest.raises(InputError, match="the line has 2 fields"):
        run(path)
    (tmp_path / "in/1.csv").unlink()
    (tmp_path / "in/1.ndjson").write_text('{"id": 1, "v": 1, "time": 1}\n{"id": \n')
    with pytest.raises(InputError, match="not JSON"):
        run(path)


@pytest.mark.parametrize("other", ["1", '"x"'])
def test_json_that_is_not_utf_8_is_refused_still(tmp_path, other):
    """Whether or not another value is to be put aside."""
    path = pipeline(tmp_path, format="append", time="id", columns={"id": "int64", "s": "string"})
    (tmp_path / "in/1.ndjson").write_bytes(b'{"id": 1, "s": "a\x80"}\n{"id": ' + other.encode() + b', "s": "b"}\n')
    with pytest.raises(InputError, match="the line is not UTF-8"):
        run(path)


def test_a_late_deletion_has_nulls_where_its_row_has(tmp_path):
    columns = {"id": "int64", "op": "string", "name": "string", "v": "int64"}
    path = pipeline(tmp_path, format="upsert", key=["id"], delete_when="op = 'D'", late="quarantine", columns=columns)
    (tmp_path / "in/1.csv").write_text("id,op,name,v,time\n1,U,x,5,4\n")
    run(path)
    (tmp_path / "in/2.csv").write_text("id,op,name,v,time\n1,D,,,1\n2,D,y,0,1\n")
    run(path)
    (late,) = (tmp_path / ".dd/p/late/a").glob("*.parquet")
    assert pl.read_parquet(late).select("op", "id", "name", "v", "time", "diff").rows() == [
        ("D", 1, None, None, 1, 1),
        ("D", 2, "y", 0, 1, 1),
    ]


@pytest.mark.parametrize("clock", ["arrival", "event"])
def test_files_that_are_withdrawn_or_mended_take_their_rows_out_of_the_log(tmp_path, clock):
    path = pipeline(tmp_path, format="append")
    path.write_text(path.read_text().replace("clock: event", f"clock: {clock}"))
    files = {name: tmp_path / f"in/{name}.csv" for name in "abc"}
    for name, file in files.items():
        file.write_text(f"id,v,time\n1,1,1\n2,{name},1\n3,3,soon\n")
    run(path)
    bad = 2 if clock == "event" else 1
    files["b"].write_text("id,v,time\n1,1,5\n2,2,5\n3,x,6\n")
    run(path, withdraw=[files["b"]])
    assert texts(tmp_path) == {("a.csv", "a"): 1, ("b.csv", "x"): 1, ("c.csv", "c"): 1} | (
        {("a.csv", "soon"): 1, ("c.csv", "soon"): 1} if bad == 2 else {}
    )
    files["c"].write_text("id,v,time\n1,1,1\n")
    run(path, refresh=frozenset())
    assert {file for file, _ in texts(tmp_path)} == {"a.csv", "b.csv"}
    assert sum(texts(tmp_path).values()) == bad + 1


def texts(folder):
    found = Counter()
    for path in (folder / ".dd/p/errors/_unparsed/a").glob("*.parquet"):
        for file, text, diff in pl.read_parquet(path).select("file", "text", "diff").iter_rows():
            found[file, text] += diff
    return {key: diff for key, diff in found.items() if diff}
