"""Right pipeline files: the model that comes out, and the places its texts remember."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddcli.errors import SpecErrors
from ddcli.expressions.types import Type
from ddcli.plan.operators.table import OPERATORS
from ddcli.plan.pipeline_file import load_spec, parse_spec
from ddcli.spec.model import Operator

HEAD = "dd: 1\nname: p\ninputs: {orders: in/, customers: c/}\n"
OUT = "outputs: {big: out/}\n"


def parse(text):
    return parse_spec(text, "p.yaml")


def operators(*lines):
    """Return the operators that the items of an `apply` say."""
    items = "".join(f"      - {line}\n" for line in lines)
    return parse(f"{HEAD}collections:\n  big:\n    from: orders\n    apply:\n{items}{OUT}").collections["big"].apply


def plain(value):
    """Return a value of the model without places: texts as strings, the rest as tuples and dicts."""
    if hasattr(value, "value") and hasattr(value, "span"):
        return value.value
    if isinstance(value, Type):
        return str(value)
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Operator):
        inputs = {"inputs": plain(value.inputs)} if value.inputs else {}
        return {value.name: inputs | plain(value.arguments)}
    if hasattr(value, "__dataclass_fields__"):
        names = [name for name in value.__dataclass_fields__ if name not in {"span", "place"}]
        return {type(value).__name__: {name: plain(getattr(value, name)) for name in names}}
    return value


SUM = {"Inline": {"sources": ("orders",), "apply": ({"distinct": {}},)}}
PYTHON = {"name": "m.n:f", "columns": {"a": ("a", "int64?")}, "batch": False, "memo": None, "calls": None}

SHAPES = {
    "map: {a: b + 1, on: 'x'}": {"map": {"columns": (("a", "b + 1"), ("on", "x"))}},
    "map: {function: m.n:f, columns: {a: int64?}}": {"map": {"function": {"PythonFunction": PYTHON}}},
    "extend: {n: 012}": {"extend": {"columns": (("n", "012"),)}},
    "project: [a, no]": {"project": {"columns": ("a", "no")}},
    "drop: [a]": {"drop": {"columns": ("a",)}},
    "rename: {old: new}": {"rename": {"columns": (("old", "new"),)}},
    "filter: a > 0 # positive": {"filter": {"condition": "a > 0"}},
    "filter: true": {"filter": {"condition": "true"}},
    "filter: \"name = 'a #1'\"": {"filter": {"condition": "name = 'a #1'"}},
    "flat_map: {x: unnest(xs)}": {"flat_map": {"column": "x", "expression": "unnest(xs)"}},
    "flat_map: {function: m.n:f, columns: {a: int64?}, batch: true}": {
        "flat_map": {"function": {"PythonFunction": PYTHON | {"batch": True}}}
    },
    "explode: weight": {"explode": {"weight": "weight"}},
    "negate": {"negate": {}},
    "concat: customers": {"concat": {"inputs": ("customers",)}},
    "concat: [customers, {from: orders, apply: [distinct]}]": {"concat": {"inputs": ("customers", SUM)}},
    "concat: {from: orders, apply: [distinct]}": {"concat": {"inputs": (SUM,)}},
    "consolidate:": {"consolidate": {}},
    "distinct: {}": {"distinct": {}},
    "join: {with: customers, as: c, on: [id], how: left}": {
        "join": {"inputs": ("customers",), "on": (("id", "id"),), "how": "left", "name": "c"}
    },
    "join: {with: {from: orders, apply: [distinct]}, on: {a: b}}": {"join": {"inputs": (SUM,), "on": (("a", "b"),)}},
    "asof_join: {with: customers, at: t}": {
        "asof_join": {
            "inputs": ("customers",),
            "at": (("t", "t"),),
        }
    },
    "asof_join: {with: customers, as: c, on: id, at: {a: b}, how: left, direction: forward, strict: true}": {
        "asof_join": {
            "inputs": ("customers",),
            "at": (("a", "b"),),
            "on": (("id", "id"),),
            "how": "left",
            "direction": "forward",
            "strict": True,
            "name": "c",
        }
    },
    "semijoin: {with: customers, on: [id]}": {"semijoin": {"inputs": ("customers",), "on": (("id", "id"),)}},
    "antijoin: {with: customers, on: {a: b}}": {"antijoin": {"inputs": ("customers",), "on": (("a", "b"),)}},
    "reduce: {by: [a], n: count(*), values: sum(b)}": {
        "reduce": {
            "by": ({"GroupColumn": {"name": "a", "expression": None}},),
            "columns": (("n", "count(*)"), ("values", "sum(b)")),
        }
    },
    "reduce: {by: {d: cast(t as date)}, n: count(*)}": {
        "reduce": {
            "by": ({"GroupColumn": {"name": "d", "expression": "cast(t as date)"}},),
            "columns": (("n", "count(*)"),),
        }
    },
    "reduce: {n: count(*)}": {"reduce": {"by": (), "columns": (("n", "count(*)"),)}},
    "reduce: {by: [a], function: m.n:f, columns: {a: int64?}, values: [b]}": {
        "reduce": {
            "by": ({"GroupColumn": {"name": "a", "expression": None}},),
            "function": {"PythonFunction": PYTHON},
            "values": ("b",),
        }
    },
    "count": {"count": {}},
    "count: {by: [a], as: n}": {"count": {"name": "n", "by": ("a",)}},
    "sample: {by: a, percent: 12.50}": {"sample": {"by": ("a",), "percent": "12.50"}},
    "threshold: least(count, 1)": {"threshold": {"multiplicity": "least(count, 1)"}},
    "top_k: {k: 0x10, order_by: [a desc, b ASC, desc]}": {
        "top_k": {
            "k": 16,
            "order_by": tuple(
                {"Order": {"expression": text, "descending": down, "nulls_first": False}}
                for text, down in (("a", True), ("b", False), ("desc", False))
            ),
        }
    },
    "window: {by: a, order_by: [b desc nulls last, c NULLS FIRST], frame: rows 2 preceding, columns: {n: count(*)}}": {
        "window": {
            "columns": (("n", "count(*)"),),
            "by": ("a",),
            "order_by": tuple(
                {"Order": {"expression": text, "descending": down, "nulls_first": first}}
                for text, down, first in (("b", True, False), ("c", False, True))
            ),
            "frame": "rows 2 preceding",
        }
    },
    "temporal_filter: {from: a, until: a + 1}": {"temporal_filter": {"lower": "a", "upper": "a + 1"}},
    "temporal_filter: {until: a}": {"temporal_filter": {"upper": "a"}},
    "join_function: {function: m.n:f, columns: {a: int64?}}": {
        "join_function": {"function": {"PythonFunction": PYTHON}}
    },
    "arrange: {by: [a]}": {"arrange": {"by": ("a",)}},
    "arrange: {by: [a], export: b}": {"arrange": {"by": ("a",), "export": "b"}},
    "inspect: after": {"inspect": {"label": "after"}},
}


@pytest.mark.parametrize("line", SHAPES)
def test_operator(line):
    (operator,) = operators(line)
    assert plain(operator) == SHAPES[line]


def test_each_operator_has_a_form():
    """But `enter`, which is read in a loop."""
    missing = OPERATORS.keys() - {line.partition(":")[0] for line in SHAPES} - {"enter"}
    assert missing == set(), "add a line of the file, and what it is read as, to SHAPES"


def test_operators_know_their_place():
    first, second = operators("distinct", "filter: a > 0")
    assert (first.place, first.span.line, first.span.column) == ("collections.big.apply[0].distinct", 8, 9)
    assert (second.place, second.span.line, second.span.column) == ("collections.big.apply[1].filter", 9, 9)
    assert second.arguments["condition"].at(2).column == 19
    (concat,) = operators("concat: {from: orders, apply: [distinct]}")
    assert concat.inputs[0].apply[0].place == "collections.big.apply[0].concat.apply[0].distinct"


def test_inputs():
    inputs = parse(
        HEAD.replace("c/}", "{path: c/, columns: {on: int, b: string?, null: 'decimal(12,2)'}, time: [e, v], diff: ~}}")
        + "outputs: {orders: o/}\n"
    ).inputs
    orders, customers = (plain(inputs[name])["InputSpec"] for name in ("orders", "customers"))
    assert orders | {
        "name": "orders", "path": "in/", "time": ("time",), "diff": "diff", "columns": None, "format": "updates",
        "key": (), "delete_when": None, "order_by": None, "max_delete": None, "flattened": False, "file_name": None,
        "late": "error", "quarantine": None, "negative": "allow",
    } == orders  # fmt: skip
    assert customers | {
        "name": "customers", "path": "c/", "time": ("e", "v"), "diff": None, "format": "updates",
        "columns": {"on": ("on", "int64"), "b": ("b", "string?"), "null": ("null", "decimal(12, 2)")},
    } == customers  # fmt: skip


def test_inputs_of_other_formats():
    given = "{path: c/, format: %s}}"
    says = {
        "append": {},
        "upsert, key: a, delete_when: b = 1, order_by: b": {"key": ("a",), "delete_when": "b = 1", "order_by": "b"},
        "snapshots, max_delete: 5, file_name: 'a-{time}.csv'": {"max_delete": "5", "file_name": "a-{time}.csv"},
        "debezium": {"time": ("ts_ms",)},
        "debezium, flattened: true, key: [a, b]": {"time": ("__ts_ms",), "key": ("a", "b"), "flattened": True},
        "delta_cdf": {"time": ("_commit_version",)},
        "delta_cdf, time: at": {"time": ("at",)},
        "append, late: quarantine, quarantine: late/": {"late": "quarantine", "quarantine": "late/"},
        "delta_cdf, late: advance, negative: warn": {"late": "arrive", "negative": "warn"},
    }
    for text, want in says.items():
        inputs = parse(HEAD.replace("c/}", given % text) + "outputs: {orders: o/}\n").inputs
        found = plain(inputs["customers"])["InputSpec"]
        assert found["format"] == text.split(",")[0]
        assert found["diff"] is None
        assert found | want == found, text


def test_errors():
    for text, want in (("quarantine", {"path": None}), ("{quarantine: wrong/}", {"path": "wrong/"})):
        assert plain(parse(HEAD + f"errors: {text}\noutputs: {{orders: o/}}\n").errors) == {"Errors": want}
    assert parse(HEAD + "errors: fail\noutputs: {orders: o/}\n").errors is None


def test_sections():
    text = (
        HEAD
        + "state: s/\ntests: [{expect: {collection: big, unique: [id]}}]\ncollections: {big: {from: [orders, {from: customers}]}}\n"
    )
    spec = parse(text + "outputs: {big: o/, all: {path: a/, from: orders}}\n")
    assert (spec.name.value, spec.path, spec.state.value, len(spec.tests)) == ("p", Path("p.yaml"), "s/", 1)
    assert plain(spec.collections["big"].sources) == ("orders", {"Inline": {"sources": ("customers",), "apply": ()}})
    assert {name: output.source.value for name, output in spec.outputs.items()} == {"big": "big", "all": "orders"}


LOOP = """\
collections:
  big:
    iterate:
      variables: {best: {from: orders, apply: [distinct]}, other: customers}
      body:
        best: {from: [best, near], apply: [{enter: {at: id}}]}
        other:
          iterate:
            variables: {inner: best}
            body: {inner: {from: inner}}
            result: inner
            max_rounds: {guard: 3}
          apply: [negate]
        near: {from: customers}
      result: [best, near]
      max_rounds: 20
outputs: {best: {path: b/, from: big.best}, near: {path: n/, from: big.near}}
"""


def test_a_loop():
    big = parse(HEAD + LOOP).collections["big"]
    assert big.names == ("big.best", "big.near")
    inner = {
        "variables": (("inner", "best"),),
        "body": {"inner": {"CollectionSpec": {"name": "inner", "sources": ("inner",), "apply": (), "on": None}}},
        "result": "inner", "bound": None, "guard": 3,
    }  # fmt: skip
    bodies = {
        "best": ("best", ("best", "near"), ({"enter": {"at": "id"}},)),
        "other": ("other", {"Iterate": inner}, ({"negate": {}},)),
        "near": ("near", ("customers",), ()),
    }
    assert plain(big.sources)["Iterate"] == {
        "variables": (("best", SUM), ("other", "customers")),
        "body": {
            key: {"CollectionSpec": dict(zip(("name", "sources", "apply"), body, strict=True), on=None)}
            for key, body in bodies.items()
        },
        "result": ("best", "near"), "bound": 20, "guard": 10_000,
    }  # fmt: skip
    assert big.sources.body["other"].names == ("other",)
    assert big.sources.body["best"].apply[0].place == "collections.big.iterate.body.best.apply[0].enter"


def test_collections_may_come_in_any_order():
    spec = parse(HEAD + "collections:\n  a: {from: b}\n  b: {from: orders}\noutputs: {a: o/}\n")
    assert list(spec.collections) == ["a", "b"]


def test_anchors():
    spec = parse(
        HEAD + "collections:\n  a: {from: orders, apply: &x [filter: a > 0]}\n  b: {from: customers, apply: *x}\n"
        "outputs: {a: a/, b: b/}\n"
    )
    assert plain(spec.collections["a"].apply) == plain(spec.collections["b"].apply)


@pytest.mark.parametrize(
    ("written", "value", "columns"),
    [
        ("filter: a > b", "a > b", (17, 21)),
        ("filter: 'a > b'", "a > b", (17, 22)),
        ("filter: &condition a > b", "a > b", (28, 32)),
        ('filter: "é > b"', "é > b", (17, 22)),
        ("filter: |\n          a > b", "a > b", (11, 15)),
        ("filter: >-\n\n          a > b\n          and c", "a > b and c", (11, 15)),
        ("filter: a > b\n          and c", "a > b and c", (17, 21)),
        ("filter: 'a = ''x'' or b'", "a = 'x' or b", (17, 22)),  # up to the escape offsets are exact
    ],
)
def test_offsets_in_scalars(written, value, columns):
    """A text's `at` gives the place of a character of an expression, however it is written."""
    (operator,) = operators(written)
    assert operator.arguments["condition"].value == value
    assert (operator.arguments["condition"].span.column, operator.arguments["condition"].at(4).column) == columns


def test_an_offset_after_an_escape_is_the_scalar():
    """There an offset in the value is none in the file: better the whole than a wrong letter."""
    (operator,) = operators("filter: 'a = ''x'' or b'")
    assert operator.arguments["condition"].at(11) == operator.arguments["condition"].span


def test_line_ends_and_byte_order_mark(tmp_path):
    path = tmp_path / "p.yaml"
    text = HEAD + "outputs:\n  orders: o/\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    spec = load_spec(path)
    span = spec.outputs["orders"].path.span
    assert (span.line, span.column, span.source) == (5, 11, "  orders: o/")
    assert spec.name.span.line == 2


@pytest.mark.parametrize("name", ["airborne", "delays", "skip_level"])
def test_pipelines_to_learn_from(root, name):
    assert load_spec(root / "pipelines" / f"{name}.yaml").name.value == name


def test_reading_imports_little(root):
    """A run with nothing new reads its pipeline file too: no library but the YAML parser is imported for that."""
    script = (
        "import sys; from pathlib import Path; from ddcli.plan.pipeline_file import load_spec; assert 'yaml' not in sys.modules;"
        "load_spec(Path(sys.argv[1])); print({'polars', 'numba', 'sqlglot', 'numpy'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", script, str(root / "pipelines" / "delays.yaml")]
    environment = os.environ | {"PYTHONPATH": str(root)}
    assert subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout == "set()\n"


def test_one_column_needs_no_brackets():
    apply = "[{{join: {{with: c, on: {0}}}}}, {{reduce: {{by: {0}, n: count(*)}}}}, {{top_k: {{k: 1, by: {0}, order_by: {1}}}}}, {{project: {0}}}]"
    text = "dd: 1\nname: p\ninputs: {{o: o/, c: c/}}\ncollections: {{a: {{from: o, apply: {}}}}}\noutputs: {{a: a/}}\n"
    plain, listed = (
        parse_spec(text.format(apply.format(*words)), "p.yaml") for words in (("id", "n desc"), ("[id]", "[n desc]"))
    )
    for spec in (plain, listed):
        join, reduce, top_k, project = (each.arguments for each in spec.collections["a"].apply)
        assert [(one.value, other.value) for one, other in join["on"]] == [("id", "id")]
        assert [column.name.value for column in reduce["by"]] == ["id"]
        assert [text.value for text in (*top_k["by"], *project["columns"])] == ["id", "id"]
        assert [(order.expression.value, order.descending) for order in top_k["order_by"]] == [("n", True)]


def test_keys_for_anchors_are_passed_over():
    text = """\
dd: 1
name: p
x-csv: &european {delimiter: ";", decimal: ","}
x-anything: [&columns {id: int64, time: int64}]
inputs:
  a: {path: a/, columns: *columns, csv: *european}
  b: {path: b/, columns: *columns, csv: *european}
outputs: {a: out/a/, b: out/b/}
"""
    spec = parse_spec(text, "p.yaml")
    assert spec.inputs["b"].csv.delimiter == ";"
    assert list(spec.inputs["a"].columns) == ["id", "time"]
    with pytest.raises(SpecErrors, match="unknown key 'y-csv'"):
        parse_spec(text.replace("x-csv", "y-csv"), "p.yaml")
