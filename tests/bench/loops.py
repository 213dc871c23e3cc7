"""The cases of loops: queries of a random graph, from edges in memory to output in memory.

    python -m tests.bench.loops CASE NODES [WORKERS]

runs one case in this process and prints its figures, in seconds, and its peak in bytes, as JSON: to load all edges; then, awaited one after the
other, changes that each remove an edge and add one; then as many, each at a time of its own, that are submitted together.
What comes out is compared with what scipy finds in the same edges. That is timed too: it is what a program pays for each change
that keeps nothing.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tests.bench import graphs
from tests.bench.data import SEED
from tests.bench.processes import peak_of_this_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.api import Dataflow, Input, Output

    Flow = tuple[Dataflow, Input, Output]
    Judge = Callable[[np.ndarray, int], np.ndarray]
    Change = tuple[tuple[int, int], tuple[int, int]]
    Case = tuple[Flow, Judge, "Graph"]

CHANGES = 100
WARM = 500


class Graph:
    """A random graph that changes: `edges` as they are now."""

    def __init__(self, nodes: int, count: int) -> None:
        self.nodes = nodes
        self._random = np.random.default_rng(SEED)
        self._replaced: list[tuple[int, np.ndarray]] = []
        self.edges = self._random.integers(0, nodes, (count, 2))

    def replace(self) -> Change:
        """Replace an edge by another; return both."""
        place = self._random.integers(len(self.edges))
        new = self._random.integers(0, self.nodes, 2)
        removed, added = map(tuple, [self.edges[place].tolist(), new.tolist()])
        self._replaced.append((int(place), self.edges[place].copy()))
        self.edges[place] = new
        return removed, added

    def undo(self, count: int) -> None:
        """Have the edges as they were so many replacements ago."""
        for _ in range(count):
            place, old = self._replaced.pop()
            self.edges[place] = old


class Results:
    """The updates that have come out, to be held against what the judge finds in the edges that there were."""

    def __init__(self, judge: Judge, nodes: int) -> None:
        self.kept: list[np.ndarray] = []
        self.seconds: list[float] = []
        self._judge = judge
        self._nodes = nodes

    def check(self, moment: int, edges: np.ndarray) -> None:
        """Refuse figures where the collection at a time is another; note how long the judge takes."""
        start = time.perf_counter()
        expected = self._judge(edges, self._nodes)
        self.seconds.append(time.perf_counter() - start)
        import polars as pl

        updates = np.concatenate(self.kept)
        found = updates[updates[:, -2] <= moment][:, [0, 1, 3]]
        both = pl.DataFrame(
            np.concatenate([found, np.insert(expected, 2, -1, axis=1)]), ["a", "b", "diff"], orient="row"
        )
        wrong = both.group_by("a", "b").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
        assert wrong.is_empty(), f"at time {moment} dd has, or scipy has with the sign turned: {wrong.head(5).rows()}"


def measured(flow: Flow, judge: Judge, graph: Graph, *, judged: bool = True) -> dict[str, float]:
    """Load the graph, await changes one by one, and then many together. All is judged at the end, if it is: the judge's memory is not ours."""
    dataflow, given, output = flow
    results = Results(judge, graph.nodes)
    with dataflow:
        start = time.perf_counter()
        given.insert_many(graph.edges)
        given.advance_to(1)
        dataflow.step()
        results.kept.append(output.lanes())
        load = time.perf_counter() - start
        singles = []
        for change in [graph.replace() for _ in range(CHANGES)]:
            start = time.perf_counter()
            _submit(given, change)
            dataflow.step()
            results.kept.append(output.lanes())
            singles.append(time.perf_counter() - start)
        # The collection half-way is only in the times of what comes out.
        half = given.time - 1 + CHANGES // 2
        changes = [graph.replace() for _ in range(CHANGES)]
        start = time.perf_counter()
        for change in changes:
            _submit(given, change)
        dataflow.step()
        results.kept.append(output.lanes())
        together = time.perf_counter() - start
    peak = peak_of_this_process()
    moments = ((given.time - 1, 0), (half, CHANGES - CHANGES // 2), (CHANGES, CHANGES // 2), (0, CHANGES))
    for moment, changed in moments if judged else ():
        graph.undo(changed)
        results.check(moment, graph.edges)
    return {
        "load": load,
        "one_p50": statistics.median(singles),
        "one_p99": sorted(singles)[len(singles) * 99 // 100],
        "together": together,
        "scipy": statistics.median(results.seconds or [0]),
        "peak": peak,
    }


def _submit(given: Input, change: Change) -> None:
    removed, added = change
    given.remove(removed)
    given.insert(added)
    given.advance_to(given.time + 1)


def _scipys(name: str, **given: int) -> Judge:
    """Return scipy's routine for a case. It is imported when it is first called: by then the peak is known."""

    def judge(edges: np.ndarray, nodes: int) -> np.ndarray:
        from tests.bench.peers import scipy_graphs

        found: np.ndarray = getattr(scipy_graphs, name)(edges, nodes, **given)
        return found

    return judge


def components(nodes: int, workers: int, at: str | None = None) -> Case:
    """Label the connected components, each node of which has four edges on average."""
    return graphs.components(workers, at), _scipys("components"), Graph(nodes, 2 * nodes)


def distances(nodes: int, workers: int) -> Case:
    """Find how far all nodes of the same graph are from the one with most edges, which is hardly ever cut off."""
    graph = Graph(nodes, 2 * nodes)
    root = int(np.bincount(graph.edges.ravel()).argmax())
    return graphs.distances(workers, root), _scipys("distances", root=root), graph


def cyclic(nodes: int, workers: int, at: str | None = None) -> Case:
    """Find the strongly connected components of a graph where three edges on average begin at a node."""
    return graphs.cyclic(workers, at), _scipys("cyclic"), Graph(nodes, 3 * nodes)


CASES = {
    "components": components,
    "components-by-length": partial(components, at=graphs.BY_LENGTH),
    "distances": distances,
    "strong": cyclic,
    "strong-by-length": partial(cyclic, at=graphs.BY_LENGTH),
}


def main(name: str, nodes: str, workers: str = "1") -> None:
    """Run a case in little, which loads the kernels, and then as it was asked for."""
    if int(nodes) > WARM:
        measured(*CASES[name](WARM, int(workers)), judged=False)
    print(json.dumps(measured(*CASES[name](int(nodes), int(workers)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
