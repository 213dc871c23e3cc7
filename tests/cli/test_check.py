"""`dd check`: everything wrong is told at once and at its place, nothing is read or imported that need not be."""

import json
import sys

import polars as pl
import pytest
from hypothesis import given, settings

from ddcli.commands.check import check
from ddcli.errors import SpecErrors, UsageError
from ddcli.plan.pipeline_file import load_spec
from tests.cli.test_annotations import read as read_annotation
from tests.draws import many
from tests.harness import ROOT, copy_root, snapshot
from tests.spec.test_mutilated import mutilated

WRONG = """\
dd: 1
name: orders
inputs:
  orders: orders/
  gone: gone/
  text: text/
  other: {path: orders/, time: amount}
  typed: {path: orders/, columns: {region: int64, amount: int64}}
  keyed: {path: upserts/, format: upsert, key: [region], columns: {region: string, amount: int64}, delete_when: amont > 3}
collections:
  one: {from: orders, apply: [{filter: amont > 0}]}
  two: {from: orders, apply: [{map: {a: uppr(region), b: amount + region}}]}
  three: {from: gone, apply: [{map: {a: whatever}}]}
  four: {from: orders, apply: [{map: {function: nowhere:f, columns: {a: int64}}}]}
outputs: {one: out/one/, two: out/two/, three: out/two/in/, four: orders/four/}
"""


def problems(result):
    return [line for line in result.err.splitlines() if ": error: " in line]


def test_a_right_pipeline(orders):
    result = orders("check", "orders.yaml")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "orders.yaml: ok, 1 input",
        "  totals: region string?, orders int64, amount int64?",
    ]


def test_the_pipelines_to_learn_from_are_right(orders, monkeypatch):
    monkeypatch.chdir(ROOT)
    before = snapshot(ROOT / "pipelines")
    result = orders("check", *sorted((ROOT / "pipelines").glob("*.yaml")))
    assert (result.code, result.err) == (0, "")
    assert {path for path in snapshot(ROOT / "pipelines") if path.suffix != ".pyc"} == {
        path for path in before if path.suffix != ".pyc"
    }


def test_everything_wrong_is_told_at_once_each_thing_at_its_place(orders):
    orders.write("text/a.csv", "a,b\n1,2\n")
    orders.write("orders.yaml", WRONG)
    result = orders("check", "orders.yaml")
    assert result.code == 2
    assert [line.removeprefix("orders.yaml:") for line in problems(result)] == [
        "5:9: error: inputs.gone: gone: there is no file or directory 'gone/'",
        "6:9: error: inputs.text: text/a.csv: a file of text, CSV, has no column types",
        "8:17: error: inputs.typed: orders/1.parquet: column 'region' is string, but the pipeline declares int64",
        "9:113: error: no column is named `amont`",
        "11:40: error: collections.one.apply[0].filter: no column is named `amont`",
        "12:41: error: collections.two.apply[0].map: no function is named `uppr`",
        "12:67: error: collections.two.apply[0].map: `+` expects numbers, got string",
        "14:49: error: collections.four.apply[0].map: there is no module `nowhere`",
        "15:48: error: outputs.three: 'out/two/in/' and the directory of the output 'two' contain each other",
        *(
            f"15:67: error: outputs.four: writes into 'orders/', where the input '{name}' reads"
            for name in ("orders", "other", "typed")
        ),
    ]
    assert result.err.splitlines()[-1] == "12 errors in 1 of 1 file"


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ("orders: orders/", 0),
        ("orders: gone/", 3),
        ("orders: {path: gone/, columns: {region: string, amount: int64}}", 0),
        ("orders: {path: 'gone/*.parquet', columns: {region: string, amount: int64}}", 0),
        ("orders: {path: 's3://no-such-bucket/orders/', columns: {region: string, amount: int64}}", 0),
        ("orders: {path: gone/, columns: {region: string}}", 2),
        ("orders: {path: orders/, columns: {region: string, amount: int32}}", 3),
        ("orders: {path: orders/, columns: {region: string, amount: int64, more: int64}}", 3),
    ],
)
def test_declared_columns_need_no_file_but_hold_for_those_that_are_there(orders, inputs, code):
    pipeline = (orders.folder / "orders.yaml").read_text()
    orders.write("orders.yaml", pipeline.replace("orders: orders/", inputs))
    assert orders("check", "orders.yaml").code == code


def test_inputs_must_share_a_time(orders):
    orders.log("days/1.parquet", [(1, 0, 1)], x=pl.Int64, time=pl.Date, diff=pl.Int64)
    orders.write(
        "orders.yaml",
        "dd: 1\nname: o\ninputs: {a: orders/, b: days/}\ncollections: {c: {from: b, apply: [{filter: y}]}}\n"
        "outputs: {a: out/a/, c: out/c/}\n",
    )
    assert problems(orders("check", "orders.yaml")) == [
        "orders.yaml:3:22: error: the time of input 'b' is date, that of 'a' is int64",
        "orders.yaml:4:45: error: collections.c.apply[0].filter: no column is named `y`",
    ]


def test_what_is_wrong_in_one_part_hides_nothing_of_the_others(orders):
    """Shapes, names, files and types: each thing wrong is told, and nothing that only follows from it."""
    orders.write(
        "orders.yaml",
        """\
dd: 1
name: orders
inputs:
  orders: orders/
  late: {path: orders/, formt: append}
  gone: gone/
collections:
  shape: {from: orders, apply: [{fliter: amount > 0}]}
  name: {from: ordres, apply: [{filter: whatever > 0}]}
  type: {from: orders, apply: [{filter: amont > 0}]}
  a: {from: b}
  b: {from: a}
  after: {from: [shape, name, late, gone, a], apply: [{filter: whatever}]}
  beside: {from: type, apply: [{filter: whatever}]}
outputs: {type: out/type/, after: out/after/, nothing: out/nothing/, shape: {path: out/shape/, form: type}}
tests: [{expect: {collection: tpye, unique: [amount]}}]
""",
    )
    result = orders("check", "orders.yaml")
    assert [line.removeprefix("orders.yaml:") for line in problems(result)] == [
        "5:25: error: inputs.late: unknown key 'formt'",
        "6:9: error: inputs.gone: gone: there is no file or directory 'gone/'",
        "8:34: error: collections.shape.apply[0]: unknown operator 'fliter'",
        "9:16: error: collections.name: no input or collection is named 'ordres'",
        "10:41: error: collections.type.apply[0].filter: no column is named `amont`",
        "11:13: error: collections.a: depends on itself: a -> b -> a",
        "15:47: error: outputs.nothing: no input or collection is named 'nothing'",
        "15:96: error: outputs.shape: unknown key 'form'",
        "16:31: error: tests[0].expect: no input, collection or output is named 'tpye'",
    ]
    assert result.code == 2


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    return copy_root(tmp_path_factory.mktemp("mutilated") / "root")


@settings(max_examples=many(60))
@given(text=mutilated())
def test_whatever_is_in_a_file_it_is_said_what_is_wrong(copied, text):
    """A check ends with an answer for each mutilation, and tells at least what reading the file tells."""
    path = copied / "pipelines/mutilated.yaml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    found = check(path)
    told = ()
    try:
        load_spec(path)
    except UsageError as error:
        told = error.errors if isinstance(error, SpecErrors) else (error,)
    assert {error.render() for error in told} <= {error.render() for error in found.errors}


def test_an_imported_arrangement_says_its_columns(orders):
    exporter = (
        (orders.folder / "orders.yaml")
        .read_text()
        .replace(
            "collections:\n",
            "collections:\n  by_region: {from: orders, apply: [{arrange: {by: [region], export: them}}]}\n",
        )
    )
    orders.write("orders.yaml", exporter)
    orders.write(
        "reader.yaml",
        "dd: 1\nname: reader\ninputs: {them: {import: {state: .dd/orders/, arrangement: them}}}\n"
        "collections: {found: {from: them, apply: [{map: {region: region, a: amount}}]}}\noutputs: {found: out/found/}\n",
    )
    result = orders("check", "reader.yaml")
    assert result.code == 3
    assert problems(result) == [
        "reader.yaml:3:33: error: inputs.them: .dd/orders: there is no state of a pipeline to import from"
    ]
    assert orders("run", "orders.yaml").code == 0
    result = orders("check", "reader.yaml")
    assert (result.code, result.out.splitlines()[1]) == (0, "  found: region string, a int64?")


def test_the_operators_after_a_wrong_one_are_checked_where_the_columns_are_known(orders):
    orders.write(
        "orders.yaml",
        """\
dd: 1
name: orders
inputs: {orders: orders/}
collections:
  totals:
    from: orders
    apply:
      - filter: amont > 0
      - top_k: {by: [regoin], k: 3, order_by: [amount]}
      - reduce: {by: [region, plcae], n: sum(amont), most: max(amount) + region}
      - filter: nobody knows what
  others: {from: [orders, totals], apply: [{filter: amonut = 1}]}
outputs: {totals: out/totals/, others: out/others/}
""",
    )
    result = orders("check", "orders.yaml")
    assert [line.split(":")[1] + line.partition(": error:")[2].partition(":")[2] for line in problems(result)] == [
        "8 no column is named `amont`",
        "9 there is no column 'regoin'",
        "10 there is no column 'plcae'",
        "10 no column is named `amont`",
        "10 `region` may differ from row to row of a group",
    ]


def test_several_files_are_all_checked(orders):
    orders.write("wrong.yaml", "dd: 1\nname: wrong\nimputs: {a: orders/}\noutputs: {a: out/a/}\n")
    result = orders("check", "wrong.yaml", "orders.yaml", "gone.yaml")
    assert result.code == 2
    assert "orders.yaml: ok" in result.out
    assert [line.split(":")[0] for line in problems(result)] == ["wrong.yaml", "wrong.yaml", "gone.yaml"]
    assert result.err.splitlines()[-1] == "3 errors in 2 of 3 files"


def test_json(orders):
    found = json.loads(orders("check", "orders.yaml", "-o", "json").out)
    assert found == {
        "ok": True,
        "pipelines": [
            {
                "file": "orders.yaml",
                "name": "orders",
                "ok": True,
                "inputs": {
                    "orders": {
                        "columns": {"region": "string?", "amount": "int64?"},
                        "time": {"time": "int64"},
                        "files": 1,
                        "passed": {},
                        "inferred": None,
                    }
                },
                "outputs": {"totals": {"region": "string?", "orders": "int64", "amount": "int64?"}},
                "errors": [],
            }
        ],
    }
    orders.write("orders.yaml", (orders.folder / "orders.yaml").read_text().replace("sum(amount)", "sum(amont)"))
    result = orders("check", "orders.yaml", "--format", "json")
    assert result.code == 2
    (error,) = json.loads(result.out)["pipelines"][0]["errors"]
    assert error == {
        "file": "orders.yaml",
        "line": 9,
        "column": 62,
        "length": 5,
        "problem": "collections.totals.apply[0].reduce: no column is named `amont`",
        "hint": "did you mean `amount`? (in scope: amount, region)",
        "code": 2,
    }


def test_annotations(orders):
    orders.write("orders.yaml", (orders.folder / "orders.yaml").read_text().replace("sum(amount)", "sum(amont)"))
    result = orders("check", "orders.yaml", "--format", "github")
    assert result.code == 2
    properties, message = read_annotation(result.out.strip())
    assert {name: properties[name] for name in ("file", "line", "col")} == {
        "file": "orders.yaml",
        "line": "9",
        "col": "62",
    }
    assert message.startswith(
        "collections.totals.apply[0].reduce: no column is named `amont`\nhint: did you mean `amount`?"
    )


@pytest.mark.parametrize("declared", [False, True])
def test_nothing_heavy_is_imported(orders, declared):
    if declared:
        pipeline = (orders.folder / "orders.yaml").read_text()
        orders.write(
            "orders.yaml",
            pipeline.replace("orders: orders/", "orders: {path: gone/, columns: {region: string, amount: int64}}"),
        )
    heavy = ["polars", "llvmlite", "numba", "pyspark", "rich", *(["pyarrow", "numpy"] if declared else [])]
    result = orders.importing(heavy, "check", "orders.yaml")
    assert result.out.splitlines()[-1] == "[]", result.err
    assert sys.modules["polars"] is pl
