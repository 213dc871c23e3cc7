"""Bad input: each ends with its exit code, place, problem and hint, and leaves state and outputs as they were."""

import datetime as dt
import json
import os
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cases import cases
from tests.harness import files

LOG = {"k": pl.String, "v": pl.Int64, "w": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
GOOD = [("a", 1, None, 0, 1), ("b", 2, 5, 1, 1)]
HEAD = """\
dd: 1
name: p
inputs:
  t: {path: in/, columns: {k: string, v: int64, w: 'int64?'}}
collections:
  c:
    from: t
    apply:
"""
LARGE = 2**62


@pytest.fixture
def place(shop):
    """Return a function that runs a chain of operators over good input, then gives it something bad and runs it again.

    It checks the exit code, that nothing of state and outputs has changed, and returns what was said.
    """

    def run(apply, spoil, code=3, again=True):
        lines = "".join(f"      - {line}\n" for line in apply)
        shop.write("p.yaml", f"{HEAD}{lines}outputs: {{c: out/}}\n")
        shop.log("in/1.parquet", GOOD, **LOG)
        if again:
            assert shop("run", "p.yaml", "-q") == type(shop("--version"))(0, "", "")
        spoil(shop)
        before = files(*shop.kept)
        result = shop("run", "p.yaml")
        assert (result.code, result.out) == (code, ""), result
        assert files(*shop.kept) == before
        return result.err

    return run


def refusal(shop, text, code=2):
    """Return what a run of a pipeline over good input says, which refuses it."""
    shop.log("in/1.parquet", GOOD, **LOG)
    shop.write("p.yaml", text)
    result = shop("run", "p.yaml")
    assert result.code == code
    return result.err


def rows(*given, name="in/2.parquet"):
    """Return a way to spoil: one more file with these rows."""
    return lambda shop: shop.log(name, list(given), **LOG)


def frame(name="in/2.parquet", **columns):
    """Return a way to spoil: a file with these columns."""

    def write(shop):
        pl.DataFrame(columns).write_parquet(shop.folder / name)

    return write


def first(change):
    """Return a way to spoil: the file that is there, changed."""
    return lambda shop: change(shop.folder / "in/1.parquet")


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def change_unseen(path):
    """Change a file's footer but neither its size nor, as far as a listing shows, more than its time."""
    data = bytearray(path.read_bytes())
    data[-12] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(0, 0))


# what: operators, how the input is spoilt, place (below the folder), problem, hint
FILES = {
    "a file that is no Parquet": (
        lambda shop: shop.write("in/2.parquet", "PAR1, but not for long"),
        "in/2.parquet",
        "the file is not whole Parquet",
        "write the file again",
    ),
    "an empty file": (
        lambda shop: shop.write("in/2.parquet", ""),
        "in/2.parquet",
        "the file is empty",
        "write the file",
    ),
    "a column of another type": (
        frame(k=["a"], v=["x"], w=[1], time=[5], diff=[1]),
        "in/2.parquet",
        "column 'v' is string, but the pipeline declares int64",
        "write the column in that type",
    ),
    "a missing column": (
        frame(k=["a"], V=[1], w=[1], time=[5], diff=[1]),
        "in/2.parquet",
        "the file has no column 'v'",
        "`v: {type: int64, from: [V]}`",
    ),
    "a missing time": (frame(k=["a"], v=[1], w=[1], tiem=[5], diff=[1]), "in/2.parquet", "no column 'time'", "'tiem'"),
    "a null time": (
        rows(("a", 1, 1, 5, 1), ("a", 1, 1, None, 1)),
        "in/2.parquet",
        "time column 'time' has a null, first in row 1",
        "must have one",
    ),
    "a null diff": (
        rows(("a", 1, 1, 5, None)),
        "in/2.parquet",
        "diff column 'diff' has a null, first in row 0",
        "write `format: append`",
    ),
    "a null in a column declared without ?": (
        rows(("a", 1, 1, 5, 1), ("b", None, 1, 5, 1)),
        "in/2.parquet",
        "column 'v' has a null, first in row 1",
        'under the input\'s `columns`: `v: "int64?"`',
    ),
    "late rows": (
        rows(("a", 1, 1, 5, 1), ("a", 1, 1, 1, 1)),
        "in/2.parquet",
        "late rows: row 1 (counted from 0) has the time 1, which is before 2",
        "--until",
    ),
    "nothing but late rows": (rows(("a", 1, 1, 0, 1)), "in/2.parquet", "late rows: row 0", "--until"),
    "a truncated consumed file": (
        first(truncate),
        "in/1.parquet",
        "already read has changed: it had",
        "put the file back",
    ),
    "a consumed file of the same size": (
        first(change_unseen),
        "in/1.parquet",
        "it has the same size and other content",
        "put the file back",
    ),
    "a vanished consumed file": (first(Path.unlink), "in/1.parquet", "has vanished: '1.parquet'", "put the file back"),
}


def rewrite_unseen(path, mend=lambda frame: frame.with_columns(v=pl.col("v") + 1)):
    """Write a file again with other rows, of the same size and the same time."""
    stat = path.stat()
    mend(pl.read_parquet(path)).write_parquet(path)
    assert path.stat().st_size == stat.st_size
    os.utime(path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))


AGAIN = {
    "rows that waited": (["run", "p.yaml"], "", 3),
    "a changed pipeline": (["run", "p.yaml", "--until", "1", "--apply"], "  - filter: v > 0\n", 3),
    "one output anew": (["run", "p.yaml", "--until", "1", "--full-refresh", "c"], "", 3),
    "a plan": (["plan", "p.yaml"], "", 3),
    "why": (["why", "p.yaml", "c", "k=a"], "", 3),
    "all anew": (["run", "p.yaml", "--full-refresh", "all"], "", 0),
    "nothing to read": (["run", "p.yaml", "--until", "1"], "", 0),
}


@pytest.mark.parametrize("case", AGAIN)
def test_a_file_that_changed_within_its_time_is_refused_when_it_is_read_again(shop, case):
    command, more, code = AGAIN[case]
    shop.write(
        "p.yaml", f"{HEAD}    - filter: v < 99\noutputs: {{c: out/}}\n".replace("    apply:\n", "    apply:\n  ")
    )
    shop.log("in/1.parquet", GOOD, **LOG)
    assert shop("run", "p.yaml", "--until", "1", "-q").code == 0
    rewrite_unseen(shop.folder / "in/1.parquet")
    text = (shop.folder / "p.yaml").read_text()
    shop.write("p.yaml", text.replace("outputs:", f"{more and '    ' + more}outputs:"))
    before = files(*shop.kept)
    result = shop(*command)
    assert result.code == code, result
    if code:
        place, problem, hint = (
            "in/1.parquet",
            "it has the same size and other content",
            "put the file back",
        )
        assert result.err.startswith(f"{place}: error: a file that was already read has changed: {problem}\nhint: ")
        assert hint in result.err.partition("\nhint: ")[2]
        assert files(*shop.kept) == before


LAKE = "run p.yaml, plan p.yaml, check p.yaml, log in, diff in in, convert in out --format append, why p.yaml c k=a"


@pytest.mark.parametrize("command", LAKE.split(", "))
def test_a_table_with_a_log_is_refused_everywhere(shop, command):
    """A Delta table of two versions holds three rows, in files of four."""
    shop.write("p.yaml", f"{HEAD}      - filter: v > 0\noutputs: {{c: out/}}\n")
    write_deltalake(shop.folder / "in", pl.DataFrame([("a", 1, None, 0, 1), ("b", 2, 5, 1, 1)], LOG, orient="row"))
    DeltaTable(shop.folder / "in").delete("k = 'a'")
    result = shop(*command.split())
    said = result.err + result.out
    assert result.code == 3, said
    assert said.startswith("in: error: ") or "inputs.t: in: " in said
    assert "this is a table of Delta Lake: only its log, `_delta_log/`, knows which of its files count" in said
    assert "delta_scan" in said


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_is_named(place, shop, case):
    spoil, where, problem, hint = FILES[case]
    said = place(["reduce: {by: [k], s: sum(v), m: max(w)}"], spoil)
    assert said.startswith(f"{where.rstrip('/')}: error: ")
    assert problem in said.splitlines()[0]
    assert hint in said.partition("\nhint: ")[2]


def remove_input(shop):
    (shop.folder / "in/1.parquet").unlink()
    (shop.folder / "in").rmdir()


FIRST = {
    "a missing directory": (remove_input, "in", "there is no file or directory 'in/'"),
    "a truncated file": (first(truncate), "in/1.parquet", "the file is not whole Parquet"),
    "a damaged page": (
        first(lambda path: path.write_bytes(b"PAR1" + b"x" * 300 + path.read_bytes()[304:])),
        "in/1.parquet",
        "the file can't be read as Parquet",
    ),
}


@pytest.mark.parametrize("name", ["p.yaml", "rows.log", "rows"])
@pytest.mark.parametrize("command", ["log", "diff", "convert", "sql"])
def test_a_file_of_no_known_ending_is_said_to_be_read_as_parquet(shop, name, command):
    """A pipeline file is taken for a log, or text for a table: to write it again would not help."""
    shop.write("p.yaml", f"{HEAD}      - distinct\noutputs: {{c: out/}}\n")
    shop.write("rows.log", "a,b\n1,2\n")
    shop.write("rows", "a,b\n1,2\n")
    shop.log("in/1.parquet", GOOD, **LOG)
    given = {"log": [name], "diff": ["in", name], "convert": [name, "into"], "sql": [f"select * from '{name}'"]}
    result = shop(command, *given[command])
    if (command, name) == ("diff", "p.yaml"):
        assert "a pipeline file can only be compared with another one" in result.err
        return
    assert result.code == 3
    assert "the file is not whole Parquet" in result.err
    assert "\nhint: it is read as Parquet, as its name has none of the endings of other kinds: .arrow," in result.err


@pytest.mark.parametrize("case", FIRST)
def test_a_first_run_that_fails_leaves_no_output(place, shop, case):
    spoil, where, problem = FIRST[case]
    said = place(["distinct"], spoil, again=False)
    assert said.startswith(f"{where.rstrip('/')}: error: {problem}")
    assert "\nhint: " in said
    assert not (shop.folder / "out").exists()


def test_a_directory_without_parquet_files_tells_no_columns(shop):
    shop.write("p.yaml", "dd: 1\nname: p\ninputs: {t: in/}\noutputs: {t: out/}\n")
    shop.write("in/README", "soon")
    result = shop("run", "p.yaml")
    assert result.code == 3
    assert result.err.startswith("in: error: the log has no files yet, so its columns are unknown")
    shop.write("p.yaml", "dd: 1\nname: p\ninputs: {t: {path: in/, columns: {k: string}}}\noutputs: {t: out/}\n")
    assert shop("run", "p.yaml").code == 0


@pytest.mark.parametrize("name", ["*", "^k$"])
def test_names_that_stand_for_several_columns(shop, name):
    shop.log("in/1.parquet", [(1, 2, 0)], **{name: pl.Int64, "k": pl.Int64, "time": pl.Int64})
    text = "dd: 1\nname: p\ninputs: {t: {path: in/}}\ncollections: {c: {from: t, apply: [APPLY]}}\noutputs: {c: out/}\n"
    shop.write("p.yaml", text.replace("APPLY", "{project: [k]}"))
    result = shop("run", "p.yaml")
    assert (result.code, result.out) == (3, "")
    assert f"'{name}' can't be a column's name" in result.err
    shop.write("p.yaml", text.replace("APPLY", json.dumps({"map": {name: "k"}})))
    result = shop("check", "p.yaml")
    assert result.code == 2
    assert f"'{name}' can't be a column's name" in result.err
    shop.write("p.yaml", text.replace("APPLY", "{project: [k]}").replace("in/}", "in/, columns: {k: int64}}"))
    assert shop("run", "p.yaml", "-q").code == 0


# what: operator (on line 10), the row that fails, column, problem, hint
ROWS = {
    "integer overflow in a map": ("extend: {x: v * 3}", ("a", LARGE, 1, 5, 1), 21, f"integer overflow in `v * 3`, in the row where v = {LARGE}", "decimal"),
    "division by zero": ("filter: v / w > 1", ("a", 7, 0, 5, 1), 17, "division by zero in `v / w`, in the row where v = 7, w = 0", "try_divide"),
    "a cast to a type of several words": ("map: {x: 'cast(k as decimal(9, 2)) + 1'}", ("one", 3, 1, 5, 1), 19, "in `cast(k as decimal(9, 2))`, in the row where k = 'one'", "try_cast"),
    "a cast behind its value": ("map: {x: 'k::decimal(9, 2) + 1'}", ("one", 3, 1, 5, 1), 19, "in `k::decimal(9, 2)`, in the row where k = 'one'", "try_cast"),
    "a bad cast": ("map: {x: cast(k as int64)}", ("one", 3, 1, 5, 1), 18, "in `cast(k as int64)`, in the row where k = 'one'", "try_cast"),
    "integer overflow in a sum": ("reduce: {by: [k], n: count(*), s: sum(v)}", ("a", LARGE, 1, 5, 3), 47, "integer overflow in `sum(v)`, in the group where k = 'a'", "decimal(38, 0)"),
    "the same beside others": ("reduce: {by: [k], m: min(w), s: sum(v)}", ("a", LARGE, 1, 5, 3), 45, "integer overflow in `sum(v)`, in the group where k = 'a'", "decimal(38, 0)"),
    "the same of all": ("reduce: {by: [], s: sum(v + 1)}", ("a", LARGE, 1, 5, 3), 33, "integer overflow in `sum(v + 1)`", "decimal(38, 0)"),
    "a sum of decimals": ("reduce: {by: [k], s: 'sum(cast(v as decimal(38, 19)))'}", ("a", LARGE, 1, 5, 3), 35, "more than 38 digits in `sum(cast(v as decimal(38, 19)))`, in the group where k = 'a'", "decimal(38, 0)"),
    "a sum of decimals without a point": ("reduce: {by: [k], s: 'sum(v * cast(9999999999999999999.0 as decimal(19, 0)))'}", ("a", LARGE, 1, 5, 3), 35, "more than 38 digits in", "float64"),
    "a sum of uint64": ("reduce: {by: [k], s: 'sum(cast(v * 3.0 as uint64))'}", ("a", LARGE, 1, 5, 3), 35, "a value is out of range for int64", "sum(cast(cast(v * 3.0 as uint64) as decimal(38, 0)))"),
    "arithmetic of uint64": ("map: {x: 'cast(v * 3.0 as uint64) + 1'}", ("a", LARGE, 1, 5, 3), 19, "a value is out of range for int64", "cast it to decimal(20, 0)"),
    "a sum of a list of uint64": ("map: {x: 'list_sum([cast(v * 3.0 as uint64)])'}", ("a", LARGE, 1, 5, 3), 19, "the sum is out of the range of int64", ""),
    "the same of a key": ("reduce: {by: [v], s: sum(v)}", ("a", LARGE, 1, 5, 3), 34, f"integer overflow in `sum(v)`, in the group where v = {LARGE}", "decimal(38, 0)"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS)
def test_a_row_that_an_expression_fails_on_is_shown(place, case):
    operator, row, column, problem, hint = ROWS[case]
    said = place(["filter: v > 2", operator], rows(row)).splitlines()
    assert said[0].startswith(f"p.yaml:10:{column}: error: ")
    assert problem in said[0]
    assert said[-1].startswith("hint: ")
    assert hint in said[-1]


def test_distinct_values_whose_sum_is_too_large(place):
    apply = ["filter: v > 2", "reduce: {by: [k], s: sum(distinct v)}"]
    said = place(apply, rows(("a", LARGE, 1, 5, 3), ("a", LARGE + 1, 1, 5, 3)))
    assert "integer overflow in `sum(v)`, in the group where k = 'a'" in said


FUNCTIONS = """\
def by_record(row):
    return {"x": 1 // (row["v"] - 7)}

def exits(row):
    if row["v"] == 7:
        raise SystemExit("that is\\n\\nenough")
    return {"x": 1}

def nothing(row):
    return None if row["v"] == 7 else {"x": 1}

def wrong_type(row):
    return {"x": "one" if row["v"] == 7 else 1}

def wrong_keys(row):
    return {"y": 1} if row["v"] == 7 else {"x": 1}

def by_batch(rows):
    if (rows["v"] == 7).any():
        raise ValueError("no sevens")
    return rows.select("row", x="v")

def by_group(key, values):
    return [((1 // (values[0][0][0] - 7),), 1)]

def wrong_group(key, values):
    return [(("one" if values[0][0][0] == 7 else 1,), 1)]

def no_pairs(key, values):
    return [1] if values[0][0][0] == 7 else []

def too_often(key, values):
    return [((1,), 2**63 if values[0][0][0] == 7 else 1)]

def no_triple(row):
    return [((1,), None, 1)] if row["v"] == 7 else []

def no_updates(row):
    return row["v"] if row["v"] == 7 else []

def other_keys(row):
    return [({"y" if row["v"] == 7 else "x": 1}, None, 1)]

def no_time(row):
    return [({"x": 1}, 0.5 if row["v"] == 7 else None, 1)]

def no_diff(row):
    return [({"x": 1}, None, None if row["v"] == 7 else 1)]

def raises(row):
    if row["v"] == 7:
        raise KeyError("seven")
    return []
"""
CALLS = {
    "map": {
        "by_record": "f:by_record raised ZeroDivisionError: integer division or modulo by zero for the row {'k': 'a', 'v': 7",
        "exits": ".py:6: error: f:exits raised SystemExit: that is enough for the row {'k': 'a', 'v': 7",
        "wrong_keys": "f:wrong_keys returned the keys ['y'], expected the keys ['x'] for the row {'k': 'a', 'v': 7",
        "by_batch": "f:by_batch raised ValueError: no sevens",
    },
    "flat_map": {
        "nothing": "f:nothing returned None, expected the keys ['x'] for the row {'k': 'a', 'v': 7",
        "wrong_type": "f:wrong_type returned 'one' for `x`, expected int64 for the row {'k': 'a', 'v': 7",
    },
    "reduce": {
        "by_group": "the reducer `f:by_group` raised ZeroDivisionError",
        "wrong_group": "the reducer `f:wrong_group`: column 'x' can't hold 'one': its type is int64",
        "no_pairs": "the reducer `f:no_pairs` returned 1 for the group ('a',)",
        "too_often": "the reducer `f:too_often` returned ((1,), 9223372036854775808) for the group ('a',)",
    },
    "join_function": {
        "no_triple": "error: f:no_triple returned ((1,), None, 1), expected (record, time, diff), the record as a dict for the row {'k': 'a', 'v': 7",
        "no_updates": "error: f:no_updates returned 7, expected a list of (record, time, diff) for the row",
        "other_keys": "error: f:other_keys returned the keys ['y'], expected the keys ['x'] for the row",
        "no_time": "error: f:no_time returned 0.5 for the time, expected int64 for the row",
        "no_diff": "error: f:no_diff returned null for the diff for the row",
        "raises": ".py:52: error: f:raises raised KeyError: 'seven' for the row",
    },
}  # fmt: skip


MOMENT = "datetime(2024, 1, 2, 3, 4, 5, 678901"
UNFIT = {
    "date": (MOMENT + ")", "5", "True", "'2024-01-02'"),
    "datetime[us]": (MOMENT + ", tzinfo=UTC)", "7"),
    "datetime[ms]": (MOMENT + ")",),
    "duration[ms]": ("timedelta(microseconds=1)",),
    "struct[a: int64]": ("5", "{'a': 1.5}", "{'a': 1, 'b': 2}", "{'a': '7'}"),
    "list[int64]": ("b'x'", "{1, 2}", "[1, True]"),
}


@pytest.mark.parametrize(("column", "value"), [(column, value) for column in UNFIT for value in UNFIT[column]])
def test_a_value_that_a_function_returns_is_kept_whole_or_refused(place, shop, column, value):
    module = f"f_{list(UNFIT).index(column)}_{UNFIT[column].index(value)}"  # of its own: Python imports one once
    returned = f"{{'x': {value} if row['v'] == 7 else None}}"
    shop.write(f"{module}.py", f"from datetime import *\ndef f(row):\n    return {returned}\n")
    said = place([f"map: {{function: '{module}:f', columns: {{x: '{column}?'}}}}"], rows(("a", 7, 1, 5, 1)))
    assert re.search(rf"error: {module}:f returned .* for `x`, expected {re.escape(column)} for the row", said)


@pytest.mark.parametrize(
    ("operator", "name"), [(operator, name) for operator, names in CALLS.items() for name in names]
)
def test_a_python_function_that_fails_is_named(place, shop, operator, name):
    shop.write(f"f_{name}.py", FUNCTIONS)  # a module of its own for each test: Python imports one once
    by = "by: [k], values: [v], " if operator == "reduce" else ""
    batch = ", batch: true" if name == "by_batch" else ""
    said = place(
        ["filter: v <> 1", f"{operator}: {{{by}function: 'f_{name}:{name}', columns: {{x: int64}}{batch}}}"],
        rows(("a", 7, 1, 5, 1)),
    )
    assert CALLS[operator][name].replace("f:", f"f_{name}:") in said.splitlines()[0]


OVERFLOWS = {
    "of a record": ["filter: v < 10"],
    "of a kept record": ["distinct"],
    "of a group": ["reduce: {by: [k], n: count(*)}"],
    "of a pair": ["join: {with: t, on: [k], as: u}"],
}


@pytest.mark.parametrize("case", OVERFLOWS)
def test_a_multiplicity_beyond_64_bits_is_an_error(place, case):
    said = place(OVERFLOWS[case], rows(("c", 1, 1, 5, LARGE), ("c", 1, 1, 5, LARGE)), code=5)
    assert "64-bit range" in said


def flip_one(pattern):
    """Return a way to spoil: one bit of the first file that matches."""

    def spoil(shop):
        flip(next(shop.folder.glob(pattern)))
        rows(("a", 1, 1, 5, 1))(shop)

    return spoil


def lose(pattern):
    def spoil(shop):
        next(shop.folder.glob(pattern)).unlink()
        rows(("a", 1, 1, 5, 1))(shop)

    return spoil


STATES = {
    "a damaged manifest": (flip_one(".dd/p/manifest/*"), "manifest/000000001.json: error: the manifest of the state is damaged"),
    "a damaged batch": (flip_one(".dd/p/arrangements/*/0/*"), "0/000000001-0000.parquet: error: the file is damaged"),
    "a lost batch": (lose(".dd/p/arrangements/*/0/*"), "0/000000001-0000.parquet: error: the file can't be read"),
    "a lost output file": (lose("out/updates-*"), "out/updates-start-2.parquet: error: a file of output 'c' that the state names is gone"),
    "a foreign output file": (frame("out/updates-2-9.parquet", k=["a"]), "out/updates-2-9.parquet: error: output 'c' holds updates that the state doesn't know of"),
}  # fmt: skip


@pytest.mark.parametrize("case", STATES)
def test_a_damaged_state_needs_a_decision(place, case):
    spoil, said = STATES[case]
    error = place(["reduce: {by: [k], s: sum(v)}"], spoil, code=4)
    assert said in error.splitlines()[0]
    assert "\nhint: " in error


def test_a_state_that_is_gone_while_its_outputs_are_there_needs_a_decision(shop):
    shop.log("in/1.parquet", GOOD, **LOG)
    shop.write("p.yaml", "dd: 1\nname: p\ninputs: {t: in/}\noutputs: {t: out/}\n")
    shop("run", "p.yaml")
    before = files(shop.folder / "out")
    shutil.rmtree(shop.folder / ".dd")
    result = shop("run", "p.yaml")
    assert result.code == 4
    assert "error: output 't' exists, but the state that it was written from is missing\nhint: " in result.err
    assert files(shop.folder / "out") == before


@cases("""
case → outputs → said
below an input → {c: in/deep/out/} → 8:14: error: outputs.c: writes into 'in/', where the input 't' reads
below it in other words → {c: ./out/../in/out} → 8:14: error: outputs.c: writes into 'in/'
an input → {c: in/} → 8:14: error: outputs.c: writes where the input 't' reads
a file → {c: p.yaml} → 8:14: error: outputs.c: 'p.yaml' is a file
in the state → {c: .dd/p/arrangements/c} → 8:14: error: outputs.c: '.dd/p/arrangements/c' and the directory of the state contain each other
in another → {c: out/, d: {path: out/d, from: c}} → 8:30: error: outputs.d: 'out/d' and the directory of the output 'c' contain each other
twice → {c: out/, d: {path: ./out, from: c}} → 8:30: error: outputs.d: writes to the same path as the output 'c'
""")
def test_an_output_has_a_directory_of_its_own(shop, case, outputs, said):
    error = refusal(shop, f"{HEAD}outputs: {outputs}\n".replace("    apply:\n", ""))
    assert error.startswith(f"p.yaml:{said}")
    assert not (shop.folder / ".dd").exists()


@pytest.mark.parametrize("path", ["in/*.parquet", "in/1.parquet", "_in/", "in"])
def test_an_output_may_lie_where_the_input_does_not_look(shop, path):
    output = {"_in/": "_in/_out/", "in": "in/.out/"}.get(path, "in/out/")
    shop.log("in/1.parquet", GOOD, **LOG)
    shop.log("_in/1.parquet", GOOD, **LOG)
    shop.write("p.yaml", f"dd: 1\nname: p\ninputs: {{t: '{path}'}}\noutputs: {{t: {output}}}\n")
    assert shop("run", "p.yaml").code == 0
    assert "nothing new" in shop("run", "p.yaml").err


def test_a_state_does_not_lie_in_an_output(shop):
    shop.log("in/1.parquet", GOOD, **LOG)
    shop.write("p.yaml", "dd: 1\nname: p\ninputs: {t: in/}\noutputs: {t: out/}\n")
    for state in ("out", "out/state"):
        result = shop("run", "p.yaml", "--state", state)
        assert result.code == 2
        assert "outputs.t: 'out/' and the directory of the state contain each other\n" in result.err
    assert shop("run", "p.yaml", "--state", "out/.state").code == 0  # readers of logs pass over hidden names


def test_a_state_has_a_directory_outside_of_the_inputs(shop):
    error = refusal(shop, "dd: 1\nname: p\ninputs: {t: in/}\nstate: in/state\noutputs: {t: out/}\n")
    assert error.startswith("p.yaml:4:8: error: state: writes into 'in/', where the input 't' reads")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_that_cannot_be_written(place, shop):
    said = place(["distinct"], lambda shop: (rows(("a", 1, 1, 5, 1))(shop), (shop.folder / "out").chmod(0o555)), code=5)
    (shop.folder / "out").chmod(0o755)
    assert "cannot write the file: Permission denied" in said


def test_an_output_whose_parent_is_a_file(shop):
    error = refusal(shop, "dd: 1\nname: p\ninputs: {t: in/}\noutputs: {t: p.yaml/out}\n", code=5)
    assert error.startswith("p.yaml")
    assert "error: cannot make the file" in error


@pytest.mark.parametrize("name", ["time", "diff"])
def test_an_output_cannot_have_a_column_that_the_log_has_itself(shop, name):
    error = refusal(shop, f"{HEAD}      - rename: {{v: {name}}}\noutputs: {{out: {{from: c, path: out/}}}}\n")
    assert error.startswith(f"p.yaml:10:23: error: outputs.out: 'c' has a column '{name}', as the log itself has\n")
    assert f"hint: rename it: `- rename: {{{name}: {name}_1}}` at the end of 'c'" in error


def test_inputs_share_one_type_of_time(shop):
    pl.DataFrame({"k": ["a"], "time": [dt.date(2013, 1, 1)]}).write_parquet(shop.folder / "days.parquet")
    text = "dd: 1\nname: p\ninputs:\n  t: in/\n  days: days.parquet\noutputs: {t: out/, days: out2/}\n"
    assert refusal(shop, text).startswith("p.yaml:5:3: error: the time of input 'days' is date, that of 't' is int64\n")


@pytest.mark.parametrize("how", ["errors: {quarantine: out/totals/}", "inputs.late"])
def test_rows_are_not_put_aside_in_another_pipelines_output(orders, how):
    """They would be among its rows; and what waits there for its state to publish it would go with our leavings."""
    assert orders("run", "orders.yaml").code == 0
    waiting = orders.folder / "out/totals/.updates-3-4.parquet.000000002.dd-tmp"
    waiting.write_bytes(b"committed")
    text = "dd: 1\nname: other\ninputs: {orders: {path: orders/, late: error}}\noutputs: {orders: out/other/}\n"
    late = "late: quarantine, quarantine: out/totals/"
    orders.write("other.yaml", text.replace("late: error", late) if how == "inputs.late" else f"{text}{how}\n")
    result = orders("run", "other.yaml")
    assert result.code == 4
    assert "out/totals: error: late or failed rows can't be put aside here" in result.err
    assert waiting.read_bytes() == b"committed"
