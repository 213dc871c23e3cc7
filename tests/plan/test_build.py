"""Names and types of a pipeline: what each operator gives, and what is said where one is wrong."""

import itertools
import re

import pytest

from ddcli.expressions.types import Type
from ddcli.plan.operators.table import OPERATORS
from ddcli.plan.pipeline_file import BoundPipeline, parse_spec
from tests.plan.support import chain, logical, problems, schema

T = {"k": "int64", "v": "int64", "s": "string", "n": "int64?", "f": "float64", "d": "decimal(10, 2)"}


@pytest.mark.parametrize(
    ("operators", "columns"),
    [
        (["map: {a: v + 1, b: n}"], {"a": "int64", "b": "int64?"}),
        (["extend: {v: s, x: n + 1}"], T | {"v": "string", "x": "int64?"}),
        (["project: [s, k]"], {"s": "string", "k": "int64"}),
        (["drop: [s, k, f, d]"], {"v": "int64", "n": "int64?"}),
        (["project: [k, v]", "rename: {k: v, v: k}"], {"v": "int64", "k": "int64"}),
        (["project: [k]", "flat_map: {x: 'generate_series(1, k)'}"], {"k": "int64", "x": "int64"}),
        (["count: {by: [s], as: how_many}"], {"s": "string", "how_many": "int64"}),
        (["project: [k]", "count"], {"k": "int64", "count": "int64"}),
        (["reduce: {by: {day: v // 2}, m: max(s), t: sum(n), a: avg(v)}"], {"day": "int64", "m": "string", "t": "int64?", "a": "float64"}),
        (["top_k: {k: 1, order_by: [v + 1 desc]}"], T),
        (["distinct", "negate", "consolidate", "explode: v", "threshold: count", "arrange: {by: [k]}", "inspect: here"], T),
        (["sample: {by: [k, s], percent: 50}"], T),
    ],
)  # fmt: skip
def test_the_columns_of_an_operator(operators, columns):
    assert schema(*operators) == columns
    assert list(schema(*operators)) == list(columns)


@pytest.mark.parametrize(
    ("join", "columns"),
    [
        ("{with: u, on: [k, s]}", T | {"w": "int64"}),
        ("{with: u, on: [k, s], how: left}", T | {"w": "int64?"}),
        (
            "{with: u, on: [k, s], how: right}",
            {"k": "int64", "v": "int64?", "s": "string", "n": "int64?", "f": "float64?", "d": "decimal(10, 2)?", "w": "int64"},
        ),
        (
            "{with: u, on: [k, s], how: full}",
            {"k": "int64", "v": "int64?", "s": "string", "n": "int64?", "f": "float64?", "d": "decimal(10, 2)?", "w": "int64?"},
        ),
        ("{with: u, on: {n: k}, as: r}", T | {"n": "int64", "w": "int64", "r.s": "string"}),
        ("{with: u, on: {n: k}, as: r, how: left}", T | {"w": "int64?", "r.s": "string?"}),
        ("{with: u, on: [k]}", T | {"w": "int64", "u.s": "string"}),
    ],
)  # fmt: skip
def test_the_columns_of_a_join(join, columns):
    assert schema(f"join: {join}") == columns


def test_a_right_column_is_called_by_its_side_or_by_its_plain_name():
    names = ["r.w", "w", "r.s", "r.k", "k", "s"]
    assert schema("join: {with: u, on: [k], as: r}", f"map: {{{', '.join(f'c{i}: {n}' for i, n in enumerate(names))}}}")
    # The right's key has no column of its own: both of its names mean the left's.
    up = "join: {with: m, as: up, on: {v: employee}}"
    assert schema(up, "map: {a: employee, b: up.employee, c: v, d: up.manager, e: manager}")
    assert schema(up, "project: [employee, manager]") == {"employee": "int64", "manager": "int64"}
    assert schema(up, "reduce: {by: [employee], n: count(*)}") == {"employee": "int64", "n": "int64"}


def test_names_go_with_their_columns():
    up = "join: {with: m, as: up, on: {v: employee}}"
    assert "up.manager" in str(problems(chain(up, "drop: [manager]", "filter: up.manager > 1")))
    assert schema(up, "drop: [s]", "filter: up.manager > 1")
    assert "there is no column 'employee'" in str(problems(chain(up, "map: {v: v}", "project: [employee]")))


def test_the_last_alias_of_a_name_counts():
    twice = ["join: {with: m, as: r, on: {v: employee}}", "drop: [manager]", "join: {with: u, as: r, on: [k]}"]
    assert schema(*twice, "map: {a: r.w, b: r.s}") == {"a": "int64", "b": "string"}


def test_semijoin_and_antijoin_keep_the_left_columns():
    assert schema("semijoin: {with: u, on: {n: k}}") == T | {"n": "int64"}  # a null key has no match
    assert schema("antijoin: {with: u, on: {n: k}}") == T


def test_concat_takes_columns_in_any_order_and_types_with_a_common_one():
    assert schema("map: {a: k, b: n}", "concat: {from: t, apply: [{map: {b: v, a: n}}]}") == {
        "a": "int64?",
        "b": "int64?",
    }
    assert schema("map: {a: cast(k as int32)}", "concat: {from: t, apply: [{map: {a: k}}]}") == {"a": "int64"}
    assert schema("map: {a: cast(f as float32)}", "concat: {from: t, apply: [{map: {a: f}}]}") == {"a": "float64"}
    assert schema("map: {a: cast(null as string)}", "concat: {from: t, apply: [{map: {a: s}}]}") == {"a": "string?"}


# name: operators, then "line:column problem" (the first operator is on line 8), and what the hint has in it
WRONG = {
    "project": (["project: [k, vv]"], "8:22 collections.c.apply[0].project: there is no column 'vv'", "did you mean `v`? (columns: k, v, s, n, f, d)"),
    "drop": (["drop: [zzz]"], "8:16 collections.c.apply[0].drop: there is no column 'zzz'", "columns: k, v, s, n, f, d"),
    "rename": (["rename: {kk: x}"], "8:18 collections.c.apply[0].rename: there is no column 'kk'", "did you mean `k`?"),
    "rename to one there": (["rename: {k: v}"], "8:21 collections.c.apply[0].rename: two columns would be named 'v'", "drop or rename"),
    "on": (["join: {with: u, on: [v]}"], "8:30 collections.c.apply[0].join: there is no column 'v'", "columns: k, w, s"),
    "on left": (["join: {with: u, on: {vv: k}}"], "8:30 collections.c.apply[0].join: there is no column 'vv'", "did you mean `v`?"),
    "on of other types": (["join: {with: u, on: {s: k}}"], "8:30 collections.c.apply[0].join: `on` pairs 's', which is string, with 'k', which is int64", "extend: {s: cast(s as int64)}"),
    "by": (["reduce: {by: [kk], n: count(*)}"], "8:23 collections.c.apply[0].reduce: there is no column 'kk'", "did you mean `k`?"),
    "by expression": (["reduce: {by: {x: kk + 1}, n: count(*)}"], "8:26 collections.c.apply[0].reduce: no column is named `kk`", "did you mean `k`?"),
    "count by": (["count: {by: [kk]}"], "8:22 collections.c.apply[0].count: there is no column 'kk'", "did you mean `k`?"),
    "count as": (["count: {by: [k], as: k}"], "8:9 collections.c.apply[0].count: there is a column 'k' already", "count: {as: n}"),
    "top_k order": (["top_k: {k: 1, order_by: [vv desc]}"], "8:34 collections.c.apply[0].top_k: no column is named `vv`", "did you mean `v`?"),
    "top_k by": (["top_k: {k: 1, by: [kk], order_by: [v]}"], "8:28 collections.c.apply[0].top_k: there is no column 'kk'", "did you mean `k`?"),
    "arrange": (["arrange: {by: [kk]}"], "8:24 collections.c.apply[0].arrange: there is no column 'kk'", "did you mean `k`?"),
    "filter": (["filter: v + 1"], "8:17 collections.c.apply[0].filter: a filter is a bool, not int64", "compare it"),
    "sample by": (["sample: {by: [kk], percent: 1}"], "8:23 collections.c.apply[0].sample: there is no column 'kk'", "did you mean `k`?"),
    "sample by a float": (["sample: {by: [k, f], percent: 1}"], "8:26 collections.c.apply[0].sample: values of type float64 are not sampled", "columns of integers"),
    "sample of nothing": (["sample: {by: [k], percent: 0.0}"], "8:36 collections.c.apply[0].sample: a sample is of more than 0 and at most 100 percent", ""),
    "sample of too much": (["sample: {by: [k], percent: 100.01}"], "8:36 collections.c.apply[0].sample: a sample is of more than 0 and at most 100 percent", ""),
    "explode": (["explode: s"], "8:18 collections.c.apply[0].explode: explode takes an integer that is never null, not string", ""),
    "explode null": (["explode: n"], "8:18 collections.c.apply[0].explode: explode takes an integer that is never null, not int64?", "coalesce(n, 0)"),
    "threshold type": (["threshold: count > 1"], "8:20 collections.c.apply[0].threshold: threshold returns an integer that is never null, not bool", ""),
    "threshold column": (["threshold: v"], "8:20 collections.c.apply[0].threshold: no column is named `v`", "in scope: count"),
    "flat_map": (["flat_map: {x: 'v + 1'}"], "8:24 collections.c.apply[0].flat_map: expected a function that returns rows", "generate_series"),
    "collision": (["join: {with: {from: u}, on: [k]}"], "8:9 collections.c.apply[0].join: both sides have a column 's'", "as: other"),
    "one alias twice": (["join: {with: u, as: x, on: [k]}", "join: {with: u, as: x, on: [k]}"], "9:9 collections.c.apply[1].join: the left side has columns 's' and 'x.s' already", "another name than 'x'"),
    "concat columns": (["concat: u"], "8:9 collections.c.apply[0].concat: `concat` sums collections with the same columns; these are not in all of them: d, f, n, v, w", "`project`"),
    "concat types": (["map: {a: k}", "concat: {from: t, apply: [{map: {a: s}}]}"], "9:9 collections.c.apply[1].concat: `concat`: column 'a' is int64 in one collection and string in another", "cast one of them"),
    "module": (["map: {function: 'no.such:f', columns: {a: int64}}"], "8:25 collections.c.apply[0].map: there is no module `no.such`", "next to the pipeline file"),
    "function": (["map: {function: 'math:ceill', columns: {a: int64}}"], "8:25 collections.c.apply[0].map: module `math` has no function `ceill`", "did you mean `ceil`?"),
    "reducer": (["reduce: {by: [k], function: 'math:ceill', columns: {a: int64}}"], "8:37 collections.c.apply[0].reduce: module `math` has no function `ceill`", "did you mean `ceil`?"),
    "in place": (["join: {with: {from: u, apply: [{filter: q > 1}]}, on: [k], as: x}"], "8:49 collections.c.apply[0].join.with.apply[0].filter: no column is named `q`", "in scope"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_at_its_place(case):
    operators, problem, hint = WRONG[case]
    ((found, given),) = problems(chain(*operators))
    assert found.startswith(problem)
    assert hint is None or hint in (given or "")


def test_all_that_is_wrong_is_told_at_once():
    collections = (
        chain("map: {a: kk, b: vv, c: k}", name="one")
        + chain("filter: v", name="two")
        + chain("project: [nothing]", source="two", name="three")  # can't be judged: `two` is not there
        + chain("reduce: {by: [k], m: max(x)}", name="four")
    )
    found = [problem for problem, _ in problems(collections, "{one: a/, two: b/, three: c/, four: d/}")]
    assert [problem.split(":")[:2] for problem in found] == [
        ["8", "18 collections.one.apply[0].map"],
        ["8", "25 collections.one.apply[0].map"],
        ["12", "17 collections.two.apply[0].filter"],
        ["20", "34 collections.four.apply[0].reduce"],
    ]


def test_a_collection_that_no_output_reads_is_checked_too():
    ((problem, _),) = problems(chain("project: [k]") + chain("project: [kk]", name="unread"))
    assert problem == "12:19 collections.unread.apply[0].project: there is no column 'kk'"


@pytest.mark.parametrize("name", ["time", "diff"])
def test_an_output_has_no_column_that_a_log_has_itself(name):
    wrong = chain(f"rename: {{v: {name}}}")
    ((problem, hint),) = problems(wrong)
    assert problem == f"9:11 outputs.c: 'c' has a column '{name}', as the log itself has"
    assert f"rename: {{{name}: {name}_1}}" in hint
    assert logical(wrong + chain(f"drop: [{name}]", source="c", name="e"), "{e: out/}").outputs["e"]


IN_CIRCLES = """\
  low:
    iterate:
      variables: {known: t, next: t}
      body:
        middle: {from: next, apply: [distinct]}
        next: {from: [known, middle]}
        known: {from: middle}
      result: known
"""


def test_the_order_in_which_a_body_is_written_is_nothing_to_it():
    """A variable that has the name of a collection of the body is not that collection: what looks like a circle is none."""
    body = re.findall(r"^ {8}\w+: .*\n", IN_CIRCLES, re.MULTILINE)
    graphs = {
        logical(IN_CIRCLES.replace("".join(body), "".join(order)), "{low: out/}").fingerprint
        for order in itertools.permutations(body)
    }
    assert len(graphs) == 1


ORDERS = "id: int64, region: string, amount: int64, price: int64, placed_at: int64, closed_at: int64, customer_id: int64, tags: 'list[string]', priority: int64, symbol: string, time: int64"


@pytest.mark.parametrize("name", OPERATORS)
def test_the_example_of_an_operator_is_right(name, tmp_path):
    (tmp_path / "prices.py").write_text("def convert(record): ...\ndef changes(record): ...\n")
    again = f"from: orders\n    apply:\n    - {OPERATORS[name].example}"
    if OPERATORS[name].in_loop:
        body = f"{{a: {{from: a, apply: [{{{OPERATORS[name].example}}}]}}}}"
        again = f"iterate: {{variables: {{a: orders}}, body: {body}, result: a}}"
    inputs = "orders", "returns", "customers", "quotes"
    listed = "".join(f"  {each}: {{path: {each}/, columns: {{{ORDERS}}}}}\n" for each in inputs)
    outputs = "outputs: {others: {path: others/, from: others}}\n"
    text = f"inputs:\n{listed}  others: {{path: o/, columns: {{id: int64}}}}\ncollections:\n  again:\n    {again}\n"
    spec = parse_spec(text + outputs, str(tmp_path / "p.yaml"))
    schemas = {
        each: {column: kind for column, (_, kind) in found.columns.items()} for each, found in spec.inputs.items()
    }
    assert BoundPipeline(spec, schemas, {"t": Type("int64")}).relations["again"].schema
