"""Sides that are larger than the memory that a comparison is given."""

import json
import os

import numpy as np
import polars as pl
import pytest

from tests.bench.processes import dd, measure

MEMORY = 384 << 20


@pytest.mark.in_turn
@pytest.mark.slow
def test_a_comparison_keeps_to_its_memory(tmp_path):
    """1.4 million rows of 150 bytes a side: more than the memory, as they are in it."""
    for part in range(16):
        ids = np.arange(part * 87_500, (part + 1) * 87_500)
        frame = pl.DataFrame({"id": ids}).with_columns(
            text=pl.format("a text that is long enough for a place of its own {}", pl.col("id").hash(1)),
            other=pl.format("another one {} that is as long as the first one", pl.col("id").hash(2)),
        )
        for name, change in (
            ("a", pl.col("id")),
            ("b", pl.when(pl.col("id") % 1000 == 0).then(-pl.col("id")).otherwise("id")),
        ):
            (tmp_path / name).mkdir(exist_ok=True)
            frame.with_columns(value=change).write_parquet(tmp_path / name / f"{part:02d}.parquet")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = dd(
        "diff",
        tmp_path / "a",
        tmp_path / "b",
        "--key",
        "id",
        "--memory",
        str(MEMORY),
        "-o",
        "json",
        "--max-changed",
        "1%",
    )
    # polars leaves how its allocator is set to those that we start; a shell does not.
    plain = {name: value for name, value in os.environ.items() if name != "_RJEM_MALLOC_CONF"}
    run = measure(command, {**plain, "TMPDIR": str(scratch)})
    assert json.loads(run.stdout)["rows"] == {"same": 1_398_601, "removed": 0, "changed": 1_399, "added": 0}
    assert run.peak < 1.3 * MEMORY
    assert not list(scratch.iterdir())
