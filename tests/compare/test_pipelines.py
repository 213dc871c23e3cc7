"""Two pipeline files over the same inputs: what would this change of the file change."""

import json
import subprocess

import polars as pl
import pytest

from tests.harness import ORDER_COLUMNS, ORDERS, files

BEFORE = (
    ORDERS.replace("outputs:\n", "  large:\n    from: orders\n    apply: [filter: amount > 6]\noutputs:\n")
    + "  large: out/large/\n"
)
AFTER = BEFORE.replace("sum(amount)", "max(amount)").replace("  large: out", "  big: out").replace("large:\n", "big:\n")


SCALED = [
    "edited: large.amount: goes into large.amount",
    "edited: records of large: decides about large.amount",
]
"""The notes on another function that makes the records of `large`."""


@pytest.fixture
def pipelines(orders):
    orders.write("before.yaml", BEFORE)
    orders.write("after.yaml", AFTER)
    return orders


def test_outputs_are_compared_by_name_and_nothing_is_touched(pipelines):
    assert pipelines("run", "before.yaml").code == 0
    kept = files(pipelines.folder)
    result = pipelines("diff", "before.yaml", "after.yaml", "--key", "totals=region", "--as-of", "1", "-o", "json")
    assert result.code == 1
    tree = json.loads(result.out)
    assert (tree["same"], tree["ok"], tree["only_a"], tree["only_b"]) == (False, False, ["large"], ["big"])
    assert tree["outputs"]["totals"]["changes"] == [
        {"change": "changed", "count": 1, "key": {"region": "north"}, "cells": {"amount": {"old": 15, "new": 10}}}
    ]
    assert tree["outputs"]["totals"]["a"]["name"] == "before.yaml: totals"
    assert result.err == "running A: before.yaml\nrunning B: after.yaml\n"
    assert files(pipelines.folder) == kept


def test_outputs_that_one_alone_has_make_a_difference(pipelines):
    result = pipelines("diff", "before.yaml", "after.yaml", "--max-changed", "100%")
    assert result.code == 1
    worse = "note: after.yaml:9:9: reduce of collections.totals.apply[0].reduce: work: groups, but change in A\n"
    worse += "note: edited: totals.amount: goes into totals.amount\n"
    assert result.out.startswith(f"{worse}output large: only in A\noutput big: only in B\n\noutput totals\n")
    assert "output large: only in A" in pipelines("diff", "before.yaml", "after.yaml", "-o", "markdown").out


def test_markdown_begins_with_the_outputs_that_differ(pipelines):
    more = ("outputs:\n", "outputs:\n  large: {from: orders, path: out/all}\n")
    for name, text in (("before.yaml", ORDERS), ("after.yaml", ORDERS.replace("sum(amount)", "max(amount)"))):
        pipelines.write(name, text.replace(*more))
    shown = pipelines("diff", "before.yaml", "after.yaml", "--as-of", "1", "-o", "markdown").out
    assert shown.startswith("**1 of 2 outputs differ; 2 rows**\n\n")
    pipelines.write("after.yaml", ORDERS.replace(*more))
    shown = pipelines("diff", "before.yaml", "after.yaml", "-o", "markdown").out
    assert shown.startswith("**0 of 2 outputs differ**\n\n")


def test_an_output_may_be_chosen(pipelines):
    assert (
        pipelines("diff", "before.yaml", "after.yaml", "--select", "totals", "-o", "jsonl").code == 0
    )  # at the end all are the same
    wrong = pipelines("diff", "before.yaml", "after.yaml", "--select", "total")
    assert (wrong.code, wrong.out) == (2, "")
    assert "neither side has an output 'total'" in wrong.err
    assert "did you mean 'totals'?" in wrong.err


def test_a_log_of_the_change_of_one_output(pipelines):
    with (pipelines.folder / "changes.parquet").open("wb") as out:
        options = ("--select", "totals", "--as-of", "1", "-o", "parquet")
        pipelines.process("diff", "before.yaml", "after.yaml", *options, stdout=out, capture_output=False)
    log = pl.read_parquet("changes.parquet")
    assert sorted(log.rows()) == [("north", 2, 10, 1, 1), ("north", 2, 15, 1, -1)]
    pipelines.write("copy.yaml", BEFORE)
    result = pipelines("diff", "before.yaml", "copy.yaml", "-o", "parquet")
    assert (result.code, result.out) == (2, "")
    assert "choose it with `--select`" in result.err


def test_files_in_two_folders(pipelines):
    """Each reads its own inputs, which is said, and each its own function, though both modules have one name."""
    for folder, factor in (("one", 1), ("two", 2)):
        function = "apply: [{map: {function: 'helpers:scaled', columns: {amount: int64}}}]"
        pipelines.write(f"{folder}/orders.yaml", BEFORE.replace("apply: [filter: amount > 6]", function))
        pipelines.write(
            f"{folder}/helpers.py", f"def scaled(row):\n    return {{'amount': row['amount'] * {factor}}}\n"
        )
        pipelines.log(f"{folder}/orders/1.parquet", [("north", 5, 0, 1), ("south", 7, 0, 1)], **ORDER_COLUMNS)
    result = pipelines("diff", "one/orders.yaml", "two/orders.yaml", "--select", "large", "-o", "json")
    assert result.code == 1, result.err
    tree = json.loads(result.out)
    folder = pipelines.folder
    assert tree["notes"] == [f"input orders: A reads {folder}/one/orders, B {folder}/two/orders", *SCALED]
    changes = tree["outputs"]["large"]["changes"]
    assert [(each["change"], each["row"]["amount"]) for each in changes] == [
        ("removed", 5),
        ("removed", 7),
        ("added", 10),
        ("added", 14),
    ]


def git(folder, *words):
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com", *words],
        check=True,
        timeout=300,
    )


@pytest.fixture
def repository(pipelines):
    """Return a repository whose pipeline file, fragment and module are changed since its only commit; its data are in none."""
    text = BEFORE.replace(
        "apply: [filter: amount > 6]", "apply: [{map: {function: 'helpers:scaled', columns: {amount: int64}}}]"
    )
    declared = text[: text.index("collections:")]
    pipelines.write("jobs/shared/inputs.yaml", "inputs: {orders: ../../orders/}\n")
    pipelines.write(
        "jobs/sales.yaml", "include: shared/inputs.yaml\n" + text[len(declared) :].replace("out/", "../out/")
    )
    function = "def scaled(row):\n    return {'amount': row['amount'] * 1}\n"
    pipelines.write("jobs/helpers.py", function)
    (pipelines.folder / "jobs/link.yaml").symlink_to("sales.yaml")
    git(pipelines.folder, "init", "-q")
    git(pipelines.folder, "add", "jobs")
    git(pipelines.folder, "commit", "-q", "-m", "before")
    pipelines.write("jobs/helpers.py", function.replace("* 1", "* 3"))
    return pipelines


def test_a_file_is_compared_with_that_of_a_revision(repository):
    kept = files(repository.folder)
    result = repository("diff", "--base", "HEAD", "jobs/sales.yaml", "--select", "large", "--as-of", "1", "-o", "json")
    assert result.code == 1, result.err
    assert result.err == "running A: jobs/sales.yaml at HEAD\nrunning B: jobs/sales.yaml\n"
    tree = json.loads(result.out)
    found = tree["outputs"]["large"]
    assert found["a"]["name"] == "jobs/sales.yaml at HEAD: large"
    assert tree["notes"] == SCALED
    changes = {(each["change"], each["row"]["amount"]) for each in found["changes"]}
    assert changes == {("removed", one) for one in (5, 7, 10)} | {("added", three) for three in (15, 21, 30)}
    assert files(repository.folder) == kept
    repository.write("jobs/shared/inputs.yaml", "inputs: {orders: gone/}\n")
    wrong = repository("diff", "--base", "HEAD", "jobs/sales.yaml")
    assert wrong.err.startswith("running A: jobs/sales.yaml at HEAD\nrunning B"), "A has the fragment of the revision"
    assert "gone" in wrong.err
    git(repository.folder, "checkout", "-q", "jobs")
    assert repository("diff", "--base", "HEAD", "jobs/sales.yaml").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--base", "main~9", "jobs/sales.yaml"], "git knows no revision 'main~9'"),
        (["--base", "--all", "jobs/sales.yaml"], "git knows no revision '--all'"),
        (["--base", "HEAD", "after.yaml"], "the revision 'HEAD' has no such file"),
        (["--base", "HEAD", "jobs/link.yaml"], "the revision 'HEAD' has no such file"),
        (["--base", "HEAD", "before.yaml", "after.yaml"], "--base is for one pipeline file"),
        (["--base", "HEAD", "orders/"], "--base is for one pipeline file"),
        (["--base", "HEAD", "/usr/before.yaml"], "not a git repository"),
    ],
)
def test_wrong_revisions(repository, arguments, said):
    result = repository("diff", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_rows_put_aside_stay_aside(pipelines):
    text = BEFORE.replace("outputs:", "errors: {quarantine: failed/}\noutputs:").replace(
        "amount > 6", "10 / (amount - 7) > 0"
    )
    pipelines.write("before.yaml", text)
    kept = files(pipelines.folder)
    assert pipelines("diff", "before.yaml", "before.yaml").code == 0
    assert files(pipelines.folder) == kept


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        (lambda text: text.replace("from: orders", "from: order", 1), [], "no input or collection is named 'order'"),
        (
            lambda text: text.replace("orders: orders/", "orders: {import: {state: .dd/x, arrangement: y}}"),
            [],
            "a comparison can't read",
        ),
        (lambda text: text, ["--key", "id"], "neither side has a column 'id'"),
        (lambda text: text, ["--from", "3"], "--from, --to, --time, --csv and --plain are for data"),
    ],
)
def test_wrong_use(pipelines, change, arguments, said):
    pipelines.write("after.yaml", change(BEFORE))
    result = pipelines("diff", "before.yaml", "after.yaml", *arguments)
    assert result.code == 2, result.err
    assert said in result.err
    assert "running A" not in result.err
    assert not result.out
