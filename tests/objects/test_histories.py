"""Comparisons with a state in an object store, and branches of it, as in files: random histories with main at work meanwhile."""

import json

import pytest

from ddcli.store.files.buckets import bucket as opened
from tests.cli.test_branch import History, merged
from tests.compare.test_against_histories import Pipeline, history, shown
from tests.draws import chance, many


@pytest.mark.in_turn
@pytest.mark.parametrize("case", range(many(2)))
def test_the_effect_of_an_edit_is_the_difference_of_two_fresh_states(shop, bucket, case):
    history(shop, chance("against in a store", case), f"{bucket}/", rounds=2)


@pytest.mark.in_turn
@pytest.mark.parametrize("case", range(many(2)))
def test_a_merge_equals_a_run_over_the_union(tmp_path, bucket, case):
    merged(History(tmp_path, chance("branch in a store", case), bucket), steps=4)


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_credentials_that_may_only_read(shop, bucket, monkeypatch):
    """Answer all questions about a state, and leave nothing behind; what writes is refused."""
    for name in ("prod", "co"):
        (shop.folder / name).mkdir()
    main = Pipeline(shop.folder / "prod", chance("reader"), f"{bucket}/")
    main.act(("run",))
    settings = 4, "max", 1
    edited, effect = shop.write("co/shop.yaml", main.text(settings)), main.effect(settings)
    objects = {path: path.read_bytes() for path, _ in bucket.below()}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    opened.cache_clear()
    against = ["diff", "--against", str(main.state), "-o", "json", "--limit", "1000"]
    result = shop(*against, str(edited))
    assert shown(json.loads(result.out)) == effect, result
    assert shop(*against, str(main.pipeline), "--without", "prod/sales/1.csv").code == 1
    for part in (["--slice", "1/2"], ["--slice", "50%"], ["--all"]):
        result = shop("verify", str(main.pipeline), *part)
        assert result.code == 0, result
        assert ("the state does not remember the slice" in result.err) == ("50%" in part)
    total = sum(amount for rows in main.sales.values() for _, amount in rows)
    count = sum(map(len, main.sales.values()))
    person = main.sales[shop.folder / "prod/sales/1.csv"][0][0]
    answers = {
        ("sql", "select sum(amount) as s from large", "--from", str(main.pipeline), "-o", "csv"): f"s\n{total}\n",
        ("bisect", str(main.pipeline), "select count(*) from large", "--good", f"< {count}"): f": {count};",
        ("why", str(main.pipeline), "large", f"person={person}", "--limit", "1"): "alone produces it",
    }
    for command, said in answers.items():
        result = shop(*command)
        assert said in result.out + result.err, result
    scenarios = shop.write("co/s.yaml", f"less: {{without: {shop.folder}/prod/sales/1.csv}}\n")
    result = shop("run", str(main.pipeline), "--scenarios", str(scenarios), "-o", "json")
    assert (result.code, "less" in result.out) == (0, True), result
    for command in (["branch", "new", "q4", str(main.pipeline)], ["run", str(main.pipeline), "--full-refresh", "all"]):
        result = shop(*command)
        assert (result.code, "reader may only read" in result.err) == (5, True), result
    assert {path: path.read_bytes() for path, _ in bucket.below()} == objects
    opened.cache_clear()
