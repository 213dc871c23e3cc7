"""What polars was lent comes back whenever, and wherever, polars lets go of it."""

import os
import subprocess
import sys
import threading

import numpy as np
import polars as pl
import pytest

from ddcli.engine import arrow
from ddcli.engine.arrow import series_of, to_series
from tests.harness import ROOT

PASSING = """
import numpy as np
from ddcli.engine import arrow
from ddcli.engine.arrow import series_of

def fail():
    raise ValueError("mine")

def caught():
    try:
        print(series_of("a", np.arange(5)), fail())
    except ValueError as error:
        return str(error)

def numbers():
    yield 1
    print(series_of("a", np.arange(5)), fail())

def from_a_generator():
    try:
        return list(numbers())
    except ValueError as error:
        return str(error)

print(caught(), from_a_generator(), (arrow.release_returned(), len(arrow._lent))[1])
"""


def outstanding() -> int:
    """Return the number of arrays that are lent."""
    arrow.release_returned()
    return len(arrow._lent)


def test_an_exception_goes_on_where_something_comes_back_on_its_way():
    """In a process of its own: Python code that polars called then took the exception away, and the process with it."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PASSING], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine mine 0\n", "")


def test_all_comes_back_from_any_thread():
    """While others lend: no note is lost."""
    before = outstanding()
    shared = [series_of("a", np.arange(number)) for number in range(1, 501)]

    def work(at: int) -> None:
        for place in range(at, 500, 4):
            own = pl.DataFrame([series_of("b", np.arange(place + 1)), shared[place]])
            assert own.sum_horizontal().sum() == place * (place + 1)
            shared[place] = own["b"]

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outstanding() == before + 500
    shared.clear()
    assert outstanding() == before


def test_what_polars_refuses_is_not_lent():
    """A form that polars doesn't know."""
    before = outstanding()
    with pytest.raises(BaseException, match="no form"):
        to_series("no form", 1, [np.arange(1)])
    assert outstanding() == before
