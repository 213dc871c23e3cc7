"""What the Makefile's targets run, as `make --dry-run` prints it."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SET_UP = [f"--assume-old=.venv/{stamp}" for stamp in ("builds", "runs", "ready")]


def command(*words):
    """Return the last command that a call of make would run, less the path of Python."""
    printed = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", *SET_UP, *words],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return printed.splitlines()[-1].split(" -m ")[1].strip()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], "tests.soak --minutes 10"),
        (["MINUTES=3"], "tests.soak --minutes 3"),
        (["CASE=names:7"], "tests.soak --case 'names:7'"),
        (["RUNS=100"], "tests.bench.ageing --runs 100"),
    ],
)
def test_soak_draws_cases_and_measures_runs_only_when_asked(words, wanted):
    assert command("soak", *words) == wanted
