"""Memory that was freed goes back to the system."""

import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
from ddcli.engine import heap

heap.SLACK = 1 << 20
looked = heap.Heap()
before = looked._resident()
matrices = [np.ones((1 << 10, 4), np.int64) for _ in range(2_000)]  # 64 MB, in pieces of 32 kB
full = looked._resident()
assert full > before + (48 << 20), (before, full)
del matrices[:-1]
looked.give_back()
if looked._trim is not None:
    assert looked._resident() < full - (32 << 20), (full, looked._resident())
assert len(matrices) == 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux' own library")
def test_small_matrices_between_others_are_given_back():
    """In a process of its own: in one that ran other tests, the matrices may lie where memory is free already."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=300)
