"""The sizes at which the engine goes another way, made so small that the judge's few records go that way too."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from ddcli.engine import loop, workers
from ddcli.engine.arrangement import policy
from ddcli.engine.operators import walk
from ddcli.engine.operators.reduce import Reduce

AS_THEY_ARE = 4_096
"""Histories that are walked at most: with all sizes as they are. No history of the judge's is longer."""


@contextmanager
def few(rows: int):
    """Have loops walk histories of at most so many rows, and sweep the others; other sizes are small unless it is as it is."""
    with pytest.MonkeyPatch.context() as patch:
        if rows < AS_THEY_ARE:
            patch.setattr(walk, "FEW", rows)
            patch.setattr(walk, "RUNS", 1)
            patch.setattr(policy, "LITTLE", rows)
            patch.setattr(policy, "MOST_RUNS", 2)
            patch.setattr(policy, "LEAST_FUEL", 1)
            patch.setattr(loop, "LITTLE", rows)
            patch.setattr(workers, "FEW", rows)
            patch.setitem(Reduce.__init__.__kwdefaults__, "chunk", 1 + rows)
        yield
