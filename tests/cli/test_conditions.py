"""Conditions on records, `column=value` and 'column is null', mean the same in `dd log`, `dd query` and `dd why`."""

import json

import pytest

PIPELINE = """\
dd: 1
name: p
inputs: {a: {path: in/, format: append, columns: {id: "int64?", day: "date?", s: "string?"}}}
collections:
  ids: {from: a, apply: [{reduce: {by: [id], n: count(*)}}]}
  days: {from: a, apply: [{reduce: {by: [day], n: count(*)}}]}
  texts: {from: a, apply: [{reduce: {by: [s], n: count(*)}}]}
outputs: {ids: out/ids/, days: out/days/, texts: out/texts/}
"""


@pytest.fixture
def kept(shop):
    shop.write("in/a.csv", "id,day,s\n1,2024-01-01,x\n,,null\n,,null\n3,2024-01-03,\n")
    shop.write("p.yaml", PIPELINE)
    assert shop("run", "p.yaml").code == 0
    return shop


COMMANDS = {
    "log": lambda name: ("log", f"out/{name}", "-o", "json"),
    "query": lambda name: ("query", "p.yaml", name, "-o", "json"),
    "why": lambda name: ("why", "p.yaml", name, "-o", "json"),
}


def numbers(command, result):
    """Return the column `n` of the records found."""
    found = json.loads(result.out)
    return [row["n"] for row in found] if command != "why" else [each["record"]["n"] for each in found["records"]]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "condition", "n"),
    [
        ("ids", "id is null", 2),
        ("ids", "id IS NULL", 2),
        ("ids", "id=null", 2),
        ("ids", "id=NULL", 2),
        ("days", "day=null", 2),
        ("texts", "s=null", 2),
        ("texts", "s is null", 1),
        ("texts", "s=x", 1),
    ],
)
def test_null_and_the_text_null(kept, command, name, condition, n):
    result = kept(*COMMANDS[command](name), condition)
    assert (result.code, numbers(command, result)) == (0, [n]), result


@pytest.mark.parametrize("command", COMMANDS)
def test_a_text_null_that_is_not_there_is_hinted_at(kept, command):
    result = kept(*COMMANDS[command]("texts"), "s=NULL")
    assert result.code == 1
    assert "'NULL' is a text here: 's is null' selects records without a value" in result.err
    assert "is a text here" not in kept(*COMMANDS[command]("texts"), "s=y").err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("id", "'id' is not a condition"),
        ("id is not null", "'id is not null' is not a condition"),
        ("id=", "'id=' names no value"),
        ("ib=null", "there is no column 'ib'"),
        ("ib is null", "there is no column 'ib'"),
    ],
)
def test_a_wrong_condition_has_a_hint(kept, command, condition, problem):
    result = kept(*COMMANDS[command]("ids"), condition)
    assert (result.code, f"error: {problem}" in result.err) == (2, True), result
