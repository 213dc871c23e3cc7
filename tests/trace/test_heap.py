"""Memory that was freed goes back to the system."""

import subprocess
import sys

import pytest

from ddcli import Dataflow
from ddcli.engine import in_memory

SCRIPT = """
import sys
import numpy as np
from ddcli.engine import buffer_pool as heap

heap.SLACK = 1 << 40 if "at once" in sys.argv else 1 << 20
looked = heap.Heap()
before = looked._resident()
matrices = [np.ones((1 << 10, 4), np.int64) for _ in range(2_000)]  # 64 MB, in pieces of 32 kB
full = looked._resident()
assert full > before + (48 << 20), (before, full)
del matrices[:-1]
heap.give_back() if "at once" in sys.argv else looked.give_back()
if looked._trim is not None:
    assert looked._resident() < full - (32 << 20), (full, looked._resident())
assert len(matrices) == 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux' own library")
@pytest.mark.parametrize("when", ["at once", "where much is resident"])
def test_small_matrices_between_others_are_given_back(when):
    """In a process of its own: in one that ran other tests, the matrices may lie where memory is free already."""
    subprocess.run([sys.executable, "-c", SCRIPT, when], check=True, timeout=300)


def test_a_loop_gives_back_what_its_large_rounds_were_in(monkeypatch):
    given = []
    monkeypatch.setattr(in_memory, "give_back", lambda: given.append(True))

    def times(many):
        """Return how often it does where so many updates count as many."""
        monkeypatch.setattr(in_memory, "MANY", many)
        given.clear()
        dataflow = Dataflow()
        numbers = dataflow.input("numbers", {"n": "int64"})
        output = numbers.iterate(lambda each: each.map(n="n + 1").concat(numbers).filter("n < 20").distinct()).output()
        for n in range(5):
            numbers.insert((n,))
        numbers.advance_to(1)
        dataflow.step()
        assert len(output.updates()) == 20
        return len(given)

    assert times(1) > times(8) > times(1 << 20) == 0
