"""`dd test`: what a person writes, and what is said of it."""

import errno
import json
import shutil
import sys
from xml.etree import ElementTree as ET

import polars as pl
import pytest

from tests.cases import cases
from tests.harness import ROOT, snapshot

ORDERS = """\
dd: 1
name: orders
inputs:
  orders: {path: orders/, columns: {id: int64, region: string, amount: float64?, note: string?}}
collections:
  totals:
    from: orders
    apply:
      - reduce: {by: [region], n: count(*), amount: sum(amount)}
outputs: {totals: out/totals/, all: {path: out/all/, from: orders}}
tests:
"""
COUNTS = """\
  - name: counts
    steps:
      - given: {orders: [{region: north, amount: 0.1}, {region: north, amount: 0.2}]}
        expect: {collection: totals, contents: [{region: north, amount: 0.3, n: 2}]}
      - given: {orders: {columns: [region, amount, diff], rows: [[north, 0.2, -1], [south, null, 1]]}}
        expect:
          - collection: totals
            changes:
              - {region: north, n: 2, time: 1, diff: -1}
              - {region: north, n: 1, time: 1, diff: +1}
              - {region: south, n: 1, time: 1}
"""


def found(shop, tests, *options, head=ORDERS):
    """Return the outcome of a pipeline's tests as JSON."""
    shop.write("p.yaml", head + tests)
    result = shop("test", "p.yaml", "-o", "json", *options)
    assert result.code in {0, 1}, result.err
    return json.loads(result.out)


def problems(report):
    return [failure["problem"] for test in report["tests"] for failure in test["failures"]]


def test_a_test_that_passes(shop):
    """Without any file of the input; nothing is written, and every replay was done."""
    shop.write("p.yaml", ORDERS + COUNTS)
    before = snapshot(shop.folder)
    result = shop("test", "p.yaml")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("ok    counts (2 steps, 6 replays)\n1 passed in ")
    assert snapshot(shop.folder) == before


def test_a_test_that_fails(shop):
    """Names test, step, place and rows."""
    shop.write("p.yaml", ORDERS + COUNTS.replace("{region: south, n: 1, time: 1}", "{region: south, n: 3, time: 2}"))
    result = shop("test", "p.yaml")
    assert result.code == 1
    assert (
        result.out.splitlines()[:8]
        == [
            "FAIL  counts (2 steps)",
            "p.yaml:18:13: error: step 2: totals has other changes",
            "          18 |             changes:",
            "             |             ^^^^^^^",
            "                 region  n  time  diff",
            "               + north   1  1     +1",
            "               + north   2  1     -1",
            "               + south   1  1     +1",
        ]
        or "south" in result.out
    )
    assert result.out.splitlines()[-1].startswith("0 passed, 1 failed in")


def test_formats_of_the_report(shop):
    """JSON, annotations and JUnit say the same of a failure."""
    wrong = COUNTS.replace("amount: 0.3", "amount: 0.4")
    report = found(shop, wrong, "--junit", "j.xml")
    (test,) = report["tests"]
    (failure,) = test["failures"]
    assert (report["passed"], report["failed"], test["result"], test["line"]) == (0, 1, "failed", 12)
    assert failure | {"line": 0, "column": 0} == {
        "line": 0,
        "column": 0,
        "problem": "step 1: totals has other contents",
        "hint": None,
        "expected": [{"row": {"region": "north", "n": 2, "amount": 0.4}, "diff": 1}],
        "found": [{"row": {"region": "north", "n": 2, "amount": pytest.approx(0.3)}, "diff": 1}],
    }
    case = ET.parse(shop.folder / "j.xml").getroot().find("testsuite/testcase")  # noqa: S314 - our own
    assert case is not None
    assert (case.get("name"), case.get("line"), len(case)) == ("counts", "12", 1)
    said = shop("test", "p.yaml", "--format", "github")
    assert said.code == 1
    assert "::error file=p.yaml,line=15,col=38" in said.out
    assert "test 'counts': step 1: totals has other contents%0A" in said.out


def test_tolerance(shop):
    """By 1e-9 of their size if nothing is said; then just as far as is said."""
    test = "  - {name: t, given: {orders: [{region: a, amount: 0.30000000000000004}]}, expect: {collection: totals, contents: [{amount: 0.3}]%s}}\n"
    assert found(shop, test % "")["passed"] == 1
    assert found(shop, test % ", tolerance: 0")["failed"] == 1
    assert found(shop, test.replace("0.3}]", "0.25}]") % ", tolerance: 0.1")["passed"] == 1


def test_selection(shop):
    shop.write("p.yaml", ORDERS + COUNTS + COUNTS.replace("name: counts", "name: others"))
    assert "1 passed" in shop("test", "p.yaml", "-k", "OTH").out
    none = shop("test", "p.yaml", "-k", "x")
    assert (none.code, none.out) == (2, "")
    assert none.err == "p.yaml: error: no test's name contains 'x'\nhint: tests: 'counts', 'others'\n"
    shop.write("q.yaml", ORDERS.replace("tests:\n", ""))
    assert "the pipeline has no tests" in shop("test", "q.yaml").err


def closed(*_):
    raise PermissionError(errno.EACCES, "Permission denied")


def test_what_is_always_expected_is_selected_with_the_steps_that_show_it(shop):
    """Else it would pass whatever they make."""
    wrong = COUNTS + "  - {name: many, expect: {collection: totals, always: n > 2}}\n"
    report = found(shop, wrong, "--only", "many")
    assert (report["failed"], [test["name"] for test in report["tests"]]) == (1, ["counts", "many"])
    assert set(problems(report)) == {"step 1: totals: `n > 2` is not true", "step 2: totals: `n > 2` is not true"}
    other = COUNTS + "  - {name: many, expect: {collection: all, always: id > 2}}\n"
    assert [test["result"] for test in found(shop, other, "--only", "many")["tests"]] == ["skipped"]


def test_rows_without_columns_are_counted(shop):
    test = "  - {name: t, given: {orders: [{region: a}, {region: b}]}, expect: {collection: totals, %s}}\n"
    assert found(shop, test % "contents: [{diff: 2}]")["passed"] == 1
    assert found(shop, test % "contents: [{diff: 1}]")["failed"] == 1
    assert found(shop, test % "changes: [{time: 0}, {time: 0}]")["passed"] == 1
    assert found(shop, test % "changes: [{time: 1}, {time: 0}]")["failed"] == 1


def test_rows_in_files(shop, monkeypatch):
    shop.write("given.csv", "id,region,amount,note,time,diff\n1,north,2.5,,0,1\n2,south,1.5,,3,1\n")
    shop.write("expected.csv", "region,n\nnorth,1\nsouth,1\n")
    pl.DataFrame({"region": ["south"], "time": [3]}).write_parquet(shop.folder / "changes.parquet")
    test = """\
  - name: files
    steps:
      - {time: 2, given: {orders: [{region: west}]}}
      - {time: 3, given: {orders: [{region: west, diff: -1}]}}
      - {time: 4, given: {orders: later.csv}, expect: {collection: totals, contents: []}}
"""
    one = "  - {name: one, given: {orders: given.csv}, expect: [{collection: totals, contents: expected.csv}, {collection: totals, at: 2, contents: [{region: north}]}]}\n"
    assert found(shop, one)["passed"] == 1, problems(found(shop, one))
    two = "  - {name: two, given: {orders: given.csv}, expect: {collection: totals, changes: changes.parquet}}\n"
    assert found(shop, two)["tests"][0]["failures"][0]["found"] == [
        {"row": {"region": "north", "time": "0"}, "diff": 1}
    ]
    shop.write("p.yaml", ORDERS + test)
    missing = shop("test", "p.yaml")
    assert (missing.code, "p.yaml:16:35: error: there is no file 'later.csv'" in missing.err) == (2, True)
    (shop.folder / "later.csv").write_text("region,amount,time,diff\n")
    monkeypatch.setattr(shutil, "copyfile", closed)
    unread = shop("test", "p.yaml")
    assert (
        unread.code,
        "p.yaml:16:35: error: the file 'later.csv' can't be read: Permission denied" in unread.err,
    ) == (
        2,
        True,
    )


CLOCKS = """\
dd: 1
name: clocks
inputs:
  seen: {path: seen/, columns: {k: int64, at: "datetime[ns]", time: int64}}
outputs: {seen: out/}
tests:
"""


@pytest.mark.parametrize("digits", ["", "000", "001", "999"])
@pytest.mark.parametrize("way", ["contents", "changes", "file", "unique", "accepted", "always"])
def test_values_within_a_microsecond_are_not_the_same(shop, way, digits):
    """A row is expected with all its digits: one that is cut, or another one of its microsecond, is not the row that is there."""
    moment, other = "2024-01-01 00:00:00.123456001", f"2024-01-01 00:00:00.123456{digits}"
    shop.write("expected.csv", f"k,at\n1,{other}\n1,2024-01-01 00:00:00.123456002\n")
    rows = f"{{k: 1, at: '{other}'}}, {{k: 1, at: '2024-01-01 00:00:00.123456002'}}"
    expected = {
        "contents": f"contents: [{rows}]",
        "changes": f"changes: [{rows}]",
        "file": "contents: expected.csv",
        "unique": "unique: [k, at]",
        "accepted": f"accepted: {{at: ['{other}', '2024-01-01 00:00:00.123456002']}}",
        "always": f"always: \"at in ('{other}', '2024-01-01 00:00:00.123456002')\"",
    }[way]
    given = f"[{{k: 1, at: '{moment}'}}, {{k: 1, at: '2024-01-01 00:00:00.123456002'}}]"
    report = found(
        shop, f"  - {{name: t, given: {{seen: {given}}}, expect: {{collection: seen, {expected}}}}}\n", head=CLOCKS
    )
    assert report["passed"] == (digits == "001" or way == "unique"), problems(report)


STANDING = "  - expect: {collection: totals, unique: [region], not_null: [amount], accepted: {region: [north, south]}, always: n < 3, non_negative: true}\n"


def test_what_is_always_expected(shop):
    """After each step of tests that name the collection."""
    test = "  - {name: t, given: {orders: %s}, expect: {collection: totals, changes: expected.csv}}\n"
    shop.write("expected.csv", "region\n")
    rows = "[{region: west, diff: 3}, {region: north, amount: 1.0}]"
    assert problems(found(shop, STANDING + test % rows)) == [
        "totals has other changes",
        "totals: 'amount' is null",
        "totals: 'region' has values that are not accepted",
        "totals: `n < 3` is not true",
    ]
    same = "  - {name: t, given: {orders: [{id: 1, region: a}, {id: 1, region: b}]}, expect: {collection: all, unique: [amount], non_negative: true}}\n"
    assert problems(found(shop, same)) == ["all: records have the same amount"]
    less = same.replace("{id: 1, region: b}", "{id: 1, region: b, amount: 1.0, diff: -1}")
    assert problems(found(shop, less)) == ["all: records have negative multiplicities"]


def test_what_runs_have_written(shop):
    """Outputs are held against it as the last run left them."""
    shop.write("p.yaml", ORDERS + STANDING)
    said = shop("test", "p.yaml")
    assert said.code == 0
    assert said.out.startswith(
        "skip  totals always: no test's step expects anything of totals, and no run has written it"
    )
    shop.write("orders/1.csv", "id,region,amount,note,time,diff\n1,north,2.5,,0,1\n2,west,1.5,,3,1\n")
    assert shop("run", "p.yaml").code == 0
    report = found(shop, STANDING)
    assert report["tests"][0]["records"] == 2
    assert problems(report) == ["output totals, times before 4: totals: 'region' has values that are not accepted"]


def test_an_output_that_is_empty_was_written(shop):
    """It has no file, and nothing in it breaks a rule; but where files are gone, nothing is known of it."""
    empty = ORDERS.replace("- reduce", "- filter: id > 5\n      - reduce")
    shop.write("orders/1.csv", "id,region,amount,note,time,diff\n1,north,2.5,,0,1\n")
    shop.write("p.yaml", empty + STANDING)
    assert shop("run", "p.yaml").code == 0
    (test,) = found(shop, STANDING, head=empty)["tests"]
    assert (test["result"], test["records"]) == ("passed", 0)
    shop.write("orders/2.csv", "id,region,amount,note,time,diff\n7,north,2.5,,1,1\n")
    assert shop("run", "p.yaml").code == 0
    for file in (shop.folder / "out/totals").glob("*.parquet"):
        file.unlink()
    assert [test["result"] for test in found(shop, STANDING, head=empty)["tests"]] == ["skipped"]


FORMATS = """\
dd: 1
name: formats
inputs:
  people: {path: p/, format: upsert, key: [id], columns: {id: int64, name: string?, age: int64}, order_by: age, delete_when: name is null}
  prices: {path: q/, format: snapshots, key: [item], columns: {item: string, price: "decimal(8, 2)"}}
  accounts: {path: r/, format: debezium, key: [id], columns: {id: int64, owner: string?}}
  moves: {path: s/, format: debezium, columns: {id: int64, owner: string?}}
  sales: {path: t/, format: delta_cdf, columns: {id: int64}}
  clicks: {path: u/, format: append, columns: {page: string, at: "datetime[us]"}}
collections:
  recent: {from: clicks, apply: [{reduce: {by: [page], first: min(at)}}]}
outputs: {recent: out/recent/, people: out/people/, prices: o/prices/, accounts: o/accounts/, moves: o/moves/, sales: o/sales/}
tests:
  - name: upserts
    steps:
      - given: {people: [{id: 1, name: Ann, age: 1}, {id: 1, name: Bea, age: 2}, {id: 2, name: Cora, age: 3}]}
        expect: {collection: people, contents: [{id: 1, name: Bea}, {id: 2, name: Cora}]}
      - given: {people: [{id: 1, name: Bea, age: 3}, {id: 2, age: 9}]}
        expect: {collection: people, contents: [{id: 1, name: Bea, age: 3}]}
  - name: snapshots
    steps:
      - given: {prices: [{item: tea, price: 1.5}, {item: milk, price: 2}]}
        expect: {collection: prices, contents: [{item: tea, price: 1.50}, {item: milk, price: 2.00}]}
      - given: {prices: [{item: tea, price: 1.60}]}
        expect: {collection: prices, changes: [{item: milk, diff: -1}, {item: tea, diff: 0}]}
      - {given: {prices: []}, expect: {collection: prices, contents: []}}
  - name: events
    steps:
      - given:
          accounts: [{op: c, after: {id: 1, owner: Ann}, source: {lsn: 1}}, {op: u, after: {id: 1, owner: Bea}, source: {lsn: 2}}]
          moves: [{op: c, after: {id: 1, owner: Ann}}]
          sales: [{id: 1, _change_type: insert}]
        expect: {collection: accounts, contents: [{id: 1, owner: Bea}]}
      - given:
          accounts: [{op: t, source: {lsn: 3}}]
          moves: [{op: u, before: {id: 1, owner: Ann}, after: {id: 1}}]
          sales: [{id: 1, _change_type: delete}]
        expect:
          - {collection: accounts, contents: []}
          - {collection: moves, contents: [{id: 1, owner: null}]}
          - {collection: sales, changes: [{id: 1, diff: -1}]}
  - name: rows that are inserted
    given: {clicks: [{page: a, at: 2013-01-01 06:00}, {page: a, at: 2013-01-01T05:30:00}]}
    expect: {collection: recent, contents: [{page: a, first: 2013-01-01 05:30:00}]}
"""


def test_every_format(shop):
    report = found(shop, "", head=FORMATS)
    assert (report["passed"], problems(report)) == (4, [])
    assert [test["replays"] for test in report["tests"]] == [5, 5, 5, 6]


def test_times_of_several_coordinates(shop):
    """The example of the literature: something changes at (1, 1), where nothing is given."""
    head = """\
dd: 1
name: product
inputs: {words: {path: w/, columns: {s: string}, time: [x, y]}}
collections: {counted: {from: words, apply: [{reduce: {by: {len: length(s)}, n: count(distinct s)}}]}}
outputs: {counted: out/}
tests:
  - name: literature
    given:
      words:
        columns: [s, x, y, diff]
        rows: [[a, 0, 0, 1], [b, 0, 0, 3], [cc, 0, 0, 2], [a, 0, 1, -1], [b, 0, 1, -3], [a, 1, 0, -1], [b, 1, 0, -1]]
    expect:
      - {collection: counted, at: [0, 0], contents: [{len: 1, n: 2}, {len: 2, n: 1}]}
      - {collection: counted, changes: [{len: 1, n: 1, x: 1, y: 1, diff: -1}, {len: 1, n: 2, x: 1, y: 1, diff: 2},
         {len: 1, n: 2, x: 0, y: 0}, {len: 2, n: 1, x: 0, y: 0}, {len: 1, n: 2, x: 0, y: 1, diff: -1},
         {len: 1, n: 1, x: 1, y: 0}, {len: 1, n: 2, x: 1, y: 0, diff: -1}]}
"""
    assert problems(found(shop, "", head=head)) == []


def test_a_function_that_is_none_is_found_by_a_replay(shop):
    """It counts its calls, so how the input is cut decides what it gives."""
    shop.write(
        "calls.py", "calls = []\n\n\ndef number(record):\n    calls.append(record)\n    return {'n': len(calls)}\n"
    )
    head = ORDERS.replace("- reduce", '- map: {function: "calls:number", columns: {n: int64}}\n      - reduce').replace(
        "{by: [region], n: count(*), amount: sum(amount)}", "{by: [n], m: count(*)}"
    )
    test = "  - {name: t, given: {orders: [{id: 1, region: a}]}, expect: {collection: totals, unique: [n]}}\n"
    report = found(shop, test, head=head)
    sys.modules.pop("calls")
    assert problems(report) == ["replayed all at once, totals has other changes than step by step"]


@cases("""
what → text → message
an unknown input → {name: t, given: {order: []}} → 12:23: error: tests: no input is named 'order'
an unknown collection → {expect: {collection: total, unique: [n]}} → 12:27: error: tests[0].expect: no input, collection or output is named 'total'
an unknown column → {name: t, given: {orders: [{regio: a}]}} → 12:33: error: there is no column 'regio'
an expected column → {name: t, given: {orders: []}, expect: {collection: totals, contents: [{m: 1}]}} → 12:77: error: there is no column 'm'
a value → {name: t, given: {orders: [{id: x}]}} → 12:37: error: 'id' is a number (int64), found 'x'
a text → {name: t, given: {orders: [{region: 7}]}} → 12:41: error: 'region' is a text, found '7'
null → {name: t, given: {orders: [{region: null}]}} → 12:41: error: 'region' is null, which it can't be
a row too short → {name: t, given: {orders: {columns: [id, note], rows: [[1]]}}} → 12:60: error: tests[0].given.orders.rows[0]: the row has 1 values, there are 2 columns
what is read is left out → {name: t, given: {orders: [{id: 1}]}, expect: {collection: totals, unique: [n]}} → 12:32: error: the row lacks 'region', which is read and never null
no name → {given: {orders: []}} → 12:5: error: tests[0]: the key 'name' is missing
rows without given → {expect: {collection: totals, contents: []}} → 12:6: error: tests[0].expect: rows are expected, but there is no `given`
a condition → {expect: {collection: totals, always: n + 1}} → 12:43: error: a condition is a bool, not int64
times of some rows → {name: t, given: {orders: []}, expect: {collection: totals, changes: [{n: 1, time: 0}, {n: 2}]}} → 12:65: error: some of the rows have a time, others don't
late → {name: t, steps: [{time: 5, given: {orders: []}}, {given: {orders: [{region: a, time: 3}]}, expect: {collection: totals, unique: [n]}}]} → 12:73: error: a row comes too late: the step before has closed the times before 6
not known yet → {name: t, given: {orders: []}, expect: {collection: totals, contents: [], at: 7}} → 12:83: error: the contents at 7 are not known yet
""")
def test_what_is_wrong_with_a_test(shop, what, text, message):
    """A check finds the same, but for what only rows can show; and polars is not needed."""
    shop.write("p.yaml", f"{ORDERS}  - {text}\n")
    result = shop("test", "p.yaml")
    assert (result.code, result.out) == (2, "")
    assert f"p.yaml:{message}" in result.err
    if what not in {"what is read is left out", "late", "not known yet"}:
        result = shop("check", "p.yaml")
        assert result.code == 2
        assert f"p.yaml:{message}" in result.err + result.out


def test_an_expression_that_fails_fails_the_test(shop):
    head = ORDERS.replace("n: count(*)", "n: 1 / (count(*) - 1)")
    test = "  - {name: t, given: {orders: [{region: a}]}, expect: {collection: totals, unique: [n]}}\n"
    report = found(shop, test, head=head)
    assert report["failed"] == 1
    assert "zero" in problems(report)[0]


@pytest.mark.parametrize("name", ["airborne", "components", "risk", "shortest"])
def test_the_pipelines_of_the_repository(shop, name):
    assert shop("test", ROOT / "pipelines" / f"{name}.yaml").code == 0


def test_options_of_text_are_none_of_the_rows_in_the_file(shop):
    """Rows of the pipeline file are values; a file that a test names is read as the input's are."""
    shop.write("in/1.csv", "id;v\n1;1,255\n")
    given = "{path: in/, format: append, columns: {id: int64, v: 'decimal(12, 2)'}, csv: {delimiter: ';', decimal: ','}, rounding: half_up}"
    expected = "expect: {collection: a, contents: [{id: 1, v: 1.26}]}"
    shop.write(
        "p.yaml",
        f"clock: arrival\ninputs: {{a: {given}}}\noutputs: {{a: out/}}\ntests:\n"
        f"  - {{name: rows, given: {{a: [{{id: 1, v: 1.26}}]}}, {expected}}}\n"
        f"  - {{name: file, given: {{a: in/1.csv}}, {expected}}}\n",
    )
    found = shop("test", "p.yaml")
    assert (found.code, "2 passed" in found.out + found.err) == (0, True), found
