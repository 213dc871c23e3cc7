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


ORDERS = """\
name: p
state: BUCKET/state
clock: arrival
inputs: {orders: {path: BUCKET/in/, columns: {region: string, amount: int64}}}
collections: {totals: {from: orders, apply: [{reduce: {by: [region], total: sum(amount)}}]}}
outputs: {totals: BUCKET/out/}
"""


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_files_of_a_bucket_are_added_and_left_out(shop, bucket):
    """By a scenario, a comparison, a branch and its merge; an added file that is moved into the input has been read."""
    shop.write("p.yaml", ORDERS.replace("BUCKET", str(bucket)))
    for name, row in {"in/1.csv": "a,1", "in/2.csv": "b,20", "more/3.csv": "b,300"}.items():
        (bucket / name).put(f"region,amount\n{row}\n".encode())

    def totals(output):
        result = shop("log", f"{bucket}/{output}", "--as-of", "latest", "-o", "csv")
        return dict(line.split(",")[:2] for line in result.out.splitlines()[1:])

    assert shop("run", "p.yaml").code == 0
    more = ("--with", f"orders+={bucket}/more/3.csv")
    shop.write("s.yaml", f"more: {{with: 'orders+={bucket}/more/3.csv'}}\nless: {{without: '{bucket}/in/2.csv'}}\n")
    result = shop("run", "p.yaml", "--scenarios", "s.yaml")
    changes = [line.split() for line in result.out.splitlines()[2:]]
    assert changes == [["more", "b", "20", "-1"], ["more", "b", "320", "1"], ["less", "b", "20", "-1"]], result
    for change, said in ((more, "total: 20 -> 320"), (("--without", f"{bucket}/in/2.csv"), 'region="b"  total=20')):
        result = shop("diff", "--against", f"{bucket}/state", "p.yaml", "--key", "region", *change)
        assert (result.code, said in result.out) == (1, True), result
    assert shop("branch", "new", "q", "p.yaml").code == 0
    assert shop("run", "p.yaml", "--branch", "q", *more).code == 0
    assert (totals("out"), totals("out@q")) == ({"a": "1", "b": "20"}, {"a": "1", "b": "320"})
    assert shop("branch", "merge", "q", "p.yaml").code == 0
    (bucket / "in/3.csv").put((bucket / "more/3.csv").read_bytes())
    (bucket / "more/3.csv").unlink()
    for command in (("run", "p.yaml"), ("verify", "p.yaml", "--all")):
        assert shop(*command).code == 0
    assert totals("out") == {"a": "1", "b": "320"}


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
