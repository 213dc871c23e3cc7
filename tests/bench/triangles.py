"""Triangles of a power-law graph: a join of its edges with themselves, kept up to date through the library, and computed by DuckDB.

    python -m tests.bench.triangles EDGES

runs in this process, with one thread each, and prints its figures as JSON: seconds to load all edges, DuckDB's for the same question, edges in
the state for each of the graph's, and seconds for single edges that come and go, each awaited. What is left in the end is compared with DuckDB's.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import polars as pl

from ddcli.api import Dataflow
from tests.bench.data import SEED
from tests.bench.files import size
from tests.bench.processes import measure, python
from tests.bench.table import Asked, Figure

if TYPE_CHECKING:
    from ddcli.api import Input, Output
    from tests.bench.files import Session

WARM = 500
CHANGES = 200
FALL = 0.6
"""A node's chance to be an edge's end falls with its number to this power: its edges are so many as by a power law with exponent 1 + 1 / FALL."""
QUESTION = """\
select e1.src, e1.dst, e2.dst from edges e1, edges e2, edges e3
where e1.dst = e2.src and e2.dst = e3.dst and e1.src = e3.src
"""


def power_law(count: int) -> np.ndarray:
    """Return distinct edges in random order; ten for each node, if as many are drawn."""
    random = np.random.default_rng(SEED)
    nodes = max(count // 10, 10)
    chances = np.cumsum(np.arange(1, nodes + 1) ** -FALL)
    ends = np.searchsorted(chances / chances[-1], random.random((2 * count, 2)))
    drawn = np.unique(random.permutation(nodes)[ends[ends[:, 0] != ends[:, 1]]], axis=0)
    return np.ascontiguousarray(random.permutation(drawn)[:count])


def triangles() -> tuple[Dataflow, Input, Output]:
    """Return the dataflow of all nodes a, b, c with edges from a to b, b to c and a to c."""
    dataflow = Dataflow()
    edges = dataflow.input("edges", {"src": "int64", "dst": "int64"})
    paths = edges.join(edges, on={"dst": "src"}, name="next").map(a="src", b="dst", c="next.dst")
    return dataflow, edges, paths.join(edges, on={"a": "src", "c": "dst"}).output()


def measured(count: int) -> dict[str, float]:
    """Load a graph, then await edges that come and go one by one."""
    edges = power_law(count)
    dataflow, given, output = triangles()
    with dataflow:
        start = time.perf_counter()
        given.insert_many(edges)
        given.advance_to(1)
        dataflow.step()
        kept = [output.lanes()]
        load = time.perf_counter() - start
        held = sum(trace.rows for trace in dataflow.assemble().scope.traces())
        random = np.random.default_rng(SEED)
        there = {tuple(edge): 1 for edge in edges.tolist()}
        seconds = []
        for _ in range(CHANGES):
            old = tuple(edges[random.integers(len(edges))].tolist())
            new = int(edges[random.integers(len(edges)), 0]), int(edges[random.integers(len(edges)), 1])
            for edge, diff in ((old, -1), (new, 1)):
                there[edge] = there.get(edge, 0) + diff
                start = time.perf_counter()
                (given.insert if diff > 0 else given.remove)(edge)
                given.advance_to(given.time + 1)
                dataflow.step()
                kept.append(output.lanes())
                seconds.append(time.perf_counter() - start)
    first, peer = computed(edges)
    assert same(kept[0], first), "the triangles at first are others than DuckDB's"
    if min(there.values()) >= 0:
        last, _ = computed(np.repeat(np.array([*there]), [*there.values()], axis=0))
        assert same(np.concatenate(kept), last), "the triangles in the end are others than DuckDB's"
    return {
        "load": load,
        "duckdb": peer,
        "held": held / len(edges),
        "one_p50": statistics.median(seconds),
        "one_p99": sorted(seconds)[len(seconds) * 99 // 100],
    }


def computed(edges: np.ndarray) -> tuple[np.ndarray, float]:
    """Return DuckDB's triangles, and its seconds."""
    con = duckdb.connect()
    con.sql("set threads = 1")
    frame = pl.DataFrame(edges, schema=["src", "dst"])
    con.register("given", frame)
    con.sql("create table edges as select * from given")
    start = time.perf_counter()
    found = con.sql(QUESTION).fetchnumpy()
    seconds = time.perf_counter() - start
    return np.stack([np.asarray(column, np.int64) for column in found.values()], axis=1), seconds


def same(updates: np.ndarray, rows: np.ndarray) -> bool:
    """Return whether updates add up to rows."""
    both = pl.concat(
        [
            pl.DataFrame(updates[:, [0, 1, 2, -1]], ["a", "b", "c", "diff"], orient="row"),
            pl.DataFrame(np.insert(rows, 3, -1, axis=1), ["a", "b", "c", "diff"], orient="row"),
        ]
    )
    return both.group_by("a", "b", "c").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0).is_empty()


def figures(session: Session) -> list[Figure]:
    """Run in processes of their own, and take the medians of what they say of themselves."""
    count = session.rows // 10
    runs = [measure(python("-m", "tests.bench.triangles", str(count))) for _ in range(session.runs)]
    said = [json.loads(run.stdout) for run in runs]
    found = {name: statistics.median(each[name] for each in said) for name in said[0]}
    shared = {"peak": max(run.peak for run in runs), "full": session.full}
    asked = {
        "load": Asked(seconds=3 * found["duckdb"]),
        "one_p50": Asked(seconds=1e-3),
        "one_p99": Asked(),
    }
    titles = {
        "load": f"engine: triangles, {size(count)} edges of a power-law graph, 1 worker",
        "one_p50": "engine: triangles, then one edge in or out, awaited, p50",
        "one_p99": "engine: the same, p99",
    }
    rows = [
        Figure(
            title,
            found[name],
            asked[name],
            {"duckdb": found["duckdb"]},
            load=None if name == "load" else found["load"],
            runs=tuple(each[name] for each in said),
            **shared,
        )
        for name, title in titles.items()
    ]
    return [*rows, Figure("engine: triangles, state", found["held"], Asked(seconds=2.5), unit="x edges", **shared)]


def main(edges: str) -> None:
    """Run in little, which loads the kernels, and then as it was asked for."""
    if int(edges) > WARM:
        measured(WARM)
    print(json.dumps(measured(int(edges))))


if __name__ == "__main__":
    main(*sys.argv[1:])
