"""Each benchmark, small: its results agree with the peers' and with plain recomputation, and its table prints."""

import json
import subprocess

import pytest

from tests.bench.__main__ import main
from tests.bench.cases import CASES
from tests.bench.engine import CASES as ENGINE_CASES
from tests.bench.files import Session, same
from tests.bench.processes import measure, python
from tests.bench.table import Asked, Figure, duration, render

ROWS = 2_000
# Engine cases run in this process below, and compiling all kernels anew takes long; the tests of kernels do that.
WHOLE = [name for name in CASES if name != "compile" and not name.startswith("engine")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


@pytest.mark.parametrize("name", WHOLE)
def test_a_case_of_whole_processes_agrees_with_the_peers(name, folder):
    figures = CASES[name](Session(ROWS, 1, folder))
    assert figures
    for figure in figures:
        assert figure.seconds > 0
        assert set(figure.peers) in ({"polars", "duckdb"}, set())
        assert figure.case in render([figure], "text")


@pytest.mark.parametrize("name", ENGINE_CASES)
def test_a_case_of_the_engine_gives_the_right_answer(name):
    assert all(seconds > 0 for seconds in ENGINE_CASES[name](ROWS).values())


def test_the_command_prints_a_table_with_what_was_asked(folder, capsys):
    main(["--case", "engine-load", "--rows", "1000", "--runs", "1", "--folder", str(folder), "-o", "markdown"])
    shown = capsys.readouterr()
    assert shown.out.startswith("| case ")
    assert "| engine: skip-level, 1 k people |" in shown.out
    assert "| 4 s " in shown.out
    assert shown.err.startswith("engine-load ...\n  engine: skip-level, 1 k people  ")


def test_a_peak_is_that_of_the_process_and_not_of_whoever_measures():
    large = b"x" * 200_000_000
    small = measure(python("-c", "pass"))
    assert small.peak < len(large)
    assert 0 < small.wall < 60


def test_a_program_runs_as_users_have_it(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert measure(python("-c", "import sys; print(sys.dont_write_bytecode)")).stdout == "False\n"


def test_a_program_that_fails_is_no_figure():
    with pytest.raises(RuntimeError, match="ended with 3:\nsorry"):
        measure(python("-c", "import sys; sys.stderr.write('sorry'); sys.exit(3)"))


def test_programs_that_disagree_are_no_figure():
    with pytest.raises(AssertionError, match="dd and polars disagree"):
        same("polars", (1, 2), (1, 3))


def test_the_peers_are_programs_by_themselves(root):
    for program in (root / "tests" / "bench" / "peers").glob("*_files.py"):
        assert "tests.bench" not in program.read_text()
        assert "ddcli" not in program.read_text()


@pytest.mark.parametrize(
    ("asked", "seconds", "peak", "met"),
    [
        (Asked(seconds=1), 1.0, None, True),
        (Asked(seconds=1), 1.1, None, False),
        (Asked(times_polars=3), 5.9, None, True),
        (Asked(times_polars=3), 6.1, None, False),
        (Asked(fastest=True), 0.9, None, True),
        (Asked(fastest=True), 1.5, None, False),
        (Asked(peak=2e9), 1.0, 1_000_000_000, True),
        (Asked(peak=2e9), 1.0, 3_000_000_000, False),
    ],
)
def test_a_bound_is_met_or_not(asked, seconds, peak, met):
    figure = Figure("case", seconds, asked, {"polars": 2.0, "duckdb": 1.0}, peak)
    assert asked.met_by(figure) is met
    assert json.loads(render([figure], "json"))[0]["met"] is met
    assert ("yes" if met else "NO") in render([figure], "text")


def test_a_small_run_is_not_held_against_what_was_asked_of_a_large_one():
    figure = Figure("case", 1.0, Asked(seconds=10), full=False)
    assert "yes" not in render([figure], "text")
    assert json.loads(render([figure], "json"))[0]["met"] is None


def test_durations_are_for_people():
    assert [duration(seconds) for seconds in (12.3456, 0.01234, 0.0000123, 150.4)] == [
        "12.3 s",
        "12.3 ms",
        "12.3 µs",
        "150 s",
    ]


def test_make_bench_runs_this(root):
    found = subprocess.run(
        ["make", "-n", "bench", "ARGS=--quick"], cwd=root, capture_output=True, text=True, check=True
    )
    assert "-m tests.bench --quick" in found.stdout
