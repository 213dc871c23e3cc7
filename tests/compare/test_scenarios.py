"""`dd run --scenarios`: the rows that come and go in each scenario, beside a fresh run over the inputs as they would be."""

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from ddcli.compare.scenarios import scenarios
from ddcli.driver.run import run
from ddcli.errors import UsageError
from tests.draws import chance, many
from tests.harness import ORDER_COLUMNS, contents, files

TEXT = """\
name: shop
inputs:
  sales: {path: sales/, format: append, columns: {person: int64, amount: int64}}
  people: {path: people/, format: upsert, key: [person], columns: {person: int64, city: string}}
collections:
  spent:
    from: sales
    apply:
      - join: {with: people, on: [person]}
      - reduce: {by: [city], amount: sum(amount), sales: count(*), most: max(amount)}
outputs:
  spent: out/spent/
  large: {from: sales, path: out/large/}
"""
HEADERS = {"sales": "person,amount", "people": "person,city"}


def write(draw, path, name):
    rows = [f"{draw.randrange(4)},{draw.choice('xyz') if name == 'people' else draw.randrange(9)}" for _ in range(5)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([HEADERS[name], *rows]) + "\n")


def drawn(draw, folder, number):
    """Return the files that a scenario adds, or those that it leaves out."""
    added, without = [], []
    if draw.random() < 0.4:
        without = [draw.choice(sorted((folder / name).iterdir())) for name in HEADERS if draw.random() < 0.7]
    else:
        added = [name for name in HEADERS if draw.random() < 0.7]
    for name in added:
        write(draw, folder / f"more/{number}-{name}.csv", name)
    return added, without


@pytest.mark.parametrize("number", range(many(4)))
def test_each_scenario_is_a_fresh_run_of_the_inputs_as_they_would_be(number):
    draw = chance("scenarios", number)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "p.yaml").write_text(TEXT)
        for each in range(3):
            for name in HEADERS:
                write(draw, folder / name / f"{each}.csv", name)
            run(folder / "p.yaml")
        wanted, text = {}, ""
        for each in range(4):
            added, without = drawn(draw, folder, each)
            if added or without:
                wanted[f"s{each}"] = added, without
                lists = (
                    [f"{name}+=more/{each}-{name}.csv" for name in added],
                    [f"{p.parent.name}/{p.name}" for p in without],
                )
                text += f"s{each}: {json.dumps({k: v for k, v in zip(('with', 'without'), lists, strict=True) if v})}\n"
        if not wanted:
            return
        (folder / "s.yaml").write_text(text)
        kept = files(folder)
        found = scenarios(folder / "p.yaml", folder / "s.yaml")
        assert files(folder) == kept
        for name, (added, without) in wanted.items():
            fresh = folder / f"fresh-{name}"
            for each in HEADERS:
                shutil.copytree(folder / each, fresh / each)
            for path in without:
                (fresh / path.parent.name / path.name).unlink()
            (fresh / "p.yaml").write_text(TEXT)
            run(fresh / "p.yaml")
            for each in added:
                shutil.copy(folder / f"more/{name[1:]}-{each}.csv", fresh / each / "9.csv")
            run(fresh / "p.yaml")
            for output in ("spent", "large"):
                whole = Counter(contents(folder / "out" / output))
                if output in found:
                    for scenario, *record, diff in found[output].rows():
                        if scenario == name:
                            whole[tuple(record)] += diff
                assert +whole == +Counter(contents(fresh / "out" / output)), (name, output, text)


@pytest.fixture
def shop(orders):
    orders.log("fix/1.parquet", [("west", 9, 9, 1)], **ORDER_COLUMNS)
    assert orders("run", "orders.yaml").code == 0
    return orders


def test_the_command(shop):
    shop.write("s.yaml", "west: {with: orders+=fix/1.parquet}\nless: {without: [orders/1.parquet]}\n")
    kept = files(shop.folder)
    result = shop("run", "orders.yaml", "--scenarios", "s.yaml", "-o", "json")
    rows = json.loads(result.out)["totals"]
    assert {"scenario": "west", "region": "west", "amount": 9, "orders": 1, "diff": 1} in [
        {key: row[key] for key in ("scenario", "region", "amount", "orders", "diff")} for row in rows
    ]
    assert {row["scenario"] for row in rows} == {"west", "less"}
    text = shop("run", "orders.yaml", "--scenarios", "s.yaml")
    assert (text.code, text.out.startswith("totals:\nscenario")) == (0, True)
    assert files(shop.folder) == kept


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file has no scenarios"),
        ("a: {set: x}", "unknown key 'set'"),
        ("a: {with: 1.csv}", "names no input and file"),
        ("a: {}", "found an empty one"),
        ("[a]", "must be a mapping of scenarios"),
    ],
)
def test_broken_files(shop, text, problem):
    shop.write("s.yaml", text)
    result = shop("run", "orders.yaml", "--scenarios", "s.yaml")
    assert (result.code, problem in result.err) == (2, True), result


def test_what_would_lose_files_is_refused(tmp_path, monkeypatch):
    """A file that is left out has the table of people built anew, before the added file is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(TEXT)
    for each in range(2):
        for name in HEADERS:
            write(chance(each), tmp_path / name / f"{each}.csv", name)
    run(Path("p.yaml"))
    write(chance(3), tmp_path / "more.csv", "people")
    (tmp_path / "s.yaml").write_text("a: {with: people+=more.csv, without: people/1.csv}")
    with pytest.raises(UsageError, match="can't be added and left out"):
        scenarios(Path("p.yaml"), Path("s.yaml"))


def test_options_that_do_not_fit(shop):
    shop.write("s.yaml", "a: {with: orders+=fix/1.parquet}")
    for option in ("--watch", "--dry-run"):
        result = shop("run", "orders.yaml", "--scenarios", "s.yaml", option)
        assert (result.code, f"--scenarios and {option} don't go together" in result.err) == (2, True), result


def test_a_file_that_is_missing(shop):
    result = shop("run", "orders.yaml", "--scenarios", "none.yaml")
    assert (result.code, "no such file of scenarios" in result.err) == (2, True), result
