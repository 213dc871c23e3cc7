"""Joins that emit their rows in parts of a row or two, with all kinds of readers in the same stage: what is written is as ever."""

from __future__ import annotations

import math
import random
import tempfile
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine import executor, kernels
from ddcli.engine.kernels import uniform
from ddcli.job.sizes import Sizes
from ddcli.plan import generations
from ddcli.runtime import placement
from tests.draws import many
from tests.judge.case import Case
from tests.judge.harness import judge
from tests.judge.logs import cuts, updates
from tests.judge.sizes import kernel_join
from tests.spark.support import Here, started
from tests.yaml_text import write_yaml

READERS = {
    "groups": [{"reduce": {"by": ["k"], "n": "count(*)", "least": "min(v)"}}],
    "sums": [{"reduce": {"by": ["v"], "n": "count(*)", "t": "sum(w)"}}],
    "number": [{"reduce": {"n": "count(*)"}}],
    "middle": [{"reduce": {"by": ["w"], "m": "median(v)"}}],
    "first": [{"top_k": {"by": ["k"], "order_by": ["w", "v desc"], "k": 2}}],
    "some": [{"filter": "v > w"}],
    "fewer": [{"map": {"k": "k", "w": "w"}}],
    "one": [{"map": {"k": "k", "c": "1"}}],
    "turned": [{"map": {"k": "k", "v": "w", "w": "v"}}],
    "once": [{"map": {"k": "k", "v": "v"}}, "distinct"],
    "again": [{"join": {"with": "r", "on": ["k"]}}],
    "without": [{"semijoin": {"with": "r", "on": ["k"]}}],
    "shown": [{"filter": "w <> 1"}, {"map": {"k": "k", "v": "v + w"}}, {"concat": "p"}],
    "difference": ["negate", {"map": {"k": "k", "v": "v", "w": "w"}}, {"concat": "turned"}],
    "together": [{"filter": "v > w"}, {"concat": "turned"}],
    "later": [{"temporal_filter": {"from": "v"}}, {"map": {"k": "k", "w": "w"}}],
}
"""What is read of `pairs`, with columns k, v and w."""


@st.composite
def joined(draw):
    """Give a join of two or three inputs by a key of few values, some readers of it, the logs, and the runs."""
    kind = draw(st.sampled_from(["int64", "int64?"]))
    columns = {"p": {"k": kind, "v": "int64"}, "q": {"k": kind, "w": "int64"}, "r": {"k": kind, "u": "int64"}}
    apply = [{"join": {"with": "q", "on": ["k"]}}]
    if draw(st.booleans()):
        apply = [{"join": {"with": "r", "on": ["k"]}}, *apply, {"map": {name: name for name in "kvw"}}]
    chosen = draw(st.lists(st.sampled_from([*READERS]), min_size=1, max_size=4, unique=True))
    needed = {"turned"} if {"difference", "together"} & {*chosen} else set()
    collections = {"pairs": {"from": "p", "apply": apply}}
    collections |= {name: {"from": "pairs", "apply": READERS[name]} for name in sorted({*chosen, *needed})}
    outputs = [*chosen, *(["pairs"] if draw(st.booleans()) else [])]
    tree = {"dd": 1, "name": "judged", "collections": collections}
    tree["inputs"] = {name: {"path": f"in/{name}/", "columns": columns[name]} for name in columns}
    tree["outputs"] = {name: f"out/{name}/" for name in outputs}
    logs = {name: draw(updates(each, 1, valid=True, looping=False)) for name, each in columns.items()}
    return Case(write_yaml(tree), draw(cuts(logs, 1)))


@contextmanager
def in_parts(seed, shards):
    """Have runs begin in memory, or out of core, with room for few rows of joins."""
    chance = random.Random(seed)

    def sizes(_rows, _width, kept, *_, apart=False, joined=0, **__):
        common = math.lcm(*kept, shards)
        few = chance.choice([1, 1, 200])
        if chance.random() < 0.3 and not joined and not apart:
            return Sizes(shards, common, 2, joined=few)
        return Sizes(shards, 2 * common, chance.randint(1, 2), chance.randint(1, 4), chance.choice([0, 10_000]), few)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "sizes", sizes)
        patch.setattr(kernel_join, "FEW", chance.choice([0, 1]))
        if chance.random() < 0.5:  # arrangements of a first load keep times and diffs once
            patch.setattr(kernels, "FEW", 0)
            patch.setattr(uniform, "LEAST", 1)
            patch.setattr(uniform, "REPEATED", 1)
        patch.setattr(executor, "SETTLED", chance.choice([0, 3, executor.SETTLED]))
        patch.setitem(generations.plan.__kwdefaults__, "deltas", chance.random() < 0.4)
        yield


@settings(max_examples=many(30))
@given(joined(), st.sampled_from([1, 3]), st.integers(0, 2**32))
def test_joins_in_parts_mean_what_is_written(case, shards, seed):
    """In this process, or as tasks of others."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, in_parts(seed, shards), started(Here(seed)):
        judge(case, Path(folder), lambda: {"engine": chance.choice(["local", "spark"])})


@pytest.mark.parametrize("once", [False, True])
def test_an_output_has_each_record_once_where_both_sides_change(shop, monkeypatch, once):
    """The new rows of one side with all of the other, and the others with its new ones, have updates of the same pairs at one time.

    So have equal rows of a load: also those whose time and diff are kept `once`.
    """
    monkeypatch.setattr(placement, "sizes", lambda *_, **__: Sizes(1, 2, 1, 3, 100, 1))
    monkeypatch.setattr(kernel_join, "FEW", 0)
    if once:
        for module, name in ((kernels, "FEW"), (uniform, "LEAST"), (uniform, "REPEATED")):
            monkeypatch.setattr(module, name, int(module is uniform))
    shop.write(
        "p.yaml",
        """\
dd: 1
name: p
inputs: {p: {path: p/, columns: {k: int64, v: int64}}, q: {path: q/, columns: {k: int64, w: int64}}}
collections: {c: {from: p, apply: [{join: {with: q, on: [k]}}]}}
outputs: {c: out/}
""",
    )
    for time in range(2):
        rows = [f"1,{value},{time}" for value in (0, 0, 1, 2)]
        shop.write(f"p/{time}.csv", "k,v,time,diff\n" + "".join(f"{row},1\n" for row in rows))
        shop.write(f"q/{time}.csv", "k,w,time,diff\n" + "".join(f"{row},1\n" for row in rows))
        done = shop("run", "p.yaml")
        assert done.code == 0, done.err
    found = pl.read_parquet(shop.folder / "out/*.parquet").select("k", "v", "w", "time", "diff").sort(pl.all()).rows()
    often = (2, 1, 1)
    assert found == [
        (1, v, w, time, often[v] * often[w] * (1 + 2 * time)) for v in range(3) for w in range(3) for time in range(2)
    ]


def test_a_run_in_memory_begins_again_out_of_core(shop, monkeypatch):
    """Once: the second attempt knows how many rows the join has. A dry run does so, too."""
    asked, placed = [], placement.sizes

    def cut(*given, joined=0, **options):
        asked.append(joined)
        return placed(*given, joined=joined, **options) if joined else Sizes(1, 1, 1, joined=1000)

    monkeypatch.setattr(placement, "sizes", cut)
    shop.write("in/p.csv", "k,v,time,diff\n" + "".join(f"1,{at},0,1\n" for at in range(30)))
    shop.write("q/q.csv", "k,w,time,diff\n" + "".join(f"1,{at},0,1\n" for at in range(40)))
    shop.write(
        "p.yaml",
        """\
dd: 1
name: p
inputs: {p: {path: in/, columns: infer}, q: {path: q/, columns: infer}}
collections: {c: {from: p, apply: [{join: {with: q, on: [k]}}, {reduce: {by: [k], n: count(*), v: sum(v * w)}}]}}
outputs: {c: out/}
""",
    )
    for options in (["--dry-run"], []):
        asked.clear()
        done = shop("run", "p.yaml", *options)
        assert done.code == 0, done.err
        assert "a join has 1,200 rows, too many for the memory: the run starts again out of core" in done.err
        assert asked == [0, 1200]
    assert pl.read_parquet(shop.folder / "out/*.parquet").select("k", "n", "v", "diff").rows() == [
        (1, 1200, sum(range(30)) * sum(range(40)), 1)
    ]
    asked.clear()
    shop.write("q/more.csv", "k,w,time,diff\n1,7,1,1\n")
    assert "again" not in shop("run", "p.yaml").err
    assert asked == [0]
