"""`dd inputs`: each file has the state by which a run treats it."""

import json
import os
import random

import pytest

from ddcli.commands.inputs import STATES
from tests.harness import ROOT

PIPELINE = """\
dd: 1
name: p
clock: arrival
inputs: {a: {path: in/, format: append, columns: {id: int64}}}
outputs: {a: out/}
"""


def states(shop, *words):
    """Return the state of each file of the first input."""
    result = shop("inputs", "p.yaml", "-o", "json", *words)
    assert result.code == 0, result.err
    return {file["file"]: file["state"] for file in next(iter(json.loads(result.out)["inputs"].values()))}


@pytest.fixture
def files(shop):
    """Return a shop whose pipeline has read three files."""
    shop.write("p.yaml", PIPELINE)
    for number in (1, 2, 3):
        shop.write(f"in/{number}.csv", f"id\n{number}\n")
    assert shop("run", "p.yaml").code == 0
    return shop


def test_files_have_the_states_that_the_page_names(files):
    assert states(files) == {f"{number}.csv": "read" for number in (1, 2, 3)}
    files.write("in/2.csv", "id\n22\n")
    (files.folder / "in/3.csv").unlink()
    files.write("in/4.csv", "id\n4\n")
    files.write("in/_draft.csv", "id\n4\n")
    found = states(files)
    assert found.pop("_draft.csv", "skipped") == "skipped"
    assert found == {"1.csv": "read", "2.csv": "changed", "3.csv": "missing", "4.csv": "new"}
    assert states(files, "--select", "changed", "--select", "new") == {"2.csv": "changed", "4.csv": "new"}
    assert files("inputs", "p.yaml", "--select", "archived").out == ""
    text = files("inputs", "p.yaml").out
    assert "changed  2.csv" in text
    assert "a file that was already read has vanished: '3.csv'" in text
    page = (ROOT / "docs/running.md").read_text()
    assert [state for state in STATES if f"| `{state}` |" not in page] == []


def test_a_first_run_that_reads_nothing_names_the_command_that_shows_why(shop):
    shop.write("p.yaml", PIPELINE)
    shop.write("in/1.json", '{"id": 1}')
    found = shop("run", "p.yaml")
    assert found.code == 0
    assert "p: nothing new, and nothing read so far: `dd inputs` shows" in found.err
    assert states(shop) == {"1.json": "skipped"}
    shop.write("in/1.csv", "id\n1\n")
    assert shop("run", "p.yaml").code == 0
    assert "nothing read so far" not in shop("run", "p.yaml").err


def test_withdrawn_files_are_told_from_repaired_ones(files):
    assert files("retract", "p.yaml", "in/1.csv").code == 0
    assert states(files)["1.csv"] == "withdrawn"
    files.write("in/1.csv", "id\n111\n")
    assert states(files)["1.csv"] == "repaired"
    assert files("run", "p.yaml").code == 0
    assert states(files)["1.csv"] == "read"


def test_consumed_files_are_archived_or_forgotten(shop):
    for consumed, wanted in (("{archive: done/}", {"done/1.csv": "archived"}), ("forget", {"1.csv": "forgotten"})):
        shop.write(
            "p.yaml",
            PIPELINE.replace("id: int64}", f"id: int64}}, consumed: {consumed}")
            .replace("out/", f"out-{len(consumed)}/")
            .replace("name: p", f"name: p{len(consumed)}"),
        )
        shop.write("in/1.csv", "id\n1\n")
        assert shop("run", "p.yaml").code == 0
        if consumed == "forget":
            (shop.folder / "in/1.csv").unlink()
        assert states(shop) == wanted


def test_an_input_without_files_is_refused_before_the_first_run_and_all_missing_after_it(files):
    for path in (files.folder / "in").iterdir():
        path.unlink()
    (files.folder / "in").rmdir()
    assert states(files) == {f"{number}.csv": "missing" for number in (1, 2, 3)}
    files.write("p.yaml", PIPELINE.replace("name: p", "name: q"))
    assert files("inputs", "p.yaml").code == 3


@pytest.mark.parametrize("seed", range(8))
def test_a_run_is_refused_exactly_if_a_file_is_changed_or_missing(files, seed):
    """Whatever happened to the files, the listing agrees with what the run does, and so with what `dd plan` counts as new."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 5)):
        path = files.folder / f"in/{chance.randint(1, 5)}.csv"
        kind = chance.choice(["touch", "change", "remove", "add"])
        if kind == "add" and not path.exists():
            path.write_text(f"id\n{chance.randint(10, 99)}\n")
        elif kind == "change" and path.exists():
            path.write_text(f"id\n{chance.randint(100, 999)}\n")
        elif kind == "touch" and path.exists():
            os.utime(path, (1e9 + seed, 1e9 + seed))
        elif kind == "remove" and path.exists() and seed % 2:
            path.unlink()
    found = states(files)
    new = sum(state == "new" for state in found.values())
    refused = {"changed", "missing"} & {*found.values()}
    result = files("run", "p.yaml", "-o", "json")
    assert result.code == (3 if refused else 0), result.err
    if not refused:
        summary = json.loads(result.out)
        assert (summary["inputs"]["a"]["files"] if summary["changed"] else 0) == new


def files_of(shop):
    """Return the files of all inputs as JSON, by their names."""
    result = shop("inputs", "p.yaml", "-o", "json")
    assert result.code == 0, result.err
    return {file["file"]: file for each in json.loads(result.out)["inputs"].values() for file in each}


def counted(shop):
    """Return what the listing counts of each file: rows, late rows, and whether it names commit and time."""
    files = files_of(shop).items()
    return {name: (file["rows"], file["late"], bool(file["commit"] and file["read_at"])) for name, file in files}


@pytest.mark.parametrize("late", ["quarantine", "arrive"])
def test_rows_are_counted_as_they_are_read(shop, late):
    shop.write(
        "p.yaml",
        PIPELINE.replace("clock: arrival", "clock: event").replace(
            "format: append, columns: {id: int64}",
            f"format: append, time: t, late: {late}, columns: {{t: int64, id: int64}}",
        ),
    )
    shop.write("in/1.csv", "t,id\n1,1\n2,2\n7,3\n")
    assert shop("run", "p.yaml", "--until", "5").code == 0
    assert counted(shop) == {"1.csv": (2, 0, True)}
    first = json.loads(shop("inputs", "p.yaml", "-o", "json").out)["inputs"]["a"][0]
    assert first["commit"] == 1
    assert shop("run", "p.yaml", "--until", "6").code == 0
    assert json.loads(shop("inputs", "p.yaml", "-o", "json").out)["inputs"]["a"][0] == first, "it took in nothing more"
    shop.write("in/2.csv", "t,id\n1,1\n2,2\n6,3\n8,1\n")
    assert counted(shop)["2.csv"] == (None, None, False)
    assert shop("run", "p.yaml", "--until", "8").code == 0
    assert counted(shop) == {"1.csv": (3, 0, True), "2.csv": (1 if late == "quarantine" else 3, 2, True)}
    assert shop("run", "p.yaml", "--until", "20").code == 0
    assert counted(shop) == {"1.csv": (3, 0, True), "2.csv": (2 if late == "quarantine" else 4, 2, True)}
    assert "2 late" in shop("inputs", "p.yaml").out


@pytest.mark.parametrize("errors", ["quarantine", "fail"])
def test_rows_that_cannot_be_read_and_forgotten_rows_do_not_count(shop, errors):
    shop.write(
        "p.yaml",
        PIPELINE.replace("id: int64}", "id: int64, v: string?}, changed: replace").replace(
            "clock:", f"errors: {errors}\nclock:"
        ),
    )
    for number in (1, 2, 3):
        shop.write(
            f"in/{number}.csv",
            f"id,v\n{number},a\n{number},b\n" + ("x,b\n" if (number, errors) == (3, "quarantine") else ""),
        )
    assert shop("run", "p.yaml").code == 0
    assert {name: rows for name, (rows, *_) in counted(shop).items()} == {"1.csv": 2, "2.csv": 2, "3.csv": 2}
    assert shop("forget", "p.yaml", "--where", "id = 1 and v = 'b'").code == 0
    assert counted(shop)["1.csv"][0] == 1
    first = files_of(shop)
    shop.write("in/1.csv", "id,v\n1,a\n")
    shop.write("in/2.csv", "id,v\n2,a\n5,c\n2,b\n")
    assert shop("run", "p.yaml").code == 0
    assert counted(shop)["2.csv"] == (3, 0, True)
    then = files_of(shop)
    assert [then[name]["read_at"] > first[name]["read_at"] for name in first] == [True, True, False], (
        "those of the run that replaced two"
    )
    for _ in range(2):  # a repeated command finds them in the file again
        assert shop("forget", "p.yaml", "--where", "id = 2").code == 0
        assert {name: rows for name, (rows, *_) in counted(shop).items()} == {"1.csv": 1, "2.csv": 1, "3.csv": 2}
