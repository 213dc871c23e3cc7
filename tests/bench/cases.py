"""The list of all cases by name, each a function from a session to rows of the table."""

from __future__ import annotations

import json
import statistics
from functools import partial
from typing import TYPE_CHECKING

from tests.bench import files, states, tpcds, tpch, triangles
from tests.bench.batches import in_batches
from tests.bench.commits import commits
from tests.bench.corrections import corrections
from tests.bench.differences import differences
from tests.bench.explanations import bisect, calls, effect, scenarios, why
from tests.bench.files import size
from tests.bench.forgetting import forgetting
from tests.bench.lookups import lookups
from tests.bench.loop_cases import LOOPS
from tests.bench.processes import measure, python
from tests.bench.rewrites import rewrites
from tests.bench.shop import shop
from tests.bench.table import Asked, Figure, beside_rust
from tests.bench.watched import rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.files import Session

# Figures of a case of the engine: title, what was asked for, seconds that Rust's differential dataflow takes with one worker.
ENGINE = {
    "load": {"load": ("engine: skip-level, {rows} people", Asked(seconds=4, peak=beside_rust(0.56e9)), 3.0)},
    "moves": {
        "moves": (
            "engine: skip-level, {rows} people and {rows} moves",
            Asked(seconds=15, peak=beside_rust(1.6e9)),
            11.1,
        )
    },
    "change": {
        "one_p50": ("engine: one move among {tenth} people awaited, in their order, p50", Asked(seconds=45e-6), 15e-6),
        "one_p99": ("engine: the same, p99", Asked(), None),
        "batch_p50": ("engine: 1 000 moves awaited, in their order, p50", Asked(seconds=3e-3), 0.94e-3),
        "one_anywhere_p50": ("engine: one move awaited, of people anywhere, p50", Asked(seconds=60e-6), 18e-6),
        "one_anywhere_p99": ("engine: the same, p99", Asked(), None),
        "batch_anywhere_p50": ("engine: 1 000 moves awaited, of people anywhere, p50", Asked(seconds=3e-3), 3.4e-3),
    },
    "least": {
        "load": ("engine: min per key, {rows} rows", Asked(seconds=4, peak=beside_rust(0.33e9)), 3.0),
        "batch_p50": ("engine: min per key, 1 000 replaced rows awaited, p50", Asked(seconds=9e-3), 7.4e-3),
    },
    "count": {
        "load": ("engine: count per key, {rows} rows", Asked(seconds=2), 1.8),
        "batch_p50": ("engine: count per key, 1 000 replaced rows awaited, p50", Asked(seconds=4e-3), 2.5e-3),
    },
}


def engine(session: Session, case: str) -> list[Figure]:
    """Run a case of the engine in processes of its own, and take the median of what they say of themselves."""
    rows = session.rows // 10 if case == "change" else session.rows
    runs = [
        measure(python("-m", "tests.bench.engine", case, str(rows)))
        for _ in range(min(session.runs, 3) if case == "moves" else session.runs)
    ]
    said = [json.loads(run.stdout) for run in runs]
    return [
        Figure(
            title.format(rows=size(session.rows), tenth=size(session.rows // 10)),
            statistics.median(figures[name] for figures in said),
            asked,
            peak=max(figures.get("peak", run.peak) for run, figures in zip(runs, said, strict=True)),
            reference=reference,
            full=session.full,
            runs=tuple(figures[name] for figures in said),
        )
        for name, (title, asked, reference) in ENGINE[case].items()
    ]


CASES: dict[str, Callable[[Session], list[Figure]]] = {
    "skip-level": partial(files.load, task="skip_level"),
    "moves": files.moves,
    "min-and-count": partial(files.load, task="least_and_count"),
    "min": partial(files.load, task="least"),
    "count": partial(files.load, task="count"),
    "update-skip-level": partial(files.update, task="skip_level"),
    "update-min-and-count": partial(files.update, task="least_and_count"),
    "shop": shop,
    "nothing-new": files.nothing,
    "watch": rounds,
    "compile": files.compile_kernels,
    "engine-load": partial(engine, case="load"),
    "engine-moves": partial(engine, case="moves"),
    "engine-change": partial(engine, case="change"),
    "engine-min": partial(engine, case="least"),
    "engine-count": partial(engine, case="count"),
    "engine-triangles": triangles.figures,
    "bounded-memory": states.bounded,
    "tenfold-state": states.tenfold,
    "two-workers": states.workers,
    "state-on-disk": states.disk,
    "diff": differences,
    "why": why,
    "bisect": bisect,
    "effect": effect,
    "scenarios": scenarios,
    "calls": calls,
    "query": lookups,
    "lookups": in_batches,
    "commits": commits,
    "corrections": corrections,
    "forgetting": forgetting,
    "rewrites": rewrites,
    "checks": tpch.checks,
    "tpch-effect": tpch.effects,
    "tpch": tpch.each,
    "tpch-all": tpch.all_in_one,
    "tpcds": tpcds.tpcds,
    "nexmark": tpcds.nexmarks,
    **{f"loops-{name}": case.figures for name, case in LOOPS.items()},
}
