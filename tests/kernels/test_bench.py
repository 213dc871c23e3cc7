"""The benchmark runs, at a size that takes no time."""

from __future__ import annotations

from tests.bench import kernels as bench


def test_every_case_is_measured():
    """Five cases, each with a time."""
    table = bench.measure(2000, 5)
    assert len(table) == 5
    assert all(wall > 0 for _, wall, _ in table)
