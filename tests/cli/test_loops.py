"""Loops in runs: the state goes on with them where the last run ended, and one that doesn't settle stops a run."""

import itertools

import networkx as nx
import polars as pl
import pytest

from tests.harness import contents, files, read_log
from tests.loops import LEAST_LABEL, indented

COMPONENTS = (
    """\
dd: 1
name: components
inputs: {edges: {path: edges/, time: TIME}}
collections:
  links: {from: edges, apply: [{concat: {from: edges, apply: [{map: {src: dst, dst: src}}]}}]}
  labels: {from: links, apply: [{map: {node: src, label: src}}, distinct]}
  component:
"""
    + indented(4, LEAST_LABEL)
    + "outputs: {component: out/component/}\n"
)
EDGES = [
    (1, 2, 0, 1),
    (2, 3, 0, 1),
    (3, 4, 1, 1),
    (4, 5, 1, 1),
    (2, 3, 2, -1),
    (1, 5, 3, 1),
    (4, 5, 4, -1),
    (9, 8, 4, 1),
]


def components(edges):
    """Return the least node of each node's component."""
    graph = nx.Graph(edges)
    return {(node, min(found)): 1 for found in nx.connected_components(graph) for node in found}


@pytest.mark.parametrize("untils", [[None], ["1", "2", "3", "4", "5"], ["2", "2", "4", None], ["0", "4", "9"]])
def test_a_loop_goes_on_where_the_last_run_ended(shop, untils):
    shop.write("components.yaml", COMPONENTS.replace("TIME", "time"))
    shop.log("edges/1.parquet", EDGES, src=pl.Int64, dst=pl.Int64, time=pl.Int64, diff=pl.Int64)
    for until in untils:
        result = shop("run", "components.yaml", *(["--until", until] if until else []))
        assert result.code == 0, result.err
    log = read_log(shop.folder / "out/component")
    assert log.group_by("node", "label", "time").len()["len"].max() == 1
    for time in range(5):
        there = {}
        for src, dst, at, diff in EDGES:
            there[src, dst] = there.get((src, dst), 0) + diff * (at <= time)
        assert contents(shop.folder / "out/component", time + 1) == components([e for e, n in there.items() if n])


@pytest.mark.parametrize("untils", [[None], ["1,1", "2,1", "2,2", "3,3"], ["1,3", "3,3"]])
def test_a_loop_over_times_of_two_coordinates(shop, untils):
    """With the rounds these are three coordinates."""
    shop.write("components.yaml", COMPONENTS.replace("TIME", "[x, y]"))
    edges = [(1, 2, 0, 0, 1), (2, 3, 0, 1, 1), (3, 4, 1, 0, 1), (1, 2, 2, 1, -1), (4, 1, 1, 2, 1), (2, 3, 2, 1, -1)]
    shop.log("edges/1.parquet", edges, src=pl.Int64, dst=pl.Int64, x=pl.Int64, y=pl.Int64, diff=pl.Int64)
    for until in untils:
        result = shop("run", "components.yaml", *(["--until", until] if until else []))
        assert result.code == 0, result.err
    log = read_log(shop.folder / "out/component").rows()
    for time in itertools.product(range(3), repeat=2):
        there, got = {}, {}
        for src, dst, x, y, diff in edges:
            there[src, dst] = there.get((src, dst), 0) + diff * (x <= time[0] and y <= time[1])
        for node, label, x, y, diff in log:
            got[node, label] = got.get((node, label), 0) + diff * (x <= time[0] and y <= time[1])
        assert {record: n for record, n in got.items() if n} == components([edge for edge, n in there.items() if n])


GROWING = """\
dd: 1
name: growing
inputs: {start: start/}
collections:
  grown:
    iterate:
      variables: {numbers: start}
      body:
        numbers: {from: numbers, apply: [map: {n: case when n < 50 then n + 1 when n > 50 then n + 2 else n end}]}
      result: numbers
      max_rounds: {guard: 100}
outputs: {grown: out/grown/}
"""


def test_a_loop_that_does_not_settle_stops_the_run_and_changes_nothing(shop):
    shop.write("growing.yaml", GROWING)
    start = {"n": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
    shop.log("start/1.parquet", [(1, 0, 1), (40, 1, 1)], **start)
    assert shop("run", "growing.yaml").code == 0
    assert contents(shop.folder / "out/grown") == {(50,): 2}
    shop.log("start/2.parquet", [(60, 2, 1)], **start)
    before = files(*shop.kept)
    for _ in range(2):
        result = shop("run", "growing.yaml")
        assert result.code == 5
        assert "error: " in result.err
        assert "numbers" in result.err.splitlines()[0]
        assert "hint: " in result.err
        assert files(*shop.kept) == before
