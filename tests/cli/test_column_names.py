"""Names of columns: whatever a column is called, its values are those that they would be under another name, or the name is refused."""

import json
from functools import partial

import polars as pl
import pytest

from ddcli import read_log
from ddcli.expressions.types import no_column
from tests.draws import some

ROWS = [(1, 10, "a"), (1, 20, "b"), (2, 30, "a"), (2, 31, None), (3, 5, "c")]
OWN = [
    "$present",
    "$order",
    "$moment",
    "$sequence",
    "$rows",
    "$side",
    "$at",
    "$all",
    "$records",
    "$from",
    "$until",
    "$round",
]
OWN += ["$0", "$1", "$0.n", "$order0", "$order0.null", "$value0", "$partition0", "$window0"]
"""Names that plans have for columns of their own."""
ODD = [
    "$os",
    "$k",
    "$$k",
    "$diff",
    "$row",
    "$number",
    "$instance",
    "#k",
    "#left",
    "#right",
    "#order0",
    "#rows",
    "failing in v",
    "written v",
    "number of the row",
]
ODD += [
    "a b",
    'q"x',
    "a'b",
    "😀",
    "select",
    "x" * 200,
    "K",
    "new\nline",
    "a.b",
    "--opt",
    "a=b",
    "null",
    "is null",
    "1",
    "%s",
    "{y}",
]
ODD += [
    "value",
    "instance",
    "count",
    "some",
    "a0",
    "row",
    "key",
    "file",
    "line",
    "error",
    "commit",
    "\u202e",
    "e\u0301",
]
PATTERNS = ["*", "^a$"]
OUTPUTS = {
    "groups": "{{from: i, apply: [{{reduce: {{by: [{q}], n: count(*), m: max(k)}}}}]}}",
    "sums": "{{from: i, apply: [{{reduce: {{by: [k], {q}: {sum}}}}}]}}",
    "distinct": "{{from: i, apply: [{{map: {{{q}: {more}, k: k}}}}, distinct]}}",
    "joined": "{{from: i, apply: [{{join: {{with: j, how: full, on: [{q}], as: rr}}}}]}}",
    "nearest": "{{from: i, apply: [{{asof_join: {{with: {{from: j, apply: [{{map: {{{q}: {e}, kk: k}}}}]}}, at: {q}, as: r}}}}]}}",
    "first": "{{from: i, apply: [{{top_k: {{by: [k], k: 1, order_by: [{e}]}}}}]}}",
    "windows": "{{from: i, apply: [{{window: {{by: [k], order_by: [{e}, v], columns: {{r: row_number(), l: {lag}}}}}}}]}}",
    "while": "{{from: i, apply: [{{temporal_filter: {{from: k, until: k + 5}}}}, {{map: {{{q}: {e}, k: k}}}}]}}",
    "keyed": "{{from: j}}",
    "sql": "{{sql: {sql}}}",
    "averages": "{{sql: {averages}}}",
    "shared": "{{sql: {shared}}}",
}


quoted_in_yaml = partial(json.dumps, ensure_ascii=False)


def pipeline(name, kind):
    """Return a pipeline in which each operator has a column of this name."""
    quoted, text = quoted_in_yaml(name), '"' + name.replace('"', '""') + '"'
    words = {
        "q": quoted,
        "e": quoted_in_yaml(text),
        "sum": quoted_in_yaml(f"sum({text})"),
        "more": quoted_in_yaml(f"{text} + 1"),
        "lag": quoted_in_yaml(f"lag({text})"),
        "sql": quoted_in_yaml(
            f"select {text}, sum(k) + max({text}) as b from i group by {text} order by {text} desc limit 3"
        ),
        "shared": quoted_in_yaml(f"select {text} from i intersect select {text} from j where k < 3"),
        "averages": quoted_in_yaml(f"select k, {text} as z, avg({text}) over (partition by k) as av from i"),
    }
    columns = f', columns: {{k: int64, {quoted}: int64, v: "string?", t: int64}}' if kind == "csv" else ""
    lines = [
        "inputs:",
        f"  i: {{path: in/*.{kind}, format: append, time: t{columns}}}",
        f"  j: {{path: in/*.{kind}, format: upsert, time: t, key: [{quoted}]{columns}}}",
        "collections:",
        *(f"  {each}: {text.format(**words)}" for each, text in OUTPUTS.items()),
        "outputs:",
        *(f"  {each}: out/{each}" for each in OUTPUTS),
    ]
    return "\n".join(lines) + "\n"


def outcome(shop, name, kind):
    """Return the rows of each output of the pipeline in which a column has this name, or the error that refuses it."""
    folder = shop.folder / "in"
    folder.mkdir(exist_ok=True)
    for part in (0, 1):
        frame = pl.DataFrame([(k, n + part, v, 1 + part) for k, n, v in ROWS], ["k", name, "v", "t"], orient="row")
        frame.write_csv(folder / f"{part}.csv") if kind == "csv" else frame.write_parquet(folder / f"{part}.parquet")
    shop.write("p.yaml", pipeline(name, kind))
    ran = shop("run", "p.yaml")
    if ran.code:
        return ran
    logs = {each: read_log(shop.folder / "out" / each) for each in OUTPUTS}
    return {each: sorted(map(repr, log.rows())) for each, log in logs.items()}


@pytest.fixture(scope="module")
def plain():
    """Return the outcome with a column of a plain name, for each kind of file that was asked for."""
    return {}


@pytest.mark.in_turn
@pytest.mark.parametrize("name", [*some(ODD)])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_column_may_have_any_name(shop, plain, name, kind):
    """Also those under which this program once kept something of its own beside a frame's columns."""
    found = outcome(shop, name, kind)
    assert isinstance(found, dict), found.err
    looked = [
        ("query", "p.yaml", "groups", "--", f"{name}=31"),
        ("why", "p.yaml", "groups", "-o", "json", "--", f"{name}=31"),
        ("why", "p.yaml", "groups", "--change", "-o", "json", "--", f"{name}=31"),
        ("sql", 'select "' + name.replace('"', '""') + '" as x from i', "--from", "p.yaml"),
        ("diff", "out/keyed", "out/keyed", "--key", name),
    ]
    for command in looked:
        if "=" in name and command[0] in {"query", "why"}:
            continue
        result = shop(*command)
        assert result.code == 0, (command, result.err)
        if command[0] == "why":
            for record in json.loads(result.out)["records"]:
                assert record["checked"]
                leaf = record["reason"]
                while leaf["because"]:
                    leaf = leaf["because"][0]
                assert leaf["updates"][0]["record"].keys() == {"k", name, "v"}
    shown = shop("sql", 'select "' + name.replace('"', '""') + '" from i order by k', "--from", "p.yaml", "-o", "json")
    assert [row.keys() for row in json.loads(shown.out)] == 10 * [{name}]
    if kind not in plain:
        for path in sorted(shop.folder.glob("out/*/*")):
            path.unlink()
        shop("reset", "p.yaml", "--outputs", "--yes")
        plain[kind] = outcome(shop, "plain", kind)
    assert plain[kind] == found


@pytest.mark.parametrize("name", [*some([*OWN, *PATTERNS])])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_name_that_a_plan_or_polars_has_is_refused(shop, name, kind):
    """By the pipeline file, whose operators and SQL name it, and by a file, whose columns no pipeline names."""
    refused = outcome(shop, name, kind)
    assert (refused.code, "can't be a column's name" in refused.err) == (2, True), refused.err
    assert no_column(name) in refused.err
    text = name.replace('"', '""')
    for query in (
        f'select k as "{text}" from i',
        f'select 1 as one from (select k as "{text}" from i) as t',
        f'select 1 as one from (select k from i) as t("{text}")',
        f'with t("{text}") as (select k from i) select 1 as one from t',
    ):
        shop.write(
            "q.yaml",
            f"inputs: {{i: {{path: in/, time: t, columns: {{k: int64, t: int64}}}}}}\ncollections: {{c: {{sql: {quoted_in_yaml(query)}}}}}\noutputs: {{c: out/c}}\n",
        )
        checked = shop("check", "q.yaml")
        assert (checked.code, f"`{name}` can't be a column's name" in checked.err) == (2, True), (query, checked.err)
    if kind == "parquet":
        shop.write("r.yaml", "inputs: {i: {path: in/*.parquet, format: append, time: t}}\noutputs: {i: out/i}\n")
        for command in ("check", "run"):
            result = shop(command, "r.yaml")
            assert (result.code != 0, f"'{name}' can't be a column's name" in result.err) == (True, True), result.err
