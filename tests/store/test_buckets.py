"""Rows in parts add up to the same as all at once."""

import random
from collections import Counter

import polars as pl
import pytest

from ddcli.store.scratch import buckets
from ddcli.store.scratch.buckets import partition
from tests.draws import SEED

SCHEMA = {"a": pl.Float64, "b": pl.List(pl.String), "n": pl.Int64}


@pytest.mark.parametrize("most", [1, 300, 1 << 20])
def test_equal_rows_are_in_one_part(monkeypatch, tmp_path, most):
    monkeypatch.setattr(buckets, "HELD", most)
    draw = random.Random(f"{SEED}")
    sides = [
        [
            pl.DataFrame(
                [
                    (draw.choice([0.0, -0.0, float("nan"), None, 1.5]), draw.choice([None, [], ["x", None]]), at)
                    for _ in range(5)
                ],
                SCHEMA,
                orient="row",
            )
            for at in range(draw.randrange(7))
        ]
        for _ in range(3)
    ]
    sides.append([])
    found = list(partition(sides, ["a", "b"]))
    for side, frames in enumerate(sides):
        parts = [row for part in found for frame in part[side] for row in frame.rows()]
        assert Counter(map(str, parts)) == Counter(str(row) for frame in frames for row in frame.rows())
    places = {}
    for at, part in enumerate(found):
        for frame in (frame for frames in part for frame in frames):
            for a, b, _ in frame.with_columns(pl.col("a") + 0.0).rows():
                places.setdefault(str((a, b)), set()).add(at)
    assert all(len(each) == 1 for each in places.values())
    assert len(found) == 1 or most < 1 << 20
