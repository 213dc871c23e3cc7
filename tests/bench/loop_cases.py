"""The cases of loops as rows of the table: for each figure what was asked for, and what Rust's differential dataflow takes."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.files import size
from tests.bench.loops import CHANGES
from tests.bench.processes import measure, python
from tests.bench.table import Asked, Figure, beside_rust

if TYPE_CHECKING:
    from tests.bench.files import Session

TITLES = {
    "load": "loops: {what}, {nodes} nodes, {edges} edges, {workers}",
    "one_p50": "loops: then one edge removed and one added, awaited, p50",
    "one_p99": "loops: the same, p99",
    "together": f"loops: then {CHANGES} such changes at as many times, together",
}
RUNS = 3
NOTHING = Asked()


@dataclass(frozen=True)
class Case:
    """What is found by a case of `loops`, in a graph with a node for every `part` rows of the session and so many edges.

    What was asked for, and Rust's seconds with as many workers, are of the first figures, in the order of `TITLES`.
    """

    case: str
    what: str
    asked: tuple[Asked, ...]
    rust: tuple[float, ...] = ()
    workers: int = 1
    part: int = 10
    degree: int = 2

    def figures(self, session: Session) -> list[Figure]:
        """Run the case in processes of its own, and take the medians of what they say of themselves."""
        nodes = session.rows // self.part
        command = python("-m", "tests.bench.loops", self.case, str(nodes), str(self.workers))
        runs = [measure(command) for _ in range(min(session.runs, RUNS))]
        said = [json.loads(run.stdout) for run in runs]
        found = {name: statistics.median(figures[name] for figures in said) for name in said[0]}
        words = {
            "what": self.what,
            "nodes": size(nodes),
            "edges": size(nodes * self.degree),
            "workers": f"{self.workers} worker{'s' if self.workers > 1 else ''}",
        }
        rows = []
        for at, (name, title) in enumerate(TITLES.items()):
            figure = Figure(
                title.format(**words),
                found[name],
                self.asked[at] if at < len(self.asked) else NOTHING,
                # All changes together would be as many runs of a peer, each from nothing.
                {} if name == "together" else {"scipy": found["scipy"]},
                load=None if name == "load" else found["load"],
                peak=max(figures["peak"] for figures in said),
                reference=self.rust[at] if at < len(self.rust) else None,
                full=session.full,
                runs=tuple(figures[name] for figures in said),
            )
            rows.append(figure)
        return rows


def _within(peak: float, *seconds: float) -> tuple[Asked, ...]:
    """Return bounds on the load and what follows, and on the load's peak beside Rust's."""
    load, *others = seconds
    return Asked(seconds=load, peak=beside_rust(peak)), *(Asked(seconds=each) for each in others)


COMPONENTS = "connected components"
BY_LENGTH = f"{COMPONENTS}, short labels first"
DISTANCES = "breadth-first distances"
STRONG = "strong components"
STRONG_ASKED = (NOTHING, Asked(times_faster=100))

LOOPS = {
    "components": Case("components", COMPONENTS, _within(2.0e9, 35, 3.5e-3, 50e-3, 0.4), (44, 3.6e-3, 57e-3, 0.4)),
    "components-2": Case(
        "components", COMPONENTS, _within(2.0e9, 20, 3.5e-3, 50e-3, 0.4), (21, 2.1e-3, 15e-3, 0.19), 2
    ),
    "components-by-length": Case("components-by-length", BY_LENGTH, _within(0.28e9, 8, 0.6e-3), (4.3, 0.24e-3)),
    "components-by-length-2": Case("components-by-length", BY_LENGTH, _within(0.28e9, 8, 0.6e-3), (2.1, 0.26e-3), 2),
    "distances": Case("distances", DISTANCES, _within(0.17e9, 5, 0.5e-3), (2.3, 0.16e-3)),
    "distances-2": Case("distances", DISTANCES, _within(0.17e9, 5, 0.5e-3), (1.6, 0.2e-3), 2),
    "strong": Case("strong", STRONG, STRONG_ASKED, part=100, degree=3),
    "strong-by-length": Case(
        "strong-by-length",
        f"{STRONG}, short labels first",
        _within(0.12e9, 8, 2.5e-3),
        (1.2, 1.1e-3),
        part=100,
        degree=3,
    ),
}
