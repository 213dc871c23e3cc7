"""Counts and sums of groups out of core and as tasks, where each slice's are added up before these are brought to their shards, against plain Python."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.engine.operators import reduce
from ddcli.engine.operators.groups import CombinedSums
from ddcli.job.sizes import Sizes
from ddcli.runtime import placement
from tests.draws import many
from tests.harness import contents, write_log
from tests.spark.support import Here, started

PIPELINE = """\
dd: 1
name: a
inputs: {{rows: in/}}
collections:
  sums:
    from: rows
    apply:
      - reduce: {{by: [{by}], n: count(*), known: count(v), total: sum(v), price: sum(d)}}
outputs: {{sums: out/}}
"""
KEYS = {"text": pl.String, "number": pl.Int32}
LOG = {**KEYS, "v": pl.Int64, "d": pl.Decimal(12, 2), "time": pl.Int64, "diff": pl.Int64}


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("seed", range(many(24)))
def test_sums_are_those_of_all_rows(tmp_path, monkeypatch, seed, engine):
    draw = random.Random(seed)
    by = draw.sample([*KEYS], draw.randint(1, 2))
    shards, rows, added = draw.choice([1, 2, 3]), Counter(), []

    def sizes(_rows, _width, _kept, *_, **__):
        return Sizes(shards, shards * 2, draw.randint(1, 2), draw.randint(1, 5), draw.choice([0, 100, 1_000_000]))

    step = CombinedSums.step

    def noted(operator, *given):
        found = step(operator, *given)
        added.append(len(found.updates))
        return found

    monkeypatch.setattr(placement, "sizes", sizes)
    monkeypatch.setattr(reduce, "LEAST", 1)
    monkeypatch.setattr(reduce, "FEWER", draw.choice([0, 0, 1, 2]))
    monkeypatch.setattr(CombinedSums, "step", noted)
    (tmp_path / "a.yaml").write_text(PIPELINE.format(by=", ".join(by)))
    for time in range(draw.randint(1, 3)):
        new = [record(draw) for _ in range(draw.randint(1, 20))]
        gone = draw.sample([*rows.elements()], draw.randint(0, rows.total()))
        write_log(
            tmp_path / f"in/{time}.parquet",
            [(*each, time, diff) for some, diff in ((new, 1), (gone, -1)) for each in some],
            LOG,
        )
        rows.update(new)
        rows.subtract(gone)
        with started(Here(seed)):
            run(tmp_path / "a.yaml", engine=engine)
        assert contents(tmp_path / "out") == sums(rows, [[*KEYS].index(each) for each in by])
    assert any(added) or reduce.FEWER


def record(draw):
    """Return a record of few keys: values are null now and then, texts short or long."""
    text = draw.choice([None, "", "a", "b", "a text that is not kept in a number"])
    value = draw.choice([None, 0, 1, -5, 2**40])
    return text, draw.choice([None, 0, 7]), value, draw.choice([None, Decimal("0.01"), Decimal("-99999.99")])


def sums(rows, by):
    """Return each group's columns as the output has them."""
    groups = {}
    for row, count in rows.items():
        if count:
            groups.setdefault(tuple(row[at] for at in by), []).extend([row] * count)
    found = Counter()
    for key, some in groups.items():
        known, prices = ([row[at] for row in some if row[at] is not None] for at in (2, 3))
        found[(*key, len(some), len(known), sum(known) if known else None, sum(prices) if prices else None)] = 1
    return found
