"""Each benchmark, small: its results agree with the peers' and with plain recomputation, and its table prints."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from ddcli.plan.pipeline_file import parse_spec
from tests.bench import corrections, loops, rewrites, tpch, triangles
from tests.bench.__main__ import main
from tests.bench.cases import CASES
from tests.bench.engine import CASES as ENGINE_CASES
from tests.bench.files import Session, same
from tests.bench.processes import ProcessorTime, measure, python
from tests.bench.table import Asked, Figure, duration, render
from tests.draws import some
from tests.sql import nexmark

ROWS = 2_000
# Cases in memory run in this process below, and compiling all kernels anew takes long; the tests of kernels do that.
WHOLE = [name for name in CASES if name != "compile" and not name.startswith(("engine", "loops", "tpc"))]
FEW = ("q1", "q4")
"""Statements of Nexmark's: tests/sql judges all of them, with smaller changes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


@pytest.mark.in_turn
@pytest.mark.slow
@pytest.mark.parametrize("name", [*some(WHOLE)])
def test_a_case_of_whole_processes_agrees_with_the_peers(name, folder, monkeypatch):
    monkeypatch.setattr(rewrites, "FILES", 10)
    monkeypatch.setattr(corrections, "FILES", 10)
    monkeypatch.setattr(nexmark, "QUERIES", {query: nexmark.QUERIES[query] for query in FEW})
    figures = CASES[name](Session(ROWS, 1, folder))
    assert figures
    for figure in figures:
        assert figure.seconds > 0
        assert set(figure.peers) in ({"polars", "duckdb"}, {"polars"}, {"duckdb"}, set())
        assert figure.case in render([figure], "text")


@pytest.mark.in_turn
@pytest.mark.slow
def test_queries_of_tpch_agree_with_duckdb(folder):
    names = ["q06", "q13", "q18"]
    figures = tpch.one(Session(20_000, 1, folder), names, "some", Asked())
    assert [figure.case.removeprefix("TPC-H some, SF 0.002, ") for figure in figures] == [
        "load",
        "state",
        "then 300 orders in and out",
        "300 orders in and out under --watch",
    ]
    assert min(figure.seconds for figure in figures) > 0
    assert [set(figure.peers) for figure in figures] == [set(), set(), {"duckdb"}, {"duckdb"}]
    text = tpch.query("q06", 0.002).replace("sum(", "1 + sum(")
    with pytest.raises(AssertionError, match="q06: dd has 1 records, DuckDB 1"):
        tpch.compare(
            "dd", "q06", tpch.records_of(folder / "work/tpch-some/out/q06"), text, folder / "tpch-0.002/now-300"
        )


@pytest.mark.in_turn
@pytest.mark.slow
@pytest.mark.parametrize("name", [*some(sorted({*tpch.SOME, *tpch.LOADS}))])
def test_polars_computes_the_same_queries_of_tpch(name, folder, tmp_path):
    tables = tpch.tables(folder, 0.002) / "load"
    subprocess.run([sys.executable, tpch.POLARS, name, tmp_path / "out.parquet", tables], check=True)
    records = pl.read_parquet(tmp_path / "out.parquet").rows()
    assert records or name == "q18"
    tpch.compare("polars", name, records, tpch.query(name, 0.002), tables)


def test_the_time_of_processes_that_nobody_waits_for_counts():
    """As pyspark's daemon does, a process ignores the signal of a child that ends."""
    child = "import time\nwhile time.process_time() < 0.6: pass"
    parent = f"import signal, subprocess, sys, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nsubprocess.Popen([sys.executable, '-c', {child!r}])\ntime.sleep(1.5)"
    processors = ProcessorTime()
    before = processors.seconds
    subprocess.run(python("-c", parent), check=True)
    assert 0.3 < processors.seconds - before < 1.5


def test_all_queries_of_tpch_are_one_pipeline():
    assert list(tpch.QUERIES) == [f"q{number:02d}" for number in range(1, 23)]
    assert parse_spec(tpch.pipeline(list(tpch.QUERIES), 1.0), "all.yaml").outputs.keys() == tpch.QUERIES.keys()


@pytest.mark.parametrize("name", ENGINE_CASES)
def test_a_case_of_the_engine_gives_the_right_answer(name):
    assert all(seconds > 0 for seconds in ENGINE_CASES[name](ROWS).values())


@pytest.mark.parametrize(("name", "workers"), [*((name, 1) for name in loops.CASES), ("components", 2), ("strong", 2)])
def test_a_case_of_loops_gives_the_right_answer(name, workers, monkeypatch):
    monkeypatch.setattr(loops, "CHANGES", 20)
    assert all(seconds > 0 for seconds in loops.measured(*loops.CASES[name](200, workers)).values())


def test_triangles_are_those_that_duckdb_finds(monkeypatch):
    monkeypatch.setattr(triangles, "CHANGES", 20)
    found = triangles.measured(ROWS)
    assert found["held"] == 2
    assert min(found.values()) > 0
    rows, _ = triangles.computed(triangles.power_law(ROWS))
    assert not triangles.same(np.insert(rows[1:], 3, 1, axis=1), rows)


def test_a_case_of_loops_that_is_wrong_is_no_figure():
    results = loops.Results(lambda edges, nodes: edges, 4)
    results.kept = [np.array([[0, 1, 5, 1], [0, 2, 6, 1]])]
    results.check(5, np.array([[0, 1]]))
    with pytest.raises(AssertionError, match=r"the sign turned: \[\(0, 2, 1\)\]"):
        results.check(6, np.array([[0, 1]]))


def test_figures_of_loops_are_held_against_the_load_and_scipy(folder):
    found = CASES["loops-strong-by-length"](Session(10_000, 1, folder))
    load, one, _, together = found
    assert load.case == "loops: strong components, short labels first, 100 nodes, 300 edges, 1 worker"
    assert load.ratio().endswith("x scipy")
    assert one.load == together.load == load.seconds
    assert one.ratio().endswith(" of load")
    assert replace(one, seconds=load.seconds * 3).ratio() == "3x load"
    assert one.peers == load.peers
    assert not together.peers
    assert "2.5 ms" in render(found, "text")


def test_the_command_prints_a_table_with_what_was_asked(folder, capsys):
    main(["--case", "engine-load", "--rows", "1000", "--runs", "1", "--folder", str(folder), "-o", "markdown"])
    shown = capsys.readouterr()
    assert shown.out.startswith("| case ")
    assert "| engine: skip-level, 1 k people |" in shown.out
    assert "| 4 s, 0.99 GB " in shown.out
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


def test_a_column_without_any_figure_is_left_out():
    shown = render([Figure("case", 1.0, peers={"polars": 2.0}), Figure("other", 1.0)], "markdown").splitlines()
    assert shown[0] == "| case  | dd  | polars | ratio       |"
    assert shown[2] == "| case  | 1 s | 2 s    | 0.5x polars |"


def test_the_peers_are_programs_by_themselves(root):
    for program in (root / "tests" / "bench" / "peers").glob("*_*.py"):
        assert "tests.bench" not in program.read_text()
        assert "ddcli" not in program.read_text()


@pytest.mark.parametrize(
    ("asked", "seconds", "peak", "met"),
    [
        (Asked(seconds=1), 1.0, None, True),
        (Asked(seconds=1), 1.1, None, False),
        (Asked(times=3), 5.9, None, True),
        (Asked(times=3), 6.1, None, False),
        (Asked(fastest=True), 0.9, None, True),
        (Asked(fastest=True), 1.5, None, False),
        (Asked(times_faster=100), 0.9, None, True),
        (Asked(times_faster=100), 1.1, None, False),
        (Asked(peak=2e9), 1.0, 1_000_000_000, True),
        (Asked(peak=2e9), 1.0, 3_000_000_000, False),
    ],
)
def test_a_bound_is_met_or_not(asked, seconds, peak, met):
    figure = Figure("case", seconds, asked, {"polars": 2.0, "duckdb": 1.0}, 100.0, peak)
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
