"""Memory that was freed goes back to the system."""

import sys

import numpy as np
import pytest

from ddcli.engine import heap


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux' own library")
def test_small_matrices_between_others_are_given_back(monkeypatch):
    monkeypatch.setattr(heap, "SLACK", 1 << 20)
    looked = heap.Heap()
    before = looked._resident()
    matrices = [np.ones((1 << 10, 4), np.int64) for _ in range(2_000)]  # 64 MB, in pieces of 32 kB
    full = looked._resident()
    assert full > before + (48 << 20)
    del matrices[:-1]
    monkeypatch.setattr(looked, "_kept", before)
    looked.give_back()
    if looked._trim is not None:
        assert looked._resident() < full - (32 << 20)
    assert len(matrices) == 1
