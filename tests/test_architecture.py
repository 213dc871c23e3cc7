"""docs/architecture.md is so: its stops exist and a run passes them in that order, its lists of files are all that the examples touch."""

import ast
import io
import re
import sys
import threading
import tomllib
from contextlib import chdir, redirect_stderr

import pytest

import ddcli
from ddcli.cli.main import main
from tests.harness import ROOT, copy_root

PAGE = (ROOT / "docs" / "architecture.md").read_text()
CODE = ROOT / "ddcli"
STOPS = re.findall(r"^\d+\. `([\w/]+\.py):([\w.]+)` \S", PAGE, re.MULTILINE)
PATH = re.compile(r"`((?:ddcli|tests|docs)/[\w./]+)`")
BESIDE = "circuit/traces.py", "StateTraces.write"
"""The first stop in another thread."""


def lists():
    """Return, by example, the files that are to be touched."""
    text = PAGE.partition("\n## Where to add\n")[2]
    _, *parts = re.split(r"^As `(\w+)`", text, flags=re.MULTILINE)
    found = {}
    for example, part in zip(parts[::2], parts[1::2], strict=True):
        lines = re.findall(r"^\* (.*)", part.partition("\n#")[0], re.MULTILINE)
        found[example] = [path for line in lines for path in PATH.findall(line.partition(": ")[0].partition(" (")[0])]
    return found


LISTS = lists()


def test_the_page_has_its_parts():
    assert 30 <= len(STOPS) <= 40
    assert set(LISTS) == {"TopK", "Threshold", "make_date", "delta_cdf", "explain"}
    assert all(len(files) > 3 for files in LISTS.values())
    assert (len(LISTS["TopK"]), len(LISTS["Threshold"])) == (6, 7)


@pytest.mark.parametrize(("file", "function"), STOPS)
def test_a_stop_exists(file, function):
    body = ast.parse((CODE / file).read_text()).body
    for name in function.split("."):
        (node,) = [each for each in body if getattr(each, "name", None) == name]
        body = node.body
    assert isinstance(node, ast.FunctionDef)


def test_a_run_passes_the_stops_in_order(tmp_path):
    """The stops of each list are found one after the other among the calls of a run whose state exists."""
    wanted, calls = set(STOPS), []
    prefix = f"{CODE}/"

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix):
            stop = code.co_filename.removeprefix(prefix), code.co_qualname
            if stop in wanted:
                calls.append(stop)

    with chdir(copy_root(tmp_path / "root")), redirect_stderr(io.StringIO()):
        for until, profile in (("480", None), ("540", note)):
            before = sys.getprofile()
            threading.setprofile(profile)
            sys.setprofile(profile)
            try:
                main(["run", "pipelines/airborne.yaml", "--until", until])
            finally:
                sys.setprofile(before)
                threading.setprofile(before)
    at = STOPS.index(BESIDE)
    for way in (STOPS[:at], STOPS[at:]):
        passed = iter(calls)
        assert [stop for stop in way if stop not in passed] == []


def test_every_package_is_on_the_page_in_the_order_of_imports():
    table = PAGE[PAGE.index("| package | holds |") : PAGE.index("## The way of one update")]
    rows = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    assert [set(row) for row in rows] == [set(layer) for layer in layers]


@pytest.mark.parametrize("path", sorted(set(PATH.findall(PAGE))))
def test_a_file_of_the_page_exists(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("example", LISTS)
def test_a_list_has_files_that_name_its_example(example):
    assert [
        path for path in LISTS[example] if not naming(example, re.IGNORECASE).search((ROOT / path).read_text())
    ] == []


@pytest.mark.parametrize("example", [example for example in LISTS if example != "explain"])
def test_a_list_has_every_file_of_the_code_that_names_its_example(example):
    """But `explain`, which is a word of everyday English, too."""
    found = [path for path in CODE.rglob("*.py") if naming(example).search(path.read_text())]
    listed = [path for path in LISTS[example] if path.startswith("ddcli/")]
    assert sorted(str(path.relative_to(ROOT)) for path in found) == sorted(listed)


def naming(example, flags=0):
    """Return the pattern of an example's name, of its class's, or of the word for that in a file."""
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", example).lower()
    return re.compile(rf"\b({example}|{example.title().replace('_', '')})\b|\"{word}\"", flags)


def test_it_is_read_in_ten_minutes():
    """At 250 words a minute; the lists are looked things up in."""
    assert len(PAGE.partition("\n## Where to add\n")[0].split()) <= 2500
    assert ddcli.__file__.startswith(str(CODE)), "the page is about this code"
